"""XProf's run directory: ``OUT/plugins/profile/RUN/HOST.xplane.pb``, one file per host.

Each logical core is a ``/device:TPU:k`` plane, because XProf fills its tables for no other name
that does not claim a vendor: lines ``Steps``, ``XLA Modules`` and ``XLA Ops``, the last a flat
sequence of operators. What that sequence cannot hold (overlapping work, the physical cores
behind a logical one, parts of an execution) stands in a ``/device:CUSTOM:`` plane, everything
of the host in ``/host:CPU``. Times count from the earliest event of the whole trace, since
XProf keeps picoseconds in 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Finding, Findings
from neuron_tb.converters.hardware import SOURCE, Chip, Peaks, chip_of, peaks_per_logical_core
from neuron_tb.converters.lanes import OVERLAPPING, ROUNDED, lay_out
from neuron_tb.converters.links import LinkKind, Source
from neuron_tb.converters.output import (
    refuse_overwrite,
    replacing_directory,
    replacing_file,
    safe_name,
)
from neuron_tb.converters.trace import NONE, ClockKind, Device, Int32, Int64, Role, Trace, TrackKind
from neuron_tb.converters.writers import Destination, Written
from neuron_tb.converters.writers import xprof_plan as plans
from neuron_tb.converters.writers.xspace import PICOSECONDS, Events, Plane, Space, Stat, Text

TARGET = "xprof"

FILE_ENDING = ".xplane.pb"

ACCOUNT_PLANE = "Task Environment"
"""XProf's plane for facts about the run; what the file shows is counted in its stats."""

_LABEL_ENDING = " (shown in XProf's TPU views)"
_LARGEST_RANGE_NS = (2**63 - 1) // PICOSECONDS
_LARGEST_FILE = 2**31 - 1
"""Protobuf refuses longer messages."""

_DEVICES_PER_FILE = 150
"""XProf numbers its rows so that 199 planes of one file stay apart."""

_STEPS, _MODULES, _OPS, _COUNTERS = 1, 2, 3, 50
_LAST_LINE = 1_000_000
_COUNTER_LINE = "_counters_"

_CPU = 0
"""PyTorch's number of the CPU among device types."""

_TIME_SOURCE = {
    Source.MEASURED: "measured on the device",
    Source.WINDOW: "window: enqueue to completion as the host saw it, not busy time",
}


def write(trace: Trace, destination: Destination) -> list[Written]:
    """Write one file per host into one RUN directory, replacing it with everything XProf cached.

    Raises NeuronTbError when the directory exists and may not be replaced, or when the
    instance type is unknown.
    """
    folder = destination.out / "plugins" / "profile" / destination.run
    chip = chip_of(destination.instance_type) if destination.instance_type else None
    skipped = _reason_to_skip(trace)
    if skipped is not None:
        return [skipped]
    refuse_overwrite(folder, destination.force)
    run = _Run.of(trace, chip)
    files = [_HostFile(run, name, processes) for name, processes in _files(trace).items()]
    with replacing_directory(folder, destination.force) as unfinished:
        for file in reversed(files):
            # The overview joins all hosts' warnings: the first file, written last, has them all.
            file.write(unfinished / f"{file.name}{FILE_ENDING}", with_warnings=file is files[0])
    written = [Written(TARGET, folder / f"{f.name}{FILE_ENDING}", f.slices) for f in files]
    written[0].findings.extend(run.findings)
    return written


def _reason_to_skip(trace: Trace) -> Written | None:
    if not (len(trace.slices) or len(trace.instants) or len(trace.counters) or len(trace.memory)):
        return Written(TARGET, None, skipped="There is nothing that XProf could show.")
    first, last = trace.time_range()
    if last - first <= _LARGEST_RANGE_NS:
        return None
    days = (last - first) // 86_400_000_000_000
    findings = Findings()
    sentence = (
        f"The capture spans {days} days, and XProf's 64-bit picoseconds end after 106; some "
        "events probably carry a wrong time."
    )
    findings.add("time_range_too_long", sentence)
    return Written(TARGET, None, skipped=sentence, findings=findings)


