"""Files: arrays as safetensors, their description as JSON in its header. One file, and nothing in it is ever run.

    pack(value)   -> a JSON description that names arrays, and the arrays
    unpack(...)   -> the value again, made of the classes that registered themselves and no others

Values are trees of plain numbers, text, lists, dictionaries, arrays, and the package's own named tuples and modules.
A digest over all of a file tells a damaged one from a good one. Whoever alters a file can make a new digest, so that
nothing in it is believed: sizes are held against the file's own before anything is made, every array is used once,
fields must be what their class declares, and every class answers for its values (`check_values`).
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
import optax

from .._version import VERSION
from . import disk
from .declared import check_declared
from .precision import as_array, scope

FORMAT = 3
"""The version of the format; a file of a newer one is refused, one of an older one is brought up to date."""

READABLE = tuple(str(number) for number in range(1, FORMAT + 1))

KNOWN: dict[str, type] = {"ScaleByAdamState": optax.ScaleByAdamState}
"""The classes a file may be made of, by name. They put themselves here (`register`), and a file adds none."""

RENAMED = {1: {"Features": "Columns"}}
"""What classes were called in older formats."""

MOST_TEXT, MOST_VALUES, MOST_DEEP = 2**25, 2**20, 64
"""The most a file's header may have: bytes, values in its description, and lists or parts within one another."""

LARGEST, LARGEST_LOG = 1e50, 300.0
"""The largest numbers a part has, in standard units, and the largest logarithms: their products are still numbers."""

C = TypeVar("C", bound=type)


def register(cls: C) -> C:
    """Let a class be written to files and read again; a decorator. Its fields are what is kept.

    Classes outside of this package are known by their full name, once their module is imported.
    """
    name = _name(cls)
    other = KNOWN.get(name, cls)
    if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(f"two classes would be called {name} in files: {other.__module__}'s and {cls.__module__}'s")
    KNOWN[name] = cls
    return cls


def _name(cls: type) -> str:
    ours = cls.__module__.split(".")[0] in (__name__.split(".")[0], "optax")
    return cls.__name__ if ours else f"{cls.__module__}.{cls.__qualname__}"


class Stored(eqx.Module):
    """A module that registers itself for files when it is defined."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        register(cls)

    def check_values(self) -> None:
        """Raise a ValueError where the numbers cannot be; called once a file was read.

        Here: all must be finite, and logarithms (fields whose names begin with log) of numbers that can be squared. A
        class that asks for more adds to this.
        """
        check_fields(self)


class FileError(ValueError):
    """A file that cannot be read as a model; the message says why."""


def pack(value: Any, arrays: dict[str, np.ndarray], place: str = "") -> Any:
    """The JSON description of a value; its arrays are added to `arrays`, named by their place."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, np.generic):
        return pack(value.item(), arrays, place)
    if isinstance(value, np.ndarray | jax.Array):
        if place in arrays:
            raise TypeError(f"cannot write two arrays that would both be called {place}: give their keys other names")
        arrays[place] = np.asarray(value, order="C")
        return {"array": place, "shape": list(value.shape), "dtype": str(value.dtype)}
    name = _name(type(value))
    if KNOWN.get(name) is type(value):
        fields = {key: pack(item, arrays, f"{place}.{key}") for key, item in _fields(value).items()}
        return {"class": name, "fields": fields}
    if isinstance(value, list | tuple):
        items = [pack(item, arrays, f"{place}.{i}") for i, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {"dict": {str(key): pack(item, arrays, f"{place}.{key}") for key, item in value.items()}}
    raise TypeError(f"cannot write {place}: a {type(value).__name__} has no place in a model file")


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, tuple):
        return value._asdict()  # type: ignore[attr-defined]
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def unpack(description: Any, arrays: dict[str, np.ndarray], written: int = FORMAT, module: bool = False) -> Any:
    """The value a description tells of, written in this version of the format; its arrays are taken out of `arrays`.

    Arrays inside a `module` become JAX's. A class whose fields have changed since has `upgraded(fields, written)`,
    which turns the old ones into the new.
    """
    if isinstance(description, list):
        return [unpack(item, arrays, written, module) for item in description]
    if not isinstance(description, dict):
        return description
    if "float" in description:
        if description["float"] not in ("inf", "-inf", "nan"):
            raise FileError(f"{description['float']!r} is no number")
        return float(description["float"])
    if "array" in description:
        array = _taken(description, arrays)
        return as_array(array) if module else array
    if "class" in description:
        kind = str(description["class"])
        name = RENAMED.get(written, {}).get(kind, kind)
        cls = KNOWN.get(name)
        if cls is None:
            raise FileError(
                f"it holds a {name}, which is not known here: import the module that defines it first, or upgrade gpcde"
            )
        module = module or issubclass(cls, eqx.Module)
        fields = {key: unpack(item, arrays, written, module) for key, item in description["fields"].items()}
        if written < FORMAT and hasattr(cls, "upgraded"):
            fields = cls.upgraded(fields, written)
        check_declared(name, fields, _hints(cls))
        return cls(**fields)
    if "tuple" in description:
        return tuple(unpack(item, arrays, written, module) for item in description["tuple"])
    if "dict" in description:
        return {key: unpack(item, arrays, written, module) for key, item in description["dict"].items()}
    raise FileError(f"a part of it has an unknown form, {sorted(description)}")


