"""Where the model is another one: sparse GP regression, the Bayesian GP-LVM, dense collapsed bounds, common limits."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

from gpcde.inference.bound import Batch, Draws, Terms, draw, evaluate_bound, whole
from gpcde.inference.posterior import Statistics
from gpcde.inference.training import State, Trainer
from gpcde.model.input_maps import Concatenate, InputMap, Project
from gpcde.model.inputs import make_inputs
from gpcde.model.kernels import RBF
from gpcde.model.latents import FreeForm, GaussianLatents, Latents, NoLatents
from gpcde.model.likelihood import ConstantNoise
from gpcde.model.mixing import GaussianMixing, Identity, Mixing, PointMixing
from gpcde.model.model import Model

N, M, D = 14, 5, 3
VARIANCE, NOISE, JITTER = 1.4, 0.15, 1e-6
LENGTHSCALES = np.array([0.9, 1.2])


class Optimum(NamedTuple):
    """The bound with q(u) at its analytic optimum, and its derivatives by the model there."""

    terms: Terms
    gradient: Model


def optimum(model: Model, batch: Batch, draws: Draws, local: Array | None = None) -> Optimum:
    trainer = Trainer.create(len(batch.y))
    return _optimum(trainer, trainer.init(model, local=local), batch, draws)


@jax.jit
def _optimum(trainer: Trainer, state: State, batch: Batch, draws: Draws) -> Optimum:
    _, gradients = trainer.gradients(draws, state, batch)
    best = state.posterior.natural_step(gradients.coefficients, state.model.noise_variance, 1.0)
    terms, gradients = trainer.gradients(draws, eqx.tree_at(lambda s: s.posterior, state, best), batch)
    return Optimum(terms, gradients.learnt[0])


@jax.jit
def evaluate(model: Model, statistics: Statistics, batch: Batch, draws: Draws, local: Array | None = None) -> Terms:
    return evaluate_bound(model, statistics, batch, draws, batch.y.shape[0], local)


def data(seed: int, inputs: int, n: int = N, outputs: int = D) -> tuple[np.ndarray, np.ndarray, Batch]:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, inputs)), rng.normal(size=(n, outputs)) + 0.4
    return x, y, whole(make_inputs(x), y)


def make_model(latents: Latents, mixing: Mixing, input_map: InputMap, z: np.ndarray, jitter: float = JITTER) -> Model:
    kernel = RBF.create(z.shape[1], LENGTHSCALES[: z.shape[1]], VARIANCE)
    return Model(kernel, jnp.asarray(z), input_map, latents, mixing, ConstantNoise.create(NOISE), jitter=jitter)


def rbf(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    scale = LENGTHSCALES[: left.shape[1]]
    return VARIANCE * np.exp(-0.5 * (((left[:, None] - right) / scale) ** 2).sum(-1))


def no_draws(n: int = N) -> Draws:
    return Draws(jnp.zeros((n, 0)), jnp.zeros((n, 0, 0)))


MATRIX = np.array([[1.0, 0.8, -0.3, 0.5], [0.4, 1.1, 0.6, 0.2], [-0.5, 0.3, 0.9, 1.3]])


@pytest.mark.parametrize("columns", [0, 1, 2, 4])
def test_the_optimal_bound_is_the_dense_collapsed_bound(columns: int) -> None:
    """log N(vec Y | 0, Qff ⊗ PPᵀ + σ² I) - tr(PᵀP) tr(Kff - Qff) / 2σ²; no columns stand for P = I."""
    x, y, batch = data(0, 2)
    z = np.random.default_rng(1).normal(size=(M, 2))
    p = MATRIX[:, :columns] if columns else np.eye(D)
    mixing = PointMixing.create(p) if columns else Identity(D)
    model = make_model(NoLatents(), mixing, Concatenate(2), z)

    kzx = rbf(z, x)
    qff = kzx.T @ np.linalg.solve(rbf(z, z) + JITTER * VARIANCE * np.eye(M), kzx)
    covariance = np.kron(qff, p @ p.T) + NOISE * np.eye(N * D)
    trace = np.trace(p.T @ p) * (N * VARIANCE - np.trace(qff))
    expected = multivariate_normal.logpdf(y.ravel(), cov=covariance) - 0.5 * trace / NOISE
    np.testing.assert_allclose(optimum(model, batch, no_draws()).terms.bound, expected, rtol=1e-8)


def test_the_optimal_bound_with_an_uncertain_p_is_dense_gaussian_integration() -> None:
    """log ∫ p(v) exp E_q(P)[log p(Y | v, P)] dv - KL[q(P) || p(P)], Gaussian in the vector of all v."""
    x, y, batch = data(2, 2)
    rng = np.random.default_rng(3)
    z = rng.normal(size=(M, 2))
    mean, log_std, start, scale = MATRIX[:, :2], rng.normal(size=(D, 2)) - 1, 0.5 * MATRIX[:, 1:3], 0.7
    variance = np.exp(2 * log_std)
    mixing = GaussianMixing(*(jnp.asarray(a) for a in (mean, log_std, start, np.log(scale))))
    model = make_model(NoLatents(), mixing, Concatenate(2), z)

    lower = np.linalg.cholesky(rbf(z, z) + JITTER * VARIANCE * np.eye(M))
    a = np.linalg.solve(lower, rbf(z, x)).T
    second = mean.T @ mean + np.diag(variance.sum(0))
    precision = np.eye(2 * M) + np.kron(second, a.T @ a) / NOISE
    pull = (a.T @ y @ mean).T.ravel() / NOISE
    rest = np.sum(y**2) + np.trace(second) * (N * VARIANCE - np.sum(a**2))
    gaussian = 0.5 * pull @ np.linalg.solve(precision, pull) - 0.5 * np.linalg.slogdet(precision)[1]
    kl = 0.5 * np.sum((variance + (mean - start) ** 2) / scale**2 - 1 - np.log(variance / scale**2))
    expected = -0.5 * N * D * np.log(2 * np.pi * NOISE) - 0.5 * rest / NOISE + gaussian - kl
    np.testing.assert_allclose(optimum(model, batch, no_draws()).terms.bound, expected, rtol=1e-8)


@pytest.mark.filterwarnings("ignore")
def test_without_latents_value_and_gradient_are_those_of_gpjax_collapsed_bound() -> None:
    """With q(u) at its optimum, the derivatives with q(u) held fixed are those of the collapsed bound."""
    gpx = pytest.importorskip("gpjax")
    x, y, batch = data(4, 2, outputs=1)
    z = np.random.default_rng(5).normal(size=(M, 2))
    model = make_model(NoLatents(), Identity(1), Concatenate(2), z)

    def collapsed(log_scales: Array, log_variance: Array, z: Array, log_noise: Array) -> Array:
        kernel = gpx.kernels.RBF(lengthscale=jnp.exp(log_scales), variance=jnp.exp(log_variance))
        prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=kernel, jitter=JITTER * VARIANCE)
        joint = prior * gpx.likelihoods.Gaussian(obs_stddev=jnp.exp(0.5 * log_noise))
        q = gpx.variational_families.CollapsedVariationalGaussian(model=joint, inducing_inputs=z)
        return gpx.objectives.collapsed_elbo(q, gpx.Dataset(X=jnp.asarray(x), y=jnp.asarray(y)))

    assert isinstance(model.kernel, RBF)
    at = model.kernel.log_lengthscales, model.kernel.log_variance, model.inducing_points, jnp.log(model.noise_variance)
    value, (by_scales, by_variance, by_z, by_noise) = jax.jit(jax.value_and_grad(collapsed, argnums=(0, 1, 2, 3)))(*at)
    ours = optimum(model, batch, no_draws())
    np.testing.assert_allclose(ours.terms.bound, value, rtol=1e-8)
    assert isinstance(ours.gradient.kernel, RBF)
    np.testing.assert_allclose(ours.gradient.kernel.log_lengthscales, by_scales, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(ours.gradient.inducing_points, by_z, rtol=1e-7, atol=1e-9)
    assert isinstance(ours.gradient.likelihood, ConstantNoise)
    np.testing.assert_allclose(ours.gradient.likelihood.log_noise_variance, by_noise, rtol=1e-7)
    # our jitter grows with the variance, theirs is a number: 1e-6 of the bound's slope in it is what remains
    np.testing.assert_allclose(ours.gradient.kernel.log_variance, by_variance, rtol=1e-4)


def psi_statistics(mean: np.ndarray, covariance: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ψ1 (N × M) and Ψ2 (M × M, summed) by brute-force quadrature over each point's Gaussian."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(50)
    grid = np.stack([g.ravel() for g in np.meshgrid(nodes, nodes, indexing="ij")], 1)
    weight = np.outer(weights, weights).ravel() / weights.sum() ** 2
    psi1, psi2 = np.zeros((len(mean), len(z))), np.zeros((len(z), len(z)))
    for n, (centre, cov) in enumerate(zip(mean, covariance, strict=True)):
        rows = rbf(centre + grid @ np.linalg.cholesky(cov).T, z)
        psi1[n] = weight @ rows
        psi2 += (rows * weight[:, None]).T @ rows
    return psi1, psi2


@pytest.mark.parametrize("full", [False, True])
def test_without_inputs_it_is_the_bayesian_gplvm(full: bool) -> None:
    """The bound of Titsias & Lawrence (2010), eqs. 14 to 16, from dense formulas and brute-force Ψ statistics."""
    rng = np.random.default_rng(6)
    y, z = rng.normal(size=(N, D)), rng.normal(size=(M, 2))
    batch = whole(make_inputs(rows=N), y)
    local = rng.normal(size=(N, 5 if full else 4)) * np.array([1, 1, 0.3, 0.3, 0.3][: 5 if full else 4])
    local[:, 2:] -= 0.7
    mean = local[:, :2]
    if full:
        roots = np.zeros((N, 2, 2))
        roots[:, 0, 0], roots[:, 1, 0], roots[:, 1, 1] = np.exp(local[:, 2]), local[:, 3], np.exp(local[:, 4])
    else:
        roots = np.stack([np.diag(np.exp(row)) for row in local[:, 2:]])
    covariance = roots @ roots.transpose(0, 2, 1)
    model = make_model(GaussianLatents(None, 2, "closed", full=full), Identity(D), Concatenate(0), z)

    psi1, psi2 = psi_statistics(mean, covariance, z)
    gram, beta = rbf(z, z) + JITTER * VARIANCE * np.eye(M), 1 / NOISE
    inner = beta * psi2 + gram
    W = beta * np.eye(N) - beta**2 * psi1 @ np.linalg.solve(inner, psi1.T)
    logdets = 0.5 * (np.linalg.slogdet(gram)[1] - np.linalg.slogdet(inner)[1])
    one = 0.5 * N * np.log(beta / (2 * np.pi)) + logdets - 0.5 * beta * N * VARIANCE
    one += 0.5 * beta * np.trace(np.linalg.solve(gram, psi2))
    kl = 0.5 * sum(np.trace(c) + m @ m - 2 - np.linalg.slogdet(c)[1] for m, c in zip(mean, covariance, strict=True))
    expected = D * one - 0.5 * np.trace(y.T @ W @ y) - kl
    np.testing.assert_allclose(optimum(model, batch, no_draws(), jnp.asarray(local)).terms.bound, expected, rtol=1e-8)


def test_inducing_points_at_the_data_make_it_exact_regression() -> None:
    """Z = X: log N(Y | 0, Kff ⊗ PPᵀ + σ² I), the jitter apart."""
    x, y, _ = data(7, 2, n=8)
    batch = whole(make_inputs(2 * x), y)
    p = MATRIX[:, :2]
    model = make_model(NoLatents(), PointMixing.create(p), Concatenate(2), 2 * x, jitter=1e-11)
    covariance = np.kron(rbf(2 * x, 2 * x), p @ p.T) + NOISE * np.eye(8 * D)
    expected = multivariate_normal.logpdf(y.ravel(), cov=covariance)
    np.testing.assert_allclose(optimum(model, batch, no_draws(8)).terms.bound, expected, rtol=1e-8)


def test_outputs_that_share_nothing_add_up() -> None:
    """With P = I the bound of D outputs is the sum of D bounds; a diagonal P scales each output's kernel."""
    _, _, batch = data(8, 2)
    z = np.random.default_rng(9).normal(size=(M, 2))
    scales = np.array([1.0, 0.5, 2.0])

    def one(output: int, scale: float) -> float:
        single = make_model(NoLatents(), PointMixing.create([[scale]]), Concatenate(2), z)
        return float(optimum(single, batch._replace(y=batch.y[:, [output]]), no_draws()).terms.bound)

    together = make_model(NoLatents(), PointMixing.create(np.diag(scales)), Concatenate(2), z)
    expected = sum(one(i, scale) for i, scale in enumerate(scales))
    np.testing.assert_allclose(optimum(together, batch, no_draws()).terms.bound, expected, rtol=1e-10)
    plain = make_model(NoLatents(), Identity(D), Concatenate(2), z)
    expected = sum(one(i, 1.0) for i in range(D))
    np.testing.assert_allclose(optimum(plain, batch, no_draws()).terms.bound, expected, rtol=1e-10)


