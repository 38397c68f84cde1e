"""Few-shot density estimation: handwritten characters given their class, four examples of each new one.

    y = P f([A x, w]) + N(0, σ² I),    x one-hot of 1,623 classes, A 1,623 → 30, P 784 × 400

Trained on all drawings of the background alphabets and four of each character of the others; tested on their other
16. The log likelihood (nats per pixel) is estimated by importance sampling over w and A x, with its effective sample
size. What the class adds to it is told by the right label against a wrong one, and by few-shot classification (see
`fewshot`); beside it, probabilistic PCA, which knows no classes. The paper does not say how many latents it has: here
there are two, f has a linear trend in A x, and the noise is σ² I + τ² P Pᵀ.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ...datasets import Images, load_omniglot
from ...prediction import Nodes, Predictor, importance_log_density
from ..lines import mean_error, picture
from ..names.omniglot import GP, principal
from ..units import Tell, Unit
from .fewshot import few_shot_metrics
from .images import fit, labelled, mixture_log_density, principal_log_density, samples
from .training import noise_variance

SETTINGS: dict[str, Any] = {
    "shots": 4,
    "latent_dim": 2,
    "input_dim": 30,
    "outputs": 400,
    "inducing": 100,
    "pixel_lengthscale": 1.0,
    "hidden": [256, 64],
    "trend": "linear",
    "noise": "mixed",
    "noise_variance": None,
    "batch": 500,
    "rates": [0.01, 0.001],
    "gammas": [0.05, 0.05],
    "steps": 25_000,
    "test": None,
    "draws": 100,
    "fit_steps": 100,
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
    "fit_steps": 5,
    "episodes": {"5": 4},
    "nodes": 64,
    "shown": 12,
}

FEWER = SETTINGS | {"steps": 1_500, "outputs": 200, "test": 300, "fit_steps": 30, "episodes": {"20": 40, "5": 160}}
"""All 10,544 test images take 20 minutes, 25,000 steps with P 784 × 400 more than an hour on one core."""

PRINCIPAL = (32, 200, 400)
"""Latents of probabilistic PCA: as many as w and A x have together, and as many as P has columns."""


def units(preset: str) -> list[Unit]:
    """The units of "quick", "standard" or "paper"."""
    settings = {"quick": QUICK, "standard": FEWER, "paper": SETTINGS}[preset]
    cost = {"quick": 30, "standard": 600, "paper": 6000}[preset]
    known = {name: settings[name] for name in ("shots", "test")}
    blind = [
        Unit("omniglot", principal(k), "omniglot", 0, 0, known | {"components": k}, 5)
        for k in (PRINCIPAL[:1] if preset == "quick" else PRINCIPAL)
    ]
    return [Unit("omniglot", GP, "omniglot", 0, 0, settings, cost), *blind]


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
    classes = int(data.labels.max()) + 1
    train, test = few_shot(data, settings["shots"], unit.seed)
    chosen = np.random.default_rng(unit.seed).permutation(test)[: settings["test"]]
    if "components" in settings:
        scores = principal_log_density(data.images[train], data.images[chosen], settings["components"])
        return _told(scores / data.images.shape[1])
    trained = data.images[train], data.labels[train]
    state, mean = fit(settings, unit.seed, *trained, classes, lambda share: tell(0.85 * share), checkpoint)
    estimate = importance_log_density(
        state.model,
        state.posterior,
        labelled(data.labels[chosen], classes),
        data.images[chosen] - mean,
        settings["draws"],
        settings["fit_steps"],
    )
    tell(0.95)
    predictor = Predictor.create(state.model, state.posterior, Nodes.for_model(state.model, cloud=settings["nodes"]))

    def log_density(label: int, drawings: Int[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        mixture = predictor.components(labelled(np.array([label]), classes))
        return mixture_log_density(mixture, data.images[drawings] - mean)

    told = few_shot_metrics(unit.seed, settings["episodes"], data.images, data.labels, train, test, log_density)
    tell(0.98)
    rng = np.random.default_rng(unit.seed)
    background, new = np.unique(data.labels[~data.test]), np.unique(data.labels[data.test])
    shown = {
        "train": rng.permutation(background)[: settings["shown"]],
        "test": rng.permutation(new)[: settings["shown"]],
    }
    kept = {"train": train, "test": test}
    rows = {}
    for name, labels in shown.items():
        true = [data.images[kept[name][data.labels[kept[name]] == label][0]] for label in labels]
        drawn = samples(state, mean, labels, classes, 9 if name == "test" else 5)
        rows[name] = picture(np.concatenate([np.stack(true)[:, None], drawn], axis=1), levels=12)
    effective = estimate.effective
    return _told(estimate.log_density / data.images.shape[1]) | {
        "few_shot": told,
        "effective_sample_size": {str(q): float(np.quantile(effective, q)) for q in (0.05, 0.25, 0.5, 0.75)},
        "noise_variance": noise_variance(state),
        "pictures": rows,
    }


def _told(scores: Float[np.ndarray, " n"]) -> dict[str, Any]:
    score, error = mean_error(scores)
    return {"log_likelihood": score, "error": error, "test_images": len(scores)}
