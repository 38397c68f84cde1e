"""GPCDE from outside: what it takes and refuses, whose units its answers have, and the company it keeps."""

import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad, trapezoid
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpcde import GPCDE, MDN, Design, TrainingError
from gpcde.density.conditional import ConditionalDensity
from small import MODELS, QUICK, N, fitted, frame, rows


def quick(**parameters: Any) -> GPCDE:
    """The fastest there is: GP regression."""
    return GPCDE(**{"inference": "none", **QUICK, **parameters})


# what is refused

X, Y = rows()


def with_value(array: np.ndarray, place: Any, value: Any) -> np.ndarray:
    copy = array.astype(type(value)) if isinstance(value, str) else array.copy()
    copy[place] = value
    return copy


BAD_DATA: dict[str, tuple[Any, Any, str]] = {
    "NaN in X": (with_value(X, (3, 1), np.nan), Y, "^X contains.*NaN in column 1, first in row 3"),
    "infinity in X": (with_value(X, (3, 0), -np.inf), Y, "^X contains.*infinity in column 0, first in row 3"),
    "NaN in y": (X, with_value(Y, 7, np.nan), "^y contains.*NaN in column 0, first in row 7"),
    "infinity in a column of y": (
        X,
        with_value(np.stack([Y, Y], 1), (7, 1), np.inf),
        "^y contains.*infinity in column 1, first in row 7",
    ),
    "NaN in a named column of y": (
        X,
        pd.DataFrame({"low": Y, "high": with_value(Y, 2, np.nan)}),
        "^y contains.*NaN in column high, first in row 2",
    ),
    "text in X": (np.array([["a", "b"]] * N), Y, "X must hold numbers, or be a data frame.*categories"),
    "text in y": (X, np.array(["a", "b"] * (N // 2)), "y must hold numbers.*classifier"),
    "X a vector": (X[:, 0], Y, "Expected 2D array, got 1D array"),
    "X a cube": (X[:, :, None], Y, "dim 3"),
    "y a cube": (X, Y[:, None, None], "y must be a vector or a matrix, got shape|dim 3"),
    "fewer y": (X, Y[:-1], "X has 48 rows but y has 47"),
    "no y": (X, None, "requires y to be passed"),
    "no columns of y": (X, np.zeros((N, 0)), "y has no columns|0 feature"),
    "no rows": (X[:0], Y[:0], "0 sample"),
    "no rows of a frame": (frame()[0][:0], Y[:0], "X has no rows"),
    "one row": (X[:1], Y[:1], "needs at least 2 rows.*n_samples = 1"),
    "y constant": (X, np.full(N, 3.5), "y is constant: column 0 is 3.5 in every row"),
    "a column of y constant": (X, np.stack([Y, np.ones(N)], 1), "y is constant: column 1 is 1"),
}


@pytest.mark.parametrize("make", [quick, MDN], ids=["GPCDE", "MDN"])
@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_are_refused_by_name_and_leave_no_model(make: Callable[[], Any], case: str) -> None:
    inputs, outputs, message = BAD_DATA[case]
    model = make()
    with pytest.raises(ValueError, match=message):
        model.fit(inputs, outputs)
    with pytest.raises(NotFittedError):
        model.predict(X)


BAD_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"inference": "magic"}, "inference must be one of .*got 'magic'"),
    ({"kernel": "cosine"}, "kernel must be one of .*got 'cosine'"),
    ({"input_map": "fold"}, "input_map must be one of .*got 'fold'"),
    ({"latent_dim": 0, "inference": "free-form"}, "latent_dim must be a positive integer.*got 0"),
    ({"latent_dim": 3, "inference": "free-form"}, "'free-form'.*one or two latent dimensions"),
    ({"n_inducing": 0}, "n_inducing must be a positive integer.*got 0"),
    ({"n_inducing": True}, "n_inducing must be a positive integer.*got True"),
    ({"max_steps": -5}, "max_steps must be a positive integer.*got -5"),
    ({"batch_size": 0}, "batch_size must be a positive integer.*got 0"),
    ({"output_dim": 2}, "output_dim must be at most the 1 columns of y, got 2"),
    ({"input_dim": 2, "input_map": "concatenate"}, "input_dim is the number of rows of A"),
    ({"input_map": "bend"}, "needs some: inference must not be 'none'"),
    ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
    ({"learning_rate": np.nan}, "learning_rate must be positive"),
    ({"validation_fraction": 1.0, "early_stopping": True}, "validation_fraction must lie between 0 and 1, got 1.0"),
    ({"early_stopping": True, "inference": "gaussian"}, "early_stopping needs q"),
    ({"y_transform": "root"}, "y_transform must be 'auto', None, 'log' or 'logit', got 'root'"),
    ({"y_transform": "log"}, r"y_transform='log' needs every y strictly between 0 and inf, but y\["),
    ({"y_bounds": (0.0, 1.0)}, "y_bounds need a y_transform"),
    ({"random_state": "seed"}, "'seed' cannot be used to seed"),
]


