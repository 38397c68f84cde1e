"""A trend is a kernel of the context, exactly: in the bound, in answers and in draws, at no cost for each latent."""

import dataclasses
import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from gpcde import GPCDE, Design
from gpcde.inference.bound import Batch, draw, evaluate_bound, evidence, whole
from gpcde.inference.posterior import Shared, Statistics, VariationalPosterior
from gpcde.inference.start import start
from gpcde.inference.training import State, Trainer, optimal_posterior
from gpcde.model import (
    RBF,
    Concatenate,
    ConstantNoise,
    FreeForm,
    GaussianLatents,
    Identity,
    Inputs,
    LinearTrend,
    Matern52,
    Model,
    NoLatents,
    NoTrend,
    SmoothTrend,
    Trend,
    VaryingNoise,
    make_inputs,
)
from gpcde.model.kernels import LARGER, LONGER, SPREAD, VARIANCE_SPREAD, Kernel
from gpcde.model.model import kernel_rows, separated
from gpcde.model.surfaces import Surface
from gpcde.model.trend import SMALL
from gpcde.prediction.paths import draw_path
from gpcde.prediction.predictor import Predictor
from small import ask, rows
from unseparated import Whole

N, NOISE, VARIANCE = 12, 0.2, 2.5
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=(N, 1))


bound = jax.jit(evaluate_bound)


def regression(trend: Trend, kernel: Kernel | None = None, jitter: float = 1e-12) -> tuple[Model, Batch]:
    """Sparse GP regression, its inducing inputs the inputs themselves."""
    kernel = RBF.create(2, [0.8, 1.3], 0.7) if kernel is None else kernel
    parts = Concatenate(2), NoLatents(), Identity(1), ConstantNoise.create(NOISE)
    return Model(kernel, jnp.asarray(X), *parts, trend=trend, jitter=jitter), whole(make_inputs(X), Y)


