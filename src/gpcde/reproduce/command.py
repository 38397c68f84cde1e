"""What `gpcde reproduce` does: the units of an experiment, and then its tables and figures."""

import importlib
import sys
from pathlib import Path

from . import EXPERIMENTS
from .lines import read_lines
from .reports.tables import fill_page
from .runner import ReproduceError, run


def reproduce(
    experiment: str, preset: str, jobs: int = 1, out: Path = Path("results"), report: bool = False, quiet: bool = False
) -> int:
    """Do what is left of an experiment, or of all, and report what there is.

    Parameters
    ----------
    experiment : str
        One of `EXPERIMENTS`, or "all".
    preset : str
        One of `PRESETS`.
    jobs : int
        How many units at a time.
    out : Path
        The folder for lines, tables and figures, each preset's in a folder of its own.
    report : bool
        Whether to report only, and do nothing.
    quiet : bool
        Whether to show no progress.

    Returns
    -------
    int
        The exit code: 0, 1 where something could not be done, 130 where it was interrupted.
    """
    names = EXPERIMENTS if experiment == "all" else (experiment,)
    modules = {name: importlib.import_module(f"{__package__}.experiments.{name}") for name in names}
    units = [unit for module in modules.values() for unit in module.units(preset)]
    code = 0
    if not report:
        try:
            run(units, out / preset, jobs, quiet)
        except ReproduceError as error:
            print(f"gpcde: {error}", file=sys.stderr)
            code = 1
        except KeyboardInterrupt:
            print("gpcde: stopped; the same command goes on from here", file=sys.stderr)
            code = 130
    known = {unit.key for unit in units}
    for name in names:
        lines = [line for line in read_lines(out / preset / f"{name}.jsonl") if line["key"] in known]
        if lines:
            importlib.import_module(f"{__package__}.reports.{name}").report(lines, out / preset)
            if not quiet:
                print(f"{out / preset / name}.md")
    fill_page(out / "README.md")
    return code
