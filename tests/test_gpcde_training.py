"""How GPCDE learns: the same again, on and on, from new rows, watched, stopped, and after an interruption."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.spatial.distance import cdist

import gpcde
from gpcde import GPCDE, Design, TrainingError
from gpcde.estimators import course
from gpcde.estimators.monitor import HISTORY
from gpcde.inference import Record, Trainer, draw, evaluate_bound, optimal_posterior, whole
from small import ALONE, MODELS, QUICK, N, assert_same_model, fitted, rows

X, Y = rows()
BATCHES: dict[str, Any] = {**QUICK, "inference": "free-form", "batch_size": 16, "max_steps": 150}


def quick(**parameters: Any) -> GPCDE:
    return GPCDE(**{"inference": "none", **QUICK, **parameters})


# the same again


@pytest.mark.parametrize("name", ["free-form", "amortised", "gaussian", "categories", "mdn"])
def test_a_seed_decides_everything(name: str) -> None:
    model, table, y = fitted(name)
    again = MODELS[name][0]().fit(table, y)
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    other = MODELS[name][0]().set_params(random_state=1).fit(table, y)
    assert np.abs(other.predict(table) - model.predict(table)).max() > 1e-6
    if name != "mdn":
        assert_same_model(again, model)


def test_without_a_seed_each_fit_is_its_own() -> None:
    one, other = (GPCDE(**{**ALONE, "random_state": None}).fit(X, Y) for _ in range(2))
    assert one.seed_ != other.seed_


def test_the_history_is_in_the_units_of_y() -> None:
    """Bounds of log densities: a unit a thousand times smaller adds log 1000."""
    one, other = (quick(early_stopping=True).fit(X, scale * Y).history_ for scale in (1.0, 1e-3))
    for name in ("bound", "validation"):
        np.testing.assert_allclose(other[name] - one[name], np.log(1e3), atol=1e-6)
    assert list(one) == list(HISTORY)


# on and on


def test_a_warm_start_goes_on_where_it_ended(tmp_path: Path) -> None:
    """The same from a file, for a training state is all there is to it."""
    model = GPCDE(**QUICK, inference="free-form", warm_start=True, tol=0.0).fit(X, Y)
    assert_same_model(model, fitted("free-form")[0])
    model.save(tmp_path / "model")
    before = model.history_
    model.fit(X, Y)
    assert (int(model.state_.step), model.n_steps_) == (100, 100)
    np.testing.assert_array_equal(model.history_["step"], [50, 100])
    np.testing.assert_array_equal(model.history_["bound"][:1], before["bound"])
    assert model.history_["bound"][1] > before["bound"][0]
    assert model.history_["seconds"][1] > model.history_["seconds"][0]
    loaded = gpcde.load(tmp_path / "model")
    assert isinstance(loaded, GPCDE)
    assert not loaded.warm_start  # of a run, not of the model
    assert_same_model(loaded.set_params(warm_start=True).fit(X, Y), model)
    assert_same_model(model.set_params(warm_start=False).fit(X, Y), fitted("free-form")[0])


def test_noise_varies_once_the_latents_have_learnt() -> None:
    """Until two fifths of the steps it is held, whose surface stays at its start, and nothing ends training."""
    seen: list[tuple[int, float, float]] = []

    def watch(model: GPCDE, record: Record) -> None:
        noise: Any = model.state_.model.likelihood
        seen.append((record.step, float(noise.freedom), float(noise.surface.penalty())))

    with gpcde.scope():
        design = Design(inducing=8, points=10, rule="even", likelihood="varying", trials=1)
    GPCDE(design=design, max_steps=250, tol=1e9, random_state=0, callbacks=[watch]).fit(X, Y)
    steps, freedom, penalty = zip(*seen, strict=True)
    assert steps == (50, 100, 150)  # of which only the last may end it
    assert freedom == (0, 0, 1)
    assert penalty[0] == penalty[1] != penalty[2]


def test_noise_that_varies_is_not_held_again() -> None:
    """When more steps come than a fit had, of which these would be the first."""
    model = GPCDE(**QUICK, inference="free-form").fit(X, Y)
    model.set_params(max_steps=1000).partial_fit(X, Y)
    assert not model.state_.model.likelihood.is_held


def test_points_with_a_q_of_their_own_take_no_other_rows() -> None:
    model = MODELS["gaussian"][0]().set_params(warm_start=True).fit(X, Y)
    with pytest.raises(ValueError, match="inference='gaussian'.*cannot do warm_start with another number of rows"):
        model.fit(X[:-1], Y[:-1])
    with pytest.raises(ValueError, match="inference='gaussian'.*cannot do partial_fit"):
        model.partial_fit(X, Y)


# from new rows


def test_new_rows_are_added_to_what_q_of_u_knows() -> None:
    """G = Σ a aᵀ and H = Σ a yᵀ over all rows, a = [Lz⁻¹ k(Z, x), t(x)]: the sums of the new rows, by hand."""
    model = quick().partial_fit(X, Y)
    assert_same_model(model, fitted("none")[0])
    old, (more, y) = model.state_, rows(16, seed=1)
    model.partial_fit(more, y)
    assert (model.n_seen_, model.n_steps_, int(model.state_.step)) == (N + 16, 51, 51)
    x, z = (more - X.mean(0)) / X.std(0), (y - Y.mean()) / Y.std()
    places, scales = np.asarray(old.model.inducing_points), np.exp(old.model.kernel.log_lengthscales)
    variance = np.exp(old.model.kernel.log_variance)
    kzz, kzx = (variance * np.exp(-0.5 * cdist(places / scales, p / scales) ** 2) for p in (places, x))
    a = np.linalg.solve(np.linalg.cholesky(kzz + old.model.jitter * variance * np.eye(8)), kzx)
    a = np.concatenate([a, np.exp(0.5 * old.model.trend.log_variance) * x.T / np.sqrt(2)])
    np.testing.assert_allclose(model.state_.posterior.G, old.posterior.G + a @ a.T, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(model.state_.posterior.H[:, 0], old.posterior.H[:, 0] + a @ z, rtol=1e-7, atol=1e-7)


def test_new_rows_with_latents_are_added_too() -> None:
    """Their responsibilities are those of q(u) stretched to the new number of rows."""
    design = Design(inducing=8, points=12, rule="even", trials=1)  # with nodes that stay where they are
    model = GPCDE(design=design, max_steps=50, random_state=0).fit(X, Y)
    old, (more, y) = model.state_, rows(16, seed=1)
    batch = whole(*model._standard_rows(more, y))
    stretched = eqx.tree_at(lambda s: s.posterior, old, jax.tree.map(lambda a: a * (N + 16) / N, old.posterior))
    stretched = jax.tree.map(jax.numpy.asarray, stretched)
    own = optimal_posterior(Trainer.create(16), jax.random.key(0), stretched, batch)
    model.partial_fit(more, y)
    for name in ("G", "H"):
        expected = getattr(old.posterior, name) + np.asarray(getattr(own.posterior, name))
        np.testing.assert_allclose(getattr(model.state_.posterior, name), expected, rtol=1e-9, atol=1e-9)


def test_every_new_row_is_seen_once_whatever_the_batch() -> None:
    model = quick(batch_size=16).fit(X, Y)
    model.partial_fit(*rows(35, seed=1)).partial_fit(*rows(5, seed=2))
    assert (model.n_seen_, int(model.state_.step)) == (N + 35 + 5, 50 + 2 + 1)
    with pytest.raises(ValueError, match="X has 3 features"):
        model.partial_fit(np.zeros((4, 3)), np.zeros(4))


# watched


def test_callbacks_see_a_model_that_answers_and_may_stop_it() -> None:
    seen: list[Any] = []

    def look(model: GPCDE, record: Record) -> bool:
        seen.append((record.step, record.bound, record.noise_variance, model.predict(X)))
        return record.step == 100

    model = GPCDE(**BATCHES, callbacks=[lambda model, record: None, look]).fit(X, Y)
    steps, bounds, noises, predictions = zip(*seen, strict=True)
    assert steps == (50, 100)
    assert (model.n_steps_, int(model.state_.step)) == (100, 100)
    np.testing.assert_array_equal(model.history_["bound"], bounds)
    np.testing.assert_array_equal(model.history_["noise_variance"], noises)
    np.testing.assert_array_equal(predictions[1], model.predict(X))
    assert np.abs(predictions[0] - predictions[1]).max() > 1e-6


class Recorder:
    """A callback of scikit-learn's kind."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.events: list[str] = []
        self.stop_after = stop_after

    def setup(self, estimator: Any, context: Any) -> None:
        self.events.append("setup")

    def teardown(self, estimator: Any, context: Any) -> None:
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator: Any, context: Any, *, X: Any, y: Any) -> None:
        assert (X.shape, y.shape) == ((N, 2), (N,))
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator: Any, context: Any, *, X: Any, fitted_estimator: Any) -> bool:
        self.prediction = fitted_estimator.predict(X)
        self.events.append(f"end {context.task_name}")
        return self.events.count("end steps") == self.stop_after


