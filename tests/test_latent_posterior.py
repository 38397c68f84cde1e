"""q(w|x, y) of new rows: against the training bound itself, quadrature, a network written out, and training's own q."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import norm

from gpcde import GPCDE
from gpcde.inference.bound import Batch, Draws, evaluate_bound, no_draws, whole
from gpcde.inference.posterior import VariationalPosterior
from gpcde.model.inputs import Inputs
from gpcde.model.latents import FreeForm, GaussianLatents, LatentPosterior
from gpcde.model.model import Model
from gpcde.prediction import Nodes, Predictor
from gpcde.prediction import latent_posterior as _latent_posterior
from gpcde.runtime.compilation import compiled
from small import N, ask, fitted

ROWS = 4


def inferred(name: str, rows: int = ROWS) -> tuple[GPCDE, LatentPosterior]:
    model, table, y = fitted(name)
    return model, model.infer_latent(table[:rows], y[:rows])


def standard(name: str, rows: int = ROWS) -> Batch:
    model, table, y = fitted(name)
    return whole(*model._standard_rows(table[:rows], y[:rows]))


@compiled
def without_each_node(model: Model, posterior: VariationalPosterior, batch: Batch) -> jax.Array:
    """The bound of some rows, and that without each of the nodes of w; A at its mean."""
    assert isinstance(model.latents, FreeForm)
    latents = dataclasses.replace(model.latents, spacing=0.0)  # nodes that stay
    model = dataclasses.replace(model, latents=latents)
    logs, rows = latents.log_weights, batch.y.shape[0]
    draws = no_draws(model, rows)

    def bound(log_weights: jax.Array) -> jax.Array:
        changed = eqx.tree_at(lambda m: m.latents.log_weights, model, log_weights)
        return evaluate_bound(changed, posterior, batch, draws, rows).data

    return jax.lax.map(bound, jnp.concatenate([logs[None], logs - 1e4 * jnp.eye(len(logs))]))


@compiled
def log_prior_weights(model: Model, x: Inputs) -> jax.Array:
    assert isinstance(model.latents, FreeForm)
    return model.prior.log_weights(x, model.latents.nodes[None], model.latents.log_weights[None])


def prior_weights(model: Model, x: Inputs) -> np.ndarray:
    """log p(w_k|x) of one row."""
    return np.asarray(log_prior_weights(model, x))[0]


@pytest.mark.parametrize("name", ["free-form", "P", "two outputs", "categories"])
def test_free_form_weights_are_what_a_node_is_worth_to_the_bound(name: str) -> None:
    """A row's bound is log Σ_k p_k exp(·): without node k, 1 - q_k of the sum is left, over 1 - p_k."""
    model, q = inferred(name)
    batch, state = standard(name), model.state_
    assert q.weights is not None
    assert q.nodes is not None
    np.testing.assert_allclose(q.weights.sum(1), 1, rtol=1e-12)
    for n in range(ROWS):
        row = jax.tree.map(lambda a, n=n: a[n : n + 1], batch)
        full, *left_out = np.asarray(without_each_node(state.model, state.posterior, row))
        p = np.exp(prior_weights(state.model, row.x))
        np.testing.assert_allclose(q.weights[n], 1 - np.exp(np.asarray(left_out) - full) * (1 - p), atol=1e-9)
    np.testing.assert_allclose(q.mean, q.weights @ q.nodes, rtol=1e-12)
    second = q.weights @ q.nodes**2
    np.testing.assert_allclose(q.std, np.sqrt(second - q.mean**2), rtol=1e-7)


