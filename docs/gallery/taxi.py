"""New York's taxis: where a trip ends, by where and when it began."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from gpcde import GPCDE, plots
from gpcde.datasets import load_taxi

trips = load_taxi()
some = np.random.default_rng(0).permutation(len(trips.X))[:5000]
X, y = trips.X[some], pd.DataFrame(trips.y[some], columns=["longitude", "latitude"])
model = GPCDE(random_state=0).fit(X, y)


def condition(longitude, latitude, day, hour):
    """A row of X: the place, and the day of the week and the time of day on their circles."""
    week, clock = 2 * np.pi * day / 7, 2 * np.pi * hour / 24
    return [[longitude, latitude, np.sin(week), np.cos(week), np.sin(clock), np.cos(clock)]]


places = {"Penn Station, 9 am": (-73.993, 40.750, 0, 9), "Upper East Side, 9 am": (-73.957, 40.774, 0, 9)}
figure, axes = plt.subplots(1, 2, figsize=(9, 6), layout="constrained", sharex=True, sharey=True)
for ax, (name, place) in zip(axes, places.items(), strict=True):
    plots.joint(model, condition(*place), ax=ax)
    ax.plot(*place[:2], "X", color="#D55E00", markeredgecolor="white", markersize=10)
    ax.set(title=f"from {name}", aspect=1 / np.cos(np.radians(40.76)))
    ax.locator_params(axis="x", nbins=4)
