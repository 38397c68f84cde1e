"""The paper's experiments: their splits and likelihoods, against what they should be, and every quick preset."""

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from gpcde import Design, cli
from gpcde.datasets import Images, Table, load_uci
from gpcde.density.components import Components
from gpcde.inference import State, Statistics, Trainer, start
from gpcde.model import (
    RBF,
    Concatenate,
    ConjugateMixing,
    ConstantNoise,
    GaussianLatents,
    Identity,
    Model,
    NoLatents,
    Project,
    make_inputs,
)
from gpcde.prediction import Nodes, Predictor
from gpcde.reproduce import EXPERIMENTS
from gpcde.reproduce.experiments import training, uci
from gpcde.reproduce.experiments.fewshot import accuracy, draw_episodes, nearest, right_minus_wrong, scores
from gpcde.reproduce.experiments.images import (
    labelled,
    log_density_by_draws,
    mixture_log_density,
    principal_log_density,
    samples,
)
from gpcde.reproduce.experiments.levels import Levels
from gpcde.reproduce.experiments.mnist import CLASSES, SETS, few_of_each
from gpcde.reproduce.experiments.mnist import units as mnist_units
from gpcde.reproduce.experiments.omniglot import few_shot
from gpcde.reproduce.experiments.places import centres, log_probabilities, moved
from gpcde.reproduce.experiments.taxi import fits
from gpcde.reproduce.experiments.taxi.settings import units as taxi_units
from gpcde.reproduce.experiments.taxi.trips import farthest_points, load_trips
from gpcde.reproduce.experiments.training import Schedule, resumed, train_design
from gpcde.reproduce.experiments.uci import scoring
from gpcde.reproduce.experiments.uci.settings import FLAT
from gpcde.reproduce.experiments.uci.training import bound, standardised, trained
from gpcde.reproduce.lines import append_line, read_lines
from gpcde.reproduce.names.mnist import GP_MIXED
from gpcde.reproduce.names.uci import GP, LINEAR, OPTIMAL
from gpcde.reproduce.reports.mnist import _over_sets
from gpcde.reproduce.units import Unit

RESULTS = Path(__file__).parent.parent / "results" / "standard"

SMALLER: dict[str, Any] = {
    "inducing": 8,
    "first_steps": 50,
    "points": 10,
    "nodes": 64,
    "max_epochs": 10,
    "steps": 50,
    "latent_dim": 2,
    "input_dim": 3,
    "outputs": 8,
    "shots": 2,
    "hidden": [8],
    "shown": 4,
    "pixels": 8,
    "images": 40,
    "test": 20,
    "fit_steps": 2,
}


def smaller(settings: Any) -> Any:
    """The settings with smaller numbers: the same programs, on less."""
    if isinstance(settings, dict):
        return {k: SMALLER[k] if k in SMALLER and v else smaller(v) for k, v in settings.items()}
    return [smaller(item) for item in settings] if isinstance(settings, list) else settings


LIKE_OTHERS = ("MDN-5", "GP", "GP-CDE")
"""Models of the taxi experiment that go the same way as others of it."""


def quick_units(name: str) -> list[Unit]:
    units = importlib.import_module(f"gpcde.reproduce.experiments.{name}").units("quick")
    return [unit for unit in units if name != "taxi" or unit.model not in LIKE_OTHERS]


def nothing(share: float) -> None:
    assert 0 <= share <= 1


# all of it


