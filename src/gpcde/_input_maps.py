"""Input maps: where the sparse GP is evaluated, h = map(x, w).

    Concatenate   h = [x, w]
    Project       h = [A x, w]       A Gaussian a priori, q(A) a factorised Gaussian, marginalised
    Bend          h = [x, w + g(x, w)] or [A x, w + g(x, w)], g a small network that starts near 0
    Warp          h = w + g(x, w)    g such a network

A map has two halves: `context(x, noise)` is what depends on x alone, once a data point, and
`join(context, w)` adds the latents, once a draw or node. Where `separates` is true, h is [context, w], so a
kernel may separate too, and `moments(x)` gives the mean and variance of the context, for closed-form
kernel expectations. Another map is a subclass that says these things.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ._inputs import Inputs, linear
from ._networks import MLP


class InputMap(eqx.Module):
    """h = map(x, w)."""

    separates: eqx.AbstractClassVar[bool]

    @property
    @abc.abstractmethod
    def context_dim(self) -> int:
        """The width of the context."""

    @abc.abstractmethod
    def out_dim(self, latent_dim: int) -> int:
        """The width of h, the GP's input."""

    @property
    def noise_dim(self) -> int:
        """How many standard normal numbers a data point's context needs; 0 where it is certain."""
        return 0

    @abc.abstractmethod
    def context(self, x: Inputs, noise: Float[Array, "n k"]) -> Float[Array, "n c"]:
        """The part of the map that depends on x alone."""

    def join(self, context: Float[Array, "n c"], w: Float[Array, "#n k d"]) -> Float[Array, "n k h"]:
        """h for k latents of every data point, or k latents shared by all: [context, w] unless a map says otherwise."""
        shape = (context.shape[0], w.shape[1])
        left = jnp.broadcast_to(context[:, None], (*shape, context.shape[1]))
        return jnp.concatenate([left, jnp.broadcast_to(w, (*shape, w.shape[2]))], axis=2)

    def halves(
        self, context: Float[Array, "n c"], w: Float[Array, "#n k d"]
    ) -> tuple[Float[Array, "n b"], Float[Array, "n k d"]] | None:
        """Where h = [left, moved], left of x alone: the two, so that a kernel that separates is computed in halves."""
        return None

    def moments(self, x: Inputs) -> tuple[Float[Array, "n c"], Float[Array, "n c"]]:
        """Mean and variance of the context."""
        raise NotImplementedError(
            f"closed-form kernel expectations need h = [context, w], which {type(self).__name__} is not; "
            "use Monte Carlo draws of w instead (expectation='draws')"
        )

    def penalty(self) -> Float[Array, ""]:
        """KL[q || p] of the map's own parameters, or minus their log prior."""
        return jnp.zeros(())


class Concatenate(InputMap):
    """h = [x, w], for dense inputs (or none: then the model is a GP-LVM)."""

    separates = True
    dim: int = eqx.field(static=True)

    @property
    def context_dim(self) -> int:
        return self.dim

    def out_dim(self, latent_dim: int) -> int:
        return self.dim + latent_dim

    def context(self, x: Inputs, noise: Float[Array, "n k"]) -> Float[Array, "n c"]:
        if x.codes.shape[1]:
            raise ValueError("Concatenate takes dense inputs; categories go through Project or Warp")
        if x.dense.shape[1] != self.dim:
            raise ValueError(f"Concatenate({self.dim}) got inputs with {x.dense.shape[1]} columns")
        return jnp.asarray(x.dense)

    def moments(self, x: Inputs) -> tuple[Float[Array, "n c"], Float[Array, "n c"]]:
        mean = self.context(x, jnp.zeros((x.n_rows, 0)))
        return mean, jnp.zeros_like(mean)


class Project(InputMap):
    """h = [A x, w], q(A) = prod N(mean, exp(2 log_std)), p(A) = prod N(0, prior_std²); A stored transposed.

    The bound sees A only through A x_n, one data point at a time, and q(A) is factorised; so A x_n is drawn
    directly, from its own Gaussian, with fresh noise for every point.
    """

    separates = True
    mean: Float[Array, "rows c"]
    log_std: Float[Array, "rows c"]
    prior_std: float = eqx.field(static=True, default=1.0)

    @property
    def context_dim(self) -> int:
        return self.mean.shape[1]

    @property
    def noise_dim(self) -> int:
        return self.mean.shape[1]

    def out_dim(self, latent_dim: int) -> int:
        return self.context_dim + latent_dim

    def context(self, x: Inputs, noise: Float[Array, "n k"]) -> Float[Array, "n c"]:
        mean, variance = self.moments(x)
        # a row of zeros has no variance: keep the root's derivative finite there
        return mean + jnp.sqrt(jnp.maximum(variance, jnp.finfo(variance.dtype).tiny)) * noise

    def moments(self, x: Inputs) -> tuple[Float[Array, "n c"], Float[Array, "n c"]]:
        squared = x._replace(dense=jnp.asarray(x.dense) ** 2)
        return linear(x, self.mean), linear(squared, jnp.exp(2 * self.log_std))

    def penalty(self) -> Float[Array, ""]:
        """KL[q(A) || p(A)]."""
        log_ratio = self.log_std - jnp.log(self.prior_std)
        ratio = self.mean / self.prior_std
        return jnp.sum(0.5 * (ratio**2 + jnp.exp(2 * log_ratio) - 1) - log_ratio)


