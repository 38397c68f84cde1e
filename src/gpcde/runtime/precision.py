"""Where numbers are wide: 64-bit in our own scope, and one BLAS thread beside XLA's.

The user's JAX configuration is never touched: `scope()` switches 64-bit on for the calls inside it,
in this thread. LAPACK calls made by XLA go through SciPy's BLAS, whose threads fight XLA's own pool;
one BLAS thread is up to twice as fast. That limit is the process's; threadpoolctl puts it back when
the last of several scopes, in whatever threads, is closed.

A process that was forked from one in which JAX ran has its locks, and none of its threads: it would wait for ever. That
is told instead.
"""

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg  # noqa: F401  (its BLAS must be loaded before the controller looks)
from jaxtyping import Array
from threadpoolctl import ThreadpoolController

T = TypeVar("T")


@cache  # looking through every loaded library takes milliseconds
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _first_process() -> int:
    """The process in which this was asked first; one that is forked later gets the same answer.

    A worker of joblib, or another process that was started with its share of the cores (OMP_NUM_THREADS), leaves the
    others to the others: XLA makes as many threads as NPROC says, if it is said before the first.
    """
    if multiprocessing.parent_process() is not None and "OMP_NUM_THREADS" in os.environ:
        os.environ.setdefault("NPROC", os.environ["OMP_NUM_THREADS"])
    return os.getpid()


@contextmanager
def scope() -> Iterator[None]:
    """64-bit JAX and one BLAS thread, for the calls inside; `@scope()` does it for a function."""
    if _first_process() != os.getpid():
        raise RuntimeError(
            "this process was forked from one in which gpcde and JAX had run, and JAX would wait here for ever: start "
            "processes by multiprocessing.get_context('spawn'), or by joblib, which does not fork"
        )
    with jax.enable_x64(True), _blas().limit(limits=1, user_api="blas"):
        yield


def as_array(numbers: Any) -> Array:
    """A JAX array of numbers, which may be traced; `jnp.asarray` would compile a program for every new shape."""
    return numbers if isinstance(numbers, Array) else jax.device_put(np.asarray(numbers))


def on_device(tree: Any) -> Any:
    """JAX arrays of all the numbers of a tree."""
    return jax.tree.map(as_array, tree)


def wide(tree: T) -> T:
    """Every floating array of a tree in the widest float JAX has in this scope."""

    def up(leaf: Any) -> Any:
        return leaf.astype(jnp.result_type(float)) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(up, tree)


def require_wide(what: str) -> None:
    """Raise outside of a 64-bit scope, where JAX would make float32 of everything."""
    if jnp.result_type(float) != jnp.float64:
        raise RuntimeError(
            f"{what} needs 64-bit numbers, which JAX has switched off here: put the call into `with gpcde.scope():` "
            "(which changes nothing outside of it)"
        )
