"""What all rooms speak: a trace as columns, and the arithmetic on such columns.

Comes in: nothing. Goes out: the types that readers fill and writers read. Promise: times are
integer nanoseconds, rows are numpy columns, and there is no Python object per event.

The words are Perfetto's: a *track* holds *slices*, *instants* or *counter* samples; a *flow*
joins two slices. The arguments of an event stay JSON text, addressed by offset and length, until
somebody shows them.
"""

from __future__ import annotations

from neuron_tb.converters.model.clock import Alignment, Clock, ClockKind
from neuron_tb.converters.model.columns import (
    NONE,
    Bools,
    Columns,
    Float64,
    Int32,
    Int64,
    StringTable,
    UInt8,
    column,
)
from neuron_tb.converters.model.executions import Executions, LinkKind, Links, Source
from neuron_tb.converters.model.rows import (
    DEVICE_ROLES,
    MEASURED_ROLES,
    Counters,
    Flows,
    Instants,
    MemoryEvents,
    Role,
    Slices,
)
from neuron_tb.converters.model.steps import Steps
from neuron_tb.converters.model.trace import Trace, decode_arguments, merge
from neuron_tb.converters.model.tracks import Device, Process, Track, TrackKind

__all__ = [
    "DEVICE_ROLES",
    "MEASURED_ROLES",
    "NONE",
    "Alignment",
    "Bools",
    "Clock",
    "ClockKind",
    "Columns",
    "Counters",
    "Device",
    "Executions",
    "Float64",
    "Flows",
    "Instants",
    "Int32",
    "Int64",
    "LinkKind",
    "Links",
    "MemoryEvents",
    "Process",
    "Role",
    "Slices",
    "Source",
    "Steps",
    "StringTable",
    "Trace",
    "Track",
    "TrackKind",
    "UInt8",
    "column",
    "decode_arguments",
    "merge",
]
