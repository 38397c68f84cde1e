"""What to do where the user did not say: the model, and how long to train it, from N, D_x and D_y.

    outputs   latents                                            a step takes
    1         one, free-form on 20 nodes, shifted at random      256 rows
    2         two, amortised, 10 draws, importance-weighted      256 rows
    more      as many as outputs, at most 4, amortised as well   256 rows

Where rows are few and their nodes the same, a step takes all of them. One or two latents go with noise and p(w|x) that
vary with both x and w; with features of x (`Features`), for what a kernel of few inducing points cannot follow, unless
rows are few and the latent is one; and with a mean that x alone decides, as regression found it (`SmoothTrend`), where
it left little noise, less where rows are few: else one kernel for the mean and what w changes of it learns both
together. Of two latents and more than a few rows `Warp` is tried beside it, for outputs that lie in places which x does
not move, and held-out rows choose. More latents are bent (`Bend`).
Of two latents, draws near those a row came from tell a sharp density better than a grid of as many nodes as can be
afforded, which are far apart. Many inputs, and categories, go through A. Few rows are helped by priors on lengthscales
and noise, and by a linear trend.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..inference.design import LITTLE_NOISE, Design
from ..model.inputs import make_inputs
from ..model.mixing import principal_start
from ..runtime.precision import scope
from ..runtime.randomness import key_of
from .base import check_positive_integer

POINTS = {1: 20, 2: 9}
"""Nodes of a free-form q(w) in each of its dimensions."""

FULL_BATCH, BATCH = 30_000, 8_000
"""Up to that many pairs of rows and nodes, a step takes all rows where they are few, or its bound is then exact; else
that many."""

MANY_INPUTS = 100
"""More dense inputs than this are projected."""

FEW_ROWS, MANY_ROWS = 500, 2_000
"""Up to so many rows inducing inputs are few, x has no features where the latent is one, and the mean is one of
regression only where it leaves little noise; up to so many, only where it does not leave much."""

FEW_STEPS, MANY_STEPS, MOST_STEPS = 500, 700, 4_000
"""How long to train: with steps that take all rows at most; with others at least, and at most unless a pass takes more.
"""

DRAWS_LONGER = 1.4
"""How many times as long where each row has draws of its own: what a step learns of them is noise for the most part."""

RATES = {"nodes": (0.05, 0.005), "draws": (0.02, 0.002)}
"""The ends of Adam's step sizes where all rows go by the same nodes, which are shifted, and where they do not."""

EXACT_RATES = {"adam": (0.05, 0.005), "lbfgs": (0.01, 0.001)}
"""The ends of Adam's step sizes where steps are exact: small ones where the start was found by L-BFGS, at the top."""

TRIAL_SHARE, LONGER = 0.6, 1.3
"""The share of the steps that a model is trained on a part of the rows, before the others weigh its companions; and how
much longer it is trained in all where it is that model that goes on."""

NOISY = 0.25
"""The noise that regression leaves, in standard units, from which on a mean is not kept apart: it is most of what there
is to learn where that is 0.17 (kin8nm), and the latents are where it is 0.3 (the demo's law) or 0.6 (protein)."""

FIRM = 20.0
"""How firm the prior is on the weights of a network that moves latents by x."""

HELD_SHARE = 0.4
"""The share of the steps for which a noise that may vary does not: it would take up what the latents have to learn."""

FIRST_STEPS = 100
"""How long the model without latents, which finds the mean, is trained at most."""

FEW_OF_MEAN, MOST_OF_MEAN = 96, 192
"""Inducing inputs of the mean, fewer and more; and at most where it is kept apart: each step computes them again."""

FIRST_ROWS = 256
"""How many rows find its kernel first, of three numbers or more: a bound of an inducing input on each is quick."""


class Plan(NamedTuple):
    """The model, the size of a batch, the number of steps, and the ends of the step sizes for Adam and for q(u).

    `exact` says that a step sees all rows and draws nothing, so that its bound is the bound; `trial_steps` is how long
    a model is trained on a part of the rows. Where there is an `other` design too, rows held out choose; where one for
    `noisy` rows, what regression leaves of them. A design that `is_given` is the user's own.
    """

    design: Design
    batch_size: int
    steps: int
    rates: tuple[float, float]
    gammas: tuple[float, float]
    exact: bool
    trial_steps: int
    other: Design | None = None
    noisy: Design | None = None
    is_given: bool = False

    def settled(self, noise_variance: float) -> "Plan":
        """The plan for rows of which regression leaves this noise: little makes the mean worth more inducing inputs."""
        if self.noisy is None or LITTLE_NOISE <= noise_variance < NOISY:
            return self
        little = dataclasses.replace(self.design, trend_inducing=MOST_OF_MEAN)
        return self._replace(design=self.noisy if noise_variance >= NOISY else little)

    @property
    def held_steps(self) -> int:
        """How long the noise is held at one value for all x and w, where it may vary: so many times 50 steps."""
        return 50 * round(HELD_SHARE * self.steps / 50)

    def going_on(self) -> "Plan":
        """Where training begins on a part of the rows, and goes on with all: longer, for what the last ones tell."""
        return self._replace(steps=int(LONGER * self.steps))


