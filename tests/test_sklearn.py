"""scikit-learn's own checks of an estimator: all of them once for each class, at the smallest settings."""

from collections.abc import Iterator
from typing import Any

import jaxtyping
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from gpcde import CVAE, GP, GPCDE, GPLVM, KDE, MDN, ConditionalKDE, DensityEstimator, LinearGaussian, Stacked
from gpcde.estimators import base, kde
from gpcde.inference import collapsed
from gpcde.runtime import blocks
from small import flow

pytestmark = pytest.mark.filterwarnings("ignore::gpcde.DataWarning")  # the checks learn whole numbers

MODELS: list[Any] = [
    GPCDE(inference="none", max_steps=1, n_inducing=4),
    MDN(max_epochs=1, hidden=(2,), n_components=2),
    KDE(),
    ConditionalKDE(),
    LinearGaussian(),
    Stacked([("linear", LinearGaussian()), ("another", LinearGaussian())], cv=2),
]

SIGNATURE = (
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
)

LATENTS = (
    "check_sample_weight_equivalence_on_dense_data",
    "check_regressor_multioutput",
    "check_methods_subset_invariance",
    "check_fit_idempotent",
    "check_fit2d_1feature",
)

SLOW = ("check_fit_idempotent", "check_fit2d_1feature")

CASES: list[tuple[Any, tuple[str, ...], tuple[str, ...]]] = [
    (GPCDE(max_steps=1, n_inducing=4, companions=False), LATENTS, LATENTS[1:]),
    (GPCDE(max_steps=1, n_inducing=4, inference="none", companions=True), LATENTS[:3], LATENTS[1:3]),
    (GP(max_steps=1, n_inducing=4), SIGNATURE, ()),
    (GPLVM(max_steps=1, n_inducing=4), (*SIGNATURE, "check_fit2d_1feature"), SLOW),
    (Stacked([("linear", LinearGaussian()), ("kde", KDE())], cv=2), LATENTS, LATENTS),
    (CVAE(max_epochs=1), (*SIGNATURE, *LATENTS), LATENTS),
    *(
        (one, (*SIGNATURE, *LATENTS), (*SIGNATURE, *LATENTS))
        for one in flow(layers=1, width=2, knots=2, max_epochs=1, batch_size=1000)
    ),
]
"""GPCDE with other parameters: what is theirs alone is their signature, and what latents and companions do. Networks
that take long to compile read, train and answer by the code of the MDN. The last are for `make test-all`: of networks
and latents what compiles for minutes, of an extra all."""

WEIGHTS = (
    "check_sample_weights_pandas_series",
    "check_sample_weights_not_an_array",
    "check_sample_weights_list",
    "check_sample_weights_shape",
    "check_sample_weights_not_overwritten",
    "check_sample_weight_equivalence_on_dense_data",
)


def name_of(check: Any) -> str:
    return getattr(check, "func", check).__name__


ROWS = ("check_regressors_train", "check_regressor_data_not_an_array", "check_supervised_y_2d")
"""Checks that learn from 50 rows and more, which a conditional kernel estimate takes long for: KDE does the same."""


def checks() -> Iterator[Any]:
    for whole, some, slow in (
        *((model, None, ROWS if isinstance(model, ConditionalKDE) else ()) for model in MODELS),
        *CASES,
    ):
        for model, check in estimator_checks_generator(whole):
            if some is None or name_of(check) in some:
                marks = [pytest.mark.slow] * (name_of(check) in slow)
                yield pytest.param(model, check, id=f"{type(model).__name__}-{name_of(check)}", marks=marks)


def test_every_estimator_is_checked() -> None:
    """Those that sum up others are none."""
    ours = {cls for cls in DensityEstimator._kinds.values() if cls.__module__.startswith("gpcde.estimators")}
    assert {cls.__name__ for cls in ours if not cls.__name__.startswith("_")} == {
        type(model).__name__ for model in (*MODELS, *(case for case, _, _ in CASES))
    }


def test_weights_of_rows_are_checked_too() -> None:
    """They are scikit-learn's to choose, by the signature of fit."""
    found = {name_of(check) for _, check in estimator_checks_generator(GPCDE())}
    assert found >= {*WEIGHTS, *SIGNATURE, *LATENTS}


@pytest.mark.parametrize(("model", "check"), list(checks()))
def test_scikit_learn_is_content(model: Any, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(model, GPCDE):  # however few rows, they are padded to as many: columns alone make programs
        monkeypatch.setattr(blocks, "LEAST", 256)
        monkeypatch.setattr(base, "ENOUGH_HELD", 1)
    monkeypatch.setattr(kde, "ITERATIONS", 10)
    monkeypatch.setattr(collapsed, "PRECISION", 1.0)  # any fit will do
    # one check hands parameters of any type to the constructor, which the tests' own type checks would refuse
    jaxtyping.config.update("jaxtyping_disable", "do_not_raise_errors_in_init" in check.func.__name__)
    try:
        check(model)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
