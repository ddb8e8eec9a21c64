"""Processes, devices and tracks of a Chrome-trace JSON file.

The file knows rows only as (pid, tid). Kineto uses the pid of a device row for the device's
number and the tid for its stream; names come from ``M`` events, devices from
``deviceProperties``.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

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
from neuron_tb.converters.model.numbers import integer
from neuron_tb.converters.readers.context import Context
from neuron_tb.converters.readers.kineto.pairs import AsyncRow

Key = tuple[object, object]
"""(pid, tid) of the file, numbers in text form made numbers."""

PROFILER_PIDS = ("Spans", "Traces", "")
"""Pids under which Kineto writes its own marks."""

_HOST_ROLES = (Role.OPERATOR, Role.ANNOTATION, Role.PYTHON, Role.RUNTIME)


class Metadata:
    """Names, labels and sort indices from ``M`` events."""

    def __init__(self, events: list[Any]) -> None:
        self._values: dict[tuple[str, object, object], Any] = {}
        for event in events:
            try:
                args = msgspec.json.decode(event.args) if len(memoryview(event.args)) else {}
            except msgspec.DecodeError:
                continue
            if isinstance(args, dict) and event.name and args:
                key = (event.name, identifier(event.pid), identifier(event.tid))
                self._values.setdefault(key, next(iter(args.values())))
                if event.name.startswith("process_"):
                    self._values.setdefault(
                        (event.name, identifier(event.pid), None), self._values[key]
                    )

    def process(self, name: str, pid: object) -> Any:
        """A value of a process, None when absent."""
        return self._values.get((name, pid, None))

    def thread(self, name: str, key: Key) -> Any:
        """A value of a thread, None when absent."""
        return self._values.get((name, *key))


class Processes:
    """Which pids of the file are processes; device pids and the profiler's own are not."""

    def __init__(
        self,
        trace: Trace,
        keys: list[Key],
        context: Context,
        names: Metadata,
        metadata: dict[str, Any],
        source: str,
    ) -> None:
        self._trace, self._keys, self._context = trace, keys, context
        self._names, self._metadata, self._source = names, metadata, source
        self._numbers: dict[object, int] = {}
        self.main = 0

    def choose(self, thread: Int32, role: UInt8) -> None:
        """Make the main process, the one with most operators, number 0."""
        pid_of_thread = [key[0] for key in self._keys]
        for roles in ((Role.OPERATOR,), _HOST_ROLES, (Role.OTHER,)):
            chosen = np.isin(role, roles)
            counts = Counter(pid_of_thread[t] for t in thread[chosen].tolist())
            hosts = [(n, pid) for pid, n in counts.items() if pid not in PROFILER_PIDS]
            if hosts:
                self.number(max(hosts, key=lambda pair: pair[0])[1])
                return
        others = [pid for pid in pid_of_thread if pid not in PROFILER_PIDS]
        self.number(self._context.pid if self._context.pid is not None else (others or [0])[0])

    def number(self, pid: object) -> int:
        """The process of a pid, made on first use."""
        if pid in PROFILER_PIDS and self._numbers:
            return self.main
        if pid not in self._numbers:
            self._numbers[pid] = len(self._trace.processes)
            self._trace.processes.append(self._make(pid))
        return self._numbers[pid]

    def _make(self, pid: object) -> Process:
        context, info = self._context, self._metadata.get("distributedInfo") or {}
        first = not self._trace.processes
        rank = info.get("rank") if isinstance(info, dict) else None
        named = self._names.process("process_name", pid)
        host = context.host or str(self._metadata.get("host_name") or "")
        number = integer(pid)
        if first and context.pid is not None:
            number = context.pid
        return Process(
            host=host,
            pid=number if number >= 0 else zlib.crc32(str(pid).encode()) & 0x7FFFFFFF,
            rank=rank if isinstance(rank, int) else context.rank,
            name=str(named or (pid if isinstance(pid, str) else "")),
            labels=str(self._names.process("process_labels", pid) or ""),
            sort_index=_optional(self._names.process("process_sort_index", pid)),
            source=self._source,
        )


