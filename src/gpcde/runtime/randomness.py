"""Seeds: keys from them, and from JAX's keys to NumPy's generators; nothing of it is compiled."""

from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray


def key_of(seed: int) -> PRNGKeyArray:
    """The key that `jax.random.key` makes of a seed, whatever generator is the user's default."""
    data: Any = np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def entropy(key: PRNGKeyArray) -> list[int]:
    """A key's bits, as numpy's generators take a seed."""
    return [int(i) for i in np.asarray(jax.random.key_data(key)).ravel()]
