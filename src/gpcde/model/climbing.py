"""Climbing: some steps of Adam up a function of a tree of arrays, inside a compiled function."""

from collections.abc import Callable
from typing import TypeVar

import jax
import optax
from jaxtyping import Array, Float

T = TypeVar("T")


def climb(
    objective: Callable[[T, Array], Float[Array, ""]],
    start: T,
    steps: int | Array,
    rate: float | Callable[[Array], Float[Array, ""]],
) -> T:
    """Where that many steps lead; `objective(parameters, step)` may draw anew at each step, the rate may change."""
    adam = optax.scale_by_adam()

    def body(step: Array, carry: tuple[T, optax.OptState]) -> tuple[T, optax.OptState]:
        parameters, state = carry
        updates, state = adam.update(jax.grad(objective)(parameters, step), state)
        size = rate(step) if callable(rate) else rate
        return jax.tree.map(lambda p, u: p + size * u, parameters, updates), state

    return jax.lax.fori_loop(0, steps, body, (start, adam.init(start)))[0]
