"""Kernel expectations against tensor-product Gauss–Hermite quadrature of the plain kernel, and their limits."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpcde.model import expectations as _expectations
from gpcde.model.expectations import Expectations
from gpcde.model.kernels import RBF, Kernel, Linear, Matern32, Matern52, Polynomial
from gpcde.runtime.compilation import compiled
from gpcde.runtime.precision import scope

with scope():
    KERNELS: dict[str, Kernel] = {
        "rbf": RBF.create(3, (0.9, 1.3, 1.6), 1.4),
        "rbf, some columns": RBF.create((2, 0), (0.9, 1.3), 0.8),
        "linear": Linear.create(3, (0.5, 1.2, 0.8)),
        "linear, some columns": Linear.create((2, 1), (0.5, 1.2)),
        "polynomial 1": Polynomial.create(3, 1, (0.5, 1.2, 0.8), 0.7),
        "polynomial 2": Polynomial.create(3, 2, (0.5, 1.2, 0.8), 0.7),
        "polynomial 3": Polynomial.create(3, 3, (0.5, 0.3, 0.8), 0.7),
        "polynomial 3, some columns": Polynomial.create((2, 0), 3, (0.5, 1.2), 0.7),
    }
SMALL = ["rbf, some columns", "linear", "polynomial 3, some columns"]


def plainly(
    kernel: Kernel, mean: jax.Array, covariance: jax.Array, z: jax.Array, weight: jax.Array | None = None
) -> Expectations:
    """Every row of weight 1, unless told."""
    return kernel.expectations(mean, covariance, z, jnp.ones(len(mean)) if weight is None else weight)


_expected = compiled(plainly)


def expectations(
    kernel: Kernel, mean: jax.Array, covariance: jax.Array, z: jax.Array, weight: jax.Array | None = None
) -> Expectations:
    """The same, compiled once for all weights."""
    return _expected(kernel, mean, covariance, z, jnp.ones(len(mean)) if weight is None else weight)


def problem(n: int, m: int, full: bool, seed: int = 0, d: int = 3) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Means, covariances that differ from point to point, and inducing points."""
    rng = np.random.default_rng(seed)
    mean, z = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    if not full:
        return jnp.asarray(mean), jnp.asarray(rng.uniform(0.05, 0.4, size=(n, d))), jnp.asarray(z)
    root = rng.normal(size=(n, d, d)) * 0.25
    return jnp.asarray(mean), jnp.asarray(root @ root.mT + 0.02 * np.eye(d)), jnp.asarray(z)


def plain_kernel(kernel: Kernel, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """k(x, z) for x and z that broadcast."""
    assert isinstance(kernel, RBF | Linear | Polynomial)
    x, z = x[..., list(kernel.dims)], z[..., list(kernel.dims)]
    if isinstance(kernel, RBF):
        return float(kernel.variance) * np.exp(-0.5 * (((x - z) / np.asarray(kernel.lengthscales)) ** 2).sum(-1))
    product = (x * z * np.asarray(kernel.variances)).sum(-1)
    return product if isinstance(kernel, Linear) else (product + float(kernel.offset)) ** kernel.degree


def brute_force(
    kernel: Kernel, mean: jax.Array, covariance: jax.Array, z: jax.Array, row_weight: jax.Array, nodes: int
) -> Expectations:
    """Every expectation as a weighted sum over nodes in all dimensions."""
    n, d = mean.shape
    places, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(*[places] * d, indexing="ij"), -1).reshape(-1, d)
    weight = np.prod(np.stack(np.meshgrid(*[weights] * d, indexing="ij"), -1).reshape(-1, d), axis=1)
    psi0, psi1, psi2 = np.zeros(n), np.zeros((n, len(z))), np.zeros((len(z), len(z)))
    for i in range(n):
        root = np.diag(np.sqrt(covariance[i])) if covariance.ndim == 2 else np.linalg.cholesky(covariance[i])
        h = np.asarray(mean)[i] + grid @ root.T
        rows = plain_kernel(kernel, h[:, None], np.asarray(z))
        psi0[i] = weight @ plain_kernel(kernel, h, h)
        psi1[i] = weight @ rows
        psi2 += float(row_weight[i]) * (rows * weight[:, None]).T @ rows
    return Expectations(jnp.asarray(psi0), jnp.asarray(psi1), jnp.asarray(psi2))


