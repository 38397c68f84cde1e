"""Speed and flow on a motorway: one flow, two speeds."""

import matplotlib.pyplot as plt

import gpcde
from gpcde import GPCDE, plots
from gpcde.datasets import load_small

X, y = load_small("lane2")  # vehicles an hour, miles an hour
model = GPCDE(random_state=0).fit(X[::2], y[::2])

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
plots.heatmap(model, X, y, ax=left)
left.set(xlabel="vehicles an hour", ylabel="miles an hour")
plots.densities(model, [[500], [1200], [1700]], ax=middle)
middle.set(xlabel="miles an hour")
# the other half of the rows, which the model has not seen
plots.pit(gpcde.pit(model.predict_density(X[1::2]), y[1::2]), ax=right)
