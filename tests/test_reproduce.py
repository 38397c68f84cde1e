"""The runner and the command line of the paper's experiments: units, lines, resuming, failures, tables."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpcde import cli
from gpcde.reproduce import EXPERIMENTS, PRESETS, command, runner
from gpcde.reproduce.lines import append_line, mean_error, picture, read_lines, unpicture
from gpcde.reproduce.reports.tables import fill_page, metric, with_error, write_table
from gpcde.reproduce.runner import ReproduceError, run
from gpcde.reproduce.units import Unit

ROOT = Path(__file__).parent.parent


def units_of(name: str, preset: str) -> list[Unit]:
    return importlib.import_module(f"gpcde.reproduce.experiments.{name}").units(preset)


def trial(model: str = "fine", split: int = 0) -> Unit:
    return Unit("trial", model, "data", split, 0, {"depth": 1})


def do(units: list[Unit], out: Path, jobs: int = 1) -> None:
    run(units, out, jobs, quiet=True, package="trial_experiments")


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that are threads of this process: a new one takes seconds to start."""

    def pool(jobs: int, messages: Any) -> Executor:
        return ThreadPoolExecutor(jobs, initializer=runner.connect, initargs=(messages,))

    monkeypatch.setattr(runner, "worker_pool", pool)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's cache of the test's own, for worker processes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


# units


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


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_units_of_a_preset_are_many_and_different(name: str, preset: str) -> None:
    units = units_of(name, preset)
    assert len({unit.key for unit in units}) == len(units) > 0
    assert all(unit.experiment == name and unit.cost > 0 for unit in units)


def test_less_than_three_hours_for_the_standard_preset() -> None:
    seconds = sum(unit.cost for name in EXPERIMENTS for unit in units_of(name, "standard"))
    assert seconds < 2 * 2.9 * 3600  # on two cores


@pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="the results are not part of every distribution")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_results_kept_are_those_of_the_standard_preset(name: str) -> None:
    kept = {line["key"] for line in read_lines(ROOT / "results" / "standard" / f"{name}.jsonl")}
    assert kept == {unit.key for unit in units_of(name, "standard")}


# lines


def test_a_line_says_what_was_done() -> None:
    line = trial().line({"score": 1.5}, 2.0, 1.0)
    assert {
        "experiment",
        "model",
        "data",
        "split",
        "seed",
        "settings",
        "metrics",
        "seconds",
        "cpu_seconds",
        "version",
    } < set(line)
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


# tables


def test_means_and_tables(tmp_path: Path) -> None:
    lines = [trial(split=i).line({"score": float(v)}, 1.0, 1.0) for i, v in ((1, 5), (0, 1), (2, 3))]
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


