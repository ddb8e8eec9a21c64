"""Planes of an ``.xplane.pb`` file taken apart and put together by bytes.

Events keep their bytes, except that their offsets move where files count from different times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

import numpy as np

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.joining.fields import Data, Field, fields_of, int_of, text_of, varint_at
from neuron_tb.converters.model import Int64, UInt8
from neuron_tb.converters.model.ragged import Ragged
from neuron_tb.converters.writers import wire
from neuron_tb.converters.writers.xprof.xspace import PICOSECONDS

_EVENTS_AT_ONCE = 1 << 15
_BUFFER = 1 << 20
_INTEGERS, _TEXT = (3, 4), 5  # fields of a stat


@dataclass(slots=True)
class Line:
    """A row of the viewer: the fields that name it, and where its events are in the file."""

    number: int
    name: str
    display_name: str
    start: int
    end: int


@dataclass(slots=True)
class Plane:
    """A plane: its lines, its tables of names by id, and its own stats (name, content)."""

    number: int = 0
    name: str = ""
    lines: list[Line] = field(default_factory=list)
    events: dict[int, bytes] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    stats: list[bytes] = field(default_factory=list)

    def own_stats(self) -> dict[str, int | str]:
        """The plane's own stats by name, integers and texts."""
        found: dict[str, int | str] = {}
        for body in self.stats:
            key, *values = fields_of(body)
            name = self.texts.get(int_of(body, key))
            if name is None:
                continue
            for value in values:
                if value.number == _TEXT:
                    found[name] = text_of(body, value)
                elif value.number in _INTEGERS:
                    found[name] = int_of(body, value)
        return found


class PlaneFile:
    """An ``.xplane.pb`` file, mapped while in use as a context manager."""

    def __init__(self, path: Path) -> None:
        """Raises NeuronTbError when the file cannot be read as an XSpace."""
        self.path = path
        self.host = ""
        self.warnings: list[str] = []
        self.planes: list[Plane] = []
        try:
            with path.open("rb") as file:
                self.data = mmap(file.fileno(), 0, access=ACCESS_READ)
            self._read()
        except (OSError, ValueError) as error:
            raise NeuronTbError(f"{path} cannot be read as an XProf profile: {error}.") from error

    def _read(self) -> None:
        for member in fields_of(self.data):
            if member.number == 1:
                self.planes.append(_plane(self.data, member))
            elif member.number == 3:
                self.warnings.append(text_of(self.data, member))
            elif member.number == 4:
                self.host = text_of(self.data, member)

    def __enter__(self) -> PlaneFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.data.close()

    def plane(self, name: str) -> Plane | None:
        """The plane of this name."""
        return next((plane for plane in self.planes if plane.name == name), None)


def _plane(data: Data, whole: Field) -> Plane:
    plane = Plane()
    for member in fields_of(data, whole.start, whole.end):
        if member.number == 1:
            plane.number = int_of(data, member)
        elif member.number == 2:
            plane.name = text_of(data, member)
        elif member.number == 3:
            plane.lines.append(_line(data, member))
        elif member.number == 4:
            key, value = fields_of(data, member.start, member.end)
            plane.events[int_of(data, key)] = data[value.start : value.end]
        elif member.number == 5:
            key, value = fields_of(data, member.start, member.end)
            names = [f for f in fields_of(data, value.start, value.end) if f.number == 2]
            plane.texts[int_of(data, key)] = text_of(data, names[0]) if names else ""
        elif member.number == 6:
            plane.stats.append(data[member.start : member.end])
    return plane


def _line(data: Data, whole: Field) -> Line:
    line = Line(0, "", "", whole.end, whole.end)
    for member in fields_of(data, whole.start, whole.end):
        if member.number == 1:
            line.number = int_of(data, member)
        elif member.number == 2:
            line.name = text_of(data, member)
        elif member.number == 11:
            line.display_name = text_of(data, member)
        elif member.number == 4:
            line.start = member.begin
            break
        else:
            raise ValueError("its lines are not those of neuron-tb")
    return line


