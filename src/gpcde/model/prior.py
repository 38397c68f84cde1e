"""The prior of the latents, p(w|x).

    StandardNormal   p(w|x) = N(w; 0, I)
    TiltedNormal     p(w|x) ∝ N(w; 0, I) exp t(x, w), t a smooth function of both, under a prior

A prior is told by its logarithm over that of N(0, I). On nodes w_k with log weights ω_k of N(0, I) it is normalised
exactly:  log p_nk = ω_k + t_nk - logsumexp_k(ω_k + t_nk).
"""

import abc

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .gaussians import Gaussian
from .inputs import Inputs
from .part import Certain, Part
from .quadrature import evenly_spaced
from .surfaces import Surface

POINTS = {1: 41, 2: 17}
"""Nodes a dimension that normalise a prior of so many latents where it is asked for at draws."""


class LatentPrior(Part):
    """p(w|x)."""

    @abc.abstractmethod
    def log_ratio(self, x: Inputs, w: Float[Array, "#n k d"]) -> Float[Array, "#n #k"]:
        """log p(w_nk|x_n) - log N(w_nk; 0, I), normalised: what draws of a Gaussian q(w) need."""

    def log_weights(
        self, x: Inputs, w: Float[Array, "#n k d"], log_weight: Float[Array, "#n k"]
    ) -> Float[Array, "#n k"]:
        """The log weights of nodes under p(w|x), from those under N(0, I); they sum to one."""
        return jax.nn.log_softmax(log_weight + self.log_ratio(x, w), axis=1)

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        """Those it has learnt to a point, of which drawn densities are uncertain nevertheless."""
        return ()

    def kl(self, x: Inputs, q: Gaussian) -> Float[Array, " n"]:
        """KL[q(w_n) || p(w|x_n)], where it has a closed form."""
        raise NotImplementedError(
            f"{type(self).__name__} has no closed-form divergence from a Gaussian; "
            "use Monte Carlo draws of w instead (expectation='draws')"
        )


class StandardNormal(Certain, LatentPrior):
    """N(0, I), whatever x is."""

    def log_ratio(self, x: Inputs, w: Float[Array, "#n k d"]) -> Float[Array, "#n #k"]:
        return jnp.zeros((1, 1))

    def log_weights(
        self, x: Inputs, w: Float[Array, "#n k d"], log_weight: Float[Array, "#n k"]
    ) -> Float[Array, "#n k"]:
        return log_weight

    def kl(self, x: Inputs, q: Gaussian) -> Float[Array, " n"]:
        return q.kl()


class TiltedNormal(Certain, LatentPrior):
    """p(w|x) ∝ N(w; 0, I) exp t(x, w), t a `Surface`, in one or two latent dimensions.

    The weight of a mode then changes with x though the map of latents stays, and the bridge between two modes has none.

    Parameters
    ----------
    surface : Surface
        t, with one output.
    """

    surface: Surface

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        return (self.surface,)

    def log_ratio(self, x: Inputs, w: Float[Array, "#n k d"]) -> Float[Array, "#n #k"]:
        nodes, log_weight = evenly_spaced(POINTS[w.shape[-1]], w.shape[-1])
        coefficients = self.surface.coefficients(x)
        everywhere = self.surface.at(coefficients, jnp.asarray(nodes, w.dtype)[None])[..., 0]
        log_total = jax.nn.logsumexp(everywhere + log_weight, axis=1, keepdims=True)
        return self.surface.at(coefficients, w)[..., 0] - log_total

    def log_weights(
        self, x: Inputs, w: Float[Array, "#n k d"], log_weight: Float[Array, "#n k"]
    ) -> Float[Array, "#n k"]:
        return jax.nn.log_softmax(log_weight + self.surface(x, w)[..., 0], axis=1)

    def penalty(self) -> Float[Array, ""]:
        return self.surface.penalty()
