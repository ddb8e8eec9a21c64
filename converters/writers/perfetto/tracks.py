"""The rows of a Perfetto file and where they stand.

    process "rank 3 (hostA) pid 1234"
      one thread track per host thread; what overlaps stands in a row beside it
      "Neuron runtime": one row per thread that calls into the runtime
      "NeuronCore 0": one row per stream or physical core, then its counters
      "NeuronCore 0 engines": a device profile's engines and DMA queues, then its counters
      "Process and host counters": all other counters, memory events

Rows that overlap are several tracks with one merge key, which viewers stack as one row. Every
number that identifies a row is a hash of (host, rank, pid, row), so that files of different
processes can be joined byte by byte.

Schema: ``perfetto/trace/track_event/track_descriptor.proto`` of google/perfetto.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import (
    NONE,
    Device,
    Int32,
    Int64,
    Process,
    Role,
    Trace,
    Track,
    TrackKind,
    UInt8,
)
from neuron_tb.converters.model.hardware import chip_of
from neuron_tb.converters.model.identity import stable_hash
from neuron_tb.converters.model.lanes import Layout, lay_out
from neuron_tb.converters.model.ragged import unique, used
from neuron_tb.converters.writers import wire

UInt64 = NDArray[np.uint64]

RUNTIME_GROUP = "Neuron runtime"
COUNTER_GROUP = "Process and host counters"

# TrackDescriptor
_UUID, _NAME, _PROCESS, _THREAD, _PARENT, _COUNTER = 1, 2, 3, 4, 5, 8
_CHILD_ORDERING, _RANK, _DESCRIPTION, _MERGE, _MERGE_KEY = 11, 12, 14, 15, 16
_PROCESS_ORDERING, _THREAD_ORDERING = 19, 20
_EXPLICIT_CHILDREN, _EXPLICIT, _MERGE_BY_KEY = 3, 1, 3
# CounterDescriptor
_UNIT, _UNIT_NAME = 3, 6
_UNITS = {"ns": 1, "count": 2, "bytes": 3}

_ANNOTATIONS, _WORK, _DETAILS, _WINDOWS = range(4)
"""A device's track is drawn as up to four rows, in this order: what the host sees is no work."""
_PART_NAMES = {_ANNOTATIONS: "annotations", _DETAILS: "details", _WINDOWS: "host window"}
_PART_OF_ROLE = {
    Role.DEVICE_ANNOTATION: _ANNOTATIONS,
    Role.DEVICE_DETAIL: _DETAILS,
    Role.WINDOW: _WINDOWS,
}

_TRACK_BITS = 32
_KINDS_IN_ORDER = (
    TrackKind.THREAD,
    TrackKind.RUNTIME,
    TrackKind.OTHER,
    TrackKind.DEVICE,
    TrackKind.COUNTER,
)

_FAMILIES = {
    "neuron": "NeuronCore",
    "cuda": "GPU",
    "rocm": "GPU",
    "xpu": "XPU",
    "mtia": "MTIA device",
    "privateuse1": "PrivateUse1 device",
}
_DEEPEST = 500
"""trace_processor drops slices more than 512 deep; deeper ones go to a further lane."""
_LATER = 2**31 - 1
_FIRST_WITHOUT_RANK = 2**30


@dataclass(slots=True)
class ProcessRows:
    """What stands in the file for one process.

    ``identity``: what its numbers are made of (host, rank, pid, which of several such).
    ``sequence``: its packet sequence. ``seed``: 64 bits that begin the identity of its flows.
    ``descriptors``: encoded ``TrackDescriptor`` messages, parents first. ``memory``: for
    (device type, device id) the rows of allocated and reserved bytes; ``memory_events``: the
    row of single allocations and frees, 0 when there are none.
    """

    process: int
    title: str
    identity: tuple[object, ...]
    sequence: int
    seed: int
    descriptors: list[bytes] = field(default_factory=list)
    memory: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    memory_events: int = 0


@dataclass(slots=True)
class Picture:
    """Every row of the file.

    ``layout``: how the slices nest. A *line* is a row, or one lane of it: ``line_of_slice``,
    shape (slices,), and ``uuid_of_line``. ``uuid_of_track``: shape (tracks,), the row of a
    track's instants or counter samples, 0 where there is none. ``rows``: rows with slices.
    ``lanes``: further tracks that overlaps made necessary. ``deep``: slices that only depth moved
    to another lane.
    ``processes``: in the order in which they are shown.
    """

    layout: Layout
    line_of_slice: Int32
    uuid_of_line: UInt64
    uuid_of_track: UInt64
    rows: int
    lanes: int
    deep: int
    processes: list[ProcessRows]


