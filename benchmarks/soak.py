"""A soak: fit, save, load and predict, over and over, and memory must stay flat.

    python benchmarks/soak.py --minutes 60

One fit after the other with the same shapes, in one process, each saved, read again and asked. The first fifth of the
time warms up (programs are compiled, caches filled); from then on the resident memory at the end of a round is noted,
and the medians of the first and the last third of the rounds may differ by 1 %.
"""

import argparse
import gc
import os
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--minutes", type=float, default=60.0)
args = parser.parse_args()

import numpy as np

import gpcde


def resident() -> float:
    """Bytes of memory this process has (Linux)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def round_trip(seed: int, path: str) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 2))
    y = rng.choice([-1.0, 1.0], 200) * X[:, 0] + 0.1 * rng.normal(size=200)
    model = gpcde.GPCDE(max_steps=50, n_inducing=16, random_state=seed, verbose=False).fit(X, y)
    model.save(path)
    again = gpcde.load(path)
    density = again.predict_density(X)
    assert np.array_equal(density.log_pdf(y), model.predict_density(X).log_pdf(y))
    density.quantile([0.1, 0.5, 0.9])


began, rounds, noted = time.monotonic(), 0, []
with tempfile.TemporaryDirectory() as folder:
    while (passed := time.monotonic() - began) < 60 * args.minutes:
        round_trip(rounds, f"{folder}/model")
        gc.collect()
        rounds += 1
        if passed > 12 * args.minutes:
            noted.append(resident())
third = len(noted) // 3
if third < 2:
    raise SystemExit(f"{rounds} rounds are too few to tell: give more minutes")
first, last = (float(np.median(part)) for part in (noted[:third], noted[-third:]))
growth = last / first - 1
ends = f"{first / 2**20:.1f} MiB at first, {last / 2**20:.1f} MiB at last"
print(f"{rounds} rounds in {args.minutes:g} minutes: {ends}, {growth:+.2%}")
raise SystemExit(growth > 0.01)
