"""The latent variables w_n, and their approximate posteriors q(w_n).

    NoLatents       the model is sparse GP regression
    GaussianLatents q(w_n) = N(μ_n, Σ_n), from a recognition network of (x_n, y_n) or free for each data point;
                    expectations by draws, in closed form, or importance-weighted
    FreeForm        q(w_n) ∝ exp(L_wn) p(w_n|x_n), the optimum, on quadrature nodes

With L_nk the expected log likelihood of data point n at the latent w_nk, the bound of one data point is

    draws         mean_k L_nk - KL[q(w_n) || p(w|x_n)]
    importance    log mean_k exp(L_nk) p(w_nk|x_n) / q(w_nk)
    free-form     log sum_k exp(L_nk + ω_nk)              ω the log weights of the nodes under p(w|x_n)
    closed form   E_q(w_n) L_n - KL[q(w_n) || p(w|x_n)]

A q(w) asks all it needs to know of the data, the kernel and q(u) of an `Evidence`.
"""

import abc
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from ..runtime.compilation import compiled
from ..runtime.files import check_fields, check_numbers, check_positive
from ..runtime.precision import on_device
from ..runtime.products import product
from .climbing import climb
from .gaussians import Gaussian
from .inputs import AnyArray, Inputs, linear
from .networks import MLP
from .part import Certain, Part
from .prior import LatentPrior
from .quadrature import evenly_spaced, gauss_hermite

REACH = 4.2
"""How far out evenly spaced nodes go in training, and of two latents to predict: 3 in 100,000 lie beyond."""

INFER_STEPS = 300
"""How long a data point's own q(w_n) climbs the bound when it is inferred."""

TAUGHT_STEPS = 200
"""How long a recognition network learns what is guessed."""

START_STD = 0.3
"""The standard deviation of a Gaussian q(w) round its first guess."""


@runtime_checkable
class Evidence(Protocol):
    """What a batch of data says of latents, given the model and q(u).

    Attributes
    ----------
    x : Inputs
        The inputs of the batch.
    y : array of shape (n, D_y)
        Its outputs.
    prior : LatentPrior
        p(w|x).
    """

    @property
    def x(self) -> Inputs: ...

    @property
    def y(self) -> Float[Array, "n D"]: ...

    @property
    def prior(self) -> LatentPrior: ...

    def at(self, w: Float[Array, "#n k d"]) -> Float[Array, "n k"]:
        """L_nk, the expected log likelihood at k latents of every data point, or k latents shared by all."""

    def log_sum(self, w: Float[Array, "1 k d"], log_weight: Float[Array, "#n k"]) -> Float[Array, ""]:
        """sum_n v_n log sum_k exp(L_nk + ω_nk), v the weights of the rows."""

    def closed(self, q: Gaussian) -> Float[Array, ""]:
        """sum_n v_n E_q(w_n) L_n, by closed-form kernel expectations."""

    def total(self, values: Float[Array, " n"]) -> Float[Array, ""]:
        """sum_n v_n value_n."""


class LatentPosterior(NamedTuple):
    """q(w|x, y) of every row: mean and standard deviation, and for free-form q its weights on shared nodes.

    Parameters
    ----------
    mean : array of shape (n, D_w)
        The means.
    std : array of shape (n, D_w)
        The standard deviations.
    nodes : array of shape (q, D_w), default=None
        The nodes of a free-form q(w), the same for all rows.
    weights : array of shape (n, q), default=None
        The probabilities of the nodes; each row sums to one.
    """

    mean: Float[Array | np.ndarray, "n d"]
    std: Float[Array | np.ndarray, "n d"]
    nodes: Float[Array | np.ndarray, "q d"] | None = None
    weights: Float[Array | np.ndarray, "n q"] | None = None


