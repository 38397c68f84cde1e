"""What is installed only where it is wanted: `pip install 'gpcde[plot]'` and the like."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Round imports of an extra: where one of them fails, the error names the extra to install."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{error.name} cannot be imported: pip install 'gpcde[{name}]'", name=error.name) from error
