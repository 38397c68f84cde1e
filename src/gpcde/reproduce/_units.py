"""Units of work, and the lines their results are kept in.

A unit is one model on one split of one data set. Its result is one line of JSON in `<experiment>.jsonl`, written when
the unit is done and never changed; a unit whose line is there is not done again. Tables and figures are made from the
lines alone, so small pictures are kept in them too, as compressed arrays.
"""

import base64
import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..runtime.files import VERSION

Line = dict[str, Any]


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

    def line(self, metrics: dict[str, Any], seconds: float) -> Line:
        about = {k: v for k, v in self._asdict().items() if k != "cost"}
        return {"key": self.key, **about, "metrics": metrics, "seconds": round(seconds, 3), "version": VERSION}


def read_lines(path: Path) -> list[Line]:
    """The lines of a file; one that was cut off in the middle of being written is taken for not written."""
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def append_line(path: Path, line: Line) -> None:
    """Add a line, and see that it reaches the disk."""
    text = json.dumps(line, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # what came before was cut off
                file.write(b"\n")
        file.write(text.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def picture(values: Any, low: float = 0.0, high: float = 1.0, levels: int = 256) -> dict[str, Any]:
    """An array of numbers between low and high as JSON, each rounded to one of so many levels."""
    array = np.asarray(values, float)
    codes = np.round((np.clip(array, low, high) - low) / (high - low) * (levels - 1)).astype(np.uint8)
    data = base64.b64encode(zlib.compress(codes.tobytes(), 9)).decode()
    return {"shape": list(codes.shape), "low": low, "high": high, "levels": levels, "data": data}


def unpicture(stored: dict[str, Any]) -> np.ndarray:
    """The array again."""
    codes = np.frombuffer(zlib.decompress(base64.b64decode(stored["data"])), np.uint8).reshape(stored["shape"])
    return stored["low"] + codes / (stored["levels"] - 1) * (stored["high"] - stored["low"])
