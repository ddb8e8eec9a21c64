"""What is done where two clocks differ: nothing, what the evidence says, or what the user says.

Times are moved only where the evidence rules out that the clocks agree; within the bound of the
evidence nothing moves. Where clocks disagree and nothing says by how much, the process is marked
(``Process.clocks_apart``), and nothing is joined by containment in time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neuron_tb.converters.errors import WrongUseError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import Alignment, Bools, ClockKind, Int64, Process, Trace
from neuron_tb.converters.placing.feasible import Fit
from neuron_tb.converters.placing.host_clocks import (
    BY_COLLECTIVES,
    LEAST_ANCHORS,
    HostClock,
    collective_ends,
    host_clocks,
)
from neuron_tb.converters.placing.profile_clock import Found, find_profile_offset

_OFFSET = re.compile(r"offset=(?P<name>[^:\s]+):(?P<ns>[+-]?\d{1,18})")
_BY_USER = "given by --align"


@dataclass(frozen=True, slots=True)
class Align:
    """``auto``: what the evidence says. ``offsets_ns``: what the user says, by name.

    A name is ``profile`` (every system profile), ``rank<N>``, or an instance id: the system
    profile of that rank, or of that instance's processes. ``hosts``: whether hosts are compared.
    """

    auto: bool = True
    offsets_ns: tuple[tuple[str, int], ...] = ()
    hosts: bool = True

    @classmethod
    def of(cls, text: str | Sequence[str]) -> Align:
        """Parse ``auto``, ``none`` and ``offset=NAME:NANOSECONDS``, the last of which may repeat.

        Raises WrongUseError for anything else.
        """
        words = [text] if isinstance(text, str) else list(text)
        offsets = []
        for word in words:
            match = _OFFSET.fullmatch(word)
            if match is not None:
                offsets.append((match["name"], int(match["ns"])))
            elif word not in ("auto", "none"):
                raise WrongUseError(
                    "--align takes auto, none, or offset=NAME:NANOSECONDS, where NAME is profile, "
                    f"a rank (rank0) or an instance id, not {word!r}."
                )
        return cls("none" not in words, tuple(offsets))

    def given_ns(self, process: Process, rank: int | None) -> int | None:
        """What the user says is to be added to the times of this process' system profile."""
        names = ("profile", process.host, None if rank is None else f"rank{rank}")
        found = [ns for name, ns in self.offsets_ns if name in names]
        return found[-1] if found else None


def align_profile(
    framework: Sequence[Trace],
    profile: Trace,
    matches: dict[int, int],
    align: Align,
    findings: Findings,
) -> Trace:
    """The profile on its framework traces' clocks, process by process, as ``align`` says.

    ``matches``: the framework process (numbered through all traces) that each process is.
    """
    places = [(trace, number) for trace in framework for number in range(len(trace.processes))]
    for own, match in matches.items():
        trace, number = places[match]
        process, rank = profile.processes[own], trace.processes[number].rank
        given = align.given_ns(process, rank)
        if given is not None:
            fit = Fit(given, 0.0, 0, 0, 0, 0, given != 0)
            found: Found | None = Found(fit, _BY_USER, 0)
        elif trace.clock.kind is profile.clock.kind is ClockKind.EPOCH:
            found = find_profile_offset(trace, number, profile, own)
        else:
            found = None
        if found is not None:
            moves = align.auto or given is not None
            profile = _settled(profile, own, rank, found, moves, findings)
    return profile


def _settled(
    profile: Trace, own: int, rank: int | None, found: Found, moves: bool, findings: Findings
) -> Trace:
    process, fit = profile.processes[own], found.fit
    who = f"rank {rank}" if rank is not None else f"process {process.pid}"
    where = f"{who} of {process.host}" if process.host else who
    result = Alignment(
        f"system profile of {where}", f"trace of {where}", found.method, found.anchors
    )
    if fit is None:
        findings.add(
            "clock_offset_unknown",
            "the clocks of a system profile and of its trace disagree, and nothing says for "
            "certain by how much: times stay as they are, and only ids join the two; "
            "--align offset=NAME:NS states it",
            where=where,
        )
        apart = _changed(profile, own, clocks_apart=True)
        return replace(apart, alignments=[*apart.alignments, result])
    result = replace(
        result, offset_ns=fit.offset_ns, drift_ppm=fit.drift_ppm, bound_ns=fit.bound_ns
    )
    if fit.noise_ns:
        profile = _changed(profile, own, clock_noise_ns=fit.noise_ns)
    if not fit.excludes_zero:
        return replace(profile, alignments=[*profile.alignments, result])
    if not moves:
        findings.add(
            "clock_offset_left",
            f"the clock of the system profile is off ({_described(result)}); times stay as they "
            "are (--align none), and only ids join it with the trace",
            where=where,
        )
        apart = _changed(profile, own, clocks_apart=True)
        return replace(apart, alignments=[*apart.alignments, result])
    findings.add(
        "clock_offset",
        f"the clock of the system profile was off, its times were moved: {_described(result)}",
        where=where,
    )
    moved = _moved(profile, np.arange(len(profile.processes)) == own, fit)
    return replace(moved, alignments=[*moved.alignments, replace(result, moved=True)])


