"""The quadratic forms of the bound, with derivatives written by hand: two large matrix products in all.

Automatic differentiation of the textbook form does six, and keeps every intermediate. Here `T = K C` serves the
value and the derivative by K, and `Kᵀ diag(r) K` is at once the derivative by C and the natural gradient's statistic.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..runtime.blocks import block_count, stacked, unstacked
from ..runtime.products import laid_out, symmetric_product

POINTS_AT_ONCE = 256
"""The most points a block of `separable_log_sum` takes: few enough for the cache, enough for quick products."""

POINTS_IN_SUM = 512
"""The same, where it sums over points."""


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
    across = laid_out(x.T)
    return (symmetric_product(across, quadratic @ x), across @ linear), (x, quadratic, linear)


def _unwhitened_backward(
    kept: tuple[Array, Array, Array], cotangent: tuple[Array, Array]
) -> tuple[Array, Array, Array]:
    x, quadratic, linear = kept
    across = laid_out(x.T)
    d_quadratic = x @ (cotangent[0] @ across)
    d_linear = x @ cotangent[1]
    lower = jnp.tril(quadratic @ (d_quadratic + d_quadratic.T) + linear @ d_linear.T)
    lower = lower - 0.5 * jnp.diag(jnp.diagonal(lower))
    d_gram = -0.5 * symmetric_product(across, (lower + lower.T) @ x)
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
    d_matrix = 0.5 * symmetric_product(laid_out((flat * g.reshape(-1, 1)).T), flat)
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
    n × M. What the derivative by kx asks of T_k, its sum over k weighed by responsibilities, is added up as they come:
    by those relative to the largest so far, as sums of exponentials are. The weights v are not differentiated.
    """
    return _log_sum_forward(rows_x, rows_w, matrix, pull, offset, precision, weight)[0]


def _log_sum_block(
    rows_x: Array, rows_w: Array, matrix: Array, pull: Array, offset: Array, precision: Array, weight: Array
) -> tuple[Array, Array, Array, Array]:
    """Of a block of points: the logarithms of the sums, the forms, the responsibilities, and sum_k g_nk T_nk."""
    n = len(rows_x)
    linear = (rows_x * pull) @ rows_w.T

    def body(sums: tuple[Array, ...], at: tuple[Array, ...]) -> tuple[tuple[Array, ...], tuple[Array, Array]]:
        (top, norm, pulled), (kw, straight, shift, sharp) = sums, at
        product = rows_x @ (kw[:, None] * matrix * kw)
        form = straight + 0.5 * jnp.sum(rows_x * product, axis=1)
        logs = shift + sharp * form
        new = jnp.maximum(top, logs)
        level = jnp.where(jnp.isfinite(new), new, 0.0)  # nodes of no weight have logarithms of -inf
        fade, share = jnp.exp(top - level), jnp.exp(logs - level)
        pulled = fade[:, None] * pulled + (share * sharp)[:, None] * product
        return (new, fade * norm + share, pulled), (form, logs)

    zeros = jnp.zeros(n, rows_x.dtype)
    none: tuple[Array, ...] = zeros - jnp.inf, zeros, jnp.zeros_like(rows_x)
    nodes: tuple[Array, ...] = rows_w, linear.T, offset.T, precision.T
    (top, norm, pulled), (form, logs) = jax.lax.scan(body, none, nodes)
    total = top + jnp.log(norm)
    return total, form.T, (jnp.exp(logs - total) * weight).T, (weight / norm)[:, None] * pulled


def _weighed_squares(rows_x: Array, rows_w: Array, matrix: Array, g: Array) -> tuple[Array, Array]:
    """sum_nk g_nk k_nk k_nkᵀ, and what it gives for the derivative by kw."""
    columns = rows_x.T

    def body(total: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        kw, gk = at
        outer = symmetric_product(laid_out(columns * gk), rows_x) * kw
        return total + kw[:, None] * outer, jnp.sum(matrix * outer, axis=1)

    return jax.lax.scan(body, jnp.zeros_like(matrix), (rows_w, g.T))


def _log_sum_forward(
    rows_x: Array, rows_w: Array, matrix: Array, pull: Array, offset: Array, precision: Array, weight: Array
) -> tuple[Array, tuple[Array, ...]]:
    n = len(rows_x)

    def block(rows: tuple[Array, ...]) -> tuple[Array, ...]:
        x, *rest = rows
        return _log_sum_block(x, rows_w, matrix, *rest)

    def squares(sums: tuple[Array, Array], rows: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        more = _weighed_squares(rows[0], rows_w, matrix, rows[1])
        return (sums[0] + more[0], sums[1] + more[1]), None

    blocks = block_count(n, POINTS_AT_ONCE)
    by_block = jax.lax.map(block, tuple(stacked(a, blocks) for a in (rows_x, pull, offset, precision, weight)))
    total, form, r, pulled = (unstacked(a, n) for a in by_block)
    g = precision * r
    gathered = g @ rows_w
    blocks = block_count(n, POINTS_IN_SUM)
    none = jnp.zeros_like(matrix), jnp.zeros_like(rows_w)
    (d_matrix, d_w), _ = jax.lax.scan(squares, none, (stacked(rows_x, blocks), stacked(g, blocks)))
    d_w = d_w + laid_out(g.T) @ (rows_x * pull)
    own = pull * gathered + pulled, d_w, 0.5 * d_matrix, rows_x * gathered, r, r * form
    return jnp.sum(weight * total), (*own, jnp.zeros(n, rows_x.dtype))


def _log_sum_backward(derivatives: tuple[Array, ...], g: Array) -> tuple[Array, ...]:
    return tuple(g * d for d in derivatives)


separable_log_sum.defvjp(_log_sum_forward, _log_sum_backward)
