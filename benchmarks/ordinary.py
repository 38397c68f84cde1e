"""What a user waits for: CPU seconds of ordinary work, each in a process of its own, and as a ratio to a reference.

    python benchmarks/ordinary.py [--only NAME ...] [--readme README.md]

The reference, taken in the same minute, is one product of 3,000 × 3,000 matrices and the exponentials of as many
numbers, in NumPy: machines differ, and are shared. "New machine" means that no compiled program is on disk yet; all
else runs as on a machine where gpcde has been used before.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pages import put

DATA = """
import time
import numpy as np

def rows(n, d=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, rng.choice([-1.0, 1.0], n) * X[:, 0] + 0.1 * rng.standard_normal(n)

def timed(work):
    began = time.process_time()
    result = work()
    print(time.process_time() - began)
    return result

from gpcde import GPCDE, MDN
"""

README = """
X, y = rows(300)
model = GPCDE(random_state=0).fit(X, y)
model.score(X, y)
density = model.predict_density([[1.5]])
density.log_pdf([1.4]), density.cdf([1.4]), density.quantile([0.05, 0.5, 0.95]), density.sample(1000)
density.mean(), density.var(), density.mode(), density.interval(0.9), density.crps([1.4]), density.hdr(0.9)[0]
model.sample_densities([[1.5]], 20).band(0.9)
"""

TEXT = """
import pandas as pd
from gpcde import GPCDE
def frame(seed):
    rng = np.random.default_rng(seed)
    kind, place = rng.choice(list("abc"), 300), rng.choice(list("uvwxyz"), 300)
    X = pd.DataFrame({"x": rng.standard_normal(300), "kind": kind, "place": place})
    return X, X.x * (kind == "a") + 0.3 * rng.standard_normal(300)
for seed in (0, 1):
    timed(lambda: GPCDE(random_state=0).fit(*frame(seed)))
"""

GRID = """
from sklearn.model_selection import GridSearchCV
X, y = rows(333)
search = GridSearchCV(GPCDE(random_state=0), {"n_inducing": [16, 24], "kernel": ["rbf", "matern52"]}, cv=3, refit=False)
timed(lambda: search.fit(X, y))
"""

FIT = """
X, y = rows(1300, 5)
timed(lambda: GPCDE(random_state=0).fit(X, y))
timed(lambda: MDN(random_state=0).fit(X, y))
"""

MANY = """
X, y = rows(300)
model = GPCDE(random_state=0, max_steps=50).fit(X, y)
X, y = rows(100_000)
for _ in range(2):
    timed(lambda: model.predict_density(X).log_pdf(y))
"""

REGIONS = """
X, y = rows(300)
density = GPCDE(random_state=0, max_steps=50).fit(X, y).predict_density(rows(1000)[0])
density.mean()
timed(lambda: density.hdr(0.9))
timed(lambda: density.mode())
"""


class Work(NamedTuple):
    """What the numbers are called, the code (None: the command line), and whether nothing is compiled yet."""

    names: tuple[str, ...]
    code: str | None
    new_machine: bool = False


WORK = {
    "help": Work(("`gpcde --help`",), None),
    "readme": Work(("README's example, a new process",), README),
    "readme-new": Work(("README's example, a new machine",), README, new_machine=True),
    "text": Work(("300 rows, 2 text columns, first fit", "second fit"), TEXT),
    "grid": Work(("`GridSearchCV`, 12 fits of 333 rows",), GRID),
    "fit": Work(("fit of 1,300 rows, 5 inputs", "the same by our MDN, early-stopped"), FIT),
    "many": Work(("`log_pdf` of 100,000 rows, first", "again"), MANY),
    "regions": Work(("`hdr(0.9)` of 1,000 rows", "`mode()` of 1,000 rows"), REGIONS),
}
WHOLE = ("help", "readme", "readme-new")
"""Where the whole process is timed, start and imports included."""


def reference() -> float:
    """CPU seconds of the reference."""
    a = np.random.default_rng(0).standard_normal((3000, 3000))
    began = time.process_time()
    np.exp(-np.abs(a @ a))
    return time.process_time() - began


def seconds(name: str) -> list[float]:
    """CPU seconds of each of the numbers of some work."""
    work = WORK[name]
    command = [sys.executable, "-m", "gpcde", "--help"]
    if work.code is not None:
        command = [sys.executable, "-c", DATA + work.code]

    def run(folder: str | None) -> list[float]:
        environment = dict(os.environ) if folder is None else {**os.environ, "GPCDE_CACHE_DIR": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as on most machines
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if name in WHOLE:
            return [after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime]
        return [float(line) for line in said.split()]

    if work.new_machine:
        with tempfile.TemporaryDirectory() as folder:
            return run(folder)
    run(None)
    return run(None)


def table(only: list[str]) -> str:
    lines = ["| what a user does | CPU seconds | times the reference |", "|---|---|---|"]
    for name in only:
        unit = reference()
        for what, value in zip(WORK[name].names, seconds(name), strict=True):
            lines.append(f"| {what} | {value:.2g} | {value / unit:.2g} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(WORK), default=list(WORK))
    parser.add_argument("--readme", type=Path, help="the file whose <!-- ordinary --> table is replaced")
    options = parser.parse_args()
    text = table(options.only)
    if options.readme is not None:
        put(options.readme, "ordinary", text)


if __name__ == "__main__":
    main()
