"""scikit-learn's own checks of an estimator, all of them."""

from collections.abc import Iterator
from typing import Any

import jaxtyping
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from gpcde import CVAE, GP, GPCDE, GPLVM, KDE, MDN, ConditionalKDE, LinearGaussian, Stacked
from small import flow


def models() -> list[Any]:
    return [
        GPCDE(max_steps=50),
        MDN(max_epochs=20),
        KDE(),
        ConditionalKDE(),
        LinearGaussian(),
        GP(max_steps=50),
        GPLVM(max_steps=50),
        CVAE(max_epochs=20),
        Stacked([("linear", LinearGaussian()), ("kde", KDE())], cv=2),
        *flow(layers=1, max_epochs=5),
    ]


def checks() -> Iterator[Any]:
    for whole in models():
        for model, check in estimator_checks_generator(whole):
            yield pytest.param(model, check, id=f"{type(model).__name__}-{getattr(check, 'func', check).__name__}")


@pytest.mark.parametrize(("model", "check"), list(checks()))
def test_scikit_learn_is_content(model: Any, check: Any) -> None:
    # one check hands parameters of any type to the constructor, which the tests' own type checks would refuse
    jaxtyping.config.update("jaxtyping_disable", "do_not_raise_errors_in_init" in check.func.__name__)
    try:
        check(model)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
