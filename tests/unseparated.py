"""A kernel for comparing what is computed by structure with what is computed plainly."""

from jaxtyping import Array, Float

from gpcde.model.kernels import Kernel


class Whole(Kernel):
    """A kernel that does not let itself be separated."""

    inner: Kernel

    def __call__(self, x: Float[Array, "n d"], z: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return self.inner(x, z)

    def gram(self, z: Float[Array, "m d"]) -> Float[Array, "m m"]:
        return self.inner.gram(z)

    def diag(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.inner.diag(x)

    def separate(self, split: int) -> None:
        return None
