"""`python -m gpcde.demo`: learn a density with two branches and changing noise from 400 rows, and draw it.

The data are made here, from a law that is known, so the picture can set the estimate beside the truth. The data and the
model are written beside the picture, for the commands that are named at the end.
"""

import shutil
import sys
import time
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.stats import norm

from .estimators.gpcde import GPCDE
from .runtime.extras import extra

CUT = 0.5
"""Where the last panel cuts through the density."""


def branches(x: Float[np.ndarray, "*n"]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The truth: a mixture of two sine branches, the upper one likelier on the right, with noise that grows."""
    upper = 1 / (1 + np.exp(-2 * x))
    return upper, np.sin(2 * x) + 1.2, np.sin(2 * x) - 1.2, 0.1 + 0.15 * (x + 2) / 2


def sample(rng: np.random.Generator, n: int) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    x = rng.uniform(-2, 2, n)
    upper, high, low, spread = branches(x)
    return x, np.where(rng.random(n) < upper, high, low) + spread * rng.standard_normal(n)


def true_density(x: Float[np.ndarray, "..."], y: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    upper, high, low, spread = branches(x)
    return upper * norm.pdf(y, high, spread) + (1 - upper) * norm.pdf(y, low, spread)


def main(path: Path = Path("demo.png")) -> None:
    """Learn, draw, and say what to try next; `path` is the picture's, the data and the model go beside it."""
    with extra("plot"):
        import matplotlib.pyplot as plt
    with extra("cli"):
        import pandas as pd

    def table(x: Float[np.ndarray, " n"]) -> pd.DataFrame:
        return pd.DataFrame({"x": x})

    rng = np.random.default_rng(0)
    x, y = sample(rng, 400)
    test_x, test_y = sample(rng, 2000)
    models = {"GP-CDE": GPCDE(random_state=0), "GP regression": GPCDE(inference="none", random_state=0)}
    scores = {"the truth": np.log(true_density(test_x, test_y)).mean()}
    for name, model in models.items():
        began = time.perf_counter()
        scores[name] = model.fit(table(x), pd.DataFrame({"y": y})).score(table(test_x), test_y)
        if name == "GP-CDE":
            print(f"GP-CDE learnt p(y|x) from {len(x)} rows in {time.perf_counter() - began:.1f} s.")
    print(f"Mean log density of {len(test_x)} test rows:")
    for name, score in scores.items():
        print(f"  {name:14s} {score:7.3f}")

    across, up = np.linspace(-2, 2, 121), np.linspace(-3.2, 3.2, 161)
    pictures = {"the truth": true_density(across[:, None], up)}
    pictures |= {name: model.predict_density(table(across)).pdf_grid(up) for name, model in models.items()}
    figure, axes = plt.subplots(1, 4, figsize=(15, 4), layout="constrained")
    for axis, (name, density) in zip(axes, pictures.items(), strict=False):
        axis.pcolormesh(across, up, density.T, vmax=1.6, shading="gouraud", rasterized=True)
        axis.scatter(x, y, s=4, c="white", alpha=0.5, linewidths=0)
        axis.axvline(CUT, c="white", lw=0.5)
        axis.set(title=f"{name}: mean log density {scores[name]:.2f}", xlabel="x", ylabel="y", ylim=(-3.2, 3.2))
    band = models["GP-CDE"].sample_densities(table(np.array([CUT])), 50, random_state=0).band(0.9, up)
    axes[3].fill_between(up, band.lower[0], band.upper[0], alpha=0.4, label="GP-CDE, 90 % band")
    axes[3].plot(up, band.mean[0], label="GP-CDE, mean")
    axes[3].plot(up, true_density(np.full_like(up, CUT), up), "k--", lw=1, label="the truth")
    axes[3].set(title=f"at x = {CUT}", xlabel="y")
    axes[3].legend()
    figure.savefig(path, dpi=110)
    data, model_file = path.with_suffix(".csv"), path.with_suffix(".gpcde")
    table(x).assign(y=y).to_csv(data, index=False)
    models["GP-CDE"].save(model_file)
    print(f"The picture: {path.resolve()}\nNow try:")
    for command in (
        f"explore {model_file} --data {data}",
        f"predict {model_file} {data} --mean --hdr 0.9",
        f"compare {data} --target y",
    ):
        print(f"  {_script()} {command}")
    if plt.get_backend().lower() != "agg":
        plt.show()


def _script() -> str:
    """What to type for the command line: its name, or where it is if that is not enough."""
    here = Path(sys.executable).with_name("gpcde")
    if not here.is_file() or shutil.which("gpcde") == str(here):
        return "gpcde"
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)


if __name__ == "__main__":
    main()
