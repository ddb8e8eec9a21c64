"""``neuron-tb compare``: captures side by side."""

from __future__ import annotations

from pathlib import Path

import click

from neuron_tb.analysis.comparison import Comparison, compare
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
)
from neuron_tb.commands.filtering import filter_options, print_filtered
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.load import load
from neuron_tb.converters.selection.filters import Filters


@click.command("compare")
@click.argument("captures", nargs=-1, required=True, type=SOURCE)
@align_option
@format_option
@command_options
@filter_options
def command(
    captures: tuple[Path, ...], align: tuple[str, ...], output_format: str, filters: Filters
) -> Findings:
    """Put captures side by side; the first is what the others are compared with."""
    with Stages() as stages:
        traces = [
            load(capture, filters=filters, align=align, progress=stages) for capture in captures
        ]
        comparison = compare(*traces)
    findings = Findings(finding for trace in traces for finding in trace.findings)
    if output_format == "json":
        print_json({**comparison.as_dict(), "filtered": [t.filtered or None for t in traces]})
    else:
        print_comparison(comparison)
        for trace in traces:
            print_filtered(trace.filtered, trace.name)
        print_findings(findings)
    return findings


def print_comparison(comparison: Comparison) -> None:
    """The table, and a sentence for each capture without device time."""
    columns = [
        ("Capture", "left"),
        ("Device calls", "right"),
        ("CPU us", "right"),
        ("Device us", "right"),
        ("Change %", "right"),
        ("Idle between us", "right"),
        ("Source", "left"),
    ]
    rows = [
        (
            capture.name,
            "-" if capture.calls is None else f"{capture.calls:,}",
            number(capture.cpu_total_us),
            number(capture.device_total_us),
            "-" if capture.change_percent is None else f"{capture.change_percent:+.1f}",
            number(capture.idle_us),
            capture.device_source or "-",
        )
        for capture in comparison.captures
    ]
    print_table(None, columns, rows)
    for capture in comparison.captures:
        if capture.note:
            click.echo(f"{capture.name}: {capture.note}")
