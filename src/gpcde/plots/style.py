"""What all pictures share: where they are drawn, and colours that can be told apart in grey and by the colour-blind."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CMAP = "Blues"
"""For densities: nothing is white, and more is darker."""

ORDERED = "cividis"
"""For the values of points, which must all be seen."""

LINES: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    {"color": "#009E73", "linestyle": "-.", "marker": "^"},
    {"color": "#CC79A7", "linestyle": ":", "marker": "D"},
    {"color": "#000000", "linestyle": (0, (6, 1, 1, 1, 1, 1)), "marker": "v"},
    {"color": "#E69F00", "linestyle": (0, (8, 2)), "marker": "P"},
)
"""One after another: colours that the colour-blind tell apart (Okabe and Ito), each with a line style and a marker."""


def line(number: int, marker: bool = False) -> dict[str, Any]:
    """Colour and line style of one of several lines; with its marker, where that is asked for."""
    style = LINES[number % len(LINES)]
    return style if marker else {name: value for name, value in style.items() if name != "marker"}


def axes(ax: "Axes | None") -> "Axes":
    """The Axes given, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'gpcde[plot]'") from error
    return plt.subplots(layout="constrained")[1]


def heat(
    ax: "Axes",
    across: Float[np.ndarray, " a"],
    up: Float[np.ndarray, " b"],
    density: Float[np.ndarray, "b a"],
    colorbar: bool,
    **style: Any,
) -> None:
    """A density as shades, on a root scale: tails and small modes are seen beside high peaks."""
    from matplotlib.colors import PowerNorm

    if "norm" not in style:
        top = style.pop("vmax", None)
        # where the density is a spike at some x, all else would be white
        top = float(np.quantile(density.max(0), 0.95)) if top is None else top
        style["norm"] = PowerNorm(0.5, vmin=0, vmax=top)
    mesh = ax.pcolormesh(across, up, density, **{"cmap": CMAP, "shading": "nearest", "rasterized": True, **style})
    ax.set_facecolor(mesh.cmap(0.0))  # beyond the grid there is next to nothing
    if colorbar:
        beyond = "max" if density.max() > mesh.norm.vmax else "neither"
        ax.figure.colorbar(mesh, ax=ax, label="density", extend=beyond)


def dots(ax: "Axes", x: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> None:
    """Data, fainter the less it counts; what would not be seen is left out."""
    weight = np.ones(len(x)) if weight is None else weight
    seen = weight > 0.02
    # so many points that they hide each other are drawn smaller
    size = float(np.clip(3000 / max(seen.sum(), 1), 2, 12))
    alpha: Any = 0.6 * weight[seen]  # a number a point, which matplotlib takes but does not say
    ax.scatter(x[seen], y[seen], s=size, c="black", alpha=alpha, linewidths=0, zorder=3)