@pytest.mark.parametrize(("settings", "message"), BAD_SETTINGS)
def test_bad_settings_are_refused_by_name_and_leave_no_model(settings: dict[str, Any], message: str) -> None:
    model = quick(**settings)
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y)
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("make", [quick, lambda: MDN(max_epochs=1)], ids=["GPCDE", "MDN"])
def test_a_failed_fit_forgets_the_fit_before(make: Callable[[], Any]) -> None:
    """Half of one and half of another model would answer something."""
    model = make().fit(X, Y)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X, with_value(Y, 7, np.nan))
    for method in (model.predict, model.predict_density):
        with pytest.raises(NotFittedError):
            method(X)
    with pytest.raises(NotFittedError):
        model.save("nowhere")


def test_before_the_fit_there_is_no_answer(tmp_path: Path) -> None:
    for call in (
        lambda: GPCDE().predict(X),
        lambda: GPCDE().predict_density(X),
        lambda: GPCDE().score(X, Y),
        lambda: GPCDE().infer_latent(X, Y),
        lambda: GPCDE().sample_densities(X),
        lambda: GPCDE().save(tmp_path / "model"),
    ):
        with pytest.raises(NotFittedError):
            call()


def test_tables_unlike_those_of_training_are_refused() -> None:
    model, table, _ = fitted("categories")
    with pytest.raises(ValueError, match="feature names should match.*\n.*unseen.*\n- other"):
        model.predict(table.rename(columns={"a": "other"}))
    with pytest.raises(ValueError, match="never seen in training"):
        model.predict(table.assign(town="elsewhere"))
    plain = fitted("none")[0]
    with pytest.raises(ValueError, match="X has 3 features, but GPCDE is expecting 2"):
        plain.predict(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="y has 2 columns, but the model was trained with 1"):
        plain.score(X, np.stack([Y, Y], 1))
    with pytest.raises(ValueError, match="X has 48 rows but y has 3"):
        plain.score(X, Y[:3])
    with pytest.raises(ValueError, match="^X contains.*NaN in column 1, first in row 0"):
        plain.predict([[1.0, np.nan]])


# what works


def test_fewer_rows_than_inducing_points_and_a_constant_column() -> None:
    few = np.stack([np.arange(5.0), np.full(5, 7.0)], axis=1)
    model = quick(n_inducing=64).fit(few, np.array([0.1, 1, 2.2, 3, 3.9]))
    assert len(model.state_.model.inducing_points) <= 5
    np.testing.assert_allclose(model.predict(few), np.arange(5), atol=1)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_units_of_y_shift_the_score_by_their_logarithm(scale: float) -> None:
    """And nothing else: the model sees standard units."""
    model, _, _ = fitted("none")
    other = quick().fit(X, scale * Y)
    np.testing.assert_allclose(other.score(X, scale * Y), model.score(X, Y) - np.log(scale), atol=1e-6)
    np.testing.assert_allclose(other.predict(X), scale * model.predict(X), rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("P", "two outputs", "full mdn")])
