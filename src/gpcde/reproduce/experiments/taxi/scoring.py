"""One unit: a model fitted to some trips, scored on test trips, drawn for two pick-ups; or the cost of a step."""

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .... import datasets
from ....inference import Geometric, Trainer, start, train, whole
from ....model import make_inputs
from ...lines import mean_error, picture
from ...names.taxi import CONDITIONS
from ...units import Tell, Unit
from .fits import FITS, Fitted, make_design, make_schedule
from .trips import Trips, load_day, load_trips, pick_up


def work(unit: Unit, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    """Fit a unit's model, score it on the test sets, and look at two of its densities."""
    settings = unit.settings
    if settings["kind"] == "scale":
        return _scale(settings, unit.seed, tell)
    tests = settings["tests"]
    trips = load_trips(tests["random"], tests["farthest"], settings["split_seed"])
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
    x = np.stack([pick_up(*condition[1:]) for condition in CONDITIONS])
    density = fitted.density((x - trips.x_units[0]) / trips.x_units[1])
    size = max(1, 2**22 // density.components().n_components)
    blocks = [density.pdf_grid(points[i : i + size]) for i in range(0, len(points), size)]
    roots = np.sqrt(np.concatenate(blocks, axis=1))
    return [picture(root.reshape(pixels, pixels), 0.0, max(float(root.max()), 1e-3)) for root in roots]


def _scale(settings: dict[str, Any], seed: int, tell: Tell) -> dict[str, Any]:
    """Milliseconds a step takes, from few rows to many: the same, since a step sees a batch."""
    x, y, real = load_day(max(settings["rows"]), seed)
    schedule, rows, times = make_schedule(settings), [], []
    for i, count in enumerate(settings["rows"]):
        inputs, outputs, key = make_inputs(x[:count]), y[:count], jax.random.key(seed)
        state = start(key, inputs, outputs, make_design(settings))
        trainer = Trainer.create(
            len(outputs), Geometric.create(*schedule.rates, 1000), Geometric.create(*schedule.gammas, 1000)
        )
        data = whole(inputs, outputs)
        state, _ = train(trainer, key, state, data, 50, schedule.batch_size)  # compiles
        _, records = train(trainer, key, state, data, settings["steps"], schedule.batch_size)
        # a chunk in the middle of all: what else the machine did meanwhile is left out
        chunks = np.diff([record.seconds for record in records]) / np.diff([record.step for record in records])
        rows.append(len(outputs))
        times.append(round(1000 * float(np.median(chunks)), 3))
        tell((i + 1) / len(settings["rows"]))
    return {"rows": rows, "ms_per_step": times, "real": real}
