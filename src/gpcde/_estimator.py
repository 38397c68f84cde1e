"""What all estimators share: reading tables, answering with a `ConditionalDensity`, scoring, files.

A model says how it learns (`fit`) and how it answers in standard units (`_source`); the rest is here. Bad input is
refused here, before any work starts, with the name of the argument and what to do.
"""

import os
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from . import _files
from ._density import ConditionalDensity, Source
from ._inputs import Inputs
from ._tables import Features, Table, check_finite, has_categories, is_frame, read_frame, read_numbers
from ._transforms import OutputTransform


def seed_of(random_state: Any) -> int:
    """A seed from what scikit-learn takes as `random_state`."""
    return int(check_random_state(random_state).randint(2**31 - 1))


class DensityEstimator(RegressorMixin, BaseEstimator):
    """A model of p(y|x) in scikit-learn's shape; `score` is the mean log density, in the units of y."""

    _kinds: ClassVar[dict[str, type["DensityEstimator"]]] = {}
    _learnt: ClassVar[tuple[str, ...]] = ("features_", "transform_", "n_features_in_", "n_outputs_", "flat_")

    features_: Features
    transform_: OutputTransform
    n_features_in_: int
    n_outputs_: int
    flat_: bool

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        DensityEstimator._kinds[cls.__name__] = cls

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is all that an answer needs: the tables, and the first thing a model learns for itself."""
        return all(hasattr(self, name) for name in self._learnt[: len(DensityEstimator._learnt) + 1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # the score is a log density, not R²
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        tags.input_tags.categorical = True
        tags.input_tags.string = False
        return tags

    def _check_whole(self, *names: str) -> None:
        """Raise where one of these parameters is no whole number from 1 on."""
        for name in names:
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a whole number from 1 on, got {value!r}")

    def _check_validation(self) -> None:
        """Raise where no part of the rows could be held out."""
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1, got {self.validation_fraction!r}")

    # tables

    def _read_table(self, X: Any, reset: bool) -> Table:
        """X, taken apart and checked; `reset` where it is to be remembered what columns it has."""
        if has_categories(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if X.shape[0] < 1:
                raise ValueError("X has no rows")
            return read_frame(X)
        names = [str(name) for name in X.columns] if is_frame(X) else None
        try:
            array = validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=False)
        except ValueError as error:
            if "could not convert" in str(error):
                raise ValueError(
                    f"X must hold numbers, or be a data frame, whose columns of text are categories: {error}"
                ) from error
            raise
        return read_numbers(array, names)

    def _read_outputs(self, y: Any, rows: int) -> tuple[Float[np.ndarray, "n D"], bool]:
        """y as a matrix of numbers, checked, and whether it was a vector."""
        name = type(self).__name__
        if y is None:
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        names = [str(column) for column in y.columns] if is_frame(y) else None
        try:
            array = check_array(y, ensure_2d=False, dtype=np.float64, ensure_all_finite=False, input_name="y")
        except ValueError as error:
            if "could not convert" in str(error):
                raise ValueError(f"y must hold numbers: {error}. For classes, use a classifier") from error
            raise
        if array.ndim > 2:
            raise ValueError(f"y must be a vector or a matrix, got shape {array.shape}")
        matrix = array[:, None] if array.ndim == 1 else array
        if len(matrix) != rows:
            raise ValueError(f"X has {rows} rows but y has {len(matrix)}: every row of X needs its row of y")
        if not matrix.shape[1]:
            raise ValueError("y has no columns")
        check_finite("y", matrix, names or [str(i) for i in range(matrix.shape[1])])
        return matrix, array.ndim == 1

    def _learn_tables(
        self, X: Any, y: Any, transform: str | None, bounds: Any, common_scale: bool = False
    ) -> tuple[Inputs, Float[np.ndarray, "n D"]]:
        """Learn the columns' units from X and y; both in standard units."""
        table = self._read_table(X, reset=True)
        outputs, flat = self._read_outputs(y, len(table.dense))
        if len(outputs) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 rows to learn a density from, got n_samples = {len(outputs)}"
            )
        constant = (outputs == outputs[:1]).all(0)
        if constant.all() if common_scale else constant.any():
            column = int(constant.argmax())
            raise ValueError(
                f"y is constant: column {column} is {outputs[0, column]:g} in every row, which has no density. "
                "Leave that column out"
            )
        self.n_outputs_, self.flat_ = outputs.shape[1], flat
        self.transform_ = OutputTransform.fit(outputs, transform, bounds, common_scale)
        self.features_ = Features.fit(table)
        return self._used(self.features_.apply(table)), self.transform_.to_standard(outputs)

    def _apply_tables(self, X: Any) -> Inputs:
        """X in the units learnt in training."""
        check_is_fitted(self)
        return self._used(self.features_.apply(self._read_table(X, reset=False)))

    def _used(self, inputs: Inputs) -> Inputs:
        """What the model looks at: all of it, unless it says otherwise."""
        return inputs

    def _apply_outputs(self, y: Any, rows: int) -> Float[np.ndarray, "n D"]:
        """y as in training, in the user's units."""
        outputs, _ = self._read_outputs(y, rows)
        if outputs.shape[1] != self.n_outputs_:
            raise ValueError(f"y has {outputs.shape[1]} columns, but the model was trained with {self.n_outputs_}")
        return outputs

    # answers

    def _source(self, inputs: Inputs) -> Source:
        """The mixtures of these inputs, by row numbers, in standard units."""
        raise NotImplementedError

    def predict_density(self, X: Any) -> ConditionalDensity:
        """The conditional densities p(y|x) of the rows of X."""
        inputs = self._apply_tables(X)
        return ConditionalDensity(self._source(inputs), self.transform_, inputs.n_rows, self.flat_)

    def predict(self, X: Any, return_density: bool = False) -> np.ndarray | ConditionalDensity:
        """The mean of y at every row of X; with `return_density`, the whole densities."""
        density = self.predict_density(X)
        return density if return_density else density.mean()

    def score(self, X: Any, y: Any) -> float:
        """The mean log density of the rows of y: higher is better."""
        density = self.predict_density(X)
        return float(density.log_pdf(self._apply_outputs(y, len(density))).mean())

    # files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trained model, units and all, to one file that `gpcde.load` reads; it holds no code."""
        check_is_fitted(self)
        _files.write(path, type(self).__name__, _portable(self)[ESTIMATOR])

    def _restored(self) -> None:
        """Called once a model was read from a file: raise where its parts do not fit."""


