"""Prediction: the mixture is the dense one, shortcuts change nothing, and without latents it is sparse regression."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

import gpcde
from gpcde.inference.bound import whole
from gpcde.inference.posterior import Shared, Statistics, VariationalPosterior
from gpcde.inference.training import Trainer, optimal_posterior
from gpcde.model.input_maps import Concatenate, InputMap, Project, Warp
from gpcde.model.inputs import Inputs, make_inputs
from gpcde.model.kernels import RBF
from gpcde.model.latents import FreeForm, NoLatents
from gpcde.model.likelihood import ConstantNoise
from gpcde.model.mixing import ConjugateMixing, GaussianMixing, Identity, Mixing, PointMixing
from gpcde.model.model import Model
from gpcde.model.prior import StandardNormal, TiltedNormal
from gpcde.model.surfaces import Surface
from gpcde.prediction import predictor as _predictor
from gpcde.prediction.nodes import Nodes
from gpcde.prediction.predictor import Mixture, Predictor, make_predictor
from small import ask
from unseparated import Whole
from varying import Moved, OfBoth

M, D, TESTS, COMPONENTS = 5, 3, 4, 6
LENGTHSCALES, VARIANCE, NOISE = np.array([0.9, 1.1]), 1.3, 0.2
MATRIX = np.array([[1.0, 0.8, 0.2, 0.6], [0.4, 1.1, -0.9, 0.1], [-0.5, 0.3, 0.7, 1.2]])


@jax.jit
def predict(
    model: Model,
    posterior: VariationalPosterior,
    x: Inputs,
    w: Array,
    log_weight: Array,
    draws: Array | None = None,
) -> Mixture:
    """p(y|x) at these latents, all in one program."""
    return make_predictor(model, posterior, Nodes(w, log_weight, draws)).at_nodes(x)


def log_density(model: Model, posterior: VariationalPosterior, x: Inputs, y: Array, *nodes: Array) -> np.ndarray:
    """log p(y|x), in blocks."""
    return Predictor.create(model, posterior, Nodes(*nodes)).log_density(x, y)


def make_mixing(columns: int) -> Mixing:
    """So many columns that are not orthogonal, or the identity."""
    return PointMixing.create(MATRIX[:, :columns]) if columns else Identity(D)


def make_model(mixing: Mixing, input_map: InputMap | None = None, latent_dim: int = 1, varies: bool = False) -> Model:
    z = np.random.default_rng(0).normal(size=(M, 2))
    return Model(
        RBF.create(2, LENGTHSCALES, VARIANCE),
        jnp.asarray(z),
        input_map or Concatenate(1),
        FreeForm.create(latent_dim, 3),
        mixing,
        OfBoth.create(NOISE, 0.3, 0.2) if varies else ConstantNoise.create(NOISE),
        Moved.create(0.7) if varies else StandardNormal(),
    )


def make_statistics(outputs: int = D, seed: int = 1) -> Statistics:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(8, M))
    return Statistics(jnp.asarray(a.T @ a), jnp.asarray(a.T @ rng.normal(size=(8, outputs))))


def new_points(n: int = TESTS, inputs: int = 1, outputs: int = D) -> tuple[Inputs, Float[Array, "n D"]]:
    rng = np.random.default_rng(2)
    x: Inputs = jax.tree.map(jnp.asarray, make_inputs(rng.normal(size=(n, inputs))))
    return x, jnp.asarray(rng.normal(size=(n, outputs)))


def components(count: int = COMPONENTS) -> tuple[Float[Array, "k d"], Float[Array, " k"]]:
    """Latents and log weights, no two alike."""
    rng = np.random.default_rng(3)
    weights = rng.uniform(0.2, 1.0, size=count)
    return jnp.asarray(rng.normal(size=(count, 1))), jnp.asarray(np.log(weights / weights.sum()))


def rbf(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return VARIANCE * np.exp(-0.5 * (((left[:, None] - right) / LENGTHSCALES) ** 2).sum(-1))


def functions(model: Model, statistics: Statistics, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (n × L) and covariance (n × L × L) of f(h), from the dense joint posterior of all u_l."""
    z, jitter = np.asarray(model.inducing_points), model.jitter * VARIANCE * np.eye(M)
    a = np.linalg.solve(np.linalg.cholesky(rbf(z, z) + jitter), rbf(z, h)).T
    mixing, width = model.mixing, model.mixing.shape[1]
    p, second = np.eye(D), np.eye(D)
    if isinstance(mixing, PointMixing):
        p, second = np.asarray(mixing.value), np.asarray(mixing.value.T @ mixing.value)
    elif isinstance(mixing, GaussianMixing):
        p = np.asarray(mixing.mean)
        second = p.T @ p + np.diag(np.exp(2 * np.asarray(mixing.log_std)).sum(0))
    elif isinstance(mixing, ConjugateMixing):
        p = np.asarray(mixing.mean)
        second = p.T @ p + D * np.asarray(mixing.covariance)
    joint = np.linalg.inv(np.eye(width * M) + np.kron(second, np.asarray(statistics.G)) / NOISE)
    mean = (joint @ (np.asarray(statistics.H) @ p).T.ravel() / NOISE).reshape(width, M)
    covariance = np.einsum("nm,lmji,ni->nlj", a, joint.reshape(width, M, width, M), a)
    return a @ mean.T, covariance + (VARIANCE - (a * a).sum(1))[:, None, None] * np.eye(width)


