"""Rows in blocks: of one size, a power of two, so that few shapes are compiled and memory stays bounded."""

from collections.abc import Iterator
from typing import Any, TypeVar

import jax
import numpy as np

T = TypeVar("T")


def in_blocks(rows: T, most: int) -> Iterator[tuple[T, int]]:
    """A tree of arrays with a row each, some rows at a time, and how many of them are real: the last block repeats one.

    Parameters
    ----------
    rows : tree of arrays
        All with the same number of rows.
    most : int
        At most this many rows at a time.
    """
    total = len(jax.tree.leaves(rows)[0])
    size = min(1 << (max(1, most).bit_length() - 1), 1 << max(total - 1, 0).bit_length())
    for begin in range(0, total, size):
        index = np.minimum(np.arange(begin, begin + size), total - 1)

        def some(a: Any, index: np.ndarray = index) -> Any:
            return a[index]

        yield jax.tree.map(some, rows), min(size, total - begin)
