"""q(u): the optimum in rotated coordinates is the dense joint posterior, and one natural step of size 1 reaches it."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float
from scipy.linalg import solve_triangular

from gpcde.inference.bound import Batch, Draws, draw, evaluate_bound, whole
from gpcde.inference.posterior import Coefficients, Rotated, Shared, SparsePosterior, Statistics
from gpcde.inference.training import State, Trainer, optimal_posterior
from gpcde.model.input_maps import Concatenate
from gpcde.model.inputs import make_inputs
from gpcde.model.kernels import RBF
from gpcde.model.latents import FreeForm, GaussianLatents, Latents, NoLatents
from gpcde.model.likelihood import ConstantNoise
from gpcde.model.mixing import GaussianMixing, Identity, Mixing, PointMixing
from gpcde.model.model import Factors, Model
from varying import OfBoth

N, M, D = 12, 5, 3
LENGTHSCALES, VARIANCE, NOISE = np.array([0.8, 1.1]), 1.3, 0.2
KINDS = ["identity", "one column", "two columns", "more columns than outputs", "gaussian"]


def make_mixing(kind: str) -> Mixing:
    """Each kind of P; the columns of no PointMixing are orthogonal."""
    rng = np.random.default_rng(5)
    columns = rng.normal(size=(D, 4)) + 1.5
    match kind:
        case "identity":
            return Identity(D)
        case "one column":
            return PointMixing.create(columns[:, :1])
        case "two columns":
            return PointMixing.create(columns[:, :2])
        case "more columns than outputs":
            return PointMixing.create(columns)
    mixing = GaussianMixing.create(columns[:, :2], std=0.4, scale=0.5)
    return eqx.tree_at(lambda p: p.log_std, mixing, jnp.asarray(rng.normal(size=(D, 2)) - 1))


def make_problem(kind: str, latents: Latents, seed: int = 0) -> tuple[Model, Batch, Array]:
    """A model of one input and one latent (or of two inputs), data, and parameters for each point's own q(w)."""
    rng = np.random.default_rng(seed)
    inputs = 2 - latents.dim
    x, y = rng.normal(size=(N, inputs)), rng.normal(size=(N, D)) + 0.5
    model = Model(
        RBF.create(2, LENGTHSCALES, VARIANCE),
        jnp.asarray(rng.normal(size=(M, 2))),
        Concatenate(inputs),
        latents,
        make_mixing(kind),
        ConstantNoise.create(NOISE),
    )
    local = jnp.asarray(np.stack([rng.normal(size=N), 0.4 * rng.normal(size=N) - 1], 1))
    return model, whole(make_inputs(x), y), local


