"""What cannot fit into memory is refused before it is asked for, with sizes and the setting to change."""

import os
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container says how much memory it has."""


@cache
def memory() -> float:
    """Bytes there are, in this machine or container; infinite where it does not say."""
    found = [float("inf")]
    if hasattr(os, "sysconf") and {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(os.sysconf_names):
        found.append(float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE"))
    for place in LIMITS:
        if Path(place).is_file():
            text = Path(place).read_text().strip()
            found.append(float(text) if text.isdigit() else float("inf"))
    return min(size for size in found if size > 0)


def require_memory(setting: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise where float64 arrays of these shapes are more than there is memory; `setting` is what makes them so."""
    size = 8 * sum(prod(shape) for shape in shapes)
    if size > memory():
        largest = " × ".join(str(count) for count in max(shapes, key=prod))
        raise MemoryError(
            f"{setting} needs {size / 2**30:,.0f} GiB at the least, for arrays of up to {largest} numbers, and there "
            f"are {memory() / 2**30:,.0f} GiB: make it smaller"
        )
