"""A trace with what was asked for.

Operators, calls and executions are joined before anything is left out, so what remains keeps the
operator and the step that it belongs to, although the rows in between may be gone. Nothing is cut
in two: a slice is shown whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.errors import NothingLeftError, UnknownEventError
from neuron_tb.converters.model import (
    NONE,
    Bools,
    Instants,
    Int32,
    Int64,
    Role,
    Slices,
    Steps,
    Trace,
    TrackKind,
)
from neuron_tb.converters.readers.neuron.event_names import ALIASES, HARDWARE, NUMBERED, OTHERS
from neuron_tb.converters.selection.filters import EVENT_GROUPS, Filters, ranks_text, within


def apply(filters: Filters, trace: Trace) -> Trace:
    """The trace with what every filter keeps; its ``filtered`` says what that is and how much.

    Raises NothingLeftError when nothing is left, UnknownEventError for a word of ``--events``
    that is no event's name.
    """
    if not filters:
        return trace
    kept = _Kept.everything(trace)
    for given, keep in (
        (filters.ranks, _of_ranks),
        (filters.cores, _of_cores),
        (filters.steps, _of_steps),
        (filters.time_ns, _of_time),
        (filters.events, _of_events),
    ):
        if given is not None:
            kept = kept.and_also(keep(filters, trace).with_whole_executions(trace))
    result = trace.take(kept.slices, kept.instants, kept.counters, kept.memory)
    result = result.without_empty_tracks()
    if not (len(result.slices) or len(result.counters) or len(result.instants)):
        raise NothingLeftError(f"nothing is left after {filters}: {_what_there_is(trace)}.")
    total, shown = len(trace.slices), len(result.slices)
    result.filtered = f"{filters}: {shown:,} of {total:,} slices"
    return result


@dataclass(frozen=True, slots=True)
class _Kept:
    """Which rows of each table stay."""

    slices: Bools
    instants: Bools
    counters: Bools
    memory: Bools

    @classmethod
    def everything(cls, trace: Trace) -> _Kept:
        return cls(*(np.ones(len(getattr(trace, f.name)), np.bool_) for f in fields(cls)))

    def and_also(self, other: _Kept) -> _Kept:
        """What both keep."""
        return _Kept(*(getattr(self, f.name) & getattr(other, f.name) for f in fields(self)))

    def with_whole_executions(self, trace: Trace) -> _Kept:
        """An execution on two physical cores stays with both of its rows, or with none."""
        execution = trace.execution_of_slice
        rows = np.flatnonzero(execution != NONE)
        stays = np.zeros(len(trace.executions), np.bool_)
        stays[execution[rows[self.slices[rows]]]] = True
        slices = self.slices.copy()
        slices[rows] = stays[execution[rows]]
        return replace(self, slices=slices)


# -- one filter each --------------------------------------------------------------------------


def _of_ranks(filters: Filters, trace: Trace) -> _Kept:
    assert filters.ranks is not None
    wanted = np.array(
        [p.rank is not None and within(p.rank, filters.ranks) for p in trace.processes], np.bool_
    )
    return _on_tracks(trace, wanted[trace.track_column("process")], wanted[trace.memory.process])


def _of_cores(filters: Filters, trace: Trace) -> _Kept:
    assert filters.cores is not None
    ranges = filters.cores
    wanted = np.array([within(d.index, ranges) for d in trace.devices] or [True], np.bool_)
    device = trace.track_column("device")
    core = np.array([t.core is None or within(t.core, ranges) for t in trace.tracks], np.bool_)
    ids = trace.memory.device_id
    known = np.array([within(n, ranges) for n in range(int(ids.max(initial=0)) + 1)], np.bool_)
    on_device = (trace.memory.device_type != 0) & (ids != NONE)
    memory = ~on_device | known[np.maximum(ids, 0)]
    return _on_tracks(trace, ((device == NONE) | wanted[device]) & core, memory)


def _on_tracks(trace: Trace, wanted: Bools, memory: Bools) -> _Kept:
    """Rows on these tracks; memory events are of a process, not of a row."""
    return _Kept(
        wanted[trace.slices.track],
        wanted[trace.instants.track],
        wanted[trace.counters.track],
        memory,
    )


def _of_steps(filters: Filters, trace: Trace) -> _Kept:
    """What begins in a chosen step, and device work that was launched in one."""
    assert filters.steps is not None
    first, last = filters.steps
    steps = trace.steps
    chosen = (steps.slice != NONE) & (steps.number >= (0 if first is None else first))
    if last is not None:
        chosen &= steps.number <= last
    inside = _Windows(steps, np.flatnonzero(chosen), len(trace.processes))
    slices = inside.hold(trace.slice_process, trace.slices.start_ns)
    execution = trace.execution_of_slice
    if len(trace.executions):
        step = trace.executions.step[execution]
        linked = (execution != NONE) & (step != NONE)
        slices = np.where(linked, chosen[step], slices)
    process = trace.track_column("process")
    return _Kept(
        slices,
        inside.hold(process[trace.instants.track], trace.instants.time_ns),
        inside.hold(process[trace.counters.track], trace.counters.time_ns),
        inside.hold(trace.memory.process, trace.memory.time_ns),
    )


def _of_time(filters: Filters, trace: Trace) -> _Kept:
    """What lies in the range at least in part; the profiler's own span is no such thing."""
    assert filters.time_ns is not None
    zero = trace.time_range()[0] if filters.zero_ns is None else filters.zero_ns
    begin, end = filters.time_ns
    ever = np.iinfo(np.int64)
    earliest = ever.min if begin is None else min(zero + begin, ever.max)
    latest = ever.max if end is None else min(zero + end, ever.max)
    rows = trace.slices
    slices = (rows.start_ns < latest) & (rows.role != Role.SPAN)
    slices &= (rows.end_ns > earliest) | (rows.start_ns >= earliest)

    def inside(time: Int64) -> Bools:
        held: Bools = (time >= earliest) & (time < latest)
        return held

    points = inside(trace.instants.time_ns), inside(trace.counters.time_ns)
    return _Kept(slices, *points, inside(trace.memory.time_ns))


