"""The ways of training, and the starts, of the experiment on natural gradients."""

ANALYTIC, NATURAL, WHITENED, PLAIN = MODELS = ("analytic", "natural gradient", "Adam, whitened", "Adam")

STARTS = ("random", "principal")
