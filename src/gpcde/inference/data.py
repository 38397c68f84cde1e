"""Where the rows of each step come from: memory, or parts that are read as they are needed.

    data.batches(key, size)(step, count, room)    rows, and which of them each of `count` steps from `step` on takes

Either way they are a function of (key, step) alone, so that training taken up at a step sees what it would have seen.

A pass over a `Stream` takes its parts in random order, several of them together as a pool, and the rows of each pool in
random order. The next pool is read in a thread of its own while the steps of this one are computed, and no more than
three are held. Rows left over at the end of a pass, fewer than a batch, sit it out, as in memory.

Of several processes that share the work, each reads the parts that are its own, and holds their rows alone; those of
the next steps they tell each other. All know the order, which is that of one process, so that the batches are too.
"""

import abc
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from ..model.inputs import AnyArray, Inputs
from ..runtime.blocks import padded, rung
from ..runtime.precision import on_device
from ..runtime.randomness import entropy
from ..runtime.spread import Spread, owned, shared
from .schedule import Minibatches


class StreamError(ValueError):
    """Rows could not be read where they are streamed; the message says which. What was learnt so far is kept."""


class Batches(abc.ABC):
    """The rows of each step."""

    @abc.abstractmethod
    def __call__(self, step: int, count: int, room: int) -> tuple["Batch", Int[np.ndarray, "#t b"]]:
        """Rows, and which of them each step takes: of `count` steps from `step` on, with room for `room` steps."""

    @abc.abstractmethod
    def close(self) -> None:
        """Called when no more steps come."""


@runtime_checkable
class Data(Protocol):
    """What can be trained on."""

    def batches(self, key: PRNGKeyArray, size: int, spread: Spread | None = None) -> Batches:
        """Its rows, in batches of that size (or all of them, where there are fewer), put onto devices."""
        ...


class Batch(NamedTuple):
    """Some rows of the data, which they are, and what each counts.

    Parameters
    ----------
    x : Inputs
        Their inputs.
    y : array of shape (n, D_y)
        Their outputs.
    rows : int array of shape (n,)
        Which rows of the data they are.
    weight : array of shape (n,)
        What each counts.
    """

    x: Inputs
    y: Float[AnyArray, "n D"]
    rows: Int[AnyArray, " n"]
    weight: Float[AnyArray, " n"]

    def take(self, index: Int[AnyArray, " b"] | slice) -> "Batch":
        """Some of these rows; `rows` says which they are of all."""
        return Batch(self.x.take(index), self.y[index], self.rows[index], self.weight[index])

    def padded(self, size: int) -> "Batch":
        """With more rows, that many in all: they count nothing, and are none of the data's."""
        n, more = len(self.y), padded(self, size)
        new = np.arange(size) >= n
        return more._replace(rows=np.where(new, n, more.rows).astype(np.int32), weight=np.where(new, 0.0, more.weight))

    def batches(self, key: PRNGKeyArray, size: int, spread: Spread | None = None) -> Batches:
        """These rows in batches, held on devices."""
        return Resident(key, self, size, spread)


def whole(x: Inputs, y: Float[AnyArray, "n D"], weight: Float[AnyArray, " n"] | None = None) -> Batch:
    """All rows as one batch, each of weight 1 unless told.

    Parameters
    ----------
    x : Inputs
        The inputs.
    y : array of shape (n, D_y)
        The outputs.
    weight : array of shape (n,), default=None
        What each row counts.

    Returns
    -------
    Batch
        All rows.
    """
    if y.ndim != 2 or y.shape[0] != x.n_rows:
        raise ValueError(f"y must be a matrix with a row for each of the {x.n_rows} rows of x, got shape {y.shape}")
    weight = np.ones(len(y)) if weight is None else weight
    return Batch(x, y, np.arange(len(y), dtype=np.int32), weight)


class Resident(Batches):
    """Rows in memory, with more rows of no weight, so that one program serves many numbers of rows."""

    def __init__(self, key: PRNGKeyArray, data: Batch, size: int, spread: Spread | None) -> None:
        n = data.y.shape[0]
        self._index = Minibatches(key, n, min(size, n))
        self._data = _put(data.padded(rung(n)), spread)
        self._all = np.arange(rung(n), dtype=np.int32)[None] if size >= n else None

    def __call__(self, step: int, count: int, room: int) -> tuple[Batch, Int[np.ndarray, "#t b"]]:
        if self._all is not None:
            return self._data, self._all
        return self._data, np.pad(self._index(step, count), [(0, room - count), (0, 0)])

    def close(self) -> None:
        """Nothing is left open."""


class Stream(NamedTuple):
    """Rows in parts of known sizes, each of which can be read by its number; `pool` rows or more are shuffled together.

    Parameters
    ----------
    sizes : tuple of int
        The number of rows of each part.
    read : callable
        From the number of a part to its rows, a `Batch`. It is called in another thread.
    pool : int, default=262144
        Parts, two at least, are taken together until they have that many rows.
    """

    sizes: tuple[int, ...]
    read: Callable[[int], Batch]
    pool: int = 2**18

    def batches(self, key: PRNGKeyArray, size: int, spread: Spread | None = None) -> Batches:
        """These rows in batches; where a batch is all of them, they are held."""
        if size < sum(self.sizes):
            return Streamed(key, self, size, spread)
        numbers = [number for number in owned(self.sizes, spread) if self.sizes[number]]
        parts = [part for some in shared(lambda: [self.read(number) for number in numbers], spread) for part in some]
        joined = jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)
        return whole(joined.x, joined.y, joined.weight).batches(key, size, spread)


