"""Prediction: p(y|x) as a mixture of Gaussians over latents w_k with weights π_k(x), those of p(w|x).

    p(y|x) = sum_k π_k(x) N(y | E[P] μ(x, w_k), E[P] V diag(var_l(x, w_k)) Vᵀ E[P]ᵀ + σ² s(x, w_k) I)

For a point P, P V = U diag(d): each component is diagonal in the coordinates Uᵀ y, and isotropic outside the columns
of P, so that nothing of size D_y × D_y is made. Where A is uncertain, component k has a draw of A x beside w_k.

With an uncertain P, p(y|x,w) is no Gaussian any more; it is replaced by the Gaussian with its mean, its variances
along the columns of U, and one variance outside them (`Mixing.own_variance`).
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..density.components import Components
from ..inference.forms import inverse_cholesky
from ..inference.posterior import FunctionMoments, VariationalPosterior
from ..model.gaussians import LOG_2PI
from ..model.inputs import AnyArray, Inputs
from ..model.kernels import Kernel
from ..model.mixing import Directions
from ..model.model import Model, kernel_rows, separated
from ..runtime.blocks import by_blocks, in_blocks
from ..runtime.compilation import compiled, shapes_of
from ..runtime.precision import on_device, scope, wide
from .nodes import Nodes

PAIRS_AT_ONCE = 2**18
"""How many pairs of rows and components a block of test points may have: few enough for the processor's cache."""

NUMBERS_AT_ONCE = 2**23
"""How many kernel values it may need."""


class Mixture(NamedTuple):
    """sum_k π_nk N(mean_nk, ·): variances along the columns of `basis` (None: the axes), `outside` in all others.

    Parameters
    ----------
    log_weight : array of shape (n, k) or (1, k)
        log π.
    mean : array of shape (n, k, L)
        The means, in the coordinates of `basis`.
    variance : array of shape (n, k, L) or (n, k, 1)
        The variances along them.
    basis : array of shape (D_y, L) or None
        Orthonormal columns.
    outside : array of shape (n, k)
        The variance in every direction outside of them.
    """

    log_weight: Float[Array, "#n k"]
    mean: Float[Array, "n k L"]
    variance: Float[Array, "n k #L"]
    basis: Float[Array, "D L"] | None
    outside: Float[Array, "n k"]

    @scope()
    def log_density(self, y: Float[AnyArray, "n D"]) -> Float[Array, " n"]:
        """log p(y_n | x_n)."""
        return jax.nn.logsumexp(self.log_weight + self.log_components(jnp.asarray(y)), axis=1)

    def log_components(self, y: Float[Array, "n D"]) -> Float[Array, "n k"]:
        """The log density of each component."""
        inside = y if self.basis is None else y @ self.basis
        width = self.mean.shape[2]
        variance = jnp.broadcast_to(self.variance, self.mean.shape)
        squares = ((inside[:, None] - self.mean) ** 2 / self.variance).sum(2)
        total = squares + jnp.log(variance).sum(2) + y.shape[1] * LOG_2PI
        if self.basis is not None:
            rest = ((y - inside @ self.basis.T) ** 2).sum(1)
            total = total + rest[:, None] / self.outside + (y.shape[1] - width) * jnp.log(self.outside)
        return -0.5 * total

    def means(self) -> Float[Array, "n k D"]:
        """The mean of y of each component."""
        return self.mean if self.basis is None else self.mean @ self.basis.T

    def components(self) -> Components:
        """As NumPy arrays, for a `ConditionalDensity`."""
        log_weight, mean, variance = (np.asarray(a) for a in (self.log_weight, self.mean, self.variance))
        if self.basis is None:
            return Components(log_weight, mean, variance)
        return Components(log_weight, mean, variance, np.asarray(self.basis)[None, None], np.asarray(self.outside))


