"""Bytes onto the disk, whole or not at all.

A file is written beside its target under a name that nobody else has, flushed to the disk, and renamed over the
target: whoever reads finds the old file or the new one, also after a crash. A symbolic link stays; what it points at
is replaced.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

AnyPath = str | os.PathLike[str]


def check_folder(path: AnyPath) -> Path:
    """What a path stands for, links followed; raises where no file can be there."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to write {target.name} to: make it first")
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: name a file in it")
    if target.exists() and not target.is_file():
        raise FileExistsError(f"{target} is no ordinary file, and is not replaced")
    return target


def older(path: AnyPath) -> Path:
    """Where what a file held before is kept."""
    return Path(f"{os.fspath(path)}.before")


def replace(path: AnyPath, content: bytes, keep: AnyPath | None = None) -> None:
    """Write a file, or leave what there was."""
    with replacing(path, keep) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: AnyPath, keep: AnyPath | None = None) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of what there was, unless an error ends it; its mode goes by the umask.

    What there was is kept by the name `keep`, once all of the new file is on the disk.
    """
    target = check_folder(path)
    with _beside(target) as partial:
        with open(_created(partial), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep is not None:
            keep_as(target, keep)
        os.replace(partial, target)
    _flush_folder(target.parent)


def keep_as(path: AnyPath, other: AnyPath) -> None:
    """Let a file have another name too, under which it stays when the first is replaced."""
    target = check_folder(other)
    with _beside(target) as partial:
        try:
            os.link(os.path.realpath(path), partial)
            os.replace(partial, target)
        except OSError:  # not every file system knows of two names
            with open(path, "rb") as source, replacing(target) as file:
                shutil.copyfileobj(source, file)


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A name in the same folder that nobody else has, gone afterwards if it is still there."""
    partial = target.with_name(f".gpcde-{secrets.token_hex(8)}.part")
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def _created(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)


def _flush_folder(folder: Path) -> None:
    """The rename too; where a system cannot, it does so in its own time."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