def draw(trace: Trace, instance_type: str | None = None) -> Picture:
    """Decide which rows a trace has, how they are called and in which order they stand."""
    code = _row_codes(trace)
    distinct, inverse = unique(code)
    row: Int32 = inverse.astype(np.int32)
    layout = lay_out(
        row, trace.slices.start_ns, trace.slices.duration_ns, trace.clock.resolution_ns
    )
    lane, deep = _lanes(row, layout)
    lines, line = unique(row.astype(np.int64) << 32 | lane)
    wanted = _wanted(trace, distinct)
    rows = [
        _Row(number, trace.tracks[track], part, mixed=bool(mixed))
        for number, (track, part, mixed) in enumerate(wanted)
    ]
    for row_of_line in (lines >> 32).tolist():
        rows[row_of_line].lanes += 1
    for number, count in enumerate(_activity(trace, row, wanted)):
        rows[number].activity = count
    uuids = _Uuids()
    processes = [
        _ProcessBuilder(trace, number, key, uuids, instance_type).build(rows)
        for number, key in _process_keys(trace)
    ]
    uuid_of_line = np.array([u for r in rows for u in r.uuids[: r.lanes]], np.uint64)
    uuid_of_track = np.zeros(len(trace.tracks), np.uint64)
    for (track, part, _), r in zip(wanted, rows, strict=True):
        if part == _WORK or not uuid_of_track[track]:
            uuid_of_track[track] = r.uuids[0]
    return Picture(
        layout=layout,
        line_of_slice=line.astype(np.int32),
        uuid_of_line=uuid_of_line,
        uuid_of_track=uuid_of_track,
        rows=len(distinct),
        lanes=len(lines) - len(distinct),
        deep=deep,
        processes=processes,
    )


def root_descriptor() -> bytes:
    """The ``TrackDescriptor`` of the root: processes and threads stand in the order given."""
    fields = ((_UUID, 0), (_PROCESS_ORDERING, _EXPLICIT), (_THREAD_ORDERING, _EXPLICIT))
    return b"".join([wire.encode_field(number, value) for number, value in fields])


@dataclass(slots=True)
class _Row:
    """One row of slices, instants or counter samples: a track, or one part of a device's."""

    number: int
    track: Track
    part: int
    mixed: bool
    lanes: int = 0
    activity: int = 0
    uuids: list[int] = field(default_factory=list)

    @property
    def title(self) -> str:
        name, suffix = self.track.name, _PART_NAMES.get(self.part)
        if suffix is None or self.track.kind is not TrackKind.DEVICE:
            return name
        if self.part == _WINDOWS:
            return name if "window" in name else f"{name} ({suffix})"
        return f"{name} {suffix}" if self.mixed else name

    @property
    def position(self) -> tuple[object, ...]:
        """Sort key among the rows of a device: windows last, then as the source orders them."""
        track = self.track
        return (
            self.part == _WINDOWS,
            _LATER if track.sort_index is None else track.sort_index,
            _LATER if track.physical_core is None else track.physical_core,
            isinstance(track.tid, str),
            track.tid if isinstance(track.tid, int) else 0,
            str(track.tid),
            self.part,
            self.number,
        )


class _Uuids:
    """Hands out the identities of rows; equal keys get different ones, in order of asking."""

    def __init__(self) -> None:
        self._asked: Counter[tuple[object, ...]] = Counter()
        self._taken: set[int] = set()

    def of(self, *key: object, bits: int = 56) -> int:
        # 56 bits: a varint of eight bytes, which every event carries.
        while True:
            self._asked[key] += 1
            number = stable_hash(*key, self._asked[key], bits=bits)
            if number not in self._taken:
                self._taken.add(number)
                return number


