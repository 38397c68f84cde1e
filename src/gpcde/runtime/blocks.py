"""Rows in blocks, and rows padded to few sizes: so that few programs are compiled, and memory stays bounded."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

T = TypeVar("T")


LEAST = 16


def rung(rows: int) -> int:
    """The least size of a short ladder, 16, 24, 32, 48, 64, ..., that has room for that many rows."""
    power = 1 << (max(rows, LEAST) - 1).bit_length()
    return power * 3 // 4 if max(rows, LEAST) <= power * 3 // 4 else power


def padded(rows: T, size: int) -> T:
    """A tree of arrays with a row each, brought to that many rows: the last one repeats."""

    def longer(a: Any) -> np.ndarray:
        a = np.asarray(a)
        return np.concatenate([a, np.repeat(a[-1:], size - len(a), axis=0)])

    return jax.tree.map(longer, rows)


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
        rest = min(size, total - begin)

        def some(a: Any, begin: int = begin, rest: int = rest) -> Any:
            return a[begin : begin + rest]

        part = jax.tree.map(some, rows)
        yield part if rest == size else padded(part, size), rest


def by_blocks(function: Callable[..., Any], rows: tuple[Any, ...], most: int) -> Any:
    """What a compiled function makes of rows, its arguments, block by block: joined, as NumPy arrays."""

    def joined(*parts: Any) -> np.ndarray:
        return np.concatenate(parts)

    results = []
    for part, count in in_blocks(rows, most):
        results.append(jax.tree.map(lambda a, count=count: np.asarray(a)[:count], function(*part)))
    return jax.tree.map(joined, *results)


def block_count(rows: int, most: int) -> int:
    """In how many blocks of at most that many rows to take them; if it can be, they divide evenly, by halves."""
    count = -(-rows // max(1, most))
    even = 1 << (count - 1).bit_length()
    return even if rows % even == 0 else count


def stacked(a: Shaped[Array, "n *d"], blocks: int) -> Shaped[Array, "b s *d"]:
    """Within a program: rows in blocks, for `lax.scan`, with zeros for the rows that the last lack.

    A block takes every so-many-th row: where devices share the rows, each has its part of every block.
    """
    size = -(-a.shape[0] // blocks)
    padded = jnp.pad(a, [(0, blocks * size - a.shape[0])] + [(0, 0)] * (a.ndim - 1))
    return padded.reshape(size, blocks, *a.shape[1:]).swapaxes(0, 1)


def unstacked(a: Shaped[Array, "b s *d"], rows: int) -> Shaped[Array, "n *d"]:
    """The rows again."""
    return a.swapaxes(0, 1).reshape(-1, *a.shape[2:])[:rows]