def dense_components(
    model: Model, statistics: Statistics, x: Inputs, w: Array
) -> tuple[Float[np.ndarray, "n k D"], Float[np.ndarray, "n k D D"]]:
    """Means and covariances of y for a P that is known."""
    h = np.hstack([np.repeat(np.asarray(x.dense), len(w), axis=0), np.tile(np.asarray(w), (x.n_rows, 1))])
    mean, covariance = functions(model, statistics, h)
    p = (
        np.eye(D)
        if isinstance(model.mixing, Identity)
        else np.asarray(model.mixing.apply(jnp.eye(model.mixing.shape[1]))).T
    )
    shape = x.n_rows, len(w)
    return (mean @ p.T).reshape(*shape, D), (p @ covariance @ p.T + NOISE * np.eye(D)).reshape(*shape, D, D)


def moments(mixture: Mixture, outputs: int) -> tuple[Float[np.ndarray, "n k D"], Float[np.ndarray, "n k D D"]]:
    """What the fields of a mixture say about each component's mean and covariance."""
    mean, outside = np.asarray(mixture.mean), np.asarray(mixture.outside)[..., None, None]
    variance = np.broadcast_to(mixture.variance, mean.shape)
    basis = np.eye(outputs) if mixture.basis is None else np.asarray(mixture.basis)
    inside = np.einsum("dl,nkl,el->nkde", basis, variance - outside[..., 0], basis)
    return mean @ basis.T, inside + outside * np.eye(outputs)


@pytest.mark.parametrize("columns", [0, 1, 2, 3, 4])
def test_the_density_is_the_dense_mixture(columns: int) -> None:
    """No columns: P = I; one and two: fewer functions than outputs; four: more."""
    model, statistics = make_model(make_mixing(columns)), make_statistics()
    (x, y), (w, log_weight) = new_points(), components()
    mixture = predict(model, statistics, x, w, log_weight)
    means, covariances = dense_components(model, statistics, x, w)
    logs = [
        [multivariate_normal.logpdf(row, m, c) for m, c in zip(*parts, strict=True)]
        for row, *parts in zip(np.asarray(y), means, covariances, strict=True)
    ]
    expected = logsumexp(np.asarray(logs) + np.asarray(log_weight), axis=1)
    np.testing.assert_allclose(ask(Mixture.log_density, mixture, y), expected, rtol=1e-9)


