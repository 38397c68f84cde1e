"""Files and tables from strangers: 400 mutants (`python tests/fuzz.py` makes more), and what hypothesis thinks of."""

import io
import json
import random
import struct
import subprocess
import sys
import time
import tracemalloc
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuzz
import gpcde
from fuzz import File
from gpcde import ConditionalKDE, FileError, LinearGaussian, ParquetRows, Stacked
from gpcde.cli import frames
from gpcde.estimators.base import Rows
from gpcde.estimators.linear import Line
from gpcde.estimators.streaming import look_over
from gpcde.model import make_inputs
from gpcde.runtime.files import read, write
from small import fitted, rows

X, Y = rows()
QUIETLY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.mark.parametrize("count", [200, pytest.param(400, marks=pytest.mark.slow)])
def test_mutants_are_refused_or_answer_and_run_nothing(count: int) -> None:
    """In a process of their own, where no type checker helps."""
    command = [sys.executable, "-W", "error", fuzz.__file__, "--mutants", str(count), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    assert sum(found.values()) == count
    assert sum(often for what, often in found.items() if what.endswith("refused")) > 0.75 * count
    assert found["model answers"] > count // 100
    assert found["checkpoints answers"] > count // 100
    assert found["tables learnt from"] >= count // 200


@QUIETLY
@given(content=st.binary(max_size=300), length=st.integers(0, 2**64 - 1))
def test_no_bytes_are_read_as_a_model(content: bytes, length: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes"
    for start in (b"", struct.pack("<Q", length), struct.pack("<Q", len(content))):
        path.write_bytes(start + content)
        with pytest.raises(FileError):
            gpcde.load(path)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=20,
)


@QUIETLY
@given(value=PLAIN)
def test_any_plain_value_is_read_as_it_was_written(value: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "plain"
    write(path, "kind", value)
    assert read(path) == ("kind", value)


CELLS = st.one_of(
    st.floats(), st.integers(-(10**20), 10**20), st.text(max_size=3), st.none(), st.booleans(), st.just(pd.NA)
)


@QUIETLY
@given(
    data=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=0, max_size=8),
    framed=st.booleans(),
    names=st.lists(st.text(max_size=2), min_size=2, max_size=2),
)
def test_any_table_is_learnt_from_or_refused_with_a_reason(data: Any, framed: bool, names: list[str]) -> None:
    table: Any = [row[:2] for row in data]
    table = pd.DataFrame(table, columns=names) if framed and data else table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = LinearGaussian().fit(table, [row[2] for row in data])
            mean = model.predict(table)
        except (ValueError, TypeError):
            return
    assert np.isfinite(mean).all()


def test_mutants_of_a_parquet_file_are_learnt_from_or_refused_with_a_reason(tmp_path: Path) -> None:
    path, rng = tmp_path / "rows.parquet", random.Random(0)
    table = pa.table({"a": X[:, 0], "town": np.where(X[:, 1] > 1, "x", "y"), "y": Y})
    pq.write_table(table, path, row_group_size=16)
    content, refused = path.read_bytes(), 0
    for _ in range(200):
        path.write_bytes(fuzz._torn(rng, content))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                look_over(ParquetRows(path, "y"), 0, None, None, False)
            except ValueError:  # as a StreamError is
                refused += 1
    assert refused > 100


def spoiled_arrow() -> bytes:
    """Text whose first end lies far outside of what there is."""
    ends, text = pa.py_buffer(np.array([0, 10**8, 3], np.int32)), pa.py_buffer(b"abc")
    towns, file = pa.Array.from_buffers(pa.string(), 2, [None, ends, text]), io.BytesIO()
    table = pa.table({"town": towns, "y": [0.0, 1.0]})
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def spoiled_parquet() -> bytes:
    """Text that is none."""
    ends, file = pa.py_buffer(np.array([0, 1, 2], np.int32)), io.BytesIO()
    towns = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"a\xc0")])
    pq.write_table(pa.table({"town": towns, "y": [0.0, 1.0]}), file)
    return file.getvalue()


