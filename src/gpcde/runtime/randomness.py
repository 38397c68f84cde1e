"""Seeds: keys from them, keys from keys, and from JAX's keys to NumPy's generators."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray, UInt32

from .compilation import compiled


def key_of(seed: int) -> PRNGKeyArray:
    """The key that `jax.random.key` makes of a seed, whatever generator is the user's default."""
    data: Any = np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def folded(key: PRNGKeyArray, number: int) -> PRNGKeyArray:
    """`jax.random.fold_in`, which a new process need not compile."""
    return _folded(key, np.asarray(number, np.uint32))


@compiled
def _folded(key: PRNGKeyArray, number: UInt32[Array | np.ndarray, ""]) -> PRNGKeyArray:
    return jax.random.fold_in(key, number)


def entropy(key: PRNGKeyArray) -> list[int]:
    """A key's bits, as numpy's generators take a seed."""
    return [int(i) for i in np.asarray(jax.random.key_data(key)).ravel()]
