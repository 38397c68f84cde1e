"""Parts: what a model is made of, each an immutable module that answers for itself.

    penalty()      KL[q || p] of what the part is uncertain of, or minus the log prior of its parameters
    sample(key)    the part with its uncertainty drawn: certain, for one function of the posterior

Kernels, input maps, posteriors of w, mixings, likelihoods and priors of w are parts. What else is asked of each is in
its own abstract class; a part that lacks an answer cannot be made, and nothing outside asks of which class it is. A
part registers itself for files when its class is defined, also one of a user's own.
"""

import abc
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..runtime.files import Stored
from ..runtime.precision import require_wide


class Part(Stored):
    """A part of a model."""

    def __check_init__(self) -> None:
        require_wide(type(self).__name__)

    @abc.abstractmethod
    def penalty(self) -> Float[Array, ""]:
        """What the bound loses for this part: KL[q || p], or minus a log prior, a constant apart."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray) -> Any:
        """A part of the same kind, with what this one is uncertain of drawn."""


class Certain(Part):
    """A part with nothing uncertain and no prior: no penalty, and a draw of it is itself."""

    def penalty(self) -> Float[Array, ""]:
        return jnp.zeros(())

    def sample(self, key: PRNGKeyArray) -> "Certain":
        return self
