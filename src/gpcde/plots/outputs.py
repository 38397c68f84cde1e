"""The density at chosen x: curves of one output with their bands and regions, or two outputs together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..density.conditional import ConditionalDensity, check_level
from ..density.samples import DensitySamples
from ..estimators.base import DensityEstimator
from .conditions import column, density_of, feature_names, find_output, output_name, reach, read
from .style import axes, dots, heat, line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MANY = 20
"""So many curves are the most that are drawn together."""


def densities(
    model: DensityEstimator,
    X: Any,
    *,
    output: int | str = 0,
    level: float = 0.9,
    draws: int = 50,
    labels: Sequence[str] | None = None,
    random_state: Any = 0,
    ax: "Axes | None" = None,
) -> "Axes":
    """The densities of an output at the rows of X, with credible bands; beneath, in that order, their highest regions.

    Parameters
    ----------
    model : DensityEstimator
        Fitted; the band is drawn where it has `sample_densities`.
    X : array or data frame of shape (n, d)
        The few rows whose densities are drawn.
    output : int or str, default=0
        Which output, by name or number.
    level : float, default=0.9
        The probability of the bands and of the regions.
    draws : int, default=50
        How many densities are drawn from the posterior for the band; 0: no band.
    labels : sequence of str, default=None
        What the rows are called; None: by the inputs in which they differ.
    random_state : int, RandomState or None, default=0
        A seed, for the band.
    ax : matplotlib Axes, default=None
        Where to draw; None: a new figure.

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
    >>> ax = plots.densities(LinearGaussian().fit(X, y), [[-0.5], [0.5]])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['x = -0.5', 'x = 0.5']
    """
    which = find_output(model, output)
    density = density_of(model, X, which)
    labels = _labels(model, X) if labels is None else labels
    samples = None
    if draws and hasattr(model, "sample_densities"):
        samples = model.sample_densities(X, draws, random_state)
        samples = samples if model.n_outputs_ == 1 else samples.marginal(which)
    return curves(density, labels, level=level, samples=samples, name=output_name(model, which), ax=ax)


def curves(
    density: ConditionalDensity,
    labels: Sequence[str],
    *,
    level: float,
    samples: DensitySamples | None = None,
    name: str = "y",
    ax: "Axes | None" = None,
) -> "Axes":
    """The densities of one output, the band of their samples, and beneath, in that order, their highest regions."""
    check_level(level)
    if len(density) > MANY:
        raise ValueError(f"{len(density)} curves could not be told apart: choose up to {MANY} rows")
    if len(labels) != len(density):
        raise ValueError(f"labels must name each of the {len(density)} rows, got {len(labels)}")
    points = reach(density, points=401)
    heights, regions = density.pdf_grid(points), density.hdr(level)
    ax = axes(ax)
    if samples is not None:
        band = samples.band(level, points)
        for i in range(len(density)):
            ax.fill_between(points, band.lower[i], band.upper[i], color=line(i)["color"], alpha=0.2, lw=0)
    step = 0.04 * heights.max()
    for i in range(len(density)):
        ax.plot(points, heights[i], **line(i), label=labels[i])
        below = -step * (i + 1)
        for low, high in regions[i]:
            ax.plot([low, high], [below, below], color=line(i)["color"], lw=4, solid_capstyle="butt")
    ax.axhline(0, color="black", lw=0.5)
    ax.set(xlabel=name, ylabel="density", ylim=(-step * (len(density) + 1), None))
    ax.set_yticks([tick for tick in ax.get_yticks() if 0 <= tick <= ax.get_ylim()[1]])
    ax.legend(title=f"bars: {100 * level:g} % regions", fontsize="small", title_fontsize="small")
    return ax


def joint(
    model: DensityEstimator,
    X: Any,
    y: Any = None,
    *,
    outputs: tuple[int | str, int | str] = (0, 1),
    levels: Sequence[float] = (0.5, 0.9),
    colorbar: bool = True,
    ax: "Axes | None" = None,
    **style: Any,
) -> "Axes":
    """The joint density of two outputs at one condition, as shades, with the borders of highest-density regions.

    Parameters
    ----------
    model : DensityEstimator
        Fitted, with two outputs or more.
    X : array or data frame of shape (1, d)
        The condition.
    y : array of shape (n, D), default=None
        Points to draw as dots, such as those observed near this condition.
    outputs : (int or str, int or str), default=(0, 1)
        The outputs across and up, by name or number.
    levels : sequence of float, default=(0.5, 0.9)
        The probabilities of the regions; none are drawn where it is empty.
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
    """
    for level in levels:
        check_level(level)
    check_is_fitted(model)
    if model.n_outputs_ < 2:
        raise ValueError(f"a joint density has two outputs or more; this model has one, {output_name(model, 0)}")
    pair = [find_output(model, output) for output in outputs]
    if len(pair) != 2 or pair[0] == pair[1]:
        raise ValueError(f"outputs must name two different outputs, got {outputs!r}; this model has {model.n_outputs_}")
    density = model.predict_density(X)
    if len(density) != 1:
        raise ValueError(f"X must be one row, the condition, got {len(density)} rows")
    both = density.marginal(pair)
    across, up = (reach(both.marginal(j), points=121, tail=2e-4) for j in range(2))
    grid = np.stack(np.meshgrid(across, up), axis=-1)
    heights = both.pdf_grid(grid.reshape(-1, 2)).reshape(len(up), len(across))
    ax = axes(ax)
    heat(ax, across, up, heights, colorbar, **{"vmax": float(heights.max()), **style})
    _draw_regions(ax, both, across, up, heights, levels)
    if y is not None:
        dots(ax, *np.asarray(y, float)[:, pair].T)
    ax.set(xlabel=output_name(model, pair[0]), ylabel=output_name(model, pair[1]))
    return ax


def _draw_regions(
    ax: "Axes",
    density: ConditionalDensity,
    across: np.ndarray,
    up: np.ndarray,
    heights: np.ndarray,
    levels: Sequence[float],
) -> None:
    """The borders of regions, the larger ones dashed."""
    found = {float(np.exp(density.hdr(level).log_threshold[0])): level for level in levels}
    if not found:
        return
    heights_of = sorted(found)  # a lower border is that of a larger region
    dashes = ["--", "-", ":", "-."]
    lines = ax.contour(
        across,
        up,
        heights,
        heights_of,
        colors="black",
        linewidths=0.8,
        linestyles=[dashes[i % len(dashes)] for i in range(len(found))],
    )
    ax.clabel(lines, fmt={height: f"{100 * found[height]:g} %" for height in heights_of}, fontsize="small")


def _labels(model: DensityEstimator, X: Any) -> list[str]:
    """The inputs in which rows differ, with their values; of one row, all of them, if they are few."""
    table, names = read(X), feature_names(model)
    columns = [column(table, place) for place in range(len(names))]
    rows = len(columns[0])
    shown = [place for place, values in enumerate(columns) if rows == 1 or len(set(values.tolist())) > 1]
    if not shown or len(shown) > 3:
        return [f"row {row}" for row in range(rows)]
    return [", ".join(f"{names[place]} = {_short(columns[place][row])}" for place in shown) for row in range(rows)]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
