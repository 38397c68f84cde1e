"""Whole functions drawn from the posterior, by pathwise conditioning, and the densities they make.

    f(h) = φ(h)ᵀ ω + k(h, Z) Lz⁻ᵀ (v - Lz⁻¹ φ(Z)ᵀ ω),     ω ~ N(0, I),   v ~ q(v),   u = Lz v

φ are random Fourier features of the prior: cosines and sines at frequencies drawn from the kernel's spectrum. One
draw of f (with its own A and P, where those are uncertain) is a function of (x, w) that can be evaluated anywhere,
and so one density p(y|x, f) = sum_k π_k N(y | P f(x, w_k), σ² I) for every x.
"""

from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ._bound import Model, cast_inputs
from ._compile import compiled
from ._density import ConditionalDensity, check_level
from ._forms import inverse_cholesky
from ._input_maps import Bend, InputMap, Project
from ._inputs import AnyArray, Inputs, Numbers
from ._kernels import RBF, Kernel, Matern32, Matern52, Product, Stationary
from ._mixing import ConjugateMixing, GaussianMixing, Identity
from ._posterior import Shared, Statistics
from ._precision import wide

FEATURES = 1024
"""Pairs of random features: the prior's own error is of the order of their number's root."""


class Path(eqx.Module):
    """One draw: of f, and of A and P where they are uncertain."""

    frequencies: Float[Array, "h F"]
    weights: Float[Array, "G L"]
    correction: Float[Array, "M L"]
    projection: Float[Array, "rows c"] | None
    mixing: Float[Array, "D L"] | None


def frequencies(key: PRNGKeyArray, kernel: Kernel, width: int, count: int) -> tuple[Float[Array, "h F"], Array]:
    """Draws from the kernel's spectrum, and its variance."""
    if isinstance(kernel, Product):
        parts = [
            frequencies(jax.random.fold_in(key, i), part, width, count)
            for i, part in enumerate((kernel.first, kernel.second))
        ]
        return sum(f for f, _ in parts), jnp.prod(jnp.stack([v for _, v in parts]))  # type: ignore[return-value]
    degrees = {RBF: None, Matern32: 3, Matern52: 5}
    if not isinstance(kernel, Stationary) or type(kernel) not in degrees:
        raise NotImplementedError(
            f"densities are drawn for stationary kernels and their products, not for {type(kernel).__name__}"
        )
    one, two = jax.random.split(key)
    normal = jax.random.normal(one, (len(kernel.dims), count))
    freedom = degrees[type(kernel)]
    if freedom is not None:  # the Matérn spectrum is a Student t
        normal = normal / jnp.sqrt(jax.random.chisquare(two, freedom, shape=(count,)) / freedom)
    drawn = normal / kernel.lengthscales[:, None]
    return jnp.zeros((width, count)).at[np.asarray(kernel.dims, int)].set(drawn), kernel.variance


def _features(h: Float[Array, "n h"], path_frequencies: Float[Array, "h F"]) -> Float[Array, "n G"]:
    angle = h @ path_frequencies
    return jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=1)


def _base(input_map: InputMap) -> InputMap:
    """The part of a map that may hold A."""
    return input_map.base if isinstance(input_map, Bend) else input_map


@compiled
def draw_path(key: PRNGKeyArray, model: Model, posterior: Statistics | Shared) -> Path:
    """A draw of everything that is uncertain."""
    keys = jax.random.split(key, 5)
    model = wide(model)
    q = posterior.solve(model.mixing, model.noise_variance) if isinstance(posterior, Statistics) else wide(posterior)
    z = model.inducing_points
    where, variance = frequencies(keys[0], model.kernel, z.shape[1], FEATURES)
    weights = jax.random.normal(keys[1], (2 * FEATURES, q.mean.shape[1])) * jnp.sqrt(variance / FEATURES)
    whitener = inverse_cholesky(model.gram())
    v = q.sample(jax.random.normal(keys[2], q.mean.shape))
    correction = whitener.T @ (v - whitener @ (_features(z, where) @ weights))
    projection, mixing = None, None
    a = _base(model.input_map)
    if isinstance(a, Project):
        projection = a.mean + jnp.exp(a.log_std) * jax.random.normal(keys[3], a.mean.shape)
    if isinstance(model.mixing, GaussianMixing):
        p = model.mixing
        mixing = p.mean + jnp.exp(p.log_std) * jax.random.normal(keys[4], p.mean.shape)
    elif isinstance(model.mixing, ConjugateMixing):
        root = jnp.linalg.cholesky(model.mixing.covariance)
        mixing = model.mixing.mean + jax.random.normal(keys[4], model.mixing.mean.shape) @ root.T
    elif not isinstance(model.mixing, Identity):
        mixing = model.mixing.apply(jnp.eye(model.mixing.shape[1])).T
    return Path(where, weights, correction, projection, mixing)


@compiled
def follow(model: Model, path: Path, x: Inputs, w: Float[AnyArray, "k d"]) -> Float[Array, "n k L"]:
    """f at every x and w, along one path."""
    model = wide(model)
    x = cast_inputs(model, x)
    input_map = model.input_map
    if path.projection is not None:  # without noise, A is its mean: here, the draw
        input_map = eqx.tree_at(lambda m: _base(m).mean, input_map, path.projection)  # type: ignore[attr-defined]
    context = input_map.context(x, jnp.zeros((x.n_rows, input_map.noise_dim)))
    h = input_map.join(context, jnp.asarray(w)[None])
    n, k, width = h.shape
    flat = h.reshape(n * k, width)
    f = _features(flat, path.frequencies) @ path.weights + model.kernel(flat, model.inducing_points) @ path.correction
    return f.reshape(n, k, -1)


class Band(NamedTuple):
    """A credible band of every row's pdf on a grid of y: pointwise, with the mean and the ends."""

    points: Float[np.ndarray, "*g"]
    lower: Float[np.ndarray, "n g"]
    mean: Float[np.ndarray, "n g"]
    upper: Float[np.ndarray, "n g"]


class DensitySamples:
    """Draws of the density itself: each a `ConditionalDensity`, one for every draw of f."""

    def __init__(self, draws: list[ConditionalDensity]) -> None:
        self._draws = draws

    def __len__(self) -> int:
        return len(self._draws)

    def __getitem__(self, number: int) -> ConditionalDensity:
        return self._draws[number]

    def __iter__(self) -> Iterator[ConditionalDensity]:
        return iter(self._draws)

    def __repr__(self) -> str:
        return f"DensitySamples({len(self)} draws of {self._draws[0]!r})"

    def marginal(self, output: int) -> "DensitySamples":
        """The draws of one output's density."""
        return DensitySamples([draw.marginal(output) for draw in self])

    def pdf_grid(self, points: Numbers) -> Float[np.ndarray, "s n g"]:
        """Every draw's density of every row, at every one of the points."""
        return np.stack([draw.pdf_grid(points) for draw in self])

    def band(self, level: float = 0.9, points: Numbers | None = None) -> Band:
        """Between which values the pdf lies, with this posterior probability, at each point of a grid."""
        check_level(level)
        if points is None:
            if self._draws[0].n_outputs > 1:
                raise ValueError("with several outputs, say at which points; or take marginal(j) first")
            ends = np.stack([draw.quantile([1e-3, 1 - 1e-3]) for draw in self]).reshape(-1)
            points = np.linspace(ends.min(), ends.max(), 201)
        heights = self.pdf_grid(points)
        lower, upper = np.quantile(heights, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
        return Band(np.asarray(points, float), lower, heights.mean(0), upper)
