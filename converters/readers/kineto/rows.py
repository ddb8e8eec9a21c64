"""Rows of slices, instants and samples, made of the events of a list.

A large list is decoded in two halves, the second one by another process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import NONE, Bools, Columns, Int32, Int64, StringTable, column
from neuron_tb.converters.readers.json import bounds
from neuron_tb.converters.readers.json.chunks import Listing
from neuron_tb.converters.readers.json.document import Document
from neuron_tb.converters.readers.json.second_process import Helper, HelperError, may_fork
from neuron_tb.converters.readers.kineto.arguments import identifiers
from neuron_tb.converters.readers.kineto.events import Decoder, Event, Events, places
from neuron_tb.converters.readers.kineto.flows import bound_ends
from neuron_tb.converters.readers.kineto.foreign import (
    COUNTER_MARK,
    is_counter_sample,
    joined_arguments,
)
from neuron_tb.converters.readers.kineto.pairs import (
    SharedRow,
    asynchronous,
    in_order_of_time,
    pair,
)
from neuron_tb.converters.readers.kineto.tracks import Key, identifier
from neuron_tb.converters.readers.values import ArgumentStore, Numbers, nanoseconds

_LOOK_AT = 1 << 20
_BINDING = frozenset("XBE")
_UNNAMED = "(unnamed)"


@dataclass(slots=True)
class Rows(Columns):
    """Slices, instants or samples before they have tracks: what the file says of each."""

    start_ns: Int64 = column(np.int64)
    duration_ns: Int64 = column(np.int64)
    name: Int32 = column(np.int32)
    category: Int32 = column(np.int32)
    thread: Int32 = column(np.int32)
    external_id: Int64 = column(np.int64)
    correlation: Int64 = column(np.int64)
    sequence_id: Int64 = column(np.int64)
    exec_id: Int64 = column(np.int64)
    device: Int32 = column(np.int32)
    args_start: Int64 = column(np.int64)
    args_length: Int32 = column(np.int32)

    @classmethod
    def put_together(cls, parts: list[Rows]) -> Rows:
        """The rows of all parts, which are empty afterwards: columns are in memory only once."""
        if len(parts) == 1:
            return parts[0]
        joined = cls.empty()
        for f in fields(cls):
            pieces = [getattr(part, f.name) for part in parts]
            setattr(joined, f.name, np.concatenate([getattr(joined, f.name), *pieces]))
            for part in parts:
                setattr(part, f.name, None)
        return joined


@dataclass
class Found:
    """What decoding has found: rows of slices, and all other events by their phase.

    ``bound``: ends of arrows that slices name. ``stored``: what may be counter samples.
    """

    parts: list[Rows] = field(default_factory=list)
    by_phase: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    bound: list[Any] = field(default_factory=list)
    stored: list[Any] = field(default_factory=list)


@dataclass
class _Half:
    """The second half of a file, as another process read it, with the tables it refers to."""

    rows: Rows
    by_phase: dict[str, list[Any]]
    bound: list[Any]
    stored: list[Any]
    strings: list[str]
    threads: list[Key]
    generated: bytes
    decoder: tuple[bool, bool]
    is_from_neuron: bool
    findings: Findings


class RowReader:
    """Turns events into rows; strings, threads and arguments are numbered as they come.

    ``threads``: a number per (pid, tid). ``is_from_neuron``: arguments that only Neuron writes.
    """

    def __init__(self, document: Document, base_ns: int, findings: Findings) -> None:
        self.findings = findings
        self.table = StringTable()
        self.threads: dict[Key, int] = {}
        self.is_from_neuron = False
        self._document, self.base_ns = document, base_ns
        self._raw_threads: dict[Key, int] = {}
        self._pids: dict[object, None] = {}
        self._listing = document.listing("traceEvents")
        self.store = ArgumentStore(self._listing.text)
        self._decoder = Decoder(document.path.name, document.value, self.findings)
        first = self._listing.text[self._listing.start : self._listing.start + _LOOK_AT]
        self._has_attr = b'"attr"' in first

    @property
    def resolution_ns(self) -> int:
        """The finest difference that the times read so far could express."""
        return self._decoder.resolution_ns

    # -- decoding ---------------------------------------------------------------------------

    @classmethod
    def of(cls, document: Document, base_ns: int, findings: Findings) -> tuple[RowReader, Found]:
        """A reader that has decoded the whole list, and what it found."""
        reader = cls(document, base_ns, Findings(findings))
        listing = reader._listing
        halves = listing.halves() if may_fork(listing.end - listing.start) else None
        if halves is not None:
            try:
                return reader, reader._find_in_halves(*halves)
            except (HelperError, msgspec.DecodeError):
                reader = cls(document, base_ns, Findings(findings))
        return reader, reader._find(reader._listing)

    def _find(self, listing: Listing) -> Found:
        """Decode all events of a list."""
        found = Found()
        for events in self._decoder.events(listing):
            phases = [e.ph for e in events.rows]
            slices: Events = events
            others: list[Event] = []
            if phases.count("X") < len(phases):
                slices, others = _apart(events, [phase == "X" for phase in phases])
            for event in others:
                found.by_phase["B" if event.ph == "E" else event.ph].append(_detached(event))
            if [e.bind_id for e in events.rows].count(None) < len(phases):
                found.bound += bound_ends(e for e in events.rows if e.ph in _BINDING)
            rows, samples = self._complete(slices)
            found.parts.append(rows)
            found.stored += samples
        return found

    def _find_in_halves(self, first: Listing, second: Listing) -> Found:
        """Decode two halves of the list, the second one in another process.

        Raises HelperError, or a decoding error, where the halves are not what they seemed; this
        reader is of no use then.
        """
        helper = Helper(lambda: self._half(second))
        try:
            found = self._find(first)
            half = helper.result()
        finally:
            helper.stop()
        if not self._decoder.join(half.decoder):
            raise HelperError
        rows = half.rows
        strings = self.table.intern_all(half.strings, len(half.strings))
        threads = np.array([self._number_of_thread(*key) for key in half.threads], np.int32)
        if len(rows):
            rows.name, rows.category = strings[rows.name], strings[rows.category]
            rows.thread = threads[rows.thread]
            self.store.add_generated(half.generated, rows.args_start)
        found.parts.append(rows)
        for phase, events in half.by_phase.items():
            found.by_phase[phase] += events
        found.bound += half.bound
        found.stored += half.stored
        self.is_from_neuron |= half.is_from_neuron
        self.findings.extend(half.findings)
        return found

    def _half(self, listing: Listing) -> _Half:
        """The second half, in a process of its own. Raises HelperError for odd entries."""
        said = len(self._document.findings)
        self.findings = self._decoder.findings = Findings()
        found = self._find(listing)
        if self.findings.of_kind("not_an_event") or len(self._document.findings) != said:
            raise HelperError  # these say where they stand in the whole list
        return _Half(
            Rows.put_together(found.parts),
            dict(found.by_phase),
            found.bound,
            found.stored,
            self.table.strings,
            list(self.threads),
            self.store.generated(),
            self._decoder.state,
            self.is_from_neuron,
            self.findings,
        )

    # -- rows -------------------------------------------------------------------------------

    def _complete(self, events: Events) -> tuple[Rows, list[Any]]:
        """Rows of complete events; apart from them those that may be counter samples."""
        samples: list[Any] = []
        if COUNTER_MARK in events.text:
            events, others = _apart(events, [not is_counter_sample(e) for e in events.rows])
            samples = [_detached(event) for event in others]
        durations = self.durations(events.dur)
        times, usable = nanoseconds(events.ts, self.base_ns)
        self._count_without_time(usable)
        texts = [memoryview(raw) for raw in self._arguments_of(events.rows)]
        found = places(texts, events.text)
        if found is None:
            found = self.store.add(texts)
        else:
            found[0][...] += events.offset
        rows = self._rows(events.rows, times, durations, texts, found)
        return rows if usable.all() else rows.take(usable), samples

    def durations(self, microseconds: Numbers) -> Int64:
        """Lengths in nanoseconds, negative where there is none."""
        durations, known = nanoseconds(microseconds)
        durations[~known] = NONE
        self.findings.add(
            "no_duration",
            "complete events without a duration are shown as instants",
            int(np.count_nonzero(~known)),
        )
        self.findings.add(
            "unfinished",
            "events that never finished (negative duration) are shown as instants",
            int(np.count_nonzero(known & (durations < 0))),
        )
        return durations

    def timed(self, events: list[Any], durations: Int64 | None = None) -> Rows:
        """Rows of events that have a time; the others are counted and left out."""
        times, usable = nanoseconds([e.ts for e in events], self.base_ns)
        self._count_without_time(usable)
        if durations is None:
            durations = np.zeros(len(events), np.int64)
        args = self._arguments_of(events)
        rows = self._rows(events, times, durations, args, self.store.add(args))
        return rows if usable.all() else rows.take(usable)

    def _rows(
        self,
        events: Sequence[Any],
        times: Int64,
        durations: Int64,
        args: Sequence[memoryview | msgspec.Raw | bytes],
        places_of_args: tuple[Int64, Int32],
    ) -> Rows:
        n = len(events)
        ids = identifiers(args)
        self.is_from_neuron |= ids.neuron
        name = self.table.intern_all([e.name or _UNNAMED for e in events], n)
        if (name == self.table.find(_UNNAMED)).any():
            unnamed = sum(e.name is None for e in events)
            self.findings.add("no_name", "events without a name are called (unnamed)", unnamed)
        return Rows(
            times,
            durations,
            name,
            self.table.intern_all([e.cat or "" for e in events], n),
            self.threads_of(events),
            ids.external_id,
            ids.correlation,
            ids.sequence_id,
            ids.exec_id,
            ids.device,
            *places_of_args,
        )

    def _count_without_time(self, usable: Bools) -> None:
        self.findings.add(
            "no_time",
            "events without a readable time were left out",
            int(np.count_nonzero(~usable)),
        )

    def _arguments_of(self, events: Sequence[Any]) -> list[msgspec.Raw | bytes]:
        if not self._has_attr:
            return [e.args for e in events]
        found = [e.args if len(memoryview(e.args)) else e.attr for e in events]
        self.findings.add(
            "arguments_under_attr",
            "arguments that stand under 'attr' are taken as the event's",
            sum(
                bool(len(memoryview(a))) and a is e.attr for a, e in zip(found, events, strict=True)
            ),
        )
        return found

    def threads_of(self, events: Sequence[Any]) -> Int32:
        """A number per event for its (pid, tid)."""
        pids, tids = [e.pid for e in events], [e.tid for e in events]
        known = self._raw_threads
        try:
            numbers = map(known.__getitem__, zip(pids, tids, strict=True))
            return np.fromiter(numbers, np.int32, len(events))
        except KeyError:
            # In order of appearance, so that outputs are reproducible.
            for key in dict.fromkeys(zip(pids, tids, strict=True)):
                if key not in known:
                    known[key] = self._number_of_thread(identifier(key[0]), identifier(key[1]))
            return self.threads_of(events)

    def _number_of_thread(self, pid: object, tid: object) -> int:
        key = (pid, tid)
        if key not in self.threads:
            key = self._key_within_bounds(pid, tid)
        return self.threads.setdefault(key, len(self.threads))

    def _key_within_bounds(self, pid: object, tid: object) -> Key:
        """The key of a new thread: its own, or a shared one where there are too many."""
        if pid not in self._pids and len(self._pids) >= bounds.MAX_PROCESSES:
            self.findings.add(
                "too_many_processes",
                f"events of processes after the first {bounds.MAX_PROCESSES:,} share one row",
            )
            return next(iter(self._pids)), SharedRow("further processes", 0)
        self._pids[pid] = None
        if len(self.threads) < bounds.MAX_TRACKS:
            return pid, tid
        self.findings.add(
            "too_many_threads",
            f"threads after the first {bounds.MAX_TRACKS:,} share a row of their process",
        )
        return pid, SharedRow("further threads", 0)

    def paired(self, events: list[Any]) -> Rows:
        """Complete rows made of ``B`` and ``E`` events of one thread, in the file's order."""
        times, usable = nanoseconds([e.ts for e in events], self.base_ns)
        self._count_without_time(usable)
        events = [event for event, good in zip(events, usable.tolist(), strict=True) if good]
        times = times[usable]
        is_end = np.array([e.ph == "E" for e in events], np.bool_)
        names = [e.name or _UNNAMED for e in events]
        found = pair(
            in_order_of_time(times, is_end),
            self.threads_of(events).tolist(),
            [
                None if e.ph == "E" and n == _UNNAMED else n
                for e, n in zip(events, names, strict=True)
            ],
            times.tolist(),
            is_end.tolist(),
        )
        self._count_unpaired(len(found.lonely_ends), len(found.unclosed))
        closed = np.array(found.closed, np.intp).reshape(-1, 2)
        lengths = times[closed[:, 1]] - times[closed[:, 0]]
        begins = closed[:, 0].tolist() + found.unclosed
        lengths = np.concatenate([lengths, np.full(len(found.unclosed), NONE, np.int64)])
        ends = self._arguments_of([events[row] for row in closed[:, 1].tolist()])
        ends += [b""] * len(found.unclosed)
        chosen = [events[row] for row in begins]
        args = [
            joined_arguments(*both) for both in zip(self._arguments_of(chosen), ends, strict=True)
        ]
        return self._rows(chosen, times[begins], lengths, args, self.store.add(args))

    def _count_unpaired(self, lonely: int, unclosed: int) -> None:
        self.findings.add("end_without_begin", "ends without a beginning were left out", lonely)
        self.findings.add(
            "unfinished",
            "events that never finished (a beginning without an end) are shown as instants",
            unclosed,
        )

    def asynchronous(self, events: list[Any]) -> tuple[Rows, Rows]:
        """Slices and instants made of asynchronous events, in rows of their own."""
        times, usable = nanoseconds([e.ts for e in events], self.base_ns)
        self._count_without_time(usable)
        events = [event for event, good in zip(events, usable.tolist(), strict=True) if good]
        found = asynchronous(events, times[usable])
        self._count_unpaired(found.lonely, len(found.unclosed))
        self.findings.add(
            "asynchronous_spans",
            "spans that no thread was busy with (asynchronous events) stand in rows of their own "
            "and count neither as operators nor as device work",
            len(found.spans),
        )
        spans = self.timed(found.spans, np.array(found.durations_ns, np.int64))
        return spans, self.timed(found.points + found.unclosed)


def _apart(events: Events, chosen: list[bool]) -> tuple[Events, list[Event]]:
    """The chosen events, and all others."""
    if all(chosen):
        return events, []
    others = [event for event, yes in zip(events.rows, chosen, strict=True) if not yes]
    return events.only(chosen), others


def _detached(event: Event) -> Event:
    """The event without the text it was decoded from."""
    event.args, event.attr = event.args.copy(), event.attr.copy()
    return event
