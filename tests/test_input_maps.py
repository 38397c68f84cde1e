"""Input maps against dense matrices, scipy's normal densities and a network written out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from gpcde.model.input_maps import Bend, Concatenate, Features, Ignore, InputMap, Project, Warp
from gpcde.model.inputs import Inputs, make_inputs
from gpcde.model.kernels import RBF, Kernel, Matern32
from gpcde.model.latents import FreeForm
from gpcde.model.likelihood import ConstantNoise
from gpcde.model.mixing import Identity
from gpcde.model.model import Model, kernel_rows, separated
from gpcde.runtime.compilation import compiled
from gpcde.runtime.precision import scope
from small import ask
from unseparated import Whole

LEVELS = (3, 2)
ROWS = 2 + sum(LEVELS)


def mixed_inputs() -> tuple[Inputs, np.ndarray]:
    """Two dense and two categorical columns, and the same as a dense matrix."""
    rng = np.random.default_rng(0)
    dense, codes = rng.normal(size=(4, 2)), rng.integers(0, LEVELS, size=(4, 2))
    return make_inputs(dense, codes, LEVELS), np.concatenate([dense, np.eye(3)[codes[:, 0]], np.eye(2)[codes[:, 1]]], 1)


def project(prior_std: float = 1.0) -> Project:
    rng = np.random.default_rng(1)
    mean, log_std = rng.normal(size=(ROWS, 3)), rng.normal(size=(ROWS, 3)) * 0.3 - 1
    return Project(jnp.asarray(mean), jnp.asarray(log_std), prior_std)


def latents(n: int, k: int = 5, d: int = 2) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(n, k, d))


def test_projection_has_the_moments_of_a_drawn_matrix() -> None:
    """A x = (mean + std ⊙ ε)ᵀ x is linear in ε, so its covariance is J Jᵀ with the Jacobian J by ε."""
    x, dense = mixed_inputs()
    map_ = project()
    mean, variance = ask(map_.moments, x)
    std = np.exp(np.asarray(map_.log_std))
    for n, row in enumerate(dense):
        jacobian = np.zeros((3, ROWS, 3))
        for c in range(3):
            jacobian[c, :, c] = row * std[:, c]
        covariance = np.einsum("aic,bic->ab", jacobian, jacobian)
        np.testing.assert_allclose(covariance, np.diag(variance[n]), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(np.asarray(map_.mean).T @ row, mean[n], rtol=1e-12)


def test_projected_context_is_mean_plus_deviation_times_draws() -> None:
    x, dense = mixed_inputs()
    map_ = project()
    draws = np.random.default_rng(3).normal(size=(4, map_.draw_dim))
    expected = dense @ map_.mean + np.sqrt(dense**2 @ np.exp(2 * np.asarray(map_.log_std))) * draws
    np.testing.assert_allclose(ask(map_.context, x, jnp.asarray(draws)), expected, rtol=1e-12)


def test_a_drawn_projection_is_one_matrix_for_all_rows() -> None:
    """Certain, whatever is drawn for its rows; over many keys it has the mean and the spread of q(A)."""
    x, dense = mixed_inputs()
    map_ = project()
    keys = jax.random.split(jax.random.key(0), 4000)
    matrices = np.asarray(jax.vmap(lambda key: map_.sample(key).mean)(keys))
    drawn = map_.sample(keys[7])
    for draws in (jnp.zeros((4, 3)), jnp.full((4, 3), 3.0)):
        np.testing.assert_allclose(ask(drawn.context, x, draws), dense @ matrices[7], rtol=1e-11)
    std = np.exp(np.asarray(map_.log_std))
    np.testing.assert_allclose((matrices.mean(0) - map_.mean) / std, 0, atol=5 / 4000**0.5)
    np.testing.assert_allclose(matrices.std(0) / std, 1, atol=5 / 8000**0.5)


def test_projection_of_zeros_is_certain_and_differentiable() -> None:
    x = make_inputs(np.zeros((2, ROWS)))

    def value(map_: Project) -> jax.Array:
        return jnp.sum(jnp.sin(1 + ask(map_.context, x, jnp.ones((2, 3)))))

    np.testing.assert_allclose(project().context(x, jnp.ones((2, 3))), 0, atol=1e-100)
    gradient = compiled(jax.grad(value))(project())
    np.testing.assert_allclose(gradient.mean, 0, atol=1e-100)
    np.testing.assert_allclose(gradient.log_std, 0, atol=1e-100)


@pytest.mark.parametrize("prior_std", [1.0, 0.4])
def test_penalty_is_the_divergence_from_the_prior(prior_std: float) -> None:
    """E_q[log q - log p], whose integrand is quadratic: three Gauss–Hermite nodes are exact."""
    map_ = project(prior_std)
    mean, std = np.asarray(map_.mean), np.exp(np.asarray(map_.log_std))
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    places = mean + std * nodes[:, None, None]
    ratio = norm.logpdf(places, mean, std) - norm.logpdf(places, 0, prior_std)
    expected = np.einsum("q,qij->", weights / weights.sum(), ratio)
    np.testing.assert_allclose(ask(map_.penalty), expected, rtol=1e-12)


def test_penalty_is_least_and_zero_at_the_prior() -> None:
    map_ = Project(jnp.zeros((ROWS, 3)), jnp.full((ROWS, 3), jnp.log(0.4)), 0.4)
    value, gradient = compiled(jax.value_and_grad(lambda m: m.penalty()))(map_)
    np.testing.assert_allclose(value, 0, atol=1e-14)
    np.testing.assert_allclose(gradient.mean, 0, atol=1e-14)
    np.testing.assert_allclose(gradient.log_std, 0, atol=1e-14)


def test_certain_maps_cost_nothing_and_are_their_own_draws() -> None:
    for map_ in (Concatenate(3), Ignore()):
        assert ask(map_.penalty) == 0
        assert map_.draw_dim == 0
        assert map_.sample(jax.random.key(0)) is map_


with scope():
    JOINED: dict[str, InputMap] = {
        "w": Ignore(),
        "x": Concatenate(3),
        "A x": Project(jnp.zeros((3, 3)), jnp.zeros((3, 3))),
    }


@pytest.mark.parametrize("name", JOINED)
def test_joined_points_are_the_context_then_the_latents(name: str) -> None:
    map_ = JOINED[name]
    context = np.random.default_rng(4).normal(size=(4, map_.context_dim))
    for w in (latents(4), latents(1)):
        h = np.asarray(map_.join(jnp.asarray(context), jnp.asarray(w)))
        assert h.shape == (4, 5, map_.out_dim(2))
        for n in range(4):
            for k in range(5):
                np.testing.assert_array_equal(h[n, k], [*context[n], *w[n % len(w), k]])


def test_concatenate_takes_the_inputs_as_they_are() -> None:
    dense = np.random.default_rng(5).normal(size=(4, 3))
    map_, x = Concatenate(3), make_inputs(dense)
    np.testing.assert_array_equal(ask(map_.context, x, jnp.zeros((4, 0))), dense)
    mean, variance = ask(map_.moments, x)
    np.testing.assert_array_equal(mean, dense)
    np.testing.assert_array_equal(variance, np.zeros((4, 3)))


def test_ignored_inputs_leave_no_context() -> None:
    """Of categories and numbers alike; certain, so that closed-form expectations exist."""
    x, _ = mixed_inputs()
    map_ = Ignore()
    assert ask(map_.context, x, jnp.zeros((4, 0))).shape == (4, map_.context_dim) == (4, 0)
    assert [moment.shape for moment in ask(map_.moments, x)] == [(4, 0), (4, 0)]


def test_features_are_the_inputs_plus_a_network_of_them() -> None:
    """Written out; the inputs themselves at the start; certain, and the plain map as long as there are no latents."""
    dense = np.random.default_rng(5).normal(size=(4, 3))
    x, start = make_inputs(dense), Features.create(jax.random.key(0), Concatenate(3), 3, (6,), precision=0.4)
    np.testing.assert_array_equal(ask(start.context, x, jnp.zeros((4, 0))), dense)
    rng = np.random.default_rng(6)
    map_ = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), start)
    (first, last), (one, two) = map_.network.weights, map_.network.biases
    hidden = np.tanh(dense @ np.asarray(first) + np.asarray(one))
    expected = dense + hidden @ np.asarray(last) + np.asarray(two)
    for context in (ask(map_.context, x, jnp.zeros((4, 0))), ask(map_.moments, x)[0]):
        np.testing.assert_allclose(context, expected, rtol=1e-11)
    np.testing.assert_array_equal(ask(map_.moments, x)[1], 0)
    assert (map_.context_dim, map_.out_dim(2), map_.draw_dim) == (3, 5, 0)
    assert isinstance(map_.without_latents(), Concatenate)
    assert eqx.tree_equal(map_.with_latents(Concatenate(3)), map_)

    def log_prior(map_: Features) -> float:
        weights = [np.asarray(w) for w in map_.network.weights]
        return sum(float(norm.logpdf(w, 0, (0.4 * len(w)) ** -0.5).sum()) for w in weights)

    np.testing.assert_allclose(ask(map_.penalty) - ask(start.penalty), log_prior(start) - log_prior(map_), rtol=1e-11)


def test_features_of_a_projection_are_uncertain_as_it_is() -> None:
    """A x + φ(x): means moved by φ, the spread and the divergence of A's own; a draw is certain."""
    (x, dense), base = mixed_inputs(), project()
    map_ = Features.create(jax.random.key(0), base, dense.shape[1], (6,), precision=0.4)
    map_ = eqx.tree_at(lambda m: m.network.weights[-1], map_, jnp.full((6, 3), 0.1))
    moved = ask(map_.context, x, jnp.zeros((4, base.draw_dim))) - ask(base.context, x, jnp.zeros((4, base.draw_dim)))
    assert float(jnp.abs(moved).max()) > 1e-3
    np.testing.assert_allclose(ask(map_.moments, x)[0], ask(base.moments, x)[0] + moved, rtol=1e-11)
    np.testing.assert_allclose(ask(map_.moments, x)[1], ask(base.moments, x)[1])
    np.testing.assert_allclose(
        ask(map_.penalty), ask(base.penalty) + 0.2 * map_.network.square_norm(by_fan_in=True), rtol=1e-11
    )
    assert map_.without_latents() is map_.base
    drawn = map_.sample(jax.random.key(3))
    assert (ask(drawn.moments, x)[1] == 0).all()


