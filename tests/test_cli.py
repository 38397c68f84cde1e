"""The command line: the same answers as in Python, in the format that came in, and errors that are one line."""

import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gpcde
from gpcde.cli import frames, main, progress
from gpcde.cli.settings import make_model, parameters
from gpcde.cli.verdict import verdict
from gpcde.estimators.monitor import Monitor
from gpcde.inference.training import Record
from gpcde.runtime.extras import extra
from small import ALONE, assert_same_model, frame, rows

QUICK = ["--set", "n_inducing=8", "--set", "companions=false"]
FORMATS = ["csv", "tsv", "parquet", "feather", "arrow", "arrows", "npz"]


def table(n: int = 48, seed: int = 0) -> pd.DataFrame:
    """Two inputs that are numbers, an id that is none, and y."""
    X, y = rows(n, seed)
    return pd.DataFrame({"id": [f"row {i}" for i in range(n)], "a": X[:, 0], "b": X[:, 1], "y": y})


def write(data: pd.DataFrame, path: Path) -> str:
    frames.write(data, str(path), "csv")
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With tables, a GPCDE, and a linear model whose inputs are a number, a text and a category of numbers."""
    place = tmp_path_factory.mktemp("cli")
    write(table(), place / "rows.csv")
    X, y = frame()
    write(X.assign(y=y), place / "towns.feather")
    arguments = ["--target", "y", "--drop", "id", "--set", "max_steps=50", *QUICK]
    assert main(["fit", str(place / "rows.csv"), *arguments]) == 0
    X, y = rows(outputs=2)
    np.savez(place / "two.npz", X=X, y=y)
    for name in ("towns.feather", "two.npz"):
        assert main(["fit", str(place / name), "--model", "linear"]) == 0
    return place


def answered(*arguments: object, out: Path) -> pd.DataFrame:
    assert main([*map(str, arguments), "--out", str(out)]) == 0
    return frames.read(str(out)).frame


def refused(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 1) -> str:
    """The one line a command says when it cannot be done."""
    capsys.readouterr()
    assert main([str(word) for word in arguments]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("gpcde: ")
    assert said.err.count("\n") == 1
    return said.err


# fit, predict, sample


def test_a_fit_is_the_one_python_makes(folder: Path) -> None:
    data = table()
    model = gpcde.GPCDE(**ALONE, verbose=False)
    model.fit(data[["a", "b"]], data[["y"]])
    saved = gpcde.load(folder / "rows.gpcde")
    assert_same_model(saved, model)
    assert saved.get_params() == gpcde.GPCDE(**ALONE).get_params()


def test_answers_are_those_of_the_density_whatever_columns_are_there_and_in_what_order(
    folder: Path, tmp_path: Path
) -> None:
    data = table(20, 1)[["y", "b", "id", "a"]]
    asked = ["--mean", "--std", "--mode", "--quantiles", "0.05,0.5", "--quantiles", "0.975", "--intervals", "0.8"]
    asked += ["--hdr", "0.9", "--log-density"]
    got = answered("predict", folder / "rows.gpcde", write(data, tmp_path / "new.csv"), *asked, out=tmp_path / "o.csv")
    pd.testing.assert_frame_equal(got[list(data)], data)
    density = gpcde.load(folder / "rows.gpcde").predict_density(data[["a", "b"]])
    wanted = {"y_mean": density.mean(), "y_std": density.std(), "y_mode": density.mode()}
    wanted |= {"y_q5": density.quantile([0.05]), "y_q50": density.quantile([0.5]), "y_q97.5": density.quantile([0.975])}
    wanted |= {f"y_{side}80": density.interval(0.8)[:, end] for end, side in enumerate(("low", "high"))}
    wanted["log_density"] = density.log_pdf(data["y"].to_numpy())
    for name, values in wanted.items():
        np.testing.assert_array_equal(got[name], values.ravel())
    region = density.hdr(0.9)
    for row, intervals in enumerate(region.intervals or []):
        ends = got.filter(like="y_hdr90_").iloc[row].dropna()
        np.testing.assert_array_equal(ends, intervals.ravel())
    assert list(got.filter(like="hdr"))[:2] == ["y_hdr90_low1", "y_hdr90_high1"]
    plain = answered("predict", folder / "rows.gpcde", tmp_path / "new.csv", out=tmp_path / "p.csv")
    assert list(plain)[4:] == ["y_mean", "y_q5", "y_q50", "y_q95"]


@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_gives_the_same_answers_in_that_format(ending: str, folder: Path, tmp_path: Path) -> None:
    """Text, a category of numbers, and numbers to the last bit."""
    X, y = frame(12, 2)
    data = X.assign(y=y) if ending in ("feather", "arrow", "arrows") else X.astype({"level": int}).assign(y=y)
    model = folder / "towns.gpcde"
    got = answered("predict", model, write(data, tmp_path / f"d.{ending}"), "--mean", out=tmp_path / f"o.{ending}")
    mean = gpcde.load(model).predict_density(X).mean()
    np.testing.assert_array_equal(got["y_mean"], mean.ravel())
    np.testing.assert_array_equal(got["a"], X["a"])
    assert got["town"].tolist() == X["town"].tolist()
    again = ["fit", str(tmp_path / f"d.{ending}"), "--categories", "level", "--model", "linear"]
    assert main([*again, "--out", str(tmp_path / "again")]) == 0
    levels = {c.place: tuple(map(str, c.levels)) for c in gpcde.load(tmp_path / "again").features_.categories}
    assert levels == {1: ("x", "y", "z"), 2: ("0", "10")}


def test_matrices_of_numpy_are_columns_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = rows(outputs=2)
    np.savez(tmp_path / "d.npz", X=X, y=y, more=np.arange(len(X)))
    assert main(["fit", str(tmp_path / "d.npz"), "--features", "X", "--model", "linear", "--quiet"]) == 0
    model = gpcde.load(tmp_path / "d.gpcde")
    assert list(model.feature_names_in_) == ["X0", "X1"]
    assert model.output_names_ == ("y0", "y1")
    got = answered("predict", tmp_path / "d.gpcde", tmp_path / "d.npz", "--hdr", "0.5", out=tmp_path / "o.npz")
    X0 = pd.DataFrame(X, columns=["X0", "X1"])
    np.testing.assert_array_equal(got["hdr50_log_density"], model.predict_density(X0).hdr(0.5).log_threshold)
    np.savez(tmp_path / "uneven.npz", X=X, y=y[1:])
    assert "differ in length" in refused(capsys, "fit", tmp_path / "uneven.npz")


def test_codes_that_look_like_numbers_stay_the_text_they_were(tmp_path: Path) -> None:
    """A later file may hold nothing but codes that could be read as numbers."""
    rng = np.random.default_rng(0)
    zone = rng.choice(["07", "7", "A"], 60)
    train = pd.DataFrame({"zone": zone, "y": rng.normal(size=60) + 5 * (zone == "07")})
    assert main(["fit", write(train, tmp_path / "d.csv"), "--model", "linear"]) == 0
    new = write(pd.DataFrame({"zone": ["07", "7"]}), tmp_path / "new.csv")
    got = answered("predict", tmp_path / "d.gpcde", new, "--mean", out=tmp_path / "o.tsv")
    assert got["y_mean"][0] > got["y_mean"][1] + 3
    assert (tmp_path / "o.tsv").read_text().splitlines()[1].startswith("07\t")


def test_a_model_that_was_fitted_without_names_is_told_which_column_is_y(tmp_path: Path) -> None:
    X, y = rows()
    model = gpcde.LinearGaussian().fit(X, y)
    model.save(tmp_path / "m")
    data = write(pd.DataFrame({"a": X[:, 0], "height": y, "b": X[:, 1]}), tmp_path / "d.csv")
    got = answered("predict", tmp_path / "m", data, "--target", "height", "--log-density", out=tmp_path / "o.csv")
    np.testing.assert_array_equal(got["log_density"], model.predict_density(X).log_pdf(y))


def test_draws_are_rows_that_follow_the_density(folder: Path, tmp_path: Path) -> None:
    data = write(table(2, 1), tmp_path / "d.csv")
    ask = ["sample", folder / "rows.gpcde", data, "--size", "2000", "--seed"]
    got, other = (answered(*ask, seed, out=tmp_path / "o.parquet") for seed in (3, 4))
    density = gpcde.load(folder / "rows.gpcde").predict_density(table(2, 1)[["a", "b"]])
    drawn = got["y"].to_numpy().reshape(2, 2000)
    np.testing.assert_array_equal(drawn, density.sample(2000, 3)[..., 0])
    assert not np.array_equal(got["y"], other["y"])
    assert got["row"].tolist() == [0] * 2000 + [1] * 2000
    assert got["draw"].tolist() == 2 * list(range(2000))
    assert got["id"].tolist() == ["row 0"] * 2000 + ["row 1"] * 2000


def test_weights_count_as_rows_that_repeat(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = table(72)
    some = data.assign(w=np.arange(len(data)) % 3)  # two of three rows are there: as many as of the folder's model
    one = write(some, tmp_path / "weights.csv")
    two = write(data.loc[np.repeat(data.index, some["w"])], tmp_path / "repeated.csv")
    fit = ["--drop", "id", "--set", "max_steps=50", *QUICK, "--quiet"]
    assert main(["fit", one, "--weights", "w", *fit]) == main(["fit", two, *fit]) == 0
    assert_same_model(gpcde.load(tmp_path / "weights.gpcde"), gpcde.load(tmp_path / "repeated.gpcde"))
    capsys.readouterr()
    scores = []
    for more in ([one, "--weights", "w"], [two]):
        assert main(["score", str(folder / "rows.gpcde"), *more, "--json"]) == 0
        scores.append(json.loads(capsys.readouterr().out))
    assert scores[0]["log_density"] == pytest.approx(scores[1]["log_density"], rel=1e-12)
    assert scores[0]["crps"] == pytest.approx(scores[1]["crps"], rel=1e-12)
    said = refused(capsys, "fit", one, "--weights", "w", "--model", "linear", code=2)
    assert "LinearGaussian takes none" in said


# parameters


def test_what_is_set_is_toml_and_the_option_has_the_last_word(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('max_steps = 70\nkernel = "rbf"\n[design]\ninducing = 9\npoints = 20\n')
    given = ["kernel=matern52", "y_bounds=[0, inf]", "n_inducing=none", "design.inducing=8", "early_stopping=true"]
    found = parameters(given, str(tmp_path / "s.toml"))
    assert found == {
        "max_steps": 70,
        "kernel": "matern52",
        "design": {"inducing": 8, "points": 20},
        "y_bounds": (0, np.inf),
        "n_inducing": None,
        "early_stopping": True,
    }
    model = make_model("gpcde", found, 5)
    assert isinstance(model, gpcde.GPCDE)
    assert model.design is not None
    assert (model.design.inducing, model.design.points) == (8, 20)
    assert (model.random_state, model.max_steps) == (5, 70)
    assert make_model("mdn", {"random_state": 2}, 5).get_params()["random_state"] == 2


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("max_step=3", "GPCDE has no parameter max_step; it has latent_dim"),
        ("max_steps", "is not NAME=VALUE"),
        ("design.kernels=rbf", "design has no part kernels"),
        ("callbacks=[]", "GPCDE has no parameter callbacks"),
        ("a b=3", "cannot be read"),
    ],
)
def test_a_parameter_that_is_none_is_refused(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capsys, "fit", "nowhere.csv", "--set", word, code=2)


# errors


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["fit", "rows.csv", "--target", "z"], 2, "--target: there is no column z; there are id, a, b, y"),
        (["fit", "rows.csv", "--features", "y"], 2, "rows.csv has no column left to learn from"),
        (["fit", "rows.csv"], 1, "column id has 48 different texts in 48 rows, too many for a category: --drop it"),
        (["fit", "rows.csv", "--target", "id", "--features", "a"], 1, "y must hold numbers"),
        (["fit", "rows.csv", "--out", "no/where"], 2, "there is no folder no"),
        (["fit", "-"], 2, "--out: name the file for the model"),
        (["fit", "."], 2, "--out: name the file for the model"),
        (["fit", "rows.csv", "--out", "."], 2, "--out: . cannot be written"),
        (["predict", "rows.gpcde", "rows.csv", "--out", "no/where"], 2, "there is no folder no"),
        (["predict", "rows.gpcde", "rows.csv", "--out", "a.xlsx"], 2, "a.xlsx is no table: names end in .csv, .tsv"),
        (["score", "rows.gpcde", "rows.csv", "--target", "a"], 2, "--target: the model learnt y, not a"),
        (["plot", "rows.gpcde", "--out", "no/where.png"], 2, "there is no folder no"),
        (["plot", "rows.gpcde", "--kind", "training", "--at", "a=1"], 2, "--kind training holds no input"),
        (["plot", "rows.gpcde", "--kind", "joint"], 1, "a joint density has two outputs or more; this model has one"),
        (["fit", "nowhere.csv"], 1, "there is no file nowhere.csv"),
        (["fit", "empty.csv"], 1, "empty.csv cannot be read as csv"),
        (["fit", "no_rows.csv"], 1, "no_rows.csv has no rows"),
        (["fit", "wrong.parquet"], 1, "wrong.parquet cannot be read as parquet"),
        (["fit", "wrong.npz"], 1, "wrong.npz cannot be read as npz"),
        (["predict", "rows.gpcde", "no_a.csv"], 1, "no_a.csv lacks a, which training had; it has id, b, y"),
        (["predict", "rows.gpcde", "rows.csv", "--quantiles", "2"], 2, "--quantiles': must lie between 0 and 1"),
        (["predict", "rows.gpcde", "rows.csv", "--quantiles", "x"], 2, "x are not numbers"),
        (["predict", "rows.csv", "rows.csv"], 1, "rows.csv is no gpcde model"),
        (["score", "rows.gpcde", "no_y.csv"], 1, "no_y.csv lacks y, the y of the model; it has id, a, b"),
        (["predict", "towns.gpcde", "rows.csv"], 1, "rows.csv lacks town, level, which training had"),
        (["compare", "rows.csv", "--models", "gpcde,forest"], 2, "there is no model forest; there are gpcde, gp"),
        (["plot", "rows.gpcde", "--kind", "pit"], 2, "--kind pit needs DATA"),
        (["guess"], 2, "No such command 'guess'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    arguments: list[str],
    code: int,
    said: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    for name, text in {"empty.csv": "", "no_rows.csv": "a,y\n", "wrong.parquet": "no", "wrong.npz": "PK\3\4no"}.items():
        Path(name).write_text(text)
    for name in ("a", "y"):
        write(table().drop(columns=name), Path(f"no_{name}.csv"))
    assert said in refused(capsys, *arguments, code=code)


def test_dates_in_a_file_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(table().assign(when=pd.date_range("2024", periods=48)), tmp_path / "d.parquet")
    assert "column when of X holds dates or times" in refused(capsys, "fit", data, "--drop", "id")


def test_debug_shows_the_trace_in_whatever_place(folder: Path) -> None:
    for words in (["--debug", "info", "nowhere"], ["info", "nowhere", "--debug"]):
        with pytest.raises(FileNotFoundError, match="there is no file nowhere"):
            main(words)


def test_an_error_of_our_own_is_told_apart(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("gpcde.estimators.base.load", broken)
    assert "an error of gpcde itself (KeyError; --debug shows where)" in refused(capsys, "info", "model")


@pytest.mark.filterwarnings("default::gpcde.DataWarning")
def test_a_warning_is_one_line_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(table().assign(y=np.arange(48) % 3), tmp_path / "d.csv")
    assert main(["fit", data, "--drop", "id", "--model", "linear", "--quiet"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("gpcde: beware: column y of y is 0 in 33% of the 48 rows")
    assert said.err.count("\n") == 1


def test_a_missing_extra_is_named() -> None:
    with (
        pytest.raises(ImportError, match=r"no_such_library cannot be imported: pip install 'gpcde\[plot\]'"),
        extra("plot"),
    ):
        import no_such_library  # noqa: F401
    code = "import sys; sys.modules['click'] = None; from gpcde.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "gpcde: the command line is an extra: click cannot be imported: pip install 'gpcde[cli]'\n"


# judging


def test_scores_are_those_of_the_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["score", str(folder / "rows.gpcde"), str(folder / "rows.csv"), "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    model, data = gpcde.load(folder / "rows.gpcde"), table()
    assert got["log_density"] == pytest.approx(model.score(data[["a", "b"]], data[["y"]]), rel=1e-12)
    logs = model.predict_density(data[["a", "b"]]).log_pdf(data["y"].to_numpy())
    assert got["standard_error"] == pytest.approx(logs.std() / 48**0.5, rel=1e-12)
    assert got["rows"] == 48


def test_models_are_compared_the_best_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["compare", str(folder / "towns.feather"), "--models", "kde,linear", "--folds", "3"]
    assert main(ask) == 0
    header, _, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[1:9:2] == ["model", "log_score", "crps", "calibration_error"]
    assert [line.split()[1] for line in lines] == ["linear", "kde"]
    assert len({len(line) for line in (header, *lines)}) == 1
    assert main([*ask, "--json"]) == 0
    best = json.loads(capsys.readouterr().out)[0]
    X, y = frame()
    (row,) = gpcde.compare(X, y, {"linear": gpcde.LinearGaussian()}, cv=3)
    assert best["log_score"] == pytest.approx(row["log_score"])


def test_a_model_is_diagnosed(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = frame(400, 5)
    capsys.readouterr()
    ask = ["diagnose", str(folder / "towns.gpcde"), write(X.assign(y=y + 3), tmp_path / "d.feather")]
    assert main(ask) == 0
    said = capsys.readouterr().out
    assert "| PIT of y |" in said
    assert "Not calibrated" in said
    assert "y lies higher than the model says" in said
    assert main([*ask, "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    density = gpcde.load(folder / "towns.gpcde").predict_density(X)
    np.testing.assert_allclose(
        [row["central"] for row in got["coverage"]], gpcde.coverage(density, y + 3, [0.5, 0.8, 0.9, 0.95]).observed
    )
    assert got["tests"]["PIT of y"]["p_value"] == pytest.approx(gpcde.uniformity(gpcde.pit(density, y + 3)).p_value)


@pytest.mark.parametrize(
    ("bend", "said"),
    [
        (lambda u: u, "Calibrated, as far as 1000 rows can tell."),
        (lambda u: u**1.3, "z lies lower than the model says: 41 % of the rows above its median."),
        (lambda u: 1 - (1 - u) ** 1.3, "z lies higher"),
        (lambda u: 0.5 + np.sign(u - 0.5) * np.abs(2 * u - 1) ** 0.5 / 2, "too narrow, the model is too sure: 90 %"),
        (lambda u: 0.5 + np.sign(u - 0.5) * np.abs(2 * u - 1) ** 2 / 2, "too wide"),
        (lambda u: u + 0.06 * np.sin(6 * np.pi * u), "wrong shape"),
    ],
    ids=["right", "low", "high", "narrow", "wide", "shape"],
)
def test_a_verdict_names_the_reason(bend: Callable[[np.ndarray], np.ndarray], said: str) -> None:
    """For values that are evenly spread, and bent by what goes wrong; another output is right."""
    even = (np.arange(1000) + 0.5) / 1000
    told = verdict(np.stack([even, bend(even)], axis=1), even, ["y", "z"])
    assert said in told[-1]
    assert len(told) == (1 if "Calibrated" in said else 2)


def test_a_verdict_on_few_rows_and_on_regions() -> None:
    even = (np.arange(100) + 0.5) / 100
    assert "only gross errors would show" in verdict(even[:, None], even, ["y"])[0]
    said = verdict(even[:, None], even**0.5, ["y"])[1]
    assert said.startswith("Regions of highest density are too small: those of 90 % hold y in 81 % of the rows.")


def test_a_file_is_described(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["info", str(folder / "rows.gpcde"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["model"], list(facts["inputs"]), list(facts["outputs"])) == ("GPCDE", ["a", "b"], ["y"])
    assert facts["set"] == {"max_steps": "50", "companions": "False", "n_inducing": "8", "random_state": "0"}
    assert (facts["training"]["steps"], facts["training"]["rows"]) == (50, 48)
    assert main(["info", str(folder / "towns.gpcde")]) == 0
    said = capsys.readouterr().out
    assert "category: x, y, z" in said
    assert "category: 0, 10" in said


# progress and interruption


def test_progress_says_bound_noise_speed_and_time_left() -> None:
    first, later = Record(50, -2.0, 0.25, 10.0, 1000), Record(150, -1.5, 0.04, 14.0, 1000)
    assert progress.describe(first, first) == "step 50/1000  bound -2.0000  noise 0.500"
    assert progress.describe(first, later) == "step 150/1000  bound -1.5000  noise 0.200  25 steps/s  00:00:34 left"


def test_a_bar_is_shown_in_a_terminal_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    ask = ["fit", str(folder / "rows.csv"), "--drop", "id", "--set", "max_steps=150", *QUICK]
    assert main([*ask, "--out", str(tmp_path / "m")]) == 0
    plain = capfd.readouterr()
    assert plain.out == ""
    assert plain.err.startswith(f"gpcde: {tmp_path / 'm'}: GPCDE of y given a, b, 150 steps, bound ")
    assert plain.err.count("\n") == 1
    assert "\x1b" not in plain.err
    for quiet in (False, True):
        with monkeypatch.context() as patch:
            patch.setenv("TERM", "xterm")
            patch.setenv("COLUMNS", "160")
            patch.setattr(sys, "stderr", screen := Terminal())
            assert main([*ask, "--out", str(tmp_path / "m"), *["--quiet"] * quiet]) == 0
            shown = screen.getvalue()
        assert ("compiling" in shown and "steps/s" in shown and "left" in shown) == (not quiet)


def test_an_interrupted_fit_keeps_its_model_and_goes_on_as_if_nothing_had_been(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    look = Monitor._is_enough

    def pressed(*arguments: Any) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return look(*arguments)

    ask = ["fit", str(folder / "rows.csv"), "--drop", "id", "--set", "max_steps=150", *QUICK, "--quiet"]
    again = [*ask, "--checkpoint", str(tmp_path / "c"), "--out", str(tmp_path / "m")]
    with monkeypatch.context() as patch:
        patch.setattr(Monitor, "_is_enough", pressed)
        assert main(again) == 130
    assert capsys.readouterr().err == f"gpcde: stopped before its end; the model so far is {tmp_path / 'm'}\n"
    model = gpcde.load(tmp_path / "m")
    assert isinstance(model, gpcde.GPCDE)
    assert model.n_steps_ == 50
    assert np.isfinite(model.score(table()[["a", "b"]], table()["y"]))
    assert main(again) == main([*ask, "--out", str(tmp_path / "whole")]) == 0
    assert_same_model(gpcde.load(tmp_path / "m"), gpcde.load(tmp_path / "whole"))


@pytest.mark.parametrize("kind", ["gpcde", "linear"])
def test_a_fit_that_was_interrupted_too_early_leaves_nothing(
    kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpcde.DensityEstimator, "_learn_units", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    ask = ["fit", str(folder / "rows.csv"), "--drop", "id", "--model", kind, "--out", str(tmp_path / "m")]
    assert main(ask) == 130
    assert capsys.readouterr().err.endswith("\ngpcde: stopped\n")
    assert not (tmp_path / "m").exists()


# as a program


def program(*arguments: object, **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "gpcde", *map(str, arguments)], capture_output=True, check=False, **more
    )


def test_pipes_carry_tables_in_the_format_they_have(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = frame(5, 3)
    file = BytesIO()
    data = pa.Table.from_pandas(X.assign(y=y), preserve_index=False)
    with pa.ipc.new_stream(file, data.schema) as stream:
        stream.write_table(data)
    done = program("predict", folder / "towns.gpcde", "-", "--mean", input=file.getvalue())
    assert (done.returncode, done.stderr) == (0, b"")
    got = pa.ipc.open_stream(done.stdout).read_pandas()
    np.testing.assert_array_equal(got["y_mean"], gpcde.load(folder / "towns.gpcde").predict_density(X).mean().ravel())
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(X.to_csv(index=False).encode())))
    said = refused(capsys, "score", folder / "towns.gpcde", "-")
    assert said == "gpcde: the table on stdin lacks y, the y of the model; it has a, town, level\n"


def test_what_no_one_can_read_is_not_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(click.UsageError, match="parquet is not for a terminal: name a file by --out"):
        frames.check_terminal("-", "parquet")
    frames.check_terminal("-", "csv")
    frames.check_terminal("answers.parquet", "parquet")


def test_a_reader_that_has_enough_is_no_error() -> None:
    read, out = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", "gpcde", "--help"], stdout=out, stderr=subprocess.PIPE, check=False)
    os.close(out)
    assert (done.returncode, done.stderr) == (1, b"")


def test_help_is_quick() -> None:
    """CPU seconds of a new process, the best of three."""
    code = "import os, sys, gpcde.cli; gpcde.cli.main(['--help']); print(sum(os.times()[:2]))"
    times = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(3)]
    assert min(float(text.split()[-1]) for text in times) < 0.3


def test_the_shell_completes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    assert "_GPCDE_COMPLETE=bash_complete" in capsys.readouterr().out
    words = {"_GPCDE_COMPLETE": "bash_complete", "COMP_WORDS": "gpcde pre", "COMP_CWORD": "1"}
    assert program(env={**os.environ, **words}).stdout == b"plain,predict\n"


# pictures


def test_exploring_is_told_the_model_the_data_and_the_port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setitem(sys.modules, "gpcde.explorer", types.SimpleNamespace(serve=lambda *a: asked.append(a)))
    model = str(folder / "rows.gpcde")
    assert main(["explore", model, "--data", str(folder / "rows.csv"), "--port", "8123", "--no-browser"]) == 0
    assert main(["explore", model]) == 0
    (path, data, *rest), bare = asked
    assert (path, rest, bare) == (model, [8123, False], (model, None, 0, True))
    pd.testing.assert_frame_equal(data, table())


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("heatmap", ["--feature", "town", "--at", "a=0.5"]),
        ("fan", []),
        ("effect", ["--feature", "town"]),
        ("densities", ["--at", "town=x", "--at", "town=y,level=10"]),
        ("joint", ["--output", "y1,y0"]),
        ("pit", ["--output", "y"]),
        ("coverage", []),
        ("training", []),
        ("latent", []),
    ],
)
def test_a_picture_is_drawn(
    kind: str, more: list[str], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    names = {"training": ("rows", "csv"), "latent": ("rows", "csv"), "joint": ("two", "npz")}
    model, ending = names.get(kind, ("towns", "feather"))
    ask = ["plot", str(folder / f"{model}.gpcde"), str(folder / f"{model}.{ending}"), "--kind", kind, *more]
    assert main([*ask, "--out", str(tmp_path / "p.png")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'p.png'}\n"
    assert (tmp_path / "p.png").stat().st_size > 5000


def test_a_place_must_be_one_of_the_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["plot", folder / "towns.gpcde", "--at"]
    assert "there is no input b; there are a, town, level" in refused(capsys, *ask, "b=1", code=2)
    assert "town is one of x, y, z, not w" in refused(capsys, *ask, "town=w", code=2)
    assert "a is a number, not 'x'" in refused(capsys, *ask, "a=x", code=2)
    assert "only --kind densities draws several places" in refused(capsys, *ask, "a=1", "--at", "a=2", code=2)
