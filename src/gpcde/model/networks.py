"""A fully connected network with tanh layers: the recognition network, and what moves the latents."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..runtime.files import Stored
from ..runtime.precision import on_device
from ..runtime.randomness import entropy


class MLP(Stored):
    """h ↦ W_k tanh(... tanh(W_1 h + b_1)) + b_k, weights stored input × output.

    Parameters
    ----------
    weights : tuple of arrays
        W_1, ..., W_k.
    biases : tuple of arrays
        b_1, ..., b_k.
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]

    def check_values(self) -> None:
        super().check_values()
        shapes, widths = [w.shape for w in self.weights], [len(b) for b in self.biases]
        ends = [shape[1] for shape in shapes]
        if not shapes or ends != widths or ends[:-1] != [shape[0] for shape in shapes[1:]]:
            raise ValueError(f"a network's layers do not fit each other: weights {shapes}, biases {widths}")

    @classmethod
    def create(cls, key: PRNGKeyArray, sizes: tuple[int, ...], last_scale: float = 1.0) -> "MLP":
        """Xavier weights and zero biases.

        Parameters
        ----------
        key : PRNG key
            Of the weights.
        sizes : tuple of int
            The widths of all layers, from the input to the output.
        last_scale : float, default=1.0
            What the last layer is multiplied by: a small number lets the output start near 0.
        """
        shapes = list(pairwise(sizes))
        rng = np.random.default_rng(entropy(key))  # NumPy's: nothing to compile
        scales = [1.0] * (len(shapes) - 1) + [last_scale]
        weights = tuple(
            on_device(scale * (2 / (i + o)) ** 0.5 * rng.standard_normal((i, o)))
            for scale, (i, o) in zip(scales, shapes, strict=True)
        )
        return cls(weights, tuple(on_device(np.zeros(o)) for _, o in shapes))

    def after_first(self, product: Float[Array, "*n h"]) -> Float[Array, "*n out"]:
        """The output, given the product W_1 h of the first layer, which the caller may know how to do cheaply."""
        if len(self.weights) == 1:
            return product + self.biases[0]
        return self.before_last(product) @ self.weights[-1] + self.biases[-1]

    def before_last(self, product: Float[Array, "*n h"]) -> Float[Array, "*n g"]:
        """What enters the last of several layers, given the product W_1 h of the first."""
        h = product + self.biases[0]
        for weight, bias in zip(self.weights[1:-1], self.biases[1:-1], strict=True):
            h = jnp.tanh(h) @ weight + bias
        return jnp.tanh(h)

    def square_norm(self, by_fan_in: bool = False) -> Float[Array, ""]:
        """The sum of the squared weights (not the biases); `by_fan_in` counts each layer as often as it has inputs."""
        return jnp.sum(jnp.stack([(len(w) if by_fan_in else 1) * jnp.sum(w**2) for w in self.weights]))
