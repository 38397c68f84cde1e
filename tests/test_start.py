"""Where training starts: the guess of w, the places of categories, and that the latents are in use at once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

from gpcde.inference.bound import whole
from gpcde.inference.components import gaussianised
from gpcde.inference.design import Design, projection_start
from gpcde.inference.posterior import Statistics
from gpcde.inference.schedule import Geometric
from gpcde.inference.start import regression, regression_bound, start
from gpcde.inference.training import State, Trainer, train
from gpcde.model.input_maps import Features
from gpcde.model.inputs import Inputs, make_inputs
from gpcde.model.kernels import RBF
from gpcde.model.latents import GaussianLatents
from gpcde.model.likelihood import VaryingNoise
from gpcde.model.mixing import ConjugateMixing, GaussianMixing, Identity, Mixing, PointMixing, grid_start
from gpcde.model.trend import LinearTrend, SmoothTrend

SMALL: dict[str, Any] = {"inducing": 30, "points": 20}
"""Of all designs that say nothing else, of one input and up to 48 rows: they share their programs."""


def two_branches(n: int, seed: int = 0) -> tuple[Inputs, np.ndarray]:
    """y = ±1 + x/2 + a little noise: what w must explain has two modes."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.7, 1.7, (n, 1))
    y = rng.choice([-1.0, 1.0], (n, 1)) + 0.5 * x + 0.1 * rng.standard_normal((n, 1))
    return make_inputs(x), (y - y.mean()) / y.std()


def final_bound(x: Inputs, y: np.ndarray, design: Design) -> float:
    key = jax.random.key(0)
    state = start(key, x, y, design)
    exact = design.inference == "free-form" or design.expectation == "closed"
    trainer = Trainer.create(len(y), Geometric.create(0.01, 0.002, 200), 1.0 if exact else 0.2)
    return train(trainer, key, state, whole(x, y), 200, len(y))[1][-1].bound


def test_guess_of_w_has_normal_scores_in_the_order_of_the_residuals() -> None:
    rng = np.random.default_rng(1)
    residuals = rng.exponential(size=(500, 1))
    w = gaussianised(rng, residuals, 1)
    assert kstest(w[:, 0], "norm").statistic < 0.01
    assert np.array_equal(np.argsort(w[:, 0]), np.argsort(residuals[:, 0])) or np.array_equal(
        np.argsort(-w[:, 0]), np.argsort(residuals[:, 0])
    )


def test_guess_of_w_has_uncorrelated_columns_and_random_ones_where_outputs_are_too_few() -> None:
    rng = np.random.default_rng(2)
    residuals = rng.standard_normal((2000, 2)) @ np.array([[1.0, 0.9], [0.0, 0.3]])
    w = gaussianised(rng, residuals, 3)
    assert np.abs(np.corrcoef(w.T) - np.eye(3)).max() < 0.1


def test_levels_with_like_outputs_start_near_each_other() -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 4, 400)
    centre = np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 1.0], [5.0, 1.1]])
    y = centre[codes] + 0.1 * rng.standard_normal((400, 2))
    mean, _ = projection_start(jax.random.key(0), make_inputs(codes=codes, levels=(4,)), y, 4, 2)
    distance = np.linalg.norm(np.asarray(mean)[:, None] - np.asarray(mean), axis=2)
    assert max(distance[0, 1], distance[2, 3]) < 0.3 * distance[0, 2]


LATENT_KINDS: list[dict[str, Any]] = [
    {"inference": "free-form", "points": 20},
    {"inference": "amortised", "draws": 5},
    {"inference": "amortised", "expectation": "importance", "draws": 5},
    {"inference": "gaussian", "expectation": "closed"},
    {"inference": "free-form", "points": 40, "input_map": "warp"},
]


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[pytest.mark.slow] * ("draws" in k or "input_map" in k)) for k in LATENT_KINDS],
    ids=lambda k: "-".join(str(v) for v in k.values()),
)
def test_latents_do_not_collapse(kind: dict[str, Any]) -> None:
    """Two well separated modes are worth about log(sd/noise) nats a point; a model that ignores w has none of it."""
    x, y = two_branches(48 if kind["inference"] == "free-form" else 150)  # a Gaussian q(w) needs more to see by
    without = final_bound(x, y, Design("none", inducing=30))
    assert final_bound(x, y, Design(inducing=30, **kind)) > without + 0.1


