"""Linear regression as a density: y = [1, x] B + N(0, Σ), Σ any covariance, in closed form."""

from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from ..density.components import Components
from ..density.conditional import Source
from ..model.inputs import Inputs, one_hot
from .base import DensityEstimator


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
        features = self._features(x)
        # the pseudo-inverse leaves out directions that the rows do not tell apart
        self.leverage_ = np.linalg.pinv(features.T @ features, hermitian=True)
        self.coefficients_ = self.leverage_ @ (features.T @ z)
        left = z - features @ self.coefficients_
        freedom = max(len(z) - np.linalg.matrix_rank(features), 1)
        self.covariance_ = left.T @ left / freedom + 1e-8 * np.eye(z.shape[1])
        return self

    def _restored(self) -> None:
        if self.coefficients_.shape != (1 + self.features_.width, self.n_outputs_):
            raise ValueError("its columns and outputs do not fit its coefficients")
        if not np.linalg.eigvalsh(self.covariance_).min() > 0:
            raise ValueError("its covariance is none: it has an eigenvalue that is not positive")

    def _features(self, x: Inputs) -> Float[np.ndarray, "n k"]:
        return np.concatenate([np.ones((x.n_rows, 1)), one_hot(x, sum(self.features_.levels))], axis=1)

    def _source(self, inputs: Inputs) -> Source:
        values, vectors = np.linalg.eigh(self.covariance_)

        def components(rows: Int[np.ndarray, " b"]) -> Components:
            features = self._features(inputs.take(rows))
            mean = (features @ self.coefficients_ @ vectors)[:, None]
            wider = 1 + np.maximum(((features @ self.leverage_) * features).sum(1), 0)
            return Components(np.zeros((1, 1)), mean, (wider[:, None] * values)[:, None], vectors[None, None])

        return Source(components)
