"""One capture to any number of output formats."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from neuron_tb.converters.captures.capture import Found
from neuron_tb.converters.captures.units import Unit, units_of
from neuron_tb.converters.errors import NeuronTbError, WrongUseError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.joining import FOUND_ANEW
from neuron_tb.converters.load import Progress, find_all, load
from neuron_tb.converters.placing.align import Align, report_host
from neuron_tb.converters.placing.host_clocks import host_clocks
from neuron_tb.converters.readers import FORMATS
from neuron_tb.converters.readers.json import bounds
from neuron_tb.converters.running import workers as pool
from neuron_tb.converters.running.manifest import Manifest
from neuron_tb.converters.running.merge import Results, join
from neuron_tb.converters.running.unit import Result, Task, findings_of, write_all
from neuron_tb.converters.running.upload import local_destination
from neuron_tb.converters.selection.filters import Filters
from neuron_tb.converters.selection.ranks import only_ranks
from neuron_tb.converters.storage.output import own_mark, refuse_overwrite, remove_leftovers
from neuron_tb.converters.writers import Destination, Written
from neuron_tb.converters.writers.targets import TARGETS, run_name, target_names

__all__ = ["TARGETS", "Conversion", "convert", "run_name"]

_SMALL = 64 << 20
"""Captures of fewer bytes are converted in one go, which is faster than starting processes."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a conversion did: the run's name, a row per file, how many slices were read, findings.

    ``sources``: the files that were read. ``failed``: ranks that could not be converted.
    ``filtered``: which part of the capture was written, when it is not all of it.
    """

    run: str
    written: list[Written]
    findings: Findings
    slices: int
    sources: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    filtered: str = ""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a run is made of, and how; ``reading``: keywords of ``load``."""

    targets: tuple[str, ...]
    reading: dict[str, Any]
    filters: Filters
    engine: str
    say: Progress
    workers: int = 1


def convert(
    *sources: str | Path,
    out: str | Path,
    to: str | Sequence[str] = "all",
    run: str | None = None,
    instance_type: str | None = None,
    steps_from: str | None = None,
    align: str | Sequence[str] = "auto",
    instructions: bool = False,
    filters: Filters | None = None,
    force: bool = False,
    workers: int | None = None,
    engine: str = "processes",
    local_rank: int = 0,
    progress: Progress | None = None,
) -> Conversion:
    """Read captures (as ``neuron_tb.load``) and write them for viewers below ``out``.

    ``to``: ``all`` or names from ``TARGETS``. ``run``: the run's name, by default the
    capture's own. ``instance_type``: such as ``trn2.48xlarge``; without it no peak figures are
    written. ``instructions``: single instructions of device profiles too. ``align``: as of
    ``load``. An existing result is replaced only with ``force``. ``filters``: the part of the
    capture to write.

    ``workers``: how many processes convert ranks at the same time (default: one for small
    captures, else one per processor). ``engine``: ``processes``, or ``ray`` for a Ray cluster.
    A rank that fails leaves the others and is named in the findings. ``local_rank``: of a single
    rank whose host's ranks write one run apart, so that their devices have different numbers.
    Raises NeuronTbError.
    """
    say = progress or (lambda text: None)
    names = tuple(target_names(to))
    found = find_all(sources)
    name = run_name(run if run is not None else found.name)
    plan = _Plan(
        names,
        {"steps_from": steps_from, "instructions": instructions, "align": align},
        filters or Filters(),
        engine,
        say,
    )
    units = units_of(only_ranks(found, plan.filters))
    count = _workers(units, workers, engine, names)
    with local_destination(out, force) as (folder, upload):
        if upload is not None:
            upload.refuse_overwrite(name, names)
        destination = Destination(folder, name, instance_type, force, local_rank)
        if count is None:
            conversion = _at_once(found, destination, plan)
        else:
            conversion = _by_unit(units, destination, replace(plan, workers=count))
        if upload is None:
            return conversion
        say("uploading")
        upload.run(name)
        return replace(conversion, written=upload.moved(conversion.written))


def _workers(
    units: Sequence[Unit], wanted: int | None, engine: str, targets: Sequence[str]
) -> int | None:
    """How many processes; None to convert everything in this one."""
    if wanted is not None and wanted < 1:
        raise WrongUseError("--workers takes a number from 1 on.")
    if engine not in pool.ENGINES:
        raise WrongUseError(f"there is no engine {engine!r}; known are {', '.join(pool.ENGINES)}.")
    asked = wanted is not None or engine != "processes"
    apart = _why_not_apart(targets)
    if apart is not None and asked:
        raise WrongUseError(f"{apart}: convert without --workers and --engine.")
    small = not asked and sum(unit.size for unit in units) < _SMALL
    if apart is not None or small or len(units) < 2:
        return None
    return min(len(units), wanted or pool.cores())


def _why_not_apart(targets: Sequence[str]) -> str | None:
    """Why ranks must be converted in this process; None when they need not."""
    for name in targets:
        if not TARGETS[name].joiner:
            return f"results for {name} cannot be joined"
    for form in FORMATS:
        if not form.module.startswith("."):
            return f"other processes do not know the format that {form.module} reads"
    return None


# -- the whole capture as one trace -------------------------------------------------------------


def _at_once(found: Found, destination: Destination, plan: _Plan) -> Conversion:
    trace = load(found, progress=plan.say, filters=plan.filters, **plan.reading)
    with _new_run(destination, plan.targets) as (destination, manifest):
        plan.say("writing")
        written = write_all(trace, destination, plan.targets)
        findings = Findings(trace.findings)
        findings.extend(findings_of(written))
        manifest.complete(trace.sources, written, findings)
    return Conversion(
        destination.run,
        written,
        findings,
        len(trace.slices),
        trace.sources,
        filtered=trace.filtered,
    )


