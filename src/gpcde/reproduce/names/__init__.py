"""What experiments and reports both speak of: models, sizes, conditions, and their order."""