def choose(params: dict[str, Any], rows: int, dense: int, levels: tuple[int, ...], z: Float[np.ndarray, "n D"]) -> Plan:
    """The plan for that many rows and dense inputs, these category levels, and outputs z in standard units."""
    for name in ("latent_dim", "n_inducing", "input_dim", "output_dim", "max_steps", "batch_size"):
        check_positive_integer(name, params[name], optional=True)
    outputs = z.shape[1]
    if params["design"] is not None:
        return _plan(_given(params, levels, outputs), params, rows)._replace(is_given=True)
    inference, latent_dim = _latents(params["inference"], params["latent_dim"], outputs)
    input_map, input_dim = _inputs(params["input_map"], params["input_dim"], inference, latent_dim, rows, dense, levels)
    mixing = None
    if params["output_dim"] is not None:
        if params["output_dim"] > outputs:
            raise ValueError(f"output_dim must be at most the {outputs} columns of y, got {params['output_dim']}")
        mixing = principal_start(z, params["output_dim"])
    none, varying = inference == "none", _varies(inference, latent_dim)
    most = rows - rows % 8 or rows  # so that one program serves several numbers of rows
    first = min(_first_inducing(rows, dense, len(levels), none), most)
    inducing = first if none else min(_inducing(rows, dense, latent_dim, varying), most)
    design = Design(
        inference=inference,
        latent_dim=latent_dim,
        inducing=min(params["n_inducing"] or inducing, rows),
        kernel=params["kernel"],
        input_map=input_map,
        input_dim=input_dim,
        feature_precision=FIRM if input_map == "warp" else None,
        levels=levels,
        mixing=mixing,
        likelihood="varying" if varying else "constant",
        prior="tilted" if varying else "normal",
        trend="linear" if not varying else "smooth" if rows > FEW_ROWS else "quiet",
        beliefs=True,
        expectation="importance" if inference in ("amortised", "gaussian") else "draws",
        draws=10 if inference in ("amortised", "gaussian") else 1,
        points=POINTS.get(latent_dim),
        rule="even",
        shifted=inference == "free-form",
        trials=1,
        first="lbfgs",
        first_steps=FIRST_STEPS,
        first_inducing=None if none else first,
        first_rows=FIRST_ROWS if dense > 2 and not input_dim else None,
        trend_inducing=FEW_OF_MEAN if FEW_ROWS < rows <= MANY_ROWS else MOST_OF_MEAN,
    )
    plan = _plan(design, params, rows)
    if not varying or rows <= FEW_ROWS or input_map == "warp":
        return plan
    if latent_dim == 1 and rows > MANY_ROWS:
        return plan
    inducing = min(params["n_inducing"] or _inducing(rows, dense, latent_dim, False), rows)
    together = dataclasses.replace(design, inducing=inducing, trend="linear")
    if latent_dim == 1:
        return plan._replace(noisy=together)
    if params["input_map"] != "auto":
        return plan._replace(other=together)
    # one surface of w for all x, which but moves the latents: places that stay where they are
    moved: dict[str, Any] = {"trend": "none", "input_map": "warp", "input_dim": 0, "feature_precision": FIRM}
    return plan._replace(other=dataclasses.replace(design, inducing=inducing, **moved))


