"""The paper's taxi experiment: where does a taxi go, given where and when its trip begins?

    NLPP = - mean log p(y|x),   x: place, weekday and time of the pick-up,   y: place of the drop-off, standardised

Two sets of test trips: the paper's, each the farthest from those chosen before it, which lie at the fringes of the
inputs; and random ones, which lie where trips do. The training rows are drawn from the others, 1K within 5K within all.
Every model sees the same rows, and is scored in the same units.

Beside the paper's rows there are rivals that a careful engineer would fit (mixture density networks that stop early,
with weight decay and full covariances; a conditional kernel estimate with kernels in x too, all bandwidths by
cross-validation), and two forms of the model that the paper does not have: with a free-form q(w), and with a warp,
y = f(w + g(x, w)) + noise, in which one GP of two inputs has the shape of the city for all conditions together, and a
network g with a firm prior moves the latent as the condition wants it.
"""

from .scoring import work
from .settings import units

__all__ = ["units", "work"]
