"""Every test runs in 64-bit scope, as the library's own entry points do.

Compilation is most of the tests' time, so the compiler is asked to think less; the arithmetic is the same.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

from collections.abc import Iterator

import pytest

from gpcde._precision import scope


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with scope():
        yield
