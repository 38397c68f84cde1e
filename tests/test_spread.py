"""Rows of a batch shared among devices, and processes: the bound and the model of one; and what happens if one dies."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import gpcde
from gpcde import GP, GPCDE, load
from gpcde.cli import main
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
for inference, steps in (("none", 100), ("free-form", 50)):
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
    assert told["sums"] > 0
    assert told["shares"]
    for spread in ("none 4", "none 3", "free-form 4", "streamed 4"):
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


def test_two_processes_give_the_model_of_one(tmp_path: Path, data: str) -> None:
    expected = GP(**SETTINGS, random_state=0).fit(pd.DataFrame(X, columns=["a", "b"]), pd.DataFrame({"y": Y}))
    two = tmp_path / "two.gpcde"
    done = run(["-m", "gpcde", *words(data, "--processes", "2", "--out", str(two))])
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("100 steps, bound") == 1
    assert done.stdout == ""
    model: Any = load(two)
    np.testing.assert_allclose(model.history_["bound"], expected.history_["bound"], rtol=1e-8)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8), model.state_, expected.state_)


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


@pytest.mark.parametrize("given", ["0", "two"])
def test_a_wrong_number_of_processes_is_refused(given: str, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(data, "--processes", given)) == 2
    assert f"a number of processes, or auto, not '{given}'" in capsys.readouterr().err
