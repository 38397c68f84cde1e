"""log p(y|x) by importance sampling, where latents are too many for quadrature.

    p(y|x) ≈ 1/K sum_k p(y|x, v_k) p(v_k|x) / q(v_k),     v = [w, ε],   w ~ p(w|x),   ε ~ N(0, I),   v_k ~ q(v|x, y)

with ε the draws that make A x, if A is uncertain. q is a mixture for each row, 0.9 of a Gaussian and 0.1 of
N(0, I), which bounds the ratios. The Gaussian starts at the best of some draws of the recognition network and of the
prior, and is fitted to the row by a few steps on its own evidence lower bound.

The estimate of p is unbiased, so that of log p is too low rather than too high. The effective sample size
(sum r)² / sum r², of r the ratios above, is K if all draws count the same and 1 if one alone does. A small one says
that the estimate is poor; a large one, that q fits where it looks: a mode that no draw came near, it does not show.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from scipy.special import logsumexp

from ..inference.posterior import VariationalPosterior
from ..model.climbing import climb
from ..model.gaussians import Gaussian
from ..model.inputs import Inputs
from ..model.model import Model
from ..runtime.compilation import compiled
from ..runtime.precision import scope
from ..runtime.randomness import key_of
from .nodes import Nodes
from .predictor import Predictor

NUMBERS_AT_ONCE = 2**23
"""How many kernel values, or coordinates of outputs, a block of rows may need."""

PRIOR_SHARE = 0.1
"""The share of the draws that are of N(0, I)."""

FITTED_AT_ONCE, STARTS, DRAWS, RATE = 256, 64, 4, 0.05
"""How q is fitted: rows at a time, points of which the best is the start, draws a step, and Adam's rate."""


class Estimate(NamedTuple):
    """log p(y_n|x_n), and how many draws' worth each estimate is."""

    log_density: Float[np.ndarray, " n"]
    effective: Float[np.ndarray, " n"]


