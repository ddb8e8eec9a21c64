"""Parts of a capture: ranks, cores, steps, a range of time, kinds of Neuron's events.

Operators, calls and executions are joined before anything is left out, so what remains keeps the
operator and the step that it belongs to, although the rows in between may be gone. Nothing is cut
in two: a slice is shown whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.errors import NeuronTbError, NothingLeftError
from neuron_tb.converters.links import Links, Steps
from neuron_tb.converters.trace import NONE, Bools, Flows, Int32, Int64, Role, Trace, TrackKind

_UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIME = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*(ns|us|ms|s)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_STEPS = re.compile(r"(\d{0,18}):(\d{0,18})|(\d{1,18})")
_WORD = re.compile(r"\^?[A-Za-z0-9_]+")

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
_GROUPS = ("all", "hardware", "software", "framework")

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Filters:
    """What to keep; None keeps everything.

    ``ranks``, ``cores``: ranges of numbers, both ends included; cores are logical ones, numbered
    inside their process. ``steps``: first and last step number, None where it is open.
    ``time_ns``: from and to, in nanoseconds after ``zero_ns`` (the capture's first event when it
    is None). ``events``: words of Neuron's event filter.
    """

    ranks: Ranges | None = None
    cores: Ranges | None = None
    steps: tuple[int | None, int | None] | None = None
    time_ns: tuple[int | None, int | None] | None = None
    events: tuple[str, ...] | None = None
    zero_ns: int | None = None

    @classmethod
    def of(
        cls,
        ranks: str | None = None,
        cores: str | None = None,
        steps: str | None = None,
        time: str | None = None,
        events: str | None = None,
    ) -> Filters:
        """Parse ``0,3-5`` (ranks, cores), ``2:5``, ``10ms:20ms`` and Neuron's filter words.

        Raises NeuronTbError, with an example, for anything else.
        """
        return cls(
            None if ranks is None else _ranges(ranks, "--ranks"),
            None if cores is None else _ranges(cores, "--cores"),
            None if steps is None else _steps(steps),
            None if time is None else _times(time),
            None if events is None else _words(events),
        )

    def __bool__(self) -> bool:
        kept = (self.ranks, self.cores, self.steps, self.time_ns, self.events)
        return any(value is not None for value in kept)

    def __str__(self) -> str:
        parts = []
        for name, ranges in (("ranks", self.ranks), ("cores", self.cores)):
            if ranges is not None:
                parts.append(f"{name} {_text(ranges)}")
        if self.steps is not None:
            first, last = ("" if step is None else str(step) for step in self.steps)
            parts.append(f"steps {first}:{last}" if first != last else f"step {first}")
        if self.time_ns is not None:
            begin, end = ("" if t is None else f"{t / 1e6:g}ms" for t in self.time_ns)
            parts.append(f"time {begin}:{end}")
        if self.events is not None:
            parts.append(f"events {','.join(self.events)}")
        return "; ".join(parts)

    def wants_rank(self, rank: int | None) -> bool:
        """Whether a rank is kept; an unknown one may be."""
        return self.ranks is None or rank is None or _within(rank, self.ranks)

    def apply(self, trace: Trace) -> Trace:
        """The trace with what is kept; its ``filtered`` says what that is and how much.

        Raises NothingLeftError when nothing is left.
        """
        if not self:
            return trace
        keep = _Kept.everything(trace)
        if self.ranks is not None:
            self._keep_ranks(trace, keep)
        if self.cores is not None:
            self._keep_cores(trace, keep)
        if self.steps is not None:
            self._keep_steps(trace, keep)
        if self.time_ns is not None:
            self._keep_time(trace, keep)
        if self.events is not None:
            self._keep_events(trace, keep)
        result = keep.taken(trace)
        if not (len(result.slices) or len(result.counters) or len(result.instants)):
            raise NothingLeftError(
                f"nothing of the capture is left ({self}): {_what_there_is(trace)}."
            )
        total, shown = len(trace.slices), len(result.slices)
        result.filtered = f"{self}: {shown:,} of {total:,} slices"
        return result

    # -- one filter each ----------------------------------------------------------------------

    def _keep_ranks(self, trace: Trace, keep: _Kept) -> None:
        assert self.ranks is not None
        wanted = np.array(
            [p.rank is not None and _within(p.rank, self.ranks) for p in trace.processes], np.bool_
        )
        keep.tracks(trace, wanted[trace.track_column("process")])
        keep.memory &= wanted[trace.memory.process]

    def _keep_cores(self, trace: Trace, keep: _Kept) -> None:
        assert self.cores is not None
        ranges = self.cores
        wanted = np.array([_within(d.index, ranges) for d in trace.devices] or [True], np.bool_)
        device = trace.track_column("device")
        core = np.array([t.core is None or _within(t.core, ranges) for t in trace.tracks], np.bool_)
        keep.tracks(trace, ((device == NONE) | wanted[device]) & core)
        ids = trace.memory.device_id
        known = np.array([_within(n, ranges) for n in range(int(ids.max(initial=0)) + 1)], np.bool_)
        on_device = (trace.memory.device_type != 0) & (ids != NONE)
        keep.memory &= ~on_device | known[np.maximum(ids, 0)]

    def _keep_steps(self, trace: Trace, keep: _Kept) -> None:
        """What begins in a chosen step, and device work that was launched in one."""
        assert self.steps is not None
        first, last = self.steps
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

    def _keep_time(self, trace: Trace, keep: _Kept) -> None:
        """What lies in the range at least in part; the profiler's own span is no such thing."""
        assert self.time_ns is not None
        zero = trace.time_range()[0] if self.zero_ns is None else self.zero_ns
        begin, end = self.time_ns
        ever = np.iinfo(np.int64)
        earliest = ever.min if begin is None else min(zero + begin, ever.max)
        latest = ever.max if end is None else min(zero + end, ever.max)
        slices = trace.slices
        keep.slices &= (slices.start_ns < latest) & (slices.role != Role.SPAN)
        keep.slices &= (slices.end_ns > earliest) | (slices.start_ns >= earliest)
        for name in ("instants", "counters", "memory"):
            time = getattr(trace, name).time_ns
            setattr(keep, name, getattr(keep, name) & (time >= earliest) & (time < latest))

    def _keep_events(self, trace: Trace, keep: _Kept) -> None:
        """Events of Neuron's system traces by name; framework rows stay unless ``^framework``."""
        assert self.events is not None
        asked = [word for word in self.events if not word.startswith("^")]
        refused = [word.removeprefix("^") for word in self.events if word.startswith("^")]
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
        place = _places(self.slices)
        flows = trace.flows
        source, target = place[flows.source], place[flows.target]
        inside = (source != NONE) & (target != NONE)
        links, steps = trace.links, trace.steps
        result = replace(
            trace,
            slices=trace.slices.take(self.slices),
            instants=trace.instants.take(self.instants),
            counters=trace.counters.take(self.counters),
            memory=trace.memory.take(self.memory),
            flows=Flows(source[inside], target[inside], flows.kind[inside]),
        ).without_empty_tracks()
        of_process = _process_numbers(trace, result)
        kept_steps, of_step = _steps_left(steps, place, of_process)
        result.__dict__["steps"] = kept_steps
        result.__dict__["links"] = _links_left(result, links, place, of_step)
        return result

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


