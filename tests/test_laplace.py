"""What is uncertain of noise and prior: against finite differences, a dense covariance, and rows that repeat."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpcde
from gpcde import GPCDE, demo
from gpcde.inference.bound import Batch, whole
from gpcde.model import Surface, TiltedNormal
from gpcde.prediction import Predictor
from gpcde.prediction.laplace import Curvature, Laplace, last_layers, surfaces
from small import QUICK, ask, fitted
from small import rows as rows_of


def trained(rows: int = 7) -> tuple[Any, Any, Batch]:
    """A model with surfaces, its q(u), and some rows in standard units."""
    model, table, y = fitted("free-form")
    assert len(surfaces(model.state_.model)) == 2
    return model.state_.model, model.state_.posterior, whole(*model._standard_rows(table[:rows], y[:rows]))


def found(model: Any, posterior: Any, rows: Batch, total: float | None = None) -> Laplace:
    made = Laplace.of(model, posterior, rows, float(np.sum(rows.weight)) if total is None else total)
    assert made is not None
    return made


def test_slopes_are_those_of_each_rows_log_density() -> None:
    """By the coefficients of each surface, which a bias of the last layer moves."""
    model, posterior, rows = trained()
    for number, curvature in enumerate(found(model, posterior, rows).curvatures):
        slopes = []
        for i in range(len(curvature.slopes)):

            def log_density(step: float, number: int = number, i: int = i) -> np.ndarray:
                bias = np.array(last_layers(model)[number][1])
                bias[i] += step
                changed = eqx.tree_at(lambda m: last_layers(m)[number][1], model, bias)
                return Predictor.create(changed, posterior).log_density(rows.x, rows.y)

            slopes.append((log_density(1e-4) - log_density(-1e-4)) / 2e-4)
        assert np.abs(slopes).max() > 1e-3
        np.testing.assert_allclose(curvature.slopes, np.array(slopes) @ np.array(slopes).T, atol=1e-7)


def test_what_enters_is_what_the_coefficients_are_linear_in() -> None:
    model, posterior, rows = trained()
    for one, (weight, bias), curvature in zip(
        surfaces(model), last_layers(model), found(model, posterior, rows).curvatures, strict=True
    ):
        entering = np.column_stack([ask(one.entering, rows.x), np.ones(len(rows.weight))])
        coefficients = ask(one.coefficients, rows.x)
        np.testing.assert_allclose(entering @ np.vstack([weight, bias]), coefficients, atol=1e-12)
        np.testing.assert_allclose(curvature.entering, entering.T @ entering / len(entering), atol=1e-12)


def test_draws_have_the_covariance_of_the_formula() -> None:
    """(A ⊗ B + λ I)⁻¹, made dense."""
    rng = np.random.default_rng(0)
    a, b = (m @ m.T for m in (rng.standard_normal((3, 3)), rng.standard_normal((2, 2))))
    expected = np.linalg.inv(np.kron(a, b) + 0.5 * np.eye(6))
    some = Curvature(a, b)
    draws = np.array([some.change(rng, 0.5).reshape(-1) for _ in range(20_000)])
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.06 * np.abs(expected).max())


def test_weights_count_as_rows_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, posterior, rows = trained()
    every = found(model, posterior, rows)
    twice = jax.tree.map(lambda a: np.concatenate([a, a]), rows)
    for same in (
        found(model, posterior, rows._replace(weight=2 * np.asarray(rows.weight)), 7.0),
        found(model, posterior, twice._replace(weight=np.repeat([1.0, 0.0], 7))),
        found(model, posterior, twice, 7.0),
    ):
        jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-12), same, every)
    more = found(model, posterior, rows, 70.0)  # of which these are a tenth
    for one, other in zip(more.curvatures, every.curvatures, strict=True):
        np.testing.assert_allclose(one.entering, other.entering, rtol=1e-12)
        np.testing.assert_allclose(one.slopes, 10 * other.slopes, rtol=1e-12)
    monkeypatch.setattr("gpcde.prediction.laplace.ROWS_AT_ONCE", 4)
    apart = found(model, posterior, rows)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-12), apart, every)


def test_rows_that_come_later_are_joined_to_those_before() -> None:
    model, posterior, rows = trained()
    every = found(model, posterior, rows)
    first, rest = (jax.tree.map(lambda a, some=some: np.asarray(a)[some], rows) for some in (slice(3), slice(3, 7)))
    both = found(model, posterior, first).joined(found(model, posterior, rest), 3 / 7)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-12), both, every)


def test_partial_fit_forgets_nothing() -> None:
    """What a few new rows say is added to what is known by all before them."""
    X, y = rows_of()
    model = GPCDE(inference="free-form", **QUICK).fit(X, y)
    before = model.laplace_
    model.partial_fit(X[:4], y[:4])
    assert before is not None
    assert model.laplace_ is not None
    for one, other in zip(model.laplace_.curvatures, before.curvatures, strict=True):
        assert np.trace(one.slopes) >= np.trace(other.slopes)
        assert abs(np.trace(one.entering) / np.trace(other.entering) - 1) < 0.2
        assert np.linalg.matrix_rank(one.entering, 1e-9) > 5  # of the new ones


def test_a_surface_of_one_layer_is_certain() -> None:
    model, posterior, rows = trained()
    flat = Surface.create(jax.random.key(0), 2, 1, 1, 1.0, hidden=())
    model = dataclasses.replace(jax.tree.map(jnp.asarray, model), prior=TiltedNormal(flat))
    made = found(model, posterior, rows)
    assert len(made.curvatures) == 1
    made.check_fits(model)
    drawn = made.drawn(jax.random.key(1), model)
    np.testing.assert_array_equal(drawn.prior.surfaces[0].network.weights[0], flat.network.weights[0])


def test_without_surfaces_nothing_is_uncertain() -> None:
    model, _, _ = fitted("none")
    assert model.laplace_ is None


def test_a_file_has_it_and_one_that_does_not_fit_is_refused(tmp_path: Any) -> None:
    model, table, _ = fitted("free-form")
    model.save(tmp_path / "model.gpcde")
    again = gpcde.load(tmp_path / "model.gpcde")
    assert isinstance(again, GPCDE)
    one, other = (m.sample_densities(table[:2], 3, random_state=0).pdf_grid([0.0]) for m in (model, again))
    np.testing.assert_array_equal(one, other)
    assert again.laplace_ is not None
    again.laplace_ = again.laplace_._replace(curvatures=again.laplace_.curvatures[:1])
    with pytest.raises(ValueError, match="its curvatures do not fit the surfaces of its model"):
        again.save(tmp_path / "other.gpcde")


@pytest.mark.slow
def test_the_band_of_the_demo_holds_the_truth_about_as_often_as_it_says() -> None:
    """And without Laplace's approximation far less often."""
    rng = np.random.default_rng(0)
    (X, y), (new, at) = (demo.sample(rng, n) for n in (400, 150))
    new = new[:, None]
    model = GPCDE(companions=False, random_state=0).fit(X[:, None], y)
    held = []
    for laplace in (model.laplace_, None):
        model.laplace_ = laplace
        heights = np.stack([one.log_pdf(at) for one in model.sample_densities(new, 60, random_state=0)])
        low, high = np.quantile(heights, [0.05, 0.95], axis=0)
        truth = np.log(demo.true_density(new[:, 0], at))
        held.append(np.mean((low <= truth) & (truth <= high)))
    assert held[0] > 0.8
    assert held[1] < held[0] - 0.1
