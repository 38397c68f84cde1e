"""The demo learns both branches: better than a Gaussian at each x, not better than the truth."""

import re
from pathlib import Path

import numpy as np
import pytest

from gpcde import demo


def test_demo_scores_lie_between_gp_regression_and_the_truth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    demo.main(tmp_path / "demo.png")
    lines = [line.rsplit(None, 1) for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    score = {name.strip(): float(value) for name, value in lines}
    assert score["GP regression"] + 0.4 < score["GP-CDE"] < score["the truth"]
    assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_the_readme_example_runs_and_finds_two_branches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    score, *region = capsys.readouterr().out.splitlines()
    # y is ±x: a Gaussian at each x scores -1.3 at best
    assert float(score) > -0.3
    ends = np.array([float(word) for word in " ".join(region).replace("[", " ").replace("]", " ").split()])
    assert ends.min() < -1.2
    assert ends.max() > 1.2
    assert not (np.abs(ends) < 0.5).any()
    assert (tmp_path / "model.gpcde").exists()


def test_true_density_integrates_to_one() -> None:
    y = np.linspace(-6, 6, 4001)
    for x in (-2.0, 0.3, 2.0):
        assert np.trapezoid(demo.true_density(np.full_like(y, x), y), y) == pytest.approx(1, abs=1e-6)
