"""Input maps: where the sparse GP is evaluated, h = map(x, w).

    Ignore        h = w
    Concatenate   h = [x, w]
    Project       h = [A x, w]       A Gaussian a priori, q(A) a factorised Gaussian, marginalised
    Features      h = [x + φ(x), w] or [A x + φ(x), w], φ a network of x that starts near 0
    Bend          h = [x, w + g(x, w)] or [A x, w + g(x, w)], g a small network that starts near 0
    Warp          h = w + g(x, w)    g such a network

A map works in two steps: `context(x, draws)` is what depends on x alone, once a data point, and `halves(context, w)`
adds the latents, once a draw or node: h = [left, right], left of x alone. Where right is w itself, shared by all data
points, a kernel that is a product of the two sides needs no N × K × M array; where it is not, the left factor is still
computed once a data point only. A map that mixes x and w altogether has a left of no columns.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..runtime.files import check_positive
from .gaussians import diagonal_kl
from .inputs import Inputs, linear
from .networks import MLP
from .part import Certain, Part


class InputMap(Part):
    """h = map(x, w) = [left, right]."""

    latent_lengthscale: eqx.AbstractClassVar[float]
    """Where the lengthscale of the kernel on the right starts, times that of other maps."""

    @property
    @abc.abstractmethod
    def context_dim(self) -> int:
        """The width of the context."""

    @abc.abstractmethod
    def out_dim(self, latent_dim: int) -> int:
        """The width of h, the GP's input."""

    @property
    @abc.abstractmethod
    def draw_dim(self) -> int:
        """How many standard normal numbers a data point's context needs; 0 where it is certain."""

    @abc.abstractmethod
    def context(self, x: Inputs, draws: Float[Array, "n k"]) -> Float[Array, "n c"]:
        """The part of the map that depends on x alone."""

    @abc.abstractmethod
    def halves(
        self, context: Float[Array, "n c"], w: Float[Array, "#n k d"]
    ) -> tuple[Float[Array, "n b"], Float[Array, "#n k r"]]:
        """The two sides of h for k latents of every data point, or k latents shared by all."""

    @abc.abstractmethod
    def without_latents(self) -> "InputMap":
        """What is left of the map where there are no latents: training starts with that."""

    @abc.abstractmethod
    def with_latents(self, trained: "InputMap") -> "InputMap":
        """The map again, with what was learnt without latents."""

    def join(self, context: Float[Array, "n c"], w: Float[Array, "#n k d"]) -> Float[Array, "n k h"]:
        """h = [left, right]."""
        left, right = self.halves(context, w)
        shape = (left.shape[0], right.shape[1])
        left = jnp.broadcast_to(left[:, None], (*shape, left.shape[1]))
        return jnp.concatenate([left, jnp.broadcast_to(right, (*shape, right.shape[2]))], axis=2)

    def moments(self, x: Inputs) -> tuple[Float[Array, "n c"], Float[Array, "n c"]]:
        """Mean and variance of the context, where h = [context, w]: for closed-form kernel expectations."""
        raise NotImplementedError(
            f"closed-form kernel expectations need h = [context, w], which {type(self).__name__} is not; "
            "use Monte Carlo draws of w instead (expectation='draws')"
        )


class _Joined(InputMap):
    """h = [context, w]."""

    latent_lengthscale = 1.0

    def out_dim(self, latent_dim: int) -> int:
        return self.context_dim + latent_dim

    def halves(
        self, context: Float[Array, "n c"], w: Float[Array, "#n k d"]
    ) -> tuple[Float[Array, "n b"], Float[Array, "#n k r"]]:
        return context, w

    def without_latents(self) -> InputMap:
        return self

    def with_latents(self, trained: InputMap) -> InputMap:
        return trained


