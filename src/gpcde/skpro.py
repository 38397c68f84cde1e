"""Our estimators in skpro's shape: `pip install gpcde[skpro]`, then

    DensityRegressor(GPCDE()).fit(X, y).predict_proba(X_new)

skpro speaks of a table of random numbers, an entry for every row and output; `DensityDistribution` is that table over
one `ConditionalDensity`, which it keeps as `density`.
"""

from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import clone
from sklearn.utils import check_random_state

from .density.components import Components, Univariate
from .density.conditional import ConditionalDensity
from .density.transforms import OutputTransform
from .estimators.base import DensityEstimator
from .estimators.gpcde import GPCDE
from .estimators.mdn import MDN
from .runtime.extras import extra

with extra("skpro"):
    import pandas as pd
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor


class DensityDistribution(BaseDistribution):
    """p(y|x_n) as a distribution of skpro: a row for every x_n, a column for every output.

    By skpro's contract `pdf`, `log_pdf`, `cdf` and `ppf` are of each entry by itself: the sum of `log_pdf` over the
    columns is not the joint log density, which is `density.log_pdf(y)`. `sample` draws a row's outputs together.
    A single entry without index and columns is a scalar distribution, as `iloc[i, j]` gives it.

    >>> from gpcde.skpro import DensityDistribution
    >>> DensityDistribution(**DensityDistribution.get_test_params()[0]).mean().shape
    (3, 2)
    """

    _tags: ClassVar[dict[str, Any]] = {
        "capabilities:exact": ["mean", "var", "pdf", "log_pdf", "cdf", "ppf", "energy"],
        "capabilities:approx": ["pdfnorm"],
        "distr:measuretype": "continuous",
    }

    def __init__(self, density: ConditionalDensity, index: Any = None, columns: Any = None) -> None:
        self.density = density
        if index is not None or columns is not None or (len(density), density.n_outputs) != (1, 1):
            index = pd.RangeIndex(len(density)) if index is None else index
            columns = pd.RangeIndex(density.n_outputs) if columns is None else columns
        super().__init__(index=index, columns=columns)

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> "DensityDistribution":
        if np.isscalar(rowidx) and np.isscalar(colidx):
            return self._iat(rowidx, colidx)
        rows, columns = _places(rowidx, len(self.index)), _places(colidx, len(self.columns))
        density = self.density if rowidx is None else self.density[rows]
        if not np.array_equal(columns, np.arange(len(self.columns))):
            density = density.marginal(columns.tolist())
        return DensityDistribution(density, self.index[rows], self.columns[columns])

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> "DensityDistribution":
        return DensityDistribution(self.density[int(rowidx)].marginal(int(colidx)))

    def _table(self, entries: np.ndarray) -> Float[np.ndarray, "n D"]:
        return np.reshape(entries, (len(self.density), self.density.n_outputs))

    def _mean(self) -> np.ndarray:
        return self.density.mean().reshape(self.shape)

    def _var(self) -> np.ndarray:
        return self.density.var().reshape(self.shape)

    def _log_pdf(self, x: np.ndarray) -> np.ndarray:
        columns = [self.density.marginal(j).log_pdf(column) for j, column in enumerate(self._table(x).T)]
        return np.stack(columns, axis=1).reshape(self.shape)

    def _pdf(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(self._log_pdf(x)))

    def _cdf(self, x: np.ndarray) -> np.ndarray:
        return self.density.cdf(self._table(x)).reshape(self.shape)

    def _ppf(self, p: np.ndarray) -> np.ndarray:
        """Each entry at its own level; NaN where that is none."""
        level = self._table(p)
        z = np.empty(level.shape)
        for rows, c in self.density._blocks():
            for j in range(self.density.n_outputs):
                z[rows, j] = Univariate.of(c, j).quantile(level[rows, j, None])[:, 0]
        y = self.density._transform.from_standard(z)
        return np.where((level >= 0) & (level <= 1), y, np.nan).reshape(self.shape)

    def _energy_self(self) -> np.ndarray:
        return self._spread().sum(1).reshape(self.shape[:1])

    def _energy_x(self, x: np.ndarray) -> np.ndarray:
        """E|Y - x| = CRPS(x) + E|Y - Y'| / 2, summed over the outputs."""
        score = self._table(self.density.crps(self._table(x)))
        return (score + 0.5 * self._spread()).sum(1).reshape(self.shape[:1])

    def _spread(self) -> Float[np.ndarray, "n D"]:
        """E|Y - Y'| of each entry: the same identity at an x above all of Y, where E|Y - x| = x - E[Y]."""
        x = self._table(self.density.quantile(1 - 1e-15))
        return 2 * (x - self._table(self.density.mean()) - self._table(self.density.crps(x)))

    def _sample(self, n_samples: int | None = None) -> Any:
        """Draws by NumPy's global seed, as all of skpro."""
        size, seed = 1 if n_samples is None else n_samples, int(check_random_state(None).randint(2**31 - 1))
        draws = self.density.sample(size, seed).reshape(len(self.density), size, self.density.n_outputs)
        if not self.ndim:
            return draws.item() if n_samples is None else pd.DataFrame(draws[0])
        tables = [pd.DataFrame(draws[:, i], self.index, self.columns) for i in range(size)]
        return tables[0] if n_samples is None else pd.concat(tables, keys=range(size))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """A table of mixtures of two, and one entry of it, for skpro's checks."""
        mean = np.random.default_rng(0).normal(size=(3, 2, 2))
        c = Components(np.log([[0.3, 0.7]]), mean, np.ones((1, 1, 1)))
        density = ConditionalDensity(c, OutputTransform.identity(2))
        return [{"density": density, "index": [2, 0, 5], "columns": ["a", "b"]}, {"density": density[0].marginal(1)}]


