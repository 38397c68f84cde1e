"""Parts of a user's own: each answers for itself, so that it trains, predicts, is drawn from, saved and loaded.

The classes here know the abstract classes of `gpcde.model` only, and `gpcde` knows nothing of them.
"""

import dataclasses
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, PRNGKeyArray

import gpcde
from gpcde import GPCDE, ConditionalDensity, Design
from gpcde.inference import Draws, Statistics, Terms, VariationalPosterior, evaluate_bound, whole
from gpcde.inference.bound import Batch
from gpcde.model import (
    RBF,
    Concatenate,
    ConstantNoise,
    Evidence,
    FreeForm,
    Gaussian,
    GaussianMixing,
    Identity,
    InputMap,
    Inputs,
    Kernel,
    LatentPosterior,
    LatentPrior,
    Latents,
    Likelihood,
    Mixing,
    Model,
    Part,
    PointMixing,
    make_inputs,
)
from gpcde.prediction import Mixture, Nodes
from gpcde.prediction.predictor import make_predictor
from gpcde.runtime import files
from small import ask

# A user's parts


class RationalQuadratic(Kernel):
    """v (1 + r²/4)⁻²: no product of its columns, with a prior on its lengthscale."""

    log_variance: Float[Array, ""]
    log_lengthscale: Float[Array, ""]

    def __call__(self, x: Float[Array, "n d"], z: Float[Array, "m d"]) -> Float[Array, "n m"]:
        squared = ((x[:, None] - z) ** 2).sum(2) * jnp.exp(-2 * self.log_lengthscale)
        return jnp.exp(self.log_variance) * (1 + squared / 4) ** -2

    def gram(self, z: Float[Array, "m d"]) -> Float[Array, "m m"]:
        return self(z, z)

    def diag(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return jnp.broadcast_to(jnp.exp(self.log_variance), x.shape[:1])

    def separate(self, split: int) -> None:
        return None

    def frequencies(self, key: PRNGKeyArray, width: int, count: int) -> tuple[Float[Array, "h F"], Float[Array, ""]]:
        """A mixture of RBFs over their precisions, which are Gamma(2)."""
        one, two = jax.random.split(key)
        scale = jnp.sqrt(jax.random.gamma(one, 2.0, (count,)) / 2) * jnp.exp(-self.log_lengthscale)
        return jax.random.normal(two, (width, count)) * scale, jnp.exp(self.log_variance)

    def penalty(self) -> Float[Array, ""]:
        return 0.5 * self.log_lengthscale**2


class Stretched(InputMap):
    """h = [a ⊙ x, w], q(a) = N(mean, std²) and p(a) = N(1, 1), a number for each input."""

    latent_lengthscale = 1.0
    mean: Float[Array, " c"]
    log_std: Float[Array, " c"]

    @property
    def context_dim(self) -> int:
        return len(self.mean)

    def out_dim(self, latent_dim: int) -> int:
        return self.context_dim + latent_dim

    @property
    def draw_dim(self) -> int:
        return self.context_dim

    def context(self, x: Inputs, draws: Float[Array, "n k"]) -> Float[Array, "n c"]:
        return jnp.asarray(x.dense) * (self.mean + jnp.exp(self.log_std) * draws)

    def halves(
        self, context: Float[Array, "n c"], w: Float[Array, "#n k d"]
    ) -> tuple[Float[Array, "n c"], Float[Array, "#n k d"]]:
        return context, w

    def without_latents(self) -> InputMap:
        return self

    def with_latents(self, trained: InputMap) -> InputMap:
        return trained

    def penalty(self) -> Float[Array, ""]:
        return 0.5 * jnp.sum((self.mean - 1) ** 2 + jnp.exp(2 * self.log_std) - 1 - 2 * self.log_std)

    def sample(self, key: PRNGKeyArray) -> "Stretched":
        drawn = self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)
        return Stretched(drawn, jnp.full_like(drawn, -jnp.inf))


