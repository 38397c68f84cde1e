"""What stands beside the model: simpler answers, each with the share of the density that held-out rows give it.

    p(y|x) = ρ_0 p_GPCDE(y|x) + ρ_1 p_GP(y|x) + ρ_2 p_linear(y|x)
             + ρ_3 p_neighbours(y|x) + ρ_4 p_rows(y) + ρ_5 p_networks(y|x)

Gaussian process regression, where there is no more to learn than a mean, of few rows two means of several that are as
likely, by what is believed a priori and by a tenth of it; a line, where rows are few; the nearest rows, where a mean
jumps or y lies in a few places; of few rows all of them, wherever x is, since x may say nothing; mixture networks,
where there are rows enough for them. The shares are those with the best density on rows that none has seen
(`stacking`), with some doubt in favour of some; what is far behind on its own, and what has next to none, is left out.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..density.components import Components, log_sum_exp, mixed
from ..density.conditional import Source
from ..inference.posterior import VariationalPosterior
from ..inference.start import ENOUGH
from ..inference.training import State, Trainer, optimal_posterior
from ..model.inputs import Inputs
from ..model.model import Model
from ..prediction.nodes import Nodes
from ..prediction.paths import draw_path
from ..prediction.predictor import Predictor, check_predicts
from ..runtime.files import check_fields, check_positive, register
from ..runtime.precision import scope
from ..runtime.randomness import entropy, key_of
from .base import Rows
from .ensemble import Ensemble
from .kde import Marginal
from .linear import Line
from .monitor import on_host
from .neighbours import Neighbours
from .plan import FEW_ROWS
from .stacking import stacking_weights

LEAST = 0.02
"""A smaller share than this is none; the model keeps a twentieth of it."""

DOUBT, REGRESSION_DOUBT, NETWORKS_DOUBT, AHEAD = 2.0, 1.0, 2.0, 2.0
"""How many rows are thought to have been seen of which the model, regression and networks have a log density higher
than all others, by how much: where few rows are held out, chance would leave nothing to one of them."""

DRAWS = 128
"""Of an uncertain A, in what regression answers."""

ENOUGH_FOR_NETWORKS = 100
"""With fewer rows than this no networks are thought of."""

LOWEST, BEHIND = -10.0, 0.5
"""The least log density that counts where a mean over rows decides, lest one of them does; and how far behind the best
the mean of what stands beside the model may be: a broad density may gain by a row or two, and costs by all others.
Where rows are so few that they are held out several times, it is worth that."""


@runtime_checkable
class Companion(Protocol):
    """A density that stands beside the model, in standard units."""

    def check_fits(self, x: Inputs, outputs: int) -> None:
        """Raise where it is not one of such inputs and of so many outputs."""

    def components(self, x: Inputs) -> Components:
        """p(y|x) of some rows."""

    def log_density(self, x: Inputs, z: Float[np.ndarray, "n D"]) -> Float[np.ndarray, " n"]:
        """log p(z_n|x_n)."""

    def ready(self) -> Any:
        """What has the same `components` and `log_density`, with all that is computed once done."""

    def drawn(self, key: PRNGKeyArray) -> Callable[[Inputs], Components]:
        """What makes p(y|x) if what it is uncertain of were as it is drawn here, where it can tell."""


@register
class Regression(NamedTuple):
    """Gaussian process regression: the model without latents, from which its training starts."""

    model: Model
    posterior: VariationalPosterior

    def check_values(self) -> None:
        """Raise where a file holds what cannot be."""
        check_fields(self)

    @classmethod
    def of(cls, state: State, rows: Rows) -> "Regression":
        """As it was trained on some of these rows, q(u) at its optimum for all."""
        if rows.n_rows > ENOUGH:
            state = optimal_posterior(Trainer.create(rows.total), key_of(0), state, rows.data)
        state = on_host(state)
        return cls(state.model, state.posterior)

    def check_fits(self, x: Inputs, outputs: int) -> None:
        """Raise where it is not one of such inputs and of so many outputs."""
        check_predicts(self.model, self.posterior, x, outputs)

    def ready(self) -> Predictor:
        """The predictor, made once for all blocks of rows."""
        return Predictor.create(self.model, self.posterior, Nodes.for_model(self.model, cloud=DRAWS))

    def components(self, x: Inputs) -> Components:
        """A Gaussian at each x; where an uncertain A is drawn, a mixture of them."""
        return self.ready().components(x)

    def log_density(self, x: Inputs, z: Float[np.ndarray, "n D"]) -> Float[np.ndarray, " n"]:
        """log p(z_n|x_n)."""
        return self.ready().log_density(x, z)

    def drawn(self, key: PRNGKeyArray) -> Callable[[Inputs], Components]:
        """Along one function that q(u) holds for possible."""
        with scope():
            return draw_path(key, self.model, self.posterior).components


class Candidate(NamedTuple):
    """What makes companions that share alike, given those that a part of the rows made, if any; and its doubt.

    The doubt is how many rows are thought to have been seen in its favour.
    """

    make: Callable[[Sequence[Any]], Sequence[Companion]]
    doubt: float = 0.0


def candidates(
    rows: Rows, regressions: Sequence[Callable[[], Sequence[State]]], levels: tuple[int, ...], seed: int
) -> tuple[Candidate, ...]:
    """All that may stand beside the model of these rows."""

    def made(alike: Callable[[], Sequence[State]], before: Sequence[Any]) -> list[Companion]:
        return [Regression.of(state, rows) for state in alike()]

    found = [
        *(Candidate(partial(made, alike), REGRESSION_DOUBT / len(regressions)) for alike in regressions),
        Candidate(lambda before: [Line.of(rows, levels)]),
        Candidate(lambda before: [Neighbours.of(rows, levels, seed, *before)]),
    ]
    if rows.n_rows <= FEW_ROWS:
        found.append(Candidate(lambda before: [Marginal.of(rows, seed)]))
    if rows.n_rows >= ENOUGH_FOR_NETWORKS:
        found.append(Candidate(lambda before: [Ensemble.of(rows, levels, seed, *before)], NETWORKS_DOUBT))
    return tuple(found)


class Trial(NamedTuple):
    """Rows of which some have no weight, and what was trained without these: regressions of each kind, the model."""

    rows: Rows
    regressions: Sequence[Sequence[State]]
    state: State

    @classmethod
    def better(cls, rows: Rows, one: "Trial", two: "Trial") -> "Trial":
        """That of two, on the same part of these rows, whose model has the higher density of the others."""
        new = one.left_out(rows)

        def mean(trial: Trial) -> float:
            return float(np.average(np.maximum(trial.log_density(new), LOWEST), weights=new.weight))

        return max(one, two, key=mean)

    def left_out(self, rows: Rows) -> Rows:
        """Those of the rows that it has not seen."""
        return rows.take(np.flatnonzero((self.rows.weight == 0) & (rows.weight > 0)))

    def log_density(self, new: Rows) -> Float[np.ndarray, " n"]:
        """Of rows that were left out, by the model."""
        return Predictor.create(self.state.model, self.state.posterior).log_density(new.x, new.z)

    def beside(self, levels: tuple[int, ...], seed: int) -> list[Sequence[Companion]]:
        """All that may stand beside the model, made without the rows that were left out."""
        regressions = [partial(tuple, alike) for alike in self.regressions]
        return [one.make(()) for one in candidates(self.rows, regressions, levels, seed)]

    def log_densities(self, new: Rows, others: Sequence[Sequence[Companion]]) -> Float[np.ndarray, "n m"]:
        """Of rows that were left out: by the model, first, and by the means of the others."""

        def mean(alike: Sequence[Companion]) -> Float[np.ndarray, " n"]:
            logs = np.stack([one.log_density(new.x, new.z) for one in alike], axis=1)
            return log_sum_exp(logs) - np.log(len(alike))

        return np.stack([self.log_density(new), *map(mean, others)], axis=1)


def weighed(
    logs: Float[np.ndarray, "n m"],
    weight: Float[np.ndarray, " n"],
    doubts: Sequence[float],
    behind: float = np.inf,
) -> Float[np.ndarray, " m"]:
    """The shares that rows give, by the log densities of them that the model, first, and others have; 0: left out.

    `doubts` are the rows thought to have been seen in favour of each; what is more than `behind` the best on average
    has no share.
    """
    mean = np.average(np.maximum(logs, LOWEST), axis=0, weights=weight)
    near = mean > mean.max() - behind
    near[0] = True
    favourable = np.where(np.eye(logs.shape[1], dtype=bool), 0.0, -AHEAD)
    seen, counts = np.concatenate([logs, favourable]), np.concatenate([weight, doubts])
    shares = np.zeros(logs.shape[1])
    shares[near] = stacking_weights(seen[:, near], counts)
    shares[shares < LEAST] = 0
    shares[0] = max(shares[0], 0.05 * LEAST)
    return shares / shares.sum()


@register
class Companions(NamedTuple):
    """Densities beside the model, and the shares of all: the model's first, then theirs."""

    shares: Float[np.ndarray, " m"]
    members: tuple[Companion, ...]

    def check_values(self) -> None:
        """Raise where a file holds what cannot be."""
        check_fields(self)
        check_positive(self, "shares")
        if self.shares.ndim != 1 or len(self.shares) != 1 + len(self.members) or len(self.shares) < 2:
            raise ValueError("the shares of companions do not fit them")
        if abs(self.shares.sum() - 1) > 1e-9 or not all(isinstance(one, Companion) for one in self.members):
            raise ValueError("companions are densities, whose shares sum to one")

    @classmethod
    def of(
        cls,
        rows: Rows,
        regressions: Callable[[], Sequence[Sequence[State]]],
        trials: Sequence[Trial],
        levels: tuple[int, ...],
        seed: int,
    ) -> "Companions | None":
        """What all rows make, with the shares that trials on parts of them give; None where the model is best alone.

        `regressions` trains the model without latents on all rows; it is asked to only where that is to stand there.
        """
        logs, weights = [], []
        for trial in trials:
            new = trial.left_out(rows)
            before = trial.beside(levels, seed)
            logs.append(trial.log_densities(new, before))
            weights.append(new.weight)
        asked = cache(regressions)

        def group(number: int) -> Sequence[State]:
            return asked()[number]

        groups = [partial(group, number) for number in range(len(trials[0].regressions))]
        found = candidates(rows, groups, levels, seed)
        doubts, behind = [DOUBT, *(one.doubt for one in found)], BEHIND if len(trials) == 1 else np.inf
        shares = weighed(np.concatenate(logs), np.concatenate(weights), doubts, behind)
        made = {i: found[i].make(before[i]) for i in np.flatnonzero(shares[1:])}
        if not made:
            return None
        each = [np.full(len(alike), shares[1 + i] / len(alike)) for i, alike in made.items()]
        return cls(np.concatenate([shares[:1], *each]), tuple(one for alike in made.values() for one in alike))

    def joined(self, parts: Components, x: Inputs) -> Components:
        """The mixture of a model's densities and their own."""
        return mixed([parts, *(one.components(x) for one in self.members)], self.shares)

    def beside(self, model: Source, inputs: Inputs) -> Source:
        """The mixture of a model's densities of these inputs and their own."""

        def source(one: Any) -> Source:
            return Source(
                lambda rows: one.components(inputs.take(rows)), lambda rows, z: one.log_density(inputs.take(rows), z)
            )

        return Source.mixed([model, *(source(one.ready()) for one in self.members)], self.shares)

    def drawn(self, key: PRNGKeyArray) -> Callable[[Inputs], Components] | None:
        """One of all, as likely as its share is large, as it is if what it is uncertain of is drawn; None: the model.

        Which of them holds is uncertain too, so that draws differ by as much as they do. Their mean is the mixture.
        """
        which = int(np.random.default_rng(entropy(key)).choice(len(self.shares), p=self.shares))
        return self.members[which - 1].drawn(key) if which else None
