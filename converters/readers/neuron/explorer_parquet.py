"""Neuron Explorer's Parquet, system tables (``view --output-format parquet``).

One file per table, ``<Table>.parquet`` or split as ``<Table>_0.parquet``, ``<Table>_1.parquet``.
Columns are taken by name and may be absent; the schema has changed its major version several
times, so what is not known is named and, in events, kept in the arguments. Times are
nanoseconds since the Unix epoch.

Format: AWS Neuron documentation, Neuron Explorer's Parquet schema, version 7.4.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.model import NONE, Int64, Trace
from neuron_tb.converters.model.numbers import integer, integers
from neuron_tb.converters.readers.context import Context
from neuron_tb.converters.readers.device.names import TABLES as OF_DEVICE_PROFILES
from neuron_tb.converters.readers.device.tables import encoded_column, plain_value
from neuron_tb.converters.readers.json.texts import json_texts
from neuron_tb.converters.readers.neuron.rows import (
    FlowTexts,
    NeuronTraceBuilder,
    Row,
    Sample,
    split_flow_id,
)
from neuron_tb.converters.readers.parquet_file import as_texts, read_parquet

EVENTS = "SystemProfileEvents"

_READ_TABLES = (
    EVENTS,
    "CpuUsage",
    "HostMemUsage",
    "SystemProfileHbmUsage",
    "SystemProfileMetadata",
    "Warning",
    "SchemaFields",
    "DeviceProfileList",
)
_TIME_COLUMNS = ("start_ts", "end_ts", "duration_ns")
_PLACE_COLUMNS = (
    "name",
    "trace_event_source",
    "instance_id",
    "process_id",
    "thread_id",
    "nc_idx",
    "pcore_idx",
    "framework_stream_id",
)
_ARGUMENT_COLUMNS = ("id", "worker_gid", "flow_id", "extra_attributes_json")
_KNOWN_COLUMNS = {*_TIME_COLUMNS, *_PLACE_COLUMNS, *_ARGUMENT_COLUMNS}


class _Extra(msgspec.Struct, gc=False):
    exec_id: Any = None
    nrt_sequence_id: Any = None
    nrta_seq_id: Any = None


_FIRST_SEQUENCE = 1 << 48
_DECODE_EXTRA = msgspec.json.Decoder(_Extra).decode


@dataclass
class _Tables:
    """The tables of one directory, or one table file: file lists by table name."""

    files: dict[str, list[Path]] = field(default_factory=dict)

    @classmethod
    def at(cls, path: Path) -> _Tables:
        tables = cls()
        for file in sorted(path.glob("*.parquet")) if path.is_dir() else [path]:
            name = re.sub(r"_\d+$", "", file.stem)
            tables.files.setdefault(name, []).append(file)
        return tables

    def read(self, name: str) -> pa.Table | None:
        """All parts of a table; None when it is absent."""
        if name not in self.files:
            return None
        try:
            parts = [read_parquet(file) for file in self.files[name]]
            return pa.concat_tables(parts, promote_options="permissive")
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0]
            raise NeuronTbError(f"{self.files[name][0]} cannot be read: {reason}") from error


def read(path: Path, context: Context) -> Trace:
    """Read the system tables of a directory, or one table file."""
    tables = _Tables.at(path)
    builder = NeuronTraceBuilder(path, context)
    events = tables.read(EVENTS)
    if events is None:
        name = next(iter(tables.files), path.name)
        raise NeuronTbError(
            f"{path} holds no system events ({EVENTS}.parquet), only the table {name}."
        )
    _check_units(tables, builder)
    _add_events(events, builder)
    builder.add_samples(_samples(tables))
    builder.add_warnings(_warnings(tables))
    others = sorted(set(tables.files) - {*_READ_TABLES, *OF_DEVICE_PROFILES})
    builder.findings.add(
        "table_not_read",
        f"tables that are not read here: {', '.join(others)}",
        len(others),
        where=str(path),
    )
    return builder.finish(_metadata(tables))


def _check_units(tables: _Tables, builder: NeuronTraceBuilder) -> None:
    fields = tables.read("SchemaFields")
    if fields is None or "field_unit" not in fields.column_names:
        return
    for row in fields.to_pylist():
        if row.get("table_name") == EVENTS and row.get("field_name") in _TIME_COLUMNS:
            unit = str(row.get("field_unit") or "ns").lower()
            if unit not in ("ns", "nanosecond", "nanoseconds"):
                raise NeuronTbError(
                    f"{EVENTS}.{row['field_name']} is in {unit}, where nanoseconds are known."
                )


# -- events ---------------------------------------------------------------------------------


def _add_events(table: pa.Table, builder: NeuronTraceBuilder) -> None:
    start, length = _times(table)
    usable = start > 0
    builder.findings.add(
        "time_out_of_range",
        "rows without a time, or at time 0, were left out",
        int(np.count_nonzero(~usable)),
    )
    if not usable.all():
        table = table.filter(pa.array(usable))
        start, length = start[usable], length[usable]
    builder.findings.add(
        "unfinished",
        "rows without a duration are shown as instants",
        int(np.count_nonzero(length < 0)),
    )
    unknown = [c for c in table.column_names if c not in _KNOWN_COLUMNS]
    builder.findings.add(
        "unknown_columns",
        f"columns of {EVENTS} that are not known here are kept as arguments: {', '.join(unknown)}",
        len(unknown),
    )
    kinds, kind_of_row = _kinds(table)
    sequence, exec_id, flows = _flow_ids(table)
    extra, broken = _extra(table, sequence, exec_id)
    builder.findings.add(
        "extra_attributes_text",
        "extra attributes that are not valid JSON are kept as text",
        broken,
    )
    arguments = _arguments(table, unknown, extra)
    builder.add_table(kinds, kind_of_row, start, length, sequence, exec_id, arguments, flows)


def _times(table: pa.Table) -> tuple[Int64, Int64]:
    start = _integers(table, "start_ts")
    length = _integers(table, "duration_ns")
    if "end_ts" in table.column_names:
        end = _integers(table, "end_ts")
        length = np.where((length < 0) & (end >= start) & (start > 0), end - start, length)
    return start, np.maximum(length, NONE)


def _integers(table: pa.Table, name: str) -> Int64:
    """A column as int64, NONE where it is null, no number, or absent."""
    if name not in table.column_names:
        return np.full(len(table), NONE, np.int64)
    column = table[name]
    if pa.types.is_integer(column.type) and column.type != pa.uint64():
        found: Int64 = (
            pc.fill_null(column.cast(pa.int64()), NONE).to_numpy().astype(np.int64, copy=False)
        )
        return found
    return np.fromiter((integer(v) for v in column.to_pylist()), np.int64, len(table))


def _kinds(table: pa.Table) -> tuple[list[Row], NDArray[np.intp]]:
    """One Row per distinct name and place, and which of them each row of the table is."""
    code = np.zeros(len(table), np.int64)
    for name in _PLACE_COLUMNS:
        if name in table.column_names:
            encoded = encoded_column(table[name])
            indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            _, code = np.unique(code * (len(encoded.dictionary) + 1) + indices, return_inverse=True)
            code = code.reshape(-1)
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    # In order of appearance, so that names and rows are numbered as in the file.
    order = np.argsort(first)
    rank = np.empty(len(order), np.intp)
    rank[order] = np.arange(len(order))
    present = [name for name in _PLACE_COLUMNS if name in table.column_names]
    places = table.select(present).take(pa.array(first[order])).to_pylist()
    return [Row(**place) for place in places], rank[kind.reshape(-1)]


def _flow_ids(table: pa.Table) -> tuple[Int64, Int64, FlowTexts]:
    sequence = np.full(len(table), NONE, np.int64)
    exec_id = np.full(len(table), NONE, np.int64)
    flows: FlowTexts = []
    if "flow_id" not in table.column_names:
        return sequence, exec_id, flows
    column = table["flow_id"].combine_chunks()
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        rows = pc.list_parent_indices(column).to_numpy()
        values = pc.list_flatten(column)
    else:
        rows, values = np.arange(len(table)), column
    plain, given = _plain_numbers(values)
    is_sequence = plain & (given >= _FIRST_SEQUENCE)
    is_execution = plain & (given < _FIRST_SEQUENCE)
    sequence[rows[is_sequence]] = given[is_sequence]
    exec_id[rows[is_execution]] = given[is_execution]
    others = values.filter(pa.array(~plain))
    for row, value in zip(rows[~plain].tolist(), others.to_pylist(), strict=True):
        if value is None:
            continue
        kind, found = split_flow_id(value)
        if kind == "text":
            flows.append((str(found), row))
        else:
            (sequence if kind == "sequence" else exec_id)[row] = found
    return sequence, exec_id, flows


def _plain_numbers(values: pa.Array) -> tuple[NDArray[np.bool_], Int64]:
    """Which values are numbers, or text of a number as Python writes it, and those numbers."""
    if pa.types.is_integer(values.type) and values.type != pa.uint64():
        numbers = values
    elif pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        is_number = pc.match_substring_regex(values, "^(0|[1-9][0-9]{0,17})$")
        numbers = pc.if_else(is_number, values, pa.scalar(None, values.type))
    else:
        return np.zeros(len(values), np.bool_), np.zeros(len(values), np.int64)
    plain = pc.is_valid(numbers).to_numpy(zero_copy_only=False)
    return plain, pc.fill_null(numbers.cast(pa.int64()), 0).to_numpy()


def _extra(table: pa.Table, sequence: Int64, exec_id: Int64) -> tuple[pa.Array | None, int]:
    """Extra attributes as JSON (text that is none as a JSON string); fills in identifiers."""
    if "extra_attributes_json" not in table.column_names:
        return None, 0
    column = as_texts(table["extra_attributes_json"])
    texts = column.to_pylist()
    rows = pc.indices_nonzero(pc.is_valid(column)).to_numpy().astype(np.int64)
    present = [text for text in texts if text is not None]
    try:
        found = list(map(_DECODE_EXTRA, present))
        broken: list[int] = []
    except msgspec.MsgspecError:
        found, broken = _one_by_one(present)
        for number in broken:
            texts[rows[number]] = json.dumps(present[number], ensure_ascii=False)
        column = pa.array(texts, pa.large_string())
    own = [e.nrt_sequence_id if e.nrta_seq_id is None else e.nrta_seq_id for e in found]
    _fill(sequence, rows, own)
    _fill(exec_id, rows, [e.exec_id for e in found])
    return column.cast(pa.large_string()), len(broken)


def _one_by_one(texts: Sequence[str]) -> tuple[list[_Extra], list[int]]:
    """Attributes of every text, empty where it is no JSON object, and which those are."""
    found, broken = [], []
    for number, text in enumerate(texts):
        try:
            found.append(_DECODE_EXTRA(text))
        except msgspec.MsgspecError:
            broken.append(number)
            found.append(_Extra())
    return found, broken


def _fill(numbers: Int64, rows: Int64, values: list[Any]) -> None:
    """Set the numbers of rows that have a value."""
    given = values.count(None) < len(values)
    if given:
        has = np.fromiter((value is not None for value in values), np.bool_, len(values))
        numbers[rows[has]] = integers([value for value in values if value is not None])


def _arguments(table: pa.Table, unknown: list[str], extra: pa.Array | None) -> tuple[bytes, Int64]:
    """The columns that place nothing, as one JSON object per row, and the objects' lengths."""
    shown = [c for c in ("id", "worker_gid", "flow_id", *unknown) if c in table.column_names]
    return json_texts(table, shown, {} if extra is None else {"extra_attributes": extra})


