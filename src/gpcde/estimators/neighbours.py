"""The neighbours of x: what no smooth function follows, the rows themselves remember.

    p(y|x) = sum_n π_n(x) N(y | y_n, diag h²),     π_n(x) ∝ v_n prod_j k_j(x_j, x_nj)

The bandwidths are those of a conditional kernel estimate (`kde`). Of one output the sum runs over the rows that are
nearest to x; of several over all, for among the kernels of y few rows would leave gaps.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from ..density.components import Components, log_sum_exp
from ..model.inputs import Inputs
from ..runtime.blocks import by_blocks
from ..runtime.files import check_fields, register
from .base import Rows
from .kde import Bandwidths, Kept, fit_bandwidths, log_density, log_kernel

MOST_ROWS, NEAREST = (2_000, 5_000), 100
"""Rows of one output, and of several, that are remembered; and those of them that a density of one is made of."""

ENOUGH = 500
"""Rows that tell the bandwidths."""

AT_ONCE = 2**18
"""How many pairs of rows are looked at together: few enough for the processor's cache."""


@register
class Neighbours(NamedTuple):
    """Rows in standard units, and the bandwidths of their kernels."""

    x: Inputs
    z: Float[np.ndarray, "n D"]
    log_weight: Float[np.ndarray, " n"]
    bandwidths: Bandwidths
    levels: Int[np.ndarray, " c"]

    def check_values(self) -> None:
        """Raise where a file holds what cannot be."""
        check_fields(self)
        rows, kinds = len(self.z), self.x.codes.shape[1]
        if not rows or any(len(a) != rows for a in (*self.x, self.log_weight)):
            raise ValueError("the rows of neighbours do not fit each other")
        wide = self.z.shape[1], self.x.dense.shape[1], kinds
        if tuple(len(a) for a in self.bandwidths) != wide or len(self.levels) != kinds:
            raise ValueError("the bandwidths of neighbours do not fit them")

    def check_fits(self, x: Inputs, outputs: int) -> None:
        """Raise where they are not of such inputs and of so many outputs."""
        if self.z.shape[1] != outputs or [a.shape[1] for a in self.x] != [a.shape[1] for a in x]:
            raise ValueError("its neighbours do not fit its columns and outputs")

    @classmethod
    def of(cls, rows: Rows, levels: tuple[int, ...], seed: int, before: "Neighbours | None" = None) -> "Neighbours":
        """These rows, those of no weight apart, or some of them where there are many.

        Those `before`, of a part of the rows, tell the bandwidths of more.
        """
        rng = np.random.RandomState(seed)
        most = MOST_ROWS[rows.z.shape[1] > 1]
        some = rows.take(np.sort(rng.permutation(np.flatnonzero(rows.weight > 0))[:most]))
        if before is None:
            found = fit_bandwidths(rng, some.z, some.x, levels, some.weight, ENOUGH)
            widths = Bandwidths(*(np.asarray(width, float) for width in found))
        else:
            widths = before.bandwidths.of_more_rows(len(before.z), len(some.z))
        return cls(some.x, some.z, np.log(some.weight), widths, np.array(levels, int))

    @property
    def _enough(self) -> int:
        """How many rows a density is made of."""
        return min(len(self.z), NEAREST) if self.z.shape[1] == 1 else len(self.z)

    def nearest(self, x: Inputs) -> tuple[Int[np.ndarray, "n k"], Float[np.ndarray, "n k"]]:
        """The rows that count most at each x, and log π of them."""

        def some(x: Inputs) -> tuple[np.ndarray, np.ndarray]:
            logs = log_kernel(x, self.x, self.bandwidths, self.levels) + self.log_weight
            near = np.broadcast_to(np.arange(len(self.z)), logs.shape)
            if self._enough < len(self.z):
                near = np.argpartition(logs, -self._enough, axis=1)[:, -self._enough :]
            logs = np.take_along_axis(logs, near, axis=1)
            return near, logs - log_sum_exp(logs)[:, None]

        return by_blocks(some, (x,), self._rows_at_once())

    def components(self, x: Inputs) -> Components:
        """A Gaussian on each of the nearest rows."""
        near, logs = self.nearest(x)
        return Components(logs, self.z[near], np.asarray(self.bandwidths.y)[None, None] ** 2)

    def log_density(self, x: Inputs, z: Float[np.ndarray, "n D"]) -> Float[np.ndarray, " n"]:
        """The log density by the neighbours alone."""
        if self._enough == len(self.z):
            return log_density(x, z, Kept(self.x, self.z, self.log_weight), self.bandwidths, self.levels)

        def some(x: Inputs, z: Float[np.ndarray, "b D"]) -> np.ndarray:
            return self.components(x).log_pdf(z[:, None])[:, 0]

        return by_blocks(some, (x, z), self._rows_at_once())

    def _rows_at_once(self) -> int:
        return max(1, AT_ONCE // len(self.z))

    def ready(self) -> "Neighbours":
        """Itself: nothing is computed beforehand."""
        return self

    def drawn(self, key: PRNGKeyArray) -> Callable[[Inputs], Components]:
        """As they are: they are not told how sure they are."""
        return self.components
