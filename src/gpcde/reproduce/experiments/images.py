"""Images given their labels: the model of the MNIST and Omniglot experiments, its densities and its samples.

    y = mean image + P f([A x, w]) + N(0, σ² I),     x a one-hot label, P started from a Matérn kernel on the pixels

q(P) is Gaussian round its start (`ConjugateMixing`), in closed form; its prior's scale is learnt, so that P stays
near its start where images are few, and moves freely where they are many.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from ...density.components import Components
from ...inference import Design, State
from ...model import RBF, Inputs, Kernel, Polynomial, grid_start, make_inputs, principal_start
from ...model.gaussians import LOG_2PI
from ...prediction import Nodes, Predictor
from ...runtime.precision import scope
from ..units import Tell
from .training import Schedule, train_design

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
    start = _mixing_start(settings, y, labels)
    design = Design(
        inference="amortised",
        latent_dim=settings["latent_dim"],
        inducing=min(settings["inducing"], len(y)),
        kernel=_kernel(settings),
        input_map="project",
        input_dim=settings["input_dim"],
        levels=(classes,),
        mixing=start,
        mixing_posterior="conjugate",
        hidden=tuple(settings["hidden"]),
        trend=settings.get("trend", "none"),
        likelihood=settings.get("noise", "constant"),
        noise_variance=settings["noise_variance"],
        dtype=settings.get("dtype", "float64"),
        trials=1,
    )
    schedule = Schedule(
        settings["steps"], min(settings["batch"], len(y)), tuple(settings["rates"]), tuple(settings["gammas"])
    )
    state, _ = train_design(seed, labelled(labels, classes), y, design, schedule, tell, checkpoint)
    return state, mean


def _mixing_start(
    settings: dict[str, Any], y: Float[np.ndarray, "n p"], labels: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "p L"]:
    """P from a Matérn kernel on the pixels, or from the principal directions of what differs within classes."""
    if settings.get("mixing", "matern") == "within":
        _, place, count = np.unique(labels, return_inverse=True, return_counts=True)
        total = np.zeros((len(count), y.shape[1]))
        np.add.at(total, place, y)
        return principal_start(y - (total / count[:, None])[place], settings["outputs"])
    start = grid_start(SIDE, SIDE, settings["outputs"], settings["pixel_lengthscale"])
    return start * y.std() / np.sqrt((start**2).sum(1).mean())  # as much variance as the images have


def _kernel(settings: dict[str, Any]) -> str | Kernel:
    """RBF of all of h; or "bilinear", (c + v (A x)ᵀ (A x)') k(w, w'): for every w another linear function of A x."""
    if settings.get("kernel", "rbf") == "rbf":
        return "rbf"
    width, dim = settings["input_dim"], settings["latent_dim"]
    with scope():
        linear = Polynomial.create(width, 1, 1 / width)
        return linear * RBF.create(tuple(range(width, width + dim)), settings["latent_lengthscale"])


def log_density_by_draws(
    state: State,
    centred: Float[np.ndarray, "n p"],
    labels: Int[np.ndarray, " n"],
    classes: int,
    draws: int,
) -> Float[np.ndarray, " n"]:
    """log p(y|label) as a mixture over quasi-random draws of w and A, made once a label."""
    predictor = Predictor.create(state.model, state.posterior, Nodes.for_model(state.model, cloud=draws))
    out = np.empty(len(labels))
    for label in np.unique(labels):
        at = np.flatnonzero(labels == label)
        out[at] = mixture_log_density(predictor.components(labelled(np.array([label]), classes)), centred[at])
    return out


def mixture_log_density(mixture: Components, y: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
    """The log density of one mixture (that of a single row) at many y.

    Squares are multiplied out, so that all pairs of y and components are matrix products. `Components.log_pdf` takes
    the coordinates one after another: exact for the narrowest components too, but three times slower for an image in
    the 50 directions of P, and far more in its 784 pixels.
    """
    log_weight, mean, variance = (a[0] for a in mixture[:3])
    inside = y if mixture.basis is None else y @ mixture.basis[0, 0]
    same = variance.shape[1] == 1  # in all directions
    precision = 1 / variance
    squares = (inside**2).sum(1, keepdims=True) if same else inside**2
    total = squares @ precision.T - 2 * inside @ (mean * precision).T + (mean**2 * precision).sum(1)
    total = total + np.log(variance).sum(1) * (mean.shape[1] if same else 1) + y.shape[1] * LOG_2PI
    if mixture.outside is not None:
        rest = np.maximum((y**2).sum(1) - (inside**2).sum(1), 0)[:, None]
        total = total + rest / mixture.outside[0] + (y.shape[1] - mean.shape[1]) * np.log(mixture.outside[0])
    return logsumexp(log_weight - 0.5 * total, axis=1)


def principal_log_density(
    train: Float[np.ndarray, "n p"], test: Float[np.ndarray, "m p"], count: int
) -> Float[np.ndarray, " m"]:
    """Log densities by probabilistic PCA with that many latents, at maximum likelihood: what no label is needed for.

    N(mean, U diag(λ) Uᵀ + σ² (I - U Uᵀ)), λ the leading eigenvalues of the covariance, σ² the mean of the others.
    """
    mean = train.mean(0)
    z, y = train - mean, test - mean
    values, vectors = np.linalg.eigh(z.T @ z / len(z))
    variance, basis = values[::-1][:count], vectors[:, ::-1][:, :count]
    rest = max(float(values[::-1][count:].mean()), 1e-12)
    components = Components(
        np.zeros((1, 1)), np.zeros((1, 1, count)), variance[None, None], basis[None, None], np.full((1, 1), rest)
    )
    return mixture_log_density(components, y)


def samples(
    state: State, mean: Float[np.ndarray, " p"], labels: Int[np.ndarray, " n"], classes: int, count: int, seed: int = 0
) -> Float[np.ndarray, "n k p"]:
    """That many images of every label: the mean of y at draws of w and A, without the noise of single pixels."""
    dim, width = state.model.latents.dim, state.model.input_map.draw_dim
    draws = np.random.default_rng(seed).standard_normal((len(labels), count, dim + width))
    nodes = [Nodes(v[:, :dim], np.zeros(count), v[:, dim:]) for v in draws]
    predictor = Predictor.create(state.model, state.posterior, nodes[0])
    out = np.empty((len(labels), count, len(mean)))
    with scope():
        for i, label in enumerate(labels):
            mixture = dataclasses.replace(predictor, nodes=nodes[i]).mixture(labelled(np.array([label]), classes))
            out[i] = np.asarray(mixture.means()[0]) + mean
    return np.clip(out, 0, 1)
