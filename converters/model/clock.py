"""What the nanoseconds of a trace count from, and how its clocks were compared."""

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


@dataclass(frozen=True, slots=True)
class Alignment:
    """What comparing two clocks has found.

    ``clock``, ``against``: which ones. ``offset_ns``: what to add to the first one's times, on
    average, to have the other's; None where it could not be found. ``drift_ppm``: how much more
    per million nanoseconds. ``bound_ns``: how wrong that may be. ``method``: by which evidence;
    ``anchors``: how much of it. ``moved``: whether times were changed.
    """

    clock: str
    against: str
    method: str
    anchors: int
    offset_ns: int | None = None
    drift_ppm: float = 0.0
    bound_ns: int | None = None
    moved: bool = False
