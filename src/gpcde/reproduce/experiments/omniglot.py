"""Few-shot density estimation: handwritten characters given their class, four examples of each new one.

    y = T_t (P f([A x, w]) + N(0, σ² I + τ² P Pᵀ)),    x one-hot of 1,623 classes, T_t moves an image by t (`places`)

Trained on all drawings of the background alphabets and four of each character of the others; tested on their other
16. The log likelihood (nats per pixel) is that of a mixture over quasi-random draws of w and A x, made once a class.
What the class adds to it is told by the right label against a wrong one, and by few-shot classification (see
`fewshot`). Beside it stand probabilistic PCA, which knows no classes, and Gaussians of two levels (`levels`), which do;
each of images as they are and of centred ones. f has a linear trend in A x, and a kernel that is linear in A x for
every w: w draws the same character wider or narrower, and differently for each.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ...datasets import Images, load_omniglot
from ...prediction import Nodes, Predictor
from ..lines import mean_error, picture
from ..names.omniglot import CENTRED, GP, LEVELS, principal
from ..units import Tell, Unit
from .fewshot import LogDensity, few_shot_metrics
from .images import SIDE, fit, labelled, mixture_log_density, principal_log_density, samples
from .levels import Levels
from .places import centres, log_probabilities, moved
from .training import noise_variance

SETTINGS: dict[str, Any] = {
    "shots": 4,
    "centred": True,
    "latent_dim": 4,
    "input_dim": 30,
    "outputs": 400,
    "inducing": 200,
    "mixing": "within",
    "kernel": "bilinear",
    "latent_lengthscale": 2.0,
    "hidden": [256, 64],
    "trend": "linear",
    "noise": "mixed",
    "noise_variance": None,
    "dtype": "float32",
    "batch": 500,
    "rates": [0.01, 0.001],
    "gammas": [0.05, 0.05],
    "steps": 25_000,
    "test": None,
    "episodes": {"20": 100, "5": 400},
    "nodes": 1024,
    "shown": 120,
}

QUICK = SETTINGS | {
    "steps": 20,
    "outputs": 20,
    "inducing": 20,
    "batch": 100,
    "test": 30,
    "episodes": {"5": 4},
    "nodes": 64,
    "shown": 12,
}

FEWER = SETTINGS | {"steps": 3_000}
"""25,000 steps take more than an hour on one core."""

PRINCIPAL = (32, 200, 400)
"""Latents of probabilistic PCA: few, and as many as P has columns."""

LEVEL_SETTINGS = {"rank": 30, "ridge": 1e-3}
"""Chosen on background characters alone."""


def units(preset: str) -> list[Unit]:
    """The units of "quick", "standard" or "paper"."""
    settings = {"quick": QUICK, "standard": FEWER, "paper": SETTINGS}[preset]
    cost = {"quick": 30, "standard": 900, "paper": 6000}[preset]
    known = {name: settings[name] for name in ("shots", "test")}
    told = known | {"episodes": settings["episodes"]}
    others = [
        Unit("omniglot", name + (CENTRED if centred else ""), "omniglot", 0, 0, own | {"centred": centred}, 20)
        for name, own in {
            LEVELS: told | LEVEL_SETTINGS,
            **{principal(k): known | {"components": k} for k in (PRINCIPAL[:1] if preset == "quick" else PRINCIPAL)},
        }.items()
        for centred in (False, True)
    ]
    return [Unit("omniglot", GP, "omniglot", 0, 0, settings, cost), *others]


def few_shot(data: Images, shots: int, seed: int) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " t"]]:
    """Rows to learn from (all of the background, `shots` of each new class) and the rest, to be tested on."""
    rng = np.random.default_rng(seed)
    train, test = [np.flatnonzero(~data.test)], []
    for label in np.unique(data.labels[data.test]):
        rows = rng.permutation(np.flatnonzero(data.labels == label))
        train.append(rows[:shots])
        test.append(rows[shots:])
    return np.concatenate(train), np.concatenate(test)


def work(unit: Unit, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    """Train, score the test images, tell classes apart, and draw some of each kind."""
    settings = unit.settings
    data = load_omniglot()
    train, test = few_shot(data, settings["shots"], unit.seed)
    chosen = np.random.default_rng(unit.seed).permutation(test)[: settings["test"]]
    images, log_place = data.images, np.zeros(len(chosen))
    if settings["centred"]:
        places = centres(images, SIDE)
        images, log_place = moved(images, -places, SIDE), log_probabilities(places[train], places[chosen], SIDE)
    if "components" in settings:
        scores = principal_log_density(images[train], images[chosen], settings["components"])
        return _told((scores + log_place) / images.shape[1])
    about: dict[str, Any] = {}
    if "rank" in settings:
        log_density = _two_levels(settings, images, data, train)
    else:
        log_density, about = _process(unit, images, data, train, test, tell, checkpoint)
    scores = np.empty(len(chosen))
    for label in np.unique(data.labels[chosen]):
        at = np.flatnonzero(data.labels[chosen] == label)
        scores[at] = log_density(int(label), chosen[at])
    few = few_shot_metrics(
        unit.seed, settings["episodes"], {"": data.images, "centred ": images}, data.labels, train, test, log_density
    )
    return _told((scores + log_place) / images.shape[1]) | {"few_shot": few} | about


def _two_levels(
    settings: dict[str, Any], images: Float[np.ndarray, "n p"], data: Images, train: Int[np.ndarray, " t"]
) -> LogDensity:
    """Fitted to the background, and given the known drawings of each class."""
    background = np.flatnonzero(~data.test)
    levels = Levels.fitted(images[background], data.labels[background], settings["rank"], settings["ridge"])

    def log_density(label: int, drawings: Int[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        return levels.log_density(images[train[data.labels[train] == label]], images[drawings])

    return log_density


def _process(
    unit: Unit,
    images: Float[np.ndarray, "n p"],
    data: Images,
    train: Int[np.ndarray, " t"],
    test: Int[np.ndarray, " u"],
    tell: Tell,
    checkpoint: Path,
) -> tuple[LogDensity, dict[str, Any]]:
    """The GP-CDE: its log densities, and what else is worth knowing."""
    settings, labels, classes = unit.settings, data.labels, int(data.labels.max()) + 1
    trained = images[train], labels[train]
    state, mean = fit(settings, unit.seed, *trained, classes, lambda share: tell(0.85 * share), checkpoint)
    predictor = Predictor.create(state.model, state.posterior, Nodes.for_model(state.model, cloud=settings["nodes"]))

    def log_density(label: int, drawings: Int[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        return mixture_log_density(predictor.components(labelled(np.array([label]), classes)), images[drawings] - mean)

    rng = np.random.default_rng(unit.seed)
    background, new = np.unique(labels[~data.test]), np.unique(labels[data.test])
    shown = {
        "train": rng.permutation(background)[: settings["shown"]],
        "test": rng.permutation(new)[: settings["shown"]],
    }
    kept = {"train": train, "test": test}
    rows = {}
    for name, wanted in shown.items():
        true = [images[kept[name][labels[kept[name]] == label][0]] for label in wanted]
        drawn = samples(state, mean, wanted, classes, 9 if name == "test" else 5)
        rows[name] = picture(np.concatenate([np.stack(true)[:, None], drawn], axis=1), levels=12)
    return log_density, {"noise_variance": noise_variance(state), "pictures": rows}


def _told(scores: Float[np.ndarray, " n"]) -> dict[str, Any]:
    score, error = mean_error(scores)
    return {"log_likelihood": score, "error": error, "test_images": len(scores)}
