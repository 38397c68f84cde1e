"""What is uncertain of noise and prior of w: the networks of their surfaces, which training brings to a point.

    W ~ N(Ŵ, (A ⊗ B + λ I)⁻¹)      A = 1/N sum_n φ_n φ_nᵀ      B = sum_n g_n g_nᵀ      g_n = ∂ log p(y_n|x_n) / ∂ c_n

W is the last layer of a surface's network with its bias, c_n = Wᵀ φ_n its coefficients, φ_n what enters that layer and
a 1, and λ the precision of the prior, of the bias too: Laplace's approximation, the curvature by Fisher's information
of the rows and in Kronecker's form. Without it a band of drawn densities tells of f alone, and is too narrow.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..inference.bound import Batch
from ..inference.posterior import VariationalPosterior
from ..model.model import Model
from ..model.surfaces import Surface
from ..runtime.blocks import in_blocks
from ..runtime.compilation import compiled
from ..runtime.files import check_fields, register
from ..runtime.precision import scope
from ..runtime.randomness import entropy
from .predictor import Predictor

MOST_ROWS, ROWS_AT_ONCE = 1024, 128
"""How many rows tell of the curvature, evenly spaced among all, and how many at a time: one program for all numbers."""


@register
class Curvature(NamedTuple):
    """A and B of one surface; or, of several networks at once, one of each.

    Parameters
    ----------
    entering : array of shape (h, h)
        A.
    slopes : array of shape (c, c)
        B.
    """

    entering: Float[Array | np.ndarray, "*e h h"]
    slopes: Float[Array | np.ndarray, "*e c c"]

    @classmethod
    def summed(
        cls, entering: Float[Array, "*e n h"], slopes: Float[Array, "*e n c"], weight: Float[Array, " n"]
    ) -> "Curvature":
        """Of some rows: the sums of φ φᵀ and g gᵀ, each as often as its row counts; to be compiled."""
        entering = jnp.concatenate([entering, jnp.ones_like(entering[..., :1])], axis=-1)
        return cls(*((weight[:, None] * a).mT @ a for a in (entering, slopes)))

    def check_values(self) -> None:
        """Raise where a file holds what cannot be."""
        check_fields(self)
        if any(a.ndim != 2 or len(a) != a.shape[1] for a in self):
            raise ValueError("a curvature is made of two square matrices")

    def change(self, rng: np.random.Generator, precision: float) -> Float[np.ndarray, "h c"]:
        """A draw of W - Ŵ, for λ = `precision`."""
        (known, left), (steep, right) = (np.linalg.eigh(np.asarray(a, float)) for a in self)
        total = np.maximum(known, 0)[:, None] * np.maximum(steep, 0) + precision
        draw = rng.standard_normal(total.shape)
        return left @ (left.T @ draw @ right / np.sqrt(total)) @ right.T  # whatever signs eigenvectors have


@register
class Laplace(NamedTuple):
    """What is uncertain of the surfaces of a model.

    Parameters
    ----------
    curvatures : tuple of Curvature
        Of each surface (`surfaces`).
    """

    curvatures: tuple[Curvature, ...]

    def check_values(self) -> None:
        """Raise where a file holds what cannot be."""
        check_fields(self)

    @classmethod
    def of(cls, model: Model, posterior: VariationalPosterior, rows: Batch, total: float) -> "Laplace | None":
        """Of a trained model; None where it has no surfaces, or their slopes are not finite.

        Parameters
        ----------
        model : Model
            The trained model.
        posterior : VariationalPosterior
            Its q(u).
        rows : Batch
            Rows it was trained on, or some of them, if they are many.
        total : float
            What all that it was trained on count.
        """
        if not surfaces(model):
            return None
        with scope():
            predictor = Predictor.create(model, posterior)
        means = weighted_means(partial(_curvatures, predictor), rows, predictor.rows_at_once())
        return None if means is None else cls(tuple(one._replace(slopes=total * one.slopes) for one in means))

    def joined(self, more: "Laplace", share: float) -> "Laplace":
        """That of the rows of both, of which `share` are those of this one."""

        def both(one: Curvature, other: Curvature) -> Curvature:
            return Curvature(share * one.entering + (1 - share) * other.entering, one.slopes + other.slopes)

        return Laplace(tuple(map(both, self.curvatures, more.curvatures)))

    def check_fits(self, model: Model) -> None:
        """Raise where it is not one of this model's surfaces."""
        sizes = [(len(weight) + 1, weight.shape[1]) for weight, _ in last_layers(model)]
        if sizes != [tuple(len(a) for a in one) for one in self.curvatures]:
            raise ValueError("its curvatures do not fit the surfaces of its model")

    def drawn(self, key: PRNGKeyArray, model: Model) -> Model:
        """The model with the last layer of each of its surfaces drawn."""
        rng, layers = np.random.default_rng([*entropy(key), 2]), []
        for one, (weight, bias), curvature in zip(surfaces(model), last_layers(model), self.curvatures, strict=True):
            change = curvature.change(rng, one.precision * len(weight)).astype(weight.dtype)
            layers += [np.asarray(weight) + change[:-1], np.asarray(bias) + change[-1]]
        return eqx.tree_at(lambda m: [array for layer in last_layers(m) for array in layer], model, layers)


def weighted_means(sums: Callable[[Any], Any], rows: Any, most: int = ROWS_AT_ONCE) -> Any:
    """The means over rows of what a compiled function sums, by their `weight`; None where they are not finite.

    Some rows tell where they are many, and at most `most` of them are looked at together.
    """
    every = -(-len(rows.weight) // MOST_ROWS)
    rows = jax.tree.map(lambda a: np.asarray(a)[::every], rows)
    rows, parts = rows._replace(weight=rows.weight / rows.weight.sum()), []
    with scope():
        for block, count in in_blocks(rows, min(ROWS_AT_ONCE, most)):
            real = np.where(np.arange(len(block.weight)) < count, block.weight, 0)
            parts.append(sums(block._replace(weight=real)))
    means = jax.tree.map(lambda *same: np.sum(same, axis=0), *parts)
    return means if all(np.isfinite(a).all() for a in jax.tree.leaves(means)) else None


def surfaces(model: Any) -> tuple[Surface, ...]:
    """Those of the prior of w and of the likelihood of a model whose networks have more than one layer."""
    every = (*model.prior.surfaces, *model.likelihood.surfaces)
    return tuple(one for one in every if len(one.network.weights) > 1)


def last_layers(model: Any) -> Any:
    """Weights and biases of the last layer of each; of a model, or of what stands for it where its leaves are named."""
    return [(one.network.weights[-1], one.network.biases[-1]) for one in surfaces(model)]


@compiled
def _curvatures(predictor: Predictor, rows: Batch) -> list[Curvature]:
    """The sums over some rows."""

    def biases(model: Any) -> Any:
        return [bias for _, bias in last_layers(model)]

    def log_densities(changed: list[Array]) -> Float[Array, " n"]:
        other = eqx.tree_at(lambda p: biases(p.model), predictor, changed)
        return other.at_nodes(rows.x).log_density(rows.y)

    slopes, x = jax.jacfwd(log_densities)(biases(predictor.model)), predictor.model.cast(rows.x)
    every = zip(surfaces(predictor.model), slopes, strict=True)
    return [Curvature.summed(one.entering(x), slope, jnp.asarray(rows.weight)) for one, slope in every]
