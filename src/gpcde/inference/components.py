"""Principal components, and normal scores: first guesses of what is hidden."""

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri


def principal_components(
    y: Float[np.ndarray, "n D"], count: int
) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " k"]]:
    """The leading principal components, each with variance 1, and the standard deviations they had.

    As in scikit-learn's PCA, but components without variance are left out rather than blown up.
    """
    centred = y - y.mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(y))
    keep = [i for i in range(len(values))[::-1] if values[i] > 1e-10 * max(values[-1], 1e-300)][:count]
    spread = np.sqrt(values[keep])
    return centred @ vectors[:, keep] / spread, spread


def gaussianised(rng: np.random.Generator, residuals: Float[np.ndarray, "n D"], dim: int) -> Float[np.ndarray, "n d"]:
    """Leading principal components of the residuals, each mapped to normal scores by its ranks; missing ones random."""
    from scipy.stats import rankdata

    scores, _ = principal_components(residuals, dim)
    extra = rng.standard_normal((len(residuals), dim - scores.shape[1]))
    return ndtri((rankdata(np.concatenate([scores, extra], axis=1), axis=0) - 0.5) / len(residuals))