def _of_events(filters: Filters, trace: Trace) -> _Kept:
    """Events of Neuron's system traces by name; framework rows stay unless ``^framework``."""
    assert filters.events is not None
    names = np.array([text.split(" ")[0] for text in trace.strings] or [""], np.str_)
    system = _is_system(trace)
    _refuse_unknown(filters.events, set(names.tolist()))
    asked = [word for word in filters.events if not word.startswith("^")]
    refused = [word.removeprefix("^") for word in filters.events if word.startswith("^")]

    def kept(columns: Slices | Instants) -> Bools:
        of_system = system[columns.track]
        name = names[columns.name]
        wanted = np.ones(len(columns), np.bool_)
        if asked:
            wanted = ~of_system | _any(name, of_system, asked)
        return wanted & ~_any(name, of_system, refused)

    everything = _Kept.everything(trace)
    return replace(everything, slices=kept(trace.slices), instants=kept(trace.instants))


def _refuse_unknown(words: Sequence[str], names: set[str]) -> None:
    """Raise UnknownEventError for a word that no event here is called, nor any known to exist."""
    known = {*names, *NUMBERED, *OTHERS, *ALIASES, *EVENT_GROUPS}
    for word in words:
        name = word.removeprefix("^")
        if name not in known:
            near = get_close_matches(name, sorted(known), n=1, cutoff=0.3)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UnknownEventError(
                f"--events {word}: no event of Neuron's is called {name!r}{hint}"
            )


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
    executions = {"nc_exec_running", *HARDWARE} & set(trace.strings)
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
            found |= system & np.isin(name, HARDWARE)
        elif word == "software":
            found |= system & ~np.isin(name, HARDWARE)
        else:
            found |= system & (name == ALIASES.get(word, word))
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
