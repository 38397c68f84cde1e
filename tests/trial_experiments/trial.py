"""An experiment that does what its model's name says."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from gpcde.datasets import DataError
from gpcde.reproduce.units import Tell, Unit


def work(unit: Unit, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    tell(0.5)
    if unit.model == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if unit.model == "greedy":
        raise MemoryError
    if unit.model == "absent":
        raise DataError("there is no such data set: get it from its owner")
    if unit.model == "full":
        raise OSError(28, "No space left on device")
    if unit.model == "wrong":
        raise ZeroDivisionError("division by zero")
    if unit.model == "slow" and not checkpoint.exists():  # the second time it has not far to go
        checkpoint.write_text(str(os.getpid()))
        time.sleep(60)
    return {"answer": unit.split, "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0}
