"""From a trained model to the mixtures of a `ConditionalDensity`, some rows at a time.

    prediction   one component for every node w_k of the prior, the posterior of f integrated out (`_predict`)
    one path     one component for every node, along one draw of f (`_pathwise`)

Rows are computed in blocks whose sizes are powers of two, so that few shapes are compiled and memory stays bounded.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Int

from ._bound import Model
from ._compile import compiled
from ._density import Source
from ._inputs import AnyArray, Inputs
from ._mixtures import Components
from ._pathwise import Path, follow
from ._posterior import Shared, Statistics
from ._precision import scope
from ._predict import Mixture, predict
from ._quadrature import evenly_spaced, quasi_random

T = TypeVar("T")

LINE, CLOUD = 101, 1024
"""How many components a prediction has: evenly spaced along one latent, quasi-random in more dimensions."""

PAIRS_AT_ONCE = 2**16
"""How many pairs of rows and components a block may have."""


def nodes(
    dim: int, noise: int, line: int = LINE, cloud: int = CLOUD
) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, " k"], Float[np.ndarray, "k c"] | None]:
    """Latents of the mixture, their log weights, and noise for A x where that is uncertain."""
    if not dim and not noise:
        return np.zeros((1, 0)), np.zeros(1), None
    points, log_weight = evenly_spaced(line) if dim == 1 and not noise else quasi_random(cloud, dim + noise)
    return points[:, :dim], log_weight, points[:, dim:] if noise else None


def prediction(model: Model, posterior: Statistics | Shared, inputs: Inputs, cloud: int = CLOUD) -> Source:
    """The mixtures of these inputs."""
    w, log_weight, noise = nodes(model.latents.dim, model.input_map.noise_dim, cloud=cloud)

    def source(rows: Int[np.ndarray, " b"]) -> Components:
        blocks = _in_blocks(lambda x: _mixture(model, posterior, x, w, log_weight, noise), inputs.take(rows), len(w))
        mean, variance, outside = (
            np.concatenate([np.asarray(getattr(block, name))[:count] for block, count in blocks])
            for name in ("mean", "variance", "outside")
        )
        basis = blocks[0][0].basis
        if basis is None:
            return Components(log_weight[None], mean, variance)
        return Components(log_weight[None], mean, variance, np.asarray(basis)[None, None], outside)

    return source


@compiled
def _mixture(
    model: Model,
    posterior: Statistics | Shared,
    x: Inputs,
    w: AnyArray,
    log_weight: AnyArray,
    noise: AnyArray | None,
) -> Mixture:
    return predict(model, posterior, x, w, log_weight, noise)


def along_path(model: Model, path: Path, inputs: Inputs) -> Source:
    """The mixtures of these inputs if f (and A, and P) were this one."""
    # without the spread of f the components are narrower: more of them
    w, log_weight, _ = nodes(model.latents.dim, 0, 4 * LINE - 3, 2 * CLOUD)
    noise = np.full((1, 1, 1), np.exp(float(model.log_noise_variance)))
    if path.mixing is not None:
        basis, scale, right = np.linalg.svd(np.asarray(path.mixing), full_matrices=False)

    def source(rows: Int[np.ndarray, " b"]) -> Components:
        # random features take more room than kernel rows
        blocks = _in_blocks(lambda x: follow(model, path, x, w), inputs.take(rows), 4 * len(w))
        f = np.concatenate([np.asarray(block)[:count] for block, count in blocks])
        if path.mixing is None:
            return Components(log_weight[None], f, noise)
        return Components(log_weight[None], f @ right.T * scale, noise, basis[None, None], noise[..., 0])

    return source


def _in_blocks(function: Callable[[Inputs], T], x: Inputs, components: int) -> list[tuple[T, int]]:
    """The function of a few rows at a time, with the number of rows that are real: the last block repeats one."""
    most = 1 << (max(1, PAIRS_AT_ONCE // components).bit_length() - 1)
    size = min(most, 1 << max(x.n_rows - 1, 0).bit_length())
    blocks = []
    for begin in range(0, x.n_rows, size):
        rows = np.minimum(np.arange(begin, begin + size), x.n_rows - 1)
        with scope():
            blocks.append((function(x.take(rows)), min(size, x.n_rows - begin)))
    return blocks