@pytest.mark.parametrize("columns", [0, 2, 3, 4])
def test_mean_and_covariance_are_those_of_the_dense_computation(columns: int) -> None:
    """E y = sum_k π_k P μ_k, and the law of total covariance."""
    model, statistics = make_model(make_mixing(columns)), make_statistics()
    (x, _), (w, log_weight) = new_points(), components()
    weight = np.exp(np.asarray(log_weight))

    def total(means: np.ndarray, covariances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = np.einsum("k,nkd->nd", weight, means)
        off = means - mean[:, None]
        within = np.einsum("k,nkde->nde", weight, covariances)
        return mean, within + np.einsum("k,nkd,nke->nde", weight, off, off)

    mean, covariance = total(*moments(predict(model, statistics, x, w, log_weight), D))
    expected_mean, expected = total(*dense_components(model, statistics, x, w))
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(covariance, expected, rtol=1e-9, atol=1e-10)


def test_a_shared_posterior_is_mixed_by_p_as_well() -> None:
    """One S for all functions: covariance (v S + ...) PPᵀ + σ² I, where P is not orthogonal."""
    rng = np.random.default_rng(4)
    model = make_model(make_mixing(2))
    mean, root = rng.normal(size=(M, 2)), np.tril(rng.normal(size=(M, M)))
    (x, _), (w, log_weight) = new_points(), components()
    means, covariances = moments(predict(model, Shared(jnp.asarray(mean), jnp.asarray(root)), x, w, log_weight), D)

    z, p = np.asarray(model.inducing_points), MATRIX[:, :2]
    h = np.hstack([np.repeat(np.asarray(x.dense), len(w), axis=0), np.tile(np.asarray(w), (TESTS, 1))])
    lower = np.linalg.cholesky(rbf(z, z) + model.jitter * VARIANCE * np.eye(M))
    a = np.linalg.solve(lower, rbf(z, h)).T
    spread = VARIANCE - (a * a).sum(1) + ((a @ root) ** 2).sum(1)
    np.testing.assert_allclose(means.reshape(-1, D), a @ mean @ p.T, rtol=1e-9)
    expected = spread[:, None, None] * (p @ p.T) + NOISE * np.eye(D)
    np.testing.assert_allclose(covariances.reshape(-1, D, D), expected, rtol=1e-9)


@pytest.mark.parametrize(("columns", "varies"), [(0, False), (1, False), (1, True)])
def test_densities_integrate_to_one(columns: int, varies: bool) -> None:
    """One output on a line; two outputs that follow one function on a plane, where noise and prior vary as well."""
    mixing = PointMixing.create(MATRIX[:2, :1]) if columns else Identity(1)
    outputs, points = (2, 201) if columns else (1, 1001)
    model, statistics = make_model(mixing, varies=varies), make_statistics(outputs)
    w, log_weight = components()
    line = np.linspace(-12, 12, points)
    grid = np.stack([g.ravel() for g in np.meshgrid(*[line] * outputs)], 1)
    x = make_inputs(np.full((len(grid), 1), 0.3))
    density = np.exp(np.asarray(log_density(model, statistics, x, jnp.asarray(grid), w, log_weight)))
    np.testing.assert_allclose(density.sum() * (line[1] - line[0]) ** outputs, 1, rtol=1e-8)


def test_separating_the_kernel_changes_nothing() -> None:
    """More inducing points than `separable_variance` takes at a time, and not a multiple of it."""
    rng = np.random.default_rng(5)
    z = rng.normal(size=(37, 2)) * 3
    model = eqx.tree_at(lambda m: m.inducing_points, make_model(Identity(D)), jnp.asarray(z))
    a = rng.normal(size=(60, 37))
    statistics = Statistics(jnp.asarray(a.T @ a), jnp.asarray(a.T @ rng.normal(size=(60, D))))
    opaque = eqx.tree_at(lambda m: m.kernel, model, Whole(model.kernel))
    (x, _), (w, log_weight) = new_points(), components()
    one, other = (predict(m, statistics, x, w, log_weight) for m in (model, opaque))
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(one.variance, other.variance, rtol=1e-8)


def record_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    score = _predictor._log_density

    def recorded(predictor: Predictor, x: Inputs, y: Array) -> Float[Array, " n"]:
        sizes.append(x.n_rows)
        return score(predictor, x, y)

    monkeypatch.setattr(_predictor, "_log_density", recorded)
    return sizes


def test_the_size_of_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven points in one block of eight, and in blocks of two where there is room for three; the last is filled up."""
    model, statistics = make_model(make_mixing(2)), make_statistics()
    (x, y), (w, log_weight) = new_points(7), components()
    sizes = record_blocks(monkeypatch)
    together = log_density(model, statistics, x, y, w, log_weight)
    assert sizes == [8]
    monkeypatch.setattr(_predictor, "NUMBERS_AT_ONCE", 3 * COMPONENTS * M)
    np.testing.assert_allclose(log_density(model, statistics, x, y, w, log_weight), together, rtol=1e-12)
    assert sizes == [8, 2, 2, 2, 2]


def test_many_points_come_back_in_order() -> None:
    """The shortcut for separable kernels has blocks of its own."""
    model, statistics = make_model(Identity(D)), make_statistics()
    (x, y), (w, log_weight) = new_points(1030), components()
    expected = ask(Mixture.log_density, predict(model, statistics, x, w, log_weight), y)
    np.testing.assert_allclose(log_density(model, statistics, x, y, w, log_weight), expected, rtol=1e-10)


def test_memory_is_bounded_where_the_kernel_does_not_separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a block makes a kernel row for each point and component, whatever P is."""
    model, statistics = make_model(Identity(D)), make_statistics()
    opaque = eqx.tree_at(lambda m: m.kernel, model, Whole(model.kernel))
    (x, y), (w, log_weight) = new_points(7), components()
    sizes = record_blocks(monkeypatch)
    monkeypatch.setattr(_predictor, "NUMBERS_AT_ONCE", 3 * COMPONENTS * M)
    log_density(opaque, statistics, x, y, w, log_weight)
    assert max(sizes) * COMPONENTS * M <= 3 * COMPONENTS * M


def test_without_latents_it_is_the_predictive_of_sparse_regression() -> None:
    """N(y | K*z (σ² Kzz + Kzx Kxz)⁻¹ Kzx Y, k** - K*z (Kzz⁻¹ - (Kzz + Kzx Kxz/σ²)⁻¹) Kz* + σ²), Titsias (2009)."""
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(12, 2)), rng.normal(size=(12, D))
    z = rng.normal(size=(M, 2))
    kernel, noise = RBF.create(2, LENGTHSCALES, VARIANCE), ConstantNoise.create(NOISE)
    model = Model(kernel, jnp.asarray(z), Concatenate(2), NoLatents(), Identity(D), noise)
    data = whole(make_inputs(x), y)
    trainer = Trainer.create(12)
    posterior = optimal_posterior(trainer, jax.random.key(0), trainer.init(model), data).posterior
    new, targets = new_points(inputs=2)
    out = ask(Mixture.log_density, predict(model, posterior, new, jnp.zeros((1, 0)), jnp.zeros(1)), targets)

    kzz, kzx, kzs = rbf(z, z) + model.jitter * VARIANCE * np.eye(M), rbf(z, x), rbf(z, np.asarray(new.dense))
    inner = kzz + kzx @ kzx.T / NOISE
    mean = kzs.T @ np.linalg.solve(inner, kzx @ y) / NOISE
    reduction = np.sum(kzs * (np.linalg.solve(kzz, kzs) - np.linalg.solve(inner, kzs)), axis=0)
    variance = VARIANCE - reduction + NOISE
    squares = ((np.asarray(targets) - mean) ** 2).sum(1) / variance
    np.testing.assert_allclose(out, -0.5 * (squares + D * np.log(2 * np.pi * variance)), rtol=1e-8)


