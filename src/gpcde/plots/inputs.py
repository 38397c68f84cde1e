"""The density over one input: as shades (`heatmap`), as a fan of intervals (`fan`), the other inputs held or averaged.

held       p(y | x_j, x_-j = a),  a the data's medians unless told
averaged   1/n sum_n p(y | x_j, x_n,-j), over the rows of X: the effect of x_j alone
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from sklearn.utils import _safe_indexing

from ..density.conditional import check_level
from ..estimators.base import DensityEstimator
from .conditions import (
    Axis,
    along,
    column,
    density_of,
    feature_names,
    find_output,
    held,
    make_table,
    move,
    nearness,
    observed,
    output_name,
    reach,
    read,
)
from .style import CMAP, axes, dots, heat, line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVELS = (0.5, 0.8, 0.95)
"""Of a fan's intervals."""


def heatmap(
    model: DensityEstimator,
    X: Any = None,
    y: Any = None,
    *,
    feature: int | str = 0,
    at: Mapping[str | int, Any] | None = None,
    output: int | str = 0,
    colorbar: bool = True,
    ax: "Axes | None" = None,
    **style: Any,
) -> "Axes":
    """The density of an output over one input, as shades, with the data: every column is p(y|x) at its x.

    Parameters
    ----------
    model : DensityEstimator
        Fitted.
    X : array or data frame of shape (n, d), default=None
        Data, for the range of the input and for where the others are held.
    y : array of shape (n,) or (n, D), default=None
        What was observed, drawn as dots; the fainter, the farther a row's other inputs are from what is held.
    feature : int or str, default=0
        The input, by name or number; of a category, there is a column for each level.
    at : dict, default=None
        Where other inputs are held, by name or number; those not named at the median or commonest level of X, or
        where training was centred.
    output : int or str, default=0
        Which output, by name or number.
    colorbar : bool, default=True
        Whether to draw the scale.
    ax : matplotlib Axes, default=None
        Where to draw; None: a new figure.
    **style
        As matplotlib's pcolormesh takes it: `cmap`, `vmax`, `norm`.

    Returns
    -------
    matplotlib Axes
        What was drawn on.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import LinearGaussian, plots
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> y = X[:, 0] + np.random.default_rng(0).standard_normal(50)
    >>> ax = plots.heatmap(LinearGaussian().fit(X, y), X, y)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('x', 'y')
    """
    which, axis = find_output(model, output), move(model, feature, X)
    values = held(model, X, at)
    density = density_of(model, along(model, axis, values), which)
    seen = None if X is None or y is None else observed(y, which)
    up = reach(density, seen)
    ax = axes(ax)
    heat(ax, axis.positions, up, density.pdf_grid(up).T, colorbar, **style)
    if seen is not None:
        dots(ax, _places(axis, X), seen, nearness(model, X, axis.place, values))
    if axis.levels is not None:
        ax.vlines(axis.positions[1:] - 0.5, up[0], up[-1], color="white", lw=6)
    _name(ax, model, axis, which)
    ax.set_ylim(up[0], up[-1])
    return ax


def fan(
    model: DensityEstimator,
    X: Any = None,
    y: Any = None,
    *,
    feature: int | str = 0,
    at: Mapping[str | int, Any] | None = None,
    output: int | str = 0,
    levels: Sequence[float] = LEVELS,
    ax: "Axes | None" = None,
) -> "Axes":
    """The fan chart of an output over one input: its median, and central intervals round it, with the data.

    Parameters
    ----------
    model : DensityEstimator
        Fitted.
    X : array or data frame of shape (n, d), default=None
        Data, for the range of the input and for where the others are held.
    y : array of shape (n,) or (n, D), default=None
        What was observed, drawn as dots; the fainter, the farther a row's other inputs are from what is held.
    feature : int or str, default=0
        The input, by name or number.
    at : dict, default=None
        Where other inputs are held, by name or number; those not named at the median or commonest level of X, or
        where training was centred.
    output : int or str, default=0
        Which output, by name or number.
    levels : sequence of float, default=(0.5, 0.8, 0.95)
        The probabilities of the intervals.
    ax : matplotlib Axes, default=None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        What was drawn on.
    """
    which, axis, ordered = find_output(model, output), move(model, feature, X), _checked(levels)
    values = held(model, X, at)
    density = density_of(model, along(model, axis, values), which)
    quantiles = density.quantile(_ends(ordered)).reshape(len(density), -1)
    ax = axes(ax)
    _draw_fan(ax, axis, ordered, quantiles)
    if X is not None and y is not None:
        dots(ax, _places(axis, X), observed(y, which), nearness(model, X, axis.place, values))
    _name(ax, model, axis, which)
    ax.legend(fontsize="small")
    return ax


