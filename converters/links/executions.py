"""Device rows → executions: the physical cores of one logical core work together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import NONE, Executions, Int32, Int64, Role, Source, Trace


def executions_of(trace: Trace) -> tuple[Executions, Int32]:
    """All executions, not joined with anything yet, and for every slice the one it is a row of."""
    slices = trace.slices
    measured = _group_measured(trace, np.flatnonzero(trace.roles(Role.KERNEL, Role.TRANSFER)))
    windows = np.flatnonzero(trace.roles(Role.WINDOW))
    of_slice = np.full(len(slices), NONE, np.int32)
    first = np.concatenate([measured.first, windows]).astype(np.int32)
    start = np.concatenate([measured.start_ns, slices.start_ns[windows]])
    end = np.concatenate([measured.end_ns, slices.end_ns[windows]])
    order = np.lexsort((first, start))
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    of_slice[measured.rows] = place[measured.group]
    of_slice[windows] = place[len(measured.first) :]
    first, start, end = first[order], start[order], end[order]
    n = len(first)
    none = np.full(n, NONE, np.int32)
    is_window = slices.role[first] == Role.WINDOW
    executions = Executions(
        start_ns=start,
        duration_ns=end - start,
        device=trace.slice_device[first],
        source=np.where(is_window, Source.WINDOW, Source.MEASURED).astype(np.uint8),
        transfer=slices.role[first] == Role.TRANSFER,
        name=slices.name[first].copy(),
        slice=first,
        launch=none.copy(),
        operator=none.copy(),
        launch_link=np.zeros(n, np.uint8),
        operator_link=np.zeros(n, np.uint8),
        step=none.copy(),
        replaced_by=none.copy(),
    )
    return executions, of_slice


@dataclass(frozen=True, slots=True)
class _Groups:
    """Device rows in groups: ``group`` numbers ``rows``; one first row, start and end a group."""

    rows: NDArray[np.intp]
    group: NDArray[np.intp]
    first: Int32
    start_ns: Int64
    end_ns: Int64


def _group_measured(trace: Trace, rows: NDArray[np.intp]) -> _Groups:
    """Rows of the physical cores of one logical core that overlap under one id are one."""
    slices, device = trace.slices, trace.slice_device
    physical = trace.track_column("physical_core")[slices.track[rows]]
    key = np.where(slices.exec_id[rows] != NONE, slices.exec_id[rows], slices.sequence_id[rows])
    order = np.lexsort((slices.start_ns[rows], key, device[rows]))
    rows, physical, key = rows[order], physical[order], key[order]
    start, end = slices.start_ns[rows], slices.end_ns[rows]
    # Under one id the second core may start after the first has ended; without an id only
    # an overlap shows that two rows belong together.
    length = end - start
    reach = np.where(key[1:] != NONE, np.maximum(length[1:], length[:-1]), NONE)
    joins = np.zeros(len(rows), np.bool_)
    joins[1:] = (
        (device[rows][1:] == device[rows][:-1])
        & (key[1:] == key[:-1])
        & (physical[1:] != physical[:-1])
        & (physical[1:] != NONE)
        & (physical[:-1] != NONE)
        & (start[1:] - end[:-1] <= reach)
    )
    group = np.cumsum(~joins) - 1
    firsts = np.flatnonzero(~joins)
    if not len(rows):
        return _Groups(rows, group, rows.astype(np.int32), start, end)
    gap = np.zeros(len(rows), np.int64)
    gap[1:] = np.where(joins[1:], np.maximum(start[1:] - end[:-1], 0), 0)
    union_end = np.maximum.reduceat(end, firsts) - np.add.reduceat(gap, firsts)
    return _Groups(rows, group, rows[firsts].astype(np.int32), start[firsts], union_end)
