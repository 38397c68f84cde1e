"""The sparse posterior q(u) of L Gaussian processes that share a kernel and inducing inputs, whitened.

With u = Lz v, Lz = chol(Kzz), a_n = Lz⁻¹ k_z(h_n), q(v_l) = N(m_l, S_l):

    mean_l(n) = a_nᵀ m_l        var_l(n) = k(h_n, h_n) - a_nᵀ a_n + a_nᵀ S_l a_n

The f_l are alike a priori, so any rotation of them is too. In the coordinates of the eigenvectors v_l of
R = E[PᵀP] (eigenvalues λ_l) the likelihood splits, and the optimal q given q(w) and q(A) is

    S_l⁻¹ = I + λ_l G / σ²           G = sum_n E[a_n a_nᵀ]     M × M, one for all outputs
    S_l⁻¹ m_l = H E[P] v_l / σ²      H = sum_n E[a_n] y_nᵀ     M × D_y

All S_l share the eigenvectors of G: two eigendecompositions serve any number of outputs, and one Cholesky
where P is the identity. q(u) is stored as (G, H), of size M² + M D_y.

For any q, the expected squared residual is quadratic in a_n, with the coefficients C and W:

    E‖y_n - P f(h_n)‖² = ‖y_n‖² + tr R k(h_n, h_n) - 2 a_nᵀ W y_n - a_nᵀ C a_n
    C = sum_l (VᵀRV)_ll (I - S_l) - m R mᵀ       W = m E[P]ᵀ
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from ..model.mixing import Mixing
from ..model.model import Factors
from ..runtime.files import Stored
from ..runtime.precision import on_device, wide


class Coefficients(NamedTuple):
    """C and W above, for whitened features."""

    quadratic: Float[Array, "M M"]
    linear: Float[Array, "M D"]


class VariationalPosterior(Stored):
    """q(u) as training holds it: as statistics, which natural gradients average, or as what Adam trains."""

    @abc.abstractmethod
    def resolve(self, mixing: Mixing, noise_variance: Float[Array, ""]) -> "SparsePosterior":
        """Means and covariances, given P and the noise; what Adam does not train is held fixed for derivatives."""

    @abc.abstractmethod
    def trained(self) -> "VariationalPosterior | None":
        """What of it Adam trains, if anything."""

    @abc.abstractmethod
    def nudge(self) -> Coefficients | None:
        """Zeros, by which the bound is differentiated for the natural gradient, if there is one."""

    @abc.abstractmethod
    def natural_step(
        self, gradient: Coefficients | None, noise_variance: Float[Array, ""], gamma: Float[Array, ""] | float
    ) -> "VariationalPosterior":
        """q(u) after a natural-gradient step of size γ, from the bound's derivatives by the coefficients."""


class FunctionMoments(eqx.Module):
    """Means and variances of f from kernel rows as they are: made once from q(u), for prediction."""

    @abc.abstractmethod
    def __call__(
        self, rows: Float[Array, "n M"], diag: Float[Array, "n 1"]
    ) -> tuple[Float[Array, "n L"], Float[Array, "n #L"]]:
        """Means of f (as they are) and variances (rotated) from k(h, Z) and k(h, h)."""

    @property
    @abc.abstractmethod
    def separated_width(self) -> int:
        """How many numbers `separated` needs for a pair of input and latent."""

    @abc.abstractmethod
    def separated(self, factors: Factors) -> tuple[Float[Array, "n k L"], Float[Array, "n k #L"]]:
        """The same for all pairs of inputs and latents, from the factors of the kernel rows."""


