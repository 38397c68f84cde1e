"""The mixing P of the outputs, y = P f + noise, P of shape D_y × L.

    Identity          P = I
    PointMixing       P fixed, or learnt by MAP under N(start, 1/precision)
    GaussianMixing    q(P) = prod N(mean, std²), p(P) = prod N(start, scale²), the scale learnt by the bound
    ConjugateMixing   q(P) = prod_d N(mean_d, C) over the rows of P, the optimum given q(f), in closed form
    Dimmed            any of these, as it is seen through noise of the Gaussian processes themselves

The bound needs E[P] and E[PᵀP] only. Their uses have names here, so that nothing bigger than needed is made. A
prediction also asks what the uncertainty of P adds to the variance of the outputs.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from ..runtime.files import check_positive
from ..runtime.precision import as_array
from ..runtime.products import gram
from .gaussians import diagonal_kl
from .inputs import AnyArray, Numbers
from .kernels import Matern52
from .part import Certain, Part


class Directions(NamedTuple):
    """E[P] = U diag(scale) right: U, the directions of the outputs, has orthonormal columns."""

    basis: Float[Array, "D r"]
    scale: Float[Array, " r"]
    right: Float[Array, "r L"]


class Mixing(Part):
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

    def eigh(self) -> tuple[Float[Array, " L"], Float[Array, "L L"]]:
        """Eigenvalues and eigenvectors of E[PᵀP]."""
        values, vectors = jnp.linalg.eigh(self.second_moment())
        return values, vectors

    def trace(self) -> Float[Array, ""]:
        """tr E[PᵀP]."""
        return jnp.trace(self.second_moment())

    @abc.abstractmethod
    def quadratic(self, m: Float[Array, "M L"]) -> Float[Array, "M M"]:
        """m E[PᵀP] mᵀ."""

    def along(self, rotation: Float[Array, "L L"]) -> Float[Array, " L"]:
        """v_lᵀ E[PᵀP] v_l for the columns v_l of a rotation."""
        return (rotation * (self.second_moment() @ rotation)).sum(0)

    def quadratic_and_applied(self, m: Float[Array, "M L"]) -> tuple[Float[Array, "M M"], Float[Array, "M D"]]:
        """m E[PᵀP] mᵀ and m E[P]ᵀ."""
        return self.quadratic(m), self.apply(m)

    @property
    def uniform(self) -> float | None:
        """λ, where E[PᵀP] = λ I, so that all outputs share one covariance of q(u); else None."""
        return None

    def into(self, h: Float[Array, "M D"]) -> Float[Array, "M L"]:
        """h E[P]: the transpose of `apply`."""
        (out,) = jax.linear_transpose(self.apply, jnp.zeros((h.shape[0], self.shape[1]), h.dtype))(h)
        return out

    def directions(self) -> Directions | None:
        """The directions of the outputs, or None where these are the Gaussian processes themselves."""
        return Directions(*jnp.linalg.svd(self.apply(jnp.eye(self.shape[1])).T, full_matrices=False))

    @abc.abstractmethod
    def own_variance(
        self,
        mean: Float[Array, "n k L"],
        variance: Float[Array, "n k L"],
        turn: Float[Array, "L L"],
        basis: Float[Array, "D r"],
    ) -> tuple[Float[Array, "#n #k #r"], Float[Array, "#n #k"]]:
        """What the uncertainty of P adds to the variance of y: along the basis, and in each direction outside.

        `mean` holds the means of f, `variance` the variances of f rotated by `turn`.
        """

    def squares(self, y: Float[Array, "n D"]) -> Float[Array, " n"]:
        """‖y_n‖², or what noise leaves of it (`Dimmed`)."""
        return (y * y).sum(1)

    def log_det(self) -> Float[Array, ""] | float:
        """log det of the noise's covariance, beside that of σ² I."""
        return 0.0

    @property
    def period(self) -> int:
        """A natural-gradient step for q(P) is due after this many steps; 0: never, Adam does it."""
        return 0

    def natural_step(self, gradient: Any, gamma: Float[Array, ""] | float) -> "Mixing":
        """q(P) after a natural-gradient step of size γ, from the bound's derivatives: a part of this class of them."""
        return self