@pytest.mark.parametrize("columns", [0, 2])
def test_where_noise_and_prior_vary_so_do_variances_and_weights(columns: int) -> None:
    """Component k at x has the covariance P Cov f Pᵀ + σ² s(x, w_k) I and the weight π_k p(w_k|x) / N(w_k | 0, 1)."""
    statistics, (x, y), (w, log_weight) = make_statistics(), new_points(), components()
    plain, model = (make_model(make_mixing(columns), varies=varies) for varies in (False, True))
    mixture = predict(model, statistics, x, w, log_weight)
    means, covariances = moments(mixture, D)
    expected_means, expected = dense_components(plain, statistics, x, w)
    s = np.exp(0.3 * np.asarray(x.dense) + 0.2 * np.asarray(w)[:, 0])
    np.testing.assert_allclose(means, expected_means, rtol=1e-9, atol=1e-10)
    expected = expected + NOISE * (s - 1)[..., None, None] * np.eye(D)
    np.testing.assert_allclose(covariances, expected, rtol=1e-9, atol=1e-10)
    tilted = np.asarray(log_weight) + norm.logpdf(w[:, 0], 0.7 * np.asarray(x.dense)) - norm.logpdf(w[:, 0])
    tilted -= logsumexp(tilted, axis=1, keepdims=True)
    np.testing.assert_allclose(mixture.log_weight, tilted, rtol=1e-10)
    # and a row's likelihood at latents of its own is that of a component
    predictor = Predictor.create(model, statistics, Nodes(w, log_weight))
    own = ask(predictor.log_likelihood, x, y, jnp.broadcast_to(w, (TESTS, *w.shape)), jnp.zeros((TESTS, COMPONENTS, 0)))
    np.testing.assert_allclose(own, mixture.log_components(y), rtol=1e-9)