class Predictor(eqx.Module):
    """A trained model with all that prediction computes once: moments of f from q(u), and the directions of P.

    Parameters
    ----------
    model : Model
        The trained model.
    moments : FunctionMoments
        What makes means and variances of f of kernel rows.
    rotation : array of shape (L, L)
        By which f is rotated where its variances are told.
    directions : Directions or None
        The directions of P; None where P is the identity.
    nodes : Nodes
        The latents that a prediction is a mixture over.

    Examples
    --------
    >>> import gpcde
    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> from gpcde.inference import Statistics
    >>> from gpcde.model import RBF, Concatenate, ConstantNoise, FreeForm, Identity, Model, make_inputs
    >>> from gpcde.prediction import Predictor
    >>> rng = np.random.default_rng(0)
    >>> with gpcde.scope():
    ...     places = jnp.asarray(rng.standard_normal((5, 2)))
    ...     model = Model(RBF.create(2), places, Concatenate(1), FreeForm.create(), Identity(1), ConstantNoise.create())
    ...     predictor = Predictor.create(model, Statistics.prior(5, 1))
    >>> x = make_inputs(rng.standard_normal((3, 1)))
    >>> predictor.log_density(x, np.zeros((3, 1))).shape
    (3,)
    >>> predictor.mixture(x).mean.shape
    (3, 101, 1)
    """

    model: Model
    moments: FunctionMoments
    rotation: Float[Array, "L L"]
    directions: Directions | None
    nodes: Nodes

    @classmethod
    def create(cls, model: Model, posterior: VariationalPosterior, nodes: Nodes | None = None) -> "Predictor":
        """From a trained model and its q(u).

        Parameters
        ----------
        model : Model
            The trained model.
        posterior : VariationalPosterior
            Its q(u).
        nodes : Nodes, default=None
            The latents that a prediction is a mixture over; None: chosen for the model.
        """
        with scope():
            return _predictor(model, posterior, on_device(nodes or Nodes.for_model(model)))

    def mixture(self, x: Inputs) -> Mixture:
        """p(y|x) of some rows, all at once."""
        with scope():
            return _mixture(self, on_device(x))

    def components(self, x: Inputs) -> Components:
        """p(y|x) of any number of rows, block by block, as NumPy arrays."""
        with scope():
            blocks = [(_mixture(self, part).components(), n) for part, n in in_blocks(x, self.rows_at_once())]
        return Components.stacked([c.take(slice(n)) for c, n in blocks])

    def log_density(self, x: Inputs, y: Float[AnyArray, "n D"]) -> Float[np.ndarray, " n"]:
        """log p(y_n|x_n) of any number of rows, block by block: no mixture is kept."""
        with scope():
            return by_blocks(partial(_log_density, self), (x, np.asarray(y)), self.rows_at_once())

    def log_likelihood(
        self,
        x: Inputs,
        y: Float[Array, "n D"],
        w: Float[Array, "n k d"],
        context_draws: Float[Array, "n k c"],
    ) -> Float[Array, "n k"]:
        """log p(y_n | x_n, w_nk), for latents (and draws of A x) of each row's own."""
        n, k, _ = w.shape
        repeated, parts = self._functions(x, w, context_draws)
        mean, variance = (a.reshape(n, k, -1) for a in parts)
        log_scale = self.model.likelihood.log_scale(repeated, w.reshape(n * k, 1, -1))
        log_scale = jnp.broadcast_to(log_scale, (n * k, 1)).reshape(n, k)
        return self.outputs(jnp.zeros((1, k)), mean, variance, log_scale).log_components(wide(y))

    def at_nodes(self, x: Inputs) -> Mixture:
        """p(y|x) of some rows, to be compiled."""
        nodes, model, x = self.nodes, self.model, self.model.cast(x)
        w, n, k = jnp.asarray(nodes.w)[None], x.n_rows, len(nodes.w)
        log_weight = wide(model.prior.log_weights(x, w, jnp.asarray(nodes.log_weight)[None]))
        log_scale = model.likelihood.log_scale(x, w)
        if nodes.context is not None:
            draws = jnp.broadcast_to(jnp.asarray(nodes.context), (n, k, model.input_map.draw_dim))
            _, (mean, variance) = self._functions(x, jnp.broadcast_to(w, (n, *w.shape[1:])), draws)
            return self.outputs(log_weight, mean.reshape(n, k, -1), variance.reshape(n, k, -1), log_scale)
        context = model.input_map.context(x, jnp.zeros((n, model.input_map.draw_dim)))
        factors = separated(model, context, w)
        if factors is not None:
            return self.outputs(log_weight, *self.moments.separated(factors), log_scale)
        mean, variance = self.moments(*kernel_rows(model, context, w).flat())
        return self.outputs(log_weight, mean.reshape(n, k, -1), variance.reshape(n, k, -1), log_scale)

    def _functions(
        self, x: Inputs, w: Float[Array, "n k d"], context_draws: Float[Array, "n k c"]
    ) -> tuple[Inputs, tuple[Float[Array, "m L"], Float[Array, "m #L"]]]:
        """Moments of f at latents and draws of A x of each row's own; and the inputs, a row for each of them."""
        n, k, dim = w.shape
        repeated = self.model.cast(x).take(jnp.repeat(jnp.arange(n), k))
        context = self.model.input_map.context(repeated, context_draws.reshape(n * k, -1))
        rows = kernel_rows(self.model, context, w.reshape(n * k, 1, dim))
        return repeated, self.moments(*rows.flat())

    def outputs(
        self,
        log_weight: Float[Array, "#n k"],
        mean: Float[Array, "n k L"],
        variance: Float[Array, "n k #L"],
        log_scale: Float[Array, "#n #k"],
    ) -> Mixture:
        """p(y|x) from means and (rotated) variances of f."""
        mixing, scale_of_noise = wide(self.model.mixing), jnp.exp(wide(log_scale))
        noise = self.model.noise_variance * scale_of_noise
        variance = variance + (self.model.likelihood.function_variance * scale_of_noise)[..., None]
        if self.directions is None:
            spread = variance + noise[..., None]
            return Mixture(log_weight, mean, spread, None, jnp.broadcast_to(noise, mean.shape[:2]))
        basis, scale, right = self.directions
        variance = jnp.broadcast_to(variance, mean.shape)
        own, beyond = mixing.own_variance(mean, variance, self.rotation, basis)
        along = variance @ ((right @ self.rotation) ** 2).T * scale**2 + noise[..., None] + own
        return Mixture(
            log_weight, mean @ right.T * scale, along, basis, jnp.broadcast_to(noise + beyond, mean.shape[:2])
        )

    def _separates(self) -> bool:
        """Whether kernel rows are products of a factor of x and one of w (see `separated`)."""
        right, factors = shapes_of(_factors, self.model, self.nodes.w)
        return right.shape[0] == 1 < right.shape[1] and factors is not None

    def rows_at_once(self) -> int:
        """How many test points a block may have: a component needs moments, and a kernel row unless it factors."""
        count, width = len(self.nodes.w), max(self.moments.separated_width, self.model.mixing.shape[1])
        if self.nodes.context is not None or not self._separates():
            width = max(width, self.model.width)
        return max(1, min(PAIRS_AT_ONCE // count, NUMBERS_AT_ONCE // (count * width)))


def make_predictor(model: Model, posterior: VariationalPosterior, nodes: Nodes) -> Predictor:
    """A predictor, to be compiled."""
    if model.input_map.draw_dim and nodes.context is None:
        raise ValueError("this input map is uncertain: prediction needs standard normal draws for each component")
    q = posterior.resolve(model.seen_mixing(), model.noise_variance)
    directions = wide(model.mixing).directions()
    return Predictor(model, q.moments(inverse_cholesky(model.gram())), q.rotation, directions, nodes)


def check_predicts(model: Model, posterior: VariationalPosterior, x: Inputs, outputs: int) -> None:
    """Raise where a model does not answer with so many outputs for such inputs; nothing is computed."""
    if model.mixing.shape[0] != outputs:
        raise ValueError("its outputs do not fit its model")
    shapes_of(_answers, model, posterior, Nodes.for_model(model), x)


def _answers(model: Model, posterior: VariationalPosterior, nodes: Nodes, x: Inputs) -> Mixture:
    return make_predictor(model, posterior, nodes).at_nodes(x)


def _factors(model: Model, w: Float[Array, "k d"]) -> tuple[Array, tuple[Kernel, Kernel] | None]:
    """The GP's inputs on the side of w, and the kernel's two factors, if it has any."""
    left, right = model.input_map.halves(jnp.zeros((2, model.input_map.context_dim)), w[None])
    return right, model.kernel.separate(left.shape[1])


_predictor = compiled(make_predictor)


@compiled
def _mixture(predictor: Predictor, x: Inputs) -> Mixture:
    return predictor.at_nodes(x)


@compiled
def _log_density(predictor: Predictor, x: Inputs, y: Float[AnyArray, "n D"]) -> Float[Array, " n"]:
    return predictor.at_nodes(x).log_density(wide(jnp.asarray(y)))
