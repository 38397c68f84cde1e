"""The models of the MNIST experiment."""

GP, GP_FIXED = "GP-CDE", "GP-CDE fixed"
NETWORK, NETWORK_FIXED, NETWORK_STOPPED = "CVAE", "CVAE fixed", "CVAE early stopped"
GP_MIXED, NETWORK_FASTER = "GP-CDE, noise along P", "CVAE, rate of noise"
WITHIN, APART = "pPCA within classes", "pPCA of each class"
MODELS = (GP, GP_FIXED, NETWORK, NETWORK_FIXED, NETWORK_STOPPED)

FIXED = 0.1
"""The fixed σ²: what the paper's CVAE columns imply."""


def more_latents(dim: int) -> str:
    """The name of the GP-CDE with this many latents."""
    return f"GP-CDE, {dim} latents"


def latents_of(name: str) -> int | None:
    """How many latents such a name says, or None where it is another's."""
    return int(name.split()[1]) if name.endswith(" latents") else None
