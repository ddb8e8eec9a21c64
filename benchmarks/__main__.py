"""The table: what neuron_tb needs for a file, against ``json.load`` of the same file."""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks import generate
from benchmarks.cases import Bench, Line

_TIMES_TOLERATED = 1.5
"""``--quick`` fails when a ratio is this many times its bar: machines are noisy."""


@click.command()
@click.option("--events", type=int, help="Events of the file (1,000,000; quick: 200,000).")
@click.option("--runs", type=int, help="Runs of each, of which the median counts (5; quick: 1).")
@click.option("--quick", is_flag=True, help="Only neuron_tb, and fail if far over a bar.")
@click.option("--large", is_flag=True, help="Also ten times the events (2.5 GB of disk).")
@click.option("--directory", type=click.Path(path_type=Path), help="Where to put the files.")
@click.option("--json", "out", type=click.Path(path_type=Path), help="Write the numbers there.")
def main(
    events: int | None,
    runs: int | None,
    quick: bool,
    large: bool,
    directory: Path | None,
    out: Path | None,
) -> None:
    """Measure, print the table, and with --quick fail when a bar is missed by half."""
    events = events or (200_000 if quick else 1_000_000)
    console = Console(width=None if sys.stdout.isatty() else 130)
    with _folder(directory) as folder:
        bench = Bench(folder, events, runs or (1 if quick else 5), console.print)
        lines = list(bench.lines())
        if not quick:
            lines += bench.others()
        if large:
            lines += bench.large()
    console.print(_table(lines, events))
    if out:
        out.write_text(json.dumps(_report(lines, bench), indent=1) + "\n")
    missed = [line for line in lines if line.exceeds(_TIMES_TOLERATED)]
    for line in missed:
        console.print(f"over its bar by more than half: {line.what}")
    if quick and missed:
        sys.exit(1)


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="neuron-tb-bench-") as name:
        yield Path(name)


def _table(lines: list[Line], events: int) -> Table:
    table = Table(title=f"{events:,} events; x: times the baseline's", title_justify="left")
    table.add_column("what")
    for heading in ("s", "CPU s", "x", "CPU x", "bar", "events/s", "memory", "x file", "bar"):
        table.add_column(heading, justify="right")
    for line in lines:
        table.add_row(line.what, *line.cells(), end_section=line.ends_section)
    return table


def _report(lines: list[Line], bench: Bench) -> dict[str, object]:
    return {
        "events": bench.events,
        "runs": bench.runs,
        "seed": generate.SEED,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "file_bytes": bench.file_bytes,
        "lines": [asdict(line) for line in lines],
    }


if __name__ == "__main__":
    main()
