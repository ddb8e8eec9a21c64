"""How far the clocks of hosts are from each other: collectives end everywhere at once.

The same collective of several ranks (operation, group, and its how-manieth occurrence) ends on all
of them within microseconds. Ranks of one host share its clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.model import Trace
from neuron_tb.converters.placing.feasible import Fit, fit

BY_COLLECTIVES = "ends of the same collectives"

LEAST_ANCHORS = 3
"""Fewer collectives could have ended apart by chance."""

_NAME = "cc_running"
_TOGETHER_NS = 5_000
"""Ends of one collective differ by up to so much in true time."""
_MOST = 50_000

Key = tuple[str, str, int]
"""Operation, group, occurrence."""


@dataclass(frozen=True, slots=True)
class Ends:
    """When the collectives of a process ended, on its host's clock (nanoseconds)."""

    host: str
    rank: int | None
    ends_ns: Mapping[Key, int]


@dataclass(frozen=True, slots=True)
class HostClock:
    """What to add to a host's times; ``fit`` is None where its collectives contradict that."""

    host: str
    against: str
    anchors: int
    fit: Fit | None


def collective_ends(trace: Trace) -> list[Ends]:
    """The ends of every process' collectives; processes without one are left out."""
    if _NAME not in trace.strings:
        return []
    s = trace.slices
    rows = np.flatnonzero(s.name == trace.strings.index(_NAME))[:_MOST]
    rows = rows[np.argsort(s.start_ns[rows], kind="stable")]
    seen: Counter[tuple[int, int, str, str]] = Counter()
    found: dict[int, dict[Key, int]] = defaultdict(dict)
    texts = trace.arguments.texts(s.args_start[rows], s.args_length[rows])
    columns = (s.track[rows], trace.slice_process[rows], s.end_ns[rows])
    for text, track, process, end in zip(texts, *(c.tolist() for c in columns), strict=True):
        identity = _identity(text)
        if identity is None or trace.processes[process].clocks_apart:
            continue
        operation, group = identity
        occurrence = seen[process, track, operation, group]
        seen[process, track, operation, group] += 1
        # Rows of several cores are one collective, which ends with the last of them.
        key = (operation, group, occurrence)
        found[process][key] = max(end, found[process].get(key, end))
    named = [(trace.processes[process], ends) for process, ends in found.items()]
    return [Ends(process.host or f"pid {process.pid}", process.rank, e) for process, e in named]


def _identity(text: bytes) -> tuple[str, str] | None:
    """Operation and group that arguments name, wherever they stand; None without an operation."""
    try:
        values = msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, RecursionError):
        return None
    named = dict(_members(values, 3))
    if named.get("op_id") is None:
        return None
    group = next((named[k] for k in ("replica_group", "replica_groups", "gid") if k in named), "")
    return str(named["op_id"]), str(group)


def _members(value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Members of nested objects, inner ones first, so that outer ones win."""
    if isinstance(value, dict) and depth:
        for inner in value.values():
            yield from _members(inner, depth - 1)
        yield from value.items()


def host_clocks(processes: Sequence[Ends]) -> list[HostClock]:
    """Every host's clock but the first one's (that of the lowest rank) against that one's."""
    by_host: dict[str, list[Ends]] = defaultdict(list)
    for ends in sorted(processes, key=lambda e: (e.rank is None, e.rank or 0, e.host)):
        by_host[ends.host].append(ends)
    if len(by_host) < 2:
        return []
    (against, first), *others = ((host, _of_host(ends)) for host, ends in by_host.items())
    return [_compared(host, ends, against, first) for host, ends in others]


def _of_host(processes: Sequence[Ends]) -> dict[Key, int]:
    ends: dict[Key, list[int]] = defaultdict(list)
    for process in processes:
        for key, end in process.ends_ns.items():
            ends[key].append(end)
    return {key: int(median(found)) for key, found in ends.items()}


def _compared(host: str, ends: dict[Key, int], against: str, first: dict[Key, int]) -> HostClock:
    # Where one host lacks an occurrence, nobody knows which: those of that operation say nothing.
    own, other = (Counter(key[:2] for key in found) for found in (ends, first))
    keys = sorted(k for k in ends.keys() & first.keys() if own[k[:2]] == other[k[:2]])
    keys.sort(key=ends.__getitem__)
    if len(keys) < LEAST_ANCHORS:
        return HostClock(host, against, len(keys), None)
    time = np.array([ends[key] for key in keys], np.int64)
    late = np.array([first[key] - ends[key] for key in keys], np.int64)
    return HostClock(host, against, len(keys), fit(time, late - _TOGETHER_NS, late + _TOGETHER_NS))
