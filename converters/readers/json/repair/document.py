"""Reading damaged JSON, when decoding it as a whole has failed.

Every event that comes out stands in the damaged text, but for what the findings say was mended;
bytes that could not be read are in the findings too. The way is in ``scan``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import msgspec

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model.arguments import Text
from neuron_tb.converters.readers.json.repair.report import report
from neuron_tb.converters.readers.json.repair.scan import Part, Scanner
from neuron_tb.converters.readers.json.repair.shape import (
    BARE_ARRAY,
    BASE_TIME,
    EVENT_LISTS,
    list_key,
)

_BASE_VALUE = re.compile(rb'"baseTimeNanoseconds"[ \t\r\n]*:[ \t\r\n]*(\d{1,19})[ \t\r\n]*[,}]')
_BASE_NAME = re.compile(rb"base.?time.?nano|timenanosec|etimenano", re.IGNORECASE)
_ROWS = msgspec.json.Decoder(list[msgspec.Raw]).decode
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_INVALID_BYTES = re.compile("[\udc80-\udcff]")
_PIECE = 1 << 18


@dataclass(slots=True)
class Repaired:
    """What could be read: an object's top-level ``keys``, or the ``array`` of a bare list.

    ``events``: how many events that holds.
    """

    keys: dict[str, msgspec.Raw]
    array: bytes | None
    events: int


def repair(name: str, data: bytes, findings: Findings) -> Repaired:
    """Read what can be read of a damaged JSON text.

    ``name`` is the file's, for the places in ``findings``, which say what was mended and which
    bytes are lost.
    """
    scanner = Scanner(data)
    scanner.run()
    base = _base_time(scanner)
    report(name, scanner, findings)
    keys, lists = _put_together(scanner.parts, base)
    if set(lists) == {BARE_ARRAY} and not keys:
        return Repaired({}, _joined(lists[BARE_ARRAY]), scanner.events)
    if BARE_ARRAY in lists:
        lists.setdefault(EVENT_LISTS[0], []).extend(lists.pop(BARE_ARRAY))
    keys.update({key: msgspec.Raw(_joined(pieces)) for key, pieces in lists.items()})
    return Repaired(keys, None, scanner.events)


def _put_together(
    parts: Iterable[Part], base: int | None
) -> tuple[dict[str, msgspec.Raw], dict[str, list[bytes | memoryview]]]:
    """The keys (of the first document that has them) and the lists of all documents."""
    keys: dict[str, msgspec.Raw] = {}
    lists: dict[str, list[bytes | memoryview]] = {}
    if base is not None:
        keys[BASE_TIME] = msgspec.Raw(b"%d" % base)
    for part in parts:
        own = _base_of(part)
        shift = 0 if own is None or base is None else own - base
        for key, value in part.keys.items():
            keys.setdefault(key, value)
        for name, rows in part.lists.items():
            pieces = _moved(rows.pieces, shift) if shift else rows.pieces
            lists.setdefault(name, []).extend(pieces)
    return keys, lists


def _base_time(scanner: Scanner) -> int | None:
    """The base time, also from a damaged head; notes it where it is lost."""
    bases = [base for base in map(_base_of, scanner.parts) if base is not None]
    if bases:
        if any(base != bases[0] for base in bases):
            scanner.note("base_time_differs", scanner.parts[-1].start)
        return bases[0]
    for start, end in scanner.losses:
        lost = scanner.data[start : end + 1]
        value = _BASE_VALUE.search(lost)
        if value:
            return int(value[1])
        if _BASE_NAME.search(lost) and "base_time_unreadable" not in scanner.notes:
            scanner.note("base_time_unreadable", start)
    return None


def _base_of(part: Part) -> int | None:
    raw = part.keys.get(BASE_TIME)
    if raw is None:
        return None
    text = bytes(raw).strip(b'"')
    return int(text) if text.isdigit() and len(text) < 20 else None


def _moved(pieces: Iterable[bytes | memoryview], shift_ns: int) -> list[bytes | memoryview]:
    """The same rows with times from another base, so that their absolute times stay."""
    shift = Decimal(shift_ns) / 1000
    rows = (row for piece in pieces for row in _ROWS(b"".join((b"[", piece, b"]"))))
    return [_moved_row(row, shift) for row in rows]


def _moved_row(row: msgspec.Raw, shift: Decimal) -> bytes:
    try:
        fields = _FIELDS(row)
        time = Decimal(bytes(fields["ts"]).strip(b'"').decode())
    except (msgspec.MsgspecError, KeyError, InvalidOperation, UnicodeError):
        return bytes(row)
    fields["ts"] = msgspec.Raw(format(time + shift, "f").encode())
    return msgspec.json.encode(fields)


def _joined(pieces: Iterable[bytes | memoryview]) -> bytes:
    return b"[%b]" % b",".join(pieces)


def list_of_renamed_events(keys: dict[str, msgspec.Raw], name: str, findings: Findings) -> None:
    """Give an event list whose key is unknown (a damaged one, too) the usual key."""
    if any(key in keys for key in EVENT_LISTS):
        return
    for key, raw in keys.items():
        text = bytes(memoryview(raw)[:1])
        if text == b"[" and (usual := list_key(raw)):
            keys[usual] = keys.pop(key)
            findings.add(
                "event_list_renamed",
                f"the list {key[:100]!r} holds events and was read as {usual!r}",
                where=name,
            )
            return


def first_invalid_utf8(data: Text) -> int | None:
    """Where the first byte stands that is not UTF-8; None when all is."""
    if isinstance(data, bytes) and data.isascii():
        return None
    at = 0
    while at < len(data):
        end = _end_of_piece(data, at)
        try:
            str(memoryview(data)[at:end], "utf-8")
        except UnicodeDecodeError as error:
            return at + error.start
        at = end
    return None


def valid_utf8(data: Text) -> tuple[bytes, int]:
    """The text with U+FFFD for every byte that is not UTF-8, and how many these were."""
    pieces: list[bytes | memoryview] = []
    count = at = 0
    while at < len(data):
        end = _end_of_piece(data, at)
        piece = memoryview(data)[at:end]
        try:
            str(piece, "utf-8")
            pieces.append(piece)
        except UnicodeDecodeError:
            text, replaced = _INVALID_BYTES.subn("\ufffd", str(piece, "utf-8", "surrogateescape"))
            pieces.append(text.encode())
            count += replaced
        at = end
    return b"".join(pieces), count


def _end_of_piece(data: Text, at: int) -> int:
    """A place to cut, near ``at`` plus a piece's length, that is not inside a character."""
    end = min(len(data), at + _PIECE)
    for back in range(min(4, end - at) if end < len(data) else 0):
        if data[end - back] & 0xC0 != 0x80:
            return end - back
    return end
