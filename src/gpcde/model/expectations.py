"""Kernel expectations under h_n ~ N(mean_n, cov_n), in closed form.

    psi0_n    = E k(h_n, h_n)
    psi1_nm   = E k(h_n, z_m)
    psi2_mm'  = sum_n v_n E k(h_n, z_m) k(h_n, z_m')        v the weights of the rows

For the RBF kernel with Λ = diag(l²) and z̄ = (z + z')/2 (Girard et al., 2003; Titsias & Lawrence, 2010)

    psi1_nm    = v  |I + Λ⁻¹ cov|^(-1/2) exp(-(mean - z)ᵀ (Λ + cov)⁻¹ (mean - z) / 2)
    E k k'     = v² |I + 2 Λ⁻¹ cov|^(-1/2) exp(-(z - z')ᵀ Λ⁻¹ (z - z') / 4 - (mean - z̄)ᵀ (Λ + 2 cov)⁻¹ (mean - z̄))

The exponents are linear in features of z (or z̄), so a block of points needs one matrix product and one
exponential over the M(M+1)/2 pairs; blocks are summed as they come, and recomputed on the way back, so
no array of size N × M × M is ever made. A polynomial kernel is a product of monomials, and needs the
moments of h only. With cov = 0 everything is the plain kernel, with finite derivatives.
"""

import itertools
import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..runtime.blocks import block_count, stacked

PAIRS_AT_ONCE = 2**21
"""How many numbers a block of psi2 may hold."""


class Expectations(NamedTuple):
    """psi0, psi1 and the weighted sum psi2."""

    psi0: Float[Array, " n"]
    psi1: Float[Array, "n m"]
    psi2: Float[Array, "m m"]


Covariance = Float[Array, "n d"] | Float[Array, "n d d"]


def _precision(scaled_cov: Covariance, factor: float) -> tuple[Array, Array]:
    """(I + factor cov)⁻¹ and half the log determinant of what is inverted, of each point."""
    if scaled_cov.ndim == 2:
        spread = 1 + factor * scaled_cov
        return 1 / spread, 0.5 * jnp.log(spread).sum(1)
    chol = jnp.linalg.cholesky(jnp.eye(scaled_cov.shape[-1]) + factor * scaled_cov)
    root = jax.scipy.linalg.solve_triangular(chol, jnp.broadcast_to(jnp.eye(chol.shape[-1]), chol.shape), lower=True)
    return root.mT @ root, jnp.log(jnp.diagonal(chol, axis1=1, axis2=2)).sum(1)


def _quadratic(mean: Array, precision: Array, half_logdet: Array, z: Array, weight: float) -> Array:
    """-weight (mean_n - z_p)ᵀ precision_n (mean_n - z_p) - half_logdet_n for all pairs, as one matrix product."""
    if precision.ndim == 2:
        pull = precision * mean
        curve, squares = precision, z**2
    else:
        pull = (precision @ mean[..., None])[..., 0]
        curve = precision.reshape(len(precision), -1)
        squares = (z[:, :, None] * z[:, None, :]).reshape(len(z), -1)
    constant = -weight * (pull * mean).sum(1) - half_logdet
    left = jnp.concatenate([-weight * curve, 2 * weight * pull, constant[:, None]], axis=1)
    right = jnp.concatenate([squares, z, jnp.ones((len(z), 1), z.dtype)], axis=1)
    return left @ right.T


