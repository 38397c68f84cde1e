"""GPCDE() as it comes, beside rivals, on real data: mean test log density by 5 × 2 cross-validation.

    python benchmarks/defaults.py --data DIR [--sets geyser,mcycle,...] [--models ...] [--jobs 2] [--out FILE]

writes one JSON line for every model, data set and split, skips those that are there already, and prints the table.
DIR holds small/*.csv (columns x and y) and uci/*.npz (arrays X and y). The rivals: statsmodels' conditional KDE with
bandwidths by maximum likelihood cross-validation (minutes a fit with many inputs, so not run everywhere), the same
estimator as gpcde has it, an early-stopped mixture density network with five components, and scikit-learn's Gaussian
process (RBF with a lengthscale for each input, plus noise). The wine data are left out: their outputs are whole
numbers, and a density of those is as high as one likes.

With --readme FILE the table is written between the marks <!-- defaults --> and <!-- /defaults --> of that file.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import norm

SMALL, UCI = ("geyser", "mcycle", "lane2", "engel"), ("boston", "concrete", "energy", "yacht")
REPEATS = 5


def read(root: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """X and y of a data set."""
    from gpcde import datasets

    os.environ["GPCDE_DATA_DIR"] = str(root)
    return datasets.load_small(name) if name in SMALL else datasets.load_uci(name)[:2]


def splits(rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Five times, the rows in two halves, each of which is the test set once."""
    out = []
    for seed in range(REPEATS):
        order = np.random.default_rng(seed).permutation(rows)
        one, two = order[: rows // 2], order[rows // 2 :]
        out += [(one, two), (two, one)]
    return out


def own_score(
    X: np.ndarray, y: np.ndarray, test_X: np.ndarray, test_y: np.ndarray, seed: int, model: str
) -> np.ndarray:
    import gpcde

    return getattr(gpcde, model)(random_state=seed).fit(X, y).predict_density(test_X).log_pdf(test_y)


def gp_score(X: np.ndarray, y: np.ndarray, test_X: np.ndarray, test_y: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(X)
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=seed)
    mean, std = model.fit(scaler.transform(X), y).predict(scaler.transform(test_X), return_std=True)
    return norm.logpdf(test_y, mean, std)


def kde_score(X: np.ndarray, y: np.ndarray, test_X: np.ndarray, test_y: np.ndarray, seed: int) -> np.ndarray:
    from statsmodels.nonparametric.kernel_density import KDEMultivariateConditional

    centre, scale, (low, size) = X.mean(0), X.std(0), (y.mean(), y.std())
    scale = np.where(scale > 0, scale, 1.0)
    kinds = "c" * X.shape[1]
    x = (X - centre) / scale
    model = KDEMultivariateConditional((y - low) / size, x, dep_type="c", indep_type=kinds, bw="cv_ml")
    density = model.pdf((test_y - low) / size, (test_X - centre) / scale) / size
    # far from all rows it is 0 / 0: there the unconditional density is what can be said
    blank = ~(np.nan_to_num(density) > 0)
    if blank.any():
        spread = 1.06 * y.std() * len(y) ** -0.2
        density[blank] = norm.pdf(test_y[blank, None], y, spread).mean(1)
    return np.log(np.maximum(density, 1e-300))


MODELS: dict[str, Callable[..., np.ndarray]] = {
    "GPCDE": partial(own_score, model="GPCDE"),
    "KDE cv_ml": kde_score,
    "ConditionalKDE": partial(own_score, model="ConditionalKDE"),
    "MDN": partial(own_score, model="MDN"),
    "GP": gp_score,
}


def run(root: Path, name: str, model: str, number: int, version: str) -> dict[str, object]:
    """One model on one split."""
    X, y = read(root, name)
    train, test = splits(len(y))[number]
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = MODELS[model](X[train], y[train], X[test], y[test], number)
    seconds = time.perf_counter() - began
    result: dict[str, object] = {"data": name, "model": model, "split": number, "seed": number, "rows": len(train)}
    return result | {"log_density": float(np.mean(scores)), "seconds": round(seconds, 3), "version": version}


def table(lines: list[dict[str, object]]) -> str:
    """Means and standard errors over the splits, as Markdown; the best, and those within its error, in bold."""
    models = [m for m in MODELS if any(line["model"] == m for line in lines)]
    out = ["| data | rows | " + " | ".join(models) + " |", "|---" * (len(models) + 2) + "|"]
    for name in dict.fromkeys(str(line["data"]) for line in lines):
        cells, values = [], {}
        for model in models:
            scores = [float(str(x["log_density"])) for x in lines if x["data"] == name and x["model"] == model]
            if scores:
                error = np.std(scores, ddof=1) / len(scores) ** 0.5 if len(scores) > 1 else np.nan
                values[model] = (float(np.mean(scores)), float(error), len(scores))
        best = max(values, key=lambda m: values[m][0])
        for model in models:
            if model not in values:
                cells.append("–")
                continue
            mean, error, count = values[model]
            text = f"{mean:.3f} ± {error:.3f}" + ("" if count == 2 * REPEATS else f" ({count})")
            near = values[best][0] - mean <= max(error, values[best][1])
            cells.append(f"**{text}**" if near else text)
        rows = next(line["rows"] for line in lines if line["data"] == name)
        out.append(f"| {name} | {rows} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("GPCDE_DATA_DIR"), required=False)
    parser.add_argument("--sets", default=",".join(SMALL + UCI))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--readme", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("defaults.jsonl"))
    args = parser.parse_args()
    from gpcde import __version__

    lines = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    done = {(line["data"], line["model"], line["split"]) for line in lines}
    todo = [
        (name, model, number)
        for model in args.models.split(",")
        for name in args.sets.split(",")
        for number in range(2 * REPEATS)
        if (name, model, number) not in done
    ]
    if todo:
        from joblib import Parallel, delayed

        if args.data is None:
            parser.error("say where the data are: --data DIR, or GPCDE_DATA_DIR")
        jobs = Parallel(args.jobs, return_as="generator_unordered")
        with args.out.open("a") as file:
            for line in jobs(delayed(run)(Path(args.data), *unit, __version__) for unit in todo):
                file.write(json.dumps(line) + "\n")
                file.flush()
                lines.append(line)
    order = {name: i for i, name in enumerate(SMALL + UCI)}
    made = table(sorted(lines, key=lambda line: order.get(line["data"], 99)))
    print(made)
    if args.readme:
        before, rest = args.readme.read_text().split("<!-- defaults -->\n")
        after = rest.split("<!-- /defaults -->\n")[1]
        args.readme.write_text(f"{before}<!-- defaults -->\n{made}\n<!-- /defaults -->\n{after}")


if __name__ == "__main__":
    main()
