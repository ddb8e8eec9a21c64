"""Column-wise reading of protobuf messages whose schema is not known.

All messages of a list are scanned side by side: the first field of each, then the second, and so
on, with numpy. Nothing here knows a schema.

Wire format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import Bools, Int32, Int64, UInt8

UInt64 = NDArray[np.uint64]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_LARGEST_FIELD = 2**29 - 1
_CHUNK = 1 << 16
_MOST_FIELDS = 4096
"""A message with more fields than this is not one of those that are read here."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Byte ranges of ``data``: n ``starts`` and ``ends``."""

    data: UInt8
    starts: Int64
    ends: Int64

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: NDArray[np.integer] | Bools | slice) -> Spans:
        """The ranges at these rows."""
        return Spans(self.data, self.starts[rows], self.ends[rows])

    def texts(self) -> list[bytes]:
        """The bytes of each range."""
        data = self.data.tobytes() if len(self) > 64 else self.data
        pairs = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [bytes(data[start:end]) for start, end in pairs]


@dataclass(frozen=True, slots=True)
class Scalars:
    """The varint or fixed fields of one number: the row of each, and its bits."""

    rows: Int32
    values: UInt64


@dataclass(frozen=True, slots=True)
class Nested:
    """The length-delimited fields of one number: the row of each, and its body."""

    rows: Int32
    bodies: Spans


@dataclass(slots=True)
class Scan:
    """All fields of n messages, by number and wire type.

    ``whole``: which messages are protobuf from their first byte to their last.
    """

    whole: Bools
    scalars: dict[tuple[int, int], Scalars] = field(default_factory=dict)
    nested: dict[int, Nested] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.whole)

    @property
    def shapes(self) -> set[tuple[int, int]]:
        """All (number, wire type) that occur."""
        return {*self.scalars, *((number, LENGTH) for number in self.nested)}

    def column(self, number: int, absent: int = 0) -> Int64:
        """A varint field as int64, the last value where a message has several, shape (n,)."""
        found = np.full(len(self), absent, np.int64)
        scalars = self.scalars.get((number, VARINT))
        if scalars is not None:
            found[scalars.rows] = scalars.values.view(np.int64)
        return found

    def present(self, number: int, wire: int = VARINT) -> Bools:
        """Which messages have the field, shape (n,)."""
        found = np.zeros(len(self), np.bool_)
        if wire == LENGTH:
            if number in self.nested:
                found[self.nested[number].rows] = True
        elif (number, wire) in self.scalars:
            found[self.scalars[number, wire].rows] = True
        return found


def padded(data: bytes) -> UInt8:
    """A file's bytes with zeros behind them, so that a scan may look past the end."""
    return np.concatenate([np.frombuffer(data, np.uint8), np.zeros(16, np.uint8)])


def scan(messages: Spans) -> Scan:
    """The fields of all messages; of those that are not whole, the fields before the damage."""
    whole = np.ones(len(messages), np.bool_)
    scalars: dict[tuple[int, int], list[Scalars]] = {}
    nested: dict[int, list[Nested]] = {}
    for first in range(0, len(messages), _CHUNK):
        part = messages.take(slice(first, first + _CHUNK))
        for found, number, wire, values, starts, ends in _fields(part, whole[first:]):
            rows = (found + first).astype(np.int32)
            if wire == LENGTH:
                bodies = Spans(messages.data, starts, ends)
                nested.setdefault(number, []).append(Nested(rows, bodies))
            else:
                scalars.setdefault((number, wire), []).append(Scalars(rows, values))
    return Scan(
        whole,
        {key: _joined_scalars(parts) for key, parts in scalars.items()},
        {number: _joined_nested(parts) for number, parts in nested.items()},
    )


_Field = tuple[NDArray[np.intp], int, int, UInt64, Int64, Int64]


def _fields(messages: Spans, whole: Bools) -> Iterator[_Field]:
    """(rows, number, wire type, values, starts, ends), field by field; marks broken rows."""
    rows = np.flatnonzero(messages.ends > messages.starts)
    at, end = messages.starts[rows].copy(), messages.ends[rows]
    for _ in range(_MOST_FIELDS):
        if not len(rows):
            return
        key, length, good = _varints(messages.data, at)
        wire, number = (key & np.uint64(7)).astype(np.int64), key >> np.uint64(3)
        at = at + length
        value, step, value_good = _values(messages.data, at, wire)
        body = at + np.where(wire == LENGTH, step, 0)
        size = np.where(wire == LENGTH, value.astype(np.int64), step)
        good &= value_good & (number > 0) & (number <= _LARGEST_FIELD)
        good &= (size >= 0) & (size <= end - body)
        whole[rows[~good]] = False
        rows, at, end = rows[good], (body + size)[good], end[good]
        kind = (number << np.uint64(3) | wire.astype(np.uint64))[good]
        value, body = value[good], body[good]
        for code in np.unique(kind).tolist():
            mine = kind == code
            yield rows[mine], code >> 3, code & 7, value[mine], body[mine], at[mine]
        more = at < end
        rows, at, end = rows[more], at[more], end[more]
    whole[rows] = False


