"""Starts, stops and instants of the Neuron runtime, by columns, and how they become rows.

Whatever form the events stood in, they are paired here: a start and a stop of one process, core,
type and tracking id belong together, the first with the first. The runtime's ring buffers
overwrite the oldest events, so stops without a start at the beginning and starts without a stop
at the end are normal. Hardware events carry the device's clock beside the host's: their length
is a difference of device times and their place is the host's time. The two are never mixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import NONE, Bools, Columns, Int32, Int64, UInt8, column
from neuron_tb.converters.readers.neuron.rows import HARDWARE_NAMES, NeuronTraceBuilder, Row

PHASES = ("unknown", "start", "stop", "instant")
"""By their number in the runtime's events."""
START, STOP = PHASES.index("start"), PHASES.index("stop")


@dataclass(slots=True)
class RuntimeEvents(Columns):
    """One row per event; NONE where a number is absent.

    ``type``, ``instance``: positions in lists of names, NONE where there is no name. ``phase``:
    position in ``PHASES``. ``time_ns``: nanoseconds since the Unix epoch. ``device_ns``: the
    device's own clock. ``host_ns``: a sync point's time on the host. ``bytes``: what was copied.
    """

    type: Int32 = column(np.int32)
    phase: UInt8 = column(np.uint8)
    instance: Int32 = column(np.int32)
    process: Int64 = column(np.int64)
    thread: Int64 = column(np.int64)
    core: Int64 = column(np.int64)
    physical_core: Int64 = column(np.int64)
    tracking: Int64 = column(np.int64)
    time_ns: Int64 = column(np.int64)
    device_ns: Int64 = column(np.int64)
    host_ns: Int64 = column(np.int64)
    sequence_id: Int64 = column(np.int64)
    exec_id: Int64 = column(np.int64)
    bytes: Int64 = column(np.int64)


@dataclass(frozen=True, slots=True)
class _Paired:
    """Rows of events: ``start`` and ``stop`` that belong together, and ``points``."""

    start: NDArray[np.intp]
    stop: NDArray[np.intp]
    points: NDArray[np.intp]


def add_events(
    builder: NeuronTraceBuilder,
    events: RuntimeEvents,
    types: Sequence[object],
    instances: Sequence[object],
    texts: list[bytes],
) -> None:
    """Pair events and add them.

    ``texts``: their arguments as JSON objects; the list is emptied, for with a million events it
    is large.
    """
    timed = np.flatnonzero(events.time_ns > 0)
    builder.findings.add(
        "time_out_of_range",
        "rows without a time, or at time 0, were left out",
        len(events) - len(timed),
    )
    timed = timed[np.argsort(events.time_ns[timed], kind="stable")]
    paired = _pair(events, timed, builder)
    hardware = np.array([str(name) in HARDWARE_NAMES for name in types] + [False], np.bool_)
    lengths = _lengths(events, paired, hardware)
    builder.findings.add(
        "stop_before_start",
        "events that stop before they start are shown as instants",
        int(np.count_nonzero(lengths < 0)),
    )
    text, text_lengths = _joined(texts, paired)
    first = np.concatenate([paired.start, paired.points])
    rows = events.take(first)
    ends = events.take(np.concatenate([paired.stop, paired.points]))
    kinds, kind_of_row = _kinds(rows, types, instances)
    builder.add_table(
        kinds,
        kind_of_row,
        rows.time_ns,
        np.concatenate([lengths, np.full(len(paired.points), NONE, np.int64)]),
        _either(rows.sequence_id, ends.sequence_id),
        _either(rows.exec_id, ends.exec_id),
        (text, text_lengths),
        [],
    )


def _pair(events: RuntimeEvents, order: NDArray[np.intp], builder: NeuronTraceBuilder) -> _Paired:
    """Pair the events at ``order``, which are in order of time."""
    key = codes(
        events.process[order], events.core[order], events.type[order], events.tracking[order]
    )
    by_key = np.argsort(key, kind="stable")
    rows, key = order[by_key], key[by_key]
    phase = events.phase[rows]
    starts, stops = phase == START, phase == STOP
    kept = stops & ~_without_start(starts, stops, key)
    rank_of_start = _rank(starts, key)
    stops_of_key = np.bincount(key, weights=kept, minlength=1)[key] if len(key) else key
    paired = starts & (rank_of_start < stops_of_key)
    # Both sides are in order of key and rank, and have the same keys and ranks.
    start, stop = rows[paired], rows[kept]
    position = np.empty(len(events), np.intp)
    position[order] = np.arange(len(order))
    in_time = np.argsort(position[stop], kind="stable")
    others = rows[~paired & ~kept]
    builder.findings.add(
        "stop_without_start",
        "stops without a start (overwritten in the ring buffer) are shown as instants",
        int(np.count_nonzero(stops & ~kept)),
    )
    builder.findings.add(
        "start_without_stop",
        "starts without a stop (not finished when recording ended) are shown as instants",
        int(np.count_nonzero(starts & ~paired)),
    )
    points = others[np.argsort(position[others], kind="stable")]
    return _Paired(start[in_time], stop[in_time], points)


