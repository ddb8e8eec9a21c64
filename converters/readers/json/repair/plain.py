"""Mending damage that a few bytes show: no guess is made, and the result counts only if valid.

This is the quick way for files in which every event is damaged alike. What it cannot mend is
looked at by ``objects``.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import msgspec

ESCAPE = "escape_repaired"
QUOTE = "quote_repaired"
CONTROL = "control_repaired"
NOT_A_NUMBER = "not_a_number"
TRAILING_COMMA = "trailing_comma"
SURROGATE = "surrogate_repaired"

NO_NUMBER = re.compile(
    rb"(?:[+-]?(?:nan(?:\(\w*\))?|inf(?:inity)?|\d\.#(?:inf|ind|qnan|snan)\d*)"
    rb"|n/a|none|undefined)(?=[ \t\r\n]*[,}\]]|\Z)",
    re.IGNORECASE,
)
"""A value that stands for no number, in the spellings of C, C++, Python, JavaScript and MSVC."""

_NO_NUMBER_AS_MEMBER = re.compile(
    rb'(?<!\\)("[ \t\r\n]*:[ \t\r\n]*)%b' % NO_NUMBER.pattern, re.IGNORECASE
)
_HINT_OF_NO_NUMBER = re.compile(rb":[ \t\r\n]*[+-]?(?:[NnIiUu]|\d\.#)")
_SURE_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_UNICODE_ESCAPE = re.compile(rb"u[0-9a-fA-F]{4}")
_IN_STRING = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole surrogate pair
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
    rb'|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
    rb'|[\\"\x00-\x1f]'
)
_OPENING_QUOTE = re.compile(rb':[ \t\r\n]*"')
_USUAL_KEY = (
    rb'("(?:ph|cat|name|pid|tid|ts|dur|args|id|timestamp|start_ts|duration|instance_id|process_id'
    rb'|thread_id)")[ \t\r\n]*:'
)
_NEXT_MEMBER = re.compile(rb'"[ \t\r\n]*,[ \t\r\n]*' + _USUAL_KEY)
_MEMBER_INSIDE = re.compile(_USUAL_KEY)
_NAME = re.compile(
    rb'("name"[ \t\r\n]*:[ \t\r\n]*")(.*?)(?="[ \t\r\n]*,[ \t\r\n]*%b)' % _USUAL_KEY, re.DOTALL
)
_NEXT_EVENT = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")
_VALUE = re.compile(
    rb'("[^"\\\x00-\x1f]{0,200}"[ \t\r\n]*:[ \t\r\n]*")'
    rb'((?:[^"\\]+|\\.|"(?![ \t\r\n]*(?:\}[ \t\r\n]*[,}\]]|,[ \t\r\n]*"[^"\\\x00-\x1f]{1,200}"'
    rb'[ \t\r\n]*:)))*)"',
    re.DOTALL,
)
"""A key and its string, which ends at the first quote behind which an object goes on or ends."""
_KEY_INSIDE = re.compile(rb',[ \t\r\n]*"(?:[^"\\]|\\.)*"[ \t\r\n]*:', re.DOTALL)
_POSITION = re.compile(r"\(byte (\d+)\)$")
_DECODE = msgspec.json.Decoder(msgspec.Raw).decode
_SEPARATORS = b" \t\r\n,"


@dataclass(frozen=True, slots=True)
class Mended:
    """A mended value: its JSON ``text`` and where it ends in the damaged text.

    ``kinds``: how often each kind of damage was mended; ``first``: the first place of each.
    """

    text: bytes
    end: int
    kinds: Counter[str]
    first: dict[str, int]


def mend_plainly(text: bytes) -> tuple[bytes, Counter[str]]:
    """The text with single backslashes doubled, sure control bytes escaped, no-numbers dropped.

    What stands outside strings is changed too, so the caller must see whether it is valid now.
    """
    kinds: Counter[str] = Counter()
    if _HINT_OF_NO_NUMBER.search(text):
        text, kinds[NOT_A_NUMBER] = _NO_NUMBER_AS_MEMBER.subn(rb"\1null", text)
    if b"\\" in text:
        text, kinds[ESCAPE] = _with_backslashes_doubled(text)
    if _SURE_CONTROL.search(text):
        text, kinds[CONTROL] = _SURE_CONTROL.subn(lambda m: b"\\u%04x" % m[0][0], text)
    return text, +kinds


def mend_values(text: bytes) -> tuple[bytes, Counter[str]]:
    """Events whose strings are mended where they hold bare quotes and can end in one place only.

    A name ends before a usual key, another string where its object goes on or ends. Where one
    might hold another member of its object, nothing is mended at all.
    """
    kinds: Counter[str] = Counter()
    for pattern in (_NAME, _VALUE):
        parts: list[bytes | memoryview] = []
        view, done = memoryview(text), 0
        for match in pattern.finditer(text):
            inside = match[2]
            if b'"' not in inside:
                continue
            body, found = mend_string(inside)
            if not found:
                continue
            if _MEMBER_INSIDE.search(inside) or _NEXT_EVENT.search(inside):
                return text, Counter()
            if _KEY_INSIDE.search(inside) and is_valid(b'{"":"%b"}' % inside):
                return text, Counter()
            kinds.update(found)
            parts += view[done : match.start(2)], body
            done = match.end(2)
        text = b"".join((*parts, view[done:]))
    return text, kinds


def mended_plainly(data: bytes, start: int, limit: int) -> Mended | None:
    """The value that begins at ``start`` and is followed by nothing up to ``limit``."""
    text, kinds = mend_plainly(data[start:limit])
    length = _length_of_value(text) if kinds else 0
    if not length:
        return None
    first = {ESCAPE: data.find(b"\\", start)}
    if CONTROL in kinds:
        control = _SURE_CONTROL.search(data, start)
        first[CONTROL] = control.start() if control else start
    if NOT_A_NUMBER in kinds:
        number = _NO_NUMBER_AS_MEMBER.search(data, start)
        first[NOT_A_NUMBER] = number.end(1) if number else start
    return Mended(text[:length], limit - (len(text) - length), kinds, first)


def mended_in_one_string(data: bytes, start: int, limit: int) -> Mended | None:
    """The value, if all damage is in one string, which ends where a usual key follows.

    That end counts only if the same key does not follow again (the string might be longer) and
    no other key is inside the string (it might be shorter).
    """
    text = data[start:limit]
    opening = _string_before(text, failure_in(text))
    end = _NEXT_MEMBER.search(text, opening) if opening else None
    if end is None or text.find(end[1], end.end()) >= 0:
        return None
    before, inside = text[:opening], text[opening : end.start()]
    if any(key not in before for key in _MEMBER_INSIDE.findall(inside)):
        return None
    body, kinds = mend_string(inside)
    mended = b"".join((before, body, text[end.start() :]))
    length = _length_of_value(mended)
    if not length:
        return None
    first = dict.fromkeys(kinds, start + opening)
    return Mended(mended[:length], limit - (len(mended) - length), Counter(kinds), first)


def mend_string(body: bytes) -> tuple[bytes, list[str]]:
    """The inside of a string as valid JSON, and the kind of every damage mended in it."""
    kinds: list[str] = []
    return _IN_STRING.sub(lambda match: _mended_piece(match[0], kinds), body), kinds


def end_before_trailing(error: Exception) -> int:
    """Where the text behind a whole value begins, if the error is about that text; else 0.

    msgspec names the byte behind the first one that it did not expect.
    """
    return position(error, 1) - 1 if "trailing characters" in str(error) else 0


def position(error: Exception, otherwise: int) -> int:
    """The byte that an error of msgspec names."""
    match = _POSITION.search(str(error))
    return int(match[1]) if match else otherwise


def is_valid(text: bytes) -> bool:
    """Whether a text is one JSON value."""
    try:
        _DECODE(text)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def failure_in(text: bytes) -> int:
    """Where decoding the text fails; 0 when it does not, or nobody knows."""
    try:
        _DECODE(text)
    except msgspec.MsgspecError as error:
        return position(error, 0)
    except RecursionError:
        pass
    return 0


def _length_of_value(text: bytes) -> int:
    """The length of the value that is the text but for separators; 0 when it is none."""
    try:
        _DECODE(text)
    except RecursionError:
        return 0
    except msgspec.MsgspecError as error:
        end = end_before_trailing(error)
        return 0 if text[end:].strip(_SEPARATORS) else len(text[:end].rstrip())
    return len(text)


def _string_before(text: bytes, at: int) -> int:
    """Where the inside of the last string value begins that is opened before ``at``; or 0."""
    colon = text.rfind(b":", 0, at)
    while colon > 0:
        match = _OPENING_QUOTE.match(text, colon)
        if match and match.end() <= at:
            return match.end()
        colon = text.rfind(b":", 0, colon)
    return 0


def _with_backslashes_doubled(text: bytes) -> tuple[bytes, int]:
    """The text with every backslash doubled that begins no valid escape, and their number."""
    first, *pieces = text.split(b"\\")
    parts = [first]
    count = at = 0
    while at < len(pieces):
        piece = pieces[at]
        at += 1
        if not piece and at < len(pieces):
            piece = b"\\" + pieces[at]
            at += 1
        elif piece[:1] not in b'"/bfnrt' and not _UNICODE_ESCAPE.match(piece):
            piece = b"\\" + piece
            count += 1
        parts.append(piece)
    return b"\\".join(parts), count


def _mended_piece(piece: bytes, kinds: list[str]) -> bytes:
    if piece == b'"':
        kinds.append(QUOTE)
        return b'\\"'
    if piece == b"\\":
        kinds.append(ESCAPE)
        return b"\\\\"
    if len(piece) == 1:
        kinds.append(CONTROL)
        return b"\\u%04x" % piece[0]
    if len(piece) == 6 and piece[2:3] in b"dD" and piece[3:4] in b"89abcdefABCDEF":
        kinds.append(SURROGATE)
        return b"\\ufffd"
    return piece
