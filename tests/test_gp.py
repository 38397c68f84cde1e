"""GP and GPLVM: the same as the model they are cases of."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import gpcde
from gpcde import GP, GPCDE, GPLVM
from gpcde.model.likelihood import LEAST
from small import QUICK, assert_same_model, frame, rows

# no latents


@pytest.mark.parametrize(("data", "kernel"), [(rows, "rbf"), (frame, "matern32"), (lambda: rows(outputs=2), "rbf")])
def test_a_gp_is_gpcde_without_latents(data: Any, kernel: str) -> None:
    """To the bit."""
    X, y = data()
    one, other = GP(kernel=kernel, **QUICK).fit(X, y), GPCDE(inference="none", kernel=kernel, **QUICK).fit(X, y)
    assert_same_model(one, other)
    got, expected = one.predict_density(X), other.predict_density(X)
    np.testing.assert_array_equal(got.log_pdf(y), expected.log_pdf(y))
    np.testing.assert_array_equal(got.quantile([0.1, 0.9]), expected.quantile([0.1, 0.9]))


# no inputs


def test_a_gplvm_does_not_look_at_x() -> None:
    """The same model whatever X is, and the same density everywhere."""
    X, y = rows()
    model = GPLVM(**QUICK).fit(X, y)
    table, _ = frame()
    assert_same_model(model, GPLVM(**QUICK).fit(table, y))
    density = model.predict_density(1e3 * X)
    np.testing.assert_array_equal(density.log_pdf(4.0), model.predict_density(X).log_pdf(4.0))
    np.testing.assert_array_equal(density.log_pdf(4.0), density.log_pdf(4.0)[0])
    np.testing.assert_allclose(density.log_pdf(4.0), model.predict_density(X[:1]).log_pdf(4.0)[0], rtol=1e-12)
    assert model.state_.model.latents.dim == 1
    # and it is a density of y: two clusters of y are two clusters in it
    grid = np.linspace(-20, 25, 2000)
    assert np.trapezoid(density[:1].pdf_grid(grid)[0], grid) == pytest.approx(1, abs=1e-6)
    assert model.score(X, y) > norm.logpdf(y, y.mean(), y.std()).mean() - 0.1


@pytest.mark.parametrize("model", [GP(kernel="matern32", **QUICK), GPLVM(**QUICK)])
def test_a_file_holds_the_same_model(model: Any, tmp_path: Path) -> None:
    X, y = frame()
    model.fit(X, y)
    model.save(tmp_path / "model")
    again = gpcde.load(tmp_path / "model")
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict_density(X).log_pdf(y), model.predict_density(X).log_pdf(y))


@pytest.mark.parametrize("count", [12, 50])
def test_a_function_without_noise_is_followed_and_not_lost_to_rounding(count: int) -> None:
    """Its bound has no maximum: the noise stops at its least, and the answer is the function."""
    X = np.linspace(-2, 2, count)[:, None]
    model = GP(random_state=0, max_steps=50).fit(X, np.sin(X[:, 0]))
    at = np.linspace(-1.9, 1.9, 7)[:, None]
    np.testing.assert_allclose(model.predict(at), np.sin(at[:, 0]), atol=5e-3)
    assert LEAST < float(model.state_.model.noise_variance) < 1e-3
