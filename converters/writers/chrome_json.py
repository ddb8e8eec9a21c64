"""Chrome-trace JSON in Kineto's shape: event lines made from columns, written as gzip.

One event stands on one line, and ``traceEvents`` is the last key of the file. Lines are bytes:
the arguments of the source, which are UTF-8, pass through undecoded; all else is ASCII.

Times are microseconds after a base, with three decimals: whole nanoseconds.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from neuron_tb import __version__
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import Counters, Float64, Int32, Int64, Trace
from neuron_tb.converters.model.ragged import Ragged, decimals, distinct_rows, joined

GZIP_LEVEL = 1
"""Default compression: three times as fast as level 6, for files a quarter larger."""

LARGEST_TIME_US = 2**43
"""Below this many microseconds a double tells single nanoseconds apart."""

METADATA_KEY = "neuron_tb"
"""The top-level key under which a file says who made it, from what, and what it shows."""

quoted = encode_basestring_ascii
"""A text as a JSON string, in ASCII."""

_SECOND_NS = 1_000_000_000
_DECIMALS = Ragged.of([b".%03d" % n for n in range(1000)])
_OWN_KEYS = ("traceEvents", "baseTimeNanoseconds", METADATA_KEY)

_LARGEST_WHOLE = 1e15
"""Whole numbers below this one are written without an exponent."""


SEPARATOR = b",\n"
"""What every event's text begins with."""


class EventFile:
    """A trace file while its events are written, line by line."""

    def __init__(self, file: BinaryIO, head: Mapping[str, Any], level: int) -> None:
        self._file = file
        self._gzip = _compressor(level)
        lines = [f"{quoted(key)}: {_json(value)}," for key, value in head.items()]
        self._write("\n".join(["{", *lines, '"traceEvents": [']).encode())
        self._skip = len(SEPARATOR) - 1  # no comma before the first event

    def add(self, chunks: Iterable[Ragged]) -> None:
        """Write events, each the text of one JSON object behind a ``SEPARATOR``."""
        for lines in chunks:
            if len(lines):
                self._write(lines.view()[self._skip :])
                self._skip = 0
            del lines  # before the next chunk is made

    def finish(self) -> None:
        """Close the list and the file's object."""
        self._write(b"\n]}\n")
        self._file.write(self._gzip.flush())

    def _write(self, text: bytes | memoryview) -> None:
        self._file.write(self._gzip.compress(text))


def _compressor(level: int) -> Any:
    """A gzip stream: Intel's library is three times as fast as zlib, and has levels up to 3."""
    if level <= GZIP_LEVEL:
        try:
            from isal import isal_zlib
        except ImportError:  # there are platforms without it
            pass
        else:
            return isal_zlib.compressobj(level, zlib.DEFLATED, 31)
    return zlib.compressobj(level, zlib.DEFLATED, 31)


@contextmanager
def event_file(path: Path, head: Mapping[str, Any], level: int = GZIP_LEVEL) -> Iterator[EventFile]:
    """A new gzip file whose top-level keys are ``head``, then ``traceEvents``."""
    with path.open("wb") as file:
        events = EventFile(file, head, level)
        yield events
        events.finish()
        file.flush()
        os.fsync(file.fileno())


def head_of(
    trace: Trace, process: int, base_ns: int | None, own: Mapping[str, Any]
) -> dict[str, Any]:
    """The top-level keys of one process' file: the source's own, then ours under ``neuron_tb``.

    ``base_ns`` is None where the source's times count from an unknown origin.
    """
    source = trace.metadata[process] if process < len(trace.metadata) else {}
    # HTA takes the first line with a rank for the file's: this key goes first.
    head: dict[str, Any] = {"schemaVersion": source.get("schemaVersion", 1)}
    head["distributedInfo"] = source.get("distributedInfo")
    head.update({key: value for key, value in source.items() if key not in (*head, *_OWN_KEYS)})
    if not isinstance(head["distributedInfo"], dict):
        del head["distributedInfo"]
    head.setdefault("displayTimeUnit", "ms")
    head[METADATA_KEY] = {"version": __version__, **own}
    if base_ns is not None:
        head["baseTimeNanoseconds"] = base_ns
    return head


def base_that_keeps_nanoseconds(trace: Trace, wanted_ns: int) -> int:
    """``wanted_ns``, or the second in which the trace starts where the former is too far away.

    A reader that takes times for doubles must get every nanosecond back, and no time may be
    negative.
    """
    first, last = trace.time_range()
    if wanted_ns <= first and (last - wanted_ns) < LARGEST_TIME_US * 1000:
        return wanted_ns
    return second_of(first)


def second_of(time_ns: int) -> int:
    """The start of the whole second that holds this time, in nanoseconds."""
    return time_ns // _SECOND_NS * _SECOND_NS


def microseconds(ns: Int64) -> Ragged:
    """Nanoseconds (not negative) as microseconds with three decimals, exactly."""
    whole, rest = np.divmod(ns, 1000)
    return joined(decimals(whole), _DECIMALS.take(rest))


