"""The latent variables w_n ~ N(0, I), and their approximate posteriors q(w_n).

    NoLatents       the model is sparse GP regression
    GaussianLatents q(w_n) = N(μ_n, Σ_n), from a recognition network of (x_n, y_n) or free for each data point;
                    expectations by draws, in closed form, or importance-weighted
    FreeForm        q(w_n) ∝ exp(L_wn) p(w_n), the optimum, on quadrature nodes

All but the closed form reduce to *draws*: latents w_nk with log weights ω_nk and a remainder, and the bound of
one data point is

    average    mean_k L_nk - remainder_n              (Monte Carlo, remainder KL[q(w_n) || p(w_n)])
    otherwise  log sum_k exp(L_nk + ω_nk)             (free-form: ω the log prior weights of the nodes;
                                                      importance-weighted: ω = log p(w_nk)/q(w_nk) - log K)
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from ._inputs import Inputs, linear
from ._networks import MLP
from ._quadrature import evenly_spaced, gauss_hermite

LOG_2PI = float(np.log(2 * np.pi))

REACH = 4.2
"""How far out evenly spaced nodes go in training: 3 in 100,000 of the prior lie beyond."""


def recognise(network: MLP, x: Inputs, y: Float[Array, "n D"]) -> Float[Array, "n p"]:
    """The network's output for [x, y], the categories of x by look-up."""
    first = network.weights[0]
    rows = first.shape[0] - y.shape[1]
    return network.after_first(linear(x, first[:rows]) + y @ first[rows:])


class Gaussian(NamedTuple):
    """N(mean, Σ) of each data point; `scale` is its standard deviations (n × d) or Cholesky factors (n × d × d)."""

    mean: Float[Array, "n d"]
    scale: Float[Array, "n d"] | Float[Array, "n d d"]

    def covariance(self) -> Float[Array, "n d"] | Float[Array, "n d d"]:
        """The variances, or the full covariance matrices."""
        return self.scale**2 if self.scale.ndim == 2 else self.scale @ self.scale.mT

    def at(self, noise: Float[Array, "n k d"]) -> Float[Array, "n k d"]:
        """mean + L noise."""
        if self.scale.ndim == 2:
            return self.mean[:, None] + self.scale[:, None] * noise
        return self.mean[:, None] + noise @ self.scale.mT

    def log_det(self) -> Float[Array, " n"]:
        """log |L|."""
        diagonal = self.scale if self.scale.ndim == 2 else jnp.diagonal(self.scale, axis1=1, axis2=2)
        return jnp.log(diagonal).sum(1)

    def kl(self) -> Float[Array, " n"]:
        """KL[N(mean, Σ) || N(0, I)]."""
        squares = (self.scale**2).reshape(len(self.scale), -1).sum(1)
        return 0.5 * ((self.mean**2).sum(1) + squares - self.mean.shape[1]) - self.log_det()


class Draws(NamedTuple):
    """Latents of each data point (or shared by all) and what the bound adds to their likelihoods."""

    w: Float[Array, "#n k d"]
    log_weight: Float[Array, "#n k"]
    remainder: Float[Array, "#n"]
    average: bool


class NoLatents(eqx.Module):
    """No latents: one empty draw."""

    @property
    def dim(self) -> int:
        return 0

    @property
    def noise_shape(self) -> tuple[int, int]:
        return 0, 0

    def draws(self, x: Inputs, y: Array, local: Array | None, noise: Float[Array, "n k d"]) -> Draws:
        return Draws(jnp.zeros((1, 1, 0)), jnp.zeros((1, 1)), jnp.zeros(1), False)


