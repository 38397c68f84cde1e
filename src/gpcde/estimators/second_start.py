"""A second start of regression: of many inputs of which few matter, the first may find none.

With one lengthscale for all inputs to begin with, no two rows of many inputs are near each other, and the bound is flat
but for the noise, which takes up all (32 inputs, two of which matter: -1.43 nats a row, -0.18 from the second start).
The bandwidths of the nearest rows, found by leaving each row out in turn, tell which inputs matter: lengthscales in
proportion to them are where regression starts again, and the better bound goes on.
"""

from collections.abc import Callable
from math import log, pi

import numpy as np
from jaxtyping import Float

from ..inference.training import State
from ..model.likelihood import known_noise
from .base import Rows
from .kde import likeliest
from .neighbours import ENOUGH

MANY, MOST_NOISE, LEAST_GAIN = 4, 0.5, 0.1
"""From so many inputs on, regression that leaves more noise than this, in standard units, or has little more evidence
than none at all, in nats a row and output, is started again."""

NOTHING = -0.5 * (log(2 * pi) + 1)
"""The log density a row of an output, in standard units, of which nothing is explained."""

WIDER, ENDS = 3.0, (0.3, 30.0)
"""How many times the bandwidths the lengthscales are, and between which ends: a function is smoother than its rows."""


def misses(plain: State, rows: Rows, evidence: Callable[[State], float]) -> bool:
    """Whether regression explains so little that it may have missed what there is.

    It may leave little noise, and yet explain nothing: where it tells every row by itself.
    """
    if rows.x.dense.shape[1] < MANY:
        return False
    if known_noise(plain.model.likelihood) > MOST_NOISE:
        return True
    return evidence(plain) < (NOTHING + LEAST_GAIN) * rows.z.shape[1]


def by_neighbours(rows: Rows, seed: int) -> Float[np.ndarray, " d"]:
    """Lengthscales for the inputs, by the bandwidths of the nearest rows."""
    present = rows.present
    found, _, _ = likeliest(np.random.RandomState(seed), present.z, present.x, (), present.weight, ENOUGH)
    return np.clip(WIDER * np.asarray(found.x), *ENDS)