class Latents(Part):
    """q(w_n): which latents the data points came from."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """D_w."""

    @property
    @abc.abstractmethod
    def draw_shape(self) -> tuple[int, int]:
        """How many standard normal numbers the bound of a data point needs: draws × dimensions."""

    @property
    def n_points(self) -> int:
        """How many latents of a data point a step looks at, nearly: it tells how many rows a batch may have."""
        return max(1, self.draw_shape[0])

    @property
    def local_dim(self) -> int:
        """How many numbers each data point holds for itself; 0 where q(w) needs none."""
        return 0

    @property
    def one_draw(self) -> bool:
        """Whether all rows go by the draws of the first."""
        return False

    @abc.abstractmethod
    def bound(
        self, evidence: Evidence, local: Float[Array, "n p"] | None, draws: Float[Array, "n k d"]
    ) -> Float[Array, ""]:
        """The data's part of the bound, summed over the batch, from standard normal draws."""

    @abc.abstractmethod
    def infer(self, evidence: Evidence) -> LatentPosterior:
        """q(w|x, y) of data points that training may not have seen."""

    def start(
        self, x: Inputs, y: Float[AnyArray, "n D"], w: Float[np.ndarray, "n d"]
    ) -> tuple["Latents", Float[Array, "n p"] | None]:
        """This q(w) at a guess of every w_n, and what each data point holds of it for itself."""
        return self, None

    def proposal(self, x: Inputs, y: Float[Array, "n D"]) -> Gaussian:
        """A Gaussian near q(w|x, y), for importance sampling."""
        raise ValueError(
            f"importance sampling needs a Gaussian q(w|x, y) from a recognition network (inference='amortised'), which "
            f"{type(self).__name__} has not"
        )


class NoLatents(Certain, Latents):
    """No latents: one empty draw."""

    @property
    def dim(self) -> int:
        return 0

    @property
    def draw_shape(self) -> tuple[int, int]:
        return 0, 0

    def bound(
        self, evidence: Evidence, local: Float[Array, "n p"] | None, draws: Float[Array, "n k d"]
    ) -> Float[Array, ""]:
        return evidence.total(evidence.at(jnp.zeros((1, 1, 0)))[:, 0])

    def infer(self, evidence: Evidence) -> LatentPosterior:
        raise ValueError("this model has no latents: inference='none'")


