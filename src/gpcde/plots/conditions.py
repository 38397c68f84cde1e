"""Conditions to look at: one input moved over its range, the others held.

A model knows the columns of its X: which are numbers, with their mean and scale, and which are categories, with their
levels. Where data are given, ranges and what is held are theirs.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from sklearn.utils.validation import check_is_fitted

from ..density.conditional import ConditionalDensity
from ..estimators.base import DensityEstimator
from ..estimators.tables import Table, is_frame, read_frame, read_numbers

NEAR = 0.5
"""How far apart conditions count as near: standard deviations of an input, in the root mean square."""


class Axis(NamedTuple):
    """An input to move along: values to ask for, where to draw them, and the levels' names if it is a category."""

    place: int
    values: list[Any]
    positions: Float[np.ndarray, " g"]
    levels: tuple[Any, ...] | None


def feature_names(model: DensityEstimator) -> tuple[str, ...]:
    """What the inputs are called: by their columns, or x, or x0, x1, …"""
    names = model.features_.names
    if hasattr(model, "feature_names_in_") or model.features_.categories:
        return names
    return ("x",) if len(names) == 1 else tuple(f"x{name}" for name in names)


def output_name(model: DensityEstimator, output: int) -> str:
    """What an output is called: by its column, or y, or y0, y1, …"""
    if model.output_names_:
        return model.output_names_[output]
    return "y" if model.n_outputs_ == 1 else f"y{output}"


def find_feature(model: DensityEstimator, feature: int | str) -> int:
    """The place of an input, given by its name or number."""
    check_is_fitted(model)
    return _find("feature", feature, feature_names(model))


def find_output(model: DensityEstimator, output: int | str) -> int:
    """The place of an output, given by its name or number."""
    check_is_fitted(model)
    return _find("output", output, tuple(output_name(model, j) for j in range(model.n_outputs_)))


def _find(what: str, which: int | str, names: Sequence[str]) -> int:
    if isinstance(which, str) and which in names:
        return names.index(which)
    if isinstance(which, int | np.integer) and -len(names) <= which < len(names):
        return int(which) % len(names)
    raise ValueError(f"{what} must be one of {', '.join(names)}, or a number from 0 to {len(names) - 1}, got {which!r}")


def read(X: Any) -> Table:
    """X taken apart, a data frame or anything that is a matrix."""
    return read_frame(X) if is_frame(X) else read_numbers(np.asarray(X, float), None)


def column(table: Table, place: int) -> np.ndarray:
    """One of its columns."""
    return table.text[place] if place in table.text else table.dense[:, table.numbers.index(place)]


def move(model: DensityEstimator, feature: int | str, X: Any = None, points: int = 101) -> Axis:
    """The values of an input to look at: over the range of the data, or of what training saw; or all levels."""
    place = find_feature(model, feature)
    levels = {category.place: category.levels for category in model.features_.categories}.get(place)
    if levels is not None:
        return Axis(place, list(levels), np.arange(len(levels), dtype=float), levels)
    if X is None:
        number = model.features_.numbers.index(place)
        centre, unit = model.features_.location[number], model.features_.scale[number]
        values = np.linspace(centre - 2 * unit, centre + 2 * unit, points)
    else:
        known = column(read(X), place)
        values = np.linspace(known.min(), known.max(), points)
    return Axis(place, list(values), values, None)


def held(model: DensityEstimator, X: Any = None, at: Mapping[str | int, Any] | None = None) -> list[Any]:
    """A value for every input: the one given, the data's median or commonest level, or where training was centred."""
    columns = model.features_
    table = None if X is None else read(X)
    values: list[Any] = [None] * len(columns.names)
    for place, centre in zip(columns.numbers, columns.location, strict=True):
        values[place] = float(centre if table is None else np.median(column(table, place)))
    for place, levels in columns.categories:
        if table is None:
            values[place] = levels[0]
        else:
            known = column(table, place).tolist()
            values[place] = max(levels, key=known.count)
    for which, value in (at or {}).items():
        values[find_feature(model, which)] = value
    return values


def make_table(model: DensityEstimator, columns: Sequence[Sequence[Any] | np.ndarray]) -> Any:
    """An X with these columns, in the shape the model was trained with: a matrix, or a data frame with its names."""
    known = model.features_
    if not hasattr(model, "feature_names_in_") and not known.categories:
        return np.column_stack([np.asarray(values, float) for values in columns])
    library = next((name for name in ("pandas", "polars") if find_spec(name)), None)
    if library is None:
        raise ImportError("the model was trained with a data frame, and pictures of it need one: pip install pandas")
    frame = import_module(library).DataFrame(dict(zip(known.names, columns, strict=True)))
    categories = [known.names[category.place] for category in known.categories]
    # levels that are numbers would be read as such
    return frame.astype(dict.fromkeys(categories, "category")) if library == "pandas" else frame


def along(model: DensityEstimator, axis: Axis, values: Sequence[Any]) -> Any:
    """An X that moves along one input, all others held at these values."""
    columns: list[Sequence[Any] | np.ndarray] = [[value] * len(axis.values) for value in values]
    columns[axis.place] = axis.values
    return make_table(model, columns)


def nearness(model: DensityEstimator, X: Any, place: int, values: Sequence[Any]) -> Float[np.ndarray, " n"]:
    """How near rows are to what is held, from 1 to 0; the input that moves does not count."""
    columns, table = model.features_, read(X)
    apart = [np.zeros(len(table.dense))]
    for number, unit in zip(columns.numbers, columns.scale, strict=True):
        if number != place:
            apart.append(((column(table, number) - values[number]) / unit) ** 2)
    same = [column(table, c.place) == values[c.place] for c in columns.categories if c.place != place]
    distance = np.sum(apart, axis=0) / max(len(apart) - 1, 1)
    return np.exp(-0.5 * distance / NEAR**2) * np.all([np.ones(len(table.dense), bool), *same], axis=0)


def density_of(model: DensityEstimator, X: Any, output: int) -> ConditionalDensity:
    """The densities of one output."""
    density = model.predict_density(X)
    if not isinstance(density, ConditionalDensity):
        raise TypeError(
            f"pictures are of mixtures, but a {type(model).__name__}'s density is known by its samples alone"
        )
    return density if density.n_outputs == 1 else density.marginal(output)


def reach(
    density: ConditionalDensity, y: np.ndarray | None = None, points: int = 201, tail: float = 0.002
) -> Float[np.ndarray, " g"]:
    """A grid of y where densities, but for their tails, and data lie; within the bounds of a transformed y."""
    lowest, low, high, highest = density.quantile([0.0, tail, 1 - tail, 1.0]).reshape(len(density), 4).T
    ends = np.concatenate([low, high, [] if y is None else y])
    margin = 0.02 * (ends.max() - ends.min())
    return np.linspace(max(ends.min() - margin, lowest.min()), min(ends.max() + margin, highest.max()), points)


def observed(y: Any, output: int) -> Float[np.ndarray, " n"]:
    """One output of the data."""
    values = np.asarray(y, float)
    return values if values.ndim == 1 else values[:, output]
