"""Two special cases of the model, as estimators of their own.

GP      no latents: sparse Gaussian process regression, y = f(x) + noise
GPLVM   no inputs: the density of y alone, y = f(w) + noise, the same everywhere
"""

from typing import Any

from ..model.inputs import Inputs, make_inputs
from .gpcde import GPCDE


class GP(GPCDE):
    """Sparse Gaussian process regression: y = f(x) + noise, GPCDE without latents.

    A Gaussian at every x; where categories or many inputs go through an uncertain A, a mixture of them.

    Parameters
    ----------
    n_inducing : int, default=None
        M, the number of inducing inputs.
    kernel : {"rbf", "matern32", "matern52"}, default="rbf"
        The kernel of the inputs.
    y_transform : {"log", "logit"}, default=None
        "log" for y above a bound, "logit" for y between two.
    y_bounds : (float, float), default=None
        (low, high); by default 0 and infinity, or 0 and 1.
    max_steps : int, default=None
        How many steps training takes at most.
    batch_size : int, default=None
        Rows a step takes.
    learning_rate : float, default=None
        Of Adam, at the start; it falls to a tenth.
    tol : float, default=0.005
        Training ends when the bound gains less than this a row in 50 steps, where it can be told.
    random_state : int, RandomState or None, default=None
        A seed.
    verbose : bool, default=None
        None shows progress in a terminal, when it takes longer than a few seconds.

    Attributes
    ----------
    state_, history_, n_steps_
        As in GPCDE.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import GP
    >>> X = np.linspace(-2, 2, 40)[:, None]
    >>> model = GP(max_steps=50, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.predict([[-1.0], [1.0]]).round(1)
    array([-0.8,  0.8])
    """

    inference = "none"
    x_transform = None

    def __init__(
        self,
        *,
        n_inducing: int | None = None,
        kernel: str = "rbf",
        y_transform: str | None = None,
        y_bounds: tuple[float, float] | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        tol: float = 0.005,
        random_state: Any = None,
        verbose: bool | int | None = None,
    ) -> None:
        self.n_inducing = n_inducing
        self.kernel = kernel
        self.y_transform = y_transform
        self.y_bounds = y_bounds
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose


class GPLVM(GPCDE):
    """The Bayesian GP-LVM: y = f(w) + noise, GPCDE that does not look at X.

    Parameters
    ----------
    latent_dim : int, default=None
        D_w, the number of latents of a data point.
    inference : {"auto", "free-form", "amortised", "gaussian"}, default="auto"
        Of q(w).
    n_inducing : int, default=None
        M, the number of inducing inputs.
    y_transform : {"log", "logit"}, default=None
        "log" for y above a bound, "logit" for y between two.
    y_bounds : (float, float), default=None
        (low, high); by default 0 and infinity, or 0 and 1.
    max_steps : int, default=None
        How many steps training takes at most.
    batch_size : int, default=None
        Rows a step takes.
    learning_rate : float, default=None
        Of Adam, at the start; it falls to a tenth.
    tol : float, default=0.005
        Training ends when the bound gains less than this a row in 50 steps, where it can be told.
    random_state : int, RandomState or None, default=None
        A seed.
    verbose : bool, default=None
        None shows progress in a terminal, when it takes longer than a few seconds.

    Attributes
    ----------
    state_, history_, n_steps_
        As in GPCDE.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import GPLVM
    >>> rng = np.random.default_rng(0)
    >>> y = rng.choice([-2.0, 2.0], 40) + 0.3 * rng.standard_normal(40)
    >>> model = GPLVM(max_steps=100, random_state=0).fit(np.zeros((40, 1)), y)
    >>> density = model.predict_density([[0.0]])
    >>> bool(density.pdf(2.0)[0] > density.pdf(0.0)[0])
    True
    """

    def __init__(
        self,
        *,
        latent_dim: int | None = None,
        inference: str = "auto",
        n_inducing: int | None = None,
        y_transform: str | None = None,
        y_bounds: tuple[float, float] | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        tol: float = 0.005,
        random_state: Any = None,
        verbose: bool | int | None = None,
    ) -> None:
        self.latent_dim = latent_dim
        self.inference = inference
        self.n_inducing = n_inducing
        self.y_transform = y_transform
        self.y_bounds = y_bounds
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    x_transform = None

    def _used(self, inputs: Inputs) -> Inputs:
        return make_inputs(rows=inputs.n_rows)
