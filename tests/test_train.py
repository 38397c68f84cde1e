"""Training: what a step changes and what it leaves, the same bits again, recovery, and what nothing may cost."""

import dataclasses
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import Array

from gpcde.inference.bound import Batch, Draws, draw, evaluate_bound, whole
from gpcde.inference.posterior import Shared, Statistics
from gpcde.inference.training import Gradients, Record, State, Trainer, TrainingError, optimal_posterior, train
from gpcde.model.input_maps import Concatenate, Project
from gpcde.model.inputs import make_inputs
from gpcde.model.kernels import RBF
from gpcde.model.latents import FreeForm, GaussianLatents, Latents, NoLatents
from gpcde.model.likelihood import ConstantNoise
from gpcde.model.mixing import ConjugateMixing, GaussianMixing, Identity, Mixing, PointMixing
from gpcde.model.model import Model
from gpcde.model.trend import NoTrend, SmoothTrend

N, M, D = 12, 5, 3
MATRIX = np.array([[1.0, 0.8], [0.4, 1.1], [-0.5, 0.3]])


def make_data(seed: int = 0, inputs: int = 2) -> Batch:
    rng = np.random.default_rng([seed, 1])
    x, y = rng.normal(size=(N, inputs)), rng.normal(size=(N, D)) + 0.5
    return whole(make_inputs(x), y)


def make_model(latents: Latents, mixing: Mixing, seed: int = 0, jitter: float = 1e-6) -> Model:
    """Two inputs, projected to one column beside a latent, where there is one."""
    rng = np.random.default_rng([seed, 2])
    z, kernel = jnp.asarray(rng.normal(size=(M, 2))), RBF.create(2, [0.9, 1.1], 1.2)
    noise = ConstantNoise.create(0.3)
    if not latents.dim:
        return Model(kernel, z, Concatenate(2), latents, mixing, noise, jitter=jitter)
    input_map = Project(jnp.asarray(rng.normal(size=(2, 1))), jnp.full((2, 1), -2.0))
    return Model(kernel, z, input_map, latents, mixing, noise, jitter=jitter)


def regression(jitter: float = 1e-6) -> Model:
    return make_model(NoLatents(), Identity(D), jitter=jitter)


@jax.jit
def step(trainer: Trainer, key: Array, state: State, batch: Batch) -> State:
    return trainer.step(key, state, batch)[0]


@jax.jit
def gradients_of(trainer: Trainer, draws: Draws, state: State, batch: Batch) -> Gradients:
    return trainer.gradients(draws, state, batch)[1]


bound = jax.jit(evaluate_bound)


def assert_same_bits(one: Any, other: Any) -> None:
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


# One step


def test_the_first_step_moves_by_the_learning_rate_up_the_gradient() -> None:
    """Adam's first step is rate g / (|g| + 1e-8), q(u) goes γ of the way; caution shortens both."""
    data, key = make_data(), jax.random.key(0)
    trainer = Trainer.create(N, learning_rate=0.02, gamma=0.4)
    statistics = Statistics(jnp.eye(M), jnp.ones((M, D)))
    state = trainer.init(make_model(FreeForm.create(1, 10), PointMixing.create(MATRIX)), statistics)
    gradient = gradients_of(trainer, draw(key, state.model, N), state, data)
    assert gradient.coefficients is not None
    for caution in (1.0, 0.3):
        moved = step(trainer, key, eqx.tree_at(lambda s: s.caution, state, jnp.asarray(caution)), data)
        before, after, slopes = (jax.tree.leaves(t) for t in (state.model, moved.model, gradient.learnt[0]))
        assert any(np.any(np.asarray(slope) != 0) for slope in slopes)
        for old, new, slope in zip(before, after, slopes, strict=True):
            np.testing.assert_allclose(
                new - old, 0.02 * caution * slope / (np.abs(slope) + 1e-8), rtol=1e-6, atol=1e-12
            )
        gamma, posterior = 0.4 * caution, moved.posterior
        noise_variance = float(state.model.noise_variance)
        G, H = (np.asarray(a) for a in gradient.coefficients)
        assert isinstance(posterior, Statistics)
        np.testing.assert_allclose(posterior.G, (1 - gamma) * np.eye(M) + gamma * 2 * noise_variance * G, atol=1e-9)
        np.testing.assert_allclose(posterior.H, (1 - gamma) + gamma * noise_variance * H, atol=1e-9)
        assert int(moved.step) == 1