class _ProcessBuilder:
    """Writes the descriptors of one process."""

    def __init__(
        self,
        trace: Trace,
        number: int,
        key: tuple[object, ...],
        uuids: _Uuids,
        instance_type: str | None,
    ) -> None:
        self._trace, self._number, self._key = trace, number, key
        self._uuids, self._instance_type = uuids, instance_type
        self._process = trace.processes[number]
        self._rank = 0
        self._used_tids: set[int] = set()
        self._pid = uuids.of("pid", *key, bits=31)
        self._devices: dict[int, int] = {}
        self._root = self._counters = 0
        self._rows = ProcessRows(
            process=number,
            title=_process_title(self._process),
            identity=key,
            sequence=uuids.of("sequence", *key, bits=31),
            seed=stable_hash("flows", *key),
        )

    def build(self, all_rows: list[_Row]) -> ProcessRows:
        rows = [r for r in all_rows if r.track.process == self._number]
        by_kind = {k: [r for r in rows if r.track.kind is k] for k in TrackKind}
        on_device = [r for r in by_kind[TrackKind.DEVICE] if r.track.device is not None]
        counters = by_kind[TrackKind.COUNTER]
        memory = self._memory_places()
        self._root = self._uuids.of("process", *self._key)
        self._describe_process()
        for row in sorted(by_kind[TrackKind.THREAD], key=self._thread_position):
            self._thread(row)
        self._group_of_runtime(sorted(by_kind[TrackKind.RUNTIME], key=self._thread_position))
        used = {r.track.device for r in [*on_device, *counters]} | {d for _, d in memory}
        for device in sorted(
            (d for d in used if d is not None and d != NONE),
            key=lambda d: (self._trace.devices[d].index, self._trace.devices[d].detail, d),
        ):
            self._group_of_device(device)
            for row in sorted(
                (r for r in on_device if r.track.device == device), key=lambda r: r.position
            ):
                self._plain(row, self._devices[device])
        placeless = [r for r in by_kind[TrackKind.DEVICE] if r.track.device is None]
        if memory or any(row.track.device is None for row in counters):
            self._group_of_counters()
        for row in counters:
            row.uuids = [self._counter(row)]
        for place, device in memory:
            self._memory(place, device)
        for row in [*placeless, *by_kind[TrackKind.OTHER]]:
            self._plain(row, self._root)
        return self._rows

    # -- descriptors ------------------------------------------------------------------------

    def _describe(
        self, uuid: int, parent: int | None, name: str, **more: int | str | bytes
    ) -> None:
        fields = [wire.encode_field(_UUID, uuid)]
        if parent is not None:
            fields.append(wire.encode_field(_PARENT, parent))
        if name:
            fields.append(wire.encode_field(_NAME, name))
        for key, value in more.items():
            if value != "":
                fields.append(wire.encode_field(_FIELDS[key], value))
        rank = self._rank if parent is not None else _process_rank(self._process, self._number)
        fields.append(wire.encode_field(_RANK, rank))
        self._rank += 1
        self._rows.descriptors.append(b"".join(fields))

    def _describe_process(self) -> None:
        process, title = self._process, self._rows.title
        body = wire.encode_field(1, self._pid) + wire.encode_field(6, title)
        for label in (process.name, process.labels):
            if label and label not in title:
                body += wire.encode_field(8, label)
        description = f"pid {process.pid}" + (f", from {process.source}" if process.source else "")
        self._describe(
            self._root,
            None,
            "",
            process=body,
            ordering=_EXPLICIT_CHILDREN,
            description=description,
        )

    def _thread(self, row: _Row) -> None:
        track = row.track
        uuid = self._uuids.of("thread", *self._key, track.tid, track.name)
        tid = self._tid(track)
        name = row.title
        if tid == track.tid:  # viewers write the number behind the name
            name = " ".join(w for w in name.split() if w != str(tid)) or name
        body = wire.encode_field(1, self._pid) + wire.encode_field(2, tid)
        body += wire.encode_field(5, name)
        self._describe(uuid, self._root, "", thread=body)
        row.uuids = [uuid]
        # Two tracks of one thread would be taken for two threads: lanes are plain tracks.
        lanes = [self._uuids.of("lane", uuid) for _ in range(1, row.lanes)]
        for lane in lanes:
            self._mergeable(lane, self._root, f"{row.title} (overlapping)", lanes[0])
        row.uuids += lanes

    def _plain(self, row: _Row, parent: int) -> None:
        track = row.track
        device = None if track.device is None else self._trace.devices[track.device].index
        key = (track.kind.value, device, track.physical_core, track.tid, track.name, row.part)
        first = self._uuids.of("row", *self._key, *key)
        row.uuids = [first] + [self._uuids.of("lane", first) for _ in range(1, row.lanes)]
        for uuid in row.uuids:
            self._mergeable(uuid, parent, row.title, first)

    def _mergeable(self, uuid: int, parent: int, name: str, first: int) -> None:
        self._describe(
            uuid, parent, name or "(unnamed)", merge=_MERGE_BY_KEY, merge_key=f"{first:x}"
        )

    def _group_of_runtime(self, rows: list[_Row]) -> None:
        if not rows:
            return
        uuid = self._uuids.of("runtime", *self._key)
        self._describe(uuid, self._root, RUNTIME_GROUP, ordering=_EXPLICIT_CHILDREN)
        for row in rows:
            self._plain(row, uuid)

    def _group_of_device(self, number: int) -> None:
        device = self._trace.devices[number]
        uuid = self._uuids.of("device", *self._key, device.family, device.index)
        chip = chip_of(self._instance_type).name if self._instance_type else None
        title = _device_title(device, chip)
        self._describe(uuid, self._root, title, ordering=_EXPLICIT_CHILDREN)
        self._devices[number] = uuid

    def _group_of_counters(self) -> None:
        # The UI orders what stands directly below a process by name: one group of this name
        # keeps any number of counters below the devices.
        self._counters = self._uuids.of("counters", *self._key)
        self._describe(self._counters, self._root, COUNTER_GROUP, ordering=_EXPLICIT_CHILDREN)

    def _counter(self, row: _Row) -> int:
        track = row.track
        parent = self._counters if track.device is None else self._devices[track.device]
        return self._counter_row(track.name, track.unit, parent, ("counter", track.tid, track.name))

    def _counter_row(self, name: str, unit: str, parent: int, key: tuple[object, ...]) -> int:
        uuid = self._uuids.of(*key, parent, *self._key)
        if unit.lower() in _UNITS:
            counter = wire.encode_field(_UNIT, _UNITS[unit.lower()])
        else:
            counter = wire.encode_field(_UNIT_NAME, unit) if unit else b""
        self._describe(uuid, parent, name or "(unnamed)", counter=counter)
        return uuid

    # -- memory -----------------------------------------------------------------------------

    def _memory_places(self) -> list[tuple[tuple[int, int], int]]:
        """(device type, device id) of all memory events, with the device or NONE."""
        memory = self._trace.memory
        own = memory.process == self._number
        pairs = np.stack([memory.device_type[own], memory.device_id[own]], axis=1)
        places = sorted(set(map(tuple, pairs.tolist())))
        devices = {
            d.index: n
            for n, d in enumerate(self._trace.devices)
            if d.process == self._number and not d.detail
        }
        return [(p, NONE if p[0] == 0 else devices.get(max(p[1], 0), NONE)) for p in places]

    def _memory(self, place: tuple[int, int], device: int) -> None:
        kind, index = place
        if device != NONE:
            where = _device_label(self._trace.devices[device])
        else:
            where = "CPU" if kind == 0 else f"device type {kind}, index {index}"
        parent = self._counters if device == NONE else self._devices[device]
        allocated, reserved = (
            self._counter_row(f"{what} ({where})", "bytes", parent, ("memory", what, *place))
            for what in ("Allocated", "Reserved")
        )
        self._rows.memory[place] = allocated, reserved
        if not self._rows.memory_events:
            uuid = self._rows.memory_events = self._uuids.of("memory events", *self._key)
            self._mergeable(uuid, self._counters, "Allocations and frees", uuid)

    # -- threads ----------------------------------------------------------------------------

    def _thread_position(self, row: _Row) -> tuple[object, ...]:
        track = row.track
        main = track.tid == self._process.pid or "(main)" in track.name
        order = _LATER if track.sort_index is None else track.sort_index
        return (not main, order, -row.activity, row.number)

    def _tid(self, track: Track) -> int:
        """The thread's own number where viewers can take it, else a hash of it."""
        tid = track.tid
        if not isinstance(tid, int) or not 0 < tid < 2**31 or tid in self._used_tids:
            tid = self._uuids.of("tid", *self._key, track.tid, track.name, bits=31)
        self._used_tids.add(tid)
        return tid


