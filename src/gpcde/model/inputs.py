"""Inputs: x = [dense, one-hot(codes)], with the one-hot part kept as indices.

A product of x with a matrix W then is `dense W_dense + sum_j W_codes[code_j]`: a look-up, never a
dense one-hot matrix.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..runtime.files import register
from ..runtime.precision import as_array, require_wide
from ..runtime.products import looked_up

AnyArray = Array | np.ndarray
Numbers = float | int | Sequence[Any] | AnyArray | np.generic
"""What numpy.asarray takes for numbers, as far as we take it."""


@register
class Inputs(NamedTuple):
    """Rows of dense features, and of indices into one common list of category levels.

    Parameters
    ----------
    dense : array of shape (n, d)
        The dense features.
    codes : int array of shape (n, c)
        The levels of each row, one for each category column; those of a column come after those of the column before.

    Attributes
    ----------
    n_rows : int
        The number of rows.
    """

    dense: Float[AnyArray, "n d"]
    codes: Int[AnyArray, "n c"]

    @property
    def n_rows(self) -> int:
        return self.dense.shape[0]

    def take(self, index: Int[AnyArray, "*b"] | slice) -> "Inputs":
        return Inputs(self.dense[index], self.codes[index])


def make_inputs(
    dense: Numbers | None = None,
    codes: Numbers | None = None,
    levels: tuple[int, ...] = (),
    rows: int | None = None,
) -> Inputs:
    """Inputs from a matrix, integer category columns (column j holding 0 .. levels[j] - 1), or both.

    Parameters
    ----------
    dense : array of shape (n, d), default=None
        The dense features.
    codes : int array of shape (n, c) or (n,), default=None
        The category columns.
    levels : tuple of int, default=()
        The number of levels of each category column.
    rows : int, default=None
        The number of rows, where there are neither dense features nor categories (a model without inputs).

    Returns
    -------
    Inputs
        Checked, the codes counted through all columns.

    Examples
    --------
    >>> from gpcde.model import make_inputs
    >>> x = make_inputs([[0.5], [1.5]], codes=[[0, 2], [1, 0]], levels=(2, 3))
    >>> x.dense.shape
    (2, 1)
    >>> x.codes.tolist()
    [[0, 4], [1, 2]]
    """
    given = next((np.shape(a)[0] for a in (dense, codes) if a is not None), rows)
    if given is None:
        raise ValueError("make_inputs: without dense and codes, say how many rows there are")
    x = np.zeros((given, 0)) if dense is None else np.asarray(dense)
    if not np.issubdtype(x.dtype, np.floating):
        x = x.astype(float)
    c = np.zeros((given, 0), np.int32) if codes is None else np.asarray(codes)
    c = c[:, None] if c.ndim == 1 else c
    if not (np.issubdtype(c.dtype, np.integer) or np.array_equal(c, np.floor(c))):
        raise ValueError("make_inputs: codes must be integers")
    c = c.astype(np.int32)
    if x.ndim != 2 or c.ndim != 2 or x.shape[0] != c.shape[0]:
        raise ValueError(f"make_inputs: dense {x.shape} and codes {c.shape} must be matrices with as many rows")
    if c.shape[1] != len(levels):
        raise ValueError(f"make_inputs: {c.shape[1]} columns of codes, but levels names {len(levels)}")
    if c.size and (c.min() < 0 or (c.max(0) >= np.asarray(levels)).any()):
        raise ValueError("make_inputs: codes must lie between 0 and their column's number of levels - 1")
    offsets = np.concatenate([[0], np.cumsum(levels)])[:-1].astype(np.int32)
    return Inputs(x, c + offsets)


def linear(x: Inputs, weight: Float[Array, "rows k"]) -> Float[Array, "n k"]:
    """x W, the rows of W for the dense features first, then one for each category level.

    Parameters
    ----------
    x : Inputs
        The inputs, n rows of them.
    weight : array of shape (rows, k)
        W.

    Returns
    -------
    array of shape (n, k)
        x W.
    """
    require_wide("a linear map of the inputs")
    d = x.dense.shape[1]
    if d > weight.shape[0] or (x.codes.shape[1] == 0 and d != weight.shape[0]):
        raise ValueError(f"the inputs have {d} dense columns, but the weights {weight.shape[0]} rows")
    out = jnp.asarray(x.dense, weight.dtype) @ weight[:d]
    return out + looked_up(weight[d:], as_array(x.codes)) if x.codes.shape[1] else out


def one_hot(x: Inputs, levels: int) -> Float[np.ndarray, "n k"]:
    """The inputs as a dense matrix, for models that look at few rows at a time."""
    ones = np.zeros((x.n_rows, levels))
    ones[np.arange(x.n_rows)[:, None], np.asarray(x.codes)] = 1
    return np.concatenate([np.asarray(x.dense), ones], axis=1)
