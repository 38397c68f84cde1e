"""Conditional density estimation with Gaussian processes: learn the whole distribution p(y|x).

    y = P f(map(x, w)) + noise,   f a sparse Gaussian process,   w a latent variable of each data point

See docs/design.md for how the parts fit together.
"""

from ._bound import Batch, Model, Noise, Terms, draw_noise, evaluate_bound, whole
from ._density import ConditionalDensity
from ._estimator import load
from ._files import VERSION, FileError
from ._gpcde import GPCDE
from ._initialise import Design, start
from ._input_maps import Bend, Concatenate, InputMap, Project, Warp
from ._inputs import Inputs, make_inputs
from ._kernels import RBF, Kernel, Linear, Matern32, Matern52, Polynomial, Product, Sum
from ._latents import FreeForm, GaussianLatents, NoLatents
from ._mdn import MDN
from ._mixing import GaussianMixing, Identity, Mixing, PointMixing, grid_start, principal_start
from ._posterior import Shared, Statistics
from ._precision import scope
from ._predict import Mixture, log_density, predict
from ._quadrature import evenly_spaced, gauss_hermite
from ._schedule import Geometric
from ._train import Record, State, Trainer, TrainingError, optimal_posterior, train

__version__ = VERSION

__all__ = [
    "GPCDE",
    "MDN",
    "RBF",
    "Batch",
    "Bend",
    "Concatenate",
    "ConditionalDensity",
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
    "State",
    "Statistics",
    "Sum",
    "Terms",
    "Trainer",
    "TrainingError",
    "Warp",
    "draw_noise",
    "evaluate_bound",
    "evenly_spaced",
    "gauss_hermite",
    "grid_start",
    "load",
    "log_density",
    "make_inputs",
    "optimal_posterior",
    "predict",
    "principal_start",
    "scope",
    "start",
    "train",
    "whole",
]
