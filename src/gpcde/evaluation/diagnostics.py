"""Whether a density can be believed: its calibration, as numbers (`gpcde.plots` draws them).

pit        F(y_n|x_n) of each output: uniform where the model is right
hpd_pit    P(p(Y|x_n) >= p(y_n|x_n)): the level of the smallest region that holds y_n; uniform too, joint over outputs
coverage   how often the regions of level α hold y_n, against α
cde_loss   mean_n ∫ p(y|x_n)² dy - 2 p(y_n|x_n): the squared error of the density itself, a constant apart
"""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy import stats

from ..density.conditional import ConditionalDensity
from ..model.inputs import Numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOGETHER = 50
"""How many draws of a row are looked at together."""


@runtime_checkable
class Density(Protocol):
    """What calibration asks of a density: `ConditionalDensity` has it, and so do densities known by their samples."""

    def __len__(self) -> int: ...

    @property
    def n_outputs(self) -> int: ...

    def log_pdf(self, y: Numbers) -> np.ndarray: ...

    def log_pdf_at(self, y: Numbers) -> np.ndarray: ...

    def cdf(self, y: Numbers) -> np.ndarray: ...

    def sample(self, size: int = ..., random_state: int | np.random.Generator | None = ...) -> np.ndarray: ...


def pit(density: Density, y: Numbers) -> np.ndarray:
    """The probability integral transform, F(y_n|x_n) of each output.

    Parameters
    ----------
    density : ConditionalDensity or another Density
        Of n rows.
    y : array of shape (n,) or (n, D)
        What was observed.

    Returns
    -------
    array of the shape of y
        Uniform where the density is right.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import LinearGaussian, pit, uniformity
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 1))
    >>> y = X[:, 0] + rng.standard_normal(200)
    >>> density = LinearGaussian().fit(X, y).predict_density(X)
    >>> bool(uniformity(pit(density, y)).p_value > 0.01)
    True
    """
    return density.cdf(y)


class Uniformity(NamedTuple):
    """Kolmogorov and Smirnov's test of whether numbers are uniform; a small p-value says they are not.

    Attributes
    ----------
    statistic : float
        The greatest distance between the two distribution functions.
    p_value : float
        How likely that, or more, is for uniform numbers.
    """

    statistic: float
    p_value: float


def uniformity(values: Float[np.ndarray, "*n"]) -> Uniformity:
    """Test whether PIT or HPD-PIT values are uniform on [0, 1].

    Parameters
    ----------
    values : array
        Of any shape.

    Returns
    -------
    Uniformity
        The statistic and its p-value.
    """
    found = stats.kstest(np.ravel(values), "uniform")
    return Uniformity(float(found.statistic), float(found.pvalue))


def hpd_pit(
    density: Density, y: Numbers, draws: int = 1000, random_state: int | np.random.Generator | None = 0
) -> Float[np.ndarray, " n"]:
    """P(p(Y|x_n) >= p(y_n|x_n)): the level of the smallest region that holds y_n, joint over the outputs.

    Parameters
    ----------
    density : ConditionalDensity or another Density
        Of n rows.
    y : array of shape (n,) or (n, D)
        What was observed.
    draws : int, default=1000
        How many draws of Y each row has, in steps of 50.
    random_state : int, Generator or None, default=0
        A seed.

    Returns
    -------
    array of shape (n,)
        Uniform where the density is right.
    """
    rng = np.random.default_rng(random_state)
    at = density.log_pdf(y)[:, None]
    rounds = draws // TOGETHER or 1
    above = [(density.log_pdf_at(density.sample(TOGETHER, rng)) >= at).mean(1) for _ in range(rounds)]
    return np.mean(above, axis=0)


class Coverage(NamedTuple):
    """How often regions of these levels held y.

    Attributes
    ----------
    levels, observed : arrays of shape (l,)
        Nominal and observed coverage.
    error : float
        The mean distance of the two, the calibration error.
    """

    levels: Float[np.ndarray, " l"]
    observed: Float[np.ndarray, " l"]

    @property
    def error(self) -> float:
        """The mean distance of the two, the calibration error."""
        return float(np.abs(self.levels - self.observed).mean())

    def plot(self, ax: "Axes | None" = None, **style: Any) -> "Axes":
        """Draw observed against nominal coverage, as `gpcde.plots.coverage` does.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.
        **style
            Of the line, as matplotlib's plot takes it.

        Returns
        -------
        matplotlib Axes
            What was drawn on.
        """
        from ..plots.calibration import coverage

        return coverage(self, ax, **style)


def coverage(density: Density, y: Numbers, levels: Numbers | None = None, kind: str = "central") -> Coverage:
    """How often intervals or regions of a density hold y, against how often they should.

    Parameters
    ----------
    density : ConditionalDensity or another Density
        Of n rows.
    y : array of shape (n,) or (n, D)
        What was observed.
    levels : array of shape (l,), default=None
        Nominal levels; None: 0.05, 0.1, …, 0.95.
    kind : {"central", "hpd"}, default="central"
        Central intervals, counted over all outputs, or joint highest-density regions.

    Returns
    -------
    Coverage
        Nominal and observed.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import LinearGaussian, coverage
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 1))
    >>> y = X[:, 0] + rng.standard_normal(200)
    >>> density = LinearGaussian().fit(X, y).predict_density(X)
    >>> bool(coverage(density, y).error < 0.05)
    True
    """
    if kind not in ("central", "hpd"):
        raise ValueError(f"kind must be 'central' or 'hpd', got {kind!r}")
    at = np.linspace(0.05, 0.95, 19) if levels is None else np.asarray(levels, float)
    reach = np.abs(2 * pit(density, y) - 1) if kind == "central" else hpd_pit(density, y)
    return Coverage(at, np.array([(reach <= level).mean() for level in at]))


def cde_loss(density: ConditionalDensity, y: Numbers) -> Float[np.ndarray, " n"]:
    """∫ p(y|x_n)² dy - 2 p(y_n|x_n), the squared error of the density itself, a constant apart: lower is better.

    Parameters
    ----------
    density : ConditionalDensity
        Of n rows; of several outputs, without y_transform.
    y : array of shape (n,) or (n, D)
        What was observed.

    Returns
    -------
    array of shape (n,)
        The loss of each row.
    """
    return density.integrated_square() - 2 * density.pdf(y)
