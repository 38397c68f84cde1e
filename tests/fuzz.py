"""Files that were tampered with: each is refused with its own error, or is of use; and nothing is run.

    python tests/fuzz.py --mutants 100000

makes that many mutants of good files, and does with each what a user would:

    models        loaded, and asked for densities: a FileError, or numbers
    checkpoints   a fit goes on from them: a FileError, a word that they are of another fit, or a model that answers
    tables        CSV, NPZ, Arrow and Parquet, read whole or streamed, and learnt from: a ValueError, or finite means

Of models and checkpoints bytes are changed, and, with a digest that fits again, values changed, moved, repeated and
taken out of the description, and arrays of other numbers, shapes and types. An audit hook watches while a file is read:
a canary for code, processes, other modules, and any file opened to write. Mutants that do neither are kept, and told
at the end.

`tests/fuzz_guided.py` lets the package's own coverage choose what to change.
"""

import argparse
import contextlib
import copy
import io
import json
import os
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import safetensors.numpy
from safetensors import safe_open

import gpcde
from gpcde.cli import frames
from gpcde.estimators import checkpoints, monitor
from gpcde.estimators.streaming import look_over
from gpcde.inference import TrainingError
from gpcde.runtime.files import _digest

FORBIDDEN = ("exec", "compile", "import", "os.", "subprocess.", "shutil.", "socket.", "pickle.", "ctypes.", "marshal.")
"""What no reading of a model does (`sys.audit`)."""

TABLES_FORBIDDEN = ("exec", "os.", "subprocess.", "shutil.", "socket.", "pickle.")
"""What no reading of a table does; NumPy parses the head of an array as Python's literals."""

ALLOWED = ("os.listdir", "os.scandir")

CODE = ("__import__('os').system('touch canary')", "subprocess.Popen", "builtins.eval", "os.system", "Popen", "/canary")

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.5, 1e300, -1e-300, 1e999),
    *("", "x", "²", "nan", "1" * 50, *CODE, [], {}, [[]], {"float": "nan"}, {"float": "-inf"}, {"float": "1e5"}),
    *({"tuple": []}, {"dict": {}}, {"class": "Identity", "fields": {"dim": 10**9}}, {"class": "Popen", "fields": {}}),
    *({"array": "", "shape": [], "dtype": "float64"}, {"class": "State", "fields": {}}, {"call": "exit"}),
)

NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, -1e308, 1e-308, 1e20, 1e5)

CELLS = ("", "x", "nan", "inf", "-1e400", "9" * 400, "1e-320", "0x10", '"', "'", "\0", "é", "2020-01-01", "True", *CODE)

TRAINED: dict[str, Any] = {"max_steps": 50, "n_inducing": 5, "random_state": 0}


class Canary:
    """Hears what a file has the interpreter do while it is read."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.forbidden: tuple[str, ...] = ()
        sys.addaudithook(self._hear)

    @contextlib.contextmanager
    def listening(self, forbidden: tuple[str, ...] = FORBIDDEN) -> Iterator[None]:
        """Raises afterwards where something was heard."""
        self.heard, self.forbidden = [], forbidden
        try:
            yield
        finally:
            self.forbidden = ()
            assert not self.heard, self.heard

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.forbidden:
            return
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes or (event.startswith(self.forbidden) and event not in ALLOWED):
            self.heard.append(f"{event} {args[:2]!r}"[:200])


class File:
    """A good file, taken apart."""

    def __init__(self, path: Path) -> None:
        self.content = path.read_bytes()
        with safe_open(path, "np") as file:
            self.metadata: dict[str, str] = file.metadata()
            self.arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        self.description = json.loads(self.metadata["description"])

    def sealed(self, description: str | None = None, digest: str | None = None) -> bytes:
        """The file as it is now, with a digest that fits, unless one is given."""
        text = json.dumps(self.description) if description is None else description
        metadata = {**self.metadata, "description": text}
        metadata["digest"] = _digest(metadata, self.arrays) if digest is None else digest
        return safetensors.numpy.save(self.arrays, metadata)

    def mutant(self, rng: random.Random) -> bytes:
        """One of it."""
        if rng.random() < 0.25:
            return _torn(rng, self.content)
        metadata, arrays, description = dict(self.metadata), dict(self.arrays), copy.deepcopy(self.description)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            choice = rng.random()
            if choice < 0.5:
                _change_value(rng, description)
            elif choice < 0.95 and arrays:
                _change_array(rng, arrays, description)
            else:
                metadata[rng.choice(("gpcde", "version", "mark", "kind"))] = str(rng.choice(ODD))
        metadata["description"] = json.dumps(description)
        if rng.random() < 0.97:
            metadata["digest"] = _digest(metadata, arrays)
        return safetensors.numpy.save(arrays, metadata)


def _torn(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 3, 20))):
        if not changed:
            break
        place = rng.randrange(len(changed)) if rng.random() < 0.5 else rng.randrange(min(len(changed), 4000))
        how = rng.randrange(4)
        if how == 0:
            changed[place] = rng.randrange(256)
        elif how == 1:
            del changed[place : place + rng.randrange(1, 100)]
        elif how == 2:
            changed[place:place] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 20)))
        else:
            del changed[max(place, 1) :]
    return bytes(changed)


def _places(tree: Any, within: list[Any]) -> list[Any]:
    """All (container, key) of a description."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, item in items:
        within.append((tree, key))
        _places(item, within)
    return within


