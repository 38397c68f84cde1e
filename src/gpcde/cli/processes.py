"""fit --processes: one run in several processes, which share the rows of each batch.

    --processes 4       starts four on this machine, looks after them, and ends all when one has died
    --processes auto    this process is one of several that Slurm, Open MPI, Kubernetes or a TPU pod started

They are joined by `jax.distributed`. The first alone writes files, and speaks.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO

import click

from .telling import tell

PLACE = "GPCDE_PROCESS"
"""Says which process of a run this is: its number, how many there are, and where the first listens."""

PATIENCE = 5.0
"""Seconds that a process has to end by itself, and once it is told to."""

HEARTBEAT = 10
"""After so many seconds without a word, a process is taken for dead."""


def check(given: str | None) -> int | None:
    """How many processes are to be started here; None, where this is one of them, or the only one."""
    if given is None or given == "auto" or PLACE in os.environ:
        return None
    if not given.isdecimal() or int(given) < 1:
        raise click.BadParameter(f"a number of processes, or auto, not {given!r}", param_hint="--processes")
    return int(given)


def start(count: int, arguments: Sequence[str]) -> int:
    """Run these words of the command line in so many processes; the exit code."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.ExitStack() as stack:
        said: list[IO[bytes]] = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(count)]
        command, children = [sys.executable, "-m", "gpcde", *arguments], []
        for i in range(count):
            place = {PLACE: f"{i}/{count}/{address}", "NPROC": str(max(1, cores // count))}
            heard = None if i == 0 else said[i]
            env = {**os.environ, **place}
            watched, silent = subprocess.PIPE, subprocess.DEVNULL  # the first tells a child that this process lives
            children.append(subprocess.Popen(command, env=env, stdin=watched, stdout=silent, stderr=heard))
        stack.callback(_end, children)
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _terminated))
        interrupted = False
        while True:
            try:
                codes = [child.poll() for child in children]
                # one that was killed has a negative code, and is why the others ended
                code, bad = min(((code, i) for i, code in enumerate(codes) if code), default=(0, None))
                if bad is not None and not (interrupted and code == 130):
                    return _tell(bad, count, code, said[bad])
                if None not in codes:
                    return 130 if interrupted else 0
                time.sleep(0.1)
            except KeyboardInterrupt:  # they have had it too
                interrupted = True


def _terminated(number: int, frame: object) -> None:
    """The others are ended too."""
    raise SystemExit(128 + number)


def _watch() -> None:
    """End this process when the one that started it is gone, however that ended: nobody would look after it."""
    os.read(0, 1)  # which waits, and comes back at the end of the pipe
    os._exit(1)


def _tell(number: int, count: int, code: int, said: IO[bytes]) -> int:
    said.seek(0)
    lines = [line for line in said.read().decode(errors="replace").splitlines() if line.startswith("gpcde: ")]
    more = f" ({lines[-1].removeprefix('gpcde: ')})" if lines else ""
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return tell(
        f"process {number + 1} of {count} {how}{more}: the others were ended. With --checkpoint, the same command goes "
        "on from there, in any number of processes",
        130 if code == 130 else 1,
    )


def _end(children: list["subprocess.Popen[bytes]"]) -> None:
    """End those that are still there, after a while in which they may save what they have learnt."""
    for end in (lambda child: None, subprocess.Popen.terminate, subprocess.Popen.kill):
        until = time.monotonic() + PATIENCE
        for child in children:
            end(child)
        while time.monotonic() < until and any(child.poll() is None for child in children):
            time.sleep(0.05)


@contextlib.contextmanager
def joined(given: str | None) -> Iterator[str | None]:
    """While this process is one of several: the devices that share its rows, None where it is alone."""
    if given is None:
        yield None
        return
    import jax

    try:
        if PLACE in os.environ:
            threading.Thread(target=_watch, daemon=True).start()
            number, count, address = os.environ[PLACE].split("/")
            jax.distributed.initialize(address, int(count), int(number), heartbeat_timeout_seconds=HEARTBEAT)
        else:
            jax.distributed.initialize(heartbeat_timeout_seconds=HEARTBEAT)
    except (ValueError, RuntimeError) as error:
        raise click.BadParameter(
            f"the processes of this run cannot be joined: {error}", param_hint="--processes"
        ) from error
    from ..inference.training import LostProcess

    try:
        yield "all"
    except (LostProcess, ConnectionError) as error:
        tell(str(error))
        sys.stdout.flush()
        os._exit(1)  # JAX would wait for the lost one at the door
    jax.distributed.shutdown()