class FreeForm(Certain, Latents):
    """q(w_n) ∝ exp(L_wn) p(w_n|x_n), on the nodes of a quadrature rule for N(0, I).

    With a `spacing` (that of evenly spaced nodes), all nodes are shifted together by a random fraction of it at each
    step, so that the model is right for the integral and not for the nodes alone.

    Parameters
    ----------
    nodes : array of shape (q, D_w)
        The nodes.
    log_weights : array of shape (q,)
        The logarithms of their weights under N(0, I).
    spacing : float, default=0.0
        How far apart shifted nodes are; 0: not shifted.
    """

    nodes: Float[Array, "q d"]
    log_weights: Float[Array, " q"]
    spacing: float = eqx.field(static=True, default=0.0)

    def check_values(self) -> None:
        check_fields(self, "log_weights")
        check_numbers("FreeForm.log_weights", self.log_weights)  # of any size: there may be many nodes
        check_positive(self, "spacing", least=0)
        if not self.nodes.size:
            raise ValueError("FreeForm has no nodes")

    @classmethod
    def create(
        cls, dim: int = 1, points: int | None = None, rule: str = "gauss-hermite", shifted: bool = False
    ) -> "FreeForm":
        """Gauss–Hermite nodes (100 in one dimension, 20 × 20 in two, by default), or evenly spaced ones.

        Parameters
        ----------
        dim : {1, 2}, default=1
            D_w.
        points : int, default=None
            Nodes a dimension.
        rule : {"gauss-hermite", "even"}, default="gauss-hermite"
            Which nodes.
        shifted : bool, default=False
            Whether even nodes are shifted at random at every step.
        """
        if rule not in ("gauss-hermite", "even"):
            raise ValueError(f"rule must be 'gauss-hermite' or 'even', got {rule!r}")
        if shifted and rule != "even":
            raise ValueError("shifted nodes must be evenly spaced: rule='even'")
        count = (100 if dim == 1 else 20) if points is None else points
        nodes, log_weights = gauss_hermite(count, dim) if rule == "gauss-hermite" else evenly_spaced(count, dim, REACH)
        spacing = 2 * REACH / max(count - 1, 1) if shifted else 0.0
        return cls(on_device(nodes), on_device(log_weights), spacing)

    @property
    def dim(self) -> int:
        return self.nodes.shape[1]

    @property
    def draw_shape(self) -> tuple[int, int]:
        return (1, self.dim) if self.spacing else (0, 0)

    @property
    def one_draw(self) -> bool:
        return True

    @property
    def n_points(self) -> int:
        return len(self.nodes)

    def bound(
        self, evidence: Evidence, local: Float[Array, "n p"] | None, draws: Float[Array, "n k d"]
    ) -> Float[Array, ""]:
        nodes, log_weights = stop_gradient((self.nodes, self.log_weights))
        if self.spacing:  # one shift for all rows: the nodes stay shared
            nodes = nodes + self.spacing * (jax.scipy.special.ndtr(draws[0, 0]) - 0.5)
            log_weights = jax.nn.log_softmax(-0.5 * (nodes**2).sum(1))
        w, log_weight = nodes[None], log_weights[None]
        return evidence.log_sum(w, evidence.prior.log_weights(evidence.x, w, log_weight))

    def infer(self, evidence: Evidence) -> LatentPosterior:
        prior = evidence.prior.log_weights(evidence.x, self.nodes[None], self.log_weights[None])
        weights = jax.nn.softmax(evidence.at(self.nodes[None]) + prior, axis=1)
        mean = weights @ self.nodes
        variance = (weights[..., None] * (self.nodes - mean[:, None]) ** 2).sum(1)
        return LatentPosterior(mean, jnp.sqrt(variance), self.nodes, weights)


