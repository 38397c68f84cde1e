"""q(w|x, y): which latent a data point came from.

free-form   q(w) ∝ exp(E_q(f) log p(y|x, w, f)) p(w), on nodes
Gaussian    N(μ, Σ), from the recognition network, or by climbing the bound with everything else held fixed
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from scipy.special import softmax

from ._bound import Batch, Model, Noise, evaluate_bound, whole
from ._compile import compiled
from ._inputs import Inputs
from ._latents import FreeForm, GaussianLatents
from ._posterior import Shared, Statistics
from ._predict import predict

LOCAL_STEPS, ROWS_AT_ONCE = 300, 1024


class LatentPosterior(NamedTuple):
    """q(w|x, y) of every row: mean and standard deviation, and for free-form q its weights on shared nodes."""

    mean: Float[np.ndarray, "n d"]
    std: Float[np.ndarray, "n d"]
    nodes: Float[np.ndarray, "q d"] | None = None
    weights: Float[np.ndarray, "n q"] | None = None


def infer(model: Model, posterior: Statistics | Shared, x: Inputs, y: Float[np.ndarray, "n D"]) -> LatentPosterior:
    """q(w_n) of new data points, given the trained model."""
    n = x.n_rows
    parts = []
    for begin in range(0, n, ROWS_AT_ONCE):
        rows = np.arange(begin, min(begin + ROWS_AT_ONCE, n))
        parts.append(_infer(model, posterior, x.take(rows), y[rows]))
    mean, std = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    if parts[0].weights is None:
        return LatentPosterior(mean, std)
    weights = np.concatenate([part.weights for part in parts if part.weights is not None])
    return LatentPosterior(mean, std, parts[0].nodes, weights)


def _infer(model: Model, posterior: Statistics | Shared, x: Inputs, y: Float[np.ndarray, "n D"]) -> LatentPosterior:
    if isinstance(model.latents, FreeForm):
        nodes, log_weights = (np.asarray(a) for a in (model.latents.nodes, model.latents.log_weights))
        logs = np.asarray(_expected(model, posterior, x, jnp.asarray(y), jnp.asarray(nodes))) + log_weights
        weights = softmax(logs, axis=1)
        mean = weights @ nodes
        variance = (weights[..., None] * (nodes - mean[:, None]) ** 2).sum(1)
        return LatentPosterior(mean, np.sqrt(variance), nodes, weights)
    if not isinstance(model.latents, GaussianLatents):
        raise ValueError("this model has no latents: inference='none'")
    local = None
    if model.latents.local_dim:
        local = _climb(model, posterior, whole(x, y))
    latents, inputs = jax.tree.map(jnp.asarray, (model.latents, x))
    q = latents.gaussian(inputs, jnp.asarray(y), local)
    scale = np.asarray(q.scale)
    return LatentPosterior(np.asarray(q.mean), scale if scale.ndim == 2 else np.sqrt((scale**2).sum(2)))


@compiled
def _expected(
    model: Model, posterior: Statistics | Shared, x: Inputs, y: Float[Array, "n D"], w: Float[Array, "q d"]
) -> Float[Array, "n q"]:
    """E_q(f) log N(y | P f(x, w), σ² I), a constant apart; A at its mean."""
    noise_dim = model.input_map.noise_dim
    noise = jnp.zeros((len(w), noise_dim)) if noise_dim else None
    m = predict(model, posterior, x, w, jnp.zeros(len(w)), noise)
    inside = y if m.basis is None else y @ m.basis
    sigma2 = model.noise_variance
    squares = ((inside[:, None] - m.mean) ** 2).sum(2)
    spread = (jnp.broadcast_to(m.variance, m.mean.shape) - sigma2).sum(2)
    if m.basis is not None:
        spread = spread + (y.shape[1] - m.mean.shape[2]) * (m.outside - sigma2)
    return -0.5 * (squares + spread) / sigma2


@compiled
def _climb(model: Model, posterior: Statistics | Shared, batch: Batch) -> Float[Array, "n p"]:
    """Each data point's own q(w_n), from the prior, by Adam on the bound."""
    rows, adam = batch.y.shape[0], optax.adam(0.05)
    count, dim = model.latents.noise_shape
    key = jax.random.key(0)

    def loss(local: Array, step: Array) -> Array:
        latent = jax.random.normal(jax.random.fold_in(key, step), (rows, count, dim))
        noise = Noise(jnp.zeros((rows, model.input_map.noise_dim)), latent)
        return -evaluate_bound(model, posterior, batch, noise, rows, local).data

    def body(step: Array, carry: tuple[Array, optax.OptState]) -> tuple[Array, optax.OptState]:
        local, state = carry
        updates, state = adam.update(jax.grad(loss)(local, step), state)
        return local + updates, state

    assert isinstance(model.latents, GaussianLatents)
    local = jnp.zeros((rows, model.latents.local_dim))
    return jax.lax.fori_loop(0, LOCAL_STEPS, body, (local, adam.init(local)))[0]
