"""Looking on while a model trains: a bar in a terminal, with the bound, the noise, the speed and the time left."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..estimators.base import DensityEstimator
from ..estimators.gpcde import GPCDE
from ..inference.training import Record
from ..runtime.extras import extra


@contextmanager
def shown(model: DensityEstimator, quiet: bool) -> Iterator[None]:
    """While a model is fitted inside: a bar on stderr, where that is a terminal and training goes in steps."""
    if not isinstance(model, GPCDE):
        yield
        return
    model.verbose = False  # one bar is enough
    try:
        if quiet or not sys.stderr.isatty():
            yield
            return
        with extra("cli"):
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn
        columns = (SpinnerColumn(), BarColumn(24), TaskProgressColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("looking for a start, compiling", total=None)
            seen: list[Record] = []

            def look(_: GPCDE, record: Record) -> None:
                seen.append(record)
                bar.update(task, completed=record.step, total=record.end, description=describe(seen[0], record))

            model.callbacks = [look]
            yield
    finally:
        model.callbacks = model.verbose = None


def describe(first: Record, record: Record) -> str:
    """Bound, noise, speed and time left; the speed since the first record, which had to wait for compilation."""
    text = f"step {record.step}/{record.end}  bound {record.bound:.4f}  noise {record.noise_variance**0.5:.3f}"
    if record.step > first.step:
        speed = (record.step - first.step) / max(record.seconds - first.seconds, 1e-9)
        left = time.strftime("%H:%M:%S", time.gmtime((record.end - record.step) / speed))
        text += f"  {speed:.0f} steps/s  {left} left"
    return text
