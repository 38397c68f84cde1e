"""Files: arrays as safetensors, their description as JSON in its header. One file, and nothing in it is ever run.

    pack(value)   -> a JSON description that names arrays, and the arrays
    unpack(...)   -> the value again, made of the classes that registered themselves and no others

Values are trees of plain numbers, text, lists, dictionaries, arrays, and the package's own named tuples and modules.
A digest over description and arrays tells an altered file from a good one.
"""

import dataclasses
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
import optax

from .._version import VERSION
from .precision import scope

FORMAT = 2
"""The version of the format; a file of a newer one is refused, one of an older one is brought up to date."""

READABLE = tuple(str(number) for number in range(1, FORMAT + 1))

KNOWN: dict[str, type] = {"ScaleByAdamState": optax.ScaleByAdamState}
"""The classes a file may be made of, by name. They put themselves here (`register`), and a file adds none."""

RENAMED = {1: {"Features": "Columns"}}
"""What classes were called in older formats."""

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


class FileError(ValueError):
    """A file that cannot be read as a model; the message says why."""


def pack(value: Any, arrays: dict[str, np.ndarray], place: str = "", module: bool = False) -> Any:
    """The JSON description of a value; its arrays are added to `arrays`, named by their place.

    Arrays inside a `module` become JAX's when they are read.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, np.generic):
        return pack(value.item(), arrays, place)
    if isinstance(value, np.ndarray | jax.Array):
        arrays[place] = np.asarray(value, order="C")
        return {"array": place, "shape": list(value.shape), "dtype": str(value.dtype), "jax": module}
    name = _name(type(value))
    if KNOWN.get(name) is type(value):
        module = module or isinstance(value, eqx.Module)
        fields = {key: pack(item, arrays, f"{place}.{key}", module) for key, item in _fields(value).items()}
        return {"class": name, "fields": fields}
    if isinstance(value, list | tuple):
        items = [pack(item, arrays, f"{place}.{i}", module) for i, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {"dict": {str(key): pack(item, arrays, f"{place}.{key}", module) for key, item in value.items()}}
    raise TypeError(f"cannot write {place}: a {type(value).__name__} has no place in a model file")


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, tuple):
        return value._asdict()  # type: ignore[attr-defined]
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def unpack(description: Any, arrays: dict[str, np.ndarray], written: int = FORMAT) -> Any:
    """The value a description tells of, written in this version of the format.

    A class whose fields have changed since has `upgraded(fields, written)`, which turns the old ones into the new.
    """
    if not isinstance(description, dict):
        return [unpack(item, arrays, written) for item in description] if isinstance(description, list) else description
    if "float" in description:
        return float(description["float"])
    if "array" in description:
        name = description["array"]
        if name not in arrays:
            raise FileError(f"array {name} is missing")
        array = arrays[name]
        if list(array.shape) != description["shape"] or str(array.dtype) != description["dtype"]:
            raise FileError(
                f"array {name} is {array.dtype} {list(array.shape)}, "
                f"but should be {description['dtype']} {description['shape']}"
            )
        return jax.numpy.asarray(array) if description["jax"] else array
    if "class" in description:
        kind = str(description["class"])
        name = RENAMED.get(written, {}).get(kind, kind)
        cls = KNOWN.get(name)
        if cls is None:
            raise FileError(
                f"it holds a {name}, which is not known here: import the module that defines it first, or upgrade gpcde"
            )
        fields = {key: unpack(item, arrays, written) for key, item in description["fields"].items()}
        if written < FORMAT and hasattr(cls, "upgraded"):
            fields = cls.upgraded(fields, written)
        return cls(**fields)
    if "tuple" in description:
        return tuple(unpack(item, arrays, written) for item in description["tuple"])
    if "dict" in description:
        return {key: unpack(item, arrays, written) for key, item in description["dict"].items()}
    raise FileError(f"a part of it has an unknown form, {sorted(description)}")


def _digest(text: str, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()


def write(path: str | os.PathLike[str], kind: str, value: Any) -> None:
    """Write a value to a file, whole or not at all: a crash in between leaves the old file as it was."""
    from safetensors.numpy import save_file

    arrays: dict[str, np.ndarray] = {}
    text = json.dumps({"kind": kind, "value": pack(value, arrays)}, allow_nan=False)
    metadata = {"gpcde": str(FORMAT), "version": VERSION, "description": text, "digest": _digest(text, arrays)}
    target = Path(path)
    partial = target.with_name(target.name + ".part")
    try:
        save_file(arrays, partial, metadata)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def read(path: str | os.PathLike[str]) -> tuple[str, Any]:
    """What kind of model a file holds, and its value; a FileError says what is wrong with a bad one."""
    from safetensors import SafetensorError, safe_open

    target = Path(path)
    if not target.is_file():
        raise FileNotFoundError(f"there is no file {target}")
    try:
        with safe_open(target, "np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no dictionary)
    except (SafetensorError, OSError, ValueError) as error:
        raise FileError(f"{target} is no gpcde model, or was cut off: {error}") from error
    if "gpcde" not in metadata:
        raise FileError(f"{target} is a safetensors file, but not one that gpcde wrote")
    made = metadata.get("version", "unknown")
    written = int(metadata["gpcde"]) if metadata["gpcde"] in READABLE else 0
    if not written:
        raise FileError(f"{target} was written by gpcde {made}, in a newer format than this version can read: upgrade")
    text = metadata.get("description", "")
    if metadata.get("digest") != _digest(text, arrays):
        raise FileError(f"{target} was altered after it was written, or is damaged: its digest does not match")
    try:
        description = json.loads(text)
        with scope():
            return description["kind"], unpack(description["value"], arrays, written)
    except FileError as error:
        raise FileError(f"{target} cannot be read: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{target} cannot be read, its description does not fit: {error!r}") from error
