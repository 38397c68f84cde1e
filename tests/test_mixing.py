"""Mixings against expectations over an explicit P, and their starts against the covariances they factor."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process.kernels import Matern

from gpcde.inference.bound import Batch, Draws, evaluate_bound, whole
from gpcde.inference.posterior import Shared, SparsePosterior, Statistics
from gpcde.inference.training import State, Trainer
from gpcde.model.input_maps import Concatenate
from gpcde.model.inputs import make_inputs
from gpcde.model.kernels import RBF
from gpcde.model.latents import NoLatents
from gpcde.model.likelihood import ConstantNoise
from gpcde.model.mixing import (
    ConjugateMixing,
    GaussianMixing,
    Identity,
    Mixing,
    PointMixing,
    _leading,
    grid_start,
    principal_start,
)
from gpcde.model.model import Model
from gpcde.runtime.compilation import compiled

D, L, M = 4, 3, 5


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def gaussian() -> GaussianMixing:
    """q(P) with means, variances and prior all different."""
    parts = [jnp.asarray(normal(D, L, seed=s)) for s in (1, 2, 3)]
    return GaussianMixing(parts[0], 0.3 * parts[1] - 0.5, parts[2], jnp.asarray(-0.2))


SCALE = 0.7


def conjugate(seed: int = 0, size: float = 1.0) -> ConjugateMixing:
    """q(P) with mean, covariance and prior all different, rows of P that are far from independent columns."""
    mean, start = jnp.asarray(normal(D, L, seed=seed + 1)), jnp.asarray(normal(D, L, seed=seed + 3))
    root = normal(L, L, seed=seed + 2)
    covariance = jnp.asarray(size * (root @ root.T + 0.1 * np.eye(L)))
    return ConjugateMixing.of(mean, covariance, start, jnp.log(jnp.asarray(SCALE)))


def values_of(q: ConjugateMixing) -> list[np.ndarray]:
    """Equally likely values of P: every row has the mean and covariance it should, and no two rows covary."""
    root = np.linalg.cholesky(np.asarray(q.covariance))
    steps = [np.sqrt(D * L) * np.outer(row, column) for row in np.eye(D) for column in root.T]
    return [np.asarray(q.mean) + sign * step for step in steps for sign in (1, -1)]


def mixings() -> dict[str, tuple[Mixing, list[np.ndarray]]]:
    """Each with equally likely values of P that have its mean and covariance, so that quadratics are exact."""
    point, q = normal(D, L), gaussian()
    mean, std = np.asarray(q.mean), np.exp(np.asarray(q.log_std))
    steps = np.sqrt(D * L) * np.eye(D * L).reshape(-1, D, L) * std
    return {
        "identity": (Identity(L), [np.eye(L)]),
        "point": (PointMixing.create(point), [point]),
        "fixed point": (PointMixing.create(point, learn=False), [point]),
        "gaussian": (q, [mean + sign * step for step in steps for sign in (1, -1)]),
        "conjugate": (conjugate(), values_of(conjugate())),
    }


def expect(values: list[np.ndarray], function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return np.mean([function(p) for p in values], axis=0)


NAMES = ["identity", "point", "fixed point", "gaussian", "conjugate"]


@pytest.mark.parametrize("name", NAMES)
def test_expectations_over_the_mixing(name: str) -> None:
    mixing, values = mixings()[name]
    m, f = normal(M, L, seed=4), normal(2, 3, L, seed=5)
    rotation = np.linalg.qr(normal(L, L, seed=6))[0]
    np.testing.assert_allclose(mixing.apply(jnp.asarray(f)), expect(values, lambda p: f @ p.T), rtol=1e-12)
    second = expect(values, lambda p: p.T @ p)
    np.testing.assert_allclose(mixing.second_moment(), second, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(mixing.trace(), np.trace(second), rtol=1e-12)
    np.testing.assert_allclose(
        mixing.quadratic(jnp.asarray(m)), expect(values, lambda p: m @ p.T @ p @ m.T), rtol=1e-11
    )
    along = np.diag(rotation.T @ second @ rotation)
    np.testing.assert_allclose(mixing.along(jnp.asarray(rotation)), along, rtol=1e-12)
    eigenvalues, vectors = mixing.eigh()
    np.testing.assert_allclose((vectors * eigenvalues) @ vectors.T, second, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(L), atol=1e-12)
    assert mixing.shape == values[0].shape
    if mixing.uniform is not None:
        np.testing.assert_allclose(second, mixing.uniform * np.eye(L), rtol=1e-12)
    h = normal(M, len(values[0]), seed=7)
    np.testing.assert_allclose(mixing.into(jnp.asarray(h)), expect(values, lambda p: h @ p), rtol=1e-12, atol=1e-13)
    directions = mixing.directions()
    if directions is None:
        np.testing.assert_array_equal(expect(values, lambda p: p), np.eye(L))
    else:
        basis, scale, right = directions
        np.testing.assert_allclose((basis * scale) @ right, expect(values, lambda p: p), rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(basis.T @ basis, np.eye(L), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_uncertainty_of_the_mixing_adds_its_own_variance_to_the_outputs(name: str) -> None:
    """E[P F Pᵀ] - E[P] F E[P]ᵀ with F = E[ffᵀ]: its diagonal in any orthonormal basis, and its trace outside of it."""
    mixing, values = mixings()[name]
    outputs = len(values[0])
    mean, variance = normal(2, 1, L, seed=8), np.exp(normal(2, 1, L, seed=9))
    turn = np.linalg.qr(normal(L, L, seed=6))[0]
    basis = np.linalg.qr(normal(outputs, min(outputs, L), seed=10))[0]
    along, outside = mixing.own_variance(*(jnp.asarray(a) for a in (mean, variance, turn, basis)))
    along, outside = jnp.broadcast_to(along, (2, 1, basis.shape[1])), jnp.broadcast_to(outside, (2, 1))
    for n in range(2):
        second = np.outer(mean[n, 0], mean[n, 0]) + turn @ np.diag(variance[n, 0]) @ turn.T
        centre = expect(values, lambda p: p)
        added = np.mean([p @ second @ p.T for p in values], axis=0) - centre @ second @ centre.T
        np.testing.assert_allclose(along[n, 0], np.diag(basis.T @ added @ basis), rtol=1e-10, atol=1e-12)
        left = np.trace(added) - np.trace(basis.T @ added @ basis)
        rest = float(outside[n, 0]) * (outputs - basis.shape[1])
        np.testing.assert_allclose(rest, left, rtol=1e-10, atol=1e-12)


def test_gaussian_penalty_is_the_divergence_from_the_prior() -> None:
    """E_q[log q - log p], whose integrand is quadratic: three Gauss–Hermite nodes are exact."""
    q = gaussian()
    mean, std = np.asarray(q.mean), np.exp(np.asarray(q.log_std))
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    places = mean + std * nodes[:, None, None]
    ratio = norm.logpdf(places, mean, std) - norm.logpdf(places, np.asarray(q.start), np.exp(-0.2))
    np.testing.assert_allclose(q.penalty(), np.einsum("q,qij->", weights / weights.sum(), ratio), rtol=1e-12)


def test_gaussian_penalty_is_least_and_zero_at_the_prior() -> None:
    q = GaussianMixing.create(normal(D, L), std=0.3, scale=0.3)
    value, gradient = compiled(jax.value_and_grad(lambda q: q.penalty()))(q)
    np.testing.assert_allclose(value, 0, atol=1e-13)
    for leaf in jax.tree.leaves(gradient):
        np.testing.assert_allclose(leaf, 0, atol=1e-13)


def test_learnt_scale_settles_at_the_size_of_the_departures() -> None:
    """The derivative by the scale vanishes where scale² is the mean of (mean - start)² + std²."""
    q = gaussian()
    best = 0.5 * jnp.log(jnp.mean((q.mean - q.start) ** 2 + q.variance))
    slope = compiled(jax.grad(lambda s: GaussianMixing(q.mean, q.log_std, q.start, s).penalty()))(best)
    np.testing.assert_allclose(slope, 0, atol=1e-12)


def test_gaussian_starts_with_the_spreads_asked_for() -> None:
    q = GaussianMixing.create(normal(D, L), std=0.02, scale=0.05)
    np.testing.assert_allclose(q.variance, np.full((D, L), 0.02**2), rtol=1e-12)
    np.testing.assert_allclose(jnp.exp(q.log_scale), 0.05, rtol=1e-12)
    np.testing.assert_array_equal(q.mean, normal(D, L))
    np.testing.assert_array_equal(q.start, normal(D, L))


def test_point_penalty_is_minus_the_log_prior() -> None:
    start, moved = normal(D, L), normal(D, L, seed=1)
    mixing = PointMixing(jnp.asarray(moved), jnp.asarray(start), True, 2.5)
    gap = norm.logpdf(start, start, 2.5**-0.5).sum() - norm.logpdf(moved, start, 2.5**-0.5).sum()
    np.testing.assert_allclose(mixing.penalty(), gap, rtol=1e-12)
    np.testing.assert_allclose(PointMixing.create(start).penalty(), 0, atol=0)


@compiled
@jax.grad
def slopes(mixing: Mixing, m: jax.Array, rotation: jax.Array) -> jax.Array:
    return (
        jnp.sum(jnp.sin(mixing.apply(m)))
        + jnp.sum(jnp.sin(mixing.quadratic(m)))
        + jnp.sum(jnp.sin(mixing.second_moment()))
        + jnp.sum(mixing.along(rotation) ** 2)
        + mixing.trace()
        + mixing.penalty()
    )


def test_fixed_mixing_has_no_gradient() -> None:
    value, start = jnp.asarray(normal(D, L)), jnp.asarray(normal(D, L, seed=1))
    m, rotation = jnp.asarray(normal(M, L, seed=4)), jnp.eye(L)
    fixed = slopes(PointMixing(value, start, learn=False), m, rotation)
    np.testing.assert_array_equal(fixed.value, np.zeros((D, L)))
    np.testing.assert_array_equal(fixed.start, np.zeros((D, L)))
    learnt = slopes(PointMixing(value, start, learn=True), m, rotation)
    assert np.abs(learnt.value).min() > 1e-6
    np.testing.assert_array_equal(learnt.start, np.zeros((D, L)))


def test_fixed_mixing_has_no_penalty() -> None:
    assert PointMixing(jnp.asarray(normal(D, L)), jnp.zeros((D, L)), learn=False).penalty() == 0


def test_centre_of_the_gaussian_prior_stays() -> None:
    gradient = slopes(gaussian(), jnp.asarray(normal(M, L, seed=4)), jnp.eye(L))
    np.testing.assert_array_equal(gradient.start, np.zeros((D, L)))
    assert np.abs(gradient.mean).min() > 1e-6
    assert abs(gradient.log_scale) > 1e-6


# q(P) in closed form


def test_conjugate_penalty_is_the_divergence_from_the_prior() -> None:
    """E_q[log q - log p], row by row; the integrand is quadratic, so that equally likely values are exact."""
    q = conjugate()

    def ratio(p: np.ndarray) -> np.ndarray:
        logs = [multivariate_normal.logpdf(row, m, np.asarray(q.covariance)) for row, m in zip(p, q.mean, strict=True)]
        return np.sum(logs) - norm.logpdf(p, np.asarray(q.start), SCALE).sum()

    np.testing.assert_allclose(q.penalty(), expect(values_of(q), ratio), rtol=1e-11)
    prior = ConjugateMixing.of(q.start, SCALE**2 * jnp.eye(L), q.start, q.log_scale)
    np.testing.assert_allclose(prior.penalty(), 0, atol=1e-12)


def test_conjugate_starts_at_its_start_with_the_scale_asked_for() -> None:
    q = ConjugateMixing.create(normal(D, L), scale=0.05)
    np.testing.assert_array_equal(q.mean, normal(D, L))
    np.testing.assert_array_equal(q.start, normal(D, L))
    size = np.sqrt((np.asarray(normal(D, L)) ** 2).mean())
    np.testing.assert_allclose(jnp.exp(q.log_scale), 0.05 * size, rtol=1e-12)
    np.testing.assert_allclose(q.penalty(), 0, atol=1e-12)  # at its prior


N, STANDS_FOR, VARIANCE, NOISE = 12, 30, 1.3, 0.4
KINDS = ["statistics", "shared"]


class Held(Statistics):
    """q(u) that does not follow P."""

    q: SparsePosterior

    def resolve(self, mixing: Mixing, noise_variance: Float[Array, ""]) -> SparsePosterior:
        return self.q


class Problem(NamedTuple):
    """Regression on a batch that stands for more rows, and what q(P) has to know of it, by dense computation."""

    q: Held
    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    F: np.ndarray
    T: np.ndarray

    @property
    def batch(self) -> Batch:
        return whole(make_inputs(self.x), self.y)

    def model(self, mixing: Mixing) -> Model:
        kernel, noise = RBF.create(2, [0.9, 1.1], VARIANCE), ConstantNoise.create(NOISE)
        return Model(kernel, jnp.asarray(self.z), Concatenate(2), NoLatents(), mixing, noise)


def problem(kind: str) -> Problem:
    """F = sum_n E[f fᵀ], T = sum_n y_n E[f]ᵀ, where q(u) has an S for each rotated function, or one for all."""
    rng = np.random.default_rng(11)
    x, y, z = rng.normal(size=(N, 2)), rng.normal(size=(N, D)) + 0.5, rng.normal(size=(M, 2))

    def rbf(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return VARIANCE * np.exp(-0.5 * (((left[:, None] - right) / [0.9, 1.1]) ** 2).sum(-1))

    a = np.linalg.solve(np.linalg.cholesky(rbf(z, z) + 1e-6 * VARIANCE * np.eye(M)), rbf(z, x)).T
    b = rng.normal(size=(8, M))
    G, H = b.T @ b, b.T @ rng.normal(size=(8, D))
    q: SparsePosterior
    if kind == "statistics":
        p = np.asarray(conjugate().mean)
        second = p.T @ p + D * np.asarray(conjugate().covariance)
        joint = np.linalg.inv(np.eye(L * M) + np.kron(second, G) / NOISE)
        mean = (joint @ (H @ p).T.ravel() / NOISE).reshape(L, M).T
        spread = joint.reshape(L, M, L, M)
        q = Statistics(jnp.asarray(G), jnp.asarray(H)).resolve(conjugate(), jnp.asarray(NOISE))
    else:
        mean, root = rng.normal(size=(M, L)), np.tril(0.3 * rng.normal(size=(M, M))) + 0.5 * np.eye(M)
        spread = np.einsum("lj,mi->lmji", np.eye(L), root @ root.T)
        q = Shared(jnp.asarray(mean), jnp.asarray(root))
    f = a @ mean
    left = N * VARIANCE - (a * a).sum()
    F = f.T @ f + np.einsum("nm,lmji,ni->lj", a, spread, a) + left * np.eye(L)
    share = STANDS_FOR / N
    return Problem(Held(jnp.asarray(G), jnp.asarray(H), q), x, y, z, share * F, share * y.T @ f)


@jax.jit
def bound_of(model: Model, posterior: Statistics, batch: Batch) -> Array:
    draws = Draws(jnp.zeros((N, 0)), jnp.zeros((N, 0, 0)))
    return evaluate_bound(model, posterior, batch, draws, STANDS_FOR).bound


@jax.jit
def after_step(trainer: Trainer, state: State, batch: Batch, gamma: Array) -> Mixing:
    """q(P) after a natural-gradient step of its own, q(u) as it was."""
    draws = Draws(jnp.zeros((N, 0)), jnp.zeros((N, 0, 0)))
    gradient = trainer.gradients(draws, state, batch)[1].learnt[0]
    return state.model.mixing.natural_step(gradient.mixing, gamma)


def stepped(task: Problem, mixing: ConjugateMixing, gamma: float) -> ConjugateMixing:
    trainer = Trainer.create(STANDS_FOR)
    moved = after_step(trainer, trainer.init(task.model(mixing), task.q), task.batch, jnp.asarray(gamma))
    assert isinstance(moved, ConjugateMixing)
    return moved


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gamma", [1.0, 0.3])
def test_natural_steps_average_towards_the_optimum(kind: str, gamma: float) -> None:
    """C⁻¹ and C⁻¹ mean, old and those of Bayesian linear regression on f; all the way with γ = 1."""
    task, q = problem(kind), conjugate()
    new = stepped(task, q, gamma)
    precision = task.F / NOISE + np.eye(L) / SCALE**2
    pull = task.T / NOISE + np.asarray(q.start) / SCALE**2
    old = np.linalg.inv(q.covariance)
    expected = (1 - gamma) * old + gamma * precision
    np.testing.assert_allclose(np.linalg.inv(new.covariance), expected, rtol=1e-8, atol=1e-8)
    towards = (1 - gamma) * np.asarray(q.mean) @ old + gamma * pull
    np.testing.assert_allclose(new.mean, towards @ np.linalg.inv(expected), rtol=1e-8, atol=1e-9)
    second = np.asarray(new.mean).T @ new.mean + D * np.asarray(new.covariance)
    np.testing.assert_allclose(new.second_moment(), second, rtol=1e-12, atol=1e-12)
    squares = expect(values_of(new), lambda p: np.mean((p - np.asarray(q.start)) ** 2))
    np.testing.assert_allclose(jnp.exp(2 * new.log_scale), squares, rtol=1e-10)
    np.testing.assert_array_equal(new.start, q.start)


def slopes_of_the_bound(task: Problem, q: ConjugateMixing) -> np.ndarray:
    """Five-point differences with q(u) held: by some directions of the mean and of C, and by the log scale."""
    rng = np.random.default_rng(12)
    turns = [rng.normal(size=(L, L)) for _ in range(4)]
    spread = float(np.linalg.eigvalsh(q.covariance)[0])
    moves = [(rng.normal(size=(D, L)), np.zeros((L, L)), 0.0) for _ in range(4)]
    moves += [(np.zeros((D, L)), 0.1 * spread * (turn + turn.T), 0.0) for turn in turns]
    moves += [(np.zeros((D, L)), np.zeros((L, L)), 1.0)]
    batch, h, out = task.batch, 1e-2, []
    for mean, covariance, log_scale in moves:
        values = []
        for k in (-2, -1, 1, 2):
            there = ConjugateMixing.of(
                q.mean + k * h * mean, q.covariance + k * h * covariance, q.start, q.log_scale + k * h * log_scale
            )
            values.append(float(bound_of(task.model(there), task.q, batch)))
        out.append((values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h))
    return np.array(out)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_is_flat_where_natural_steps_end(kind: str) -> None:
    """One step: by mean and C at the old scale, by the scale at the new; many steps: by all at once."""
    task, q = problem(kind), conjugate()
    steep = np.abs(slopes_of_the_bound(task, q))
    assert steep.min() > 1e-2
    new = stepped(task, q, 1.0)
    with_old = ConjugateMixing.of(new.mean, new.covariance, q.start, q.log_scale)
    np.testing.assert_allclose(slopes_of_the_bound(task, with_old)[:-1], 0, atol=1e-6)
    flat = slopes_of_the_bound(task, new)
    np.testing.assert_allclose(flat[-1], 0, atol=1e-6)
    assert np.abs(flat[:-1]).max() > 1e-4  # the scale moved, so q(P) is not yet where it ends
    for _ in range(60):
        new = stepped(task, new, 1.0)
    np.testing.assert_allclose(slopes_of_the_bound(task, new), 0, atol=1e-6)


@pytest.mark.parametrize("gamma", [1.0, 0.2])
def test_a_natural_step_of_the_mixing_never_lowers_the_bound(gamma: float) -> None:
    task = problem("statistics")
    for seed in range(10):
        q = conjugate(10 * seed, size=10.0 ** (seed % 5 - 3))
        before, after = (float(bound_of(task.model(p), task.q, task.batch)) for p in (q, stepped(task, q, gamma)))
        assert after > before


@pytest.mark.parametrize("lengthscale", [1.0, 2.3])
def test_all_columns_of_the_grid_start_give_the_matern_covariance(lengthscale: float) -> None:
    height, width = 3, 4
    place = np.array([[i, j] for i in range(height) for j in range(width)], float)
    p = grid_start(height, width, height * width, lengthscale)
    np.testing.assert_allclose(p @ p.T, Matern(lengthscale, nu=2.5)(place), rtol=1e-10, atol=1e-13)


def test_columns_of_the_grid_start_are_the_best_of_their_number() -> None:
    """They are orthogonal, in falling order, and what is left over has the next eigenvalue as its norm."""
    whole = grid_start(3, 4, 12, 1.7)
    p = grid_start(3, 4, 5, 1.7)
    cross = p.T @ p
    values = np.linalg.eigvalsh(whole @ whole.T)[::-1]
    np.testing.assert_allclose(cross, np.diag(values[:5]), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(whole @ whole.T - p @ p.T, 2), values[5], rtol=1e-9)


def test_largest_entry_of_each_column_is_positive() -> None:
    for p in (grid_start(3, 4, 12, 1.7), principal_start(normal(20, D), D)):
        assert (p.max(0) >= -p.min(0) - 1e-12).all()


def test_rounding_does_not_turn_columns_whose_largest_entries_are_equal() -> None:
    p = grid_start(3, 4, 3, 1.5)
    assert np.sum(np.isclose(np.abs(p[:, 1]), np.abs(p[:, 1]).max())) > 1  # by symmetry
    for seed in range(20):
        rounding = 1e-15 * normal(12, 12, seed=seed)
        again = _leading(whole_grid(3, 4, 1.5) + rounding + rounding.T, 3)
        np.testing.assert_allclose(again, p, rtol=0, atol=1e-12)


def whole_grid(height: int, width: int, lengthscale: float) -> np.ndarray:
    every = grid_start(height, width, height * width, lengthscale)
    return every @ every.T


@pytest.mark.parametrize("rows", [20, 3], ids=["many rows", "fewer rows than outputs"])
def test_all_columns_of_the_principal_start_give_the_sample_covariance(rows: int) -> None:
    y = normal(rows, D) @ normal(D, D, seed=1) + 7
    p = principal_start(y, D)
    centred = y - y.mean(0)
    np.testing.assert_allclose(p @ p.T, centred.T @ centred / rows, rtol=1e-10, atol=1e-12)


def test_principal_columns_are_orthogonal_and_in_falling_order() -> None:
    y = normal(20, D) @ normal(D, D, seed=1)
    p = principal_start(y, 2)
    values = np.linalg.svd(y - y.mean(0), compute_uv=False) ** 2 / 20
    np.testing.assert_allclose(p.T @ p, np.diag(values[:2]), rtol=1e-10, atol=1e-12)


def test_principal_start_of_one_output_is_its_standard_deviation() -> None:
    y = normal(20, 1)
    np.testing.assert_allclose(principal_start(y, 1), [[y.std()]], rtol=1e-12)


@pytest.mark.parametrize("count", [0, 5])
def test_wrong_number_of_columns_is_refused(count: int) -> None:
    for make in (lambda: grid_start(2, 2, count), lambda: principal_start(normal(20, 4), count)):
        with pytest.raises(ValueError, match=f"between 1 and D_y = 4, got {count}"):
            make()
