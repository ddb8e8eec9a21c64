"""What a device profile says of itself as a whole: whose it is, its executions, its figures.

This is what places it on another time line and what a roofline needs; it costs no reading of the
large tables.
"""

from __future__ import annotations

import re
from typing import Any

from neuron_tb.converters.model import NONE
from neuron_tb.converters.readers.context import Context
from neuron_tb.converters.readers.device.names import FACT_TABLES
from neuron_tb.converters.readers.device.percent import percent_scale
from neuron_tb.converters.readers.device.tables import DeviceTables


def facts_of(tables: DeviceTables, context: Context) -> dict[str, Any]:
    """The facts, as plain values that JSON can hold.

    ``name``, ``source``; ``host``, ``pid``, ``core``, ``session``, ``model`` (None where unknown);
    ``percent_scale`` (see ``percent``); ``ExecutionInfo``: ``index``, ``neff``, ``start_ns``
    and ``end_ns`` of every execution; the rows of ``Metadata``, ``Summary`` and
    ``ThrottleSummary``; ``units``: the units of their columns that the profile states, by table
    and column.
    """
    facts = {name: tables.rows(name) for name in FACT_TABLES}
    columns = [(name, column) for name in FACT_TABLES for row in facts[name][:1] for column in row]
    units = {f"{n}.{c}": u for n, c in columns if (u := tables.unit_of(n, c)) is not None}
    summary = facts["Summary"]
    return {
        "name": tables.name,
        "source": str(tables.path),
        **_of_name(tables.name, context),
        "percent_scale": percent_scale(summary[0]) if summary else None,
        "ExecutionInfo": _executions(tables),
        "units": units,
        **facts,
    }


def _executions(tables: DeviceTables) -> list[dict[str, Any]]:
    table = tables.read("ExecutionInfo")
    if table is None:
        return []
    starts, _ = tables.nanoseconds("ExecutionInfo", table, "execution_start_ts", "start_ts")
    ends, _ = tables.nanoseconds("ExecutionInfo", table, "execution_end_ts", "end_ts")
    return [
        {
            "index": row.get("execution_index"),
            "neff": row.get("neff_name"),
            "start_ns": None if start == NONE else start,
            "end_ns": None if end == NONE else end,
        }
        for row, start, end in zip(table.to_pylist(), starts.tolist(), ends.tolist(), strict=True)
    ]


def _of_name(name: str, context: Context) -> dict[str, Any]:
    """Instance, process, core, session and model as the profile's name says, else its place.

    Explorer names profiles ``<display>_<instance>_pid_<pid>_nc_<n>_session_<s>`` (or
    ``…_model_<id>``); what stands before ``_pid_`` ends in the instance id.
    """
    before = name.partition("_pid_")[0] if "_pid_" in name else ""
    instance = re.search(r"(?:^|_)(i-[0-9a-z]+)$", before)

    def number(word: str) -> str | None:
        found = re.search(rf"(?:^|_){word}_(\w+?)(?=_(?:nc|session|model|pid)_|$)", name)
        return found[1] if found else None

    pid, core = number("pid"), number("nc")
    return {
        "host": instance[1] if instance else context.host,
        "before_pid": before,
        "pid": int(pid) if pid and pid.isdigit() else context.pid,
        "core": int(core) if core and core.isdigit() else None,
        "session": number("session"),
        "model": number("model"),
    }
