"""One capture as a whole, and several put into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model.arguments import Arguments, Text
from neuron_tb.converters.model.clock import Alignment, Clock, ClockKind
from neuron_tb.converters.model.columns import NONE, Bools, Int32, StringTable, places
from neuron_tb.converters.model.executions import Executions, Links
from neuron_tb.converters.model.rows import Counters, Flows, Instants, MemoryEvents, Role, Slices
from neuron_tb.converters.model.steps import Steps
from neuron_tb.converters.model.tracks import Device, Process, Track


@dataclass
class Trace:
    """One capture, of one or many processes, on one clock.

    ``metadata`` holds, per process, the source's top-level keys (``distributedInfo``, …) as
    decoded JSON. ``alignments``: how its clocks were compared. ``filtered`` says which part of a
    capture it is, where it is not all of it. ``neuron`` tells whether anything in the capture is
    evidence of AWS Neuron.
    """

    name: str
    strings: list[str] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)
    slices: Slices = field(default_factory=Slices.empty)
    instants: Instants = field(default_factory=Instants.empty)
    counters: Counters = field(default_factory=Counters.empty)
    memory: MemoryEvents = field(default_factory=MemoryEvents.empty)
    flows: Flows = field(default_factory=Flows.empty)
    arguments: Arguments = field(default_factory=Arguments)
    clock: Clock = field(default_factory=Clock)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    sources: list[str] = field(default_factory=list)
    alignments: list[Alignment] = field(default_factory=list)
    step_annotation: str = "ProfilerStep#"
    filtered: str = ""
    _links: Links | None = field(default=None, init=False, repr=False, compare=False)

    def string(self, number: int) -> str:
        """The string with this number, "" for NONE."""
        return "" if number == NONE else self.strings[number]

    def args(self, row: int, of: Slices | Instants | None = None) -> dict[str, Any]:
        """The arguments of a slice (or of a row of ``of``), decoded; {} when there are none."""
        columns = self.slices if of is None else of
        return decode_arguments(self.raw_args(row, columns))

    def raw_args(self, row: int, of: Slices | Instants | None = None) -> bytes:
        """The arguments of a slice (or of a row of ``of``) as the JSON text of the source."""
        columns = self.slices if of is None else of
        return self.arguments.text(int(columns.args_start[row]), int(columns.args_length[row]))

    def track_column(self, attribute: str) -> Int32:
        """An integer attribute of every track (NONE where it is None), shape (tracks,)."""
        values = (getattr(track, attribute) for track in self.tracks)
        return np.array([NONE if v is None else v for v in values], np.int32)

    @cached_property
    def slice_process(self) -> Int32:
        """The process of every slice, shape (slices,)."""
        return self.track_column("process")[self.slices.track]

    @cached_property
    def slice_device(self) -> Int32:
        """The device of every slice, NONE on host rows, shape (slices,)."""
        return self.track_column("device")[self.slices.track]

    @property
    def links(self) -> Links:
        """How device work, runtime calls, operators and steps belong together.

        Found by ``neuron_tb.converters.links.link``; ValueError before that.
        """
        if self._links is None:
            raise ValueError(f"the trace {self.name!r} is not linked yet")
        return self._links

    @links.setter
    def links(self, links: Links) -> None:
        self._links = links

    @property
    def executions(self) -> Executions:
        """Device work, one row per execution, with the operator and call that caused it."""
        return self.links.executions

    @property
    def execution_of_slice(self) -> Int32:
        """The execution that each slice is a row of, NONE for all other slices."""
        return self.links.execution_of_slice

    @property
    def steps(self) -> Steps:
        """The capture's steps; one step called ``capture`` when the source marks none."""
        return self.links.steps

    def roles(self, *roles: Role) -> Bools:
        """Which slices have one of these roles, shape (slices,)."""
        return np.isin(self.slices.role, np.array(roles, np.uint8))

    def time_range(self) -> tuple[int, int]:
        """First and last nanosecond of anything in the capture; (0, 0) when it is empty."""
        starts = [self.slices.start_ns, self.instants.time_ns, self.counters.time_ns]
        ends = [self.slices.end_ns, self.instants.time_ns, self.counters.time_ns]
        starts.append(self.memory.time_ns)
        ends.append(self.memory.time_ns)
        if not any(map(len, starts)):
            return 0, 0
        return (
            int(min(s.min() for s in starts if len(s))),
            int(max(e.max() for e in ends if len(e))),
        )

    def without_empty_tracks(self) -> Trace:
        """The same rows; tracks, devices and processes that have none are gone."""
        tables = (self.slices, self.instants, self.counters, self.memory)
        used = sorted({int(t) for table in tables for t in np.unique(table.track)})
        tracks = [self.tracks[t] for t in used]
        processes = sorted({t.process for t in tracks})
        devices = sorted({t.device for t in tracks if t.device is not None})
        of_track, of_process = _renumbering(used), _renumbering(processes)
        of_device = _renumbering(devices)
        number = np.array([of_track.get(t, NONE) for t in range(len(self.tracks))], np.int32)
        memory_process = [of_process.get(p, NONE) for p in range(len(self.processes))]
        reduced = replace(
            self,
            processes=[self.processes[p] for p in processes],
            metadata=[self.metadata[p] for p in processes],
            devices=[
                replace(self.devices[d], process=of_process[self.devices[d].process])
                for d in devices
            ],
            tracks=[
                replace(
                    t,
                    process=of_process[t.process],
                    device=None if t.device is None else of_device[t.device],
                )
                for t in tracks
            ],
            slices=replace(self.slices, track=number[self.slices.track]),
            instants=replace(self.instants, track=number[self.instants.track]),
            counters=replace(self.counters, track=number[self.counters.track]),
            memory=replace(
                self.memory,
                track=number[self.memory.track],
                process=np.array(memory_process, np.int32)[self.memory.process],
            ),
        )
        if self._links is not None:
            of = (of_device.get(d, NONE) for d in range(len(self.devices)))
            places = np.array([*of, NONE], np.int32), np.array([*memory_process, NONE], np.int32)
            reduced.links = self._links.renumbered(*places)
        return reduced

    def take(self, slices: Bools, instants: Bools, counters: Bools, memory: Bools) -> Trace:
        """The same tables restricted to some rows, given by a mask of each kind.

        Links and steps that were found among all rows stay, as far as their own rows do.
        """
        place = places(slices)
        source, target = place[self.flows.source], place[self.flows.target]
        inside = (source != NONE) & (target != NONE)
        part = replace(
            self,
            slices=self.slices.take(slices),
            instants=self.instants.take(instants),
            counters=self.counters.take(counters),
            memory=self.memory.take(memory),
            flows=Flows(source[inside], target[inside], self.flows.kind[inside]),
        )
        if self._links is not None:
            part.links = self._links.among(slices)
        return part

    def only_process(self, process: int) -> Trace:
        """The same trace restricted to one process (positions of tables are kept)."""
        track_process = self.track_column("process")
        return self.take(
            self.slice_process == process,
            track_process[self.instants.track] == process,
            track_process[self.counters.track] == process,
            self.memory.process == process,
        )


