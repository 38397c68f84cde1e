"""Importance sampling: it agrees with quadrature and with brute force, and says how far to trust it."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gpcde.inference.posterior import Statistics
from gpcde.model.input_maps import Concatenate, InputMap, Project
from gpcde.model.inputs import Inputs, make_inputs
from gpcde.model.kernels import RBF
from gpcde.model.latents import FreeForm, GaussianLatents, Latents
from gpcde.model.likelihood import ConstantNoise
from gpcde.model.mixing import Identity
from gpcde.model.model import Model
from gpcde.model.prior import StandardNormal
from gpcde.model.quadrature import evenly_spaced
from gpcde.prediction import importance as _importance
from gpcde.prediction.importance import Estimate, importance_log_density
from gpcde.prediction.nodes import Nodes
from gpcde.prediction.predictor import Predictor
from varying import Moved, OfBoth

N, M, D, DRAWS = 7, 16, 2, 1000
LENGTHSCALES, VARIANCE, NOISE, JITTER = np.array([2.2, 2.0]), 1.5, 0.02, 1e-6
GRID = np.stack([g.ravel() for g in np.meshgrid(*[np.linspace(-2.4, 2.4, 4)] * 2)], 1)


def rbf(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return VARIANCE * np.exp(-0.5 * (((left[:, None] - right) / LENGTHSCALES) ** 2).sum(-1))


def root() -> np.ndarray:
    return np.linalg.cholesky(rbf(GRID, GRID) + JITTER * VARIANCE * np.eye(M))


def make_model(input_map: InputMap, inputs: int, latents: Latents | None = None, varies: bool = False) -> Model:
    """A recognition network that has learnt nothing: all that is known of a row is found by fitting."""
    return Model(
        RBF.create(2, LENGTHSCALES, VARIANCE),
        jnp.asarray(GRID),
        input_map,
        latents or GaussianLatents.amortised(jax.random.key(0), inputs, D, 1, (4,)),
        Identity(D),
        OfBoth.create(NOISE, 0.6, 0.3) if varies else ConstantNoise.create(NOISE),
        Moved.create(0.5) if varies else StandardNormal(),
        jitter=JITTER,
    )


def truth(h: np.ndarray) -> np.ndarray:
    """Functions that tell both their arguments: the posterior of what is drawn has one mode."""
    return np.tanh(h / 2) @ np.array([[0.8, 2.0], [2.4, -1.2]])


def make_statistics() -> Statistics:
    return Statistics(2.0 * jnp.eye(M), jnp.asarray((NOISE + 2.0) * np.linalg.solve(root(), truth(GRID))))


def make_rows(mean: np.ndarray | None = None) -> tuple[Inputs, np.ndarray]:
    """Rows like those of the model, where A (or none) has this mean, each farther from it than the one before."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(N, 1 if mean is None else len(mean)))
    h = np.hstack([x if mean is None else x @ mean, rng.normal(size=(N, 1))])
    return make_inputs(x), truth(h) + np.linspace(0.05, 0.35, N)[:, None] * rng.normal(size=(N, D))


def plain(varies: bool = False) -> Model:
    return make_model(Concatenate(1), 1, varies=varies)


@cache
def by_quadrature(varies: bool = False) -> np.ndarray:
    predictor = Predictor.create(plain(varies), make_statistics(), Nodes(*evenly_spaced(400, reach=7.0)))
    return predictor.log_density(*make_rows())


def error(estimate: Estimate, draws: int) -> np.ndarray:
    """Standard error of log p, from the spread of the ratios."""
    return np.sqrt(1 / estimate.effective - 1 / draws)


@pytest.mark.parametrize("varies", [False, True], ids=["constant", "varying"])
def test_it_agrees_with_quadrature(varies: bool) -> None:
    """Where noise and prior of w vary, too, and are not what they were."""
    estimate = importance_log_density(plain(varies), make_statistics(), *make_rows(), draws=DRAWS)
    expected = by_quadrature(varies)
    assert error(estimate, DRAWS).max() < 0.1
    assert (np.abs(estimate.log_density - expected) < 4 * error(estimate, DRAWS)).all()
    assert np.ptp(expected) > 20 * error(estimate, DRAWS).max()
    if varies:
        assert (np.abs(expected - by_quadrature()) > 20 * error(estimate, DRAWS)).any()


