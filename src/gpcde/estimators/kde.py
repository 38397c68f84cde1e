"""Kernel density estimation, unconditional and conditional: a Gaussian on every training row.

    KDE              p(y)   = 1/N sum_n N(y | y_n, diag h²)
    ConditionalKDE   p(y|x) = sum_n π_n(x) N(y | y_n, diag h²),    π_n(x) ∝ prod_j k_j(x_j, x_nj)

with Gaussian kernels k_j for numbers and Aitchison and Aitken's for categories (1 - λ for the same level, λ shared by
the others). All bandwidths maximise the leave-one-out log likelihood. `ConditionalKDE(method="neighbours")` is the
simpler one of the paper: the nearest rows in x, all with one weight, and the unconditional bandwidth.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from ..density.components import Components
from ..density.conditional import Source
from ..model.gaussians import LOG_2PI
from ..model.inputs import AnyArray, Inputs, make_inputs, one_hot
from ..runtime.compilation import compiled
from ..runtime.files import register
from ..runtime.precision import scope
from .base import DensityEstimator

ENOUGH, HELD_OUT, PLENTY = 2_000, 300, 20_000
"""Rows that tell the bandwidths; of more, so many held-out rows tell how much narrower all of the others want them.

Beyond plenty of rows the bandwidths shrink by the known rate, N^(-1/(4 + dimensions)). Below, that rate would often
be wrong: a density with fine detail wants its kernels narrower than a smooth one, once there are rows to show it.
"""

NARROWEST = 1e-3
"""The least bandwidth in standard units: values that repeat exactly would ask for none."""


@register
class Bandwidths(NamedTuple):
    """Standard deviations of the outputs' and inputs' kernels in standard units, and λ of each category."""

    y: Float[np.ndarray, " D"]
    x: Float[np.ndarray, " d"]
    categories: Float[np.ndarray, " c"]


def _squares(a: Array, h: Array) -> Float[Array, "n n"]:
    """sum_j ((a_nj - a_mj) / h_j)²."""
    scaled = a / h
    norms = (scaled * scaled).sum(1)
    return jnp.maximum(norms[:, None] + norms - 2 * scaled @ scaled.T, 0)


@compiled
def _left_out(
    raw: Float[Array, " p"], y: Float[Array, "n D"], x: Float[Array, "n d"], codes: Int[Array, "n c"], levels: Array
) -> tuple[Float[Array, ""], Float[Array, " p"]]:
    """Minus the mean leave-one-out log density of the rows, and its gradient, by the raw parameters."""

    def objective(raw: Array) -> Array:
        outputs, inputs = y.shape[1], x.shape[1]
        h = NARROWEST + jnp.exp(raw[: outputs + inputs])
        log_y = -0.5 * (_squares(y, h[:outputs]) + outputs * LOG_2PI) - jnp.log(h[:outputs]).sum()
        log_x = -0.5 * _squares(x, h[outputs:])
        share = jax.nn.sigmoid(raw[outputs + inputs :])  # λ from none to that of equal weights
        for j in range(codes.shape[1]):
            same = codes[:, None, j] == codes[None, :, j]
            other = share[j] * (levels[j] - 1) / levels[j] / jnp.maximum(levels[j] - 1, 1)
            log_x = log_x + jnp.where(same, jnp.log1p(-share[j] * (levels[j] - 1) / levels[j]), jnp.log(other + 1e-300))
        alone = jnp.eye(len(y), dtype=bool)
        log_x = jnp.where(alone, -jnp.inf, log_x)
        joint = jax.nn.logsumexp(jnp.where(alone, -jnp.inf, log_x + log_y), axis=1)
        return -jnp.mean(joint - jax.nn.logsumexp(log_x, axis=1))

    return jax.value_and_grad(objective)(raw)


def fit_bandwidths(
    rng: np.random.RandomState, y: Float[np.ndarray, "n D"], x: Inputs, levels: tuple[int, ...]
) -> Bandwidths:
    """Bandwidths by maximum leave-one-out likelihood; without inputs, those of the unconditional density."""
    n, outputs, inputs = len(y), y.shape[1], x.dense.shape[1]
    power = -1 / (4 + outputs + inputs)  # at which bandwidths shrink with the number of rows
    some = rng.permutation(n)[:ENOUGH]
    with scope():
        data = tuple(jnp.asarray(a) for a in (y[some], x.dense[some], x.codes[some], np.asarray(levels, float)))
        scott = len(some) ** power
        best = None
        for width in (scott, 0.3 * scott, 3 * scott):
            start = np.concatenate([np.full(outputs + inputs, np.log(width)), np.full(len(levels), -1.0)])

            def objective(raw: np.ndarray) -> tuple[float, np.ndarray]:
                value, gradient = _left_out(jnp.asarray(raw), *data)
                return float(value), np.asarray(gradient)

            limits = [(-12.0, 8.0)] * (outputs + inputs) + [(-12.0, 12.0)] * len(levels)
            found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": 200})
            if best is None or found.fun < best.fun:
                best = found
    assert best is not None
    h = NARROWEST + np.exp(best.x[: outputs + inputs])
    share = 1 / (1 + np.exp(-best.x[outputs + inputs :]))
    counts = np.asarray(levels, float)
    widths = Bandwidths(h[:outputs], h[outputs:], share * (counts - 1) / np.maximum(counts, 1))
    if n <= len(some):
        return widths
    many = rng.permutation(n)[:PLENTY]
    narrower = _narrowed(widths, y[many], x.take(many), levels, (len(many) / len(some)) ** power)
    rate = (n / len(many)) ** power
    return narrower._replace(y=rate * narrower.y, x=rate * narrower.x)


def _narrowed(
    h: Bandwidths, y: Float[np.ndarray, "n D"], x: Inputs, levels: tuple[int, ...], rate: float
) -> Bandwidths:
    """The bandwidths times what held-out rows like best: one number for the outputs, one for the inputs."""
    blocks = np.array_split(np.arange(HELD_OUT), max(1, len(y) * HELD_OUT // 2**23))
    other_x, other_y = x.take(np.arange(HELD_OUT, len(y))), y[HELD_OUT:]

    def scaled(log_factors: np.ndarray) -> Bandwidths:
        factors = np.maximum(np.exp(log_factors), 1e-3)
        return h._replace(y=np.maximum(factors[0] * h.y, NARROWEST), x=factors[-1] * h.x)

    def loss(log_factors: np.ndarray) -> float:
        at, total = scaled(log_factors), 0.0
        for block in blocks:
            log_x = log_kernel(x.take(block), other_x, at, levels)
            log_y = _log_gaussian(y[block], other_y, at.y) - np.log(at.y).sum()
            total += (logsumexp(log_x, axis=1) - logsumexp(log_x + log_y, axis=1)).sum()
        return total if np.isfinite(total) else np.inf

    begin = np.full(2 if x.dense.shape[1] else 1, np.log(rate))
    simplex = np.concatenate([begin[None], begin - 0.7 * np.eye(len(begin))])
    best = minimize(loss, begin, method="Nelder-Mead", options={"maxfev": 16, "initial_simplex": simplex})
    return scaled(best.x)


def log_kernel(at: Inputs, rows: Inputs, h: Bandwidths, levels: tuple[int, ...]) -> Float[np.ndarray, "n N"]:
    """log prod_j k_j(x_j, x_nj), a constant apart."""
    out = _log_gaussian(at.dense, rows.dense, h.x)
    for j, (share, count) in enumerate(zip(h.categories, levels, strict=True)):
        same = at.codes[:, None, j] == rows.codes[None, :, j]
        out += np.where(same, np.log1p(-share), np.log(share / max(count - 1, 1) + 1e-300))
    return out


def _log_gaussian(
    a: Float[AnyArray, "n d"], b: Float[AnyArray, "m d"], h: Float[np.ndarray, " d"]
) -> Float[np.ndarray, "n m"]:
    """-1/2 sum_j ((a_nj - b_mj) / h_j)²."""
    one, two = np.asarray(a) / h, np.asarray(b) / h
    return -0.5 * np.maximum((one**2).sum(1)[:, None] + (two**2).sum(1) - 2 * one @ two.T, 0)


class _Kernels(DensityEstimator):
    """What the two share: they keep their rows, and a Gaussian on each."""

    _learnt: ClassVar[tuple[str, ...]] = (*DensityEstimator._learnt, "bandwidths_", "x_", "y_")

    bandwidths_: Bandwidths
    x_: Inputs
    y_: Float[np.ndarray, "N D"]

    y_transform: str | None
    y_bounds: tuple[float, float] | None
    random_state: Any

    def _keep(self, X: Any, y: Any) -> np.random.RandomState:
        self.__dict__.pop("bandwidths_", None)
        self.x_, self.y_ = self._learn_tables(X, y, self.y_transform, self.y_bounds)
        return check_random_state(self.random_state)

    def _unconditional(self, rng: np.random.RandomState) -> Bandwidths:
        return fit_bandwidths(rng, self.y_, make_inputs(rows=len(self.y_)), ())


class KDE(_Kernels):
    """The density of y alone: the same everywhere. Bandwidths by maximum leave-one-out likelihood, one an output."""

    def __init__(
        self,
        *,
        y_transform: str | None = None,
        y_bounds: tuple[float, float] | None = None,
        random_state: Any = None,
    ) -> None:
        self.y_transform = y_transform
        self.y_bounds = y_bounds
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "KDE":
        """Learn the bandwidths; X says how many rows there are, and is not used else."""
        rng = self._keep(X, y)
        self.bandwidths_ = self._unconditional(rng)
        return self

    def _source(self, inputs: Inputs) -> Source:
        def source(rows: Int[np.ndarray, " b"]) -> Components:
            count = len(self.y_)
            mean = np.broadcast_to(self.y_, (len(rows), *self.y_.shape))
            return Components(np.full((1, count), -np.log(count)), mean, self.bandwidths_.y[None, None] ** 2)

        return Source(source)


class ConditionalKDE(_Kernels):
    """The conditional density by kernels.

    method         "cv_ml": product kernels with all bandwidths by maximum leave-one-out likelihood;
                   "neighbours": the `n_neighbors` nearest rows in x, with the bandwidth of the unconditional density
    n_neighbors    of "neighbours"
    y_transform, y_bounds, random_state
    """

    def __init__(
        self,
        *,
        method: str = "cv_ml",
        n_neighbors: int = 50,
        y_transform: str | None = None,
        y_bounds: tuple[float, float] | None = None,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.n_neighbors = n_neighbors
        self.y_transform = y_transform
        self.y_bounds = y_bounds
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "ConditionalKDE":
        """Learn the bandwidths, and keep the rows."""
        if self.method not in ("cv_ml", "neighbours"):
            raise ValueError(f"method must be 'cv_ml' or 'neighbours', got {self.method!r}")
        if self.n_neighbors < 1:
            raise ValueError(f"n_neighbors must be at least 1, got {self.n_neighbors!r}")
        rng = self._keep(X, y)
        if self.method == "neighbours":
            self.bandwidths_ = self._unconditional(rng)
        else:
            self.bandwidths_ = fit_bandwidths(rng, self.y_, self.x_, self.features_.levels)
        return self

    def _source(self, inputs: Inputs) -> Source:
        variance = self.bandwidths_.y[None, None] ** 2
        if self.method == "cv_ml":

            def weighted(rows: Int[np.ndarray, " b"]) -> Components:
                logs = log_kernel(inputs.take(rows), self.x_, self.bandwidths_, self.features_.levels)
                mean = np.broadcast_to(self.y_, (len(rows), *self.y_.shape))
                return Components(logs - logsumexp(logs, axis=1, keepdims=True), mean, variance)

            return Source(weighted)
        from sklearn.neighbors import NearestNeighbors

        count = min(self.n_neighbors, len(self.y_))
        index = NearestNeighbors(n_neighbors=count).fit(one_hot(self.x_, sum(self.features_.levels)))

        def nearest(rows: Int[np.ndarray, " b"]) -> Components:
            near = index.kneighbors(one_hot(inputs.take(rows), sum(self.features_.levels)), return_distance=False)
            return Components(np.full((1, count), -np.log(count)), self.y_[near], variance)

        return Source(nearest)