def make_data(folder: Path) -> None:
    """Small stand-ins for all data sets, in the form of the real ones."""
    rng = np.random.default_rng(0)
    for name in ("uci", "mnist", "omniglot", "taxi"):
        (folder / name).mkdir(parents=True)
    X = rng.normal(size=(67, 1))
    y = rng.choice([-1.0, 1.0], 67) + 0.1 * rng.normal(size=67)
    np.savez(folder / "uci" / "yacht.npz", X=X, y=3 * y)
    shapes = rng.uniform(0, 255, (10, 28, 28))
    labels = {"train": np.resize(np.arange(10), 100), "test": np.resize(np.arange(10), 60)}
    labels["train"][50:] = 1  # natgrad wants many ones
    images = {
        part: np.clip(shapes[known] + 20 * rng.normal(size=(len(known), 28, 28)), 0, 255).astype(np.uint8)
        for part, known in labels.items()
    }
    both = {f"x_{part}": images[part] for part in images} | {f"y_{part}": labels[part] for part in labels}
    np.savez(folder / "mnist" / "mnist.npz", **both)  # type: ignore[arg-type]
    class_id = np.repeat(np.arange(10), [2] * 6 + [7] * 4)  # 20 to learn from, as of the digits
    drawings = np.clip(shapes[class_id] + 20 * rng.normal(size=(len(class_id), 28, 28)), 0, 255).astype(np.uint8)
    np.savez(folder / "omniglot" / "omniglot28.npz", images=drawings, class_id=class_id, is_evaluation=class_id >= 6)
    rows = 500
    ends = {f"{end}_lon": rng.uniform(-74.01, -73.94, rows) for end in ("pickup", "dropoff")}
    ends |= {f"{end}_lat": rng.uniform(40.71, 40.82, rows) for end in ("pickup", "dropoff")}
    when = rng.integers(0, 7 * 86_400, rows)
    file = folder / "taxi" / "kaggle_nyc_trip_duration_5pct.npz"
    np.savez(file, **ends, pickup_time=when, duration=np.full(rows, 600.0))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("reproduce")
    make_data(place / "data")
    return place


@pytest.fixture
def data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPCDE_DATA_DIR", str(folder / "data"))
    load_trips.cache_clear()


