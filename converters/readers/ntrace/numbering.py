"""Which field of a raw runtime event is what, decided by the events themselves.

The format of ``ntrace.pb`` is not published, and the two descriptions of it that exist number the
fields differently. Both agree on the time (1), the cores (3, 4), the attributes (12) and some
more. The rest is decided by evidence: which field holds phases, which one pairs starts with stops,
which one names types that go with the attributes' keys, which one holds sequence ids. Where the
evidence is missing or contradicts itself the file is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.model import Bools, Int64
from neuron_tb.converters.readers.neuron.runtime_events import codes
from neuron_tb.converters.readers.ntrace.types import ATTRIBUTE_TYPES, NEVER_INSTANT, ONLY_POINTS
from neuron_tb.converters.readers.ntrace.wire_scan import LENGTH, VARINT, Scan

TIME, DEVICE, CORE, HINT, DURATION, THREAD, ID, PARENT, STATUS = 1, 3, 4, 6, 7, 8, 9, 10, 11
ATTRIBUTES = 12
"""Field numbers that both descriptions give."""

LAST_KNOWN = 16

EARLIEST_NS, LATEST_NS = 1_400_000_000_000_000_000, 2_600_000_000_000_000_000
"""2014 to 2052: times of the host are nanoseconds since the Unix epoch."""

_MOST_TYPES = 64
_MOST_CORES = 1 << 16
_MOST_UNITS = 1 << 12
_SEQUENCE_COUNTER_BITS = 48
_MOST_PHASE = 3
_START, _STOP, _INSTANT = 1, 2, 3
_PAIRED_SHARE = 0.5
_REPEATED_SHARE = 0.01
_PHASED_SHARE = 0.9
_MOST_FIELDS = 64
_HOST_TIME_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Numbering:
    """Field numbers of a file's events, and the sentence parts that say why."""

    event_type: int
    phase: int
    tracking: int
    sequence: int
    number: int
    evidence: tuple[str, ...]


@dataclass(slots=True)
class _Layout:
    """One of the two descriptions, and what speaks for and against it in a file."""

    event_type: int
    sequence: int
    number: int
    fits: int = 0
    paired: int = 0
    single: int = 0
    against: list[str] = field(default_factory=list)


def looks_like_events(scan: Scan) -> Bools:
    """Which messages have the shape of an event, shape (n,): wire types and a plausible time."""
    fits = scan.whole.copy()
    for number, wire in scan.shapes:
        wanted = LENGTH if number in (HINT, ATTRIBUTES) else VARINT
        if (wire != wanted and number <= LAST_KNOWN) or number > _MOST_FIELDS:
            fits &= ~scan.present(number, wire)
    time = scan.column(TIME)
    plausible: Bools = fits & (time >= 0) & (time < LATEST_NS)
    return plausible


def settle(scan: Scan, attribute_rows: dict[bytes, NDArray[np.integer]]) -> Numbering:
    """Decide the numbering of ``scan``'s events.

    ``attribute_rows``: for each key of the attributes the events that have it. Raises
    NeuronTbError, whose text is the end of a sentence, when the evidence does not decide.
    """
    if not attribute_rows:
        raise NeuronTbError("no event has attributes, which are what tells the fields apart")
    _check_common_fields(scan)
    reasons: list[str] = []
    for phase, tracking in ((13, 14), (14, 13)):
        if not _holds_phases(scan, phase):
            reasons.append(f"field {phase} does not hold only phases (1 to {_MOST_PHASE})")
            continue
        layouts = [_Layout(5, 15, 2), _Layout(15, 16, 5)]
        for layout in layouts:
            _weigh(layout, scan, attribute_rows, phase, tracking)
        standing = [layout for layout in layouts if layout.fits and not layout.against]
        if len(standing) == 1:
            return _numbering(standing[0], layouts, scan, phase, tracking)
        if standing:
            raise NeuronTbError(
                "both known numberings of its fields fit, which leaves open what they mean"
            )
        reasons += [
            f"event_type in field {layout.event_type}: {_reason(layout)}" for layout in layouts
        ]
    raise NeuronTbError(f"no known numbering of its fields fits ({'; '.join(reasons)})")


def _numbering(
    chosen: _Layout, layouts: list[_Layout], scan: Scan, phase: int, tracking: int
) -> Numbering:
    other = next(layout for layout in layouts if layout is not chosen)
    units = np.unique(_units(scan, chosen.sequence))
    return Numbering(
        chosen.event_type,
        phase,
        tracking,
        chosen.sequence,
        chosen.number,
        (
            f"phase in field {phase} (its values are 1 to {_MOST_PHASE})",
            f"tracking_id in field {tracking} ({chosen.paired:,} of its values pair a start with "
            f"a stop, {chosen.single:,} stand alone)",
            f"event_type in field {chosen.event_type} ({chosen.fits:,} attributes go with it and "
            f"none contradicts; but {_reason(other)})",
            f"nrta_seq_id in field {chosen.sequence} (upper 16 bits {int(units[0])} to "
            f"{int(units[-1])})"
            if len(units)
            else "no nrta_seq_id",
        ),
    )


