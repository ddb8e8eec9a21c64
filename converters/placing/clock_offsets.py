"""By how much a device profile's clock differs from the host's, and how far that is certain.

A device profile counts nanoseconds from its own start. Every method looks at executions of its
NeuronCore in the system profile and gives one offset per piece of evidence; the first method whose
evidence agrees is believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import NONE, Bools, Int64, Role, Trace
from neuron_tb.converters.model.numbers import integer

_MOST_SPREAD_NS = 1_000_000
"""Evidence that disagrees by more than a millisecond is none."""

_SAME_LENGTH = 0.02
"""Two lengths are the same within this share of the longer one."""

METHODS = {
    "device_clock": "by the device clock (nc_start_timestamp_ns less first_hw_timestamp)",
    "execution_order": "by order (the n-th execution of the core is the n-th of the profile)",
    "duration": "by duration (one execution of the core is as long as the profile)",
}
"""The methods, strongest first, and how a finding tells them."""


@dataclass(frozen=True, slots=True)
class Offset:
    """What to add to the profile's times, nanoseconds, and by which of ``METHODS``.

    ``bound_ns``: how far the evidence disagrees; ``evidence``: how many executions gave it.
    """

    offset_ns: int
    bound_ns: int
    method: str
    evidence: int


@dataclass(frozen=True, slots=True)
class Runs:
    """Executions of one physical core in order of time: host start, length, device start or NONE.

    The physical cores of a logical one have clocks of their own.
    """

    start_ns: Int64
    length_ns: Int64
    device_ns: Int64


def find_offset(cores: Sequence[Runs], facts: dict[str, Any]) -> Offset | None:
    """The offset of a profile with these facts against the executions of its core, or None."""
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
                return Offset(offset, bound, method, len(offsets))
    return None


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


def runs_of(trace: Trace, device: int, model: str | None) -> list[Runs]:
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
    return [Runs(s.start_ns[mine], s.duration_ns[mine], clock) for mine, clock in cores]


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


_NO_OFFSETS = np.empty(0, np.int64)


def _by_device_clock(runs: Runs, facts: dict[str, Any]) -> Int64:
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


def _by_order(runs: Runs, facts: dict[str, Any]) -> Int64:
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


def _by_duration(runs: Runs, facts: dict[str, Any]) -> Int64:
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
