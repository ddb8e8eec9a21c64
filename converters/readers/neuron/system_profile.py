"""``system_profile.json``, as Neuron Explorer writes it (``view --output-format json``).

Both spellings of the row list are read (``trace_events`` of AWS's documents, ``trace_event`` of
newer files), a bare list of rows too, and the time columns of either generation (``timestamp``
and ``duration``, or ``start_ts`` and ``duration_ns``). Times are nanoseconds since the Unix
epoch; numbers may be written as text.

Format: AWS Neuron documentation, "Neuron Explorer", output formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.model import NONE, Bools, Int64, Trace
from neuron_tb.converters.model.numbers import integers
from neuron_tb.converters.readers.context import Context
from neuron_tb.converters.readers.json.chunks import Listing, chunks
from neuron_tb.converters.readers.json.document import Document
from neuron_tb.converters.readers.neuron.rows import NeuronTraceBuilder, Row, Sample

ROW_KEYS = ("trace_events", "trace_event")
_SAMPLE_KEYS = ("mem_usage", "cpu_util", "device_mem_usage")
_NS_PER_UNIT = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_DECODE = msgspec.json.Decoder(Row).decode
_DECODE_LIST = msgspec.json.Decoder(list[msgspec.Raw]).decode


def sniff(document: Document) -> bool:
    """Whether the document has a system profile's row list, or is a bare list of such rows."""
    row = document.first_row()
    return any(key in document.keys for key in ROW_KEYS) or (
        "name" in row and ("start_ts" in row or "timestamp" in row) and "ph" not in row
    )


def read(document: Document, context: Context) -> Trace:
    """Read one file: a process per (instance, process id), a device per logical NeuronCore."""
    builder = NeuronTraceBuilder(document.path, context)
    for listing in _listings(document):
        for chunk in _chunks(document, listing):
            raws, rows = _rows(chunk, builder)
            time, duration, usable = _times(rows, builder)
            if not usable.all():
                kept = np.flatnonzero(usable).tolist()
                raws, rows = [raws[row] for row in kept], [rows[row] for row in kept]
                time, duration = time[usable], duration[usable]
            builder.add_rows(rows, raws, time, duration)
    builder.add_samples(_samples(document))
    builder.add_warnings(_warnings(document))
    return builder.finish(document.decoded(*ROW_KEYS, *_SAMPLE_KEYS))


def _listings(document: Document) -> list[Listing]:
    if document.array:
        return [document.listing()]
    return [document.listing(key) for key in ROW_KEYS if key in document.keys]


def _chunks(document: Document, listing: Listing) -> Iterator[list[msgspec.Raw]]:
    try:
        for chunk in chunks(listing, _DECODE_LIST):
            yield chunk.rows
    except msgspec.ValidationError as error:
        raise NeuronTbError(f"{document.path}: its event rows are no list.") from error


def _rows(
    raws: list[msgspec.Raw], builder: NeuronTraceBuilder
) -> tuple[list[msgspec.Raw], list[Row]]:
    try:
        return raws, list(map(_DECODE, raws))
    except msgspec.ValidationError:
        pass
    kept, rows = [], []
    for raw in raws:
        try:
            rows.append(_DECODE(raw))
            kept.append(raw)
        except msgspec.ValidationError:
            builder.findings.add("not_an_event", "rows that are no objects were left out")
    return kept, rows


def _times(rows: Sequence[Row], builder: NeuronTraceBuilder) -> tuple[Int64, Int64, Bools]:
    """Start, duration (NONE when unknown) and which rows have a usable time, nanoseconds."""
    start = integers([r.timestamp if r.timestamp is not None else r.start_ts for r in rows])
    length = integers([r.duration_ns if r.duration_ns is not None else r.duration for r in rows])
    scale = np.array([_NS_PER_UNIT.get(str(r.timestamp_unit or "ns"), 0) for r in rows], np.int64)
    unknown = scale == 0
    builder.findings.add(
        "unit_unknown",
        "rows in an unknown unit of time were left out",
        int(np.count_nonzero(unknown)),
    )
    start, length = start * scale, np.where(length < 0, NONE, length * scale)
    usable = start > 0
    builder.findings.add(
        "time_out_of_range",
        "rows without a time, or at time 0, were left out",
        int(np.count_nonzero(~usable & ~unknown)),
    )
    builder.findings.add(
        "unfinished",
        "rows without a duration are shown as instants",
        int(np.count_nonzero(usable & (length < 0))),
    )
    return start, length, usable


def _samples(document: Document) -> Iterator[Sample]:
    for row in _table(document, "mem_usage"):
        host, time = str(row.get("instance_id", "")), row.get("timestamp")
        yield "Host memory used", "bytes", time, row.get("usage"), host
    for row in _table(document, "cpu_util"):
        host, time = str(row.get("instance_id", "")), row.get("timestamp")
        yield f"Host CPU {row.get('cpu_id', 'average')}", "%", time, row.get("util"), host
    for row in _table(document, "device_mem_usage"):
        host, time = str(row.get("instance_id", "")), row.get("timestamp")
        place = f"HBM {row.get('hbm_idx', 0)}"
        if row.get("device_idx") is not None:
            place = f"device {row['device_idx']} {place}"
        for key, value in row.items():
            if key.endswith("_bytes"):
                kind = key.removesuffix("_bytes").replace("_", " ")
                yield f"{place} {kind}", "bytes", time, value, host


def _warnings(document: Document) -> Iterator[str]:
    raw = document.keys.get("warnings")
    rows = document.value(raw) if raw is not None else None
    for row in rows if isinstance(rows, list) else []:
        yield str(row.get("message", row)) if isinstance(row, dict) else str(row)


def _table(document: Document, key: str) -> list[dict[str, Any]]:
    raw = document.keys.get(key)
    rows = document.value(raw) if raw is not None else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
