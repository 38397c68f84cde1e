"""`python -m gpcde.demo`: learn a density with two branches and changing noise from 400 rows, and draw it.

The data are made here, from a law that is known, so the picture can set the estimate beside the truth.
"""

import time
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float
from scipy.stats import norm

from ._bound import whole
from ._initialise import Design, start
from ._inputs import make_inputs
from ._precision import scope
from ._predict import log_density
from ._quadrature import evenly_spaced
from ._schedule import Geometric
from ._train import Record, State, Trainer, train

STEPS = 300


def branches(x: Float[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The truth: a mixture of two sine branches, the upper one likelier on the right, with noise that grows."""
    upper = 1 / (1 + np.exp(-2 * x))
    return upper, np.sin(2 * x) + 1.2, np.sin(2 * x) - 1.2, 0.1 + 0.15 * (x + 2) / 2


def sample(rng: np.random.Generator, n: int) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    x = rng.uniform(-2, 2, n)
    upper, high, low, spread = branches(x)
    return x, np.where(rng.random(n) < upper, high, low) + spread * rng.standard_normal(n)


def true_density(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    upper, high, low, spread = branches(x)
    return upper * norm.pdf(y, high, spread) + (1 - upper) * norm.pdf(y, low, spread)


class Fitted:
    """A trained model of one input and one output, in the user's units."""

    def __init__(self, x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], design: Design) -> None:
        self.centre, self.scale = (x.mean(), y.mean()), (x.std(), y.std())
        inputs, outputs = self._standard(x, y)
        key = jax.random.key(0)
        state = start(key, inputs, outputs, design)
        trainer = Trainer.create(len(y), Geometric.create(0.03, 0.003, STEPS), 1.0)
        self.state: State
        self.records: list[Record]
        self.state, self.records = train(trainer, key, state, whole(inputs, outputs), STEPS, len(y))

    def _standard(self, x: np.ndarray, y: np.ndarray):  # type: ignore[no-untyped-def]
        standard = [(v - c) / s for v, c, s in zip((x, y), self.centre, self.scale, strict=True)]
        return make_inputs(standard[0][:, None]), standard[1][:, None]

    def log_density(self, x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        inputs, outputs = self._standard(x, y)
        nodes, weights = np.zeros((1, 0)), np.zeros(1)
        if self.state.model.latents.dim:
            nodes, weights = evenly_spaced(201)
        model, posterior = self.state.model, self.state.posterior
        logs = log_density(model, posterior, inputs, outputs, nodes, weights)
        return np.asarray(logs) - np.log(self.scale[1])


def main(path: Path = Path("demo.png")) -> None:
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(0)
    x, y = sample(rng, 400)
    test_x, test_y = sample(rng, 2000)
    with scope():
        began = time.perf_counter()
        model = Fitted(x, y, Design("free-form", inducing=50, points=50, rule="even"))
        seconds = time.perf_counter() - began
        plain = Fitted(x, y, Design("none", inducing=50))
        scores = {
            "the truth": np.log(true_density(test_x, test_y)).mean(),
            "GP-CDE": model.log_density(test_x, test_y).mean(),
            "GP regression": plain.log_density(test_x, test_y).mean(),
        }
        print(
            f"GP-CDE learnt p(y|x) from {len(x)} rows in {seconds:.1f} s. Mean log density of {len(test_x)} test rows:"
        )
        for name, score in scores.items():
            print(f"  {name:14s} {score:7.3f}")

        across, up = np.linspace(-2, 2, 121), np.linspace(-3.2, 3.2, 161)
        grid_x, grid_y = (a.ravel() for a in np.meshgrid(across, up))
        pictures = {
            "the truth": true_density(grid_x, grid_y),
            "GP-CDE": np.exp(model.log_density(grid_x, grid_y)),
            "GP regression": np.exp(plain.log_density(grid_x, grid_y)),
        }
    figure, axes = plt.subplots(1, 3, figsize=(12, 4), sharey=True, layout="constrained")
    for axis, (name, density) in zip(axes, pictures.items(), strict=True):
        axis.pcolormesh(across, up, density.reshape(len(up), len(across)), vmax=1.6, shading="gouraud", rasterized=True)
        axis.scatter(x, y, s=4, c="white", alpha=0.5, linewidths=0)
        axis.set(title=f"{name}: mean log density {scores[name]:.2f}", xlabel="x")
    axes[0].set_ylabel("y")
    figure.savefig(path, dpi=110)
    print(f"The picture: {path.resolve()}")
    if plt.get_backend().lower() != "agg":
        plt.show()


if __name__ == "__main__":
    main()
