"""Perfetto traces (``.pftrace``): TrackEvent packets for the Perfetto UI and trace_processor.

trace_processor sorts packets by time, stably, and an END closes the innermost open slice of its
row. A row's slices therefore leave in order of (start, longest first, depth), each as a BEGIN
with its END right behind; slices that cross stand in lanes of their own. Wrong order would not
be reported by any viewer, it would only swap names and lengths.

Nothing here needs a protobuf runtime: packets are encoded column-wise.

Schema: ``protos/perfetto/trace/trace_packet.proto`` and ``track_event.proto`` of google/perfetto.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

import neuron_tb
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import (
    NONE,
    Bools,
    ClockKind,
    Instants,
    Int32,
    Int64,
    LinkKind,
    MemoryEvents,
    Role,
    Source,
    Trace,
)
from neuron_tb.converters.model.lanes import OVERLAPPING, ROUNDED
from neuron_tb.converters.model.ragged import Ragged, chunks, distinct_rows
from neuron_tb.converters.storage.output import refuse_overwrite, replacing_file
from neuron_tb.converters.writers import Destination, Written, wire
from neuron_tb.converters.writers.freed_memory import give_back
from neuron_tb.converters.writers.perfetto.annotations import Annotations
from neuron_tb.converters.writers.perfetto.flows import flows_of
from neuron_tb.converters.writers.perfetto.tracks import (
    Picture,
    ProcessRows,
    UInt64,
    draw,
    root_descriptor,
)
from neuron_tb.converters.writers.wire import Rows

TARGET = "perfetto"
OWN_ANNOTATION = "neuron_tb"
"""The annotation under which what this project found out stands beside the source's own."""
ATTRIBUTE_PREFIX = "neuron_tb."
"""Keys of trace attributes: ``neuron_tb.RUN.slices`` and so on."""

_PACKET = 1
# TracePacket
_CLOCKS, _TIMESTAMP, _SEQUENCE, _EVENT, _INTERNED, _FLAGS = 6, 8, 10, 11, 12, 13
_DESCRIPTOR, _ATTRIBUTES = 60, 126
_STATE_CLEARED, _NEEDS_STATE = 1, 2
# TrackEvent
_CATEGORY, _TYPE, _NAME, _TRACK, _INTEGER, _DOUBLE, _FLOW = 3, 9, 10, 11, 30, 44, 47
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
# InternedData
_CATEGORIES, _NAMES = 1, 2
_REALTIME, _BOOTTIME = 1, 6

_SNAPSHOT_NS = 10**18
"""A moment in 2001; snapshots do not widen the time range that viewers show."""
_NO_ROWS = np.empty(0, np.intp)


def write(trace: Trace, destination: Destination) -> list[Written]:
    """Write ``OUT/perfetto/RUN.pftrace``: all processes of the trace in one file.

    ``Written.slices`` counts every slice of the trace that the file shows. Raises NeuronTbError
    when the file exists and may not be replaced.
    """
    if not any(map(len, (trace.slices, trace.instants, trace.counters, trace.memory))):
        reason = "The capture holds no slice, instant, counter or memory event to show."
        return [Written(TARGET, None, skipped=reason)]
    path = destination.out / TARGET / f"{destination.run}.pftrace"
    refuse_overwrite(path, destination.force)
    writer = _Writer(trace, destination)
    give_back()
    with replacing_file(path) as file:
        writer.write(file)
    return [Written(TARGET, path, writer.counts["slices"], findings=writer.findings)]


