"""The number beside the paper's, and samples: four-shot rows, training classes, test classes."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from ..lines import Line, unpicture
from ..names.omniglot import GP
from .tables import new_figure, write_figure, write_table

PAPER = 0.072


def report(lines: list[Line], out: Path) -> None:
    """omniglot.md and omniglot.csv, the number; three figures of samples."""
    rows = [_row(line) for line in lines]
    ways = sorted({way for line in lines for way in line["metrics"].get("few_shot", {})}, key=int, reverse=True)
    few = [f"{way}-way, {name}" for way in ways for name in ("Bayes' rule", "nearest neighbour")]
    header = ["model", "nats per pixel", "the paper", "effective sample size (median)", "σ²", "test images", "minutes"]
    write_table(out, "omniglot", header, rows)
    told = [line["metrics"]["few_shot"] for line in lines if "few_shot" in line["metrics"]]
    if not told:
        return
    classes = [
        [*(_share(one[way][name]) for way in ways for name in ("accuracy", "nearest")), _nats(one[ways[0]])]
        for one in told
    ]
    write_table(out, "omniglot_classes", [*few, "right minus wrong label, nats per pixel"], classes)
    pictures = {name: unpicture(stored) for name, stored in _drawn(lines)["pictures"].items()}
    _sheet(out, "omniglot_fewshot", pictures["test"][:12], 1)
    for name in ("train", "test"):
        _sheet(out, f"omniglot_{name}", pictures[name][:, :6], 6)


def _row(line: Line) -> list[Any]:
    metrics = line["metrics"]
    by_draws = (
        [f"{metrics['effective_sample_size']['0.5']:.1f} of {line['settings']['draws']}"]
        if "few_shot" in metrics
        else ["–"]
    )
    return [
        line["model"],
        f"{metrics['log_likelihood']:.4f} ± {metrics['error']:.4f}",
        f"{PAPER:.3f}" if line["model"] == GP else "–",
        *by_draws,
        f"{metrics['noise_variance']:.4f}" if "noise_variance" in metrics else "–",
        metrics["test_images"],
        f"{line['seconds'] / 60:.0f}",
    ]


def _drawn(lines: list[Line]) -> dict[str, Any]:
    """What the line with pictures tells."""
    return next(line["metrics"] for line in lines if "pictures" in line["metrics"])


def _share(pair: list[float]) -> str:
    return f"{pair[0]:.3f} ± {pair[1]:.3f}"


def _nats(one: dict[str, Any]) -> str:
    return f"{one['right_minus_wrong'][0]:.4f} ± {one['right_minus_wrong'][1]:.4f}"


def _sheet(out: Path, name: str, rows: np.ndarray, columns: int) -> None:
    """Rows of images, the true one first, in that many columns of rows."""
    count, each, pixels = rows.shape
    high, side = -(-count // columns), math.isqrt(pixels)
    tiles = rows.reshape(count, each, side, side)
    sheet = np.zeros((high * side, columns * (each * side + 6)))
    for i, row in enumerate(tiles):
        top, left = i % high * side, i // high * (each * side + 6)
        line = np.concatenate(list(row), axis=1)
        line[:, side - 1] = 0.5  # the true image stands apart
        sheet[top : top + side, left : left + line.shape[1]] = line
    figure = new_figure(sheet.shape[1] / 110, sheet.shape[0] / 110)
    axis = figure.subplots()
    axis.imshow(sheet, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    axis.set_axis_off()
    write_figure(out, name, figure)