@pytest.mark.usefixtures("data", "short")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_quick_preset_makes_tables_and_figures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = importlib.import_module(f"gpcde.reproduce.experiments.{name}").work
    out = tmp_path / "quick"
    for unit in quick_units(name):
        metrics = work(unit._replace(settings=smaller(unit.settings)), nothing, tmp_path / "checkpoint")
        (tmp_path / "checkpoint").unlink(missing_ok=True)
        append_line(out / f"{name}.jsonl", unit.line(metrics, 1.0, 1.0))
    monkeypatch.setenv("GPCDE_DATA_DIR", str(tmp_path / "none"))  # from the lines alone
    assert cli.main(["reproduce", name, "--preset", "quick", "--report", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{out / name}.md\n"
    rows = (out / f"{name}.md").read_text().splitlines()
    assert len(rows) > 2
    assert (out / f"{name}.csv").stat().st_size > 50
    figures = sorted(out.glob(f"{name}*.png"))
    assert figures
    assert all(figure.with_suffix(".pdf").is_file() for figure in figures)


@pytest.mark.skipif(not RESULTS.is_dir(), reason="the results are not part of every distribution")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_tables_kept_are_made_from_the_lines_kept(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = importlib.import_module(f"gpcde.reproduce.reports.{name}")
    monkeypatch.setattr(report, "write_figure", lambda *_: None)  # figures are written above
    report.report(read_lines(RESULTS / f"{name}.jsonl"), tmp_path)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert {f"{name}.md", f"{name}.csv"} <= set(made)
    for file in made:
        assert (tmp_path / file).read_text() == (RESULTS / file).read_text()


# log densities in the units of y


@pytest.mark.parametrize("scale", [0.01, 300.0])
def test_the_linear_model_scores_in_the_units_of_y(scale: float, tmp_path: Path, monkeypatch: Any) -> None:
    """Against the same regression done without standardising anything."""
    rng = np.random.default_rng(1)
    X = 5 + 3 * rng.normal(size=(50, 2))
    y = scale * (X @ [1.0, -2.0] + 0.5 * rng.normal(size=50))
    train, test = np.arange(40), np.arange(40, 50)
    monkeypatch.setattr(scoring, "load_uci", lambda name: Table(X, y, [(train, test)]))
    metrics = uci.work(Unit("uci", LINEAR, "yacht", 0, 0, {}), nothing, tmp_path / "none")
    features = np.concatenate([np.ones((50, 1)), X], axis=1)
    coefficients, squares, *_ = np.linalg.lstsq(features[train], y[train])
    variance = squares[0] / (40 - 3)
    wider = 1 + np.einsum("ni,ij,nj->n", features, np.linalg.inv(features[train].T @ features[train]), features)
    expected = norm.logpdf(y, features @ coefficients, np.sqrt(variance * wider))[test].mean()
    assert metrics["log_likelihood"] == pytest.approx(expected, abs=1e-5)
    assert metrics["noise_variance"] == pytest.approx(variance, rel=1e-5)
    assert (metrics["rows"], metrics["test_rows"]) == (40, 10)


def small_unit(model: str, **settings: Any) -> Unit:
    """A unit of the quick preset, smaller still."""
    unit = next(unit for unit in uci.units("quick") if unit.model == model)
    return unit._replace(settings=smaller(unit.settings) | settings)


@pytest.mark.usefixtures("data")
def test_the_gaussian_process_scores_in_the_units_of_y(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against Gaussians at each x; and y in other units is y minus their logarithm."""
    table = load_uci("yacht")
    found = {}
    for factor in (1.0, 100.0):
        scaled = table._replace(y=factor * table.y)
        monkeypatch.setattr(scoring, "load_uci", lambda name, scaled=scaled: scaled)
        found[factor] = uci.work(small_unit(GP), nothing, tmp_path / "none")
    for name in ("log_likelihood", "bound"):
        assert found[100.0][name] == pytest.approx(found[1.0][name] - np.log(100), abs=1e-6)
    assert found[100.0]["noise_variance"] == pytest.approx(1e4 * found[1.0]["noise_variance"], rel=1e-6)

    task, (train, test) = standardised(table, 0), table.splits[0]
    _, state = trained(small_unit(GP), task, nothing, tmp_path / "none")
    mean, variance = Predictor.create(state.model, state.posterior).components(task.test_x).moments()
    centre, spread = table.y[train].mean(), table.y[train].std()
    expected = norm.logpdf(table.y[test], centre + spread * mean[:, 0], spread * np.sqrt(variance[:, 0]))
    assert found[1.0]["log_likelihood"] == pytest.approx(expected.mean(), abs=1e-6)


@pytest.mark.usefixtures("data")
def test_of_two_starts_the_training_bound_chooses(tmp_path: Path) -> None:
    task, settings = standardised(load_uci("yacht"), 0), small_unit(OPTIMAL).settings
    starts = [FLAT | {"steps": 50}, settings["starts"][0]]

    def best(starts: list[dict], name: str) -> float:
        value, state = trained(small_unit(OPTIMAL, starts=starts), task, nothing, tmp_path / name)
        assert value == bound(0, state, task, settings["batch"])
        return value

    one, two = (best([how], f"{i}.safetensors") for i, how in enumerate(starts))
    assert abs(one - two) > 0.005
    for order in (starts, starts[::-1]):
        assert best(order, "both.safetensors") == pytest.approx(max(one, two), abs=1e-9)


# splits


def drawings(counts: list[int], new: int) -> Images:
    """Drawings of each class, this many, in random order; the last `new` classes are for testing."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    return Images(rng.uniform(size=(len(labels), 4)), labels, labels >= len(counts) - new)


@pytest.mark.parametrize("seed", [0, 1])
def test_few_shots_of_each_new_class_are_learnt_and_the_rest_tested(seed: int) -> None:
    data = drawings([5, 9, 6, 7, 8], 3)
    train, test = few_shot(data, 4, seed)
    assert sorted([*train, *test]) == list(range(35))
    assert np.bincount(data.labels[train], minlength=5).tolist() == [5, 9, 4, 4, 4]
    assert np.bincount(data.labels[test], minlength=5).tolist() == [0, 0, 2, 3, 4]
    others = few_shot(data, 4, seed + 1)[0]
    assert set(train) != set(others)


def test_few_of_each_class_are_of_the_training_images_and_grow_with_their_number() -> None:
    rng = np.random.default_rng(0)
    labels, held = rng.permutation(np.repeat(np.arange(CLASSES), 12)), rng.random(12 * CLASSES) < 0.3
    data = Images(np.zeros((len(labels), 1)), labels, held)
    small, large = few_of_each(data, 2, 0), few_of_each(data, 4, 0)
    assert np.bincount(labels[small]).tolist() == [2] * CLASSES
    assert len(set(small)) == 2 * CLASSES
    assert not held[large].any()
    assert set(small) < set(large)


def test_each_farthest_point_is_the_farthest_from_those_before_it() -> None:
    x = np.random.default_rng(0).normal(size=(40, 3))
    chosen = farthest_points(x, 12, 7)
    assert chosen[0] == 7
    assert len(set(chosen)) == 12
    gaps = []
    for i in range(1, 12):
        nearest = np.linalg.norm(x[:, None] - x[chosen[:i]], axis=2).min(1)
        assert nearest[chosen[i]] == nearest.max()
        gaps.append(nearest.max())
    assert (np.diff(gaps) <= 0).all()
    assert farthest_points(x, 0, 7).tolist() == []


@pytest.mark.usefixtures("data")
def test_no_test_trip_is_trained_on() -> None:
    trips = load_trips(30, 20, 5)
    rows = [*trips.tests["random"], *trips.tests["farthest"], *trips.training]
    assert (len(trips.tests["random"]), len(trips.tests["farthest"])) == (30, 20)
    assert sorted(rows) == list(range(len(trips.x)))
    np.testing.assert_allclose(trips.x[trips.training].mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(trips.y[trips.training].std(0), 1)
    more = load_trips(30, 20, 6)
    assert set(more.training) != set(trips.training)


# images


@pytest.mark.parametrize("kind", ["directions", "isotropic", "diagonal"])
def test_the_likelihood_of_an_image_is_that_of_the_dense_mixture(kind: str) -> None:
    rng = np.random.default_rng(0)
    k, pixels, width = 5, 6, 2
    log_weight, y = np.log(rng.dirichlet(np.ones(k))), rng.normal(size=(7, pixels))
    basis, outside = np.linalg.qr(rng.normal(size=(pixels, width)))[0], rng.uniform(0.1, 2, k)
    if kind == "directions":
        mean, variance = rng.normal(size=(k, width)), rng.uniform(0.1, 2, (k, width))
        mixture = Components(log_weight[None], mean[None], variance[None], basis[None, None], outside[None])
        centres = mean @ basis.T
        beyond = np.eye(pixels) - basis @ basis.T
        spreads = [basis @ np.diag(v) @ basis.T + o * beyond for v, o in zip(variance, outside, strict=True)]
    else:
        centres = rng.normal(size=(k, pixels))
        variance = np.full((1, 1), 0.3) if kind == "isotropic" else rng.uniform(0.1, 2, (k, pixels))
        mixture = Components(log_weight[None], centres[None], variance[None])
        spreads = [np.diag(v) for v in np.broadcast_to(variance, (k, pixels))]
    each = [multivariate_normal.logpdf(y, m, s) for m, s in zip(centres, spreads, strict=True)]
    expected = logsumexp(log_weight[:, None] + each, axis=0)
    np.testing.assert_allclose(mixture_log_density(mixture, y), expected, rtol=1e-9)
    np.testing.assert_allclose(mixture.log_pdf(y[None])[0], expected, rtol=1e-9)


def test_two_levels_answer_as_the_joint_gaussian_of_all_drawings_of_a_class() -> None:
    """p(y|known) = p(known, y) / p(known), of the Gaussian whose drawings of a class share its mean."""
    rng = np.random.default_rng(0)
    pixels, ridge = 3, 0.05
    labels = np.repeat(np.arange(300), 6)
    images = (
        2
        + rng.normal(size=(300, pixels)).repeat(6, 0) * [2.0, 1.0, 0.3]
        + rng.normal(size=(1800, pixels)) @ (np.eye(pixels) + 0.3)
    )
    levels = Levels.fitted(images, labels, pixels, ridge)
    back = np.linalg.inv(levels.turn)
    within, between = back @ back.T, back @ np.diag(levels.between) @ back.T
    np.testing.assert_allclose(
        within, (np.eye(pixels) + 0.3) @ (np.eye(pixels) + 0.3) + ridge * np.eye(pixels), atol=0.2
    )
    np.testing.assert_allclose(between, np.diag([4.0, 1.0, 0.09]), atol=0.5)

    def joint(rows: np.ndarray) -> float:
        cov = np.kron(np.ones((len(rows), len(rows))), between) + np.kron(np.eye(len(rows)), within)
        return multivariate_normal.logpdf(rows.ravel(), np.tile(levels.mean, len(rows)), cov)

    for shots in (0, 1, 4):
        known, y = images[:shots], images[100:103]
        expected = [joint(np.concatenate([known, one[None]])) - (joint(known) if shots else 0) for one in y]
        np.testing.assert_allclose(levels.log_density(known, y), expected, rtol=1e-8)
    assert (Levels.fitted(images, labels, 1, ridge).between > 0).sum() == 1


def test_an_image_moved_to_the_middle_and_back_is_itself() -> None:
    rng = np.random.default_rng(0)
    side = 7
    images = np.zeros((5, side * side))
    for i, (row, column) in enumerate([(0, 0), (6, 2), (3, 3), (1, 6)]):
        images[i, side * row + column] = 1.0
    places = centres(images, side)
    assert places.tolist() == [[-3, -3], [3, -1], [0, 0], [-2, 3], [0, 0]]  # the last has no ink
    middle = moved(images, -places, side)
    assert middle[:4].argmax(1).tolist() == [24] * 4
    np.testing.assert_array_equal(moved(middle, places, side), images)
    one = rng.uniform(size=(1, side * side))
    by_hand = np.roll(one.reshape(side, side), (2, -1), (0, 1)).ravel()
    np.testing.assert_array_equal(moved(one, np.array([[2, -1]]), side)[0], by_hand)


def test_the_probabilities_of_places_are_those_seen_and_sum_to_one() -> None:
    side = 5
    known = np.array([[0, 0]] * 6 + [[1, -2]] * 3)
    everywhere = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1).reshape(-1, 2) - 2
    log = log_probabilities(known, everywhere, side)
    assert np.exp(log).sum() == pytest.approx(1)
    assert np.exp(log_probabilities(known, known[[0, -1]], side)) == pytest.approx(
        [(6 + 1 / 25) / 10, (3 + 1 / 25) / 10]
    )


def test_errors_over_training_sets_join_those_over_test_images() -> None:
    """Several sets share their test images, of which the mean over sets is as uncertain as one alone."""

    def line(split: int, test: float) -> dict[str, Any]:
        metrics = {"test": test, "test_error": 0.4, "train": 2.0 * test}
        return Unit("mnist", "model", "N=2", split, split, {}).line(metrics, 1.0, 1.0)

    one = _over_sets([line(0, 5.0)])["model", 2]
    assert one == {"test": 5.0, "test_error": 0.4, "train": 10.0}
    three = _over_sets([line(i, v) for i, v in enumerate([4.0, 5.0, 6.0])])["model", 2]
    assert (three["test"], three["train"], three["sets"]) == (5.0, 10.0, 3)
    assert three["test_error"] == pytest.approx((0.4**2 + 1 / 3) ** 0.5)


def test_other_training_sets_differ_in_nothing_but_the_images() -> None:
    units = [unit for unit in mnist_units("standard") if (unit.model, unit.data) == (GP_MIXED, "N=8")]
    assert [(unit.split, unit.seed) for unit in units] == [(i, i) for i in range(SETS)]
    assert all(unit.settings == units[0].settings for unit in units)


def image_state() -> State:
    """A model of 9 pixels and 3 labels, as good as any."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    model = Model(
        RBF.create(4),
        jnp.asarray(rng.normal(size=(6, 4))),
        Project(jnp.asarray(rng.normal(size=(3, 2))), jnp.full((3, 2), -1.0)),
        GaussianLatents(None, 2),
        ConjugateMixing.create(rng.normal(size=(9, 4))),
        ConstantNoise.create(0.2),
    )
    return Trainer.create(1).init(model, Statistics(jnp.asarray(root @ root.T), jnp.asarray(rng.normal(size=(6, 9)))))


def test_likelihoods_by_draws_are_the_predictors_own() -> None:
    state, y, labels = image_state(), np.random.default_rng(1).normal(size=(8, 9)), np.arange(8) % 3
    predictor = Predictor.create(state.model, state.posterior, Nodes.for_model(state.model, cloud=32))
    expected = predictor.log_density(labelled(labels, 3), y)
    np.testing.assert_allclose(log_density_by_draws(state, y, labels, 3, 32), expected, rtol=1e-9)


def test_sampled_images_are_means_at_draws_of_the_latents() -> None:
    state = image_state()
    mean = np.full(9, 0.5)
    drawn = samples(state, mean, np.array([2, 0]), 3, 4, seed=1)
    assert drawn.shape == (2, 4, 9)
    assert ((drawn >= 0) & (drawn <= 1)).all()
    v = np.random.default_rng(1).standard_normal((2, 4, 4))
    for label, w, image in zip((2, 0), v, drawn, strict=True):
        predictor = Predictor.create(state.model, state.posterior, Nodes(w[:, :2], np.zeros(4), w[:, 2:]))
        inside = np.asarray(predictor.mixture(labelled(np.array([label]), 3)).means()[0])
        np.testing.assert_allclose(image, np.clip(mean + inside, 0, 1), rtol=1e-9)


def test_principal_log_density_is_that_of_the_dense_covariance() -> None:
    """U diag(λ) Uᵀ + σ² (I - U Uᵀ): the likeliest with so many latents, all of them where σ² has one direction."""
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(40, 5)) @ rng.normal(size=(5, 5)), rng.normal(size=(7, 5))
    mean, covariance = train.mean(0), np.cov(train.T, bias=True)
    whole = multivariate_normal.logpdf(test, mean, covariance)
    np.testing.assert_allclose(principal_log_density(train, test, 4), whole, rtol=1e-9)
    values, vectors = np.linalg.eigh(covariance)
    values[:3] = values[:3].mean()
    two = multivariate_normal.logpdf(test, mean, (vectors * values) @ vectors.T)
    np.testing.assert_allclose(principal_log_density(train, test, 2), two, rtol=1e-9)


# few-shot classification


def test_an_episode_has_drawings_of_its_own_classes_that_were_not_learnt_from() -> None:
    labels = np.repeat(np.arange(8), 6)
    unseen = np.flatnonzero(np.arange(48) % 6 > 2)
    episodes = draw_episodes(3, labels, unseen, 5, 20)
    np.testing.assert_array_equal(labels[episodes.drawings], episodes.classes)
    assert set(episodes.drawings.ravel()) <= set(unseen)
    assert all(len(set(classes)) == 5 for classes in episodes.classes)
    assert len(set(episodes.classes.ravel())) == 8


def test_classes_are_told_apart_by_the_greatest_value() -> None:
    """Of a density that knows the class of every drawing, and one that is always wrong; nearest is by brute force."""
    rng = np.random.default_rng(0)
    labels, images = np.repeat(np.arange(6), 5), rng.normal(size=(30, 4))
    known, unseen = np.flatnonzero(np.arange(30) % 5 < 3), np.flatnonzero(np.arange(30) % 5 >= 3)
    episodes = draw_episodes(0, labels, unseen, 4, 10)
    right = scores(episodes, lambda label, drawings: 2.0 * (labels[drawings] == label))
    assert accuracy(right) == (1.0, 0.0)
    assert accuracy(-right)[0] == 0.0
    np.testing.assert_allclose(right_minus_wrong(right), (2.0, 0.0), atol=1e-12)
    found = nearest(episodes, images, labels, known)
    for e, i, j in np.ndindex(10, 4, 4):
        of_class = images[[n for n in known if labels[n] == episodes.classes[e, j]]]
        expected = -((images[episodes.drawings[e, i]] - of_class) ** 2).sum(1).min()
        np.testing.assert_allclose(found[e, i, j], expected, rtol=1e-9, atol=1e-12)


# training


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_warp_starts_as_its_settings_say(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, y = make_inputs(rng.normal(size=(300, 6))), rng.normal(size=(300, 2))
    unit = next(unit for unit in taxi_units("quick") if "warp" in unit.settings)
    settings = smaller(unit.settings) | {"warp": unit.settings["warp"]}
    settings["design"]["dtype"] = dtype
    design = fits._warped(0, x, fits.make_design(settings), settings["warp"])
    model: Any = fits._quiet_start(0, x, y, design, settings["warp"]["noise_variance"]).model
    plain = start(jax.random.key(0), x, y, fits.make_design(settings)).model
    assert float(model.noise_variance) == pytest.approx(0.02)
    np.testing.assert_allclose(model.kernel.lengthscales, 0.5)
    assert model.input_map.weight_precision == 20.0
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(model)} == {dtype}
    # but for noise and prior it is the usual start
    changed = dataclasses.replace(model, likelihood=plain.likelihood, input_map=plain.input_map)
    jax.tree.map(np.testing.assert_array_equal, changed, plain)
    for one, two in zip(jax.tree.leaves(model.input_map), jax.tree.leaves(plain.input_map), strict=True):
        np.testing.assert_array_equal(one, two)


class Interrupted(Exception):
    pass


def test_training_that_was_cut_off_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    rng = np.random.default_rng(0)
    x, y = make_inputs(rng.normal(size=(30, 1))), rng.normal(size=(30, 1))
    design = Design(inference="none", inducing=5)
    schedule = Schedule(150, 10, (0.02, 0.002), (0.1, 0.1))
    noise, map_ = ConstantNoise.create(0.1), Concatenate(1)
    model = Model(RBF.create(1), jnp.linspace(-1, 1, 5)[:, None], map_, NoLatents(), Identity(1), noise)
    checkpoint = tmp_path / "x.safetensors"
    told: list[float] = []

    def first() -> State:
        return Trainer.create(30).init(model)

    def tell(share: float) -> None:
        told.append(share)
        if len(told) == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        train_design(0, x, y, design, schedule, tell, checkpoint, first)
    assert told == pytest.approx([1 / 3, 2 / 3, 1])
    cut = checkpoint.read_bytes()
    state, records = train_design(0, x, y, design, schedule, told.append, checkpoint, first)
    assert told[3:] == pytest.approx([1])  # one chunk of steps was left
    whole, all_records = train_design(0, x, y, design, schedule, nothing, tmp_path / "y.safetensors", first)
    assert [r.step for r in records] == [r.step for r in all_records] == [50, 100, 150]
    for one, two in zip(jax.tree.leaves(state), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(one, two)
    # what belongs to other data, or is damaged, is left aside
    assert resumed(checkpoint, design, schedule, y) is not None
    assert resumed(checkpoint, design, schedule, y + 1) is None
    assert resumed(checkpoint, design, dataclasses.replace(schedule, steps=200), y) is None
    checkpoint.write_bytes(cut[:100])
    assert resumed(checkpoint, design, schedule, y) is None
