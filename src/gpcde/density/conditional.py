"""The answer: a batch of conditional densities p(y|x_n), each a Gaussian mixture, in the user's units.

Every model of the package answers with this one class. It is joint over the outputs; `cdf`, `quantile`, `interval`
and `crps` are of each output by itself. Rows come first in every result: `quantile` of n rows and three levels
is n × 3, with several outputs n × 3 × D.

The components are made block by block when they are asked for, so memory stays bounded for any number of rows.
"""

from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss
from scipy.special import ndtr

from ..model.inputs import AnyArray, Numbers
from ..runtime.memory import require_memory
from . import many as _many
from .components import Components, Univariate, log_sum_exp, mixed
from .regions import POINTS, Region, intervals, log_pdf_outside, modes, sampled_threshold
from .transforms import OutputTransform

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MANY_COMPONENTS = 1000
"""From more on, the CRPS is integrated numerically: its closed form runs over all pairs of components."""


class Source(NamedTuple):
    """Where a density comes from: the components of some rows, given by their numbers, in standard units.

    `log_pdf` is the log density of some rows at a point each, where there is a quicker way to it than the components.
    """

    components: Callable[[Int[np.ndarray, " b"]], Components]
    log_pdf: Callable[[Int[np.ndarray, " b"], Float[np.ndarray, "b D"]], Float[np.ndarray, " b"]] | None = None

    @classmethod
    def mixed(cls, sources: "Sequence[Source]", weights: Float[np.ndarray, " m"]) -> "Source":
        """The mixture of several, with these weights; as quick as the slowest of them."""

        def components(rows: Int[np.ndarray, " b"]) -> Components:
            return mixed([one.components(rows) for one in sources], weights)

        if any(one.log_pdf is None for one in sources):
            return cls(components)

        def log_pdf(rows: Int[np.ndarray, " b"], z: Float[np.ndarray, "b D"]) -> Float[np.ndarray, " b"]:
            logs = [one.log_pdf(rows, z) for one in sources if one.log_pdf is not None]
            return log_sum_exp(np.stack(logs, axis=1) + np.log(weights))

        return cls(components, log_pdf)


NUMBERS_AT_ONCE, KEPT, FIRST_ROWS = 2**20, 2**22, 64
"""How many numbers a block may take at once, how many a density keeps rather than compute them again, and how many
rows it looks at first, to learn how many numbers a row is."""


