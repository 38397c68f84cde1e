"""Surfaces: functions of inputs and latents that cost a network of x once a data point, whatever the number of latents.

    g(x, w) = sum_b c_b(x) φ_b(w),     c a tanh network of x,   φ_b fixed functions of w

φ are Gaussian bumps, evenly spaced along one latent or on a grid of two, as wide as they are apart; of more latents, 1
and the latents themselves, so that w + g(x, w) is affine in w. A Gaussian prior on the weights of the network, of
variance 1 / (precision × fan-in), makes each c_b of the order of precision^(-1/2).
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..runtime.files import Stored, check_positive
from .inputs import Inputs, linear
from .networks import MLP

REACH = 3.0
"""How far out the bumps are centred."""

BUMPS = {1: 9, 2: 5}
"""Bumps along each of one or two latents."""


def bumps(w: Float[Array, "*n d"]) -> Float[Array, "*n b"]:
    """φ(w)."""
    dim = w.shape[-1]
    if dim not in BUMPS:
        return jnp.concatenate([jnp.ones((*w.shape[:-1], 1), w.dtype), w], axis=-1)
    centres = np.linspace(-REACH, REACH, BUMPS[dim])
    along = jnp.exp(-0.5 * ((w[..., None] - centres) / (centres[1] - centres[0])) ** 2)
    if dim == 1:
        return along[..., 0, :]
    return (along[..., 0, :, None] * along[..., 1, None, :]).reshape(*w.shape[:-1], -1)


class Surface(Stored):
    """g(x, w) = sum_b c_b(x) φ_b(w), with one output or several.

    Parameters
    ----------
    network : MLP
        c.
    outputs : int
        How many outputs g has.
    precision : float
        How firm the prior on the weights of the network is.
    """

    network: MLP
    outputs: int = eqx.field(static=True)
    precision: float = eqx.field(static=True)

    HIDDEN: ClassVar[tuple[int, ...]] = (32,)

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "outputs", "precision")

    @classmethod
    def create(
        cls,
        key: PRNGKeyArray,
        input_rows: int,
        latent_dim: int,
        outputs: int,
        precision: float,
        hidden: tuple[int, ...] = HIDDEN,
    ) -> "Surface":
        """Near zero, for inputs of `input_rows` dense features and category levels together.

        Parameters
        ----------
        key : PRNG key
            Of the first weights.
        input_rows : int
            The number of dense features and category levels together.
        latent_dim : int
            D_w.
        outputs : int
            How many outputs g has.
        precision : float
            How firm the prior on the weights of the network is.
        hidden : tuple of int, default=(32,)
            The widths of the hidden layers.
        """
        count = BUMPS[latent_dim] ** latent_dim if latent_dim in BUMPS else 1 + latent_dim
        network = MLP.create(key, (input_rows, *hidden, outputs * count), last_scale=0.01)
        return cls(network, outputs, precision)

    def coefficients(self, x: Inputs) -> Float[Array, "n c"]:
        """c(x): what is computed once a data point."""
        return self.network.after_first(linear(x, self.network.weights[0]))

    def entering(self, x: Inputs) -> Float[Array, "n h"]:
        """What c(x) is linear in: the inputs of the network's last layer."""
        return self.network.before_last(linear(x, self.network.weights[0]))

    def at(self, coefficients: Float[Array, "n c"], w: Float[Array, "#n k d"]) -> Float[Array, "n k o"]:
        """g, from the coefficients of each data point, at latents of its own or shared by all."""
        basis = bumps(w)
        parts = coefficients.reshape(len(coefficients), self.outputs, -1)
        if len(basis) == 1:
            return jnp.moveaxis(parts @ basis[0].T, 1, 2)
        return basis @ parts.mT

    def __call__(self, x: Inputs, w: Float[Array, "#n k d"]) -> Float[Array, "n k o"]:
        return self.at(self.coefficients(x), w)

    def penalty(self) -> Float[Array, ""]:
        """Minus the log prior of the weights, a constant apart."""
        return 0.5 * self.precision * self.network.square_norm(by_fan_in=True)
