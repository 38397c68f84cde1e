"""GPCDE of a user's own design: it is trained, cloned, saved and resumed, and nothing else may contradict it."""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import gpcde
from gpcde import GPCDE, Design, FileError
from gpcde.estimators.plan import BATCH, FULL_BATCH, MODEL_PARAMETERS, Plan, choose
from gpcde.model import RBF, ConstantNoise, FreeForm, GaussianLatents, Matern52, PointMixing, make_inputs
from gpcde.runtime.files import KNOWN
from small import N, assert_same_model, fitted, frame, rows
from unseparated import Whole

X, Y = rows()
STEPS: dict[str, Any] = {"max_steps": 50, "random_state": 0}
SMALL = Design(inducing=8, points=12, rule="even", trials=1)


def same(one: Design | None, other: Design | None) -> bool:
    """Field by field, the numbers of parts too."""
    assert one is not None
    assert other is not None
    names = [field.name for field in dataclasses.fields(Design)]
    return bool(eqx.tree_equal(*([getattr(design, name) for name in names] for design in (one, other))))


def by_name(**said: Any) -> Any:
    """What GPCDE itself makes of parameters."""
    model = GPCDE(**STEPS, **said).fit(X, Y)
    return model, model._plan(model._more_rows(X, Y)).design


@pytest.mark.parametrize("inference", ["none", "free-form"])
def test_a_design_of_the_defaults_is_the_model_of_the_defaults(inference: str) -> None:
    """To the bit, whether its parts are named or said in the design."""
    plain, design = by_name(inference=inference, n_inducing=8)
    assert_same_model(GPCDE(design=design, **STEPS).fit(X, Y), plain)


DESIGNS: dict[str, Any] = {
    "names": lambda: SMALL,
    "parts of its own": lambda: dataclasses.replace(
        SMALL,
        kernel=Whole(RBF.create(3)),
        inference=FreeForm.create(1, 7, "even"),
        likelihood=ConstantNoise.create(0.3, learn=False),
    ),
    "amortised": lambda: Design(inference="amortised", inducing=8, hidden=(6,), trials=1, expectation="closed"),
    "float32": lambda: dataclasses.replace(SMALL, inference="none", input_map="concatenate", dtype="float32"),
}


@cache
def trained(name: str) -> GPCDE:
    return GPCDE(design=DESIGNS[name](), **STEPS).fit(X, Y)


def test_the_parts_are_those_of_the_design() -> None:
    own = trained("parts of its own").state_.model
    assert len(own.inducing_points) == 8
    assert isinstance(own.kernel, Whole)
    latents = own.latents
    assert isinstance(latents, FreeForm)
    assert len(latents.nodes) == 7
    noise = own.likelihood
    assert isinstance(noise, ConstantNoise)
    assert float(np.exp(noise.log_noise_variance)) == pytest.approx(0.3, rel=1e-12)
    assert trained("float32").state_.model.inducing_points.dtype == np.float32


@pytest.mark.parametrize("name", DESIGNS)
def test_it_learns(name: str) -> None:
    """Better than before the first step, which is no worse than a normal density of y."""
    model = trained(name)
    assert len(model.state_.model.inducing_points) == 8
    if name == "amortised":
        latents = model.state_.model.latents
        assert isinstance(latents, GaussianLatents)
        assert (latents.expectation, latents.dim) == ("closed", 1)
    assert model.history_["bound"][-1] > -np.log(Y.std()) - 0.5 * np.log(2 * np.pi) - 0.5 - 0.7
    assert model.score(X, Y) > model.history_["bound"][-1] - 0.1  # the bound is a bound
    assert 0 < model.n_steps_ <= 50


@pytest.mark.parametrize("name", DESIGNS)
def test_it_is_cloned_saved_and_loaded(name: str, tmp_path: Path) -> None:
    """With its design; a clone has nothing learnt, a loaded model answers alike and goes on learning alike."""
    model = trained(name)
    other = clone(model)
    assert other.design is not model.design
    assert same(other.design, model.design)
    with pytest.raises(NotFittedError):
        other.predict(X)
    model.save(tmp_path / "model")
    again = gpcde.load(tmp_path / "model")
    assert isinstance(again, GPCDE)
    assert same(again.design, model.design)
    np.testing.assert_array_equal(again.predict_density(X).log_pdf(Y), model.predict_density(X).log_pdf(Y))
    jax.tree.map(np.testing.assert_array_equal, again.state_, model.state_)


