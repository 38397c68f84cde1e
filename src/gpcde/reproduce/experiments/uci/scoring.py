"""One unit: a model trained on a split, and scored on the split's test rows in the units of y."""

from pathlib import Path
from typing import Any

import numpy as np

from ....datasets import load_uci
from ....estimators.cvae import CVAE
from ....estimators.linear import LinearGaussian
from ....estimators.mdn import MDN
from ....prediction import Nodes, Predictor
from ...names.uci import CHOSEN, DEFAULT, LINEAR, MIXTURE, MIXTURE_CHOSEN, NETWORK
from ...units import Tell, Unit
from ..training import fit_gpcde, noise_variance
from .training import Task, standardised, trained


def work(unit: Unit, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    """Train a model on a split, and score it on the split's test rows."""
    task = standardised(load_uci(unit.data), unit.split)
    own = {LINEAR: _linear, NETWORK: _network, CHOSEN: _network, DEFAULT: _default}
    own |= {MIXTURE: _mixture, MIXTURE_CHOSEN: _mixture}
    score = own.get(unit.model, _process)
    metrics = score(unit, task, tell, checkpoint)
    if "noise_variance" in metrics:
        metrics["noise_variance"] *= float(np.exp(2 * task.log_scale))
    for name in ("log_likelihood", "bound"):
        if name in metrics:
            metrics[name] -= task.log_scale
    return metrics | {"rows": len(task.y), "test_rows": len(task.test_y)}


def _process(unit: Unit, task: Task, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    """The Gaussian processes, in standard units."""
    bound, state = trained(unit, task, tell, checkpoint)
    nodes = Nodes.for_model(state.model, line=unit.settings["nodes"])
    scores = Predictor.create(state.model, state.posterior, nodes).log_density(task.test_x, task.test_y)
    return {"log_likelihood": float(scores.mean()), "bound": bound, "noise_variance": noise_variance(state)}


def _linear(unit: Unit, task: Task, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    """Linear regression, in standard units."""
    linear = LinearGaussian().fit(task.x.dense, task.y)
    scores = linear.predict_density(task.test_x.dense).log_pdf(task.test_y)
    return {
        "log_likelihood": float(np.mean(scores)),
        "noise_variance": float(linear.covariance_[0, 0]),
        "steps": 0,
    }


def _default(unit: Unit, task: Task, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    """The estimator as it comes, in standard units."""
    model = fit_gpcde(unit.seed, task.x.dense, task.y, tell, checkpoint)
    noise = noise_variance(model.state_) * float(model.transform_.scale[0]) ** 2
    scores = model.predict_density(task.test_x.dense).log_pdf(task.test_y)
    return {"log_likelihood": float(np.mean(scores)), "noise_variance": noise, "steps": int(model.n_steps_)}


def _training(unit: Unit) -> dict[str, Any]:
    """How a network of either kind is trained."""
    settings = unit.settings
    return {
        "dropout": settings["dropout"],
        "learning_rate": settings["learning_rate"],
        "max_epochs": settings["max_epochs"],
        "patience": settings["patience"],
        "batch_size": settings["batch"],
        "validation_fraction": settings["validation"],
        "random_state": unit.seed,
    }


def _network(unit: Unit, task: Task, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    """The CVAE, in standard units."""
    settings = unit.settings
    network = CVAE(
        latent_dim=settings["latents"],
        architecture=settings["architecture"],
        noise_rate=settings.get("noise_rate", 1.0),
        **_training(unit),
    ).fit(task.x.dense, task.y)
    scores = network.predict_density(task.test_x.dense).log_pdf(task.test_y)
    noise = float(np.exp(network.network_.log_noise_variance)) * float(network.transform_.scale[0]) ** 2
    batches = int((1 - settings["validation"]) * len(task.y)) // settings["batch"]
    return {
        "log_likelihood": float(np.mean(scores)),
        "noise_variance": noise,
        "steps": network.n_epochs_ * max(1, batches),
        **network.best_params_,
    }


def _mixture(unit: Unit, task: Task, tell: Tell, checkpoint: Path) -> dict[str, Any]:
    """The mixture density network, in standard units."""
    settings = unit.settings
    network = MDN(
        n_components=settings["components"],
        hidden=tuple(settings["hidden"]),
        weight_decay=settings["weight_decay"],
        **_training(unit),
    ).fit(task.x.dense, task.y)
    scores = network.predict_density(task.test_x.dense).log_pdf(task.test_y)
    return {"log_likelihood": float(np.mean(scores)), "epochs": network.n_epochs_, **network.best_params_}
