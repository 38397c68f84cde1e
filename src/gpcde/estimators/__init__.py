"""Estimators in scikit-learn's shape: GPCDE, its special cases, and the rivals it is measured by."""
