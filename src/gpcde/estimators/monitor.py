"""Looking on while a model trains: history, progress, callbacks, checkpoints, and when to stop."""

import time
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Float
from tqdm.auto import tqdm

from ..inference.bound import Batch, draw, evaluate_bound
from ..inference.training import Record, State
from ..runtime.compilation import compiled

if TYPE_CHECKING:
    from .gpcde import GPCDE

HISTORY = ("step", "bound", "validation", "noise_variance", "seconds")

CHECKPOINT_SECONDS, PROGRESS_DELAY = 60.0, 5.0


def on_host(state: State) -> State:
    """The state as NumPy arrays: so it can be pickled and sent about, outside our 64-bit scope."""
    return jax.tree.map(np.asarray, state)


class Monitor:
    """Called by `train` after every chunk of steps; a context manager, for the progress bar's sake.

    `held` are rows kept out of training, `exact` says whether the bound is free of noise, `jacobian` is what a log
    density loses from standard units to the user's, and `task` what scikit-learn's callbacks are told of the data.
    """

    def __init__(
        self, model: "GPCDE", held: Batch | None, steps: int, exact: bool, jacobian: float, task: dict[str, Any]
    ) -> None:
        self.model, self.held, self.task = model, held, task
        self.steps, self.exact, self.jacobian = steps, exact, jacobian
        # with early stopping: the best state, its bound, and how many chunks have passed since
        pause: tuple[State | None, float, int] = getattr(model, "pause_", (None, -np.inf, 0))
        self.best, self._best_bound, self._waited = pause
        self._saved, self._first = time.monotonic(), int(model.state_.step)
        self._earlier, self._seconds = -np.inf, 0.0
        if len(model.history_["step"]):  # training that is resumed goes on as if nothing had been
            self._earlier, self._seconds = (float(model.history_[name][-1]) for name in ("bound", "seconds"))

    def __enter__(self) -> "Monitor":
        verbose = self.model.verbose
        self._bar = tqdm(
            total=self.steps,
            desc=type(self.model).__name__,
            unit="step",
            leave=bool(verbose),
            disable=None if verbose is None else not verbose,
            delay=PROGRESS_DELAY if verbose is None else 0,
        )
        self._context = None
        if getattr(self.model, "_skl_callbacks", None):
            self._context = self.model._init_callback_context(max_subtasks=None)
            self._context.call_on_fit_task_begin(estimator=self.model, **self.task)
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()
        if self._context is not None and error[0] is None:
            learnt = {"state_": self.model.state_ if self.best is None else on_host(self.best)}
            self._context.call_on_fit_task_end(estimator=self.model, reconstruction_attributes=learnt, **self.task)

    def __call__(self, state: State, record: Record) -> bool:
        """Note what happened; True where training should stop."""
        model = self.model
        record = record._replace(bound=record.bound - self.jacobian, seconds=record.seconds + self._seconds)
        validation = np.nan
        if self.held is not None:
            validation = float(_held_out_bound(state, self.held)) - self.jacobian
        values = (record.step, record.bound, validation, record.noise_variance, record.seconds)
        model.history_ = {name: np.append(model.history_[name], v) for name, v in zip(HISTORY, values, strict=True)}
        self._bar.set_postfix(bound=f"{record.bound:.4f}", refresh=False)
        self._bar.update(record.step - self._first - int(self._bar.n))
        stop = self._is_enough(state, record.bound, validation)
        due = model.checkpoint is not None and time.monotonic() - self._saved > CHECKPOINT_SECONDS
        if model.callbacks or self._context is not None or due:
            model.state_ = on_host(state)  # a model that can answer, whoever asks
        for callback in model.callbacks or ():
            stop = bool(callback(model, record)) or stop
        if self._context is not None:
            part = self._context.subcontext(task_name="steps")
            part.call_on_fit_task_begin(estimator=model, **self.task)
            learnt = {"state_": model.state_}
            stop = part.call_on_fit_task_end(estimator=model, reconstruction_attributes=learnt, **self.task) or stop
        if due and model.checkpoint is not None:
            best = None if self.best is None else on_host(self.best)
            model.pause_ = best, self._best_bound, self._waited
            model.save(model.checkpoint)
            self._saved = time.monotonic()
        return stop

    def _is_enough(self, state: State, bound: float, validation: float) -> bool:
        """Whether the bound (of held-out rows, if there are any) has stopped rising."""
        gain, self._earlier = bound - self._earlier, bound
        if self.held is None:
            return self.exact and abs(gain) < self.model.tol
        if validation > self._best_bound:
            self.best, self._best_bound, self._waited = state, validation, 0
        else:
            self._waited += 1
        return self._waited >= self.model.patience


@compiled
def _held_out_bound(state: State, held: Batch) -> Float[Array, ""]:
    """The bound of rows that training does not see, a row."""
    n = held.y.shape[0]
    noise = draw(jax.random.key(0), state.model, n)
    return evaluate_bound(state.model, state.posterior, held, noise, n).data / n
