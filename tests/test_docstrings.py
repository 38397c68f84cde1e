"""Public names say what they are: a sentence, every parameter, and examples that run."""

import dataclasses
import doctest
import importlib
import inspect
from typing import Any

import jax
import pytest

import gpcde
import gpcde.inference
import gpcde.model
import gpcde.plots
import gpcde.prediction


def public() -> dict[str, Any]:
    """Every public function and class, by its full name."""
    found = {}
    for package in (gpcde, gpcde.model, gpcde.inference, gpcde.plots, gpcde.prediction):
        for name in package.__all__:
            try:
                value = getattr(package, name)
            except ImportError:  # an extra
                continue
            if callable(value):
                found[f"{value.__module__}.{name}"] = value
    return dict(sorted(found.items()))


PUBLIC = public()
SLOW = {"gpcde.estimators.cvae", "gpcde.estimators.flow"}
"""Modules whose examples take most of their time to compile; the estimators' own tests do the same."""
MODULES = sorted({value.__module__ for value in PUBLIC.values()} - SLOW)
CONSTRUCTORS = {
    f"{name}.{method}": getattr(value, method)
    for name, value in PUBLIC.items()
    if inspect.isclass(value)
    for method, made in vars(value).items()
    if isinstance(made, classmethod) and not method.startswith("_") and method != "upgraded"
}


def sections(text: str) -> dict[str, dict[str, str]]:
    """What the sections of a docstring name, and what they say of it."""
    found: dict[str, dict[str, str]] = {}
    lines = inspect.cleandoc(text).splitlines()
    heads = [i for i, line in enumerate(lines[1:]) if line and not line.strip("-")]
    for head, end in zip(heads, [*heads, len(lines)][1:], strict=True):
        entries, names = found.setdefault(lines[head], {}), []
        for line in lines[head + 2 : end]:
            if line and not line.startswith(" "):
                names = line.split(" : ")[0].split(", ")
            for name in names:
                entries[name] = entries.get(name, "") + (line.strip() if line.startswith(" ") else "")
    return found


def parameters(value: Any) -> set[str]:
    """The parameters of a function, or of a class: its fields, if it has any."""
    if dataclasses.is_dataclass(value):
        return {field.name for field in dataclasses.fields(value) if field.init and not field.name.startswith("_")}
    if hasattr(value, "_fields"):
        return set(value._fields)
    if inspect.isclass(value) and issubclass(value, Exception) and "__init__" not in vars(value):
        return set()
    given = inspect.signature(value).parameters.values()
    return {p.name for p in given if p.name not in ("self", "cls") and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_starts_with_a_sentence(name: str) -> None:
    text = vars(PUBLIC[name]).get("__doc__") if inspect.isclass(PUBLIC[name]) else PUBLIC[name].__doc__
    assert text
    first = text.splitlines()[0]
    assert first.strip() == first
    assert first.endswith(".")


@pytest.mark.parametrize("name", [*PUBLIC, *CONSTRUCTORS])
def test_every_parameter_is_described(name: str) -> None:
    value = {**PUBLIC, **CONSTRUCTORS}[name]
    told = sections(value.__doc__)
    given, kept = told.get("Parameters", {}), told.get("Attributes", {})
    wanted = set() if getattr(value, "_is_protocol", False) else parameters(value)
    assert wanted <= {*given, *kept}
    assert {name for name in given if not name.startswith("*")} <= wanted
    made = {*wanted, *dir(value), *getattr(value, "__annotations__", ())}
    assert all(attribute in made or attribute.endswith("_") for attribute in kept)  # "_": what an estimator learns
    assert all(text for text in {**given, **kept}.values())


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module: str) -> None:
    with jax.enable_x64(False):  # as a user's session is
        assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_main_entry_points_have_examples() -> None:
    for value in (
        gpcde.Design,
        gpcde.inference.start,
        gpcde.model.Model,
        gpcde.model.RBF,
        gpcde.model.make_inputs,
        gpcde.prediction.Predictor,
    ):
        assert ">>> " in str(value.__doc__)
