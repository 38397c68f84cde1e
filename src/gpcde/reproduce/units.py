"""Units of work: one model on one split of one data set. The result of each is one line (see `lines`)."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from .._version import VERSION
from .lines import Line

Tell = Callable[[float], None]
"""Called with the share of a unit that is done."""


class Unit(NamedTuple):
    """One model on one split of one data set; `cost` is about how many seconds it takes, for the time left."""

    experiment: str
    model: str
    data: str
    split: int
    seed: int
    settings: dict[str, Any]
    cost: float = 1.0

    @property
    def key(self) -> str:
        """What tells this unit from others."""
        text = json.dumps(self._replace(cost=0.0), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        return f"{self.experiment} {self.data} {self.model} {self.split}"

    def line(self, metrics: dict[str, Any], seconds: float, cpu_seconds: float) -> Line:
        """What is kept: `seconds` by the clock, which other work on the machine lengthens, and those of its cores."""
        about = {k: v for k, v in self._asdict().items() if k != "cost"}
        took = {"seconds": round(seconds, 3), "cpu_seconds": round(cpu_seconds, 3)}
        return {"key": self.key, **about, "metrics": metrics, **took, "version": VERSION}