class _Writer:
    """One file: counts and findings are complete once ``write`` has returned."""

    def __init__(self, trace: Trace, destination: Destination) -> None:
        self.trace, self.run = trace, destination.run
        self.findings = Findings()
        self._picture: Picture = draw(trace, destination.instance_type)
        self._end = self._picture.layout.end_ns
        self._slice_ok = (trace.slices.start_ns >= 0) & (self._end >= trace.slices.start_ns)
        self._instant_ok = trace.instants.time_ns >= 0
        self._memory_ok = trace.memory.time_ns >= 0
        self._counter_ok = (trace.counters.time_ns >= 0) & np.isfinite(trace.counters.value)
        self._group()
        self._arrows = flows_of(trace, self._picture, self._slice_ok)
        self._flows, self._first_flow = self._arrows.of_slices(len(trace.slices))
        self._own_codes, self._own = _own_annotations(trace)
        track = wire.varint_field(_TRACK, self._picture.uuid_of_line)
        self.lines = tuple(
            wire.side_by_side(_type(kind, len(track)), track).packed() for kind in (_BEGIN, _END)
        )
        self._report()
        self.counts = {
            "slices": int(np.count_nonzero(self._slice_ok)),
            "instants": int(np.count_nonzero(self._instant_ok)),
            "memory_events": int(np.count_nonzero(self._memory_ok)),
            "counter_samples": int(np.count_nonzero(self._counter_ok)),
            "flows": len(self._arrows.id),
            "rows": self._picture.rows,
            "lanes": self._picture.lanes,
        }

    def _group(self) -> None:
        """Rows of every process: slices as the order rule wants them, all others by time."""
        trace, of_track = self.trace, self.trace.track_column("process")
        order = self._picture.layout.order
        self.slices = _by_process(order[self._slice_ok[order]], trace.slice_process)
        instants = _by_time(self._instant_ok, trace.instants.time_ns)
        self.instants = _by_process(instants, of_track[trace.instants.track])
        memory = _by_time(self._memory_ok, trace.memory.time_ns)
        self.memory = _by_process(memory, trace.memory.process)
        counters = _by_time(self._counter_ok, trace.counters.time_ns)
        self.counters = _by_process(counters, of_track[trace.counters.track])

    def write(self, file: BinaryIO) -> None:
        """Write the whole file."""
        if self.trace.clock.kind is ClockKind.EPOCH:
            file.write(_packet(wire.encode_field(_CLOCKS, _clock_snapshot())))
        file.write(_packet(wire.encode_field(_ATTRIBUTES, self._attributes())))
        file.write(_packet(wire.encode_field(_DESCRIPTOR, root_descriptor())))
        for process in self._picture.processes:
            for part in _Sequence(self, process).packets():
                file.write(part)

    # -- what the sequences share -------------------------------------------------------------

    def lines_of(self, rows: NDArray[np.intp]) -> tuple[Int64, Int32]:
        """Ends (nanoseconds) and lines of these slices."""
        return self._end[rows], self._picture.line_of_slice[rows]

    def uuids_of_tracks(self, tracks: Int32) -> UInt64:
        """The rows of instants or samples on these tracks."""
        return self._picture.uuid_of_track[tracks]

    def flows_of(self, rows: NDArray[np.intp]) -> Ragged | None:
        """The encoded flow ids of these slices; None when no slice has one."""
        first = self._first_flow[rows]
        count = self._first_flow[rows + 1] - first
        total = int(count.sum())
        if not total:
            return None
        place = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(total)
        encoded = wire.fixed64_field(_FLOW, self._flows[place])
        return Ragged.back_to_back(encoded.tobytes(), count * encoded.lengths[0])

    def own_annotations(self) -> tuple[Int32, list[dict[str, Any]]]:
        """For every slice the number of its own annotations, and all that occur."""
        return self._own_codes, self._own

    # -- what is said about the file ----------------------------------------------------------

    def _report(self) -> None:
        layout, picture = self._picture.layout, self._picture
        self.findings.add(
            *OVERLAPPING,
            int(np.count_nonzero(layout.lane[self.trace.slices.role != Role.WINDOW])),
        )
        self.findings.add(
            *ROUNDED,
            layout.rounded,
        )
        self.findings.add(
            "nested_too_deep",
            "slices nested too deeply for Perfetto stand in further lanes",
            picture.deep,
        )
        times_ok = (self._slice_ok, self._instant_ok, self._memory_ok)
        lost = sum(int(np.count_nonzero(~ok)) for ok in times_ok)
        lost += int(np.count_nonzero(self.trace.counters.time_ns < 0))
        self.findings.add(
            "time_not_representable", "events before time 0 are not in the Perfetto trace", lost
        )
        self.findings.add(
            "counter_not_finite",
            "counter samples that are no finite number are not in the Perfetto trace",
            int(np.count_nonzero(~np.isfinite(self.trace.counters.value))),
        )

    def _attributes(self) -> bytes:
        trace = self.trace
        everything = Findings(trace.findings)
        everything.extend(self.findings)
        values: dict[str, int | str] = {
            "version": neuron_tb.__version__,
            "capture": trace.name,
            "sources": json.dumps([_shown_path(source) for source in trace.sources]),
            **({"filtered": trace.filtered} if trace.filtered else {}),
            "clock": trace.clock.kind.value,
            "clock_base_ns": trace.clock.base_ns,
            "clock_resolution_ns": trace.clock.resolution_ns,
            **self.counts,
            "findings": json.dumps(everything.as_dicts()),
            "processes": json.dumps([rows.identity for rows in self._picture.processes]),
        }
        for rows in self._picture.processes:
            if rows.process < len(trace.metadata) and trace.metadata[rows.process]:
                metadata = json.dumps(trace.metadata[rows.process], default=str)
                values[f"metadata.{rows.title}"] = metadata
        fields = []
        for key, value in values.items():
            body = wire.encode_field(1, f"{ATTRIBUTE_PREFIX}{self.run}.{key}")
            body += wire.encode_field(2 if isinstance(value, int) else 3, value)
            fields.append(wire.encode_field(1, body))
        return b"".join(fields)


