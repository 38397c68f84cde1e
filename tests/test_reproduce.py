"""The runner and the command line of the paper's experiments: lines, resuming, failures, and every quick preset."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from gpcde.reproduce._report import fill_page, mean_error, metric, with_error, write_table
from gpcde.reproduce._run import ReproduceError, run
from gpcde.reproduce._training import Course, resumed, train_design
from gpcde.reproduce._units import Unit, append_line, picture, read_lines, unpicture

from gpcde import Design, cli, make_inputs
from gpcde.reproduce import EXPERIMENTS, PRESETS, _run, _training, mnist, natgrad, omniglot, taxi, uci

MODULES = {"mnist": mnist, "natgrad": natgrad, "omniglot": omniglot, "taxi": taxi, "uci": uci}


def trial(model: str = "fine", split: int = 0) -> Unit:
    return Unit("trial", model, "data", split, 0, {"depth": 1})


def do(units: list[Unit], out: Path, jobs: int = 1) -> None:
    run(units, out, jobs, quiet=True, package="trial_experiments")


# lines


def test_a_unit_is_told_by_all_but_its_cost() -> None:
    unit = trial()
    assert unit._replace(cost=9.0).key == unit.key
    changed = [
        unit._replace(model="other"),
        unit._replace(data="other"),
        unit._replace(split=1),
        unit._replace(seed=1),
        unit._replace(settings={"depth": 2}),
    ]
    assert len({unit.key, *(u.key for u in changed)}) == 6


def test_a_line_says_what_was_done() -> None:
    line = trial().line({"score": 1.5}, 2.0)
    assert {"experiment", "model", "data", "split", "seed", "settings", "metrics", "seconds", "version"} < set(line)
    assert json.loads(json.dumps(line)) == line


def test_a_line_cut_off_is_not_there_and_harms_no_other(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    append_line(path, {"key": "a"})
    with path.open("a") as file:
        file.write('{"key": "b", "met')
    assert [line["key"] for line in read_lines(path)] == ["a"]
    append_line(path, {"key": "c"})
    assert [line["key"] for line in read_lines(path)] == ["a", "c"]
    assert read_lines(tmp_path / "none.jsonl") == []


def test_a_line_holds_no_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        append_line(tmp_path / "x.jsonl", {"score": float("nan")})


def test_pictures_come_back_as_near_as_their_levels() -> None:
    values = np.random.default_rng(0).uniform(-3, 2, (4, 5, 6))
    again = unpicture(json.loads(json.dumps(picture(values, -2, 2, levels=64))))
    assert again.shape == values.shape
    np.testing.assert_allclose(again, np.clip(values, -2, 2), atol=4 / 63 / 2 + 1e-12)


def test_means_and_tables(tmp_path: Path) -> None:
    lines = [trial(split=i).line({"score": float(v)}, 1.0) for i, v in ((1, 5), (0, 1), (2, 3))]
    np.testing.assert_array_equal(metric(lines, "score", model="fine"), [1, 5, 3])
    assert mean_error(np.array([1.0, 5, 3])) == pytest.approx((3, 2 / 3**0.5))
    assert with_error(np.array([1.0, 5, 3]), 2) == "3.00 ± 1.15"
    assert with_error(np.array([1.0])) == "1.000"
    assert with_error(np.array([])) == "–"
    write_table(tmp_path, "t", ["a", "b"], [[1, "x"]], "Note.")
    assert (tmp_path / "t.md").read_text() == "| a | b |\n|---|---|\n| 1 | x |\n\nNote.\n"
    assert (tmp_path / "t.csv").read_text().splitlines() == ["a,b", "1,x"]


def test_a_page_gets_its_tables(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    before = (
        "# A\n\n<!-- standard/t -->\nold\n<!-- /standard/t -->\n\n<!-- standard/u -->\nkept\n<!-- /standard/u -->\n"
    )
    page.write_text(before)
    (tmp_path / "standard").mkdir()
    write_table(tmp_path / "standard", "t", ["a"], [[1]])
    fill_page(page)
    fill_page(page)
    assert page.read_text() == before.replace("old", "| a |\n|---|\n| 1 |")
    fill_page(tmp_path / "none.md")


# the runner


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    do([trial(split=0), trial(split=1)], tmp_path, jobs=2)
    first = (tmp_path / "trial.jsonl").read_text()
    assert sorted(line["metrics"]["answer"] for line in read_lines(tmp_path / "trial.jsonl")) == [0, 1]
    monkeypatch.setattr(_run.concurrent.futures, "ProcessPoolExecutor", None)  # no worker may start
    do([trial(split=0), trial(split=1)], tmp_path)
    assert (tmp_path / "trial.jsonl").read_text() == first
    assert not (tmp_path / "unfinished").exists()


def test_a_failure_is_said_and_the_others_are_kept(tmp_path: Path) -> None:
    units = [trial("absent"), trial("fine"), trial("greedy"), trial("wrong"), trial("fine", 1)]
    with pytest.raises(ReproduceError) as caught:
        do(units, tmp_path)
    text = str(caught.value)
    assert "3 of 5 units" in text
    assert "trial data absent 0: there is no such data set: get it from its owner" in text
    assert "greedy 0: out of memory" in text
    assert "wrong 0: ZeroDivisionError: division by zero" in text
    assert [line["split"] for line in read_lines(tmp_path / "trial.jsonl")] == [0, 1]


def test_a_killed_worker_is_told_from_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ReproduceError, match="killed, most likely for want of memory.*--jobs 1"):
        do([trial("fine"), trial("killed")], tmp_path)
    assert len(read_lines(tmp_path / "trial.jsonl")) == 1


@pytest.mark.parametrize("where", ["worker", "line", "folder"])
def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if where == "line":
        monkeypatch.setattr(_run, "append_line", full)
    if where == "folder":
        monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ReproduceError, match="full: make room.*kept"):
        do([trial("full" if where == "worker" else "fine")], tmp_path)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReproduceError, match="cannot be written.*--out"):
        do([trial()], tmp_path / "file")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind processes to cores")
def test_workers_share_the_cores(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    do([trial()], tmp_path, jobs=1)
    assert read_lines(tmp_path / "trial.jsonl")[0]["metrics"]["cores"] == cores


class Interrupted(Exception):
    pass


def test_training_that_was_cut_off_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_training, "CHECKPOINT_SECONDS", 0.0)
    rng = np.random.default_rng(0)
    x, y = make_inputs(rng.normal(size=(30, 1))), rng.normal(size=(30, 1))
    design = Design(inference="none", inducing=5)
    course = Course(150, 10, (0.02, 0.002), (0.1, 0.1))
    checkpoint = tmp_path / "x.safetensors"
    told: list[float] = []

    def tell(share: float) -> None:
        told.append(share)
        if len(told) == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        train_design(0, x, y, design, course, tell, checkpoint)
    assert told == pytest.approx([1 / 3, 2 / 3, 1])
    cut = checkpoint.read_bytes()
    state, records = train_design(0, x, y, design, course, told.append, checkpoint)
    assert told[3:] == pytest.approx([1])  # one chunk of steps was left
    whole, all_records = train_design(0, x, y, design, course, lambda share: None, tmp_path / "y.safetensors")
    assert [r.step for r in records] == [r.step for r in all_records] == [50, 100, 150]
    for one, two in zip(jax.tree.leaves(state), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(one, two)
    # what belongs to other data, or is damaged, is left aside
    assert resumed(checkpoint, design, course, y) is not None
    assert resumed(checkpoint, design, course, y + 1) is None
    checkpoint.write_bytes(cut[:100])
    assert resumed(checkpoint, design, course, y) is None


def test_of_two_starts_the_training_bound_chooses(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 1)), rng.choice([-1.0, 1.0], (60, 1)) + 0.1 * rng.normal(size=(60, 1))
    task = uci.Task(make_inputs(x), y, make_inputs(x), y, 0.0)
    settings = uci.units("quick")[-1].settings | {"inducing": 8, "points": 10, "first_steps": 50}
    starts = [uci.FLAT | {"steps": 50}, settings["starts"][0] | {"steps": 50}]

    def bound(starts: list[dict], name: str) -> float:
        unit = Unit("uci", uci.OPTIMAL, "two humps", 0, 0, settings | {"starts": starts})
        _, state = uci._trained(unit, task, lambda share: None, tmp_path / name)
        return uci._bound(0, state, task, settings["batch"])

    one, two = (bound([how], f"{i}.safetensors") for i, how in enumerate(starts))
    assert abs(one - two) > 0.005
    for order in (starts, starts[::-1]):
        assert bound(order, "both.safetensors") == pytest.approx(max(one, two), abs=1e-9)


# the command line


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_units_of_a_preset_are_many_and_different(name: str, preset: str) -> None:
    units = MODULES[name].units(preset)
    assert len({unit.key for unit in units}) == len(units) > 0
    assert all(unit.experiment == name and unit.cost > 0 for unit in units)


def test_two_hours_for_the_standard_preset() -> None:
    seconds = sum(unit.cost for name in EXPERIMENTS for unit in MODULES[name].units("standard"))
    assert seconds < 2 * 2.2 * 3600  # about two hours on two cores


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reproduce", "nothing"], "invalid choice"),
        (["reproduce", "uci", "--preset", "fast"], "invalid choice"),
        (["reproduce", "uci", "--jobs", "0"], "whole number from 1 on"),
        ([], "required"),
    ],
)
def test_a_wrong_word_is_said(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_missing_data_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("GPCDE_DATA_DIR", str(tmp_path / "data"))
    code = cli.main(["reproduce", "taxi", "--preset", "quick", "--quiet", "--out", str(tmp_path / "out")])
    assert code == 1
    assert "download train.csv of the competition nyc-taxi-trip-duration" in capsys.readouterr().err


def make_data(folder: Path) -> None:
    """Small stand-ins for all data sets, in the form of the real ones."""
    rng = np.random.default_rng(0)
    for name in ("uci", "mnist", "omniglot", "taxi"):
        (folder / name).mkdir(parents=True)
    X = rng.normal(size=(308, 6))
    np.savez(folder / "uci" / "yacht.npz", X=X, y=X[:, 0] + 0.3 * rng.normal(size=308))
    shapes = rng.uniform(0, 255, (10, 28, 28))
    labels = {"train": np.resize(np.arange(10), 400), "test": np.resize(np.arange(10), 60)}
    labels["train"][200:] = 1  # natgrad wants a hundred ones
    images = {
        part: np.clip(shapes[known] + 20 * rng.normal(size=(len(known), 28, 28)), 0, 255).astype(np.uint8)
        for part, known in labels.items()
    }
    both = {f"x_{part}": images[part] for part in images} | {f"y_{part}": labels[part] for part in labels}
    np.savez(folder / "mnist" / "mnist.npz", **both)  # type: ignore[arg-type]
    class_id = np.repeat(np.arange(10), 20)
    drawings = np.clip(shapes[class_id] + 20 * rng.normal(size=(200, 28, 28)), 0, 255).astype(np.uint8)
    np.savez(folder / "omniglot" / "omniglot28.npz", images=drawings, class_id=class_id, is_evaluation=class_id >= 6)
    rows = 1500
    ends = {f"{end}_lon": rng.uniform(-74.01, -73.94, rows) for end in ("pickup", "dropoff")}
    ends |= {f"{end}_lat": rng.uniform(40.71, 40.82, rows) for end in ("pickup", "dropoff")}
    when = rng.integers(0, 7 * 86_400, rows)
    file = folder / "taxi" / "kaggle_nyc_trip_duration_5pct.npz"
    np.savez(file, **ends, pickup_time=when, duration=np.full(rows, 600.0))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("reproduce")
    make_data(place / "data")
    return place


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "gpcde", "reproduce", *arguments, "--preset", "quick", "--out", str(folder / "out")]


def environment(folder: Path) -> dict[str, str]:
    own = {"GPCDE_DATA_DIR": str(folder / "data"), "XDG_CACHE_HOME": str(folder / "cache"), "MPLBACKEND": "agg"}
    return {**os.environ, **own}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_quick_preset_makes_tables_and_figures(folder: Path, name: str) -> None:
    done = subprocess.run(
        command(folder, name, "--quiet"), env=environment(folder), capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    out = folder / "out" / "quick"
    lines = read_lines(out / f"{name}.jsonl")
    assert {line["key"] for line in lines} == {unit.key for unit in MODULES[name].units("quick")}
    for suffix in ("md", "csv"):
        assert (out / f"{name}.{suffix}").stat().st_size > 50
    figures = sorted(out.glob(f"{name}*.png"))
    assert figures
    assert all(figure.with_suffix(".pdf").is_file() for figure in figures)
    # from the lines alone: the data are gone, and the tables are the same
    before = (out / f"{name}.md").read_text()
    (out / f"{name}.md").unlink()
    hidden = folder / "hidden"
    (folder / "data").rename(hidden)
    try:
        again = subprocess.run(
            command(folder, name), env=environment(folder), capture_output=True, text=True, timeout=90
        )
    finally:
        hidden.rename(folder / "data")
    assert again.returncode == 0, again.stderr
    assert (out / f"{name}.md").read_text() == before


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not status.is_file() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_killed_it_keeps_what_is_done_and_leaves_no_process_behind(tmp_path: Path, how: signal.Signals) -> None:
    """Two units: the first is done, the second under way when the runner is interrupted."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\n"
        "from gpcde.reproduce._run import run\nfrom gpcde.reproduce._units import Unit\n"
        "if __name__ == '__main__':\n"
        "    units = [Unit('trial', model, 'data', 0, 0, {}) for model in ('fine', 'slow')]\n"
        "    run(units, Path(sys.argv[1]), 1, True, 'trial_experiments')\n"
    )
    place = str(Path(__file__).parent)
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": place},
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 60
    unfinished, finished = tmp_path / "out" / "unfinished", tmp_path / "out" / "trial.jsonl"
    while not (list(unfinished.glob("*.safetensors")) and read_lines(finished)) and time.monotonic() < end:
        time.sleep(0.1)
    worker = int(next(unfinished.glob("*.safetensors")).read_text())
    process.send_signal(how)
    assert process.wait(30) != 0
    end = time.monotonic() + 20
    while alive(worker) and time.monotonic() < end:
        time.sleep(0.1)
    assert not alive(worker)
    assert [line["model"] for line in read_lines(finished)] == ["fine"]
    assert list(unfinished.glob("*.safetensors"))  # the checkpoint is kept
