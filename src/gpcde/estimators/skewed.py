"""Columns that are skewed: u = asinh((y - c) / s) in place of y, and of columns of X, where the rows ask for it.

    log p(y) = log p(u) - log(s cosh u)        u = log(2 (y - c) / s) far above c, (y - c) / s near it

In u, noise that grows with y has one size, and effects that multiply add up, so that few rows say more; and there is no
end to u beyond which y cannot lie. c is the least, the median or the greatest of y. That noise is not Gaussian is no
reason to bend y: latents are for that. So u is asked for only where regression of u is likelier than that of y by its
evidence, and than what the nearest rows, each left out in turn, say of y as it is.

A column of X that is skewed has most rows at one end, where a function of one lengthscale is too stiff, or at the
other too loose. c is its least or greatest value, and s takes the skewness away; all such columns are bent, or none, as
the evidence of regression has it, less what as many numbers cost by Schwarz's criterion.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from ..density.transforms import OutputTransform
from ..inference.start import ENOUGH as SOME
from ..inference.training import State
from ..model.likelihood import known_noise
from ..prediction.nodes import Nodes
from ..prediction.predictor import Predictor
from .base import Rows
from .kde import likeliest
from .neighbours import ENOUGH
from .tables import Bends

WIDTHS = (1.0, 0.3, 0.1, 0.03)
"""The widths s that are tried, in standard deviations of y."""

PROMISING, GAIN = 0.1, 0.03
"""Nats a row that u must gain by the errors of regression of y, for it to be tried at all; and, tried, in truth."""

LEAST = 1e-9
"""Errors of less than this, in standard units, are rounding."""

SKEWED, DISTINCT = 1.0, 10
"""The skewness from which on a column of X may be bent, and how many distinct values it must have more than."""

NARROWEST, WIDEST, HALVINGS = 0.01, 30.0, 40
"""Between which widths, in standard deviations, one is looked for that takes a column's skewness away."""


def bent_inputs(
    rows: Rows, plain: State, regression: Callable[[Rows], State], evidence: Callable[[Rows, State], float]
) -> tuple[Bends, State] | None:
    """How columns of X are bent, and regression then, where the rows ask for it; else None.

    Parameters
    ----------
    rows : Rows
        In standard units.
    plain, regression, evidence
        As for `bent_units`.
    """
    some = rows.present.take(slice(SOME))
    found = [(j, *_straight(z, some.weight)) for j, z in enumerate(some.x.dense.T) if _is_skewed(z, some.weight)]
    if not found:
        return None
    place, centre, width = (np.array(a) for a in zip(*found, strict=True))
    bends = Bends.of(place, centre, width, np.asarray(rows.x.dense), rows.weight)
    there = rows.bent(bends)
    state = regression(there)
    price = 0.5 * len(found) * np.log(some.total) / some.total  # as Schwarz's criterion has it
    return (bends, state) if evidence(there, state) > evidence(rows, plain) + max(GAIN, price) else None


def _skewness(z: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"]) -> float:
    """The third moment in standard deviations."""
    apart = z - np.average(z, weights=weight)
    return float(np.average(apart**3, weights=weight) / np.average(apart**2, weights=weight) ** 1.5)


def _is_skewed(z: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"]) -> bool:
    return len(np.unique(z)) > DISTINCT and abs(_skewness(z, weight)) > SKEWED


def _straight(z: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """The centre and width of the asinh of a column that is not skewed, or as little as it can be."""
    right = _skewness(z, weight) > 0
    centre, low, high = float(z.min() if right else z.max()), np.log(NARROWEST), np.log(WIDEST)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        left = _skewness(np.arcsinh((z - centre) / np.exp(middle)), weight)
        low, high = (low, middle) if (left > 0) == right else (middle, high)
    return centre, float(np.exp(high))


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
    present = rows.present
    centre, promise = _promising(present.take(slice(SOME)), plain)
    if promise < PROMISING:
        return None
    tried: list[tuple[float, OutputTransform, State]] = []
    for width in WIDTHS:
        other = units.bent(centre, width, rows.z, rows.weight)
        there = rows.in_units(units, other)
        state = regression(there)
        slope = np.average(other.log_slope(there.z)[:, 0], weights=rows.weight) - np.log(units.scale[0])
        tried.append((evidence(there, state) - slope, other, state))
        if len(tried) > 1 and tried[-1][0] < tried[-2][0]:
            break
    value, other, state = max(tried, key=lambda one: one[0])
    if value <= evidence(rows, plain) + GAIN:
        return None
    near = likeliest(np.random.RandomState(seed), present.z, present.x, levels, present.weight, ENOUGH)[1]
    return (other, state) if value > near + GAIN else None


def _promising(rows: Rows, plain: State) -> tuple[float, float]:
    """The centre by which regression of u would gain most, its mean being that of y; and how many nats a row."""
    mean = rows.z[:, 0] - _left_out_errors(rows, plain)

    def average(a: Float[np.ndarray, " n"]) -> float:
        return float(np.average(a, weights=rows.weight))

    def sharpness(one: Float[np.ndarray, " n"], two: Float[np.ndarray, " n"]) -> float:
        return -0.5 * np.log(max(average((one - two) ** 2), LEAST**2))

    def gain(centre: float, width: float) -> float:
        one, two = (np.arcsinh((a - centre) / width) for a in (rows.z[:, 0], mean))
        return (
            sharpness(one, two) - average(np.log(0.5 * width) + np.logaddexp(one, -one)) - sharpness(rows.z[:, 0], mean)
        )

    ends = (float(f(rows.z)) for f in (np.min, np.median, np.max))
    promise, centre = max((gain(centre, width), centre) for centre in ends for width in WIDTHS)
    return centre, promise


def _left_out_errors(rows: Rows, plain: State) -> Float[np.ndarray, " n"]:
    """What regression is wrong by about each row, had it not seen it: (z - μ) / (1 - v / σ²), v the variance of f.

    An uncertain A is as it is on average.
    """
    draws = plain.model.input_map.draw_dim
    middle = Nodes(np.zeros((1, 0)), np.zeros(1), np.zeros((1, draws)) if draws else None)
    told = Predictor.create(plain.model, plain.posterior, middle).components(rows.x)
    noise = known_noise(plain.model.likelihood)
    leverage = np.clip(np.broadcast_to(told.variance, told.mean.shape)[:, 0, 0] / noise - 1, 0, 0.95)
    return (rows.z - told.mean[:, 0])[:, 0] / (1 - leverage)
