"""Training a Gaussian process on a split, without latents and then with them."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ....datasets import Table
from ....inference import Batch, Design, State, Trainer, draw, evaluate_bound, optimal_posterior, whole
from ....inference.start import ENOUGH, with_latents
from ....model import Inputs, make_inputs
from ....runtime.compilation import compiled
from ....runtime.precision import scope
from ....runtime.randomness import entropy
from ...units import Tell, Unit
from ..training import Schedule, train_design


class Task(NamedTuple):
    """A split in standard units; a log density in the units of y is one in standard units minus log_scale."""

    x: Inputs
    y: Float[np.ndarray, "n 1"]
    test_x: Inputs
    test_y: Float[np.ndarray, "m 1"]
    log_scale: float


def standardised(table: Table, split: int) -> Task:
    """A split in the units of its training rows; columns that do not vary among these stay as they are."""
    train_rows, test_rows = table.splits[split]
    known = table.X[train_rows]
    spread = known.std(0)
    X = (table.X - known.mean(0)) / np.where(spread > 0, spread, 1.0)
    scale = float(table.y[train_rows].std())
    y = ((table.y - table.y[train_rows].mean()) / scale)[:, None]
    return Task(
        make_inputs(X[train_rows]), y[train_rows], make_inputs(X[test_rows]), y[test_rows], float(np.log(scale))
    )


def trained(unit: Unit, task: Task, tell: Tell, checkpoint: Path) -> tuple[float, State]:
    """The best bound that a start ends with, and the Gaussian process there; q(u) is at its optimum."""
    settings, design, starts = unit.settings, _design(unit.settings), unit.settings.get("starts", [])

    def run(
        design: Design, steps: int, batch: int, rates: list[float], tell: Tell, first: Callable[[], State] | None = None
    ) -> State:
        one, two = [1.0, 1.0] if batch >= len(task.y) else settings["gammas"]
        schedule = Schedule(steps, batch, (rates[0], rates[1]), (one, two))
        return train_design(unit.seed, task.x, task.y, design, schedule, tell, checkpoint, first)[0]

    @functools.cache
    def without() -> State:
        """The GP, trained when it is first asked for: not at all if what comes after it has a checkpoint."""
        plain = _design({"inducing": settings["inducing"], "kernel": settings["kernel"]})
        how = settings["first_steps"], settings["first_batch"], settings["first_rates"]
        return run(plain, *how, lambda done: tell((0.2 if starts else 1.0) * done))

    def end(place: int) -> State:
        start = starts[place]
        return run(
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
    return max(((bound(unit.seed, state, task, settings["batch"]), state) for state in ends), key=lambda pair: pair[0])


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
    return float(np.sqrt(np.mean(model.kernel.diag(model.inducing_points)) / model.noise_variance))


def bound(seed: int, state: State, task: Task, size: int) -> float:
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
    draws = draw(key, state.model, batch.y.shape[0])
    return evaluate_bound(state.model, state.posterior, batch, draws, n_data).bound
