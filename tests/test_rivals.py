"""GPCDE and its rivals: laws with a known density that each should learn."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from gpcde import CVAE, GP, GPCDE, GPLVM, KDE, MDN, ConditionalKDE, LinearGaussian, Stacked
from gpcde.estimators import ensemble
from small import flow


class Law(NamedTuple):
    """Rows, and the log density of each."""

    X: np.ndarray
    y: np.ndarray
    truth: np.ndarray


def bimodal(n: int, seed: int) -> Law:
    """y = ±(1 + x) + noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1, size=(n, 1))
    centre = 1 + x[:, 0]
    y = rng.choice([-1, 1], n) * centre + 0.3 * rng.normal(size=n)
    return Law(x, y, logsumexp([norm.logpdf(y, sign * centre, 0.3) for sign in (-1, 1)], axis=0) - np.log(2))


def heteroscedastic(n: int, seed: int) -> Law:
    """Noise that grows tenfold with x, in large units."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 1))
    mean, std = 100 * np.sin(2 * x[:, 0]), 10 * 10 ** (0.5 * (x[:, 0] + 1))
    y = mean + std * rng.normal(size=n)
    return Law(x, y, norm.logpdf(y, mean, std))


def correlated(n: int, seed: int) -> Law:
    """Two outputs, linear in x, with errors of correlation 0.9."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    covariance = np.array([[1, 0.9], [0.9, 1]])
    noise = rng.multivariate_normal(np.zeros(2), covariance, size=n)
    return Law(x, x @ [[1, 2], [-1, 0.5]] + noise, multivariate_normal.logpdf(noise, np.zeros(2), covariance))


def unconditional(n: int, seed: int) -> Law:
    """Two clusters, whatever x is."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-2, 3], n) + 0.5 * rng.normal(size=n)
    return Law(rng.normal(size=(n, 2)), y, logsumexp([norm.logpdf(y, m, 0.5) for m in (-2, 3)], axis=0) - np.log(2))


def smooth(n: int, seed: int) -> Law:
    """A curve with even noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(n, 1))
    y = 5 + np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=n)
    return Law(x, y, norm.logpdf(y, 5 + np.sin(2 * x[:, 0]), 0.1))


SMALL: dict[str, Any] = {"n_inducing": 20, "max_steps": 300, "random_state": 0}
SHORT: dict[str, Any] = {"n_inducing": 16, "max_steps": 100, "random_state": 0}
ALONE: dict[str, Any] = {**SHORT, "companions": False}

CASES: list[tuple[Callable[[int, int], Law], Any, float]] = [
    (bimodal, GPCDE(**SHORT), 0.1),
    (bimodal, GPCDE(inference="amortised", batch_size=200, **SMALL), 0.1),
    (bimodal, GPCDE(**ALONE), 0.1),
    (heteroscedastic, GPCDE(**ALONE), 0.06),
    (correlated, GPCDE(**SMALL), 0.1),
    (unconditional, GPCDE(**ALONE), 0.1),
    (smooth, GPCDE(**ALONE), 0.05),
    (bimodal, ConditionalKDE(random_state=0), 0.15),
    (bimodal, CVAE(max_epochs=200, learning_rate=0.005, random_state=0), 0.25),
    (bimodal, Stacked([("kde", ConditionalKDE()), ("linear", LinearGaussian())], cv=2, random_state=0), 0.15),
    (heteroscedastic, ConditionalKDE(random_state=0), 0.25),
    (heteroscedastic, CVAE(max_epochs=400, learning_rate=0.005, random_state=0), 0.25),
    (correlated, LinearGaussian(), 0.03),
    (correlated, ConditionalKDE(random_state=0), 0.6),
    (
        correlated,
        Stacked(
            [
                ("linear", LinearGaussian()),
                ("mdn", MDN(n_components=2, hidden=(10,), covariance="full", max_epochs=50)),
            ],
            cv=2,
            random_state=0,
        ),
        0.05,
    ),
    (unconditional, KDE(), 0.05),
    (unconditional, GPLVM(**SMALL), 0.15),
    (smooth, GP(**SMALL), 0.05),
    *[
        (law, model, 0.2)
        for law in (bimodal, heteroscedastic, correlated)
        for model in flow(layers=2, width=20, max_epochs=60, learning_rate=5e-3, random_state=0)
    ],
]


@pytest.mark.parametrize(
    ("law", "model", "margin"),
    [
        pytest.param(
            *case,
            id=f"{case[0].__name__}-{type(case[1]).__name__}",
            marks=[pytest.mark.slow] if type(case[1]).__name__ == "Flow" else [],
        )
        for case in CASES
    ],
)
def test_each_comes_close_to_the_truth(
    law: Callable[[int, int], Law], model: Any, margin: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean log density of new rows: less than the truth's by no more than the margin, and not more than by luck."""
    monkeypatch.setattr(ensemble, "MOST_STEPS", 300)  # companions have a test of their own (tests/test_ensemble.py)
    known, new = law(500 if isinstance(model, GPCDE) else 600, 0), law(1000, 1)  # of up to 500 rows there is one design
    score = model.fit(known.X, known.y).score(new.X, new.y)
    assert new.truth.mean() - margin < score < new.truth.mean() + 0.02
