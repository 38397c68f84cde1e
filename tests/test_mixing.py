"""Mixings against expectations over an explicit P, and their starts against the covariances they factor."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.gaussian_process.kernels import Matern

from gpcde._compile import compiled
from gpcde._mixing import GaussianMixing, Identity, Mixing, PointMixing, grid_start, principal_start

D, L, M = 4, 3, 5


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def gaussian() -> GaussianMixing:
    """q(P) with means, variances and prior all different."""
    parts = [jnp.asarray(normal(D, L, seed=s)) for s in (1, 2, 3)]
    return GaussianMixing(parts[0], 0.3 * parts[1] - 0.5, parts[2], jnp.asarray(-0.2))


def mixings() -> dict[str, tuple[Mixing, list[np.ndarray]]]:
    """Each with equally likely values of P that have its mean and covariance, so that quadratics are exact."""
    point, q = normal(D, L), gaussian()
    mean, std = np.asarray(q.mean), np.exp(np.asarray(q.log_std))
    steps = np.sqrt(D * L) * np.eye(D * L).reshape(-1, D, L) * std
    return {
        "identity": (Identity(L), [np.eye(L)]),
        "point": (PointMixing.create(point), [point]),
        "fixed point": (PointMixing.create(point, learn=False), [point]),
        "gaussian": (q, [mean + sign * step for step in steps for sign in (1, -1)]),
    }


def expect(values: list[np.ndarray], function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return np.mean([function(p) for p in values], axis=0)


NAMES = ["identity", "point", "fixed point", "gaussian"]


@pytest.mark.parametrize("name", NAMES)
def test_expectations_over_the_mixing(name: str) -> None:
    mixing, values = mixings()[name]
    m, f = normal(M, L, seed=4), normal(2, 3, L, seed=5)
    rotation = np.linalg.qr(normal(L, L, seed=6))[0]
    np.testing.assert_allclose(mixing.apply(jnp.asarray(f)), expect(values, lambda p: f @ p.T), rtol=1e-12)
    second = expect(values, lambda p: p.T @ p)
    np.testing.assert_allclose(mixing.second_moment(), second, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(mixing.trace(), np.trace(second), rtol=1e-12)
    np.testing.assert_allclose(
        mixing.quadratic(jnp.asarray(m)), expect(values, lambda p: m @ p.T @ p @ m.T), rtol=1e-11
    )
    along = np.diag(rotation.T @ second @ rotation)
    np.testing.assert_allclose(mixing.along(jnp.asarray(rotation)), along, rtol=1e-12)
    assert mixing.shape == values[0].shape


def test_gaussian_penalty_is_the_divergence_from_the_prior() -> None:
    """E_q[log q - log p], whose integrand is quadratic: three Gauss–Hermite nodes are exact."""
    q = gaussian()
    mean, std = np.asarray(q.mean), np.exp(np.asarray(q.log_std))
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    places = mean + std * nodes[:, None, None]
    ratio = norm.logpdf(places, mean, std) - norm.logpdf(places, np.asarray(q.start), np.exp(-0.2))
    np.testing.assert_allclose(q.penalty(), np.einsum("q,qij->", weights / weights.sum(), ratio), rtol=1e-12)


def test_gaussian_penalty_is_least_and_zero_at_the_prior() -> None:
    q = GaussianMixing.create(normal(D, L), std=0.3, scale=0.3)
    value, gradient = compiled(jax.value_and_grad(lambda q: q.penalty()))(q)
    np.testing.assert_allclose(value, 0, atol=1e-13)
    for leaf in jax.tree.leaves(gradient):
        np.testing.assert_allclose(leaf, 0, atol=1e-13)


def test_learnt_scale_settles_at_the_size_of_the_departures() -> None:
    """The derivative by the scale vanishes where scale² is the mean of (mean - start)² + std²."""
    q = gaussian()
    best = 0.5 * jnp.log(jnp.mean((q.mean - q.start) ** 2 + q.variance))
    slope = compiled(jax.grad(lambda s: GaussianMixing(q.mean, q.log_std, q.start, s).penalty()))(best)
    np.testing.assert_allclose(slope, 0, atol=1e-12)


def test_gaussian_starts_with_the_spreads_asked_for() -> None:
    q = GaussianMixing.create(normal(D, L), std=0.02, scale=0.05)
    np.testing.assert_allclose(q.variance, np.full((D, L), 0.02**2), rtol=1e-12)
    np.testing.assert_allclose(jnp.exp(q.log_scale), 0.05, rtol=1e-12)
    np.testing.assert_array_equal(q.mean, normal(D, L))
    np.testing.assert_array_equal(q.start, normal(D, L))


def test_point_penalty_is_minus_the_log_prior() -> None:
    start, moved = normal(D, L), normal(D, L, seed=1)
    mixing = PointMixing(jnp.asarray(moved), jnp.asarray(start), True, 2.5)
    gap = norm.logpdf(start, start, 2.5**-0.5).sum() - norm.logpdf(moved, start, 2.5**-0.5).sum()
    np.testing.assert_allclose(mixing.penalty(), gap, rtol=1e-12)
    np.testing.assert_allclose(PointMixing.create(start).penalty(), 0, atol=0)


@compiled
@jax.grad
def slopes(mixing: Mixing, m: jax.Array, rotation: jax.Array) -> jax.Array:
    return (
        jnp.sum(jnp.sin(mixing.apply(m)))
        + jnp.sum(jnp.sin(mixing.quadratic(m)))
        + jnp.sum(jnp.sin(mixing.second_moment()))
        + jnp.sum(mixing.along(rotation) ** 2)
        + mixing.trace()
        + mixing.penalty()
    )


def test_fixed_mixing_has_no_gradient() -> None:
    value, start = jnp.asarray(normal(D, L)), jnp.asarray(normal(D, L, seed=1))
    m, rotation = jnp.asarray(normal(M, L, seed=4)), jnp.eye(L)
    fixed = slopes(PointMixing(value, start, learn=False), m, rotation)
    np.testing.assert_array_equal(fixed.value, np.zeros((D, L)))
    np.testing.assert_array_equal(fixed.start, np.zeros((D, L)))
    learnt = slopes(PointMixing(value, start, learn=True), m, rotation)
    assert np.abs(learnt.value).min() > 1e-6
    np.testing.assert_array_equal(learnt.start, np.zeros((D, L)))


def test_fixed_mixing_has_no_penalty() -> None:
    assert PointMixing(jnp.asarray(normal(D, L)), jnp.zeros((D, L)), learn=False).penalty() == 0


def test_centre_of_the_gaussian_prior_stays() -> None:
    gradient = slopes(gaussian(), jnp.asarray(normal(M, L, seed=4)), jnp.eye(L))
    np.testing.assert_array_equal(gradient.start, np.zeros((D, L)))
    assert np.abs(gradient.mean).min() > 1e-6
    assert abs(gradient.log_scale) > 1e-6


@pytest.mark.parametrize("lengthscale", [1.0, 2.3])
def test_all_columns_of_the_grid_start_give_the_matern_covariance(lengthscale: float) -> None:
    height, width = 3, 4
    place = np.array([[i, j] for i in range(height) for j in range(width)], float)
    p = grid_start(height, width, height * width, lengthscale)
    np.testing.assert_allclose(p @ p.T, Matern(lengthscale, nu=2.5)(place), rtol=1e-10, atol=1e-13)


def test_columns_of_the_grid_start_are_the_best_of_their_number() -> None:
    """They are orthogonal, in falling order, and what is left over has the next eigenvalue as its norm."""
    whole = grid_start(3, 4, 12, 1.7)
    p = grid_start(3, 4, 5, 1.7)
    cross = p.T @ p
    values = np.linalg.eigvalsh(whole @ whole.T)[::-1]
    np.testing.assert_allclose(cross, np.diag(values[:5]), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(whole @ whole.T - p @ p.T, 2), values[5], rtol=1e-9)


def test_largest_entry_of_each_column_is_positive() -> None:
    for p in (grid_start(3, 4, 12, 1.7), principal_start(normal(20, D), D)):
        assert (p.max(0) >= -p.min(0) - 1e-12).all()


@pytest.mark.parametrize("rows", [20, 3], ids=["many rows", "fewer rows than outputs"])
def test_all_columns_of_the_principal_start_give_the_sample_covariance(rows: int) -> None:
    y = normal(rows, D) @ normal(D, D, seed=1) + 7
    p = principal_start(y, D)
    centred = y - y.mean(0)
    np.testing.assert_allclose(p @ p.T, centred.T @ centred / rows, rtol=1e-10, atol=1e-12)


def test_principal_columns_are_orthogonal_and_in_falling_order() -> None:
    y = normal(20, D) @ normal(D, D, seed=1)
    p = principal_start(y, 2)
    values = np.linalg.svd(y - y.mean(0), compute_uv=False) ** 2 / 20
    np.testing.assert_allclose(p.T @ p, np.diag(values[:2]), rtol=1e-10, atol=1e-12)


def test_principal_start_of_one_output_is_its_standard_deviation() -> None:
    y = normal(20, 1)
    np.testing.assert_allclose(principal_start(y, 1), [[y.std()]], rtol=1e-12)


@pytest.mark.parametrize("count", [0, 5])
def test_wrong_number_of_columns_is_refused(count: int) -> None:
    for make in (lambda: grid_start(2, 2, count), lambda: principal_start(normal(20, 4), count)):
        with pytest.raises(ValueError, match=f"between 1 and D_y = 4, got {count}"):
            make()
