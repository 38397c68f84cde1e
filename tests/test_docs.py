"""What the documents show runs, and what their tables say is so."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpcde
from gpcde import cli

ROOT = Path(__file__).parent.parent


def blocks(name: str) -> list[str]:
    """The Python code of a document, in its order."""
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", ["docs/guide.md", "docs/design.md"])
def test_the_code_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block after another, as a reader would, in a folder of its own; shortened, and on fewer rows.

    The README's has a test of its own (tests/test_demo.py).
    """
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 1))
    space: dict[str, object] = {"X": X, "y": X[:, 0] + 0.1 * rng.standard_normal(60)}
    code = blocks(name)
    assert code
    for block in code:
        shorter = block.replace("max_steps=1000", "max_steps=50").replace("200", "60")
        exec(compile(shorter, name, "exec"), space)


@pytest.mark.usefixtures("short")
def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the guide's section on them, in its order: here, or where they are joined to others, by a shell.

    Shortened, and on made-up trips.
    """
    section = (ROOT / "docs" / "guide.md").read_text().split("## Command line")[1].split("\n## ")[0]
    commands = "".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL)).splitlines()
    assert len(commands) > 10
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    km, hour = rng.uniform(1, 9, 60), rng.integers(24, size=60)
    minutes = km * (2 + (rng.random(60) < 0.5)) + rng.gamma(2.0, 1.0, 60)
    lines = [f"row {i},{km[i]},{hour[i]},{minutes[i]}\n" for i in range(60)]
    for name, some in (("trips", lines), ("new", lines[:10])):
        Path(f"{name}.csv").write_text("".join(["id,km,hour,minutes\n", *some]))
    shell = f'set -o pipefail; gpcde() {{ "{sys.executable}" -m gpcde "$@"; }}; '
    said = "\n"
    for command in (line.replace("=500", "=50").replace("= 200", "= 20") for line in commands):
        if command.startswith("gpcde ") and "|" not in command:
            assert cli.main(shlex.split(command)[1:]) == 0
            said += capsys.readouterr().out
        else:
            said += subprocess.run(["bash", "-c", shell + command], capture_output=True, text=True, check=True).stdout
    assert (
        Path("answers.csv").read_text().startswith("id,km,hour,minutes,minutes_mean,minutes_q10,minutes_q90,minutes_h")
    )
    assert Path("trips.png").stat().st_size > 5000
    for part in (
        "\nmodel     GPCDE",
        "as far as 10 rows can tell",
        "| linear |",
        "\nrow,draw,minutes\n0,0,",
        "\nid,log_de",
    ):
        assert part in said


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


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {gpcde.__version__}\n" in (ROOT / "CITATION.cff").read_text()
