"""Files: what is read is what was written, to the bit, and what cannot be read is refused with the reason."""

import copy
import inspect
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from jaxtyping import Array, Float
from safetensors import safe_open

import gpcde
from gpcde import Design, FileError
from gpcde.density.transforms import OutputTransform
from gpcde.estimators import base
from gpcde.estimators.companions import Companions, Regression
from gpcde.estimators.cvae import Autoencoder
from gpcde.estimators.ensemble import Ensemble
from gpcde.estimators.kde import Bandwidths, Marginal
from gpcde.estimators.linear import Line
from gpcde.estimators.mdn import MixtureNetwork
from gpcde.estimators.neighbours import Neighbours
from gpcde.estimators.tables import Bends, Category, Columns
from gpcde.inference.posterior import Shared, Statistics
from gpcde.inference.training import Local, State, Trainer
from gpcde.model.input_maps import Bend, Concatenate, Features, Ignore, Project, Warp
from gpcde.model.inputs import make_inputs
from gpcde.model.kernels import RBF, Linear, Matern32, Matern52, One, Polynomial
from gpcde.model.latents import FreeForm, GaussianLatents, NoLatents
from gpcde.model.likelihood import ConstantNoise, MixedNoise, VaryingNoise
from gpcde.model.mixing import ConjugateMixing, Dimmed, GaussianMixing, Identity, PointMixing
from gpcde.model.model import Model
from gpcde.model.networks import MLP
from gpcde.model.part import Certain
from gpcde.model.prior import StandardNormal, TiltedNormal
from gpcde.model.surfaces import Surface
from gpcde.model.trend import LinearTrend, NoTrend, SmoothTrend
from gpcde.prediction.laplace import Curvature, Laplace
from gpcde.runtime import files
from gpcde.runtime.files import FORMAT, KNOWN, Stored, _digest, read, write
from small import MODELS, fitted, no_larger_than
from unseparated import Whole

Arrays = dict[str, np.ndarray]


def numbers(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(shape).normal(size=shape))


def square(n: int) -> jax.Array:
    """A sum of squares."""
    return numbers(n, n) @ numbers(n, n).T


def make_state() -> State:
    kernel = RBF.create((0, 1), [0.5, 2.0]) * Matern52.create((2,))
    latents = GaussianLatents(None, 1, "importance", 3)
    noise = ConstantNoise(numbers(), False)
    model = Model(kernel, numbers(4, 3), Concatenate(2), latents, Identity(2), noise, jitter=1e-5)
    return Trainer.create(5).init(model, Shared(numbers(4, 2), numbers(4, 4)), numbers(5, 2))


def make_network() -> MLP:
    return MLP.create(jax.random.key(0), (3, 4, 1))


def make_surface() -> Surface:
    return Surface(make_network(), 1, 2.0)


