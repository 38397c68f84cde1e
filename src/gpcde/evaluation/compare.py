"""Which model is best on my data: cross-validated scores of several, side by side.

    print(gpcde.compare(X, y, models={"GP-CDE": GPCDE(), "GP": GP()}, cv=5))

Folds run in parallel through joblib, so that a Dask or Ray cluster serves through joblib's backends.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import _safe_indexing
from tqdm.auto import tqdm

from ..estimators.base import DensityEstimator
from ..estimators.gp import GP
from ..estimators.gpcde import GPCDE
from ..estimators.kde import ConditionalKDE
from ..estimators.linear import LinearGaussian
from ..estimators.mdn import MDN
from .diagnostics import coverage


class Score(NamedTuple):
    """A model's scores in one fold.

    log_score            mean log density, higher is better
    crps                 mean CRPS of one output, energy score of several; lower is better
    calibration_error    mean distance of observed from nominal coverage of central intervals; 0 is best
    seconds              to fit and to predict
    """

    log_score: float
    crps: float
    calibration_error: float
    seconds: float


class Comparison:
    """Scores of models by folds: `scores[name]` is a list of `Score`; printed, a table of means ± standard errors."""

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
        """The table, best log score first."""
        fields = [self._title(field) for field in Score._fields]
        lines = ["| model | " + " | ".join(fields) + " |", "|---" * (len(fields) + 1) + "|"]
        for row in sorted(self, key=lambda row: -row["log_score"]):
            cells = [f"{row[field]:.3f} ± {row[field + ' se']:.3f}" for field in fields]
            lines.append(f"| {row['model']} | " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.to_markdown()


def compare(
    X: Any,
    y: Any,
    models: Mapping[str, DensityEstimator] | None = None,
    cv: Any = 5,
    n_jobs: int | None = None,
    verbose: bool | None = None,
) -> Comparison:
    """Cross-validated scores of density estimators on the same folds.

    models     by name; None: GPCDE, GP, ConditionalKDE, MDN and LinearGaussian
    cv         a number of (shuffled) folds, or a splitter of scikit-learn
    n_jobs     as in joblib: how many folds and models at a time
    verbose    True or False; None shows progress in a terminal
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
    rows = len(X) if hasattr(X, "__len__") else X.shape[0]
    splitter = KFold(cv, shuffle=True, random_state=0) if isinstance(cv, int) else check_cv(cv)
    folds = list(splitter.split(np.zeros((rows, 1))))
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
