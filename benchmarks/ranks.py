"""Growth with the number of ranks: what converting and joining them takes.

python -m benchmarks.ranks --ranks 64 --events 20000 --hosts 4 --most 1500000000
python -m benchmarks.ranks --ranks 32 --ranks 64 --ranks 128 --events 100000 --hosts 8
python -m benchmarks.ranks --ranks 64 --events 20000 --apart
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import click

from benchmarks.generate import BASE_NS, kineto
from benchmarks.measure import Measured, run

_FIRST_PID = 5012
_LEAST_SHOWN = 0.98  # the generator makes whole operators, of three events each
_PROGRAM = (sys.executable, "-m", "neuron_tb")


def write_ranks(root: Path, ranks: int, hosts: int, events: int) -> list[Path]:
    """Process directories of ``ranks`` ranks on ``hosts`` instances, ``events`` each."""
    places = []
    for rank in range(ranks):
        host = rank * hosts // ranks
        places.append(root / f"i-0synthetic{host:07d}_pid_{_FIRST_PID + rank}")
        kineto(places[-1] / str(BASE_NS + rank) / "trace.json", events, 0, rank, ranks)
    return places


def convert_together(folder: Path, workers: int, to: str) -> Measured:
    """One command for all ranks."""
    options = ("--run", "job", "--workers", str(workers), "--to", to, "--format", "json")
    return run([*_PROGRAM, "convert", folder / "captures", "-o", folder / "out", *options])


def merge_apart(folder: Path, places: list[Path], to: str) -> Measured:
    """Convert each rank by itself, which is not measured, and join the results."""
    from neuron_tb import convert

    outs = [folder / "apart" / place.name for place in places]
    for place, out in zip(places, outs, strict=True):
        convert(place, out=out, to=to)
    return run([*_PROGRAM, "merge", *outs, "-o", folder / "out", "--run", "job"])


def _size(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


@click.command()
@click.option("--ranks", "counts", default=(64,), multiple=True, show_default=True)
@click.option("--hosts", default=4, show_default=True)
@click.option("--events", default=20_000, show_default=True, help="Events of each rank.")
@click.option("--workers", default=2, show_default=True)
@click.option("--to", default="all", show_default=True)
@click.option("--apart", is_flag=True, help="Measure `merge` of ranks that were converted apart.")
@click.option("--most", default=0, help="Fail when more bytes of memory are needed.")
def main(
    counts: tuple[int, ...], hosts: int, events: int, workers: int, to: str, apart: bool, most: int
) -> None:
    """Print a row per number of ranks."""
    click.echo("ranks      events  source MB  result MB  wall s   CPU s  CPU s/rank  peak MB")
    for ranks in counts:
        with tempfile.TemporaryDirectory(prefix="neuron-tb-bench-") as name:
            folder = Path(name)
            places = write_ranks(folder / "captures", ranks, hosts, events)
            took = (
                merge_apart(folder, places, to) if apart else convert_together(folder, workers, to)
            )
            files = json.loads((folder / "out" / "job.json").read_text())["files"]
            shown = sum(file["slices"] for file in files if file["target"] == files[-1]["target"])
            if shown < ranks * events * _LEAST_SHOWN:
                sys.exit(f"only {shown:,} of {ranks * events:,} events are shown")
            click.echo(
                f"{ranks:5d} {ranks * events:11,d} {_size(folder / 'captures'):10.0f} "
                f"{_size(folder / 'out'):10.0f} {took.wall_s:7.1f} {took.cpu_s:7.1f} "
                f"{took.cpu_s / ranks:11.2f} {took.peak_bytes / 1e6:8.0f}"
            )
        if most and took.peak_bytes > most:
            sys.exit(f"{took.peak_bytes / 1e6:.0f} MB is more than {most / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
