"""From sources to one Trace: find, read, put together, link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from neuron_tb.converters.captures.capture import Capture, Found
from neuron_tb.converters.captures.find import find
from neuron_tb.converters.captures.neffs import report_absent
from neuron_tb.converters.captures.raw import give_profiles
from neuron_tb.converters.captures.remote import local_source
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.links import link
from neuron_tb.converters.links.overlaps import report_overlapping_work
from neuron_tb.converters.model import Device, Role, Trace, TrackKind, merge
from neuron_tb.converters.placing.device_profiles import (
    add_device_profiles,
    profiles_of,
    read_profiles,
)
from neuron_tb.converters.placing.framework_mapping import add_mappings
from neuron_tb.converters.placing.processes import match_processes
from neuron_tb.converters.readers import KINETO, Format, read_device_facts, read_source
from neuron_tb.converters.selection.apply import apply
from neuron_tb.converters.selection.filters import Filters
from neuron_tb.converters.selection.ranks import only_ranks

Progress = Callable[[str], None]
"""Called with a short text before each stage of long work."""


def load(
    *sources: str | Path | Found,
    steps_from: str | None = None,
    instructions: bool = False,
    filters: Filters | None = None,
    progress: Progress | None = None,
) -> Trace:
    """Read captures into one Trace.

    A source is a trace file, a capture directory ``<instance>_pid_<pid>/<timestamp>/``, or a
    directory that holds any number of them; all sources of one call make one run. It may be a
    URL (``neuron_tb.converters.captures.remote``).
    ``steps_from`` names the annotation that marks steps (default ``ProfilerStep#N``).
    ``instructions``: single instructions, DMA packets and semaphores of device profiles too.

    ``filters``: the part of the capture to keep (``neuron_tb.converters.selection.filters``).

    Raises NeuronTbError, with one plain sentence, when nothing can be read.
    """
    say = progress or (lambda text: None)
    found = find_all(sources)
    if filters is not None:
        found = only_ranks(found, filters)
    raw_findings = give_profiles(found, say)
    profiles, failures = read_profiles(found, instructions, say)
    framework, system = _read_all(found, say, failures, needed=not profiles)
    trace = add_device_profiles(put_together(found.name, framework, system), profiles)
    for sentence in failures:
        trace.findings.add("file_unreadable", sentence)
    if steps_from:
        trace.step_annotation = steps_from
    trace.findings.extend(raw_findings)
    add_mappings(trace, found)
    _report_capture(found, trace)
    say("linking operators and device work")
    link(trace)
    trace.findings.extend(trace.links.findings)
    report_overlapping_work(trace)
    return apply(filters, trace) if filters is not None else trace


def device_facts(source: str | Path | Trace, findings: Findings) -> list[dict[str, Any]]:
    """What every device profile of a source says of itself, without its rows.

    The keys are those of ``device.facts.facts_of``; a profile that cannot be read is a
    finding. Raises NeuronTbError when none can.
    """
    if isinstance(source, Trace):
        return profiles_of(source)
    found: list[dict[str, Any]] = []
    failures: list[str] = []
    for capture in find([local_source(source)]).captures:
        for path in capture.device:
            try:
                found.append(read_device_facts(path, capture.context(path)))
            except NeuronTbError as error:
                failures.append(str(error))
    if failures and not found:
        raise NeuronTbError(failures[0])
    for sentence in failures:
        findings.add("file_unreadable", sentence)
    return found


def find_all(sources: Sequence[str | Path | Found]) -> Found:
    """What the sources hold; a single one may be the result of an earlier search."""
    if len(sources) == 1 and isinstance(sources[0], Found):
        return sources[0]
    return find([local_source(source) for source in sources if not isinstance(source, Found)])


def put_together(
    name: str, framework: Sequence[Trace], system: Sequence[tuple[Trace, bool]]
) -> Trace:
    """One trace of framework traces and system profiles, a process of both kinds being one.

    Rows of a system profile belong to a process by (instance id, process id). Each system
    profile comes with a flag: whether processes without a framework trace are kept too.
    """
    findings = Findings()
    framework = _with_ranks(framework, findings)
    parts: list[Trace] = list(framework)
    same: dict[int, int] = {}
    offset = sum(len(t.processes) for t in framework)
    matched = match_processes(framework, [trace for trace, _ in system], findings)
    for (trace, keep_others), matches in zip(system, matched, strict=True):
        reduced = _without_repeated_rows(trace, matches, findings)
        if not keep_others and framework and matches:
            reduced = _only_matched(reduced, matches, findings)
        same.update({offset + own: match for own, match in matches.items()})
        offset += len(trace.processes)
        parts.append(reduced)
    merged = merge(name, parts)
    merged.findings.extend(findings)
    unified = _unify(merged, same) if same else merged
    return unified.without_empty_tracks()


def _read_all(
    found: Found, say: Progress, failures: list[str], needed: bool
) -> tuple[list[Trace], list[tuple[Trace, bool]]]:
    framework: list[Trace] = []
    system: dict[Path, tuple[Trace, bool]] = {}
    for capture in found.captures:
        for path in (*capture.framework, *capture.system):
            resolved = path.resolve()
            if resolved in system:
                continue
            say(f"reading {path.name}")
            try:
                trace, kind = _read(path, capture)
            except NeuronTbError as error:
                failures.append(str(error))
                capture.system = [p for p in capture.system if p != path]
                continue
            if kind.system:
                explicit = not capture.framework or len(found.captures) > 1
                system[resolved] = (trace, explicit)
            else:
                framework.append(trace)
    if needed and not framework and not system:
        lacking = [s for c in found.captures for s in c.lacks()]
        raise NeuronTbError(
            failures[0] if failures else f"{found.captures[0].directory} has {lacking[0]}."
        )
    return framework, list(system.values())


def _read(path: Path, capture: Capture) -> tuple[Trace, Format]:
    trace, kind = read_source(path, capture.context(path))
    empty = not (len(trace.slices) or len(trace.instants) or len(trace.counters))
    only_marks = not (len(trace.slices) or len(trace.counters) or len(trace.memory))
    if kind is KINETO and (empty or only_marks):
        raise NeuronTbError(
            f"{path} holds no event with a duration: the profiler's schedule probably never "
            "reached an active step, or profiler.step() was not called."
        )
    if kind.system and empty:
        raise NeuronTbError(f"{path} holds no row that could be read.")
    return trace, kind


def _without_repeated_rows(trace: Trace, matches: dict[int, int], findings: Findings) -> Trace:
    """Explorer repeats trace.json's events; where trace.json itself is read they stand twice."""
    repeated = trace.roles(Role.OPERATOR, Role.ANNOTATION, Role.WINDOW)
    repeated &= np.isin(trace.slice_process, list(matches))
    if not repeated.any():
        return trace
    findings.add(
        "framework_rows_repeated",
        "framework rows of the system profile were left out: trace.json has them",
        int(np.count_nonzero(repeated)),
    )
    return replace(trace, slices=trace.slices.take(~repeated))


def _only_matched(trace: Trace, matches: dict[int, int], findings: Findings) -> Trace:
    others = [p for p in range(len(trace.processes)) if p not in matches]
    keep = np.isin(trace.slice_process, list(matches))
    if keep.all():
        return trace
    findings.add(
        "other_processes",
        "rows of processes whose trace was not asked for were left out of the system profile",
        int(np.count_nonzero(~keep)),
        where=f"process {trace.processes[others[0]].pid}",
    )
    of_track = np.isin(trace.track_column("process"), list(matches))
    home = {trace.processes[p].host: p for p in reversed(list(matches))}
    # Samples belong to an instance; they stay, with a process of that instance that stays.
    tracks = [
        replace(t, process=home.get(trace.processes[t.process].host, t.process))
        if t.kind is TrackKind.COUNTER
        else t
        for t in trace.tracks
    ]
    of_host = np.array([trace.processes[t.process].host in home for t in trace.tracks], np.bool_)
    return replace(
        trace,
        tracks=tracks,
        slices=trace.slices.take(keep),
        instants=trace.instants.take(of_track[trace.instants.track]),
        counters=trace.counters.take(of_host[trace.counters.track]),
    )


def _unify(trace: Trace, same: dict[int, int]) -> Trace:
    """Let processes of a system profile be the framework processes that they are."""
    target = list(range(len(trace.processes)))
    processes, metadata = list(trace.processes), list(trace.metadata)
    for own, match in same.items():
        target[own] = match
        if not processes[match].host:
            processes[match] = replace(processes[match], host=processes[own].host)
        if metadata[own]:
            metadata[match] = {**metadata[match], "system_profile": metadata[own]}
    devices, of_device = _unified_devices(trace, target)
    return replace(
        trace,
        processes=processes,
        metadata=metadata,
        devices=devices,
        tracks=[
            replace(
                track,
                process=target[track.process],
                device=None if track.device is None else of_device[track.device],
            )
            for track in trace.tracks
        ],
    )


def _unified_devices(trace: Trace, target: list[int]) -> tuple[list[Device], list[int]]:
    """Devices of one process with one index are one; a NeuronCore is the better known one."""
    devices: list[Device] = []
    numbers: dict[tuple[int, int, str], int] = {}
    of_device = []
    for device in trace.devices:
        moved = replace(device, process=target[device.process])
        key = (moved.process, moved.index, moved.name if moved.detail else "")
        if key not in numbers:
            numbers[key] = len(devices)
            devices.append(moved)
        elif moved.family == "neuron":
            devices[numbers[key]] = moved
        of_device.append(numbers[key])
    return devices, of_device


def _with_ranks(framework: Sequence[Trace], findings: Findings) -> list[Trace]:
    """Give ranks by order where several framework traces are read and none says its rank.

    A trace's own process is its first; other processes of a file are no ranks.
    """
    traces = list(framework)
    ranks = [t.processes[0].rank for t in traces if t.processes[0].rank is not None]
    findings.add(
        "equal_ranks",
        "several processes say that they are the same rank; they are shown as processes of their "
        "own",
        len(ranks) - len(set(ranks)),
    )
    if ranks or len(traces) < 2:
        return traces
    findings.add(
        "rank_by_order",
        "no trace says which rank it is; ranks were given by order of (instance, process id)",
    )
    order = sorted(
        range(len(traces)), key=lambda n: (traces[n].processes[0].host, traces[n].processes[0].pid)
    )
    for rank, number in enumerate(order):
        first, *others = traces[number].processes
        traces[number] = replace(traces[number], processes=[replace(first, rank=rank), *others])
    return traces


def _report_capture(found: Found, trace: Trace) -> None:
    trace.findings.add(
        "own_result",
        "files that neuron-tb convert wrote were left out: they repeat the capture",
        len(found.own_results),
        where=str(found.own_results[0]) if found.own_results else None,
    )
    trace.findings.add(
        "folder_unreadable",
        "folders that may not be read were left out",
        len(found.unreadable),
        where=found.unreadable[0] if found.unreadable else None,
    )
    trace.findings.extend(found.findings)
    report_absent(trace, (p for c in found.captures for p in c.listed))
    for capture in found.older:
        trace.findings.add(
            "older_session",
            "older sessions of a process were left out; give their directory to read one",
            where=str(capture.directory),
        )
    for capture in found.captures:
        if capture.raw and not capture.system:
            for sentence in capture.lacks():
                trace.findings.add("capture_incomplete", f"{capture.directory} has {sentence}")