@pytest.mark.parametrize(
    "design",
    [
        Design(**SMALL),
        Design("amortised", latent_dim=3, inducing=30, trials=1),
        Design("gaussian", latent_dim=2, full_covariance=True, inducing=30, trials=1),
        Design(inducing=30, points=20, kernel="matern52", dtype="float32", trials=1),
    ],
    ids=["free-form", "amortised", "gaussian", "float32"],
)
def test_twenty_rows_and_more_inducing_inputs_than_rows(design: Design) -> None:
    """In the type asked for, and training gets somewhere from there."""
    x, y = two_branches(20)
    state = start(jax.random.key(0), x, y, design)
    assert state.model.inducing_points.shape[0] == 30
    assert {leaf.dtype for leaf in jax.tree.leaves(state.model)} == {np.dtype(design.dtype)}
    assert rises(state, x, y, 1.0)


def rises(state: State, x: Inputs, y: np.ndarray, gamma: float = 0.1) -> bool:
    """Whether the second ten steps have a better bound than the first."""
    trainer, bounds = Trainer.create(len(y), 0.01, gamma), []
    for _ in range(2):
        state, records = train(trainer, jax.random.key(1), state, whole(x, y), 10, len(y))
        bounds.append(records[-1].bound)
    return bool(bounds[0] < bounds[1])


def knows_nothing(state: State) -> bool:
    """Whether all numbers are finite, and q(u) has no reason to say anything but 0."""
    assert isinstance(state.posterior, Statistics)
    finite = all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(state))
    return finite and not state.posterior.H.any() and bool((jnp.diagonal(state.posterior.G) > 0).any())


def test_equal_rows_and_constant_outputs_give_a_finite_start() -> None:
    x, y = make_inputs(np.zeros((30, 1))), np.zeros((30, 1))
    assert knows_nothing(start(jax.random.key(0), x, y, Design(**SMALL, trials=1)))


def test_categories_and_mixing_and_no_inputs_have_a_start() -> None:
    rng = np.random.default_rng(4)
    codes = rng.integers(0, 3, 60)
    y = rng.standard_normal((60, 9)) + codes[:, None]
    design = Design(
        "amortised",
        latent_dim=2,
        inducing=12,
        input_map="project",
        input_dim=2,
        levels=(3,),
        mixing=grid_start(3, 3, 4),
    )
    x = make_inputs(codes=codes, levels=(3,))
    state = start(jax.random.key(0), x, y, design)
    assert rises(state, x, y)
    nothing = make_inputs(rows=60)
    lvm = start(
        jax.random.key(0), nothing, y, Design("gaussian", latent_dim=2, inducing=12, expectation="closed", trials=1)
    )
    assert isinstance(lvm.model.latents, GaussianLatents)
    # the start must know the classes: the first component of y is the code
    assert lvm.local is not None
    assert abs(np.corrcoef(np.asarray(lvm.local.value[:, 0]), codes)[0, 1]) > 0.8


@pytest.mark.parametrize(
    ("name", "kind"),
    [("fixed", PointMixing), ("map", PointMixing), ("gaussian", GaussianMixing), ("conjugate", ConjugateMixing)],
)
def test_the_mixing_is_of_the_kind_asked_for(name: str, kind: type[Mixing]) -> None:
    p = grid_start(2, 2, 3)
    mixing = Design(mixing=p, mixing_posterior=name).make_mixing(4)
    assert type(mixing) is kind
    np.testing.assert_array_equal(mixing.apply(jnp.eye(3)).T, p)
    if isinstance(mixing, PointMixing):
        assert mixing.learn == (name == "map")
    assert isinstance(Design(mixing_posterior=name).make_mixing(4), Identity)
    with pytest.raises(ValueError, match="mixing has 4 rows, but y has 5 columns"):
        Design(mixing=p, mixing_posterior=name).make_mixing(5)


def test_a_start_with_a_conjugate_mixing_keeps_its_prior_where_it_was() -> None:
    rng = np.random.default_rng(6)
    x, p = rng.normal(size=(40, 1)), grid_start(2, 2, 2)
    y = np.sin(2 * x) @ p[:, :1].T + 0.1 * rng.normal(size=(40, 4))
    design = Design("none", inducing=10, mixing=p, mixing_posterior="conjugate", dtype="float32")
    state = start(jax.random.key(0), make_inputs(x), y, design)
    mixing = state.model.mixing
    assert isinstance(mixing, ConjugateMixing)
    np.testing.assert_array_equal(mixing.start, np.float32(p))
    assert {leaf.dtype for leaf in jax.tree.leaves(state.model)} == {np.dtype("float32")}
    assert rises(state, make_inputs(x), y)