def test_a_rotation_of_the_functions_or_a_column_of_zeros_changes_nothing() -> None:
    """The f_l are alike a priori: P Q with QᵀQ = I is the same model, and so is [P, 0]."""
    _, _, batch = data(10, 1)
    z = np.random.default_rng(11).normal(size=(M, 2))
    turn = np.linalg.qr(np.random.default_rng(12).normal(size=(3, 3)))[0]
    latents = FreeForm.create(1, 20)
    start = Statistics(jnp.eye(M), jnp.asarray(np.random.default_rng(13).normal(size=(M, D))))
    bounds = []
    for p in (MATRIX[:, :3], MATRIX[:, :3] @ turn, np.hstack([MATRIX[:, :3], np.zeros((D, 1))])):
        model = make_model(latents, PointMixing.create(p), Concatenate(1), z)
        bounds.append(float(evaluate(model, start, batch, no_draws()).bound))
    np.testing.assert_allclose(bounds[1:], bounds[0], rtol=1e-10)


LIMITS: dict[str, Any] = {
    "free-form": lambda: FreeForm.create(1, 30),
    "draws": lambda: GaussianLatents(None, 1, "draws", 2),
    "closed": lambda: GaussianLatents(None, 1, "closed"),
    "importance": lambda: GaussianLatents(None, 1, "importance", 3),
}


