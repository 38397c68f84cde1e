"""GPCDE() as it comes, beside rivals that are tuned, on the data sets of `benchmarks/collection.py`.

    python benchmarks/defaults.py --part tune|report [--models ...] [--problems ...] [--sizes ...] [--seeds 0 1 2]
        [--jobs 1] [--out benchmarks/defaults.jsonl] [--readme README.md] [--tables-only]

Settings may be chosen by the part "tune"; "report" is for the table, which --readme puts into that file. One JSON line
is written for each data set, size, seed and model, and what is there is not done again; a fit that fails is a line with
its error. Lines keep the log density of every test row, so that any two models can be compared pair by pair. CPU
seconds are of all threads; the first seed of a size compiles (`cold`), and the table has the medians of those fits and
of the others, and their ratios to the MDN's; prediction is timed when it is done again. CRPS (of several outputs, the
energy score) and calibration error are of the first 500 test rows.

The rivals, each with early stopping or a search of its own:
    MDN              5 or 10 components, rate 0.001 or 0.003, early stopped; the best of the four by the rows they hold
                     out, its seconds those of all four; full covariances where there are several outputs
    Networks         the ensemble of mixture networks that stands beside GPCDE from 100 rows on, alone: of all rows, for
                     as many passes as held-out rows had said
    Flow             a spline flow, early stopped
    ConditionalKDE   all bandwidths by leave-one-out likelihood; KDE the same without inputs
    statsmodels      KDEMultivariateConditional's bandwidths by "cv_ml" (one output, up to 2 inputs and 200 rows)
    GP               sparse, by gpcde; ExactGP scikit-learn's (one output, up to 1,000 rows, fewer of many inputs)
    NGBoost          a normal density by boosted trees, early stopped (one output)
    LinearGaussian
Stacked (up to 400 rows) has GPCDE in it, so it is no rival: the summary says how often it is better.
"""

import argparse
import base64
import subprocess
import time
import warnings
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from joblib import Parallel, delayed
from scipy.special import log_softmax

import gpcde
from gpcde.density.components import Components
from gpcde.density.transforms import OutputTransform, standard_units
from gpcde.estimators.base import Rows, seed_of
from gpcde.estimators.companions import ENOUGH_FOR_NETWORKS
from gpcde.estimators.ensemble import Ensemble
from gpcde.estimators.network_training import split_rows
from gpcde.model import make_inputs
from gpcde.reproduce.lines import append_line, read_lines

from collection import Split, collection
from pages import put

CHECKED, LEAST = 500, -1000.0
"""Test rows for CRPS and calibration; the least log density that counts: one row must not make a mean infinite."""

Line = dict[str, Any]
Predictor = Callable[[np.ndarray], Any]

# models: from rows and a seed to a function from inputs to densities


def own(name: str, **settings: Any) -> Callable[[np.ndarray, np.ndarray, int], Predictor]:
    """An estimator of gpcde."""

    def fit(X: np.ndarray, y: np.ndarray, seed: int) -> Predictor:
        seeded = {} if name == "LinearGaussian" else {"random_state": seed}
        return getattr(gpcde, name)(**seeded, **settings).fit(X, y).predict_density

    return fit


def tuned_mdn(X: np.ndarray, y: np.ndarray, seed: int) -> Predictor:
    covariance = "full" if y.ndim > 1 else "diagonal"
    models = [
        gpcde.MDN(n_components=k, learning_rate=rate, covariance=covariance, random_state=seed).fit(X, y)
        for k in (5, 10)
        for rate in (1e-3, 3e-3)
    ]
    # one seed, so the same rows are held out by all of them
    held = split_rows(np.random.default_rng(seed_of(seed)), len(y), models[0].validation_fraction)[1]
    return max(models, key=lambda model: model.predict_density(X[held]).log_pdf(y[held]).mean()).predict_density


def networks(X: np.ndarray, y: np.ndarray, seed: int) -> Predictor:
    outputs = y.reshape(len(y), -1)
    units, (shift, unit) = OutputTransform.fit(outputs), standard_units(X)
    rows = Rows(make_inputs((X - shift) / unit), units.to_standard(outputs), np.ones(len(y)))
    made = Ensemble.of(rows, (), seed, before=Ensemble.of(rows, (), seed))
    return lambda at: gpcde.ConditionalDensity(
        made.components(make_inputs((at - shift) / unit)), units, flat=y.ndim == 1
    )


