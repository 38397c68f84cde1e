"""GPCDE: the model behind scikit-learn's face.

    model = GPCDE().fit(X, y);  model.predict_density(X_new).log_pdf(y_new)

`fit` reads the tables, chooses what the user left open (`plan`), finds a start (`inference.start`) and trains it
(`inference.training`), looked after by a monitor. What it learnt is one training state, so that a fit can be continued,
saved and resumed.
"""

import hashlib
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from ..density.components import Components
from ..density.conditional import ConditionalDensity, Source
from ..density.samples import DensitySamples
from ..inference.design import Design
from ..inference.training import Record, State
from ..model.inputs import Inputs
from ..model.latents import LatentPosterior
from ..model.likelihood import known_noise
from ..prediction.laplace import Laplace
from ..prediction.latent_posterior import infer
from ..prediction.nodes import Nodes
from ..prediction.paths import Path, draw_path
from ..prediction.predictor import Predictor, check_predicts
from ..runtime.files import pack
from ..runtime.memory import require_memory
from ..runtime.precision import scope
from ..runtime.randomness import folded, key_of
from ..runtime.spread import Spread, agreed
from . import checkpoints
from .base import DensityEstimator, Rows, check_alone, check_number, check_positive_integer, seed_of
from .companions import LEAST, Companions, Trial
from .course import Course
from .monitor import HISTORY, Monitor, on_host
from .network_training import split_rows
from .parquet import ParquetRows
from .plan import Plan, choose
from .skewed import bent_inputs, bent_units
from .streaming import StreamedRows, learn, look_over, streamed

try:  # scikit-learn 1.9 and later
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before, there is nothing to support

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """A stand-in."""

    def with_callbacks(method: Any) -> Any:
        return method


LEAST_ROWS, MOST_ROWS, MOST_OUTPUTS = 20, 100_000, 4
"""The least and the most rows, and the most outputs, that companions are thought of for, unless they are asked for.
With fewer rows columns are learnt as they are."""

Callback = Callable[["GPCDE", Record], bool | None]


