"""Outputs in standard units and back: y = T(location + scale z), column by column, T increasing.

    identity   y = u                          log     y = low + exp(u)
    asinh      y = centre + width sinh(u)     logit   y = low + (high - low) / (1 + exp(-u))

Beyond the outputs it was fitted to, an asinh goes on as a straight line: what is uncertain there would else be as far
off as exp(u), and so would means.

A density q(z) of the standardised outputs is p(y) = q(z) / prod_j (dy_j/dz_j) in the user's units.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit, log_expit, logit

from ..model.inputs import Numbers
from ..runtime.files import check_numbers, check_positive, register

UNBOUNDED = ("identity", "asinh")
KINDS = (*UNBOUNDED, "log", "logit")

MOST_BENT = 100.0
"""The ends of an asinh at most: exp of more is no length that y has."""


@register
class OutputTransform(NamedTuple):
    """What was learnt of the outputs before the model saw them."""

    kind: str
    low: float
    high: float
    location: Float[np.ndarray, " D"]
    scale: Float[np.ndarray, " D"]
    centre: float = 0.0
    width: float = 1.0
    first: float = -np.inf
    last: float = np.inf

    def check_values(self) -> None:
        """Raise where a file holds what cannot be."""
        numbers = [self.location, self.scale, 1 / self.scale, self.centre, self.width]
        check_numbers("OutputTransform", numbers, 1e151)
        check_positive(self, "scale", "width")
        given = None if self.kind in UNBOUNDED else (self.low, self.high)
        if self.kind not in KINDS or _bounds(self.kind, given) != (self.low, self.high):
            raise ValueError(f"OutputTransform cannot be {self.kind!r} between {self.low} and {self.high}")
        bend = self.centre, self.width, self.first, self.last
        if self.kind != "asinh" and bend != (0.0, 1.0, -np.inf, np.inf):
            raise ValueError(f"OutputTransform {self.kind!r} has no centre, no width and no ends")
        if self.kind == "asinh" and not -MOST_BENT <= self.first < self.last <= MOST_BENT:
            raise ValueError("OutputTransform 'asinh' would ask for numbers that cannot be computed with")

    @classmethod
    def identity(cls, outputs: int) -> "OutputTransform":
        return cls("identity", -np.inf, np.inf, np.zeros(outputs), np.ones(outputs))

    @classmethod
    def plain(
        cls, y: Float[np.ndarray, "n D"], kind: str | None = None, bounds: Numbers | None = None
    ) -> "OutputTransform":
        """T by itself, location 0 and scale 1; raises where y is not in its support."""
        return cls(*supported(y, kind, bounds), np.zeros(y.shape[1]), np.ones(y.shape[1]))

    @classmethod
    def fit(
        cls,
        y: Float[np.ndarray, "n D"],
        kind: str | None = None,
        bounds: Numbers | None = None,
        common_scale: bool = False,
        weight: Float[np.ndarray, " n"] | None = None,
    ) -> "OutputTransform":
        """Location and scale of T⁻¹(y): its mean and standard deviation (one for all columns, if they are alike)."""
        plain = cls.plain(y, kind, bounds)
        u = plain.to_standard(y)
        location, scale = standard_units(u, weight)
        if common_scale:
            each = None if weight is None else np.repeat(weight, u.shape[1])
            scale = np.full_like(scale, standard_units((u - location).reshape(-1, 1), each)[1][0])
        return plain._replace(location=location, scale=scale)

    def scaled(self, moments: "Moments", common_scale: bool = False) -> "OutputTransform":
        """T with the location and scale that the moments of T⁻¹(y) tell; as `fit`, without the rows."""
        location, scale = moments.units()
        if common_scale:
            deviation = np.where(moments.low == moments.high, 0.0, scale)
            scale = np.full_like(scale, deviation.max() * np.sqrt(np.mean((deviation / deviation.max()) ** 2)))
        return self._replace(location=location, scale=scale)

    def bent(
        self, centre: float, width: float, z: Float[np.ndarray, "n D"], weight: Float[np.ndarray, " n"]
    ) -> "OutputTransform":
        """The asinh with this centre and width, both in the standard units of an identity of one output.

        Its location, scale and ends are those of asinh((z - centre) / width).
        """
        shift, unit = float(self.location[0]), float(self.scale[0])
        u = np.arcsinh((z - centre) / width)
        ends = float(u.min()), float(u.max())
        bend = shift + unit * centre, unit * width, *ends
        return OutputTransform("asinh", -np.inf, np.inf, *standard_units(u, weight), *bend)

    @property
    def affine(self) -> bool:
        return self.kind == "identity"

    def same_as(self, other: "OutputTransform") -> bool:
        """Whether both do the same."""
        plain = ("kind", "low", "high", "centre", "width", "first", "last")
        same = all(getattr(self, name) == getattr(other, name) for name in plain)
        return same and np.array_equal(self.location, other.location) and np.array_equal(self.scale, other.scale)

    def column(self, index: int | list[int]) -> "OutputTransform":
        """The transform of one output, or of some."""
        keep = np.atleast_1d(index)
        return self._replace(location=self.location[keep], scale=self.scale[keep])

    def to_standard(self, y: Float[np.ndarray, "*b D"]) -> Float[np.ndarray, "*b D"]:
        """z; -inf or inf at and beyond the ends of the support."""
        u = y
        if self.kind == "log":
            with np.errstate(divide="ignore"):
                u = np.log(np.maximum(y - self.low, 0.0))
        elif self.kind == "logit":
            u = logit(np.clip((y - self.low) / (self.high - self.low), 0.0, 1.0))
        elif self.kind == "asinh":
            v = (y - self.centre) / self.width
            near = np.clip(v, np.sinh(self.first), np.sinh(self.last))
            u = np.arcsinh(near) + (v - near) / np.sqrt(1 + near**2)
        return (u - self.location) / self.scale

    def from_standard(self, z: Float[np.ndarray, "*b D"]) -> Float[np.ndarray, "*b D"]:
        u = self.location + self.scale * z
        if self.kind == "log":
            return self.low + np.exp(u)
        if self.kind == "logit":
            return self.low + (self.high - self.low) * expit(u)
        if self.kind == "asinh":
            with np.errstate(over="ignore"):
                near = np.clip(u, self.first, self.last)
                return self.centre + self.width * (np.sinh(near) + (u - near) * np.cosh(near))
        return u

    def log_slope(self, z: Float[np.ndarray, "*b D"]) -> Float[np.ndarray, "*b D"]:
        """log dy/dz."""
        u = self.location + self.scale * z
        slope = np.log(self.scale) + np.zeros_like(u)
        if self.kind == "log":
            slope += u
        elif self.kind == "logit":
            slope += np.log(self.high - self.low) + log_expit(u) + log_expit(-u)
        elif self.kind == "asinh":
            near = np.clip(u, self.first, self.last)
            slope += np.log(0.5 * self.width) + np.logaddexp(near, -near)
        return slope

    def log_slope_derivative(self, z: Float[np.ndarray, "*b D"]) -> Float[np.ndarray, "*b D"]:
        """d/dz log dy/dz."""
        u = self.location + self.scale * z
        if self.kind == "log":
            return self.scale + np.zeros_like(u)
        if self.kind == "logit":
            return self.scale * (1 - 2 * expit(u))
        if self.kind == "asinh":
            return np.where((self.first <= u) & (u <= self.last), self.scale * np.tanh(u), 0.0)
        return np.zeros_like(u)

    def log_slope_bend(self, z: Float[np.ndarray, "*b D"]) -> Float[np.ndarray, "*b D"]:
        """d²/dz² log dy/dz."""
        u = self.location + self.scale * z
        if self.kind == "logit":
            return -2 * self.scale**2 * expit(u) * expit(-u)
        if self.kind == "asinh":
            bent = 4 * self.scale**2 * expit(2 * u) * expit(-2 * u)
            return np.where((self.first <= u) & (u <= self.last), bent, 0.0)
        return np.zeros_like(u)


def supported(
    y: Float[np.ndarray, "n D"],
    kind: str | None = None,
    bounds: Numbers | None = None,
    weight: Float[np.ndarray, " n"] | None = None,
) -> tuple[str, float, float]:
    """The kind of transform and the ends of its support; raises where y, in a row that counts, is not inside."""
    kind = "identity" if kind is None else kind
    if kind not in KINDS or kind == "asinh":  # which rows choose, and not the user
        raise ValueError(f"y_transform must be None, 'log' or 'logit', got {kind!r}")
    low, high = _bounds(kind, bounds)
    outside = (y <= low) | (y >= high)
    if weight is not None:
        outside &= (weight > 0)[:, None]
    if outside.any():
        row, column = np.argwhere(outside)[0]
        raise ValueError(
            f"y_transform={kind!r} needs every y strictly between {low:g} and {high:g}, but y[{row}, {column}] is "
            f"{y[row, column]:g}; give y_bounds that hold all of y, or leave y_transform out"
        )
    return kind, low, high


class Moments(NamedTuple):
    """Mean, variance and ends of each column, safe from overflow; those of two parts of the rows join.

    `mean` and `square`, the variance, are in units of `size`, the largest number without its sign.
    """

    weight: float
    size: Float[np.ndarray, " d"]
    mean: Float[np.ndarray, " d"]
    square: Float[np.ndarray, " d"]
    first: Float[np.ndarray, " d"]
    low: Float[np.ndarray, " d"]
    high: Float[np.ndarray, " d"]

    @classmethod
    def of(cls, a: Float[np.ndarray, "n d"], weight: Float[np.ndarray, " n"] | None = None) -> "Moments":
        """Of these rows, of which there may be none."""
        size = np.abs(a).max(0, initial=0.0)
        share = a / _positive(size)
        mean = _average(share, weight)
        square = _average((share - mean) ** 2, weight)
        ends = (a[0].copy(), a.min(0), a.max(0)) if len(a) else (np.zeros(a.shape[1]),) * 3
        return cls(float(len(a) if weight is None else weight.sum()), size, mean, square, *ends)

    def join(self, other: "Moments") -> "Moments":
        """Of the rows of both."""
        weight, size = self.weight + other.weight, np.maximum(self.size, other.size)
        share = other.weight / weight
        one, two = self.size / _positive(size), other.size / _positive(size)
        apart = other.mean * two - self.mean * one
        square = (1 - share) * self.square * one**2 + share * other.square * two**2 + share * (1 - share) * apart**2
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return Moments(weight, size, self.mean * one + share * apart, square, self.first, low, high)

    def units(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
        """Mean and standard deviation; a constant column has its value and scale 1."""
        size, std = _positive(self.size), np.sqrt(self.square)
        constant = (self.low == self.high) | (std <= 1e-14)
        return np.where(constant, self.first, self.mean * size), np.where(constant, 1.0, std * size)


def standard_units(
    a: Float[np.ndarray, "n d"], weight: Float[np.ndarray, " n"] | None = None
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Mean and standard deviation of each column, safe from overflow; a constant column has its value and scale 1."""
    return Moments.of(a, weight).units()


