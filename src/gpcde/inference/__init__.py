"""How the model is learnt: q(u), the bound, natural gradients, where to start.

    state = start(key, x, y, Design(inference="free-form"))
    state, records = train(Trainer.create(len(y), 0.02, 0.1), key, state, whole(x, y), steps=500, batch_size=256)

`gpcde.GPCDE(design=...)` does the same behind scikit-learn's face.
"""

from .bound import Draws, Terms, draw, evaluate_bound
from .data import Batch, Stream, StreamError, whole
from .design import Design
from .posterior import Shared, SparsePosterior, Statistics, VariationalPosterior
from .schedule import Geometric, Minibatches
from .start import regression, start
from .training import LostProcess, Record, State, Trainer, TrainingError, optimal_posterior, train

__all__ = [
    "Batch",
    "Design",
    "Draws",
    "Geometric",
    "LostProcess",
    "Minibatches",
    "Record",
    "Shared",
    "SparsePosterior",
    "State",
    "Statistics",
    "Stream",
    "StreamError",
    "Terms",
    "Trainer",
    "TrainingError",
    "VariationalPosterior",
    "draw",
    "evaluate_bound",
    "optimal_posterior",
    "regression",
    "start",
    "train",
    "whole",
]
