"""The ways of training, and the starts, of the experiment on natural gradients."""

ANALYTIC, NATURAL, WHITENED, PLAIN = MODELS = ("analytic", "natural gradient", "Adam, whitened", "Adam")

STARTS = ("random", "principal")

CONVERGED = "analytic, converged"
"""The first of them until nothing changes any more, with other numbers of inducing inputs and latents."""


def setting(inducing: int, latents: int, lengthscale: float) -> str:
    """The name of one of these."""
    return f"M = {inducing}, {latents} latent{'s' if latents > 1 else ''}, lengthscale {lengthscale:g}"
