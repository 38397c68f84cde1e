"""Data that are doubtful: values far from all others, and outputs that repeat. Each is told by a `DataWarning`.

    isolated   the j values farthest from the median, where the j-th is over 50 robust standard deviations from it and
               over 10 times as far as the next, and j is 1, or at most 0.1 % of the rows (1 % for inputs)
    atoms      a value that over 10 % of the rows share, or fewer distinct values than 5 % of the rows (at least 10,
               at most 100)

The gap keeps heavy tails: of a Student-t with 1.5 degrees of freedom the farthest of any number of values is isolated
in 3 of 100 samples, with 2 degrees in 1 of 100. Fewer than 20 values tell nothing of either.

A row with an isolated value is left out of training. Of inputs, more than 0.1 % of the rows stay, the value brought
nearer; more outputs than that are a part of the density. Of rows that are not all at hand, median and quartiles are
those of a sample, and the values those at the ends of each column (`Near`).
"""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..density.transforms import OutputTransform

FAR, GAP, FEW, SOME = 50.0, 10.0, 0.001, 0.01
"""Robust standard deviations, times the next distance, and the shares of the rows that may be left out and isolated."""

ENOUGH, SHARED, REPEATED = 20, 0.1, 0.05
"""Rows that tell something, the share of them that makes a value an atom, and of distinct values that are few."""


class DataWarning(UserWarning):
    """Data that can be learnt from, but may not be what was meant: the message says which, and what to do.

    Examples
    --------
    >>> import warnings
    >>> import gpcde
    >>> warnings.simplefilter("ignore", gpcde.DataWarning)
    """


def isolated(a: Float[np.ndarray, "n d"], share: float = FEW, together: bool = False) -> Bool[np.ndarray, "n d"]:
    """Values over 50 robust standard deviations from their column's median and 10 times as far as all others.

    There are at most a `share` of the rows, or one. A robust standard deviation is the distance of the quartiles /
    1.349, where these are equal that of the values that differ from the median. `together`: the columns have one unit,
    and a row is as far as its farthest value.
    """
    out = np.zeros(a.shape, bool)
    if len(a) < ENOUGH or not a.size:
        return out
    size = np.abs(a).max(0)
    size = np.where(size > 0, size.max() if together else size, 1.0)
    apart = a / size - np.median(a / size, axis=0)  # in units that cannot overflow
    most = max(1, int(share * len(a)))
    if together:
        rows = np.arange(len(a))
        farthest = np.abs(apart).argmax(1)
        out[rows, farthest] = _far(np.abs(apart[rows, farthest]), apart.ravel(), most)
        return out
    for j, column in enumerate(apart.T):
        out[:, j] = _far(np.abs(column), column, most)
    return out


def _far(distance: Float[np.ndarray, " n"], apart: Float[np.ndarray, " m"], most: int) -> Bool[np.ndarray, " n"]:
    """Which of these distances are isolated, among values this far apart from the median."""
    none = np.zeros(len(distance), bool)
    farthest = np.sort(np.partition(distance, -most - 1)[-most - 1 :])[::-1]
    gaps = np.flatnonzero(farthest[:-1] > GAP * farthest[1:])
    if not len(gaps):  # as nearly always
        return none
    low, high = np.quantile(apart, (0.25, 0.75))
    if low == high:
        others = apart[apart != 0]
        low, high = np.quantile(others, (0.25, 0.75)) if len(others) >= ENOUGH else (0.0, 0.0)
    gaps = gaps[farthest[gaps] > FAR * (high - low) / 1.349] if high > low else gaps[:0]
    return distance >= farthest[gaps[-1]] if len(gaps) else none


def left_out(far: Bool[np.ndarray, "n d"]) -> Bool[np.ndarray, " n"]:
    """Which rows training does without: with an isolated value, of which the column has one, or 0.1 % of the rows."""
    return np.asarray(far[:, far.sum(0) <= max(1, FEW * len(far))].any(1))


def warn_of_isolated(
    what: str, names: tuple[str, ...], a: Float[np.ndarray, "n d"], far: Bool[np.ndarray, "n d"]
) -> None:
    """Say which columns have isolated values, in how many rows, and what becomes of them."""
    for j in np.flatnonzero(far.any(0)):
        rows = np.flatnonzero(far[:, j])
        warn_of_values(what, names[j], len(rows), len(a), a[rows[0], j], bool(left_out(far[:, j : j + 1]).any()))


