"""Every test runs in 64-bit scope, as the library's own entry points do.

Compilation is most of the tests' time, so the compiler is asked to think less (the arithmetic is the same), and all
processes share what they compiled, in a folder of this run. What JAX itself holds is dropped now and then: a process
with some thousands of programs runs out of memory maps.
"""

import os
import shutil
import tempfile

if "PYTEST_XDIST_WORKER" not in os.environ:  # the workers are told by it
    os.environ["GPCDE_CACHE_DIR"] = tempfile.mkdtemp(prefix="gpcde-tests-")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

from collections.abc import Iterator
from itertools import count

import jax
import pytest

from gpcde.runtime.precision import scope

TESTS = count(1)


def pytest_unconfigure() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["GPCDE_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with scope():
        yield
    if next(TESTS) % 60 == 0:
        jax.clear_caches()