def test_a_batch_touches_the_latents_of_its_own_rows_only() -> None:
    """Each row has an Adam of its own, which counts the row's own visits."""
    data, key = make_data(1), jax.random.key(1)
    rate, b1, b2 = 0.05, 0.9, 0.999
    trainer = Trainer.create(N, learning_rate=rate)
    state = trainer.init(make_model(GaussianLatents(None, 1, "draws", 2), Identity(D)))
    first, second, value, visits = (np.zeros((N, 2)) for _ in range(4))
    for i, rows in enumerate([[0, 1, 2], [4, 2, 3], [2, 0, 11]]):
        batch, this = data.take(jnp.asarray(rows)), jax.random.fold_in(key, i)
        gradient = np.asarray(gradients_of(trainer, draw(this, state.model, 3), state, batch).local)
        first[rows] = b1 * first[rows] + (1 - b1) * gradient
        second[rows] = b2 * second[rows] + (1 - b2) * gradient**2
        visits[rows] += 1
        up, down = first[rows] / (1 - b1 ** visits[rows]), second[rows] / (1 - b2 ** visits[rows])
        value[rows] += rate * up / (np.sqrt(down) + 1e-8)
        state = step(trainer, this, state, batch)
        assert state.local is not None
        np.testing.assert_allclose(state.local.value, value, rtol=1e-9, atol=1e-12)
    assert state.local is not None
    untouched = [5, 6, 7, 8, 9, 10]
    np.testing.assert_array_equal(np.asarray(state.local.value)[untouched], 0)
    np.testing.assert_array_equal(state.local.steps, visits[:, 0])


@pytest.mark.parametrize("mixing_class", [GaussianMixing, ConjugateMixing])
def test_a_step_keeps_every_type(mixing_class: type[Any]) -> None:
    """Narrow parameters stay narrow and nothing is weakly typed, so one compilation serves all chunks."""
    data, key = make_data(2), jax.random.key(2)
    model = make_model(GaussianLatents(None, 1, "draws", 2), mixing_class.create(MATRIX))
    trainer = Trainer.create(N)
    for dtype in (jnp.float32, jnp.float64):
        narrow = jax.tree.map(lambda a, to=dtype: a.astype(to), model)
        state = trainer.init(narrow)
        after = jax.eval_shape(trainer.step, key, state, data)[0]
        for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
            assert (old.shape, old.dtype, old.weak_type) == (new.shape, new.dtype, new.weak_type)
        assert {leaf.dtype for leaf in jax.tree.leaves(after.model)} == {jnp.dtype(dtype)}
        assert {leaf.dtype for leaf in jax.tree.leaves(after.posterior)} == {jnp.dtype(jnp.float64)}


# A mixing with a natural gradient of its own