def doubles(values: Float64) -> Ragged:
    """Finite doubles as the shortest text that gives them back; whole ones end in ``.0``."""
    text = decimals(values)
    whole = np.flatnonzero((np.floor(values) == values) & (np.abs(values) < _LARGEST_WHOLE))
    return text.replaced(whole, joined(decimals(values[whole].astype(np.int64)), b".0"))


class Places:
    """Where rows stand: (pid, tid) pairs, numbered; with what people call them."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int | str, int | str], int] = {}
        self._events: dict[tuple[str, int | str, int | str], str] = {}

    def number(self, pid: int | str, tid: int | str) -> int:
        """The number of this place."""
        return self._numbers.setdefault((pid, tid), len(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    def describe(self, pid: int | str, tid: int | str, kind: str, key: str, value: object) -> None:
        """A metadata event (``process_name``, ``thread_sort_index``, …); the first one stands."""
        text = (
            f'{{"ph": "M", "name": "{kind}", "pid": {_json(pid)}, "tid": {_json(tid)}, '
            f'"args": {{"{key}": {_json(value)}}}}}'
        )
        self._events.setdefault((kind, pid, 0 if kind.startswith("process") else tid), text)

    def metadata_lines(self) -> Iterator[Ragged]:
        """All metadata events."""
        yield Ragged.of([SEPARATOR + text.encode() for text in self._events.values()])

    def texts(self) -> Ragged:
        """The members ``pid`` and ``tid`` of every place, in order of the numbers."""
        places = (f'"pid": {_json(pid)}, "tid": {_json(tid)}' for pid, tid in self._numbers)
        return Ragged.of([text.encode() for text in places])


def slice_lines(
    heads: Ragged, places: Ragged, start: Ragged, duration: Ragged, arguments: Ragged
) -> Ragged:
    """Complete events; ``heads`` are members ``cat`` and ``name``, ``places`` pid and tid."""
    return joined(
        SEPARATOR + b'{"ph": "X", ',
        heads,
        b", ",
        places,
        b', "ts": ',
        start,
        b', "dur": ',
        duration,
        *_tail(arguments),
    )


def instant_lines(heads: Ragged, places: Ragged, time: Ragged, arguments: Ragged) -> Ragged:
    """Instant events of a thread."""
    return joined(
        SEPARATOR + b'{"ph": "i", "s": "t", ',
        heads,
        b", ",
        places,
        b', "ts": ',
        time,
        *_tail(arguments),
    )


def _tail(arguments: Ragged) -> tuple[Ragged, Ragged, bytes]:
    some = (arguments.lengths > 0).astype(np.intp)
    return Ragged.of([b"", b', "args": ']).take(some), arguments, b"}"


def finite_counters(counters: Counters, findings: Findings) -> Counters:
    """The samples that JSON can hold; the others are counted."""
    finite = np.isfinite(counters.value)
    findings.add(
        "counter_not_finite",
        "counter samples that are no finite number were left out",
        int(np.count_nonzero(~finite)),
    )
    return counters if finite.all() else counters.take(finite)


def counter_lines(trace: Trace, counters: Counters, places: Ragged, time: Ragged) -> Ragged:
    """Counter samples, one series per track."""
    labels = Ragged.of([f'"name": {quoted(track.name)}'.encode() for track in trace.tracks])
    units = Ragged.of([quoted(track.unit or "value").encode() for track in trace.tracks])
    return joined(
        SEPARATOR + b'{"ph": "C", ',
        labels.take(counters.track),
        b", ",
        places,
        b', "ts": ',
        time,
        b', "args": {',
        units.take(counters.track),
        b": ",
        doubles(counters.value),
        b"}}",
    )


def flow_lines(
    category: Ragged,
    number: Ragged,
    source: Ragged,
    source_time: Ragged,
    target: Ragged,
    target_time: Ragged,
) -> Ragged:
    """Arrows, a start and an end event each; ``source`` and ``target`` are places."""
    both = joined(b'"cat": ', category, b', "name": ', category, b', "id": ', number, b", ")
    return joined(
        SEPARATOR + b'{"ph": "s", ',
        both,
        source,
        b', "ts": ',
        source_time,
        b"}" + SEPARATOR + b'{"ph": "f", "bp": "e", ',
        both,
        target,
        b', "ts": ',
        target_time,
        b"}",
    )


def heads_of(
    strings: Sequence[str], category: Int32, name: Int32, default: str = ""
) -> tuple[Ragged, NDArray[np.intp]]:
    """The distinct pairs of category and name as text, and the pair of every row.

    ``default`` stands for a category that is empty.
    """
    first, pair = distinct_rows(category, name)
    texts = [
        f'"cat": {quoted(strings[c] or default)}, "name": {quoted(strings[n])}'.encode()
        for c, n in zip(category[first].tolist(), name[first].tolist(), strict=True)
    ]
    return Ragged.of(texts), pair.astype(np.int32)


def _json(value: object) -> str:
    return json.dumps(_finite(value), allow_nan=False, default=str)


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _finite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
