"""Density estimation of digits from few images: N = 2, 4, …, 512 of each class, beside a CVAE.

    y = P f([A x, w]) + N(0, σ² I),    x the one-hot label, w two-dimensional, P 784 × 50

Log likelihoods in nats per image, of all 10,000 test images and of the training images, as a mixture over
quasi-random draws of w; with σ² optimised, and fixed at one value for both models. One setting serves all N. Below, the
GP-CDE with more latents, whose likelihood is estimated by importance sampling, since draws of the prior no longer
come near an image.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ...datasets import Images, load_mnist
from ...density.components import Components
from ...estimators.cvae import CVAE, decoded
from ...model import quasi_random
from ...prediction import importance_log_density
from ..lines import mean_error
from ..names.mnist import (
    APART,
    FIXED,
    GP,
    GP_FIXED,
    GP_MIXED,
    NETWORK,
    NETWORK_FASTER,
    NETWORK_FIXED,
    NETWORK_STOPPED,
    WITHIN,
    more_latents,
)
from ..units import Tell, Unit
from .images import fit, labelled, log_density_by_draws, mixture_log_density, principal_log_density
from .training import noise_variance

CLASSES, SIZES = 10, (2, 4, 8, 16, 32, 64, 128, 256, 512)

PROCESS_SETTINGS: dict[str, Any] = {
    "latent_dim": 2,
    "input_dim": 9,
    "outputs": 50,
    "inducing": 150,
    "pixel_lengthscale": 3.0,
    "hidden": [50, 50, 50],
    "noise_variance": None,
    "batch": 256,
    "rates": [0.02, 0.002],
    "gammas": [0.1, 0.02],
    "steps": 1000,
    "draws": 4096,
    "test": None,
}

NETWORK_SETTINGS: dict[str, Any] = {
    "latent_dim": 2,
    "noise_variance": None,
    "dropout": 0.0,
    "learning_rate": 1e-3,
    "early_stopping": False,
    "batch": 128,
    "steps": 1000,
    "draws": 4096,
    "test": None,
}

SETTINGS: dict[str, dict[str, Any]] = {
    GP: PROCESS_SETTINGS,
    GP_FIXED: PROCESS_SETTINGS | {"noise_variance": FIXED},
    NETWORK: NETWORK_SETTINGS,
    NETWORK_FIXED: NETWORK_SETTINGS | {"noise_variance": FIXED},
    NETWORK_STOPPED: NETWORK_SETTINGS | {"early_stopping": True},
}

MORE_LATENTS, MORE_AT = (5, 10), (8, 64, 512)

FAIRER: dict[str, dict[str, Any]] = {
    GP_MIXED: PROCESS_SETTINGS | {"noise": "mixed"},
    NETWORK_FASTER: NETWORK_SETTINGS | {"noise_rate": 10.0},
}
FAIRER_AT = (2, 8, 64, 512)
"""Noise along P's columns too; and the CVAE with a rate of its own for log σ², which falls by rate × steps at most."""

AGAIN, SETS = (GP_MIXED, WITHIN), 3
"""What is trained on more than one set of images at `FAIRER_AT`, so that what another set would change can be told."""

PRINCIPAL = 50
PRINCIPAL_AT: dict[str, tuple[int, ...]] = {WITHIN: (8, 64, 512), APART: (512,)}
"""Latents of probabilistic PCA: one covariance for the differences from the classes' means, or one for each class; and
from how many images, more than latents."""

SHORT = {
    "quick": {"steps": 20, "draws": 64, "test": 200},
    "standard": {},
    "paper": {"steps": 20_000},
}


def units(preset: str) -> list[Unit]:
    """The units of "quick", "standard" or "paper"."""
    quick = preset == "quick"
    longer = 20 if preset == "paper" else 1
    out = []
    for size in (2,) if quick else SIZES:
        for name, settings in SETTINGS.items():
            if quick and name not in (GP, NETWORK):
                continue
            out.append(_unit(preset, name, settings, size))
    for size in (2,) if quick else FAIRER_AT:
        for name, settings in FAIRER.items():
            if preset == "standard" and name == NETWORK_FASTER:
                continue
            out.append(_unit(preset, name, settings, size))
    settings = {"components": PRINCIPAL, "test": None}
    for name, at in {}.items() if quick else PRINCIPAL_AT.items():
        out += [Unit("mnist", name, f"N={size}", 0, 0, settings, 10) for size in at]
    for dim in () if quick else MORE_LATENTS:
        for size in MORE_AT:
            settings = PROCESS_SETTINGS | SHORT[preset] | {"latent_dim": dim, "draws": 100, "fit_steps": 100}
            out.append(Unit("mnist", more_latents(dim), f"N={size}", 0, 0, settings, longer * 120))
    return out if quick else [*out, *_again(out)]


def _unit(preset: str, name: str, settings: dict[str, Any], size: int) -> Unit:
    """A model at one N; networks of the preset "paper" with its grid of dropouts and rates, twelve of them."""
    cost = {"quick": 20, "standard": 50, "paper": 1000}[preset]
    if preset == "paper" and name.startswith("CVAE"):
        settings, cost = settings | {"dropout": None, "learning_rate": None}, 12 * cost
    return Unit("mnist", name, f"N={size}", 0, 0, settings | SHORT[preset], cost)


