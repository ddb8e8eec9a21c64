"""From rows of a Neuron system trace, in whatever file they stood, to a Trace.

Names and index meanings are those of AWS's documents: a logical core (``nc_idx``, ``lnc_idx``)
counts inside its process, a physical core (``device_core_idx``, a system table's
``pcore_idx``) on its chip; a sequence id has a 16-bit unit above a 48-bit counter.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import (
    NONE,
    Clock,
    ClockKind,
    Counters,
    Device,
    Flows,
    Instants,
    Int32,
    Int64,
    Process,
    Role,
    Slices,
    StringTable,
    Trace,
    Track,
    TrackKind,
)
from neuron_tb.converters.model.numbers import as_number, integer
from neuron_tb.converters.readers.context import Context
from neuron_tb.converters.readers.values import ArgumentStore

EXECUTION = "nc_exec_running"
HARDWARE_NAMES = frozenset(
    (
        EXECUTION,
        "cc_running",
        "cc_exec_barrier",
        "nc_model_switch",
        "hw_notify",
        "numerical_err",
        "timestamp_sync_point",
    )
)
"""Rows that the device recorded, not the host."""

EARLIEST_EPOCH_NS = 10**17
"""1973: nothing that counts nanoseconds from the Unix epoch is smaller."""

_COLLECTIVES = ("cc_running", "cc_exec_barrier")
_FRAMEWORK_TYPE = 99999
_FRAMEWORK_SUFFIX = " [trace.json]"
_SEQUENCE_COUNTER_BITS = 48


class Row(msgspec.Struct, gc=False):
    """The fields of a row that decide where it goes; any may be absent or text."""

    name: Any = None
    timestamp: Any = None
    start_ts: Any = None
    duration: Any = None
    duration_ns: Any = None
    timestamp_unit: Any = None
    instance_id: Any = None
    process_id: Any = None
    thread_id: Any = None
    nc_idx: Any = None
    lnc_idx: Any = None
    device_core_idx: Any = None
    pcore_idx: Any = None
    exec_id: Any = None
    nrta_seq_id: Any = None
    nrt_sequence_id: Any = None
    flow_id: Any = None
    flow_ids: Any = None
    type: Any = None
    trace_event_source: Any = None
    framework_stream_id: Any = None


FlowTexts = list[tuple[str, int]]
"""(flow id that is no number, row): rows of a process that share one are joined by arrows."""

Sample = tuple[str, str, object, Any, str]
"""(label, unit, time in nanoseconds, value, instance id)."""


class NeuronTraceBuilder:
    """Collects rows, samples and warnings of one source and makes a Trace of them."""

    def __init__(self, path: Path, context: Context) -> None:
        self.findings = Findings()
        self._context = context
        self._table, self._store = StringTable(), ArgumentStore()
        self._trace = Trace(path.stem, findings=self.findings, sources=[str(path)])
        self._source_name = path.name
        self._slices: list[Slices] = []
        self._instants: list[Instants] = []
        self._counters: list[tuple[int, float, int]] = []
        self._flows: list[tuple[str, int]] = []
        self._processes: dict[tuple[str, int], int] = {}
        self._devices: dict[tuple[int, int], int] = {}
        self._tracks: dict[tuple[object, ...], int] = {}

    def add_rows(
        self,
        rows: Sequence[Row],
        raws: Sequence[msgspec.Raw | bytes],
        time_ns: Int64,
        duration_ns: Int64,
    ) -> None:
        """Add rows with their arguments (JSON text); a negative duration makes an instant."""
        starts, lengths = self._store.add(raws)
        sequence, exec_id = _identifiers(rows)
        self._add(
            rows, None, time_ns, duration_ns, sequence, exec_id, starts, lengths, _flow_texts(rows)
        )

    def add_table(
        self,
        kinds: Sequence[Row],
        kind_of_row: NDArray[np.intp],
        time_ns: Int64,
        duration_ns: Int64,
        sequence_id: Int64,
        exec_id: Int64,
        arguments: tuple[bytes, Int64],
        flows: FlowTexts,
    ) -> None:
        """Add the rows of a table by columns.

        ``kinds``: one Row per distinct name and place; ``kind_of_row``: which of them each row
        is. ``arguments``: JSON texts back to back, and their lengths.
        """
        starts, lengths = self._store.add_joined(*arguments)
        self._add(
            kinds, kind_of_row, time_ns, duration_ns, sequence_id, exec_id, starts, lengths, flows
        )

    def _add(
        self,
        kinds: Sequence[Row],
        kind_of_row: NDArray[np.intp] | None,
        time_ns: Int64,
        duration_ns: Int64,
        sequence_id: Int64,
        exec_id: Int64,
        starts: Int64,
        lengths: Int32,
        flows: FlowTexts,
    ) -> None:
        if kind_of_row is None:
            kinds, kind_of_row = _kinds(kinds)
        names = [str(r.name if r.name is not None else "(unnamed)") for r in kinds]
        roles = [_role(name, row) for name, row in zip(names, kinds, strict=True)]
        tracks = [
            self._track(name, role, row)
            for name, role, row in zip(names, roles, kinds, strict=True)
        ]
        n = len(kinds)
        name = self._table.intern_all((t.removesuffix(_FRAMEWORK_SUFFIX) for t in names), n)
        category = self._table.intern_all(map(_source, names, kinds), n)
        track, role = np.array(tracks, np.int32), np.array(roles, np.uint8)
        name, category = name[kind_of_row], category[kind_of_row]
        track, role = track[kind_of_row], role[kind_of_row]
        none = np.full(len(time_ns), NONE, np.int64)
        # Points of the hardware's clock have no length; a runtime call of 0 ns is a call.
        point = (duration_ns < 0) | ((role == Role.DEVICE_DETAIL) & (duration_ns == 0))
        slices = Slices(
            time_ns,
            duration_ns,
            name,
            category,
            track,
            role,
            none,
            none,
            sequence_id,
            exec_id,
            starts,
            lengths,
        )
        first = sum(map(len, self._slices))
        place = np.where(point, NONE, np.cumsum(~point) - 1 + first)
        self._slices.append(slices.take(~point))
        instants = Instants(time_ns, name, category, track, starts, lengths)
        self._instants.append(instants.take(point))
        self._flows += [(text, int(place[row])) for text, row in flows if place[row] != NONE]

    def add_samples(self, samples: Iterable[Sample]) -> None:
        """Add counter samples; those without a time or a number are counted and left out."""
        unreadable = 0
        for label, unit, time, value, host in samples:
            number = as_number(value)
            if integer(time) <= 0 or number is None:
                unreadable += 1
                continue
            process = self._process_of_host(host)
            track = self._get(process, TrackKind.COUNTER, label, unit=unit)
            self._counters.append((integer(time), float(number), track))
        self.findings.add(
            "counter_without_value", "samples without a time or a number were left out", unreadable
        )

    def add_warnings(self, texts: Iterable[str]) -> None:
        """Carry the source's own warnings; dropped events make totals lower bounds."""
        for text in texts:
            dropped = "drop" in text.lower()
            self.findings.add(
                "events_dropped" if dropped else "source_warning",
                f"the system profile warns: {text.rstrip('.')}"
                + ("; totals are lower bounds" if dropped else ""),
                where=self._source_name,
            )

    def finish(self, metadata: dict[str, Any] | None = None) -> Trace:
        """The Trace; ``metadata`` is what the source says beside its rows."""
        trace = self._trace
        trace.slices = Slices.concatenate(self._slices)
        trace.instants = Instants.concatenate(self._instants)
        times, values, tracks = (
            zip(*self._counters, strict=True) if self._counters else ((), (), ())
        )
        trace.counters = Counters(
            np.array(times, np.int64), np.array(values, np.float64), np.array(tracks, np.int32)
        )
        trace.flows = self._joined_flows(trace)
        times_of_rows = np.concatenate([trace.slices.start_ns, trace.instants.time_ns])
        if len(times_of_rows) and float(np.median(times_of_rows)) < EARLIEST_EPOCH_NS:
            trace.clock = Clock(ClockKind.RELATIVE)
        trace.strings = self._table.strings
        trace.arguments = self._store.arguments()
        trace.metadata = [
            dict(metadata or {}) if p == 0 else {} for p in range(len(trace.processes))
        ]
        return trace

    def _joined_flows(self, trace: Trace) -> Flows:
        """Arrows between the rows of a process that share a flow id, in order of time."""
        process = trace.slice_process
        groups: dict[tuple[int, str], list[int]] = defaultdict(list)
        for text, row in self._flows:
            groups[int(process[row]), text].append(row)
        edges: list[tuple[int, int]] = []
        for rows in groups.values():
            rows.sort(key=lambda row: int(trace.slices.start_ns[row]))
            edges += itertools.pairwise(rows)
        source, target = zip(*edges, strict=True) if edges else ((), ())
        kind = self._table.intern("flow_id") if edges else NONE
        return Flows(
            np.array(source, np.int32),
            np.array(target, np.int32),
            np.full(len(edges), kind, np.int32),
        )

    # -- tracks -----------------------------------------------------------------------------

    def _track(self, name: str, role: Role, row: Row) -> int:
        process = self._process(row)
        given = _index(row.nc_idx if row.nc_idx is not None else row.lnc_idx)
        core = max(given, 0)
        if role in (Role.KERNEL, Role.DEVICE_DETAIL):
            return self._device_track(name, role, row, process, core)
        thread = integer(row.thread_id)
        thread = thread if thread != NONE else self._trace.processes[process].pid
        if role == Role.WINDOW:
            stream = integer(row.framework_stream_id)
            label = f"stream {stream} (host window)"
            device = self._device(process, core)
            return self._get(process, TrackKind.DEVICE, label, stream, device)
        if role in (Role.OPERATOR, Role.ANNOTATION):
            return self._get(process, TrackKind.THREAD, f"thread {thread}", thread)
        label = f"neuron_rt thread {thread}" + (f", core {given}" if given != NONE else "")
        own_core = None if given == NONE else given
        return self._get(process, TrackKind.RUNTIME, label, thread, core=own_core)

    def _device_track(self, name: str, role: Role, row: Row, process: int, core: int) -> int:
        physical = _index(row.device_core_idx if row.device_core_idx is not None else row.pcore_idx)
        label = f"NeuronCore {core}" + (f" (physical {physical})" if physical != NONE else "")
        if role == Role.DEVICE_DETAIL:
            kind = "collectives" if name in _COLLECTIVES else "hardware events"
            label = f"{kind}, {label}"
        return self._get(
            process,
            TrackKind.DEVICE,
            label,
            max(physical, 0),
            self._device(process, core),
            None if physical == NONE else physical,
        )

    def _process(self, row: Row) -> int:
        host = str(row.instance_id) if row.instance_id is not None else self._context.host
        pid = integer(row.process_id)
        if pid == NONE:
            pid = self._context.pid if self._context.pid is not None else 0
        return self._process_number(host, pid)

    def _process_number(self, host: str, pid: int) -> int:
        if (host, pid) not in self._processes:
            self._processes[host, pid] = len(self._trace.processes)
            self._trace.processes.append(Process(host, pid, source=self._source_name))
        return self._processes[host, pid]

    def _process_of_host(self, host: str) -> int:
        """Samples belong to an instance; they are shown with its first process."""
        for number, process in enumerate(self._trace.processes):
            if not host or process.host == host:
                return number
        return self._process_number(host, 0)

    def _device(self, process: int, core: int) -> int:
        if (process, core) not in self._devices:
            self._devices[process, core] = len(self._trace.devices)
            self._trace.devices.append(Device(process, core, "neuron", f"NeuronCore {core}"))
        return self._devices[process, core]

    def _get(
        self,
        process: int,
        kind: TrackKind,
        label: str,
        tid: int = 0,
        device: int | None = None,
        physical: int | None = None,
        unit: str = "",
        core: int | None = None,
    ) -> int:
        key = (process, kind, label, device)
        if key not in self._tracks:
            self._tracks[key] = len(self._trace.tracks)
            self._trace.tracks.append(
                Track(process, kind, label, tid, device, physical, unit=unit, core=core)
            )
        return self._tracks[key]