@contextmanager
def _new_run(
    destination: Destination, targets: Sequence[str]
) -> Iterator[tuple[Destination, Manifest]]:
    """The run's list, which says that the run is not complete while the block goes on."""
    manifest = Manifest(destination.out, destination.run)
    force = destination.force or manifest.interrupted
    places = [TARGETS[target].path(destination.out, destination.run) for target in targets]
    for place in places:
        remove_leftovers(place.parent)
        refuse_overwrite(place, force)
    stood = {place for place in places if place.exists()}
    manifest.begin()
    try:
        yield replace(destination, force=force), manifest
    except BaseException:
        if not any(place.exists() and place not in stood for place in places):
            manifest.abandon()
        raise


# -- rank by rank -------------------------------------------------------------------------------


def _by_unit(units: Sequence[Unit], destination: Destination, plan: _Plan) -> Conversion:
    """Convert every unit into a folder of its own beside the results, then join those."""
    with _new_run(destination, plan.targets) as (destination, manifest):
        destination.out.mkdir(parents=True, exist_ok=True)
        remove_leftovers(destination.out)
        aside = Path(tempfile.mkdtemp(prefix=own_mark(), dir=destination.out))
        try:
            tasks = _tasks(units, destination, plan, aside)
            results = _run(tasks, [unit.label for unit in units], plan, "converted")
            findings, failed = Findings(), []
            for unit, result in zip(units, results, strict=True):
                findings.extend(f for f in result.findings if f.kind not in FOUND_ANEW)
                if result.error is not None and not result.empty:
                    failed.append(unit.label)
                    findings.add("rank_failed", f"{unit.label} is missing: {result.error}")
            good = [result for result in results if result.error is None]
            if not good:
                kind = WrongUseError if results[0].wrong_use else NeuronTbError
                raise kind(results[0].error or "nothing could be converted.")
            plan.say("joining ranks")
            later = _later_ns(good, plan, findings)
            parts = [
                Results.of_written(result.written, later_ns)
                for result, later_ns in zip(good, later, strict=True)
            ]
            written = join(parts, destination, plan.targets, movable=True)
            findings.extend(findings_of(written))
            sources = [source for result in good for source in result.sources]
            manifest.complete(sources, written, findings)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    slices = sum(result.slices for result in good)
    filtered = f"{plan.filters}: {slices:,} slices" if plan.filters else ""
    return Conversion(destination.run, written, findings, slices, sources, failed, filtered)


def _tasks(units: Sequence[Unit], destination: Destination, plan: _Plan, aside: Path) -> list[Task]:
    limit = bounds.MAX_SIZE if bounds.MAX_SIZE == bounds.FREE_SIZE else None
    tasks = [
        Task(
            unit.found,
            aside / f"{number:05d}",
            destination.run,
            plan.targets,
            destination.instance_type,
            plan.reading,
            max_size=limit,
        )
        for number, unit in enumerate(units)
    ]
    in_time = plan.filters.time_ns is not None
    known = any(rank is not None for unit in units for rank in unit.ranks)
    if known and not in_time:
        return [replace(task, filters=plan.filters) for task in tasks]
    # What no unit can know by itself takes reading all of them once before.
    labels = [unit.label for unit in units]
    results = _run([replace(task, to=()) for task in tasks], labels, plan, "read")
    later = _later_ns(results, plan, Findings())
    first_ns = [
        result.first_ns + own
        for result, own in zip(results, later, strict=True)
        if result.first_ns is not None
    ]
    zero_ns = min(first_ns, default=0)
    return [
        replace(
            task,
            rank=rank,
            filters=replace(plan.filters, zero_ns=zero_ns - own if in_time else None),
        )
        for task, rank, own in zip(tasks, _ranks_by_order(results), later, strict=True)
    ]


def _later_ns(results: Sequence[Result], plan: _Plan, findings: Findings) -> list[int]:
    """By how much each unit's times move, because its host's clock differs from the first one's."""
    ends = [own for result in results for own in result.collectives]
    hosts = [{own.host for own in result.collectives} for result in results]
    # Files that hold several hosts cannot be moved as one.
    moves = Align.of(plan.reading["align"]).auto and all(len(own) < 2 for own in hosts)
    fits = {}
    for clock in host_clocks(ends):
        found = report_host(clock, moves, findings)
        if found is not None and found.moved:
            fits[clock.host] = clock.fit
    later = []
    for result, own in zip(results, hosts, strict=True):
        fit = fits.get(next(iter(own), ""))
        first = np.array([result.first_ns or 0], np.int64)
        later.append(0 if fit is None else int(fit.at(first)[0]))
    return later


def _ranks_by_order(results: Sequence[Result]) -> list[int | None]:
    """The ranks of units when no file tells one: by host and process id."""
    first = [result.processes[0] if result.processes else None for result in results]
    known = [process for process in first if process is not None]
    if any(process.rank is not None for process in known):
        return [None] * len(results)
    order = sorted(known, key=lambda process: (process.host, process.pid))
    return [None if process is None else order.index(process) for process in first]


def _run(tasks: Sequence[Task], labels: Sequence[str], plan: _Plan, done: str) -> list[Result]:
    results: dict[int, Result] = {}
    for number, result in pool.run(tasks, plan.workers, plan.engine):
        results[number] = result
        plan.say(f"{done} {len(results)} of {len(tasks)}: {labels[number]}")
    return [results[number] for number in range(len(tasks))]