def _change_value(rng: random.Random, description: Any) -> None:
    places = _places(description, [])
    if not places:
        return
    tree, key = rng.choice(places)
    how = rng.randrange(6)
    if how == 0:
        del tree[key]
    elif how == 1:
        other, place = rng.choice(places)
        tree[key] = copy.deepcopy(other[place])
    elif how == 2 and isinstance(tree[key], list):
        tree[key] = tree[key] * 2
    elif how == 3 and isinstance(tree[key], int | float):
        tree[key] = -tree[key] if rng.random() < 0.5 else tree[key] + 1
    else:
        tree[key] = copy.deepcopy(rng.choice(ODD))


def _change_array(rng: random.Random, arrays: dict[str, np.ndarray], description: Any) -> None:
    """Other numbers, another shape or type; the description mostly says so too."""
    name = rng.choice(sorted(arrays))
    old = arrays[name]
    how, array = rng.randrange(5), old.copy()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if how <= 2 and array.size:
            array.reshape(-1)[rng.randrange(array.size)] = array.dtype.type(np.float64(rng.choice(NUMBERS)))
        elif how == 3:
            array = rng.choice((old.reshape(-1), old[None], old[:0] if old.ndim else old, np.zeros((0, 10**9))))
        elif how == 4:
            array = old.astype(rng.choice((np.float32, np.int64, np.bool_, np.float64, np.uint8)))
    arrays[name] = np.ascontiguousarray(array)
    for tree, key in _places(description, []):
        if key == "array" and tree[key] == name and rng.random() < 0.9:
            tree.update(shape=list(arrays[name].shape), dtype=str(arrays[name].dtype))


class Kind:
    """Good files of one kind: how a mutant of them is made, and what comes of it."""

    def mutant(self, rng: random.Random, folder: Path) -> None:
        """Write one into the folder."""
        raise NotImplementedError

    def check(self, folder: Path, canary: Canary) -> str:
        """What came of reading it: "refused", or of what use it was; raises where it was neither."""
        raise NotImplementedError


class Model(Kind):
    """A model, and rows to ask it about."""

    def __init__(self, model: Any, X: np.ndarray, y: np.ndarray, folder: Path) -> None:
        model.save(folder / "model")
        gpcde.load(folder / "model").predict_density(X).log_pdf(y)  # what it needs is imported once
        self.file, self.X, self.y = File(folder / "model"), X, y

    def mutant(self, rng: random.Random, folder: Path) -> None:
        (folder / "model").write_bytes(self.file.mutant(rng))

    def check(self, folder: Path, canary: Canary) -> str:
        with canary.listening():
            try:
                model = gpcde.load(folder / "model")
            except gpcde.FileError:
                return "refused"
        return _asked(model, self.X, self.y)


def _asked(model: Any, X: np.ndarray, y: np.ndarray) -> str:
    """Whether a model answers."""
    try:
        with np.errstate(all="ignore"):
            if len(y.shape) == 1 and model.n_outputs_ > 1:
                return "has other outputs"
            logs = model.predict_density(X).log_pdf(y.reshape(len(y), -1) if not model.flat_ else y)
    except ValueError as error:
        if any(word in str(error) for word in ("column", "feature", "X has", "y_transform", "too large")):
            return "has other columns"
        raise
    assert not np.isnan(logs).any(), "it answers NaN"
    return "answers"


class Checkpoints(Kind):
    """The last two states of a fit that was interrupted; either or both are tampered with, and it goes on."""

    def __init__(self, X: np.ndarray, y: np.ndarray, folder: Path) -> None:
        self.X, self.y, self.path = X, y, folder / "checkpoint"
        self.canary: Canary | None = None
        checkpoints.load = self._load
        before, monitor.CHECKPOINT_SECONDS = monitor.CHECKPOINT_SECONDS, -1.0
        with contextlib.suppress(InterruptedError):
            self._model(callbacks=[self._interrupt]).fit(X, y)
        monitor.CHECKPOINT_SECONDS = before
        self.files = [File(self.path), File(checkpoints.older(self.path))]
        self._model().fit(X, y)

    def _model(self, **more: Any) -> Any:
        return gpcde.GPCDE(**{**TRAINED, "max_steps": 150}, inference="none", tol=0.0, checkpoint=self.path, **more)

    @staticmethod
    def _interrupt(model: Any, record: Any) -> None:
        if record.step == 150:
            raise InterruptedError

    def _load(self, path: Any) -> Any:
        with contextlib.nullcontext() if self.canary is None else self.canary.listening():
            return gpcde.load(path)

    def mutant(self, rng: random.Random, folder: Path) -> None:
        which = rng.choice(((True, False), (True, False), (True, True), (False, True)))
        for file, path, changed in zip(self.files, (self.path, checkpoints.older(self.path)), which, strict=True):
            path.write_bytes(file.mutant(rng) if changed else file.content)

    def check(self, folder: Path, canary: Canary) -> str:
        self.canary = canary
        try:
            model = self._model().fit(self.X, self.y)
        except gpcde.FileError:
            return "refused"
        except TrainingError:
            return "cannot go on"
        except ValueError as error:
            if any(word in str(error) for word in ("other data or settings", "some other file")):
                return "of another fit"
            raise
        return _asked(model, self.X, self.y)


