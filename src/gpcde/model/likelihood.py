"""The likelihood: y = P f + N(0, s(x, w) (σ² I + τ² P Pᵀ)), s > 0 one number for all outputs.

    ConstantNoise   s = 1, τ = 0
    MixedNoise      s = 1: beside σ², noise of the Gaussian processes themselves, mixed as they are
    VaryingNoise    log s(x, w) a smooth function of both, under a prior, softly limited; τ = 0

Since s is the same for all outputs, it weighs a data point's draw and changes nothing else: the statistics of q(u) are

    G = sum_nk r_nk / s_nk a_nk a_nkᵀ        H = sum_nk r_nk / s_nk a_nk y_nᵀ

Noise τ² P Pᵀ dims P (`mixing.Dimmed`), and changes nothing else either.
"""

import abc
import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from ..runtime.compilation import compiled
from ..runtime.files import check_positive
from ..runtime.precision import on_device, scope, wide
from .gaussians import surprise
from .inputs import AnyArray, Inputs
from .mixing import Dimmed, Mixing
from .part import Certain, Part
from .surfaces import Surface


class Likelihood(Part):
    """p(y | f, x, w) = N(y | P f, s(x, w) (σ² I + τ² P Pᵀ)), τ = 0 unless a class says otherwise."""

    @property
    @abc.abstractmethod
    def noise_variance(self) -> Float[Array, ""]:
        """σ², in the widest float."""

    @abc.abstractmethod
    def log_scale(self, x: Inputs, w: Float[Array, "#n k d"]) -> Float[Array, "#n #k"]:
        """log s(x_n, w_nk), for k latents of every data point, or k latents shared by all."""

    @abc.abstractmethod
    def with_noise_variance(self, noise_variance: float) -> "Likelihood":
        """The same with this σ², where training starts; one that is not learnt stays as it is."""

    def held(self) -> "Likelihood":
        """The same with s = 1, for the first steps of training; one that has no need of it stays as it is."""
        return self

    @property
    def is_held(self) -> bool:
        """Whether it is what `held` makes of it."""
        return False

    def freed(self) -> "Likelihood":
        """The same with the s that it has learnt, or learns from now on."""
        return self

    def natural_step(self, moved: Any, slope: Any, gamma: Float[Array, ""], count: Float[Array, ""]) -> "Likelihood":
        """What Adam `moved` this noise to, but for what has a natural step of size γ, from the bound's `slope` here.

        The Fisher information of log σ² is half the `count` of all numbers y. One without such a step is as moved.
        """
        return moved

    @property
    def function_variance(self) -> Float[Array, ""]:
        """τ², the variance of the noise that each Gaussian process has of its own."""
        return jnp.zeros(())

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        """Those it has learnt to a point, of which drawn densities are uncertain nevertheless."""
        return ()

    def seen(self, mixing: Mixing) -> Mixing:
        """P as it is seen through the noise: where τ = 0, as it is."""
        return mixing

    def row_log_scale(self, x: Inputs) -> Float[Array, "#n"]:
        """log s(x_n), where it does not depend on w: for closed-form kernel expectations."""
        raise NotImplementedError(
            f"closed-form kernel expectations need noise that does not depend on w, which {type(self).__name__}'s may; "
            "use Monte Carlo draws of w instead (expectation='draws')"
        )


SPREAD = 1.5
"""The standard deviation of log σ² a priori, where a σ² is believed."""


LEAST = 1e-6
"""Where a σ² is believed, it is not less than this: for a y without noise the bound has no maximum, and on the way is
more rounding than bound."""


def _variance(log_noise_variance: Float[AnyArray, ""], believed: float | None) -> Float[Array, ""]:
    """σ²."""
    return jnp.exp(wide(log_noise_variance)) + (0.0 if believed is None else LEAST)


def _doubt(noise_variance: Float[Array, ""], believed: float | None) -> Float[Array, ""]:
    """Minus the log prior of log σ², a constant apart; 0 where nothing is believed."""
    return jnp.zeros(()) if believed is None else surprise(jnp.log(noise_variance), believed, SPREAD)


