"""The names at the top: all there, the same as where they are defined, and nothing heavy before one is asked for."""

import subprocess
import sys
from importlib import import_module

import pytest

import gpcde


def test_every_name_is_that_of_its_module() -> None:
    placed = {name: place for place, names in gpcde.PLACES.items() for name in names}
    assert set(placed) == set(gpcde.__all__) - {"__version__"}
    for name, place in placed.items():
        if name != "Flow":  # an extra
            assert getattr(gpcde, name) is getattr(import_module(f"gpcde.{place}"), name)
    assert set(gpcde.__all__) <= set(dir(gpcde))


def test_folders_need_no_import_of_their_own_and_other_names_are_refused() -> None:
    for name in gpcde.FOLDERS:
        assert getattr(gpcde, name) is import_module(f"gpcde.{name}")
    with pytest.raises(AttributeError, match="module 'gpcde' has no attribute 'Wrong'"):
        _ = gpcde.Wrong


@pytest.mark.parametrize(
    "code",
    [
        "from gpcde.cli import main; assert main(['--help']) == main(['fit', '--help']) == 0",
        "import gpcde; gpcde.__version__; dir(gpcde)",
    ],
)
def test_help_waits_for_nothing_heavy(code: str) -> None:
    heavy = ("jax", "numpy", "scipy", "sklearn", "optax", "pandas", "pyarrow", "matplotlib", "rich")
    code += f"; import sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_file_is_read_whichever_estimator_wrote_it(tmp_path: object) -> None:
    """In a process that asked for `load` alone."""
    gpcde.LinearGaussian().fit([[0.0], [1.0], [2.0]], [0.1, 0.9, 2.1]).save(f"{tmp_path}/model")
    code = f"import gpcde; print(type(gpcde.load({f'{tmp_path}/model'!r})).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "LinearGaussian"
