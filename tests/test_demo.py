"""The demo learns both branches, from few rows in few steps: better than a Gaussian at each x, not than the truth."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from gpcde import cli, demo
from gpcde.estimators import plan
from small import N


@pytest.fixture(autouse=True)
def fewer_steps(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the pages of the documentation, whose programs these are, but enough of them to learn from."""
    for name in ("FEW_STEPS", "MANY_STEPS", "MOST_STEPS", "FIRST_STEPS"):
        monkeypatch.setattr(plan, name, 200)


def test_demo_scores_lie_between_gp_regression_and_the_truth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    drawn = demo.sample
    monkeypatch.setattr(demo, "sample", lambda rng, n: drawn(rng, N if n == 400 else n))
    demo.main(tmp_path / "demo.png")
    said = capsys.readouterr().out
    score = {name: float(value) for name, value in re.findall(r"^  (\S.*?) +(-?\d+\.\d+)$", said, re.MULTILINE)}
    assert score["GP regression"] + 0.4 < score["GP-CDE"] < score["the truth"]
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    picture, tries, *commands = said.splitlines()[-5:]
    assert picture == f"The picture: {tmp_path / 'demo.png'}"
    assert tries == "Now try:"
    words = [shlex.split(command)[1:] for command in commands]
    assert [word[0] for word in words] == ["explore", "predict", "compare"]
    for word in words[1:]:  # all but the page in the browser, as far as they are quick
        assert cli.main([*word, "--models", "linear,kde"] if word[0] == "compare" else word) == 0
    answers, best, *_ = capsys.readouterr().out.split("| model")
    assert answers.startswith("x,y,y_mean,y_hdr90_low1,y_hdr90_high1,y_hdr90_low2,y_hdr90_high2")
    assert "linear" in best


def test_the_readme_example_runs_and_finds_two_branches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert example.count("300") == 3
    exec(compile(example.replace("300", str(N)), "README.md", "exec"), {})
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
