"""The trips: standardised, with their test sets."""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .... import datasets

DAY_FILE = "taxi/tlc_2015-12-01_bespin.npz"


class Trips(NamedTuple):
    """Standardised trips, the rows of each test set, and the units they were standardised with."""

    x: Float[np.ndarray, "n 6"]
    y: Float[np.ndarray, "n 2"]
    tests: dict[str, Int[np.ndarray, " t"]]
    training: Int[np.ndarray, " p"]
    x_units: tuple[Float[np.ndarray, "6"], Float[np.ndarray, "6"]]
    y_units: tuple[Float[np.ndarray, "2"], Float[np.ndarray, "2"]]


def farthest_points(x: Float[np.ndarray, "n d"], count: int, first: int) -> Int[np.ndarray, " t"]:
    """Rows one after another, each with the greatest distance from the nearest of those before it."""
    chosen = np.zeros(count, int)
    chosen[:1] = first
    distance = ((x - x[first]) ** 2).sum(1)
    for i in range(1, count):
        chosen[i] = distance.argmax()
        distance = np.minimum(distance, ((x - x[chosen[i]]) ** 2).sum(1))
    return chosen


@functools.cache
def load_trips(random: int, farthest: int, seed: int) -> Trips:
    """The trips with their test sets; the order of the training rows is random, so that the first are a sample."""
    X, y = datasets.load_taxi()
    order = np.random.default_rng(seed).permutation(len(X))
    far = farthest_points((X - X.mean(0)) / X.std(0), farthest, int(order[0]))
    rest = order[~np.isin(order, far)]
    tests = {"random": rest[:random], "farthest": far}
    training = rest[random:]
    x_units, y_units = ((a[training].mean(0), a[training].std(0)) for a in (X, y))
    return Trips((X - x_units[0]) / x_units[1], (y - y_units[0]) / y_units[1], tests, training, x_units, y_units)


def pick_up(place: tuple[float, float], weekday: int, hour: float) -> Float[np.ndarray, "6"]:
    """The inputs of a trip, as the data set has them."""
    week, day = 2 * np.pi * weekday / 7, 2 * np.pi * hour / 24
    return np.array([*place, np.sin(week), np.cos(week), np.sin(day), np.cos(day)])


def load_day(count: int, seed: int) -> tuple[Float[np.ndarray, "n 6"], Float[np.ndarray, "n 2"], int]:
    """Standardised trips of a day, repeated to make up the number, or invented; and how many different real ones."""
    rng = np.random.default_rng(seed)
    path = datasets.local(DAY_FILE)
    if path is None:
        x = rng.standard_normal((count, 6))
        return x, 0.5 * x[:, :2] + rng.standard_normal((count, 2)), 0
    X, y = datasets.load_taxi(path)
    order = rng.permutation(len(X))
    index = np.resize(order, count)
    spread = np.where(X.std(0) > 0, X.std(0), 1.0)
    return ((X - X.mean(0)) / spread)[index], ((y - y.mean(0)) / y.std(0))[index], min(count, len(X))
