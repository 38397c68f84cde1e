"""The command line: `gpcde fit trips.csv --target lon,lat --out trips.gpcde`, and what can be asked of the file.

app          the commands together, and how errors are told
fitting      fit, info
answers      predict, sample
judging      score, compare, diagnose;   verdict, calibration in words
pictures     plot, explore, demo
experiments  reproduce
frames       tables in and out, and which columns are what
settings     models and their parameters by name
progress     looking on while a model trains

Commands are read with click; what they need (JAX, pandas and the like) is imported when one of them runs.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code: 0, 1 where something could not be done, 2 for a wrong word, 130 if interrupted."""
    from ..runtime.extras import extra

    try:
        with extra("cli"):
            from .app import run
    except ImportError as error:
        print(f"gpcde: the command line is an extra: {error}", file=sys.stderr)
        return 1
    return run(sys.argv[1:] if arguments is None else arguments)