@pytest.mark.parametrize("kind", LIMITS)
def test_latents_without_influence_leave_sparse_regression(kind: str) -> None:
    """An endless lengthscale along w, and q(w) = p(w) where it is not optimal by itself."""
    _, _, batch = data(14, 1)
    z = np.random.default_rng(15).normal(size=(M, 2))
    regression = make_model(NoLatents(), Identity(D), Concatenate(1), z[:, :1])
    expected = optimum(regression, batch, no_draws()).terms.bound

    model = make_model(LIMITS[kind](), Identity(D), Concatenate(1), z)
    model = eqx.tree_at(lambda m: m.kernel, model, RBF.create(2, [LENGTHSCALES[0], 1e7], VARIANCE))
    local = None if kind == "free-form" else jnp.zeros((N, 2))
    bound = optimum(model, batch, draw(jax.random.key(0), model, N), local).terms.bound
    np.testing.assert_allclose(bound, expected, rtol=1e-8)


@pytest.mark.parametrize("full", [False, True])
def test_a_narrow_q_of_w_is_regression_on_known_latents(full: bool) -> None:
    """Σ_n → 0: the data term of [x, w] with w = μ known, whether in closed form or by draws."""
    x, y, _ = data(16, 1)
    rng = np.random.default_rng(17)
    z, w = rng.normal(size=(M, 2)), rng.normal(size=(N, 1))
    batch = whole(make_inputs(x), y)
    known = whole(make_inputs(np.hstack([x, w])), y)
    statistics = Statistics(jnp.eye(M), jnp.asarray(rng.normal(size=(M, D))))
    plain = make_model(NoLatents(), Identity(D), Concatenate(2), z)
    expected = evaluate(plain, statistics, known, no_draws()).data
    local = jnp.asarray(np.hstack([w, np.full((N, 1), -12.0)]))
    kl = 0.5 * np.sum(w**2 + np.exp(-24.0) - 1 + 24.0)
    for latents in (GaussianLatents(None, 1, "closed", full=full), GaussianLatents(None, 1, "draws", 2, full=full)):
        model = make_model(latents, Identity(D), Concatenate(1), z)
        terms = evaluate(model, statistics, batch, draw(jax.random.key(1), model, N), local)
        np.testing.assert_allclose(terms.data, expected - kl, rtol=1e-4 if latents.expectation == "draws" else 1e-8)


