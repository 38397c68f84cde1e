"""Approximate posteriors of the latents against scipy's normal densities, and the recognition network written out."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from scipy.special import ndtri
from scipy.stats import multivariate_normal, norm

from gpcde.model.gaussians import Gaussian
from gpcde.model.inputs import Inputs, make_inputs
from gpcde.model.latents import FreeForm, GaussianLatents, Latents, NoLatents
from gpcde.model.prior import LatentPrior, StandardNormal
from gpcde.runtime.compilation import compiled
from small import ask

N, D, OUTPUTS = 4, 3, 2
BOTH = pytest.mark.parametrize("full", [False, True], ids=["diagonal", "full"])


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def own(full: bool, expectation: str = "draws", count: int = 1) -> GaussianLatents:
    """Latents with parameters of their own for each data point."""
    return GaussianLatents(None, D, expectation, count, full)


def parameters(full: bool) -> np.ndarray:
    return 0.6 * normal(N, GaussianLatents.local_dim_of(D, full), seed=1)


def empty(rows: int = N) -> tuple[Inputs, jax.Array]:
    return make_inputs(rows=rows), jnp.zeros((rows, OUTPUTS))


CENTRE = np.array([0.5, -0.3, 0.2])


class Moved(LatentPrior):
    """p(w|x) = N(CENTRE, I)."""

    def penalty(self) -> Float[Array, ""]:
        return jnp.zeros(())

    def sample(self, key: jax.Array) -> "Moved":
        return self

    def log_ratio(self, x: Inputs, w: Float[Array, "#n k d"]) -> Float[Array, "#n k"]:
        centre = jnp.asarray(CENTRE[: w.shape[2]])
        return w @ centre - 0.5 * centre @ centre


PRIORS: dict[str, Callable[[], LatentPrior]] = {"standard": StandardNormal, "moved": Moved}
BOTH_PRIORS = pytest.mark.parametrize("name", PRIORS)


def log_prior(name: str, w: np.ndarray) -> np.ndarray:
    """log p(w|x)."""
    return multivariate_normal(CENTRE if name == "moved" else np.zeros(D)).logpdf(w)


class Told:
    """Evidence that says what it is told to, and remembers what it was asked."""

    def __init__(self, at: Callable[[jax.Array], jax.Array], prior: LatentPrior | None = None, rows: int = N) -> None:
        self.x, self.y = empty(rows)
        self.prior = prior or StandardNormal()
        self._at = at

    def at(self, w: jax.Array) -> jax.Array:
        self.w = w
        return self._at(w)

    def log_sum(self, w: jax.Array, log_weight: jax.Array) -> jax.Array:
        self.log_weight = log_weight
        return self.total(jax.nn.logsumexp(self.at(w) + log_weight, axis=1))

    def closed(self, q: Gaussian) -> jax.Array:
        """Where L = -(w - 1)² / 2·0.6²."""
        return self.total(-0.5 * ((q.mean - 1) ** 2 + q.scale**2).sum(1) / 0.6**2)

    def total(self, values: jax.Array) -> jax.Array:
        self.values = values
        return jnp.sum(values)


def constantly(value: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """The same likelihoods wherever the latents are."""
    return lambda w: value


@eqx.filter_jit
def nodes_of(latents: Latents, draws: jax.Array, prior: LatentPrior | None = None) -> tuple[jax.Array, jax.Array]:
    """The nodes and log weights a free-form q(w) uses."""
    told = Told(lambda w: jnp.zeros((N, w.shape[1])), prior)
    latents.bound(told, None, draws)
    return told.w, told.log_weight


def dense(full: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and Cholesky factor of each point, read off its parameters one by one."""
    raw = parameters(full)
    factors = np.zeros((N, D, D))
    for n in range(N):
        scale = iter(raw[n, D:])
        for i in range(D):
            for j in range(i + 1) if full else (i,):
                factors[n, i, j] = np.exp(next(scale)) if i == j else next(scale)
    return raw[:, :D], factors