def rbf_expectations(
    variance: Float[Array, ""],
    lengthscales: Float[Array, " d"],
    mean: Float[Array, "n d"],
    cov: Covariance,
    z: Float[Array, "m d"],
    weight: Float[Array, " n"],
) -> Expectations:
    """Of v exp(-r²/2)."""
    mean, z = mean / lengthscales, z / lengthscales
    cov = cov / lengthscales**2 if cov.ndim == 2 else cov / (lengthscales[:, None] * lengthscales)
    n, m = len(mean), len(z)

    psi1 = variance * jnp.exp(_quadratic(mean, *_precision(cov, 1.0), z, 0.5))

    rows, columns = np.triu_indices(m)
    middle = 0.5 * (z[rows] + z[columns])
    apart = -0.25 * ((z[rows] - z[columns]) ** 2).sum(1)

    @jax.checkpoint
    def block(total: Array, points: tuple[Array, Array, Array]) -> tuple[Array, None]:
        mean, cov, present = points
        logs = _quadratic(mean, *_precision(cov, 2.0), middle, 1.0) + apart
        return total + present @ jnp.exp(logs), None

    count = block_count(n, PAIRS_AT_ONCE // len(rows))
    points = stacked(mean, count), stacked(cov, count), stacked(weight, count)
    total, _ = jax.lax.scan(block, jnp.zeros(len(rows), mean.dtype), points)
    upper = jnp.zeros((m, m), mean.dtype).at[rows, columns].set(total)
    psi2 = variance**2 * (upper + upper.T - jnp.diag(jnp.diag(upper)))
    return Expectations(jnp.broadcast_to(variance, (n,)), psi1, psi2)


def linear_expectations(
    variances: Float[Array, " d"],
    mean: Float[Array, "n d"],
    cov: Covariance,
    z: Float[Array, "m d"],
    weight: Float[Array, " n"],
) -> Expectations:
    """Of sum_d v_d x_d z_d."""
    scaled = z * variances
    spread = cov if cov.ndim == 2 else jnp.diagonal(cov, axis1=1, axis2=2)
    second = (mean * weight[:, None]).T @ mean
    second = second + (jnp.diag(weight @ cov) if cov.ndim == 2 else jnp.tensordot(weight, cov, 1))
    return Expectations((mean**2 + spread) @ variances, mean @ scaled.T, scaled @ second @ scaled.T)


def polynomial_expectations(
    log_variances: Float[Array, " d"],
    log_offset: Float[Array, ""],
    degree: int,
    mean: Float[Array, "n d"],
    cov: Covariance,
    z: Float[Array, "m d"],
    weight: Float[Array, " n"],
) -> Expectations:
    """Of (sum_d v_d x_d z_d + c)^p = φ(x)ᵀ φ(z), with φ the scaled monomials up to the degree.

    psi2 = Φ(z) (sum_n v_n E φφᵀ) Φ(z)ᵀ.
    """
    dim = mean.shape[1]
    chosen = itertools.combinations_with_replacement(range(dim + 1), degree)  # the last stands for the constant
    powers = np.array([np.bincount(np.asarray(c, int), minlength=dim + 1)[:dim] for c in chosen]).reshape(-1, dim)
    rest = degree - powers.sum(1)
    ways = np.array(
        [math.factorial(degree) / math.prod(math.factorial(i) for i in (*p, degree - sum(p))) for p in powers]
    )
    coefficients = ways * jnp.exp(rest * log_offset + powers @ log_variances)
    weighted = coefficients * _monomials(z, powers)

    moment = partial(_monomial_moments, mean, cov)
    both = powers[:, None] + powers
    unique, inverse = np.unique(both.reshape(-1, dim), axis=0, return_inverse=True)
    psi1 = moment(powers) @ weighted.T
    second = (weight @ moment(unique))[inverse.reshape(len(powers), len(powers))]
    psi0 = moment(2 * powers) @ coefficients
    return Expectations(psi0, psi1, weighted @ second @ weighted.T)


def _monomials(z: Array, powers: np.ndarray) -> Array:
    out = jnp.ones((len(z), len(powers)), z.dtype)
    for d in range(z.shape[1]):
        table = jnp.stack([z[:, d] ** p for p in range(powers.max() + 1)], axis=1)
        out = out * table[:, powers[:, d]]
    return out


def _monomial_moments(mean: Array, cov: Array, powers: np.ndarray) -> Array:
    """E prod_d h_d^p_d for each row of powers, by Stein's identity E h_i g(h) = mean_i E g + sum_j cov_ij E ∂_j g."""
    known: dict[tuple[int, ...], Array] = {(0,) * mean.shape[1]: jnp.ones(len(mean), mean.dtype)}

    def expect(power: tuple[int, ...]) -> Array:
        if power not in known:
            i = next(d for d, p in enumerate(power) if p)
            lower = tuple(p - (d == i) for d, p in enumerate(power))
            total = mean[:, i] * expect(lower)
            for j, p in enumerate(lower):
                if p and (cov.ndim == 3 or i == j):
                    spread = cov[:, i] if cov.ndim == 2 else cov[:, i, j]
                    total = total + p * spread * expect(tuple(q - (d == j) for d, q in enumerate(lower)))
            known[power] = total
        return known[power]

    return jnp.stack([expect(tuple(int(p) for p in row)) for row in powers], axis=1)
