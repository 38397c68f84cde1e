"""The bound with q(u) at its optimum, a function of the model alone, and its maximum by L-BFGS.

    bound*(model) = max_q(u) bound(model, q(u)),      ∂bound*/∂model = ∂bound/∂model at the optimal q(u)

Without latents the optimum is one natural-gradient step of size 1 on all rows, so value and derivative are exact, and a
quasi-Newton method needs a tenth of the steps that Adam does. An uncertain A is drawn once, and the draws are kept.

Few rows leave much open about kernel, noise and trend: bound* is then nearly their log posterior θ, and by Laplace's
approximation they are as likely to be draws from N(θ*, Λ⁻¹), Λ = -∂²bound*/∂θ² at its maximum θ*.
"""

from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.optimize import minimize

from ..model.inputs import AnyArray
from ..model.model import Model
from ..model.quadrature import quasi_random
from ..runtime.blocks import rung
from ..runtime.compilation import compiled
from ..runtime.precision import on_device, scope
from .bound import draw
from .data import Batch
from .posterior import VariationalPosterior
from .training import State, Trainer

PRECISION = 1e-6
"""A relative gain of the bound below which a maximum is reached."""

SLACK = 1e-3
"""Nats a row by which rounding may pass what no bound can."""

STRIDE = 1e-3
"""How far apart slopes are whose difference tells a curvature, in logarithms."""

FIRM, FAR = 0.4, 3.0
"""The least curvature, less than that of the priors, where the bound says less; and how far draws go at most, in
standard deviations."""

WORSE = 1e6
"""What a bound a row that is not finite counts as, so that a line search turns back."""


@compiled
def collapsed_bound(
    trainer: Trainer,
    key: PRNGKeyArray,
    state: State,
    batch: Batch,
    belief: float | Float[Array, ""],
    numbers: Float[AnyArray, " p"],
) -> tuple[Float[Array, ""], Float[AnyArray, " p"], VariationalPosterior]:
    """The bound a row of the state's model with these numbers (`flat`), its derivative by them, and the optimal q(u).

    No density of y is higher than that of the noise at its own mean, and no KL is negative. A bound beyond that is
    rounding, which L-BFGS would climb for ever: it is minus infinity. Of what is believed a priori of kernel, noise and
    trend as much counts as `belief` says.
    """
    state = eqx.tree_at(lambda s: s.model, state, with_numbers(state.model, numbers))
    draws = draw(key, state.model, batch.y.shape[0])
    state = eqx.tree_at(lambda s: s.posterior, state, trainer.optimum(draws, state, batch))
    terms, gradients = trainer.gradients(draws, state, batch)
    highest = -0.5 * batch.y.shape[1] * jnp.log(2 * jnp.pi * state.model.noise_variance)
    sound = (terms.data / trainer.n_data <= highest + SLACK) & (terms.kl_u / trainer.n_data >= -SLACK)
    surprise, more = jax.value_and_grad(_surprise)(state.model)
    bound = jnp.where(sound, terms.bound + (1 - belief) * surprise, -jnp.inf)
    slope = flat(gradients.learnt[0], jnp) + (1 - belief) * flat(more, jnp)
    return bound / trainer.n_data, slope / trainer.n_data, state.posterior


@scope()
def maximised(
    trainer: Trainer, key: PRNGKeyArray, state: State, batch: Batch, steps: int, belief: float = 1.0
) -> State:
    """The state after at most that many iterations, q(u) at its optimum; its model must have no latents."""
    same = _same(trainer, key, state, batch, belief)

    def loss(numbers: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
        bound, gradient, _ = collapsed_bound(*same, numbers)
        value, slope = -float(bound), -np.asarray(gradient)
        return (value, slope) if np.isfinite(value) and np.isfinite(slope).all() else (WORSE, np.zeros_like(slope))

    limits = {"maxiter": steps, "ftol": PRECISION}
    best = minimize(loss, flat(state.model), jac=True, method="L-BFGS-B", options=limits).x
    found = with_numbers(jax.tree.map(np.asarray, state.model), best), collapsed_bound(*same, best)[2]
    return eqx.tree_at(lambda s: (s.model, s.posterior), state, on_device(found))


@scope()
def highest_bound(trainer: Trainer, key: PRNGKeyArray, state: State, batch: Batch, belief: float = 1.0) -> float:
    """The bound a row with q(u) at its optimum; its model must have no latents."""
    return float(collapsed_bound(*_same(trainer, key, state, batch, belief), flat(state.model))[0])


@scope()
def likely(
    trainer: Trainer, key: PRNGKeyArray, state: State, batch: Batch, count: int, belief: float = 1.0
) -> list[State]:
    """So many states (a power of two) that may be in place of this one, a maximum, by Laplace's approximation.

    Kernel, noise and trend are drawn, as far as they are learnt, all else is as it was, and q(u) at its optimum.
    """
    same, numbers = _same(trainer, key, state, batch, belief), np.asarray(flat(state.model))
    nothing = jax.tree.map(lambda a: np.zeros(a.shape), state.model)
    settings = flat(eqx.tree_at(_settings, nothing, jax.tree.map(np.ones_like, _settings(nothing)))) > 0

    def slope(at: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
        return float(trainer.n_data) * np.asarray(collapsed_bound(*same, at)[1])

    here = slope(numbers)
    places = np.flatnonzero(settings & (here != 0))
    if not len(places):
        return [state]
    steps = np.zeros((len(places), len(numbers)))
    steps[np.arange(len(places)), places] = 1
    curvature = np.stack([(here - slope(numbers + STRIDE * step)) @ steps.T for step in steps]) / STRIDE
    if not np.isfinite(curvature).all():
        return [state]
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    standard, _ = quasi_random(count, len(steps))
    changes = np.clip(standard, -FAR, FAR) / np.sqrt(np.maximum(values, FIRM)) @ vectors.T
    states = []
    for there in numbers + changes @ steps:
        bound, _, posterior = collapsed_bound(*same, there)
        if np.isfinite(bound):
            found = with_numbers(jax.tree.map(np.asarray, state.model), there), posterior
            states.append(eqx.tree_at(lambda s: (s.model, s.posterior), state, on_device(found)))
    return states or [state]


def _settings(model: Model) -> Any:
    """What few rows leave open."""
    return model.kernel, model.likelihood, model.trend


def _surprise(model: Model) -> Float[Array, ""]:
    """What the bound loses by what is believed of these."""
    return jnp.asarray(sum(part.penalty() for part in _settings(model)))


def _same(
    trainer: Trainer, key: PRNGKeyArray, state: State, batch: Batch, belief: float
) -> tuple[Trainer, Any, State, Batch, Array]:
    """What one compiled bound takes, padded so that it serves many numbers of rows."""
    padded = jax.tree.map(np.asarray, batch).padded(rung(batch.y.shape[0]))
    same: tuple[Trainer, PRNGKeyArray, State, Batch, Array] = on_device((trainer, key, state, padded, np.array(belief)))
    return same


def flat(model: Model, xp: ModuleType = np) -> Float[AnyArray, " p"]:
    """All its numbers; with NumPy, which compiles nothing, or to be compiled."""
    return xp.concatenate([xp.ravel(leaf).astype(float) for leaf in jax.tree.leaves(model)])


def with_numbers(model: Model, numbers: Float[AnyArray, " p"]) -> Model:
    """The model with these in place of its own."""
    leaves, tree = jax.tree.flatten(model)
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = [numbers[end - leaf.size : end].reshape(leaf.shape) for leaf, end in zip(leaves, ends, strict=True)]
    return jax.tree.unflatten(tree, [part.astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)])
