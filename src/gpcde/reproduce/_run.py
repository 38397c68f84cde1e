"""Running units in worker processes: what is done is kept, what fails is said, what is killed goes on next time.

Each worker has its own share of the cores, and JAX's compiled programs are kept on disk, so that the next process
(and the next day's) need not compile them again.
"""

import concurrent.futures
import errno
import importlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from ..datasets import DataError, user_cache
from ._units import Line, Unit, append_line, read_lines

Tell = Callable[[float], None]
"""Called with the share of a unit that is done."""

PROGRAMS = 40
"""Units after which a worker drops its compiled programs: thousands of them exhaust the system's memory maps."""


FULL = (errno.ENOSPC, errno.EDQUOT)
"""What a full disk is called."""


class ReproduceError(RuntimeError):
    """The work could not be finished; the message says why and what to do. Everything finished is kept."""


_worker: dict[str, Any] = {"done": 0}


def _begin(counter: Any, jobs: int, messages: Any, package: str) -> None:
    """A worker's first act: its cores, and where compiled programs are kept."""
    with counter.get_lock():
        place = counter.value
        counter.value += 1
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) >= jobs:
            os.sched_setaffinity(0, cores[place % jobs :: jobs])
    import jax

    jax.config.update("jax_compilation_cache_dir", str(user_cache() / "programs"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    _worker.update(messages=messages, package=package)
    threading.Thread(target=_orphaned, args=(os.getppid(),), daemon=True).start()


def _orphaned(parent: int) -> None:
    """End this process when the one that started it is gone, however it ended: nobody would write the result down."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _work(unit: Unit, scratch: Path) -> Line:
    """One unit, in a worker."""
    import jax

    experiment = importlib.import_module(f"{_worker['package']}.{unit.experiment}")
    _worker["done"] += 1
    if _worker["done"] % PROGRAMS == 0:
        jax.clear_caches()
    messages, key = _worker["messages"], unit.key
    messages.put((key, 0.0))
    began = time.perf_counter()
    checkpoint = scratch / f"{key}.safetensors"
    metrics = experiment.work(unit, lambda share: messages.put((key, share)), checkpoint)
    checkpoint.unlink(missing_ok=True)
    return unit.line(metrics, time.perf_counter() - began)


def run(units: list[Unit], out: Path, jobs: int = 1, quiet: bool = False, package: str = "gpcde.reproduce") -> None:
    """Do the units that have no line yet, and write their lines to `out`; ReproduceError at the end if some failed.

    `package` holds the experiments' modules.
    """
    done = {line["key"] for name in {u.experiment for u in units} for line in read_lines(out / f"{name}.jsonl")}
    left = [unit for unit in units if unit.key not in done]
    if not left:
        return
    scratch = out / "unfinished"
    _writable(scratch)
    bar = tqdm(
        total=sum(u.cost for u in units),
        initial=sum(u.cost for u in units if u.key in done),
        disable=quiet,
        smoothing=0.0,
        bar_format="{percentage:3.0f}%|{bar:30}| {elapsed} gone, {remaining} left  {desc}",
    )
    context, others = multiprocessing.get_context("spawn"), set(multiprocessing.active_children())
    messages = context.Queue()
    pool = concurrent.futures.ProcessPoolExecutor(
        jobs, context, initializer=_begin, initargs=(context.Value("i", 0), jobs, messages, package)
    )
    failures: dict[str, str] = {}
    try:
        _collect(pool, left, out, scratch, messages, bar, failures)
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


def _collect(
    pool: concurrent.futures.Executor,
    left: list[Unit],
    out: Path,
    scratch: Path,
    messages: Any,
    bar: Any,
    failures: dict[str, str],
) -> None:
    waiting = {pool.submit(_work, unit, scratch): unit for unit in left}
    shares: dict[str, float] = {}
    costs = {unit.key: unit.cost for unit in left}
    finished, due = bar.n, 0.0
    while waiting:
        ready, _ = concurrent.futures.wait(waiting, timeout=0.5, return_when="FIRST_COMPLETED")
        for future in ready:
            unit = waiting.pop(future)
            shares[unit.key] = 1.0
            try:
                line = future.result()
            except BrokenProcessPool:
                raise
            except Exception as error:
                if isinstance(error, OSError) and error.errno in FULL:
                    raise
                failures[unit.title] = _said(error)
            else:
                append_line(out / f"{unit.experiment}.jsonl", line)
        while not messages.empty():
            key, share = messages.get()
            shares[key] = max(share, shares.get(key, 0.0))
        bar.n = finished + sum(costs[key] * share for key, share in shares.items())
        if time.monotonic() >= due:
            due = time.monotonic() + (0.5 if sys.stderr.isatty() else 60)
            bar.set_description_str(", ".join(u.title for u in left if shares.get(u.key, 1.0) < 1)[:70])


def _said(error: Exception) -> str:
    """A unit's failure, for a person."""
    if isinstance(error, DataError):
        return str(error)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "out of memory: close other programs, or use --jobs 1"
    return f"{type(error).__name__}: {error}"


def _writable(scratch: Path) -> None:
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
