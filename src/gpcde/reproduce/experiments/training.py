"""Training a model of a given design, with progress and a checkpoint."""

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ...estimators.gpcde import GPCDE
from ...estimators.monitor import CHECKPOINT_SECONDS
from ...inference import Design, Geometric, Record, State, Trainer, start, train, whole
from ...model import Inputs
from ...model.inputs import AnyArray
from ...runtime import files
from ...runtime.files import FileError
from ...runtime.precision import scope
from ..units import Tell


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How to train: for how many steps, on how many rows each, and the first and last step sizes (Adam's, q(u)'s)."""

    steps: int
    batch_size: int
    rates: tuple[float, float]
    gammas: tuple[float, float]

    def trainer(self, rows: int) -> Trainer:
        """For data of that many rows."""
        return Trainer.create(
            rows, Geometric.create(*self.rates, self.steps), Geometric.create(*self.gammas, self.steps)
        )


def train_design(
    seed: int,
    x: Inputs,
    y: Float[np.ndarray, "n D"],
    design: Design,
    schedule: Schedule,
    tell: Tell,
    checkpoint: Path,
    first: Callable[[], State] | None = None,
) -> tuple[State, list[Record]]:
    """The state after training, from the usual start or `first()`, or taken up from the checkpoint if there is one."""
    key = jax.random.key(seed)
    mark = _mark(design, schedule, y)
    saved = resumed(checkpoint, design, schedule, y)
    if saved is not None:
        state, records = saved
    else:
        state, records = start(key, x, y, design) if first is None else first(), []
    kept = time.monotonic()

    def watch(state: State, record: Record) -> None:
        nonlocal kept
        records.append(record)
        tell(int(state.step) / schedule.steps)
        if time.monotonic() - kept > CHECKPOINT_SECONDS:
            _write(checkpoint, mark, state, records)
            kept = time.monotonic()

    left = schedule.steps - int(state.step)
    state, _ = train(schedule.trainer(len(y)), key, state, whole(x, y), left, schedule.batch_size, watch=watch)
    return state, records


def fit_gpcde(
    seed: int, x: Float[AnyArray, "n d"], y: Float[np.ndarray, "n D"], tell: Tell, checkpoint: Path, **options: Any
) -> GPCDE:
    """The estimator with these options, fitted; or taken up from the checkpoint if there is one."""

    def follow(model: GPCDE, record: Record) -> None:
        tell(record.step / record.end)

    watched = GPCDE(**options, random_state=seed, checkpoint=checkpoint, callbacks=[follow], verbose=False)
    return watched.fit(x, y)


def noise_variance(state: State) -> float:
    """σ²."""
    with scope():
        return float(state.model.noise_variance)


def _write(path: Path, mark: str, state: State, records: list[Record]) -> None:
    with scope():
        value = {"mark": mark, "state": jax.tree.map(np.asarray, state), "records": [tuple(r) for r in records]}
        with contextlib.suppress(ValueError):  # of a state that diverged: the last good one stays
            files.write(path, "State", value)


def _mark(design: Design, schedule: Schedule, y: np.ndarray) -> str:
    """What tells these data and settings from others; not the start of P, whose last digits differ between machines."""
    digest = hashlib.sha256(repr((dataclasses.replace(design, mixing=None), schedule)).encode())
    digest.update(np.ascontiguousarray(y).data)
    return digest.hexdigest()


def resumed(
    path: Path, design: Design, schedule: Schedule, y: Float[np.ndarray, "n D"]
) -> tuple[State, list[Record]] | None:
    """What a checkpoint holds; one that is damaged, or belongs to something else, is left aside."""
    if not path.is_file():
        return None
    try:
        _, value = files.read(path)
        if value["mark"] != _mark(design, schedule, y):
            return None
        return value["state"], [Record(*record) for record in value["records"]]
    except (FileError, KeyError, TypeError):
        return None