def test_the_density_is_one_in_the_units_of_y(name: str) -> None:
    model, table, y = fitted(name)
    density = model.predict_density(table[:3])
    grid = np.linspace(y.min() - 60, y.max() + 60, 6_001)
    if name == "log":
        grid = grid[grid > -50]
    np.testing.assert_allclose(trapezoid(density.pdf_grid(grid), grid), 1, rtol=1e-4)
    np.testing.assert_allclose(trapezoid(density.pdf_grid(grid) * grid, grid), model.predict(table[:3]), rtol=1e-3)


def test_a_joint_density_is_one_in_the_units_of_y() -> None:
    """Its integral over one output is the density of the other, whose integral is 1."""
    model, table, _ = fitted("two outputs")
    density = model.predict_density(table[:1])
    grid = np.linspace(-40, 50, 3001)
    for value in (1.0, 4.0):
        slice_ = density.pdf_grid(np.stack([np.full_like(grid, value), grid], axis=1))
        np.testing.assert_allclose(trapezoid(slice_, grid), density.marginal(0).pdf(value), rtol=1e-5)
    one = density.marginal(0)
    np.testing.assert_allclose(quad(lambda v: float(one.pdf(v)[0]), -40, 50, points=[3])[0], 1, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_the_score_is_the_mean_log_density(name: str) -> None:
    model, table, y = fitted(name)
    density = model.predict(table, return_density=True)
    assert isinstance(density, ConditionalDensity)
    assert model.score(table, y) == density.log_pdf(y).mean()
    assert len(density) == N
    assert model.predict(table).shape == density.mean().shape == y.shape
    np.testing.assert_array_equal(model.predict(table), density.mean())


@pytest.mark.parametrize("name", MODELS)
def test_the_quick_log_density_is_that_of_the_components(name: str) -> None:
    """Of all rows, of some, and of marginals, in the units of y: two ways to one number."""
    model, table, y = fitted(name)
    density = model.predict_density(table)
    assert density._source.log_pdf is not None
    parts = ConditionalDensity(density.components(), model.transform_, flat=model.flat_)
    fresh = model.predict_density(table)
    index = np.array([5, 0, 0, 40])
    shifted = y + 0.3 * y.std(0)
    for at in (y, shifted):
        expected = parts.log_pdf(at)
        np.testing.assert_allclose(fresh.log_pdf(at), expected, rtol=1e-10, atol=1e-10)
        for some in (index, slice(3, 9)):
            np.testing.assert_allclose(fresh[some].log_pdf(at[some]), expected[some], rtol=1e-10, atol=1e-10)
    assert fresh._kept is None  # none of these has made the components
    for columns in ([0], list(range(model.n_outputs_))[::-1]):
        at = shifted.reshape(N, -1)[:, columns]
        got = fresh.marginal(columns)[index].log_pdf(at[index])
        np.testing.assert_allclose(got, parts.marginal(columns).log_pdf(at)[index], rtol=1e-10, atol=1e-10)
    outside = {"log": -50.5}.get(name)
    if outside is not None:
        np.testing.assert_array_equal(model.predict_density(table).log_pdf(outside), -np.inf)


def test_a_column_of_y_is_answered_by_a_column() -> None:
    model, _, _ = fitted("none")
    column = quick().fit(X, Y[:, None])
    np.testing.assert_array_equal(column.predict(X), model.predict(X)[:, None])
    assert column.score(X, Y) == column.score(X, Y[:, None]) == model.score(X, Y)


def test_supports_of_transformed_y() -> None:
    """The model of the untransformed y, with the Jacobian of the way there."""
    log = quick(y_transform="log").fit(X, np.exp(Y)).predict_density(X)
    squashed = 5 / (1 + np.exp(-Y)) - 2
    logit = quick(y_transform="logit", y_bounds=(-2.0, 3.0)).fit(X, squashed).predict_density(X)
    plain = fitted("none")[0].predict_density(X).log_pdf(Y)
    np.testing.assert_allclose(log.log_pdf(np.exp(Y)), plain - Y, atol=1e-6)
    slope = np.log(5) - Y - 2 * np.log1p(np.exp(-Y))
    np.testing.assert_allclose(logit.log_pdf(squashed), plain - slope, atol=1e-6)
    for density, low, high in ((log, 0.0, np.inf), (logit, -2.0, 3.0)):
        np.testing.assert_array_equal(density.quantile([0, 1]), [[low, high]] * N)
        np.testing.assert_array_equal(density.log_pdf(low - 1e-3), -np.inf)
        assert np.isfinite(density.log_pdf(low + 1e-3)).all()
        draws = density.sample(200, random_state=0)
        assert low < draws.min()
        assert draws.max() < high
    np.testing.assert_array_equal(logit.log_pdf(3.1), -np.inf)


# company


def test_in_a_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), quick()).fit(X, Y)
    density = pipeline.predict(X, return_density=True)
    assert isinstance(density, ConditionalDensity)
    np.testing.assert_allclose(pipeline.score(X, Y), density.log_pdf(Y).mean())
    np.testing.assert_allclose(pipeline.score(X, Y), fitted("none")[0].score(X, Y), atol=1e-6)


