"""Fill the guide's table of defaults from the code that chooses them: python docs/tables.py"""

import re
from pathlib import Path

import numpy as np

from gpcde import GPCDE
from gpcde.estimators.plan import FEW_ROWS, MANY_INPUTS, Plan, choose

GUIDE = Path(__file__).with_name("guide.md")

ROWS = (100, 700, 2_000, 20_000, 1_000_000)
"""Numbers of rows that the table shows."""


def table() -> str:
    """What is chosen for data of two inputs: by the number of outputs, and by the number of rows."""
    lines = [
        f"| outputs | `inference` | `latent_dim` | `input_map` | of more than {FEW_ROWS} rows |",
        "|---|---|---|---|---|",
    ]
    for outputs in (1, 2, 3, 10):
        design, more = (_plan(rows, outputs).design for rows in (FEW_ROWS, FEW_ROWS + 1))
        maps = " | ".join(f'`"{one.input_map}"`' for one in (design, more))
        lines.append(f'| {outputs} | `"{design.inference}"` | {design.latent_dim} | {maps} |')
    lines += ["", "| rows | " + " | ".join(f"{rows:,}" for rows in ROWS) + " |", "|---" * (len(ROWS) + 1) + "|"]
    plans = [_plan(rows, 1) for rows in ROWS]
    for name, values in {
        "`n_inducing`": [plan.design.inducing for plan in plans],
        "of the mean": [plan.design.first_inducing for plan in plans],
        "`batch_size`": [
            "all" if plan.batch_size == rows else plan.batch_size for rows, plan in zip(ROWS, plans, strict=True)
        ],
        "`max_steps`": [plan.steps for plan in plans],
    }.items():
        lines.append(f"| {name} | " + " | ".join(f"{v:,}" if isinstance(v, int) else v for v in values) + " |")
    lines += ["", f"More than {MANY_INPUTS} numbers, and all categories, are projected by A first."]
    return "\n".join(lines)


def _plan(rows: int, outputs: int) -> Plan:
    z = np.random.default_rng(0).normal(size=(20, outputs))
    return choose(GPCDE().get_params(deep=False), rows, 2, (), z)


def filled(text: str) -> str:
    """The guide with the table in its place."""
    return re.sub(
        r"<!-- defaults -->\n.*?<!-- /defaults -->",
        lambda _: f"<!-- defaults -->\n{table()}\n<!-- /defaults -->",
        text,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    GUIDE.write_text(filled(GUIDE.read_text()))
