"""predict: what a model says of the rows of a table, as columns.   sample: draws from its densities, as rows."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import options

if TYPE_CHECKING:
    import numpy as np

    from ..density.conditional import ConditionalDensity
    from .frames import Asked

LEVELS = (0.05, 0.5, 0.95)
"""The quantiles that are told where nothing is asked for, beside the mean."""


def _numbers(_: click.Context, parameter: click.Parameter, value: Sequence[str]) -> list[float]:
    """Numbers between 0 and 1, separated by commas, or the option given several times."""
    try:
        found = [float(word) for words in value for word in words.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"{', '.join(value)} are not numbers") from error
    if not all(0 < number < 1 for number in found):
        raise click.BadParameter("must lie between 0 and 1")
    return found


def _levels(name: str, text: str) -> options.Decorator:
    return click.option(name, multiple=True, metavar="LEVELS", callback=_numbers, help=text)


@click.command(short_help="Write a model's answers as columns of a table.")
@options.model
@options.data
@click.option("--mean", is_flag=True, help="NAME_mean.")
@click.option("--std", is_flag=True, help="NAME_std, the standard deviation.")
@click.option("--mode", is_flag=True, help="NAME_mode, where the density is highest.")
@_levels("--quantiles", "NAME_q5, NAME_q50, … for 0.05,0.5, …")
@_levels("--intervals", "NAME_low90 and NAME_high90 for 0.9: central intervals.")
@_levels("--hdr", "NAME_hdr90_low1, NAME_hdr90_high1, NAME_hdr90_low2, …: regions of highest density.")
@click.option("--log-density", is_flag=True, help="log_density, of the y in DATA.")
@options.table_out
@options.known_target
@options.stream
def predict(model: str, data: str, out: str, target: Sequence[str], stream: bool, **wanted: Any) -> None:
    """Write DATA with the answers of MODEL as columns, NAME being that of the output.

    Unless told what, these are the mean and the quantiles 0.05, 0.5 and 0.95. Regions of highest density of one output
    are as many intervals as a row needs, the others empty; of several outputs they are no intervals, and
    hdr90_log_density is the least log density inside. Of a folder of Parquet files, or with --stream, they are written
    to a Parquet file as they come, and memory stays bounded.

    \b
    gpcde predict trips.gpcde new.csv > answers.csv
    gpcde predict trips.gpcde new.parquet --intervals 0.5,0.9 --hdr 0.9 --out answers.parquet
    """
    from . import frames

    if not any(wanted.values()):
        wanted.update(mean=True, quantiles=list(LEVELS))
    if stream or Path(data).is_dir():
        if options.KINDS.get(Path(out).suffix.lower()) != "parquet":
            raise click.BadParameter("rows that are streamed go to a file named .parquet", param_hint="--out")
        if wanted["hdr"]:
            raise click.BadParameter("the rows ahead may need more columns, so not of a stream", param_hint="--hdr")
        parts = frames.ask_parts(model, data, target)
        return frames.write_parts(((asked, _answers(asked, **wanted)) for asked in parts), out)
    asked = frames.ask(model, data, target)
    frames.check_terminal(out, asked.source.kind)
    frames.write(asked.source.frame.assign(**_answers(asked, **wanted)), out, asked.source.kind)


def _answers(
    asked: "Asked",
    mean: bool,
    std: bool,
    mode: bool,
    quantiles: list[float],
    intervals: list[float],
    hdr: list[float],
    log_density: bool,
) -> dict[str, "np.ndarray"]:
    """The columns that are asked for."""
    density, names = asked.density, asked.names
    answers: dict[str, np.ndarray] = {}
    for wanted, of in ((mean, "mean"), (std, "std"), (mode, "mode")):
        if wanted:
            answers.update(_each(names, f"_{of}", getattr(density, of)()))
    for level in quantiles:
        answers.update(_each(names, f"_q{_percent(level)}", density.quantile([level])))
    for level in intervals:
        ends = density.interval(level).reshape(len(density), 2, -1)
        for end, side in enumerate(("low", "high")):
            answers.update(_each(names, f"_{side}{_percent(level)}", ends[:, end]))
    for level in hdr:
        answers.update(_regions(density, names, level))
    if log_density:
        answers["log_density"] = density.log_pdf(asked.y())
    return answers


def _percent(level: float) -> str:
    return f"{100 * level:.10g}"


def _each(names: Sequence[str], suffix: str, values: "np.ndarray") -> Iterator[tuple[str, Any]]:
    """A column for every output."""
    columns = values.reshape(len(values), len(names)).T
    return ((name + suffix, column) for name, column in zip(names, columns, strict=True))


def _regions(density: "ConditionalDensity", names: Sequence[str], level: float) -> Iterator[tuple[str, Any]]:
    """The ends of all intervals, NaN where a row has fewer; of several outputs the threshold."""
    import numpy as np

    region = density.hdr(level)
    if region.intervals is None:
        yield f"hdr{_percent(level)}_log_density", region.log_threshold
        return
    most = max(len(intervals) for intervals in region.intervals)
    for i in range(most):
        for end, side in enumerate(("low", "high")):
            values = [intervals[i, end] if i < len(intervals) else np.nan for intervals in region.intervals]
            yield f"{names[0]}_hdr{_percent(level)}_{side}{i + 1}", np.array(values)


@click.command(short_help="Write draws of y.")
@options.model
@options.data
@click.option("--size", type=click.IntRange(1), default=1, show_default=True, help="How many draws of each row.")
@options.seed
@options.table_out
@options.known_target
def sample(model: str, data: str, size: int, seed: int, out: str, target: Sequence[str]) -> None:
    """Write draws of y from MODEL, as many for each row of DATA as wanted.

    Each draw is a row: the number of its row in DATA (from 0), the number of the draw, the columns of DATA, and y.
    """
    import numpy as np

    from . import frames

    asked = frames.ask(model, data, target)
    density, names, source = asked.density, asked.names, asked.source
    frames.check_terminal(out, source.kind)
    draws = density.sample(size, seed).reshape(len(density) * size, len(names))
    rows = np.repeat(np.arange(len(density)), size)
    table = source.frame.drop(columns=names, errors="ignore").iloc[rows].reset_index(drop=True)
    table.insert(0, "row", rows, allow_duplicates=True)
    table.insert(1, "draw", np.tile(np.arange(size), len(density)), allow_duplicates=True)
    frames.write(table.assign(**dict(zip(names, draws.T, strict=True))), out, source.kind)