def test_concatenate_refuses_categories_with_a_way_out() -> None:
    with pytest.raises(ValueError, match="Project or Warp"):
        Concatenate(2).context(mixed_inputs()[0], jnp.zeros((4, 0)))


def warp() -> Warp:
    """A warp that has left its start: all weights and biases of order one."""
    start = Warp.create(jax.random.key(0), ROWS, 2, (6, 4))
    rng = np.random.default_rng(6)
    return jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), start)


@compiled
def warped(map_: Warp, x: Inputs, w: jax.Array) -> jax.Array:
    return map_.join(ask(map_.context, x, jnp.zeros((x.n_rows, 0))), w)


def test_warp_starts_near_the_identity() -> None:
    """h - w is small beside w, but not zero: a network of zeros would have no gradient."""
    x, _ = mixed_inputs()
    w = latents(4)
    moved = np.abs(warped(Warp.create(jax.random.key(0), ROWS, 2), x, jnp.asarray(w)) - w)
    assert 0 < moved.max() < 0.05


def test_warp_is_the_latent_plus_a_network_of_both() -> None:
    x, dense = mixed_inputs()
    w, map_ = latents(4), warp()
    h = np.concatenate([np.repeat(dense[:, None], 5, axis=1), w], axis=2)
    *inner, last = zip(map_.network.weights, map_.network.biases, strict=True)
    for weight, bias in inner:
        h = np.tanh(h @ np.asarray(weight) + np.asarray(bias))
    expected = w + h @ np.asarray(last[0]) + np.asarray(last[1])
    np.testing.assert_allclose(warped(map_, x, jnp.asarray(w)), expected, rtol=1e-11, atol=1e-12)
    assert map_.context_dim == 6
    assert map_.out_dim(2) == 2