def effect(
    model: DensityEstimator,
    X: Any,
    *,
    feature: int | str = 0,
    output: int | str = 0,
    levels: Sequence[float] = LEVELS,
    rows: int = 50,
    draws: int = 200,
    ax: "Axes | None" = None,
) -> "Axes":
    """The effect of one input, the others averaged over the data: the fan chart of mean_n p(y | x_j, x_n,-j).

    Parameters
    ----------
    model : DensityEstimator
        Fitted.
    X : array or data frame of shape (n, d)
        The data that are averaged over.
    feature : int or str, default=0
        The input, by name or number.
    output : int or str, default=0
        Which output, by name or number.
    levels : sequence of float, default=(0.5, 0.8, 0.95)
        The probabilities of the intervals.
    rows : int, default=50
        How many rows of X to average over, evenly spaced among them.
    draws : int, default=200
        How many draws of y each of these rows has.
    ax : matplotlib Axes, default=None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        What was drawn on.
    """
    which, axis, ordered = find_output(model, output), move(model, feature, X, 25), _checked(levels)
    count = np.shape(X)[0]
    some = np.unique(np.linspace(0, count - 1, min(rows, count)).round().astype(int))
    table = read(_safe_indexing(X, some))
    columns: list[Sequence[Any] | np.ndarray] = [column(table, place) for place in range(len(table.names))]
    quantiles, means = [], []
    for value in axis.values:
        columns[axis.place] = [value] * len(some)
        # the same random numbers at every value, so that what differs is the density
        drawn = density_of(model, make_table(model, columns), which).sample(draws, 0)
        quantiles.append(np.quantile(drawn, _ends(ordered)))
        means.append(drawn.mean())
    ax = axes(ax)
    _draw_fan(ax, axis, ordered, np.array(quantiles))
    ax.plot(*_stretched(axis, np.array(means)), **line(1), label="mean")
    _name(ax, model, axis, which)
    ax.legend(fontsize="small")
    return ax


def _checked(levels: Sequence[float]) -> list[float]:
    """Levels from the widest interval to the narrowest."""
    for level in levels:
        check_level(level)
    return sorted(levels, reverse=True)


def _ends(levels: Sequence[float]) -> list[float]:
    """The probabilities of the median, and of both ends of each interval."""
    return [0.5, *(0.5 - 0.5 * level for level in levels), *(0.5 + 0.5 * level for level in levels)]


def _draw_fan(ax: "Axes", axis: Axis, levels: Sequence[float], quantiles: Float[np.ndarray, "g k"]) -> None:
    """Intervals from the widest to the narrowest, each darker than the last, and the median."""
    import matplotlib

    shades = matplotlib.colormaps[CMAP](np.linspace(0.2, 0.6, len(levels)))
    for i, (level, shade) in enumerate(zip(levels, shades, strict=True)):
        x, low = _stretched(axis, quantiles[:, 1 + i])
        high = _stretched(axis, quantiles[:, 1 + len(levels) + i])[1]
        ax.fill_between(x, low, high, color=shade, lw=0, label=f"{100 * level:g} %")
    ax.plot(*_stretched(axis, quantiles[:, 0]), color="black", lw=1.5, label="median")


def _stretched(axis: Axis, values: Float[np.ndarray, " g"]) -> tuple[np.ndarray, np.ndarray]:
    """x and y of a line; of a category, a piece of its own for every level."""
    if axis.levels is None:
        return axis.positions, values
    return (axis.positions[:, None] + [-0.4, 0.4, np.nan]).ravel(), np.repeat(values, 3)


def _places(axis: Axis, X: Any) -> Float[np.ndarray, " n"]:
    """Where the data lie along the input; those of a level beside each other."""
    known = column(read(X), axis.place)
    if axis.levels is None:
        return known
    codes = np.array([axis.levels.index(value) for value in known.tolist()], float)
    return codes + np.random.default_rng(0).uniform(-0.3, 0.3, len(codes))


def _name(ax: "Axes", model: DensityEstimator, axis: Axis, output: int) -> None:
    ax.set(xlabel=feature_names(model)[axis.place], ylabel=output_name(model, output))
    if axis.levels is not None:
        ax.set_xticks(axis.positions, [str(level) for level in axis.levels])
