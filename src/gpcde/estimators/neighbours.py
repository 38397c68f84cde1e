"""The neighbours of x beside the model: what no smooth function follows, the rows themselves remember.

    p(y|x) = (1 - ρ) p_GP(y|x) + ρ sum_n π_n(x) N(y | y_n, diag h²),     π_n(x) ∝ v_n prod_j k_j(x_j, x_nj)

The sum runs over the rows that are nearest to x; the bandwidths are those of a conditional kernel estimate (`kde`). The
share ρ is what rows that neither has seen give it: nearly all where the mean jumps, or y lies in a few places; nothing
where the Gaussian process is right, and then the rows are not kept.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from ..density.components import Components, mixed
from ..density.conditional import Source
from ..model.inputs import Inputs
from ..runtime.blocks import by_blocks
from ..runtime.files import check_fields, check_positive, register
from .base import Rows
from .kde import Bandwidths, fit_bandwidths, log_kernel

MOST_ROWS, NEAREST = 2_000, 100
"""Rows that are remembered, and those of them that a density is made of."""

ENOUGH = 500
"""Rows that tell the bandwidths."""

LEAST, DOUBT = 0.02, 3.0
"""A smaller share than this is none; and this many rows are thought to have spoken for the model beforehand."""

AT_ONCE = 2**22
"""How many pairs of rows are looked at together."""


@register
class Neighbours(NamedTuple):
    """Rows in standard units, the bandwidths of their kernels, and the share of the density they have."""

    x: Inputs
    z: Float[np.ndarray, "n D"]
    log_weight: Float[np.ndarray, " n"]
    bandwidths: Bandwidths
    levels: Int[np.ndarray, " c"]
    share: float

    def check_values(self) -> None:
        """Raise where a file holds what cannot be."""
        check_fields(self)
        check_positive(self, "share")
        rows, kinds = len(self.z), self.x.codes.shape[1]
        if not rows or self.share >= 1 or any(len(a) != rows for a in (*self.x, self.log_weight)):
            raise ValueError("neighbours must be some, and have less than all of the density")
        wide = self.z.shape[1], self.x.dense.shape[1], kinds
        if tuple(len(a) for a in self.bandwidths) != wide or len(self.levels) != kinds:
            raise ValueError("the bandwidths of neighbours do not fit them")

    @classmethod
    def of(cls, rows: Rows, levels: tuple[int, ...], seed: int) -> "Neighbours":
        """These rows, those of no weight apart, or some of them where there are many; their share is not known yet."""
        rng = np.random.RandomState(seed)
        some = rows.take(np.sort(rng.permutation(np.flatnonzero(rows.weight > 0))[:MOST_ROWS]))
        found = fit_bandwidths(rng, some.z, some.x, levels, some.weight, ENOUGH)
        widths = Bandwidths(*(np.asarray(width, float) for width in found))
        return cls(some.x, some.z, np.log(some.weight), widths, np.array(levels, int), 0.5)

    @property
    def shares(self) -> Float[np.ndarray, "2"]:
        """The model's share of the density, and theirs."""
        return np.array([1 - self.share, self.share])

    def joined(self, parts: Components, x: Inputs) -> Components:
        """The mixture of a model's densities, a row each or all at the one row of x, and their own."""
        own = self.components(x)
        if own.n_rows < parts.n_rows:
            own = own.take(np.zeros(parts.n_rows, int))
        return mixed([parts, own], self.shares)

    def beside(self, model: Source, inputs: Inputs) -> Source:
        """The mixture of a model's densities of these inputs and their own."""

        def components(rows: Int[np.ndarray, " b"]) -> Components:
            return self.components(inputs.take(rows))

        def log_pdf(rows: Int[np.ndarray, " b"], z: Float[np.ndarray, "b D"]) -> Float[np.ndarray, " b"]:
            return self.log_density(inputs.take(rows), z)

        return Source.mixed([model, Source(components, log_pdf)], self.shares)

    def nearest(self, x: Inputs) -> tuple[Int[np.ndarray, "n k"], Float[np.ndarray, "n k"]]:
        """The rows that count most at each x, and log π of them."""

        def some(x: Inputs) -> tuple[np.ndarray, np.ndarray]:
            logs = log_kernel(x, self.x, self.bandwidths, self.levels) + self.log_weight
            near = np.broadcast_to(np.arange(len(self.z)), logs.shape)
            if len(self.z) > NEAREST:
                near = np.argpartition(-logs, NEAREST, axis=1)[:, :NEAREST]
            logs = np.take_along_axis(logs, near, axis=1)
            return near, logs - logsumexp(logs, axis=1, keepdims=True)

        return by_blocks(some, (x,), max(1, AT_ONCE // len(self.z)))

    def components(self, x: Inputs) -> Components:
        """A Gaussian on each of the nearest rows."""
        near, logs = self.nearest(x)
        return Components(logs, self.z[near], np.asarray(self.bandwidths.y)[None, None] ** 2)

    def log_density(self, x: Inputs, z: Float[np.ndarray, "n D"]) -> Float[np.ndarray, " n"]:
        """The log density by the neighbours alone."""
        return self.components(x).log_pdf(z[:, None])[:, 0]

    def with_share(
        self, model: Float[np.ndarray, " n"], own: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"]
    ) -> "Neighbours | None":
        """With the share that rows neither has seen give it, by the log densities they have of them; None: none."""

        def loss(share: float) -> float:
            logs = np.logaddexp(np.log1p(-share) + model, np.log(share) + own)
            return -float(weight @ logs + DOUBT * np.log1p(-share))

        share = float(minimize_scalar(loss, bounds=(1e-6, 0.99), method="bounded").x)
        return self._replace(share=share) if share >= LEAST else None
