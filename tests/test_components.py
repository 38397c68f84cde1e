"""Gaussian mixtures against sums of scipy's normal distributions, and their quantiles and scores against quadrature."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import kstest, multivariate_normal, norm

from gpcde.density.components import MANY_POINTS, Components, Univariate

N, K, D, L = 3, 4, 3, 2
FORMS = ["axes", "round", "shared", "own"]


def make(form: str, rows_share_weights: bool = False, seed: int = 0) -> Components:
    """Axes, one variance for all of them, a shared basis with a remainder, or covariances of any shape."""
    rng = np.random.default_rng(seed)
    weight = rng.dirichlet(np.ones(K), 1 if rows_share_weights else N)
    weight[:, 1] = 0.0
    with np.errstate(divide="ignore"):
        log_weight = np.log(weight / weight.sum(1, keepdims=True))
    width = L if form == "shared" else D
    mean, variance = 2 * rng.normal(size=(N, K, width)), rng.uniform(0.2, 2.0, size=(N, K, width))
    if form == "axes":
        return Components(log_weight, mean, variance)
    if form == "round":
        return Components(log_weight, mean, variance[:1, :1, :1])
    if form == "shared":
        basis = np.linalg.qr(rng.normal(size=(D, L)))[0][None, None]
        return Components(log_weight, mean, variance, basis, rng.uniform(0.1, 0.5, size=(N, K)))
    return Components(log_weight, mean, variance, np.linalg.qr(rng.normal(size=(N, K, D, D)))[0])


def dense(c: Components) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, "n k D"], Float[np.ndarray, "n k D D"]]:
    """Weights, means and covariances, written out one by one."""
    weight = np.broadcast_to(np.exp(c.log_weight), (N, K))
    variance = np.broadcast_to(c.variance, c.mean.shape)
    basis = np.broadcast_to(np.eye(D) if c.basis is None else c.basis, (N, K, D, c.mean.shape[2]))
    outside = np.broadcast_to(0.0 if c.outside is None else c.outside, (N, K))
    means, covariances = np.empty((N, K, D)), np.empty((N, K, D, D))
    for n, k in np.ndindex(N, K):
        b = basis[n, k]
        means[n, k] = b @ c.mean[n, k]
        covariances[n, k] = b @ np.diag(variance[n, k]) @ b.T + outside[n, k] * (np.eye(D) - b @ b.T)
    return weight, means, covariances


def brute_log_pdf(c: Components, z: np.ndarray, columns: list[int]) -> np.ndarray:
    weight, means, covariances = dense(c)
    out = np.empty(z.shape[:2])
    for n, g in np.ndindex(*out.shape):
        logs = [
            multivariate_normal.logpdf(z[n, g], means[n, k][columns], covariances[n, k][np.ix_(columns, columns)])
            for k in range(K)
        ]
        out[n, g] = logsumexp(logs, b=weight[n])
    return out


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_log_pdf_is_that_of_the_sum(form: str, share: bool) -> None:
    c, z = make(form, share), 2 * np.random.default_rng(1).normal(size=(N, 5, D))
    np.testing.assert_allclose(c.log_pdf(z), brute_log_pdf(c, z, [0, 1, 2]), rtol=1e-10)


@pytest.mark.parametrize("columns", [[0], [2], [2, 0], [1, 2], [2, 0, 1]])
@pytest.mark.parametrize("form", FORMS)
def test_marginals_are_those_of_the_sum(form: str, columns: list[int]) -> None:
    c, z = make(form), 2 * np.random.default_rng(1).normal(size=(N, 5, len(columns)))
    np.testing.assert_allclose(c.marginal(columns).log_pdf(z), brute_log_pdf(c, z, columns), rtol=1e-10)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_moments_are_those_of_the_sum(form: str, share: bool) -> None:
    c = make(form, share)
    weight, means, covariances = dense(c)
    mean = np.einsum("nk,nkd->nd", weight, means)
    second = np.einsum("nk,nkd->nd", weight, means**2 + np.diagonal(covariances, axis1=2, axis2=3))
    got_mean, got_variance = c.moments()
    np.testing.assert_allclose(got_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(got_variance, second - mean**2, rtol=1e-12)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_draws_have_the_means_and_covariances(form: str, share: bool) -> None:
    c, rng, size = make(form, share), np.random.default_rng(2), 40_000
    z = c.sample(rng.random((N, size)), rng.standard_normal((N, size, D)))
    weight, means, covariances = dense(c)
    for n in range(N):
        mean = weight[n] @ means[n]
        total = np.einsum("k,kde->de", weight[n], covariances[n] + means[n][:, :, None] * means[n][:, None])
        covariance = total - np.outer(mean, mean)
        np.testing.assert_allclose(z[n].mean(0), mean, atol=5 * np.sqrt(np.diag(covariance).max() / size))
        np.testing.assert_allclose(np.cov(z[n].T), covariance, atol=0.04 * np.diag(covariance).max())


@pytest.mark.parametrize("form", FORMS)
def test_draws_follow_the_cdf(form: str) -> None:
    c, rng = make(form), np.random.default_rng(3)
    z = c.sample(rng.random((N, 2000)), rng.standard_normal((N, 2000, D)))
    for n, j in np.ndindex(N, D):
        one = Univariate.of(c.take(slice(n, n + 1)), j)
        assert kstest(z[n, :, j], lambda at, one=one: one.cdf(at[None])[0]).pvalue > 1e-3


def test_components_are_picked_by_weight_and_never_without_any() -> None:
    c = Components(
        np.array([[-np.inf, np.log(0.25), -np.inf, np.log(0.75), -np.inf]]), np.zeros((2, 5, 1)), np.ones((1, 1, 1))
    )
    chance = np.array([[0.0, 0.2499, 0.2501, 1 - 1e-16], [0.9, 0.1, 0.3, 0.2]])
    np.testing.assert_array_equal(c.pick(chance), [[1, 1, 3, 3], [3, 1, 3, 1]])


@pytest.mark.parametrize("form", FORMS)
def test_some_rows(form: str) -> None:
    c, z = make(form), np.random.default_rng(4).normal(size=(N, 2, D))
    rows = np.array([2, 0, 2])
    np.testing.assert_allclose(c.take(rows).log_pdf(z[rows]), c.log_pdf(z)[rows], rtol=1e-13)
    np.testing.assert_allclose(c.take(slice(1, 2)).log_pdf(z[1:2]), c.log_pdf(z)[1:2], rtol=1e-13)


def univariate(seed: int, spread: float = 1.0) -> Univariate:
    """A few components, of which one counts for nothing."""
    rng = np.random.default_rng(seed)
    weight = rng.dirichlet(np.ones(5), 2)
    weight[:, 2] = 0.0
    weight /= weight.sum(1, keepdims=True)
    return Univariate(weight, 3 * rng.normal(size=(2, 5)), np.exp(spread * rng.normal(size=(2, 5))))


def brute_cdf(u: Univariate, row: int, z: float, upper: bool = False) -> float:
    tail = norm.sf if upper else norm.cdf
    return float(u.weight[row] @ tail(z, u.mean[row], u.std[row]))


def test_the_cdf_keeps_its_precision_in_both_tails() -> None:
    u, z = univariate(0), np.array([[-40.0, -8.0, 0.3, 9.0, 40.0]] * 2)
    for upper in (False, True):
        expected = [[brute_cdf(u, n, at, upper) for at in z[n]] for n in range(2)]
        np.testing.assert_allclose(u.cdf(z, upper), expected, rtol=1e-11)
        np.testing.assert_allclose(u.cdf(z, np.full(z.shape, upper)), expected, rtol=1e-11)


def test_the_derivative_of_the_cdf_is_the_pdf() -> None:
    u, z, step = univariate(1), np.linspace(-6, 6, 40).reshape(2, 20), 1e-5
    np.testing.assert_allclose((u.cdf(z + step) - u.cdf(z - step)) / (2 * step), u.pdf(z), rtol=1e-6, atol=1e-10)


@given(seed=st.integers(0, 10**6), spread=st.sampled_from([0.3, 1.0, 3.0]))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_quantiles_invert_the_cdf(seed: int, spread: float) -> None:
    """Relative to the smaller tail, whatever it is; a level near 1 is itself only known to 1e-16."""
    u = univariate(seed, spread)
    below = np.array([1e-300, 1e-100, 1e-10, 1e-5, 0.01, 0.3, 0.5])
    for level, tail, upper in ((below, below, False), (1 - below[2:], 1 - (1 - below[2:]), True)):
        z = u.quantile(np.broadcast_to(level, (2, len(level))))
        got = [[brute_cdf(u, n, at, upper) for at in z[n]] for n in range(2)]
        noise = 1e-15 * np.abs(z) * u.pdf(z)  # what the last digit of z makes
        assert (np.abs(got - tail) <= 1e-12 * tail + 4 * noise).all()


def test_levels_zero_and_one_are_the_ends() -> None:
    np.testing.assert_array_equal(univariate(0).quantile(np.array([[0.0, 1.0]] * 2)), [[-np.inf, np.inf]] * 2)


def test_quantiles_of_narrow_modes_far_apart() -> None:
    """Each half of the levels belongs to one mode."""
    u = Univariate(np.array([[0.5, 0.5]]), np.array([[0.0, 1.0]]), np.full((1, 2), 1e-6))
    low = np.array([1e-10, 1e-3, 0.25, 0.49, 0.5 - 1e-9])
    z = u.quantile(np.concatenate([low, 0.5 + low])[None])[0]
    np.testing.assert_allclose(z[:5], norm.ppf(2 * low, 0, 1e-6), rtol=1e-6, atol=1e-20)
    np.testing.assert_allclose(z[5:], norm.ppf(2 * low, 1, 1e-6), rtol=1e-12)


@pytest.mark.parametrize("z", [-30.0, -1.0, 0.2, 5.0])
def test_crps_is_the_integral_of_its_definition(z: float) -> None:
    u = univariate(2)
    for n, got in enumerate(u.crps(np.array([z, z]))):
        left = quad(lambda s, n=n: brute_cdf(u, n, s) ** 2, -60, z, points=sorted({-10.0, min(z, 0)}), limit=300)[0]
        right = quad(lambda s, n=n: brute_cdf(u, n, s, True) ** 2, z, 60, points=sorted({max(z, 0), 10.0}), limit=300)[
            0
        ]
        np.testing.assert_allclose(got, left + right, rtol=1e-7)


def test_crps_of_one_component_is_the_known_formula() -> None:
    """σ (a (2Φ(a) - 1) + 2φ(a) - 1/√π), Gneiting & Raftery (2007)."""
    a = np.array([-2.0, 0.0, 0.7])
    u = Univariate(np.ones((1, 1)), np.full((3, 1), 5.0), np.full((3, 1), 0.3))
    expected = 0.3 * (a * (2 * norm.cdf(a) - 1) + 2 * norm.pdf(a) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(u.crps(5 + 0.3 * a), expected, rtol=1e-12)


@pytest.mark.parametrize("narrow", [0.02, 0.3])
def test_the_mean_difference_is_the_sum_over_all_pairs(narrow: float) -> None:
    """By points of a line where all components are wide, by pairs where one is narrow."""
    rng = np.random.default_rng(3)
    mean, std = rng.normal(size=(2, 60)), rng.uniform(narrow, 0.6, size=(2, 60))
    std[:, 0] = narrow
    u = Univariate(rng.dirichlet(np.ones(60), 2), mean, std)
    for n, got in enumerate(u.mean_difference()):
        gap, spread = mean[n][:, None] - mean[n], np.sqrt(std[n][:, None] ** 2 + std[n] ** 2)
        folded = gap * (1 - 2 * norm.cdf(-gap / spread)) + 2 * spread * norm.pdf(gap / spread)
        np.testing.assert_allclose(got, u.weight[n] @ folded @ u.weight[n], rtol=1e-13)


def test_far_tails_are_finite_and_right() -> None:
    """A million standard deviations away only the widest component is left."""
    c = Components(np.log([[0.3, 0.7]]), np.array([[[0.0], [1.0]]]), np.array([[[1.0], [0.25]]]))
    expected = np.log(0.3) + norm.logpdf(np.array([[1e6, -1e6]]))
    np.testing.assert_allclose(c.log_pdf(np.array([[[1e6], [-1e6]]])), expected, rtol=1e-14)
    u = Univariate.of(c, 0)
    np.testing.assert_array_equal(u.cdf(np.array([[-1e6, 1e6]])), [[0, 1]])
    np.testing.assert_allclose(u.crps(np.array([1e6])) + u.crps(np.array([-1e6])), 2e6, rtol=1e-6)


def test_many_points_are_told_by_one_product_as_few_are_one_by_one() -> None:
    """Of components with axes of their own: by SciPy's normal density."""
    rng = np.random.default_rng(5)
    root, weight = rng.normal(size=(2, 4, 3, 3)), rng.dirichlet(np.ones(4), 2)
    mean, covariance = rng.normal(size=(2, 4, 3)), root @ np.swapaxes(root, 2, 3) + 0.1 * np.eye(3)
    z = rng.normal(size=(2, MANY_POINTS, 3))
    parts = Components.of_covariances(np.log(weight), mean, covariance)
    density = [
        [multivariate_normal(mean[n, k], covariance[n, k]).logpdf(z[n]) + np.log(weight[n, k]) for k in range(4)]
        for n in range(2)
    ]
    expected = np.swapaxes(np.array(density), 1, 2)
    np.testing.assert_allclose(parts.log_joint(z), expected, rtol=1e-10)
    np.testing.assert_allclose(parts.log_joint(z[:, :2]), expected[:, :2], rtol=1e-10)
