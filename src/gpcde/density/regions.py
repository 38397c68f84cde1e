"""Where a density is high: its mode, and its highest-density regions.

    mode     argmax_y p(y|x), by the fixed point of mixtures, z = (sum_k r_k Λ_k)⁻¹ (sum_k r_k Λ_k m_k - ∇ log dy/dz),
             with r_k the responsibilities and Λ_k the precisions, from the best component's mean, never downhill
    region   {y : p(y|x) >= t} with P(Y in the region) = level; for one output its intervals, one or several

Of one output every local maximum is found, where the slope of the log density falls through zero.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.ndimage import minimum_filter1d
from scipy.special import ndtri, softmax

from ..model.gaussians import LOG_2PI
from ..model.inputs import Numbers
from .components import Components, Univariate
from .roots import rising_roots
from .transforms import OutputTransform

if TYPE_CHECKING:
    from .conditional import ConditionalDensity


CLOSE = 0.3
"""How far apart points need to be where a density is looked through, in standard deviations of its components."""

AT_ONCE = 2**15
"""How many pairs of points and components are looked at together: few enough to stay in the processor's cache."""


class Region:
    """Highest-density regions of a batch: those y where log p(y|x) reaches `log_threshold`.

    Of one output, `region[n]` is row n's intervals, from left to right.

    Attributes
    ----------
    level : float
        The probability of each region.
    log_threshold : array of shape (n,)
        The least log density inside.
    intervals : list of arrays of shape (k, 2), or None
        Lower and upper ends of each row's intervals, one or several; None with several outputs.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import KDE
    >>> rng = np.random.default_rng(0)
    >>> y = rng.choice([-2.0, 2.0], 200) + 0.1 * rng.standard_normal(200)
    >>> region = KDE().fit(np.zeros((200, 1)), y).predict_density([[0.0]]).hdr(0.9)
    >>> region[0].shape
    (2, 2)
    >>> region.contains([0.0])
    array([False])
    """

    def __init__(
        self,
        density: "ConditionalDensity",
        level: float,
        log_threshold: Float[np.ndarray, " n"],
        intervals: list[Float[np.ndarray, "_ 2"]] | None,
    ) -> None:
        self.level, self.log_threshold, self.intervals = level, log_threshold, intervals
        self._density = density

    def contains(self, y: Numbers) -> Bool[np.ndarray, " n"]:
        """Whether each row's y lies in its region.

        Parameters
        ----------
        y : array of shape (n,) or (n, D), or a number or vector of D for all rows
            A point for each row.

        Returns
        -------
        array of bool of shape (n,)
            True where it does.
        """
        return self._density.log_pdf(y) >= self.log_threshold

    def __len__(self) -> int:
        return len(self.log_threshold)

    def __getitem__(self, row: int) -> Float[np.ndarray, "_ 2"]:
        if self.intervals is None:
            raise TypeError(
                "regions of several outputs are level sets, not intervals: use contains(y), or draw the set where "
                "log_pdf reaches log_threshold"
            )
        return self.intervals[row]

    def __repr__(self) -> str:
        return f"Region(level={self.level}, rows={len(self)})"


def log_pdf_outside(c: Components, transform: OutputTransform, z: Float[np.ndarray, "n g D"]) -> np.ndarray:
    """log p(y|x) in the user's units, at points in standard ones."""
    return c.log_pdf(z) - transform.log_slope(z).sum(2)


def modes(c: Components, transform: OutputTransform, rounds: int = 500) -> Float[np.ndarray, "n D"]:
    """The mode of each row, in standard units."""
    if c.basis is not None and transform.affine and c.basis.shape[:2] == (1, 1):
        # all means lie in the span of the basis, and so does the mode
        inner = Components(c.log_weight, c.mean, c.variance)
        if c.outside is not None:  # at whose centre it is
            beyond = -0.5 * (c.n_outputs - c.mean.shape[2]) * np.log(c.outside)
            inner = inner._replace(log_weight=c.log_weight + beyond)
        plain = OutputTransform.identity(c.mean.shape[2])
        return modes(inner, plain, rounds) @ c.basis[0, 0].T
    if c.n_outputs == 1:
        seen = Sight.of(Line.of(c, transform))
        return np.take_along_axis(seen.turn, seen.top.argmax(1)[:, None], axis=1)
    places = c.mean if c.basis is None else (c.basis @ c.mean[..., None])[..., 0]
    places = np.take_along_axis(places, _best(c, transform, places, 64), axis=1)
    climbed = _climb(c, transform, places, 5)
    candidates = np.take_along_axis(climbed, _best(c, transform, climbed, 4), axis=1)
    summits = _climb(c, transform, candidates, rounds)
    return np.take_along_axis(summits, _best(c, transform, summits, 1), axis=1)[:, 0]


