"""The quadratic forms of the bound, with derivatives written by hand: two large matrix products in all.

Automatic differentiation of the textbook form does six, and keeps every intermediate. Here `T = K C` serves the
value and the derivative by K, and `Kᵀ diag(r) K` is at once the derivative by C and the natural gradient's statistic.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..runtime.blocks import block_count, stacked, unstacked

POINTS_AT_ONCE = 128
"""The most points a block of `separable_log_sum` takes: few enough for the cache, enough for quick products."""


@jax.custom_vjp
def unwhitened(
    gram: Float[Array, "M M"], quadratic: Float[Array, "M M"], linear: Float[Array, "M D"]
) -> tuple[Float[Array, "M M"], Float[Array, "M D"]]:
    """C = Lz⁻ᵀ C̄ Lz⁻¹ and W = Lz⁻ᵀ W̄, with Lz = chol(Kzz) and C̄ symmetric.

    With X = Lz⁻¹, ∂C̄ = X ∂C Xᵀ and ∂W̄ = X ∂W, the derivative by Kzz is -Xᵀ sym(Φ(C̄ (∂C̄ + ∂C̄ᵀ) + W̄ ∂W̄ᵀ)) X, where
    Φ keeps the lower triangle and half the diagonal.
    """
    return _unwhitened_forward(gram, quadratic, linear)[0]


def inverse_cholesky(gram: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Lz⁻¹."""
    return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(gram), jnp.eye(len(gram)), lower=True)


def _unwhitened_forward(
    gram: Array, quadratic: Array, linear: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
    x = inverse_cholesky(gram)
    return (x.T @ (quadratic @ x), x.T @ linear), (x, quadratic, linear)


def _unwhitened_backward(
    kept: tuple[Array, Array, Array], cotangent: tuple[Array, Array]
) -> tuple[Array, Array, Array]:
    x, quadratic, linear = kept
    d_quadratic = x @ (cotangent[0] @ x.T)
    d_linear = x @ cotangent[1]
    lower = jnp.tril(quadratic @ (d_quadratic + d_quadratic.T) + linear @ d_linear.T)
    lower = lower - 0.5 * jnp.diag(jnp.diagonal(lower))
    d_gram = -0.5 * (x.T @ ((lower + lower.T) @ x))
    return d_gram, d_quadratic, d_linear


unwhitened.defvjp(_unwhitened_forward, _unwhitened_backward)


@jax.custom_vjp
def quadratic_form(
    rows: Float[Array, "n k M"], matrix: Float[Array, "M M"], pull: Float[Array, "n M"]
) -> Float[Array, "n k"]:
    """k_nkᵀ b_n + k_nkᵀ C k_nk / 2, C symmetric."""
    return _quadratic_forward(rows, matrix, pull)[0]


def _quadratic_forward(rows: Array, matrix: Array, pull: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    product = (rows.reshape(-1, rows.shape[2]) @ matrix).reshape(rows.shape)
    return jnp.sum(rows * (pull[:, None] + 0.5 * product), axis=2), (rows, product, pull)


def _quadratic_backward(kept: tuple[Array, Array, Array], g: Array) -> tuple[Array, Array, Array]:
    rows, product, pull = kept
    d_rows = g[:, :, None] * (pull[:, None] + product)
    flat = rows.reshape(-1, rows.shape[2])
    d_matrix = 0.5 * (flat * g.reshape(-1, 1)).T @ flat
    return d_rows, d_matrix, jnp.sum(g[:, :, None] * rows, axis=1)


quadratic_form.defvjp(_quadratic_forward, _quadratic_backward)


@jax.custom_vjp
def separable_log_sum(
    rows_x: Float[Array, "n M"],
    rows_w: Float[Array, "k M"],
    matrix: Float[Array, "M M"],
    pull: Float[Array, "n M"],
    offset: Float[Array, "n k"],
    precision: Float[Array, "n k"],
    weight: Float[Array, " n"],
) -> Float[Array, ""]:
    """sum_n v_n log sum_k exp(offset_nk + precision_nk (k_nkᵀ b_n + k_nkᵀ C k_nk / 2)), with k_nk = kx_n ⊙ kw_k.

    Exponentials for n + k rows instead of n k. Latent by latent, k_nkᵀ C k_nk = kx_nᵀ C_k kx_n with C_k = kw_k C kw_k
    (elementwise), so that the rows of x are multiplied as they are, and nothing but T_k = kx C_k is written of size
    n × M. Blocks of points are taken through value and derivatives while they are in the cache. The weights v are not
    differentiated.
    """
    return _log_sum_forward(rows_x, rows_w, matrix, pull, offset, precision, weight)[0]


def _log_sum_block(
    rows_x: Array, rows_w: Array, matrix: Array, pull: Array, offset: Array, precision: Array, weight: Array
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """A block's part of the value and of the derivatives that sum over points, and its own derivatives."""

    def product(kw: Array) -> tuple[Array, Array]:
        made = rows_x @ (kw[:, None] * matrix * kw)
        return jnp.sum(rows_x * made, axis=1), made

    squares, products = jax.lax.map(product, rows_w)
    form = (rows_x * pull) @ rows_w.T + 0.5 * squares.T
    logs = offset + precision * form
    total = jax.nn.logsumexp(logs, axis=1)
    r = jnp.exp(logs - total[:, None]) * weight[:, None]
    g = precision * r
    gathered = g @ rows_w

    def derivatives(sums: tuple[Array, Array], at: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], Array]:
        kw, gk, made = at
        outer = ((columns * gk) @ rows_x) * kw
        return (sums[0] + gk[:, None] * made, sums[1] + kw[:, None] * outer), jnp.sum(matrix * outer, axis=1)

    columns = rows_x.T  # XLA multiplies matrices as they lie half as quickly again as transposed ones
    none = jnp.zeros_like(rows_x), jnp.zeros_like(matrix)
    (pulled, d_matrix), d_w = jax.lax.scan(derivatives, none, (rows_w, g.T, products))
    d_x, d_w = pull * gathered + pulled, g.T @ (rows_x * pull) + d_w
    return (jnp.sum(weight * total), d_w, 0.5 * d_matrix), (d_x, rows_x * gathered, r, r * form)


def _log_sum_forward(
    rows_x: Array, rows_w: Array, matrix: Array, pull: Array, offset: Array, precision: Array, weight: Array
) -> tuple[Array, tuple[Array, ...]]:
    n = len(rows_x)
    blocks = block_count(n, POINTS_AT_ONCE)

    def body(sums: tuple[Array, ...], block: tuple[Array, ...]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        x, b, shift, sharp, present = block
        part, own = _log_sum_block(x, rows_w, matrix, b, shift, sharp, present)
        return jax.tree.map(jnp.add, sums, part), own

    start: tuple[Array, ...] = jnp.zeros((), rows_x.dtype), jnp.zeros_like(rows_w), jnp.zeros_like(matrix)
    blockwise: tuple[Array, ...] = tuple(stacked(a, blocks) for a in (rows_x, pull, offset, precision, weight))
    (value, d_w, d_matrix), own = jax.lax.scan(body, start, blockwise)
    d_x, d_pull, d_offset, d_precision = (unstacked(a, n) for a in own)
    return value, (d_x, d_w, d_matrix, d_pull, d_offset, d_precision, jnp.zeros(n, rows_x.dtype))


def _log_sum_backward(derivatives: tuple[Array, ...], g: Array) -> tuple[Array, ...]:
    return tuple(g * d for d in derivatives)


separable_log_sum.defvjp(_log_sum_forward, _log_sum_backward)