def _files(trace: Trace) -> dict[str, list[int]]:
    """Processes with anything to show by file name; a host with very many devices gets several."""
    tracks = trace.track_column("process")
    used = set(np.unique(trace.slice_process).tolist()) | set(
        np.unique(trace.memory.process).tolist()
    )
    for rows in (trace.instants, trace.counters):
        used |= set(np.unique(tracks[rows.track]).tolist())
    devices = [sum(d.process == p for d in trace.devices) for p in range(len(trace.processes))]
    ranked = sorted(
        used, key=lambda p: (trace.processes[p].rank is None, trace.processes[p].rank, p)
    )
    hosts: dict[str, list[list[int]]] = {}
    for process in ranked:
        parts = hosts.setdefault(trace.processes[process].host or "localhost", [[]])
        if parts[-1] and sum(devices[p] for p in [*parts[-1], process]) > _DEVICES_PER_FILE:
            parts.append([])
        parts[-1].append(process)
    files: dict[str, list[int]] = {}
    for host, parts in sorted(hosts.items()):
        for part in parts:
            name = base = safe_name(host, "localhost")
            while name in files:
                number = int(name.rpartition(".")[2]) + 1 if name != base else 2
                name = f"{base}.{number}"
            files[name] = part
    return files


@dataclass
class _Run:
    """What all files of a run share."""

    trace: Trace
    chip: Chip | None
    zero_ns: int
    findings: Findings
    steps: plans.Steps
    placement: plans.Placement
    operators: plans.Operators
    arrows: plans.Arrows
    shapes: _Shapes
    step_of_slice: Int64
    beside: NDArray[np.bool_]
    """Device slices that are drawn in the CUSTOM plane."""
    on_host: NDArray[np.bool_]
    """Slices that are drawn in the host's plane."""
    utf8: bool
    run_ids: int = 0

    @classmethod
    def of(cls, trace: Trace, chip: Chip | None) -> _Run:
        findings = Findings()
        steps = plans.steps_of(trace, range(len(trace.processes)))
        placement = plans.place(trace, steps, findings)
        plans.report_missing_steps(placement, steps, findings)
        arrows = plans.arrows_of(trace, placement.row, findings)
        counted = trace.executions.take(placement.row)
        beside, on_host = _where_drawn(trace)
        return cls(
            trace,
            chip,
            trace.time_range()[0],
            findings,
            steps,
            placement,
            plans.Operators(trace, counted),
            arrows,
            _Shapes.of(trace, counted.operator),
            _step_of_slice(trace),
            beside,
            on_host,
            _is_utf8(trace.arguments),
        )

    def warnings(self) -> list[str]:
        """Sentences for the overview page: the capture's findings, then this format's."""
        sentences = [_sentence(finding) for finding in self.trace.findings]
        if self.chip and any(d.family == "neuron" for d in self.trace.devices):
            sentences.append(f"peak figures of {self.chip.name} are published ones ({SOURCE})")
        if self.steps.label and not self.trace.findings.of_kind("no_steps"):
            sentences.append("no step is marked; the whole capture is one step called capture")
        return sentences + [_sentence(finding) for finding in self.findings]

    def text(self, starts: Int64, lengths: Int32) -> Text:
        """The arguments of rows, as the one string stat ``arguments`` (the source's JSON)."""
        if self.utf8:
            return Text("arguments", self.trace.arguments, starts, lengths.astype(np.int64))
        texts = [
            self.trace.arguments[start : start + length].decode("utf-8", "replace").encode()
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        ]
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        return Text("arguments", b"".join(texts), np.cumsum(sizes) - sizes, sizes)

    def peaks(self, device: int) -> Peaks | None:
        """Published peaks of a NeuronCore, when the instance type is known."""
        if self.chip is None or self.trace.devices[device].family != "neuron":
            return None
        tracks = self.trace.tracks
        physical = {t.physical_core for t in tracks if t.device == device} - {None}
        return peaks_per_logical_core(self.chip, len(physical) or None)


