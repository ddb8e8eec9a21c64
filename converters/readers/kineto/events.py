"""Decoding the events of Chrome-trace JSON, a chunk of the list at a time.

Most events are decoded straight into typed objects; only those that write a field in another
form (a number as text, a list as a name) are looked at a second time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import Int32, Int64
from neuron_tb.converters.readers.json.chunks import Listing, chunks
from neuron_tb.converters.readers.values import (
    NO_ARGUMENTS,
    Number,
    Numbers,
    as_floats,
    loses_digits,
)


class Event(msgspec.Struct, gc=False):
    """One event; ``id2`` to ``flow_out`` are those of asynchronous events and named arrows."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: Number = None
    tid: Number = None
    ts: Number = None
    dur: Number = None
    args: msgspec.Raw = msgspec.Raw()
    id: Number = None
    bp: Number = None
    attr: msgspec.Raw = msgspec.Raw()
    id2: Any = None
    scope: Any = None
    bind_id: Number = None
    flow_in: Any = None
    flow_out: Any = None


class ExactEvent(Event, gc=False):
    """For times that a double would round."""

    ts: Decimal | None = None  # type: ignore[assignment]
    dur: Decimal | None = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Events:
    """Events that stand together in the file, n rows.

    ``ts``, ``dur``: their times in microseconds, as doubles where all are such. Byte n of
    ``text``, which holds the events, stands at ``offset + n`` of the file.
    """

    rows: list[Event]
    ts: Numbers
    dur: Numbers
    text: bytes
    offset: int

    def only(self, chosen: Sequence[bool]) -> Events:
        """The events where ``chosen`` is true."""
        rows, ts, dur = _with_times(list(itertools.compress(self.rows, chosen)))
        return Events(rows, ts, dur, self.text, self.offset)


class Decoder:
    """Decodes the events of one file.

    ``resolution_ns`` is known when all events have been decoded: 1, or 250 where epoch
    microseconds went through a double.
    """

    def __init__(self, name: str, value: Callable[[msgspec.Raw], Any], findings: Findings) -> None:
        self._name, self._value, self.findings = name, value, findings
        self._kind: type[Event] = Event
        self._on_grid = True
        self._before = 0

    @property
    def resolution_ns(self) -> int:
        """The finest difference of times that the file can express, in nanoseconds."""
        return 250 if self._kind is ExactEvent and self._on_grid else 1

    @property
    def state(self) -> tuple[bool, bool]:
        """Whether times need more digits than doubles have; whether all are on their grid."""
        return self._kind is ExactEvent, self._on_grid

    def join(self, state: tuple[bool, bool]) -> bool:
        """Take over what another decoder of the file found; False if it decoded otherwise."""
        exact, on_grid = state
        self._on_grid &= on_grid
        return exact == (self._kind is ExactEvent)

    def events(self, listing: Listing) -> Iterator[Events]:
        """All events in the file's order."""
        for chunk in chunks(listing, self._decode):
            rows, ts, dur = _with_times(chunk.rows.events)
            if self._kind is Event and (_rounds(ts) or _rounds(dur)):
                self._kind = ExactEvent
                rows, ts, dur = _with_times(self._decode(chunk.text).events)
            if self._kind is ExactEvent:
                self._on_grid &= all(map(_is_on_grid, ts))
            self._report(chunk.rows)
            yield Events(rows, ts, dur, chunk.text, chunk.offset)

    def _decode(self, text: bytes) -> _Decoded:
        try:
            events = _DECODE[self._kind](text)
            return _Decoded(events, len(events))
        except msgspec.ValidationError:
            return self._one_by_one(msgspec.json.decode(text, type=list[msgspec.Raw]))

    def _one_by_one(self, texts: Sequence[msgspec.Raw]) -> _Decoded:
        typed = msgspec.json.Decoder(self._kind).decode
        found = _Decoded([], len(texts))
        for number, text in enumerate(texts):
            try:
                found.events.append(typed(text))
            except msgspec.ValidationError:
                value = self._value(text)
                if isinstance(value, dict):
                    found.events.append(_lenient(self._kind, value))
                else:
                    found.no_events.append(number)
        return found

    def _report(self, found: _Decoded) -> None:
        for number in found.no_events:
            self.findings.add(
                "not_an_event",
                "entries of traceEvents that are no event objects were left out",
                where=f"{self._name}, entry {self._before + number}",
            )
        self._before += found.count