def test_an_uncertain_p_keeps_mean_trace_and_the_variances_along_its_columns() -> None:
    """Of y = P f + noise with P and f independent: E[P] Cov f E[P]ᵀ + diag(sum_l var P_dl E f_l²) + σ² I."""
    rng = np.random.default_rng(7)
    mixing = GaussianMixing.create(MATRIX[:, :2])
    mixing = eqx.tree_at(lambda p: p.log_std, mixing, jnp.asarray(0.7 * rng.normal(size=(D, 2)) - 0.7))
    model, statistics = make_model(mixing), make_statistics()
    (x, _), (w, log_weight) = new_points(), components()
    mixture = predict(model, statistics, x, w, log_weight)
    means, covariances = moments(mixture, D)

    h = np.hstack([np.repeat(np.asarray(x.dense), len(w), axis=0), np.tile(np.asarray(w), (TESTS, 1))])
    f, cov_f = functions(model, statistics, h)
    p, variance = MATRIX[:, :2], np.exp(2 * np.asarray(mixing.log_std))
    second = f**2 + np.diagonal(cov_f, axis1=1, axis2=2)
    exact = p @ cov_f @ p.T + np.einsum("dl,nl,de->nde", variance, second, np.eye(D)) + NOISE * np.eye(D)
    exact = exact.reshape(covariances.shape)
    np.testing.assert_allclose(means.reshape(-1, D), f @ p.T, rtol=1e-9)
    np.testing.assert_allclose(np.trace(covariances, axis1=2, axis2=3), np.trace(exact, axis1=2, axis2=3), rtol=1e-9)
    assert mixture.basis is not None
    basis = np.asarray(mixture.basis)
    along, expected = (np.einsum("dl,nkde,el->nkl", basis, c, basis) for c in (covariances, exact))
    np.testing.assert_allclose(along, expected, rtol=1e-9)


def test_an_almost_certain_p_is_a_known_one() -> None:
    statistics = make_statistics()
    (x, y), (w, log_weight) = new_points(), components()
    uncertain = make_model(GaussianMixing.create(MATRIX[:, :2], std=1e-7))
    known = ask(Mixture.log_density, predict(make_model(make_mixing(2)), statistics, x, w, log_weight), y)
    np.testing.assert_allclose(predict(uncertain, statistics, x, w, log_weight).log_density(y), known, rtol=1e-9)


