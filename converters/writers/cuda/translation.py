"""One process of a trace in CUDA's words: devices, streams, launches and correlation numbers.

Viewers made for CUDA join a host call with its device work through one ``correlation`` number,
and an operator with both through ``External id``; they know devices by number and streams by
number within the file. ``translate`` gives every counted execution such a place. Nothing is
moved in time: where rows overlap, they stand in lanes of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import NONE, Bools, Int32, Int64, Role, Trace, TrackKind, UInt8
from neuron_tb.converters.model.hardware import chip_of, peaks_per_logical_core
from neuron_tb.converters.model.lanes import OVERLAPPING, ROUNDED, innermost_around, lay_out
from neuron_tb.converters.model.ragged import unique, used
from neuron_tb.converters.writers.chrome_json import Places
from neuron_tb.converters.writers.cuda.words import device_label
from neuron_tb.converters.writers.cuda.work import Calls, DeviceWork, Kernels

_FIRST_FREE_TID = 1_000_000_000  # above every thread id that Linux gives
_SPANS = "Spans"
_MOVED_PID = 1_000_000_000


@dataclass(slots=True)
class Translation:
    """A process in CUDA's words.

    ``rows``: its slices, positions in ``trace.slices``, ascending. The columns below have one
    entry per row. ``duration_ns``: rounded only where the source's own resolution made a child
    leave its parent. ``place``: number in ``places``. ``parent``, ``depth``: nesting on the
    host (NONE, 0 elsewhere). ``kernel``: the kernel that this row shows. ``call``: the call
    that this row is.
    """

    trace: Trace
    process: int
    rows: NDArray[np.intp]
    start_ns: Int64
    duration_ns: Int64
    place: Int32
    parent: Int32
    depth: Int32
    on_host: Bools
    kernel: Int32
    call: Int32
    kernels: Kernels
    calls: Calls
    places: Places
    place_of_track: Int32
    host_pid: int
    device_number: dict[int, int]
    findings: Findings = field(default_factory=Findings)

    @property
    def role(self) -> UInt8:
        """The role of every row."""
        return self.trace.slices.role[self.rows]

    @property
    def name(self) -> Int32:
        """The name of every row, position in ``trace.strings``."""
        return self.trace.slices.name[self.rows]

    @property
    def category(self) -> Int32:
        """The source's category of every row, position in ``trace.strings``."""
        return self.trace.slices.category[self.rows]

    def new_place(self, name: str) -> int:
        """A row of its own for things that the source does not have, in the host's group."""
        tid = _FIRST_FREE_TID + 500_000_000 + len(self.places)
        self.places.describe(self.host_pid, tid, "thread_name", "name", name)
        return self.places.number(self.host_pid, tid)

    def family(self, kernel: int) -> str:
        """The device family of a kernel."""
        device = self.trace.executions.device[self.kernels.execution[kernel]]
        return self.trace.devices[device].family if device != NONE else "other"


def translate(
    trace: Trace, process: int, instance_type: str | None, most_devices: int | None = None
) -> Translation:
    """One process of the trace in CUDA's words.

    Devices beyond ``most_devices`` stay as they are and are counted.
    """
    return _Translator(trace, process, instance_type, most_devices).translate()


def device_properties(
    translation: Translation, instance_type: str | None, count: int
) -> list[dict[str, object]]:
    """``deviceProperties``: list position = device number; memory only where it is known."""
    trace = translation.trace
    properties: list[dict[str, object]] = [
        {"id": number, "name": "(not in this capture)"} for number in range(count)
    ]
    for position, number in translation.device_number.items():
        device = trace.devices[position]
        if number >= count:
            continue
        properties[number]["name"] = device_label(device, instance_type)
        memory = device.memory_bytes
        if memory is None and device.family == "neuron" and instance_type:
            cores = {t.physical_core for t in trace.tracks if t.device == position}
            peaks = peaks_per_logical_core(chip_of(instance_type), len(cores - {None}) or None)
            memory = peaks.hbm_bytes if peaks else None
        if memory is not None:
            properties[number]["totalGlobalMem"] = memory
    return properties


