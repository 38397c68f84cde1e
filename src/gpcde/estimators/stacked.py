"""Stacking: a convex combination of densities, with the weights that score best on rows their models have not seen.

    p(y|x) = sum_m v_m p_m(y|x),     v = argmax sum_n log sum_m v_m p_m(y_n|x_n; trained without n's fold)

The members answer with mixtures of Gaussians, and so does the stack; `stacking` finds the weights.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import check_is_fitted

from ..density.conditional import Source
from ..model.inputs import Inputs
from .base import DensityEstimator, split_folds
from .gpcde import GPCDE
from .kde import ConditionalKDE
from .mdn import MDN
from .stacking import stacking_weights

LEAST = 1e-6
"""Members of no more weight are not asked."""


class Stacked(DensityEstimator):
    """A convex combination of densities: p(y|x) = sum_m v_m p_m(y|x), the weights v by cross-validation.

    Parameters
    ----------
    estimators : list of (str, DensityEstimator), default=None
        The members by name; None: GPCDE, ConditionalKDE and MDN. They share their y_transform, of
        which "auto" is none here.
    cv : int, splitter or iterable, default=5
        Folds for the weights: a number of shuffled ones, or a splitter of scikit-learn.
    random_state : int, RandomState or None, default=None
        Seeds the members that have no seed.

    Attributes
    ----------
    weights_ : array of shape (m,)
        v.
    members_ : list of DensityEstimator
        The members, trained on all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import KDE, LinearGaussian, Stacked
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((60, 1))
    >>> y = 2 * X[:, 0] + rng.standard_normal(60)
    >>> model = Stacked([("linear", LinearGaussian()), ("kde", KDE())], cv=3, random_state=0).fit(X, y)
    >>> bool(model.weights_[0] > 0.8)
    True
    """

    _learnt: ClassVar[tuple[str, ...]] = (*DensityEstimator._learnt, "weights_", "members_")

    weights_: Float[np.ndarray, " m"]
    members_: list[DensityEstimator]

    def __init__(
        self,
        estimators: Sequence[tuple[str, DensityEstimator]] | None = None,
        *,
        cv: Any = 5,
        random_state: Any = None,
    ) -> None:
        self.estimators = estimators
        self.cv = cv
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "Stacked":
        """Score the members fold by fold, weigh them, and train them on all rows.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Numbers; columns of text or categories in a data frame are categories.
        y : array of shape (n,) or (n, D)
            Outputs.

        Returns
        -------
        Stacked
            Itself.
        """
        self.__dict__.pop("weights_", None)
        members = self._fresh()
        self._learn_tables(X, y, None, None)
        X, y = (a if hasattr(a, "__getitem__") else np.asarray(a) for a in (X, y))
        count = y.shape[0] if hasattr(y, "shape") else len(y)
        scores = np.full((count, len(members)), np.nan)
        for train, test in split_folds(self.cv, count):
            (X_train, y_train), (X_test, y_test) = (
                (_safe_indexing(X, rows), _safe_indexing(y, rows)) for rows in (train, test)
            )
            for j, member in enumerate(members):
                density = clone(member).fit(X_train, y_train).predict_density(X_test)
                scores[test, j] = density.log_pdf(np.asarray(y_test, float))
        self.weights_ = stacking_weights(scores[~np.isnan(scores).any(1)])
        self.members_ = [member.fit(X, y) for member in members]
        self.transform_ = members[0].transform_
        for member in members:
            if not member.transform_.same_as(self.transform_):
                self.__dict__.pop("weights_")
                raise ValueError("the members of a stack must share their y_transform, y_bounds and units of y")
        return self

    def _fresh(self) -> list[DensityEstimator]:
        named = self.estimators
        if named is None:
            named = [("gpcde", GPCDE()), ("kde", ConditionalKDE()), ("mdn", MDN())]
        seed = check_random_state(self.random_state)
        members = []
        for item in named:
            if not (isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[1], DensityEstimator)):
                raise ValueError(f"estimators must be a list of (name, estimator of gpcde), got {item!r} in it")
            if type(item[1])._source is DensityEstimator._source:
                raise ValueError(f"the members of a stack answer with mixtures of Gaussians; {item[1]!r} does not")
            member = clone(item[1])
            if "random_state" in member.get_params() and member.get_params()["random_state"] is None:
                member.set_params(random_state=int(seed.randint(2**31 - 1)))
            if member.get_params().get("y_transform") == "auto":
                member.set_params(y_transform=None)
            members.append(member)
        if not members:
            raise ValueError("estimators must name at least one estimator")
        return members

    def _restored(self) -> None:
        weights = self.weights_
        if len(weights) != len(self.members_) or weights.min(initial=0) < 0 or not weights.max() > LEAST:
            raise ValueError("its weights do not fit its members")
        for member in self.members_:
            check_is_fitted(member)
            shapes = [[a.shape for a in model.features_.blank()] for model in (self, member)]
            if not member.transform_.same_as(self.transform_) or shapes[0] != shapes[1]:
                raise ValueError("its members do not fit each other")
            if type(member)._source is DensityEstimator._source:
                raise ValueError("one of its members does not answer with mixtures of Gaussians")

    def _source(self, inputs: Inputs) -> Source:
        kept = np.flatnonzero(self.weights_ > LEAST)
        members = [self.members_[i] for i in kept]
        sources = [member._source(member._used(inputs)) for member in members]
        return Source.mixed(sources, self.weights_[kept] / self.weights_[kept].sum())
