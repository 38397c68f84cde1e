"""Kernel density estimates against statsmodels and brute force: densities, bandwidths, neighbours, many rows."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from warnings import catch_warnings, filterwarnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import gpcde
from gpcde import KDE, ConditionalKDE
from gpcde.estimators.kde import NARROWEST, Bandwidths
from small import frame, rows


def tables(n: int = 60, seed: int = 0, outputs: int = 1) -> tuple[pd.DataFrame, np.ndarray]:
    """A number and a category of three levels, both of which y depends on."""
    rng = np.random.default_rng(seed)
    town, a = rng.integers(3, size=n), 5 * rng.normal(size=n)
    y = 20 * town[:, None] + 2 * a[:, None] + rng.normal(size=(n, outputs)) * np.arange(1, outputs + 1) * 4
    return pd.DataFrame({"a": a, "town": np.array(["x", "y", "z"])[town]}), y


def numbers(table: pd.DataFrame) -> np.ndarray:
    """The table as statsmodels takes it, with codes for the category."""
    return np.column_stack([table["a"], table["town"].map({"x": 0, "y": 1, "z": 2})])


@pytest.fixture
def peers() -> Iterator[Any]:
    """statsmodels' own estimates; its import and optimiser warn of their own affairs."""
    with catch_warnings():
        filterwarnings("ignore", category=DeprecationWarning)
        nonparametric = pytest.importorskip("statsmodels.nonparametric.api")
    with catch_warnings():
        filterwarnings("ignore", message="After 0.17 or January 2028", category=FutureWarning)
        filterwarnings("ignore", message="divide by zero encountered in log", category=RuntimeWarning)
        yield nonparametric


# densities, for given bandwidths


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_the_density_is_that_of_statsmodels(peers: Any, outputs: int) -> None:
    X, y = tables(outputs=outputs)
    h = np.array([1.5, 4.0, 9.0])[:outputs]
    model = KDE().fit(X, y)
    model.bandwidths_ = Bandwidths(h / y.std(0), np.zeros(0), np.zeros(0))
    X_new, y_new = tables(20, seed=1, outputs=outputs)
    expected = peers.KDEMultivariate(y, var_type="c" * outputs, bw=h).pdf(y_new)
    np.testing.assert_allclose(model.predict_density(X_new).pdf(y_new), expected, rtol=1e-6)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_conditional_density_is_that_of_statsmodels(peers: Any, outputs: int) -> None:
    """A number and an unordered category."""
    X, y = tables(outputs=outputs)
    h_y, h_x, share = np.array([1.5, 4.0])[:outputs], 2.0, 0.2
    model = ConditionalKDE().fit(X, y)
    model.bandwidths_ = Bandwidths(h_y / y.std(0), np.array([h_x / X["a"].to_numpy().std()]), np.array([share]))
    X_new, y_new = tables(20, seed=1, outputs=outputs)
    peer = peers.KDEMultivariateConditional(y, numbers(X), "c" * outputs, "cu", bw=[*h_y, h_x, share])
    expected = peer.pdf(y_new, numbers(X_new))
    np.testing.assert_allclose(model.predict_density(X_new).pdf(y_new), expected, rtol=1e-6)


# bandwidths


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_bandwidths_are_as_good_as_those_of_statsmodels(peers: Any, outputs: int) -> None:
    """By its own leave-one-out likelihood."""
    X, y = tables(outputs=outputs)
    peer = peers.KDEMultivariate(y, var_type="c" * outputs, bw="cv_ml")
    own = KDE().fit(X, y).bandwidths_.y * y.std(0)
    assert peer.loo_likelihood(own, np.log) <= peer.loo_likelihood(peer.bw, np.log) + 1e-3


def test_the_conditional_bandwidths_are_as_good_as_those_of_statsmodels(peers: Any) -> None:
    """Numbers only: of categories it would have negative shares."""
    X, y = rows(60)
    peer = peers.KDEMultivariateConditional(y, X, "c", "cc", bw="cv_ml")
    h = ConditionalKDE().fit(X, y).bandwidths_
    own = np.concatenate([h.y * y.std(0), h.x * X.std(0)])
    assert peer.loo_likelihood(own, np.log) <= peer.loo_likelihood(peer.bw, np.log) + 1e-3


