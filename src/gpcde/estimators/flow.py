"""A conditional normalising flow (`pip install gpcde[flow]`): the modern rival the paper did not have.

    y = T(e; x),   e ~ N(0, I),   log p(y|x) = log N(T⁻¹(y; x)) + log |dT⁻¹/dy|

T is a stack of masked autoregressive layers of rational quadratic splines whose knots depend on x, from flowjax. Its
answer is no mixture of Gaussians: `SampledDensity` has `log_pdf` and `sample`, and all else follows from samples.
"""

from functools import cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float, PRNGKeyArray

from ..density.conditional import check_level, check_quantiles, check_size
from ..density.transforms import OutputTransform
from ..model.inputs import Numbers, one_hot
from ..model.quadrature import quasi_random
from ..runtime import files
from ..runtime.extras import extra
from ..runtime.precision import scope
from ..runtime.randomness import key_of
from .base import DensityEstimator, seed_of
from .network_training import evaluated

with extra("flow"):
    from flowjax.bijections import RationalQuadraticSpline
    from flowjax.distributions import Normal
    from flowjax.flows import masked_autoregressive_flow
    from flowjax.train import fit_to_data
    from flowjax.train.losses import MaximumLikelihoodLoss

DRAWS = 1024
"""Samples of every row from which moments, quantiles and scores follow."""

ROWS_AT_ONCE = 2**16
"""How many points the flow takes together."""


