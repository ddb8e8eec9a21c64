"""A trace with what was asked for.

Operators, calls and executions are joined before anything is left out, so what remains keeps the
operator and the step that it belongs to, although the rows in between may be gone. Nothing is cut
in two: a slice is shown whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.errors import NothingLeftError
from neuron_tb.converters.model import NONE, Bools, Int32, Int64, Role, Steps, Trace, TrackKind
from neuron_tb.converters.selection.filters import Filters, ranks_text, within

_ALIASES = {
    "model_load": "nrt_load",
    "device_exec": "nc_exec_running",
    "cc_exec": "cc_running",
    "cc_load": "nrt_load_collectives",
    "runtime_execute": "kmgr_exec_core",
}
"""Neuron's other names of its events."""
_HARDWARE = (
    "cc_exec_barrier",
    "nc_exec_running",
    "cc_running",
    "numerical_err",
    "hw_notify",
    "timestamp_sync_point",
    "nc_model_switch",
)
"""What Neuron calls ``hardware``: events that the device reports."""


def apply(filters: Filters, trace: Trace) -> Trace:
    """The trace with what is kept; its ``filtered`` says what that is and how much.

    Raises NothingLeftError when nothing is left.
    """
    if not filters:
        return trace
    keep = _Kept.everything(trace)
    if filters.ranks is not None:
        _keep_ranks(filters, trace, keep)
    if filters.cores is not None:
        _keep_cores(filters, trace, keep)
    if filters.steps is not None:
        _keep_steps(filters, trace, keep)
    if filters.time_ns is not None:
        _keep_time(filters, trace, keep)
    if filters.events is not None:
        _keep_events(filters, trace, keep)
    result = keep.taken(trace)
    if not (len(result.slices) or len(result.counters) or len(result.instants)):
        raise NothingLeftError(
            f"nothing of the capture is left ({filters}): {_what_there_is(trace)}."
        )
    total, shown = len(trace.slices), len(result.slices)
    result.filtered = f"{filters}: {shown:,} of {total:,} slices"
    return result


def _keep_ranks(filters: Filters, trace: Trace, keep: _Kept) -> None:
    assert filters.ranks is not None
    wanted = np.array(
        [p.rank is not None and within(p.rank, filters.ranks) for p in trace.processes], np.bool_
    )
    keep.tracks(trace, wanted[trace.track_column("process")])
    keep.memory &= wanted[trace.memory.process]


def _keep_cores(filters: Filters, trace: Trace, keep: _Kept) -> None:
    assert filters.cores is not None
    ranges = filters.cores
    wanted = np.array([within(d.index, ranges) for d in trace.devices] or [True], np.bool_)
    device = trace.track_column("device")
    core = np.array([t.core is None or within(t.core, ranges) for t in trace.tracks], np.bool_)
    keep.tracks(trace, ((device == NONE) | wanted[device]) & core)
    ids = trace.memory.device_id
    known = np.array([within(n, ranges) for n in range(int(ids.max(initial=0)) + 1)], np.bool_)
    on_device = (trace.memory.device_type != 0) & (ids != NONE)
    keep.memory &= ~on_device | known[np.maximum(ids, 0)]


def _keep_steps(filters: Filters, trace: Trace, keep: _Kept) -> None:
    """What begins in a chosen step, and device work that was launched in one."""
    assert filters.steps is not None
    first, last = filters.steps
    steps = trace.steps
    chosen = (steps.slice != NONE) & (steps.number >= (0 if first is None else first))
    if last is not None:
        chosen &= steps.number <= last
    inside = _Windows(steps, np.flatnonzero(chosen), len(trace.processes))
    keep.slices &= inside.hold(trace.slice_process, trace.slices.start_ns)
    execution = trace.execution_of_slice
    if len(trace.executions):
        step = trace.executions.step[execution]
        linked = (execution != NONE) & (step != NONE)
        keep.slices = np.where(linked, chosen[step], keep.slices)
    process = trace.track_column("process")
    for name, rows in (("instants", trace.instants), ("counters", trace.counters)):
        mine = inside.hold(process[rows.track], rows.time_ns)
        setattr(keep, name, getattr(keep, name) & mine)
    keep.memory &= inside.hold(trace.memory.process, trace.memory.time_ns)


def _keep_time(filters: Filters, trace: Trace, keep: _Kept) -> None:
    """What lies in the range at least in part; the profiler's own span is no such thing."""
    assert filters.time_ns is not None
    zero = trace.time_range()[0] if filters.zero_ns is None else filters.zero_ns
    begin, end = filters.time_ns
    ever = np.iinfo(np.int64)
    earliest = ever.min if begin is None else min(zero + begin, ever.max)
    latest = ever.max if end is None else min(zero + end, ever.max)
    slices = trace.slices
    keep.slices &= (slices.start_ns < latest) & (slices.role != Role.SPAN)
    keep.slices &= (slices.end_ns > earliest) | (slices.start_ns >= earliest)
    for name in ("instants", "counters", "memory"):
        time = getattr(trace, name).time_ns
        setattr(keep, name, getattr(keep, name) & (time >= earliest) & (time < latest))


