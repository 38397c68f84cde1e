"""Arguments and options that several commands have."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

KINDS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".arrows": "stream",
    ".npz": "npz",
}
"""Formats of tables by the names of files; Feather is what Arrow's files are called."""

ANY = ("", ".txt", ".dat")
"""Endings that say nothing of the format."""


def check_writable(path: str | Path) -> None:
    """Raise where a file cannot be written: before any work is done for it."""
    file = Path(path)
    if not file.parent.is_dir():
        raise click.BadParameter(f"there is no folder {file.parent}", param_hint="--out")
    if file.is_dir() or not os.access(file.parent, os.W_OK) or (file.exists() and not os.access(file, os.W_OK)):
        raise click.BadParameter(f"{file} cannot be written", param_hint="--out")


def _file(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and value != "-":
        check_writable(value)
    return value


def _table(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if Path(value).suffix.lower() not in (*KINDS, *ANY):
        raise click.BadParameter(f"{value} is no table: names end in {', '.join(KINDS)}", param_hint="--out")
    _file(context, parameter, value)
    return value


def file_out(text: str) -> Decorator:
    """An option that names a file to write."""
    return click.option("--out", type=click.Path(), metavar="FILE", callback=_file, help=text)


data = click.argument("data", type=click.Path(allow_dash=True))
some_data = click.argument("data", type=click.Path(allow_dash=True), required=False)
model = click.argument("model", type=click.Path())
seed = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of all random numbers.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
table_out = click.option(
    "--out",
    type=click.Path(allow_dash=True),
    default="-",
    metavar="FILE",
    callback=_table,
    help="Where the table goes, in the format of its name; else to stdout, in the format of DATA.",
)


def columns(name: str, text: str, **more: Any) -> Decorator:
    """An option that names columns: separated by commas, or given several times."""
    return click.option(name, multiple=True, metavar="COLUMNS", help=text, **more)


known_target = columns("--target", "The columns that are y, where the model was fitted without names.")
learnt_target = columns("--target", "The columns to learn the density of.  [default: y]")
features = columns("--features", "The columns to learn it from.  [default: all others]")
drop = columns("--drop", "Columns to leave out.")
categories = columns("--categories", "Columns of numbers that are categories; columns of text always are.")
settings = click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="A parameter of the model.")
stream = click.option(
    "--stream", is_flag=True, help="Read DATA, which is Parquet, as it is needed; of a folder, that goes by itself."
)
config = click.option(
    "--config", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="A TOML file of parameters."
)


def weights(text: str) -> Decorator:
    """An option that names the column of weights."""
    return click.option("--weights", metavar="COLUMN", help=text)
