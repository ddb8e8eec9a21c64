"""Walking protobuf messages without a schema, where only few of their fields matter."""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap
from typing import NamedTuple

Data = bytes | mmap

_LONGEST_VARINT = 63  # bits before the last byte


class Field(NamedTuple):
    """A field: its number, where its key begins, and where its content starts and ends.

    The content of a varint is the varint itself.
    """

    number: int
    begin: int
    start: int
    end: int


def fields_of(
    data: Data, start: int = 0, end: int | None = None, most: int = -1
) -> Iterator[Field]:
    """The fields of the message between two positions, ``most`` at the most (-1: all).

    Raises ValueError where the bytes end before a field does, or are no protobuf.
    """
    end = len(data) if end is None else end
    position = start
    while position < end and most:
        begin = position
        key, position = varint_at(data, position, end)
        kind = key & 7
        if kind == 2:
            length, position = varint_at(data, position, end)
            stop = position + length
        elif kind == 0:
            stop = varint_at(data, position, end)[1]
        elif kind in (1, 5):
            stop = position + (8 if kind == 1 else 4)
        else:
            raise ValueError("no protobuf")
        if stop > end:
            raise ValueError("cut short")
        yield Field(key >> 3, begin, position, stop)
        position = stop
        most -= 1


def varint_at(data: Data, position: int, end: int) -> tuple[int, int]:
    """The varint at a position, and the position after it."""
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > _LONGEST_VARINT:
            raise ValueError("no protobuf")
    raise ValueError("cut short")


def int_of(data: Data, field: Field) -> int:
    """The value of a varint field, as a signed 64-bit number."""
    value = varint_at(data, field.start, field.end)[0]
    return value - (1 << 64) if value >> 63 else value


def text_of(data: Data, field: Field) -> str:
    """The value of a string field."""
    return data[field.start : field.end].decode("utf-8", "replace")
