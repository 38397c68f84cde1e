"""The model: its parts, and the kernel rows between the inputs of the GP and the inducing inputs.

y = P f(h) + N(0, σ² s(x, w) I),    h = map(x, w),    w ~ p(w|x),    f a sparse Gaussian process and a trend
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..runtime.files import Stored, check_positive
from ..runtime.precision import require_wide, wide
from .input_maps import InputMap
from .inputs import Inputs
from .kernels import Kernel, jittered
from .latents import Latents
from .likelihood import ConstantNoise, Likelihood
from .mixing import Mixing
from .prior import LatentPrior, StandardNormal
from .trend import NoTrend, Trend


class Model(Stored):
    """The parts of y = P f(map(x, w)) + noise, and the inducing inputs Z of f.

    Parameters
    ----------
    kernel : Kernel
        k(h, h') of all Gaussian processes.
    inducing_points : array of shape (M, D_h)
        Z.
    input_map : InputMap
        h = map(x, w).
    latents : Latents
        q(w).
    mixing : Mixing
        P.
    likelihood : Likelihood
        The noise.
    prior : LatentPrior, default=StandardNormal()
        p(w|x).
    trend : Trend, default=NoTrend()
        What f has beside the kernel's Gaussian process.
    jitter : float, default=1e-6
        What is added to the diagonal of Kzz, relative to it.

    Attributes
    ----------
    noise_variance : array of shape ()
        σ².
    width : int
        How many numbers u has: M, and those of the trend.

    Examples
    --------
    >>> import gpcde
    >>> import jax
    >>> import numpy as np
    >>> from gpcde.inference import Statistics, draw, evaluate_bound, whole
    >>> from gpcde.model import RBF, Concatenate, ConstantNoise, FreeForm, Identity, Model, make_inputs
    >>> rng = np.random.default_rng(0)
    >>> x, y = make_inputs(rng.standard_normal((20, 1))), rng.standard_normal((20, 1))
    >>> with gpcde.scope():
    ...     model = Model(
    ...         kernel=RBF.create(2),
    ...         inducing_points=jax.numpy.asarray(rng.standard_normal((5, 2))),
    ...         input_map=Concatenate(1),
    ...         latents=FreeForm.create(points=10),
    ...         mixing=Identity(1),
    ...         likelihood=ConstantNoise.create(0.1),
    ...     )
    ...     draws = draw(jax.random.key(0), model, rows=20)
    ...     terms = jax.jit(evaluate_bound)(model, Statistics.prior(5, 1), whole(x, y), draws, 20.0)
    ...     terms.bound.shape, float(terms.kl_u)
    ((), 0.0)
    """

    kernel: Kernel
    inducing_points: Float[Array, "M h"]
    input_map: InputMap
    latents: Latents
    mixing: Mixing
    likelihood: Likelihood
    prior: LatentPrior = eqx.field(default_factory=StandardNormal)
    trend: Trend = eqx.field(default_factory=NoTrend)
    jitter: float = eqx.field(static=True, default=1e-6)

    def __check_init__(self) -> None:
        require_wide("Model")
        width = self.input_map.out_dim(self.latents.dim)
        if self.inducing_points.shape[1] != width:
            raise ValueError(f"inducing_points have {self.inducing_points.shape[1]} columns; the map gives {width}")

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "jitter", least=0)

    @classmethod
    def upgraded(cls, fields: dict[str, Any], written: int) -> dict[str, Any]:
        """The fields of a model in a file of format 1, which had one σ² and no other prior than N(0, I)."""
        if written == 1:
            fields["likelihood"] = ConstantNoise(fields.pop("log_noise_variance"), fields.pop("learn_noise"))
            fields["prior"], fields["trend"] = StandardNormal(), NoTrend()
        return fields

    @property
    def noise_variance(self) -> Float[Array, ""]:
        """σ²."""
        return self.likelihood.noise_variance

    def seen_mixing(self) -> Mixing:
        """P as it is seen through the noise, in the widest float."""
        return wide(self.likelihood).seen(wide(self.mixing))

    @property
    def width(self) -> int:
        """How many numbers u has: M, and those of the trend."""
        return len(self.inducing_points) + self.trend.width

    def penalty(self) -> Float[Array, ""]:
        """What the bound loses for what the parts are uncertain of, q(u) and q(w) apart; in the widest float."""
        parts = (self.input_map, self.mixing, self.kernel, self.latents, self.likelihood, self.prior, self.trend)
        return sum((part.penalty() for part in wide(parts)), jnp.zeros(()))

    def gram(self) -> Float[Array, "M M"]:
        """Cov(u), in the widest float: Kzz, with the only jitter there is, relative to its diagonal; I for a trend."""
        kernel, z, trend = wide((self.kernel, self.inducing_points, self.trend))
        gram = jittered(kernel.gram(z), self.jitter)
        return jax.scipy.linalg.block_diag(gram, trend.gram()) if trend.width else gram

    def trend_rows(self, left: Float[Array, "n b"]) -> tuple[Float[Array, "n t"], Float[Array, "n 1"]]:
        """The covariances of the trend with u and with itself, in the widest float."""
        trend, left = wide((self.trend, left))
        return trend.rows(left), trend.diag(left)[:, None]

    def cast(self, x: Inputs) -> Inputs:
        """The inputs in the model's own type, whatever the data's is."""
        return x._replace(dense=jnp.asarray(x.dense, self.inducing_points.dtype))


class Rows(NamedTuple):
    """Cov(f(h_nk), u) = [kernel, trend], where x alone decides the trend, and Cov(f(h_nk), f(h_nk)) = diag."""

    kernel: Float[Array, "n k M"]
    trend: Float[Array, "n t"]
    diag: Float[Array, "n k"]

    def flat(self) -> tuple[Float[Array, "m W"], Float[Array, "m 1"]]:
        """A row for each latent of each data point."""
        n, k, _ = self.kernel.shape
        trend = jnp.broadcast_to(self.trend[:, None], (n, k, self.trend.shape[1]))
        return jnp.concatenate([self.kernel, trend], axis=2).reshape(n * k, -1), self.diag.reshape(n * k, 1)


class Factors(NamedTuple):
    """The same with kernel = rows_x ⊙ rows_w, for latents that all data points share."""

    rows_x: Float[Array, "n M"]
    rows_w: Float[Array, "k M"]
    trend: Float[Array, "n t"]
    diag: Float[Array, "n k"]

    def rows(self) -> Rows:
        """The products."""
        return Rows(self.rows_x[:, None] * self.rows_w, self.trend, self.diag)


def separated(model: Model, context: Float[Array, "n c"], w: Float[Array, "#n k d"]) -> Factors | None:
    """The factors of the kernel rows, where the map leaves several shared latents shared and the kernel separates."""
    left, right = model.input_map.halves(context, w.astype(context.dtype))
    split = left.shape[1]
    pair = model.kernel.separate(split) if right.shape[0] == 1 < right.shape[1] else None
    if pair is None:
        return None
    z = model.inducing_points
    rows_x, rows_w = pair[0](left, z[:, :split]), pair[1](right[0], z[:, split:])
    rows_x, rows_w, diag = wide((rows_x, rows_w, pair[0].diag(left)[:, None] * pair[1].diag(right[0])))
    trend, more = model.trend_rows(left)
    return Factors(rows_x, rows_w, trend, diag + more)


def kernel_rows(model: Model, context: Float[Array, "n c"], w: Float[Array, "#n k d"]) -> Rows:
    """The covariances of f(h_nk) with u, k(h_nk, Z) but for the trend, and with itself."""
    left, right = model.input_map.halves(context, w.astype(context.dtype))
    n, (_, k, dim), split = len(left), right.shape, left.shape[1]
    pair = model.kernel.separate(split) if split and k > 1 else None
    if pair is not None:  # the part of the kernel that x alone decides, once a data point
        z, moved = model.inducing_points, right.reshape(-1, dim)
        rows = pair[0](left, z[:, :split])[:, None] * pair[1](moved, z[:, split:]).reshape(-1, k, len(z))
        diag = pair[0].diag(left)[:, None] * pair[1].diag(moved).reshape(-1, k)
    else:
        h = model.input_map.join(context, w.astype(context.dtype))
        flat = h.reshape(n * k, h.shape[2])
        rows = model.kernel(flat, model.inducing_points).reshape(n, k, -1)
        diag = model.kernel.diag(flat).reshape(n, k)
    trend, more = model.trend_rows(left)
    return Rows(wide(rows), trend, wide(diag) + more)
