"""Where training starts: a model that needs no tuning, from 20 rows to millions.

1. A model without latents is trained for a moment (by Adam, or by L-BFGS to its end): it tells the lengthscales of x
   and the noise.
2. Its residuals, made Gaussian by their ranks, are a first guess of each w_n: what x does not explain. The recognition
   network (or each point's own q(w_n)) starts from that guess, and q(u) at its optimum given it. So the latents are in
   use from the first step, and cannot collapse for want of a start.
3. Inducing inputs are k-means centres of the contexts (x or A x), and quasi-random in w.
4. A few starts that differ in noise and in the lengthscale of w are trained for a moment; the best bound goes on.

Data are expected in standard units: columns of x and y with mean 0 and variance near 1.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import ndtri
from threadpoolctl import threadpool_limits

from ..model.input_maps import Concatenate, InputMap
from ..model.inputs import Inputs, make_inputs
from ..model.latents import Latents, NoLatents
from ..model.likelihood import ConstantNoise, known_noise
from ..model.mixing import Mixing, PointMixing
from ..model.model import Model
from ..runtime.blocks import by_blocks
from ..runtime.compilation import compiled
from ..runtime.precision import on_device, scope
from ..runtime.randomness import entropy
from .bound import mean_outputs
from .collapsed import highest_bound, likely, maximised
from .components import gaussianised
from .data import Batch, whole
from .design import LITTLE_NOISE, TRIALS, Design
from .schedule import Geometric
from .training import State, Trainer, TrainingError, optimal_posterior, train

ENOUGH, PLENTY = 2_000, 50_000
"""Rows that tell where to start, and where each of many categories does; more only take time."""

QUIET = 0.02
"""A noise to begin with, in standard units, that leaves all to be told by the kernel: more would take up what inputs
tell together, before their lengthscales are found."""

FAINT = 0.1
"""How much of what is believed of kernel, noise and trend many rows are told, and half of the regressions of few."""

ROUNDING = 1e-4
"""Nats a row by which two maxima may differ that are the same."""

TRIAL_STEPS, TRIAL_BATCH = 20, 512
"""How long each start is tried, and on how many rows a step."""


def start(
    key: PRNGKeyArray,
    x: Inputs,
    y: Float[np.ndarray, "n D"],
    design: Design,
    weight: Float[np.ndarray, " n"] | None = None,
    n_data: float | None = None,
    plain: State | None = None,
) -> State:
    """A state to train from, for these data and this design.

    Parameters
    ----------
    key : PRNG key
        Of all that is random.
    x : Inputs
        The inputs, in standard units.
    y : array of shape (n, D_y)
        The outputs, in standard units.
    design : Design
        The parts of the model.
    weight : array of shape (n,), default=None
        What each row counts; None: 1.
    n_data : float, default=None
        For how many rows these stand, where they are a sample; None: for themselves.
    plain : State, default=None
        The model without latents, as `regression` makes it of the same arguments; None: it is made.

    Returns
    -------
    State
        With a model whose kernel, noise, latents and inducing inputs suit the data.

    Examples
    --------
    >>> import gpcde
    >>> import jax
    >>> import numpy as np
    >>> from gpcde.inference import Design, Trainer, start, train, whole
    >>> from gpcde.model import make_inputs
    >>> rng = np.random.default_rng(0)
    >>> x, y = make_inputs(rng.standard_normal((30, 1))), rng.standard_normal((30, 1))
    >>> with gpcde.scope():
    ...     key = jax.random.key(0)
    ...     state = start(key, x, y, Design(inducing=5, points=10, trials=1))
    ...     trainer = Trainer.create(n_data=30, learning_rate=0.02, gamma=1.0)
    ...     state, records = train(trainer, key, state, whole(x, y), steps=20, batch_size=30, chunk=10)
    ...     state.model.inducing_points.shape, [record.step for record in records]
    ((5, 2), [10, 20])
    """
    rows = _checked(key, x, y, design, weight, n_data)
    plain = _without_latents(key, design, rows) if plain is None else plain
    y, n_data, some = rows.y, rows.n_data, rows.some
    with scope():
        input_map = rows.input_map
        latents = design.make_latents(key, x, y.shape[1])
        if not latents.dim:
            return _finished(design, _as_designed(key, design, plain, input_map, some, n_data), n_data)
        known = whole(x, y, rows.weight) if latents.local_dim else some
        starts = with_latents(key, rows.rng, design, plain, known, n_data, TRIALS[: design.trials])
        return _finished(design, _best(key, starts, known, n_data), n_data)


def regression(
    key: PRNGKeyArray,
    x: Inputs,
    y: Float[np.ndarray, "n D"],
    design: Design,
    weight: Float[np.ndarray, " n"] | None = None,
    n_data: float | None = None,
    lengthscales: Float[np.ndarray, " c"] | None = None,
    like: State | None = None,
) -> State:
    """The model of this design without its latents, trained: where `start` begins.

    Parameters
    ----------
    key, x, y, design, weight, n_data
        As for `start`.
    lengthscales : array of shape (c,), default=None
        Of the kernel, one for each column of the context, to train from; None: the same for all.
    like : State, default=None
        Such a model of other rows or units, to train from, its lengthscales in place of those given.

    Returns
    -------
    State
        Sparse Gaussian process regression of y on the contexts.
    """
    return _without_latents(key, design, _checked(key, x, y, design, weight, n_data), lengthscales, like)


def regression_bound(
    key: PRNGKeyArray,
    x: Inputs,
    y: Float[np.ndarray, "n D"],
    design: Design,
    weight: Float[np.ndarray, " n"],
    n_data: float,
    plain: State,
) -> float:
    """What regression says of rows: its bound a row.

    Parameters
    ----------
    key, x, y, design, weight, n_data
        As for `regression`.
    plain : State
        The model without latents, as `regression` makes it of them.

    Returns
    -------
    float
        In nats, in standard units.
    """
    rows = _checked(key, x, y, design, weight, n_data)
    return highest_bound(_first_trainer(design, rows.n_data), key, plain, rows.some, _belief(design, rows.some))


@scope()
def regressions(
    key: PRNGKeyArray,
    x: Inputs,
    y: Float[np.ndarray, "n D"],
    design: Design,
    weight: Float[np.ndarray, " n"],
    n_data: float,
    plain: State,
    count: int,
) -> list[list[State]]:
    """Regressions of rows that are as likely as each other, where few rows leave kernel, noise and trend open.

    Parameters
    ----------
    key, x, y, design, weight, n_data
        As for `regression`.
    plain : State
        The model without latents, as `regression` makes it of them.
    count : int
        How many, a power of two.

    Returns
    -------
    list of list of State
        Which differ in kernel, noise, trend and q(u): half of them by what is believed of these, half by a tenth of it.
    """
    rows = _checked(key, x, y, design, weight, n_data)
    asked = _first_trainer(design, rows.n_data), key
    free, _ = max(_little_believed(*asked, design, (plain, _bent(plain)), rows.some), key=lambda found: found[1])
    halves = ((plain, 1.0), (free, FAINT))
    return [likely(*asked, state, rows.some, count // 2, belief) for state, belief in halves]


class _Rows(NamedTuple):
    """What a start looks at: some of the rows, or many of them where there are categories to place."""

    rng: np.random.Generator
    y: Float[np.ndarray, "n D"]
    weight: Float[np.ndarray, " n"]
    n_data: float
    some: Batch
    input_map: InputMap


def _checked(
    key: PRNGKeyArray,
    x: Inputs,
    y: Float[np.ndarray, "n D"],
    design: Design,
    weight: Float[np.ndarray, " n"] | None,
    n_data: float | None,
) -> _Rows:
    y = np.asarray(y, float)
    levels = sum(design.levels)
    if x.codes.shape[1] != len(design.levels) or (x.codes.size and x.codes.max() >= levels):
        raise ValueError(f"levels={design.levels} do not fit the {x.codes.shape[1]} category columns of the inputs")
    if y.ndim != 2 or x.n_rows != len(y):
        raise ValueError(f"y must be a matrix with a row for each of the {x.n_rows} rows of x, got shape {y.shape}")
    weight = np.ones(len(y)) if weight is None else weight
    n_data = float(weight.sum()) if n_data is None else n_data
    rng = np.random.default_rng(entropy(key))
    with scope():
        shuffled = rng.permutation(len(y))
        some, many = (whole(x.take(r), y[r], weight[r]) for r in (shuffled[:ENOUGH], shuffled[:PLENTY]))
        input_map = design.make_input_map(key, many.x, np.asarray(many.y))
    return _Rows(rng, y, weight, n_data, some, input_map)


def with_latents(
    key: PRNGKeyArray,
    rng: np.random.Generator,
    design: Design,
    plain: State,
    known: Batch,
    n_data: float,
    trials: Sequence[tuple[float, float]],
) -> list[State]:
    """Steps 2 and 3: the model without latents goes on with them, for each share of noise and lengthscale of w."""
    means = by_blocks(partial(_mean, plain), (known.x,), PLENTY)
    w = gaussianised(rng, known.y - means, design.latent_dim)
    latents = design.make_latents(key, known.x, known.y.shape[1])
    latents, local = latents.start(known.x, known.y, w)
    input_map = design.make_input_map(key, known.x, np.asarray(known.y)).with_latents(plain.model.input_map)
    places, inputs = _latent_inputs(rng, design, input_map, plain, known, w)
    states = []
    for share, lengthscale in trials:
        model = _completed(key, design, plain.model, known.x, input_map, latents, places, share, lengthscale)
        states.append(_at_optimum(key, model, whole(make_inputs(inputs), known.y, known.weight), n_data, local))
    return states


def _best(key: PRNGKeyArray, starts: list[State], known: Batch, n_data: float) -> State:
    """The start with the best bound after a few steps, these steps done; a start that breaks down is out."""
    if len(starts) == 1:
        return starts[0]
    trainer = Trainer.create(n_data, 0.03, 1.0 if len(known.y) <= TRIAL_BATCH else 0.1)
    best, bound, failure = None, -np.inf, None
    for state in starts:
        try:
            tried, _ = train(trainer, key, state, known, TRIAL_STEPS, TRIAL_BATCH)
            tried, records = train(trainer, key, tried, known, TRIAL_STEPS // 2, TRIAL_BATCH)
        except TrainingError as error:
            failure = error
            continue
        if records[-1].bound > bound:
            best, bound = tried, records[-1].bound
    if best is None:
        raise TrainingError("no start could be trained") from failure
    return best


def _finished(design: Design, state: State, n_data: float) -> State:
    """As if training had not begun, in the design's precision."""
    model = jax.tree.map(lambda a: a.astype(design.dtype), state.model)
    local = None if state.local is None else state.local.value.astype(design.dtype)
    return Trainer.create(n_data).init(model, state.posterior, local)


