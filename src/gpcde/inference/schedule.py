"""Step sizes that change with the step, and minibatches that repeat no row before all were seen."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..runtime.precision import on_device, scope
from ..runtime.randomness import entropy


class Geometric(eqx.Module):
    """start (end/start)^(t/steps) until t = steps, then end: a decay, or a ramp.

    `optax.exponential_decay` with numbers that may be traced, so that other step sizes need no other program.

    Parameters
    ----------
    start : array of shape ()
        The value at step 0.
    end : array of shape ()
        The value from `steps` on.
    steps : array of shape ()
        How long it takes.
    """

    start: Float[Array, ""]
    end: Float[Array, ""]
    steps: Float[Array, ""]

    @classmethod
    def create(cls, start: float, end: float | None = None, steps: float = 1.0) -> "Geometric":
        """From `start` to `end` in that many steps; without an end, constant.

        Parameters
        ----------
        start : float
            The value at step 0, positive.
        end : float, default=None
            The value from `steps` on, positive.
        steps : float, default=1.0
            How long it takes.
        """
        last = start if end is None else end
        if not (start > 0 and last > 0 and steps > 0):
            raise ValueError(f"a schedule needs positive numbers, got start={start}, end={end}, steps={steps}")
        with scope():
            return cls(*(on_device(np.float64(value)) for value in (start, last, steps)))

    def __call__(self, step: Int[Array, ""]) -> Float[Array, ""]:
        return self.start * (self.end / self.start) ** jnp.minimum(step / self.steps, 1.0)


class Minibatches:
    """Which rows each step sees: a shuffled pass over the data after another, a function of (key, step) alone.

    The rows left over at the end of a pass (fewer than a batch) sit it out. The cost is that of shuffling once
    a pass: the same for each step, whatever the size of the data.

    Parameters
    ----------
    key : PRNG key
        Of the shuffling.
    n_data : int
        The number of rows.
    size : int
        Rows a step sees.
    """

    def __init__(self, key: PRNGKeyArray, n_data: int, size: int) -> None:
        if not 1 <= size <= n_data:
            raise ValueError(f"the batch size must lie between 1 and the {n_data} rows, got {size}")
        self._entropy = entropy(key)
        self.n_data, self.size = n_data, size
        self._pass, self._order = -1, np.zeros(0, np.int32)

    def __call__(self, step: int, count: int) -> Int[np.ndarray, "t b"]:
        """The rows of `count` steps from `step` on."""
        return np.stack([self._one(step + i) for i in range(count)])

    def _one(self, step: int) -> Int[np.ndarray, " b"]:
        if self.size == self.n_data:
            return np.arange(self.n_data, dtype=np.int32)
        number, place = divmod(step, self.n_data // self.size)
        if number != self._pass:
            rng = np.random.default_rng([*self._entropy, number])
            self._pass, self._order = number, rng.permutation(self.n_data).astype(np.int32)
        return self._order[place * self.size : (place + 1) * self.size]
