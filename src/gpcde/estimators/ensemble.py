"""An ensemble of mixture networks: what features of many inputs tell, where rows are many.

    p(y|x) = 1/E sum_e sum_k π_ek(x) N(y | μ_ek(x), Σ_ek(x)),     each e a network of its own, from other first weights

How many passes over the rows are enough is what held-out ones say, of the densities' mean, while it learns from a part
of the rows; as many are taken over all of them. In float32: no statistic is made of it.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..density.components import Components
from ..model.inputs import Inputs, linear
from ..model.networks import MLP
from ..prediction.laplace import Curvature, weighted_means
from ..runtime.blocks import padded, rung
from ..runtime.compilation import compiled
from ..runtime.files import LARGEST, Stored, check_positive
from ..runtime.precision import scope
from ..runtime.randomness import entropy, folded, key_of
from .base import Rows
from .mdn import NetworkOutput, as_mixture, components_of, first_bias, log_densities_of, log_density
from .network_training import split_rows, train_network

MANY_ROWS = 10_000
"""From more rows than this wider networks learn more, and fewer of them are enough."""

HELD, RATE, DECAY, AVERAGING = 0.1, 3e-3, 0.01, 0.98
"""The share of the rows held out, AdamW's rate and weight decay, and how much of the mean of weights a step leaves."""

PATIENCE, SLACK, MOST_STEPS = 250, 0.5, 10_000
"""How many steps may bring nothing, at least, and as a share of those before; and how many there are at most."""

BATCHES, LEAST_BATCH, MOST_BATCH = 16, 32, 256
"""How many batches a pass takes, nearly, and the least and the most rows of one."""


class Size(NamedTuple):
    """How many networks there are, and how wide each of three layers is; components of one output, and of several."""

    networks: int
    width: int
    components: tuple[int, int]

    @classmethod
    def of(cls, rows: int) -> "Size":
        """What that many rows can teach."""
        return cls(8, 50, (5, 10)) if rows <= MANY_ROWS else cls(4, 100, (10, 30))


