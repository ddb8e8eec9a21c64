"""The arrows of a Perfetto trace, and the flow id of each.

Ids depend on what an arrow joins and on its process alone, so that files of ranks can be joined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import NONE, Bools, Int32, Int64, Trace
from neuron_tb.converters.writers.perfetto.tracks import Picture

UInt64 = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Flows:
    """Arrows: ``source`` and ``target`` slices, and a number for each arrow; shape (n,)."""

    source: Int32
    target: Int32
    id: UInt64

    def of_slices(self, count: int) -> tuple[UInt64, Int64]:
        """Flow ids grouped by slice, and where those of each slice begin, shape (count + 1,)."""
        ends = np.concatenate([self.source, self.target])
        order = np.argsort(ends, kind="stable")
        first = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(ends, minlength=count), out=first[1:])
        return np.concatenate([self.id, self.id])[order], first


def flows_of(trace: Trace, picture: Picture, shown: Bools) -> Flows:
    """Operator → launch → execution, and the source's own arrows that say something else.

    ``shown``: which slices are drawn at all.
    """
    execution = trace.execution_of_slice
    target = np.flatnonzero(execution != NONE).astype(np.int32)
    of = execution[target]
    launch, operator = trace.executions.launch[of], trace.executions.operator[of]
    launched = launch != NONE
    source = np.where(launched, launch, operator)
    # An operator around its own call needs no arrow: the picture shows it already.
    both = launched & (operator != NONE)
    both[both] = trace.slices.track[operator[both]] != trace.slices.track[launch[both]]
    flows = trace.flows
    linked = np.zeros(len(trace.slices), np.bool_)
    linked[target[source != NONE]] = True
    repeats = np.array([_is_launch_arrow(text) for text in trace.strings], np.bool_)
    new = ~(linked[flows.target] & repeats[flows.kind]) if len(flows) else np.empty(0, np.bool_)
    starts = np.concatenate([source, operator[both], flows.source[new]]).astype(np.int64)
    ends = np.concatenate([target, launch[both], flows.target[new]]).astype(np.int64)
    keep = (starts != NONE) & (ends != NONE) & (starts != ends)
    pairs = np.sort(starts[keep] << 32 | ends[keep])
    pairs = pairs[np.diff(pairs, prepend=NONE) != 0]
    pairs = pairs[shown[pairs >> 32] & shown[pairs & 0xFFFFFFFF]]
    sources, targets = (pairs >> 32).astype(np.int32), (pairs & 0xFFFFFFFF).astype(np.int32)
    return Flows(sources, targets, _flow_ids(trace, picture, sources, targets))


def _is_launch_arrow(kind: str) -> bool:
    return kind.startswith(("ac2g", "async_cpu_to_gpu", "async_gpu"))


def _flow_ids(trace: Trace, picture: Picture, source: Int32, target: Int32) -> UInt64:
    """64 bits for each arrow, from (host, rank, pid) and what it joins."""
    seeds = np.zeros(len(trace.processes), np.uint64)
    for rows in picture.processes:
        seeds[rows.process] = rows.seed
    ids = seeds[trace.slice_process[source]]
    start = trace.slices.start_ns.view(np.uint64)
    one, other = (picture.uuid_of_line[picture.line_of_slice[ends]] for ends in (source, target))
    for column in (one, start[source], other, start[target], source, target):
        ids = _mixed(ids ^ column.astype(np.uint64))
    return ids


def _mixed(values: UInt64) -> UInt64:
    """The finalizer of SplitMix64: every bit of the input changes half of the output."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: UInt64 = values ^ (values >> np.uint64(31))
    return mixed
