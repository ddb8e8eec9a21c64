"""The ``neuron-tb`` command: one file per sub-command, imported when it is called."""

from __future__ import annotations

from importlib import import_module

import click

import neuron_tb

_COMMANDS = {
    "convert": "Write a capture for TensorBoard, Perfetto and tools that know CUDA's words.",
    "merge": "Join what was converted rank by rank to one run.",
    "summary": "Print where the time goes: by operator, kernel or step.",
    "compare": "Put captures side by side: did the change help?",
    "roofline": "Say what bounds a program: compute or memory, and how much it used.",
    "info": "Say what a capture holds and what it lacks.",
    "check": "Open what was written with the viewers' own code.",
    "run": "Run a script so that its GPU profiling records Neuron.",
    "view": "Convert if needed and open in TensorBoard or Perfetto.",
    "demo": "Show AWS's RMSNorm example: table, comparison, TensorBoard, Perfetto.",
}


class _Lazy(click.Group):
    """Imports a sub-command only when it runs, so that --help costs nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"neuron_tb.commands.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(neuron_tb.__version__, prog_name="neuron-tb")
def main() -> None:
    """AWS Trainium profiles in TensorBoard and Perfetto.

    Start with `neuron-tb demo`, or with `neuron-tb summary CAPTURE`.
    """
