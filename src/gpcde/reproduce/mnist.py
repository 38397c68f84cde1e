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
from scipy.special import logsumexp

from ..datasets import Images, load_mnist
from ..estimators.cvae import CVAE, decoded
from ..model.latents import LOG_2PI
from ..model.quadrature import quasi_random
from ..prediction.importance import importance_log_density
from ._images import fit, labelled, log_density_by_draws
from ._report import mean_error, new_figure, write_figure, write_table
from ._run import Tell
from ._units import Line, Unit

CLASSES, SIZES = 10, (2, 4, 8, 16, 32, 64, 128, 256, 512)

FIXED = 0.1
"""The fixed σ²: what the paper's CVAE columns imply."""

PAPER: dict[int, tuple[float, ...]] = {
    2: (-129.72, 180.97, -1296.63, 956.39, 0.01378, 161.9, 242.2, 74.01, 130.4, 0.0303),
    4: (-60.03, 178.22, -759.18, 956.26, 0.01364, 195.2, 254.2, 86.59, 160.3, 0.0310),
    8: (-31.37, 176.76, -616.47, 949.83, 0.01358, 234.1, 269.8, 124.6, 168.2, 0.0312),
    16: (-15.50, 173.34, -497.15, 924.11, 0.01382, 290.1, 305.8, 141.5, 163.5, 0.0303),
    32: (-1.04, 161.10, -382.20, 800.03, 0.01577, 452.7, 443.0, 131.9, 131.7, 0.0322),
    64: (18.03, 130.78, -227.06, 530.40, 0.02348, 545.2, 515.7, 141.2, 114.0, 0.0342),
    128: (41.94, 97.23, 76.15, 399.78, 0.02959, 508.3, 447.0, 93.6, 89.1, 0.0364),
    256: (52.17, 76.18, 218.08, 325.72, 0.03272, 606.2, 545.0, 108.1, 105.4, 0.0378),
    512: (54.48, 65.30, 244.88, 286.38, 0.03407, 606.7, 512.0, 124.2, 120.7, 0.0388),
}
"""CVAE, σ² fixed: test, train; optimised: test, train, σ²; GP-CDE, fixed: test, train; optimised: test, train, σ²."""

