"""How far the clock of a system profile is from that of the framework's trace of a process.

Evidence, strongest first:

* ids that both sides have (the runtime's sequence numbers): a call lies inside its operator where
  both are of one thread, and not before it where they are not; an execution lies inside the window
  that the host saw of it.
* Without ids, calls and operators of one thread: every call lies inside some operator. That gives
  an offset only where a single one puts nearly all calls inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.links.launches import EXECUTE_CALLS
from neuron_tb.converters.model import NONE, Bools, Int32, Int64, Role, Trace
from neuron_tb.converters.model.lanes import lay_out
from neuron_tb.converters.placing.feasible import Fit, fit, meeting, tolerated

BY_IDS = "sequence ids of calls and executions"
BY_CALLS = "calls inside operators of their thread"

_FAR = 1 << 62
"""Stands for no bound; sums of two do not overflow."""
_SEARCHED_NS = 60 * 10**9
_SAMPLE = 64
_NOISE_NS = (0, 2_000, 8_000)
_MOST_OPERATORS = 200_000


@dataclass(frozen=True, slots=True)
class Found:
    """An offset that evidence gives, or only that the clocks disagree (``fit`` is None).

    ``method``: what the evidence is.
    """

    fit: Fit | None
    method: str
    anchors: int


@dataclass(frozen=True, slots=True)
class _Side:
    """The rows of one process: of its framework's trace, or of its system profile."""

    trace: Trace
    process: int

    def rows(self, *roles: Role) -> NDArray[np.intp]:
        trace = self.trace
        return np.flatnonzero(trace.roles(*roles) & (trace.slice_process == self.process))


def find_profile_offset(
    framework: Trace, process: int, profile: Trace, own: int, by_calls: bool = True
) -> Found | None:
    """What to add to the profile's times; None where there is no evidence at all.

    ``process``, ``own``: the same process in both. ``by_calls``: whether evidence without ids
    counts.
    """
    host, device = _Side(framework, process), _Side(profile, own)
    calls = _execute_calls(device)
    time, low, high = _by_ids(host, device, calls)
    if len(time):
        return Found(fit(time, low, high), BY_IDS, len(time))
    return _by_calls(host, device, calls) if by_calls else None


def _execute_calls(profile: _Side) -> NDArray[np.intp]:
    trace = profile.trace
    names = [n for n, text in enumerate(trace.strings) if text in EXECUTE_CALLS]
    rows = profile.rows(Role.RUNTIME)
    return rows[np.isin(trace.slices.name[rows], names)]


# -- by ids -----------------------------------------------------------------------------------


def _by_ids(host: _Side, device: _Side, calls: NDArray[np.intp]) -> tuple[Int64, Int64, Int64]:
    """Time, least and largest offset of every piece of evidence."""
    f, p = host.trace.slices, device.trace.slices
    named = host.rows(Role.RUNTIME, Role.WINDOW)
    windows = named[f.role[named] == Role.WINDOW]
    parts = [_executions_in_windows(host, device, windows)]
    known, operator = _unique(f.external_id, host.rows(Role.OPERATOR))
    seen, row = _unique(f.sequence_id, named)
    asked, call = _unique(p.sequence_id, calls)
    both, a, b = np.intersect1d(seen, asked, return_indices=True)
    if len(both):
        external = f.external_id[row[a]]
        place = np.minimum(np.searchsorted(known, external), max(len(known) - 1, 0))
        linked = (external != NONE) & (known[place] == external if len(known) else False)
        around, inside = operator[place[linked]], call[b][linked]
        same = _threads(host.trace, around) == _threads(device.trace, inside)
        low = f.start_ns[around] - p.start_ns[inside]
        high = np.where(same, f.end_ns[around] - p.end_ns[inside], _FAR)
        parts.append((p.start_ns[inside], low, high))
    time, low, high = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    possible = low <= high
    return time[possible], low[possible], high[possible]


