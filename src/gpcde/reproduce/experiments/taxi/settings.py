"""What is to be done: which models on how many rows, and how each is trained."""

import math
from typing import Any

from ...names.taxi import BENT, COMPONENTS, DAY, DEFAULT, FREE_FORM, LOCAL, MODELS, PRODUCT, SIZES, STOPPED, WARPED
from ...units import Unit

SPLIT_SEED = 2018
"""Of the test sets and the order of the training rows: the same for every model and size."""

QUICK_MODELS = ("U-KDE", "C-KDE", "MDN-5", f"MDN-5{STOPPED}", "GP-LVM", "GP", "GP-CDE", WARPED)


def units(preset: str) -> list[Unit]:
    """The models and sizes of a preset: "quick", "standard" or "paper"."""
    if preset not in ("quick", "standard", "paper"):
        raise ValueError(f'preset must be "quick", "standard" or "paper", got {preset!r}')
    if preset == "quick":
        return [_unit(model, "300", preset) for model in QUICK_MODELS]
    # the longest first, so that no core is left idle at the end
    sizes = ("all", "5K", "1K")
    wanted = [(model, size) for size in sizes for model in reversed(MODELS)]
    return [
        _scale_unit(preset),
        *(_unit(model, size, preset) for model, size in wanted if model != FREE_FORM or preset != "quick"),
    ]


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
    return Unit("taxi", "GP-CDE", DAY, 0, 0, settings, 60.0)


SECONDS: dict[str, tuple[float, float, float]] = {
    "U-KDE": (8, 10, 40),
    "C-KDE": (8, 9, 10),
    LOCAL: (8, 9, 10),
    PRODUCT: (15, 30, 90),
    **{f"MDN-{k}{kind}": (20, 25, 60) for k in COMPONENTS for kind in ("", STOPPED)},
    "GP-LVM": (30, 40, 60),
    "GP": (20, 20, 30),
    "GP-CDE": (40, 60, 120),
    FREE_FORM: (80, 100, 130),
    BENT: (60, 80, 180),
    WARPED: (60, 130, 670),
    DEFAULT: (50, 150, 200),
}
"""About how long a unit takes on one core, for 1K, 5K and all rows."""


def _recipe(model: str, size: str, preset: str) -> tuple[str, dict[str, Any]]:
    """The kind of a model, and its settings: all that its result depends on."""
    if model == "U-KDE":
        return "kde", {"options": {}}
    if model == "C-KDE":
        return "neighbours", {"options": {"method": "neighbours", "n_neighbors": 50}}
    if model == LOCAL:
        return "neighbours", {"options": {"method": "neighbours_cv", "n_neighbors": 50}}
    if model == PRODUCT:
        return "product", {"options": {"method": "cv_ml"}}
    if model.startswith("MDN"):
        return "mdn", {"options": _mdn_recipe(model, size, preset)}
    if model == DEFAULT:
        return "gpcde", {"options": {}}
    if model == BENT:
        steps = {"300": 100, "1K": 1000, "5K": 1000, "all": 3000}[size] * (5 if preset == "paper" else 1)
        options = {"latent_dim": 2, "inference": "free-form", "input_map": "bend", "max_steps": steps}
        return "gpcde", {"options": options}
    return "design", _latent_recipe(model, size, preset)


def _mdn_recipe(model: str, size: str, preset: str) -> dict[str, Any]:
    """Three layers of 50 units; enough epochs for about 10,000 steps, or as many as held-out rows want."""
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
    """The models with a schedule of their own: the paper's three, and the warp."""
    quick, paper = preset == "quick", preset == "paper"
    inducing = {"300": 20, "1K": 100, "5K": 200, "all": 200}[size]
    steps = 60 if quick else 20_000 if paper else {"1K": 2_000, "5K": 3_000, "all": 4_000}[size]
    course = {"steps": steps, "batch_size": 128 if quick else 256, "rates": [0.01, 0.001], "gammas": [0.05, 0.05]}
    design: dict[str, Any] = {"latent_dim": 2, "inducing": inducing, "kernel": "rbf", "trials": 1}
    if model == "GP":
        return {"design": {**design, "inference": "none", "latent_dim": 0}, "course": course}
    if model == WARPED:
        return _warp_recipe(size, preset)
    latents: dict[str, Any] = {"inference": "amortised", "expectation": "draws", "draws": 1}
    if model == FREE_FORM:
        latents = {"inference": "free-form", "points": 8}
    return {"design": {**design, **latents}, "course": course, "inputs": model != "GP-LVM"}


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
