"""Pictures: what is drawn is what the model says, on the axes that were given."""

import sys
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pytest

import gpcde
from gpcde import GPCDE, Comparison, Coverage, LinearGaussian
from gpcde.evaluation.compare import Score
from gpcde.plots.style import CMAP, ORDERED
from small import fitted

mpl.use("agg")
plots: Any = gpcde.plots  # what matplotlib's types say of what was drawn is no help here


@pytest.fixture(autouse=True)
def _no_figures_left() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def trained() -> tuple[GPCDE, np.ndarray, np.ndarray]:
    """Two inputs, one output with two branches."""
    return fitted("free-form")


@pytest.fixture(scope="module")
def pair() -> tuple[LinearGaussian, np.ndarray, pd.DataFrame]:
    """Two correlated outputs, with names."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    east = 2 * X[:, 0] + rng.normal(size=60)
    y = pd.DataFrame({"east": east, "north": east + 0.5 * rng.normal(size=60)})
    return LinearGaussian().fit(X, y), X, y


@pytest.fixture(scope="module")
def places() -> tuple[LinearGaussian, pd.DataFrame, np.ndarray]:
    """A number, a text, and a category whose levels are numbers."""
    rng = np.random.default_rng(0)
    town, level = rng.choice(["Bergen", "Oslo"], 80), rng.choice([10, 20], 80)
    X = pd.DataFrame({"size": rng.normal(size=80), "town": town, "level": pd.Categorical(level)})
    y = X["size"].to_numpy() + 4 * (town == "Oslo") + 0.1 * level + rng.normal(size=80)
    return LinearGaussian().fit(X, y), X, y


def shades(ax: Any) -> np.ndarray:
    """The numbers of a heat map."""
    return np.asarray(ax.collections[0].get_array())


def grid(ax: Any) -> tuple[np.ndarray, ...]:
    """The middles of its columns and rows."""
    corners = ax.collections[0].get_coordinates()
    return tuple(0.5 * (a[1:] + a[:-1]) for a in (corners[0, :, 0], corners[:, 0, 1]))


def test_every_column_of_a_heat_map_is_a_density(trained: Any) -> None:
    """That of the model at its x, the other input where it was held; the data as dots."""
    model, X, y = trained
    ax = plots.heatmap(model, X, y, feature=0, at={"x1": 0.7})
    x, up = grid(ax)
    np.testing.assert_allclose(np.trapezoid(shades(ax), up, axis=0), 1, atol=0.02)
    assert (x.min(), x.max()) == pytest.approx((X[:, 0].min(), X[:, 0].max()))
    expected = model.predict_density([[x[30], 0.7]]).pdf_grid(up)[0]
    np.testing.assert_allclose(shades(ax)[:, 30], expected, rtol=1e-6)
    seen = np.column_stack([X[:, 0], y])[np.abs(X[:, 1] - 0.7) < X[:, 1].std()]
    assert {tuple(row) for row in seen} <= {tuple(row) for row in ax.collections[1].get_offsets()}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x0", "y")


def test_dots_are_the_fainter_the_farther_their_other_inputs_are(trained: Any) -> None:
    model, X, y = trained
    data = plots.heatmap(model, X, y, at={1: 0.0}).collections[1]
    drawn = [np.flatnonzero(X[:, 0] == x)[0] for x, _ in data.get_offsets()]
    order = np.argsort(np.abs(X[drawn, 1]))
    assert (np.diff(data.get_alpha()[order]) < 0).all()
    assert np.abs(np.delete(X[:, 1], drawn)).min() > np.abs(X[drawn, 1]).max()


def test_without_data_the_range_is_what_training_saw(trained: Any) -> None:
    model, X, _ = trained
    ax = plots.heatmap(model, feature=1, colorbar=False)
    x, _ = grid(ax)
    assert (x.min(), x.max()) == pytest.approx((X[:, 1].mean() - 2 * X[:, 1].std(), X[:, 1].mean() + 2 * X[:, 1].std()))
    assert len(ax.figure.axes) == 1
    assert len(ax.collections) == 1


def test_the_axes_given_are_drawn_on_and_answered(trained: Any, pair: Any) -> None:
    model, X, y = trained
    linear, inputs, outputs = pair
    curve = Coverage(np.array([0.5]), np.array([0.4]))
    scores = Comparison({"one": [Score(-1.0, 0.5, 0.1, 2.0)]}, 1)
    drawn = (
        lambda ax: plots.heatmap(model, X, y, ax=ax),
        lambda ax: plots.fan(model, X, y, ax=ax),
        lambda ax: plots.effect(model, X, rows=5, draws=5, ax=ax),
        lambda ax: plots.densities(model, X[:2], draws=0, ax=ax),
        lambda ax: plots.joint(linear, inputs[:1], outputs, ax=ax),
        lambda ax: plots.pit(np.linspace(0, 1, 20), ax=ax),
        lambda ax: plots.coverage(curve, ax=ax),
        lambda ax: plots.training(model, ax=ax),
        lambda ax: plots.comparison(scores, ax=ax),
        lambda ax: plots.latent(model, X, y, ax=ax),
        lambda ax: plots.images(np.eye(4), ax=ax),
        lambda ax: model.predict_density(X[:2]).plot(ax=ax),
        lambda ax: linear.predict_density(inputs[:2]).plot(1, labels=["one", "two"], ax=ax),
        lambda ax: curve.plot(ax, color="black"),
        lambda ax: scores.plot("crps", ax),
    )
    for draw in drawn:
        before = len(plt.get_fignums())
        figure, ax = plt.subplots()
        assert draw(ax) is ax
        assert ax.has_data()
        assert len(plt.get_fignums()) == before + 1
        plt.close(figure)


def test_shades_are_ordered_by_lightness() -> None:
    """So that they are in grey, and to the colour-blind."""
    for name in (CMAP, ORDERED):
        red, green, blue = mpl.colormaps[name](np.linspace(0, 1, 50))[:, :3].T
        steps = np.diff(0.2126 * red + 0.7152 * green + 0.0722 * blue)
        assert (steps > 0).all() or (steps < 0).all()


def test_a_fan_has_the_quantiles_of_the_density(trained: Any) -> None:
    model, X, y = trained
    ax = plots.fan(model, X, y, levels=(0.5, 0.9))
    median = ax.lines[0].get_xydata()
    density = model.predict_density(np.column_stack([median[:, 0], np.full(len(median), np.median(X[:, 1]))]))
    np.testing.assert_allclose(median[:, 1], density.quantile(0.5), rtol=1e-6)
    wide, narrow = (collection.get_paths()[0].vertices for collection in ax.collections[:2])
    low, high = density.interval(0.9).T
    assert (wide[:, 1].min(), wide[:, 1].max()) == pytest.approx((low.min(), high.max()))
    assert np.ptp(narrow[:, 1]) < np.ptp(wide[:, 1])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["90 %", "50 %", "median"]


def test_an_effect_averages_the_other_inputs() -> None:
    """y = x0 + x1 + noise: its mean along x0 is x0 + mean(x1), and it is as wide as x1 and the noise together."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)) * [1, 3]
    y = X.sum(1) + 0.1 * rng.normal(size=400)
    ax = plots.effect(LinearGaussian().fit(X, y), X, levels=[0.9], rows=400, draws=20)
    mean = next(line for line in ax.lines if line.get_label() == "mean").get_xydata()
    np.testing.assert_allclose(mean[:, 1] - mean[:, 0], X[:, 1].mean(), atol=0.05)
    outline = ax.collections[0].get_paths()[0].vertices
    at = outline[np.isclose(outline[:, 0], mean[20, 0])]
    expected = np.quantile(X[:, 1], 0.95) - np.quantile(X[:, 1], 0.05)
    assert np.ptp(at[:, 1]) == pytest.approx(expected, rel=0.03)


