"""Checkpoints: the last two states of a fit on the disk, so that one is good whatever happens to the other.

    path           the last
    path.before    the one before it, from which a fit goes on where the last cannot be read

Either is a file of its own that is written whole or not at all. Other people's files are never written over: a file
called path.before that is no checkpoint is refused before any work starts.
"""

import contextlib
import os
import warnings
from typing import TYPE_CHECKING

from ..runtime import disk, files
from ..runtime.disk import older
from ..runtime.spread import is_first
from .base import DensityEstimator, load

if TYPE_CHECKING:
    from .gpcde import GPCDE

MARK = "checkpoint "


class FitWarning(UserWarning):
    """A fit that was interrupted, or a checkpoint that could not be written or read; the message says what is left."""


def check_place(path: disk.AnyPath) -> None:
    """Raise where checkpoints cannot be kept."""
    try:
        disk.check_folder(path)
    except OSError as error:
        raise ValueError(f"checkpoint: {error}") from error
    if os.path.lexists(older(path)) and not files.read_mark(older(path)).startswith(MARK):
        raise ValueError(
            f"checkpoint {path} would keep the one before it in {older(path)}, which is some other file: name another"
        )


def write(model: "GPCDE") -> None:
    """Save a model in training, and keep what was saved before; where that fails, warn, and leave both as they were."""
    path = model.checkpoint
    assert path is not None
    if not is_first():
        return
    try:
        keep = older(path) if files.read_mark(path).startswith(MARK) else None
        model._write(path, MARK + model.digest_, keep)
    except (OSError, ValueError) as error:
        text = f"checkpoint {path} could not be written ({error}): training goes on, and the last good one is kept"
        warnings.warn(text, FitWarning, stacklevel=2)


def read(path: disk.AnyPath, digest: str) -> DensityEstimator | None:
    """What was saved last, if anything; where it is damaged, what was saved before it, with a warning."""
    if not os.path.exists(path):
        return None
    try:
        return load(path)
    except files.FileError as error:
        if files.read_mark(older(path)) != MARK + digest:
            raise
        saved = load(older(path))
        with contextlib.suppress(OSError):
            disk.keep_as(older(path), path)  # so that the damaged one is not kept in place of this
        warnings.warn(f"{error}. Going on from the checkpoint before it, {older(path)}", FitWarning, stacklevel=2)
        return saved
