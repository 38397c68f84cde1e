"""The trend: what f has beside the Gaussian process of the kernel, a function of the context alone.

    LinearTrend   bᵀ t(c),           t(c) = √(v / D_c) c,    b ~ N(0, I)
    SmoothTrend   g(c) + bᵀ t(c),    g a sparse Gaussian process with a kernel and inducing inputs of its own

c are the first columns of h, those that x alone decides. What a trend is made of, b and the inducing outputs of g,
joins those of the kernel in u, of covariance [[Kzz, 0, 0], [0, Kz'z', 0], [0, 0, I]]; the covariance of f(h) with u is
[k(h, Z), k'(c, Z'), t(c)]. So a mean that x decides takes no inducing inputs from what varies with w, q(u) is as good
about it as regression is, natural gradients stay in closed form, and, since it is the same for all latents of a data
point, it costs next to nothing (`bound`).
"""

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..runtime.files import check_positive
from ..runtime.precision import on_device
from .gaussians import surprise
from .kernels import Kernel, jittered
from .part import Certain
from .waves import Waves

SMALL = 1e-3
"""The variance of a linear trend that has next to nothing to say."""


class Trend(Certain):
    """What f has beside the kernel's Gaussian process."""

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """How many numbers of it join u."""

    @abc.abstractmethod
    def rows(self, left: Float[Array, "n b"]) -> Float[Array, "n t"]:
        """Its covariance with them, c the first columns of `left`."""

    @abc.abstractmethod
    def gram(self) -> Float[Array, "t t"]:
        """The covariance of them."""

    @abc.abstractmethod
    def diag(self, left: Float[Array, "n b"]) -> Float[Array, " n"]:
        """Its variance a priori."""

    @property
    def is_found(self) -> bool:
        """Whether it begins as what regression found, so that training has a mean to lose, and goes on steadily."""
        return False

    def small(self) -> "Trend":
        """As it is with next to nothing in it, where it can be, for another start of training."""
        return self

    def draw(self, key: PRNGKeyArray, outputs: int) -> tuple[Waves | None, Float[Array, "t L"]]:
        """Functions drawn a priori of what u does not hold whole, and their part in u; None and 0 where it does."""
        return None, jnp.zeros((self.width, outputs))


class NoTrend(Trend):
    """Nothing."""

    @property
    def width(self) -> int:
        return 0

    def rows(self, left: Float[Array, "n b"]) -> Float[Array, "n t"]:
        return left[:, :0]

    def gram(self) -> Float[Array, "t t"]:
        return jnp.zeros((0, 0))

    def diag(self, left: Float[Array, "n b"]) -> Float[Array, " n"]:
        return jnp.zeros(len(left))


class LinearTrend(Trend):
    """bᵀ t(c), t(c) = √(v / D_c) c, log v ~ N(0, 1) a priori.

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

    def gram(self) -> Float[Array, "t t"]:
        return jnp.eye(self.dim)

    def diag(self, left: Float[Array, "n b"]) -> Float[Array, " n"]:
        return jnp.sum(self.rows(left) ** 2, axis=1)

    def small(self) -> "LinearTrend":
        return dataclasses.replace(self, log_variance=on_device(np.log(SMALL)))

    def penalty(self) -> Float[Array, ""]:
        """Minus the log prior of log v, a constant apart."""
        return surprise(self.log_variance, 1.0, 1.0)


class SmoothTrend(Trend):
    """g(c), a sparse Gaussian process of the context alone, and a linear function or nothing.

    Parameters
    ----------
    kernel : Kernel
        k', of the context.
    inducing_points : array of shape (T, D_c)
        Z'.
    other : Trend
        What is beside it, which u holds whole.
    jitter : float, default=1e-6
        What is added to the diagonal of Kz'z', relative to it.
    """

    kernel: Kernel
    inducing_points: Float[Array, "T c"]
    other: Trend
    jitter: float = eqx.field(static=True, default=1e-6)

    def __check_init__(self) -> None:
        if self.other.is_found:
            raise ValueError(f"beside a smooth trend stands one that u holds whole, not a {type(self.other).__name__}")

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "jitter", least=0)

    @property
    def width(self) -> int:
        return len(self.inducing_points) + self.other.width

    @property
    def is_found(self) -> bool:
        return True

    def _context(self, left: Float[Array, "n b"]) -> Float[Array, "n c"]:
        return left[:, : self.inducing_points.shape[1]]

    def rows(self, left: Float[Array, "n b"]) -> Float[Array, "n t"]:
        return jnp.concatenate([self.kernel(self._context(left), self.inducing_points), self.other.rows(left)], axis=1)

    def gram(self) -> Float[Array, "t t"]:
        own = jittered(self.kernel.gram(self.inducing_points), self.jitter)
        return jax.scipy.linalg.block_diag(own, self.other.gram())

    def diag(self, left: Float[Array, "n b"]) -> Float[Array, " n"]:
        return self.kernel.diag(self._context(left)) + self.other.diag(left)

    def draw(self, key: PRNGKeyArray, outputs: int) -> tuple[Waves, Float[Array, "t L"]]:
        one, two = jax.random.split(key)
        waves = Waves.draw(one, two, self.kernel, self.inducing_points.shape[1], outputs)
        return waves, jnp.pad(waves(self.inducing_points), [(0, self.other.width), (0, 0)])

    def penalty(self) -> Float[Array, ""]:
        return self.kernel.penalty() + self.other.penalty()
