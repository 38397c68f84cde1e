"""A page in the browser where the condition is moved and the density follows: `gpcde explore model.gpcde`."""

from .server import serve

__all__ = ["serve"]