class FreeForm(eqx.Module):
    """q(w_n) ∝ exp(L_wn) p(w_n), on the nodes of a quadrature rule for p(w)."""

    nodes: Float[Array, "q d"]
    log_weights: Float[Array, " q"]

    @classmethod
    def create(cls, dim: int = 1, points: int | None = None, rule: str = "gauss-hermite") -> "FreeForm":
        """Gauss–Hermite nodes (100 in one dimension, 20 × 20 in two, unless told), or evenly spaced ones."""
        if rule not in ("gauss-hermite", "even"):
            raise ValueError(f"rule must be 'gauss-hermite' or 'even', got {rule!r}")
        count = (100 if dim == 1 else 20) if points is None else points
        nodes, log_weights = gauss_hermite(count, dim) if rule == "gauss-hermite" else evenly_spaced(count, dim, REACH)
        return cls(jnp.asarray(nodes), jnp.asarray(log_weights))

    @property
    def dim(self) -> int:
        return self.nodes.shape[1]

    @property
    def noise_shape(self) -> tuple[int, int]:
        return 0, 0

    def draws(self, x: Inputs, y: Array, local: Array | None, noise: Float[Array, "n k d"]) -> Draws:
        nodes, log_weights = stop_gradient((self.nodes, self.log_weights))
        return Draws(nodes[None], log_weights[None], jnp.zeros(1), False)


class GaussianLatents(eqx.Module):
    """q(w_n) = N(μ_n, Σ_n), Σ diagonal or full.

    `recognition` maps (x_n, y_n) to the parameters; without it they are each data point's own (`local`).
    `expectation` is "draws", "closed" (kernel expectations) or "importance" (the importance-weighted bound).
    """

    recognition: MLP | None
    dim: int = eqx.field(static=True)
    expectation: str = eqx.field(static=True, default="draws")
    count: int = eqx.field(static=True, default=1)
    full: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if self.expectation not in ("draws", "closed", "importance"):
            raise ValueError(f"expectation must be 'draws', 'closed' or 'importance', got {self.expectation!r}")
        if self.count < 1:
            raise ValueError(f"the number of draws must be at least 1, got {self.count}")

    @classmethod
    def amortised(
        cls,
        key: PRNGKeyArray,
        input_rows: int,
        outputs: int,
        dim: int,
        hidden: tuple[int, ...] = (50, 50, 50),
        expectation: str = "draws",
        count: int = 1,
        full: bool = False,
    ) -> "GaussianLatents":
        """q(w_n) from a tanh network of x (so many dense features and category levels together) and y."""
        sizes = (input_rows + outputs, *hidden, cls.local_dim_of(dim, full))
        return cls(MLP.create(key, sizes), dim, expectation, count, full)

    @staticmethod
    def local_dim_of(dim: int, full: bool) -> int:
        """How many numbers a Gaussian of `dim` dimensions takes: its mean, then its scale."""
        return dim + (dim * (dim + 1) // 2 if full else dim)

    @property
    def local_dim(self) -> int:
        """How many numbers each data point holds for itself; 0 with a recognition network."""
        return 0 if self.recognition is not None else self.local_dim_of(self.dim, self.full)

    @property
    def noise_shape(self) -> tuple[int, int]:
        return (0, 0) if self.expectation == "closed" else (self.count, self.dim)

    def gaussian(self, x: Inputs, y: Float[Array, "n D"], local: Float[Array, "n p"] | None) -> Gaussian:
        """q(w_n) of a batch."""
        if self.recognition is not None:
            raw = recognise(self.recognition, x, y)
        elif local is None:
            raise ValueError("latents of each data point need their own parameters (`local`)")
        else:
            raw = local
        mean, scale = raw[:, : self.dim], raw[:, self.dim :]
        if not self.full:
            return Gaussian(mean, jnp.exp(scale))
        tril = jnp.zeros((len(raw), self.dim, self.dim), raw.dtype)
        tril = tril.at[:, *np.tril_indices(self.dim)].set(scale)
        diagonal = jnp.eye(self.dim, dtype=bool)
        return Gaussian(mean, jnp.where(diagonal, jnp.exp(jnp.where(diagonal, tril, 0)), tril))

    def draws(self, x: Inputs, y: Array, local: Array | None, noise: Float[Array, "n k d"]) -> Draws:
        q = self.gaussian(x, y, local)
        w = q.at(noise)
        if self.expectation == "draws":
            return Draws(w, jnp.zeros((1, self.count), w.dtype), q.kl(), True)
        # log p(w) - log q(w), with the noise standing for q's own standardised residual
        log_ratio = 0.5 * (noise**2 - w**2).sum(-1) + q.log_det()[:, None]
        return Draws(w, log_ratio - jnp.log(self.count), jnp.zeros(1), False)


Latents = NoLatents | FreeForm | GaussianLatents
