"""reproduce: the paper's experiments."""

from pathlib import Path

import click

from ..reproduce import EXPERIMENTS, PRESETS


@click.command(short_help="Run the paper's experiments.")
@click.argument("experiment", type=click.Choice([*sorted(EXPERIMENTS), "all"]))
@click.option(
    "--preset", type=click.Choice(PRESETS), default="quick", show_default=True, help="Two minutes, hours, or days."
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="How many units at a time.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    show_default=True,
    help="The folder for lines, tables and figures.",
)
@click.option("--report", is_flag=True, help="Only make tables and figures of what is done.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def reproduce(experiment: str, preset: str, jobs: int, out: Path, report: bool, quiet: bool) -> int:
    """Run the paper's experiments. A run that was stopped goes on where it was: give the same command."""
    from ..reproduce.command import reproduce

    return reproduce(experiment, preset, jobs, out, report=report, quiet=quiet)
