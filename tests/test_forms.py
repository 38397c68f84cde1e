"""Derivatives written by hand against automatic differentiation of the textbook formulas."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from gpcde.inference import forms as _forms
from gpcde.inference.forms import inverse_cholesky, quadratic_form, separable_log_sum, unwhitened
from gpcde.runtime.compilation import compiled

N, K, M, D = 7, 3, 4, 2


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def symmetric(size: int, seed: int = 0) -> np.ndarray:
    a = normal(size, size, seed=seed)
    return a + a.T


def positive(size: int, seed: int = 0) -> np.ndarray:
    a = normal(size, size + 3, seed=seed)
    return a @ a.T / size + 0.1 * np.eye(size)


def arrays(*values: Any) -> tuple[jax.Array, ...]:
    return tuple(jnp.asarray(v) for v in values)


def agree(one: Callable[..., jax.Array], two: Callable[..., jax.Array], args: tuple[jax.Array, ...]) -> None:
    """The same value and the same derivative by every argument."""
    argnums = tuple(range(len(args)))
    (value, gradients), (expected, derivatives) = compiled(
        lambda *args: (jax.value_and_grad(one, argnums)(*args), jax.value_and_grad(two, argnums)(*args))
    )(*args)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    for got, wanted in zip(gradients, derivatives, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10 * float(jnp.abs(wanted).max()))


def naive_quadratic(rows: jax.Array, matrix: jax.Array, pull: jax.Array) -> jax.Array:
    return jnp.einsum("nkm,nm->nk", rows, pull) + 0.5 * jnp.einsum("nki,ij,nkj->nk", rows, matrix, rows)


def naive_log_sum(
    rows_x: jax.Array,
    rows_w: jax.Array,
    matrix: jax.Array,
    pull: jax.Array,
    offset: jax.Array,
    precision: jax.Array,
    weight: jax.Array,
) -> jax.Array:
    form = naive_quadratic(rows_x[:, None] * rows_w, matrix, pull)
    return (weight * jax.nn.logsumexp(offset + precision * form, axis=1)).sum()


def naive_unwhitened(gram: jax.Array, quadratic: jax.Array, linear: jax.Array) -> tuple[jax.Array, jax.Array]:
    inverse = jnp.linalg.inv(jnp.linalg.cholesky(gram))
    return inverse.T @ quadratic @ inverse, inverse.T @ linear


def log_sum_arguments(n: int = N, k: int = K) -> tuple[jax.Array, ...]:
    """Precisions that differ from point to point and from node to node, and weights, one of them zero."""
    rows, precision = (normal(n, M), normal(k, M, seed=1)), np.exp(0.3 * normal(n, k, seed=4) - 0.4)
    weight = np.arange(n) / 3
    return arrays(*rows, symmetric(M), normal(n, M, seed=2), normal(n, k, seed=3), precision, weight)


def test_quadratic_form_and_its_derivatives() -> None:
    weight = jnp.asarray(normal(N, K, seed=5))
    args = arrays(normal(N, K, M), symmetric(M), normal(N, M, seed=2))
    np.testing.assert_allclose(quadratic_form(*args), compiled(naive_quadratic)(*args), rtol=1e-12, atol=1e-13)
    agree(lambda *a: jnp.vdot(weight, quadratic_form(*a)), lambda *a: jnp.vdot(weight, naive_quadratic(*a)), args)


@pytest.mark.parametrize("at_once", [256, 2, 1], ids=["one block", "padded", "one each"])
def test_separable_log_sum_and_its_derivatives(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven points in blocks of seven, of two (so that one place is empty) and of one; by all but the weights."""
    monkeypatch.setattr(_forms, "POINTS_AT_ONCE", at_once)
    scale, (*args, weight) = 1.3, log_sum_arguments()

    def scaled(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        return lambda *a: scale * function(*a, weight)

    agree(scaled(separable_log_sum), scaled(naive_log_sum), tuple(args))


def test_a_weight_is_how_often_a_point_counts() -> None:
    """Points of weight 2 are there twice, points of weight 0 not at all: in the value and in what sums over points."""
    *args, _ = log_sum_arguments()
    x, w, matrix, pull, offset, precision = args
    repeated = np.array([0, 0, 1, 3, 3, 6])
    weight = jnp.asarray(np.bincount(repeated, minlength=N).astype(float))
    both = compiled(jax.value_and_grad(separable_log_sum, (1, 2)))
    value, gradients = both(*args, weight)
    some = x[repeated], w, matrix, pull[repeated], offset[repeated], precision[repeated]
    expected, derivatives = both(*some, jnp.ones(len(repeated)))
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    for got, wanted in zip(gradients, derivatives, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-13)


def test_derivative_by_the_offset_is_the_responsibility() -> None:
    """Of each point they sum to its weight, also where likelihoods differ by thousands."""
    x, w, matrix, pull, offset, precision, weight = log_sum_arguments()
    offset = offset.at[0].multiply(3000.0).at[1].add(5000.0)
    value, r = compiled(jax.value_and_grad(separable_log_sum, 4))(x, w, matrix, pull, offset, precision, weight)
    form = np.asarray(compiled(naive_quadratic)(x[:, None] * w, matrix, pull))
    logs, v = np.asarray(offset) + np.asarray(precision) * form, np.asarray(weight)
    np.testing.assert_allclose(value, v @ logsumexp(logs, axis=1), rtol=1e-12)
    expected = v[:, None] * np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
    np.testing.assert_allclose(r, expected, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(r.sum(1), v, rtol=1e-12)


def test_nodes_of_no_weight_count_nothing() -> None:
    """A log weight of -inf is a node left out, for the value and for the derivatives."""
    x, w, matrix, pull, offset, precision, weight = log_sum_arguments()
    both = compiled(jax.value_and_grad(separable_log_sum, (0, 2, 3, 5)))
    value, gradients = both(x, w, matrix, pull, offset.at[:, 2].set(-jnp.inf), precision, weight)
    expected, derivatives = both(x, w[:2], matrix, pull, offset[:, :2], precision[:, :2], weight)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    for got, wanted in zip(gradients, derivatives, strict=True):
        some = got[:, :2] if got.shape != wanted.shape else got
        np.testing.assert_allclose(some, wanted, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(gradients[3][:, 2], 0)


def sizes(jaxpr: Any) -> Iterator[int]:
    """How many elements each intermediate of a traced function has, in its loops too."""
    for equation in jaxpr.eqns:
        yield from (int(np.prod(out.aval.shape)) for out in equation.outvars)
        for parameter in equation.params.values():
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from sizes(inner)


def test_separable_log_sum_never_makes_all_kernel_rows() -> None:
    n, k = 1000, 50
    args = log_sum_arguments(n, k)
    gradient = jax.value_and_grad(separable_log_sum, tuple(range(6)))
    naive = jax.value_and_grad(naive_log_sum, tuple(range(6)))
    assert max(sizes(jax.make_jaxpr(naive)(*args).jaxpr)) >= n * k * M
    assert max(sizes(jax.make_jaxpr(gradient)(*args).jaxpr)) < n * k * M // 2


def test_unwhitened_and_its_derivatives() -> None:
    """For cotangents of C that are symmetric, as those of a quadratic form are."""
    down, across = jnp.asarray(symmetric(M, seed=5)), jnp.asarray(normal(M, D, seed=6))

    def value(function: Callable[..., tuple[jax.Array, jax.Array]]) -> Callable[..., jax.Array]:
        def scalar(*args: jax.Array) -> jax.Array:
            quadratic, linear = function(*args)
            return jnp.vdot(down, quadratic) + jnp.vdot(across, linear)

        return scalar

    agree(value(unwhitened), value(naive_unwhitened), arrays(positive(M), symmetric(M, seed=1), normal(M, D, seed=2)))


def test_unwhitened_derivatives_for_cotangents_without_symmetry() -> None:
    """One entry above the diagonal of C alone."""
    args = arrays(positive(M), symmetric(M, seed=1), normal(M, D, seed=2))
    agree(lambda *a: unwhitened(*a)[0][0, 2], lambda *a: naive_unwhitened(*a)[0][0, 2], args)


def test_unwhitened_is_undone_by_the_cholesky_factor() -> None:
    gram, quadratic, linear = positive(M), symmetric(M, seed=1), normal(M, D, seed=2)
    c, w = unwhitened(*arrays(gram, quadratic, linear))
    factor = np.linalg.cholesky(gram)
    np.testing.assert_allclose(factor.T @ c @ factor, quadratic, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(factor.T @ w, linear, rtol=1e-10, atol=1e-12)


def test_inverse_cholesky_whitens() -> None:
    gram = positive(M)
    x = np.asarray(inverse_cholesky(jnp.asarray(gram)))
    np.testing.assert_allclose(x @ gram @ x.T, np.eye(M), atol=1e-12)
    np.testing.assert_array_equal(x, np.tril(x))


def test_derivatives_by_the_whitened_coefficients_are_the_natural_gradient_statistics() -> None:
    """∂/∂C̄ = Σ r a aᵀ / 2 and ∂/∂W̄ = Σ r a yᵀ, with a = Lz⁻¹ k and weights r."""
    gram, rows, y, r = positive(M), normal(N, K, M), normal(N, D, seed=1), np.abs(normal(N, K, seed=2))

    def value(quadratic: jax.Array, linear: jax.Array) -> jax.Array:
        matrix, coefficients = unwhitened(jnp.asarray(gram), quadratic, linear)
        return jnp.vdot(jnp.asarray(r), quadratic_form(jnp.asarray(rows), matrix, jnp.asarray(y) @ coefficients.T))

    args = arrays(symmetric(M, seed=3), normal(M, D, seed=4))
    by_quadratic, by_linear = compiled(jax.grad(value, argnums=(0, 1)))(*args)
    a = np.linalg.solve(np.linalg.cholesky(gram), rows.reshape(-1, M).T).T.reshape(rows.shape)
    np.testing.assert_allclose(by_quadratic, 0.5 * np.einsum("nk,nki,nkj->ij", r, a, a), rtol=1e-10)
    np.testing.assert_allclose(by_linear, np.einsum("nk,nki,nd->id", r, a, y), rtol=1e-10, atol=1e-12)
