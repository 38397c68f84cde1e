"""The mixing P of the outputs, y = P f + noise, P of shape D_y × L.

    Identity          P = I
    PointMixing       P fixed, or learnt by MAP under N(start, 1/precision)
    GaussianMixing    q(P) = prod N(mean, std²), p(P) = prod N(start, scale²), the scale learnt by the bound

The bound needs E[P] and E[PᵀP] only. Their uses have names here, so that nothing bigger than needed is made.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from ._inputs import Numbers
from ._kernels import Matern52


class Mixing(eqx.Module):
    """How the D_y outputs follow from the L Gaussian processes."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """(D_y, L)."""

    @abc.abstractmethod
    def apply(self, f: Float[Array, "*n L"]) -> Float[Array, "*n D"]:
        """f E[P]ᵀ."""

    @abc.abstractmethod
    def second_moment(self) -> Float[Array, "L L"]:
        """E[PᵀP]."""

    def trace(self) -> Float[Array, ""]:
        """tr E[PᵀP]."""
        return jnp.trace(self.second_moment())

    @abc.abstractmethod
    def quadratic(self, m: Float[Array, "M L"]) -> Float[Array, "M M"]:
        """m E[PᵀP] mᵀ."""

    def along(self, rotation: Float[Array, "L L"]) -> Float[Array, " L"]:
        """v_lᵀ E[PᵀP] v_l for the columns v_l of a rotation."""
        return (rotation * (self.second_moment() @ rotation)).sum(0)

    def penalty(self) -> Float[Array, ""]:
        """KL[q(P) || p(P)], or minus the log prior of P, a constant apart."""
        return jnp.zeros(())


class Identity(Mixing):
    """P = I: the outputs are the Gaussian processes."""

    dim: int = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, int]:
        return self.dim, self.dim

    def apply(self, f: Float[Array, "*n L"]) -> Float[Array, "*n D"]:
        return f

    def second_moment(self) -> Float[Array, "L L"]:
        return jnp.eye(self.dim)

    def trace(self) -> Float[Array, ""]:
        return jnp.asarray(float(self.dim))

    def quadratic(self, m: Float[Array, "M L"]) -> Float[Array, "M M"]:
        return m @ m.T

    def along(self, rotation: Float[Array, "L L"]) -> Float[Array, " L"]:
        return jnp.ones(self.dim)


class PointMixing(Mixing):
    """One P, kept as it is (`learn=False`) or learnt by MAP under N(start, 1/precision)."""

    value: Float[Array, "D L"]
    start: Float[Array, "D L"]
    learn: bool = eqx.field(static=True, default=True)
    precision: float = eqx.field(static=True, default=1.0)

    @classmethod
    def create(cls, start: Numbers, learn: bool = True, precision: float = 1.0) -> "PointMixing":
        return cls(jnp.asarray(start), jnp.asarray(start), learn, precision)

    @property
    def matrix(self) -> Float[Array, "D L"]:
        return self.value if self.learn else stop_gradient(self.value)

    @property
    def shape(self) -> tuple[int, int]:
        return self.value.shape[0], self.value.shape[1]

    def apply(self, f: Float[Array, "*n L"]) -> Float[Array, "*n D"]:
        return f @ self.matrix.T

    def second_moment(self) -> Float[Array, "L L"]:
        return self.matrix.T @ self.matrix

    def trace(self) -> Float[Array, ""]:
        return jnp.sum(self.matrix**2)

    def quadratic(self, m: Float[Array, "M L"]) -> Float[Array, "M M"]:
        mixed = self.apply(m)
        return mixed @ mixed.T

    def penalty(self) -> Float[Array, ""]:
        """Minus the log prior of P, a constant apart."""
        if not self.learn:
            return jnp.zeros(())
        return 0.5 * self.precision * jnp.sum((self.value - stop_gradient(self.start)) ** 2)


class GaussianMixing(Mixing):
    """q(P) = prod N(mean, exp(2 log_std)), p(P) = prod N(start, exp(2 log_scale))."""

    mean: Float[Array, "D L"]
    log_std: Float[Array, "D L"]
    start: Float[Array, "D L"]
    log_scale: Float[Array, ""]

    @classmethod
    def create(cls, start: Numbers, std: float = 1e-2, scale: float = 3e-2) -> "GaussianMixing":
        """q(P) centred on the start, as its prior is; the scale of the prior is only where learning starts."""
        mean = jnp.asarray(start)
        return cls(mean, jnp.full(mean.shape, jnp.log(std)), mean, jnp.asarray(jnp.log(scale)))

    @property
    def variance(self) -> Float[Array, "D L"]:
        return jnp.exp(2 * self.log_std)

    @property
    def shape(self) -> tuple[int, int]:
        return self.mean.shape[0], self.mean.shape[1]

    def apply(self, f: Float[Array, "*n L"]) -> Float[Array, "*n D"]:
        return f @ self.mean.T

    def second_moment(self) -> Float[Array, "L L"]:
        return self.mean.T @ self.mean + jnp.diag(self.variance.sum(0))

    def trace(self) -> Float[Array, ""]:
        return jnp.sum(self.mean**2) + jnp.sum(self.variance)

    def quadratic(self, m: Float[Array, "M L"]) -> Float[Array, "M M"]:
        mixed = self.apply(m)
        return mixed @ mixed.T + (m * self.variance.sum(0)) @ m.T

    def penalty(self) -> Float[Array, ""]:
        """KL[q(P) || p(P)]."""
        log_ratio = self.log_std - self.log_scale
        moved = (self.mean - stop_gradient(self.start)) * jnp.exp(-self.log_scale)
        return jnp.sum(0.5 * (moved**2 + jnp.exp(2 * log_ratio) - 1) - log_ratio)


def _leading(covariance: np.ndarray, count: int) -> Float[np.ndarray, "D L"]:
    """The leading eigenvectors, scaled by the roots of their eigenvalues, each with its largest entry positive."""
    if not 1 <= count <= len(covariance):
        raise ValueError(f"the number of columns of P must lie between 1 and D_y = {len(covariance)}, got {count}")
    values, vectors = np.linalg.eigh(covariance)
    columns = vectors[:, ::-1][:, :count] * np.sqrt(np.maximum(values[::-1][:count], 0))
    signs = np.sign(columns[np.abs(columns).argmax(0), np.arange(count)])
    return columns * np.where(signs == 0, 1, signs)


def grid_start(height: int, width: int, count: int, lengthscale: float = 1.0) -> Float[np.ndarray, "D L"]:
    """P from a Matérn-5/2 kernel on the coordinates of a grid of outputs: pixels near each other go together."""
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    place = np.stack([rows.ravel(), columns.ravel()], 1) / lengthscale
    squared = ((place[:, None] - place) ** 2).sum(-1)
    return _leading(np.asarray(Matern52.shape(jnp.asarray(squared)), dtype=float), count)


def principal_start(y: Float[np.ndarray, "n D"], count: int) -> Float[np.ndarray, "D L"]:
    """P from the data's principal directions."""
    return _leading(np.atleast_2d(np.cov(np.asarray(y, float), rowvar=False, bias=True)), count)
