"""The paper's five experiments, one command each: `gpcde reproduce uci|taxi|omniglot|mnist|natgrad|all`.

names        what experiments and reports both speak of: models, sizes, and their order
units        what is to be done
lines        what is kept of it
runner       does units in worker processes
experiments  for each a module with `units(preset)` and `work(unit, tell, checkpoint)`, which does one, in a worker
reports      for each a module with `report(lines, out)`: tables and figures, from the lines alone
command      all of it together
"""

EXPERIMENTS = ("omniglot", "taxi", "mnist", "uci", "natgrad")
"""The one with the longest unit first."""

PRESETS = ("quick", "standard", "paper")
