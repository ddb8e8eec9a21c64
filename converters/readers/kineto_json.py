"""Chrome-trace JSON as PyTorch's Kineto writes it, for any device.

TorchNeuron's ``trace.json`` is such a file (three known shapes: CPU events only; with
``privateuse1_runtime`` and ``privateuse1_driver`` events joined by ``External id``; the same
with ``nrt_sequence_id`` and ``neff_cache_key``), and so are those of CUDA, ROCm, XPU, MTIA and
other PrivateUse1 devices, and plain Chrome traces of other programs.

Format: the Trace Event Format document of the Chromium project, and libkineto's
``output_json.cpp``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.lanes import innermost_around
from neuron_tb.converters.readers import bounds
from neuron_tb.converters.readers.chrome_flows import bound_ends, family
from neuron_tb.converters.readers.chrome_pairs import (
    BEGINS,
    ENDS,
    ENDS_OF_PAIRS,
    POINTS,
    AsyncRow,
    SharedRow,
    asynchronous,
    in_order_of_time,
    pair,
)
from neuron_tb.converters.readers.chrome_tracks import (
    Devices,
    Key,
    Metadata,
    Places,
    Processes,
    identifier,
)
from neuron_tb.converters.readers.columns import (
    ArgumentStore,
    Number,
    as_number,
    integer,
    integers,
    loses_digits,
    nanoseconds,
)
from neuron_tb.converters.readers.document import Context, Document
from neuron_tb.converters.readers.foreign import (
    base_time,
    counters_among_slices,
    joined_arguments,
    report_producer,
)
from neuron_tb.converters.readers.kineto_args import Identifiers, identifiers
from neuron_tb.converters.trace import (
    NONE,
    Bools,
    Clock,
    ClockKind,
    Counters,
    Flows,
    Instants,
    Int32,
    Int64,
    MemoryEvents,
    Role,
    Slices,
    StringTable,
    Trace,
    UInt8,
)

CATEGORY_ROLES = {
    "cpu_op": Role.OPERATOR,
    "operator": Role.OPERATOR,
    "user_annotation": Role.ANNOTATION,
    "python_function": Role.PYTHON,
    "python": Role.PYTHON,
    "runtime": Role.RUNTIME,
    "cuda_runtime": Role.RUNTIME,
    "cuda_driver": Role.RUNTIME,
    "xpu_runtime": Role.RUNTIME,
    "xpu_driver": Role.RUNTIME,
    "mtia_runtime": Role.RUNTIME,
    "glow_runtime": Role.RUNTIME,
    "privateuse1_runtime": Role.RUNTIME,
    "kernel": Role.KERNEL,
    "concurrent_kernel": Role.KERNEL,
    "mtia_ccp_events": Role.KERNEL,
    "hpu_op": Role.KERNEL,
    "gpu_memcpy": Role.TRANSFER,
    "memcpy": Role.TRANSFER,
    "gpu_memset": Role.TRANSFER,
    "memset": Role.TRANSFER,
    "privateuse1_driver": Role.WINDOW,
    "cuda_sync": Role.DEVICE_DETAIL,
    "cuda_event": Role.DEVICE_DETAIL,
    "gpu_user_annotation": Role.DEVICE_ANNOTATION,
    "trace": Role.SPAN,
}
"""What Kineto's categories mean here, compared in lower case; any other is ``OTHER``."""

_ON_DEVICE = (Role.KERNEL, Role.TRANSFER, Role.WINDOW, Role.DEVICE_DETAIL, Role.DEVICE_ANNOTATION)
_EARLIEST_EPOCH_NS = 10**17  # 1973: nothing that counts from the Unix epoch is smaller
_ASYNCHRONOUS = BEGINS | ENDS | POINTS
_SHOWN_PHASES = frozenset("XBEiIRCMstf") | _ASYNCHRONOUS


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: Number = None
    tid: Number = None
    ts: Number = None
    dur: Number = None
    args: msgspec.Raw = msgspec.Raw()
    id: Number = None
    bp: Number = None
    attr: msgspec.Raw = msgspec.Raw()


