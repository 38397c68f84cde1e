"""Checkpoints: a fit that was interrupted goes on as if nothing had been."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import gpcde
from gpcde import GPCDE, FitWarning
from gpcde.estimators import course, monitor
from gpcde.inference import Record
from gpcde.runtime import disk
from small import QUICK, assert_same_model, fitted, no_larger_than, rows

X, Y = rows()
BATCHES: dict[str, Any] = {**QUICK, "inference": "free-form", "batch_size": 16, "max_steps": 200}


def quick(**parameters: Any) -> GPCDE:
    return GPCDE(**{"inference": "none", **QUICK, **parameters})


@cache
def whole_fit() -> GPCDE:
    """What a fit with `BATCHES` that nothing disturbed ends with."""
    return GPCDE(**BATCHES).fit(X, Y)


class Crash(Exception):
    pass


def crash_at(step: int) -> Callable[[GPCDE, Record], None]:
    def crash(model: GPCDE, record: Record) -> None:
        if record.step == step:
            raise Crash

    return crash


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "CHECKPOINT_SECONDS", -1.0)


@pytest.mark.usefixtures("often")
def test_an_interrupted_fit_resumes_as_if_nothing_had_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint is of step 100: a callback comes before it is written. A finished one is taken as it is."""
    settings = {**BATCHES, "checkpoint": tmp_path / "checkpoint"}
    with pytest.raises(Crash):
        GPCDE(**settings, callbacks=[crash_at(150)]).fit(X, Y)
    seen: list[int] = []
    resumed = GPCDE(**settings, callbacks=[lambda model, record: seen.append(record.step)]).fit(X, Y)
    assert seen == [150, 200]
    assert_same_model(resumed, whole_fit())

    monkeypatch.setattr(course, "train", None)
    assert_same_model(GPCDE(**settings).fit(X, Y), whole_fit())


@pytest.mark.usefixtures("often")
def test_a_resumed_fit_ends_where_it_would_have(tmp_path: Path) -> None:
    """The gain of the first chunk after the interruption counts from the last one before it."""
    settings: dict[str, Any] = {"max_steps": 200, "learning_rate": 0.02}  # large enough that each chunk gains less
    free = quick(**settings, tol=0.0).fit(X, Y).history_["bound"]
    settings["tol"] = float(abs(free[2] - free[1])) * 1.01
    whole = quick(**settings).fit(X, Y)
    settings["checkpoint"] = str(tmp_path / "checkpoint")
    assert whole.n_steps_ == 150
    with pytest.raises(Crash):
        quick(**settings, callbacks=[crash_at(150)]).fit(X, Y)
    assert_same_model(quick(**settings).fit(X, Y), whole)


@pytest.mark.usefixtures("often")
def test_early_stopping_remembers_its_best_state(tmp_path: Path) -> None:
    """The best state of the held-out rows, and how long it has waited, survive the interruption."""
    settings: dict[str, Any] = {"batch_size": 8, "max_steps": 600, "early_stopping": True, "patience": 3}
    noise = np.random.default_rng(0).standard_normal(len(X))  # nothing to learn: the first state is the best
    whole = quick(**settings).fit(X, noise)
    ended = int(whole.history_["step"][-1])
    assert whole.n_steps_ < ended
    settings["checkpoint"] = str(tmp_path / "checkpoint")
    with pytest.raises(Crash):
        quick(**settings, callbacks=[crash_at(ended)]).fit(X, noise)
    resumed = quick(**settings).fit(X, noise)
    assert resumed.history_["step"][-1] == ended
    assert_same_model(resumed, whole)


