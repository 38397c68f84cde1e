"""The models and data sets of the UCI experiment."""

LINEAR, GP, NETWORK, CHOSEN, MIXTURE, MIXTURE_CHOSEN, AMORTISED, OPTIMAL, DEFAULT = MODELS = (
    "Linear",
    "GP",
    "CVAE",
    "CVAE, grid",
    "MDN",
    "MDN, grid",
    "GP-CDE amortised",
    "GP-CDE optimal",
    "GPCDE()",
)

GRIDS = (CHOSEN, MIXTURE_CHOSEN)
"""The networks with the paper's grid of dropouts and rates."""

BESIDE = (*GRIDS, MIXTURE)
"""Models of the table of networks, which may be of fewer splits than the others."""

ROWS = {
    "boston": 455,
    "concrete": 927,
    "energy": 691,
    "kin8nm": 7373,
    "naval": 10741,
    "power": 8611,
    "protein": 41157,
    "winered": 1439,
    "winewhite": 4408,
    "yacht": 277,
}
"""Training rows of a split."""
