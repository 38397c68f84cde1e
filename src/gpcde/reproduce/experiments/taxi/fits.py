"""Fitting each kind of model: `FITS[kind](unit, x, y, tell, checkpoint)`."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from ....density.components import Components
from ....density.conditional import ConditionalDensity, Source
from ....density.transforms import OutputTransform
from ....estimators.kde import KDE, ConditionalKDE
from ....estimators.mdn import MDN
from ....inference import Design, State, Trainer, start
from ....model import RBF, Inputs, Warp, make_inputs
from ....prediction import Nodes, Predictor
from ....runtime.precision import scope
from ...units import Tell, Unit
from ..training import Schedule, fit_gpcde, noise_variance, train_design


class Fitted(NamedTuple):
    """What is asked of a model: the densities at some x, and whatever else is worth keeping."""

    density: Callable[[np.ndarray], ConditionalDensity]
    about: dict[str, Any]


def _fit_kde(unit: Unit, x: np.ndarray, y: np.ndarray, tell: Tell, checkpoint: Path) -> Fitted:
    cls = KDE if unit.settings["kind"] == "kde" else ConditionalKDE
    model = cls(**unit.settings["options"], random_state=unit.seed).fit(x, y)
    scale = model.transform_.scale
    return Fitted(model.predict_density, {"bandwidths": [float(h) for h in model.bandwidths_.y * scale]})


def _fit_mdn(unit: Unit, x: np.ndarray, y: np.ndarray, tell: Tell, checkpoint: Path) -> Fitted:
    options = {**unit.settings["options"], "hidden": tuple(unit.settings["options"]["hidden"])}
    model = MDN(**options, random_state=unit.seed).fit(x, y)
    return Fitted(model.predict_density, {"epochs": int(model.n_epochs_)})


def _fit_gpcde(unit: Unit, x: np.ndarray, y: np.ndarray, tell: Tell, checkpoint: Path) -> Fitted:
    model = fit_gpcde(unit.seed, x, y, tell, checkpoint, **unit.settings["options"])
    about = {"noise_variance": noise_variance(model.state_), "steps": int(model.n_steps_)}
    return Fitted(model.predict_density, about)


def _fit_design(unit: Unit, x: np.ndarray, y: np.ndarray, tell: Tell, checkpoint: Path) -> Fitted:
    """The paper's models and the warp, by their own schedule."""
    settings = unit.settings
    uses = settings.get("inputs", True)
    inputs = _inputs(x, uses)
    design, first = make_design(settings), None
    if "warp" in settings:
        design = _warped(unit.seed, inputs, design, settings["warp"])
        first = functools.partial(_quiet_start, unit.seed, inputs, y, design, settings["warp"]["noise_variance"])
    state, records = train_design(unit.seed, inputs, y, design, make_schedule(settings), tell, checkpoint, first)
    nodes = Nodes.for_model(state.model, cloud=settings["nodes"])
    predictor, transform = Predictor.create(state.model, state.posterior, nodes), OutputTransform.identity(y.shape[1])

    def density(x: np.ndarray) -> ConditionalDensity:
        inputs = _inputs(x, uses)

        def components(rows: Int[np.ndarray, " b"]) -> Components:
            return predictor.components(inputs.take(rows))

        def log_pdf(rows: Int[np.ndarray, " b"], z: Float[np.ndarray, "b D"]) -> Float[np.ndarray, " b"]:
            return predictor.log_density(inputs.take(rows), z)

        return ConditionalDensity(Source(components, log_pdf), transform, len(x))

    return Fitted(density, {"noise_variance": noise_variance(state), "bound": float(records[-1].bound)})


FITS: dict[str, Callable[[Unit, np.ndarray, np.ndarray, Tell, Path], Fitted]] = {
    "kde": _fit_kde,
    "neighbours": _fit_kde,
    "product": _fit_kde,
    "mdn": _fit_mdn,
    "gpcde": _fit_gpcde,
    "design": _fit_design,
}


def _inputs(x: Float[np.ndarray, "n 6"], uses: bool) -> Inputs:
    """The inputs, or as many rows of nothing."""
    return make_inputs(x) if uses else make_inputs(rows=len(x))


def make_design(settings: dict[str, Any]) -> Design:
    """The design that the settings have."""
    return Design(**settings["design"])


def make_schedule(settings: dict[str, Any]) -> Schedule:
    """The schedule that the settings have."""
    course = settings["course"]
    return Schedule(course["steps"], course["batch_size"], tuple(course["rates"]), tuple(course["gammas"]))


def _warped(seed: int, x: Inputs, design: Design, warp: dict[str, Any]) -> Design:
    """The design with this network, its prior, and the lengthscale of the moved latent."""
    dim, hidden = design.latent_dim, tuple(warp["hidden"])
    with scope():
        input_map = Warp.create(jax.random.key(seed), x.dense.shape[1], dim, hidden, warp["weight_precision"])
        return dataclasses.replace(design, input_map=input_map, kernel=RBF.create(dim, warp["lengthscale"]))


def _quiet_start(seed: int, x: Inputs, y: np.ndarray, design: Design, noise_variance: float) -> State:
    """The usual start, but with this little noise: a design says the noise only where it is to stay."""
    state = start(jax.random.key(seed), x, y, design)
    with scope():
        likelihood = state.model.likelihood.with_noise_variance(noise_variance)
        likelihood = jax.tree.map(lambda a: a.astype(design.dtype), likelihood)
        model = dataclasses.replace(state.model, likelihood=likelihood)
        return Trainer.create(len(y)).init(model, state.posterior)