MAKE: dict[str, Callable[[], Any]] = {
    "Model": lambda: make_state().model,
    "Inputs": lambda: make_inputs(np.ones((2, 1)), [[0], [2]], (3,)),
    "Certain": Certain,
    "Ignore": Ignore,
    "Concatenate": lambda: Concatenate(3),
    "Features": lambda: Features(Concatenate(2), make_network(), 2.0),
    "NoTrend": NoTrend,
    "LinearTrend": lambda: LinearTrend.create(2, 0.3),
    "SmoothTrend": lambda: SmoothTrend(RBF.create(2), jnp.ones((3, 2)), LinearTrend.create(2)),
    "Project": lambda: Project(numbers(3, 2), numbers(3, 2), 0.7),
    "Bend": lambda: Bend(Project(numbers(2, 2), numbers(2, 2)), make_network(), 1, 0.25),
    "Warp": lambda: Warp(make_network(), 1, 3.0),
    "RBF": lambda: RBF.create((0, 2), [1.0, 3.0], 0.3),
    "Matern32": lambda: Matern32.create(2),
    "Matern52": lambda: Matern52.create((1,), 0.1),
    "Linear": lambda: Linear.create(2),
    "Polynomial": lambda: Polynomial.create(2, 3),
    "Sum": lambda: RBF.create(1) + One(),
    "Product": lambda: RBF.create(1) * (Linear.create(1) + One()),
    "One": One,
    "NoLatents": NoLatents,
    "FreeForm": lambda: FreeForm.create(2, 4, "even"),
    "GaussianLatents": lambda: GaussianLatents(make_network(), 1, "draws", 7, True),
    "ConstantNoise": lambda: ConstantNoise(numbers(), False),
    "MixedNoise": lambda: MixedNoise(numbers(), numbers(1)[0]),
    "VaryingNoise": lambda: VaryingNoise(numbers(), make_surface(), 3.0),
    "StandardNormal": StandardNormal,
    "TiltedNormal": lambda: TiltedNormal(make_surface()),
    "Surface": make_surface,
    "Identity": lambda: Identity(4),
    "PointMixing": lambda: PointMixing(numbers(3, 2), numbers(2, 3).T, False, 2.0),
    "GaussianMixing": lambda: GaussianMixing.create(numbers(3, 2)),
    "ConjugateMixing": lambda: ConjugateMixing.of(numbers(3, 2), square(2), numbers(2, 3).T, numbers(), 3),
    "Dimmed": lambda: Dimmed.create(PointMixing.create(numbers(3, 2)), jnp.asarray(0.5)),
    "Design": lambda: Design(
        inference=GaussianLatents(None, 2),
        kernel=RBF.create(3),
        hidden=(4, 5),
        mixing=np.ones((3, 2)),
        levels=(2,),
        input_map="warp",
    ),
    "MLP": make_network,
    "MixtureNetwork": lambda: MixtureNetwork(MLP.create(jax.random.key(0), (3, 25)), 5, 2),
    "Autoencoder": lambda: Autoencoder(make_network(), make_network(), numbers(), 2, True, False, 0.1),
    "Bandwidths": lambda: Bandwidths(np.ones(2), np.zeros(0), np.full(1, 0.5)),
    "Neighbours": lambda: Neighbours(
        make_inputs(np.ones((2, 1)), [[0], [2]], (3,)),
        np.ones((2, 2)),
        np.zeros(2),
        Bandwidths(np.ones(2), np.ones(1), np.full(1, 0.5)),
        np.array([3]),
    ),
    "Ensemble": lambda: Ensemble(
        (jnp.ones((2, 3, 4), jnp.float32), jnp.ones((2, 4, 6))), (jnp.ones((2, 4)), jnp.ones((2, 6))), 2, 1
    ),
    "Line": lambda: Line(np.ones((3, 2)), np.eye(2), np.eye(3), 0),
    "Marginal": lambda: Marginal(np.ones((2, 3)), np.log([0.5, 0.5]), np.ones(3)),
    "Regression": lambda: Regression(make_state().model, make_state().posterior),
    "Companions": lambda: Companions(np.array([0.75, 0.25]), (Line(np.ones((3, 2)), np.eye(2), np.eye(3), 0),)),
    "Curvature": lambda: Curvature(np.eye(3), np.eye(2)),
    "Laplace": lambda: Laplace((Curvature(np.eye(3), np.eye(2)),)),
    "Statistics": lambda: Statistics(square(3), numbers(3, 1)),
    "Shared": lambda: Shared(numbers(3, 1), numbers(3, 3)),
    "Category": lambda: Category(3, ("a", 1, 2.5, True)),
    "Bends": lambda: Bends(np.arange(2), *np.ones((4, 2))),
    "Columns": lambda: Columns(("a", "b"), (1,), np.ones(1), np.full(1, 2.0), (Category(0, ("u", "v")),)),
    "Local": lambda: Local(numbers(2, 1), numbers(2, 1), numbers(2, 1) ** 2, jnp.arange(2)),
    "State": make_state,
    "OutputTransform": lambda: OutputTransform("log", 0.0, np.inf, np.ones(2), np.full(2, 3.0)),
    "ScaleByAdamState": lambda: jax.tree.map(np.asarray, make_state().adam._replace(mu=np.ones(2), nu=np.ones(2))),
}


def test_every_class_of_ours_that_may_be_in_a_file_is_tried_here() -> None:
    """A class of which nothing can be made is known too, and harmless."""
    assert set(MAKE) == {name for name, cls in KNOWN.items() if "." not in name and not inspect.isabstract(cls)}


class Around(Stored):
    """Something in a module."""

    part: Any


@pytest.mark.parametrize("name", MAKE)
def test_what_is_read_is_what_was_written(name: str, tmp_path: Path) -> None:
    value = MAKE[name]()
    write(tmp_path / "file", "a kind", Around(value) if name == "Local" else value)
    kind, again = read(tmp_path / "file")
    assert kind == "a kind"
    again = again.part if name == "Local" else again
    assert type(again) is type(value) is KNOWN[name]
    one, other = (vars(v) if isinstance(v, Design) else v for v in (again, value))
    assert eqx.tree_equal(one, other, typematch=True)


