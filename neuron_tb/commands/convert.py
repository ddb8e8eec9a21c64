"""``neuron-tb convert``: write a capture for viewers."""

from __future__ import annotations

from pathlib import Path

import click

from neuron_tb.commands.common import (
    SOURCE,
    Stages,
    command_options,
    format_option,
    instance_option,
    instructions_option,
    print_findings,
    print_json,
    print_table,
    steps_option,
)
from neuron_tb.converters.convert import TARGETS, Conversion, convert
from neuron_tb.converters.findings import Findings


@click.command()
@click.argument("sources", nargs=-1, required=True, type=SOURCE)
@click.option(
    "--to",
    type=click.Choice([*TARGETS, "all"]),
    multiple=True,
    default=("all",),
    show_default=True,
    help="The viewers to write for; may be repeated.",
)
@click.option("-o", "--out", required=True, type=SOURCE, help="The folder for the results.")
@click.option("--run", metavar="NAME", help="The run's name; by default the capture's own.")
@instance_option
@steps_option
@instructions_option
@click.option("--force", is_flag=True, help="Replace an existing result.")
@format_option
@command_options
def command(
    sources: tuple[Path, ...],
    to: tuple[str, ...],
    out: Path,
    run: str | None,
    instance_type: str | None,
    steps_from: str | None,
    instructions: bool,
    force: bool,
    output_format: str,
) -> Findings:
    """Write captures for TensorBoard, Perfetto and tools that know CUDA's words.

    SOURCES are traces, capture directories or directories of captures; together they are one
    run. OUT is what `tensorboard --logdir OUT` opens.
    """
    with Stages() as stages:
        conversion = convert(
            *sources,
            out=out,
            to=to,
            run=run,
            instance_type=instance_type,
            steps_from=steps_from,
            instructions=instructions,
            force=force,
            progress=stages,
        )
    if output_format == "json":
        print_json(as_dict(conversion))
    else:
        print_conversion(conversion, out)
        print_findings(conversion.findings)
    return conversion.findings


def as_dict(conversion: Conversion) -> dict[str, object]:
    """The JSON form of a conversion; field names are stable."""
    return {
        "run": conversion.run,
        "written": [
            {
                "target": file.target,
                "path": None if file.path is None else str(file.path),
                "slices": file.slices,
                **({"skipped": file.skipped} if file.skipped else {}),
            }
            for file in conversion.written
        ],
        "findings": conversion.findings.as_dicts(),
    }


def print_conversion(conversion: Conversion, out: Path) -> None:
    """A row per file, and what to do next."""
    rows = [
        (
            file.target,
            str(file.path) if file.path else f"skipped: {file.skipped}",
            f"{file.slices:,}" if file.path else "-",
            _size(file.path),
        )
        for file in conversion.written
    ]
    print_table(
        f"{conversion.run}: {len(conversion.trace.slices):,} slices read",
        [("For", "left"), ("File", "left"), ("Slices", "right"), ("Size", "right")],
        rows,
    )
    targets = {file.target for file in conversion.written if file.path}
    click.echo("Next:")
    if targets & {"xprof", "torch-tb"}:
        click.echo(f"  neuron-tb view {out} --in tensorboard")
    if "perfetto" in targets:
        trace = next(f.path for f in conversion.written if f.target == "perfetto" and f.path)
        click.echo(f"  neuron-tb view {trace} --in perfetto")
    click.echo(f"  neuron-tb check {out}")


def _size(path: Path | None) -> str:
    if path is None or not path.exists():
        return "-"
    size = float(path.stat().st_size)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
