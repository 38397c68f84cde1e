"""Test log likelihood on ten UCI regression sets: the paper's experiment on noise that is not Gaussian.

    Linear             y = [1, x] b + noise, exactly
    GP                 y = f(x) + noise, f a sparse Gaussian process
    CVAE               y = network(x, w) + noise
    GP-CDE amortised   y = f([x, w]) + noise, q(w) Gaussian, from a network of three tanh layers
    GP-CDE optimal     the same model, q(w) free in form, by Gauss–Hermite quadrature

Inputs and outputs are standardised by the training rows; log likelihoods are in the units of y. The three Gaussian
processes have the same kernel and number of inducing points. The two with latents take `first_steps` without them, so
that they go on from a GP, and then more from each of their `starts`, of which the training bound chooses; the optimal
q(w), whose steps are dearer, never takes more than the amortised one. Settings were chosen by training bounds.
"""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..datasets import UCI, load_uci
from ..estimators.cvae import CVAE
from ..estimators.special import LinearGaussian
from ..inference.bound import Batch, draw_noise, evaluate_bound, whole
from ..inference.schedule import entropy
from ..inference.start import ENOUGH, Design, with_latents
from ..inference.training import State, Trainer, optimal_posterior
from ..model.inputs import Inputs, make_inputs
from ..prediction.answer import nodes
from ..prediction.predictor import log_density
from ..runtime.compilation import compiled
from ..runtime.precision import scope
from ._report import mean_error, metric, new_figure, with_error, write_figure, write_table
from ._run import Tell
from ._training import Course, train_design
from ._units import Line, Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINEAR, GP, NETWORK, AMORTISED, OPTIMAL = MODELS = ("Linear", "GP", "CVAE", "GP-CDE amortised", "GP-CDE optimal")

SMALL = ("boston", "concrete", "energy", "winered", "yacht")
"""The sets of up to 1,600 rows."""

ROWS = {
    "boston": 455,
    "concrete": 927,
    "energy": 691,
    "kin8nm": 7373,
    "naval": 10741,
    "power": 8611,
    "protein": 41157,
    "winered": 1439,
    "winewhite": 4408,
    "yacht": 277,
}
"""Training rows of a split."""


# units


def units(preset: str) -> list[Unit]:
    """The units of "quick", "standard" or "paper"."""
    if preset == "quick":
        return [_unit(preset, "yacht", model, 0) for model in MODELS]
    if preset not in ("standard", "paper"):
        raise ValueError(f"preset must be 'quick', 'standard' or 'paper', got {preset!r}")
    return [
        _unit(preset, data, model, split)
        for data in UCI
        for model in MODELS  # one model's splits after another: they share their compiled programs
        for split in range(_splits(preset, data))
    ]


def _splits(preset: str, data: str) -> int:
    if preset == "paper":
        return 5 if data == "protein" else 20
    return 20 if data in SMALL else 5


def _unit(preset: str, data: str, model: str, split: int) -> Unit:
    settings, cost = _settings(preset, data, model)
    return Unit("uci", model, data, split, split, settings, cost)


def _settings(preset: str, data: str, model: str) -> tuple[dict[str, Any], float]:
    """All that says how a model is trained, and about how many seconds that takes."""
    if model == LINEAR:
        return {}, 0.1
    if model == NETWORK:
        return _network_settings(preset, data)
    rows, small = ROWS[data], data in SMALL
    full = small and preset != "paper"
    first, steps = _steps(preset, data, model)
    settings: dict[str, Any] = {
        "inducing": 100,
        "kernel": "rbf",
        "first_steps": first,
        "first_batch": rows if small else 1_000,
        "first_rates": [0.05, 0.005 if small else 0.002],
        "batch": rows if full else min(rows, 256),
        "gammas": [0.1, 0.1] if preset == "paper" else [0.05, 0.02],
        "nodes": 201,
    }
    cost = 1.5 + first * 2.5e-3
    if model == GP:
        return settings, cost
    settings |= {"latents": 1, "input_map": "concatenate", "starts": _starts(preset, model, full, steps)}
    if model == AMORTISED:
        settings |= {"hidden": [50, 50, 50], "expectation": "draws", "draws": 4 if full else 10}
        each = 2e-5 * settings["batch"] if full else 0.012
    else:
        settings |= {"quadrature": "gauss-hermite", "points": 100}
        each = 1.5e-4 * settings["batch"]
    return settings, cost + each * sum(how["steps"] for how in settings["starts"])


