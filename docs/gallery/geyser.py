"""Old Faithful: how long an eruption lasts, by how long one waited for it."""

import matplotlib.pyplot as plt

from gpcde import GPCDE, plots
from gpcde.datasets import load_small

X, y = load_small("geyser")  # minutes waited, minutes it lasted
model = GPCDE(random_state=0).fit(X, y)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
plots.heatmap(model, X, y, ax=left)
left.set(xlabel="minutes waited", ylabel="minutes it lasts")
plots.densities(model, [[55], [70], [85]], labels=["waited 55", "waited 70", "waited 85"], ax=right)
right.set(xlabel="minutes it lasts")
