"""Every test runs in 64-bit scope, as the library's own entry points do.

Compilation is most of the tests' time, so the compiler is asked to think less (the arithmetic is the same), and all
processes share what they compiled, in a folder of this run. What JAX itself holds is dropped when it is much: a process
with some thousands of programs runs out of memory maps.
"""

import gc
import inspect
import os
import shutil
import tempfile

if "PYTEST_XDIST_WORKER" not in os.environ:  # the workers are told by it
    os.environ["GPCDE_CACHE_DIR"] = tempfile.mkdtemp(prefix="gpcde-tests-")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import jax
import pytest

from gpcde.estimators import base, plan
from gpcde.runtime import programs
from gpcde.runtime.precision import scope

TESTS = count(1)


def is_named(function: Any, plainly: Callable[[Any], bool] = programs._is_named) -> bool:
    """Types are checked by a function round each, which does what it did: its programs can be shared."""
    checked = "jaxtyping" in getattr(getattr(function, "__code__", None), "co_filename", "")
    return plainly(inspect.unwrap(function) if checked else function)


programs._is_named = is_named

LONG = (
    "test_experiments.py::test_the_quick_preset_makes_tables_and_figures[mnist]",
    "test_experiments.py::test_the_quick_preset_makes_tables_and_figures[omniglot]",
    "test_experiments.py::test_the_quick_preset_makes_tables_and_figures[taxi]",
    "test_kde.py::test_many_rows",
    "test_rivals.py::test_each_comes_close_to_the_truth[bimodal-GPCDE1]",
    "test_rivals.py::test_each_comes_close_to_the_truth[correlated-GPCDE]",
    "test_rivals.py::test_each_comes_close_to_the_truth[unconditional-GPCDE]",
    "test_robust.py::test_densities_of_values_that_repeat_stay_finite[<lambda>-whole numbers]",
    "test_site.py::test_an_example_runs_without_its_data[geyser]",
    "test_spread.py::test_several_devices_give_the_bound_and_the_model_of_one",
    "test_stacked.py::test_the_stack_is_the_weighted_sum_of_its_members[alike outputs]",
)
"""Tests that compile for long, and beside which a shorter one makes the same claim: for `make test-all`."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.endswith(LONG):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    gc.freeze()  # what is imported stays, and looking through it again and again takes its time


def pytest_unconfigure() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["GPCDE_CACHE_DIR"], ignore_errors=True)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody says how long to train, as in the documents, it is not for long."""
    for name in ("FEW_STEPS", "MANY_STEPS", "MOST_STEPS", "FIRST_STEPS"):
        monkeypatch.setattr(plan, name, 50)
    monkeypatch.setattr(base, "ENOUGH_HELD", 1)


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with scope():
        yield
    if next(TESTS) % 50 == 0 and is_crowded():
        jax.clear_caches()


def is_crowded() -> bool:
    """Whether a sixth of the memory maps that Linux allows is in use, or who knows; that is 2 or 3 GB."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n") > 10_000
    except OSError:
        return True
