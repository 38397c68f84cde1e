"""Seeds: from JAX's keys to NumPy's generators, where there is nothing to compile."""

import jax
import numpy as np
from jaxtyping import PRNGKeyArray


def entropy(key: PRNGKeyArray) -> list[int]:
    """A key's bits, as numpy's generators take a seed."""
    return [int(i) for i in np.asarray(jax.random.key_data(key)).ravel()]
