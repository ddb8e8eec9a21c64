"""Column-wise protobuf encoding.

A message per event, built from columns: every field of all rows is encoded at once, as a block
of bytes (rows x width) with a mask of the bytes that exist. Fields stand side by side, nested
messages get their length from the mask, and the wire form is one masked copy. Nothing here
knows a schema, and nothing runs per event in Python.

Wire format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.trace import Bools, Int32, Int64, UInt8

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_LONGEST_VARINT = 10


@dataclass(frozen=True, slots=True)
class Rows:
    """Encoded bytes of n rows: ``block`` and ``mask`` of shape (n, width); holes are allowed."""

    block: UInt8
    mask: Bools

    def __len__(self) -> int:
        return len(self.block)

    @property
    def lengths(self) -> Int64:
        """Bytes per row, shape (n,)."""
        lengths: Int64 = self.mask.sum(axis=1, dtype=np.int64)
        return lengths

    def tobytes(self) -> bytes:
        """All rows, one after the other."""
        return self.block[self.mask].tobytes()


@dataclass(frozen=True, slots=True)
class Ragged:
    """Byte strings of very different lengths, back to back: ``data`` and n ``lengths``."""

    data: UInt8
    lengths: Int64

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> Ragged:
        """One row per byte string."""
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        return cls(np.frombuffer(b"".join(texts), np.uint8), lengths)

    @classmethod
    def gather(cls, data: bytes | UInt8, starts: Int64, lengths: Int64 | Int32) -> Ragged:
        """One row per range of ``data``."""
        lengths = lengths.astype(np.int64)
        first = np.cumsum(lengths) - lengths
        index = np.repeat(starts - first, lengths)
        index += np.arange(len(index))
        return cls(np.frombuffer(data, np.uint8)[index], lengths)

    def take(self, rows: NDArray[np.integer]) -> Ragged:
        """The rows at these positions, which may repeat."""
        starts = np.cumsum(self.lengths) - self.lengths
        return Ragged.gather(self.data, starts[rows], self.lengths[rows])

    def tobytes(self) -> bytes:
        """All rows, one after the other."""
        return self.data.tobytes()


def varint(values: NDArray[np.integer]) -> Rows:
    """Each value as a base-128 varint; negative values take ten bytes, as protobuf's int64."""
    rest = (
        values.astype(np.int64, copy=False).view(np.uint64) if values.dtype != np.uint64 else values
    )
    largest = int(rest.max(initial=0))
    width = max(1, -(-largest.bit_length() // 7))
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    shifted = rest[:, None] >> shifts[None, :]
    block = (shifted & np.uint64(0x7F)).astype(np.uint8)
    more = shifted[:, 1:] != 0
    block[:, :-1] |= more.astype(np.uint8) << 7
    mask = np.ones(block.shape, np.bool_)
    mask[:, 1:] = more
    return Rows(block, mask)


def constant(data: bytes, count: int, present: Bools | None = None) -> Rows:
    """The same bytes in every row (or in the rows where ``present``)."""
    block = np.broadcast_to(np.frombuffer(data, np.uint8), (count, len(data)))
    return _masked(Rows(block, np.ones(block.shape, np.bool_)), present)


def side_by_side(*parts: Rows) -> Rows:
    """Row-wise concatenation: the fields of a message in the order given."""
    return Rows(np.hstack([part.block for part in parts]), np.hstack([part.mask for part in parts]))


def varint_field(number: int, values: NDArray[np.integer], present: Bools | None = None) -> Rows:
    """An int32, int64, uint32, uint64, bool or enum field; absent rows take no bytes."""
    key = constant(_key(number, _VARINT), len(values))
    return _masked(side_by_side(key, varint(values)), present)


def fixed64_field(number: int, values: NDArray[np.uint64], present: Bools | None = None) -> Rows:
    """A fixed64 field."""
    block = np.ascontiguousarray(values, "<u8").view(np.uint8).reshape(len(values), 8)
    key = constant(_key(number, _FIXED64), len(values))
    return _masked(side_by_side(key, Rows(block, np.ones(block.shape, np.bool_))), present)


def double_field(number: int, values: NDArray[np.float64], present: Bools | None = None) -> Rows:
    """A double field."""
    bits = np.ascontiguousarray(values, "<f8").view(np.uint64)
    return fixed64_field(number, bits, present)


def message_field(
    number: int, body: Rows, present: Bools | None = None, tail: Int64 | None = None
) -> Rows:
    """A nested message (or a string field of narrow rows).

    ``tail``: bytes per row that belong to the message but follow ``body`` later, through
    :func:`splice`.
    """
    return side_by_side(length_prefix(number, body, present, tail), _masked(body, present))


def length_prefix(
    number: int, body: Rows, present: Bools | None = None, tail: Int64 | None = None
) -> Rows:
    """Key and length of a nested message whose body is written elsewhere."""
    lengths = body.lengths if tail is None else body.lengths + tail
    key = constant(_key(number, _LENGTH), len(body))
    return _masked(side_by_side(key, varint(lengths)), present)


def splice(*parts: Rows | Ragged) -> bytes:
    """The bytes of every part, row by row: first the first row of each part, then the second."""
    return joined(*parts).tobytes()


def joined(*parts: Rows | Ragged) -> Ragged:
    """Like :func:`splice`, as rows that can become part of something larger."""
    flat = [part.block[part.mask] if isinstance(part, Rows) else part.data for part in parts]
    lengths = np.stack([part.lengths for part in parts], axis=1)
    first_of_part = np.cumsum([0, *map(len, flat)])[:-1]
    starts = np.cumsum(lengths, axis=0) - lengths + first_of_part
    rows = Ragged.gather(np.concatenate(flat), starts.ravel(), lengths.ravel())
    return Ragged(rows.data, lengths.sum(axis=1))


def encode_varint(value: int) -> bytes:
    """One varint, for the few values that are not columns."""
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_field(number: int, value: int | float | str | bytes) -> bytes:
    """One field: varint for int, double for float, length-delimited for str and bytes."""
    if isinstance(value, float):
        return _key(number, _FIXED64) + struct.pack("<d", value)
    if isinstance(value, int):
        return _key(number, _VARINT) + encode_varint(value)
    body = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return _key(number, _LENGTH) + encode_varint(len(body)) + body


def _key(number: int, wire_type: int) -> bytes:
    return encode_varint(number << 3 | wire_type)


def _masked(rows: Rows, present: Bools | None) -> Rows:
    return rows if present is None else Rows(rows.block, rows.mask & present[:, None])
