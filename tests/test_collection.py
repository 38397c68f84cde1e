"""The benchmark's data sets: densities that are right, rows that are apart, and a division that stays as it is."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from gpcde import demo

FILE = Path(__file__).parents[1] / "benchmarks" / "collection.py"
if not FILE.is_file():
    pytest.skip("the benchmarks are not here", allow_module_level=True)


def module(path: Path) -> ModuleType:
    """A file of benchmarks, which is no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


module(FILE.with_name("pages.py"))
bench: Any = module(FILE)
runs: Any = module(FILE.with_name("defaults.py"))

TUNE = [
    *("autos", "boston", "concrete", "concreteslump", "energy", "engel", "gas", "geyser", "kin8nm", "lane2", "mcycle"),
    *("naval", "power", "protein", "pumadyn32nm", "taxi", "winered", "winewhite", "yacht"),
    *("additive20", "apart", "binary", "blocks", "bowl", "clusters", "crossing", "demo", "flat", "funnel", "gentle"),
    *("idle", "linear", "nearly", "rates", "regimes", "ring", "slope", "smooth8", "smooth26", "sparse30"),
    *("threebranches", "tides", "wages"),
]
REPORT = [
    *("bike", "breastcancer", "elevators", "faithful", "keggdirected", "machine", "servo", "tamielectric"),
    *("changingnoise", "correlated", "friedman", "heavytails", "places", "skew", "spiral", "step", "uniform"),
]

with_data = pytest.mark.skipif(not (bench.data_dir() / "uci").is_dir(), reason="the real data are not here")


def test_the_division_is_what_it_was() -> None:
    assert [problem.name for problem in bench.collection("tune")] == TUNE
    assert [problem.name for problem in bench.collection("report")] == REPORT


def test_the_division_follows_its_rule() -> None:
    part = bench.parts()
    assert set(part) == {*bench.REAL, *bench.LAWS}
    assert set(bench.SEEN) <= set(part)
    assert {part[name] for name in (*bench.SEEN, *bench.LATER)} == {"tune"}
    for names in (bench.REAL, bench.LAWS):
        unseen = sorted(set(names) - {*bench.SEEN, *bench.LATER})
        assert [name for name in unseen if part[name] == "tune"] == unseen[::3]


def at(name: str, seed: int, copies: int) -> Any:
    """The distribution of y at one input of a law, so many times."""
    law = bench.LAWS[name]
    x = law.sample_inputs(np.random.default_rng(seed), 1)
    return law.given(np.repeat(x, copies, axis=0))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", bench.LAWS)
def test_a_law_integrates_to_one_and_its_samples_follow_it(name: str, seed: int) -> None:
    drawn = at(name, seed, 3000).rvs(random_state=np.random.default_rng(seed))
    two = drawn.ndim == 2
    columns = drawn.T if two else drawn[None]
    axes = []
    for column in columns:
        margin = (40 if name == "heavytails" else 0.3) * np.ptp(column)
        axes.append(np.linspace(column.min() - margin, column.max() + margin, 101 if two else 40_001))
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    logs = np.concatenate(
        [at(name, seed, len(some)).logpdf(some if two else some[:, 0]) for some in np.array_split(grid, 20)]
    )
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    inside = np.isfinite(logs)
    weight = np.exp(logs) * cell
    assert weight.sum() == pytest.approx(1, abs=5e-3)
    # the mean log density of the samples is that of the density
    expected = (weight[inside] * logs[inside]).sum()
    spread = np.sqrt((weight[inside] * (logs[inside] - expected) ** 2).sum() / len(drawn))
    found = at(name, seed, len(drawn)).logpdf(drawn)
    assert found.mean() == pytest.approx(expected, abs=4.5 * spread + 0.01)


def test_mixtures_agree_with_scipy() -> None:
    X = np.array([[0.4, -0.3]])
    y = np.array([[0.2, -0.5]])
    r = np.tanh(0.8)
    covariance = [[0.25, 0.15 * r], [0.15 * r, 0.09]]
    joint = stats.multivariate_normal([np.sin(-0.6), -0.12], covariance)
    assert bench.correlated(X).logpdf(y)[0] == pytest.approx(joint.logpdf(y[0]))
    x, z = demo.sample(np.random.default_rng(0), 50)
    np.testing.assert_allclose(bench.demonstration(x[:, None]).logpdf(z), np.log(demo.true_density(x, z)), rtol=1e-8)


