"""Whole functions drawn from the posterior, by pathwise conditioning, and the densities they make.

    f(h) = φ(h)ᵀ ω + Cov(f(h), u) Lz⁻ᵀ (v - Lz⁻¹ φ(Z)ᵀ ω),     ω ~ N(0, I),   v ~ q(v),   u = Lz v

φ are random Fourier features of the kernel (`model.waves`), and a smooth trend has its own; a linear one, which u
holds whole, needs none. One draw of f, with every other part of the model drawn too where it is uncertain
(`Part.sample`), is a function of (x, w) that can be evaluated anywhere, and so one density
p(y|x, f) = sum_k π_k N(y | P f(x, w_k), σ² s I) for every x.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..density.components import Components
from ..inference.forms import inverse_cholesky
from ..inference.posterior import VariationalPosterior
from ..model.inputs import Inputs
from ..model.mixing import Directions
from ..model.model import Model, kernel_rows
from ..model.waves import Waves, features
from ..runtime.blocks import in_blocks
from ..runtime.compilation import compiled
from ..runtime.precision import scope, wide
from .nodes import GRID, LINE, Nodes
from .predictor import Mixture

PAIRS_AT_ONCE, KNOWN_PAIRS = 2**14, 2**17
"""How many pairs of rows and components a block may have: random features of each take more room than kernel rows, and
where those of the components are known (`waves_at`) there are only kernel rows."""


class Path(eqx.Module):
    """One draw: the model with its uncertain parts drawn, and f along it.

    Parameters
    ----------
    model : Model
        The model, its parts drawn.
    prior : Waves
        φ(h)ᵀ ω.
    trend : Waves or None
        The same of what the trend has beside u; None where u holds it whole.
    correction : array of shape (M, L)
        The weights of Cov(f(h), u), which make the draw one of the posterior.
    directions : Directions or None
        The directions of P; None where P is the identity.
    """

    model: Model
    prior: Waves
    trend: Waves | None
    correction: Float[Array, "M L"]
    directions: Directions | None

    def functions(
        self, x: Inputs, w: Float[Array, "k d"], waves: Float[Array, "G k L"] | None = None
    ) -> Float[Array, "n k L"]:
        """f at every x and w; quicker with what `waves` says of these w."""
        model, x = self.model, self.model.cast(x)
        context = model.input_map.context(x, jnp.zeros((x.n_rows, model.input_map.draw_dim)))
        left, _ = model.input_map.halves(context, w[None])
        if waves is None:
            h = model.input_map.join(context, w[None])
            n, k, width = h.shape
            flat = h.reshape(n * k, width)
            f = self.prior(flat).reshape(n, k, -1)
        else:
            known = features(left, self.prior.frequencies[: left.shape[1]]).astype(waves.dtype)
            f = (known @ waves.reshape(len(waves), -1)).reshape(-1, *waves.shape[1:])
        rows, trend, _ = kernel_rows(model, context, w[None])
        m = rows.shape[2]
        alone = trend @ self.correction[m:]
        if self.trend is not None:
            alone = alone + self.trend(left[:, : len(self.trend.frequencies)])
        return f + rows @ self.correction[:m] + alone[:, None]

    def waves(self, w: Float[Array, "k d"]) -> Float[Array, "G k L"] | None:
        """All that φ(h)ᵀ ω needs of these w, once for every x: its coefficients of the features of the left of h.

        cos(a + b) ω + sin(a + b) ω' = cos a (cos b ω + sin b ω') + sin a (cos b ω' - sin b ω), a of the left, b of the
        right of h. None where the right of h depends on x too.
        """
        input_map = self.model.input_map
        left, right = input_map.halves(jnp.zeros((2, input_map.context_dim)), w[None])
        if right.shape[0] != 1:
            return None
        cos, sin = jnp.split(features(right[0], self.prior.frequencies[left.shape[1] :]).T[..., None], 2)
        first, second = jnp.split(self.prior.weights[:, None], 2)
        return jnp.concatenate([cos * first + sin * second, cos * second - sin * first])

    def mixture(self, x: Inputs, nodes: Nodes, waves: Float[Array, "G k L"] | None = None) -> Mixture:
        """p(y|x, f) of some rows, to be compiled; quicker with what `waves` says of these nodes."""
        model, x = self.model, self.model.cast(x)
        w = jnp.asarray(nodes.w)[None]
        f = self.functions(x, w[0], waves)
        size = jnp.exp(model.likelihood.log_scale(x, w))
        noise, own = model.noise_variance * size, (model.likelihood.function_variance * size)[..., None]
        log_weight = model.prior.log_weights(x, w, jnp.asarray(nodes.log_weight)[None])
        if self.directions is None:
            spread = jnp.broadcast_to(noise[..., None] + own, (*f.shape[:2], 1))
            return Mixture(log_weight, f, spread, None, noise)
        basis, scale, right = self.directions
        outside = jnp.broadcast_to(noise, f.shape[:2])
        return Mixture(log_weight, f @ right.T * scale, outside[..., None] + own * scale**2, basis, outside)

    def nodes(self) -> Nodes:
        """Which latents the densities are mixtures over: without the spread of f they are narrower, so more of them."""
        return Nodes.for_model(self.model, 4 * LINE - 3, 3 * GRID // 2, uncertain=False)

    def components(self, x: Inputs) -> Components:
        """p(y|x) of any number of rows, if f (and all else that is uncertain) were this one."""
        nodes = self.nodes()
        with scope():
            waves = waves_at(self, nodes)
            most = max(1, (PAIRS_AT_ONCE if waves is None else KNOWN_PAIRS) // len(nodes.w))
            blocks = [(_along(self, part, nodes, waves).components(), n) for part, n in in_blocks(x, most)]
        return Components.stacked([c.take(slice(n)) for c, n in blocks])


@compiled
def draw_path(key: PRNGKeyArray, model: Model, posterior: VariationalPosterior) -> Path:
    """A draw of f, and of every part that is uncertain of itself.

    Parameters
    ----------
    key : PRNG key
        Of the draw.
    model : Model
        The trained model; its kernel is stationary, or a product of such.
    posterior : VariationalPosterior
        Its q(u).

    Returns
    -------
    Path
        One function of (x, w).
    """
    keys = jax.random.split(key, 5)
    model = wide(model)
    q = posterior.resolve(model.seen_mixing(), model.noise_variance)
    z = model.inducing_points
    prior = Waves.draw(keys[0], keys[1], model.kernel, z.shape[1], q.mean.shape[1])
    trend, trend_u = model.trend.draw(jax.random.fold_in(key, 6), q.mean.shape[1])
    whitener = inverse_cholesky(model.gram())
    v = q.sample(jax.random.normal(keys[2], q.mean.shape))
    correction = whitener.T @ (v - whitener @ jnp.concatenate([prior(z), trend_u]))
    others = jax.random.split(jax.random.fold_in(key, 5), 3)
    drawn = dataclasses.replace(
        model,
        input_map=model.input_map.sample(keys[3]),
        mixing=model.mixing.sample(keys[4]),
        likelihood=model.likelihood.sample(others[0]),
        prior=model.prior.sample(others[1]),
        latents=model.latents.sample(others[2]),
    )
    return Path(drawn, prior, trend, correction, drawn.mixing.directions())


@compiled
def waves_at(path: Path, nodes: Nodes) -> Float[Array, "G k L"] | None:
    """`Path.waves` at these nodes."""
    return path.waves(jnp.asarray(nodes.w))


@compiled
def _along(path: Path, x: Inputs, nodes: Nodes, waves: Float[Array, "G k L"] | None) -> Mixture:
    return path.mixture(x, nodes, waves)
