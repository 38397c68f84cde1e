"""The numbers of small seeded cases are those of version 0.1.0, and its files answer as they did."""

from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpcde
from gpcde import GPCDE
from gpcde.prediction import Nodes
from unchanged_cases import NAMES, PIECES, RECORDED, TOLERANCE, Numbers, measure, read

FILES = Path(__file__).with_name("files_0_1_0")


@cache
def recorded() -> dict[str, Numbers]:
    return read(RECORDED)


def assert_same(got: np.ndarray, expected: np.ndarray, tolerance: float, what: str) -> None:
    """To that many digits of each number, and of the largest of the array."""
    scale = max(np.abs(expected).max(initial=0), 1e-3)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def test_every_case_is_recorded() -> None:
    assert list(recorded()) == NAMES


USUAL = (
    *PIECES,
    "free-form, even, bend, A of categories",
    "free-form, even, bend, P Gaussian",
    "amortised, importance, bend",
    "none, A, P by MAP, fixed noise",
    "free-form, two latents, matern32, two outputs, Shared",
    "amortised, two latents, full, draws, warp, P conjugate",
    "gaussian, two latents, full, closed",
    *("GPCDE none", "LinearGaussian", "ConditionalKDE"),
)
"""Every inference, map and mixing; the others are combinations of theirs, for `make test-all`."""


@pytest.mark.parametrize(
    "name", [name if name in USUAL else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_numbers_are_as_recorded(name: str) -> None:
    got, expected = measure(name), recorded()[name]
    assert list(got) == list(expected)
    for what, value in expected.items():
        assert_same(got[what], value, TOLERANCE.get(name, 1e-9), f"{name}: {what}")


@pytest.mark.parametrize("path", sorted(FILES.glob("*.gpcde")), ids=lambda path: path.stem)
def test_old_files_answer_as_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with np.load(FILES / "expected.npz") as file:
        X: Any = {key.split("/")[2]: file[key] for key in file.files if key.startswith(f"{path.stem}/X/")}
        y, log_pdf = file[f"{path.stem}/y"], file[f"{path.stem}/log_pdf"]
    # a table has columns by name, a matrix is one array
    X = X["matrix"] if "matrix" in X else pd.DataFrame(X).astype({"level": "category"})
    model: Any = gpcde.load(path)
    if isinstance(model, GPCDE) and model.state_.model.latents.dim == 2:
        nodes = Nodes.for_model(model.state_.model, cloud=1024)  # what a prediction of two latents was made of
        monkeypatch.setattr(model, "predictor", partial(model.predictor, nodes))
    assert_same(model.predict_density(X).log_pdf(y), log_pdf, 1e-9, path.stem)