_FIELDS = {
    "process": _PROCESS,
    "thread": _THREAD,
    "counter": _COUNTER,
    "ordering": _CHILD_ORDERING,
    "description": _DESCRIPTION,
    "merge": _MERGE,
    "merge_key": _MERGE_KEY,
}


def _row_codes(trace: Trace) -> Int64:
    """A number for the row of each slice: kind of track, track, part, from high bits to low.

    Rows stand in the file in this order. An arrow between slices of equal time points from what
    is read first, so callers have to stand before what they call.
    """
    kind = np.array([_KINDS_IN_ORDER.index(t.kind) for t in trace.tracks], np.int64)
    track = trace.slices.track.astype(np.int64)
    high = kind[track] << (_TRACK_BITS + 2) if len(track) else track
    return high | track << 2 | _parts(trace)


def _parts(trace: Trace) -> UInt8:
    """Which part of its track each slice belongs to; host tracks have one part."""
    of_role = np.full(max(Role) + 1, _WORK, np.uint8)
    for role, its_part in _PART_OF_ROLE.items():
        of_role[role] = its_part
    device = np.array([t.kind is TrackKind.DEVICE for t in trace.tracks], np.bool_)
    part: UInt8 = of_role[trace.slices.role]
    return np.where(device[trace.slices.track], part, np.uint8(_WORK)) if len(part) else part