def align_hosts(trace: Trace, align: Align) -> Trace:
    """All hosts on the clock of the first one, where their collectives say that clocks differ."""
    for clock in host_clocks(collective_ends(trace)):
        result = report_host(clock, align.auto, trace.findings)
        if result is None:
            continue
        if result.moved and clock.fit is not None:
            own = [(p.host or f"pid {p.pid}") == clock.host for p in trace.processes]
            trace = _moved(trace, np.array(own, np.bool_), clock.fit)
        trace = replace(trace, alignments=[*trace.alignments, result])
    return trace


def report_host(clock: HostClock, moves: bool, findings: Findings) -> Alignment | None:
    """What is known of a host's clock, with a finding where it differs; None without evidence."""
    if clock.anchors < LEAST_ANCHORS:
        return None
    names = f"host {clock.host}", f"host {clock.against}"
    result = Alignment(*names, BY_COLLECTIVES, clock.anchors)
    if clock.fit is None:
        findings.add(
            "host_clock_unknown",
            "collectives of several hosts end apart, and by different amounts: their clocks are "
            "not aligned",
            where=clock.host,
        )
        return result
    fit = clock.fit
    result = replace(
        result,
        offset_ns=fit.offset_ns,
        drift_ppm=fit.drift_ppm,
        bound_ns=fit.bound_ns,
        moved=moves and fit.excludes_zero,
    )
    if fit.excludes_zero:
        findings.add(
            "host_clock" if moves else "host_clock_left",
            "the clock of a host was off, all its times were moved: "
            f"{_described(result)}, against {names[1]}"
            if moves
            else f"the clock of a host is off ({_described(result)}, against {names[1]}); its "
            "times stay as they are",
            where=clock.host,
        )
    return result


def _described(result: Alignment) -> str:
    assert result.offset_ns is not None
    drift = f" and {result.drift_ppm:+.1f} ppm" if result.drift_ppm else ""
    if result.method == _BY_USER:
        return f"{result.offset_ns / 1000:+,.3f} us, {result.method}"
    assert result.bound_ns is not None
    return (
        f"{result.offset_ns / 1000:+,.3f} us{drift}, certain within "
        f"{result.bound_ns / 1000:,.3f} us, by {result.method} ({result.anchors:,})"
    )


def _changed(profile: Trace, own: int, **what: Any) -> Trace:
    processes = list(profile.processes)
    processes[own] = replace(processes[own], **what)
    return replace(profile, processes=processes)


def _moved(trace: Trace, own: Bools, fit: Fit) -> Trace:
    """All rows of some processes on the other clock; lengths change with a drift alone."""
    of_track = own[trace.track_column("process")]

    def moved(time_ns: Int64, mine: Bools) -> Int64:
        return np.where(mine, time_ns + fit.at(time_ns), time_ns)

    slices, mine = trace.slices, of_track[trace.slices.track]
    start = moved(slices.start_ns, mine)
    duration = slices.duration_ns
    if fit.drift_ppm:
        duration = moved(slices.end_ns, mine) - start
    instants, counters, memory = trace.instants, trace.counters, trace.memory
    return replace(
        trace,
        slices=replace(slices, start_ns=start, duration_ns=duration),
        instants=replace(instants, time_ns=moved(instants.time_ns, of_track[instants.track])),
        counters=replace(counters, time_ns=moved(counters.time_ns, of_track[counters.track])),
        memory=replace(memory, time_ns=moved(memory.time_ns, own[memory.process])),
    )