def test_plain_values_and_arrays_of_all_sorts(tmp_path: Path) -> None:
    value: dict[str, Any] = {
        "plain": [None, True, 3, -0.1, "ü", (1, (2.5, "x")), [], (), {}],
        "far": (np.inf, -np.inf),
        "odd": [
            np.zeros((0, 3)),
            np.array(1.5),
            np.arange(6).reshape(2, 3).T,
            np.array([True]),
            np.ones(1, np.float32),
        ],
    }
    write(tmp_path / "file", "kind", value | {"nan": np.nan, "numpy": (np.int64(3), np.float64(0.1), np.bool_(False))})
    again = read(tmp_path / "file")[1]
    assert np.isnan(again.pop("nan"))
    assert again.pop("numpy") == (3, 0.1, False)
    assert eqx.tree_equal(again, value, typematch=True)


class Steep(Certain):
    """A part of a user's own."""

    slope: Float[Array, " d"]
    name: str = eqx.field(static=True, default="")


def test_parts_of_a_users_own_are_known_by_their_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of one name are told apart, and one whose module is not imported is missed by name."""
    part = Steep(numbers(3), "a")
    write(tmp_path / "file", "kind", {"part": part, "kernel": Whole(RBF.create(1))})
    again = read(tmp_path / "file")[1]
    assert eqx.tree_equal(again, {"part": part, "kernel": Whole(RBF.create(1))}, typematch=True)
    assert KNOWN[f"{__name__}.Steep"] is Steep
    monkeypatch.delitem(KNOWN, f"{__name__}.Steep")
    with pytest.raises(FileError, match=f"holds a {__name__}.Steep, which is not known here: import the module"):
        read(tmp_path / "file")


def test_two_classes_of_one_name_are_refused() -> None:
    """One would be read in place of the other."""
    twin = type("Category", (), {"__module__": "gpcde.elsewhere"})
    with pytest.raises(TypeError, match="two classes would be called Category in files: gpcde.estimators.tables's and"):
        files.register(twin)
    assert KNOWN["Category"] is Category


def test_what_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """An abstract class, and a part whose own checks fail."""
    write(tmp_path / "file", "kind", [Identity(3), Design()])
    rewrite(tmp_path / "file", lambda m, a, d: d["value"][0].update({"class": "Mixing", "fields": {}}))
    with pytest.raises(FileError, match="description does not fit.*abstract"):
        read(tmp_path / "file")
    rewrite(tmp_path / "file", lambda m, a, d: d["value"].pop(0))
    assert isinstance(read(tmp_path / "file")[1][0], Design)
    rewrite(tmp_path / "file", lambda m, a, d: d["value"][0]["fields"].update(rule="odd"))
    with pytest.raises(FileError, match="rule must be one of"):
        read(tmp_path / "file")


@pytest.mark.parametrize("value", [object(), print, {1, 2}, 1j])
def test_what_has_no_place_in_a_file_is_not_written(value: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=f"cannot write .here.1: a {type(value).__name__} has no place"):
        write(tmp_path / "file", "kind", {"here": [1, value]})
    assert list(tmp_path.iterdir()) == []


def answers(model: Any, X: Any, y: np.ndarray) -> list[np.ndarray]:
    density = model.predict(X, return_density=True)
    return [density.log_pdf(y), density.mean(), density.quantile([0.1, 0.9])]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_from_a_file_answers_alike(name: str, tmp_path: Path) -> None:
    model, X, y = fitted(name)
    model.save(tmp_path / "model")
    again = gpcde.load(tmp_path / "model")
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    for one, other in zip(answers(model, X, y), answers(again, X, y), strict=True):
        np.testing.assert_array_equal(one, other)
    for attribute in set(vars(model)) - set(model.get_params()):
        one, other = (getattr(m, attribute) for m in (again, model))
        jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("name", ["categories", "mdn of categories"])
def test_a_model_from_a_file_still_knows_its_columns(name: str, tmp_path: Path) -> None:
    model, X, _ = fitted(name)
    model.save(tmp_path / "model")
    again = gpcde.load(str(tmp_path / "model"))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(X.rename(columns={"a": "b"}))
    with pytest.raises(ValueError, match="'nowhere', never seen"):
        again.predict(X.assign(town="nowhere"))


# what is refused


def rewrite(path: Path, change: Callable[[dict[str, str], Arrays, Any], Any], seal: bool = True) -> None:
    """Change a file's metadata, arrays or description; with `seal`, its digest is made to fit."""
    with safe_open(path, "np") as file:
        metadata, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    description = json.loads(metadata["description"])
    change(metadata, arrays, description)
    metadata["description"] = json.dumps(description)
    if seal:
        metadata["digest"] = _digest(metadata, arrays)
    safetensors.numpy.save_file(arrays, path, metadata)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fitted("none")[0].save(tmp_path / "model")
    return tmp_path / "model"


