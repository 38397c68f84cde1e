"""An ensemble of mixture networks: its density by hand, and what held-out rows decide of it."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import expit, log_softmax, logsumexp
from scipy.stats import multivariate_normal, norm

from gpcde.estimators import ensemble, network_training
from gpcde.estimators.base import Rows
from gpcde.estimators.companions import ENOUGH_FOR_NETWORKS, candidates
from gpcde.estimators.ensemble import Ensemble, Size
from gpcde.estimators.mdn import LEAST_LOG_STD
from gpcde.estimators.network_training import train_network
from gpcde.model import make_inputs
from gpcde.runtime import compilation

K = 3


def law(n: int, seed: int) -> tuple[Rows, np.ndarray]:
    """Two branches, x and -x, and the log density of the rows."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.5, 1.5, n)
    z = rng.choice([-1.0, 1.0], n) * x + 0.2 * rng.normal(size=n)
    truth = logsumexp([norm.logpdf(z, x, 0.2), norm.logpdf(z, -x, 0.2)], axis=0) - np.log(2)
    return Rows(make_inputs(x[:, None]), z[:, None], np.ones(n)), truth


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Fewer and smaller networks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Size, "of", lambda rows: Size(3, 16, (5, 10)))
        patch.setattr(ensemble, "MOST_STEPS", 1_500)
        yield


@pytest.fixture(scope="module")
def trained() -> Ensemble:
    return Ensemble.of(law(400, 0)[0], (), seed=0)


