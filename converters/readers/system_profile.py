"""``system_profile.json``, as Neuron Explorer writes it (``view --output-format json``).

Both spellings of the row list are read (``trace_events`` of AWS's documents, ``trace_event`` of
newer files), a bare list of rows too, and the time columns of either generation (``timestamp``
and ``duration``, or ``start_ts`` and ``duration_ns``). Times are nanoseconds since the Unix
epoch; numbers may be written as text.

Format: AWS Neuron documentation, "Neuron Explorer", output formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.readers.columns import ArgumentStore, integer, integers
from neuron_tb.converters.readers.document import Context, Document
from neuron_tb.converters.trace import (
    NONE,
    Bools,
    Counters,
    Device,
    Instants,
    Int64,
    Process,
    Role,
    Slices,
    StringTable,
    Trace,
    Track,
    TrackKind,
)

ROW_KEYS = ("trace_events", "trace_event")
EXECUTION = "nc_exec_running"
_HARDWARE_DETAIL = {
    "cc_running",
    "cc_exec_barrier",
    "nc_model_switch",
    "hw_notify",
    "numerical_err",
    "timestamp_sync_point",
}
_COLLECTIVES = ("cc_running", "cc_exec_barrier")
_FRAMEWORK_TYPE = 99999
_FRAMEWORK_SUFFIX = " [trace.json]"
_NS_PER_UNIT = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_SEQUENCE_COUNTER_BITS = 48  # a sequence id is a 16-bit unit above a 48-bit counter


class _Row(msgspec.Struct, gc=False):
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


_DECODE = msgspec.json.Decoder(_Row).decode


def sniff(document: Document) -> bool:
    """Whether the document has a system profile's row list, or is a bare list of such rows."""
    row = document.first_row()
    return any(key in document.keys for key in ROW_KEYS) or (
        "name" in row and ("start_ts" in row or "timestamp" in row) and "ph" not in row
    )


def read(document: Document, context: Context) -> Trace:
    """Read one file: a process per (instance, process id), a device per logical NeuronCore."""
    return _Reader(document, context).read()