def _again(units: list[Unit]) -> list[Unit]:
    """The same on other training sets, one model after another."""
    return [
        unit._replace(split=split, seed=split)
        for name in AGAIN
        for split in range(1, SETS)
        for unit in units
        if unit.model == name and int(unit.data.removeprefix("N=")) in FAIRER_AT
    ]


def few_of_each(data: Images, size: int, seed: int) -> Int[np.ndarray, " n"]:
    """That many training images of every class."""
    rng = np.random.default_rng(seed)
    train = np.flatnonzero(~data.test)
    return np.concatenate([rng.permutation(train[data.labels[train] == label])[:size] for label in range(CLASSES)])


def work(unit: Unit, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    """One model at one N."""
    settings = unit.settings
    data = load_mnist()
    train = few_of_each(data, int(unit.data.removeprefix("N=")), unit.seed)
    test = np.flatnonzero(data.test)
    if settings["test"] is not None:
        test = np.random.default_rng(unit.seed).permutation(test)[: settings["test"]]
    score = {"CVAE": _network, "pPCA": _principal}.get(unit.model.split()[0].rstrip(","), _process)
    scores, about = score(unit, data, train, {"test": test, "train": train}, tell, checkpoint)
    for name, values in scores.items():
        about[name], about[f"{name}_error"] = mean_error(values)
    return about


Scores = tuple[dict[str, Float[np.ndarray, " n"]], dict[str, Any]]


def _process(
    unit: Unit, data: Images, train: np.ndarray, wanted: dict[str, np.ndarray], tell: Tell, checkpoint: Path
) -> Scores:
    """The GP-CDE: log likelihoods of the wanted rows, and what else is worth knowing."""
    settings, images, labels = unit.settings, data.images, data.labels
    state, mean = fit(
        settings, unit.seed, images[train], labels[train], CLASSES, lambda share: tell(0.8 * share), checkpoint
    )
    about: dict[str, Any] = {"noise_variance": noise_variance(state)}
    if settings["latent_dim"] <= 2:
        draws = settings["draws"]
        scores = {
            name: log_density_by_draws(state, images[rows] - mean, labels[rows], CLASSES, draws)
            for name, rows in wanted.items()
        }
        return scores, about
    scores = {}
    for name, rows in wanted.items():
        estimate = importance_log_density(
            state.model,
            state.posterior,
            labelled(labels[rows], CLASSES),
            images[rows] - mean,
            settings["draws"],
            settings["fit_steps"],
        )
        scores[name] = estimate.log_density
        about[f"{name}_effective_sample_size"] = float(np.median(estimate.effective))
    return scores, about


def _principal(
    unit: Unit, data: Images, train: np.ndarray, wanted: dict[str, np.ndarray], tell: Tell, checkpoint: Path
) -> Scores:
    """Probabilistic PCA within classes, or of each class alone: log likelihoods of the wanted rows."""
    by_label = [data.images[train[data.labels[train] == label]] for label in range(CLASSES)]
    within = np.concatenate([known - known.mean(0) for known in by_label])
    scores = {name: np.empty(len(rows)) for name, rows in wanted.items()}
    for label, known in enumerate(by_label):
        covarying = known if unit.model == APART else within + known.mean(0)
        for name, rows in wanted.items():
            at = np.flatnonzero(data.labels[rows] == label)
            scores[name][at] = principal_log_density(covarying, data.images[rows[at]], unit.settings["components"])
    return scores, {}


def _network(
    unit: Unit, data: Images, train: np.ndarray, wanted: dict[str, np.ndarray], tell: Tell, checkpoint: Path
) -> Scores:
    """The CVAE: log likelihoods of the wanted rows, and what else is worth knowing."""
    settings = unit.settings
    kept = len(train) * (0.8 if settings["early_stopping"] else 1.0)
    epochs = max(1, round(settings["steps"] / max(1, kept // settings["batch"])))
    model = CVAE(
        latent_dim=settings["latent_dim"],
        architecture="images",
        noise_variance=settings["noise_variance"],
        dropout=settings["dropout"],
        learning_rate=settings["learning_rate"],
        noise_rate=settings.get("noise_rate", 1.0),
        early_stopping=settings["early_stopping"],
        patience=max(20, epochs // 10),
        max_epochs=epochs,
        batch_size=settings["batch"],
        random_state=unit.seed,
    )
    model.fit(np.eye(CLASSES)[data.labels[train]], data.images[train])
    tell(0.8)
    noise = float(np.exp(model.network_.log_noise_variance))
    w, log_weight = quasi_random(settings["draws"], settings["latent_dim"])
    scores = {name: np.empty(len(rows)) for name, rows in wanted.items()}
    for label in range(CLASSES):
        mixture = Components(log_weight[None], decoded(model, np.eye(CLASSES)[[label]], w), np.full((1, 1, 1), noise))
        for name, rows in wanted.items():
            at = np.flatnonzero(data.labels[rows] == label)
            scores[name][at] = mixture_log_density(mixture, data.images[rows[at]])
    return scores, {"noise_variance": noise, "epochs": model.n_epochs_}
