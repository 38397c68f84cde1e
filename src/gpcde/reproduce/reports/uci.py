"""The table of test log likelihoods, and a panel for each data set."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from ...datasets import UCI
from ..lines import Line, mean_error
from ..names.uci import AMORTISED, BESIDE, GP, MODELS, OPTIMAL, ROWS
from .tables import metric, new_figure, with_error, write_figure, write_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def report(lines: list[Line], out: Path) -> None:
    """uci.md and uci.csv, the table; uci_networks likewise; uci.png and uci.pdf, a panel for each data set.

    Missing units are left out.
    """
    there = [model for model in MODELS if any(line["model"] == model for line in lines)]
    models = [model for model in there if model not in BESIDE]
    header = ["data", "splits", *models, f"{OPTIMAL} − {AMORTISED}", f"{OPTIMAL} − {GP}"]
    rows = [_row(lines, data, models) for data in UCI if any(line["data"] == data for line in lines)]
    note = (
        "Mean test log likelihood ± standard error over the splits, in the units of y; higher is better. Differences "
        "are paired: of the two models on the same split. Settings were chosen by training bounds, with test scores in "
        "view. In brackets, of how many splits, where not of all."
    )
    write_table(out, "uci", header, rows, note)
    _networks(lines, there, out)
    figure = new_figure(14, 5.5)
    panels = figure.subplots(2, 5).ravel()
    for panel, data in zip(panels, UCI, strict=True):
        _panel(panel, lines, data, models)
    figure.suptitle("Test log likelihood (higher is better)")
    write_figure(out, "uci", figure)


def _networks(lines: list[Line], models: list[str], out: Path) -> None:
    """All models on the splits that the networks beside the table have, and no others."""
    table = []
    for data in UCI:
        own = [line for line in lines if line["data"] == data]
        done = [{line["split"] for line in own if line["model"] == model} for model in models if model in BESIDE]
        splits = set.intersection(*done) if done else set()
        if splits:
            same = [line for line in own if line["split"] in splits]
            scores = [metric(same, "log_likelihood", model=model) for model in models]
            table.append([data, str(len(splits)), *(with_error(values) for values in scores)])
    if table:
        note = "Mean test log likelihood ± standard error over these splits, the first ones, the same for all models."
        write_table(out, "uci_networks", ["data", "splits", *models], table, note)


def _row(lines: list[Line], data: str, models: list[str]) -> list[str]:
    scores = {model: metric(lines, "log_likelihood", data=data, model=model) for model in models}
    most = max(len(values) for values in scores.values())
    return [
        data,
        str(most),
        *(_with_count(values, most) for values in scores.values()),
        *(with_error(_differences(lines, data, OPTIMAL, other)) for other in (AMORTISED, GP)),
    ]


def _with_count(values: Float[np.ndarray, " k"], most: int) -> str:
    """As in "-2.345 ± 0.012", and of how many splits, if not of all."""
    return with_error(values) + (f" ({len(values)})" if 0 < len(values) < most else "")


def _differences(lines: list[Line], data: str, one: str, two: str) -> Float[np.ndarray, " k"]:
    """One model's score minus the other's, on the splits that both have done."""
    scores: dict[str, dict[int, float]] = {one: {}, two: {}}
    for line in lines:
        if line["data"] == data and line["model"] in scores:
            scores[line["model"]][line["split"]] = line["metrics"]["log_likelihood"]
    both = sorted(scores[one].keys() & scores[two].keys())
    return np.array([scores[one][split] - scores[two][split] for split in both])


def _panel(panel: "Axes", lines: list[Line], data: str, models: list[str]) -> None:
    """A point with an error bar for each model, from top to bottom in this order."""
    for place, model in enumerate(models):
        mean, error = mean_error(metric(lines, "log_likelihood", data=data, model=model))
        if not np.isnan(mean):
            bar = None if np.isnan(error) else error
            panel.errorbar(mean, len(models) - 1 - place, xerr=bar, fmt="o", capsize=3, color=f"C{place}", markersize=5)
    named = panel.get_subplotspec()
    labels = list(models[::-1]) if named is not None and named.is_first_col() else [""] * len(models)
    panel.set_yticks(range(len(models)), labels)
    panel.set_ylim(-0.6, len(models) - 0.4)
    panel.grid(axis="x", alpha=0.3)
    panel.set_title(f"{data} ({ROWS[data]} rows)", fontsize=10)
    panel.tick_params(labelsize=8)
