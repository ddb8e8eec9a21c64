"""The ``neuron-tb`` command: one file per sub-command, imported when it is called."""

from __future__ import annotations

from importlib import import_module

import click

import neuron_tb
from neuron_tb.overview import COMMANDS


class _Lazy(click.Group):
    """Imports a sub-command only when it runs, so that --help costs nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"neuron_tb.commands.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(neuron_tb.__version__, prog_name="neuron-tb")
def main() -> None:
    """AWS Trainium profiles in TensorBoard and Perfetto.

    Start with `neuron-tb demo`, or with `neuron-tb summary CAPTURE`.
    """
