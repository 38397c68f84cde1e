"""jax.jit for the hot functions, with the compiler options that suit many small kernels on a CPU.

XLA's newer fusion emitters take twice the time and 250 MB more to compile a training step, and gain nothing on it.
The option is passed with each function, so the user's configuration stays as it is; a compiler that does not know
it compiles without.
"""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

import jax

F = TypeVar("F", bound=Callable[..., Any])

_WISHED = {"xla_cpu_use_fusion_emitters": False}


@cache
def _options() -> dict[str, bool]:
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda: 0, compiler_options=_WISHED).lower().compile()
    except Exception:  # whatever this version of JAX raises for an option it does not know
        return {}
    return _WISHED


def compiled(function: F) -> F:
    """The function, compiled at its first call for each new shape; all its arguments are trees of arrays."""

    @cache
    def jitted() -> Any:
        return jax.jit(function, compiler_options=_options())

    @wraps(function)
    def call(*args: Any) -> Any:
        return jitted()(*args)

    return call  # type: ignore[return-value]