def learnt(description: Any) -> Any:
    return description["value"]["dict"]["learnt"]["dict"]


def grow(_: Any, arrays: Arrays, description: Any) -> None:
    """q(u) of one inducing point more than there are, and the description says so."""
    for name, shape in {"G": (9, 9), "H": (9, 1)}.items():
        place = learnt(description)["state_"]["fields"]["posterior"]["fields"][name]
        arrays[place["array"]] = np.zeros(shape)
        place["shape"] = list(shape)


def replace_all(arrays: Arrays, description: Any, name: str, value: Any = None) -> None:
    """Something else (or nothing) in place of what was learnt, and its arrays gone."""
    for place in [key for key in arrays if key.startswith(f".learnt.{name}.")]:
        arrays.pop(place)
    description.pop(name) if value is None else description.update({name: value})


CHANGES: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "newer": (
        lambda m, a, d: m.update(gpcde=str(FORMAT + 1), version="9.1"),
        "by gpcde 9.1, in a newer format.*upgrade",
    ),
    "no number": (lambda m, a, d: m.update(gpcde="one"), "newer format"),
    "class": (lambda m, a, d: learnt(d)["state_"].update({"class": "Popen"}), "holds a Popen, which is not known here"),
    "kind": (lambda m, a, d: d.update(kind="object"), "said to hold a object, and does not"),
    "inner kind": (lambda m, a, d: d["value"]["dict"].update(kind="object"), "holds a object, which this version"),
    "array": (lambda m, a, d: a.pop(sorted(a)[0]), "array .* is missing"),
    "shape": (lambda m, a, d: a.update({sorted(a)[0]: np.zeros((3, 3))}), r"is float64 \[3, 3\], but should be"),
    "type": (
        lambda m, a, d: a.update({".learnt.state_.step": np.zeros((), np.float32)}),
        "float32 .*, but should be int32",
    ),
    "q(u)": (grow, "do not fit together"),
    "outputs": (lambda m, a, d: learnt(d).update(n_outputs_=2), "outputs do not fit its model"),
    "field": (lambda m, a, d: learnt(d)["state_"]["fields"].pop("model"), "description does not fit"),
    "state": (lambda m, a, d: replace_all(a, learnt(d), "state_", [1]), "GPCDE.state_ cannot be list"),
    "no state": (lambda m, a, d: replace_all(a, learnt(d), "state_"), "lacks some of what it should have learnt"),
    "not used": (lambda m, a, d: learnt(d).pop("state_"), "nothing uses its array .learnt.state_"),
    "attribute": (lambda m, a, d: learnt(d).update(predict=3), "unknown attributes .'predict'"),
    "parameter": (lambda m, a, d: d["value"]["dict"]["params"]["dict"].update(depth=3), "'depth'"),
    "no parts": (lambda m, a, d: (a.clear(), d.update(value=3)), "do not fit together"),
    "no kind": (lambda m, a, d: d.pop("kind"), "description does not fit"),
    "form": (lambda m, a, d: d["value"]["dict"].update(learnt={"call": "exit"}), r"unknown form, \['call'\]"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_whose_parts_do_not_fit_is_refused(change: str, path: Path) -> None:
    """Someone who changes a file may fit the digest too."""
    rewrite(path, CHANGES[change][0])
    with pytest.raises(FileError, match=CHANGES[change][1]) as error:
        gpcde.load(path)
    assert str(path) in str(error.value)


def test_an_untouched_rewritten_file_is_not_refused(path: Path) -> None:
    """What is refused above is refused for what was changed."""
    rewrite(path, lambda m, a, d: None)
    assert isinstance(gpcde.load(path), gpcde.GPCDE)


def test_a_network_that_does_not_fit_its_columns_is_refused(tmp_path: Path) -> None:
    fitted("mdn")[0].save(tmp_path / "model")
    rewrite(tmp_path / "model", lambda m, a, d: learnt(d)["features_"]["fields"]["numbers"]["tuple"].append(2))
    with pytest.raises(FileError, match="the columns of X are not each a number or a category"):
        gpcde.load(tmp_path / "model")


@pytest.mark.parametrize("where", [0.0, 0.3, 0.6, 1.0])
def test_a_changed_byte_is_noticed(where: float, path: Path) -> None:
    content = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    content[header + int(where * (len(content) - header - 1))] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileError, match="altered after it was written"):
        gpcde.load(path)


