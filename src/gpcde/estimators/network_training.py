"""Training of networks: AdamW in epochs of minibatches, kept at the best epoch by held-out rows where there are any.

Where weights are averaged, the network is m_t = β m_{t-1} + (1-β) w_t of the weights w_t after each step: the noise of
large steps is gone from it, and they need not become smaller.

Dropout and learning rate, where they are not given, are the best of the paper's grid on held-out rows. Rows and steps
are padded to few sizes, so that one program serves many numbers of rows.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..inference.schedule import Minibatches
from ..model.inputs import Inputs
from ..model.networks import MLP
from ..runtime.blocks import by_blocks, padded, rung
from ..runtime.compilation import compiled
from ..runtime.precision import on_device, scope
from .base import Rows

DROPOUTS, RATES = (0.2, 0.1, 0.01, 0.0), (0.01, 0.001, 0.0001)
"""The paper's grid."""

ROWS_AT_ONCE = 2**12
"""How many rows a trained network looks at together."""

STEPS_TOGETHER = 20
"""How many steps are taken before the held-out rows are looked at, at least: small data have short epochs."""


@runtime_checkable
class Network(Protocol):
    """A module with a loss: the weighted mean over rows, with fresh noise from the key; `training` where dropout is on.

    `paced` has its say about the updates of a step: what has to go far may be moved faster.
    """

    def loss(
        self, x: Inputs, y: Float[Array, "n D"], weight: Float[Array, " n"], key: PRNGKeyArray, training: bool
    ) -> Float[Array, ""]: ...

    def paced(self, updates: Any) -> Any: ...


N = TypeVar("N", bound=Network)


def split_rows(
    rng: np.random.Generator, rows: int, fraction: float
) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " h"]]:
    """Rows to learn from and rows held out, a fraction; none is held out where the fraction is 0."""
    order = rng.permutation(rows)
    held = min(max(1, int(fraction * rows)), rows - 1) if fraction else 0
    return order[held:], order[:held]


def after_first(mlp: MLP, h: Float[Array, "*n w"], dropout: float, key: PRNGKeyArray | None) -> Float[Array, "*n o"]:
    """The network after its first product; where there is a key, with dropout on the output of every hidden layer."""
    if key is None or not dropout:
        return mlp.after_first(h)
    h = h + mlp.biases[0]
    for i, (weight, bias) in enumerate(zip(mlp.weights[1:], mlp.biases[1:], strict=True)):
        keep = jax.random.bernoulli(jax.random.fold_in(key, i), 1 - dropout, h.shape)
        h = (jnp.tanh(h) * keep / (1 - dropout)) @ weight + bias
    return h


def check_grid(dropout: float | None, learning_rate: float | None) -> None:
    """Raise where one of these is neither None nor a number that can be."""
    if dropout is not None and not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and less than 1, got {dropout!r}")
    if learning_rate is not None and not learning_rate > 0:
        raise ValueError(f"learning_rate must be positive, or None to choose it, got {learning_rate!r}")


def train_best(
    first: Callable[[float], N],
    key: PRNGKeyArray,
    rows: Rows,
    rng: np.random.Generator,
    *,
    dropout: float | None,
    learning_rate: float | None,
    early_stopping: bool,
    validation_fraction: float,
    patience: int,
    weight_decay: float,
    batch_size: int,
    max_epochs: int,
) -> tuple[N, int, dict[str, float]]:
    """The network with the best score on held-out rows, its epochs, and its dropout and rate; `first` by dropout.

    Rows are held out to stop early, and to choose where dropout or rate is None.
    """
    dropouts = DROPOUTS if dropout is None else (dropout,)
    rates = RATES if learning_rate is None else (learning_rate,)
    hold = early_stopping or len(dropouts) * len(rates) > 1
    kept, held = split_rows(rng, rows.n_rows, validation_fraction if hold else 0.0)
    best: tuple[float, N, int, dict[str, float]] | None = None
    for share, rate in product(dropouts, rates):
        network, epochs, score = train_network(
            first(share),
            key,
            rows.take(kept),
            rows.take(held),
            learning_rate=rate,
            weight_decay=weight_decay,
            batch_size=batch_size,
            max_epochs=max_epochs,
            patience=patience if early_stopping else max_epochs,
        )
        if best is None or score >= best[0]:
            best = score, network, epochs, {"dropout": share, "learning_rate": rate}
    assert best is not None
    return best[1:]


