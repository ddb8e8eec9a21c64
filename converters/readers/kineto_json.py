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
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.lanes import innermost_around
from neuron_tb.converters.readers import bounds
from neuron_tb.converters.readers.chrome_events import Decoder, Event, Events, places
from neuron_tb.converters.readers.chrome_flows import bound_ends, family
from neuron_tb.converters.readers.chrome_pairs import (
    BEGINS,
    ENDS,
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
from neuron_tb.converters.readers.chunks import Listing
from neuron_tb.converters.readers.columns import (
    ArgumentStore,
    Numbers,
    as_number,
    integer,
    integers,
    nanoseconds,
)
from neuron_tb.converters.readers.document import Context, Document
from neuron_tb.converters.readers.era import ENDLESS, LONGEST_NS, OUT_OF_RANGE, Era
from neuron_tb.converters.readers.foreign import (
    COUNTER_MARK,
    base_time,
    counters_among_slices,
    is_counter_sample,
    joined_arguments,
    report_producer,
)
from neuron_tb.converters.readers.kineto_args import identifiers
from neuron_tb.converters.readers.second_process import Helper, HelperError, may_fork
from neuron_tb.converters.trace import (
    NONE,
    Bools,
    Clock,
    ClockKind,
    Columns,
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
    column,
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
_ASYNCHRONOUS = BEGINS | ENDS | POINTS
_LOOK_AT = 1 << 20
_BINDING = frozenset("XBE")
_UNNAMED = "(unnamed)"
_SHOWN_PHASES = frozenset("XBEiIRCMstf") | _ASYNCHRONOUS


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


@dataclass(slots=True)
class _Rows(Columns):
    """Slices, instants or samples before they have tracks: what the file says of each."""

    start_ns: Int64 = column(np.int64)
    duration_ns: Int64 = column(np.int64)
    name: Int32 = column(np.int32)
    category: Int32 = column(np.int32)
    thread: Int32 = column(np.int32)
    external_id: Int64 = column(np.int64)
    correlation: Int64 = column(np.int64)
    sequence_id: Int64 = column(np.int64)
    exec_id: Int64 = column(np.int64)
    device: Int32 = column(np.int32)
    args_start: Int64 = column(np.int64)
    args_length: Int32 = column(np.int32)

    @classmethod
    def put_together(cls, parts: list[_Rows]) -> _Rows:
        """The rows of all parts, which are empty afterwards: columns are in memory only once."""
        if len(parts) == 1:
            return parts[0]
        joined = cls.empty()
        for f in fields(cls):
            pieces = [getattr(part, f.name) for part in parts]
            setattr(joined, f.name, np.concatenate([getattr(joined, f.name), *pieces]))
            for part in parts:
                setattr(part, f.name, None)
        return joined


@dataclass
class _Found:
    """What decoding has found: rows of slices, and all other events by their phase.

    ``bound``: ends of arrows that slices name. ``stored``: what may be counter samples.
    """

    parts: list[_Rows] = field(default_factory=list)
    by_phase: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    bound: list[Any] = field(default_factory=list)
    stored: list[Any] = field(default_factory=list)


@dataclass
class _Half:
    """The second half of a file, as another process read it, with the tables it refers to."""

    rows: _Rows
    by_phase: dict[str, list[Any]]
    bound: list[Any]
    stored: list[Any]
    strings: list[str]
    threads: list[Key]
    generated: bytes
    decoder: tuple[bool, bool]
    is_from_neuron: bool
    findings: Findings


class _Reader:
    def __init__(self, document: Document, context: Context) -> None:
        self.document = document
        self.path = document.path
        self.context = context
        self.metadata = document.decoded("traceEvents")
        if not isinstance(self.metadata.get("distributedInfo"), dict):
            self.metadata.pop("distributedInfo", None)
        self.findings = Findings()
        self.table = StringTable()
        self.threads: dict[Key, int] = {}
        self._raw_threads: dict[Key, int] = {}
        self._pids: dict[object, None] = {}
        self.base_ns = base_time(self.metadata, self.findings, self.path.name)
        report_producer(self.metadata, self.findings)
        self.listing = document.listing("traceEvents")
        self.store = ArgumentStore(self.listing.text)
        self._decoder = Decoder(self.path.name, document.value, self.findings)
        first = self.listing.text[self.listing.start : self.listing.start + _LOOK_AT]
        self._has_attr = b'"attr"' in first
        self._is_from_neuron = False

    def _find(self, listing: Listing) -> _Found:
        """Decode all events of a list."""
        found = _Found()
        for events in self._decoder.events(listing):
            phases = [e.ph for e in events.rows]
            slices: Events = events
            others: list[Event] = []
            if phases.count("X") < len(phases):
                slices, others = _apart(events, [phase == "X" for phase in phases])
            for event in others:
                found.by_phase["B" if event.ph == "E" else event.ph].append(_detached(event))
            if [e.bind_id for e in events.rows].count(None) < len(phases):
                found.bound += bound_ends(e for e in events.rows if e.ph in _BINDING)
            rows, samples = self._complete(slices)
            found.parts.append(rows)
            found.stored += samples
        return found

    def _find_in_halves(self, first: Listing, second: Listing) -> _Found:
        """Decode two halves of the list, the second one in another process.

        Raises HelperError, or a decoding error, where the halves are not what they seemed; this
        reader is of no use then.
        """
        helper = Helper(lambda: self._half(second))
        try:
            found = self._find(first)
            half = helper.result()
        finally:
            helper.stop()
        if not self._decoder.join(half.decoder):
            raise HelperError
        rows = half.rows
        strings = self.table.intern_all(half.strings, len(half.strings))
        threads = np.array([self._number_of_thread(*key) for key in half.threads], np.int32)
        if len(rows):
            rows.name, rows.category = strings[rows.name], strings[rows.category]
            rows.thread = threads[rows.thread]
            self.store.add_generated(half.generated, rows.args_start)
        found.parts.append(rows)
        for phase, events in half.by_phase.items():
            found.by_phase[phase] += events
        found.bound += half.bound
        found.stored += half.stored
        self._is_from_neuron |= half.is_from_neuron
        self.findings.extend(half.findings)
        return found

    def _half(self, listing: Listing) -> _Half:
        """The second half, in a process of its own. Raises HelperError for odd entries."""
        said = len(self.document.findings)
        self.findings = self._decoder.findings = Findings()
        found = self._find(listing)
        if self.findings.of_kind("not_an_event") or len(self.document.findings) != said:
            raise HelperError  # these say where they stand in the whole list
        return _Half(
            _Rows.put_together(found.parts),
            dict(found.by_phase),
            found.bound,
            found.stored,
            self.table.strings,
            list(self.threads),
            self.store.generated(),
            self._decoder.state,
            self._is_from_neuron,
            self.findings,
        )

    def read(self) -> Trace:
        size = self.listing.end - self.listing.start
        halves = self.listing.halves() if may_fork(size) else None
        if halves is None:
            return self._trace(self._find(self.listing))
        try:
            found = self._find_in_halves(*halves)
        except (HelperError, msgspec.DecodeError):
            again = _Reader(self.document, self.context)
            return again._trace(again._find(again.listing))
        return self._trace(found)

    def _trace(self, found: _Found) -> Trace:
        parts, by_phase, bound, stored = found.parts, found.by_phase, found.bound, found.stored
        self._count_unknown_phases(by_phase)
        meta_events = by_phase["M"]
        kept, samples = counters_among_slices(stored, meta_events, self.findings)
        parts.append(self._timed(kept, self._durations([e.dur for e in kept])))
        parts.append(self._paired(by_phase["B"]))
        spans, points = self._asynchronous([e for p in _ASYNCHRONOUS for e in by_phase[p]])
        rows = _Rows.put_together([*parts, spans])
        instants = _Rows.put_together(
            [self._timed(by_phase["i"] + by_phase["I"] + by_phase["R"]), points]
        )
        counters = self._timed(by_phase["C"] + samples)
        era = Era.of(np.concatenate([rows.start_ns, instants.start_ns]), self.base_ns)
        rows, instants = self._within(era, rows), self._within(era, instants)
        rows, instants = self._unmeasurable_to_instants(rows, instants)
        kind = ClockKind.EPOCH if era.is_epoch else ClockKind.RELATIVE
        clock = Clock(kind, self.base_ns, self._decoder.resolution_ns)
        trace = Trace(self.path.stem, clock=clock, findings=self.findings, sources=[str(self.path)])
        counters = self._within(era, counters)
        self._place(trace, rows, instants, counters, Metadata(meta_events))
        self._flows(trace, by_phase["s"] + by_phase["t"] + by_phase["f"] + bound)
        trace.strings = self.table.strings
        trace.arguments = self.store.arguments()
        return trace

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

    def _complete(self, events: Events) -> tuple[_Rows, list[Any]]:
        """Rows of complete events; apart from them those that may be counter samples."""
        samples: list[Any] = []
        if COUNTER_MARK in events.text:
            events, others = _apart(events, [not is_counter_sample(e) for e in events.rows])
            samples = [_detached(event) for event in others]
        durations = self._durations(events.dur)
        times, usable = nanoseconds(events.ts, self.base_ns)
        self._count_without_time(usable)
        texts = [memoryview(raw) for raw in self._arguments_of(events.rows)]
        found = places(texts, events.text)
        if found is None:
            found = self.store.add(texts)
        else:
            found[0][...] += events.offset
        rows = self._rows(events.rows, times, durations, texts, found)
        return rows if usable.all() else rows.take(usable), samples

    def _durations(self, microseconds: Numbers) -> Int64:
        """Lengths in nanoseconds, negative where there is none."""
        durations, known = nanoseconds(microseconds)
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
        return durations

    def _timed(self, events: list[Any], durations: Int64 | None = None) -> _Rows:
        """Rows of events that have a time; the others are counted and left out."""
        times, usable = nanoseconds([e.ts for e in events], self.base_ns)
        self._count_without_time(usable)
        if durations is None:
            durations = np.zeros(len(events), np.int64)
        args = self._arguments_of(events)
        rows = self._rows(events, times, durations, args, self.store.add(args))
        return rows if usable.all() else rows.take(usable)

    def _rows(
        self,
        events: Sequence[Any],
        times: Int64,
        durations: Int64,
        args: Sequence[memoryview | msgspec.Raw | bytes],
        places_of_args: tuple[Int64, Int32],
    ) -> _Rows:
        n = len(events)
        ids = identifiers(args)
        self._is_from_neuron |= ids.neuron
        name = self.table.intern_all([e.name or _UNNAMED for e in events], n)
        if (name == self.table.find(_UNNAMED)).any():
            unnamed = sum(e.name is None for e in events)
            self.findings.add("no_name", "events without a name are called (unnamed)", unnamed)
        return _Rows(
            times,
            durations,
            name,
            self.table.intern_all([e.cat or "" for e in events], n),
            self._threads_of(events),
            ids.external_id,
            ids.correlation,
            ids.sequence_id,
            ids.exec_id,
            ids.device,
            *places_of_args,
        )

    def _count_without_time(self, usable: Bools) -> None:
        self.findings.add(
            "no_time",
            "events without a readable time were left out",
            int(np.count_nonzero(~usable)),
        )

    def _arguments_of(self, events: Sequence[Any]) -> list[msgspec.Raw | bytes]:
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
        pids, tids = [e.pid for e in events], [e.tid for e in events]
        known = self._raw_threads
        try:
            numbers = map(known.__getitem__, zip(pids, tids, strict=True))
            return np.fromiter(numbers, np.int32, len(events))
        except KeyError:
            # In order of appearance, so that outputs are reproducible.
            for key in dict.fromkeys(zip(pids, tids, strict=True)):
                if key not in known:
                    known[key] = self._number_of_thread(identifier(key[0]), identifier(key[1]))
            return self._threads_of(events)

    def _number_of_thread(self, pid: object, tid: object) -> int:
        key = (pid, tid)
        if key not in self.threads:
            key = self._key_within_bounds(pid, tid)
        return self.threads.setdefault(key, len(self.threads))

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
        times, usable = nanoseconds([e.ts for e in events], self.base_ns)
        self._count_without_time(usable)
        events = [event for event, good in zip(events, usable.tolist(), strict=True) if good]
        times = times[usable]
        is_end = np.array([e.ph == "E" for e in events], np.bool_)
        names = [e.name or _UNNAMED for e in events]
        found = pair(
            in_order_of_time(times, is_end),
            self._threads_of(events).tolist(),
            [
                None if e.ph == "E" and n == _UNNAMED else n
                for e, n in zip(events, names, strict=True)
            ],
            times.tolist(),
            is_end.tolist(),
        )
        self._count_unpaired(len(found.lonely_ends), len(found.unclosed))
        closed = np.array(found.closed, np.intp).reshape(-1, 2)
        lengths = times[closed[:, 1]] - times[closed[:, 0]]
        begins = closed[:, 0].tolist() + found.unclosed
        lengths = np.concatenate([lengths, np.full(len(found.unclosed), NONE, np.int64)])
        ends = self._arguments_of([events[row] for row in closed[:, 1].tolist()])
        ends += [b""] * len(found.unclosed)
        chosen = [events[row] for row in begins]
        args = [
            joined_arguments(*both) for both in zip(self._arguments_of(chosen), ends, strict=True)
        ]
        return self._rows(chosen, times[begins], lengths, args, self.store.add(args))

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

    def _within(self, era: Era, rows: _Rows) -> _Rows:
        holds = era.holds(rows.start_ns)
        self.findings.add(
            "time_out_of_range",
            OUT_OF_RANGE,
            int(np.count_nonzero(~holds)),
        )
        return rows if holds.all() else rows.take(holds)

    def _unmeasurable_to_instants(self, rows: _Rows, instants: _Rows) -> tuple[_Rows, _Rows]:
        endless = rows.duration_ns > LONGEST_NS
        self.findings.add(
            "duration_out_of_range",
            ENDLESS,
            int(np.count_nonzero(endless)),
        )
        measured = (rows.duration_ns >= 0) & ~endless
        if measured.all():
            return rows, instants
        return rows.take(measured), _Rows.concatenate([instants, rows.take(~measured)])

    # -- tracks -----------------------------------------------------------------------------

    def _place(
        self, trace: Trace, rows: _Rows, instants: _Rows, counters: _Rows, names: Metadata
    ) -> None:
        """Give every row its role, process, device and track."""
        role = self._roles(rows)
        keys = list(self.threads)
        neuron = self._is_neuron()
        processes = Processes(trace, keys, self.context, names, self.metadata, self.path.name)
        processes.choose(rows.thread, role)
        devices = Devices(trace, processes.main, self.metadata, self._family(rows, neuron))
        on_device = np.isin(role, _ON_DEVICE)
        index = self._device_index(rows, on_device, keys)
        places = Places(trace, keys, names, processes, devices)
        track = places.tracks(rows.thread, index, role)
        trace.slices = Slices(
            rows.start_ns,
            rows.duration_ns,
            rows.name,
            rows.category,
            track,
            role,
            rows.external_id,
            rows.correlation,
            rows.sequence_id,
            rows.exec_id,
            rows.args_start,
            rows.args_length,
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

    def _is_neuron(self) -> bool:
        """Evidence of AWS Neuron; a PrivateUse1 category alone is none."""
        backend = str((self.metadata.get("distributedInfo") or {}).get("backend", ""))
        return (
            self.context.neuron
            or "neuron" in backend.lower()
            or any(s.startswith(_NEURON_NAMES) for s in self.table.strings)
            or self._is_from_neuron
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

    def _device_index(self, rows: _Rows, on_device: Bools, keys: list[Key]) -> Int64:
        """The device of every device row: its arguments say it, else its pid is the device."""
        pid = np.array([max(min(integer(key[0]), 2**31 - 1), 0) for key in keys], np.int64)
        of_row = np.where(rows.device != NONE, rows.device, pid[rows.thread] if len(pid) else NONE)
        return np.where(on_device, of_row, NONE)

    def _instants(self, trace: Trace, rows: _Rows, places: Places, main: int) -> None:
        is_memory = rows.name == self.table.find("[memory]")
        track = places.tracks(rows.thread, np.full(len(rows.thread), NONE, np.int64))
        keep = ~is_memory
        trace.instants = Instants(
            rows.start_ns[keep],
            rows.name[keep],
            rows.category[keep],
            track[keep],
            rows.args_start[keep],
            rows.args_length[keep],
        )
        found = np.flatnonzero(is_memory)
        texts = self.store.arguments().texts(rows.args_start[found], rows.args_length[found])
        values = [_memory(text) for text in texts]
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
            rows.args_start[found],
            rows.args_length[found],
        )

    def _counters(self, trace: Trace, rows: _Rows, places: Places) -> None:
        times: list[int] = []
        values: list[float] = []
        tracks: list[int] = []
        unreadable = 0
        texts = self.store.arguments().texts(rows.args_start, rows.args_length)
        for row, raw in enumerate(texts):
            try:
                series = msgspec.json.decode(raw) if raw else None
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


def _apart(events: Events, chosen: list[bool]) -> tuple[Events, list[Event]]:
    """The chosen events, and all others."""
    if all(chosen):
        return events, []
    others = [event for event, yes in zip(events.rows, chosen, strict=True) if not yes]
    return events.only(chosen), others


def _detached(event: Event) -> Event:
    """The event without the text it was decoded from."""
    event.args, event.attr = event.args.copy(), event.attr.copy()
    return event


def _memory(raw: bytes) -> _Memory:
    try:
        return _DECODE_MEMORY(raw)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return _Memory()
