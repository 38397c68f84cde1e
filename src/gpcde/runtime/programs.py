"""Compiled programs on disk, so that a second process on the same machine compiles nothing, nor traces.

A program is known by its function, the structure and types of its arguments, the text of this package, the versions
of JAX and its configuration, and the processor: whatever could make it another program. Programs of functions and
classes from elsewhere (a user's own parts) are not kept, since their text may change.

The folder is the user's own, in the user's cache; the environment variable GPCDE_CACHE_DIR names another one, or turns
this off ("off"). Programs are code: a folder that somebody else may write to is not used. An entry that is torn,
altered or unreadable is ignored, and compiled anew; the oldest go when all take more than `MOST_BYTES`.
"""

import hashlib
import io
import os
import pickle  # only for files that this process, or one of the same user, wrote into the user's own cache
import platform
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from platformdirs import user_cache_path

from . import disk

SWITCH = "GPCDE_CACHE_DIR"

MOST_BYTES = 512 * 2**20

PACKAGE = __name__.split(".")[0]


class Signature(NamedTuple):
    """What a program is compiled for: its function, its arguments' structure, and the type of each of their leaves."""

    function: Callable[..., Any]
    tree: Any
    types: tuple[Any, ...]
    wide: bool

    @classmethod
    def of(cls, function: Callable[..., Any], leaves: Sequence[Any], tree: Any) -> "Signature":
        return cls(function, tree, tuple(_type(leaf) for leaf in leaves), bool(jax.config.jax_enable_x64))  # type: ignore[attr-defined]

    def name(self) -> str:
        """A name for its file, the same in every process."""
        function = f"{self.function.__module__}.{self.function.__qualname__}"
        text = "\n".join([function, str(self.tree), str(self.types), str(self.wide), _circumstances()])
        return hashlib.sha256(text.encode()).hexdigest()


def _type(leaf: Any) -> tuple[Any, ...]:
    """Shape, type of numbers, whether it is a weak one, and where it lies if that is more than one device."""
    if isinstance(leaf, jax.Array):
        spread = leaf.sharding if len(leaf.sharding.device_set) > 1 else None
        return leaf.shape, _name(leaf.dtype), bool(leaf.aval.weak_type), spread
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.shape, _name(leaf.dtype), False, None
    return (), type(leaf).__name__, True, None


@cache
def _name(dtype: Any) -> str:
    """NumPy makes it up anew each time."""
    return str(dtype)


@cache
def _circumstances() -> str:
    """All that compiles the same function to another program, apart from its arguments."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    device = jax.devices()[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts = [
        digest,
        jax.__version__,
        device.client.platform_version,
        f"{device.device_kind} {platform.platform()} {platform.machine()} {cores} cores",
        _processor(),
        str(sorted(jax.config.values.items())),
        os.environ.get("XLA_FLAGS", ""),
    ]
    return "\n".join(facts)


def _processor() -> str:
    """What instructions it knows, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))


@cache
def _folder(named: str | None) -> Path | None:
    """Where programs are kept; None where that is turned off, or there is no place that is the user's alone."""
    if named is not None and named.lower() in ("", "0", "off"):
        return None
    folder = Path(named) if named else user_cache_path(PACKAGE) / "programs"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return None
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        return None
    return folder


def _place(signature: Signature, args: Any) -> Path | None:
    """The file of a program; None where it is not kept."""
    folder = _folder(os.environ.get(SWITCH))
    if jax.device_count() > 1:  # a program knows the devices it was made for by number
        return None
    if folder is None or not _is_named(signature.function) or any(kind[3] is not None for kind in signature.types):
        return None
    if any(_is_foreign(leaf) for leaf in jax.tree.leaves(args, is_leaf=_is_foreign)):
        return None
    return folder / signature.name()


def _is_named(function: Any) -> bool:
    """Whether its name alone says what it does: a function of this package that holds no others."""
    plain = getattr(function, "__closure__", ()) is None and not hasattr(function, "__wrapped__")
    return plain and function.__module__.split(".")[0] == PACKAGE


def _is_foreign(node: Any) -> bool:
    return isinstance(node, eqx.Module) and type(node).__module__.split(".")[0] != PACKAGE


def fetch(signature: Signature, args: Any) -> jax.stages.Compiled | None:
    """The program, if an earlier process kept it."""
    path = _place(signature, args)
    if path is None:
        return None
    try:
        content = path.read_bytes()
        digest, packed = content[:32], content[32:]
        if hashlib.sha256(packed).digest() != digest:
            raise ValueError("torn or altered")
        payload, result = pickle.load(io.BytesIO(zlib.decompress(packed)))
        from jax.experimental.serialize_executable import deserialize_and_load

        _load_lapack()
        program = deserialize_and_load(payload, jax.tree.structure((args, {})), jax.tree.structure(result))
        os.utime(path)
    except FileNotFoundError:
        return None
    except Exception:  # whatever is wrong with it, it can be compiled anew
        path.unlink(missing_ok=True)
        return None
    return program


@cache
def _load_lapack() -> None:
    """JAX looks for LAPACK's functions when it first lowers a call of one, which a program from disk never does."""
    jax.jit(jax.numpy.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), np.float32))


@cache
def read_by_jax() -> list[str]:
    """A word for each program that JAX has read, from now on, from a cache of its own, if the user turned that on."""
    read: list[str] = []
    jax.monitoring.register_event_listener(
        lambda event, **_: read.append(event) if event == "/jax/compilation_cache/cache_hits" else None
    )
    return read


def keep(signature: Signature, args: Any, program: jax.stages.Compiled) -> None:
    """Let later processes have this program, if there is a place for it."""
    path = _place(signature, args)
    if path is None:
        return
    try:
        from jax.experimental.serialize_executable import serialize

        payload, _, out_tree = serialize(program)
        result = jax.tree.unflatten(out_tree, range(out_tree.num_leaves))
        packed = zlib.compress(pickle.dumps((payload, result)), 1)
        disk.replace(path, hashlib.sha256(packed).digest() + packed)
        _make_room(path.parent)
    except Exception:  # a program that cannot be written, a disk that is full: nothing is lost but time
        return


def _make_room(folder: Path) -> None:
    """Remove the programs that were used longest ago, until the others take no more than they may."""
    found = []
    for path in folder.iterdir():
        try:
            status = path.stat()
        except FileNotFoundError:  # another process makes room too
            continue
        found.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= MOST_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= size
