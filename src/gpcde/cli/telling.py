"""What commands say: lines to stderr, results to stdout as text or JSON."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click


def tell(message: str, code: int = 0) -> int:
    """Say one line on stderr; the exit code, passed on."""
    click.echo("gpcde: " + " ".join(message.split()), err=True)
    return code


def show(facts: dict[str, Any], as_json: bool) -> None:
    """Facts by name, one a line, those that belong together indented."""
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        if not isinstance(value, dict):
            click.echo(f"{name:{width}}  {value}")
        elif value:
            inner = max(len(key) for key in value)
            click.echo("\n".join([name, *(f"  {key:{inner}}  {item}" for key, item in value.items())]))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown whose columns stand beneath each other."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])