class SparsePosterior(eqx.Module):
    """q(v_l) = N(m_l, S_l) for all l.

    Attributes
    ----------
    mean : array of shape (M, L)
        The m_l in the coordinates of f, as columns.
    rotation : array of shape (L, L)
        V: variances are those of f rotated by it.
    """

    mean: eqx.AbstractVar[Float[Array, "M L"]]

    @abc.abstractmethod
    def coefficients(self, mixing: Mixing) -> Coefficients:
        """C and W."""

    @abc.abstractmethod
    def kl(self) -> Float[Array, ""]:
        """sum_l KL[q(u_l) || p(u_l)]."""

    @abc.abstractmethod
    def moments(self, whitener: Float[Array, "M M"]) -> FunctionMoments:
        """What makes moments of f of kernel rows, given Lz⁻¹."""

    @abc.abstractmethod
    def sample(self, draws: Float[Array, "M L"]) -> Float[Array, "M L"]:
        """A draw of all v_l, in the coordinates of f, from standard normal draws."""

    @property
    @abc.abstractmethod
    def rotation(self) -> Float[Array, "L L"]:
        """V: variances are those of f rotated by it."""


class Shared(VariationalPosterior, SparsePosterior):
    """One S = root rootᵀ for all outputs, root lower triangular: optimal where P is the identity, else a restriction.

    Also the form in which plain Adam may optimise q(u); what lies above the root's diagonal is never read.

    Parameters
    ----------
    mean : array of shape (M, L)
        The means of all q(v_l), as columns.
    root : array of shape (M, M)
        The root of S.
    """

    mean: Float[Array, "M L"]
    root: Float[Array, "M M"]

    def check_values(self) -> None:
        super().check_values()
        if not jnp.diagonal(self.root).all():
            raise ValueError("Shared.root is the root of no covariance: its diagonal has a 0")

    def resolve(self, mixing: Mixing, noise_variance: Float[Array, ""]) -> "Shared":
        return wide(self)

    def trained(self) -> "Shared":
        return self

    def nudge(self) -> None:
        return None

    def natural_step(
        self, gradient: Coefficients | None, noise_variance: Float[Array, ""], gamma: Float[Array, ""] | float
    ) -> "Shared":
        return self

    @property
    def rotation(self) -> Float[Array, "L L"]:
        return jnp.eye(self.mean.shape[1])

    def covariance(self) -> Float[Array, "M M"]:
        """S."""
        root = jnp.tril(self.root)
        return root @ root.T

    def coefficients(self, mixing: Mixing) -> Coefficients:
        gain = jnp.eye(self.root.shape[0]) - self.covariance()
        return Coefficients(mixing.trace() * gain - mixing.quadratic(self.mean), mixing.apply(self.mean))

    def kl(self) -> Float[Array, ""]:
        m, outputs = self.mean.shape
        logdet = 2 * jnp.sum(jnp.log(jnp.abs(jnp.diagonal(self.root))))
        return 0.5 * (outputs * (jnp.sum(jnp.tril(self.root) ** 2) - m - logdet) + jnp.sum(self.mean**2))

    def moments(self, whitener: Float[Array, "M M"]) -> FunctionMoments:
        gain = whitener.T @ (jnp.eye(len(whitener)) - self.covariance()) @ whitener
        return SharedMoments(whitener.T @ self.mean, gain)

    def sample(self, draws: Float[Array, "M L"]) -> Float[Array, "M L"]:
        return self.mean + jnp.tril(self.root) @ draws


class SharedMoments(FunctionMoments):
    """mean = k Lz⁻ᵀ m,   variance = k(h, h) - k Lz⁻ᵀ (I - S) Lz⁻¹ kᵀ: one column, the same for all outputs."""

    weights: Float[Array, "M L"]
    gain: Float[Array, "M M"]

    def __call__(
        self, rows: Float[Array, "n M"], diag: Float[Array, "n 1"]
    ) -> tuple[Float[Array, "n L"], Float[Array, "n #L"]]:
        variance = diag - ((rows @ self.gain) * rows).sum(1, keepdims=True)
        return rows @ self.weights, jnp.maximum(variance, 0)

    @property
    def separated_width(self) -> int:
        return self.weights.shape[1]

    def separated(self, factors: Factors) -> tuple[Float[Array, "n k L"], Float[Array, "n k #L"]]:
        x, w, trend, diag = factors
        m = x.shape[1]
        means = jax.lax.map(lambda column: (x * column) @ w.T, self.weights[:m].T)
        known = separable_variance(x, w, self.gain[:m, :m])
        if trend.shape[1]:
            crossed = trend @ self.gain[m:]
            known = known + 2 * (x * crossed[:, :m]) @ w.T + jnp.sum(trend * crossed[:, m:], axis=1, keepdims=True)
        mean = jnp.moveaxis(means, 0, 2) + (trend @ self.weights[m:])[:, None]
        return mean, jnp.maximum(diag - known, 0)[..., None]