def _plan(design: Design, params: dict[str, Any], rows: int) -> Plan:
    """How to train a design."""
    count, drawn, alike = _looked_at(design)
    steady = not drawn and not design.projects
    together = steady or (alike and rows <= FEW_ROWS)
    full = together and rows * count <= FULL_BATCH
    size = min(params["batch_size"] or (rows if full else min(max(BATCH // count, 32), 256)), rows)
    whole = together and size == rows
    exact = steady and whole
    least = MANY_STEPS if alike else round(DRAWS_LONGER * MANY_STEPS)
    enough = FEW_STEPS if whole else max(least, min(2 * rows // 5, MOST_STEPS), rows // size)
    steps = params["max_steps"] or enough
    return Plan(
        design,
        size,
        steps,
        EXACT_RATES[design.first] if exact else RATES["nodes" if alike else "draws"],
        (1.0, 1.0) if exact else (0.3, 0.05) if whole else (0.1, 0.02),
        exact,
        max(1, int(TRIAL_SHARE * steps)),
    )


def _looked_at(design: Design) -> tuple[int, bool, bool]:
    """How many latents of a data point a step looks at, whether they are drawn, and whether all rows have the same."""
    latents = design.inference
    if isinstance(latents, str):
        with scope():
            latents = design.make_latents(key_of(0), make_inputs(rows=1), 1)
    return latents.n_points, latents.draw_shape[0] > 0, latents.one_draw


def _inducing(rows: int, dense: int, latent_dim: int, apart: bool) -> int:
    """More for more rows, inputs and latents, in multiples of 8; and for a mean that is not kept apart."""
    if rows <= FEW_ROWS:
        return 64 if latent_dim == 2 or dense > 2 else 24
    return 48 if (rows <= 1_000 and dense <= 2) or (apart and latent_dim == 1) else 96


def _first_inducing(rows: int, dense: int, categories: int, alone: bool) -> int:
    """Of the mean, which x alone decides: a curve beside latents needs few, a surface what many rows can tell of it.

    For few rows of three numbers or more there is one on each of them: with fewer, a smooth function nearly without
    noise is missed. With inputs that are projected, whose places are uncertain, each of them costs more.
    """
    if dense > 2 and not categories:
        return rows if rows <= FEW_ROWS and dense <= MANY_INPUTS else MOST_OF_MEAN
    if alone:
        return FEW_OF_MEAN
    return 32 if dense + categories <= 1 else FEW_OF_MEAN if rows <= MANY_ROWS else MOST_OF_MEAN


MODEL_PARAMETERS = {
    "latent_dim": None,
    "inference": "auto",
    "n_inducing": None,
    "kernel": "rbf",
    "input_map": "auto",
    "input_dim": None,
    "output_dim": None,
}
"""What a design says, with the values that leave it to the design."""


def _given(params: dict[str, Any], levels: tuple[int, ...], outputs: int) -> Design:
    """The user's own design, for these categories."""
    design = params["design"]
    if not isinstance(design, Design):
        raise ValueError(f"design must be a gpcde.inference.Design, got {design!r}")
    for name, default in MODEL_PARAMETERS.items():
        if params[name] != default:
            raise ValueError(f"{name} is part of the design: set it there, or leave design out")
    return dataclasses.replace(design, levels=levels)


def _latents(inference: str, latent_dim: int | None, outputs: int) -> tuple[str, int]:
    options = ("auto", "free-form", "amortised", "gaussian", "none")
    if inference not in options:
        raise ValueError(f"inference must be one of {options}, got {inference!r}")
    if inference == "none":
        return "none", 0
    dim = latent_dim or (outputs if outputs <= 2 else 2 if inference == "free-form" else min(outputs, 4))
    if inference == "auto":
        inference = "free-form" if dim == 1 else "amortised"
    return inference, dim


def _varies(inference: str, latent_dim: int) -> bool:
    """Whether noise and p(w|x) vary, and x may have features: where latents are few, and not each data point's own."""
    return inference in ("free-form", "amortised") and latent_dim <= 2


def _inputs(
    input_map: str,
    input_dim: int | None,
    inference: str,
    latent_dim: int,
    rows: int,
    dense: int,
    levels: tuple[int, ...],
) -> tuple[str, int]:
    options = ("auto", "concatenate", "features", "project", "bend", "warp")
    if input_map not in options:
        raise ValueError(f"input_map must be one of {options}, got {input_map!r}")
    projects = bool(levels) or input_dim is not None or input_map == "project" or dense > MANY_INPUTS
    if input_map == "concatenate":
        if input_dim is not None:
            raise ValueError("input_dim is the number of rows of A: it needs input_map='project', 'features' or 'bend'")
        projects = False
    if input_map == "auto":
        plain = "project" if projects else "concatenate"
        learnt = rows > FEW_ROWS or latent_dim > 1
        featured = "features" if learnt and (dense or levels) else plain
        input_map = featured if _varies(inference, latent_dim) else plain if inference == "none" else "bend"
    if not projects or input_map == "warp":
        return input_map, 0
    width = input_dim or min(dense + sum(min(count - 1, 2) for count in levels), 10)
    return input_map, max(width, 1)
