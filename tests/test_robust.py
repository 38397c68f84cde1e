"""Tables as they come: constant columns, wild values, any units, values that repeat, masks, names of outputs."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.model_selection import cross_val_predict, cross_val_score

import gpcde
from gpcde import (
    CVAE,
    GP,
    GPCDE,
    GPLVM,
    KDE,
    MDN,
    ConditionalKDE,
    DataWarning,
    DensityEstimator,
    LinearGaussian,
    Stacked,
    compare,
)
from gpcde.estimators.doubtful import isolated
from small import ALONE, QUICK, N, assert_same_model, flow, frame, rows

FILES = Path(__file__).with_name("files_0_1_0")
X, Y = rows(200)
NEW_X, NEW_Y = rows(200, seed=5)


def linear_rows(n: int, seed: int, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, 2))
    return a, a @ [2.0, -1.0] + noise * rng.normal(size=n)


def with_value(a: np.ndarray, place: Any, value: float) -> np.ndarray:
    copy = a.copy()
    copy[place] = value
    return copy


# constant columns

EVERYTHING: dict[str, Callable[[], Any]] = {
    "GPCDE": lambda: GPCDE(**ALONE),
    "GPCDE and companions": lambda: GPCDE(inference="none", companions=True, **QUICK),
    "GP": lambda: GP(**QUICK),
    "MDN": lambda: MDN(max_epochs=3, hidden=(4,), random_state=0),
    "CVAE": lambda: CVAE(max_epochs=2, dropout=0.0, learning_rate=0.001, random_state=0),
    "KDE": lambda: KDE(random_state=0),
    "ConditionalKDE": lambda: ConditionalKDE(random_state=0),
    "neighbours": lambda: ConditionalKDE(method="neighbours", n_neighbors=10, random_state=0),
    "LinearGaussian": LinearGaussian,
    "Stacked": lambda: Stacked([("linear", LinearGaussian()), ("kde", ConditionalKDE(random_state=0))], cv=2),
}
if flow():
    EVERYTHING["Flow"] = lambda: flow(layers=1, width=2, knots=2, max_epochs=1, random_state=0)[0]


def beside(value: float, at: pd.DataFrame) -> pd.DataFrame:
    """A constant column before each column, and one of text at the end."""
    out = pd.DataFrame(index=at.index)
    for i, name in enumerate(at.columns):
        out[f"c{i}"], out[name] = value + i, at[name]
    return out.assign(only="here")


@pytest.mark.parametrize("name", [name for name in EVERYTHING if name != "GP"])
def test_constant_columns_change_nothing(name: str, tmp_path: Path) -> None:
    """Of arrays and of data frames, and in files; whatever their value is later."""
    table, y = frame()
    cases: list[tuple[Any, Any]] = [
        (table, beside(3.7, table)),
        (X[:N], np.insert(X[:N], [0, 1, 2], [0.1, -7e9, 0.0], axis=1)),
    ]
    for plain, padded in cases:
        if name not in ("LinearGaussian", "ConditionalKDE") and plain is table:
            continue
        one, other = EVERYTHING[name]().fit(plain, y), EVERYTHING[name]().fit(padded, y)
        assert other.features_.width == one.features_.width
        expected = one.predict_density(plain).log_pdf(y)
        np.testing.assert_allclose(other.predict_density(padded).log_pdf(y), expected, rtol=1e-9)
        other.save(tmp_path / "model")
        again = gpcde.load(tmp_path / "model")
        changed = padded.assign(c0=9.0) if plain is table else with_value(padded, (slice(None), 0), 9.0)
        np.testing.assert_allclose(again.predict_density(changed).log_pdf(y), expected, rtol=1e-9)


def test_constant_columns_are_still_known() -> None:
    table, y = frame()
    padded = beside(1.0, table)
    model = LinearGaussian().fit(padded, y)
    assert model.features_.names == tuple(padded.columns)
    assert [padded.columns[place] for place in model.features_.constant] == ["c0", "c1", "c2", "only"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(padded.drop(columns="c0"))
    with pytest.raises(ValueError, match="column only of X holds 'there', never seen in training"):
        model.predict(padded.assign(only="there"))
    with pytest.raises(ValueError, match="^X contains.*NaN in column c1"):
        model.predict(padded.assign(c1=np.nan))


def test_rows_of_no_weight_do_not_make_a_column_vary() -> None:
    weight = np.ones(N)
    weight[3] = 0
    table = np.column_stack([X[:N], with_value(np.ones(N), 3, 5.0)])
    model = GPCDE(inference="none", **QUICK).fit(table, Y[:N], weight)
    assert model.features_.constant == (2,)
    assert model.state_.model.inducing_points.shape[1] == 2


@pytest.mark.parametrize("name", EVERYTHING)
def test_without_any_column_that_varies_the_density_is_of_y_alone(name: str, tmp_path: Path) -> None:
    model = EVERYTHING[name]().fit(np.ones((N, 2)), Y[:N])
    assert model.features_.width == 0
    density = model.predict_density([[1.0, 1.0], [5.0, -3.0]])
    one, other = density.log_pdf(Y[[0, 0]])
    assert np.isfinite(one)
    assert one == other
    model.save(tmp_path / "model")
    again = gpcde.load(tmp_path / "model").predict_density([[0.0, 0.0]])
    np.testing.assert_allclose(again.log_pdf(Y[:1]), one, rtol=1e-9)


# wild values


@pytest.mark.parametrize(
    ("make", "size"),
    [
        *((LinearGaussian, size) for size in (1e3, -1e6, 1e100)),
        *(
            pytest.param(make, size, marks=[] if size == 1e3 else pytest.mark.slow)
            for make in (lambda: ConditionalKDE(random_state=0), lambda: KDE(random_state=0))
            for size in (1e3, -1e6, 1e100)
        ),
    ],
)
@pytest.mark.parametrize("what", ["X", "y"])
def test_a_wild_value_costs_next_to_nothing(make: Callable[[], Any], what: str, size: float) -> None:
    x, y = linear_rows(200, 0)
    new = linear_rows(500, 1)
    before = make().fit(x, y).score(*new)
    if what == "X":
        x = with_value(x, (7, 1), size * x.std())
    else:
        y = with_value(y, 7, size * y.std())
    message = f"column {'1 of X' if what == 'X' else '0 of y'} is far from .* in 1 of 200 rows .*, which are left out"
    with pytest.warns(DataWarning, match=message):
        model = make().fit(x, y)
    assert model.score(*new) > before - 0.05


@pytest.mark.parametrize("what", ["X", "y"])
def test_a_wild_value_costs_the_gaussian_process_next_to_nothing(what: str) -> None:
    """As it is left out, it is the model of the other rows, and stays so where training goes on."""
    x, y = rows(N + 1)  # as many as the small models have, but for the one
    bad_x, bad_y = (with_value(x, (7, 1), 1e3), y) if what == "X" else (x, with_value(y, 7, -1e4))
    clean = GPCDE(inference="gaussian", warm_start=True, **QUICK).fit(np.delete(x, 7, 0), np.delete(y, 7))
    with pytest.warns(DataWarning, match=f"of {what} is far.* in 1 of 49 rows"):
        model = GPCDE(inference="gaussian", warm_start=True, **QUICK).fit(bad_x, bad_y)
    assert_same_model(model, clean)
    with pytest.warns(DataWarning, match=f"of {what} is far"):
        model.fit(bad_x, bad_y)
    assert_same_model(model, clean.fit(np.delete(x, 7, 0), np.delete(y, 7)))


def test_more_rows_are_looked_over_too() -> None:
    model = GPCDE(inference="none", **QUICK).fit(*rows())
    with pytest.warns(DataWarning, match="column 0 of y is far from all its other values in 1 of 48 rows"):
        model.partial_fit(NEW_X[:N], with_value(NEW_Y[:N], 7, 1e6))
    assert model.n_seen_ == 2 * N - 1
    assert model.score(NEW_X, NEW_Y) > -3


@pytest.mark.parametrize("weighted", [False, True])
def test_a_wild_row_counts_as_often_as_it_says(weighted: bool) -> None:
    """Twice, or with weight 2, it is one value."""
    y = with_value(Y[:N], 7, 1e6)
    x, weight = X[:N], np.ones(N)
    if weighted:
        weight[7] = 2
    else:
        x, y, weight = np.append(x, x[7:8], 0), np.append(y, y[7]), np.ones(N + 1)
    with pytest.warns(DataWarning, match="1 of 48 rows"):
        model = GPCDE(inference="none", **QUICK).fit(x, y, weight)
    assert model.n_seen_ == N - 1
    assert model.transform_.scale[0] < 10


def test_some_wild_values_of_x_are_brought_nearer_and_their_rows_stay() -> None:
    """As a code for what is missing: 5 of 600 rows."""
    x, y = linear_rows(600, 0, noise=1.0)
    bad = with_value(x, (slice(0, 5), 0), 99999.0)
    with pytest.warns(DataWarning, match="column 0 of X is far.* in 5 of 600 rows .*brought nearer in training"):
        model = ConditionalKDE(random_state=0).fit(bad, y)
    assert len(model.y_) == 600
    others = x[5:, 0]
    np.testing.assert_allclose(model.features_.location[0], others.mean())
    np.testing.assert_allclose(model.features_.scale[0], others.std())
    limit = 2 * np.abs((others - others.mean()) / others.std()).max()
    np.testing.assert_allclose(model.x_.dense[:5, 0], limit)
    np.testing.assert_array_equal(model.predict([[1e300, 0.0]]), model.predict([[99999.0, 0.0]]))


def test_heavy_tails_stay() -> None:
    """A Student-t with 1.5 degrees of freedom: hardly ever a row, and then one."""
    rng = np.random.default_rng(0)
    lost = [isolated(rng.standard_t(1.5, (300, 1))).sum() for _ in range(500)]
    assert max(lost) == 1
    assert np.mean(lost) < 0.06
    assert not isolated(np.exp(2 * rng.standard_normal((1000, 50)))).any()


NOT_WILD = {
    "an indicator of one row": np.eye(1, 500)[0],
    "a sparse count": np.r_[np.zeros(480), np.ones(19), 5.0],
    "two of a kind": np.r_[np.linspace(-1, 1, 298), 1e6, 1e6],
    "an end that is near": np.r_[np.linspace(-1, 1, 299), 20.0],
    "few rows": np.r_[np.linspace(-1, 1, 18), 1e6],
}


@pytest.mark.parametrize("name", NOT_WILD)
def test_what_is_not_wild(name: str) -> None:
    assert not isolated(NOT_WILD[name][:, None]).any()


def test_what_is_wild_among_values_that_repeat() -> None:
    """Nine of ten are 0; and only on the scale of all columns, where they have one."""
    rare = np.where(np.arange(500) % 10, 0.0, np.linspace(1, 2, 500))
    np.testing.assert_array_equal(np.flatnonzero(isolated(with_value(rare, 0, 1e4)[:, None])), [0])
    pixels = np.stack([np.linspace(0, 1, 100), with_value(np.linspace(0.5, 0.5001, 100), 3, 0.9)], axis=1)
    assert isolated(pixels).any(0).tolist() == [False, True]
    assert not isolated(pixels, together=True).any()
    assert np.argwhere(isolated(with_value(pixels, (4, 0), 1e5), together=True)).tolist() == [[4, 0]]


def test_the_scale_of_a_transformed_y_is_what_counts() -> None:
    y = with_value(np.exp(0.2 * Y), 7, np.exp(12.0))
    with pytest.warns(DataWarning, match="of y is far"):
        LinearGaussian().fit(X, y)
    LinearGaussian(y_transform="log").fit(X, y)


def test_a_stack_leaves_the_rows_out_that_its_members_do() -> None:
    x, y = linear_rows(100, 0)
    model = Stacked([("linear", LinearGaussian()), ("kde", KDE(random_state=0))], cv=2, random_state=0)
    with pytest.warns(DataWarning, match="of y is far"):
        model.fit(x, with_value(y, 7, 1e6))
    assert model.weights_[0] > 0.9
    assert model.score(*linear_rows(100, 1)) > 0.5


# units


@pytest.mark.parametrize("size", [1e-140, 1e140])
def test_units_of_y_up_to_1e150_work(size: float) -> None:
    plain, other = LinearGaussian().fit(X, Y), LinearGaussian().fit(X, Y * size)
    np.testing.assert_allclose(other.score(X, Y * size), plain.score(X, Y) - np.log(size))
    np.testing.assert_allclose(other.predict_density(X).std(), plain.predict_density(X).std() * size, rtol=1e-9)


@pytest.mark.parametrize("make", [LinearGaussian, lambda: GPCDE(inference="none", **QUICK)])
@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_units_of_y_beyond_are_refused_with_what_to_do(make: Callable[[], Any], size: float) -> None:
    y = pd.DataFrame({"low": Y[:N], "price": Y[:N] * size})
    with pytest.raises(ValueError, match="column price of y .* square is no number any more: multiply .* by 1e-?[0-9]"):
        make().fit(X[:N], y)
    make().fit(X[:N], y.assign(price=y.price / size))


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_units_of_x_of_any_size_work(size: float) -> None:
    one, other = LinearGaussian().fit(X, Y), LinearGaussian().fit(X * size, Y)
    np.testing.assert_allclose(other.score(X * size, Y), one.score(X, Y))


def test_numbers_of_x_at_the_ends_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="column b of X is in units of .*e-31[01].*: scale it up"):
        LinearGaussian().fit(pd.DataFrame({"a": X[:, 0], "b": X[:, 1] * 1e-310}), Y)
    model = LinearGaussian().fit(pd.DataFrame({"a": X[:, 0] * 1e-100, "b": X[:, 1]}), Y)
    with pytest.raises(ValueError, match=r"column a of X is 1e\+300 in row 1, too large for its unit in training"):
        model.predict(pd.DataFrame({"a": [0, 1e300], "b": [0.0, 0.0]}))


# values that repeat

ATOMS: dict[str, tuple[np.ndarray, str]] = {
    "whole numbers": (np.round(Y), "column 0 of y is 2 in 20% of the 200 rows"),
    "many zeros": (np.where(X[:, 1] > 0.8, Y, 0.0), "is 0 in [78].% of the 200 rows"),
    "few distinct": (np.arange(200.0) % 9, "is 0 in 12% of the 200 rows"),
    "counts": (np.tile(np.arange(40.0), 25), r"has 40 distinct values in 1000 rows \(4.0%\)"),
}


@pytest.mark.parametrize("name", ATOMS)
def test_values_that_repeat_are_told(name: str) -> None:
    y, message = ATOMS[name]
    with pytest.warns(DataWarning, match=message):
        LinearGaussian().fit(np.resize(X, (len(y), 2)), y)
    with pytest.warns(DataWarning, match="column count of y"):
        LinearGaussian().fit(np.resize(X, (len(y), 2)), pd.DataFrame({"y": np.linspace(0, 1, len(y)), "count": y}))


@pytest.mark.parametrize(
    "y", [np.arange(19.0) % 3, np.round(np.linspace(-3, 30, 5000), 1), np.r_[np.zeros(10), np.linspace(1, 2, 90)]]
)
def test_a_few_values_that_repeat_are_not_worth_a_word(y: np.ndarray) -> None:
    LinearGaussian().fit(np.linspace(0, 1, len(y))[:, None], y)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", ["whole numbers", "many zeros"])
@pytest.mark.parametrize("make", [lambda: GPCDE(**{**QUICK, "max_steps": 200}), KDE, ConditionalKDE, MDN])
def test_densities_of_values_that_repeat_stay_finite(make: Callable[[], Any], name: str) -> None:
    y, _ = ATOMS[name]
    with pytest.warns(DataWarning, match="of y is"):
        model = make().fit(X[:N], y[:N])
    for some in (slice(N), slice(-N, None)):  # and of rows that it has not seen
        density = model.predict_density(X[some])
        for value in (density.log_pdf(y[some]), density.mean(), density.std(), density.interval(0.9)):
            assert np.isfinite(value).all()
        assert density.log_pdf(y[some]).max() < 15


# masked arrays


def test_masked_entries_are_refused_and_arrays_without_are_arrays() -> None:
    model = LinearGaussian().fit(X, Y)
    masked = np.ma.masked_where(X > 2, X)
    count, first = (X > 2).sum(), np.argwhere(X > 2)[0]
    message = rf"^X has {count} masked entries, the first at \[{first[0]}, {first[1]}\]: drop these rows, or fill"
    for call in (
        lambda: LinearGaussian().fit(masked, Y),
        lambda: model.predict(masked),
        lambda: model.score(masked, Y),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    low = np.ma.masked_less(Y, np.median(Y))
    for call in (lambda: LinearGaussian().fit(X, low), lambda: model.score(X, low)):
        with pytest.raises(ValueError, match="^y has 100 masked entries, the first at"):
            call()
    with pytest.raises(ValueError, match="^sample_weight has 100 masked"):
        model.score(X, Y, np.ma.masked_less(Y, np.median(Y)))
    again = LinearGaussian().fit(np.ma.array(X), np.ma.array(Y, mask=False))
    np.testing.assert_array_equal(again.predict(np.ma.array(X)), model.predict(X))


# names of outputs

TWO = rows(outputs=2)


def two(library: Any, names: tuple[str, str] = ("low", "high")) -> Any:
    return library.DataFrame(dict(zip(names, TWO[1].T, strict=True)))


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_a_frame_of_outputs_is_answered_with_its_like(library: Any, tmp_path: Path) -> None:
    plain = LinearGaussian().fit(*TWO)
    LinearGaussian().fit(TWO[0], two(library)).save(tmp_path / "model")
    model = gpcde.load(tmp_path / "model")
    assert model.output_names_ == ("low", "high")
    mean = model.predict(TWO[0])
    assert isinstance(mean, library.DataFrame)
    assert list(mean.columns) == ["low", "high"]
    np.testing.assert_allclose(mean.to_numpy(), plain.predict(TWO[0]), rtol=1e-12)
    assert model.score(TWO[0], two(library)) == model.score(*TWO)


def test_the_index_of_x_goes_with_the_means() -> None:
    table = pd.DataFrame(TWO[0], columns=["a", "b"], index=[f"row {i}" for i in range(N)])
    one = LinearGaussian().fit(table, pd.DataFrame({"y": TWO[1][:, 0]})).predict(table[5:9])
    assert one.index.tolist() == ["row 5", "row 6", "row 7", "row 8"]
    assert one.shape == (4, 1)


@pytest.mark.parametrize(
    "y",
    [TWO[1], TWO[1].tolist(), pd.DataFrame(TWO[1]), pd.Series(TWO[1][:, 0], name="y"), pl.Series("y", TWO[1][:, 0])],
    ids=["array", "lists", "frame without names", "series", "polars series"],
)
def test_other_outputs_are_answered_with_arrays(y: Any) -> None:
    model = LinearGaussian().fit(TWO[0], y)
    assert model.output_names_ is None
    assert type(model.predict(TWO[0])) is np.ndarray
    assert model.predict(TWO[0]).shape == np.shape(y)


def test_outputs_of_other_names_are_refused_wherever_they_come() -> None:
    model = GPCDE(latent_dim=1, kernel="matern32", warm_start=True, **ALONE).fit(TWO[0], two(pd))
    turned, others = two(pd, ("high", "low")), two(pl, ("low", "price"))
    for call in (model.score, model.fit, model.partial_fit, model.infer_latent):
        with pytest.raises(ValueError, match="in another order than in .* it has high, low; training had low, high"):
            call(TWO[0], turned)
        with pytest.raises(ValueError, match="with other names than in .* it has low, price; training had low, high"):
            call(TWO[0], others)
    model.set_params(warm_start=False, inference="none", latent_dim=None, kernel="rbf").fit(TWO[0], turned)
    assert model.output_names_ == ("high", "low")
    assert model.fit(*TWO).output_names_ is None


def test_files_of_old_have_no_names() -> None:
    model: DensityEstimator = gpcde.load(next(FILES.glob("*.gpcde")))
    assert model.output_names_ is None
    assert model.frame_ is None


def test_frames_of_outputs_go_through_cross_validation() -> None:
    y = two(pd)
    np.testing.assert_allclose(
        cross_val_predict(LinearGaussian(), TWO[0], y, cv=3), cross_val_predict(LinearGaussian(), *TWO, cv=3)
    )
    assert np.isfinite(cross_val_score(LinearGaussian(), TWO[0], y, cv=3)).all()
    compared = compare(TWO[0], y, {"linear": LinearGaussian()}, cv=2)
    assert compared.outputs == 2
    stack = Stacked([("linear", LinearGaussian()), ("kde", KDE(random_state=0))], cv=2, random_state=0).fit(TWO[0], y)
    assert list(stack.predict(TWO[0]).columns) == ["low", "high"]


def test_nothing_is_said_of_usual_data() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LinearGaussian().fit(X, Y)
        GPLVM(**QUICK).fit(X[:N], Y[:N])
