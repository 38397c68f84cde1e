"""The runtime type checks of the tests: jaxtyping's shapes, by beartype, ints taken for floats as everywhere in Python.

As jaxtyping's own import hook, but quicker: a function is made one that checks itself when it is first called, not when
it is imported; and in each file of tests its first `CALLS` calls are checked. Later ones are hardly of another kind,
and tracing makes very many of them.
"""

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from functools import cache, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from inspect import unwrap
from types import FunctionType, ModuleType
from typing import Any

CALLS = 50

LEFT_OUT = ("gpcde._version", "gpcde.runtime")
"""The runtime has hardly an array of its own, and is called most."""

NAME = "_checked_"

_file = 1


def begin() -> None:
    """From here on it is another file of tests."""
    global _file
    _file += 1


@cache
def _checks() -> Callable[[Any], Any]:
    from beartype import BeartypeConf, beartype
    from jaxtyping import jaxtyped

    return jaxtyped(typechecker=beartype(conf=BeartypeConf(is_pep484_tower=True)))


def checked(what: Any) -> Any:
    """A function that checks its arguments and result, or a class that checks what it is made of."""
    if not isinstance(what, type):
        return _first_calls(what)
    if is_dataclass(what) and not is_checked(what.__init__):
        what.__init__ = _first_calls(what.__init__)  # type: ignore[method-assign]
    return what


def _first_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    checking: Callable[..., Any] | None = None
    file = left = 0

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal checking, file, left
        if file != _file:
            file, left = _file, CALLS
        if not left:
            return function(*args, **kwargs)
        left -= 1
        if checking is None:
            checking = _checks()(function)
        return checking(*args, **kwargs)

    return call


def is_checked(function: Any) -> bool:
    return isinstance(function, FunctionType) and function.__code__.co_filename == __file__


def unchecked(function: Any) -> Any:
    """The function inside, which does the same."""
    return unwrap(function) if is_checked(function) else function


# where the package is imported


def _definitions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """All in it; what is no statement holds none."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, ()) if not isinstance(node, ast.expr) else ():
            if isinstance(inner, ast.FunctionDef | ast.ClassDef):
                yield inner
            yield from _definitions(inner)


class Loader(SourceFileLoader):
    """Of a module whose functions and classes are `checked`."""

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        for one in _definitions(tree):
            decorator = ast.copy_location(ast.Name(NAME, ast.Load()), one)
            # of a class what other decorators made; of a function what they are given
            one.decorator_list.insert(0 if isinstance(one, ast.ClassDef) else len(one.decorator_list), decorator)
        return compile(tree, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, NAME, checked)
        super().exec_module(module)


class Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("gpcde.") or ".".join(fullname.split(".")[:2]) in LEFT_OUT:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """For all that is imported from now on."""
    sys.meta_path.insert(0, Finder())
