"""Prediction: p(y|x) as a mixture of Gaussians over latents w_k with weights π_k.

    p(y|x) = sum_k π_k N(y | E[P] μ(x, w_k), E[P] V diag(var_l(x, w_k)) Vᵀ E[P]ᵀ + σ² I)

For a point P, P V = U diag(d): each component is diagonal in the coordinates Uᵀ y, and isotropic outside the columns
of P, so that nothing of size D_y × D_y is made. Where A is uncertain, component k has a draw of A x beside w_k.

With a Gaussian q(P), p(y|x,w) is no Gaussian any more; it is replaced by the Gaussian with its mean, its variances
along the columns of U, and one variance outside them, which has the right trace.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._bound import Model, cast_inputs, kernel_rows, separated
from ._compile import compiled
from ._forms import inverse_cholesky
from ._inputs import AnyArray, Inputs
from ._latents import LOG_2PI
from ._mixing import ConjugateMixing, GaussianMixing, Identity
from ._posterior import Shared, SparsePosterior, Statistics
from ._precision import scope, wide

NUMBERS_AT_ONCE = 2**23
"""How many kernel values a block of test points may need."""


class Mixture(NamedTuple):
    """sum_k π_k N(mean_nk, ·): variances along the columns of `basis` (None: the axes), `outside` in all others."""

    log_weight: Float[Array, " k"]
    mean: Float[Array, "n k L"]
    variance: Float[Array, "n k #L"]
    basis: Float[Array, "D L"] | None
    outside: Float[Array, "n k"]

    @scope()
    def log_density(self, y: Float[AnyArray, "n D"]) -> Float[Array, " n"]:
        """log p(y_n | x_n)."""
        return jax.nn.logsumexp(self.log_weight + self.log_components(jnp.asarray(y)), axis=1)

    def log_components(self, y: Float[Array, "n D"]) -> Float[Array, "n k"]:
        """The log density of each component."""
        inside = y if self.basis is None else y @ self.basis
        width = self.mean.shape[2]
        variance = jnp.broadcast_to(self.variance, self.mean.shape)
        squares = ((inside[:, None] - self.mean) ** 2 / self.variance).sum(2)
        total = squares + jnp.log(variance).sum(2) + y.shape[1] * LOG_2PI
        if self.basis is not None:
            rest = ((y - inside @ self.basis.T) ** 2).sum(1)
            total = total + rest[:, None] / self.outside + (y.shape[1] - width) * jnp.log(self.outside)
        return -0.5 * total


@scope()
def predict(
    model: Model,
    posterior: Statistics | Shared,
    x: Inputs,
    w: Float[AnyArray, "k d"],
    log_weight: Float[AnyArray, " k"],
    context_noise: Float[AnyArray, "k c"] | None = None,
) -> Mixture:
    """The conditional density at each x, as a mixture over the latents w_k (and, with an uncertain A, its draws)."""
    nodes = jnp.asarray(w)
    if model.input_map.noise_dim and context_noise is None:
        raise ValueError("this input map is uncertain: prediction needs standard normal noise for each component")
    decoder = Decoder.create(model, posterior)
    inputs = cast_inputs(model, jax.tree.map(jnp.asarray, x))
    mean, variance = _latent_functions(decoder, inputs, nodes, context_noise)
    return decoder.outputs(jnp.asarray(log_weight), mean, variance)


class Decoder(eqx.Module):
    """The model with all that prediction computes once: q(u), Lz⁻¹, and the SVD of E[P]."""

    model: Model
    q: SparsePosterior
    whitener: Float[Array, "M M"]
    svd: tuple[Float[Array, "D r"], Float[Array, " r"], Float[Array, "r L"]] | None

    @classmethod
    def create(cls, model: Model, posterior: Statistics | Shared) -> "Decoder":
        mixing, svd = wide(model.mixing), None
        q = posterior.solve(mixing, model.noise_variance) if isinstance(posterior, Statistics) else wide(posterior)
        if not isinstance(mixing, Identity):
            svd = tuple(jnp.linalg.svd(mixing.apply(jnp.eye(mixing.shape[1])).T, full_matrices=False))
        return cls(model, q, inverse_cholesky(model.gram()), svd)

    def functions(
        self, rows: Float[Array, "n M"], diag: Float[Array, "n 1"]
    ) -> tuple[Float[Array, "n L"], Float[Array, "n #L"]]:
        """Means of f (as they are) and variances (rotated) from kernel rows k(h, Z) and k(h, h)."""
        if isinstance(self.q, Shared):  # one matrix product instead of two
            weights, gain = self.unwhitened(self.q)
            mean, variance = rows @ weights, diag - ((rows @ gain) * rows).sum(1, keepdims=True)
        else:
            a = rows @ self.whitener.T
            mean, variance = a @ self.q.mean, diag - (a * a).sum(1, keepdims=True) + self.q.spread(a)
        return mean, jnp.maximum(variance, 0)

    def unwhitened(self, q: Shared) -> tuple[Float[Array, "M L"], Float[Array, "M M"]]:
        """With these the kernel rows need no whitening."""
        root = self.whitener
        return root.T @ q.mean, root.T @ (jnp.eye(len(root)) - q.covariance()) @ root

    def outputs(
        self, log_weight: Float[Array, " k"], mean: Float[Array, "n k L"], variance: Float[Array, "n k #L"]
    ) -> Mixture:
        """p(y|x) from means and (rotated) variances of f."""
        mixing, sigma2 = wide(self.model.mixing), self.model.noise_variance
        outside = jnp.broadcast_to(sigma2, mean.shape[:2])
        if self.svd is None:
            return Mixture(log_weight, mean, variance + sigma2, None, outside)
        turn = jnp.eye(mixing.shape[1]) if self.q.rotation is None else self.q.rotation
        basis, scale, right = self.svd
        variance = jnp.broadcast_to(variance, mean.shape)
        along = variance @ ((right @ turn) ** 2).T * scale**2 + sigma2
        if isinstance(mixing, GaussianMixing):
            second = mean**2 + variance @ (turn**2).T
            extra = second @ (mixing.variance.T @ basis**2)
            along = along + extra
            rest = second @ mixing.variance.sum(0) - extra.sum(2)
            outside = outside + jnp.maximum(rest, 0) / max(mixing.shape[0] - mixing.shape[1], 1)
        if isinstance(mixing, ConjugateMixing):  # E[fᵀ C f], the same for every output
            spread = ((mean @ mixing.covariance) * mean).sum(2)
            spread = spread + variance @ ((turn.T @ mixing.covariance) * turn.T).sum(1)
            along, outside = along + spread[..., None], outside + spread
        return Mixture(log_weight, mean @ right.T * scale, along, basis, outside)

    def log_likelihood(
        self,
        x: Inputs,
        y: Float[Array, "n D"],
        w: Float[Array, "n k d"],
        context_noise: Float[Array, "n k c"],
    ) -> Float[Array, "n k"]:
        """log p(y_n | x_n, w_nk), for latents (and draws of A x) of each row's own."""
        n, k, dim = w.shape
        inputs = cast_inputs(self.model, x).take(jnp.repeat(jnp.arange(n), k))
        context = self.model.input_map.context(inputs, context_noise.reshape(n * k, -1))
        rows, diag = kernel_rows(self.model, context, w.reshape(n * k, 1, dim))
        mean, variance = self.functions(rows[:, 0], diag)
        parts = self.outputs(jnp.zeros(k), mean.reshape(n, k, -1), variance.reshape(n, k, -1))
        return parts.log_components(wide(y))


