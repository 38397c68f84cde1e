"""Calibration in words, from PIT values u and HPD levels v of n rows, both uniform where a model is right.

    shift    mean(u) - 1/2          has standard deviation sqrt(1/12 n): y lies higher or lower than it should
    spread   mean((u - 1/2)²) - 1/12   has sqrt(1/180 n): densities are too narrow (above 0) or too wide

What is told of is what a test of uniformity rejects at a hundredth, shared among the tests.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ..evaluation.diagnostics import uniformity

REJECTED, CLEAR = 0.01, 3.0
"""The p-value that is told of, and the standard deviations that name a reason."""

FEW, SMALL = 200, 0.02
"""Rows that tell gross errors alone, and a distance from uniform that matters little."""


def verdict(u: Float[np.ndarray, "n D"], v: Float[np.ndarray, " n"], names: Sequence[str]) -> list[str]:
    """Sentences on whether a model can be believed, the general one first.

    Parameters
    ----------
    u : array of shape (n, D)
        PIT values of every output.
    v : array of shape (n,)
        HPD levels.
    names : sequence of str
        Of the outputs.

    Returns
    -------
    list of str
        One or several.
    """
    n, limit = len(v), REJECTED / (len(names) + 1)
    wrong = [i for i in range(len(names)) if uniformity(u[:, i]).p_value < limit]
    joint = uniformity(v).p_value < limit
    if not wrong and not joint:
        few = " That is few: only gross errors would show." if n < FEW else ""
        return [f"Calibrated, as far as {n} rows can tell.{few}"]
    reasons = [_reason(u[:, i], names[i]) for i in wrong]
    if joint and not wrong:
        narrow = v.mean() > 0.5
        reasons = [
            f"Regions of highest density are too {'small' if narrow else 'large'}: those of 90 % hold y in "
            f"{100 * (v <= 0.9).mean():.0f} % of the rows. Intervals are right, so it is the shape of the density"
            + (", or how the outputs go together." if len(names) > 1 else ".")
        ]
    largest = max(uniformity(values).statistic for values in (*u.T, v))
    size = (
        f"Not quite calibrated, but nearly: probabilities are off by {largest:.2f} at most."
        if largest < SMALL
        else f"Not calibrated: probabilities are off by up to {largest:.2f}."
    )
    return [size, *reasons]


def _reason(u: Float[np.ndarray, " n"], name: str) -> str:
    """What is wrong with the density of one output."""
    n, apart = len(u), u - 0.5
    shift, spread = apart.mean() * np.sqrt(12 * n), ((apart**2).mean() - 1 / 12) * np.sqrt(180 * n)
    if abs(spread) > max(CLEAR, abs(shift)):
        inside = 100 * (np.abs(apart) <= 0.45).mean()
        width = "narrow, the model is too sure" if spread > 0 else "wide, the model is not sure enough"
        return f"The densities of {name} are too {width}: 90 % intervals hold {inside:.0f} % of the rows."
    if abs(shift) > CLEAR:
        where = "higher" if shift > 0 else "lower"
        return (
            f"{name} lies {where} than the model says: {100 * (apart > 0).mean():.0f} % of the rows above its median."
        )
    return f"The densities of {name} have the wrong shape, though neither shifted nor too narrow or wide: plot the PIT."
