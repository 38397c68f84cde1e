"""Tables in and out, and which of their columns are what.

Formats are told by the name of a file or, of a pipe, by its first bytes. In an NPZ file every vector is a column, and
a matrix X is columns X0, X1, …, which `X` names together.
"""

import contextlib
import io
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from jaxtyping import Float

from ..estimators.base import DensityEstimator, load
from ..estimators.parquet import ParquetRows
from ..runtime import disk
from ..runtime.extras import extra
from .options import KINDS

with extra("cli"):
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

BEGINNINGS = {b"PAR1": "parquet", b"ARRO": "arrow", b"\xff\xff\xff\xff": "stream", b"PK\x03\x04": "npz"}
"""The first bytes of all formats but CSV."""

LEVELS = 20
"""So many different texts are a category even where nearly every row has its own."""


class Source(NamedTuple):
    """A table, the format it came in, and what to call it in messages."""

    frame: pd.DataFrame
    kind: str
    name: str


def read(path: str, text: Collection[str] = ()) -> Source:
    """The table in a file, or in a pipe where the path is "-"; these columns are text whatever they look like."""
    name = "the table on stdin" if path == "-" else path
    if path == "-":
        content = sys.stdin.buffer.read()
    elif Path(path).is_file():
        content = Path(path).read_bytes()
    else:
        raise FileNotFoundError(f"there is no file {path}")
    kind = KINDS.get(Path(path).suffix.lower()) or BEGINNINGS.get(content[:4], "csv")
    try:
        frame = _parse(io.BytesIO(content), kind, text)
    except Exception as error:  # whatever the libraries make of such bytes
        raise ValueError(f"{name} cannot be read as {kind}: {error}") from error
    frame.columns = frame.columns.map(str)
    if not len(frame):
        raise ValueError(f"{name} has no rows")
    return Source(_with_text(frame, text), kind, name)


def _with_text(frame: pd.DataFrame, names: Collection[str]) -> pd.DataFrame:
    """A table whose columns of these names are text."""
    numbers = [name for name in names if name in frame and frame[name].dtype.kind in "biuf"]
    return frame.astype(dict.fromkeys(numbers, "str"))


def _parse(file: io.BytesIO, kind: str, text: Collection[str]) -> pd.DataFrame:
    match kind:
        case "csv" | "tsv":
            comma = "," if kind == "csv" else "\t"
            return pd.read_csv(file, sep=comma, dtype=dict.fromkeys(text, "str"), float_precision="round_trip")
        case "parquet" | "arrow" | "stream":
            openers = {"parquet": pq.read_table, "arrow": pa.ipc.open_file, "stream": pa.ipc.open_stream}
            found = openers[kind](file)
            table = found if kind == "parquet" else found.read_all()
            # which reading does not: what points outside of the file would be followed, and text be no text
            table.validate(full=True)
            return table.to_pandas()
    with np.load(file, allow_pickle=False) as arrays:
        columns = {column: values for name in arrays for column, values in _columns(name, arrays[name])}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"its arrays differ in length: {lengths}")
    return pd.DataFrame(columns)


