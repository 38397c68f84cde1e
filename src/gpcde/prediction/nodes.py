"""Which latents a prediction is a mixture over, and their weights under N(0, I)."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..model.inputs import AnyArray
from ..model.latents import REACH
from ..model.model import Model
from ..model.quadrature import evenly_spaced, quasi_random

LINE, GRID, CLOUD = 101, 33, 1024
"""How many components a prediction has: evenly spaced along one latent, or along each of two; quasi-random in more
dimensions. A p(w|x) that is far from N(0, I) in places has weight where few quasi-random draws of N(0, I) are."""


class Nodes(NamedTuple):
    """Latents w_k, their log weights under N(0, I), and standard normal draws for A x where that is uncertain.

    Parameters
    ----------
    w : array of shape (k, D_w)
        The latents.
    log_weight : array of shape (k,)
        Their log weights.
    context : array of shape (k, c), default=None
        The draws for A x.
    """

    w: Float[AnyArray, "k d"]
    log_weight: Float[AnyArray, " k"]
    context: Float[AnyArray, "k c"] | None = None

    @classmethod
    def for_model(
        cls, model: Model, line: int = LINE, grid: int = GRID, cloud: int | None = None, uncertain: bool = True
    ) -> "Nodes":
        """Enough for this model.

        Parameters
        ----------
        model : Model
            The model.
        line : int, default=101
            How many, evenly spaced, along one latent.
        grid : int, default=33
            How many, evenly spaced, along each of two latents.
        cloud : int, default=None
            How many, quasi-random, a power of two, in more than two dimensions, and where A is drawn beside one; of two
            latents too, if it is given. None: 1,024.
        uncertain : bool, default=True
            Whether A is drawn where it is uncertain, or taken as it is.
        """
        dim, width = model.latents.dim, model.input_map.draw_dim if uncertain else 0
        if not dim and not width:
            return cls(np.zeros((1, 0)), np.zeros(1))
        if dim == 2 and cloud is None:
            w, log_weight = evenly_spaced(grid, dim, REACH)
            return cls(w, log_weight, _drawn_beside(len(w), width) if width else None)
        even = dim == 1 and not width
        points, log_weight = evenly_spaced(line) if even else quasi_random(cloud or CLOUD, dim + width)
        return cls(points[:, :dim], log_weight, points[:, dim:] if width else None)


def _drawn_beside(count: int, width: int) -> Float[np.ndarray, "k c"]:
    """Quasi-random draws, in an order that knows nothing of the nodes they stand beside."""
    draws, _ = quasi_random(1 << (count - 1).bit_length(), width)
    return draws[np.random.default_rng(0).permutation(len(draws))[:count]]