def test_blocks_of_rows_and_of_draws_may_be_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows by threes, of which the last block starts early; draws by 400, of which the last are too many."""
    monkeypatch.setattr(_importance, "FITTED_AT_ONCE", 3)
    monkeypatch.setattr(_importance, "NUMBERS_AT_ONCE", 3 * M * 400)
    estimate = importance_log_density(plain(), make_statistics(), *make_rows(), draws=DRAWS)
    assert estimate.log_density.shape == estimate.effective.shape == (N,)
    assert error(estimate, DRAWS).max() < 0.1
    assert (np.abs(estimate.log_density - by_quadrature()) < 4 * error(estimate, DRAWS)).all()


def test_fitting_makes_draws_count_for_more() -> None:
    """Between one and all of them count, and more of them once q is fitted; the answer stays."""
    rough, fitted = (
        importance_log_density(plain(), make_statistics(), *make_rows(), DRAWS, fit_steps=steps) for steps in (0, 100)
    )
    for estimate in (rough, fitted):
        assert (estimate.effective >= 1 - 1e-9).all()
        assert (estimate.effective <= DRAWS * (1 + 1e-9)).all()
    assert np.median(fitted.effective) > 1.2 * np.median(rough.effective)
    assert (np.abs(rough.log_density - fitted.log_density) < 5 * error(rough, DRAWS)).all()


def test_one_draw_counts_as_one_and_is_too_low_rather_than_too_high() -> None:
    """E log of an unbiased estimate lies below the log, where q is not fitted: twenty seeds, the mean over rows."""
    rows = plain(), make_statistics(), *make_rows()
    estimates = [importance_log_density(*rows, draws=1, fit_steps=0, seed=seed) for seed in range(20)]
    for estimate in estimates:
        np.testing.assert_allclose(estimate.effective, 1, rtol=1e-12)
    gaps = np.stack([estimate.log_density - by_quadrature() for estimate in estimates]).mean(1)
    assert gaps.mean() < -3 * gaps.std() / np.sqrt(len(gaps))


def test_the_same_seed_gives_the_same_bits() -> None:
    one, again, other = (
        importance_log_density(plain(), make_statistics(), *make_rows(), DRAWS, seed=seed) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(one.log_density, again.log_density)
    np.testing.assert_array_equal(one.effective, again.effective)
    assert (one.log_density != other.log_density).all()


def test_an_uncertain_a_is_integrated_out_as_well() -> None:
    """Against draws of A itself and of w from the prior, and the dense predictive density at each."""
    rng = np.random.default_rng(5)
    mean, std, count = rng.normal(size=(2, 1)), np.array([[0.5], [0.3]]), 200_000
    model = make_model(Project(jnp.asarray(mean), jnp.log(jnp.asarray(std))), 2)
    statistics, (x, y) = make_statistics(), make_rows(mean)
    estimate = importance_log_density(model, statistics, x, y, draws=DRAWS)

    G, H, lower = np.asarray(statistics.G), np.asarray(statistics.H), root()
    S = np.linalg.inv(np.eye(M) + G / NOISE)
    for n in range(N):
        place = (np.asarray(x.dense)[n] @ (mean + std * rng.normal(size=(count, 2, 1))))[:, 0]
        a = np.linalg.solve(lower, rbf(GRID, np.stack([place, rng.normal(size=count)], 1))).T
        variance = VARIANCE - (a * a).sum(1) + ((a @ S) * a).sum(1) + NOISE
        squares = ((y[n] - a @ (S @ H / NOISE)) ** 2).sum(1)
        density = np.exp(-0.5 * squares / variance) / (2 * np.pi * variance) ** (D / 2)
        brute, uncertain = np.log(density.mean()), density.std() / density.mean() / np.sqrt(count)
        assert uncertain < 0.05
        tolerance = 4 * np.hypot(uncertain, error(estimate, DRAWS)[n])
        assert abs(estimate.log_density[n] - brute) < tolerance < 0.5


@pytest.mark.parametrize("kind", ["free-form", "own"])
def test_it_needs_a_recognition_network(kind: str) -> None:
    model = make_model(Concatenate(1), 1, FreeForm.create(1, 5) if kind == "free-form" else GaussianLatents(None, 1))
    with pytest.raises(ValueError, match="recognition network"):
        importance_log_density(model, make_statistics(), *make_rows())


@pytest.mark.parametrize(("options", "name"), [({"draws": 0}, "draws"), ({"fit_steps": -1}, "fit_steps")])
def test_numbers_that_make_no_sense_are_refused(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{next(iter(options.values()))}"):
        importance_log_density(plain(), make_statistics(), *make_rows(), **options)
