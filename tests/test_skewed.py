"""Skewed columns: when an asinh is asked for, that it is right to, and that all else goes on in its units."""

from functools import cache
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
import pytest
from scipy.stats import lognorm, multivariate_normal, skew

import gpcde
from gpcde import GPCDE, Stacked
from gpcde.density.transforms import OutputTransform
from gpcde.estimators import monitor, skewed
from gpcde.estimators.base import Rows
from gpcde.inference import regression
from gpcde.inference.start import regression_bound
from gpcde.model import make_inputs
from gpcde.runtime.randomness import key_of
from small import ALONE, QUICK, assert_same_model

N = 60
SETTINGS: dict[str, Any] = {**ALONE, "inference": "none"}


def law(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y = 3 + 100 exp(x + 0.3 noise); and its log density at each row, by scipy."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.5, 1.5, (n, 1))
    given = lognorm(0.3, 3.0, 100 * np.exp(X[:, 0]))
    y = given.rvs(random_state=rng)
    return X, y, given.logpdf(y)


X, Y, _ = law(N)


@cache
def bent() -> GPCDE:
    return GPCDE(**SETTINGS).fit(X, Y)


def test_a_law_of_products_is_learnt_by_an_asinh_nearly_as_well_as_by_its_logarithm() -> None:
    at, y, truth = law(1000, 1)
    below = {}
    for transform in ("auto", None, "log"):
        bounds = (3.0, np.inf) if transform == "log" else None
        model = GPCDE(**SETTINGS, y_transform=transform, y_bounds=bounds).fit(X, Y)
        below[transform] = np.mean(truth - model.predict_density(at).log_pdf(y))
    assert bent().transform_.kind == "asinh"
    assert below["auto"] < below["log"] + 0.1
    assert below["auto"] < below[None] - 0.2


def test_a_law_that_falls_is_as_one_that_rises() -> None:
    """-y has the density of y; only k-means and the centre know left from right."""
    other = GPCDE(**SETTINGS).fit(X, -Y)
    assert other.transform_.kind == "asinh"
    np.testing.assert_allclose(
        other.predict_density(X).log_pdf(-Y), bent().predict_density(X).log_pdf(Y), rtol=1e-4, atol=1e-4
    )


def test_its_densities_agree_with_themselves() -> None:
    """∫ p = 1, the cdf's slope is the pdf, the mean is that of the density, and samples follow it."""
    density = bent().predict_density(X[:3])
    y = np.linspace(-2000, 6000, 400_001)
    p = density.pdf_grid(y)
    np.testing.assert_allclose(np.trapezoid(p, y, axis=1), 1, atol=1e-3)
    np.testing.assert_allclose(np.trapezoid(p * y, y, axis=1), density.mean(), rtol=2e-2)
    at = density.quantile(0.3)
    slope = (density.cdf(at + 1e-3) - density.cdf(at - 1e-3)) / 2e-3
    np.testing.assert_allclose(slope, density.pdf(at), rtol=1e-5)
    assert abs((density.sample(20_000, 0) <= at[:, None]).mean() - 0.3) < 0.01


@pytest.mark.parametrize("kind", ["normal", "two branches", "noise by x"])
def test_what_is_not_skewed_is_learnt_as_it_is(kind: str) -> None:
    """Noise that is not Gaussian, or changes with x alone, is no reason: latents are for that."""
    rng = np.random.default_rng(2)
    noise, x = rng.standard_normal(N), X[:, 0]
    y = {
        "normal": np.sin(2 * x) + 0.2 * noise,
        "two branches": rng.choice([-1.0, 1.0], N) * (1 + x**2) + 0.1 * noise,
        "noise by x": x**2 + np.exp(-1 - x) * noise,
    }[kind]
    assert GPCDE(**SETTINGS).fit(X, y).transform_.kind == "identity"


@pytest.mark.parametrize("settings", [{"y_transform": None}, {"design": gpcde.Design(inference="none", inducing=8)}])
def test_it_is_not_asked_where_the_user_has_decided(settings: dict[str, Any]) -> None:
    model = GPCDE(max_steps=50, companions=False, random_state=0, **settings).fit(X, Y)
    assert model.transform_.kind == "identity"


def test_few_rows_and_several_outputs_are_learnt_as_they_are() -> None:
    assert GPCDE(**SETTINGS).fit(X[:19], Y[:19]).transform_.kind == "identity"
    assert GPCDE(**SETTINGS, latent_dim=None).fit(X, np.column_stack([Y, Y])).transform_.kind == "identity"


def test_companions_stand_in_the_same_units() -> None:
    """The regression that was chosen goes on as a companion: its density is that of the model without latents."""
    model = GPCDE(**QUICK, companions=True).fit(X, Y)
    assert model.transform_.kind == "asinh"
    at, y, truth = law(500, 3)
    assert np.mean(truth - model.predict_density(at).log_pdf(y)) < 0.3


def test_the_bound_of_regression_is_its_likelihood_and_knows_its_units() -> None:
    """As many inducing inputs as rows: log N(z; 0, K + σ²), a row; an asinh so wide that it is a line is no other."""
    n = 24
    z = (Y[:n, None] - Y[:n].mean()) / Y[:n].std()
    rows, units = Rows(make_inputs(X[:n]), z, np.ones(n)), OutputTransform.identity(1)
    design = gpcde.Design(inference="none", inducing=n, first="lbfgs", jitter=1e-10)

    def bound(some: Rows) -> float:
        state = regression(key_of(0), some.x, some.z, design, some.weight)
        kernel: Any = state.model.kernel
        noise: Any = state.model.likelihood
        distance = (X[:n] - X[:n].T) / np.exp(kernel.log_lengthscales)
        k = np.exp(kernel.log_variance - 0.5 * distance**2) + np.exp(noise.log_noise_variance) * np.eye(n)
        value = regression_bound(key_of(0), some.x, some.z, design, some.weight, some.total, state)
        assert value == pytest.approx(multivariate_normal.logpdf(some.z[:, 0], cov=k) / n, abs=1e-5)
        return value

    wide = units.bent(0.0, 1e6, z, np.ones(n))
    assert bound(rows.in_units(units, wide)) - np.log(wide.scale[0] * 1e6) == pytest.approx(bound(rows), abs=1e-4)


def test_errors_of_rows_left_out_are_those_of_regression_without_them() -> None:
    """An exact process at its own settings, row by row; an uncertain A is as it is on average, however uncertain."""
    n = 24
    z = (Y[:n, None] - Y[:n].mean()) / Y[:n].std()
    rows = Rows(make_inputs(X[:n]), z, np.ones(n))
    asked: dict[str, Any] = {"inference": "none", "inducing": n, "first": "lbfgs"}
    state = regression(key_of(0), rows.x, rows.z, gpcde.Design(**asked, jitter=1e-10), rows.weight)
    kernel: Any = state.model.kernel
    distance = (X[:n] - X[:n].T) / np.exp(kernel.log_lengthscales)
    k = np.exp(kernel.log_variance - 0.5 * distance**2)
    noisy = k + float(state.model.noise_variance) * np.eye(n)
    expected = [
        z[i, 0] - np.delete(k[i], i) @ np.linalg.solve(np.delete(np.delete(noisy, i, 0), i, 1), np.delete(z[:, 0], i))
        for i in range(n)
    ]
    np.testing.assert_allclose(skewed._left_out_errors(rows, state), expected, atol=1e-4)
    design = gpcde.Design(**asked, input_map="project", input_dim=1)
    sure = regression(key_of(0), rows.x, rows.z, design, rows.weight)
    there: Any = sure.model.input_map
    unsure = eqx.tree_at(lambda s: s.model.input_map.log_std, sure, there.log_std + 1)
    before, after = (skewed._left_out_errors(rows, one) for one in (sure, unsure))
    np.testing.assert_array_equal(before, after)


def scattered(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A wave of log x, x from 0.02 to 50 and mostly small, beside an input that is even; the greatest are rare."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.uniform(-1, 1, n), np.exp(1.3 * rng.standard_normal(n))])
    return x, np.sin(1.5 * np.log(x[:, 1])) + 0.5 * x[:, 0] + 0.1 * rng.standard_normal(n)


def test_a_skewed_input_is_bent_where_that_says_more_of_y() -> None:
    X, y = scattered(N)
    at, truth = scattered(1000, 1)
    bent, plain = (GPCDE(**SETTINGS, x_transform=how).fit(X, y) for how in ("auto", None))
    assert plain.features_.bends is None
    bends = bent.features_.bends
    assert bends is not None
    np.testing.assert_array_equal(bends.place, [1])
    z = bent._apply_tables(X).dense
    np.testing.assert_allclose([z.mean(0), z.std(0)], [[0, 0], [1, 1]], atol=1e-12)
    assert abs(skew(z[:, 1])) < 1e-6 < 1 < skew(X[:, 1])
    assert bent.score(at, truth) > plain.score(at, truth) + 0.2
    straight = GPCDE(**SETTINGS).fit(X, X[:, 1] + 0.1 * truth[:N])
    assert straight.features_.bends is None  # y is a line in x as it is


def test_bends_go_into_files_and_mirror_their_columns(tmp_path: Path) -> None:
    """The column's negative is bent the same; a file keeps it; a constant column before it changes nothing."""
    X, y = scattered(N)
    model = GPCDE(**SETTINGS).fit(X, y)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(gpcde.load(tmp_path / "model").predict(X), model.predict(X))
    other = GPCDE(**SETTINGS).fit(X * [1, -1], y)
    mirrored = model._apply_tables(X).dense * [1, -1]
    np.testing.assert_allclose(other._apply_tables(X * [1, -1]).dense, mirrored, atol=1e-6)
    beside = np.column_stack([np.ones(N), X])
    np.testing.assert_allclose(GPCDE(**SETTINGS).fit(beside, y).predict(beside), model.predict(X), rtol=1e-9)
    assert GPCDE(**SETTINGS, x_transform=None).fit(X, y).features_.bends is None
    assert gpcde.GP(max_steps=50, random_state=0).fit(X, y).features_.bends is None


@pytest.mark.parametrize(
    "change", [{"width": np.zeros(1)}, {"scale": np.full(1, np.nan)}, {"place": np.array([7])}, {"centre": np.zeros(2)}]
)
def test_bad_bends_are_refused(change: dict[str, np.ndarray]) -> None:
    good = GPCDE(**SETTINGS).fit(*scattered(N)).features_
    good.check_values()
    assert good.bends is not None
    with pytest.raises(ValueError, match=r"bends|Bends"):
        good._replace(bends=good.bends._replace(**change)).check_values()


def test_another_word_for_how_to_bend_is_refused() -> None:
    with pytest.raises(ValueError, match="x_transform must be 'auto' or None, got 'log'"):
        GPCDE(x_transform="log").fit(X, Y)


def test_a_file_and_a_checkpoint_keep_the_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a fit that was cut off goes on from is in the units it had chosen, and it does not choose again."""
    bent().save(tmp_path / "model")
    again = gpcde.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_density(X).log_pdf(Y), bent().predict_density(X).log_pdf(Y))

    monkeypatch.setattr(monitor, "CHECKPOINT_SECONDS", -1.0)
    Z = np.column_stack([X, scattered(N)[0][:, 1]])
    settings = {**ALONE, "inference": "free-form", "max_steps": 150}
    whole = GPCDE(**settings).fit(Z, Y)
    settings["checkpoint"] = tmp_path / "checkpoint"

    def crash(model: GPCDE, record: Any) -> None:
        if record.step == 100:
            raise KeyboardInterrupt

    with pytest.warns(gpcde.FitWarning), pytest.raises(KeyboardInterrupt):
        GPCDE(**settings, callbacks=[crash]).fit(Z, Y)
    monkeypatch.setattr(skewed, "WIDTHS", ())
    resumed = GPCDE(**settings).fit(Z, Y)
    assert resumed.transform_.same_as(whole.transform_)
    assert_same_model(resumed, whole)


def test_a_stack_has_all_members_in_the_units_of_y() -> None:
    stack = Stacked([("one", GPCDE(**SETTINGS)), ("line", gpcde.LinearGaussian())], cv=2).fit(X, Y)
    assert stack.transform_.kind == "identity"
    assert np.isfinite(stack.score(X, Y))


def test_what_a_weight_counts_counts_here_too() -> None:
    """A row of weight 2 is that row twice, and one of none is not there."""
    weight = np.where(np.arange(N) % 3 == 0, 0.0, np.where(np.arange(N) % 3 == 1, 2.0, 1.0))
    weighed = GPCDE(**SETTINGS).fit(X, Y, weight).transform_
    rows = np.repeat(np.arange(N), weight.astype(int))
    repeated = GPCDE(**SETTINGS).fit(X[rows], Y[rows]).transform_
    assert weighed.kind == repeated.kind == "asinh"
    for name in ("location", "scale", "centre", "width"):
        np.testing.assert_allclose(getattr(weighed, name), getattr(repeated, name), rtol=1e-9)


def test_of_several_densities_all_are_in_its_units() -> None:
    draws = bent().sample_densities(X[:2], 3, random_state=0)
    assert all(np.isfinite(one.log_pdf(Y[:2])).all() for one in draws)


def test_a_y_that_follows_from_x_without_noise_is_no_trouble() -> None:
    """Errors of nothing have no logarithm."""
    model = GPCDE(**SETTINGS).fit(X, 2 * X[:, 0])
    assert np.isfinite(model.score(X, 2 * X[:, 0]))
