"""CPU seconds to a test score: GPCDE, MDN, a spline flow and GPflow's SVGP, each given more and more of them.

    python benchmarks/until.py [--tf TF_PYTHON] [--problems kin8nm power protein] [--size 5000]
        [--out benchmarks/until.jsonl] [--figure benchmarks/until.png]

Every point is a fit of its own with that many steps or epochs at most, the last as the estimator comes; what is written
is not done again. Programs are compiled before, by a fit of one step, and their time is not counted. GPflow's SVGP
(`peers/peer_svgp.py`, in the environment of TF_PYTHON) is asked as it goes, and its answers are not counted either: 192
inducing inputs, natural gradients of size 0.1, Adam at 0.01, batches of 256. Data are of the tuning part.
"""

import argparse
import json
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gpcde
from gpcde.reproduce.lines import append_line, read_lines

from collection import Split, collection
from defaults import LEAST

HERE = Path(__file__).parent
MODELS: dict[str, tuple[Callable[..., Any], str, tuple[int | None, ...]]] = {
    "GPCDE": (gpcde.GPCDE, "max_steps", (50, 100, 200, 400, 800, 1600, None)),
    "MDN": (gpcde.MDN, "max_epochs", (3, 10, 30, 100, None)),
    "Flow": (gpcde.Flow, "max_epochs", (3, 10, 30, None)),
}
"""The estimators, what bounds their training, and its values; None: as they come."""


def measure(name: str, split: Split) -> list[dict[str, Any]]:
    """CPU seconds and mean log density of test rows, for every bound."""
    estimator, bound, values = MODELS[name]
    estimator(**{bound: 1}, random_state=0).fit(split.X_train, split.y_train)
    out = []
    for value in values:
        settings = {} if value is None else {bound: value}
        began = time.process_time()
        model = estimator(**settings, random_state=0).fit(split.X_train, split.y_train)
        cpu = time.process_time() - began
        scores = np.maximum(model.predict_density(split.X_test).log_pdf(split.y_test), LEAST)
        out.append({"bound": value, "cpu": round(cpu, 2), "log_density": round(float(scores.mean()), 4)})
    return out


def measure_svgp(python: str, split: Split) -> list[dict[str, Any]]:
    """The same of GPflow's SVGP, in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, **{k: v for k, v in split._asdict().items() if v is not None})
        done = subprocess.run(
            [python, str(HERE / "peers" / "peer_svgp.py"), str(path)], check=True, capture_output=True, text=True
        )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    """A panel for each data set."""
    from matplotlib.figure import Figure

    problems = list(dict.fromkeys(line["problem"] for line in lines))
    figure = Figure((4.2 * len(problems), 3.4), layout="constrained")
    for panel, problem in zip(figure.subplots(1, len(problems), squeeze=False)[0], problems, strict=True):
        here = [line for line in lines if line["problem"] == problem]
        for line in here:
            cpu, score = zip(*((p["cpu"], p["log_density"]) for p in line["points"]), strict=True)
            panel.plot(cpu, score, "o-", label=line["model"], markersize=4)
        # where models that fail at first would leave nothing to be seen of the rest
        ends = [line["points"][-1]["log_density"] for line in here]
        panel.set_ylim(min(ends) - 0.3, max(ends) + 0.05)
        panel.set_xscale("log")
        panel.set_xlabel("CPU seconds")
        panel.set_title(f"{problem}, {here[0]['size']} rows", fontsize=10)
        panel.grid(alpha=0.3)
    figure.axes[0].set_ylabel("test log density")
    figure.axes[-1].legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tf", help="Python with GPflow")
    parser.add_argument("--problems", nargs="+", default=["kin8nm", "power", "protein"])
    parser.add_argument("--size", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=HERE / "until.jsonl")
    parser.add_argument("--figure", type=Path, default=HERE / "until.png")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    problems = {problem.name: problem for problem in collection("tune")}
    for name in args.problems:
        split = problems[name].load(args.size, 0)
        for model in (*MODELS, *(["SVGP (GPflow)"] if args.tf else [])):
            unit = {"problem": name, "size": args.size, "model": model}
            if any(all(line[k] == v for k, v in unit.items()) for line in read_lines(args.out)):
                continue
            points = measure(model, split) if model in MODELS else measure_svgp(args.tf, split)
            append_line(args.out, {**unit, "points": points})
            print(name, model, points, flush=True)
    draw([line for line in read_lines(args.out) if line["size"] == args.size], args.figure)


if __name__ == "__main__":
    main()