def mixture(log_weight: np.ndarray, mean: np.ndarray, std: np.ndarray) -> gpcde.ConditionalDensity:
    """Mixtures of one output, n × k, as gpcde has them."""
    parts = Components(log_weight, mean[..., None], std[..., None] ** 2)
    return gpcde.ConditionalDensity(parts, OutputTransform.identity(1), flat=True)


def normal(mean: np.ndarray, std: np.ndarray) -> gpcde.ConditionalDensity:
    return mixture(np.zeros((1, 1)), mean[:, None], std[:, None])


def exact_gp(X: np.ndarray, y: np.ndarray, seed: int) -> Predictor:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=seed)
    model = make_pipeline(StandardScaler(), process).fit(X, y)
    return lambda at: normal(*model.predict(at, return_std=True))


def ngboost(X: np.ndarray, y: np.ndarray, seed: int) -> Predictor:
    from ngboost import NGBRegressor

    kept, held = split_rows(np.random.default_rng(seed), len(y), 0.2)
    model = NGBRegressor(n_estimators=2000, learning_rate=0.01, random_state=seed, verbose=False)
    model.fit(X[kept], y[kept], X[held], y[held], early_stopping_rounds=50)
    trees = model.best_val_loss_itr + 1
    return lambda at: normal(*(model.pred_dist(at, max_iter=trees).params[name] for name in ("loc", "scale")))


def statsmodels_kde(X: np.ndarray, y: np.ndarray, seed: int) -> Predictor:
    """Its bandwidths; its density by logarithms, so that it is not 0 / 0 far from all rows."""
    from statsmodels.nonparametric.kernel_density import KDEMultivariateConditional

    unit_x, unit_y = X.std(0), y.std()
    found = KDEMultivariateConditional(y / unit_y, X / unit_x, "c", "c" * X.shape[1], bw="cv_ml").bw

    def predict(at: np.ndarray) -> gpcde.ConditionalDensity:
        gap = (at[:, None] - X) / (unit_x * found[1:])
        weight = log_softmax(-0.5 * (gap**2).sum(2), axis=1)
        return mixture(weight, np.broadcast_to(y, weight.shape), np.full((1, 1), found[0] * unit_y))

    return predict


class Model(NamedTuple):
    """How it is fitted, the package it needs, and whether it is for so many rows, inputs and outputs."""

    fit: Callable[[np.ndarray, np.ndarray, int], Predictor]
    package: str = "gpcde"
    suits: Callable[[int, int, int], bool] = lambda n, d, outputs: True


MODELS = {
    "GPCDE": Model(own("GPCDE", verbose=False)),
    "MDN": Model(tuned_mdn),
    "Networks": Model(networks, suits=lambda n, d, outputs: n >= ENOUGH_FOR_NETWORKS),
    "Flow": Model(own("Flow"), "flowjax"),
    "ConditionalKDE": Model(own("ConditionalKDE")),
    "KDE": Model(own("KDE")),
    "statsmodels": Model(statsmodels_kde, "statsmodels", lambda n, d, outputs: n <= 200 and d <= 2 and outputs == 1),
    "GP": Model(own("GP", verbose=False)),
    "ExactGP": Model(exact_gp, suits=lambda n, d, outputs: n <= 1000 and n * n * d <= 2e7 and outputs == 1),
    "NGBoost": Model(ngboost, "ngboost", lambda n, d, outputs: outputs == 1),
    "LinearGaussian": Model(own("LinearGaussian")),
    "Stacked": Model(own("Stacked"), suits=lambda n, d, outputs: n <= 400),
}

# lines


def packed(values: np.ndarray) -> str:
    """Numbers as text: 32-bit, to 12 binary digits (a relative error of 2.5e-4 at most), byte by byte, zlib."""
    bits = (np.asarray(values, np.float32).view(np.uint32) + np.uint32(1 << 11)) & np.uint32(0xFFFFF000)
    return base64.b64encode(zlib.compress(bits.view(np.uint8).reshape(-1, 4).T.tobytes(), 9)).decode()


def unpacked(text: str) -> np.ndarray:
    """The numbers again."""
    data = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    return np.ascontiguousarray(data.reshape(4, -1).T).view(np.float32).ravel().astype(float)