class GaussianLatents(Certain, Latents):
    """q(w_n) = N(μ_n, Σ_n), Σ diagonal or full.

    Parameters
    ----------
    recognition : MLP or None
        The network that maps (x_n, y_n) to the parameters; without it they are each data point's own (`local`).
    latent_dim : int
        D_w.
    expectation : {"draws", "closed", "importance"}, default="draws"
        By draws, by closed-form kernel expectations, or the importance-weighted bound.
    count : int, default=1
        Draws a data point.
    full : bool, default=False
        Whether Σ is full.
    """

    recognition: MLP | None
    latent_dim: int = eqx.field(static=True)
    expectation: str = eqx.field(static=True, default="draws")
    count: int = eqx.field(static=True, default=1)
    full: bool = eqx.field(static=True, default=False)

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "latent_dim")

    def __check_init__(self) -> None:
        if self.expectation not in ("draws", "closed", "importance"):
            raise ValueError(f"expectation must be 'draws', 'closed' or 'importance', got {self.expectation!r}")
        if self.count < 1:
            raise ValueError(f"the number of draws must be at least 1, got {self.count}")

    @classmethod
    def upgraded(cls, fields: dict[str, Any], written: int) -> dict[str, Any]:
        """The fields in a file of format 1, where D_w had another name."""
        if written == 1:
            fields["latent_dim"] = fields.pop("dim")
        return fields

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
        """q(w_n) from a tanh network of x and y.

        Parameters
        ----------
        key : PRNG key
            Of the first weights.
        input_rows : int
            The number of dense features and category levels together.
        outputs : int
            D_y, the number of columns of y.
        dim : int
            D_w.
        hidden : tuple of int, default=(50, 50, 50)
            The widths of the hidden layers.
        expectation : {"draws", "closed", "importance"}, default="draws"
            By draws, by closed-form kernel expectations, or the importance-weighted bound.
        count : int, default=1
            Draws a data point.
        full : bool, default=False
            Whether Σ is full.
        """
        sizes = (input_rows + outputs, *hidden, cls.local_dim_of(dim, full))
        return cls(MLP.create(key, sizes), dim, expectation, count, full)

    @staticmethod
    def local_dim_of(dim: int, full: bool) -> int:
        """How many numbers a Gaussian of `dim` dimensions takes: its mean, then its scale."""
        return dim + (dim * (dim + 1) // 2 if full else dim)

    @property
    def dim(self) -> int:
        return self.latent_dim

    @property
    def local_dim(self) -> int:
        return 0 if self.recognition is not None else self.local_dim_of(self.dim, self.full)

    @property
    def draw_shape(self) -> tuple[int, int]:
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

    def bound(
        self, evidence: Evidence, local: Float[Array, "n p"] | None, draws: Float[Array, "n k d"]
    ) -> Float[Array, ""]:
        q = self.gaussian(evidence.x, evidence.y, local)
        if self.expectation == "closed":
            return evidence.closed(q) - evidence.total(evidence.prior.kl(evidence.x, q))
        w = q.at(draws)
        ell = evidence.at(w) + evidence.prior.log_ratio(evidence.x, w)
        if self.expectation == "draws":
            return evidence.total(ell.mean(1) - q.kl())
        # log N(w; 0, I) - log q(w), with the draws standing for q's own standardised residual
        log_ratio = 0.5 * (draws**2 - w**2).sum(-1) + q.log_det()[:, None]
        return evidence.total(jax.nn.logsumexp(ell + (log_ratio - jnp.log(self.count)), axis=1))

    def infer(self, evidence: Evidence) -> LatentPosterior:
        q = self.gaussian(evidence.x, evidence.y, self._climbed(evidence) if self.local_dim else None)
        return LatentPosterior(q.mean, q.std())

    def _climbed(self, evidence: Evidence) -> Float[Array, "n p"]:
        """Each data point's own q(w_n), from N(0, I), by Adam on the bound with everything else held fixed."""
        rows, key = evidence.x.n_rows, jax.random.key(0)

        def bound(local: Array, step: Array) -> Array:
            draws = jax.random.normal(jax.random.fold_in(key, step), (rows, *self.draw_shape))
            return self.bound(evidence, local, draws)

        return climb(bound, jnp.zeros((rows, self.local_dim)), INFER_STEPS, 0.05)

    def start(
        self, x: Inputs, y: Float[AnyArray, "n D"], w: Float[np.ndarray, "n d"]
    ) -> tuple["GaussianLatents", Float[Array, "n p"] | None]:
        scale = np.zeros(self.local_dim_of(self.dim, self.full) - self.dim)
        places = np.cumsum(np.arange(1, self.dim + 1)) - 1 if self.full else slice(None)
        scale[places] = np.log(START_STD)
        raw = on_device(np.concatenate([w, np.broadcast_to(scale, (len(w), len(scale)))], axis=1))
        if self.recognition is None:
            return self, raw
        network = taught(self.recognition, *on_device((x, y, raw)))
        return eqx.tree_at(lambda q: q.recognition, self, network), None

    def proposal(self, x: Inputs, y: Float[Array, "n D"]) -> Gaussian:
        if self.recognition is None:
            raise ValueError("importance sampling needs a recognition network: inference='amortised'")
        return self.gaussian(x, y, None)


def recognise(network: MLP, x: Inputs, y: Float[Array, "n D"]) -> Float[Array, "n p"]:
    """The network's output for [x, y], the categories of x by look-up."""
    first = network.weights[0]
    rows = first.shape[0] - y.shape[1]
    return network.after_first(linear(x, first[:rows]) + product(y, first[rows:]))


@compiled
def taught(network: MLP, x: Inputs, y: Float[Array, "n D"], target: Float[Array, "n p"]) -> MLP:
    """The recognition network after learning by least squares to say what is guessed."""
    return climb(lambda n, _: -jnp.mean((recognise(n, x, y) - target) ** 2), network, TAUGHT_STEPS, 0.01)