_PLACE = attrgetter(
    "name",
    "trace_event_source",
    "type",
    "instance_id",
    "process_id",
    "thread_id",
    "nc_idx",
    "lnc_idx",
    "device_core_idx",
    "pcore_idx",
    "framework_stream_id",
)


def _kinds(rows: Sequence[Row]) -> tuple[Sequence[Row], NDArray[np.intp]]:
    """One row of each name and place, in order of appearance, and which of them each row is."""
    numbers: dict[Any, int] = {}
    try:
        of_row = [numbers.setdefault(place, len(numbers)) for place in map(_PLACE, rows)]
    except TypeError:  # a list where a number should be
        return rows, np.arange(len(rows))
    kind = np.array(of_row, np.intp)
    _, first = np.unique(kind, return_index=True)
    return [rows[row] for row in first.tolist()], kind


def _index(value: object) -> int:
    """The number of a core; NONE for what cannot be one."""
    number = integer(value)
    return number if 0 <= number < 2**31 else NONE


def _source(name: str, row: Row) -> str:
    if row.trace_event_source is not None:
        return str(row.trace_event_source)
    if integer(row.type) == _FRAMEWORK_TYPE:
        return "framework"
    return "neuron_hw" if name in HARDWARE_NAMES else "neuron_rt"


def _role(name: str, row: Row) -> Role:
    if name == EXECUTION:
        return Role.KERNEL
    source = _source(name, row)
    if name in HARDWARE_NAMES or source == "neuron_hw":
        return Role.DEVICE_DETAIL
    if source == "framework" or name.endswith(_FRAMEWORK_SUFFIX):
        if row.framework_stream_id not in (None, ""):
            return Role.WINDOW
        return Role.ANNOTATION if name.startswith("ProfilerStep#") else Role.OPERATOR
    return Role.RUNTIME