def _places(keep: Bools) -> Int32:
    """The new position of every row, NONE for those that go; the last entry is that of NONE."""
    place = np.full(len(keep) + 1, NONE, np.int32)
    place[:-1][keep] = np.arange(np.count_nonzero(keep), dtype=np.int32)
    return place


def _process_numbers(before: Trace, after: Trace) -> Int32:
    numbers = {id(process): n for n, process in enumerate(after.processes)}
    return np.array([numbers.get(id(p), NONE) for p in before.processes], np.int32)


def _steps_left(steps: Steps, place: Int32, of_process: Int32) -> tuple[Steps, Int32]:
    """Steps whose annotation (or, without one, whose process) stays; new positions of all."""
    new_slice = place[steps.slice]
    process = of_process[steps.process]
    stays = (process != NONE) & ((new_slice != NONE) | (steps.slice == NONE))
    left = replace(steps.take(stays), process=process[stays], slice=new_slice[stays])
    return left, _places(stays)


def _links_left(result: Trace, links: Links, place: Int32, of_step: Int32) -> Links:
    rows = links.executions
    stays = place[rows.slice] != NONE
    of_row = _places(stays)
    # A window stands back behind a measurement, also where that one is not shown.
    stays &= (rows.replaced_by == NONE) | (of_row[rows.replaced_by] != NONE)
    of_row = _places(stays)
    left = rows.take(stays)
    left = replace(
        left,
        slice=place[left.slice],
        launch=place[left.launch],
        operator=place[left.operator],
        step=of_step[left.step],
        replaced_by=of_row[left.replaced_by],
    )
    left.device = result.slice_device[left.slice]
    kept = np.flatnonzero(place[:-1] != NONE)
    return Links(left, of_row[links.execution_of_slice[kept]], links.findings)


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