class Ignore(Certain, _Joined):
    """h = w: the inputs are not looked at."""

    @property
    def context_dim(self) -> int:
        return 0

    @property
    def draw_dim(self) -> int:
        return 0

    def context(self, x: Inputs, draws: Float[Array, "n k"]) -> Float[Array, "n c"]:
        return jnp.zeros((x.n_rows, 0), x.dense.dtype)

    def moments(self, x: Inputs) -> tuple[Float[Array, "n c"], Float[Array, "n c"]]:
        return self.context(x, jnp.zeros((x.n_rows, 0))), jnp.zeros((x.n_rows, 0), x.dense.dtype)


class Concatenate(Certain, _Joined):
    """h = [x, w], for dense inputs (or none: then the model is a GP-LVM).

    Parameters
    ----------
    dim : int
        The number of columns of x.
    """

    dim: int = eqx.field(static=True)

    @property
    def context_dim(self) -> int:
        return self.dim

    @property
    def draw_dim(self) -> int:
        return 0

    def context(self, x: Inputs, draws: Float[Array, "n k"]) -> Float[Array, "n c"]:
        if x.codes.shape[1]:
            raise ValueError("Concatenate takes dense inputs; categories go through Project or Warp")
        if x.dense.shape[1] != self.dim:
            raise ValueError(f"Concatenate({self.dim}) got inputs with {x.dense.shape[1]} columns")
        return jnp.asarray(x.dense)

    def moments(self, x: Inputs) -> tuple[Float[Array, "n c"], Float[Array, "n c"]]:
        mean = self.context(x, jnp.zeros((x.n_rows, 0)))
        return mean, jnp.zeros_like(mean)


class Project(_Joined):
    """h = [A x, w], q(A) = prod N(mean, exp(2 log_std)), p(A) = prod N(0, prior_std²); A stored transposed.

    The bound sees A only through A x_n, one data point at a time, and q(A) is factorised; so A x_n is drawn
    directly, from its own Gaussian, with fresh draws for every point.

    Parameters
    ----------
    mean : array of shape (rows, c)
        The mean of Aᵀ: a row for each dense column of x, then one for each category level.
    log_std : array of shape (rows, c)
        The logarithms of the standard deviations of Aᵀ.
    prior_std : float, default=1.0
        The standard deviation of A a priori.
    """

    mean: Float[Array, "rows c"]
    log_std: Float[Array, "rows c"]
    prior_std: float = eqx.field(static=True, default=1.0)

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "prior_std")

    @property
    def context_dim(self) -> int:
        return self.mean.shape[1]

    @property
    def draw_dim(self) -> int:
        return self.mean.shape[1]

    def context(self, x: Inputs, draws: Float[Array, "n k"]) -> Float[Array, "n c"]:
        mean, variance = self.moments(x)
        # a row of zeros has no variance: keep the root's derivative finite there
        return mean + jnp.sqrt(jnp.maximum(variance, jnp.finfo(variance.dtype).tiny)) * draws

    def moments(self, x: Inputs) -> tuple[Float[Array, "n c"], Float[Array, "n c"]]:
        squared = x._replace(dense=jnp.asarray(x.dense) ** 2)
        return linear(x, self.mean), linear(squared, jnp.exp(2 * self.log_std))

    def penalty(self) -> Float[Array, ""]:
        """KL[q(A) || p(A)]."""
        return jnp.sum(diagonal_kl(self.mean, self.log_std, jnp.log(self.prior_std)))

    def sample(self, key: PRNGKeyArray) -> "Project":
        drawn = self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)
        return Project(drawn, jnp.full_like(self.log_std, -jnp.inf), self.prior_std)


class _Based(InputMap):
    """A map that adds a network to another, its base; the first steps, which are too large for one, are the base's."""

    base: InputMap

    @property
    def draw_dim(self) -> int:
        return self.base.draw_dim

    def without_latents(self) -> InputMap:
        return self.base

    def with_latents(self, trained: InputMap) -> InputMap:
        return eqx.tree_at(lambda m: m.base, self, trained)

    def sample(self, key: PRNGKeyArray) -> "_Based":
        return eqx.tree_at(lambda m: m.base, self, self.base.sample(key))