@BOTH
def test_gaussian_has_the_covariance_of_its_cholesky_factor(full: bool) -> None:
    q = ask(own(full).gaussian, *empty(), jnp.asarray(parameters(full)))
    mean, factors = dense(full)
    covariance = factors @ factors.mT
    np.testing.assert_allclose(q.mean, mean, rtol=1e-14)
    expected = covariance if full else np.diagonal(covariance, axis1=1, axis2=2)
    np.testing.assert_allclose(q.covariance(), expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(2 * q.log_det(), np.linalg.slogdet(covariance)[1], rtol=1e-11)


@BOTH
def test_draws_have_the_mean_and_covariance_of_the_gaussian(full: bool) -> None:
    """The map from standard draws to w is affine: where it sends the origin and the axes says all."""
    q = ask(own(full).gaussian, *empty(), jnp.asarray(parameters(full)))
    corners = np.broadcast_to(np.concatenate([np.zeros((1, D)), np.eye(D)]), (N, D + 1, D))
    w = np.asarray(q.at(jnp.asarray(corners)))
    mean, factors = dense(full)
    np.testing.assert_allclose(w[:, 0], mean, rtol=1e-14)
    axes = (w[:, 1:] - w[:, :1]).mT
    np.testing.assert_allclose(axes @ axes.mT, factors @ factors.mT, rtol=1e-12, atol=1e-13)
    draws = normal(N, 2, D, seed=2)
    affine = mean[:, None] + np.einsum("nij,nkj->nki", axes, draws)
    np.testing.assert_allclose(q.at(jnp.asarray(draws)), affine, rtol=1e-12, atol=1e-13)


@BOTH
def test_divergence_from_the_prior(full: bool) -> None:
    """log q - log p is quadratic: its mean over ±√d times the columns of the factor is exact."""
    mean, factors = dense(full)
    expected = np.zeros(N)
    for n in range(N):
        columns = np.sqrt(D) * factors[n].T
        places = mean[n] + np.concatenate([columns, -columns])
        q = multivariate_normal(mean[n], factors[n] @ factors[n].T)
        expected[n] = np.mean(q.logpdf(places) - multivariate_normal(np.zeros(D)).logpdf(places))
    got = ask(own(full).gaussian, *empty(), jnp.asarray(parameters(full))).kl()
    np.testing.assert_allclose(got, expected, rtol=1e-11)


@BOTH
def test_divergence_is_least_and_zero_at_the_prior(full: bool) -> None:
    raw = jnp.zeros((N, GaussianLatents.local_dim_of(D, full)))
    value, gradient = compiled(jax.value_and_grad(lambda raw: own(full).gaussian(*empty(), raw).kl().sum()))(raw)
    np.testing.assert_allclose(value, 0, atol=1e-14)
    np.testing.assert_allclose(gradient, 0, atol=1e-14)


@BOTH_PRIORS
@BOTH
def test_importance_weights_are_the_ratio_of_prior_and_posterior(full: bool, name: str) -> None:
    """What a row is worth where one draw alone explains it."""
    draws = jnp.asarray(normal(N, 5, D, seed=2))
    mean, factors = dense(full)
    for k in range(5):
        alone = jnp.broadcast_to(jnp.where(jnp.arange(5) == k, 0.0, -jnp.inf), (N, 5))
        told = Told(constantly(alone), PRIORS[name]())
        own(full, "importance", 5).bound(told, jnp.asarray(parameters(full)), draws)
        for n in range(N):
            w = np.asarray(told.w)[n, k]
            expected = (
                log_prior(name, w) - multivariate_normal(mean[n], factors[n] @ factors[n].T).logpdf(w) - np.log(5)
            )
            np.testing.assert_allclose(told.values[n], expected, rtol=1e-10, atol=1e-12)


def test_importance_weights_average_to_one() -> None:
    """E_q[p/q] = 1, by quadrature over the draws, for a posterior narrower than the prior in one dimension only."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    latents = GaussianLatents(None, 1, "importance", 60)
    local = jnp.array([[0.2, -0.2], [-0.3, 0.1]])
    draws = jnp.asarray(np.broadcast_to(nodes[:, None], (2, 60, 1)))
    log_share = jnp.asarray(np.log(60 * weights / weights.sum()))
    for prior in PRIORS.values():
        told = Told(lambda w: jnp.broadcast_to(log_share, (2, 60)), prior(), rows=2)
        latents.bound(told, local, draws)
        np.testing.assert_allclose(told.values, 0, atol=1e-9)


@BOTH
def test_plain_draws_average_the_likelihood_and_carry_the_divergence_apart(full: bool) -> None:
    draws, local = jnp.asarray(normal(N, 5, D, seed=2)), jnp.asarray(parameters(full))
    told = Told(lambda w: jnp.sin(w).sum(2))
    own(full, "draws", 5).bound(told, local, draws)
    q = ask(own(full).gaussian, *empty(), local)
    np.testing.assert_allclose(told.w, q.at(draws), rtol=1e-14)
    np.testing.assert_allclose(told.values, np.sin(q.at(draws)).sum(2).mean(1) - q.kl(), rtol=1e-12)


@BOTH_PRIORS
@BOTH
def test_without_evidence_the_bound_is_minus_the_divergence_from_the_prior(full: bool, name: str) -> None:
    """E_q[log p(w|x) - log q], whose integrand is quadratic: draws at ±√d times the axes are exact."""
    corners = np.sqrt(D) * np.concatenate([np.eye(D), -np.eye(D)])
    told = Told(lambda w: jnp.zeros(w.shape[:2]), PRIORS[name]())
    own(full, "draws", 2 * D).bound(told, jnp.asarray(parameters(full)), jnp.broadcast_to(corners, (N, 2 * D, D)))
    mean, factors = dense(full)
    for n in range(N):
        places = mean[n] + corners @ factors[n].T
        q = multivariate_normal(mean[n], factors[n] @ factors[n].T)
        np.testing.assert_allclose(told.values[n], np.mean(log_prior(name, places) - q.logpdf(places)), rtol=1e-10)


@BOTH
def test_recognition_network_of_categories_equals_the_dense_one(full: bool) -> None:
    """Against the network of a one-hot matrix, and that written out in full."""
    features, codes, y = normal(N, 2), np.array([[0, 1], [2, 0], [1, 1], [2, 1]]), normal(N, OUTPUTS, seed=1)
    one_hot = np.concatenate([features, np.eye(3)[codes[:, 0]], np.eye(2)[codes[:, 1]]], axis=1)
    latents = GaussianLatents.amortised(jax.random.key(0), 7, OUTPUTS, D, hidden=(6, 5), full=full)
    latents = jax.tree.map(lambda a: a + 0.1, latents)
    sparse = ask(latents.gaussian, make_inputs(features, codes, (3, 2)), jnp.asarray(y), None)
    plain = ask(latents.gaussian, make_inputs(one_hot), jnp.asarray(y), None)
    np.testing.assert_allclose(sparse.mean, plain.mean, rtol=1e-11)
    np.testing.assert_allclose(sparse.scale, plain.scale, rtol=1e-11)

    assert latents.recognition is not None
    h = np.concatenate([one_hot, y], axis=1)
    *inner, last = zip(latents.recognition.weights, latents.recognition.biases, strict=True)
    for weight, bias in inner:
        h = np.tanh(h @ np.asarray(weight) + np.asarray(bias))
    raw = h @ np.asarray(last[0]) + np.asarray(last[1])
    expected = ask(own(full).gaussian, *empty(), jnp.asarray(raw))
    np.testing.assert_allclose(sparse.mean, expected.mean, rtol=1e-11)
    np.testing.assert_allclose(sparse.scale, expected.scale, rtol=1e-11)


def test_recognition_network_starts_at_the_scale_of_its_inputs() -> None:
    """Xavier's weights: the variance of those between i and o units is 2 / (i + o)."""
    network = GaussianLatents.amortised(jax.random.key(0), 90, 10, 10, hidden=(50,)).recognition
    assert network is not None
    for weight in network.weights:
        np.testing.assert_allclose(np.var(weight), 2 / sum(weight.shape), rtol=0.15)


@BOTH
def test_numbers_held_by_a_data_point(full: bool) -> None:
    """As many as its mean and scale take: any more would have no gradient, any fewer would not do."""
    raw = jnp.asarray(parameters(full))
    assert raw.shape[1] == own(full).local_dim

    def value(raw: jax.Array) -> jax.Array:
        q = own(full).gaussian(*empty(), raw)
        return jnp.sum(jnp.sin(q.mean)) + jnp.sum(jnp.sin(q.covariance()))

    assert np.abs(compiled(jax.grad(value))(raw)).min() > 0
    assert GaussianLatents.amortised(jax.random.key(0), 7, OUTPUTS, D, hidden=(6, 5), full=full).local_dim == 0


def test_draws_are_asked_for_where_they_are_used() -> None:
    assert own(False, "draws", 5).draw_shape == (5, D)
    assert own(False, "importance", 5).draw_shape == (5, D)
    assert own(False, "closed", 5).draw_shape == (0, 0)
    assert FreeForm.create(2, 5).draw_shape == (0, 0)
    assert FreeForm.create(2, 5, "even", shifted=True).draw_shape == (1, 2)
    assert NoLatents().draw_shape == (0, 0)


@pytest.mark.parametrize(("rule", "tolerance"), [("gauss-hermite", 1e-12), ("even", 1e-3)])
@pytest.mark.parametrize("dim", [1, 2])
def test_free_form_nodes_are_a_rule_for_the_prior(dim: int, rule: str, tolerance: float) -> None:
    """Their weights have the prior's moments, and are the same for all points; where it is not N(0, I) too."""
    latents = FreeForm.create(dim, rule=rule)
    assert latents.dim == dim
    for prior, centre in ((StandardNormal(), np.zeros(dim)), (Moved(), CENTRE[:dim])):
        nodes, log_weight = nodes_of(latents, jnp.zeros((N, 0, 0)), prior)
        assert len(nodes) == len(log_weight) == 1
        w, weight = np.asarray(nodes)[0], np.exp(np.asarray(log_weight)[0])
        np.testing.assert_allclose(weight.sum(), 1, atol=1e-13)
        np.testing.assert_allclose(weight @ w, centre, atol=1e-13 if not centre.any() else tolerance)
        off = w - centre
        # the nodes reach less far beyond a prior that is moved
        np.testing.assert_allclose((off * weight[:, None]).T @ off, np.eye(dim), atol=(1 + centre.any()) * tolerance)


def test_free_form_nodes_are_not_learnt() -> None:
    for latents in (FreeForm.create(1, points=5), FreeForm.create(1, 5, "even", shifted=True)):
        draws = jnp.full((N, *latents.draw_shape), 0.3)

        def value(latents: FreeForm, draws: jax.Array = draws) -> jax.Array:
            return latents.bound(Told(lambda w: jnp.broadcast_to(jnp.sin(w).sum(2), (N, w.shape[1]))), None, draws)

        for leaf in jax.tree.leaves(compiled(jax.grad(value))(latents)):
            np.testing.assert_array_equal(leaf, 0)


# Shifted nodes


def test_nodes_that_are_not_shifted_are_the_even_ones() -> None:
    for dim in (1, 2):
        plain, shifted = (FreeForm.create(dim, 9, "even", shifted) for shifted in (False, True))
        for one, other in zip(
            nodes_of(plain, jnp.zeros((N, 0, 0))), nodes_of(shifted, jnp.zeros((N, 1, dim))), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-14)


def test_all_rows_share_one_shift_of_less_than_half_the_spacing() -> None:
    """So that the nodes stay shared; a draw at either end of the normal moves them half way to their neighbours."""
    latents, plain = FreeForm.create(1, 9, "even", shifted=True), FreeForm.create(1, 9, "even")
    spacing = float(plain.nodes[1, 0] - plain.nodes[0, 0])
    draws = jnp.asarray(normal(N, 1, 1))
    nodes, _ = nodes_of(latents, draws)
    shift = np.asarray(nodes)[0] - np.asarray(plain.nodes)
    assert nodes.shape == (1, 9, 1)
    np.testing.assert_allclose(shift, spacing * (norm.cdf(float(draws[0, 0, 0])) - 0.5), rtol=1e-12)
    for end in (-40.0, 40.0):
        far, _ = nodes_of(latents, jnp.full((N, 1, 1), end))
        np.testing.assert_allclose(far[0] - plain.nodes, np.sign(end) * spacing / 2, rtol=1e-12)


@pytest.mark.parametrize("dim", [1, 2])
def test_shifts_average_to_the_integral(dim: int) -> None:
    """Of E cos(w₁ + …) over N(0, I), as far as nodes and shifts reach, though no shift alone is right."""
    latents = FreeForm.create(dim, 7, "even", shifted=True)
    count = 2000 if dim == 1 else 50
    even = ndtri((np.arange(count) + 0.5) / count)
    draws = np.stack([a.ravel() for a in np.meshgrid(*[even] * dim)], 1)

    def estimate(draw: jax.Array) -> jax.Array:
        nodes, log_weight = nodes_of(latents, jnp.broadcast_to(draw, (N, 1, dim)))
        return jnp.sum(jnp.exp(log_weight[0]) * jnp.cos(nodes[0].sum(1)))

    estimates = np.asarray(compiled(jax.vmap(estimate))(jnp.asarray(draws)))
    places = np.linspace(-1, 1, 20_001) * (4.2 + 4.2 / 6)
    expected = (np.trapezoid(np.cos(places) * norm.pdf(places), places) / np.trapezoid(norm.pdf(places), places)) ** dim
    np.testing.assert_allclose(estimates.mean(), expected, rtol=1e-6)
    np.testing.assert_allclose(estimates.mean(), np.exp(-0.5 * dim), rtol=1e-5)
    assert np.abs(estimates - expected).max() > 1e-4


def test_shifted_nodes_must_be_even() -> None:
    with pytest.raises(ValueError, match="rule='even'"):
        FreeForm.create(1, shifted=True)


def test_without_latents_a_point_is_worth_its_likelihood() -> None:
    likelihood = normal(N, 1)
    told = Told(lambda w: jnp.asarray(likelihood))
    np.testing.assert_allclose(NoLatents().bound(told, None, jnp.zeros((N, 0, 0))), likelihood.sum(), rtol=1e-14)
    np.testing.assert_array_equal(told.values, likelihood[:, 0])
    assert told.w.shape == (1, 1, 0)


# q(w|x, y) where the likelihood is Gaussian in w, so that its product with the prior is, too


@BOTH_PRIORS
def test_inferred_free_form_posterior_is_the_product_of_prior_and_likelihood(name: str) -> None:
    centres, s2 = normal(N, seed=3), 0.6**2
    told = Told(lambda w: -0.5 * (w[..., 0] - jnp.asarray(centres)[:, None]) ** 2 / s2, PRIORS[name]())
    q = FreeForm.create(1).infer(told)
    assert q.weights is not None
    np.testing.assert_allclose(q.weights.sum(1), 1, rtol=1e-12)
    middle = CENTRE[0] if name == "moved" else 0.0
    np.testing.assert_allclose(q.mean[:, 0], (centres + s2 * middle) / (1 + s2), atol=1e-9)
    np.testing.assert_allclose(q.std, np.sqrt(s2 / (1 + s2)), rtol=1e-9)


def test_points_of_their_own_climb_to_the_product_of_prior_and_likelihood() -> None:
    """With L = -(w - 1)² / 2s² the best Gaussian is the posterior; Adam comes near it."""
    q = GaussianLatents(None, 2, "closed").infer(Told(lambda w: jnp.zeros(w.shape[:2])))
    np.testing.assert_allclose(q.mean, 1 / (1 + 0.36), atol=2e-3)
    np.testing.assert_allclose(q.std, np.sqrt(0.36 / (1 + 0.36)), rtol=2e-3)
    assert q.nodes is None


def test_nothing_is_inferred_without_latents() -> None:
    with pytest.raises(ValueError, match="no latents"):
        NoLatents().infer(Told(lambda w: jnp.zeros((N, 1))))


# Starts, and proposals


@BOTH
def test_points_of_their_own_start_at_the_guess(full: bool) -> None:
    w = normal(N, D, seed=5)
    latents, local = own(full).start(*empty(), w)
    q = ask(latents.gaussian, *empty(), local)
    np.testing.assert_allclose(q.mean, w, rtol=1e-14)
    np.testing.assert_allclose(q.std(), np.full((N, D), 0.3), rtol=1e-12)
    np.testing.assert_allclose(q.log_det(), D * np.log(0.3), rtol=1e-12)


def test_recognition_network_learns_the_guess_first() -> None:
    """Where it follows from x and y; nothing is left to each data point, and q(w) is the proposal of others."""
    x, y = make_inputs(normal(40, 2)), jnp.asarray(normal(40, OUTPUTS, seed=1))
    w = np.tanh(np.asarray(x.dense)[:, :1] + np.asarray(y)[:, :1])
    start = GaussianLatents.amortised(jax.random.key(0), 2, OUTPUTS, 1, hidden=(8,))
    latents, local = start.start(x, y, w)
    assert local is None
    before, after = (np.abs(one.proposal(x, y).mean - w).mean() for one in (start, latents))
    assert after < 0.3 * before
    np.testing.assert_allclose(latents.proposal(x, y).std(), 0.3, rtol=0.5)


def test_only_a_recognition_network_proposes() -> None:
    for latents in (FreeForm.create(1, 5), own(False), NoLatents()):
        with pytest.raises(ValueError, match="recognition network"):
            latents.proposal(*empty())


def test_diagonal_scales_may_be_written_as_matrices() -> None:
    """A diagonal Cholesky factor and a vector of standard deviations are the same Gaussian."""
    mean, std = jnp.asarray(normal(N, D)), jnp.asarray(np.exp(normal(N, D, seed=1)))
    one, two = Gaussian(mean, std), Gaussian(mean, jax.vmap(jnp.diag)(std))
    draws = jnp.asarray(normal(N, 2, D, seed=2))
    np.testing.assert_allclose(one.kl(), two.kl(), rtol=1e-13)
    np.testing.assert_allclose(one.at(draws), two.at(draws), rtol=1e-13)
    np.testing.assert_allclose(jax.vmap(jnp.diag)(one.covariance()), two.covariance(), rtol=1e-13)


def test_points_without_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="need their own parameters"):
        own(False).gaussian(*empty(), None)


def test_unknown_expectation_is_refused() -> None:
    with pytest.raises(ValueError, match="expectation must be 'draws', 'closed' or 'importance', got 'exact'"):
        own(False, "exact")


def test_no_draws_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        own(False, "draws", 0)


def test_free_form_in_three_dimensions_is_refused_with_a_way_out() -> None:
    with pytest.raises(ValueError, match=r"use a Gaussian q\(w\)"):
        FreeForm.create(3)


def test_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="rule must be 'gauss-hermite' or 'even', got 'simpson'"):
        FreeForm.create(1, rule="simpson")


def test_free_form_without_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="points must be at least 1"):
        FreeForm.create(1, points=0)
