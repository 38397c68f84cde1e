"""The trend: what f has beside the Gaussian process of the kernel, linear in the context.

    f(h) = g(h) + bᵀ t(c),     t(c) = √(v / D_c) c,    b ~ N(0, I)

c are the first columns of h, those that x alone decides. The covariance of f is the kernel's plus v cᵀc' / D_c, and b
joins the inducing outputs: u = [g(Z), b] has covariance [[Kzz, 0], [0, I]], and that of f(h) with u is [k(h, Z), t(c)].
So a linear function costs D_c numbers instead of inducing inputs far out, q(u) is exact about it, and the columns of b
are products of a factor of x and one of w, as those of a kernel that separates are.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..runtime.files import check_positive
from ..runtime.precision import on_device
from .gaussians import surprise
from .part import Certain


class Trend(Certain):
    """bᵀ t(c)."""

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """How many numbers b has."""

    @abc.abstractmethod
    def rows(self, left: Float[Array, "n b"]) -> Float[Array, "n t"]:
        """t(c), c the first columns of these."""


class NoTrend(Trend):
    """f = g."""

    @property
    def width(self) -> int:
        return 0

    def rows(self, left: Float[Array, "n b"]) -> Float[Array, "n t"]:
        return left[:, :0]


class LinearTrend(Trend):
    """t(c) = √(v / D_c) c, log v ~ N(0, 1) a priori.

    Parameters
    ----------
    dim : int
        D_c.
    log_variance : array of shape ()
        log v.
    """

    dim: int = eqx.field(static=True)
    log_variance: Float[Array, ""]

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "dim", least=0)

    @classmethod
    def create(cls, dim: int, variance: float = 1.0) -> "LinearTrend":
        """Of `dim` columns.

        Parameters
        ----------
        dim : int
            D_c.
        variance : float, default=1.0
            v, positive.
        """
        return cls(dim, on_device(np.log(variance)))

    @property
    def width(self) -> int:
        return self.dim

    def rows(self, left: Float[Array, "n b"]) -> Float[Array, "n t"]:
        return left[:, : self.dim] * jnp.exp(0.5 * self.log_variance) / np.sqrt(max(self.dim, 1))

    def penalty(self) -> Float[Array, ""]:
        """Minus the log prior of log v, a constant apart."""
        return surprise(self.log_variance, 1.0, 1.0)
