"""Images given their labels: the model of the MNIST and Omniglot experiments, its densities and its samples.

    y = mean image + P f([A x, w]) + N(0, σ² I),     x a one-hot label, P started from a Matérn kernel on the pixels

q(P) is Gaussian round its start (`ConjugateMixing`), in closed form; its prior's scale is learnt, so that P stays
near its start where images are few, and moves freely where they are many.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from ..inference.start import Design
from ..inference.training import State
from ..model.inputs import Inputs, make_inputs
from ..model.latents import LOG_2PI
from ..model.mixing import grid_start
from ..model.quadrature import quasi_random
from ..prediction.predictor import predict
from ..runtime.precision import scope
from ._run import Tell
from ._training import Course, train_design

SIDE = 28


def labelled(labels: Int[np.ndarray, " n"], classes: int) -> Inputs:
    """Labels as one-hot inputs."""
    return make_inputs(codes=labels[:, None], levels=(classes,))


def fit(
    settings: dict[str, Any],
    seed: int,
    images: Float[np.ndarray, "n p"],
    labels: Int[np.ndarray, " n"],
    classes: int,
    tell: Tell,
    checkpoint: Path,
) -> tuple[State, Float[np.ndarray, " p"]]:
    """The trained model, and the mean image it is centred on."""
    mean = images.mean(0)
    y = images - mean
    start = grid_start(SIDE, SIDE, settings["outputs"], settings["pixel_lengthscale"])
    start *= y.std() / np.sqrt((start**2).sum(1).mean())  # as much variance as the images have
    design = Design(
        inference="amortised",
        latent_dim=settings["latent_dim"],
        inducing=min(settings["inducing"], len(y)),
        input_map="project",
        input_dim=settings["input_dim"],
        levels=(classes,),
        mixing=start,
        mixing_posterior="conjugate",
        hidden=tuple(settings["hidden"]),
        noise_variance=settings["noise_variance"],
        trials=1,
    )
    course = Course(
        settings["steps"], min(settings["batch"], len(y)), tuple(settings["rates"]), tuple(settings["gammas"])
    )
    state, _ = train_design(seed, labelled(labels, classes), y, design, course, tell, checkpoint)
    return state, mean


def log_density_by_draws(
    state: State,
    centred: Float[np.ndarray, "n p"],
    labels: Int[np.ndarray, " n"],
    classes: int,
    draws: int,
) -> Float[np.ndarray, " n"]:
    """log p(y|label) as a mixture over quasi-random draws of w and A, made once a label."""
    dim, width = state.model.latents.dim, state.model.input_map.noise_dim
    v, log_weight = quasi_random(draws, dim + width)
    out = np.empty(len(labels))
    for label in np.unique(labels):
        mixture = predict(
            state.model, state.posterior, labelled(np.array([label]), classes), v[:, :dim], log_weight, v[:, dim:]
        )
        at = np.flatnonzero(labels == label)
        mean, variance, basis, outside = (np.asarray(a) for a in mixture[1:])
        out[at] = _mixture_log_density(centred[at], log_weight, mean[0], variance[0], basis, outside[0])
    return out


def _mixture_log_density(
    y: Float[np.ndarray, "n p"],
    log_weight: Float[np.ndarray, " k"],
    mean: Float[np.ndarray, "k L"],
    variance: Float[np.ndarray, "k L"],
    basis: Float[np.ndarray, "p L"],
    outside: Float[np.ndarray, " k"],
) -> Float[np.ndarray, " n"]:
    """One mixture at many y, by matrix products."""
    inside = y @ basis
    precision = 1 / variance
    squares = inside**2 @ precision.T - 2 * inside @ (mean * precision).T + (mean**2 * precision).sum(1)
    rest = np.maximum((y**2).sum(1) - (inside**2).sum(1), 0)[:, None] / outside
    others = y.shape[1] - basis.shape[1]
    constant = np.log(variance).sum(1) + others * np.log(outside) + y.shape[1] * LOG_2PI
    return logsumexp(log_weight - 0.5 * (squares + rest + constant), axis=1)


def samples(
    state: State, mean: Float[np.ndarray, " p"], labels: Int[np.ndarray, " n"], classes: int, count: int, seed: int = 0
) -> Float[np.ndarray, "n k p"]:
    """So many images of every label: the mean of y at draws of w and A, without the noise of single pixels."""
    dim, width = state.model.latents.dim, state.model.input_map.noise_dim
    rng = np.random.default_rng(seed)
    out = np.empty((len(labels), count, len(mean)))
    with scope():
        for i, label in enumerate(labels):
            v = rng.standard_normal((count, dim + width))
            x = labelled(np.array([label]), classes)
            mixture = predict(state.model, state.posterior, x, v[:, :dim], np.zeros(count), v[:, dim:])
            assert mixture.basis is not None
            out[i] = np.asarray(mixture.mean[0] @ mixture.basis.T) + mean
    return np.clip(out, 0, 1)