def test_densities_have_bands_of_their_level_and_regions(trained: Any) -> None:
    model, _, _ = trained
    rows = np.array([[-1.0, 0.2], [1.5, 0.2]])
    ax = plots.densities(model, rows, level=0.8, draws=20, random_state=3)
    curves = [line.get_xydata() for line in ax.lines if not str(line.get_label()).startswith("_")]
    points = curves[0][:, 0]
    np.testing.assert_allclose(
        [curve[:, 1] for curve in curves], model.predict_density(rows).pdf_grid(points), rtol=1e-6
    )
    drawn = model.sample_densities(rows, 20, 3).pdf_grid(points)
    for row in range(2):
        outline = ax.collections[row].get_paths()[0].vertices
        assert outline[:, 1].max() == pytest.approx(np.quantile(drawn[:, row], 0.9, axis=0).max())
    bars = [line.get_xdata() for line in ax.lines if (np.asarray(line.get_ydata()) < 0).all()]
    np.testing.assert_allclose(bars, np.concatenate([model.predict_density(rows).hdr(0.8)[row] for row in range(2)]))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["x0 = -1", "x0 = 1.5"]
    named = plots.densities(model, rows, draws=0, labels=["low", "high"])
    assert [text.get_text() for text in named.get_legend().get_texts()] == ["low", "high"]
    styles = {line.get_linestyle() for line in named.lines[:3]}
    assert len(styles) > 1