def warn_of_values(what: str, name: str, count: int, rows: int, value: float, out: bool) -> None:
    """Say that a column has so many isolated values, such as this, and whether their rows are left out."""
    fate = "left out of training" if out else "brought nearer in training"
    if what == "X":
        advice = "; such values are brought nearer in answers too. If they are meant, transform the column"
    else:
        advice = ". If they are meant, use y_transform='log' where y is positive, or learn numpy.arcsinh(y)"
    _warn(
        f"column {name} of {what} is far from all its other values in {count} of {rows} rows (such as {value:g}), "
        f"which are {fate}{advice}"
    )


class Near(NamedTuple):
    """Which values of columns are not isolated, where these are few: in units of `size`, `reach` from `centre`."""

    size: Float[np.ndarray, " d"]
    centre: Float[np.ndarray, " d"]
    reach: Float[np.ndarray, " d"]

    @classmethod
    def of(
        cls, some: Float[np.ndarray, "n d"], ends: Sequence[Float[np.ndarray, " _"]], most: int, together: bool = False
    ) -> "Near":
        """From a sample of the rows, and more than `most` of the least and the greatest values of each column."""
        reach = np.full(some.shape[1], np.inf)
        size = np.array([np.abs(values).max(initial=0.0) for values in ends])
        size = np.where(size > 0, size.max(initial=0.0) if together else size, 1.0)
        centre = np.median(some / size, axis=0)
        near = cls(size, centre, reach)
        if len(some) < ENOUGH or not some.size:
            return near
        apart, distance = some / size - centre, [near._distance(values, j) for j, values in enumerate(ends)]
        if together:
            distance, apart = [np.concatenate(distance)], apart.reshape(-1, 1)
        for j, values in enumerate(distance):
            far = values[_far(values, apart[:, j], most)]
            if len(far):
                reach[slice(None) if together else j] = far.min()
        return near

    def _distance(self, values: Float[np.ndarray, " n"], j: int) -> Float[np.ndarray, " n"]:
        return np.abs(values / self.size[j] - self.centre[j])

    def far(self, values: Float[np.ndarray, " n"], j: int) -> Float[np.ndarray, " k"]:
        """Those of these values of a column that are isolated."""
        return values[self._distance(values, j) >= self.reach[j]]

    def holds(self, a: Float[np.ndarray, "n d"]) -> Bool[np.ndarray, " n"]:
        """Which rows have no isolated value."""
        fine = np.ones(len(a), bool)
        for j in np.flatnonzero(np.isfinite(self.reach)).tolist():
            fine &= self._distance(a[:, j], j) < self.reach[j]
        return fine


def warn_of_far(
    what: str,
    names: tuple[str, ...],
    near: Near,
    ends: Sequence[Float[np.ndarray, " _"]],
    rows: int,
    transform: OutputTransform | None = None,
) -> None:
    """Say which columns have isolated values at their ends, and in how many of all rows, which are left out."""
    for j in np.flatnonzero(np.isfinite(near.reach)).tolist():
        far = near.far(ends[j], j)
        if len(far):
            value = far[:1] if transform is None else transform.column(j).from_standard(far[:1])
            warn_of_values(what, names[j], len(far), rows, float(value[0]), True)


def warn_of_atoms(names: tuple[str, ...], y: Float[np.ndarray, "n D"]) -> None:
    """Say which outputs repeat so often that they have no density."""
    if len(y) < ENOUGH:
        return
    least = min(max(REPEATED * len(y), 10), 100)
    for name, column in zip(names, y.T, strict=True):
        values, counts = np.unique(column, return_counts=True)
        top = int(counts.argmax())
        if counts[top] > SHARED * len(y):
            found = f"is {values[top] + 0.0:g} in {counts[top] / len(y):.0%} of the {len(y)} rows"
        elif len(values) < least:
            found = f"has {len(values)} distinct values in {len(y)} rows ({len(values) / len(y):.1%})"
        else:
            continue
        _warn(
            f"column {name} of y {found}: values that repeat have probabilities and no density, and log densities "
            "there are as high as a model is narrow. Add noise of the size of the rounding, or model such values apart"
        )


def _warn(message: str) -> None:
    warnings.warn(message, DataWarning, stacklevel=3)
