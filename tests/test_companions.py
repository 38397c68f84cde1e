"""What stands beside the model: the shares that held-out rows give, and that it is drawn, saved and taken up again."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from scipy.stats import norm

import gpcde
from gpcde import GP, GPCDE, KDE, Design, LinearGaussian
from gpcde.density.conditional import ConditionalDensity
from gpcde.estimators import base, companions, course, ensemble, plan
from gpcde.estimators.base import FOLDS, Rows
from gpcde.estimators.companions import (
    AHEAD,
    BEHIND,
    DOUBT,
    LEAST,
    NETWORKS_DOUBT,
    Companions,
    Regression,
    weighed,
)
from gpcde.estimators.course import LIKELY
from gpcde.estimators.ensemble import Ensemble
from gpcde.estimators.kde import Marginal
from gpcde.estimators.linear import Line
from gpcde.estimators.neighbours import Neighbours
from gpcde.inference.training import State
from gpcde.model import Warp, make_inputs
from small import QUICK, N, assert_same_model, frame, rows

RNG = np.random.default_rng(0)
AT = RNG.uniform(-1, 1, (60, 1))
STEPS = np.sign(np.sin(9 * AT[:, 0])) + 0.02 * RNG.standard_normal(60)
"""A mean that jumps, nearly without noise: what a smooth function cannot follow."""

SETTINGS: dict[str, Any] = {**QUICK, "companions": True}

OTHERS: dict[str, tuple[dict[str, Any], tuple[Any, np.ndarray]]] = {
    "categories": ({"kernel": "matern32"}, frame()),
    "categories and two outputs": ({"kernel": "matern32"}, (frame()[0], rows(outputs=2)[1])),
    "P": ({"output_dim": 2}, rows(outputs=3)),
}


def standard(n: int = 30, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    return Rows(make_inputs(rng.normal(size=(n, 2))), rng.normal(size=(n, 1)), np.ones(n))


@pytest.fixture
def two_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 rows, some are held out twice: less than five times, and several times all the same."""
    monkeypatch.setattr(base, "ENOUGH_HELD", 24)


@pytest.fixture(scope="module")
def jumping() -> GPCDE:
    with gpcde.scope(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "ENOUGH_HELD", 24)
        return GPCDE(**SETTINGS).fit(AT, STEPS)


def members(model: GPCDE) -> Companions:
    assert model.companions_ is not None
    return model.companions_


# shares


@pytest.mark.parametrize(("ahead", "least", "most"), [(-3.0, 0.0, 0.0), (0.0, 0.0, 0.0), (3.0, 0.9, 1.0)])
def test_a_share_is_what_held_out_rows_give(ahead: float, least: float, most: float) -> None:
    """More of it where its log densities are above the model's; none where they are the same."""
    shares = weighed(np.stack([np.zeros(200), np.full(200, ahead)], axis=1), np.ones(200), [DOUBT, 0])
    assert least <= shares[1] <= most
    assert shares.sum() == pytest.approx(1)


@pytest.mark.parametrize("doubts", [[DOUBT, 0, 0], [DOUBT, 0, NETWORKS_DOUBT]])
def test_shares_are_the_best_ones(doubts: list[float]) -> None:
    """By another method, of the log density of the rows and of those that the doubt stands for."""
    rng = np.random.default_rng(3)
    logs, weight = rng.normal(size=(80, 3)), rng.uniform(0.5, 2, 80)

    def loss(free: np.ndarray) -> float:
        shares = softmax(free)
        seen = float(weight @ logsumexp(logs, b=shares, axis=1))
        for place, doubt in enumerate(doubts):
            seen += doubt * float(logsumexp(np.where(np.arange(3) == place, 0, -AHEAD), b=shares))
        return -seen

    best = softmax(minimize(loss, np.zeros(3)).x)
    assert best.min() > LEAST
    np.testing.assert_allclose(weighed(logs, weight, doubts), best, atol=1e-4)


@pytest.mark.parametrize(("others", "stays"), [(-0.8, True), (-1.2, False)])
def test_what_is_far_behind_is_left_out_though_a_row_or_two_favour_it(others: float, stays: bool) -> None:
    """It would have a share by those rows, and all others would pay for it."""
    logs = np.zeros((40, 2))
    logs[:, 1] = others
    logs[0] = -25.0, -5.0  # no more than ten nats tell how far behind it is
    logs[1:3] = -4.0, 0.0
    behind = np.average(np.maximum(logs, -10.0), axis=0)
    assert (behind[1] > behind[0] - BEHIND) == stays
    assert (weighed(logs, np.ones(40), [0, 0], BEHIND)[1] > LEAST) == stays
    assert weighed(logs, np.ones(40), [0, 0])[1] > LEAST


