"""Two special cases of the model, as estimators of their own.

GP      no latents: sparse Gaussian process regression, y = f(x) + noise
GPLVM   no inputs: the density of y alone, y = f(w) + noise, the same everywhere
"""

from typing import Any

from ..model.inputs import Inputs, make_inputs
from .gpcde import GPCDE


class GP(GPCDE):
    """Sparse Gaussian process regression: GPCDE without latents. Parameters as in GPCDE.

    A Gaussian at every x; where categories or many inputs go through an uncertain A, a mixture of them.
    """

    inference = "none"

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
    """The Bayesian GP-LVM: GPCDE that does not look at X. Parameters as in GPCDE."""

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

    def _used(self, inputs: Inputs) -> Inputs:
        return make_inputs(rows=inputs.n_rows)
