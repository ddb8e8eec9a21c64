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

import msgspec
import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.captures.capture import Found
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import (
    NONE,
    Bools,
    Clock,
    Int64,
    Process,
    Role,
    Trace,
    merge,
)
from neuron_tb.converters.model.numbers import integer
from neuron_tb.converters.readers import read_device_profile
from neuron_tb.converters.readers.device.names import METADATA_KEY

UNALIGNED = "own clock, not aligned"
"""What the process of a profile says that could not be placed."""

_MOST_SPREAD_NS = 1_000_000
"""Evidence that disagrees by more than a millisecond is none."""

_SAME_LENGTH = 0.02
"""Two lengths are the same within this share of the longer one."""

_METHODS = {
    "device_clock": "by the device clock (nc_start_timestamp_ns less first_hw_timestamp)",
    "execution_order": "by order (the n-th execution of the core is the n-th of the profile)",
    "duration": "by duration (one execution of the core is as long as the profile)",
}


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
    """Where a profile belongs: process and core, what to add to its times, and by which method.

    ``bound_ns``: how far the evidence disagrees; ``evidence``: how many executions gave it.
    """

    process: int
    core: int
    offset_ns: int
    bound_ns: int
    method: str
    evidence: int


@dataclass(frozen=True, slots=True)
class _Runs:
    """Executions of one physical core in order of time: host start, length, device start or NONE.

    The physical cores of a logical one have clocks of their own.
    """

    start_ns: Int64
    length_ns: Int64
    device_ns: Int64


