"""Shares: a y that lies between 0 and 1, and a density that does too."""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import beta

from gpcde import GPCDE, plots

rng = np.random.default_rng(0)
x = rng.uniform(0, 1, 300)
y = rng.beta(0.8 + 4 * x, 3 - 2 * x)  # the truth is known here
X = x[:, None]
models = {
    "y_transform='logit'": GPCDE(y_transform="logit", random_state=0).fit(X, y),
    "no transform": GPCDE(random_state=0).fit(X, y),
}

figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=False):
    plots.heatmap(model, X, y, vmax=5, ax=ax)
    ax.set(title=name, ylim=(-0.15, 1.15))
    ax.axhline(0, color="black", lw=0.5)
    ax.axhline(1, color="black", lw=0.5)
plots.densities(models["y_transform='logit'"], [[0.1], [0.9]], ax=axes[2])
at = np.linspace(0.005, 0.995, 200)
for value in (0.1, 0.9):
    axes[2].plot(at, beta.pdf(at, 0.8 + 4 * value, 3 - 2 * value), color="black", lw=0.8)
axes[2].set(title="thin: the truth")
