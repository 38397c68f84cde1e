"""The nearest rows as a density: against a kernel estimate by all rows, and brute force."""

import numpy as np
import pytest
from scipy.special import logsumexp

from gpcde import ConditionalKDE
from gpcde.estimators.base import Rows
from gpcde.estimators.neighbours import NEAREST, Neighbours
from gpcde.model import make_inputs

RNG = np.random.default_rng(0)
AT = RNG.uniform(-1, 1, (60, 1))
STEPS = np.sign(np.sin(9 * AT[:, 0])) + 0.02 * RNG.standard_normal(60)


def standard(n: int = 30, seed: int = 0, outputs: int = 1) -> Rows:
    rng = np.random.default_rng(seed)
    return Rows(make_inputs(rng.normal(size=(n, 2))), rng.normal(size=(n, outputs)), np.ones(n))


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


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_log_density_is_that_of_the_components(outputs: int) -> None:
    """Of several outputs it is computed without them, by all rows."""
    rows = standard(NEAREST + 20, outputs=outputs)._replace(weight=np.linspace(0.5, 2, NEAREST + 20))
    beside, at = Neighbours.of(rows, (), 0), standard(9, 1, outputs)
    parts = beside.components(at.x)
    assert parts.log_weight.shape[1] == (NEAREST if outputs == 1 else NEAREST + 20)
    np.testing.assert_allclose(beside.log_density(at.x, at.z), parts.log_pdf(at.z[:, None])[:, 0], rtol=1e-10)


def test_bandwidths_of_a_part_of_the_rows_tell_those_of_all() -> None:
    """They shrink as those of a kernel estimate do, and nothing is searched again."""
    rows = standard(60)
    before = Neighbours.of(rows.take(np.arange(40)), (), 0)
    found = Neighbours.of(rows, (), 0, before)
    assert len(found.z) == 60
    for name in ("x", "y"):  # two inputs, one output
        ratio = getattr(found.bandwidths, name) / getattr(before.bandwidths, name)
        np.testing.assert_allclose(ratio, (60 / 40) ** (-1 / 7), rtol=1e-12)
    np.testing.assert_array_equal(found.bandwidths.categories, before.bandwidths.categories)
