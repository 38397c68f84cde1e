"""scikit-learn's own checks of an estimator, all of them."""

from collections.abc import Iterator
from typing import Any

import jaxtyping
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from gpcde import GPCDE, MDN


def checks() -> Iterator[Any]:
    for whole in (GPCDE(max_steps=50), MDN(max_epochs=20)):
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
