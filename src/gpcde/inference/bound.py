"""The bound: for a batch, everything one training step needs, in one differentiable function.

    bound = N / sum_n v_n  sum_n v_n bound_n - KL[q(u) || p(u)] - KL[q(A) || p(A)] - KL[q(P) || p(P)] - …

v_n is the weight of a row (1 unless given), N that of all rows, and bound_n is made of the expected log likelihoods at
the latents w_nk (see `latents`), which are quadratic in the kernel row k_nk = k(h_nk, Z):

    L_nk = -D_y/2 log 2πσ²s_nk - (‖y_n‖² + tr R k(h_nk, h_nk)) / 2σ²s_nk + (k_nkᵀ b_n + k_nkᵀ C k_nk / 2) / σ²s_nk
    C = Lz⁻ᵀ C̄ Lz⁻¹,  b_n = Lz⁻ᵀ W̄ y_n,  with C̄ and W̄ the coefficients of q(u)

Its derivatives by C̄ and W̄ are the statistics of the natural gradient,

    2σ² ∂/∂C̄ = sum_nk r_nk / s_nk a_nk a_nkᵀ        σ² ∂/∂W̄ = sum_nk r_nk / s_nk a_nk y_nᵀ

(r the responsibilities, weighed as the rows are), so that one forward and one backward pass serve both optimisers (see
`forms`).

An uncertain A is drawn once a data point: given A x_n the bound of a data point holds with a q(w_n) of its own,
so the expectation over draws is a bound too, with q(w_n | A) in place of q(w_n).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..model.gaussians import LOG_2PI, Gaussian
from ..model.inputs import Inputs
from ..model.model import Model, kernel_rows, separated
from ..model.prior import LatentPrior
from ..runtime.precision import on_device, scope, wide
from .data import Batch, whole
from .forms import inverse_cholesky, quadratic_form, separable_log_sum, unwhitened
from .posterior import Coefficients, SparsePosterior, VariationalPosterior


class Draws(NamedTuple):
    """Standard normal numbers for a batch: for A x, and for the latents.

    Parameters
    ----------
    context : array of shape (n, c)
        For A x; c is 0 where it is certain.
    latent : array of shape (n, k, D_w)
        For k latents of each row.
    """

    context: Float[Array, "n c"]
    latent: Float[Array, "n k d"]


def draw(key: PRNGKeyArray, model: Model, rows: int) -> Draws:
    """Fresh draws for that many rows.

    Parameters
    ----------
    key : PRNG key
        Of the draws.
    model : Model
        The model, whose parts say how many numbers they need.
    rows : int
        The number of rows.

    Returns
    -------
    Draws
        For one evaluation of the bound.
    """
    one, two = jax.random.split(key)
    dtype = model.inducing_points.dtype
    return Draws(
        jax.random.normal(one, (rows, model.input_map.draw_dim), dtype),
        jax.random.normal(two, (rows, *model.latents.draw_shape), dtype),
    )


def no_draws(model: Model, rows: int) -> Draws:
    """Zeros instead: A at its mean, and nodes where they are."""
    dtype = model.inducing_points.dtype
    return Draws(
        jnp.zeros((rows, model.input_map.draw_dim), dtype), jnp.zeros((rows, *model.latents.draw_shape), dtype)
    )


class Terms(NamedTuple):
    """What the bound is made of: bound = data - kl_u - penalty.

    Parameters
    ----------
    bound : array of shape ()
        The bound on the log likelihood of all rows.
    data : array of shape ()
        The data's part of it.
    kl_u : array of shape ()
        KL[q(u) || p(u)].
    penalty : array of shape ()
        What the parts of the model cost.
    """

    bound: Float[Array, ""]
    data: Float[Array, ""]
    kl_u: Float[Array, ""]
    penalty: Float[Array, ""]


class BatchEvidence(eqx.Module):
    """What a batch says of latents (see `latents.Evidence`), given the model and the coefficients of q(u)."""

    model: Model
    batch: Batch
    coefficients: Coefficients
    context_draws: Float[Array, "n c"]

    @classmethod
    def create(
        cls,
        model: Model,
        q: SparsePosterior,
        batch: Batch,
        context_draws: Float[Array, "n c"],
        nudge: Coefficients | None = None,
    ) -> "BatchEvidence":
        """From q(u), and what is added to its whitened coefficients."""
        quadratic, linear = q.coefficients(model.seen_mixing())
        if nudge is not None:
            quadratic, linear = quadratic + nudge.quadratic, linear + nudge.linear
        coefficients = Coefficients(*unwhitened(model.gram(), quadratic, linear))
        batch = on_device(batch)
        return cls(model, batch._replace(x=model.cast(batch.x), y=wide(batch.y)), coefficients, context_draws)

    @property
    def x(self) -> Inputs:
        return self.batch.x

    @property
    def y(self) -> Float[Array, "n D"]:
        return jnp.asarray(self.batch.y, self.model.inducing_points.dtype)

    @property
    def prior(self) -> LatentPrior:
        return self.model.prior

    def context(self) -> Float[Array, "n c"]:
        """The part of the GP's inputs that does not depend on the latents."""
        return self.model.input_map.context(self.x, self.context_draws)

    def total(self, values: Float[Array, " n"]) -> Float[Array, ""]:
        return jnp.sum(self.batch.weight * values)

    def at(self, w: Float[Array, "#n k d"]) -> Float[Array, "n k"]:
        rows = kernel_rows(self.model, self.context(), w)
        offset, precision = self._constant(rows.diag, wide(self.model.likelihood.log_scale(self.x, w)))
        quadratic, pull, level = self._round(rows.trend)
        return offset + precision * (level + quadratic_form(rows.kernel, quadratic, pull))

    def log_sum(self, w: Float[Array, "1 k d"], log_weight: Float[Array, "#n k"]) -> Float[Array, ""]:
        factors = separated(self.model, self.context(), w)
        if factors is None:
            return self.total(jax.nn.logsumexp(self.at(w) + log_weight, axis=1))
        offset, precision = self._constant(factors.diag, wide(self.model.likelihood.log_scale(self.x, w)))
        quadratic, pull, level = self._round(factors.trend)
        return separable_log_sum(
            factors.rows_x,
            factors.rows_w,
            quadratic,
            pull,
            offset + precision * level + log_weight,
            jnp.broadcast_to(precision, offset.shape),
            self.batch.weight,
        )

    def closed(self, q: Gaussian) -> Float[Array, ""]:
        model = self.model
        if model.trend.width:
            raise NotImplementedError(
                f"closed-form kernel expectations have no trend, but the model has a {type(model.trend).__name__}; "
                "use Monte Carlo draws of w instead (expectation='draws')"
            )
        mean, variance = model.input_map.moments(self.x)
        spread = q.covariance()
        if spread.ndim == 2:
            covariance = jnp.concatenate([variance, spread], axis=1)
        else:
            covariance = jax.vmap(jax.scipy.linalg.block_diag)(jax.vmap(jnp.diag)(variance), spread)
        mean = jnp.concatenate([mean, q.mean], axis=1)
        kernel, mean, covariance, z = wide((model.kernel, mean, covariance, model.inducing_points))
        log_scale = jnp.broadcast_to(wide(model.likelihood.row_log_scale(self.x)), self.batch.weight.shape)
        psi = kernel.expectations(mean, covariance, z, jnp.asarray(self.batch.weight) * jnp.exp(-log_scale))
        offset, precision = self._constant(psi.psi0[:, None], log_scale[:, None])
        linear = self.total(precision[:, 0] * jnp.sum(psi.psi1 * self._pull(), axis=1))
        form = 0.5 * jnp.sum(self.coefficients.quadratic * psi.psi2) / model.noise_variance
        return self.total(offset[:, 0]) + linear + form

    def _pull(self) -> Float[Array, "n M"]:
        """b_n."""
        return jnp.asarray(self.batch.y) @ self.coefficients.linear.T

    def _round(
        self, trend: Float[Array, "n t"]
    ) -> tuple[Float[Array, "M M"], Float[Array, "n M"], Float[Array, "#n 1"]]:
        """C, b_n and a level of the quadratic form in the kernel row alone, the same for all latents of a data point:

        [k, t]ᵀ b + [k, t]ᵀ C [k, t] / 2 = kᵀ (b_k + C_kt t) + kᵀ C_kk k / 2 + (tᵀ b_t + tᵀ C_tt t / 2)
        """
        matrix, pull, m = self.coefficients.quadratic, self._pull(), len(self.model.inducing_points)
        if not trend.shape[1]:
            return matrix, pull, jnp.zeros((1, 1))
        level = quadratic_form(trend[:, None], matrix[m:, m:], pull[:, m:])
        return matrix[:m, :m], pull[:, :m] + trend @ matrix[m:, :m], level

    def _constant(
        self, diag: Float[Array, "n k"], log_scale: Float[Array, "#n #k"]
    ) -> tuple[Float[Array, "n k"], Float[Array, "#n #k"]]:
        """The part of L_nk that knows nothing of the kernel row, and the precision 1/σ²s_nk of the rest."""
        y, sigma2, mixing = jnp.asarray(self.batch.y), self.model.noise_variance, self.model.seen_mixing()
        precision = jnp.exp(-log_scale) / sigma2
        squares = mixing.squares(y)[:, None] + mixing.trace() * diag
        log_det = y.shape[1] * (LOG_2PI + jnp.log(sigma2) + log_scale) + mixing.log_det()
        return -0.5 * (log_det + squares * precision), precision


