"""Designs: which parts a model is made of, by name or as they are.

A part that is given by name is made for the data at hand (its sizes, its start); a part that is given as it is, an
instance of a user's own class perhaps, is taken so. Whatever is not given is the simplest there is.
"""

import dataclasses

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..model.input_maps import Bend, Concatenate, Features, InputMap, Project, Warp
from ..model.inputs import Inputs
from ..model.kernels import RBF, Kernel, Matern32, Matern52
from ..model.latents import FreeForm, GaussianLatents, Latents, NoLatents
from ..model.likelihood import ConstantNoise, Likelihood, MixedNoise, VaryingNoise, known_noise
from ..model.mixing import ConjugateMixing, GaussianMixing, Identity, Mixing, PointMixing
from ..model.model import Model
from ..model.prior import LatentPrior, StandardNormal, TiltedNormal
from ..model.surfaces import Surface
from ..model.trend import LinearTrend, NoTrend, SmoothTrend, Trend
from ..runtime.files import register
from ..runtime.precision import on_device
from ..runtime.randomness import folded
from .components import principal_components

KERNELS: dict[str, type[RBF] | type[Matern32] | type[Matern52]] = {
    "rbf": RBF,
    "matern32": Matern32,
    "matern52": Matern52,
}

LITTLE_NOISE = 0.03
"""The noise variance below which the model without latents leaves little noise."""

TRIALS = ((0.3, 1.0), (0.05, 0.5), (0.3, 2.0))
"""Starts to try: the share of the noise that is left once w is known, and the lengthscale of w."""

FIRST_NOISE, BELIEVED_NOISE = 0.3, 0.1
"""The noise variance that the model without latents starts from, and its median a priori."""