class _Sequence:
    """The packets of one process: a sequence of its own, with its own interned strings."""

    def __init__(self, writer: _Writer, process: ProcessRows) -> None:
        self._writer, self._rows, self._trace = writer, process, writer.trace
        sequence = wire.encode_field(_SEQUENCE, process.sequence)
        self._first = sequence + wire.encode_field(_FLAGS, _STATE_CLEARED | _NEEDS_STATE)
        self._later = sequence + wire.encode_field(_FLAGS, _NEEDS_STATE)
        self._annotations = Annotations(self._trace.arguments)
        self._beginnings, self._endings = writer.lines
        self._own_bytes: dict[int, bytes] = {0: b""}
        self._slices = writer.slices.get(process.process, _NO_ROWS)
        self._instants = writer.instants.get(process.process, _NO_ROWS)
        self._memory = writer.memory.get(process.process, _NO_ROWS)
        self._counters = writer.counters.get(process.process, _NO_ROWS)

    def packets(self) -> Iterator[bytes]:
        """Everything of this process, in file order."""
        yield _packet(self._first + wire.encode_field(_INTERNED, self._interned_names()))
        for descriptor in self._rows.descriptors:
            yield _packet(self._later + wire.encode_field(_DESCRIPTOR, descriptor))
        for rows in (self._slices[part] for part in chunks(len(self._slices))):
            yield from self._slice_packets(rows)
        for rows in (self._instants[part] for part in chunks(len(self._instants))):
            instants = self._trace.instants.take(rows)
            names = self._name_iids[instants.name]
            uuids = self._writer.uuids_of_tracks(instants.track)
            yield from self._instant_packets(instants, uuids, names, instants.category)
        for rows in (self._memory[part] for part in chunks(len(self._memory))):
            yield from self._memory_packets(self._trace.memory.take(rows))
        for rows in (self._counters[part] for part in chunks(len(self._counters))):
            counters = self._trace.counters.take(rows)
            uuids = self._writer.uuids_of_tracks(counters.track)
            value = wire.double_field(_DOUBLE, counters.value)
            yield self._counter_packets(counters.time_ns, uuids, value)

    def _interned_names(self) -> bytes:
        """Names and categories of all events; what occurs most gets the shortest numbers."""
        slices, instants = self._trace.slices, self._trace.instants
        names = np.concatenate([slices.name[self._slices], instants.name[self._instants]])
        categories = np.concatenate(
            [slices.category[self._slices], instants.category[self._instants]]
        )
        strings = self._trace.strings
        self._name_iids, fields = _interned(_NAMES, names, strings)
        self._category_iids, more = _interned(_CATEGORIES, categories, strings, skip_empty=True)
        self._memory_iid = int(self._name_iids.max(initial=0)) + 1
        if len(self._memory):
            fields += _interned_string(_NAMES, self._memory_iid, "[memory]")
        return fields + more

    # -- slices -------------------------------------------------------------------------------

    def _slice_packets(self, rows: NDArray[np.intp]) -> Iterator[bytes]:
        slices = self._trace.slices
        end, line = self._writer.lines_of(rows)
        event = wire.side_by_side(
            self._beginnings.take(line),
            self._name(self._name_iids[slices.name[rows]]),
            self._category(slices.category[rows]),
        )
        arguments = self._arguments(slices.args_start[rows], slices.args_length[rows])
        tails = [self._writer.flows_of(rows), self._own(rows), arguments]
        begin = self._event_packet(slices.start_ns[rows], event, [t for t in tails if t])
        yield from self._new_interned()
        yield wire.splice(*begin, *self._event_packet(end, self._endings.take(line), []))

    def _own(self, rows: NDArray[np.intp]) -> Ragged | None:
        codes, values = self._writer.own_annotations()
        if not codes[rows].any():
            return None
        first, index = distinct_rows(codes[rows])
        distinct = codes[rows[first]].tolist()
        for code in distinct:
            if code not in self._own_bytes:
                own = {OWN_ANNOTATION: values[code - 1]}
                self._own_bytes[code] = self._annotations.of_dict(own)
        return Ragged.of([self._own_bytes[code] for code in distinct]).take(index)

    # -- instants, memory, counters -------------------------------------------------------------

    def _instant_packets(
        self, instants: Instants | MemoryEvents, uuids: UInt64, names: Int64, category: Int32
    ) -> Iterator[bytes]:
        event = wire.side_by_side(
            _type(_INSTANT, len(instants)),
            wire.varint_field(_TRACK, uuids),
            self._name(names),
            self._category(category),
        )
        arguments = self._arguments(instants.args_start, instants.args_length)
        tails = [] if arguments is None else [arguments]
        packets = wire.splice(*self._event_packet(instants.time_ns, event, tails))
        yield from self._new_interned()
        yield packets

    def _memory_packets(self, memory: MemoryEvents) -> Iterator[bytes]:
        row = np.full(len(memory), self._rows.memory_events, np.uint64)
        names = np.full(len(memory), self._memory_iid, np.int64)
        yield from self._instant_packets(memory, row, names, np.full(len(memory), NONE, np.int32))
        for (kind, index), uuids in self._rows.memory.items():
            here = (memory.device_type == kind) & (memory.device_id == index)
            for uuid, column in zip(
                uuids, (memory.total_allocated, memory.total_reserved), strict=True
            ):
                reported = here & (column != NONE)
                values = column[reported]
                if len(values):
                    track = np.full(len(values), uuid, np.uint64)
                    value = wire.varint_field(_INTEGER, values)
                    yield self._counter_packets(memory.time_ns[reported], track, value)

    def _counter_packets(self, time_ns: Int64, uuids: UInt64, value: Rows) -> bytes:
        event = wire.side_by_side(
            _type(_COUNTER, len(uuids)), wire.varint_field(_TRACK, uuids), value
        )
        return wire.splice(*self._event_packet(time_ns, event, []))

    # -- parts of a packet ----------------------------------------------------------------------

    def _event_packet(
        self, time_ns: Int64, event: Rows, tails: list[Ragged]
    ) -> list[Rows | Ragged]:
        """One packet per row around ``event``; ``tails`` are further fields of the event."""
        tail: Int64 = np.zeros(len(event), np.int64)
        for rows in tails:
            tail = tail + rows.lengths
        packet = wire.side_by_side(
            wire.varint_field(_TIMESTAMP, time_ns),
            wire.constant(self._later, len(event)),
            wire.message_field(_EVENT, event, tail=tail),
        )
        return [wire.message_field(_PACKET, packet, tail=tail), *tails]

    def _name(self, iids: Int64) -> Rows:
        return wire.varint_field(_NAME, iids, iids != 0)

    def _category(self, category: Int32) -> Rows:
        iids = self._category_iids[category]
        return wire.varint_field(_CATEGORY, iids, iids != 0)

    def _arguments(self, starts: Int64, lengths: Int32) -> Ragged | None:
        return self._annotations.of_rows(starts, lengths) if lengths.any() else None

    def _new_interned(self) -> Iterator[bytes]:
        fields = self._annotations.new_interned()
        if fields:
            yield _packet(self._later + wire.encode_field(_INTERNED, fields))


