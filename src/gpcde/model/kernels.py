"""Kernels: k(x, z) between rows, hyperparameters held as logarithms.

    RBF         v exp(-r²/2)                            r² = sum_d (x_d - z_d)² / l_d²
    Matern32    v (1 + √3 r) exp(-√3 r)
    Matern52    v (1 + √5 r + 5 r²/3) exp(-√5 r)
    Linear      sum_d v_d x_d z_d
    Polynomial  (sum_d v_d x_d z_d + c)^p
    k1 + k2, k1 * k2

A kernel reads the columns in `dims`, so that a sum or a product can give each of its terms its own.
`kernel(x, z)` expands the square, one matrix product; `kernel.gram(z)` subtracts first, which keeps
its digits where points are close, and is meant for the few inducing inputs.

`kernel.separate(split)` is the pair (kx, kw) with k([x, w], [x', w']) = kx(x, x') kw(w, w'), where x is
the first `split` columns, or None where the kernel is no such product. `kernel.expectations` are its closed-form
expectations, and `kernel.frequencies` draws from its spectrum, where it has them.
"""

import abc
import dataclasses
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..runtime.files import check_positive
from ..runtime.precision import on_device, require_wide
from .expectations import (
    Covariance,
    Expectations,
    linear_expectations,
    polynomial_expectations,
    rbf_expectations,
)
from .gaussians import surprise
from .inputs import Numbers
from .part import Certain

K = TypeVar("K", bound="Stationary")

SPREAD, LONGER = 0.7, 1.4
"""The standard deviations of the logarithm of a lengthscale a priori, where one is believed, below its median and above
it: an input may say next to nothing."""

VARIANCE_SPREAD, LARGER = 1.0, 3.0
"""Those of the logarithm of the variance: a function that is smooth all over is a small part of a large process."""


def jittered(gram: Float[Array, "m m"], jitter: float) -> Float[Array, "m m"]:
    """A covariance with some more on its diagonal, relative to it."""
    return gram + jitter * jnp.mean(jnp.diagonal(gram)) * jnp.eye(len(gram))


