"""Quadrature rules against the moments of the normal distribution."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import Polynomial
from scipy.special import factorial2, logsumexp
from scipy.stats import norm, truncnorm

from gpcde.model.quadrature import evenly_spaced, gauss_hermite

Rule = Callable[[int, int], tuple[np.ndarray, np.ndarray]]


def moment(power: int) -> float:
    """E w^power for w ~ N(0, 1)."""
    return 0.0 if power % 2 else float(factorial2(power - 1)) if power else 1.0


@given(points=st.integers(1, 12), seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_polynomials_up_to_twice_the_points_are_exact(points: int, seed: int) -> None:
    coefficients = np.random.default_rng(seed).normal(size=2 * points)
    coefficients /= [np.sqrt(moment(2 * p)) for p in range(2 * points)]
    nodes, log_weights = gauss_hermite(points, drop=0.0)
    got = np.exp(log_weights) @ Polynomial(coefficients)(nodes[:, 0])
    expected = sum(c * moment(p) for p, c in enumerate(coefficients))
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_the_next_power_is_no_longer_exact() -> None:
    """w^2p is what p nodes cannot do: they fall short by p!, the norm of the Hermite polynomial."""
    nodes, log_weights = gauss_hermite(5, drop=0.0)
    np.testing.assert_allclose(moment(10) - np.exp(log_weights) @ nodes[:, 0] ** 10, 120.0, rtol=1e-11)


def test_two_dimensions_integrate_every_product_of_powers() -> None:
    nodes, log_weights = gauss_hermite(5, dim=2, drop=0.0)
    for a in range(10):
        for b in range(10):
            got = np.exp(log_weights) @ (nodes[:, 0] ** a * nodes[:, 1] ** b)
            scale = np.sqrt(moment(2 * a) * moment(2 * b))
            np.testing.assert_allclose(got / scale, moment(a) * moment(b) / scale, atol=1e-12)


@pytest.mark.parametrize("rule", [gauss_hermite, evenly_spaced])
@pytest.mark.parametrize(("points", "dim"), [(1, 1), (100, 1), (150, 1), (1, 2), (20, 2)])
def test_weights_sum_to_one(rule: Rule, points: int, dim: int) -> None:
    _, log_weights = rule(points, dim)
    np.testing.assert_allclose(logsumexp(log_weights), 0, atol=1e-13)


@pytest.mark.parametrize("rule", [gauss_hermite, evenly_spaced])
def test_one_node_is_the_mean(rule: Rule) -> None:
    nodes, log_weights = rule(1, 2)
    np.testing.assert_allclose(nodes, [[0, 0]], atol=1e-15)
    np.testing.assert_allclose(log_weights, [0], atol=1e-15)


@pytest.mark.parametrize(("points", "dim"), [(100, 1), (20, 2)])
def test_dropped_nodes_are_negligible(points: int, dim: int) -> None:
    """Some go, and the integrals of bounded and of growing functions stay."""
    some, all_ = gauss_hermite(points, dim), gauss_hermite(points, dim, drop=0.0)
    assert len(some[0]) < 0.9 * len(all_[0])
    assert some[1].min() > np.log(1e-16) > all_[1].min()
    for function in (
        lambda w: np.cos(w.sum(1)),
        lambda w: np.exp(-((w - 1.3) ** 2).sum(1) / 0.3),
        lambda w: (w**4).sum(1),
        lambda w: np.exp(0.5 * w.sum(1)),
    ):
        one, two = (np.exp(log_weights) @ function(nodes) for nodes, log_weights in (some, all_))
        assert abs(one - two) < 1e-12


@pytest.mark.parametrize(("points", "dim"), [(100, 1), (20, 2)])
def test_kept_nodes_integrate_smooth_functions(points: int, dim: int) -> None:
    """E exp(iw) = exp(-1/2) and E exp(w/2) = exp(1/8), in each dimension."""
    nodes, log_weights = gauss_hermite(points, dim)
    np.testing.assert_allclose(np.exp(log_weights) @ np.cos(nodes.sum(1)), np.exp(-0.5 * dim), rtol=1e-12)
    np.testing.assert_allclose(np.exp(log_weights) @ np.exp(0.5 * nodes.sum(1)), np.exp(0.125 * dim), rtol=1e-12)


def test_drop_is_a_threshold_on_the_weight() -> None:
    everything = np.sort(np.exp(gauss_hermite(30, drop=0.0)[1]))
    kept = np.sort(np.exp(gauss_hermite(30, drop=1e-4)[1]))
    np.testing.assert_allclose(kept, everything[everything > 1e-4], rtol=1e-13)


@pytest.mark.parametrize("dim", [1, 2])
def test_even_nodes_are_evenly_spaced_and_weighted_by_the_density(dim: int) -> None:
    nodes, log_weights = evenly_spaced(31, dim, reach=3.0)
    np.testing.assert_allclose(np.unique(nodes), np.linspace(-3, 3, 31), atol=1e-14)
    assert len(nodes) == 31**dim
    density = norm.logpdf(nodes).sum(1)
    np.testing.assert_allclose(log_weights - log_weights.max(), density - density.max(), atol=1e-12)


def test_even_nodes_have_the_moments_of_the_truncated_normal() -> None:
    """Up to what the trapezoidal rule does at the two ends."""
    nodes, log_weights = evenly_spaced(100)
    for power in range(1, 5):
        expected = truncnorm.moment(power, -5, 5)
        np.testing.assert_allclose(np.exp(log_weights) @ nodes[:, 0] ** power, expected, rtol=1e-4, atol=1e-12)


def test_even_nodes_are_better_for_narrow_functions() -> None:
    """E N(0.37 | w, s²) = N(0.37 | 0, 1 + s²) with s = 0.08, by as many nodes of each rule."""
    exact = norm.pdf(0.37, 0, np.sqrt(1 + 0.08**2))
    hermite, even = (
        abs(np.exp(log_weights) @ norm.pdf(0.37, nodes[:, 0], 0.08) / exact - 1)
        for nodes, log_weights in (gauss_hermite(100), evenly_spaced(100))
    )
    assert even < 1e-3 < hermite


@pytest.mark.parametrize("rule", [gauss_hermite, evenly_spaced])
@pytest.mark.parametrize("dim", [0, 3])
def test_other_dimensions_are_refused_with_a_way_out(rule: Rule, dim: int) -> None:
    with pytest.raises(ValueError, match=rf"one or two latent dimensions, not in {dim}.*use a Gaussian q\(w\)"):
        rule(10, dim)


@pytest.mark.parametrize("rule", [gauss_hermite, evenly_spaced])
def test_no_points_are_refused(rule: Rule) -> None:
    with pytest.raises(ValueError, match="points must be at least 1, got 0"):
        rule(0, 1)
