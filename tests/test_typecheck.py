"""The tests' own type checks: shapes that do not fit are noticed, in a function and in what a part is made of."""

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

import typecheck
from gpcde.model import RBF

WRONG = jnp.zeros(3), jnp.zeros((4, 2))
"""A vector where a matrix of points should be."""


def test_shapes_that_do_not_fit_are_noticed() -> None:
    with pytest.raises(TypeCheckError, match="Type-check error whilst checking the parameters"):
        RBF.create(2)(*WRONG)
    with pytest.raises(TypeCheckError):
        RBF((0, 1), jnp.zeros(()), jnp.zeros((2, 2)))


def test_the_first_calls_in_a_file_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """And again in the next."""
    monkeypatch.setattr(typecheck, "CALLS", 2)
    seen = []

    @typecheck.checked
    def count(number: int) -> int:
        seen.append(number)
        return number

    for _ in range(2):
        typecheck.begin()
        for _ in range(2):
            with pytest.raises(TypeCheckError):
                count("one")
        count("one")
    assert len(seen) == 2
    assert typecheck.unchecked(count)(3) == 3
