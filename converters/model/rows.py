"""What a trace holds rows of: slices, instants, counter samples, memory events and flows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from neuron_tb.converters.model.columns import Columns, Float64, Int32, Int64, UInt8, column


class Role(IntEnum):
    """What a slice is. Readers decide it from category, name and evidence; nothing else does."""

    OTHER = 0
    OPERATOR = 1
    """A framework operator on the host (Kineto's ``cpu_op``)."""
    ANNOTATION = 2
    """A range the user or the profiler named, such as ``ProfilerStep#3``."""
    PYTHON = 3
    RUNTIME = 4
    """A call into the device's runtime on the host (``nrt_execute``, ``cudaLaunchKernel``)."""
    KERNEL = 5
    """Measured device time of computation (``nc_exec_running``, a CUDA kernel)."""
    TRANSFER = 6
    """Measured device time of a copy or a fill."""
    WINDOW = 7
    """Enqueue to completion as the host saw it (``privateuse1_driver``): not device busy time."""
    DEVICE_DETAIL = 8
    """Device rows drawn but never counted: parts of an execution, such as ``cc_running``."""
    DEVICE_ANNOTATION = 9
    """A copy of a host annotation on a device row (``gpu_user_annotation``)."""
    SPAN = 10
    """The profiler's own recording window."""


MEASURED_ROLES = (Role.KERNEL, Role.TRANSFER)
DEVICE_ROLES = (Role.KERNEL, Role.TRANSFER, Role.WINDOW, Role.DEVICE_DETAIL, Role.DEVICE_ANNOTATION)


@dataclass(slots=True)
class Slices(Columns):
    """Everything that has a start and a length, one row each.

    ``start_ns``, ``duration_ns``: nanoseconds, duration never negative. ``name``, ``category``:
    positions in ``Trace.strings``. ``track``: position in ``Trace.tracks``. ``role``: a
    ``Role``. ``external_id`` (Kineto's id shared by an operator and its device work),
    ``correlation`` (runtime call to device row), ``sequence_id`` (Neuron's asynchronous sequence
    number: 16-bit unit, 48-bit counter), ``exec_id`` (one execution of a NeuronCore): NONE when
    absent. ``args_start``, ``args_length``: bytes of ``Trace.arguments`` (length 0: none).
    """

    start_ns: Int64 = column(np.int64)
    duration_ns: Int64 = column(np.int64)
    name: Int32 = column(np.int32)
    category: Int32 = column(np.int32)
    track: Int32 = column(np.int32)
    role: UInt8 = column(np.uint8)
    external_id: Int64 = column(np.int64)
    correlation: Int64 = column(np.int64)
    sequence_id: Int64 = column(np.int64)
    exec_id: Int64 = column(np.int64)
    args_start: Int64 = column(np.int64)
    args_length: Int32 = column(np.int32)

    @property
    def end_ns(self) -> Int64:
        """``start_ns + duration_ns``."""
        return self.start_ns + self.duration_ns


@dataclass(slots=True)
class Instants(Columns):
    """Points in time: nanoseconds, name, category, track and arguments as in ``Slices``."""

    time_ns: Int64 = column(np.int64)
    name: Int32 = column(np.int32)
    category: Int32 = column(np.int32)
    track: Int32 = column(np.int32)
    args_start: Int64 = column(np.int64)
    args_length: Int32 = column(np.int32)


@dataclass(slots=True)
class Counters(Columns):
    """Samples of counter tracks: nanoseconds, value in the track's unit."""

    time_ns: Int64 = column(np.int64)
    value: Float64 = column(np.float64)
    track: Int32 = column(np.int32)


@dataclass(slots=True)
class MemoryEvents(Columns):
    """Allocations and frees as PyTorch reports them (``[memory]``).

    ``process``: position in ``Trace.processes``. ``device_type``: PyTorch's number (0 CPU,
    1 CUDA, 20 PrivateUse1). ``device_id``: the device's index, NONE for CPU. ``address``: NONE when
    not reported. ``bytes``: positive for an allocation, negative for a free. ``total_allocated``
    and ``total_reserved``: bytes in use after the event, NONE when not reported. ``track``: the
    thread it happened on. Arguments as in ``Slices``. ``instants`` does not repeat these.
    """

    time_ns: Int64 = column(np.int64)
    process: Int32 = column(np.int32)
    device_type: Int32 = column(np.int32)
    device_id: Int32 = column(np.int32)
    address: Int64 = column(np.int64)
    bytes: Int64 = column(np.int64)
    total_allocated: Int64 = column(np.int64)
    total_reserved: Int64 = column(np.int64)
    track: Int32 = column(np.int32)
    args_start: Int64 = column(np.int64)
    args_length: Int32 = column(np.int32)


@dataclass(slots=True)
class Flows(Columns):
    """Arrows between slices that the source itself recorded.

    ``source`` and ``target`` are rows of ``Trace.slices``; ``kind`` is a position in
    ``Trace.strings`` (Kineto: ``ac2g``, ``fwdbwd``).
    """

    source: Int32 = column(np.int32)
    target: Int32 = column(np.int32)
    kind: Int32 = column(np.int32)
