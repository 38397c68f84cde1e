"""The bound: brute force, orderings between the kinds of q(w), expectations over batches, draws and A, derivatives."""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float
from scipy.linalg import solve_triangular
from scipy.special import logsumexp, ndtri
from scipy.stats import multivariate_normal, norm

from gpcde.inference.bound import Batch, Draws, Terms, draw, evaluate_bound, whole
from gpcde.inference.posterior import Coefficients, Shared, SparsePosterior, Statistics
from gpcde.model.input_maps import Concatenate, InputMap, Project, Warp
from gpcde.model.inputs import Inputs, make_inputs
from gpcde.model.kernels import RBF, Kernel, Linear, Matern32, Matern52, Polynomial
from gpcde.model.latents import FreeForm, GaussianLatents, Latents, NoLatents
from gpcde.model.likelihood import ConstantNoise, Likelihood
from gpcde.model.mixing import GaussianMixing, Identity, Mixing, PointMixing
from gpcde.model.model import Model, separated
from gpcde.model.prior import LatentPrior, StandardNormal
from gpcde.runtime.precision import wide
from small import ask
from unseparated import Whole
from varying import Moved, OfBoth, OfInput

N, M, D = 12, 5, 3
LENGTHSCALES, VARIANCE, NOISE = np.array([0.9, 1.1]), 1.3, 0.3
MATRIX = np.array([[1.0, 0.8], [0.4, 1.1], [-0.5, 0.3]])

Expectation = Literal["draws", "closed", "importance"]


class Derivatives(eqx.Module):
    """Of the bound: by the model, by each point's q(w), and by the coefficients of q(u)."""

    model: Model
    local: Float[Array, "n p"] | None
    nudge: Coefficients


@jax.jit
def bound_and_derivatives(
    model: Model,
    posterior: Statistics | Shared,
    batch: Batch,
    draws: Draws,
    local: Array | None = None,
    n_data: Array | None = None,
) -> tuple[Terms, Derivatives]:
    m, outputs = len(model.inducing_points), batch.y.shape[1]
    rows = jnp.asarray(float(batch.y.shape[0])) if n_data is None else n_data

    def objective(by: Derivatives) -> tuple[Array, Terms]:
        terms = evaluate_bound(by.model, posterior, batch, draws, rows, by.local, by.nudge)
        return terms.bound, terms

    at = Derivatives(model, local, Coefficients(jnp.zeros((m, m)), jnp.zeros((m, outputs))))
    (_, terms), derivatives = jax.value_and_grad(objective, has_aux=True)(at)
    return terms, derivatives


@jax.jit
def terms_of(model: Model, posterior: Statistics, batch: Batch, draws: Draws, local: Array | None = None) -> Terms:
    return evaluate_bound(model, posterior, batch, draws, batch.y.shape[0], local)


@jax.jit
def replicate_bounds(
    model: Model, posterior: Statistics, batch: Batch, draws: Draws, local: Array | None = None
) -> Float[Array, " r"]:
    """The bound for each of many sets of draws (a first axis of them)."""
    return jax.vmap(lambda one: evaluate_bound(model, posterior, batch, one, len(batch.y), local).bound)(draws)


def make_draws(seed: int, model: Model, rows: int = N, replicates: tuple[int, ...] = ()) -> Draws:
    rng = np.random.default_rng([seed, 5])
    context = rng.normal(size=(*replicates, rows, model.input_map.draw_dim))
    return Draws(jnp.asarray(context), jnp.asarray(rng.normal(size=(*replicates, rows, *model.latents.draw_shape))))


def make_model(
    latents: Latents,
    seed: int = 0,
    noise: float | Likelihood = NOISE,
    input_map: InputMap | None = None,
    prior: LatentPrior | None = None,
) -> Model:
    """Two columns into an RBF kernel (one input and one latent, unless there is another map), P not orthogonal."""
    z = np.random.default_rng([seed, 1]).normal(size=(M, 2))
    return Model(
        RBF.create(2, LENGTHSCALES, VARIANCE),
        jnp.asarray(z),
        input_map or Concatenate(2 - latents.dim),
        latents,
        PointMixing.create(MATRIX),
        noise if isinstance(noise, Likelihood) else ConstantNoise.create(noise),
        prior or StandardNormal(),
    )


def make_batch(seed: int, inputs: int = 1, rows: int = N, outputs: int = D) -> Batch:
    rng = np.random.default_rng([seed, 2])
    x, y = rng.normal(size=(rows, inputs)), rng.normal(size=(rows, outputs)) + 0.4
    return whole(make_inputs(x), y)


def make_statistics(seed: int, m: int = M, outputs: int = D) -> Statistics:
    rng = np.random.default_rng([seed, 3])
    a = rng.normal(size=(8, m))
    return Statistics(jnp.asarray(a.T @ a), jnp.asarray(a.T @ rng.normal(size=(8, outputs))))