def test_overwhelming_rows_leave_no_doubt() -> None:
    """The model keeps next to nothing where every row is told better by another."""
    shares = weighed(np.stack([np.full(40, -4.0), np.zeros(40)], axis=1), np.ones(40), [DOUBT, 0])
    assert shares[0] < 0.005


def test_few_rows_are_held_out_several_times_and_each_row_once() -> None:
    for n, folds in ((20, FOLDS), (100, 3), (1000, 1)):
        parts = standard(n).parts(seed=0)
        held = np.array([part.weight == 0 for part in parts])
        assert len(parts) == folds
        assert held.sum(0).max() == 1
        np.testing.assert_allclose(held.sum(1), n / FOLDS, atol=1)


# members


def test_the_line_is_linear_regression() -> None:
    """The estimator's own density; a row of weight 2 is there twice, one of weight 0 is not."""
    rows, at = standard(), standard(9, seed=1)
    weight = np.where(np.arange(30) < 5, 2.0, 1.0)
    weight[29] = 0
    repeated = np.append(np.arange(29), np.arange(5))
    line = Line.of(rows._replace(weight=weight), ())
    model = LinearGaussian().fit(np.asarray(rows.x.dense)[repeated], rows.z[repeated])
    expected = model.predict_density(np.asarray(at.x.dense)).log_pdf(at.z)
    np.testing.assert_allclose(line.log_density(at.x, at.z), expected, rtol=1e-8)


