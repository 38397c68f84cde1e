"""The normalising flow: a density that integrates to one, samples that follow it, a law that no Gaussian has."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import gpcde
from gpcde import KDE, LinearGaussian, Stacked, compare, coverage, hpd_pit, pit, uniformity
from small import frame

pytest.importorskip("flowjax")
from gpcde.estimators.flow import Flow

pytestmark = pytest.mark.slow

QUICK: dict[str, Any] = {"layers": 2, "width": 16, "max_epochs": 60, "learning_rate": 1e-2, "random_state": 0}


def branches(n: int = 400, seed: int = 0, outputs: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y = 10 ± (2 + x) + noise, and the log density of each row; more outputs go the way of the first."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 1))
    centre = (2 + x) * rng.choice([-1, 1], size=(n, 1))
    y = 10 + centre + 0.4 * rng.normal(size=(n, outputs))
    sums = [norm.logpdf(y, 10 + sign * (2 + x), 0.4).sum(1) for sign in (-1, 1)]
    return x, y[:, 0] if outputs == 1 else y, logsumexp(sums, axis=0) - np.log(2)


@cache
def fitted(outputs: int) -> Flow:
    X, y, _ = branches(outputs=outputs)
    return Flow(**QUICK).fit(X, y)


def test_the_density_integrates_to_one() -> None:
    density = fitted(1).predict_density([[-0.5]] * 4001)
    grid = np.linspace(-20, 40, 4001)
    assert np.trapezoid(density.pdf(grid), grid) == pytest.approx(1, abs=1e-3)
    np.testing.assert_allclose(density.log_pdf(grid), np.log(density.pdf(grid)), rtol=1e-12)


def test_the_joint_density_integrates_to_one() -> None:
    line = np.linspace(2, 18, 200)
    plane = np.stack(np.meshgrid(line, line), axis=2).reshape(-1, 2)
    density = fitted(2).predict_density(np.full((len(plane), 1), 0.3))
    assert density.pdf(plane).sum() * (line[1] - line[0]) ** 2 == pytest.approx(1, abs=2e-2)


def test_samples_follow_the_density() -> None:
    """Of each row its own: shares of draws below some points against the density's integral."""
    X = np.array([[-0.9], [0.0], [0.9]])
    draws = fitted(1).predict_density(X).sample(20_000, 1)
    assert draws.shape == (3, 20_000)
    grid = np.linspace(-20, 40, 4001)
    for row, own in zip(X, draws, strict=True):
        pdf = fitted(1).predict_density(np.tile(row, (len(grid), 1))).pdf(grid)
        below = np.cumsum(pdf) * (grid[1] - grid[0])
        for at in (7.0, 8.5, 10.0, 12.0):
            assert (own <= at).mean() == pytest.approx(np.interp(at, grid, below), abs=0.02)


@pytest.mark.parametrize("outputs", [1, 2])
def test_several_points_of_each_row(outputs: int) -> None:
    density = fitted(outputs).predict_density([[-0.9], [0.3]])
    draws = density.sample(3, 0)
    expected = np.stack([density.log_pdf(draws[:, i]) for i in range(3)], axis=1)
    np.testing.assert_allclose(density.log_pdf_at(draws), expected, rtol=1e-9, atol=1e-9)


def test_rows_have_noise_of_their_own() -> None:
    """Of equal rows as of others; and a seed tells what it is."""
    density = fitted(1).predict_density([[0.5]] * 300)
    draws = density.sample(2, 3)
    assert len(np.unique(draws)) == 600
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.2
    np.testing.assert_array_equal(draws, density.sample(2, np.random.default_rng(3)))


@pytest.mark.parametrize("outputs", [1, 2])
def test_answers_follow_from_samples(outputs: int) -> None:
    """Moments, quantiles, intervals and distribution function, against more samples than it keeps."""
    X, y, _ = branches(5, seed=2, outputs=outputs)
    density = fitted(outputs).predict_density(X)
    draws = density.sample(20_000, 1)
    np.testing.assert_allclose(density.mean(), draws.mean(1), atol=0.1)
    np.testing.assert_allclose(density.var(), draws.var(1), rtol=0.05)
    levels = [0.1, 0.8, 0.95]
    assert density.quantile(levels).shape == (5, 3, *y.shape[1:])
    np.testing.assert_allclose(
        density.quantile(levels), np.moveaxis(np.quantile(draws, levels, axis=1), 0, 1), atol=0.4
    )
    np.testing.assert_array_equal(density.quantile(0.8), density.quantile(levels)[:, 1])
    np.testing.assert_allclose(density.interval(0.9), density.quantile([0.05, 0.95]), rtol=1e-12)
    np.testing.assert_allclose(density.cdf(y), (draws <= y[:, None]).mean(1), atol=0.02)
    assert density.cdf(y).shape == y.shape
    np.testing.assert_allclose(density.cdf(density.quantile(0.3)), 0.3, atol=0.002)
    spread = np.abs(draws[:, :10_000] - draws[:, 10_000:]).mean(1)
    np.testing.assert_allclose(density.crps(y), np.abs(draws - y[:, None]).mean(1) - 0.5 * spread, atol=0.05)
    if outputs == 2:
        apart = np.linalg.norm(draws[:, :10_000] - draws[:, 10_000:], axis=2).mean(1)
        expected = np.linalg.norm(draws - y[:, None], axis=2).mean(1) - 0.5 * apart
        np.testing.assert_allclose(density.energy_score(y, 20_000), expected, atol=0.15)
        np.testing.assert_array_equal(density.energy_score(y, 50, 3), density.energy_score(y, 50, 3))
        assert (density.energy_score(y, 50, 3) != density.energy_score(y, 50, 4)).all()