class _Reader:
    def __init__(self, document: Document, context: Context) -> None:
        self.document, self.context = document, context
        self.table, self.store, self.findings = StringTable(), ArgumentStore(), Findings()
        self.trace = Trace(document.path.stem, findings=self.findings, sources=[str(document.path)])
        self._processes: dict[tuple[str, int], int] = {}
        self._devices: dict[tuple[int, int], int] = {}
        self._tracks: dict[tuple[object, ...], int] = {}

    def read(self) -> Trace:
        raws, rows = self._rows()
        time, duration, usable = self._times(rows)
        raws = [raws[row] for row in np.flatnonzero(usable).tolist()]
        rows = [rows[row] for row in np.flatnonzero(usable).tolist()]
        self._events(raws, rows, time[usable], duration[usable])
        self._counters()
        self._warnings()
        trace = self.trace
        trace.strings = self.table.strings
        trace.arguments = self.store.tobytes()
        other = self.document.decoded(*ROW_KEYS, "mem_usage", "cpu_util", "device_mem_usage")
        trace.metadata = [other if p == 0 else {} for p in range(len(trace.processes))]
        return trace

    def _rows(self) -> tuple[list[msgspec.Raw], list[_Row]]:
        document = self.document
        texts = (
            [document.data]
            if document.array
            else [bytes(document.keys[key]) for key in ROW_KEYS if key in document.keys]
        )
        raws: list[msgspec.Raw] = []
        try:
            for text in texts:
                raws += msgspec.json.decode(text, type=list[msgspec.Raw] | None) or []
        except msgspec.ValidationError as error:
            raise NeuronTbError(f"{document.path}: its event rows are no list.") from error
        kept, rows = [], []
        for raw in raws:
            try:
                rows.append(_DECODE(raw))
                kept.append(raw)
            except msgspec.ValidationError:
                self.findings.add("not_an_event", "rows that are no objects were left out")
        return kept, rows

    def _times(self, rows: Sequence[_Row]) -> tuple[Int64, Int64, Bools]:
        start = integers([r.timestamp if r.timestamp is not None else r.start_ts for r in rows])
        length = integers(
            [r.duration_ns if r.duration_ns is not None else r.duration for r in rows]
        )
        unit = [_NS_PER_UNIT.get(r.timestamp_unit or "ns", 0) for r in rows]
        if any(u != 1 for u in unit):
            scale = np.array(unit, np.int64)
            self.findings.add(
                "unit_unknown", "rows in an unknown unit of time were left out", unit.count(0)
            )
            start, length = start * scale, np.where(length < 0, NONE, length * scale)
        usable = start > 0
        self.findings.add(
            "time_out_of_range",
            "rows without a time, or at time 0, were left out",
            int(np.count_nonzero(~usable & (np.array(unit, np.int64) != 0))),
        )
        self.findings.add(
            "unfinished",
            "rows without a duration are shown as instants",
            int(np.count_nonzero(usable & (length < 0))),
        )
        return start, length, usable

    # -- events -----------------------------------------------------------------------------

    def _events(
        self, raws: list[msgspec.Raw], rows: list[_Row], time: Int64, duration: Int64
    ) -> None:
        names = [str(r.name if r.name is not None else "(unnamed)") for r in rows]
        roles = [_role(name, row) for name, row in zip(names, rows, strict=True)]
        tracks = [
            self._track(name, role, row) for name, role, row in zip(names, roles, rows, strict=True)
        ]
        n = len(rows)
        name = self.table.intern_all((t.removesuffix(_FRAMEWORK_SUFFIX) for t in names), n)
        category = self.table.intern_all(map(_source, names, rows), n)
        track = np.array(tracks, np.int32)
        role = np.array(roles, np.uint8)
        starts, lengths = self.store.add(raws)
        sequence, exec_id = _identifiers(rows)
        none = np.full(n, NONE, np.int64)
        # Points of the hardware's clock have no length; a runtime call of 0 ns is still a call.
        point = (duration < 0) | ((role == Role.DEVICE_DETAIL) & (duration == 0))
        self.trace.slices = Slices(
            time,
            duration,
            name,
            category,
            track,
            role,
            none,
            none,
            sequence,
            exec_id,
            starts,
            lengths,
        ).take(~point)
        self.trace.instants = Instants(time, name, category, track, starts, lengths).take(point)

    def _track(self, name: str, role: Role, row: _Row) -> int:
        process = self._process(row)
        core = max(integer(row.nc_idx if row.nc_idx is not None else row.lnc_idx), 0)
        if role in (Role.KERNEL, Role.DEVICE_DETAIL):
            return self._device_track(name, role, row, process, core)
        thread = integer(row.thread_id)
        thread = thread if thread != NONE else self.trace.processes[process].pid
        if role == Role.WINDOW:
            stream = integer(row.framework_stream_id)
            label = f"stream {stream} (host window)"
            device = self._device(process, core)
            return self._get(process, TrackKind.DEVICE, label, stream, device)
        if role == Role.OPERATOR:
            return self._get(process, TrackKind.THREAD, f"thread {thread}", thread)
        given = integer(row.nc_idx if row.nc_idx is not None else row.lnc_idx)
        label = f"neuron_rt thread {thread}" + (f", core {given}" if given != NONE else "")
        own_core = None if given == NONE else given
        return self._get(process, TrackKind.RUNTIME, label, thread, core=own_core)

    def _device_track(self, name: str, role: Role, row: _Row, process: int, core: int) -> int:
        physical = integer(
            row.device_core_idx if row.device_core_idx is not None else row.pcore_idx
        )
        label = (
            f"NeuronCore {core}" if physical == NONE else f"NeuronCore {core} (physical {physical})"
        )
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

    def _process(self, row: _Row) -> int:
        host = str(row.instance_id) if row.instance_id is not None else self.context.host
        pid = integer(row.process_id)
        if pid == NONE:
            pid = self.context.pid if self.context.pid is not None else 0
        return self._process_number(host, pid)

    def _process_number(self, host: str, pid: int) -> int:
        if (host, pid) not in self._processes:
            self._processes[host, pid] = len(self.trace.processes)
            self.trace.processes.append(Process(host, pid, source=self.document.path.name))
        return self._processes[host, pid]

    def _device(self, process: int, core: int) -> int:
        if (process, core) not in self._devices:
            self._devices[process, core] = len(self.trace.devices)
            self.trace.devices.append(Device(process, core, "neuron", f"NeuronCore {core}"))
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
            self._tracks[key] = len(self.trace.tracks)
            self.trace.tracks.append(
                Track(process, kind, label, tid, device, physical, unit=unit, core=core)
            )
        return self._tracks[key]

    # -- samples ----------------------------------------------------------------------------

    def _counters(self) -> None:
        times: list[int] = []
        values: list[float] = []
        tracks: list[int] = []
        unreadable = 0
        for label, unit, time, value, host in self._samples():
            if integer(time) <= 0 or not isinstance(value, int | float):
                unreadable += 1
                continue
            times.append(integer(time))
            values.append(float(value))
            process = self._process_of_host(host)
            tracks.append(self._get(process, TrackKind.COUNTER, label, unit=unit))
        self.findings.add(
            "counter_without_value", "samples without a time or a number were left out", unreadable
        )
        self.trace.counters = Counters(
            np.array(times, np.int64), np.array(values, np.float64), np.array(tracks, np.int32)
        )

    def _samples(self) -> list[tuple[str, str, object, Any, str]]:
        """(label, unit, time, value, instance) of every sample in the file."""
        samples: list[tuple[str, str, object, Any, str]] = []
        for row in self._table("mem_usage"):
            host, time = str(row.get("instance_id", "")), row.get("timestamp")
            samples.append(("Host memory used", "bytes", time, _number(row.get("usage")), host))
        for row in self._table("cpu_util"):
            host, time = str(row.get("instance_id", "")), row.get("timestamp")
            label = f"Host CPU {row.get('cpu_id', 'average')}"
            samples.append((label, "%", time, _number(row.get("util")), host))
        for row in self._table("device_mem_usage"):
            host, time = str(row.get("instance_id", "")), row.get("timestamp")
            place = f"HBM {row.get('hbm_idx', 0)}"
            if row.get("device_idx") is not None:
                place = f"device {row['device_idx']} {place}"
            for key, value in row.items():
                if key.endswith("_bytes"):
                    kind = key.removesuffix("_bytes").replace("_", " ")
                    samples.append((f"{place} {kind}", "bytes", time, _number(value), host))
        return samples

    def _table(self, key: str) -> list[dict[str, Any]]:
        raw = self.document.keys.get(key)
        rows = msgspec.json.decode(raw) if raw is not None else None
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    def _process_of_host(self, host: str) -> int:
        """Samples belong to an instance; they are shown with its first process."""
        for number, process in enumerate(self.trace.processes):
            if not host or process.host == host:
                return number
        return self._process_number(host, 0)

    def _warnings(self) -> None:
        raw = self.document.keys.get("warnings")
        rows = msgspec.json.decode(raw) if raw is not None else None
        for row in rows if isinstance(rows, list) else []:
            text = str(row.get("message", row)) if isinstance(row, dict) else str(row)
            dropped = "drop" in text.lower()
            self.findings.add(
                "events_dropped" if dropped else "source_warning",
                f"the system profile warns: {text.rstrip('.')}"
                + ("; totals are lower bounds" if dropped else ""),
                where=self.document.path.name,
            )