def _executions_in_windows(
    host: _Side, device: _Side, windows: NDArray[np.intp]
) -> tuple[Int64, Int64, Int64]:
    f, p = host.trace.slices, device.trace.slices
    seen, window = _unique(f.sequence_id, windows)
    work = device.rows(Role.KERNEL)
    sequence = _sequences(device, work)
    # An execution has a row per physical core: each of them lies inside the window.
    place = np.minimum(np.searchsorted(seen, sequence), max(len(seen) - 1, 0))
    linked = (sequence != NONE) & (seen[place] == sequence if len(seen) else False)
    work, around = work[linked], window[place[linked]]
    return (
        p.start_ns[work],
        f.start_ns[around] - p.start_ns[work],
        f.end_ns[around] - p.end_ns[work],
    )


def _sequences(device: _Side, work: NDArray[np.intp]) -> Int64:
    """The sequence number of each execution: its own, or that of a call with its number."""
    trace, s = device.trace, device.trace.slices
    calls = device.rows(Role.RUNTIME)
    calls = calls[(s.exec_id[calls] != NONE) & (s.sequence_id[calls] != NONE)]
    core_of_call = trace.track_column("core")[s.track[calls]]
    index = np.array([d.index for d in trace.devices] + [NONE], np.int64)
    core_of_work = index[trace.slice_device[work]]
    own: Int64 = s.sequence_id[work].copy()
    for core in np.unique(core_of_work):
        mine = calls[(core_of_call == core) | (core_of_call == NONE)]
        numbers, row = _unique(s.exec_id, mine, s.sequence_id)
        here = (core_of_work == core) & (own == NONE)
        place = np.minimum(np.searchsorted(numbers, s.exec_id[work]), max(len(numbers) - 1, 0))
        if len(numbers):
            here &= numbers[place] == s.exec_id[work]
            own[here] = s.sequence_id[row[place]][here]
    return own


def _unique(
    ids: Int64, rows: NDArray[np.intp], alike: Int64 | None = None
) -> tuple[Int64, NDArray[np.intp]]:
    """Ids that a single row has, ascending, and that row; an id that repeats proves nothing.

    ``alike``: rows that are equal in this column count as one.
    """
    rows = rows[ids[rows] != NONE]
    order = np.argsort(ids[rows], kind="stable")
    rows = rows[order]
    found = ids[rows]
    first = np.diff(found, prepend=NONE) != 0
    group = np.cumsum(first) - 1
    rest = ~first
    if alike is not None and len(rows):
        leader = rows[np.flatnonzero(first)[group]]
        rest &= alike[rows] != alike[leader]
    repeated = np.zeros(int(first.sum()), np.bool_)
    repeated[group[rest]] = True
    leaders = np.flatnonzero(first)[~repeated]
    return found[leaders], rows[leaders]


# -- by calls inside operators ----------------------------------------------------------------


def _by_calls(host: _Side, device: _Side, calls: NDArray[np.intp]) -> Found | None:
    f, p = host.trace.slices, device.trace.slices
    operators = _outermost(host)
    threads = np.intersect1d(_threads(host.trace, operators), _threads(device.trace, calls))
    calls = calls[np.isin(_threads(device.trace, calls), threads)]
    calls = calls[np.argsort(p.start_ns[calls], kind="stable")]
    if not len(calls) or not len(operators):
        return None
    thread_of_call = _threads(device.trace, calls)
    inside = _Inside(
        f.start_ns[operators],
        f.end_ns[operators],
        _threads(host.trace, operators),
        p.start_ns[calls],
        p.end_ns[calls],
        thread_of_call,
    )
    enough = len(calls) - tolerated(len(calls))
    for noise in _NOISE_NS:
        # That the clocks agree is tried first: it is likely, and costs nothing.
        for find in (lambda: 0, partial(inside.search, noise)):
            offset = find()
            if offset is None:
                break
            held, low, high = inside.intervals(offset, noise)
            if np.count_nonzero(held) >= enough:
                start = p.start_ns[calls][held]
                return Found(fit(start, low[held], high[held]), BY_CALLS, len(calls))
    return Found(None, BY_CALLS, len(calls))


