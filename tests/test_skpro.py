"""The adapter of skpro: its own checks, and that every answer is the density's own."""

import subprocess
import sys
from inspect import unwrap
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skpro")
import pandas as pd
from scipy.integrate import quad
from skpro.metrics import CRPS, LogLoss
from skpro.utils import check_estimator

import gpcde.skpro
from gpcde import MDN, ConditionalDensity
from gpcde.skpro import DensityDistribution, DensityRegressor

pytestmark = pytest.mark.slow

ROWS, NEW = 40, pd.Index([f"row {i}" for i in range(6)], name="name")
CASES = {"one": ("a",), "log": ("a",), "two": ("a", "b")}


def quick(**more: Any) -> MDN:
    return MDN(n_components=3, hidden=(8,), max_epochs=3, random_state=0, **more)


@pytest.fixture(scope="module")
def tables() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    X, new = (pd.DataFrame({"u": rng.normal(size=n), 3: rng.normal(size=n)}) for n in (ROWS, len(NEW)))
    X["kind"], new["kind"] = pd.Categorical(["p", "q"] * (ROWS // 2)), pd.Categorical(["p", "q"] * (len(NEW) // 2))
    a = np.exp(X["u"] + 0.5 * rng.normal(size=ROWS))
    return X, pd.DataFrame({"a": a, "b": a + 0.1 * rng.normal(size=ROWS)}), new.set_index(NEW)


@pytest.fixture(scope="module")
def models(tables: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]) -> dict[str, DensityRegressor]:
    X, y, _ = tables
    kinds = {"one": quick(), "log": quick(y_transform="log"), "two": quick(covariance="full")}
    return {name: DensityRegressor(kinds[name]).fit(X, y[list(columns)]) for name, columns in CASES.items()}


@pytest.fixture(params=list(CASES))
def case(request: Any, models: Any, tables: Any) -> tuple[DensityRegressor, pd.DataFrame, Any, pd.DataFrame]:
    """A model, new rows, the answer, and values of y at which it is asked."""
    model, new = models[request.param], tables[2]
    values = np.random.default_rng(1).uniform(0.2, 3.0, size=(len(NEW), len(CASES[request.param])))
    return model, new, model.predict_proba(new), pd.DataFrame(values, NEW, CASES[request.param])


def same(table: pd.DataFrame, values: np.ndarray, columns: Any, rtol: float = 1e-12) -> None:
    pd.testing.assert_index_equal(table.index, NEW)
    assert table.columns.tolist() == list(columns)
    np.testing.assert_allclose(table.to_numpy(), values, rtol)


@pytest.mark.filterwarnings("ignore:.*implementation of the 'pdfnorm' method:UserWarning")
@pytest.mark.parametrize("cls", [DensityDistribution, DensityRegressor])
def test_skpros_own_checks_pass(cls: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DensityDistribution._tags, "approx_spl", 20)  # draws for pdfnorm
    monkeypatch.setattr(cls, "__init__", unwrap(cls.__init__))  # type: ignore[misc]  # its signature is looked at
    results = check_estimator(cls, verbose=False)
    assert len(results) > 50
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}


def test_answers_are_the_densitys_own(case: Any) -> None:
    model, new, answer, y = case
    density = model.estimator_.predict_density(new.rename(columns=str))
    assert isinstance(answer.density, ConditionalDensity)
    same(model.predict(new), density.mean(), y)
    same(model.predict_var(new), density.var(), y)
    same(answer.mean(), density.mean(), y)
    same(answer.var(), density.var(), y)
    same(answer.cdf(y), density.cdf(y.to_numpy()), y)
    same(answer.ppf(0.3), density.quantile(0.3), y)
    same(answer.ppf(answer.cdf(y)), y, y, 1e-9)
    levels = [0.1, 0.9, 0.05, 0.95]
    columns, quantiles = pd.MultiIndex.from_product([y.columns, levels]), density.quantile(levels).swapaxes(1, 2)
    same(model.predict_quantiles(new, levels), quantiles.reshape(len(y), -1), columns)
    columns = pd.MultiIndex.from_product([y.columns, [0.8, 0.9], ["lower", "upper"]])
    same(model.predict_interval(new, [0.8, 0.9]), quantiles.reshape(len(y), -1), columns)
    assert np.isnan(answer.ppf(1.5).to_numpy()).all()


