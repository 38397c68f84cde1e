"""Files that gpcde 0.1.0 wrote, in format 1: they are read, answer as they did, and can be learnt on and written anew.

`files_0_1_0/expected.npz` has what 0.1.0 answered: for a file NAME its inputs (`NAME/X/matrix`, or an array for every
column of a table), `NAME/y` and `NAME/log_pdf`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open

import gpcde
from gpcde import GPCDE, DensityEstimator
from gpcde.model import ConstantNoise, StandardNormal
from gpcde.prediction import Nodes
from gpcde.runtime.files import FORMAT

FOLDER = Path(__file__).with_name("files_0_1_0")
NAMES = sorted(path.stem for path in FOLDER.glob("*.gpcde"))
EXPECTED: dict[str, np.ndarray] = dict(np.load(FOLDER / "expected.npz"))


def read(name: str) -> tuple[DensityEstimator, Any, np.ndarray]:
    """A model, inputs and outputs."""
    model = gpcde.load(FOLDER / f"{name}.gpcde")
    columns = {key.rsplit("/")[-1]: value for key, value in EXPECTED.items() if key.startswith(f"{name}/X/")}
    if "matrix" in columns:
        return model, columns["matrix"], EXPECTED[f"{name}/y"]
    categories = {model.features_.names[category.place] for category in model.features_.categories}
    table = {key: pd.Categorical(value) if key in categories else value for key, value in columns.items()}
    return model, pd.DataFrame(table), EXPECTED[f"{name}/y"]


def written(path: Path) -> dict[str, str]:
    with safe_open(path, "np") as file:
        return file.metadata()


def test_there_is_a_file_of_every_kind_of_estimator() -> None:
    """But the flow, whose numbers are another package's."""
    assert {f"{name}/log_pdf" for name in NAMES} == {key for key in EXPECTED if key.endswith("/log_pdf")}
    kinds = {type(gpcde.load(FOLDER / f"{name}.gpcde")).__name__ for name in NAMES}
    ours = {cls.__name__ for cls in DensityEstimator._kinds.values() if cls.__module__.startswith("gpcde.estimators")}
    assert kinds == {name for name in ours if not name.startswith("_")} - {"Flow"}


@pytest.mark.parametrize("name", NAMES)
def test_an_old_file_answers_as_it_did(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And once more when it was written anew."""
    assert written(FOLDER / f"{name}.gpcde")["gpcde"] == "1"
    model, X, y = read(name)
    for_model = Nodes.for_model  # what a prediction of two latents was made of then
    monkeypatch.setattr(Nodes, "for_model", lambda model: for_model(model, cloud=1024))
    np.testing.assert_allclose(model.predict_density(X).log_pdf(y), EXPECTED[f"{name}/log_pdf"], rtol=1e-9, atol=1e-9)
    model.save(tmp_path / "model")
    assert written(tmp_path / "model")["gpcde"] == str(FORMAT)
    again = gpcde.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_density(X).log_pdf(y), model.predict_density(X).log_pdf(y))


@pytest.mark.parametrize("name", ["free_form_bend", "log"])
def test_an_old_model_has_the_parts_it_had_no_name_for(name: str) -> None:
    """One σ² that is learnt, and N(0, I)."""
    model = read(name)[0]
    assert isinstance(model, GPCDE)
    parts = model.state_.model
    assert isinstance(parts.likelihood, ConstantNoise)
    assert parts.likelihood.learn
    noise = np.exp(parts.likelihood.log_noise_variance)
    assert noise == pytest.approx(model.history_["noise_variance"][-1], rel=1e-12)
    assert isinstance(parts.prior, StandardNormal)
    assert model.design is None


def test_an_old_model_can_be_learnt_on() -> None:
    """From the step it had reached, on new rows and on the same ones."""
    model, X, y = read("free_form_bend")
    assert isinstance(model, GPCDE)
    before = model.score(X, y)
    model.partial_fit(X, y)
    assert (model.n_steps_, int(model.state_.step)) == (21, 21)
    model.set_params(warm_start=True, max_steps=100, batch_size=None).fit(X, y)
    assert model.n_steps_ > 21
    assert model.score(X, y) > before
