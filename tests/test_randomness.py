"""Keys from seeds."""

import jax
import numpy as np
import pytest

from gpcde.runtime.randomness import entropy, key_of


@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1, 2**40 + 3])
def test_a_key_is_jaxs_own(seed: int) -> None:
    """Also where the user's generator is another."""
    expected = jax.random.key(seed)
    with jax.default_prng_impl("rbg"):
        made = key_of(seed)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(jax.random.key_data(made), jax.random.key_data(expected))
    assert entropy(made) == entropy(expected) == [seed >> 32, seed & (2**32 - 1)]
