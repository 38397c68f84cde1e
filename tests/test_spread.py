"""Rows of a batch shared among devices, and processes: the bound and the model of one; and what happens if one dies."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jax.sharding import Mesh

import gpcde
from gpcde import GP, GPCDE, load
from gpcde.cli import main
from gpcde.estimators import streaming
from gpcde.inference.data import Batch, Stream, StreamError, whole
from gpcde.model import make_inputs
from gpcde.runtime.spread import LOST, Spread, together
from small import rows

X, Y = rows()
SETTINGS: dict[str, Any] = {"max_steps": 100, "n_inducing": 8, "batch_size": 16}
SOURCE = str(Path(gpcde.__file__).parent.parent)

DEVICES = """
import json
import tempfile

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpcde import GPCDE, ParquetRows, scope
from gpcde.inference import Trainer, whole
from gpcde.inference.training import run_chunk
from gpcde.model import make_inputs
from small import rows

X, y = rows()
told = {}
for inference, steps in (("none", 100), ("amortised", 50), ("gaussian", 50), ("free-form", 50)):
    for devices in (None, 4, 3) if inference == "none" else (None, 4):
        settings = {"inference": inference, "max_steps": steps, "batch_size": 16, "n_inducing": 8, "random_state": 0}
        model = GPCDE(**settings, devices=devices).fit(X, y)
        told[f"{inference} {devices}"] = [*model.history_["bound"], *model.predict_density(X).log_pdf(y)]
with tempfile.TemporaryDirectory() as folder:
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": y}), f"{folder}/rows.parquet", row_group_size=10)
    for devices in (None, 4):
        settings = {"inference": "none", "max_steps": 50, "batch_size": 16, "n_inducing": 8, "random_state": 0}
        streamed = GPCDE(**settings, devices=devices).fit(ParquetRows(folder, "y", buffer=1))
        told[f"streamed {devices}"] = [*streamed.history_["bound"], *streamed.state_.posterior.G.ravel()]
with scope():
    trainer = Trainer.create(48, devices=4)
    data, spread = whole(make_inputs(X), y[:, None]), trainer.spread
    some, index = data.batches(jax.random.key(0), 16, spread)(0, 1, 1)
    args = trainer, jax.random.key(0), trainer.init(model.state_.model), some, index, np.asarray(1), np.zeros(1)
    text = jax.jit(run_chunk.__wrapped__).lower(*spread.everywhere(args)).compile().as_text()
    told["sums"] = text.count("all-reduce(")
    told["others"] = sum(text.count(f"{name}(") for name in ("all-gather", "all-to-all", "collective-permute"))
    told["shares"] = "f64[4,2]" in text
print(json.dumps(told))
"""


def run(command: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join([environment.pop("PYTHONPATH", ""), SOURCE, str(Path(__file__).parent)])
    env = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=env, timeout=300)


def test_several_devices_give_the_bound_and_the_model_of_one() -> None:
    """Also where the rows of a batch do not divide evenly; each device has its share, and sums go through all."""
    flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=4"
    done = run(["-c", DEVICES], XLA_FLAGS=flags)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert 0 < told["sums"] < 5  # what the batch counts, and all gradients together
    assert told["others"] == 0
    assert told["shares"]
    for spread in ("none 4", "none 3", "amortised 4", "gaussian 4", "free-form 4", "streamed 4"):
        one = spread.split()[0] + " None"
        np.testing.assert_allclose(told[spread], told[one], rtol=1e-8, atol=1e-8)


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "rows.csv"
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y}).to_csv(path, index=False)
    return str(path)


def words(data: str, *more: str) -> list[str]:
    """A fit of these settings on the command line."""
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    return ["fit", data, "--model", "gp", *settings, *more]


DEATH = """
import os
import signal