def left_out(model: ConditionalKDE, h: Bandwidths) -> float:
    """The mean leave-one-out log density of the rows, from loops."""
    x, codes, y, total = model.x_.dense, model.x_.codes, model.y_, 0.0
    for n in range(len(y)):
        others = np.arange(len(y)) != n
        log_x = norm.logpdf(x[n], x[others], h.x).sum(1)
        for j, levels in enumerate(model.features_.levels):
            lam = h.categories[j]
            log_x += np.log(np.where(codes[others, j] == codes[n, j], 1 - lam, lam / (levels - 1)))
        total += logsumexp(log_x + norm.logpdf(y[n], y[others], h.y).sum(1)) - logsumexp(log_x)
    return total / len(y)


def test_no_change_of_a_bandwidth_helps() -> None:
    """Each by a tenth, up and down: what was found is the top of the leave-one-out likelihood."""
    model = ConditionalKDE().fit(*tables())
    h = model.bandwidths_
    best = left_out(model, h)
    for name in h._fields:
        for factor in (0.9, 1.1):
            assert left_out(model, h._replace(**{name: factor * getattr(h, name)})) < best - 1e-5


def test_inputs_that_say_nothing_are_smoothed_over() -> None:
    """A bandwidth of many standard deviations, or nearly the same weight for all levels."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=300), "b": rng.normal(size=300), "c": rng.choice(["u", "v"], 300)})
    y = np.sin(2 * X["a"].to_numpy()) + 0.1 * rng.normal(size=300)
    h = ConditionalKDE().fit(X, y).bandwidths_
    assert h.x[0] < 0.3
    assert h.x[1] > 2
    assert h.categories[0] > 0.15  # half is no difference


def test_a_category_that_decides_is_not_smoothed_over() -> None:
    X, y = frame(150)
    assert ConditionalKDE().fit(X, y).bandwidths_.categories[0] < 0.05


# neighbours


@pytest.mark.parametrize("n", [200, 30])
def test_neighbours_are_a_mixture_of_the_nearest_rows(n: int) -> None:
    """Fifty of them, or all there are, with one weight, and the bandwidth of the unconditional density."""
    X, y = rows(n)
    X = X * [1, 100]
    model = ConditionalKDE(method="neighbours").fit(X, y)
    X_new, y_new = rows(10, seed=1)
    X_new = X_new * [1, 100]
    h = KDE().fit(X, y).bandwidths_.y * y.std()
    expected = []
    for x, at in zip(X_new, y_new, strict=True):
        near = np.argsort((((x - X) / X.std(0)) ** 2).sum(1))[:50]
        expected.append(norm.pdf(at, y[near], h).mean())
    np.testing.assert_allclose(model.predict_density(X_new).pdf(y_new), expected, rtol=1e-9)


def test_no_other_width_makes_rows_likelier_given_their_neighbours() -> None:
    """By brute force over each row's fifty others; and it is wider than the one of all rows, which is for all rows."""
    X, y = rows(200)
    model = ConditionalKDE(method="neighbours_cv", random_state=0).fit(X, y)
    z, x = (y - y.mean()) / y.std(), (X - X.mean(0)) / X.std(0)
    order = np.argsort(((x[:, None] - x) ** 2).sum(2), axis=1)[:, 1:51]

    def mean_log_density(h: float) -> float:
        return float(np.log(norm.pdf(z[:, None], z[order], h).mean(1)).mean())

    best = float(model.bandwidths_.y[0])
    assert mean_log_density(best) >= max(mean_log_density(best * factor) for factor in (0.5, 0.9, 1.1, 2.0))
    y_new = rows(10, seed=1)[1]
    near = np.argsort((((X[0] - X) / X.std(0)) ** 2).sum(1))[:50]
    expected = norm.pdf(y_new[:1], y[near], best * y.std()).mean()
    np.testing.assert_allclose(model.predict_density(X[:1]).pdf(y_new[:1]), expected, rtol=1e-9)


# hard data


def test_many_rows() -> None:
    """Bandwidths from some of the rows; all of them answer."""
    n = 30_000
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 1))
    y = X[:, 0] ** 2 + (0.2 + 0.1 * X[:, 0]) * rng.normal(size=n)
    began = time.process_time()
    model = ConditionalKDE(random_state=0).fit(X, y)
    at = np.array([[-1.0], [0.0], [1.5]])
    density = model.predict_density(at)
    truth = norm(at[:, 0] ** 2, 0.2 + 0.1 * at[:, 0])
    np.testing.assert_allclose(density.log_pdf(truth.mean()), truth.logpdf(truth.mean()), atol=0.15)
    np.testing.assert_allclose(density.quantile(0.9), truth.ppf(0.9), atol=0.1)
    assert time.process_time() - began < 30


