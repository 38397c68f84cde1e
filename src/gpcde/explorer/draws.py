"""Densities drawn from what a model believes, kept for quick answers at one x after another.

The draws are those of `sample_densities`, made once. At one x most of a draw's cost are the random features at its
nodes of w; where the map leaves w as it is, they are computed once for all x (`Path.waves`).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..density.components import Components
from ..estimators.gpcde import GPCDE
from ..model.inputs import Inputs
from ..prediction.nodes import Nodes
from ..prediction.paths import Path, waves_at
from ..prediction.predictor import Mixture
from ..runtime.compilation import compiled
from ..runtime.precision import scope
from ..runtime.randomness import key_of

DRAWS, FEW_DRAWS, KEPT = 32, 12, 2**25
"""How many draws there are, how many where each takes long, and how many numbers of them may be kept in memory."""


class Draws:
    """Some draws of the density at every x.

    Parameters
    ----------
    model : GPCDE
        Trained, its kernel stationary or a product of such.

    Attributes
    ----------
    quick : bool
        Whether they can be had at every move of a slider.
    """

    def __init__(self, model: GPCDE) -> None:
        beside = model.companions_
        with scope():
            keys = [jax.random.fold_in(key_of(0), i) for i in range(DRAWS)]
            first = model.path(keys[0])
            self.nodes = first.nodes()
            size = len(self.nodes.w) * first.prior.weights.size
            self.quick = len(self.nodes.w) == 1 or (DRAWS * size <= KEPT and waves_at(first, self.nodes) is not None)
            keys = keys[: DRAWS if self.quick else FEW_DRAWS]
            others = [None if beside is None else beside.drawn(key) for key in keys]
            self.others = [other for other in others if other is not None]
            own = [key for key, other in zip(keys, others, strict=True) if other is None]
            paths = [model.path(key) for key in own]
            self.paths: Path | None = jax.tree.map(_stacked, *paths) if paths else None
            self.waves: Float[Array, "s G k L"] | None = None
            if paths and self.quick and len(self.nodes.w) > 1:  # in single precision, which is as good as features are
                self.waves = _stacked(*(np.asarray(waves_at(path, self.nodes), np.float32) for path in paths))

    def components(self, x: Inputs) -> list[Components]:
        """The densities at one x in standard units, a row for each draw: of the model, then those of others."""
        if self.paths is None:
            return [other(x) for other in self.others]
        with scope():
            drawn = jax.tree.map(np.asarray, _drawn(self.paths, self.waves, x, self.nodes))
        plain = drawn.log_weight[:, 0], drawn.mean[:, 0], drawn.variance[:, 0]
        if drawn.basis is None:
            own = Components(*plain)
        else:
            own = Components(*plain, drawn.basis[:, None], drawn.outside[:, 0])
        return [own, *(other(x) for other in self.others)]


def _stacked(*leaves: Any) -> Array:
    return jnp.asarray(np.stack(leaves))


@compiled
def _drawn(paths: Path, waves: Float[Array, "s G k L"] | None, x: Inputs, nodes: Nodes) -> Mixture:
    """p(y|x, f) at one x, of every path."""
    return jax.lax.map(lambda one: one[0].mixture(x, nodes, one[1]), (paths, waves))
