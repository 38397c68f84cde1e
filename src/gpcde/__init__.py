"""Conditional density estimation with Gaussian processes: learn the whole distribution p(y|x).

    y = P f(map(x, w)) + noise,   f a sparse Gaussian process,   w a latent variable of each data point

See docs/design.md for how the parts fit together.
"""

from ._bound import Batch, Model, Noise, Terms, draw_noise, evaluate_bound, whole
from ._compare import Comparison, compare
from ._cvae import CVAE
from ._density import ConditionalDensity
from ._diagnostics import Coverage, cde_loss, coverage, hpd_pit, pit, plot_coverage, plot_pit, uniformity
from ._estimator import load
from ._files import VERSION, FileError
from ._gpcde import GPCDE
from ._importance import importance_log_density
from ._initialise import Design, start
from ._input_maps import Bend, Concatenate, InputMap, Project, Warp
from ._inputs import Inputs, make_inputs
from ._kde import KDE, ConditionalKDE
from ._kernels import RBF, Kernel, Linear, Matern32, Matern52, Polynomial, Product, Sum
from ._latents import FreeForm, GaussianLatents, NoLatents
from ._mdn import MDN
from ._mixing import ConjugateMixing, GaussianMixing, Identity, Mixing, PointMixing, grid_start, principal_start
from ._posterior import Shared, Statistics
from ._precision import scope
from ._predict import Mixture, log_density, predict
from ._quadrature import evenly_spaced, gauss_hermite
from ._schedule import Geometric
from ._special import GP, GPLVM, LinearGaussian
from ._stacked import Stacked
from ._train import Record, State, Trainer, TrainingError, optimal_posterior, train

__version__ = VERSION

__all__ = [
    "CVAE",
    "GP",
    "GPCDE",
    "GPLVM",
    "KDE",
    "MDN",
    "RBF",
    "Batch",
    "Bend",
    "Comparison",
    "Concatenate",
    "ConditionalDensity",
    "ConditionalKDE",
    "ConjugateMixing",
    "Coverage",
    "Design",
    "FileError",
    "FreeForm",
    "GaussianLatents",
    "GaussianMixing",
    "Geometric",
    "Identity",
    "InputMap",
    "Inputs",
    "Kernel",
    "Linear",
    "LinearGaussian",
    "Matern32",
    "Matern52",
    "Mixing",
    "Mixture",
    "Model",
    "NoLatents",
    "Noise",
    "PointMixing",
    "Polynomial",
    "Product",
    "Project",
    "Record",
    "Shared",
    "Stacked",
    "State",
    "Statistics",
    "Sum",
    "Terms",
    "Trainer",
    "TrainingError",
    "Warp",
    "cde_loss",
    "compare",
    "coverage",
    "draw_noise",
    "evaluate_bound",
    "evenly_spaced",
    "gauss_hermite",
    "grid_start",
    "hpd_pit",
    "importance_log_density",
    "load",
    "log_density",
    "make_inputs",
    "optimal_posterior",
    "pit",
    "plot_coverage",
    "plot_pit",
    "predict",
    "principal_start",
    "scope",
    "start",
    "train",
    "uniformity",
    "whole",
]