class Features(_Based, _Joined):
    """h = [c + φ(x), w], the context c = x or A x (`base`), φ a tanh network under a Gaussian prior on its weights.

    The prior has variance 1 / (precision × fan-in). Where inputs are many, the GP then lives on what matters of them;
    where φ is zero, as it is to begin with, it is the map without.

    Parameters
    ----------
    base : InputMap
        The map that makes the context, Concatenate or Project.
    network : MLP
        φ.
    precision : float
        How firm the prior on its weights is.
    """

    network: MLP
    precision: float = eqx.field(static=True)

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "precision")

    @classmethod
    def create(
        cls,
        key: PRNGKeyArray,
        base: InputMap,
        input_rows: int,
        hidden: tuple[int, ...] = (64, 64),
        precision: float = 1.0,
    ) -> "Features":
        """For inputs of `input_rows` dense features and category levels together.

        Parameters
        ----------
        key : PRNG key
            Of the first weights.
        base : InputMap
            The map that makes the context, Concatenate or Project.
        input_rows : int
            The number of dense features and category levels together.
        hidden : tuple of int, default=(64, 64)
            The widths of the hidden layers.
        precision : float, default=1.0
            How firm the prior on the weights is.
        """
        return cls(base, MLP.create(key, (input_rows, *hidden, base.context_dim), last_scale=0.0), precision)

    @property
    def context_dim(self) -> int:
        return self.base.context_dim

    def _moved(self, x: Inputs) -> Float[Array, "n c"]:
        """φ(x)."""
        return self.network.after_first(linear(x, self.network.weights[0]))

    def context(self, x: Inputs, draws: Float[Array, "n k"]) -> Float[Array, "n c"]:
        return self.base.context(x, draws) + self._moved(x)

    def moments(self, x: Inputs) -> tuple[Float[Array, "n c"], Float[Array, "n c"]]:
        mean, variance = self.base.moments(x)
        return mean + self._moved(x), variance

    def penalty(self) -> Float[Array, ""]:
        """The base's, and minus the log prior of the weights, a constant apart."""
        return self.base.penalty() + 0.5 * self.precision * self.network.square_norm(by_fan_in=True)


class Bend(_Based):
    """h = [context, w + g(x, w)], the context x or A x (`base`), g a tanh network.

    The GP of [x, w] bends in x and w as slowly as its lengthscales say; g lets a branch end, or a mode grow, at
    another w for every x. A Gaussian prior on its weights (of variance 1 / (precision × fan-in), so that g itself is of
    the order of 1) keeps it from following single rows; minus its logarithm is the penalty.

    Parameters
    ----------
    base : InputMap
        The map that makes the context.
    network : MLP
        g, a function of [x, w].
    latent_dim : int
        D_w, the number of latents of a data point.
    weight_precision : float
        How firm the prior on the weights of g is.
    """

    latent_lengthscale = 1.0
    network: MLP
    latent_dim: int = eqx.field(static=True)
    weight_precision: float = eqx.field(static=True)

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "latent_dim", "weight_precision", least=0)

    @classmethod
    def create(
        cls,
        key: PRNGKeyArray,
        base: InputMap,
        input_rows: int,
        latent_dim: int,
        hidden: tuple[int, ...] = (32,),
        weight_precision: float | None = None,
    ) -> "Bend":
        """For inputs of `input_rows` dense features and category levels together; more of them need a firmer prior.

        Parameters
        ----------
        key : PRNG key
            Of the first weights.
        base : InputMap
            The map that makes the context.
        input_rows : int
            The number of dense features and category levels together.
        latent_dim : int
            D_w, the number of latents of a data point.
        hidden : tuple of int, default=(32,)
            The widths of the hidden layers of g.
        weight_precision : float, default=None
            How firm the prior on the weights of g is; None: by the inputs.
        """
        network = MLP.create(key, (input_rows + latent_dim, *hidden, latent_dim), last_scale=0.01)
        precision = 0.3 * max(input_rows, 1) ** 0.4 if weight_precision is None else weight_precision
        return cls(base, network, latent_dim, precision)

    @property
    def context_dim(self) -> int:
        return self.base.context_dim + self.network.weights[0].shape[1]

    def out_dim(self, latent_dim: int) -> int:
        return self.base.out_dim(self.latent_dim)

    def context(self, x: Inputs, draws: Float[Array, "n k"]) -> Float[Array, "n c"]:
        start = linear(x, self.network.weights[0][: -self.latent_dim])
        return jnp.concatenate([self.base.context(x, draws), start], axis=1)

    def halves(
        self, context: Float[Array, "n c"], w: Float[Array, "#n k d"]
    ) -> tuple[Float[Array, "n b"], Float[Array, "n k d"]]:
        """The base's context, and the latents moved: h = [base, moved]."""
        width = self.base.context_dim
        product = context[:, None, width:] + w @ self.network.weights[0][-self.latent_dim :]
        return self.base.halves(context[:, :width], w + self.network.after_first(product))

    def penalty(self) -> Float[Array, ""]:
        """KL[q(A) || p(A)], if there is an A, and minus the log prior of the weights, a constant apart."""
        return self.base.penalty() + 0.5 * self.weight_precision * self.network.square_norm(by_fan_in=True)


