"""Where numbers are wide: 64-bit in our own scope, and one BLAS thread beside XLA's.

The user's JAX configuration is never touched: `scope()` switches 64-bit on for the calls inside it,
in this thread. LAPACK calls made by XLA go through SciPy's BLAS, whose threads fight XLA's own pool;
one BLAS thread is up to twice as fast. That limit is the process's; threadpoolctl puts it back when
the last of several scopes, in whatever threads, is closed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import jax
import jax.numpy as jnp
import scipy.linalg  # noqa: F401  (its BLAS must be loaded before the controller looks)
from jaxtyping import Array
from threadpoolctl import ThreadpoolController

T = TypeVar("T")


@cache  # looking through every loaded library takes milliseconds
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def scope() -> Iterator[None]:
    """64-bit JAX and one BLAS thread, for the calls inside; `@scope()` does it for a function."""
    with jax.enable_x64(True), _blas().limit(limits=1, user_api="blas"):
        yield


def wide(tree: T) -> T:
    """Every floating array of a tree in the widest float JAX has in this scope."""

    def up(leaf: Array) -> Array:
        return leaf.astype(jnp.result_type(float)) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(up, tree)


def require_wide(what: str) -> None:
    """Raise outside of a 64-bit scope, where JAX would make float32 of everything."""
    if jnp.result_type(float) != jnp.float64:
        raise RuntimeError(
            f"{what} needs 64-bit numbers, which JAX has switched off here: put the call into `with gpcde.scope():` "
            "(which changes nothing outside of it)"
        )