def _columns(name: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The columns of an array: itself, or those of a matrix."""
    if array.ndim == 2:
        yield from ((f"{name}{i}", column) for i, column in enumerate(array.T))
    elif array.ndim == 1:
        yield name, array
    else:
        raise ValueError(f"its array {name} is neither a vector nor a matrix, but of shape {array.shape}")


def write(frame: pd.DataFrame, path: str, kind: str) -> None:
    """Write a table in the format the path's name tells, or else in this one."""
    kind = KINDS.get(Path(path).suffix.lower(), kind)
    if path != "-":
        Path(path).write_bytes(_bytes(frame, kind))
        return
    sys.stdout.buffer.write(_bytes(frame, kind))
    sys.stdout.buffer.flush()


def write_parts(parts: Iterator[tuple["Asked", dict[str, np.ndarray]]], path: str) -> None:
    """Write parts of a table, each with more columns, to a Parquet file; where one fails, what there was stays."""
    with disk.replacing(path) as file, contextlib.ExitStack() as stack:
        writer: Any = None
        for asked, answers in parts:
            table = asked.table
            for name, values in answers.items():
                table = table.drop_columns(name) if name in table.column_names else table
                table = table.append_column(name, pa.array(values))
            writer = writer or stack.enter_context(pq.ParquetWriter(file, table.schema))
            writer.write_table(table)


def check_terminal(path: str, kind: str) -> None:
    """Raise where a format that none can read would go to a terminal: before any work is done for it."""
    if path == "-" and sys.stdout.isatty() and kind not in ("csv", "tsv"):
        raise click.UsageError(f"{kind} is not for a terminal: name a file by --out, or pipe it on")


def _bytes(frame: pd.DataFrame, kind: str) -> bytes:
    file = io.BytesIO()
    match kind:
        case "csv" | "tsv":
            return frame.to_csv(index=False, sep="," if kind == "csv" else "\t").encode()
        case "parquet":
            frame.to_parquet(file, index=False)
        case "npz":
            columns = {name: frame[name].to_numpy() for name in frame}
            np.savez_compressed(
                file,
                **{name: column.astype(str) if column.dtype == object else column for name, column in columns.items()},
            )
        case _:
            table = pa.Table.from_pandas(frame, preserve_index=False)
            writer = (pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream)(file, table.schema)
            with writer:
                writer.write_table(table)
    return file.getvalue()


# columns


def chosen(frame: pd.DataFrame, given: Sequence[str], option: str) -> list[str]:
    """The columns an option names: separated by commas, or the option given several times."""
    found: list[str] = []
    for some in given:
        for name in [some] if some in frame else words([some]):
            numbered = list(takewhile(frame.columns.__contains__, (f"{name}{i}" for i in count())))
            if name not in frame and not numbered:
                message = f"there is no column {name}; there are {', '.join(frame.columns)}"
                raise click.BadParameter(message, param_hint=option)
            found += [name] if name in frame else numbered
    return list(dict.fromkeys(found))


def split(
    source: Source,
    target: Sequence[str],
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    categories: Sequence[str] = (),
    weights: str | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Inputs and outputs to learn from."""
    frame = source.frame
    if not target and not {"y", "y0"} & set(frame.columns):
        message = f"name the columns to learn the density of; there are {', '.join(frame.columns)}"
        raise click.BadParameter(message, param_hint="--target")
    outputs = chosen(frame, target or ["y"], "--target")
    apart = {*outputs, *chosen(frame, drop, "--drop"), *chosen(frame, [weights] if weights else [], "--weights")}
    inputs = [name for name in chosen(frame, features, "--features") or frame.columns if name not in apart]
    if not inputs:
        raise click.UsageError(f"{source.name} has no column left to learn from")
    meant = chosen(frame, categories, "--categories")
    for name in inputs:
        column = frame[name]
        if column.dtype.kind not in "OUT" or name in meant:
            continue
        different = column.nunique()
        if different > max(LEVELS, len(frame) / 2):
            raise ValueError(
                f"column {name} has {different} different texts in {len(frame)} rows, too many for a category: --drop "
                "it, turn it into numbers (dates, say), or keep it by --categories"
            )
    return frame[inputs], frame[outputs]


def stream(
    path: str,
    target: Sequence[str],
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    categories: Sequence[str] = (),
    weights: str | None = None,
) -> ParquetRows:
    """The rows of Parquet files to learn from, which are read as they are needed."""
    return ParquetRows(
        path, words(target) or ["y"], words(features) or None, words(drop), weights, words(categories) or None
    )


def words(given: Sequence[str]) -> list[str]:
    """What options say, separated by commas."""
    return [word.strip() for some in given for word in some.split(",")]


# a model and a table


class Asked(NamedTuple):
    """A model, a table it is to be applied to, its inputs there, and what its outputs are called."""

    model: DensityEstimator
    source: Source
    X: Any
    names: list[str]
    table: Any = None
    """Where it is part of a stream, all of its columns as pyarrow has them."""

    @property
    def density(self) -> Any:
        """What the model says of the rows."""
        return self.model.predict_density(self.X)

    def y(self) -> Float[np.ndarray, "n D"]:
        """The outputs, which the table must have."""
        frame = self.source.frame
        missing = [name for name in self.names if name not in frame]
        if missing:
            raise ValueError(
                f"{self.source.name} lacks {', '.join(missing)}, the y of the model; it has {', '.join(frame.columns)}"
            )
        return self.model._apply_outputs(frame[self.names], len(frame))


def ask(model: str, data: str, target: Sequence[str] = ()) -> Asked:
    """The model in a file, and the table in another; `target` names y where the model was fitted without names."""
    fitted = load(model)
    return _ask(fitted, read(data, _text(fitted)), target)


def ask_parts(model: str, data: str, target: Sequence[str] = ()) -> Iterator[Asked]:
    """The model in a file, and the rows of Parquet files, a row group at a time."""
    fitted = load(model)
    features = list(fitted.features_.names) if hasattr(fitted, "feature_names_in_") else None
    for group, table in ParquetRows(data, features=features).tables():
        source = Source(_with_text(table.to_pandas(), _text(fitted)), "parquet", str(group))
        yield _ask(fitted, source, target)._replace(table=table)


def _text(model: DensityEstimator) -> list[str]:
    """The inputs of a model that are text."""
    columns = model.features_
    return [columns.names[place] for place, levels in columns.categories if isinstance(levels[0], str)]


def _ask(fitted: DensityEstimator, source: Source, target: Sequence[str]) -> Asked:
    names = chosen(source.frame, target, "--target") if target else output_names(fitted)
    if fitted.output_names_ and names != list(fitted.output_names_):
        known = ", ".join(fitted.output_names_)
        raise click.BadParameter(f"the model learnt {known}, not {', '.join(names)}", param_hint="--target")
    if len(names) != fitted.n_outputs_:
        raise click.BadParameter(f"the model has {fitted.n_outputs_} outputs", param_hint="--target")
    return Asked(fitted, source, _inputs(fitted, source, names), names)


def score_stream(model: str, data: str, target: Sequence[str], weights: str | None) -> dict[str, float]:
    """The mean log density of Parquet files, a row group at a time."""
    fitted = load(model)
    columns = fitted.features_
    names = output_names(fitted) if fitted.output_names_ or not target else words(target)
    meant = [columns.names[place] for place, _ in columns.categories]
    rows = ParquetRows(data, names, list(columns.names), weights=weights, categories=meant)
    return {"rows": len(rows), "log_density": fitted.score(rows)}


def output_names(model: DensityEstimator) -> list[str]:
    """What the outputs of a model are called."""
    if model.output_names_:
        return list(model.output_names_)
    return ["y"] if model.n_outputs_ == 1 else [f"y{i}" for i in range(model.n_outputs_)]


def _inputs(model: DensityEstimator, source: Source, outputs: list[str]) -> Any:
    """The inputs of a model in a table, by the names they had in training, in that order."""
    frame, columns = source.frame, model.features_
    names = list(getattr(model, "feature_names_in_", ()))
    if not names:
        rest = frame.drop(columns=outputs, errors="ignore")
        if rest.shape[1] != model.n_features_in_:
            raise ValueError(
                f"the model was fitted without names, to {model.n_features_in_} columns; {source.name} has "
                f"{rest.shape[1]} ({', '.join(rest.columns)}): leave only its inputs there, and name y by --target"
            )
        return rest.to_numpy()
    missing = [name for name in names if name not in frame]
    if missing:
        raise ValueError(
            f"{source.name} lacks {', '.join(missing)}, which training had; it has {', '.join(frame.columns)}"
        )
    taken = frame[names]
    # levels that are numbers would be read as such
    numbers = [columns.names[place] for place, levels in columns.categories if not isinstance(levels[0], str)]
    return taken.astype(dict.fromkeys(numbers, "category"))


def weights_of(source: Source, column: str | None) -> Any:
    """The column of weights, if one is named."""
    return None if column is None else source.frame[chosen(source.frame, [column], "--weights")[0]].to_numpy()
