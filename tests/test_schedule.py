"""Step sizes at their ends and between, and minibatches as a function of key and step."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpcde.inference.schedule import Geometric, Minibatches


@given(start=st.floats(1e-4, 10), end=st.floats(1e-4, 10), steps=st.integers(1, 1000).map(lambda n: 2 * n))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_schedule_passes_through_its_ends_and_their_geometric_mean(start: float, end: float, steps: int) -> None:
    schedule = Geometric.create(start, end, float(steps))
    places = [0, steps // 2, steps, steps + 1, 10 * steps]
    expected = [start, np.sqrt(start * end), end, end, end]
    np.testing.assert_allclose([schedule(jnp.asarray(t)) for t in places], expected, rtol=1e-12)


def test_each_step_changes_the_size_by_the_same_factor() -> None:
    schedule = Geometric.create(1e-3, 0.1, 20.0)
    sizes = [float(schedule(jnp.asarray(t))) for t in range(21)]
    np.testing.assert_allclose([b / a for a, b in pairwise(sizes)], 100 ** (1 / 20), rtol=1e-12)


def test_without_an_end_the_size_is_constant() -> None:
    schedule = Geometric.create(0.3)
    np.testing.assert_array_equal([schedule(jnp.asarray(t)) for t in (0, 1, 100)], 0.3)


@pytest.mark.parametrize(
    ("start", "end", "steps"), [(0.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, 0.0), (float("nan"), None, 1.0)]
)
def test_schedules_that_are_not_positive_are_refused(start: float, end: float | None, steps: float) -> None:
    with pytest.raises(ValueError, match="positive numbers, got start="):
        Geometric.create(start, end, steps)


@given(seed=st.integers(0, 10**6), n_data=st.integers(1, 40), data=st.data())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_no_row_repeats_within_a_pass(seed: int, n_data: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, n_data))
    steps = n_data // size
    for number in range(3):
        rows = Minibatches(jax.random.key(seed), n_data, size)(number * steps, steps)
        assert rows.shape == (steps, size)
        assert len(np.unique(rows)) == rows.size
        assert rows.min() >= 0
        assert rows.max() < n_data


def test_a_pass_of_whole_batches_sees_every_row() -> None:
    batches = Minibatches(jax.random.key(0), 12, 4)
    for step in (0, 3, 6):
        np.testing.assert_array_equal(np.sort(batches(step, 3).ravel()), np.arange(12))


def test_rows_left_over_are_others_in_other_passes() -> None:
    """Three rows of eleven sit out each pass, none of them always."""
    batches = Minibatches(jax.random.key(0), 11, 4)
    idle = [set(range(11)) - set(batches(2 * number, 2).ravel().tolist()) for number in range(30)]
    assert all(len(rows) == 3 for rows in idle)
    assert set.intersection(*idle) == set()
    assert set.union(*idle) == set(range(11))


def test_rows_depend_on_key_and_step_alone() -> None:
    """Not on what was asked before, nor in which chunks."""
    key = jax.random.key(3)
    expected = Minibatches(key, 11, 3)(0, 12)
    one_by_one = Minibatches(key, 11, 3)
    backwards = np.stack([one_by_one(step, 1)[0] for step in reversed(range(12))])[::-1]
    np.testing.assert_array_equal(backwards, expected)
    in_chunks = Minibatches(key, 11, 3)
    np.testing.assert_array_equal(np.concatenate([in_chunks(0, 5), in_chunks(5, 7)]), expected)
    np.testing.assert_array_equal(Minibatches(key, 11, 3)(7, 2), expected[7:9])


def test_rows_handed_out_are_not_changed_by_later_calls() -> None:
    batches = Minibatches(jax.random.key(3), 11, 3)
    first = batches(0, 1)
    kept = first.copy()
    batches(3, 6)
    np.testing.assert_array_equal(first, kept)


def test_passes_and_keys_differ() -> None:
    batches = Minibatches(jax.random.key(0), 30, 10)
    assert not np.array_equal(batches(0, 3), batches(3, 3))
    assert not np.array_equal(batches(0, 3), Minibatches(jax.random.key(1), 30, 10)(0, 3))


def test_rows_come_equally_often() -> None:
    """Each row in 2/3 of the passes, up to five standard deviations."""
    counts = np.bincount(Minibatches(jax.random.key(0), 9, 6)(0, 2000).ravel(), minlength=9)
    assert np.abs(counts / 2000 - 2 / 3).max() < 5 * np.sqrt(2 / 9 / 2000)


def test_a_batch_of_all_rows_keeps_their_order() -> None:
    batches = Minibatches(jax.random.key(0), 6, 6)
    np.testing.assert_array_equal(batches(0, 2), [np.arange(6)] * 2)


@pytest.mark.parametrize("size", [0, 8])
def test_batches_larger_than_the_data_or_empty_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"between 1 and the 7 rows, got {size}"):
        Minibatches(jax.random.key(0), 7, size)
