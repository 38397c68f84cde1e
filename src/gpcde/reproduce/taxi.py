"""The paper's taxi experiment: where does a taxi go, given where and when its trip begins?

    NLPP = - mean log p(y|x),   x: place, weekday and time of the pick-up,   y: place of the drop-off, standardised

Two sets of test trips: the paper's, each the farthest from those chosen before it, which lie at the fringes of the
inputs; and random ones, which lie where trips do. The training rows are drawn from the others, 1K within 5K within all.
Every model sees the same rows, and is scored in the same units.

Beside the paper's rows there are rivals that a careful engineer would fit (mixture density networks that stop early,
with weight decay and full covariances; a conditional kernel estimate with kernels in x too, all bandwidths by
cross-validation), and two forms of the model that the paper does not have: with a free-form q(w), and with a warp,
y = f(w + g(x, w)) + noise, in which one GP of two inputs has the shape of the city for all conditions together, and a
network g with a firm prior moves the latent as the condition wants it.
"""

import functools
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from .. import datasets
from ..density.conditional import ConditionalDensity
from ..density.transforms import OutputTransform
from ..estimators.gpcde import GPCDE
from ..estimators.kde import KDE, ConditionalKDE
from ..estimators.mdn import MDN
from ..inference.bound import whole
from ..inference.schedule import Geometric
from ..inference.start import Design, start
from ..inference.training import Record, State, Trainer, train
from ..model.input_maps import Warp
from ..model.inputs import Inputs, make_inputs
from ..model.kernels import RBF
from ..prediction.answer import prediction
from ..runtime.precision import scope
from ._report import mean_error, new_figure, write_figure, write_table
from ._run import Tell
from ._training import Course, train_design
from ._units import Line, Unit, picture, unpicture

SPLIT_SEED = 2018
"""Of the test sets and the order of the training rows: the same for every model and size."""

DAY_FILE = "taxi/tlc_2015-12-01_bespin.npz"

WEDNESDAY, SATURDAY = 6, 2
"""Days since the first of January 1970, a Thursday, modulo 7."""

CONDITIONS = (
    ("Penn Station, Wednesday 8:30", (-73.9935, 40.7505), WEDNESDAY, 8.5),
    ("Upper East Side, Saturday 20:00", (-73.9570, 40.7740), SATURDAY, 20.0),
)
"""Pick-ups of which the figure shows the densities: their name, place, weekday and hour."""

PAPER: dict[str, tuple[float, float, float]] = {
    "GP-LVM": (2.61, 2.52, 2.43),
    "GP": (2.68, 2.67, 2.67),
    "GP-CDE": (2.31, 2.22, 2.13),
    "U-KDE": (2.49, 2.50, 2.35),
    "C-KDE": (2.40, 2.38, 2.314),
    "MDN-1": (2.83, 2.77, 2.65),
    "MDN-5": (2.72, 2.55, 2.16),
    "MDN-10": (3.17, 2.66, 2.06),
    "MDN-50": (5.09, 3.08, 1.97),
}
"""The paper's table, for 1K, 5K and 1M training rows."""

COMPONENTS = (1, 5, 10, 50)
STOPPED = " early-stopped"
FREE_FORM, WARPED, PRODUCT = "GP-CDE free-form", "GP-CDE warped", "C-KDE product"
MODELS = (
    "U-KDE",
    "C-KDE",
    PRODUCT,
    *(f"MDN-{k}" for k in COMPONENTS),
    *(f"MDN-{k}{STOPPED}" for k in COMPONENTS),
    "GP-LVM",
    "GP",
    "GP-CDE",
    FREE_FORM,
    WARPED,
)
"""The rows of the table."""

SIZES = {"300": 300, "1K": 1_000, "5K": 5_000, "all": 1_000_000}
"""Training rows; all there are, where there are fewer."""

QUICK_MODELS = ("U-KDE", "C-KDE", "MDN-5", f"MDN-5{STOPPED}", "GP-LVM", "GP", "GP-CDE", WARPED)


# what to do


def units(preset: str) -> list[Unit]:
    """The models and sizes of a preset: "quick", "standard" or "paper"."""
    if preset not in ("quick", "standard", "paper"):
        raise ValueError(f'preset must be "quick", "standard" or "paper", got {preset!r}')
    if preset == "quick":
        return [_unit(model, "300", preset) for model in QUICK_MODELS]
    # the longest first, so that no core is left idle at the end
    sizes = ("all", "5K", "1K")
    return [_scale_unit(preset), *(_unit(model, size, preset) for size in sizes for model in reversed(MODELS))]