def _best(c: Components, transform: OutputTransform, places: Float[np.ndarray, "n g D"], count: int) -> np.ndarray:
    """Which of the places are highest, as numpy.take_along_axis wants to be told."""
    height = log_pdf_outside(c, transform, places)
    return np.argsort(-height, axis=1)[:, :count, None]


def _climb(
    c: Components, transform: OutputTransform, places: Float[np.ndarray, "n g D"], rounds: int
) -> Float[np.ndarray, "n g D"]:
    """Up to that many steps uphill from each place, until none moves."""
    n, g, dim = places.shape
    c = c.take(np.repeat(np.arange(n), g))
    z = places.reshape(n * g, dim).copy()
    best = log_pdf_outside(c, transform, z[:, None])[:, 0]
    moving = np.arange(len(z))
    for _ in range(rounds):
        some, at = c.take(moving), z[moving]
        step = _fixed_point(some, transform, at) - at
        down = np.ones(len(at), bool)
        for _ in range(12):  # the whole step where it climbs, else less
            value = log_pdf_outside(some, transform, (at + step)[:, None])[:, 0]
            down = ~(value >= best[moving])
            if not down.any():
                break
            step = np.where(down[:, None], 0.5 * step, step)
        step[down] = 0.0
        z[moving] = at + step
        best[moving] = np.where(down, best[moving], value)
        moving = moving[(np.abs(step) > 1e-10 * (1 + np.abs(at))).any(1)]
        if not len(moving):
            break
    return z.reshape(n, g, dim)