def _values(data: UInt8, at: Int64, wire: Int64) -> tuple[UInt64, Int64, Bools]:
    """(value or length, bytes that it takes, whether it can be one) at each position."""
    at = np.minimum(at, len(data) - _LONGEST_VARINT)
    value, length, good = _varints(data, at)
    for kind, size in ((FIXED64, 8), (FIXED32, 4)):
        mine = np.flatnonzero(wire == kind)
        if len(mine):
            block = data[at[mine][:, None] + np.arange(size)]
            value[mine] = np.ascontiguousarray(block).view(f"<u{size}").reshape(-1)
            length[mine], good[mine] = size, True
    good &= (wire == VARINT) | (wire == FIXED64) | (wire == LENGTH) | (wire == FIXED32)
    # A length beyond the file must not become negative as int64.
    good &= (wire != LENGTH) | (value <= np.uint64(len(data)))
    value[(wire == LENGTH) & ~good] = 0
    return value, length, good


def _varints(data: UInt8, at: Int64) -> tuple[UInt64, Int64, Bools]:
    """(value, bytes, whether it ends within ten bytes) of the varint at each position."""
    byte = data[at]
    value = (byte & 0x7F).astype(np.uint64)
    length = np.ones(len(at), np.int64)
    more = np.flatnonzero(byte >= 0x80)
    for k in range(1, _LONGEST_VARINT):
        if not len(more):
            break
        byte = data[at[more] + k]
        value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * k)
        length[more] += 1
        more = more[byte >= 0x80]
    good = np.ones(len(at), np.bool_)
    good[more] = False
    return value, length, good


def _joined_scalars(parts: list[Scalars]) -> Scalars:
    return Scalars(
        np.concatenate([p.rows for p in parts]), np.concatenate([p.values for p in parts])
    )


def _joined_nested(parts: list[Nested]) -> Nested:
    starts = np.concatenate([p.bodies.starts for p in parts])
    ends = np.concatenate([p.bodies.ends for p in parts])
    rows = np.concatenate([p.rows for p in parts])
    return Nested(rows, Spans(parts[0].bodies.data, starts, ends))


# -- containers -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Records:
    """Messages one after the other; ``rest``: bytes behind the last whole one."""

    bodies: Spans
    rest: int


def delimited(data: bytes, columns: UInt8) -> Records:
    """The file as a stream: the length of a message as varint, then the message.

    ``columns``: the same bytes, ``padded``.
    """
    starts: list[int] = []
    ends: list[int] = []
    at, size = 0, len(data)
    while at < size:
        length, place = _varint(data, at)
        if place < 0 or place + length > size:
            break
        starts.append(place)
        at = place + length
        ends.append(at)
    spans = Spans(columns, np.array(starts, np.int64), np.array(ends, np.int64))
    return Records(spans, size - at)


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of one large message: bodies by number; ``rest``: bytes behind the last field."""

    nested: dict[int, Spans]
    scalars: dict[tuple[int, int], list[int]]
    rest: int


def message(data: bytes, columns: UInt8) -> Message:
    """The file as one message; reading ends at what cannot be a field."""
    starts: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    scalars: dict[tuple[int, int], list[int]] = {}
    at, size = 0, len(data)
    while at < size:
        key, place = _varint(data, at)
        number, wire = key >> 3, key & 7
        if place < 0 or not 0 < number <= _LARGEST_FIELD:
            break
        if wire in (LENGTH, VARINT):
            value, place = _varint(data, place)
            if place < 0:
                break
            if wire == LENGTH:
                if place + value > size:
                    break
                starts.setdefault(number, []).append(place)
                place += value
                ends.setdefault(number, []).append(place)
            else:
                scalars.setdefault((number, wire), []).append(value)
        elif wire in (FIXED32, FIXED64):
            end = place + (4 if wire == FIXED32 else 8)
            if end > size:
                break
            scalars.setdefault((number, wire), []).append(int.from_bytes(data[place:end], "little"))
            place = end
        else:
            break
        at = place
    nested = {
        number: Spans(columns, np.array(starts[number], np.int64), np.array(ends[number], np.int64))
        for number in starts
    }
    return Message(nested, scalars, size - at)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, position behind it) of the varint at ``at``; position -1 where there is none."""
    value = shift = 0
    for place in range(at, min(at + _LONGEST_VARINT, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    return 0, -1