def _centres(points: Float[np.ndarray, "n c"], count: int) -> Float[np.ndarray, "m c"]:
    """k-means++ centres after a few rounds, or the points themselves where few differ."""
    from sklearn.cluster import KMeans  # 80 MB that prediction does not need

    unique = np.unique(points, axis=0)
    if len(unique) <= count:
        return unique
    with threadpool_limits(1, user_api="openmp"):  # threads add up in the order they finish
        return KMeans(count, n_init=1, max_iter=10, random_state=0).fit(points).cluster_centers_


def _spread(rng: np.random.Generator, count: int, dim: int) -> Float[np.ndarray, "m d"]:
    """Points spread like N(0, I), in an order that knows nothing of the contexts they are joined with."""
    from scipy.stats import qmc

    if dim == 1:
        return ndtri((rng.permutation(count)[:, None] + 0.5) / count)
    return ndtri(qmc.Halton(dim, scramble=True, rng=rng).random(count))


def _halves(
    input_map: InputMap, x: Inputs, w: Float[np.ndarray, "n d"]
) -> tuple[Float[np.ndarray, "n b"], Float[np.ndarray, "n r"]]:
    """The two sides of the GP's inputs at these latents, A at its mean."""
    return by_blocks(partial(_sides, input_map), (x, w), PLENTY)


