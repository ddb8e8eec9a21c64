"""The model that stands between every reader and every writer.

The words are Perfetto's: a *track* holds *slices*, *instants* or *counter* samples; a *flow*
joins two slices. Times are integer nanoseconds. Rows live in numpy columns with one string
table, so a million events are a handful of arrays. The arguments of an event stay JSON text,
addressed by offset and length, until somebody shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum, IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.arguments import Arguments, Text
from neuron_tb.converters.findings import Findings

if TYPE_CHECKING:
    from neuron_tb.converters.links import Executions, Links, Steps

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
UInt8 = NDArray[np.uint8]
Float64 = NDArray[np.float64]
Bools = NDArray[np.bool_]

NONE = -1
"""Marks an absent identifier, name or row number in an integer column."""


class Role(IntEnum):
    """What a slice is. Readers decide it from category, name and evidence; nothing else does."""

    OTHER = 0
    OPERATOR = 1
    """A framework operator on the host (Kineto's ``cpu_op``)."""
    ANNOTATION = 2
    """A range the user or the profiler named, such as ``ProfilerStep#3``."""
    PYTHON = 3
    RUNTIME = 4
    """A call into the device's runtime on the host (``nrt_execute``, ``cudaLaunchKernel``)."""
    KERNEL = 5
    """Measured device time of computation (``nc_exec_running``, a CUDA kernel)."""
    TRANSFER = 6
    """Measured device time of a copy or a fill."""
    WINDOW = 7
    """Enqueue to completion as the host saw it (``privateuse1_driver``): not device busy time."""
    DEVICE_DETAIL = 8
    """Device rows drawn but never counted: parts of an execution, such as ``cc_running``."""
    DEVICE_ANNOTATION = 9
    """A copy of a host annotation on a device row (``gpu_user_annotation``)."""
    SPAN = 10
    """The profiler's own recording window."""


MEASURED_ROLES = (Role.KERNEL, Role.TRANSFER)
DEVICE_ROLES = (Role.KERNEL, Role.TRANSFER, Role.WINDOW, Role.DEVICE_DETAIL, Role.DEVICE_ANNOTATION)


class TrackKind(Enum):
    """What a track shows."""

    THREAD = "thread"
    """Work of one host thread as the framework saw it."""
    RUNTIME = "runtime"
    """Calls of one host thread into the Neuron runtime, from a system profile."""
    DEVICE = "device"
    """One row of a device: a stream or queue, or a physical NeuronCore."""
    COUNTER = "counter"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Process:
    """One profiled process. ``pid`` is the real one; equal pids on two hosts are two processes.

    ``host`` is the instance id or host name ("" when unknown), ``rank`` the global rank.
    """

    host: str
    pid: int
    rank: int | None = None
    name: str = ""
    labels: str = ""
    sort_index: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a process: a logical NeuronCore, or another accelerator.

    ``index`` counts inside the process. ``family`` is ``neuron``, ``cuda``, ``rocm``, ``xpu``,
    ``mtia``, ``privateuse1`` or ``other``; ``name`` is what a person calls it. ``detail``: no
    device of its own, but the engines, DMA queues and counters of the one with this index, from
    a device profile; its rows are never counted as device time.
    """

    process: int
    index: int
    family: str
    name: str
    memory_bytes: int | None = None
    detail: bool = False


@dataclass(frozen=True, slots=True)
class Track:
    """One row of the time line.

    ``process`` and ``device`` are positions in ``Trace.processes`` and ``Trace.devices``
    (``device`` is None on host rows). ``tid`` is the thread id, or the stream's number on a
    device row. ``physical_core`` is set for NeuronCore rows of a system profile. ``unit`` is a
    counter's unit ("bytes", "%"). ``core``: on runtime rows, the logical core the calls are for.
    """

    process: int
    kind: TrackKind
    name: str
    tid: int | str = 0
    device: int | None = None
    physical_core: int | None = None
    sort_index: int | None = None
    unit: str = ""
    core: int | None = None


_C = TypeVar("_C", bound="Columns")


@dataclass(slots=True)
class Columns:
    """Equal-length numpy arrays, one per dataclass field."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def take(self: _C, rows: NDArray[Any] | slice) -> _C:
        """The same columns restricted to ``rows`` (a mask, positions or a slice)."""
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @classmethod
    def empty(cls: type[_C]) -> _C:
        """Columns without rows."""
        return cls(**{f.name: np.empty(0, f.metadata["dtype"]) for f in fields(cls)})

    @classmethod
    def concatenate(cls: type[_C], parts: Sequence[_C]) -> _C:
        """The rows of all parts, in order."""
        if not parts:
            return cls.empty()
        return cls(
            **{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)}
        )