@pytest.mark.usefixtures("often")
def test_a_second_fit_may_be_interrupted_too(tmp_path: Path) -> None:
    """What is left of the first fit does not make the second one's checkpoint look finished."""
    settings = {"max_steps": 200, "tol": 0.0, "checkpoint": tmp_path / "checkpoint"}
    model = quick(**settings).fit(X, 2 * Y + X[:, 1])
    (tmp_path / "checkpoint").unlink()
    with pytest.raises(Crash):
        model.set_params(callbacks=[crash_at(100)]).fit(X, Y)
    resumed = model.set_params(callbacks=None).fit(X, Y)
    assert_same_model(resumed, quick(max_steps=200, tol=0.0).fit(X, Y))


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    quick(checkpoint=path).fit(X, Y)
    for other in (quick(checkpoint=path, learning_rate=0.01), quick(checkpoint=path, random_state=1)):
        with pytest.raises(ValueError, match="checkpoint .* belongs to other data or settings: delete it"):
            other.fit(X, Y)
    with pytest.raises(ValueError, match="belongs to other data or settings"):
        quick(checkpoint=path).fit(X, Y + X[:, 0])
    with pytest.raises(ValueError, match="belongs to other data or settings"):
        quick(checkpoint=path).fit(X, Y, np.linspace(1, 2, len(Y)))
    fitted("mdn")[0].save(path)
    with pytest.raises(ValueError, match="belongs to other data or settings"):
        quick(checkpoint=path).fit(X, Y)
    path.write_text("what is this")
    with pytest.raises(gpcde.FileError):
        quick(checkpoint=path).fit(X, Y)


# interrupted


def interrupt_at(step: int) -> Callable[[GPCDE, Record], None]:
    """As Ctrl-C does."""

    def interrupt(model: GPCDE, record: Record) -> None:
        if record.step == step:
            signal.raise_signal(signal.SIGINT)

    return interrupt


def test_ctrl_c_leaves_the_last_good_state_from_which_a_fit_goes_on() -> None:
    """The model is what a shorter fit of the same schedule had been; state, history and number of steps agree."""
    model = GPCDE(**BATCHES, callbacks=[interrupt_at(100)])
    with pytest.warns(FitWarning, match="interrupted: the model is that of step 100, .* warm_start=True goes on"):  # noqa: SIM117
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
    assert (int(model.state_.step), model.n_steps_) == (100, 100)
    np.testing.assert_array_equal(model.history_["bound"], whole_fit().history_["bound"][:2])
    assert model.score(X, Y) == pytest.approx(whole_fit().score(X, Y), abs=0.5)
    model.set_params(warm_start=True, max_steps=100, callbacks=None).fit(X, Y)
    assert (model.n_steps_, list(model.history_["step"])) == (200, [50, 100, 150, 200])