def _latent_functions(
    decoder: Decoder, x: Inputs, w: Array, context_noise: AnyArray | None
) -> tuple[Float[Array, "n k L"], Float[Array, "n k #L"]]:
    """Means of f (as they are) and variances (rotated) at every x and w."""
    model, q = decoder.model, decoder.q
    n, k = x.n_rows, len(w)
    if isinstance(q, Shared) and model.input_map.separates and context_noise is None:
        factors = separated(model, model.input_map.context(x, jnp.zeros((n, 0))), w[None])
        if factors is not None:
            weights, gain = decoder.unwhitened(q)
            means = jax.lax.map(lambda column: (factors.rows_x * column) @ factors.rows_w.T, weights.T)
            variance = factors.diag - separable_variance(factors.rows_x, factors.rows_w, gain)
            return jnp.moveaxis(means, 0, 2), jnp.maximum(variance, 0)[..., None]

    if context_noise is None:
        context = model.input_map.context(x, jnp.zeros((n, 0)))
        rows, diag = kernel_rows(model, context, w[None])
    else:
        repeated = x.take(jnp.repeat(jnp.arange(n), k))
        context = model.input_map.context(repeated, jnp.tile(context_noise, (n, 1)))
        rows, diag = kernel_rows(model, context, jnp.tile(w, (n, 1))[:, None])
    mean, variance = decoder.functions(rows.reshape(n * k, -1), diag.reshape(n * k, 1))
    return mean.reshape(n, k, -1), variance.reshape(n, k, -1)


