"""Where training starts: a model that needs no tuning, from 20 rows to millions.

1. A model without latents is trained for a moment: it tells the lengthscales of x and the noise.
2. Its residuals, made Gaussian by their ranks, are a first guess of each w_n: what x does not explain. The recognition
   network (or each point's own q(w_n)) starts from that guess, and q(u) at its optimum given it. So the latents are in
   use from the first step, and cannot collapse for want of a start.
3. Inducing inputs are k-means centres of the contexts (x or A x), and quasi-random in w.
4. A few starts that differ in noise and in the lengthscale of w are trained for a moment; the best bound goes on.

Data are expected in standard units: columns of x and y with mean 0 and variance near 1.
"""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import ndtri
from threadpoolctl import threadpool_limits

from ._bound import Batch, Model, whole
from ._compile import compiled
from ._input_maps import Bend, Concatenate, InputMap, Project, Warp
from ._inputs import Inputs, make_inputs
from ._kernels import RBF, Kernel, Matern32, Matern52, Product
from ._latents import FreeForm, GaussianLatents, Latents, NoLatents, recognise
from ._mixing import ConjugateMixing, GaussianMixing, Identity, Mixing, PointMixing
from ._networks import MLP
from ._precision import scope
from ._predict import predict
from ._schedule import Geometric, entropy
from ._train import State, Trainer, TrainingError, optimal_posterior, train

ENOUGH, PLENTY = 2_000, 50_000
"""Rows that tell where to start, and where each of many categories does; more only take time."""

TRIALS = ((0.3, 1.0), (0.05, 0.5), (0.3, 2.0))
"""Starts to try: the share of the noise that is left once w is known, and the lengthscale of w."""

FIRST_STEPS, TRIAL_STEPS, TRIAL_BATCH = 100, 20, 512
"""How long the model without latents and each start are tried, and on how many rows a step."""

KERNELS = {"rbf": RBF, "matern32": Matern32, "matern52": Matern52}