def test_warp_of_shared_latents_equals_that_of_each_points_own() -> None:
    x, _ = mixed_inputs()
    shared = latents(1)
    own = np.repeat(shared, 4, axis=0)
    one, two = (warped(warp(), x, jnp.asarray(w)) for w in (shared, own))
    np.testing.assert_allclose(one, two, rtol=1e-13)


def test_warp_penalty_is_minus_the_log_prior_of_its_weights() -> None:
    """The difference of two networks; their biases cost nothing."""
    start = Warp.create(jax.random.key(0), ROWS, 2, (6, 4), weight_precision=2.5)
    moved = Warp(warp().network, 2, 2.5)

    def log_prior(map_: Warp) -> float:
        return sum(float(norm.logpdf(np.asarray(w), 0, 2.5**-0.5).sum()) for w in map_.network.weights)

    np.testing.assert_allclose(ask(moved.penalty) - ask(start.penalty), log_prior(start) - log_prior(moved), rtol=1e-11)


def test_warp_has_no_closed_form_and_says_what_to_do() -> None:
    with pytest.raises(NotImplementedError, match=r"which Warp is not.*expectation='draws'"):
        warp().moments(mixed_inputs()[0])


def bend(base: Concatenate | Project | None = None) -> Bend:
    """A bend that has left its start: all weights and biases of order one."""
    base = base or project()
    start = Bend.create(jax.random.key(0), base, 2 if isinstance(base, Concatenate) else ROWS, 2, (6,))
    rng = np.random.default_rng(7)
    return Bend(base, jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), start.network), 2, 0.3)


