"""q(w|x, y): which latent a data point came from.

free-form   q(w) ∝ exp(E_q(f) log p(y|x, w, f)) p(w|x), on nodes
Gaussian    N(μ, Σ), from the recognition network, or by climbing the bound with everything else held fixed
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from ..inference.bound import evidence
from ..inference.data import whole
from ..inference.posterior import VariationalPosterior
from ..model.inputs import AnyArray, Inputs
from ..model.latents import LatentPosterior
from ..model.model import Model
from ..runtime.blocks import by_blocks
from ..runtime.compilation import compiled
from ..runtime.precision import scope

ROWS_AT_ONCE = 1024


def infer(model: Model, posterior: VariationalPosterior, x: Inputs, y: Float[np.ndarray, "n D"]) -> LatentPosterior:
    """q(w_n) of new data points, given the trained model.

    Parameters
    ----------
    model : Model
        The trained model.
    posterior : VariationalPosterior
        Its q(u).
    x : Inputs
        The inputs.
    y : array of shape (n, D_y)
        The outputs.

    Returns
    -------
    LatentPosterior
        A row for each data point.
    """
    with scope():
        nodes = None

        def infer_block(*part: Any) -> LatentPosterior:
            nonlocal nodes
            answer = _infer(model, posterior, *part)
            nodes = answer.nodes  # the same for all rows
            return answer._replace(nodes=None)

        joined = by_blocks(infer_block, (x, y), ROWS_AT_ONCE)
    return joined._replace(nodes=None if nodes is None else np.asarray(nodes))


@compiled
def _infer(model: Model, posterior: VariationalPosterior, x: Inputs, y: Float[AnyArray, "n D"]) -> LatentPosterior:
    return model.latents.infer(evidence(model, posterior, whole(x, y)))