@compiled
def _sides(input_map: InputMap, x: Inputs, w: Float[Array, "n d"]) -> tuple[Float[Array, "n b"], Float[Array, "n r"]]:
    context = input_map.context(x, jnp.zeros((x.n_rows, input_map.draw_dim)))
    left, right = input_map.halves(context, w[:, None])
    return left, right[:, 0]


def _latent_inputs(
    rng: np.random.Generator,
    design: Design,
    input_map: InputMap,
    plain: State,
    known: Batch,
    w: Float[np.ndarray, "n d"],
) -> tuple[Float[np.ndarray, "M h"], Float[np.ndarray, "n h"]]:
    """Inducing inputs, and the GP's inputs if the guess of w were the truth: on the right the latents, not yet moved.

    Where the map makes something else of the latents than as many moved ones, its own answer is taken.
    """
    left, right = _halves(input_map, known.x, w)
    if right.shape[1] == w.shape[1]:
        right, spread = w, _spread(rng, design.inducing, w.shape[1])
    else:
        spread = right[rng.choice(len(right), design.inducing)]
    places = np.asarray(plain.model.inducing_points)
    if design.first_inducing is not None and left.shape[1]:
        places = _centres(left, design.inducing)
    inducing = np.resize(places, (design.inducing, left.shape[1]))
    return np.concatenate([inducing, spread], axis=1), np.concatenate([left, right], axis=1)


