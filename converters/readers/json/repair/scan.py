"""Walking over damaged JSON: where its documents, lists and events begin and end.

The text is cut into chunks between events. A chunk that decodes is taken as it is; in one that
does not, events are decoded one by one, and only those that fail are mended
(``objects``) or, where that is not certain, left out and counted.

The work is linear in the text's length, also for hostile texts: attempts that fail are paid
from a budget.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from neuron_tb.converters.readers.json.repair.objects import Words, mend
from neuron_tb.converters.readers.json.repair.plain import (
    QUOTE,
    TRAILING_COMMA,
    Mended,
    end_before_trailing,
    mend_plainly,
    mend_values,
    position,
)
from neuron_tb.converters.readers.json.repair.shape import (
    BARE_ARRAY,
    BASE_TIME,
    CORE_KEYS,
    DAMAGE,
    DOCUMENT_KEYS,
    EVENT_KEYS,
    EVENT_LISTS,
    OTHER_LISTS,
    is_object,
    list_of_row,
)

_FIRST_CHUNK = 1 << 11  # a file may hold very many short lists
_LARGEST_CHUNK = 1 << 18
_WINDOW = 1 << 16
_MEND_WITHIN = 1 << 20
_BUDGET_PER_BYTE = 16

_BLANK = re.compile(rb"[ \t\r\n]*")
_SEPARATORS = re.compile(rb"[ \t\r\n,]*")
_NOTHING = re.compile(rb"(?:[ \t\r\n\x00]|\xef\xbb\xbf)*")
_BETWEEN_EVENTS = re.compile(rb'\}[ \t\r\n]*(,)[ \t\r\n]*\{[ \t\r\n]*"')
_CLOSING_ARRAY = re.compile(rb"\][ \t\r\n]*\Z")
_CLOSING_BOTH = re.compile(rb"\][ \t\r\n]*\}[ \t\r\n]*\Z")
_KEY = re.compile(rb'"([^"\\\x00-\x1f]{0,200})"[ \t\r\n]*:[ \t\r\n]*')
_ANCHOR = re.compile(
    rb'(\{)[ \t\r\n]*"|"(%s)"[ \t\r\n]*:[ \t\r\n]*\[|"(%s)"[ \t\r\n]*:'
    % ("|".join((*EVENT_LISTS, *OTHER_LISTS)).encode(), "|".join(DOCUMENT_KEYS).encode())
)


_SKIP = msgspec.json.Decoder(msgspec.Raw).decode
_LIST = msgspec.json.Decoder(list[msgspec.Raw]).decode
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(slots=True)
class Rows:
    """The events of one list of one document, as pieces of text to be joined by commas."""

    pieces: list[bytes | memoryview] = field(default_factory=list)


@dataclass(slots=True)
class Part:
    """One JSON document of the file; an undamaged file has one."""

    start: int
    keys: dict[str, msgspec.Raw] = field(default_factory=dict)
    lists: dict[str, Rows] = field(default_factory=dict)


@dataclass(slots=True)
class Note:
    """A kind of damage: how often, the byte where it was first met, the events before it."""

    count: int
    at: int
    event: int


_Mode = str
_Next = tuple[_Mode, int]
_DOCUMENT, _OBJECT, _ROWS = "between documents", "in an object", "in a list"


class Scanner:
    """Reads a damaged text once, from its start to its end.

    ``parts``: the documents in it, usually one. ``notes``: what was met, by kind. ``losses``:
    byte ranges that belong to nothing that was read. ``events``: how many rows were read.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.parts: list[Part] = []
        self.notes: dict[str, Note] = {}
        self.losses: list[tuple[int, int]] = []
        self.events = 0
        self._view = memoryview(data)
        self._size = len(data)
        self._list: str | None = None
        self._words = Words(set(EVENT_KEYS), CORE_KEYS)
        self._budget = _BUDGET_PER_BYTE * self._size + (1 << 20)
        self._starts = _starts(EVENT_KEYS)
        self._learned = 0

    def run(self) -> None:
        """Read everything."""
        modes = {_DOCUMENT: self._document, _OBJECT: self._object, _ROWS: self._rows}
        mode, at = _DOCUMENT, 0
        while at < self._size:
            mode, at = modes[mode](at)
        if mode != _DOCUMENT:
            self.note("json_unclosed", self._size)

    def note(self, kind: str, at: int, count: int = 1) -> None:
        """Count what was met at byte ``at``."""
        note = self.notes.get(kind)
        if note is None:
            self.notes[kind] = Note(count, at, self.events)
        else:
            note.count += count

    def _lose(self, start: int, end: int) -> None:
        if not self.data[start:end].strip(b" \t\r\n,"):
            return
        # One damage often makes several losses, with nothing but commas between them.
        before = self.losses[-1][1] if self.losses else -100
        if start - before < 100 and not self.data[before:start].strip(b" \t\r\n,"):
            self.losses[-1] = (self.losses[-1][0], end)
        else:
            self.losses.append((start, end))

    # -- documents: each method takes a position and returns the mode and place to go on -------

    def _document(self, at: int) -> _Next:
        first = _end(_NOTHING, self.data, at)
        if first >= self._size:
            if self.data.find(b"\0", at) >= 0:
                self.note("text_after_end", at, self._size - at)
            return _DOCUMENT, self._size
        opening = self.data[first : first + 1]
        is_row = opening == b"{" and self._is_event(first, self._end_of_value(first, _WINDOW))
        if opening not in (b"{", b"[") and self.parts:
            anchor, _ = self._next_anchor(first)
            if anchor >= self._size:
                self.note("text_after_end", first, self._size - first)
                return _DOCUMENT, self._size
        if is_row and self.parts and self._list is not None:
            # The list's last bracket stood too early, or each line is a document of its own.
            return _ROWS, first
        if self.parts and not self.parts[-1].keys and not self.parts[-1].lists:
            self.parts.pop()
        self.parts.append(Part(first))
        self._list = None
        if is_row or opening == b"[":
            self._list = BARE_ARRAY
            return _ROWS, first if is_row else first + 1
        return (_OBJECT, first + 1) if opening == b"{" else self._after_garbage(first)

    def _object(self, at: int) -> _Next:
        """The members of a top-level object, from a position before a key or its end."""
        while True:
            start, at = at, _end(_SEPARATORS, self.data, at)
            if at >= self._size:
                return _OBJECT, self._size
            if self.data[at : at + 1] == b"}":
                if b"," in self.data[start:at]:
                    self.note(TRAILING_COMMA, start)
                return _DOCUMENT, at + 1
            key = _KEY.match(self.data, at)
            if key is None:
                return self._after_garbage(at)
            mode, at = self._member(key)
            if mode != _OBJECT:
                return mode, at

    def _member(self, key: re.Match[bytes]) -> _Next:
        name = key[1].decode("utf-8", "replace")
        at = key.end()
        is_list = self.data[at : at + 1] == b"["
        if name in EVENT_LISTS and is_list:
            return self._begin_list(name, at + 1)
        end = self._end_of_value(at)
        if end > 0 and (self.data[at] in b"{[" or self._is_before_separator(end)):
            self._keep(name, at, self.data[at:end])
            return _OBJECT, end
        mended = mend(self.data, at, self._next_key(at), self._words)
        if mended is not None:
            self._note_mended(mended)
            self._keep(name, at, mended.text)
            return _OBJECT, mended.end
        if is_list and name in OTHER_LISTS:
            return self._begin_list(name, at + 1)
        if name == BASE_TIME:
            self.note("base_time_unreadable", key.start())
        return self._after_garbage(key.start(), at)

    def _begin_list(self, name: str, at: int) -> _Next:
        self._list = name
        if name in self.parts[-1].lists:
            self.note("several_event_lists", at)
        self.parts[-1].lists.setdefault(name, Rows())
        return _ROWS, at

    def _keep(self, name: str, at: int, text: bytes) -> None:
        keys = self.parts[-1].keys
        if name in keys and bytes(keys[name]) != text:
            self.note("base_time_differs" if name == BASE_TIME else "key_repeated", at)
        keys.setdefault(name, msgspec.Raw(text))

    def _next_key(self, at: int) -> int:
        last = min(self._size, at + _MEND_WITHIN)
        found = (m.start() for m in _ANCHOR.finditer(self.data, at, last) if not m[1])
        return next(found, last)

    # -- lists of events --------------------------------------------------------------------

    def _rows(self, at: int) -> _Next:
        """The rows of a list, from a position before a row or the list's end."""
        if self._list is None:
            self._list = self._list_of(at)
        rows = self.parts[-1].lists.setdefault(self._list, Rows())
        chunk = _FIRST_CHUNK
        while at < self._size:
            cut = _BETWEEN_EVENTS.search(self.data, at + chunk, at + 2 * chunk)
            end = cut.start(1) if cut else min(self._size, at + 2 * chunk)
            closed = self._clean_chunk(rows, at, end) if cut or end == self._size else -1
            if closed < 0 and cut and self._plainly_mended_chunk(rows, at, end):
                closed = 0
            if closed > 0:
                return self._behind_list(closed)
            if closed == 0:
                at = end + 1
                chunk = min(2 * chunk, _LARGEST_CHUNK)
                continue
            mode, at = self._walk(rows, at, end)
            if mode != _ROWS:
                return mode, at
        return _ROWS, at

    def _behind_list(self, at: int) -> _Next:
        return (_DOCUMENT if self._list == BARE_ARRAY else _OBJECT), at

    def _clean_chunk(self, rows: Rows, at: int, end: int) -> int:
        """Take the chunk as it is, if it decodes.

        Returns 0 then, the position behind the list's end when that lies in the chunk, and -1
        when the chunk must be read row by row.
        """
        close = end
        try:
            found = self._decoded(at, end)
        except RecursionError:
            return -1
        except msgspec.MsgspecError as error:
            behind = end_before_trailing(error)
            # The decoded text has one bracket more at its start.
            close = self.data.rfind(b"]", at, at + behind - 1) if behind else -1
            if close < 0 or not self._may_end_list(close):
                return -1
            try:
                found = self._decoded(at, close)
            except DAMAGE:
                return -1
        if close == self._size:
            return -1  # the list's own bracket ends the text; a walk finds it
        if found:
            rows.pieces.append(self._view[at:close])
            self.events += len(found)
            self._learn(found)
        return close + 1 if close < end else 0

    def _plainly_mended_chunk(self, rows: Rows, at: int, end: int) -> bool:
        """Take a chunk in which all damage is of plain kinds that were met before.

        The first of a kind is left to the walk, which knows its place.
        """
        text, kinds = mend_plainly(self.data[at:end])
        if QUOTE in self.notes:
            text, quotes = mend_values(text)
            kinds += quotes
        if not kinds or not kinds.keys() <= self.notes.keys():
            return False
        try:
            found = _LIST(b"[%b]" % text)
        except DAMAGE:
            return False
        for kind, count in kinds.items():
            self.note(kind, at, count)
        rows.pieces.append(text)
        self.events += len(found)
        return True

    def _decoded(self, at: int, end: int) -> list[msgspec.Raw]:
        closing = b"" if end == self._size else b"]"
        return _LIST(b"".join((b"[", self._view[at:end], closing)))

    def _learn(self, rows: Iterable[msgspec.Raw]) -> None:
        """Which keys events have in this file, from its first undamaged chunks."""
        if self._learned >= 3:
            return
        self._learned += 1
        first: set[bytes] = set()
        for row, _ in zip(rows, range(200), strict=False):
            try:
                keys = [key.encode() for key in _FIELDS(row)]
            except (msgspec.MsgspecError, UnicodeError):
                continue
            self._words.known.update(keys)
            first.update(keys[:1])
        self._starts = _starts({*EVENT_KEYS, *first})

    def _walk(self, rows: Rows, at: int, end: int) -> _Next:
        """Read the rows that begin before ``end`` one by one."""
        run = behind = -1  # where a run of undamaged rows began, and where its last row ended
        mode = _ROWS
        while at < end and mode == _ROWS:
            start = _end(_SEPARATORS, self.data, at)
            stop = self._end_of_row(start) if start < self._size else 0
            if stop > 0:
                if behind < 0 or not self._one_comma(behind, start):
                    self._flush(rows, run, behind)
                    run = start
                elif run < 0:
                    run = start
                self.events += 1
                at = behind = stop
                continue
            self._flush(rows, run, behind)
            run = -1
            if start >= self._size:
                return _ROWS, start
            mode, at, mended = self._no_row(rows, at, start)
            behind = at if mended else -1
        self._flush(rows, run, behind)
        following = _end(_SEPARATORS, self.data, at)
        if behind == at and self.data[following : following + 1] == b"{":
            self._one_comma(behind, following)
            at = following
        return mode, at

    def _flush(self, rows: Rows, start: int, end: int) -> None:
        if 0 <= start < end:
            rows.pieces.append(self._view[start:end])

    def _one_comma(self, behind: int, start: int) -> bool:
        commas = self.data.count(b",", behind, start)
        if commas != 1:
            self.note("missing_comma" if commas == 0 else "repeated_comma", behind)
        return commas == 1

    def _end_of_row(self, at: int) -> int:
        """Behind the whole row at ``at``; 0 when it is damaged or no row."""
        if self.data[at : at + 1] in b"]}" or _KEY.match(self.data, at):
            return 0
        end = self._end_of_value(at)
        # A stray quote or digit makes a value of its own out of what stands around it.
        if end and not self._is_before_separator(end) and not self._is_event(at, end):
            return 0
        return 0 if end and self._event_inside(at, end) else end

    def _event_inside(self, at: int, end: int) -> bool:
        """Whether a value that decodes swallowed an event, so that it is no row itself."""
        for number, match in enumerate(self._starts.finditer(self.data, at + 1, end)):
            stop = self._end_of_value(match.start(), end - match.start())
            if self._is_event(match.start(), stop):
                return True
            if number >= 20:
                break
        return False

    def _no_row(self, rows: Rows, behind: int, at: int) -> tuple[_Mode, int, bool]:
        """Go on where no undamaged row begins; the flag tells whether a row was mended."""
        byte = self.data[at : at + 1]
        if byte == b"]" and self._may_end_list(at):
            if b"," in self.data[behind:at]:
                self.note(TRAILING_COMMA, behind)
            return (*self._behind_list(at + 1), False)
        if byte == b"}" and _end(_NOTHING, self.data, at + 1) >= self._size:
            return _DOCUMENT, at + 1, False
        if byte in (b"]", b"}"):
            self._lose(at, at + 1)
            return _ROWS, at + 1, False
        key = _KEY.match(self.data, at)
        if key is not None and self._is_event(key.end(), self._end_of_value(key.end())):
            self._lose(at, key.end())
            return _ROWS, key.end(), False
        if key is not None and self._list != BARE_ARRAY:
            self.note("list_unclosed", at)
            return _OBJECT, at, False
        mended = self._mend_row(at) if byte == b"{" else None
        if mended is None:
            return (*self._resync(at), False)
        rows.pieces.append(mended.text)
        self.events += 1
        return _ROWS, mended.end, True

    def _may_end_list(self, at: int) -> bool:
        """Whether the bracket at ``at`` may be the list's last one, by what follows it."""
        after = _end(_SEPARATORS, self.data, at + 1)
        if after >= self._size or b"," not in self.data[at + 1 : after]:
            return True
        return self.data[after : after + 1] == b"}" or bool(_KEY.match(self.data, after))

    def _mend_row(self, at: int) -> Mended | None:
        for limit in self._limits(at):
            self._budget -= limit - at
            if self._budget < 0:
                return None
            mended = mend(self.data, at, limit, self._words)
            if mended is None or not self._is_plausible(mended.text):
                continue
            self._note_mended(mended)
            return mended
        return None

    def _is_plausible(self, text: bytes) -> bool:
        if self._list not in OTHER_LISTS:
            return bool(list_of_row(text))
        return is_object(text)

    def _note_mended(self, mended: Mended) -> None:
        for kind, count in mended.kinds.items():
            self.note(kind, mended.first[kind], count)

    def _limits(self, at: int) -> Iterator[int]:
        """Where the damaged row at ``at`` may end at the latest: where the next one begins.

        What looks like a beginning may stand in the row's own text, so up to two are passed,
        but never one of an undamaged row.
        """
        last = min(self._size, at + _MEND_WITHIN)
        for number, match in enumerate(self._starts.finditer(self.data, at + 1, last)):
            yield match.start()
            stop = self._end_of_value(match.start(), _WINDOW)
            spent = number == 2 or self._words.credit <= 0
            if spent or self._is_event(match.start(), stop):
                return
        yield last

    # -- finding the way back ---------------------------------------------------------------

    def _resync(self, lost: int) -> _Next:
        """Leave out what stands at ``lost`` in a list: to the next row, or to a known key."""
        at, kind = self._next_anchor(lost + 1)
        if at >= self._size:
            closing = _CLOSING_ARRAY if self._list == BARE_ARRAY else _CLOSING_BOTH
            match = closing.search(self.data, max(lost, self._size - 100))
            if match:
                self._lose(lost, match.start())
                return self._behind_list(match.start() + 1)
        self._lose(lost, at)
        if kind == "" or at >= self._size:
            return _ROWS, at
        part = self.parts[-1]
        if kind in part.keys or kind in part.lists:
            # A document's head inside a list: what follows it may belong to that document.
            self.note("several_writers", at)
            self.parts.append(Part(at))
        return _OBJECT, at

    def _after_garbage(self, at: int, behind: int = 0) -> _Next:
        """Leave out what stands in an object, or between documents, and is nothing known."""
        anchor, kind = self._next_anchor(max(at, behind))
        self._lose(at, anchor)
        if self._list is not None and kind == "" and anchor < self._size:
            self.note("list_resumed", anchor)
        return (_OBJECT if kind else _ROWS), anchor

    def _list_of(self, at: int) -> str:
        """The list that a row belongs to, where its list's beginning is lost."""
        return list_of_row(self._view[at : self._end_of_value(at)]) or EVENT_LISTS[0]

    def _next_anchor(self, at: int) -> tuple[int, str]:
        """Where reading can go on, and the key that stands there ("" for a row)."""
        while self._budget > 0:
            match = _ANCHOR.search(self.data, at)
            if match is None:
                return self._size, ""
            at = match.start()
            if not match[1]:
                return at, (match[2] or match[3]).decode()
            end = self._end_of_value(at)
            if end > 0:
                if self._is_event(at, end) and not self._event_inside(at, end):
                    return at, ""
            elif self._starts.match(self.data, at) and self._is_after_separator(at):
                return at, ""
            at += 1
        self.note("damage_too_dense", at)
        return self._size, ""

    def _is_before_separator(self, at: int) -> bool:
        following = _end(_BLANK, self.data, at)
        return self.data[following : following + 1] in (b",", b"]", b"}", b"")

    def _is_after_separator(self, at: int) -> bool:
        before = self.data[max(0, at - 64) : at].rstrip(b" \t\r\n")
        return before[-1:] in b",[}]"

    # -- single values ----------------------------------------------------------------------

    def _end_of_value(self, at: int, within: int = 0) -> int:
        """Behind the undamaged value at ``at``; 0 when it is damaged.

        ``within`` bounds its length. Without it, a value that runs on for long is believed only
        where no event begins inside it.
        """
        window = within or _WINDOW
        while True:
            stop = min(self._size, at + window)
            try:
                _SKIP(self._view[at:stop])
                return self._trimmed(at, stop)
            except RecursionError:
                self.note("nested_too_deep", at)
                self._budget -= _WINDOW
                return 0
            except msgspec.MsgspecError as error:
                behind = end_before_trailing(error)
                if behind:
                    return self._trimmed(at, at + behind)
                failed = position(error, stop - at)
            self._budget -= failed
            cut_here = failed > stop - at - 16
            if within or not cut_here or stop == self._size or self._event_inside(at, stop):
                return 0
            window *= 8

    def _trimmed(self, start: int, end: int) -> int:
        while end > start and self.data[end - 1] in b" \t\r\n":
            end -= 1
        return end

    def _is_event(self, start: int, end: int) -> bool:
        return end > start and bool(list_of_row(self._view[start:end]))


def _end(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    match = pattern.match(data, at)
    return match.end() if match else at


def _starts(keys: Iterable[bytes]) -> re.Pattern[bytes]:
    """Matches where an object begins whose first key is one of these."""
    words = b"|".join(re.escape(key) for key in sorted(keys))
    return re.compile(rb'\{[ \t\r\n]*"(?:%b)"[ \t\r\n]*:' % words)