@dataclass(slots=True)
class _Rows:
    """Slices and instants to be drawn on tracks; ``slice`` is NONE for an instant."""

    start_ns: Int64
    duration_ns: Int64
    name: Int32
    category: Int32
    track: Int32
    args_start: Int64
    args_length: Int32
    role: NDArray[np.uint8]
    slice: Int64

    @classmethod
    def of(cls, trace: Trace, slices: NDArray[np.intp], instants: NDArray[np.intp]) -> _Rows:
        s, i = trace.slices, trace.instants

        def both(attribute: str) -> NDArray[np.int64]:
            return np.concatenate([getattr(s, attribute)[slices], getattr(i, attribute)[instants]])

        return cls(
            np.concatenate([s.start_ns[slices], i.time_ns[instants]]),
            np.concatenate([s.duration_ns[slices], np.zeros(len(instants), np.int64)]),
            both("name").astype(np.int32),
            both("category").astype(np.int32),
            both("track").astype(np.int32),
            both("args_start"),
            both("args_length").astype(np.int32),
            np.concatenate([s.role[slices], np.full(len(instants), Role.OTHER, np.uint8)]),
            np.concatenate([slices, np.full(len(instants), NONE)]).astype(np.int64),
        )


class _HostFile:
    """One host's file: its processes, and the planes made of them."""

    def __init__(self, run: _Run, name: str, processes: Sequence[int]) -> None:
        self.run, self.trace = run, run.trace
        self.name, self.processes = name, processes
        self.with_arguments = True
        self.findings = Findings()
        self.devices = [
            number
            for process in processes
            for number, _ in sorted(
                ((n, d) for n, d in enumerate(run.trace.devices) if d.process == process),
                key=lambda item: item[1].index,
            )
        ]
        self.slices = self.events = self.operators = self.operator_ns = 0

    def write(self, path: Path, with_warnings: bool) -> None:
        """Write the file; arguments stay out when it would be longer than protobuf allows."""
        space = self.space()
        parts = list(space.parts())
        if sum(map(len, parts)) > _LARGEST_FILE:
            self.run.findings.add(
                "arguments_left_out",
                "files would be longer than the 2 GiB that XProf can read; arguments were left out",
                where=path.name,
            )
            self.with_arguments = False
            space = self.space()
            parts = list(space.parts())
        if sum(map(len, parts)) > _LARGEST_FILE:
            raise NeuronTbError(
                f"{path.name} would be longer than the 2 GiB that XProf can read; convert a "
                "shorter capture, or fewer processes at once."
            )
        self.run.findings.extend(self.findings)
        if with_warnings:
            space.warnings += self.run.warnings()
        with replacing_file(path) as file:
            file.writelines(parts)
            file.writelines(space.tail())

    def space(self) -> Space:
        """The whole file, without the run's warnings."""
        self.findings = Findings()
        self.slices = self.events = self.operators = self.operator_ns = 0
        host = Plane("/host:CPU", 0)
        planes: list[Plane] = []
        for number, device in enumerate(self.devices):
            core = Plane(f"/device:TPU:{number}", number)
            custom = Plane(f"/device:CUSTOM:{self._device_label(device)}", number)
            self._fill_core(core, device, number)
            self._fill_custom(custom, device)
            self._add_counters(core if core else custom, _COUNTERS if core else _LAST_LINE, device)
            planes += [plane for plane in (core, custom) if plane]
        self._fill_host(host)
        planes += [host, self._account()]
        return Space(self.name, planes)

    # -- a core -----------------------------------------------------------------------------

    def _fill_core(self, plane: Plane, device: int, number: int) -> None:
        run, placement = self.run, self.run.placement
        rows = placement.of_device(device, fits=True)
        if not len(rows):
            return
        plane.set("device_type_string", _type_label(self.trace.devices[device], run.chip))
        plane.set("device_id", number)
        peaks = run.peaks(device)
        if peaks is not None:
            plane.set("peak_teraflops_per_second", peaks.bf16_teraflops)
            plane.set("peak_hbm_bw_gigabytes_per_second", peaks.hbm_gigabytes_per_second)
        self._draw(plane, _STEPS, "Steps", self._steps(plane, device))
        self._draw(plane, _MODULES, "XLA Modules", self._modules(plane, rows))
        label = f"{self._device_label(device)} (XLA Ops)"
        self._draw(plane, _OPS, "XLA Ops", self._operators(plane, rows), label)
        self.operators += len(rows)
        self.operator_ns += int((placement.end_ns[rows] - placement.start_ns[rows]).sum())

    def _steps(self, plane: Plane, device: int) -> Events:
        placement = self.run.placement
        work = placement.of_device(device)
        steps = plans.device_steps(
            self.run.steps,
            self.trace.devices[device].process,
            placement.step[work],
            placement.end_ns[work],
        )
        metadata = [plane.event(steps.label or str(number)) for number in steps.number.tolist()]
        return Events(
            np.array(metadata, np.int64),
            steps.start_ns - self.run.zero_ns,
            steps.end_ns - steps.start_ns,
            [Stat("group_id", steps.number)],
        )

    def _modules(self, plane: Plane, rows: NDArray[np.intp]) -> Events:
        """One event per run of a program in a step: eager work from its first to its last op."""
        run, placement = self.run, self.run.placement
        name = self.trace.executions.name[placement.row[rows]]
        program, step = run.operators.program(name), placement.step[rows]
        first, last = plans.program_runs(program, step, program != plans.EAGER_PROGRAM)
        metadata: dict[int, int] = {}
        for number in np.unique(name).tolist():
            operator = run.operators.by_name[number]
            if operator.program not in metadata:
                metadata[operator.program] = plane.event(
                    f"{operator.program_name}({operator.program})",
                    stats={"program_id": operator.program},
                )
        start = placement.start_ns[rows[first]]
        run_ids = np.arange(run.run_ids, run.run_ids + len(first), dtype=np.int64)
        run.run_ids += len(first)
        return Events(
            np.array([metadata[p] for p in program[first].tolist()], np.int64),
            start - run.zero_ns,
            placement.end_ns[rows[last]] - start,
            [_group(step[first]), Stat("run_id", run_ids)],
        )

    def _operators(self, plane: Plane, rows: NDArray[np.intp]) -> Events:
        """Executions as operators; ``rows`` are positions in the placement."""
        run, trace, placement = self.run, self.trace, self.run.placement
        row = placement.row[rows]
        executions = trace.executions.take(row)
        names, inverse = np.unique(executions.name, return_inverse=True)
        metadata = np.array([_operator(plane, run.operators.by_name[n]) for n in names.tolist()])
        own_name = trace.slices.name[executions.slice]
        sources = [plane.text(_TIME_SOURCE[source]) for source in Source]
        links = [plane.text(kind.name.lower().replace("_", " ")) for kind in LinkKind]
        known = np.isin(executions.source, list(Source))
        source = np.array([0, *sources], np.int64)[np.where(known, executions.source, 0)]
        flow = run.arrows.of_execution[row]
        self.slices += int(np.count_nonzero(~run.beside[executions.slice]))
        return Events(
            metadata[inverse].astype(np.int64),
            placement.start_ns[rows] - run.zero_ns,
            placement.end_ns[rows] - placement.start_ns[rows],
            [
                _group(placement.step[rows]),
                Stat("flow", flow, flow > 0),
                Stat("time is", source, known, refers=True),
                self._refer(plane, "device row", own_name, own_name != executions.name),
                self._refer(plane, "category", trace.slices.category[executions.slice]),
                _link_stat("linked to operator by", executions.operator_link, links),
                _link_stat("linked to launch by", executions.launch_link, links),
                *run.shapes.stats(plane, rows),
            ],
            self._text(trace.slices.args_start, trace.slices.args_length, executions.slice),
        )

    # -- beside a core ----------------------------------------------------------------------

    def _fill_custom(self, plane: Plane, device: int) -> None:
        """Overlapping work first, then physical cores, parts of executions, annotations."""
        trace, placement = self.trace, self.run.placement
        late = placement.of_device(device, fits=False)
        line = 1
        if len(late):
            track = trace.slices.track[trace.executions.slice[placement.row[late]]]
            start, end = placement.start_ns[late], placement.end_ns[late]
            events = self._operators(plane, late)
            place = self._order(track)
            layout = lay_out(place, start, end - start, trace.clock.resolution_ns)
            for member, lane in _lines(place, layout.lane, layout.order):
                name = f"{trace.tracks[track[member[0]]].name} (overlapping{_lane(lane, ', ')})"
                self._draw(plane, line, name, events.take(member))
                line += 1
        mine = trace.track_column("device") == device
        slices = np.flatnonzero(self.run.beside & (trace.slice_device == device))
        instants = np.flatnonzero(mine[trace.instants.track])
        self._draw_tracks(plane, line, _Rows.of(trace, slices, instants))

    # -- the host ---------------------------------------------------------------------------

    def _fill_host(self, plane: Plane) -> None:
        trace = self.trace
        mine = np.isin(trace.track_column("process"), self.processes)
        host_track = mine & (trace.track_column("device") == NONE)
        slices = np.flatnonzero(self.run.on_host & mine[trace.slices.track])
        instants = np.flatnonzero(host_track[trace.instants.track])
        line = self._draw_tracks(plane, 1, _Rows.of(trace, slices, instants), prefixed=True)
        unknown = trace.memory.total_allocated == NONE
        self.findings.add(
            "memory_without_total",
            "memory events without a total of bytes in use were left out: XProf would draw 0",
            int(np.count_nonzero(unknown & np.isin(trace.memory.process, self.processes))),
        )
        for process in self.processes:
            line = self._add_memory(plane, line, process)
        self._add_counters(plane, line, None)

    def _draw_tracks(self, plane: Plane, line: int, rows: _Rows, prefixed: bool = False) -> int:
        """One line per track and lane from number ``line`` on; returns the next free number."""
        if not len(rows.start_ns):
            return line
        place = self._order(rows.track)
        layout = lay_out(place, rows.start_ns, rows.duration_ns, self.trace.clock.resolution_ns)
        self.findings.add(
            *OVERLAPPING,
            # Windows of queued work overlap by their nature; that is nothing to report.
            int(np.count_nonzero(layout.lane[rows.role != Role.WINDOW])),
        )
        self.findings.add(*ROUNDED, layout.rounded)
        events = self._host_events(plane, rows, layout.end_ns)
        for member, lane in _lines(place, layout.lane, layout.order):
            track = self.trace.tracks[rows.track[member[0]]]
            prefix = self._prefix(track.process) if prefixed else ""
            name = f"{prefix}{track.name}{_lane(lane, ' ', brackets=True)}"
            self._draw(plane, line, name, events.take(member))
            line += 1
        self.slices += int(np.count_nonzero(rows.slice != NONE))
        return line

    def _host_events(self, plane: Plane, rows: _Rows, end_ns: Int64) -> Events:
        run, trace = self.run, self.trace
        categories = len(trace.strings) + 1
        kinds, inverse = np.unique(
            rows.name.astype(np.int64) * categories + rows.category + 1, return_inverse=True
        )
        metadata = [
            _named(plane, trace.string(kind // categories), trace.string(kind % categories - 1))
            for kind in kinds.tolist()
        ]
        is_slice = rows.slice != NONE
        step = (
            np.where(is_slice, run.step_of_slice[rows.slice], NONE)
            if len(trace.slices)
            else rows.slice
        )
        flow = (
            run.arrows.of_slice[rows.slice] if len(trace.slices) else np.zeros(len(step), np.uint64)
        )
        text = run.text(rows.args_start, rows.args_length) if self.with_arguments else None
        return Events(
            np.array(metadata, np.int64)[inverse],
            rows.start_ns - run.zero_ns,
            end_ns - rows.start_ns,
            [_group(step), Stat("flow", flow, is_slice & (flow > 0))],
            text,
        )

    # -- memory and counters ----------------------------------------------------------------

    def _add_memory(self, plane: Plane, line: int, process: int) -> int:
        """XProf's memory events, one line per allocator in order of time."""
        memory = self.trace.memory
        for label, device, rows in self._allocators(process):
            events = memory.take(rows)
            frees = events.bytes < 0
            kinds = [plane.event("MemoryAllocation"), plane.event("MemoryDeallocation")]
            capacity = self._capacity(device)
            step = self.run.steps.at(process, events.time_ns)
            stats = [
                Stat("allocator_name", np.full(len(rows), plane.text(label)), refers=True),
                Stat("bytes_allocated", events.total_allocated),
                Stat("peak_bytes_in_use", np.maximum.accumulate(events.total_allocated)),
                Stat("allocation_bytes", np.abs(events.bytes)),
                Stat("requested_bytes", np.abs(events.bytes)),
                Stat("addr", events.address, events.address != NONE),
                _group(step),
            ]
            if capacity is not None:
                free = np.maximum(capacity - events.total_allocated, 0)
                stats.append(Stat("bytes_available", free))
            table = Events(
                np.array(kinds, np.int64)[frees.astype(np.int64)],
                events.time_ns - self.run.zero_ns,
                np.zeros(len(rows), np.int64),
                stats,
            )
            plane.add_line(line, f"memory of {label}", table)
            line += 1
        return line

    def _allocators(self, process: int) -> Iterator[tuple[str, int | None, NDArray[np.intp]]]:
        """Label, device and memory events (with a total, in order of time) of each allocator."""
        memory, prefix = self.trace.memory, self._prefix(process)
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
                    for n in self.devices
                    if self.trace.devices[n].process == process
                    and self.trace.devices[n].index == number
                ),
                None,
            )
            name = f"{prefix}device {number}" if device is None else self._device_label(device)
            yield f"{name} HBM" if self._is_neuron(device) else f"{name} memory", device, rows

    def _add_counters(self, plane: Plane, line: int, device: int | None) -> None:
        """Samples of a device's counters and memory (of the host's, without a device)."""
        samples = list(self._samples(device))
        if not samples:
            return
        metadata, times, values = [], [], []
        for name, time, value in samples:
            finite = np.isfinite(value)
            self.findings.add(
                "counter_not_finite",
                "counter samples that are no finite number were left out",
                int(np.count_nonzero(~finite)),
            )
            metadata.append(np.full(np.count_nonzero(finite), plane.event(name), np.int64))
            times.append(time[finite] - self.run.zero_ns)
            values.append(value[finite].astype(np.float64))
        time = np.concatenate(times)
        table = Events(
            np.concatenate(metadata),
            time,
            np.zeros(len(time), np.int64),
            [Stat("value", np.concatenate(values))],
        )
        plane.add_line(line, _COUNTER_LINE, table.take(np.argsort(time, kind="stable")))

    def _samples(
        self, device: int | None
    ) -> Iterator[tuple[str, Int64, NDArray[np.float64] | Int64]]:
        trace, counters = self.trace, self.trace.counters
        for number in np.unique(counters.track).tolist():
            track = trace.tracks[number]
            if track.device == device and track.process in self.processes:
                rows = np.flatnonzero(counters.track == number)
                unit = f" ({track.unit})" if track.unit else ""
                prefix = self._prefix(track.process) if device is None else ""
                yield (
                    f"{prefix}{track.name}{unit}",
                    counters.time_ns[rows],
                    counters.value[rows],
                )
        for process in self.processes:
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
        peaks = self.run.peaks(device)
        known = self.trace.devices[device].memory_bytes
        return known if known or peaks is None else peaks.hbm_bytes

    # -- small parts ------------------------------------------------------------------------

    def _account(self) -> Plane:
        """What the file holds, for whoever checks it."""
        plane = Plane(ACCOUNT_PLANE, 0)
        if self.trace.clock.kind is ClockKind.EPOCH:
            first, last = self.trace.time_range()
            plane.set("profile_start_time", np.uint64(first))
            plane.set("profile_stop_time", np.uint64(last))
        plane.set("neuron_tb_slices", self.slices)
        plane.set("neuron_tb_events", self.events)
        plane.set("neuron_tb_operators", self.operators)
        plane.set("neuron_tb_operator_ns", self.operator_ns)
        return plane

    def _draw(self, plane: Plane, line: int, name: str, events: Events, display: str = "") -> None:
        if len(events):
            plane.add_line(line, name, events, display)
            self.events += len(events)

    def _text(self, starts: Int64, lengths: Int32, rows: Int32) -> Text | None:
        return self.run.text(starts[rows], lengths[rows]) if self.with_arguments else None

    def _refer(
        self, plane: Plane, stat: str, names: Int32, present: NDArray[np.bool_] | None = None
    ) -> Stat:
        used, inverse = np.unique(names, return_inverse=True)
        known = names != NONE if present is None else present & (names != NONE)
        return Stat(
            stat, plane.texts(map(self.trace.string, used.tolist()))[inverse], known, refers=True
        )

    def _order(self, tracks: Int32) -> Int32:
        """The place of each track in this file: by process, kind and the source's own order."""
        kinds = list(TrackKind)
        known = {process: place for place, process in enumerate(self.processes)}

        def key(number: int) -> tuple[int, int, int, int]:
            track = self.trace.tracks[number]
            kind = kinds.index(track.kind)
            return known.get(track.process, 0), kind, track.sort_index or 0, number

        used = np.unique(tracks)
        place = np.zeros(len(self.trace.tracks), np.int32)
        place[sorted(used.tolist(), key=key)] = np.arange(len(used), dtype=np.int32)
        return place[tracks]

    def _prefix(self, process: int) -> str:
        if len(self.processes) < 2:
            return ""
        rank, pid = self.trace.processes[process].rank, self.trace.processes[process].pid
        return f"pid {pid}: " if rank is None else f"rank {rank}: "

    def _device_label(self, device: int) -> str:
        own = self.trace.devices[device]
        same = [n for n in self.devices if self._same_name(n, device)]
        number = f" #{own.index}" if len(same) > 1 else ""
        return f"{self._prefix(own.process)}{own.name}{number}"

    def _same_name(self, one: int, other: int) -> bool:
        a, b = self.trace.devices[one], self.trace.devices[other]
        return a.process == b.process and a.name == b.name

    def _is_neuron(self, device: int | None) -> bool:
        return device is not None and self.trace.devices[device].family == "neuron"


