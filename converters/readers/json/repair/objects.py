"""Mending one damaged JSON value: where its strings end, and what stands for no number.

Nothing here looks further than the value. A value that cannot be mended for certain is left to
the caller, who counts it as lost.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from neuron_tb.converters.readers.json import bounds
from neuron_tb.converters.readers.json.repair.plain import (
    NO_NUMBER,
    NOT_A_NUMBER,
    QUOTE,
    TRAILING_COMMA,
    Mended,
    is_valid,
    mend_string,
    mended_in_one_string,
    mended_plainly,
)

_OPEN_OBJECT, _OPEN_ARRAY, _QUOTE, _BACKSLASH, _SPACE = b'{["\\ '
_CLOSING = {b"{"[0]: b"}"[0], b"["[0]: b"]"[0]}
_BLANK = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(
    rb'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"'
)
_CLEAN_KEY = re.compile(rb'"([^"\\\x00-\x1f]*)"[ \t\r\n]*:[ \t\r\n]*')
_CLEAN_MEMBER = re.compile(
    rb"%b"
    rb"(?:%b|-?\d[\d.eE+-]*|true|false|null|\[[-\d \t\r\n,.\[\]eE+]*\]"
    rb"|\[(?:[ \t\r\n]*%b[ \t\r\n]*,)*[ \t\r\n]*%b[ \t\r\n]*\])"
    rb'[ \t\r\n]*,[ \t\r\n]*(?="[^"\\\x00-\x1f]{1,200}"[ \t\r\n]*:)'
    % (_CLEAN_KEY.pattern, _STRING.pattern, _STRING.pattern, _STRING.pattern)
)
"""A member of an object, followed by another one, with which nothing seems to be wrong."""
_CLEAN_MEMBERS = re.compile(rb"(?:%b)+" % _CLEAN_MEMBER.pattern)
_ANY_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NUMBER_OR_WORD = re.compile(
    rb"(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?=[ \t\r\n]*[,}\]]|\Z)"
)
_COLON = re.compile(rb"[ \t\r\n]*:")
_AFTER_VALUE = re.compile(rb"[ \t\r\n]*(?:[,\]{}]|\Z)")
_AFTER_STRING_IN_OBJECT = re.compile(
    rb'"[ \t\r\n]*(?:\}|,[ \t\r\n]*(?:\}|"([^"\\\x00-\x1f]{1,200})"[ \t\r\n]*:))'
)
_AFTER_STRING_IN_ARRAY = re.compile(rb'"[ \t\r\n]*(?:\]|,[ \t\r\n]*["\[{\]\-0-9tfnNI])')
_AFTER_LONE_STRING = re.compile(rb'"[ \t\r\n]*(?:[,}\]]|\Z)')
_SWALLOWED_KEY = re.compile(rb'"(\w{1,40})"[ \t\r\n]*:')
_MOST_STEPS = 20_000
_COST_OF_A_SECOND_LOOK = 5
_FREE_BYTES = 1024
_MOST_ENDS = 60


@dataclass(slots=True)
class Words:
    """Keys that tell the end of a string from a quote inside it.

    ``known``: keys of events. ``core``: those that every event has; a string that would swallow
    one of them ends too late. ``credit``: how many more wrong guesses are worth their time;
    each mended value earns some.
    """

    known: set[bytes]
    core: frozenset[bytes]
    credit: int = 20_000


def mend(data: bytes, start: int, limit: int, words: Words) -> Mended | None:
    """The value at ``start``, which must end before ``limit``; None when it is past mending."""
    mended = mended_plainly(data, start, limit) or mended_in_one_string(data, start, limit)
    if mended is not None:
        return mended
    for hurried in (True, False):
        mended = _Attempt(data, start, limit, words, hurried).run()
        if mended is not None and is_valid(mended.text):
            words.credit += 20
            return mended
        if words.credit <= 0:
            break
        words.credit -= _COST_OF_A_SECOND_LOOK
    return None


@dataclass(slots=True)
class _Choice:
    """A string whose end was guessed, and the state before it.

    ``ends``: other quotes that may end it, the most likely one last; ``looked_at``: the last quote
    among these, ``looks``: how many quotes that were.
    """

    start: int
    patches: int
    open: bytes
    keys: int
    taken: int = -1
    ends: list[int] = field(default_factory=list)
    looked_at: int = 0
    looks: int = 0


@dataclass(slots=True)
class _Patch:
    """A stretch to write otherwise: as ``text``, or, without one, as the inside of a string."""

    start: int
    end: int
    text: bytes | None = None
    kind: str = ""

    def apply(self, data: bytes) -> tuple[bytes, list[str]]:
        """The new text and the kinds of damage that were mended in it."""
        if self.text is not None:
            return self.text, [self.kind]
        return mend_string(data[self.start : self.end])


@dataclass(slots=True)
class _Attempt:
    data: bytes
    start: int
    limit: int
    words: Words
    hurried: bool
    """Whether members with which nothing seems wrong are passed without a look at each."""
    at: int = 0
    open: bytearray = field(default_factory=bytearray)
    keys: list[bytes] = field(default_factory=list)
    patches: list[_Patch] = field(default_factory=list)
    choices: list[_Choice] = field(default_factory=list)

    def run(self) -> Mended | None:
        self.at = self.start
        step: object = self._value
        for _ in range(_MOST_STEPS):
            self._skip_blanks()
            step = step() if callable(step) and self.at < self.limit else None
            if step is True:
                mended = self._finished()
                if mended is not None:
                    return mended
                step = None
            if step is None:
                step = self._guess_again()
                if step is None:
                    return None
        return None

    def _skip_blanks(self) -> None:
        if self.at < self.limit and self.data[self.at] <= _SPACE:
            match = _BLANK.match(self.data, self.at, self.limit)
            self.at = match.end() if match else self.at

    # -- the steps: each returns the next one, True at the value's end, None where it is stuck ---

    def _value(self) -> object:
        first = self.data[self.at]
        if first in _CLOSING:
            if len(self.open) >= bounds.MAX_DEPTH:
                return None
            self.open.append(first)
            self.at += 1
            return self._first_key if first == _OPEN_OBJECT else self._first_element
        if first == _QUOTE:
            return self._string()
        match = _NUMBER_OR_WORD.match(self.data, self.at, self.limit)
        if match is None:
            match = NO_NUMBER.match(self.data, self.at, self.limit)
            if match is None:
                return None
            self.patches.append(_Patch(match.start(), match.end(), b"null", NOT_A_NUMBER))
        self.at = match.end()
        return self._after_value()

    def _first_key(self) -> object:
        return self._close() if self.data[self.at] == _CLOSING[_OPEN_OBJECT] else self._key()

    def _first_element(self) -> object:
        return self._close() if self.data[self.at] == _CLOSING[_OPEN_ARRAY] else self._value()

    def _key(self) -> object:
        if self.hurried:
            members = _CLEAN_MEMBERS.match(self.data, self.at, self.limit)
            if members:
                self.at = members.end()
                if len(self.open) == 1:
                    self._keep_keys(members.start(), members.end())
        clean = _CLEAN_KEY.match(self.data, self.at, self.limit)
        if clean is None:
            return self._damaged_key()
        self.at = clean.end()
        return self._value if self._is_new_key(clean[1]) else None

    def _keep_keys(self, start: int, end: int) -> None:
        while start < end:
            member = _CLEAN_MEMBER.match(self.data, start, self.limit)
            if member is None:
                return
            self.keys.append(member[1])
            start = member.end()

    def _is_new_key(self, key: bytes) -> bool:
        if len(self.open) > 1:
            return True
        self.keys.append(key)
        return self.keys.index(key) == len(self.keys) - 1

    def _damaged_key(self) -> object:
        match = _ANY_STRING.match(self.data, self.at, self.limit)
        colon = match and _COLON.match(self.data, match.end(), self.limit)
        if match is None or colon is None:
            return None
        if not self._is_new_key(match[0][1:-1]):
            return None
        self._patch_string(match.start() + 1, match.end() - 1)
        self.at = colon.end()
        return self._value

    def _after_value(self) -> object:
        if not self.open:
            return bool(_AFTER_VALUE.match(self.data, self.at, self.limit)) or None
        return self._comma_or_close

    def _comma_or_close(self) -> object:
        if self.data[self.at] != b","[0]:
            return self._close()
        comma = self.at
        self.at += 1
        self._skip_blanks()
        if self.at < self.limit and self.data[self.at] == _CLOSING[self.open[-1]]:
            self.patches.append(_Patch(comma, comma + 1, b"", TRAILING_COMMA))
            return self._close
        return self._key if self.open[-1] == _OPEN_OBJECT else self._value

    def _close(self) -> object:
        if self.data[self.at] != _CLOSING[self.open[-1]]:
            return None
        self.open.pop()
        self.at += 1
        return self._after_value()

    def _string(self) -> object:
        self.choices.append(_Choice(self.at, len(self.patches), bytes(self.open), len(self.keys)))
        match = _STRING.match(self.data, self.at, self.limit)
        if match and self._follow().match(self.data, match.end() - 1, self.limit):
            self.choices[-1].taken = match.end() - 1
            self.at = match.end()
            return self._after_value()
        return self._next_end()

    # -- guessing where strings end ------------------------------------------------------------

    def _follow(self) -> re.Pattern[bytes]:
        if not self.open:
            return _AFTER_LONE_STRING
        in_object = self.open[-1] == _OPEN_OBJECT
        return _AFTER_STRING_IN_OBJECT if in_object else _AFTER_STRING_IN_ARRAY

    def _guess_again(self) -> object:
        while self.choices and self.words.credit > 0:
            choice = self.choices[-1]
            self.words.credit -= 1 + (self.at - choice.start) // _FREE_BYTES
            del self.patches[choice.patches :], self.keys[choice.keys :]
            self.open[:] = choice.open
            step = self._next_end()
            if step is not None:
                return step
            self.choices.pop()
        return None

    def _next_end(self) -> object:
        choice = self.choices[-1]
        if choice.taken < 0:
            end = self.data.find(b'"', choice.start + 1, self.limit)
            likely = end > 0 and self._follow().match(self.data, end, self.limit)
            if likely and not _is_escaped(self.data, end, choice.start):
                choice.taken = end
                return self._end_string_at(choice, end)
        if not choice.ends:
            self._look_for_ends(choice)
        return self._end_string_at(choice, choice.ends.pop()) if choice.ends else None

    def _end_string_at(self, choice: _Choice, end: int) -> object:
        self._patch_string(choice.start + 1, end)
        self.at = end + 1
        return self._after_value()

    def _look_for_ends(self, choice: _Choice) -> None:
        """More quotes that may end a string: up to one that a known key follows."""
        ranked = []
        follow = self._follow()
        at = choice.looked_at or choice.start
        limit = min(self.limit, choice.start + bounds.MAX_STRING)
        while choice.looks < _MOST_ENDS:
            at = self.data.find(b'"', at + 1, limit)
            choice.looks += 1
            if at < 0:
                choice.looks = _MOST_ENDS
                break
            match = follow.match(self.data, at, self.limit)
            if match is None or at == choice.taken:
                continue
            if match.lastindex is not None and match[1] in self.words.known:
                ranked.append((0, at))
                break
            ranked.append((2 if _is_escaped(self.data, at, choice.start) else 1, at))
        choice.looked_at = at
        choice.ends = [at for _, at in sorted(ranked, reverse=True)]

    def _patch_string(self, start: int, end: int) -> None:
        self.patches.append(_Patch(start, end))

    # -- the end -------------------------------------------------------------------------------

    def _finished(self) -> Mended | None:
        keys = set(self.keys)
        if len(keys) < len(self.keys):
            return None
        parts: list[bytes] = []
        at = self.start
        kinds: Counter[str] = Counter()
        first: dict[str, int] = {}
        for patch in self.patches:
            text, done = patch.apply(self.data)
            if QUOTE in done:
                swallowed = _SWALLOWED_KEY.findall(self.data, patch.start, patch.end)
                if not self.words.core.intersection(swallowed) <= keys:
                    return None
            parts += self.data[at : patch.start], text
            at = patch.end
            for kind in done:
                kinds[kind] += 1
                first.setdefault(kind, patch.start)
        parts.append(self.data[at : self.at])
        return Mended(b"".join(parts), self.at, kinds, first)


def _is_escaped(data: bytes, at: int, start: int) -> bool:
    before = at
    while before > start and data[before - 1] == _BACKSLASH:
        before -= 1
    return (at - before) % 2 == 1