# -- texts --------------------------------------------------------------------------------------


def _ranges(text: str, option: str) -> Ranges:
    ranges = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise NeuronTbError(f"{option} takes numbers and ranges such as 0,3-5, not {text!r}.")
        ranges.append((int(match[1]), int(match[2] or match[1])))
    return tuple(ranges)


def _within(number: int, ranges: Ranges) -> bool:
    return any(first <= number <= last for first, last in ranges)


def _text(ranges: Ranges) -> str:
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)


def _steps(text: str) -> tuple[int | None, int | None]:
    match = _STEPS.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise NeuronTbError(f"--steps takes a step or a range such as 2:5, 2: or :5, not {text!r}.")
    if match[3]:
        return int(match[3]), int(match[3])
    first, last = (int(part) if part else None for part in (match[1], match[2]))
    if first is not None and last is not None and last < first:
        raise NeuronTbError(f"--steps {text}: the last step comes before the first.")
    return first, last


def _times(text: str) -> tuple[int | None, int | None]:
    first, colon, last = text.partition(":")
    begin, end = _nanoseconds(first), _nanoseconds(last)
    wrong = (first.strip() and begin is None) or (last.strip() and end is None) or not colon
    if wrong or (begin is None and end is None):
        raise NeuronTbError(
            "--time takes a range such as 10ms:20ms, 1.5s: or :800us (ns, us, ms or s after the "
            f"capture's first event), not {text!r}."
        )
    if begin is not None and end is not None and end <= begin:
        raise NeuronTbError(f"--time {text}: the range ends before it begins.")
    return begin, end


def _nanoseconds(text: str) -> int | None:
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    whole, _, decimals = match[1].partition(".")
    unit = _UNITS_NS[match[2]]
    return int(whole) * unit + int(decimals.ljust(9, "0")[:9]) * unit // 1_000_000_000


def _words(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        if _WORD.fullmatch(word) is None:
            raise NeuronTbError(
                "--events takes names of Neuron's events and the words "
                f"{', '.join(_GROUPS)}, each with ^ in front to leave it out, such as "
                f"nrt_execute,hardware,^cc_running; {word!r} is none."
            )
    return words


def _what_there_is(trace: Trace) -> str:
    ranks = sorted({p.rank for p in trace.processes if p.rank is not None})
    numbers = np.unique(trace.steps.number[trace.steps.slice != NONE]).tolist()
    cores = sorted({device.index for device in trace.devices})
    first, last = trace.time_range()
    parts = [f"{(last - first) / 1e6:,.3f} ms long"]
    for name, values in (("ranks", ranks), ("steps", numbers), ("cores", cores)):
        parts.append(f"{name} {ranks_text(values)}" if values else f"no {name}")
    return f"it is {', with '.join([parts[0], ', '.join(parts[1:])])}"


def ranks_text(values: Iterable[int]) -> str:
    """Ascending numbers as ranges: ``0,3-5``."""
    spans: list[list[int]] = []
    for value in values:
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    return _text(tuple((a, b) for a, b in spans[:20]))
