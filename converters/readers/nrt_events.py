"""The runtime's own event dump: ``nrt_sys_trace_fetch_events``, ``{"events": […]}``.

Events come as starts and stops that share a tracking id; the runtime's ring buffers overwrite
the oldest, so stops without a start at the beginning and starts without a stop at the end are
normal. Hardware events carry the device's clock beside the host's: their length is a
difference of device times and their place is the host's time. The two are never mixed.

Format: ``nrt_sys_trace.h`` of AWS's Neuron runtime.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.readers.columns import integer
from neuron_tb.converters.readers.document import Context, Document
from neuron_tb.converters.readers.neuron_rows import HARDWARE_NAMES, NeuronTraceBuilder, Row
from neuron_tb.converters.trace import NONE, Trace

KNOWN_VERSION = 2


class _Event(msgspec.Struct, gc=False):
    event_type: Any = None
    phase: Any = None
    nc_idx: Any = None
    tracking_id: Any = None
    thread_id: Any = None
    process_id: Any = None
    instance_id: Any = None
    timestamp_ns: Any = None
    nrta_seq_id: Any = None
    data: Any = None

    def of_data(self, key: str) -> Any:
        """A value of the event's data, None when absent."""
        return self.data.get(key) if isinstance(self.data, dict) else None


_DECODE = msgspec.json.Decoder(_Event).decode


def sniff(document: Document) -> bool:
    """Whether the document is ``{"events": [{"event_type": …}]}``."""
    raw = document.keys.get("events")
    return raw is not None and b'"event_type"' in bytes(raw)[:100_000]


def read(document: Document, context: Context) -> Trace:
    """Read one dump: one process, a device per logical NeuronCore."""
    builder = NeuronTraceBuilder(document.path, context)
    version = integer(document.value(document.keys.get("data_version", msgspec.Raw(b"null"))))
    if version > KNOWN_VERSION:
        builder.findings.add(
            "newer_version",
            f"the event dump has data version {version}, newer than {KNOWN_VERSION}; what is known "
            "of it was read",
        )
    events, raws = _events(document, builder)
    pairs, points = _pair(events, builder)
    rows: list[Row] = []
    texts: list[bytes] = []
    times: list[int] = []
    lengths: list[int] = []
    for first, last in pairs:
        start, stop = events[first], events[last]
        rows.append(_row(start))
        texts.append(_joined(raws[first], raws[last]))
        times.append(integer(start.timestamp_ns))
        lengths.append(_length(start, stop))
    for number in points:
        rows.append(_row(events[number]))
        texts.append(raws[number])
        times.append(integer(events[number].timestamp_ns))
        lengths.append(NONE)
    builder.findings.add(
        "stop_before_start",
        "events that stop before they start are shown as instants",
        sum(length < 0 for length in lengths[: len(pairs)]),
    )
    builder.add_rows(rows, texts, np.array(times, np.int64), np.array(lengths, np.int64))
    return builder.finish(document.decoded("events"))


def _events(document: Document, builder: NeuronTraceBuilder) -> tuple[list[_Event], list[bytes]]:
    events: list[_Event] = []
    raws: list[bytes] = []
    timeless = 0
    for raw in msgspec.json.decode(document.keys["events"], type=list[msgspec.Raw] | None) or ():
        try:
            event = _DECODE(raw)
        except msgspec.ValidationError:
            builder.findings.add("not_an_event", "rows that are no objects were left out")
            continue
        if integer(event.timestamp_ns) <= 0:
            timeless += 1
            continue
        events.append(event)
        raws.append(bytes(raw))
    builder.findings.add(
        "time_out_of_range", "rows without a time, or at time 0, were left out", timeless
    )
    return events, raws


def _pair(
    events: list[_Event], builder: NeuronTraceBuilder
) -> tuple[list[tuple[int, int]], list[int]]:
    """(start, stop) positions that belong together, and positions of everything else."""
    open_starts: dict[tuple[object, ...], list[int]] = defaultdict(list)
    pairs: list[tuple[int, int]] = []
    points: list[int] = []
    lonely = 0
    for number in sorted(range(len(events)), key=lambda n: integer(events[n].timestamp_ns)):
        event = events[number]
        key = (
            integer(event.process_id),
            integer(event.nc_idx),
            str(event.event_type),
            integer(event.tracking_id),
        )
        if event.phase == "start":
            open_starts[key].append(number)
        elif event.phase == "stop" and open_starts[key]:
            pairs.append((open_starts[key].pop(0), number))
        else:
            lonely += event.phase == "stop"
            points.append(number)
    unfinished = [number for numbers in open_starts.values() for number in numbers]
    builder.findings.add(
        "stop_without_start",
        "stops without a start (overwritten in the ring buffer) are shown as instants",
        lonely,
    )
    builder.findings.add(
        "start_without_stop",
        "starts without a stop (not finished when recording ended) are shown as instants",
        len(unfinished),
    )
    return pairs, points + unfinished


def _length(start: _Event, stop: _Event) -> int:
    """Nanoseconds on one clock: the device's for hardware events, where both ends have it."""
    begin, end = integer(start.of_data("nc_timestamp_ns")), integer(stop.of_data("nc_timestamp_ns"))
    if str(start.event_type) in HARDWARE_NAMES and begin != NONE and end != NONE:
        return max(end - begin, NONE)
    return max(integer(stop.timestamp_ns) - integer(start.timestamp_ns), NONE)


def _row(event: _Event) -> Row:
    return Row(
        name=event.event_type,
        instance_id=event.instance_id,
        process_id=event.process_id,
        thread_id=event.thread_id,
        nc_idx=event.nc_idx,
        device_core_idx=event.of_data("device_core_idx"),
        exec_id=event.of_data("exec_id"),
        nrta_seq_id=event.nrta_seq_id,
    )


def _joined(start: bytes, stop: bytes) -> bytes:
    """Arguments of a pair: both events, whole."""
    return b'{"start":' + start + b',"stop":' + stop + b"}"
