"""The inputs a user can move: their names, ranges and levels, and a condition as the model reads it."""

from typing import Any, NamedTuple

import numpy as np

from ..estimators.base import DensityEstimator
from ..estimators.tables import Category, Table
from ..model.inputs import Inputs

REACH = 2.5
"""How many standard deviations from the mean a slider reaches, where there are no data to say."""


LARGEST = 1e100
"""The largest number that may be asked for."""


class Slider(NamedTuple):
    """A number that can be moved: its place among the columns, its range, and where it starts."""

    place: int
    name: str
    low: float
    high: float
    step: float
    value: float


class Menu(NamedTuple):
    """A category that can be chosen: its place among the columns, the text of its levels, and which is first."""

    place: int
    name: str
    levels: tuple[str, ...]
    value: str


class Condition:
    """The inputs of a model, and how values of them become what it reads.

    Parameters
    ----------
    model : DensityEstimator
        Trained.
    table : Table, default=None
        Data, whose range the sliders have; None: that of the model's units.
    """

    def __init__(self, model: DensityEstimator, table: Table | None = None) -> None:
        self.columns = model.features_
        names = titles(model)
        categories = {category.place: category for category in self.columns.categories}
        self.controls: list[Slider | Menu] = []
        for place, name in enumerate(names):
            if place in self.columns.constant:
                continue
            if place in categories:
                self.controls.append(_menu(name, categories[place], table))
            else:
                self.controls.append(self._slider(place, name, table))

    def _slider(self, place: int, name: str, table: Table | None) -> Slider:
        column = self.columns.numbers.index(place)
        centre, unit = float(self.columns.location[column]), float(self.columns.scale[column])
        low, high, value = centre - REACH * unit, centre + REACH * unit, centre
        whole = False
        if table is not None:
            known = table.dense[:, column]
            whole = bool((known == np.round(known)).all())
            if known.min() < known.max():
                low, high, value = float(known.min()), float(known.max()), float(np.median(known))
        step = nice((high - low) / 200)
        step = max(step, 1.0) if whole else step
        low, high = float(np.floor(low / step) * step), float(np.ceil(high / step) * step)
        return Slider(place, name, tidy(low, step), tidy(high, step), step, tidy(round(value / step) * step, step))

    def read(self, values: Any) -> list[float | str]:
        """What a request says of the condition, checked: a value for each control, in their order."""
        if not isinstance(values, list) or len(values) != len(self.controls):
            raise ValueError(f"x must be a list of {len(self.controls)} values, one for each input")
        found: list[float | str] = []
        for control, value in zip(self.controls, values, strict=True):
            if isinstance(control, Menu):
                if value not in control.levels:
                    raise ValueError(f"{control.name} has no level {value!r}")
                found.append(value)
            elif not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= LARGEST:
                raise ValueError(f"{control.name} must be a number, got {value!r}")
            else:
                found.append(float(value))
        return found

    def inputs(self, rows: list[list[float | str]]) -> Inputs:
        """Rows of values of the controls, in standard units."""
        chosen = [{c.place: value for c, value in zip(self.controls, row, strict=True)} for row in rows]
        dense = np.array(
            [
                [float(row.get(place, self.columns.location[i])) for i, place in enumerate(self.columns.numbers)]
                for row in chosen
            ]
        ).reshape(len(rows), len(self.columns.numbers))
        text = {}
        for category in self.columns.categories:
            known = {str(level): level for level in category.levels}
            levels = [known.get(str(row.get(category.place)), category.levels[0]) for row in chosen]
            text[category.place] = np.array(levels, object)
        table = Table(self.columns.names, self.columns.numbers, dense, text)
        return self.columns.apply(table)

    def start(self) -> list[float | str]:
        """Where the controls are at first."""
        return [control.value for control in self.controls]


def titles(model: DensityEstimator) -> list[str]:
    """What the inputs are called: the names of their columns, else x with a number."""
    names = list(model.features_.names)
    if hasattr(model, "feature_names_in_"):
        return names
    return ["x"] if len(names) == 1 else [f"x{i}" for i in range(len(names))]


def output_titles(model: DensityEstimator) -> list[str]:
    """What the outputs are called: the names of their columns, else y with a number."""
    if model.output_names_:
        return list(model.output_names_)
    return ["y"] if model.n_outputs_ == 1 else [f"y{i}" for i in range(model.n_outputs_)]


def nice(step: float) -> float:
    """The greatest of 1, 2 and 5 times a power of ten that is not above this."""
    power = 10.0 ** np.floor(np.log10(step))
    return float(max(k * power for k in (1, 2, 5) if k * power <= step * (1 + 1e-9)))


def tidy(value: float, step: float) -> float:
    """A multiple of a step without the digits that rounding adds."""
    return round(value, max(0, int(np.ceil(-np.log10(step)))))


def _menu(name: str, category: Category, table: Table | None) -> Menu:
    levels = tuple(str(level) for level in category.levels)
    if table is None:
        return Menu(category.place, name, levels, levels[0])
    seen, counts = np.unique([str(value) for value in table.text[category.place].tolist()], return_counts=True)
    return Menu(category.place, name, levels, str(seen[counts.argmax()]))