def test_a_mixing_is_moved_by_its_own_step_where_one_is_due_and_by_nothing_else() -> None:
    """Due at every third step, of size γ times caution; in between it stays, to the bit, whatever Adam does."""
    data, key = make_data(8), jax.random.key(8)
    start = jnp.asarray(MATRIX)
    mixing = ConjugateMixing.of(start + 0.1, 0.01 * jnp.eye(2), start, jnp.log(jnp.asarray(0.2)), every=3)
    trainer = Trainer.create(N, learning_rate=0.02, gamma=0.4)
    state = trainer.init(make_model(NoLatents(), mixing), Statistics(jnp.eye(M), jnp.ones((M, D))))
    state = eqx.tree_at(lambda s: s.caution, state, jnp.asarray(0.3))
    gradient = gradients_of(trainer, draw(key, state.model, N), state, data).learnt[0].mixing
    expected = mixing.natural_step(gradient, 0.4 * 0.3)
    for number in range(4):
        moved = step(trainer, key, state, data)
        if number == 0:
            for one, other in zip(jax.tree.leaves(moved.model.mixing), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
        if number % 3:
            assert_same_bits(moved.model.mixing, state.model.mixing)
        else:
            far = jax.tree.map(lambda new, old: jnp.abs(new - old).max(), moved.model.mixing, state.model.mixing)
            assert isinstance(far, ConjugateMixing)
            assert min(float(far.mean), float(far.covariance), float(far.log_scale)) > 1e-5
            assert float(far.start) == 0
        assert float(jnp.abs(moved.model.inducing_points - state.model.inducing_points).max()) > 1e-4
        state = moved


def test_training_with_a_conjugate_mixing_finds_the_columns_of_the_outputs() -> None:
    """Six outputs that follow two functions along columns that are not where P starts; all in single precision."""
    rng = np.random.default_rng(9)
    x = rng.uniform(-2, 2, size=(40, 2))
    truth, begin = rng.normal(size=(6, 2)), rng.normal(size=(6, 2))
    y = np.stack([np.sin(2 * x[:, 0]), np.cos(2 * x[:, 1])], 1) @ truth.T + 0.05 * rng.normal(size=(40, 6))
    data = whole(make_inputs(x), y)
    kernel = RBF.create(2, [0.9, 1.1], 1.2)
    mixing = ConjugateMixing.create(begin)
    model = Model(kernel, jnp.asarray(x[:20]), Concatenate(2), NoLatents(), mixing, ConstantNoise.create(0.1))
    model = jax.tree.map(lambda a: a.astype(jnp.float32), model)
    trainer = Trainer.create(40, learning_rate=0.01, gamma=0.5)
    best = optimal_posterior(trainer, jax.random.key(9), trainer.init(model), data).posterior
    state = trainer.init(model, best)
    after, records = train(trainer, jax.random.key(9), state, data, 60, 40, chunk=10)
    assert all(one.bound < other.bound for one, other in pairwise(records))
    assert {leaf.dtype for leaf in jax.tree.leaves(after.model)} == {jnp.dtype(jnp.float32)}

    q = after.model.mixing
    assert isinstance(q, ConjugateMixing)
    np.testing.assert_array_equal(q.start, np.float32(begin))
    missed = [np.linalg.norm(truth - p @ np.linalg.lstsq(p, truth)[0]) for p in (begin, np.asarray(q.mean))]
    assert missed[1] < 0.1 * missed[0]
    second = np.asarray(q.mean).T @ q.mean + 6 * np.asarray(q.covariance)
    np.testing.assert_allclose(q.second_moment(), second, rtol=1e-5)
    departures = np.mean((np.asarray(q.mean) - begin) ** 2) + np.trace(q.covariance) / 2
    np.testing.assert_allclose(jnp.exp(2 * q.log_scale), departures, rtol=1e-5)


# Cost


def intermediates(jaxpr: Jaxpr) -> Iterator[Any]:
    """Every array a program makes, in its inner programs too."""
    for equation in jaxpr.eqns:
        yield from (variable.aval for variable in equation.outvars)
        for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: isinstance(p, Jaxpr)):
            inner = parameter.jaxpr if isinstance(parameter, ClosedJaxpr) else parameter
            if isinstance(inner, Jaxpr):
                yield from intermediates(inner)


@pytest.mark.parametrize("mixing_class", [PointMixing, GaussianMixing, ConjugateMixing])
@pytest.mark.parametrize("latent", ["free-form", "closed"])
def test_many_functions_cost_no_more_memory_than_one(mixing_class: type[Any], latent: str) -> None:
    """L = 30 and M = 20: q(u) is kept as M² + M D_y numbers, and no step ever makes L M² of them."""
    functions, inducing, outputs, rows = 30, 20, 35, 6
    rng = np.random.default_rng(3)
    latents = FreeForm.create(1, 8) if latent == "free-form" else GaussianLatents(None, 1, "closed")
    mixing = mixing_class.create(rng.normal(size=(outputs, functions)))
    z = jnp.asarray(rng.normal(size=(inducing, 2)))
    model = Model(RBF.create(2), z, Concatenate(1), latents, mixing, ConstantNoise.create(1.0))
    data = whole(make_inputs(rng.normal(size=(rows, 1))), rng.normal(size=(rows, outputs)))
    trainer = Trainer.create(rows)
    state = trainer.init(model)
    assert sum(leaf.size for leaf in jax.tree.leaves(state.posterior)) == inducing**2 + inducing * outputs
    assert max(leaf.size for leaf in jax.tree.leaves(state)) < functions * inducing**2

    traced = jax.make_jaxpr(trainer.step)(jax.random.key(0), state, data)
    sizes = [aval.size for aval in intermediates(traced.jaxpr)]
    assert outputs * functions in sizes
    assert max(sizes) < functions * inducing**2


# Adam on q(u)