@pytest.mark.usefixtures("cache")
def test_what_is_done_is_not_done_again_and_workers_share_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do([trial(split=0), trial(split=1)], tmp_path, jobs=2)
    first = (tmp_path / "trial.jsonl").read_text()
    metrics = [line["metrics"] for line in read_lines(tmp_path / "trial.jsonl")]
    assert sorted(m["answer"] for m in metrics) == [0, 1]
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
        shares = {cores // 2, -(-cores // 2)} if cores > 1 else {1}
        assert {m["cores"] for m in metrics} <= shares
    monkeypatch.setattr(runner, "worker_pool", None)  # no worker may start
    do([trial(split=0), trial(split=1)], tmp_path)
    assert (tmp_path / "trial.jsonl").read_text() == first
    assert not (tmp_path / "unfinished").exists()


@pytest.mark.usefixtures("threads")
def test_a_failure_is_said_and_the_others_are_kept(tmp_path: Path) -> None:
    units = [trial("absent"), trial("fine"), trial("greedy"), trial("wrong"), trial("fine", 1)]
    with pytest.raises(ReproduceError) as caught:
        do(units, tmp_path)
    text = str(caught.value)
    assert "3 of 5 units" in text
    assert "trial data absent 0: there is no such data set: get it from its owner" in text
    assert "greedy 0: out of memory" in text
    assert "wrong 0: ZeroDivisionError: division by zero" in text
    assert {line["split"] for line in read_lines(tmp_path / "trial.jsonl")} == {0, 1}


@pytest.mark.usefixtures("cache")
def test_a_killed_worker_is_told_from_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ReproduceError, match="killed, most likely for want of memory.*--jobs 1"):
        do([trial("fine"), trial("killed")], tmp_path)
    assert len(read_lines(tmp_path / "trial.jsonl")) == 1


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("where", ["worker", "line", "folder"])
def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if where == "line":
        monkeypatch.setattr(runner, "append_line", full)
    if where == "folder":
        monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ReproduceError, match="full: make room.*kept"):
        do([trial("full" if where == "worker" else "fine")], tmp_path)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReproduceError, match="cannot be written.*--out"):
        do([trial()], tmp_path / "file")


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not status.is_file() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def wait_for(condition: Callable[[], Any], seconds: float = 90.0) -> Any:
    """What the condition says, as soon as it is true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return value


def slow_worker(out: Path) -> int:
    """The process that is at work on a slow unit, or 0."""
    texts = [path.read_text() for path in out.glob("unfinished/*.safetensors")]
    return int(texts[0]) if texts and texts[0] else 0


@pytest.mark.usefixtures("cache")
def test_interrupted_it_ends_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        wait_for(lambda: slow_worker(tmp_path))
        raise KeyboardInterrupt

    monkeypatch.setattr(runner.concurrent.futures, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        do([trial("slow")], tmp_path)
    assert not alive(slow_worker(tmp_path))
    assert list(tmp_path.glob("unfinished/*.safetensors"))  # the checkpoint is kept


@pytest.mark.usefixtures("threads")
def test_killed_it_keeps_what_is_done_leaves_no_process_behind_and_goes_on(tmp_path: Path) -> None:
    """Two units: the first is done, the second under way when the process that runs them is killed."""
    script, out = tmp_path / "script.py", tmp_path / "out"
    script.write_text(
        "import sys\nfrom pathlib import Path\n"
        "from gpcde.reproduce.runner import run\nfrom gpcde.reproduce.units import Unit\n"
        "if __name__ == '__main__':\n"
        "    units = [Unit('trial', model, 'data', 0, 0, {'depth': 1}) for model in ('fine', 'slow')]\n"
        "    run(units, Path(sys.argv[1]), 1, True, 'trial_experiments')\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script), str(out)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: read_lines(out / "trial.jsonl"))
    worker = wait_for(lambda: slow_worker(out))
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) != 0
    wait_for(lambda: not alive(worker), 20)
    assert [line["model"] for line in read_lines(out / "trial.jsonl")] == ["fine"]
    do([trial("fine"), trial("slow")], out)
    assert [line["model"] for line in read_lines(out / "trial.jsonl")] == ["fine", "slow"]
    assert not (out / "unfinished").exists()


# the command line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reproduce", "nothing"], "not one of"),
        (["reproduce", "uci", "--preset", "fast"], "not one of"),
        (["reproduce", "uci", "--jobs", "0"], "not in the range"),
    ],
)
def test_a_wrong_word_is_said(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "--help says more" in error
    assert error.count("\n") == 1


def test_help_needs_no_jax() -> None:
    """With the package's own page left out, whose imports are not the command line's."""
    script = (
        "import sys, types\n"
        "package = types.ModuleType('gpcde')\n"
        f"package.__path__ = [{str(Path(cli.__file__).parent.parent)!r}]\n"
        "sys.modules['gpcde'] = package\n"
        "from gpcde.cli import main\n"
        "assert main(['reproduce', '--help']) == 0\n"
        "assert not {'jax', 'numpy', 'scipy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--preset" in done.stdout


@pytest.mark.usefixtures("threads")
def test_missing_data_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("GPCDE_DATA_DIR", str(tmp_path / "data"))
    code = cli.main(["reproduce", "taxi", "--preset", "quick", "--quiet", "--out", str(tmp_path / "out")])
    assert code == 1
    assert "download train.csv of the competition nyc-taxi-trip-duration" in capsys.readouterr().err


def test_an_interrupt_is_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", interrupted)
    assert cli.main(["reproduce", "natgrad", "--out", str(tmp_path)]) == 130
    assert "the same command goes on from here" in capsys.readouterr().err
