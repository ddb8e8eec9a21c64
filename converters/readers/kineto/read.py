"""Chrome-trace JSON as PyTorch's Kineto writes it, for any device.

TorchNeuron's ``trace.json`` is such a file (three known shapes: CPU events only; with
``privateuse1_runtime`` and ``privateuse1_driver`` events joined by ``External id``; the same
with ``nrt_sequence_id`` and ``neff_cache_key``), and so are those of CUDA, ROCm, XPU, MTIA and
other PrivateUse1 devices, and plain Chrome traces of other programs.

Format: the Trace Event Format document of the Chromium project, and libkineto's
``output_json.cpp``.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import (
    NONE,
    Clock,
    ClockKind,
    Counters,
    Instants,
    MemoryEvents,
    Slices,
    Trace,
)
from neuron_tb.converters.model.numbers import as_number, integers
from neuron_tb.converters.readers.context import Context
from neuron_tb.converters.readers.era import ENDLESS, LONGEST_NS, OUT_OF_RANGE, Era
from neuron_tb.converters.readers.json.document import Document
from neuron_tb.converters.readers.kineto.arrows import arrows
from neuron_tb.converters.readers.kineto.foreign import (
    base_time,
    counters_among_slices,
    report_producer,
)
from neuron_tb.converters.readers.kineto.pairs import BEGINS, ENDS, POINTS
from neuron_tb.converters.readers.kineto.roles import device_index, family, names_neuron, roles
from neuron_tb.converters.readers.kineto.rows import RowReader, Rows
from neuron_tb.converters.readers.kineto.tracks import Devices, Metadata, Places, Processes

_ASYNCHRONOUS = BEGINS | ENDS | POINTS
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
    return _Builder(document, context).trace()


class _Builder:
    """Gives rows their place: roles, processes, devices, tracks."""

    def __init__(self, document: Document, context: Context) -> None:
        self.path = document.path
        self.context = context
        self.metadata = document.decoded("traceEvents")
        if not isinstance(self.metadata.get("distributedInfo"), dict):
            self.metadata.pop("distributedInfo", None)
        findings = Findings()
        base_ns = base_time(self.metadata, findings, self.path.name)
        report_producer(self.metadata, findings)
        self.rows, self.found = RowReader.of(document, base_ns, findings)
        self.findings = self.rows.findings

    def trace(self) -> Trace:
        found = self.found
        parts, by_phase, bound, stored = found.parts, found.by_phase, found.bound, found.stored
        self._count_unknown_phases(by_phase)
        meta_events = by_phase["M"]
        kept, samples = counters_among_slices(stored, meta_events, self.findings)
        parts.append(self.rows.timed(kept, self.rows.durations([e.dur for e in kept])))
        parts.append(self.rows.paired(by_phase["B"]))
        spans, points = self.rows.asynchronous([e for p in _ASYNCHRONOUS for e in by_phase[p]])
        rows = Rows.put_together([*parts, spans])
        instants = Rows.put_together(
            [self.rows.timed(by_phase["i"] + by_phase["I"] + by_phase["R"]), points]
        )
        counters = self.rows.timed(by_phase["C"] + samples)
        era = Era.of(np.concatenate([rows.start_ns, instants.start_ns]), self.rows.base_ns)
        rows, instants = self._within(era, rows), self._within(era, instants)
        rows, instants = self._unmeasurable_to_instants(rows, instants)
        kind = ClockKind.EPOCH if era.is_epoch else ClockKind.RELATIVE
        clock = Clock(kind, self.rows.base_ns, self.rows.resolution_ns)
        trace = Trace(self.path.stem, clock=clock, findings=self.findings, sources=[str(self.path)])
        counters = self._within(era, counters)
        self._place(trace, rows, instants, counters, Metadata(meta_events))
        ends = by_phase["s"] + by_phase["t"] + by_phase["f"] + bound
        trace.flows = arrows(self.rows, trace.slices, rows.thread, ends)
        trace.strings = self.rows.table.strings
        trace.arguments = self.rows.store.arguments()
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

    def _within(self, era: Era, rows: Rows) -> Rows:
        holds = era.holds(rows.start_ns)
        self.findings.add(
            "time_out_of_range",
            OUT_OF_RANGE,
            int(np.count_nonzero(~holds)),
        )
        return rows if holds.all() else rows.take(holds)

    def _unmeasurable_to_instants(self, rows: Rows, instants: Rows) -> tuple[Rows, Rows]:
        endless = rows.duration_ns > LONGEST_NS
        self.findings.add(
            "duration_out_of_range",
            ENDLESS,
            int(np.count_nonzero(endless)),
        )
        measured = (rows.duration_ns >= 0) & ~endless
        if measured.all():
            return rows, instants
        return rows.take(measured), Rows.concatenate([instants, rows.take(~measured)])

    # -- tracks -----------------------------------------------------------------------------

    def _place(
        self, trace: Trace, rows: Rows, instants: Rows, counters: Rows, names: Metadata
    ) -> None:
        """Give every row its role, process, device and track."""
        strings, keys = self.rows.table.strings, list(self.rows.threads)
        role = roles(strings, rows.category, rows.thread, keys)
        processes = Processes(trace, keys, self.context, names, self.metadata, self.path.name)
        processes.choose(rows.thread, role)
        devices = Devices(trace, processes.main, self.metadata, self._family(rows, strings))
        index = device_index(role, rows.device, rows.thread, keys)
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

    def _family(self, rows: Rows, strings: list[str]) -> str:
        certain = self.context.neuron or self.rows.is_from_neuron
        if certain or names_neuron(self.metadata, strings):
            return "neuron"
        return family(self.metadata, {strings[c] for c in np.unique(rows.category)})

    def _instants(self, trace: Trace, rows: Rows, places: Places, main: int) -> None:
        is_memory = rows.name == self.rows.table.find("[memory]")
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
        texts = self.rows.store.arguments().texts(rows.args_start[found], rows.args_length[found])
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

    def _counters(self, trace: Trace, rows: Rows, places: Places) -> None:
        times: list[int] = []
        values: list[float] = []
        tracks: list[int] = []
        unreadable = 0
        texts = self.rows.store.arguments().texts(rows.args_start, rows.args_length)
        for row, raw in enumerate(texts):
            try:
                series = msgspec.json.decode(raw) if raw else None
            except (msgspec.DecodeError, RecursionError):
                series = None
            if not isinstance(series, dict):
                unreadable += 1
                continue
            name = self.rows.table.strings[rows.name[row]]
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


def _memory(raw: bytes) -> _Memory:
    try:
        return _DECODE_MEMORY(raw)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return _Memory()
