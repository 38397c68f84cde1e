"""Which model is best, and whether it can be believed."""
