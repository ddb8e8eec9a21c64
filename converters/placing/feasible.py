"""Offsets between two clocks that pieces of evidence allow.

A piece of evidence (an execution that lies inside its window, a call inside its operator) allows
an interval of offsets. Where most intervals meet is the offset; a few that do not are wrong
evidence, and move nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import Float64, Int64

WRONG_SHARE = 0.05
"""So much of the evidence may be wrong."""

FLOOR_NS = 3_000
"""Programs note a time up to so much late; no bound is smaller."""

_DRIFTS_PPM = np.concatenate([[0.0], np.linspace(-120, 120, 49)])
"""Crystals differ by some tens of parts per million."""
_MOST = 4_000
_NOISE_NS = (0, *(250 << n for n in range(13)))
"""Up to a millisecond."""
_FINER = (1.0, 0.2)


@dataclass(frozen=True, slots=True)
class Fit:
    """What to add to one clock's times ``t`` (nanoseconds) so that they are the other's.

    ``offset_ns + drift_ppm / 1e6 * (t - zero_ns)``, wrong by ``bound_ns`` at most within the
    evidence. ``agree``: how many of ``anchors`` pieces of evidence allow it. ``excludes_zero``:
    whether they rule out that both clocks are one. ``noise_ns``: by how much intervals had to be
    widened so that nearly all meet.
    """

    offset_ns: int
    drift_ppm: float
    zero_ns: int
    bound_ns: int
    agree: int
    anchors: int
    excludes_zero: bool
    noise_ns: int = 0

    def at(self, time_ns: Int64) -> Int64:
        """What to add at these times."""
        if not self.drift_ppm:
            return np.full(len(time_ns), self.offset_ns, np.int64)
        drifted: Int64 = np.rint((time_ns - self.zero_ns) * (self.drift_ppm / 1e6)).astype(np.int64)
        return drifted + self.offset_ns


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where most of the intervals meet: the innermost place, and all that meets almost as many."""

    count: int
    low: float
    high: float
    widest_low: float
    widest_high: float

    @property
    def middle(self) -> float:
        """The middle of the innermost place."""
        return (self.low + self.high) / 2


def tolerated(anchors: int) -> int:
    """How many pieces of evidence may be wrong."""
    return int(anchors * WRONG_SHARE)


def meeting(low: Float64 | Int64, high: Float64 | Int64) -> Meeting:
    """Where most of the (at least one) closed intervals meet."""
    at = np.concatenate([low, high]).astype(np.float64)
    change = np.concatenate([np.ones(len(low), np.int64), -np.ones(len(high), np.int64)])
    order = np.lexsort((-change, at))  # an interval begins before another ends at the same place
    at, depth = at[order], np.cumsum(change[order])
    best = int(depth.max())
    first = int(np.argmax(depth))
    enough = np.flatnonzero(depth >= max(best - tolerated(len(low)), 1))
    return Meeting(best, at[first], at[first + 1], at[enough[0]], at[enough[-1] + 1])


def count_at(offset: float, low: NDArray[np.number], high: NDArray[np.number]) -> int:
    """How many intervals hold this offset."""
    return int(np.count_nonzero((low <= offset) & (offset <= high)))


def fit(time_ns: Int64, low: Int64, high: Int64) -> Fit | None:
    """The offset, and the drift if one is needed, that intervals at these times allow.

    ``low``, ``high``: nanoseconds, shape (n,) like ``time_ns``; n is at least 1. Where too few
    intervals meet, all are widened by as little as it takes: times are written with some noise.
    None where even a millisecond does not do it.
    """
    anchors = len(time_ns)
    if anchors > _MOST:
        rows = np.linspace(0, anchors - 1, _MOST).astype(np.intp)
        time_ns, low, high = time_ns[rows], low[rows], high[rows]
    near = int(low[len(low) // 2])  # doubles tell nanoseconds apart only near to it
    zero_ns = int(time_ns[len(time_ns) // 2])
    since = (time_ns - zero_ns) / 1e6
    low, high = low - near, high - near
    needed = len(low) - tolerated(len(low))
    for noise in _NOISE_NS:
        found = _over_drifts(since, low - noise, high + noise)
        if max(m.count for m in found.values()) >= needed:
            break
    else:
        return None
    # Without need, no drift is claimed.
    drift = 0.0 if found[0.0].count >= needed else _middle_of_best(found)
    offset = round(found[drift].middle)
    slack = max(2 * noise, FLOOR_NS)
    wide = _over_drifts(since, low - slack, high + slack)
    possible = {ppm: m for ppm, m in wide.items() if m.count >= needed}
    bound = max(
        abs(edge + (ppm - drift) * end - offset)
        for ppm, m in possible.items()
        for edge in (m.widest_low, m.widest_high)
        for end in (float(since.min()), float(since.max()))
    )
    at_zero = count_at(-near, low - slack, high + slack)
    return Fit(
        offset + near,
        drift,
        zero_ns,
        int(np.ceil(bound)),
        found[drift].count,
        len(low),
        at_zero < needed,
        noise,
    )


def _over_drifts(since_ms: Float64, low: Int64, high: Int64) -> dict[float, Meeting]:
    """Where intervals meet for every drift (ppm); only 0 where a drift would change nothing."""
    longest = float(np.abs(since_ms).max())
    drifts = _DRIFTS_PPM if longest * _DRIFTS_PPM.max() >= 1 else _DRIFTS_PPM[:1]
    found = {ppm: meeting(low - since_ms * ppm, high - since_ms * ppm) for ppm in drifts.tolist()}
    for step in _FINER if len(found) > 1 else ():
        top = max(found, key=lambda ppm: (found[ppm].count, found[ppm].high - found[ppm].low))
        for ppm in (top + step * np.arange(-5, 6)).tolist():
            found[ppm] = meeting(low - since_ms * ppm, high - since_ms * ppm)
    return found


def _middle_of_best(found: dict[float, Meeting]) -> float:
    most = max(m.count for m in found.values())
    best = [ppm for ppm, m in found.items() if m.count == most]
    middle = (min(best) + max(best)) / 2
    return min(best, key=lambda ppm: abs(ppm - middle))
