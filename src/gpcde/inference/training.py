"""Training: natural gradients for q(u), Adam for the rest, in compiled chunks of steps.

A natural-gradient step of size γ is a convex combination of statistics, since the likelihood is Gaussian:

    G ← (1-γ) G + γ N/B sum_nk r_nk/s_nk a_nk a_nkᵀ        H ← (1-γ) H + γ N/B sum_nk r_nk/s_nk a_nk y_nᵀ

With γ = 1 on all the data, at fixed q(w), that is the analytic optimum; for free-form q(w), which follows q(u), one
EM step, which never lowers the bound. A q(u) that has no natural step (`Shared`) is optimised by Adam like all else.

`Trainer.step(key, state, batch) -> (state, info)` is pure. `train` runs it in chunks, notices a non-finite bound
within the chunk, and goes back to the chunk's start with smaller steps.

A mean that was found before there were latents (`Trend.is_found`) is not to be lost: what moves it by more than σ costs
more than can be gained. Then σ² follows by natural steps too, and Adam's rate rises at first and is less for small σ.
"""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..model.inputs import AnyArray
from ..model.likelihood import known_noise
from ..model.mixing import Mixing
from ..model.model import Model
from ..runtime.blocks import rung
from ..runtime.compilation import compiled, shapes_of
from ..runtime.files import Stored, check_fields, check_positive, register
from ..runtime.precision import on_device, require_wide, scope, wide
from ..runtime.randomness import folded
from ..runtime.spread import Spread, agreed, together
from .bound import Draws, Terms, draw, evaluate_bound
from .data import Batch, Data
from .forms import inverse_cholesky
from .posterior import Coefficients, Statistics, VariationalPosterior
from .schedule import Geometric


class TrainingError(RuntimeError):
    """Training could not go on; the message says why, as far as can be told. What was reached is kept with it.

    Parameters
    ----------
    message : str
        Why.
    state : State, default=None
        The last good state.
    records : list of Record, default=None
        What was recorded until then.
    """

    def __init__(self, message: str, state: "State | None" = None, records: "list[Record] | None" = None) -> None:
        super().__init__(message)
        self.state, self.records = state, records or []


class LostProcess(TrainingError):
    """Another process of the run is gone; what was reached is kept, and a checkpoint goes on in any number of them."""


@register
class Local(NamedTuple):
    """Each data point's own q(w_n), and Adam's moments for it; only the rows of a batch are touched."""

    value: Float[Array, "N p"]
    first: Float[Array, "N p"]
    second: Float[Array, "N p"]
    steps: Int[Array, " N"]

    def check_values(self) -> None:
        """Raise where a file holds what cannot be."""
        check_fields(self)
        check_positive(self, "second", "steps", least=0)


class State(Stored):
    """All that training changes.

    Parameters
    ----------
    step : int array of shape ()
        The number of steps so far.
    model : Model
        The model.
    posterior : VariationalPosterior
        q(u).
    adam : optax.OptState
        Adam's moments.
    local : Local or None
        Each data point's own q(w_n), where there are any, and Adam's moments for it.
    caution : array of shape ()
        What all step sizes are multiplied by: it falls below 1 when a step has to be taken back.
    """

    step: Int[Array, ""]
    model: Model
    posterior: VariationalPosterior
    adam: optax.OptState
    local: Local | None
    caution: Float[Array, ""]

    def check_values(self) -> None:
        check_fields(self, "adam")
        check_positive(self, "step", least=0)
        check_positive(self, "caution")
        kept = None if self.local is None else self.local.value
        if _types(self) != _types(shapes_of(_begun, self.model, self.posterior, kept)):
            raise ValueError("Adam's moments do not fit the model, or what else training keeps beside it")
        if not all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(self.adam)):
            raise ValueError("Adam's moments hold NaN or infinity")
        if (0 if self.local is None else self.local.value.shape[1]) != self.model.latents.local_dim:
            raise ValueError("the q(w) of its rows do not fit the model")


class Info(NamedTuple):
    """What a step tells."""

    bound: Float[Array, ""]
    finite: Bool[Array, ""]


QUIET, RISE = 0.1, 100
"""Where training is steady (`Trend.is_found`): the σ² below which Adam's rate falls with σ, and the steps in which it
rises at first."""


Learnt = tuple[Model, VariationalPosterior | None]
"""What Adam optimises."""


