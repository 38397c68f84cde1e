"""Irises: a column of text among the inputs."""

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris

from gpcde import GPCDE, plots

iris = load_iris(as_frame=True)
X = iris.data[["sepal length (cm)"]].assign(species=iris.target_names[iris.target])
y = iris.data["petal length (cm)"]
model = GPCDE(random_state=0).fit(X, y)

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
plots.heatmap(model, X, y, feature="species", ax=left)
plots.fan(model, X, y, feature="sepal length (cm)", at={"species": "virginica"}, ax=middle)
middle.set(title="virginica")
plots.effect(model, X, feature="sepal length (cm)", ax=right)
right.set(title="all species averaged")
for ax in (left, middle, right):
    ax.set(ylabel="petal length (cm)")
