"""Arithmetic of Gaussian mixtures, row by row, in standard units.

    p_n(z) = sum_k π_nk N(z | B m_nk, B diag(v_nk) Bᵀ + o_nk (I - B Bᵀ))

B has orthonormal columns: the axes (None), P's directions (shared by all), or each component's own principal axes,
which is any covariance at all. Nothing of size D × D is made unless the components have axes of their own.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp, ndtr, ndtri

from ..model.gaussians import LOG_2PI
from .roots import rising_roots


def log_sum_exp(a: Float[np.ndarray, "*n k"]) -> Float[np.ndarray, "*n"]:
    """log sum_k exp(a_nk), where no a is infinite or NaN but some may be -inf."""
    top = a.max(-1, keepdims=True)
    top[np.isneginf(top)] = 0.0
    shares = np.exp(a - top)
    with np.errstate(divide="ignore"):
        return top[..., 0] + np.log(shares.sum(-1))


MANY_POINTS = 8
"""From so many points of a row on, log densities of components with their own axes are made by one product."""


class Components(NamedTuple):
    """Mixtures of some rows; `mean` is in the coordinates of the basis, `outside` the variance beyond it."""

    log_weight: Float[np.ndarray, "#n k"]
    mean: Float[np.ndarray, "n k L"]
    variance: Float[np.ndarray, "#n #k #L"]
    basis: Float[np.ndarray, "#n #k D L"] | None = None
    outside: Float[np.ndarray, "#n #k"] | None = None

    @property
    def n_rows(self) -> int:
        return self.mean.shape[0]

    @property
    def n_components(self) -> int:
        return self.mean.shape[1]

    @property
    def n_outputs(self) -> int:
        return self.mean.shape[2] if self.basis is None else self.basis.shape[2]

    def take(self, rows: slice | Int[np.ndarray, " b"]) -> "Components":
        """Some of the rows."""
        n = self.n_rows
        return Components._make(a if a is None or a.shape[0] != n else a[rows] for a in self)

    @classmethod
    def stacked(cls, blocks: list["Components"]) -> "Components":
        """Blocks of rows of one batch, one after another; what all rows share is taken from the first."""
        if len(blocks) == 1:
            return blocks[0]
        parts = []
        for arrays in zip(*blocks, strict=True):
            own = arrays[0] is not None and arrays[0].shape[0] == blocks[0].n_rows
            parts.append(np.concatenate(arrays) if own else arrays[0])
        return cls(*parts)

    def log_pdf(self, z: Float[np.ndarray, "n g D"]) -> Float[np.ndarray, "n g"]:
        """log p_n at g points of each row."""
        return log_sum_exp(self.log_joint(z))

    def log_joint(self, z: Float[np.ndarray, "n g D"]) -> Float[np.ndarray, "n g k"]:
        """log π_nk N(z | ·)."""
        if self.basis is not None and self.basis.shape[2] == self.basis.shape[3] and z.shape[1] >= MANY_POINTS:
            return self._expanded(z)
        inside = z[:, :, None] if self.basis is None else (z[:, :, None, None] @ self.basis[:, None])[:, :, :, 0]
        variance = np.broadcast_to(self.variance, self.mean.shape)
        total = np.broadcast_to(np.log(self.variance), self.mean.shape).sum(2)[:, None] + self.n_outputs * LOG_2PI
        for j in range(self.mean.shape[2]):  # one coordinate at a time: nothing of size n g k L
            total = total + (inside[..., j] - self.mean[:, None, :, j]) ** 2 / variance[:, None, :, j]
        left = self.n_outputs - self.mean.shape[2]
        if self.basis is not None and self.outside is not None and left:
            beyond = z[:, :, None] - (self.basis[:, None] @ inside[..., None])[..., 0]
            total = total + (beyond**2).sum(3) / self.outside[:, None] + left * np.log(self.outside)[:, None]
        return self.log_weight[:, None] - 0.5 * total

    def _expanded(self, z: Float[np.ndarray, "n g D"]) -> Float[np.ndarray, "n g k"]:
        """log π_nk N(z | ·) where axes are of all outputs: linear in z, its squares and products, so one product."""
        assert self.basis is not None
        variance = np.broadcast_to(self.variance, self.mean.shape)
        precision = (self.basis / variance[:, :, None]) @ np.swapaxes(self.basis, 2, 3)
        slope = (self.basis @ (self.mean / variance)[..., None])[..., 0]
        level = self.log_weight - 0.5 * (np.log(variance) + self.mean**2 / variance + LOG_2PI).sum(2)
        one, two = np.triu_indices(self.n_outputs)
        squares = np.where(one == two, -0.5, -1.0) * precision[:, :, one, two]
        return z @ np.swapaxes(slope, 1, 2) + (z[..., one] * z[..., two]) @ np.swapaxes(squares, 1, 2) + level[:, None]

    def marginal(self, columns: list[int]) -> "Components":
        """The mixture of some of the outputs."""
        if self.basis is None:
            variance = np.broadcast_to(self.variance, (*self.variance.shape[:2], self.mean.shape[2]))
            return Components(self.log_weight, self.mean[:, :, columns], variance[:, :, columns])
        basis = self.basis[:, :, columns]
        if len(columns) == 1:
            return Components(self.log_weight, *self._outputs(basis))
        return Components.of_covariances(self.log_weight, *self._whole(basis))

    @classmethod
    def of_covariances(
        cls,
        log_weight: Float[np.ndarray, "#n k"],
        mean: Float[np.ndarray, "n k D"],
        covariance: Float[np.ndarray, "#n #k D D"],
    ) -> "Components":
        """Components with covariances of their own, by their principal axes."""
        values, vectors = np.linalg.eigh(covariance)
        inside = (np.swapaxes(vectors, 2, 3) @ mean[..., None])[..., 0]
        return cls(log_weight, inside, np.maximum(values, 1e-300), vectors)

    def _outputs(self, basis: Float[np.ndarray, "#n #k d L"]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of every component, of each output that has a row of the basis here."""
        spread = np.broadcast_to(self.variance, self.mean.shape)
        variance = (basis**2 @ spread[..., None])[..., 0]
        if self.outside is not None:
            variance = variance + np.maximum(1 - (basis**2).sum(3), 0) * self.outside[..., None]
        return (basis @ self.mean[..., None])[..., 0], variance

    def _whole(self, basis: Float[np.ndarray, "#n #k d L"]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of every component, of the outputs that have a row of the basis here."""
        beyond = np.zeros((1, 1)) if self.outside is None else self.outside
        spread = np.broadcast_to(self.variance, self.mean.shape) - beyond[..., None]
        covariance = (basis * spread[:, :, None]) @ np.swapaxes(basis, 2, 3)
        covariance = covariance + beyond[..., None, None] * np.eye(basis.shape[2])
        return (basis @ self.mean[..., None])[..., 0], covariance

    def moments(self) -> tuple[Float[np.ndarray, "n D"], Float[np.ndarray, "n D"]]:
        """Mean and variance of each output."""
        weight = np.exp(self.log_weight)[..., None]
        mean, variance = (self.mean, self.variance) if self.basis is None else self._outputs(self.basis)
        centre = (weight * mean).sum(1)
        return centre, (weight * (variance + (mean - centre[:, None]) ** 2)).sum(1)

    def integrated_square(self) -> Float[np.ndarray, " n"]:
        """∫ p_n(z)² dz = sum_kl π_k π_l N(m_k | m_l, Σ_k + Σ_l)."""
        total = self.log_weight[:, :, None] + self.log_weight[:, None] - 0.5 * self.n_outputs * LOG_2PI
        if self.basis is not None and self.basis.shape[:2] != (1, 1):  # axes of their own: whole covariances
            mean, covariance = self._whole(self.basis)
            both = covariance[:, :, None] + covariance[:, None]
            gap = (mean[:, :, None] - mean[:, None])[..., None]
            squares = (np.swapaxes(gap, 3, 4) @ np.linalg.solve(both, gap))[..., 0, 0]
            return np.exp(logsumexp(total - 0.5 * (squares + np.linalg.slogdet(both)[1]), axis=(1, 2)))
        variance = np.broadcast_to(self.variance, self.mean.shape)
        for j in range(self.mean.shape[2]):
            spread = variance[:, :, None, j] + variance[:, None, :, j]
            gap = self.mean[:, :, None, j] - self.mean[:, None, :, j]
            total = total - 0.5 * (gap**2 / spread + np.log(spread))
        left = self.n_outputs - self.mean.shape[2]
        if self.outside is not None and left:
            total = total - 0.5 * left * np.log(self.outside[:, :, None] + self.outside[:, None])
        return np.exp(logsumexp(total, axis=(1, 2)))

    def sample(
        self, chance: Float[np.ndarray, "n s"], normal: Float[np.ndarray, "n s D"]
    ) -> Float[np.ndarray, "n s D"]:
        """Draws, from uniform numbers that pick the component and standard normal ones."""
        pick = self.pick(chance)
        rows = np.arange(self.n_rows)[:, None]
        mean = self.mean[rows, pick]
        spread = np.sqrt(np.broadcast_to(self.variance, self.mean.shape)[rows, pick])
        if self.basis is None:
            return mean + spread * normal
        shape = (*self.mean.shape[:2], *self.basis.shape[2:])
        basis = self.basis[0, 0] if self.basis.shape[:2] == (1, 1) else np.broadcast_to(self.basis, shape)[rows, pick]
        along = (np.swapaxes(basis, -1, -2) @ normal[..., None])[..., 0]
        out = (basis @ (mean + spread * along)[..., None])[..., 0]
        if self.outside is None:
            return out
        beyond = np.sqrt(np.broadcast_to(self.outside, self.mean.shape[:2])[rows, pick])[..., None]
        return out + beyond * (normal - (basis @ along[..., None])[..., 0])

    def pick(self, chance: Float[np.ndarray, "n s"]) -> Int[np.ndarray, "n s"]:
        """Which component each uniform number falls into."""
        reached = np.cumsum(np.exp(self.log_weight), axis=1)
        reached = reached / reached[:, -1:]
        if len(reached) == 1:
            return np.searchsorted(reached[0], chance, side="right")
        return np.stack([np.searchsorted(r, u, side="right") for r, u in zip(reached, chance, strict=True)])


def mixed(parts: list[Components], weights: Float[np.ndarray, " m"]) -> Components:
    """The mixture of mixtures, with these weights: their components side by side."""
    rows, outputs = parts[0].n_rows, parts[0].n_outputs
    logs, means, variances, bases = [], [], [], []
    own = any(part.basis is not None for part in parts)
    for part, weight in zip(parts, weights, strict=True):
        shape = (rows, part.n_components)
        logs.append(np.broadcast_to(part.log_weight + np.log(weight), shape))
        basis, mean, variance = part.basis, part.mean, np.broadcast_to(part.variance, part.mean.shape)
        if own and basis is None:
            basis = np.eye(outputs)[None, None]
        if basis is not None and basis.shape[3] < outputs:
            # the directions outside, as columns of a basis of all
            assert part.outside is not None
            rest = np.linalg.svd(basis, full_matrices=True)[0][..., basis.shape[3] :]
            basis = np.concatenate([basis, rest], axis=3)
            left = rest.shape[3]
            mean = np.concatenate([mean, np.zeros((*shape, left))], axis=2)
            beyond = np.broadcast_to(part.outside[..., None], (*shape, left))
            variance = np.concatenate([variance, beyond], axis=2)
        means.append(mean)
        variances.append(variance)
        if basis is not None:
            bases.append(np.broadcast_to(basis, (*shape, outputs, outputs)))
    log_weight, mean, variance = (np.concatenate(arrays, axis=1) for arrays in (logs, means, variances))
    return Components(log_weight, mean, variance, np.concatenate(bases, axis=1) if own else None)


class Univariate(NamedTuple):
    """Mixtures of one output: what is exact in one dimension."""

    weight: Float[np.ndarray, "#n k"]
    mean: Float[np.ndarray, "n k"]
    std: Float[np.ndarray, "n k"]

    @classmethod
    def of(cls, components: Components, column: int) -> "Univariate":
        """The marginal of one output."""
        one = components.marginal([column])
        std = np.sqrt(np.broadcast_to(one.variance, one.mean.shape)[..., 0])
        return cls(np.exp(one.log_weight), one.mean[..., 0], std)

    def take(self, rows: Int[np.ndarray, " b"]) -> "Univariate":
        """Some of the rows."""
        return Univariate(np.broadcast_to(self.weight, self.mean.shape)[rows], self.mean[rows], self.std[rows])

    def cdf(
        self, z: Float[np.ndarray, "n g"], upper: Bool[np.ndarray, "n g"] | bool = False
    ) -> Float[np.ndarray, "n g"]:
        """P(Z <= z), or where `upper` says so P(Z > z), each to full relative precision."""
        sign = np.where(np.asarray(upper), -1.0, 1.0)[..., None]
        with np.errstate(over="ignore"):
            return np.minimum((self.weight[:, None] * ndtr(sign * self._scaled(z))).sum(2), 1.0)

    def pdf(self, z: Float[np.ndarray, "n g"]) -> Float[np.ndarray, "n g"]:
        height = np.exp(-0.5 * (self._scaled(z) ** 2 + LOG_2PI)) / self.std[:, None]
        return (self.weight[:, None] * height).sum(2)

    def _scaled(self, z: Float[np.ndarray, "n g"]) -> Float[np.ndarray, "n g k"]:
        return (z[:, :, None] - self.mean[:, None]) / self.std[:, None]

    def quantile(self, level: Float[np.ndarray, "n g"], enough: float = 0.0) -> Float[np.ndarray, "n g"]:
        """The z with P(Z <= z) = level, by Newton's steps on its logarithm inside a bracket that always holds it.

        A mixture's quantile lies between the least and the greatest of its components' own. The smaller tail is what
        is solved for, so that levels near 1 are as exact as those near 0; a tail that is `enough`, relatively, will do.
        """
        out = np.where(level > 0, np.inf, -np.inf)
        row, place = np.nonzero((level > 0) & (level < 1))
        p = level[row, place]
        upper = p > 0.5
        tail, sign = np.where(upper, 1 - p, p), np.where(upper, -1, 1)
        weight = np.broadcast_to(self.weight, self.mean.shape)

        def excess(some: Int[np.ndarray, " m"], z: Float[np.ndarray, " m"]) -> tuple[np.ndarray, np.ndarray]:
            mixture = self.take(row[some])
            reached = mixture.cdf(z[:, None], upper[some, None])[:, 0]
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                over = sign[some] * np.log1p((reached - tail[some]) / tail[some])
                return over, mixture.pdf(z[:, None])[:, 0] / reached

        own = np.where(weight[row] > 0, self.mean[row] + self.std[row] * ndtri(p)[:, None], np.nan)
        low, high = np.nanmin(own, axis=1), np.nanmax(own, axis=1)
        out[row, place] = rising_roots(excess, low, high, enough=enough)
        return out

    def crps(self, z: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """E|Z - z| - E|Z - Z'| / 2, exact: E|N(m, s²)| = m (2Φ(m/s) - 1) + 2 s φ(m/s)."""
        return self.mean_distance(z) - 0.5 * self.mean_difference()

    def mean_distance(self, z: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """E|Z - z|."""
        return (self.weight * _mean_absolute(z[:, None] - self.mean, self.std)).sum(1)

    def grid(self) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """From where to where a row's distribution function rises, and how many points the trapezoidal rule needs.

        Points half as far apart as the narrowest component is wide leave an error of exp(-4π²): the integrand is a
        smooth function, whose spectrum falls as exp(-ω²σ²/4).
        """
        low, high = (self.mean - 9 * self.std).min(1), (self.mean + 9 * self.std).max(1)
        points = np.ceil(2 * (high - low) / self.std.min(1)).clip(1, 100 * self.mean.shape[1])
        return low, high, points.astype(int) + 1

    def mean_difference(self) -> Float[np.ndarray, " n"]:
        """E|Z - Z'| = 2 ∫ F (1 - F) dz: by the trapezoidal rule, or where that takes more points by all pairs."""
        low, high, count = self.grid()
        out = np.empty(len(count))
        order = np.argsort(count)
        for rows in np.array_split(order, 1 + len(order) // 16):  # with about as many points
            some = self.take(rows)
            points = count[rows].max(initial=0)
            if points > self.mean.shape[1]:
                out[rows] = some.by_pairs()
                continue
            z = np.linspace(low[rows], high[rows], points, axis=1)
            below = some.cdf(z)
            out[rows] = 2 * (below * (1 - below)).sum(1) * (high - low)[rows] / (points - 1)
        return out

    def by_pairs(self) -> Float[np.ndarray, " n"]:
        """E|Z - Z'|, of each pair of components once, and of each with itself."""
        one, two = np.triu_indices(self.mean.shape[1], 1)
        spread = np.sqrt(self.std[:, one] ** 2 + self.std[:, two] ** 2)
        apart = _mean_absolute(self.mean[:, one] - self.mean[:, two], spread)
        same = (self.weight**2 * self.std).sum(1) * 2 / np.sqrt(np.pi)
        return 2 * (self.weight[:, one] * self.weight[:, two] * apart).sum(1) + same


def _mean_absolute(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    ratio = mean / std
    return mean * (2 * ndtr(ratio) - 1) + 2 * std * np.exp(-0.5 * (ratio**2 + LOG_2PI))
