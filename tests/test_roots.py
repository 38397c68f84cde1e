"""Roots of many functions at once against scipy's, one by one."""

import numpy as np
import pytest
from scipy.optimize import bisect

from gpcde.density.roots import rising_roots

FUNCTIONS = {
    "straight": (lambda z, a: z - a, lambda z, a: np.ones_like(z)),
    "cube": (lambda z, a: (z - a) ** 3, lambda z, a: 3 * (z - a) ** 2),
    "steep": (lambda z, a: np.arctan(1e6 * (z - a)), lambda z, a: 1e6 / (1 + (1e6 * (z - a)) ** 2)),
    "flat far away": (lambda z, a: np.tanh(z - a), lambda z, a: np.cosh(z - a) ** -2.0),
    "infinite below": (lambda z, a: np.log(np.maximum(z, 0) / a), lambda z, a: 1 / z),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_roots_are_those_of_halving(name: str) -> None:
    """Wherever they lie in their brackets; a triple root is known to the third root of rounding."""
    function, slope = FUNCTIONS[name]
    where = np.linspace(0.01, 4.99, 57)

    def both(which: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(divide="ignore"):
            return function(z, where[which]), slope(z, where[which])

    found = rising_roots(both, np.full(57, -3.0), np.full(57, 5.0))
    low = 1e-6 if name == "infinite below" else -3.0
    expected = [bisect(function, low, 5.0, args=(a,), xtol=1e-15, rtol=1e-14) for a in where]
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-3 if name == "cube" else 1e-14)


def test_a_root_that_is_found_is_asked_for_no_more() -> None:
    """The first is where it starts, the second is not; a value of the size that is enough ends the search."""
    asked = np.zeros(3, int)
    root = np.array([1.0, 1.7, 1.7])

    def both(which: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        asked[which] += 1
        return np.exp(z) - np.exp(root[which]), np.exp(z)

    found = rising_roots(both, np.zeros(3), np.full(3, 2.0))
    np.testing.assert_allclose(found, root, rtol=1e-14)
    exact = asked.copy()
    asked[:] = 0
    rough = rising_roots(both, np.zeros(3), np.full(3, 2.0), enough=1e-3)
    assert exact[0] < exact[1] == exact[2] < 12
    assert asked[1] < exact[1]
    assert 0 < abs(rough[1] - 1.7) < 1e-3
