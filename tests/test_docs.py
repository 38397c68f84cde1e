"""What the documents show runs, and what their tables say is so."""

import re
from pathlib import Path

import numpy as np
import pytest

import gpcde

ROOT = Path(__file__).parent.parent


def blocks(name: str) -> list[str]:
    """The Python code of a document, in its order."""
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


@pytest.mark.parametrize("name", ["README.md", "docs/guide.md", "docs/design.md"])
def test_the_code_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block after another, as a reader would, in a folder of its own; shortened where it would take long."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpcde.estimators.plan.STEPS", dict.fromkeys(gpcde.estimators.plan.STEPS, 50))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 1))
    space: dict[str, object] = {"X": X, "y": X[:, 0] + 0.1 * rng.standard_normal(60)}
    code = blocks(name)
    assert code
    for block in code:
        exec(compile(block, name, "exec"), space)