class ConditionalDensity:
    """p(y|x_n) for a batch of rows x_n: joint log densities, cdf, quantiles, samples, moments, regions, scores.

    Parameters
    ----------
    source : Components or Source
        The components themselves, or what makes those of some rows, in standard units.
    transform : OutputTransform
        From standard units to those of y.
    n_rows : int, default=None
        How many rows there are, where a `Source` makes them.
    flat : bool, default=False
        Whether the one output has no axis of its own: y and results are vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import LinearGaussian
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 1))
    >>> y = 2 * X[:, 0] + rng.standard_normal(100)
    >>> density = LinearGaussian().fit(X, y).predict_density([[0.0], [1.0]])
    >>> density
    ConditionalDensity(rows=2, outputs=1)
    >>> density.log_pdf([0.0, 2.0]).shape, density.quantile([0.1, 0.5, 0.9]).shape
    ((2,), (2, 3))
    >>> bool(np.allclose(density.cdf(density.quantile(0.3)), 0.3))
    True
    """

    def __init__(
        self,
        source: Components | Source,
        transform: OutputTransform,
        n_rows: int | None = None,
        flat: bool = False,
    ) -> None:
        if isinstance(source, Components):
            self._kept: Components | None = source
            self._source = Source(source.take)
            self._n_rows = source.n_rows
        else:
            if n_rows is None:
                raise ValueError("a density made block by block needs n_rows")
            self._kept, self._source, self._n_rows = None, source, n_rows
        self._transform = transform
        self._flat = flat and self.n_outputs == 1
        self._shape: tuple[int, int] | None = None

    # the batch

    def __len__(self) -> int:
        return self._n_rows

    @property
    def n_outputs(self) -> int:
        """D_y."""
        return len(self._transform.location)

    def __repr__(self) -> str:
        return f"ConditionalDensity(rows={len(self)}, outputs={self.n_outputs})"

    def __reduce__(self) -> tuple[Any, ...]:
        """As its components: those can be sent about, functions that make them cannot."""
        return ConditionalDensity, (self.components(), self._transform, None, self._flat)

    def __getitem__(self, rows: int | np.integer | slice | Sequence[int] | AnyArray) -> "ConditionalDensity":
        """Some of the rows (always a batch, also of one)."""
        index = np.atleast_1d(np.arange(len(self))[rows if isinstance(rows, slice) else np.asarray(rows)])
        fast, quick = self._source.log_pdf, None
        if fast is not None:

            def quick(part: Int[np.ndarray, " b"], z: Float[np.ndarray, "b D"]) -> Float[np.ndarray, " b"]:
                return fast(index[part], z)

        source = Source(lambda part: self._some(index[part]), quick)
        return ConditionalDensity(source, self._transform, len(index), self._flat)

    def marginal(self, output: int | Sequence[int]) -> "ConditionalDensity":
        """The density of one output, or of several.

        Parameters
        ----------
        output : int or list of int
            Which, counted from 0; of an int the density's y has no axis of outputs.

        Returns
        -------
        ConditionalDensity
            Of as many rows.
        """
        single = isinstance(output, int | Integral)
        columns = [int(i) for i in np.atleast_1d(np.asarray(output))]
        for column in columns:
            if not -self.n_outputs <= column < self.n_outputs:
                raise IndexError(f"there are {self.n_outputs} outputs, counted from 0; there is no output {column}")
        columns = [column % self.n_outputs for column in columns]
        if not columns or len(set(columns)) < len(columns):
            raise ValueError(f"name one output or several different ones, got {output!r}")
        return ConditionalDensity(
            Source(lambda part: self._some(part).marginal(columns)),
            self._transform.column(columns),
            len(self),
            single,
        )

    def components(self) -> Components:
        """Weights, means and variances of all rows' mixtures, as they are: in the model's standard units.

        Returns
        -------
        Components
            With as many rows.
        """
        return self._some(np.arange(len(self)))

    def _some(self, rows: Int[np.ndarray, " b"]) -> Components:
        if self._row_size() * len(self) <= KEPT and self._kept is None:
            self._kept = self._source.components(np.arange(len(self)))
        return self._source.components(rows) if self._kept is None else self._kept.take(rows)

    def _row_size(self) -> int:
        """How many numbers the means of one row are, as outputs."""
        if self._shape is None and not len(self):
            self._shape = 1, self.n_outputs
        if self._shape is None:
            first = self._source.components(np.arange(min(FIRST_ROWS, len(self))))
            self._shape = first.n_components, max(first.mean.shape[2], first.n_outputs)
            if first.n_rows == len(self):
                self._kept = first
        return max(1, self._shape[0] * self._shape[1])

    def _n_components(self) -> int:
        self._row_size()
        assert self._shape is not None
        return self._shape[0]

    def _line_work(self) -> int:
        """How many numbers for each component are needed at once to look through a line."""
        return max(17, 1025 // self._n_components())

    def _is_many(self, answers: int = 1) -> bool:
        """Whether compiled programs are worth it, for so many numbers for each component of a row."""
        return len(self) * self._row_size() * answers >= _many.MANY

    def _blocks(self, work: int = 1) -> Iterator[tuple[slice, Components]]:
        """Blocks of rows, small enough for `work` numbers for every component of a row."""
        if not len(self):
            return
        size = max(1, NUMBERS_AT_ONCE // (self._row_size() * max(work, 1)))
        for begin in range(0, len(self), size):
            rows = slice(begin, min(begin + size, len(self)))
            yield rows, self._some(np.arange(rows.start, rows.stop))

    # what users give and get

    def _outputs(self, y: Numbers, what: str = "y") -> Float[np.ndarray, "n D"]:
        """y as a matrix with a row for every row of the batch."""
        array = np.asarray(y, float)
        if array.ndim == 0:
            array = np.full((len(self), self.n_outputs), float(array))
        if array.ndim == 1 and (self.n_outputs == 1 or array.shape != (self.n_outputs,)):
            array = array[:, None]
        elif array.ndim == 1:
            array = np.broadcast_to(array, (len(self), self.n_outputs))
        if array.shape != (len(self), self.n_outputs):
            raise ValueError(
                f"{what} must have a row for each of the {len(self)} rows of this density and {self.n_outputs} "
                f"columns, got shape {np.shape(y)}"
            )
        if np.isnan(array).any():
            raise ValueError(f"{what} holds NaN, first in row {int(np.isnan(array).any(1).argmax())}")
        return array

    def _shaped(self, array: np.ndarray) -> np.ndarray:
        """Without the axis of outputs, which is last, where the user's y has none."""
        return array[..., 0] if self._flat else array

    # densities

    def log_pdf(self, y: Numbers) -> Float[np.ndarray, " n"]:
        """log p(y_n|x_n), joint over the outputs.

        Parameters
        ----------
        y : array of shape (n,) or (n, D), or a number or vector of D for all rows
            A point for each row.

        Returns
        -------
        array of shape (n,)
            -inf outside the support of a transformed y.
        """
        y = self._outputs(y)
        if self._kept is not None or self._source.log_pdf is None or not len(self):
            return self.log_pdf_at(y[:, None])[:, 0]
        inside, z = self._inside(y)
        out = self._source.log_pdf(np.arange(len(self)), z) - self._transform.log_slope(z).sum(1)
        return np.where(inside, out, -np.inf)

    def log_pdf_at(self, y: Numbers) -> Float[np.ndarray, "n g"]:
        """The joint log density at several points of each row.

        Parameters
        ----------
        y : array of shape (n, g) or (n, g, D)
            As `sample` gives them.

        Returns
        -------
        array of shape (n, g)
            -inf outside the support of a transformed y.
        """
        points = np.asarray(y, float)
        points = points[..., None] if points.ndim == 2 and self.n_outputs == 1 else points
        if points.ndim != 3 or (len(points), points.shape[2]) != (len(self), self.n_outputs):
            raise ValueError(
                f"y must have points of {self.n_outputs} numbers for each of the {len(self)} rows, got shape "
                f"{np.shape(y)}"
            )
        inside, z = self._inside(points)
        out = np.empty(points.shape[:2])
        for rows, c in self._blocks(points.shape[1]):
            out[rows] = log_pdf_outside(c, self._transform, z[rows])
        return np.where(inside, out, -np.inf)

    def _inside(self, y: Float[np.ndarray, "*n D"]) -> tuple[Bool[np.ndarray, "*n"], Float[np.ndarray, "*n D"]]:
        """Which points the support holds, and all in standard units; in place of those outside, any inside."""
        z = self._transform.to_standard(y)
        inside = np.isfinite(z).all(-1)
        return inside, np.where(inside[..., None], z, 0.0)

    def pdf(self, y: Numbers) -> Float[np.ndarray, " n"]:
        """p(y_n|x_n), joint over the outputs; as `log_pdf`."""
        return np.exp(self.log_pdf(y))

    def pdf_grid(self, points: Numbers) -> Float[np.ndarray, "n g"]:
        """Every row's density at every one of the points.

        Parameters
        ----------
        points : array of shape (g,) or (g, D)
            In the units of y.

        Returns
        -------
        array of shape (n, g)
            0 outside the support of a transformed y.
        """
        grid = np.asarray(points, float)
        grid = grid.reshape(-1, 1) if grid.ndim < 2 and self.n_outputs == 1 else grid
        if grid.ndim != 2 or grid.shape[1] != self.n_outputs:
            raise ValueError(f"points must be a matrix with {self.n_outputs} columns, got shape {np.shape(points)}")
        if np.isnan(grid).any():
            raise ValueError(f"points hold NaN, first in row {int(np.isnan(grid).any(1).argmax())}")
        require_memory(f"a grid of {len(grid)} points for {len(self)} rows", [(len(self), len(grid))] * 2)
        return np.exp(self.log_pdf_at(np.broadcast_to(grid, (len(self), *grid.shape))))

    def cdf(self, y: Numbers) -> Float[np.ndarray, " n"] | Float[np.ndarray, "n D"]:
        """P(Y_j <= y_nj | x_n), of each output by itself.

        Parameters
        ----------
        y : array of shape (n,) or (n, D), or a number or vector of D for all rows
            A point for each row.

        Returns
        -------
        array of shape (n,) or (n, D)
            Between 0 and 1.
        """
        z = self._transform.to_standard(self._outputs(y))
        out = np.empty(z.shape)
        many = self._is_many()
        for rows, c in self._blocks():
            for j in range(self.n_outputs):
                one = Univariate.of(c, j)
                out[rows, j] = _many.cdf(one, z[rows, j]) if many else one.cdf(z[rows, j, None])[:, 0]
        return self._shaped(out)

    def quantile(self, level: Numbers) -> np.ndarray:
        """The values below which each output lies with these probabilities.

        Parameters
        ----------
        level : float or array of shape (l,)
            Between 0 and 1.

        Returns
        -------
        array of shape (n,) or (n, l); (n, D) or (n, l, D) with several outputs
            In the units of y.
        """
        levels = np.asarray(level, float)
        check_quantiles(level)
        flat = levels.reshape(1, -1)
        out = np.empty((len(self), flat.size, self.n_outputs))
        many = self._is_many(flat.size)
        for rows, c in self._blocks(1 if many else flat.size):
            for j in range(self.n_outputs):
                one = Univariate.of(c, j)
                if many:
                    out[rows, :, j] = np.stack([_many.quantile(one, p) for p in flat[0]], axis=1)
                else:
                    out[rows, :, j] = one.quantile(np.broadcast_to(flat, (c.n_rows, flat.size)))
        out = self._transform.from_standard(out)
        return self._shaped(out.reshape(len(self), *levels.shape, self.n_outputs))

    def interval(self, level: float = 0.9) -> np.ndarray:
        """The central interval of each output that holds it with this probability.

        Parameters
        ----------
        level : float, default=0.9
            Between 0 and 1.

        Returns
        -------
        array of shape (n, 2) or (n, 2, D)
            Lower and upper ends.
        """
        check_level(level)
        return self.quantile([0.5 - 0.5 * level, 0.5 + 0.5 * level])

    def hdr(self, level: float = 0.9) -> Region:
        """The smallest regions that hold y with this probability: intervals of one output, or level sets.

        Parameters
        ----------
        level : float, default=0.9
            Between 0 and 1.

        Returns
        -------
        Region
            Of as many rows.
        """
        check_level(level)
        threshold = np.empty(len(self))
        if self.n_outputs > 1:
            for rows, c in self._blocks(POINTS):
                threshold[rows] = sampled_threshold(c, self._transform, level)
            return Region(self, level, threshold, None)
        found: list[np.ndarray] = []
        for rows, c in self._blocks(self._line_work()):
            threshold[rows], some = intervals(c, self._transform, level)
            found += some
        return Region(self, level, threshold, found)

    # points

    def mean(self) -> Float[np.ndarray, " n"] | Float[np.ndarray, "n D"]:
        """E[y|x], of shape (n,) or (n, D)."""
        return self._shaped(self._moments()[0])

    def var(self) -> Float[np.ndarray, " n"] | Float[np.ndarray, "n D"]:
        """The variance of each output, of shape (n,) or (n, D)."""
        return self._shaped(self._moments()[1])

    def std(self) -> Float[np.ndarray, " n"] | Float[np.ndarray, "n D"]:
        """The standard deviation of each output, of shape (n,) or (n, D)."""
        return np.sqrt(self.var())

    def mode(self) -> Float[np.ndarray, " n"] | Float[np.ndarray, "n D"]:
        """Where the joint density is highest, of shape (n,) or (n, D)."""
        z = np.empty((len(self), self.n_outputs))
        on_a_line = self._row_size() == self._n_components()
        for rows, c in self._blocks(self._line_work() if on_a_line else self._n_components()):
            z[rows] = modes(c, self._transform)
        return self._shaped(self._transform.from_standard(z))

    def _moments(self) -> tuple[Float[np.ndarray, "n D"], Float[np.ndarray, "n D"]]:
        mean, variance = (np.empty((len(self), self.n_outputs)) for _ in range(2))
        t = self._transform
        if t.affine:
            for rows, c in self._blocks():
                mean[rows], variance[rows] = c.moments()
            return t.from_standard(mean), variance * t.scale**2
        # each component by Gauss–Hermite quadrature
        nodes, weights = hermegauss(64)
        weights = weights / weights.sum()
        for rows, c in self._blocks(64):
            for j in range(self.n_outputs):
                one, column = Univariate.of(c, j), t.column(j)
                y = column.from_standard((one.mean[..., None] + one.std[..., None] * nodes)[..., None])[..., 0]
                first = (one.weight * (y @ weights)).sum(1)
                mean[rows, j] = first
                variance[rows, j] = (one.weight * ((y - first[:, None, None]) ** 2 @ weights)).sum(1)
        return mean, variance

    def sample(self, size: int = 1, random_state: int | np.random.Generator | None = None) -> np.ndarray:
        """Draws of y.

        Parameters
        ----------
        size : int, default=1
            How many draws each row has.
        random_state : int, Generator or None, default=None
            A seed.

        Returns
        -------
        array of shape (n, size) or (n, size, D)
            In the units of y.
        """
        check_size(size)
        require_memory(f"size={size} for {len(self)} rows", [(len(self), size), (len(self), size, self.n_outputs)])
        rng = np.random.default_rng(random_state)
        chance = rng.random((len(self), size))
        out = rng.standard_normal((len(self), size, self.n_outputs))
        for rows, c in self._blocks(1 + size // self._n_components()):
            out[rows] = c.sample(chance[rows], out[rows])
        return self._shaped(self._transform.from_standard(out))

    # scores

    def integrated_square(self) -> Float[np.ndarray, " n"]:
        """∫ p(y|x_n)² dy, joint over the outputs; in closed form where y is not transformed, else of one output.

        Returns
        -------
        array of shape (n,)
            In units of one over y's.
        """
        t, out = self._transform, np.empty(len(self))
        if not t.affine:
            if self.n_outputs > 1:
                raise ValueError("∫ p² dy of several outputs is known where y is not transformed, not with y_transform")
            for rows, c in self._blocks(2 * 8 * len(_EDGES)):
                out[rows] = _numerical_square(Univariate.of(c, 0), t)
            return out
        for rows, c in self._blocks(self._n_components() * self.n_outputs):
            out[rows] = c.integrated_square()
        return out / np.prod(t.scale)

    def crps(self, y: Numbers) -> Float[np.ndarray, " n"] | Float[np.ndarray, "n D"]:
        """The continuous ranked probability score of each output: lower is better, 0 for a point mass at y.

        Parameters
        ----------
        y : array of shape (n,) or (n, D), or a number or vector of D for all rows
            What was observed in each row.

        Returns
        -------
        array of shape (n,) or (n, D)
            In the units of y.
        """
        y = self._outputs(y)
        out = np.empty(y.shape)
        t = self._transform
        in_pairs = t.affine and self._n_components() <= MANY_COMPONENTS
        many = in_pairs and self._is_many(self._n_components())
        work = 1 if many else self._n_components() if in_pairs else 2 * 8 * len(_EDGES)
        for rows, c in self._blocks(work):
            for j in range(self.n_outputs):
                one, column = Univariate.of(c, j), t.column(j)
                if in_pairs:
                    z = column.to_standard(y[rows, j, None])[:, 0]
                    out[rows, j] = (_many.crps(one, z) if many else one.crps(z)) * t.scale[j]
                else:
                    out[rows, j] = _numerical_crps(one, column, y[rows, j])
        return self._shaped(out)

    def energy_score(
        self, y: Numbers, size: int = 1000, random_state: int | np.random.Generator | None = 0
    ) -> Float[np.ndarray, " n"]:
        """E‖Y - y‖ - E‖Y - Y'‖ / 2 over the outputs together: lower is better; of one output, the CRPS.

        Parameters
        ----------
        y : array of shape (n,) or (n, D), or a number or vector of D for all rows
            What was observed in each row.
        size : int, default=1000
            How many pairs of draws each row has.
        random_state : int, Generator or None, default=0
            A seed.

        Returns
        -------
        array of shape (n,)
            In the units of y.
        """
        check_size(size)
        y, rng = self._outputs(y), np.random.default_rng(random_state)
        out = np.empty(len(self))
        for rows, c in self._blocks(1 + 2 * size * (self.n_outputs + 1) // self._n_components()):
            # row by row, however rows are blocked
            noise = rng.standard_normal((c.n_rows, 2 * size, self.n_outputs + 1))
            draws = self._transform.from_standard(c.sample(ndtr(noise[..., 0]), noise[..., 1:]))
            apart = np.linalg.norm(draws[:, :size] - draws[:, size:], axis=2)
            out[rows] = np.linalg.norm(draws - y[rows, None], axis=2).mean(1) - 0.5 * apart.mean(1)
        return out

    def plot(
        self,
        output: int = 0,
        *,
        level: float = 0.9,
        labels: Sequence[str] | None = None,
        ax: "Axes | None" = None,
    ) -> "Axes":
        """Draw the densities of a few rows as curves; beneath, in that order, their highest-density regions.

        `gpcde.plots.densities` does so with the band of a model, and names of inputs and outputs.

        Parameters
        ----------
        output : int, default=0
            Which output.
        level : float, default=0.9
            The probability of the regions.
        labels : sequence of str, default=None
            What the rows are called; None: by their numbers.
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        matplotlib Axes
            What was drawn on.
        """
        from ..plots.outputs import curves

        names = [f"row {row}" for row in range(len(self))] if labels is None else labels
        return curves(self if self.n_outputs == 1 else self.marginal(output), names, level=level, ax=ax)


_EDGES = np.concatenate(
    [[1e-14, 1e-10, 1e-7, 1e-5, 1e-3], np.linspace(0.01, 0.99, 50), 1 - np.geomspace(1e-3, 1e-14, 6)]
)


def _numerical_crps(one: Univariate, t: OutputTransform, y: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """∫ (F(s) - 1{s >= y})² ds over panels between quantiles and y, with 8 Gauss–Legendre nodes each.

    Between the outermost quantiles and a y beyond them the integrand is 1.
    """
    # panels may end a little beside the quantiles
    edges = one.quantile(np.broadcast_to(_EDGES, (len(y), len(_EDGES))), enough=1e-7)
    z = np.clip(t.to_standard(y[:, None]), edges[:, :1], edges[:, -1:])
    least, most = t.from_standard(edges[:, [0, -1], None])[..., 0].T
    at, weights = _panels(np.sort(np.concatenate([edges, z], axis=1), axis=1))
    density = one.cdf(at, upper=at >= z) ** 2 * np.exp(t.log_slope(at[..., None])[..., 0])
    return (density * weights).sum(1) + np.maximum(least - y, 0) + np.maximum(y - most, 0)


def _numerical_square(one: Univariate, t: OutputTransform) -> Float[np.ndarray, " n"]:
    """∫ q(z)² dz/dy dz over panels between quantiles, q the density of z, with 8 Gauss–Legendre nodes each."""
    at, weights = _panels(one.quantile(np.broadcast_to(_EDGES, (one.mean.shape[0], len(_EDGES))), enough=1e-7))
    return (one.pdf(at) ** 2 * np.exp(-t.log_slope(at[..., None])[..., 0]) * weights).sum(1)


def _panels(edges: Float[np.ndarray, "n e"]) -> tuple[Float[np.ndarray, "n g"], Float[np.ndarray, "n g"]]:
    """Gauss–Legendre nodes and weights, eight for each panel between edges that rise."""
    nodes, weights = leggauss(8)
    half = 0.5 * np.diff(edges, axis=1)[..., None]
    at = edges[:, :-1, None] + half * (nodes + 1)
    return at.reshape(len(edges), -1), (half * weights).reshape(len(edges), -1)


def check_size(size: int) -> None:
    """Raise where a number of draws is none."""
    if not isinstance(size, Integral) or size < 1:
        raise ValueError(f"size, the number of draws of each row, must be a positive integer, got {size!r}")


def check_quantiles(level: Numbers) -> None:
    """Raise where a quantile level is no probability."""
    levels = np.asarray(level, float)
    if not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError(f"quantile levels must lie between 0 and 1, got {level!r}")


def check_level(level: float) -> None:
    """Raise where a level of intervals or regions lies not between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}")