def test_start_does_not_grow_with_the_data() -> None:
    """A million rows are looked at through a sample: no array of the state has as many."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((1_000_000, 3))
    y = x[:, :1] + rng.standard_normal((1_000_000, 1))
    state = start(jax.random.key(0), make_inputs(x), y, Design("none", inducing=20))
    assert max(leaf.size for leaf in jax.tree.leaves(state)) < 10_000
    # and q(u) stands for them all: sum_n a_nᵀ a_n = tr G, and each a_nᵀ a_n is nearly k(h, h)
    assert isinstance(state.posterior, Statistics)
    total = float(jnp.trace(state.posterior.G)) / 1_000_000
    assert 0.1 < total / float(state.model.kernel.diag(jnp.zeros((1, 3)))[0]) <= 1.001


def test_without_latents_noise_and_features_are_as_designed() -> None:
    """They are not those of the first steps, and what varies is learnt: y is the wider the larger x is."""
    rng = np.random.default_rng(8)
    x = rng.uniform(-1.7, 1.7, (60, 1))
    y = np.exp(x) * rng.standard_normal((60, 1))
    inputs, y = make_inputs(x), y / y.std()
    design = Design("none", inducing=8, likelihood="varying", input_map="features")
    state = start(jax.random.key(0), inputs, y, design)
    assert isinstance(state.model.input_map, Features)
    trainer = Trainer.create(60, 0.02, 1.0)
    state, records = train(trainer, jax.random.key(0), state, whole(inputs, y), 100, 60)
    assert records[0].bound < records[1].bound
    assert isinstance(state.model.likelihood, VaryingNoise)
    log_scale = state.model.likelihood.log_scale(inputs, jnp.zeros((1, 1, 0)))
    assert np.corrcoef(x[:, 0], np.asarray(log_scale)[:, 0])[0, 1] > 0.9
    assert np.ptp(log_scale) > 1


def smooth(n: int) -> tuple[Inputs, np.ndarray]:
    """An even function of one of three inputs, which a line does not see, and what two do together."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.7, 1.7, (n, 3))
    y = np.cos(1.5 * x[:, :1]) + x[:, 1:2] * x[:, 2:] + 0.03 * rng.standard_normal((n, 1))
    return make_inputs(x), (y - y.mean()) / y.std()


FEW: dict[str, Any] = {"first": "lbfgs", "first_steps": 40, "first_inducing": 8, "trend": "linear", "beliefs": True}


def test_few_rows_find_a_kernel_that_few_inducing_inputs_would_not() -> None:
    """Two of 24 inputs matter, and only together: 32 inducing inputs find none, 128 rows with one on each find both."""
    rng, key = np.random.default_rng(0), jax.random.key(0)
    x = rng.uniform(-1.7, 1.7, (192, 24))
    y = np.sin(3 * x[:, :1]) * x[:, 1:2] + 0.07 * rng.standard_normal((192, 1))
    inputs, y, ones = make_inputs(x), (y - y.mean()) / y.std(), np.ones(192)
    designs = [
        Design("none", **{**FEW, "first_steps": 60, "first_inducing": 32}, first_rows=few) for few in (None, 128)
    ]
    plain, found = (regression(key, inputs, y, design) for design in designs)
    assert found.model.inducing_points.shape == plain.model.inducing_points.shape == (32, 24)
    bounds = [regression_bound(key, inputs, y, designs[0], ones, 192.0, state) for state in (plain, found)]
    assert bounds[1] > bounds[0] + 1
    assert isinstance(found.model.kernel, RBF)
    assert set(np.argsort(found.model.kernel.lengthscales)[:2].tolist()) == {0, 1}