@dataclass(frozen=True, slots=True)
class _Shapes:
    """The operators' recorded shapes: texts, and for each row of the placement which it has."""

    texts: list[str]
    dims: Int64
    types: Int64

    @classmethod
    def of(cls, trace: Trace, operators: Int32) -> _Shapes:
        """Decodes the arguments of each operator once (one Python call per operator)."""
        numbers: dict[bytes, int] = {}
        used, inverse = np.unique(operators, return_inverse=True)
        found = np.full((len(used), 2), NONE, np.int64)
        for place, row in enumerate(used.tolist()):
            raw = b"" if row == NONE else trace.raw_args(row)
            if b'"Input ' not in raw:
                continue
            try:
                shapes = _decode_shapes(raw)
            except msgspec.DecodeError:
                continue
            for column, value in enumerate((shapes.dims, shapes.types)):
                if bytes(value):
                    found[place, column] = numbers.setdefault(bytes(value), len(numbers))
        texts = [text.decode("utf-8", "replace") for text in numbers]
        return cls(texts, found[inverse, 0], found[inverse, 1])

    def stats(self, plane: Plane, rows: NDArray[np.intp]) -> list[Stat]:
        """The two stats of these rows of the placement."""
        stats = []
        for name, column in (("Input Dims", self.dims[rows]), ("Input type", self.types[rows])):
            used, inverse = np.unique(column, return_inverse=True)
            ids = plane.texts("" if n == NONE else self.texts[n] for n in used.tolist())
            stats.append(Stat(name, ids[inverse], column != NONE, refers=True))
        return stats


