"""``neuron-tb demo``: AWS's RMSNorm example, from the table to the viewers."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import click

import neuron_tb.samples
from neuron_tb.analysis.comparison import compare
from neuron_tb.analysis.summary import summarize
from neuron_tb.commands.common import LOCAL, Stages, command_options, print_findings
from neuron_tb.commands.compare import print_comparison
from neuron_tb.commands.summary import print_summary
from neuron_tb.converters.convert import TARGETS, convert
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.load import load

_FORMS = ("naive", "rms_norm", "compiled")
_SOURCE_NOTE = (
    'Synthetic captures, re-created from the table published in "Profiling TorchNeuron (Part 1): '
    'System-level profiling on AWS Trainium" (AWS, Hugging Face blog). Not measurements.'
)


@click.command("demo")
@click.argument("directory", default="neuron-tb-demo", type=LOCAL)
@click.option(
    "--open/--no-open",
    "--view/--no-view",
    "open_page",
    default=None,
    help="Serve the results and open TensorBoard and Perfetto in the browser, as `view` does; by "
    "default on a terminal.",
)
@click.option(
    "--live",
    "with_training",
    is_flag=True,
    help="Instead: profile a small training script on a simulated Neuron device (needs g++ and "
    "torch).",
)
@command_options
def command(directory: Path, open_page: bool | None, with_training: bool) -> Findings:
    """Show AWS's RMSNorm example: table, comparison, TensorBoard, Perfetto.

    Results go to DIRECTORY.
    """
    if with_training:
        from neuron_tb.commands.live import RUN, live

        findings = live(directory)
        _view(directory, TARGETS["perfetto"].path(directory, RUN), open_page)
        return findings
    samples = Path(neuron_tb.samples.__file__).resolve().parent
    findings = Findings()
    click.echo(f"{_SOURCE_NOTE}\n")
    with Stages() as stages:
        traces = [load(samples / "rmsnorm" / form, progress=stages) for form in _FORMS]
    _heading("1. Find the hot spot: RMSNorm of plain operators")
    print_summary(summarize(traces[0]), traces[0], limit=10)
    _heading("2. Check whether a fused operator or torch.compile helps")
    print_comparison(compare(*traces))
    _heading("3. Confirm it in the trace")
    with Stages() as stages:
        for source in (*(samples / "rmsnorm" / form for form in _FORMS), samples / "training"):
            findings.extend(convert(source, out=directory, force=True, progress=stages).findings)
    for name, target in TARGETS.items():
        click.echo(f"  {name:<9} {target.path(directory, 'naive')}  for {target.viewer}")
    print_findings(findings)
    _view(directory, TARGETS["perfetto"].path(directory, "naive"), open_page)
    return findings


def _view(directory: Path, trace: Path, open_page: bool | None) -> None:
    """Open the viewers, or name the commands that do."""
    if open_page if open_page is not None else sys.stdout.isatty():
        _show(directory, trace)
    else:
        click.echo("\nSee them:")
        click.echo(f"  neuron-tb view {directory} --in tensorboard")
        click.echo(f"  neuron-tb view {trace} --in perfetto")


def _heading(text: str) -> None:
    click.echo(f"\n{click.style(text, bold=True)}")


def _show(directory: Path, trace: Path) -> None:
    """TensorBoard and Perfetto side by side until Ctrl-C; Perfetto alone without TensorBoard."""
    from neuron_tb.commands.view import show_perfetto, show_tensorboard
    from neuron_tb.viewing.loopback import open_browser
    from neuron_tb.viewing.perfetto_server import offline_ui, serve_trace

    offline = offline_ui() is not None
    click.echo()
    if find_spec("tensorboard") is None or find_spec("xprof") is None:
        click.echo('TensorBoard is not installed: pip install "neuron-tb[tensorboard]".')
        show_perfetto(trace, open_page=True, offline=offline)
        return
    with serve_trace(trace, offline=offline) as server:
        click.echo(f"Perfetto shows {trace} at {server.url}")
        open_browser(server.browser_url)
        show_tensorboard(directory, open_page=True)
