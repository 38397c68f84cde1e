"""What one pass over rows that are streamed tells: units, levels, a random sample to start from, and a digest.

Moments of row groups are joined (`Moments`), so units are those of all rows. NaN, infinity, and outputs that cannot be
are refused where they are found, with file and row group. Of values far from all others, and of outputs that repeat,
the sample tells, and the ends of each column; such rows are not left out.
"""

import hashlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..density.transforms import Moments, OutputTransform
from ..inference.data import Batch, Stream, StreamError, whole
from ..inference.start import PLENTY
from ..model.inputs import Numbers
from .base import DensityEstimator, Rows
from .doubtful import SOME, isolated, warn_of_atoms, warn_of_far_ends
from .parquet import ParquetRows, Portion
from .tables import Columns, Levels, Table, levels_of

MOST_LEVELS = 100_000
"""More different values are no category, but a name of each row."""


class Summary(NamedTuple):
    """What is known of rows after one pass.

    `sizes` are the rows of each row group that count something, `u` the outputs before they are standardised, `slope`
    the mean over rows of log dy/du.
    """

    sizes: tuple[int, ...]
    plain: OutputTransform
    x: Moments
    y: Moments
    u: Moments
    levels: dict[int, Levels]
    slope: float
    sample: Portion
    digest: bytes


class StreamedRows(NamedTuple):
    """Rows to learn from that are read as they are needed: it answers what `Rows` does; `sample` is some of them."""

    data: Stream
    sample: Rows
    total: float
    slope: float
    digest: bytes

    @property
    def n_rows(self) -> int:
        return sum(self.data.sizes)

    def parts(self, seed: int) -> list[Rows]:
        """None: rows that are read as they are needed are not held out."""
        return []

    def mean_slope(self, transform: OutputTransform, more: Rows) -> float:
        """What a log density loses from standard units to the user's, on average."""
        return self.slope + float(np.log(transform.scale).sum())

    def contents(self) -> tuple[np.ndarray, ...]:
        """What tells these rows from others."""
        return (np.frombuffer(self.digest, np.uint8),)


def learn(
    model: DensityEstimator,
    rows: ParquetRows,
    seed: int,
    kind: str | None,
    bounds: Numbers | None,
    common_scale: bool,
) -> StreamedRows:
    """Learn the columns' units from all rows, in one pass; the rows in standard units, to come."""
    seen = look_over(rows, seed, kind, bounds)
    model._check_variety(seen.y, sum(seen.sizes), rows.target, common_scale)
    model.n_features_in_, model.n_outputs_, model.flat_ = len(rows.names), len(rows.target), rows.flat
    model.feature_names_in_ = np.array(rows.names, object)
    model.output_names_, model.frame_ = rows.target, None
    _warn(seen, rows, common_scale)
    numbers = seen.sample.table.numbers
    features = Columns.known(rows.names, numbers, seen.x, seen.levels).checked()
    model._keep_units(features, seen.plain.scaled(seen.u, common_scale))
    return streamed(model, rows, seen)


def streamed(model: DensityEstimator, rows: ParquetRows, seen: Summary) -> StreamedRows:
    """Rows in the units that a model knows, to come."""

    def standard(portion: Portion) -> Rows:
        table, outputs, weight = portion
        weight = np.ones(len(outputs)) if weight is None else weight
        return Rows(model._used(model.features_.apply(table)), model._standard_outputs(outputs), weight)

    def read(number: int) -> Batch:
        try:
            found = standard(counted(rows.read(number)))
        except StreamError:
            raise
        except ValueError as error:
            raise StreamError(f"{rows.groups[number]}: {error}") from error
        if found.n_rows != seen.sizes[number]:
            raise StreamError(f"{rows.groups[number]} has changed since it was first read")
        return whole(found.x, found.z, found.weight)

    stream = Stream(seen.sizes, read, rows.buffer)
    return StreamedRows(stream, standard(seen.sample), seen.x.weight, seen.slope, seen.digest)


def _warn(seen: Summary, rows: ParquetRows, common_scale: bool) -> None:
    """Tell of values far from those of the sample, and of outputs that repeat in it."""
    table, outputs, _ = seen.sample
    if not common_scale:
        warn_of_atoms(rows.target, outputs)
    names = tuple(rows.names[place] for place in table.numbers)
    for what, titles, some, ends in (("X", names, table.dense, seen.x), ("y", rows.target, outputs, seen.y)):
        wide = np.concatenate([some, [ends.low, ends.high]])
        far = isolated(wide, SOME + 4 / len(wide))[-2:]  # each end may be there twice
        warn_of_far_ends(what, titles, ends.low, ends.high, far)


