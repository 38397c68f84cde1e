"""Which model is best on my data: cross-validated scores of several, side by side.

    print(gpcde.compare(X, y, models={"GP-CDE": GPCDE(), "GP": GP()}, cv=5))

Folds run in parallel through joblib, so that a Dask or Ray cluster serves through joblib's backends.
"""

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from tqdm.auto import tqdm

from ..estimators.base import DensityEstimator, split_folds
from ..estimators.gp import GP
from ..estimators.gpcde import GPCDE
from ..estimators.kde import ConditionalKDE
from ..estimators.linear import LinearGaussian
from ..estimators.mdn import MDN
from .diagnostics import coverage

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Score(NamedTuple):
    """A model's scores in one fold.

    Attributes
    ----------
    log_score : float
        The mean log density; higher is better.
    crps : float
        The mean CRPS of one output, or energy score of several; lower is better.
    calibration_error : float
        The mean distance of observed from nominal coverage of central intervals; 0 is best.
    seconds : float
        To fit and to predict.
    """

    log_score: float
    crps: float
    calibration_error: float
    seconds: float


class Comparison:
    """Scores of models by folds: printed, a table of means ± standard errors.

    Attributes
    ----------
    scores : dict of lists of Score
        By the names of the models, a `Score` for every fold.
    outputs : int
        D_y.
    """

    def __init__(self, scores: dict[str, list[Score]], outputs: int) -> None:
        self.scores, self.outputs = scores, outputs

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """One dictionary for each model: `pandas.DataFrame(comparison)` is the table."""
        for name, folds in self.scores.items():
            row: dict[str, Any] = {"model": name}
            for field in Score._fields:
                values = np.array([getattr(fold, field) for fold in folds])
                row[self._title(field)] = values.mean()
                row[self._title(field) + " se"] = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
            yield row

    def _title(self, field: str) -> str:
        return "energy_score" if field == "crps" and self.outputs > 1 else field

    def to_markdown(self) -> str:
        """The table, best log score first.

        Returns
        -------
        str
            Means ± standard errors over the folds.
        """
        fields = [self._title(field) for field in Score._fields]
        lines = ["| model | " + " | ".join(fields) + " |", "|---" * (len(fields) + 1) + "|"]
        for row in sorted(self, key=lambda row: -row["log_score"]):
            cells = [f"{row[field]:.3f} ± {row[field + ' se']:.3f}" for field in fields]
            lines.append(f"| {row['model']} | " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.to_markdown()

    def plot(self, metric: str = "log_score", ax: "Axes | None" = None) -> "Axes":
        """Draw the models side by side in one score, as `gpcde.plots.comparison` does.

        Parameters
        ----------
        metric : {"log_score", "crps", "energy_score", "calibration_error", "seconds"}, default="log_score"
            Which score; `crps` for one output, `energy_score` for several.
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        matplotlib Axes
            What was drawn on.
        """
        from ..plots.curves import comparison

        return comparison(self, metric, ax)


def compare(
    X: Any,
    y: Any,
    models: Mapping[str, DensityEstimator] | None = None,
    cv: Any = 5,
    n_jobs: int | None = None,
    verbose: bool | None = None,
) -> Comparison:
    """Cross-validated scores of density estimators on the same folds.

    Parameters
    ----------
    X : array or data frame of shape (n, d)
        Inputs.
    y : array of shape (n,) or (n, D)
        Outputs.
    models : dict of DensityEstimator, default=None
        By name; None: GPCDE, GP, ConditionalKDE, MDN and LinearGaussian.
    cv : int, splitter or iterable, default=5
        A number of (shuffled) folds, or a splitter of scikit-learn.
    n_jobs : int, default=None
        As in joblib: how many folds and models at a time.
    verbose : bool, default=None
        None shows progress in a terminal.

    Returns
    -------
    Comparison
        Scores by models and folds.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import KDE, LinearGaussian, compare
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((60, 1))
    >>> y = 2 * X[:, 0] + rng.standard_normal(60)
    >>> comparison = compare(X, y, {"linear": LinearGaussian(), "kde": KDE()}, cv=3)
    >>> [row["model"] for row in sorted(comparison, key=lambda row: -row["log_score"])]
    ['linear', 'kde']
    """
    if models is None:
        models = {
            "GPCDE": GPCDE(random_state=0, verbose=False),
            "GP": GP(random_state=0, verbose=False),
            "ConditionalKDE": ConditionalKDE(random_state=0),
            "MDN": MDN(random_state=0),
            "LinearGaussian": LinearGaussian(),
        }
    if (
        not isinstance(models, Mapping)
        or not models
        or not all(hasattr(model, "predict_density") for model in models.values())
    ):
        raise ValueError("models must be a dictionary of density estimators by name, and name at least one")
    folds = split_folds(cv, len(X) if hasattr(X, "__len__") else X.shape[0])
    units = [(name, fold) for fold in folds for name in models]
    jobs = Parallel(n_jobs, return_as="generator")
    done = jobs(delayed(_score)(clone(models[name]), X, y, *fold) for name, fold in units)
    scores: dict[str, list[Score]] = {name: [] for name in models}
    bar = tqdm(done, total=len(units), desc="compare", unit="fit", disable=None if verbose is None else not verbose)
    for (name, _), score in zip(units, bar, strict=True):
        bar.set_postfix({name: f"{score.log_score:.3f}"}, refresh=False)
        scores[name].append(score)
    return Comparison(scores, (np.ndim(y) > 1 and np.shape(y)[1]) or 1)


def _score(model: DensityEstimator, X: Any, y: Any, train: np.ndarray, test: np.ndarray) -> Score:
    """One model on one fold."""
    began = time.perf_counter()
    density = model.fit(_safe_indexing(X, train), _safe_indexing(y, train)).predict_density(_safe_indexing(X, test))
    actual = np.asarray(_safe_indexing(y, test), float)
    log_score = float(density.log_pdf(actual).mean())
    seconds = time.perf_counter() - began
    crps = density.crps(actual) if density.n_outputs == 1 else density.energy_score(actual)
    return Score(log_score, float(np.mean(crps)), coverage(density, actual).error, seconds)
