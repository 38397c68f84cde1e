"""Tables of numbers and categories: what is learnt of the columns, applied again, and what is refused, by name."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gpcde import MDN
from gpcde.density.transforms import standard_units
from gpcde.estimators.tables import Category, Columns, has_categories, is_frame, read_frame, read_numbers
from gpcde.model.inputs import Inputs

NUMBERS = {"a": [1.0, 2.0, 6.0, -3.0], "b": [10, 20, 20, 50]}
TEXT = ["u", "v", "v", "w"]


def learnt(X: Any) -> tuple[Columns, Inputs]:
    """As an estimator reads a table in training."""
    table = MDN()._read_table(X, reset=True)
    features = Columns.fit(table)
    return features, features.apply(table)


def scaled() -> np.ndarray:
    matrix = np.array(list(NUMBERS.values()), float).T
    return (matrix - matrix.mean(0)) / matrix.std(0)


# numbers


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.array(list(NUMBERS.values()), float).T,
        lambda: np.array(list(NUMBERS.values()), np.float32).T,
        lambda: np.array(list(NUMBERS.values())).T.astype(int),
        lambda: [list(row) for row in zip(*NUMBERS.values(), strict=True)],
        lambda: pd.DataFrame(NUMBERS),
        lambda: pd.DataFrame(NUMBERS).convert_dtypes(),
        lambda: pl.DataFrame(NUMBERS),
    ],
    ids=["float64", "float32", "int", "lists", "pandas", "pandas nullable", "polars"],
)
def test_numbers_of_any_kind_are_the_same_table(make: Any) -> None:
    X = make()
    assert not has_categories(X)
    features, x = learnt(X)
    np.testing.assert_allclose(x.dense, scaled(), rtol=1e-13, atol=1e-14)
    assert x.codes.shape == (4, 0)
    assert features.names == (("a", "b") if is_frame(X) else ("0", "1"))
    assert (features.numbers, features.categories, features.levels) == ((0, 1), (), ())


@pytest.mark.parametrize("with_text", [False, True])
@pytest.mark.parametrize("kind", [pd.array([True, False, True, True], dtype="boolean"), [True, False, True, True]])
def test_truth_values_are_numbers(kind: Any, with_text: bool) -> None:
    X = pd.DataFrame({"t": kind} | ({"c": TEXT} if with_text else {}))
    x = learnt(X)[1]
    truth = np.array([1.0, 0, 1, 1])
    np.testing.assert_allclose(x.dense[:, 0], (truth - truth.mean()) / truth.std(), rtol=1e-13)


def test_whole_numbers_that_may_be_missing_are_numbers_beside_text() -> None:
    X = pd.DataFrame({"c": TEXT, "n": pd.array([1, 2, 3, 6], dtype="Int64"), "p": pl.Series([1, 2, 3, 6])})
    features, x = learnt(X)
    assert features.numbers == (1, 2)
    np.testing.assert_allclose(x.dense, (np.array([[1, 2, 3, 6]] * 2).T - 3) / np.std([1, 2, 3, 6]), rtol=1e-13)


# categories


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(TEXT),
        pd.Series(TEXT, dtype=object),
        pd.Series(TEXT, dtype="string"),
        pd.Series(TEXT, dtype="category"),
        pl.Series(TEXT),
        pl.Series(TEXT, dtype=pl.Categorical),
        pl.Series(TEXT, dtype=pl.Enum(["w", "v", "u"])),
    ],
    ids=["str", "object", "string", "category", "polars", "polars categorical", "polars enum"],
)
def test_text_of_any_kind_is_a_category(column: Any) -> None:
    frame = pl.DataFrame if isinstance(column, pl.Series) else pd.DataFrame
    X = frame({"a": NUMBERS["a"], "c": column, "b": NUMBERS["b"]})
    assert has_categories(X)
    features, x = learnt(X)
    assert features.categories == (Category(1, ("u", "v", "w")),)
    assert (features.names, features.numbers, features.levels) == (("a", "c", "b"), (0, 2), (3,))
    np.testing.assert_array_equal(x.codes, [[0], [1], [1], [2]])
    np.testing.assert_allclose(x.dense, scaled(), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("values", [[30, 4, 4, 100], [0.5, 0.25, 0.25, 2.0], [True, False, False, True]])
def test_categories_that_are_numbers_stay_categories(values: list[Any]) -> None:
    """They are ordered as numbers, not as text."""
    features, x = learnt(pd.DataFrame({"c": pd.Categorical(values)}))
    levels = sorted(set(values))
    assert features.categories == (Category(0, tuple(levels)),)
    np.testing.assert_array_equal(x.codes[:, 0], [levels.index(v) for v in values])
    assert x.dense.shape == (4, 0)


def test_a_column_of_text_and_numbers_is_a_category_of_both() -> None:
    features, x = learnt(pd.DataFrame({"c": pd.Series([2, "a", 1, "a"], dtype=object)}))
    assert features.categories[0].levels == (1, 2, "a")
    np.testing.assert_array_equal(x.codes[:, 0], [1, 2, 0, 2])


def test_later_tables_get_the_codes_of_training() -> None:
    """Two categories: codes of the second follow those of the first; pandas or polars, in any order of rows."""
    train = pd.DataFrame({"c": TEXT, "a": NUMBERS["a"], "d": pd.Categorical([7, 5, 7, 7])})
    features, x = learnt(train)
    np.testing.assert_array_equal(x.codes, [[0, 4], [1, 3], [1, 4], [2, 4]])
    later = pd.DataFrame({"c": pd.Categorical(["w", "u"]), "a": [6.0, 1.0], "d": pd.Categorical([5, 7])})
    again = features.apply(read_frame(later))
    np.testing.assert_array_equal(again.codes, [[2, 3], [0, 4]])
    np.testing.assert_array_equal(again.dense, x.dense[[2, 0]])


# what is refused


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["numpy", "pandas", "polars", "pandas and text", "polars and text"])
def test_what_is_not_finite_is_named_by_column_and_row(kind: str, value: float) -> None:
    columns: dict[str, Any] = {"a": NUMBERS["a"], "b": [1.0, 2.0, value, value], "z": [1.0, 2.0, 3.0, value]}
    X: Any = np.array(list(columns.values())).T
    if kind != "numpy":
        X = (pd if kind.startswith("pandas") else pl).DataFrame(columns | ({"c": TEXT} if "text" in kind else {}))
    what, name = "NaN" if np.isnan(value) else "infinity", "1" if kind == "numpy" else "b"
    with pytest.raises(ValueError, match=f"X contains.*{what} in column {name}, first in row 2, and in 1 columns more"):
        learnt(X)


@pytest.mark.parametrize("column", [pd.array([1, None, 3, 4], dtype="Int64"), pd.array([1.0, None, 3, 4], "Float64")])
@pytest.mark.parametrize("text", [{}, {"c": TEXT}])
def test_a_missing_number_of_pandas_is_named(column: Any, text: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="NaN in column n, first in row 1. Drop"):
        learnt(pd.DataFrame({"n": column} | text))


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["u", "v", None]),
        pd.Series(["u", "v", None], dtype="string"),
        pd.Series(["u", "v", np.nan], dtype=object),
        pd.Series(["u", "v", None], dtype="category"),
        pl.Series(["u", "v", None]),
        pl.Series(["u", "v", None], dtype=pl.Categorical),
    ],
    ids=["str", "string", "object", "category", "polars", "polars categorical"],
)
def test_a_missing_category_is_named(column: Any) -> None:
    frame = pl.DataFrame if isinstance(column, pl.Series) else pd.DataFrame
    with pytest.raises(ValueError, match="column c of X has a missing value in row 2: fill it"):
        learnt(frame({"c": column}))


def test_columns_that_are_neither_text_nor_numbers_are_named() -> None:
    with pytest.raises(ValueError, match="column q of X has numbers and other things"):
        learnt(pd.DataFrame({"c": TEXT, "q": [1, [2], 3, 4]}))
    with pytest.raises(TypeError, match="column q of X holds Interval.*neither text nor a number"):
        learnt(pd.DataFrame({"q": pd.cut(NUMBERS["a"], 2)}))


@pytest.mark.parametrize("columns", [[[1.0, 2.0], [3.0, 4.0]], [[1.0, "a"], [3.0, "b"]]])
def test_columns_of_the_same_name_are_named(columns: Any) -> None:
    with pytest.raises(ValueError, match="several columns named q"):
        learnt(pd.DataFrame(columns, columns=["q", "q"]))


def test_an_unseen_category_is_named_with_the_known_ones() -> None:
    features, _ = learnt(pd.DataFrame({"a": NUMBERS["a"], "c": TEXT}))
    later = pd.DataFrame({"a": [1.0, 2.0, 3.0], "c": ["v", "new", "x"]})
    with pytest.raises(ValueError, match="column c of X holds 'new', 'x', never seen in training; known are 'u', 'v'"):
        features.apply(read_frame(later))
    many = pd.DataFrame({"a": np.zeros(7), "c": [f"n{i}" for i in range(7)]})
    with pytest.raises(ValueError, match="'n4', …, never"):
        features.apply(read_frame(many))


def test_numbers_and_categories_do_not_change_places() -> None:
    features, _ = learnt(pd.DataFrame({"a": NUMBERS["a"], "c": TEXT}))
    with pytest.raises(ValueError, match="the other way round, in column c$"):
        features.apply(read_numbers(np.zeros((2, 2)), ["a", "c"]))
    with pytest.raises(ValueError, match="the other way round, in column a, c$"):
        features.apply(read_frame(pd.DataFrame({"a": TEXT, "c": NUMBERS["a"]})))


# units


def test_standard_units_are_mean_and_standard_deviation() -> None:
    a = np.random.default_rng(0).normal(size=(50, 3)) * [1, 10, 0.1] + [5, -2, 0]
    location, scale = standard_units(a)
    np.testing.assert_allclose(location, a.mean(0), rtol=1e-12)
    np.testing.assert_allclose(scale, a.std(0), rtol=1e-12)


@pytest.mark.parametrize("size", [1e-300, 1e-12, 1e12, 1e300])
def test_units_of_any_size_neither_overflow_nor_vanish(size: float) -> None:
    """1e300 squared is not a number any more; the table in standard units is what it would be without the unit."""
    plain = np.random.default_rng(0).normal([1.0, 0.0], size=(30, 2))
    one, other = (learnt(plain * s)[1].dense for s in (1.0, size))
    np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("value", [0.0, 0.1, -7e9, 1e300])
def test_a_constant_column_is_left_out_whatever_its_value(value: float) -> None:
    """0.1 has no exact sum: its mean and deviation are rounding."""
    X = np.stack([np.full(7, value), np.arange(7)], axis=1)
    location, scale = standard_units(X)
    assert (location[0], scale[0]) == (value, 1)
    columns, x = learnt(X)
    assert (columns.constant, columns.width) == ((0,), 1)
    np.testing.assert_allclose(x.dense, (X[:, 1:] - 3) / 2)


def test_a_column_that_varies_by_rounding_alone_is_constant() -> None:
    X = np.array([[0.1 + 0.2], [0.3], [0.3]])
    assert X[0] != X[1]
    assert learnt(X)[1].dense.shape == (3, 0)


# dates, times, and tables that are not there yet

DAYS = pd.date_range("2024-02-28", periods=4)


@pytest.mark.parametrize(
    "times",
    [
        DAYS,
        DAYS.tz_localize("UTC"),
        DAYS.to_period("D"),
        DAYS - DAYS[0],
        list(DAYS.date),
        list(DAYS.time),
        pl.Series(DAYS.to_pydatetime()),
        pl.Series(list(DAYS.time)),
    ],
    ids=["datetime", "zone", "period", "timedelta", "date", "time", "polars datetime", "polars time"],
)
def test_dates_and_times_are_refused_in_inputs_and_outputs(times: Any) -> None:
    """NumPy would take most of them for numbers: nanoseconds since 1970."""
    frame = pl.DataFrame if isinstance(times, pl.Series) else pd.DataFrame
    table, numbers = frame({"a": NUMBERS["a"], "when": times}), np.array([NUMBERS["a"]]).T
    with pytest.raises(ValueError, match="column when of X holds dates or times"):
        MDN().fit(table, NUMBERS["b"])
    with pytest.raises(ValueError, match="column when of y holds dates or times"):
        MDN().fit(numbers, table)
    with pytest.raises(ValueError, match="y holds dates or times"):
        MDN().fit(numbers, table["when"])
    with pytest.raises(ValueError, match="X holds dates or times"):
        MDN().fit(np.asarray(pd.Series(times))[:, None], NUMBERS["b"])


def test_lazy_and_foreign_tables_are_told_how_to_become_readable() -> None:
    with pytest.raises(TypeError, match=r"LazyFrame of polars.*give X.collect\(\)"):
        MDN().fit(pl.LazyFrame(NUMBERS), NUMBERS["b"])
    with pytest.raises(TypeError, match=r"LazyFrame of polars.*give y.collect\(\)"):
        MDN().fit(pl.DataFrame(NUMBERS), pl.LazyFrame(NUMBERS))
    with pytest.raises(TypeError, match=r"Table of pyarrow.*give y.to_pandas\(\)"):
        MDN().fit(pl.DataFrame(NUMBERS), pa.table(NUMBERS))
