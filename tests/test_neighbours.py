"""The nearest rows beside the model: their density, the share that held-out rows give them, and that they are kept."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import norm

import gpcde
from gpcde import GPCDE, ConditionalKDE, Design
from gpcde.density.conditional import ConditionalDensity
from gpcde.estimators.base import FOLDS, Rows
from gpcde.estimators.neighbours import DOUBT, LEAST, NEAREST, Neighbours
from gpcde.model import make_inputs
from small import QUICK, assert_same_model, frame, rows

RNG = np.random.default_rng(0)
AT = RNG.uniform(-1, 1, (60, 1))
STEPS = np.sign(np.sin(9 * AT[:, 0])) + 0.02 * RNG.standard_normal(60)
"""A mean that jumps, nearly without noise: what a smooth function cannot follow."""


OTHERS: dict[str, tuple[dict[str, Any], tuple[Any, np.ndarray]]] = {
    "categories": ({}, frame()),
    "two outputs": ({}, rows(outputs=2)),
    "P": ({"output_dim": 2}, rows(outputs=3)),
}


def standard(n: int = 30, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    return Rows(make_inputs(rng.normal(size=(n, 2))), rng.normal(size=(n, 1)), np.ones(n))


@pytest.fixture(scope="module")
def jumping() -> GPCDE:
    with gpcde.scope():
        return GPCDE(**QUICK).fit(AT, STEPS)


def test_its_density_is_that_of_a_conditional_kernel_estimate() -> None:
    """With the same rows and bandwidths; the estimator's own sum over all rows is the oracle."""
    estimate = ConditionalKDE(random_state=0).fit(AT, STEPS)
    rows = Rows(estimate.x_, estimate.y_, np.ones(60))
    beside = Neighbours.of(rows, (), 0)._replace(bandwidths=estimate.bandwidths_)
    x, z = estimate._standard_rows(AT + 0.01, STEPS + 0.01)
    expected = estimate.predict_density(AT + 0.01).log_pdf(STEPS + 0.01) + np.log(estimate.transform_.scale[0])
    np.testing.assert_allclose(beside.log_density(x, z), expected, rtol=1e-10)


def test_of_many_rows_the_nearest_count() -> None:
    """Those of the greatest kernel, by brute force; their weights sum to one."""
    rows = standard(3 * NEAREST)
    beside = Neighbours.of(rows, (), 0)
    at = standard(7, seed=1)
    near, logs = beside.nearest(at.x)
    gap = (np.asarray(at.x.dense)[:, None] - np.asarray(rows.x.dense)) / beside.bandwidths.x
    kernel = -0.5 * (gap**2).sum(2)
    for i in range(7):
        best = np.argsort(-kernel[i])[:NEAREST]
        assert set(near[i]) == set(best)
    np.testing.assert_allclose(logsumexp(logs, axis=1), 0, atol=1e-12)


def test_a_weight_is_how_often_a_row_is_there() -> None:
    rows = standard()
    twice = rows._replace(weight=np.where(np.arange(30) < 5, 2.0, 1.0))
    repeated = rows.take(np.append(np.arange(30), np.arange(5)))
    at = standard(9, seed=1)
    widths = Neighbours.of(rows, (), 0).bandwidths
    made = (Neighbours.of(some, (), 0)._replace(bandwidths=widths) for some in (twice, repeated))
    one, other = (beside.log_density(at.x, at.z) for beside in made)
    np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize(("ahead", "least", "most"), [(-3.0, 0.0, LEAST), (0.0, 0.0, LEAST), (3.0, 0.9, 1.0)])
def test_the_share_is_what_held_out_rows_give(ahead: float, least: float, most: float) -> None:
    """More of it where its log densities are above the model's; none where they are the same."""
    own = Neighbours.of(standard(), (), 0)
    found = own.with_share(np.zeros(200), np.full(200, ahead), np.ones(200))
    assert least <= (0.0 if found is None else found.share) <= most


def test_the_share_is_the_best_one() -> None:
    """By brute force, of the log density of the rows and of the doubt."""
    rng = np.random.default_rng(3)
    model, own, weight = rng.normal(size=80), rng.normal(size=80), rng.uniform(0.5, 2, 80)
    found = Neighbours.of(standard(), (), 0).with_share(model, own, weight)
    assert found is not None
    shares = np.linspace(0.001, 0.999, 999)
    logs = np.logaddexp(np.log(1 - shares)[:, None] + model, np.log(shares)[:, None] + own)
    assert shares[(logs @ weight + DOUBT * np.log(1 - shares)).argmax()] == pytest.approx(found.share, abs=2e-3)