def load(path: str | os.PathLike[str]) -> DensityEstimator:
    """The model in a file that `save` wrote; a `gpcde.FileError` says what is wrong with a bad file."""
    kind, value = _files.read(path)
    try:
        model = _revived({ESTIMATOR: value})
        if not isinstance(model, DensityEstimator) or type(model).__name__ != kind:
            raise ValueError(f"it is said to hold a {kind}, and does not")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise _files.FileError(f"{path} cannot be read, its parts do not fit together: {error}") from error
    return model


ESTIMATOR = "estimator of gpcde"
"""The key under which an estimator stands for itself in a file."""


def _portable(value: Any) -> Any:
    """A value with every estimator in it, fitted or not, taken apart."""
    if isinstance(value, DensityEstimator):
        params = {name: _portable(item) for name, item in value.get_params(deep=False).items() if _plain(item)}
        names = [name for name in (*value._learnt, "feature_names_in_") if hasattr(value, name)]
        learnt = {name: _portable(getattr(value, name)) for name in names}
        if "feature_names_in_" in learnt:
            learnt["feature_names_in_"] = [str(name) for name in learnt["feature_names_in_"]]
        return {ESTIMATOR: {"kind": type(value).__name__, "params": params, "learnt": learnt}}
    if type(value) in (list, tuple):
        return type(value)(_portable(item) for item in value)
    return value


def _revived(value: Any) -> Any:
    """A value with every estimator in it put together again, and looked over."""
    if type(value) in (list, tuple):
        return type(value)(_revived(item) for item in value)
    if not isinstance(value, dict) or ESTIMATOR not in value:
        return value
    parts = value[ESTIMATOR]
    if parts["kind"] == "Flow":
        from . import flow  # noqa: F401  (an extra, which may not have been needed so far)
    cls = DensityEstimator._kinds.get(parts["kind"])
    if cls is None:
        raise ValueError(f"it holds a {parts['kind']}, which this version of gpcde does not know")
    model = cls(**{name: _revived(item) for name, item in parts["params"].items()})
    known = {*cls._learnt, "feature_names_in_"}
    if not set(parts["learnt"]) <= known:
        raise ValueError(f"unknown attributes {sorted(set(parts['learnt']) - known)}")
    for name, item in parts["learnt"].items():
        setattr(model, name, np.array(item, object) if name == "feature_names_in_" else _revived(item))
    if parts["learnt"]:
        model._restored()
    return model


def _plain(value: Any) -> bool:
    """Whether a parameter can be written down."""
    try:
        _files.pack(_portable(value), {})
    except TypeError:
        return False
    return True
