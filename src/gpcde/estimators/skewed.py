"""An output that is skewed: u = asinh((y - c) / s) is learnt in place of y, where the rows ask for it.

    log p(y) = log p(u) - log(s cosh u)        u = log(2 (y - c) / s) far above c, (y - c) / s near it

In u, noise that grows with y has one size, and effects that multiply add up, so that few rows say more; and there is no
end to u beyond which y cannot lie. c is the least, the median or the greatest of y. That noise is not Gaussian is no
reason to bend y: latents are for that. So u is asked for only where regression of u is likelier than that of y by its
evidence, and than what the nearest rows, each left out in turn, say of y as it is.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from ..density.transforms import OutputTransform
from ..inference.start import ENOUGH as SOME
from ..inference.training import State
from ..model.likelihood import known_noise
from ..prediction.predictor import Predictor
from .base import Rows
from .kde import likeliest
from .neighbours import ENOUGH

WIDTHS = (1.0, 0.3, 0.1, 0.03)
"""The widths s that are tried, in standard deviations of y."""

PROMISING, GAIN = 0.1, 0.03
"""Nats a row that u must gain by the errors of regression of y, for it to be tried at all; and, tried, in truth."""


def bent_units(
    rows: Rows,
    units: OutputTransform,
    levels: tuple[int, ...],
    seed: int,
    plain: State,
    regression: Callable[[Rows], State],
    evidence: Callable[[Rows, State], float],
) -> tuple[OutputTransform, State] | None:
    """The units of u, and regression of it, where the rows ask for it; else None.

    Parameters
    ----------
    rows : Rows
        Of one output, in standard units.
    units : OutputTransform
        These units, y less a number and divided by one.
    levels, seed
        Of categories, and of what is random.
    plain : State
        The regression of the rows.
    regression, evidence
        What makes the regression of rows in other units, and the bound a row of such a regression.
    """
    present = rows.take(np.flatnonzero(rows.weight > 0))
    centre, promise = _promising(present.take(slice(SOME)), plain)
    if promise < PROMISING:
        return None
    near = likeliest(np.random.RandomState(seed), present.z, present.x, levels, present.weight, ENOUGH)[1]
    least = max(near, evidence(rows, plain)) + GAIN
    best: tuple[OutputTransform, State] | None = None
    before = -np.inf
    for width in WIDTHS:
        other = units.bent(centre, width, rows.z, rows.weight)
        there = rows.in_units(units, other)
        state = regression(there)
        slope = np.average(other.log_slope(there.z)[:, 0], weights=rows.weight) - np.log(units.scale[0])
        value = evidence(there, state) - slope
        if value < before:
            break
        before = value
        if value > least:
            best, least = (other, state), value
    return best


def _promising(rows: Rows, plain: State) -> tuple[float, float]:
    """The centre by which regression of u would gain most, its mean being that of y; and how many nats a row."""
    mean = rows.z[:, 0] - _left_out_errors(rows, plain)

    def gain(centre: float, width: float) -> float:
        one, two = (np.arcsinh((a - centre) / width) for a in (rows.z[:, 0], mean))
        slope = np.log(width) + np.logaddexp(one, -one) - np.log(2)
        return -0.5 * np.log(np.average((one - two) ** 2, weights=rows.weight)) - np.average(slope, weights=rows.weight)

    straight = -0.5 * np.log(np.average((rows.z[:, 0] - mean) ** 2, weights=rows.weight))
    ends = (float(f(rows.z)) for f in (np.min, np.median, np.max))
    promise, centre = max((gain(centre, width) - straight, centre) for centre in ends for width in WIDTHS)
    return centre, promise


def _left_out_errors(rows: Rows, plain: State) -> Float[np.ndarray, " n"]:
    """What regression is wrong by about each row, if it had not seen it: (z - μ) / (1 - v / σ²), v the variance of f."""
    told = Predictor.create(plain.model, plain.posterior).components(rows.x)
    noise = known_noise(plain.model.likelihood)
    leverage = np.clip(np.broadcast_to(told.variance, told.mean.shape)[:, 0, 0] / noise - 1, 0, 0.95)
    return (rows.z - told.mean[:, 0])[:, 0] / (1 - leverage)