def scores(model: str, split: Split, seed: int) -> Line:
    """One fit, judged."""
    began = time.process_time()
    predict = MODELS[model].fit(split.X_train, split.y_train, seed)
    fitted = time.process_time()
    logs = np.maximum(predict(split.X_test).log_pdf(split.y_test), LEAST)
    again = time.process_time()
    predict(split.X_test).log_pdf(split.y_test)
    done = time.process_time()
    if not np.isfinite(logs).all():
        raise FloatingPointError(f"the log density of {np.sum(~np.isfinite(logs))} test rows is not finite")
    some, y = predict(split.X_test[:CHECKED]), split.y_test[:CHECKED]
    line = {"log_density": float(logs.mean()), "crps": float(np.mean(some.energy_score(y, size=500)))}
    line |= {"calibration_error": gpcde.coverage(some, y).error, "rows": packed(logs)}
    if not np.isfinite(line["crps"]):
        raise FloatingPointError("the CRPS of a test row is not finite")
    return line | {"cpu_fit": round(fitted - began, 3), "cpu_predict": round(done - again, 3)}


def run(name: str, size: int, model: str, seeds: list[int], out: Path, made_by: Line) -> None:
    """One model on one data set at one size, seed by seed; what was compiled for it is dropped at the end."""
    problem = next(p for p in collection() if p.name == name)
    for seed in seeds:
        split = problem.load(size, seed)
        line: Line = {"problem": name, "size": size, "seed": seed, "model": model, "cold": seed == seeds[0]} | made_by
        line["truth"] = None if split.truth is None else float(split.truth.mean())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                line |= scores(model, split, seed)
        except Exception as error:  # a rival's failure must not end the run, and ours is to be seen
            line["error"] = f"{type(error).__name__}: {error}"[:500]
        append_line(out, line)
        print(name, size, model, seed, line.get("error") or f"{line['log_density']:.4f}", flush=True)
    jax.clear_caches()


# tables


def difference(one: list[Line], two: list[Line]) -> tuple[float, float]:
    """The mean paired difference of log densities, and its error: the larger of that over all rows and over seeds."""
    gaps = [unpacked(a["rows"]) - unpacked(b["rows"]) for a, b in zip(one, two, strict=True)]
    pooled, means = np.concatenate(gaps), np.array([gap.mean() for gap in gaps])
    errors = [values.std(ddof=1) / len(values) ** 0.5 for values in (pooled, means) if len(values) > 1]
    return float(pooled.mean()), float(max(errors))


def cpu(lines: list[Line], cold: bool) -> float:
    """The median of CPU seconds to fit and to predict, of the fits that compiled or that found all compiled."""
    return float(np.median([line["cpu_fit"] + line["cpu_predict"] for line in lines if line["cold"] == cold]))