# -- samples, warnings, metadata --------------------------------------------------------------


def _samples(tables: _Tables) -> Iterator[Sample]:
    for row in _rows(tables, "HostMemUsage"):
        yield "Host memory used", "bytes", row.get("timestamp"), row.get("used_bytes"), _host(row)
    for row in _rows(tables, "CpuUsage"):
        label = f"Host CPU {row.get('cpu_id', 'average')}"
        yield label, "%", row.get("timestamp"), row.get("util_percent"), _host(row)
    for row in _rows(tables, "SystemProfileHbmUsage"):
        place = f"HBM {row.get('hbm_idx', 0)}"
        if row.get("device_idx") is not None:
            place = f"device {row['device_idx']} {place}"
        for key, value in row.items():
            if key.endswith("_bytes") and value is not None:
                kind = key.removesuffix("_bytes").replace("_", " ")
                yield f"{place} {kind}", "bytes", row.get("timestamp"), value, _host(row)


def _host(row: dict[str, Any]) -> str:
    return str(row.get("instance_id") or "")


def _rows(tables: _Tables, name: str) -> list[dict[str, Any]]:
    table = tables.read(name)
    found = [] if table is None else table.to_pylist()
    return [{key: plain_value(value) for key, value in row.items()} for row in found]


def _warnings(tables: _Tables) -> Iterator[str]:
    for row in _rows(tables, "Warning"):
        yield str(row.get("message") or ", ".join(str(v) for v in row.values() if v is not None))


def _metadata(tables: _Tables) -> dict[str, Any]:
    found = {}
    for name in ("SystemProfileMetadata", "DeviceProfileList"):
        rows = _rows(tables, name)
        if rows:
            found[name] = rows
    return found
