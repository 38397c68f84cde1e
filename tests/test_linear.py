"""Linear regression as a density, against least squares in closed form and statsmodels."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal, norm

import gpcde
from gpcde import LinearGaussian
from small import frame


def correlated(n: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two outputs in different units with errors of correlation 0.9."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1, 10, 0.1] + [5, 0, 1]
    noise = rng.multivariate_normal(np.zeros(2), [[1, 0.9], [0.9, 1]], size=n)
    return X, (X @ [[1, -2], [0.3, 0], [5, 40]] + noise) * [1, 100] + [3, -7]


def least_squares(X: np.ndarray, y: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means and leverages of new rows, and the covariance of the errors: of columns that can be told apart."""
    ones, new = np.column_stack([np.ones(len(X)), X]), np.column_stack([np.ones(len(at)), at])
    coefficients, _, rank, _ = np.linalg.lstsq(ones, y, rcond=None)
    assert rank == ones.shape[1]
    left = y - ones @ coefficients
    root = np.linalg.solve(np.linalg.qr(ones)[1].T, new.T)
    return new @ coefficients, (root**2).sum(0), left.T @ left / (len(X) - rank)


def test_linear_regression_of_two_outputs() -> None:
    """The joint density of a new row: N(x β, (1 + leverage) Σ)."""
    X, y = correlated()
    X_new, y_new = correlated(20, seed=1)
    X_new[0] += 30  # far out, where the coefficients are not known
    density = LinearGaussian().fit(X, y).predict_density(X_new)
    mean, leverage, covariance = least_squares(X, y, X_new)
    assert leverage[0] > 5
    np.testing.assert_allclose(density.mean(), mean, rtol=1e-9)
    np.testing.assert_allclose(density.var(), (1 + leverage)[:, None] * np.diag(covariance), rtol=1e-5)
    expected = [
        multivariate_normal.logpdf(at, m, (1 + h) * covariance) for at, m, h in zip(y_new, mean, leverage, strict=True)
    ]
    np.testing.assert_allclose(density.log_pdf(y_new), expected, rtol=1e-5)


def test_linear_regression_is_that_of_statsmodels() -> None:
    api = pytest.importorskip("statsmodels.regression.linear_model")
    X, y = correlated()
    X_new = correlated(20, seed=1)[0]
    peer = api.OLS(y[:, 1], np.column_stack([np.ones(len(X)), X])).fit()
    expected = peer.get_prediction(np.column_stack([np.ones(20), X_new]))
    density = LinearGaussian().fit(X, y[:, 1]).predict_density(X_new)
    np.testing.assert_allclose(density.mean(), expected.predicted_mean, rtol=1e-9)
    np.testing.assert_allclose(density.var(), expected.var_pred_mean + peer.mse_resid, rtol=1e-6)


@pytest.mark.parametrize("copies", [1, 4, 40])
def test_columns_that_say_the_same_change_nothing(copies: int) -> None:
    """Sums of others, in other units, and constants."""
    X, y = correlated()
    X_new, _ = correlated(20, seed=1)
    mix = np.random.default_rng(2).normal(size=(3, copies)) * 1e3
    wide, new = (np.column_stack([a, a @ mix, np.full(len(a), 7.0)]) for a in (X, X_new))
    density = LinearGaussian().fit(wide, y).predict_density(new)
    mean, leverage, covariance = least_squares(X, y, X_new)
    np.testing.assert_allclose(density.mean(), mean, rtol=1e-6)
    np.testing.assert_allclose(density.var(), (1 + leverage)[:, None] * np.diag(covariance), rtol=1e-5)


def test_categories_are_levels_of_their_own() -> None:
    """As with dummy columns for all but the first level, whichever it is."""
    X, y = frame(90)
    dummies = pd.get_dummies(X, columns=["town", "level"], drop_first=True, dtype=float).to_numpy(float)
    density = LinearGaussian().fit(X, y).predict_density(X[:20])
    mean, leverage, covariance = least_squares(dummies, y[:, None], dummies[:20])
    np.testing.assert_allclose(density.mean(), mean[:, 0], rtol=1e-8)
    np.testing.assert_allclose(density.var(), (1 + leverage) * covariance[0, 0], rtol=1e-6)


def test_as_many_columns_as_rows() -> None:
    """A perfect fit leaves a density all the same, of the least variance there is: 1e-8 of y's, for a leverage of 1."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(5, 8)), rng.normal(size=5)
    model = LinearGaussian().fit(X, y)
    np.testing.assert_allclose(np.asarray(model.predict(X)), y, rtol=1e-9)
    np.testing.assert_allclose(model.predict_density(X).var(), 2e-8 * y.var(), rtol=1e-6)
    assert np.isfinite(model.score(rng.normal(size=(5, 8)), y))


def test_linear_in_the_transformed_y(tmp_path: Path) -> None:
    """log y linear: a log-normal density, with its Jacobian; also from a file."""
    X, y = correlated()
    y = np.exp(0.01 * y[:, 0])
    model = LinearGaussian(y_transform="log").fit(X, y)
    mean, leverage, covariance = least_squares(X, np.log(y)[:, None], X)
    expected = norm.logpdf(np.log(y), mean[:, 0], np.sqrt((1 + leverage) * covariance[0, 0])) - np.log(y)
    np.testing.assert_allclose(model.predict_density(X).log_pdf(y), expected, rtol=1e-4)
    model.save(tmp_path / "model")
    again = gpcde.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_density(X).log_pdf(y), model.predict_density(X).log_pdf(y))
