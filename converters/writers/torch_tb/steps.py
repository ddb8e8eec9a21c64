"""Which steps the PyTorch Profiler plugin would give no length, by its own arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import NONE, Bools, Int32, Int64
from neuron_tb.converters.model.ragged import chunks
from neuron_tb.converters.writers.cuda.translation import Translation


def steps_without_time(t: Translation, step: Bools) -> NDArray[np.intp]:
    """Rows of ``step`` (a mask of the translation's rows) that would have no length.

    The plugin divides by it. A step begins there when the device work of the one before has
    ended; one that launches nothing meanwhile has no time left.
    """
    calls, kernels = t.calls, t.kernels
    rows = np.flatnonzero(step)
    rows = rows[np.argsort(t.start_ns[rows], kind="stable")]
    has_runtime = (calls.row != NONE) | calls.unrecorded
    cause = np.where(calls.row != NONE, calls.row, calls.operator)
    start = t.start_ns[cause]
    end = np.where(calls.row != NONE, t.start_ns[cause] + t.duration_ns[cause], start)
    first, last = _ranges(
        kernels.call, kernels.start_ns, kernels.start_ns + kernels.duration_ns, len(cause)
    )
    order = np.flatnonzero(has_runtime)
    order = order[np.argsort(start[order], kind="stable")]
    columns = order, start[order], end[order], first[order], last[order]
    kernel_ends = kernels.start_ns + kernels.duration_ns
    hidden: list[int] = []
    while len(rows):
        steps = [(int(t.start_ns[r]), int(t.start_ns[r] + t.duration_ns[r])) for r in rows]
        empty = _empty_steps(steps, columns, kernel_ends, kernels.call)
        if not empty.any():
            break
        hidden += rows[empty].tolist()
        rows = rows[~empty]
    return np.array(hidden, np.intp)


def _empty_steps(
    steps: list[tuple[int, int]],
    calls: tuple[NDArray[np.integer], ...],
    kernel_ends: Int64,
    call_of_kernel: Int32,
) -> Bools:
    """Which steps (in order of start) the plugin would give no length.

    ``calls``: number, start, end, first and last device time of each, in order of start.
    """
    spans: list[tuple[int, int] | None] = [None] * len(steps)
    inside = np.zeros(int(call_of_kernel.max(initial=-1)) + 1, np.bool_)
    step = 0
    for number, start, end, first, last in _rows(calls):
        while step < len(steps) and start >= steps[step][1] and end > steps[step][1]:
            step += 1
        if step == len(steps):
            break
        if start < steps[step][0] or end > steps[step][1]:
            continue
        span = spans[step]
        spans[step] = (first, last) if span is None else (min(span[0], first), max(span[1], last))
        inside[number] = True
    ends = np.array([end for _, end in steps], np.int64)
    starts = np.array([start for start, _ in steps], np.int64)
    if not any(spans):
        return ends <= starts
    previous = steps[0][0]
    if spans[0] is not None:
        earlier = kernel_ends[~inside[call_of_kernel]]
        earlier = earlier[earlier < spans[0][0]]
        previous = max(previous, int(earlier.max(initial=previous)))
    empty = np.zeros(len(steps), np.bool_)
    for number, (start, end) in enumerate(steps):
        begin = max(previous, start)
        span = spans[number]
        previous = max(end, begin) if span is None else max(end, span[1], begin)
        empty[number] = previous <= begin
    return empty


def _rows(columns: tuple[NDArray[np.integer], ...]) -> Iterator[tuple[int, ...]]:
    """The rows of equally long columns, of which only some exist as Python numbers at a time."""
    for part in chunks(len(columns[0])):
        yield from zip(*(column[part].tolist() for column in columns), strict=True)


def _ranges(group: Int32, start: Int64, end: Int64, count: int) -> tuple[Int64, Int64]:
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    return first, last
