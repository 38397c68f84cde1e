"""Output transforms: there and back, slopes against differences, what is fitted, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpcde.density.transforms import KINDS, OutputTransform

BOUNDS = {"identity": None, "log": [-2.0, np.inf], "logit": [-2.0, 3.0]}
FITTED = list(BOUNDS)  # the asinh is fitted by `bent`
CENTRE, WIDTH = 0.4, 0.7
LOCATION, SCALE = np.array([0.4, -0.7]), np.array([0.5, 1.7])


def make(kind: str) -> OutputTransform:
    if kind == "asinh":
        return OutputTransform(kind, -np.inf, np.inf, LOCATION, SCALE, CENTRE, WIDTH, -50.0, 50.0)
    low, high = BOUNDS[kind] or (-np.inf, np.inf)
    return OutputTransform(kind, low, high, LOCATION, SCALE)


def by_hand(kind: str, z: np.ndarray) -> np.ndarray:
    u = LOCATION + SCALE * z
    bent = CENTRE + WIDTH * (np.exp(u) - np.exp(-u)) / 2
    return {"identity": u, "log": -2 + np.exp(u), "logit": -2 + 5 / (1 + np.exp(-u)), "asinh": bent}[kind]


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_there_and_back(kind: str, seed: int) -> None:
    z = np.random.default_rng(seed).uniform(-3, 3, size=(4, 5, 2))
    y = make(kind).from_standard(z)
    np.testing.assert_allclose(y, by_hand(kind, z), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(make(kind).to_standard(y), z, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_slopes_are_derivatives(kind: str) -> None:
    z = np.linspace(-3, 3, 14).reshape(7, 2)
    t, step = make(kind), 1e-5
    slope = (by_hand(kind, z + step) - by_hand(kind, z - step)) / (2 * step)
    np.testing.assert_allclose(t.log_slope(z), np.log(slope), rtol=1e-8, atol=1e-8)
    second = (t.log_slope(z + step) - t.log_slope(z - step)) / (2 * step)
    np.testing.assert_allclose(t.log_slope_derivative(z), second, rtol=1e-8, atol=1e-9)
    third = (t.log_slope_derivative(z + step) - t.log_slope_derivative(z - step)) / (2 * step)
    np.testing.assert_allclose(t.log_slope_bend(z), third, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("z", [-900.0, 900.0])
def test_far_out_the_logits_slope_is_not_lost(z: float) -> None:
    """dy/dz falls as exp(-|u|), which has long underflown."""
    t = OutputTransform("logit", 0.0, 1.0, np.zeros(1), np.ones(1))
    np.testing.assert_allclose(t.log_slope(np.array([[z]])), -900.0, rtol=1e-14)
    np.testing.assert_allclose(t.log_slope_derivative(np.array([[z]])), -np.sign(z), rtol=1e-14)


@pytest.mark.parametrize(("kind", "points"), [("log", [-np.inf, -5, -2]), ("logit", [-np.inf, -5, -2, 3, 4, np.inf])])
def test_the_ends_of_the_support_are_infinitely_far(kind: str, points: list[float]) -> None:
    y = np.repeat(np.array(points)[:, None], 2, axis=1)
    np.testing.assert_array_equal(make(kind).to_standard(y), np.where(y <= -2, -np.inf, np.inf))


@pytest.mark.parametrize("kind", ["log", "logit"])
def test_infinity_is_an_end_of_the_support(kind: str) -> None:
    ends = make(kind).from_standard(np.array([[-np.inf, -np.inf], [np.inf, np.inf]]))
    np.testing.assert_array_equal(ends, np.repeat(np.array(BOUNDS[kind])[:, None], 2, axis=1))


def test_an_asinh_is_a_line_near_its_centre_and_a_logarithm_far_above() -> None:
    """So wide that all y are near, its units are those of y; so narrow that all are far, those of log (y - centre)."""
    y, units = np.random.default_rng(3).gamma(2.0, size=(40, 1)), OutputTransform.identity(1)
    weight = np.random.default_rng(4).integers(1, 4, 40).astype(float)
    plain = OutputTransform.fit(y, weight=weight)
    wide, narrow = (units.bent(-1.0, width, y, weight) for width in (1e5, 1e-5))
    np.testing.assert_allclose(wide.to_standard(y), plain.to_standard(y), atol=1e-8)
    np.testing.assert_allclose(wide.log_slope(plain.to_standard(y)), np.log(plain.scale[0]), atol=1e-8)
    log = OutputTransform.fit(y, "log", (-1.0, np.inf), weight=weight)
    np.testing.assert_allclose(narrow.to_standard(y), log.to_standard(y), atol=1e-8)


def test_beyond_its_ends_an_asinh_is_its_tangents() -> None:
    """There and back, slopes against differences, and as far off as a line, not as an exponential."""
    t = OutputTransform("asinh", -np.inf, np.inf, np.array([0.3]), np.array([2.0]), CENTRE, WIDTH, -1.0, 2.0)
    z = np.array([-40.0, -3.0, -0.6, 0.0, 0.8, 3.0, 1e6])[:, None]  # u = -1 and 2 at z = -0.65 and 0.85
    y, step = t.from_standard(z), 1e-5
    np.testing.assert_allclose(t.to_standard(y), z, rtol=1e-10, atol=1e-12)
    slope = (t.from_standard(z + step) - t.from_standard(z - step)) / (2 * step)
    np.testing.assert_allclose(t.log_slope(z), np.log(slope), rtol=1e-5, atol=1e-8)
    second = (t.log_slope(z + step) - t.log_slope(z - step)) / (2 * step)
    np.testing.assert_allclose(t.log_slope_derivative(z), second, atol=1e-8)
    third = (t.log_slope_derivative(z + step) - t.log_slope_derivative(z - step)) / (2 * step)
    np.testing.assert_allclose(t.log_slope_bend(z), third, atol=1e-8)
    np.testing.assert_allclose(
        t.from_standard(np.array([[3.0]])) - t.from_standard(np.array([[2.0]])), WIDTH * 2 * np.cosh(2)
    )
    inside = t._replace(first=-50.0, last=50.0)
    np.testing.assert_array_equal(inside.from_standard(z[2:5]), y[2:5])


def test_an_asinh_of_standard_units_is_told_in_those_of_y() -> None:
    y = np.random.default_rng(5).gamma(2.0, size=(40, 1))
    units = OutputTransform.fit(y)
    bent = units.bent(-1.2, 0.3, units.to_standard(y), np.ones(40))
    u = np.arcsinh((units.to_standard(y) + 1.2) / 0.3)
    np.testing.assert_allclose(bent.to_standard(y), (u - u.mean()) / u.std(), rtol=1e-10)
    assert not bent.same_as(bent._replace(width=2 * bent.width))
    assert np.isfinite(bent.from_standard(np.array([[1e6]])))
    np.testing.assert_allclose(bent.from_standard(bent.to_standard(y)), y, rtol=1e-12)
    assert bent.first == u.min() < u.max() == bent.last


@pytest.mark.parametrize(
    "change", [{"width": 0.0}, {"centre": np.nan}, {"last": 1e3}, {"first": 3.0}, {"kind": "identity"}]
)
def test_a_bad_asinh_is_refused(change: dict[str, object]) -> None:
    good = OutputTransform("asinh", -np.inf, np.inf, np.zeros(1), np.ones(1), 0.5, 2.0, -1.0, 2.0)
    good.check_values()
    with pytest.raises(ValueError, match="OutputTransform"):
        good._replace(**change).check_values()  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", FITTED)
def test_the_fitted_outputs_are_standardised(kind: str) -> None:
    y = by_hand(kind, np.random.default_rng(0).normal(size=(50, 2)))
    z = OutputTransform.fit(y, kind, BOUNDS[kind]).to_standard(y)
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(z.std(0), 1, rtol=1e-12)


def test_alike_columns_share_one_scale() -> None:
    y = np.random.default_rng(1).normal(size=(50, 3)) * [1.0, 2.0, 5.0] + [0.0, 3.0, 100.0]
    t = OutputTransform.fit(y, common_scale=True)
    np.testing.assert_allclose(t.location, y.mean(0), rtol=1e-12)
    np.testing.assert_allclose(t.scale, np.sqrt(y.var(0).mean()), rtol=1e-12)


def test_a_constant_column_keeps_its_units() -> None:
    y = np.column_stack([np.full(7, 0.1), np.zeros(7), np.arange(7.0)])
    np.testing.assert_allclose(OutputTransform.fit(y).scale, [1, 1, 2], rtol=1e-12)


def test_bounds_default_to_the_positive_numbers_and_the_unit_interval() -> None:
    y = np.array([[0.2], [0.7]])
    assert OutputTransform.fit(y, "log")[1:3] == (0.0, np.inf)
    assert OutputTransform.fit(y, "logit")[1:3] == (0.0, 1.0)
    assert OutputTransform.fit(y)[:3] == ("identity", -np.inf, np.inf)


@pytest.mark.parametrize("kind", KINDS)
def test_some_columns(kind: str) -> None:
    z = np.random.default_rng(2).normal(size=(5, 2))
    y = by_hand(kind, z)
    np.testing.assert_allclose(make(kind).column(1).from_standard(z[:, 1:]), y[:, 1:], rtol=1e-12)
    np.testing.assert_allclose(make(kind).column([1, 0]).from_standard(z[:, ::-1]), y[:, ::-1], rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "bounds", "message"),
    [
        ("sqrt", None, "y_transform must be None, 'log' or 'logit', got 'sqrt'"),
        ("asinh", None, "y_transform must be None, 'log' or 'logit', got 'asinh'"),
        (None, (0, 1), "y_bounds need a y_transform"),
        ("log", (0, 1, 2), "two numbers"),
        ("log", 0.0, "two numbers"),
        ("log", (-np.inf, np.inf), "two numbers"),
        ("log", (np.nan, np.inf), "two numbers"),
        ("log", (0, 5), "no upper bound"),
        ("logit", (1, 1), "low < high"),
        ("logit", (0, np.inf), "both y_bounds finite"),
        ("logit", (0, np.nan), "two numbers"),
    ],
)
def test_what_makes_no_sense_is_refused(kind: str | None, bounds: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OutputTransform.fit(np.array([[0.5]]), kind, bounds)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "value"), [("log", 0.0), ("log", -3.0), ("logit", 1.0), ("logit", 0.0)])
def test_outputs_outside_the_support_are_pointed_at(kind: str, value: float) -> None:
    y = np.full((3, 2), 0.5)
    y[1, 1] = value
    with pytest.raises(ValueError, match=rf"y\[1, 1\] is {value:g}"):
        OutputTransform.fit(y, kind)
