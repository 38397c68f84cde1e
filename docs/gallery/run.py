"""`python docs/gallery/run.py [name …]`: run the examples and keep their pictures in docs/images.

Where data cannot be had (no network, or a login is needed), an example runs on made-up data of the same kind, and the
picture that is there stays.
"""

import argparse
import runpy
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np

from gpcde import datasets, demo

FOLDER = Path(__file__).parent
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py") if path != Path(__file__))


def made_up_small(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Two branches with noise that grows, in units like those of the classics."""
    x, y = demo.sample(np.random.default_rng(0), 100)
    return 1000 + 400 * x[:, None], 3 + y


def made_up_taxi() -> datasets.Trips:
    """Trips whose ends lie to either side of where they began."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-74.0, -73.95, 200), rng.uniform(40.72, 40.8, 200), rng.normal(size=(200, 4))])
    return datasets.Trips(X, X[:, :2] + rng.choice([-0.01, 0.01], (200, 2)) + 0.002 * rng.normal(size=(200, 2)))


MADE_UP = {"load_small": made_up_small, "load_taxi": made_up_taxi}


def run(name: str, out: Path, offline: bool = False) -> bool:
    """Run an example; whether its picture was drawn from real data and written."""
    import matplotlib.pyplot as plt

    there = {loader: getattr(datasets, loader) for loader in MADE_UP}
    real = True

    def loader_of(loader: str):
        def load(*arguments):
            nonlocal real
            try:
                if offline:
                    raise datasets.DataError("offline")
                return there[loader](*arguments)
            except datasets.DataError as error:
                print(f"{name}: made-up data, since {error}")
                real = False
                return MADE_UP[loader](*arguments)

        return load

    for loader in MADE_UP:
        setattr(datasets, loader, loader_of(loader))
    try:
        figure = runpy.run_path(str(FOLDER / f"{name}.py"))["figure"]
    finally:
        for loader, original in there.items():
            setattr(datasets, loader, original)
    path = out / f"{name}.png"
    if real or not path.exists():
        figure.savefig(path, dpi=100)
    plt.close("all")
    return real


def main() -> None:
    """Some of the examples, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(EXAMPLES)}; default: all")
    names = parser.parse_args().names or EXAMPLES
    for unknown in set(names) - set(EXAMPLES):
        parser.error(f"there is no example {unknown}: there are {', '.join(EXAMPLES)}")
    mpl.use("agg")
    for name in names:
        began = time.perf_counter()
        run(name, FOLDER.parent / "images")
        print(f"{name}: {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