@pytest.mark.parametrize("stop_after", [None, 2])
def test_callbacks_of_scikit_learn(stop_after: int | None) -> None:
    pytest.importorskip("sklearn.callback")
    recorder, model = Recorder(stop_after), GPCDE(**BATCHES)
    model.set_callbacks(recorder).fit(X, Y)
    chunks = ["begin steps", "end steps"] * (stop_after or 3)
    assert recorder.events == ["setup", "begin fit", *chunks, "end fit", "teardown"]
    assert model.n_steps_ == 50 * (stop_after or 3)
    np.testing.assert_array_equal(recorder.prediction, model.predict(X))


def test_progress_is_shown_where_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    for verbose in (False, 0, None):  # None shows it in a terminal, which this is not
        quick(verbose=verbose).fit(X, Y)
        assert capsys.readouterr() == ("", "")
    model = quick(verbose=True).fit(X, Y)
    out, err = capsys.readouterr()
    assert out == ""
    assert f"bound={model.history_['bound'][-1]:.4f}" in err
    assert "GPCDE" in err
    assert "50/50" in err


# stopped


def test_training_ends_when_the_bound_has_stopped_rising() -> None:
    """At the first chunk that gains less than tol, and no later."""
    free = quick(max_steps=200, tol=0.0).fit(X, Y).history_["bound"]
    gains = np.abs(np.diff(free))
    assert len(free) == 4
    model = quick(max_steps=200, tol=float(gains[1]) * 1.01).fit(X, Y)
    expected = 2 + int(np.argmax(gains < model.tol))
    assert model.n_steps_ == 50 * expected
    np.testing.assert_array_equal(model.history_["bound"], free[:expected])


