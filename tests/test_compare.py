"""Comparisons of models: every one has its scores, the true one is first, and jobs change nothing."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from scipy.stats import norm
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold

from gpcde import GP, GPCDE, KDE, ConditionalKDE, LinearGaussian, compare, coverage
from gpcde.evaluation.compare import Score
from small import QUICK, frame, rows

MODELS = {"linear": LinearGaussian(), "kde": KDE(), "conditional": ConditionalKDE(random_state=0)}


def linear(n: int = 90, outputs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Linear with normal errors: no model can be better than the linear one."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    y = 5 + X @ rng.normal(size=(2, outputs)) * 10 + rng.normal(size=(n, outputs))
    return X, y[:, 0] if outputs == 1 else y


def without_times(comparison: Any) -> dict[str, list[tuple[float, ...]]]:
    return {name: [fold[:3] for fold in folds] for name, folds in comparison.scores.items()}


def test_the_true_model_is_first_in_the_table() -> None:
    """All models are in it, with means and standard errors of the folds."""
    comparison = compare(*linear(), MODELS, cv=3)
    table = pd.DataFrame(comparison)
    assert list(table["model"]) == list(MODELS)
    numbers = table.drop(columns="model").to_numpy(float)
    assert numbers.shape == (3, 2 * len(Score._fields))
    assert np.isfinite(numbers).all()
    best = table.set_index("model")
    assert best["log_score"].idxmax() == best["crps"].idxmin() == "linear"
    text = repr(comparison).splitlines()
    assert text[0] == "| model | log_score | crps | calibration_error | seconds |"
    assert [line.split("|")[1].strip() for line in text[2:]] == list(best.sort_values("log_score").index[::-1])
    scores = [fold.log_score for fold in comparison.scores["kde"]]
    assert best.loc["kde", "log_score"] == pytest.approx(np.mean(scores))
    assert best.loc["kde", "log_score se"] == pytest.approx(np.std(scores, ddof=1) / 3**0.5)


def test_the_scores_are_those_of_folds_not_seen() -> None:
    """By hand, with a splitter of the user's."""
    X, y = linear()
    folds = KFold(2, shuffle=True, random_state=5)
    (name, found), *others = compare(X, y, {"linear": LinearGaussian()}, cv=folds).scores.items()
    assert name == "linear"
    assert not others
    for score, (train, test) in zip(found, folds.split(X), strict=True):
        density = LinearGaussian().fit(X[train], y[train]).predict_density(X[test])
        assert score.log_score == pytest.approx(norm.logpdf(y[test], density.mean(), density.std()).mean())
        assert score.crps == pytest.approx(density.crps(y[test]).mean())
        assert score.calibration_error == pytest.approx(coverage(density, y[test]).error)
        assert score.seconds > 0


def test_jobs_change_nothing() -> None:
    models = {"linear": LinearGaussian(), "kde": KDE(random_state=0)}
    one, two = (compare(*linear(), models, cv=2, n_jobs=jobs) for jobs in (1, 2))
    assert without_times(one) == without_times(two)


def test_the_given_models_are_not_fitted() -> None:
    model = LinearGaussian()
    compare(*linear(), {"a": model}, cv=2)
    assert not hasattr(model, "coefficients_")


@pytest.mark.parametrize("kind", ["frame", "list", "column"])
def test_tables_of_all_kinds(kind: str) -> None:
    X, y = frame(60)
    if kind != "frame":
        X = X["a"].to_numpy()[:, None]
    whole = compare(X, y, {"linear": LinearGaussian()}, cv=2)
    other = compare(
        X.tolist() if kind == "list" else X,
        y[:, None] if kind == "column" else pd.Series(y),
        {"linear": LinearGaussian()},
        2,
    )
    assert without_times(whole) == without_times(other)
    assert "crps" in next(iter(other))


def test_several_outputs_have_an_energy_score() -> None:
    X, y = linear(outputs=2)
    comparison = compare(X, y, {"linear": LinearGaussian(), "kde": KDE()}, cv=2)
    table = pd.DataFrame(comparison).set_index("model")
    assert "crps" not in table
    assert 0 < table.loc["linear", "energy_score"] < table.loc["kde", "energy_score"]
    train, test = next(iter(KFold(2, shuffle=True, random_state=0).split(X)))
    density = LinearGaussian().fit(X[train], y[train]).predict_density(X[test])
    assert comparison.scores["linear"][0].crps == pytest.approx(density.energy_score(y[test]).mean())


def test_progress_is_shown_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    """Where there is no terminal it is silent unless asked."""
    for verbose in (False, None):
        compare(*linear(), {"linear": LinearGaussian()}, cv=2, verbose=verbose)
        assert capsys.readouterr() == ("", "")
    compare(*linear(), {"linear": LinearGaussian()}, cv=2, verbose=True)
    shown = capsys.readouterr().err
    assert "compare: 100%" in shown
    assert "2/2" in shown


def test_a_gaussian_process_can_be_compared() -> None:
    """And one fold alone has no standard error."""
    X, y = rows()
    half = [(np.arange(24), np.arange(24, 48))]
    (row,) = compare(X, y, {"gp": GP(**QUICK)}, cv=half)
    expected = GP(**QUICK).fit(X[:24], y[:24]).score(X[24:], y[24:])
    assert row["log_score"] == pytest.approx(expected)
    assert np.isnan(row["log_score se"])


@pytest.mark.parametrize("models", [{}, {"linear": LinearGaussian(), "other": LinearRegression()}])
def test_bad_models_are_refused(models: Any) -> None:
    with pytest.raises(ValueError, match="models must be a dictionary of density estimators by name"):
        vars(compare)["__wrapped__"](*linear(), models)  # past the tests' own type checks


@pytest.mark.slow
@pytest.mark.parametrize("processes", [False, True])
def test_a_cluster_of_dask_gives_the_same_scores(processes: bool) -> None:
    """Through joblib's backend, of comparisons and of scikit-learn's searches; in processes, with compiled models."""
    distributed = pytest.importorskip("distributed")
    X, y = linear(60)
    near = ConditionalKDE(method="neighbours", random_state=0)
    models: dict[str, Any] = {"linear": LinearGaussian(), "near": near}
    search: Any = GridSearchCV(near, {"n_neighbors": [5, 20]}, cv=2)
    if processes:
        settings: Any = {**QUICK, "inference": "none"}
        models["gpcde"] = GPCDE(**settings)
        search = GridSearchCV(GPCDE(**settings), {"n_inducing": [4, 8]}, cv=2)
    alone = compare(X, y, models, cv=2), clone(search).fit(X, y)
    with (
        distributed.Client(n_workers=2, threads_per_worker=1, processes=processes, dashboard_address=None),
        parallel_config("dask"),
    ):
        together = compare(X, y, models, cv=2, n_jobs=2), search.set_params(n_jobs=2).fit(X, y)
    elsewhere = 1e-3  # where these tests pad rows otherwise, a search ends a little elsewhere
    for name, folds in without_times(alone[0]).items():
        rtol = elsewhere if name == "gpcde" else 1e-8
        np.testing.assert_allclose(without_times(together[0])[name], folds, rtol=rtol)
    means = [found.cv_results_["mean_test_score"] for _, found in (alone, together)]
    np.testing.assert_allclose(means[0], means[1], rtol=elsewhere if processes else 1e-8)
    assert together[1].best_params_ == alone[1].best_params_