class Fan(Likelihood):
    """log s = a x + b w of the first input and the first latent, a and b standard normal a priori."""

    log_variance: Float[Array, ""]
    slopes: Float[Array, "2"]

    @property
    def noise_variance(self) -> Float[Array, ""]:
        return jnp.exp(self.log_variance)

    def log_scale(self, x: Inputs, w: Float[Array, "#n k d"]) -> Float[Array, "n #k"]:
        return self.slopes[0] * jnp.asarray(x.dense)[:, :1] + self.slopes[1] * w[..., :1].sum(2)

    def with_noise_variance(self, noise_variance: float) -> "Fan":
        return Fan(jnp.log(jnp.asarray(noise_variance)), self.slopes)

    def penalty(self) -> Float[Array, ""]:
        return 0.5 * jnp.sum(self.slopes**2)

    def sample(self, key: PRNGKeyArray) -> "Fan":
        return self


class Leaning(LatentPrior):
    """p(w|x) = N(c x, 1) of the first latent, x the first input, c standard normal a priori."""

    slope: Float[Array, ""]

    def log_ratio(self, x: Inputs, w: Float[Array, "#n k d"]) -> Float[Array, "n k"]:
        centre = self.slope * jnp.asarray(x.dense)[:, :1]
        return centre * w[..., 0] - 0.5 * centre**2

    def penalty(self) -> Float[Array, ""]:
        return 0.5 * self.slope**2

    def sample(self, key: PRNGKeyArray) -> "Leaning":
        return self


class Uncertain(Mixing):
    """q(P) = prod N(mean, 1/precision), p(P) = prod N(start, scale²): GaussianMixing by other numbers."""

    mean: Float[Array, "D L"]
    log_precision: Float[Array, "D L"]
    start: Float[Array, "D L"]
    log_scale: Float[Array, ""]

    @property
    def variance(self) -> Float[Array, "D L"]:
        return jnp.exp(-self.log_precision)

    @property
    def shape(self) -> tuple[int, int]:
        return self.mean.shape[0], self.mean.shape[1]

    def apply(self, f: Float[Array, "*n L"]) -> Float[Array, "*n D"]:
        return f @ self.mean.T

    def second_moment(self) -> Float[Array, "L L"]:
        return self.mean.T @ self.mean + jnp.diag(self.variance.sum(0))

    def quadratic(self, m: Float[Array, "M L"]) -> Float[Array, "M M"]:
        return m @ self.second_moment() @ m.T

    def own_variance(
        self,
        mean: Float[Array, "n k L"],
        variance: Float[Array, "n k L"],
        turn: Float[Array, "L L"],
        basis: Float[Array, "D r"],
    ) -> tuple[Float[Array, "n k r"], Float[Array, "n k"]]:
        second = mean**2 + jnp.einsum("lr,nkr->nkl", turn**2, variance)
        outputs = jnp.einsum("dl,nkl->nkd", self.variance, second)
        along = jnp.einsum("dr,nkd->nkr", basis**2, outputs)
        return along, (outputs.sum(2) - along.sum(2)) / max(1, basis.shape[0] - basis.shape[1])

    def penalty(self) -> Float[Array, ""]:
        ratio, off = self.variance * jnp.exp(-2 * self.log_scale), self.mean - jax.lax.stop_gradient(self.start)
        return 0.5 * jnp.sum(ratio - 1 - jnp.log(ratio) + off**2 * jnp.exp(-2 * self.log_scale))

    def sample(self, key: PRNGKeyArray) -> PointMixing:
        drawn = self.mean + jnp.sqrt(self.variance) * jax.random.normal(key, self.mean.shape)
        return PointMixing.create(drawn, learn=False)


class Nearby(Latents):
    """q(w_n) = N(W [x_n, y_n], std²): a linear map of what is seen, and one width for all."""

    weight: Float[Array, "r d"]
    std: float = eqx.field(static=True, default=0.4)
    count: int = eqx.field(static=True, default=3)

    @property
    def dim(self) -> int:
        return self.weight.shape[1]

    @property
    def draw_shape(self) -> tuple[int, int]:
        return self.count, self.dim

    def proposal(self, x: Inputs, y: Float[Array, "n D"]) -> Gaussian:
        mean = jnp.concatenate([jnp.asarray(x.dense), y], axis=1) @ self.weight
        return Gaussian(mean, jnp.full_like(mean, self.std))

    def bound(
        self, evidence: Evidence, local: Float[Array, "n p"] | None, draws: Float[Array, "n k d"]
    ) -> Float[Array, ""]:
        q = self.proposal(evidence.x, evidence.y)
        w = q.at(draws)
        return evidence.total((evidence.at(w) + evidence.prior.log_ratio(evidence.x, w)).mean(1) - q.kl())

    def infer(self, evidence: Evidence) -> LatentPosterior:
        q = self.proposal(evidence.x, evidence.y)
        return LatentPosterior(q.mean, q.std())

    def start(
        self, x: Inputs, y: Float[Array | np.ndarray, "n D"], w: Float[np.ndarray, "n d"]
    ) -> tuple["Nearby", None]:
        seen = np.concatenate([np.asarray(x.dense), np.asarray(y)], axis=1)
        return Nearby(jnp.asarray(np.linalg.lstsq(seen, w)[0]), self.std, self.count), None

    def penalty(self) -> Float[Array, ""]:
        return 0.5 * jnp.sum(self.weight**2)

    def sample(self, key: PRNGKeyArray) -> "Nearby":
        return self