def test_a_certain_a_is_regression_on_projected_inputs() -> None:
    """q(A) with no width: h = [A x, w], with KL[q(A) || p(A)] taken off."""
    x, _, batch = data(18, 3)
    rng = np.random.default_rng(19)
    z, A = rng.normal(size=(M, 2)), rng.normal(size=(3, 1))
    latents, log_std, prior_std = FreeForm.create(1, 20), -20.0, 1.7
    statistics = Statistics(jnp.eye(M), jnp.asarray(rng.normal(size=(M, D))))
    plain = make_model(latents, Identity(D), Concatenate(1), z)
    projected = batch._replace(x=jax.tree.map(jnp.asarray, make_inputs(x @ A)))
    expected = evaluate(plain, statistics, projected, no_draws())

    input_map = Project(jnp.asarray(A), jnp.full((3, 1), log_std), prior_std)
    model = make_model(latents, Identity(D), input_map, z)
    terms = evaluate(model, statistics, batch, draw(jax.random.key(2), model, N))
    np.testing.assert_allclose(terms.data, expected.data, rtol=1e-6)
    ratio = np.exp(2 * log_std) / prior_std**2
    kl = 0.5 * np.sum(A**2 / prior_std**2 + ratio - 1 - np.log(ratio))
    np.testing.assert_allclose(terms.bound - terms.data + terms.kl_u, -kl, rtol=1e-10)
    np.testing.assert_allclose(terms.kl_u, expected.kl_u, rtol=1e-12)


def test_a_sum_of_separate_models_is_a_block_diagonal_one() -> None:
    """Two far groups of data and inducing points do not know of each other: their bounds add up."""
    x, y, _ = data(20, 2, n=2 * N)
    z = np.random.default_rng(21).normal(size=(2 * M, 2))
    x[N:] += 100
    z[M:] += 100
    gram = rbf(z, z)
    np.testing.assert_allclose(gram, block_diag(gram[:M, :M], gram[M:, M:]), atol=1e-300)

    def bound(rows: slice, points: slice) -> float:
        count = len(x[rows])
        batch = whole(make_inputs(x[rows]), y[rows])
        model = make_model(NoLatents(), PointMixing.create(MATRIX[:, :2]), Concatenate(2), z[points])
        return float(optimum(model, batch, no_draws(count)).terms.bound)

    apart = bound(slice(0, N), slice(0, M)) + bound(slice(N, None), slice(M, None))
    np.testing.assert_allclose(bound(slice(None), slice(None)), apart, rtol=1e-8)
