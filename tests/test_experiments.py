"""The paper's experiments: their splits and likelihoods, against what they should be, and every quick preset."""

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from gpcde import Design, cli
from gpcde.datasets import Images, Table, load_uci
from gpcde.density.components import Components
from gpcde.inference import State, start
from gpcde.model import make_inputs
from gpcde.prediction import Nodes, Predictor
from gpcde.reproduce import EXPERIMENTS, runner
from gpcde.reproduce.experiments import training, uci
from gpcde.reproduce.experiments.images import labelled, log_density_by_draws, mixture_log_density, samples
from gpcde.reproduce.experiments.mnist import CLASSES, few_of_each
from gpcde.reproduce.experiments.omniglot import few_shot
from gpcde.reproduce.experiments.taxi import fits
from gpcde.reproduce.experiments.taxi.settings import units as taxi_units
from gpcde.reproduce.experiments.taxi.trips import farthest_points, load_trips
from gpcde.reproduce.experiments.training import Schedule, resumed, train_design
from gpcde.reproduce.experiments.uci import scoring
from gpcde.reproduce.experiments.uci.settings import FLAT
from gpcde.reproduce.experiments.uci.training import bound, standardised, trained
from gpcde.reproduce.lines import append_line
from gpcde.reproduce.names.uci import GP, LINEAR, OPTIMAL
from gpcde.reproduce.units import Unit

SMALLER: dict[str, Any] = {
    "inducing": 8,
    "first_steps": 50,
    "points": 10,
    "nodes": 64,
    "max_epochs": 10,
    "steps": 50,
    "latent_dim": 2,
    "input_dim": 3,
    "outputs": 8,
    "shots": 2,
    "hidden": [8],
    "shown": 4,
    "pixels": 8,
    "images": 40,
    "test": 20,
    "fit_steps": 2,
}


def smaller(settings: Any) -> Any:
    """The settings with smaller numbers: the same programs, on less."""
    if isinstance(settings, dict):
        return {k: SMALLER[k] if k in SMALLER and v else smaller(v) for k, v in settings.items()}
    return [smaller(item) for item in settings] if isinstance(settings, list) else settings


LIKE_OTHERS = ("MDN-5", "GP-CDE")
"""Models of the taxi experiment that go the same way as others of it."""


def quick_units(name: str) -> list[Unit]:
    units = importlib.import_module(f"gpcde.reproduce.experiments.{name}").units("quick")
    return [unit for unit in units if name != "taxi" or unit.model not in LIKE_OTHERS]


def nothing(share: float) -> None:
    assert 0 <= share <= 1


# all of it


def make_data(folder: Path) -> None:
    """Small stand-ins for all data sets, in the form of the real ones."""
    rng = np.random.default_rng(0)
    for name in ("uci", "mnist", "omniglot", "taxi"):
        (folder / name).mkdir(parents=True)
    X = rng.normal(size=(67, 1))
    y = rng.choice([-1.0, 1.0], 67) + 0.1 * rng.normal(size=67)
    np.savez(folder / "uci" / "yacht.npz", X=X, y=3 * y)
    shapes = rng.uniform(0, 255, (10, 28, 28))
    labels = {"train": np.resize(np.arange(10), 100), "test": np.resize(np.arange(10), 60)}
    labels["train"][50:] = 1  # natgrad wants many ones
    images = {
        part: np.clip(shapes[known] + 20 * rng.normal(size=(len(known), 28, 28)), 0, 255).astype(np.uint8)
        for part, known in labels.items()
    }
    both = {f"x_{part}": images[part] for part in images} | {f"y_{part}": labels[part] for part in labels}
    np.savez(folder / "mnist" / "mnist.npz", **both)  # type: ignore[arg-type]
    class_id = np.repeat(np.arange(10), [2] * 6 + [7] * 4)  # 20 to learn from, as of the digits
    drawings = np.clip(shapes[class_id] + 20 * rng.normal(size=(len(class_id), 28, 28)), 0, 255).astype(np.uint8)
    np.savez(folder / "omniglot" / "omniglot28.npz", images=drawings, class_id=class_id, is_evaluation=class_id >= 6)
    rows = 500
    ends = {f"{end}_lon": rng.uniform(-74.01, -73.94, rows) for end in ("pickup", "dropoff")}
    ends |= {f"{end}_lat": rng.uniform(40.71, 40.82, rows) for end in ("pickup", "dropoff")}
    when = rng.integers(0, 7 * 86_400, rows)
    file = folder / "taxi" / "kaggle_nyc_trip_duration_5pct.npz"
    np.savez(file, **ends, pickup_time=when, duration=np.full(rows, 600.0))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("reproduce")
    make_data(place / "data")
    return place


@pytest.fixture
def data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPCDE_DATA_DIR", str(folder / "data"))
    load_trips.cache_clear()


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_quick_preset_makes_tables_and_figures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = importlib.import_module(f"gpcde.reproduce.experiments.{name}").work
    out = tmp_path / "quick"
    for unit in quick_units(name):
        metrics = work(unit._replace(settings=smaller(unit.settings)), nothing, tmp_path / "checkpoint")
        (tmp_path / "checkpoint").unlink(missing_ok=True)
        append_line(out / f"{name}.jsonl", unit.line(metrics, 1.0))
    # from the lines alone: no data are there, and no worker may start
    monkeypatch.setenv("GPCDE_DATA_DIR", str(tmp_path / "none"))
    monkeypatch.setattr(runner, "worker_pool", None)
    assert cli.main(["reproduce", name, "--preset", "quick", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{out / name}.md\n"
    rows = (out / f"{name}.md").read_text().splitlines()
    assert len(rows) > 2
    assert (out / f"{name}.csv").stat().st_size > 50
    figures = sorted(out.glob(f"{name}*.png"))
    assert figures
    assert all(figure.with_suffix(".pdf").is_file() for figure in figures)
