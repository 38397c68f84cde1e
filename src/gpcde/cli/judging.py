"""score, compare, diagnose: how good a model is, which is best, and whether it can be believed."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from . import options
from .settings import MODELS, make_model
from .telling import show, table

LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Whose coverage is told."""

COMPARED = ("gpcde", "gp", "conditional-kde", "mdn", "linear", "kde")
"""All but those that take long (cvae) or are an extra (flow)."""


@click.command(short_help="Print the mean log density of a table.")
@options.model
@options.data
@options.weights("The column that says what each row counts.")
@options.as_json
@options.known_target
@options.stream
def score(model: str, data: str, weights: str | None, as_json: bool, target: Sequence[str], stream: bool) -> None:
    """Print the mean log density of the y in DATA, and their CRPS (of several outputs, the energy score).

    Of rows that MODEL was not fitted to, this says how good it is: log densities should be high, CRPS low. Of a folder
    of Parquet files, or with --stream, it prints the mean log density alone, and memory stays bounded.
    """
    import numpy as np

    from . import frames

    if stream or Path(data).is_dir():
        facts = frames.score_stream(model, data, target, weights)
        return show(facts if as_json else {name: f"{value:.6g}" for name, value in facts.items()}, as_json)
    asked = frames.ask(model, data, target)
    density, y = asked.density, asked.y()
    weight = asked.model._read_weights(frames.weights_of(asked.source, weights), len(density))
    counted = np.arange(len(density)) if weight is None else np.flatnonzero(weight)
    share = np.ones(len(density)) if weight is None else weight[counted]
    logs = density.log_pdf(y)[counted]
    name, crps = ("crps", density.crps(y)) if density.n_outputs == 1 else ("energy_score", density.energy_score(y))
    mean = float(np.average(logs, weights=share))
    facts = {
        "rows": len(counted),
        "log_density": mean,
        "standard_error": float(np.linalg.norm(share * (logs - mean)) / share.sum()),
        name: float(np.average(crps.reshape(len(density))[counted], weights=share)),
    }
    show(facts if as_json else {name: f"{value:.6g}" for name, value in facts.items()}, as_json)


@click.command(short_help="Print a table of models, the best first.")
@options.data
@options.learnt_target
@options.features
@options.drop
@options.categories
@click.option(
    "--models",
    metavar="NAMES",
    default=",".join(COMPARED),
    show_default=True,
    help=f"Of {', '.join(MODELS)}; or all.",
)
@click.option("--folds", type=click.IntRange(2), default=5, show_default=True, help="Of cross-validation.")
@click.option("--jobs", type=int, default=1, show_default=True, help="How many fits at a time; -1: one a core.")
@options.seed
@options.as_json
def compare(
    data: str,
    target: Sequence[str],
    features: Sequence[str],
    drop: Sequence[str],
    categories: Sequence[str],
    models: str,
    folds: int,
    jobs: int,
    seed: int,
    as_json: bool,
) -> None:
    """Print a table of models of DATA, the best first: cross-validated scores ± their standard errors.

    `log_score` is the mean log density of rows not fitted to (higher is better), `crps` or `energy_score` a distance
    (lower is better), `calibration_error` how far coverage is from what it should be, `seconds` those of a fold.
    """
    names = list(MODELS) if models == "all" else [name.strip() for name in models.split(",")]
    wrong = [name for name in names if name not in MODELS]
    if wrong:
        message = f"there is no model {', '.join(wrong)}; there are {', '.join(MODELS)}"
        raise click.BadParameter(message, param_hint="--models")

    from ..evaluation.compare import compare as compared
    from . import frames

    source = frames.read(data, frames.words(categories))
    X, y = frames.split(source, target, features, drop, categories)
    made = {name: make_model(name, {}, seed) for name in names}
    for model in made.values():
        if hasattr(model, "verbose"):
            model.verbose = False  # one bar is enough
    result = compared(X, y, made, cv=folds, n_jobs=jobs)
    rows = sorted(result, key=lambda row: -row["log_score"])
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    titles = [title for title in rows[0] if title != "model" and not title.endswith(" se")]
    cells = [[row["model"], *(f"{row[title]:.3f} ± {row[title + ' se']:.3f}" for title in titles)] for row in rows]
    click.echo(table(["model", *titles], cells))


@click.command(short_help="Say whether a model can be believed.")
@options.model
@options.data
@options.as_json
@options.known_target
def diagnose(model: str, data: str, as_json: bool, target: Sequence[str]) -> None:
    """Say whether the densities of MODEL can be believed, from the y in DATA, rows it was not fitted to.

    PIT is the probability of less than the y that came, HPD that of a higher density: both are uniform where a model
    is right. Coverage is how often y lay in intervals, or regions of highest density, of a level.
    """
    import numpy as np

    from ..evaluation.diagnostics import hpd_pit, pit, uniformity
    from . import frames
    from .verdict import verdict

    asked = frames.ask(model, data, target)
    density, y = asked.density, asked.y()
    ranks = pit(density, y).reshape(len(density), -1)
    reach = hpd_pit(density, y)
    tests = {f"PIT of {name}": uniformity(ranks[:, i]) for i, name in enumerate(asked.names)} | {
        "HPD": uniformity(reach)
    }
    central = np.abs(2 * ranks - 1)
    covered = [(level, float((central <= level).mean()), float((reach <= level).mean())) for level in LEVELS]
    sentences = verdict(ranks, reach, asked.names)
    if as_json:
        facts: dict[str, Any] = {"rows": len(reach), "tests": {name: test._asdict() for name, test in tests.items()}}
        facts["coverage"] = [dict(zip(("level", "central", "hpd"), row, strict=True)) for row in covered]
        click.echo(json.dumps(facts | {"verdict": sentences}, indent=2))
        return
    shown = [(name, f"{test.statistic:.3f}", f"{test.p_value:.3g}") for name, test in tests.items()]
    click.echo(table(["uniform?", "distance", "p-value"], shown) + "\n")
    cells = [[f"{100 * number:.3g} %" for number in row] for row in covered]
    click.echo(table(["level", "in central intervals", "in regions of highest density"], cells) + "\n")
    click.echo("\n".join(sentences))
