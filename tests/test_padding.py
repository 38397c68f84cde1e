"""Rows are padded to few sizes, so that one program serves many; no answer depends on it."""

from typing import Any

import jax
import numpy as np
import pytest

from gpcde.inference import Design, Trainer, optimal_posterior, start, train, training, whole
from gpcde.inference.bound import draw, evaluate_bound
from gpcde.model import make_inputs
from gpcde.runtime import blocks
from gpcde.runtime.blocks import by_blocks, in_blocks, rung

DESIGNS: dict[str, dict[str, Any]] = {
    "free-form": {"inference": "free-form", "points": 9, "rule": "even", "shifted": True, "prior": "tilted"},
    "importance": {"inference": "amortised", "expectation": "importance", "draws": 3, "hidden": (5,)},
    "own": {"inference": "gaussian", "draws": 2},
    "projected": {"inference": "free-form", "points": 9, "input_map": "project", "input_dim": 2},
}


def test_the_ladder_has_few_rungs_and_little_waste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LEAST", 16)
    sizes = [rung(n) for n in range(1, 10_001)]
    assert all(size >= n for n, size in enumerate(sizes, 1))
    assert all(size <= max(16, 1.5 * n) for n, size in enumerate(sizes, 1))
    assert len(set(sizes)) < 22
    assert all(rung(size) == size for size in set(sizes))


@pytest.mark.parametrize("name", DESIGNS)
def test_padding_changes_no_bound_no_statistic_and_no_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows, as they are and with as many again that count nothing."""
    rng = np.random.default_rng(0)
    x, y = make_inputs(rng.standard_normal((21, 2))), rng.standard_normal((21, 2))
    design = Design(latent_dim=1, inducing=5, trials=1, first_steps=5, **DESIGNS[name])
    key = jax.random.key(1)
    state = start(key, x, y, design)
    batch, trainer = whole(x, y), Trainer.create(21, 0.03, 0.3)

    def bound(size: int) -> float:
        some = batch.padded(size)
        local = None if state.local is None else state.local.value[some.rows]
        draws = draw(key, state.model, size)
        return float(jax.jit(evaluate_bound)(state.model, state.posterior, some, draws, 21.0, local).bound)

    assert bound(42) == pytest.approx(bound(21), rel=1e-12)
    answers = []
    for size in (21, 42):
        monkeypatch.setattr(training, "rung", lambda rows, size=size: size)
        moved, records = train(trainer, key, state, batch, steps=6, batch_size=21, chunk=3)
        best = optimal_posterior(trainer, key, moved, batch)
        answers.append((jax.tree.leaves((moved, best.posterior)), [record.bound for record in records]))
    (exact, bounds), (padded, again) = answers
    np.testing.assert_allclose(again, bounds, rtol=1e-12)
    for a, b in zip(exact, padded, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 20])
def test_blocks_are_of_one_size_and_lose_no_row(rows: int) -> None:
    data = np.arange(rows)
    parts = list(in_blocks((data,), 8))
    assert {len(part[0]) for part, _ in parts} == {min(8, 1 << (rows - 1).bit_length())}
    np.testing.assert_array_equal(np.concatenate([part[0][:n] for part, n in parts]), data)
    np.testing.assert_array_equal(by_blocks(lambda a: a + 1, (data,), 8), data + 1)