def _positive(size: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    return np.where(size > 0, size, 1.0)


def _average(a: Float[np.ndarray, "n d"], weight: Float[np.ndarray, " n"] | None) -> Float[np.ndarray, " d"]:
    return a.mean(0) if weight is None else np.average(a, axis=0, weights=weight)


def _bounds(kind: str, bounds: Numbers | None) -> tuple[float, float]:
    """The ends of the support: (0, inf) for the logarithm and (0, 1) for the logit, unless told."""
    if kind in UNBOUNDED:
        if bounds is not None:
            raise ValueError("y_bounds need a y_transform: 'log' for y above a bound, 'logit' for y between two")
        return -np.inf, np.inf
    if bounds is None:
        return 0.0, np.inf if kind == "log" else 1.0
    ends = np.asarray(bounds, float)
    if ends.shape != (2,) or not np.isfinite(ends[0]) or not ends[0] < ends[1]:
        raise ValueError(f"y_bounds must be two numbers (low, high) with low < high, got {bounds!r}")
    if kind == "logit" and not np.isfinite(ends[1]):
        raise ValueError("y_transform='logit' needs both y_bounds finite; for y above a bound use 'log'")
    if kind == "log" and np.isfinite(ends[1]):
        raise ValueError("y_transform='log' has no upper bound; use 'logit' for y between two, or y_bounds=(low, inf)")
    return float(ends[0]), float(ends[1])