@dataclasses.dataclass(frozen=True)
class Design:
    """What model to build.

    inference         q(w): "none", "free-form", "amortised" (a recognition network), "gaussian" (each data point's own)
    latent_dim        D_w
    inducing          M
    kernel            "rbf", "matern32", "matern52", of the context, with RBF in w; for the warp, of the moved latent
    input_map         "concatenate", "project" (A, with `input_dim` rows), "bend" (of x, or of A x where `input_dim`
                      is given) or "warp"
    levels            the numbers of levels of the category columns of the inputs
    mixing            a start for P (D_y × L), "fixed", learnt by "map", "gaussian" (by Adam) or "conjugate" (in closed
                      form) as `mixing_posterior` says; without it P is the identity
    expectation       of a Gaussian q(w): by "draws", "closed" or "importance" (weighted), with so many `draws`
    points, rule      of the quadrature for free-form q(w): "gauss-hermite" or "even"
    noise_variance    fixed at this value, if given
    trials            how many starts to try
    """

    inference: str = "free-form"
    latent_dim: int = 1
    inducing: int = 100
    kernel: str = "rbf"
    input_map: str = "concatenate"
    input_dim: int = 0
    levels: tuple[int, ...] = ()
    mixing: Float[np.ndarray, "D L"] | None = None
    mixing_posterior: str = "gaussian"
    expectation: str = "draws"
    draws: int = 1
    full_covariance: bool = False
    hidden: tuple[int, ...] = (50, 50, 50)
    points: int | None = None
    rule: str = "gauss-hermite"
    noise_variance: float | None = None
    dtype: str = "float64"
    jitter: float | None = None
    trials: int = len(TRIALS)

    def __post_init__(self) -> None:
        options = {
            "inference": ("none", "free-form", "amortised", "gaussian"),
            "kernel": tuple(KERNELS),
            "input_map": ("concatenate", "project", "bend", "warp"),
            "mixing_posterior": ("fixed", "map", "gaussian", "conjugate"),
            "rule": ("gauss-hermite", "even"),
            "expectation": ("draws", "closed", "importance"),
            "dtype": ("float64", "float32"),
        }
        for name, allowed in options.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}")
        if self.inference != "none" and self.latent_dim < 1:
            raise ValueError(f"inference={self.inference!r} needs latent_dim of at least 1, got {self.latent_dim}")
        moving = self.input_map in ("bend", "warp")
        if moving and self.inference == "none":
            raise ValueError(
                f"input_map={self.input_map!r} moves the latents, so it needs some: inference must not be 'none'"
            )
        if self.input_map == "project" and self.input_dim < 1:
            raise ValueError("input_map='project' needs input_dim, the number of rows of A, to be at least 1")
        if self.levels and not (self.input_map == "warp" or self.projects):
            raise ValueError("categories need input_map='project', 'warp', or 'bend' with input_dim")
        closed = self.inference in ("amortised", "gaussian") and self.expectation == "closed"
        if closed and (self.kernel != "rbf" or moving):
            raise ValueError(
                "expectation='closed' needs kernel='rbf' and input_map 'concatenate' or 'project'; use 'draws' instead"
            )
        if self.inference == "free-form" and self.latent_dim > 2:
            raise ValueError(
                f"inference='free-form' is computed by quadrature, in one or two latent dimensions, not in "
                f"{self.latent_dim}; for more, use a Gaussian q(w): inference='amortised' or 'gaussian'"
            )
        for name in ("inducing", "trials", "draws"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def projects(self) -> bool:
        """Whether there is an A."""
        return self.input_map == "project" or (self.input_map == "bend" and self.input_dim > 0)


def start(key: PRNGKeyArray, x: Inputs, y: Float[np.ndarray, "n D"], design: Design) -> State:
    """A state to train from, for these data and this design."""
    y = np.asarray(y, float)
    n_data = len(y)
    levels = sum(design.levels)
    if x.codes.shape[1] != len(design.levels) or (x.codes.size and x.codes.max() >= levels):
        raise ValueError(f"levels={design.levels} do not fit the {x.codes.shape[1]} category columns of the inputs")
    if y.ndim != 2 or x.n_rows != n_data:
        raise ValueError(f"y must be a matrix with a row for each of the {x.n_rows} rows of x, got shape {y.shape}")
    rng = np.random.default_rng(entropy(key))
    with scope():
        shuffled = rng.permutation(n_data)
        some, many = (whole(x.take(rows), y[rows]) for rows in (shuffled[:ENOUGH], shuffled[:PLENTY]))
        plain = _without_latents(key, design, _input_map(key, design, many), some, n_data)
        if design.inference == "none":
            return _finished(design, plain, n_data)

        known = whole(x, y) if design.inference == "gaussian" else some
        starts = with_latents(key, rng, design, plain, known, n_data, TRIALS[: design.trials])
        return _finished(design, _best(key, starts, known, n_data), n_data)


def with_latents(
    key: PRNGKeyArray,
    rng: np.random.Generator,
    design: Design,
    plain: State,
    known: Batch,
    n_data: int,
    trials: Sequence[tuple[float, float]],
) -> list[State]:
    """Steps 2 and 3: the model without latents goes on with them, for each share of noise and lengthscale of w."""
    residuals = np.asarray(known.y)
    if design.input_map != "warp":
        blocks = [np.arange(i, min(i + PLENTY, len(residuals))) for i in range(0, len(residuals), PLENTY)]
        residuals = residuals - np.concatenate([_mean(plain, known.x.take(rows)) for rows in blocks])
    w = gaussianised(rng, residuals, design.latent_dim)
    latents, local = _latents(key, design, known, w)
    spread = _spread(rng, design.inducing, design.latent_dim)
    return [_completed(key, design, plain, latents, known, w, spread, *trial, n_data, local) for trial in trials]


def _best(key: PRNGKeyArray, starts: list[State], known: Batch, n_data: int) -> State:
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


def _finished(design: Design, state: State, n_data: int) -> State:
    """As if training had not begun, in the design's precision."""
    model = jax.tree.map(lambda a: a.astype(design.dtype), state.model)
    local = None if state.local is None else state.local.value.astype(design.dtype)
    return Trainer.create(n_data).init(model, state.posterior, local)


def _jitter(design: Design) -> float:
    if design.jitter is not None:
        return design.jitter
    return 1e-6 if design.dtype == "float64" else 1e-4


def _mixing(design: Design, outputs: int) -> Mixing:
    if design.mixing is None:
        return Identity(outputs)
    if design.mixing.shape[0] != outputs:
        raise ValueError(f"mixing has {design.mixing.shape[0]} rows, but y has {outputs} columns")
    if design.mixing_posterior == "conjugate":
        return ConjugateMixing.create(design.mixing)
    if design.mixing_posterior == "gaussian":
        return GaussianMixing.create(design.mixing)
    return PointMixing.create(design.mixing, learn=design.mixing_posterior == "map")


def _input_rows(x: Inputs, design: Design) -> int:
    return x.dense.shape[1] + sum(design.levels)


def _input_map(key: PRNGKeyArray, design: Design, some: Batch) -> InputMap:
    """The map before there are latents; the warp's is Concatenate of nothing."""
    dense = some.x.dense.shape[1]
    if design.projects:
        return Project(*projection_start(key, design, some))
    return Concatenate(0 if design.input_map == "warp" else dense)


def projection_start(
    key: PRNGKeyArray, design: Design, some: Batch
) -> tuple[Float[Array, "rows c"], Float[Array, "rows c"]]:
    """A's mean and log standard deviations: dense features by their principal directions, categories by their outputs.

    A level's place is the mean of its examples' leading principal components, so that levels with like outputs start
    near each other; components that do not exist, and levels not seen, are drawn from the prior.
    """
    width = design.input_dim
    mean = np.array(jax.random.normal(key, (_input_rows(some.x, design), width)))
    dense = np.asarray(some.x.dense)
    if dense.shape[1]:
        vectors = np.linalg.svd(dense - dense.mean(0), full_matrices=False)[2][:width]
        mean[: dense.shape[1]] *= 0.1
        mean[: dense.shape[1], : len(vectors)] += vectors.T
    if design.levels:
        scores, spread = _components(np.asarray(some.y, float), width)
        scores = scores * spread
        levels = mean[dense.shape[1] :]
        for codes in np.asarray(some.x.codes).T:
            seen, place, count = np.unique(codes, return_inverse=True, return_counts=True)
            total = np.zeros((len(seen), scores.shape[1]))
            np.add.at(total, place, scores)
            centre = total / count[:, None]
            levels[seen, : scores.shape[1]] = centre / centre.std(0).max(initial=1e-12)
    return jnp.asarray(mean), jnp.full(mean.shape, np.log(0.3))


def _components(y: Float[np.ndarray, "n D"], count: int) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " k"]]:
    """The leading principal components, each with variance 1, and the standard deviations they had."""
    centred = y - y.mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(y))
    keep = [i for i in range(len(values))[::-1] if values[i] > 1e-10 * max(values[-1], 1e-300)][:count]
    spread = np.sqrt(values[keep])
    return centred @ vectors[:, keep] / spread, spread