def _joined(texts: list[bytes], paired: _Paired) -> tuple[bytes, Int64]:
    """The arguments of pairs, which are those of both events, and of points; and their lengths."""
    joined: list[bytes] = []
    for start, stop in zip(paired.start.tolist(), paired.stop.tolist(), strict=True):
        joined.append(b'{"start":' + texts[start] + b',"stop":' + texts[stop] + b"}")
        texts[start] = texts[stop] = b""
    joined += [texts[point] for point in paired.points.tolist()]
    texts.clear()
    return b"".join(joined), np.fromiter(map(len, joined), np.int64, len(joined))


def _without_start(starts: Bools, stops: Bools, key: NDArray[np.intp]) -> Bools:
    """Stops at which no start of their key is open: the balance reaches a new low."""
    if not len(key):
        return stops
    balance = np.cumsum(starts.astype(np.int64) - stops.astype(np.int64))
    first = np.concatenate([[True], key[1:] != key[:-1]])
    before = np.concatenate([[0], balance[:-1]])
    balance -= before[first][np.cumsum(first) - 1]
    # Lower and lower for each key, so that one running minimum serves all keys.
    step = (np.cumsum(first) - 1) * (2 * len(key) + 2)
    low = np.minimum(np.minimum.accumulate(balance - step) + step, 0)
    low_before = np.where(first, 0, np.concatenate([[0], low[:-1]]))
    found: Bools = stops & (low < low_before)
    return found


def _rank(chosen: Bools, key: NDArray[np.intp]) -> Int64:
    """Which of the chosen rows of its key each row is, counted from 0."""
    if not len(key):
        return np.empty(0, np.int64)
    count = np.cumsum(chosen, dtype=np.int64) - chosen
    first = np.concatenate([[True], key[1:] != key[:-1]])
    rank: Int64 = count - count[first][np.cumsum(first) - 1]
    return rank


def _lengths(events: RuntimeEvents, paired: _Paired, hardware: Bools) -> Int64:
    """Nanoseconds on one clock: the device's for hardware events, where both ends have it."""
    start, stop = paired.start, paired.stop
    on_device = (
        hardware[events.type[start]]
        & (events.device_ns[start] != NONE)
        & (events.device_ns[stop] != NONE)
    )
    of_device = events.device_ns[stop] - events.device_ns[start]
    of_host = events.time_ns[stop] - events.time_ns[start]
    lengths: Int64 = np.maximum(np.where(on_device, of_device, of_host), NONE)
    return lengths


def _kinds(
    rows: RuntimeEvents, types: Sequence[object], instances: Sequence[object]
) -> tuple[list[Row], NDArray[np.intp]]:
    """One Row per distinct name and place, in order of appearance, and which one each row is."""
    code = codes(rows.type, rows.instance, rows.process, rows.thread, rows.core, rows.physical_core)
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), np.intp)
    number[order] = np.arange(len(order))
    kinds = [
        Row(
            name=None if row.type == NONE else types[row.type],
            instance_id=None if row.instance == NONE else instances[row.instance],
            process_id=_given(row.process),
            thread_id=_given(row.thread),
            nc_idx=_given(row.core),
            device_core_idx=_given(row.physical_core),
        )
        for row in map(_Place, *(getattr(rows, name)[first[order]].tolist() for name in _PLACE))
    ]
    return kinds, number[kind.reshape(-1)]


_PLACE = ("type", "instance", "process", "thread", "core", "physical_core")


@dataclass(frozen=True, slots=True)
class _Place:
    type: int
    instance: int
    process: int
    thread: int
    core: int
    physical_core: int


def _given(number: int) -> int | None:
    return None if number == NONE else number


def _either(first: Int64, second: Int64) -> Int64:
    return np.where(first != NONE, first, second)


def codes(*columns: NDArray[np.integer]) -> NDArray[np.intp]:
    """Small numbers that are equal where the rows of all columns are."""
    code = np.zeros(len(columns[0]), np.int64)
    for values in columns:
        _, own = np.unique(values, return_inverse=True)
        _, code = np.unique(code * (len(values) + 1) + own.reshape(-1), return_inverse=True)
        code = code.reshape(-1)
    return code.astype(np.intp)