def _fixed_point(c: Components, transform: OutputTransform, z: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n D"]:
    share = softmax(c.log_joint(z[:, None])[:, 0], axis=1)[..., None]
    pull = -transform.log_slope_derivative(z)
    precision = 1 / np.broadcast_to(c.variance, c.mean.shape)
    if c.basis is None:
        return ((share * precision * c.mean).sum(1) + pull) / (share * precision).sum(1)
    beyond = 0.0 if c.outside is None else 1 / c.outside[..., None]
    inner = np.broadcast_to(share * (precision - beyond), c.mean.shape)
    basis = np.broadcast_to(c.basis, (*c.mean.shape[:2], *c.basis.shape[2:]))
    matrix = np.einsum("nkdl,nkl,nkel->nde", basis, inner, basis)
    matrix += (share * beyond).sum((1, 2))[:, None, None] * np.eye(z.shape[1])
    vector = np.einsum("nkdl,nkl->nd", basis, share * precision * c.mean) + pull
    return np.linalg.solve(matrix, vector[..., None])[..., 0]


def intervals(
    c: Components, transform: OutputTransform, level: float
) -> tuple[Float[np.ndarray, " n"], list[Float[np.ndarray, "_ 2"]]]:
    """Log thresholds and intervals of one output, in the user's units.

    Between two turning points of a density a region begins or ends at most once, as the threshold says. Its mass is a
    difference of exact cdf values there, and falls as the threshold rises.
    """
    line = Line.of(c, transform)
    seen = Sight.of(line)
    found = [np.empty((0, 2))] * c.n_rows

    def missing(some: Int[np.ndarray, " m"], threshold: Float[np.ndarray, " m"]) -> tuple[np.ndarray, np.ndarray]:
        ends, sign = _ends(line, seen, some, threshold)
        y = transform.from_standard(ends[..., None])[..., 0]
        for row, places, keep in zip(some, y, sign != 0, strict=True):
            found[row] = places[keep].reshape(-1, 2)
        density = np.exp(threshold[:, None] + transform.log_slope(ends[..., None])[..., 0])
        # d mass / d log t = -sum_ends q(z) / |d log p / dz|
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            steepness = np.abs(line.profile(some, ends)[1])
            slope = np.where(sign, density / steepness, 0.0).sum(1)
        return level - (sign * line.mixture.take(some).cdf(ends)).sum(1), slope

    top = seen.top.max(1)
    return rising_roots(missing, top - 745, top, _threshold(seen, transform, level), enough=1e-12), found


class Line(NamedTuple):
    """Mixtures of one output in standard units, and the transform to the user's, in whose units heights are told."""

    mixture: Univariate
    log_height: Float[np.ndarray, "n k"]
    transform: OutputTransform

    @classmethod
    def of(cls, c: Components, transform: OutputTransform) -> "Line":
        one = Univariate.of(c, 0)
        with np.errstate(divide="ignore"):
            return cls(one, np.log(np.broadcast_to(one.weight, one.mean.shape)) - np.log(one.std), transform)

    def profile(
        self, rows: Int[np.ndarray, " m"], z: Float[np.ndarray, "m g"]
    ) -> tuple[Float[np.ndarray, "m g"], Float[np.ndarray, "m g"]]:
        """log p(y|x) and its derivative by z, at points of these rows."""
        height, slope = np.empty((2, *z.shape))
        for block, height[block], share, total, pull in self._pulls(rows, z):
            slope[block] = -np.vecdot(share, pull) / total
        return self._outside(z, height, slope)

    def glance(
        self, rows: Int[np.ndarray, " m"], z: Float[np.ndarray, "m g"]
    ) -> tuple[Float[np.ndarray, "m g"], Float[np.ndarray, "m g"]]:
        """`profile` in single precision, and in double where that could not tell whether it goes up or down."""
        height, slope, doubt = np.empty((3, *z.shape))
        with np.errstate(over="ignore", invalid="ignore"):
            for block, height[block], share, total, pull in self._pulls(rows, z, np.float32):
                slope[block] = -np.vecdot(share, pull) / total
                doubt[block] = 1e-3 * np.vecdot(share, np.abs(pull, out=pull)) / total
        height, slope = self._outside(z, height, slope)
        row, column = np.nonzero(~(np.abs(slope) > doubt))
        exact = self.profile(rows[row], z[row, column, None])
        height[row, column], slope[row, column] = (a[:, 0] for a in exact)
        return height, slope

    def bend(self, rows: Int[np.ndarray, " m"], z: Float[np.ndarray, " m"]) -> tuple[np.ndarray, np.ndarray]:
        """The first and the second derivative of log p(y|x) by z, at a point of each of these rows."""
        first, second = np.empty((2, len(z), 1))
        points = z[:, None]
        for block, _, share, total, pull in self._pulls(rows, points):
            share /= total[..., None]
            first[block] = -np.vecdot(share, pull)
            apart = pull + first[block][..., None]
            second[block] = np.vecdot(share, apart**2) - np.vecdot(share, self.mixture.std[rows[block], None] ** -2.0)
        first -= self.transform.log_slope_derivative(points)
        second -= self.transform.log_slope_bend(points)
        return first[:, 0], second[:, 0]

    def _outside(self, z: np.ndarray, height: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log densities and their derivatives, from those in standard units."""
        t, points = self.transform, z[..., None]
        return height - t.log_slope(points)[..., 0], slope - t.log_slope_derivative(points)[..., 0]

    def _pulls(
        self, rows: Int[np.ndarray, " m"], z: Float[np.ndarray, "m g"], dtype: type = np.float64
    ) -> Iterator[tuple[slice, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Block by block: log densities in standard units; shares of components, their sum, pulls (z - m_k) / σ_k²."""
        size = max(1, AT_ONCE // max(1, z.shape[1] * self.log_height.shape[1]))
        for begin in range(0, len(z), size):
            block = slice(begin, begin + size)
            some = rows[block]
            precision = 1 / self.mixture.std[some, None]
            pull = z[block, :, None] - self.mixture.mean[some, None]
            pull = np.multiply(pull, precision, out=np.empty(pull.shape, dtype), casting="same_kind")
            share = pull * pull
            share *= -0.5
            share += self.log_height[some, None].astype(dtype, copy=False)
            top = share.max(2, keepdims=True)
            share -= top
            np.exp(share, out=share)
            total = share.sum(2)
            pull *= precision.astype(dtype, copy=False)
            yield block, top[..., 0] + np.log(total) - 0.5 * LOG_2PI, share, total, pull


class Sight(NamedTuple):
    """A density looked through: a grid with log densities to single precision, and the ends and all turning points.

    Those of a row are in order; rows with fewer turning points than others end with the grid's last point, repeated.
    """

    grid: Float[np.ndarray, "n g"]
    height: Float[np.ndarray, "n g"]
    turn: Float[np.ndarray, "n s"]
    top: Float[np.ndarray, "n s"]

    @classmethod
    def of(cls, line: Line) -> "Sight":
        """Where the slope is zero, between points of the grid where its sign differs."""
        grid = _grid(line.mixture)
        rows = np.arange(len(grid))
        height, slope = line.glance(rows, grid)
        uphill = slope > 0
        row, place, rank = _ranked(uphill[:, :-1] != uphill[:, 1:])
        low, high, first, last = grid[row, place], grid[row, place + 1], slope[row, place], slope[row, place + 1]
        scale = line.mixture.std.min(1)[row] * np.where(first > 0, -1, 1)

        def rise(some: Int[np.ndarray, " m"], z: Float[np.ndarray, " m"]) -> tuple[np.ndarray, np.ndarray]:
            steepness, bend = line.bend(row[some], z)
            return scale[some] * steepness, scale[some] * bend

        turn = np.repeat(grid[:, -1:], rank.max(initial=-1) + 3, axis=1)
        turn[:, 0] = grid[:, 0]
        turn[row, rank + 1] = rising_roots(rise, low, high, low + (high - low) * first / (first - last))
        return cls(grid, height, turn, line.profile(rows, turn)[0])


def _ranked(flags: Bool[np.ndarray, "n g"]) -> tuple[Int[np.ndarray, " m"], ...]:
    """Where flags are set: rows, columns, and how many of the row are set before."""
    row, column = np.nonzero(flags)
    count = np.bincount(row, minlength=len(flags))
    return row, column, np.arange(len(row)) - (np.cumsum(count) - count)[row]


def _ends(
    line: Line, seen: Sight, rows: Int[np.ndarray, " n"], threshold: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "n e"], Int[np.ndarray, "n e"]]:
    """Where the log density goes through the threshold, -1 where a region begins there and 1 where one ends, else 0."""
    edges = np.pad(seen.top[rows] >= threshold[:, None], [(0, 0), (1, 1)]).astype(int)
    change = edges[:, :-1] - edges[:, 1:]  # place i: between turning points i - 1 and i
    row, place, rank = _ranked(change != 0)
    own, falls, t = rows[row], change[row, place], threshold[row]
    low = seen.turn[own, np.maximum(place - 1, 0)]
    high = seen.turn[own, np.minimum(place, seen.turn.shape[1] - 1)]

    def excess(some: Int[np.ndarray, " m"], z: Float[np.ndarray, " m"]) -> tuple[np.ndarray, np.ndarray]:
        top, slope = line.profile(own[some], z[:, None])
        return falls[some] * (t[some] - top[:, 0]), -falls[some] * slope[:, 0]

    grid = seen.grid[own]
    between = (grid >= low[:, None]) & (grid <= high[:, None])
    near = np.where(between, np.abs(seen.height[own] - t[:, None]), np.inf).argmin(1)
    ends = np.zeros((len(rows), rank.max(initial=-1) + 1))
    sign = np.zeros(ends.shape, int)
    ends[row, rank] = rising_roots(
        excess, low, high, np.where(between.any(1), grid[np.arange(len(row)), near], 0.5 * (low + high))
    )
    sign[row, rank] = falls
    return ends, sign


def _grid(mixture: Univariate) -> Float[np.ndarray, "n g"]:
    """Points fine enough for the narrowest component, further out than any mass that counts.

    Every component, but for those much like another, has points from -9 to 9 of its standard deviations; where
    components lie so close that their points are nearer than `CLOSE` standard deviations of the narrowest about, fewer
    do.
    """
    kind = _kinds(mixture)
    mean, std = (np.take_along_axis(a, kind, axis=1) for a in (mixture.mean, mixture.std))
    count = max(17, -(-1025 // kind.shape[1]) | 1)
    reach = np.linspace(-1, 1, count)
    reach = 9 * np.sign(reach) * np.abs(reach) ** 1.5  # closer where the density is curved most
    points = (mean[..., None] + std[..., None] * reach).reshape(len(mean), -1)
    order = np.argsort(points, axis=1)
    points = np.take_along_axis(points, order, axis=1)
    spread = np.take_along_axis(np.repeat(std, count, axis=1), order, axis=1)
    points[:, 0] = np.minimum(points[:, 0], (mixture.mean - 9 * mixture.std).min(1))
    points[:, -1] = np.maximum(points[:, -1], (mixture.mean + 9 * mixture.std).max(1))
    least = minimum_filter1d(spread, 2 * count, axis=1)
    apart = np.minimum(np.diff(points, axis=1) / (CLOSE * least[:, 1:]), 1.0)
    along = np.concatenate([np.zeros((len(points), 1)), np.cumsum(apart, axis=1)], axis=1)
    needed = min(int(along[:, -1].max(initial=1)) + 2, points.shape[1])
    if needed > points.shape[1] // 2:
        return points
    evenly = np.linspace(0, 1, needed)
    return np.stack([np.interp(evenly * s[-1], s, z) for s, z in zip(along, points, strict=True)])


def _kinds(mixture: Univariate) -> Int[np.ndarray, "n c"]:
    """Some components of each row, so that every other is like one: within a standard deviation, and about as wide."""
    size = np.floor(4 * np.log(mixture.std))
    place = np.floor(mixture.mean / np.exp(size / 4))
    order = np.lexsort((place, size), axis=1)
    size, place = (np.take_along_axis(a, order, axis=1) for a in (size, place))
    other = (np.diff(size, axis=1) != 0) | (np.diff(place, axis=1) != 0)
    row, column, rank = _ranked(np.pad(other, [(0, 0), (1, 0)], constant_values=True))
    kinds = np.repeat(order[:, :1], rank.max(initial=0) + 1, axis=1)
    kinds[row, rank] = order[row, column]
    return kinds


def _threshold(seen: Sight, transform: OutputTransform, level: float) -> Float[np.ndarray, " n"]:
    """The log height above which the mass is `level`, roughly: that of the last cell to reach it, the highest first."""
    density = np.exp(seen.height + transform.log_slope(seen.grid[..., None])[..., 0])
    mass = 0.5 * (density[:, 1:] + density[:, :-1]) * np.diff(seen.grid, axis=1)
    middle = 0.5 * (seen.height[:, 1:] + seen.height[:, :-1])
    order = np.argsort(-middle, axis=1)
    reached = np.cumsum(np.take_along_axis(mass, order, axis=1), axis=1)
    last = np.argmax(reached >= level * reached[:, -1:], axis=1)
    return np.take_along_axis(middle, np.take_along_axis(order, last[:, None], axis=1), axis=1)[:, 0]


POINTS = 1024
"""Draws of a row that tell a region of several outputs."""


def sampled_threshold(
    c: Components, transform: OutputTransform, level: float, points: int = POINTS
) -> Float[np.ndarray, " n"]:
    """The log height above which the mass is `level`, for several outputs, from quasi-random draws of each row."""
    from scipy.stats import qmc

    uniform = qmc.Sobol(c.n_outputs + 1, rng=0).random(points)
    chance = np.broadcast_to(uniform[:, 0], (c.n_rows, points))
    normal = np.broadcast_to(ndtri(uniform[:, 1:]), (c.n_rows, points, c.n_outputs))
    heights = log_pdf_outside(c, transform, c.sample(chance, normal))
    return np.quantile(heights, 1 - level, axis=1)
