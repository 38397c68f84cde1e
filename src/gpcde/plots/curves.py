"""How a fit went, and which model is best."""

from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..estimators.gpcde import GPCDE
from ..evaluation.compare import Comparison
from .style import axes, line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVES = {"bound": "bound, nats a row", "noise_variance": "noise variance, standard units"}

METRICS = {
    "log_score": "mean log density (right is better)",
    "crps": "CRPS (left is better)",
    "energy_score": "energy score (left is better)",
    "calibration_error": "calibration error (left is better)",
    "seconds": "seconds a fold",
}


def training(model: GPCDE, curve: str = "bound", ax: "Axes | None" = None) -> "Axes":
    """How the bound rose, or the noise fell, with the steps of training; with held-out rows, their bound too.

    Parameters
    ----------
    model : GPCDE
        Fitted.
    curve : {"bound", "noise_variance"}, default="bound"
        What to draw of its `history_`.
    ax : matplotlib Axes, default=None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        What was drawn on.
    """
    if curve not in CURVES:
        raise ValueError(f"curve must be one of {', '.join(CURVES)}, got {curve!r}")
    if not isinstance(model, GPCDE):
        raise TypeError(f"a {type(model).__name__} keeps no history of its training: GPCDE, GP and GPLVM do")
    check_is_fitted(model)
    history = model.history_
    ax = axes(ax)
    ax.plot(history["step"], history[curve], **line(0), label="training rows")
    if curve == "noise_variance":
        ax.set_yscale("log")
    elif np.isfinite(history["validation"]).any():
        ax.plot(history["step"], history["validation"], **line(1), label="held-out rows")
        ax.legend(fontsize="small")
    ax.set(xlabel="step", ylabel=CURVES[curve])
    return ax


def comparison(result: Comparison, metric: str = "log_score", ax: "Axes | None" = None) -> "Axes":
    """Models side by side in one score, the best on top: means over the folds ± standard errors.

    Parameters
    ----------
    result : Comparison
        What `gpcde.compare` answered.
    metric : {"log_score", "crps", "energy_score", "calibration_error", "seconds"}, default="log_score"
        Which score; `crps` for one output, `energy_score` for several.
    ax : matplotlib Axes, default=None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        What was drawn on.
    """
    rows = list(result)
    known = [name for name in rows[0] if name in METRICS]
    if metric not in known:
        raise ValueError(f"metric must be one of {', '.join(known)}, got {metric!r}")
    rows.sort(key=lambda row: row[metric], reverse=metric != "log_score")
    ax = axes(ax)
    values, errors = ([row[metric + end] for row in rows] for end in ("", " se"))
    ax.errorbar(values, range(len(rows)), xerr=np.nan_to_num(errors), fmt="o", color=line(0)["color"], capsize=3)
    ax.set_yticks(range(len(rows)), [row["model"] for row in rows])
    ax.set(xlabel=METRICS[metric], ylim=(-0.5, len(rows) - 0.5))
    ax.grid(axis="x", lw=0.3)
    return ax
