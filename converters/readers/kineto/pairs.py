"""Joining begin and end events: ``B`` with ``E`` of a thread, ``b`` with ``e`` of an identifier.

Format: the Trace Event Format document of the Chromium project, sections on duration events and
on (nestable and older) async events.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neuron_tb.converters.model import Bools, Int64
from neuron_tb.converters.readers.kineto.foreign import joined_arguments

BEGINS, ENDS, POINTS = frozenset("bS"), frozenset("eF"), frozenset("nTp")
"""Phases of asynchronous events: the small letters nest by category, the others are older."""

ENDS_OF_PAIRS = ENDS | {"E"}

_MOST_ROWS = 500
"""Names of asynchronous spans that get rows of their own; others share their category's."""


@dataclass(frozen=True, slots=True)
class AsyncRow:
    """Stands for a thread where there is none: the row of asynchronous spans called ``label``."""

    label: str
    lane: int

    def __str__(self) -> str:
        return self.label if self.lane == 0 else f"{self.label} ({self.lane + 1})"


class SharedRow(AsyncRow):
    """Stands for the threads of a file that are too many for rows of their own."""


@dataclass(slots=True)
class Pairs:
    """Positions in the input: ``closed`` pairs (begin, end), and what stayed alone."""

    closed: list[tuple[int, int]] = field(default_factory=list)
    unclosed: list[int] = field(default_factory=list)
    lonely_ends: list[int] = field(default_factory=list)


def in_order_of_time(times_ns: Int64, is_end: Bools) -> list[int]:
    """Positions of events in the order of time.

    Events of one time keep the file's order where the file is in order of time; elsewhere ends
    come first.
    """
    if not np.any(times_ns[1:] < times_ns[:-1]):
        return list(range(len(times_ns)))
    order: list[int] = np.lexsort((~is_end, times_ns)).tolist()
    return order


def pair(
    rows: Sequence[int],
    keys: Sequence[Hashable],
    names: Sequence[Hashable],
    times: Sequence[int],
    is_end: Sequence[bool],
) -> Pairs:
    """Join begins and ends of equal ``keys``; ``rows`` are positions in the order of time.

    An end closes the innermost begin of its own name (None: of any name), so crossing pairs stay
    what they are. Where several stand at one time, an end that closes nothing waits for a begin.
    """
    found = Pairs()
    begins = _OpenBegins()
    waiting: dict[tuple[Hashable, Hashable], list[int]] = defaultdict(list)
    for row in rows:
        key, name = keys[row], names[row]
        if is_end[row]:
            begin = begins.take(key, name)
            if begin is None:
                waiting[key, name].append(row)
            else:
                found.closed.append((begin, row))
            continue
        for late in (waiting.get((key, name)), waiting.get((key, None))):
            if late and times[late[-1]] == times[row]:
                found.closed.append((row, late.pop()))
                break
        else:
            begins.add(key, name, row)
    found.unclosed = begins.rest()
    found.lonely_ends = [row for late in waiting.values() for row in late]
    return found


