"""Where a density is high: its mode, and its highest-density regions.

    mode     argmax_y p(y|x), by the fixed point of mixtures, z = (sum_k r_k Λ_k)⁻¹ (sum_k r_k Λ_k m_k - ∇ log dy/dz),
             with r_k the responsibilities and Λ_k the precisions, from the best component's mean, never downhill
    region   {y : p(y|x) >= t} with P(Y in the region) = level; for one output its intervals, one or several

Of one output every local maximum is found, where the slope of the log density falls through zero.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.ndimage import minimum_filter1d
from scipy.special import ndtri, softmax

from ..model.gaussians import LOG_2PI
from ..model.inputs import Numbers
from .components import Components, Univariate
from .transforms import OutputTransform

if TYPE_CHECKING:
    from .conditional import ConditionalDensity


CLOSE = 0.3
"""How far apart points need to be where a density is looked through, in standard deviations of its components."""


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
        line = Line.of(c, transform)
        places, height = _with_summits(line)
        return np.take_along_axis(places, height.argmax(1)[:, None], axis=1)
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
    c: Components, transform: OutputTransform, level: float, rounds: int = 40
) -> tuple[Float[np.ndarray, " n"], list[Float[np.ndarray, "_ 2"]]]:
    """Log thresholds and intervals of one output, in the user's units.

    A grid that holds every local maximum tells between which of its points a region begins or ends. Its mass is a
    difference of exact cdf values there, and the threshold is found by Newton's steps inside a bracket.
    """
    line = Line.of(c, transform)
    grid, height = _with_summits(line)
    threshold = _threshold(height, grid, transform, level)
    low, high = height.max(1) - 745, height.max(1)
    found = [np.empty((0, 2))] * len(grid)
    some = np.arange(len(grid))  # those not yet found
    for _ in range(rounds):
        part, at = line.take(some), threshold[some]
        ends, sign = _ends(part, grid[some], height[some], at)
        y = transform.from_standard(ends[..., None])[..., 0]
        for row, places, keep in zip(some, y, sign != 0, strict=True):
            found[row] = places[keep].reshape(-1, 2)
        missing = level - (sign * part.mixture.cdf(ends)).sum(1)
        low[some], high[some] = np.where(missing > 0, low[some], at), np.where(missing > 0, at, high[some])
        # d mass / d log t = -sum_ends q(z) / |d log p / dz|
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            steepness = np.abs(part.profile(ends)[1])
            ahead = at - missing / np.where(sign, part.mixture.pdf(ends) / steepness, 0.0).sum(1)
        inside = (ahead > low[some]) & (ahead < high[some])
        ahead = np.where(inside, ahead, 0.5 * (low[some] + high[some]))
        far = np.abs(missing) > 1e-12
        some = some[far]
        if not len(some):
            break
        threshold[some] = ahead[far]
    return threshold, found


class Line(NamedTuple):
    """Mixtures of one output in standard units, and the transform to the user's, in whose units heights are told."""

    mixture: Univariate
    log_weight: Float[np.ndarray, "n k"]
    transform: OutputTransform

    @classmethod
    def of(cls, c: Components, transform: OutputTransform) -> "Line":
        one = Univariate.of(c, 0)
        with np.errstate(divide="ignore"):
            return cls(one, np.log(np.broadcast_to(one.weight, one.mean.shape)) - np.log(one.std), transform)

    def take(self, rows: Int[np.ndarray, " b"]) -> "Line":
        one = self.mixture
        weight = np.broadcast_to(one.weight, one.mean.shape)[rows]
        return Line(Univariate(weight, one.mean[rows], one.std[rows]), self.log_weight[rows], self.transform)

    def profile(self, z: Float[np.ndarray, "n g"]) -> tuple[Float[np.ndarray, "n g"], Float[np.ndarray, "n g"]]:
        """log p(y|x) and its derivative by z."""
        precision = 1 / self.mixture.std[:, None]
        scaled = (z[..., None] - self.mixture.mean[:, None]) * precision
        share = -0.5 * scaled**2
        share += self.log_weight[:, None]
        top = share.max(2, keepdims=True)
        share -= top
        np.exp(share, out=share)
        total = share.sum(2)
        pull = np.einsum("ngk,ngk,nk->ng", share, scaled, precision[:, 0]) / total
        height = top[..., 0] + np.log(total) - 0.5 * LOG_2PI - self.transform.log_slope(z[..., None])[..., 0]
        return height, -pull - self.transform.log_slope_derivative(z[..., None])[..., 0]

    def root(
        self,
        function: Callable[["Line", np.ndarray, np.ndarray], np.ndarray],
        rows: Int[np.ndarray, " m"],
        low: Float[np.ndarray, " m"],
        high: Float[np.ndarray, " m"],
    ) -> Float[np.ndarray, " m"]:
        """Where a function of (line, rows, z) is zero, between two points of these rows where its sign differs."""
        from scipy.optimize.elementwise import find_root

        def of_rows(z: np.ndarray, number: np.ndarray) -> np.ndarray:
            return function(self.take(number), number, z)

        return find_root(of_rows, (low, high), args=(rows,), tolerances={"xatol": 0, "xrtol": 1e-15}).x