if os.environ.get("GPCDE_PROCESS", "").startswith("1/"):
    from gpcde.estimators import monitor

    watch = monitor.Monitor.__call__

    def die(self, state, record):
        if record.step == 50:
            open(os.environ["STAMP"], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return watch(self, state, record)

    monitor.Monitor.__call__ = die
"""


READING = """
import os

if "GPCDE_PROCESS" in os.environ:
    from gpcde.estimators.parquet import ParquetRows

    begin, read = ParquetRows.__init__, ParquetRows.read

    def small(self, *args, **more):
        begin(self, *args, **more, buffer=1)

    def noted(self, number):
        with open(os.environ["NOTES"] + os.environ["GPCDE_PROCESS"][0], "a") as notes:
            print(number, file=notes)
        return read(self, number)

    ParquetRows.__init__, ParquetRows.read = small, noted
"""


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_processes_that_read_a_part_each_give_the_model_of_one(tmp_path: Path, count: int) -> None:
    """Of rows that are streamed, none of which two processes read."""
    folder = tmp_path / "rows"
    folder.mkdir()
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": Y})
    pq.write_table(table, folder / "rows.parquet", row_group_size=7)
    (tmp_path / "sitecustomize.py").write_text(READING)
    out, notes = tmp_path / "model.gpcde", tmp_path / "notes"
    command = ["-m", "gpcde", *words(str(folder), "--processes", str(count), "--out", str(out))]
    done = run(command, PYTHONPATH=str(tmp_path), NOTES=str(notes))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("100 steps, bound") == 1
    assert done.stdout == ""
    read = [Path(f"{notes}{number}").read_text().split() for number in range(count)]
    assert all(len(numbers) > len(set(numbers)) for numbers in read)
    assert sorted(number for numbers in read for number in set(numbers)) == sorted(map(str, range(7)))
    expected = GP(**SETTINGS, random_state=0).fit(gpcde.ParquetRows(folder, ["y"], buffer=1))
    model: Any = load(out)
    np.testing.assert_allclose(model.history_["bound"], expected.history_["bound"], rtol=1e-8)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8), model.state_, expected.state_)


@pytest.mark.slow
def test_processes_that_slurm_starts_find_each_other(tmp_path: Path, data: str) -> None:
    """By what it tells each of them, here on one node; the model is that of one process."""
    out = tmp_path / "model.gpcde"
    command = [sys.executable, "-m", "gpcde", *words(data, "--processes", "auto", "--out", str(out))]
    told = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    env = {**os.environ, **told, "PYTHONPATH": SOURCE, "NPROC": "1"}
    started = [
        subprocess.Popen(command, env={**env, "SLURM_PROCID": place, "SLURM_LOCALID": place}, stderr=subprocess.PIPE)
        for place in "01"
    ]
    said = [process.communicate(timeout=300)[1].decode() for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    assert ["100 steps, bound" in text for text in said] == [True, False]
    frame = pd.DataFrame(X, columns=["a", "b"])
    expected = GP(**SETTINGS, random_state=0).fit(frame, pd.DataFrame({"y": Y}))
    np.testing.assert_allclose(load(out).score(frame, Y), expected.score(frame, Y), rtol=1e-8)


@pytest.mark.slow  # the death of one alone is in test_checkpoint
def test_a_death_ends_the_others_and_one_process_goes_on_from_the_checkpoint(tmp_path: Path, data: str) -> None:
    """The first, which is left, saves what was learnt; the command goes on from there without the second."""
    (tmp_path / "sitecustomize.py").write_text(DEATH)
    three, kept = tmp_path / "three.gpcde", tmp_path / "checkpoint"
    command = words(data, "--checkpoint", str(kept), "--out", str(three), "--model", "gpcde", "--set", "inference=none")
    done = run(["-m", "gpcde", *command, "--processes", "2"], PYTHONPATH=str(tmp_path), STAMP=str(tmp_path / "stamp"))
    assert time.time() - (tmp_path / "stamp").stat().st_mtime < 20
    assert done.returncode == 1
    assert "process 2 of 2 was killed by signal 9: the others were ended" in done.stderr
    assert "another process of this run has ended, or cannot be reached" in done.stderr
    saved: Any = load(kept), load(three)
    assert [int(model.state_.step) for model in saved] == [50, 50]
    assert main(command) == 0
    frame = pd.DataFrame(X, columns=["a", "b"])
    expected = GP(**SETTINGS, random_state=0).fit(frame, pd.DataFrame({"y": Y}))
    np.testing.assert_allclose(load(three).score(frame, Y), expected.score(frame, Y), rtol=1e-8)


WAITING = """
import os
import time

if "GPCDE_PROCESS" in os.environ:
    from gpcde.cli import fitting

    def wait(*given):
        open(os.environ["STAMP"] + os.environ["GPCDE_PROCESS"][0], "w").write(str(os.getpid()))
        time.sleep(200)

    fitting._fit = wait
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_the_death_of_the_one_that_started_them_ends_all(end: signal.Signals, tmp_path: Path, data: str) -> None:
    """Also a death that it cannot know of; JAX lets its processes outlive a SIGTERM."""
    (tmp_path / "sitecustomize.py").write_text(WAITING)
    stamps = [tmp_path / "stamp0", tmp_path / "stamp1"]
    path = os.pathsep.join([str(tmp_path), SOURCE])
    env = {**os.environ, "PYTHONPATH": path, "STAMP": str(tmp_path / "stamp")}
    command = [sys.executable, "-m", "gpcde", *words(data, "--processes", "2")]
    with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 120
        while time.monotonic() < until and not all(stamp.exists() and stamp.read_text() for stamp in stamps):
            time.sleep(0.1)
        children = [int(stamp.read_text()) for stamp in stamps]
        process.send_signal(end)
        process.wait(60)
    until = time.monotonic() + 20
    while time.monotonic() < until and any(map(is_running, children)):
        time.sleep(0.1)
    assert not any(map(is_running, children))


def is_running(number: int) -> bool:
    """Whether there is such a process, and it is not waiting to be buried."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{number}/status").read_text()
    except OSError:
        return False


# processes that read, played by threads


class Played(Spread):
    """Of one device, as far as that matters."""

    def everywhere(self, tree: Any) -> Any:
        return tree


def played(count: int, part: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each of so many processes comes to, its error where it has one."""
    own = threading.local()
    slots: list[Any] = [None] * count
    here, there = threading.Barrier(count, timeout=60), threading.Barrier(count, timeout=60)

    def gather(array: Any) -> np.ndarray:
        slots[own.index] = array
        here.wait()
        every = np.stack(slots)
        there.wait()
        return every

    monkeypatch.setattr(jax, "process_count", lambda: count if hasattr(own, "index") else 1)
    monkeypatch.setattr(jax, "process_index", lambda: getattr(own, "index", 0))
    monkeypatch.setattr("jax.experimental.multihost_utils.process_allgather", gather)

    def play(index: int) -> Any:
        own.index = index
        try:
            return part(Played(Mesh(np.array(jax.devices()), ("rows",))))
        except ValueError as error:
            return error

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(play, range(count)))


