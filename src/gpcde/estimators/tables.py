"""Tables of inputs: numbers in standard units, categories as codes, and a clear word where neither fits.

Takes NumPy arrays, lists, and data frames of pandas or polars. Columns of text, categories or truth values by name
are categories; all others are numbers. What was learnt of the columns (`Columns`) is applied to every later table.
"""

import datetime
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..density.transforms import Moments, standard_units
from ..model.inputs import Inputs, make_inputs
from ..runtime.files import check_fields, check_numbers, check_positive, register

Levels = tuple[str | int | float | bool, ...]


@register
class Category(NamedTuple):
    """A column of categories: where it is, and its levels in the order of their codes."""

    place: int
    levels: Levels

    def check_values(self) -> None:
        """Raise where a file holds what cannot be."""
        check_numbers(f"the category of column {self.place}", self.levels, np.inf)
        if not self.levels or len({(type(level), level) for level in self.levels}) < len(self.levels):
            raise ValueError(f"the category of column {self.place} has no levels, or one twice")


@register
class Bends(NamedTuple):
    """Some numbers, in standard units, by an asinh: (asinh((z - centre) / width) - location) / scale."""

    place: Int[np.ndarray, " b"]
    centre: Float[np.ndarray, " b"]
    width: Float[np.ndarray, " b"]
    location: Float[np.ndarray, " b"]
    scale: Float[np.ndarray, " b"]

    def check_values(self) -> None:
        """Raise where a file holds what cannot be."""
        check_fields(self)
        check_positive(self, "width", "scale", least=1e-6)
        if len({len(a) for a in self}) > 1 or self.place.min(initial=0) < 0 or (np.diff(self.place) <= 0).any():
            raise ValueError("the bends of X are in disorder")

    @classmethod
    def of(
        cls,
        place: Int[np.ndarray, " b"],
        centre: Float[np.ndarray, " b"],
        width: Float[np.ndarray, " b"],
        z: Float[np.ndarray, "n d"],
        weight: Float[np.ndarray, " n"],
    ) -> "Bends":
        """With the location and scale that these rows have."""
        return cls(place, centre, width, *standard_units(np.arcsinh((z[:, place] - centre) / width), weight))

    def apply(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """The same numbers, some of them bent, in standard units."""
        out = z.copy()
        out[:, self.place] = (np.arcsinh((z[:, self.place] - self.centre) / self.width) - self.location) / self.scale
        return out


@register
class Columns(NamedTuple):
    """What was learnt of the columns of X; `bends` are of the numbers that are not constant."""

    names: tuple[str, ...]
    numbers: tuple[int, ...]
    location: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    categories: tuple[Category, ...]
    constant: tuple[int, ...] = ()
    limit: Float[np.ndarray, " d"] | None = None
    bends: Bends | None = None

    def check_values(self) -> None:
        """Raise where a file holds what cannot be."""
        check_numbers("Columns", [self.location, self.scale, self.categories], np.inf)
        check_positive(self, "scale")
        if self.limit is not None:
            check_positive(self, "limit")
        if self.bends is not None:
            self.bends.check_values()
            if self.bends.place.max(initial=-1) >= len(self._used()):
                raise ValueError("the bends of X are of columns that there are not")
        places = [*self.numbers, *(category.place for category in self.categories)]
        if sorted(places) != list(range(len(self.names))) or len(self.location) != len(self.numbers):
            raise ValueError("the columns of X are not each a number or a category")
        used = self._used()
        if (np.abs(self.location[used]) > 1e20 * self.scale[used]).any():
            raise ValueError("the columns of X lie further from 0 than their units can tell")
        if not set(self.constant) <= set(places) or sorted(self.numbers) != list(self.numbers):
            raise ValueError("the columns of X are in disorder")

    @classmethod
    def fit(
        cls,
        table: "Table",
        weight: Float[np.ndarray, " n"] | None = None,
        far: Bool[np.ndarray, "n d"] | None = None,
        limited: Bool[np.ndarray, " d"] | None = None,
    ) -> "Columns":
        """Mean and scale of the numbers, levels of the categories, and which columns are constant, so are not used.

        Numbers that are far from all others do not count. The columns that have some, or had, are limited from then on:
        to twice the distance of the others from their mean.
        """
        moments = Moments.of(table.dense, weight)
        location, scale = moments.units()
        limit = None
        if far is not None and limited is not None and limited.any():
            limit = np.full(len(scale), np.inf)
            for j in np.flatnonzero(limited):
                near = ~far[:, j]
                column = table.dense[near, j : j + 1]
                if not near.all():
                    (location[j],), (scale[j],) = standard_units(column, None if weight is None else weight[near])
                limit[j] = 2 * np.abs((column - location[j]) / scale[j]).max()
        levels = {place: levels_of(column.tolist()) for place, column in table.text.items()}
        known = cls.known(table.names, table.numbers, moments, levels)
        return known._replace(location=location, scale=scale, limit=limit).checked()

    @classmethod
    def known(
        cls,
        names: tuple[str, ...],
        numbers: tuple[int, ...],
        moments: Moments,
        levels: dict[int, Levels],
    ) -> "Columns":
        """From the moments of the numbers and the levels of the categories by their place, without the rows."""
        location, scale = moments.units()
        categories = tuple(Category(place, found) for place, found in levels.items())
        constant = [place for place, same in zip(numbers, _constant(moments), strict=True) if same]
        constant += [category.place for category in categories if len(category.levels) == 1]
        return cls(names, numbers, location, scale, categories, tuple(sorted(constant)))

    def checked(self) -> "Columns":
        """Itself, unless the unit of a column is too small."""
        for place, unit in zip(self.numbers, self.scale, strict=True):
            if unit < LEAST:
                name = self.names[place]
                raise ValueError(f"column {name} of X is in units of {unit:g}, which cannot be told apart: scale it up")
        return self

    @property
    def levels(self) -> tuple[int, ...]:
        """How many levels each category has, those that are constant apart."""
        return tuple(len(category.levels) for category in self.categories if category.place not in self.constant)

    @property
    def width(self) -> int:
        """How many numbers a row is, with a number for every level of a category."""
        return len(self._used()) + sum(self.levels)

    def blank(self) -> Inputs:
        """A row of nothing, for its shape, and of the last level of each category."""
        return Inputs(np.zeros((1, len(self._used()))), np.cumsum(self.levels, dtype=np.int32)[None] - 1)

    def _used(self) -> list[int]:
        """Which of the numbers are not constant, in the order of `numbers`."""
        return [i for i, place in enumerate(self.numbers) if place not in self.constant]

    def apply(self, table: "Table") -> Inputs:
        """The table in standard units."""
        if table.numbers != self.numbers or set(table.text) != {c.place for c in self.categories}:
            odd = sorted(set(table.numbers) ^ set(self.numbers))
            names = ", ".join(self.names[i] for i in odd)
            raise ValueError(f"X has numbers where training had categories, or the other way round, in column {names}")
        codes = [np.zeros((len(table.dense), 0), np.int32)]
        for place, levels in self.categories:
            missing = sorted(str(value) for value in set(table.text[place].tolist()) - set(levels))
            if missing:
                raise ValueError(
                    f"column {self.names[place]} of X holds {_listed(missing)}, never seen in training; known are "
                    f"{_listed([str(level) for level in levels])}. Drop these rows, or train with examples of them"
                )
            if place not in self.constant:
                codes.append(_codes(table.text[place], levels)[:, None])
        return make_inputs(self._standard(table.dense), np.concatenate(codes, axis=1), self.levels)

    def _standard(self, dense: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """The numbers that are used, in standard units, within their limits."""
        with np.errstate(over="ignore"):
            z = (dense - self.location) / self.scale
        if self.limit is not None:
            z = np.clip(z, -self.limit, self.limit)
        used = self._used()
        z = z if len(used) == len(self.numbers) else z[:, used]
        if not np.isfinite(z).all():
            row, column = np.argwhere(~np.isfinite(z))[0]
            place = self.numbers[used[column]]
            raise ValueError(
                f"column {self.names[place]} of X is {dense[row, used[column]]:g} in row {row}, too large for its unit "
                f"in training, {self.scale[used[column]]:g}: drop the row, or scale the column down"
            )
        return z if self.bends is None else self.bends.apply(z)


class Table(NamedTuple):
    """A table taken apart: the numbers, and the columns of categories by their place."""

    names: tuple[str, ...]
    numbers: tuple[int, ...]
    dense: Float[np.ndarray, "n d"]
    text: dict[int, np.ndarray]

    def take(self, index: Int[np.ndarray, " b"]) -> "Table":
        """Some of the rows."""
        return self._replace(dense=self.dense[index], text={place: c[index] for place, c in self.text.items()})


LEAST = 1e-305
"""The least unit of a column: beneath it numbers lose their digits."""

MERGED = 20_000
"""Up to this many rows, those that repeat exactly are merged into one of greater weight."""


def merged(
    table: Table, outputs: Float[np.ndarray, "n D"], weight: Float[np.ndarray, " n"] | None
) -> tuple[Table, Float[np.ndarray, "m D"], Float[np.ndarray, " m"]]:
    """Rows with their weights: those of weight 0 left out, those that repeat merged, in an order of their own.

    So a row of weight 2 and that row twice are the same data to the last bit, whatever is learnt from them. Rows of
    weight 1 that all differ stay as they are.
    """
    if weight is not None and not (weight > 0).all():
        index = np.flatnonzero(weight > 0)
        table, outputs, weight = table.take(index), outputs[index], weight[index]
    each = np.ones(len(outputs)) if weight is None else weight
    if len(outputs) > MERGED:
        return table, outputs, each
    codes = [_codes(column, levels_of(column.tolist())) for column in table.text.values()]
    values = np.column_stack([table.dense, outputs, *codes])
    _, first, place = np.unique(values, axis=0, return_index=True, return_inverse=True)
    if len(first) == len(outputs) and (each == 1).all():
        return table, outputs, each
    return table.take(first), outputs[first], np.bincount(place.ravel(), each)


def _constant(moments: Moments) -> Bool[np.ndarray, " d"]:
    """Which columns are the same in all rows, rounding apart."""
    with np.errstate(over="ignore"):
        apart = np.maximum(moments.high - moments.first, moments.first - moments.low)
    return apart <= 1e-15 * moments.size


def levels_of(values: Iterable[str | int | float | bool]) -> Levels:
    """The levels of a column of categories, in an order of their own."""
    return tuple(sorted(set(values), key=lambda level: (str(type(level)), level)))


def _codes(column: np.ndarray, levels: Levels) -> Int[np.ndarray, " n"]:
    """The number of each value among the levels."""
    known = {level: code for code, level in enumerate(levels)}
    return np.array([known[value] for value in column.tolist()], np.int32)


def _listed(values: list[str]) -> str:
    return ", ".join(repr(v) for v in values[:5]) + (", …" if len(values) > 5 else "")


def is_frame(X: Any) -> bool:
    """Whether this is a data frame, of pandas, polars or their like."""
    return hasattr(X, "columns") and hasattr(X, "__getitem__") and hasattr(X, "shape") and not isinstance(X, np.ndarray)


def has_categories(X: Any) -> bool:
    """Whether a data frame has a column that is no number."""
    if not is_frame(X):
        return False
    names = list(X.columns)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"X has several columns named {twice}: give each a name of its own")
    return any(_is_category(X[name]) for name in names)


def _is_category(column: Any) -> bool:
    kind = str(column.dtype).lower()
    if kind.startswith(("category", "categorical", "enum", "string", "str", "utf8")):
        return True
    values = np.asarray(column)
    return values.dtype.kind in "OUT" and any(isinstance(v, str) for v in values.tolist())


def read_frame(X: Any) -> Table:
    """A data frame with categories, taken apart; values are checked."""
    names, numbers, dense, text = tuple(str(name) for name in X.columns), [], [], {}
    for place, name in enumerate(X.columns):
        column = X[name]
        if _is_category(column):
            values = np.array(np.asarray(column), object)
            for row, value in enumerate(values.tolist()):
                if value is None or type(value).__name__ == "NAType" or value != value:
                    raise ValueError(
                        f"column {name} of X has a missing value in row {row}: fill it (a level of its own will do), "
                        "or drop the row"
                    )
                if not isinstance(value, str | int | float | bool | np.generic):
                    raise TypeError(f"column {name} of X holds {value!r}, which is neither text nor a number")
            text[place] = np.array([v.item() if isinstance(v, np.generic) else v for v in values.tolist()], object)
            continue
        try:
            dense.append(np.asarray(column, float))
        except (TypeError, ValueError) as error:
            raise ValueError(f"column {name} of X has numbers and other things in it: {error}") from error
        numbers.append(place)
    matrix = np.stack(dense, axis=1) if dense else np.zeros((X.shape[0], 0))
    check_finite("X", matrix, [names[i] for i in numbers])
    return Table(names, tuple(numbers), matrix, text)


def read_numbers(X: Float[np.ndarray, "n d"], names: list[str] | None) -> Table:
    """A matrix of numbers, its values checked."""
    columns = names or [str(i) for i in range(X.shape[1])]
    check_finite("X", X, columns)
    return Table(tuple(columns), tuple(range(X.shape[1])), X, {})


UNREAD = {"polars": "collect", "dask": "compute", "pyarrow": "to_pandas", "pyspark": "toPandas"}
"""Tables that are lazy, or of a kind that is not read: the library, and the method that makes one that is."""

TIMES = (datetime.date, datetime.time, datetime.timedelta)


def check_readable(what: str, a: Any) -> None:
    """Raise where a table is lazy, holds dates or times, or has masked entries, and say where and what to do."""
    library = type(a).__module__.split(".")[0].removesuffix("_expr")
    if hasattr(a, UNREAD.get(library, " ")):
        raise TypeError(
            f"{what} is a {type(a).__name__} of {library}, which is not read as it is: give {what}.{UNREAD[library]}()"
        )
    for place, column in ((f"column {name} of {what}", a[name]) for name in a.columns) if is_frame(a) else ((what, a),):
        if _holds_times(column):
            raise ValueError(
                f"{place} holds dates or times: turn them into numbers first, such as days since the first, the hour "
                "of the day, or the day of the week"
            )
    if np.ma.is_masked(a):
        first = tuple(int(i) for i in np.argwhere(np.ma.getmaskarray(a))[0])
        raise ValueError(
            f"{what} has {np.ma.count_masked(a)} masked entries, the first at {list(first)}: drop these rows, or fill "
            f"the values ({what}.filled, sklearn.impute)"
        )


def _holds_times(column: Any) -> bool:
    kind = str(getattr(column, "dtype", "")).lower()
    if kind != "object":
        return kind.startswith(("date", "time", "duration", "period"))
    first = next((value for value in np.asarray(column).flat if value is not None), None)
    return isinstance(first, TIMES) or type(first).__name__ == "Period"


def from_arrow(X: Any) -> Any:
    """A table or record batch of pyarrow as a data frame; all else as it is."""
    is_arrow = type(X).__module__.split(".")[0] == "pyarrow" and hasattr(X, "schema") and hasattr(X, "to_pandas")
    return X.to_pandas() if is_arrow else X


def frame_names(y: Any) -> tuple[str, ...] | None:
    """The names of a data frame's columns, if all are text."""
    names = list(y.columns) if is_frame(y) else []
    return tuple(names) if names and all(isinstance(name, str) for name in names) else None


def frame_kind(y: Any) -> str | None:
    """The library a data frame with names is of, pandas or polars."""
    kind = type(y).__module__.split(".")[0]
    return kind if frame_names(y) and kind in ("pandas", "polars") else None


def make_frame(kind: str, values: Float[np.ndarray, "n d"], names: tuple[str, ...], like: Any) -> Any:
    """A data frame of that library, with the index of another table where it has one."""
    if kind == "polars":
        import polars

        return polars.DataFrame(values, schema=list(names))
    import pandas

    return pandas.DataFrame(
        values, columns=list(names), index=like.index if isinstance(like, pandas.DataFrame) else None
    )


def check_finite(what: str, matrix: Float[np.ndarray, "n d"], names: list[str]) -> None:
    """Raise where there is NaN or infinity, and say where."""
    bad = ~np.isfinite(matrix)
    if bad.any():
        columns = np.flatnonzero(bad.any(0))
        row = int(bad[:, columns[0]].argmax())
        found = "NaN" if np.isnan(matrix[row, columns[0]]) else "infinity"
        more = f", and in {len(columns) - 1} columns more" if len(columns) > 1 else ""
        raise ValueError(
            f"{what} contains NaN or infinity: {found} in column {names[columns[0]]}, first in row {row}{more}. "
            "Drop these rows, or fill the values (sklearn.impute)"
        )
