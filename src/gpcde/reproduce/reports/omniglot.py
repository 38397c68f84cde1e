"""The number beside the paper's, and samples: four-shot rows, training classes, test classes."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from ..lines import Line, unpicture
from ..names.omniglot import CENTRED, GP
from .tables import new_figure, write_figure, write_table

PAPER = 0.072


def report(lines: list[Line], out: Path) -> None:
    """omniglot.md and omniglot.csv, the number; omniglot_classes likewise; three figures of samples."""
    header = ["model", "nats per pixel", "the paper", "σ²", "test images", "CPU minutes"]
    write_table(out, "omniglot", header, [_row(line) for line in lines])
    told = {line["model"]: line["metrics"]["few_shot"] for line in lines if "few_shot" in line["metrics"]}
    if told:
        _classes(told, out)
    drawn = [line["metrics"]["pictures"] for line in lines if "pictures" in line["metrics"]]
    if drawn:
        pictures = {name: unpicture(stored) for name, stored in drawn[0].items()}
        _sheet(out, "omniglot_fewshot", pictures["test"][:12], 1)
        for name in ("train", "test"):
            _sheet(out, f"omniglot_{name}", pictures[name][:, :6], 6)


def _row(line: Line) -> list[Any]:
    metrics = line["metrics"]
    return [
        line["model"],
        f"{metrics['log_likelihood']:.4f} ± {metrics['error']:.4f}",
        f"{PAPER:.3f}" if line["model"] == GP else "–",
        f"{metrics['noise_variance']:.4f}" if "noise_variance" in metrics else "–",
        metrics["test_images"],
        f"{line['cpu_seconds'] / 60:.0f}",
    ]


def _classes(told: dict[str, dict[str, Any]], out: Path) -> None:
    """The models, and below them nearest neighbours, which are the same for all."""
    some = next(iter(told.values()))
    ways = sorted(some, key=int, reverse=True)
    rows = [
        [model, *(_share(few[way]["accuracy"]) for way in ways), _nats(few[ways[0]])] for model, few in told.items()
    ]
    for kind, name in {"nearest": "nearest neighbour", "centred nearest": "nearest neighbour, centred"}.items():
        # where images are as they are, "centred" ones are too
        ask = [few for model, few in told.items() if kind == "nearest" or model == GP or model.endswith(CENTRED)]
        if ask:
            rows.append([name, *(_share(ask[0][way][kind]) for way in ways), "–"])
    header = ["model", *(f"{way}-way" for way in ways), "right minus wrong label, nats per pixel"]
    write_table(out, "omniglot_classes", header, rows)


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