def _log(noise_variance: float, believed: float | None) -> Float[Array, ""]:
    """What `_variance` makes this σ² of, or one little above the least."""
    if not noise_variance > 0:
        raise ValueError(f"noise_variance must be positive, got {noise_variance!r}")
    return on_device(np.log(noise_variance if believed is None else max(noise_variance - LEAST, 0.01 * LEAST)))


MOST_EXCESS = 4.0
"""How much more than σ² the mean square of what is left over is taken for, at most: a few rows may be far off."""


N = TypeVar("N", "ConstantNoise", "VaryingNoise")


def _natural_step(before: N, moved: N, slope: N, gamma: Float[Array, ""], count: Float[Array, ""]) -> N:
    """log σ² after a step of size γ towards the mean square of what is left over, which is where the slope is 0."""
    log = before.log_noise_variance
    excess = jnp.clip(2 * slope.log_noise_variance / count, -1.0, MOST_EXCESS)  # of the mean square over σ²
    return eqx.tree_at(lambda noise: noise.log_noise_variance, moved, (log + gamma * excess).astype(log.dtype))


def known_noise(likelihood: Likelihood) -> float:
    """Its σ² as a number."""
    with scope():
        return float(_noise_variance(likelihood))


@compiled
def _noise_variance(likelihood: Likelihood) -> Float[Array, ""]:
    return likelihood.noise_variance


class ConstantNoise(Certain, Likelihood):
    """σ² for all x and w: learnt, or kept as it is.

    Parameters
    ----------
    log_noise_variance : array of shape ()
        log σ².
    learn : bool, default=True
        Whether σ² is learnt.
    believed : float, default=None
        The median of σ² a priori; None: nothing is believed of it.
    """

    log_noise_variance: Float[Array, ""]
    learn: bool = eqx.field(static=True, default=True)
    believed: float | None = eqx.field(static=True, default=None)

    @classmethod
    def create(cls, noise_variance: float = 0.1, learn: bool = True, believed: float | None = None) -> "ConstantNoise":
        """With this σ² to begin with.

        Parameters
        ----------
        noise_variance : float, default=0.1
            σ², positive.
        learn : bool, default=True
            Whether σ² is learnt.
        believed : float, default=None
            The median of σ² a priori; None: nothing is believed of it.
        """
        return cls(_log(noise_variance, believed), learn, believed)

    @property
    def noise_variance(self) -> Float[Array, ""]:
        log = self.log_noise_variance if self.learn else stop_gradient(self.log_noise_variance)
        return _variance(log, self.believed)

    def with_noise_variance(self, noise_variance: float) -> "ConstantNoise":
        if not self.learn:
            return self
        return dataclasses.replace(self, log_noise_variance=_log(noise_variance, self.believed))

    def natural_step(self, moved: Any, slope: Any, gamma: Float[Array, ""], count: Float[Array, ""]) -> "ConstantNoise":
        return _natural_step(self, moved, slope, gamma, count)

    def penalty(self) -> Float[Array, ""]:
        return _doubt(self.noise_variance, self.believed)

    def log_scale(self, x: Inputs, w: Float[Array, "#n k d"]) -> Float[Array, "#n #k"]:
        return jnp.zeros((1, 1))

    def row_log_scale(self, x: Inputs) -> Float[Array, "#n"]:
        return jnp.zeros(1)