def table(lines: list[Line], names: list[str]) -> str:
    """GPCDE beside the best of its rivals, which the test rows themselves choose: in favour of the rivals."""
    titles = (
        "data",
        "rows",
        "GPCDE",
        "best rival",
        "its score",
        "difference",
        "below the truth",
        "CPU seconds: first / later",
        "of the MDN's",
    )
    out = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    found: dict[tuple[str, int], dict[str, dict[int, Line]]] = {}
    for line in lines:
        found.setdefault((line["problem"], line["size"]), {}).setdefault(line["model"], {})[line["seed"]] = line
    level, failed, gaps, stacked = 0, 0, [], []
    ratios: dict[bool, list[float]] = {False: [], True: []}
    for name, size in sorted(found, key=lambda key: (names.index(key[0]), key[1])):
        seeds = sorted(found[name, size].get("GPCDE", {}))
        runs = {model: [of.get(seed, {"error": ""}) for seed in seeds] for model, of in found[name, size].items()}
        whole = {model: some for model, some in runs.items() if some and not any("error" in line for line in some)}
        means = {model: float(np.mean([line["log_density"] for line in some])) for model, some in whole.items()}
        rivals = set(means) - {"GPCDE", "Stacked"}
        if not rivals:
            continue
        best = max(sorted(rivals), key=means.__getitem__)
        own_score, text, truth, spent, ratio = "failed", "–", "–", "–", "–"
        if "GPCDE" not in whole:
            failed += 1
        else:
            own_score = f"{means['GPCDE']:.3f}"
            gap, error = difference(whole["GPCDE"], whole[best])
            gaps.append((gap, f"{name} with {size} rows"))
            level += gap >= -error
            text = f"{'**' * (gap >= -error)}{gap:+.3f} ± {error:.3f}{'**' * (gap >= -error)}"
            if whole["GPCDE"][0]["truth"] is not None:
                truth = f"{np.mean([line['truth'] - line['log_density'] for line in whole['GPCDE']]):.3f}"
            times = {line["cold"] for line in whole["GPCDE"]}
            spent = " / ".join(f"{cpu(whole['GPCDE'], cold):.2g}" for cold in sorted(times, reverse=True))
            if "MDN" in whole:
                kinds = times & {line["cold"] for line in whole["MDN"]}
                for cold in kinds:
                    ratios[cold].append(cpu(whole["GPCDE"], cold) / cpu(whole["MDN"], cold))
                ratio = " / ".join(f"{ratios[cold][-1]:.1f}" for cold in sorted(kinds, reverse=True))
            if "Stacked" in whole:
                ahead, error = difference(whole["Stacked"], whole["GPCDE"])
                stacked.append(ahead > error)
        out.append(
            f"| {name} | {size} | {own_score} | {best} | {means[best]:.3f} | {text} | {truth} | {spent} | {ratio} |"
        )
    first = sum(gap >= 0 for gap, _ in gaps)
    facts = [f"Of {len(gaps) + failed}, GPCDE is first on {first}, and first or within one standard error on {level}"]
    facts += [f"it failed on {failed}"] if failed else []
    facts += ["its worst difference is {:+.3f} ({})".format(*min(gaps))] if gaps else []
    for cold, how in ((True, "where both compile"), (False, "once all is compiled")):
        facts += [f"its CPU time is {np.median(ratios[cold]):.1f} of the MDN's {how}"] if ratios[cold] else []
    facts += [f"Stacked, which has it as a member, is above it on {sum(stacked)} of {len(stacked)}"] if stacked else []
    return "\n".join([*out, "", "; ".join(facts) + "."])


def commit() -> str:
    """The commit, with a + where src was changed since."""
    here = ["git", "-C", str(Path(__file__).parents[1])]
    commands = ["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", "src"]
    name, changes = (subprocess.run(here + c, capture_output=True, text=True).stdout.strip() for c in commands)
    return name + "+" * bool(changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("tune", "report"), required=True)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--problems", nargs="+")
    parser.add_argument("--sizes", nargs="+", type=int)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("defaults.jsonl"))
    parser.add_argument("--readme", type=Path, help="write the table between its marks <!-- defaults --> there")
    parser.add_argument("--tables-only", action="store_true")
    args = parser.parse_args()
    if args.readme and args.part != "report":
        parser.error("--readme needs --part report: the README shows the part that nothing was chosen by")
    problems = collection(args.part)
    names = [problem.name for problem in problems]
    if strange := set(args.problems or ()) - set(names):
        parser.error(f"not in the part {args.part}: {sorted(strange)}; there are {names}")

    def lines() -> list[Line]:
        return [line for line in read_lines(args.out) if line.get("problem") in names]

    if not args.tables_only:
        done = {(line["problem"], line["size"], line["model"], line["seed"]) for line in lines()}
        models = [name for name in args.models if find_spec(MODELS[name].package)]
        for name in sorted(set(args.models) - set(models)):
            print(f"{name} is left out: {MODELS[name].package} is not installed (pip install 'gpcde[benchmark,flow]')")
        todo = []
        for problem in (p for p in problems if p.name in (args.problems or names)):
            for size in (n for n in problem.sizes() if n in (args.sizes or [n])):
                X, y, *_ = problem.load(size, 0)
                shape = size, X.shape[1], y.shape[1] if y.ndim > 1 else 1
                for model in (m for m in models if MODELS[m].suits(*shape)):
                    seeds = [seed for seed in args.seeds if (problem.name, size, model, seed) not in done]
                    todo += [(problem.name, size, model, seeds)] if seeds else []
        made_by = {"version": gpcde.__version__, "commit": commit()}
        Parallel(args.jobs)(delayed(run)(*unit, args.out, made_by) for unit in todo)
    made = table(lines(), names)
    print(made)
    if args.readme:
        put(args.readme, "defaults", made)


if __name__ == "__main__":
    main()
