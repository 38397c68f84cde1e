"""Categorical inputs kept as indices against their dense one-hot matrix."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpcde.model.inputs import Inputs, linear, make_inputs


def one_hot(dense: np.ndarray, codes: np.ndarray, levels: tuple[int, ...]) -> np.ndarray:
    return np.concatenate([dense, *(np.eye(k)[codes[:, j]] for j, k in enumerate(levels))], axis=1)


@given(
    seed=st.integers(0, 10**6),
    dense_columns=st.sampled_from([0, 2]),
    levels=st.lists(st.integers(1, 4), max_size=3).map(tuple),
)
@settings(max_examples=15, deadline=None, derandomize=True)
def test_look_up_equals_product_with_one_hot_matrix(seed: int, dense_columns: int, levels: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(5, dense_columns))
    codes = rng.integers(0, levels, size=(5, len(levels)))
    weight = rng.normal(size=(dense_columns + sum(levels), 3))
    got = linear(make_inputs(dense, codes, levels), jnp.asarray(weight))
    np.testing.assert_allclose(got, one_hot(dense, codes, levels) @ weight, rtol=1e-12, atol=1e-13)


def test_gradient_by_the_weights_adds_up_rows_of_the_same_level() -> None:
    """d/dW sum(G ⊙ x W) = xᵀ G, with x the one-hot matrix."""
    rng = np.random.default_rng(0)
    dense, codes, levels = rng.normal(size=(5, 2)), np.array([[0], [2], [2], [0], [2]]), (3,)
    direction = rng.normal(size=(5, 3))
    x = make_inputs(dense, codes, levels)
    got = jax.grad(lambda w: jnp.vdot(direction, linear(x, w)))(jnp.zeros((5, 3)))
    np.testing.assert_allclose(got, one_hot(dense, codes, levels).T @ direction, rtol=1e-12)


def test_one_column_of_codes_may_be_a_vector() -> None:
    x = make_inputs(codes=[2, 0, 1], levels=(3,))
    np.testing.assert_allclose(linear(x, jnp.eye(3)), np.eye(3)[[2, 0, 1]])


def test_whole_numbers_become_floating_and_floats_stay_as_wide_as_they_are() -> None:
    assert make_inputs([[1, 2], [3, 4]]).dense.dtype == np.float64
    assert make_inputs([[True], [False]]).dense.dtype == np.float64
    assert make_inputs(np.ones((2, 1), np.float32)).dense.dtype == np.float32


@pytest.mark.parametrize("index", [slice(1, 3), np.array([3, 0, 0])], ids=["slice", "rows"])
def test_take_takes_the_same_rows_of_both(index: Any) -> None:
    rng = np.random.default_rng(0)
    dense, codes, levels = rng.normal(size=(4, 2)), rng.integers(0, (3, 2), size=(4, 2)), (3, 2)
    part, direct = make_inputs(dense, codes, levels).take(index), make_inputs(dense[index], codes[index], levels)
    np.testing.assert_array_equal(part.dense, direct.dense)
    np.testing.assert_array_equal(part.codes, direct.codes)


def test_without_inputs_there_are_rows_all_the_same() -> None:
    x = make_inputs(rows=4)
    assert isinstance(x, Inputs)
    assert x.n_rows == 4
    np.testing.assert_array_equal(linear(x, jnp.zeros((0, 2))), np.zeros((4, 2)))


def test_an_empty_table_is_a_table() -> None:
    x = make_inputs(np.zeros((0, 3)), np.zeros((0, 1), int), (2,))
    assert x.n_rows == 0
    assert x.codes.shape == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({}, "how many rows"),
        ({"codes": [[0], [3]], "levels": (3,)}, "between 0 and"),
        ({"codes": [[0], [-1]], "levels": (3,)}, "between 0 and"),
        ({"codes": [[2, 0], [0, 2]], "levels": (3, 2)}, "between 0 and"),
        ({"codes": [[0], [1]]}, "1 columns of codes, but levels names 0"),
        ({"dense": [[1.0]], "levels": (3,)}, "0 columns of codes, but levels names 1"),
        ({"dense": [1.0, 2.0]}, r"dense \(2,\)"),
        ({"dense": np.ones((3, 1)), "codes": np.zeros((4, 1), int), "levels": (2,)}, "as many rows"),
        ({"dense": np.ones((3, 1)), "codes": np.zeros((2, 3), int), "levels": (2, 2)}, "as many rows"),
        ({"codes": [[0.5], [1.0]], "levels": (3,)}, "codes must be integers"),
    ],
    ids=[
        "no rows", "too high", "negative", "too high for its column", "no levels", "levels without codes",
        "vector", "other rows", "other rows, as many numbers", "fractions",
    ],
)  # fmt: skip
def test_bad_inputs_say_what_is_wrong(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make_inputs(**arguments)
