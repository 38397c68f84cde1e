"""Few-shot classification: of `way` new classes, four drawings of each known, which one is a drawing of?

    Bayes' rule              argmax over the classes of log p(y|class), all as likely a priori
    nearest neighbour        the class of the nearest of the known drawings, pixel by pixel

An episode is `way` classes, and one unseen drawing of each to be told apart. Both see the same episodes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..lines import mean_error


class Episodes(NamedTuple):
    """Drawing i of an episode is one of its class i."""

    classes: Int[np.ndarray, "e way"]
    drawings: Int[np.ndarray, "e way"]


def draw_episodes(
    seed: int, labels: Int[np.ndarray, " n"], unseen: Int[np.ndarray, " t"], way: int, count: int
) -> Episodes:
    """Random classes of the unseen drawings, and one drawing of each."""
    rng = np.random.default_rng([seed, way])
    rows = {int(c): unseen[labels[unseen] == c] for c in np.unique(labels[unseen])}
    classes = np.stack([rng.permutation(list(rows))[:way] for _ in range(count)])
    return Episodes(classes, np.array([[rng.choice(rows[int(c)]) for c in episode] for episode in classes]))


LogDensity = Callable[[int, Int[np.ndarray, " m"]], Float[np.ndarray, " m"]]
"""log p(y|class) of one class and some drawings."""


def scores(episodes: Episodes, log_density: LogDensity) -> Float[np.ndarray, "e way way"]:
    """log p(y_i|class j) in every episode; a class is asked once, for all drawings it meets."""
    out = np.empty((*episodes.drawings.shape, episodes.classes.shape[1]))
    for label in np.unique(episodes.classes):
        where, column = np.nonzero(episodes.classes == label)
        drawings = episodes.drawings[where]
        out[where, :, column] = log_density(int(label), drawings.ravel()).reshape(drawings.shape)
    return out


def nearest(
    episodes: Episodes,
    images: Float[np.ndarray, "n p"],
    labels: Int[np.ndarray, " n"],
    known: Int[np.ndarray, " k"],
) -> Float[np.ndarray, "e way way"]:
    """Minus the squared distance of drawing i to the nearest known drawing of class j."""
    of_class = {int(c): images[known[labels[known] == c]] for c in np.unique(episodes.classes)}

    def minus_distance(label: int, drawings: Int[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        a, b = images[drawings], of_class[label]
        return -((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T).min(1)

    return scores(episodes, minus_distance)


def accuracy(values: Float[np.ndarray, "e way way"]) -> tuple[float, float]:
    """The share of drawings whose own class has the greatest value, and its standard error over episodes."""
    return mean_error((values.argmax(2) == np.arange(values.shape[1])).mean(1))


def right_minus_wrong(values: Float[np.ndarray, "e way way"]) -> tuple[float, float]:
    """What the own class has above the mean of the others, and its standard error over episodes."""
    way = values.shape[1]
    right = np.diagonal(values, axis1=1, axis2=2)
    wrong = (values.sum(2) - right) / (way - 1)
    return mean_error((right - wrong).mean(1))


def few_shot_metrics(
    seed: int,
    ways: dict[str, int],
    images: dict[str, Float[np.ndarray, "n p"]],
    labels: Int[np.ndarray, " n"],
    known: Int[np.ndarray, " k"],
    unseen: Int[np.ndarray, " t"],
    log_density: LogDensity,
) -> dict[str, Any]:
    """Of so many episodes of each way: accuracies of both, and right minus wrong label in nats per pixel.

    Neighbours are looked for in each kind of images; "centred nearest" is what they say of "centred " ones.
    """
    out: dict[str, Any] = {}
    for way, count in ways.items():
        episodes = draw_episodes(seed, labels, unseen, int(way), count)
        ours = scores(episodes, log_density)
        pixels = next(iter(images.values())).shape[1]
        out[way] = {"accuracy": accuracy(ours), "right_minus_wrong": right_minus_wrong(ours / pixels)}
        for kind, seen in images.items():
            out[way][f"{kind}nearest"] = accuracy(nearest(episodes, seen, labels, known))
    return out
