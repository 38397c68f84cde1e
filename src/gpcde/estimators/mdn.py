"""Mixture density networks (Bishop 1994): a network gives the mixture at every x.

    p(y|x) = sum_k π_k(x) N(y | μ_k(x), Σ_k(x)),     Σ_k = L_k L_kᵀ, L_k diagonal or lower triangular

With `early_stopping` (on held-out rows, with weight decay) it is what a careful engineer would fit; without both, the
network of the paper, which learns the training rows by heart where they are few. The components start at the clusters
of y, so that none is lost from the beginning.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from threadpoolctl import threadpool_limits

from ..density.components import Components
from ..density.conditional import Source
from ..model.gaussians import LOG_2PI
from ..model.inputs import Inputs, linear
from ..model.networks import MLP
from ..runtime.compilation import compiled
from ..runtime.files import Stored, check_positive
from ..runtime.memory import require_memory
from ..runtime.precision import scope
from ..runtime.randomness import key_of
from .base import DensityEstimator, Rows, check_number, seed_of
from .network_training import after_first, check_grid, evaluated, train_best

LEAST_LOG_STD = -5.0
"""The narrowest a component may be, in standard units: on one row alone it would shrink for ever."""

MOST_LOG_STD = 3.0
"""The widest: far from all rows a network may ask for one whose square is no number."""


class NetworkOutput(NamedTuple):
    """What the network says of some rows."""

    log_weight: Float[Array, "n k"]
    mean: Float[Array, "n k D"]
    root: Float[Array, "n k D D"]


class MixtureNetwork(Stored):
    """A network whose output is read as log weights, means and lower triangular roots of the covariances."""

    mlp: MLP
    components: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    dropout: float = eqx.field(static=True, default=0.0)

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "components", "outputs")
        check_positive(self, "dropout", least=0)
        width, each = self.mlp.weights[-1].shape[1], self.components * self.outputs
        if width not in (self.components + 2 * each, self.components + 2 * each + each * (self.outputs - 1) // 2):
            raise ValueError(f"MixtureNetwork cannot read {width} numbers as {self.components} components")

    def __call__(self, x: Inputs, key: PRNGKeyArray | None = None) -> NetworkOutput:
        raw = after_first(self.mlp, linear(x, self.mlp.weights[0]), self.dropout, key)
        return as_mixture(raw, self.components, self.outputs)

    def loss(
        self, x: Inputs, y: Float[Array, "n D"], weight: Float[Array, " n"], key: PRNGKeyArray, training: bool
    ) -> Float[Array, ""]:
        """Minus the mean log density."""
        return -jnp.average(log_density(self(x, key if training else None), y), weights=weight)

    def paced(self, updates: "MixtureNetwork") -> "MixtureNetwork":
        """The updates of a step, as they are."""
        return updates


def as_mixture(raw: Float[Array, "n o"], components: int, outputs: int) -> NetworkOutput:
    """The output of a network as so many components: log weights, means, log scales, and roots off their diagonals."""
    shape, each = (raw.shape[0], components, outputs), components * outputs
    logits, mean, log_std, rest = jnp.split(raw, np.cumsum([components, each, each]), axis=1)
    log_std = jnp.minimum(log_std.reshape(shape), MOST_LOG_STD)
    std = jnp.exp(LEAST_LOG_STD + jax.nn.softplus(log_std - LEAST_LOG_STD))
    root = std[..., None] * jnp.eye(outputs, dtype=raw.dtype)
    if rest.shape[1]:
        rows, columns = np.tril_indices(outputs, -1)
        # off the diagonal in units of the row's own spread
        root = root.at[:, :, rows, columns].set(rest.reshape(*shape[:2], len(rows)) * std[:, :, rows])
    return NetworkOutput(jax.nn.log_softmax(logits, axis=1), mean.reshape(shape), root)


def log_density(m: NetworkOutput, y: Float[Array, "n D"]) -> Float[Array, " n"]:
    """log p(y_n|x_n)."""
    gap = (y[:, None] - m.mean)[..., None]
    one = y.shape[1] == 1  # for which there is nothing to solve
    scaled = (gap / m.root if one else jax.scipy.linalg.solve_triangular(m.root, gap, lower=True))[..., 0]
    log_det = jnp.log(jnp.diagonal(m.root, axis1=2, axis2=3)).sum(2)
    return jax.nn.logsumexp(m.log_weight - log_det - 0.5 * ((scaled**2).sum(2) + y.shape[1] * LOG_2PI), axis=1)


def first_bias(z: Float[np.ndarray, "n D"], components: int, full: bool) -> Float[np.ndarray, " o"]:
    """What a network says before it has learnt, the same everywhere: a component at each cluster of y."""
    from sklearn.cluster import KMeans  # much memory that prediction does not need

    outputs = z.shape[1]
    clusters = min(components, len(np.unique(z, axis=0)))
    with threadpool_limits(1, user_api="openmp"):
        centres = KMeans(clusters, n_init=1, random_state=0).fit(z).cluster_centers_
    log_std = np.full(components * outputs, -np.log(components) / outputs)
    off = components * outputs * (outputs - 1) // 2 if full else 0
    return np.concatenate([np.zeros(components), np.resize(centres, log_std.shape), log_std, np.zeros(off)])


@compiled
def _outputs(network: Callable[[Inputs], NetworkOutput], x: Inputs) -> NetworkOutput:
    return network(x)


@compiled
def _log_densities(network: Callable[[Inputs], NetworkOutput], x: Inputs, y: Float[Array, "n D"]) -> Float[Array, " n"]:
    return log_density(network(x), y)


def components_of(network: Callable[[Inputs], NetworkOutput], x: Inputs, full: bool) -> Components:
    """What a trained network says of any number of rows; `full` where components have axes of their own."""
    log_weight, mean, root = evaluated(network, _outputs, x)
    if not full or mean.shape[2] == 1:
        return Components(log_weight, mean, np.diagonal(root, axis1=2, axis2=3) ** 2)
    return Components.of_covariances(log_weight, mean, root @ np.swapaxes(root, 2, 3))


def log_densities_of(
    network: Callable[[Inputs], NetworkOutput], x: Inputs, z: Float[np.ndarray, "n D"]
) -> Float[np.ndarray, " n"]:
    """log p(z_n|x_n) of any number of rows, by a trained network."""
    return evaluated(network, _log_densities, x, z)


class MDN(DensityEstimator):
    """A mixture density network: p(y|x) = sum_k π_k(x) N(y | μ_k(x), Σ_k(x)), all from one network.

    Parameters
    ----------
    n_components : int, default=5
        K.
    hidden : tuple of int, default=(50, 50, 50)
        The sizes of the hidden layers, with tanh.
    covariance : {"diagonal", "full"}, default="diagonal"
        Of each component.
    early_stopping : bool, default=True
        Hold out `validation_fraction` of the rows, and end (with the best network) when their log density has not risen
        for `patience` epochs.
    validation_fraction : float, default=0.2
        The fraction of the rows that `early_stopping` holds out.
    patience : int, default=50
        How many epochs `early_stopping` waits.
    weight_decay : float, default=0.01
        Of AdamW.
    dropout : float, default=0.0
        The rate, on the output of the hidden layers; None: the best of 0.2, 0.1, 0.01 and 0 on held-out rows.
    y_transform : {"log", "logit"}, default=None
        "log" for y above a bound, "logit" for y between two.
    y_bounds : (float, float), default=None
        (low, high); by default 0 and infinity, or 0 and 1.
    max_epochs : int, default=1000
        How many passes over the rows training takes at most.
    batch_size : int, default=128
        Rows a step takes.
    learning_rate : float, default=0.001
        Of AdamW; None: the best of 0.01, 0.001 and 0.0001 on held-out rows.
    random_state : int, RandomState or None, default=None
        A seed.

    Attributes
    ----------
    network_ : MixtureNetwork
        The trained network.
    n_epochs_ : int
        Epochs until the best network.
    best_params_ : dict
        The dropout and the learning rate that were chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import MDN
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 1))
    >>> y = rng.choice([-1.0, 1.0], 200) + 0.1 * rng.standard_normal(200)
    >>> model = MDN(n_components=2, hidden=(8,), max_epochs=100, learning_rate=0.01, random_state=0).fit(X, y)
    >>> density = model.predict_density([[0.0]])
    >>> bool(density.pdf(1.0)[0] > 10 * density.pdf(0.0)[0])
    True
    """

    _learnt: ClassVar[tuple[str, ...]] = (*DensityEstimator._learnt, "network_", "n_epochs_", "best_params_")

    network_: MixtureNetwork
    n_epochs_: int
    best_params_: dict[str, float]

    def __init__(
        self,
        *,
        n_components: int = 5,
        hidden: tuple[int, ...] = (50, 50, 50),
        covariance: str = "diagonal",
        early_stopping: bool = True,
        validation_fraction: float = 0.2,
        patience: int = 50,
        weight_decay: float = 1e-2,
        dropout: float | None = 0.0,
        y_transform: str | None = None,
        y_bounds: tuple[float, float] | None = None,
        max_epochs: int = 1000,
        batch_size: int = 128,
        learning_rate: float | None = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.hidden = hidden
        self.covariance = covariance
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.y_transform = y_transform
        self.y_bounds = y_bounds
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "MDN":
        """Learn p(y|x) from the rows of X and y.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Numbers; columns of text or categories in a data frame are categories.
        y : array of shape (n,) or (n, D)
            Outputs.

        Returns
        -------
        MDN
            Itself.
        """
        if self.covariance not in ("diagonal", "full"):
            raise ValueError(f"covariance must be 'diagonal' or 'full', got {self.covariance!r}")
        self._check_positive_integers("n_components", "max_epochs", "batch_size", "patience")
        check_grid(self.dropout, self.learning_rate)
        check_number("weight_decay", self.weight_decay, 0, closed=True)
        self._check_validation()
        self.__dict__.pop("network_", None)  # if this fit fails, the model is not fitted
        x, z = self._learn_tables(X, y, self.y_transform, self.y_bounds)
        seed = seed_of(self.random_state)
        with scope():
            key = key_of(seed)
            self.network_, self.n_epochs_, self.best_params_ = train_best(
                lambda dropout: self._first_network(key, x, z, dropout),
                key,
                Rows(x, z, np.ones(len(z))),
                np.random.default_rng(seed),
                dropout=self.dropout,
                learning_rate=self.learning_rate,
                early_stopping=self.early_stopping,
                validation_fraction=self.validation_fraction,
                patience=self.patience,
                weight_decay=self.weight_decay,
                batch_size=self.batch_size,
                max_epochs=self.max_epochs,
            )
        return self

    def _first_network(
        self, key: PRNGKeyArray, x: Inputs, z: Float[np.ndarray, "n D"], dropout: float = 0.0
    ) -> MixtureNetwork:
        """A network that says nearly the same mixture everywhere: a component at each cluster of y."""
        count, outputs = self.n_components, z.shape[1]
        sizes = [self.features_.width, *self.hidden, count * outputs]
        require_memory(f"hidden={self.hidden} with n_components={count}", [*pairwise(sizes)] * 4)
        bias = first_bias(z, count, full=self.covariance == "full")
        network = MLP.create(key, (self.features_.width, *self.hidden, len(bias)), last_scale=0.1)
        mlp = MLP(network.weights, (*network.biases[:-1], jnp.asarray(bias)))
        return MixtureNetwork(mlp, count, outputs, float(dropout))

    def _restored(self) -> None:
        if self.network_.outputs != self.n_outputs_:
            raise ValueError("its outputs do not fit its network")
        self.network_ = jax.tree.map(np.asarray, self.network_)
        with scope():
            jax.eval_shape(jax.tree.map(jnp.asarray, self.network_), self.features_.blank())

    def _source(self, inputs: Inputs) -> Source:
        def components(rows: Int[np.ndarray, " b"]) -> Components:
            return components_of(self.network_, inputs.take(rows), full=self.covariance == "full")

        def log_pdf(rows: Int[np.ndarray, " b"], z: Float[np.ndarray, "b D"]) -> Float[np.ndarray, " b"]:
            return log_densities_of(self.network_, inputs.take(rows), z)

        return Source(components, log_pdf)