class Ensemble(Stored):
    """Mixture networks of one shape, their arrays stacked; silu between the layers.

    Parameters
    ----------
    weights, biases : tuple of arrays
        Of each layer, a network a row.
    n_components : int
        Of each network.
    outputs : int
        D.
    passes : int, default=1
        How often it saw all rows that it was trained on.
    entering, slopes : arrays of shape (e, h, h) and (e, c, c), default=None
        How sure each is of its last layer (`Curvature`, but the mean over rows of both); None: as sure as can be.
    rows : float, default=0.0
        What all rows that it was trained on count.
    """

    weights: tuple[Float[Array | np.ndarray, "e _ _"], ...]
    biases: tuple[Float[Array | np.ndarray, "e _"], ...]
    n_components: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    passes: int = eqx.field(static=True, default=1)
    entering: Float[Array | np.ndarray, "e h h"] | None = None
    slopes: Float[Array | np.ndarray, "e c c"] | None = None
    rows: float = eqx.field(static=True, default=0.0)

    def check_values(self) -> None:
        super().check_values()
        check_positive(self, "n_components", "outputs", "passes")
        ends, widths = [w.shape[1:] for w in self.weights], [b.shape[1] for b in self.biases]
        off = self.outputs * (self.outputs - 1) // 2
        fits = len(ends) > 1 and [end for _, end in ends] == widths and [begin for begin, _ in ends[1:]] == widths[:-1]
        if not fits or widths[-1] != self.n_components * (1 + 2 * self.outputs + off):
            raise ValueError(f"the layers of an ensemble do not fit each other: weights {ends}, biases {widths}")
        networks, last, width = self.weights[-1].shape
        for known, size in ((self.entering, last + 1), (self.slopes, width)):
            if (known is None) != (self.rows == 0) or (known is not None and known.shape != (networks, size, size)):
                raise ValueError("what an ensemble is sure of does not fit its networks")
        if not 0 <= self.rows < LARGEST:
            raise ValueError("an ensemble cannot have been trained on so many rows")

    def check_fits(self, x: Inputs, outputs: int) -> None:
        """Raise where it is not one of such inputs and of so many outputs."""
        known = x.codes.max(initial=-1) + 1
        if self.outputs != outputs or self.weights[0].shape[1] != x.dense.shape[1] + known:
            raise ValueError("its columns and outputs do not fit its networks")

    @classmethod
    def of(cls, rows: Rows, levels: tuple[int, ...], seed: int, before: "Ensemble | None" = None) -> "Ensemble":
        """Trained on these rows, those of no weight apart, for as many passes as one `before`, of a part of them.

        Without that, or where it was of another size, for as many as rows that are held out say.
        """
        room, rows = rows.n_rows, rows.take(np.flatnonzero(rows.weight > 0))
        size = 1 << int(np.clip(room // BATCHES, LEAST_BATCH, MOST_BATCH)).bit_length() - 1
        with scope():
            key = key_of(seed)
            first = cls._first(key, rows, levels)
            fits = before is not None and before.biases[0].shape == first.biases[0].shape
            enough = before.passes if before is not None and fits else None
            kept, held = (rows.take(some) for some in split_rows(np.random.default_rng(seed), rows.n_rows, HELD))
            unseen = padded(held, rung(int(HELD * room)))
            unseen.weight[held.n_rows if enough is None else 0 :] = 0
            known = kept if enough is None else rows
            each = max(known.n_rows // size, 1)
            made, passes, _ = train_network(
                first,
                key,
                known,
                unseen,
                learning_rate=RATE,
                weight_decay=DECAY,
                batch_size=size,
                max_epochs=enough or -(-MOST_STEPS // each),
                patience=-(-PATIENCE // each),
                slack=SLACK,
                averaging=AVERAGING,
                room=room,
            )
            made = dataclasses.replace(made, passes=max(passes, 1))
            return made if before is None else made._with_curvature(rows)

    def _with_curvature(self, rows: Rows) -> "Ensemble":
        """The same, knowing how sure it is of what it learnt from these rows, by some of them where they are many."""
        means = weighted_means(partial(_curvatures, self._networks()), rows)
        if means is None:
            return self
        return dataclasses.replace(self, entering=means.entering, slopes=means.slopes, rows=rows.total)

    @classmethod
    def _first(cls, key: PRNGKeyArray, rows: Rows, levels: tuple[int, ...]) -> "Ensemble":
        """Networks that all say nearly the same mixture everywhere."""
        size, outputs = Size.of(rows.n_rows), rows.z.shape[1]
        components = size.components[outputs > 1]
        bias = first_bias(rows.z, components, full=True)
        layers = rows.x.dense.shape[1] + sum(levels), *[size.width] * 3, len(bias)
        made = [MLP.create(folded(key, i), layers, last_scale=0.1) for i in range(size.networks)]
        weights, biases = jax.tree.map(
            lambda *same: np.stack(same).astype(np.float32),
            *((one.weights, (*one.biases[:-1], bias)) for one in made),
        )
        return cls(weights, biases, components, outputs)

    def _each(self, x: Inputs) -> NetworkOutput:
        """What each network says."""
        raw = self._entering(x) @ self.weights[-1] + self.biases[-1][:, None]
        return jax.vmap(lambda one: as_mixture(one, self.n_components, self.outputs))(raw)

    def _entering(self, x: Inputs) -> Float[Array, "e n h"]:
        """What enters the last layer of each network."""
        h = jax.vmap(lambda weight: linear(x, weight))(self.weights[0]) + self.biases[0][:, None]
        for weight, bias in zip(self.weights[1:-1], self.biases[1:-1], strict=True):
            h = jax.nn.silu(h) @ weight + bias[:, None]
        return jax.nn.silu(h)

    def __call__(self, x: Inputs) -> NetworkOutput:
        """What all say together: the components of all."""
        log_weight, *rest = self._each(x)
        joined = (jnp.moveaxis(a, 0, 1) for a in (log_weight - jnp.log(1.0 * len(log_weight)), *rest))
        return NetworkOutput(*(a.reshape(len(a), a.shape[1] * a.shape[2], *a.shape[3:]) for a in joined))

    def loss(
        self, x: Inputs, y: Float[Array, "n D"], weight: Float[Array, " n"], key: PRNGKeyArray, training: bool
    ) -> Float[Array, ""]:
        """Minus the mean log density: in training the sum of each network's own, else that of their mixture."""
        y = y.astype(self.biases[0].dtype)
        logs = jax.vmap(lambda m: log_density(m, y))(self._each(x)).sum(0) if training else log_density(self(x), y)
        return -jnp.average(logs, weights=weight)

    def paced(self, updates: "Ensemble") -> "Ensemble":
        """The updates of a step, as they are."""
        return updates

    def components(self, x: Inputs) -> Components:
        """The mixture at each x."""
        return components_of(self._widened(), x, full=True)

    def log_density(self, x: Inputs, z: Float[np.ndarray, "n D"]) -> Float[np.ndarray, " n"]:
        """log p(z_n|x_n)."""
        return log_densities_of(self._widened(), x, z)

    def _widened(self) -> "Ensemble":
        """The same networks in float64, as answers are."""
        return jax.tree.map(lambda a: np.asarray(a, float), self._networks())

    def _networks(self) -> "Ensemble":
        """Without what is known of their training: one program serves all of their shape."""
        return dataclasses.replace(self, passes=1, entering=None, slopes=None, rows=0.0)

    def ready(self) -> "Ensemble":
        """Itself: nothing is computed beforehand."""
        return self

    def drawn(self, key: PRNGKeyArray) -> Callable[[Inputs], Components]:
        """One of its networks, its last layer drawn too where it knows how sure it is of it (`prediction.laplace`)."""
        rng = np.random.default_rng([*entropy(key), 1])
        one = rng.integers(len(self.biases[0]), size=1)
        weights, biases = (tuple(np.asarray(a)[one] for a in layers) for layers in (self.weights, self.biases))
        if self.entering is not None and self.slopes is not None:
            known = Curvature(np.asarray(self.entering)[one[0]], self.rows * np.asarray(self.slopes)[one[0]])
            change = known.change(rng, max(self.rows, 1.0) * DECAY)  # as firm as the decay would hold it
            weights = *weights[:-1], weights[-1] + change[:-1]
            biases = *biases[:-1], biases[-1] + change[-1]
        return dataclasses.replace(self._networks(), weights=weights, biases=biases).components


@compiled
def _curvatures(networks: Ensemble, rows: Rows) -> Curvature:
    """Of the last layer of each network: the sums over some rows."""
    entering = networks._entering(rows.x)
    z, weight = (jnp.asarray(a, entering.dtype) for a in (rows.z, rows.weight))

    def log_densities(raw: Float[Array, "n c"]) -> Float[Array, ""]:
        return log_density(as_mixture(raw, networks.n_components, networks.outputs), z).sum()

    slopes = jax.vmap(jax.grad(log_densities))(entering @ networks.weights[-1] + networks.biases[-1][:, None])
    return Curvature.summed(entering, slopes, weight)