# What a class that lacks an answer may not do

CERTAIN = {"penalty", "sample"}
ASKED: dict[type[Any], set[str]] = {
    Kernel: {"__call__", "gram", "diag", "separate"},
    InputMap: CERTAIN
    | {"context_dim", "out_dim", "draw_dim", "context", "halves", "without_latents", "with_latents"}
    | {"latent_lengthscale"},
    Latents: CERTAIN | {"dim", "draw_shape", "bound", "infer"},
    Mixing: CERTAIN | {"shape", "apply", "second_moment", "quadratic", "own_variance"},
    Likelihood: CERTAIN | {"noise_variance", "log_scale", "with_noise_variance"},
    LatentPrior: CERTAIN | {"log_ratio"},
}
MAKE: dict[type[Any], Callable[[type[Any]], Part]] = {
    Kernel: lambda cls: cls(jnp.zeros(()), jnp.asarray(0.3)),
    InputMap: lambda cls: cls(jnp.ones(2), jnp.full(2, -1.0)),
    Latents: lambda cls: cls(jnp.full((5, 1), 0.2)),
    Mixing: lambda cls: cls(jnp.ones((3, 2)), jnp.full((3, 2), 8.0), jnp.ones((3, 2)), jnp.asarray(-2.0)),
    Likelihood: lambda cls: cls(jnp.zeros(()), jnp.asarray([0.1, -0.1])),
    LatentPrior: lambda cls: cls(jnp.asarray(0.1)),
}
OWN: dict[type[Any], type[Any]] = {
    Kernel: RationalQuadratic,
    InputMap: Stretched,
    Latents: Nearby,
    Mixing: Uncertain,
    Likelihood: Fan,
    LatentPrior: Leaning,
}


def without(cls: type[Any], name: str) -> type[Any]:
    """The same class, as if this had not been written."""
    wanted = {"__annotations__", "variance", "proposal", *ASKED[cls.__bases__[0]]}
    namespace: dict[str, Any] = {key: value for key, value in vars(cls).items() if key in wanted - {name}}
    for field in dataclasses.fields(cls):  # their defaults, and what is static
        if field.default is not dataclasses.MISSING:
            namespace[field.name] = eqx.field(static=field.metadata.get("static", False), default=field.default)
    namespace["__module__"] = __name__
    return types.new_class(f"Lacking_{cls.__name__}_{name}", cls.__bases__, {}, lambda body: body.update(namespace))


def str_of(value: Any) -> str:
    return value if isinstance(value, str) else value.__name__


@pytest.mark.parametrize("base", ASKED, ids=str_of)
def test_what_is_asked_of_a_part_is_what_is_abstract(base: type[Any]) -> None:
    """No more and no less; and a class that answers all can be made, though it answers nothing else."""
    abstract = {*base.__abstractmethods__, *base.__abstractclassvars__, *base.__abstractvars__}
    assert abstract == ASKED[base]
    assert isinstance(MAKE[base](OWN[base]), base)
    assert isinstance(MAKE[base](without(OWN[base], "nothing")), base)


@pytest.mark.parametrize(("base", "name"), [(b, n) for b in ASKED for n in sorted(ASKED[b])], ids=str_of)
def test_a_part_that_lacks_an_answer_cannot_be_made(base: type[Any], name: str) -> None:
    with pytest.raises(TypeError, match=f"abstract.*{name}"):
        MAKE[base](without(OWN[base], name))