def _clock_snapshot() -> bytes:
    """Boot time and real time are the same number: times are already of the Unix epoch.

    The moment is the same in every file: trace_processor calls a snapshot that lies before an
    earlier one an error, and joined files come in any order.
    """
    clocks = [
        wire.encode_field(1, wire.encode_field(1, clock) + wire.encode_field(2, _SNAPSHOT_NS))
        for clock in (_BOOTTIME, _REALTIME)
    ]
    return b"".join(clocks)


def _own_annotations(trace: Trace) -> tuple[Int32, list[dict[str, Any]]]:
    """What is known about device rows: for every slice 0 or a position + 1 in the list."""
    codes = np.zeros(len(trace.slices), np.int32)
    rows = np.flatnonzero(trace.execution_of_slice != NONE)
    if not len(rows):
        return codes, []
    executions = trace.executions.take(trace.execution_of_slice[rows])
    known = (
        executions.source,
        executions.launch_link,
        executions.operator_link,
        executions.step,
        np.where(executions.operator == NONE, NONE, executions.name),
        (executions.replaced_by != NONE).astype(np.int8),
    )
    first, number = distinct_rows(*known)
    codes[rows] = number + 1
    distinct = np.stack([column[first].astype(np.int64) for column in known], axis=1)
    return codes, [_own_annotation(trace, *values) for values in distinct.tolist()]


