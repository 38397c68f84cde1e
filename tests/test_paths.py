"""Functions drawn from the posterior have its moments, and the densities along them average to the prediction."""

import inspect
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from gpcde.inference.posterior import Statistics
from gpcde.model import waves
from gpcde.model.input_maps import Bend, Concatenate, InputMap, Project
from gpcde.model.inputs import Inputs, make_inputs
from gpcde.model.kernels import RBF, Kernel, Linear, Matern32, Matern52, One
from gpcde.model.latents import FreeForm
from gpcde.model.likelihood import ConstantNoise
from gpcde.model.mixing import ConjugateMixing, GaussianMixing, Identity, Mixing, PointMixing
from gpcde.model.model import Model
from gpcde.model.prior import StandardNormal
from gpcde.prediction.paths import draw_path
from gpcde.runtime.compilation import compiled
from gpcde.runtime.precision import scope
from small import ask, fitted
from varying import Moved, OfBoth

M, D, DRAWS, NOISE = 5, 3, 4000, 0.2
P = np.array([[1.0, 0.8], [0.4, 1.1], [-0.5, 0.3]])
W = np.array([[-0.8], [0.9]])
with scope():
    KERNELS: dict[str, Kernel] = {
        "rbf": RBF.create(2, [0.9, 1.4], 1.3),
        "matern32": Matern32.create(2, [0.9, 1.4], 1.3),
        "matern52 × rbf": Matern52.create((0,), 0.8, 1.3) * RBF.create((1,), 1.2),
        "rbf × matern32": RBF.create((0, 1), 1.1, 0.7) * Matern32.create((1,), 1.2, 1.5),
        "rbf × one": RBF.create(2, [0.9, 1.4], 1.3) * One(),
    }
    MAPS: dict[str, InputMap] = {
        "x": Concatenate(1),
        "A x": Project(jnp.asarray([[0.7]]), jnp.asarray([[np.log(0.4)]])),
    }
    MAPS["bent"] = Bend.create(jax.random.key(1), MAPS["x"], 1, 1)
    MAPS["bent A x"] = Bend.create(jax.random.key(1), MAPS["A x"], 1, 1)
    IDENTITY = Identity(D)


def make(
    kernel: str = "rbf", input_map: str = "x", mixing: Mixing | None = None, varies: bool = False
) -> tuple[Model, Statistics, Inputs]:
    rng = np.random.default_rng(0)
    model = Model(
        KERNELS[kernel],
        jnp.asarray(rng.normal(size=(M, 2))),
        MAPS[input_map],
        FreeForm.create(1, 3),
        PointMixing.create(P) if mixing is None else mixing,
        OfBoth.create(NOISE, 0.3, 0.2) if varies else ConstantNoise.create(NOISE),
        Moved.create(0.7) if varies else StandardNormal(),
    )
    a = rng.normal(size=(8, M))
    statistics = Statistics(jnp.asarray(a.T @ a), jnp.asarray(a.T @ rng.normal(size=(8, D))))
    return model, statistics, make_inputs(np.array([[0.3], [-1.2]]))


@compiled
def _draws(keys: jax.Array, model: Model, statistics: Statistics, x: Inputs) -> jax.Array:
    draw = inspect.unwrap(draw_path)  # compiled together with the loop
    return jax.lax.map(lambda key: draw(key, model, statistics).functions(x, jnp.asarray(W)), keys)


def draws(model: Model, statistics: Statistics, x: Inputs) -> np.ndarray:
    """f at all x and w, and all L, as one vector for each draw; few features, for they are drawn anew each time."""
    keys = jax.random.split(jax.random.key(0), DRAWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waves, "FEATURES", 64)
        return np.asarray(_draws(keys, model, statistics, x)).reshape(DRAWS, -1)