def _place(trace: Trace, facts: dict[str, Any]) -> _Home | str:
    """The home of a profile, or the reason why it has none."""
    home = _core_of(trace, facts)
    if isinstance(home, str):
        return home
    process, device = home
    cores = _runs(trace, device, facts["model"])
    if not cores:
        return "its NeuronCore has no execution in the system profile"
    for method, find in (
        ("device_clock", _by_device_clock),
        ("execution_order", _by_order),
        ("duration", _by_duration),
    ):
        for runs in cores:
            offsets = find(runs, facts)
            if not len(offsets):
                continue
            offset = int(np.sort(offsets)[len(offsets) // 2])
            bound = int(np.abs(offsets - offset).max())
            if bound <= _MOST_SPREAD_NS:
                index = trace.devices[device].index
                return _Home(process, index, offset, bound, method, len(offsets))
    return "no execution of its NeuronCore has its device clock, its number or, alone, its length"


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
        candidates = [c for c in candidates if _runs(trace, c[1], facts["model"])]
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


class _Extra(msgspec.Struct):
    nc_start_timestamp_ns: Any = None
    nc_timestamp_ns: Any = None
    model_id: Any = None


class _Event(msgspec.Struct):
    data: _Extra | None = None


class _Arguments(msgspec.Struct):
    nc_start_timestamp_ns: Any = None
    nc_timestamp_ns: Any = None
    model_id: Any = None
    extra_attributes: _Extra | None = None
    data: _Extra | None = None
    start: _Event | None = None


_DECODE = msgspec.json.Decoder(_Arguments).decode
_NOTHING = _Arguments()


def _runs(trace: Trace, device: int, model: str | None) -> list[_Runs]:
    """Executions of a core, of a model where one is named, physical core by physical core."""
    s = trace.slices
    rows = np.flatnonzero(trace.roles(Role.KERNEL) & (trace.slice_device == device))
    rows = rows[np.argsort(s.start_ns[rows], kind="stable")]
    found = [_decoded(trace.raw_args(row)) for row in rows.tolist()]
    models = [_first(a, "model_id") for a in found]
    if model is not None and any(m is not None for m in models):
        keep = [str(m) == model for m in models]
        rows, found = rows[keep], [a for a, kept in zip(found, keep, strict=True) if kept]
    clock = (_first(a, "nc_start_timestamp_ns", "nc_timestamp_ns") for a in found)
    device_ns = np.fromiter(map(integer, clock), np.int64, len(rows))
    physical = trace.track_column("physical_core")[s.track[rows]]
    cores = ((rows[physical == n], device_ns[physical == n]) for n in np.unique(physical))
    return [_Runs(s.start_ns[mine], s.duration_ns[mine], clock) for mine, clock in cores]


def _decoded(raw: bytes) -> _Arguments:
    try:
        return _DECODE(raw) if raw else _NOTHING
    except msgspec.MsgspecError:
        return _NOTHING


def _first(arguments: _Arguments, *names: str) -> Any:
    begin = None if arguments.start is None else arguments.start.data
    for place in (arguments, arguments.extra_attributes, arguments.data, begin):
        for name in names:
            value = None if place is None else getattr(place, name)
            if value is not None:
                return value
    return None


# -- offsets: what to add to the profile's times, one per piece of evidence -------------------


_NO_OFFSETS = np.empty(0, np.int64)


def _by_device_clock(runs: _Runs, facts: dict[str, Any]) -> Int64:
    metadata = (facts["Metadata"] or [{}])[0]
    first = integer(metadata.get("first_hw_timestamp"))
    last = integer(metadata.get("last_hw_timestamp"))
    if first == NONE:
        return _NO_OFFSETS
    last = last if last > first else first + facts["last_ns"]
    known = runs.device_ns != NONE
    inside = known & (runs.device_ns <= last) & (runs.device_ns + runs.length_ns >= first)
    offsets: Int64 = (runs.start_ns - runs.device_ns + first)[inside]
    return offsets


def _by_order(runs: _Runs, facts: dict[str, Any]) -> Int64:
    rows = [row for row in facts["ExecutionInfo"] if row["start_ns"] is not None]
    if not rows:
        return _NO_OFFSETS
    numbers = np.array([integer(row["index"]) for row in rows], np.int64)
    start = np.array([row["start_ns"] for row in rows], np.int64)
    end = np.array([NONE if row["end_ns"] is None else row["end_ns"] for row in rows], np.int64)
    order = np.lexsort((start, numbers))
    numbers, start, end = numbers[order], start[order], end[order]
    if len(rows) == len(facts["ExecutionInfo"]) == len(runs.start_ns):
        which: NDArray[np.integer[Any]] = np.arange(len(rows))
    elif (numbers >= 0).all() and (numbers < len(runs.start_ns)).all():
        which = numbers
    else:
        return _NO_OFFSETS
    length = runs.length_ns[which]
    same = (end == NONE) | _same_length(end - start, length)
    return runs.start_ns[which] - start if same.all() else _NO_OFFSETS


def _by_duration(runs: _Runs, facts: dict[str, Any]) -> Int64:
    first, last = facts["first_ns"], facts["last_ns"]
    if last <= first:
        return _NO_OFFSETS
    same = _same_length(np.full(len(runs.length_ns), last - first), runs.length_ns)
    if np.count_nonzero(same) != 1:
        return _NO_OFFSETS
    offsets: Int64 = runs.start_ns[same] - first
    return offsets


def _same_length(one: Int64, other: Int64) -> Bools:
    close: Bools = np.abs(one - other) <= _SAME_LENGTH * np.maximum(one, other)
    return close


# -- moving ---------------------------------------------------------------------------------


def _moved(trace: Trace, profile: Trace, home: _Home, findings: Findings) -> Trace:
    facts = {
        **_facts(profile),
        "placed": home.method,
        "offset_ns": home.offset_ns,
        "bound_ns": home.bound_ns,
        "core": home.core,
    }
    findings.add(
        "device_profile_placed",
        f"device profile {facts['name']} stands on the time line {_METHODS[home.method]}; "
        f"{home.evidence:,} execution{'s' if home.evidence != 1 else ''} "
        f"agree{'' if home.evidence != 1 else 's'} within {home.bound_ns:,} ns",
    )
    device = replace(profile.devices[0], index=home.core, name=f"NeuronCore {home.core} engines")
    return replace(
        _shifted(profile, home.offset_ns, trace.clock),
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
