"""Rows streamed from Parquet files beside the same rows in memory: rows a CPU second, and peak memory.

python benchmarks/streaming.py --rows 1000000 20000000 --steps 4000      the table of docs/scaling.md
python benchmarks/streaming.py --rows 100000 --steps 500                 a minute

Files are made first: 4 inputs and an output, float64, row groups of 65,536 rows, 2 million rows a file. Each fit is a
process of its own that trains the default model of one output (256 rows a step). The rate is that of the steps after
the first 100, which compile: rows seen over the CPU seconds of the whole process, the reading thread's included. Peak
memory is the process's own (ru_maxrss). In memory only the first number of rows is fitted.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GROUP, FILE = 65_536, 2_000_000


def make(folder: Path, rows: int) -> None:
    """The files."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number, begin in enumerate(range(0, rows, FILE)):
        rng = np.random.default_rng(number)
        n = min(FILE, rows - begin)
        X = rng.standard_normal((n, 4))
        y = rng.choice([-1.0, 1.0], n) * X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.standard_normal(n)
        table = pa.table({**{f"x{j}": X[:, j] for j in range(4)}, "y": y})
        pq.write_table(table, folder / f"part{number:03d}.parquet", row_group_size=GROUP)


def fit(folder: str, streams: bool, steps: int) -> dict[str, Any]:
    """One fit, and what it took."""
    import gpcde

    marks: list[tuple[int, float]] = []
    model = gpcde.GPCDE(
        max_steps=steps,
        random_state=0,
        verbose=False,
        callbacks=[lambda _, record: marks.append((record.step, time.process_time()))],
    )
    began = time.process_time()
    rows = gpcde.ParquetRows(folder, target="y")
    looked = None
    if streams:
        from gpcde.estimators.streaming import look_over

        look_over(rows, 0, None, None, False)
        looked = time.process_time() - began
        model.fit(rows)
    else:
        import pyarrow.parquet as pq

        table = pq.read_table(folder).to_pandas()
        model.fit(table[["x0", "x1", "x2", "x3"]], table["y"])
    (first, start), (last, end) = marks[1], marks[-1]
    return {
        "rows": len(rows),
        "how": "streamed" if streams else "in memory",
        "rows_a_cpu_second": (last - first) * 256 / (end - start),
        "pass_cpu_seconds": looked,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "bound": float(model.history_["bound"][-1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 20_000_000])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--fit", nargs=2, metavar=("FOLDER", "HOW"), help="one fit, as JSON")
    args = parser.parse_args()
    if args.fit:
        print(json.dumps(fit(args.fit[0], args.fit[1] == "streamed", args.steps)))
        return
    print("| rows | | rows a CPU second | first pass, CPU s | peak memory, MB |\n|---|---|---|---|---|")
    for place, rows in enumerate(args.rows):
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), rows)
            for how in ("in memory", "streamed") if place == 0 else ("streamed",):
                command = [sys.executable, __file__, "--steps", str(args.steps), "--fit", folder, how]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                line = json.loads(done.stdout.splitlines()[-1])
                looked = "" if line["pass_cpu_seconds"] is None else f"{line['pass_cpu_seconds']:.1f}"
                print(
                    f"| {rows:,} | {how} | {line['rows_a_cpu_second']:,.0f} | {looked} | {line['peak_mb']:,.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
