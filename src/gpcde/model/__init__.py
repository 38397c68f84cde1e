"""What the model is: its parts, each a small class that answers for itself.

    Model        the parts together, and the inducing inputs
    Kernel       RBF, Matern32, Matern52, Linear, Polynomial, sums and products
    InputMap     Ignore, Concatenate, Features, Project, Bend, Warp: h = map(x, w)
    Latents      NoLatents, FreeForm, GaussianLatents: q(w)
    LatentPrior  StandardNormal, TiltedNormal: p(w|x)
    Likelihood   ConstantNoise, MixedNoise, VaryingNoise: the noise
    Trend        NoTrend, LinearTrend: what f has beside the kernel's Gaussian process
    Mixing       Identity, PointMixing, GaussianMixing, ConjugateMixing: P

Numbers are 64-bit: make and use parts inside `with gpcde.scope():`.
"""

from .gaussians import Gaussian
from .input_maps import Bend, Concatenate, Features, Ignore, InputMap, Project, Warp
from .inputs import Inputs, linear, make_inputs
from .kernels import RBF, Kernel, Linear, Matern32, Matern52, Polynomial, Product, Stationary, Sum
from .latents import Evidence, FreeForm, GaussianLatents, LatentPosterior, Latents, NoLatents
from .likelihood import ConstantNoise, Likelihood, MixedNoise, VaryingNoise
from .mixing import ConjugateMixing, GaussianMixing, Identity, Mixing, PointMixing, grid_start, principal_start
from .model import Model
from .networks import MLP
from .part import Certain, Part
from .prior import LatentPrior, StandardNormal, TiltedNormal
from .quadrature import evenly_spaced, gauss_hermite, quasi_random
from .surfaces import Surface
from .trend import LinearTrend, NoTrend, SmoothTrend, Trend

__all__ = [
    "MLP",
    "RBF",
    "Bend",
    "Certain",
    "Concatenate",
    "ConjugateMixing",
    "ConstantNoise",
    "Evidence",
    "Features",
    "FreeForm",
    "Gaussian",
    "GaussianLatents",
    "GaussianMixing",
    "Identity",
    "Ignore",
    "InputMap",
    "Inputs",
    "Kernel",
    "LatentPosterior",
    "LatentPrior",
    "Latents",
    "Likelihood",
    "Linear",
    "LinearTrend",
    "Matern32",
    "Matern52",
    "MixedNoise",
    "Mixing",
    "Model",
    "NoLatents",
    "NoTrend",
    "Part",
    "PointMixing",
    "Polynomial",
    "Product",
    "Project",
    "SmoothTrend",
    "StandardNormal",
    "Stationary",
    "Sum",
    "Surface",
    "TiltedNormal",
    "Trend",
    "VaryingNoise",
    "Warp",
    "evenly_spaced",
    "gauss_hermite",
    "grid_start",
    "linear",
    "make_inputs",
    "principal_start",
    "quasi_random",
]