def test_a_rows_answer_does_not_depend_on_the_others() -> None:
    X, y, _ = branches(20, seed=2)
    whole, part = fitted(1).predict_density(X), fitted(1).predict_density(X[7:9])
    np.testing.assert_allclose(part.log_pdf(y[7:9]), whole.log_pdf(y)[7:9], rtol=1e-9)
    np.testing.assert_allclose(part.mean(), whole.mean()[7:9], rtol=1e-9)


def test_it_learns_what_no_gaussian_can() -> None:
    """Within 0.25 nats of the truth on new rows, and 0.3 better than any Gaussian of the true moments."""
    X, y, truth = branches(1000, seed=1)
    score = fitted(1).score(X, y)
    gaussian = norm.logpdf(y, 10, np.sqrt((2 + X[:, 0]) ** 2 + 0.4**2)).mean()
    assert gaussian + 0.3 < score
    assert truth.mean() - 0.25 < score < truth.mean() + 0.03


def test_its_calibration_can_be_looked_at() -> None:
    """Uniform PIT and HPD-PIT for its own draws."""
    X, _, _ = branches(300, seed=1)
    density = fitted(1).predict_density(X)
    y = density.sample(1, 5)[:, 0]
    assert uniformity(pit(density, y)).p_value > 0.01
    assert uniformity(hpd_pit(density, y, 200)).p_value > 0.01
    assert uniformity(pit(density, y + 1)).p_value < 1e-4
    assert coverage(density, y).error < 0.05


def test_it_can_be_compared() -> None:
    X, y, _ = branches(200)
    comparison = compare(X, y, {"flow": Flow(**QUICK), "linear": LinearGaussian()}, cv=2)
    flow, linear = (row["log_score"] for row in comparison)
    assert flow > linear


def test_a_transformed_y_has_its_support() -> None:
    """No density below the bound, and the Jacobian of the logarithm above it."""
    X, y, _ = branches()
    model = Flow(y_transform="log", **QUICK).fit(X, np.exp(y))
    plain = fitted(1).predict_density(X).log_pdf(y) - y
    np.testing.assert_allclose(model.predict_density(X).log_pdf(np.exp(y)), plain, atol=1e-6)
    assert (model.predict_density(X[:2]).log_pdf([-1.0, 0.0]) == -np.inf).all()
    assert (model.predict_density(X).sample(3, 0) > 0).all()


def test_a_file_holds_the_same_model(tmp_path: Path) -> None:
    X, y = frame()
    model = Flow(layers=1, max_epochs=2, random_state=0).fit(X, y)
    model.save(tmp_path / "model")
    again = gpcde.load(tmp_path / "model")
    assert isinstance(again, Flow)
    one, other = model.predict_density(X), again.predict_density(X)
    np.testing.assert_array_equal(other.log_pdf(y), one.log_pdf(y))
    np.testing.assert_array_equal(other.sample(2, 0), one.sample(2, 0))


def test_it_is_no_member_of_a_stack() -> None:
    X, y, _ = branches(20)
    with pytest.raises(ValueError, match="the members of a stack answer with mixtures of Gaussians"):
        Stacked([("kde", KDE()), ("flow", Flow())]).fit(X, y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 0}, "layers must be a positive integer, got 0"),
        ({"max_epochs": 0}, "max_epochs must be a positive integer, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"validation_fraction": 1.0}, "validation_fraction must lie between 0 and 1, got 1.0"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    X, y, _ = branches(20)
    with pytest.raises(ValueError, match=message):
        Flow(**settings).fit(X, y)


def test_bad_questions_are_refused() -> None:
    density = fitted(1).predict_density([[0.0]])
    with pytest.raises(ValueError, match="size, the number of draws of each row"):
        density.sample(0)
    with pytest.raises(ValueError, match="quantile levels must lie between 0 and 1"):
        density.quantile(1.5)
