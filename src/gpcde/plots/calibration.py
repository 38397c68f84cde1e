"""Whether a density can be believed, as pictures of what `gpcde.pit` and `gpcde.coverage` answer."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from ..evaluation.diagnostics import Coverage, uniformity
from .style import axes, line

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def pit(values: Float[np.ndarray, "*n"], bins: int = 10, ax: "Axes | None" = None) -> "Axes":
    """The histogram of PIT values, with the band where 95 % of the bars of a right model lie.

    Parameters
    ----------
    values : array
        PIT values, of any shape, as `gpcde.pit` or `gpcde.hpd_pit` gives them.
    bins : int, default=10
        How many bars.
    ax : matplotlib Axes, default=None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        What was drawn on.
    """
    ax = axes(ax)
    flat = np.ravel(values)
    low, high = stats.binom.ppf([0.025, 0.975], len(flat), 1 / bins) * bins / len(flat)
    ax.hist(flat, bins=bins, range=(0, 1), density=True, color=line(0)["color"], alpha=0.7, edgecolor="white")
    ax.axhspan(low, high, color="black", alpha=0.15, lw=0)
    ax.axhline(1, color="black", lw=0.8)
    ax.set(xlabel="PIT", ylabel="density", xlim=(0, 1), title=f"uniform? p = {uniformity(flat).p_value:.2g}")
    return ax


def coverage(curve: Coverage, ax: "Axes | None" = None, **style: Any) -> "Axes":
    """Observed against nominal coverage: beneath the diagonal, the model is too sure.

    Parameters
    ----------
    curve : Coverage
        What `gpcde.coverage` answered.
    ax : matplotlib Axes, default=None
        Where to draw; None: a new figure.
    **style
        Of the line, as matplotlib's plot takes it.

    Returns
    -------
    matplotlib Axes
        What was drawn on.
    """
    ax = axes(ax)
    ax.plot([0, 1], [0, 1], "k--", lw=0.8)
    ax.plot(curve.levels, curve.observed, **{**line(0, marker=True), "markersize": 3, **style})
    ax.set(xlabel="level", ylabel="how often y was inside", xlim=(0, 1), ylim=(0, 1))
    ax.set(title=f"off by {curve.error:.3f} in the mean")
    return ax


plot_pit, plot_coverage = pit, coverage
"""As they are called at the top of the package, where `pit` and `coverage` are the numbers."""