def conjugate(columns: int, size: float = 0.3) -> ConjugateMixing:
    root = np.random.default_rng(11).normal(size=(columns, columns))
    mean = jnp.asarray(MATRIX[:, :columns])
    return ConjugateMixing.of(mean, jnp.asarray(size * (root @ root.T + 0.1 * np.eye(columns))), mean, jnp.zeros(()))


@pytest.mark.parametrize(("columns", "shared"), [(2, False), (2, True), (4, False)])
def test_rows_of_p_that_covary_keep_mean_trace_and_the_variances_along_its_columns(columns: int, shared: bool) -> None:
    """Of y = P f + noise: E[P E[ffᵀ] Pᵀ] over equally likely values of P that have its mean and covariance."""
    mixing, statistics = conjugate(columns), make_statistics()
    model = make_model(mixing)
    (x, _), (w, log_weight) = new_points(), components()
    h = np.hstack([np.repeat(np.asarray(x.dense), len(w), axis=0), np.tile(np.asarray(w), (TESTS, 1))])
    if shared:
        rng = np.random.default_rng(12)
        m, root = rng.normal(size=(M, columns)), np.tril(rng.normal(size=(M, M)))
        z = np.asarray(model.inducing_points)
        a = np.linalg.solve(np.linalg.cholesky(rbf(z, z) + model.jitter * VARIANCE * np.eye(M)), rbf(z, h)).T
        f = a @ m
        cov_f = (VARIANCE - (a * a).sum(1) + ((a @ root) ** 2).sum(1))[:, None, None] * np.eye(columns)
        mixture = predict(model, Shared(jnp.asarray(m), jnp.asarray(root)), x, w, log_weight)
    else:
        f, cov_f = functions(model, statistics, h)
        mixture = predict(model, statistics, x, w, log_weight)
    means, covariances = moments(mixture, D)

    p, root = MATRIX[:, :columns], np.linalg.cholesky(np.asarray(mixing.covariance))
    steps = [np.sqrt(D * columns) * np.outer(row, column) for row in np.eye(D) for column in root.T]
    second = cov_f + f[:, :, None] * f[:, None]
    square = np.mean([(p + s * step) @ second @ (p + s * step).T for step in steps for s in (1, -1)], axis=0)
    mean = f @ p.T
    exact = (square - mean[:, :, None] * mean[:, None] + NOISE * np.eye(D)).reshape(covariances.shape)
    np.testing.assert_allclose(means.reshape(-1, D), mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(np.trace(covariances, axis1=2, axis2=3), np.trace(exact, axis1=2, axis2=3), rtol=1e-9)
    assert mixture.basis is not None
    basis = np.asarray(mixture.basis)
    along, expected = (np.einsum("dl,nkde,el->nkl", basis, c, basis) for c in (covariances, exact))
    np.testing.assert_allclose(along, expected, rtol=1e-9)


@pytest.mark.parametrize("columns", [2, 4])
def test_rows_of_p_that_hardly_vary_are_known(columns: int) -> None:
    statistics = make_statistics()
    (x, y), (w, log_weight) = new_points(), components()
    known = make_model(PointMixing.create(MATRIX[:, :columns], learn=False))
    expected = ask(Mixture.log_density, predict(known, statistics, x, w, log_weight), y)
    almost, not_quite = (
        predict(make_model(conjugate(columns, size)), statistics, x, w, log_weight).log_density(y)
        for size in (1e-13, 1e-3)
    )
    np.testing.assert_allclose(almost, expected, rtol=1e-8)
    assert float(jnp.abs(not_quite - expected).max()) > 1e-5


def test_each_component_has_its_own_draw_of_an_uncertain_a() -> None:
    """Component k at x is the model of [A x, w] at A x = mean + standard deviation ε_k, w = w_k."""
    rng = np.random.default_rng(8)
    mean, log_std, draws = rng.normal(size=(2, 1)), np.array([[-1.0], [-0.3]]), rng.normal(size=(COMPONENTS, 1))
    statistics = make_statistics()
    model = make_model(make_mixing(2), Project(jnp.asarray(mean), jnp.asarray(log_std)))
    known = make_model(make_mixing(2))
    (x, _), (w, log_weight) = new_points(inputs=2), components()
    mixture = predict(model, statistics, x, w, log_weight, jnp.asarray(draws))
    rows = np.asarray(x.dense)
    spread = np.sqrt(rows**2 @ np.exp(2 * log_std))
    for k in range(COMPONENTS):
        at = jax.tree.map(jnp.asarray, make_inputs(rows @ mean + spread * draws[k]))
        one = predict(known, statistics, at, w[k : k + 1], jnp.zeros(1))
        np.testing.assert_allclose(mixture.mean[:, k], one.mean[:, 0], rtol=1e-9)
        np.testing.assert_allclose(mixture.variance[:, k], one.variance[:, 0], rtol=1e-9)
    with pytest.raises(ValueError, match="uncertain"):
        predict(model, statistics, x, w, log_weight)


def test_a_warp_moves_the_latents_of_each_point() -> None:
    """At each x the mixture is that of a model without inputs, at the moved latents."""
    warp = Warp.create(jax.random.key(9), 2, 2, (4,))
    warp = eqx.tree_at(lambda m: m.network.weights[-1], warp, 50 * warp.network.weights[-1])
    model, plain = make_model(make_mixing(2), warp, 2), make_model(make_mixing(2), Concatenate(0), 2)
    statistics, (x, _), (_, log_weight) = make_statistics(), new_points(inputs=2), components()
    w = jnp.asarray(np.random.default_rng(10).normal(size=(COMPONENTS, 2)))
    mixture = predict(model, statistics, x, w, log_weight)
    h = warp.join(warp.context(x, jnp.zeros((TESTS, 0))), w[None])
    assert float(jnp.abs(h - w).max()) > 0.1
    nothing = jax.tree.map(jnp.asarray, make_inputs(rows=1))
    for n in range(TESTS):
        one = predict(plain, statistics, nothing, h[n], log_weight)
        np.testing.assert_allclose(mixture.mean[n], one.mean[0], rtol=1e-9)
        np.testing.assert_allclose(mixture.variance[n], one.variance[0], rtol=1e-9)


def test_two_latents_are_resolved_where_their_prior_is_not_normal() -> None:
    """A p(w|x) with its weight three standard deviations out, and a sharp density: a finer grid says the same."""
    rng = np.random.default_rng(0)
    with gpcde.scope():
        surface = Surface.create(jax.random.key(0), 1, 2, 1, 1.0)
        bumps = np.zeros(len(surface.network.biases[-1]))
        bumps[[0, -1]] = 9.0  # two corners of the plane
        network = eqx.tree_at(lambda n: n.biases[-1], surface.network, jnp.asarray(bumps))
        prior = TiltedNormal(eqx.tree_at(lambda s: s.network, surface, network))
        places = jnp.asarray(rng.uniform(-3, 3, (40, 3)))
        parts = Concatenate(1), FreeForm.create(2, 5), Identity(2), ConstantNoise.create(0.03), prior
        model = Model(RBF.create(3), places, *parts)
        known = 1e4 * np.eye(40), 1e4 * rng.normal(size=(40, 2))  # f is known, and steep
        posterior = Statistics(*map(jnp.asarray, known))
        x, y = make_inputs(rng.normal(size=(20, 1))), 0.5 * rng.normal(size=(20, 2))
        at = [Predictor.create(model, posterior, Nodes.for_model(model, grid=k)).log_density(x, y) for k in (33, 97)]
        cloud = Predictor.create(model, posterior, Nodes.for_model(model, cloud=1024)).log_density(x, y)
    assert np.abs(at[0] - at[1]).mean() < 0.001
    assert np.abs(cloud - at[1]).mean() > 0.01