@pytest.mark.usefixtures("two_parts")
def test_regressions_have_no_latents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where y is a smooth function and normal noise, they are as GP() is, nearly; of many rows there is one."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (60, 1))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(60)
    model, alone = GPCDE(**SETTINGS).fit(X, y), GP(n_inducing=32, max_steps=50, random_state=0).fit(X, y)
    x, z = model._standard_rows(X, y)
    expected = alone.predict_density(X).log_pdf(y) + np.log(alone.transform_.scale[0])

    def regressions(model: GPCDE) -> list[Regression]:
        return [one for one in members(model).members if isinstance(one, Regression)]

    several = regressions(model)
    assert len(several) in (LIKELY // 2, LIKELY)  # of either kind or of both, as held-out rows say
    logs = [one.log_density(x, z) for one in several]
    np.testing.assert_allclose(logsumexp(logs, b=1 / len(several), axis=0).mean(), expected.mean(), atol=0.05)
    monkeypatch.setattr(course, "FIRST_ROWS", 59)
    (one,) = regressions(GPCDE(**SETTINGS).fit(X, y))
    np.testing.assert_allclose(one.log_density(x, z).mean(), expected.mean(), atol=0.02)


def test_regressions_of_several_kinds_share_the_doubt_in_favour_of_one() -> None:
    """Each kind is a candidate of its own, and is made only where it is asked for."""
    rows = standard(20)
    asked: list[str] = []

    def kind(name: str) -> list[State]:
        asked.append(name)
        return []

    one, two = (companions.candidates(rows, [partial(kind, name) for name in names], (), 0) for names in ("a", "ab"))
    assert len(two) == len(one) + 1
    assert sum(each.doubt for each in two) == sum(each.doubt for each in one)
    assert list(two[1].make(())) == []
    assert asked == ["b"]


@pytest.mark.parametrize("outputs", [1, 2])
def test_where_x_says_nothing_rows_are_smoothed_over_as_by_kde(outputs: int) -> None:
    """A row of weight 2 is there twice, one of weight 0 is not."""
    X, y = np.zeros((40, 1)), RNG.normal(size=(40, outputs)) ** 3
    weight = np.ones(40)
    weight[30:] = 0
    some = Marginal.of(Rows(make_inputs(X), y, weight), 0)
    alone = KDE(random_state=0).fit(X[:30], y[:30])
    expected = alone.predict_density(X).log_pdf(y)
    np.testing.assert_allclose(some.log_density(make_inputs(X), y), expected, atol=1e-3)
    weight[0] = 2
    twice = Marginal.of(Rows(make_inputs(X), y, weight), 0)
    parts = twice.components(make_inputs(X[:1]))
    assert parts.mean.shape == (1, 30, outputs)
    np.testing.assert_allclose(np.exp(parts.log_weight[0]), np.append(2, np.ones(29)) / 31)


def test_what_jumps_is_remembered(jumping: GPCDE) -> None:
    """And the density with it is far better than without, and a density."""
    beside = members(jumping)
    assert sum(s for s, one in zip(beside.shares[1:], beside.members, strict=True) if isinstance(one, Neighbours)) > 0.3
    rng = np.random.default_rng(5)
    new = rng.uniform(-1, 1, (300, 1))
    y = np.sign(np.sin(9 * new[:, 0])) + 0.02 * rng.standard_normal(300)
    alone = GPCDE(**{**SETTINGS, "companions": False}).fit(AT, STEPS)
    assert alone.companions_ is None
    assert jumping.score(new, y) > alone.score(new, y) + 0.3
    density = jumping.predict_density(new[:1])
    ends = float(density.quantile([1e-9])[0, 0]), float(density.quantile([1 - 1e-9])[0, 0])
    grid = np.linspace(*ends, 20_001)
    assert np.trapezoid(density.pdf_grid(grid)[0], grid) == pytest.approx(1, abs=1e-4)


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


def test_drawn_densities_have_companions_too(jumping: GPCDE) -> None:
    """Their mean is near the prediction."""
    at = AT[:3]
    drawn = np.mean([density.pdf(STEPS[:3]) for density in jumping.sample_densities(at, 40, random_state=0)], axis=0)
    np.testing.assert_allclose(drawn, jumping.predict_density(at).pdf(STEPS[:3]), rtol=0.3)


def test_a_draw_is_one_of_all_as_often_as_its_share_is_large() -> None:
    def member(density: Any) -> Any:
        return SimpleNamespace(drawn=lambda key: density)

    companions = Companions(np.array([0.5, 0.3, 0.2]), (member(len), member(abs)))  # two functions that differ
    keys = [jax.random.fold_in(jax.random.key(0), i) for i in range(1000)]
    drawn: list[Any] = [companions.drawn(key) for key in keys]
    for density, share in ((None, 0.5), (len, 0.3), (abs, 0.2)):
        assert abs(np.mean([one is density for one in drawn]) - share) < 0.05  # three standard errors


# kept


def test_they_are_saved(jumping: GPCDE, tmp_path: Path) -> None:
    jumping.save(tmp_path / "m.gpcde")
    again = gpcde.load(tmp_path / "m.gpcde")
    assert_same_model(again, jumping)
    np.testing.assert_array_equal(again.predict_density(AT).log_pdf(STEPS), jumping.predict_density(AT).log_pdf(STEPS))


@pytest.fixture
def one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows are many, or some are thought enough, they are held out once, and the trial's model goes on."""
    monkeypatch.setattr(base, "ENOUGH_HELD", 1)


@pytest.mark.usefixtures("one_part")
@pytest.mark.parametrize("name", OTHERS)
def test_inputs_and_outputs_of_all_sorts_have_companions_too(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks among them: two ways to one log density, and a file answers as its model does."""
    settings, (X, y) = OTHERS[name]
    model = GPCDE(inference="none", **settings, **SETTINGS).fit(X, y)
    shares, others = members(model)
    monkeypatch.setattr(ensemble, "MOST_STEPS", 40)
    x, z = model._standard_rows(X, y)
    networks = Ensemble.of(Rows(x, z, np.ones(len(z))), model.features_.levels, 0)
    assert others
    model.companions_ = Companions(np.append(0.7 * shares, 0.3), (*others, networks))
    quick = model.predict_density(X).log_pdf(y)
    parts = ConditionalDensity(model.predict_density(X).components(), model.transform_, flat=model.flat_)
    np.testing.assert_allclose(quick, parts.log_pdf(y), rtol=1e-10, atol=1e-10)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(gpcde.load(tmp_path / "model").predict_density(X).log_pdf(y), quick)


def cut_off(whole: GPCDE, at: int, path: Path) -> None:
    """The same fit, interrupted at this step and made again, ends with the same bits."""

    def interrupt(model: GPCDE, record: Any) -> None:
        if record.step >= at:
            raise KeyboardInterrupt

    settings: dict[str, Any] = {**SETTINGS, "max_steps": whole.max_steps, "checkpoint": path}
    with pytest.raises(KeyboardInterrupt), pytest.warns(gpcde.FitWarning):
        GPCDE(**settings, callbacks=[interrupt]).fit(AT, STEPS)
    resumed = GPCDE(**settings).fit(AT, STEPS)
    assert_same_model(resumed, whole)
    np.testing.assert_array_equal(members(resumed).shares, members(whole).shares)


@pytest.mark.usefixtures("two_parts")
def test_a_fit_of_several_parts_that_is_cut_off_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """With the companions that were weighed before it."""
    whole = GPCDE(**{**SETTINGS, "max_steps": 100}).fit(AT, STEPS)
    cut_off(whole, 50, tmp_path / "fit.gpcde")


@pytest.mark.usefixtures("one_part")
def test_a_fit_that_is_cut_off_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """Within the part that comes first, before the companions are weighed, and after it."""
    whole = GPCDE(**{**SETTINGS, "max_steps": 200}).fit(AT, STEPS)
    for at in (50, 150):
        cut_off(whole, at, tmp_path / f"{at}.gpcde")


@pytest.mark.usefixtures("one_part")
@pytest.mark.parametrize(("share", "steps"), [(0.9 * LEAST, 120), (LEAST, 200)])
def test_a_model_that_answers_hardly_need_is_not_trained_on(
    share: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial's share of the steps was enough to tell."""
    settings = {**SETTINGS, "max_steps": 200}
    monkeypatch.setattr(companions, "weighed", lambda logs, *args: np.array([share, 0.0, 1 - share, 0.0, 0.0]))
    assert GPCDE(**settings).fit(AT, STEPS).n_steps_ == steps


@pytest.mark.usefixtures("one_part")
def test_a_fit_that_is_stopped_in_its_first_part_has_companions() -> None:
    model = GPCDE(**{**SETTINGS, "max_steps": 200}, callbacks=[lambda model, record: record.step >= 50]).fit(AT, STEPS)
    assert model.n_steps_ == 50
    assert members(model).shares.sum() == pytest.approx(1)


def test_they_stand_beside_models_that_were_left_open() -> None:
    """A model that the user chose is that model."""
    assert GPCDE(inference="free-form", **{**QUICK, "companions": "auto"}).fit(AT, STEPS).companions_ is None
    design = Design(inference="none", inducing=8)
    assert GPCDE(design=design, max_steps=20, random_state=0).fit(AT, STEPS).companions_ is None
    with pytest.raises(ValueError, match="companions must be"):
        GPCDE(**{**QUICK, "companions": "yes"}).fit(AT, STEPS)


@pytest.mark.parametrize("flip", [False, True])
def test_of_two_trials_the_held_out_rows_choose(monkeypatch: pytest.MonkeyPatch, flip: bool) -> None:
    """By their mean log density, whichever comes first; no more than ten nats tell how bad a row is."""
    rows = standard(20)
    part = rows._replace(weight=np.where(np.arange(20) < 4, 0.0, 1.0))
    logs = {"one": np.array([-1.0, -1.0, -1.0, -50.0]), "two": np.array([-2.0, -2.0, -2.0, -9.0])}

    def log_density(trial: Any, new: Rows) -> np.ndarray:
        np.testing.assert_array_equal(new.z, rows.z[:4])
        return logs[trial.state]

    monkeypatch.setattr(companions.Trial, "log_density", log_density)
    one, two = (companions.Trial(part, *[name] * 2) for name in ("one", "two"))  # type: ignore[arg-type]
    assert companions.Trial.better(rows, *((two, one) if flip else (one, two))) is one
    logs["two"][3] = -5.0
    assert companions.Trial.better(rows, *((two, one) if flip else (one, two))) is two


@pytest.mark.slow
@pytest.mark.usefixtures("one_part")
@pytest.mark.parametrize("flip", [False, True])
def test_of_two_designs_the_held_out_rows_choose(monkeypatch: pytest.MonkeyPatch, flip: bool) -> None:
    """The likelier of them goes on, whichever comes first: a mean of its own, or a warp."""
    seen: list[tuple[float, float]] = []
    plainly = companions.Trial.better.__func__  # type: ignore[attr-defined]

    def better(cls: Any, rows: Rows, one: companions.Trial, two: companions.Trial) -> companions.Trial:
        new = one.left_out(rows)
        assert new.n_rows == 10
        logs = [float(t.log_densities(new, ())[:, 0].mean()) for t in (one, two)]
        chosen = plainly(cls, rows, *((two, one) if flip else (one, two)))
        assert chosen is (one, two)[int(np.argmax(logs))]
        assert one.state.model.trend.is_found
        assert not two.state.model.trend.is_found
        assert isinstance(two.state.model.input_map, Warp)
        seen.append((logs[0], logs[1]))
        return chosen

    monkeypatch.setattr(companions.Trial, "better", classmethod(better))
    monkeypatch.setattr(plan, "FEW_ROWS", N - 1)  # as if these were many
    monkeypatch.setattr(plan, "_first_inducing", lambda *args: 8)
    X, y = rows(outputs=2)
    model = GPCDE(**QUICK).fit(X, y)
    assert len(seen) == 1
    assert model.state_.model.trend.is_found == (seen[0][0] > seen[0][1])
    assert model.n_steps_ == QUICK["max_steps"]