def test_a_part_whose_module_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained("parts of its own").save(tmp_path / "model")
    monkeypatch.delitem(KNOWN, "unseparated.Whole")
    with pytest.raises(FileError, match="holds a unseparated.Whole, which is not known here: import the module"):
        gpcde.load(tmp_path / "model")


def test_designs_can_be_searched() -> None:
    designs = [dataclasses.replace(SMALL, inference="none", inducing=m) for m in (2, 8)]
    search = GridSearchCV(GPCDE(**STEPS), {"design": designs}, cv=2, error_score="raise").fit(X[:, :1], X[:, 0] ** 3)
    assert search.best_params_["design"].inducing == 8
    assert len(search.best_estimator_.state_.model.inducing_points) == 8


# how it is trained


def test_early_stopping_holds_rows_out_for_a_design_too() -> None:
    model = GPCDE(design=SMALL, early_stopping=True, validation_fraction=0.25, **STEPS).fit(X, Y)
    assert model.n_seen_ == N - 12
    validation = model.history_["validation"]
    assert model.n_steps_ == model.history_["step"][validation.argmax()]
    assert validation.max() > -np.log(Y.std()) - 0.5 * np.log(2 * np.pi) - 1.2
    for own in (Design(inference="gaussian"), Design(inference=GaussianLatents(None, 1))):
        with pytest.raises(ValueError, match="early_stopping needs q"):
            GPCDE(design=own, early_stopping=True, **STEPS).fit(X, Y)


def test_weights_and_new_rows_and_a_warm_start() -> None:
    """As with the model by its parameters."""
    x, y = rows(N * 3 // 2)
    weight = np.arange(len(y)) % 3  # two of three rows are there: as many as above
    index = np.repeat(np.arange(len(y)), weight)
    settings: dict[str, Any] = {"design": SMALL, "warm_start": True, "tol": 0.0, **STEPS}
    one, other = GPCDE(**settings).fit(x, y, weight), GPCDE(**settings).fit(x[index], y[index])
    assert_same_model(one, other)
    assert_same_model(one.fit(x, y, weight), other.fit(x[index], y[index]))
    assert one.n_steps_ == 100
    one.partial_fit(X[:16], Y[:16])
    assert one.n_seen_ == weight.sum() + 16


def test_a_checkpoint_knows_the_numbers_of_a_designs_parts(tmp_path: Path) -> None:
    """Two kernels of one shape are two designs."""
    base = dataclasses.replace(SMALL, inference="none")
    one, other = (dataclasses.replace(base, kernel=RBF.create(2, scale)) for scale in (1.0, 2.0))
    path = tmp_path / "checkpoint"
    model = GPCDE(design=one, checkpoint=path, **STEPS).fit(X, Y)
    assert_same_model(GPCDE(design=clone(model).design, checkpoint=path, **STEPS).fit(X, Y), model)
    for design in (other, base, None):
        with pytest.raises(ValueError, match="belongs to other data or settings"):
            GPCDE(design=design, checkpoint=path, **STEPS).fit(X, Y)


def test_categories_are_those_of_the_data() -> None:
    """Whatever the design says of their levels."""
    table, y = frame()
    design = dataclasses.replace(SMALL, inference="none", input_map="project", input_dim=2, levels=(9, 9, 9))
    model = GPCDE(design=design, **STEPS).fit(table, y)
    assert model.state_.model.input_map.context_dim == 2
    assert model.score(table, y) > -np.log(y.std()) - 1.5
    with pytest.raises(ValueError, match="categories need input_map="):
        GPCDE(design=SMALL, **STEPS).fit(table, y)


def test_outputs_that_p_mixes_have_one_unit() -> None:
    _, y = rows(outputs=3)
    start = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 2)))[0]
    for mixing in (start, PointMixing.create(start, learn=False)):
        model = GPCDE(design=dataclasses.replace(SMALL, inference="none", mixing=mixing), **STEPS).fit(X, y)
        assert len(set(model.transform_.scale)) == 1
        assert model.state_.model.mixing.shape == (3, 2)
    with pytest.raises(ValueError, match="mixing has 3 rows, but y has 2 columns"):
        GPCDE(design=dataclasses.replace(SMALL, mixing=start), **STEPS).fit(X, y[:, :2])


