"""Rows of an Arrow table as JSON objects, made column by column.

A table of a million rows gives its texts without a Python object per row, except for columns of
lists and structures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neuron_tb.converters.model import Int64

_ENCODE = msgspec.json.Encoder(enc_hook=str).encode
_NOTHING = pa.scalar("", pa.large_string())
_EMPTY = np.empty(0, np.int64)


def json_texts(
    table: pa.Table, columns: Sequence[str], ready: Mapping[str, pa.Array] | None = None
) -> tuple[bytes, Int64]:
    """One JSON object per row with these columns; nulls and numbers that JSON lacks are absent.

    ``ready``: further columns, whose values are JSON text (``large_string``) already. Returns the
    objects back to back, and their lengths, shape (rows,).
    """
    if not len(table):
        return b"", _EMPTY
    values: dict[str, Any] = {name: _column(table[name]) for name in columns}
    values |= ready or {}
    values = {name: v for name, v in values.items() if v is not None and v.null_count < len(v)}
    if not values:
        return b"{}" * len(table), np.full(len(table), 2, np.int64)
    # Every member begins with a comma. One that is in all rows may be the first and do without.
    first = next((name for name, v in values.items() if not v.null_count), None)
    pieces: list[Any] = []
    if first is not None:
        pieces = [_text(f"{{{_key(first)}"), values.pop(first)]
    for name, text in values.items():
        pieces += [_text(f",{_key(name)}"), text] if not text.null_count else [_member(name, text)]
    if first is None:
        members = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*pieces, _NOTHING), 1)
        pieces = [_text("{"), members]
    joined = pc.binary_join_element_wise(*pieces, _text("}"), _NOTHING)
    if isinstance(joined, pa.ChunkedArray):
        joined = joined.combine_chunks()
    lengths = pc.binary_length(joined).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = np.frombuffer(joined.buffers()[1], np.int64)[joined.offset :][: len(joined) + 1]
    data = joined.buffers()[2]
    text = b"" if data is None else data.to_pybytes()[int(offsets[0]) : int(offsets[-1])]
    return text, lengths


def _column(column: pa.ChunkedArray) -> pa.Array | None:
    """The values as JSON, null where there is none; None for no value at all."""
    if column.null_count == len(column):
        return None
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # a single chunk, in some versions of Arrow
        values = pa.concat_arrays(values.chunks)
    kind = values.type
    if pa.types.is_floating(kind):
        values = pc.if_else(pc.is_finite(values), values, pa.scalar(None, kind))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return pc.cast(values, pa.large_string())
    if pa.types.is_list(kind) and _is_plain_text(values.flatten()):
        return _lists_of_text(values)
    return _by_distinct_value(values)


def _member(name: str, text: pa.Array) -> pa.Array:
    """``,"name":text`` of every row, empty where there is no text."""
    return pc.fill_null(pc.binary_join_element_wise(_text(f",{_key(name)}"), text, _NOTHING), "")


def _key(name: str) -> str:
    return f"{_ENCODE(name).decode()}:"


def _is_plain_text(values: pa.Array) -> bool:
    """Whether all values are text that stands in JSON as it is."""
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return False
    special = pc.match_substring_regex(values, r'["\\\x00-\x1f]')
    return not values.null_count and not pc.any(special).as_py()


def _lists_of_text(lists: pa.Array) -> pa.Array:
    """Lists of plain text as JSON, null where there is no list."""
    values = pc.cast(lists.flatten(), pa.large_string())
    quoted = pc.binary_join_element_wise(_text('"'), values, _text('"'), _NOTHING)
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    ends = pa.array(np.concatenate([[0], np.cumsum(counts)]))
    joined = pc.binary_join(pa.LargeListArray.from_arrays(ends, quoted), _text(","))
    text = pc.binary_join_element_wise(_text("["), joined, _text("]"), _NOTHING)
    return pc.if_else(pc.is_valid(lists), text, pa.scalar(None, pa.large_string()))


def _by_distinct_value(values: pa.Array) -> pa.Array:
    try:
        encoded = values.dictionary_encode()
    except pa.ArrowException:  # lists and structures
        return _texts_of(values.to_pylist())
    return _texts_of(encoded.dictionary.to_pylist()).take(encoded.indices)


def _texts_of(values: Sequence[Any]) -> pa.Array:
    texts = (None if value is None else _ENCODE(value).decode() for value in values)
    return pa.array(texts, pa.large_string())


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())