def test_every_part_has_its_say_in_the_penalty() -> None:
    own = {base: make(OWN[base]) for base, make in MAKE.items()}
    model = whole_model(own)
    parts = [float(part.penalty()) for part in own.values()]
    assert min(parts) > 0
    np.testing.assert_allclose(model.penalty(), sum(parts), rtol=1e-13)


def whole_model(own: dict[type[Any], Any], z: np.ndarray | None = None) -> Model:
    """A model of two inputs, one latent and three outputs, with these parts."""
    return Model(
        own.get(Kernel) or RBF.create(3, 1.1, 1.3),
        jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)) if z is None else z),
        own.get(InputMap) or Concatenate(2),
        own.get(Latents) or FreeForm.create(1, 8),
        own.get(Mixing) or Identity(3),
        own.get(Likelihood) or ConstantNoise.create(0.3),
        own.get(LatentPrior) or gpcde.model.StandardNormal(),
    )


# The user's P is GaussianMixing by other numbers


class Learnt(NamedTuple):
    """Terms of the bound, its derivatives by all but P, and p(y|x)."""

    terms: Terms
    kernel: Kernel
    places: Array
    mixture: Mixture


@jax.jit
def learnt(model: Model, posterior: VariationalPosterior, batch: Batch) -> Learnt:
    none = Draws(jnp.zeros((len(batch.y), 0)), jnp.zeros((len(batch.y), 0, 0)))

    def bound(model: Model) -> tuple[Array, Terms]:
        terms = evaluate_bound(model, posterior, batch, none, len(batch.y))
        return terms.bound, terms

    gradient, terms = jax.grad(bound, has_aux=True)(model)
    nodes = Nodes(jnp.linspace(-2, 2, 5)[:, None], jnp.full(5, -jnp.log(5)))
    mixture = make_predictor(model, posterior, nodes).at_nodes(batch.x)
    return Learnt(terms, gradient.kernel, gradient.inducing_points, mixture)


@pytest.mark.parametrize("columns", [2, 4])
def test_a_mixing_with_the_same_moments_is_the_same_model(columns: int) -> None:
    """To the last digits: bound, divergence, derivatives, and the predicted means and variances."""
    rng = np.random.default_rng(1)
    mean, log_std, start = rng.normal(size=(3, columns)), 0.5 * rng.normal(size=(3, columns)) - 1, np.ones((3, columns))
    ours, theirs = (
        kind(*(jnp.asarray(a) for a in (mean, numbers, start, -0.3)))
        for kind, numbers in ((GaussianMixing, log_std), (Uncertain, -2 * log_std))
    )
    a = rng.normal(size=(8, 5))
    statistics = Statistics(jnp.asarray(a.T @ a), jnp.asarray(a.T @ rng.normal(size=(8, 3))))
    batch = whole(make_inputs(rng.normal(size=(6, 2))), rng.normal(size=(6, 3)))
    one, other = (learnt(whole_model({Mixing: mixing}), statistics, batch) for mixing in (ours, theirs))
    certain = learnt(whole_model({Mixing: PointMixing.create(mean)}), statistics, batch)
    assert float(jnp.abs(certain.mixture.variance - one.mixture.variance).min()) > 1e-3  # what is uncertain shows
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-10)


def test_the_spectrum_is_that_of_the_kernel() -> None:
    """Bochner: k(0, d) = v E cos(ωᵀd)."""
    kernel = RationalQuadratic(jnp.log(1.3), jnp.log(0.8))
    gaps = np.array([[0.3, 0.0], [0.0, 0.7], [1.0, -0.5], [2.0, 1.0]])
    where, variance = ask(kernel.frequencies, jax.random.key(0), 2, 60_000)
    got = float(variance) * np.cos(gaps @ np.asarray(where)).mean(1)
    np.testing.assert_allclose(got, np.asarray(ask(kernel, jnp.zeros((1, 2)), jnp.asarray(gaps)))[0], atol=0.012)


# Behind scikit-learn's face


class Case(NamedTuple):
    """A design with parts of the user's own, by which field of the model each is, and how many outputs y has."""

    design: Callable[[], Design]
    parts: dict[str, type[Part]]
    outputs: int = 1


SMALL: dict[str, Any] = {"inducing": 8, "points": 12, "rule": "even", "trials": 1}