def _taken(description: dict[str, Any], arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The array that is meant: each is used once, so that a small file does not make much of one."""
    name = description["array"]
    if name not in arrays:
        raise FileError(f"array {name} is missing, or used twice")
    array = arrays.pop(name)
    if list(array.shape) != description["shape"] or str(array.dtype) != description["dtype"]:
        raise FileError(
            f"array {name} is {array.dtype} {list(array.shape)}, "
            f"but should be {description['dtype']} {description['shape']}"
        )
    return array


@cache
def _hints(cls: type) -> dict[str, Any]:
    """What the fields of a class are declared to be."""
    if dataclasses.is_dataclass(cls):
        return {field.name: field.type for field in dataclasses.fields(cls)}
    return {} if cls is optax.ScaleByAdamState else dict(cls.__annotations__)


def check(value: Any) -> None:
    """Raise where a value that was read cannot be: every class of ours in it is asked (`check_values`)."""
    if hasattr(value, "check_values"):
        value.check_values()
    elif KNOWN.get(_name(type(value))) is type(value):
        check_fields(value)
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            check(item)


def check_fields(value: Any, *but: str) -> None:
    """Raise where a number in the fields is not finite, or a logarithm is of none; parts in them are asked in turn."""
    for name, item in _fields(value).items():
        if name not in but:
            place = f"{type(value).__name__}.{name}"
            check_numbers(place, item)
            if name.startswith("log_") and np.size(item) and np.abs(np.asarray(item)).max() > LARGEST_LOG:
                raise ValueError(f"{place} is the logarithm of no number that can be computed with")


def check_numbers(place: str, value: Any, most: float = LARGEST) -> None:
    """Raise where a number, or one in an array, is not finite or larger than `most`; parts are asked for theirs."""
    if isinstance(value, np.ndarray | jax.Array | float):
        if not np.isfinite(np.asarray(value)).all():
            raise ValueError(f"{place} holds NaN or infinity")
        if np.abs(np.asarray(value)).max(initial=0) > most:
            raise ValueError(f"{place} holds a number that cannot be computed with, larger than {most:g}")
    elif type(value) in (list, tuple):
        for item in value:
            check_numbers(place, item, most)
    else:
        check(value)


def check_positive(part: Any, *names: str, least: float | None = None) -> None:
    """Raise where fields of a part are not positive (or less than `least`)."""
    for name in names:
        value = np.asarray(getattr(part, name))
        if not (value > 0 if least is None else value >= least).all():
            raise ValueError(f"{type(part).__name__}.{name} must be {'positive' if least is None else f'>= {least:g}'}")


def _digest(metadata: dict[str, str], arrays: dict[str, np.ndarray]) -> str:
    """Of all of a file: what its header says, and its arrays by name, type and shape."""
    if metadata.get("gpcde") in ("1", "2"):  # which left out the rest of the header
        digest = hashlib.sha256(metadata.get("description", "").encode())
        for name in sorted(arrays):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(arrays[name]).data)
        return digest.hexdigest()
    said = {key: value for key, value in metadata.items() if key != "digest"}
    shapes = [(name, str(arrays[name].dtype), arrays[name].shape) for name in sorted(arrays)]
    digest = hashlib.sha256(json.dumps([said, shapes], sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()


def write(
    path: disk.AnyPath,
    kind: str,
    value: Any,
    mark: str = "",
    made: Callable[[Any], object] | None = None,
    keep: disk.AnyPath | None = None,
) -> None:
    """Write a value to a file, whole or not at all: a crash in between leaves the old file as it was.

    What could not be read again is a ValueError, and nothing is written; `made` is what is made of the value once it is
    read. A `mark` stays in the header, where `read_mark` finds it. The file there was is kept by the name `keep`.
    """
    from safetensors.numpy import save

    arrays: dict[str, np.ndarray] = {}
    text = json.dumps({"kind": kind, "value": pack(value, arrays)}, allow_nan=False)
    with scope() if _needs_scope(value) else contextlib.nullcontext():
        try:
            again = _value(text, dict(arrays), FORMAT)[1]
            if made is not None:
                made(again)
        except Exception as error:
            raise ValueError(
                f"this model is not saved, since it could not be loaded: {error}. Training that diverged leaves such a "
                "model: a smaller learning_rate may help"
            ) from error
    metadata = {"gpcde": str(FORMAT), "version": VERSION, "mark": mark, "description": text}
    metadata["digest"] = _digest(metadata, arrays)
    disk.replace(path, save(arrays, metadata), keep)


def _needs_scope(value: Any) -> bool:
    """Whether there is more in it than NumPy's numbers, which a forked process can write too."""
    plain = np.ndarray | np.generic | str | int | float
    leaves = jax.tree.leaves(value, is_leaf=lambda part: isinstance(part, eqx.Module))
    return not all(isinstance(leaf, plain) for leaf in leaves)


def read_mark(path: disk.AnyPath) -> str:
    """The mark a file was written with; "" where it has none, or is none of ours."""
    try:
        return _content(Path(path), only_header=True)[0].get("mark", "")
    except (FileError, OSError):
        return ""


def _content(target: Path, only_header: bool = False) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The header's metadata and the arrays of a safetensors file, none of them larger than the file."""
    from safetensors import safe_open

    with open(target, "rb") as head:
        size, length = os.fstat(head.fileno()).st_size, int.from_bytes(head.read(8), "little")
    try:
        if length > min(MOST_TEXT, size):
            raise ValueError(f"its header cannot have {length} bytes")
        with safe_open(target, "np") as file:
            names = [] if only_header else list(file.keys())
            for name in names:
                shape = file.get_slice(name).get_shape()
                if math.prod(max(count, 1) for count in shape) > size:
                    raise ValueError(f"array {name} cannot have the shape {shape}")
            return file.metadata() or {}, {name: file.get_tensor(name) for name in names}
    except Exception as error:
        raise FileError(f"{target} is no gpcde model, or was cut off: {error}") from error


def read(path: disk.AnyPath) -> tuple[str, Any]:
    """What kind of model a file holds, and its value; a FileError says what is wrong with a bad one."""
    target = Path(path)
    if not target.is_file():
        raise FileNotFoundError(f"there is no file {target}")
    metadata, arrays = _content(target)
    if "gpcde" not in metadata:
        raise FileError(f"{target} is a safetensors file, but not one that gpcde wrote")
    made = metadata.get("version", "unknown")
    written = int(metadata["gpcde"]) if metadata["gpcde"] in READABLE else 0
    if not written:
        raise FileError(f"{target} was written by gpcde {made}, in a newer format than this version can read: upgrade")
    if metadata.get("digest") != _digest(metadata, arrays):
        raise FileError(f"{target} was altered after it was written, or is damaged: its digest does not match")
    try:
        with scope():
            return _value(metadata.get("description", ""), arrays, written)
    except FileError as error:
        raise FileError(f"{target} cannot be read: {error}") from error
    except Exception as error:
        raise FileError(f"{target} cannot be read, its description does not fit: {error!r}") from error


def _value(text: str, arrays: dict[str, np.ndarray], written: int) -> tuple[str, Any]:
    """The kind and the value that a description and its arrays are of, looked over; raises where they are of none."""
    _check_text(text)
    description = json.loads(text, parse_constant=_no_constant)
    with np.errstate(all="ignore"):
        value = unpack(description["value"], arrays, written)
        if arrays:
            raise FileError(f"nothing uses its array {min(arrays)}")
        check(value)
        return str(description["kind"]), value


def _check_text(text: str) -> None:
    """Raise where a description is longer, or deeper, than any that is written."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", text)
    if len(text) > MOST_TEXT // 2 or bare.count(",") + bare.count("[") + bare.count("{") > MOST_VALUES:
        raise FileError(f"its description is longer than {MOST_TEXT // 2} bytes, or has more than {MOST_VALUES} values")
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", bare):
        depth += 1 if bracket in "[{" else -1
        if depth > 4 * MOST_DEEP:
            raise FileError(f"its description has more than {MOST_DEEP} parts within one another")


def _no_constant(name: str) -> None:
    raise FileError(f"{name} is no number")
