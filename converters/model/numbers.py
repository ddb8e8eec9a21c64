"""Numbers as files write them: as text, too large, as a percentage or as a fraction."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from neuron_tb.converters.model.columns import NONE, Int64

PERCENT, FRACTION = 1.0, 100.0
"""What to multiply a written value by, so that it becomes a percentage."""

_MOST_DIGITS = 19
_TOLERANCE = 0.02


def integer(value: object) -> int:
    """An identifier as int64: numbers, text with a number in it; NONE for anything else.

    Unsigned values over 2**63 wrap, so that equal identifiers stay equal.
    """
    if isinstance(value, str):
        try:
            value = int(value, 0)
        except ValueError:
            return NONE
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return NONE
    return value if -(2**63) <= value < 2**63 else ((value + 2**63) % 2**64) - 2**63


def integers(values: Sequence[object]) -> Int64:
    """``integer`` of every value, shape (n,)."""
    return np.fromiter(
        (v if type(v) is int and -1 < v < 2**63 else integer(v) for v in values),
        np.int64,
        len(values),
    )


def as_number(value: object) -> float | None:
    """A finite number, which may be written as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def scale_between(written: float, percent: float) -> float | None:
    """What makes a written value a known percentage: one of the two scales, or None."""
    for scale in (PERCENT, FRACTION):
        if abs(written * scale - percent) <= _TOLERANCE * abs(percent):
            return scale
    return None
