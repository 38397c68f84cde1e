"""What one pass over rows that are streamed tells: units, levels, a random sample to start from, and a digest.

Moments of row groups are joined (`Moments`), so units are those of all rows. NaN, infinity, and outputs that cannot be
are refused where they are found, with file and row group. Of several processes each reads its own row groups, and what
they found is put together in the order of the groups: the same as one process finds.

Rows with values far from all others (`doubtful`), which the ends of each column and the sample tell, are left out: the
row groups that have some are looked at again. Inputs that are far in more rows than that are brought nearer, in units
of the sample. Of outputs that repeat the sample tells.
"""

import hashlib
from functools import reduce
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..density.transforms import Moments, OutputTransform, supported
from ..inference.data import Batch, Stream, StreamError, whole
from ..inference.start import PLENTY
from ..model.inputs import Numbers
from ..runtime.spread import Spread, owned, shared
from .base import DensityEstimator, Rows
from .doubtful import FEW, SOME, Near, isolated, warn_of_atoms, warn_of_far, warn_of_values
from .parquet import ParquetRows, Portion
from .tables import Columns, Levels, Table, levels_of

MOST_LEVELS = 100_000
"""More different values are no category, but a name of each row."""

MOST_FAR = 10_000
"""So many values at either end of a column are kept in mind, of which some may be far from all others."""


class Told(NamedTuple):
    """What a row group tells: its rows that count something, the sum of their log dy/du, and moments of x, y and u.

    u are the outputs before they are standardised.
    """

    rows: int
    slope: float
    moments: tuple[Moments, ...]
    digest: bytes

    @classmethod
    def of(cls, portion: Portion, plain: OutputTransform) -> "Told":
        table, outputs, weight = portion
        share = np.ones(len(outputs)) if weight is None else weight
        digest = hashlib.sha256(repr([column.tolist() for column in table.text.values()]).encode())
        for array in (table.dense, outputs, share):
            digest.update(np.ascontiguousarray(array).data)
        if not len(outputs):
            return cls(0, 0.0, (), digest.digest())
        u = plain.to_standard(outputs)
        moments = tuple(Moments.of(a, weight) for a in (table.dense, outputs, u))
        return cls(len(outputs), float(share @ plain.log_slope(u).sum(1)), moments, digest.digest())


class Summary(NamedTuple):
    """What is known of rows after one pass.

    `sizes` are the rows of each row group to learn from, `u` the outputs before they are standardised, `slope` the mean
    over rows of log dy/du, `near_x` and `near_u` the values that are not far from all others. The moments of x and u
    are those of the rows to learn from, of y those of all.
    """

    sizes: tuple[int, ...]
    plain: OutputTransform
    near_x: Near
    near_u: Near
    x: Moments
    y: Moments
    u: Moments
    levels: dict[int, Levels]
    slope: float
    sample: Portion
    digest: bytes

    def kept(self, portion: Portion) -> Portion:
        """The rows to learn from."""
        return kept(portion, self.plain, self.near_x, self.near_u)


def kept(portion: Portion, plain: OutputTransform, near_x: Near, near_u: Near) -> Portion:
    """The rows that count something, and none of whose values is far from all others."""
    portion = counted(portion)
    fine = near_x.holds(portion.table.dense) & near_u.holds(plain.to_standard(portion.outputs))
    return portion if fine.all() else _take(portion, np.flatnonzero(fine))


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
    spread: Spread | None = None,
) -> StreamedRows:
    """Learn the columns' units from all rows, in one pass; the rows in standard units, to come."""
    seen = look_over(rows, seed, kind, bounds, common_scale, spread)
    model._check_variety(seen.y, sum(seen.sizes), rows.target, common_scale)
    model.n_features_in_, model.n_outputs_, model.flat_ = len(rows.names), len(rows.target), rows.flat
    model.feature_names_in_ = np.array(rows.names, object)
    model.output_names_, model.frame_ = rows.target, None
    if not common_scale:
        warn_of_atoms(rows.target, seen.sample.outputs)
    model._keep_units(_columns(seen, rows).checked(), seen.plain.scaled(seen.u, common_scale))
    return streamed(model, rows, seen)


