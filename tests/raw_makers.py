"""Raw files of the Neuron runtime, written in every form that they may have.

Events are those of the runtime's JSON dump (``tests.readers.neuron.test_nrt_events``);
attributes become text, as the runtime writes them. Synthetic: no such file of a real runtime is
public.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from neuron_tb.converters.readers.neuron.runtime_events import PHASES
from neuron_tb.converters.readers.ntrace import types as ntrace_types
from neuron_tb.converters.writers.wire import encode_field, encode_varint
from tests.makers import BASE_NS, HOST, PID, Event

Numbering = Literal["A", "B"]
Container = Literal["stream", "message"]

TYPES = {ntrace_types.type_name(n): n for n in range(ntrace_types.KNOWN_TYPES)}
EVENTS_FIELD, INTERNED_FIELD = 7, 9
"""Numbers of an ntrace_info's lists are not known; these are as good as any."""

_SHARED = {"timestamp_ns": 1, "nd_idx": 3, "nc_idx": 4, "thread_id": 8, "id": 9, "parent_id": 10}
_FIELDS = {
    "A": {**_SHARED, "event_type": 5, "phase": 13, "tracking_id": 14, "nrta_seq_id": 15},
    "B": {**_SHARED, "event_type": 15, "phase": 13, "tracking_id": 14, "nrta_seq_id": 16},
    "A swapped": {**_SHARED, "event_type": 5, "phase": 14, "tracking_id": 13, "nrta_seq_id": 15},
}


def event(kind: str, phase: str, us: float, tracking: int, **more: Any) -> Event:
    """An event as in the runtime's dump; ``data`` holds its attributes."""
    data = more.pop("data", {})
    return {
        "event_type": kind,
        "phase": phase,
        "nc_idx": 0,
        "tracking_id": tracking,
        "thread_id": 77,
        "data": data,
        "timestamp_ns": BASE_NS + round(us * 1000),
        **more,
    }


def execution(number: int, us: float, core: int = 0) -> list[Event]:
    """The events of one execution: the call, the wait, the hardware's interval, a sync point."""
    key = 10 * number + 1_000_000 * core
    device = 5_000_000 + round(us * 1000)
    sequence = (core + 1) << 48 | number
    run = {"exec_id": number, "model_id": 900_000_000_001 + number % 2}
    on = {"nc_idx": core}
    clock = {"nc_timestamp_ns": device}
    return [
        event("nrt_execute", "start", us, key + 1, data={"model_id": run["model_id"]}, **on),
        event("kbl_exec_pre", "start", us + 1, key + 2, nrta_seq_id=sequence, data=run, **on),
        event("kbl_exec_pre", "stop", us + 2, key + 2, nrta_seq_id=sequence, data={}, **on),
        event("nc_exec_running", "start", us + 3, key + 3, data={**run, **clock}, **on),
        event(
            "nc_exec_running",
            "stop",
            us + 53,
            key + 3,
            data={"nc_timestamp_ns": device + 50_000 + number},
            **on,
        ),
        event(
            "timestamp_sync_point",
            "instant",
            us + 54,
            key + 4,
            data={
                "exec_id": number,
                "nc_timestamp_ns": device + 51_000,
                "cpu_timestamp_ns": BASE_NS + round((us + 54) * 1000),
            },
            **on,
        ),
        event("nrt_execute", "stop", us + 60, key + 1, data={}, **on),
    ]


def executions(count: int, cores: int = 2) -> list[Event]:
    """Several executions on each core, in no order of time."""
    return [e for n in range(count) for core in range(cores) for e in execution(n, 100 * n, core)]


def encode(one: Event, numbering: str = "A", **extra: int) -> bytes:
    """One ntrace_event; zeros are not written, as proto3 wants it."""
    fields = _FIELDS[numbering]
    values = {
        **{key: one[key] for key in fields if key in one and one[key] is not None},
        "event_type": TYPES[one["event_type"]],
        "phase": PHASES.index(one["phase"]),
    }
    parts = {
        fields[key]: encode_field(fields[key], value) for key, value in values.items() if value
    }
    parts[12] = b"".join(
        encode_field(12, encode_field(1, key) + encode_field(2, str(value)))
        for key, value in one["data"].items()
    )
    parts |= {
        int(number.removeprefix("field")): value
        for number, value in (
            (name, encode_field(int(name.removeprefix("field")), value))
            for name, value in extra.items()
        )
    }
    return b"".join(parts[number] for number in sorted(parts))


def delimited(bodies: Iterable[bytes]) -> bytes:
    """A stream: each body after its length."""
    return b"".join(encode_varint(len(body)) + body for body in bodies)


def info(bodies: Sequence[bytes] = (), names: dict[int, str] | None = None) -> bytes:
    """An ntrace_info: texts, numbers, events if any, and interned names."""
    entries = b"".join(
        encode_field(2, encode_field(1, key) + encode_field(2, text))
        for key, text in (names or {}).items()
    )
    return (
        encode_field(1, HOST)
        + encode_field(2, "2.31.24.0")
        + encode_field(3, PID)
        + b"".join(encode_field(EVENTS_FIELD, body) for body in bodies)
        + (encode_field(INTERNED_FIELD, encode_field(1, 1) + entries) if names else b"")
        + encode_field(12, 2)
    )


def write_raw(
    directory: Path,
    events: Sequence[Event],
    numbering: Numbering = "A",
    container: Container = "stream",
    names: dict[int, str] | None = None,
) -> Path:
    """``ntrace.pb`` and ``trace_info.pb``; returns the directory."""
    bodies = [encode(one, numbering) for one in events]
    directory.mkdir(parents=True, exist_ok=True)
    whole = container == "message"
    raw = info(bodies, names) if whole else delimited(bodies)
    (directory / "ntrace.pb").write_bytes(raw)
    (directory / "trace_info.pb").write_bytes(info() if whole else info(names=names))
    return directory
