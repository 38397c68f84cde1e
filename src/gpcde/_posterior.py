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
from jaxtyping import Array, Float

from ._mixing import Identity, Mixing


class Coefficients(NamedTuple):
    """C and W above, for whitened features."""

    quadratic: Float[Array, "M M"]
    linear: Float[Array, "M D"]


class SparsePosterior(eqx.Module):
    """q(v_l) = N(m_l, S_l) for all l; `mean` holds the m_l in the coordinates of f, as columns."""

    mean: eqx.AbstractVar[Float[Array, "M L"]]

    @abc.abstractmethod
    def coefficients(self, mixing: Mixing) -> Coefficients:
        """C and W."""

    @abc.abstractmethod
    def kl(self) -> Float[Array, ""]:
        """sum_l KL[q(u_l) || p(u_l)]."""

    @abc.abstractmethod
    def spread(self, a: Float[Array, "n M"]) -> Float[Array, "n #L"]:
        """a_nᵀ S_l a_n in rotated coordinates; one column where all S_l are one matrix."""

    @abc.abstractmethod
    def sample(self, noise: Float[Array, "M L"]) -> Float[Array, "M L"]:
        """A draw of all v_l, in the coordinates of f, from standard normal noise."""

    @property
    @abc.abstractmethod
    def rotation(self) -> Float[Array, "L L"] | None:
        """V, or None where it is the identity."""


class Shared(SparsePosterior):
    """One S = root rootᵀ for all outputs, root lower triangular: optimal where P is the identity, else a restriction.

    Also the form in which plain Adam may optimise q(u); what lies above the root's diagonal is never read.
    """

    mean: Float[Array, "M L"]
    root: Float[Array, "M M"]

    @property
    def rotation(self) -> None:
        return None

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

    def spread(self, a: Float[Array, "n M"]) -> Float[Array, "n #L"]:
        return jnp.sum((a @ jnp.tril(self.root)) ** 2, axis=1, keepdims=True)

    def sample(self, noise: Float[Array, "M L"]) -> Float[Array, "M L"]:
        return self.mean + jnp.tril(self.root) @ noise


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
        quadratic = (self.basis * gain) @ self.basis.T - mixing.quadratic(self.mean)
        return Coefficients(quadratic, mixing.apply(self.mean))

    def kl(self) -> Float[Array, ""]:
        return 0.5 * (jnp.sum(self.spectrum - 1 - jnp.log(self.spectrum)) + jnp.sum(self.mean**2))

    def spread(self, a: Float[Array, "n M"]) -> Float[Array, "n #L"]:
        return (a @ self.basis) ** 2 @ self.spectrum

    def sample(self, noise: Float[Array, "M L"]) -> Float[Array, "M L"]:
        return self.mean + self.basis @ (jnp.sqrt(self.spectrum) * noise) @ self.turn.T


class Statistics(eqx.Module):
    """q(u) by its statistics (G, H): what natural gradients average."""

    G: Float[Array, "M M"]
    H: Float[Array, "M D"]

    @classmethod
    def prior(cls, inducing: int, outputs: int) -> "Statistics":
        """q(u) = p(u)."""
        return cls(jnp.zeros((inducing, inducing)), jnp.zeros((inducing, outputs)))

    def solve(self, mixing: Mixing, noise_variance: Float[Array, ""]) -> SparsePosterior:
        """The posterior these statistics mean, given P and the noise."""
        if isinstance(mixing, Identity):
            return self._one_cholesky(noise_variance)
        values, basis = jnp.linalg.eigh(self.G)
        weights, turn = mixing.eigh()
        # both are sums of squares: a negative eigenvalue is rounding
        values, weights = jnp.maximum(values, 0), jnp.maximum(weights, 0)
        spectrum = 1 / (1 + values[:, None] * weights / noise_variance)
        pull = basis.T @ _into(mixing, self.H) @ turn / noise_variance
        return Rotated(basis @ (spectrum * pull) @ turn.T, basis, turn, spectrum)

    def _one_cholesky(self, noise_variance: Float[Array, ""]) -> Shared:
        eye = jnp.eye(self.G.shape[0])
        # in reverse order the Cholesky factor's inverse is, transposed, a lower triangular root of S
        precision = (eye + self.G / noise_variance)[::-1, ::-1]
        chol = jnp.linalg.cholesky(precision)
        # G is a sum of squares; where rounding made it indefinite, put its spectrum back
        chol = jax.lax.cond(jnp.isfinite(chol[-1, -1]), lambda: chol, lambda: _repaired_cholesky(precision))
        root = jax.scipy.linalg.solve_triangular(chol, eye, lower=True)[::-1, ::-1].T
        return Shared(root @ (root.T @ self.H) / noise_variance, root)


def _repaired_cholesky(precision: Float[Array, "M M"]) -> Float[Array, "M M"]:
    values, vectors = jnp.linalg.eigh(precision)
    return jnp.linalg.cholesky((vectors * jnp.maximum(values, 1)) @ vectors.T)


def _into(mixing: Mixing, h: Float[Array, "M D"]) -> Float[Array, "M L"]:
    """H E[P]: the transpose of `apply`, whatever P is."""
    (out,) = jax.linear_transpose(mixing.apply, jnp.zeros((h.shape[0], mixing.shape[1]), h.dtype))(h)
    return out
