"""The number beside the paper's, and samples: four-shot rows, training classes, test classes."""

import math
from pathlib import Path

import numpy as np

from ..lines import Line, unpicture
from .tables import new_figure, write_figure, write_table

PAPER = 0.072


def report(lines: list[Line], out: Path) -> None:
    """omniglot.md and omniglot.csv, the number; three figures of samples."""
    rows = [
        [
            line["model"],
            f"{line['metrics']['log_likelihood']:.4f} ± {line['metrics']['error']:.4f}",
            f"{PAPER:.3f}",
            f"{line['metrics']['effective_sample_size']['0.5']:.1f} of {line['settings']['draws']}",
            f"{line['metrics']['noise_variance']:.4f}",
            line["metrics"]["test_images"],
            f"{line['seconds'] / 60:.0f}",
        ]
        for line in lines
    ]
    header = ["model", "nats per pixel", "the paper", "effective sample size (median)", "σ²", "test images", "minutes"]
    write_table(out, "omniglot", header, rows)
    if not lines:
        return
    pictures = {name: unpicture(stored) for name, stored in lines[-1]["metrics"]["pictures"].items()}
    _sheet(out, "omniglot_fewshot", pictures["test"][:12], 1)
    for name in ("train", "test"):
        _sheet(out, f"omniglot_{name}", pictures[name][:, :6], 6)


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
