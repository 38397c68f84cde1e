"""Noise σ² I + τ² P Pᵀ: bound, natural steps and predictions against dense Gaussians with that covariance."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from gpcde.inference.bound import Batch, Draws, Terms, evaluate_bound, whole
from gpcde.inference.posterior import VariationalPosterior
from gpcde.inference.training import State, Trainer
from gpcde.model.input_maps import Concatenate
from gpcde.model.inputs import make_inputs
from gpcde.model.kernels import RBF
from gpcde.model.latents import NoLatents
from gpcde.model.likelihood import ConstantNoise, Likelihood, MixedNoise
from gpcde.model.mixing import ConjugateMixing, Dimmed, Identity, Mixing, PointMixing
from gpcde.model.model import Model
from gpcde.prediction.nodes import Nodes
from gpcde.prediction.paths import draw_path
from gpcde.prediction.predictor import Predictor

N, D, L, VARIANCE, NOISE, OWN = 8, 3, 2, 1.3, 0.3, 0.7
P = np.array([[1.0, 0.8], [0.4, 1.1], [-0.5, 0.3]])
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(N, 1)), RNG.normal(size=(N, D)) + 0.4


def conjugate() -> ConjugateMixing:
    spread = jnp.asarray([[0.2, 0.05], [0.05, 0.1]])
    return ConjugateMixing.of(jnp.asarray(P), spread, jnp.asarray(P) - 0.1, jnp.log(jnp.asarray(0.4)))


MIXINGS: dict[str, Callable[[], Mixing]] = {
    "P": lambda: PointMixing.create(P),
    "identity": lambda: Identity(D),
    "uncertain": conjugate,
}
KNOWN = {"P": P, "identity": np.eye(D)}


def make_model(mixing: Mixing, noise: Likelihood | None = None, places: np.ndarray = X) -> Model:
    kernel, noise = RBF.create(1, 0.9, VARIANCE), noise or MixedNoise.create(NOISE, OWN)
    return Model(kernel, jnp.asarray(places), Concatenate(1), NoLatents(), mixing, noise, jitter=1e-10)


def rbf(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return VARIANCE * np.exp(-0.5 * ((left - right.T) / 0.9) ** 2)


BATCH = whole(make_inputs(X), Y)


def no_draws() -> Draws:
    return Draws(jnp.zeros((N, 0)), jnp.zeros((N, 0, 0)))


@jax.jit
def terms_of(model: Model, posterior: VariationalPosterior, batch: Batch) -> Terms:
    return evaluate_bound(model, posterior, batch, no_draws(), N)


@jax.jit
def stepped(trainer: Trainer, state: State, batch: Batch) -> tuple[VariationalPosterior, Mixing]:
    """q(u) and q(P), each after a whole natural step of its own."""
    _, gradients = trainer.gradients(no_draws(), state, batch)
    posterior = state.posterior.natural_step(gradients.coefficients, state.model.noise_variance, 1.0)
    return posterior, state.model.mixing.natural_step(gradients.learnt[0].mixing, 1.0)


def optimal(model: Model) -> VariationalPosterior:
    trainer = Trainer.create(N)
    return stepped(trainer, trainer.init(model), BATCH)[0]


@pytest.mark.parametrize("name", KNOWN)
def test_with_all_inputs_inducing_the_bound_is_the_evidence(name: str) -> None:
    """log N(y | 0, K ⊗ P Pᵀ + I ⊗ (σ² I + τ² P Pᵀ)) after one whole natural step of q(u)."""
    model, p = make_model(MIXINGS[name]()), KNOWN[name]
    noise = NOISE * np.eye(D) + OWN * p @ p.T
    covariance = np.kron(rbf(X, X), p @ p.T) + np.kron(np.eye(N), noise)
    expected = multivariate_normal.logpdf(Y.ravel(), np.zeros(N * D), covariance)
    np.testing.assert_allclose(terms_of(model, optimal(model), BATCH).bound, expected, rtol=1e-7)


def test_without_noise_of_their_own_it_is_constant_noise() -> None:
    places = X[:3]
    few, none = make_model(conjugate(), MixedNoise.create(NOISE, 1e-12), places), ConstantNoise.create(NOISE)
    plain = make_model(conjugate(), none, places)
    q = optimal(plain)
    np.testing.assert_allclose(terms_of(few, q, BATCH).bound, terms_of(plain, q, BATCH).bound, rtol=1e-9)


@pytest.mark.parametrize("name", ["P", "uncertain"])
def test_a_dimmed_mixing_is_the_integral_over_the_noise_of_the_functions(name: str) -> None:
    """log ∫ N(ε; 0, I) exp(E_q(P) log N(y | P (f + τ ε), σ² I)) dε, by quadrature in both ε."""
    mixing = MIXINGS[name]()
    f, y = np.array([0.4, -0.7]), Y[0]
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    draws = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)
    log_weight = np.log(np.outer(weights, weights).ravel() / weights.sum() ** 2)
    g = f + np.sqrt(OWN) * draws
    mean = g @ P.T
    squares = (y**2).sum() - 2 * mean @ y + ((g @ np.asarray(mixing.second_moment())) * g).sum(1)
    expected = logsumexp(log_weight - 0.5 * squares / NOISE)
    seen = Dimmed.create(mixing, jnp.asarray(OWN / NOISE))
    left = seen.squares(jnp.asarray(y[None]))[0] - 2 * y @ seen.apply(jnp.asarray(f)) + f @ seen.second_moment() @ f
    np.testing.assert_allclose(-0.5 * (seen.log_det() + left / NOISE), expected, rtol=1e-8)
    values, vectors = seen.eigh()
    np.testing.assert_allclose((vectors * values) @ vectors.T, seen.second_moment(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(seen.into(jnp.eye(D)), seen.apply(jnp.eye(L)).T, rtol=1e-12)


@pytest.mark.parametrize("name", ["P", "uncertain"])
def test_derivatives_are_those_of_the_dense_formulas(name: str) -> None:
    """By P (its mean and second moment) and by ρ, though no eigenvector is differentiated."""
    m, y, turn = jnp.asarray(X[:3] * [1.0, -0.4]), jnp.asarray(Y), jnp.asarray(np.linalg.qr(P[:2])[0])

    def answers(q: Mixing) -> jax.Array:
        parts = q.apply(m), q.quadratic(m), q.second_moment(), q.along(turn), q.trace(), q.squares(y), q.log_det()
        return sum((jnp.sum(jnp.sin(1 + a)) for a in parts), jnp.zeros(()))

    def dense(q: Mixing, ratio: jax.Array) -> jax.Array:
        R, p = q.second_moment(), q.apply(jnp.eye(L)).T
        psi = jnp.linalg.inv(jnp.eye(L) + ratio * R)
        seen, pull = R @ psi, y @ p
        squares = (y**2).sum(1) - ratio * ((pull @ psi) * pull).sum(1)
        along, log_det = jnp.diagonal(turn.T @ seen @ turn), -jnp.linalg.slogdet(psi)[1]
        parts = m @ psi @ p.T, m @ seen @ m.T, seen, along, jnp.trace(seen), squares, log_det
        return sum((jnp.sum(jnp.sin(1 + a)) for a in parts), jnp.zeros(()))

    at = MIXINGS[name](), jnp.asarray(OWN / NOISE)
    ours = jax.jit(jax.grad(lambda at: answers(Dimmed.create(*at))))(at)
    theirs = jax.jit(jax.grad(lambda at: dense(*at)))(at)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        symmetric = (lambda a: a + a.T) if one.shape == (L, L) else (lambda a: a)
        np.testing.assert_allclose(symmetric(one), symmetric(other), rtol=1e-9, atol=1e-12)


def test_natural_steps_never_lower_the_bound() -> None:
    """Given q(u), and the noise of the functions at its optimum: steps of both in turn never lower the bound."""
    model, trainer = make_model(conjugate(), places=X[:4]), Trainer.create(N)
    q = optimal(model)
    bounds = [float(terms_of(model, q, BATCH).bound)]
    for _ in range(30):
        q, _ = stepped(trainer, trainer.init(model, q), BATCH)
        bounds.append(float(terms_of(model, q, BATCH).bound))
        model = make_model(stepped(trainer, trainer.init(model, q), BATCH)[1], places=X[:4])
    assert (np.diff(bounds) > -1e-6 * abs(bounds[-1])).all()
    assert bounds[-1] > bounds[0] + 0.5


@pytest.mark.parametrize("name", KNOWN)
def test_predictions_have_the_noise_of_the_functions(name: str) -> None:
    """The predictive of regression with that noise: P K P' and the covariance of the noise."""
    model, p = make_model(MIXINGS[name]()), KNOWN[name]
    new = np.array([[0.3], [1.7]])
    noise = NOISE * np.eye(D) + OWN * p @ p.T
    known = np.kron(rbf(X, X), p @ p.T) + np.kron(np.eye(N), noise)
    cross, own = np.kron(rbf(new, X), p @ p.T), VARIANCE * p @ p.T + noise
    mean = (cross @ np.linalg.solve(known, Y.ravel())).reshape(2, D)
    predictor = Predictor.create(model, optimal(model), Nodes.for_model(model))
    y = RNG.normal(size=(2, D))
    expected = []
    for n in range(2):
        rows = slice(n * D, (n + 1) * D)
        covariance = own - cross[rows] @ np.linalg.solve(known, cross[rows].T)
        expected.append(multivariate_normal.logpdf(y[n], mean[n], covariance))
    np.testing.assert_allclose(predictor.log_density(make_inputs(new), y), expected, rtol=1e-6)


@pytest.mark.parametrize("name", KNOWN)
def test_a_drawn_density_has_that_noise_alone(name: str) -> None:
    model, p = make_model(MIXINGS[name]()), KNOWN[name]
    path, x = draw_path(jax.random.key(0), model, optimal(model)), make_inputs(X[:1])
    f = np.asarray(path.functions(jax.tree.map(jnp.asarray, x), jnp.zeros((1, 0))))[0, 0]
    expected = multivariate_normal.logpdf(Y[0], p @ f, NOISE * np.eye(D) + OWN * p @ p.T)
    np.testing.assert_allclose(path.components(x).log_pdf(Y[:1, None])[0, 0], expected, rtol=1e-9)