def _unit(model: str, size: str, preset: str) -> Unit:
    kind, options = _recipe(model, size, preset)
    quick = preset == "quick"
    tests = {"random": 100, "farthest": 0} if quick else {"random": 1000, "farthest": 1000}
    settings = {
        "kind": kind,
        "rows": SIZES[size],
        "tests": tests,
        "split_seed": SPLIT_SEED,
        "pixels": 32 if quick else 64,
    }
    if kind == "design":
        settings["nodes"] = 512 if quick else 4096 if model == WARPED else 1024
    settings |= options
    seconds = SECONDS[model][("1K", "5K", "all").index(size)] if size != "300" else 6.0
    return Unit("taxi", model, size, 0, 0, settings, seconds * (5 if preset == "paper" else 1))


def _scale_unit(preset: str) -> Unit:
    settings = {
        "kind": "scale",
        "rows": [10_000, 100_000, 400_000],
        "steps": 300 if preset == "standard" else 1000,
        **_latent_recipe("GP-CDE", "all", preset),
    }
    return Unit("taxi", "GP-CDE", "day", 0, 0, settings, 60.0)


SECONDS: dict[str, tuple[float, float, float]] = {
    "U-KDE": (8, 10, 40),
    "C-KDE": (8, 9, 10),
    PRODUCT: (15, 30, 90),
    **{f"MDN-{k}{kind}": (20, 25, 60) for k in COMPONENTS for kind in ("", STOPPED)},
    "GP-LVM": (30, 40, 60),
    "GP": (20, 20, 30),
    "GP-CDE": (40, 60, 120),
    FREE_FORM: (60, 80, 180),
    WARPED: (60, 130, 670),
}
"""About how long a unit takes on one core, for 1K, 5K and all rows."""


def _recipe(model: str, size: str, preset: str) -> tuple[str, dict[str, Any]]:
    """The kind of a model, and its settings: all that its result depends on."""
    if model == "U-KDE":
        return "kde", {"options": {}}
    if model == "C-KDE":
        return "neighbours", {"options": {"method": "neighbours", "n_neighbors": 50}}
    if model == PRODUCT:
        return "product", {"options": {"method": "cv_ml"}}
    if model.startswith("MDN"):
        return "mdn", {"options": _mdn_recipe(model, size, preset)}
    if model == FREE_FORM:
        steps = {"300": 100, "1K": 1000, "5K": 1000, "all": 3000}[size] * (5 if preset == "paper" else 1)
        options = {"latent_dim": 2, "inference": "free-form", "input_map": "bend", "max_steps": steps}
        return "gpcde", {"options": options}
    return "design", _latent_recipe(model, size, preset)