def separable_variance(
    rows_x: Float[Array, "n M"], rows_w: Float[Array, "k M"], gain: Float[Array, "M M"], block: int = 16
) -> Float[Array, "n k"]:
    """sum_mm' (x_nm x_nm') gain_mm' (w_km w_km'), each pair of inducing inputs once.

    One matrix product over pairs replaces one over M for each n, at half the arithmetic; `block` rows of pairs are
    made at a time.
    """
    n, m = rows_x.shape
    total = jnp.zeros((n, rows_w.shape[0]), rows_x.dtype)
    for start in range(0, m, block):
        here, rest = slice(start, min(start + block, m)), slice(start, m)
        twice = jnp.where(jnp.arange(start, m) >= here.stop, 2.0, 1.0)
        left = rows_x[:, here, None] * (rows_x[:, None, rest] * twice)
        right = rows_w[:, here, None] * (rows_w[:, None, rest] * gain[here, rest])
        total = total + left.reshape(n, -1) @ right.reshape(len(rows_w), -1).T
    return total


class Rotated(SparsePosterior):
    """S_l = E diag(spectrum_l) Eᵀ for the outputs rotated by V."""

    mean: Float[Array, "M L"]
    basis: Float[Array, "M M"]
    turn: Float[Array, "L L"]
    spectrum: Float[Array, "M L"]

    @property
    def rotation(self) -> Float[Array, "L L"]:
        return self.turn

    def coefficients(self, mixing: Mixing) -> Coefficients:
        gain = (1 - self.spectrum) @ mixing.along(self.turn)
        squares, mixed = mixing.quadratic_and_applied(self.mean)
        return Coefficients((self.basis * gain) @ self.basis.T - squares, mixed)

    def kl(self) -> Float[Array, ""]:
        return 0.5 * (jnp.sum(self.spectrum - 1 - jnp.log(self.spectrum)) + jnp.sum(self.mean**2))

    def moments(self, whitener: Float[Array, "M M"]) -> FunctionMoments:
        return RotatedMoments(whitener.T @ self.mean, whitener.T @ self.basis, self.spectrum)

    def sample(self, draws: Float[Array, "M L"]) -> Float[Array, "M L"]:
        return self.mean + self.basis @ (jnp.sqrt(self.spectrum) * draws) @ self.turn.T


class RotatedMoments(FunctionMoments):
    """mean = k Lz⁻ᵀ m,   variance_l = k(h, h) - sum_i (k Lz⁻ᵀ E)_i² (1 - spectrum_il)."""

    weights: Float[Array, "M L"]
    root: Float[Array, "M M"]
    spectrum: Float[Array, "M L"]

    def __call__(
        self, rows: Float[Array, "n M"], diag: Float[Array, "n 1"]
    ) -> tuple[Float[Array, "n L"], Float[Array, "n #L"]]:
        variance = diag - (rows @ self.root) ** 2 @ (1 - self.spectrum)
        return rows @ self.weights, jnp.maximum(variance, 0)

    @property
    def separated_width(self) -> int:
        return len(self.weights)

    def separated(self, factors: Factors) -> tuple[Float[Array, "n k L"], Float[Array, "n k #L"]]:
        n, k = factors.diag.shape
        mean, variance = self(*factors.rows().flat())
        return mean.reshape(n, k, -1), variance.reshape(n, k, -1)