class Gradients(NamedTuple):
    """Derivatives of the bound: by what Adam optimises, by the batch's own q(w_n), by the coefficients of q(u)."""

    learnt: Learnt
    local: Float[Array, "n p"] | None
    coefficients: Coefficients | None


def _types(state: State) -> Any:
    """Shape and type of all its arrays."""
    return jax.tree.structure(state), [(a.shape, a.dtype) for a in jax.tree.leaves(state)]


def _begun(model: Model, posterior: VariationalPosterior, local: Float[Array, "N p"] | None) -> State:
    kept = None
    if local is not None:
        zeros = jnp.zeros_like(local)
        kept = Local(local, zeros, zeros, jnp.zeros(len(local), jnp.int32))
    adam = optax.scale_by_adam().init((model, posterior.trained()))
    state = State(jnp.zeros((), jnp.int32), model, posterior, adam, kept, jnp.ones(()))
    # weakly typed scalars would turn strong in the first chunk, and the second compile anew
    return jax.tree.map(lambda a: jax.lax.convert_element_type(a, jnp.asarray(a).dtype), state)


_fresh = compiled(_begun)


class Trainer(eqx.Module):
    """How to train: for how many rows a batch stands, and the step sizes.

    Parameters
    ----------
    n_data : array of shape ()
        The number of rows of the data (the sum of their weights).
    learning_rate : Geometric
        Of Adam.
    gamma : Geometric
        γ, the size of natural-gradient steps, between 0 and 1.
    spread : Spread, default=None
        The devices that share the rows of a batch; None: one.
    """

    n_data: Float[Array, ""]
    learning_rate: Geometric
    gamma: Geometric
    spread: Spread | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        require_wide("Trainer")

    @classmethod
    def create(
        cls,
        n_data: float,
        learning_rate: Geometric | float = 0.01,
        gamma: Geometric | float = 0.1,
        devices: int | str | None = None,
    ) -> "Trainer":
        """For data of `n_data` rows (the sum of their weights), with step sizes that change, or constant ones.

        Parameters
        ----------
        n_data : float
            The number of rows of the data (the sum of their weights).
        learning_rate : Geometric or float, default=0.01
            Of Adam.
        gamma : Geometric or float, default=0.1
            γ, the size of natural-gradient steps, between 0 and 1.
        devices : int or "all", default=None
            How many devices share the rows of a batch; None: one.
        """
        rate = learning_rate if isinstance(learning_rate, Geometric) else Geometric.create(learning_rate)
        size = gamma if isinstance(gamma, Geometric) else Geometric.create(gamma)
        with scope():
            return cls(on_device(np.float64(n_data)), rate, size, Spread.over(devices))

    def init(
        self,
        model: Model,
        posterior: VariationalPosterior | None = None,
        local: Float[Array, "N p"] | None = None,
    ) -> State:
        """The state before the first step.

        Parameters
        ----------
        model : Model
            The model.
        posterior : VariationalPosterior, default=None
            q(u); by default at the prior.
        local : array of shape (N, p), default=None
            The parameters of each data point's own q(w_n), where there are any; by default those of N(0, I).

        Returns
        -------
        State
            At step 0.
        """
        with scope():
            return self._init(model, posterior, local)

    def _init(self, model: Model, posterior: VariationalPosterior | None, local: Array | None) -> State:
        if posterior is None:
            posterior = Statistics.prior(model.width, model.mixing.shape[0])
        own = model.latents.local_dim
        if own and local is None:
            local = jnp.zeros((int(self.n_data), own), model.inducing_points.dtype)
        return _fresh(model, posterior, local if own else None)

    def step(self, key: PRNGKeyArray, state: State, batch: Batch) -> tuple[State, Info]:
        """One step: one forward and one backward pass, for both optimisers."""
        draws = draw(key, state.model, batch.y.shape[0])
        terms, gradients = (self.gradients if self.spread is None else self._shared_gradients)(draws, state, batch)
        size = optax.tree.norm(gradients, squared=True)
        info = Info(terms.bound, jnp.isfinite(terms.bound) & jnp.isfinite(size))

        rate = self._rate(state)
        updates, adam = optax.scale_by_adam().update(gradients.learnt, state.adam)
        learnt: Learnt = state.model, state.posterior.trained()
        model, trained = jax.tree.map(lambda p, u: p + (rate * u).astype(p.dtype), learnt, updates)
        gamma = self.gamma(state.step) * state.caution
        if state.model.mixing.period:
            mixing = mixing_step(state.model.mixing, gradients.learnt[0].mixing, gamma, state.step)
            model = eqx.tree_at(lambda m: m.mixing, model, mixing)
        if state.model.trend.is_found:
            before, slope = state.model.likelihood, gradients.learnt[0].likelihood
            noise = before.natural_step(model.likelihood, slope, gamma, self.n_data * batch.y.shape[1])
            model = eqx.tree_at(lambda m: m.likelihood, model, noise)
        posterior = state.posterior if trained is None else trained
        posterior = posterior.natural_step(gradients.coefficients, state.model.noise_variance, gamma)
        local = state.local
        if local is not None and gradients.local is not None:
            local = _local_adam(local, batch.rows, gradients.local, rate)
        return State(state.step + 1, model, posterior, adam, local, state.caution), info

    def _rate(self, state: State) -> Float[Array, ""]:
        """Adam's step size."""
        rate = self.learning_rate(state.step) * state.caution
        if not state.model.trend.is_found:
            return rate
        little = jnp.sqrt(jnp.minimum(1.0, state.model.noise_variance / QUIET))
        return rate * little * jnp.minimum(1.0, (state.step + 1) / RISE)

    def gradients(self, draws: Draws, state: State, batch: Batch) -> tuple[Terms, Gradients]:
        """The bound's terms, and its gradients: for Adam, for each point's q(w_n), and for the natural step."""
        local = None if state.local is None else state.local.value[batch.rows]

        def objective(by: Gradients) -> tuple[Array, Terms]:
            model, trained = by.learnt
            posterior = state.posterior if trained is None else trained
            terms = evaluate_bound(model, posterior, batch, draws, self.n_data, by.local, by.coefficients)
            return terms.bound, terms

        at = Gradients((state.model, state.posterior.trained()), local, state.posterior.nudge())
        (_, terms), gradients = jax.value_and_grad(objective, has_aux=True)(at)
        return terms, gradients

    def optimum(self, draws: Draws, state: State, batch: Batch) -> VariationalPosterior:
        """q(u) after a natural-gradient step of size 1, which asks for no other derivative."""
        local = None if state.local is None else state.local.value[batch.rows]

        def objective(nudge: Coefficients | None) -> Float[Array, ""]:
            return evaluate_bound(state.model, state.posterior, batch, draws, self.n_data, local, nudge).bound

        slope = jax.grad(objective)(state.posterior.nudge())
        return state.posterior.natural_step(slope, state.model.noise_variance, 1.0)

    def _shared_gradients(self, draws: Draws, state: State, batch: Batch) -> tuple[Terms, Gradients]:
        """The same by devices that share the rows: each thinks that its own are the batch.

        The bound is one of sums over rows, divided by what the batch counts, so that those of the devices add up to it,
        each times what its own rows count of all.
        """
        spread = self.spread
        assert spread is not None
        n, count = batch.y.shape[0], spread.mesh.size
        if state.model.latents.one_draw:
            draws = draws._replace(latent=jnp.broadcast_to(draws.latent[:1], draws.latent.shape))
        rows = jax.tree.map(lambda a: jnp.concatenate([a, jnp.repeat(a[-1:], -n % count, axis=0)]), (draws, batch))
        present = jnp.arange(n + -n % count) < n

        def own(same: tuple[Trainer, State], rows: tuple[Draws, Batch, Array]) -> tuple[Any, Array | None]:
            (trainer, state), (draws, batch, present) = same, rows
            weight = jnp.where(present, batch.weight, 0.0)
            counts = jnp.sum(weight)
            share = counts / spread.total(counts)
            # a device whose rows count nothing has its share of nothing, which must be a number
            batch = batch._replace(weight=jnp.where(counts > 0, weight, 1.0))
            terms, found = trainer.gradients(draws, state, batch)
            terms, learnt, coefficients, local = jax.tree.map(
                lambda a: (share * a).astype(a.dtype), (terms, found.learnt, found.coefficients, found.local)
            )
            return spread.total((terms, learnt, coefficients)), local

        (terms, learnt, coefficients), local = spread.by_rows(own, (self, state), (*rows, present))
        return terms, Gradients(learnt, None if local is None else local[:n], coefficients)


