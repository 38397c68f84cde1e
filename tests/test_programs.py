"""Compiled programs: kept in memory and on disk, and never the wrong one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gpcde.model import NoLatents
from gpcde.runtime import compilation, programs
from gpcde.runtime.compilation import compiled
from gpcde.runtime.programs import SWITCH

RUNS: list[str] = []


def _twice(a: np.ndarray) -> dict[str, Any]:
    RUNS.append("traced")
    return {"double": 2 * a, "root": jnp.linalg.cholesky(jnp.eye(3) * (1 + jnp.sum(a) ** 2))}


_twice.__module__ = "gpcde.tests"  # as if it were of the package, whose programs are kept
twice = compiled(_twice)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path / "programs"
    monkeypatch.setenv(SWITCH, str(place))
    programs._folder.cache_clear()
    compilation.drop_programs()
    RUNS.clear()
    yield place
    programs._folder.cache_clear()
    compilation.drop_programs()


def answer(number: float = 1.0, size: int = 2) -> list[float]:
    """What the program says, from memory or from disk."""
    result = twice(np.full(size, number))
    np.testing.assert_allclose(result["root"], np.eye(3) * np.sqrt(1 + (size * number) ** 2), rtol=1e-12)
    return [float(value) for value in result["double"]]


def test_a_program_is_traced_once_and_comes_from_disk_again(folder: Path) -> None:
    assert answer(1.0) == [2, 2]
    assert answer(3.0) == [6, 6]
    assert RUNS == ["traced"]
    assert len(list(folder.iterdir())) == 1
    compilation.drop_programs()
    assert answer(2.0) == [4, 4]
    assert RUNS == ["traced"]  # nothing was traced, nor compiled
    assert answer(1.0, size=3) == [2, 2, 2]
    assert RUNS == ["traced", "traced"]
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("harm", ["empty", "torn", "altered", "foreign"])
def test_a_spoiled_entry_is_compiled_anew(folder: Path, harm: str) -> None:
    answer()
    (file,) = folder.iterdir()
    content = file.read_bytes()
    spoiled = {
        "empty": b"",
        "torn": content[: len(content) // 2],
        "altered": content[:-1] + bytes([content[-1] ^ 1]),
        "foreign": b"something else altogether" * 9,
    }
    file.write_bytes(spoiled[harm])
    compilation.drop_programs()
    assert answer() == [2, 2]
    assert RUNS == ["traced", "traced"]
    compilation.drop_programs()
    assert answer() == [2, 2]  # it was written again
    assert RUNS == ["traced", "traced"]


def test_it_can_be_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    assert answer() == [2, 2]
    assert not folder.exists()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the system has no such permissions")
def test_a_folder_that_others_may_write_to_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    assert answer() == [2, 2]
    assert not list(folder.iterdir())


class Foreign(NoLatents):
    """A part of a user's own, whose text may change while its name stays."""


def test_programs_with_parts_of_a_users_own_are_not_kept(folder: Path) -> None:
    def later(part: NoLatents, a: np.ndarray) -> np.ndarray:
        return a + 1

    compiled(later)(NoLatents(), np.zeros(2))
    assert not list(folder.iterdir())  # nor those of functions
    later.__module__ = "gpcde.tests"
    compilation.drop_programs()
    compiled(later)(NoLatents(), np.zeros(2))
    assert len(list(folder.iterdir())) == 1
    compiled(later)(Foreign(), np.zeros(2))
    assert len(list(folder.iterdir())) == 1


def test_functions_of_one_name_are_told_apart(folder: Path) -> None:
    """As those that differentiate another are."""

    def total(a: np.ndarray, b: np.ndarray) -> Any:
        return jnp.sum(a * b**2)

    a, b = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    total.__module__ = "gpcde.tests"
    np.testing.assert_allclose(compiled(jax.grad(total, 0))(a, b), b**2)
    np.testing.assert_allclose(compiled(jax.grad(total, 1))(a, b), 2 * a * b)
    assert not list(folder.iterdir())


def test_what_was_not_used_for_longest_makes_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(size=2)
    (first,) = folder.iterdir()
    monkeypatch.setattr(programs, "MOST_BYTES", int(2.5 * first.stat().st_size))
    os.utime(first, (1, 1))
    for size in (3, 4, 5):
        answer(size=size)
    assert first not in set(folder.iterdir())
    assert sum(file.stat().st_size for file in folder.iterdir()) <= programs.MOST_BYTES


def test_memory_holds_a_bounded_number(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "MOST_PROGRAMS", 3)
    for size in range(1, 7):
        answer(size=size)
    assert len(compilation._programs) == 3


SCRIPT = """
import jax, numpy as np
import gpcde
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, seconds, **more: compiled.append(more.get("fun_name")) if "backend_compile" in name else None
)
X = np.linspace(-1, 1, 20)[:, None]
model = gpcde.GPCDE(max_steps=5, random_state=0).fit(X, np.sin(3 * X[:, 0]))
print(model.score(X, np.sin(3 * X[:, 0])).hex(), len(compiled))
"""


def test_a_second_process_compiles_nothing_and_answers_the_same(folder: Path) -> None:
    def run() -> list[str]:
        return subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=300
        ).stdout.split()

    (first, compiled_then), (second, compiled_now) = run(), run()
    assert first == second
    assert int(compiled_then) > 0
    assert int(compiled_now) == 0


@pytest.mark.slow
def test_what_jax_read_from_a_cache_of_its_own_is_not_written_again(folder: Path, tmp_path: Path) -> None:
    """It would be without its functions: a third process, which reads what the second wrote, could not run it."""
    env = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    answers = []
    for place in ("one", "two", "two"):
        own = {**env, SWITCH: str(tmp_path / place)}
        done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=own)
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout.split()[0])
    assert len(set(answers)) == 1