def test_log_pdf_is_of_each_entry_and_the_density_is_joint(case: Any) -> None:
    _, _, answer, y = case
    marginal = np.stack([answer.density.marginal(j).log_pdf(y.to_numpy()[:, j]) for j in range(y.shape[1])], axis=1)
    same(answer.log_pdf(y), marginal, y)
    same(answer.pdf(y), np.exp(marginal), y)
    assert np.allclose(marginal.sum(1), answer.density.log_pdf(y.to_numpy())) == (y.shape[1] == 1)
    np.testing.assert_allclose(LogLoss()(y, answer), -marginal.mean())


def test_energies_are_exact(case: Any) -> None:
    _, _, answer, y = case
    apart = np.abs(answer.density.quantile((np.arange(4000) + 0.5) / 4000) - y.to_numpy()[:, None])
    same(answer.energy(y), apart.mean(1).sum(1, keepdims=True), ["energy"], 5e-3)
    np.testing.assert_allclose(CRPS()(y, answer), answer.density.crps(y.to_numpy()).mean(), rtol=1e-9)
    one = answer.iloc[0, 0]
    ends = one.ppf(1e-12), one.ppf(1 - 1e-12)
    spread = quad(lambda s: 2 * one.cdf(s) * one.surv(s), *ends, limit=200, points=[one.ppf(0.1), one.ppf(0.9)])[0]
    np.testing.assert_allclose(one.energy(), spread, rtol=1e-6)


@pytest.mark.parametrize("rows", [[4, 1], [5], slice(1, 3), np.arange(6) > 2, range(2)])
def test_parts_are_the_densitys_own(case: Any, rows: Any) -> None:
    _, _, answer, y = case
    some, whole = answer.iloc[rows, :], answer.cdf(y)
    pd.testing.assert_frame_equal(some.cdf(y.iloc[rows]), whole.iloc[rows])
    last = answer.iloc[rows, [-1]]
    pd.testing.assert_frame_equal(last.cdf(y.iloc[rows, [-1]]), whole.iloc[rows, [-1]])
    name = y.columns[-1]
    pd.testing.assert_frame_equal(answer.loc[NEW[[3, 2]], [name]].mean(), answer.mean().loc[NEW[[3, 2]], [name]])
    entry = answer.loc["row 2", name]
    assert entry.shape == ()
    assert entry.cdf(y.loc["row 2", name]) == pytest.approx(whole.loc["row 2", name])


def test_samples_are_joint_and_follow_numpys_seed(case: Any) -> None:
    _, _, answer, y = case
    np.random.seed(0)  # noqa: NPY002
    draws = answer.sample(2000)
    np.random.seed(0)  # noqa: NPY002
    pd.testing.assert_frame_equal(draws, answer.sample(2000))
    assert draws.index.names == [None, "name"]
    error = draws.groupby(level=1).mean().loc[NEW] - answer.mean()
    assert (error.abs() < 5 * np.sqrt(answer.var() / 2000)).all(axis=None)
    of_first = draws.xs("row 0", level=1).to_numpy()
    expected = answer.density[0].sample(100000, random_state=0).reshape(-1, y.shape[1])
    np.testing.assert_allclose(np.corrcoef(of_first.T), np.corrcoef(expected.T), atol=0.1)


def test_numbers_without_names_and_the_default(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpcde.skpro, "GPCDE", quick)
    X, y, _ = (np.asarray(table.drop(columns="kind", errors="ignore")) for table in tables)
    model = DensityRegressor().fit(X, y[:, 0])
    assert model.predict(X[:5]).shape == (5,)
    assert model.predict_proba(X[:5]).shape == (5, 1)
    assert model.get_tag("capability:update")
    assert not DensityRegressor(quick()).get_tag("capability:update")


def test_gpcde_itself_needs_no_skpro() -> None:
    subprocess.run([sys.executable, "-c", "import sys; sys.modules['skpro'] = None; import gpcde"], check=True)