@scope()
def evidence(model: Model, posterior: VariationalPosterior, batch: Batch) -> BatchEvidence:
    """What a batch says of its latents, A at its mean."""
    q = posterior.resolve(model.seen_mixing(), model.noise_variance)
    return BatchEvidence.create(model, q, batch, no_draws(model, batch.y.shape[0]).context)


@scope()
def evaluate_bound(
    model: Model,
    posterior: VariationalPosterior,
    batch: Batch,
    draws: Draws,
    n_data: int | Float[Array, ""],
    local: Float[Array, "n p"] | None = None,
    nudge: Coefficients | None = None,
) -> Terms:
    """The bound of a batch that stands for `n_data` rows.

    With statistics for q(u), q(u) is held fixed for differentiation.

    Parameters
    ----------
    model : Model
        The model.
    posterior : VariationalPosterior
        q(u).
    batch : Batch
        Some rows of the data, or all (`whole`).
    draws : Draws
        Standard normal numbers for it (`draw`).
    n_data : int or float
        For how many rows the batch stands: the sum of the weights of all rows.
    local : array of shape (n, p), default=None
        The parameters of each row's own q(w_n), where there are any.
    nudge : Coefficients, default=None
        Zeros that are added to the whitened coefficients of q(u); the derivatives by them are the natural gradient's
        statistics.

    Returns
    -------
    Terms
        The bound, and what it is made of.
    """
    q = posterior.resolve(model.seen_mixing(), model.noise_variance)
    known = BatchEvidence.create(model, q, batch, draws.context, nudge)
    data = model.latents.bound(known, local, draws.latent) * (n_data / jnp.sum(batch.weight))
    kl_u, penalty = q.kl(), model.penalty()
    return Terms(data - kl_u - penalty, data, kl_u, penalty)


@scope()
def mean_outputs(model: Model, posterior: VariationalPosterior, x: Inputs) -> Float[Array, "n D"]:
    """E[y|x] of a model without latents, A at its mean."""
    q = posterior.resolve(model.seen_mixing(), model.noise_variance)
    known = evidence(model, posterior, whole(x, jnp.zeros((x.n_rows, model.mixing.shape[0]))))
    rows = kernel_rows(model, known.context(), jnp.zeros((1, 1, 0)))
    mean, _ = q.moments(inverse_cholesky(model.gram()))(*rows.flat())
    return wide(model.mixing).apply(mean)