class Statistics(VariationalPosterior):
    """q(u) by its statistics (G, H): what natural gradients average.

    With every row and draw weighed by 1/s (`likelihood`) and the row's own weight, all of the algebra stays.

    Parameters
    ----------
    G : array of shape (M, M)
        sum_n E[a_n a_nᵀ].
    H : array of shape (M, D_y)
        sum_n E[a_n] y_nᵀ.
    """

    G: Float[Array, "M M"]
    H: Float[Array, "M D"]

    def check_values(self) -> None:
        super().check_values()
        if not self.G.dtype == self.H.dtype == np.float64:
            raise ValueError("Statistics are sums that need 64 bits")
        G = np.asarray(self.G)
        if not np.allclose(G, G.T, rtol=1e-6, atol=1e-6 * np.abs(G).max(initial=0)):
            raise ValueError("Statistics.G is no sum of squares: it is not symmetric")
        if (np.diagonal(G) < 0).any():
            raise ValueError("Statistics.G is no sum of squares: its diagonal is negative")

    @classmethod
    def prior(cls, inducing: int, outputs: int) -> "Statistics":
        """q(u) = p(u).

        Parameters
        ----------
        inducing : int
            M, the number of inducing inputs.
        outputs : int
            D_y, the number of outputs.
        """
        return cls(on_device(np.zeros((inducing, inducing))), on_device(np.zeros((inducing, outputs))))

    def trained(self) -> None:
        return None

    def nudge(self) -> Coefficients:
        return Coefficients(jnp.zeros_like(self.G), jnp.zeros_like(self.H))

    def natural_step(
        self, gradient: Coefficients | None, noise_variance: Float[Array, ""], gamma: Float[Array, ""] | float
    ) -> "Statistics":
        assert gradient is not None
        G = noise_variance * (gradient.quadratic + gradient.quadratic.T)
        H = noise_variance * gradient.linear
        return Statistics((1 - gamma) * self.G + gamma * G, (1 - gamma) * self.H + gamma * H)

    def resolve(self, mixing: Mixing, noise_variance: Float[Array, ""]) -> SparsePosterior:
        uniform = mixing.uniform
        if uniform is not None:
            return stop_gradient(self._one_cholesky(mixing, uniform / noise_variance, noise_variance))
        values, basis = jnp.linalg.eigh(self.G)
        weights, turn = mixing.eigh()
        # both are sums of squares: a negative eigenvalue is rounding
        values, weights = jnp.maximum(values, 0), jnp.maximum(weights, 0)
        spectrum = 1 / (1 + values[:, None] * weights / noise_variance)
        pull = basis.T @ mixing.into(self.H) @ turn / noise_variance
        return stop_gradient(Rotated(basis @ (spectrum * pull) @ turn.T, basis, turn, spectrum))

    def _one_cholesky(self, mixing: Mixing, precision: Float[Array, ""], noise_variance: Float[Array, ""]) -> Shared:
        eye = jnp.eye(self.G.shape[0])
        # in reverse order the Cholesky factor's inverse is, transposed, a lower triangular root of S
        whole = (eye + self.G * precision)[::-1, ::-1]
        chol = jnp.linalg.cholesky(whole)
        # G is a sum of squares; where rounding made it indefinite, put its spectrum back
        chol = jax.lax.cond(jnp.isfinite(chol[-1, -1]), lambda: chol, lambda: _repaired_cholesky(whole))
        root = jax.scipy.linalg.solve_triangular(chol, eye, lower=True)[::-1, ::-1].T
        return Shared(root @ (root.T @ mixing.into(self.H)) / noise_variance, root)


def _repaired_cholesky(precision: Float[Array, "M M"]) -> Float[Array, "M M"]:
    values, vectors = jnp.linalg.eigh(precision)
    return jnp.linalg.cholesky((vectors * jnp.maximum(values, 1)) @ vectors.T)