def column(dtype: type[np.generic]) -> Any:
    """A dataclass field that holds one numpy column of this type."""
    return field(metadata={"dtype": dtype})


@dataclass(slots=True)
class Slices(Columns):
    """Everything that has a start and a length, one row each.

    ``start_ns``, ``duration_ns``: nanoseconds, duration never negative. ``name``, ``category``:
    positions in ``Trace.strings``. ``track``: position in ``Trace.tracks``. ``role``: a
    :class:`Role`. ``external_id`` (Kineto's id shared by an operator and its device work),
    ``correlation`` (runtime call to device row), ``sequence_id`` (Neuron's asynchronous sequence
    number: 16-bit unit, 48-bit counter), ``exec_id`` (one execution of a NeuronCore): NONE when
    absent. ``args_start``, ``args_length``: bytes of ``Trace.arguments`` (length 0: none).
    """

    start_ns: Int64 = column(np.int64)
    duration_ns: Int64 = column(np.int64)
    name: Int32 = column(np.int32)
    category: Int32 = column(np.int32)
    track: Int32 = column(np.int32)
    role: UInt8 = column(np.uint8)
    external_id: Int64 = column(np.int64)
    correlation: Int64 = column(np.int64)
    sequence_id: Int64 = column(np.int64)
    exec_id: Int64 = column(np.int64)
    args_start: Int64 = column(np.int64)
    args_length: Int32 = column(np.int32)

    @property
    def end_ns(self) -> Int64:
        """``start_ns + duration_ns``."""
        return self.start_ns + self.duration_ns


@dataclass(slots=True)
class Instants(Columns):
    """Points in time: nanoseconds, name, category, track and arguments as in :class:`Slices`."""

    time_ns: Int64 = column(np.int64)
    name: Int32 = column(np.int32)
    category: Int32 = column(np.int32)
    track: Int32 = column(np.int32)
    args_start: Int64 = column(np.int64)
    args_length: Int32 = column(np.int32)


@dataclass(slots=True)
class Counters(Columns):
    """Samples of counter tracks: nanoseconds, value in the track's unit."""

    time_ns: Int64 = column(np.int64)
    value: Float64 = column(np.float64)
    track: Int32 = column(np.int32)


@dataclass(slots=True)
class MemoryEvents(Columns):
    """Allocations and frees as PyTorch reports them (``[memory]``).

    ``process``: position in ``Trace.processes``. ``device_type``: PyTorch's number (0 CPU,
    1 CUDA, 20 PrivateUse1). ``device_id``: the device's index, NONE for CPU. ``address``: NONE when
    not reported. ``bytes``: positive for an allocation, negative for a free. ``total_allocated``
    and ``total_reserved``: bytes in use after the event, NONE when not reported. ``track``: the
    thread it happened on. Arguments as in :class:`Slices`. ``instants`` does not repeat these.
    """

    time_ns: Int64 = column(np.int64)
    process: Int32 = column(np.int32)
    device_type: Int32 = column(np.int32)
    device_id: Int32 = column(np.int32)
    address: Int64 = column(np.int64)
    bytes: Int64 = column(np.int64)
    total_allocated: Int64 = column(np.int64)
    total_reserved: Int64 = column(np.int64)
    track: Int32 = column(np.int32)
    args_start: Int64 = column(np.int64)
    args_length: Int32 = column(np.int32)