GP: dict[str, Any] = {
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

NETWORK: dict[str, Any] = {
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

KINDS: dict[str, dict[str, Any]] = {
    "GP-CDE": GP,
    "GP-CDE fixed": GP | {"noise_variance": FIXED},
    "CVAE": NETWORK,
    "CVAE fixed": NETWORK | {"noise_variance": FIXED},
    "CVAE early stopped": NETWORK | {"early_stopping": True},
}

MORE_LATENTS, MORE_AT = (5, 10), (8, 64, 512)

SHORT = {
    "quick": {"steps": 20, "draws": 64, "test": 200},
    "standard": {},
    "paper": {"steps": 20_000},
}


def units(preset: str) -> list[Unit]:
    quick = preset == "quick"
    grid = {"dropout": None, "learning_rate": None} if preset == "paper" else {}
    longer = 20 if preset == "paper" else 1
    out = []
    for size in (2,) if quick else SIZES:
        for name, settings in KINDS.items():
            if quick and name not in ("GP-CDE", "CVAE"):
                continue
            own = grid if name.startswith("CVAE") else {}
            cost = 20 if quick else 80 if name.startswith("GP") else 50
            out.append(Unit("mnist", name, f"N={size}", 0, 0, settings | own | SHORT[preset], longer * cost))
    for dim in () if quick else MORE_LATENTS:
        for size in MORE_AT:
            settings = GP | SHORT[preset] | {"latent_dim": dim, "draws": 100, "fit_steps": 100}
            out.append(Unit("mnist", f"GP-CDE, {dim} latents", f"N={size}", 0, 0, settings, longer * 120))
    return out


def few_of_each(data: Images, size: int, seed: int) -> Int[np.ndarray, " n"]:
    """So many training images of every class."""
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
    score = _network if unit.model.startswith("CVAE") else _process
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
    about: dict[str, Any] = {"noise_variance": float(np.exp(state.model.log_noise_variance))}
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
        mean = decoded(model, np.eye(CLASSES)[[label]], w)[0]
        for name, rows in wanted.items():
            at = np.flatnonzero(data.labels[rows] == label)
            scores[name][at] = _isotropic(data.images[rows[at]], log_weight, mean, noise)
    return scores, {"noise_variance": noise, "epochs": model.n_epochs_}


def _isotropic(
    y: Float[np.ndarray, "n p"], log_weight: Float[np.ndarray, " k"], mean: Float[np.ndarray, "k p"], variance: float
) -> Float[np.ndarray, " n"]:
    """log sum_k π_k N(y | mean_k, variance I)."""
    squares = (y**2).sum(1)[:, None] - 2 * y @ mean.T + (mean**2).sum(1)
    return logsumexp(log_weight - 0.5 * squares / variance, axis=1) - 0.5 * y.shape[1] * (LOG_2PI + np.log(variance))


def report(lines: list[Line], out: Path) -> None:
    """The whole table beside the paper's, what more latents add, and the likelihoods against N."""
    by = {(line["model"], int(line["data"].removeprefix("N="))): line["metrics"] for line in lines}
    sizes = sorted({size for _, size in by})
    header = ["N"]
    for name in KINDS:
        header += [f"{name}: test", "train", "σ²"]
    header += ["paper: CVAE optimised, test", "train", "σ²", "paper: GP-CDE optimised, test", "train", "σ²"]
    rows = []
    for size in sizes:
        row: list[Any] = [size]
        for name in KINDS:
            row += _cells(by.get((name, size)))
        row += [f"{value:g}" for value in (*PAPER[size][2:5], *PAPER[size][7:10])]
        rows.append(row)
    note = f"Nats per image. The fixed σ² is {FIXED}. Standard errors are over test images, for one training set."
    write_table(out, "mnist", header, rows, note)
    more = sorted({name for name, _ in by if "latents" in name}, key=lambda name: int(name.split()[1]))
    _curves(by, sizes, out)
    if not more:
        return
    table = [
        [
            size,
            *_cells(by.get(("GP-CDE", size)))[:2],
            *(cell for name in more for cell in _latent_cells(by, name, size)),
        ]
        for size in sorted({size for name, size in by if "latents" in name})
    ]
    titles = [title for name in more for title in (f"{name}: test", "train", "effective sample size")]
    write_table(out, "mnist_latents", ["N", "GP-CDE, 2 latents: test", "train", *titles], table)


def _cells(metrics: dict[str, Any] | None) -> list[str]:
    if metrics is None:
        return ["–"] * 3
    test = f"{metrics['test']:.1f} ± {metrics['test_error']:.1f}"
    return [test, f"{metrics['train']:.1f}", f"{metrics['noise_variance']:.4f}"]


def _latent_cells(by: dict[tuple[str, int], dict[str, Any]], name: str, size: int) -> list[str]:
    metrics = by.get((name, size))
    if metrics is None:
        return ["–"] * 3
    return [*_cells(metrics)[:2], f"{metrics['test_effective_sample_size']:.0f}"]


def _curves(by: dict[tuple[str, int], dict[str, Any]], sizes: list[int], out: Path) -> None:
    figure = new_figure(9, 3.8)
    axes = figure.subplots(1, 2, sharey=True)
    for axis, names in zip(
        axes, (("GP-CDE", "CVAE", "CVAE early stopped"), ("GP-CDE fixed", "CVAE fixed")), strict=True
    ):
        for i, name in enumerate(names):
            at = [size for size in sizes if (name, size) in by]
            for part, style in (("test", "-o"), ("train", ":")):
                values = [by[name, size][part] for size in at]
                axis.plot(at, values, style, c=f"C{i}", ms=4, label=f"{name}, {part}")
        axis.set_xscale("log", base=2)
        axis.set_yscale("symlog", linthresh=300)
        axis.set_xlabel("images of each class")
        axis.legend(fontsize=7)
    columns = {"paper: GP-CDE": 7, "paper: CVAE": 2}
    for i, (name, column) in enumerate(columns.items()):
        axes[0].plot(sizes, [PAPER[size][column] for size in sizes], "--x", c=f"C{i}", ms=3, lw=0.8, label=name)
    axes[0].legend(fontsize=7)
    axes[0].set_title("σ² optimised", fontsize=9)
    axes[1].set_title(f"σ² = {FIXED}", fontsize=9)
    axes[0].set_ylabel("log likelihood, nats per image")
    write_figure(out, "mnist", figure)