def kernel() -> RationalQuadratic:
    return RationalQuadratic(jnp.zeros(()), jnp.zeros(()))


def fan() -> Fan:
    return Fan(jnp.zeros(()), jnp.zeros(2))


def uncertain() -> Uncertain:
    start = jnp.asarray([[0.8, 0.1], [0.5, -0.4], [-0.3, 0.6]])
    return Uncertain(start, jnp.full((3, 2), 6.0), start, jnp.asarray(-2.0))


CASES: dict[str, Case] = {
    "kernel": Case(lambda: Design(kernel=kernel(), **SMALL), {"kernel": RationalQuadratic}),
    "input map": Case(
        lambda: Design(input_map=Stretched(jnp.ones(2), jnp.full(2, -1.5)), **SMALL), {"input_map": Stretched}
    ),
    "likelihood": Case(lambda: Design(likelihood=fan(), **SMALL), {"likelihood": Fan}),
    "prior": Case(lambda: Design(prior=Leaning(jnp.zeros(())), **SMALL), {"prior": Leaning}),
    "mixing": Case(lambda: Design(mixing=uncertain(), **SMALL), {"mixing": Uncertain}, 3),
    "latents": Case(lambda: Design(inference=Nearby(jnp.zeros((3, 1))), **SMALL), {"latents": Nearby}),
    "likelihood and prior, bent, two outputs": Case(
        lambda: Design(input_map="bend", likelihood=fan(), prior=Leaning(jnp.zeros(())), **SMALL),
        {"likelihood": Fan, "prior": Leaning},
        2,
    ),
    "kernel and mixing": Case(
        lambda: Design(kernel=kernel(), mixing=uncertain(), **SMALL),
        {"kernel": RationalQuadratic, "mixing": Uncertain},
        3,
    ),
    "input map, likelihood and prior, two outputs": Case(
        lambda: Design(
            input_map=Stretched(jnp.ones(2), jnp.full(2, -1.5)),
            likelihood=fan(),
            prior=Leaning(jnp.zeros(())),
            **SMALL,
        ),
        {"input_map": Stretched, "likelihood": Fan, "prior": Leaning},
        2,
    ),
    "kernel and likelihood, no latents": Case(
        lambda: Design(inference="none", kernel=kernel(), likelihood=fan(), **SMALL),
        {"kernel": RationalQuadratic, "likelihood": Fan},
    ),
}
USUAL = ("kernel and mixing", "latents", "input map, likelihood and prior, two outputs")
"""Which have every kind of part between them; those by themselves, and other company, are for `make test-all`."""

