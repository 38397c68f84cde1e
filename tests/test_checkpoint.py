"""Checkpoints: a fit that was interrupted goes on as if nothing had been."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpcde
from gpcde import GPCDE
from gpcde.estimators import gpcde as estimator
from gpcde.estimators import monitor
from gpcde.inference import Record
from small import QUICK, assert_same_model, fitted, rows

X, Y = rows()
BATCHES: dict[str, Any] = {**QUICK, "inference": "free-form", "batch_size": 16, "max_steps": 200}


def quick(**parameters: Any) -> GPCDE:
    return GPCDE(**{"inference": "none", **QUICK, **parameters})


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
    whole_fit = GPCDE(**BATCHES).fit(X, Y)
    settings = {**BATCHES, "checkpoint": tmp_path / "checkpoint"}
    with pytest.raises(Crash):
        GPCDE(**settings, callbacks=[crash_at(150)]).fit(X, Y)
    seen: list[int] = []
    resumed = GPCDE(**settings, callbacks=[lambda model, record: seen.append(record.step)]).fit(X, Y)
    assert seen == [150, 200]
    assert_same_model(resumed, whole_fit)

    monkeypatch.setattr(estimator, "train", None)
    assert_same_model(GPCDE(**settings).fit(X, Y), whole_fit)


@pytest.mark.usefixtures("often")
def test_a_resumed_fit_ends_where_it_would_have(tmp_path: Path) -> None:
    """The gain of the first chunk after the interruption counts from the last one before it."""
    free = quick(max_steps=200, tol=0.0).fit(X, Y).history_["bound"]
    settings: dict[str, Any] = {"max_steps": 200, "tol": float(abs(free[2] - free[1])) * 1.01}
    whole_fit = quick(**settings).fit(X, Y)
    settings["checkpoint"] = str(tmp_path / "checkpoint")
    assert whole_fit.n_steps_ == 150
    with pytest.raises(Crash):
        quick(**settings, callbacks=[crash_at(150)]).fit(X, Y)
    assert_same_model(quick(**settings).fit(X, Y), whole_fit)


@pytest.mark.usefixtures("often")
def test_early_stopping_remembers_its_best_state(tmp_path: Path) -> None:
    """The best state of the held-out rows, and how long it has waited, survive the interruption."""
    settings: dict[str, Any] = {**BATCHES, "batch_size": 8, "max_steps": 600, "early_stopping": True, "patience": 3}
    noise = np.random.default_rng(0).standard_normal(len(X))  # nothing to learn: the first state is the best
    whole_fit = quick(**settings).fit(X, noise)
    ended = int(whole_fit.history_["step"][-1])
    assert whole_fit.n_steps_ < ended
    settings["checkpoint"] = str(tmp_path / "checkpoint")
    with pytest.raises(Crash):
        quick(**settings, callbacks=[crash_at(ended)]).fit(X, noise)
    resumed = quick(**settings).fit(X, noise)
    assert resumed.history_["step"][-1] == ended
    assert_same_model(resumed, whole_fit)


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