class _Recorded(msgspec.Struct):
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw(b""))
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw(b""))


_decode_shapes = msgspec.json.Decoder(_Recorded).decode


def _where_drawn(trace: Trace) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Device slices for the CUSTOM plane and slices for the host's plane; the rest are operators.

    An execution with one device row is that row; the rows of one with several are drawn beside
    it. A window that a measurement replaces stays on the host, as the host saw it.
    """
    execution, executions = trace.execution_of_slice, trace.executions
    on_device = trace.slice_device != NONE
    if not len(executions):
        return on_device, ~on_device
    rows = np.bincount(execution[execution != NONE], minlength=len(executions))
    counted = (execution != NONE) & executions.counted[execution]
    replaced = (execution != NONE) & ~executions.counted[execution]
    is_operator = counted & on_device & (rows[execution] == 1)
    return on_device & ~is_operator & ~replaced, ~on_device | replaced


def _step_of_slice(trace: Trace) -> Int64:
    numbers = np.full(len(trace.slices), NONE, np.int64)
    marked = trace.steps.slice != NONE
    numbers[trace.steps.slice[marked]] = trace.steps.number[marked]
    return numbers


def _type_label(device: Device, chip: Chip | None) -> str:
    """``device_type_string``: must contain TPU and must not contain GPU, else views go blank."""
    if device.family != "neuron":
        return device.name.replace("GPU", "gpu") + _LABEL_ENDING
    return (chip.name if chip else "AWS Neuron") + _LABEL_ENDING


def _operator(plane: Plane, operator: plans.Operator) -> int:
    return plane.event(
        operator.long_name,
        operator.name,
        {
            "program_id": operator.program,
            "symbol_id": operator.symbol,
            "hlo_category": operator.category,
            "tf_op": operator.path,
        },
    )


def _named(plane: Plane, name: str, category: str) -> int:
    stats = {"category": category} if category else None
    if name.count(":") == 1:
        # XProf takes host events called ``x:y`` for framework operators; the name is still drawn.
        return plane.event(f"{name} (host)", name, stats)
    return plane.event(name, stats=stats)


def _group(step: Int64) -> Stat:
    return Stat("group_id", step, step != NONE)


def _link_stat(name: str, kinds: NDArray[np.uint8], texts: list[int]) -> Stat:
    return Stat(name, np.array(texts, np.int64)[kinds], kinds != LinkKind.NONE, refers=True)


def _lines(
    place: Int32, lane: Int32, order: NDArray[np.intp]
) -> Iterator[tuple[NDArray[np.intp], int]]:
    """Rows of each (track, lane), in drawing order, with the lane."""
    key = place[order].astype(np.int64) * (int(lane.max(initial=0)) + 1) + lane[order]
    bounds = np.flatnonzero(np.diff(key, prepend=NONE, append=NONE))
    for first, last in pairwise(bounds.tolist()):
        yield order[first:last], int(lane[order[first]])


def _lane(lane: int, before: str, brackets: bool = False) -> str:
    if not lane:
        return ""
    return f"{before}(lane {lane + 1})" if brackets else f"{before}lane {lane + 1}"


def _sentence(finding: Finding) -> str:
    return f"{finding.count} x {finding}" if finding.count > 1 else str(finding)


def _is_utf8(data: bytes) -> bool:
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