def _reason(layout: _Layout) -> str:
    if layout.against:
        return layout.against[0]
    return f"no attribute goes with types in field {layout.event_type}"


def _check_common_fields(scan: Scan) -> None:
    time = scan.column(TIME)
    timed = time[time > 0]
    host = (timed >= EARLIEST_NS) & (timed < LATEST_NS)
    # Hardware events may be in the device's own time; the others are never.
    if not len(timed) or np.count_nonzero(host) < _HOST_TIME_SHARE * len(timed):
        raise NeuronTbError("field 1 does not hold nanoseconds since the Unix epoch")
    for number, name in ((DEVICE, "devices"), (CORE, "cores")):
        values = scan.column(number)
        if len(values) and not 0 <= int(values.min()) <= int(values.max()) < _MOST_CORES:
            raise NeuronTbError(f"field {number} does not hold numbers of {name}")


def _holds_phases(scan: Scan, number: int) -> bool:
    present = scan.present(number)
    values = scan.column(number)[present]
    return float(np.mean(present)) >= _PHASED_SHARE and bool(
        ((values >= _START) & (values <= _MOST_PHASE)).all()
    )


def _weigh_pairs(layout: _Layout, scan: Scan, types: Int64, phase: Int64, tracking: int) -> None:
    """Whether the tracking ids pair starts with stops, within a core and a type."""
    rows = np.flatnonzero(scan.present(tracking) & ((phase == _START) | (phase == _STOP)))
    if not len(rows):
        layout.against.append(f"field {tracking} pairs no start with a stop")
        return
    core, number, is_start = (
        scan.column(CORE)[rows],
        scan.column(tracking)[rows],
        phase[rows] == _START,
    )
    key = codes(core, types[rows], number)
    starts = np.bincount(key, weights=is_start)
    stops = np.bincount(key, weights=~is_start)
    layout.paired = int(np.count_nonzero((starts > 0) & (stops > 0)))
    layout.single = len(starts) - layout.paired
    repeated = np.count_nonzero((starts > 1) | (stops > 1))
    if repeated > _REPEATED_SHARE * len(starts) or layout.paired < _PAIRED_SHARE * len(starts):
        layout.against.append(
            f"field {tracking} does not pair starts with stops ({layout.paired:,} of "
            f"{len(starts):,} values do, {repeated:,} repeat)"
        )
    different = _halves_of_different_types(codes(core, number), types[rows], is_start)
    if different:
        layout.against.append(
            f"field {layout.event_type} gives {different:,} starts another type than their stops"
        )


def _weigh(
    layout: _Layout,
    scan: Scan,
    attribute_rows: dict[bytes, NDArray[np.integer]],
    phase_number: int,
    tracking: int,
) -> None:
    """Count what speaks for and against a layout."""
    types, phase = scan.column(layout.event_type), scan.column(phase_number)
    if len(types) and not 0 <= int(types.min()) <= int(types.max()) < _MOST_TYPES:
        layout.against.append(f"field {layout.event_type} has values that are no types of events")
        return
    for key, allowed in ATTRIBUTE_TYPES.items():
        rows = attribute_rows.get(key.encode())
        if rows is None:
            continue
        fits = np.isin(types[rows], list(allowed.types))
        layout.fits += int(np.count_nonzero(fits))
        if allowed.only and not fits.all():
            wrong = int(types[rows][~fits][0])
            layout.against.append(
                f"field {layout.event_type} would give the attribute {key} to type {wrong}"
            )
    for wanted, bad in ((ONLY_POINTS, phase == _START), (NEVER_INSTANT, phase == _INSTANT)):
        wrong_phase = np.isin(types, list(wanted)) & bad
        if wrong_phase.any():
            layout.against.append(
                f"field {layout.event_type} would give type {int(types[wrong_phase][0])} a phase "
                "that it never has"
            )
    units = _units(scan, layout.sequence)
    if len(units) and not 1 <= int(units.min()) <= int(units.max()) < _MOST_UNITS:
        layout.against.append(f"field {layout.sequence} does not hold sequence ids")
    if layout.sequence != LAST_KNOWN and scan.present(LAST_KNOWN).any():
        layout.against.append(f"field {LAST_KNOWN} exists, which this numbering does not have")
    _weigh_pairs(layout, scan, types, phase, tracking)


def _units(scan: Scan, sequence: int) -> Int64:
    """The upper 16 bits of all sequence ids."""
    values = scan.column(sequence)[scan.present(sequence)]
    units: Int64 = (values.view(np.uint64) >> np.uint64(_SEQUENCE_COUNTER_BITS)).astype(np.int64)
    return units


def _halves_of_different_types(key: NDArray[np.intp], types: Int64, is_start: Bools) -> int:
    """Of (core, tracking id) ``key`` with one start and one stop, how many have two types."""
    count = int(key.max()) + 1
    starts, stops = np.bincount(key, is_start, count), np.bincount(key, ~is_start, count)
    start_type, stop_type = np.zeros(count, np.int64), np.zeros(count, np.int64)
    start_type[key[is_start]] = types[is_start]
    stop_type[key[~is_start]] = types[~is_start]
    return int(np.count_nonzero((starts == 1) & (stops == 1) & (start_type != stop_type)))