class Pass(NamedTuple):
    """One pass over a stream: the parts of each pool, and the place of its first row, and of the end."""

    pools: list[list[int]]
    places: list[int]


class Pool(NamedTuple):
    """Rows of a pool that this process has read: their places in it, in order, and the rows, if there are any."""

    places: Int[np.ndarray, " n"]
    rows: Batch | None

    def between(self, low: int, high: int, at: int) -> "Pool":
        """Those from one place to another, the first of which is to be `at`."""
        begin, end = np.searchsorted(self.places, [low, high]).tolist()
        rows = None if self.rows is None or begin == end else self.rows.take(slice(begin, end))
        return Pool(self.places[begin:end] - low + at, rows)


class Streamed(Batches):
    """The rows of a stream, read ahead by one pool."""

    def __init__(self, key: PRNGKeyArray, stream: Stream, size: int, spread: Spread | None) -> None:
        self._entropy, self._stream, self._size, self._spread = entropy(key), stream, size, spread
        self._own = owned(stream.sizes, spread)
        self._each = sum(stream.sizes) // size
        self._reader = ThreadPoolExecutor(1, "gpcde-rows")
        self._passes: dict[int, Pass] = {}
        self._pools: dict[tuple[int, int], Future[Pool]] = {}

    def close(self) -> None:
        self._reader.shutdown(cancel_futures=True)

    def __call__(self, step: int, count: int, room: int) -> tuple[Batch, Int[np.ndarray, "#t b"]]:
        self._drop(step // self._each)
        found = shared(lambda: self._rows(step, step + count), self._spread)
        parts = [(part.places, part.rows) for some in found for part in some if part.rows is not None]
        joined = _blank(parts[0][1], count * self._size)
        for places, rows in parts:
            _fill(joined, places, rows)
        total = room * self._size
        index = np.arange(total, dtype=np.int32)
        return _put(joined.padded(total)._replace(rows=index), self._spread), index.reshape(room, self._size)

    def _rows(self, step: int, end: int) -> list[Pool]:
        """Those of these steps that this process has, at their places in all."""
        parts: list[Pool] = []
        first = step
        while step < end:
            number, place = divmod(step, self._each)
            steps = min(end - step, self._each - place)
            at = (step - first) * self._size
            parts += self._of_pass(number, place * self._size, (place + steps) * self._size, at)
            step += steps
        return parts

    def _of_pass(self, number: int, begin: int, end: int, at: int) -> list[Pool]:
        """The rows from `begin`, which is to be `at`, to `end` of a pass, from one pool or several."""
        parts, places = [], self._pass(number).places
        for pool in range(len(places) - 1):
            low, high = max(begin, places[pool]), min(end, places[pool + 1])
            if low < high:
                for old in [key for key in self._pools if key < (number, pool)]:
                    self._pools.pop(old).cancel()
                rows = self._pool(number, pool)
                self._pool(*((number, pool + 1) if pool + 2 < len(places) else (number + 1, 0)))  # read ahead
                parts.append(rows.result().between(low - places[pool], high - places[pool], at + low - begin))
        return parts

    def _drop(self, number: int) -> None:
        """Forget passes that are over."""
        self._passes = {known: plan for known, plan in self._passes.items() if known >= number}

    def _pass(self, number: int) -> Pass:
        if number not in self._passes:
            pools: list[list[int]] = []
            places = [0]
            for part in np.random.default_rng([*self._entropy, number]).permutation(len(self._stream.sizes)).tolist():
                if not pools or (len(pools[-1]) > 1 and places[-1] - places[-2] >= self._stream.pool):
                    pools.append([])
                    places.append(places[-1])
                pools[-1].append(part)
                places[-1] += self._stream.sizes[part]
            self._passes[number] = Pass(pools, places)
        return self._passes[number]

    def _pool(self, number: int, pool: int) -> Future[Pool]:
        """The rows of a pool, to come."""
        if (number, pool) not in self._pools:
            parts = self._pass(number).pools[pool]
            self._pools[number, pool] = self._reader.submit(self._read, [number, pool + 1], parts)
        return self._pools[number, pool]

    def _read(self, place: list[int], parts: list[int]) -> Pool:
        """The rows of these parts in random order, each part put where it belongs as it comes."""
        ends = np.cumsum([0, *(self._stream.sizes[part] for part in parts)]).tolist()
        order = np.random.default_rng([*self._entropy, *place]).permutation(ends[-1])
        own = [(part, order[ends[i] : ends[i + 1]]) for i, part in enumerate(parts) if part in self._own]
        mine = np.zeros(len(order), bool)
        for _, places in own:
            mine[places] = True
        rank, pool = np.cumsum(mine) - 1, None
        for part, places in own:
            if len(places):
                rows = self._stream.read(part)
                pool = _blank(rows, int(mine.sum())) if pool is None else pool
                _fill(pool, rank[places], rows)
        return Pool(np.flatnonzero(mine), pool)


def _put(data: Batch, spread: Spread | None) -> Batch:
    """Onto the device, or all that share the work."""
    return on_device(data) if spread is None else spread.everywhere(data)


def _blank(rows: Batch, count: int) -> Batch:
    """Room for so many rows like these."""
    return jax.tree.map(lambda a: np.empty((count, *a.shape[1:]), a.dtype), rows)


def _fill(room: Batch, places: Int[np.ndarray, " n"], rows: Batch) -> None:
    """Put rows where they belong."""
    jax.tree.map(lambda to, a: to.__setitem__(places, a), room, rows)
