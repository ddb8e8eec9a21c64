"""Additions to the text of torch's table."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from torch.autograd import profiler_util

_format_time: Any = profiler_util._format_time
_EventList: Any = profiler_util.EventList

_BEFORE = "# of Calls"
_HEADING = "NEURON window"
_WIDTH = 13
_GAP = "  "
_DEVICE_HEADING = re.compile(r"Self NEURON( %)?|NEURON total|NEURON time avg")


def annotated(text: str, events: Any, arguments: Sequence[Any], more: dict[str, Any]) -> str:
    """Add to torch's ``text`` of ``events`` the column of windows and the closing lines.

    What was launched and not measured shows ``-`` in the columns of device time. ``arguments``,
    ``more``: those that the table was made with.
    """
    if not text:
        return text
    given = inspect.signature(_EventList.table).bind(events, *arguments, **more)
    given.apply_defaults()
    lines = text.split("\n")
    rules = [number for number, line in enumerate(lines) if line and not line.strip("- ")]
    shown = _shown(events, given.arguments)
    if len(rules) == 3 and any(e.unmeasured_launches or e.neuron_window_total for e in events):
        _change_rows(lines, rules, shown)
    return "\n".join([*lines[:-1], *events.lines, lines[-1]]) if events.lines else text


def _shown(events: Any, given: dict[str, Any]) -> list[Any]:
    """The events in the order of the table's rows."""
    rows = list(events)
    if given["sort_by"] is not None:
        name = re.sub("cuda|xpu|privateuse1", "device", given["sort_by"])
        rows.sort(key=lambda event: getattr(event, name), reverse=True)
    if given["top_level_events_only"]:
        rows = [event for event in rows if event.cpu_parent is None]
    limit = given["row_limit"]
    return rows[:limit] if limit >= 0 else rows


def _change_rows(lines: list[str], rules: Sequence[int], shown: Sequence[Any]) -> None:
    first, second, third = rules
    cells = [match.span() for match in re.finditer("-+", lines[first])]
    # Long headings are wider than their columns and push the others to the right.
    headings = re.split(r"\s{2,}", lines[second - 1].strip())
    stacked = any(event.stack for event in shown)
    rows: dict[int, Any] = {}
    number = second + 1
    for event in shown:
        rows[number] = event
        number += 1 + (max(len(event.stack) - 1, 0) + 1 if stacked else 0)
    if number != third or _BEFORE not in headings or len(headings) != len(cells):
        # Not the table that this code knows; the lines below still say what matters.
        return
    at, end = cells[headings.index(_BEFORE)]
    width = end - at
    device = [c for c, h in zip(cells, headings, strict=True) if _DEVICE_HEADING.fullmatch(h)]
    windows = any(event.neuron_window_total for event in shown)
    for number in range(first, third + 1):
        event = rows.get(number)
        line = lines[number]
        if event is not None and event.unmeasured_launches and not event.device_time_total:
            for a, b in device:
                line = line[:a] + "-".rjust(b - a) + line[b:]
        if windows:
            cell = "-" * _WIDTH if number in rules else ""
            place = at
            if number == second - 1:
                cell = _HEADING
                place = line.index(_BEFORE) + len(_BEFORE) - width
            elif event is not None:
                length = event.neuron_window_total
                cell = _format_time(length) if length else "-" if event.unmeasured_launches else ""
            line = line[:place] + cell.rjust(_WIDTH) + _GAP + line[place:]
        lines[number] = line