class _ExactEvent(_Event, gc=False):
    """For times that a double would round."""

    ts: Decimal | None = None  # type: ignore[assignment]
    dur: Decimal | None = None  # type: ignore[assignment]


class _RareEvent(_Event, gc=False):
    """With what only asynchronous events and slices that name their arrows have."""

    id2: Any = None
    scope: Any = None
    bind_id: Number = None
    flow_in: Any = None
    flow_out: Any = None


class _ExactRareEvent(_RareEvent, gc=False):
    ts: Decimal | None = None  # type: ignore[assignment]
    dur: Decimal | None = None  # type: ignore[assignment]


class _Memory(msgspec.Struct, gc=False):
    device_type: Any = msgspec.field(name="Device Type", default=None)
    device_id: Any = msgspec.field(name="Device Id", default=None)
    address: Any = msgspec.field(name="Addr", default=None)
    bytes: Any = msgspec.field(name="Bytes", default=None)
    total_allocated: Any = msgspec.field(name="Total Allocated", default=None)
    total_reserved: Any = msgspec.field(name="Total Reserved", default=None)


_DECODE_MEMORY = msgspec.json.Decoder(_Memory).decode


def sniff(document: Document) -> bool:
    """Whether the document is Chrome-trace JSON: ``traceEvents``, or an array of events."""
    return "traceEvents" in document.keys or (document.array and "ph" in document.first_row())


def read(document: Document, context: Context) -> Trace:
    """Read one file into a Trace with one profiled process (plain Chrome traces: one per pid)."""
    return _Reader(document, context).read()


@dataclass(frozen=True, slots=True)
class _Rows:
    """Slices before they have tracks: columns that the file gives, all of shape (n,)."""

    start_ns: Int64
    duration_ns: Int64
    name: Int32
    category: Int32
    thread: Int32
    args: list[msgspec.Raw | bytes]

    def take(self, rows: Any) -> _Rows:
        kept = np.arange(len(self.start_ns))[rows]
        return _Rows(
            self.start_ns[kept],
            self.duration_ns[kept],
            self.name[kept],
            self.category[kept],
            self.thread[kept],
            [self.args[row] for row in kept.tolist()],
        )

    def plus(self, other: _Rows) -> _Rows:
        def joined(field: str) -> Any:
            return np.concatenate([getattr(self, field), getattr(other, field)])

        return _Rows(
            joined("start_ns"),
            joined("duration_ns"),
            joined("name"),
            joined("category"),
            joined("thread"),
            self.args + other.args,
        )