with scope():
    BASES = pytest.mark.parametrize("base", [Concatenate(2), project()], ids=["x", "A x"])


def inputs_of(base: Concatenate | Project) -> tuple[Inputs, np.ndarray]:
    """Inputs that the base takes, and the same as a dense matrix."""
    x, dense = mixed_inputs()
    return (make_inputs(dense[:, :2]), dense[:, :2]) if isinstance(base, Concatenate) else (x, dense)


@BASES
def test_bend_starts_near_its_base(base: Concatenate | Project) -> None:
    """The context is left as it is; the latents hardly move, but they do: a network of zeros has no gradient."""
    x, dense = inputs_of(base)
    draws, w = jnp.asarray(np.random.default_rng(8).normal(size=(4, base.draw_dim))), jnp.asarray(latents(4))
    start = Bend.create(jax.random.key(0), base, dense.shape[1], 2)
    h, plain = start.join(ask(start.context, x, draws), w), base.join(ask(base.context, x, draws), w)
    width = base.context_dim
    np.testing.assert_array_equal(h[..., :width], plain[..., :width])
    moved = np.abs(h - plain)[..., width:]
    assert 0 < moved.max() < 0.05
    assert (start.out_dim(2), start.draw_dim) == (base.out_dim(2), base.draw_dim)


@BASES
def test_bend_is_the_base_and_the_latent_plus_a_network_of_both(base: Concatenate | Project) -> None:
    x, dense = inputs_of(base)
    map_, draws = bend(base), jnp.asarray(np.random.default_rng(8).normal(size=(4, base.draw_dim)))
    context = ask(map_.context, x, draws)
    assert context.shape == (4, map_.context_dim)
    for w in (latents(4), latents(1)):
        own = np.broadcast_to(w, (4, 5, 2))
        h = np.concatenate([np.repeat(dense[:, None], 5, axis=1), own], axis=2)
        (first, last), (one, two) = map_.network.weights, map_.network.biases
        moved = own + np.tanh(h @ np.asarray(first) + np.asarray(one)) @ np.asarray(last) + np.asarray(two)
        left = np.repeat(np.asarray(ask(base.context, x, draws))[:, None], 5, axis=1)
        joined = map_.join(context, jnp.asarray(w))
        np.testing.assert_allclose(joined, np.concatenate([left, moved], axis=2), rtol=1e-11, atol=1e-12)
        halves = map_.halves(context, jnp.asarray(w))
        np.testing.assert_array_equal(joined[:, :, : base.context_dim], np.repeat(halves[0][:, None], 5, axis=1))
        np.testing.assert_array_equal(joined[:, :, base.context_dim :], halves[1])