@register
@dataclasses.dataclass(frozen=True, eq=False)
class Design:
    """What model to build.

    Parameters
    ----------
    inference : {"none", "free-form", "amortised", "gaussian"} or Latents, default="free-form"
        q(w): "amortised" by a recognition network, or "gaussian", each data point's own.
    latent_dim : int, default=1
        D_w, where `inference` is a name.
    inducing : int, default=100
        M, the number of inducing inputs.
    kernel : {"rbf", "matern32", "matern52"} or Kernel, default="rbf"
        By name, of the context, with RBF in w; of the latents where the map has no context. A kernel of your own is one
        of all columns of [context, w].
    input_map : {"concatenate", "features", "project", "bend", "warp"} or InputMap, default="concatenate"
        "project" needs `input_dim`, the number of rows of A; "bend" and "features" are of A x where `input_dim` is
        given, else of x.
    input_dim : int, default=0
        The number of rows of A; 0 for no A.
    levels : tuple of int, default=()
        The numbers of levels of the category columns of the inputs.
    mixing : array of shape (D_y, L) or Mixing, default=None
        A start for P; without it P is the identity.
    mixing_posterior : {"fixed", "map", "gaussian", "conjugate"}, default="gaussian"
        How a P that is given by its start is learnt: not at all, by MAP, by Adam, or in closed form.
    likelihood : {"constant", "mixed", "varying"} or Likelihood, default="constant"
        The noise: one σ² for all x and w, beside it one along the columns of P, or a σ² that changes with x and w.
    prior : {"normal", "tilted"} or LatentPrior, default="normal"
        p(w|x): N(0, I), or one that changes with x, in one or two latent dimensions.
    surface_precision, feature_precision : float, default=None
        How firm the priors are on what makes noise and p(w|x) vary, and on the features or the warp; None: by the
        inputs.
    trend : {"none", "linear", "smooth", "quiet"} or Trend, default="none"
        What f has beside the kernel's Gaussian process: a linear function of the context; with "smooth", beside that
        the Gaussian process of the model without latents, with its own inducing inputs; with "quiet", that only where
        that model leaves little noise.
    beliefs : bool, default=False
        Whether lengthscales and noise have priors, which few rows need; for kernels and noise given by name.
    expectation : {"draws", "closed", "importance"}, default="draws"
        Of a Gaussian q(w): by draws, by closed-form kernel expectations, or the importance-weighted bound.
    draws : int, default=1
        Draws of a Gaussian q(w), a data point.
    full_covariance : bool, default=False
        Whether a Gaussian q(w) has a full covariance.
    hidden : tuple of int, default=(50, 50, 50)
        The hidden layers of the recognition network.
    points : int, default=None
        Nodes a dimension of the quadrature for free-form q(w).
    rule : {"gauss-hermite", "even"}, default="gauss-hermite"
        Which nodes.
    shifted : bool, default=False
        Whether even nodes are shifted at random at every step.
    noise_variance : float, default=None
        Fixed at this value, if given.
    dtype : {"float64", "float32"}, default="float64"
        Of kernels and networks.
    jitter : float, default=None
        On the diagonal of Kzz, relative to it; None: by the type.
    trials : int, default=3
        How many starts to try.
    first : {"adam", "lbfgs"}, default="adam"
        What trains the model without latents, which tells the start its lengthscales.
    first_steps : int, default=100
        How long, at most.
    first_inducing : int, default=None
        How many inducing inputs that model has; None: as many as the other.
    first_rows : int, default=None
        How many rows find its kernel first where there are more, with an inducing input on each; None: no such step.
    trend_inducing : int, default=None
        How many inducing inputs its Gaussian process has at most where it goes on as a trend, since each step computes
        them again; None: all that it had.

    Examples
    --------
    >>> from gpcde.inference import Design
    >>> design = Design(inference="amortised", latent_dim=3, kernel="matern52", inducing=50)
    >>> design.latent_dim, design.input_map
    (3, 'concatenate')
    >>> Design(inference="exact")
    Traceback (most recent call last):
    ValueError: inference must be one of ('none', 'free-form', 'amortised', 'gaussian'), got 'exact'
    """

    inference: str | Latents = "free-form"
    latent_dim: int = 1
    inducing: int = 100
    kernel: str | Kernel = "rbf"
    input_map: str | InputMap = "concatenate"
    input_dim: int = 0
    levels: tuple[int, ...] = ()
    mixing: Float[np.ndarray, "D L"] | Mixing | None = None
    mixing_posterior: str = "gaussian"
    likelihood: str | Likelihood = "constant"
    prior: str | LatentPrior = "normal"
    surface_precision: float | None = None
    feature_precision: float | None = None
    trend: str | Trend = "none"
    beliefs: bool = False
    expectation: str = "draws"
    draws: int = 1
    full_covariance: bool = False
    hidden: tuple[int, ...] = (50, 50, 50)
    points: int | None = None
    rule: str = "gauss-hermite"
    shifted: bool = False
    noise_variance: float | None = None
    dtype: str = "float64"
    jitter: float | None = None
    trials: int = len(TRIALS)
    first: str = "adam"
    first_steps: int = 100
    first_inducing: int | None = None
    first_rows: int | None = None
    trend_inducing: int | None = None

    def __post_init__(self) -> None:
        options = {
            "inference": ("none", "free-form", "amortised", "gaussian"),
            "kernel": tuple(KERNELS),
            "input_map": ("concatenate", "features", "project", "bend", "warp"),
            "likelihood": ("constant", "mixed", "varying"),
            "prior": ("normal", "tilted"),
            "trend": ("none", "linear", "smooth", "quiet"),
            "mixing_posterior": ("fixed", "map", "gaussian", "conjugate"),
            "rule": ("gauss-hermite", "even"),
            "expectation": ("draws", "closed", "importance"),
            "dtype": ("float64", "float32"),
            "first": ("adam", "lbfgs"),
        }
        for name, allowed in options.items():
            if isinstance(getattr(self, name), str) and getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}")
        for name in ("levels", "hidden"):  # lists are taken too
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not isinstance(self.inference, str):
            object.__setattr__(self, "latent_dim", self.inference.dim)
        elif self.inference != "none" and self.latent_dim < 1:
            raise ValueError(f"inference={self.inference!r} needs latent_dim of at least 1, got {self.latent_dim}")
        moving = self.input_map in ("bend", "warp")
        if moving and self.inference == "none":
            raise ValueError(
                f"input_map={self.input_map!r} moves the latents, so it needs some: inference must not be 'none'"
            )
        if self.input_map == "project" and self.input_dim < 1:
            raise ValueError("input_map='project' needs input_dim, the number of rows of A, to be at least 1")
        if self.levels and isinstance(self.input_map, str) and not (self.input_map == "warp" or self.projects):
            raise ValueError("categories need input_map='project', 'warp', or 'bend' or 'features' with input_dim")
        closed = self.inference in ("amortised", "gaussian") and self.expectation == "closed"
        if closed and (self.kernel in ("matern32", "matern52") or moving):
            raise ValueError(
                "expectation='closed' needs kernel='rbf' and input_map 'concatenate' or 'project'; use 'draws' instead"
            )
        if self.likelihood in ("mixed", "varying") and self.noise_variance is not None:
            raise ValueError(
                f"noise_variance fixes the noise, which likelihood={self.likelihood!r} does not: leave one of them out"
            )
        if self.inference == "free-form" and self.latent_dim > 2:
            raise ValueError(
                f"inference='free-form' is computed by quadrature, in one or two latent dimensions, not in "
                f"{self.latent_dim}; for more, use a Gaussian q(w): inference='amortised' or 'gaussian'"
            )
        if self.prior == "tilted" and self.latent_dim not in (1, 2):
            raise ValueError(f"prior='tilted' has one or two latent dimensions, not {self.latent_dim}")
        for name in ("inducing", "trials", "draws", "first_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("first_inducing", "first_rows", "trend_inducing"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1 or None, got {value}")

    @property
    def projects(self) -> bool:
        """Whether the context of a data point is uncertain."""
        if not isinstance(self.input_map, str):
            return self.input_map.draw_dim > 0
        return self.input_map == "project" or (self.input_map in ("bend", "features") and self.input_dim > 0)

    def input_rows(self, x: Inputs) -> int:
        """How many dense features and category levels there are together."""
        return x.dense.shape[1] + sum(self.levels)

    # the parts

    def make_latents(self, key: PRNGKeyArray, x: Inputs, outputs: int) -> Latents:
        """q(w)."""
        if not isinstance(self.inference, str):
            return self.inference
        if self.inference == "none":
            return NoLatents()
        if self.inference == "free-form":
            return FreeForm.create(self.latent_dim, self.points, self.rule, self.shifted)
        options = self.expectation, self.draws, self.full_covariance
        if self.inference == "gaussian":
            return GaussianLatents(None, self.latent_dim, *options)
        return GaussianLatents.amortised(key, self.input_rows(x), outputs, self.latent_dim, self.hidden, *options)

    def _surface(self, key: PRNGKeyArray, x: Inputs) -> Surface:
        """g(x, w), near zero; more inputs need a firmer prior."""
        rows = self.input_rows(x)
        firm = 0.3 * max(rows, 1) ** 0.4 if self.surface_precision is None else self.surface_precision
        return Surface.create(key, rows, 0 if self.inference == "none" else self.latent_dim, 1, firm)

    def make_input_map(self, key: PRNGKeyArray, x: Inputs, y: Float[np.ndarray, "n D"]) -> InputMap:
        """h = map(x, w); where there is an A, its start is learnt from these rows."""
        if not isinstance(self.input_map, str):
            return self.input_map
        rows, precision = self.input_rows(x), 1.0 if self.feature_precision is None else self.feature_precision
        if self.input_map == "warp":
            return Warp.create(key, rows, self.latent_dim, weight_precision=precision)
        if self.projects:
            base: InputMap = Project(*projection_start(key, x, y, rows, self.input_dim))
        else:
            base = Concatenate(x.dense.shape[1])
        if self.input_map == "bend":
            return Bend.create(key, base, rows, self.latent_dim)
        if self.input_map == "features":
            return Features.create(key, base, rows, precision=precision)
        return base

    def make_mixing(self, outputs: int) -> Mixing:
        """P."""
        if self.mixing is None:
            return Identity(outputs)
        if self.mixing.shape[0] != outputs:
            raise ValueError(f"mixing has {self.mixing.shape[0]} rows, but y has {outputs} columns")
        if isinstance(self.mixing, Mixing):
            return self.mixing
        if self.mixing_posterior == "conjugate":
            return ConjugateMixing.create(self.mixing)
        if self.mixing_posterior == "gaussian":
            return GaussianMixing.create(self.mixing)
        return PointMixing.create(self.mixing, learn=self.mixing_posterior == "map")

    def make_kernel(self, width: int, lengthscales: Float[np.ndarray, " width"] | None = None) -> Kernel:
        """The kernel of the context, of `width` columns, before there are latents; and its lengthscales, if given."""
        kind, believed = (KERNELS[self.kernel], self.beliefs) if isinstance(self.kernel, str) else (RBF, False)
        kernel = kind.create(width, np.sqrt(max(width, 1)), believed=believed)
        return kernel if lengthscales is None else kernel.with_lengthscales(lengthscales)

    def extend_kernel(
        self, trained: Kernel, width: int, dim: int, lengthscale: float, variance: float | None = None
    ) -> Kernel:
        """The kernel of [context, w], from what was learnt of that of the context, with another variance if given."""
        if not isinstance(self.kernel, str):
            return self.kernel
        if not width:
            return KERNELS[self.kernel].create(dim, lengthscale, believed=self.beliefs)
        kernel = trained.extended(width, dim, lengthscale)
        return kernel if variance is None else kernel.with_variance(variance)

    def make_trend(self, width: int) -> Trend:
        """What f has beside the kernel's Gaussian process, before there are latents."""
        if not isinstance(self.trend, str):
            return self.trend
        return NoTrend() if self.trend == "none" or not width else LinearTrend.create(width)

    def extend_trend(self, plain: Model) -> Trend:
        """What f has beside what varies with the latents, from the model without."""
        quiet = self.trend == "quiet" and known_noise(plain.likelihood) < LITTLE_NOISE
        if not (quiet or self.trend == "smooth") or not plain.trend.width:
            return plain.trend
        return SmoothTrend(plain.kernel, plain.inducing_points, plain.trend, plain.jitter)

    def make_likelihood(self, key: PRNGKeyArray, x: Inputs) -> Likelihood:
        """The noise."""
        if not isinstance(self.likelihood, str):
            return self.likelihood
        if self.likelihood == "constant":
            return self.plain_likelihood()
        if self.likelihood == "mixed":
            return MixedNoise.create(FIRST_NOISE)
        return VaryingNoise.create(self._surface(folded(key, 1), x), FIRST_NOISE, self._believed_noise())

    def _believed_noise(self) -> float | None:
        return BELIEVED_NOISE if self.beliefs else None

    def plain_likelihood(self) -> ConstantNoise:
        """One σ², as the model without latents has it."""
        if self.noise_variance is not None:
            return ConstantNoise.create(self.noise_variance, learn=False)
        return ConstantNoise.create(FIRST_NOISE, believed=self._believed_noise())

    def make_prior(self, key: PRNGKeyArray, x: Inputs) -> LatentPrior:
        """p(w|x)."""
        if not isinstance(self.prior, str):
            return self.prior
        if self.prior == "normal":
            return StandardNormal()
        return TiltedNormal(self._surface(folded(key, 2), x))

    def make_jitter(self) -> float:
        """Enough for the type."""
        if self.jitter is not None:
            return self.jitter
        return 1e-6 if self.dtype == "float64" else 1e-4