class GPCDE(CallbackSupportMixin, DensityEstimator):
    """Conditional density estimation with a Gaussian process and latent inputs: y = P f([A x, w]) + noise.

    Everything left at None or "auto" is chosen from the data.

    Parameters
    ----------
    latent_dim : int, default=None
        D_w, the number of latents of a data point.
    inference : {"auto", "free-form", "amortised", "gaussian", "none"}, default="auto"
        Of q(w); "none" is sparse GP regression.
    n_inducing : int, default=None
        M, the number of inducing inputs.
    kernel : {"rbf", "matern32", "matern52"}, default="rbf"
        The kernel of the inputs.
    input_map : {"auto", "concatenate", "features", "project", "bend", "warp"}, default="auto"
        How inputs and latents make the GP's input; "project" is A.
    input_dim : int, default=None
        The number of rows of A.
    output_dim : int, default=None
        The number of columns of P; without it, P is the identity.
    design : Design, default=None
        The parts of the model, by name or as they are, in place of all of the above (see `gpcde.inference.Design`).
    companions : {"auto", True, False}, default="auto"
        Whether other densities stand beside the model, with the shares that held-out rows give them: Gaussian process
        regression, linear regression, a kernel estimate by the nearest rows, of few rows one by all of them, and, from
        100 rows on, an ensemble of mixture networks; "auto": where the model is left open too (no design,
        `inference="auto"`), from 20 to 100,000 rows in memory and up to four outputs.
    x_transform : {"auto"} or None, default="auto"
        "auto": columns of X that are skewed are learnt by an asinh where the rows are likelier so (no design, rows in
        memory); None: as they are.
    y_transform : {"auto", "log", "logit"} or None, default="auto"
        "log" for y above a bound, "logit" for y between two; None: y is learnt as it is. "auto": as it is, or by an
        asinh, which is nearly a logarithm, where y is skewed and the rows are likelier so (one output, no design, rows
        in memory).
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
    early_stopping : bool, default=False
        Hold out `validation_fraction` of the rows, and end (at the best state) when their bound has not risen for
        `patience` times 50 steps.
    validation_fraction : float, default=0.1
        The fraction of the rows that `early_stopping` holds out.
    patience : int, default=5
        How long `early_stopping` waits, in units of 50 steps.
    warm_start : bool, default=False
        Whether `fit` goes on from where the last `fit` ended.
    checkpoint : path, default=None
        A file to which training is saved every minute, and from which it resumes.
    devices : int or "all", default=None
        How many devices share the rows of a batch, or all, of all processes that `jax.distributed` joined; None: one.
    callbacks : list of callable, default=None
        Functions of (model, record), called every 50 steps; training stops where one returns True.
    random_state : int, RandomState or None, default=None
        A seed.
    verbose : bool, default=None
        None shows progress in a terminal, when it takes longer than a few seconds.

    Attributes
    ----------
    state_ : State
        The trained model, its q(u), and what training needs to go on.
    companions_ : Companions or None
        The `members` beside the model, and the `shares` of the density, the model's first; None: the model is alone.
    laplace_ : Laplace or None
        How sure the model is of its noise and its prior of w, for `sample_densities`; None: as sure as of a constant,
        or not known, where training was interrupted.
    history_ : dict of arrays
        Step, bound and validation bound a row, noise variance and seconds, every 50 steps.
    n_steps_ : int
        Steps in all.

    Examples
    --------
    >>> import numpy as np
    >>> from gpcde import GPCDE
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 1))
    >>> y = rng.choice([-1.0, 1.0], 100) * X[:, 0] + 0.1 * rng.standard_normal(100)
    >>> model = GPCDE(max_steps=50, random_state=0).fit(X, y)
    >>> model.predict_density([[1.5]]).interval(0.9).shape
    (1, 2)
    """

    _learnt: ClassVar[tuple[str, ...]] = (
        *DensityEstimator._learnt,
        "state_",
        "companions_",
        "laplace_",
        "history_",
        "n_seen_",
        "seed_",
        "digest_",
        "pause_",
        "weighed_",
        "n_steps_",
    )

    _unsaved: ClassVar[tuple[str, ...]] = ("warm_start", "checkpoint", "devices", "callbacks", "verbose")

    state_: State
    companions_: Companions | None = None  # as files of 0.1.0, which do not say
    laplace_: Laplace | None = None
    history_: dict[str, np.ndarray]
    n_seen_: float
    seed_: int
    digest_: str
    pause_: tuple[State | None, float, int]
    weighed_: bool = True
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
        design: Design | None = None,
        companions: bool | str = "auto",
        x_transform: str | None = "auto",
        y_transform: str | None = "auto",
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
        devices: int | str | None = None,
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
        self.design = design
        self.companions = companions
        self.x_transform = x_transform
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
        self.devices = devices
        self.callbacks = callbacks
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_is_fitted__(self) -> bool:
        """Not where it was interrupted before its first steps were done."""
        return super().__sklearn_is_fitted__() and int(self.state_.step) > 0

    # learning

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "GPCDE":
        """Learn p(y|x) from the rows of X and y.

        Parameters
        ----------
        X : array or data frame of shape (n, d), or ParquetRows
            Numbers; columns of text or categories in a data frame are categories. Or rows of files, which are read as
            they are needed, with their outputs and weights.
        y : array of shape (n,) or (n, D), default=None
            Outputs; None with ParquetRows.
        sample_weight : array of shape (n,), default=None
            What each row counts: a row of weight 2 is that row twice, a row of weight 0 is not there.

        Returns
        -------
        GPCDE
            Itself.

        Raises
        ------
        TrainingError
            If the bound is not finite, and smaller steps do not help.
        KeyboardInterrupt
            If it is interrupted. The model is then what it was after the last 50 steps that were done, which a
            FitWarning tells; not fitted, if there were none.
        StreamError
            If rows of a ParquetRows cannot be read; the model is then left as by an interruption.
        """
        again = self.warm_start and self.__sklearn_is_fitted__()
        Spread.over(self.devices)  # raises where there are not so many
        seed = seed_of(self.random_state)
        if self.devices is not None:
            seed = int(agreed(np.asarray(seed)))
        if not again:
            for name in (
                "state_",
                "pause_",
                "companions_",
                "laplace_",
                "weighed_",
            ):  # if this fit fails, the model is not fitted
                self.__dict__.pop(name, None)
        data = self._learn(X, y, sample_weight, seed, again)
        plan = self._plan(data)
        if self.checkpoint is not None:
            checkpoints.check_place(self.checkpoint)
        digest = "" if self.checkpoint is None else self._digest(data)
        saved, units = None if again else self._resumed(digest), self.transform_
        if saved is not None:
            self.__dict__.update(saved)
            if "n_steps_" in saved:  # it was finished
                return self
            if isinstance(data, Rows):
                data = data.bent(self.features_.bends).in_units(units, self.transform_)
        else:
            self.digest_, self.seed_ = digest, seed
        known, held = self._split(data)
        self.n_seen_, plain = known.total, None
        parts = [] if again else self._parts(known)
        if len(parts) == 1 and self.max_steps is None:
            plan = plan.going_on()
        if saved is not None and self.weighed_:
            parts = []
        if again:
            self._check_local(known.n_rows, "warm_start with another number of rows")
        elif saved is None:
            self.history_ = {name: np.zeros(0) for name in HISTORY}
            self.weighed_ = not parts
            some, total = (parts[0], parts[0].total) if len(parts) == 1 else (known.sample, self.n_seen_)
            course = Course(plan, seed, self.devices)
            plain = course.regression(some, total)
            if isinstance(known, Rows):
                plain = self._bend(some, course, plain)
                rows = (known, held, some, *parts)
                known, held, some, *parts = (
                    one.bent(self.features_.bends).in_units(units, self.transform_) for one in rows
                )
            plan = plan.settled(known_noise(plain.model.likelihood))
            self.state_ = on_host(course._replace(plan=plan).start(some, plain, total))
        done = 0 if saved is None else int(self.state_.step)
        self._train({"X": X, "y": y}, known, held, plan, plan.steps - done, parts, plain)
        return self

    def _learn(self, X: Any, y: Any, sample_weight: Any, seed: int, again: bool) -> Rows | StreamedRows:
        """The rows in standard units, those of the last fit or learnt from them."""
        if not isinstance(X, ParquetRows):
            if again:
                return self._more_rows(X, y, sample_weight)
            return self._learn_rows(X, y, sample_weight, self._transform, self.y_bounds, self._common_scale())
        check_alone(X, y, sample_weight)
        asked = X, seed, self._transform, self.y_bounds, self._common_scale(), Spread.over(self.devices)
        return streamed(self, X, look_over(*asked)) if again else learn(self, *asked)

    @with_callbacks
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "GPCDE":
        """Go on learning from these rows, in one pass: they are added to what q(u) knows of all rows seen so far.

        The first call is a `fit`. Rows should come in random order: kernel, noise and networks follow the last ones.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Inputs, in the columns that `fit` had.
        y : array of shape (n,) or (n, D)
            Outputs.
        sample_weight : array of shape (n,), default=None
            What each row counts.

        Returns
        -------
        GPCDE
            Itself.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y, sample_weight)
        data = self._more_rows(X, y, sample_weight)
        self._check_local(0, "partial_fit")
        plan = self._plan(data)
        batch = min(plan.batch_size, len(data.z))
        before, state = self.n_seen_, self.state_
        try:
            self.n_seen_ += float(data.weight.sum())
            self.state_ = _stretched(state, self.n_seen_ / before)  # then moved by each batch's share of all rows
            share = float(data.weight.mean()) * batch / self.n_seen_
            plan = plan._replace(batch_size=batch, rates=(plan.rates[1],) * 2, gammas=(share, share), exact=False)
            self._train({"X": X, "y": y}, data, data.take(slice(0)), plan, max(1, len(data.z) // batch))
        except BaseException:
            if int(self.state_.step) == int(state.step):  # nothing was learnt of the new rows
                self.n_seen_, self.state_ = before, state
            raise
        return self

    @property
    def _transform(self) -> str | None:
        """What is known of it before the rows are."""
        if self.y_transform not in ("auto", None, "log", "logit"):
            raise ValueError(f"y_transform must be 'auto', None, 'log' or 'logit', got {self.y_transform!r}")
        return None if self.y_transform == "auto" else self.y_transform

    def _common_scale(self) -> bool:
        """Whether the outputs are alike, and have one unit: where P mixes them."""
        return self.output_dim is not None or (isinstance(self.design, Design) and self.design.mixing is not None)

    def _plan(self, data: Rows | StreamedRows) -> Plan:
        self._check_validation()
        self._check_positive_integers("patience")
        if self.x_transform not in ("auto", None):
            raise ValueError(f"x_transform must be 'auto' or None, got {self.x_transform!r}")
        check_number("tol", self.tol, 0, closed=True)
        self._check_memory(data)
        settings, some = {name: getattr(self, name) for name in PARAMETERS}, data.sample
        levels = self.features_.levels if some.x.codes.shape[1] else ()
        plan = choose(settings, data.n_rows, some.x.dense.shape[1], levels, some.z)
        # the kernel's rows and their derivatives
        require_memory(f"batch_size={plan.batch_size}", [(plan.batch_size, plan.design.inducing)] * 4)
        if self.learning_rate is not None:
            check_number("learning_rate", self.learning_rate, 0)
            plan = plan._replace(rates=(self.learning_rate, 0.1 * self.learning_rate))
        latents = plan.design.inference
        own = latents == "gaussian" if isinstance(latents, str) else latents.local_dim > 0
        if self.early_stopping and own:
            raise ValueError(
                "early_stopping needs q(w) of rows that were held out: inference='gaussian' has none, "
                "use 'amortised' or 'free-form'"
            )
        if isinstance(data, StreamedRows) and (own or self.early_stopping):
            what, instead = ("early_stopping holds out rows", "leave it out, or score a ParquetRows of others")
            if own:
                what, instead = ("inference='gaussian' keeps a q(w) for every row", "use 'amortised' or 'free-form'")
            raise ValueError(f"{what}, which a ParquetRows, whose rows are streamed, does not allow: {instead}")
        return plan

    def _check_memory(self, data: Rows | StreamedRows) -> None:
        """Raise where what the settings ask for is more than there is memory."""
        rows, outputs = data.n_rows, self.n_outputs_
        wished = self.design.inducing if isinstance(self.design, Design) else self.n_inducing
        sizes = {"n_inducing": wished, "output_dim": self.output_dim, "input_dim": self.input_dim}
        for name, size in {**sizes, "latent_dim": self.latent_dim}.items():
            check_positive_integer(name, size, optional=True)
            size = min(size or 1, rows) if name == "n_inducing" else size or 1
            # q(u) and Kzz with their roots and gradients; else a matrix with its gradient and Adam's moments
            width = {"n_inducing": size, "output_dim": outputs, "input_dim": self.features_.width}.get(name, 50)
            require_memory(f"{name}={size}", [(size, width)] * 4)

    def _check_local(self, rows: int, what: str) -> None:
        """Each data point's own q(w_n) belongs to the rows of the first fit."""
        if self.state_.local is not None and len(self.state_.local.value) != rows:
            raise ValueError(f"inference='gaussian' keeps a q(w) for every row of fit: it cannot do {what}")

    def _split(self, data: Rows | StreamedRows) -> tuple[Rows | StreamedRows, Rows]:
        """The rows to learn from, and those held out."""
        if not self.early_stopping or isinstance(data, StreamedRows):
            return data, data.sample.take(slice(0))
        kept, held = split_rows(np.random.default_rng(self.seed_), data.n_rows, self.validation_fraction)
        if len(kept) < 2:
            raise ValueError(f"early_stopping leaves {len(kept)} of {data.n_rows} rows to learn from; give more rows")
        return data.take(np.sort(kept)), data.take(np.sort(held))

    def _parts(self, rows: Rows | StreamedRows) -> list[Rows]:
        """The rows, each time without some that are to weigh companions; nothing where there are to be none."""
        if self.companions not in ("auto", True, False):
            raise ValueError(f"companions must be 'auto', True or False, got {self.companions!r}")
        left_open = self.design is None and self.inference == "auto" and self.devices is None
        fits = LEAST_ROWS <= rows.n_rows <= MOST_ROWS and self.n_outputs_ <= MOST_OUTPUTS
        wanted = left_open and fits if self.companions == "auto" else self.companions
        inputs = rows.sample.x
        return rows.parts(self.seed_) if wanted and inputs.dense.shape[1] + inputs.codes.shape[1] else []

    def _bend(self, rows: Rows, course: Course, plain: State) -> State:
        """Take up an asinh of skewed columns, where these rows ask for it; the regression then."""
        inputs = rows.x.dense.shape[1] + rows.x.codes.shape[1]
        if self.design is not None or self.devices is not None or rows.n_rows < LEAST_ROWS or not inputs:
            return plain

        def learnt(some: Rows) -> State:
            return course.regression(some, some.total, plain)

        bends = bent_inputs(rows, plain, learnt, course.evidence) if self.x_transform == "auto" else None
        if bends is not None:
            self.features_, plain = self.features_._replace(bends=bends[0]), bends[1]
        if self.y_transform == "auto" and self.n_outputs_ == 1:
            levels = self.features_.levels if rows.x.codes.shape[1] else ()
            rows = rows.bent(self.features_.bends)
            units = bent_units(rows, self.transform_, levels, self.seed_, plain, learnt, course.evidence)
            if units is not None:
                self.transform_, plain = units
        return plain

    def _begin(self, known: Rows, parts: Sequence[Rows], plain: State | None, course: Course, monitor: Monitor) -> None:
        """Train on parts of the rows, and weigh companions by the others.

        Of one part, the state goes on: it has learnt most of the rows. Where there are two designs, the one goes on
        that the other rows find likelier. Of several, each has its own for a trial, and training begins with all rows.
        """
        plan, going_on, trials = course.plan, len(parts) == 1, []
        for part in parts:
            first = plain if going_on and plain is not None else course.regression(part, part.total)
            begun = self.state_ if going_on else course.start(part, first, part.total)
            left, watch = plan.trial_steps - int(begun.step), monitor if going_on else None
            likely = course.likely(part, first)
            trials.append(Trial(part, likely, course.steps(begun, part, part.total, left, watch)))
            if plan.other is not None and going_on and not monitor.stopped:
                another = course._replace(plan=plan._replace(design=plan.other))
                alike = plan.other.input_map == plan.design.input_map
                begun = another.start(part, first if alike else None, part.total)
                state = another.steps(begun, part, part.total, plan.trial_steps)
                trials[0] = Trial.better(known, trials[0], Trial(part, likely, state))

        def whole() -> list[list[State]]:
            if not going_on and plain is not None:
                return course.likely(known, plain)
            return course.likely(known, course.regression(known, known.total, first if going_on else None))

        levels = self.features_.levels if known.x.codes.shape[1] else ()
        self.companions_ = Companions.of(known, whole, trials, levels, self.seed_)
        if going_on:
            self.state_ = on_host(_stretched(trials[0].state, self.n_seen_ / trials[0].rows.total))
            monitor.reach(self.state_)
            # what answers hardly have a part of is not worth more steps
            monitor.stopped |= self.companions_ is not None and self.companions_.shares[0] < LEAST
        self.weighed_ = True

    def _train(
        self,
        task: dict[str, Any],
        known: Rows | StreamedRows,
        held: Rows,
        plan: Plan,
        steps: int,
        parts: Sequence[Rows] = (),
        plain: State | None = None,
    ) -> None:
        """That many steps more on the known rows, looked after (`monitor`); before, parts of them weigh companions."""
        self.__dict__.pop("n_steps_", None)
        with scope():
            test = held.data if held.n_rows else None
            jacobian = known.mean_slope(self.transform_, held)
            course = Course(plan, self.seed_, self.devices)
            with Monitor(self, test, steps, plan.exact, jacobian, task) as monitor:
                if self.devices is not None:  # where processors differ, so may the last bits of a start
                    self.state_ = agreed(self.state_)
                first = int(self.state_.step)
                if parts:
                    self._begin(known.sample, parts, plain, course, monitor)
                if not monitor.stopped:
                    course.steps(self.state_, known, self.n_seen_, steps + first - int(self.state_.step), monitor)
            self._look_back(known)
        if self.checkpoint is not None:
            checkpoints.write(self)

    def _look_back(self, known: Rows | StreamedRows) -> None:
        """Find how sure the model is of its surfaces, by the rows it was trained on, and those before them."""
        before, share = self.laplace_, 1 - known.total / self.n_seen_
        found = Laplace.of(self.state_.model, self.state_.posterior, known.sample.data, known.total)
        if found is not None and before is not None and share > 0:
            found = before.joined(found, share)
        self.laplace_ = found

    # checkpoints

    def _digest(self, data: Rows | StreamedRows) -> str:
        """What tells these data and settings from others."""
        left_out = (*self._unsaved, "design")
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in left_out}
        parts: dict[str, np.ndarray] = {}
        design = pack(self.design, parts)  # whose repr would leave out the numbers of its parts
        digest = hashlib.sha256(repr((sorted(params.items()), design)).encode())
        for array in (*data.contents(), *parts.values()):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def _resumed(self, digest: str) -> dict[str, Any] | None:
        saved = None if self.checkpoint is None else checkpoints.read(self.checkpoint, digest)
        if saved is None:
            return None
        if not isinstance(saved, GPCDE) or saved.digest_ != digest:
            raise ValueError(
                f"checkpoint {self.checkpoint} belongs to other data or settings: delete it, or name another file"
            )
        return {name: getattr(saved, name) for name in self._learnt if hasattr(saved, name)}

    def _restored(self) -> None:
        if not all(hasattr(self, name) for name in ("history_", "n_seen_", "seed_", "digest_")):
            raise ValueError("it lacks some of what it should have learnt")
        if set(self.history_) != set(HISTORY) or len({a.shape for a in self.history_.values()}) > 1:
            raise ValueError("its history is not one of training")
        if not 0 < self.n_seen_ < np.inf or not 0 <= self.seed_ < 2**31:
            raise ValueError("it cannot have seen so many rows, or been seeded so")
        with scope():
            self.state_ = on_host(self.state_)
            x = self._used(self.features_.blank())
            check_predicts(self.state_.model, self.state_.posterior, x, self.n_outputs_)
            for one in () if self.companions_ is None else self.companions_.members:
                one.check_fits(x, self.n_outputs_)
            if self.laplace_ is not None:
                self.laplace_.check_fits(self.state_.model)

    # answers

    def predictor(self, nodes: Nodes | None = None) -> Predictor:
        """What makes densities of inputs in standard units: the trained model, ready to predict.

        Parameters
        ----------
        nodes : Nodes, default=None
            The latents a prediction is a mixture over; None: enough for the model.

        Returns
        -------
        Predictor
            See `gpcde.prediction`.
        """
        return Predictor.create(self.state_.model, self.state_.posterior, nodes)

    def _source(self, inputs: Inputs) -> Source:
        predictor = self.predictor()

        def components(rows: Int[np.ndarray, " b"]) -> Components:
            return predictor.components(inputs.take(rows))

        def log_pdf(rows: Int[np.ndarray, " b"], z: Float[np.ndarray, "b D"]) -> Float[np.ndarray, " b"]:
            return predictor.log_density(inputs.take(rows), z)

        source = Source(components, log_pdf)
        return source if self.companions_ is None else self.companions_.beside(source, inputs)

    def infer_latent(self, X: Any, y: Any) -> LatentPosterior:
        """Which latents the rows came from: q(w|x, y).

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Inputs.
        y : array of shape (n,) or (n, D)
            Outputs.

        Returns
        -------
        LatentPosterior
            Mean and standard deviation of each row's w and, for free-form q, nodes and weights.
        """
        x, z = self._standard_rows(X, y)
        return infer(self.state_.model, self.state_.posterior, x, z)

    def sample_densities(self, X: Any, n: int = 50, random_state: Any = None) -> DensitySamples:
        """Densities drawn from what the model believes: error bars on the density itself, by `band`.

        Parameters
        ----------
        X : array or data frame
            The rows whose densities are drawn.
        n : int, default=50
            How many draws.
        random_state : int, RandomState or None, default=None
            A seed.

        Returns
        -------
        DensitySamples
            A `ConditionalDensity` for every draw.
        """
        if not n >= 1:
            raise ValueError(f"n, the number of draws, must be at least 1, got {n!r}")
        seed = seed_of(random_state)
        inputs = self._apply_tables(X)
        with scope():
            keys = [folded(key_of(seed), i) for i in range(n)]
            return DensitySamples([self._drawn(key, inputs) for key in keys])

    def path(self, key: PRNGKeyArray) -> Path:
        """One function of (x, w), all that the model is uncertain of drawn.

        Parameters
        ----------
        key : PRNG key
            Of the draw.

        Returns
        -------
        Path
            See `gpcde.prediction`.
        """
        model = self.state_.model if self.laplace_ is None else self.laplace_.drawn(key, self.state_.model)
        return draw_path(key, model, self.state_.posterior)

    def _drawn(self, key: PRNGKeyArray, inputs: Inputs) -> ConditionalDensity:
        """The densities if all that is uncertain were as it is drawn here."""
        other = None if self.companions_ is None else self.companions_.drawn(key)
        drawn = other or self.path(key).components
        source = Source(lambda rows: drawn(inputs.take(rows)))
        return ConditionalDensity(source, self.transform_, inputs.n_rows, self.flat_)


def _stretched(state: State, factor: float) -> State:
    """The state for that many times the rows: what q(u) knows are sums over them."""
    return eqx.tree_at(lambda s: s.posterior, state, jax.tree.map(lambda a: np.asarray(a) * factor, state.posterior))


PARAMETERS = {name: p.default for name, p in inspect.signature(GPCDE.__init__).parameters.items() if name != "self"}
for _name, _default in PARAMETERS.items():
    setattr(GPCDE, _name, _default)  # a special case may leave some of them out
