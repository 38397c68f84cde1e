"""What devices that share a batch tell each other at each step, beside what they compute: and what 64 would gain.

    python benchmarks/communication.py      the tables of docs/scaling.md, in some minutes

Sums over devices are read from the compiled program of a step on four virtual devices (the collective operations in
its loop, and the bytes of their results). Computing is measured on one device, in CPU milliseconds a step at two sizes
of a batch: a part that every device does, and a part for each row.

The rest is reckoned, not measured: each of P devices takes B / P rows, and a ring sums b bytes in 2 (P - 1) / P b over
the bandwidth, after 2 log2 P times the latency for each operation.
"""

import argparse
import os
import re
import time
from math import log2, prod

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import jax
import numpy as np

import gpcde
from gpcde.inference import Trainer, whole
from gpcde.inference.training import run_chunk
from gpcde.model import make_inputs

DEVICES = 64

NETWORKS = {"10 Gbit/s, 50 µs": (10e9 / 8, 50e-6), "100 Gbit/s, 5 µs": (100e9 / 8, 5e-6)}
"""Bytes a second, and seconds until the first arrives."""

CASES = {
    "the default for 4,096 rows, M = 96": (4, 1, {}),
    "M = 200": (4, 1, {"n_inducing": 200}),
    "20 outputs, M = 100": (8, 20, {"n_inducing": 100}),
    "500 outputs through 10, M = 100": (8, 500, {"n_inducing": 100, "output_dim": 10}),
}
"""Inputs, outputs, and settings."""

OPERATION = re.compile(r"= (\S.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")

BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "pred": 1}


def sums(text: str) -> list[int]:
    """The bytes of each collective operation of a compiled program."""
    found = []
    for shapes, _ in OPERATION.findall(text):
        parts = re.findall(r"(\w+)\[([\d,]*)\]", shapes)
        found.append(sum(BYTES[kind] * prod(int(n) for n in shape.split(",") if n) for kind, shape in parts))
    return found


class Case:
    """A model that has been trained a little, and data."""

    def __init__(self, inputs: int, outputs: int, settings: dict) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(4096, inputs))
        y = np.sin(X @ rng.normal(size=(inputs, outputs))) + 0.1 * rng.normal(size=(4096, outputs))
        self.width = inputs + outputs + 1
        self.model = gpcde.GPCDE(max_steps=50, random_state=0, neighbours=False, verbose=False, **settings).fit(X, y)
        self.data = whole(make_inputs(X), y / y.std(0))

    def arguments(self, rows: int, devices: int | None) -> tuple:
        trainer = Trainer.create(4096, 1e-4, 0.01, devices)
        data, index = self.data.batches(jax.random.key(0), rows, trainer.spread)(0, 50, 50)
        return trainer, jax.random.key(0), self.model.state_, data, index, np.asarray(50), np.zeros(50)

    def bytes(self) -> list[int]:
        """Of each operation of a step."""
        args = self.arguments(256, 4)
        lowered = jax.jit(run_chunk.__wrapped__).lower(*args[0].spread.everywhere(args))
        return sums(lowered.compile().as_text())

    def seconds(self, rows: int) -> float:
        """CPU seconds of a step: the best of three fifties."""
        args, taken = self.arguments(rows, None), []
        for _ in range(4):
            began = time.process_time()
            jax.block_until_ready(run_chunk(*args))
            taken.append((time.process_time() - began) / 50)
        return min(taken[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs=2, default=[32, 1024], help="batches that are measured")
    parser.add_argument("--batches", type=int, nargs="+", default=[4096, 65536], help="batches that are reckoned")
    args = parser.parse_args()
    few, many = args.rows
    lines, later = [], []
    for name, case in CASES.items():
        found = Case(*case)
        told, one, other = found.bytes(), found.seconds(few), found.seconds(many)
        each = (other - one) / (many - few)
        fixed = max(one - few * each, 0.0)
        lines.append(
            f"| {name} | {len(told)} | {sum(told) / 1e3:,.0f} | {8 * found.width} | {1e3 * fixed:.2f} | "
            f"{1e6 * each:.1f} |"
        )
        for batch in args.batches:
            alone, shared = fixed + batch * each, fixed + batch / DEVICES * each
            cells = []
            for bandwidth, latency in NETWORKS.values():
                talk = 2 * (DEVICES - 1) / DEVICES * sum(told) / bandwidth + 2 * log2(DEVICES) * latency * len(told)
                cells.append(f"{1e3 * talk:.2f} | {alone / (shared + talk):.0f}")
            later.append(f"| {name} | {batch:,} | {1e3 * alone:,.0f} | {1e3 * shared:.1f} | {' | '.join(cells)} |")
    print("| model | operations a step | KB summed | bytes a row | ms, the same for all | ms for 1,000 rows |")
    print("|---|---|---|---|---|---|", *lines, sep="\n", end="\n\n")
    networks = " | ".join(f"ms of talk, {name} | speed-up" for name in NETWORKS)
    print(f"| model | batch | ms on one | ms on {DEVICES} | {networks} |\n|---|---|---|---|---|---|---|---|")
    print(*later, sep="\n")


if __name__ == "__main__":
    with gpcde.scope():
        main()