def _source(name: str, row: _Row) -> str:
    if row.trace_event_source is not None:
        return str(row.trace_event_source)
    if integer(row.type) == _FRAMEWORK_TYPE:
        return "framework"
    return "neuron_hw" if name == EXECUTION or name in _HARDWARE_DETAIL else "neuron_rt"


def _role(name: str, row: _Row) -> Role:
    if name == EXECUTION:
        return Role.KERNEL
    if name in _HARDWARE_DETAIL:
        return Role.DEVICE_DETAIL
    if _source(name, row) == "framework" or name.endswith(_FRAMEWORK_SUFFIX):
        if row.framework_stream_id not in (None, ""):
            return Role.WINDOW
        return Role.ANNOTATION if name.startswith("ProfilerStep#") else Role.OPERATOR
    return Role.DEVICE_DETAIL if _source(name, row) == "neuron_hw" else Role.RUNTIME


def _identifiers(rows: Sequence[_Row]) -> tuple[Int64, Int64]:
    """Sequence and execution ids; flow ids hold both, told apart by their size."""
    sequence = np.full(len(rows), NONE, np.int64)
    exec_id = np.full(len(rows), NONE, np.int64)
    for number, row in enumerate(rows):
        flows = row.flow_id if row.flow_id is not None else row.flow_ids
        if flows is not None:
            for value in map(integer, flows if isinstance(flows, list) else [flows]):
                target = sequence if value >> _SEQUENCE_COUNTER_BITS > 0 else exec_id
                target[number] = value
        own = row.nrta_seq_id if row.nrta_seq_id is not None else row.nrt_sequence_id
        if own is not None:
            sequence[number] = integer(own)
        if row.exec_id is not None:
            exec_id[number] = integer(row.exec_id)
    return sequence, exec_id


def _number(value: object) -> float | int | None:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
