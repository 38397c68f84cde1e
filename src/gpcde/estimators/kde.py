"""Kernel density estimation, unconditional and conditional: a Gaussian on every training row.

    KDE              p(y)   = 1/N sum_n N(y | y_n, diag h²)
    ConditionalKDE   p(y|x) = sum_n π_n(x) N(y | y_n, diag h²),    π_n(x) ∝ prod_j k_j(x_j, x_nj)

with Gaussian kernels k_j for numbers and Aitchison and Aitken's for categories (1 - λ for the same level, λ shared by
the others). All bandwidths maximise the leave-one-out log likelihood. `ConditionalKDE(method="neighbours")` is the
simpler one of the paper: the nearest rows in x, all with one weight, and the unconditional bandwidth, which is right
for all rows and too narrow for fifty; with method="neighbours_cv" it is the one that makes rows likeliest given theirs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from ..density.components import Components
from ..density.conditional import Source
from ..model.gaussians import LOG_2PI
from ..model.inputs import AnyArray, Inputs, Numbers, make_inputs, one_hot
from ..runtime.blocks import by_blocks, padded, rung
from ..runtime.compilation import compiled
from ..runtime.files import check_fields, check_positive, register
from ..runtime.precision import on_device, scope
from .base import DensityEstimator, Rows

if TYPE_CHECKING:
    from sklearn.neighbors import NearestNeighbors

ENOUGH, HELD_OUT, PLENTY = 2_000, 300, 20_000
"""Rows that tell the bandwidths; of more, this many held-out rows tell how much narrower all of the others want them.