class _Known(Certain, Mixing):
    """A P that is not uncertain."""

    def own_variance(
        self,
        mean: Float[Array, "n k L"],
        variance: Float[Array, "n k L"],
        turn: Float[Array, "L L"],
        basis: Float[Array, "D r"],
    ) -> tuple[Float[Array, "#n #k #r"], Float[Array, "#n #k"]]:
        return jnp.zeros((1, 1, 1)), jnp.zeros((1, 1))


class Identity(_Known):
    """P = I: the outputs are the Gaussian processes.

    Parameters
    ----------
    dim : int
        D_y, the number of outputs.
    """

    dim: int = eqx.field(static=True)

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "dim")

    @property
    def uniform(self) -> float:
        return 1.0

    def into(self, h: Float[Array, "M D"]) -> Float[Array, "M L"]:
        return h

    def directions(self) -> None:
        return None

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


class MatrixMixing(Mixing):
    """A P that is a matrix, known or uncertain: its shape, and what it makes of f, follow from its mean."""

    @property
    @abc.abstractmethod
    def expected(self) -> Float[AnyArray, "D L"]:
        """E[P]."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.expected.shape[0], self.expected.shape[1]

    def apply(self, f: Float[Array, "*n L"]) -> Float[Array, "*n D"]:
        return f @ self.expected.T


class PointMixing(_Known, MatrixMixing):
    """One P, kept as it is (`learn=False`) or learnt by MAP under N(start, 1/precision).

    Parameters
    ----------
    value : array of shape (D_y, L)
        P.
    start : array of shape (D_y, L)
        Its mean a priori.
    learn : bool, default=True
        Whether P is learnt.
    precision : float, default=1.0
        The precision of P a priori.
    """

    value: Float[Array, "D L"]
    start: Float[Array, "D L"]
    learn: bool = eqx.field(static=True, default=True)
    precision: float = eqx.field(static=True, default=1.0)

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "precision")

    @classmethod
    def create(cls, start: Numbers, learn: bool = True, precision: float = 1.0) -> "PointMixing":
        """P at its start.

        Parameters
        ----------
        start : array of shape (D_y, L)
            The first P, and its mean a priori.
        learn : bool, default=True
            Whether P is learnt.
        precision : float, default=1.0
            The precision of P a priori.
        """
        mean = as_array(start)
        return cls(mean, mean, learn, precision)

    @property
    def expected(self) -> Float[AnyArray, "D L"]:
        return self.value if self.learn else stop_gradient(self.value)

    def second_moment(self) -> Float[Array, "L L"]:
        return gram(jnp.asarray(self.expected))

    def trace(self) -> Float[Array, ""]:
        return jnp.sum(self.expected**2)

    def quadratic(self, m: Float[Array, "M L"]) -> Float[Array, "M M"]:
        return self.quadratic_and_applied(m)[0]

    def quadratic_and_applied(self, m: Float[Array, "M L"]) -> tuple[Float[Array, "M M"], Float[Array, "M D"]]:
        mixed = self.apply(m)
        return mixed @ mixed.T, mixed

    def penalty(self) -> Float[Array, ""]:
        """Minus the log prior of P, a constant apart."""
        if not self.learn:
            return jnp.zeros(())
        return 0.5 * self.precision * jnp.sum((self.value - stop_gradient(self.start)) ** 2)


class GaussianMixing(MatrixMixing):
    """q(P) = prod N(mean, exp(2 log_std)), p(P) = prod N(start, exp(2 log_scale)).

    Parameters
    ----------
    mean : array of shape (D_y, L)
        The mean of q(P).
    log_std : array of shape (D_y, L)
        The logarithms of its standard deviations.
    start : array of shape (D_y, L)
        The mean of p(P).
    log_scale : array of shape ()
        The logarithm of the standard deviation of p(P), learnt.
    """

    mean: Float[Array, "D L"]
    log_std: Float[Array, "D L"]
    start: Float[Array, "D L"]
    log_scale: Float[Array, ""]

    @classmethod
    def create(cls, start: Numbers, std: float = 1e-2, scale: float = 3e-2) -> "GaussianMixing":
        """q(P) centred on the start, as its prior is.

        Parameters
        ----------
        start : array of shape (D_y, L)
            The means of q(P) and of p(P).
        std : float, default=0.01
            The standard deviation of q(P).
        scale : float, default=0.03
            The standard deviation of p(P), where learning starts.
        """
        mean = as_array(start)
        return cls(mean, jnp.full(mean.shape, jnp.log(std)), mean, jnp.asarray(jnp.log(scale)))

    @property
    def variance(self) -> Float[Array, "D L"]:
        return jnp.exp(2 * self.log_std)

    @property
    def expected(self) -> Float[AnyArray, "D L"]:
        return self.mean

    def second_moment(self) -> Float[Array, "L L"]:
        return gram(self.mean) + jnp.diag(self.variance.sum(0))

    def trace(self) -> Float[Array, ""]:
        return jnp.sum(self.mean**2) + jnp.sum(self.variance)

    def quadratic(self, m: Float[Array, "M L"]) -> Float[Array, "M M"]:
        return self.quadratic_and_applied(m)[0]

    def quadratic_and_applied(self, m: Float[Array, "M L"]) -> tuple[Float[Array, "M M"], Float[Array, "M D"]]:
        mixed = self.apply(m)
        return mixed @ mixed.T + (m * self.variance.sum(0)) @ m.T, mixed

    def penalty(self) -> Float[Array, ""]:
        """KL[q(P) || p(P)]."""
        return jnp.sum(diagonal_kl(self.mean - stop_gradient(self.start), self.log_std, self.log_scale))

    def sample(self, key: PRNGKeyArray) -> PointMixing:
        drawn = self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)
        return PointMixing(drawn, drawn, False)

    def own_variance(
        self,
        mean: Float[Array, "n k L"],
        variance: Float[Array, "n k L"],
        turn: Float[Array, "L L"],
        basis: Float[Array, "D r"],
    ) -> tuple[Float[Array, "#n #k #r"], Float[Array, "#n #k"]]:
        second = mean**2 + variance @ (turn**2).T
        along = second @ (self.variance.T @ basis**2)
        rest = second @ self.variance.sum(0) - along.sum(2)
        return along, jnp.maximum(rest, 0) / max(self.shape[0] - self.shape[1], 1)


class ConjugateMixing(MatrixMixing):
    """q(P) = prod_d N(mean_d, C) over the rows of P, C shared; p(P) = prod N(start, scale²).

    Given q(f) that is the form of the optimum, since the noise is the same for all outputs:

        C⁻¹ = F/σ² + I/scale²        mean = (T/σ² + start/scale²) C        F = sum_n E[f fᵀ], T = sum_n y_n E[f]ᵀ

    The bound is linear in E[P] and R = E[PᵀP] = meanᵀ mean + D_y C, and its derivatives by them are T/σ² and -F/2σ². A
    natural-gradient step of size γ averages C⁻¹ and C⁻¹ mean, old and new. The scale is at its optimum, the root mean
    square of P - start. A step costs L³, so of many it is taken only every so often; R and its eigenvectors are kept.

    Parameters
    ----------
    mean : array of shape (D_y, L)
        The mean of q(P).
    covariance : array of shape (L, L)
        C.
    start : array of shape (D_y, L)
        The mean of p(P).
    log_scale : array of shape ()
        The logarithm of the standard deviation of p(P).
    second : array of shape (L, L)
        R.
    eigen : tuple of arrays of shape (L,) and (L, L)
        The eigenvalues and eigenvectors of R.
    every : int
        After how many steps of training a step for q(P) is due.
    """

    mean: Float[Array, "D L"]
    covariance: Float[Array, "L L"]
    start: Float[Array, "D L"]
    log_scale: Float[Array, ""]
    second: Float[Array, "L L"]
    eigen: tuple[Float[Array, " L"], Float[Array, "L L"]]
    every: int = eqx.field(static=True)

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "every")
        for name in ("covariance", "second"):
            square = getattr(self, name)
            if not jnp.allclose(square, square.T, rtol=1e-6, atol=1e-9) or (jnp.diagonal(square) < 0).any():
                raise ValueError(f"ConjugateMixing.{name} must be symmetric, with a diagonal that is not negative")

    @property
    def period(self) -> int:
        return self.every

    @classmethod
    def create(cls, start: Numbers, scale: float = 0.3) -> "ConjugateMixing":
        """q(P) at its prior.

        Parameters
        ----------
        start : array of shape (D_y, L)
            The means of q(P) and of p(P).
        scale : float, default=0.3
            The standard deviation of p(P) in units of the start's root mean square, where learning starts.
        """
        mean = as_array(start)
        spread = scale * jnp.sqrt(jnp.mean(mean**2))
        covariance = spread**2 * jnp.eye(mean.shape[1], dtype=mean.dtype)
        return cls.of(mean, covariance, mean, jnp.log(spread), max(1, mean.shape[1] // 40))

    @classmethod
    def of(
        cls,
        mean: Float[Array, "D L"],
        covariance: Float[Array, "L L"],
        start: Float[Array, "D L"],
        log_scale: Float[Array, ""],
        every: int = 1,
    ) -> "ConjugateMixing":
        """With R and its eigenvalues and eigenvectors, which follow.

        Parameters
        ----------
        mean : array of shape (D_y, L)
            The mean of q(P).
        covariance : array of shape (L, L)
            C.
        start : array of shape (D_y, L)
            The mean of p(P).
        log_scale : array of shape ()
            The logarithm of the standard deviation of p(P).
        every : int, default=1
            After how many steps of training a step for q(P) is due.
        """
        second = mean.T @ mean + mean.shape[0] * covariance
        values, vectors = jnp.linalg.eigh(second)
        return cls(mean, covariance, start, log_scale, second, (values, vectors), every)

    @property
    def expected(self) -> Float[AnyArray, "D L"]:
        return self.mean

    def second_moment(self) -> Float[Array, "L L"]:
        return self.second

    def eigh(self) -> tuple[Float[Array, " L"], Float[Array, "L L"]]:
        return self.eigen

    def quadratic(self, m: Float[Array, "M L"]) -> Float[Array, "M M"]:
        return m @ self.second @ m.T

    def penalty(self) -> Float[Array, ""]:
        """KL[q(P) || p(P)]; as a number, not to be differentiated: `natural_step` knows its derivatives."""
        outputs, count = self.shape
        precision = jnp.exp(-2 * self.log_scale)
        squares = jnp.sum((self.mean - self.start) ** 2) + outputs * jnp.trace(self.covariance)
        log_det = 2 * jnp.log(jnp.diagonal(jnp.linalg.cholesky(self.covariance))).sum()
        kl = 0.5 * (precision * squares + outputs * (count * (2 * self.log_scale - 1) - log_det))
        return stop_gradient(kl)

    def sample(self, key: PRNGKeyArray) -> PointMixing:
        root = jnp.linalg.cholesky(self.covariance)
        drawn = self.mean + jax.random.normal(key, self.mean.shape) @ root.T
        return PointMixing(drawn, drawn, False)

    def own_variance(
        self,
        mean: Float[Array, "n k L"],
        variance: Float[Array, "n k L"],
        turn: Float[Array, "L L"],
        basis: Float[Array, "D r"],
    ) -> tuple[Float[Array, "#n #k #r"], Float[Array, "#n #k"]]:
        """E[fᵀ C f], the same for every output."""
        spread = ((mean @ self.covariance) * mean).sum(2)
        spread = spread + variance @ ((turn.T @ self.covariance) * turn.T).sum(1)
        return spread[..., None], spread

    def natural_step(self, gradient: Any, gamma: Float[Array, ""] | float) -> "ConjugateMixing":
        outputs, count = self.shape
        weak = jnp.exp(-2 * self.log_scale)
        data = -(gradient.second + gradient.second.T)  # F/σ²
        precision = (1 - gamma) * _inverse(self.covariance) + gamma * (data + weak * jnp.eye(count))
        covariance = _inverse(precision)
        slope = gradient.mean - self.mean @ data + weak * (self.start - self.mean)
        mean = self.mean + gamma * slope @ covariance
        squares = jnp.sum((mean - self.start) ** 2) + outputs * jnp.trace(covariance)
        return self.of(mean, covariance, self.start, 0.5 * jnp.log(squares / (outputs * count)), self.every)


class Dimmed(Mixing):
    """P as it is seen where the noise is σ² I + τ² P Pᵀ, so that all else goes on as with noise σ² I.

    That noise is y = P (f + τ ε) + σ e with ε ~ N(0, I) of each data point's own. Given f, the optimal q(ε|f) is
    Gaussian, and without ε the expected log likelihood is, with R = E[PᵀP], b = E[P]ᵀ y, ρ = τ²/σ² and Ψ = (I + ρ R)⁻¹,

        -D/2 log 2πσ² - 1/2 log det Ψ⁻¹ - (‖y‖² - ρ bᵀ Ψ b - 2 bᵀ Ψ f + fᵀ R Ψ f) / 2σ²

    which is exact for a P that is known, and a bound for one that is not. The derivatives by E[P] and R are those at
    the optimal q(ε|f): a natural step of q(P) is as it was. Ψ and R have the same eigenvectors, which are not
    differentiated: an answer is its value, and beside it a zero that has its derivatives, from dΨ = -Ψ d(ρR) Ψ.

    Parameters
    ----------
    mixing : Mixing
        P.
    ratio : array of shape ()
        ρ.
    values, vectors : arrays of shape (L,) and (L, L)
        The eigenvalues and eigenvectors of R.
    """

    mixing: Mixing
    ratio: Float[Array, ""]
    values: Float[Array, " L"]
    vectors: Float[Array, "L L"]

    @classmethod
    def create(cls, mixing: Mixing, ratio: Float[Array, ""]) -> "Dimmed":
        """With the eigenvalues and eigenvectors of R.

        Parameters
        ----------
        mixing : Mixing
            P.
        ratio : array of shape ()
            ρ.
        """
        values, vectors = stop_gradient(mixing.eigh())
        return cls(mixing, ratio, jnp.maximum(values, 0), vectors)

    @property
    def shape(self) -> tuple[int, int]:
        return self.mixing.shape

    @property
    def shrinkage(self) -> Float[Array, " L"]:
        """The eigenvalues of Ψ, not to be differentiated."""
        return 1 / (1 + stop_gradient(self.ratio) * self.values)

    def _function(self, x: Float[Array, "*n L"], of_values: Float[Array, " L"]) -> Float[Array, "*n L"]:
        """x times the matrix with these eigenvalues."""
        return ((x @ self.vectors) * of_values) @ self.vectors.T

    def _form(self, x: Float[Array, "n L"]) -> Float[Array, " n"]:
        """xᵀ R x."""
        return ((x @ self.mixing.second_moment()) * x).sum(1)

    def apply(self, f: Float[Array, "*n L"]) -> Float[Array, "*n D"]:
        """f Ψ E[P]ᵀ."""
        seen = self._function(f, self.shrinkage)
        change = _unseen(self.ratio * self.mixing.second_moment())
        return self.mixing.apply(seen - self._function(seen @ change, self.shrinkage))

    def second_moment(self) -> Float[Array, "L L"]:
        """R Ψ."""
        return self.quadratic(jnp.eye(self.shape[1]))

    def eigh(self) -> tuple[Float[Array, " L"], Float[Array, "L L"]]:
        return self.values * self.shrinkage, self.vectors

    def trace(self) -> Float[Array, ""]:
        seen, psi = self.values * self.shrinkage, self.shrinkage
        by_moment = jnp.sum((self.vectors * psi**2) @ self.vectors.T * _unseen(self.mixing.second_moment()))
        return jnp.sum(seen) + by_moment - _unseen(self.ratio) * jnp.sum(seen**2)

    def along(self, rotation: Float[Array, "L L"]) -> Float[Array, " L"]:
        seen, turned = self.values * self.shrinkage, self.vectors.T @ rotation
        by_moment = _unseen(self._form((self.vectors @ (self.shrinkage[:, None] * turned)).T))
        return seen @ turned**2 + by_moment - _unseen(self.ratio) * (seen**2 @ turned**2)

    def quadratic(self, m: Float[Array, "M L"]) -> Float[Array, "M M"]:
        seen, still = self.values * self.shrinkage, stop_gradient(m)
        dimmed, twice = self._function(still, self.shrinkage), (still @ self.vectors) * seen
        by_moment = dimmed @ _unseen(self.mixing.second_moment()) @ dimmed.T
        return self._function(m, seen) @ m.T + by_moment - _unseen(self.ratio) * (twice @ twice.T)

    def directions(self) -> Directions | None:
        return self.mixing.directions()

    def own_variance(
        self,
        mean: Float[Array, "n k L"],
        variance: Float[Array, "n k L"],
        turn: Float[Array, "L L"],
        basis: Float[Array, "D r"],
    ) -> tuple[Float[Array, "#n #k #r"], Float[Array, "#n #k"]]:
        return self.mixing.own_variance(mean, variance, turn, basis)

    def squares(self, y: Float[Array, "n D"]) -> Float[Array, " n"]:
        """‖y_n‖² - ρ b_nᵀ Ψ b_n."""
        pull, psi, ratio = self.mixing.into(y) @ self.vectors, self.shrinkage, stop_gradient(self.ratio)
        still = stop_gradient(pull)
        by_moment = _unseen(self._form((psi * still) @ self.vectors.T))
        explained = ratio * (pull**2 @ psi) + _unseen(self.ratio) * (still**2 @ psi**2) - ratio**2 * by_moment
        return self.mixing.squares(y) - explained

    def log_det(self) -> Float[Array, ""]:
        """log det Ψ⁻¹."""
        change = _unseen(self.ratio * self.mixing.second_moment())
        by_moment = jnp.sum((self.vectors * self.shrinkage) @ self.vectors.T * change)
        return self.mixing.log_det() - jnp.log(self.shrinkage).sum() + by_moment

    def penalty(self) -> Float[Array, ""]:
        return self.mixing.penalty()

    def sample(self, key: PRNGKeyArray) -> "Dimmed":
        return Dimmed.create(self.mixing.sample(key), self.ratio)


def _unseen(value: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Zero, with the derivatives of the value."""
    return value - stop_gradient(value)


