"""One trace of framework traces and system profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import Device, Role, Trace, TrackKind, merge
from neuron_tb.converters.placing.align import Align, align_hosts, align_profile
from neuron_tb.converters.placing.processes import match_processes


def put_together(
    name: str,
    framework: Sequence[Trace],
    system: Sequence[tuple[Trace, bool]],
    align: Align | None = None,
) -> Trace:
    """One trace of framework traces and system profiles, a process of both kinds being one.

    Rows of a system profile belong to a process by (instance id, process id). Each system
    profile comes with a flag: whether processes without a framework trace are kept too.
    ``align``: what is done where their clocks differ.
    """
    align = align or Align()
    findings = Findings()
    framework = _with_ranks(framework, findings)
    parts: list[Trace] = list(framework)
    same: dict[int, int] = {}
    offset = sum(len(t.processes) for t in framework)
    matched = match_processes(framework, [trace for trace, _ in system], findings)
    for (original, keep_others), matches in zip(system, matched, strict=True):
        trace = align_profile(framework, original, matches, align, findings)
        reduced = _without_repeated_rows(trace, matches, findings)
        if not keep_others and framework and matches:
            reduced = _only_matched(reduced, matches, findings)
        same.update({offset + own: match for own, match in matches.items()})
        offset += len(trace.processes)
        parts.append(reduced)
    merged = merge(name, parts)
    merged.findings.extend(findings)
    unified = _unify(merged, same) if same else merged
    unified = unified.without_empty_tracks()
    return align_hosts(unified, align) if align.hosts else unified


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
    tables = trace.instants, trace.counters, trace.memory
    return trace.take(~repeated, *(np.ones(len(table), np.bool_) for table in tables))


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
    part = trace.take(
        keep,
        of_track[trace.instants.track],
        of_host[trace.counters.track],
        np.ones(len(trace.memory), np.bool_),
    )
    return replace(part, tracks=tracks)


def _unify(trace: Trace, same: dict[int, int]) -> Trace:
    """Let processes of a system profile be the framework processes that they are."""
    target = list(range(len(trace.processes)))
    processes, metadata = list(trace.processes), list(trace.metadata)
    for own, match in same.items():
        target[own] = match
        apart = processes[match].clocks_apart or processes[own].clocks_apart
        host = processes[match].host or processes[own].host
        noise = max(processes[match].clock_noise_ns, processes[own].clock_noise_ns)
        processes[match] = replace(
            processes[match], host=host, clocks_apart=apart, clock_noise_ns=noise
        )
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