def some(outputs: int, networks: int = 2) -> Ensemble:
    """All numbers of order one."""
    rng = np.random.default_rng(0)
    widths = 2, 4, K * (1 + 2 * outputs + outputs * (outputs - 1) // 2)
    weights = tuple(rng.normal(size=(networks, a, b)) for a, b in ((2, 4), (4, widths[2])))
    return Ensemble(weights, tuple(rng.normal(size=(networks, b)) for b in widths[1:]), K, outputs)


@pytest.mark.parametrize("outputs", [1, 2])
def test_its_density_is_the_mean_of_those_of_its_networks(outputs: int) -> None:
    """Each a sum of normals, whose weights, means and Cholesky factors are read from its output by hand."""
    made, rng = some(outputs), np.random.default_rng(1)
    x, z = rng.normal(size=(5, 2)), rng.normal(size=(5, outputs))
    densities = np.zeros((2, 5))
    for e in range(2):
        hidden = x @ made.weights[0][e] + made.biases[0][e]
        raw = (hidden * expit(hidden)) @ made.weights[1][e] + made.biases[1][e]
        for n, row in enumerate(raw):
            means, logs = row[K : K + 2 * K * outputs].reshape(2, K, outputs)
            std, below = np.exp(LEAST_LOG_STD + np.log1p(np.exp(logs - LEAST_LOG_STD))), row[K + 2 * K * outputs :]
            for k, weight in enumerate(np.exp(log_softmax(row[:K]))):
                root = np.diag(std[k])
                if outputs == 2:
                    root[1, 0] = below[k] * std[k, 1]
                densities[e, n] += weight * multivariate_normal.pdf(z[n], means[k], root @ root.T)
    expected = np.log(densities.mean(0))
    np.testing.assert_allclose(made.log_density(make_inputs(x), z), expected, rtol=1e-9)
    components = made.components(make_inputs(x)).log_pdf(z[:, None])[:, 0]
    np.testing.assert_allclose(components, expected, rtol=1e-9)


def test_it_comes_close_to_the_truth(trained: Ensemble) -> None:
    new, truth = law(1000, 1)
    assert np.mean(truth - trained.log_density(new.x, new.z)) < 0.1


def test_its_mixture_is_better_than_its_networks_are_on_average(trained: Ensemble) -> None:
    """By Jensen's inequality, at every row."""
    new, _ = law(200, 1)
    alone = [
        replace(trained, weights=tuple(w[[e]] for w in trained.weights), biases=tuple(b[[e]] for b in trained.biases))
        for e in range(len(trained.weights[0]))
    ]
    mean = np.mean([one.log_density(new.x, new.z) for one in alone], axis=0)
    assert (trained.log_density(new.x, new.z) > mean).all()


def test_a_draw_is_one_of_its_networks_each_as_likely(trained: Ensemble) -> None:
    """So that the mean of all draws is its density."""
    x = law(4, 1)[0].x
    whole, count = trained.components(x), trained.n_components
    means = np.asarray(whole.mean).reshape(4, -1, count)
    found = []
    for i in range(300):
        drawn = np.asarray(trained.drawn(jax.random.fold_in(jax.random.key(0), i))(x).mean)[..., 0]
        (same,) = np.flatnonzero([np.allclose(drawn, means[:, e], rtol=1e-9) for e in range(means.shape[1])])
        found.append(int(same))
    assert np.abs(np.bincount(found, minlength=3) / 300 - 1 / 3).max() < 0.09  # three standard errors


@pytest.mark.parametrize("outputs", [1, 2])
def test_it_knows_how_sure_it_is_of_each_last_layer(outputs: int) -> None:
    """The slopes of each network's log density by its last biases, in float64; and a row of weight 2 counts twice."""
    made, rng = some(outputs), np.random.default_rng(1)
    x, z, weight = make_inputs(rng.normal(size=(5, 2))), rng.normal(size=(5, outputs)), np.array([1.0, 2, 1, 1, 0])
    sure = made._with_curvature(Rows(x, z, weight))
    assert sure.slopes is not None
    assert sure.entering is not None
    assert sure.rows == 5
    for e in range(2):
        alone = replace(made, weights=tuple(w[[e]] for w in made.weights), biases=tuple(b[[e]] for b in made.biases))
        slopes = []
        for i in range(made.biases[-1].shape[1]):

            def log_density(step: float, alone: Ensemble = alone, i: int = i) -> np.ndarray:
                last = np.array(alone.biases[-1])
                last[0, i] += step
                return replace(alone, biases=(*alone.biases[:-1], last)).log_density(x, z)

            slopes.append((log_density(1e-5) - log_density(-1e-5)) / 2e-5)
        hidden = np.asarray(x.dense) @ made.weights[0][e] + made.biases[0][e]
        entering = np.column_stack([hidden * expit(hidden), np.ones(5)])
        expected = (weight * slopes) @ np.transpose(slopes) / 5
        np.testing.assert_allclose(sure.slopes[e], expected, atol=1e-6 * np.abs(expected).max())
        np.testing.assert_allclose(sure.entering[e], (entering.T * weight) @ entering / 5, rtol=1e-9)


def test_a_drawn_network_differs_as_much_as_it_is_unsure(trained: Ensemble) -> None:
    """The final one, of all rows, knows; the one that only says how many passes are enough does not."""
    rows = law(400, 0)[0]
    final = Ensemble.of(rows, (), 0, trained)
    assert trained.entering is None
    many = replace(final, rows=1e12)  # as sure as can be
    at, keys = rows.x.take(slice(5)), [jax.random.fold_in(jax.random.key(0), i) for i in range(20)]
    changes = [
        np.std([np.asarray(one.drawn(key)(at).mean) - np.asarray(many.drawn(key)(at).mean) for key in keys])
        for one in (final, replace(final, rows=1e4))
    ]
    assert 0 < changes[1] < 0.4 * changes[0]


def test_networks_of_one_shape_share_their_programs(trained: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many passes each took, and however sure it is."""
    rows = law(20, 3)[0]
    final = replace(trained, passes=trained.passes + 7)._with_curvature(rows)
    expected = trained.log_density(rows.x, rows.z)
    monkeypatch.setattr(compilation, "fetch", lambda *args: pytest.fail("another program is looked for"))
    np.testing.assert_array_equal(final.log_density(rows.x, rows.z), expected)
    again = replace(final, passes=99)._with_curvature(rows)
    np.testing.assert_array_equal(again.slopes, final.slopes)


def test_rows_of_no_weight_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble, "MOST_STEPS", 40)
    rows, _ = law(60, 0)
    more = Rows(
        *(jax.tree.map(lambda a, b: np.concatenate([a, b]), *pair) for pair in zip(rows, law(9, 2)[0], strict=True))
    )
    more.weight[60:] = 0
    one, two = (Ensemble.of(each, (), seed=3) for each in (rows, more))
    jax.tree.map(np.testing.assert_array_equal, one, two)


def test_the_score_of_averaged_weights_is_that_of_the_network_that_is_kept() -> None:
    """Weights that large steps throw about are better in the mean, and it is the mean that held-out rows judge."""
    rows, _ = law(80, 0)
    held, _ = law(40, 1)
    first = Ensemble._first(jax.random.key(0), rows, ())

    def score(averaging: float) -> float:
        settings = {"learning_rate": 0.05, "weight_decay": 0.0, "batch_size": 32, "max_epochs": 100, "patience": 100}
        network, _, reached = train_network(
            first,
            jax.random.key(0),
            rows,
            held,
            averaging=averaging,
            **settings,  # type: ignore[arg-type]
        )
        np.testing.assert_allclose(network.log_density(held.x, held.z).mean(), reached, rtol=1e-4)
        return reached

    assert score(0.9) > score(0.0)


def test_weights_are_averaged_as_the_formula_says() -> None:
    """m_t = β m_{t-1} + (1-β) w_t, of the weights that one step after another reaches; here an epoch is a step."""
    rows, _ = law(16, 0)
    first = Ensemble._first(jax.random.key(0), rows, ())

    def after(steps: int, averaging: float) -> Any:
        settings = {"learning_rate": 0.01, "weight_decay": 0.1, "batch_size": 16, "patience": 1}
        made = train_network(
            first,
            jax.random.key(0),
            rows,
            rows.take(slice(0)),
            max_epochs=steps,
            averaging=averaging,
            **settings,  # type: ignore[arg-type]
        )
        return jax.tree.leaves(made[0])

    one, two, three = (after(steps, 0.0) for steps in (1, 2, 3))
    for zero, a, b, c, mean in zip(jax.tree.leaves(first), one, two, three, after(3, 0.7), strict=True):
        expected = 0.7 * (0.7 * (0.7 * np.asarray(zero) + 0.3 * a) + 0.3 * b) + 0.3 * c
        np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)


def test_patience_grows_with_what_was_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores by hand: the best after 40 epochs, none later; then 10 more, or half of 40."""
    scores = count(1)

    def steps(network: Any, mean: Any, key: Any, adam: Any, *rest: Any) -> tuple[Any, ...]:
        return network, mean, adam, -abs(next(scores) - 40.0)

    monkeypatch.setattr(network_training, "_steps", steps)
    monkeypatch.setattr(network_training, "STEPS_TOGETHER", 1)
    rows, _ = law(16, 0)
    first = Ensemble._first(jax.random.key(0), rows, ())
    settings = {"learning_rate": 0.01, "weight_decay": 0.0, "batch_size": 16, "max_epochs": 1000, "patience": 10}
    for slack, last in ((0.0, 50), (0.5, 60)):
        scores = count(1)
        _, best, reached = train_network(first, jax.random.key(0), rows, rows, slack=slack, **settings)  # type: ignore[arg-type]
        assert (best, reached, next(scores)) == (40, 0.0, last + 1)


def test_all_rows_are_seen_as_often_as_a_part_of_them_was(trained: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = law(400, 0)
    seen = []

    def train(network: Any, key: Any, data: Rows, held: Rows, **settings: Any) -> tuple[Any, int, float]:
        seen.append((data.n_rows, int(held.weight.sum()), settings["max_epochs"]))
        return network, settings["max_epochs"], -np.inf

    monkeypatch.setattr(ensemble, "train_network", train)
    assert trained.passes > 1
    assert Ensemble.of(rows, (), 0, trained).passes == trained.passes
    monkeypatch.setattr(Size, "of", lambda rows: Size(2, 16, (5, 10)))  # of another size it says nothing of this one
    Ensemble.of(rows, (), 0, trained)
    assert seen[0] == (400, 0, trained.passes)
    assert seen[1][:2] == (360, 40)


def test_all_rows_come_as_close_to_the_truth_as_a_part_of_them(trained: Ensemble) -> None:
    new, truth = law(1000, 1)
    again = Ensemble.of(law(400, 0)[0], (), 0, trained)
    assert np.mean(truth - again.log_density(new.x, new.z)) < 0.1


def test_it_is_thought_of_where_rows_are_many_enough() -> None:
    for n, more in ((ENOUGH_FOR_NETWORKS - 1, 0), (ENOUGH_FOR_NETWORKS, 1)):
        assert len(candidates(law(n, 0)[0], [list], (), 0)) == 4 + more


@pytest.mark.parametrize("outputs", [1, 2])
def test_several_outputs_have_more_components(outputs: int) -> None:
    rows = law(40, 0)[0]
    rows = rows._replace(z=np.repeat(rows.z, outputs, axis=1) + np.arange(40)[:, None] ** np.arange(outputs))
    first = Ensemble._first(jax.random.key(0), rows, ())
    first.check_fits(rows.x, outputs)
    assert first.components(rows.x).n_components == 3 * (5 if outputs == 1 else 10)


def test_layers_that_do_not_fit_are_refused() -> None:
    made = some(1)
    made.check_values()
    with pytest.raises(ValueError, match="do not fit each other"):
        replace(made, n_components=K + 1).check_values()
    with pytest.raises(ValueError, match="do not fit each other"):
        replace(made, weights=made.weights[::-1]).check_values()
    sure = made._with_curvature(Rows(make_inputs(np.zeros((3, 2))), np.zeros((3, 1)), np.ones(3)))
    sure.check_values()
    for rows in (-5.0, 10**400, 0.0):
        with pytest.raises(ValueError, match="an ensemble"):
            replace(sure, rows=rows).check_values()
    with pytest.raises(ValueError, match="what an ensemble is sure of does not fit its networks"):
        replace(sure, slopes=sure.entering).check_values()
    made.check_fits(make_inputs(np.zeros((1, 2))), 1)
    for columns, outputs in ((3, 1), (2, 2)):
        with pytest.raises(ValueError, match="do not fit its networks"):
            made.check_fits(make_inputs(np.zeros((1, columns))), outputs)
