"""Densities drawn from the posterior: error bars on the density itself."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..model.inputs import Numbers
from .conditional import ConditionalDensity, check_level


class Band(NamedTuple):
    """A credible band of every row's pdf on a grid of y: pointwise.

    Attributes
    ----------
    points : array of shape (g,) or (g, D)
        The grid.
    lower, mean, upper : arrays of shape (n, g)
        The ends of the band, and the mean between them.
    """

    points: Float[np.ndarray, "*g"]
    lower: Float[np.ndarray, "n g"]
    mean: Float[np.ndarray, "n g"]
    upper: Float[np.ndarray, "n g"]


class DensitySamples:
    """Draws of the density itself, one for every draw of what is uncertain: each a `ConditionalDensity`, by its number.

    Parameters
    ----------
    draws : list of ConditionalDensity
        All of the same rows.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import GP
    >>> X = np.linspace(-2, 2, 40)[:, None]
    >>> model = GP(max_steps=50, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> samples = model.sample_densities([[0.0]], n=10, random_state=0)
    >>> band = samples.band(0.9, points=[-0.1, 0.0, 0.1])
    >>> bool((band.lower <= band.mean).all() and (band.mean <= band.upper).all())
    True
    """

    def __init__(self, draws: list[ConditionalDensity]) -> None:
        self._draws = draws

    def __len__(self) -> int:
        return len(self._draws)

    def __getitem__(self, number: int) -> ConditionalDensity:
        return self._draws[number]

    def __iter__(self) -> Iterator[ConditionalDensity]:
        return iter(self._draws)

    def __repr__(self) -> str:
        return f"DensitySamples({len(self)} draws of {self._draws[0]!r})"

    def marginal(self, output: int) -> "DensitySamples":
        """The draws of one output's density.

        Parameters
        ----------
        output : int
            Which, counted from 0.

        Returns
        -------
        DensitySamples
            As many draws.
        """
        return DensitySamples([draw.marginal(output) for draw in self])

    def pdf_grid(self, points: Numbers) -> Float[np.ndarray, "s n g"]:
        """Every draw's density of every row, at every one of the points.

        Parameters
        ----------
        points : array of shape (g,) or (g, D)
            In the units of y.

        Returns
        -------
        array of shape (s, n, g)
            For s draws.
        """
        return np.stack([draw.pdf_grid(points) for draw in self])

    def band(self, level: float = 0.9, points: Numbers | None = None) -> Band:
        """Between which values the pdf lies, with this posterior probability, at each point of a grid.

        Parameters
        ----------
        level : float, default=0.9
            Between 0 and 1.
        points : array of shape (g,) or (g, D), default=None
            The grid; None, for one output: 201 points where the draws lie.

        Returns
        -------
        Band
            Its ends and mean.
        """
        check_level(level)
        if points is None:
            if self._draws[0].n_outputs > 1:
                raise ValueError("with several outputs, say at which points; or take marginal(j) first")
            ends = np.stack([draw.quantile([1e-3, 1 - 1e-3]) for draw in self]).reshape(-1)
            points = np.linspace(ends.min(), ends.max(), 201)
        heights = self.pdf_grid(points)
        lower, upper = np.quantile(heights, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
        return Band(np.asarray(points, float), lower, heights.mean(0), upper)