def test_adam_on_q_of_u_climbs_to_the_analytic_optimum_and_never_above() -> None:
    """At fixed hyperparameters; with P = I one S for all outputs is no restriction."""
    data, key = make_data(4), jax.random.key(4)
    model = regression()
    trainer = Trainer.create(N, learning_rate=0.05)
    draws = draw(key, model, N)
    best = optimal_posterior(trainer, key, trainer.init(model), data).posterior
    start = Shared(jnp.zeros((M, D)), jnp.eye(M))

    @jax.jit
    def climb(state: State) -> tuple[State, Array]:
        def body(state: State, _: None) -> tuple[State, Array]:
            state, info = trainer.step(key, state, data)
            return eqx.tree_at(lambda s: s.model, state, model), info.bound

        return jax.lax.scan(body, state, None, 600)

    top = float(bound(model, best, data, draws, float(N)).bound)
    _, bounds = climb(trainer.init(model, start))
    assert float(bounds.max()) <= top + 1e-9 * abs(top)
    assert top - float(bounds[-1]) < 1e-3 * (top - float(bounds[0]))


def test_the_analytic_optimum_needs_statistics() -> None:
    trainer = Trainer.create(N)
    state = trainer.init(regression(), Shared(jnp.zeros((M, D)), jnp.eye(M)))
    with pytest.raises(TypeError, match="start from Statistics"):
        optimal_posterior(trainer, jax.random.key(0), state, make_data())


# Training again


def test_the_same_key_gives_the_same_bits_whatever_the_chunks() -> None:
    """Draws of A and w, minibatches and each point's own q(w): twice, in other chunks, stopped and taken up again."""
    data, key = make_data(5), jax.random.key(5)
    model = make_model(GaussianLatents(None, 1, "draws", 2), PointMixing.create(MATRIX))
    trainer = Trainer.create(N)
    begin = trainer.init(model)
    full, records = train(trainer, key, begin, data, 7, 4, chunk=4)
    assert [record.step for record in records] == [4, 7]
    assert_same_bits(train(trainer, key, begin, data, 7, 4, chunk=4)[0], full)

    other, finer = train(trainer, key, begin, data, 7, 4, chunk=3)
    assert_same_bits(other, full)
    # each record averages the bounds of its own steps: 4 + 3 are 3 + 3 + 1
    total = sum(record.bound * count for record, count in zip(finer, (3, 3, 1), strict=True))
    np.testing.assert_allclose(records[0].bound * 4 + records[1].bound * 3, total, rtol=1e-12)

    paused, _ = train(trainer, key, begin, data, 2, 4, chunk=4)
    assert int(paused.step) == 2
    assert_same_bits(train(trainer, key, paused, data, 5, 4, chunk=4)[0], full)

    seen: list[int] = []

    def stop(state: State, record: Record) -> bool:
        seen.append(record.step)
        return True

    stopped, _ = train(trainer, key, begin, data, 7, 4, chunk=4, watch=stop)
    assert seen == [4]
    assert_same_bits(train(trainer, key, stopped, data, 3, 4, chunk=4)[0], full)

    different, _ = train(trainer, jax.random.key(6), begin, data, 7, 4, chunk=4)
    assert not np.array_equal(different.model.inducing_points, full.model.inducing_points)


def test_a_record_is_the_bound_of_a_data_point() -> None:
    """With all the data in a batch and no draws, a chunk of one step tells the bound of the state before it."""
    data, key = make_data(6), jax.random.key(6)
    trainer = Trainer.create(N)
    state = trainer.init(regression())
    expected = bound(state.model, state.posterior, data, draw(key, state.model, N), float(N)).bound
    after, records = train(trainer, key, state, data, 1, N, chunk=1)
    np.testing.assert_allclose(records[0].bound, expected / N, rtol=1e-12)
    np.testing.assert_allclose(records[0].noise_variance, after.model.noise_variance, rtol=1e-12)


# Where the bound breaks


def test_training_goes_on_from_the_last_good_state_with_smaller_steps() -> None:
    """What comes of it is what cautious training from that state would have been, to the bit."""
    data, key = make_data(7), jax.random.key(7)
    calm = Trainer.create(N, learning_rate=0.01, gamma=0.5)
    good, _ = train(calm, key, calm.init(regression()), data, 5, N, chunk=5)
    wild = Trainer.create(N, learning_rate=500.0, gamma=0.5)
    state, records = train(wild, key, good, data, 5, N, chunk=5)
    assert int(state.step) == 10
    assert all(np.isfinite(record.bound) for record in records)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(state))
    failures = np.log(float(state.caution)) / np.log(0.3)
    assert failures > 0.5
    np.testing.assert_allclose(failures, round(failures), atol=1e-9)
    cautious = eqx.tree_at(lambda s: s.caution, good, state.caution)
    assert_same_bits(train(wild, key, cautious, data, 5, N, chunk=5)[0], state)