Beyond plenty of rows the bandwidths shrink by the known rate, N^(-1/(4 + dimensions)). Below, that rate would often
be wrong: a density with fine detail wants its kernels narrower than a smooth one, once there are rows to show it.
"""

ITERATIONS = 200
"""Of each search for bandwidths, at most."""

METHODS = ("cv_ml", "neighbours", "neighbours_cv")
"""Of `ConditionalKDE`."""

LEAST = 1e-100
"""No file holds a bandwidth that is less."""

NARROWEST = 1e-3
"""The least bandwidth in standard units: values that repeat exactly would ask for none."""


@register
class Bandwidths(NamedTuple):
    """Standard deviations of the outputs' and inputs' kernels in standard units, and λ of each category."""

    y: Float[AnyArray, " D"]
    x: Float[AnyArray, " d"]
    categories: Float[AnyArray, " c"]

    def check_values(self) -> None:
        """Raise where a file holds what cannot be."""
        check_fields(self)
        check_positive(self, "x", "y")
        if min(self.x.min(initial=1.0), self.y.min(initial=1.0)) < LEAST:
            raise ValueError("Bandwidths so small that squares of distances in their units are no numbers")
        if ((self.categories < 0) | (self.categories >= 1)).any():
            raise ValueError("Bandwidths.categories must lie between 0 and 1")

    def of_more_rows(self, before: int, now: int) -> "Bandwidths":
        """Those of that many rows now: of numbers they shrink."""
        factor = shrinkage(before, now, len(self.y), len(self.x))
        return self._replace(y=factor * self.y, x=factor * self.x)


def shrinkage(before: int, now: int, outputs: int, inputs: int) -> float:
    """By what bandwidths shrink from `before` rows to `now`: (now / before)^(-1 / (4 + D + d))."""
    return (now / before) ** (-1 / (4 + outputs + inputs))


def log_kernel(at: Inputs, rows: Inputs, h: Bandwidths, levels: Numbers) -> Float[AnyArray, "n N"]:
    """log prod_j k_j(x_j, x_nj), a constant apart; with NumPy, or to be compiled."""
    xp: Any = jnp if isinstance(h.x, jax.Array) else np
    out = _log_gaussian(at.dense, rows.dense, h.x)
    others = xp.maximum(xp.asarray(levels, float) - 1, 1)
    for j in range(at.codes.shape[1]):
        same = at.codes[:, None, j] == rows.codes[None, :, j]
        share = h.categories[j]
        out = out + xp.where(same, xp.log1p(-share), xp.log(share / others[j] + 1e-300))
    return out


def _log_gaussian(
    a: Float[AnyArray, "n d"], b: Float[AnyArray, "m d"], h: Float[AnyArray, " d"]
) -> Float[AnyArray, "n m"]:
    """-1/2 sum_j ((a_nj - b_mj) / h_j)²."""
    one, two = a / h, b / h
    return (one @ two.T - (0.5 * (one**2).sum(1)[:, None] + 0.5 * (two**2).sum(1))).clip(None, 0)


PAIRS_AT_ONCE = 2**20
"""Of a row whose density is asked for and one that is kept: so many are looked at together."""


class Kept(NamedTuple):
    """Rows that a kernel estimate keeps: inputs, outputs, and log weights."""

    x: Inputs
    y: Float[AnyArray, "N D"]
    log_weight: Float[AnyArray, " N"]


def log_density(
    x: Inputs, y: Float[np.ndarray, "n D"], kept: Kept, h: Bandwidths, levels: Numbers
) -> Float[np.ndarray, " n"]:
    """log p(y_n|x_n) by all rows that are kept, which are padded to few sizes by rows of no weight."""
    count = len(kept.y)
    kept = padded(kept, rung(count))
    kept.log_weight[count:] = -np.inf
    with scope():
        fixed = on_device((kept, Bandwidths(*(np.asarray(a, float) for a in h)), np.asarray(levels, float)))
        most = max(1, PAIRS_AT_ONCE // rung(count))
        return by_blocks(lambda *rows: _log_densities(*on_device(rows), *fixed), (x, y), most)


@compiled
def _log_densities(
    x: Inputs, y: Float[Array, "n D"], kept: Kept, h: Bandwidths, levels: Float[Array, " c"]
) -> Float[Array, " n"]:
    log_x = log_kernel(x, kept.x, h, levels) + kept.log_weight
    log_y = _log_gaussian(y, kept.y, h.y) - 0.5 * y.shape[1] * LOG_2PI - jnp.log(h.y).sum()
    return jax.nn.logsumexp(log_x + log_y, axis=1) - jax.nn.logsumexp(log_x, axis=1)


def _unpacked(raw: Float[AnyArray, " p"], outputs: int, levels: Float[AnyArray, " c"]) -> Bandwidths:
    """Bandwidths from numbers without bounds."""
    xp: Any = jnp if isinstance(raw, jax.Array) else np
    count = raw.shape[0] - levels.shape[0]
    h = NARROWEST + xp.exp(raw[:count])
    share = 1 / (1 + xp.exp(-raw[count:]))  # λ from none to that of equal weights
    return Bandwidths(h[:outputs], h[outputs:], share * (levels - 1) / xp.maximum(levels, 1))


@compiled
def _left_out(
    raw: Float[Array, " p"],
    y: Float[Array, "n D"],
    x: Inputs,
    weight: Float[Array, " n"],
    levels: Float[Array, " c"],
) -> tuple[Float[Array, ""], Float[Array, " p"]]:
    """Minus the mean leave-one-out log density of rows with weights, and its gradient, by the raw parameters."""

    def objective(raw: Array) -> Array:
        h = _unpacked(raw, y.shape[1], levels)
        log_y = _log_gaussian(y, y, h.y) - 0.5 * y.shape[1] * LOG_2PI - jnp.log(h.y).sum()
        alone = jnp.eye(len(y), dtype=bool)
        left_out = alone | (weight == 0)
        log_weight = jnp.log(jnp.where(weight == 0, 1.0, weight))
        log_x = jnp.where(left_out, -jnp.inf, log_kernel(x, x, h, levels) + log_weight)
        joint = jax.nn.logsumexp(jnp.where(left_out, -jnp.inf, log_x + log_y), axis=1)
        return -jnp.sum(weight * (joint - jax.nn.logsumexp(log_x, axis=1))) / jnp.sum(weight)

    return jax.value_and_grad(objective)(raw)


def fit_bandwidths(
    rng: np.random.RandomState,
    y: Float[np.ndarray, "n D"],
    x: Inputs,
    levels: tuple[int, ...],
    weight: Float[np.ndarray, " n"] | None = None,
    enough: int | None = None,
) -> Bandwidths:
    """Bandwidths by maximum leave-one-out likelihood; without inputs, those of the unconditional density."""
    n, outputs, inputs = len(y), y.shape[1], x.dense.shape[1]
    widths, _, some = likeliest(rng, y, x, levels, weight, enough)
    if n <= len(some):
        return widths
    many = rng.permutation(n)[:PLENTY]
    rate = shrinkage(len(some), len(many), outputs, inputs)
    return _narrowed(widths, y[many], x.take(many), levels, rate).of_more_rows(len(many), n)


def likeliest(
    rng: np.random.RandomState,
    y: Float[np.ndarray, "n D"],
    x: Inputs,
    levels: tuple[int, ...],
    weight: Float[np.ndarray, " n"] | None = None,
    enough: int | None = None,
) -> tuple[Bandwidths, float, Int[np.ndarray, " s"]]:
    """Bandwidths of some rows by maximum leave-one-out likelihood, their mean log density so, and which rows."""
    n, outputs, inputs = len(y), y.shape[1], x.dense.shape[1]
    some, counts = rng.permutation(n)[: enough or ENOUGH], np.asarray(levels, float)
    each = np.ones(len(some)) if weight is None else weight[some]
    size = rung(len(some))  # rows of no weight, so that one program serves many numbers of rows
    with scope():
        present = np.append(each, np.zeros(size - len(some)))
        data = on_device((*padded((y[some], x.take(some)), size), present, counts))
        scott = shrinkage(1, len(some), outputs, inputs)
        best = None
        for width in (scott, 0.3 * scott, 3 * scott):
            start = np.concatenate([np.full(outputs + inputs, np.log(width)), np.full(len(levels), -1.0)])

            def objective(raw: np.ndarray) -> tuple[float, np.ndarray]:
                value, gradient = _left_out(on_device(raw), *data)
                return float(value), np.asarray(gradient)

            limits = [(-12.0, 8.0)] * (outputs + inputs) + [(-12.0, 12.0)] * len(levels)
            found = minimize(
                objective, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": ITERATIONS}
            )
            if best is None or found.fun < best.fun:
                best = found
    assert best is not None
    return _unpacked(best.x, outputs, counts), -float(best.fun), some


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


@register
class Marginal(NamedTuple):
    """p(y) = sum_n v_n N(y | y_n, diag h²), wherever x is: rows in standard units, log v, and h."""

    z: Float[np.ndarray, "N D"]
    log_weight: Float[np.ndarray, " N"]
    widths: Float[np.ndarray, " D"]

    def check_values(self) -> None:
        """Raise where a file holds what cannot be."""
        check_fields(self)
        check_positive(self, "widths")
        if self.widths.min(initial=1.0) < LEAST:
            raise ValueError("Marginal.widths are so small that squares of distances in their units are no numbers")
        if not len(self.z) == len(self.log_weight) > 0 or abs(logsumexp(self.log_weight)) > 1e-9:
            raise ValueError("the weights of rows do not fit them")

    def check_fits(self, x: Inputs, outputs: int) -> None:
        """Raise where it is not of so many outputs."""
        if not self.z.shape[1] == len(self.widths) == outputs:
            raise ValueError("its rows do not fit its outputs")

    @classmethod
    def of(cls, rows: Rows, seed: int) -> "Marginal":
        """These rows, those of no weight apart."""
        some = rows.present
        rng, nothing = np.random.RandomState(seed), make_inputs(rows=some.n_rows)
        found = fit_bandwidths(rng, some.z, nothing, (), some.weight)
        return cls(some.z, np.log(some.weight / some.total), np.asarray(found.y, float))

    def components(self, x: Inputs) -> Components:
        """A Gaussian on each row, the same at each x."""
        mean = np.broadcast_to(self.z, (x.n_rows, *self.z.shape))
        return Components(self.log_weight[None], mean, self.widths[None, None] ** 2)

    def log_density(self, x: Inputs, z: Float[np.ndarray, "n D"]) -> Float[np.ndarray, " n"]:
        """log p(z_n)."""

        def some(x: Inputs, z: Float[np.ndarray, "b D"]) -> np.ndarray:
            return self.components(x).log_pdf(z[:, None])[:, 0]

        return by_blocks(some, (x, z), max(1, PAIRS_AT_ONCE // len(self.z)))

    def ready(self) -> "Marginal":
        """Itself: nothing is computed beforehand."""
        return self

    def drawn(self, key: PRNGKeyArray) -> Callable[[Inputs], Components]:
        """As it is: it is not told how sure it is."""
        return self.components


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

    def _restored(self) -> None:
        blank, levels, rows = self.features_.blank(), self.features_.levels, len(self.y_)
        if not rows or len(self.bandwidths_.y) != self.n_outputs_ or self.y_.shape[1] != self.n_outputs_:
            raise ValueError("its outputs do not fit its rows")
        if any(a.shape != (rows, b.shape[1]) for a, b in zip(self.x_, blank, strict=True)):
            raise ValueError("its columns do not fit its rows")
        ends = np.cumsum(levels, dtype=int)
        if ((self.x_.codes >= ends) | (self.x_.codes < ends - np.asarray(levels, int))).any():
            raise ValueError("its rows have categories that are not known")
        read = self.bandwidths_.x, self.bandwidths_.categories
        wide = [blank.dense.shape[1], len(levels)]
        if getattr(self, "method", None) == "cv_ml" and [len(a) for a in read] != wide:
            raise ValueError("its columns do not fit its bandwidths")

    def _variance(self) -> Float[np.ndarray, "1 1 D"]:
        """h² of the outputs."""
        return np.asarray(self.bandwidths_.y)[None, None] ** 2

    def _everywhere(self, inputs: Inputs) -> Source:
        """The same density for every x."""
        count = len(self.y_)
        same = Marginal(self.y_, np.full(count, -np.log(count)), np.asarray(self.bandwidths_.y))
        return Source(lambda rows: same.components(inputs.take(rows)))

    def _unconditional(self, rng: np.random.RandomState) -> Bandwidths:
        return fit_bandwidths(rng, self.y_, make_inputs(rows=len(self.y_)), ())


class KDE(_Kernels):
    """The density of y alone, whatever x is: p(y) = 1/N sum_n N(y | y_n, diag h²).

    The bandwidths h, one an output, maximise the leave-one-out likelihood.

    Parameters
    ----------
    y_transform : {"log", "logit"}, default=None
        "log" for y above a bound, "logit" for y between two.
    y_bounds : (float, float), default=None
        (low, high); by default 0 and infinity, or 0 and 1.
    random_state : int, RandomState or None, default=None
        A seed: of many rows, only some tell the bandwidths.

    Attributes
    ----------
    bandwidths_ : Bandwidths
        h, in standard units.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import KDE
    >>> y = np.random.default_rng(0).choice([-2.0, 2.0], 200) + 0.3 * np.random.default_rng(1).standard_normal(200)
    >>> density = KDE(random_state=0).fit(np.zeros((200, 1)), y).predict_density([[0.0]])
    >>> bool(density.pdf(2.0)[0] > 5 * density.pdf(0.0)[0])
    True
    """

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
        """Learn the bandwidths.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Inputs, which are not used.
        y : array of shape (n,) or (n, D)
            Outputs.

        Returns
        -------
        KDE
            Itself.
        """
        rng = self._keep(X, y)
        self.bandwidths_ = self._unconditional(rng)
        return self

    def _source(self, inputs: Inputs) -> Source:
        return self._everywhere(inputs)


class ConditionalKDE(_Kernels):
    """The conditional density by kernels: p(y|x) = sum_n π_n(x) N(y | y_n, diag h²), π_n(x) ∝ prod_j k_j(x_j, x_nj).

    Parameters
    ----------
    method : {"cv_ml", "neighbours", "neighbours_cv"}, default="cv_ml"
        "cv_ml": product kernels, with all bandwidths by maximum leave-one-out likelihood; "neighbours": the
        `n_neighbors` nearest rows in x, all with one weight, and the bandwidth of the unconditional density;
        "neighbours_cv": the same, with the bandwidth by maximum likelihood of each row given its neighbours.
    n_neighbors : int, default=50
        Of the neighbours.
    y_transform : {"log", "logit"}, default=None
        "log" for y above a bound, "logit" for y between two.
    y_bounds : (float, float), default=None
        (low, high); by default 0 and infinity, or 0 and 1.
    random_state : int, RandomState or None, default=None
        A seed: of many rows, only some tell the bandwidths.

    Attributes
    ----------
    bandwidths_ : Bandwidths
        Of the outputs and the inputs, in standard units, and λ of the categories.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import ConditionalKDE
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 1))
    >>> y = X[:, 0] ** 2 + 0.1 * rng.standard_normal(200)
    >>> model = ConditionalKDE(random_state=0).fit(X, y)
    >>> bool(model.predict([[0.9]])[0] > model.predict([[0.0]])[0] + 0.5)
    True
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
        """Learn the bandwidths, and keep the rows.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Numbers; columns of text or categories in a data frame are categories.
        y : array of shape (n,) or (n, D)
            Outputs.

        Returns
        -------
        ConditionalKDE
            Itself.
        """
        if self.method not in METHODS:
            raise ValueError(f"method must be 'cv_ml', 'neighbours' or 'neighbours_cv', got {self.method!r}")
        self._check_positive_integers("n_neighbors")
        rng = self._keep(X, y)
        if self.method == "neighbours":
            self.bandwidths_ = self._unconditional(rng)
        elif self.method == "neighbours_cv" and self.features_.width:
            self.bandwidths_ = Bandwidths(self._local_widths(rng), np.zeros(0), np.zeros(0))
        elif self.method == "neighbours_cv":
            self.bandwidths_ = self._unconditional(rng)
        else:
            self.bandwidths_ = fit_bandwidths(rng, self.y_, self.x_, self.features_.levels)
        return self

    def _local_widths(self, rng: np.random.RandomState) -> Float[np.ndarray, " D"]:
        """Those of the outputs that make rows likeliest given their neighbours; of many rows, some are asked."""
        some = rng.permutation(len(self.y_))[:ENOUGH]
        if len(self.y_) < 2:
            return np.ones(self.n_outputs_)
        near = self._index(1).kneighbors(self._places(self.x_.take(some)), return_distance=False)
        others = [row[row != n][: near.shape[1] - 1] for n, row in zip(some, near, strict=True)]  # not the row itself
        squares = (self.y_[some][:, None] - self.y_[np.stack(others)]) ** 2

        def loss(log_width: np.ndarray) -> tuple[float, np.ndarray]:
            width = NARROWEST + np.exp(log_width)
            logs = -0.5 * (squares / width**2).sum(2)
            total = logsumexp(logs, axis=1, keepdims=True)
            weighed = np.einsum("nk,nkd->d", np.exp(logs - total), squares) / len(some)
            slope = 1 / width - weighed / width**3
            return float(np.log(width).sum() - total.mean()), slope * np.exp(log_width)

        starts = [np.full(self.n_outputs_, np.log(width)) for width in (0.03, 0.2, 1.0)]
        found = [minimize(loss, at, jac=True, method="L-BFGS-B", bounds=[(-12.0, 8.0)] * len(at)) for at in starts]
        return NARROWEST + np.exp(min(found, key=lambda one: one.fun).x)

    def _places(self, x: Inputs) -> Float[np.ndarray, "n w"]:
        return one_hot(x, sum(self.features_.levels))

    def _index(self, more: int = 0) -> "NearestNeighbors":
        """Of the nearest rows, and so many more."""
        from sklearn.neighbors import NearestNeighbors

        return NearestNeighbors(n_neighbors=min(self.n_neighbors + more, len(self.y_))).fit(self._places(self.x_))

    def _source(self, inputs: Inputs) -> Source:
        variance = self._variance()
        if self.method == "cv_ml":

            def weighted(rows: Int[np.ndarray, " b"]) -> Components:
                logs = log_kernel(inputs.take(rows), self.x_, self.bandwidths_, self.features_.levels)
                mean = np.broadcast_to(self.y_, (len(rows), *self.y_.shape))
                return Components(logs - logsumexp(logs, axis=1, keepdims=True), mean, variance)

            kept = Kept(self.x_, self.y_, np.zeros(len(self.y_)))

            def log_pdf(rows: Int[np.ndarray, " b"], z: Float[np.ndarray, "b D"]) -> Float[np.ndarray, " b"]:
                return log_density(inputs.take(rows), z, kept, self.bandwidths_, self.features_.levels)

            return Source(weighted, log_pdf)
        if not self.features_.width:  # all rows are as near
            return self._everywhere(inputs)
        count, index = min(self.n_neighbors, len(self.y_)), self._index()

        def nearest(rows: Int[np.ndarray, " b"]) -> Components:
            near = index.kneighbors(self._places(inputs.take(rows)), return_distance=False)
            return Components(np.full((1, count), -np.log(count)), self.y_[near], variance)

        return Source(nearest)
