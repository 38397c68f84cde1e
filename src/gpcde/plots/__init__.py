"""Pictures of densities, and of whether they can be believed (extra `gpcde[plot]`).

    heatmap, fan, effect    the density over one input, the others held or averaged
    densities, joint        the density at chosen x: curves with their bands, or two outputs together
    pit, coverage           calibration
    training, comparison    how a fit went, which model is best
    latent, images          where the latents of rows lie, grids of images

Every function draws on the Axes it is given (`ax`), or on a new figure's, and answers with them. Colours are ordered by
lightness and lines differ in style too, so that pictures can be read in grey and by the colour-blind.
"""

from .calibration import coverage, pit, plot_coverage, plot_pit
from .curves import comparison, training
from .inputs import effect, fan, heatmap
from .latents import images, latent
from .outputs import densities, joint

__all__ = [
    "comparison",
    "coverage",
    "densities",
    "effect",
    "fan",
    "heatmap",
    "images",
    "joint",
    "latent",
    "pit",
    "plot_coverage",
    "plot_pit",
    "training",
]
