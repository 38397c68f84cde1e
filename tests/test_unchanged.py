"""The numbers of small seeded cases are those of version 0.1.0; for its files, see test_old_files.

But for "GPCDE categories", whose A is drawn at every step: larger steps have been its default since, on purpose.
"""

from functools import cache

import numpy as np
import pytest

from unchanged_cases import NAMES, PIECES, RECORDED, TOLERANCE, Numbers, measure, read


@cache
def recorded() -> dict[str, Numbers]:
    return read(RECORDED)


def assert_same(got: np.ndarray, expected: np.ndarray, tolerance: float, what: str) -> None:
    """To that many digits of each number, and of the largest of the array."""
    scale = max(np.abs(expected).max(initial=0), 1e-3)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def test_every_case_is_recorded() -> None:
    assert list(recorded()) == NAMES


USUAL = (
    *PIECES,
    "free-form, even, bend, P Gaussian",
    "none, A, P by MAP, fixed noise",
    "amortised, two latents, full, draws, warp, P conjugate",
    *("GPCDE none", "LinearGaussian", "ConditionalKDE"),
)
"""Most inferences, maps and mixings; the others, and combinations of them, are for `make test-all`."""


@pytest.mark.parametrize(
    "name", [name if name in USUAL else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_numbers_are_as_recorded(name: str) -> None:
    got, expected = measure(name), recorded()[name]
    assert list(got) == list(expected)
    for what, value in expected.items():
        assert_same(got[what], value, TOLERANCE.get(name, 1e-9), f"{name}: {what}")