def test_a_line_of_all_inputs_does_not_hide_a_better_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five of 12 inputs matter, two of them as a line: one process tells that with a large variance, where it may."""
    rng, key, n = np.random.default_rng(2), jax.random.key(0), 60
    x = rng.uniform(-1, 1, (n, 12))
    a, b, c, d, e = x[:, :5].T
    y = (1.5 * a * b + 2 * c**2 + 1.5 * d + 0.8 * e + 0.15 * rng.standard_normal(n))[:, None]
    inputs, y = make_inputs((x - x.mean(0)) / x.std(0)), (y - y.mean()) / y.std()
    design = Design("none", **{**FEW, "first_steps": 60, "first_inducing": 52}, first_rows=52)
    found = regression(key, inputs, y, design)
    monkeypatch.setattr(LinearTrend, "small", lambda trend: trend)
    hidden = regression(key, inputs, y, design)
    bounds = [regression_bound(key, inputs, y, design, np.ones(n), float(n), state) for state in (hidden, found)]
    assert bounds[1] > bounds[0] + 0.1


def test_no_more_rows_than_that_are_learnt_at_once() -> None:
    """As if there were no such step."""
    (x, y), key = smooth(96), jax.random.key(0)
    one, two = (regression(key, x, y, Design("none", **FEW, first_rows=few)) for few in (None, len(y)))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(a, b)


def test_rows_of_no_weight_find_no_kernel() -> None:
    """What they say changes nothing."""
    (x, y), key, design = smooth(96), jax.random.key(0), Design("none", **FEW, first_rows=32)
    weight = np.ones(len(y))
    weight[::3] = 0
    other = np.where(weight[:, None] > 0, y, 10.0)
    one, two = (regression(key, x, known, design, weight) for known in (y, other))
    for a, b in zip(jax.tree.leaves(one.model.kernel), jax.tree.leaves(two.model.kernel), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_regression_goes_on_from_one_like_it() -> None:
    """Of half of the rows: after one step it is beyond where one step from the first settings leads."""
    (x, y), key = smooth(96), jax.random.key(0)
    design = Design("none", **{**FEW, "first_steps": 1})
    before = regression(key, x.take(slice(48)), y[:48], Design("none", **FEW))
    ones, n = np.ones(len(y)), float(len(y))
    first, further = (regression(key, x, y, design, like=like) for like in (None, before))
    one, two = (regression_bound(key, x, y, design, ones, n, state) for state in (first, further))
    assert two > one + 0.1


def test_a_mean_beside_latents_has_as_few_inducing_inputs_as_told() -> None:
    """However many regression had."""
    (x, y), design = smooth(48), Design(**SMALL, **{**FEW, "trend": "smooth"}, trials=1, trend_inducing=5)
    trend = start(jax.random.key(0), x, y, design).model.trend
    assert isinstance(trend, SmoothTrend)
    assert trend.inducing_points.shape == (5, 3)


def test_rows_that_count_twice_are_two_rows_to_the_start() -> None:
    """Rounding apart, which Adam follows where a derivative is zero: kernel, noise, inducing inputs, all it learns."""
    x, y = two_branches(12)
    design = Design("none", inducing=30)
    twice = np.repeat(np.arange(12), 2)
    weighted = start(jax.random.key(0), x, y, design, np.full(12, 2.0))
    repeated = start(jax.random.key(0), x.take(twice), y[twice], design)
    for one, other in zip(*(jax.tree.leaves(s.model) for s in (weighted, repeated)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(weighted.model.noise_variance, repeated.model.noise_variance, rtol=1e-7)
    assert weighted.model.noise_variance < 0.9 * start(jax.random.key(0), x, y, design).model.noise_variance


def test_the_same_key_gives_the_same_start() -> None:
    x, y = two_branches(20)
    design = Design(**SMALL)
    one, two = (start(jax.random.key(7), x, y, design) for _ in range(2))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"inference": "magic"}, "inference"),
        ({"latent_dim": 0}, "latent_dim"),
        ({"input_map": "project"}, "input_dim"),
        ({"input_map": "warp", "inference": "none"}, "warp"),
        ({"levels": (3,)}, "categories"),
        ({"inducing": 0}, "inducing"),
        ({"first_rows": 0}, "first_rows must be at least 1 or None"),
        ({"trend_inducing": 0}, "trend_inducing"),
        ({"kernel": "cubic"}, "kernel"),
        ({"mixing_posterior": "magic"}, "mixing_posterior"),
        ({"inference": "amortised", "expectation": "closed", "kernel": "matern52"}, "closed"),
        ({"inference": "gaussian", "expectation": "closed", "input_map": "warp"}, "closed"),
        ({"latent_dim": 3}, "Gaussian q\\(w\\)"),
    ],
)
def test_a_design_that_makes_no_sense_is_refused(options: dict[str, Any], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        Design(**options)


def test_inputs_that_do_not_fit_are_refused() -> None:
    x, y = two_branches(30)
    with pytest.raises(ValueError, match="row for each"):
        start(jax.random.key(0), x, y[:20], Design(inducing=10))
    with pytest.raises(ValueError, match="row for each"):
        whole(x, y[:20])
    codes = make_inputs(codes=np.arange(30) % 5, levels=(5,))
    with pytest.raises(ValueError, match="levels"):
        start(jax.random.key(0), codes, y, Design(inducing=10, input_map="project", input_dim=1, levels=(3,)))


def test_a_constant_output_with_categories_has_a_start() -> None:
    x = make_inputs(codes=np.arange(30) % 3, levels=(3,))
    design = Design(inducing=6, input_map="project", input_dim=1, levels=(3,), points=10, trials=1)
    assert knows_nothing(start(jax.random.key(0), x, np.zeros((30, 1)), design))


def test_inducing_inputs_pair_contexts_and_latents_at_random() -> None:
    """Contexts come sorted where few differ, and normal quantiles do too: paired in order they would lie on a line."""
    x, y = two_branches(40)
    z = np.asarray(start(jax.random.key(0), x, y, Design(**SMALL, trials=1)).model.inducing_points)
    assert abs(np.corrcoef(z.T)[0, 1]) < 0.5
