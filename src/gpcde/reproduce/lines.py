"""Lines of results: one of JSON for each unit, in `<experiment>.jsonl`.

A line is written when its unit is done and never changed; a unit whose line is there is not done again. Tables and
figures are made from the lines alone, so small pictures are kept in them too, as compressed arrays.
"""

import base64
import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

Line = dict[str, Any]


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
    """An array of numbers between low and high as JSON, each rounded to one of that many levels."""
    array = np.asarray(values, float)
    codes = np.round((np.clip(array, low, high) - low) / (high - low) * (levels - 1)).astype(np.uint8)
    data = base64.b64encode(zlib.compress(codes.tobytes(), 9)).decode()
    return {"shape": list(codes.shape), "low": low, "high": high, "levels": levels, "data": data}


def unpicture(stored: dict[str, Any]) -> np.ndarray:
    """The array again."""
    codes = np.frombuffer(zlib.decompress(base64.b64decode(stored["data"])), np.uint8).reshape(stored["shape"])
    return stored["low"] + codes / (stored["levels"] - 1) * (stored["high"] - stored["low"])


def mean_error(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard error; NaN where there are none, or one."""
    if not len(values):
        return np.nan, np.nan
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else np.nan