def _lanes(row: Int32, layout: Layout) -> tuple[Int64, int]:
    """The lane of every slice, where too deep ones get lanes of their own; their number."""
    fold = layout.depth // _DEEPEST
    lane = layout.lane + fold * (int(layout.lane.max(initial=0)) + 1)
    return lane.astype(np.int64), int(np.count_nonzero(fold))


def _wanted(trace: Trace, distinct: Int64) -> list[tuple[int, int, bool]]:
    """(track, part, whether the track has other parts): rows of slices, then other rows."""
    tracks = (distinct >> 2 & (1 << _TRACK_BITS) - 1).tolist()
    repeated = Counter(tracks)
    rows = [
        (track, int(code & 3), repeated[track] > 1)
        for track, code in zip(tracks, distinct, strict=True)
    ]
    others = np.unique(np.concatenate([trace.instants.track, trace.counters.track]))
    return rows + [(track, _WORK, False) for track in others.tolist() if track not in repeated]


def _activity(trace: Trace, row: Int32, wanted: list[tuple[int, int, bool]]) -> Iterable[int]:
    slices = np.bincount(row, minlength=len(wanted))
    instants = np.bincount(trace.instants.track, minlength=len(trace.tracks))
    tracks = np.array([track for track, _, _ in wanted], np.intp)
    return (slices + instants[tracks]).tolist() if len(wanted) else []


def _process_keys(trace: Trace) -> list[tuple[int, tuple[object, ...]]]:
    """(process, its identity) in the order shown; processes without rows are left out."""
    used = {trace.tracks[t].process for t in _used_tracks(trace)}
    used |= set(np.unique(trace.memory.process).tolist())
    seen: Counter[tuple[object, ...]] = Counter()
    keys = []
    for number, process in enumerate(trace.processes):
        key = (process.host, process.rank, process.pid)
        seen[key] += 1
        if number in used:
            keys.append((number, (*key, seen[key])))
    return sorted(keys, key=lambda pair: (_process_rank(trace.processes[pair[0]], pair[0]), pair))


def _used_tracks(trace: Trace) -> list[int]:
    columns = (trace.slices.track, trace.instants.track, trace.counters.track)
    found: list[int] = used(np.concatenate(columns)).tolist()
    return found


def _process_rank(process: Process, number: int) -> int:
    """Where a process stands: by global rank, which also orders files that were joined."""
    if process.rank is not None and 0 <= process.rank < _FIRST_WITHOUT_RANK:
        return process.rank
    index = number if process.sort_index is None else process.sort_index
    return _FIRST_WITHOUT_RANK + min(max(index, 0), _FIRST_WITHOUT_RANK - 1)


def _process_title(process: Process) -> str:
    host = process.host or "localhost"
    if process.rank is not None:
        return f"rank {process.rank} ({host}) pid {process.pid}"
    return (
        f"{process.name} ({host}) pid {process.pid}"
        if process.name
        else f"{host} pid {process.pid}"
    )


def _device_label(device: Device) -> str:
    return f"{_FAMILIES.get(device.family, 'Device')} {device.index}"


def _device_title(device: Device, chip: str | None) -> str:
    if device.detail:
        return device.name
    label = _device_label(device)
    name = chip if chip and device.family == "neuron" else device.name
    if not name or name.lower() == label.lower():
        return label
    return name if name.lower().startswith(label.lower()) else f"{label}: {name}"