def _renumbering(kept: Sequence[int]) -> dict[int, int]:
    return {old: new for new, old in enumerate(kept)}


def decode_arguments(raw: bytes) -> dict[str, Any]:
    """Arguments as a dictionary; arguments that are not an object stand under ``value``."""
    if not raw:
        return {}
    value = msgspec.json.decode(raw)
    return value if isinstance(value, dict) else {"value": value}


def merge(name: str, traces: Sequence[Trace]) -> Trace:
    """One trace with the rows of all, tables renumbered; process order is the traces' order.

    The clock is the common one; a mixture of epoch and relative clocks keeps the epoch's kind
    and is a finding.
    """
    if len(traces) == 1:
        return replace(traces[0], name=name)
    table = StringTable()
    merged = Trace(name, clock=_common_clock(traces))
    if len({t.clock.kind for t in traces}) > 1:
        merged.findings.add(
            "clocks_unrelated",
            "some inputs count time from the Unix epoch and others from an unknown origin; "
            "their rows are not aligned with each other",
        )
    parts: dict[str, list[Any]] = {
        k: [] for k in ("slices", "instants", "counters", "memory", "flows")
    }
    arguments: list[Text] = []
    offset = 0
    for trace in traces:
        strings = table.intern_all(trace.strings, len(trace.strings))
        strings = np.append(strings, np.int32(NONE))  # so that NONE maps to NONE
        process, device = len(merged.processes), len(merged.devices)
        track, row = np.int32(len(merged.tracks)), np.int32(sum(map(len, parts["slices"])))
        s, i = trace.slices, trace.instants
        parts["slices"].append(
            replace(
                s,
                name=strings[s.name],
                category=strings[s.category],
                track=s.track + track,
                args_start=s.args_start + offset,
            )
        )
        parts["instants"].append(
            replace(
                i,
                name=strings[i.name],
                category=strings[i.category],
                track=i.track + track,
                args_start=i.args_start + offset,
            )
        )
        parts["counters"].append(replace(trace.counters, track=trace.counters.track + track))
        parts["memory"].append(
            replace(
                trace.memory,
                process=trace.memory.process + np.int32(process),
                track=trace.memory.track + track,
                args_start=trace.memory.args_start + offset,
            )
        )
        f = trace.flows
        parts["flows"].append(Flows(f.source + row, f.target + row, strings[f.kind]))
        merged.processes += trace.processes
        merged.metadata += trace.metadata
        merged.devices += [replace(d, process=d.process + process) for d in trace.devices]
        merged.tracks += [
            replace(
                t,
                process=t.process + process,
                device=None if t.device is None else t.device + device,
            )
            for t in trace.tracks
        ]
        merged.findings.extend(trace.findings)
        merged.sources += trace.sources
        merged.alignments += trace.alignments
        arguments += trace.arguments.pieces
        offset += len(trace.arguments)
    merged.strings = table.strings
    merged.slices = Slices.concatenate(parts["slices"])
    merged.instants = Instants.concatenate(parts["instants"])
    merged.counters = Counters.concatenate(parts["counters"])
    merged.memory = MemoryEvents.concatenate(parts["memory"])
    merged.flows = Flows.concatenate(parts["flows"])
    merged.arguments = Arguments(arguments)
    return merged


def _common_clock(traces: Sequence[Trace]) -> Clock:
    kinds = {t.clock.kind for t in traces}
    return Clock(
        ClockKind.EPOCH if ClockKind.EPOCH in kinds else ClockKind.RELATIVE,
        base_ns=next((t.clock.base_ns for t in traces if t.clock.base_ns), 0),
        resolution_ns=max((t.clock.resolution_ns for t in traces), default=1),
    )
