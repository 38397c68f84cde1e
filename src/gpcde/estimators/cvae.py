"""The conditional variational autoencoder: the paper's neural rival with the same latent variable.

    y = decoder(x, w) + N(0, σ² I),   w ~ N(0, I),   q(w|x, y) = N(mean, diag std²) from an encoder

Tanh layers, dropout on the output of the hidden ones, Xavier weights, trained by the evidence lower bound with one draw
of w; log σ² is learnt ten times as fast as the rest. Two architectures, as in the paper's appendix: "small" for tables,
"images" (the decoder ends in a sigmoid, and y is not standardised) for outputs between 0 and 1.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy.special import logsumexp

from ..density.components import Components
from ..density.conditional import Source
from ..density.transforms import OutputTransform
from ..model.gaussians import LOG_2PI, diagonal_kl
from ..model.inputs import AnyArray, Inputs, linear
from ..model.networks import MLP
from ..model.quadrature import quasi_random
from ..runtime.compilation import compiled
from ..runtime.files import Stored, check_positive
from ..runtime.precision import scope
from ..runtime.randomness import key_of
from .base import DensityEstimator, Rows, check_number, check_positive_integer, seed_of
from .network_training import after_first, check_grid, evaluated, train_best

ARCHITECTURES = {
    "small": ((50, 100, 50), (10, 50, 50, 10)),
    "images": ((256, 64), (64, 256, 256, 256, 1024)),
}
"""Hidden layers of the encoder and of the decoder."""

DRAWS = 1024
"""Draws of w that make the mixture of a prediction."""

NUMBERS_AT_ONCE = 2**24
"""How many numbers a layer of the decoder may give at once."""


class Autoencoder(Stored):
    """Encoder, decoder, and the noise between the decoder and y."""

    encoder: MLP
    decoder: MLP
    log_noise_variance: Float[Array, ""]
    latent_dim: int = eqx.field(static=True)
    squash: bool = eqx.field(static=True)
    learn_noise: bool = eqx.field(static=True)
    dropout: float = eqx.field(static=True)
    noise_rate: float = eqx.field(static=True, default=1.0)

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "latent_dim", "noise_rate")
        check_positive(self, "dropout", least=0)

    @property
    def noise_variance(self) -> Float[Array, ""]:
        log = self.log_noise_variance if self.learn_noise else jax.lax.stop_gradient(self.log_noise_variance)
        return jnp.exp(log)

    def encode(
        self, x: Inputs, y: Float[Array, "n D"], key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
        """Mean and log standard deviation of q(w|x, y); dropout where there is a key."""
        first = self.encoder.weights[0]
        rows = first.shape[0] - y.shape[1]
        raw = after_first(self.encoder, linear(x, first[:rows]) + y @ first[rows:], self.dropout, key)
        return raw[:, : self.latent_dim], raw[:, self.latent_dim :]

    def decode(self, x: Inputs, w: Float[Array, "#n k d"], key: PRNGKeyArray | None = None) -> Float[Array, "n k D"]:
        """The mean of y at k latents of every row."""
        first = self.decoder.weights[0]
        rows = first.shape[0] - self.latent_dim
        raw = after_first(self.decoder, linear(x, first[:rows])[:, None] + w @ first[rows:], self.dropout, key)
        return jax.nn.sigmoid(raw) if self.squash else raw

    def paced(self, updates: "Autoencoder") -> "Autoencoder":
        """The updates of a step, that of log σ² `noise_rate` times as large."""
        return eqx.tree_at(lambda n: n.log_noise_variance, updates, self.noise_rate * updates.log_noise_variance)

    def loss(
        self, x: Inputs, y: Float[Array, "n D"], weight: Float[Array, " n"], key: PRNGKeyArray, training: bool
    ) -> Float[Array, ""]:
        """Minus the evidence lower bound, a row, with one draw of w."""
        keys = jax.random.split(key, 3)
        mean, log_std = self.encode(x, y, keys[0] if training else None)
        w = mean + jnp.exp(log_std) * jax.random.normal(keys[1], mean.shape)
        data = self.log_likelihood(x, y, w[:, None], keys[2] if training else None)[:, 0]
        return -jnp.average(data - diagonal_kl(mean, log_std).sum(1), weights=weight)

    def log_likelihood(
        self, x: Inputs, y: Float[Array, "n D"], w: Float[Array, "n k d"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "n k"]:
        """log p(y_n|x_n, w_nk)."""
        gap, noise = y[:, None] - self.decode(x, w, key), self.noise_variance
        return -0.5 * ((gap**2).sum(2) / noise + y.shape[1] * (LOG_2PI + jnp.log(noise)))


class CVAE(DensityEstimator):
    """A conditional variational autoencoder: y = decoder(x, w) + N(0, σ² I), w ~ N(0, I), trained with an encoder.

    Parameters
    ----------
    latent_dim : int, default=1
        D_w, the number of latents of a data point.
    architecture : {"small", "images"}, default="small"
        The layers; "images" takes y as it is, between 0 and 1.
    noise_variance : float, default=None
        σ², fixed at this value in the units the network sees; None: learnt.
    dropout : float, default=0.0
        The rate; None: the best of 0.2, 0.1, 0.01 and 0 on held-out rows.
    learning_rate : float, default=0.001
        Of Adam; None: the best of 0.01, 0.001 and 0.0001 on held-out rows.
    noise_rate : float, default=10.0
        How many times that rate is log σ²'s own: Adam moves it by no more than its rate a step, and it may have far
        to go.
    early_stopping : bool, default=True
        Hold out `validation_fraction` of the rows, and end (with the best network) when their bound has not risen for
        `patience` epochs.
    validation_fraction : float, default=0.2
        The fraction of the rows that are held out.
    patience : int, default=300
        How many epochs `early_stopping` waits.
    y_transform : {"log", "logit"}, default=None
        "log" for y above a bound, "logit" for y between two.
    y_bounds : (float, float), default=None
        (low, high); by default 0 and infinity, or 0 and 1.
    max_epochs : int, default=2000
        How many passes over the rows training takes at most.
    batch_size : int, default=128
        Rows a step takes.
    random_state : int, RandomState or None, default=None
        A seed.

    Attributes
    ----------
    network_ : Autoencoder
        Encoder, decoder and noise.
    n_epochs_ : int
        Epochs until the best network.
    best_params_ : dict
        The dropout and the learning rate that were chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import CVAE
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (100, 1))
    >>> y = X[:, 0] + 0.1 * rng.standard_normal(100)
    >>> model = CVAE(max_epochs=50, learning_rate=0.01, random_state=0).fit(X, y)
    >>> model.predict_density(X[:3]).interval(0.9).shape
    (3, 2)
    """

    _learnt: ClassVar[tuple[str, ...]] = (*DensityEstimator._learnt, "network_", "n_epochs_", "best_params_")

    network_: Autoencoder
    n_epochs_: int
    best_params_: dict[str, float]

    def __init__(
        self,
        *,
        latent_dim: int = 1,
        architecture: str = "small",
        noise_variance: float | None = None,
        dropout: float | None = 0.0,
        learning_rate: float | None = 0.001,
        noise_rate: float = 10.0,
        early_stopping: bool = True,
        validation_fraction: float = 0.2,
        patience: int = 300,
        y_transform: str | None = None,
        y_bounds: tuple[float, float] | None = None,
        max_epochs: int = 2000,
        batch_size: int = 128,
        random_state: Any = None,
    ) -> None:
        self.latent_dim = latent_dim
        self.architecture = architecture
        self.noise_variance = noise_variance
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.noise_rate = noise_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.y_transform = y_transform
        self.y_bounds = y_bounds
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "CVAE":
        """Learn p(y|x) from the rows of X and y.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Numbers; columns of text or categories in a data frame are categories.
        y : array of shape (n,) or (n, D)
            Outputs.

        Returns
        -------
        CVAE
            Itself.
        """
        if self.architecture not in ARCHITECTURES:
            raise ValueError(f"architecture must be one of {tuple(ARCHITECTURES)}, got {self.architecture!r}")
        if self.noise_variance is not None and not self.noise_variance > 0:
            raise ValueError(f"noise_variance must be positive, or None to learn it, got {self.noise_variance!r}")
        check_grid(self.dropout, self.learning_rate)
        check_number("noise_rate", self.noise_rate, 0)
        self._check_validation()
        if self.architecture == "images" and self.y_transform is not None:
            raise ValueError("architecture='images' takes y as it is, between 0 and 1: leave y_transform out")
        self._check_positive_integers("latent_dim", "max_epochs", "batch_size", "patience")
        self.__dict__.pop("network_", None)
        images = self.architecture == "images"
        x, z = self._learn_tables(X, y, self.y_transform, self.y_bounds, common_scale=images)
        if images:
            z = self.transform_.from_standard(z)
            if z.min() < -1e-9 or z.max() > 1 + 1e-9:  # standard units and back leave rounding
                raise ValueError("architecture='images' needs every y between 0 and 1: scale y, or use 'small'")
            z = np.clip(z, 0, 1)
            self.transform_ = OutputTransform.identity(z.shape[1])
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
                weight_decay=0.0,
                batch_size=self.batch_size,
                max_epochs=self.max_epochs,
            )
        return self

    def _first_network(self, key: PRNGKeyArray, x: Inputs, z: Float[np.ndarray, "n D"], dropout: float) -> Autoencoder:
        rows, outputs, dim = self.features_.width, z.shape[1], self.latent_dim
        encoder, decoder = ARCHITECTURES[self.architecture]
        keys = jax.random.split(key)
        noise = float(z.var()) if self.noise_variance is None else self.noise_variance
        return Autoencoder(
            MLP.create(keys[0], (rows + outputs, *encoder, 2 * dim)),
            MLP.create(keys[1], (rows + dim, *decoder, outputs)),
            jnp.asarray(np.log(noise)),
            dim,
            self.architecture == "images",
            self.noise_variance is None,
            float(dropout),
            float(self.noise_rate),
        )

    def _restored(self) -> None:
        network, dim, rows = self.network_, self.latent_dim, self.features_.width
        ends = [(mlp.weights[0].shape[0], mlp.weights[-1].shape[1]) for mlp in (network.encoder, network.decoder)]
        if network.latent_dim != dim or ends != [(rows + self.n_outputs_, 2 * dim), (rows + dim, self.n_outputs_)]:
            raise ValueError("its columns and outputs do not fit its network")
        self.network_ = jax.tree.map(np.asarray, network)

    def _source(self, inputs: Inputs) -> Source:
        """A mixture over quasi-random draws of w: log_pdf is then the Monte Carlo estimate with `DRAWS` draws."""
        w, log_weight = quasi_random(DRAWS, self.latent_dim)
        noise = np.full((1, 1, 1), np.exp(np.float64(self.network_.log_noise_variance)))

        def components(rows: Int[np.ndarray, " b"]) -> Components:
            return Components(log_weight[None], self._decoded(inputs.take(rows), w), noise)

        return Source(components)

    def _decoded(self, x: Inputs, w: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "n k D"]:
        widest = max(weight.shape[1] for weight in self.network_.decoder.weights)
        most = NUMBERS_AT_ONCE // (len(w) * widest)
        return evaluated(self.network_, lambda network, x: _decoded(network, x, w[None]), x, most=most)

    def log_likelihood(
        self, X: Any, y: Any, draws: int = 1000, method: str = "importance", random_state: Any = 0
    ) -> Float[np.ndarray, " n"]:
        """log p(y_n|x_n) from draws of w.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Inputs.
        y : array of shape (n,) or (n, D)
            Outputs.
        draws : int, default=1000
            How many draws of w a row has.
        method : {"importance", "monte carlo"}, default="importance"
            Whether w is drawn from the encoder's q(w|x, y) or from its prior.
        random_state : int, Generator or None, default=0
            A seed.

        Returns
        -------
        array of shape (n,)
            In the units of y.
        """
        if method not in ("importance", "monte carlo"):
            raise ValueError(f"method must be 'importance' or 'monte carlo', got {method!r}")
        check_positive_integer("draws", draws)
        x = self._apply_tables(X)
        outputs = self._apply_outputs(y, x.n_rows)
        z = self.transform_.to_standard(outputs)
        rng = np.random.default_rng(random_state)
        ratios = _ratios_by_encoder if method == "importance" else _ratios_by_prior
        out = np.empty(len(z))
        size = max(1, 2**20 // (draws * max(z.shape[1], 1)))
        for begin in range(0, len(z), size):
            rows = slice(begin, min(begin + size, len(z)))
            noise = rng.standard_normal((rows.stop - begin, draws, self.latent_dim))
            with scope():
                network = jax.tree.map(jnp.asarray, self.network_)
                part = jnp.asarray(z[rows]), jnp.asarray(noise)
                logs = ratios(network, x.take(rows), *part)
            out[rows] = logsumexp(np.asarray(logs), axis=1) - np.log(draws)
        return out - self.transform_.log_slope(z).sum(1)


def decoded(model: CVAE, X: Any, w: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "n k D"]:
    """The mean of y at every row of X and each of the latents, in the units the network sees."""
    return model._decoded(model._apply_tables(X), w)


@compiled
def _decoded(network: Autoencoder, x: Inputs, w: Float[AnyArray, "1 k d"]) -> Float[Array, "n k D"]:
    return network.decode(x, jnp.asarray(w))


@compiled
def _ratios_by_prior(
    network: Autoencoder, x: Inputs, y: Float[Array, "n D"], noise: Float[Array, "n k d"]
) -> Float[Array, "n k"]:
    """log p(y|x, w) at draws from the prior."""
    return network.log_likelihood(x, y, noise)


@compiled
def _ratios_by_encoder(
    network: Autoencoder, x: Inputs, y: Float[Array, "n D"], noise: Float[Array, "n k d"]
) -> Float[Array, "n k"]:
    """log p(y|x, w) p(w) / q(w) at draws from the encoder's q."""
    mean, log_std = network.encode(x, y)
    w = mean[:, None] + jnp.exp(log_std)[:, None] * noise
    log_ratio = 0.5 * (noise**2 - w**2).sum(2) + log_std.sum(1)[:, None]
    return log_ratio + network.log_likelihood(x, y, w)
