"""Many devices, of one process or of several: each computes its share of a batch's rows, and XLA adds up the sums.

    mesh      one axis, "rows", over the devices
    rows      of a batch: divided among the devices
    all else  the same on every device

Nothing but a training step knows of it: what goes into a compiled chunk of steps is put everywhere, and what comes out
is taken from this process's own first device. Processes are joined by `jax.distributed`, which the user (or `gpcde fit
--processes`) starts. The first of them alone writes files, and has the last word where processes could disagree. Rows
that are streamed each has a stretch of to read, and tells the others (`shared`).
"""

import pickle  # only between the processes of a run, which trust each other as those of any JAX program do
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .blocks import rung
from .precision import scope

T = TypeVar("T")


class Spread(NamedTuple):
    """The devices that share the rows of a batch."""

    mesh: Mesh

    @classmethod
    def over(cls, devices: int | str | None) -> "Spread | None":
        """So many devices, or "all" of all processes; None, for one device, is not spread."""
        if devices is None:
            return None
        with scope():  # before JAX makes its threads (`precision`)
            found = jax.devices()
        if devices != "all":
            if isinstance(devices, bool) or not isinstance(devices, int) or not 1 <= devices <= len(found):
                raise ValueError(f"devices must be 'all', or a number of the {len(found)} there are, got {devices!r}")
            if jax.process_count() > 1 and devices < len(found):
                raise ValueError(f"devices={devices} leaves out some of several processes: give 'all'")
            found = found[:devices]
        return None if len(found) == 1 else cls(Mesh(np.array(found), ("rows",)))

    def by_rows(self, function: Callable[[Any, Any], tuple[Any, Any]], same: Any, rows: Any) -> tuple[Any, Any]:
        """Within a program: what each device makes of what is the same on all, and of its own share of the rows.

        The function answers with what is the same again (`total`), and with rows. Rows of all must divide evenly.
        """
        everywhere, divided = PartitionSpec(), PartitionSpec("rows")
        # its own derivatives are a device's part: unchecked, JAX leaves the summing to the function
        shared = jax.shard_map(
            function, mesh=self.mesh, in_specs=(everywhere, divided), out_specs=(everywhere, divided), check_vma=False
        )
        return shared(same, rows)

    def total(self, tree: Any) -> Any:
        """Within a function by rows: the sums over all devices."""
        return jax.lax.psum(tree, "rows")

    def same(self, tree: Any) -> Any:
        """Within a program: arrays that every device has."""
        return jax.lax.with_sharding_constraint(tree, NamedSharding(self.mesh, PartitionSpec()))

    def everywhere(self, tree: Any) -> Any:
        """Arrays of this process, the same in all, on every device."""
        sharding = NamedSharding(self.mesh, PartitionSpec())

        def put(leaf: Any) -> Any:
            if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
                return leaf
            if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                return jax.random.wrap_key_data(put(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
            array = np.asarray(leaf)
            return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

        return jax.tree.map(put, tree)

    def here(self, tree: Any) -> Any:
        """Arrays that every device has, as this process's own."""
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)


def agreed(tree: Any) -> Any:
    """Numbers of the first process, in all of them."""
    if jax.process_count() == 1:
        return tree
    from jax.experimental.multihost_utils import broadcast_one_to_all

    with together():
        return jax.tree.map(np.asarray, broadcast_one_to_all(tree))


def owned(sizes: Sequence[int], spread: Spread | None) -> range:
    """Which of some parts, of so many rows each, this process reads: a stretch of them, about as many rows as any."""
    if spread is None or jax.process_count() == 1:
        return range(len(sizes))
    ends = np.cumsum(sizes)
    owner = ((ends - 0.5 * np.asarray(sizes)) * jax.process_count() / max(int(ends[-1]), 1)).astype(int)
    return range(*np.searchsorted(owner, [jax.process_index(), jax.process_index() + 1]).tolist())


def shared(find: Callable[[], T], spread: Spread | None) -> list[T]:
    """What each process finds, in all of them; where one finds a ValueError instead, all raise it."""
    if spread is None or jax.process_count() == 1:
        return [find()]
    from jax.experimental.multihost_utils import process_allgather

    found: T | ValueError
    try:
        found = find()
    except ValueError as error:  # the others would wait for this one
        found = error
    mine = np.frombuffer(pickle.dumps(found), np.uint8)
    with together():
        sizes = process_allgather(np.asarray(len(mine), np.int32)).tolist()
        room = np.zeros(rung(max(sizes)), np.uint8)  # few sizes, for each is a program of its own
        room[: len(mine)] = mine
        every = process_allgather(room)
    told = [pickle.loads(row[:size]) for row, size in zip(every, sizes, strict=True)]
    for one in told:
        if isinstance(one, ValueError):
            raise one
    return told


LOST = re.compile("(UNKNOWN|UNAVAILABLE|INTERNAL|ABORTED|CANCELLED|DEADLINE_EXCEEDED|FAILED_PRECONDITION): ")
"""How errors begin that come from talking to other processes."""


@contextmanager
def together() -> Iterator[None]:
    """Round what all processes do at the same time: where one of them is gone, a ConnectionError."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if jax.process_count() == 1 or not LOST.match(str(error)):
            raise
        cause = str(error).splitlines()[0]
        raise ConnectionError(f"another process of this run has ended, or cannot be reached: {cause}") from error


def is_first() -> bool:
    """Whether this is the process that writes files: the only one, or the first."""
    return jax.process_index() == 0
