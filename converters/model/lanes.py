"""Nesting and lanes: which slices of a row lie inside each other, and which must stand apart.

Every viewer draws a row as properly nested slices. Where two slices of one track cross, the
later one gets another lane; nothing is moved or trimmed, except that a crossing no larger than
the source's own resolution is rounding: the child then ends with its parent.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model.columns import NONE, Bools, Int32, Int64

OVERLAPPING = (
    "overlapping_slices",
    "slices that cross another of their row stand in lanes of their own, lengths unchanged",
)
"""Kind and message of the finding that every writer makes of crossings (windows not counted:
those of queued work overlap by their nature)."""

ROUNDED = (
    "end_rounded",
    "ends within the source's own resolution after their parent's were set to it",
)
"""Kind and message of the finding that every writer makes of roundings."""


_NESTING_LANES = 128
"""Lanes of a row in which slices may nest; more are needed only where very many overlap."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the slices of all tracks stand in their rows; arrays have one entry per input slice.

    ``order``: slices sorted by (track, lane, start, longest first): parents come before their
    children. ``lane``: 0 for the main lane. ``parent``: the innermost slice around this one in
    the same lane, NONE at the top. ``depth``: number of slices around it. ``end_ns``: the end,
    rounded to the parent's where only the source's resolution made them cross.
    ``crossings``: slices that needed another lane; ``rounded``: slices whose end was rounded.
    """

    order: NDArray[np.intp]
    lane: Int32
    parent: Int32
    depth: Int32
    end_ns: Int64
    crossings: int
    rounded: int


def lay_out(track: Int32, start_ns: Int64, duration_ns: Int64, resolution_ns: int = 1) -> Layout:
    """Lanes, parents and depths of slices given by three equally long columns.

    Times are nanoseconds; ``resolution_ns`` is the largest crossing that counts as rounding.
    """
    n = len(track)
    end = start_ns + duration_ns
    order = in_order_of_time(track, start_ns, duration_ns)
    lane = np.zeros(n, np.int32)
    rounded = 0
    bounds = np.flatnonzero(np.diff(track[order], prepend=NONE - 1, append=NONE - 1))
    for first, last in itertools.pairwise(bounds):
        rows = order[first:last]
        crossing = rows[_crossing(start_ns[rows], end[rows])]
        if len(crossing):
            rounded += _assign_lanes(crossing, start_ns, end, lane, resolution_ns)
    if rounded or lane.any():
        order = np.lexsort((start_ns - end, start_ns, lane, track))
    row_key = track[order].astype(np.int64) * (int(lane.max(initial=0)) + 1) + lane[order]
    parent = np.full(n, NONE, np.int32)
    depth = np.zeros(n, np.int32)
    bounds = np.flatnonzero(np.diff(row_key, prepend=NONE - 1, append=NONE - 1))
    for first, last in itertools.pairwise(bounds):
        rows = order[first:last]
        parents, depths = _nest(start_ns[rows], end[rows])
        depth[rows] = depths
        inside = parents != NONE
        parent[rows[inside]] = rows[parents[inside]]
    return Layout(order, lane, parent, depth, end, int(np.count_nonzero(lane)), rounded)


def in_order_of_time(track: Int64 | Int32, start_ns: Int64, duration_ns: Int64) -> NDArray[np.intp]:
    """Positions of slices sorted by (track, start, longest first)."""
    # Sixteen bits are sorted without comparisons, and within a track most files are in order.
    few = track.min(initial=0) >= 0 and track.max(initial=0) < 1 << 16
    order = np.argsort(track.astype(np.uint16) if few else track, kind="stable")
    row, start, length = track[order], start_ns[order], duration_ns[order]
    late = (start[1:] < start[:-1]) | ((start[1:] == start[:-1]) & (length[1:] > length[:-1]))
    if not np.any(late & (row[1:] == row[:-1])):
        return order
    return np.lexsort((-duration_ns, start_ns, track))


def self_time(parent: Int32, duration_ns: Int64) -> Int64:
    """Each slice's length minus the lengths of the slices directly inside it, nanoseconds."""
    own: Int64 = duration_ns.copy()
    inside = parent != NONE
    np.subtract.at(own, parent[inside], duration_ns[inside])
    return own


