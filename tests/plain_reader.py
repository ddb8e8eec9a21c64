"""Reading a trace the obvious way: ``json.load``, then event by event.

Slow, and without a rule for anything odd; it says what the readers by columns have to say.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PlainSlice:
    """One slice, with its arguments as JSON in a fixed form."""

    start_ns: int
    duration_ns: int
    name: str
    category: str
    external_id: int
    correlation: int
    sequence_id: int
    exec_id: int
    arguments: str


def fixed_form(arguments: Any) -> str:
    """Equal arguments give equal text."""
    return json.dumps(arguments or {}, sort_keys=True, default=float)


def load(path: Path) -> Any:
    """The whole document, numbers with a point exact."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return json.loads(text, parse_float=Decimal)


def kineto_slices(path: Path) -> list[PlainSlice]:
    """The complete events (``X``) that have a time and a duration."""
    document = load(path)
    is_list = isinstance(document, list)
    base = 0 if is_list else int(document.get("baseTimeNanoseconds") or 0)
    return [
        _kineto_slice(event, base)
        for event in (document if is_list else document["traceEvents"])
        if event.get("ph") == "X" and _ns(event.get("ts")) is not None
        if (_ns(event.get("dur")) or 0) >= 0 and event.get("dur") is not None
    ]


def _kineto_slice(event: dict[str, Any], base: int) -> PlainSlice:
    start, length = _ns(event["ts"]), _ns(event["dur"])
    assert start is not None
    assert length is not None
    args = event.get("args") or event.get("attr") or {}
    known = args if isinstance(args, dict) else {}
    return PlainSlice(
        base + start,
        length,
        event.get("name") or "(unnamed)",
        event.get("cat") or "",
        _integer(known.get("External id", known.get("external id"))),
        _integer(known.get("correlation")),
        _integer(known.get("nrt_sequence_id", known.get("nrta_seq_id"))),
        _integer(known.get("exec_id")),
        fixed_form(args),
    )


def _ns(microseconds: Any) -> int | None:
    if microseconds is None:
        return None
    return int((Decimal(microseconds) * 1000).to_integral_value(ROUND_HALF_EVEN))


def _integer(value: Any) -> int:
    if isinstance(value, str):
        value = int(value) if value.lstrip("-").isdigit() else None
    if value is None or value != int(value):
        return -1
    return (int(value) + 2**63) % 2**64 - 2**63


def system_rows(path: Path) -> list[tuple[str, int, int, int, int]]:
    """(name, start, duration, sequence id, execution id) of every row of a system profile."""
    found = []
    for row in load(path)["trace_event"]:
        flows = [int(flow) for flow in row["flow_id"]]
        sequence = row.get("nrta_seq_id", next((f for f in flows if f >> 48), -1))
        execution = row.get("exec_id", next((f for f in flows if not f >> 48), -1))
        found.append((row["name"], row["timestamp"], row["duration"], sequence, execution))
    return found
