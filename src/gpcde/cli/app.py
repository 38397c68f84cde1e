"""The commands together, and how errors are told: one line on stderr, or with `--debug` the whole trace."""

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

from .._version import VERSION
from .answers import predict, sample
from .experiments import reproduce
from .fitting import fit, info
from .judging import compare, diagnose, score
from .pictures import demo, explore, plot
from .telling import tell

SHELLS = ("bash", "zsh", "fish")


class InOrder(click.Group):
    """A group that lists its commands in the order in which they are used."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(self.commands)


@click.command(short_help="Print what makes a shell complete commands.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes a shell complete commands.

    For bash, add `eval "$(gpcde completion bash)"` to ~/.bashrc; zsh is alike. For fish, write it to
    ~/.config/fish/completions/gpcde.fish.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(commands, {}, "gpcde", "_GPCDE_COMPLETE").source())


@click.group(
    cls=InOrder,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(VERSION, message="gpcde %(version)s")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the whole trace of an error (in any place).")
def commands() -> None:
    """Conditional density estimation with Gaussian processes: learn the whole distribution p(y|x) from a table.

    Tables are CSV, Parquet, Feather, Arrow or NPZ files, or - for a pipe. Answers go to stdout, all else to stderr.
    """


for _command in (fit, predict, sample, score, compare, diagnose, plot, info, explore, demo, reproduce, completion):
    commands.add_command(_command)


def run(arguments: Sequence[str]) -> int:
    """Run a command, and tell in one line what went wrong; the exit code."""
    words = [word for word in arguments if word != "--debug"] or ["--help"]
    with warnings.catch_warnings():
        warnings.showwarning = _warn
        try:
            code = commands.main(words, prog_name="gpcde", standalone_mode=False, obj=words)
            sys.stdout.flush()
            return code or 0
        except click.ClickException as error:
            asked = isinstance(error, click.UsageError) and error.ctx is not None
            more = f" ({error.ctx.command_path} --help says more)" if asked else ""  # type: ignore[attr-defined]
            return tell(error.format_message() + more, error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            return tell("stopped", 130)
        except BrokenPipeError:  # whoever read has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except Exception as error:
            if "--debug" in arguments:
                raise
            known = isinstance(error, ValueError | OSError | TypeError | RuntimeError | ImportError)
            what = "" if known else f"an error of gpcde itself ({type(error).__name__}; --debug shows where): "
            return tell(f"{what}{error}", 1)


def _warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        tell(f"beware: {message}")
