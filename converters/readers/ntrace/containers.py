"""How the records of a raw runtime file are packed: one message, or a stream of messages.

Both are known to be possible, so both are tried, and the records decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.readers.ntrace.numbering import looks_like_events
from neuron_tb.converters.readers.ntrace.wire_scan import (
    Message,
    Scan,
    Spans,
    delimited,
    padded,
    scan,
)

MOST_FIELDS = 64
"""The runtime's messages have up to 18 fields; larger numbers are no fields of theirs."""
_SAMPLE = 2_000
_LIKE_SHARE = 0.9
_PHASED_SHARE = 0.5
_PHASE_FIELDS = (13, 14)


@dataclass(frozen=True, slots=True)
class EventList:
    """The events of a file, their fields, and the sentence part that says where they were.

    ``rest``: bytes of a record that the file ends in.
    """

    path: Path
    scan: Scan
    why: str
    rest: int


@dataclass(frozen=True, slots=True)
class RecordList:
    """One way to take a file apart."""

    records: Spans
    rest: int
    what: str
    why: str


def record_lists(data: bytes, whole: Message) -> Iterator[RecordList]:
    """Every way to take a file apart that reaches its end, or the record that it ends in."""
    columns = padded(data)
    stream = delimited(data, columns)
    candidates = [
        RecordList(
            stream.bodies,
            stream.rest,
            "a stream of messages",
            "a stream of messages, each after its length",
        )
    ]
    candidates += [
        RecordList(
            bodies,
            whole.rest,
            f"field {number} of one message",
            f"one message with its records in field {number}",
        )
        for number, bodies in whole.nested.items()
        if number <= MOST_FIELDS
    ]
    for candidate in candidates:
        records = candidate.records
        if len(records):
            longest = int((records.ends - records.starts).max())
            if candidate.rest <= longest + 16:
                yield candidate


def event_list(path: Path, data: bytes, whole: Message) -> EventList:
    """The events of a file. Raises NeuronTbError (the end of a sentence) when it is not clear."""
    if not data:
        raise NeuronTbError("it is empty; the runtime was probably stopped before it wrote")
    chosen = one_list(data, whole, _are_events, "events")
    fields = scan(chosen.records)
    broken = np.flatnonzero(~looks_like_events(fields))
    if len(broken):
        place = int(chosen.records.starts[broken[0]])
        raise NeuronTbError(
            f"{len(broken):,} of its {len(fields):,} records are no whole events, the first at "
            f"byte {place}"
        )
    end = "" if chosen.rest else ", the last one ending where the file ends"
    return EventList(path, fields, f"{len(fields):,} records as {chosen.why}{end}", chosen.rest)


def one_list(data: bytes, whole: Message, fits: Callable[[Scan], bool], name: str) -> RecordList:
    """The only way to take a file apart whose records ``fits`` accepts; NeuronTbError else."""
    standing = [
        found
        for found in record_lists(data, whole)
        if fits(scan(found.records.take(_spread(len(found.records)))))
    ]
    if not standing:
        raise NeuronTbError(
            f"neither as a stream of messages nor as one message does it hold {name}"
        )
    if len(standing) > 1:
        raise NeuronTbError(f"both {standing[0].what} and {standing[1].what} look like {name}")
    return standing[0]


def _spread(count: int) -> slice:
    return slice(None, None, max(1, count // _SAMPLE))


def _are_events(sample: Scan) -> bool:
    phased = np.zeros(len(sample), np.bool_)
    for number in _PHASE_FIELDS:
        phased |= sample.present(number)
    return (
        float(np.mean(looks_like_events(sample))) >= _LIKE_SHARE
        and float(np.mean(phased)) >= _PHASED_SHARE
    )
