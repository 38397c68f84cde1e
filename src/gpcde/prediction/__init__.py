"""From a trained model to densities: the predictor, functions drawn, q(w|x, y), importance sampling."""

from .importance import importance_log_density
from .latent_posterior import infer
from .nodes import Nodes
from .paths import Path, draw_path
from .predictor import Mixture, Predictor

__all__ = ["Mixture", "Nodes", "Path", "Predictor", "draw_path", "importance_log_density", "infer"]
