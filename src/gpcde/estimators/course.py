"""What a fit does with some rows, by a plan and a seed: regression of them, a start, and steps from there."""

from functools import partial
from typing import NamedTuple

import equinox as eqx

from ..inference.schedule import Geometric
from ..inference.start import regression, regression_bound, regressions, start
from ..inference.training import State, Trainer, train
from ..runtime.randomness import key_of
from .base import Rows
from .monitor import Monitor
from .plan import FIRST_ROWS, Plan
from .second_start import by_neighbours, misses
from .streaming import StreamedRows

LIKELY = 16
"""How many regressions of few rows, as likely as each other, stand beside the model."""


class Course(NamedTuple):
    """How rows are learnt.

    Parameters
    ----------
    plan : Plan
        The model, and how long it is trained.
    seed : int
        Of all that is random.
    devices : int or "all", default=None
        How many share the rows of a batch.
    """

    plan: Plan
    seed: int
    devices: int | str | None = None

    def regression(self, rows: Rows, total: float, like: State | None = None) -> State:
        """The model without latents, of rows that stand for that many; the better of two starts, where it needs two.

        Where there is one of nearly these rows, it goes on from there.
        """
        asked = key_of(self.seed), rows.x, rows.z, self.plan.design, rows.weight, total
        plain, evidence = regression(*asked, like=like), partial(regression_bound, *asked)
        if self.plan.is_given or self.plan.design.projects or not misses(plain, rows, evidence):
            return plain
        return max(plain, regression(*asked, lengthscales=by_neighbours(rows, self.seed)), key=evidence)

    def evidence(self, rows: Rows, plain: State) -> float:
        """What a regression says of these rows: its bound a row."""
        return regression_bound(key_of(self.seed), rows.x, rows.z, self.plan.design, rows.weight, rows.total, plain)

    def likely(self, rows: Rows, plain: State) -> list[list[State]]:
        """This regression of these rows; of few, several that are as likely, unless an uncertain A is drawn anyway."""
        design = self.plan.design
        if rows.n_rows > FIRST_ROWS or design.projects:
            return [[plain]]
        return regressions(key_of(self.seed), rows.x, rows.z, design, rows.weight, rows.total, plain, LIKELY)

    def start(self, rows: Rows, plain: State | None, total: float) -> State:
        """Where training begins, from the model without latents, which is made where it is not given."""
        return start(key_of(self.seed), rows.x, rows.z, self.plan.design, rows.weight, total, plain)

    def steps(
        self,
        state: State,
        rows: Rows | StreamedRows,
        n_data: float,
        steps: int,
        watch: Monitor | None = None,
    ) -> State:
        """The state after that many steps more on these rows, which stand for `n_data`."""
        plan = self.plan
        rate, gamma = (Geometric.create(*ends, plan.steps) for ends in (plan.rates, plan.gammas))
        trainer = Trainer.create(n_data, rate, gamma, self.devices)
        key, size = key_of(self.seed), min(plan.batch_size, rows.n_rows)
        last = int(state.step) + max(steps, 0)
        first = state.model.likelihood
        # what was let go is not held again, however long training goes on
        waits = first.held() is not first and (first.is_held or int(state.step) == 0)
        held = min(plan.held_steps, last) if waits else 0
        for end, waiting in ((held, True), (last, False)):
            if int(state.step) < end and not (watch and watch.stopped):
                noise = state.model.likelihood
                state = eqx.tree_at(lambda s: s.model.likelihood, state, noise.held() if waiting else noise.freed())
                if watch:
                    watch.waiting = waiting
                state = train(trainer, key, state, rows.data, end - int(state.step), size, watch=watch)[0]
        return state