class DensityRegressor(BaseProbaRegressor):
    """An estimator of ours, as it is or within skpro's pipelines, searches, metrics and compositions.

    estimator            GPCDE, MDN or their like; None is GPCDE()

    Learnt: `estimator_`. Of its answer, `predict_proba(X).density` is the `ConditionalDensity`, joint over the outputs.

    >>> from gpcde import GPCDE
    >>> from gpcde.skpro import DensityRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = DensityRegressor(GPCDE(max_steps=50, batch_size=16)).fit(X[:50], y[:50])
    >>> model.predict_interval(X[50:53]).shape
    (3, 2)
    """

    _tags: ClassVar[dict[str, Any]] = {"capability:multioutput": True, "capability:missing": False}

    estimator_: DensityEstimator

    def __init__(self, estimator: DensityEstimator | None = None) -> None:
        self.estimator = estimator
        super().__init__()
        self.set_tags(**{"capability:update": estimator is None or hasattr(estimator, "partial_fit")})

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> "DensityRegressor":
        estimator = GPCDE() if self.estimator is None else clone(self.estimator)
        self.estimator_ = estimator.fit(X.rename(columns=str), y)
        return self

    def _update(self, X: pd.DataFrame, y: pd.DataFrame) -> "DensityRegressor":
        self.estimator_.partial_fit(X.rename(columns=str), y)
        return self

    def _predict_proba(self, X: pd.DataFrame) -> DensityDistribution:
        return DensityDistribution(self.estimator_.predict_density(X.rename(columns=str)), X.index, self._get_columns())

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Quick ones, for skpro's checks."""
        quick = GPCDE(max_steps=50, batch_size=16, random_state=0), MDN(max_epochs=5, hidden=(8,), random_state=0)
        return [{"estimator": estimator} for estimator in quick]


def _places(which: Any, count: int) -> Int[np.ndarray, " k"]:
    """Which of `count` places, in whatever way pandas may be told of them, as numbers from 0."""
    return np.atleast_1d(np.arange(count)[slice(None) if which is None else which])