def importance_log_density(
    model: Model,
    posterior: VariationalPosterior,
    x: Inputs,
    y: Float[np.ndarray, "n D"],
    draws: int = 100,
    fit_steps: int = 100,
    seed: int = 0,
) -> Estimate:
    """log p(y_n|x_n) from `draws` draws of a q that was fitted to each row in `fit_steps` steps.

    Parameters
    ----------
    model : Model
        The trained model, its latents with a recognition network.
    posterior : VariationalPosterior
        Its q(u).
    x : Inputs
        The inputs.
    y : array of shape (n, D_y)
        The outputs.
    draws : int, default=100
        Draws a row.
    fit_steps : int, default=100
        Steps by which q is fitted to each row.
    seed : int, default=0
        Of the draws.

    Returns
    -------
    Estimate
        `log_density`, and `effective`, how many draws' worth each estimate is, both of shape (n,).
    """
    if draws < 1 or fit_steps < 0:
        raise ValueError(f"draws must be at least 1 and fit_steps not negative, got {draws!r} and {fit_steps!r}")
    if not len(y):
        raise ValueError("y must have at least one row")
    width = max(model.width, model.mixing.shape[1])
    log_ratio, of_prior = np.empty((len(y), draws)), int(PRIOR_SHARE * draws)
    with scope():
        none = Nodes(np.zeros((1, model.latents.dim)), np.zeros(1), np.zeros((1, model.input_map.draw_dim)))
        predictor = Predictor.create(model, posterior, none)
        size = min(len(y), FITTED_AT_ONCE)
        part = max(1, min(draws, NUMBERS_AT_ONCE // (size * width)))
        for begin in range(0, len(y), size):
            rows = slice(min(begin, len(y) - size), min(begin, len(y) - size) + size)  # all blocks of one shape
            block = jax.tree.map(jnp.asarray, (x.take(rows), y[rows]))
            one, two = jax.random.split(jax.random.fold_in(key_of(seed), begin))
            proposal = _fitted(one, predictor, block, jnp.asarray(fit_steps))
            for place in range(0, draws, part):
                noise = jax.random.normal(jax.random.fold_in(two, place), (size, part, proposal.mean.shape[1]))
                ours = np.arange(place, place + part) >= of_prior
                share = of_prior / draws
                ratios = np.asarray(_log_ratios(predictor, block, proposal, noise, *map(jnp.asarray, (ours, share))))
                log_ratio[rows, place : place + part] = ratios[:, : draws - place]
    total = logsumexp(log_ratio, axis=1)
    return Estimate(total - np.log(draws), np.exp(2 * total - logsumexp(2 * log_ratio, axis=1)))


@compiled
def _log_ratios(
    predictor: Predictor,
    rows: tuple[Inputs, Float[Array, "n D"]],
    proposal: Gaussian,
    draws: Float[Array, "n k v"],
    ours: Bool[Array, " k"],
    share: Float[Array, ""],
) -> Float[Array, "n k"]:
    """log p(y|x, v) p(v|x) / q(v), v drawn from the proposal where `ours`, else from N(0, I), a share of all draws."""
    v = jnp.where(ours[:, None], proposal.at(draws), draws)
    dim = predictor.model.latents.dim
    residual = (v - proposal.mean[:, None]) / proposal.scale[:, None]
    log_prior = -0.5 * (v**2).sum(-1)
    log_ours = -0.5 * (residual**2).sum(-1) - proposal.log_det()[:, None]
    log_q = jnp.logaddexp(jnp.log(share) + log_prior, jnp.log1p(-share) + log_ours)
    log_prior = log_prior + predictor.model.prior.log_ratio(rows[0], v[..., :dim])
    return predictor.log_likelihood(*rows, v[..., :dim], v[..., dim:]) + log_prior - log_q


@compiled
def _fitted(
    key: PRNGKeyArray, predictor: Predictor, rows: tuple[Inputs, Float[Array, "n D"]], steps: Array
) -> Gaussian:
    """A Gaussian of v for every row, after some steps up its evidence lower bound."""
    model, (x, y) = predictor.model, rows
    key, other = jax.random.split(key)
    begin = _first(other, predictor, rows)

    def bound(parameters: tuple[Array, Array], step: Array) -> Array:
        mean, log_std = parameters
        proposal = Gaussian(mean, jnp.exp(log_std))
        draws = jax.random.normal(jax.random.fold_in(key, step), (len(y), DRAWS, mean.shape[1]))
        v = proposal.at(draws)
        dim = model.latents.dim
        log_joint = predictor.log_likelihood(x, y, v[..., :dim], v[..., dim:]) + model.prior.log_ratio(x, v[..., :dim])
        return (log_joint.mean(1) - proposal.kl()).sum()

    mean, log_std = climb(bound, begin, steps, lambda step: RATE * 0.1 ** (step / jnp.maximum(steps, 1)))
    return Gaussian(mean, jnp.exp(log_std))


def _first(
    key: PRNGKeyArray, predictor: Predictor, rows: tuple[Inputs, Float[Array, "n D"]]
) -> tuple[Float[Array, "n v"], Float[Array, "n v"]]:
    """Mean and log standard deviation of q to start from."""
    model, (x, y) = predictor.model, rows
    dim, width = model.latents.dim, model.input_map.draw_dim
    q = model.latents.proposal(x, y)
    noise = jax.random.normal(key, (len(y), STARTS, dim + width))
    known = q.at(noise[:, : STARTS // 2, :dim])
    v = noise.at[:, : STARTS // 2, :dim].set(known).at[:, 0].set(jnp.pad(q.mean, [(0, 0), (0, width)]))
    score = predictor.log_likelihood(x, y, v[..., :dim], v[..., dim:]) - 0.5 * (v**2).sum(-1)
    score = score + model.prior.log_ratio(x, v[..., :dim])
    best = jnp.take_along_axis(v, score.argmax(1)[:, None, None], axis=1)[:, 0]
    return best, jnp.full(best.shape, np.log(0.3))
