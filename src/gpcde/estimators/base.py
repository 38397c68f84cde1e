"""What all estimators share: reading tables, answering with a `ConditionalDensity`, scoring, files.

A model says how it learns (`fit`) and how it answers in standard units (`_source`); the rest is here. Bad input is
refused here, before any work starts, with the name of the argument and what to do.
"""

from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ..density.conditional import ConditionalDensity, Source
from ..density.transforms import Moments, OutputTransform, supported
from ..inference.data import Batch, whole
from ..model.inputs import AnyArray, Inputs
from ..runtime import files
from ..runtime.declared import check_declared
from ..runtime.disk import AnyPath
from .doubtful import SOME, isolated, left_out, warn_of_atoms, warn_of_isolated
from .parquet import ParquetRows
from .tables import (
    Bends,
    Columns,
    Table,
    check_finite,
    check_readable,
    frame_kind,
    frame_names,
    from_arrow,
    has_categories,
    is_frame,
    make_frame,
    merged,
    read_frame,
    read_numbers,
)

LARGEST = 1e150
"""The largest outputs there may be, and one over the least units: their squares are still numbers."""


FOLDS, ENOUGH_HELD = 5, 60
"""One row in that many is held out; several times, where that gives no more than this many rows in all."""


def seed_of(random_state: Any) -> int:
    """A seed from what scikit-learn takes as `random_state`."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def check_positive_integer(name: str, value: Any, optional: bool = False) -> None:
    """Raise where a parameter is no positive integer (or, where it is optional, None)."""
    if optional and value is None:
        return
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        either = ", or None to choose it from the data" if optional else ""
        raise ValueError(f"{name} must be a positive integer{either}, got {value!r}")


def check_number(name: str, value: Any, low: float, high: float = np.inf, closed: bool = False) -> None:
    """Raise where a parameter is no number between these (or, closed, the lower of them)."""
    fine = isinstance(value, Real) and not isinstance(value, bool)
    if not fine or not ((low <= value) if closed else (low < value)) or not value < high:
        above = "be a number of at least 0" if closed else "be positive"
        asked = above if high == np.inf else f"lie between {low:g} and {high:g}"
        raise ValueError(f"{name} must {asked}, got {value!r}")


def split_folds(cv: Any, rows: int) -> list[tuple[Int[np.ndarray, " k"], Int[np.ndarray, " t"]]]:
    """Rows to learn from and rows to test on: of that many shuffled folds, or of a splitter of scikit-learn."""
    from sklearn.model_selection import KFold, check_cv  # slow to import, and most have no need of it

    if isinstance(cv, Integral):
        if cv < 2:
            raise ValueError(f"cv, the number of folds, must be at least 2, got {cv!r}")
        cv = KFold(min(int(cv), rows), shuffle=True, random_state=0)
    return list(check_cv(cv).split(np.zeros((rows, 1))))


class Rows(NamedTuple):
    """Rows to learn from: inputs and outputs in standard units, and what each row counts."""

    x: Inputs
    z: Float[np.ndarray, "n D"]
    weight: Float[np.ndarray, " n"]

    def take(self, index: Int[np.ndarray, " b"] | slice) -> "Rows":
        """Some of them."""
        return Rows(self.x.take(index), self.z[index], self.weight[index])

    @property
    def n_rows(self) -> int:
        return len(self.z)

    @property
    def total(self) -> float:
        """What all count."""
        return float(self.weight.sum())

    @property
    def present(self) -> "Rows":
        """Those of any weight."""
        return self.take(np.flatnonzero(self.weight > 0))

    def in_units(self, old: OutputTransform, new: OutputTransform) -> "Rows":
        """The same rows, their outputs in other units."""
        return self if new.same_as(old) else self._replace(z=new.to_standard(old.from_standard(self.z)))

    def bent(self, bends: Bends | None) -> "Rows":
        """The same rows, some of their inputs by an asinh."""
        return self if bends is None else self._replace(x=self.x._replace(dense=bends.apply(np.asarray(self.x.dense))))

    @property
    def sample(self) -> "Rows":
        """Rows enough to find a start from: all of them."""
        return self

    @property
    def data(self) -> Batch:
        """What to train on."""
        return whole(self.x, self.z, self.weight)

    def parts(self, seed: int) -> list["Rows"]:
        """All of them, each time some others of no weight: few rows are held out several times, lest chance decides."""
        folds = np.array_split(np.random.default_rng(seed).permutation(self.n_rows), FOLDS)
        wanted = min(max(1, ENOUGH_HELD * FOLDS // self.n_rows), FOLDS)
        masks = (np.isin(np.arange(self.n_rows), fold) for fold in folds[:wanted])
        return [self._replace(weight=np.where(mask, 0, self.weight)) for mask in masks]

    def mean_slope(self, transform: OutputTransform, more: "Rows") -> float:
        """What a log density loses from standard units to the user's, on average over these rows and more."""
        slope = transform.log_slope(np.concatenate([self.z, more.z])).sum(1)
        return float(np.average(slope, weights=np.concatenate([self.weight, more.weight])))

    def contents(self) -> tuple[AnyArray, ...]:
        """What tells these rows from others."""
        return self.x.dense, self.x.codes, self.z, self.weight