ALL = pytest.mark.parametrize(
    "name", [name if name in USUAL else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)


@cache
def data(outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Two branches, the wider apart the larger the first input, and the upper one the likelier."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(40, 2))
    sign = np.where(rng.uniform(-1, 1, size=(40, 1)) < X[:, :1], 1.0, -1.0)
    y = sign * (1.5 + X[:, :1]) * np.array([1.0, -0.5, 0.7])[:outputs] + 0.2 * rng.normal(size=(40, outputs))
    return X, y[:, 0] if outputs == 1 else y


@cache
def fitted(name: str) -> GPCDE:
    X, y = data(CASES[name].outputs)
    return GPCDE(design=CASES[name].design(), max_steps=100, tol=0, random_state=0, verbose=False).fit(X, y)


NEW = [[-0.5, 0.2], [0.8, -0.6]]


LINE = np.linspace(-12, 12, 401)
NAMES = {"latents": "inference"}
"""Fields of a model that a design knows by another name."""


def heights(density: ConditionalDensity) -> np.ndarray:
    """The pdf on a line; of the first output where there are more."""
    return (density if density.n_outputs == 1 else density.marginal(0)).pdf_grid(LINE)


@ALL
def test_own_parts_are_trained(name: str) -> None:
    """The bound rises, and the parts' own parameters have left their start."""
    model, case = fitted(name), CASES[name]
    bounds = model.history_["bound"]
    assert bounds[-1] > bounds[0]
    first = case.design()
    for field, cls in case.parts.items():
        part, given = getattr(model.state_.model, field), getattr(first, NAMES.get(field, field))
        assert type(part) is cls
        pairs = zip(jax.tree.leaves(part), jax.tree.leaves(given), strict=True)
        assert max(np.abs(np.asarray(after) - before).max() for after, before in pairs) > 1e-2


@ALL
def test_own_parts_predict_densities_that_integrate_to_one(name: str) -> None:
    """Of one output, and of two of them on a plane."""
    density = fitted(name).predict_density(NEW)
    np.testing.assert_allclose(heights(density).sum(1) * (LINE[1] - LINE[0]), 1, rtol=1e-4)
    if density.n_outputs > 1:
        line = np.linspace(-8, 8, 81)
        plane = np.stack([a.ravel() for a in np.meshgrid(line, line)], 1)
        joint = density if density.n_outputs == 2 else density.marginal([0, 1])
        np.testing.assert_allclose(joint.pdf_grid(plane).sum(1) * (line[1] - line[0]) ** 2, 1, rtol=1e-3)


@ALL
def test_densities_drawn_with_own_parts_average_to_the_prediction(name: str) -> None:
    """Each integrates to one; their mean is the prediction up to five standard errors."""
    model = fitted(name)
    drawn = np.stack([heights(density) for density in model.sample_densities(NEW, 12, random_state=0)])
    np.testing.assert_allclose(drawn.sum(2) * (LINE[1] - LINE[0]), 1, rtol=1e-4)
    expected = heights(model.predict_density(NEW))
    error = np.abs(drawn.mean(0) - expected) / (drawn.std(0) / np.sqrt(12) + 5e-3 * expected.max())
    assert error.max() < 5
    assert drawn.std(0).max() > 1e-3 * expected.max()


@ALL
def test_latents_are_inferred_with_own_parts(name: str) -> None:
    """They tell the branches apart: y is nearer to f(x, w) than to E[y|x]; the user's own q(w) says what it says."""
    model, (X, y) = fitted(name), data(CASES[name].outputs)
    if name == "kernel and likelihood, no latents":
        with pytest.raises(ValueError, match="no latents"):
            model.infer_latent(X, y)
        return
    q = model.infer_latent(X, y)
    assert q.mean.shape == q.std.shape == (40, 1)
    x, z = model._standard_rows(X, y)
    if name == "latents":
        np.testing.assert_allclose(q.std, 0.4, rtol=1e-14)
        weight = np.asarray(model.state_.model.latents.weight)  # type: ignore[attr-defined]
        np.testing.assert_allclose(q.mean, np.hstack([x.dense, z]) @ weight, rtol=1e-10, atol=1e-12)
        return
    assert q.weights is not None
    assert q.nodes is not None
    np.testing.assert_allclose(q.weights.sum(1), 1, rtol=1e-12)
    uncertain = model.state_.model.input_map.draw_dim
    draws = np.zeros((len(q.nodes), uncertain)) if uncertain else None
    latents = model.state_.model.latents
    assert isinstance(latents, FreeForm)
    mixture = model.predictor(Nodes(q.nodes, np.asarray(latents.log_weights), draws)).mixture(x)
    f, prior = np.asarray(mixture.means()), np.broadcast_to(np.exp(mixture.log_weight), q.weights.shape)
    told, untold = (z - np.einsum("nk,nkd->nd", weights, f) for weights in (q.weights, prior))
    assert (told**2).mean() < 0.8 * (untold**2).mean()


@ALL
def test_own_parts_are_saved_and_loaded(name: str, tmp_path: Path) -> None:
    """The same predictions to the bit, the same classes, and the design that made them."""
    model = fitted(name)
    model.save(tmp_path / "model")
    again = gpcde.load(tmp_path / "model")
    assert isinstance(again, GPCDE)
    np.testing.assert_array_equal(heights(again.predict_density(NEW)), heights(model.predict_density(NEW)))
    jax.tree.map(np.testing.assert_array_equal, again.state_, model.state_)
    for field, cls in CASES[name].parts.items():
        assert type(getattr(again.state_.model, field)) is cls
        assert type(getattr(again.design, NAMES.get(field, field))) is cls


def test_a_file_with_a_part_that_is_not_known_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is where the module that defines it was not imported."""
    fitted("kernel").save(tmp_path / "model")
    name = f"{__name__}.RationalQuadratic"
    monkeypatch.delitem(files.KNOWN, name)
    with pytest.raises(gpcde.FileError, match=f"{name}, which is not known here: import the module"):
        gpcde.load(tmp_path / "model")
