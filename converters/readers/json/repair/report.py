"""Saying what was mended in a damaged text, and which bytes of it are lost."""

from __future__ import annotations

import re

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.readers.json.repair import plain as mending
from neuron_tb.converters.readers.json.repair.scan import Note, Scanner
from neuron_tb.converters.readers.json.repair.shape import EVENT_LISTS

BASE_TIME_UNREADABLE = (
    "the base time (baseTimeNanoseconds) cannot be read; times are relative, unless the file's own "
    "times are absolute"
)
_MESSAGES = {
    mending.ESCAPE: "single backslashes in strings were doubled; where a path's backslash and the "
    "letter after it make a valid escape (\\t, \\n, \\u0041) it was left as that",
    mending.QUOTE: "bare double quotes inside strings were taken as part of the string",
    mending.CONTROL: "raw control bytes in strings were escaped",
    mending.SURROGATE: "halves of surrogate pairs in strings were replaced by U+FFFD",
    mending.NOT_A_NUMBER: "values that are no number (NaN, Infinity, N/A and the like) were "
    "dropped; their events are kept",
    mending.TRAILING_COMMA: "commas before a closing bracket were ignored",
    "missing_comma": "missing commas between events were supplied",
    "repeated_comma": "repeated commas between events were ignored",
    "list_unclosed": "the event list has no closing bracket; a key follows its last event",
    "list_resumed": "events stand behind the closing bracket of their list; they were read as part "
    "of it",
    "key_repeated": "a top-level key stands twice with different values; the first was used",
    "several_event_lists": "a document has several event lists; all were read",
    "several_writers": "the head of a document stands inside another one: several processes "
    "wrote this file, or parts of it were copied; events of all of them were read",
    "base_time_unreadable": BASE_TIME_UNREADABLE,
    "base_time_differs": "the documents in this file have different base times; events after a "
    "document's head were read with its base",
    "nested_too_deep": "values nested too deeply were left out",
    "damage_too_dense": "the text is damaged so densely that reading it was given up",
}
_HEAD = re.compile(rb'"(?:%s)"[ \t\r\n]*:[ \t\r\n]*\[' % "|".join(EVENT_LISTS).encode())
_EVENT = re.compile(rb'"(?:ph|timestamp|start_ts)"[ \t\r\n]*:')
_MOST_LOSSES = 200


def report(name: str, scanner: Scanner, findings: Findings) -> None:
    """Put everything that a scanner met into ``findings``, with places in the file ``name``."""
    for start, end in scanner.losses:
        if _HEAD.search(scanner.data, start, end) and "several_writers" not in scanner.notes:
            scanner.note("several_writers", start)
    for kind, note in scanner.notes.items():
        if kind in _MESSAGES:
            findings.add(kind, _MESSAGES[kind], note.count, _place(name, scanner.data, note))
    _several_documents(name, scanner, findings)
    losses = _end_of_text(name, scanner, findings)
    _losses(name, scanner.data, losses, findings)


def _several_documents(name: str, scanner: Scanner, findings: Findings) -> None:
    whole = [p for p in scanner.parts if scanner.data[p.start] in b"{[" and (p.keys or p.lists)]
    if len(whole) > 1 and "several_writers" not in scanner.notes:
        findings.add(
            "several_documents",
            "the file holds several JSON documents one after the other; all were read",
            len(whole),
            f"{name}, the second at byte {whole[1].start}",
        )


def _end_of_text(name: str, scanner: Scanner, findings: Findings) -> list[tuple[int, int]]:
    """Report how the text ends; returns the losses that are not told by that."""
    losses = list(scanner.losses)
    size = len(scanner.data)
    after = scanner.notes.get("text_after_end")
    if after is not None:
        findings.add(
            "text_after_end",
            "text after the document's end was ignored",
            where=f"{name}, bytes {after.at}-{size}",
        )
    unclosed = scanner.notes.get("json_unclosed")
    if unclosed is None:
        return losses
    tail = losses.pop() if losses and losses[-1][1] >= size else None
    if tail is None:
        findings.add(
            "json_unclosed",
            "the file ends without its closing brackets; no part of an event is lost before the "
            "end, but what should have followed is unknown",
            where=f"{name}, byte {size}, after event {unclosed.event}",
        )
    else:
        findings.add(
            "json_truncated",
            f"the file ends inside an event: its last {size - tail[0]:,} bytes "
            f"({_percent(size - tail[0], size)} of it) were left out, and what should have "
            "followed is unknown",
            _events_in(scanner.data, *tail),
            f"{name}, bytes {tail[0]}-{size}, after event {unclosed.event}",
        )
    return losses


def _losses(name: str, data: bytes, losses: list[tuple[int, int]], findings: Findings) -> None:
    for start, end in losses[:_MOST_LOSSES]:
        count = _events_in(data, start, end)
        findings.add(
            "bytes_lost",
            f"{end - start:,} damaged bytes ({_about(count)}) could not be read and were left "
            f"out: bytes {start}-{end}",
            count,
            f"{name}, bytes {start}-{end}",
        )
    rest = losses[_MOST_LOSSES:]
    if rest:
        count = sum(_events_in(data, *loss) for loss in rest)
        findings.add(
            "bytes_lost",
            f"{sum(end - start for start, end in rest):,} damaged bytes in {len(rest):,} more "
            f"places ({_about(count)}) could not be read and were left out: between bytes "
            f"{rest[0][0]} and {rest[-1][1]}",
            count,
            f"{name}, bytes {rest[0][0]}-{rest[-1][1]}",
        )


def _events_in(data: bytes, start: int, end: int) -> int:
    return max(1, sum(1 for _ in _EVENT.finditer(data, start, end)))


def _about(count: int) -> str:
    return "about one event" if count == 1 else f"about {count:,} events"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2g} %"


def _place(name: str, data: bytes, note: Note) -> str:
    line = data.count(b"\n", 0, note.at) + 1
    return f"{name}, byte {note.at} (line {line}), event {note.event + 1}"