def test_a_step_that_breaks_the_model_is_undone_at_the_end_of_a_chunk_too() -> None:
    """A chunk's last step may ruin the model with no bound left to tell: chunks of one step must recover as others."""
    data, key = make_data(7), jax.random.key(7)
    wild = Trainer.create(N, learning_rate=500.0, gamma=0.5)
    state, records = train(wild, key, wild.init(regression()), data, 5, N, chunk=1)
    assert int(state.step) == 5
    assert all(np.isfinite(record.bound) for record in records)


@pytest.mark.parametrize(
    ("what", "message"), [("y", "data hold NaN"), ("x", "data hold NaN"), ("model", "model holds NaN")]
)
def test_training_says_what_is_not_finite(what: str, message: str) -> None:
    data, model = make_data(7), regression()
    if what == "y":
        data = data._replace(y=jnp.asarray(data.y).at[3, 1].set(jnp.nan))
    elif what == "x":
        data = data._replace(x=data.x._replace(dense=jnp.asarray(data.x.dense).at[3, 1].set(jnp.inf)))
    else:
        model = eqx.tree_at(lambda m: m.inducing_points, model, model.inducing_points.at[0, 0].set(jnp.nan))
    trainer = Trainer.create(N, learning_rate=0.01, gamma=0.5)
    with pytest.raises(TrainingError, match=message):
        train(trainer, jax.random.key(7), trainer.init(model), data, 5, N, chunk=5)


def test_training_says_that_inducing_inputs_coincide() -> None:
    model = regression(jitter=0.0)
    model = eqx.tree_at(lambda m: m.inducing_points, model, jnp.ones((M, 2)))
    trainer = Trainer.create(N)
    with pytest.raises(TrainingError, match="inducing inputs coincide"):
        train(trainer, jax.random.key(7), trainer.init(model), make_data(7), 5, N, chunk=5)


def test_training_does_not_end_on_a_step_that_broke_the_model() -> None:
    """The very last step has no bound after it: what is handed back must have one all the same."""
    data, key = make_data(7), jax.random.key(7)
    wild = Trainer.create(N, learning_rate=500.0, gamma=0.5)
    state, _ = train(wild, key, wild.init(regression()), data, 2, N, chunk=1)
    assert np.isfinite(float(bound(state.model, state.posterior, data, draw(key, state.model, N), float(N)).bound))


def found() -> Model:
    """Regression, beside what was found before."""
    trend = SmoothTrend(RBF.create(2, 1.3, 0.6), jnp.asarray([[0.5, -0.5], [-1.0, 0.4]]), NoTrend())
    return dataclasses.replace(regression(), trend=trend)


def test_steady_training_takes_the_noise_to_the_mean_square_of_what_is_left() -> None:
    """q(u) and all else held: S of -D N/2 log 2πσ² - S/2σ², the data's part of the bound, over D N."""
    data, key = make_data(), jax.random.key(0)
    q = Shared(jnp.full((M + 2, D), 0.2), 0.5 * jnp.eye(M + 2))
    trainer = Trainer.create(N, learning_rate=1e-12, gamma=0.5)
    state = trainer.init(found(), q)
    before = float(state.model.noise_variance)
    part = float(bound(state.model, q, data, draw(key, state.model, N), float(N)).data)
    squares = -2 * before * (part + 0.5 * N * D * np.log(2 * np.pi * before))
    for _ in range(60):
        state = step(trainer, key, state, data)
    assert float(state.model.noise_variance) == pytest.approx(squares / (N * D), rel=1e-6)
    assert before != pytest.approx(squares / (N * D), rel=0.1)


def test_steady_training_moves_little_at_first_and_where_noise_is_small() -> None:
    """Adam's first step is as large as its rate, whatever the gradient: a hundredth of it, times σ/√0.1 at most."""
    data, key = make_data(), jax.random.key(0)
    trainer = Trainer.create(N, learning_rate=0.02, gamma=0.4)
    for noise, share in ((0.3, 1.0), (0.001, 0.1)):
        model = eqx.tree_at(lambda m: m.likelihood, found(), ConstantNoise.create(noise))
        state = trainer.init(model, Statistics(jnp.eye(M + 2), jnp.ones((M + 2, D))))
        moved = step(trainer, key, state, data).model.inducing_points - model.inducing_points
        np.testing.assert_allclose(np.abs(moved), 0.02 * share / 100, rtol=1e-5)