@scope()
def _without_latents(
    key: PRNGKeyArray,
    design: Design,
    rows: _Rows,
    lengthscales: Float[np.ndarray, " c"] | None = None,
    like: State | None = None,
) -> State:
    """Step 1: sparse GP regression, of the outputs on the contexts; with no contexts, the prior.

    A q(P) that has its own steps waits for the next: they would take P to zero while nothing is known of f.
    """
    some, n_data, input_map = rows.some, rows.n_data, rows.input_map.without_latents()
    left, _ = _halves(input_map, some.x, np.zeros((len(some.y), 0)))
    width, mixing = left.shape[1], design.make_mixing(some.y.shape[1])
    centres = _centres(left, design.first_inducing or design.inducing) if width else np.zeros((1, 0))
    model = Model(
        design.make_kernel(width, lengthscales),
        on_device(centres),
        input_map,
        NoLatents(),
        _held(mixing) if mixing.period else mixing,
        design.plain_likelihood(),
        trend=design.make_trend(width),
        jitter=design.make_jitter(),
    )
    if like is not None:
        model = eqx.tree_at(_found, model, _found(like.model))
    trainer = _first_trainer(design, n_data)
    state = trainer.init(model)
    if width and design.first == "lbfgs":
        belief = _belief(design, some)
        if belief < 1 and like is None:
            state = _by_few(trainer, key, design, state, some, left)
        state = maximised(trainer, key, state, some, design.first_steps, belief)
    elif width:
        state, _ = train(trainer, key, state, some, design.first_steps, len(some.y))
    if mixing.period:
        state = trainer.init(eqx.tree_at(lambda m: m.mixing, state.model, mixing), state.posterior)
    return state


def _bent(state: State) -> State:
    """The same with next to no line in it."""
    return eqx.tree_at(lambda s: s.model.trend, state, state.model.trend.small())


def _little_believed(
    trainer: Trainer, key: PRNGKeyArray, design: Design, starts: Sequence[State], some: Batch
) -> list[tuple[State, float]]:
    """The maxima from these starts by the little that many rows are told, and their bounds a row."""
    found = [maximised(trainer, key, begun, some, design.first_steps, FAINT) for begun in starts]
    return [(one, highest_bound(trainer, key, one, some, FAINT)) for one in found]


def _belief(design: Design, some: Batch) -> float:
    """How much of what is believed a priori these rows are told: of many, little."""
    many = design.first_rows is not None and np.count_nonzero(np.asarray(some.weight)) > design.first_rows
    return FAINT if many else 1.0


def _found(model: Model) -> Any:
    """What is found of the model without latents, but for its inducing inputs."""
    return model.kernel, model.input_map, model.likelihood, model.trend


def _by_few(
    trainer: Trainer,
    key: PRNGKeyArray,
    design: Design,
    state: State,
    some: Batch,
    left: Float[np.ndarray, "n c"],
) -> State:
    """This state with the kernel, noise and trend that are found by a few of these rows.

    With an inducing input on each of them nothing is sparse. Fewer than rows make the bound prefer a kernel that is
    too smooth, with which they can tell all: another maximum, from which there is no way to the better one. Nor is
    there one from a line of all inputs alike, once it is there, to a process with a large variance and long
    lengthscales, which is nearly a line, and a bent one, of the inputs that matter: so another start is without, and
    goes on where its maximum is higher, by what little is believed of either.
    """
    few = np.flatnonzero(np.asarray(some.weight) > 0)[: design.first_rows]
    part, centres, noise = some.take(few), on_device(_centres(left[few], len(few))), state.model.likelihood
    if design.noise_variance is None:
        noise = noise.with_noise_variance(QUIET)
    alone = _first_trainer(design, float(part.weight.sum()))
    first = alone.init(eqx.tree_at(lambda m: (m.likelihood, m.inducing_points), state.model, (noise, centres)))
    found = maximised(alone, key, first, part, design.first_steps)
    (_, before), (other, after) = _little_believed(alone, key, design, (found, _bent(first)), part)
    best = other if after > before + ROUNDING else found
    return trainer.init(eqx.tree_at(_found, state.model, _found(best.model)))


