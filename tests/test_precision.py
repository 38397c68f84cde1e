"""64-bit numbers and one BLAS thread inside the scope, and nothing changed outside it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from gpcde.inference import Geometric, Trainer
from gpcde.model import (
    RBF,
    Concatenate,
    ConstantNoise,
    FreeForm,
    GaussianLatents,
    GaussianMixing,
    Identity,
    Ignore,
    NoLatents,
    PointMixing,
    StandardNormal,
)
from gpcde.model.kernels import One
from gpcde.runtime.precision import scope, wide

T = TypeVar("T")


def elsewhere(function: Callable[[], T]) -> T:
    """In a fresh thread, which has no scope of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(timeout=60)


def setting() -> bool:
    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]


def width() -> tuple[bool, str]:
    """What JAX says, and what it does."""
    return setting(), str(jnp.zeros(()).dtype)


WIDTH = {False: (False, "float32"), True: (True, "float64")}


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.parametrize("before", [False, True])
def test_scope_is_wide_and_leaves_things_as_they_were(before: bool) -> None:
    with jax.enable_x64(before):
        assert width() == WIDTH[before]
        with scope():
            assert width() == WIDTH[True]
        assert width() == WIDTH[before]


@pytest.mark.parametrize("before", [False, True])
def test_scope_leaves_the_users_own_setting(before: bool) -> None:
    """The setting of the whole process, read in a thread where nothing else was set."""

    def inside_and_after() -> list[tuple[bool, str]]:
        with scope():
            inside = width()
        return [inside, width()]

    process = elsewhere(setting)
    try:
        elsewhere(lambda: jax.config.update("jax_enable_x64", before))
        assert elsewhere(inside_and_after) == [WIDTH[True], WIDTH[before]]
        assert elsewhere(width) == WIDTH[before]
    finally:
        elsewhere(lambda: jax.config.update("jax_enable_x64", process))


@pytest.mark.parametrize("before", [False, True])
def test_scope_leaves_things_as_they_were_after_an_exception(before: bool) -> None:
    with jax.enable_x64(before), threadpool_limits(2, user_api="blas"):
        threads = blas_threads()
        with pytest.raises(RuntimeError, match="on purpose"), scope():
            raise RuntimeError("on purpose")
        assert width() == WIDTH[before]
        assert blas_threads() == threads


def test_scopes_nest() -> None:
    with jax.enable_x64(False):
        with scope():
            with scope():
                pass
            assert width() == WIDTH[True]
        assert width() == WIDTH[False]


def test_other_threads_are_unaffected() -> None:
    """While this thread is in a scope, and while another one is."""
    with jax.enable_x64(False):
        outside = elsewhere(width)
        with scope():
            assert elsewhere(width) == outside == WIDTH[False]
        ready, done = threading.Event(), threading.Event()

        def hold() -> None:
            with scope():
                ready.set()
                done.wait(60)

        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(hold)
            try:
                assert ready.wait(60)
                assert width() == WIDTH[False]
            finally:
                done.set()
            held.result(timeout=60)


def test_one_blas_thread_inside_and_as_many_as_before_after() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        assert max(before) == 2
        with scope():
            assert set(blas_threads()) == {1}
        assert blas_threads() == before


def test_scopes_that_overlap_in_two_threads_give_the_blas_threads_back() -> None:
    """The first to enter leaves first: the second must not put back what it found, one thread, for good."""
    entered, left = threading.Event(), threading.Event()

    def second() -> None:
        with scope():
            entered.set()
            left.wait(60)

    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with ThreadPoolExecutor(1) as pool:
            with scope():
                held = pool.submit(second)
                assert entered.wait(60)
            left.set()
            held.result(timeout=60)
        assert blas_threads() == before


PARTS: dict[str, Callable[[], object]] = {
    "RBF": lambda: RBF.create(2),
    "One": One,
    "Concatenate": lambda: Concatenate(2),
    "Ignore": Ignore,
    "NoLatents": NoLatents,
    "FreeForm": lambda: FreeForm.create(1, 5),
    "GaussianLatents": lambda: GaussianLatents(None, 1),
    "StandardNormal": StandardNormal,
    "ConstantNoise": ConstantNoise.create,
    "Identity": lambda: Identity(2),
    "PointMixing": lambda: PointMixing.create(np.eye(2)),
    "GaussianMixing": lambda: GaussianMixing.create(np.eye(2)),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_made_outside_of_the_scope_is_refused(name: str) -> None:
    """There its numbers would be 32-bit; inside, the same call makes one."""
    with jax.enable_x64(False), pytest.raises(RuntimeError, match=rf"^{name} needs 64-bit.*with gpcde.scope\(\)"):
        PARTS[name]()
    assert type(PARTS[name]()).__name__ == name


def test_numbers_of_rows_and_step_sizes_are_exact_wherever_a_trainer_is_made() -> None:
    """float32 has no 100,000,001, and no 0.1 to sixteen digits."""
    with jax.enable_x64(False):
        trainer = Trainer.create(100_000_001, learning_rate=0.1, gamma=Geometric.create(0.3, 0.1, 100_000_001))
    assert float(trainer.n_data) == 100_000_001
    assert float(trainer.learning_rate.start) == 0.1
    assert (float(trainer.gamma.start), float(trainer.gamma.steps)) == (0.3, 100_000_001)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(trainer)} == {"float64"}


def test_a_trainer_with_narrow_numbers_is_refused() -> None:
    schedule = Geometric.create(0.1)
    with jax.enable_x64(False), pytest.raises(RuntimeError, match="^Trainer needs 64-bit"):
        Trainer(jnp.asarray(10.0), schedule, schedule)


def test_wide_turns_floats_to_64_bits_and_leaves_the_rest() -> None:
    third = np.float32(1) / np.float32(3)
    tree = {"float": jnp.full(2, third, jnp.float32), "whole": jnp.arange(3, dtype=jnp.int32), "yes": jnp.array([True])}
    result = wide(tree)
    assert {name: str(leaf.dtype) for name, leaf in result.items()} == {
        "float": "float64", "whole": "int32", "yes": "bool",
    }  # fmt: skip
    np.testing.assert_array_equal(result["float"], np.full(2, float(third)))


def test_wide_is_as_wide_as_its_scope() -> None:
    with jax.enable_x64(False):
        assert wide(jnp.zeros(2)).dtype == jnp.float32