def test_a_joint_density_integrates_to_one_and_its_border_is_that_of_the_region(pair: Any) -> None:
    model, X, y = pair
    ax = plots.joint(model, X[:1], y, outputs=("north", "east"), levels=(0.5,))
    across, up = grid(ax)
    assert np.trapezoid(np.trapezoid(shades(ax), across, axis=1), up) == pytest.approx(1, abs=0.02)
    border = next(c for c in ax.collections if hasattr(c, "levels"))
    density = model.predict_density(X[:1])
    inside = density.hdr(0.5)
    assert np.log(border.levels) == pytest.approx(inside.log_threshold, abs=1e-9)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("north", "east")
    north, east = across[np.argmax(shades(ax).max(0))], up[np.argmax(shades(ax).max(1))]
    np.testing.assert_allclose([east, north], density.mode()[0], atol=0.1)


@pytest.mark.parametrize("library", [pd, pl])
def test_a_category_has_a_column_for_every_level(places: Any, library: Any) -> None:
    """Whichever library's frames the model was trained with and the data come in."""
    model, X, y = places
    data = X if library is pd else pl.DataFrame({name: X[name].astype(str).tolist() for name in ("town", "level")})
    if library is pl:
        data = data.insert_column(0, pl.Series("size", X["size"].to_numpy()))
        assert list(data.columns) == list(X.columns)
        model = LinearGaussian().fit(data, y)
    ax = plots.heatmap(model, data, y, feature="town", at={"size": 0.0})
    assert [label.get_text() for label in ax.get_xticklabels()] == ["Bergen", "Oslo"]
    assert shades(ax).shape[1] == 2
    _, up = grid(ax)
    bergen, oslo = np.trapezoid(shades(ax) * up[:, None], up, axis=0)
    assert oslo - bergen == pytest.approx(4, abs=1)
    assert plots.fan(model, data, y, feature="level").get_xlabel() == "level"
    assert plots.effect(model, data, feature="size", rows=10, draws=5).get_xlabel() == "size"


def test_the_histogram_of_the_pit() -> None:
    """Bars of a density, with the band that holds 95 % of them."""
    values = np.random.default_rng(0).random((50, 2))
    ax = gpcde.plot_pit(values, bins=5)
    heights = [patch.get_height() for patch in ax.containers[0]]
    np.testing.assert_allclose(heights, np.histogram(values, 5, (0, 1), density=True)[0])
    assert sum(heights) / 5 == pytest.approx(1)
    assert "p = " in ax.get_title()


def test_the_curve_of_coverage() -> None:
    curve = Coverage(np.array([0.2, 0.8]), np.array([0.3, 0.9]))
    ax = gpcde.plot_coverage(curve, color="red")
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), [[0.2, 0.3], [0.8, 0.9]])
    assert ax.lines[1].get_color() == "red"
    assert ax.get_title() == "off by 0.100 in the mean"


