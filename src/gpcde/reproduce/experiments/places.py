"""The place of a drawing as a latent of its own: y = T_t z, where T_t moves an image by t pixels, round the edges.

T_t is a permutation of the pixels, so that no volume changes, and with p(t) a table

    log p(y|c) = log sum_t p(t) p(T_t⁻¹ y|c) ≥ log p(t̂) + log p(T_t̂⁻¹ y|c)

for any t̂. Here it is the one that puts the centre of mass in the middle: what is reported is the right side, too low
rather than too high. A class says nothing of t, so that p(t̂) is the same for all classes.

A place is two numbers: by how many pixels an image is off the middle, downwards and to the right.
"""

import numpy as np
from jaxtyping import Float, Int


def centres(images: Float[np.ndarray, "n p"], side: int) -> Int[np.ndarray, "n 2"]:
    """t̂: the centre of mass, to the nearest pixel; no ink is in the middle."""
    tiles, along, middle = images.reshape(-1, side, side), np.arange(side), (side - 1) / 2
    ink = np.maximum(tiles.sum((1, 2)), 1e-12)
    down, right = tiles.sum(2) @ along / ink, tiles.sum(1) @ along / ink
    empty = tiles.sum((1, 2)) <= 0
    return np.where(empty[:, None], 0, np.rint(np.stack([down, right], 1) - middle)).astype(int)


def moved(images: Float[np.ndarray, "n p"], by: Int[np.ndarray, "n 2"], side: int) -> Float[np.ndarray, "n p"]:
    """T_t y."""
    tiles = images.reshape(-1, side, side)
    rows, columns = ((np.arange(side) - shift[:, None]) % side for shift in by.T)
    return tiles[np.arange(len(tiles))[:, None, None], rows[:, :, None], columns[:, None, :]].reshape(images.shape)


def log_probabilities(
    known: Int[np.ndarray, "k 2"], places: Int[np.ndarray, "n 2"], side: int
) -> Float[np.ndarray, " n"]:
    """log p(t), from how often each was seen, as if one more image had been spread over all of them."""
    table = np.full((side, side), 1 / side**2)
    np.add.at(table, tuple(known.T % side), 1)
    return np.log(table / table.sum())[tuple(places.T % side)]
