"""Reading one Parquet file, which is untrusted: its size first, then its content as a whole."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from neuron_tb.converters.readers.json import bounds

# pyarrow 15 and later compare the checksums of pages, where a file has them.
_CHECKED = {
    name: True
    for name in ("page_checksum_verification",)
    if name in inspect.signature(pq.ParquetFile.__init__).parameters
}


_PLAIN = (
    *(pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null),
    *(pa.types.is_string, pa.types.is_large_string),
)


def read_parquet(file: Path) -> pa.Table:
    """All rows of a file: numbers, texts, truth values, and lists and structures of these.

    Times (of a calendar, or lengths) become nanoseconds, all other types the text that they
    stand for.

    Raises NeuronTbError where its footer claims more than a file of its size may hold, and
    Arrow's exceptions where it is damaged.
    """
    with pq.ParquetFile(file, **_CHECKED) as parquet:
        meta = parquet.metadata
        groups = (meta.row_group(number) for number in range(meta.num_row_groups))
        unpacked = sum(max(group.total_byte_size, 0) for group in groups)
        bounds.check_table(file, meta.num_rows, meta.num_columns, unpacked)
        table = parquet.read()
    table.validate(full=True)  # text that is not UTF-8, offsets that point outside
    if len(set(table.column_names)) < table.num_columns:
        raise pa.ArrowInvalid("several of its columns have one name")
    for number, field in enumerate(table.schema):
        if not _is_plain(field.type):
            table = table.set_column(number, field.name, _as_plain(table.column(number)))
    return table


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_plain(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_plain(kind.field(number).type) for number in range(kind.num_fields))
    return kind != pa.float16() and any(check(kind) for check in _PLAIN)


def _as_plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column, kind = column.cast(kind.storage_type), kind.storage_type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if kind == pa.float16():
        return column.cast(pa.float32())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("ns", kind.tz)).cast(pa.int64())
    if pa.types.is_duration(kind):
        return column.cast(pa.duration("ns")).cast(pa.int64())
    if _is_plain(kind):
        return column
    return pa.chunked_array([as_texts(column)])


def as_texts(column: pa.ChunkedArray) -> pa.Array:
    """A column as texts; lists and structures as JSON."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.combine_chunks()
    texts = [None if value is None else _text(value) for value in column.to_pylist()]
    return pa.array(texts, pa.large_string())


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | dict):
        return msgspec.json.encode(value, enc_hook=str).decode()
    return str(value)