def _columns(seen: Summary, rows: ParquetRows) -> Columns:
    """What was learnt of the columns of X: by all rows, and where many of a column are far, by those of the sample."""
    table, _, weight = seen.sample
    known = Columns.known(rows.names, table.numbers, seen.x, seen.levels)
    far = isolated(table.dense, SOME)
    few, many = np.isfinite(seen.near_x.reach), np.asarray(far.any(0))
    for j in np.flatnonzero(many):
        values = table.dense[far[:, j], j]
        warn_of_values("X", _titles(rows)[j], len(values), len(far), values[0], out=False)
    if not (few | many).any():
        return known
    apart = np.maximum(seen.x.high - known.location, known.location - seen.x.low) / known.scale
    some = Columns.fit(table, weight, far, many)
    return known._replace(
        location=np.where(many, some.location, known.location),
        scale=np.where(many, some.scale, known.scale),
        limit=np.where(many, np.inf if some.limit is None else some.limit, np.where(few, 2 * apart, np.inf)),
    )


def _titles(rows: ParquetRows) -> tuple[str, ...]:
    """The columns of X that are numbers."""
    return tuple(name for place, name in enumerate(rows.names) if place not in rows.text)


def streamed(model: DensityEstimator, rows: ParquetRows, seen: Summary) -> StreamedRows:
    """Rows in the units that a model knows, to come."""

    def standard(portion: Portion) -> Rows:
        table, outputs, weight = portion
        weight = np.ones(len(outputs)) if weight is None else weight
        return Rows(model._used(model.features_.apply(table)), model._standard_outputs(outputs), weight)

    def read(number: int) -> Batch:
        try:
            found = standard(seen.kept(rows.read(number)))
        except StreamError:
            raise
        except ValueError as error:
            raise StreamError(f"{rows.groups[number]}: {error}") from error
        if found.n_rows != seen.sizes[number]:
            raise StreamError(f"{rows.groups[number]} has changed since it was first read")
        return whole(found.x, found.z, found.weight)

    stream = Stream(seen.sizes, read, rows.buffer)
    return StreamedRows(stream, standard(seen.sample), seen.x.weight, seen.slope, seen.digest)


def counted(portion: Portion) -> Portion:
    """The rows that count something."""
    if portion.weight is None or (portion.weight > 0).all():
        return portion
    return _take(portion, np.flatnonzero(portion.weight > 0))


def look_over(
    rows: ParquetRows,
    seed: int,
    kind: str | None,
    bounds: Numbers | None,
    common_scale: bool,
    spread: Spread | None = None,
) -> Summary:
    """One pass over all rows, and another over the row groups that have some to leave out."""
    plain = OutputTransform.plain(np.zeros((0, len(rows.target))), kind, bounds)
    sizes = [group.rows for group in rows.groups]
    own = owned(sizes, spread)

    def look() -> Look:
        found = Look(rows)
        for number in own:
            portion = counted(rows.read(number))
            try:
                supported(portion.outputs, kind, bounds)
            except ValueError as error:
                raise StreamError(f"{rows.groups[number]}: {error}") from error
            found.add(portion, plain, np.random.default_rng([seed, number]))
            _check_levels(found, rows, f" up to {rows.groups[number]}")
        return found

    found, *others = shared(look, spread)
    for other in others:
        found.join(other)
    _check_levels(found, rows, "")
    told = found.told
    n = sum(one.rows for one in told)
    if not n:
        raise ValueError(f"weights are zero in every row of {rows!r}: nothing is left to count")
    sample = found.sample.taken()
    y = _joined_moments(told, 1)
    digest = hashlib.sha256(b"".join(one.digest for one in told) + repr((rows.names, rows.target)).encode())

    most = min(max(1, int(FEW * n)), MOST_FAR)
    near_x = Near.of(sample.table.dense, found.x.values(most + 1), most)
    near_u = Near.of(plain.to_standard(sample.outputs), found.u.values(most + 1), most, common_scale)
    warn_of_far("X", _titles(rows), near_x, found.x.values(most + 1), n)
    warn_of_far("y", rows.target, near_u, found.u.values(most + 1), n, plain)
    odd = [i for i, one in enumerate(told) if not (_within(one, 0, near_x) and _within(one, 2, near_u))]

    def look_again() -> dict[int, Told]:
        return {i: Told.of(kept(rows.read(i), plain, near_x, near_u), plain) for i in odd if i in own}

    for changed in shared(look_again, spread) if odd else ():
        told = [changed.get(i, one) for i, one in enumerate(told)]
    x, u = (_joined_moments(told, which) for which in (0, 2))
    slope = sum(one.slope for one in told) / x.weight
    levels = {place: levels_of(values) for place, values in found.levels.items()}
    sample = kept(sample, plain, near_x, near_u)
    counts = tuple(one.rows for one in told)
    return Summary(counts, plain, near_x, near_u, x, y, u, levels, slope, sample, digest.digest())