def test_a_fit_interrupted_before_its_first_steps_is_no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the start was found or not; what was learnt before is kept by a `partial_fit`."""
    model, known = quick(), quick().fit(X, Y)
    before, seen = known.state_, known.n_seen_
    monkeypatch.setattr(course, "train", lambda *args, **more: signal.raise_signal(signal.SIGINT))
    with pytest.warns(FitWarning, match="before its first steps .* not fitted"), pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.warns(FitWarning, match="step 50"), pytest.raises(KeyboardInterrupt):
        known.partial_fit(X, Y)
    assert known.state_ is before
    assert (known.n_seen_, known.n_steps_) == (seen, 50)
    monkeypatch.undo()
    assert_same_model(model.fit(X, Y), fitted("none")[0])


def test_ctrl_c_writes_a_checkpoint(tmp_path: Path) -> None:
    """Long before one is due."""
    settings = {**BATCHES, "checkpoint": tmp_path / "checkpoint"}
    with pytest.warns(FitWarning, match="from its checkpoint"), pytest.raises(KeyboardInterrupt):
        GPCDE(**settings, callbacks=[interrupt_at(150)]).fit(X, Y)
    seen: list[int] = []
    resumed = GPCDE(**settings, callbacks=[lambda model, record: seen.append(record.step)]).fit(X, Y)
    assert seen == [200]
    assert_same_model(resumed, whole_fit())


# what happens to the files


def kept_steps(folder: Path) -> dict[str, int]:
    """The files in a folder of checkpoints, and of which step they are."""
    return {path.name: int(gpcde.load(path).state_.step) for path in folder.iterdir()}


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("damage", ["cut off", "altered", "empty"])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_it_serves(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    with pytest.raises(Crash):
        GPCDE(**BATCHES, checkpoint=path, callbacks=[crash_at(150)]).fit(X, Y)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", "checkpoint.before"]
    content = path.read_bytes()
    half = len(content) // 2
    path.write_bytes({"cut off": content[:half], "altered": content[:-1] + b"?", "empty": b""}[damage])
    seen: list[int] = []
    with pytest.warns(FitWarning, match="checkpoint .*(altered|cut off).* Going on from the checkpoint before it"):
        resumed = GPCDE(**BATCHES, checkpoint=path, callbacks=[lambda m, r: seen.append(r.step)]).fit(X, Y)
    assert seen == [100, 150, 200]
    assert_same_model(resumed, whole_fit())
    path.write_bytes(b"")
    (tmp_path / "checkpoint.before").write_bytes(b"")
    with pytest.raises(ValueError, match="some other file: name another"):
        GPCDE(**BATCHES, checkpoint=path).fit(X, Y)


@pytest.mark.usefixtures("often")
def test_a_full_disk_warns_and_training_goes_on(tmp_path: Path) -> None:
    """The disk is full from the third checkpoint to the end: the first two are as they were, to be gone on from."""
    path = tmp_path / "checkpoint"
    with contextlib.ExitStack() as full:

        def fill(model: GPCDE, record: Record) -> None:
            if record.step == 150:
                full.enter_context(no_larger_than(2000))

        with pytest.warns(FitWarning, match="could not be written .*File too large.*training goes on"):
            model = GPCDE(**BATCHES, checkpoint=path, callbacks=[fill]).fit(X, Y)
    assert_same_model(model, whole_fit())
    assert kept_steps(tmp_path) == {"checkpoint": 100, "checkpoint.before": 50}
    assert_same_model(GPCDE(**BATCHES, checkpoint=path).fit(X, Y), whole_fit())


@pytest.mark.usefixtures("often")
def test_a_state_that_diverged_does_not_replace_a_good_one(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"

    def spoil(model: GPCDE, record: Record) -> None:
        if record.step == 150:
            model.state_ = eqx.tree_at(lambda s: s.model.likelihood.log_noise_variance, model.state_, np.array(np.nan))

    with pytest.warns(FitWarning, match=r"not be written .*log_noise_variance holds NaN.*the last good one is kept"):  # noqa: SIM117
        with pytest.raises(Crash):
            GPCDE(**BATCHES, checkpoint=path, callbacks=[spoil, crash_at(200)]).fit(X, Y)
    assert kept_steps(tmp_path) == {"checkpoint": 100, "checkpoint.before": 50}
    assert_same_model(GPCDE(**BATCHES, checkpoint=path).fit(X, Y), whole_fit())


def test_a_folder_that_cannot_be_written_to_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is noticed when a checkpoint is due; one that is not there, before any work starts."""

    def refuse(path: Any, flags: int, mode: int = 0o777) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(disk.os, "open", refuse)
    with pytest.warns(FitWarning, match="could not be written .*Permission denied"):
        model = quick(checkpoint=tmp_path / "checkpoint").fit(X, Y)
    assert_same_model(model, fitted("none")[0])
    monkeypatch.undo()
    with pytest.raises(ValueError, match="checkpoint: there is no folder .*nowhere .*: make it first"):
        quick(checkpoint=tmp_path / "nowhere" / "checkpoint").fit(X, Y)


@pytest.mark.parametrize("links", [True, False])
def test_what_there_was_is_kept_also_where_a_file_has_but_one_name(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Any, target: Any) -> None:
        raise PermissionError(1, "Operation not permitted", str(source))

    if not links:
        monkeypatch.setattr(disk.os, "link", refuse)
    path, other = tmp_path / "file", tmp_path / "file.before"
    disk.replace(path, b"one")
    for content, before in ((b"two", b"one"), (b"three", b"two")):
        disk.replace(path, content, other)
        assert (path.read_bytes(), other.read_bytes()) == (content, before)
    assert {p.name for p in tmp_path.iterdir()} == {"file", "file.before"}


