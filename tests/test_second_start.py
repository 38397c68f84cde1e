"""Regression of many inputs of which few matter: the first start finds none of them, the second does."""

from typing import Any

import numpy as np
import pytest

from gpcde import GP, GPCDE
from gpcde.estimators import course
from gpcde.estimators.base import Rows
from gpcde.estimators.second_start import ENDS, MANY, MOST_NOISE, by_neighbours, misses
from gpcde.model import make_inputs
from gpcde.model.likelihood import known_noise


def hidden(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """24 inputs; y is a wave of the first times the second, and a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.7, 1.7, (n, 24))
    return X, np.sin(3 * X[:, 0]) * X[:, 1] + 0.07 * rng.standard_normal(n)


@pytest.mark.parametrize(("rows", "seed"), [(300, 1), (200, 3)])
def test_it_finds_what_matters_and_the_better_start_goes_on(
    monkeypatch: pytest.MonkeyPatch, rows: int, seed: int
) -> None:
    """Also where the first leaves little noise, and yet explains nothing."""
    (X, y), (at, truth) = hidden(rows, seed), hidden(500, 100)
    found = GP(max_steps=50, random_state=seed).fit(X, y)
    monkeypatch.setattr(course, "misses", lambda *asked: False)
    missed = GP(max_steps=50, random_state=seed).fit(X, y)
    assert known_noise(found.state_.model.likelihood) < 0.03 < known_noise(missed.state_.model.likelihood) < MOST_NOISE
    assert found.score(at, truth) > 0.5 > 0 > missed.score(at, truth)


def test_where_there_is_nothing_to_find_the_first_start_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, MANY)), rng.standard_normal(60)
    settings: dict[str, Any] = {
        "max_steps": 50,
        "n_inducing": 8,
        "random_state": 0,
        "inference": "none",
        "companions": False,
    }
    score = GPCDE(**settings).fit(X, y).score(X, y)
    tried: list[bool] = []

    def never(*asked: Any) -> bool:
        tried.append(misses(*asked))
        return False

    monkeypatch.setattr(course, "misses", never)
    assert GPCDE(**settings).fit(X, y).score(X, y) == pytest.approx(score, abs=0.05)
    assert tried == [True]
    tried.clear()
    GPCDE(**settings).fit(X[:, : MANY - 1], y)
    GPCDE(**settings).fit(X, X @ np.ones(MANY) + 0.1 * y)
    assert tried == [False, False]


def test_rows_of_no_weight_say_nothing_of_lengthscales() -> None:
    X, y = hidden(60)
    rows = Rows(make_inputs(X), y[:, None], (np.arange(60) % 3 > 0).astype(float))
    found = by_neighbours(rows, 0)
    assert ((found >= ENDS[0]) & (found <= ENDS[1])).all()
    other = by_neighbours(rows._replace(z=np.where(rows.weight[:, None] > 0, rows.z, 1e3)), 0)
    np.testing.assert_array_equal(found, other)
