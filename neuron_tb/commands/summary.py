"""``neuron-tb summary``: where the time goes."""

from __future__ import annotations

from pathlib import Path

import click

from neuron_tb.analysis.summary import COLUMNS, GROUPINGS, Summary, summarize
from neuron_tb.commands.common import (
    SOURCE,
    Stages,
    align_option,
    command_options,
    format_option,
    number,
    print_findings,
    print_json,
    print_table,
    shortened,
    steps_option,
)
from neuron_tb.commands.filtering import filter_options, print_filtered
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.load import load
from neuron_tb.converters.model import Trace
from neuron_tb.converters.selection.filters import Filters

_ROWS = 30
_HEADINGS = {"op": "Operator", "kernel": "Device work", "step": "Step"}


@click.command("summary")
@click.argument("sources", nargs=-1, required=True, type=SOURCE)
@click.option("--by", type=click.Choice(GROUPINGS), default="op", show_default=True)
@click.option("--sort-by", type=click.Choice(COLUMNS), help="Order of the rows.")
@click.option(
    "--limit", type=click.IntRange(1), help="Rows shown (a table has 30, JSON has all of them)."
)
@steps_option
@align_option
@format_option
@command_options
@filter_options
def command(
    sources: tuple[Path, ...],
    by: str,
    sort_by: str | None,
    limit: int | None,
    steps_from: str | None,
    align: tuple[str, ...],
    output_format: str,
    filters: Filters,
) -> Findings:
    """Print where the time goes.

    SOURCES are traces, capture directories or directories of captures; together they are one
    run. Device time is `measured` (the NeuronCore's own interval) or `window` (enqueue to
    completion as the host saw it); `-` means that it is not known.
    """
    with Stages() as stages:
        trace = load(*sources, steps_from=steps_from, align=align, filters=filters, progress=stages)
        summary = summarize(trace, by)
    if sort_by:
        summary = summary.sorted_by(sort_by)
    if output_format == "json":
        rows = [row.as_dict() for row in summary.rows[:limit]]
        print_json({**summary.as_dict(), "rows": rows, "filtered": trace.filtered or None})
    else:
        print_summary(summary, trace, limit or _ROWS)
        print_findings(trace.findings)
    return trace.findings


def print_summary(summary: Summary, trace: Trace, limit: int) -> None:
    """The table, and under it the total and what to know about it."""
    device = device_word(trace)
    columns = [
        (_HEADINGS[summary.by], "left"),
        ("Calls", "right"),
        ("CPU total us", "right"),
        ("CPU self us", "right"),
        (f"{device} total us", "right"),
        (f"{device} self us", "right"),
        (f"{device} %", "right"),
        ("Source", "left"),
    ]
    rows = [
        (
            shortened(row.name),
            f"{row.calls:,}",
            number(row.cpu_total_us),
            number(row.cpu_self_us),
            number(row.device_total_us),
            number(row.device_self_us),
            number(row.device_percent),
            row.device_source or "-",
        )
        for row in summary.rows[:limit]
    ]
    print_table(f"{trace.name}: time by {_HEADINGS[summary.by].lower()}", columns, rows)
    hidden = len(summary.rows) - limit
    if hidden > 0:
        click.echo(f"{hidden:,} more rows; --limit shows more.")
    click.echo(total_sentence(summary, device))
    print_filtered(trace.filtered)


def total_sentence(summary: Summary, device: str) -> str:
    """The device total with its source, or why there is none."""
    if summary.device_total_us is None:
        return summary.note or "No device time."
    bound = "at least " if summary.lower_bound else ""
    total = f"{device} time: {bound}{number(summary.device_total_us)} us"
    if summary.device_source == "window":
        return (
            f"{total} covered by windows (enqueue to completion as the host saw it, which is not "
            "busy time)."
        )
    return f"{total}, measured."


def device_word(trace: Trace) -> str:
    """What the device column is called: Neuron, unless the capture is of something else."""
    families = {device.family for device in trace.devices}
    return "Neuron" if not families or "neuron" in families else "Device"
