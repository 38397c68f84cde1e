"""Weights of rows: a row of weight 2 is that row twice, one of weight 0 is not there, to the last bit."""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from gpcde import GP, GPCDE, GPLVM, KDE, LinearGaussian
from gpcde.density.transforms import OutputTransform
from gpcde.estimators import tables
from gpcde.estimators.tables import merged, read_frame, read_numbers
from small import QUICK, N, assert_same_model, fitted, frame, rows

X, Y = rows()
WEIGHTS = np.random.default_rng(0).integers(4, size=N)
OFTEN = np.random.default_rng(0).permutation(np.repeat(np.arange(4), N // 3))
"""Of more rows, so that as many are there as the small models have: theirs are the programs."""
BATCHES: dict[str, Any] = {**QUICK, "batch_size": 16}

MODELS: dict[str, tuple[Any, Any]] = {
    "none": (lambda: GPCDE(inference="none", **QUICK), rows),
    "free-form": (lambda: GPCDE(inference="free-form", **QUICK), rows),
    "amortised, in batches": (lambda: GPCDE(inference="amortised", **BATCHES), rows),
    "gaussian, in batches": (lambda: GPCDE(inference="gaussian", **BATCHES), rows),
    "early stopping": (lambda: GPCDE(inference="none", early_stopping=True, **QUICK), rows),
    "categories": (lambda: GP(kernel="matern32", **QUICK), frame),
    "P of log y": (
        lambda: GPCDE(inference="none", output_dim=1, y_transform="log", y_bounds=(-50, np.inf), **QUICK),
        lambda n: rows(n, outputs=2),
    ),
    "no inputs": (lambda: GPLVM(**QUICK), rows),
}


def take(table: Any, index: np.ndarray) -> Any:
    return table.iloc[index] if isinstance(table, pd.DataFrame) else table[index]


@pytest.mark.parametrize("name", MODELS)
def test_a_weight_is_how_often_a_row_is_there(name: str) -> None:
    """Repeated in any order; the units of X and y, the way training took and the answers are the same to the bit."""
    make, data = MODELS[name]
    table, y = data(len(OFTEN))
    assert np.count_nonzero(OFTEN) == N
    weighted = make().fit(table, y, sample_weight=OFTEN)
    index = np.random.default_rng(1).permutation(np.repeat(np.arange(len(OFTEN)), OFTEN))
    repeated = make().fit(take(table, index), y[index])
    assert_same_model(weighted, repeated)
    assert weighted.n_seen_ == repeated.n_seen_
    if name != "early stopping":
        assert weighted.n_seen_ == OFTEN.sum()
    assert weighted.transform_.same_as(repeated.transform_)
    jax.tree.map(np.testing.assert_array_equal, weighted.features_, repeated.features_)
    np.testing.assert_array_equal(weighted.predict(table), repeated.predict(table))
    there = np.flatnonzero(OFTEN)
    once = make().fit(take(table, there), y[there])
    assert np.abs(weighted.predict(table) - once.predict(table)).max() > 1e-6


def test_rows_of_no_weight_are_not_there() -> None:
    """Not even where they could not be: outside the support of y. The others stay in their order."""
    kept = WEIGHTS > 0
    y = np.where(kept, np.exp(Y / 10), -1.0)
    one = GPCDE(inference="none", y_transform="log", **QUICK).fit(X, y, np.where(kept, 1.0, 0.0))
    assert_same_model(one, GPCDE(inference="none", y_transform="log", **QUICK).fit(X[kept], y[kept]))
    assert one.n_seen_ == kept.sum()


def test_weights_of_one_say_nothing() -> None:
    assert_same_model(GPCDE(inference="none", **QUICK).fit(X, Y, np.ones(N)), fitted("none")[0])


def test_all_rows_twice() -> None:
    twice = np.tile(np.arange(N), 2)
    one = GPCDE(inference="none", **QUICK).fit(X, Y, np.full(N, 2.0))
    assert_same_model(one, GPCDE(inference="none", **QUICK).fit(X[twice], Y[twice]))


def test_new_rows_have_weights_too() -> None:
    """partial_fit adds them as often as they weigh, and a batch of rows without weight does no harm."""
    more, y = rows(16, seed=1)
    weight = np.repeat([0.0, 3.0], 8)
    index = np.repeat(np.arange(8, 16), 3)
    one, other = (GPCDE(inference="none", **{**QUICK, "batch_size": 8}).fit(X, Y) for _ in range(2))
    one.partial_fit(more, y, weight)
    assert_same_model(one, other.partial_fit(more[index], y[index]))
    assert one.n_seen_ == N + 24


@pytest.mark.parametrize("inference", ["none", "gaussian"])
def test_a_warm_start_knows_repeated_rows_again(inference: str) -> None:
    """Also where each row has a q(w) of its own: rows that repeat are one."""
    table, y = rows(len(OFTEN))
    index = np.repeat(np.arange(len(OFTEN)), OFTEN)
    settings: dict[str, Any] = {**QUICK, "inference": inference, "warm_start": True, "tol": 0.0}
    one = GPCDE(**settings).fit(table, y, OFTEN).fit(table, y, OFTEN)
    other = GPCDE(**settings).fit(table[index], y[index]).fit(table[index], y[index])
    assert one.n_steps_ == 100
    assert_same_model(one, other)


def test_weights_move_the_density() -> None:
    """Of two branches, one has nine times the other's weight: nine tenths of the mass are there. Any number will do."""
    rng = np.random.default_rng(1)
    x, up = rng.uniform(-1, 1, size=(N, 2)), np.arange(N) % 2 == 0
    y = np.where(up, 2.0, -2.0) + 0.2 * rng.standard_normal(N)
    model = GPCDE(inference="free-form", **{**QUICK, "max_steps": 200}).fit(x, y, np.where(up, 0.9, 0.1))
    above = 1 - model.predict_density(np.linspace(-0.8, 0.8, 5)[:, None] * [1, 0]).cdf(0.0)
    np.testing.assert_allclose(above, 0.9, atol=0.05)


def test_the_history_is_of_the_weighted_rows() -> None:
    """The bound a row in the units of y: the mean Jacobian counts rows as often as they weigh."""
    settings: dict[str, Any] = {**QUICK, "inference": "none", "y_transform": "log"}
    weight = np.linspace(0.5, 2, N)
    y = np.exp(Y / 10)
    log = GPCDE(**settings).fit(X, y, weight).history_["bound"]
    plain = GPCDE(**settings | {"y_transform": None}).fit(X, np.log(y), weight).history_["bound"]
    np.testing.assert_allclose(log, plain - np.average(np.log(y), weights=weight), rtol=1e-10)


# units and tables


@pytest.mark.parametrize("common", [False, True])
def test_units_are_those_of_the_weighted_rows(common: bool) -> None:
    y = np.random.default_rng(0).normal(size=(N, 3)) * [1, 5, 0.2] + [0, 9, 1]
    one = OutputTransform.fit(y, common_scale=common, weight=WEIGHTS.astype(float))
    other = OutputTransform.fit(np.repeat(y, WEIGHTS, axis=0), common_scale=common)
    np.testing.assert_allclose(one.location, other.location, rtol=1e-12)
    np.testing.assert_allclose(one.scale, other.scale, rtol=1e-12)


def test_rows_that_repeat_are_merged_in_an_order_of_their_own() -> None:
    x = np.array([[2.0, 1.0], [1.0, 1.0], [2.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    y = np.array([[5.0], [6.0], [5.0], [7.0], [7.0]])
    for order in ([0, 1, 2, 3, 4], [4, 2, 1, 3, 0]):
        table, outputs, weight = merged(read_numbers(x[order], None), y[order], None)
        np.testing.assert_array_equal(
            np.column_stack([table.dense, outputs, weight]), [[1, 0, 7, 1], [1, 1, 6, 1], [1, 1, 7, 1], [2, 1, 5, 2]]
        )
    _, outputs, weight = merged(read_numbers(x, None), y, np.array([0.5, 0.0, 1.5, 1.0, 1.0]))
    np.testing.assert_array_equal(np.column_stack([outputs, weight]), [[7, 1], [7, 1], [5, 2]])


def test_categories_that_read_alike_are_not_merged() -> None:
    """The number 1 and the text "1" are two levels."""
    x = pd.DataFrame({"c": pd.Series([1, "1", 1, "a"], dtype=object)})
    table, outputs, weight = merged(read_frame(x), np.ones((4, 1)), None)
    assert table.text[0].tolist() == [1, "1", "a"]
    np.testing.assert_array_equal(weight, [2, 1, 1])
    assert outputs.shape == (3, 1)


def test_many_rows_are_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MERGED", 3)
    x, y = np.ones((4, 1)), np.ones((4, 1))
    assert len(merged(read_numbers(x, None), y, None)[1]) == 4
    _, outputs, weight = merged(read_numbers(x, None), y, np.array([1.0, 0.0, 2.0, 3.0]))
    assert len(outputs) == 1
    np.testing.assert_array_equal(weight, [6])


# scores


@pytest.mark.parametrize(
    "make",
    [lambda: fitted("none")[0], lambda: LinearGaussian().fit(X, Y), lambda: KDE().fit(X, Y)],
    ids=["GPCDE", "LinearGaussian", "KDE"],
)
def test_a_weighted_score_is_the_weighted_mean(make: Any) -> None:
    model = make()
    logs = model.predict_density(X).log_pdf(Y)
    assert model.score(X, Y, WEIGHTS) == pytest.approx((logs * WEIGHTS).sum() / WEIGHTS.sum(), rel=1e-12)
    index = np.repeat(np.arange(N), WEIGHTS)
    assert model.score(X, Y, sample_weight=WEIGHTS) == pytest.approx(model.score(X[index], Y[index]), rel=1e-12)
    assert model.score(X, Y, 7.5 * WEIGHTS) == pytest.approx(model.score(X, Y, WEIGHTS), rel=1e-12)


def test_what_weighs_nothing_does_not_lower_the_score() -> None:
    """Not even a y that cannot be, whose log density is minus infinity."""
    model = LinearGaussian(y_transform="log").fit(X, np.exp(Y / 10))
    y = np.exp(Y / 10)
    y[3] = -1.0
    weight = np.ones(N)
    assert model.score(X, y, weight) == -np.inf
    weight[3] = 0.0
    assert model.score(X, y, weight) == pytest.approx(model.score(np.delete(X, 3, 0), np.delete(y, 3)))


# what is refused

BAD: dict[str, tuple[Any, str]] = {
    "negative": (
        np.where(np.arange(N) == 5, -1.0, 1.0),
        "sample_weight must be finite and not negative, but is -1 in row 5",
    ),
    "NaN": (
        np.where(np.arange(N) == 5, np.nan, 1.0),
        "sample_weight must be finite and not negative, but is nan in row 5",
    ),
    "infinite": (np.where(np.arange(N) == 5, np.inf, 1.0), "but is inf in row 5"),
    "too few": (np.ones(N - 1), rf"sample_weight must be a vector of {N} numbers, one a row, got shape \({N - 1},\)"),
    "a matrix": (np.ones((N, 1)), rf"vector of {N} numbers, one a row, got shape \({N}, 1\)"),
    "one number": (2.0, r"vector of 48 numbers, one a row, got shape \(\)"),
    "all 0": (np.zeros(N), "sample_weight is zero in every row: nothing is left"),
    "text": (["heavy"] * N, "sample_weight must be a vector of 48 numbers, one a row: .*heavy"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_weights_are_refused_by_name(case: str) -> None:
    weight, message = BAD[case]
    model = GPCDE(inference="none", **QUICK)
    for method in (model.fit, model.partial_fit, fitted("none")[0].score):
        with pytest.raises(ValueError, match=message):
            method(X, Y, sample_weight=weight)
    assert not hasattr(model, "state_")


def test_too_few_rows_of_any_weight_are_refused() -> None:
    model = GPCDE(**QUICK)
    with pytest.raises(ValueError, match="needs at least 2 rows.*n_samples = 1"):
        model.fit(X, Y, np.eye(N)[0])
    with pytest.raises(ValueError, match="y is constant: column 0 is 4 in every row"):
        model.fit(X, np.where(WEIGHTS > 0, 4.0, Y), WEIGHTS)
    with pytest.raises(ValueError, match="y is constant"):  # and not that there is but one row
        model.fit(np.ones((5, 1)), np.ones(5))


def test_rows_are_counted_as_the_user_gave_them() -> None:
    """Not as they are once repeated ones are merged."""
    y = np.exp(Y / 10)
    y[[0, 1]], y[7] = 3.0, -2.0
    inputs = X.copy()
    inputs[0] = inputs[1]
    with pytest.raises(ValueError, match=r"but y\[7, 0\] is -2"):
        GPCDE(y_transform="log", **QUICK).fit(inputs, y)