def _first_trainer(design: Design, n_data: float) -> Trainer:
    """Of the model without latents."""
    return Trainer.create(n_data, Geometric.create(0.1, 0.01, design.first_steps), 1.0)


def _as_designed(
    key: PRNGKeyArray, design: Design, plain: State, input_map: InputMap, some: Batch, n_data: float
) -> State:
    """The model without latents, with the design's own kernel, map and noise where the first steps had simpler ones."""
    before = plain.model
    kernel = before.kernel if isinstance(design.kernel, str) else design.kernel
    likelihood = before.likelihood
    if not (isinstance(design.likelihood, str) and design.likelihood == "constant"):
        likelihood = design.make_likelihood(key, some.x).with_noise_variance(known_noise(before.likelihood))
    model = dataclasses.replace(
        before, kernel=kernel, input_map=input_map.with_latents(before.input_map), likelihood=likelihood
    )
    if model.kernel is before.kernel and model.input_map is before.input_map and likelihood is before.likelihood:
        return plain
    trainer = Trainer.create(n_data)
    return optimal_posterior(trainer, key, trainer.init(model, plain.posterior), some)


def _held(mixing: Mixing) -> PointMixing:
    """E[P], as it is."""
    return PointMixing.create(mixing.apply(jnp.eye(mixing.shape[1])).T, learn=False)


@compiled
def _mean(state: State, x: Inputs) -> Float[Array, "n D"]:
    return mean_outputs(state.model, state.posterior, x)


def _completed(
    key: PRNGKeyArray,
    design: Design,
    plain: Model,
    x: Inputs,
    input_map: InputMap,
    latents: Latents,
    inducing: Float[np.ndarray, "M h"],
    share: float,
    lengthscale: float,
) -> Model:
    """The model with latents, whose noise is a share of that without, and whose kernel goes on from that without."""
    width = plain.inducing_points.shape[1]
    scale = lengthscale * input_map.latent_lengthscale
    before = known_noise(plain.likelihood)
    noise, left = before * share, None
    places = np.asarray(plain.inducing_points)
    if design.trend_inducing is not None and len(places) > design.trend_inducing:
        plain = eqx.tree_at(lambda m: m.inducing_points, plain, on_device(_centres(places, design.trend_inducing)))
    trend = design.extend_trend(plain)
    if trend is plain.trend:
        if design.beliefs:
            # from too little there is no way back to a density that varies: rows are told apart by w alone; without
            # contexts nothing is known of it
            noise = max(noise, LITTLE_NOISE) if width else LITTLE_NOISE
    else:  # the mean is the trend's, and what is left is for the kernel to divide
        left = before - noise
    kernel = design.extend_kernel(plain.kernel, width, inducing.shape[1] - width, scale, left)
    likelihood = design.make_likelihood(key, x).with_noise_variance(noise)
    return Model(
        kernel,
        on_device(inducing),
        input_map,
        latents,
        plain.mixing,
        likelihood,
        design.make_prior(key, x),
        trend,
        plain.jitter,
    )


def _at_optimum(
    key: PRNGKeyArray, model: Model, pairs: Batch, n_data: float, local: Float[Array, "n p"] | None
) -> State:
    """The state with q(u) at its optimum if these inputs of the GP were known."""
    parts = Concatenate(pairs.x.dense.shape[1]), NoLatents(), ConstantNoise.create(known_noise(model.likelihood))
    regression = eqx.tree_at(lambda m: (m.input_map, m.latents, m.likelihood), model, parts)
    trainer = Trainer.create(n_data)
    posterior = optimal_posterior(trainer, key, trainer.init(regression), pairs).posterior
    return trainer.init(model, posterior, local)