def mixing_step(mixing: Mixing, gradient: Mixing, gamma: Float[Array, ""], step: Int[Array, ""]) -> Mixing:
    """P after its own natural-gradient step, in its own type; where none is due, as it was."""

    def moved() -> Mixing:
        new = wide(mixing).natural_step(wide(gradient), gamma)
        return jax.tree.map(lambda a, old: a.astype(old.dtype), new, mixing)

    return jax.lax.cond(step % mixing.period == 0, moved, lambda: mixing)


def _local_adam(kept: Local, index: Int[AnyArray, " n"], gradient: Float[Array, "n p"], rate: Array) -> Local:
    adam = optax.scale_by_adam()
    moments = optax.ScaleByAdamState(kept.steps[index], kept.first[index], kept.second[index])
    updates, moments = jax.vmap(adam.update)(gradient, moments)
    return Local(
        kept.value.at[index].add((rate * updates).astype(kept.value.dtype)),
        kept.first.at[index].set(moments.mu),
        kept.second.at[index].set(moments.nu),
        kept.steps.at[index].set(moments.count),
    )


class Chunk(NamedTuple):
    """What a chunk of steps tells."""

    state: State
    bounds: Float[Array, " t"]
    done: Int[Array, ""]
    finite: Bool[Array, ""]