def close(one: Any, two: Any, rtol: float, atol: float = 0.0) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize("full", [False, True], ids=["diagonal", "full"])
@pytest.mark.parametrize("name", KERNELS)
def test_expectations_equal_quadrature(name: str, full: bool) -> None:
    """With rows that count what they weigh in psi2, whose sum is over them, one of them nothing."""
    mean, covariance, z = problem(5, 4, full)
    weight = jnp.asarray([1.0, 2.0, 0.0, 0.3, 1.7])
    nodes = 30 if isinstance(KERNELS[name], RBF) else 8
    expected = brute_force(KERNELS[name], mean, covariance, z, weight, nodes)
    close(expectations(KERNELS[name], mean, covariance, z, weight), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", KERNELS)
def test_diagonal_matrices_and_variances_agree(name: str) -> None:
    mean, variance, z = problem(5, 4, full=False)
    full = jax.vmap(jnp.diag)(variance)
    one, two = (expectations(KERNELS[name], mean, c, z) for c in (variance, full))
    close(one, two, rtol=1e-12)


@pytest.mark.parametrize("full", [False, True], ids=["diagonal", "full"])
@pytest.mark.parametrize("name", KERNELS)
def test_without_variance_they_are_the_plain_kernel(name: str, full: bool) -> None:
    kernel = KERNELS[name]
    mean, covariance, z = problem(5, 4, full)
    x = np.asarray(mean)
    rows = plain_kernel(kernel, x[:, None], np.asarray(z))
    expected = (plain_kernel(kernel, x, x), rows, rows.T @ rows)
    close(expectations(kernel, mean, jnp.zeros_like(covariance), z), expected, rtol=1e-11, atol=1e-13)


def mixed(psi: tuple[jax.Array, ...]) -> jax.Array:
    """One number that depends on all of them."""
    return sum((jnp.vdot(jnp.cos(jnp.arange(1.0, p.size + 1)), p.ravel()) for p in psi), jnp.zeros(()))


@compiled
@partial(jax.value_and_grad, argnums=(0, 1, 2, 3))
def slopes(kernel: Kernel, mean: jax.Array, z: jax.Array, covariance: jax.Array) -> jax.Array:
    return mixed(plainly(kernel, mean, covariance, z))


@compiled
def plain_slopes(kernel: Kernel, mean: jax.Array, z: jax.Array) -> tuple[Any, jax.Array]:
    """The first derivatives, and the second by the means, of the same number for points that are certain."""

    def plain(kernel: Kernel, mean: jax.Array, z: jax.Array) -> jax.Array:
        rows = kernel(mean, z)
        return mixed((kernel.diag(mean), rows, rows.T @ rows))

    return jax.grad(plain, argnums=(0, 1, 2))(kernel, mean, z), jax.hessian(plain, argnums=1)(kernel, mean, z)


@pytest.mark.parametrize("full", [False, True], ids=["diagonal", "full"])
@pytest.mark.parametrize("name", SMALL)
def test_without_variance_the_gradients_are_those_of_the_plain_kernel(name: str, full: bool) -> None:
    """By kernel, mean and z; the derivative by the covariance obeys the heat equation, ∂/∂cov = ∂²/∂mean² / 2."""
    kernel = KERNELS[name]
    mean, covariance, z = problem(3, 2, full)
    *got, by_covariance = slopes(kernel, mean, z, jnp.zeros_like(covariance))[1]
    expected, hessians = plain_slopes(kernel, mean, z)
    close(tuple(got), expected, rtol=1e-9, atol=1e-11)
    hessian = np.stack([np.asarray(hessians)[i, :, i] for i in range(3)])
    if full:
        np.testing.assert_allclose(by_covariance + by_covariance.mT, hessian, rtol=1e-8, atol=1e-9)
    else:
        diagonal = np.diagonal(hessian, axis1=1, axis2=2)
        np.testing.assert_allclose(by_covariance, 0.5 * diagonal, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("full", [False, True], ids=["diagonal", "full"])
@pytest.mark.parametrize("name", SMALL)
def test_gradients_equal_finite_differences(name: str, full: bool) -> None:
    """Along a direction that moves all hyperparameters, means, covariances and inducing points."""
    rng = np.random.default_rng(1)
    mean, covariance, z = problem(3, 2, full)
    start = (KERNELS[name], mean, z, covariance)
    direction = jax.tree.map(lambda a: rng.normal(size=a.shape), start)

    def along(step: float) -> Any:
        return jax.tree.map(lambda a, d: jnp.asarray(np.asarray(a) + step * d), start, direction)

    difference = (slopes(*along(1e-5))[0] - slopes(*along(-1e-5))[0]) / 2e-5
    slope = jax.tree.reduce(lambda a, b: a + b, jax.tree.map(np.vdot, slopes(*start)[1], direction))
    np.testing.assert_allclose(slope, difference, rtol=1e-7)


@pytest.mark.parametrize("full", [False, True], ids=["diagonal", "full"])
def test_sum_over_points_does_not_depend_on_the_blocks(full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eleven points of different weights, in blocks of three: what fills up the last block counts nothing."""
    mean, covariance, z = problem(11, 4, full)
    weight = jnp.linspace(0.5, 2.0, 11)

    def both() -> Any:
        value = jax.value_and_grad(lambda *args: mixed(plainly(*args)[2:]), argnums=(0, 1, 2, 3, 4))
        return compiled(value)(KERNELS["rbf"], mean, covariance, z, weight)

    expected = both()
    monkeypatch.setattr(_expectations, "PAIRS_AT_ONCE", 3 * 10 + 5)
    close(both(), expected, rtol=1e-12, atol=1e-14)


def test_block_smaller_than_the_pairs_of_one_point_is_one_point(monkeypatch: pytest.MonkeyPatch) -> None:
    mean, covariance, z = problem(5, 4, full=False)
    expected = expectations(KERNELS["rbf"], mean, covariance, z)
    monkeypatch.setattr(_expectations, "PAIRS_AT_ONCE", 1)
    close(compiled(lambda *args: plainly(*args))(KERNELS["rbf"], mean, covariance, z), expected, rtol=1e-12)


def sizes(jaxpr: Any) -> Iterator[int]:
    """How many elements each intermediate of a traced function has, in its loops and branches too."""
    for equation in jaxpr.eqns:
        yield from (int(np.prod(out.aval.shape)) for out in equation.outvars)
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, tuple | list) else (parameter,):
                if hasattr(inner, "eqns"):
                    yield from sizes(inner)
                elif hasattr(inner, "jaxpr"):
                    yield from sizes(inner.jaxpr)


def test_sizes_sees_inside_loops() -> None:
    def looped(x: jax.Array) -> jax.Array:
        body = jax.checkpoint(lambda total, row: (total + jnp.exp(jnp.outer(row, row)).sum(), None))
        return jax.lax.scan(body, jnp.zeros(()), x)[0]

    assert max(sizes(jax.make_jaxpr(looped)(jnp.ones((3, 7))).jaxpr)) == 49
    assert max(sizes(jax.make_jaxpr(jax.grad(looped))(jnp.ones((3, 7))).jaxpr)) == 49


@pytest.mark.parametrize("full", [False, True], ids=["diagonal", "full"])
@pytest.mark.parametrize("name", ["rbf", "linear", "polynomial 2"])
def test_no_array_of_points_by_pairs_is_made(name: str, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the value nor for the gradient, nor for half of the pairs."""
    n, m, rows = 200, 30, 5
    pairs = m * (m + 1) // 2
    monkeypatch.setattr(_expectations, "PAIRS_AT_ONCE", rows * pairs)
    mean, covariance, z = problem(n, m, full)

    def value(kernel: Kernel, mean: jax.Array, covariance: jax.Array, z: jax.Array) -> jax.Array:
        psi = plainly(kernel, mean, covariance, z)
        return psi.psi0.sum() + psi.psi1.sum() + psi.psi2.sum()

    for function in (value, jax.grad(value, argnums=(0, 1, 2, 3))):
        largest = max(sizes(jax.make_jaxpr(function)(KERNELS[name], mean, covariance, z).jaxpr))
        assert largest < n * pairs // 2
    # the default also keeps within its budget, where all points at once would not
    monkeypatch.undo()
    mean, covariance, z = (jnp.zeros((20000, *a.shape[1:])) if a is not z else a for a in (mean, covariance, z))
    for function in (value, jax.grad(value, argnums=(0, 1, 2, 3))):
        largest = max(sizes(jax.make_jaxpr(function)(KERNELS[name], mean, covariance, z).jaxpr))
        assert largest < 20000 * pairs // 2


@given(seed=st.integers(0, 10**6), full=st.booleans())
@settings(max_examples=20, deadline=None, derandomize=True)
def test_second_moment_exceeds_the_square_of_the_first(seed: int, full: bool) -> None:
    """psi2 - psi1ᵀ psi1 is a sum of covariance matrices."""
    mean, covariance, z = problem(5, 4, full, seed)
    for name in ("rbf", "linear", "polynomial 2"):
        psi = expectations(KERNELS[name], mean, covariance, z)
        excess = np.asarray(psi.psi2 - psi.psi1.T @ psi.psi1)
        np.testing.assert_allclose(excess, excess.T, atol=1e-10 * np.abs(psi.psi2).max())
        assert np.linalg.eigvalsh(excess).min() > -1e-10 * float(jnp.abs(psi.psi2).max())


def test_certain_columns_factor_out_of_the_rbf() -> None:
    """With variance in the last column only, psi1 is the plain kernel of the others times psi1 of the last."""
    mean, variance, z = problem(5, 4, full=False)
    variance = variance.at[:, :2].set(0)
    kernel = RBF.create(3, (0.9, 1.3, 1.6), 1.4)
    left, right = kernel.separate(2)
    last = expectations(right, mean[:, 2:], variance[:, 2:], z[:, 2:]).psi1
    expected = left(mean[:, :2], z[:, :2]) * last
    np.testing.assert_allclose(expectations(kernel, mean, variance, z).psi1, expected, rtol=1e-12)


def test_polynomial_of_degree_one_is_linear_plus_constant() -> None:
    mean, covariance, z = problem(5, 4, full=True)
    linear = expectations(Linear.create(3, 0.6), mean, covariance, z)
    polynomial = expectations(Polynomial.create(3, 1, 0.6, 0.3), mean, covariance, z)
    column = linear.psi1.sum(0)
    expected = Expectations(
        linear.psi0 + 0.3, linear.psi1 + 0.3, linear.psi2 + 0.3 * (column[:, None] + column) + 5 * 0.3**2
    )
    close(polynomial, expected, rtol=1e-12)


OTHERS: dict[str, Callable[[], Kernel]] = {
    "Matern32": lambda: Matern32.create(3),
    "Matern52": lambda: Matern52.create(3),
    "Sum": lambda: RBF.create(3) + Linear.create(3),
    "Product": lambda: RBF.create((0,)) * RBF.create((1, 2)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_kernels_are_refused_with_a_way_out(name: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"not for {name}.*expectation='draws'"):
        plainly(OTHERS[name](), *problem(3, 2, full=False))