class _Decoded:
    """The events of a chunk; which of its ``count`` entries are none."""

    def __init__(self, events: list[Event], count: int) -> None:
        self.events, self.count = events, count
        self.no_events: list[int] = []


_DECODE: dict[type[Event], Callable[[bytes], list[Event]]] = {
    kind: msgspec.json.Decoder(list[kind]).decode  # type: ignore[valid-type]
    for kind in (Event, ExactEvent)
}


def _with_times(rows: list[Event]) -> tuple[list[Event], Numbers, Numbers]:
    return rows, as_floats([e.ts for e in rows]), as_floats([e.dur for e in rows])


def _rounds(microseconds: Numbers) -> bool:
    return not isinstance(microseconds, np.ndarray) and loses_digits(microseconds)


def _is_on_grid(time: object) -> bool:
    """Whether a time, which went through a double, is the shortest text that gives it."""
    if not isinstance(time, Decimal) or not time.is_finite():
        return True
    return Decimal(repr(float(time))) == time


def _lenient(kind: type[Event], value: dict[str, Any]) -> Event:
    """An event some of whose fields have an unexpected type: those fields count as absent."""
    event = kind(ph=str(value.get("ph", "")))
    for field in ("cat", "name"):
        if value.get(field) is not None:
            setattr(event, field, str(value[field]))
    for field in ("pid", "tid", "ts", "dur", "id"):
        given = value.get(field)
        if isinstance(given, int | float | str) and not isinstance(given, bool):
            setattr(event, field, given)
    for field in ("id2", "scope", "flow_in", "flow_out"):
        setattr(event, field, value.get(field))
    bound = value.get("bind_id")
    event.bind_id = bound if isinstance(bound, int | str) else None
    for field in ("args", "attr"):
        if field in value:
            setattr(event, field, msgspec.Raw(msgspec.json.encode(value[field])))
    return event


# -- where arguments stand --------------------------------------------------------------------


def places(texts: Sequence[memoryview], within: bytes) -> tuple[Int64, Int32] | None:
    """Where these arguments, which stand in this order, begin in the events' text; their lengths.

    Arguments that say nothing have length 0. None when some do not stand there.
    """
    lengths = np.fromiter(map(len, texts), np.int32, len(texts))
    given = np.flatnonzero(lengths)
    starts = np.zeros(len(texts), np.int64)
    wanted = texts if len(given) == len(texts) else [texts[row] for row in given.tolist()]
    found = _behind_the_key(within)
    if len(found) != len(wanted) or not all(map(within.startswith, wanted, found.tolist())):
        one_by_one = _in_order(wanted, within)
        if one_by_one is None:
            return None
        found = one_by_one
    starts[given] = found
    for row in np.flatnonzero((lengths == 2) | (lengths == 4)).tolist():
        if bytes(texts[row]) in NO_ARGUMENTS:
            lengths[row] = 0
    return starts, lengths


def _behind_the_key(within: bytes) -> Int64:
    """Where a value begins whose key is ``args``; a guess, which the caller has to check."""
    text = np.frombuffer(within, np.uint8)
    at = np.flatnonzero(text[3:-8] == ord("g")) + 3
    for distance, byte in ((2, '"'), (1, "s"), (3, ":"), (-1, "r"), (-2, "a"), (-3, '"')):
        at = at[text[at + distance] == ord(byte)]
    at += 4
    at += text[at] == ord(" ")
    return at


def _in_order(texts: Sequence[memoryview], within: bytes) -> Int64 | None:
    """The first place of each text behind the one before it.

    That may be before the text's own place, but then the same bytes stand there; so a place is
    never behind the text's own, and the next text is always found.
    """
    starts = np.zeros(len(texts), np.int64)
    at = 0
    for row, text in enumerate(texts):
        at = within.find(text, at)
        if at < 0:
            return None
        starts[row] = at
        at += len(text)
    return starts
