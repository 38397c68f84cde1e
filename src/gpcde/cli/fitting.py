"""fit: learn a model from a table.   info: what a model's file holds."""

import inspect
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import options
from . import processes as many
from .settings import MODELS, make_model, parameters
from .telling import show, tell

if TYPE_CHECKING:
    from ..estimators.base import DensityEstimator


@click.command(short_help="Learn a model from a table.")
@options.data
@options.learnt_target
@options.file_out("The model.  [default: DATA's name, .gpcde]")
@options.features
@options.drop
@options.categories
@options.weights("The column that says what each row counts.")
@click.option(
    "--model", "kind", type=click.Choice(list(MODELS)), default="gpcde", show_default=True, help="Which model."
)
@options.settings
@options.config
@click.option(
    "--checkpoint",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Save training here every minute; the same command, given again, goes on from there.",
)
@options.seed
@options.stream
@click.option(
    "--processes",
    metavar="N|auto",
    help="Share the rows of a batch among N processes on this machine, or those that a cluster started (auto).",
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
def fit(
    data: str,
    target: Sequence[str],
    out: str | None,
    features: Sequence[str],
    drop: Sequence[str],
    categories: Sequence[str],
    weights: str | None,
    kind: str,
    assignments: Sequence[str],
    config: str | None,
    checkpoint: str | None,
    seed: int,
    stream: bool,
    processes: str | None,
    quiet: bool,
) -> int:
    """Learn p(target | features) from the rows of DATA, and write the model to a file.

    DATA may be a folder of Parquet files, larger than memory. Ctrl-C ends training and keeps the model so far.

    \b
    gpcde fit trips.csv --target lon,lat --drop id --out trips.gpcde
    gpcde fit trips.csv --target fare --set y_transform=log --set max_steps=500
    """
    several = many.check(processes)
    if several is not None:
        if data == "-":
            raise click.BadParameter("each process reads DATA, which cannot be a pipe", param_hint="--processes")
        return many.start(several, click.get_current_context().find_root().obj)
    if not out and (data == "-" or not Path(data).name):
        raise click.BadParameter("name the file for the model", param_hint="--out")
    path = Path(out) if out else Path(data).with_suffix(".gpcde")
    options.check_writable(path)
    values = parameters(assignments, config)
    if checkpoint is not None:
        values["checkpoint"] = checkpoint
    model = make_model(kind, values, seed)
    if weights and "sample_weight" not in inspect.signature(model.fit).parameters:
        raise click.BadParameter(f"a {type(model).__name__} takes none", param_hint="--weights")

    with many.joined(processes) as devices:
        return _fit(model, data, target, features, drop, categories, weights, stream, devices, path, quiet)


def _fit(
    model: "DensityEstimator",
    data: str,
    target: Sequence[str],
    features: Sequence[str],
    drop: Sequence[str],
    categories: Sequence[str],
    weights: str | None,
    stream: bool,
    devices: str | None,
    path: Path,
    quiet: bool,
) -> int:
    """Learn from the rows, and write the model."""
    from ..estimators.gpcde import GPCDE
    from ..inference.data import StreamError
    from ..inference.training import LostProcess
    from ..runtime.spread import is_first
    from . import frames, progress

    if devices is not None:
        if not isinstance(model, GPCDE):
            raise click.BadParameter(f"a {type(model).__name__} learns in one process", param_hint="--processes")
        model.devices = devices
        quiet = quiet or not is_first()

    given: tuple[Any, ...]
    if stream or Path(data).is_dir():
        if not isinstance(model, GPCDE):
            raise click.BadParameter(f"a {type(model).__name__} learns from rows in memory", param_hint="--stream")
        given = (frames.stream(data, target, features, drop, categories, weights),)
    else:
        source = frames.read(data, frames.words(categories))
        given = frames.split(source, target, features, drop, categories, weights)
        given += () if weights is None else (frames.weights_of(source, weights),)
    began = time.perf_counter()
    trouble: BaseException | None = None
    warnings.filterwarnings("ignore", "fit was interrupted")  # which is told here
    try:
        with progress.shown(model, quiet):
            model.fit(*given)
    except (KeyboardInterrupt, StreamError, LostProcess) as error:
        if not model.__sklearn_is_fitted__():
            raise
        trouble = error
    if is_first():
        model.save(path)
    if isinstance(trouble, LostProcess):
        raise trouble
    if not quiet:
        tell(f"{path}: {_sentence(model)}, in {time.perf_counter() - began:.1f} s")
    if trouble is None:
        return 0
    why = f" ({trouble})" if isinstance(trouble, StreamError) else ""
    return tell(f"stopped before its end{why}; the model so far is {path}", 1 if why else 130)


def _sentence(model: "DensityEstimator") -> str:
    """What was learnt."""
    given = ", ".join(model.features_.names)
    learnt = f"{type(model).__name__} of {', '.join(model.output_names_ or ())} given {given}"
    if not hasattr(model, "history_"):
        return learnt
    history = model.history_
    return f"{learnt}, {int(history['step'][-1])} steps, bound {history['bound'][-1]:.4f} a row"


@click.command(short_help="Say what a model's file holds.")
@options.model
@options.as_json
def info(model: str, as_json: bool) -> None:
    """Say what the file MODEL holds: its columns, how it was trained, what was set."""
    from ..estimators.base import load

    show(_facts(load(model)), as_json)


def _facts(model: "DensityEstimator") -> dict[str, Any]:
    columns = model.features_
    levels = dict(columns.categories)
    scales = dict(zip(columns.numbers, zip(columns.location, columns.scale, strict=True), strict=True))
    inputs = {}
    for place, name in enumerate(columns.names):
        if place in levels:
            inputs[name] = "category: " + ", ".join(str(level) for level in levels[place])
        else:
            inputs[name] = "number: mean {:.4g}, standard deviation {:.4g}".format(*scales[place])
        if place in columns.constant:
            inputs[name] += " (constant, not used)"
    from .frames import output_names

    transform = model.transform_
    spread = f"{'number' if transform.affine else transform.kind}: centre {{:.4g}}, scale {{:.4g}}"
    ends = zip(transform.location, transform.scale, strict=True)
    outputs = {name: spread.format(*end) for name, end in zip(output_names(model), ends, strict=True)}
    defaults = {name: p.default for name, p in inspect.signature(type(model)).parameters.items()}
    params = model.get_params(deep=False)
    facts: dict[str, Any] = {"model": type(model).__name__, "inputs": inputs, "outputs": outputs}
    facts["set"] = {name: str(value) for name, value in params.items() if value != defaults[name]}
    if hasattr(model, "history_"):
        last = {name: float(values[-1]) for name, values in model.history_.items()}
        facts["training"] = {
            "rows": int(model.n_seen_),
            "steps": int(last["step"]),
            "bound a row": round(last["bound"], 4),
            "noise, in units of the outputs' scale": round(last["noise_variance"] ** 0.5, 4),
            "seconds": round(last["seconds"], 1),
        }
    return facts
