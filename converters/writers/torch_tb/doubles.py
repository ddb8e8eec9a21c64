"""Durations written so that the PyTorch Profiler plugin's sums of doubles come out right."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import NONE, Bools, Float64
from neuron_tb.converters.writers.cuda.events import Events


def keep_touching_ends(events: Events, tree: Bools) -> None:
    """Durations whose sum with the start is the end, in doubles, where ends touch.

    The plugin adds start and duration as doubles and compares the sums: 0.1 + 0.2 > 0.3
    would put a child outside its parent, or a row into its neighbour, and drop it. Only the
    text of the duration changes, by far less than the nanosecond that the source resolves.
    """
    rows = np.flatnonzero(tree)
    start, duration = events.start_ns[rows] - events.base_ns, events.duration_ns[rows]
    end, place = start + duration, events.place[rows].astype(np.int64)
    times = np.concatenate([start, end])
    _, code = np.unique(times, return_inverse=True)
    code = code.reshape(-1) + np.concatenate([place, place]) * (len(times) + 1)
    _, code, count = np.unique(code, return_inverse=True, return_counts=True)
    touches = count[code.reshape(-1)[len(rows) :]] > 1
    begin, stop = start / 1000, end / 1000
    wrong = np.flatnonzero(touches & (begin + duration / 1000 != stop))
    _set_ends(events, rows[wrong], begin[wrong], stop[wrong])


def keep_half_microseconds(events: Events) -> None:
    """Keep the device time of an operator on its side of a half microsecond.

    The plugin's table rounds sums of doubles, half to even: 1164.5 must not become 1165
    because the sum was off by its last bit.
    """
    t = events.translation
    kernels = t.kernels
    operator = t.calls.operator[kernels.call]
    linked = np.flatnonzero(operator != NONE)
    name = t.name[operator[linked]]
    total = np.zeros(len(t.trace.strings), np.int64)
    np.add.at(total, name, kernels.duration_ns[linked])
    half = total[name] % 1000 == 500
    down = total[name][half] // 1000 % 2 == 0
    rows = linked[half]
    start, length = (
        (kernels.start_ns[rows] - events.base_ns) / 1000,
        kernels.duration_ns[rows] / 1000,
    )
    end = start + length
    for _ in range(4):
        wrong = np.where(down, end - start >= length, end - start <= length)
        end = np.where(wrong, np.nextafter(end, np.where(down, -np.inf, np.inf)), end)
    some = length > 0
    _set_ends(events, kernels.row[rows][some], start[some], end[some])


def _set_ends(events: Events, rows: NDArray[Any], start: Float64, end: Float64) -> None:
    """Write durations that added to these starts give these ends, as doubles."""
    exact = end - start
    for _ in range(4):
        total = start + exact
        exact = np.where(total > end, np.nextafter(exact, -np.inf), exact)
        exact = np.where(total < end, np.nextafter(exact, np.inf), exact)
    events.set_durations(rows, exact)