class _OpenBegins:
    """Begins that are open, innermost last; each is looked at once, however many are open."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[Hashable, Hashable], list[int]] = defaultdict(list)
        self._by_key: dict[Hashable, list[tuple[int, Hashable]]] = defaultdict(list)
        self._open: set[int] = set()

    def add(self, key: Hashable, name: Hashable, row: int) -> None:
        self._by_name[key, name].append(row)
        self._by_key[key].append((row, name))
        self._open.add(row)

    def take(self, key: Hashable, name: Hashable) -> int | None:
        if name is None:
            stack = self._by_key[key]
            while stack and stack[-1][0] not in self._open:
                stack.pop()
            if not stack:
                return None
            name = stack[-1][1]
        rows = self._by_name.get((key, name))
        if not rows:
            return None
        row = rows.pop()
        self._open.discard(row)
        return row

    def rest(self) -> list[int]:
        return [row for rows in self._by_name.values() for row in rows]


@dataclass(slots=True)
class AsyncSpans:
    """What asynchronous events became; every event's ``tid`` is an ``AsyncRow`` now.

    ``durations_ns`` belongs to ``spans``; ``points`` are instants, ``unclosed`` begins without an
    end, to be shown as instants; ``lonely`` counts ends without a begin.
    """

    spans: list[Any]
    durations_ns: list[int]
    points: list[Any]
    unclosed: list[Any]
    lonely: int


def asynchronous(events: list[Any], times_ns: Int64) -> AsyncSpans:
    """Spans of asynchronous events (all with a readable time), and the rows they stand in.

    An identifier joins events of one process, unless it is stated to be global or its other end
    is in another process.
    """
    times = times_ns.tolist()
    keys: list[Hashable] = [_key(event) for event in events]
    names = [_name_to_match(event) for event in events]
    is_end = [event.ph in ENDS for event in events]
    order = in_order_of_time(times_ns, np.array(is_end, np.bool_))
    local = pair([r for r in order if events[r].ph not in POINTS], keys, names, times, is_end)
    alone = {*local.unclosed, *local.lonely_ends}
    everywhere: list[Hashable] = [key[1:] for key in keys]  # type: ignore[index]
    distant = pair([r for r in order if r in alone], everywhere, names, times, is_end)
    closed = sorted(local.closed + distant.closed)
    _assign_rows(events, keys, times, closed, distant.unclosed)
    begins = [begin for begin, _ in closed]
    for begin, end in closed:
        events[begin].args = joined_arguments(events[begin].args, events[end].args)
    return AsyncSpans(
        [events[row] for row in begins],
        [times[end] - times[begin] for begin, end in closed],
        [event for event in events if event.ph in POINTS],
        [events[row] for row in distant.unclosed],
        len(distant.lonely_ends),
    )


def _key(event: Any) -> tuple[Hashable, ...]:
    """(process, category, scope, identifier, name of older events) of an event."""
    two = getattr(event, "id2", None)
    two = two if isinstance(two, dict) else {}
    given = two.get("local", two.get("global", event.id))
    identity = given if isinstance(given, int | float | str) else None
    process = None if "global" in two else event.pid
    older = event.name if event.ph in "STpF" else None
    return process, event.cat, getattr(event, "scope", None), identity, older


def _name_to_match(event: Any) -> str | None:
    return None if event.ph in ENDS and not event.name else event.name or ""


def _assign_rows(
    events: list[Any],
    keys: list[Hashable],
    times: list[int],
    closed: list[tuple[int, int]],
    unclosed: list[int],
) -> None:
    """Spans of one identifier stand together; identifiers that overlap in time, in lanes."""
    units: dict[Hashable, list[int]] = {}
    for begin, end in closed:
        unit = units.setdefault(keys[begin], [begin, times[begin], times[end]])
        if times[begin] < unit[1]:
            unit[:2] = [begin, times[begin]]
        unit[2] = max(unit[2], times[end])
    for row in (*unclosed, *(r for r, e in enumerate(events) if e.ph in POINTS)):
        unit = units.setdefault(keys[row], [row, times[row], times[row]])
        unit[2] = max(unit[2], times[row])
    labels: dict[str, None] = {}
    free: dict[tuple[object, str], list[tuple[int, int]]] = defaultdict(list)
    row_of: dict[Hashable, AsyncRow] = {}
    for key, (first, start, end) in sorted(units.items(), key=lambda unit: unit[1][1]):
        label = _label(events[first], labels)
        lanes = free[events[first].pid, label]
        is_free = lanes and lanes[0][0] <= start
        lane = heapq.heappop(lanes)[1] if is_free else len(lanes)
        heapq.heappush(lanes, (end, lane))
        row_of[key] = AsyncRow(label, lane)
    for event, key in zip(events, keys, strict=True):
        event.tid = row_of.get(key, event.tid)


def _label(event: Any, labels: dict[str, None]) -> str:
    name = event.name or event.cat or "asynchronous"
    if name not in labels and len(labels) >= _MOST_ROWS:
        return event.cat or "asynchronous"
    labels[name] = None
    return str(name)
