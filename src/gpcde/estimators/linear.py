"""Linear regression as a density: y = [1, x] B + N(0, Σ), Σ any covariance, in closed form."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from ..density.components import Components
from ..density.conditional import Source
from ..model.inputs import Inputs, one_hot
from ..runtime.files import check_fields, register
from .base import DensityEstimator, Rows


@register
class Line(NamedTuple):
    """y = [1, x] B + N(0, Σ), in standard units: B, Σ, the inverse of [1, X]ᵀ [1, X], and the number of levels."""

    coefficients: Float[np.ndarray, "k D"]
    covariance: Float[np.ndarray, "D D"]
    leverage: Float[np.ndarray, "k k"]
    levels: int

    def check_values(self) -> None:
        """Raise where a file holds what cannot be."""
        check_fields(self)
        if self.leverage.shape != (len(self.coefficients),) * 2 or self.levels < 0:
            raise ValueError("its leverage does not fit its coefficients")
        if (
            self.covariance.shape != (self.coefficients.shape[1],) * 2
            or not np.linalg.eigvalsh(self.covariance).min() > 0
        ):
            raise ValueError("its covariance is none: it has an eigenvalue that is not positive")

    def check_fits(self, x: Inputs, outputs: int) -> None:
        """Raise where it is not one of such inputs and of so many outputs."""
        known = x.codes.max(initial=-1) + 1
        if self.levels != known or self.coefficients.shape != (1 + x.dense.shape[1] + known, outputs):
            raise ValueError("its columns and outputs do not fit its coefficients")

    @classmethod
    def of(cls, rows: Rows, levels: tuple[int, ...]) -> "Line":
        """By least squares, each row as often as its weight says."""
        x, z, weight = rows.x, rows.z, rows.weight[:, None]
        features = _features(x, sum(levels))
        # the pseudo-inverse leaves out directions that the rows do not tell apart
        leverage = np.linalg.pinv(features.T @ (weight * features), hermitian=True)
        coefficients = leverage @ (features.T @ (weight * z))
        left = z - features @ coefficients
        freedom = max(rows.total - np.linalg.matrix_rank(features[rows.weight > 0]), 1)
        covariance = left.T @ (weight * left) / freedom + 1e-8 * np.eye(z.shape[1])
        return cls(coefficients, covariance, leverage, sum(levels))

    def components(self, x: Inputs) -> Components:
        """A Gaussian at each x: the errors' covariance, widened by what is not known of the coefficients."""
        values, vectors = np.linalg.eigh(self.covariance)
        features = _features(x, self.levels)
        mean = (features @ self.coefficients @ vectors)[:, None]
        wider = 1 + np.maximum(((features @ self.leverage) * features).sum(1), 0)
        return Components(np.zeros((1, 1)), mean, (wider[:, None] * values)[:, None], vectors[None, None])

    def log_density(self, x: Inputs, z: Float[np.ndarray, "n D"]) -> Float[np.ndarray, " n"]:
        """log p(z_n|x_n)."""
        return self.components(x).log_pdf(z[:, None])[:, 0]

    def ready(self) -> "Line":
        """Itself: nothing is computed beforehand."""
        return self

    def drawn(self, key: PRNGKeyArray) -> Callable[[Inputs], Components]:
        """As it is: widened, it holds all lines that are possible."""
        return self.components


def _features(x: Inputs, levels: int) -> Float[np.ndarray, "n k"]:
    return np.concatenate([np.ones((x.n_rows, 1)), one_hot(x, levels)], axis=1)


class LinearGaussian(DensityEstimator):
    """Linear regression with normal errors: y = [1, x] B + N(0, Σ), Σ any covariance, by least squares.

    The density at x is that of a new row: the errors' covariance, widened by what is not known of the coefficients.

    Parameters
    ----------
    y_transform : {"log", "logit"}, default=None
        "log" for y above a bound, "logit" for y between two.
    y_bounds : (float, float), default=None
        (low, high); by default 0 and infinity, or 0 and 1.

    Attributes
    ----------
    coefficients_ : array of shape (k, D)
        B, in standard units; the first row is the constant's.
    covariance_ : array of shape (D, D)
        Σ, in standard units.
    leverage_ : array of shape (k, k)
        The inverse of [1, X]ᵀ [1, X].

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import LinearGaussian
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 2))
    >>> y = X @ [1.0, -2.0] + 3 + 0.1 * rng.standard_normal(100)
    >>> density = LinearGaussian().fit(X, y).predict_density([[1.0, 1.0]])
    >>> density.mean().round(1), density.std().round(1)
    (array([2.]), array([0.1]))
    """

    _learnt: ClassVar[tuple[str, ...]] = (*DensityEstimator._learnt, "coefficients_", "covariance_", "leverage_")

    coefficients_: Float[np.ndarray, "k D"]
    covariance_: Float[np.ndarray, "D D"]
    leverage_: Float[np.ndarray, "k k"]

    def __init__(self, *, y_transform: str | None = None, y_bounds: tuple[float, float] | None = None) -> None:
        self.y_transform = y_transform
        self.y_bounds = y_bounds

    def fit(self, X: Any, y: Any) -> "LinearGaussian":
        """Least squares, in closed form.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Numbers; columns of text or categories in a data frame are categories.
        y : array of shape (n,) or (n, D)
            Outputs.

        Returns
        -------
        LinearGaussian
            Itself.
        """
        self.__dict__.pop("coefficients_", None)
        x, z = self._learn_tables(X, y, self.y_transform, self.y_bounds)
        line = Line.of(Rows(x, z, np.ones(len(z))), self.features_.levels)
        self.coefficients_, self.covariance_, self.leverage_ = line[:3]
        return self

    @property
    def _line(self) -> Line:
        return Line(self.coefficients_, self.covariance_, self.leverage_, sum(self.features_.levels))

    def _restored(self) -> None:
        if self.coefficients_.shape != (1 + self.features_.width, self.n_outputs_):
            raise ValueError("its columns and outputs do not fit its coefficients")
        self._line.check_values()

    def _source(self, inputs: Inputs) -> Source:
        line = self._line

        def components(rows: Int[np.ndarray, " b"]) -> Components:
            return line.components(inputs.take(rows))

        return Source(components)
