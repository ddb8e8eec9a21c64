"""``neuron-tb check``: open what was written with the viewers' own code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from neuron_tb.checks import Report
from neuron_tb.commands.common import (
    EXIT_CHECK_FAILED,
    SOURCE,
    Stages,
    command_options,
    format_option,
    print_json,
    print_table,
)
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.load import Progress
from neuron_tb.converters.running.manifest import unfinished_runs

_CHECKS = {
    "xprof": "neuron_tb.checks.xprof",
    "torch-tb": "neuron_tb.checks.torch_tb",
    "kineto": "neuron_tb.checks.kineto",
    "perfetto": "neuron_tb.checks.perfetto",
}


@click.command("check")
@click.argument("out", type=SOURCE)
@format_option
@command_options
def command(out: Path, output_format: str) -> list[Report]:
    """Open everything in OUT with its consumer's own code and say what each view has.

    OUT is a folder that `convert` wrote, or one of its files. Exits with 4 when a slice is
    missing or a view that should have something does not open.
    """
    with Stages() as stages:
        reports = check_all(out, stages)
    if output_format == "json":
        print_json({"reports": [as_dict(report) for report in reports]})
    else:
        print_reports(reports)
    if any(not report.passed for report in reports):
        sys.exit(EXIT_CHECK_FAILED)
    return []


def check_all(out: Path, progress: Progress) -> list[Report]:
    """A report for every result below ``out``. Raises NeuronTbError when there is none."""
    places = _results(out)
    unfinished = unfinished_runs(out) if out.is_dir() else []
    if not places:
        raise NeuronTbError(f"{out} holds nothing that neuron-tb convert writes.")
    reports = [
        Report(
            "run",
            str(mark),
            problems=["the conversion of this run did not end; convert it again"],
        )
        for mark in unfinished
    ]
    for target, path in places:
        progress(f"checking {target}: {path.name}")
        check: Callable[[Path], Report] = import_module(_CHECKS[target]).check
        reports.append(check(path))
    return reports


def _results(out: Path) -> list[tuple[str, Path]]:
    if not out.exists():
        raise NeuronTbError(f"{out} does not exist.")
    files = [out] if out.is_file() else [p for p in sorted(out.rglob("*")) if p.is_file()]
    found: list[tuple[str, Path]] = []
    for path in files:
        if any(part.startswith(".neuron-tb-") for part in path.parts):
            continue
        if path.name.endswith(".xplane.pb"):
            place = path if out.is_file() else path.parent
            if ("xprof", place) not in found:
                found.append(("xprof", place))
        elif ".pt.trace.json" in path.name:
            found.append(("torch-tb", path))
        elif path.name.endswith(".trace.json.gz"):
            found.append(("kineto", path))
        elif path.suffix == ".pftrace":
            found.append(("perfetto", path))
    return sorted(found, key=lambda pair: list(_CHECKS).index(pair[0]))


def as_dict(report: Report) -> dict[str, Any]:
    """The JSON form of a report; field names are stable."""
    return {
        "target": report.target,
        "path": report.path,
        "passed": report.passed,
        "skipped": report.skipped,
        "slices": report.slices,
        "views": [{"name": v.name, "content": v.content, "ok": v.ok} for v in report.views],
        "problems": report.problems,
    }


def print_reports(reports: list[Report]) -> None:
    """A table per file, and its problems."""
    for report in reports:
        state = "skipped" if report.skipped else "passed" if report.passed else "FAILED"
        rows = [("" if view.ok else "!", view.name, view.content) for view in report.views]
        click.echo(click.style(f"{report.target}: {state}", bold=True) + f"  {report.path}")
        if report.skipped:
            click.echo(f"  {report.skipped}")
        if rows:
            print_table(None, [("", "left"), ("View", "left"), ("Shows", "left")], rows)
        for problem in report.problems:
            click.echo(f"  problem: {problem}")
