"""Where the latents of rows lie, and grids of images."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..estimators.gpcde import GPCDE
from .conditions import observed, output_name
from .style import ORDERED, axes, line

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def latent(
    model: GPCDE,
    X: Any,
    y: Any,
    values: Any = None,
    *,
    dims: tuple[int, int] = (0, 1),
    name: str | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """The latent space: the mean of q(w|x, y) of every row, coloured by values of the rows.

    Of a model with one latent, the values are drawn against it.

    Parameters
    ----------
    model : GPCDE
        Fitted, with latents.
    X : array or data frame of shape (n, d)
        Inputs.
    y : array of shape (n,) or (n, D)
        Outputs.
    values : array of shape (n,), default=None
        Numbers, or names of classes, which get markers of their own; None: the first output.
    dims : (int, int), default=(0, 1)
        Which of several latents are across and up.
    name : str, default=None
        What the values are called; None: the output's name, or none.
    ax : matplotlib Axes, default=None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        What was drawn on.
    """
    mean = np.asarray(model.infer_latent(X, y).mean)
    count = mean.shape[1]
    if not count:
        raise ValueError("the model has no latents: it is GP regression")
    if count > 1 and (len(set(dims)) != 2 or not all(0 <= dim < count for dim in dims)):
        raise ValueError(f"dims must be two different latents of 0 to {count - 1}, got {dims!r}")
    if values is None:
        values, name = observed(y, 0), name or output_name(model, 0)
    values = np.asarray(values)
    if values.shape != (len(mean),):
        raise ValueError(f"values must be a vector of {len(mean)} numbers or names, one a row, got {values.shape}")
    classes = values.dtype.kind not in "fiu"
    groups = list(dict.fromkeys(values.tolist())) if classes else []
    codes = np.array([groups.index(value) for value in values.tolist()]) if classes else values
    across, up = mean[:, dims[0] if count > 1 else 0], mean[:, dims[1]] if count > 1 else codes
    ax = axes(ax)
    if classes:
        for i, group in enumerate(groups):
            chosen, style = codes == i, line(i, marker=True)
            ax.scatter(across[chosen], up[chosen], s=14, color=style["color"], marker=style["marker"], label=str(group))
        ax.legend(title=name, fontsize="small")
    else:
        dots = ax.scatter(across, up, s=14, c=values, cmap=ORDERED, linewidths=0)
        if count > 1:
            ax.figure.colorbar(dots, ax=ax, label=name or "")
    ax.set(xlabel=f"w{dims[0]}" if count > 1 else "w", ylabel=f"w{dims[1]}" if count > 1 else name or "")
    if classes and count == 1:
        ax.set_yticks(range(len(groups)), [str(group) for group in groups])
    return ax


def images(
    pictures: Any,
    columns: int | None = None,
    shape: tuple[int, int] | None = None,
    ax: "Axes | None" = None,
    **style: Any,
) -> "Axes":
    """Images side by side, row by row: ink is dark.

    Parameters
    ----------
    pictures : array of shape (n, h, w) or (n, h w)
        The images.
    columns : int, default=None
        How many stand side by side; None: as many as there are rows of them, or so.
    shape : (int, int), default=None
        h and w of flat images; None: they are squares.
    ax : matplotlib Axes, default=None
        Where to draw; None: a new figure.
    **style
        As matplotlib's imshow takes it: `cmap`, `vmin`, `vmax`.

    Returns
    -------
    matplotlib Axes
        What was drawn on.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import plots
    >>> ax = plots.images(np.eye(4).reshape(4, 2, 2), columns=4)
    >>> ax.get_images()[0].get_array().shape
    (2, 11)
    """
    array = np.asarray(pictures, float)
    if array.ndim == 2:
        side = math.isqrt(array.shape[1])
        high, wide = shape or (side, side)
        if high * wide != array.shape[1]:
            raise ValueError(f"images of {array.shape[1]} pixels are no {high} × {wide}: say which shape they have")
        array = array.reshape(-1, high, wide)
    if array.ndim != 3 or not len(array):
        raise ValueError(f"pictures must be an array of images, n × h × w or n × h w, got shape {np.shape(pictures)}")
    count, high, wide = array.shape
    across = columns or math.ceil(math.sqrt(count))
    down = -(-count // across)
    # an empty line between images
    sheet = np.full((down * (high + 1) - 1, across * (wide + 1) - 1), np.nan)
    for i, picture in enumerate(array):
        top, left = i // across * (high + 1), i % across * (wide + 1)
        sheet[top : top + high, left : left + wide] = picture
    ax = axes(ax)
    ax.imshow(np.ma.masked_invalid(sheet), **{"cmap": "gray_r", "interpolation": "nearest", **style})
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax
