"""Rows of an Arrow table as JSON objects, made column by column.

A table of a million rows gives its texts without a Python object per row, except for columns of
lists and structures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neuron_tb.converters.trace import Int64

_ENCODE = msgspec.json.Encoder(enc_hook=str).encode
_NOTHING = pa.scalar("", pa.large_string())
_EMPTY = np.empty(0, np.int64)


def json_texts(table: pa.Table, columns: Sequence[str]) -> tuple[bytes, Int64]:
    """One JSON object per row with these columns; nulls and numbers that JSON lacks are absent.

    Returns the objects back to back, and their lengths, shape (rows,).
    """
    if not len(table):
        return b"", _EMPTY
    texts = [_column(table[name], name) for name in columns]
    texts = [text for text in texts if text is not None]
    if not texts:
        return b"{}" * len(table), np.full(len(table), 2, np.int64)
    # Every member begins with a comma; the first one's is cut off.
    members = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*texts, _NOTHING), 1)
    joined = pc.binary_join_element_wise(_text("{"), members, _text("}"), _NOTHING)
    if isinstance(joined, pa.ChunkedArray):
        joined = joined.combine_chunks()
    lengths = pc.binary_length(joined).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = np.frombuffer(joined.buffers()[1], np.int64)[joined.offset :][: len(joined) + 1]
    data = joined.buffers()[2]
    text = b"" if data is None else data.to_pybytes()[int(offsets[0]) : int(offsets[-1])]
    return text, lengths


def _column(column: pa.ChunkedArray, name: str) -> pa.Array | None:
    """``,"name":value`` of every row, empty where there is none; None for no value at all."""
    if column.null_count == len(column):
        return None
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # a single chunk, in some versions of Arrow
        values = pa.concat_arrays(values.chunks)
    key = f",{_ENCODE(name).decode()}:"
    kind = values.type
    if pa.types.is_floating(kind):
        values = pc.if_else(pc.is_finite(values), values, pa.scalar(None, kind))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        text = pc.cast(values, pa.large_string())
    else:
        text = _by_distinct_value(values)
    return pc.fill_null(pc.binary_join_element_wise(_text(key), text, _NOTHING), "")


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