def features(model: Model, h: np.ndarray) -> np.ndarray:
    """a = Lz⁻¹ k(Z, h), from the definition."""
    z = np.asarray(model.inducing_points)

    def kernel(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return VARIANCE * np.exp(-0.5 * (((left[:, None] - right) / LENGTHSCALES) ** 2).sum(-1))

    gram = kernel(z, z) + model.jitter * VARIANCE * np.eye(M)
    return solve_triangular(np.linalg.cholesky(gram), kernel(z, h), lower=True).T


def dense_posterior(G: np.ndarray, H: np.ndarray, mixing: Mixing, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of vec(v) = [v_1; v_2; ...] with the precision I ⊗ I + R ⊗ G/σ², over all outputs."""
    mean_p, second = moments_of_mixing(mixing)
    precision = np.eye(len(second) * len(G)) + np.kron(second, G) / noise
    covariance = np.linalg.inv(precision)
    return covariance @ (H @ mean_p).T.ravel() / noise, covariance


def moments_of_mixing(mixing: Mixing) -> tuple[np.ndarray, np.ndarray]:
    """E[P] and E[PᵀP], from the entries of P."""
    if isinstance(mixing, PointMixing):
        p = np.asarray(mixing.value)
        return p, p.T @ p
    if isinstance(mixing, GaussianMixing):
        p, variance = np.asarray(mixing.mean), np.exp(2 * np.asarray(mixing.log_std))
        return p, p.T @ p + np.diag(variance.sum(0))
    return np.eye(D), np.eye(D)


def moments_of(q: SparsePosterior) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of vec(v), from the fields of q(u)."""
    mean = np.asarray(q.mean)
    if isinstance(q, Shared):
        root = np.asarray(q.root)
        return mean.T.ravel(), np.kron(np.eye(mean.shape[1]), root @ root.T)
    assert isinstance(q, Rotated)
    basis, turn, spectrum = (np.asarray(a) for a in (q.basis, q.turn, q.spectrum))
    parts = [np.kron(np.outer(v, v), (basis * s) @ basis.T) for v, s in zip(turn.T, spectrum.T, strict=True)]
    return mean.T.ravel(), sum(parts[1:], parts[0])


class Joint(Shared):
    """Any Gaussian over all inducing variables of all outputs at once: vec(v) ~ N(vec(mean), factor factorᵀ)."""

    factor: Float[Array, "LM LM"]

    def coefficients(self, mixing: Mixing) -> Coefficients:
        m, width = self.mean.shape
        second = mixing.second_moment()
        covariance = (self.factor @ self.factor.T).reshape(width, m, width, m)
        spread = jnp.einsum("ij,imjn->mn", second, covariance)
        quadratic = jnp.trace(second) * jnp.eye(m) - spread - self.mean @ second @ self.mean.T
        return Coefficients(quadratic, mixing.apply(self.mean))

    def kl(self) -> Float[Array, ""]:
        logdet = 2 * jnp.linalg.slogdet(self.factor)[1]
        return 0.5 * (jnp.sum(self.factor**2) + jnp.sum(self.mean**2) - self.factor.shape[0] - logdet)


def as_joint(q: SparsePosterior) -> Joint:
    _, covariance = moments_of(q)
    return Joint(q.mean, jnp.eye(q.mean.shape[0]), jnp.asarray(np.linalg.cholesky(covariance)))


def random_statistics(seed: int) -> Statistics:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(N, M))
    return Statistics(jnp.asarray(a.T @ a), jnp.asarray(a.T @ rng.normal(size=(N, D))))


class Step(NamedTuple):
    before: Array
    posterior: Statistics
    after: Array


def natural(model: Model, statistics: Statistics, batch: Batch, local: Array, draws: Draws, gamma: float = 1.0) -> Step:
    """A natural-gradient step on all the data, and the bound before and after it."""
    trainer = Trainer.create(N)
    return _natural(trainer, trainer.init(model, statistics, local), batch, local, draws, gamma)


@jax.jit
def _natural(trainer: Trainer, state: State, batch: Batch, local: Array, draws: Draws, gamma: float) -> Step:
    terms, gradients = trainer.gradients(draws, state, batch)
    moved = state.posterior.natural_step(gradients.coefficients, state.model.noise_variance, gamma)
    assert isinstance(moved, Statistics)
    return Step(terms.bound, moved, evaluate_bound(state.model, moved, batch, draws, N, local).bound)


@jax.jit
def solve(statistics: Statistics, mixing: Mixing, noise_variance: float = NOISE) -> SparsePosterior:
    return statistics.resolve(mixing, jnp.asarray(noise_variance))


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_resolve_to_the_dense_joint_posterior(kind: str) -> None:
    statistics, mixing = random_statistics(1), make_mixing(kind)
    mean, covariance = moments_of(solve(statistics, mixing))
    expected_mean, expected = dense_posterior(np.asarray(statistics.G), np.asarray(statistics.H), mixing, NOISE)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(covariance, expected, rtol=1e-8, atol=1e-10)


@jax.jit
def both_moments(
    q: SparsePosterior, whitener: Array, rows: Array, factors: Factors
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Means and variances from kernel rows, and from their factors."""
    moments = q.moments(whitener)
    return moments(rows, factors.diag.reshape(-1, 1)), moments.separated(factors)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_those_of_the_rotated_functions(kind: str) -> None:
    """k(h, h) - aᵀa + aᵀ S a with a = Lz⁻¹ k, whose rotated components do not covary; from factors and a trend too."""
    statistics, mixing = random_statistics(2), make_mixing(kind)
    q = solve(statistics, mixing)
    mean, covariance = dense_posterior(np.asarray(statistics.G), np.asarray(statistics.H), mixing, NOISE)
    rng = np.random.default_rng(3)
    root = np.tril(0.3 * rng.normal(size=(M, M))) + np.eye(M)
    rows_x, rows_w = 0.6 * rng.normal(size=(2, M)), 0.6 * rng.normal(size=(3, M))
    rows_w[:, 2:] = 1  # as those of a trend are
    rows = (rows_x[:, None] * rows_w).reshape(6, M)
    a = np.linalg.solve(root, rows.T).T
    diag = (a * a).sum(1).reshape(2, 3) + rng.uniform(size=(2, 3))
    width = mixing.shape[1]
    turn = np.asarray(q.rotation)
    np.testing.assert_allclose(turn.T @ turn, np.eye(width), atol=1e-12)
    blocks = covariance.reshape(width, M, width, M)
    across = np.einsum("nm,ni,lmki,lj,kr->njr", a, a, blocks, turn, turn)
    across += np.einsum("n,jr->njr", diag.ravel() - (a * a).sum(1), np.eye(width))

    factors = Factors(*map(jnp.asarray, (rows_x[:, :2], rows_w[:, :2], rows_x[:, 2:], diag)))
    got, separated = both_moments(q, jnp.asarray(np.linalg.inv(root)), jnp.asarray(rows), factors)
    np.testing.assert_allclose(got[0], a @ mean.reshape(width, M).T, rtol=1e-8, atol=1e-10)
    spread = np.broadcast_to(got[1], (6, width))
    np.testing.assert_allclose(across, np.stack([np.diag(row) for row in spread]), rtol=1e-8, atol=1e-10)
    for one, other in zip(separated, got, strict=True):
        np.testing.assert_allclose(one.reshape(other.shape), other, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("kind", ["identity", "gaussian"])
def test_draws_have_the_mean_and_covariance_of_the_posterior(kind: str) -> None:
    """A draw is affine in what is drawn: where it sends the origin and the axes says all."""
    q = solve(random_statistics(2), make_mixing(kind))
    mean, covariance = moments_of(q)
    width = q.mean.shape[1]
    axes = np.eye(M * width).reshape(-1, width, M).transpose(0, 2, 1)
    images = np.stack([np.asarray(q.sample(jnp.asarray(axis))).T.ravel() - mean for axis in axes])
    np.testing.assert_allclose(np.asarray(q.sample(jnp.zeros((M, width)))).T.ravel(), mean, rtol=1e-12)
    np.testing.assert_allclose(images.T @ images, covariance, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_coefficients_give_the_expected_squared_residual(kind: str) -> None:
    mixing = make_mixing(kind)
    rng = np.random.default_rng(4)
    width = mixing.shape[1]
    mean_p, second = moments_of_mixing(mixing)
    # q(u) of these statistics and this P; of another P, whose rotation does not diagonalise R; and any shared one
    posteriors = [
        solve(random_statistics(6), mixing),
        Shared(jnp.asarray(rng.normal(size=(M, width))), jnp.asarray(np.tril(rng.normal(size=(M, M))))),
    ]
    if kind != "identity":
        posteriors.append(solve(random_statistics(6), PointMixing.create(rng.normal(size=(D, width))), 0.7))
    a, y, prior_variance = rng.normal(size=M), rng.normal(size=D), 30.0
    for q in posteriors:
        vector, covariance = moments_of(q)
        project = np.kron(np.eye(width), a)
        f, cov_f = project @ vector, project @ covariance @ project.T + (prior_variance - a @ a) * np.eye(width)
        expected = y @ y - 2 * y @ mean_p @ f + np.trace(second @ (cov_f + np.outer(f, f)))
        coefficients = q.coefficients(mixing)
        quadratic, linear = np.asarray(coefficients.quadratic), np.asarray(coefficients.linear)
        value = y @ y + np.trace(second) * prior_variance - 2 * a @ linear @ y - a @ quadratic @ a
        np.testing.assert_allclose(value, expected, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_kl_is_the_divergence_of_the_joint_gaussian_from_the_prior(kind: str) -> None:
    q = solve(random_statistics(7), make_mixing(kind))
    mean, covariance = moments_of(q)
    expected = 0.5 * (np.trace(covariance) + mean @ mean - len(mean) - np.linalg.slogdet(covariance)[1])
    np.testing.assert_allclose(q.kl(), expected, rtol=1e-10)


def test_an_indefinite_g_loses_its_negative_part_only() -> None:
    rng = np.random.default_rng(8)
    vectors = np.linalg.qr(rng.normal(size=(M, M)))[0]
    values = np.array([300.0, 20.0, 1.0, 0.0, -5.0])
    H = jnp.asarray(rng.normal(size=(M, D)))
    broken = Statistics(jnp.asarray((vectors * values) @ vectors.T), H)
    clean = Statistics(jnp.asarray((vectors * np.maximum(values, 0)) @ vectors.T), H)
    for mixing in (Identity(D), PointMixing.create(np.eye(D)), make_mixing("two columns")):
        repaired = moments_of(solve(broken, mixing))
        for left, right in zip(repaired, moments_of(solve(clean, mixing)), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_natural_step_reaches_the_optimum_and_a_second_stays(kind: str) -> None:
    model, batch, local = make_problem(kind, NoLatents())
    draws = draw(jax.random.key(0), model, N)
    once = natural(model, random_statistics(9), batch, local, draws)

    a, y = features(model, np.asarray(batch.x.dense)), np.asarray(batch.y)
    mean, covariance = moments_of(solve(once.posterior, model.mixing))
    expected_mean, expected = dense_posterior(a.T @ a, a.T @ y, model.mixing, NOISE)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(covariance, expected, rtol=1e-8, atol=1e-10)

    twice = natural(model, once.posterior, batch, local, draws)
    np.testing.assert_allclose(twice.posterior.G, once.posterior.G, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(twice.posterior.H, once.posterior.H, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(twice.after, once.after, rtol=1e-12)


@pytest.mark.parametrize("expectation", ["draws", "closed"])
def test_a_full_natural_step_takes_expectations_over_q_of_w(expectation: str) -> None:
    latents = GaussianLatents(None, 1, "draws" if expectation == "draws" else "closed", 3)
    model, batch, local = make_problem("two columns", latents)
    draws = draw(jax.random.key(1), model, N)
    once = natural(model, random_statistics(9), batch, local, draws).posterior

    if expectation == "draws":
        nodes, weights = np.asarray(draws.latent)[:, :, 0], np.full(3, 1 / 3)
    else:
        rule, weights = np.polynomial.hermite_e.hermegauss(60)
        nodes, weights = np.tile(rule, (N, 1)), weights / weights.sum()
    w = np.asarray(local[:, :1]) + np.exp(np.asarray(local[:, 1:])) * nodes
    count = len(weights)
    h = np.stack([np.repeat(np.asarray(batch.x.dense), count), w.ravel()], 1)
    a = features(model, h).reshape(N, count, M)
    G = np.einsum("k,nki,nkj->ij", weights, a, a)
    H = np.einsum("k,nki,nd->id", weights, a, np.asarray(batch.y))
    np.testing.assert_allclose(once.G, G, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(once.H, H, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_is_the_maximum_over_all_joint_gaussians(kind: str) -> None:
    model, batch, local = make_problem(kind, NoLatents())
    draws = draw(jax.random.key(0), model, N)
    best = as_joint(solve(natural(model, random_statistics(9), batch, local, draws).posterior, model.mixing))

    @jax.jit
    def bound_and_slopes(mean: Array, factor: Array) -> tuple[Array, tuple[Array, Array]]:
        def bound(at: tuple[Array, Array]) -> Array:
            return evaluate_bound(model, Joint(at[0], best.root, at[1]), batch, draws, N).bound

        return jax.value_and_grad(bound)((mean, factor))

    top, slopes = bound_and_slopes(best.mean, best.factor)
    scale = abs(float(top))
    for slope in slopes:
        np.testing.assert_allclose(slope, 0, atol=1e-9 * scale)
    rng = np.random.default_rng(10)
    for size in (1e-3, 1e-1):
        other, _ = bound_and_slopes(
            best.mean + size * rng.normal(size=best.mean.shape), best.factor + size * rng.normal(size=best.factor.shape)
        )
        assert float(other) < float(top) - 1e-8


@pytest.mark.parametrize(
    ("kind", "known"),
    [("identity", False), ("identity", True), ("two columns", True)],
    ids=["no latents", "known latents", "known latents, two columns"],
)
def test_where_the_noise_varies_a_full_natural_step_reaches_the_optimum(kind: str, known: bool) -> None:
    """With σ² s(x, w): G = Σ a aᵀ / s and H = Σ a yᵀ / s, rows weighed, and no q(u) near it has a better bound."""
    model, batch, local = make_problem(kind, GaussianLatents(None, 1, "draws", 1) if known else NoLatents())
    model = eqx.tree_at(lambda m: m.likelihood, model, OfBoth.create(NOISE, 0.3, 0.2))
    batch = batch._replace(weight=jnp.linspace(0.0, 2.0, N))
    draws = jax.tree.map(jnp.zeros_like, draw(jax.random.key(0), model, N))  # so that w is the mean of q(w)
    once = natural(model, random_statistics(9), batch, local, draws)

    x, w, v = np.asarray(batch.x.dense), np.asarray(local[:, :1]), np.asarray(batch.weight)
    a = features(model, np.hstack([x, w]) if known else x)
    precision = v * np.exp(-0.3 * x[:, 0] - 0.2 * known * w[:, 0])
    np.testing.assert_allclose(once.posterior.G, (a * precision[:, None]).T @ a, rtol=1e-8, atol=1e-10)
    expected = (a * precision[:, None]).T @ np.asarray(batch.y)
    np.testing.assert_allclose(once.posterior.H, expected, rtol=1e-8, atol=1e-10)

    q = solve(once.posterior, model.mixing)
    best = q if isinstance(q, Shared) else as_joint(q)
    own = local if known else None

    @jax.jit
    def bound_and_slopes(q: Shared) -> tuple[Array, Shared]:
        return jax.value_and_grad(lambda q: evaluate_bound(model, q, batch, draws, N, own).bound)(q)

    top, slopes = bound_and_slopes(best)
    np.testing.assert_allclose(top, once.after, rtol=1e-10)
    for slope in jax.tree.leaves(slopes):
        np.testing.assert_allclose(slope, 0, atol=1e-8)


@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_a_natural_step_is_the_gradient_in_expectation_parameters(gamma: float) -> None:
    """θ ← θ + γ ∂bound/∂η, with θ = (S⁻¹m, -S⁻¹/2) and η = (m, S + mmᵀ), by automatic differentiation."""
    model, batch, local = make_problem("identity", NoLatents())
    model = eqx.tree_at(lambda m: m.mixing, model, Identity(1))
    batch = batch._replace(y=batch.y[:, :1])
    draws = draw(jax.random.key(0), model, N)
    start = random_statistics(11)
    start = Statistics(start.G, start.H[:, :1])

    @jax.jit
    def expected_step(mean: Array, S: Array) -> tuple[Array, Array]:
        def bound(first: Array, second: Array) -> Array:
            root = jnp.linalg.cholesky(second - first @ first.T)
            return evaluate_bound(model, Shared(first, root), batch, draws, N).bound

        by_first, by_second = jax.grad(bound, argnums=(0, 1))(mean, S + mean @ mean.T)
        precision = jnp.linalg.inv(S)
        new_precision = precision - gamma * (by_second + by_second.T)
        return jnp.linalg.solve(new_precision, precision @ mean + gamma * by_first), jnp.linalg.inv(new_precision)

    mean, covariance = moments_of(solve(start, model.mixing))
    expected_mean, expected = expected_step(jnp.asarray(mean)[:, None], jnp.asarray(covariance))
    moved = natural(model, start, batch, local, draws, gamma).posterior
    mean, covariance = moments_of(solve(moved, model.mixing))
    np.testing.assert_allclose(mean, expected_mean[:, 0], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(covariance, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["one column", "two columns", "gaussian"])
@given(seed=st.integers(0, 10**6), noise=st.floats(0.02, 2.0), scale=st.floats(0.1, 3.0))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_an_em_step_never_lowers_the_free_form_bound(kind: str, seed: int, noise: float, scale: float) -> None:
    """From any q(u) that statistics can say, where the mixing's columns are not orthogonal as well."""
    model, batch, local = make_problem(kind, FreeForm.create(1, 20), seed)
    model = eqx.tree_at(lambda m: m.likelihood, model, ConstantNoise.create(noise))
    before = random_statistics(seed)
    before = Statistics(scale * before.G, scale * before.H)
    step = natural(model, before, batch, local, draw(jax.random.key(0), model, N))
    assert float(step.after) >= float(step.before) - 1e-9 * abs(float(step.before))


@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
def test_optimal_posterior_in_batches_is_one_full_step(weighted: bool) -> None:
    """The statistics of batches add up, of unequal sizes too: 5 + 5 + 2.

    Where rows have weights, it is that of the rows repeated as often; the last two are not there.
    """
    model, batch, local = make_problem("two columns", FreeForm.create(1, 20))
    start, key = random_statistics(12), jax.random.key(0)
    repeated = np.array([0, 0, 1, 3, 4, 5, 5, 6, 7, 8, 9, 9]) if weighted else np.arange(N)
    expected = natural(model, start, batch.take(repeated), local, draw(key, model, N)).posterior
    weight = np.bincount(repeated, minlength=N).astype(float)
    trainer = Trainer.create(N)
    batch = batch._replace(weight=jnp.asarray(weight))
    out = optimal_posterior(trainer, key, trainer.init(model, start), batch, 5).posterior
    assert isinstance(out, Statistics)
    np.testing.assert_allclose(out.G, expected.G, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(out.H, expected.H, rtol=1e-10, atol=1e-12)
