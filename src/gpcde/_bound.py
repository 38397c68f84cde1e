"""The bound: for a batch, everything one training step needs, in one differentiable function.

    bound = N/B sum_n bound_n - KL[q(u) || p(u)] - KL[q(A) || p(A)] - KL[q(P) || p(P)]

with bound_n made of the expected log likelihoods at the latents w_nk (see `_latents`), which are quadratic in
the kernel row k_nk = k(h_nk, Z):

    L_nk = -D_y/2 log 2πσ² - (‖y_n‖² + tr R k(h_nk, h_nk)) / 2σ² + (k_nkᵀ b_n + k_nkᵀ C k_nk / 2) / σ²
    C = Lz⁻ᵀ C̄ Lz⁻¹,  b_n = Lz⁻ᵀ W̄ y_n,  with C̄ and W̄ the coefficients of q(u)

Its derivatives by C̄ and W̄ are the statistics of the natural gradient,

    2σ² ∂/∂C̄ = N/B sum_nk r_nk a_nk a_nkᵀ        σ² ∂/∂W̄ = N/B sum_nk r_nk a_nk y_nᵀ

(r the responsibilities), so that one forward and one backward pass serve both optimisers (see `_forms`).

An uncertain A is drawn once a data point: given A x_n the bound of a data point holds with a q(w_n) of its own,
so the expectation over draws is a bound too, with q(w_n | A) in place of q(w_n).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ._expectations import kernel_expectations
from ._forms import quadratic_form, separable_log_sum, unwhitened
from ._input_maps import InputMap
from ._inputs import AnyArray, Inputs
from ._kernels import Kernel
from ._latents import LOG_2PI, FreeForm, GaussianLatents, Latents
from ._mixing import Mixing
from ._posterior import Coefficients, Shared, Statistics
from ._precision import scope, wide


class Model(eqx.Module):
    """y = P f(map(x, w)) + N(0, σ² I), f a sparse Gaussian process."""

    kernel: Kernel
    inducing_points: Float[Array, "M h"]
    input_map: InputMap
    latents: Latents
    mixing: Mixing
    log_noise_variance: Float[Array, ""]
    learn_noise: bool = eqx.field(static=True, default=True)
    jitter: float = eqx.field(static=True, default=1e-6)

    def __check_init__(self) -> None:
        width = self.input_map.out_dim(self.latents.dim)
        if self.inducing_points.shape[1] != width:
            raise ValueError(f"inducing_points have {self.inducing_points.shape[1]} columns; the map gives {width}")

    @property
    def noise_variance(self) -> Float[Array, ""]:
        log = self.log_noise_variance if self.learn_noise else stop_gradient(self.log_noise_variance)
        return jnp.exp(wide(log))

    def gram(self) -> Float[Array, "M M"]:
        """Kzz, with the only jitter there is, relative to its diagonal; in the widest float."""
        kernel, z = wide((self.kernel, self.inducing_points))
        gram = kernel.gram(z)
        return gram + self.jitter * jnp.mean(jnp.diagonal(gram)) * jnp.eye(len(z))


def cast_inputs(model: Model, x: Inputs) -> Inputs:
    """The inputs in the model's own type, whatever the data's is."""
    return x._replace(dense=jnp.asarray(x.dense, model.inducing_points.dtype))


class Batch(NamedTuple):
    """Some rows of the data, and which they are."""

    x: Inputs
    y: Float[Array, "n D"]
    rows: Int[Array, " n"]


@scope()
def whole(x: Inputs, y: Float[AnyArray, "n D"]) -> Batch:
    """All rows as one batch."""
    if y.ndim != 2 or y.shape[0] != x.n_rows:
        raise ValueError(f"y must be a matrix with a row for each of the {x.n_rows} rows of x, got shape {y.shape}")
    return jax.tree.map(jnp.asarray, Batch(x, jnp.asarray(y), jnp.asarray(np.arange(len(y), dtype=np.int32))))


class Noise(NamedTuple):
    """Standard normal numbers for a batch: for A x, and for the draws of w."""

    context: Float[Array, "n c"]
    latent: Float[Array, "n k d"]


def draw_noise(key: PRNGKeyArray, model: Model, rows: int) -> Noise:
    """Fresh noise for so many rows."""
    one, two = jax.random.split(key)
    dtype = model.inducing_points.dtype
    return Noise(
        jax.random.normal(one, (rows, model.input_map.noise_dim), dtype),
        jax.random.normal(two, (rows, *model.latents.noise_shape), dtype),
    )


class Terms(NamedTuple):
    """What the bound is made of."""

    bound: Float[Array, ""]
    data: Float[Array, ""]
    kl_u: Float[Array, ""]
    penalty: Float[Array, ""]


@scope()
def evaluate_bound(
    model: Model,
    posterior: Statistics | Shared,
    batch: Batch,
    noise: Noise,
    n_data: int | Float[Array, ""],
    local: Float[Array, "n p"] | None = None,
    nudge: Coefficients | None = None,
) -> Terms:
    """The bound of a batch that stands for `n_data` rows.

    With statistics for q(u), q(u) is held fixed for differentiation; `nudge` (zeros) is added to the whitened
    coefficients, and the derivatives by it are the natural gradient's statistics.
    """
    sigma2 = model.noise_variance
    if isinstance(posterior, Statistics):
        q = stop_gradient(posterior.solve(wide(model.mixing), sigma2))
    else:
        q = wide(posterior)
    mixing = wide(model.mixing)
    quadratic, linear = q.coefficients(mixing)
    if nudge is not None:
        quadratic, linear = quadratic + nudge.quadratic, linear + nudge.linear
    coefficients = Coefficients(*unwhitened(model.gram(), quadratic, linear))

    y = batch.y.astype(linear.dtype)
    batch = Batch(cast_inputs(model, batch.x), batch.y.astype(model.inducing_points.dtype), batch.rows)
    if isinstance(model.latents, GaussianLatents) and model.latents.expectation == "closed":
        data = _closed_form(model, batch, y, coefficients, mixing.trace(), sigma2, local)
    else:
        data = _by_draws(model, batch, y, coefficients, mixing.trace(), sigma2, local, noise)
    kl_u = q.kl()
    penalty = wide(model.input_map).penalty() + mixing.penalty()
    data = data * (n_data / batch.y.shape[0])
    return Terms(data - kl_u - penalty, data, kl_u, penalty)


def _constant(y: Array, trace: Array, diag: Array, sigma2: Array) -> Array:
    """The part of L_nk that knows nothing of the kernel row."""
    squares = (y * y).sum(1)[:, None] + trace * diag
    return -0.5 * (y.shape[1] * (LOG_2PI + jnp.log(sigma2)) + squares / sigma2)


def _by_draws(
    model: Model,
    batch: Batch,
    y: Array,
    coefficients: Coefficients,
    trace: Array,
    sigma2: Array,
    local: Array | None,
    noise: Noise,
) -> Float[Array, ""]:
    draws = model.latents.draws(batch.x, batch.y, local, noise.latent)
    context = model.input_map.context(batch.x, noise.context)
    pull = y @ coefficients.linear.T
    factors = separated(model, context, draws.w) if isinstance(model.latents, FreeForm) else None
    if factors is not None:
        offset = _constant(y, trace, factors.diag, sigma2) + draws.log_weight
        return separable_log_sum(factors.rows_x, factors.rows_w, coefficients.quadratic, pull, offset, 1 / sigma2)
    rows, diag = kernel_rows(model, context, draws.w)
    ell = _constant(y, trace, diag, sigma2) + quadratic_form(rows, coefficients.quadratic, pull) / sigma2
    if draws.average:
        return jnp.sum(ell.mean(1) - draws.remainder)
    return jnp.sum(jax.nn.logsumexp(ell + draws.log_weight, axis=1))


def kernel_rows(
    model: Model, context: Float[Array, "n c"], w: Float[Array, "#n k d"]
) -> tuple[Float[Array, "n k M"], Float[Array, "n k"]]:
    """k(h_nk, Z) and k(h_nk, h_nk)."""
    halves = model.input_map.halves(context, w.astype(context.dtype))
    if halves is not None:
        left, (n, k, dim) = halves[0], halves[1].shape
        split, moved = left.shape[1], halves[1].reshape(n * k, dim)
        pair = model.kernel.separate(split)
        if pair is not None:  # the part of the kernel that x alone decides, once a data point
            z = model.inducing_points
            rows = pair[0](left, z[:, :split])[:, None] * pair[1](moved, z[:, split:]).reshape(n, k, -1)
            return wide((rows, pair[0].diag(left)[:, None] * pair[1].diag(moved).reshape(n, k)))
    h = model.input_map.join(context, w.astype(context.dtype))
    n, k, dim = h.shape
    flat = h.reshape(n * k, dim)
    rows = wide(model.kernel(flat, model.inducing_points))
    return rows.reshape(n, k, -1), wide(model.kernel.diag(flat)).reshape(n, k)


class Factors(NamedTuple):
    """k(h_nk, Z) = rows_x ⊙ rows_w, for latents that all data points share."""

    rows_x: Float[Array, "n M"]
    rows_w: Float[Array, "k M"]
    diag: Float[Array, "n k"]


def separated(model: Model, context: Float[Array, "n c"], w: Float[Array, "1 k d"]) -> Factors | None:
    """The factors of the kernel rows, where map and kernel separate."""
    split = context.shape[1]
    pair = model.kernel.separate(split) if model.input_map.separates else None
    if pair is None:
        return None
    z, w = model.inducing_points, w[0].astype(context.dtype)
    rows_x, rows_w = pair[0](context, z[:, :split]), pair[1](w, z[:, split:])
    return Factors(*wide((rows_x, rows_w, pair[0].diag(context)[:, None] * pair[1].diag(w))))


def _closed_form(
    model: Model,
    batch: Batch,
    y: Array,
    coefficients: Coefficients,
    trace: Array,
    sigma2: Array,
    local: Array | None,
) -> Float[Array, ""]:
    assert isinstance(model.latents, GaussianLatents)
    q = model.latents.gaussian(batch.x, batch.y, local)
    mean, variance = model.input_map.moments(batch.x)
    spread = q.covariance()
    if spread.ndim == 2:
        covariance = jnp.concatenate([variance, spread], axis=1)
    else:
        covariance = jax.vmap(jax.scipy.linalg.block_diag)(jax.vmap(jnp.diag)(variance), spread)
    mean = jnp.concatenate([mean, q.mean], axis=1)
    kernel, mean, covariance, z = wide((model.kernel, mean, covariance, model.inducing_points))
    psi = kernel_expectations(kernel, mean, covariance, z)
    linear = jnp.sum(psi.psi1 * (y @ coefficients.linear.T))
    form = linear + 0.5 * jnp.sum(coefficients.quadratic * psi.psi2)
    return _constant(y, trace, psi.psi0[:, None], sigma2).sum() + form / sigma2 - q.kl().sum()