@dataclass(slots=True)
class Flows(Columns):
    """Arrows between slices that the source itself recorded.

    ``source`` and ``target`` are rows of ``Trace.slices``; ``kind`` is a position in
    ``Trace.strings`` (Kineto: ``ac2g``, ``fwdbwd``).
    """

    source: Int32 = column(np.int32)
    target: Int32 = column(np.int32)
    kind: Int32 = column(np.int32)


class ClockKind(Enum):
    """What the nanoseconds of a trace count from."""

    EPOCH = "epoch"
    """The Unix epoch."""
    RELATIVE = "relative"
    """An origin nobody stated."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time line of a trace.

    ``base_ns`` is the file's own base time (Kineto's ``baseTimeNanoseconds``), 0 when it had
    none. ``resolution_ns`` is the finest difference the source could express: 1 for nanosecond
    sources, 250 where epoch microseconds went through a double.
    """

    kind: ClockKind = ClockKind.EPOCH
    base_ns: int = 0
    resolution_ns: int = 1


class StringTable:
    """Distinct strings, numbered from 0 in order of first use."""

    def __init__(self, strings: Iterable[str] = ()) -> None:
        self._index = _Numbering()
        for text in strings:
            self._index[text]

    def intern(self, text: str) -> int:
        """The number of ``text``, which is added when new."""
        return self._index[text]

    def intern_all(self, texts: Iterable[str], count: int) -> Int32:
        """The numbers of ``count`` texts, shape (count,)."""
        return np.fromiter(map(self._index.__getitem__, texts), np.int32, count)

    def find(self, text: str) -> int:
        """The number of ``text``, or NONE."""
        return self._index.get(text, NONE)

    @property
    def strings(self) -> list[str]:
        """All strings in order of their numbers."""
        return list(self._index)

    def __len__(self) -> int:
        return len(self._index)


class _Numbering(dict[str, int]):
    def __missing__(self, key: str) -> int:
        number = len(self)
        self[key] = number
        return number


