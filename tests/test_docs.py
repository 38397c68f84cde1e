"""What the documents show runs, and what their tables say is so."""

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest

import gpcde
from gpcde import cli
from gpcde.cli.fitting import fit

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
    X = rng.standard_normal((48, 1))
    space: dict[str, object] = {"X": X, "y": X[:, 0] + 0.1 * rng.standard_normal(48)}
    code = blocks(name)
    assert code
    for block in code:
        shorter = block.replace("max_steps=1000", "max_steps=50").replace("200", "48").replace("cv=3", "cv=2")
        exec(compile(shorter, name, "exec"), space)


@pytest.mark.usefixtures("short")
def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the guide's section on them, in its order, shortened, and on made-up trips."""
    section = (ROOT / "docs" / "guide.md").read_text().split("## Command line")[1].split("\n## ")[0]
    commands = "".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL)).splitlines()
    assert len(commands) > 10
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    km, hour = rng.uniform(1, 9, 48), rng.integers(24, size=48)
    minutes = km * (2 + (rng.random(48) < 0.5)) + rng.gamma(2.0, 1.0, 48)
    lines = [f"row {i},{km[i]},{hour[i]},{minutes[i]}\n" for i in range(48)]
    for name, some in (("trips", lines), ("new", lines[:10])):
        Path(f"{name}.csv").write_text("".join(["id,km,hour,minutes\n", *some]))
    said = "\n"
    for command in (line.replace("=500", "=50").replace("= 200", "= 20") for line in commands):
        text = ""
        for stage in command.split(" | "):  # ours run here, the shell's own there
            if stage.startswith("gpcde "):
                monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text.encode())))
                assert cli.main(shlex.split(stage)[1:]) == 0
                text = capsys.readouterr().out
            else:
                text = subprocess.run(
                    ["bash", "-c", stage], input=text, capture_output=True, text=True, check=True
                ).stdout
        said += text
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


class Parts:
    """A frame in parts, as Dask and Spark have them: what they are given goes to a worker, who answers part by part."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def _parts(self) -> list[pd.DataFrame]:
        return [self.frame.iloc[i : i + 20] for i in range(0, len(self.frame), 20)]

    def map_partitions(self, function: Any, meta: Any) -> pd.Series:
        sent = cloudpickle.loads(cloudpickle.dumps(function))
        return pd.concat([sent(part) for part in self._parts()]).astype(meta[1])

    def mapInPandas(self, function: Any, schema: str) -> pd.DataFrame:
        sent = cloudpickle.loads(cloudpickle.dumps(function))
        found = pd.concat(sent(iter(self._parts())))
        columns = dict(column.split() for column in schema.split(", "))
        assert list(columns) == list(found)
        return found.astype({name: {"double": float, "string": str}[kind] for name, kind in columns.items()})


def test_a_frame_in_parts_is_answered_as_the_page_says() -> None:
    """Each expression of the page gives the means of the whole; the second was tried with Spark too."""
    (code,) = re.findall(r"```py\n(.*?mapInPandas.*?)```", (ROOT / "docs" / "scaling.md").read_text(), re.DOTALL)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"km": rng.uniform(1, 9, 50), "town": rng.choice(["north", "south"], 50)})
    frame["minutes"] = 2 * frame["km"] + rng.standard_normal(50)
    model = gpcde.LinearGaussian().fit(frame[["km", "town"]], frame["minutes"])
    space = {"frame": Parts(frame), "spark_frame": Parts(frame), "model": model, "pandas": pd}
    by_dask, function, by_spark = ast.parse(code).body
    answer = eval(compile(ast.Expression(by_dask.value), "", "eval"), space)
    exec(compile(ast.Module([function], []), "", "exec"), space)
    table = eval(compile(ast.Expression(by_spark.value), "", "eval"), space)
    expected = model.predict(frame[["km", "town"]])
    np.testing.assert_array_equal(answer, expected)
    np.testing.assert_array_equal(table["mean"], expected)


def test_the_job_for_kubernetes_has_what_jax_asks_of_one(tmp_path: Path) -> None:
    """Pods find the first by the service's name, and their number by the job's index."""
    yaml = pytest.importorskip("yaml")
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "scaling.md").read_text(), re.DOTALL)
    service, job = yaml.safe_load_all(text)
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["parallelism"] == job["spec"]["completions"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    program, *words = container["command"]
    assert program == "gpcde"
    (tmp_path / "trips").mkdir()
    asked = fit.make_context("gpcde fit", [word.replace("/shared", str(tmp_path)) for word in words[1:]])
    assert (asked.params["processes"], asked.params["target"]) == ("auto", ("minutes",))
