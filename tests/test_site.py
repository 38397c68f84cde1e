"""The documentation: it builds without a warning, its pages' code runs, and so do the gallery's examples."""

import importlib.util
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import pytest

import gpcde

DOCS = Path(__file__).parent.parent / "docs"
MISSING = [name for name in ("sphinx", "pydata_sphinx_theme", "myst_parser", "numpydoc") if find_spec(name) is None]


BUILD = "import gc, sys; gc.disable(); from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"
"""As `python -m sphinx`, but not looking for garbage: a sixth of its time, for a hundred megabytes."""


@pytest.mark.slow  # as `make docs` does
@pytest.mark.skipif(bool(MISSING), reason=f"the documentation needs {MISSING}: pip install 'gpcde[docs]'")
def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    """Every page is in a table of contents, every link leads somewhere, every public name is in the reference."""
    source = str(Path(gpcde.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, "-q", "-W", "--keep-going", "-d", tmp_path / "trees", DOCS, tmp_path / "html"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.returncode == 0, done.stderr
    pages = "".join(path.read_text() for path in (tmp_path / "html" / "api").glob("*.html"))
    for package in (gpcde, gpcde.model, gpcde.inference, gpcde.plots, gpcde.prediction):
        for name in set(package.__all__) - {"__version__", "plot_coverage", "plot_pit"}:
            assert re.search(rf'id="gpcde\.[\w.]*\b{name}"', pages), (
                f"{package.__name__}.{name} is not in the reference"
            )


@pytest.mark.slow  # that of the README, the guide and the notes on design runs in every test (test_demo, test_docs)
@pytest.mark.usefixtures("short")
def test_the_code_of_the_pages_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One page after another, in one session, shortened, and on fewer rows."""
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    space: dict[str, Any] = {}
    for name in ("start", "diagnostics", "scaling", "extending"):
        blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{name}.md").read_text(), re.DOTALL)
        assert blocks
        for block in blocks:
            exec(compile(block.replace("000", "00").replace("200", "48"), name, "exec"), space)
    import matplotlib.pyplot as plt

    plt.close("all")


def gallery() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run", DOCS / "gallery" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLES = gallery().EXAMPLES


@pytest.mark.parametrize(
    "name", [name if name == "geyser" else pytest.param(name, marks=pytest.mark.slow) for name in EXAMPLES]
)
@pytest.mark.usefixtures("short")
@pytest.mark.filterwarnings("ignore::gpcde.DataWarning")
def test_an_example_runs_without_its_data(name: str, tmp_path: Path) -> None:
    """Shortened, and on made-up data; a picture that is there is not replaced by one of these."""
    mpl.use("agg")
    real = gallery().run(name, tmp_path, offline=True)
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert real == (name not in ("geyser", "motorcycle", "traffic", "taxi"))


def test_every_example_has_its_page_and_picture() -> None:
    for name in set(EXAMPLES) - {"readme"}:
        assert f"{{literalinclude}} {name}.py" in (DOCS / "gallery" / f"{name}.md").read_text()
    for name in EXAMPLES:
        assert (DOCS / "images" / f"{name}.png").stat().st_size > 10_000