def _mdn_recipe(model: str, size: str, preset: str) -> dict[str, Any]:
    """Three layers of 50 units; so many epochs that there are about 10,000 steps, or as many as held-out rows want."""
    count, batch = int(model.removesuffix(STOPPED).removeprefix("MDN-")), 128
    quick, paper = preset == "quick", preset == "paper"
    options = {"n_components": count, "hidden": [50, 50, 50], "batch_size": batch, "learning_rate": 1e-3}
    if model.endswith(STOPPED):
        epochs, patience = {"300": (40, 20), "1K": (1000, 50), "5K": (400, 30), "all": (60, 8)}[size]
        if paper:
            epochs, patience = 3 * epochs, 2 * patience
        how = {"early_stopping": True, "validation_fraction": 0.2, "patience": patience, "weight_decay": 1e-2}
        return {**options, **how, "covariance": "full", "max_epochs": epochs}
    steps = 200 if quick else 100_000 if paper else 10_000
    rows = 60_000 if size == "all" else SIZES[size]
    epochs = max(1, math.ceil(steps / (rows // batch)))
    return {**options, "early_stopping": False, "weight_decay": 0.0, "covariance": "diagonal", "max_epochs": epochs}


def _latent_recipe(model: str, size: str, preset: str) -> dict[str, Any]:
    """The models with a course of training of their own: the paper's three, and the warp."""
    quick, paper = preset == "quick", preset == "paper"
    inducing = {"300": 20, "1K": 100, "5K": 200, "all": 200}[size]
    steps = 60 if quick else 20_000 if paper else {"1K": 2_000, "5K": 3_000, "all": 4_000}[size]
    course = {"steps": steps, "batch_size": 128 if quick else 256, "rates": [0.01, 0.001], "gammas": [0.05, 0.05]}
    design: dict[str, Any] = {"latent_dim": 2, "inducing": inducing, "kernel": "rbf", "trials": 1}
    if model == "GP":
        return {"design": {**design, "inference": "none", "latent_dim": 0}, "course": course}
    if model in ("GP-LVM", "GP-CDE"):
        design = {**design, "inference": "amortised", "expectation": "draws", "draws": 1}
        return {"design": design, "course": course, "inputs": model != "GP-LVM"}
    return _warp_recipe(size, preset)


def _warp_recipe(size: str, preset: str) -> dict[str, Any]:
    """The warp: g with a firm prior, the importance-weighted bound, little noise to begin with."""
    quick, paper = preset == "quick", preset == "paper"
    inducing = {"300": 30, "1K": 100, "5K": 200, "all": 300}[size]
    steps = 100 if quick else {"1K": 500, "5K": 1_500, "all": 4_500}[size] * (5 if paper else 1)
    return {
        "design": {
            "inference": "amortised",
            "latent_dim": 2,
            "inducing": inducing,
            "kernel": "rbf",
            "input_map": "warp",
            "expectation": "importance",
            "draws": 10,
            "trials": 1,
            "dtype": "float32" if size == "all" else "float64",
        },
        "course": {
            "steps": steps,
            "batch_size": 256 if size == "all" else 128,
            "rates": [0.01, 0.001],
            "gammas": [0.1, 0.02],
        },
        "warp": {"hidden": [64, 64], "weight_precision": 20.0, "noise_variance": 0.02, "lengthscale": 0.5},
        "inputs": True,
    }


# the data


class Trips(NamedTuple):
    """Standardised trips, the rows of each test set, and the units they were standardised with."""

    x: Float[np.ndarray, "n 6"]
    y: Float[np.ndarray, "n 2"]
    tests: dict[str, Int[np.ndarray, " t"]]
    training: Int[np.ndarray, " p"]
    x_units: tuple[Float[np.ndarray, "6"], Float[np.ndarray, "6"]]
    y_units: tuple[Float[np.ndarray, "2"], Float[np.ndarray, "2"]]


def farthest_points(x: Float[np.ndarray, "n d"], count: int, first: int) -> Int[np.ndarray, " t"]:
    """Rows one after another, each with the greatest distance from the nearest of those before it."""
    chosen = np.zeros(count, int)
    chosen[:1] = first
    distance = ((x - x[first]) ** 2).sum(1)
    for i in range(1, count):
        chosen[i] = distance.argmax()
        distance = np.minimum(distance, ((x - x[chosen[i]]) ** 2).sum(1))
    return chosen


@functools.cache
def _trips(random: int, farthest: int, seed: int) -> Trips:
    """The trips with their test sets; the order of the training rows is random, so that the first are a sample."""
    X, y = datasets.load_taxi()
    order = np.random.default_rng(seed).permutation(len(X))
    far = farthest_points((X - X.mean(0)) / X.std(0), farthest, order[0])
    rest = order[~np.isin(order, far)]
    tests = {"random": rest[:random], "farthest": far}
    training = rest[random:]
    x_units, y_units = ((a[training].mean(0), a[training].std(0)) for a in (X, y))
    return Trips((X - x_units[0]) / x_units[1], (y - y_units[0]) / y_units[1], tests, training, x_units, y_units)


def _pick_up(place: tuple[float, float], weekday: int, hour: float) -> Float[np.ndarray, "6"]:
    """The inputs of a trip, as the data set has them."""
    week, day = 2 * np.pi * weekday / 7, 2 * np.pi * hour / 24
    return np.array([*place, np.sin(week), np.cos(week), np.sin(day), np.cos(day)])


# one unit


class Fitted(NamedTuple):
    """What is asked of a model: the densities at some x, and whatever else is worth keeping."""

    density: Callable[[np.ndarray], ConditionalDensity]
    about: dict[str, Any]


def work(unit: Unit, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    """Fit a unit's model, score it on the test sets, and look at two of its densities."""
    settings = unit.settings
    if settings["kind"] == "scale":
        return _scale(settings, unit.seed, tell)
    tests = settings["tests"]
    trips = _trips(tests["random"], tests["farthest"], settings["split_seed"])
    rows = trips.training[: settings["rows"]]
    began = time.perf_counter()
    fitted = FITS[settings["kind"]](unit, trips.x[rows], trips.y[rows], lambda share: tell(0.9 * share), checkpoint)
    metrics: dict[str, Any] = {"rows": len(rows), "fit_seconds": round(time.perf_counter() - began, 2)}
    for name, test in trips.tests.items():
        if len(test):
            scores = -fitted.density(trips.x[test]).log_pdf(trips.y[test])
            metrics[f"nlpp_{name}"], metrics[f"se_{name}"] = mean_error(scores)
    metrics["heat"] = _heat(fitted, trips, settings["pixels"])
    tell(1.0)
    return metrics | fitted.about


def _heat(fitted: Fitted, trips: Trips, pixels: int) -> list[dict[str, Any]]:
    """The square roots of the densities on a grid of the area, south to north and west to east."""
    longitude, latitude = (np.linspace(*ends, pixels) for ends in datasets.AREA)
    points = np.stack(np.meshgrid(longitude, latitude), -1).reshape(-1, 2)
    points = (points - trips.y_units[0]) / trips.y_units[1]
    x = np.stack([_pick_up(*condition[1:]) for condition in CONDITIONS])
    density = fitted.density((x - trips.x_units[0]) / trips.x_units[1])
    size = max(1, 2**22 // density.components().n_components)
    blocks = [density.pdf_grid(points[i : i + size]) for i in range(0, len(points), size)]
    roots = np.sqrt(np.concatenate(blocks, axis=1))
    return [picture(root.reshape(pixels, pixels), 0.0, max(float(root.max()), 1e-3)) for root in roots]


def _fit_kde(unit: Unit, x: np.ndarray, y: np.ndarray, tell: Tell, checkpoint: Path) -> Fitted:
    cls = KDE if unit.settings["kind"] == "kde" else ConditionalKDE
    model = cls(**unit.settings["options"], random_state=unit.seed).fit(x, y)
    scale = model.transform_.scale
    return Fitted(model.predict_density, {"bandwidths": [float(h) for h in model.bandwidths_.y * scale]})


def _fit_mdn(unit: Unit, x: np.ndarray, y: np.ndarray, tell: Tell, checkpoint: Path) -> Fitted:
    options = {**unit.settings["options"], "hidden": tuple(unit.settings["options"]["hidden"])}
    model = MDN(**options, random_state=unit.seed).fit(x, y)
    return Fitted(model.predict_density, {"epochs": int(model.n_epochs_)})


def _fit_gpcde(unit: Unit, x: np.ndarray, y: np.ndarray, tell: Tell, checkpoint: Path) -> Fitted:
    steps = unit.settings["options"]["max_steps"]

    def follow(model: GPCDE, record: Record) -> None:
        tell(record.step / steps)

    model = GPCDE(
        **unit.settings["options"], random_state=unit.seed, checkpoint=checkpoint, callbacks=[follow], verbose=False
    ).fit(x, y)
    about = {"noise_variance": float(np.exp(model.state_.model.log_noise_variance)), "steps": int(model.n_steps_)}
    return Fitted(model.predict_density, about)


def _fit_design(unit: Unit, x: np.ndarray, y: np.ndarray, tell: Tell, checkpoint: Path) -> Fitted:
    """The paper's models and the warp, by their own course of training."""
    settings = unit.settings
    uses = settings.get("inputs", True)
    inputs = _inputs(x, uses)
    design, course = _design(settings), _course(settings)
    first = None
    if "warp" in settings:
        first = functools.partial(_warped_start, unit.seed, inputs, y, design, settings["warp"])
    state, records = train_design(unit.seed, inputs, y, design, course, tell, checkpoint, first)
    count, transform = settings["nodes"], OutputTransform.identity(y.shape[1])

    def density(x: np.ndarray) -> ConditionalDensity:
        source = prediction(state.model, state.posterior, _inputs(x, uses), count)
        return ConditionalDensity(source, transform, len(x))

    model = state.model
    about = {"noise_variance": float(np.exp(model.log_noise_variance)), "bound": float(records[-1].bound)}
    return Fitted(density, about)


FITS: dict[str, Callable[[Unit, np.ndarray, np.ndarray, Tell, Path], Fitted]] = {
    "kde": _fit_kde,
    "neighbours": _fit_kde,
    "product": _fit_kde,
    "mdn": _fit_mdn,
    "gpcde": _fit_gpcde,
    "design": _fit_design,
}


def _inputs(x: Float[np.ndarray, "n 6"], uses: bool) -> Inputs:
    """The inputs, or as many rows of nothing."""
    return make_inputs(x) if uses else make_inputs(rows=len(x))


def _design(settings: dict[str, Any]) -> Design:
    return Design(**settings["design"])


def _course(settings: dict[str, Any]) -> Course:
    course = settings["course"]
    return Course(course["steps"], course["batch_size"], tuple(course["rates"]), tuple(course["gammas"]))


def _warped_start(seed: int, x: Inputs, y: np.ndarray, design: Design, warp: dict[str, Any]) -> State:
    """The usual start, with this network, prior, noise and lengthscale."""
    key = jax.random.key(seed)
    state = start(key, x, y, design)
    with scope():
        old = state.model
        dtype = old.inducing_points.dtype
        network = Warp.create(key, x.dense.shape[1], design.latent_dim, tuple(warp["hidden"])).network
        changed = (
            Warp(jax.tree.map(lambda a: a.astype(dtype), network), design.latent_dim, warp["weight_precision"]),
            jax.tree.map(lambda a: a.astype(dtype), RBF.create(design.latent_dim, warp["lengthscale"])),
            jnp.asarray(np.log(warp["noise_variance"]), dtype),
        )
        model = eqx.tree_at(lambda m: (m.input_map, m.kernel, m.log_noise_variance), old, changed)
        return Trainer.create(len(y)).init(model, state.posterior)


# the cost of a step


def _scale(settings: dict[str, Any], seed: int, tell: Tell) -> dict[str, Any]:
    """Milliseconds a step takes, from few rows to many: the same, since a step sees a batch."""
    x, y, real = _day(max(settings["rows"]), seed)
    course, rows, times = _course(settings), [], []
    for i, count in enumerate(settings["rows"]):
        inputs, outputs, key = make_inputs(x[:count]), y[:count], jax.random.key(seed)
        state = start(key, inputs, outputs, _design(settings))
        trainer = Trainer.create(
            len(outputs), Geometric.create(*course.rates, 1000), Geometric.create(*course.gammas, 1000)
        )
        data = whole(inputs, outputs)
        state, _ = train(trainer, key, state, data, 50, course.batch_size)  # compiles
        _, records = train(trainer, key, state, data, settings["steps"], course.batch_size)
        # a chunk in the middle of all: what else the machine did meanwhile is left out
        chunks = np.diff([record.seconds for record in records]) / np.diff([record.step for record in records])
        rows.append(len(outputs))
        times.append(round(1000 * float(np.median(chunks)), 3))
        tell((i + 1) / len(settings["rows"]))
    return {"rows": rows, "ms_per_step": times, "real": real}


def _day(count: int, seed: int) -> tuple[Float[np.ndarray, "n 6"], Float[np.ndarray, "n 2"], int]:
    """Standardised trips of a day, repeated to make up the number, or invented; and how many different real ones."""
    rng = np.random.default_rng(seed)
    path = datasets.local(DAY_FILE)
    if path is None:
        x = rng.standard_normal((count, 6))
        return x, 0.5 * x[:, :2] + rng.standard_normal((count, 2)), 0
    X, y = datasets.load_taxi(path)
    order = rng.permutation(len(X))
    index = np.resize(order, count)
    spread = np.where(X.std(0) > 0, X.std(0), 1.0)
    return ((X - X.mean(0)) / spread)[index], ((y - y.mean(0)) / y.std(0))[index], min(count, len(X))


# tables and figures


def report(lines: list[Line], out: Path) -> None:
    """taxi.md, taxi.csv, taxi.png and taxi.pdf from the lines there are."""
    fits = {(line["model"], line["data"]): line for line in lines if line["data"] != "day"}
    sizes = [size for size in SIZES if any(size == data for _, data in fits)]
    tests = [name for name in ("random", "farthest") if any(f"nlpp_{name}" in f["metrics"] for f in fits.values())]
    columns = [(test, size) for test in tests for size in sizes]
    header = ["Model", *(f"{test} {size}" for test, size in columns), *(f"paper {size}" for size in ("1K", "5K", "1M"))]
    rows = []
    for model in MODELS:
        if any((model, size) in fits for size in sizes):
            paper = [f"{value:.2f}" for value in PAPER[model]] if model in PAPER else ["–"] * 3
            rows.append([model, *(_cell(fits.get((model, size)), test) for test, size in columns), *paper])
    best = [text for column in columns if (text := _best(fits, *column))]
    write_table(out, "taxi", header, rows, _note(fits, best, [line for line in lines if line["data"] == "day"]))
    _draw(fits, sizes, out)


def _best(fits: dict[tuple[str, str], Line], test: str, size: str) -> str:
    """The best model of a column, in words."""
    name = f"nlpp_{test}"
    there = [line for (_, data), line in fits.items() if data == size and name in line["metrics"]]
    if not there:
        return ""
    line = min(there, key=lambda line: line["metrics"][name])
    return f"{test} {size}: {line['model']}"


def _cell(line: Line | None, test: str) -> str:
    """As in "2.134 ± 0.021"."""
    if line is None or f"nlpp_{test}" not in line["metrics"]:
        return "–"
    return f"{line['metrics'][f'nlpp_{test}']:.3f} ± {line['metrics'][f'se_{test}']:.3f}"


def _note(fits: dict[tuple[str, str], Line], best: Sequence[str], days: Sequence[Line]) -> str:
    """What the numbers are, which are the best, and the cost of a step."""
    most = max((line["metrics"]["rows"] for (_, data), line in fits.items() if data == "all"), default=0)
    everything = f'"all" is {most:,} training trips, all at hand; the paper had a million. ' if most else ""
    text = (
        "NLPP: minus the mean log density of standardised drop-offs ± its standard error over test trips; lower is "
        f"better. Test trips: random ones, and the farthest from each other (the paper's). {everything}"
        "The paper's numbers are of its own selection of trips, so their order and differences compare, not their "
        "level. MDN-k as in the paper: three layers of 50 units, diagonal covariances, a fixed number of steps; "
        "early-stopped: on a fifth of the rows, with weight decay and full covariances. C-KDE as in the paper: the 50 "
        "nearest trips, with the kernel width that cross-validation finds for all trips; product: kernels in x too."
    )
    if best:
        text += f"\n\nThe best of each column: {'; '.join(best)}."
    for line in days:
        measured = line["metrics"]
        each = ", ".join(
            f"{ms:.1f} ms at {rows:,} rows" for rows, ms in zip(measured["rows"], measured["ms_per_step"], strict=True)
        )
        trips = f"{measured['real']:,} trips of one day, some twice" if measured["real"] else "made-up trips"
        text += f"\n\nWhat a step of GP-CDE costs, by the number of rows ({trips}): {each}."
    return text


def _draw(fits: dict[tuple[str, str], Line], sizes: Sequence[str], out: Path) -> None:
    """Both densities of every model, at its largest training size; the pick-up is a red cross."""
    shown = []
    for model in MODELS:
        there = [fits[model, size] for size in sizes if (model, size) in fits]
        if there and there[-1]["metrics"].get("heat"):
            shown.append(there[-1])
    if not shown:
        return
    wide = min(4, len(shown))
    tall = -(-len(shown) // wide)
    figure = new_figure(3.6 * wide, 2.9 * tall)
    axes = figure.subplots(tall, 2 * wide, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    (west, east), (south, north) = datasets.AREA
    for i, line in enumerate(shown):
        for j, (_, place, _, _) in enumerate(CONDITIONS):
            axis = axes[i // wide, 2 * (i % wide) + j]
            root = unpicture(line["metrics"]["heat"][j])
            axis.imshow(root, origin="lower", extent=(west, east, south, north), vmin=0, vmax=1, cmap="viridis")
            axis.set_aspect(1 / math.cos(math.radians(40.76)))
            axis.plot(*place, "x", color="red", markersize=5, markeredgewidth=1.5)
            if j == 0:
                axis.set_title(f"{line['model']}, {line['data']}", fontsize=7, loc="left")
    names = "; ".join(name for name, _, _, _ in CONDITIONS)
    figure.suptitle(f"Density of the drop-off (root scale) for two pick-ups: {names}", fontsize=9)
    write_figure(out, "taxi", figure)