class Warp(Certain, InputMap):
    """h = w + g(x, w), g a tanh network; minus the log of a Gaussian prior on its weights is the penalty.

    One GP of the moved latent carries the shape that all conditions share, the condition moves the latent.

    Parameters
    ----------
    network : MLP
        g, a function of [x, w].
    latent_dim : int
        D_w, the number of latents of a data point.
    weight_precision : float, default=1.0
        How firm the prior on the weights of g is.
    """

    latent_lengthscale = 0.5
    network: MLP
    latent_dim: int = eqx.field(static=True)
    weight_precision: float = eqx.field(static=True, default=1.0)

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "latent_dim", "weight_precision", least=0)

    @classmethod
    def create(
        cls,
        key: PRNGKeyArray,
        input_rows: int,
        latent_dim: int,
        hidden: tuple[int, ...] = (64, 64),
        weight_precision: float = 1.0,
    ) -> "Warp":
        """A warp for inputs of `input_rows` dense features and category levels together.

        Parameters
        ----------
        key : PRNG key
            Of the first weights.
        input_rows : int
            The number of dense features and category levels together.
        latent_dim : int
            D_w, the number of latents of a data point.
        hidden : tuple of int, default=(64, 64)
            The widths of the hidden layers of g.
        weight_precision : float, default=1.0
            How firm the prior on the weights of g is.
        """
        sizes = (input_rows + latent_dim, *hidden, latent_dim)
        return cls(MLP.create(key, sizes, last_scale=0.01), latent_dim, weight_precision)

    @property
    def context_dim(self) -> int:
        return self.network.weights[0].shape[1]

    def out_dim(self, latent_dim: int) -> int:
        return self.latent_dim

    def context(self, x: Inputs, draws: Float[Array, "n k"]) -> Float[Array, "n c"]:
        return linear(x, self.network.weights[0][: -self.latent_dim])

    @property
    def draw_dim(self) -> int:
        return 0

    def halves(
        self, context: Float[Array, "n c"], w: Float[Array, "#n k d"]
    ) -> tuple[Float[Array, "n b"], Float[Array, "n k r"]]:
        moved = w + self.network.after_first(context[:, None] + w @ self.network.weights[0][-self.latent_dim :])
        return context[:, :0], moved

    def without_latents(self) -> InputMap:
        return Ignore()

    def with_latents(self, trained: InputMap) -> InputMap:
        return self

    def penalty(self) -> Float[Array, ""]:
        """Minus the log prior of the weights, a constant apart."""
        return 0.5 * self.weight_precision * self.network.square_norm()