def test_early_stopping_keeps_the_best_state_and_waits_no_longer_than_told() -> None:
    """Steps much too large: the bound of the rows held out rises and falls."""
    n, seed = 40, int(np.random.RandomState(0).randint(2**31 - 1))
    model = quick(early_stopping=True, validation_fraction=0.3, learning_rate=1.0, max_steps=600, patience=2)
    model.fit(X[:n], Y[:n])
    validation, steps = model.history_["validation"], model.history_["step"]
    best = int(validation.argmax())
    assert int(model.state_.step) == model.n_steps_ == steps[best]
    assert best == len(steps) - 1 - model.patience
    held = np.sort(np.random.default_rng(seed).permutation(n)[:12])
    x, z = model._standard_rows(X[held], Y[held])
    batch, key = whole(x, z), jax.random.key(0)
    state = jax.tree.map(jax.numpy.asarray, model.state_)
    terms = jax.jit(evaluate_bound)(state.model, state.posterior, batch, draw(key, state.model, 12), 12.0)
    np.testing.assert_allclose(float(terms.data) / 12 - np.log(Y[:n].std()), validation[best], rtol=1e-9)


def test_early_stopping_needs_rows_to_learn_from() -> None:
    with pytest.raises(ValueError, match="early_stopping leaves 1 of 2 rows to learn from"):
        quick(early_stopping=True).fit(X[:2], Y[:2])


def test_a_training_error_leaves_the_state_it_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[Any] = []

    def breaks(trainer: Any, key: Any, state: Any, *rest: Any, **more: Any) -> None:
        reached.append(eqx.tree_at(lambda s: s.step, state, np.int32(7)))
        raise TrainingError("broke", reached[0])

    monkeypatch.setattr(course, "train", breaks)
    model = quick()
    with pytest.raises(TrainingError, match="broke"):
        model.fit(X, Y)
    jax.tree.map(np.testing.assert_array_equal, model.state_, reached[0])
    assert int(model.state_.step) == 7
    residual = model.predict(X) - Y
    assert (residual**2).mean() < 1.05 * Y.var()  # the start answers, and no worse than the mean
    assert model.n_steps_ == 7
