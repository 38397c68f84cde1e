"""Conditional density estimation with Gaussian processes: learn the whole distribution p(y|x).

    y = P f(map(x, w)) + noise,   f a sparse Gaussian process,   w a latent variable of each data point

Estimators, their answers and what judges them are here. `gpcde.model` and `gpcde.inference` have the parts a model is
made of and how it is learnt, for those who want to build another one.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import VERSION as __version__

if TYPE_CHECKING:
    from .density.conditional import ConditionalDensity
    from .density.samples import DensitySamples
    from .estimators.base import DensityEstimator, load
    from .estimators.checkpoints import FitWarning
    from .estimators.cvae import CVAE
    from .estimators.doubtful import DataWarning
    from .estimators.flow import Flow
    from .estimators.gp import GP, GPLVM
    from .estimators.gpcde import GPCDE
    from .estimators.kde import KDE, ConditionalKDE
    from .estimators.linear import LinearGaussian
    from .estimators.mdn import MDN
    from .estimators.parquet import ParquetRows
    from .estimators.stacked import Stacked
    from .evaluation.compare import Comparison, compare
    from .evaluation.diagnostics import Coverage, cde_loss, coverage, hpd_pit, pit, uniformity
    from .inference.data import StreamError
    from .inference.design import Design
    from .inference.training import TrainingError
    from .plots.calibration import plot_coverage, plot_pit
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
    "FitWarning",
    "Flow",
    "LinearGaussian",
    "ParquetRows",
    "Stacked",
    "StreamError",
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

PLACES = {
    "density.conditional": ("ConditionalDensity",),
    "density.samples": ("DensitySamples",),
    "estimators.base": ("DensityEstimator", "load"),
    "estimators.checkpoints": ("FitWarning",),
    "estimators.cvae": ("CVAE",),
    "estimators.doubtful": ("DataWarning",),
    "estimators.flow": ("Flow",),
    "estimators.gp": ("GP", "GPLVM"),
    "estimators.gpcde": ("GPCDE",),
    "estimators.kde": ("KDE", "ConditionalKDE"),
    "estimators.linear": ("LinearGaussian",),
    "estimators.mdn": ("MDN",),
    "estimators.parquet": ("ParquetRows",),
    "estimators.stacked": ("Stacked",),
    "evaluation.compare": ("Comparison", "compare"),
    "evaluation.diagnostics": ("Coverage", "cde_loss", "coverage", "hpd_pit", "pit", "uniformity"),
    "inference.data": ("StreamError",),
    "inference.design": ("Design",),
    "inference.training": ("TrainingError",),
    "plots.calibration": ("plot_coverage", "plot_pit"),
    "runtime.files": ("FileError",),
    "runtime.precision": ("scope",),
}
"""Where the names are. A module is imported when a name of it is first asked for: `gpcde --help` waits for no JAX."""

FOLDERS = ("datasets", "density", "estimators", "evaluation", "inference", "model", "plots", "prediction", "reproduce")


def __getattr__(name: str) -> Any:
    if name in FOLDERS:
        return import_module(f".{name}", __name__)
    for place, names in PLACES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f".{place}", __name__), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *FOLDERS})
