"""The table, the training curves in three ranges, and the mean images along the latent."""

from pathlib import Path
from typing import Any

import numpy as np

from ...plots import images
from ..lines import Line, unpicture
from ..names.natgrad import ANALYTIC, CONVERGED, MODELS, NATURAL, PLAIN, STARTS
from .tables import new_figure, with_error, write_figure, write_table

PAPER = {ANALYTIC: 1.02, NATURAL: 1.02, PLAIN: -0.13}


def report(lines: list[Line], out: Path) -> None:
    """natgrad.md and natgrad.csv, the table; natgrad_curves and natgrad_manifold, the figures."""
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
    _settled([line for line in lines if line["model"] == CONVERGED], out)
    shown = {line["model"]: line["metrics"] for line in lines if line["data"] == "random" and line["split"] == 0}
    if shown:
        by = {name: shown[name] for name in MODELS if name in shown}
        _curves(by, out)
        _manifolds(by, out)


def _settled(lines: list[Line], out: Path) -> None:
    """natgrad_settings.md and .csv: what each setting ends at, and what the last tenth of the steps still changed."""
    if not lines:
        return
    rows = []
    for line in lines:
        metrics = line["metrics"]
        curve = metrics["bound"]
        change = curve[-1] - curve[-1 - len(curve) // 10]
        rows.append(
            [
                line["data"],
                f"{metrics['log_likelihood']:.3f}",
                f"{curve[-1]:.3f}",
                f"{change:+.4f}",
                f"{metrics['noise_variance']:.4f}",
                f"{line['cpu_seconds']:.0f}",
            ]
        )
    header = ["setting", "test", "bound", "change of the bound in the last tenth of the steps", "σ²", "CPU seconds"]
    write_table(out, "natgrad_settings", header, rows, "Nats per pixel, from the principal start; the paper has 1.02.")


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


def _manifolds(by: dict[str, dict[str, Any]], out: Path) -> None:
    figure = new_figure(12, 1.1 * len(by))
    for axis, (name, metrics) in zip(np.atleast_1d(figure.subplots(len(by), 1)), by.items(), strict=True):
        manifold = unpicture(metrics["manifold"])
        images(manifold, columns=len(manifold), ax=axis, vmin=0, vmax=1)
        axis.set_ylabel(name, fontsize=7)
    write_figure(out, "natgrad_manifold", figure)