class SampledDensity:
    """p(y|x_n) for a batch of rows: exact log densities, and what samples tell. Rows come first in every result.

    Parameters
    ----------
    flow : flowjax distribution
        Of standard units, given the features.
    x : array of shape (n, k)
        The features of each row.
    transform : OutputTransform
        From standard units to those of y.
    flat : bool
        Whether the one output has no axis of its own.
    """

    def __init__(self, flow: Any, x: Float[np.ndarray, "n k"], transform: OutputTransform, flat: bool) -> None:
        self._flow, self._x, self._transform, self._flat = flow, x, transform, flat
        self._kept: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self._x)

    @property
    def n_outputs(self) -> int:
        """D_y."""
        return len(self._transform.location)

    def log_pdf(self, y: Numbers) -> Float[np.ndarray, " n"]:
        """log p(y_n|x_n), joint over the outputs.

        Parameters
        ----------
        y : array of shape (n,) or (n, D)
            A point for each row.

        Returns
        -------
        array of shape (n,)
            -inf outside the support of a transformed y.
        """
        return self.log_pdf_at(np.asarray(y, float).reshape(len(self), 1, self.n_outputs))[:, 0]

    def log_pdf_at(self, y: Numbers) -> Float[np.ndarray, "n g"]:
        """The joint log density at several points of each row.

        Parameters
        ----------
        y : array of shape (n, g) or (n, g, D)
            As `sample` gives them.

        Returns
        -------
        array of shape (n, g)
            -inf outside the support of a transformed y.
        """
        points = np.asarray(y, float).reshape(len(self), -1, self.n_outputs)
        z = self._transform.to_standard(points.reshape(-1, self.n_outputs))
        inside = np.isfinite(z).all(1)
        safe = np.where(inside[:, None], z, 0.0)
        logs = evaluated(self._flow, _log_prob, safe, np.repeat(self._x, points.shape[1], axis=0), most=ROWS_AT_ONCE)
        out = np.where(inside, logs - self._transform.log_slope(safe).sum(1), -np.inf)
        return out.reshape(points.shape[:2])

    def pdf(self, y: Numbers) -> Float[np.ndarray, " n"]:
        """p(y_n|x_n), joint over the outputs; as `log_pdf`."""
        return np.exp(self.log_pdf(y))

    def sample(self, size: int = 1, random_state: int | np.random.Generator | None = None) -> np.ndarray:
        """Draws of y.

        Parameters
        ----------
        size : int, default=1
            How many draws each row has.
        random_state : int, Generator or None, default=None
            A seed.

        Returns
        -------
        array of shape (n, size) or (n, size, D)
            In the units of y.
        """
        check_size(size)
        rng = np.random.default_rng(random_state)
        return self._drawn(rng.standard_normal((len(self), size, self.n_outputs)))

    def _drawn(self, noise: Float[np.ndarray, "n s D"]) -> np.ndarray:
        z = evaluated(self._flow, _forward, noise, self._x, most=ROWS_AT_ONCE // noise.shape[1])
        y = self._transform.from_standard(z)
        return y[..., 0] if self._flat else y

    def _samples(self) -> np.ndarray:
        """Quasi-random draws, of noise that all rows share: a row's answer does not depend on the others."""
        if self._kept is None:
            noise = quasi_random(DRAWS, self.n_outputs)[0]
            self._kept = self._drawn(np.repeat(noise[None], len(self), axis=0))
        return self._kept

    def mean(self) -> np.ndarray:
        """E[y|x], of shape (n,) or (n, D)."""
        return self._samples().mean(1)

    def var(self) -> np.ndarray:
        """The variance of each output, of shape (n,) or (n, D)."""
        return self._samples().var(1)

    def quantile(self, level: Numbers) -> np.ndarray:
        """The values below which each output lies with these probabilities.

        Parameters
        ----------
        level : float or array of shape (l,)
            Between 0 and 1.

        Returns
        -------
        array of shape (n,) or (n, l); (n, D) or (n, l, D) with several outputs
            In the units of y.
        """
        levels = np.asarray(level, float)
        check_quantiles(level)
        out = np.quantile(self._samples(), levels, axis=1)
        return np.moveaxis(out, 0, 1) if levels.ndim else out

    def interval(self, level: float = 0.9) -> np.ndarray:
        """The central interval of each output that holds it with this probability.

        Parameters
        ----------
        level : float, default=0.9
            Between 0 and 1.

        Returns
        -------
        array of shape (n, 2) or (n, 2, D)
            Lower and upper ends.
        """
        check_level(level)
        return self.quantile([0.5 - 0.5 * level, 0.5 + 0.5 * level])

    def cdf(self, y: Numbers) -> np.ndarray:
        """P(Y_j <= y_nj | x_n), of each output by itself: the share of samples.

        Parameters
        ----------
        y : array of shape (n,) or (n, D)
            A point for each row.

        Returns
        -------
        array of the shape of y
            Between 0 and 1.
        """
        samples = self._samples().reshape(len(self), DRAWS, -1)
        below = (samples <= np.asarray(y, float).reshape(len(self), 1, -1)).mean(1)
        return below[:, 0] if self._flat else below

    def crps(self, y: Numbers) -> np.ndarray:
        """The continuous ranked probability score of each output: lower is better.

        Parameters
        ----------
        y : array of shape (n,) or (n, D)
            What was observed in each row.

        Returns
        -------
        array of the shape of y
            In the units of y.
        """
        ordered = np.sort(self._samples().reshape(len(self), DRAWS, -1), axis=1)
        first = np.abs(ordered - np.asarray(y, float).reshape(len(self), 1, -1)).mean(1)
        weights = (2 * np.arange(1, DRAWS + 1) - DRAWS - 1)[None, :, None]
        out = first - (weights * ordered).sum(1) / DRAWS**2
        return out[:, 0] if self._flat else out

    def energy_score(self, y: Numbers, size: int = 1000, random_state: Any = 0) -> Float[np.ndarray, " n"]:
        """E‖Y - y‖ - E‖Y - Y'‖ / 2 over the outputs together: lower is better.

        Parameters
        ----------
        y : array of shape (n,) or (n, D)
            What was observed in each row.
        size : int, default=1000
            How many pairs of draws each row has.
        random_state : int, Generator or None, default=0
            A seed.

        Returns
        -------
        array of shape (n,)
            In the units of y.
        """
        check_size(size)
        rng = np.random.default_rng(random_state)
        one, two = (self.sample(size, rng).reshape(len(self), size, -1) for _ in range(2))
        gap = np.linalg.norm(one - np.asarray(y, float).reshape(len(self), 1, -1), axis=2).mean(1)
        return gap - 0.5 * np.linalg.norm(one - two, axis=2).mean(1)


@eqx.filter_jit
def _log_prob(flow: Any, z: Any, x: Any) -> Any:
    return flow.log_prob(z, condition=x)


@eqx.filter_jit
def _forward(flow: Any, noise: Any, x: Any) -> Any:
    """Every row's outputs for noise of its own."""
    return jax.vmap(lambda es, c: jax.vmap(lambda e: flow.bijection.transform(e, c))(es))(noise, x)


def _make_flow(key: PRNGKeyArray, outputs: int, features: int, layers: int, width: int, knots: int) -> Any:
    """A flow that does nothing yet."""
    return masked_autoregressive_flow(
        key,
        base_dist=Normal(jnp.zeros(outputs)),
        transformer=RationalQuadraticSpline(knots=knots, interval=5),
        cond_dim=features,
        flow_layers=layers,
        nn_width=width,
    )


# functions made once: what is compiled for a flow then serves every other of its sizes


@cache
def _frame(*sizes: int) -> Any:
    """What of a flow is no array."""
    with scope():
        return eqx.partition(_make_flow(key_of(0), *sizes), eqx.is_array)[1]


@cache
def _adam(learning_rate: float) -> optax.GradientTransformation:
    return optax.adam(learning_rate)


LOSS = MaximumLikelihoodLoss()


class Flow(DensityEstimator):
    """A conditional normalising flow: y = T(e; x), e ~ N(0, I), T a stack of autoregressive splines.

    Needs `pip install gpcde[flow]`. A part of the rows is held out, to tell when to stop.

    Parameters
    ----------
    layers : int, default=4
        Autoregressive layers.
    width : int, default=50
        Units of their networks.
    knots : int, default=8
        Knots of the splines.
    validation_fraction : float, default=0.2
        The fraction of the rows that are held out.
    patience : int, default=30
        How many epochs to wait for the log density of the held-out rows to rise.
    y_transform : {"log", "logit"}, default=None
        "log" for y above a bound, "logit" for y between two.
    y_bounds : (float, float), default=None
        (low, high); by default 0 and infinity, or 0 and 1.
    max_epochs : int, default=500
        How many passes over the rows training takes at most.
    batch_size : int, default=128
        Rows a step takes.
    learning_rate : float, default=0.002
        Of Adam.
    random_state : int, RandomState or None, default=None
        A seed.

    Attributes
    ----------
    leaves_ : list of arrays
        The numbers of the trained flow.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import Flow
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (100, 1))
    >>> y = X[:, 0] + 0.1 * rng.standard_normal(100)
    >>> model = Flow(layers=1, width=8, max_epochs=20, random_state=0).fit(X, y)
    >>> model.predict_density(X[:3]).sample(5, random_state=0).shape
    (3, 5)
    """

    _learnt: ClassVar[tuple[str, ...]] = (*DensityEstimator._learnt, "leaves_")

    leaves_: list[np.ndarray]

    def __init__(
        self,
        *,
        layers: int = 4,
        width: int = 50,
        knots: int = 8,
        validation_fraction: float = 0.2,
        patience: int = 30,
        y_transform: str | None = None,
        y_bounds: tuple[float, float] | None = None,
        max_epochs: int = 500,
        batch_size: int = 128,
        learning_rate: float = 2e-3,
        random_state: Any = None,
    ) -> None:
        self.layers = layers
        self.width = width
        self.knots = knots
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.y_transform = y_transform
        self.y_bounds = y_bounds
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "Flow":
        """Learn p(y|x) from the rows of X and y.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Numbers; columns of text or categories in a data frame are categories.
        y : array of shape (n,) or (n, D)
            Outputs.

        Returns
        -------
        Flow
            Itself.
        """
        self._check_positive_integers("layers", "width", "knots", "max_epochs", "batch_size", "patience")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate!r}")
        self._check_validation()
        self.__dict__.pop("leaves_", None)
        x, z = self._learn_tables(X, y, self.y_transform, self.y_bounds)
        seed = seed_of(self.random_state)
        with scope():
            key = key_of(seed)
            features = one_hot(x, sum(self.features_.levels))
            arrays, _ = eqx.partition(_make_flow(key, *self._sizes(features.shape[1])), eqx.is_array)
            flow, _ = fit_to_data(
                key,
                eqx.combine(arrays, _frame(*self._sizes(features.shape[1]))),
                (jnp.asarray(z), jnp.asarray(features)),
                optimizer=_adam(self.learning_rate),
                loss_fn=LOSS,
                max_epochs=self.max_epochs,
                max_patience=self.patience,
                batch_size=min(self.batch_size, len(z)),
                val_prop=max(self.validation_fraction, 1.5 / len(z)),
                show_progress=False,
            )
            self.leaves_ = [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(flow, eqx.is_array))]
        return self

    def predict_density(self, X: Any) -> SampledDensity:  # type: ignore[override]
        """The conditional densities p(y|x) of the rows of X.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Inputs, in the columns that training had.

        Returns
        -------
        SampledDensity
            A batch of n densities.
        """
        inputs = self._apply_tables(X)
        features = one_hot(inputs, sum(self.features_.levels))
        with scope():
            return SampledDensity(self._trained(features.shape[1]), features, self.transform_, self.flat_)

    def _trained(self, features: int) -> Any:
        sizes = self._sizes(features)
        # shapes alone: sizes that a file says are held against its arrays before anything is made of them
        flow = eqx.filter_eval_shape(_make_flow, key_of(0), *sizes)
        blank, tree = jax.tree.flatten(eqx.filter(flow, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)))
        if [leaf.shape for leaf in blank] != [leaf.shape for leaf in self.leaves_]:
            raise ValueError("its arrays do not fit its flow")
        return eqx.combine(jax.tree.unflatten(tree, [jnp.asarray(leaf) for leaf in self.leaves_]), _frame(*sizes))

    def _sizes(self, features: int) -> tuple[int, int, int, int, int]:
        return self.n_outputs_, features, self.layers, self.width, self.knots

    def _restored(self) -> None:
        files.check_numbers("leaves_", self.leaves_)
        with scope():
            self._trained(self.features_.width)