@compiled
def run_chunk(
    trainer: Trainer,
    key: PRNGKeyArray,
    state: State,
    data: Batch,
    rows: Int[AnyArray, "#t b"],
    count: Int[AnyArray, ""],
    bounds: Float[AnyArray, " t"],
) -> Chunk:
    """The first `count` of a chunk's steps, or fewer: it ends at the first non-finite bound.

    `rows` are those of each step, or of all; `bounds`, which are overwritten, say how many steps there may be.
    """

    def body(chunk: Chunk) -> Chunk:
        index = rows[jnp.minimum(chunk.done, rows.shape[0] - 1)]
        state, info = trainer.step(jax.random.fold_in(key, chunk.state.step), chunk.state, data.take(index))
        return Chunk(state, chunk.bounds.at[chunk.done].set(info.bound), chunk.done + 1, info.finite)

    start = Chunk(state, jnp.asarray(bounds), jnp.zeros((), jnp.int32), jnp.ones((), bool))
    end = jax.lax.while_loop(lambda chunk: (chunk.done < count) & chunk.finite, body, start)
    return end if trainer.spread is None else trainer.spread.same(end)


def _run(trainer: Trainer, *args: Any) -> Chunk:
    """A chunk of steps on one device, or on those that share the rows: its result as this process's own."""
    spread = trainer.spread
    if spread is None:
        return run_chunk(trainer, *args)
    with together():
        return jax.block_until_ready(spread.here(run_chunk(*spread.everywhere((trainer, *args)))))


class Record(NamedTuple):
    """Where training is, after a chunk; the bound is per data point, averaged over the chunk.

    Parameters
    ----------
    step : int
        The number of steps so far.
    bound : float
        The bound a data point.
    noise_variance : float
        σ².
    seconds : float
        The time since training began.
    end : int
        The step training ends with, unless it is stopped.
    """

    step: int
    bound: float
    noise_variance: float
    seconds: float
    end: int = 0


Watcher = Callable[[State, Record], bool | None]


def train(
    trainer: Trainer,
    key: PRNGKeyArray,
    state: State,
    data: Data,
    steps: int,
    batch_size: int,
    chunk: int = 50,
    watch: Watcher | None = None,
) -> tuple[State, list[Record]]:
    """That many steps more.

    Unless a step has to be taken back, the result depends on the key, not on the size of the chunks; a state stopped
    and taken up again goes on as if nothing had been. See `start` for an example.

    Parameters
    ----------
    trainer : Trainer
        The step sizes.
    key : PRNG key
        Of minibatches and draws.
    state : State
        Where training is, from `start` or `Trainer.init`.
    data : Batch or Stream
        All rows (`whole`), or how to read them.
    steps : int
        How many steps to take.
    batch_size : int
        Rows a step takes.
    chunk : int, default=50
        Steps that run between two records.
    watch : callable, default=None
        A function of (state, record), called after each chunk; training stops where it returns True.

    Returns
    -------
    state : State
        Where training ended.
    records : list of Record
        One for each chunk.

    Raises
    ------
    TrainingError
        If the bound is not finite and smaller steps do not help.
    StreamError
        If rows that are streamed cannot be read.
    """
    began = time.perf_counter()
    records: list[Record] = []
    spread = trainer.spread
    with scope(), closing(data.batches(key, batch_size, spread)) as batches:
        bounds = np.zeros(chunk)
        end = int(state.step) + steps
        earlier, failures, trouble = state, 0, -1
        stopped = False
        while True:
            at = int(state.step)
            over = stopped or at >= end
            # a step's bound is that of the state before it: one step more, thrown away, vouches for the last
            count = 1 if over else min(chunk, end - at)
            try:
                some, rows = batches(at, count, chunk)
                result = _run(trainer, key, state, some, rows, np.asarray(count), bounds)
            except ConnectionError as error:
                raise LostProcess(str(error), state, records) from error
            if not bool(result.finite):
                failures, trouble, stopped = failures + 1, at + int(result.done) - 1, False
                if failures > 4:
                    raise TrainingError(_likely_cause(state, some, trouble), earlier, records)
                if trouble == at and earlier is not state:  # the step before broke it: a chunk further back
                    state = earlier
                    records.pop()
                state = earlier = eqx.tree_at(lambda s: s.caution, state, state.caution * 0.3)
                continue
            if over:
                break
            earlier, state = state, result.state
            if int(state.step) > trouble + 1:
                failures = 0
            records.append(
                Record(
                    int(state.step),
                    float(np.asarray(result.bounds)[:count].mean() / float(trainer.n_data)),
                    known_noise(state.model.likelihood),
                    time.perf_counter() - began,
                    end,
                )
            )
            stopped = watch is not None and bool(watch(state, records[-1]))
            if spread is not None:
                stopped = _agreed_on(stopped, state, records)
    return state, records


