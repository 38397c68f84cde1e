"""What is chosen where the user did not say, and that the user's word comes first."""

from typing import Any

import numpy as np
import pytest

from gpcde import GPCDE
from gpcde.estimators.plan import (
    BATCH,
    EXACT_RATES,
    FEW_OF_MEAN,
    FEW_ROWS,
    FEW_STEPS,
    FIRM,
    FIRST_ROWS,
    FIRST_STEPS,
    FULL_BATCH,
    MANY_INPUTS,
    MANY_ROWS,
    MANY_STEPS,
    MOST_OF_MEAN,
    MOST_STEPS,
    NOISY,
    POINTS,
    Plan,
    choose,
)
from gpcde.inference.design import LITTLE_NOISE


def plan(rows: int = 100, dense: int = 2, outputs: int = 1, levels: tuple[int, ...] = (), **said: Any) -> Plan:
    """For as many rows as told, of which a few are shown."""
    z = np.random.default_rng(0).normal(size=(min(rows, 20), outputs))
    return choose(GPCDE(**said).get_params(deep=False), rows, dense, levels, z)


@pytest.mark.parametrize(
    ("outputs", "inference", "latents"),
    [(1, "free-form", 1), (2, "amortised", 2), (3, "amortised", 3), (9, "amortised", 4)],
)
def test_latents_follow_the_outputs(outputs: int, inference: str, latents: int) -> None:
    """One or two of them go with features of x, and with noise and p(w|x) that vary; more are bent."""
    design = plan(FEW_ROWS + 1, outputs=outputs).design
    assert (design.inference, design.latent_dim, design.mixing) == (inference, latents, None)
    kinds = ("features", "varying", "tilted") if latents <= 2 else ("bend", "constant", "normal")
    assert (design.input_map, design.likelihood, design.prior) == kinds
    if inference == "free-form":
        assert (design.points, design.rule, design.shifted) == (POINTS[latents], "even", True)
    else:
        assert (design.expectation, design.draws) == ("importance", 10)


def test_few_rows_of_one_output_are_all_seen_and_have_no_features() -> None:
    """By steps of q(u) that are larger, and fewer: their nodes are the same, and change little from step to step."""
    few, more, two = plan(FEW_ROWS), plan(FEW_ROWS + 1), plan(FEW_ROWS, outputs=2)
    assert (few.batch_size, few.steps, few.design.input_map) == (FEW_ROWS, FEW_STEPS, "concatenate")
    assert not few.exact
    assert more.gammas < few.gammas < (1, 1)
    assert (more.steps, more.rates) == (MANY_STEPS, few.rates)
    assert two.steps > more.steps  # each row has draws of its own, and needs more and smaller steps
    assert two.rates < more.rates
    for other in (more, two):
        assert (other.batch_size, other.design.input_map, other.gammas) == (256, "features", more.gammas)
    assert plan(FEW_ROWS, levels=(3,)).design.input_map == "project"
    assert plan(FEW_ROWS, inference="free-form", latent_dim=2).batch_size < FEW_ROWS  # too many pairs with its nodes


@pytest.mark.parametrize(
    ("said", "inference", "latents"),
    [
        ({"latent_dim": 2}, "amortised", 2),
        ({"latent_dim": 3}, "amortised", 3),
        ({"inference": "gaussian"}, "gaussian", 1),
        ({"inference": "gaussian", "latent_dim": 6}, "gaussian", 6),
        ({"inference": "amortised"}, "amortised", 1),
        ({"inference": "none"}, "none", 0),
    ],
)
def test_the_users_latents_come_first(said: dict[str, Any], inference: str, latents: int) -> None:
    design = plan(**said).design
    assert (design.inference, design.latent_dim) == (inference, latents)


def test_free_form_stays_in_two_dimensions_however_many_outputs() -> None:
    assert plan(outputs=5, inference="free-form").design.latent_dim == 2