@dataclass
class Trace:
    """One capture, of one or many processes, on one clock.

    ``metadata`` holds, per process, the source's top-level keys (``distributedInfo``, …) as
    decoded JSON. ``filtered`` says which part of a capture it is, where it is not all of it.
    ``neuron`` tells whether anything in the capture is evidence of AWS Neuron.
    """

    name: str
    strings: list[str] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)
    slices: Slices = field(default_factory=Slices.empty)
    instants: Instants = field(default_factory=Instants.empty)
    counters: Counters = field(default_factory=Counters.empty)
    memory: MemoryEvents = field(default_factory=MemoryEvents.empty)
    flows: Flows = field(default_factory=Flows.empty)
    arguments: Arguments = field(default_factory=Arguments)
    clock: Clock = field(default_factory=Clock)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    sources: list[str] = field(default_factory=list)
    step_annotation: str = "ProfilerStep#"
    filtered: str = ""

    def string(self, number: int) -> str:
        """The string with this number, "" for NONE."""
        return "" if number == NONE else self.strings[number]

    def args(self, row: int, of: Slices | Instants | None = None) -> dict[str, Any]:
        """The arguments of a slice (or of a row of ``of``), decoded; {} when there are none."""
        columns = self.slices if of is None else of
        return decode_arguments(self.raw_args(row, columns))

    def raw_args(self, row: int, of: Slices | Instants | None = None) -> bytes:
        """The arguments of a slice (or of a row of ``of``) as the JSON text of the source."""
        columns = self.slices if of is None else of
        return self.arguments.text(int(columns.args_start[row]), int(columns.args_length[row]))

    def track_column(self, attribute: str) -> Int32:
        """An integer attribute of every track (NONE where it is None), shape (tracks,)."""
        values = (getattr(track, attribute) for track in self.tracks)
        return np.array([NONE if v is None else v for v in values], np.int32)

    @cached_property
    def slice_process(self) -> Int32:
        """The process of every slice, shape (slices,)."""
        return self.track_column("process")[self.slices.track]

    @cached_property
    def slice_device(self) -> Int32:
        """The device of every slice, NONE on host rows, shape (slices,)."""
        return self.track_column("device")[self.slices.track]

    @cached_property
    def links(self) -> Links:
        """How device work, runtime calls and operators belong together."""
        from neuron_tb.converters.links import link

        return link(self)

    @property
    def executions(self) -> Executions:
        """Device work, one row per execution, with the operator and call that caused it."""
        return self.links.executions

    @property
    def execution_of_slice(self) -> Int32:
        """The execution that each slice is a row of, NONE for all other slices."""
        return self.links.execution_of_slice

    @cached_property
    def steps(self) -> Steps:
        """The capture's steps; one step called ``capture`` when the source marks none."""
        from neuron_tb.converters.links import find_steps

        return find_steps(self)

    def roles(self, *roles: Role) -> Bools:
        """Which slices have one of these roles, shape (slices,)."""
        return np.isin(self.slices.role, np.array(roles, np.uint8))

    def time_range(self) -> tuple[int, int]:
        """First and last nanosecond of anything in the capture; (0, 0) when it is empty."""
        starts = [self.slices.start_ns, self.instants.time_ns, self.counters.time_ns]
        ends = [self.slices.end_ns, self.instants.time_ns, self.counters.time_ns]
        starts.append(self.memory.time_ns)
        ends.append(self.memory.time_ns)
        if not any(map(len, starts)):
            return 0, 0
        return (
            int(min(s.min() for s in starts if len(s))),
            int(max(e.max() for e in ends if len(e))),
        )

    def without_empty_tracks(self) -> Trace:
        """The same rows; tracks, devices and processes that have none are gone."""
        tables = (self.slices, self.instants, self.counters, self.memory)
        used = sorted({int(t) for table in tables for t in np.unique(table.track)})
        tracks = [self.tracks[t] for t in used]
        processes = sorted({t.process for t in tracks})
        devices = sorted({t.device for t in tracks if t.device is not None})
        of_track, of_process = _renumbering(used), _renumbering(processes)
        of_device = _renumbering(devices)
        number = np.array([of_track.get(t, NONE) for t in range(len(self.tracks))], np.int32)
        memory_process = [of_process.get(p, NONE) for p in range(len(self.processes))]
        return replace(
            self,
            processes=[self.processes[p] for p in processes],
            metadata=[self.metadata[p] for p in processes],
            devices=[
                replace(self.devices[d], process=of_process[self.devices[d].process])
                for d in devices
            ],
            tracks=[
                replace(
                    t,
                    process=of_process[t.process],
                    device=None if t.device is None else of_device[t.device],
                )
                for t in tracks
            ],
            slices=replace(self.slices, track=number[self.slices.track]),
            instants=replace(self.instants, track=number[self.instants.track]),
            counters=replace(self.counters, track=number[self.counters.track]),
            memory=replace(
                self.memory,
                track=number[self.memory.track],
                process=np.array(memory_process, np.int32)[self.memory.process],
            ),
        )

    def only_process(self, process: int) -> Trace:
        """The same trace restricted to one process (positions of tables are kept)."""
        keep = self.slice_process == process
        position = np.full(len(keep), NONE, np.int32)
        position[keep] = np.arange(np.count_nonzero(keep), dtype=np.int32)
        track_process = self.track_column("process")
        source, target = position[self.flows.source], position[self.flows.target]
        inside = (source != NONE) & (target != NONE)
        return replace(
            self,
            slices=self.slices.take(keep),
            instants=self.instants.take(track_process[self.instants.track] == process),
            counters=self.counters.take(track_process[self.counters.track] == process),
            memory=self.memory.take(self.memory.process == process),
            flows=Flows(source[inside], target[inside], self.flows.kind[inside]),
        )


