"""Why natural gradients: a GP-LVM of 100 handwritten ones, trained four ways.

    y = f(w) + N(0, σ² I),   w one-dimensional,   q(w_n) Gaussian, each image's own,   no inputs, no minibatches

    analytic           q(u) at its optimum in every step (a natural-gradient step of size 1)
    natural gradient   steps of size 0.1
    Adam, whitened     q(v), u = Lz v, optimised like everything else, with step size 0.001
    Adam               the same of q(u) = N(m, S) itself

Kernel, noise, inducing inputs and q(w) are optimised by Adam in all four, from the same start: q(u) at the prior, and
the means of q(w) either random or the images' first principal component. The test log likelihood is that of the ones of
the test set, in nats per pixel.

Beside them the first way with larger steps that fall, until nothing changes any more, for more inducing inputs, two
latents, and a shorter lengthscale to start from: what level the model itself can reach.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ...datasets import load_mnist
from ...inference import (
    Batch,
    Design,
    Shared,
    State,
    Statistics,
    Trainer,
    VariationalPosterior,
    draw,
    evaluate_bound,
    start,
    whole,
)
from ...inference.forms import inverse_cholesky
from ...model import RBF, ConstantNoise, Model, make_inputs
from ...prediction import Nodes, Predictor
from ...runtime.compilation import compiled
from ...runtime.precision import scope
from ..lines import mean_error, picture
from ..names.natgrad import ANALYTIC, CONVERGED, MODELS, NATURAL, PLAIN, STARTS, WHITENED, setting
from ..units import Tell, Unit
from .images import mixture_log_density
from .training import Schedule, noise_variance, train_design

GAMMAS = {ANALYTIC: 1.0, NATURAL: 0.1, WHITENED: 0.1, PLAIN: 0.1}
"""Natural-gradient steps (which Adam does not take)."""

STEPS, SEEDS = {"quick": 60, "standard": 10_000, "paper": 50_000}, {"quick": 1, "standard": 3, "paper": 10}

CHUNK = 50
"""Steps between two points of a curve."""

SETTLED: dict[str, Any] = {"images": 100, "steps": 10_000, "rate": 0.02, "last_rate": 0.0005, "gamma": 1.0, "test": 0}
OTHERS = [*((m, d, scale) for m in (20, 50) for d in (1, 2) for scale in (1.0, 0.3)), (50, 3, 0.3)]
"""Inducing inputs, latents, and the lengthscale to start from, each trained until nothing changes any more."""


def units(preset: str) -> list[Unit]:
    """The units of "quick", "standard" or "paper"."""
    steps = STEPS[preset]
    settings = {"images": 100, "inducing": 20, "steps": steps, "rate": 0.001, "test": 100 if preset == "quick" else 0}
    settled = [
        Unit(
            "natgrad",
            CONVERGED,
            setting(m, latents, scale),
            0,
            0,
            SETTLED | {"inducing": m, "latents": latents, "lengthscale": scale},
            60,
        )
        for m, latents, scale in OTHERS
        if preset != "quick"
    ]
    return [
        Unit("natgrad", name, begin, seed, seed, settings | {"gamma": GAMMAS[name]}, cost=5 + 0.003 * steps)
        for begin in STARTS
        for seed in range(SEEDS[preset] if begin == "random" else 1)
        for name in MODELS
        if preset != "quick" or begin == "random"
    ] + settled


def work(unit: Unit, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    """One of the four."""
    settings = unit.settings
    train, test = _ones(settings["images"], 0)
    test = test[: settings["test"] or None]
    x = make_inputs(rows=len(train))
    design = _design(settings)

    def first() -> State:
        return _first(unit, start(jax.random.key(unit.seed), x, train, design))

    pixels = train.shape[1]
    if unit.model == PLAIN:
        state, curve = _plain(first(), whole(x, train), settings["steps"], settings["rate"], tell)
    else:
        rates = settings["rate"], settings.get("last_rate", settings["rate"])
        schedule = Schedule(settings["steps"], len(train), rates, (settings["gamma"], settings["gamma"]))
        state, records = train_design(unit.seed, x, train, design, schedule, tell, checkpoint, first)
        curve = [(r.step, r.bound) for r in records]
    nodes = Nodes.for_model(state.model, line=401, grid=65, cloud=2**15 if design.latent_dim > 2 else None)
    predictor = Predictor.create(state.model, state.posterior, nodes)
    mean, error = mean_error(mixture_log_density(predictor.components(make_inputs(rows=1)), test) / pixels)
    about = {
        "log_likelihood": mean,
        "error": error,
        "noise_variance": noise_variance(state),
        "step": [step for step, _ in curve],
        "bound": [round(bound / pixels, 5) for _, bound in curve],
    }
    return about | ({"manifold": picture(_manifold(state), levels=32)} if design.latent_dim == 1 else {})


def _design(settings: dict[str, Any]) -> Design:
    """The GP-LVM, the lengthscale of its kernel as it comes, or as the settings have it."""
    plain = Design(inference="gaussian", inducing=settings["inducing"], expectation="closed", trials=1)
    if "latents" not in settings:
        return plain
    with scope():
        kernel = RBF.create(settings["latents"], settings["lengthscale"])
    return dataclasses.replace(plain, latent_dim=settings["latents"], kernel=kernel)


def _ones(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    digits = load_mnist()
    ones = np.flatnonzero((digits.labels == 1) & ~digits.test)
    chosen = np.random.default_rng(seed).permutation(ones)[:count]
    return digits.images[chosen], digits.images[(digits.labels == 1) & digits.test]


def _first(unit: Unit, state: State) -> State:
    """The start that all four share, as one who knows nothing of q(u) would begin."""
    inducing, outputs = state.model.width, state.model.mixing.shape[0]
    assert state.local is not None
    with scope():
        posterior: VariationalPosterior = Statistics.prior(inducing, outputs)
        if unit.model in (WHITENED, PLAIN):
            posterior = Shared(jnp.zeros((inducing, outputs)), jnp.eye(inducing))
        model = dataclasses.replace(state.model, likelihood=ConstantNoise.create(0.1))
        local = np.array(state.local.value)
        if unit.data == "random":
            local[:, 0] = np.random.default_rng(unit.seed).standard_normal(len(local))
            local[:, 1] = 0.0
        return Trainer.create(1).init(model, posterior, jnp.asarray(local))


Parameters = tuple[Model, Shared, Float[Array, "n p"]]


def _whitened(model: Model, q: Shared) -> Shared:
    """q(u) = N(m, L Lᵀ) as q(v), v = Lz⁻¹ u."""
    whitener = inverse_cholesky(model.gram())
    return Shared(whitener @ q.mean, whitener @ jnp.tril(q.root))


@compiled
def _adam_chunk(
    parameters: Parameters, adam: optax.OptState, data: Batch, rate: Float[Array, ""]
) -> tuple[Parameters, optax.OptState, Float[Array, " t"]]:
    """Steps of Adam on everything, m and S among it, and the bounds on the way."""
    n_data = data.y.shape[0]
    draws = draw(jax.random.key(0), parameters[0], n_data)  # of the closed form: none

    def bound(parameters: Parameters) -> Float[Array, ""]:
        model, q, local = parameters
        return evaluate_bound(model, _whitened(model, q), data, draws, n_data, local).bound

    def step(carry: tuple[Parameters, optax.OptState], _: None) -> tuple[tuple[Parameters, optax.OptState], Array]:
        parameters, adam = carry
        value, gradient = jax.value_and_grad(bound)(parameters)
        updates, adam = optax.scale_by_adam().update(gradient, adam)
        return (jax.tree.map(lambda p, u: p + rate * u, parameters, updates), adam), value

    (parameters, adam), bounds = jax.lax.scan(step, (parameters, adam), None, CHUNK)
    return parameters, adam, bounds


def _plain(first: State, data: Batch, steps: int, rate: float, tell: Tell) -> tuple[State, list[tuple[int, float]]]:
    """Adam on m and S themselves, from the prior N(0, Kzz)."""
    assert first.local is not None
    with scope():
        gram = first.model.gram()
        prior = Shared(jnp.zeros((len(gram), first.model.mixing.shape[0])), jnp.linalg.cholesky(gram))
        parameters: Parameters = (first.model, prior, first.local.value)
        adam, curve = optax.scale_by_adam().init(parameters), []
        for done in range(CHUNK, steps + 1, CHUNK):
            parameters, adam, bounds = _adam_chunk(parameters, adam, data, jnp.asarray(rate))
            curve.append((done, float(bounds.mean()) / len(data.y)))
            tell(done / steps)
        model, q, local = parameters
        return Trainer.create(1).init(model, _whitened(model, q), local), curve


def _manifold(state: State) -> np.ndarray:
    """The mean image at latents along the line."""
    w = np.linspace(-2, 2, 15)[:, None]
    predictor = Predictor.create(state.model, state.posterior, Nodes(w, np.zeros(len(w))))
    return np.asarray(predictor.mixture(make_inputs(rows=1)).means()[0]).reshape(-1, 28, 28)
