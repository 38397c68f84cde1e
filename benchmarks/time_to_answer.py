"""From `fit` to an answer on 300 rows: in a new process, and again with data of the same shape.

    python benchmarks/time_to_answer.py

The law is the demo's (two branches, changing noise). Import is not counted. Cold, most of the time is compilation.
"""

import time

import numpy as np

from gpcde import GPCDE, demo


def once(seed: int) -> tuple[float, int]:
    """Seconds to fit 300 rows and to answer for one, and the steps taken."""
    x, y = demo.sample(np.random.default_rng(seed), 300)
    began = time.perf_counter()
    model = GPCDE(random_state=seed).fit(x[:, None], y)
    model.predict_density(x[:1, None]).quantile([0.05, 0.5, 0.95])
    return time.perf_counter() - began, model.n_steps_


if __name__ == "__main__":
    for seed in range(6):
        seconds, steps = once(seed)
        print(f"{'cold' if seed == 0 else 'again'} {seconds:6.2f} s, {steps} steps")