def test_free_form_is_brute_force_quadrature() -> None:
    """∝ exp(E log N(y | f, σ² s(x, w))) p(w|x), on a fine grid."""
    model, q = inferred("free-form")
    batch, state = standard("free-form"), jax.tree.map(jnp.asarray, model.state_)
    w = np.linspace(-6, 6, 1201)
    mixture = Predictor.create(state.model, state.posterior, Nodes(w[:, None], np.zeros(len(w)))).mixture(batch.x)
    nodes = jnp.asarray(w)[None, :, None]
    scale = np.exp(np.asarray(ask(state.model.likelihood.log_scale, batch.x, nodes)))
    noise = float(state.model.noise_variance) * scale
    log_prior = norm.logpdf(w) + np.asarray(ask(state.model.prior.log_ratio, batch.x, nodes))
    assert noise.std() > 0.01 * noise.mean()
    mean, spread = np.asarray(mixture.mean)[..., 0], np.asarray(mixture.variance)[..., 0] - noise
    logs = norm.logpdf(np.asarray(batch.y), mean, np.sqrt(noise)) - 0.5 * spread / noise + log_prior
    density = np.exp(logs - logs.max(1, keepdims=True))
    density /= trapezoid(density, w)[:, None]
    centre = trapezoid(density * w, w)
    np.testing.assert_allclose(q.mean[:, 0], centre, atol=2e-3)
    np.testing.assert_allclose(q.std[:, 0] ** 2, trapezoid(density * (w - centre[:, None]) ** 2, w), atol=2e-3)


def test_amortised_is_what_the_recognition_network_says() -> None:
    model, q = inferred("amortised")
    batch, latents = standard("amortised"), model.state_.model.latents
    assert isinstance(latents, GaussianLatents)
    network = latents.recognition
    assert network is not None
    h = np.concatenate([np.asarray(batch.x.dense), np.asarray(batch.y)], axis=1)
    *inner, last = zip(network.weights, network.biases, strict=True)
    for weight, bias in inner:
        h = np.tanh(h @ np.asarray(weight) + np.asarray(bias))
    raw = h @ np.asarray(last[0]) + np.asarray(last[1])
    np.testing.assert_allclose(q.mean, raw[:, :1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(q.std, np.exp(raw[:, 1:]), rtol=1e-9)
    assert q.nodes is None
    assert q.weights is None


@compiled
def average_bound(model: Model, posterior: VariationalPosterior, batch: Batch, local: jax.Array) -> jax.Array:
    """The data's bound with each row's own q, over 100 sets of draws."""
    rows = batch.y.shape[0]
    draws = jax.random.normal(jax.random.key(5), (100, rows, *model.latents.draw_shape))
    return jax.lax.map(
        lambda e: evaluate_bound(model, posterior, batch, Draws(jnp.zeros((rows, 0)), e), rows, local).data, draws
    ).mean()


def test_points_of_their_own_find_about_what_training_found() -> None:
    """From another start, and with everything else held fixed, so that the bound is better, if anything."""
    model, q = inferred("gaussian", N)
    state, batch = model.state_, standard("gaussian", N)
    assert state.local is not None
    assert np.corrcoef(q.mean[:, 0], np.asarray(state.local.value)[:, 0])[0, 1] > 0.9
    own = np.concatenate([q.mean, np.log(q.std)], axis=1)
    found, trained, prior = (
        float(average_bound(state.model, state.posterior, batch, jnp.asarray(local))) / N
        for local in (own, state.local.value, np.zeros((N, 2)))
    )
    assert found > trained - 1e-3
    assert found > prior + 0.01


def test_rows_in_blocks_are_the_rows_together(monkeypatch: pytest.MonkeyPatch) -> None:
    _, together = inferred("free-form", 7)
    monkeypatch.setattr(_latent_posterior, "ROWS_AT_ONCE", 3)
    _, apart = inferred("free-form", 7)
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12)


def test_what_cannot_be_inferred_is_refused() -> None:
    with pytest.raises(ValueError, match="no latents: inference='none'"):
        inferred("none")
    model, table, y = fitted("log")
    with pytest.raises(ValueError, match="y_transform='log' needs y strictly within its bounds"):
        model.infer_latent(table, y - 1e3)
    with pytest.raises(ValueError, match="X has 48 rows but y has 2"):
        model.infer_latent(table, y[:2])
