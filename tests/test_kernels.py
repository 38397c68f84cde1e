"""Kernels against scikit-learn and written-out formulas, and the rules that sums, products and factors obey."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as sk

from gpcde.model.kernels import RBF, Kernel, Linear, Matern32, Matern52, One, Polynomial, Product, Stationary, Sum
from gpcde.runtime.compilation import compiled
from gpcde.runtime.precision import scope

SCALES = np.array([0.7, 1.6, 1.1])
VARIANCES = np.array([0.5, 1.5, 0.8])

with scope():
    ATOMS: dict[str, tuple[Kernel, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
        "rbf": (RBF.create(3, SCALES, 1.3), lambda x, z: 1.3 * sk.RBF(SCALES)(x, z)),
        "matern32": (Matern32.create(3, SCALES, 1.3), lambda x, z: 1.3 * sk.Matern(SCALES, nu=1.5)(x, z)),
        "matern52": (Matern52.create(3, SCALES, 1.3), lambda x, z: 1.3 * sk.Matern(SCALES, nu=2.5)(x, z)),
        "linear": (
            Linear.create(3, VARIANCES),
            lambda x, z: sk.DotProduct(0.0, "fixed")(x * np.sqrt(VARIANCES), z * np.sqrt(VARIANCES)),
        ),
        "polynomial": (
            Polynomial.create(3, 3, VARIANCES, 0.6),
            lambda x, z: (sk.DotProduct(np.sqrt(0.6)) ** 3)(x * np.sqrt(VARIANCES), z * np.sqrt(VARIANCES)),
        ),
    }
    COMPOSED: dict[str, Kernel] = {
        **{name: kernel for name, (kernel, _) in ATOMS.items()},
        "some columns": Matern52.create((2, 0), (0.5, 1.4), 0.9),
        "sum": RBF.create((0, 2), 0.8) + Linear.create((1,), 0.3),
        "product": RBF.create((1,), 0.8) * Matern32.create((0, 2), 1.2, 0.7),
    }


def points(rows: int, seed: int, columns: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns))


def evaluate_here(kernel: Kernel, x: jax.Array, z: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    return kernel(x, z), kernel.gram(z), kernel.diag(x)


evaluate = compiled(evaluate_here)


def evaluated(kernel: Kernel, x: np.ndarray, z: np.ndarray) -> list[np.ndarray]:
    return [np.asarray(a) for a in evaluate(kernel, jnp.asarray(x), jnp.asarray(z))]


@pytest.mark.parametrize("name", ATOMS)
def test_kernel_equals_scikit_learn(name: str) -> None:
    kernel, oracle = ATOMS[name]
    x, z = points(6, 0), points(6, 1)
    rows, gram, diag = evaluated(kernel, x, z)
    np.testing.assert_allclose(rows, oracle(x, z), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(gram, oracle(z, z), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(diag, np.diag(oracle(x, x)), rtol=1e-12)


@pytest.mark.parametrize("degree", [1, 2, 5])
def test_polynomial_of_every_degree_is_a_power(degree: int) -> None:
    x, z = points(6, 0), points(6, 1)
    rows, gram, diag = evaluated(Polynomial.create(3, degree, VARIANCES, 0.6), x, z)
    np.testing.assert_allclose(
        rows, (np.einsum("nd,d,md->nm", x, VARIANCES, z) + 0.6) ** degree, rtol=1e-11, atol=1e-13
    )
    np.testing.assert_allclose(
        gram, (np.einsum("nd,d,md->nm", z, VARIANCES, z) + 0.6) ** degree, rtol=1e-11, atol=1e-13
    )
    np.testing.assert_allclose(diag, (x**2 @ VARIANCES + 0.6) ** degree, rtol=1e-12)


@pytest.mark.parametrize("name", COMPOSED)
def test_matrix_form_equals_difference_form_and_diagonal(name: str) -> None:
    x = points(6, 2)
    rows, gram, diag = evaluated(COMPOSED[name], x, x)
    np.testing.assert_allclose(rows, gram, rtol=1e-7, atol=1e-13)
    np.testing.assert_allclose(diag, np.diag(gram), rtol=1e-13)


@pytest.mark.parametrize("kind", [RBF, Matern32, Matern52])
def test_gram_keeps_its_digits_where_points_are_close_and_far_from_the_origin(kind: type[Stationary]) -> None:
    """1 - k ~ r²/2 at r = 1e-5, one thousand lengthscales from 0: the expanded square would be all noise."""
    gap = 2.0**-17
    z = jnp.array([[1000.0], [1000.0 + gap]])
    slope = {"RBF": 0.5, "Matern32": 1.5, "Matern52": 5 / 6}[kind.__name__]
    np.testing.assert_allclose(1 - kind.create(1).gram(z)[0, 1], slope * gap**2, rtol=1e-4)


@given(seed=st.integers(0, 10**6), copies=st.integers(0, 3), name=st.sampled_from(sorted(COMPOSED)))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_gram_is_symmetric_and_positive_semidefinite(seed: int, copies: int, name: str) -> None:
    """With some of the points twice, too."""
    z = points(6, seed)
    z[:copies] = z[3 : 3 + copies]
    _, gram, _ = evaluated(COMPOSED[name], z, z)
    np.testing.assert_allclose(gram, gram.T, rtol=1e-12, atol=1e-13)
    assert np.linalg.eigvalsh(gram).min() > -1e-11 * gram.diagonal().max()


def test_kernel_reads_its_own_columns_in_its_own_order() -> None:
    x, z = points(6, 3, 4), points(3, 4, 4)
    kernels: list[tuple[Kernel, Kernel]] = [
        (kind.create((3, 1), (0.6, 1.7)), kind.create(2, (0.6, 1.7))) for kind in (RBF, Linear)
    ]
    kernels.append((Polynomial.create((3, 1), 2, (0.6, 1.7)), Polynomial.create(2, 2, (0.6, 1.7))))
    for picking, plain in kernels:
        for one, two in zip(evaluated(picking, x, z), evaluated(plain, x[:, [3, 1]], z[:, [3, 1]]), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-13)


def test_sum_and_product_are_elementwise() -> None:
    first, second = ATOMS["rbf"][0], ATOMS["polynomial"][0]
    x, z = points(6, 3), points(6, 5)
    parts = list(zip(evaluated(first, x, z), evaluated(second, x, z), strict=True))
    for total, (one, two) in zip(evaluated(first + second, x, z), parts, strict=True):
        np.testing.assert_allclose(total, one + two, rtol=1e-12, atol=1e-13)
    for product, (one, two) in zip(evaluated(first * second, x, z), parts, strict=True):
        np.testing.assert_allclose(product, one * two, rtol=1e-12, atol=1e-13)


def test_the_rougher_the_kernel_the_heavier_its_tail() -> None:
    """Their tails: exp(-√3 r) > exp(-√5 r) > exp(-r²/2), each times a power."""
    x, z = np.zeros((1, 1)), np.array([[4.0], [6.0]])
    values = [evaluated(kind.create(1), x, z)[0] for kind in (RBF, Matern52, Matern32)]
    assert all((low < high).all() for low, high in pairwise(values))


def test_hyperparameters_are_what_was_asked_for() -> None:
    kernel = RBF.create(3, SCALES, 1.3)
    np.testing.assert_allclose(kernel.lengthscales, SCALES, rtol=1e-14)
    np.testing.assert_allclose(kernel.variance, 1.3, rtol=1e-14)
    np.testing.assert_allclose(Linear.create(3, VARIANCES).variances, VARIANCES, rtol=1e-14)
    np.testing.assert_allclose(Polynomial.create(3, 2, VARIANCES, 0.6).offset, 0.6, rtol=1e-14)


Place = tuple[Kernel, jax.Array, jax.Array]
Sides = tuple[jax.Array, jax.Array]


@compiled
@jax.value_and_grad
def mixed(place: Place) -> jax.Array:
    """A number that depends on everything a kernel gives, and its derivatives."""
    kernel, x, z = place
    parts = evaluate_here(kernel, x, z)
    return sum((jnp.vdot(jnp.cos(jnp.arange(1.0, a.size + 1)), a.ravel()) for a in parts), jnp.zeros(()))


@pytest.mark.parametrize("name", COMPOSED)
def test_gradients_equal_finite_differences(name: str) -> None:
    """Along a direction that moves all hyperparameters and all points."""
    rng = np.random.default_rng(6)
    start = (COMPOSED[name], points(6, 6), points(3, 7))
    direction = jax.tree.map(lambda a: rng.normal(size=a.shape), start)

    def along(step: float) -> Place:
        return jax.tree.map(lambda a, d: jnp.asarray(np.asarray(a) + step * d), start, direction)

    difference = (mixed(along(1e-5))[0] - mixed(along(-1e-5))[0]) / 2e-5
    slope = jax.tree.reduce(lambda a, b: a + b, jax.tree.map(np.vdot, mixed(along(0.0))[1], direction))
    np.testing.assert_allclose(slope, difference, rtol=1e-7)


@pytest.mark.parametrize("name", COMPOSED)
def test_gradients_at_coincident_points_are_those_next_to_them(name: str) -> None:
    """The kernels have continuous derivatives, where points meet too."""
    z = points(2, 8)[[0, 0, 1]]
    x = np.concatenate([z, points(3, 9)])
    there, beside = (
        mixed((COMPOSED[name], jnp.asarray(x + shift * points(6, 13)), jnp.asarray(z + shift * points(3, 14))))[1]
        for shift in (0.0, 1e-7)
    )
    for one, other in zip(jax.tree.leaves(there), jax.tree.leaves(beside), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kind", [RBF, Matern32, Matern52])
def test_stationary_gradient_vanishes_at_coincidence(kind: type[Stationary]) -> None:
    """The kernel is at its maximum there, so no derivative by the place or the lengthscales remains."""
    z = jnp.array([[0.3, -0.7]])
    kernel = kind.create(2, (0.6, 1.4), 2.0)
    for value in (lambda k, x, z: k(x, z)[0, 0], lambda k, x, z: k.gram(jnp.concatenate([x, z]))[0, 1]):
        by_kernel, by_place = compiled(jax.grad(value, argnums=(0, 1)))(kernel, z, z)
        np.testing.assert_allclose(by_place, 0, atol=1e-7)
        np.testing.assert_allclose(by_kernel.log_lengthscales, 0, atol=1e-7)
        np.testing.assert_allclose(by_kernel.log_variance, 2.0, rtol=1e-7)


with scope():
    SEPARABLE: dict[str, Kernel] = {
        "rbf over both": RBF.create(4, (0.7, 1.6, 1.1, 0.5), 1.3),
        "rbf, columns mixed up": RBF.create((3, 0, 2), (0.7, 1.6, 1.1), 1.3),
        "rbf, left": RBF.create((0, 1), 0.9, 1.3),
        "rbf, right": RBF.create((3,), 0.9, 1.3),
        "matern, left": Matern52.create((1,), 0.9, 1.3),
        "matern, right": Matern32.create((3, 2), (0.9, 0.4), 1.3),
        "linear, left": Linear.create((0, 1), 0.4),
        "linear, right": Linear.create((2, 3), (0.4, 0.8)),
        "polynomial, right": Polynomial.create((3,), 3, 0.4, 0.9),
        "matern times matern": Matern52.create((0, 1), 0.9, 1.3) * Matern32.create((2, 3), 0.9, 0.8),
        "rbf times linear": RBF.create(4, 0.9, 1.3) * Linear.create((2,), 0.8),
        "three factors": RBF.create(4, 0.9) * (Linear.create((3,), 0.8) * Matern32.create((0, 1))),
        "sum, left": Linear.create((0,), 0.7) + Matern32.create((1,), 0.5, 1.2),
        "sum, right": Linear.create((2,), 0.7) + Matern32.create((3,), 0.5, 1.2),
        "sum times rbf": (Linear.create((0,), 0.7) + Matern32.create((1,), 0.5)) * RBF.create(4),
        "one": One(),
    }
    JOINT: dict[str, Kernel] = {
        "matern": Matern52.create(4),
        "matern, some columns": Matern32.create((1, 2)),
        "linear": Linear.create(4),
        "polynomial": Polynomial.create((0, 3)),
        "sum over both sides": Linear.create((0, 1)) + Linear.create((2, 3)),
        "sum of rbf over both sides": RBF.create((0, 1)) + RBF.create((2, 3)),
        "sum of joint rbfs": RBF.create(4) + RBF.create(4, 0.3),
        "product with a joint factor": RBF.create(4) * Matern52.create(4),
        "sum with a joint term": Matern52.create(4) + Linear.create((0,)),
    }
    ONE_SIDED: dict[str, Kernel] = {
        "rbf, left": RBF.create((0,), 0.7) + RBF.create((1,), 1.4, 0.6),
        "rbf, right": RBF.create((2, 3), 0.7) + RBF.create((3,), 1.4, 0.6),
        "rbf and linear": RBF.create((0,), 0.7) + Linear.create((0, 1)),
        "product, left": Linear.create((0,)) * Linear.create((1,)) + Linear.create((0,)),
        "product, right": Linear.create((2,)) * Linear.create((3,)) + Matern32.create((2, 3)),
    }


@compiled
def evaluate_factors(kernel: Kernel, pair: tuple[Kernel, Kernel], x: Sides, z: Sides) -> tuple[Any, Any]:
    left, right = (evaluate_here(factor, x[i], z[i]) for i, factor in enumerate(pair))
    both = evaluate_here(kernel, jnp.concatenate(x, 1), jnp.concatenate(z, 1))
    return [one * two for one, two in zip(left, right, strict=True)], list(both)


def factors_multiply(kernel: Kernel, split: int) -> None:
    x, z = jnp.asarray(points(6, 9, 4)), jnp.asarray(points(3, 10, 4))
    pair = kernel.separate(split)
    assert pair is not None
    got, expected = evaluate_factors(kernel, pair, (x[:, :split], x[:, split:]), (z[:, :split], z[:, split:]))
    for one, two in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", SEPARABLE)
def test_factors_multiply_to_the_kernel(name: str) -> None:
    factors_multiply(SEPARABLE[name], 2)


@pytest.mark.parametrize("name", JOINT)
def test_kernel_that_is_no_product_of_the_sides_has_no_factors(name: str) -> None:
    assert JOINT[name].separate(2) is None


@pytest.mark.parametrize("split", [0, 4])
@pytest.mark.parametrize("name", ["rbf over both", "matern", "linear"])
def test_kernel_separates_when_one_side_is_empty(name: str, split: int) -> None:
    factors_multiply((SEPARABLE | JOINT)[name], split)


@pytest.mark.parametrize("name", ONE_SIDED)
def test_sum_that_reads_one_side_only_separates(name: str) -> None:
    factors_multiply(ONE_SIDED[name], 2)


def test_factors_depend_on_the_same_hyperparameters() -> None:
    """The derivative through the factors is the derivative of the kernel."""
    x = jnp.asarray(points(6, 11, 4))

    @compiled
    def both(kernel: Kernel) -> tuple[Any, Any]:
        def through_factors(kernel: Kernel) -> jax.Array:
            pair = kernel.separate(2)
            assert pair is not None
            return jnp.sum(jnp.sin(pair[0](x[:, :2], x[:, :2]) * pair[1](x[:, 2:], x[:, 2:])))

        return jax.grad(through_factors)(kernel), jax.grad(lambda kernel: jnp.sum(jnp.sin(kernel(x, x))))(kernel)

    got, expected = (jax.tree.leaves(tree) for tree in both(SEPARABLE["rbf times linear"]))
    for one, two in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [RBF, Matern32])
def test_kernel_goes_on_with_latents_as_the_kernel_of_x_times_an_rbf_of_w(kind: type[Stationary]) -> None:
    """Of points with the same w it is the kernel of x; it separates, for one latent or two."""
    kernel = kind.create(2, (0.7, 1.6), 1.3)
    extended = kernel.extended(2, 2, 0.6)
    h, z = points(6, 9, 4), points(3, 10, 4)
    rows, _, _ = evaluated(extended, h, z)
    across = np.exp(-0.5 * ((h[:, None, 2:] - z[:, 2:]) ** 2).sum(2) / 0.6**2)
    np.testing.assert_allclose(
        rows, np.asarray(kernel(jnp.asarray(h[:, :2]), jnp.asarray(z[:, :2]))) * across, rtol=1e-12
    )
    assert extended.separate(2) is not None


def test_a_variance_is_set_where_there_is_one() -> None:
    """Of a product, that of its first factor; what has none says so."""
    product = RBF.create(2, 0.5).extended(2, 1, 0.6).with_variance(0.3)
    np.testing.assert_allclose(product.diag(jnp.zeros((4, 3))), 0.3)
    with pytest.raises(NotImplementedError, match="not Linear"):
        Linear.create(2).with_variance(0.3)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: RBF.create(2, variance=0.0), "variance must be positive"),
        (lambda: RBF.create(2, lengthscales=(1.0, -1.0)), "lengthscales must be positive"),
        (lambda: Matern52.create(2, lengthscales=np.inf), "lengthscales must be positive and finite"),
        (lambda: Matern32.create(2, variance=np.nan), "variance must be positive and finite"),
        (lambda: Linear.create(2, (1.0, 0.0)), "variances must be positive"),
        (lambda: Polynomial.create(2, offset=-1.0), "offset must be positive"),
        (lambda: Polynomial.create(2, degree=0), "degree must be a positive integer"),
        (lambda: RBF.create((0, 1, 0)), "each column once"),
        (lambda: RBF.create(2, lengthscales=(1.0, 2.0, 3.0)), "lengthscales"),
        (lambda: Linear.create(3, (1.0, 2.0)), "variances"),
        (lambda: RBF.create((0, -1)), "dims"),
    ],
)
def test_invalid_values_say_what_is_wrong(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


def test_columns_that_are_not_there_are_refused() -> None:
    """An index beyond the last column would else silently read the last one again."""
    x = jnp.asarray(points(4, 12, 2))
    for kernel in (RBF.create(3), Linear.create((0, 2))):
        with pytest.raises((ValueError, IndexError)):
            jax.eval_shape(kernel, x, x)


def test_operators_build_sums_and_products() -> None:
    kernel = RBF.create(1) + RBF.create(1) * RBF.create(1)
    assert isinstance(kernel, Sum)
    assert isinstance(kernel.second, Product)
    np.testing.assert_allclose(kernel.diag(jnp.array([[0.4]])), [2.0], rtol=1e-14)
