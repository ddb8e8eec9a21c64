"""``neuron-tb convert``: write a capture for viewers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from neuron_tb.commands.common import (
    DESTINATION,
    SOURCE,
    Stages,
    align_option,
    command_options,
    format_option,
    instance_option,
    instructions_option,
    print_findings,
    print_json,
    print_table,
    steps_option,
)
from neuron_tb.commands.filtering import filter_options, print_filtered
from neuron_tb.converters.convert import TARGETS, Conversion, convert
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.running.workers import ENGINES
from neuron_tb.converters.selection.filters import Filters
from neuron_tb.converters.writers import Written

_MOST_ROWS = 20


@click.command("convert")
@click.argument("sources", nargs=-1, required=True, type=SOURCE)
@click.option(
    "--to",
    type=click.Choice([*TARGETS, "all"]),
    multiple=True,
    default=("all",),
    show_default=True,
    help="The viewers to write for; may be repeated.",
)
@click.option("-o", "--out", required=True, type=DESTINATION, help="The folder for the results.")
@click.option("--run", metavar="NAME", help="The run's name; by default the capture's own.")
@instance_option
@steps_option
@align_option
@instructions_option
@click.option("--force", is_flag=True, help="Replace an existing result.")
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many ranks are converted at the same time; by default one for small captures, else "
    "as many as there are processors.",
)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default=ENGINES[0],
    show_default=True,
    help="What converts ranks: processes of this machine, or a Ray cluster.",
)
@format_option
@command_options
@filter_options
def command(
    sources: tuple[Path, ...],
    to: tuple[str, ...],
    out: Path | str,
    run: str | None,
    instance_type: str | None,
    steps_from: str | None,
    align: tuple[str, ...],
    instructions: bool,
    force: bool,
    workers: int | None,
    engine: str,
    output_format: str,
    filters: Filters,
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
            align=align,
            instructions=instructions,
            force=force,
            workers=workers,
            engine=engine,
            filters=filters,
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
        "written": written_as_dicts(conversion.written),
        "failed": conversion.failed,
        "filtered": conversion.filtered or None,
        "findings": conversion.findings.as_dicts(),
    }


def written_as_dicts(written: Iterable[Written]) -> list[dict[str, object]]:
    """The JSON form of a run's files."""
    return [
        {
            "target": file.target,
            "path": None if file.path is None else file.shown,
            "slices": file.slices,
            **({"skipped": file.skipped} if file.skipped else {}),
        }
        for file in written
    ]


def print_conversion(conversion: Conversion, out: Path | str) -> None:
    """A row per file, and what to do next."""
    print_written(f"{conversion.run}: {conversion.slices:,} slices read", conversion.written)
    print_filtered(conversion.filtered)
    print_next(conversion.written, out)


def print_written(title: str, written: Sequence[Written]) -> None:
    """A row per file; of many files of one target the first ones."""
    rows = []
    for target in dict.fromkeys(file.target for file in written):
        files = [file for file in written if file.target == target]
        shown = files if len(files) <= _MOST_ROWS else files[: _MOST_ROWS - 1]
        rows += [_row(file) for file in shown]
        if len(shown) < len(files):
            rest = files[len(shown) :]
            slices = sum(file.slices for file in rest)
            rows.append((target, f"and {len(rest):,} more", f"{slices:,}", _size(rest)))
    columns = [("For", "left"), ("File", "left"), ("Slices", "right"), ("Size", "right")]
    print_table(title, columns, rows)


def print_next(written: Sequence[Written], out: Path | str) -> None:
    """The commands that show and check the results."""
    targets = {file.target for file in written if file.path}
    click.echo("Next:")
    if targets & {"xprof", "torch-tb"}:
        click.echo(f"  neuron-tb view {out} --in tensorboard")
    if "perfetto" in targets:
        trace = next(f.shown for f in written if f.target == "perfetto" and f.path)
        click.echo(f"  neuron-tb view {trace} --in perfetto")
    click.echo(f"  neuron-tb check {out}")


def _row(file: Written) -> tuple[str, str, str, str]:
    if file.path is None:
        return file.target, f"skipped: {file.skipped}", "-", "-"
    return file.target, file.shown, f"{file.slices:,}", _size([file])


def _size(files: Iterable[Written]) -> str:
    size = float(sum(map(_bytes, files)))
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _bytes(file: Written) -> int:
    if file.bytes is not None:
        return file.bytes
    return file.path.stat().st_size if file.path and file.path.exists() else 0
