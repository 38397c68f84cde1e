"""The bound at the optimal q(u), against the exact Gaussian process and finite differences; and its maximum."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.stats import multivariate_normal

from gpcde.inference.collapsed import FIRM, collapsed_bound, flat, likely, maximised, with_numbers
from gpcde.inference.data import Batch, whole
from gpcde.inference.training import State, Trainer, train
from gpcde.model import RBF, Concatenate, ConstantNoise, Identity, LinearTrend, Model, NoLatents, make_inputs
from gpcde.runtime.precision import on_device

RNG = np.random.default_rng(0)
N = 12
X = RNG.uniform(-2, 2, (N, 2))
Y = np.sin(2 * X[:, :1]) + 0.3 * X[:, 1:] + 0.1 * RNG.normal(size=(N, 1))
KEY = jax.random.key(0)


def begin(jitter: float = 1e-10) -> tuple[Trainer, State, Batch]:
    """An inducing input on every row, so that nothing is sparse."""
    parts = Concatenate(2), NoLatents(), Identity(1), ConstantNoise.create(0.2, believed=0.1)
    kernel = RBF.create(2, 1.3, believed=True)
    model = Model(kernel, on_device(X), *parts, trend=LinearTrend.create(2), jitter=jitter)
    trainer = Trainer.create(N, 0.05, 1.0)
    return trainer, trainer.init(model), whole(make_inputs(X), Y, np.ones(N))


def bound_of(trainer: Trainer, state: State, batch: Batch, belief: float = 1.0) -> float:
    return float(collapsed_bound(trainer, KEY, state, batch, belief, flat(state.model))[0])


@pytest.mark.parametrize("belief", [1.0, 0.1, 0.0])
def test_it_is_the_log_likelihood_of_the_exact_process(belief: float) -> None:
    """Kernel, linear trend and noise in one covariance; what parts cost a priori apart, as far as it is believed."""
    trainer, state, batch = begin()
    bound = bound_of(trainer, state, batch, belief)
    model = state.model
    trend = np.asarray(model.trend.rows(on_device(X)))
    covariance = np.asarray(model.kernel.gram(on_device(X))) + trend @ trend.T + 0.2 * np.eye(N)
    exact = multivariate_normal(np.zeros(N), covariance).logpdf(Y[:, 0]) - belief * float(model.penalty())
    assert bound * N == pytest.approx(exact, abs=1e-5)


def test_its_derivative_is_that_of_finite_differences() -> None:
    """q(u) follows the model, and yet its own change counts nothing."""
    trainer, state, batch = begin(jitter=1e-6)
    numbers = flat(state.model)
    _, slope, _ = collapsed_bound(trainer, KEY, state, batch, 0.3, numbers)
    way = RNG.normal(size=numbers.shape)

    def at(step: float) -> float:
        return float(collapsed_bound(trainer, KEY, state, batch, 0.3, numbers + step * way)[0])

    assert (at(1e-4) - at(-1e-4)) / 2e-4 == pytest.approx(float(slope @ way), rel=1e-5)


def test_its_maximum_is_above_what_many_steps_of_adam_reach() -> None:
    trainer, state, batch = begin(jitter=1e-6)
    best = maximised(trainer, KEY, state, batch, 200)
    slow, _ = train(trainer, KEY, state, batch, 600, N)
    top, after_adam = (bound_of(trainer, s, batch) for s in (best, slow))
    assert top > after_adam - 1e-3
    _, gradient, posterior = collapsed_bound(trainer, KEY, state, batch, 1.0, flat(best.model))
    jax.tree.map(np.testing.assert_array_equal, posterior, best.posterior)
    assert np.abs(gradient).max() < 5e-3
    assert int(best.step) == 0


@pytest.mark.parametrize("belief", [1.0, 0.5])
def test_what_is_as_likely_is_spread_as_the_curvature_says(belief: float) -> None:
    """Draws of the kernel's, noise's and trend's numbers: by the Hessian of the exact process, where it is steep."""
    trainer, state, batch = begin(jitter=1e-6)
    best = maximised(trainer, KEY, state, batch, 200, belief)
    drawn = likely(trainer, KEY, best, batch, 512, belief)
    top, points = flat(best.model), np.asarray(best.model.inducing_points)
    places = np.flatnonzero(flat(eqx.tree_at(lambda m: m.inducing_points, best.model, points + 1)) == top)

    def loss(change: jax.Array) -> jax.Array:
        model = with_numbers(best.model, jnp.asarray(top).at[places].add(change))
        trend = model.trend.rows(on_device(X))
        covariance = model.kernel.gram(on_device(X)) + trend @ trend.T + model.noise_variance * jnp.eye(N)
        return belief * model.penalty() - jax.scipy.stats.multivariate_normal.logpdf(Y[:, 0], jnp.zeros(N), covariance)

    values, vectors = np.linalg.eigh(jax.hessian(loss)(np.zeros(len(places))))
    assert values.min() > FIRM
    changes = np.array([flat(one.model) - top for one in drawn])
    assert np.abs(np.delete(changes, places, axis=1)).max() == 0
    standard = changes[:, places] @ vectors * np.sqrt(np.maximum(values, FIRM))
    np.testing.assert_allclose(standard.mean(0), 0, atol=0.02)
    np.testing.assert_allclose(standard.T @ standard / 512, np.eye(len(places)), atol=0.05)
    _, _, posterior = collapsed_bound(trainer, KEY, state, batch, belief, flat(drawn[0].model))
    jax.tree.map(np.testing.assert_array_equal, posterior, drawn[0].posterior)


def test_what_is_not_learnt_is_not_drawn() -> None:
    trainer, state, batch = begin(jitter=1e-6)
    fixed = dataclasses.replace(state.model, likelihood=ConstantNoise.create(0.2, learn=False))
    drawn = likely(trainer, KEY, trainer.init(fixed), batch, 4)
    assert [float(one.model.noise_variance) for one in drawn] == pytest.approx([0.2] * 4, rel=1e-12)
    assert len({tuple(flat(one.model)) for one in drawn}) == 4


def test_a_bound_that_none_can_have_is_not_believed() -> None:
    """With a trend of variance e⁷⁰ rounding once made it 1e14 nats a row, and a line search went there."""
    trainer, state, batch = begin(jitter=1e-6)
    wild = eqx.tree_at(lambda s: s.model.trend.log_variance, state, on_device(np.asarray(70.0)))
    assert bound_of(trainer, wild, batch) == -np.inf
    sure = dataclasses.replace(state.model, likelihood=ConstantNoise.create(1e-6))
    assert np.isfinite(bound_of(trainer, trainer.init(sure), batch))


def test_the_numbers_of_a_model_are_all_that_it_is() -> None:
    """In an order of their own, which is JAX's."""
    model = begin()[1].model
    numbers = flat(model)
    np.testing.assert_array_equal(numbers, ravel_pytree(model)[0])
    jax.tree.map(np.testing.assert_array_equal, with_numbers(model, 2 * numbers), jax.tree.map(lambda a: 2 * a, model))


def test_a_model_that_cannot_be_computed_is_turned_back_from() -> None:
    """A first model at which nothing is finite stays as it is: training then says what is wrong."""
    trainer, state, batch = begin()
    broken = dataclasses.replace(state.model, likelihood=ConstantNoise(on_device(np.float64(np.nan))))
    after = maximised(trainer, KEY, eqx.tree_at(lambda s: s.model, state, broken), batch, 5)
    np.testing.assert_array_equal(after.model.inducing_points, state.model.inducing_points)
