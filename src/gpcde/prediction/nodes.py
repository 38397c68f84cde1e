"""Which latents a prediction is a mixture over, and their weights under N(0, I)."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..model.inputs import AnyArray
from ..model.model import Model
from ..model.quadrature import evenly_spaced, quasi_random

LINE, CLOUD = 101, 1024
"""How many components a prediction has: evenly spaced along one latent, quasi-random in more dimensions."""


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
    def for_model(cls, model: Model, line: int = LINE, cloud: int = CLOUD, uncertain: bool = True) -> "Nodes":
        """Enough for this model.

        Parameters
        ----------
        model : Model
            The model.
        line : int, default=101
            How many, evenly spaced, along one latent.
        cloud : int, default=1024
            How many, quasi-random, in more dimensions; a power of two.
        uncertain : bool, default=True
            Whether A is drawn where it is uncertain, or taken as it is.
        """
        dim, width = model.latents.dim, model.input_map.draw_dim if uncertain else 0
        if not dim and not width:
            return cls(np.zeros((1, 0)), np.zeros(1))
        points, log_weight = evenly_spaced(line) if dim == 1 and not width else quasi_random(cloud, dim + width)
        return cls(points[:, :dim], log_weight, points[:, dim:] if width else None)
