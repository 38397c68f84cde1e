"""Test log likelihood on ten UCI regression sets: the paper's experiment on noise that is not Gaussian.

    Linear             y = [1, x] b + noise, exactly
    GP                 y = f(x) + noise, f a sparse Gaussian process
    CVAE               y = network(x, w) + noise, early-stopped; grid: dropout and rate by held-out rows
    MDN                a mixture of five Gaussians from a network, early-stopped; grid: likewise
    GP-CDE amortised   y = f([x, w]) + noise, q(w) Gaussian, from a network of three tanh layers
    GP-CDE optimal     the same model, q(w) free in form, by Gauss–Hermite quadrature
    GPCDE()            the estimator as it comes: features, noise and p(w|x) that vary, companions

Inputs and outputs are standardised by the training rows; log likelihoods are in the units of y. The three Gaussian
processes have the same kernel and number of inducing points. The two with latents take `first_steps` without them, so
that they go on from a GP, and then more from each of their `starts`, of which the training bound chooses; the optimal
q(w), whose steps are dearer, never takes more than the amortised one. Settings were chosen by training bounds.
"""

from .scoring import work
from .settings import units

__all__ = ["units", "work"]