def _own_annotation(
    trace: Trace, source: int, launch: int, operator: int, step: int, name: int, replaced: int
) -> dict[str, Any]:
    values: dict[str, Any] = {"device_time": Source(source).name.lower()}
    if replaced:
        values["replaced_by"] = "measured"
    if name != NONE:
        values["operator"] = trace.strings[name]
    if operator:
        values["operator_link"] = LinkKind(operator).name.lower()
    if launch:
        values["launch_link"] = LinkKind(launch).name.lower()
    if step != NONE:
        values["step"] = trace.steps.label(step)
    return values


def _interned(
    field: int, used: Int32, strings: list[str], skip_empty: bool = False
) -> tuple[Int64, bytes]:
    """Numbers for the strings in use, by string (0 for NONE and what is not in use)."""
    counts = np.bincount(used[used != NONE])
    distinct = np.flatnonzero(counts)
    counts = counts[distinct]
    iids = np.zeros(len(strings) + 1, np.int64)  # the last one is that of NONE
    fields = []
    by_use = distinct[np.argsort(-counts, kind="stable")].tolist()
    wanted = [n for n in by_use if strings[n]] if skip_empty else by_use
    for iid, number in enumerate(wanted, 1):
        iids[number] = iid
        fields.append(_interned_string(field, iid, strings[number]))
    return iids, b"".join(fields)


def _interned_string(field: int, iid: int, text: str) -> bytes:
    return wire.encode_field(field, wire.encode_field(1, iid) + wire.encode_field(2, text))


def _type(kind: int, count: int) -> Rows:
    return wire.constant(wire.encode_field(_TYPE, kind), count)


def _packet(body: bytes) -> bytes:
    return wire.encode_field(_PACKET, body)


def _by_time(keep: Bools, time_ns: Int64) -> NDArray[np.intp]:
    rows = np.flatnonzero(keep)
    return rows[np.argsort(time_ns[rows], kind="stable")]


def _by_process(rows: NDArray[np.intp], process: Int32) -> dict[int, NDArray[np.intp]]:
    """The rows of each process, their order kept; ``process`` has one entry per row of all."""
    order = np.argsort(process[rows], kind="stable")
    count = np.bincount(process[rows])
    distinct = np.flatnonzero(count)
    parts = np.split(rows[order], np.cumsum(count[distinct])[:-1])
    return dict(zip(distinct.tolist(), parts, strict=False))


def _shown_path(source: str) -> str:
    """The end of a path: files are passed on, and the folders above are nobody's business."""
    return "/".join(PurePath(source).parts[-3:])