def test_another_file_is_not_taken_for_the_checkpoint_before(tmp_path: Path) -> None:
    """Neither text nor a model: a checkpoint of a fit that is over may go."""
    path, other = tmp_path / "checkpoint", tmp_path / "checkpoint.before"
    for write in (lambda: other.write_text("mine"), lambda: fitted("none")[0].save(other)):
        write()
        before = other.read_bytes()
        with pytest.raises(ValueError, match="would keep the one before it in .*before, which is some other file"):
            quick(checkpoint=path).fit(X, Y)
        assert other.read_bytes() == before
    other.unlink()
    quick(checkpoint=path).fit(X, Y)
    path.rename(other)
    quick(checkpoint=path, learning_rate=0.01).fit(X, Y)
    assert path.exists()


KILLED = """
import sys, numpy as np
from gpcde import GPCDE
from gpcde.estimators import monitor
monitor.CHECKPOINT_SECONDS = -1.0
X, Y = np.load(sys.argv[1]).values()
print("ready", flush=True)
settings = {"inference": "none", "n_inducing": 8, "tol": 0.0, "random_state": 0, "max_steps": int(sys.argv[3])}
GPCDE(**settings, checkpoint=sys.argv[2]).fit(X, Y)
"""

WITHIN = """
import os, shutil, signal, sys, gpcde.estimators.gpcde
rename, times = os.replace, []

def die(source, target):
    if str(target) == last:
        times.append(target)
        if len(times) == 3:
            if last == sys.argv[2]:
                os.truncate(source, os.path.getsize(source) // 2)
            os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)

os.replace = die
for last in sys.argv[4:]:
    child = os.fork()
    if child == 0:
        break
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    shutil.copy(sys.argv[2], last + ".seen")
else:
    sys.exit()
"""


def test_a_process_that_dies_within_a_write_loses_nothing_that_was_saved(tmp_path: Path) -> None:
    """While the one before is kept, and when half of the last is written."""
    path, data = tmp_path / "checkpoint", tmp_path / "data.npz"
    np.savez(data, X, Y)
    targets = f"{path}.before", str(path)
    command = [sys.executable, "-c", WITHIN + KILLED, str(data), str(path), "600", *targets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ready\nready\n"), done.stderr
    assert [int(gpcde.load(f"{target}.seen").state_.step) for target in targets] == [150, 250]
    assert len(list(tmp_path.glob(".gpcde-*.part"))) == 3
    settings: dict[str, Any] = {"max_steps": 600, "tol": 0.0}
    assert_same_model(quick(**settings, checkpoint=path).fit(X, Y), quick(**settings).fit(X, Y))


@pytest.mark.slow
def test_a_killed_process_loses_nothing_that_was_saved(tmp_path: Path) -> None:
    """Killed at random moments, many in the middle of a write, and started again: the same bits as never stopped.

    The test above has the worst of these moments.
    """
    moments = 20
    rng = np.random.default_rng(moments)
    path, data = tmp_path / "checkpoint", tmp_path / "data.npz"
    np.savez(data, X, Y)
    command = [sys.executable, "-W", "error", "-c", KILLED, str(data), str(path), str(1500 * moments)]
    steps = [0]
    for moment in range(moments):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.stderr.read() if process.stderr else ""
        began, first = time.monotonic(), path.stat().st_mtime_ns if path.exists() else 0
        while not path.exists() or path.stat().st_mtime_ns == first:
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() - began < 60
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.3))
        process.send_signal(signal.SIGTERM if moment % 4 == 1 else signal.SIGKILL)
        process.communicate()
        steps.append(int(gpcde.load(path).state_.step))
    assert (np.diff(steps) > 0).all()
    settings: dict[str, Any] = {"max_steps": 1500 * moments, "tol": 0.0}
    resumed = quick(**settings, checkpoint=path).fit(X, Y)
    assert_same_model(resumed, quick(**settings).fit(X, Y))