class Pieces:
    """A message under construction: bytes, and ranges of files that are copied at the end."""

    def __init__(self, spool: BinaryIO) -> None:
        self.length = 0
        self._spool = spool
        self._pieces: list[bytes | tuple[Data | None, int, int]] = []

    def add(self, data: bytes) -> None:
        """Append bytes."""
        self._pieces.append(data)
        self.length += len(data)

    def add_field(self, number: int, body: bytes) -> None:
        """Append a field of bytes."""
        self.add(wire.encode_field(number, body))

    def add_all(self, others: Pieces) -> None:
        """Append what another message holds."""
        self._pieces += others._pieces
        self.length += others.length

    def add_events(self, data: Data, start: int, end: int, later_ns: int) -> None:
        """Append events (whole fields of a line), moved by ``later_ns``."""
        if not later_ns:
            self._pieces.append((data, start, end))
            self.length += end - start
            return
        for chunk in moved_events(data, start, end, later_ns):
            begin = self._spool.tell()
            self._spool.write(chunk)
            self._pieces.append((None, begin, begin + len(chunk)))
            self.length += len(chunk)

    def write(self, out: BinaryIO) -> None:
        """Write everything."""
        end = self._spool.tell()
        for piece in self._pieces:
            if isinstance(piece, bytes):
                out.write(piece)
                continue
            data, start, stop = piece
            for first in range(start, stop, _BUFFER):
                last = min(first + _BUFFER, stop)
                if data is None:
                    self._spool.seek(first)
                    out.write(self._spool.read(last - first))
                else:
                    out.write(data[first:last])
        self._spool.seek(end)


def prefix(number: int, length: int) -> bytes:
    """Key and length of a message field that follows."""
    return wire.encode_varint(number << 3 | 2) + wire.encode_varint(length)


def moved_events(data: Data, start: int, end: int, later_ns: int) -> Iterator[bytes]:
    """The events of a line with ``later_ns`` added to their offsets.

    They are those of ``xspace.Plane.add_line``: metadata id and offset come first.
    """
    for starts, ends in _bounds(data, start, end):
        first, last = int(starts[0]), int(ends[-1])
        block = np.frombuffer(data[first:last], np.uint8)
        begin, stop = starts - first, ends - first
        _, after_id = _varints(block, begin + 1)
        offset, rest = _varints(block, after_id + 1)
        if (block[begin] != 8).any() or (block[after_id] != 16).any():
            raise NeuronTbError("an event of an XProf profile is not as neuron-tb writes them.")
        moved = wire.varint_field(2, offset.astype(np.int64) + later_ns * PICOSECONDS)
        head = Ragged.ranges(block, begin, after_id - begin)
        tail = Ragged.ranges(block, rest, stop - rest)
        length = head.lengths + moved.lengths + tail.lengths
        nothing = wire.constant(b"", len(starts))
        yield wire.splice(wire.length_prefix(4, nothing, tail=length), head, moved, tail)


def _bounds(data: Data, start: int, end: int) -> Iterator[tuple[Int64, Int64]]:
    """Where the bodies of events start and end, some thousand at a time."""
    starts: list[int] = []
    ends: list[int] = []
    position = start
    while position < end:
        length, position = varint_at(data, position + 1, end)
        starts.append(position)
        position += length
        ends.append(position)
        if len(starts) == _EVENTS_AT_ONCE:
            yield np.array(starts, np.int64), np.array(ends, np.int64)
            starts, ends = [], []
    if starts:
        yield np.array(starts, np.int64), np.array(ends, np.int64)


def _varints(block: UInt8, position: Int64) -> tuple[Int64, Int64]:
    """The varints at these positions, and the positions after them."""
    value = np.zeros(len(position), np.int64)
    position = position.copy()
    going = np.ones(len(position), np.bool_)
    shift = 0
    while going.any():
        byte = block[position]
        value[going] |= (byte[going].astype(np.int64) & 0x7F) << shift
        position[going] += 1
        going = going & (byte >= 0x80)
        shift += 7
    return value, position


def line_pieces(
    line: Line,
    data: Data,
    later_ns: int,
    spool: BinaryIO,
    more: Iterable[tuple[Data, Line, int]] = (),
) -> Pieces:
    """A line as field ``lines`` of a plane, with the events of further lines in it."""
    body = Pieces(spool)
    body.add(wire.encode_field(1, line.number) + wire.encode_field(2, line.name))
    if line.display_name:
        body.add(wire.encode_field(11, line.display_name))
    for source, part, moved in [(data, line, later_ns), *more]:
        body.add_events(source, part.start, part.end, moved)
    whole = Pieces(spool)
    whole.add(prefix(3, body.length))
    whole.add_all(body)
    return whole


def table_pieces(plane: Plane, spool: BinaryIO) -> Pieces:
    """Event metadata, stat metadata and own stats of a plane."""
    pieces = Pieces(spool)
    for number, body in plane.events.items():
        pieces.add_field(4, wire.encode_field(1, number) + wire.encode_field(2, body))
    for number, text in plane.texts.items():
        entry = wire.encode_field(1, number) + wire.encode_field(2, text)
        pieces.add_field(5, wire.encode_field(1, number) + wire.encode_field(2, entry))
    for body in plane.stats:
        pieces.add_field(6, body)
    return pieces
