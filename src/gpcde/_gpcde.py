"""GPCDE: the model behind scikit-learn's face.

    model = GPCDE().fit(X, y);  model.predict_density(X_new).log_pdf(y_new)

`fit` reads the tables, chooses what the user left open (`_defaults`), finds a start (`_initialise`) and trains it
(`_train`). What it learnt is one training state, so that a fit can be continued, saved and resumed.
"""

import hashlib
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int

from ._answer import along_path, nodes, prediction
from ._bound import whole
from ._defaults import Plan, choose
from ._density import ConditionalDensity, Source
from ._estimator import DensityEstimator, load, seed_of
from ._infer import LatentPosterior, infer
from ._initialise import start
from ._inputs import Inputs
from ._pathwise import DensitySamples, draw_path
from ._precision import scope
from ._predict import predict
from ._schedule import Geometric
from ._train import Record, State, Trainer, TrainingError, train
from ._watch import HISTORY, Watch, on_host

try:  # scikit-learn 1.9 and later
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before, there is nothing to support

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """A stand-in."""

    def with_callbacks(method: Any) -> Any:
        return method


Callback = Callable[["GPCDE", Record], bool | None]


class GPCDE(CallbackSupportMixin, DensityEstimator):
    """Conditional density estimation with a Gaussian process and latent inputs: y = P f([A x, w]) + noise.

    Everything left at None or "auto" is chosen from the data.

    latent_dim           D_w, the number of latents of a data point
    inference            of q(w): "auto", "free-form", "amortised", "gaussian" or "none" (sparse GP regression)
    n_inducing           M, the number of inducing inputs
    kernel               "rbf", "matern32" or "matern52"
    input_map            "auto", "concatenate", "project" (A), "bend" or "warp"
    input_dim            the rows of A
    output_dim           the columns of P; without it, P is the identity
    y_transform          "log" for y above a bound, "logit" for y between two
    y_bounds             (low, high); by default 0 and infinity, or 0 and 1
    max_steps            how many steps training takes at most
    batch_size           rows a step takes
    learning_rate        of Adam, at the start; it falls to a tenth
    tol                  training ends when the bound gains less than this a row in 50 steps, where it can be told
    early_stopping       hold out `validation_fraction` of the rows, and end (at the best state) when their bound has
                         not risen for `patience` times 50 steps
    warm_start           whether `fit` goes on from where the last `fit` ended
    checkpoint           a file to which training is saved every minute, and from which it resumes
    callbacks            functions of (model, record), called every 50 steps; training stops where one returns True
    random_state         a seed
    verbose              True or False; None shows progress in a terminal, when it takes longer than a few seconds

    Learnt: `state_`, `history_` (step, bound and validation bound a row, noise variance, seconds), `n_steps_` in all.
    """

    _learnt: ClassVar[tuple[str, ...]] = (
        *DensityEstimator._learnt,
        "state_",
        "history_",
        "n_seen_",
        "seed_",
        "digest_",
        "pause_",
        "n_steps_",
    )

    state_: State
    history_: dict[str, np.ndarray]
    n_seen_: int
    seed_: int
    digest_: str
    pause_: tuple[State | None, float, int]
    n_steps_: int

    def __init__(
        self,
        *,
        latent_dim: int | None = None,
        inference: str = "auto",
        n_inducing: int | None = None,
        kernel: str = "rbf",
        input_map: str = "auto",
        input_dim: int | None = None,
        output_dim: int | None = None,
        y_transform: str | None = None,
        y_bounds: tuple[float, float] | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        tol: float = 0.005,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 5,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callback] | None = None,
        random_state: Any = None,
        verbose: bool | int | None = None,
    ) -> None:
        self.latent_dim = latent_dim
        self.inference = inference
        self.n_inducing = n_inducing
        self.kernel = kernel
        self.input_map = input_map
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.y_transform = y_transform
        self.y_bounds = y_bounds
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.callbacks = callbacks
        self.random_state = random_state
        self.verbose = verbose

    # learning

    @with_callbacks
    def fit(self, X: Any, y: Any) -> "GPCDE":
        """Learn p(y|x) from the rows of X and y."""
        again = self.warm_start and hasattr(self, "state_")
        seed = seed_of(self.random_state)
        if again:
            x, z = self._more_tables(X, y)
        else:
            for name in ("state_", "pause_"):  # if this fit fails, the model is not fitted
                self.__dict__.pop(name, None)
            x, z = self._learn_tables(X, y, self.y_transform, self.y_bounds, common_scale=self.output_dim is not None)
        plan = self._plan(x, z)
        digest = "" if self.checkpoint is None else self._digest(x, z)
        saved = None if again else self._resumed(digest)
        if saved is not None:
            self.__dict__.update(saved)
            if "n_steps_" in saved:  # it was finished
                return self
        else:
            self.digest_, self.seed_ = digest, seed
        kept, held = self._split(len(z))
        self.n_seen_ = len(kept)
        if again:
            self._check_local(len(kept), "warm_start with another number of rows")
        elif saved is None:
            self.history_ = {name: np.zeros(0) for name in HISTORY}
            with scope():
                self.state_ = on_host(start(jax.random.key(seed), x.take(kept), z[kept], plan.design))
        done = 0 if saved is None else int(self.state_.step)
        self._train({"X": X, "y": y}, x, z, kept, held, plan, plan.steps - done)
        return self

    @with_callbacks
    def partial_fit(self, X: Any, y: Any) -> "GPCDE":
        """Go on learning from these rows, in one pass: they are added to what q(u) knows of all rows seen so far.

        The first call is a `fit`. Rows should come in random order: kernel, noise and networks follow the last ones.
        """
        if not hasattr(self, "state_"):
            return self.fit(X, y)
        x, z = self._more_tables(X, y)
        self._check_local(0, "partial_fit")
        plan = self._plan(x, z)
        batch = min(plan.batch_size, len(z))
        before, self.n_seen_ = self.n_seen_, self.n_seen_ + len(z)
        # statistics are sums over rows: first stretched to the new number, then moved by each batch's share of it
        posterior = jax.tree.map(lambda a: a * (self.n_seen_ / before), self.state_.posterior)
        self.state_ = eqx.tree_at(lambda s: s.posterior, self.state_, posterior)
        share = batch / self.n_seen_
        plan = plan._replace(batch_size=batch, rates=(plan.rates[1],) * 2, gammas=(share, share), exact=False)
        self._train({"X": X, "y": y}, x, z, np.arange(len(z)), np.zeros(0, int), plan, max(1, len(z) // batch))
        return self

    def _plan(self, x: Inputs, z: Float[np.ndarray, "n D"]) -> Plan:
        self._check_validation()
        settings = {name: getattr(self, name) for name in PARAMETERS}
        levels = self.features_.levels if x.codes.shape[1] else ()
        plan = choose(settings, len(z), x.dense.shape[1], levels, z)
        if self.learning_rate is not None:
            if not self.learning_rate > 0:
                raise ValueError(f"learning_rate must be positive, got {self.learning_rate!r}")
            plan = plan._replace(rates=(self.learning_rate, 0.1 * self.learning_rate))
        if self.early_stopping and plan.design.inference == "gaussian":
            raise ValueError(
                "early_stopping needs q(w) of rows that were held out: inference='gaussian' has none, "
                "use 'amortised' or 'free-form'"
            )
        return plan

    def _more_tables(self, X: Any, y: Any) -> tuple[Inputs, Float[np.ndarray, "n D"]]:
        x = self._apply_tables(X)
        outputs = self._apply_outputs(y, x.n_rows)
        z = self.transform_.to_standard(outputs)
        if not np.isfinite(z).all():
            raise ValueError(f"y_transform={self.y_transform!r} needs y strictly within its bounds; some of y is not")
        return x, z

    def _check_local(self, rows: int, what: str) -> None:
        """Each data point's own q(w_n) belongs to the rows of the first fit."""
        if self.state_.local is not None and len(self.state_.local.value) != rows:
            raise ValueError(f"inference='gaussian' keeps a q(w) for every row of fit: it cannot do {what}")

    def _split(self, rows: int) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " h"]]:
        """The rows to learn from, and those held out."""
        if not self.early_stopping:
            return np.arange(rows), np.zeros(0, int)
        order = np.random.default_rng(self.seed_).permutation(rows)
        count = max(1, int(self.validation_fraction * rows))
        if rows - count < 2:
            raise ValueError(f"early_stopping leaves {rows - count} of {rows} rows to learn from; give more rows")
        return np.sort(order[count:]), np.sort(order[:count])

    def _train(
        self,
        task: dict[str, Any],
        x: Inputs,
        z: Float[np.ndarray, "n D"],
        kept: Int[np.ndarray, " k"],
        held: Int[np.ndarray, " h"],
        plan: Plan,
        steps: int,
    ) -> None:
        """So many steps more on the kept rows, looked after (`_watch`)."""
        self.__dict__.pop("n_steps_", None)
        with scope():
            trainer = Trainer.create(
                self.n_seen_,
                Geometric.create(*plan.rates, plan.steps),
                Geometric.create(*plan.gammas, plan.steps),
            )
            test = whole(x.take(held), z[held]) if len(held) else None
            jacobian = float(self.transform_.log_slope(z).sum(1).mean())
            watch = Watch(self, test, steps, plan.exact, jacobian, task)
            data, size = whole(x.take(kept), z[kept]), min(plan.batch_size, len(kept))
            try:
                with watch:
                    key = jax.random.key(self.seed_)
                    state, _ = train(trainer, key, self.state_, data, max(steps, 0), size, watch=watch)
            except TrainingError as error:
                if error.state is not None:
                    self.state_ = on_host(error.state)
                raise
            self.state_ = on_host(state if watch.best is None else watch.best)
        self.__dict__.pop("pause_", None)
        self.n_steps_ = int(self.state_.step)
        if self.checkpoint is not None:
            self.save(self.checkpoint)

    # checkpoints

    def _digest(self, x: Inputs, z: Float[np.ndarray, "n D"]) -> str:
        """What tells these data and settings from others."""
        left_out = ("checkpoint", "callbacks", "verbose", "warm_start")
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in left_out}
        digest = hashlib.sha256(repr(sorted(params.items())).encode())
        for array in (x.dense, x.codes, z):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def _resumed(self, digest: str) -> dict[str, Any] | None:
        if self.checkpoint is None or not Path(self.checkpoint).exists():
            return None
        saved = load(self.checkpoint)
        if not isinstance(saved, GPCDE) or saved.digest_ != digest:
            raise ValueError(
                f"checkpoint {self.checkpoint} belongs to other data or settings: delete it, or name another file"
            )
        return {name: getattr(saved, name) for name in self._learnt if hasattr(saved, name)}

    def _restored(self) -> None:
        if not isinstance(self.state_, State):
            raise ValueError("it holds no training state")
        with scope():
            self.state_ = on_host(self.state_)
            count = self.state_.model.mixing.shape[0]
            if count != self.n_outputs_ or len(self.transform_.location) != count:
                raise ValueError("its outputs do not fit its model")
            x = self._used(self.features_.blank())
            model, posterior = self.state_.model, self.state_.posterior
            points = nodes(model.latents.dim, model.input_map.noise_dim)
            jax.eval_shape(lambda m, q: predict(m, q, x, *points), model, posterior)

    # answers

    def _source(self, inputs: Inputs) -> Source:
        return prediction(self.state_.model, self.state_.posterior, inputs)

    def infer_latent(self, X: Any, y: Any) -> LatentPosterior:
        """q(w|x, y) of every row: mean, standard deviation and, for free-form q, nodes and weights."""
        x, z = self._more_tables(X, y)
        with scope():
            return infer(self.state_.model, self.state_.posterior, x, z)

    def sample_densities(self, X: Any, n: int = 50, random_state: Any = None) -> DensitySamples:
        """Densities drawn from what the model believes: error bars on the density itself, by `band`."""
        if not n >= 1:
            raise ValueError(f"n, the number of draws, must be at least 1, got {n!r}")
        seed = seed_of(random_state)
        inputs = self._apply_tables(X)
        model, posterior = self.state_.model, self.state_.posterior
        draws = []
        with scope():
            for i in range(n):
                path = draw_path(jax.random.fold_in(jax.random.key(seed), i), model, posterior)
                source = along_path(model, path, inputs)
                draws.append(ConditionalDensity(source, self.transform_, inputs.n_rows, self.flat_))
        return DensitySamples(draws)


PARAMETERS = {name: p.default for name, p in inspect.signature(GPCDE.__init__).parameters.items() if name != "self"}
for _name, _default in PARAMETERS.items():
    setattr(GPCDE, _name, _default)  # a special case may leave some of them out
