"""Functions drawn from a Gaussian process a priori, nearly: random Fourier features of its kernel.

f(h) = sum_i cos(h ω_i) a_i + sin(h ω_i) b_i,     ω_i drawn from the kernel's spectrum,   a_i, b_i ~ N(0, v / F)
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .kernels import Kernel

FEATURES = 1024
"""F: the error of the covariance is of the order of its root's inverse."""


def features(h: Float[Array, "n h"], frequencies: Float[Array, "h F"]) -> Float[Array, "n G"]:
    """The cosines, then the sines."""
    angle = h @ frequencies
    return jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=1)


class Waves(eqx.Module):
    """L functions.

    Parameters
    ----------
    frequencies : array of shape (D_h, F)
        ω.
    weights : array of shape (2 F, L)
        a, then b.
    """

    frequencies: Float[Array, "h F"]
    weights: Float[Array, "G L"]

    @classmethod
    def draw(cls, one: PRNGKeyArray, two: PRNGKeyArray, kernel: Kernel, width: int, outputs: int) -> "Waves":
        """Of points of `width` columns: frequencies by one key, weights by another.

        Parameters
        ----------
        one, two : PRNG keys
            Of the frequencies, and of the weights.
        kernel : Kernel
            A stationary kernel, or a product of such.
        width : int
            D_h.
        outputs : int
            L.
        """
        where, variance = kernel.frequencies(one, width, FEATURES)
        return cls(where, jax.random.normal(two, (2 * FEATURES, outputs)) * jnp.sqrt(variance / FEATURES))

    def __call__(self, h: Float[Array, "n h"]) -> Float[Array, "n L"]:
        return features(h, self.frequencies) @ self.weights
