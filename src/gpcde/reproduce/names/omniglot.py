"""The models of the Omniglot experiment."""

GP, LEVELS = "GP-CDE", "two-level Gaussian"

CENTRED = ", centred"
"""What the name of a model of centred images ends with, where there is one of images as they are too."""


def principal(count: int) -> str:
    """The name of probabilistic PCA with this many latents."""
    return f"pPCA, {count} latents"