def numbered(seen: list[int], gone: int = -1) -> Stream:
    """Parts of rows that are numbered through, one of which cannot be read."""
    sizes = (5, 7, 0, 3, 9, 6, 2)
    ends = np.cumsum(sizes)

    def read(part: int) -> Batch:
        seen.append(part)
        if part == gone:
            raise StreamError(f"part {part} is gone")
        y = np.arange(ends[part] - sizes[part], ends[part], dtype=float)[:, None]
        return whole(make_inputs(y), y)

    return Stream(sizes, read, 8)


@pytest.mark.parametrize("count", [2, 3, 9])
@pytest.mark.parametrize("size", [4, 100])
def test_processes_see_the_batches_of_one_and_read_no_part_twice(
    count: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there are more processes than parts, and where a batch is all rows."""
    key = jax.random.key(0)

    def rows(spread: Any) -> tuple[list[np.ndarray], set[int]]:
        seen: list[int] = []
        with closing(numbered(seen).batches(key, size, spread)) as batches:
            chunks = [batches(step, steps, 5) for step, steps in ((0, 5), (5, 3), (8, 1))]
            return [np.asarray(data.y)[index, 0] for data, index in chunks], set(seen)

    expected, _ = rows(None)
    told = played(count, rows, monkeypatch)
    for found, _ in told:
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    assert sorted(part for _, seen in told for part in seen) == [0, 1, 3, 4, 5, 6]


def test_what_one_process_cannot_read_all_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(spread: Any) -> None:
        with closing(numbered([], gone=4).batches(jax.random.key(0), 4, spread)) as batches:
            batches(0, 8, 8)

    assert [str(error) for error in played(3, rows, monkeypatch)] == ["part 4 is gone"] * 3


@pytest.mark.filterwarnings("ignore::gpcde.DataWarning")
def test_processes_learn_the_units_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, with levels, a digest for checkpoints, the sample, and a row that is left out."""
    wild = np.where(np.arange(len(Y)) == 20, 1e9, Y)
    table = pa.table({"a": X[:, 0], "town": np.where(X[:, 1] > 1, "x", "y"), "y": wild})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=5)
    rows = gpcde.ParquetRows(tmp_path, "y")
    monkeypatch.setattr(streaming, "PLENTY", 30)

    def look(spread: Any) -> Any:
        return streaming.look_over(rows, 0, None, None, False, spread)

    expected = look(None)
    assert sum(expected.sizes) == len(Y) - 1
    for found in played(3, look, monkeypatch):
        jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("devices", [0, 2, True, "some"])
def test_devices_that_are_not_there_are_refused(devices: Any) -> None:
    with pytest.raises(ValueError, match="devices must be 'all', or a number of the 1 there are, got"):
        GPCDE(devices=devices).fit(X, Y)


def test_one_device_is_not_spread() -> None:
    assert Spread.over(None) is Spread.over(1) is Spread.over("all") is None


def test_errors_of_other_kinds_are_left_alone() -> None:
    assert LOST.match("UNKNOWN: Gloo all-reduce failed: Connection reset by peer")
    with pytest.raises(ValueError, match="wrong shape"), together():
        raise ValueError("wrong shape")


@pytest.mark.parametrize("given", ["0", "two", "²"])
def test_a_wrong_number_of_processes_is_refused(given: str, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(data, "--processes", given)) == 2
    assert f"a number of processes, or auto, not '{given}'" in capsys.readouterr().err
