"""Answers for very many rows, by compiled programs, are those of NumPy."""

import numpy as np
import pytest

from gpcde.density import many
from gpcde.density.components import Components, Univariate
from gpcde.density.conditional import ConditionalDensity
from gpcde.density.transforms import OutputTransform

N, K = 70, 24


def mixture(seed: int = 0) -> Univariate:
    """Two far groups of narrow and wide components, one of no weight."""
    rng = np.random.default_rng(seed)
    weight = rng.dirichlet(np.full(K, 0.5), N)
    weight[:, 2] = 0
    mean = np.where(rng.random((N, K)) < 0.5, -4.0, 3.0) + 0.5 * rng.standard_normal((N, K))
    return Univariate(weight / weight.sum(1, keepdims=True), mean, np.exp(rng.normal(-1.0, 0.7, (N, K))))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 32 rows: two are full, of the third six rows are real."""
    monkeypatch.setattr(many, "AT_ONCE", 32 * K)


def test_cdf() -> None:
    one, z = mixture(), np.linspace(-40, 8, N)
    np.testing.assert_allclose(many.cdf(one, z), one.cdf(z[:, None])[:, 0], rtol=1e-12)


@pytest.mark.parametrize("level", [1e-12, 0.01, 0.5, 0.73, 1 - 1e-9, 0.0, 1.0])
def test_quantile(level: float) -> None:
    """Also far in the tails, where a level falls between two groups, and at the ends."""
    one = mixture()
    expected = one.quantile(np.full((N, 1), level))[:, 0]
    np.testing.assert_allclose(many.quantile(one, level), expected, rtol=1e-9)


def test_rows_that_need_more_rounds_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program has not found in its rounds is found without it."""
    one = mixture(1)
    monkeypatch.setattr(many, "_quantile", lambda weight, mean, std, level, normal: (mean[:, 0], level < 0))
    np.testing.assert_array_equal(many.quantile(one, 0.3), one.quantile(np.full((N, 1), 0.3))[:, 0])


def test_crps() -> None:
    """By the trapezoidal rule, and by pairs where components are narrow."""
    one, z = mixture(), np.linspace(-6, 6, N)
    count = one.grid()[2]
    assert (count > 4 * K).any()
    np.testing.assert_allclose(many.crps(one, z), one.crps(z), rtol=1e-9)
    wide = one._replace(std=one.std + 3.0)
    assert (wide.grid()[2] <= 4 * K).all()
    np.testing.assert_allclose(many.crps(wide, z), wide.crps(z), rtol=1e-9)


def test_densities_of_many_rows_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answers for a threshold above and below what is asked."""
    one, y = mixture(), np.linspace(-5, 5, N)
    with np.errstate(divide="ignore"):
        components = Components(np.log(one.weight), one.mean[..., None], one.std[..., None] ** 2)
    density = ConditionalDensity(
        components, OutputTransform("identity", -np.inf, np.inf, np.array([1.0]), np.array([2.0])), flat=True
    )

    def answers() -> list[np.ndarray]:
        return [density.cdf(y), density.quantile([[0.1, 0.5], [0.9, 0.2]]), density.crps(y)]

    few = answers()
    monkeypatch.setattr(many, "MANY", 1)
    for got, expected in zip(answers(), few, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9)
