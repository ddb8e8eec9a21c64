"""Where rows stand: processes, devices and tracks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class TrackKind(Enum):
    """What a track shows."""

    THREAD = "thread"
    """Work of one host thread as the framework saw it."""
    RUNTIME = "runtime"
    """Calls of one host thread into the Neuron runtime, from a system profile."""
    DEVICE = "device"
    """One row of a device: a stream or queue, or a physical NeuronCore."""
    COUNTER = "counter"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Process:
    """One profiled process. ``pid`` is the real one; equal pids on two hosts are two processes.

    ``host`` is the instance id or host name ("" when unknown), ``rank`` the global rank.
    ``clocks_apart``: the times of its system profile and of its framework's trace differ by an
    unknown amount, so that containment of one in the other means nothing. ``clock_noise_ns``: each
    of the profile's times is late or early by up to so much.
    """

    host: str
    pid: int
    rank: int | None = None
    name: str = ""
    labels: str = ""
    sort_index: int | None = None
    source: str = ""
    clocks_apart: bool = False
    clock_noise_ns: int = 0


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a process: a logical NeuronCore, or another accelerator.

    ``index`` counts inside the process. ``family`` is ``neuron``, ``cuda``, ``rocm``, ``xpu``,
    ``mtia``, ``privateuse1`` or ``other``; ``name`` is what a person calls it. ``detail``: no
    device of its own, but the engines, DMA queues and counters of the one with this index, from
    a device profile; its rows are never counted as device time.
    """

    process: int
    index: int
    family: str
    name: str
    memory_bytes: int | None = None
    detail: bool = False


@dataclass(frozen=True, slots=True)
class Track:
    """One row of the time line.

    ``process`` and ``device`` are positions in ``Trace.processes`` and ``Trace.devices``
    (``device`` is None on host rows). ``tid`` is the thread id, or the stream's number on a
    device row. ``physical_core`` is set for NeuronCore rows of a system profile. ``unit`` is a
    counter's unit ("bytes", "%"). ``core``: on runtime rows, the logical core the calls are for.
    """

    process: int
    kind: TrackKind
    name: str
    tid: int | str = 0
    device: int | None = None
    physical_core: int | None = None
    sort_index: int | None = None
    unit: str = ""
    core: int | None = None
