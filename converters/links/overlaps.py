"""Measured device work that overlaps other work of its own row: lengths that cannot all be busy."""

from __future__ import annotations

import numpy as np

from neuron_tb.converters.model import Source, Trace
from neuron_tb.converters.model.lanes import union_length


def report_overlapping_work(trace: Trace) -> None:
    """Add a finding where the sum of device time is more than its rows were busy."""
    work = trace.executions
    work = work.take(work.counted & (work.source == Source.MEASURED))
    row = trace.slices.track[work.slice]
    order = np.lexsort((work.start_ns, row))
    row, start, end = row[order], work.start_ns[order], work.end_ns[order]
    if not len(row):
        return
    first = np.flatnonzero(np.diff(row, prepend=-1))
    count = excess = 0
    where = ""
    for begin, stop in zip(first, [*first[1:], len(row)], strict=True):
        reach = np.maximum.accumulate(end[begin:stop])
        late = np.flatnonzero(start[begin + 1 : stop] < reach[:-1])
        if not len(late):
            continue
        count += len(late)
        total = int((end[begin:stop] - start[begin:stop]).sum())
        excess += total - union_length(start[begin:stop], end[begin:stop])
        guilty = begin + int(np.argmax(end[begin:stop][: late[0] + 1]))
        name = trace.string(int(trace.slices.name[work.slice[order[guilty]]]))
        where = where or f"{name[:80]} on {trace.tracks[row[begin]].name}"
    trace.findings.add(
        "device_work_overlaps",
        "measured device work begins before other work of its row has ended: the sum of device "
        f"time is {excess / 1000:,.3f} us more than these rows were busy",
        count,
        where or None,
    )
