"""plot, explore, demo: what densities look like."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import options

if TYPE_CHECKING:
    from ..estimators.base import DensityEstimator

KINDS = ("heatmap", "fan", "effect", "densities", "joint", "pit", "coverage", "training", "latent")
OBSERVED = ("pit", "coverage", "latent")
"""Pictures that need the y of data; `effect` needs data."""

HELD = ("heatmap", "fan", "densities", "joint")
"""Pictures of a condition, where `--at` says so."""


@click.command(short_help="Draw a density.")
@options.model
@options.some_data
@click.option("--kind", type=click.Choice(KINDS), default="heatmap", show_default=True, help="Of picture.")
@options.file_out("PNG, PDF or SVG.  [default: MODEL's name, .png]")
@click.option("--feature", metavar="COLUMN", help="The input across.  [default: the first]")
@click.option("--output", metavar="COLUMN", help="Which output, or two of a joint density.  [default: the first]")
@click.option(
    "--at", multiple=True, metavar="COLUMN=VALUE,…", help="Where inputs are held; given again, another place."
)
@options.known_target
def plot(
    model: str,
    data: str | None,
    kind: str,
    out: str | None,
    feature: str | None,
    output: str | None,
    at: Sequence[str],
    target: Sequence[str],
) -> None:
    """Draw MODEL, with DATA where there are any, and print where the picture is.

    \b
    heatmap    the density of an output over one input, the others held
    fan        its median and central intervals over that input
    effect     the same, the other inputs averaged over DATA
    densities  densities at chosen places, with their bands and regions
    joint      two outputs together, at one place
    pit        whether the densities can be believed, from the y in DATA
    coverage   the same, as coverage of central intervals, of all outputs
    training   how the bound rose
    latent     the latents of the rows of DATA
    """
    if data is None and kind in ("effect", *OBSERVED):
        raise click.UsageError(f"--kind {kind} needs DATA")
    if at and kind not in HELD:
        raise click.UsageError(f"--kind {kind} holds no input, so it takes no --at")
    path = Path(out) if out else Path(model).with_suffix(".png")
    options.check_writable(path)

    from ..runtime.extras import extra

    with extra("plot"):
        from matplotlib.figure import Figure

    from .. import plots
    from ..estimators.base import load
    from ..evaluation.diagnostics import coverage, pit
    from ..plots.conditions import find_output, held, make_table
    from . import frames

    asked = None if data is None else frames.ask(model, data, target)
    fitted = load(model) if asked is None else asked.model
    X = None if asked is None else asked.X
    y: Any = None
    if asked is not None and (kind in OBSERVED or set(asked.names) <= set(asked.source.frame.columns)):
        y = asked.y()
    places = [_place(fitted, text) for text in at] or [{}]
    if len(places) > 1 and kind != "densities":
        raise click.UsageError("only --kind densities draws several places: give --at once, as in --at a=1,b=2")
    axes: dict[str, Any] = {"ax": Figure(layout="constrained").subplots()}
    across: dict[str, Any] = {"feature": feature or 0}
    up: dict[str, Any] = {"output": output or 0}
    if kind in ("heatmap", "fan"):
        getattr(plots, kind)(fitted, X, y, at=places[0], **across, **up, **axes)
    elif kind == "effect":
        plots.effect(fitted, X, **across, **up, **axes)
    elif kind in ("densities", "joint"):
        rows = make_table(fitted, list(zip(*(held(fitted, X, place) for place in places), strict=True)))
        if kind == "joint":
            pair = tuple(frames.words([output])) if output else (0, 1)
            plots.joint(fitted, rows, outputs=pair, **axes)  # type: ignore[arg-type]
        else:
            labels = None if len(at) > 1 else [at[0] if at else "at medians" if asked else "at means"]
            plots.densities(fitted, rows, labels=labels, **up, **axes)
    elif kind == "training":
        plots.training(fitted, **axes)
    elif kind == "latent":
        plots.latent(fitted, X, y, **axes)
    else:
        density = fitted.predict_density(X)
        if kind == "pit":
            plots.pit(pit(density, y).reshape(len(y), -1)[:, find_output(fitted, up["output"])], **axes)
        else:
            plots.coverage(coverage(density, y), **axes)
    axes["ax"].figure.savefig(path, dpi=150)
    click.echo(path)


def _place(model: "DensityEstimator", text: str) -> dict[str | int, Any]:
    """Values of inputs by name, as in a=1,town=x."""
    from ..plots.conditions import feature_names

    names = feature_names(model)
    levels = {names[c.place]: {str(level): level for level in c.levels} for c in model.features_.categories}
    place: dict[str | int, Any] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in names:
            raise click.BadParameter(f"there is no input {name}; there are {', '.join(names)}", param_hint="--at")
        if value not in levels.get(name, {value}):
            message = f"{name} is one of {', '.join(levels[name])}, not {value}"
            raise click.BadParameter(message, param_hint="--at")
        try:
            place[name] = levels[name][value] if name in levels else float(value)
        except ValueError as error:
            raise click.BadParameter(f"{name} is a number, not {value!r}", param_hint="--at") from error
    return place


@click.command(short_help="Move the inputs and see the density, in the browser.")
@options.model
@click.option("--data", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="A table to show beside it.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Of the page; 0: any that is free.")
@click.option("--no-browser", is_flag=True, help="Print the address, and open nothing.")
def explore(model: str, data: str | None, port: int, no_browser: bool) -> None:
    """Open a page in the browser where the inputs of MODEL are moved and its density is seen, until Ctrl-C.

    The page is served to this machine alone.
    """
    from ..explorer import serve
    from . import frames

    serve(model, None if data is None else frames.ask(model, data).source.frame, port, not no_browser)


@click.command(short_help="Learn and draw an example.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="The folder for its files."
)
def demo(out: Path) -> None:
    """Learn a density with two branches from 400 rows, draw it beside the truth, and say what to try next."""
    from ..demo import main

    if not out.is_dir():
        raise click.BadParameter(f"there is no folder {out}", param_hint="--out")
    main(out / "demo.png")
