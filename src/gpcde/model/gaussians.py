"""Gaussians that several parts need: of each data point, their divergence from a prior, and diagonal log densities."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

LOG_2PI = float(np.log(2 * np.pi))


def diagonal_kl(
    mean: Float[Array, "*s"], log_std: Float[Array, "*s"], log_scale: Float[Array, "*#s"] | float = 0.0
) -> Float[Array, "*s"]:
    """KL[N(mean, exp(2 log_std)) || N(0, exp(2 log_scale))] of each number."""
    log_ratio = log_std - log_scale
    return 0.5 * ((mean * jnp.exp(-log_scale)) ** 2 + jnp.exp(2 * log_ratio) - 1) - log_ratio


def surprise(
    log_value: Float[Array, "*s"], median: Float[np.ndarray, "*s"] | float, spread: float, above: float | None = None
) -> Float[Array, ""]:
    """Minus the log density of log values under N(log median, spread²), a constant apart, summed.

    With `above`, that is the standard deviation of the half above the median.
    """
    gap = log_value - np.log(median)
    return 0.5 * jnp.sum((gap / (spread if above is None else jnp.where(gap > 0, above, spread))) ** 2)


class Gaussian(NamedTuple):
    """N(mean, Σ) of each data point, Σ diagonal or full.

    Parameters
    ----------
    mean : array of shape (n, d)
        The means.
    scale : array of shape (n, d) or (n, d, d)
        Standard deviations, or Cholesky factors of Σ.
    """

    mean: Float[Array, "n d"]
    scale: Float[Array, "n d"] | Float[Array, "n d d"]

    def covariance(self) -> Float[Array, "n d"] | Float[Array, "n d d"]:
        """The variances, or the full covariance matrices."""
        return self.scale**2 if self.scale.ndim == 2 else self.scale @ self.scale.mT

    def std(self) -> Float[Array, "n d"]:
        """Standard deviations."""
        return self.scale if self.scale.ndim == 2 else jnp.sqrt((self.scale**2).sum(2))

    def at(self, draws: Float[Array, "n k d"]) -> Float[Array, "n k d"]:
        """mean + L draws."""
        if self.scale.ndim == 2:
            return self.mean[:, None] + self.scale[:, None] * draws
        return self.mean[:, None] + draws @ self.scale.mT

    def log_det(self) -> Float[Array, " n"]:
        """The logarithm of the determinant of L."""
        diagonal = self.scale if self.scale.ndim == 2 else jnp.diagonal(self.scale, axis1=1, axis2=2)
        return jnp.log(diagonal).sum(1)

    def kl(self) -> Float[Array, " n"]:
        """KL[N(mean, Σ) || N(0, I)]."""
        squares = (self.scale**2).reshape(len(self.scale), -1).sum(1)
        return 0.5 * ((self.mean**2).sum(1) + squares - self.mean.shape[1]) - self.log_det()
