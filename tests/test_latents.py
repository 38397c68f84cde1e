"""Approximate posteriors of the latents against scipy's normal densities, and the recognition network written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from gpcde.runtime.compilation import compiled
from gpcde.model.inputs import Inputs, make_inputs
from gpcde.model.latents import FreeForm, Gaussian, GaussianLatents, NoLatents

N, D, OUTPUTS = 4, 3, 2
BOTH = pytest.mark.parametrize("full", [False, True], ids=["diagonal", "full"])


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def own(full: bool, expectation: str = "draws", count: int = 1) -> GaussianLatents:
    """Latents with parameters of their own for each data point."""
    return GaussianLatents(None, D, expectation, count, full)


def parameters(full: bool) -> np.ndarray:
    return 0.6 * normal(N, GaussianLatents.local_dim_of(D, full), seed=1)


def empty() -> tuple[Inputs, jax.Array]:
    return make_inputs(rows=N), jnp.zeros((N, OUTPUTS))


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
    q = own(full).gaussian(*empty(), jnp.asarray(parameters(full)))
    mean, factors = dense(full)
    covariance = factors @ factors.mT
    np.testing.assert_allclose(q.mean, mean, rtol=1e-14)
    expected = covariance if full else np.diagonal(covariance, axis1=1, axis2=2)
    np.testing.assert_allclose(q.covariance(), expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(2 * q.log_det(), np.linalg.slogdet(covariance)[1], rtol=1e-11)


@BOTH
def test_draws_have_the_mean_and_covariance_of_the_gaussian(full: bool) -> None:
    """The map from noise to draws is affine: where it sends the origin and the axes says all."""
    q = own(full).gaussian(*empty(), jnp.asarray(parameters(full)))
    corners = np.broadcast_to(np.concatenate([np.zeros((1, D)), np.eye(D)]), (N, D + 1, D))
    w = np.asarray(q.at(jnp.asarray(corners)))
    mean, factors = dense(full)
    np.testing.assert_allclose(w[:, 0], mean, rtol=1e-14)
    axes = (w[:, 1:] - w[:, :1]).mT
    np.testing.assert_allclose(axes @ axes.mT, factors @ factors.mT, rtol=1e-12, atol=1e-13)
    noise = normal(N, 2, D, seed=2)
    affine = mean[:, None] + np.einsum("nij,nkj->nki", axes, noise)
    np.testing.assert_allclose(q.at(jnp.asarray(noise)), affine, rtol=1e-12, atol=1e-13)


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
    got = own(full).gaussian(*empty(), jnp.asarray(parameters(full))).kl()
    np.testing.assert_allclose(got, expected, rtol=1e-11)


@BOTH
def test_divergence_is_least_and_zero_at_the_prior(full: bool) -> None:
    raw = jnp.zeros((N, GaussianLatents.local_dim_of(D, full)))
    value, gradient = compiled(jax.value_and_grad(lambda raw: own(full).gaussian(*empty(), raw).kl().sum()))(raw)
    np.testing.assert_allclose(value, 0, atol=1e-14)
    np.testing.assert_allclose(gradient, 0, atol=1e-14)


@BOTH
def test_importance_weights_are_the_ratio_of_prior_and_posterior(full: bool) -> None:
    noise = normal(N, 5, D, seed=2)
    draws = own(full, "importance", 5).draws(*empty(), jnp.asarray(parameters(full)), jnp.asarray(noise))
    mean, factors = dense(full)
    for n in range(N):
        w = np.asarray(draws.w)[n]
        q = multivariate_normal(mean[n], factors[n] @ factors[n].T)
        expected = multivariate_normal(np.zeros(D)).logpdf(w) - q.logpdf(w) - np.log(5)
        np.testing.assert_allclose(draws.log_weight[n], expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(draws.remainder, 0)
    assert not draws.average


def test_importance_weights_average_to_one() -> None:
    """E_q[p/q] = 1, by quadrature over the noise, for a posterior narrower than the prior in one dimension only."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    latents = GaussianLatents(None, 1, "importance", 60)
    local = jnp.array([[0.2, -0.2], [-0.3, 0.1]])
    noise = jnp.asarray(np.broadcast_to(nodes[:, None], (2, 60, 1)))
    log_weight = latents.draws(make_inputs(rows=2), jnp.zeros((2, 1)), local, noise).log_weight
    log_share = np.log(60 * weights / weights.sum())
    np.testing.assert_allclose(logsumexp(log_weight + log_share, axis=1), 0, atol=1e-9)