def separable_variance(
    rows_x: Float[Array, "n M"], rows_w: Float[Array, "k M"], gain: Float[Array, "M M"], block: int = 16
) -> Float[Array, "n k"]:
    """sum_mm' (x_nm x_nm') gain_mm' (w_km w_km'), each pair of inducing inputs once.

    One matrix product over pairs replaces one over M for each n, at half the arithmetic; `block` rows of pairs are
    made at a time.
    """
    n, m = rows_x.shape
    total = jnp.zeros((n, rows_w.shape[0]), rows_x.dtype)
    for start in range(0, m, block):
        here, rest = slice(start, min(start + block, m)), slice(start, m)
        twice = jnp.where(jnp.arange(start, m) >= here.stop, 2.0, 1.0)
        left = rows_x[:, here, None] * (rows_x[:, None, rest] * twice)
        right = rows_w[:, here, None] * (rows_w[:, None, rest] * gain[here, rest])
        total = total + left.reshape(n, -1) @ right.reshape(len(rows_w), -1).T
    return total


@compiled
def _block_density(
    model: Model,
    posterior: Statistics | Shared,
    x: Inputs,
    y: AnyArray,
    w: AnyArray,
    log_weight: AnyArray,
    noise: AnyArray | None,
) -> Float[Array, " n"]:
    return predict(model, posterior, x, w, log_weight, noise).log_density(wide(y))


def log_density(
    model: Model,
    posterior: Statistics | Shared,
    x: Inputs,
    y: Float[AnyArray, "n D"],
    w: Float[AnyArray, "k d"],
    log_weight: Float[AnyArray, " k"],
    context_noise: Float[AnyArray, "k c"] | None = None,
) -> Float[Array, " n"]:
    """log p(y_n | x_n), in blocks of test points of one shape, so that memory is bounded and one compilation serves."""
    with scope():
        x, y, w, log_weight, context_noise = jax.tree.map(jnp.asarray, (x, y, w, log_weight, context_noise))
        n = x.n_rows
        separate = (
            isinstance(model.mixing, Identity)
            and model.input_map.separates
            and context_noise is None
            and model.kernel.separate(model.input_map.context_dim) is not None
        )
        # a component needs its kernel row, or, where the kernel separates, its means alone
        width = model.mixing.shape[1] if separate else max(len(model.inducing_points), model.mixing.shape[1])
        size = min(n, max(1, NUMBERS_AT_ONCE // (len(w) * width)), 1024)
        score = partial(_block_density, model, posterior)
        out = []
        for start in range(0, n, size):
            # the last block starts early rather than being short
            begin = min(start, n - size)
            rows = slice(begin, begin + size)
            block = score(x.take(rows), y[rows], w, log_weight, context_noise)
            out.append(block[start - begin :])
        return jnp.concatenate(out)
