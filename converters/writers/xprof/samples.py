"""Counters and memory in XProf's words: memory events per allocator, samples per plane."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import NONE, Int64
from neuron_tb.converters.writers.xprof.run import Labels, Run, group
from neuron_tb.converters.writers.xprof.xspace import Events, Plane, Stat

COUNTER_LINE = "_counters_"
MEMORY_LINE = "memory of "

_UNSAFE = re.compile(r'["\\\x00-\x1f]')
_SAFE = {'"': "'", "\\": "/"}
"""XProf writes the names of counters, and only these, into its JSON as they are."""

_CPU = 0
"""PyTorch's number of the CPU among device types."""


class Samples:
    """The memory events and counters of one file."""

    def __init__(
        self,
        run: Run,
        labels: Labels,
        processes: Sequence[int],
        devices: Sequence[int],
        findings: Findings,
    ) -> None:
        self._run, self._trace, self._labels = run, run.trace, labels
        self._processes, self._devices, self._findings = processes, devices, findings

    def add_memory(self, plane: Plane, line: int, process: int) -> int:
        """XProf's memory events, one line per allocator in order of time."""
        memory = self._trace.memory
        for label, device, rows in self._allocators(process):
            events = memory.take(rows)
            frees = events.bytes < 0
            kinds = [plane.event("MemoryAllocation"), plane.event("MemoryDeallocation")]
            capacity = self._capacity(device)
            step = self._run.steps.at(process, events.time_ns)
            stats = [
                Stat(
                    "allocator_name", np.full(len(rows), plane.text(label, label=True)), refers=True
                ),
                Stat("bytes_allocated", events.total_allocated),
                Stat("peak_bytes_in_use", np.maximum.accumulate(events.total_allocated)),
                Stat("allocation_bytes", np.abs(events.bytes)),
                Stat("requested_bytes", np.abs(events.bytes)),
                Stat("addr", events.address, events.address != NONE),
                group(step),
            ]
            if capacity is not None:
                free = np.maximum(capacity - events.total_allocated, 0)
                stats.append(Stat("bytes_available", free))
            table = Events(
                np.array(kinds, np.int64)[frees.astype(np.int64)],
                events.time_ns - self._run.zero_ns,
                np.zeros(len(rows), np.int64),
                stats,
            )
            plane.add_line(line, f"{MEMORY_LINE}{label}", table)
            line += 1
        return line

    def _allocators(self, process: int) -> Iterator[tuple[str, int | None, NDArray[np.intp]]]:
        """Label, device and memory events (with a total, in order of time) of each allocator."""
        memory, prefix = self._trace.memory, self._labels.prefix(process)
        mine = np.flatnonzero((memory.process == process) & (memory.total_allocated != NONE))
        mine = mine[np.argsort(memory.time_ns[mine], kind="stable")]
        kinds = np.stack([memory.device_type[mine], memory.device_id[mine]], axis=1)
        for kind, number in np.unique(kinds, axis=0).tolist():
            rows = mine[(kinds == [kind, number]).all(axis=1)]
            if kind == _CPU:
                yield f"{prefix}host memory", None, rows
                continue
            device = next(
                (
                    n
                    for n in self._devices
                    if self._trace.devices[n].process == process
                    and self._trace.devices[n].index == number
                    and not self._trace.devices[n].detail
                ),
                None,
            )
            name = f"{prefix}device {number}" if device is None else self._labels.device(device)
            yield f"{name} HBM" if self._is_neuron(device) else f"{name} memory", device, rows

    def add_counters(self, plane: Plane, line: int, device: int | None) -> None:
        """Samples of a device's counters and memory (of the host's, without a device)."""
        samples = list(self._samples(device))
        if not samples:
            return
        metadata, times, values = [], [], []
        for name, time, value in samples:
            finite = np.isfinite(value)
            self._findings.add(
                "counter_not_finite",
                "counter samples that are no finite number were left out",
                int(np.count_nonzero(~finite)),
            )
            shown = _UNSAFE.sub(lambda match: _SAFE.get(match[0], " "), name)
            self._findings.add(
                "counter_renamed",
                "counters have quotes, backslashes or control characters in their names, which "
                "XProf does not escape; they were replaced: Trace Viewer would show nothing",
                int(shown != name),
            )
            metadata.append(
                np.full(np.count_nonzero(finite), plane.event(shown, label=True), np.int64)
            )
            times.append(time[finite] - self._run.zero_ns)
            values.append(value[finite].astype(np.float64))
        time = np.concatenate(times)
        table = Events(
            np.concatenate(metadata),
            time,
            np.zeros(len(time), np.int64),
            [Stat("value", np.concatenate(values))],
        )
        plane.add_line(line, COUNTER_LINE, table.take(np.argsort(time, kind="stable")))

    def _samples(
        self, device: int | None
    ) -> Iterator[tuple[str, Int64, NDArray[np.float64] | Int64]]:
        trace, counters = self._trace, self._trace.counters
        for number in np.unique(counters.track).tolist():
            track = trace.tracks[number]
            if track.device == device and track.process in self._processes:
                rows = np.flatnonzero(counters.track == number)
                unit = f" ({track.unit})" if track.unit else ""
                prefix = self._labels.prefix(track.process) if device is None else ""
                yield (
                    f"{prefix}{track.name}{unit}",
                    counters.time_ns[rows],
                    counters.value[rows],
                )
        for process in self._processes:
            for label, of, rows in self._allocators(process):
                if of != device:
                    continue
                events = trace.memory.take(rows)
                if device is not None:
                    label = "HBM" if self._is_neuron(device) else "memory"
                yield f"{label} allocated (bytes)", events.time_ns, events.total_allocated
                known = (events.total_reserved != NONE) & (events.device_type != _CPU)
                if known.any():
                    reserved = events.total_reserved[known]
                    yield f"{label} reserved by PyTorch (bytes)", events.time_ns[known], reserved

    def _capacity(self, device: int | None) -> int | None:
        if device is None:
            return None
        peaks = self._run.peaks(device)
        known = self._trace.devices[device].memory_bytes
        return known if known or peaks is None else peaks.hbm_bytes

    def _is_neuron(self, device: int | None) -> bool:
        return device is not None and self._trace.devices[device].family == "neuron"
