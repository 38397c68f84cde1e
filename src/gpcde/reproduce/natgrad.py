"""Why natural gradients: a GP-LVM of 100 handwritten ones, trained four ways.

    y = f(w) + N(0, σ² I),   w one-dimensional,   q(w_n) Gaussian, each image's own,   no inputs, no minibatches

    analytic           q(u) at its optimum in every step (a natural-gradient step of size 1)
    natural gradient   steps of size 0.1
    Adam, whitened     q(v), u = Lz v, optimised like everything else, with step size 0.001
    Adam               the same of q(u) = N(m, S) itself

Kernel, noise, inducing inputs and q(w) are optimised by Adam in all four, from the same start: q(u) at the prior, and
the means of q(w) either random or the images' first principal component. The test log likelihood is that of the ones of
the test set, in nats per pixel.
"""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ..datasets import load_mnist
from ..inference.bound import Batch, Model, draw_noise, evaluate_bound, whole
from ..inference.forms import inverse_cholesky
from ..inference.posterior import Shared, Statistics
from ..inference.start import Design, start
from ..inference.training import State, Trainer
from ..model.inputs import make_inputs
from ..model.quadrature import evenly_spaced
from ..prediction.predictor import log_density, predict
from ..runtime.compilation import compiled
from ..runtime.precision import scope
from ._report import mean_error, new_figure, with_error, write_figure, write_table
from ._run import Tell
from ._training import Course, train_design
from ._units import Line, Unit, picture, unpicture

MODELS = {"analytic": 1.0, "natural gradient": 0.1, "Adam, whitened": 0.1, "Adam": 0.1}
"""The four ways, and their natural-gradient steps (which Adam does not take)."""

PAPER = {"analytic": 1.02, "natural gradient": 1.02, "Adam": -0.13}

STARTS = ("random", "principal")

STEPS, SEEDS = {"quick": 60, "standard": 10_000, "paper": 50_000}, {"quick": 1, "standard": 3, "paper": 10}

CHUNK = 50
"""Steps between two points of a curve."""


def units(preset: str) -> list[Unit]:
    steps = STEPS[preset]
    settings = {"images": 100, "inducing": 20, "steps": steps, "rate": 0.001, "test": 100 if preset == "quick" else 0}
    return [
        Unit("natgrad", name, begin, seed, seed, settings | {"gamma": gamma}, cost=5 + 0.003 * steps)
        for begin in STARTS
        for seed in range(SEEDS[preset] if begin == "random" else 1)
        for name, gamma in MODELS.items()
        if preset != "quick" or begin == "random"
    ]