class MixedNoise(Certain, Likelihood):
    """σ² I + τ² P Pᵀ for all x and w: what the latents leave of y lies mostly along the columns of P.

    Parameters
    ----------
    log_noise_variance : array of shape ()
        log σ².
    log_function_variance : array of shape ()
        log τ².
    """

    log_noise_variance: Float[Array, ""]
    log_function_variance: Float[Array, ""]

    @classmethod
    def create(cls, noise_variance: float = 0.1, function_variance: float = 0.3) -> "MixedNoise":
        """With this noise to begin with.

        Parameters
        ----------
        noise_variance : float, default=0.1
            σ², positive.
        function_variance : float, default=0.3
            τ², positive.
        """
        return cls(_log(noise_variance, None), _log(function_variance, None))

    @property
    def noise_variance(self) -> Float[Array, ""]:
        return _variance(self.log_noise_variance, None)

    @property
    def function_variance(self) -> Float[Array, ""]:
        return _variance(self.log_function_variance, None)

    def with_noise_variance(self, noise_variance: float) -> "MixedNoise":
        return dataclasses.replace(self, log_noise_variance=_log(noise_variance, None))

    def seen(self, mixing: Mixing) -> Mixing:
        return Dimmed.create(mixing, self.function_variance / self.noise_variance)

    def log_scale(self, x: Inputs, w: Float[Array, "#n k d"]) -> Float[Array, "#n #k"]:
        return jnp.zeros((1, 1))

    def row_log_scale(self, x: Inputs) -> Float[Array, "#n"]:
        return jnp.zeros(1)


class VaryingNoise(Certain, Likelihood):
    """log s(x, w) = c tanh(g(x, w) / c), g a `Surface`, c the `limit`: s lies between exp(-c) and exp(c).

    A noise that varies from the first step on takes up what the latents have yet to learn, and they never do: it is
    better `held` until they have.

    Parameters
    ----------
    log_noise_variance : array of shape ()
        log σ².
    surface : Surface
        g, with one output.
    limit : float, default=4.0
        c.
    believed : float, default=None
        The median of σ² a priori; None: nothing is believed of it.
    freedom : array of shape (), default=1.0
        What log s is multiplied by, and not learnt: 0 while it is held.
    """

    log_noise_variance: Float[Array, ""]
    surface: Surface
    limit: float = eqx.field(static=True, default=4.0)
    believed: float | None = eqx.field(static=True, default=None)
    freedom: Float[Array, ""] = eqx.field(default_factory=lambda: on_device(np.ones(())))

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "limit")
        if not 0 <= float(self.freedom) <= 1:
            raise ValueError("VaryingNoise.freedom must lie between 0 and 1")

    @classmethod
    def create(cls, surface: Surface, noise_variance: float = 0.1, believed: float | None = None) -> "VaryingNoise":
        """With this σ² to begin with.

        Parameters
        ----------
        surface : Surface
            g, with one output.
        noise_variance : float, default=0.1
            σ², positive.
        believed : float, default=None
            The median of σ² a priori; None: nothing is believed of it.
        """
        return cls(_log(noise_variance, believed), surface, believed=believed)

    @property
    def noise_variance(self) -> Float[Array, ""]:
        return _variance(self.log_noise_variance, self.believed)

    def with_noise_variance(self, noise_variance: float) -> "VaryingNoise":
        return dataclasses.replace(self, log_noise_variance=_log(noise_variance, self.believed))

    def natural_step(self, moved: Any, slope: Any, gamma: Float[Array, ""], count: Float[Array, ""]) -> "VaryingNoise":
        return _natural_step(self, moved, slope, gamma, count)

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        return (self.surface,)

    @property
    def is_held(self) -> bool:
        return float(self.freedom) == 0

    def held(self) -> "VaryingNoise":
        return eqx.tree_at(lambda noise: noise.freedom, self, np.zeros_like(self.freedom))

    def freed(self) -> "VaryingNoise":
        return eqx.tree_at(lambda noise: noise.freedom, self, np.ones_like(self.freedom))

    def log_scale(self, x: Inputs, w: Float[Array, "#n k d"]) -> Float[Array, "#n #k"]:
        return stop_gradient(self.freedom) * self.limit * jnp.tanh(self.surface(x, w)[..., 0] / self.limit)

    def penalty(self) -> Float[Array, ""]:
        # held, its weights stay where they start
        return stop_gradient(self.freedom) * self.surface.penalty() + _doubt(self.noise_variance, self.believed)