class Devices:
    """The devices of the main process, made on first use."""

    def __init__(self, trace: Trace, process: int, metadata: dict[str, Any], family: str) -> None:
        self._trace, self._process, self._family = trace, process, family
        listed = metadata.get("deviceProperties") or metadata.get("computeProperties")
        listed = listed if isinstance(listed, list) else []
        self._listed = {integer(d.get("id")): d for d in listed if isinstance(d, dict)}
        self._numbers: dict[int, int] = {}

    def number(self, index: int) -> int:
        """The device with this index."""
        if index not in self._numbers:
            known = self._listed.get(index, {})
            memory = integer(known.get("totalGlobalMem"))
            self._numbers[index] = len(self._trace.devices)
            self._trace.devices.append(
                Device(
                    self._process,
                    index,
                    self._family,
                    str(
                        known.get("name")
                        or _DEVICE_NAMES.get(self._family, "device {}").format(index)
                    ),
                    memory if memory > 0 else None,
                )
            )
        return self._numbers[index]


_DEVICE_NAMES = {
    "neuron": "NeuronCore {}",
    "privateuse1": "PrivateUse1 device {}",
    "cuda": "CUDA device {}",
    "rocm": "ROCm device {}",
    "xpu": "XPU device {}",
    "mtia": "MTIA device {}",
}


class Places:
    """Tracks, made on first use, for (thread of the file, device)."""

    def __init__(
        self,
        trace: Trace,
        keys: list[Key],
        names: Metadata,
        processes: Processes,
        devices: Devices,
    ) -> None:
        self._trace, self._keys, self._names = trace, keys, names
        self._processes, self._devices = processes, devices
        self._numbers: dict[tuple[int, int, str], int] = {}
        self._device_of_pid: dict[object, int] = {}

    def tracks(self, thread: Int32, device: Int64, role: UInt8 | None = None) -> Int32:
        """The track of every row; ``device`` is NONE on host rows."""
        windows = np.zeros(len(thread), np.int64) if role is None else (role == Role.WINDOW)
        packed = (thread.astype(np.int64) << 33) + ((device.astype(np.int64) + 1) << 1) + windows
        distinct, inverse = np.unique(packed, return_inverse=True)
        for code in distinct.tolist():
            where = (code >> 1 & 0xFFFFFFFF) - 1
            if where != NONE:
                self._device_of_pid.setdefault(self._keys[code >> 33][0], where)
        found = [
            self._track(c >> 33, (c >> 1 & 0xFFFFFFFF) - 1, bool(c & 1)) for c in distinct.tolist()
        ]
        return np.array(found, np.int32)[inverse.reshape(-1)] if found else np.empty(0, np.int32)

    def counter(self, thread: int, label: str) -> int:
        """The track of a counter with this label."""

        def make() -> Track:
            pid = self._keys[thread][0]
            return Track(self._processes.number(pid), TrackKind.COUNTER, label)

        return self._get((thread, NONE, label), make)

    def _track(self, thread: int, device: int, window: bool) -> int:
        pid, tid = key = self._keys[thread]
        named = self._names.thread("thread_name", key)
        order = _optional(self._names.thread("thread_sort_index", key))
        shown: int | str = tid if isinstance(tid, int | str) else str(tid)

        def on_device() -> Track:
            name = str(named or (f"stream {tid}" if isinstance(tid, int) else tid)).strip()
            if window:
                name = f"{name} (host window)"
            return Track(
                self._processes.main,
                TrackKind.DEVICE,
                name,
                shown,
                self._devices.number(device),
                sort_index=order,
            )

        def on_host() -> Track:
            if isinstance(tid, AsyncRow):
                process = self._processes.number(pid)
                return Track(process, TrackKind.OTHER, str(tid), shown)
            kind = TrackKind.OTHER if pid in PROFILER_PIDS else TrackKind.THREAD
            name = "profiler marks" if tid == "" else str(named or f"thread {tid}").strip()
            if kind is TrackKind.OTHER and tid != "":
                name = str(tid)
            return Track(self._processes.number(pid), kind, name, shown, sort_index=order)

        on_thread = device == NONE and not isinstance(tid, AsyncRow)
        if on_thread and pid in self._device_of_pid and not self._is_process(pid):
            device = self._device_of_pid[pid]
        key_of_track = (thread, device, "window" if window else "")
        return self._get(key_of_track, on_host if device == NONE else on_device)

    def _is_process(self, pid: object) -> bool:
        return pid in self._processes._numbers

    def _get(self, key: tuple[int, int, str], make: Callable[[], Track]) -> int:
        if key not in self._numbers:
            track = make()
            self._numbers[key] = len(self._trace.tracks)
            self._trace.tracks.append(track)
        return self._numbers[key]


def identifier(value: object) -> object:
    """Identifiers written as text and as numbers are the same identifier."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 40:
        return int(value)
    if value is None:
        return 0
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _optional(value: object) -> int | None:
    number = integer(value)
    return None if number == NONE else number
