"""Device profiles beside a system profile: reading them, and placing them on its time line.

A device profile counts nanoseconds from its own start. What relates it to the host's clock, in
this order: the device clock's time of an execution (``nc_start_timestamp_ns`` of
``nc_exec_running``, less ``first_hw_timestamp`` of the profile); the n-th execution of that core
beside the n-th row of ``ExecutionInfo``; the one execution that is as long as the profile. Which
of them it was is reported, with how far the evidence disagrees. A profile that nothing relates
stands in a process of its own that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from neuron_tb.converters.captures.capture import Found
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import (
    NONE,
    Clock,
    Process,
    Role,
    Trace,
    merge,
)
from neuron_tb.converters.model.numbers import integer
from neuron_tb.converters.placing.clock_offsets import METHODS, Offset, find_offset, runs_of
from neuron_tb.converters.readers import read_device_profile
from neuron_tb.converters.readers.device.names import METADATA_KEY

UNALIGNED = "own clock, not aligned"
"""What the process of a profile says that could not be placed."""


def read_profiles(
    found: Found, instructions: bool, say: Callable[[str], None]
) -> tuple[list[Trace], list[str]]:
    """Every device profile of the captures, and sentences on those that cannot be read."""
    profiles: list[Trace] = []
    failures: list[str] = []
    seen: set[Path] = set()
    for capture in found.captures:
        for path in capture.device:
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            say(f"reading device profile {path.name}")
            try:
                profiles.append(read_device_profile(path, capture.context(path), instructions))
            except NeuronTbError as error:
                failures.append(str(error))
    return profiles, failures


def profiles_of(trace: Trace) -> list[dict[str, Any]]:
    """What is known of every device profile in a trace, as its reader (and placing) left it."""
    return [p for metadata in trace.metadata for p in metadata.get(METADATA_KEY, ())]


def add_device_profiles(trace: Trace, profiles: Sequence[Trace]) -> Trace:
    """The trace with the rows of its device profiles; alone, a profile is the trace itself."""
    if not profiles:
        return trace
    alone = not trace.processes
    parts: list[Trace] = [] if alone else [trace]
    findings = Findings()
    placed: list[tuple[Trace, _Home]] = []
    for profile in profiles:
        place = None if alone else _place(trace, _facts(profile))
        if isinstance(place, _Home):
            placed.append((_moved(trace, profile, place, findings), place))
        elif alone and len(profiles) == 1:
            return _named(trace, profile)
        else:
            reason = place or "there is no system profile, and each counts from its own start"
            parts.append(_apart(trace, profile, reason, alone, findings))
    merged = merge(trace.name, [*parts, *(part for part, _ in placed)])
    merged.step_annotation = trace.step_annotation
    merged.findings.extend(findings)
    return _joined(merged, [home.process for _, home in placed])


def _named(trace: Trace, profile: Trace) -> Trace:
    return replace(profile, name=trace.name, step_annotation=trace.step_annotation)


def _facts(profile: Trace) -> dict[str, Any]:
    facts: dict[str, Any] = profile.metadata[0][METADATA_KEY][0]
    return facts


# -- which core, and where ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Home:
    """Where a profile belongs: process and core, and what to add to its times."""

    process: int
    core: int
    offset: Offset


def _place(trace: Trace, facts: dict[str, Any]) -> _Home | str:
    """The home of a profile, or the reason why it has none."""
    home = _core_of(trace, facts)
    if isinstance(home, str):
        return home
    process, device = home
    cores = runs_of(trace, device, facts["model"])
    if not cores:
        return "its NeuronCore has no execution in the system profile"
    offset = find_offset(cores, facts)
    if offset is None:
        return (
            "no execution of its NeuronCore has its device clock, its number or, alone, its length"
        )
    return _Home(process, trace.devices[device].index, offset)


def _core_of(trace: Trace, facts: dict[str, Any]) -> tuple[int, int] | str:
    """Process and device that a profile is of: by Explorer's list, its name, or as the only one."""
    cores = _cores_with_work(trace)
    if not cores:
        return "there is no system profile with executions that would place it"
    listed = _listed(trace, facts["name"])
    pid, core, instance = facts["pid"], facts["core"], None
    if listed is not None:
        pid, core = integer(listed.get("process_id")), integer(listed.get("nc_id"))
        instance = listed.get("instance_id")
        if listed.get("model_id") is not None:
            facts["model"] = str(listed["model_id"])
    candidates = [
        (p, d)
        for p, d in cores
        if (pid in (None, NONE) or trace.processes[p].pid == pid)
        and (core in (None, NONE) or trace.devices[d].index == core)
        and _is_host(trace.processes[p].host, instance, facts)
    ]
    if facts["model"] is not None and len(candidates) > 1:
        candidates = [c for c in candidates if runs_of(trace, c[1], facts["model"])]
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        return "no NeuronCore of the system profile is the one it names"
    return "several NeuronCores could be its own, and nothing says which"


