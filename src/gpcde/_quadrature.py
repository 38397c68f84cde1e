"""Gauss–Hermite nodes for the prior p(w) = N(0, I):   ∫ g(w) p(w) dw ≈ sum_q exp(log_weight_q) g(node_q)."""

import numpy as np
from jaxtyping import Float
from scipy.special import roots_hermitenorm


def gauss_hermite(
    points: int, dim: int = 1, drop: float = 1e-16
) -> tuple[Float[np.ndarray, "q d"], Float[np.ndarray, " q"]]:
    """Nodes and log weights of the rule with `points` nodes a dimension, in one or two dimensions.

    Nodes whose weight is not above `drop` are left out (of 100 in one dimension some 50 stay); 0 keeps all
    whose weight is a positive number.
    """
    if dim not in (1, 2):
        raise ValueError(
            f"free-form q(w) is computed by quadrature, in one or two latent dimensions, not in {dim}; "
            "for more, use a Gaussian q(w): amortised by a recognition network, or one for each data point"
        )
    if points < 1:
        raise ValueError(f"gauss_hermite: points must be at least 1, got {points}")
    nodes, weights = roots_hermitenorm(points)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(*[nodes] * dim, indexing="ij"), -1).reshape(-1, dim)
    weight = np.prod(np.stack(np.meshgrid(*[weights] * dim, indexing="ij"), -1).reshape(-1, dim), axis=1)
    keep = weight > drop
    return grid[keep], np.log(weight[keep])
