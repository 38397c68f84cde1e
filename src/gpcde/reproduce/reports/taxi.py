"""The table of negative log densities beside the paper's, and the densities of two pick-ups."""

import math
from collections.abc import Sequence
from pathlib import Path

from ...datasets import AREA
from ..lines import Line, unpicture
from ..names.taxi import CONDITIONS, DAY, MODELS, SIZES
from .tables import new_figure, write_figure, write_table

PAPER: dict[str, tuple[float, float, float]] = {
    "GP-LVM": (2.61, 2.52, 2.43),
    "GP": (2.68, 2.67, 2.67),
    "GP-CDE": (2.31, 2.22, 2.13),
    "U-KDE": (2.49, 2.50, 2.35),
    "C-KDE": (2.40, 2.38, 2.314),
    "MDN-1": (2.83, 2.77, 2.65),
    "MDN-5": (2.72, 2.55, 2.16),
    "MDN-10": (3.17, 2.66, 2.06),
    "MDN-50": (5.09, 3.08, 1.97),
}
"""The paper's table, for 1K, 5K and 1M training rows."""


def report(lines: list[Line], out: Path) -> None:
    """taxi.md, taxi.csv, taxi.png and taxi.pdf from the lines there are."""
    fits = {(line["model"], line["data"]): line for line in lines if line["data"] != DAY}
    sizes = [size for size in SIZES if any(size == data for _, data in fits)]
    tests = [name for name in ("random", "farthest") if any(f"nlpp_{name}" in f["metrics"] for f in fits.values())]
    columns = [(test, size) for test in tests for size in sizes]
    header = ["Model", *(f"{test} {size}" for test, size in columns), *(f"paper {size}" for size in ("1K", "5K", "1M"))]
    rows = []
    for model in MODELS:
        if any((model, size) in fits for size in sizes):
            paper = [f"{value:.2f}" for value in PAPER[model]] if model in PAPER else ["–"] * 3
            rows.append([model, *(_cell(fits.get((model, size)), test) for test, size in columns), *paper])
    best = [text for column in columns if (text := _best(fits, *column))]
    write_table(out, "taxi", header, rows, _note(fits, best, [line for line in lines if line["data"] == DAY]))
    _draw(fits, sizes, out)


def _best(fits: dict[tuple[str, str], Line], test: str, size: str) -> str:
    """The best model of a column, in words."""
    name = f"nlpp_{test}"
    there = [line for (_, data), line in fits.items() if data == size and name in line["metrics"]]
    if not there:
        return ""
    line = min(there, key=lambda line: line["metrics"][name])
    return f"{test} {size}: {line['model']}"


def _cell(line: Line | None, test: str) -> str:
    """As in "2.134 ± 0.021"."""
    if line is None or f"nlpp_{test}" not in line["metrics"]:
        return "–"
    return f"{line['metrics'][f'nlpp_{test}']:.3f} ± {line['metrics'][f'se_{test}']:.3f}"


def _note(fits: dict[tuple[str, str], Line], best: Sequence[str], days: Sequence[Line]) -> str:
    """What the numbers are, which are the best, and the cost of a step."""
    most = max((line["metrics"]["rows"] for (_, data), line in fits.items() if data == "all"), default=0)
    everything = f'"all" is {most:,} training trips, all at hand; the paper had a million. ' if most else ""
    text = (
        "NLPP: minus the mean log density of standardised drop-offs ± its standard error over test trips; lower is "
        f"better. Test trips: random ones, and the farthest from each other (the paper's). {everything}"
        "The paper's numbers are of its own selection of trips, so their order and differences compare, not their "
        "level. MDN-k as in the paper: three layers of 50 units, diagonal covariances, a fixed number of steps; "
        "early-stopped: on a fifth of the rows, with weight decay and full covariances. C-KDE as in the paper: the 50 "
        "nearest trips, with the kernel width that cross-validation finds for all trips; cross-validated: with the "
        "width that makes trips likeliest given their 50 nearest; product: kernels in x too."
    )
    if best:
        text += f"\n\nThe best of each column: {'; '.join(best)}."
    for line in days:
        measured = line["metrics"]
        each = ", ".join(
            f"{ms:.1f} ms at {rows:,} rows" for rows, ms in zip(measured["rows"], measured["ms_per_step"], strict=True)
        )
        trips = f"{measured['real']:,} trips of one day, some twice" if measured["real"] else "made-up trips"
        text += f"\n\nWhat a step of GP-CDE costs, by the number of rows ({trips}): {each}."
    return text


def _draw(fits: dict[tuple[str, str], Line], sizes: Sequence[str], out: Path) -> None:
    """Both densities of every model, at its largest training size; the pick-up is a red cross."""
    shown = []
    for model in MODELS:
        there = [fits[model, size] for size in sizes if (model, size) in fits]
        if there and there[-1]["metrics"].get("heat"):
            shown.append(there[-1])
    if not shown:
        return
    wide = min(4, len(shown))
    tall = -(-len(shown) // wide)
    figure = new_figure(3.6 * wide, 2.9 * tall)
    axes = figure.subplots(tall, 2 * wide, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    (west, east), (south, north) = AREA
    for i, line in enumerate(shown):
        for j, (_, place, _, _) in enumerate(CONDITIONS):
            axis = axes[i // wide, 2 * (i % wide) + j]
            root = unpicture(line["metrics"]["heat"][j])
            axis.imshow(root, origin="lower", extent=(west, east, south, north), vmin=0, vmax=1, cmap="viridis")
            axis.set_aspect(1 / math.cos(math.radians(40.76)))
            axis.plot(*place, "x", color="red", markersize=5, markeredgewidth=1.5)
            if j == 0:
                axis.set_title(f"{line['model']}, {line['data']}", fontsize=7, loc="left")
    names = "; ".join(name for name, _, _, _ in CONDITIONS)
    figure.suptitle(f"Density of the drop-off (root scale) for two pick-ups: {names}", fontsize=9)
    write_figure(out, "taxi", figure)