def _agreed_on(stopped: bool, state: State, records: list[Record]) -> bool:
    """Whether the first process stops here."""
    try:
        return bool(agreed(np.asarray(stopped)))
    except ConnectionError as error:
        raise LostProcess(str(error), state, records) from error


def _likely_cause(state: State, data: Batch, step: int) -> str:
    """A sentence for a person, from what the last good state looks like."""
    state = jax.tree.map(jnp.asarray, state)
    text = f"the bound is not finite at step {step}, and smaller steps did not help. "
    biggest = float(jnp.abs(data.y).max())
    if not np.isfinite(biggest) or not bool(jnp.isfinite(data.x.dense).all()):
        return text + "The data hold NaN or infinity: remove or impute those rows."
    if not all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(state.model)):
        return text + "The model holds NaN or infinity from the start: look at how it was initialised."
    noise = float(state.model.noise_variance)
    if not bool(jnp.isfinite(inverse_cholesky(state.model.gram())).all()):
        return (
            text + "Kzz is not positive definite: inducing inputs coincide or lengthscales are too long; "
            "give Design a larger jitter."
        )
    if noise < 1e-10:
        return (
            text + f"The noise variance fell to {noise:.1e}: outputs may repeat exactly; give Design a noise_variance."
        )
    if biggest > 1e6:
        return text + f"Outputs reach {biggest:.1e}: standardise y first."
    return text + "Try a smaller learning_rate, or give Design a larger jitter."


@compiled
def _statistics(
    trainer: Trainer, key: PRNGKeyArray, state: State, batch: Batch, share: Float[AnyArray, ""]
) -> VariationalPosterior:
    part = trainer.optimum(draw(key, state.model, batch.y.shape[0]), state, batch)
    return jax.tree.map(lambda a: share * a, part)


def optimal_posterior(trainer: Trainer, key: PRNGKeyArray, state: State, data: Batch, batch_size: int = 4096) -> State:
    """The state with q(u) at its analytic optimum, given q(w) (for free-form q(w), after one EM step).

    Parameters
    ----------
    trainer : Trainer
        For how many rows the data stand.
    key : PRNG key
        Of the draws.
    state : State
        Whose q(u) is held as `Statistics`.
    data : Batch
        All rows (`whole`).
    batch_size : int, default=4096
        Rows that are looked at together.

    Returns
    -------
    State
        The same but for q(u).
    """
    if jax.eval_shape(state.posterior.nudge) is None:
        raise TypeError("the analytic optimum of q(u) is given by statistics: start from Statistics, not Shared")
    with scope():
        n, weight = data.y.shape[0], np.asarray(data.weight)
        total: VariationalPosterior | None = None
        for begin in range(0, n, batch_size):
            rows = slice(begin, min(begin + batch_size, n))
            if not weight[rows].any():  # rows that count nothing
                continue
            share = np.asarray(weight[rows].sum() / weight.sum())
            batch = jax.tree.map(np.asarray, data).take(rows).padded(min(batch_size, rung(rows.stop - begin)))
            part = _statistics(trainer, folded(key, begin), state, batch, share)
            total = part if total is None else jax.tree.map(jnp.add, total, part)
        return eqx.tree_at(lambda s: s.posterior, state, total)
