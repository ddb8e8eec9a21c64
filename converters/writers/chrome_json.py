"""Chrome-trace JSON in Kineto's shape: event lines made from columns, written as gzip.

One event stands on one line, and ``traceEvents`` is the last key of the file. Text is handled as
``str`` whose characters are bytes (Latin-1): the arguments of the source, which are UTF-8, pass
through unchanged and undecoded; everything written here is ASCII.

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

import msgspec
import numpy as np

from neuron_tb import __version__
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.trace import (
    Counters,
    Instants,
    Int32,
    Int64,
    MemoryEvents,
    Slices,
    Trace,
)

GZIP_LEVEL = 1
"""Default compression: three times as fast as level 6, for files a quarter larger."""

LARGEST_TIME_US = 2**43
"""Below this many microseconds a double tells single nanoseconds apart."""

METADATA_KEY = "neuron_tb"
"""The top-level key under which a file says who made it, from what, and what it shows."""

quoted = encode_basestring_ascii
"""A text as a JSON string, in ASCII."""

_SECOND_NS = 1_000_000_000
_LINES_PER_CHUNK = 20_000
_DECIMALS = [f".{n:03d}" for n in range(1000)]
_OWN_KEYS = ("traceEvents", "baseTimeNanoseconds", METADATA_KEY)

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class EventFile:
    """A trace file while its events are written, line by line."""

    def __init__(self, file: BinaryIO, head: Mapping[str, Any], level: int) -> None:
        self._file = file
        self._gzip = zlib.compressobj(level, zlib.DEFLATED, 31)
        lines = [f"{quoted(key)}: {_json(value)}," for key, value in head.items()]
        self._write("\n".join(["{", *lines, '"traceEvents": [']))
        self._separator = "\n"

    def add(self, lines: Iterable[str]) -> None:
        """Write events, each the text of one JSON object."""
        for chunk in _chunks(lines):
            self._write(self._separator + ",\n".join(chunk))
            self._separator = ",\n"

    def finish(self) -> None:
        """Close the list and the file's object."""
        self._write("\n]}\n")
        self._file.write(self._gzip.flush())

    def _write(self, text: str) -> None:
        self._file.write(self._gzip.compress(text.encode("latin-1")))


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


def microseconds(ns: Int64) -> list[str]:
    """Nanoseconds (not negative) as microseconds with three decimals, exactly."""
    whole, rest = np.divmod(ns, 1000)
    decimals = _DECIMALS
    return [f"{w}{decimals[r]}" for w, r in zip(whole.tolist(), rest.tolist(), strict=True)]


def argument_texts(trace: Trace, columns: Slices | Instants | MemoryEvents) -> list[str]:
    """The arguments of every row as JSON text, "" for none; each is one line."""
    raws = trace.arguments.texts(columns.args_start, columns.args_length)
    found = [raw.decode("latin-1") for raw in raws]
    return [_as_object(t) if t and (t[0] != "{" or "\n" in t) else t for t in found]


def edited(
    arguments: str, changes: Mapping[str, Any], renamed: Mapping[str, str] | None = None
) -> str:
    """Arguments (JSON text of an object, "" for none) with other keys.

    ``renamed`` gives keys another name first; then ``changes`` sets keys. All other values stay
    the text that they were.
    """
    values: dict[str, Any] = decoded_lazily(arguments)
    for old, new in (renamed or {}).items():
        if old in values:
            values[new] = values.pop(old)
    values.update(changes)
    return _encode(values).decode("latin-1")


def decoded_lazily(arguments: str) -> dict[str, Any]:
    """The keys of arguments with their values as raw JSON."""
    return _decode_object(arguments.encode("latin-1")) if arguments else {}


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

    def metadata_lines(self) -> list[str]:
        """All metadata events."""
        return list(self._events.values())

    def texts(self) -> list[str]:
        """The members ``pid`` and ``tid`` of every place, in order of the numbers."""
        return [f'"pid": {_json(pid)}, "tid": {_json(tid)}' for pid, tid in self._numbers]