def test_cross_validation_and_search_by_the_log_density() -> None:
    rates = [None, 1e-9]
    scores = [cross_val_score(quick(learning_rate=rate), X, Y, cv=2, error_score="raise").mean() for rate in rates]
    search = GridSearchCV(quick(), {"learning_rate": rates}, cv=2, error_score="raise").fit(X, Y)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], scores)
    assert abs(scores[0] - scores[1]) > 1e-6
    assert search.best_params_ == {"learning_rate": rates[int(np.argmax(scores))]}
    assert isinstance(search.predict(X), np.ndarray)


@pytest.mark.parametrize("name", MODELS)
def test_a_clone_has_the_settings_and_nothing_learnt(name: str) -> None:
    model = fitted(name)[0]
    other = clone(model)
    assert other.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        other.predict(X)


@pytest.mark.parametrize("name", MODELS)
def test_pickled_models_answer_alike_outside_our_scope(name: str) -> None:
    model, table, y = fitted(name)
    expected, score = model.predict(table), model.score(table, y)
    with jax.enable_x64(False):
        file = io.BytesIO()
        joblib.dump(model, file)
        file.seek(0)
        for again in (pickle.loads(pickle.dumps(model)), joblib.load(file)):
            np.testing.assert_array_equal(again.predict(table), expected)
            assert again.score(table, y) == score


def test_the_users_jax_and_numpy_are_left_alone(tmp_path: Path) -> None:
    """In a process of its own, with no scope around it: 32-bit before and after, the global random state untouched."""
    np.savez(tmp_path / "rows.npz", X=X, y=Y)
    code = f"""
import jax, jax.numpy as jnp, numpy as np, gpcde
X, y = np.load("rows.npz").values()
np.random.seed(3); before = np.random.get_state()[1].copy()
model = gpcde.GPCDE(inference="none", **{QUICK!r}).fit(X, y)
model.predict(X)
model.sample_densities(X[:2], 2, random_state=0).band(points=[0.0])
model.save("model")
gpcde.load("model").score(X, y)
assert (np.random.get_state()[1] == before).all()
assert not jax.config.jax_enable_x64 and jnp.ones(2).dtype == jnp.float32
print(repr(model.score(X, y)))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == fitted("none")[0].score(X, Y)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("tol", "be a number of at least 0"),
        ("learning_rate", "be positive"),
        ("validation_fraction", "lie between 0 and 1"),
        ("patience", "be a positive integer"),
    ],
)
def test_a_setting_that_is_no_number_is_refused(name: str, asked: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must {asked}, got 'x'"):
        quick().set_params(**{name: "x"}).fit(X, Y)


def test_what_a_training_error_advises_is_there() -> None:
    with pytest.raises(TrainingError, match="Try a smaller learning_rate, or give Design a larger jitter"):
        quick(learning_rate=1e6).fit(X, Y)
    assert "learning_rate" in GPCDE().get_params()
    assert hasattr(Design, "jitter")
