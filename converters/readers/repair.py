"""Reading damaged JSON event by event, when decoding it as a whole has failed.

The text is cut into chunks between events. A chunk that decodes is taken as it is; in one that
does not, events are decoded one by one, and only those that fail are mended
(:mod:`.repair_object`) or, where that is not certain, left out and counted. Every event that
comes out stands in the damaged text, but for what the findings say was mended.

The work is linear in the text's length, also for hostile texts: attempts that fail are paid
from a budget.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.readers import repair_object as mending
from neuron_tb.converters.readers.repair_object import Words, mend

EVENT_LISTS = ("traceEvents", "trace_events", "trace_event")
BASE_TIME = "baseTimeNanoseconds"
_OTHER_LISTS = ("mem_usage", "cpu_util", "device_mem_usage", "warnings")
_BARE_ARRAY = ""
"""The name of the list in a document that is one: a top-level array."""

_CHUNK = 1 << 18
_WINDOW = 1 << 16
_MEND_WITHIN = 1 << 20
_MOST_SINGLE_LOSSES = 50
_BUDGET_PER_BYTE = 16

_SEPARATORS = re.compile(rb"[ \t\r\n,]*")
_BLANK = re.compile(rb"[ \t\r\n]*")
_NOTHING = re.compile(rb"(?:[ \t\r\n\x00]|\xef\xbb\xbf)*")
_BETWEEN_EVENTS = re.compile(rb'\}[ \t\r\n]*(,)[ \t\r\n]*\{[ \t\r\n]*"')
_KEY = re.compile(rb'"([^"\\\x00-\x1f]{0,200})"[ \t\r\n]*:[ \t\r\n]*')
_POSITION = re.compile(r"\(byte (\d+)\)$")

_EVENT_KEYS = (
    b"ph cat name pid tid ts dur args id bp s tts tdur attr cname sf stack bind_id flow_in "
    b"flow_out scope id2 timestamp start_ts duration duration_ns instance_id process_id "
    b"thread_id nc_idx lnc_idx exec_id nrta_seq_id type trace_event_source"
).split()
_CORE_KEYS = frozenset(
    b"ph cat name pid tid ts dur args timestamp start_ts duration process_id".split()
)
_DOCUMENT_KEYS = (
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    BASE_TIME,
    "displayTimeUnit",
    "traceName",
)
_ANCHOR = re.compile(
    rb'\{[ \t\r\n]*"'
    rb'|"(%s)"[ \t\r\n]*:[ \t\r\n]*\['
    rb'|"(%s)"[ \t\r\n]*:'
    % (
        "|".join((*EVENT_LISTS, *_OTHER_LISTS)).encode(),
        "|".join(_DOCUMENT_KEYS).encode(),
    )
)
_HEADER = re.compile(rb'"(?:%s)"[ \t\r\n]*:[ \t\r\n]*\[' % "|".join(EVENT_LISTS).encode())
_EVENT_MARK = re.compile(rb'"(?:ph|timestamp|start_ts)"[ \t\r\n]*:')
_BASE_VALUE = re.compile(rb'"baseTimeNanoseconds"[ \t\r\n]*:[ \t\r\n]*(\d{1,19})[ \t\r\n]*[,}]')
_BASE_NAME = re.compile(rb"base ?time ?nano|timenanosec", re.IGNORECASE)


class _Shape(msgspec.Struct, gc=False):
    """What makes an object an event."""

    ph: msgspec.Raw = msgspec.Raw()
    ts: msgspec.Raw = msgspec.Raw()
    name: msgspec.Raw = msgspec.Raw()
    timestamp: msgspec.Raw = msgspec.Raw()
    start_ts: msgspec.Raw = msgspec.Raw()


_SKIP = msgspec.json.Decoder(msgspec.Raw).decode
_LIST = msgspec.json.Decoder(list[msgspec.Raw]).decode
_SHAPE = msgspec.json.Decoder(_Shape).decode
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(slots=True)
class Repaired:
    """What could be read: an object's top-level ``keys``, or the ``array`` of a bare list."""

    keys: dict[str, msgspec.Raw]
    array: bytes | None
    events: int


def repair(name: str, data: bytes, findings: Findings) -> Repaired:
    """Read what can be read of a damaged JSON text.

    ``name`` is the file's, for the places in ``findings``, which say what was mended and which
    bytes are lost.
    """
    scanner = _Scanner(data)
    scanner.run()
    _Report(name, data, scanner, findings).write()
    return scanner.result()


