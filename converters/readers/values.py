"""Building a Trace's columns from the lists a decoder gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.model import Bools, Float64, Int32, Int64
from neuron_tb.converters.model.arguments import Arguments, Text

Number = int | float | str | None
"""What a number in a trace may be: numbers are also written as text."""

_MOST_DIGITS = 19
_EXACT_BELOW = float(2**43)
"""Below this many microseconds a double still tells single nanoseconds apart."""


Numbers = Sequence[Any] | Float64
"""Numbers of many rows: as decoded, or as an array where all were plain numbers."""


class ArgumentStore:
    """Collects arguments as JSON text; rows address them by start and length.

    ``source``: text that rows may address too, from 0 on.
    """

    def __init__(self, source: Text = b"") -> None:
        self._source = source
        self._parts: list[bytes] = []
        self._size = len(source)

    def add(self, raws: Sequence[msgspec.Raw | bytes | memoryview]) -> tuple[Int64, Int32]:
        """Starts and lengths of these texts; ``null``, ``{}`` and absent ones have length 0."""
        kept = [b"" if raw in NO_ARGUMENTS else raw for raw in map(bytes, raws)]
        lengths = np.fromiter(map(len, kept), np.int64, len(kept))
        return self.add_joined(b"".join(kept), lengths)

    def add_joined(self, text: bytes, lengths: Int64) -> tuple[Int64, Int32]:
        """Starts and lengths of texts that stand back to back already."""
        starts = self._size + np.cumsum(lengths) - lengths
        self._parts.append(text)
        self._size += len(text)
        return starts, lengths.astype(np.int32)

    def generated(self) -> bytes:
        """All texts that are not the source's."""
        return b"".join(self._parts)

    def add_generated(self, text: bytes, starts: Int64) -> None:
        """Take over another store's texts of the same source; its starts are changed to here."""
        starts[starts >= len(self._source)] += self._size - len(self._source)
        self._parts.append(text)
        self._size += len(text)

    def arguments(self) -> Arguments:
        """All texts."""
        return Arguments([self._source, *self._parts])


NO_ARGUMENTS = frozenset((b"", b"null", b"{}"))
"""JSON that says nothing about an event."""


def as_floats(numbers: list[Any]) -> Numbers:
    """Plain numbers of microseconds as an array, if doubles tell single nanoseconds apart."""
    if not {int, float}.issuperset(map(type, numbers)):
        return numbers
    try:
        values = np.array(numbers, np.float64)
    except OverflowError:  # integers of hundreds of digits
        return numbers
    return values if np.all(np.abs(values) < _EXACT_BELOW) else numbers


def nanoseconds(microseconds: Numbers, base_ns: int = 0) -> tuple[Int64, Bools]:
    """Microseconds (numbers or text) as integer nanoseconds after ``base_ns``, exactly.

    Returns the times and which of them are usable. Numbers decoded as doubles are exact below
    2**43 us (the largest time Kineto writes beside its base time is 7.9e12 us).
    """
    if isinstance(microseconds, np.ndarray):
        values = microseconds
    else:
        checked = as_floats(list(microseconds))
        if not isinstance(checked, np.ndarray):
            return _nanoseconds_one_by_one(checked, base_ns)
        values = checked
    # The whole microseconds apart, because their thousandfold would use up the double's digits.
    whole = np.floor(values)
    parts = np.rint((values - whole) * 1000).astype(np.int64)
    return whole.astype(np.int64) * 1000 + parts + base_ns, np.ones(len(values), np.bool_)


def loses_digits(microseconds: Iterable[Number]) -> bool:
    """Whether a double among these is too large to hold nanoseconds: decode as decimals then."""
    return any(type(v) is float and abs(v) >= _EXACT_BELOW for v in microseconds)


def _nanoseconds_one_by_one(microseconds: Sequence[Any], base_ns: int) -> tuple[Int64, Bools]:
    times = np.zeros(len(microseconds), np.int64)
    usable = np.zeros(len(microseconds), np.bool_)
    for row, value in enumerate(microseconds):
        exact = _exact_ns(value)
        if exact is not None and abs(base_ns + exact) < 2**63:
            times[row] = base_ns + exact
            usable[row] = True
    return times, usable


def _exact_ns(value: Any) -> int | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value * 1000
    try:
        exact = Decimal(value)
        if not exact.is_finite() or exact.adjusted() > _MOST_DIGITS:  # 1e999999 is a long integer
            return None
        return int((exact * 1000).to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, ValueError, OverflowError, TypeError):
        return None
