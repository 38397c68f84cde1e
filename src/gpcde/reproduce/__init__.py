"""The paper's five experiments, one command each: `gpcde reproduce uci|taxi|omniglot|mnist|natgrad|all`.

Every experiment is a module with three functions: `units(preset)`, what is to be done; `work(unit, tell, checkpoint)`,
one unit of it, in a worker process; `report(lines, out)`, tables and figures from the lines of what is done.
"""

EXPERIMENTS = ("omniglot", "taxi", "mnist", "uci", "natgrad")
"""The one with the longest unit first."""

PRESETS = ("quick", "standard", "paper")
