"""Every test runs in 64-bit scope, as the library's own entry points do.

Compilation is most of the tests' time, so the compiler is asked to think less; the arithmetic is the same. What was
compiled is dropped now and then: a process that holds some thousands of programs runs out of memory maps.
"""

import os

os.environ["GPCDE_CACHE_DIR"] = "off"
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

from collections.abc import Iterator
from itertools import count

import jax
import pytest

from gpcde.runtime.precision import scope

TESTS = count(1)


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with scope():
        yield
    if next(TESTS) % 60 == 0:
        jax.clear_caches()
