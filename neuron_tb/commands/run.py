"""``neuron-tb run``: run a script with the drop-in for torch.profiler."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import click

from neuron_tb.profiler.options import ENVIRONMENT, Options, as_text
from neuron_tb.profiler.running import run_module, run_script


@click.command(
    "run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option(
    "--device",
    type=click.Choice(["requested", "always"]),
    default="requested",
    show_default=True,
    help="`always` adds Neuron to profiles that ask for the CPU only.",
)
@click.option("--dir", "directory", metavar="DIR", help="Where the Neuron Runtime's files go.")
@click.option("--cuda-shims", is_flag=True, help="Make profiling calls of torch.cuda work.")
@click.option("--sync-steps", is_flag=True, help="Wait for the device at every step().")
@click.option("--quiet", is_flag=True, help="Print failures only.")
@click.option("-m", "module", metavar="MODULE", help="Run a module instead of a script.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    device: str,
    directory: str | None,
    cuda_shims: bool,
    sync_steps: bool,
    quiet: bool,
    module: str | None,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT ARGS… (or -m MODULE ARGS…) so that its GPU profiling records Neuron.

    The script is not changed. Processes that it starts with Python inherit the setting.
    """
    options = Options(
        device=device,
        directory=None if directory is None else str(Path(directory).absolute()),
        cuda_shims=cuda_shims,
        sync_steps=sync_steps,
        quiet=quiet,
    )
    if module is None and not arguments:
        raise click.UsageError("name a script, or a module with -m.")
    if module is None and not Path(arguments[0]).exists():
        raise click.UsageError(
            f"{arguments[0]} does not exist. For programs such as torchrun, set {ENVIRONMENT}="
            f"{as_text(options)} in the environment, or run their module with -m."
        )
    _switch_on(options)
    if module is not None:
        run_module(module, arguments)
    else:
        run_script(Path(arguments[0]), arguments[1:])


def _switch_on(options: Options) -> None:
    os.environ[ENVIRONMENT] = as_text(options)
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        click.echo(
            "neuron_tb: TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps the drop-in out of processes that "
            "the script starts.",
            err=True,
        )
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise click.ClickException(f"torch cannot be imported: {error}") from error
    # Without torch_neuronx every profile is plain torch's, and says why.
    with suppress(ImportError):
        import_module("torch_neuronx")
    from neuron_tb.profiler.patches import switch_on

    switch_on(options)
