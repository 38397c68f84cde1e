"""The convex combination of densities that scores best on rows their models have not seen.

    v = argmax sum_n log sum_m v_m p_m(y_n|x_n),     v_m ≥ 0,  sum_m v_m = 1

Expectation maximisation climbs this concave function.
"""

import numpy as np
from jaxtyping import Float

WORST = -100.0
"""No log density counts as less: a density of nothing would count for ever."""


def stacking_weights(
    log_densities: Float[np.ndarray, "n m"], weight: Float[np.ndarray, " n"] | None = None, rounds: int = 1000
) -> Float[np.ndarray, " m"]:
    """v, from the log densities that m models have of n rows, and what each row counts."""
    counts = np.ones(len(log_densities)) if weight is None else weight
    logs, counts = np.maximum(log_densities, WORST)[counts > 0], counts[counts > 0]
    densities = np.exp(logs - logs.max(axis=1, keepdims=True))  # each row's best is 1, and keeps its share from 0
    shares = np.full(logs.shape[1], 1 / logs.shape[1])
    for _ in range(rounds):
        before, shares = shares, shares * ((counts / (densities @ shares)) @ densities)
        shares = shares / shares.sum()
        if np.abs(shares - before).max() < 1e-9:
            break
    return shares