# the plan


def plan(design: Design, rows: int = 100, **said: Any) -> Plan:
    params = GPCDE(design=design, **said).get_params(deep=False)
    return choose(params, rows, 2, (), np.random.default_rng(0).normal(size=(20, 1)))


def test_a_step_looks_at_no_more_latents_than_it_can() -> None:
    """Of nodes that the design does not number, or of latents given as they are, too."""
    for design in (Design(), Design(points=20, rule="even"), Design(inference=FreeForm.create(1, 20, "even"))):
        latents = design.make_latents(jax.random.key(0), make_inputs(X), 1)
        assert isinstance(latents, FreeForm)
        count = len(latents.nodes)
        most = FULL_BATCH // count
        assert plan(design, most).batch_size == most
        assert plan(design, most + 1).batch_size == min(BATCH // count, 256)
    wide = Design(inference="amortised", draws=50)
    assert (
        plan(wide, 10_000).batch_size
        == plan(Design(inference=GaussianLatents(None, 1, "draws", 50)), 10_000).batch_size
    )
    assert plan(wide, 10_000).batch_size == BATCH // 50


def test_a_design_is_trained_exactly_where_nothing_is_drawn() -> None:
    for design in (Design(), Design(inference="none"), Design(inference=FreeForm.create(1, 9))):
        assert plan(design).exact
        assert plan(design).gammas == (1.0, 1.0)
    for design in (
        Design(rule="even", shifted=True),
        Design(inference=FreeForm.create(1, 9, "even", True)),
        Design(inference="amortised"),
        Design(inference=GaussianLatents(None, 1)),
        Design(input_map="project", input_dim=1),
    ):
        assert not plan(design).exact
        assert plan(design).gammas[0] < 1


# what is refused


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("latent_dim", 1),
        ("inference", "none"),
        ("n_inducing", 8),
        ("kernel", "matern52"),
        ("input_map", "bend"),
        ("input_dim", 2),
        ("output_dim", 1),
    ],
)
def test_what_a_design_says_is_said_there(name: str, value: Any) -> None:
    model = GPCDE(design=SMALL, **{name: value}, **STEPS)
    with pytest.raises(ValueError, match=f"^{name} is part of the design: set it there, or leave design out"):
        model.fit(X, Y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_every_parameter_of_the_model_is_watched() -> None:
    """What is no part of a design says how to read y and how to train."""
    others = {"design", "y_transform", "y_bounds", "max_steps", "batch_size", "learning_rate", "tol", "early_stopping"}
    others |= {"validation_fraction", "patience", "warm_start", "checkpoint", "callbacks", "random_state", "verbose"}
    others |= {"devices", "companions", "x_transform"}
    parameters = GPCDE().get_params(deep=False)
    assert set(MODEL_PARAMETERS) == set(parameters) - others
    assert all(parameters[name] == value for name, value in MODEL_PARAMETERS.items())


@pytest.mark.parametrize("design", ["free-form", {"inference": "none"}, Design, Matern52])
def test_a_design_is_a_design(design: Any) -> None:
    model = GPCDE(**STEPS)
    model.design = design  # past the tests' own type checks
    with pytest.raises(ValueError, match="design must be a gpcde.inference.Design, got"):
        model.fit(X, Y)


def test_the_models_of_the_package_take_no_design() -> None:
    assert fitted("none")[0].design is None
    for special in (gpcde.GP, gpcde.GPLVM):
        with pytest.raises(TypeError, match="design"):
            special(**{"design": SMALL})  # type: ignore[arg-type]
