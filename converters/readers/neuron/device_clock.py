"""Hardware events that are still on the device's clock, brought to the host's by sync points.

The runtime notes a ``timestamp_sync_point`` after every execution: the host's time and the core's
counter at one moment. Outputs of Neuron's tools have been through this already; where hardware
events stand at times of the counter, they have not.

Source: AWS Neuron documentation of system profiles; physical cores have counters of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import (
    NONE,
    Alignment,
    Bools,
    ClockKind,
    Float64,
    Int64,
    Trace,
    TrackKind,
)
from neuron_tb.converters.model.numbers import integer
from neuron_tb.converters.readers.era import EARLIEST_EPOCH_NS, LONGEST_NS

METHOD = "timestamp_sync_point rows"

_NAME = "timestamp_sync_point"
_MARGIN_NS = 3600 * 10**9
_CRYSTAL_PPM = 50
"""How far a crystal may be off, where too few sync points show it."""


class _Both(msgspec.Struct):
    cpu_timestamp_ns: object = None
    nc_timestamp_ns: object = None


class _Arguments(_Both):
    extra_attributes: _Both | None = None
    data: _Both | None = None


_DECODE = msgspec.json.Decoder(_Arguments).decode


@dataclass(frozen=True, slots=True)
class _Points:
    """Sync points of one core, ascending: the core's counter, and what to add to be the host's."""

    device_ns: Int64
    offset_ns: Int64

    def at(self, device_ns: Int64) -> Int64:
        """What to add at these times: between points in proportion, outside by their drift."""
        zero, base = int(self.device_ns[0]), int(self.offset_ns[0])
        x = (self.device_ns - zero).astype(np.float64)
        y = (self.offset_ns - base).astype(np.float64)
        wanted = (device_ns - zero).astype(np.float64)
        found: Float64 = np.interp(wanted, x, y)
        drift = self.drift
        found += drift * (np.minimum(wanted - x[0], 0) + np.maximum(wanted - x[-1], 0))
        return np.rint(found).astype(np.int64) + base

    @property
    def drift(self) -> float:
        """Nanoseconds that the offset grows by per nanosecond, over all points."""
        length = int(self.device_ns[-1] - self.device_ns[0])
        return int(self.offset_ns[-1] - self.offset_ns[0]) / length if length else 0.0

    def bound_ns(self, device_ns: Int64) -> int:
        """How wrong that may be at these times.

        Within the points, how far any is from the line between its neighbours; outside, and where
        there are fewer than three, what a crystal may drift.
        """
        away = np.maximum(self.device_ns[0] - device_ns, device_ns - self.device_ns[-1])
        farthest = max(int(away.max(initial=0)), 0)
        if len(self.device_ns) < 3:
            span = int(self.device_ns[-1] - self.device_ns[0])
            return 1 + round((farthest + span) * _CRYSTAL_PPM / 1e6)
        within = [
            abs(int(_Points(*self._without(n)).at(self.device_ns[n : n + 1])[0]) - int(offset))
            for n, offset in enumerate(self.offset_ns[1:-1].tolist(), 1)
        ]
        return 1 + max(within) + round(farthest * _CRYSTAL_PPM / 1e6)

    def _without(self, number: int) -> tuple[Int64, Int64]:
        near = [number - 1, number + 1]
        return self.device_ns[near], self.offset_ns[near]


def on_host_clock(trace: Trace) -> Trace:
    """The trace with hardware events at the host's times, where they stand at the core's."""
    if _NAME not in trace.strings:
        return trace
    points = _points_by_core(trace)
    start, end = trace.slices.start_ns.copy(), trace.slices.end_ns.copy()
    times = trace.instants.time_ns.copy()
    count = 0
    alignments = []
    for core, own in points.items():
        tracks = _tracks_of(trace, core)
        rows = _on_device_clock(tracks[trace.slices.track], trace.slices.start_ns, own)
        marks = _on_device_clock(tracks[trace.instants.track], trace.instants.time_ns, own)
        found = np.concatenate([start[rows], end[rows], times[marks]])
        if not len(found):
            continue
        bound = own.bound_ns(found)
        start[rows] += own.at(start[rows])
        end[rows] += own.at(end[rows])
        times[marks] += own.at(times[marks])
        count += len(rows) + len(marks)
        alignments.append(
            Alignment(
                _name(trace, core),
                "host",
                METHOD,
                len(own.device_ns),
                int(np.median(own.offset_ns)),
                own.drift * 1e6,
                bound,
                moved=True,
            )
        )
    if not count:
        return trace
    worst = max(alignments, key=lambda one: one.bound_ns or 0)
    trace.findings.add(
        "device_clock",
        "hardware events stood at times of their NeuronCore's own clock; they were moved to the "
        f"host's by {METHOD}, certain within {(worst.bound_ns or 0) / 1000:,.3f} us",
        count,
        where=worst.clock,
    )
    host_ns = min(int(own.device_ns[0] + own.offset_ns[0]) for own in points.values())
    kind = ClockKind.EPOCH if host_ns > EARLIEST_EPOCH_NS else trace.clock.kind
    return replace(
        trace,
        clock=replace(trace.clock, kind=kind),
        slices=replace(trace.slices, start_ns=start, duration_ns=end - start),
        instants=replace(trace.instants, time_ns=times),
        alignments=[*trace.alignments, *alignments],
    )


_Core = tuple[int, int, int]
"""Process, device and physical core (NONE where it is not known)."""


def _points_by_core(trace: Trace) -> dict[_Core, _Points]:
    rows = np.flatnonzero(trace.instants.name == trace.strings.index(_NAME))
    found: dict[_Core, dict[int, int]] = {}
    texts = trace.arguments.texts(trace.instants.args_start[rows], trace.instants.args_length[rows])
    for text, track in zip(texts, trace.instants.track[rows].tolist(), strict=True):
        device_ns, host_ns = _times(text)
        core = _core_of(trace, track)
        if core is not None and device_ns != NONE and host_ns != NONE:
            found.setdefault(core, {})[device_ns] = host_ns - device_ns
    return {
        core: _Points(
            np.array(sorted(offsets), np.int64),
            np.array([offsets[time] for time in sorted(offsets)], np.int64),
        )
        for core, offsets in found.items()
    }


def _times(text: bytes) -> tuple[int, int]:
    """The core's and the host's time in the arguments of a sync point, NONE where they lack."""
    try:
        given = _DECODE(text) if text else _Arguments()
    except (msgspec.MsgspecError, RecursionError):
        return NONE, NONE
    places = [given, given.extra_attributes, given.data]
    both = [p for p in places if p is not None and p.nc_timestamp_ns is not None]
    if not both:
        return NONE, NONE
    return integer(both[0].nc_timestamp_ns), integer(both[0].cpu_timestamp_ns)


def _core_of(trace: Trace, number: int) -> _Core | None:
    track = trace.tracks[number]
    if track.device is None:
        return None
    physical = NONE if track.physical_core is None else track.physical_core
    return track.process, track.device, physical


def _tracks_of(trace: Trace, core: _Core) -> Bools:
    """Which tracks are of a core; of all physical ones where sync points name none."""
    process, device, physical = core
    return np.array(
        [
            track.kind is TrackKind.DEVICE
            and (track.process, track.device) == (process, device)
            and (physical == NONE or track.physical_core in (None, physical))
            for track in trace.tracks
        ],
        np.bool_,
    )


def _on_device_clock(mine: Bools, time_ns: Int64, points: _Points) -> NDArray[np.intp]:
    """Rows of a core that are near its counter's times and far from the host's."""
    near = (time_ns >= points.device_ns[0] - _MARGIN_NS) & (
        time_ns <= points.device_ns[-1] + _MARGIN_NS
    )
    apart = abs(int(points.offset_ns[0])) > LONGEST_NS
    return np.flatnonzero(mine & near) if apart else np.empty(0, np.intp)


def _name(trace: Trace, core: _Core) -> str:
    process, device, physical = core
    inner = "" if physical == NONE else f" (physical {physical})"
    owner = trace.processes[process]
    return f"{trace.devices[device].name}{inner} of process {owner.pid}"
