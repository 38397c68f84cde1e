"""Quadrature for the prior p(w) = N(0, I):   ∫ g(w) p(w) dw ≈ sum_q exp(log_weight_q) g(node_q).

Gauss–Hermite is exact for polynomials, but its nodes reach far out; where g changes quickly (small noise), evenly
spaced nodes (the trapezoidal rule, whose error falls exponentially too) are closer together for the same number.
"""

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri, roots_hermitenorm


def gauss_hermite(
    points: int, dim: int = 1, drop: float = 1e-16
) -> tuple[Float[np.ndarray, "q d"], Float[np.ndarray, " q"]]:
    """Nodes and log weights of the rule with `points` nodes a dimension, in one or two dimensions.

    Parameters
    ----------
    points : int
        Nodes a dimension.
    dim : {1, 2}, default=1
        The number of dimensions.
    drop : float, default=1e-16
        Nodes whose weight is not above this are left out (of 100 in one dimension some 50 stay); 0 keeps all whose
        weight is a positive number.

    Returns
    -------
    nodes : array of shape (q, dim)
        The nodes that stay.
    log_weights : array of shape (q,)
        The logarithms of their weights.
    """
    nodes, weights = roots_hermitenorm(_checked(points, dim))
    return _grid(nodes, weights, dim, drop)


def evenly_spaced(
    points: int, dim: int = 1, reach: float = 5.0
) -> tuple[Float[np.ndarray, "q d"], Float[np.ndarray, " q"]]:
    """Nodes and log weights of the trapezoidal rule on [-reach, reach], `points` nodes a dimension.

    Parameters
    ----------
    points : int
        Nodes a dimension.
    dim : {1, 2}, default=1
        The number of dimensions.
    reach : float, default=5.0
        Where the outermost nodes are.

    Returns
    -------
    nodes : array of shape (q, dim)
        The nodes.
    log_weights : array of shape (q,)
        The logarithms of their weights, which sum to one.
    """
    nodes = np.linspace(-reach, reach, _checked(points, dim)) if points > 1 else np.zeros(_checked(points, dim))
    return _grid(nodes, np.exp(-0.5 * nodes**2), dim, 0.0)


def _checked(points: int, dim: int) -> int:
    if dim not in (1, 2):
        raise ValueError(
            f"free-form q(w) is computed by quadrature, in one or two latent dimensions, not in {dim}; "
            "for more, use a Gaussian q(w): amortised by a recognition network, or one for each data point"
        )
    if points < 1:
        raise ValueError(f"quadrature: points must be at least 1, got {points}")
    return points


def _grid(
    nodes: np.ndarray, weights: np.ndarray, dim: int, drop: float
) -> tuple[Float[np.ndarray, "q d"], Float[np.ndarray, " q"]]:
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(*[nodes] * dim, indexing="ij"), -1).reshape(-1, dim)
    weight = np.prod(np.stack(np.meshgrid(*[weights] * dim, indexing="ij"), -1).reshape(-1, dim), axis=1)
    keep = weight > drop
    return grid[keep], np.log(weight[keep])


def quasi_random(points: int, dim: int) -> tuple[Float[np.ndarray, "q d"], Float[np.ndarray, " q"]]:
    """`points` (a power of two) quasi-random draws of N(0, I) in any dimension, all of one weight.

    Parameters
    ----------
    points : int
        How many, a power of two.
    dim : int
        The number of dimensions.

    Returns
    -------
    nodes : array of shape (points, dim)
        The draws.
    log_weights : array of shape (points,)
        -log points, for each.
    """
    from scipy.stats import qmc

    uniform = qmc.Sobol(dim, rng=0).random(points)
    return ndtri(np.clip(uniform, 1e-12, 1 - 1e-12)), np.full(points, -np.log(points))
