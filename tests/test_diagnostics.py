"""Calibration: what is uniform for a right density is not for a wrong one; losses against quadrature."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2, kstest, norm

from gpcde import (
    ConditionalDensity,
    Coverage,
    cde_loss,
    coverage,
    hpd_pit,
    pit,
    uniformity,
)
from gpcde.density.components import Components
from gpcde.density.transforms import OutputTransform

N = 1000


def make(outputs: int = 1, stretch: float = 1.0, n: int = N) -> ConditionalDensity:
    """Two components, correlated if there are two outputs, their places those of each row, in units of the user's."""
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(n, 2, outputs)) * 3
    weight = np.log([[0.3, 0.7]])
    transform = OutputTransform(
        "identity", -np.inf, np.inf, np.arange(1.0, outputs + 1), 2 * np.arange(1.0, outputs + 1)
    )
    basis = np.linalg.qr(rng.normal(size=(1, 2, outputs, outputs)))[0] if outputs > 1 else None
    variance = stretch**2 * np.linspace(0.2, 1, 2 * outputs).reshape(1, 2, outputs)
    return ConditionalDensity(Components(weight, mean, variance, basis), transform, flat=outputs == 1)


def draw(density: ConditionalDensity) -> np.ndarray:
    """One y of every row."""
    return density.sample(1, 8)[:, 0]


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_right_density_is_uniform_and_wrong_ones_are_not(outputs: int) -> None:
    """PIT and HPD-PIT; too narrow and too wide."""
    right = make(outputs)
    y = draw(right)
    assert pit(right, y).shape == y.shape
    assert hpd_pit(right, y).shape == (N,)
    many = np.stack([pit(right, more).reshape(N, -1) for more in np.moveaxis(right.sample(20, 0), 1, 0)])
    for column in many.reshape(-1, outputs).T:
        assert uniformity(column).p_value > 0.01
    assert uniformity(hpd_pit(right, y)).p_value > 0.01
    for stretch in (0.6, 1.6):
        wrong = make(outputs, stretch)
        assert uniformity(hpd_pit(wrong, y)).p_value < 1e-4
    assert uniformity(pit(make(outputs, 0.3), y)).p_value < 1e-4


def test_the_pit_is_the_distribution_function() -> None:
    """Of one Gaussian, scipy's; the test is scipy's too."""
    rng = np.random.default_rng(0)
    mean, y = rng.normal(size=50), rng.normal(size=50)
    one = Components(np.zeros((1, 1)), mean[:, None, None], np.full((1, 1, 1), 4.0))
    density = ConditionalDensity(one, OutputTransform.identity(1), flat=True)
    np.testing.assert_allclose(pit(density, y), norm.cdf(y, mean, 2), rtol=1e-12)
    expected = kstest(norm.cdf(y, mean, 2), "uniform")
    np.testing.assert_allclose(uniformity(pit(density, y)), [expected.statistic, expected.pvalue], rtol=1e-9)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_level_of_a_gaussians_region_is_chi_squared(outputs: int) -> None:
    """P(p(Y) >= p(y)) = P(χ² <= |y - m|²); more draws are closer."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(40, outputs))
    one = Components(np.zeros((1, 1)), np.zeros((40, 1, outputs)), np.ones((1, 1, 1)))
    density = ConditionalDensity(one, OutputTransform.identity(outputs))
    expected = chi2.cdf((y**2).sum(1), outputs)
    np.testing.assert_allclose(hpd_pit(density, y, draws=5000), expected, atol=0.03)
    few = hpd_pit(density, y, draws=100, random_state=np.random.default_rng(3))
    assert np.abs(few - expected).max() > 0.03
    np.testing.assert_allclose(few * 100, np.round(few * 100), atol=1e-9)


@pytest.mark.parametrize("kind", ["central", "hpd"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_coverage_is_near_nominal_for_a_right_density(kind: str, outputs: int) -> None:
    """Within four standard errors at each level; and far from it for a wrong one, in the right direction."""
    right = make(outputs)
    y = draw(right)
    curve = coverage(right, y, kind=kind)
    assert len(curve.levels) == 19
    assert (np.abs(curve.observed - curve.levels) < 4 * np.sqrt(curve.levels * (1 - curve.levels) / N)).all()
    assert curve.error < 0.03
    narrow, wide = (coverage(make(outputs, stretch), y, [0.7, 0.85], kind) for stretch in (0.5, 2.0))
    assert (narrow.observed < narrow.levels - 0.04).all()
    assert (wide.observed > wide.levels + 0.04).all()
    assert curve.error < min(narrow.error, wide.error)


def test_coverage_counts_intervals() -> None:
    """The central intervals of the density itself."""
    density = make(2)
    y = draw(density) * 1.3
    low, high = np.moveaxis(density.interval(0.7), 1, 0)
    assert coverage(density, y, [0.7]).observed[0] == pytest.approx(((low <= y) & (y <= high)).mean(), abs=1e-12)
    assert Coverage(np.array([0.5, 0.9]), np.array([0.4, 0.95])).error == pytest.approx(0.075)


def test_coverage_knows_two_kinds() -> None:
    density = make(n=3)
    with pytest.raises(ValueError, match="kind must be 'central' or 'hpd', got 'left'"):
        coverage(density, draw(density), kind="left")


def test_the_loss_of_a_density_is_its_integral() -> None:
    """∫ p² - 2 p(y), by quadrature, in the user's units."""
    density = make(n=5)
    y = draw(density)
    for row, got in enumerate(cde_loss(density, y)):
        one = density[row]
        squared = quad(lambda u, one=one: one.pdf(u)[0] ** 2, -30, 30, limit=500)[0]
        assert got == pytest.approx(squared - 2 * one.pdf(y[row])[0], rel=1e-6)


def test_the_loss_of_a_joint_density_is_its_integral() -> None:
    """The trapezoidal rule on the plane."""
    density = make(2, n=3)
    y = draw(density)
    first, second = np.linspace(-40, 40, 500), np.linspace(-80, 80, 500)
    plane = np.stack(np.meshgrid(first, second), axis=2).reshape(-1, 2)
    squared = (density.pdf_grid(plane) ** 2).sum(1) * (first[1] - first[0]) * (second[1] - second[0])
    np.testing.assert_allclose(cde_loss(density, y), squared - 2 * density.pdf(y), rtol=1e-6)


def test_the_right_density_has_the_least_loss() -> None:
    right = make()
    y = draw(right)
    losses = [cde_loss(make(stretch=stretch), y).mean() for stretch in (0.5, 1.0, 2.0)]
    assert losses[1] == min(losses)


def test_the_loss_of_a_transformed_output_is_that_of_its_density() -> None:
    density = ConditionalDensity(
        make(n=2).components(), OutputTransform("log", 0.0, np.inf, np.zeros(1), np.ones(1)), flat=True
    )
    y = np.linspace(1e-9, 400, 400_001)
    expected = np.trapezoid(density.pdf_grid(y) ** 2, y, axis=1) - 2 * density.pdf([1.0, 2.0])
    np.testing.assert_allclose(cde_loss(density, [1.0, 2.0]), expected, rtol=1e-4)
