"""XSpace, the protobuf that XProf reads (``.xplane.pb``), written from columns.

A plane is a process of the viewer, a line one of its rows. Names stand once per plane, in
tables of event and stat metadata. Field numbers: ``xplane.proto`` of openxla/xla
(tsl/profiler/protobuf). XProf checks types strictly and reads a stat of the wrong type as 0:
a stat's type follows its column's dtype (int64, uint64 or double).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import Bools, Int64
from neuron_tb.converters.model.arguments import Arguments
from neuron_tb.converters.model.identity import stable_hash
from neuron_tb.converters.model.ragged import chunks
from neuron_tb.converters.writers import wire

_PIECE = 1 << 20

PICOSECONDS = 1000
"""Picoseconds per nanosecond."""

LABEL_BIT = 1 << 42
"""Set in the ids of names that begin with the rank where a file holds several."""
_SHARED_STATS = (
    "group_id",
    "flow",
    "arguments",
    "category",
    "value",
    "allocator_name",
    "bytes_allocated",
    "peak_bytes_in_use",
    "allocation_bytes",
    "requested_bytes",
    "addr",
    "bytes_available",
)
_SHARED_BITS = 41


@dataclass(frozen=True, slots=True)
class Stat:
    """One stat of every event of a table.

    ``values``: shape (n,), int64, uint64 or float64. ``present``: the rows that have it (None:
    all). ``refers``: the values are ids from ``Plane.text``, shown as that text.
    """

    name: str
    values: NDArray[np.int64] | NDArray[np.uint64] | NDArray[np.float64]
    present: Bools | None = None
    refers: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """One text per event: byte ranges (``starts``, ``lengths``) of ``data``, length 0 for none.

    ``data`` must be UTF-8: the reader refuses the whole file otherwise.
    """

    name: str
    data: Arguments
    starts: Int64
    lengths: Int64


@dataclass(frozen=True, slots=True)
class Events:
    """Events of one or many lines, n rows.

    ``metadata``: ids from ``Plane.event``. ``start_ns``: from the run's time zero, not
    negative. ``duration_ns``: not negative.
    """

    metadata: Int64
    start_ns: Int64
    duration_ns: Int64
    stats: Sequence[Stat] = ()
    text: Text | None = None

    def __len__(self) -> int:
        return len(self.metadata)

    def take(self, rows: NDArray[np.intp] | slice) -> Events:
        """The same events restricted to ``rows``."""
        return Events(
            self.metadata[rows],
            self.start_ns[rows],
            self.duration_ns[rows],
            [
                replace(
                    stat,
                    values=stat.values[rows],
                    present=None if stat.present is None else stat.present[rows],
                )
                for stat in self.stats
            ],
            self.text
            and replace(self.text, starts=self.text.starts[rows], lengths=self.text.lengths[rows]),
        )


class Plane:
    """One plane of an XSpace under construction.

    Every plane has a ``group_id`` stat: only when all have it does XProf take the space as
    already grouped into steps, and leaves it alone.

    ``shared``: planes of this name are joined when ranks that were converted apart are merged.
    Their ids are hashes of the names, equal in all files; ``owner`` keeps the ids of labels
    (``text`` and ``event`` with ``label``), which differ from rank to rank, apart.

    ``spool``: a file in which encoded events wait; without one they wait in memory.
    """

    def __init__(
        self,
        name: str,
        plane_id: int,
        shared: bool = False,
        owner: str = "",
        spool: BinaryIO | None = None,
    ) -> None:
        self.name = name
        self._id = plane_id
        self._shared, self._owner = shared, owner
        self._shared_ids: dict[object, int] = {}
        self._taken: set[int] = set()
        self._stats: dict[str, int] = {}
        self._events: list[bytes] = []
        self._own_stats: list[bytes] = []
        self._lines: list[tuple[bytes, int, int]] = []
        self._spool: BinaryIO = io.BytesIO() if spool is None else spool
        self.text("group_id")

    def __bool__(self) -> bool:
        """Whether the plane has any line."""
        return bool(self._lines)

    def text(self, text: str, label: bool = False) -> int:
        """The id of a stat's name, or of a text that stats refer to."""
        if text in self._stats:
            return self._stats[text]
        if not self._shared:
            number = len(self._stats) + 1
        elif text in _SHARED_STATS:
            number = _SHARED_STATS.index(text) + 1
        else:
            number = self._free((text, self._owner if label else ""), label)
        self._stats[text] = number
        return number

    def texts(self, texts: Iterable[str]) -> Int64:
        """The ids of several texts."""
        return np.array([self.text(text) for text in texts], np.int64)

    def event(
        self,
        name: str,
        display_name: str = "",
        stats: Mapping[str, int | str] | None = None,
        label: bool = False,
    ) -> int:
        """The id of a new entry of event metadata; its stats count for each of its events."""
        if self._shared:
            key = name, display_name, tuple((stats or {}).items()), self._owner if label else ""
            if key in self._shared_ids:
                return self._shared_ids[key]
            number = self._shared_ids[key] = self._free(key, label)
        else:
            number = len(self._events) + 1
        body = wire.encode_field(1, number) + wire.encode_field(2, name)
        if display_name:
            body += wire.encode_field(4, display_name)
        for stat, value in (stats or {}).items():
            body += wire.encode_field(5, self._stat(stat, value))
        self._events.append(_map_entry(number, body))
        return number

    def set(self, name: str, value: int | float | str | np.uint64) -> None:
        """A stat of the plane itself (int: int64, float: double, np.uint64: uint64)."""
        self._own_stats.append(self._stat(name, value))

    def add_line(
        self,
        number: int,
        name: str,
        events: Events,
        display_name: str = "",
        rows: NDArray[np.intp] | None = None,
    ) -> None:
        """A row of the viewer; ``display_name`` is drawn instead of ``name``.

        ``rows``: which of the events, in which order (None: all).
        """
        header = wire.encode_field(1, number) + wire.encode_field(2, name)
        if display_name and display_name != name:
            header += wire.encode_field(11, display_name)
        start = self._spool.seek(0, io.SEEK_END)
        for part in chunks(len(events) if rows is None else len(rows)):
            self._spool.write(self._encode(events.take(part if rows is None else rows[part])))
        length = self._spool.tell() - start
        self._lines.append((_prefix(3, len(header) + length) + header, start, length))

    def parts(self) -> Iterator[bytes]:
        """The plane's bytes, as field ``planes`` of the space, in pieces."""
        head, tail = self._around()
        yield _prefix(1, self._length(head, tail)) + head
        for header, start, length in self._lines:
            yield header
            self._spool.seek(start)
            while length:
                piece = self._spool.read(min(length, _PIECE))
                yield piece
                length -= len(piece)
        yield tail

    def __len__(self) -> int:
        """How many bytes ``parts`` are."""
        length = self._length(*self._around())
        return len(_prefix(1, length)) + length

    def _length(self, head: bytes, tail: bytes) -> int:
        lines = sum(len(header) + length for header, _, length in self._lines)
        return len(head) + lines + len(tail)

    def _around(self) -> tuple[bytes, bytes]:
        """What stands before the lines, and what behind them."""
        head = wire.encode_field(1, self._id) + wire.encode_field(2, self.name)
        tail = [wire.encode_field(4, entry) for entry in self._events]
        tail += [
            wire.encode_field(
                5, _map_entry(i, wire.encode_field(1, i) + wire.encode_field(2, text))
            )
            for text, i in self._stats.items()
        ]
        tail += [wire.encode_field(6, stat) for stat in self._own_stats]
        return head, b"".join(tail)

    def _free(self, key: tuple[object, ...], label: bool) -> int:
        number = len(_SHARED_STATS) + stable_hash(*key, bits=_SHARED_BITS)
        number |= LABEL_BIT if label else 0
        while number in self._taken:
            number += 1
        self._taken.add(number)
        return number

    def _stat(self, name: str, value: int | float | str | np.uint64) -> bytes:
        if isinstance(value, float):
            number = 2
        elif isinstance(value, np.uint64):
            number, value = 3, int(value)
        else:
            number = 4 if isinstance(value, int) else 5
        return wire.encode_field(1, self.text(name)) + wire.encode_field(number, value)

    def _encode(self, events: Events) -> bytes:
        fields = [
            wire.varint_field(1, events.metadata),
            wire.varint_field(2, events.start_ns * PICOSECONDS),
            wire.varint_field(3, events.duration_ns * PICOSECONDS),
        ]
        used = (s for s in events.stats if s.present is None or s.present.any())
        fields.extend(map(self._stat_column, used))
        text = events.text
        if text is None or not text.lengths.any():
            return wire.message_field(4, wire.side_by_side(*fields)).tobytes()
        present, lengths = text.lengths > 0, text.lengths.astype(np.int64)
        value = wire.length_prefix(5, wire.constant(b"", len(events)), tail=lengths)
        key = wire.constant(wire.encode_field(1, self.text(text.name)), len(events))
        fields.append(wire.message_field(4, wire.side_by_side(key, value), present, lengths))
        event = wire.message_field(4, wire.side_by_side(*fields), tail=lengths)
        return wire.splice(event, text.data.rows(text.starts, lengths))

    def _stat_column(self, stat: Stat) -> wire.Rows:
        key = wire.constant(wire.encode_field(1, self.text(stat.name)), len(stat.values))
        if stat.values.dtype == np.float64:
            value = wire.double_field(2, stat.values.astype(np.float64))
        else:
            number = 7 if stat.refers else 3 if stat.values.dtype == np.uint64 else 4
            value = wire.varint_field(number, stat.values.astype(stat.values.dtype))
        return wire.message_field(4, wire.side_by_side(key, value), stat.present)


@dataclass
class Space:
    """One ``.xplane.pb`` file: planes, one host name, warnings for the overview page."""

    host: str
    planes: list[Plane] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        """How many bytes ``parts`` are."""
        return sum(map(len, self.planes))

    def parts(self) -> Iterator[bytes]:
        """The bytes of the planes, in pieces."""
        for plane in self.planes:
            yield from plane.parts()

    def tail(self) -> Iterator[bytes]:
        """What follows the planes: warnings and the host's name."""
        for warning in self.warnings:
            yield wire.encode_field(3, warning)
        yield wire.encode_field(4, self.host)


def _prefix(number: int, length: int) -> bytes:
    """Key and length of a nested message that follows."""
    return wire.encode_varint(number << 3 | 2) + wire.encode_varint(length)


def _map_entry(key: int, value: bytes) -> bytes:
    return wire.encode_field(1, key) + wire.encode_field(2, value)
