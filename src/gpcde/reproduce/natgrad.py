"""Why natural gradients: a GP-LVM of 100 handwritten ones, trained three ways.

    y = f(w) + N(0, σ² I),   w one-dimensional,   q(w_n) Gaussian, each image's own,   no inputs, no minibatches

    analytic           q(u) at its optimum in every step (a natural-gradient step of size 1)
    natural gradient   steps of size 0.1
    Adam               q(u) optimised like everything else, with step size 0.001

All three start from the same model; kernel, noise, inducing inputs and q(w) are optimised by Adam in all three. The
test log likelihood is that of the ones of the test set, in nats per pixel.
"""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._initialise import Design, start
from .._inputs import make_inputs
from .._posterior import Shared, Statistics
from .._precision import scope
from .._predict import log_density, predict
from .._quadrature import evenly_spaced
from .._train import State, Trainer
from ..datasets import load_mnist
from ._report import new_figure, write_figure, write_table
from ._run import Tell
from ._training import Course, train_design
from ._units import Line, Unit, picture, unpicture

MODELS = {"analytic": 1.0, "natural gradient": 0.1, "Adam": 0.1}
"""The three ways, and their natural-gradient steps (which Adam does not take)."""

PAPER = {"analytic": 1.02, "natural gradient": 1.02, "Adam": -0.13}

STEPS = {"quick": 60, "standard": 10_000, "paper": 50_000}


def units(preset: str) -> list[Unit]:
    steps = STEPS[preset]
    settings = {"images": 100, "inducing": 20, "steps": steps, "rate": 0.001, "test": 100 if preset == "quick" else 0}
    return [
        Unit("natgrad", name, "ones", 0, 0, settings | {"gamma": gamma}, cost=8 + 0.006 * steps)
        for name, gamma in MODELS.items()
    ]


def work(unit: Unit, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    """One of the three."""
    settings = unit.settings
    train, test = _ones(settings["images"], unit.seed)
    test = test[: settings["test"] or None]
    x = make_inputs(rows=len(train))
    design = Design(inference="gaussian", latent_dim=1, inducing=settings["inducing"], expectation="closed", trials=1)
    first = _untaught(start(jax.random.key(unit.seed), x, train, design), unit.model)
    rates = settings["rate"], settings["rate"]
    course = Course(settings["steps"], len(train), rates, (settings["gamma"], settings["gamma"]))
    state, records = train_design(unit.seed, x, train, design, course, tell, checkpoint, first)
    nodes, log_weight = evenly_spaced(401, 1)
    scores = np.asarray(log_density(state.model, state.posterior, make_inputs(rows=len(test)), test, nodes, log_weight))
    pixels = train.shape[1]
    return {
        "log_likelihood": float(scores.mean() / pixels),
        "error": float(scores.std(ddof=1) / len(scores) ** 0.5 / pixels),
        "noise_variance": float(state.model.noise_variance),
        "step": [r.step for r in records],
        "bound": [r.bound / pixels for r in records],
        "manifold": picture(_manifold(state), levels=32),
    }


def _ones(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    digits = load_mnist()
    ones = np.flatnonzero((digits.labels == 1) & ~digits.test)
    chosen = np.random.default_rng(seed).permutation(ones)[:count]
    return digits.images[chosen], digits.images[(digits.labels == 1) & digits.test]


def _untaught(state: State, model: str) -> State:
    """The start that all three share: q(u) at the prior, as one who optimises it by Adam would begin."""
    inducing, outputs = len(state.model.inducing_points), state.model.mixing.shape[0]
    with scope():
        if model == "Adam":
            posterior: Statistics | Shared = Shared(jnp.zeros((inducing, outputs)), jnp.eye(inducing))
        else:
            posterior = Statistics.prior(inducing, outputs)
        model_ = eqx.tree_at(lambda m: m.log_noise_variance, state.model, jnp.asarray(np.log(0.1)))
        value = None if state.local is None else state.local.value
        return Trainer.create(1).init(model_, posterior, value)


def _manifold(state: State) -> np.ndarray:
    """The mean image at latents along the line."""
    w = np.linspace(-2, 2, 15)[:, None]
    mixture = predict(state.model, state.posterior, make_inputs(rows=1), w, np.zeros(len(w)))
    return np.asarray(mixture.mean[0]).reshape(-1, 28, 28)


def report(lines: list[Line], out: Path) -> None:
    """The table, the training curves in three ranges, and the mean images along the latent."""
    by = {line["model"]: line["metrics"] for line in lines}
    found = [name for name in MODELS if name in by]
    rows = [
        [
            name,
            f"{by[name]['log_likelihood']:.3f} ± {by[name]['error']:.3f}",
            f"{PAPER[name]:.2f}",
            f"{by[name]['bound'][-1]:.3f}",
            f"{by[name]['noise_variance']:.4f}",
        ]
        for name in found
    ]
    header = ["q(u)", "test log likelihood (nats/pixel)", "the paper", "bound (nats/pixel)", "σ²"]
    write_table(out, "natgrad", header, rows)
    if not found:
        return
    figure = new_figure(12, 3.5)
    best = max(by[name]["bound"][-1] for name in found)
    worst = min(by[name]["bound"][-1] for name in found)
    gap = max(best - worst, 0.02)
    for axis, low in zip(figure.subplots(1, 3), (None, worst - 0.5 * gap, best - 0.1 * gap), strict=True):
        for name in found:
            axis.plot(by[name]["step"], by[name]["bound"], label=name)
        if low is not None:
            axis.set_ylim(low, best + 0.1 * (best - low))
        axis.set_xlabel("step")
    figure.axes[0].set_ylabel("bound, nats per pixel")
    figure.axes[0].legend()
    write_figure(out, "natgrad_curves", figure)
    figure = new_figure(12, 1.1 * len(found))
    for axis, name in zip(np.atleast_1d(figure.subplots(len(found), 1)), found, strict=True):
        images = unpicture(by[name]["manifold"])
        axis.imshow(np.concatenate(list(images), axis=1), cmap="gray_r", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
        axis.set_ylabel(name, fontsize=7)
    write_figure(out, "natgrad_manifold", figure)
