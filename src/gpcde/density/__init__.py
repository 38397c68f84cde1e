"""The answer: batches of conditional densities, each a Gaussian mixture, in the user's units."""
