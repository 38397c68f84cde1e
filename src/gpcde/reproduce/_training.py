"""Training a model of a given design, with progress and a checkpoint: what the experiments share."""

import dataclasses
import hashlib
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float

from ..estimators.monitor import CHECKPOINT_SECONDS
from ..inference.bound import whole
from ..inference.schedule import Geometric
from ..inference.start import Design, start
from ..inference.training import Record, State, Trainer, train
from ..model.inputs import Inputs
from ..runtime import files
from ..runtime.files import FileError
from ..runtime.precision import scope
from ._run import Tell


@dataclasses.dataclass(frozen=True)
class Course:
    """How to train: for how many steps, on how many rows each, and the first and last step sizes."""

    steps: int
    batch_size: int
    rates: tuple[float, float]
    gammas: tuple[float, float]


def train_design(
    seed: int,
    x: Inputs,
    y: Float[np.ndarray, "n D"],
    design: Design,
    course: Course,
    tell: Tell,
    checkpoint: Path,
    first: Callable[[], State] | None = None,
) -> tuple[State, list[Record]]:
    """The state after training, from the usual start or `first()`, or taken up from the checkpoint if there is one."""
    trainer = Trainer.create(
        len(y), Geometric.create(*course.rates, course.steps), Geometric.create(*course.gammas, course.steps)
    )
    key = jax.random.key(seed)
    mark = _mark(design, course, y)
    saved = resumed(checkpoint, design, course, y)
    if saved is not None:
        state, records = saved
    else:
        state, records = start(key, x, y, design) if first is None else first(), []
    kept = time.monotonic()

    def watch(state: State, record: Record) -> None:
        nonlocal kept
        records.append(record)
        tell(int(state.step) / course.steps)
        if time.monotonic() - kept > CHECKPOINT_SECONDS:
            _write(checkpoint, mark, state, records)
            kept = time.monotonic()

    left = course.steps - int(state.step)
    state, _ = train(trainer, key, state, whole(x, y), left, course.batch_size, watch=watch)
    return state, records


def _write(path: Path, mark: str, state: State, records: list[Record]) -> None:
    with scope():
        value = {"mark": mark, "state": jax.tree.map(np.asarray, state), "records": [tuple(r) for r in records]}
        files.write(path, "State", value)


def _mark(design: Design, course: Course, y: np.ndarray) -> str:
    """What tells these data and settings from others; not the start of P, whose last digits differ between machines."""
    digest = hashlib.sha256(repr((dataclasses.replace(design, mixing=None), course)).encode())
    digest.update(np.ascontiguousarray(y).data)
    return digest.hexdigest()


def resumed(
    path: Path, design: Design, course: Course, y: Float[np.ndarray, "n D"]
) -> tuple[State, list[Record]] | None:
    """What a checkpoint holds; one that is damaged, or belongs to something else, is left aside."""
    if not path.is_file():
        return None
    try:
        _, value = files.read(path)
        if value["mark"] != _mark(design, course, y):
            return None
        return value["state"], [Record(*record) for record in value["records"]]
    except (FileError, KeyError, TypeError):
        return None