@BOTH
def test_plain_draws_carry_the_divergence_apart(full: bool) -> None:
    noise, local = jnp.asarray(normal(N, 5, D, seed=2)), jnp.asarray(parameters(full))
    draws = own(full, "draws", 5).draws(*empty(), local, noise)
    q = own(full).gaussian(*empty(), local)
    np.testing.assert_allclose(draws.w, q.at(noise), rtol=1e-14)
    np.testing.assert_allclose(draws.remainder, q.kl(), rtol=1e-14)
    np.testing.assert_array_equal(draws.log_weight, 0)
    assert draws.average


@BOTH
def test_recognition_network_of_categories_equals_the_dense_one(full: bool) -> None:
    """Against the network of a one-hot matrix, and that written out in full."""
    features, codes, y = normal(N, 2), np.array([[0, 1], [2, 0], [1, 1], [2, 1]]), normal(N, OUTPUTS, seed=1)
    one_hot = np.concatenate([features, np.eye(3)[codes[:, 0]], np.eye(2)[codes[:, 1]]], axis=1)
    latents = GaussianLatents.amortised(jax.random.key(0), 7, OUTPUTS, D, hidden=(6, 5), full=full)
    latents = jax.tree.map(lambda a: a + 0.1, latents)
    sparse = latents.gaussian(make_inputs(features, codes, (3, 2)), jnp.asarray(y), None)
    plain = latents.gaussian(make_inputs(one_hot), jnp.asarray(y), None)
    np.testing.assert_allclose(sparse.mean, plain.mean, rtol=1e-11)
    np.testing.assert_allclose(sparse.scale, plain.scale, rtol=1e-11)

    assert latents.recognition is not None
    h = np.concatenate([one_hot, y], axis=1)
    *inner, last = zip(latents.recognition.weights, latents.recognition.biases, strict=True)
    for weight, bias in inner:
        h = np.tanh(h @ np.asarray(weight) + np.asarray(bias))
    raw = h @ np.asarray(last[0]) + np.asarray(last[1])
    expected = own(full).gaussian(*empty(), jnp.asarray(raw))
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


def test_noise_is_asked_for_where_it_is_used() -> None:
    assert own(False, "draws", 5).noise_shape == (5, D)
    assert own(False, "importance", 5).noise_shape == (5, D)
    assert own(False, "closed", 5).noise_shape == (0, 0)


@pytest.mark.parametrize(("rule", "tolerance"), [("gauss-hermite", 1e-12), ("even", 1e-3)])
@pytest.mark.parametrize("dim", [1, 2])
def test_free_form_draws_are_a_rule_for_the_prior(dim: int, rule: str, tolerance: float) -> None:
    """Their weights have the prior's moments, and are the same for all points."""
    latents = FreeForm.create(dim, rule=rule)
    draws = latents.draws(*empty(), None, jnp.zeros((N, 0, 0)))
    w, weight = np.asarray(draws.w)[0], np.exp(np.asarray(draws.log_weight)[0])
    np.testing.assert_allclose(weight.sum(), 1, atol=1e-13)
    np.testing.assert_allclose(weight @ w, np.zeros(dim), atol=1e-13)
    np.testing.assert_allclose((w * weight[:, None]).T @ w, np.eye(dim), atol=tolerance)
    np.testing.assert_array_equal(draws.remainder, 0)
    assert not draws.average
    assert latents.dim == dim


def test_free_form_nodes_are_not_learnt() -> None:
    latents = FreeForm.create(1, points=5)

    def value(latents: FreeForm) -> jax.Array:
        draws = latents.draws(*empty(), None, jnp.zeros((N, 0, 0)))
        return jnp.sum(draws.w**2) + jnp.sum(draws.log_weight)

    for leaf in jax.tree.leaves(compiled(jax.grad(value))(latents)):
        np.testing.assert_array_equal(leaf, 0)


def test_without_latents_a_point_is_worth_its_likelihood() -> None:
    draws = NoLatents().draws(*empty(), None, jnp.zeros((N, 0, 0)))
    likelihood = normal(N, 1)
    np.testing.assert_array_equal(logsumexp(likelihood + np.asarray(draws.log_weight), axis=1), likelihood[:, 0])
    assert draws.w.shape == (1, 1, 0)
    assert not draws.average


def test_diagonal_scales_may_be_written_as_matrices() -> None:
    """A diagonal Cholesky factor and a vector of standard deviations are the same Gaussian."""
    mean, std = jnp.asarray(normal(N, D)), jnp.asarray(np.exp(normal(N, D, seed=1)))
    one, two = Gaussian(mean, std), Gaussian(mean, jax.vmap(jnp.diag)(std))
    noise = jnp.asarray(normal(N, 2, D, seed=2))
    np.testing.assert_allclose(one.kl(), two.kl(), rtol=1e-13)
    np.testing.assert_allclose(one.at(noise), two.at(noise), rtol=1e-13)
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