def slice_lines(
    heads: Sequence[str],
    head: Int32,
    places: Sequence[str],
    place: Int32,
    start: Sequence[str],
    duration: Sequence[str],
    arguments: Sequence[str],
) -> Iterator[str]:
    """Complete events; ``heads`` are members ``cat`` and ``name``, all columns of shape (n,)."""
    for h, p, ts, dur, args in zip(
        head.tolist(), place.tolist(), start, duration, arguments, strict=True
    ):
        tail = f', "args": {args}}}' if args else "}"
        yield f'{{"ph": "X", {heads[h]}, {places[p]}, "ts": {ts}, "dur": {dur}{tail}'


def instant_lines(
    strings: Sequence[str],
    name: Int32,
    category: Int32,
    places: Sequence[str],
    place: Int32,
    time: Sequence[str],
    arguments: Sequence[str],
) -> Iterator[str]:
    """Instant events of a thread; columns of shape (n,)."""
    for n, c, p, ts, args in zip(
        name.tolist(), category.tolist(), place.tolist(), time, arguments, strict=True
    ):
        tail = f', "args": {args}}}' if args else "}"
        cat = strings[c] or "cpu_instant_event"
        yield (
            f'{{"ph": "i", "s": "t", "cat": {quoted(cat)}, "name": {quoted(strings[n])}, '
            f'{places[p]}, "ts": {ts}{tail}'
        )


def finite_counters(counters: Counters, findings: Findings) -> Counters:
    """The samples that JSON can hold; the others are counted."""
    finite = np.isfinite(counters.value)
    findings.add(
        "counter_not_finite",
        "counter samples that are no finite number were left out",
        int(np.count_nonzero(~finite)),
    )
    return counters if finite.all() else counters.take(finite)


def counter_lines(
    trace: Trace, counters: Counters, places: Sequence[str], place: Int32, time: Sequence[str]
) -> Iterator[str]:
    """Counter samples, one series per track; columns of shape (n,)."""
    labels = [f'"name": {quoted(track.name)}' for track in trace.tracks]
    units = [quoted(track.unit or "value") for track in trace.tracks]
    for t, p, ts, value in zip(
        counters.track.tolist(), place.tolist(), time, counters.value.tolist(), strict=True
    ):
        sample = f"{{{units[t]}: {value!r}}}"
        yield f'{{"ph": "C", {labels[t]}, {places[p]}, "ts": {ts}, "args": {sample}}}'


def flow_lines(
    category: Sequence[str],
    number: Sequence[int],
    places: Sequence[str],
    source: Int32,
    source_time: Sequence[str],
    target: Int32,
    target_time: Sequence[str],
) -> Iterator[str]:
    """Arrows, a start and an end event each; ``source`` and ``target`` are places."""
    for cat, n, s, s_ts, t, t_ts in zip(
        category, number, source.tolist(), source_time, target.tolist(), target_time, strict=True
    ):
        both = f'"cat": {cat}, "name": {cat}, "id": {n}'
        yield f'{{"ph": "s", {both}, {places[s]}, "ts": {s_ts}}}'
        yield f'{{"ph": "f", "bp": "e", {both}, {places[t]}, "ts": {t_ts}}}'


def slice_heads(strings: Sequence[str], category: Int32, name: Int32) -> tuple[list[str], Int32]:
    """The distinct pairs of category and name as text, and the pair of every row."""
    packed = category.astype(np.int64) * len(strings) + name
    distinct, pair = np.unique(packed, return_inverse=True)
    heads = [
        f'"cat": {quoted(strings[c])}, "name": {quoted(strings[n])}'
        for c, n in (divmod(code, len(strings)) for code in distinct.tolist())
    ]
    return heads, pair.reshape(-1).astype(np.int32)


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    for line in lines:
        chunk.append(line)
        if len(chunk) == _LINES_PER_CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _as_object(text: str) -> str:
    value = msgspec.json.format(text.encode("latin-1"), indent=-1).decode("latin-1")
    return value if value.startswith("{") else f'{{"value":{value}}}'


def _json(value: object) -> str:
    return json.dumps(_finite(value), allow_nan=False, default=str)


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _finite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
