"""The command line: `gpcde reproduce …`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ._version import VERSION
from .reproduce import EXPERIMENTS, PRESETS


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("gpcde", description="Conditional density estimation with Gaussian processes.")
    top.add_argument("--version", action="version", version=f"gpcde {VERSION}")
    commands = top.add_subparsers(dest="command", required=True)
    reproduce = commands.add_parser(
        "reproduce",
        help="run the paper's experiments",
        description="Run the paper's experiments. A run that was stopped goes on where it was: give the same command.",
    )
    reproduce.add_argument("experiment", choices=[*sorted(EXPERIMENTS), "all"])
    reproduce.add_argument("--preset", choices=PRESETS, default="quick", help="two minutes, two hours, or the paper's")
    reproduce.add_argument("--jobs", type=_positive, default=1, help="how many units at a time")
    reproduce.add_argument("--out", type=Path, default=Path("results"), help="the folder for lines, tables and figures")
    reproduce.add_argument("--report", action="store_true", help="only make tables and figures of what is done")
    reproduce.add_argument("--quiet", action="store_true", help="show no progress")
    return top


def _positive(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, got {text!r}")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 where something could not be done, 130 where it was interrupted."""
    options = parser().parse_args(arguments)
    from .reproduce.command import reproduce  # JAX and all the rest: `--help` need not wait for them

    return reproduce(
        options.experiment, options.preset, options.jobs, options.out, report=options.report, quiet=options.quiet
    )


if __name__ == "__main__":
    sys.exit(main())