def gaussianised(rng: np.random.Generator, residuals: Float[np.ndarray, "n D"], dim: int) -> Float[np.ndarray, "n d"]:
    """Leading principal components of the residuals, each mapped to normal scores by its ranks; missing ones random."""
    from scipy.stats import rankdata

    scores, _ = _components(residuals, dim)
    extra = rng.standard_normal((len(residuals), dim - scores.shape[1]))
    return ndtri((rankdata(np.concatenate([scores, extra], axis=1), axis=0) - 0.5) / len(residuals))


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


def _contexts(model: Model, x: Inputs) -> Float[np.ndarray, "n c"]:
    return np.asarray(model.input_map.context(x, jnp.zeros((x.n_rows, model.input_map.noise_dim))))


def _without_latents(key: PRNGKeyArray, design: Design, input_map: InputMap, some: Batch, n_data: int) -> State:
    """Step 1: sparse GP regression, of the outputs on the contexts; with no contexts, the prior.

    A q(P) that has its own steps waits for the next: they would take P to zero while nothing is known of f.
    """
    width, outputs = input_map.context_dim, some.y.shape[1]
    waits = design.mixing_posterior == "conjugate"
    noise = 0.3 if design.noise_variance is None else design.noise_variance
    kernel = KERNELS[design.kernel].create(width, np.sqrt(max(width, 1)))
    model = Model(
        kernel,
        jnp.zeros((1, width)),
        input_map,
        NoLatents(),
        _mixing(dataclasses.replace(design, mixing_posterior="fixed") if waits else design, outputs),
        jnp.asarray(np.log(noise)),
        design.noise_variance is None,
        _jitter(design),
    )
    if width:
        centres = _centres(_contexts(model, some.x), design.inducing)
        model = eqx.tree_at(lambda m: m.inducing_points, model, jnp.asarray(centres))
    trainer = Trainer.create(n_data, Geometric.create(0.1, 0.01, FIRST_STEPS), 1.0)
    state = trainer.init(model)
    if width:
        state, _ = train(trainer, key, state, some, FIRST_STEPS, len(some.y))
    if waits:
        state = trainer.init(eqx.tree_at(lambda m: m.mixing, state.model, _mixing(design, outputs)), state.posterior)
    return state


@compiled
def _mean(state: State, x: Inputs) -> Float[Array, "n D"]:
    """E y of the model without latents, A at its mean."""
    width = state.model.input_map.noise_dim
    noise = jnp.zeros((1, width)) if width else None
    mixture = predict(state.model, state.posterior, x, jnp.zeros((1, 0)), jnp.zeros(1), noise)
    mean = mixture.mean[:, 0]
    return mean if mixture.basis is None else mean @ mixture.basis.T


