"""Compiled functions: each program is compiled once for its shapes, and kept, in memory and on disk (`programs`).

The compiler's options suit many small kernels on a CPU. XLA's newer fusion emitters take twice the time and 250 MB more
to compile a training step, and LLVM's last optimisations half of the rest, and they gain nothing on it; steps of
networks, elementwise for the most part, take a quarter less time by them (`thoroughly`). The options are passed with
each function, so the user's configuration stays as it is, and what XLA_FLAGS says of them holds; a compiler that
does not know them compiles without.
"""

import os
from collections import OrderedDict
from collections.abc import Callable
from functools import cache, wraps
from threading import Lock
from typing import Any, TypeVar

import jax

from .programs import Signature, fetch, keep, read_by_jax

F = TypeVar("F", bound=Callable[..., Any])

_WISHED = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}

MOST_PROGRAMS = 128
"""How many programs a process holds; the one not used for longest is dropped, since thousands exhaust memory maps."""

MOST_SHAPES = 512
"""Of how many signatures it is remembered what comes out."""

_programs: OrderedDict[Signature, jax.stages.Compiled] = OrderedDict()
_shapes: OrderedDict[Signature, Any] = OrderedDict()
_lock = Lock()


@cache
def _options() -> dict[str, bool | int]:
    if jax.default_backend() != "cpu":
        return {}
    given = os.environ.get("XLA_FLAGS", "")
    options = {name: value for name, value in _WISHED.items() if name not in given}
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except Exception:  # whatever this version of JAX raises for an option it does not know
        return {}
    return options


def compiled(function: F, thoroughly: bool = False) -> F:
    """The function, compiled at its first call for each new shape; all its arguments are trees of arrays."""

    @cache
    def jitted() -> Any:
        return jax.jit(function, compiler_options={} if thoroughly else _options())

    @wraps(function)
    def call(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return jitted()(*args)
        signature = Signature.of(function, leaves, tree)
        with _lock:
            program = _programs.get(signature)
        if program is None:
            program = fetch(signature, args)
        if program is None:
            before = len(read_by_jax())
            program = jitted().lower(*args).compile()
            if len(read_by_jax()) == before:  # what was read cannot be written again: it would lack its functions
                keep(signature, args, program)
        with _lock:
            _programs[signature] = program
            _programs.move_to_end(signature)
            while len(_programs) > MOST_PROGRAMS:
                _programs.popitem(last=False)
        return program(*args)

    return call  # type: ignore[return-value]


def shapes_of(function: Callable[..., Any], *args: Any) -> Any:
    """Shapes and types of what a function, not one of a call alone, returns; as `jax.eval_shape`, but traced once."""
    leaves, tree = jax.tree.flatten(args)
    signature = Signature.of(function, leaves, tree)
    with _lock:
        known = signature in _shapes
        found = _shapes.get(signature)
    if not known:
        # a function of this call alone: JAX keeps what it traced for as long as there is the function
        found = jax.eval_shape(lambda *args: function(*args), *args)
    with _lock:
        _shapes[signature] = found
        _shapes.move_to_end(signature)
        while len(_shapes) > MOST_SHAPES:
            _shapes.popitem(last=False)
    return found


def drop_programs() -> None:
    """Forget what was compiled in this process."""
    with _lock:
        _programs.clear()
        _shapes.clear()
    jax.clear_caches()
