"""What a mean does not say: GP regression and GPCDE on two branches, beside the truth."""

import matplotlib.pyplot as plt
import numpy as np

from gpcde import GP, GPCDE, demo, plots

x, y = demo.sample(np.random.default_rng(0), 400)
X = x[:, None]
regression, model = GP(random_state=0).fit(X, y), GPCDE(random_state=0).fit(X, y)

figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
plots.fan(regression, X, y, ax=axes[0])
axes[0].set(title="Regression: a mean and its error")
plots.heatmap(model, X, y, vmax=2, colorbar=False, ax=axes[1])
axes[1].axvline(0.5, color="black", lw=0.8, ls=":")
axes[1].set(title="gpcde: the distribution p(y|x)")
plots.densities(model, [[0.5]], ax=axes[2])
up = np.linspace(-3, 3, 400)
axes[2].plot(up, demo.true_density(np.full_like(up, 0.5), up), "k:", label="the truth")
axes[2].set(title="At x = 0.5, with its 90 % band", xlim=(-2, 3.5))
axes[2].legend(title="bars: 90 % regions", title_fontsize="small", fontsize="small", loc="upper left")