def _keep_events(filters: Filters, trace: Trace, keep: _Kept) -> None:
    """Events of Neuron's system traces by name; framework rows stay unless ``^framework``."""
    assert filters.events is not None
    asked = [word for word in filters.events if not word.startswith("^")]
    refused = [word.removeprefix("^") for word in filters.events if word.startswith("^")]
    names = np.array([text.split(" ")[0] for text in trace.strings] or [""], np.str_)
    system = _is_system(trace)
    for columns, attribute in ((trace.slices, "slices"), (trace.instants, "instants")):
        of_system = system[columns.track]
        name = names[columns.name]
        wanted = np.ones(len(columns), np.bool_)
        if asked:
            wanted = ~of_system | _any(name, of_system, asked)
        wanted &= ~_any(name, of_system, refused)
        setattr(keep, attribute, getattr(keep, attribute) & wanted)


@dataclass(slots=True)
class _Kept:
    """Which rows of each table stay."""

    slices: Bools
    instants: Bools
    counters: Bools
    memory: Bools

    @classmethod
    def everything(cls, trace: Trace) -> _Kept:
        return cls(*(np.ones(len(getattr(trace, f.name)), np.bool_) for f in fields(cls)))

    def tracks(self, trace: Trace, wanted: Bools) -> None:
        """Keep only rows on these tracks (memory events are of a process, not of a row)."""
        for name in ("slices", "instants", "counters"):
            setattr(self, name, getattr(self, name) & wanted[getattr(trace, name).track])

    def taken(self, trace: Trace) -> Trace:
        """The rows that stay, with the links and steps that were found among all."""
        self._whole_executions(trace)
        part = trace.take(self.slices, self.instants, self.counters, self.memory)
        return part.without_empty_tracks()

    def _whole_executions(self, trace: Trace) -> None:
        """An execution on two physical cores stays with both of its rows."""
        execution = trace.execution_of_slice
        rows = np.flatnonzero(execution != NONE)
        stays = np.zeros(len(trace.executions), np.bool_)
        stays[execution[rows[self.slices[rows]]]] = True
        self.slices[rows] = stays[execution[rows]]


class _Windows:
    """The times of chosen steps, process by process."""

    def __init__(self, steps: Steps, chosen: NDArray[np.intp], processes: int) -> None:
        self._of: dict[int, tuple[Int64, Int64]] = {}
        for process in range(processes):
            own = chosen[steps.process[chosen] == process]
            if not len(own):
                # A process without steps of its own: the others' times.
                own = chosen
            order = own[np.argsort(steps.start_ns[own], kind="stable")]
            ends = np.maximum.accumulate(steps.end_ns[order]) if len(order) else order
            self._of[process] = steps.start_ns[order], ends

    def hold(self, process: Int32, time_ns: Int64) -> Bools:
        """Which of these times are in a chosen step of their process."""
        held = np.zeros(len(time_ns), np.bool_)
        for number in np.unique(process).tolist():
            starts, ends = self._of[number]
            if not len(starts):
                continue
            mine = np.flatnonzero(process == number)
            place = np.searchsorted(starts, time_ns[mine], side="right") - 1
            held[mine] = (place >= 0) & (time_ns[mine] <= ends[np.maximum(place, 0)])
        return held


def _is_system(trace: Trace) -> Bools:
    """Which tracks are of Neuron's system traces."""
    neuron = {n for n, device in enumerate(trace.devices) if device.family == "neuron"}
    executions = {"nc_exec_running", *_HARDWARE} & set(trace.strings)
    named = [n for n, text in enumerate(trace.strings) if text in executions]
    of_hardware = set(trace.slices.track[np.isin(trace.slices.name, named)].tolist())
    of_hardware |= set(trace.instants.track[np.isin(trace.instants.name, named)].tolist())
    return np.array(
        [
            track.kind is TrackKind.RUNTIME or (number in of_hardware and track.device in neuron)
            for number, track in enumerate(trace.tracks)
        ],
        np.bool_,
    )


def _any(name: NDArray[np.str_], system: Bools, words: Sequence[str]) -> Bools:
    found = np.zeros(len(name), np.bool_)
    for word in words:
        if word == "all":
            found |= system
        elif word == "framework":
            found |= ~system
        elif word == "hardware":
            found |= system & np.isin(name, _HARDWARE)
        elif word == "software":
            found |= system & ~np.isin(name, _HARDWARE)
        else:
            found |= system & (name == _ALIASES.get(word, word))
    return found


def _what_there_is(trace: Trace) -> str:
    ranks = sorted({p.rank for p in trace.processes if p.rank is not None})
    numbers = np.unique(trace.steps.number[trace.steps.slice != NONE]).tolist()
    cores = sorted({device.index for device in trace.devices})
    first, last = trace.time_range()
    parts = [f"{(last - first) / 1e6:,.3f} ms long"]
    for name, values in (("ranks", ranks), ("steps", numbers), ("cores", cores)):
        parts.append(f"{name} {ranks_text(values)}" if values else f"no {name}")
    return f"it is {', with '.join([parts[0], ', '.join(parts[1:])])}"