def train_network(
    network: N,
    key: PRNGKeyArray,
    data: Rows,
    held: Rows,
    *,
    learning_rate: float,
    weight_decay: float,
    batch_size: int,
    max_epochs: int,
    patience: int,
    slack: float = 0.0,
    averaging: float = 0.0,
    room: int = 0,
) -> tuple[N, int, float]:
    """The trained network as NumPy arrays, the epochs it took, and its score: minus the loss of the held-out rows.

    It ends where the score has not risen for `patience` epochs, nor for a share of those before, the `slack`; where
    there are no rows that are held out, or none of any weight, after all epochs. `averaging` is β, 0 where weights are
    as the last step left them. Rows are padded as if there were `room` of them, so that one program serves as many.
    """
    size = min(batch_size, data.n_rows)
    each, decides = data.n_rows // size, bool(held.weight.any())
    room = rung(max(room, data.n_rows))
    batches = Minibatches(key, data.n_rows, size)
    adam = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), jax.eval_shape(optax.adamw(learning_rate).init, network))
    mean = network if averaging else None
    known, unseen = (on_device(tuple(rows)) for rows in (padded(data, room), held))
    rates = np.array([learning_rate, weight_decay, averaging])
    best, best_score, best_epoch, epoch = network, -np.inf, 0, 0
    while epoch < max_epochs:
        together = min(max(1, STEPS_TOGETHER // each), max_epochs - epoch)
        index = batches(epoch * each, each * together)
        steps = on_device((padded(index, rung(max(STEPS_TOGETHER, room // size))), np.int32(len(index)), rates))
        now = on_device(np.int32(epoch))
        network, mean, adam, score = _steps(network, mean, key, now, adam, known, unseen, *steps)
        epoch += together
        reached = network if mean is None else mean
        if not decides:
            best, best_epoch = reached, epoch
        elif float(score) > best_score:
            best, best_score, best_epoch = reached, float(score), epoch
        elif epoch - best_epoch >= max(patience, slack * best_epoch):
            break
    return jax.tree.map(np.asarray, best), best_epoch, best_score


def evaluated(network: Any, function: Callable[..., Any], *rows: Any, most: int = ROWS_AT_ONCE) -> Any:
    """function(network, *rows) of any number of rows, block by block, as NumPy arrays."""
    with scope():
        network = jax.tree.map(lambda a: on_device(a) if isinstance(a, np.ndarray) else a, network)
        return by_blocks(lambda *part: function(network, *on_device(part)), rows, most)


@partial(compiled, thoroughly=True)
def _steps(
    network: N,
    mean: N | None,
    key: PRNGKeyArray,
    epoch: Int[Array, ""],
    adam: optax.OptState,
    data: tuple[Inputs, Float[Array, "n D"], Float[Array, " n"]],
    held: tuple[Inputs, Float[Array, "h D"], Float[Array, " h"]],
    rows: Int[Array, "t b"],
    count: Int[Array, ""],
    rates: Float[Array, "3"],
) -> tuple[N, N | None, optax.OptState, Float[Array, ""]]:
    """So many steps, and minus the loss of the held-out rows."""
    key, (rate, decay, beta) = jax.random.fold_in(key, epoch), rates
    optimiser = optax.adamw(rate, weight_decay=decay)
    x, y, weight = data

    def step(number: Int[Array, ""], carry: tuple[N, N | None, optax.OptState]) -> tuple[N, N | None, optax.OptState]:
        network, mean, state = carry
        index, noise = rows[number], jax.random.fold_in(key, number)
        gradient = jax.grad(lambda n: n.loss(x.take(index), y[index], weight[index], noise, True))(network)
        updates, state = optimiser.update(gradient, state, network)
        network = optax.apply_updates(network, network.paced(updates))
        if mean is not None:
            mean = jax.tree.map(lambda m, w: (beta * m + (1 - beta) * w).astype(w.dtype), mean, network)
        return network, mean, state

    network, mean, adam = jax.lax.fori_loop(0, count, step, (network, mean, adam))
    reached = network if mean is None else mean
    return network, mean, adam, -reached.loss(*held, jax.random.key(0), False)