def _outermost(host: _Side) -> NDArray[np.intp]:
    """Operators that lie inside no other, of every thread."""
    trace, rows = host.trace, host.rows(Role.OPERATOR)
    s = trace.slices
    layout = lay_out(s.track[rows], s.start_ns[rows], s.duration_ns[rows])
    outermost: NDArray[np.intp] = rows[layout.depth == 0]
    return outermost


@dataclass(frozen=True, slots=True)
class _Inside:
    """Operators that do not overlap within their thread, and calls that should lie in them."""

    start_ns: Int64
    end_ns: Int64
    thread: Int32
    call_start_ns: Int64
    call_end_ns: Int64
    call_thread: Int32

    @property
    def middle_ns(self) -> Int64:
        """Of every call: noise moves an end out of its operator, and hardly ever the middle."""
        middle: Int64 = (self.call_start_ns + self.call_end_ns) // 2
        return middle

    def intervals(self, offset: int, noise: int) -> tuple[Bools, Int64, Int64]:
        """For calls moved by ``offset``: which lie in an operator, and the offsets that allows.

        A call lies in an operator if its middle does, or is not farther from it than ``noise``.
        """
        n = len(self.call_start_ns)
        held = np.zeros(n, np.bool_)
        low, high = np.zeros(n, np.int64), np.zeros(n, np.int64)
        for thread in np.unique(self.call_thread).tolist():
            own = np.flatnonzero(self.thread == thread)
            own = own[np.argsort(self.start_ns[own], kind="stable")]
            mine = np.flatnonzero(self.call_thread == thread)
            if not len(own):
                continue
            moved = self.middle_ns[mine] + offset
            after = np.searchsorted(self.start_ns[own], moved, side="right")
            before, after = own[np.maximum(after - 1, 0)], own[np.minimum(after, len(own) - 1)]
            nearer = self._distance(after, moved) < self._distance(before, moved)
            around = np.where(nearer, after, before)
            low[mine] = self.start_ns[around] - self.call_start_ns[mine]
            high[mine] = self.end_ns[around] - self.call_end_ns[mine]
            held[mine] = self._distance(around, moved) <= noise
        return held & (low <= high), low, high

    def _distance(self, operators: NDArray[np.intp], moved: Int64) -> Int64:
        """How far a time lies outside an operator, 0 inside."""
        outside = np.maximum(self.start_ns[operators] - moved, moved - self.end_ns[operators])
        distance: Int64 = np.maximum(outside, 0)
        return distance

    def search(self, noise: int) -> int | None:
        """The only offset that puts nearly all of some calls into operators, or None."""
        if len(self.start_ns) > _MOST_OPERATORS:
            return None
        rows = np.linspace(0, len(self.call_start_ns) - 1, _SAMPLE).round().astype(np.intp)
        chosen = np.unique(rows)
        lows, highs = [], []
        for row in chosen.tolist():
            own = self.thread == self.call_thread[row]
            low, high = (ends[own] - self.middle_ns[row] for ends in (self.start_ns, self.end_ns))
            near = np.abs(low) <= _SEARCHED_NS
            lows.append(low[near] - noise)
            highs.append(high[near] + noise)
        low, high = np.concatenate(lows), np.concatenate(highs)
        if not len(low):
            return None
        best = meeting(low, high)
        if best.count < len(chosen) - tolerated(len(chosen)):
            return None
        # The next best place must be clearly worse. Near the best, calls stay in their operators.
        width = float(np.median(high - low))
        far = (high < best.low - width) | (low > best.high + width)
        second = meeting(low[far], high[far]).count if far.any() else 0
        return round(best.middle) if second <= best.count - max(1, len(chosen) // 10) else None


def _threads(trace: Trace, rows: NDArray[np.intp]) -> Int32:
    """A number for the thread of every row; -1 for one that has none."""
    tids = [t.tid if isinstance(t.tid, int) else NONE for t in trace.tracks]
    limited = [tid if -(2**31) <= tid < 2**31 else NONE for tid in tids]
    threads: Int32 = np.array([*limited, NONE], np.int32)[trace.slices.track[rows]]
    return threads
