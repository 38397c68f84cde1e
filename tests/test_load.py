"""Under load: threads, processes that are forked or share the cores, and what does not fit into memory."""

import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import Parallel, delayed

from gpcde import GPCDE, MDN, Design, LinearGaussian, load
from gpcde.runtime import memory
from small import QUICK, fitted, rows

X, Y = rows()


@pytest.mark.parametrize("name", ["free-form", "mdn"])
def test_threads_agree_with_one(name: str) -> None:
    """Eight at a time, on one model, and on more rows than were seen in one."""
    model = fitted(name)[0]
    tables = [rows(40, seed)[0] for seed in range(8)] * 4

    def answer(table: np.ndarray) -> np.ndarray:
        density = model.predict_density(table)
        return np.concatenate([density.log_pdf(np.full(40, 3.0)), density.mean()])

    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(answer, tables))
    for table, found in zip(tables[:8], together, strict=False):
        np.testing.assert_array_equal(found, answer(table))
    for one, other in zip(together[:8], together[24:], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_is_told_rather_than_left_waiting(tmp_path: Path) -> None:
    """JAX has run here: the child has its locks and none of its threads. What needs no JAX answers still."""
    model, linear = fitted("none")[0], LinearGaussian().fit(X, Y)
    model.predict(X)
    out, into = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX and Python warn of forks
        child = os.fork()
    if not child:
        told = "it answered"
        try:
            linear.predict(X)
            linear.save(tmp_path / "linear")
            model.predict(X)
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(into, told.encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    assert told.startswith("RuntimeError: this process was forked from one in which gpcde and JAX had run")
    assert "spawn" in told
    assert load(tmp_path / "linear").score(X, Y) == linear.score(X, Y)


def _threads() -> int:
    """How many threads XLA has for its arithmetic."""
    GPCDE(**{**QUICK, "inference": "none"}).fit(X, Y)
    tasks = os.listdir("/proc/self/task")
    names = [open(f"/proc/self/task/{task}/comm").read() for task in tasks]  # noqa: SIM115
    return sum("XLA" in name for name in names)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="threads cannot be counted here")
def test_fits_in_parallel_processes_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has as many threads as one that is told to have one: XLA may name several."""
    code = "import test_load; print(test_load._threads())"
    one = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, check=True)
    monkeypatch.delenv("NPROC")  # which tests/conftest.py says
    jobs = max(os.cpu_count() or 1, 2)
    assert all(count <= int(one.stdout) for count in Parallel(jobs)(delayed(_threads)() for _ in range(jobs)))


TOO_MUCH: list[tuple[Any, float, str]] = [
    (lambda: GPCDE(n_inducing=10**6), 2.0**10, r"n_inducing=48 needs .* GiB .* 48 × 48 numbers, and there are"),
    (lambda: GPCDE(design=Design(inducing=40)), 2.0**10, r"n_inducing=40 needs"),
    (lambda: GPCDE(batch_size=40, n_inducing=8), 2.0**13, r"batch_size=40 needs .* 40 × 8 numbers"),
    (lambda: GPCDE(output_dim=2), 100.0, r"output_dim=2 needs .* 2 × 3 numbers"),
    (lambda: GPCDE(input_dim=10**9), 2.0**34, r"input_dim=1000000000 needs 60 GiB at the least, .* make it smaller"),
    (lambda: GPCDE(latent_dim=10**9, inference="amortised"), 2.0**34, r"latent_dim=1000000000 needs"),
    (
        lambda: MDN(hidden=(10**6, 10**6)),
        2.0**34,
        r"hidden=\(1000000, 1000000\) .* needs 29,\d+ GiB .* are 16 GiB",
    ),
]


@pytest.mark.parametrize("case", range(len(TOO_MUCH)))
def test_what_cannot_fit_is_refused_before_it_is_asked_for(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with so many bytes."""
    make, size, message = TOO_MUCH[case]
    monkeypatch.setattr(memory, "memory", lambda: size)
    with pytest.raises(MemoryError, match=message):
        make().fit(*rows(outputs=3))


def test_answers_that_cannot_fit_are_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    density = LinearGaussian().fit(X, Y).predict_density(X)
    monkeypatch.setattr(memory, "memory", lambda: 2.0**34)
    with pytest.raises(MemoryError, match=r"size=1000000000 for 48 rows needs 715 GiB .* and there are 16 GiB"):
        density.sample(10**9)
    monkeypatch.setattr(memory, "memory", lambda: 2.0**10)
    with pytest.raises(MemoryError, match=r"a grid of 100 points for 48 rows needs .* 48 × 100 numbers"):
        density.pdf_grid(np.linspace(0, 1, 100))
