"""The time that a file is about, and which of its events cannot be of it.

A single event with time 0, or with a wild one, would stretch every view over years; XProf refuses
a run of more than 106 days.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neuron_tb.converters.model import NONE, Bools, Flows, Instants, Int64, Trace

LONGEST_NS = 30 * 86_400 * 10**9
"""No capture is longer, and no event."""

OUT_OF_RANGE = "events at time 0, or more than 30 days from all others, were left out"
ENDLESS = "events that claim to last more than 30 days are shown as instants"
"""What the findings ``time_out_of_range`` and ``duration_out_of_range`` say."""

EARLIEST_EPOCH_NS = 10**17
"""1973: nothing that counts from the Unix epoch is smaller."""

_DAY_NS = 86_400 * 10**9
_FEW = 0.1


@dataclass(frozen=True, slots=True)
class Era:
    """``middle_ns``: the median of the times; ``is_epoch``: whether they count from the epoch.

    ``base_ns``: the file's base time, 0 without one. ``without_far``: whether so few events are
    far from the others that they must be wrong.
    """

    middle_ns: int
    base_ns: int
    is_epoch: bool
    without_far: bool

    @classmethod
    def of(cls, times_ns: Int64, base_ns: int) -> Era:
        """The era of all times of a file."""
        if not len(times_ns):
            return cls(base_ns, base_ns, is_epoch=True, without_far=False)
        # One event at 0 among epoch times must not decide: the median does.
        half = len(times_ns) // 2
        middle = int(np.partition(times_ns, half)[half])
        far = np.count_nonzero(_distance(times_ns, middle) > LONGEST_NS)
        few = bool(far <= _FEW * len(times_ns))
        return cls(middle, base_ns, middle > EARLIEST_EPOCH_NS, few)

    def holds(self, times_ns: Int64) -> Bools:
        """Which of these times belong to it."""
        holds = np.ones(len(times_ns), np.bool_)
        if self.is_epoch and not self.base_ns:
            holds &= times_ns > EARLIEST_EPOCH_NS
        distance = _distance(times_ns, self.middle_ns)
        if self.base_ns:  # a time that was written as 0
            holds &= (times_ns != self.base_ns) | (distance <= _DAY_NS)
        if self.without_far:
            holds &= distance <= LONGEST_NS
        return holds


def _distance(times_ns: Int64, middle_ns: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.abs(times_ns.astype(np.float64) - middle_ns)  # integers would overflow


def within_one_era(trace: Trace) -> Trace:
    """The trace without rows of another era; what claims to last for months is an instant."""
    slices, instants, counters = trace.slices, trace.instants, trace.counters
    era = Era.of(np.concatenate([slices.start_ns, instants.time_ns]), trace.clock.base_ns)
    holds = era.holds(slices.start_ns)
    endless = holds & (slices.duration_ns > LONGEST_NS)
    kept = holds & ~endless
    at, samples = era.holds(instants.time_ns), era.holds(counters.time_ns)
    out = sum(int(np.count_nonzero(~mask)) for mask in (holds, at, samples))
    trace.findings.add("time_out_of_range", OUT_OF_RANGE, out)
    trace.findings.add("duration_out_of_range", ENDLESS, int(np.count_nonzero(endless)))
    if not out and not endless.any():
        return trace
    place = np.full(len(kept) + 1, NONE, np.int32)
    place[:-1][kept] = np.arange(np.count_nonzero(kept))
    flows = trace.flows
    source, target = place[flows.source], place[flows.target]
    joined = (source != NONE) & (target != NONE)
    points = slices.take(endless)
    columns = (points.start_ns, points.name, points.category, points.track)
    moved = Instants(*columns, points.args_start, points.args_length)
    return replace(
        trace,
        slices=slices.take(kept),
        instants=Instants.concatenate([instants.take(at), moved]),
        counters=counters.take(samples),
        flows=Flows(source[joined], target[joined], flows.kind[joined]),
    )
