"""Column-wise protobuf encoding.

A message per event, built from columns: every field of all rows is encoded at once, as a block
of bytes (rows x width) with the number of bytes that exist in each row. Fields stand side by
side, nested messages get their length from those numbers, and the wire form is one masked copy.
Nothing here knows a schema, and nothing runs per event in Python.

Wire format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import Bools, Int64, UInt8, ragged
from neuron_tb.converters.model.ragged import Ragged

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_SEVEN_TIMES_EIGHT = 2**56 - 1
_SPREADING = tuple(
    (np.uint64(shift), np.uint64(low), np.uint64(high))
    for shift, low, high in (
        (4, 0x000000000FFFFFFF, 0x00FFFFFFF0000000),
        (2, 0x00003FFF00003FFF, 0x0FFFC0000FFFC000),
        (1, 0x007F007F007F007F, 0x3F803F803F803F80),
    )
)
"""Steps that move 56 bits apart to eight bytes of seven bits each."""
_CONTINUED = np.array(
    [sum(0x80 << 8 * place for place in range(min(size - 1, 8))) for size in range(11)], np.uint64
)
"""For every number of bytes, the bits that say that another byte follows, of the first eight."""


@dataclass(frozen=True, slots=True)
class _Column:
    """Bytes of n rows: ``block`` of shape (n, width), or (1, width) where all rows are alike.

    ``lengths``: how many bytes of the block exist in each row, from the left; None: all.
    """

    block: UInt8
    lengths: NDArray[Any] | None = None

    @property
    def width(self) -> int:
        return int(self.block.shape[1])


@dataclass(frozen=True, slots=True)
class Rows:
    """Encoded bytes of n rows as narrow columns, which are put together when they are written.

    ``lengths``: bytes per row, shape (n,).
    """

    columns: tuple[_Column, ...]
    lengths: Int64

    def __len__(self) -> int:
        return len(self.lengths)

    def ragged(self) -> Ragged:
        """The same bytes as one column."""
        return Ragged.back_to_back(self._flat(), self.lengths)

    def tobytes(self) -> bytes:
        """All rows, one after the other."""
        return self._flat().tobytes()

    def take(self, rows: NDArray[np.integer]) -> Rows:
        """The rows at these positions, which may repeat: the way to encode what has few values."""
        columns = [
            _Column(
                column.block if len(column.block) == 1 else column.block[rows],
                None if column.lengths is None else column.lengths[rows],
            )
            for column in self.columns
        ]
        return Rows(tuple(columns), self.lengths[rows])

    def packed(self) -> Rows:
        """The same rows with all bytes at the left of one column."""
        width = int(self.lengths.max(initial=0))
        block = np.zeros((len(self), width), np.uint8)
        block[np.arange(width) < self.lengths[:, None]] = self._flat()
        return Rows((_Column(block, self.lengths),), self.lengths)

    def _flat(self) -> UInt8:
        width = sum(column.width for column in self.columns)
        block = np.empty((len(self), width), np.uint8)
        mask = np.ones((len(self), width), np.bool_)
        whole, at = True, 0
        for column in self.columns:
            to = at + column.width
            block[:, at:to] = column.block
            if column.lengths is not None:
                whole = False
                if column.width == 1:
                    mask[:, at] = column.lengths
                else:
                    place = np.arange(column.width, dtype=column.lengths.dtype)
                    np.less(place, column.lengths[:, None], out=mask[:, at:to])
            at = to
        return block.ravel() if whole else block[mask]


def varint(values: NDArray[np.integer]) -> Rows:
    """Each value as a base-128 varint; negative values take ten bytes, as protobuf's int64."""
    rest = (
        values.astype(np.int64, copy=False).view(np.uint64) if values.dtype != np.uint64 else values
    )
    width = max(1, -(-int(rest.max(initial=0)).bit_length() // 7))
    count = np.ones(len(rest), np.uint8)
    for size in range(1, width):
        count += rest >= np.uint64(1 << 7 * size)
    spread = rest & np.uint64(_SEVEN_TIMES_EIGHT)
    for half, low, high in _SPREADING:
        spread = spread & low | (spread & high) << half
    spread |= _CONTINUED[count]
    block = spread.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :width]
    columns = [_Column(block, np.minimum(count, 8) if width > 8 else count if width > 1 else None)]
    if width > 8:
        ninth = (rest >> np.uint64(56) & np.uint64(0x7F)).astype(np.uint8)
        ninth |= (count > 9).view(np.uint8) << 7
        columns.append(_Column(ninth[:, None], count > 8))
    if width > 9:
        columns.append(_Column((rest >> np.uint64(63)).astype(np.uint8)[:, None], count > 9))
    return Rows(tuple(columns), count.astype(np.int64))


def constant(data: bytes, count: int, present: Bools | None = None) -> Rows:
    """The same bytes in every row (or in the rows where ``present``)."""
    column = _Column(np.frombuffer(data, np.uint8)[None, :])
    return _masked(Rows((column,), np.full(count, len(data), np.int64)), present)


def side_by_side(*parts: Rows) -> Rows:
    """Row-wise concatenation: the fields of a message in the order given."""
    columns: list[_Column] = []
    for column in (column for part in parts for column in part.columns):
        if columns and _is_constant(columns[-1]) and _is_constant(column):
            columns[-1] = _Column(np.hstack([columns[-1].block, column.block]))
        elif column.width:
            columns.append(column)
    lengths: Int64 = sum((part.lengths for part in parts[1:]), parts[0].lengths)
    return Rows(tuple(columns), lengths)


def varint_field(number: int, values: NDArray[np.integer], present: Bools | None = None) -> Rows:
    """An int32, int64, uint32, uint64, bool or enum field; absent rows take no bytes."""
    key = constant(_key(number, _VARINT), len(values))
    return _masked(side_by_side(key, varint(values)), present)


def fixed64_field(number: int, values: NDArray[np.uint64], present: Bools | None = None) -> Rows:
    """A fixed64 field."""
    block = np.ascontiguousarray(values, "<u8").view(np.uint8).reshape(len(values), 8)
    value = Rows((_Column(block),), np.full(len(values), 8, np.int64))
    key = constant(_key(number, _FIXED64), len(values))
    return _masked(side_by_side(key, value), present)


def double_field(number: int, values: NDArray[np.float64], present: Bools | None = None) -> Rows:
    """A double field."""
    bits = np.ascontiguousarray(values, "<f8").view(np.uint64)
    return fixed64_field(number, bits, present)


def message_field(
    number: int, body: Rows, present: Bools | None = None, tail: Int64 | None = None
) -> Rows:
    """A nested message (or a string field of narrow rows).

    ``tail``: bytes per row that belong to the message but follow ``body`` later, through
    ``splice``.
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
    if len(parts) == 1:
        return parts[0].tobytes()
    return joined(*parts).tobytes()


def joined(*parts: Rows | Ragged) -> Ragged:
    """Like ``splice``, as rows that can become part of something larger."""
    columns: list[Ragged] = []
    narrow: list[Rows] = []
    for part in parts:
        if isinstance(part, Rows):
            narrow.append(part)
            continue
        if narrow:
            columns.append(side_by_side(*narrow).ragged())
        columns.append(part)
        narrow = []
    if narrow:
        columns.append(side_by_side(*narrow).ragged())
    return columns[0] if len(columns) == 1 else ragged.joined(*columns)


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


def _is_constant(column: _Column) -> bool:
    return len(column.block) == 1 and column.lengths is None


def _masked(rows: Rows, present: Bools | None) -> Rows:
    if present is None:
        return rows
    columns = [
        _Column(
            column.block,
            np.where(present, column.width, 0).astype(np.uint32)
            if column.lengths is None
            else column.lengths * present,
        )
        for column in rows.columns
    ]
    return Rows(tuple(columns), rows.lengths * present)
