"""Captures side by side: did the change help?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neuron_tb.analysis.absence import why_no_device_time
from neuron_tb.analysis.summary import operator_parents
from neuron_tb.converters.load import Progress, load
from neuron_tb.converters.model import NONE, Executions, Role, Source, Trace
from neuron_tb.converters.model.lanes import union_length


@dataclass(frozen=True, slots=True)
class CaptureTotals:
    """One capture's totals, microseconds; None means not known.

    ``calls``: executions on the device. ``cpu_total_us``: time in operators. ``change_percent``:
    device time against the first capture. ``idle_us``: time between the first and the last
    execution of a core in which it ran nothing, summed over cores.
    """

    name: str
    calls: int | None
    cpu_total_us: float | None
    device_total_us: float | None
    device_source: str | None
    change_percent: float | None
    idle_us: float | None
    note: str | None

    def as_dict(self) -> dict[str, Any]:
        """The JSON form; field names are stable."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Totals of several captures; the first is what the others are compared with."""

    captures: list[CaptureTotals]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form that ``neuron-tb compare --format json`` prints."""
        return {"captures": [capture.as_dict() for capture in self.captures]}


def compare(*captures: Trace | str | Path, progress: Progress | None = None) -> Comparison:
    """Compare captures, given as traces or as paths to load. Raises NeuronTbError."""
    traces = [c if isinstance(c, Trace) else load(c, progress=progress) for c in captures]
    names = _distinct_names([trace.name for trace in traces])
    totals: list[CaptureTotals] = []
    for trace, name in zip(traces, names, strict=True):
        totals.append(_totals(trace, name, totals[0] if totals else None))
    return Comparison(totals)


def _totals(trace: Trace, name: str, base: CaptureTotals | None) -> CaptureTotals:
    executions = trace.executions
    work = executions.take(executions.counted)
    measured = work.take(work.source == Source.MEASURED)
    source = "measured" if len(measured) else "window" if len(work) else None
    shown = measured if source == "measured" else work
    busy = _busy_by_core(shown)
    device: float | None = None
    if source == "measured":
        device = int(measured.duration_ns.sum()) / 1000
    elif source == "window":
        device = sum(ns for ns, _ in busy) / 1000
    change = None
    if base and device is not None and base.device_total_us and base.device_source == source:
        change = 100 * (device - base.device_total_us) / base.device_total_us
    idle = sum(span - ns for ns, span in busy) / 1000 if source == "measured" else None
    return CaptureTotals(
        name,
        len(shown) if source else None,
        _operator_time_us(trace),
        device,
        source,
        change,
        idle,
        why_no_device_time(trace),
    )


def _busy_by_core(work: Executions) -> list[tuple[int, int]]:
    """(busy, first start to last end) of every core, nanoseconds."""
    found = []
    for device in np.unique(work.device):
        mine = work.take(work.device == device)
        span = int(mine.end_ns.max() - mine.start_ns.min())
        found.append((union_length(mine.start_ns, mine.end_ns), span))
    return found


def _operator_time_us(trace: Trace) -> float | None:
    operators = np.flatnonzero(trace.roles(Role.OPERATOR)).astype(np.int32)
    if not len(operators):
        return None
    top = operator_parents(trace, operators) == NONE
    return int(trace.slices.duration_ns[operators][top].sum()) / 1000


def _distinct_names(names: Sequence[str]) -> list[str]:
    return [
        name if names.count(name) == 1 else f"{name} ({position + 1})"
        for position, name in enumerate(names)
    ]