class Kernel(Certain):
    """A positive semi-definite function of two rows."""

    @property
    def is_one(self) -> bool:
        """Whether k = 1, so that it may be left out of a product."""
        return False

    @abc.abstractmethod
    def __call__(self, x: Float[Array, "n d"], z: Float[Array, "m d"]) -> Float[Array, "n m"]:
        """k(x_n, z_m), for every pair."""

    @abc.abstractmethod
    def gram(self, z: Float[Array, "m d"]) -> Float[Array, "m m"]:
        """k(z_m, z_m'), exact to the last digits where points are close."""

    @abc.abstractmethod
    def diag(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        """k(x_n, x_n)."""

    @abc.abstractmethod
    def separate(self, split: int) -> "tuple[Kernel, Kernel] | None":
        """The factors of the first `split` columns and of the others, if the kernel is their product."""

    def expectations(
        self, mean: Float[Array, "n d"], covariance: Covariance, z: Float[Array, "m d"], weight: Float[Array, " n"]
    ) -> Expectations:
        """Kernel expectations under h_n ~ N(mean_n, cov_n), where they have a closed form (see `expectations`)."""
        raise NotImplementedError(
            f"closed-form kernel expectations exist for RBF, Linear and Polynomial, not for {type(self).__name__}; "
            "use Monte Carlo draws of w instead (expectation='draws')"
        )

    def frequencies(self, key: PRNGKeyArray, width: int, count: int) -> tuple[Float[Array, "h F"], Float[Array, ""]]:
        """Draws from the kernel's spectrum, for points of `width` columns, and its variance, where it is stationary."""
        raise NotImplementedError(
            f"densities are drawn for stationary kernels and their products, not for {type(self).__name__}"
        )

    def extended(self, width: int, dim: int, lengthscale: float) -> "Kernel":
        """The kernel of [x, w] that starts from this one, of the `width` columns of x; RBF in w, so it separates."""
        return Product(self, RBF.create(tuple(range(width, width + dim)), lengthscale))

    def with_variance(self, variance: float) -> "Kernel":
        """The same with this variance, of which nothing is believed, where it has one."""
        raise NotImplementedError(f"stationary kernels and their products have a variance, not {type(self).__name__}")

    def __add__(self, other: "Kernel") -> "Sum":
        return Sum(self, other)

    def __mul__(self, other: "Kernel") -> "Product":
        return Product(self, other)


class One(Kernel):
    """k = 1: the other factor of a kernel that reads one side only."""

    @property
    def is_one(self) -> bool:
        return True

    def frequencies(self, key: PRNGKeyArray, width: int, count: int) -> tuple[Float[Array, "h F"], Float[Array, ""]]:
        return jnp.zeros((width, count)), jnp.ones(())

    def __call__(self, x: Float[Array, "n d"], z: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return jnp.ones((x.shape[0], z.shape[0]), x.dtype)

    def gram(self, z: Float[Array, "m d"]) -> Float[Array, "m m"]:
        return self(z, z)

    def diag(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return jnp.ones(x.shape[0], x.dtype)

    def separate(self, split: int) -> tuple[Kernel, Kernel]:
        return self, self


def _columns(dims: int | tuple[int, ...]) -> tuple[int, ...]:
    columns = tuple(range(dims)) if isinstance(dims, int) else tuple(int(d) for d in dims)
    if len(set(columns)) != len(columns) or any(d < 0 for d in columns):
        raise ValueError(f"kernel: dims must name each column once, counted from 0, got {columns}")
    return columns


def _log(value: Numbers, shape: tuple[int, ...], name: str) -> Array:
    number = np.asarray(value, dtype=float)
    if not (np.all(number > 0) and np.all(np.isfinite(number))):
        raise ValueError(f"kernel: {name} must be positive and finite, got {value!r}")
    if number.shape not in ((), shape):
        raise ValueError(f"kernel: {name} must be one number, or have the shape {shape}, got {number.shape}")
    return on_device(np.log(np.broadcast_to(number, shape)))


class _Ard(Kernel):
    """What kernels with a number for each column share."""

    dims: tuple[int, ...] = eqx.field(static=True)

    def check_values(self) -> None:
        super().check_values()
        _columns(self.dims)

    def _side(self, split: int) -> "tuple[Kernel, Kernel] | None":
        if all(d < split for d in self.dims):
            return self, One()
        if all(d >= split for d in self.dims):
            return One(), dataclasses.replace(self, dims=tuple(d - split for d in self.dims))
        return None

    def pick(self, x: Float[Array, "n d"]) -> Float[Array, "n k"]:
        """The columns this kernel reads."""
        require_wide("a kernel")
        if any(d >= x.shape[1] for d in self.dims):
            raise ValueError(f"kernel: dims are {self.dims}, but the points have {x.shape[1]} columns")
        if self.dims == tuple(range(x.shape[1])):
            return x
        return x[:, np.asarray(self.dims, dtype=int)]

    def pick_moments(
        self, mean: Float[Array, "n d"], covariance: Covariance, z: Float[Array, "m d"]
    ) -> tuple[Float[Array, "n k"], Float[Array, "n k"] | Float[Array, "n k k"], Float[Array, "m k"]]:
        """The columns this kernel reads, of points that are uncertain."""
        dims = np.asarray(self.dims, int)
        cov = covariance[:, dims] if covariance.ndim == 2 else covariance[:, dims[:, None], dims]
        return self.pick(mean), cov, self.pick(z)


class Stationary(_Ard):
    """v s(r²), a function of the scaled squared distance with s(0) = 1.

    Parameters
    ----------
    dims : tuple of int
        The columns the kernel reads.
    log_variance : array of shape ()
        log v.
    log_lengthscales : array of shape (k,)
        The logarithm of the lengthscale of each column.
    believed : tuple of float, default=()
        The median of each lengthscale a priori; (): nothing is believed of them, nor of the variance.
    free_variance : bool, default=False
        Whether nothing is believed of the variance alone.

    Attributes
    ----------
    variance : array of shape ()
        v.
    lengthscales : array of shape (k,)
        The lengthscales.
    """

    log_variance: Float[Array, ""]
    log_lengthscales: Float[Array, " k"]
    believed: tuple[float, ...] = eqx.field(static=True, default=())
    free_variance: bool = eqx.field(static=True, default=False)

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "believed")
        if len(self.log_lengthscales) != len(self.dims) or len(self.believed) not in (0, len(self.dims)):
            raise ValueError(f"a kernel of {len(self.dims)} columns has {len(self.log_lengthscales)} lengthscales")

    @classmethod
    def create(
        cls: type[K],
        dims: int | tuple[int, ...],
        lengthscales: Numbers = 1.0,
        variance: Numbers = 1.0,
        believed: bool = False,
    ) -> K:
        """A kernel of `dims` columns, with a lengthscale for all or for each.

        Parameters
        ----------
        dims : int or tuple of int
            The columns the kernel reads; a number: that many, from the first.
        lengthscales : float or array of shape (k,), default=1.0
            One for all columns, or one for each.
        variance : float, default=1.0
            v.
        believed : bool, default=False
            Whether lengthscales and variance have a prior: that they are near those given, and near 1.
        """
        columns = _columns(dims)
        scales = _log(lengthscales, (len(columns),), "lengthscales")
        medians = tuple(np.broadcast_to(lengthscales, (len(columns),)).tolist()) if believed else ()
        return cls(columns, _log(variance, (), "variance"), scales, medians)

    @property
    def variance(self) -> Float[Array, ""]:
        return jnp.exp(self.log_variance)

    @property
    def lengthscales(self) -> Float[Array, " k"]:
        return jnp.exp(self.log_lengthscales)

    def with_variance(self: K, variance: float) -> K:
        return dataclasses.replace(self, log_variance=on_device(np.log(variance)), free_variance=True)

    def with_lengthscales(self: K, lengthscales: Numbers) -> K:
        """The same, what is believed of them too, with other lengthscales to begin with."""
        return dataclasses.replace(self, log_lengthscales=_log(lengthscales, (len(self.dims),), "lengthscales"))

    def penalty(self) -> Float[Array, ""]:
        """Minus the log of a prior of the logarithms, two halves of normal ones, where something is believed."""
        if not self.believed:
            return jnp.zeros(())
        lengthscales = surprise(self.log_lengthscales, np.array(self.believed), SPREAD, LONGER)
        if self.free_variance:
            return lengthscales
        return lengthscales + surprise(self.log_variance, 1.0, VARIANCE_SPREAD, LARGER)

    @staticmethod
    @abc.abstractmethod
    def shape(squared: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """s(r²)."""

    @staticmethod
    @abc.abstractmethod
    def spectrum(key: PRNGKeyArray, dim: int, count: int) -> Float[Array, "k F"]:
        """Draws from the spectrum of s, for lengthscales of 1."""

    def frequencies(self, key: PRNGKeyArray, width: int, count: int) -> tuple[Float[Array, "h F"], Float[Array, ""]]:
        drawn = self.spectrum(key, len(self.dims), count) / self.lengthscales[:, None]
        return jnp.zeros((width, count)).at[np.asarray(self.dims, int)].set(drawn), self.variance

    def scaled(self, x: Float[Array, "n d"]) -> Float[Array, "n k"]:
        return self.pick(x) * jnp.exp(-self.log_lengthscales)

    def __call__(self, x: Float[Array, "n d"], z: Float[Array, "m d"]) -> Float[Array, "n m"]:
        x, z = self.scaled(x), self.scaled(z)
        squared = (x * x).sum(1)[:, None] + (z * z).sum(1) - 2 * (x @ z.T)
        return self.variance * self.shape(jnp.maximum(squared, 0))

    def gram(self, z: Float[Array, "m d"]) -> Float[Array, "m m"]:
        z = self.scaled(z)
        return self.variance * self.shape(((z[:, None] - z) ** 2).sum(-1))

    def diag(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return jnp.broadcast_to(self.variance, x.shape[:1])

    def separate(self, split: int) -> tuple[Kernel, Kernel] | None:
        return self._side(split)


class RBF(Stationary):
    """v exp(-r²/2): a product over its columns.

    Parameters
    ----------
    dims : tuple of int
        The columns the kernel reads.
    log_variance : array of shape ()
        log v.
    log_lengthscales : array of shape (k,)
        The logarithm of the lengthscale of each column.
    believed : tuple of float, default=()
        The median of each lengthscale a priori; (): nothing is believed of them, nor of the variance.
    free_variance : bool, default=False
        Whether nothing is believed of the variance alone.

    Examples
    --------
    >>> import gpcde
    >>> import jax.numpy as jnp
    >>> from gpcde.model import RBF
    >>> with gpcde.scope():
    ...     kernel = RBF.create(2, lengthscales=[0.5, 2.0])
    ...     x, z = jnp.zeros((3, 2)), jnp.ones((4, 2))
    ...     kernel(x, z).shape, kernel.diag(x).tolist()
    ((3, 4), [1.0, 1.0, 1.0])
    """

    @staticmethod
    def shape(squared: Float[Array, "*s"]) -> Float[Array, "*s"]:
        return jnp.exp(-0.5 * squared)

    @staticmethod
    def spectrum(key: PRNGKeyArray, dim: int, count: int) -> Float[Array, "k F"]:
        return jax.random.normal(jax.random.split(key)[0], (dim, count))

    def expectations(
        self, mean: Float[Array, "n d"], covariance: Covariance, z: Float[Array, "m d"], weight: Float[Array, " n"]
    ) -> Expectations:
        return rbf_expectations(self.variance, self.lengthscales, *self.pick_moments(mean, covariance, z), weight)

    def extended(self, width: int, dim: int, lengthscale: float) -> Kernel:
        log_scales = np.append(np.asarray(self.log_lengthscales), np.full(dim, np.log(lengthscale)))
        believed = self.believed + (lengthscale,) * dim if self.believed else ()
        return RBF(_columns(width + dim), on_device(self.log_variance), on_device(log_scales), believed)

    def separate(self, split: int) -> tuple[Kernel, Kernel]:
        side = self._side(split)
        if side is not None:
            return side
        left = [i for i, d in enumerate(self.dims) if d < split]
        right = [i for i, d in enumerate(self.dims) if d >= split]
        scales = self.log_lengthscales
        return (
            RBF(tuple(self.dims[i] for i in left), self.log_variance, scales[np.asarray(left, int)]),
            RBF(
                tuple(self.dims[i] - split for i in right),
                jnp.zeros_like(self.log_variance),
                scales[np.asarray(right, int)],
            ),
        )


def _distance(squared: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """√r², with a finite derivative at 0, where the kernel's own is 0 times infinity."""
    return jnp.sqrt(jnp.maximum(squared, 1e-30))


def _student(key: PRNGKeyArray, dim: int, count: int, freedom: int) -> Float[Array, "k F"]:
    """Draws of a Student t: the Matérn spectrum."""
    one, two = jax.random.split(key)
    normal = jax.random.normal(one, (dim, count))
    return normal / jnp.sqrt(jax.random.chisquare(two, freedom, shape=(count,)) / freedom)


class Matern32(Stationary):
    """v (1 + √3 r) exp(-√3 r).

    Parameters
    ----------
    dims : tuple of int
        The columns the kernel reads.
    log_variance : array of shape ()
        log v.
    log_lengthscales : array of shape (k,)
        The logarithm of the lengthscale of each column.
    believed : tuple of float, default=()
        The median of each lengthscale a priori; (): nothing is believed of them, nor of the variance.
    free_variance : bool, default=False
        Whether nothing is believed of the variance alone.
    """

    @staticmethod
    def shape(squared: Float[Array, "*s"]) -> Float[Array, "*s"]:
        r = np.sqrt(3.0) * _distance(squared)
        return (1 + r) * jnp.exp(-r)

    @staticmethod
    def spectrum(key: PRNGKeyArray, dim: int, count: int) -> Float[Array, "k F"]:
        return _student(key, dim, count, 3)


class Matern52(Stationary):
    """v (1 + √5 r + 5 r²/3) exp(-√5 r).

    Parameters
    ----------
    dims : tuple of int
        The columns the kernel reads.
    log_variance : array of shape ()
        log v.
    log_lengthscales : array of shape (k,)
        The logarithm of the lengthscale of each column.
    believed : tuple of float, default=()
        The median of each lengthscale a priori; (): nothing is believed of them, nor of the variance.
    free_variance : bool, default=False
        Whether nothing is believed of the variance alone.
    """

    @staticmethod
    def shape(squared: Float[Array, "*s"]) -> Float[Array, "*s"]:
        r = np.sqrt(5.0) * _distance(squared)
        return (1 + r + r * r / 3) * jnp.exp(-r)

    @staticmethod
    def spectrum(key: PRNGKeyArray, dim: int, count: int) -> Float[Array, "k F"]:
        return _student(key, dim, count, 5)


class Linear(_Ard):
    """sum_d v_d x_d z_d.

    Parameters
    ----------
    dims : tuple of int
        The columns the kernel reads.
    log_variances : array of shape (k,)
        log v_d of each column.
    """

    log_variances: Float[Array, " k"]

    @classmethod
    def create(cls, dims: int | tuple[int, ...], variances: Numbers = 1.0) -> "Linear":
        """A kernel of `dims` columns, variances one for all or one for each.

        Parameters
        ----------
        dims : int or tuple of int
            The columns the kernel reads; a number: that many, from the first.
        variances : float or array of shape (k,), default=1.0
            One for all columns, or one for each.
        """
        columns = _columns(dims)
        return cls(columns, _log(variances, (len(columns),), "variances"))

    @property
    def variances(self) -> Float[Array, " k"]:
        return jnp.exp(self.log_variances)

    def __call__(self, x: Float[Array, "n d"], z: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return (self.pick(x) * self.variances) @ self.pick(z).T

    def gram(self, z: Float[Array, "m d"]) -> Float[Array, "m m"]:
        return self(z, z)

    def diag(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.pick(x) ** 2 @ self.variances

    def separate(self, split: int) -> tuple[Kernel, Kernel] | None:
        return self._side(split)

    def expectations(
        self, mean: Float[Array, "n d"], covariance: Covariance, z: Float[Array, "m d"], weight: Float[Array, " n"]
    ) -> Expectations:
        return linear_expectations(self.variances, *self.pick_moments(mean, covariance, z), weight)


class Polynomial(_Ard):
    """(sum_d v_d x_d z_d + c)^p.

    Parameters
    ----------
    dims : tuple of int
        The columns the kernel reads.
    degree : int
        p, a positive integer.
    log_variances : array of shape (k,)
        log v_d of each column.
    log_offset : array of shape ()
        log c.
    """

    degree: int = eqx.field(static=True)
    log_variances: Float[Array, " k"]
    log_offset: Float[Array, ""]

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "degree")

    @classmethod
    def create(
        cls, dims: int | tuple[int, ...], degree: int = 2, variances: Numbers = 1.0, offset: Numbers = 1.0
    ) -> "Polynomial":
        """A kernel of `dims` columns and a positive integer `degree`.

        Parameters
        ----------
        dims : int or tuple of int
            The columns the kernel reads; a number: that many, from the first.
        degree : int, default=2
            p, a positive integer.
        variances : float or array of shape (k,), default=1.0
            One for all columns, or one for each.
        offset : float, default=1.0
            c.
        """
        if degree != int(degree) or degree < 1:
            raise ValueError(f"kernel: degree must be a positive integer, got {degree}")
        columns = _columns(dims)
        return cls(columns, int(degree), _log(variances, (len(columns),), "variances"), _log(offset, (), "offset"))

    @property
    def variances(self) -> Float[Array, " k"]:
        return jnp.exp(self.log_variances)

    @property
    def offset(self) -> Float[Array, ""]:
        return jnp.exp(self.log_offset)

    def __call__(self, x: Float[Array, "n d"], z: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return ((self.pick(x) * self.variances) @ self.pick(z).T + self.offset) ** self.degree

    def gram(self, z: Float[Array, "m d"]) -> Float[Array, "m m"]:
        return self(z, z)

    def diag(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return (self.pick(x) ** 2 @ self.variances + self.offset) ** self.degree

    def separate(self, split: int) -> tuple[Kernel, Kernel] | None:
        return self._side(split)

    def expectations(
        self, mean: Float[Array, "n d"], covariance: Covariance, z: Float[Array, "m d"], weight: Float[Array, " n"]
    ) -> Expectations:
        moments = self.pick_moments(mean, covariance, z)
        return polynomial_expectations(self.log_variances, self.log_offset, self.degree, *moments, weight)


class Sum(Kernel):
    """k1 + k2.

    Parameters
    ----------
    first, second : Kernel
        The terms, k1 and k2.
    """

    first: Kernel
    second: Kernel

    def penalty(self) -> Float[Array, ""]:
        return self.first.penalty() + self.second.penalty()

    def __call__(self, x: Float[Array, "n d"], z: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return self.first(x, z) + self.second(x, z)

    def gram(self, z: Float[Array, "m d"]) -> Float[Array, "m m"]:
        return self.first.gram(z) + self.second.gram(z)

    def diag(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.first.diag(x) + self.second.diag(x)

    def separate(self, split: int) -> tuple[Kernel, Kernel] | None:
        """Where both terms read one side only, the sum does too."""
        first, second = self.first.separate(split), self.second.separate(split)
        if first is None or second is None:
            return None
        (x1, w1), (x2, w2) = first, second
        if w1.is_one and w2.is_one:
            return Sum(x1, x2), One()
        if x1.is_one and x2.is_one:
            return One(), Sum(w1, w2)
        return None


class Product(Kernel):
    """k1 k2.

    Parameters
    ----------
    first, second : Kernel
        The factors, k1 and k2.
    """

    first: Kernel
    second: Kernel

    def penalty(self) -> Float[Array, ""]:
        return self.first.penalty() + self.second.penalty()

    def with_variance(self, variance: float) -> "Product":
        return Product(self.first.with_variance(variance), self.second)

    def __call__(self, x: Float[Array, "n d"], z: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return self.first(x, z) * self.second(x, z)

    def gram(self, z: Float[Array, "m d"]) -> Float[Array, "m m"]:
        return self.first.gram(z) * self.second.gram(z)

    def diag(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.first.diag(x) * self.second.diag(x)

    def separate(self, split: int) -> tuple[Kernel, Kernel] | None:
        first, second = self.first.separate(split), self.second.separate(split)
        if first is None or second is None:
            return None
        (x1, w1), (x2, w2) = first, second
        return _times(x1, x2), _times(w1, w2)

    def frequencies(self, key: PRNGKeyArray, width: int, count: int) -> tuple[Float[Array, "h F"], Float[Array, ""]]:
        """A product of kernels has the sum of their frequencies."""
        one, first = self.first.frequencies(jax.random.fold_in(key, 0), width, count)
        two, second = self.second.frequencies(jax.random.fold_in(key, 1), width, count)
        return one + two, first * second


def _times(first: Kernel, second: Kernel) -> Kernel:
    if first.is_one:
        return second
    return first if second.is_one else Product(first, second)