def _joined_moments(told: list[Told], which: int) -> Moments:
    return reduce(Moments.join, [one.moments[which] for one in told if one.rows])


def _within(one: Told, which: int, near: Near) -> bool:
    """Whether a row group has no value that is far."""
    return not one.rows or bool(near.holds(np.stack([one.moments[which].low, one.moments[which].high])).all())


class Look:
    """What row groups tell, one after another; what several processes found joins, in the order of the groups."""

    def __init__(self, rows: ParquetRows) -> None:
        most = min(max(1, int(FEW * len(rows))), MOST_FAR) + 1
        self.told: list[Told] = []
        self.levels: dict[int, set[str | int | float | bool]] = {place: set() for place in rows.text}
        self.sample, self.x, self.u = Sample(PLENTY), Ends(len(_titles(rows)), most), Ends(len(rows.target), most)

    def add(self, portion: Portion, plain: OutputTransform, rng: np.random.Generator) -> None:
        """The next row group's rows that count something; the generator is the group's own."""
        self.told.append(Told.of(portion, plain))
        self.sample.add(portion, rng.random(len(portion.outputs)))
        self.x.add(portion.table.dense)
        self.u.add(plain.to_standard(portion.outputs))
        for place, column in portion.table.text.items():
            self.levels[place] |= set(column.tolist())

    def join(self, other: "Look") -> None:
        """The row groups after these."""
        self.told += other.told
        self.sample.join(other.sample)
        self.x.join(other.x)
        self.u.join(other.u)
        for place, values in other.levels.items():
            self.levels[place] |= values


def _check_levels(found: Look, rows: ParquetRows, where: str) -> None:
    """Raise where a column has too many levels."""
    for place, values in found.levels.items():
        if len(values) > MOST_LEVELS:
            raise ValueError(
                f"column {rows.names[place]} has over {MOST_LEVELS} different values{where}, too many for a category: "
                "drop it, or turn it into numbers"
            )


class Ends:
    """The least and the greatest values of each column of all rows that come, so many of either."""

    def __init__(self, columns: int, count: int) -> None:
        self._count = count
        self._kept = [[np.zeros(0), np.zeros(0)] for _ in range(columns)]  # the greatest, and the least with minus

    def add(self, a: Float[np.ndarray, "n d"]) -> None:
        for column, kept in zip(a.T, self._kept, strict=True):
            kept[:] = self._with(kept[0], column), self._with(kept[1], -column)

    def join(self, other: "Ends") -> None:
        for kept, more in zip(self._kept, other._kept, strict=True):
            kept[:] = self._with(kept[0], more[0]), self._with(kept[1], more[1])

    def _with(self, kept: Float[np.ndarray, " k"], values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " m"]:
        """The greatest of both."""
        if len(kept) == self._count:
            values = values[values > kept.min()]
        return _greatest(np.concatenate([kept, values]), self._count) if len(values) else kept

    def values(self, count: int) -> list[Float[np.ndarray, " _"]]:
        """So many of either end, at most as many as were kept."""
        return [np.concatenate([_greatest(high, count), -_greatest(low, count)]) for high, low in self._kept]


def _greatest(a: Float[np.ndarray, " n"], count: int) -> Float[np.ndarray, " m"]:
    return a if len(a) <= count else np.partition(a, len(a) - count)[len(a) - count :].copy()


class Sample:
    """At most so many rows of all that come, each as likely as any other, in the order in which they came.

    Each row has drawn a number, and those with the least are kept.
    """

    def __init__(self, size: int) -> None:
        self._size, self._limit = size, np.inf
        self._parts: list[Portion] = []
        self._drawn: list[Float[np.ndarray, " n"]] = []

    def add(self, portion: Portion, drawn: Float[np.ndarray, " n"]) -> None:
        kept = np.flatnonzero(drawn < self._limit)
        if len(kept):
            self._parts.append(_take(portion, kept))
            self._drawn.append(drawn[kept])
        if sum(map(len, self._drawn)) > 2 * self._size:
            self._settle()

    def join(self, other: "Sample") -> None:
        """The rows that came after these."""
        for portion, drawn in zip(other._parts, other._drawn, strict=True):
            self.add(portion, drawn)

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
