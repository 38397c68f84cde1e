"""The data beside a condition: rows of a table, nearest first.

The distance is that of the inputs in the model's standard units; a category that differs counts like two standard
deviations.
"""

import os
from typing import Any

import numpy as np
from jaxtyping import Float

from ..estimators.base import DensityEstimator
from ..estimators.tables import Table, is_frame
from ..model.inputs import Inputs
from .conditions import output_titles

MOST_ROWS, FEWEST, MOST, SHARE = 50_000, 20, 150, 0.05
"""How many rows are kept; and how many are shown at a condition, at least and at most, and as a share of all."""

DIFFERENT = 2.0
"""What a category that differs adds to the distance, in standard deviations."""


class Data:
    """Rows of inputs and outputs that a model could have learnt from.

    Parameters
    ----------
    model : DensityEstimator
        Trained.
    data : data frame, or path of a CSV file
        With the columns of the model's inputs and outputs. Rows that lack a value, or have a level that the model
        does not know, are left out.
    """

    def __init__(self, model: DensityEstimator, data: Any) -> None:
        frame = _read(data)
        inputs, outputs = _columns(model, [str(name) for name in frame.columns])
        place = {str(name): name for name in frame.columns}
        columns = model.features_
        dense = np.array([_numbers(frame, place[inputs[i]]) for i in columns.numbers]).reshape(len(columns.numbers), -1)
        y = np.array([_numbers(frame, place[name]) for name in outputs])
        good = np.isfinite(dense).all(0) & np.isfinite(y).all(0) if dense.size else np.isfinite(y).all(0)
        text = {}
        for category in columns.categories:
            known = {str(level): level for level in category.levels}
            values = [known.get(str(value)) for value in np.asarray(frame[place[inputs[category.place]]]).tolist()]
            text[category.place] = np.array(values, object)
            good &= np.array([value is not None for value in values])
        rows = np.flatnonzero(good)
        if not len(rows):
            raise ValueError("data has no row with a number in every column and categories that the model knows")
        self.known, self.total = len(rows), len(good)
        if len(rows) > MOST_ROWS:
            rows = np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))
        self.table = Table(
            columns.names, columns.numbers, np.empty((len(good), 0)) if not len(dense) else dense.T, text
        )
        self.table = self.table.take(rows)
        self.y: Float[np.ndarray, "n D"] = y.T[rows]
        self.x = columns.apply(self.table)

    def __len__(self) -> int:
        return len(self.y)

    def near(self, x: Inputs) -> tuple[np.ndarray, Float[np.ndarray, " k"]]:
        """The rows nearest to a condition, and how far they are."""
        distance = np.sqrt(((self.x.dense - x.dense) ** 2).sum(1)) + DIFFERENT * (self.x.codes != x.codes).sum(1)
        count = min(len(self), max(FEWEST, min(MOST, int(SHARE * len(self)))))
        rows = np.argpartition(distance, count - 1)[:count]
        rows = rows[np.argsort(distance[rows], kind="stable")]
        return rows, distance[rows]


def _read(data: Any) -> Any:
    if is_frame(data):
        return data
    if not isinstance(data, str | os.PathLike):
        raise TypeError(f"data must be a data frame or the path of a CSV file, got {type(data).__name__}")
    try:
        import pandas
    except ImportError as error:
        raise ImportError("reading a CSV file needs pandas: pip install pandas") from error
    return pandas.read_csv(data)


def _columns(model: DensityEstimator, names: list[str]) -> tuple[list[str], list[str]]:
    """Which columns of the data are the inputs and outputs: by name, or where the model knows none, by place."""
    named = hasattr(model, "feature_names_in_")
    inputs = list(model.features_.names) if named else names[: model.n_features_in_]
    if model.output_names_:
        outputs = list(model.output_names_)
    else:
        rest = [name for name in names if name not in inputs]
        outputs = rest[: model.n_outputs_] if not named or len(rest) == model.n_outputs_ else output_titles(model)
    missing = [name for name in [*inputs, *outputs] if name not in names]
    if missing or len(inputs) < model.n_features_in_ or len(outputs) < model.n_outputs_:
        wanted = ", ".join(missing) or f"{model.n_features_in_} inputs and {model.n_outputs_} outputs"
        raise ValueError(f"data lacks columns that the model has: {wanted}; it has {', '.join(names)}")
    return inputs, outputs


def _numbers(frame: Any, name: Any) -> Float[np.ndarray, " n"]:
    try:
        return np.asarray(frame[name], float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {name} of data must hold numbers: {error}") from error