def spoiled_npz(content: bytes, deflated: bool) -> bytes:
    """An array of no bytes, or of bytes that cannot be unpacked."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        info = zipfile.ZipInfo("y.npy")
        archive.writestr(info, content)
    packed = bytearray(file.getvalue())
    for mark, place in ((b"PK\3\4", 8), (b"PK\1\2", 10)) if deflated else ():
        packed[packed.index(mark) + place] = zipfile.ZIP_DEFLATED
    return bytes(packed)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.arrow", spoiled_arrow()),
        ("rows.parquet", spoiled_parquet()),
        ("rows.npz", spoiled_npz(b"", deflated=False)),
        ("rows.npz", spoiled_npz(b"\xff" * 8, deflated=True)),
    ],
    ids=["text that ends elsewhere", "text that is none", "an array of nothing", "an array that cannot be unpacked"],
)
def test_a_spoiled_table_is_refused_by_its_name(name: str, content: bytes, tmp_path: Path) -> None:
    """The first of these once ended the process."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name} cannot be read as (arrow|parquet|npz): \S"):
        frames.read(str(tmp_path / name))


def test_text_that_is_none_is_refused_in_a_stream_too(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(spoiled_parquet())
    with pytest.raises(gpcde.StreamError, match=r"row group 0 of .*rows.parquet cannot be read: .*UTF8"):
        next(ParquetRows(tmp_path / "rows.parquet").inputs())


# what is asked of a file before anything is made of it


def linear(tmp_path: Path) -> tuple[Path, File]:
    LinearGaussian().fit(X, Y).save(tmp_path / "model")
    return tmp_path / "model", File(tmp_path / "model")


def test_a_small_file_takes_little_memory_and_time(tmp_path: Path) -> None:
    """3,000 references to one array, of a megabyte; it once took 3 GB."""
    big = np.zeros(2**17)
    write(tmp_path / "file", "kind", {"a": [big]})
    file = File(tmp_path / "file")
    array = file.description["value"]["dict"]["a"][0]
    file.description["value"]["dict"]["a"] = [array] * 3000
    (tmp_path / "file").write_bytes(file.sealed())
    began = time.process_time()
    tracemalloc.start()
    with pytest.raises(FileError, match="missing, or used twice"):
        read(tmp_path / "file")
    assert tracemalloc.get_traced_memory()[1] < 10 * big.nbytes
    tracemalloc.stop()
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("[" * 500 + "]" * 500, "more than 64 parts within one another"),
        ("[" * 10**6, "more than 64 parts within one another|more than 1048576 values"),
        ("[" + "0," * 2**21 + "0]", "more than 1048576 values"),
        ('{"kind": "a", "value": NaN}', "NaN is no number"),
        ('{"kind": "a", "value": ' + "1" * 5000 + "}", "does not fit"),
        ('{"kind": "a", "value": {"float": "1e5"}}', "'1e5' is no number"),
    ],
)
def test_a_description_like_no_other_is_refused(description: str, message: str, tmp_path: Path) -> None:
    path, file = linear(tmp_path)
    path.write_bytes(file.sealed(description))
    with pytest.raises(FileError, match=message):
        gpcde.load(path)


@pytest.mark.parametrize("number", ["²", "9" * 5000, "0", "-1", "1e0", ""])
def test_a_format_that_is_none_is_refused(number: str, tmp_path: Path) -> None:
    path, file = linear(tmp_path)
    file.metadata["gpcde"] = number
    path.write_bytes(file.sealed())
    with pytest.raises(FileError, match="in a newer format"):
        gpcde.load(path)


@pytest.mark.parametrize("key", ["gpcde", "version", "mark"])
def test_the_digest_covers_all_of_the_header(key: str, tmp_path: Path) -> None:
    path, file = linear(tmp_path)
    file.metadata[key] = "2"
    path.write_bytes(file.sealed(digest=file.metadata["digest"]))
    with pytest.raises(FileError, match="altered after it was written"):
        gpcde.load(path)