def _ends(
    line: Line, grid: Float[np.ndarray, "n g"], height: Float[np.ndarray, "n g"], threshold: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "n e"], Int[np.ndarray, "n e"]]:
    """Where the log density goes through the threshold, -1 where a region begins there and 1 where one ends, else 0."""
    edges = np.pad(height >= threshold[:, None], [(0, 0), (1, 1)]).astype(int)
    change = edges[:, :-1] - edges[:, 1:]  # place i: between grid points i - 1 and i
    places = np.argsort(change == 0, axis=1, kind="stable")[:, : np.count_nonzero(change, axis=1).max()]
    sign = np.take_along_axis(change, places, axis=1)
    low = np.take_along_axis(grid, np.maximum(places - 1, 0), axis=1)
    high = np.take_along_axis(grid, np.minimum(places, grid.shape[1] - 1), axis=1)

    def excess(part: Line, rows: np.ndarray, z: np.ndarray) -> np.ndarray:
        return np.maximum(part.profile(z[:, None])[0][:, 0] - threshold[rows], -1e5)

    row, column = np.nonzero((sign != 0) & (low < high))
    ends = 0.5 * (low + high)
    ends[row, column] = line.root(excess, row, low[row, column], high[row, column])
    return ends, sign


def _with_summits(line: Line) -> tuple[Float[np.ndarray, "n g"], Float[np.ndarray, "n g"]]:
    """A grid that has every local maximum among its points, and the log density there."""
    grid = _grid(line.mixture)
    height, slope = line.profile(grid)
    summits = _summits(line, grid, slope)
    grid, height = np.concatenate([grid, summits], axis=1), np.concatenate([height, line.profile(summits)[0]], axis=1)
    order = np.argsort(grid, axis=1)
    return np.take_along_axis(grid, order, axis=1), np.take_along_axis(height, order, axis=1)


def _summits(line: Line, grid: Float[np.ndarray, "n g"], slope: Float[np.ndarray, "n g"]) -> Float[np.ndarray, "n s"]:
    """The local maxima between grid points; rows with fewer of them have other points in their places."""
    falls = (slope[:, :-1] > 0) & (slope[:, 1:] <= 0)
    places = np.argsort(~falls, axis=1, kind="stable")[:, : max(1, falls.sum(1).max())]
    low, high = (np.take_along_axis(grid, side, axis=1) for side in (places, places + 1))

    def rise(part: Line, rows: np.ndarray, z: np.ndarray) -> np.ndarray:
        return part.profile(z[:, None])[1][:, 0]

    row, column = np.nonzero(np.take_along_axis(falls, places, axis=1) & (low < high))
    summits = 0.5 * (low + high)
    summits[row, column] = line.root(rise, row, low[row, column], high[row, column])
    return summits


def _grid(mixture: Univariate) -> Float[np.ndarray, "n g"]:
    """Points fine enough for the narrowest component, further out than any mass that counts.

    Every component has points from -9 to 9 of its standard deviations; where components lie so close that their points
    are nearer than `CLOSE` standard deviations of the narrowest about, fewer do.
    """
    count = max(17, -(-1025 // mixture.mean.shape[1]) | 1)
    reach = np.linspace(-1, 1, count)
    reach = 9 * np.sign(reach) * np.abs(reach) ** 1.5  # closer where the density is curved most
    points = (mixture.mean[..., None] + mixture.std[..., None] * reach).reshape(len(mixture.mean), -1)
    order = np.argsort(points, axis=1)
    points = np.take_along_axis(points, order, axis=1)
    spread = np.repeat(mixture.std, count, axis=1)
    spread = np.take_along_axis(np.broadcast_to(spread, points.shape), order, axis=1)
    least = minimum_filter1d(spread, 2 * count, axis=1)
    apart = np.minimum(np.diff(points, axis=1) / (CLOSE * least[:, 1:]), 1.0)
    along = np.concatenate([np.zeros((len(points), 1)), np.cumsum(apart, axis=1)], axis=1)
    needed = min(int(along[:, -1].max(initial=1)) + 2, points.shape[1])
    if needed > points.shape[1] // 2:
        return points
    evenly = np.linspace(0, 1, needed)
    return np.stack([np.interp(evenly * s[-1], s, z) for s, z in zip(along, points, strict=True)])


def _threshold(
    height: np.ndarray, grid: np.ndarray, transform: OutputTransform, level: float
) -> Float[np.ndarray, " n"]:
    """The log height above which the mass is `level`, roughly, by halving; cells that cross it count by their share."""
    density = np.exp(height + transform.log_slope(grid[..., None])[..., 0])
    mass = 0.5 * (density[:, 1:] + density[:, :-1]) * np.diff(grid, axis=1)
    mass /= mass.sum(1, keepdims=True)
    first, second = height[:, :-1], height[:, 1:]
    least, most = np.minimum(first, second), np.maximum(first, second)
    low, high = height.max(1) - 745, height.max(1)
    for _ in range(40):
        middle = 0.5 * (low + high)
        t = middle[:, None]
        # within a cell log p is taken as a line: the part of its mass above t
        steep = most - least
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            part = np.where(steep > 1e-9, np.expm1(t - most) / np.expm1(-steep), (most - t) / steep)
        share = np.where(t <= least, 1.0, np.where(t >= most, 0.0, part))
        enough = (share * mass).sum(1) >= level
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    return low


def sampled_threshold(
    c: Components, transform: OutputTransform, level: float, points: int = 4096
) -> Float[np.ndarray, " n"]:
    """The log height above which the mass is `level`, for several outputs, from quasi-random draws of each row."""
    from scipy.stats import qmc

    uniform = qmc.Sobol(c.n_outputs + 1, rng=0).random(points)
    chance = np.broadcast_to(uniform[:, 0], (c.n_rows, points))
    normal = np.broadcast_to(ndtri(uniform[:, 1:]), (c.n_rows, points, c.n_outputs))
    heights = log_pdf_outside(c, transform, c.sample(chance, normal))
    return np.quantile(heights, 1 - level, axis=1)
