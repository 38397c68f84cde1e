"""A motorcycle crash: the helmet's acceleration, whose noise changes from nothing to much."""

import matplotlib.pyplot as plt

from gpcde import GP, GPCDE, plots
from gpcde.datasets import load_small

X, y = load_small("mcycle")  # milliseconds after the impact, acceleration in g
models = {"GPCDE": GPCDE(random_state=0).fit(X, y), "GP regression": GP(random_state=0).fit(X, y)}

figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    plots.fan(model, X, y, ax=ax)
    ax.set(title=name, xlabel="milliseconds", ylabel="acceleration, g")
