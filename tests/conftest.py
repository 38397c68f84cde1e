"""Every test runs in 64-bit scope, as the library's own entry points do."""

from collections.abc import Iterator

import pytest

from gpcde._precision import scope


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with scope():
        yield
