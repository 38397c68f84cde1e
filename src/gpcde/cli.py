"""The command line: `gpcde reproduce …`."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from .reproduce import EXPERIMENTS, PRESETS
from .reproduce._report import fill_page
from .reproduce._run import ReproduceError, run
from .reproduce._units import read_lines
from .runtime.files import VERSION


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
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 where something could not be done, 130 where it was interrupted."""
    options = parser().parse_args(arguments)
    names = EXPERIMENTS if options.experiment == "all" else (options.experiment,)
    modules = {name: importlib.import_module(f"gpcde.reproduce.{name}") for name in names}
    out = options.out / options.preset
    units = [unit for module in modules.values() for unit in module.units(options.preset)]
    code = 0
    if not options.report:
        try:
            run(units, out, options.jobs, options.quiet)
        except ReproduceError as error:
            print(f"gpcde: {error}", file=sys.stderr)
            code = 1
        except KeyboardInterrupt:
            print("gpcde: stopped; the same command goes on from here", file=sys.stderr)
            code = 130
    known = {unit.key for unit in units}
    for name, module in modules.items():
        lines = [line for line in read_lines(out / f"{name}.jsonl") if line["key"] in known]
        if lines:
            module.report(lines, out)
            if not options.quiet:
                print(f"{out / name}.md")
    fill_page(options.out / "README.md")
    return code


if __name__ == "__main__":
    sys.exit(main())