def _is_host(host: str, listed: object, facts: dict[str, Any]) -> bool:
    if listed is not None:
        return host in ("", str(listed))
    before: str = facts["before_pid"]
    if not host or not (before or facts["host"]):
        return True
    return host in (facts["host"], before) or before.endswith(f"_{host}")


def _cores_with_work(trace: Trace) -> list[tuple[int, int]]:
    work = trace.roles(Role.KERNEL) & (trace.slice_device != NONE)
    devices = np.unique(trace.slice_device[work]).tolist()
    return [(trace.devices[d].process, d) for d in devices if trace.devices[d].family == "neuron"]


def _listed(trace: Trace, name: str) -> dict[str, Any] | None:
    """The row of ``DeviceProfileList`` with this name."""
    for metadata in trace.metadata:
        for source in (metadata, metadata.get("system_profile")):
            for key in ("DeviceProfileList", "device_profile_list"):
                rows = source.get(key) if isinstance(source, dict) else None
                for row in rows if isinstance(rows, list) else ():
                    if isinstance(row, dict) and _bare(row.get("device_profile_name")) == name:
                        return row
    return None


def _bare(name: object) -> str:
    return str(name).removesuffix("@latest")


# -- moving ---------------------------------------------------------------------------------


def _moved(trace: Trace, profile: Trace, home: _Home, findings: Findings) -> Trace:
    facts = {
        **_facts(profile),
        "placed": home.offset.method,
        "offset_ns": home.offset.offset_ns,
        "bound_ns": home.offset.bound_ns,
        "core": home.core,
    }
    findings.add(
        "device_profile_placed",
        f"device profile {facts['name']} stands on the time line {METHODS[home.offset.method]}; "
        f"{home.offset.evidence:,} execution{'s' if home.offset.evidence != 1 else ''} "
        f"agree{'' if home.offset.evidence != 1 else 's'} within {home.offset.bound_ns:,} ns",
    )
    device = replace(profile.devices[0], index=home.core, name=f"NeuronCore {home.core} engines")
    return replace(
        _shifted(profile, home.offset.offset_ns, trace.clock),
        metadata=[{METADATA_KEY: [facts]}],
        devices=[device],
    )


def _apart(trace: Trace, profile: Trace, reason: str, alone: bool, findings: Findings) -> Trace:
    """A profile of which nobody knows when it was: it begins where its process begins."""
    facts = {**_facts(profile), "placed": None, "offset_ns": None, "bound_ns": None}
    findings.add(
        "device_profile_unplaced",
        f"device profile {facts['name']} has a clock of its own and stands apart, beginning "
        f"where its process begins: {reason}",
    )
    offset = 0 if alone else _begin_of_process(trace, facts) - facts["first_ns"]
    process, device = profile.processes[0], profile.devices[0]
    return replace(
        _shifted(profile, offset, profile.clock if alone else trace.clock),
        metadata=[{METADATA_KEY: [facts]}],
        processes=[replace(process, name=f"{process.name} ({UNALIGNED})")],
        devices=[replace(device, name=f"{device.name} ({UNALIGNED})")],
    )


def _begin_of_process(trace: Trace, facts: dict[str, Any]) -> int:
    """First nanosecond of the process that the profile names; of the trace where it names none."""
    named = [
        number
        for number, process in enumerate(trace.processes)
        if process.pid == facts["pid"] and _is_host(process.host, None, facts)
    ]
    own = trace.only_process(named[0]) if len(named) == 1 else trace
    return own.time_range()[0] or trace.time_range()[0]


def _shifted(profile: Trace, offset: int, clock: Clock) -> Trace:
    s, i, c = profile.slices, profile.instants, profile.counters
    return replace(
        profile,
        clock=clock,
        slices=replace(s, start_ns=s.start_ns + offset),
        instants=replace(i, time_ns=i.time_ns + offset),
        counters=replace(c, time_ns=c.time_ns + offset),
    )


def _joined(trace: Trace, homes: Sequence[int]) -> Trace:
    """The last processes, one per home, become the processes that they belong to."""
    if not homes:
        return trace
    kept = len(trace.processes) - len(homes)
    target = [*range(kept), *homes]
    metadata = [dict(m) for m in trace.metadata[:kept]]
    for home, own in zip(homes, trace.metadata[kept:], strict=True):
        metadata[home][METADATA_KEY] = [*metadata[home].get(METADATA_KEY, ()), *own[METADATA_KEY]]
    processes: list[Process] = trace.processes[:kept]
    return replace(
        trace,
        processes=processes,
        metadata=metadata,
        devices=_distinct_names([replace(d, process=target[d.process]) for d in trace.devices]),
        tracks=[replace(t, process=target[t.process]) for t in trace.tracks],
    )


def _distinct_names(devices: Sequence[Any]) -> list[Any]:
    """Several profiles of one core are numbered."""
    seen: dict[tuple[int, str], int] = {}
    named = []
    for device in devices:
        if device.detail:
            key = (device.process, device.name)
            seen[key] = seen.get(key, 0) + 1
            if seen[key] > 1:
                device = replace(device, name=f"{device.name}, profile {seen[key]}")
        named.append(device)
    return named