@pytest.mark.parametrize(
    ("dense", "levels", "said", "expected"),
    [
        (MANY_INPUTS, (), {}, ("concatenate", 0)),
        (MANY_INPUTS, (), {"latent_dim": 2}, ("features", 0)),
        (MANY_INPUTS + 1, (), {}, ("project", 10)),
        (MANY_INPUTS + 1, (), {"latent_dim": 2}, ("features", 10)),
        (3, (2, 5), {}, ("project", 3 + 1 + 2)),
        (0, (2,), {}, ("project", 1)),
        (0, (1,), {}, ("project", 1)),
        (9, (7, 7), {}, ("project", 10)),
        (3, (), {"input_dim": 2}, ("project", 2)),
        (3, (), {"input_map": "features", "input_dim": 2}, ("features", 2)),
        (3, (), {"input_map": "bend", "input_dim": 2}, ("bend", 2)),
        (0, (), {}, ("concatenate", 0)),
        (3, (), {"input_map": "project"}, ("project", 3)),
        (3, (4,), {"input_map": "project", "input_dim": 1}, ("project", 1)),
        (3, (4,), {"input_map": "warp"}, ("warp", 0)),
        (40, (), {"input_map": "concatenate"}, ("concatenate", 0)),
        (3, (), {"inference": "none"}, ("concatenate", 0)),
        (3, (4,), {"inference": "none"}, ("project", 5)),
    ],
)
def test_inputs_go_through_a_where_they_are_many_or_categories(
    dense: int, levels: tuple[int, ...], said: dict[str, Any], expected: tuple[str, int]
) -> None:
    design = plan(dense=dense, levels=levels, **said).design
    assert (design.input_map, design.input_dim) == expected
    assert design.levels == levels
    assert design.projects == (expected[1] > 0)


def test_rows_are_seen_whole_where_a_step_is_then_exact() -> None:
    """By how many pairs of rows and nodes a step would look at; one that draws takes a batch."""
    few, many = plan(FULL_BATCH, inference="none"), plan(FULL_BATCH + 1, inference="none")
    assert (few.batch_size, few.exact, few.steps, few.gammas) == (FULL_BATCH, True, FEW_STEPS, (1.0, 1.0))
    asked = plan(FULL_BATCH + 1, inference="none", batch_size=FULL_BATCH + 1)
    assert (asked.exact, asked.steps, asked.gammas) == (True, FEW_STEPS, (1.0, 1.0))
    for batches in (many, plan(1000)):
        assert not batches.exact
        assert batches.gammas[0] < 1
        assert few.rates == EXACT_RATES["lbfgs"] < batches.rates <= EXACT_RATES["adam"]
        assert batches.batch_size == 256
    two = plan(10**6, outputs=2, inference="free-form").batch_size
    assert two * POINTS[2] ** 2 <= BATCH
    assert two > 32


def test_many_rows_are_all_seen() -> None:
    """More rows, more steps; at least a pass."""
    steps = [plan(n).steps for n in (20, 1_000, 5_000, 100_000, 10**7)]
    assert steps[:4] == [FEW_STEPS, MANY_STEPS, 2_000, MOST_STEPS]
    assert steps[4] == 10**7 // plan(10**7).batch_size


def test_few_rows_are_helped_by_what_is_believed() -> None:
    """Priors of lengthscales and noise, a linear trend, and lengthscales found without latents first."""
    design = plan(20, dense=5).design
    assert (design.beliefs, design.trend, design.first, design.first_steps) == (True, "quiet", "lbfgs", FIRST_STEPS)
    assert design.first_inducing == 16


def test_inducing_inputs_are_a_multiple_of_eight_where_rows_are_few() -> None:
    """So that tables of nearly as many rows share their programs; as many as the user said, and no more than rows."""
    assert [plan(n).design.first_inducing for n in (5, 8, 23, 24)] == [5, 8, 16, 24]
    assert [plan(n).design.inducing for n in (5, 8, 23, 60)] == [5, 8, 16, 24]
    assert [plan(n, inference="none").design.inducing for n in (5, 60)] == [5, 56]
    assert [plan(n, n_inducing=13).design.inducing for n in (5, 12, 60)] == [5, 12, 13]


def test_more_rows_have_a_mean_of_their_own() -> None:
    """With more inducing inputs for more rows and inputs; those of the density stay few."""
    assert [plan(n, dense=4).design.trend for n in (500, 501)] == ["quiet", "smooth"]
    assert plan(501, outputs=3).design.trend == "linear"
    assert [plan(n).design.first_inducing for n in (1_000, 10_000)] == [96, 192]
    assert plan(10_000, dense=1).design.first_inducing == 32
    assert plan(500).design.first_inducing == 96
    assert plan(10_000, dense=4).design.inducing == 48


def test_regression_of_three_numbers_or_more_is_exact_first() -> None:
    """An inducing input on each of few rows, or on each of some of many, which find the kernel; not with an A."""
    assert [plan(n, dense=3).design.first_inducing for n in (100, 500, 501)] == [96, 496, 192]
    assert [plan(n, dense=3, inference="none").design.inducing for n in (500, 5_000)] == [496, 192]
    assert [plan(1_000, dense=dense).design.first_rows for dense in (2, 3)] == [None, FIRST_ROWS]
    means = [plan(n, dense=3).design.trend_inducing for n in (500, 501, 2_001)]
    assert means == [MOST_OF_MEAN, FEW_OF_MEAN, MOST_OF_MEAN]
    projected = plan(1_000, dense=3, levels=(4,)).design
    assert (projected.first_rows, projected.first_inducing) == (None, 96)
    assert plan(400, dense=MANY_INPUTS + 1).design.first_inducing == 192


