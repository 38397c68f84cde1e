"""What the documents show runs, and what their tables say is so."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from gpcde.estimators import plan

ROOT = Path(__file__).parent.parent


def blocks(name: str) -> list[str]:
    """The Python code of a document, in its order."""
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


@pytest.mark.parametrize("name", ["docs/guide.md", "docs/design.md"])
def test_the_code_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block after another, as a reader would, in a folder of its own; shortened where it would take long.

    The README's has a test of its own (tests/test_demo.py).
    """
    monkeypatch.chdir(tmp_path)
    for steps in ("FEW_STEPS", "MANY_STEPS", "MOST_STEPS"):
        monkeypatch.setattr(plan, steps, 50)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 1))
    space: dict[str, object] = {"X": X, "y": X[:, 0] + 0.1 * rng.standard_normal(60)}
    code = blocks(name)
    assert code
    for block in code:
        exec(compile(block.replace("max_steps=1000", "max_steps=50"), name, "exec"), space)


def test_the_tables_are_what_the_code_chooses() -> None:
    """`python docs/tables.py` would change nothing."""
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    text = (ROOT / "docs" / "guide.md").read_text()
    assert "`n_inducing`" in text
    assert tables.filled(text) == text
