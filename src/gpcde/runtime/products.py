"""Matrix products as XLA does them quickest on a CPU, with derivatives that need no more of them than they must.

XLA multiplies a matrix that it has to transpose on the way at two thirds of the speed: it is written transposed first.
The automatic derivative of AᵀA is two products with A; one will do.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

WORTH_HALVING = 64
"""From this size on, a symmetric product is quicker in parts than whole."""

FEW_LEVELS = 64
"""Up to so many rows of a table, what is added to them is added up by a product, not row by row."""


def laid_out(matrix: Shaped[Array, "*s"]) -> Shaped[Array, "*s"]:
    """The same, written as it is named: where it is a transpose, it is not left to the product to transpose it."""
    return jax.lax.optimization_barrier(matrix)


def symmetric_product(left: Float[Array, "M n"], right: Float[Array, "n M"]) -> Float[Array, "M M"]:
    """A product that is symmetric: of the two parts beside its diagonal, one is computed."""
    m = len(left)
    if m < WORTH_HALVING:
        return left @ right
    half = m // 2
    upper, lower = left[:half] @ right[:, :half], left[half:] @ right
    return jnp.concatenate([jnp.concatenate([upper, lower[:, :half].T], axis=1), lower])


@jax.custom_vjp
def gram(a: Float[Array, "n M"]) -> Float[Array, "M M"]:
    """AᵀA."""
    return symmetric_product(laid_out(a.T), a)


gram.defvjp(lambda a: (gram(a), a), lambda a, g: (a @ (g + g.T),))


@jax.custom_vjp
def product(x: Float[Array, "n d"], weight: Float[Array, "d k"]) -> Float[Array, "n k"]:
    """X W, the derivative by W being a product of matrices as they lie."""
    return x @ weight


product.defvjp(lambda x, weight: (x @ weight, (x, weight)), lambda kept, g: (g @ kept[1].T, laid_out(kept[0].T) @ g))


@jax.custom_vjp
def looked_up(table: Float[Array, "l k"], codes: Int[Array, "n c"]) -> Float[Array, "n k"]:
    """sum_j table[code_nj]."""
    return table[codes].sum(1)


def _looked_up_forward(table: Array, codes: Array) -> tuple[Array, tuple[Array, Array]]:
    return looked_up(table, codes), (table, codes)


def _looked_up_backward(kept: tuple[Array, Array], g: Array) -> tuple[Array, None]:
    table, codes = kept
    if len(table) > FEW_LEVELS:
        return jnp.zeros_like(table).at[codes].add(jnp.broadcast_to(g[:, None], (*codes.shape, g.shape[1]))), None
    chosen = (jnp.arange(len(table))[:, None, None] == codes).sum(2)
    return laid_out(chosen.astype(g.dtype)) @ g, None


looked_up.defvjp(_looked_up_forward, _looked_up_backward)
