"""Rows in Parquet files, read a row group at a time: tables that need not fit into memory.

Names, types and sizes are those of the files' footers, and checked before any row is read. Whatever cannot be read
later is a `StreamError` that names the file and the row group.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..inference.data import StreamError
from ..runtime.extras import extra
from .tables import Table, check_finite

Names = str | Sequence[str]


class Portion(NamedTuple):
    """The rows of a row group: inputs, outputs, and what each counts where that is told."""

    table: Table
    outputs: Float[np.ndarray, "n D"]
    weight: Float[np.ndarray, " n"] | None


class RowGroup(NamedTuple):
    """Where some rows are: the file, the row group in it, and how many they are."""

    fragment: Any
    number: int
    rows: int

    def __str__(self) -> str:
        return f"row group {self.number} of {self.fragment.path}"


class ParquetRows:
    """The rows of Parquet files, in place of X and y: they are read as they are needed, and need not fit into memory.

    Parameters
    ----------
    source : path, list of paths, or pyarrow.dataset.Dataset
        A Parquet file, a folder of them (with folders named key=value, whose keys are columns too), or a data set of
        pyarrow, on whatever file system.
    target : str or list of str, default=None
        The column that is y, or the columns; of a list, y is a matrix. Not needed where a model is only to predict.
    features : list of str, default=None
        The columns that are X; by default all others.
    drop : str or list of str, default=None
        Columns to leave out.
    weights : str, default=None
        The column that says what each row counts.
    categories : str or list of str, default=None
        Columns of numbers that are categories; columns of text always are.
    buffer : int, default=262144
        At least that many rows, of two row groups or more, are shuffled together. Three such buffers are held at most.

    Attributes
    ----------
    names : tuple of str
        The columns that are X.
    groups : list of RowGroup
        Where the rows are.

    Examples
    --------
    >>> import tempfile
    >>> import gpcde
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> import pyarrow.parquet as pq
    >>> x = np.linspace(-1, 1, 100)
    >>> path = f"{tempfile.mkdtemp()}/rows.parquet"
    >>> pq.write_table(pa.table({"x": x, "y": np.sin(x)}), path, row_group_size=40)
    >>> rows = gpcde.ParquetRows(path, target="y")
    >>> len(rows), rows.names, len(rows.groups)
    (100, ('x',), 3)
    """

    names: tuple[str, ...]
    groups: list[RowGroup]

    def __init__(
        self,
        source: Any,
        target: Names | None = None,
        features: Names | None = None,
        drop: Names | None = None,
        weights: str | None = None,
        categories: Names | None = None,
        buffer: int = 2**18,
    ) -> None:
        if not isinstance(buffer, int) or buffer < 1:
            raise ValueError(f"buffer, the rows shuffled together, must be a positive integer, got {buffer!r}")
        self.flat, self.buffer, self.weights = target is None or isinstance(target, str), buffer, weights
        dataset = _open(source)
        self._schema = dataset.schema
        self.target = self._chosen("target", target)
        dropped = {*self.target, *self._chosen("drop", drop), *self._chosen("weights", weights)}
        wished = self._chosen("features", features) if features is not None else tuple(self._schema.names)
        self.names = tuple(name for name in wished if name not in dropped)
        self.categories = self._chosen("categories", categories)
        if not self.names:
            raise ValueError("features: no column is left")
        self._used = [*self.names, *self.target, *(() if weights is None else (weights,))]
        kinds = {name: self._kind(name, self._schema.field(name).type, "the data set") for name in self._used}
        for name in (*self.target, *(() if weights is None else (weights,))):
            if kinds[name] != "number":
                raise ValueError(f"column {name}, which is {self._role(name)}, must hold numbers, and holds text")
        self.text = {place: name for place, name in enumerate(self.names) if kinds[name] == "category"}
        self.groups = []
        for fragment in dataset.get_fragments():
            self.groups += self._row_groups(fragment, kinds)
        if not len(self):
            raise ValueError(f"{source} has no rows")

    def __len__(self) -> int:
        return sum(group.rows for group in self.groups)

    def __repr__(self) -> str:
        return f"ParquetRows({len(self)} rows in {len(self.groups)} row groups, target={', '.join(self.target)})"

    def read(self, number: int) -> Portion:
        """The rows of one of the row groups.

        Parameters
        ----------
        number : int
            Which of `groups`.

        Returns
        -------
        Portion
            Its inputs, outputs and weights, checked.

        Raises
        ------
        StreamError
            If it cannot be read, or holds NaN, infinity or missing values; the message names file and row group.
        """
        group = self.groups[number]
        data = self._load(group, self._used)
        try:
            text = {place: _texts(name, data.column(name)) for place, name in self.text.items()}
            numbers = tuple(place for place in range(len(self.names)) if place not in text)
            dense = _matrix(data, [self.names[place] for place in numbers])
            outputs = _matrix(data, self.target)
            check_finite("X", dense, [self.names[place] for place in numbers])
            check_finite("y", outputs, list(self.target))
            weight = None if self.weights is None else _matrix(data, [self.weights])[:, 0]
            if weight is not None and not (np.isfinite(weight) & (weight >= 0)).all():
                row = int((~(np.isfinite(weight) & (weight >= 0))).argmax())
                raise ValueError(f"weights must be finite and not negative, but is {weight[row]:g} in row {row}")
        except (ValueError, TypeError) as error:
            raise StreamError(f"{group}: {error}") from error
        return Portion(Table(self.names, numbers, dense, text), outputs, weight)

    def inputs(self) -> Iterator[Any]:
        """The inputs, one row group after another, as tables that `predict` and `predict_density` take.

        Yields
        ------
        pyarrow.Table
            The columns that are X.
        """
        for group in self.groups:
            table = self._load(group, self.names)
            for place, name in self.text.items():
                column = table.column(name)
                if not str(column.type).startswith("dictionary"):
                    table = table.set_column(place, name, column.dictionary_encode())
            if group.rows:
                yield table

    def tables(self) -> Iterator[tuple[RowGroup, Any]]:
        """All columns there are, of one type throughout, one row group after another.

        Yields
        ------
        RowGroup
            Which.
        pyarrow.Table
            Its rows.
        """
        for group in self.groups:
            if group.rows:
                yield group, self._load(group, self._schema.names).cast(self._schema)

    def _load(self, group: RowGroup, names: Sequence[str]) -> Any:
        """Columns of a row group, as it was when the data set was opened."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        fragment = group.fragment
        try:
            own = fragment.physical_schema
            fields = [own.field(name) if name in own.names else self._schema.field(name) for name in names]
            checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
            one = fragment.subset(row_group_ids=[group.number])
            table = one.to_table(pa.schema(fields), list(names), fragment_scan_options=checked)
            table.validate(full=True)  # text that is none
        except (pa.ArrowException, OSError) as error:
            raise StreamError(f"{group} cannot be read: {error}") from error
        if len(table) != group.rows:
            raise StreamError(f"{group} has {len(table)} rows, and had {group.rows} before: the file has changed")
        return table

    def _row_groups(self, fragment: Any, kinds: dict[str, str]) -> list[RowGroup]:
        """Those of a file, whose columns must be of the same kinds as those of the first."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        try:
            own = fragment.physical_schema
            found = [RowGroup(fragment, group.id, group.num_rows) for group in fragment.row_groups]
        except (pa.ArrowException, OSError) as error:
            raise StreamError(f"{fragment.path} cannot be read as Parquet: {error}") from error
        given = ds.get_partition_keys(fragment.partition_expression)
        for name, kind in kinds.items():
            if name in own.names:
                here = self._kind(name, own.field(name).type, fragment.path)
                if here != kind:
                    raise StreamError(
                        f"column {name} changes its type between files: it is a {here} ({own.field(name).type}) in "
                        f"{fragment.path}, and a {kind} ({self._schema.field(name).type}) before. Write it as one type"
                    )
            elif name not in given:
                raise StreamError(f"{fragment.path} lacks column {name}, which the files before it have")
        return found

    def _kind(self, name: str, type_: Any, where: str) -> str:
        """Whether a column is numbers or categories."""
        import pyarrow as pa

        is_ = pa.types
        if is_.is_temporal(type_):
            raise ValueError(
                f"column {name} of {where} holds dates or times: turn them into numbers first, such as days since the "
                "first, the hour of the day, or the day of the week"
            )
        if is_.is_dictionary(type_) or is_.is_string(type_) or is_.is_large_string(type_) or is_.is_string_view(type_):
            return "category"
        if any(test(type_) for test in (is_.is_integer, is_.is_floating, is_.is_boolean, is_.is_decimal, is_.is_null)):
            return "category" if name in self.categories else "number"
        raise ValueError(f"column {name} of {where} holds {type_}, neither numbers nor text: leave it out by drop")

    def _role(self, name: str) -> str:
        return "a target" if name in self.target else "weights"

    def _chosen(self, what: str, given: Names | None) -> tuple[str, ...]:
        """The columns an argument names, if they are there."""
        names = () if given is None else (given,) if isinstance(given, str) else tuple(given)
        missing = [str(name) for name in names if name not in self._schema.names]
        if missing:
            raise ValueError(
                f"{what}: there is no column {', '.join(missing)}; there are {', '.join(self._schema.names)}"
            )
        return names


def _open(source: Any) -> Any:
    """The data set, of Parquet files."""
    with extra("parquet"):
        import pyarrow as pa
        import pyarrow.dataset as ds

    if isinstance(source, ds.Dataset):
        if getattr(getattr(source, "format", None), "default_extname", "") != "parquet":
            raise TypeError(f"source must be a data set of Parquet files, got {type(source).__name__}")
        if getattr(source, "_scan_options", {}).get("filter") is not None:
            raise ValueError("source is filtered, but rows are read by row groups: write those you want to files")
        return source
    paths = [os.fspath(path) for path in (source if isinstance(source, list | tuple) else [source])]
    missing = [path for path in paths if not os.path.exists(path)]
    if missing:
        raise FileNotFoundError(f"there is no file or folder {missing[0]}")
    try:
        found = ds.dataset(paths if len(paths) > 1 else paths[0], format="parquet", partitioning="hive")
    except (pa.ArrowException, OSError) as error:
        raise StreamError(f"{source} cannot be read as Parquet: {error}") from error
    if not found.files:
        raise ValueError(f"{source} has no Parquet files")
    return found


def _matrix(data: Any, names: Sequence[str]) -> Float[np.ndarray, "n d"]:
    """Columns of numbers, NaN where one is missing."""
    import pyarrow as pa

    matrix = np.empty((len(data), len(names)))
    for place, name in enumerate(names):
        matrix[:, place] = data.column(name).cast(pa.float64(), safe=False).to_numpy()
    return matrix


def _texts(name: str, column: Any) -> np.ndarray:
    """A column of categories, none missing."""
    import pyarrow as pa

    column = column.combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    levels = np.array([*column.dictionary.to_pylist(), None], object)
    values = levels[column.indices.fill_null(len(levels) - 1).to_numpy(zero_copy_only=False)]
    missing = np.flatnonzero([level is None or level != level for level in levels[:-1]])
    bad = np.asarray(column.is_null()) | np.isin(column.indices.fill_null(-1).to_numpy(zero_copy_only=False), missing)
    if bad.any():
        raise ValueError(
            f"column {name} of X has a missing value in row {int(bad.argmax())}: fill it (a level of its own will do), "
            "or drop the row"
        )
    return values
