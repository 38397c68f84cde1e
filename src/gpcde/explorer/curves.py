"""Densities on grids, and what can be read off them: where to look, and the smallest region that holds some mass.

The region is {y : p(y) >= t}; with the mass of every point of the grid known, t is the height at which the sum over
the highest points reaches the level. Exact to the grid, which is drawn anyway, and a hundred times as quick as
`ConditionalDensity.hdr`.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..density.components import Components, Univariate
from ..density.transforms import OutputTransform
from ..model.gaussians import LOG_2PI
from ..runtime.compilation import compiled
from ..runtime.precision import scope

EVEN, CLOSE = 121, 180
"""How many points of a line are evenly spaced, and how many lie where the density is."""

SIDE = 96
"""How many points each side of a map has."""


def line(mixture: Univariate, transform: OutputTransform, low: float, high: float) -> Float[np.ndarray, " g"]:
    """Points between two ends, as many whatever the density: evenly spaced ones, and more where it has its mass."""
    reach = np.linspace(-4, 4, 17)
    places = (mixture.mean[0][:, None] + mixture.std[0][:, None] * reach).ravel()
    mass = (mixture.weight[0][:, None] * np.exp(-0.25 * reach**2)).ravel()
    order = np.argsort(places)
    reached = np.cumsum(mass[order]) / mass.sum()
    z = np.interp(np.linspace(0, 1, CLOSE), reached, places[order])
    close = transform.from_standard(z[:, None])[:, 0]
    return np.sort(np.concatenate([np.linspace(low, high, EVEN), np.clip(close, low, high)]))


def heights(mixture: Univariate, transform: OutputTransform, y: Float[np.ndarray, " g"]) -> Float[np.ndarray, "n g"]:
    """Every row's density of one output at these points, in the user's units; 0 outside the support."""
    z = transform.to_standard(y[:, None])
    inside = np.isfinite(z)
    z = np.where(inside, z, 0.0)
    with scope():
        standard = np.asarray(_pdf(*(jnp.asarray(a) for a in (*mixture, z[:, 0]))))
    return np.where(inside[:, 0], standard * np.exp(-transform.log_slope(z)[:, 0]), 0.0)


@compiled
def _pdf(
    weight: Float[Array, "#n k"], mean: Float[Array, "n k"], std: Float[Array, "n k"], z: Float[Array, " g"]
) -> Float[Array, "n g"]:
    scaled = (z[None, :, None] - mean[:, None]) / std[:, None]
    return (jnp.exp(-0.5 * (scaled**2 + LOG_2PI)) * (weight / std)[:, None]).sum(2)


def plane(
    components: Components,
    transform: OutputTransform,
    across: Float[np.ndarray, " a"],
    up: Float[np.ndarray, " b"],
) -> Float[np.ndarray, "b a"]:
    """One row's joint density of two outputs at the points of a grid."""
    z = [transform.column(j).to_standard(side[:, None])[:, 0] for j, side in enumerate((across, up))]
    inside = np.isfinite(z[1])[:, None] & np.isfinite(z[0])
    z = [np.where(np.isfinite(side), side, 0.0) for side in z]
    if components.basis is None:  # each component is a product: the sum over them one of matrices
        first, second = (_each(components, j, side) for j, side in enumerate(z))
        standard = (second * np.exp(components.log_weight[0])) @ first.T
    else:
        points = np.stack(np.meshgrid(*z), axis=-1).reshape(1, -1, 2)
        standard = np.exp(components.log_pdf(points)[0]).reshape(len(up), len(across))
    slope = [transform.column(j).log_slope(side[:, None])[:, 0] for j, side in enumerate(z)]
    return np.where(inside, standard * np.exp(-slope[1][:, None] - slope[0]), 0.0)


def _each(c: Components, column: int, z: Float[np.ndarray, " g"]) -> Float[np.ndarray, "g k"]:
    """Each component's density of one output."""
    std = np.sqrt(np.broadcast_to(c.variance, c.mean.shape)[0, :, column])
    return np.exp(-0.5 * (((z[:, None] - c.mean[0, :, column]) / std) ** 2 + LOG_2PI)) / std


def threshold(height: Float[np.ndarray, " g"], mass: Float[np.ndarray, " g"], level: float) -> float:
    """The height above which the points hold that much mass; 0 if all of them together do not."""
    order = np.argsort(-height)
    held = np.cumsum(mass[order])
    return 0.0 if held[-1] < level else float(np.interp(level, held, height[order]))


def masses(y: Float[np.ndarray, " g"], height: Float[np.ndarray, " g"]) -> Float[np.ndarray, " g"]:
    """The mass that belongs to each point of a line, by the trapezoidal rule."""
    gap = np.diff(y)
    return height * 0.5 * (np.append(gap, 0.0) + np.append(0.0, gap))


def region(y: Float[np.ndarray, " g"], height: Float[np.ndarray, " g"], level: float) -> Float[np.ndarray, "k 2"]:
    """The intervals on which a density on a line reaches its threshold, from left to right."""
    t = threshold(height, masses(y, height), level)
    above = height >= t if t > 0 else height > 0
    padded = np.pad(above, 1).astype(int)
    ends = []
    for place in np.flatnonzero(np.diff(padded)).tolist():  # between the points before and at `place`
        before, at = max(place - 1, 0), min(place, len(y) - 1)
        rise = height[at] - height[before]
        share = 0.5 if rise == 0 else (t - height[before]) / rise
        ends.append(y[before] + np.clip(share, 0, 1) * (y[at] - y[before]))
    return np.reshape(ends, (-1, 2))