def _renumbering(kept: Sequence[int]) -> dict[int, int]:
    return {old: new for new, old in enumerate(kept)}


def decode_arguments(raw: bytes) -> dict[str, Any]:
    """Arguments as a dictionary; arguments that are not an object stand under ``value``."""
    if not raw:
        return {}
    value = msgspec.json.decode(raw)
    return value if isinstance(value, dict) else {"value": value}


def merge(name: str, traces: Sequence[Trace]) -> Trace:
    """One trace with the rows of all, tables renumbered; process order is the traces' order.

    The clock is the common one; a mixture of epoch and relative clocks keeps the epoch's kind
    and is a finding.
    """
    if len(traces) == 1:
        return replace(traces[0], name=name)
    table = StringTable()
    merged = Trace(name, clock=_common_clock(traces))
    if len({t.clock.kind for t in traces}) > 1:
        merged.findings.add(
            "clocks_unrelated",
            "some inputs count time from the Unix epoch and others from an unknown origin; "
            "their rows are not aligned with each other",
        )
    parts: dict[str, list[Any]] = {
        k: [] for k in ("slices", "instants", "counters", "memory", "flows")
    }
    arguments: list[Text] = []
    offset = 0
    for trace in traces:
        strings = table.intern_all(trace.strings, len(trace.strings))
        strings = np.append(strings, np.int32(NONE))  # so that NONE maps to NONE
        process, device = len(merged.processes), len(merged.devices)
        track, row = np.int32(len(merged.tracks)), np.int32(sum(map(len, parts["slices"])))
        s, i = trace.slices, trace.instants
        parts["slices"].append(
            replace(
                s,
                name=strings[s.name],
                category=strings[s.category],
                track=s.track + track,
                args_start=s.args_start + offset,
            )
        )
        parts["instants"].append(
            replace(
                i,
                name=strings[i.name],
                category=strings[i.category],
                track=i.track + track,
                args_start=i.args_start + offset,
            )
        )
        parts["counters"].append(replace(trace.counters, track=trace.counters.track + track))
        parts["memory"].append(
            replace(
                trace.memory,
                process=trace.memory.process + np.int32(process),
                track=trace.memory.track + track,
                args_start=trace.memory.args_start + offset,
            )
        )
        f = trace.flows
        parts["flows"].append(Flows(f.source + row, f.target + row, strings[f.kind]))
        merged.processes += trace.processes
        merged.metadata += trace.metadata
        merged.devices += [replace(d, process=d.process + process) for d in trace.devices]
        merged.tracks += [
            replace(
                t,
                process=t.process + process,
                device=None if t.device is None else t.device + device,
            )
            for t in trace.tracks
        ]
        merged.findings.extend(trace.findings)
        merged.sources += trace.sources
        arguments += trace.arguments.pieces
        offset += len(trace.arguments)
    merged.strings = table.strings
    merged.slices = Slices.concatenate(parts["slices"])
    merged.instants = Instants.concatenate(parts["instants"])
    merged.counters = Counters.concatenate(parts["counters"])
    merged.memory = MemoryEvents.concatenate(parts["memory"])
    merged.flows = Flows.concatenate(parts["flows"])
    merged.arguments = Arguments(arguments)
    return merged


def _common_clock(traces: Sequence[Trace]) -> Clock:
    kinds = {t.clock.kind for t in traces}
    return Clock(
        ClockKind.EPOCH if ClockKind.EPOCH in kinds else ClockKind.RELATIVE,
        base_ns=next((t.clock.base_ns for t in traces if t.clock.base_ns), 0),
        resolution_ns=max((t.clock.resolution_ns for t in traces), default=1),
    )
