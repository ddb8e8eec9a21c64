"""The time that a file is about, and which of its events cannot be of it.

A single event with time 0, or with a wild one, would stretch every view over years; XProf refuses
a run of more than 106 days.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neuron_tb.converters.trace import Bools, Int64

LONGEST_NS = 30 * 86_400 * 10**9
"""No capture is longer, and no event."""

_EARLIEST_EPOCH_NS = 10**17  # 1973: nothing that counts from the Unix epoch is smaller
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
        return cls(middle, base_ns, middle > _EARLIEST_EPOCH_NS, few)

    def holds(self, times_ns: Int64) -> Bools:
        """Which of these times belong to it."""
        holds = np.ones(len(times_ns), np.bool_)
        if self.is_epoch and not self.base_ns:
            holds &= times_ns > _EARLIEST_EPOCH_NS
        distance = _distance(times_ns, self.middle_ns)
        if self.base_ns:  # a time that was written as 0
            holds &= (times_ns != self.base_ns) | (distance <= _DAY_NS)
        if self.without_far:
            holds &= distance <= LONGEST_NS
        return holds


def _distance(times_ns: Int64, middle_ns: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.abs(times_ns.astype(np.float64) - middle_ns)  # integers would overflow