def innermost_around(
    thread: Int64 | Int32,
    start_ns: Int64,
    duration_ns: Int64,
    of_thread: Int64 | Int32,
    from_ns: Int64,
    to_ns: Int64,
) -> Int32:
    """The innermost slice of the same thread that contains each interval, NONE where none does.

    ``thread``, ``start_ns``, ``duration_ns`` describe n slices; ``of_thread``, ``from_ns``,
    ``to_ns`` m intervals; the result has shape (m,).
    """
    found = np.full(len(of_thread), NONE, np.int32)
    if not len(thread):
        return found
    layout = lay_out(thread.astype(np.int32), start_ns, duration_ns)
    order = in_order_of_time(thread, start_ns, duration_ns)
    for number in np.unique(of_thread):
        first, last = np.searchsorted(thread[order], [number, number + 1])
        rows = order[first:last]
        if not len(rows):
            continue
        wanted = np.flatnonzero(of_thread == number)
        position = np.searchsorted(start_ns[rows], from_ns[wanted], side="right") - 1
        here = np.where(position >= 0, rows[np.maximum(position, 0)], NONE).astype(np.int32)
        outside = (here != NONE) & (layout.end_ns[here] < to_ns[wanted])
        while outside.any():
            here[outside] = layout.parent[here[outside]]
            outside = (here != NONE) & (layout.end_ns[here] < to_ns[wanted])
        found[wanted] = here
    return found


def union_length(start_ns: Int64, end_ns: Int64) -> int:
    """Nanoseconds covered by at least one of the intervals."""
    if not len(start_ns):
        return 0
    order = np.argsort(start_ns, kind="stable")
    start, reach = start_ns[order], np.maximum.accumulate(end_ns[order])
    covered_before = np.concatenate(([start[0]], reach[:-1]))
    return int(np.maximum(reach - np.maximum(start, covered_before), 0).sum())


def _nest(start: Int64, end: Int64) -> tuple[Int32, Int32]:
    """Parents and depths of one row's slices, sorted by (start, longest first).

    Assumes proper nesting. A slice's depth is the number of earlier slices that are still open
    at its start; its parent is the last slice before it that is one level up.
    """
    n = len(start)
    position = np.arange(n)
    empty = end == start
    # Ends at or before each start, less the empty slices at that very start that come later.
    closed = np.searchsorted(np.sort(end), start, side="right")
    if empty.any():
        empties_before = np.concatenate(([0], np.cumsum(empty)))
        group_end = np.searchsorted(start, start, side="right")
        closed -= empties_before[group_end] - empties_before[position]
    depth = (position - closed).astype(np.int32)
    parent = np.full(n, NONE, np.int32)
    above = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == level)
        parent[here] = above[np.searchsorted(above, here) - 1]
        above = here
    return parent, depth


def _crossing(start: Int64, end: Int64) -> Bools:
    """Which slices of a row, sorted by (start, longest first), belong to a tangle.

    Slices that touch in time are a cluster; a cluster that is not properly nested is a tangle.
    """
    reach = np.maximum.accumulate(end)
    first = np.ones(len(start), np.bool_)
    np.greater_equal(start[1:], reach[:-1], out=first[1:])
    if first.all():
        return ~first
    parent, depth = _nest(start, end)
    wrong = depth < 0
    inside = np.flatnonzero(parent != NONE)
    around = parent[inside]
    # A child that starts where its parent ends is not inside it, unless both are empty.
    wrong[inside] |= (end[inside] > end[around]) | (start[inside] >= end[around])
    top = np.flatnonzero(parent == NONE)
    wrong[top[1:]] |= start[top[1:]] < end[top[:-1]]
    cluster = np.cumsum(first) - 1
    tangled = np.zeros(int(cluster[-1]) + 1, np.bool_)
    tangled[cluster[wrong]] = True
    crossing: Bools = tangled[cluster]
    return crossing


def _assign_lanes(
    rows: NDArray[np.intp], start: Int64, end: Int64, lane: Int32, resolution: int
) -> int:
    """Put each slice on the first lane where it nests or is disjoint; returns roundings made.

    Writes ``lane``, and ``end`` where a crossing is within the resolution. Behind the first lanes,
    a slice gets any lane that is empty, so that thousands at once are no matter of hours.
    """
    open_ends: list[list[int]] = []
    further: list[tuple[int, int]] = []
    rounded, reach = 0, int(np.iinfo(np.int64).min)
    for row, begin, stop in zip(
        rows.tolist(), start[rows].tolist(), end[rows].tolist(), strict=True
    ):
        if begin >= reach:  # nothing is open any more
            open_ends, further = [], []
        reach = max(reach, stop)
        chosen = len(open_ends)
        for number, stack in enumerate(open_ends):
            while stack and stack[-1] <= begin:
                stack.pop()
            if stack and stop > stack[-1]:
                if stop - stack[-1] > resolution or stack[-1] <= begin:
                    continue
                stop = stack[-1]
                end[row] = stop
                rounded += 1
            chosen = number
            break
        if chosen == _NESTING_LANES:
            is_empty = further and further[0][0] <= begin
            chosen = heapq.heappop(further)[1] if is_empty else chosen + len(further)
            heapq.heappush(further, (stop, chosen))
            lane[row] = chosen
            continue
        if chosen == len(open_ends):
            open_ends.append([])
        lane[row] = chosen
        open_ends[chosen].append(stop)
    return rounded