@dataclass(slots=True)
class _Rows:
    """The events of one list of one document, as pieces of text between commas."""

    pieces: list[bytes | memoryview] = field(default_factory=list)
    count: int = 0


@dataclass(slots=True)
class _Part:
    """One JSON document of the file; undamaged files have one."""

    keys: dict[str, msgspec.Raw] = field(default_factory=dict)
    lists: dict[str, _Rows] = field(default_factory=dict)
    start: int = 0

    @property
    def events(self) -> int:
        return sum(self.lists[name].count for name in (*EVENT_LISTS, "") if name in self.lists)


@dataclass(slots=True)
class _Place:
    count: int
    first: int
    event: int


class _Scanner:
    """Walks over the text; each method takes a position and returns the one to go on from."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.view = memoryview(data)
        self.size = len(data)
        self.parts: list[_Part] = []
        self.notes: dict[str, _Place] = {}
        self.losses: list[tuple[int, int]] = []
        self.words = Words(set(_EVENT_KEYS), _CORE_KEYS)
        self.budget = _BUDGET_PER_BYTE * self.size + (1 << 20)
        self.current = ""
        self.starts: re.Pattern[bytes] = _starts(_EVENT_KEYS)
        self._learned = 0

    def run(self) -> None:
        at = 0
        while at < self.size:
            at = self._document(at)

    # -- results ----------------------------------------------------------------------------

    def result(self) -> Repaired:
        keys: dict[str, msgspec.Raw] = {}
        base = next((k for p in self.parts if (k := _base(p)) is not None), None)
        lists: dict[str, list[bytes | memoryview]] = {}
        for part in self.parts:
            for name, value in part.keys.items():
                keys.setdefault(name, value)
            own = _base(part)
            shift = 0 if own is None or base is None else own - base
            for name, rows in part.lists.items():
                pieces = _shifted(rows.pieces, shift) if shift else rows.pieces
                lists.setdefault(name, []).extend(pieces)
        events = sum(part.events for part in self.parts)
        if set(lists) == {_BARE_ARRAY} and not keys:
            return Repaired({}, _joined(lists[_BARE_ARRAY]), events)
        if _BARE_ARRAY in lists:
            lists.setdefault(EVENT_LISTS[0], []).extend(lists.pop(_BARE_ARRAY))
        for name, pieces in lists.items():
            keys[name] = msgspec.Raw(_joined(pieces))
        return Repaired(keys, None, events)

    def note(self, kind: str, at: int, count: int = 1) -> None:
        place = self.notes.get(kind)
        if place is None:
            event = sum(part.events for part in self.parts)
            self.notes[kind] = _Place(count, at, event)
        else:
            place.count += count

    def lose(self, start: int, end: int) -> None:
        """Bytes that belong to nothing that was read; separators between events are no loss."""
        if not self.data[start:end].strip(b" \t\r\n,"):
            return
        if self.losses and not self.data[self.losses[-1][1] : start].strip(b" \t\r\n,"):
            self.losses[-1] = (self.losses[-1][0], end)
        else:
            self.losses.append((start, end))

    # -- documents --------------------------------------------------------------------------

    def _document(self, at: int) -> int:
        match = _NOTHING.match(self.data, at)
        first = match.end() if match else at
        if first >= self.size:
            if self.data.find(b"\0", at) >= 0:
                self.note("text_after_end", at, self.size - at)
            return self.size
        self.parts.append(_Part(start=first))
        opening = self.data[first : first + 1]
        if opening == b"[":
            return self._rows(first + 1, _BARE_ARRAY)
        if opening == b"{":
            end = self._end_of_value(first, _WINDOW)
            if end > 0 and self._is_event(first, end):
                return self._rows(first, _BARE_ARRAY)
            return self._object(first + 1)
        return self._after_garbage(first, "")

    def _object(self, at: int) -> int:
        """The members of a top-level object, from a position before a key or its end."""
        while True:
            separators = _SEPARATORS.match(self.data, at)
            start, at = at, separators.end() if separators else at
            if at >= self.size:
                self.note("json_unclosed", self.size)
                return self.size
            if self.data[at : at + 1] == b"}":
                if b"," in self.data[start:at]:
                    self.note(mending.TRAILING_COMMA, start)
                return at + 1
            key = _KEY.match(self.data, at)
            if key is None:
                return self._after_garbage(at, self.current)
            at = self._member(key)
            if at < 0:
                return -at

    def _member(self, key: re.Match[bytes]) -> int:
        """Read one member; negative when reading went on outside the object."""
        name = key[1].decode("utf-8", "replace")
        at = key.end()
        if name in EVENT_LISTS and self.data[at : at + 1] == b"[":
            return -self._rows(at + 1, name)
        end = self._end_of_value(at)
        if end > 0:
            self._keep(name, at, self.data[at:end])
            return end
        limit = self._next_key(at)
        mended = mend(self.data, at, limit, self.words)
        if mended is not None:
            self._note_mended(mended)
            self._keep(name, at, mended.text)
            return mended.end
        if self.data[at : at + 1] == b"[" and name in _OTHER_LISTS:
            return -self._rows(at + 1, name)
        if name == BASE_TIME:
            self.note("base_time_unreadable", key.start())
        return -self._after_garbage(key.start(), self.current, at)

    def _keep(self, name: str, at: int, text: bytes) -> None:
        keys = self.parts[-1].keys
        if name in keys and bytes(keys[name]) != text:
            self.note("key_repeated", at)
        keys.setdefault(name, msgspec.Raw(text))

    def _next_key(self, at: int) -> int:
        for match in _ANCHOR.finditer(self.data, at, min(self.size, at + _MEND_WITHIN)):
            if match.lastindex:
                return match.start()
        return min(self.size, at + _MEND_WITHIN)

    # -- lists of events --------------------------------------------------------------------

    def _rows(self, at: int, name: str) -> int:
        """The rows of a list, from a position inside it to behind its end, and what follows."""
        self.current = name
        rows = self.parts[-1].lists.setdefault(name, _Rows())
        while True:
            cut = _BETWEEN_EVENTS.search(self.data, at + _CHUNK)
            end = cut.start(1) if cut else self.size
            closed = self._clean_chunk(rows, at, end)
            if closed == 0:
                at = end + 1
            elif closed > 0:
                return self._object_or_end(closed, name)
            else:
                at, left = self._walk(rows, at, end, name)
                if left:
                    return at
            if at >= self.size:
                self.note("json_unclosed", self.size)
                return self.size

    def _object_or_end(self, at: int, name: str) -> int:
        return at if name == _BARE_ARRAY else self._object(at)

    def _clean_chunk(self, rows: _Rows, at: int, end: int) -> int:
        """Take a chunk as a whole: 0 when it was clean, the position behind the list's end when
        that is inside it, negative when it must be looked at.
        """
        last = end >= self.size
        try:
            found = _LIST(b"[%b%b" % (self.view[at:end], b"" if last else b"]"))
        except msgspec.MsgspecError as error:
            behind = _trailing(error)
            close = self.data.rfind(b"]", at, at + behind - 1) if behind else -1
            if close < 0:
                return -1
            try:
                found = _LIST(b"[%b]" % self.view[at:close])
            except (msgspec.MsgspecError, RecursionError):
                return -1
            if not self._may_end(close):
                return -1
            self._take(rows, found, at, close)
            return close + 1
        except RecursionError:
            return -1
        if last:
            # The text ended with the list's own bracket.
            end = self.data.rfind(b"]", at)
            self._take(rows, found, at, end)
            return end + 1
        self._take(rows, found, at, end)
        return 0

    def _take(self, rows: _Rows, found: list[msgspec.Raw], start: int, end: int) -> None:
        if not found:
            return
        rows.pieces.append(self.view[start:end])
        rows.count += len(found)
        if self._learned < 3:
            self._learned += 1
            self._learn(found[:200])

    def _learn(self, rows: Iterable[msgspec.Raw]) -> None:
        first: set[bytes] = set()
        for row in rows:
            try:
                keys = [key.encode() for key in _FIELDS(row)]
            except (msgspec.MsgspecError, UnicodeError):
                continue
            self.words.known.update(keys)
            first.update(keys[:1])
        self.starts = _starts({*_EVENT_KEYS, *first})

    def _walk(self, rows: _Rows, at: int, end: int, name: str) -> tuple[int, bool]:
        """Read the rows that begin before ``end`` one by one.

        Returns the position behind them, and whether reading has left the list.
        """
        clean = None  # the start of a run of undamaged rows
        behind = at  # the end of the last row
        while at < end:
            separators = _SEPARATORS.match(self.data, at)
            start = separators.end() if separators else at
            if start >= end and start >= self.size:
                if b"," in self.data[at:start] and clean is None and not rows.count:
                    pass
                at = start
                break
            byte = self.data[start : start + 1]
            stop = self._end_of_row(start) if byte != b"]" and byte != b"}" else 0
            if stop > 0:
                if clean is None or not self._one_comma(behind, start, rows):
                    self._flush(rows, clean, behind)
                    clean = start
                rows.count += 1
                at = behind = stop
                continue
            self._flush(rows, clean, behind)
            clean = None
            at, left = self._no_row(rows, behind, start, name)
            if left:
                return at, True
            behind = at
        self._flush(rows, clean, behind)
        return at, False

    def _flush(self, rows: _Rows, start: int | None, end: int) -> None:
        if start is not None:
            rows.pieces.append(self.view[start:end])

    def _one_comma(self, behind: int, start: int, rows: _Rows) -> bool:
        commas = self.data.count(b",", behind, start)
        if commas == 0:
            self.note("missing_comma", behind)
        elif commas > 1:
            self.note("repeated_comma", behind)
        return commas == 1

    def _end_of_row(self, at: int) -> int:
        """Behind the whole row at ``at``; 0 when it is damaged or no row."""
        end = self._end_of_value(at)
        if end <= 0:
            return 0
        if self.data[at : at + 1] == b'"' and _KEY.match(self.data, at):
            return 0
        inner = self._event_inside(at, end)
        return 0 if inner else end

    def _event_inside(self, at: int, end: int) -> int:
        """An event inside a value that decodes: the value swallowed it, so it is no row."""
        if self.data[at : at + 1] not in (b"{", b"["):
            return 0
        match = self.starts.search(self.data, at + 1, end)
        tries = 0
        while match and tries < 20:
            tries += 1
            stop = self._end_of_value(match.start(), end - match.start())
            if stop > 0 and self._is_event(match.start(), stop):
                return match.start()
            match = self.starts.search(self.data, match.start() + 1, end)
        return 0

    def _no_row(self, rows: _Rows, behind: int, at: int, name: str) -> tuple[int, bool]:
        """Go on where no undamaged row begins: the list's end, a damaged row or none."""
        byte = self.data[at : at + 1]
        if byte == b"]" and self._may_end(at):
            if b"," in self.data[behind:at] and rows.count:
                self.note(mending.TRAILING_COMMA, behind)
            return self._object_or_end(at + 1, name), True
        if byte == b"}" and self._only_nothing(at + 1):
            return at + 1, True
        if byte in (b"]", b"}"):
            self.lose(at, at + 1)
            return at + 1, False
        if byte == b'"' and name != _BARE_ARRAY and _KEY.match(self.data, at):
            self.note("list_unclosed", at)
            return self._object(at), True
        mended = self._mend_row(at, name) if byte == b"{" else None
        if mended is not None:
            rows.pieces.append(mended.text)
            rows.count += 1
            return mended.end, False
        return self._resync(at, name)

    def _may_end(self, at: int) -> bool:
        """Whether the bracket at ``at`` is the list's last one, by what follows it."""
        match = _SEPARATORS.match(self.data, at + 1)
        after = match.end() if match else at + 1
        comma = b"," in self.data[at + 1 : after]
        byte = self.data[after : after + 1]
        if byte in (b"", b"\0"):
            return True
        if byte == b'"':
            return _KEY.match(self.data, after) is not None
        return byte == b"}" or (byte in (b"{", b"[") and not comma)

    def _only_nothing(self, at: int) -> bool:
        match = _NOTHING.match(self.data, at)
        return match is None or match.end() >= self.size

    def _mend_row(self, at: int, name: str) -> mending.Mended | None:
        for limit in self._limits(at):
            self.budget -= limit - at
            if self.budget < 0:
                return None
            mended = mend(self.data, at, limit, self.words)
            if mended is None:
                continue
            try:
                shape = _SHAPE(mended.text)
            except (msgspec.MsgspecError, RecursionError):
                continue
            if name in (*EVENT_LISTS, _BARE_ARRAY) and not _has_shape(shape):
                continue
            self._note_mended(mended)
            return mended
        return None

    def _limits(self, at: int) -> Iterator[int]:
        """Where a damaged row may end at the latest: before the next row, which is certain when
        that one is undamaged.
        """
        last = min(self.size, at + _MEND_WITHIN)
        found = at
        for _ in range(3):
            match = self.starts.search(self.data, found + 1, last)
            if match is None:
                yield last
                return
            found = match.start()
            yield found
            stop = self._end_of_value(found, _WINDOW)
            if stop > 0 and self._is_event(found, stop):
                return

    # -- finding the way back ---------------------------------------------------------------

    def _resync(self, lost: int, name: str) -> tuple[int, bool]:
        """Skip a row that cannot be mended: the next row, or what follows the list."""
        at, kind = self._next_anchor(lost + 1)
        self.lose(lost, at)
        if _HEADER.search(self.data, lost, at):
            self.note("several_writers", lost)
        if kind == "row" or at >= self.size:
            return at, False
        if kind == "list":
            self.note("several_writers", at)
        return self._object(at), True

    def _after_garbage(self, at: int, name: str, behind: int = 0) -> int:
        """Go on in an object, or between documents, where nothing known stands."""
        anchor, kind = self._next_anchor(max(at + 1, behind))
        self.lose(at, anchor)
        if anchor >= self.size:
            return self.size
        if kind != "row":
            return self._object(anchor)
        if not name and (len(self.parts) == 1 or self.parts[-1].keys):
            name = self._list_of(anchor)
        return self._rows(anchor, name)

    def _list_of(self, at: int) -> str:
        """The list that a row belongs to whose list's beginning is lost."""
        shape = _Shape()
        try:
            end = self._end_of_value(at)
            shape = _SHAPE(self.view[at:end]) if end > 0 else shape
        except (msgspec.MsgspecError, RecursionError):
            pass
        of_profile = len(memoryview(shape.timestamp)) or len(memoryview(shape.start_ts))
        return EVENT_LISTS[1] if of_profile else EVENT_LISTS[0]

    def _next_anchor(self, at: int) -> tuple[int, str]:
        """The next place where reading can go on, and what it is: "row", "list", "key", ""."""
        while at < self.size and self.budget > 0:
            match = _ANCHOR.search(self.data, at)
            if match is None:
                break
            at = match.start()
            if match[1]:
                return at, "list"
            if match[2]:
                return at, "key"
            end = self._end_of_value(at)
            if end > 0:
                if self._is_event(at, end) and not self._event_inside(at, end):
                    return at, "row"
            elif self.starts.match(self.data, at) and self._after_separator(at):
                return at, "row"
            at += 1
        if self.budget <= 0:
            self.note("damage_too_dense", at)
        return self.size, ""

    def _after_separator(self, at: int) -> bool:
        before = self.data[max(0, at - 64) : at].rstrip(b" \t\r\n")
        return before[-1:] in (b",", b"[", b"}", b"]", b"")

    # -- single values ----------------------------------------------------------------------

    def _end_of_value(self, at: int, within: int = 0) -> int:
        """Behind the undamaged value at ``at``; 0 when it is damaged.

        A value that runs on for long is only believed when no other event begins inside it.
        """
        window = within or _WINDOW
        while True:
            stop = min(self.size, at + window)
            try:
                _SKIP(self.view[at:stop])
            except msgspec.MsgspecError as error:
                behind = _trailing(error)
                if behind:
                    return self._trimmed(at, at + behind - 1)
                self.budget -= _position(error, stop - at)
                if not str(error).endswith("truncated") or stop >= self.size or within:
                    return 0
                if self.starts.search(self.data, at + 1, stop) and self._event_inside(at, stop):
                    return 0
                window *= 8
                continue
            except RecursionError:
                self.budget -= _WINDOW
                return 0
            return self._trimmed(at, stop)

    def _trimmed(self, start: int, end: int) -> int:
        while end > start and self.data[end - 1] in b" \t\r\n":
            end -= 1
        return end

    def _is_event(self, start: int, end: int) -> bool:
        try:
            return _has_shape(_SHAPE(self.view[start:end]))
        except (msgspec.MsgspecError, RecursionError):
            return False

    def _note_mended(self, mended: mending.Mended) -> None:
        for kind, count in mended.kinds.items():
            self.note(kind, mended.first[kind], count)