class Tables(Kind):
    """A table in all formats; one of them is tampered with, and learnt from, whole or as a stream."""

    def __init__(self, X: np.ndarray, y: np.ndarray, folder: Path) -> None:
        frame = pd.DataFrame({"a": X[:, 0], "town": np.where(X[:, 1] > 0, "x", "y"), "y": y})
        self.contents = {kind: frames._bytes(frame, kind) for kind in ("csv", "tsv", "npz", "arrow", "stream")}
        file = io.BytesIO()
        frame.to_parquet(file, index=False, row_group_size=len(y) // 3 + 1)
        self.contents["parquet"] = self.contents["streamed"] = file.getvalue()
        for kind, content in self.contents.items():
            self.kind = kind
            self._path(folder).write_bytes(content)
            self._learn(self._path(folder))  # what it needs is imported once

    def mutant(self, rng: random.Random, folder: Path) -> None:
        self.kind = rng.choice(list(self.contents))
        content = self.contents[self.kind]
        if self.kind in ("csv", "tsv") and rng.random() < 0.7:
            comma = b"," if self.kind == "csv" else b"\t"
            lines = [line.split(comma) for line in content.splitlines()]
            for _ in range(rng.choice((1, 1, 3, 20))):
                line = rng.choice(lines)
                line[rng.randrange(len(line))] = rng.choice(CELLS).encode()
            content = b"\n".join(comma.join(line) for line in lines)
        else:
            content = _torn(rng, content)
        self._path(folder).write_bytes(content)

    def _path(self, folder: Path) -> Path:
        return folder / {"stream": "table", "streamed": "table.parquet"}.get(self.kind, f"table.{self.kind}")

    def _learn(self, path: Path) -> Any:
        if self.kind == "streamed":
            return look_over(gpcde.ParquetRows(path, "y"), 0, None, None, False).sample.outputs
        X, y = frames.split(frames.read(str(path)), ["y"])
        return gpcde.LinearGaussian().fit(X, y).predict(X)

    def check(self, folder: Path, canary: Canary) -> str:
        with canary.listening(TABLES_FORBIDDEN):
            try:
                found = self._learn(self._path(folder))
            except (ValueError, TypeError, frames.click.ClickException):
                return "refused"
        assert np.isfinite(np.asarray(found)).all(), "it learns NaN"
        return "learnt from"


def run(kinds: list[Kind], folder: Path, mutants: int, seed: int = 0) -> Counter[str]:
    """How many mutants came to what; raises where some are neither refused nor of use."""
    canary, rng, found = Canary(), random.Random(seed), Counter[str]()
    failures: list[str] = []
    began = time.process_time()
    for number in range(mutants):
        kind = kinds[number % len(kinds)]
        for path in folder.iterdir():
            path.unlink()
        kind.mutant(rng, folder)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[f"{type(kind).__name__.lower()} {kind.check(folder, canary)}"] += 1
            assert {path.name for path in folder.iterdir()} - {"checkpoint", "checkpoint.before"} <= set(before), (
                "a file was written"
            )
        except Exception as error:
            for name, content in before.items():
                kept = Path(tempfile.gettempdir()) / f"mutant-{seed}-{number}-{name}"
                kept.write_bytes(content)
            failures.append(f"{kept}: {type(error).__name__} {error}"[:300])
            print(failures[-1], file=sys.stderr, flush=True)
        if number % 5000 == 4999:
            print(f"{number + 1} mutants, {time.process_time() - began:.0f} CPU s", file=sys.stderr, flush=True)
    assert not failures, f"{len(failures)} of {mutants}:\n" + "\n".join(failures[:20])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="only of models that are learnt at once")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=30)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds: list[Kind] = [Model(model.fit(X, y), X, y, folder) for model in models(args.quick)]
        kinds += [*kinds[:3], *[Tables(X, y, folder)] * 2, Checkpoints(X, y, folder)]
        print(json.dumps(run(kinds, folder, args.mutants, args.seed)))


def models(quick: bool) -> list[Any]:
    """Some of all sorts, unfitted."""
    stack = gpcde.Stacked([("linear", gpcde.LinearGaussian()), ("kde", gpcde.KDE())], cv=2, random_state=0)
    found = [gpcde.LinearGaussian(), gpcde.KDE(), stack, gpcde.GPCDE(inference="none", **TRAINED)]
    if not quick:
        found.append(gpcde.GPCDE(**TRAINED))
        found.append(gpcde.ConditionalKDE(random_state=0))
        found.append(gpcde.MDN(hidden=(4,), max_epochs=2, random_state=0))
    return found


if __name__ == "__main__":
    main()
