"""Which process of a framework trace a process of a system profile is.

By process id and instance; where that leaves several, or none, by time; where each side has one
left, by place. What was not settled by ids is reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import ClockKind, Process, Trace

Range = tuple[int, int] | None
"""First and last time of a process on the epoch's clock; None when not known."""

_FAR_NS = 60 * 10**9


def time_ranges(trace: Trace) -> list[Range]:
    """The time range of each process' slices."""
    if trace.clock.kind is not ClockKind.EPOCH:
        return [None] * len(trace.processes)
    ranges: list[Range] = []
    for number in range(len(trace.processes)):
        mine = trace.slice_process == number
        start = trace.slices.start_ns[mine]
        end = start + trace.slices.duration_ns[mine]
        ranges.append((int(start.min()), int(end.max())) if len(start) else None)
    return ranges


def match_processes(
    framework: Sequence[Trace], system: Sequence[Trace], findings: Findings
) -> list[dict[int, int]]:
    """For each system profile, the framework process that each of its processes is.

    Framework processes are numbered through all traces; those without a slice are no candidates.
    """
    known = [process for trace in framework for process in trace.processes]
    times = [found for trace in framework for found in time_ranges(trace)]
    with_rows = _with_rows(framework)
    hosts: dict[int, set[str]] = defaultdict(set)
    for process in (process for trace in system for process in trace.processes):
        hosts[process.pid].add(process.host)
    matches: list[dict[int, int]] = []
    for trace in system:
        ids = [
            _by_id(known, with_rows, process, len(hosts[process.pid]))
            for process in trace.processes
        ]
        own_times = time_ranges(trace)
        matches.append({})
        for own, candidates in enumerate(ids):
            process = trace.processes[own]
            chosen = _by_time(candidates, times, own_times[own], process, findings)
            if len(chosen) == 1:
                matches[-1][own] = chosen[0]
                _check_times(process, times[chosen[0]], own_times[own], findings)
            elif chosen:
                findings.add(
                    "process_ambiguous",
                    f"process {process.pid} of {process.host} in the system profile fits several "
                    "framework traces and was joined with none; keep each trace.json in its "
                    "<instance>_pid_<pid> directory",
                )
    _match_the_last(known, with_rows, times, system, matches, findings)
    return matches


def _with_rows(framework: Sequence[Trace]) -> list[int]:
    numbers: list[int] = []
    offset = 0
    for trace in framework:
        numbers += (offset + np.unique(trace.slice_process)).tolist()
        offset += len(trace.processes)
    return numbers


def _by_id(
    known: Sequence[Process], with_rows: Sequence[int], process: Process, hosts: int
) -> list[int]:
    """Known processes of this id on this instance; where none is, of this id alone.

    ``hosts``: on how many instances the system profiles have a process of this id.
    """
    same_pid = [n for n in with_rows if known[n].pid == process.pid]
    same_host = [n for n in same_pid if known[n].host == process.host]
    if same_host:
        return same_host
    candidates = [n for n in same_pid if not known[n].host]
    # A trace that names no instance may be of any of them.
    return candidates if hosts == 1 else candidates * 2


def _by_time(
    candidates: list[int],
    times: Sequence[Range],
    own: Range,
    process: Process,
    findings: Findings,
) -> list[int]:
    """Of several windows of one process the only one at the time of the system profile."""
    distinct = sorted(set(candidates))
    if len(distinct) < 2 or own is None:
        return candidates
    at_its_time = [n for n in distinct if _gap_ns(times[n], own) == 0]
    if len(at_its_time) != 1:
        return candidates
    findings.add(
        "process_matched_by_time",
        f"of several traces of process {process.pid} the one at the time of the system profile "
        "was joined with it",
    )
    return at_its_time


def _check_times(process: Process, known: Range, own: Range, findings: Findings) -> None:
    gap = _gap_ns(known, own)
    if gap is not None and gap > _FAR_NS:
        findings.add(
            "process_times_apart",
            f"the trace and the system profile of process {process.pid} were joined by process "
            f"id, but lie {gap / 1e9:,.0f} s apart: they may be of different runs",
        )


def _gap_ns(one: Range, other: Range) -> int | None:
    """Nanoseconds between two ranges, 0 where they overlap; None where one is not known."""
    if one is None or other is None:
        return None
    return max(one[0] - other[1], other[0] - one[1], 0)


def _match_the_last(
    known: Sequence[Process],
    with_rows: Sequence[int],
    times: Sequence[Range],
    system: Sequence[Trace],
    matches: list[dict[int, int]],
    findings: Findings,
) -> None:
    """Where one process is left on each side, they are the same."""
    taken = {match for found in matches for match in found.values()}
    known_left = [n for n in with_rows if n not in taken]
    left = [
        (number, own)
        for number, trace in enumerate(system)
        for own in range(len(trace.processes))
        if own not in matches[number]
    ]
    if len(known_left) != 1 or len(left) != 1:
        return
    ((number, own),) = left
    process, (chosen,) = system[number].processes[own], known_left
    if taken and _gap_ns(times[chosen], time_ranges(system[number])[own]) != 0:
        return
    findings.add(
        "process_matched_by_place",
        f"the system profile's process {process.pid} was taken for the trace's process "
        f"{known[chosen].pid}: on each side it is the only one left",
    )
    matches[number][own] = chosen