class DensityEstimator(RegressorMixin, BaseEstimator):
    """A model of p(y|x) in scikit-learn's shape; `score` is the mean log density, in the units of y.

    Attributes
    ----------
    output_names_ : tuple of str or None
        The columns of y, where it was a data frame with names that are text.
    """

    _kinds: ClassVar[dict[str, type["DensityEstimator"]]] = {}
    _learnt: ClassVar[tuple[str, ...]] = (
        "features_",
        "transform_",
        "n_features_in_",
        "n_outputs_",
        "flat_",
        "output_names_",
        "frame_",
    )

    _unsaved: ClassVar[tuple[str, ...]] = ()
    """Parameters of a run, not of the model: they stay out of files, and are taken from none."""

    features_: Columns
    transform_: OutputTransform
    n_features_in_: int
    n_outputs_: int
    flat_: bool
    output_names_: tuple[str, ...] | None = None  # as files of 0.1.0, which do not say
    frame_: str | None = None

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

    def _check_positive_integers(self, *names: str) -> None:
        """Raise where one of these parameters is no positive integer."""
        for name in names:
            check_positive_integer(name, getattr(self, name))

    def _check_validation(self) -> None:
        """Raise where no part of the rows could be held out."""
        check_number("validation_fraction", self.validation_fraction, 0, 1)

    # tables

    def _read_table(self, X: Any, reset: bool) -> Table:
        """X, taken apart and checked; `reset` where it is to be remembered what columns it has."""
        if isinstance(X, ParquetRows):
            raise TypeError(
                f"{type(self).__name__} takes rows that are in memory here: give X and y. GPCDE.fit, score and predict "
                "take a ParquetRows, and predict_density the tables that its inputs() yields"
            )
        X = from_arrow(X)
        check_readable("X", X)
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
        check_readable("y", y)
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
        check_finite("y", matrix, list(titles(y, matrix.shape[1])))
        return matrix, array.ndim == 1

    def _read_weights(self, sample_weight: Any, rows: int) -> Float[np.ndarray, " n"] | None:
        """What each row counts, checked."""
        if sample_weight is None:
            return None
        check_readable("sample_weight", sample_weight)
        try:
            weight = np.asarray(sample_weight, float)
        except (TypeError, ValueError) as error:
            raise ValueError(f"sample_weight must be a vector of {rows} numbers, one a row: {error}") from error
        if weight.shape != (rows,):
            raise ValueError(f"sample_weight must be a vector of {rows} numbers, one a row, got shape {weight.shape}")
        bad = ~(np.isfinite(weight) & (weight >= 0))
        if bad.any():
            row = int(bad.argmax())
            raise ValueError(f"sample_weight must be finite and not negative, but is {weight[row]:g} in row {row}")
        if not weight.any():
            raise ValueError("sample_weight is zero in every row: nothing is left to count")
        return weight

    def _learn_tables(
        self, X: Any, y: Any, transform: str | None, bounds: Any, common_scale: bool = False
    ) -> tuple[Inputs, Float[np.ndarray, "n D"]]:
        """Learn the columns' units from X and y; both in standard units, without the rows that are left out."""
        table = self._read_table(X, reset=True)
        outputs = self._first_outputs(y, len(table.dense), None, common_scale)
        rows = self._learn_units(table, outputs, None, transform, bounds, common_scale)
        return rows.x, rows.z

    def _learn_rows(
        self, X: Any, y: Any, sample_weight: Any, transform: str | None, bounds: Any, common_scale: bool = False
    ) -> Rows:
        """Learn the columns' units from rows that have weights; the rows in standard units, repeated ones merged."""
        table = self._read_table(X, reset=True)
        weight = self._read_weights(sample_weight, len(table.dense))
        outputs = self._first_outputs(y, len(table.dense), weight, common_scale)
        supported(outputs, transform, bounds, weight)  # here, where the rows are still the user's
        table, outputs, weight = merged(table, outputs, weight)
        return self._learn_units(table, outputs, weight, transform, bounds, common_scale)

    def _first_outputs(
        self, y: Any, rows: int, weight: Float[np.ndarray, " n"] | None, common_scale: bool
    ) -> Float[np.ndarray, "n D"]:
        """y as a matrix, looked over and its shape and names remembered."""
        outputs, flat = self._read_outputs(y, rows)
        known = outputs if weight is None else outputs[weight > 0]
        names = titles(y, outputs.shape[1])
        self._check_variety(Moments.of(known), len(known), names, common_scale)
        if not common_scale:  # else one noise for all columns, which an atom of one does not narrow
            warn_of_atoms(names, known)
        self.n_outputs_, self.flat_ = outputs.shape[1], flat
        self.output_names_, self.frame_ = frame_names(y), frame_kind(y)
        return outputs

    def _more_rows(self, X: Any, y: Any, sample_weight: Any = None) -> Rows:
        """More rows, in the units learnt before, repeated ones merged, without those that are left out."""
        check_is_fitted(self)
        table = self._read_table(X, reset=False)
        outputs = self._apply_outputs(y, len(table.dense))
        table, outputs, weight = merged(table, outputs, self._read_weights(sample_weight, len(outputs)))
        z = self._standard_outputs(outputs)
        _, out = self._doubtful(table, outputs, z, bool((self.transform_.scale == self.transform_.scale[0]).all()))
        rows = Rows(self._used(self.features_.apply(table)), z, weight)
        return rows.take(np.flatnonzero(~out)) if out.any() else rows

    def _doubtful(
        self, table: Table, outputs: Float[np.ndarray, "n D"], u: Float[np.ndarray, "n D"], together: bool
    ) -> tuple[Bool[np.ndarray, "n d"], Bool[np.ndarray, " n"]]:
        """Which numbers of X are far from all others, and which rows to leave out for that, or for such a y: told."""
        far_x, far_y = isolated(table.dense, SOME), isolated(u, together=together)
        warn_of_isolated("X", tuple(table.names[place] for place in table.numbers), table.dense, far_x)
        warn_of_isolated("y", self.output_names_ or titles(None, outputs.shape[1]), outputs, far_y)
        return far_x, left_out(far_x) | left_out(far_y)

    def _standard_rows(self, X: Any, y: Any) -> tuple[Inputs, Float[np.ndarray, "n D"]]:
        """Inputs and outputs in the units learnt before."""
        x = self._apply_tables(X)
        return x, self._standard_outputs(self._apply_outputs(y, x.n_rows))

    def _standard_outputs(self, outputs: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n D"]:
        """Outputs in the units learnt before."""
        z = self.transform_.to_standard(outputs)
        if not np.isfinite(z).all():
            kind = self.transform_.kind
            raise ValueError(f"y_transform={kind!r} needs y strictly within its bounds; some of y is not")
        return z

    def _check_variety(self, outputs: Moments, rows: int, names: tuple[str, ...], common_scale: bool) -> None:
        """Raise where there is nothing to learn a density from, or the outputs are too large."""
        if rows < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 rows to learn a density from, got n_samples = {rows}"
            )
        constant = outputs.low == outputs.high
        if constant.all() if common_scale else constant.any():
            column = int(constant.argmax())
            raise ValueError(
                f"y is constant: column {column} is {outputs.first[column]:g} in every row, which has no density. "
                "Leave that column out"
            )
        large = outputs.size > LARGEST
        if large.any():
            column = int(large.argmax())
            raise _wrong_units(f"column {names[column]} of y is as large as", outputs.size[column])

    def _learn_units(
        self,
        table: Table,
        outputs: Float[np.ndarray, "n D"],
        weight: Float[np.ndarray, " n"] | None,
        transform: str | None,
        bounds: Any,
        common_scale: bool,
    ) -> Rows:
        """Learn the units from these rows, those apart that are left out; all others in standard units."""
        each = None if weight is None or (weight == 1).all() else weight
        plain = OutputTransform.plain(outputs, transform, bounds)
        far, out = self._doubtful(table, outputs, plain.to_standard(outputs), common_scale)
        weight = np.ones(len(outputs)) if weight is None else weight
        limited = np.asarray(far.any(0))
        if out.any():
            rows = np.flatnonzero(~out)
            table, outputs, weight, far = table.take(rows), outputs[rows], weight[rows], far[rows]
            each = None if each is None else each[rows]
        features = Columns.fit(table, each, far, limited)
        learnt = OutputTransform.fit(outputs, transform, bounds, common_scale, each)
        self._keep_units(features, learnt)
        return Rows(self._used(features.apply(table)), learnt.to_standard(outputs), weight)

    def _keep_units(self, features: Columns, learnt: OutputTransform) -> None:
        """Remember the units, unless those of y are too small."""
        small = learnt.scale < 1 / LARGEST
        if small.any():
            column = int(small.argmax())
            name = (self.output_names_ or titles(None, len(small)))[column]
            raise _wrong_units(f"column {name} of y varies by", learnt.scale[column])
        self.features_, self.transform_ = features, learnt

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
        names = frame_names(y)
        if self.output_names_ and names and names != self.output_names_:
            order = "in another order" if sorted(names) == sorted(self.output_names_) else "with other names"
            raise ValueError(
                f"y has its columns {order} than in training: it has {', '.join(names)}; training had "
                f"{', '.join(self.output_names_)}"
            )
        if outputs.shape[1] != self.n_outputs_:
            raise ValueError(f"y has {outputs.shape[1]} columns, but the model was trained with {self.n_outputs_}")
        return outputs

    # answers

    def _source(self, inputs: Inputs) -> Source:
        """The mixtures of these inputs, by row numbers, in standard units."""
        raise NotImplementedError

    def predict_density(self, X: Any) -> ConditionalDensity:
        """The conditional densities p(y|x) of the rows of X.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Inputs, in the columns that training had.

        Returns
        -------
        ConditionalDensity
            A batch of n densities.
        """
        inputs = self._apply_tables(X)
        return ConditionalDensity(self._source(inputs), self.transform_, inputs.n_rows, self.flat_)

    def predict(self, X: Any, return_density: bool = False) -> Any:
        """The mean of y at every row of X; with `return_density`, the whole densities.

        Where y was a data frame with names, so are the means: of the same library, with its columns, and with the index
        of X where both are of pandas. A y that was a Series or an array is answered with arrays.

        Parameters
        ----------
        X : array or data frame of shape (n, d), or ParquetRows
            Inputs; of a ParquetRows they are read a row group at a time, which densities are too many for.
        return_density : bool, default=False
            Whether to answer as `predict_density` does.

        Returns
        -------
        array of shape (n,) or (n, D), data frame, or ConditionalDensity
            Means, or densities.
        """
        if return_density:
            return self.predict_density(X)
        parts = X.inputs() if isinstance(X, ParquetRows) else [X]
        mean = np.concatenate([self.predict_density(part).mean() for part in parts])
        return mean if self.frame_ is None else make_frame(self.frame_, mean, self.output_names_ or (), X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The mean log density of the rows of y: higher is better.

        Parameters
        ----------
        X : array or data frame of shape (n, d), or ParquetRows
            Inputs; or inputs, outputs and weights, which are read a row group at a time.
        y : array of shape (n,) or (n, D), default=None
            Outputs; None with ParquetRows.
        sample_weight : array of shape (n,), default=None
            What each row counts in the mean.

        Returns
        -------
        float
            In nats a row, in the units of y.
        """
        if isinstance(X, ParquetRows):
            return self._score_stream(X, y, sample_weight)
        density = self.predict_density(X)
        logs = density.log_pdf(self._apply_outputs(y, len(density)))
        weight = self._read_weights(sample_weight, len(logs))
        if weight is None:
            return float(logs.mean())
        return float(np.average(logs[weight > 0], weights=weight[weight > 0]))

    def _score_stream(self, rows: ParquetRows, y: Any, sample_weight: Any) -> float:
        """The mean log density, a row group at a time."""
        check_is_fitted(self)
        check_alone(rows, y, sample_weight)
        if self.output_names_ and rows.target != self.output_names_:
            raise ValueError(
                f"the target of X is {', '.join(rows.target)}, but that of training was {', '.join(self.output_names_)}"
            )
        if rows.names != self.features_.names or len(rows.target) != self.n_outputs_:
            raise ValueError(
                f"X has the columns {', '.join(rows.names)} and {len(rows.target)} outputs, but training had "
                f"{', '.join(self.features_.names)} and {self.n_outputs_}: name them by features and target"
            )
        total, weight = 0.0, 0.0
        for number, group in enumerate(rows.groups):
            table, outputs, counts = rows.read(number)
            counted = np.ones(len(outputs)) if counts is None else counts
            kept = np.flatnonzero(counted > 0)
            if len(kept):
                try:
                    inputs = self._used(self.features_.apply(table.take(kept)))
                except ValueError as error:
                    raise ValueError(f"{group}: {error}") from error
                density = ConditionalDensity(self._source(inputs), self.transform_, len(kept), False)
                total += float(counted[kept] @ density.log_pdf(outputs[kept]))
                weight += float(counted[kept].sum())
        if not weight:
            raise ValueError("weights are zero in every row of X: nothing is left to count")
        return total / weight

    # files

    def save(self, path: AnyPath) -> None:
        """Write the trained model, units and all, to one file that `gpcde.load` reads; it holds no code.

        Parameters
        ----------
        path : str or path
            The file, which is replaced if there is one.

        Raises
        ------
        ValueError
            If `gpcde.load` would refuse the file, as of a model whose training diverged; nothing is written then.
        """
        check_is_fitted(self)
        self._write(path)

    def _write(self, path: AnyPath, mark: str = "", keep: AnyPath | None = None) -> None:
        files.write(path, type(self).__name__, _portable(self)[ESTIMATOR], mark, _put_together, keep)

    def _restored(self) -> None:
        """Called once a model was read from a file: raise where its parts do not fit each other."""

    def _check_learnt(self) -> None:
        """Raise where what was read from a file is not what it should be, or its tables do not fit each other."""
        hints: dict[str, Any] = {}
        for cls in reversed(type(self).__mro__):
            hints |= vars(cls).get("__annotations__", {})
        learnt = {name: vars(self)[name] for name in self._learnt if name in vars(self)}
        check_declared(type(self).__name__, learnt, hints)
        if not self.__sklearn_is_fitted__():
            raise ValueError("it lacks some of what it should have learnt")
        for name, value in learnt.items():
            if isinstance(value, np.ndarray):
                files.check_numbers(name, value)
        count = len(self.transform_.location)
        if not count or count != self.n_outputs_ or (self.flat_ and count > 1):
            raise ValueError("its outputs do not fit its model")
        if self.output_names_ is not None and len(self.output_names_) != count:
            raise ValueError("its outputs have too many names, or too few")
        if self.frame_ not in (None, "pandas", "polars") or (self.frame_ and self.output_names_ is None):
            raise ValueError(f"y cannot have been a data frame of {self.frame_}")
        names = list(self.features_.names)
        if self.n_features_in_ != len(names) or list(getattr(self, "feature_names_in_", names)) != names:
            raise ValueError("its columns do not fit its features")
        self._restored()


def titles(y: Any, count: int) -> tuple[str, ...]:
    """What the columns of y are called in messages: their names, or their numbers."""
    return tuple(str(name) for name in (y.columns if is_frame(y) else range(count)))


def check_alone(rows: ParquetRows, y: Any, sample_weight: Any) -> None:
    """Raise where there is a y, or weights, beside a ParquetRows, which has its own; or where it has no y."""
    for name, given, column in (("y", y, "target"), ("sample_weight", sample_weight, "weights")):
        if given is not None:
            raise ValueError(f"{name} is a column of a ParquetRows, named by its {column}: leave {name} out")
    if not rows.target:
        raise ValueError("X is a ParquetRows without a y: name the column by its target")


def _wrong_units(what: str, unit: float) -> ValueError:
    factor = f"1e{-int(np.floor(np.log10(unit)))}"
    return ValueError(
        f"{what} {unit:g}, whose square is no number any more: multiply that column by {factor}, which takes "
        f"log({factor}) off every log density"
    )


def load(path: AnyPath) -> DensityEstimator:
    """The model in a file that `save` wrote.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    DensityEstimator
        The model, as it was when it was saved.

    Raises
    ------
    FileError
        If it is no file of a model; the message says why.
    """
    kind, value = files.read(path)
    try:
        model = _put_together(value)
        if not isinstance(model, DensityEstimator) or type(model).__name__ != kind:
            raise ValueError(f"it is said to hold a {kind}, and does not")
    except ImportError:  # of an extra, which says so
        raise
    except Exception as error:
        raise files.FileError(f"{path} cannot be read, its parts do not fit together: {error}") from error
    return model


def _put_together(value: Any) -> Any:
    """The estimator that a file's value is of."""
    with np.errstate(all="ignore"):
        return _revived({ESTIMATOR: value})


ESTIMATOR = "estimator of gpcde"
"""The key under which an estimator stands for itself in a file."""


def _portable(value: Any) -> Any:
    """A value with every estimator in it, fitted or not, taken apart."""
    if isinstance(value, DensityEstimator):
        given = {name: item for name, item in value.get_params(deep=False).items() if name not in value._unsaved}
        params = {name: _portable(item) for name, item in given.items() if _plain(item)}
        names = [name for name in (*value._learnt, "feature_names_in_") if name in vars(value)]
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
    model = cls(**{name: _revived(item) for name, item in parts["params"].items() if name not in cls._unsaved})
    known = {*cls._learnt, "feature_names_in_"}
    if not set(parts["learnt"]) <= known:
        raise ValueError(f"unknown attributes {sorted(set(parts['learnt']) - known)}")
    for name, item in parts["learnt"].items():
        setattr(model, name, np.array(item, object) if name == "feature_names_in_" else _revived(item))
    if parts["learnt"]:
        model._check_learnt()
    return model


def _plain(value: Any) -> bool:
    """Whether a parameter can be written down."""
    try:
        files.pack(_portable(value), {})
    except TypeError:
        return False
    return True