def split_flow_id(value: object) -> tuple[str, int | str]:
    """What a flow id is: ``sequence`` or ``exec`` with its number, or ``text``."""
    number = integer(value)
    if number == NONE:
        return "text", str(value)
    return ("sequence" if number >> _SEQUENCE_COUNTER_BITS > 0 else "exec"), number


def _flow_ids(row: Row) -> list[Any]:
    flows = row.flow_id if row.flow_id is not None else row.flow_ids
    return [] if flows is None else flows if isinstance(flows, list) else [flows]


def _flow_texts(rows: Sequence[Row]) -> FlowTexts:
    found = ((split_flow_id(v), number) for number, r in enumerate(rows) for v in _flow_ids(r))
    return [(str(value), number) for (kind, value), number in found if kind == "text"]


def _identifiers(rows: Sequence[Row]) -> tuple[Int64, Int64]:
    """Sequence and execution ids; flow ids hold both, told apart by their size."""
    found = {kind: np.full(len(rows), NONE, np.int64) for kind in ("sequence", "exec")}
    for number, row in enumerate(rows):
        for kind, value in map(split_flow_id, _flow_ids(row)):
            if kind != "text":
                found[kind][number] = value
        own = row.nrta_seq_id if row.nrta_seq_id is not None else row.nrt_sequence_id
        if own is not None:
            found["sequence"][number] = integer(own)
        if row.exec_id is not None:
            found["exec"][number] = integer(row.exec_id)
    return found["sequence"], found["exec"]
