"""Noise that varies with x and w, and a prior of w that x moves: what a user may write, with known answers."""

import dataclasses
from typing import Self

import jax.numpy as jnp
from jaxtyping import Array, Float

from gpcde.model import Certain, Gaussian, Inputs, LatentPrior, Likelihood
from gpcde.runtime.precision import wide


class OfInput(Certain, Likelihood):
    """log s = a x, x the first input: closed-form kernel expectations know what to do."""

    log_noise_variance: Float[Array, ""]
    by_input: Float[Array, ""]

    @classmethod
    def create(cls, noise_variance: float, by_input: float = 0.3) -> "OfInput":
        return cls(jnp.log(jnp.asarray(noise_variance)), jnp.asarray(by_input))

    @property
    def noise_variance(self) -> Float[Array, ""]:
        return jnp.exp(wide(self.log_noise_variance))

    def with_noise_variance(self, noise_variance: float) -> Self:
        return dataclasses.replace(self, log_noise_variance=jnp.log(jnp.asarray(noise_variance)))

    def log_scale(self, x: Inputs, w: Float[Array, "#n k d"]) -> Float[Array, "#n #k"]:
        return self.row_log_scale(x)[:, None]

    def row_log_scale(self, x: Inputs) -> Float[Array, " n"]:
        return self.by_input * jnp.asarray(x.dense)[:, 0]


class OfBoth(Certain, Likelihood):
    """log s = a x + b w, x the first input and w the first latent, if there is one."""

    log_noise_variance: Float[Array, ""]
    by_input: Float[Array, ""]
    by_latent: Float[Array, ""]

    @classmethod
    def create(cls, noise_variance: float, by_input: float = 0.3, by_latent: float = 0.2) -> "OfBoth":
        return cls(jnp.log(jnp.asarray(noise_variance)), jnp.asarray(by_input), jnp.asarray(by_latent))

    @property
    def noise_variance(self) -> Float[Array, ""]:
        return jnp.exp(wide(self.log_noise_variance))

    def with_noise_variance(self, noise_variance: float) -> Self:
        return dataclasses.replace(self, log_noise_variance=jnp.log(jnp.asarray(noise_variance)))

    def log_scale(self, x: Inputs, w: Float[Array, "#n k d"]) -> Float[Array, "#n #k"]:
        return self.by_input * jnp.asarray(x.dense)[:, :1] + self.by_latent * w[..., :1].sum(2)


class Moved(Certain, LatentPrior):
    """p(w|x) = N([c x, 0, …], I), x the first input."""

    by_input: Float[Array, ""]

    @classmethod
    def create(cls, by_input: float = 0.7) -> "Moved":
        return cls(jnp.asarray(by_input))

    def log_ratio(self, x: Inputs, w: Float[Array, "#n k d"]) -> Float[Array, "n k"]:
        centre = self.by_input * jnp.asarray(x.dense)[:, :1]
        return centre * w[..., 0] - 0.5 * centre**2

    def kl(self, x: Inputs, q: Gaussian) -> Float[Array, " n"]:
        centre = self.by_input * jnp.asarray(x.dense)[:, 0]
        return q.kl() - centre * q.mean[:, 0] + 0.5 * centre**2