def _steps(preset: str, data: str, model: str) -> tuple[int, int]:
    """Steps without latents, and after them with latents: for the rivals of the optimal q(w), twice as many.

    Where rows are many the GP has none more: the others go on from where it ends.
    """
    more = 1 if model == OPTIMAL else 2
    if preset == "paper":
        first, steps = 2_000, 18_000
    elif preset == "quick":
        first, steps = 200, 100 * more
    elif data in SMALL:
        first, steps = 500, min(max(140_000 // ROWS[data], 120), 400) * more
    else:
        return 4_000, 480 * more
    return (first + steps, 0) if model == GP else (first, steps)


def _starts(preset: str, model: str, full: bool, steps: int) -> list[dict[str, Any]]:
    """How training goes on with latents: from the start that a model's own training bound prefers, and a flat one."""
    if model == OPTIMAL:
        start = {"noise": 0.9, "lengthscale": 0.3, "rates": [0.05, 0.005] if full else [0.03, 0.001]}
    else:
        start = {"noise": 0.5, "lengthscale": 1.0, "rates": [0.03, 0.003] if full else [0.02, 0.0005]}
    starts = [start | {"steps": steps}]
    return starts if full or preset == "paper" else [*starts, FLAT]


FLAT = {"noise": 1.0, "lengthscale": 30.0, "rates": [0.003, 0.0003], "steps": 480}
"""A start with next to no effect of w: the GP goes on as it was, with small steps, where w has nothing to add.

noise: the share of the noise left once w is known; lengthscale: that of w, over the one that makes w the size of noise.
"""


def _network_settings(preset: str, data: str) -> tuple[dict[str, Any], float]:
    grid = preset == "paper"
    batch = 128
    epochs = {"quick": 200, "standard": 2_000, "paper": 2_000}[preset]
    steps = {"quick": 1_000, "standard": 8_000 if data in SMALL else 16_000, "paper": 1_000_000}[preset]
    epochs = max(10, min(epochs, steps * batch // ROWS[data]))
    settings = {
        "architecture": "small",
        "latents": 1,
        "dropout": None if grid else 0.0,
        "learning_rate": None if grid else 0.001,
        "max_epochs": epochs,
        "patience": 300,
        "batch": batch,
        "validation": 0.2,
    }
    return settings, epochs * ROWS[data] / batch * (12 if grid else 1) * 0.5e-3


# work


class Task(NamedTuple):
    """A split in standard units; a log density in the units of y is one in standard units minus log_scale."""

    x: Inputs
    y: Float[np.ndarray, "n 1"]
    test_x: Inputs
    test_y: Float[np.ndarray, "m 1"]
    log_scale: float


def work(unit: Unit, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    """Train a model on a split, and score it on the split's test rows."""
    task = _task(unit.data, unit.split)
    about = {"rows": len(task.y), "test_rows": len(task.test_y)}
    if unit.model in (LINEAR, NETWORK):
        return _estimator(unit, task) | about
    bound, state = _trained(unit, task, tell, checkpoint)
    points = nodes(state.model.latents.dim, 0, unit.settings["nodes"])
    scores = np.asarray(log_density(state.model, state.posterior, task.test_x, task.test_y, *points))
    return {
        "log_likelihood": float(scores.mean()) - task.log_scale,
        "bound": bound - task.log_scale,
        "noise_variance": float(np.exp(np.asarray(state.model.log_noise_variance) + 2 * task.log_scale)),
    } | about


def _task(data: str, split: int) -> Task:
    """Columns that do not vary among the training rows stay as they are."""
    table = load_uci(data)
    train_rows, test_rows = table.splits[split]
    known = table.X[train_rows]
    spread = known.std(0)
    X = (table.X - known.mean(0)) / np.where(spread > 0, spread, 1.0)
    scale = float(table.y[train_rows].std())
    y = ((table.y - table.y[train_rows].mean()) / scale)[:, None]
    return Task(
        make_inputs(X[train_rows]), y[train_rows], make_inputs(X[test_rows]), y[test_rows], float(np.log(scale))
    )


def _estimator(unit: Unit, task: Task) -> dict[str, Any]:
    """The models that are estimators of their own."""
    settings = unit.settings
    if unit.model == LINEAR:
        linear = LinearGaussian().fit(task.x.dense, task.y)
        density = linear.predict_density(task.test_x.dense)
        about = {"noise_variance": float(linear.covariance_[0, 0]), "steps": 0}
    else:
        network = CVAE(
            latent_dim=settings["latents"],
            architecture=settings["architecture"],
            dropout=settings["dropout"],
            learning_rate=settings["learning_rate"],
            max_epochs=settings["max_epochs"],
            patience=settings["patience"],
            batch_size=settings["batch"],
            validation_fraction=settings["validation"],
            random_state=unit.seed,
        ).fit(task.x.dense, task.y)
        density = network.predict_density(task.test_x.dense)
        noise = float(np.exp(network.network_.log_noise_variance)) * float(network.transform_.scale[0]) ** 2
        batches = int((1 - settings["validation"]) * len(task.y)) // settings["batch"]
        about = {"noise_variance": noise, "steps": network.n_epochs_ * max(1, batches), **network.best_params_}
    scores = density.log_pdf(task.test_y)
    about["noise_variance"] *= float(np.exp(2 * task.log_scale))
    return {"log_likelihood": float(np.mean(scores)) - task.log_scale} | about


def _design(settings: dict[str, Any]) -> Design:
    """Without latents, with the optimal q(w), or with an amortised one, as the settings have it."""
    plain = Design(inference="none", inducing=settings["inducing"], kernel=settings["kernel"])
    if "latents" not in settings:
        return plain
    latent = dataclasses.replace(plain, latent_dim=settings["latents"], input_map=settings["input_map"])
    if "points" in settings:
        how = {"points": settings["points"], "rule": settings["quadrature"]}
        return dataclasses.replace(latent, inference="free-form", **how)
    how = {"expectation": settings["expectation"], "draws": settings["draws"], "hidden": tuple(settings["hidden"])}
    return dataclasses.replace(latent, inference="amortised", **how)


def _trained(unit: Unit, task: Task, tell: Tell, checkpoint: Path) -> tuple[float, State]:
    """The best bound that a start ends with, and the Gaussian process there; q(u) is at its optimum."""
    settings, design, starts = unit.settings, _design(unit.settings), unit.settings.get("starts", [])

    def trained(
        design: Design, steps: int, batch: int, rates: list[float], tell: Tell, first: Callable[[], State] | None = None
    ) -> State:
        one, two = [1.0, 1.0] if batch >= len(task.y) else settings["gammas"]
        course = Course(steps, batch, (rates[0], rates[1]), (one, two))
        return train_design(unit.seed, task.x, task.y, design, course, tell, checkpoint, first)[0]

    @functools.cache
    def without() -> State:
        """The GP, trained when it is first asked for: not at all if what comes after it has a checkpoint."""
        plain = _design({"inducing": settings["inducing"], "kernel": settings["kernel"]})
        how = settings["first_steps"], settings["first_batch"], settings["first_rates"]
        return trained(plain, *how, lambda done: tell((0.2 if starts else 1.0) * done))

    def end(place: int) -> State:
        start = starts[place]
        return trained(
            design,
            start["steps"],
            settings["batch"],
            start["rates"],
            lambda done: tell(0.2 + 0.8 * (place + done) / len(starts)),
            lambda: _with_latents(unit.seed, task, design, without(), start),
        )

    ends = [end(place) for place in range(len(starts))] or [without()]
    optimise = Trainer.create(len(task.y)), jax.random.key(unit.seed)
    ends = [optimal_posterior(*optimise, state, whole(task.x, task.y), settings["batch"]) for state in ends]
    return max(((_bound(unit.seed, state, task, settings["batch"]), state) for state in ends), key=lambda pair: pair[0])


def _with_latents(seed: int, task: Task, design: Design, plain: State, start: dict[str, Any]) -> State:
    """Latents added to a GP: its residuals are the guess of w.

    Along w, f moves by about σ_f / lengthscale: σ_f / σ_noise is the lengthscale that makes that the size of the noise.
    """
    key = jax.random.key(seed)
    rng = np.random.default_rng(entropy(key))
    rows = rng.permutation(len(task.y))[:ENOUGH]
    with scope():
        some = whole(task.x.take(rows), task.y[rows])
        trial = start["noise"], _ratio(plain) * start["lengthscale"]
        return with_latents(key, rng, design, plain, some, len(task.y), [trial])[0]


def _ratio(plain: State) -> float:
    """σ_f / σ_noise."""
    model = plain.model
    return float(np.sqrt(np.mean(model.kernel.diag(model.inducing_points)) / np.exp(model.log_noise_variance)))


def _bound(seed: int, state: State, task: Task, size: int) -> float:
    """The bound a training row, from as many batches as fit into the rows."""
    rows = np.random.default_rng(seed).permutation(len(task.y))
    size = min(size, len(rows))
    parts = []
    with scope():
        for begin in range(0, len(rows) - size + 1, size):
            some = rows[begin : begin + size]
            batch = whole(task.x.take(some), task.y[some])
            parts.append(_batch_bound(jax.random.key(begin), state, batch, jnp.asarray(float(len(rows)))))
        return float(np.mean(parts)) / len(rows)


@compiled
def _batch_bound(key: PRNGKeyArray, state: State, batch: Batch, n_data: Float[Array, ""]) -> Float[Array, ""]:
    noise = draw_noise(key, state.model, batch.y.shape[0])
    return evaluate_bound(state.model, state.posterior, batch, noise, n_data).bound


# report


def report(lines: list[Line], out: Path) -> None:
    """uci.md and uci.csv, the table; uci.png and uci.pdf, a panel for each data set. Missing units are left out."""
    header = ["data", "splits", *MODELS, f"{OPTIMAL} − {AMORTISED}", f"{OPTIMAL} − {GP}"]
    rows = [_row(lines, data) for data in UCI if any(line["data"] == data for line in lines)]
    note = (
        "Mean test log likelihood ± standard error over the splits, in the units of y; higher is better. Differences "
        "are paired: of the two models on the same split. Settings were chosen by training bounds, with test scores in "
        "view."
    )
    write_table(out, "uci", header, rows, note)
    figure = new_figure(14, 5.5)
    panels = figure.subplots(2, 5).ravel()
    for panel, data in zip(panels, UCI, strict=True):
        _panel(panel, lines, data)
    figure.suptitle("Test log likelihood (higher is better)")
    write_figure(out, "uci", figure)


def _row(lines: list[Line], data: str) -> list[str]:
    scores = {model: metric(lines, "log_likelihood", data=data, model=model) for model in MODELS}
    return [
        data,
        str(max(len(values) for values in scores.values())),
        *(with_error(values) for values in scores.values()),
        *(with_error(_differences(lines, data, OPTIMAL, other)) for other in (AMORTISED, GP)),
    ]


def _differences(lines: list[Line], data: str, one: str, two: str) -> Float[np.ndarray, " k"]:
    """One model's score minus the other's, on the splits that both have done."""
    scores: dict[str, dict[int, float]] = {one: {}, two: {}}
    for line in lines:
        if line["data"] == data and line["model"] in scores:
            scores[line["model"]][line["split"]] = line["metrics"]["log_likelihood"]
    both = sorted(scores[one].keys() & scores[two].keys())
    return np.array([scores[one][split] - scores[two][split] for split in both])


def _panel(panel: "Axes", lines: list[Line], data: str) -> None:
    """A point with an error bar for each model, from top to bottom in the order of MODELS."""
    for place, model in enumerate(MODELS):
        mean, error = mean_error(metric(lines, "log_likelihood", data=data, model=model))
        if not np.isnan(mean):
            bar = None if np.isnan(error) else error
            panel.errorbar(mean, len(MODELS) - 1 - place, xerr=bar, fmt="o", capsize=3, color=f"C{place}", markersize=5)
    named = panel.get_subplotspec()
    labels = list(MODELS[::-1]) if named is not None and named.is_first_col() else [""] * len(MODELS)
    panel.set_yticks(range(len(MODELS)), labels)
    panel.set_ylim(-0.6, len(MODELS) - 0.4)
    panel.grid(axis="x", alpha=0.3)
    panel.set_title(f"{data} ({ROWS[data]} rows)", fontsize=10)
    panel.tick_params(labelsize=8)
