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
the first `split` columns, or None where the kernel is no such product.
"""

import abc
import dataclasses
from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._inputs import Numbers

K = TypeVar("K", bound="Stationary")


class Kernel(eqx.Module):
    """A positive semi-definite function of two rows."""

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

    def __add__(self, other: "Kernel") -> "Sum":
        return Sum(self, other)

    def __mul__(self, other: "Kernel") -> "Product":
        return Product(self, other)


class One(Kernel):
    """k = 1: the other factor of a kernel that reads one side only."""

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
    return jnp.asarray(np.log(np.broadcast_to(number, shape)))


class _Ard(Kernel):
    """What kernels with a number for each column share."""

    dims: tuple[int, ...] = eqx.field(static=True)

    def _side(self, split: int) -> "tuple[Kernel, Kernel] | None":
        if all(d < split for d in self.dims):
            return self, One()
        if all(d >= split for d in self.dims):
            return One(), dataclasses.replace(self, dims=tuple(d - split for d in self.dims))
        return None

    def pick(self, x: Float[Array, "n d"]) -> Float[Array, "n k"]:
        """The columns this kernel reads."""
        if any(d >= x.shape[1] for d in self.dims):
            raise ValueError(f"kernel: dims are {self.dims}, but the points have {x.shape[1]} columns")
        if self.dims == tuple(range(x.shape[1])):
            return x
        return x[:, np.asarray(self.dims, dtype=int)]


class Stationary(_Ard):
    """v s(r²), a function of the scaled squared distance with s(0) = 1."""

    log_variance: Float[Array, ""]
    log_lengthscales: Float[Array, " k"]

    @classmethod
    def create(cls: type[K], dims: int | tuple[int, ...], lengthscales: Numbers = 1.0, variance: Numbers = 1.0) -> K:
        """A kernel of `dims` columns (a number: the first so many), lengthscales one for all or one for each."""
        columns = _columns(dims)
        return cls(columns, _log(variance, (), "variance"), _log(lengthscales, (len(columns),), "lengthscales"))

    @property
    def variance(self) -> Float[Array, ""]:
        return jnp.exp(self.log_variance)

    @property
    def lengthscales(self) -> Float[Array, " k"]:
        return jnp.exp(self.log_lengthscales)

    @staticmethod
    @abc.abstractmethod
    def shape(squared: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """s(r²)."""

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
    """v exp(-r²/2): a product over its columns."""

    @staticmethod
    def shape(squared: Float[Array, "*s"]) -> Float[Array, "*s"]:
        return jnp.exp(-0.5 * squared)

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


class Matern32(Stationary):
    """v (1 + √3 r) exp(-√3 r)."""

    @staticmethod
    def shape(squared: Float[Array, "*s"]) -> Float[Array, "*s"]:
        r = np.sqrt(3.0) * _distance(squared)
        return (1 + r) * jnp.exp(-r)


class Matern52(Stationary):
    """v (1 + √5 r + 5 r²/3) exp(-√5 r)."""

    @staticmethod
    def shape(squared: Float[Array, "*s"]) -> Float[Array, "*s"]:
        r = np.sqrt(5.0) * _distance(squared)
        return (1 + r + r * r / 3) * jnp.exp(-r)


class Linear(_Ard):
    """sum_d v_d x_d z_d."""

    log_variances: Float[Array, " k"]

    @classmethod
    def create(cls, dims: int | tuple[int, ...], variances: Numbers = 1.0) -> "Linear":
        """A kernel of `dims` columns, variances one for all or one for each."""
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


class Polynomial(_Ard):
    """(sum_d v_d x_d z_d + c)^p."""

    degree: int = eqx.field(static=True)
    log_variances: Float[Array, " k"]
    log_offset: Float[Array, ""]

    @classmethod
    def create(
        cls, dims: int | tuple[int, ...], degree: int = 2, variances: Numbers = 1.0, offset: Numbers = 1.0
    ) -> "Polynomial":
        """A kernel of `dims` columns and a whole `degree` of at least 1."""
        if degree != int(degree) or degree < 1:
            raise ValueError(f"kernel: degree must be a whole number of at least 1, got {degree}")
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


class Sum(Kernel):
    """k1 + k2."""

    first: Kernel
    second: Kernel

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
        if isinstance(w1, One) and isinstance(w2, One):
            return Sum(x1, x2), One()
        if isinstance(x1, One) and isinstance(x2, One):
            return One(), Sum(w1, w2)
        return None


class Product(Kernel):
    """k1 k2."""

    first: Kernel
    second: Kernel

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


def _times(first: Kernel, second: Kernel) -> Kernel:
    if isinstance(first, One):
        return second
    return first if isinstance(second, One) else Product(first, second)