def covariance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The kernel's and the trend's, written out."""
    scaled = (a[:, None] - b) / np.array([0.8, 1.3])
    return 0.7 * np.exp(-0.5 * (scaled**2).sum(-1)) + VARIANCE * a @ b.T / 2


def at_optimum(model: Model, data: Batch) -> State:
    trainer = Trainer.create(N)
    return optimal_posterior(trainer, jax.random.key(0), trainer.init(model), data)


def test_the_bound_is_the_log_likelihood_of_the_sum_of_kernels() -> None:
    model, data = regression(LinearTrend.create(2, VARIANCE))
    state = at_optimum(model, data)
    terms = bound(model, state.posterior, data, draw(jax.random.key(0), model, N), float(N))
    expected = multivariate_normal.logpdf(Y[:, 0], np.zeros(N), covariance(X, X) + NOISE * np.eye(N))
    np.testing.assert_allclose(terms.bound + terms.penalty, expected, rtol=1e-7)
    np.testing.assert_allclose(terms.penalty, 0.5 * np.log(VARIANCE) ** 2, rtol=1e-12)


def test_a_linear_function_needs_no_inducing_inputs() -> None:
    """With next to no kernel and one inducing input, it is Bayesian linear regression."""
    parts = Concatenate(2), NoLatents(), Identity(1), ConstantNoise.create(NOISE)
    model = Model(RBF.create(2, variance=1e-12), jnp.zeros((1, 2)), *parts, trend=LinearTrend.create(2, VARIANCE))
    assert model.width == 3
    data = whole(make_inputs(X), Y)
    state = at_optimum(model, data)
    terms = bound(model, state.posterior, data, draw(jax.random.key(0), model, N), float(N))
    expected = multivariate_normal.logpdf(Y[:, 0], np.zeros(N), VARIANCE * X @ X.T / 2 + NOISE * np.eye(N))
    np.testing.assert_allclose(terms.bound + terms.penalty, expected, rtol=1e-7)


def test_answers_are_those_of_the_sum_of_kernels() -> None:
    model, data = regression(LinearTrend.create(2, VARIANCE))
    state = at_optimum(model, data)
    new = RNG.normal(size=(5, 2)) * 3
    cross, gram = covariance(new, X), covariance(X, X) + NOISE * np.eye(N)
    mean = cross @ np.linalg.solve(gram, Y[:, 0])
    variance = np.diag(covariance(new, new) - cross @ np.linalg.solve(gram, cross.T)) + NOISE
    y = RNG.normal(size=(5, 1))
    got = Predictor.create(model, state.posterior).log_density(make_inputs(new), y)
    np.testing.assert_allclose(got, norm.logpdf(y[:, 0], mean, np.sqrt(variance)), rtol=1e-6)


@pytest.mark.parametrize("whole_kernel", [False, True])
def test_rows_and_factors_are_the_covariances_with_u(whole_kernel: bool) -> None:
    """Whether or not the kernel separates: k(h, Z) and t(c), and on the diagonal the sum."""
    rbf = RBF.create(3)
    trend = LinearTrend.create(2, VARIANCE)
    parts = Concatenate(2), FreeForm.create(1, 4), Identity(1), ConstantNoise.create(NOISE)
    z = RNG.normal(size=(5, 3))
    model = Model(Whole(rbf) if whole_kernel else rbf, jnp.asarray(z), *parts, trend=trend)
    w = jnp.asarray(RNG.normal(size=(1, 4, 1)))
    found = ask(kernel_rows, model, jnp.asarray(X), w)
    got, diag = (a.reshape(N, 4, -1) for a in found.flat())
    h = np.concatenate([np.repeat(X[:, None], 4, axis=1), np.repeat(w, N, axis=0)], axis=2)
    linear = np.broadcast_to(np.sqrt(VARIANCE / 2) * X[:, None], (N, 4, 2))
    kernel = np.asarray(ask(rbf, jnp.asarray(h.reshape(-1, 3)), jnp.asarray(z))).reshape(N, 4, 5)
    np.testing.assert_allclose(got, np.concatenate([kernel, linear], axis=2), rtol=1e-11)
    np.testing.assert_allclose(diag[..., 0], 1 + (linear**2).sum(2), rtol=1e-11)
    factors = ask(separated, model, jnp.asarray(X), w)
    assert (factors is None) == whole_kernel
    if factors is not None:
        for one, other in zip(factors.rows().flat(), found.flat(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11)


def smooth(places: np.ndarray = X, jitter: float = 1e-12) -> SmoothTrend:
    """The kernel of `regression`, and a linear function."""
    kernel = RBF.create(2, [0.8, 1.3], 0.7)
    return SmoothTrend(kernel, jnp.asarray(places), LinearTrend.create(2, VARIANCE), jitter)


def test_a_smooth_trend_is_regression_with_its_kernel() -> None:
    """Beside next to no kernel; in the bound and in answers."""
    model, data = regression(smooth(), RBF.create(2, variance=1e-13))
    state = at_optimum(model, data)
    terms = bound(model, state.posterior, data, draw(jax.random.key(0), model, N), float(N))
    expected = multivariate_normal.logpdf(Y[:, 0], np.zeros(N), covariance(X, X) + NOISE * np.eye(N))
    np.testing.assert_allclose(terms.bound + terms.penalty, expected, rtol=1e-7)
    new, y = RNG.normal(size=(5, 2)) * 2, RNG.normal(size=(5, 1))
    plain, _ = regression(LinearTrend.create(2, VARIANCE))
    one, other = (
        Predictor.create(made, at_optimum(made, data).posterior).log_density(make_inputs(new), y)
        for made in (model, plain)
    )
    np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("whole_kernel", [False, True])
def test_with_latents_it_is_in_the_covariance_of_each(whole_kernel: bool) -> None:
    """The bound takes the trend apart, once a data point; here it is written into the rows of every latent."""
    places = RNG.normal(size=(4, 3))
    trend = smooth(RNG.normal(size=(3, 2)), 1e-6)
    kernel = RBF.create(3, [0.9, 1.1, 0.7], 0.4)
    parts = Concatenate(2), FreeForm.create(1, 6), Identity(1), ConstantNoise.create(NOISE)
    model = Model(Whole(kernel) if whole_kernel else kernel, jnp.asarray(places), *parts, trend=trend)
    root = RNG.normal(size=(model.width, 2 * model.width))
    posterior = Statistics(jnp.asarray(root @ root.T), jnp.asarray(RNG.normal(size=(model.width, 1))))
    data = whole(make_inputs(X), Y)
    w = jnp.asarray(RNG.normal(size=(1, 5, 1)))
    known = ask(evidence, model, posterior, data)
    rows, diag = (np.asarray(a) for a in ask(kernel_rows, model, jnp.asarray(X), w).flat())
    quadratic, pull = np.asarray(known.coefficients.quadratic), np.repeat(ask(known._pull), 5, axis=0)
    form = (rows * (pull + 0.5 * rows @ quadratic)).sum(1)
    expected = -0.5 * np.log(2 * np.pi * NOISE) + (form - 0.5 * (np.repeat(Y[:, 0], 5) ** 2 + diag[:, 0])) / NOISE
    np.testing.assert_allclose(ask(known.at, w).ravel(), expected, rtol=1e-9)
    log_weight = np.log(np.full((1, 5), 0.2))
    total = logsumexp(expected.reshape(N, 5) + log_weight, axis=1).sum()
    np.testing.assert_allclose(ask(known.log_sum, w, jnp.asarray(log_weight)), total, rtol=1e-9)


def test_a_full_natural_step_is_the_optimum_with_a_smooth_trend() -> None:
    """At known latents, a step of size 1 on all rows: no other q(u) near it has a higher bound."""
    model, data = regression(smooth(RNG.normal(size=(4, 2)), 1e-6), RBF.create(2, 0.5, 0.3))
    state = at_optimum(model, data)
    draws = draw(jax.random.key(0), model, N)
    posterior = state.posterior
    assert isinstance(posterior, Statistics)
    best = float(bound(model, posterior, data, draws, float(N)).bound)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        root = 0.1 * rng.normal(size=posterior.G.shape)
        other = Statistics(posterior.G + root @ root.T, posterior.H + 0.1 * rng.normal(size=posterior.H.shape))
        assert float(bound(model, other, data, draws, float(N)).bound) < best


@jax.jit
def drawn_functions(keys: jax.Array, model: Model, posterior: VariationalPosterior, x: Inputs) -> jax.Array:
    draw_one = inspect.unwrap(draw_path)  # compiled together with the loop
    return jax.lax.map(lambda key: draw_one(key, model, posterior).functions(x, jnp.zeros((1, 0))), keys)


@pytest.mark.parametrize("kind", ["linear", "smooth"])
def test_functions_drawn_have_the_trend_too(kind: str) -> None:
    """Mean and variance of draws at points far out, where the linear trend is nearly all there is; and near."""
    if kind == "linear":
        model, data = regression(LinearTrend.create(2, VARIANCE), jitter=1e-8)
    else:
        model, data = regression(smooth(X, 1e-8), RBF.create(2, variance=1e-10), jitter=1e-8)
    state = at_optimum(model, data)
    new = np.array([[6.0, -4.0], [-5.0, 5.0], [0.5, -1.5]])
    cross, gram = covariance(new, X), covariance(X, X) + NOISE * np.eye(N)
    mean = cross @ np.linalg.solve(gram, Y[:, 0])
    spread = np.sqrt(np.diag(covariance(new, new) - cross @ np.linalg.solve(gram, cross.T)))
    keys = jax.random.split(jax.random.key(1), 400)
    f = np.asarray(drawn_functions(keys, model, state.posterior, make_inputs(new)))[:, :, 0, 0]
    assert (np.abs(f.mean(0) - mean) < 5 * spread / 20).all()
    np.testing.assert_allclose(f.std(0), spread, rtol=0.2)


def test_a_small_one_has_next_to_nothing_in_it() -> None:
    """To begin with: it is learnt like any other. What has no size stays."""
    left = jnp.asarray(np.random.default_rng(0).standard_normal((5, 2)))
    trend = LinearTrend.create(2, VARIANCE)
    np.testing.assert_allclose(trend.small().rows(left), trend.rows(left) * np.sqrt(SMALL / VARIANCE), rtol=1e-12)
    assert float(trend.small().penalty()) > float(trend.penalty())
    assert NoTrend().small().width == 0


def test_no_trend_is_no_trend() -> None:
    """A trend of no variance changes nothing but the numbers that q(u) has."""
    (none, data), (small, _) = regression(NoTrend(), jitter=1e-6), regression(LinearTrend.create(2, 1e-14), jitter=1e-6)
    bounds = []
    for model in (none, small):
        state = at_optimum(model, data)
        terms = bound(model, state.posterior, data, draw(jax.random.key(0), model, N), float(N))
        bounds.append(float(terms.bound + terms.penalty))
        assert isinstance(state.posterior, Statistics)
        assert len(state.posterior.G) == N + model.trend.width
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-9)


def test_closed_form_expectations_refuse_a_trend() -> None:
    latents = GaussianLatents(None, 1, "closed", 1, False)
    parts = Concatenate(2), latents, Identity(1), ConstantNoise.create(NOISE)
    model = Model(RBF.create(3), jnp.zeros((1, 3)), *parts, trend=LinearTrend.create(2))
    local = jnp.zeros((N, latents.local_dim))
    data, draws = whole(make_inputs(X), Y), draw(jax.random.key(0), model, N)
    with pytest.raises(NotImplementedError, match="have no trend, but the model has a LinearTrend"):
        evaluate_bound(model, Statistics.prior(3, 1), data, draws, N, local)


def log_normal(value: Any, median: Any, spread: float, above: float | None = None) -> float:
    """Two halves of normal ones where there is a spread above the median, each as high there as the other."""
    gap = np.log(value) - np.log(median)
    scaled = np.where(gap > 0, gap / (above or spread), gap / spread)
    return float(norm.logpdf(scaled).sum())


@pytest.mark.parametrize("kind", [RBF, Matern52])
@pytest.mark.parametrize("variance", [1.7, 0.6])
def test_believed_lengthscales_have_a_prior_that_is_wider_above(
    kind: type[RBF] | type[Matern52], variance: float
) -> None:
    """Differences of penalties are those of log densities; without beliefs there are none."""
    kernel = kind.create(2, [0.5, 2.0], believed=True)
    assert float(kernel.penalty()) == 0
    other = kind(kernel.dims, jnp.log(variance), jnp.log(jnp.asarray([0.9, 1.1])), kernel.believed)
    spreads = SPREAD, LONGER
    expected = log_normal([0.5, 2.0], [0.5, 2.0], *spreads) - log_normal([0.9, 1.1], [0.5, 2.0], *spreads)
    of_variance = 0.5 * (np.log(variance) / (LARGER if variance > 1 else VARIANCE_SPREAD)) ** 2
    np.testing.assert_allclose(other.penalty(), expected + of_variance, rtol=1e-11)
    assert float(kind(kernel.dims, other.log_variance, other.log_lengthscales).penalty()) == 0
    np.testing.assert_allclose((other * RBF.create((2,))).penalty(), other.penalty())
    np.testing.assert_allclose((other + RBF.create((2,))).penalty(), other.penalty())


def test_a_believed_kernel_of_the_latents_goes_on_believing() -> None:
    kernel = RBF.create(2, [0.5, 2.0], believed=True).extended(2, 1, 0.7)
    assert isinstance(kernel, RBF)
    assert kernel.believed == (0.5, 2.0, 0.7)
    assert float(kernel.penalty()) == pytest.approx(0)


def test_believed_noise_has_a_log_normal_prior() -> None:
    surface = Surface.create(jax.random.key(0), 1, 1, 1, 1.0)
    for noise in (ConstantNoise(jnp.zeros(()), believed=0.1), VaryingNoise(jnp.zeros(()), surface, believed=0.1)):
        one, less = noise.with_noise_variance(1.0), noise.with_noise_variance(0.3)
        expected = log_normal(0.3, 0.1, 1.5) - log_normal(1.0, 0.1, 1.5)
        np.testing.assert_allclose(one.penalty() - less.penalty(), expected, rtol=1e-10)
    assert float(ConstantNoise(jnp.zeros(())).penalty()) == 0


def test_a_design_says_so() -> None:
    """By name or as it is; no inputs, no trend."""
    X, y = rows()
    design = Design(inducing=6, points=8, rule="even", trials=1, trend="linear", beliefs=True)
    linear = dataclasses.replace(design, inference="none")  # which is quick to compile
    model = GPCDE(design=linear, max_steps=5, random_state=0).fit(X, y).state_.model
    assert isinstance(model.trend, LinearTrend)
    assert model.trend.dim == X.shape[1]
    smooth = dataclasses.replace(design, trend="smooth", first_inducing=7)
    other = start(jax.random.key(0), make_inputs(X), (y - y.mean())[:, None] / y.std(), smooth).model
    assert isinstance(other.kernel, RBF)
    assert other.kernel.believed == (2**0.5, 2**0.5, 1.0)
    assert isinstance(other.trend, SmoothTrend)
    assert other.trend.inducing_points.shape == (7, 2)
    assert other.width == 6 + 7 + 2
    assert isinstance(design.make_trend(0), NoTrend)
    assert design.make_trend(3).width == 3
    with pytest.raises(ValueError, match="trend must be one of"):
        Design(trend="quadratic")


def test_derivatives_by_a_smooth_trend_are_finite_differences() -> None:
    """Along random directions of all numbers of the model, q(u) held fixed."""
    kernel, trend = RBF.create(3, [0.9, 1.1, 0.7], 0.4), smooth(RNG.normal(size=(3, 2)), 1e-6)
    parts = Concatenate(2), FreeForm.create(1, 6), Identity(1), ConstantNoise.create(NOISE)
    model = Model(kernel, jnp.asarray(RNG.normal(size=(4, 3))), *parts, trend=trend)
    q = Shared(jnp.asarray(RNG.normal(size=(model.width, 1))), 0.5 * jnp.eye(model.width))
    data, draws = whole(make_inputs(X), Y), draw(jax.random.key(0), model, N)

    @jax.jit
    def value(model: Model) -> jax.Array:
        return evaluate_bound(model, q, data, draws, N).bound

    slope = jax.jit(jax.grad(value))(model)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        way = jax.tree.map(lambda a, rng=rng: jnp.asarray(rng.normal(size=a.shape)), model.trend)
        ends = [
            float(value(eqx.tree_at(lambda m: m.trend, model, jax.tree.map(lambda a, d, s=s: a + s * d, trend, way))))
            for s in (1e-5, -1e-5)
        ]
        along = sum(float(jnp.sum(a * b)) for a, b in zip(*map(jax.tree.leaves, (slope.trend, way)), strict=True))
        assert along == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)
