"""What the nanoseconds of a trace count from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ClockKind(Enum):
    """What the nanoseconds of a trace count from."""

    EPOCH = "epoch"
    """The Unix epoch."""
    RELATIVE = "relative"
    """An origin nobody stated."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time line of a trace.

    ``base_ns`` is the file's own base time (Kineto's ``baseTimeNanoseconds``), 0 when it had
    none. ``resolution_ns`` is the finest difference the source could express: 1 for nanosecond
    sources, 250 where epoch microseconds went through a double.
    """

    kind: ClockKind = ClockKind.EPOCH
    base_ns: int = 0
    resolution_ns: int = 1