def work(unit: Unit, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    """One of the four."""
    settings = unit.settings
    train, test = _ones(settings["images"], 0)
    test = test[: settings["test"] or None]
    x = make_inputs(rows=len(train))
    design = Design(inference="gaussian", latent_dim=1, inducing=settings["inducing"], expectation="closed", trials=1)

    def first() -> State:
        return _first(unit, start(jax.random.key(unit.seed), x, train, design))

    pixels = train.shape[1]
    if unit.model == "Adam":
        state, curve = _plain(first(), whole(x, train), settings["steps"], settings["rate"], tell)
    else:
        rates = settings["rate"], settings["rate"]
        course = Course(settings["steps"], len(train), rates, (settings["gamma"], settings["gamma"]))
        state, records = train_design(unit.seed, x, train, design, course, tell, checkpoint, first)
        curve = [(r.step, r.bound) for r in records]
    nodes, log_weight = evenly_spaced(401, 1)
    scores = np.asarray(log_density(state.model, state.posterior, make_inputs(rows=len(test)), test, nodes, log_weight))
    mean, error = mean_error(scores / pixels)
    return {
        "log_likelihood": mean,
        "error": error,
        "noise_variance": float(np.exp(state.model.log_noise_variance)),
        "step": [step for step, _ in curve],
        "bound": [round(bound / pixels, 5) for _, bound in curve],
        "manifold": picture(_manifold(state), levels=32),
    }


def _ones(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    digits = load_mnist()
    ones = np.flatnonzero((digits.labels == 1) & ~digits.test)
    chosen = np.random.default_rng(seed).permutation(ones)[:count]
    return digits.images[chosen], digits.images[(digits.labels == 1) & digits.test]


def _first(unit: Unit, state: State) -> State:
    """The start that all four share, as one who knows nothing of q(u) would begin."""
    inducing, outputs = len(state.model.inducing_points), state.model.mixing.shape[0]
    assert state.local is not None
    with scope():
        posterior: Statistics | Shared = Statistics.prior(inducing, outputs)
        if unit.model.startswith("Adam"):
            posterior = Shared(jnp.zeros((inducing, outputs)), jnp.eye(inducing))
        noise = jnp.asarray(np.log(0.1))
        model = eqx.tree_at(lambda m: m.log_noise_variance, state.model, noise)
        local = np.array(state.local.value)
        if unit.data == "random":
            local[:, 0] = np.random.default_rng(unit.seed).standard_normal(len(local))
            local[:, 1] = 0.0
        return Trainer.create(1).init(model, posterior, jnp.asarray(local))


Parameters = tuple[Model, Shared, Float[Array, "n p"]]


def _whitened(model: Model, q: Shared) -> Shared:
    """q(u) = N(m, L Lᵀ) as q(v), v = Lz⁻¹ u."""
    whitener = inverse_cholesky(model.gram())
    return Shared(whitener @ q.mean, whitener @ jnp.tril(q.root))


@compiled
def _adam_chunk(
    parameters: Parameters, adam: optax.OptState, data: Batch, rate: Float[Array, ""]
) -> tuple[Parameters, optax.OptState, Float[Array, " t"]]:
    """Steps of Adam on everything, m and S among it, and the bounds on the way."""
    n_data = data.y.shape[0]
    noise = draw_noise(jax.random.key(0), parameters[0], n_data)  # of the closed form: none

    def bound(parameters: Parameters) -> Float[Array, ""]:
        model, q, local = parameters
        return evaluate_bound(model, _whitened(model, q), data, noise, n_data, local).bound

    def step(carry: tuple[Parameters, optax.OptState], _: None) -> tuple[tuple[Parameters, optax.OptState], Array]:
        parameters, adam = carry
        value, gradient = jax.value_and_grad(bound)(parameters)
        updates, adam = optax.scale_by_adam().update(gradient, adam)
        return (jax.tree.map(lambda p, u: p + rate * u, parameters, updates), adam), value

    (parameters, adam), bounds = jax.lax.scan(step, (parameters, adam), None, CHUNK)
    return parameters, adam, bounds


def _plain(first: State, data: Batch, steps: int, rate: float, tell: Tell) -> tuple[State, list[tuple[int, float]]]:
    """Adam on m and S themselves."""
    assert first.local is not None
    assert isinstance(first.posterior, Shared)
    with scope():
        root = jnp.linalg.cholesky(first.model.gram())
        parameters: Parameters = (first.model, Shared(first.posterior.mean, root), first.local.value)
        adam, curve = optax.scale_by_adam().init(parameters), []
        for done in range(CHUNK, steps + 1, CHUNK):
            parameters, adam, bounds = _adam_chunk(parameters, adam, data, jnp.asarray(rate))
            curve.append((done, float(bounds.mean()) / len(data.y)))
            tell(done / steps)
        model, q, local = parameters
        return Trainer.create(1).init(model, _whitened(model, q), local), curve


def _manifold(state: State) -> np.ndarray:
    """The mean image at latents along the line."""
    w = np.linspace(-2, 2, 15)[:, None]
    mixture = predict(state.model, state.posterior, make_inputs(rows=1), w, np.zeros(len(w)))
    return np.asarray(mixture.mean[0]).reshape(-1, 28, 28)


def report(lines: list[Line], out: Path) -> None:
    """The table, the training curves in three ranges, and the mean images along the latent."""
    rows = []
    for name in MODELS:
        row = [name]
        for begin in STARTS:
            chosen = [line["metrics"] for line in lines if line["model"] == name and line["data"] == begin]
            row += [with_error(np.array([m["log_likelihood"] for m in chosen]))]
            row += [with_error(np.array([m["bound"][-1] for m in chosen]))]
        rows.append([*row, f"{PAPER[name]:.2f}" if name in PAPER else "–"])
    header = ["q(u)", "random start: test", "bound", "principal start: test", "bound", "the paper, test"]
    note = "Nats per pixel; ± is the standard error over random starts."
    write_table(out, "natgrad", header, rows, note)
    shown = {line["model"]: line["metrics"] for line in lines if line["data"] == "random" and line["split"] == 0}
    if shown:
        _curves({name: shown[name] for name in MODELS if name in shown}, out)


def _curves(by: dict[str, dict[str, Any]], out: Path) -> None:
    figure = new_figure(12, 3.5)
    ends = [metrics["bound"][-1] for metrics in by.values()]
    best, gap = max(ends), max(max(ends) - min(ends), 0.02)
    for axis, low in zip(figure.subplots(1, 3), (None, best - 1.5, best - 2 * gap), strict=True):
        for name, metrics in by.items():
            axis.plot(metrics["step"], metrics["bound"], label=name)
        if low is not None:
            axis.set_ylim(low, best + 0.1 * (best - low))
        axis.set_xlabel("step")
    figure.axes[0].set_ylabel("bound, nats per pixel")
    figure.axes[0].legend()
    write_figure(out, "natgrad_curves", figure)
    figure = new_figure(12, 1.1 * len(by))
    for axis, (name, metrics) in zip(np.atleast_1d(figure.subplots(len(by), 1)), by.items(), strict=True):
        axis.imshow(np.concatenate(list(unpicture(metrics["manifold"])), axis=1), cmap="gray_r", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
        axis.set_ylabel(name, fontsize=7)
    write_figure(out, "natgrad_manifold", figure)
