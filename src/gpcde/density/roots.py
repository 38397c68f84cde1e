"""Roots of many rising functions at once: Newton's steps inside brackets that always hold them."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

TINY = 1e-9
"""Where a value, and Newton's step as a part of the first bracket, are smaller and shrink no more, it is rounding."""


def rising_roots(
    function: Callable[[Int[np.ndarray, " m"], Float[np.ndarray, " m"]], tuple[np.ndarray, np.ndarray]],
    low: Float[np.ndarray, " n"],
    high: Float[np.ndarray, " n"],
    start: Float[np.ndarray, " n"] | None = None,
    rounds: int = 200,
    enough: float = 0.0,
) -> Float[np.ndarray, " n"]:
    """Where each function goes from below zero to above, between two points; to rounding.

    `function` is told which of them are asked for, and where, and answers with values and slopes. Each round halves a
    value or its bracket, so that none is stuck; those that are found are asked for no more. A value of size `enough`
    will do.
    """
    low, high, width = low.copy(), high.copy(), high - low
    root = 0.5 * (low + high) if start is None else np.clip(start, low, high)
    before = np.full(len(root), np.inf)
    some = np.arange(len(root))  # those not yet found
    for _ in range(rounds):
        if not len(some):
            break
        at = root[some]
        value, slope = function(some, at)
        low[some], high[some] = np.where(value > 0, low[some], at), np.where(value > 0, at, high[some])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = value / slope
        size, ahead = np.abs(value), at - step
        good = (size <= 0.5 * before[some]) & (ahead > low[some]) & (ahead < high[some])
        ahead = np.where(good, ahead, 0.5 * (low[some] + high[some]))
        settled = (size <= enough) | (size < TINY) & (np.abs(step) < TINY * width[some]) & ~good
        root[some] = np.where(settled, at, ahead)
        close = 4e-16 * np.maximum(np.abs(low[some]), np.abs(high[some])) + 1e-300
        before[some] = size
        some = some[~(settled | (np.abs(ahead - at) <= close) | (high[some] - low[some] <= close))]
    return root