def counted(portion: Portion) -> Portion:
    """The rows that count something."""
    if portion.weight is None or (portion.weight > 0).all():
        return portion
    rows = np.flatnonzero(portion.weight > 0)
    return Portion(portion.table.take(rows), portion.outputs[rows], portion.weight[rows])


def look_over(rows: ParquetRows, seed: int, kind: str | None, bounds: Numbers | None) -> Summary:
    """One pass over all rows."""
    digest, sample = hashlib.sha256(), Sample(np.random.default_rng(seed), PLENTY)
    sizes, total, slope = [], 0.0, 0.0
    plain: OutputTransform | None = None
    seen: tuple[Moments, ...] = ()
    levels: dict[int, set[str | int | float | bool]] = {place: set() for place in rows.text}
    for number, group in enumerate(rows.groups):
        portion = counted(rows.read(number))
        table, outputs, weight = portion
        sizes.append(len(outputs))
        if not len(outputs):
            continue
        try:
            plain = OutputTransform.plain(outputs, kind, bounds)
        except ValueError as error:
            raise StreamError(f"{group}: {error}") from error
        u = plain.to_standard(outputs)
        found = tuple(Moments.of(a, weight) for a in (table.dense, outputs, u))
        seen = tuple(a.join(b) for a, b in zip(seen, found, strict=True)) if seen else found
        for place, column in table.text.items():
            levels[place] |= set(column.tolist())
            if len(levels[place]) > MOST_LEVELS:
                raise ValueError(
                    f"column {rows.names[place]} has over {MOST_LEVELS} different values up to {group}, too many for a "
                    "category: drop it, or turn it into numbers"
                )
            digest.update(repr(column.tolist()).encode())
        share = np.ones(len(outputs)) if weight is None else weight
        for array in (table.dense, outputs, share):
            digest.update(np.ascontiguousarray(array).data)
        total += float(share.sum())
        slope += float(share @ plain.log_slope(u).sum(1))
        sample.add(portion)
    if plain is None:
        raise ValueError(f"weights are zero in every row of {rows!r}: nothing is left to count")
    known = {place: levels_of(found) for place, found in levels.items()}
    digest.update(repr((sizes, rows.names, rows.target)).encode())
    x, y, moved = seen
    return Summary(tuple(sizes), plain, x, y, moved, known, slope / total, sample.taken(), digest.digest())


class Sample:
    """At most so many rows of all that come, each as likely as any other, in the order in which they came.

    Each row draws a number, and those with the least are kept.
    """

    def __init__(self, rng: np.random.Generator, size: int) -> None:
        self._rng, self._size, self._limit = rng, size, np.inf
        self._parts: list[Portion] = []
        self._drawn: list[Float[np.ndarray, " n"]] = []

    def add(self, portion: Portion) -> None:
        drawn = self._rng.random(len(portion.outputs))
        kept = np.flatnonzero(drawn < self._limit)
        if len(kept):
            self._parts.append(_take(portion, kept))
            self._drawn.append(drawn[kept])
        if sum(map(len, self._drawn)) > 2 * self._size:
            self._settle()

    def _settle(self) -> None:
        """Let go of the rows that are not among those to keep."""
        drawn = np.concatenate(self._drawn)
        if len(drawn) > self._size:
            kept = np.sort(np.argpartition(drawn, self._size)[: self._size])
            self._parts, self._drawn = [_take(_joined(self._parts), kept)], [drawn[kept]]
            self._limit = float(drawn[kept].max())

    def taken(self) -> Portion:
        """The rows."""
        self._settle()
        return _joined(self._parts)


def _take(portion: Portion, rows: Int[np.ndarray, " b"]) -> Portion:
    weight = None if portion.weight is None else portion.weight[rows]
    return Portion(portion.table.take(rows), portion.outputs[rows], weight)


def _joined(parts: list[Portion]) -> Portion:
    first = parts[0]
    table = Table(
        first.table.names,
        first.table.numbers,
        np.concatenate([part.table.dense for part in parts]),
        {place: np.concatenate([part.table.text[place] for part in parts]) for place in first.table.text},
    )
    weights = [part.weight for part in parts if part.weight is not None]
    weight = np.concatenate(weights) if weights else None
    return Portion(table, np.concatenate([part.outputs for part in parts]), weight)
