"""Device work in CUDA's words: kernels, the calls that issued them, and their streams."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import NONE, Bools, Int32, Int64, Source, Trace, UInt8
from neuron_tb.converters.model.ragged import distinct_rows, unique, used
from neuron_tb.converters.writers.cuda.words import Kind

_SMALLEST_CORRELATION = 1 << 16
_LARGEST_CORRELATION = 1 << 52


@dataclass(slots=True)
class Kernels:
    """Device work to be drawn as kernels and copies; columns of shape (k,), in order of start.

    ``execution``: position in ``trace.executions``. ``row``: position in ``Translation.rows``
    of its first device row. ``start_ns``, ``duration_ns``: of the whole execution. ``kind``: a
    ``Kind``. ``device``, ``stream``: numbers in the file. ``call``: position in
    ``Calls``. ``window``: not measured.
    """

    execution: NDArray[np.intp]
    row: Int32
    start_ns: Int64
    duration_ns: Int64
    kind: UInt8
    device: Int32
    stream: Int32
    call: Int32
    window: Bools

    def __len__(self) -> int:
        return len(self.row)


@dataclass(slots=True)
class Calls:
    """What issued the kernels, one row per correlation number; columns of shape (c,).

    ``row``: the recorded runtime call (position in ``Translation.rows``), NONE when there is
    none. ``operator``: the operator, likewise. ``correlation``: positive and unique. ``kind``:
    of its first kernel. ``first``: its first kernel.
    """

    row: Int32
    operator: Int32
    correlation: Int64
    kind: UInt8
    first: Int32

    @property
    def unrecorded(self) -> Bools:
        """Calls that nobody recorded, of a known operator: a marker must stand for them."""
        found: Bools = (self.row == NONE) & (self.operator != NONE)
        return found


class DeviceWork:
    """The device work of one process.

    ``rows``: the process' slices, positions in ``trace.slices``, ascending. ``numbers``: the
    number in the file of each device, by its position in ``trace.devices``. ``lane_names``: what
    each (device, stream) of the file is called; ``stream_of_track``: the first of a device's
    track. Both are known once ``streams`` has returned.
    """

    def __init__(
        self,
        trace: Trace,
        rows: NDArray[np.intp],
        numbers: dict[int, int],
        findings: Findings,
    ) -> None:
        self._trace, self._slices, self._rows = trace, trace.slices, rows
        self._numbers, self._findings = numbers, findings
        self.lane_names: dict[tuple[int, int], str] = {}
        self.stream_of_track: dict[int, tuple[int, int]] = {}
        self._local = np.full(len(self._slices) + 1, NONE, np.int32)
        self._local[rows] = np.arange(len(rows), dtype=np.int32)

    def kernels(self) -> tuple[Int32, Kernels]:
        """The kernel of every row, and all kernels; their streams and calls are still to come."""
        executions, trace = self._trace.executions, self._trace
        mine = np.flatnonzero(executions.counted & (self._local[executions.slice] != NONE))
        numbers = np.full(len(trace.devices) + 1, NONE, np.int32)
        for position, number in self._numbers.items():
            numbers[position] = number
        device = numbers[executions.device[mine]]
        self._findings.add(
            "device_beyond_limit",
            "executions on devices beyond the number that the viewer takes keep their own category",
            int(np.count_nonzero(device == NONE)),
        )
        mine, device = mine[device != NONE], device[device != NONE]
        row = self._local[executions.slice[mine]]
        kernel = np.full(len(self._rows), NONE, np.int32)
        kernel[row] = np.arange(len(row), dtype=np.int32)
        kernels = Kernels(
            execution=mine,
            row=row,
            start_ns=executions.start_ns[mine],
            duration_ns=executions.duration_ns[mine],
            kind=self._kinds(row, executions.transfer[mine]),
            device=device,
            stream=np.zeros(len(row), np.int32),
            call=np.zeros(len(row), np.int32),
            window=executions.source[mine] == Source.WINDOW,
        )
        return kernel, kernels

    def _kinds(self, row: Int32, transfer: Bools) -> UInt8:
        fills = np.array(
            [s.lower().startswith(("memset", "fill", "gpu_memset")) for s in self._trace.strings]
            or [False]
        )
        slices = self._slices.take(self._rows[row])
        fill = transfer & (fills[slices.name] | fills[slices.category])
        return np.where(fill, Kind.MEMSET, np.where(transfer, Kind.MEMCPY, Kind.KERNEL)).astype(
            np.uint8
        )

    def calls(self, kernels: Kernels) -> tuple[Int32, Calls]:
        """Set every kernel's call; the call of every row, and all calls.

        There is one per (runtime call, operator) pair: work of one call for several operators
        (a graph launch) needs a number
        per operator, because viewers credit all of a number's work to one operator.
        """
        executions = self._trace.executions
        launch = self._local[executions.launch[kernels.execution]]
        operator = self._local[executions.operator[kernels.execution]]
        k = len(kernels)
        main = np.full(len(self._rows) + 1, NONE, np.int32)  # of every launch, its first operator
        known = np.flatnonzero((launch != NONE) & (operator != NONE))[::-1]
        main[launch[known]] = operator[known]
        operator = np.where((launch != NONE) & (operator == NONE), main[launch], operator)
        lonely = np.where(launch == NONE, np.arange(k), NONE)  # one call each
        first, group = distinct_rows(launch, operator, lonely)
        first_kernel: Int32 = first.astype(np.int32)
        kernels.call[:] = group
        row, seen = launch[first_kernel].copy(), operator[first_kernel]
        owns = np.zeros(len(row), np.bool_)
        owns[distinct_rows(row)[0]] = True
        row[~owns] = NONE
        call = np.full(len(self._rows), NONE, np.int32)
        recorded = row != NONE
        call[row[recorded]] = np.flatnonzero(recorded)
        correlation = self._correlations(kernels, row, first_kernel)
        return call, Calls(row, seen, correlation, kernels.kind[first_kernel], first_kernel)

    def _correlations(self, kernels: Kernels, row: Int32, first: Int32) -> Int64:
        """The source's own numbers where they do the job, fresh ones above them elsewhere."""
        own = self._slices.correlation[self._rows]
        of_kernel = own[kernels.row]
        wanted = np.where((row != NONE) & (own[row] != NONE), own[row], of_kernel[first])
        agree = np.ones(len(first), np.bool_)
        same = (of_kernel == NONE) | (of_kernel == wanted[kernels.call])
        np.logical_and.at(agree, kernels.call, same)
        _, number = unique(wanted)
        keep = agree & (wanted > 0) & (np.bincount(number)[number] == 1)
        highest = max(int(own.max(initial=0)), 0)
        if highest > _LARGEST_CORRELATION:
            keep[:], highest = False, 0
        # HTA keeps row numbers in a column of these numbers' own integer type.
        shift = _SMALLEST_CORRELATION if highest < _SMALLEST_CORRELATION else 0
        wanted[keep] += shift
        wanted[~keep] = highest + shift + 1 + np.arange(np.count_nonzero(~keep))
        return wanted

    def streams(self, kernels: Kernels) -> Int32:
        """A positive number per (row of a device, lane), unique in the file.

        A stream keeps its own number if it is positive and no other device has it: HTA takes
        equal numbers for one stream whatever the device, and ignores stream 0.
        """
        track = self._slices.track[self._rows[kernels.row]]
        lane = _lanes_without_overlap(track, kernels.start_ns, kernels.duration_ns)
        self._findings.add(
            "device_overlap",
            "device rows that overlap others of their stream stand on a stream number of their own",
            int(np.count_nonzero(lane)),
        )
        first, number = distinct_rows(kernels.device, track, lane)
        distinct = [
            (device, of, at)
            for device, of, at in zip(
                kernels.device[first].tolist(),
                track[first].tolist(),
                lane[first].tolist(),
                strict=True,
            )
        ]
        keys = sorted(distinct, key=lambda key: (key[2] > 0, *key))
        taken: set[int] = set()
        numbers: dict[tuple[int, int, int], int] = {}
        for key in keys:
            tid = self._trace.tracks[key[1]].tid
            if key[2] == 0 and isinstance(tid, int) and 0 < tid < 2**31 and tid not in taken:
                numbers[key] = tid
                taken.add(tid)
        free = (n for n in range(1, 2**31) if n not in taken)
        for key in keys:
            if key not in numbers:
                numbers[key] = next(free)
        self.lane_names = {
            (device, numbers[device, t, number]): self._trace.tracks[t].name
            + (f", overlapping {number}" if number else "")
            for device, t, number in keys
        }
        self.stream_of_track = {
            t: (device, numbers[device, t, number]) for device, t, number in keys if number == 0
        }
        return np.array([numbers[key] for key in distinct], np.int32)[number]


def _lanes_without_overlap(track: Int32, start_ns: Int64, duration_ns: Int64) -> Int32:
    """Lanes so that no two slices of a lane share any time; rows are in order of start."""
    lane = np.zeros(len(track), np.int32)
    end = start_ns + duration_ns
    for number in used(track):
        rows = np.flatnonzero(track == number)
        reach = np.maximum.accumulate(end[rows])
        if not np.any(start_ns[rows][1:] < reach[:-1]):
            continue
        running: list[tuple[int, int]] = []
        free: list[int] = []
        for row, begin, stop in zip(
            rows.tolist(), start_ns[rows].tolist(), end[rows].tolist(), strict=True
        ):
            while running and running[0][0] <= begin:
                heapq.heappush(free, heapq.heappop(running)[1])
            own = heapq.heappop(free) if free else len(running)
            heapq.heappush(running, (stop, own))
            lane[row] = own
    return lane
