"""Data: a small server stands for the sources, and small files for theirs."""

import hashlib
import io
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pooch")

from gpcde import datasets
from gpcde.datasets import DataError, Source, fetch

FILES: dict[str, bytes] = {"/good": b"1 2 3\n" * 1000}
ASKED: list[str] = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        ASKED.append(self.path)
        data = FILES.get(self.path.removesuffix("-broken"))
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if self.path.endswith("-broken") else data)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPCDE_DATA_DIR", str(tmp_path))
    ASKED.clear()
    return tmp_path


def place(monkeypatch: pytest.MonkeyPatch, name: str, url: str, checksum: str | None = None) -> None:
    monkeypatch.setitem(datasets.SOURCES, name, Source(url, checksum))


def sha(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def test_a_good_file_is_downloaded_once(server: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, "a.txt", server + "/good", sha(FILES["/good"]))
    assert fetch("a.txt").read_bytes() == FILES["/good"]
    assert fetch("a.txt") == home / "a.txt"
    assert ASKED == ["/good"]


def test_a_wrong_checksum_is_refused_and_nothing_kept(server: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, "a.txt", server + "/good", sha(b"another file"))
    with pytest.raises(DataError, match="does not have the checksum sha256:.*nothing was kept"):
        fetch("a.txt")
    assert not list(home.iterdir())


def test_a_broken_transfer_is_noticed_even_without_a_checksum(
    server: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(monkeypatch, "a.txt", server + "/good-broken")
    with pytest.raises(DataError, match="could not be downloaded .*: try again, or put the file at"):
        fetch("a.txt")
    assert not list(home.iterdir())


@pytest.mark.parametrize("path", ["/nowhere", None])
def test_a_source_that_is_gone_says_what_to_do(path: str | None, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, "a.txt", server + path if path else "http://127.0.0.1:1/none")
    with pytest.raises(DataError, match="could not be downloaded .* put the file at .*a.txt"):
        fetch("a.txt")


def test_an_unknown_checksum_is_noted_and_then_checked(
    server: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(monkeypatch, "a.txt", server + "/good")
    with pytest.warns(UserWarning, match=f"no known checksum; {sha(FILES['/good'])} is checked from now on"):
        fetch("a.txt")
    fetch("a.txt")
    (home / "a.txt").write_bytes(b"changed")
    with pytest.raises(DataError, match="damaged, or was changed. Delete it"):
        fetch("a.txt")


def test_a_folder_that_cannot_be_written_to_is_named(server: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("GPCDE_DATA_DIR", str(home / "file"))
    place(monkeypatch, "a.txt", server + "/good")
    with pytest.raises(DataError, match="could not be written .*set GPCDE_DATA_DIR"):
        fetch("a.txt")


def test_the_cache_is_the_users_unless_a_folder_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert datasets.cache() == home
    monkeypatch.delenv("GPCDE_DATA_DIR")
    assert "gpcde" in datasets.cache().parts
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        assert datasets.cache() == home / "cache" / "gpcde"
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(home))
        assert datasets.cache() == home / ".cache" / "gpcde"


def test_without_pooch_a_named_folder_still_serves(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    (home / "small").mkdir()
    (home / "small" / "mcycle.csv").write_text("x,y\n1,2\n3,4\n")
    assert datasets.load_small("mcycle")[1].tolist() == [2.0, 4.0]
    with pytest.raises(DataError, match="need pooch: pip install"):
        datasets.load_small("geyser")
    monkeypatch.delenv("GPCDE_DATA_DIR")
    with pytest.raises(DataError, match="need pooch: pip install .*or set GPCDE_DATA_DIR"):
        datasets.load_small("mcycle")


def test_a_file_without_an_address() -> None:
    with pytest.raises(DataError, match="no address is known for what.bin: put the file at"):
        fetch("what.bin")


@pytest.mark.filterwarnings("ignore:.*no known checksum")
def test_small_and_uci_tables_are_read_as_their_sources_write_them(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FILES, "/geyser", b'"rownames","waiting","duration"\n"1",80,4.5\n"2",71,2.15\n')
    place(monkeypatch, "geyser.csv", server + "/geyser")
    x, y = datasets.load_small("geyser")
    assert (x.tolist(), y.tolist()) == ([[80.0], [71.0]], [4.5, 2.15])

    rows = np.random.default_rng(0).normal(size=(30, 5))
    rows[:, 1] = 7  # a constant column is left out
    text = io.StringIO()
    np.savetxt(text, rows)
    monkeypatch.setitem(FILES, "/energy", text.getvalue().encode())
    place(monkeypatch, "energy.txt", server + "/energy")
    table = datasets.load_uci("energy")
    np.testing.assert_array_equal(table.X, rows[:, [0, 2]])
    np.testing.assert_array_equal(table.y, rows[:, 3])
    assert len(table.splits) == 20
    for train, test in table.splits:
        assert (len(train), len(test)) == (27, 3)
        assert sorted([*train, *test]) == list(range(30))
    with pytest.raises(ValueError, match="name must be one of"):
        datasets.load_uci("iris")


def test_omniglot_is_shrunk_with_its_classes_in_order(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    for part in ("background", "evaluation"):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for character in ("character01", "character02"):
                for drawer in range(2):
                    png, paper = io.BytesIO(), np.full((105, 105), 255, np.uint8)
                    paper[:, :60] = 0  # ink on the left
                    image.fromarray(paper).save(png, "PNG")
                    archive.writestr(f"images_{part}/Greek/{character}/{drawer}.png", png.getvalue())
        monkeypatch.setitem(FILES, "/" + part, packed.getvalue())
        place(monkeypatch, f"omniglot_{part}.zip", f"{server}/{part}", sha(packed.getvalue()))
    found = datasets.load_omniglot()
    assert found.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found.test.tolist() == [False] * 4 + [True] * 4
    drawing = found.images[0].reshape(28, 28)
    assert (drawing[:, :15] == 1).all()
    assert (drawing[:, 17:] == 0).all()


def test_mnist(home: Path) -> None:
    (home / "mnist").mkdir()
    images = np.arange(4 * 784, dtype=np.uint8).reshape(4, 28, 28)
    np.savez(home / "mnist" / "mnist.npz", x_train=images[:3], y_train=[1, 2, 3], x_test=images[3:], y_test=[4])
    found = datasets.load_mnist()
    np.testing.assert_allclose(found.images, images.reshape(4, 784) / 255)
    assert found.labels.tolist() == [1, 2, 3, 4]


def test_taxi_trips_are_filtered_and_their_times_are_angles(home: Path) -> None:
    with pytest.raises(DataError, match="need a login: download train.csv .*put it at"):
        datasets.load_taxi()
    lines = [
        "id,vendor_id,pickup_datetime,pickup_longitude,pickup_latitude,dropoff_longitude,dropoff_latitude,trip_duration",
        "a,1,1970-01-01 06:00:00,-73.98,40.75,-73.95,40.78,600",  # a Thursday, the first day of the count
        "b,1,1970-01-02 00:00:00,-73.98,40.75,-73.95,40.78,10",  # too short
        "c,1,1970-01-02 00:00:00,-73.98,40.75,-73.98,40.75,600",  # a round trip
        "d,1,1970-01-02 00:00:00,-70.00,40.75,-73.95,40.78,600",  # from elsewhere
    ]
    path = home / "train.csv"
    path.write_text("\n".join(lines) + "\n")
    trips = datasets.load_taxi(path)
    np.testing.assert_allclose(trips.X, [[-73.98, 40.75, 0, 1, 1, 0]], atol=1e-12)
    np.testing.assert_allclose(trips.y, [[-73.95, 40.78]])
    path.write_text("x,y\n1,2\n")
    with pytest.raises(DataError, match="is not Kaggle's train.csv"):
        datasets.load_taxi(path)
    with pytest.raises(DataError, match="there is no file"):
        datasets.load_taxi(home / "other.csv")