class _Translator:
    def __init__(
        self, trace: Trace, process: int, instance_type: str | None, most_devices: int | None
    ) -> None:
        self.trace, self.process, self.slices = trace, process, trace.slices
        self.instance_type = instance_type
        self.findings = Findings()
        self.places = Places()
        self.rows = np.flatnonzero(trace.slice_process == process)
        self.track = self.slices.track[self.rows]
        self.role = self.slices.role[self.rows]
        self.start = self.slices.start_ns[self.rows]
        self.duration = self.slices.duration_ns[self.rows].copy()
        self.device = trace.slice_device[self.rows]
        self.place = np.full(len(self.rows), NONE, np.int32)
        self.place_of_track = np.full(len(trace.tracks), NONE, np.int32)
        self.device_number = self._number_devices(most_devices)
        self._work = DeviceWork(trace, self.rows, self.device_number, self.findings)
        self.free_tid = _FIRST_FREE_TID
        self._tid_of_track: dict[int, int] = {}
        self._only_spans = set(range(len(trace.tracks))) - set(
            used(self.track[self.role != Role.SPAN]).tolist()
        )
        pid = trace.processes[process].pid
        highest = max(self.device_number.values(), default=NONE)
        # Device rows take the device's number for a pid: a small host pid has to make room.
        self.host_pid = pid if pid > highest else pid + _MOVED_PID

    def translate(self) -> Translation:
        kernel, kernels = self._work.kernels()
        call, calls = self._work.calls(kernels)
        kernels.stream = self._work.streams(kernels)
        self._describe_processes()
        self._place_kernels(kernels)
        self._place_device_rows(kernel)
        parent, depth, on_host = self._place_host_rows(kernel)
        self._place_tracks()
        return Translation(
            self.trace,
            self.process,
            self.rows,
            self.start,
            self.duration,
            self.place,
            parent,
            depth,
            on_host,
            kernel,
            call,
            kernels,
            calls,
            self.places,
            self.place_of_track,
            self.host_pid,
            self.device_number,
            self.findings,
        )

    def _number_devices(self, most: int | None) -> dict[int, int]:
        """Device numbers of this process: its own indices where they fit, else by order."""
        own = [p for p, d in enumerate(self.trace.devices) if d.process == self.process]
        indices = [self.trace.devices[p].index for p in own]
        limit = most if most is not None else 1 << 20
        fit = len(set(indices)) == len(indices) and all(0 <= i < limit for i in indices)
        if fit:
            return dict(zip(own, indices, strict=True))
        own.sort(key=lambda p: self.trace.devices[p].index)
        return {position: number for number, position in enumerate(own) if number < limit}

    # -- places -----------------------------------------------------------------------------

    def _describe_processes(self) -> None:
        process, describe = self.trace.processes[self.process], self.places.describe
        name = process.name or "python"
        moved = "" if self.host_pid == process.pid else f" (pid {process.pid})"
        describe(self.host_pid, 0, "process_name", "name", name + moved)
        labels = process.labels or ("CPU" + (f" of {process.host}" if process.host else ""))
        describe(self.host_pid, 0, "process_labels", "labels", labels)
        order = process.sort_index if process.sort_index is not None else 0
        describe(self.host_pid, 0, "process_sort_index", "sort_index", order)
        for position, number in self.device_number.items():
            label = device_label(self.trace.devices[position], self.instance_type)
            describe(number, 0, "process_name", "name", label)
            describe(number, 0, "process_labels", "labels", f"device {number}")
            describe(number, 0, "process_sort_index", "sort_index", 5_000_000 + number)

    def _place_kernels(self, kernels: Kernels) -> None:
        for (device, stream), name in self._work.lane_names.items():
            self.places.describe(device, stream, "thread_name", "name", name)
            self.places.describe(device, stream, "thread_sort_index", "sort_index", stream)
        packed = (kernels.device.astype(np.int64) << 32) + kernels.stream
        distinct, inverse = unique(packed)
        numbers = [self.places.number(c >> 32, c & 0xFFFFFFFF) for c in distinct.tolist()]
        if numbers:
            self.place[kernels.row] = np.array(numbers, np.int32)[inverse]

    def _place_device_rows(self, kernel: Int32) -> None:
        """Device rows that are no kernels: parts of executions, copies of annotations."""
        rest = (self.device != NONE) & (kernel == NONE) & (self.role != Role.WINDOW)
        for track in used(self.track[rest]).tolist():
            rows = np.flatnonzero(rest & (self.track == track))
            number = self.device_number.get(self.trace.tracks[track].device or 0, NONE)
            pid = number if number != NONE else self.host_pid
            shared = self._work.stream_of_track.get(track)
            if shared is not None:
                crossings = self._crossings_with_kernels(rows, shared, kernel)
                if not crossings:
                    self.place[rows] = self.places.number(*shared)
                    continue
                self._count_crossings(crossings)
            layout = lay_out(
                self.track[rows], self.start[rows], self.duration[rows], self._resolution
            )
            self.duration[rows] = layout.end_ns - self.start[rows]
            name = self.trace.tracks[track].name + ("" if shared is None else " (parts)")
            self._place_in_lanes(rows, layout.lane, pid, name, None)
            self._count_crossings(layout.crossings)

    def _crossings_with_kernels(
        self, rows: NDArray[np.intp], stream: tuple[int, int], kernel: Int32
    ) -> int:
        """How many slices would cross if these rows stood on the row of a stream's kernels."""
        main = self.places.number(*stream)
        return self._crossings(
            np.concatenate([rows, np.flatnonzero((kernel != NONE) & (self.place == main))])
        )

    def _place_in_lanes(
        self,
        rows: NDArray[np.intp],
        lane: Int32,
        pid: int | str,
        name: str,
        tid: int | str | None,
    ) -> None:
        for number in used(lane).tolist():
            label = name + (f", overlapping {number}" if number else "")
            own = tid if number == 0 and tid is not None else self._free_tid()
            if isinstance(tid, str):
                own = tid + (f", overlapping {number}" if number else "")
            else:
                self.places.describe(pid, own, "thread_name", "name", label)
            self.place[rows[lane == number]] = self.places.number(pid, own)

    def _free_tid(self) -> int:
        self.free_tid += 1
        return self.free_tid

    @property
    def _resolution(self) -> int:
        return self.trace.clock.resolution_ns

    def _count_crossings(self, count: int) -> None:
        self.findings.add(
            *OVERLAPPING,
            count,
        )

    def _place_host_rows(self, kernel: Int32) -> tuple[Int32, Int32, Bools]:
        on_host = self.place == NONE
        rows = np.flatnonzero(on_host)
        keys, names, layers = self._host_keys(rows)
        layout = lay_out(keys, self.start[rows], self.duration[rows], self._resolution)
        crossing = used(keys[layout.lane > 0])
        if len(crossing):
            for key in crossing.tolist():
                keys = self._separate_layers(rows, keys, key, layers, names)
            layout = lay_out(keys, self.start[rows], self.duration[rows], self._resolution)
        windows = self.role[rows] == Role.WINDOW  # these overlap by nature
        self._count_crossings(int(np.count_nonzero(layout.lane[~windows])))
        self.findings.add(
            *ROUNDED,
            layout.rounded,
        )
        self.duration[rows] = layout.end_ns - self.start[rows]
        for key in used(keys).tolist():
            here = np.flatnonzero(keys == key)
            pid, tid, name = names[key]
            self._place_in_lanes(rows[here], layout.lane[here], pid, name, tid)
        parent = np.full(len(self.rows), NONE, np.int32)
        depth = np.zeros(len(self.rows), np.int32)
        inside = layout.parent != NONE
        parent[rows[inside]] = rows[layout.parent[inside]]
        depth[rows] = layout.depth
        return parent, depth, on_host

    def _host_keys(
        self, rows: NDArray[np.intp]
    ) -> tuple[Int32, list[tuple[int | str, int | str | None, str]], UInt8]:
        """A key per row (which thread row it belongs to), the keys' places, and the rows' layers.

        Framework and runtime calls of one thread share its row, as in Kineto's CUDA traces.
        """
        numbers: dict[tuple[int | str, int | str], int] = {}
        names: list[tuple[int | str, int | str | None, str]] = []
        key_of_track = np.full(len(self.trace.tracks), NONE, np.int32)
        is_runtime = np.zeros(len(self.trace.tracks), np.bool_)
        tracks = used(self.track[rows]).tolist()
        for number in sorted(tracks, key=lambda t: self.trace.tracks[t].kind is TrackKind.RUNTIME):
            track = self.trace.tracks[number]
            is_runtime[number] = track.kind is TrackKind.RUNTIME
            pid, tid = self._host_place(number)
            if (pid, tid) not in numbers:
                numbers[pid, tid] = len(names)
                names.append((pid, tid, track.name))
            key_of_track[number] = numbers[pid, tid]
        layers = np.zeros(len(rows), np.uint8)
        layers[self.role[rows] == Role.ANNOTATION] = 1
        layers[self.role[rows] == Role.PYTHON] = 2
        layers[is_runtime[self.track[rows]]] = 3
        return key_of_track[self.track[rows]], names, layers

    def _separate_layers(
        self,
        rows: NDArray[np.intp],
        keys: Int32,
        key: int,
        layers: UInt8,
        names: list[tuple[int | str, int | str | None, str]],
    ) -> Int32:
        """Where rows of a thread cross, annotations, Python and the runtime give way in turn.

        A step often ends inside the Python call that ends it: that call gives way to the step.
        """
        here = np.flatnonzero(keys == key)
        if len(np.unique(layers[here])) < 2 or names[key][0] == _SPANS:
            return keys
        accepted = here[layers[here] == layers[here].min()]
        keys = keys.copy()
        for layer, what in ((1, "annotations"), (2, "Python"), (3, "runtime")):
            more = here[layers[here] == layer]
            if not len(more) or layer == layers[here].min():
                continue
            cross = self._cross(rows[more], rows[accepted])
            accepted = np.concatenate([accepted, more[~cross]])
            if cross.any():
                keys[more[cross]] = len(names)
                names.append((self.host_pid, None, f"{names[key][2]} ({what})"))
                self._count_crossings(int(np.count_nonzero(cross)))
        return keys

    def _cross(self, rows: NDArray[np.intp], others: NDArray[np.intp]) -> Bools:
        """Which rows begin or end inside one of the others without lying in it."""
        start, end = self.start[rows], self.start[rows] + self.duration[rows]
        begin, stop = self.start[others], self.start[others] + self.duration[others]
        one, same = np.zeros(len(others), np.int32), np.zeros(len(rows), np.int32)

        def around(time: Int64) -> Int32:
            return innermost_around(one, begin, stop - begin, same, time - 1, time + 1)

        first, last = around(start), around(end)
        begins = (first != NONE) & (end - stop[first] > self._resolution)
        ends = (last != NONE) & (begin[last] > start) & (stop[last] - end > self._resolution)
        crossing: Bools = begins | ends
        return crossing

    def _crossings(self, rows: NDArray[np.intp]) -> int:
        one = np.zeros(len(rows), np.int32)
        return lay_out(one, self.start[rows], self.duration[rows], self._resolution).crossings

    def _host_place(self, number: int) -> tuple[int | str, int | str]:
        """The pid and tid of a host track; tids are integers but for the profiler's own rows."""
        track = self.trace.tracks[number]
        if number in self._tid_of_track:
            return self.host_pid, self._tid_of_track[number]
        if track.kind is TrackKind.OTHER and number in self._only_spans:
            return _SPANS, str(track.tid) or track.name
        if track.kind in (TrackKind.THREAD, TrackKind.RUNTIME) and isinstance(track.tid, int):
            return self.host_pid, track.tid
        same = [n for n in self._tid_of_track if self.trace.tracks[n].tid == track.tid]
        shares = track.kind in (TrackKind.THREAD, TrackKind.RUNTIME) and same
        self._tid_of_track[number] = self._tid_of_track[same[0]] if shares else self._free_tid()
        return self.host_pid, self._tid_of_track[number]

    def _place_tracks(self) -> None:
        """Where instants and counters of every track of the process go."""
        for number, track in enumerate(self.trace.tracks):
            if track.process != self.process:
                continue
            if track.kind is TrackKind.COUNTER:
                place = self.places.number(self.host_pid, 0)
            elif track.kind is TrackKind.DEVICE and number in self._work.stream_of_track:
                place = self.places.number(*self._work.stream_of_track[number])
            else:
                pid, tid = self._host_place(number)
                place = self.places.number(pid, tid)
                if pid != _SPANS:
                    order = track.sort_index if track.sort_index is not None else tid
                    self.places.describe(pid, tid, "thread_name", "name", track.name)
                    self.places.describe(pid, tid, "thread_sort_index", "sort_index", order)
            self.place_of_track[number] = place