def test_some_rows_and_held_out_ones_find_the_bandwidths_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a smooth density, those that leaving out each of all rows finds."""
    X, y = rows(500)
    exact = [model.fit(X, y).bandwidths_ for model in (KDE(), ConditionalKDE())]
    monkeypatch.setattr("gpcde.estimators.kde.ENOUGH", 100)
    quick = [model.fit(X, y).bandwidths_ for model in (KDE(random_state=0), ConditionalKDE(random_state=0))]
    for one, two in zip(quick, exact, strict=True):
        np.testing.assert_allclose(np.log(one.y / two.y), 0, atol=0.5)


def test_fine_detail_wants_narrower_kernels_than_the_rate_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """y lies near whole numbers, of which a hundred rows show too little."""
    rng = np.random.default_rng(0)
    y, new = (rng.integers(40, size=size) + 0.05 * rng.standard_normal(size) for size in (3000, 500))
    monkeypatch.setattr("gpcde.estimators.kde.ENOUGH", 100)
    model = KDE(random_state=0).fit(np.zeros((3000, 1)), y)
    few = KDE().fit(np.zeros((100, 1)), y[:100])
    by_rate = few.bandwidths_.y * y[:100].std() * 30 ** (-1 / 5)
    assert model.bandwidths_.y * y.std() < 0.5 * by_rate
    assert model.score(np.zeros((500, 1)), new) > -2.5  # the truth has -2.11, one normal -3.9


def test_beyond_plenty_of_rows_the_rate_says_how_much_narrower(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.random.default_rng(0).standard_normal(1600)
    monkeypatch.setattr("gpcde.estimators.kde.ENOUGH", 100)
    whole = KDE(random_state=0).fit(np.zeros((1600, 1)), y).bandwidths_.y
    monkeypatch.setattr("gpcde.estimators.kde.PLENTY", 1600 // 2)
    half = KDE(random_state=0).fit(np.zeros((1600, 1)), y).bandwidths_.y
    monkeypatch.setattr("gpcde.estimators.kde._narrowed", lambda h, *_: h)
    some = KDE(random_state=0).fit(np.zeros((1600, 1)), y).bandwidths_.y
    monkeypatch.setattr("gpcde.estimators.kde.PLENTY", 1600)
    np.testing.assert_allclose(some / KDE(random_state=0).fit(np.zeros((1600, 1)), y).bandwidths_.y, 2 ** (-1 / 5))
    np.testing.assert_allclose(np.log(half / whole), 0, atol=0.5)


@pytest.mark.filterwarnings("ignore::gpcde.DataWarning")
@pytest.mark.parametrize("make", [KDE, ConditionalKDE, lambda: ConditionalKDE(method="neighbours")])
def test_repeated_values_do_no_harm(make: Any) -> None:
    """y of three values asks for no bandwidth at all; x of two, and a column of one, tell nothing apart by distance."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=90).astype(float)
    X = np.column_stack([(y > 0) * 1.0, np.ones(90)])
    model = make().fit(X, y)
    assert (model.bandwidths_.y >= NARROWEST).all()
    assert np.isfinite(model.score(X, y))
    density = model.predict_density(X)
    assert np.isfinite(density.quantile([0.01, 0.5, 0.99])).all()
    assert np.isfinite(density.log_pdf(0.5)).all() or (model.bandwidths_.y < 0.01).all()
    # what lies near a value is the share of it: among all rows, or among those of the same x
    near = density.cdf(1.5) - density.cdf(0.5)
    if isinstance(model, KDE):
        np.testing.assert_allclose(near, (y == 1).mean(), atol=0.02)
    elif model.method == "cv_ml":
        np.testing.assert_allclose(near, np.where(y > 0, (y[y > 0] == 1).mean(), 0), atol=0.02)
    else:
        assert (near[y == 0] <= 20 / 50).all()  # at least 30 of the 50 nearest have this x


@pytest.mark.parametrize("make", [KDE, ConditionalKDE, lambda: ConditionalKDE(method="neighbours", n_neighbors=7)])
def test_a_file_holds_the_same_model(make: Any, tmp_path: Path) -> None:
    X, y = tables()
    model = make().fit(X, y)
    model.save(tmp_path / "model")
    again = gpcde.load(tmp_path / "model")
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    X_new, y_new = tables(20, seed=1)
    np.testing.assert_array_equal(
        again.predict_density(X_new).log_pdf(y_new), model.predict_density(X_new).log_pdf(y_new)
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "rule of thumb"}, "method must be 'cv_ml', 'neighbours' or 'neighbours_cv', got 'rule of thumb'"),
        ({"n_neighbors": 0}, "n_neighbors must be a positive integer, got 0"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConditionalKDE(**settings).fit(*rows())
