"""Measure gpcde beside its peers in one run, and print the tables of benchmarks/README.md.

    python benchmarks/run.py --tf TF_PYTHON --pt TORCH_PYTHON [--out results.jsonl] [--rounds 2] [--steps 20]
    python benchmarks/run.py --table results.jsonl        only print the tables again

TF_PYTHON and TORCH_PYTHON are the interpreters of two environments, for the peers in benchmarks/peers:
    pip install tensorflow==2.21.0 tf-keras==2.21.0 tensorflow-probability==0.25.0 gpflow==2.11.2 gpflux==0.4.5
    pip install torch==2.13.0 gpytorch==1.15.2
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

HERE = Path(__file__).parent
# arithmetic of the least step known: GFLOP of products, and millions of exponentials (one forward and backward pass
# for both optimisers, one variance product for all outputs, a matrix inverse for each output's natural step; for a,
# the separated kernel on the 52 of 100 nodes whose weight is above 1e-16)
WORK = {"a": (0.820, 0.056), "b": (0.213, 0.2), "c": (0.664, 0.05), "d": (1.953, 0.05)}


def machine() -> dict[str, float]:
    """GFLOP/s of a large float64 product on two threads, and million float64 exponentials a second on one."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3000, 3000))
    x = -np.abs(rng.standard_normal(5_000_000))

    def best(work, repeats: int = 4) -> float:
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        return min(times)

    with threadpool_limits(2):
        return {"gflops": 2 * 3000**3 / best(lambda: a @ b) / 1e9, "mexp": 5 / best(lambda: np.exp(x))}


def measure(args: argparse.Namespace) -> None:
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    with open(args.out, "a") as out:
        print(json.dumps({"machine": machine()}), file=out, flush=True)
        for _ in range(args.rounds):
            for workload in "abcd":
                for dtype in ("float64", "float32"):
                    runs = [[sys.executable, "step.py"]]
                    if args.tf:
                        runs += [[args.tf, "peers/peer_gpflow.py", "--fused"]]
                        runs += [[args.tf, "peers/peer_gpflux.py"]] * (workload == "b")
                    if args.pt:
                        runs += [[args.pt, "peers/peer_gpytorch.py"]]
                    for run in runs if dtype == "float64" else runs[:1] + runs[1:] * args.float32:
                        command = [*run, "--workload", workload, "--dtype", dtype]
                        command += ["--repeats", str(args.repeats), "--steps", str(args.steps)]
                        print("+", *command[1:], file=sys.stderr, flush=True)
                        try:
                            done = subprocess.run(
                                command, cwd=HERE, capture_output=True, text=True, timeout=900,
                                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                            )  # fmt: skip
                            line = next(text for text in done.stdout.splitlines()[::-1] if text.startswith("{"))
                            print(line, file=out, flush=True)
                        except (subprocess.TimeoutExpired, StopIteration) as error:
                            print(f"  no result: {error!r}", file=sys.stderr)
        for rows in (10_000, 100_000, 1_000_000):
            command = [sys.executable, "step.py", "--workload", "b", "--rows", str(rows), "--no-predict"]
            done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=600)
            print(json.dumps({"rows": rows, **json.loads(done.stdout.splitlines()[-1])}), file=out, flush=True)


def table(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    speed = next(line["machine"] for line in lines if "machine" in line)
    results: dict[tuple[str, str, str], list[dict]] = {}
    for line in lines:
        if "peer" in line and "rows" not in line:
            results.setdefault((line["workload"], line["dtype"], line["peer"]), []).append(line)

    def step(key: tuple[str, str, str]) -> float:
        return median(line["step_ms"]["median"] for line in results[key])

    def cpu(key: tuple[str, str, str]) -> float:
        return median(line["step_ms"]["cpu_median"] for line in results[key])

    def memory(key: tuple[str, str, str]) -> float:
        return max(line["peak_rss_mb"] for line in results[key])

    print(f"Machine: {speed['gflops']:.0f} GFLOP/s (float64 product, 2 threads), {speed['mexp']:.0f} million exp/s.\n")
    print("| workload | type | library | step, ms | times ours | CPU, ms | times ours | memory, MB | first step, s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for workload in "abcd":
        gflop, mexp = WORK[workload]
        floor = 1e3 * (gflop / speed["gflops"] + mexp / speed["mexp"])
        for dtype in ("float64", "float32"):
            keys = sorted((k for k in results if k[:2] == (workload, dtype)), key=step)
            for key in keys:
                ours = workload, dtype, "gpcde"
                first = min(line["first_step_s"] for line in results[key])
                numbers = f"{step(key):.1f} | {step(key) / step(ours):.1f} | {cpu(key):.1f} | "
                numbers += f"{cpu(key) / cpu(ours):.1f} | {memory(key):.0f} | {first:.1f}"
                print(f"| {workload} | {dtype} | {key[2]} | {numbers} |")
        print(f"| {workload} | float64 | *arithmetic alone* | *{floor:.1f}* | | | | | |")
    print("\n| predictive log density, 1000 points × 1000 draws (b) | type | ms | times slower than gpcde |")
    print("|---|---|---|---|")
    for dtype in ("float64", "float32"):
        times = {
            key[2]: median(line["predict_ms"]["median"] for line in found)
            for key, found in results.items()
            if key[:2] == ("b", dtype) and "predict_ms" in found[0]
        }
        for peer, value in sorted(times.items(), key=lambda item: item[1]):
            print(f"| {peer} | {dtype} | {value:.0f} | {value / times['gpcde']:.1f} |")
    print("\n| rows of data (b) | step, ms |\n|---|---|")
    for line in lines:
        if "rows" in line:
            print(f"| {line['rows']:,} | {line['step_ms']['median']:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tf", help="Python with GPflow and GPflux")
    parser.add_argument("--pt", help="Python with GPyTorch")
    parser.add_argument("--out", default=str(HERE / "results.jsonl"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5, help="blocks of steps")
    parser.add_argument("--steps", type=int, default=20, help="steps a block")
    parser.add_argument("--float32", action="store_true", help="the peers in float32 too")
    parser.add_argument("--table", type=Path, help="print the tables of this file and stop")
    args = parser.parse_args()
    if args.table is None:
        Path(args.out).unlink(missing_ok=True)
        measure(args)
    table(args.table or Path(args.out))


if __name__ == "__main__":
    main()