def _inverse(matrix: Float[Array, "L L"]) -> Float[Array, "L L"]:
    """Of a positive definite matrix."""
    root = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(matrix), jnp.eye(len(matrix)), lower=True)
    return root.T @ root


def _leading(covariance: np.ndarray, count: int) -> Float[np.ndarray, "D L"]:
    """The leading eigenvectors, scaled by the roots of their eigenvalues, each with its largest entry positive.

    Of entries that are as large but for rounding, as symmetry makes them, the first: rounding would choose otherwise on
    another machine.
    """
    if not 1 <= count <= len(covariance):
        raise ValueError(f"the number of columns of P must lie between 1 and D_y = {len(covariance)}, got {count}")
    values, vectors = np.linalg.eigh(covariance)
    columns = vectors[:, ::-1][:, :count] * np.sqrt(np.maximum(values[::-1][:count], 0))
    size = np.abs(columns)
    signs = np.sign(columns[(size >= (1 - 1e-6) * size.max(0)).argmax(0), np.arange(count)])
    return columns * np.where(signs == 0, 1, signs)


def grid_start(height: int, width: int, count: int, lengthscale: float = 1.0) -> Float[np.ndarray, "D L"]:
    """P from a Matérn-5/2 kernel on the coordinates of a grid of outputs: pixels near each other go together.

    Parameters
    ----------
    height, width : int
        The size of the grid.
    count : int
        L, the number of columns of P.
    lengthscale : float, default=1.0
        Of the kernel, in pixels.

    Returns
    -------
    array of shape (height × width, L)
        A start for P.
    """
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    place = np.stack([rows.ravel(), columns.ravel()], 1) / lengthscale
    squared = ((place[:, None] - place) ** 2).sum(-1)
    return _leading(np.asarray(Matern52.shape(jnp.asarray(squared)), dtype=float), count)


def principal_start(y: Float[np.ndarray, "n D"], count: int) -> Float[np.ndarray, "D L"]:
    """P from the data's principal directions.

    Parameters
    ----------
    y : array of shape (n, D_y)
        The outputs.
    count : int
        L, the number of columns of P.

    Returns
    -------
    array of shape (D_y, L)
        A start for P.
    """
    return _leading(np.atleast_2d(np.cov(np.asarray(y, float), rowvar=False, bias=True)), count)