class Bend(InputMap):
    """h = [context, w + g(x, w)], the context x or A x (`base`), g a tanh network.

    The GP of [x, w] bends in x and w as slowly as its lengthscales say; g lets a branch end, or a mode grow, at
    another w for every x. A Gaussian prior on its weights (of variance 1 / (precision × fan-in), so that g itself is of
    the order of 1) keeps it from following single rows; minus its logarithm is the penalty.
    """

    separates = False
    base: Concatenate | Project
    network: MLP
    latent_dim: int = eqx.field(static=True)
    weight_precision: float = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        key: PRNGKeyArray,
        base: Concatenate | Project,
        input_rows: int,
        latent_dim: int,
        hidden: tuple[int, ...] = (32,),
        weight_precision: float | None = None,
    ) -> "Bend":
        """For inputs of `input_rows` dense features and category levels together; more of them need a firmer prior."""
        network = MLP.create(key, (input_rows + latent_dim, *hidden, latent_dim), last_scale=0.01)
        precision = 0.3 * max(input_rows, 1) ** 0.4 if weight_precision is None else weight_precision
        return cls(base, network, latent_dim, precision)

    @property
    def context_dim(self) -> int:
        return self.base.context_dim + self.network.weights[0].shape[1]

    @property
    def noise_dim(self) -> int:
        return self.base.noise_dim

    def out_dim(self, latent_dim: int) -> int:
        return self.base.out_dim(self.latent_dim)

    def context(self, x: Inputs, noise: Float[Array, "n k"]) -> Float[Array, "n c"]:
        start = linear(x, self.network.weights[0][: -self.latent_dim])
        return jnp.concatenate([self.base.context(x, noise), start], axis=1)

    def halves(
        self, context: Float[Array, "n c"], w: Float[Array, "#n k d"]
    ) -> tuple[Float[Array, "n b"], Float[Array, "n k d"]]:
        """The base's context, and the latents moved: h = [base, moved]."""
        width = self.base.context_dim
        product = context[:, None, width:] + w @ self.network.weights[0][-self.latent_dim :]
        return context[:, :width], w + self.network.after_first(product)

    def join(self, context: Float[Array, "n c"], w: Float[Array, "#n k d"]) -> Float[Array, "n k h"]:
        return self.base.join(*self.halves(context, w))

    def penalty(self) -> Float[Array, ""]:
        """KL[q(A) || p(A)], if there is an A, and minus the log prior of the weights, a constant apart."""
        squares = [weight.shape[0] * jnp.sum(weight**2) for weight in self.network.weights]
        return self.base.penalty() + 0.5 * self.weight_precision * jnp.sum(jnp.stack(squares))


class Warp(InputMap):
    """h = w + g(x, w), g a tanh network; minus the log of a Gaussian prior on its weights is the penalty.

    One GP of the moved latent carries the shape that all conditions share, the condition moves the latent.
    """

    separates = False
    network: MLP
    latent_dim: int = eqx.field(static=True)
    weight_precision: float = eqx.field(static=True, default=1.0)

    @classmethod
    def create(
        cls,
        key: PRNGKeyArray,
        input_rows: int,
        latent_dim: int,
        hidden: tuple[int, ...] = (64, 64),
        weight_precision: float = 1.0,
    ) -> "Warp":
        """A warp for inputs of `input_rows` dense features and category levels together."""
        sizes = (input_rows + latent_dim, *hidden, latent_dim)
        return cls(MLP.create(key, sizes, last_scale=0.01), latent_dim, weight_precision)

    @property
    def context_dim(self) -> int:
        return self.network.weights[0].shape[1]

    def out_dim(self, latent_dim: int) -> int:
        return self.latent_dim

    def context(self, x: Inputs, noise: Float[Array, "n k"]) -> Float[Array, "n c"]:
        return linear(x, self.network.weights[0][: -self.latent_dim])

    def join(self, context: Float[Array, "n c"], w: Float[Array, "#n k d"]) -> Float[Array, "n k h"]:
        return w + self.network.after_first(context[:, None] + w @ self.network.weights[0][-self.latent_dim :])

    def penalty(self) -> Float[Array, ""]:
        """Minus the log prior of the weights, a constant apart."""
        squares = [jnp.sum(weight**2) for weight in self.network.weights]
        return 0.5 * self.weight_precision * jnp.sum(jnp.stack(squares))