def _latents(
    key: PRNGKeyArray, design: Design, known: Batch, w: Float[np.ndarray, "n d"]
) -> tuple[Latents, Float[Array, "n p"] | None]:
    """q(w) at the guess, and what each data point holds of it for itself."""
    if design.inference == "free-form":
        return FreeForm.create(design.latent_dim, design.points, design.rule), None
    width = GaussianLatents.local_dim_of(design.latent_dim, design.full_covariance)
    scale = np.zeros(width - design.latent_dim)
    places = np.cumsum(np.arange(1, design.latent_dim + 1)) - 1 if design.full_covariance else slice(None)
    scale[places] = np.log(0.3)
    raw = jnp.asarray(np.concatenate([w, np.broadcast_to(scale, (len(w), len(scale)))], axis=1))
    options = design.latent_dim, design.expectation, design.draws, design.full_covariance
    if design.inference == "gaussian":
        return GaussianLatents(None, *options), raw
    rows = _input_rows(known.x, design)
    latents = GaussianLatents.amortised(key, rows, known.y.shape[1], design.latent_dim, design.hidden, *options[1:])
    assert latents.recognition is not None
    network = taught(latents.recognition, *jax.tree.map(jnp.asarray, (known.x, known.y, raw)))
    return eqx.tree_at(lambda q: q.recognition, latents, network), None


@compiled
def taught(network: MLP, x: Inputs, y: Float[Array, "n D"], target: Float[Array, "n p"]) -> MLP:
    """The recognition network after learning by least squares to say what is guessed."""
    adam = optax.adam(0.01)

    def loss(network: MLP) -> Array:
        return jnp.mean((recognise(network, x, y) - target) ** 2)

    def body(_: Array, carry: tuple[MLP, optax.OptState]) -> tuple[MLP, optax.OptState]:
        network, state = carry
        updates, state = adam.update(jax.grad(loss)(network), state)
        return optax.apply_updates(network, updates), state

    return jax.lax.fori_loop(0, 200, body, (network, adam.init(network)))[0]


def _joint_kernel(kernel: Kernel, width: int, dim: int, lengthscale: float) -> Kernel:
    """The kernel of [context, w], from that of the context; RBF in w, so that it separates."""
    columns = tuple(range(width, width + dim))
    if isinstance(kernel, RBF):
        scales = np.concatenate([np.asarray(kernel.lengthscales), np.full(dim, lengthscale)])
        return RBF.create(width + dim, scales, float(kernel.variance))
    return Product(kernel, RBF.create(columns, lengthscale))


def _completed(
    key: PRNGKeyArray,
    design: Design,
    plain: State,
    latents: Latents,
    known: Batch,
    w: Float[np.ndarray, "n d"],
    spread: Float[np.ndarray, "M d"],
    share: float,
    lengthscale: float,
    n_data: int,
    local: Float[Array, "n p"] | None,
) -> State:
    """The model with latents, q(u) at its optimum if the guess of w were the truth."""
    old = plain.model
    count, dim = spread.shape
    log_noise = float(old.log_noise_variance) + (np.log(share) if design.noise_variance is None else 0.0)
    if design.input_map == "warp":
        input_map: InputMap = Warp.create(key, _input_rows(known.x, design), dim)
        z = spread
        kernel: Kernel = KERNELS[design.kernel].create(dim, 0.5 * lengthscale)
    else:
        input_map = old.input_map
        width = input_map.context_dim
        if design.input_map == "bend":
            assert isinstance(input_map, Concatenate | Project)
            input_map = Bend.create(key, input_map, _input_rows(known.x, design), dim)
        z = np.concatenate([np.resize(old.inducing_points, (count, width)), spread], axis=1)
        kernel = _joint_kernel(old.kernel, width, dim, lengthscale)
    model = Model(
        kernel,
        jnp.asarray(z),
        input_map,
        latents,
        old.mixing,
        jnp.asarray(np.float64(log_noise)),
        old.learn_noise,
        old.jitter,
    )
    contexts = np.zeros((len(w), 0)) if design.input_map == "warp" else _contexts(old, known.x)
    pairs = whole(make_inputs(np.concatenate([contexts, w], axis=1)), known.y)
    regression = eqx.tree_at(
        lambda m: (m.input_map, m.latents), model, (Concatenate(pairs.x.dense.shape[1]), NoLatents())
    )
    trainer = Trainer.create(n_data)
    posterior = optimal_posterior(trainer, key, trainer.init(regression), pairs).posterior
    return trainer.init(model, posterior, local)
