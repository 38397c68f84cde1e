"""Small data and small models, each fitted once a process: compilation is most of what a fit costs."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import pytest

from gpcde import GPCDE, MDN
from gpcde.estimators.monitor import HISTORY

N = 48
QUICK: dict[str, Any] = {"max_steps": 50, "n_inducing": 8, "random_state": 0}
ALONE: dict[str, Any] = {**QUICK, "companions": False}
"""Without the trials that weigh the companions of a model that is left open (tests/test_companions.py)."""


def rows(n: int = N, seed: int = 0, outputs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Two inputs; y is the first, or minus it, in units of its own (each output its own sign and units)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    sign = rng.choice([-1.0, 1.0], size=(n, outputs))
    y = 3 + (sign * X[:, :1] + 0.1 * rng.normal(size=(n, outputs))) * np.arange(2, 2 + outputs)
    return X, y[:, 0] if outputs == 1 else y


def frame(n: int = N, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A number, a text, a category of numbers; the text decides where y lies."""
    X, y = rows(n, seed)
    rng = np.random.default_rng([seed, 1])
    place, level = rng.integers(3, size=n), rng.integers(2, size=n)
    table = pd.DataFrame({"a": X[:, 0], "town": np.array(["x", "y", "z"])[place], "level": pd.Categorical(level * 10)})
    return table, y + 5 * place


MODELS: dict[str, tuple[Any, Any]] = {
    "none": (lambda: GPCDE(inference="none", **QUICK), rows),
    "free-form": (lambda: GPCDE(inference="free-form", **QUICK), rows),
    "amortised": (lambda: GPCDE(inference="amortised", **QUICK), rows),
    "gaussian": (lambda: GPCDE(inference="gaussian", **QUICK), rows),
    "categories": (lambda: GPCDE(**ALONE), frame),
    "P": (lambda: GPCDE(latent_dim=1, output_dim=2, **ALONE), lambda: rows(outputs=3)),
    "two outputs": (lambda: GPCDE(latent_dim=1, kernel="matern32", **ALONE), lambda: rows(outputs=2)),
    "log": (
        lambda: GPCDE(inference="none", y_transform="log", y_bounds=(-50, np.inf), **QUICK),
        lambda: (rows()[0], rows()[1] - 40),
    ),
    "mdn": (lambda: MDN(max_epochs=20, random_state=0), rows),
    "full mdn": (
        lambda: MDN(max_epochs=20, hidden=(8,), covariance="full", random_state=0),
        lambda: rows(outputs=2),
    ),
    "mdn of categories": (lambda: MDN(max_epochs=20, hidden=(8,), random_state=0), frame),
}


@cache
def fitted(name: str) -> tuple[Any, Any, np.ndarray]:
    """A fitted model, not to be changed, and what it was fitted to."""
    make, data = MODELS[name]
    X, y = data()
    return make().fit(X, y), X, y


@eqx.filter_jit
def ask(part: Any, *args: Any) -> Any:
    """What a part, or one of its methods, answers: compiled as one program, where each operation would be its own."""
    return part(*args)


def assert_same_model(one: Any, other: Any) -> None:
    """To the bit, and having taken the same way; seconds apart."""
    jax.tree.map(np.testing.assert_array_equal, one.state_, other.state_)
    for name in set(HISTORY) - {"seconds"}:
        np.testing.assert_array_equal(one.history_[name], other.history_[name])


def flow(**settings: Any) -> list[Any]:
    """A flow, if there are any."""
    if find_spec("flowjax") is None:
        return []
    from gpcde.estimators.flow import Flow

    return [Flow(**settings)]


@contextmanager
def no_larger_than(size: int) -> Iterator[None]:
    """Files cannot grow beyond this many bytes: as on a full disk, a write fails when a part of it is done."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
