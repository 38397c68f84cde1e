"""Handwritten digits: p(image | which digit), 64 outputs that move together."""

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_digits

from gpcde import GPCDE, plots

digits = load_digits()
X = pd.DataFrame({"digit": digits.target.astype(str)})  # text, so a category
y = digits.data / 16
model = GPCDE(output_dim=16, latent_dim=2, inference="amortised", max_steps=2000, random_state=0).fit(X, y)

density = model.predict_density(pd.DataFrame({"digit": [str(i) for i in range(10)]}))
drawn = density.sample(8, random_state=0)  # 10 digits × 8 draws × 64 pixels

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.6), layout="constrained")
plots.images([digits.images[digits.target == i][j] for i in range(10) for j in range(8)], columns=8, ax=left)
left.set(title="the data")
plots.images(drawn.reshape(80, 8, 8), columns=8, vmin=0, vmax=1, ax=middle)
middle.set(title="drawn from p(image | digit)")
some = digits.target[:600] < 4
plots.latent(model, X[:600][some], y[:600][some], X["digit"][:600][some], name="digit", ax=right)
right.set(title="q(w) of some images")
