"""Mixtures of one output for very many rows: the same answers as `Univariate` gives, by compiled programs.

XLA's complementary error function and exponential take a fifth of the time of SciPy's, and a program's loops write no
array bigger than one number for each component. Few rows are left to NumPy: nothing has to be compiled for them.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import ndtri

from ..model.gaussians import LOG_2PI
from ..runtime.blocks import by_blocks
from ..runtime.compilation import compiled
from ..runtime.precision import scope
from .components import Univariate
from .roots import TINY

MANY = 2**21
"""From so many numbers on, counting one for each row, component and answer, programs are worth it."""

AT_ONCE = 2**17
"""How many numbers a block takes: few enough for the cache."""

ROUNDS = 14
"""Newton's steps that all rows of a block take together; the few rows that need more go on by themselves."""


def _below(z: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Φ(z), to full relative precision."""
    return 0.5 * jax.lax.erfc(z * -(0.5**0.5))


@compiled
def _cdf(
    weight: Float[Array, "n k"], mean: Float[Array, "n k"], std: Float[Array, "n k"], z: Float[Array, " n"]
) -> Float[Array, " n"]:
    return jnp.minimum((weight * _below((z[:, None] - mean) / std)).sum(1), 1.0)


@compiled
def _quantile(
    weight: Float[Array, "n k"],
    mean: Float[Array, "n k"],
    std: Float[Array, "n k"],
    level: Float[Array, " n"],
    normal: Float[Array, " n"],
) -> tuple[Float[Array, " n"], Array]:
    """As `Univariate.quantile`: Newton's steps inside brackets; and which rows have arrived."""
    upper = level > 0.5
    tail, sign = jnp.where(upper, 1 - level, level), jnp.where(upper, -1.0, 1.0)
    sharp = 1 / std

    def excess(z: Array) -> tuple[Array, Array]:
        scaled = (z[:, None] - mean) * sharp
        reached = (weight * _below(sign[:, None] * scaled)).sum(1)
        height = (weight * sharp * jnp.exp(-0.5 * (scaled**2 + LOG_2PI))).sum(1)
        return sign * jnp.log1p((reached - tail) / tail), height / reached

    def body(at: tuple[Array, ...]) -> tuple[Array, ...]:
        count, low, high, root, before, done = at
        value, slope = excess(root)
        low, high = jnp.where(value > 0, low, root), jnp.where(value > 0, root, high)
        step, size = value / slope, jnp.abs(value)
        ahead = root - step
        good = (size <= 0.5 * before) & (ahead > low) & (ahead < high)
        ahead = jnp.where(good, ahead, 0.5 * (low + high))
        close = 4e-16 * jnp.maximum(jnp.abs(low), jnp.abs(high)) + 1e-300
        settled = (size < TINY) & (jnp.abs(step) < TINY * width) & ~good  # the rest is rounding
        found = settled | (jnp.abs(ahead - root) <= close) | (high - low <= close)
        return count + 1, low, high, jnp.where(done | settled, root, ahead), size, done | found

    own = mean + std * normal[:, None]
    low = jnp.where(weight > 0, own, jnp.inf).min(1)
    high = jnp.where(weight > 0, own, -jnp.inf).max(1)
    centre = (weight * mean).sum(1)
    spread = jnp.sqrt((weight * (std**2 + (mean - centre[:, None]) ** 2)).sum(1))
    width = high - low
    root = jnp.clip(centre + spread * normal, low, high)
    never = jnp.full_like(root, jnp.inf)
    begin: tuple[Array, ...] = jnp.zeros((), int), low, high, root, never, low == high
    *_, root, _, done = jax.lax.while_loop(lambda at: (at[0] < ROUNDS) & ~at[5].all(), body, begin)
    return root, done


@compiled
def _mean_difference(
    weight: Float[Array, "n k"],
    mean: Float[Array, "n k"],
    std: Float[Array, "n k"],
    low: Float[Array, " n"],
    high: Float[Array, " n"],
    count: Int[Array, " n"],
) -> Float[Array, " n"]:
    """2 ∫ F (1 - F) dz by the trapezoidal rule, with as many points as the row that needs most."""
    points = count.max()
    apart = (high - low) / (points - 1)

    def more(i: Array, total: Array) -> Array:
        below = (weight * _below(((low + i * apart)[:, None] - mean) / std)).sum(1)
        return total + below * (1 - below)

    return 2 * apart * jax.lax.fori_loop(0, points, more, jnp.zeros_like(low))


def _run(program: Any, mixture: Univariate, *rows: np.ndarray) -> Any:
    weight = np.broadcast_to(mixture.weight, mixture.mean.shape)
    with scope():
        return by_blocks(program, (weight, mixture.mean, mixture.std, *rows), AT_ONCE // mixture.mean.shape[1])


def cdf(mixture: Univariate, z: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """P(Z <= z) of each row."""
    return _run(_cdf, mixture, z)


def quantile(mixture: Univariate, level: float) -> Float[np.ndarray, " n"]:
    """The z of each row with P(Z <= z) = level."""
    n = len(mixture.mean)
    if not 0 < level < 1:
        return np.full(n, np.inf if level > 0 else -np.inf)
    out, done = _run(_quantile, mixture, np.full(n, level), np.full(n, ndtri(level)))
    rest = np.flatnonzero(~(done & np.isfinite(out)))
    if len(rest):
        out[rest] = mixture.take(rest).quantile(np.full((len(rest), 1), level))[:, 0]
    return out


def crps(mixture: Univariate, z: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """E|Z - z| - E|Z - Z'| / 2."""
    low, high, count = mixture.grid()
    by_points = count <= 4 * mixture.mean.shape[1]  # the others are quicker by pairs
    difference = np.empty(len(z))
    order = np.flatnonzero(by_points)
    order = order[np.argsort(count[order], kind="stable")]
    if len(order):
        some = mixture.take(order)
        difference[order] = _run(_mean_difference, some, low[order], high[order], count[order])
    for rest in np.array_split(np.flatnonzero(~by_points), 1 + (~by_points).sum() // 16):
        difference[rest] = mixture.take(rest).by_pairs()
    return mixture.mean_distance(z) - 0.5 * difference