def test_a_changed_description_is_noticed(path: Path) -> None:
    rewrite(path, lambda m, a, d: learnt(d).update(n_seen_=1), seal=False)
    with pytest.raises(FileError, match="altered after it was written"):
        gpcde.load(path)


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_a_file_that_was_cut_off_is_noticed(size: int, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(FileError, match="no gpcde model, or was cut off"):
        gpcde.load(path)


def test_other_files_are_told_from_models(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a story, and nothing else\n" * 10)
    with pytest.raises(FileError, match="no gpcde model"):
        gpcde.load(tmp_path / "text")
    safetensors.numpy.save_file({"a": np.ones(3)}, tmp_path / "other")
    with pytest.raises(FileError, match="not one that gpcde wrote"):
        gpcde.load(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match="there is no file .*nothing"):
        gpcde.load(tmp_path / "nothing")
    assert issubclass(FileError, ValueError)


# writing


def test_a_write_that_fails_leaves_the_old_file(path: Path) -> None:
    before = path.read_bytes()

    with no_larger_than(1000), pytest.raises(OSError, match="File too large"):
        fitted("mdn")[0].save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_model_that_could_not_be_loaded_is_not_saved(path: Path) -> None:
    """One that diverged, which its bound did not tell; also where it is one of several."""
    before = path.read_bytes()
    wild, X, y = copy.deepcopy(fitted("none"))
    wild.state_ = eqx.tree_at(lambda s: s.model.likelihood.log_noise_variance, wild.state_, np.asarray(301.0))
    assert np.isfinite(wild.score(X, y))
    stack = gpcde.Stacked([("linear", gpcde.LinearGaussian())], cv=2).fit(X, y)
    stack.members_ = [wild]
    for model in (wild, stack):
        with pytest.raises(ValueError, match=r"not saved.*ConstantNoise.log_noise_variance.*smaller learning_rate"):
            model.save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_design_of_lists_is_saved_like_one_of_tuples(tmp_path: Path) -> None:
    """As users give them, whom no type checker stops."""
    design = Design()
    for name, value in {"hidden": [4, 5], "levels": []}.items():
        object.__setattr__(design, name, value)
    design.__post_init__()
    write(tmp_path / "file", "kind", design)
    again = read(tmp_path / "file")[1]
    assert (again.hidden, again.levels) == ((4, 5), ())


def test_nothing_in_a_file_is_ever_run() -> None:
    """Neither module knows of a way to run what it reads."""
    for module in (files, base):
        source = Path(str(module.__file__)).read_text()
        assert not [
            word for word in ("pickle", "eval(", "exec(", "import_module", "getattr(builtins") if word in source
        ]


def test_a_file_has_the_mode_of_a_new_one_and_a_link_stays(tmp_path: Path) -> None:
    """By the umask, whatever the mode of the file it replaces."""
    model = fitted("none")[0]
    path, link = tmp_path / "model", tmp_path / "link"
    link.symlink_to("model")
    for umask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        before = os.umask(umask)
        try:
            model.save(link)
        finally:
            os.umask(before)
        assert path.stat().st_mode & 0o777 == mode
    assert link.is_symlink()
    assert isinstance(gpcde.load(path), gpcde.GPCDE)


def test_other_files_in_the_folder_are_let_alone(path: Path) -> None:
    (path.parent / "model.part").write_text("mine")
    fitted("none")[0].save(path)
    assert (path.parent / "model.part").read_text() == "mine"
    assert sorted(p.name for p in path.parent.iterdir()) == ["model", "model.part"]


def test_many_may_save_to_one_path_at_once(path: Path) -> None:
    """Whoever reads finds a whole file, of one of them."""
    models = [gpcde.LinearGaussian().fit(np.arange(5.0)[:, None], [0.0, 1, 2, 3, k]) for k in (0, 9)]
    answers = [model.predict([[1.0]])[0] for model in models]
    models[0].save(path)
    with ThreadPoolExecutor(8) as threads:
        saved = [threads.submit(models[i % 2].save, path) for i in range(40)]
        read = [threads.submit(lambda: gpcde.load(path).predict([[1.0]])[0]) for _ in range(40)]
    assert not any(one.result() for one in saved)
    assert {one.result() for one in read} <= set(answers)
    assert list(path.parent.iterdir()) == [path]


def test_where_nothing_can_be_saved_is_said(tmp_path: Path) -> None:
    model = fitted("none")[0]
    with pytest.raises(FileNotFoundError, match="there is no folder .*nodir to write x to: make it first"):
        model.save(tmp_path / "nodir" / "x")
    with pytest.raises(IsADirectoryError, match="is a folder: name a file in it"):
        model.save(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="is no ordinary file, and is not replaced"):
        model.save(tmp_path / "pipe")