@BASES
@pytest.mark.parametrize("kernel", ["rbf", "matern × rbf", "whole"])
def test_bent_kernel_rows_are_the_kernel_of_the_joined_points(base: Concatenate | Project, kernel: str) -> None:
    """With the part that x alone decides taken once a data point, where the kernel separates."""
    x, _ = inputs_of(base)
    map_, width = bend(base), base.out_dim(2)
    rbf: Kernel = RBF.create(width, np.linspace(0.8, 1.5, width), 1.3)
    context_dims = tuple(range(base.context_dim))
    product = Matern32.create(context_dims, 1.2, 0.7) * RBF.create((width - 2, width - 1), 0.9)
    chosen = {"rbf": rbf, "matern × rbf": product, "whole": Whole(rbf)}[kernel]
    z = jnp.asarray(np.random.default_rng(9).normal(size=(3, width)))
    model = Model(chosen, z, map_, FreeForm.create(2, 3), Identity(1), ConstantNoise.create(1.0))
    draws = jnp.asarray(np.random.default_rng(8).normal(size=(4, base.draw_dim)))
    context, w = ask(map_.context, x, draws), jnp.asarray(latents(1))
    h = map_.join(context, w).reshape(20, width)
    rows, diag = ask(kernel_rows, model, context, w).flat()
    np.testing.assert_allclose(rows, ask(chosen, h, z), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(diag[:, 0], chosen.diag(h), rtol=1e-12)


@BASES
def test_bend_penalty_is_that_of_its_base_and_of_its_weights(base: Concatenate | Project) -> None:
    """Minus a log prior of variance 1 / (precision × fan-in), by the difference of two networks; biases are free."""
    start, moved = Bend(base, Bend.create(jax.random.key(0), base, 2, 2, (6,)).network, 2, 0.3), bend(base)

    def log_prior(map_: Bend) -> float:
        weights = [np.asarray(w) for w in map_.network.weights]
        return sum(float(norm.logpdf(w, 0, (0.3 * len(w)) ** -0.5).sum()) for w in weights)

    constant = sum(w.size * 0.5 * np.log(0.3 * w.shape[0] / (2 * np.pi)) for w in moved.network.weights)
    np.testing.assert_allclose(ask(moved.penalty) - ask(base.penalty), constant - log_prior(moved), rtol=1e-11)
    assert ask(start.penalty) < ask(moved.penalty)


@pytest.mark.parametrize("name", ["w", "x", "A x", "warp", "bend"])
def test_only_maps_that_keep_context_and_latents_apart_separate(name: str) -> None:
    """Their factors multiply to the kernel rows, for latents that all points share; for their own there are none."""
    maps = {"w": Ignore(), "x": Concatenate(2), "A x": project(), "warp": warp(), "bend": bend()}
    map_, x = maps[name], inputs_of(Concatenate(2))[0] if name == "x" else mixed_inputs()[0]
    width = map_.out_dim(2)
    z = jnp.asarray(np.random.default_rng(9).normal(size=(3, width)))
    kernel = RBF.create(width, np.linspace(0.8, 1.5, width), 1.3)
    model = Model(kernel, z, map_, FreeForm.create(2, 3), Identity(1), ConstantNoise.create(1.0))
    context = ask(map_.context, x, jnp.ones((4, map_.draw_dim)))
    factors = ask(separated, model, context, jnp.asarray(latents(1)))
    assert separated(model, context, jnp.asarray(latents(4))) is None
    if name in ("warp", "bend"):
        assert factors is None
        with pytest.raises(NotImplementedError, match=f"which {name.capitalize()} is not"):
            ask(map_.moments, x)
        return
    assert factors is not None
    rows = ask(kernel_rows, model, context, jnp.asarray(latents(1)))
    for one, other in zip(factors.rows(), rows, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_what_is_learnt_without_latents_goes_on_with_them() -> None:
    """A bend keeps its network and takes the base; a warp has nothing to learn without latents."""
    trained = Project(jnp.ones((ROWS, 3)), jnp.zeros((ROWS, 3)))
    assert project().with_latents(trained) is trained
    for map_ in (Concatenate(2), project(), Ignore()):
        assert map_.without_latents() is map_
    before = bend()
    assert before.without_latents() is before.base
    after = before.with_latents(trained)
    assert isinstance(after, Bend)
    assert isinstance(after.base, Project)
    np.testing.assert_array_equal(after.base.mean, trained.mean)
    np.testing.assert_array_equal(after.network.weights[0], before.network.weights[0])
    moving = warp()
    assert isinstance(moving.without_latents(), Ignore)
    assert moving.with_latents(Ignore()) is moving