@pytest.mark.parametrize(
    ("name", "place", "number", "message"),
    [
        ("none", ".learnt.transform_.scale", -1.0, "OutputTransform.scale must be positive"),
        ("none", ".learnt.features_.scale", 0.0, "Columns.scale must be positive"),
        ("none", ".learnt.features_.location", np.nan, "Columns holds NaN or infinity"),
        ("none", ".learnt.state_.posterior.G", np.inf, "Statistics.G holds NaN or infinity"),
        ("none", ".learnt.state_.posterior.G", -1.0, "Statistics.G is no sum of squares"),
        ("none", ".learnt.state_.model.likelihood.log_noise_variance", 1e4, "the logarithm of no number"),
        ("none", ".learnt.state_.adam.mu.0.inducing_points", np.nan, "Adam's moments hold NaN or infinity"),
        ("none", ".learnt.state_.caution", 0.0, "State.caution must be positive"),
        ("mdn", ".learnt.network_.mlp.weights.0", np.nan, "MLP.weights holds NaN or infinity"),
    ],
)
def test_numbers_that_cannot_be_are_refused_part_by_part(
    name: str, place: str, number: float, message: str, tmp_path: Path
) -> None:
    fitted(name)[0].save(tmp_path / "model")
    file = File(tmp_path / "model")
    file.arrays[place] = file.arrays[place].copy()
    file.arrays[place].reshape(-1)[0] = number
    (tmp_path / "model").write_bytes(file.sealed())
    with pytest.raises(FileError, match=message):
        gpcde.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ("adam.count", lambda a: a[None]),
        ("adam.mu.0.inducing_points", lambda a: a.astype(np.float32)),
        ("adam.nu.0.inducing_points", lambda a: a[1:]),
        ("step", lambda a: a.astype(np.int64)),
        ("caution", lambda a: a.astype(np.float32)),
        ("posterior.G", lambda a: a.astype(np.float32)),
    ],
)
def test_what_training_keeps_is_refused_where_a_step_would_make_something_else_of_it(
    place: str, change: Any, tmp_path: Path
) -> None:
    """A fit that goes on from such a checkpoint would fail within JAX."""
    fitted("none")[0].save(tmp_path / "model")
    file = File(tmp_path / "model")
    name = f".learnt.state_.{place}"
    file.arrays[name] = changed = change(file.arrays[name])
    for tree, key in fuzz._places(file.description, []):
        if key == "array" and tree[key] == name:
            tree.update(shape=list(changed.shape), dtype=str(changed.dtype))
    (tmp_path / "model").write_bytes(file.sealed())
    with pytest.raises(FileError, match="or what else training keeps beside it|sums that need 64 bits"):
        gpcde.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("model", "place", "message"),
    [
        (ConditionalKDE(random_state=0), ".learnt.bandwidths_.x", "Bandwidths so small"),
        (Stacked([("linear", LinearGaussian())], cv=2), ".learnt.weights_", "weights do not fit its members"),
    ],
)
def test_numbers_too_small_to_answer_with_are_refused(model: Any, place: str, message: str, tmp_path: Path) -> None:
    model.fit(X, Y).save(tmp_path / "model")
    file = File(tmp_path / "model")
    file.arrays[place] = np.full_like(file.arrays[place], 1e-308)
    (tmp_path / "model").write_bytes(file.sealed())
    with pytest.raises(FileError, match=message):
        gpcde.load(tmp_path / "model")


def test_a_file_does_not_say_whether_an_array_is_one_of_jax(tmp_path: Path) -> None:
    """Files of 0.1.0 did, and NumPy's had answered with an error once they were JAX's."""
    model = ConditionalKDE(random_state=0).fit(X, Y)
    model.save(tmp_path / "model")
    file = File(tmp_path / "model")
    for tree, key in fuzz._places(file.description, []):
        if key == "array":
            tree["jax"] = True
    (tmp_path / "model").write_bytes(file.sealed())
    again = gpcde.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_density(X).log_pdf(Y), model.predict_density(X).log_pdf(Y))


@pytest.mark.parametrize("levels", [1, 10**9, 2**63])
def test_levels_that_no_column_has_are_refused(levels: int) -> None:
    """A line beside a model once made room for as many as its file said."""
    line, x = Line.of(Rows(make_inputs(X), Y[:, None], np.ones(len(Y))), ()), make_inputs(X[:1])
    line.check_fits(x, 1)
    with pytest.raises(ValueError, match="do not fit its coefficients"):
        line._replace(levels=levels).check_fits(x, 1)


def test_what_a_file_says_of_runs_and_paths_is_not_heard(tmp_path: Path) -> None:
    """A model of a stranger whose next `fit` would write over a file of the user's."""
    model, X, y = fitted("none")
    model.save(tmp_path / "model")
    file = File(tmp_path / "model")
    params = file.description["value"]["dict"]["params"]["dict"]
    assert not {"checkpoint", "warm_start", "callbacks", "verbose"} & set(params)
    precious = tmp_path / "precious"
    precious.write_text("mine")
    params.update(checkpoint=str(precious), warm_start=True, verbose=True)
    (tmp_path / "model").write_bytes(file.sealed())
    again = gpcde.load(tmp_path / "model")
    assert (again.checkpoint, again.warm_start, again.verbose) == (None, False, None)
    again.fit(X, y)
    assert precious.read_text() == "mine"
