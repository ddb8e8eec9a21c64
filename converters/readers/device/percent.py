"""Whether a device profile writes percentages as 0-100 or as fractions.

The schema calls the ``*_percent`` columns percentages, and real files hold fractions. A profile
that has the seconds behind a percentage settles it: ``tensor_engine_active_time`` over
``total_time`` beside ``tensor_engine_active_time_percent``, for instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuron_tb.converters.model.numbers import as_number, scale_between

_ACTIVE = "_active_time"


def percent_scale(summary: Mapping[str, Any]) -> float | None:
    """``PERCENT`` or ``FRACTION``, None where the summary does not settle it."""
    total = as_number(summary.get("total_time"))
    if not total or total < 0:
        return None
    found = set()
    for name in summary:
        if not name.endswith(_ACTIVE):
            continue
        seconds, written = (as_number(summary.get(key)) for key in (name, f"{name}_percent"))
        if seconds and written:
            found.add(scale_between(written, 100 * seconds / total))
    found.discard(None)
    return found.pop() if len(found) == 1 else None
