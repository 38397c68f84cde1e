"""Looking on while a model trains: history, progress, callbacks, checkpoints, and when to stop.

However training ends, by itself, by an error, by rows that cannot be read or by Ctrl-C, the model is left in the last
good state, which its history and number of steps fit.
"""

import time
import warnings
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Float
from tqdm.auto import tqdm

from ..inference.bound import draw, evaluate_bound
from ..inference.data import Batch, StreamError
from ..inference.training import LostProcess, Record, State, TrainingError
from ..runtime.compilation import compiled
from ..runtime.randomness import key_of
from . import checkpoints

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
        self._reached: tuple[State, ...] = (model.state_,)
        self.stopped = False
        self.waiting = False  # while parts of the model are held, the bound does not say when to end
        self._began, self._earlier, self._seconds = time.perf_counter(), -np.inf, 0.0
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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._bar.close()
        self._settle(error)
        if self._context is not None and error is None:
            learnt = {"state_": self.model.state_}
            self._context.call_on_fit_task_end(estimator=self.model, reconstruction_attributes=learnt, **self.task)
        if isinstance(error, KeyboardInterrupt | StreamError | LostProcess):
            self._warn()

    def _settle(self, error: BaseException | None) -> None:
        """Leave the model in the best or the last good state; interrupted, with a checkpoint to go on from."""
        model, states = self.model, [*reversed(self._reached)]
        if isinstance(error, TrainingError) and error.state is not None:
            states = [error.state]
        elif error is not None:  # its next step would have told
            states = [state for state in states if _is_finite(state)] or states
        done = model.history_["step"] <= int(states[0].step)
        model.history_ = {name: values[done] for name, values in model.history_.items()}
        model.state_ = on_host(states[0])
        stopped = isinstance(error, KeyboardInterrupt | StreamError | LostProcess)
        if stopped and model.checkpoint is not None and len(self._reached) > 1:
            self._save()
        if self.best is not None:
            model.state_ = on_host(self.best)
        model.__dict__.pop("pause_", None)
        model.n_steps_ = int(model.state_.step)

    def _warn(self) -> None:
        done = self.model.n_steps_
        text = f"fit was interrupted: the model is that of step {done}, from which a fit with warm_start=True goes on"
        if not done:
            text = "fit was interrupted before its first steps were done: the model is not fitted"
        elif self.model.checkpoint is not None:
            text = f"{text}. The same fit, made again, goes on from its checkpoint {self.model.checkpoint}"
        warnings.warn(text, checkpoints.FitWarning, stacklevel=4)

    def _save(self) -> None:
        """A checkpoint of the model as it is."""
        best = None if self.best is None else on_host(self.best)
        self.model.pause_ = best, self._best_bound, self._waited
        checkpoints.write(self.model)
        self._saved = time.monotonic()

    def __call__(self, state: State, record: Record) -> bool:
        """Note what happened; True where training should stop."""
        model = self.model
        seconds = self._seconds + time.perf_counter() - self._began
        record = record._replace(bound=record.bound - self.jacobian, seconds=seconds)
        validation = np.nan
        if self.held is not None:
            validation = float(_held_out_bound(state, self.held)) - self.jacobian
        values = (record.step, record.bound, validation, record.noise_variance, record.seconds)
        earlier = model.history_["step"] < record.step  # else steps were taken back
        model.history_ = {
            name: np.append(model.history_[name][earlier], value) for name, value in zip(HISTORY, values, strict=True)
        }
        self.reach(state)
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
        if due:
            self._save()
        self.stopped = stop
        return stop

    def reach(self, state: State) -> None:
        """This is where training is now, and where an interruption leaves it."""
        self._reached = (*self._reached[-1:], state)

    def _is_enough(self, state: State, bound: float, validation: float) -> bool:
        """Whether the bound (of held-out rows, if there are any) has stopped rising."""
        gain, self._earlier = bound - self._earlier, bound
        if self.waiting:
            return False
        if self.held is None:
            return self.exact and abs(gain) < self.model.tol
        if validation > self._best_bound:
            self.best, self._best_bound, self._waited = state, validation, 0
        else:
            self._waited += 1
        return self._waited >= self.model.patience


def _is_finite(state: State) -> bool:
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(state))


@compiled
def _held_out_bound(state: State, held: Batch) -> Float[Array, ""]:
    """The bound of rows that training does not see, a row."""
    n = held.y.shape[0]
    noise = draw(key_of(0), state.model, n)
    return evaluate_bound(state.model, state.posterior, held, noise, n).data / n