def make_local(seed: int, rows: int = N) -> np.ndarray:
    """Means and log standard deviations of one-dimensional q(w_n)."""
    rng = np.random.default_rng([seed, 4])
    return np.stack([rng.normal(size=rows), 0.4 * rng.normal(size=rows) - 0.6], 1)


def log_likelihoods(model: Model, statistics: Statistics, batch: Batch, w: np.ndarray) -> np.ndarray:
    """L_nk = E_q(f) log N(y_n | P f(x_n, w_k), σ² s_nk I), from the dense posterior of all outputs."""
    x, y, z = (np.asarray(a) for a in (batch.x.dense, batch.y, model.inducing_points))
    noise = float(model.noise_variance)
    h = np.hstack([np.repeat(x, len(w), axis=0), np.tile(w, (len(y), 1))])

    def kernel(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return VARIANCE * np.exp(-0.5 * (((left[:, None] - right) / LENGTHSCALES) ** 2).sum(-1))

    lower = np.linalg.cholesky(kernel(z, z) + model.jitter * VARIANCE * np.eye(len(z)))
    a = solve_triangular(lower, kernel(z, h), lower=True).T
    width = MATRIX.shape[1]
    second = MATRIX.T @ MATRIX
    covariance = np.linalg.inv(np.eye(width * len(z)) + np.kron(second, np.asarray(statistics.G)) / noise)
    mean = (covariance @ (np.asarray(statistics.H) @ MATRIX).T.ravel() / noise).reshape(width, -1)
    blocks = covariance.reshape(width, len(z), width, len(z))
    spread = np.einsum("rm,lmji,ri,lj->r", a, blocks, a, second) + np.trace(second) * (VARIANCE - (a * a).sum(1))
    residual = np.repeat(y, len(w), axis=0) - a @ mean.T @ MATRIX.T
    squares = ((residual**2).sum(1) + spread).reshape(len(y), -1)
    s = scales(model.likelihood, x, w)
    return -0.5 * (y.shape[1] * np.log(2 * np.pi * noise * s) + squares / (noise * s))


def scales(likelihood: Likelihood, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """s(x_n, w_k), from its definition."""
    if isinstance(likelihood, OfBoth):
        return np.exp(0.3 * x[:, :1] + 0.2 * w[:, 0])
    return np.exp(0.3 * x[:, :1]) if isinstance(likelihood, OfInput) else np.ones((1, 1))


# The free-form bound


@pytest.mark.parametrize(("dim", "rows"), [(1, 60), (2, N)])
def test_the_free_form_bound_is_a_sum_of_log_sums(dim: int, rows: int) -> None:
    """sum_n log sum_q π_q exp(L_nq), in more than one block of points where there are 60."""
    model, statistics = make_model(FreeForm.create(dim, 100 if dim == 1 else 12)), make_statistics(0)
    batch = make_batch(0, 2 - dim, rows)
    assert isinstance(model.latents, FreeForm)
    nodes, log_weights = np.asarray(model.latents.nodes), np.asarray(model.latents.log_weights)
    expected = logsumexp(log_likelihoods(model, statistics, batch, nodes) + log_weights, axis=1).sum()
    terms = terms_of(model, statistics, batch, make_draws(0, model, rows))
    np.testing.assert_allclose(terms.data, expected, rtol=1e-9)
    np.testing.assert_allclose(terms.bound, terms.data - terms.kl_u - terms.penalty, rtol=1e-14)


GRID = np.linspace(-12, 12, 6001)[:, None]


def test_where_noise_and_prior_vary_the_free_form_bound_is_brute_force_quadrature() -> None:
    """sum_n log ∫ exp(L_n(w)) N(w | c x_n, 1) dw with σ² s(x_n, w) in L, on a fine grid."""
    model = make_model(FreeForm.create(1, 100), 2, OfBoth.create(1.0), prior=Moved.create(0.7))
    batch, statistics = make_batch(2), make_statistics(2)
    log_prior = norm.logpdf(GRID[:, 0], 0.7 * np.asarray(batch.x.dense))
    logs = log_likelihoods(model, statistics, batch, GRID) + log_prior
    expected = (logsumexp(logs, axis=1) + np.log(GRID[1, 0] - GRID[0, 0])).sum()
    np.testing.assert_allclose(terms_of(model, statistics, batch, make_draws(2, model)).data, expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["rbf", "product", "project", "varying"])
def test_separating_the_kernel_changes_neither_bound_nor_derivatives(kind: str) -> None:
    """The first of them in more than one block of points; the last where noise and prior vary."""
    rng = np.random.default_rng(1)
    rows, points = (60, 100) if kind == "rbf" else (N, 30)
    batch, statistics = make_batch(1, 3 if kind == "project" else 1, rows), make_statistics(1)
    input_map = Project(jnp.asarray(rng.normal(size=(3, 1))), jnp.full((3, 1), -1.0)) if kind == "project" else None
    model = make_model(FreeForm.create(1, points), 1, input_map=input_map)
    if kind == "product":
        # a kernel diagonal that differs from point to point, and from node to node
        left, right = Matern32.create((0,)) + Linear.create((0,)), Linear.create((1,), 0.4) + Matern52.create((1,))
        model = eqx.tree_at(lambda m: m.kernel, model, left * right)
    if kind == "varying":
        model = make_model(model.latents, 1, OfBoth.create(NOISE), prior=Moved.create())
        batch = batch._replace(weight=jnp.linspace(0.0, 2.0, rows))
    draws = make_draws(1, model, rows)
    opaque = eqx.tree_at(lambda m: m.kernel, model, Whole(model.kernel))
    assert isinstance(model.latents, FreeForm)
    context = jax.eval_shape(model.input_map.context, batch.x, draws.context)
    assert jax.eval_shape(separated, model, context, model.latents.nodes[None]) is not None
    assert jax.eval_shape(separated, opaque, context, model.latents.nodes[None]) is None

    terms, derivatives = bound_and_derivatives(model, statistics, batch, draws)
    expected_terms, expected = bound_and_derivatives(opaque, statistics, batch, draws)
    np.testing.assert_allclose(terms.bound, expected_terms.bound, rtol=1e-10)
    for one, other in zip(jax.tree.leaves(derivatives), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("varies", [False, True], ids=["constant", "varying"])
def test_what_free_form_gains_over_a_gaussian_is_the_divergence_between_them(varies: bool) -> None:
    """free-form - ELBO(q) = sum_n KL[q(w_n) || q*(w_n)], q* ∝ exp(L_wn) p(w_n|x_n), on a fine grid."""
    batch, statistics, local = make_batch(2), make_statistics(2), make_local(2)
    likelihood = OfInput.create(1.0) if varies else ConstantNoise.create(1.0)
    prior = Moved.create(0.7) if varies else StandardNormal()
    free = make_model(FreeForm.create(1, 100), 2, likelihood, prior=prior)
    gaussian = make_model(GaussianLatents(None, 1, "closed"), 2, likelihood, prior=prior)
    draws = make_draws(2, free)
    best = terms_of(free, statistics, batch, draws)
    bound = terms_of(gaussian, statistics, batch, draws, jnp.asarray(local))

    step = GRID[1, 0] - GRID[0, 0]
    log_prior = norm.logpdf(GRID[:, 0], varies * 0.7 * np.asarray(batch.x.dense))
    log_optimum = log_likelihoods(free, statistics, batch, GRID) + log_prior
    log_optimum -= logsumexp(log_optimum, axis=1, keepdims=True) + np.log(step)
    standardised = (GRID[:, 0] - local[:, :1]) * np.exp(-local[:, 1:])
    log_q = -0.5 * standardised**2 - local[:, 1:] - 0.5 * np.log(2 * np.pi)
    divergence = (np.exp(log_q) * (log_q - log_optimum)).sum() * step
    np.testing.assert_allclose(best.bound - bound.bound, divergence, rtol=1e-8)


@given(seed=st.integers(0, 10**6), noise=st.floats(0.1, 2.0), means=st.floats(0.0, 2.0), log_scale=st.floats(-3.0, 0.3))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_no_gaussian_is_better_than_free_form(seed: int, noise: float, means: float, log_scale: float) -> None:
    batch, statistics, local = make_batch(seed), make_statistics(seed), make_local(seed)
    local = local * np.array([means, 0.5]) + np.array([0.0, log_scale])
    free = make_model(FreeForm.create(1, 100), seed, noise)
    gaussian = make_model(GaussianLatents(None, 1, "closed"), seed, noise)
    none = make_draws(0, free)
    best = terms_of(free, statistics, batch, none)
    bound = terms_of(gaussian, statistics, batch, none, jnp.asarray(local))
    assert float(best.bound) >= float(bound.bound) - 1e-7 * abs(float(bound.bound))


def test_bounds_at_shifted_nodes_average_to_the_integral() -> None:
    """So few nodes that one set of them is off; the average of logs stays below the log of the average."""
    batch, statistics = make_batch(3), make_statistics(3)
    free, shifted = make_model(FreeForm.create(1, 100), 3), make_model(FreeForm.create(1, 10, "even", shifted=True), 3)
    exact = float(terms_of(free, statistics, batch, make_draws(0, free)).bound)
    count = 64
    places = jnp.asarray(ndtri(np.append((np.arange(count) + 0.5) / count, 0.5)))
    draws = Draws(jnp.zeros((count + 1, N, 0)), jnp.broadcast_to(places[:, None, None, None], (count + 1, N, 1, 1)))
    *bounds, once = np.asarray(replicate_bounds(shifted, statistics, batch, draws)) - exact
    assert np.abs(bounds).max() > 2 * abs(np.mean(bounds))
    assert 0 < -np.mean(bounds) < 0.5 * abs(once)


@pytest.mark.parametrize("part", ["likelihood", "prior"])
def test_closed_forms_that_do_not_exist_are_refused_with_a_way_out(part: str) -> None:
    """Noise that depends on w, and a prior that has no divergence of its own."""

    class Free(Moved):
        kl = LatentPrior.kl

    noise = OfBoth.create(1.0) if part == "likelihood" else OfInput.create(1.0)
    prior = Free.create() if part == "prior" else Moved.create()
    model = make_model(GaussianLatents(None, 1, "closed"), 2, noise, prior=prior)
    name = "OfBoth" if part == "likelihood" else "Free"
    with pytest.raises(NotImplementedError, match=f"(?s){name}.*expectation='draws'"):
        jax.eval_shape(
            terms_of, model, make_statistics(2), make_batch(2), make_draws(0, model), jnp.asarray(make_local(2))
        )


# Draws


def test_draws_are_standard_normal_and_new_with_each_key() -> None:
    """Moments of 4,000 numbers for A x and 12,000 for w, which have nothing in common, nor have two keys' numbers."""
    input_map = Project(jnp.zeros((2, 1)), jnp.zeros((2, 1)))
    model = make_model(GaussianLatents(None, 1, "draws", 3), input_map=input_map)
    one, two = (draw(jax.random.key(i), model, 4000) for i in (0, 1))
    columns = np.hstack([np.asarray(a).reshape(4000, -1) for a in (*one, *two)])
    assert columns.shape == (4000, 8)
    np.testing.assert_allclose(columns.mean(0), 0, atol=4 / 4000**0.5)
    np.testing.assert_allclose(columns.T @ columns / 4000, np.eye(8), atol=4 * 2**0.5 / 4000**0.5)


@pytest.mark.parametrize("full", [False, True])
def test_one_importance_weighted_draw_is_the_elbo_but_for_a_sampled_divergence(full: bool) -> None:
    """With the same draw the bounds differ by KL[q || p] - log q(w)/p(w), the data point's own Gaussians."""
    rng = np.random.default_rng(3)
    batch, statistics = make_batch(3, 0), make_statistics(3)
    local = 0.5 * rng.normal(size=(N, 5 if full else 4))
    elbo = make_model(GaussianLatents(None, 2, "draws", 1, full), 3)
    weighted = make_model(GaussianLatents(None, 2, "importance", 1, full), 3)
    draws = make_draws(3, elbo)
    first = terms_of(elbo, statistics, batch, draws, jnp.asarray(local))
    second = terms_of(weighted, statistics, batch, draws, jnp.asarray(local))

    expected = 0.0
    for row, epsilon in zip(local, np.asarray(draws.latent)[:, 0], strict=True):
        root = np.array([[np.exp(row[2]), 0], [row[3], np.exp(row[4])]]) if full else np.diag(np.exp(row[2:]))
        covariance, w = root @ root.T, row[:2] + root @ epsilon
        kl = 0.5 * (np.trace(covariance) + row[:2] @ row[:2] - 2 - np.linalg.slogdet(covariance)[1])
        expected += kl + multivariate_normal.logpdf(w, cov=np.eye(2))
        expected -= multivariate_normal.logpdf(w, row[:2], covariance)
    np.testing.assert_allclose(second.bound - first.bound, expected, rtol=1e-9)


def test_importance_weighted_bounds_rise_from_the_elbo_to_the_free_form_bound() -> None:
    """In expectation: ELBO = one draw <= 4 draws <= 32 draws <= free-form, which many draws reach."""
    rows, replicates = 6, 1000
    batch, statistics = make_batch(4, rows=rows), make_statistics(4)
    # as wide as the prior, so that the weights have a variance
    local = jnp.asarray(make_local(4, rows) + np.array([0.0, 0.6]))
    free, closed = make_model(FreeForm.create(1, 100), 4), make_model(GaussianLatents(None, 1, "closed"), 4)
    none = make_draws(0, free, rows)
    top = float(terms_of(free, statistics, batch, none).bound)
    elbo = float(terms_of(closed, statistics, batch, none, local).bound)

    means, errors = [], []
    for draws in (1, 4, 32):
        model = make_model(GaussianLatents(None, 1, "importance", draws), 4)
        bounds = replicate_bounds(model, statistics, batch, make_draws(draws, model, rows, (replicates,)), local)
        means.append(float(bounds.mean()))
        errors.append(float(bounds.std()) / replicates**0.5)
    assert abs(means[0] - elbo) < 4 * errors[0]
    assert errors[0] < 0.05 * (top - elbo)
    for low, high, error in zip(means, means[1:], errors, strict=False):
        assert high > low + 4 * error
    assert elbo < means[1] < means[2] < top

    many = make_model(GaussianLatents(None, 1, "importance", 5000), 4)
    reached = terms_of(many, statistics, batch, make_draws(5, many, rows), local).bound
    np.testing.assert_allclose(reached, top, atol=0.02 * (top - elbo))


@pytest.mark.parametrize("draws", [1, 3])
def test_monte_carlo_bounds_average_to_the_closed_form(draws: int) -> None:
    replicates = 10_000
    batch, statistics, local = make_batch(5), make_statistics(5), jnp.asarray(make_local(5))
    closed = make_model(GaussianLatents(None, 1, "closed"), 5)
    none = make_draws(0, closed)
    expected = terms_of(closed, statistics, batch, none, local)
    model = make_model(GaussianLatents(None, 1, "draws", draws), 5)
    bounds = replicate_bounds(model, statistics, batch, make_draws(5, model, N, (replicates,)), local)
    error = float(bounds.std()) / replicates**0.5
    assert error < 2e-3 * abs(float(expected.bound))
    assert abs(float(bounds.mean()) - float(expected.bound)) < 3.5 * error


# Batches


KINDS: dict[str, Callable[[], Latents]] = {
    "none": NoLatents,
    "free-form": lambda: FreeForm.create(1, 30),
    "free-form, not separable": lambda: FreeForm.create(1, 30),
    "draws": lambda: GaussianLatents(None, 1, "draws", 2),
    "importance": lambda: GaussianLatents(None, 1, "importance", 3),
    "closed": lambda: GaussianLatents(None, 1, "closed"),
}


def rows_of(
    kind: str, rows: np.ndarray, weight: np.ndarray | None = None, n_data: float = float(N)
) -> tuple[Terms, Derivatives]:
    """Bound and derivatives of some rows, with the draws and the q(w) that are theirs, standing for so many."""
    latents = KINDS[kind]()
    model, statistics = make_model(latents, 6), make_statistics(6)
    if kind == "free-form, not separable":
        model = eqx.tree_at(lambda m: m.kernel, model, Whole(model.kernel))
    batch, local = make_batch(6, 2 - latents.dim), jnp.asarray(make_local(6))
    some = batch.take(rows) if weight is None else batch.take(rows)._replace(weight=jnp.asarray(weight[rows]))
    draws = jax.tree.map(lambda a: a[rows], make_draws(6, model))
    own = local[rows] if latents.local_dim else None
    return bound_and_derivatives(model, statistics, some, draws, own, jnp.asarray(n_data))


@pytest.mark.parametrize("kind", ["none", "free-form", "closed"])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
def test_the_bounds_of_a_partition_average_to_the_full_one(kind: str, weighted: bool) -> None:
    """Each with the share of the weight that its rows have."""
    order = np.random.default_rng(6).permutation(N).reshape(4, 3)
    weight = np.linspace(0.2, 3.0, N) if weighted else np.ones(N)
    total = float(weight.sum())
    full, slopes = rows_of(kind, np.arange(N), weight, total)
    terms, derivatives = zip(*[rows_of(kind, rows, weight, total) for rows in order], strict=True)
    shares = [weight[rows].sum() / total for rows in order]
    np.testing.assert_allclose(np.dot(shares, [t.bound for t in terms]), full.bound, rtol=1e-10)
    averaged = jax.tree.map(
        lambda *leaves: sum(s * np.asarray(leaf) for s, leaf in zip(shares, leaves, strict=True)),
        *[(d.model, d.nudge) for d in derivatives],
    )
    expected = slopes.model, slopes.nudge
    for one, other in zip(jax.tree.leaves(averaged), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_is_how_often_a_row_counts(kind: str) -> None:
    """Weight 2 is the row twice, weight 0 the row left out: value, gradients, and natural-gradient statistics."""
    repeated = np.array([0, 0, 1, 2, 3, 3, 4, 6, 7, 7, 9, 10])
    weight = np.bincount(repeated, minlength=N).astype(float)
    assert set(weight) == {0, 1, 2}
    terms, slopes = rows_of(kind, np.arange(N), weight)
    expected_terms, expected = rows_of(kind, repeated)
    for one, other in zip(terms, expected_terms, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    pairs = zip(*(jax.tree.leaves((d.model, d.nudge)) for d in (slopes, expected)), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12 * (1 + float(np.abs(other).max())))
    if slopes.local is not None and expected.local is not None:
        summed = np.zeros((N, 2))
        np.add.at(summed, repeated, np.asarray(expected.local))
        np.testing.assert_allclose(slopes.local, summed, rtol=1e-11, atol=1e-12)


# An uncertain A, and categories


@pytest.mark.parametrize("kind", ["free-form", "draws", "importance", "closed"])
def test_draws_of_a_x_average_to_the_expectation_over_a(
    kind: Literal["free-form", "draws", "importance", "closed"],
) -> None:
    """E_q(A) of the bound with A known, by quadrature over A's entries; draws of w are the same on both sides."""
    rng = np.random.default_rng(7)
    latents = FreeForm.create(1, 30) if kind == "free-form" else GaussianLatents(None, 1, kind, 2)
    mean, log_std = rng.normal(size=(2, 1)), np.array([[-1.5], [-2.0]])
    model = make_model(latents, 7, 1.0, Project(jnp.asarray(mean), jnp.asarray(log_std), 1.3))
    known = make_model(latents, 7, 1.0)
    batch, statistics = make_batch(7, 2), make_statistics(7)
    local = None if kind == "free-form" else jnp.asarray(make_local(7))
    latent_draws = make_draws(7, model).latent
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    weights = weights / weights.sum()

    G, H, expected = np.zeros((M, M)), np.zeros((M, D)), 0.0
    for i, j in np.ndindex(len(nodes), len(nodes)):
        weight = weights[i] * weights[j]
        if weight < 1e-16:
            continue
        A = mean + np.exp(log_std) * np.array([[nodes[i]], [nodes[j]]])
        projected = batch._replace(x=Inputs(batch.x.dense @ A, batch.x.codes))
        terms, slopes = bound_and_derivatives(
            known, statistics, projected, Draws(jnp.zeros((N, 0)), latent_draws), local
        )
        expected += weight * float(terms.data)
        G, H = G + weight * np.asarray(slopes.nudge.quadratic), H + weight * np.asarray(slopes.nudge.linear)

    average, by_quadratic, by_linear = 0.0, np.zeros((M, M)), np.zeros((M, D))
    for node, weight in zip(nodes, weights, strict=True):
        draws = Draws(jnp.full((N, 1), node), latent_draws)
        terms, slopes = bound_and_derivatives(model, statistics, batch, draws, local)
        average += weight * float(terms.data)
        by_quadratic = by_quadratic + weight * np.asarray(slopes.nudge.quadratic)
        by_linear = by_linear + weight * np.asarray(slopes.nudge.linear)
    np.testing.assert_allclose(average, expected, rtol=1e-9)
    np.testing.assert_allclose(by_quadratic, G, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(by_linear, H, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", ["project", "warp"])
def test_categories_are_their_one_hot_encoding(kind: str) -> None:
    """For the input map and the recognition network alike, a dense feature beside two categories."""
    rng = np.random.default_rng(8)
    dense, codes = rng.normal(size=(N, 1)), np.stack([rng.integers(0, 3, N), rng.integers(0, 2, N)], 1)
    hot = np.hstack([dense, np.eye(3)[codes[:, 0]], np.eye(2)[codes[:, 1]]])
    y = make_batch(8).y
    sparse, full = (whole(x, y) for x in (make_inputs(dense, codes, levels=(3, 2)), make_inputs(hot)))
    statistics, key = make_statistics(8), jax.random.key(8)
    if kind == "project":
        input_map: InputMap = Project(jnp.asarray(rng.normal(size=(6, 1))), jnp.asarray(rng.normal(size=(6, 1)) - 2))
        latents = GaussianLatents.amortised(key, 6, D, 1, (4,), "closed")
    else:
        input_map = Warp.create(key, 6, 2, (4,))
        latents = GaussianLatents.amortised(key, 6, D, 2, (4,), "draws", 2)
    model = make_model(latents, 8, input_map=input_map)
    draws = make_draws(8, model)
    terms, derivatives = bound_and_derivatives(model, statistics, sparse, draws)
    expected_terms, expected = bound_and_derivatives(model, statistics, full, draws)
    np.testing.assert_allclose(terms.bound, expected_terms.bound, rtol=1e-12)
    for one, other in zip(jax.tree.leaves(derivatives), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


# Derivatives


class Held(Statistics):
    """q(u) that does not follow P and the noise."""

    q: SparsePosterior

    def resolve(self, mixing: Mixing, noise_variance: Float[Array, ""]) -> SparsePosterior:
        return self.q


@jax.jit
def solve(statistics: Statistics, model: Model) -> SparsePosterior:
    return statistics.resolve(model.mixing, model.noise_variance)


def amortised(dim: int, expectation: Expectation, full: bool = False) -> GaussianLatents:
    return GaussianLatents.amortised(jax.random.key(9), 2, D, dim, (4,), expectation, 2, full)


def warp() -> Warp:
    return Warp.create(jax.random.key(10), 2, 2, (4,))


def project() -> Project:
    return Project(jnp.asarray([[0.5], [-0.7]]), jnp.asarray([[-1.0], [-2.0]]), 1.3)


def point(learn: bool = True) -> PointMixing:
    return PointMixing(jnp.asarray(MATRIX), jnp.asarray(MATRIX + 0.3), learn, 2.0)


def gaussian() -> GaussianMixing:
    return GaussianMixing(*(jnp.asarray(a) for a in (MATRIX, 0.2 * MATRIX - 1, MATRIX + 0.3, np.log(0.4))))


def rbf() -> Kernel:
    return RBF.create(2, LENGTHSCALES, VARIANCE)


def mixed() -> Kernel:
    return Matern32.create((0,)) * Matern52.create((1,)) + Linear.create(2, 0.3)


Parts = tuple[Kernel, InputMap, Latents, Mixing]
CASES: dict[str, Callable[[], Parts]] = {
    "none, concatenate, point": lambda: (mixed(), Concatenate(2), NoLatents(), point()),
    "none, project, gaussian": lambda: (RBF.create(1, 0.4), project(), NoLatents(), gaussian()),
    "free-form, project, identity": lambda: (rbf(), project(), FreeForm.create(1, 15), Identity(D)),
    "own draws, project, gaussian": lambda: (rbf(), project(), GaussianLatents(None, 1, "draws", 2), gaussian()),
    "own full draws, warp, fixed": lambda: (rbf(), warp(), GaussianLatents(None, 2, "draws", 2, True), point(False)),
    "own full closed, concatenate, gaussian": lambda: (
        RBF.create(4),
        Concatenate(2),
        GaussianLatents(None, 2, "closed", full=True),
        gaussian(),
    ),
    "own full importance, warp, identity": lambda: (
        rbf(),
        warp(),
        GaussianLatents(None, 2, "importance", 3, True),
        Identity(D),
    ),
    "network draws, warp, gaussian": lambda: (mixed(), warp(), amortised(2, "draws", True), gaussian()),
    "network closed, project, identity": lambda: (Polynomial.create(2), project(), amortised(1, "closed"), Identity(D)),
}
VARYING: dict[str, tuple[Callable[[], Parts], Callable[[float], Likelihood]]] = {
    "free-form, concatenate, gaussian, varying": (
        lambda: (RBF.create(3), Concatenate(2), FreeForm.create(1, 15), gaussian()),
        OfBoth.create,
    ),
    "free-form, warp, point, varying": (lambda: (mixed(), warp(), FreeForm.create(2, 6), point()), OfBoth.create),
    "own closed, project, point, varying": (
        lambda: (rbf(), project(), GaussianLatents(None, 1, "closed"), point()),
        OfInput.create,
    ),
    "network importance, concatenate, point, varying": (
        lambda: (RBF.create(3), Concatenate(2), amortised(1, "importance"), point()),
        OfBoth.create,
    ),
}
"""Where noise and prior of w vary."""


def held_fixed(name: str) -> bool:
    return any(part in name for part in ("nodes", "log_weights", ".start"))


def check_derivatives(model: Model, statistics: Statistics, seed: int = 11) -> None:
    """Each leaf's derivative along a random direction is a five-point difference; what is not learnt has none."""
    rng = np.random.default_rng(seed)
    batch, draws = make_batch(seed, 2), make_draws(seed, model)
    size = model.latents.local_dim
    local = jnp.asarray(0.5 * rng.normal(size=(N, size)) - 0.3) if size else None
    terms, slopes = bound_and_derivatives(model, statistics, batch, draws, local)
    held = Held(statistics.G, statistics.H, solve(statistics, model))
    np.testing.assert_allclose(terms_of(model, held, batch, draws, local).bound, terms.bound, rtol=1e-12)

    named, structure = jax.tree_util.tree_flatten_with_path((model, local))
    fixed = isinstance(model.mixing, PointMixing) and not model.mixing.learn
    for i, ((path, leaf), slope) in enumerate(zip(named, jax.tree.leaves((slopes.model, slopes.local)), strict=True)):
        name = jax.tree_util.keystr(path)
        if held_fixed(name) or (fixed and "mixing" in name):
            np.testing.assert_array_equal(slope, 0, err_msg=name)
            continue
        direction = rng.normal(size=leaf.shape)
        direction /= np.linalg.norm(direction)
        h, values = 1e-3, []
        for k in (-2, -1, 1, 2):
            moved = [np.asarray(other) + k * h * direction if i == j else other for j, (_, other) in enumerate(named)]
            there, own = jax.tree.unflatten(structure, moved)
            values.append(float(terms_of(there, held, batch, draws, own).bound))
        difference = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
        expected = float(np.sum(np.asarray(slope) * direction))
        tolerance = 1e-8 * abs(float(terms.bound))
        np.testing.assert_allclose(expected, difference, rtol=1e-6, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("case", [*CASES, *VARYING])
def test_derivatives_are_finite_differences_with_q_of_u_held_fixed(case: str) -> None:
    """By the noise and the prior as well, where these vary."""
    likelihood: Likelihood = ConstantNoise.create(0.5)
    prior: LatentPrior = StandardNormal()
    if case in CASES:
        kernel, input_map, latents, mixing = CASES[case]()
    else:
        parts, noise = VARYING[case]
        (kernel, input_map, latents, mixing), likelihood, prior = parts(), noise(0.5), Moved.create()
    z = jnp.asarray(np.random.default_rng(12).normal(size=(M, input_map.out_dim(latents.dim))))
    check_derivatives(Model(kernel, z, input_map, latents, mixing, likelihood, prior), make_statistics(12))


@pytest.mark.parametrize("columns", [2, 3])
def test_derivatives_by_p_are_right_where_its_singular_values_repeat(columns: int) -> None:
    """At P = I, and at some columns of it, where the singular vectors have no derivative."""
    mixing = PointMixing.create(np.eye(D)[:, :columns])
    model = eqx.tree_at(lambda m: m.mixing, make_model(NoLatents(), 13), mixing)
    check_derivatives(model, make_statistics(13))


def test_derivatives_by_a_shared_q_of_u_are_finite_differences() -> None:
    """What Adam on q(u) follows, with P not orthogonal."""
    model, batch = make_model(FreeForm.create(1, 15), 14), make_batch(14)
    rng = np.random.default_rng(14)
    mean, root = rng.normal(size=(M, 2)), np.tril(0.3 * rng.normal(size=(M, M))) + np.eye(M)
    draws = make_draws(14, model)

    @jax.jit
    def value(mean: Array, root: Array) -> tuple[Array, tuple[Array, Array]]:
        def bound(q: tuple[Array, Array]) -> Array:
            return evaluate_bound(model, Shared(*q), batch, draws, N).bound

        return jax.value_and_grad(bound)((mean, root))

    _, slopes = value(jnp.asarray(mean), jnp.asarray(root))
    h, moves = 1e-3, (rng.normal(size=(M, 2)), np.tril(rng.normal(size=(M, M))))
    for i in (0, 1):
        values = [
            float(value(jnp.asarray(mean + (i == 0) * k * h * moves[0]), jnp.asarray(root + i * k * h * moves[1]))[0])
            for k in (-2, -1, 1, 2)
        ]
        difference = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
        np.testing.assert_allclose(np.sum(np.asarray(slopes[i]) * moves[i]), difference, rtol=1e-7)


def test_a_fixed_noise_has_no_derivative() -> None:
    free, fixed = (make_model(NoLatents(), 15, ConstantNoise.create(NOISE, learn)) for learn in (True, False))
    batch, statistics, draws = make_batch(15, 2), make_statistics(15), make_draws(0, free)
    terms, slopes = bound_and_derivatives(fixed, statistics, batch, draws)
    expected, others = bound_and_derivatives(free, statistics, batch, draws)
    none, some = (d.model.likelihood for d in (slopes, others))
    assert isinstance(none, ConstantNoise)
    assert isinstance(some, ConstantNoise)
    assert float(none.log_noise_variance) == 0 != float(some.log_noise_variance)
    np.testing.assert_allclose(terms.bound, expected.bound, rtol=1e-14)
    np.testing.assert_allclose(slopes.model.inducing_points, others.model.inducing_points, rtol=1e-12)


# Precision


@pytest.mark.parametrize("kind", ["free-form", "importance"])
def test_a_single_precision_model_has_the_bound_of_its_double_copy(kind: str) -> None:
    """Bound and statistics to some rounding errors of float32; what is solved and summed is wide all the same."""
    rng = np.random.default_rng(16)
    input_map: InputMap = Project(jnp.asarray(rng.normal(size=(2, 1))), jnp.full((2, 1), -2.0))
    latents: Latents = FreeForm.create(1, 30) if kind == "free-form" else amortised(1, "importance")
    model, batch, statistics = make_model(latents, 16, input_map=input_map), make_batch(16, 2), make_statistics(16)
    draws = make_draws(16, model)

    def narrow(a: Array) -> Array:
        return jnp.asarray(np.float32(a)) if jnp.issubdtype(a.dtype, jnp.floating) else a

    small = jax.tree.map(narrow, (model, batch, draws))
    double = ask(wide, small)
    terms, slopes = bound_and_derivatives(small[0], statistics, *small[1:])
    expected_terms, expected = bound_and_derivatives(double[0], statistics, *double[1:])
    assert terms.bound.dtype == jnp.float64
    assert {leaf.dtype for leaf in jax.tree.leaves(slopes.model)} == {jnp.dtype(jnp.float32)}
    np.testing.assert_allclose(terms.bound, expected_terms.bound, rtol=3e-6)
    for one, other in zip(slopes.nudge, expected.nudge, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=3e-5 * float(np.abs(other).max()))
