"""Conditional density estimation with Gaussian processes: learn the whole distribution p(y|x).

    y = P f(map(x, w)) + noise,   f a sparse Gaussian process,   w a latent variable of each data point

Estimators, their answers and what judges them are here. `gpcde.model` and `gpcde.inference` have the parts a model is
made of and how it is learnt, for those who want to build another one.
"""

from typing import Any

from ._version import VERSION as __version__
from .density.conditional import ConditionalDensity
from .density.samples import DensitySamples
from .estimators.base import DensityEstimator, load
from .estimators.cvae import CVAE
from .estimators.doubtful import DataWarning
from .estimators.gp import GP, GPLVM
from .estimators.gpcde import GPCDE
from .estimators.kde import KDE, ConditionalKDE
from .estimators.linear import LinearGaussian
from .estimators.mdn import MDN
from .estimators.stacked import Stacked
from .evaluation.compare import Comparison, compare
from .evaluation.diagnostics import Coverage, cde_loss, coverage, hpd_pit, pit, plot_coverage, plot_pit, uniformity
from .inference.design import Design
from .inference.training import TrainingError
from .runtime.files import FileError
from .runtime.precision import scope

__all__ = [
    "CVAE",
    "GP",
    "GPCDE",
    "GPLVM",
    "KDE",
    "MDN",
    "Comparison",
    "ConditionalDensity",
    "ConditionalKDE",
    "Coverage",
    "DataWarning",
    "DensityEstimator",
    "DensitySamples",
    "Design",
    "FileError",
    "Flow",
    "LinearGaussian",
    "Stacked",
    "TrainingError",
    "__version__",
    "cde_loss",
    "compare",
    "coverage",
    "hpd_pit",
    "load",
    "pit",
    "plot_coverage",
    "plot_pit",
    "scope",
    "uniformity",
]


def __getattr__(name: str) -> Any:
    if name == "Flow":  # an extra
        from .estimators.flow import Flow

        return Flow
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
