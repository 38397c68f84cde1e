"""Two levels of Gaussians, the best that a linear model with one noise for all classes can do.

    y = μ + m_c + e,     m_c ~ N(0, B) of the class,     e ~ N(0, W) of the drawing

B and W are those of the classes' means and of what is left round them, by moments. In coordinates T (y - μ) in which
W = I and B = diag(b), of which the leading ones are kept, k known drawings of mean ȳ leave

    p(y|c) = N(b / (b + 1/k) ȳ, 1 + b / (k b + 1))
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...model.gaussians import LOG_2PI


class Levels(NamedTuple):
    """μ, T, log |det T| and b."""

    mean: Float[np.ndarray, " p"]
    turn: Float[np.ndarray, "p p"]
    log_det: float
    between: Float[np.ndarray, " p"]

    @classmethod
    def fitted(
        cls, images: Float[np.ndarray, "n p"], labels: Int[np.ndarray, " n"], rank: int, ridge: float
    ) -> "Levels":
        """From drawings of many classes; B of this rank, and W with a little more on its diagonal."""
        _, place, count = np.unique(labels, return_inverse=True, return_counts=True)
        means = np.zeros((len(count), images.shape[1]))
        np.add.at(means, place, images)
        means /= count[:, None]
        left, mean = images - means[place], images.mean(0)
        within = left.T @ left / (len(images) - len(count))
        apart = means - mean
        between = apart.T @ apart / len(count) - within * (1 / count).mean()
        whiten = np.linalg.inv(np.linalg.cholesky(within + ridge * np.eye(len(mean))))
        values, vectors = np.linalg.eigh(whiten @ between @ whiten.T)
        kept = np.where(np.arange(len(values)) < rank, np.maximum(values[::-1], 0), 0)
        return cls(mean, vectors[:, ::-1].T @ whiten, float(np.log(np.diagonal(whiten)).sum()), kept)

    def log_density(self, known: Float[np.ndarray, "k p"], y: Float[np.ndarray, "m p"]) -> Float[np.ndarray, " m"]:
        """log p(y|c) given some drawings of the class; none of them: of a class of which nothing is known."""
        b, shots = self.between, len(known)
        centre = ((known - self.mean) @ self.turn.T).sum(0) * b / (shots * b + 1)
        variance = 1 + b / (shots * b + 1)
        gap = (y - self.mean) @ self.turn.T - centre
        return self.log_det - 0.5 * ((gap**2 / variance).sum(1) + (LOG_2PI + np.log(variance)).sum())