def test_training_curves_are_the_history(trained: Any) -> None:
    model, _, _ = trained
    for curve, scale in (("bound", "linear"), ("noise_variance", "log")):
        ax = plots.training(model, curve)
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), model.history_[curve])
        assert ax.get_yscale() == scale
    with pytest.raises(ValueError, match="curve must be one of bound, noise_variance, got 'seconds'"):
        plots.training(model, "seconds")


def test_a_comparison_has_the_best_on_top() -> None:
    scores = {
        "bad": [Score(-2.0, 0.5, 0.1, 1.0), Score(-3.0, 0.5, 0.1, 1.0)],
        "good": [Score(-1.0, 0.7, 0.1, 1.0), Score(-1.2, 0.9, 0.1, 1.0)],
    }
    ax = plots.comparison(Comparison(scores, 1))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["bad", "good"]
    np.testing.assert_allclose(np.asarray(ax.lines[0].get_xdata(), float), [-2.5, -1.1])
    ends = np.array([segment[:, 0] for segment in ax.collections[0].get_segments()])
    np.testing.assert_allclose(ends.mean(1), [-2.5, -1.1])
    np.testing.assert_allclose(np.diff(ends).ravel() / 2, [0.5, 0.1])
    ax = plots.comparison(Comparison(scores, 1), "crps")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["good", "bad"]
    with pytest.raises(ValueError, match="metric must be one of log_score, crps, .*, got 'energy_score'"):
        plots.comparison(Comparison(scores, 1), "energy_score")


def test_latents_are_where_they_are_inferred(trained: Any) -> None:
    model, X, y = trained
    mean = np.asarray(model.infer_latent(X, y).mean)
    ax = plots.latent(model, X, y)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), np.column_stack([mean[:, 0], y]), rtol=1e-6)
    classes = plots.latent(model, X, y, np.where(X[:, 0] > 0, "right", "left"), name="side")
    assert sorted(text.get_text() for text in classes.get_legend().get_texts()) == ["left", "right"]
    with pytest.raises(ValueError, match="values must be a vector of 48 numbers or names"):
        plots.latent(model, X, y, [1.0])


def test_images_stand_row_by_row() -> None:
    pictures = np.arange(5 * 6, dtype=float).reshape(5, 6)
    sheet = plots.images(pictures, columns=2, shape=(2, 3)).get_images()[0].get_array()
    assert sheet is not None
    assert sheet.shape == (8, 7)
    np.testing.assert_array_equal(sheet[3:5, 4:], pictures[3].reshape(2, 3))
    assert sheet.mask[2].all()
    with pytest.raises(ValueError, match="images of 6 pixels are no 2 × 2: say which shape they have"):
        plots.images(pictures)


def test_wrong_names_say_which_there_are(trained: Any, pair: Any, places: Any) -> None:
    model, X, y = trained
    with pytest.raises(ValueError, match="feature must be one of x0, x1, or a number from 0 to 1, got 'x2'"):
        plots.heatmap(model, X, y, feature="x2")
    with pytest.raises(ValueError, match="output must be one of y, or a number from 0 to 0, got 1"):
        plots.fan(model, X, y, output=1)
    with pytest.raises(ValueError, match="column town of X holds 'Paris', never seen in training"):
        plots.heatmap(places[0], at={"town": "Paris"})
    with pytest.raises(ValueError, match="X must be one row, the condition, got 2 rows"):
        plots.joint(pair[0], pair[1][:2])
    with pytest.raises(ValueError, match="outputs must name two different outputs"):
        plots.joint(pair[0], pair[1][:1], outputs=(0, 0))
    with pytest.raises(ValueError, match="a joint density has two outputs or more; this model has one, y"):
        plots.joint(model, X[:1])
    with pytest.raises(ValueError, match="labels must name each of the 2 rows, got 1"):
        plots.densities(model, X[:2], labels=["one"], draws=0)
    with pytest.raises(ValueError, match="21 curves could not be told apart: choose up to 20 rows"):
        model.predict_density(X[:21]).plot()


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pictures need matplotlib: pip install 'gpcde\[plot\]'"):
        plots.images(np.eye(4))
