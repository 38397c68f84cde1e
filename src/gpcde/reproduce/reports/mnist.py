"""The whole table beside the paper's, what more latents add, and the likelihoods against N."""

from pathlib import Path
from typing import Any

import numpy as np

from ..lines import Line
from ..names.mnist import (
    APART,
    FIXED,
    GP,
    GP_FIXED,
    GP_MIXED,
    MODELS,
    NETWORK,
    NETWORK_FASTER,
    NETWORK_FIXED,
    NETWORK_STOPPED,
    WITHIN,
    latents_of,
)
from .tables import new_figure, write_figure, write_table

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

Metrics = dict[tuple[str, int], dict[str, Any]]
"""By model and N."""


def report(lines: list[Line], out: Path) -> None:
    """mnist.md and mnist.csv, the table; mnist_latents likewise, if there are any; mnist.png and mnist.pdf, curves."""
    by = _over_sets(lines)
    sizes = sorted({size for _, size in by})
    header = ["N"]
    for name in MODELS:
        header += [f"{name}: test", "train", "σ²"]
    header += ["paper: CVAE optimised, test", "train", "σ²", "paper: GP-CDE optimised, test", "train", "σ²"]
    rows = []
    for size in sizes:
        row: list[Any] = [size]
        for name in MODELS:
            row += _cells(by.get((name, size)))
        row += [f"{value:g}" for value in (*PAPER[size][2:5], *PAPER[size][7:10])]
        rows.append(row)
    note = f"Nats per image. The fixed σ² is {FIXED}. {ERRORS}"
    write_table(out, "mnist", header, rows, note)
    _fairer(by, out)
    _curves(by, sizes, out)
    _more_latents(by, out)


ERRORS = (
    "Standard errors are over test images, for one training set; where a number in brackets says of how many training "
    "sets it is the mean, they include what differs between these."
)


def _over_sets(lines: list[Line]) -> Metrics:
    """The mean over training sets, which share their test images: those errors stay, what differs between sets joins.

    error² = error² over test images + variance between sets / number of sets
    """
    sets: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for line in lines:
        sets.setdefault((line["model"], int(line["data"].removeprefix("N="))), []).append(line["metrics"])
    out: Metrics = {}
    for key, several in sets.items():
        mean = {name: float(np.mean([one[name] for one in several])) for name in several[0]}
        if len(several) > 1:
            between = np.var([one["test"] for one in several], ddof=1) / len(several)
            mean |= {"test_error": float(np.hypot(mean["test_error"], between**0.5)), "sets": len(several)}
        out[key] = mean
    return out


def _fairer(by: Metrics, out: Path) -> None:
    """The GP-CDE with noise along P's columns, the CVAE whose noise has its own rate, and pPCA."""
    names = [name for name in (GP_MIXED, NETWORK_FASTER, WITHIN, APART) if any(known == name for known, _ in by)]
    sizes = sorted({size for name, size in by if name in names})
    if not names:
        return
    header = ["N", *(title for name in names for title in (f"{name}: test", "train", "σ²"))]
    table = [[size, *(cell for name in names for cell in _cells(by.get((name, size))))] for size in sizes]
    note = (
        f"Nats per image. {ERRORS} pPCA has 50 latents: one covariance for the differences from the classes' means, or "
        "one for each class."
    )
    write_table(out, "mnist_noise", header, table, note)


def _more_latents(by: Metrics, out: Path) -> None:
    more = sorted({name for name, _ in by if latents_of(name)}, key=lambda name: latents_of(name) or 0)
    if not more:
        return
    table = [
        [size, *_cells(by.get((GP, size)))[:2], *(cell for name in more for cell in _latent_cells(by, name, size))]
        for size in sorted({size for name, size in by if name in more})
    ]
    titles = [title for name in more for title in (f"{name}: test", "train", "effective sample size")]
    write_table(out, "mnist_latents", ["N", f"{GP}, 2 latents: test", "train", *titles], table)


def _cells(metrics: dict[str, Any] | None) -> list[str]:
    if metrics is None:
        return ["–"] * 3
    test = f"{metrics['test']:.1f} ± {metrics['test_error']:.1f}" + (
        f" ({metrics['sets']})" if "sets" in metrics else ""
    )
    noise = f"{metrics['noise_variance']:.4f}" if "noise_variance" in metrics else "–"
    return [test, f"{metrics['train']:.1f}", noise]


def _latent_cells(by: Metrics, name: str, size: int) -> list[str]:
    metrics = by.get((name, size))
    if metrics is None:
        return ["–"] * 3
    return [*_cells(metrics)[:2], f"{metrics['test_effective_sample_size']:.0f}"]


def _curves(by: Metrics, sizes: list[int], out: Path) -> None:
    figure = new_figure(9, 3.8)
    axes = figure.subplots(1, 2, sharey=True)
    for axis, names in zip(axes, ((GP, NETWORK, NETWORK_STOPPED), (GP_FIXED, NETWORK_FIXED)), strict=True):
        for i, name in enumerate(names):
            at = [size for size in sizes if (name, size) in by]
            for part, style in (("test", "-o"), ("train", ":")):
                values = [by[name, size][part] for size in at]
                axis.plot(at, values, style, c=f"C{i}", ms=4, label=f"{name}, {part}")
        axis.set_xscale("log", base=2)
        axis.set_yscale("symlog", linthresh=300)
        axis.set_xlabel("images of each class")
        axis.legend(fontsize=7)
    columns = {f"paper: {GP}": 7, f"paper: {NETWORK}": 2}
    for i, (name, column) in enumerate(columns.items()):
        axes[0].plot(sizes, [PAPER[size][column] for size in sizes], "--x", c=f"C{i}", ms=3, lw=0.8, label=name)
    axes[0].legend(fontsize=7)
    axes[0].set_title("σ² optimised", fontsize=9)
    axes[1].set_title(f"σ² = {FIXED}", fontsize=9)
    axes[0].set_ylabel("log likelihood, nats per image")
    write_figure(out, "mnist", figure)
