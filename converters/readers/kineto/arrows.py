"""The arrows of a trace: flow events, each bound to the slice that it begins or ends in."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from neuron_tb.converters.model import NONE, Flows, Int32, Int64, Slices
from neuron_tb.converters.model.lanes import innermost_around
from neuron_tb.converters.readers.kineto.flows import family
from neuron_tb.converters.readers.kineto.rows import RowReader
from neuron_tb.converters.readers.kineto.tracks import identifier
from neuron_tb.converters.readers.values import nanoseconds

_PHASE_ORDER = {"s": 0, "t": 1, "f": 2}


def arrows(reader: RowReader, slices: Slices, slice_thread: Int32, events: list[Any]) -> Flows:
    """Arrows of ``s``, ``t`` and ``f`` events: an end is joined with its id's latest start.

    ``slice_thread``: the reader's number of every slice's thread.
    """
    events = [e for e in events if e.id is not None]
    if not events:
        return Flows.empty()
    times, usable = nanoseconds([e.ts for e in events], reader.base_ns)
    lengths, known = nanoseconds([getattr(e, "dur", None) for e in events])
    thread = reader.threads_of(events)
    at = innermost_around(
        slice_thread,
        slices.start_ns,
        slices.duration_ns,
        thread,
        times,
        times + np.where(known & (lengths > 0), lengths, 0),
    )
    lost = [r for r, e in enumerate(events) if e.ph == "f" and e.bp != "e" and at[r] == NONE]
    if lost:
        at[lost] = _next_slices(slices, slice_thread, thread[lost], times[lost])
    groups: dict[tuple[str, object], list[int]] = defaultdict(list)
    phase = np.array([_PHASE_ORDER[e.ph] for e in events])
    for row in np.lexsort((phase, times)).tolist():
        if usable[row]:
            event = events[row]
            groups[family(event.cat or ""), identifier(event.id)].append(row)
    sources: list[int] = []
    targets: list[int] = []
    kinds: list[int] = []
    unpaired = 0
    for rows in groups.values():
        edges, lonely = _edges(rows, events, at)
        unpaired += lonely
        kind = reader.table.intern(events[rows[0]].cat or "")
        for source, target in edges:
            sources.append(source)
            targets.append(target)
            kinds.append(kind)
    reader.findings.add(
        "flow_unpaired",
        "ends of arrows without their other end, or without a slice, were left out",
        unpaired,
    )
    return Flows(
        np.array(sources, np.int32), np.array(targets, np.int32), np.array(kinds, np.int32)
    )


def _next_slices(slices: Slices, slice_thread: Int32, thread: Int32, times: Int64) -> Int32:
    """The next slice of each thread: of an end without ``bp: "e"`` that no slice is around."""
    order = np.lexsort((slices.start_ns, slice_thread))
    of_thread, start = slice_thread[order], slices.start_ns[order]
    found = np.full(len(times), NONE, np.int32)
    for row, (own, time) in enumerate(zip(thread.tolist(), times.tolist(), strict=True)):
        first, last = np.searchsorted(of_thread, [own, own + 1])
        position = first + np.searchsorted(start[first:last], time)
        if position < last:
            found[row] = order[position]
    return found


def _edges(rows: list[int], events: list[Any], at: Int32) -> tuple[list[tuple[int, int]], int]:
    """Edges of one flow id (rows in order of time), and how many of its ends stay unpaired.

    A viewer must not lose the arrow of an end stamped before its start (clock skew), so such an
    end takes the first start.
    """
    starts = [row for row in rows if events[row].ph == "s" and at[row] != NONE]
    edges: list[tuple[int, int]] = []
    source = starts[0] if starts else None
    used = set()
    unpaired = sum(events[row].ph == "s" and at[row] == NONE for row in rows)
    for row in rows:
        if events[row].ph == "s":
            source = row if at[row] != NONE else source
            continue
        if source is None or at[row] == NONE:
            unpaired += 1
            continue
        used.add(source)
        if at[source] != at[row]:
            edges.append((int(at[source]), int(at[row])))
        if events[row].ph == "t":
            source = row
    return edges, unpaired + len(set(starts) - used)
