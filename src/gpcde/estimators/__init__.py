"""Estimators in scikit-learn's shape: GPCDE, its special cases, and the rivals it is measured by."""

from . import cvae, gp, gpcde, kde, linear, mdn, stacked

__all__ = ["cvae", "gp", "gpcde", "kde", "linear", "mdn", "stacked"]
"""All but the flow, an extra: so that files of each can be read once one is imported."""
