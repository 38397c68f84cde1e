"""Files that were tampered with: each is refused with a FileError, or is a model that answers; and nothing is run.

    python tests/fuzz.py --mutants 100000

makes that many mutants of good model files and checkpoints: bytes changed, and, with a digest that fits again, values
changed, moved, repeated and taken out of the description, and arrays of other numbers, shapes and types. An audit hook
watches while a file is read: a canary for code, processes, other modules, and any file opened to write.
"""

import argparse
import copy
import json
import os
import random
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import safe_open

import gpcde
from gpcde.runtime.files import _digest

FORBIDDEN = ("exec", "compile", "import", "os.", "subprocess.", "shutil.", "socket.", "pickle.", "ctypes.", "marshal.")
"""What no reading of a file does (`sys.audit`)."""

ALLOWED = ("os.listdir", "os.scandir")

CODE = ("__import__('os').system('touch canary')", "subprocess.Popen", "builtins.eval", "os.system", "Popen", "/canary")

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.5, 1e300, -1e-300, 1e999),
    *("", "x", "²", "nan", "1" * 50, *CODE, [], {}, [[]], {"float": "nan"}, {"float": "-inf"}, {"float": "1e5"}),
    *({"tuple": []}, {"dict": {}}, {"class": "Identity", "fields": {"dim": 10**9}}, {"class": "Popen", "fields": {}}),
    *({"array": "", "shape": [], "dtype": "float64", "jax": True}, {"class": "State", "fields": {}}, {"call": "exit"}),
)

NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, -1e308, 1e-308, 1e20, 1e5)


class Canary:
    """Hears what a file has the interpreter do while it is read."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.listening = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.listening:
            return
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes or (event.startswith(FORBIDDEN) and event not in ALLOWED):
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


def check(path: Path, X: np.ndarray, y: np.ndarray, canary: Canary) -> str:
    """What came of reading a file, "refused" or what it answers; raises where that is neither."""
    canary.listening = True
    try:
        model = gpcde.load(path)
    except gpcde.FileError:
        return "refused"
    finally:
        canary.listening, heard, canary.heard = False, canary.heard, []
        assert not heard, heard
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            if len(y.shape) == 1 and model.n_outputs_ > 1:
                return "has other outputs"
            logs = model.predict_density(X).log_pdf(y.reshape(len(y), -1) if not model.flat_ else y)
    except ValueError as error:
        if any(word in str(error) for word in ("column", "feature", "X has", "y_transform", "too large")):
            return "has other columns"
        raise
    assert not np.isnan(logs).any(), "it answers NaN"
    return "answers"


def run(models: list[Any], X: np.ndarray, y: np.ndarray, mutants: int, seed: int = 0) -> Counter[str]:
    """How many mutants of these models came to what; raises where some are neither refused nor answer."""
    canary, rng, found = Canary(), random.Random(seed), Counter[str]()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        files = []
        for model in models:
            model.save(path)
            assert check(path, X, y, canary) == "answers"
            files.append(File(path))
        for number in range(mutants):
            content = files[number % len(files)].mutant(rng)
            path.write_bytes(content)
            try:
                found[check(path, X, y, canary)] += 1
                assert os.listdir(folder) == ["model"], "a file was written"
            except Exception as error:
                kept = Path(tempfile.gettempdir()) / f"mutant-{seed}-{number}"
                kept.write_bytes(content)
                failures.append(f"{kept}: {type(error).__name__} {error}"[:300])
    assert not failures, f"{len(failures)} of {mutants}:\n" + "\n".join(failures[:20])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="mostly of models that answer at once")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=30)
    trained: dict[str, Any] = {"max_steps": 50, "n_inducing": 5, "random_state": 0}
    stack = gpcde.Stacked([("linear", gpcde.LinearGaussian()), ("kde", gpcde.KDE())], cv=2, random_state=0)
    models = [gpcde.LinearGaussian(), gpcde.KDE(), stack] * (4 if args.quick else 1)
    models.append(gpcde.GPCDE(inference="none", **trained))  # whose file is a checkpoint's too
    if not args.quick:
        models.append(gpcde.GPCDE(**trained))
        models.append(gpcde.ConditionalKDE(random_state=0))
        models.append(gpcde.MDN(hidden=(4,), max_epochs=2, random_state=0))
    found = run([model.fit(X, y) for model in models], X, y, args.mutants, args.seed)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
