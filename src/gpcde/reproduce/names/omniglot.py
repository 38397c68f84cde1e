"""The models of the Omniglot experiment."""

GP = "GP-CDE"


def principal(count: int) -> str:
    """The name of probabilistic PCA with this many latents."""
    return f"pPCA, {count} latents"
