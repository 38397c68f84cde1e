"""How often the bands of drawn densities hold the truth, on laws of one output whose density is known.

    python benchmarks/bands.py [--part report] [--sizes 100 400 2000] [--laws NAME ...] [--seed 0] [--rows 150]
        [--draws 80] [--page docs/guide.md]

At each of some test rows (x, y): whether the true p(y|x) lies within the central 50 % and 90 % of the drawn ones. The
laws of the part "report" were not looked at while anything was chosen; --page puts the table between its marks.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np

from collection import collection
from pages import put
from gpcde import GPCDE, FitWarning

LEVELS = 0.5, 0.9


def shares_held(law: str, split, seed: int, rows: int, draws: int) -> list[float]:
    """For each level, the share of test rows whose true density the band holds."""
    model = GPCDE(random_state=seed, verbose=False).fit(split.X_train, split.y_train)
    some = np.random.default_rng(seed).choice(len(split.X_test), rows, replace=False)
    X, y, truth = split.X_test[some], split.y_test[some], split.truth[some]
    heights = np.stack([density.log_pdf(y) for density in model.sample_densities(X, draws, random_state=seed)])
    held = []
    for level in LEVELS:
        low, high = np.quantile(heights, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
        held.append(float(np.mean((low <= truth) & (truth <= high))))
    print(law, len(split.X_train), held, flush=True)
    return held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("tune", "report"), default="report")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 400, 2000])
    parser.add_argument("--laws", nargs="+", help="only these")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=150)
    parser.add_argument("--draws", type=int, default=80)
    parser.add_argument("--page", type=Path, help="the file whose <!-- bands --> table is replaced")
    args = parser.parse_args()
    if args.page and (args.laws or args.part != "report"):
        parser.error("--page wants all laws of the report")
    warnings.simplefilter("ignore", FitWarning)
    lines = [
        "| law | " + " | ".join(f"{size:,} rows: 50 % | 90 %" for size in args.sizes) + " |",
        "|---|" + "---|---|" * len(args.sizes),
    ]
    for problem in collection(args.part):
        sizes = problem.sizes()
        if args.laws and problem.name not in args.laws:
            continue
        first = problem.load(sizes[0], args.seed)
        if not set(args.sizes) & set(sizes) or first.truth is None or first.y_train.ndim > 1:
            continue
        cells = []
        for size in args.sizes:
            if size in sizes:
                found = shares_held(problem.name, problem.load(size, args.seed), args.seed, args.rows, args.draws)
                cells += [f"{share:.0%}".replace("%", " %") for share in found]
            else:
                cells += ["–"] * len(LEVELS)
        lines.append(f"| {problem.name} | " + " | ".join(cells) + " |")
    table = "\n".join(lines)
    print(table)
    if args.page:
        put(args.page, "bands", table)


if __name__ == "__main__":
    main()