def projection_start(
    key: PRNGKeyArray, x: Inputs, y: Float[np.ndarray, "n D"], rows: int, width: int
) -> tuple[Float[Array, "rows c"], Float[Array, "rows c"]]:
    """A's mean and log standard deviations: dense features by their principal directions, categories by their outputs.

    A level's place is the mean of its examples' leading principal components, so that levels with like outputs start
    near each other; components that do not exist, and levels not seen, are drawn from the prior.
    """
    mean = np.array(jax.random.normal(key, (rows, width)))
    dense = np.asarray(x.dense)
    if dense.shape[1]:
        vectors = np.linalg.svd(dense - dense.mean(0), full_matrices=False)[2][:width]
        mean[: dense.shape[1]] *= 0.1
        mean[: dense.shape[1], : len(vectors)] += vectors.T
    if x.codes.shape[1]:
        scores, spread = principal_components(np.asarray(y, float), width)
        scores = scores * spread
        levels = mean[dense.shape[1] :]
        for codes in np.asarray(x.codes).T:
            seen, place, count = np.unique(codes, return_inverse=True, return_counts=True)
            total = np.zeros((len(seen), scores.shape[1]))
            np.add.at(total, place, scores)
            centre = total / count[:, None]
            levels[seen, : scores.shape[1]] = centre / centre.std(0).max(initial=1e-12)
    return on_device((mean, np.full(mean.shape, np.log(0.3))))
