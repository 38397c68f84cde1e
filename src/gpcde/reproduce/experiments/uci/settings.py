"""What is to be done: which models on which splits, and how each is trained."""

from typing import Any

from ....datasets import UCI
from ...names.uci import (
    AMORTISED,
    BESIDE,
    CHOSEN,
    DEFAULT,
    GP,
    GRIDS,
    LINEAR,
    MIXTURE,
    MIXTURE_CHOSEN,
    MODELS,
    NETWORK,
    OPTIMAL,
    ROWS,
)
from ...units import Unit

SMALL = ("boston", "concrete", "energy", "winered", "yacht")
"""The sets of up to 1,600 rows."""

FEW_SPLITS = 3
"""On how many splits of the small sets the networks beside the table are tried."""

WITHOUT_DENSITY = ("naval", "winered", "winewhite")
"""Sets whose y takes 51, 6 and 7 values: noise that may narrow as it likes puts spikes on them, as high as it dares."""


def units(preset: str) -> list[Unit]:
    """The units of "quick", "standard" or "paper"."""
    if preset == "quick":
        return [_unit(preset, "yacht", model, 0) for model in MODELS if model not in GRIDS]
    if preset not in ("standard", "paper"):
        raise ValueError(f"preset must be 'quick', 'standard' or 'paper', got {preset!r}")
    return [
        _unit(preset, data, model, split)
        for data in UCI
        for model in MODELS  # one model's splits after another: they share their compiled programs
        for split in range(_splits(preset, data, model))
        if model != DEFAULT or data not in WITHOUT_DENSITY
    ]


def _splits(preset: str, data: str, model: str) -> int:
    """How many of the published splits: grids take twelve times as long."""
    if preset == "paper":
        return 5 if data == "protein" else 20
    if model in BESIDE:
        return FEW_SPLITS if data in SMALL else 0
    return 20 if data in SMALL else 5


def _unit(preset: str, data: str, model: str, split: int) -> Unit:
    settings, cost = _settings(preset, data, model)
    return Unit("uci", model, data, split, split, settings, cost)


def _settings(preset: str, data: str, model: str) -> tuple[dict[str, Any], float]:
    """All that says how a model is trained, and about how many seconds that takes."""
    if model == LINEAR:
        return {}, 0.1
    if model == DEFAULT:
        return {}, 15 + min(ROWS[data] / 60, 100)
    if model in (NETWORK, CHOSEN):
        return _network_settings(preset, data, model == CHOSEN)
    if model in (MIXTURE, MIXTURE_CHOSEN):
        return _mixture_settings(preset, data, model == MIXTURE_CHOSEN)
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


def _epochs(preset: str, data: str, grid: bool) -> dict[str, int]:
    """How many a network takes at most, in batches of 128, and waits for; fewer where there are twelve of them."""
    epochs = {"quick": 200, "standard": 2_000, "paper": 2_000}[preset]
    steps = {"quick": 1_000, "standard": 8_000 if data in SMALL else 16_000, "paper": 1_000_000}[preset]
    short = grid and preset == "standard"
    steps = 3_000 if short else steps
    return {"max_epochs": max(10, min(epochs, steps * 128 // ROWS[data])), "patience": 150 if short else 300}


def _mixture_settings(preset: str, data: str, grid: bool) -> tuple[dict[str, Any], float]:
    """Five components, three layers of 50, early-stopped; with the paper's grid, or with one rate and weight decay."""
    epochs = _epochs(preset, data, grid)
    settings = {
        "components": 5,
        "hidden": [50, 50, 50],
        "dropout": None if grid else 0.0,
        "learning_rate": None if grid else 0.001,
        "weight_decay": 0.0 if grid else 0.01,
        "batch": 128,
        "validation": 0.2,
    }
    return settings | epochs, epochs["max_epochs"] * ROWS[data] / 128 * (12 if grid else 1) * 0.7e-3


def _network_settings(preset: str, data: str, grid: bool) -> tuple[dict[str, Any], float]:
    """Early-stopped; with the paper's grid of dropouts and rates, or one of each."""
    batch, epochs = 128, _epochs(preset, data, grid)
    settings = {
        "architecture": "small",
        "latents": 1,
        "dropout": None if grid else 0.0,
        "learning_rate": None if grid else 0.001,
        "batch": batch,
        "validation": 0.2,
    }
    if data in SMALL or grid:  # log σ² falls by rate × steps at most, which is far enough where rows are many
        settings["noise_rate"] = 10.0
    return settings | epochs, epochs["max_epochs"] * ROWS[data] / batch * (12 if grid else 1) * (
        1e-3 if grid else 0.5e-3
    )