def test_what_regression_leaves_decides_of_a_mean_of_its_own() -> None:
    """One kernel for mean and density where it leaves much, of some rows; of many and of few, the design says."""
    made = plan(501, dense=4)
    assert made.noisy is not None
    assert (made.noisy.input_map, made.noisy.trend, made.noisy.inducing) == ("features", "linear", 96)
    assert made.settled(0.9 * NOISY) is made
    assert made.settled(NOISY).design is made.noisy
    little = made.settled(0.9 * LITTLE_NOISE).design  # a mean that rows fix closely is worth more
    assert (little.trend_inducing, made.design.trend_inducing) == (MOST_OF_MEAN, FEW_OF_MEAN)
    for other in (plan(500), plan(MANY_ROWS + 1), plan(501, outputs=2)):
        assert other.settled(1.0) is other


def test_of_two_outputs_another_design_is_tried() -> None:
    """A surface that x moves little, by a firm prior; where the map is said, one kernel for mean and density."""
    for untried in (plan(500, outputs=2), plan(501), plan(501, outputs=3), plan(501, outputs=2, input_map="warp")):
        assert untried.other is None
    two, own = (plan(501, dense=4, levels=(3,), outputs=2, input_map=said).other for said in ("auto", "bend"))
    assert two is not None
    assert (two.input_map, two.trend, two.inducing, two.feature_precision) == ("warp", "none", 96, FIRM)
    assert not two.projects
    assert own is not None
    assert (own.input_map, own.trend) == ("bend", "linear")


def test_a_step_that_draws_is_not_exact() -> None:
    """A drawn A or w, or nodes that move, make the bound noisy, and q(u) must not jump to each batch's optimum."""
    assert plan(inference="none").exact
    said: list[dict[str, Any]] = [{}, {"inference": "amortised"}, {"inference": "gaussian"}, {"levels": (3,)}]
    for noisy in [plan(**settings) for settings in said] + [plan(inference="none", batch_size=50)]:
        assert not noisy.exact
        assert noisy.gammas[0] < 1


def test_the_users_sizes_come_first() -> None:
    said = plan(1000, n_inducing=17, batch_size=33, max_steps=7)
    assert (said.design.inducing, said.batch_size, said.steps) == (17, 33, 7)
    assert plan(1000, kernel="matern52").design.kernel == "matern52"
    assert plan(5, n_inducing=17, batch_size=33).design.inducing == 5
    assert plan(5, batch_size=33).batch_size == 5


def test_more_rows_get_more_inducing_points() -> None:
    counts = [plan(rows).design.inducing for rows in (3, 100, 800, 100_000)]
    assert counts == sorted(counts)
    assert counts[0] == 3
    assert all(count % 8 == 0 for count in counts[1:])
    assert plan(dense=8).design.inducing > plan(dense=1).design.inducing


def test_the_mixing_starts_at_the_principal_directions() -> None:
    z = np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 5.0, 2.0]
    design = choose(GPCDE(output_dim=2).get_params(deep=False), 50, 1, (), z).design
    assert isinstance(design.mixing, np.ndarray)
    values, vectors = np.linalg.eigh(np.cov(z.T, bias=True))
    best = vectors[:, :0:-1] @ np.diag(values[:0:-1]) @ vectors[:, :0:-1].T
    np.testing.assert_allclose(design.mixing @ design.mixing.T, best, rtol=1e-9)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"inference": "exact"}, "inference must be one of"),
        ({"input_map": "none"}, "input_map must be one of"),
        ({"kernel": "sine"}, "kernel must be one of"),
        ({"output_dim": 2}, "output_dim must be at most the 1 columns of y, got 2"),
        ({"input_map": "concatenate", "input_dim": 2}, "input_dim is the number of rows of A"),
        ({"input_map": "concatenate", "levels": (3,)}, "categories need input_map="),
        ({"input_map": "bend", "inference": "none"}, "inference must not be 'none'"),
        ({"inference": "free-form", "latent_dim": 3}, "one or two latent dimensions"),
        *[
            ({name: value}, f"{name} must be a positive integer, or None.*got {value}")
            for name in ("latent_dim", "n_inducing", "input_dim", "output_dim", "max_steps", "batch_size")
            for value in (0, -1, True)
        ],
    ],
)
def test_what_cannot_be_is_refused_by_name(said: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(**said)