class _Reader:
    def __init__(self, document: Document, context: Context) -> None:
        self.path = document.path
        self._value = document.value
        self.context = context
        self.metadata = document.decoded("traceEvents")
        if not isinstance(self.metadata.get("distributedInfo"), dict):
            self.metadata.pop("distributedInfo", None)
        self.findings = Findings()
        self.table = StringTable()
        self.store = ArgumentStore()
        self.threads: dict[Key, int] = {}
        self._raw_threads: dict[Key, int] = {}
        self._pids: dict[object, None] = {}
        self.base_ns = base_time(self.metadata, self.findings, self.path.name)
        report_producer(self.metadata, self.findings)
        raw = document.data if document.array else document.keys["traceEvents"]
        self.events, self.resolution_ns = self._decode(raw, document.data)
        self.meta_events = [e for e in self.events if e.ph == "M"]

    def read(self) -> Trace:
        by_phase = defaultdict(list)
        for event in self.events:
            by_phase["B" if event.ph == "E" else event.ph].append(event)
        self.events = []
        self._count_unknown_phases(by_phase)
        bound = bound_ends(by_phase["X"] + by_phase["B"]) if self._rare else []
        complete, samples = counters_among_slices(by_phase["X"], self.meta_events, self.findings)
        rows = self._complete(complete).plus(self._paired(by_phase["B"]))
        spans, points = self._asynchronous([e for p in _ASYNCHRONOUS for e in by_phase[p]])
        rows = rows.plus(spans)
        instants = self._timed(by_phase["i"] + by_phase["I"] + by_phase["R"]).plus(points)
        counters = self._timed(by_phase["C"] + samples)
        clock = self._clock(rows, instants)
        rows, instants = self._within_clock(clock, rows), self._within_clock(clock, instants)
        rows, instants = self._unmeasurable_to_instants(rows, instants)
        trace = Trace(self.path.stem, clock=clock, findings=self.findings, sources=[str(self.path)])
        self._place(trace, rows, instants, self._within_clock(clock, counters))
        self._flows(trace, by_phase["s"] + by_phase["t"] + by_phase["f"] + bound)
        trace.strings = self.table.strings
        trace.arguments = self.store.arguments()
        return trace

    # -- decoding ---------------------------------------------------------------------------

    def _decode(self, raw: bytes | msgspec.Raw, data: bytes) -> tuple[list[Any], int]:
        events = self._decode_as(_Event, raw)
        asynchronous = not _ASYNCHRONOUS.isdisjoint({e.ph for e in events})
        self._rare = asynchronous or b'"bind_id"' in (data or bytes(raw))
        self._has_attr = b'"attr"' in bytes(memoryview(raw)[: 1 << 20])
        if self._rare:
            events = self._decode_as(_RareEvent, raw)
        if not (loses_digits(e.ts for e in events) or loses_digits(e.dur for e in events)):
            return events, 1
        exact = self._decode_as(_ExactRareEvent if self._rare else _ExactEvent, raw)
        # Epoch microseconds that went through a double are a quarter microsecond apart, and
        # their text is the shortest one that tells them apart.
        times = (e.ts for e in exact if isinstance(e.ts, Decimal) and e.ts.is_finite())
        on_grid = all(Decimal(repr(float(t))) == t for t in times)
        return exact, 250 if on_grid else 1

    def _decode_as(self, kind: type[_Event], raw: bytes | msgspec.Raw) -> list[Any]:
        try:
            return msgspec.json.Decoder(list[kind]).decode(raw)  # type: ignore[valid-type]
        except msgspec.ValidationError:
            return self._decode_one_by_one(kind, raw)

    def _decode_one_by_one(self, kind: type[_Event], raw: bytes | msgspec.Raw) -> list[Any]:
        typed = msgspec.json.Decoder(kind).decode
        events = []
        first_time = kind is _Event
        for number, text in enumerate(
            msgspec.json.decode(raw, type=list[msgspec.Raw] | None) or ()
        ):
            try:
                events.append(typed(text))
            except msgspec.ValidationError:
                value = self._value(text)
                if isinstance(value, dict):
                    events.append(_lenient(kind, value))
                elif first_time:
                    self.findings.add(
                        "not_an_event",
                        "entries of traceEvents that are no event objects were left out",
                        where=f"{self.path.name}, entry {number}",
                    )
        return events

    def _count_unknown_phases(self, by_phase: dict[str, list[Any]]) -> None:
        for phase, events in by_phase.items():
            if phase not in _SHOWN_PHASES:
                self.findings.add(
                    "phase_not_shown",
                    f"events of phase {phase!r} are not shown"
                    if phase
                    else "events without a phase were left out",
                    len(events),
                )

    # -- rows -------------------------------------------------------------------------------

    def _complete(self, events: list[Any]) -> _Rows:
        durations, known = nanoseconds([e.dur for e in events])
        durations[~known] = NONE
        self.findings.add(
            "no_duration",
            "complete events without a duration are shown as instants",
            int(np.count_nonzero(~known)),
        )
        self.findings.add(
            "unfinished",
            "events that never finished (negative duration) are shown as instants",
            int(np.count_nonzero(known & (durations < 0))),
        )
        return self._timed(events, durations)

    def _timed(self, events: list[Any], durations: Int64 | None = None) -> _Rows:
        """Rows of events that have a time; the others are counted and left out."""
        return self._timed_with_mask(events, durations)[0]

    def _timed_with_mask(
        self, events: list[Any], durations: Int64 | None = None
    ) -> tuple[_Rows, Bools]:
        times, usable = nanoseconds([e.ts for e in events], self.base_ns)
        self._count_without_time(usable)
        unnamed = sum(e.name is None and e.ph not in ENDS_OF_PAIRS for e in events)
        self.findings.add("no_name", "events without a name are called (unnamed)", unnamed)
        n = len(events)
        rows = _Rows(
            times,
            np.zeros(n, np.int64) if durations is None else durations,
            self.table.intern_all((e.name or "(unnamed)" for e in events), n),
            self.table.intern_all((e.cat or "" for e in events), n),
            self._threads_of(events),
            self._arguments_of(events),
        )
        return rows if usable.all() else rows.take(usable), usable

    def _count_without_time(self, usable: Bools) -> None:
        self.findings.add(
            "no_time",
            "events without a readable time were left out",
            int(np.count_nonzero(~usable)),
        )

    def _arguments_of(self, events: list[Any]) -> list[msgspec.Raw | bytes]:
        if not self._has_attr:
            return [e.args for e in events]
        found = [e.args if len(memoryview(e.args)) else e.attr for e in events]
        self.findings.add(
            "arguments_under_attr",
            "arguments that stand under 'attr' are taken as the event's",
            sum(
                bool(len(memoryview(a))) and a is e.attr for a, e in zip(found, events, strict=True)
            ),
        )
        return found

    def _threads_of(self, events: Sequence[Any]) -> Int32:
        """A number per event for its (pid, tid)."""
        known = self._raw_threads
        keys = [(e.pid, e.tid) for e in events]
        for key in dict.fromkeys(keys):  # in order of appearance, so that outputs are reproducible
            if key in known:
                continue
            clean = (identifier(key[0]), identifier(key[1]))
            if clean not in self.threads:
                clean = self._key_within_bounds(*clean)
            known[key] = self.threads.setdefault(clean, len(self.threads))
        return np.fromiter(map(known.__getitem__, keys), np.int32, len(keys))

    def _key_within_bounds(self, pid: object, tid: object) -> Key:
        """The key of a new thread: its own, or a shared one where there are too many."""
        if pid not in self._pids and len(self._pids) >= bounds.MAX_PROCESSES:
            self.findings.add(
                "too_many_processes",
                f"events of processes after the first {bounds.MAX_PROCESSES:,} share one row",
            )
            return next(iter(self._pids)), SharedRow("further processes", 0)
        self._pids[pid] = None
        if len(self.threads) < bounds.MAX_TRACKS:
            return pid, tid
        self.findings.add(
            "too_many_threads",
            f"threads after the first {bounds.MAX_TRACKS:,} share a row of their process",
        )
        return pid, SharedRow("further threads", 0)

    def _paired(self, events: list[Any]) -> _Rows:
        """Complete rows made of ``B`` and ``E`` events of one thread, in the file's order."""
        is_end = np.array([e.ph == "E" for e in events], np.bool_)
        rows, usable = self._timed_with_mask(events)
        is_end = is_end[usable]
        unnamed = self.table.find("(unnamed)")
        names = [
            None if n == unnamed and end else n
            for n, end in zip(rows.name.tolist(), is_end, strict=True)
        ]
        found = pair(
            in_order_of_time(rows.start_ns, is_end),
            rows.thread.tolist(),
            names,
            rows.start_ns.tolist(),
            is_end.tolist(),
        )
        closed = np.array(found.closed, np.intp).reshape(-1, 2)
        lengths = rows.start_ns[closed[:, 1]] - rows.start_ns[closed[:, 0]]
        self._count_unpaired(len(found.lonely_ends), len(found.unclosed))
        taken = rows.take(np.concatenate([closed[:, 0], np.array(found.unclosed, np.intp)]))
        lengths = np.concatenate([lengths, np.full(len(found.unclosed), NONE, np.int64)])
        ends = [rows.args[row] for row in closed[:, 1].tolist()]
        ends += [b""] * len(found.unclosed)
        args = [joined_arguments(*both) for both in zip(taken.args, ends, strict=True)]
        return _Rows(taken.start_ns, lengths, taken.name, taken.category, taken.thread, args)

    def _count_unpaired(self, lonely: int, unclosed: int) -> None:
        self.findings.add("end_without_begin", "ends without a beginning were left out", lonely)
        self.findings.add(
            "unfinished",
            "events that never finished (a beginning without an end) are shown as instants",
            unclosed,
        )

    def _asynchronous(self, events: list[Any]) -> tuple[_Rows, _Rows]:
        """Slices and instants made of asynchronous events, in rows of their own."""
        times, usable = nanoseconds([e.ts for e in events], self.base_ns)
        self._count_without_time(usable)
        events = [event for event, good in zip(events, usable.tolist(), strict=True) if good]
        found = asynchronous(events, times[usable])
        self._count_unpaired(found.lonely, len(found.unclosed))
        self.findings.add(
            "asynchronous_spans",
            "spans that no thread was busy with (asynchronous events) stand in rows of their own "
            "and count neither as operators nor as device work",
            len(found.spans),
        )
        spans = self._timed(found.spans, np.array(found.durations_ns, np.int64))
        return spans, self._timed(found.points + found.unclosed)

    def _clock(self, rows: _Rows, instants: _Rows) -> Clock:
        times = np.concatenate([rows.start_ns, instants.start_ns])
        # One event at 0 among epoch times must not decide: the median does.
        epoch = not len(times) or float(np.median(times)) > _EARLIEST_EPOCH_NS
        kind = ClockKind.EPOCH if epoch else ClockKind.RELATIVE
        return Clock(kind, self.base_ns, self.resolution_ns)

    def _within_clock(self, clock: Clock, rows: _Rows) -> _Rows:
        if clock.kind is not ClockKind.EPOCH or self.base_ns:
            return rows
        plausible = rows.start_ns > _EARLIEST_EPOCH_NS
        self.findings.add(
            "time_out_of_range",
            "events at time 0 or near it, among times since the Unix epoch, were left out",
            int(np.count_nonzero(~plausible)),
        )
        return rows if plausible.all() else rows.take(plausible)

    def _unmeasurable_to_instants(self, rows: _Rows, instants: _Rows) -> tuple[_Rows, _Rows]:
        measured = rows.duration_ns >= 0
        if measured.all():
            return rows, instants
        return rows.take(measured), instants.plus(rows.take(~measured))

    # -- tracks -----------------------------------------------------------------------------

    def _place(self, trace: Trace, rows: _Rows, instants: _Rows, counters: _Rows) -> None:
        """Give every row its role, process, device and track."""
        ids = identifiers(rows.args)
        role = self._roles(rows)
        names = Metadata(self.meta_events)
        keys = list(self.threads)
        neuron = self._is_neuron(ids)
        processes = Processes(trace, keys, self.context, names, self.metadata, self.path.name)
        processes.choose(rows.thread, role)
        devices = Devices(trace, processes.main, self.metadata, self._family(rows, neuron))
        on_device = np.isin(role, _ON_DEVICE)
        index = self._device_index(rows, on_device, ids, keys)
        places = Places(trace, keys, names, processes, devices)
        track = places.tracks(rows.thread, index, role)
        starts, lengths = self.store.add(rows.args)
        trace.slices = Slices(
            rows.start_ns,
            rows.duration_ns,
            rows.name,
            rows.category,
            track,
            role,
            ids.external_id,
            ids.correlation,
            ids.sequence_id,
            ids.exec_id,
            starts,
            lengths,
        )
        self._instants(trace, instants, places, processes.main)
        self._counters(trace, counters, places)
        trace.metadata = [
            dict(self.metadata) if p == processes.main else {} for p in range(len(trace.processes))
        ]
        self.slice_thread = rows.thread

    def _roles(self, rows: _Rows) -> UInt8:
        by_category = np.array(
            [CATEGORY_ROLES.get(text.lower(), Role.OTHER) for text in self.table.strings], np.uint8
        )
        roles = by_category[rows.category] if len(by_category) else np.empty(0, np.uint8)
        on_async_row = [type(tid) is AsyncRow for _, tid in self.threads]
        if any(on_async_row):
            roles[np.array(on_async_row)[rows.thread]] = Role.OTHER
        return roles

    def _is_neuron(self, ids: Identifiers) -> bool:
        """Evidence of AWS Neuron; a PrivateUse1 category alone is none."""
        backend = str((self.metadata.get("distributedInfo") or {}).get("backend", ""))
        return (
            self.context.neuron
            or "neuron" in backend.lower()
            or any(s.startswith(_NEURON_NAMES) for s in self.table.strings)
            or ids.neuron
        )

    def _family(self, rows: _Rows, neuron: bool) -> str:
        if neuron:
            return "neuron"
        text = str(self.metadata.get("deviceProperties") or self.metadata.get("computeProperties"))
        categories = {self.table.strings[c] for c in np.unique(rows.category)}
        if any(c.startswith("mtia") for c in categories):
            return "mtia"
        if any(c.startswith("xpu") for c in categories):
            return "xpu"
        if any(c.startswith("privateuse1") for c in categories):
            return "privateuse1"
        if "AMD" in text or any(k.startswith(("hip_", "roctracer")) for k in self.metadata):
            return "rocm"
        known = {"cuda_runtime", "cuda_driver", "kernel", "Kernel", "gpu_memcpy"}
        return "cuda" if categories & known else "other"

    def _device_index(
        self, rows: _Rows, on_device: Bools, ids: Identifiers, keys: list[Key]
    ) -> Int64:
        """The device of every device row: its arguments say it, else its pid is the device."""
        pid = np.array([max(min(integer(key[0]), 2**31 - 1), 0) for key in keys], np.int64)
        of_row = np.where(ids.device != NONE, ids.device, pid[rows.thread] if len(pid) else NONE)
        return np.where(on_device, of_row, NONE)

    def _instants(self, trace: Trace, rows: _Rows, places: Places, main: int) -> None:
        is_memory = rows.name == self.table.find("[memory]")
        track = places.tracks(rows.thread, np.full(len(rows.thread), NONE, np.int64))
        starts, lengths = self.store.add(rows.args)
        keep = ~is_memory
        trace.instants = Instants(
            rows.start_ns[keep],
            rows.name[keep],
            rows.category[keep],
            track[keep],
            starts[keep],
            lengths[keep],
        )
        found = np.flatnonzero(is_memory)
        values = [_memory(rows.args[row]) for row in found.tolist()]
        device = integers([m.device_id for m in values]).astype(np.int32)
        kind = integers([m.device_type for m in values]).astype(np.int32)
        trace.memory = MemoryEvents(
            rows.start_ns[found],
            np.full(len(found), main, np.int32),
            kind,
            np.where(kind == 0, NONE, device).astype(np.int32),
            integers([m.address for m in values]),
            integers([m.bytes for m in values]),
            integers([m.total_allocated for m in values]),
            integers([m.total_reserved for m in values]),
            track[found],
            starts[found],
            lengths[found],
        )

    def _counters(self, trace: Trace, rows: _Rows, places: Places) -> None:
        times: list[int] = []
        values: list[float] = []
        tracks: list[int] = []
        unreadable = 0
        for row, raw in enumerate(rows.args):
            try:
                series = msgspec.json.decode(raw) if len(memoryview(raw)) else None
            except (msgspec.DecodeError, RecursionError):
                series = None
            if not isinstance(series, dict):
                unreadable += 1
                continue
            name = self.table.strings[rows.name[row]]
            for key, value in series.items():
                number = None if isinstance(value, str) else as_number(value)
                if number is None:
                    unreadable += 1
                    continue
                label = name if len(series) == 1 else f"{name} {key}"
                times.append(int(rows.start_ns[row]))
                values.append(number)
                tracks.append(places.counter(int(rows.thread[row]), label))
        self.findings.add(
            "counter_without_value", "counter samples without a number were left out", unreadable
        )
        trace.counters = Counters(
            np.array(times, np.int64), np.array(values, np.float64), np.array(tracks, np.int32)
        )

    # -- flows ------------------------------------------------------------------------------

    def _flows(self, trace: Trace, events: list[Any]) -> None:
        """Arrows: each end or middle step is joined with the latest start of the same id."""
        events = [e for e in events if e.id is not None]
        if not events:
            return
        times, usable = nanoseconds([e.ts for e in events], self.base_ns)
        lengths, known = nanoseconds([getattr(e, "dur", None) for e in events])
        slices = trace.slices
        at = innermost_around(
            self.slice_thread,
            slices.start_ns,
            slices.duration_ns,
            self._threads_of(events),
            times,
            times + np.where(known & (lengths > 0), lengths, 0),
        )
        self._bind_to_next_slice(trace, events, times, at)
        groups: dict[tuple[str, object], list[int]] = defaultdict(list)
        phase = np.array([_PHASE_ORDER[e.ph] for e in events])
        for row in np.lexsort((phase, times)).tolist():
            if usable[row]:
                event = events[row]
                groups[family(event.cat or ""), identifier(event.id)].append(row)
        sources: list[int] = []
        targets: list[int] = []
        kinds: list[int] = []
        unpaired = 0
        for rows in groups.values():
            edges, lonely = _edges(rows, events, at)
            unpaired += lonely
            kind = self.table.intern(events[rows[0]].cat or "")
            for source, target in edges:
                sources.append(source)
                targets.append(target)
                kinds.append(kind)
        self.findings.add(
            "flow_unpaired",
            "ends of arrows without their other end, or without a slice, were left out",
            unpaired,
        )
        trace.flows = Flows(
            np.array(sources, np.int32), np.array(targets, np.int32), np.array(kinds, np.int32)
        )

    def _bind_to_next_slice(self, trace: Trace, events: list[Any], times: Int64, at: Int32) -> None:
        """An end without ``bp: "e"`` outside every slice belongs to the thread's next slice."""
        lost = [r for r, e in enumerate(events) if e.ph == "f" and e.bp != "e" and at[r] == NONE]
        if not lost:
            return
        order = np.lexsort((trace.slices.start_ns, self.slice_thread))
        thread, start = self.slice_thread[order], trace.slices.start_ns[order]
        for row in lost:
            own = int(self._threads_of([events[row]])[0])
            first, last = np.searchsorted(thread, [own, own + 1])
            position = first + np.searchsorted(start[first:last], times[row])
            if position < last:
                at[row] = order[position]


