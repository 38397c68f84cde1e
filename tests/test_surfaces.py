"""Surfaces, and what is made of them: noise that varies, a prior of w that x tilts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.special import logsumexp
from scipy.stats import norm

from gpcde.model import (
    ConstantNoise,
    Inputs,
    LatentPrior,
    Surface,
    TiltedNormal,
    VaryingNoise,
    evenly_spaced,
    gauss_hermite,
    make_inputs,
)
from small import ask

N = 4


def surface(latent_dim: int, outputs: int = 1, size: float = 0.5) -> Surface:
    """One that has left its start: all weights of this order."""
    start = Surface.create(jax.random.key(0), 5, latent_dim, outputs, 0.7, (6,))
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda a: jnp.asarray(size * rng.normal(size=a.shape)), start)


def inputs() -> tuple[Inputs, np.ndarray]:
    """Two numbers and a category of three levels, and the same as a matrix."""
    rng = np.random.default_rng(2)
    dense, codes = rng.normal(size=(N, 2)), np.array([0, 2, 1, 2])
    return make_inputs(dense, codes, (3,)), np.hstack([dense, np.eye(3)[codes]])


def latents(rows: int, dim: int, count: int = 7) -> jax.Array:
    return jnp.asarray(1.5 * np.random.default_rng(3).normal(size=(rows, count, dim)))


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_a_surface_is_a_network_of_x_times_fixed_functions_of_w(dim: int) -> None:
    """Gaussian bumps, of one latent or on a grid of two; of more or none, 1 and the latents. Two outputs."""
    g, (x, dense), w = surface(dim, 2), inputs(), np.asarray(latents(N, dim))
    (first, last), (one, two) = g.network.weights, g.network.biases
    c = (np.tanh(dense @ np.asarray(first) + np.asarray(one)) @ np.asarray(last) + np.asarray(two)).reshape(N, 2, -1)
    if dim in (0, 3):
        basis = np.concatenate([np.ones((N, 7, 1)), w], axis=2)
    else:
        centres = np.linspace(-3, 3, 9 if dim == 1 else 5)
        along = [norm.pdf(w[..., j, None], centres, centres[1] - centres[0]) for j in range(dim)]
        along = [a / norm.pdf(0, 0, centres[1] - centres[0]) for a in along]
        basis = along[0] if dim == 1 else (along[0][..., :, None] * along[1][..., None, :]).reshape(N, 7, 25)
    expected = np.einsum("nob,nkb->nko", c, basis)
    np.testing.assert_allclose(ask(g, x, jnp.asarray(w)), expected, rtol=1e-10, atol=1e-12)


def test_shared_latents_are_each_points_own() -> None:
    g, (x, _), w = surface(2, 2), inputs(), latents(1, 2)
    np.testing.assert_allclose(ask(g, x, w), ask(g, x, jnp.broadcast_to(w, (N, *w.shape[1:]))), rtol=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_surface_starts_near_zero_but_not_at_it(dim: int) -> None:
    """A network of zeros would have no gradient."""
    start = Surface.create(jax.random.key(0), 5, dim, 1, 0.7)
    assert 0 < float(jnp.abs(ask(start, inputs()[0], latents(N, dim))).max()) < 0.1


def test_the_penalty_of_a_surface_is_minus_the_log_prior_of_its_weights() -> None:
    """Of variance 1 / (precision × fan-in), a constant apart; biases are free."""
    one, two = surface(1), surface(1, size=1.0)

    def log_prior(g: Surface) -> float:
        return sum(float(norm.logpdf(np.asarray(w), 0, (0.7 * len(w)) ** -0.5).sum()) for w in g.network.weights)

    np.testing.assert_allclose(ask(two.penalty) - ask(one.penalty), log_prior(one) - log_prior(two), rtol=1e-11)


def test_varying_noise_is_softly_limited() -> None:
    """log s = g where g is small, and never beyond the limit; σ² is apart from it."""
    (x, _), w = inputs(), latents(N, 1)
    for size in (1e-3, 0.5, 10.0):
        g = surface(1, size=size)
        noise = VaryingNoise.create(g, 0.2)
        log_scale, plain = np.asarray(ask(noise.log_scale, x, w)), np.asarray(ask(g, x, w))[..., 0]
        np.testing.assert_allclose(log_scale, 4 * np.tanh(plain / 4), rtol=1e-12)
        assert (np.abs(log_scale) <= np.minimum(np.abs(plain) * (1 + 1e-12), 4)).all()
    np.testing.assert_allclose(log_scale, np.asarray(ask(noise.with_noise_variance(7.0).log_scale, x, w)), rtol=1e-14)
    np.testing.assert_allclose([noise.noise_variance, noise.with_noise_variance(7.0).noise_variance], [0.2, 7.0])
    np.testing.assert_allclose(ask(noise.penalty), ask(g.penalty), rtol=1e-14)
    with pytest.raises(NotImplementedError, match="VaryingNoise's may"):
        noise.row_log_scale(x)


def test_held_noise_is_constant_and_learns_no_surface() -> None:
    """s = 1, the penalty and all derivatives of the surface are zero, σ² is learnt; freed, it is what it was."""
    (x, _), w = inputs(), latents(N, 1)
    noise = VaryingNoise.create(surface(1), 0.2, believed=0.1)
    held = noise.held()
    assert held.is_held
    assert not noise.is_held
    assert not held.freed().is_held
    assert not np.asarray(ask(held.log_scale, x, w)).any()
    np.testing.assert_allclose(ask(held.penalty), ask(ConstantNoise.create(0.2, believed=0.1).penalty), rtol=1e-14)

    def objective(noise: VaryingNoise) -> Array:
        return jnp.sum(noise.log_scale(x, w) ** 2 + noise.log_scale(x, w)) + noise.penalty() + noise.noise_variance

    slopes = {kind: ask(jax.grad(objective), one) for kind, one in (("held", held), ("free", noise))}
    assert not any(leaf.any() for leaf in jax.tree.leaves(slopes["held"].surface))
    assert all(leaf.any() for leaf in jax.tree.leaves(slopes["free"].surface))
    assert slopes["held"].log_noise_variance != 0
    assert slopes["held"].freedom == slopes["free"].freedom == 0
    for one, other in zip(jax.tree.leaves(held.freed()), jax.tree.leaves(noise), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dim", [1, 2])
def test_a_tilted_prior_is_a_density(dim: int) -> None:
    """E_N(0, I) exp(log p - log N) = 1 at every x, by another rule than its own; what it says is the surface."""
    prior, (x, _) = TiltedNormal(surface(dim)), inputs()
    nodes, log_weight = gauss_hermite(60, dim)
    ratio = np.asarray(ask(prior.log_ratio, x, jnp.asarray(nodes)[None]))
    np.testing.assert_allclose(logsumexp(ratio + log_weight, axis=1), 0, atol=1e-5)
    t = np.asarray(ask(prior.surface, x, jnp.asarray(nodes)[None]))[..., 0]
    np.testing.assert_allclose(ratio - ratio[:, :1], t - t[:, :1], rtol=1e-9, atol=1e-11)
    assert np.ptp(t) > 1


@pytest.mark.parametrize("dim", [1, 2])
def test_weights_of_nodes_under_a_tilted_prior_sum_to_one(dim: int) -> None:
    """And are those of any prior with that ratio."""
    prior, (x, _) = TiltedNormal(surface(dim)), inputs()
    nodes, log_weight = (jnp.asarray(a)[None] for a in evenly_spaced(9, dim))
    got = ask(prior.log_weights, x, nodes, log_weight)
    np.testing.assert_allclose(logsumexp(got, axis=1), 0, atol=1e-12)
    expected = ask(LatentPrior.log_weights, prior, x, nodes, log_weight)
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(ask(prior.penalty), ask(prior.surface.penalty), rtol=1e-14)
