"""``neuron-tb merge``: join what was converted rank by rank."""

from __future__ import annotations

from pathlib import Path

import click

from neuron_tb.commands.common import (
    DESTINATION,
    SOURCE,
    Stages,
    command_options,
    format_option,
    print_findings,
    print_json,
)
from neuron_tb.commands.convert import print_next, print_written, written_as_dicts
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.running.merge import merge


@click.command("merge")
@click.argument("outs", nargs=-1, required=True, type=SOURCE)
@click.option("-o", "--out", required=True, type=DESTINATION, help="The folder for the joined run.")
@click.option("--run", metavar="NAME", help="The run's name; by default that of the first folder.")
@click.option("--force", is_flag=True, help="Replace an existing result.")
@format_option
@command_options
def command(
    outs: tuple[Path, ...], out: Path | str, run: str | None, force: bool, output_format: str
) -> Findings:
    """Join results of single ranks: what `convert` or the drop-in profiler wrote.

    OUTS are folders of results, each converted where its rank ran. The joined run is what
    converting all captures together gives: one XProf file per host, one Perfetto trace, a worker
    of the PyTorch plugin and a Kineto file per rank.
    """
    with Stages() as stages:
        stages("joining")
        runs = merge(*outs, out=out, run=run, force=force)
    findings = Findings(finding for merged in runs for finding in merged.findings)
    if output_format == "json":
        documents = [
            {
                "run": merged.run,
                "written": written_as_dicts(merged.written),
                "findings": merged.findings.as_dicts(),
            }
            for merged in runs
        ]
        print_json({"runs": documents})
        return findings
    for merged in runs:
        slices = sum(file.slices for file in merged.written if file.target == "perfetto")
        title = f"{merged.run}: {slices:,} slices joined" if slices else merged.run
        print_written(title, merged.written)
    print_next([file for merged in runs for file in merged.written], out)
    print_findings(findings)
    return findings