def test_what_jumps_is_remembered(jumping: GPCDE) -> None:
    """And the density with it is far better than without, and a density."""
    beside = jumping.neighbours_
    assert beside is not None
    assert beside.share > 0.3
    rng = np.random.default_rng(5)
    new = rng.uniform(-1, 1, (300, 1))
    y = np.sign(np.sin(9 * new[:, 0])) + 0.02 * rng.standard_normal(300)
    plain = GPCDE(neighbours=False, **QUICK).fit(AT, STEPS)
    assert plain.neighbours_ is None
    assert jumping.score(new, y) > plain.score(new, y) + 0.3
    density = jumping.predict_density(new[:1])
    ends = float(density.quantile([1e-9])[0, 0]), float(density.quantile([1 - 1e-9])[0, 0])
    points = sorted({round(float(v), 6) for v in STEPS if ends[0] < v < ends[1]})
    total = quad(lambda v: float(density.pdf(v)[0]), *ends, limit=2000, points=points)[0]
    assert total == pytest.approx(1, abs=1e-4)


def test_the_quick_log_density_is_that_of_the_components(jumping: GPCDE) -> None:
    density = jumping.predict_density(AT[:9])
    z = (STEPS[:9] - jumping.transform_.location[0]) / jumping.transform_.scale[0]
    source = jumping._source(jumping._apply_tables(AT[:9]))
    components = source.components(np.arange(9))
    logs = np.asarray(components.log_weight) + norm.logpdf(
        z[:, None],
        components.mean[..., 0],
        np.sqrt(np.broadcast_to(components.variance, components.mean.shape)[..., 0]),
    )
    expected = logsumexp(logs, axis=1) - np.log(jumping.transform_.scale[0])
    np.testing.assert_allclose(density.log_pdf(STEPS[:9]), expected, rtol=1e-8)


def test_drawn_densities_remember_too(jumping: GPCDE) -> None:
    """Their mean is near the prediction, where the neighbours have most of it."""
    at = AT[:3]
    drawn = np.mean([density.pdf(STEPS[:3]) for density in jumping.sample_densities(at, 30, random_state=0)], axis=0)
    np.testing.assert_allclose(drawn, jumping.predict_density(at).pdf(STEPS[:3]), rtol=0.3)


def test_it_is_saved(jumping: GPCDE, tmp_path: Path) -> None:
    jumping.save(tmp_path / "m.gpcde")
    again = gpcde.load(tmp_path / "m.gpcde")
    assert_same_model(again, jumping)
    np.testing.assert_array_equal(again.predict_density(AT).log_pdf(STEPS), jumping.predict_density(AT).log_pdf(STEPS))


@pytest.mark.parametrize("name", OTHERS)
def test_categories_and_outputs_together_have_neighbours_too(name: str, tmp_path: Path) -> None:
    """Two ways to one log density, and a file answers as its model does."""
    settings, (X, y) = OTHERS[name]
    model = GPCDE(inference="none", neighbours=True, **settings, **QUICK).fit(X, y)
    assert model.neighbours_ is not None
    quick = model.predict_density(X).log_pdf(y)
    parts = ConditionalDensity(model.predict_density(X).components(), model.transform_, flat=model.flat_)
    np.testing.assert_allclose(quick, parts.log_pdf(y), rtol=1e-10, atol=1e-10)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(gpcde.load(tmp_path / "model").predict_density(X).log_pdf(y), quick)


@pytest.mark.usefixtures("short")
def test_a_fit_that_is_cut_off_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """With the neighbours that were weighed before it."""
    settings = {**QUICK, "max_steps": 200}

    def interrupt(model: GPCDE, record: Any) -> None:
        if record.step >= 100:
            raise KeyboardInterrupt

    whole = GPCDE(**settings).fit(AT, STEPS)
    settings["checkpoint"] = tmp_path / "fit.gpcde"
    cut = GPCDE(**settings, callbacks=[interrupt])
    with pytest.raises(KeyboardInterrupt), pytest.warns(gpcde.FitWarning):
        cut.fit(AT, STEPS)
    resumed = GPCDE(**settings).fit(AT, STEPS)
    assert_same_model(resumed, whole)
    assert resumed.neighbours_ is not None
    assert whole.neighbours_ is not None
    assert resumed.neighbours_.share == whole.neighbours_.share


def test_it_stands_beside_models_that_were_left_open() -> None:
    """A model that the user chose is that model."""
    assert GPCDE(inference="free-form", **QUICK).fit(AT, STEPS).neighbours_ is None
    design = Design(inference="none", inducing=8)
    assert GPCDE(design=design, max_steps=20, random_state=0).fit(AT, STEPS).neighbours_ is None
    with pytest.raises(ValueError, match="neighbours must be"):
        GPCDE(neighbours="yes", **QUICK).fit(AT, STEPS)


def test_few_rows_are_held_out_several_times_and_each_row_once() -> None:
    for n, folds in ((20, FOLDS), (100, 3), (1000, 1)):
        parts = standard(n).parts(seed=0)
        held = np.array([part.weight == 0 for part in parts])
        assert len(parts) == folds
        assert held.sum(0).max() == 1
        np.testing.assert_allclose(held.sum(1), n / FOLDS, atol=1)
