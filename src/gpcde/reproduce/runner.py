"""Running units in worker processes: what is done is kept, what fails is said, what is killed goes on next time.

Each worker has its own share of the cores.
"""

import concurrent.futures
import errno
import importlib
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from ..datasets import DataError
from ..runtime.disk import older
from .lines import Line, append_line, read_lines
from .units import Unit

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What a full disk is called."""


class ReproduceError(RuntimeError):
    """The work could not be finished; the message says why and what to do. Everything finished is kept."""


# in a worker

_worker: dict[str, Any] = {}


def worker_pool(jobs: int, messages: Any) -> concurrent.futures.Executor:
    """That many processes, which send `messages` of how far they are."""
    context = multiprocessing.get_context("spawn")
    return concurrent.futures.ProcessPoolExecutor(
        jobs, context, initializer=_begin, initargs=(context.Value("i", 0), jobs, messages)
    )


def _begin(counter: Any, jobs: int, messages: Any) -> None:
    """A worker's first act: its cores, and who hears of it."""
    with counter.get_lock():
        place = counter.value
        counter.value += 1
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) >= jobs:
            os.sched_setaffinity(0, cores[place % jobs :: jobs])
    connect(messages)
    threading.Thread(target=_orphaned, args=(os.getppid(),), daemon=True).start()


def connect(messages: Any) -> None:
    """Where this worker's messages go."""
    _worker["messages"] = messages


def _orphaned(parent: int) -> None:
    """End this process when the one that started it is gone, however it ended: nobody would write the result down."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _work(unit: Unit, scratch: Path, package: str) -> Line:
    """One unit, in a worker."""
    experiment = importlib.import_module(f"{package}.{unit.experiment}")
    messages, key = _worker["messages"], unit.key
    messages.put((key, 0.0))
    began, busy = time.perf_counter(), time.process_time()
    checkpoint = scratch / f"{key}.safetensors"
    metrics = experiment.work(unit, lambda share: messages.put((key, share)), checkpoint)
    for path in (checkpoint, older(checkpoint)):
        path.unlink(missing_ok=True)
    return unit.line(metrics, time.perf_counter() - began, time.process_time() - busy)


# in the process that started them


def run(
    units: list[Unit], out: Path, jobs: int = 1, quiet: bool = False, package: str = "gpcde.reproduce.experiments"
) -> None:
    """Do the units that have no line yet, and write their lines to `out`; ReproduceError at the end if some failed.

    Parameters
    ----------
    units : list of Unit
        What is to be done.
    out : Path
        The folder for the lines; checkpoints of unfinished units are in a folder of it.
    jobs : int
        How many units at a time.
    quiet : bool
        Whether to show no progress.
    package : str
        Where the experiments' modules are.
    """
    done = {line["key"] for name in {u.experiment for u in units} for line in read_lines(out / f"{name}.jsonl")}
    left = [unit for unit in units if unit.key not in done]
    if not left:
        return
    scratch = out / "unfinished"
    _check_writable(scratch)
    bar = tqdm(
        total=sum(u.cost for u in units),
        initial=sum(u.cost for u in units if u.key in done),
        disable=quiet,
        smoothing=0.0,
        bar_format="{percentage:3.0f}%|{bar:30}| {elapsed} gone, {remaining} left  {desc}",
    )
    others = set(multiprocessing.active_children())
    messages = multiprocessing.get_context("spawn").Queue()
    pool = worker_pool(jobs, messages)
    try:
        waiting = {pool.submit(_work, unit, scratch, package): unit for unit in left}
        failures = _collect(waiting, out, messages, bar)
    except BrokenProcessPool as error:
        raise ReproduceError(
            "a worker process was killed, most likely for want of memory: close other programs, or use --jobs 1. "
            "What was finished is kept; the same command goes on from there"
        ) from error
    except OSError as error:
        raise ReproduceError(_disk(error, out)) from error
    finally:
        bar.close()
        for process in set(multiprocessing.active_children()) - others:  # those still at work would be waited for
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
    if scratch.is_dir() and not any(scratch.iterdir()):
        scratch.rmdir()
    if failures:
        told = "\n".join(f"  {title}: {text}" for title, text in failures.items())
        raise ReproduceError(
            f"{len(failures)} of {len(left)} units could not be done (the others are finished and kept; the same "
            f"command tries these again):\n{told}"
        )


Waiting = dict[concurrent.futures.Future[Line], Unit]


def _collect(waiting: Waiting, out: Path, messages: Any, bar: Any) -> dict[str, str]:
    """Write each line as it comes, and show how far all are; the titles of units that failed, and why they did."""
    left = list(waiting.values())
    failures: dict[str, str] = {}
    shares: dict[str, float] = {}
    costs = {unit.key: unit.cost for unit in left}
    finished, due = bar.n, 0.0
    while waiting:
        ready, _ = concurrent.futures.wait(waiting, timeout=0.5, return_when="FIRST_COMPLETED")
        for future in ready:
            unit = waiting.pop(future)
            shares[unit.key] = 1.0
            failure = _failure(future)
            if failure is None:
                append_line(out / f"{unit.experiment}.jsonl", future.result())
            else:
                failures[unit.title] = failure
        while not messages.empty():
            key, share = messages.get()
            shares[key] = max(share, shares.get(key, 0.0))
        bar.n = finished + sum(costs[key] * share for key, share in shares.items())
        if time.monotonic() >= due:
            due = time.monotonic() + (0.5 if sys.stderr.isatty() else 60)
            bar.set_description_str(", ".join(u.title for u in left if shares.get(u.key, 1.0) < 1)[:70])
    return failures


def _failure(future: concurrent.futures.Future[Line]) -> str | None:
    """Why a unit failed, for a person, or None; what concerns all units is raised."""
    try:
        future.result()
    except BrokenProcessPool:
        raise
    except DataError as error:
        return str(error)
    except MemoryError:
        return OUT_OF_MEMORY
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            raise
        return OUT_OF_MEMORY if "RESOURCE_EXHAUSTED" in str(error) else f"{type(error).__name__}: {error}"
    return None


OUT_OF_MEMORY = "out of memory: close other programs, or use --jobs 1"


def _check_writable(scratch: Path) -> None:
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        probe = scratch / "probe"
        probe.write_bytes(b"\0" * 65_536)
        probe.unlink()
    except OSError as error:
        raise ReproduceError(_disk(error, scratch.parent)) from error


def _disk(error: OSError, out: Path) -> str:
    if error.errno in FULL:
        return f"the disk of {out} is full: make room, and give the same command again; what was finished is kept"
    return f"{out} cannot be written ({error}): give another folder with --out; what was finished is kept"
