"""Few-shot density estimation: handwritten characters given their class, four examples of each new one.

    y = P f([A x, w]) + N(0, σ² I),    x one-hot of 1,623 classes, A 1,623 → 30, P 784 × 400

Trained on all drawings of the background alphabets and four of each character of the others; tested on their other
16. The log likelihood (nats per pixel) is estimated by importance sampling over w and A x, with its effective sample
size. The paper does not say how many latents it has: here there are eight.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from ...datasets import Images, load_omniglot
from ...prediction import importance_log_density
from ..lines import mean_error, picture
from ..units import Tell, Unit
from .images import fit, labelled, samples
from .training import noise_variance

SETTINGS: dict[str, Any] = {
    "shots": 4,
    "latent_dim": 8,
    "input_dim": 30,
    "outputs": 400,
    "inducing": 100,
    "pixel_lengthscale": 1.0,
    "hidden": [256, 64],
    "noise": "constant",
    "noise_variance": None,
    "batch": 500,
    "rates": [0.01, 0.001],
    "gammas": [0.05, 0.05],
    "steps": 25_000,
    "test": None,
    "draws": 100,
    "fit_steps": 100,
    "shown": 120,
}

QUICK = SETTINGS | {"steps": 20, "outputs": 20, "inducing": 20, "batch": 100, "test": 30, "fit_steps": 5, "shown": 12}

FEWER = SETTINGS | {"test": 1_500, "fit_steps": 60}
"""All 10,544 test images take 20 minutes."""


def units(preset: str) -> list[Unit]:
    """The one unit of "quick", "standard" or "paper"."""
    settings = {"quick": QUICK, "standard": FEWER, "paper": SETTINGS}[preset]
    cost = {"quick": 30, "standard": 1900, "paper": 3000}[preset]
    return [Unit("omniglot", "GP-CDE", "omniglot", 0, 0, settings, cost)]


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
    """Train, score the test images, and draw some of each kind."""
    settings = unit.settings
    data = load_omniglot()
    classes = int(data.labels.max()) + 1
    train, test = few_shot(data, settings["shots"], unit.seed)
    trained = data.images[train], data.labels[train]
    state, mean = fit(settings, unit.seed, *trained, classes, lambda share: tell(0.85 * share), checkpoint)
    chosen = np.random.default_rng(unit.seed).permutation(test)[: settings["test"]]
    estimate = importance_log_density(
        state.model,
        state.posterior,
        labelled(data.labels[chosen], classes),
        data.images[chosen] - mean,
        settings["draws"],
        settings["fit_steps"],
    )
    tell(0.98)
    scores = estimate.log_density / data.images.shape[1]
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
    score, error = mean_error(scores)
    effective = estimate.effective
    return {
        "log_likelihood": score,
        "error": error,
        "test_images": len(scores),
        "effective_sample_size": {str(q): float(np.quantile(effective, q)) for q in (0.05, 0.25, 0.5, 0.75)},
        "noise_variance": noise_variance(state),
        "pictures": rows,
    }