def exact(model: Model, statistics: Statistics, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of all f_l(h), from the dense joint posterior of all u_l; ordered by h, then l."""
    z, kernel = model.inducing_points, model.kernel
    gram = np.asarray(ask(kernel.gram, z))
    root = np.linalg.cholesky(gram + model.jitter * np.diag(gram).mean() * np.eye(M))
    a = np.linalg.solve(root, np.asarray(ask(kernel, z, jnp.asarray(h)))).T
    p = np.eye(D) if isinstance(model.mixing, Identity) else P
    count = p.shape[1]
    joint = np.linalg.inv(np.eye(count * M) + np.kron(p.T @ p, np.asarray(statistics.G)) / NOISE)
    mean = (joint @ (np.asarray(statistics.H) @ p).T.ravel() / NOISE).reshape(count, M)
    covariance = np.einsum("nm,lmji,ki->nlkj", a, joint.reshape(count, M, count, M), a)
    rest = np.asarray(ask(kernel, jnp.asarray(h), jnp.asarray(h))) - a @ a.T
    covariance = covariance + np.einsum("nk,lj->nlkj", rest, np.eye(count))
    return (a @ mean.T).ravel(), covariance.reshape(2 * [len(h) * count])


def assert_moments(sample: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Within five standard errors of the sample's moments."""
    error = np.abs(sample.mean(0) - mean) / np.sqrt(np.diag(covariance) / len(sample))
    assert error.max() < 5
    centred = sample - mean
    products = centred[:, :, None] * centred[:, None]
    error = np.abs(products.mean(0) - covariance) / (products.std(0) / np.sqrt(len(sample)))
    assert error.max() < 5
    assert products.std(0).max() / np.sqrt(len(sample)) < 0.1 * np.diag(covariance).max()


def points(model: Model, x: Inputs, context: np.ndarray) -> np.ndarray:
    """h at every x and w, where the base of the map gives this context."""
    moved = np.repeat(W[None], x.n_rows, axis=0)
    if isinstance(model.input_map, Bend):
        whole = model.input_map.context(x, jnp.zeros((x.n_rows, model.input_map.draw_dim)))
        moved = np.asarray(model.input_map.halves(whole, jnp.asarray(W)[None])[1])
    return np.concatenate([np.repeat(context[:, None], len(W), axis=1), moved], axis=2).reshape(-1, 2)


@pytest.mark.parametrize(
    ("kernel", "input_map", "mixing"),
    [
        ("rbf", "x", IDENTITY),
        ("rbf", "x", None),
        ("matern32", "x", None),
        ("matern52 × rbf", "bent", None),
        ("rbf × matern32", "x", IDENTITY),
    ],
    ids=str,
)
def test_draws_have_the_moments_of_the_posterior(kernel: str, input_map: str, mixing: Mixing | None) -> None:
    model, statistics, x = make(kernel, input_map, mixing)
    assert_moments(draws(model, statistics, x), *exact(model, statistics, points(model, x, np.asarray(x.dense))))


@pytest.mark.parametrize("input_map", ["A x", "bent A x"])
def test_draws_share_one_uncertain_projection(input_map: str) -> None:
    """All rows see the same A: given it, the moments are exact; over it, they are integrals of one dimension."""
    model, statistics, x = make("rbf", input_map)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    each = [exact(model, statistics, points(model, x, np.asarray(x.dense) * (0.7 + 0.4 * node))) for node in nodes]
    mean = sum(w * m for w, (m, _) in zip(weights, each, strict=True))
    second = sum(w * (c + np.outer(m, m)) for w, (m, c) in zip(weights, each, strict=True))
    sample = draws(model, statistics, x)
    assert_moments(sample, np.asarray(mean), second - np.outer(mean, mean))


@pytest.mark.parametrize("name", KERNELS)
def test_frequencies_are_of_the_kernels_spectrum(name: str) -> None:
    """Bochner: k(0, d) = v E cos(ωᵀd); 60,000 draws tell the Matérns apart."""
    kernel, gaps = KERNELS[name], np.array([[0.3, 0.0], [0.0, 0.7], [1.0, -0.5], [2.0, 1.0]])
    where, variance = ask(kernel.frequencies, jax.random.key(0), 2, 60_000)
    got = float(variance) * np.cos(gaps @ np.asarray(where)).mean(1)
    np.testing.assert_allclose(got, np.asarray(ask(kernel, jnp.zeros((1, 2)), jnp.asarray(gaps)))[0], atol=0.012)


def test_other_kernels_have_no_spectrum() -> None:
    with pytest.raises(NotImplementedError, match="not for Linear"):
        (RBF.create(1) * Linear.create(1)).frequencies(jax.random.key(0), 1, 4)


@compiled
def _mixings(keys: jax.Array, model: Model, statistics: Statistics) -> jax.Array:
    draw = inspect.unwrap(draw_path)
    return jax.lax.map(lambda key: draw(key, model, statistics).model.mixing.expected, keys)


def mixings(mixing: Mixing) -> np.ndarray:
    """P along 400 paths."""
    model, statistics, _ = make(mixing=mixing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waves, "FEATURES", 64)
        return np.asarray(_mixings(jax.random.split(jax.random.key(0), 400), model, statistics))


def test_an_uncertain_mixing_is_drawn() -> None:
    drawn = mixings(GaussianMixing(jnp.asarray(P), jnp.full(P.shape, np.log(0.3)), jnp.asarray(P), jnp.zeros(())))
    np.testing.assert_allclose(drawn.mean(0), P, atol=5 * 0.3 / 20)
    np.testing.assert_allclose(drawn.std(0), 0.3, atol=5 * 0.3 / np.sqrt(800))


def test_rows_of_an_uncertain_mixing_covary_as_they_should() -> None:
    width = P.shape[1]
    root = 0.3 * np.tril(np.random.default_rng(3).normal(size=(width, width))) + 0.2 * np.eye(width)
    covariance = root @ root.T
    mixing = ConjugateMixing.of(jnp.asarray(P), jnp.asarray(covariance), jnp.asarray(P), jnp.zeros(()))
    drawn = mixings(mixing) - P
    spread = np.sqrt(np.diag(covariance))
    assert (np.abs(drawn.mean(0)) < 5 * spread / 20).all()
    rows = drawn.reshape(-1, width)
    np.testing.assert_allclose(rows.T @ rows / len(rows), covariance, atol=6 * spread.max() ** 2 / np.sqrt(len(rows)))


@pytest.mark.parametrize("varies", [False, True], ids=["constant", "varying"])
@pytest.mark.parametrize("mixing", [None, IDENTITY], ids=["P", "identity"])
def test_the_density_along_a_path_is_a_sum_of_normals_round_it(mixing: Mixing | None, varies: bool) -> None:
    """With the noise σ² s(x, w) and the weights of N(c x, 1), where these vary."""
    model, statistics, x = make(mixing=mixing, varies=varies)
    path = draw_path(jax.random.key(0), model, statistics)
    components = path.components(x)
    nodes = np.linspace(-5, 5, components.n_components)
    f = np.asarray(ask(path.functions, x, jnp.asarray(nodes[:, None])))
    means, rows = f if mixing is not None else f @ P.T, np.asarray(x.dense)
    noise = NOISE * np.exp(varies * (0.3 * rows + 0.2 * nodes))
    y = np.random.default_rng(1).normal(size=(2, D))
    logs = norm.logpdf(y[:, None], means, np.sqrt(noise)[..., None]).sum(2)
    log_weight = norm.logpdf(nodes, varies * 0.7 * rows)
    log_weight = log_weight - logsumexp(log_weight, axis=1, keepdims=True)
    np.testing.assert_allclose(components.log_pdf(y[:, None])[:, 0], logsumexp(logs + log_weight, axis=1), rtol=1e-9)


# from an estimator


@cache
def samples(name: str, n: int = 30) -> np.ndarray:
    model, table, y = fitted(name)
    return model.sample_densities(table[:2], n, random_state=0).pdf_grid(np.linspace(y.min(), y.max(), 9))


@pytest.mark.parametrize("name", ["none", "free-form", "categories"])
def test_densities_average_to_the_prediction(name: str) -> None:
    model, table, y = fitted(name)
    got, grid = samples(name), np.linspace(y.min(), y.max(), 9)
    expected = model.predict_density(table[:2]).pdf_grid(grid)
    error = np.abs(got.mean(0) - expected) / (got.std(0) / np.sqrt(len(got)) + 2e-3 * expected.max())
    assert error.max() < 5
    assert (got.std(0) / np.sqrt(len(got))).max() < 0.1 * expected.max()


def test_samples_are_densities_and_the_seed_decides_them() -> None:
    model, table, y = fitted("none")
    one, again, other = (model.sample_densities(table[:3], 4, random_state=seed) for seed in (5, 5, 6))
    assert (len(one), len(one[0])) == (4, 3)
    grid = np.linspace(y.min() - 30, y.max() + 30, 2001)
    heights = one.pdf_grid(grid)
    assert heights.shape == (4, 3, 2001)
    np.testing.assert_allclose(heights.sum(2) * (grid[1] - grid[0]), 1, rtol=1e-6)
    np.testing.assert_array_equal(heights, again.pdf_grid(grid))
    assert np.abs(heights - other.pdf_grid(grid)).max() > 1e-4
    assert np.abs(heights[0] - heights[1]).max() > 1e-4
    np.testing.assert_array_equal(heights[2], list(one)[2].pdf_grid(grid))
    assert repr(one) == "DensitySamples(4 draws of ConditionalDensity(rows=3, outputs=1))"


def test_the_band_widens_away_from_the_data() -> None:
    model, _, _ = fitted("none")
    draws_ = model.sample_densities([[0.0, 0.0], [12.0, -12.0]], 60, random_state=0)
    band, narrow = draws_.band(), draws_.band(0.5)
    assert band.points.shape == (201,)
    assert band.lower.shape == band.mean.shape == band.upper.shape == (2, 201)
    assert (band.lower >= 0).all()
    assert ((band.lower <= narrow.lower) & (narrow.lower <= narrow.upper) & (narrow.upper <= band.upper)).all()
    inside, away = (band.upper - band.lower).max(1) / band.mean.max(1)
    assert away > 2 * inside
    heights = draws_.pdf_grid(band.points)
    np.testing.assert_allclose(band.upper, np.quantile(heights, 0.95, axis=0))
    np.testing.assert_allclose(band.mean, heights.mean(0))


def test_what_makes_no_sense_is_refused() -> None:
    model, table, _ = fitted("two outputs")
    with pytest.raises(ValueError, match="n, the number of draws, must be at least 1, got 0"):
        model.sample_densities(table, 0)
    some = model.sample_densities(table[:1], 2, random_state=0)
    for level in (0.0, 1.0, 90.0):
        with pytest.raises(ValueError, match=f"level must lie between 0 and 1, got {level}"):
            some.band(level)
    with pytest.raises(ValueError, match=r"at which points; or take marginal\(j\) first"):
        some.band()
    with pytest.raises(ValueError, match="points must be a matrix with 2 columns"):
        some.band(points=[1.0, 2.0, 3.0])
    assert some.band(points=np.zeros((4, 2))).mean.shape == (1, 4)
    assert some.marginal(1).band().mean.shape == (1, 201)


@pytest.mark.parametrize("input_map", MAPS)
def test_what_does_not_depend_on_x_may_be_computed_once(input_map: str) -> None:
    """Where the map leaves w as it is; f is the same."""
    model, statistics, x = make(input_map=input_map)
    path, w = draw_path(jax.random.key(0), model, statistics), jnp.asarray(W)
    waves = path.waves(w)
    assert (waves is None) == input_map.startswith("bent")
    if waves is not None:
        np.testing.assert_allclose(ask(path.functions, x, w, waves), ask(path.functions, x, w), atol=1e-10)
