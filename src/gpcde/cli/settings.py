"""Models and their parameters by name: `--model mdn --set max_epochs=200 --config settings.toml`.

What is set is TOML: `--set y_bounds=[0,inf]`, `--set design.inducing=32`. A value that is none is taken for text, and
`none` for None.
"""

import inspect
import json
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..estimators.base import DensityEstimator

MODELS = {
    "gpcde": "GPCDE",
    "gp": "GP",
    "conditional-kde": "ConditionalKDE",
    "mdn": "MDN",
    "linear": "LinearGaussian",
    "kde": "KDE",
    "cvae": "CVAE",
    "flow": "Flow",
}


def parameters(assignments: Iterable[str], config: str | None) -> dict[str, Any]:
    """What the file says, and the options, which have the last word."""
    found: dict[str, Any] = {}
    if config is not None:
        try:
            found = tomllib.loads(Path(config).read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise click.BadParameter(f"{config} is no TOML: {error}", param_hint="--config") from error
    for assignment in assignments:
        _merge(found, _parse(assignment))
    return {name: _plain(value, name) for name, value in found.items()}


def _parse(assignment: str) -> dict[str, Any]:
    name, equals, value = assignment.partition("=")
    if not (name.strip() and equals):
        raise click.BadParameter(f"{assignment!r} is not NAME=VALUE", param_hint="--set")
    try:
        return tomllib.loads(f"{name} = {value}")
    except tomllib.TOMLDecodeError:
        pass
    try:
        return tomllib.loads(f"{name} = {json.dumps(value.strip())}")
    except tomllib.TOMLDecodeError as error:
        raise click.BadParameter(f"{assignment!r} cannot be read: {error}", param_hint="--set") from error


def _merge(known: dict[str, Any], new: dict[str, Any]) -> None:
    for name, value in new.items():
        if isinstance(value, dict) and isinstance(known.get(name), dict):
            _merge(known[name], value)
        else:
            known[name] = value


def _plain(value: Any, name: str = "") -> Any:
    """As Python has it: tuples, and None, but for inference, of which "none" is a kind."""
    if isinstance(value, dict):
        return {name: _plain(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return tuple(_plain(item) for item in value)
    return None if isinstance(value, str) and value.lower() == "none" and name != "inference" else value


def make_model(name: str, values: dict[str, Any], seed: int) -> "DensityEstimator":
    """A model that is not fitted yet."""
    import gpcde

    kind = getattr(gpcde, MODELS[name])
    known = [parameter for parameter in inspect.signature(kind).parameters if parameter not in ("callbacks", "verbose")]
    _check("parameter", kind.__name__, values, known)
    chosen = {"random_state": seed, **values} if "random_state" in known else dict(values)
    if isinstance(values.get("design"), dict):
        _check("part", "design", values["design"], list(inspect.signature(gpcde.Design).parameters))
        chosen["design"] = gpcde.Design(**values["design"])
    return kind(**chosen)


def _check(what: str, owner: str, values: dict[str, Any], known: Sequence[str]) -> None:
    wrong = sorted(set(values) - set(known))
    if wrong:
        message = f"{owner} has no {what} {', '.join(wrong)}; it has {', '.join(known)}"
        raise click.BadParameter(message, param_hint="--set")