@pytest.mark.parametrize("name", bench.LAWS)
def test_a_split_of_a_law(name: str) -> None:
    problem = next(problem for problem in bench.collection() if problem.name == name)
    size = problem.sizes()[0]
    split, again, other = problem.load(size, 0), problem.load(size, 0), problem.load(size, 1)
    assert len(split.X_train) == len(split.y_train) == size
    assert len(split.X_test) == len(split.y_test) == len(split.truth) == bench.MOST_TEST
    assert np.isfinite(split.truth).all()
    assert apart(split)
    for one, two in zip(split, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(split.y_test, other.y_test)


def apart(split: Any) -> bool:
    """Whether no test row is among the training rows."""
    train, test = (
        {row.tobytes() for row in np.column_stack([X, y])}
        for X, y in ((split.X_train, split.y_train), (split.X_test, split.y_test))
    )
    return not train & test


@with_data
@pytest.mark.parametrize("name", bench.REAL)
def test_a_real_set(name: str) -> None:
    X, y = bench.read(name)
    assert (X.max(0) > X.min(0)).all()
    for column in y.T if y.ndim > 1 else [y]:
        distinct = len(np.unique(column))
        if name in bench.STEPS or name in bench.LOG_STEPS:
            assert distinct == len(y)
        else:
            assert distinct >= 0.95 * len(y)
    problem = next(problem for problem in bench.collection() if problem.name == name)
    assert problem.sizes()
    for size in problem.sizes():
        split = problem.load(size, 3)
        assert len(split.X_train) == size
        assert len(split.X_test) == min(len(X) - size, bench.MOST_TEST)
        assert len(X) - size >= max(len(X) / 3, bench.LEAST_TEST)
        assert apart(split)


@with_data
def test_noise_is_one_step_wide() -> None:
    whole = np.round(bench.read("winered")[1])
    assert set(whole) == {3, 4, 5, 6, 7, 8}
    with np.load(bench.data_dir() / "more" / "bike.npz") as file:
        raw = file["y"]
    counts = np.exp(raw - raw.min())
    noisy = np.exp(bench.spread("bike", raw) - raw.min())
    assert np.abs(noisy - counts).max() <= 0.5
    assert np.abs(noisy - counts).max() > 0.49


def test_rows_of_log_densities_come_back() -> None:
    logs = np.random.default_rng(0).normal(-3, 5, 500)
    np.testing.assert_allclose(runs.unpacked(runs.packed(logs)), logs, rtol=2.5e-4)
    assert len(runs.packed(logs)) < 2000


def line(model: str, seed: int, logs: np.ndarray, **more: Any) -> dict[str, Any]:
    known = {"problem": "skew", "size": 100, "truth": None, "cold": seed == 0, "cpu_fit": 1.0, "cpu_predict": 0.0}
    return known | {"seed": seed, "model": model, "log_density": logs.mean(), "rows": runs.packed(logs)} | more


def test_the_table_sets_gpcde_beside_its_best_rival() -> None:
    logs = np.random.default_rng(0).normal(-3, 1, 1000)
    lines = [line("KDE", seed, logs - 1) for seed in (0, 1)]
    lines += [line("MDN", seed, logs, cpu_fit=5.0 if seed == 0 else 2.0) for seed in (0, 1)]
    lines += [line("Stacked", seed, logs + 1) for seed in (0, 1)]  # no rival
    lines += [line("GP", 0, logs + 2), {"problem": "skew", "size": 100, "seed": 1, "model": "GP", "error": "no"}]
    lines += [line("GPCDE", 0, logs - 0.5), line("GPCDE", 1, logs - 0.3)]
    made = runs.table(lines, ["skew"])
    assert "| MDN |" in made
    assert "| -0.400 ± 0.100 | – | 1 / 1 | 0.2 / 0.5 |" in made
    assert "Of 1, GPCDE is first on 0, and first or within one standard error on 0;" in made
    assert "above it on 1 of 1" in made
    failed = runs.table(
        [*lines, {"problem": "skew", "size": 100, "seed": 1, "model": "GPCDE", "error": "no"}], ["skew"]
    )
    assert "| failed | MDN |" in failed
    assert "it failed on 1" in failed
