"""XProf's run directory: ``OUT/plugins/profile/RUN/HOST.xplane.pb``, one file per host.

Each logical core is a plane with lines ``Steps``, ``XLA Modules`` and ``XLA Ops``, the last a flat
sequence of operators. What that sequence cannot hold (overlapping work, the physical cores
behind a logical one, parts of an execution, the engines and DMA queues of a device profile)
stands in a plane beside it, everything of the host in a third (``plane_names``). Times count from
the earliest event of the whole trace, since XProf keeps picoseconds in 64 bits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import (
    NONE,
    ClockKind,
    Device,
    Int32,
    Int64,
    LinkKind,
    Role,
    Source,
    Trace,
    TrackKind,
)
from neuron_tb.converters.model.hardware import Chip, chip_of
from neuron_tb.converters.model.lanes import OVERLAPPING, ROUNDED, lay_out
from neuron_tb.converters.model.ragged import unique, used
from neuron_tb.converters.storage.output import (
    refuse_overwrite,
    replacing_directory,
    replacing_file,
    safe_name,
    same_file,
)
from neuron_tb.converters.writers import Destination, Written
from neuron_tb.converters.writers.xprof import plan as plans
from neuron_tb.converters.writers.xprof.plane_names import (
    ACCOUNT_PLANE,
    ACCOUNT_PROCESSES,
    ACCOUNT_STEPS,
    ACCOUNT_ZERO,
    HOST_PLANE,
    core_plane,
    custom_plane,
)
from neuron_tb.converters.writers.xprof.run import Labels, Rows, Run, group
from neuron_tb.converters.writers.xprof.samples import Samples
from neuron_tb.converters.writers.xprof.xspace import PICOSECONDS, Events, Plane, Space, Stat, Text

TARGET = "xprof"

FILE_ENDING = ".xplane.pb"

_LABEL_ENDING = " (shown in XProf's TPU views)"
LARGEST_RANGE_NS = (2**63 - 1) // PICOSECONDS
LARGEST_FILE = 2**31 - 1
"""Protobuf refuses longer messages."""

_MOST_DEVICES = 199
DEVICES_PER_FILE = 150
"""XProf numbers its rows so that 199 planes of one file stay apart."""

_STEPS, _MODULES, _OPS, _COUNTERS = 1, 2, 3, 50
LAST_LINE = 1_000_000

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
    run = Run.of(trace, chip)
    files = [_HostFile(run, name, processes) for name, processes in _files(trace).items()]
    if len(files) == 1:
        files[0].count_from(destination.local_rank)
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
    return None if last - first <= LARGEST_RANGE_NS else too_long(first, last)


def too_long(first: int, last: int) -> Written:
    """Why there is no file of a capture that spans more time than XProf can count."""
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
    shown = set(used(trace.slice_process).tolist()) | set(used(trace.memory.process).tolist())
    for rows in (trace.instants, trace.counters):
        shown |= set(used(tracks[rows.track]).tolist())
    devices = [sum(d.process == p for d in trace.devices) for p in range(len(trace.processes))]
    ranked = sorted(
        shown, key=lambda p: (trace.processes[p].rank is None, trace.processes[p].rank, p)
    )
    hosts: dict[str, list[list[int]]] = {}
    for process in ranked:
        parts = hosts.setdefault(trace.processes[process].host or "localhost", [[]])
        if parts[-1] and sum(devices[p] for p in [*parts[-1], process]) > DEVICES_PER_FILE:
            parts.append([])
        parts[-1].append(process)
    files: dict[str, list[int]] = {}
    for host, parts in sorted(hosts.items()):
        for part in parts:
            name = base = safe_name(host, "localhost")
            while same_file(name) in map(same_file, files):
                number = int(name.rpartition(".")[2]) + 1 if name != base else 2
                name = f"{base}.{number}"
            files[name] = part
    return files


class _HostFile:
    """One host's file: its processes, and the planes made of them."""

    def __init__(self, run: Run, name: str, processes: Sequence[int]) -> None:
        self.run, self.trace = run, run.trace
        self.name, self.processes = name, processes
        self.with_arguments = True
        self.first_device = 0
        self.findings = Findings()
        self.devices = [
            number
            for process in processes
            for number, _ in sorted(
                ((n, d) for n, d in enumerate(run.trace.devices) if d.process == process),
                key=lambda item: (item[1].detail, item[1].index),
            )
        ]
        self._labels = Labels(run.trace, processes, self.devices)
        self.slices = self.events = self.operators = self.operator_ns = 0

    def count_from(self, local_rank: int) -> None:
        """Number devices after those of the host's ranks before this one, as many each."""
        first = local_rank * len(self.devices)
        self.first_device = first if first + len(self.devices) < _MOST_DEVICES else 0

    def write(self, path: Path, with_warnings: bool) -> None:
        """Write the file; arguments stay out when it would be longer than protobuf allows."""
        with TemporaryFile(dir=path.parent) as spool:
            self._write(path, spool, with_warnings)

    def _write(self, path: Path, spool: BinaryIO, with_warnings: bool) -> None:
        space = self.space(spool)
        if len(space) > LARGEST_FILE:
            self.run.findings.add(
                "arguments_left_out",
                "files would be longer than the 2 GiB that XProf can read; arguments were left out",
                where=path.name,
            )
            self.with_arguments = False
            spool.truncate(0)
            space = self.space(spool)
        if len(space) > LARGEST_FILE:
            raise NeuronTbError(
                f"{path.name} would be longer than the 2 GiB that XProf can read; convert a "
                "shorter capture, or fewer processes at once."
            )
        self.run.findings.extend(self.findings)
        if with_warnings:
            space.warnings += self.run.warnings()
        with replacing_file(path) as file:
            file.writelines(space.parts())
            file.writelines(space.tail())

    def space(self, spool: BinaryIO) -> Space:
        """The whole file, without the run's warnings; its events wait in ``spool``."""
        self.findings = Findings()
        self.slices = self.events = self.operators = self.operator_ns = 0
        samples = Samples(self.run, self._labels, self.processes, self.devices, self.findings)
        host = Plane(HOST_PLANE, 0, shared=True, owner=self._owner(), spool=spool)
        planes: list[Plane] = []
        for number, device in enumerate(self.devices, self.first_device):
            core = Plane(core_plane(number), number, spool=spool)
            custom = Plane(custom_plane(self._labels.device(device)), number, spool=spool)
            self._fill_core(core, device, number)
            self._fill_custom(custom, device)
            line = _COUNTERS if core else LAST_LINE
            samples.add_counters(core if core else custom, line, device)
            planes += [plane for plane in (core, custom) if plane]
        self._fill_host(host, samples)
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
        label = f"{self._labels.device(device)} (XLA Ops)"
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
        return Events(
            np.array([metadata[p] for p in program[first].tolist()], np.int64),
            start - run.zero_ns,
            placement.end_ns[rows[last]] - start,
            [group(step[first]), Stat("run_id", np.arange(len(first), dtype=np.int64))],
        )

    def _operators(self, plane: Plane, rows: NDArray[np.intp]) -> Events:
        """Executions as operators; ``rows`` are positions in the placement."""
        run, trace, placement = self.run, self.trace, self.run.placement
        row = placement.row[rows]
        executions = trace.executions.take(row)
        names, inverse = unique(executions.name)
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
                group(placement.step[rows]),
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
                self._draw(plane, line, name, events, rows=member)
                line += 1
        mine = trace.track_column("device") == device
        slices = np.flatnonzero(self.run.beside & (trace.slice_device == device))
        instants = np.flatnonzero(mine[trace.instants.track])
        self._draw_tracks(plane, line, Rows.of(trace, slices, instants))

    # -- the host ---------------------------------------------------------------------------

    def _fill_host(self, plane: Plane, samples: Samples) -> None:
        trace = self.trace
        mine = np.isin(trace.track_column("process"), self.processes)
        host_track = mine & (trace.track_column("device") == NONE)
        slices = np.flatnonzero(self.run.on_host & mine[trace.slices.track])
        instants = np.flatnonzero(host_track[trace.instants.track])
        line = self._draw_tracks(plane, 1, Rows.of(trace, slices, instants), prefixed=True)
        unknown = trace.memory.total_allocated == NONE
        self.findings.add(
            "memory_without_total",
            "memory events without a total of bytes in use were left out: XProf would draw 0",
            int(np.count_nonzero(unknown & np.isin(trace.memory.process, self.processes))),
        )
        for process in self.processes:
            line = samples.add_memory(plane, line, process)
        samples.add_counters(plane, line, None)

    def _draw_tracks(self, plane: Plane, line: int, rows: Rows, prefixed: bool = False) -> int:
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
            prefix = self._labels.prefix(track.process) if prefixed else ""
            name = f"{prefix}{track.name}{_lane(lane, ' ', brackets=True)}"
            self._draw(plane, line, name, events, rows=member)
            line += 1
        self.slices += int(np.count_nonzero(rows.slice != NONE))
        return line

    def _host_events(self, plane: Plane, rows: Rows, end_ns: Int64) -> Events:
        run, trace = self.run, self.trace
        categories = len(trace.strings) + 1
        kinds, inverse = unique(rows.name.astype(np.int64) * categories + rows.category + 1)
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
            [group(step), Stat("flow", flow, is_slice & (flow > 0))],
            text,
        )

    # -- small parts ------------------------------------------------------------------------

    def _account(self) -> Plane:
        """What the file holds, for whoever checks it."""
        plane = Plane(ACCOUNT_PLANE, 0)
        if self.trace.clock.kind is ClockKind.EPOCH:
            first, last = self.trace.time_range()
            plane.set("profile_start_time", np.uint64(first))
            plane.set("profile_stop_time", np.uint64(last))
        plane.set(ACCOUNT_ZERO, self.run.zero_ns)
        plane.set(ACCOUNT_PROCESSES, json.dumps([self._identity(p) for p in self.processes]))
        plane.set(ACCOUNT_STEPS, json.dumps(self._steps_listed()))
        plane.set("neuron_tb_slices", self.slices)
        plane.set("neuron_tb_events", self.events)
        plane.set("neuron_tb_operators", self.operators)
        plane.set("neuron_tb_operator_ns", self.operator_ns)
        return plane

    def _identity(self, process: int) -> dict[str, object]:
        own = self.trace.processes[process]
        return {"host": own.host, "pid": own.pid, "rank": own.rank}

    def _owner(self) -> str:
        return json.dumps([self._identity(process) for process in self.processes])

    def _steps_listed(self) -> dict[str, list[int]]:
        return plans.steps_listed(self.run.placement, self.run.steps, self.devices)

    def _draw(
        self,
        plane: Plane,
        line: int,
        name: str,
        events: Events,
        display: str = "",
        rows: NDArray[np.intp] | None = None,
    ) -> None:
        count = len(events) if rows is None else len(rows)
        if count:
            plane.add_line(line, name, events, display, rows)
            self.events += count

    def _text(self, starts: Int64, lengths: Int32, rows: Int32) -> Text | None:
        return self.run.text(starts[rows], lengths[rows]) if self.with_arguments else None

    def _refer(
        self, plane: Plane, stat: str, names: Int32, present: NDArray[np.bool_] | None = None
    ) -> Stat:
        distinct, inverse = unique(names)
        known = names != NONE if present is None else present & (names != NONE)
        return Stat(
            stat,
            plane.texts(map(self.trace.string, distinct.tolist()))[inverse],
            known,
            refers=True,
        )

    def _order(self, tracks: Int32) -> Int32:
        """The place of each track in this file: by process, kind and the source's own order."""
        kinds = list(TrackKind)
        known = {process: place for place, process in enumerate(self.processes)}

        def key(number: int) -> tuple[int, int, int, int]:
            track = self.trace.tracks[number]
            kind = kinds.index(track.kind)
            return known.get(track.process, 0), kind, track.sort_index or 0, number

        distinct = used(tracks)
        place = np.zeros(len(self.trace.tracks), np.int32)
        place[sorted(distinct.tolist(), key=key)] = np.arange(len(distinct), dtype=np.int32)
        return place[tracks]


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
