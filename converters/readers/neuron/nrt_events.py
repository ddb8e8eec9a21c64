"""The runtime's own event dump: ``nrt_sys_trace_fetch_events``, ``{"events": […]}``.

Format: ``nrt_sys_trace.h`` of AWS's Neuron runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.model import NONE, Int32, Trace
from neuron_tb.converters.model.numbers import integer, integers
from neuron_tb.converters.readers.context import Context
from neuron_tb.converters.readers.json.document import Document
from neuron_tb.converters.readers.neuron.rows import NeuronTraceBuilder
from neuron_tb.converters.readers.neuron.runtime_events import PHASES, RuntimeEvents, add_events

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


_DECODE = msgspec.json.Decoder(_Event).decode
_PHASE_NUMBERS = {name: number for number, name in enumerate(PHASES)}


def sniff(document: Document) -> bool:
    """Whether the document is ``{"events": [{"event_type": …}]}``."""
    raw = document.keys.get("events")
    return raw is not None and b'"event_type"' in bytes(memoryview(raw)[:100_000])


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
    types, type_number = _numbered([e.event_type for e in events])
    instances, instance = _numbered([e.instance_id for e in events])
    data = [e.data if isinstance(e.data, dict) else {} for e in events]
    columns = RuntimeEvents(
        type=type_number,
        phase=np.fromiter((_phase(e.phase) for e in events), np.uint8, len(events)),
        instance=instance,
        process=integers([e.process_id for e in events]),
        thread=integers([e.thread_id for e in events]),
        core=integers([e.nc_idx for e in events]),
        physical_core=integers([d.get("device_core_idx") for d in data]),
        tracking=integers([e.tracking_id for e in events]),
        time_ns=integers([e.timestamp_ns for e in events]),
        device_ns=integers([d.get("nc_timestamp_ns") for d in data]),
        host_ns=integers([d.get("cpu_timestamp_ns") for d in data]),
        sequence_id=integers([e.nrta_seq_id for e in events]),
        exec_id=integers([d.get("exec_id") for d in data]),
        bytes=integers([d.get("size", d.get("total_size")) for d in data]),
    )
    add_events(builder, columns, types, instances, raws)
    return builder.finish(document.decoded("events"))


def _events(document: Document, builder: NeuronTraceBuilder) -> tuple[list[_Event], list[bytes]]:
    events: list[_Event] = []
    raws: list[bytes] = []
    for raw in msgspec.json.decode(document.keys["events"], type=list[msgspec.Raw] | None) or ():
        try:
            events.append(_DECODE(raw))
        except msgspec.ValidationError:
            builder.findings.add("not_an_event", "rows that are no objects were left out")
            continue
        raws.append(bytes(raw))
    return events, raws


def _numbered(values: Sequence[object]) -> tuple[list[str], Int32]:
    """Distinct values as text, and which of them each is; NONE for None."""
    numbers: dict[object, int] = {None: NONE}
    found = np.empty(len(values), np.int32)
    for row, value in enumerate(values):
        key = value if isinstance(value, str | None) else str(value)
        if key not in numbers:
            numbers[key] = len(numbers) - 1
        found[row] = numbers[key]
    return [str(key) for key in numbers if key is not None], found


def _phase(value: object) -> int:
    return _PHASE_NUMBERS.get(value, 0) if isinstance(value, str) else 0
