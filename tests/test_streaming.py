"""Rows that are streamed: each once a pass, the units and the model of the same rows in memory, and nothing lost."""

import json
import shutil
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from gpcde import GP, GPCDE, MDN, DataWarning, FitWarning, LinearGaussian, ParquetRows, StreamError, load
from gpcde.cli import main
from gpcde.density.transforms import Moments
from gpcde.estimators import streaming
from gpcde.estimators.parquet import Portion
from gpcde.estimators.streaming import Sample, learn
from gpcde.estimators.tables import Table
from gpcde.inference import Record
from gpcde.inference.data import Batch, Stream, whole
from gpcde.model import make_inputs
from small import QUICK, assert_same_model, frame, rows

X, Y = rows()
BATCHES: dict[str, Any] = {**QUICK, "inference": "none", "batch_size": 16, "max_steps": 200}


def table(n: int = len(Y), seed: int = 0) -> pa.Table:
    X, y = rows(n, seed)
    return pa.table({"a": X[:, 0], "b": X[:, 1], "y": y})


def written(folder: Path, data: pa.Table, files: int = 1, size: int = 1000) -> Path:
    """A folder of so many files, with row groups of at most that size."""
    folder.mkdir(exist_ok=True)
    each = -(-len(data) // files)
    for i in range(files):
        pq.write_table(data.slice(i * each, each), folder / f"part{i}.parquet", row_group_size=size)
    return folder


# passes


def numbered(sizes: tuple[int, ...], seen: list[int] | None = None) -> Callable[[int], Batch]:
    """Reads parts whose rows are numbered through."""
    ends = np.cumsum(sizes)

    def read(part: int) -> Batch:
        if seen is not None:
            seen.append(part)
        y = np.arange(ends[part] - sizes[part], ends[part], dtype=float)[:, None]
        return whole(make_inputs(y), y)

    return read


def taken(stream: Stream, step: int, count: int, size: int = 4, key: int = 0) -> np.ndarray:
    batches = stream.batches(jax.random.key(key), size)
    data, index = batches(step, count, count)
    batches.close()
    return np.asarray(data.y)[index, 0].astype(int)


@pytest.mark.parametrize("pool", [1, 8, 100])
def test_each_row_comes_once_a_pass(pool: int) -> None:
    sizes = (5, 7, 0, 3, 9)
    stream = Stream(sizes, numbered(sizes), pool)
    passes = [taken(stream, number * 6, 6).ravel() for number in range(3)]
    for got in passes:
        np.testing.assert_array_equal(np.sort(got), np.arange(24))
    assert not np.array_equal(passes[0], passes[1])
    assert not np.array_equal(passes[0], taken(stream, 0, 6, key=1).ravel())


def test_rows_left_over_sit_out_one_pass_not_all() -> None:
    sizes = (5, 7, 3, 8)
    stream = Stream(sizes, numbered(sizes), 1)
    idle = [set(range(23)) - set(taken(stream, number * 5, 5).ravel().tolist()) for number in range(20)]
    assert all(len(rows) == 3 for rows in idle)
    assert set.intersection(*idle) == set()


def test_rows_depend_on_key_and_step_alone() -> None:
    """Not on what was asked before, nor in which chunks; also where a chunk has more than a pass."""
    sizes = (5, 7, 3, 8)
    stream = Stream(sizes, numbered(sizes), 1)
    expected = taken(stream, 0, 14)
    batches = stream.batches(jax.random.key(0), 4)
    for step in (13, 3, 4, 12, 0, 9):
        data, index = batches(step, 1, 3)
        assert index.shape == (3, 4)
        np.testing.assert_array_equal(np.asarray(data.y)[index[0], 0], expected[step])
        np.testing.assert_array_equal(np.asarray(data.weight)[index[0]], 1)
    batches.close()


def test_few_parts_are_held_and_each_is_read_once_a_pass() -> None:
    """The pool at hand, and the one read ahead, before anyone asks for its rows."""
    sizes = (4,) * 20
    seen: list[int] = []
    batches = Stream(sizes, numbered(sizes, seen), 1).batches(jax.random.key(0), 4)
    batches(0, 1, 1)
    until = time.monotonic() + 10
    while len(seen) < 4 and time.monotonic() < until:
        time.sleep(0.01)
    assert len(seen) == 4
    for step in range(20):
        batches(step, 1, 1)
        assert len(seen) <= step + 5
        assert len(batches._pools) <= 2  # type: ignore[attr-defined]
    assert sorted(seen[:20]) == list(range(20))
    batches.close()


def test_rows_of_several_parts_are_mixed() -> None:
    sizes = (50,) * 6
    first = taken(Stream(sizes, numbered(sizes), 100), 0, 1, size=32)
    assert len(set((first // 50).ravel().tolist())) == 2


def test_a_part_that_cannot_be_read_is_told_when_its_rows_are_due() -> None:
    sizes = (4,) * 6

    def read(part: int) -> Batch:
        if part == 3:
            raise StreamError("part 3 is gone")
        return numbered(sizes)(part)

    batches = Stream(sizes, read, 1).batches(jax.random.key(0), 4)
    order = np.random.default_rng([0, 0, 0]).permutation(6).tolist()
    due = order.index(3) // 2 * 2
    for step in range(due):
        batches(step, 1, 1)
    with pytest.raises(StreamError, match="part 3 is gone"):
        batches(due, 1, 1)
    batches.close()


# units


@pytest.mark.parametrize("size", [1.0, 1e-300, 1e300])
def test_moments_of_parts_join_to_those_of_all(size: float) -> None:
    rng = np.random.default_rng(0)
    a = size * (rng.normal([3.0, 0.0, 1e3, 0.0], [1, 1e-3, 1, 0], size=(60, 4)))
    weight = rng.integers(1, 5, 60).astype(float)
    for v in (None, weight):
        joined = Moments.of(a[:7], None if v is None else v[:7])
        for some in (slice(7, 8), slice(8, 40), slice(40, None)):
            joined = joined.join(Moments.of(a[some], None if v is None else v[some]))
        for one, other in zip(joined.units(), Moments.of(a, v).units(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15 * size)


def towns() -> pa.Table:
    data, y = frame()
    data = data.assign(y=y, z=2 * y + data["a"], n=np.arange(len(y)) % 3, flat=1.5)
    return pa.table({name: np.asarray(data[name]) for name in data})


@pytest.mark.parametrize(
    ("kind", "bounds", "common", "weights"),
    [
        (None, None, False, None),
        ("log", (-50.0, np.inf), False, "n"),
        (None, None, True, None),
        (None, None, True, "n"),
    ],
)
def test_units_and_levels_are_those_of_the_same_rows_in_memory(
    tmp_path: Path, kind: str | None, bounds: Any, common: bool, weights: str | None
) -> None:
    data = towns()
    folder = written(tmp_path / "towns", data, files=3, size=7)
    streamed, resident = GPCDE(), GPCDE()
    found = ParquetRows(
        folder, ["y", "z"], drop=None if weights else "n", weights=weights, categories="level", buffer=10
    )
    got = learn(streamed, found, 0, kind, bounds, common)
    table = data.to_pandas().astype({"level": "category"})
    weight = table["n"] if weights else None
    expected = resident._learn_rows(table[list(found.names)], table[["y", "z"]], weight, kind, bounds, common)
    one, other = streamed.features_, resident.features_
    assert (one.names, one.numbers, one.categories, one.constant) == (
        other.names,
        other.numbers,
        other.categories,
        other.constant,
    )
    none = expected.take(slice(0))
    slopes = got.mean_slope(streamed.transform_, none), expected.mean_slope(resident.transform_, none)
    pairs: list[tuple[Any, Any]] = [
        (one.location, other.location),
        (one.scale, other.scale),
        (streamed.transform_.location, resident.transform_.location),
        (streamed.transform_.scale, resident.transform_.scale),
        (got.total, expected.total),
        slopes,
    ]
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert got.n_rows == expected.n_rows
    np.testing.assert_array_equal(streamed.feature_names_in_, resident.feature_names_in_)


def test_a_sample_is_drawn_evenly_and_keeps_the_order() -> None:
    def portion(begin: int, end: int) -> Portion:
        y = np.arange(begin, end, dtype=float)[:, None]
        return Portion(Table(("a",), (0,), y, {}), y, y[:, 0])

    counts = np.zeros(60)
    for seed in range(400):
        rng, sample, later = np.random.default_rng(seed), Sample(10), Sample(10)
        for begin in range(0, 60, 6):
            (sample if begin < 30 else later).add(portion(begin, begin + 6), rng.random(6))
        sample.join(later)
        got = sample.taken()
        assert len(got.outputs) == 10
        assert (np.diff(got.outputs[:, 0]) > 0).all()
        np.testing.assert_array_equal(got.weight, got.outputs[:, 0])
        counts[got.outputs[:, 0].astype(int)] += 1
    assert np.abs(counts / 400 - 1 / 6).max() < 5 * np.sqrt(5 / 36 / 400)


def test_what_is_known_of_rows_holds_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass over forty row groups has a few of them in memory."""
    monkeypatch.setattr(streaming, "PLENTY", 100)
    found = ParquetRows(written(tmp_path / "rows", table(200_000), 2, 5000), "y")
    tracemalloc.start()
    seen = streaming.look_over(found, 0, None, None, False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(seen.sizes) == 40
    assert peak < 10 * 5000 * 3 * 8


# fits


def test_a_fit_with_a_batch_of_all_rows_is_that_in_memory(tmp_path: Path) -> None:
    """Of one row group, to the bit; of several, to rounding."""
    settings: dict[str, Any] = {**QUICK, "inference": "none"}
    resident = GPCDE(**settings).fit(X, Y)
    one = GPCDE(**settings).fit(ParquetRows(written(tmp_path / "one", table()), "y"))
    assert_same_model(one, resident)
    several = GPCDE(**settings).fit(ParquetRows(written(tmp_path / "several", table(), 2, 10), "y"))
    np.testing.assert_allclose(several.history_["bound"], resident.history_["bound"], rtol=1e-8)
    np.testing.assert_array_equal(one.predict(table().select(["a", "b"])), resident.predict(X))


class Crash(Exception):
    pass


def test_a_fit_resumes_with_the_same_bits_and_survives_a_file_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was learnt until then is kept, in the model and in its checkpoint; with the file back, the fit goes on."""
    folder = written(tmp_path / "rows", table(), files=3, size=6)
    found = ParquetRows(folder, "y", buffer=1)
    whole_fit = GPCDE(**BATCHES).fit(found)
    assert whole_fit.history_["bound"][-1] > whole_fit.history_["bound"][0]
    path, away = folder / "part1.parquet", tmp_path / "away"

    def vanish(model: GPCDE, record: Record) -> None:
        if record.step == 100:
            path.rename(away)

    settings = {**BATCHES, "checkpoint": tmp_path / "checkpoint"}
    stopped = GPCDE(**settings, callbacks=[vanish])
    with (
        pytest.warns(FitWarning, match=r"the model is that of step 1\d0.*goes on from its checkpoint"),
        pytest.raises(StreamError, match=r"row group \d of .*part1.parquet cannot be read"),
    ):
        stopped.fit(found)
    assert stopped.n_steps_ >= 100
    assert np.isfinite(stopped.predict(table().select(["a", "b"]))).all()
    away.rename(path)
    resumed = GPCDE(**settings).fit(ParquetRows(folder, "y", buffer=1))
    assert_same_model(resumed, whole_fit)

    with pytest.raises(ValueError, match="belongs to other data or settings"):
        GPCDE(**settings).fit(ParquetRows(folder, "y", features=["a"], buffer=1))


def test_a_corrupt_row_group_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(table(), path, row_group_size=12, write_page_checksum=True, use_dictionary=False)
    place = pq.ParquetFile(path).metadata.row_group(2).column(1).data_page_offset
    content = bytearray(path.read_bytes())
    content[place + 60 : place + 70] = bytes(10)
    path.write_bytes(content)
    with pytest.raises(StreamError, match=r"row group 2 of .*rows.parquet cannot be read"):
        GPCDE(**BATCHES).fit(ParquetRows(path, "y"))


def test_a_column_that_changes_its_type_is_refused_before_any_row_is_read(tmp_path: Path) -> None:
    folder = written(tmp_path / "rows", table())
    odd = table().set_column(1, "b", pa.array(["x"] * len(Y)))
    pq.write_table(odd, folder / "z.parquet")
    with pytest.raises(StreamError, match=r"column b changes its type.*category \(string\) in .*z.parquet.*\(double\)"):
        ParquetRows(folder, "y")
    pq.write_table(table().drop(["b"]), folder / "z.parquet")
    with pytest.raises(StreamError, match=r"z.parquet lacks column b"):
        ParquetRows(folder, "y")
    hive = tmp_path / "hive"
    hive.mkdir()
    written(hive / "tub=1", table())
    written(hive / "tub=2", table().drop(["b"]))
    with pytest.raises(StreamError, match=r"tub=2/part0.parquet lacks column b"):  # which is in the name of another
        ParquetRows(hive, "y")
    pq.write_table(table().set_column(1, "b", pa.array(np.arange(len(Y)))), folder / "z.parquet")
    assert len(ParquetRows(folder, "y")) == 2 * len(Y)  # whole numbers are numbers too


@pytest.mark.parametrize(("value", "told"), [(np.nan, "NaN"), (-np.inf, "infinity"), (None, "NaN")])
@pytest.mark.parametrize(("column", "what"), [("b", "X"), ("y", "y")])
def test_what_is_no_number_is_refused_with_file_and_row_group(
    tmp_path: Path, value: float | None, told: str, column: str, what: str
) -> None:
    data = table()
    values = data.column(column).to_pylist()
    values[30] = value
    data = data.set_column(data.schema.names.index(column), column, pa.array(values, pa.float64()))
    found = ParquetRows(written(tmp_path / "rows", data, 2, 5), "y")
    with pytest.raises(
        StreamError, match=rf"row group 1 of .*part1.parquet: {what} contains.*{told} in column {column}"
    ):
        GPCDE(**BATCHES).fit(found)


def test_what_cannot_be_is_told_before_any_work(tmp_path: Path) -> None:
    folder = written(tmp_path / "rows", table())
    found = ParquetRows(folder, "y")
    for wrong, error, message in [
        (lambda: ParquetRows(tmp_path / "none", "y"), FileNotFoundError, "there is no file or folder"),
        (lambda: ParquetRows(folder, "z"), ValueError, "target: there is no column z; there are a, b, y"),
        (lambda: ParquetRows(folder, "y", drop=["c"]), ValueError, "drop: there is no column c"),
        (lambda: ParquetRows(folder, "y", drop=["a", "b"]), ValueError, "features: no column is left"),
        (lambda: ParquetRows(folder, "y", buffer=0), ValueError, "buffer.* positive integer, got 0"),
        (lambda: ParquetRows(ds.dataset(folder).filter(ds.field("a") > 0), "y"), ValueError, "source is filtered"),
        (lambda: GPCDE().fit(found, Y), ValueError, "y is a column of a ParquetRows.*leave y out"),
        (lambda: GPCDE().fit(found, sample_weight=Y), ValueError, "named by its weights"),
        (lambda: GPCDE(early_stopping=True).fit(found), ValueError, "early_stopping holds out rows"),
        (lambda: GPCDE(inference="gaussian").fit(found), ValueError, "keeps a q.w. for every row"),
        (lambda: MDN().fit(found, Y), TypeError, "MDN takes rows that are in memory"),
    ]:
        with pytest.raises(error, match=message):
            wrong()
    data = table().append_column("when", pa.array(pd.date_range("2024", periods=len(Y))))
    with pytest.raises(ValueError, match="column when of the data set holds dates or times"):
        ParquetRows(written(tmp_path / "dates", data), "y")
    with pytest.raises(ValueError, match="y is constant"):
        GPCDE().fit(ParquetRows(written(tmp_path / "flat", table().set_column(2, "y", pa.array([1.0] * len(Y)))), "y"))
    with pytest.raises(StreamError, match="row group 0 of .*needs every y strictly between 0 and inf"):
        GPCDE(y_transform="log").fit(found)


def units(model: Any) -> list[np.ndarray]:
    """Those of inputs, with their limits, and of outputs."""
    limit = np.full(len(model.features_.scale), np.inf) if model.features_.limit is None else model.features_.limit
    return [model.features_.location, model.features_.scale, limit, model.transform_.location, model.transform_.scale]


@pytest.mark.parametrize(
    ("far", "kind", "fate"),
    [
        ({"a": [1e9]}, None, "column a of X is far from .* in 1 of 1000 rows .*left out"),
        ({"y": [-1e9]}, None, r"column y of y is far .* \(such as -1e\+09\), which are left out"),
        ({"y": [1e120]}, "log", r"column y of y is far .* \(such as 1e\+120\), which are left out"),
        ({"b": [9999.0] * 5}, None, "column b of X is far from .* in 5 of 1000 rows .*brought nearer"),
    ],
)
def test_rows_with_wild_values_are_left_out_or_brought_nearer_as_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, far: dict[str, list[float]], kind: str | None, fate: str
) -> None:
    """Of all row groups those with such rows are read twice; then they are not in the stream."""
    rng = np.random.default_rng(0)
    data = {"a": rng.normal(size=1000), "b": rng.normal(size=1000), "y": np.exp(rng.normal(size=1000))}
    for name, values in far.items():
        data[name][300 : 300 + len(values)] = values
    found = ParquetRows(written(tmp_path / "rows", pa.table(data), 2, 100), "y", buffer=1)
    numbers: list[int] = []
    read = ParquetRows.read

    def noted(self: ParquetRows, number: int) -> Portion:
        numbers.append(number)
        return read(self, number)

    monkeypatch.setattr(ParquetRows, "read", noted)
    frame, model, other = pd.DataFrame(data), GPCDE(), GPCDE()
    with pytest.warns(DataWarning, match=fate):
        got = learn(model, found, 0, kind, None, False)
    assert numbers == [*range(10), *([] if len(far.get("b", [])) == 5 else [3])]
    with pytest.warns(DataWarning, match=fate):
        expected = other._learn_rows(frame[["a", "b"]], frame[["y"]], None, kind, None)
    for one, two in zip(units(model), units(other), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)
    assert (got.n_rows, got.total, got.sample.n_rows) == (expected.n_rows, expected.total, expected.n_rows)
    streamed = np.concatenate([got.data.read(number).y for number in range(10)])
    np.testing.assert_allclose(np.sort(streamed[:, 0]), np.sort(expected.z[:, 0]))
    assert np.abs(got.data.read(3).x.dense).max() < 20


def test_what_is_wild_in_one_of_like_outputs_is_told_by_all(tmp_path: Path) -> None:
    """A pixel that is nearly always the same is not wild where it differs."""
    rng = np.random.default_rng(0)
    bright, faint = rng.normal(size=(2, 100)) * [[1.0], [1e-4]]
    faint[3] = 0.9
    data = {"a": rng.normal(size=100), "bright": bright, "faint": faint}
    found = ParquetRows(written(tmp_path / "rows", pa.table(data)), ["bright", "faint"])
    assert learn(GPCDE(), found, 0, None, None, True).n_rows == 100
    with pytest.warns(DataWarning, match="column faint of y is far"):
        assert learn(GPCDE(), found, 0, None, None, False).n_rows == 99


# answers


def test_scores_and_answers_come_a_row_group_at_a_time(tmp_path: Path) -> None:
    """Of text, categories that are numbers, weights, a folder's key=value, and a data set of pyarrow."""
    data = towns()
    frame = data.to_pandas().astype({"level": "category"})
    model = LinearGaussian().fit(frame[["a", "town", "level"]], frame[["y", "z"]])
    folder = tmp_path / "towns"
    pq.write_to_dataset(data, folder, partition_cols=["town"])
    chosen: dict[str, Any] = {"features": ["a", "town", "level"], "categories": ["level"]}
    found = ParquetRows(ds.dataset(folder, partitioning="hive"), ["y", "z"], weights="n", **chosen)
    assert len(found.groups) == 3
    expected = model.score(frame[["a", "town", "level"]], frame[["y", "z"]], frame["n"])
    assert model.score(found) == pytest.approx(expected, rel=1e-12)
    plain = ParquetRows(written(tmp_path / "plain", data, 2, 10), ["y", "z"], **chosen)
    assert model.score(plain) == pytest.approx(model.score(frame[["a", "town", "level"]], frame[["y", "z"]]), rel=1e-12)
    answers = np.concatenate([model.predict(part) for part in plain.inputs()])
    np.testing.assert_allclose(answers, model.predict(frame[["a", "town", "level"]]))
    pq.write_table(data.slice(0, 0), tmp_path / "plain" / "zero.parquet")
    bare = ParquetRows(tmp_path / "plain", **chosen)
    assert list(model.predict(bare).columns) == ["y", "z"]
    np.testing.assert_array_equal(model.predict(bare), answers)
    with pytest.raises(ValueError, match="a ParquetRows without a y: name the column by its target"):
        model.score(bare)
    with pytest.raises(ValueError, match="a ParquetRows without a y"):
        GPCDE().fit(bare)
    with pytest.raises(ValueError, match="the target of X is y, but that of training was y, z"):
        model.score(ParquetRows(tmp_path / "plain", "y", **chosen))
    with pytest.raises(ValueError, match="X has the columns a, town and 2 outputs.*name them by features"):
        model.score(ParquetRows(tmp_path / "plain", ["y", "z"], features=["a", "town"]))


def test_record_batches_are_answered() -> None:
    model = LinearGaussian().fit(pd.DataFrame(X, columns=["a", "b"]), Y)
    answers = [model.predict(batch) for batch in table().select(["a", "b"]).to_batches(max_chunksize=20)]
    np.testing.assert_array_equal(np.concatenate(answers), model.predict(pd.DataFrame(X, columns=["a", "b"])))


@pytest.mark.slow
@pytest.mark.parametrize("processes", [False, True])
def test_a_dask_frame_is_answered_by_its_workers(processes: bool) -> None:
    """In threads, and in processes, with a compiled model."""
    pytest.importorskip("distributed")
    import dask.dataframe as dd
    from distributed import Client

    frame = pd.DataFrame(X, columns=["a", "b"])
    model = (GPCDE(**QUICK, inference="none") if processes else LinearGaussian()).fit(frame, Y)
    with Client(n_workers=2, threads_per_worker=1, processes=processes, dashboard_address=None):
        lazy = dd.from_pandas(frame, npartitions=3)
        answers = lazy.map_partitions(lambda part: pd.Series(model.predict(part), part.index), meta=(None, float))
        np.testing.assert_allclose(answers.compute(), model.predict(frame), rtol=1e-10)


def test_a_warm_start_goes_on_with_other_files(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**BATCHES, "max_steps": 50, "warm_start": True}
    model = GPCDE(**settings).fit(ParquetRows(written(tmp_path / "rows", table(), 2, 10), "y", buffer=1))
    before = model.features_
    model.fit(ParquetRows(written(tmp_path / "more", table(60, 1), 2, 10), "y", buffer=1))
    assert model.n_steps_ == 100
    assert model.n_seen_ == 60
    assert model.features_ is before
    shutil.rmtree(tmp_path / "rows")
    assert np.isfinite(model.score(pd.DataFrame(X, columns=["a", "b"]), Y))


def test_a_folder_is_learnt_from_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model is that of Python; a file is streamed where it is told to be."""
    folder = written(tmp_path / "rows", table().append_column("id", pa.array(range(len(Y)))), 2, 10)
    names = ("batch_size", "max_steps", "n_inducing")
    chosen = [word for name in names for word in ("--set", f"{name}={BATCHES[name]}")]
    assert main(["fit", str(folder), "--drop", "id", "--model", "gp", *chosen]) == 0
    model = load(tmp_path / "rows.gpcde")
    found = ParquetRows(folder, ["y"], drop="id")
    assert_same_model(model, GP(**{name: BATCHES[name] for name in names}, random_state=0).fit(found))
    capsys.readouterr()
    assert main(["score", str(tmp_path / "rows.gpcde"), str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"rows": len(Y), "log_density": model.score(found)}
    assert main(["predict", str(tmp_path / "rows.gpcde"), str(folder), "--std", "--out", str(tmp_path / "a.pq")]) == 0
    told = pq.ParquetFile(tmp_path / "a.pq")
    assert (told.metadata.num_row_groups, told.schema_arrow.names) == (6, ["a", "b", "y", "id", "y_std"])
    whole_table = table().to_pandas()
    expected = model.predict_density(whole_table[["a", "b"]]).std()
    np.testing.assert_allclose(told.read()["y_std"], expected.ravel(), rtol=1e-12)
    assert main(["predict", str(tmp_path / "rows.gpcde"), str(folder), "--out", str(tmp_path / "a.csv")]) == 2
    assert "--out: rows that are streamed go to a file named .parquet" in capsys.readouterr().err
    (folder / "part1.parquet").write_bytes(b"PAR1")
    assert main(["predict", str(tmp_path / "rows.gpcde"), str(folder), "--out", str(tmp_path / "a.pq")]) == 1
    assert pq.read_table(tmp_path / "a.pq") == told.read()
    capsys.readouterr()
    assert main(["fit", str(folder), "--drop", "id", "--model", "mdn"]) == 2
    assert "--stream: a MDN learns from rows in memory" in capsys.readouterr().err
    assert main(["fit", str(folder / "part0.parquet"), "--stream", "--target", "z"]) == 1
    assert "target: there is no column z; there are a, b, y, id" in capsys.readouterr().err