_NEURON_NAMES = ("__neuron_profiler__", "nrt_", "nrta_", "nc_exec_running", "kbl_exec")
_PHASE_ORDER = {"s": 0, "t": 1, "f": 2}


def _edges(rows: list[int], events: list[Any], at: Int32) -> tuple[list[tuple[int, int]], int]:
    """Edges of one flow id (rows in order of time), and how many of its ends stay unpaired.

    A viewer must not lose the arrow of an end stamped before its start (clock skew), so such an
    end takes the first start.
    """
    starts = [row for row in rows if events[row].ph == "s" and at[row] != NONE]
    edges: list[tuple[int, int]] = []
    source = starts[0] if starts else None
    used = set()
    unpaired = sum(events[row].ph == "s" and at[row] == NONE for row in rows)
    for row in rows:
        if events[row].ph == "s":
            source = row if at[row] != NONE else source
            continue
        if source is None or at[row] == NONE:
            unpaired += 1
            continue
        used.add(source)
        if at[source] != at[row]:
            edges.append((int(at[source]), int(at[row])))
        if events[row].ph == "t":
            source = row
    return edges, unpaired + len(set(starts) - used)


def _lenient(kind: type[_Event], value: dict[str, Any]) -> _Event:
    """An event some of whose fields have an unexpected type: those fields count as absent."""
    event = kind(ph=str(value.get("ph", "")))
    for field in ("cat", "name"):
        if value.get(field) is not None:
            setattr(event, field, str(value[field]))
    for field in ("pid", "tid", "ts", "dur", "id"):
        given = value.get(field)
        if isinstance(given, int | float | str) and not isinstance(given, bool):
            setattr(event, field, given)
    if isinstance(event, _RareEvent):
        for field in ("id2", "scope", "flow_in", "flow_out"):
            setattr(event, field, value.get(field))
        bound = value.get("bind_id")
        event.bind_id = bound if isinstance(bound, int | str) else None
    for field in ("args", "attr"):
        if field in value:
            setattr(event, field, msgspec.Raw(msgspec.json.encode(value[field])))
    return event


def _memory(raw: msgspec.Raw | bytes) -> _Memory:
    try:
        return _DECODE_MEMORY(raw)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return _Memory()
