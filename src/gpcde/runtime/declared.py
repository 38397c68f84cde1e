"""Whether a value is what an annotation says, shapes included: what comes from a file has been through no checker."""

import types
from typing import Any, Union, get_args, get_origin

from jaxtyping import jaxtyped


def check_declared(what: str, values: dict[str, Any], hints: dict[str, Any]) -> None:
    """Raise where one of the values is not as annotated; sizes of one name are the same in all of them."""
    with jaxtyped("context"):
        for name, value in values.items():
            if name in hints and not fits(value, hints[name]):
                shape = getattr(value, "shape", None)
                found = type(value).__name__ if shape is None else f"{value.dtype} {list(shape)}"
                raise ValueError(f"{what}.{name} cannot be {found}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what the annotation says; of an annotation that is not understood, nothing is asked."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in args)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if args[1:] == (Ellipsis,):
            return all(fits(item, args[0]) for item in value)
        return len(value) == len(args) and all(map(fits, value, args))
    if origin is list:
        return isinstance(value, list) and all(fits(item, args[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(k, args[0]) and fits(v, args[1]) for k, v in value.items())
    if hint in (int, float):
        return isinstance(value, int | float if hint is float else int) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) and hint is not Any else True
