"""Tables as Markdown and CSV, figures as PNG and PDF."""

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.extras import extra
from ..lines import Line, mean_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_table(out: Path, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]], note: str = "") -> None:
    """<name>.md and <name>.csv; numbers come formatted, or as they are."""
    body = [[str(cell) for cell in row] for row in rows]
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *(f"| {' | '.join(row)} |" for row in body)]
    (out / f"{name}.md").write_text("\n".join(lines) + "\n" + (f"\n{note}\n" if note else ""))
    with (out / f"{name}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *body])


def write_figure(out: Path, name: str, figure: "Figure") -> None:
    """<name>.png and <name>.pdf."""
    figure.savefig(out / f"{name}.png", dpi=110)
    figure.savefig(out / f"{name}.pdf", metadata={"CreationDate": None})


def new_figure(width: float, height: float) -> "Figure":
    """A figure that belongs to nobody's session."""
    with extra("reproduce"):
        from matplotlib.figure import Figure

    return Figure((width, height), layout="constrained")


def metric(lines: Iterable[Line], name: str, **about: Any) -> np.ndarray:
    """One metric of all lines that fit, in the order of their splits."""
    fitting = [line for line in lines if all(line[key] == value for key, value in about.items())]
    return np.array([line["metrics"][name] for line in sorted(fitting, key=lambda line: line["split"])])


def with_error(values: np.ndarray, digits: int = 3) -> str:
    """As in "-2.345 ± 0.012", or what of it there is."""
    mean, error = mean_error(values)
    if np.isnan(mean):
        return "–"
    return f"{mean:.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")


def fill_page(page: Path) -> None:
    """Put the tables into a page that has places for them: between <!-- preset/name --> and <!-- /preset/name -->."""
    if not page.is_file():
        return

    def table(match: re.Match[str]) -> str:
        source = page.parent / f"{match['name']}.md"
        body = source.read_text() if source.is_file() else match["body"]
        return f"<!-- {match['name']} -->\n{body.strip()}\n<!-- /{match['name']} -->"

    text = page.read_text()
    filled = re.sub(r"<!-- (?P<name>\w+/\w+) -->\n(?P<body>.*?)<!-- /(?P=name) -->", table, text, flags=re.DOTALL)
    if filled != text:
        page.write_text(filled)
