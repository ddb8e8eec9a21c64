"""Undamaged traces in the layouts that writers use, over 200 kB each, with each event's place."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

BASE_NS = 1_767_189_312_000_000_000
_EVENTS = 900


@dataclass(frozen=True)
class Text:
    """``ranges``: first and last byte (exclusive) of every event; ``events``: these, decoded."""

    name: str
    text: bytes
    ranges: tuple[tuple[int, int], ...]
    events: tuple[dict[str, Any], ...]
    key: str


def _kineto_events(seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    names = (
        "aten::linear",
        "aten::_to_copy",
        'nn.Module: Linear "head"',
        "train.py(12): <module>",
        "C:\\code\\model.py(7): forward",
        "übertragen::Δ",
        "void kernel<float, 4>(float*, int)",
    )
    events: list[dict[str, Any]] = []
    for number in range(_EVENTS):
        ts = 1000 + number * 10 + rng.randrange(8000) / 1000
        args: dict[str, Any] = {"External id": number + 1, "Ev Idx": number}
        kind = number % 9
        if kind < 4:
            args |= {"Input Dims": [[4, number], [], [2, 3]], "Input type": ["float", "", "Scalar"]}
            category = "cpu_op"
        elif kind < 7:
            args |= {"Python parent id": None, "Call stack": "a.py(1): f;b.py(2): g, {x: [1]}"}
            category = "python_function"
        elif kind == 7:
            args |= {"device": 0, "stream": 0, "grid": [number, 1, 1], "est. occupancy %": 31.5}
            category = "privateuse1_driver"
        else:
            events.append(
                {
                    "ph": "s" if number % 2 else "f",
                    "id": number,
                    "pid": 7101,
                    "tid": 7101,
                    "ts": ts,
                    "cat": "ac2g",
                    "name": "ac2g",
                    "bp": "e",
                }
            )
            continue
        events.append(
            {
                "ph": "X",
                "cat": category,
                "name": f"{names[number % len(names)]}#{number}",
                "pid": 7101,
                "tid": 7101 + number % 3,
                "ts": ts,
                "dur": rng.randrange(9000) / 1000,
                "args": args,
            }
        )
    return events


def _profile_rows(seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "name": rng.choice(("nc_exec_running", "nrta_execute_schedule", "nrt_tensor_read")),
            "timestamp": BASE_NS + number * 50_000 + rng.randrange(40_000),
            "duration": rng.randrange(40_000),
            "instance_id": "i-0test",
            "process_id": "7101",
            "thread_id": 7101,
            "nc_idx": number % 2,
            "nrta_seq_id": (1 << 48) + number,
            "extra": {"note": f"row {number}, {{of}} [{_EVENTS}]", "list": [{"a": 1}, {"b": 2}]},
        }
        for number in range(_EVENTS)
    ]


def _runtime_events(seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "event_type": rng.choice(("nc_exec_running", "nrt_execute", "cc_running")),
            "phase": "stop" if number % 2 else "start",
            "timestamp_ns": BASE_NS + number * 50_000 + rng.randrange(40_000),
            "tracking_id": number // 2,
            "nc_idx": number % 4,
            "process_id": 7101,
            "thread_id": 7101 + number % 3,
            "data": {
                "nc_timestamp_ns": 5_000_000 + number * 50_000,
                "model_name": f"graph {number}, {{of}} [{_EVENTS}]",
                "exec_id": number // 2,
                "notes": ["a", {"b": [1, 2]}],
            },
        }
        for number in range(_EVENTS)
    ]


def _with_places(
    name: str,
    key: str,
    head: str,
    rows: list[dict[str, Any]],
    tail: str,
    dump: Callable[[Any], str],
) -> Text:
    parts, ranges = [head.encode()], []
    place = len(parts[0])
    for number, row in enumerate(rows):
        if number:
            parts.append(b",\n" if "\n" in head else b", ")
            place += len(parts[-1])
        parts.append(dump(row).encode())
        ranges.append((place, place + len(parts[-1])))
        place += len(parts[-1])
    text = b"".join([*parts, tail.encode()])
    assert len(text) >= 200_000
    json.loads(text)
    return Text(name, text, tuple(ranges), tuple(rows), key)


def _as_kineto_prints(row: dict[str, Any]) -> str:
    """Two levels over several lines, as libkineto's output_json.cpp does."""
    fields = {k: json.dumps(v, ensure_ascii=False) for k, v in row.items() if k != "args"}
    text = ", ".join(f'"{k}": {v}' for k, v in fields.items())
    text = re.sub(r', "ts"', ',\n    "ts"', text)
    if "args" in row:
        args = json.dumps(row["args"], ensure_ascii=False)
        text += f',\n    "args": {{\n      {args[1:-1]}\n    }}'
    return "{" + text + "\n  }"


_HEAD = f"""{{
  "schemaVersion": 1,
  "deviceProperties": [
    {{ "id": 0, "name": "NeuronCore", "totalGlobalMem": 25769803776 }}
  ],
  "distributedInfo": {{"backend": "neuron", "rank": 0, "world_size": 2}},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": {BASE_NS},
  "traceEvents": [
"""


def texts() -> tuple[Text, ...]:
    """One text of each layout."""
    kineto = _kineto_events(1)
    name_first = [dict(sorted(e.items(), key=lambda i: i[0] != "name")) for e in kineto]
    compact = f'{{"schemaVersion":1,"baseTimeNanoseconds":{BASE_NS},"traceEvents":['
    profile_tail = f'],"mem_usage":[{{"timestamp":{BASE_NS},"usage":5}}],"warnings":[]}}'
    return (
        _with_places(
            "kineto",
            "traceEvents",
            _HEAD,
            kineto,
            '\n  ],\n  "traceName": "/tmp/trace.json"\n}\n',
            _as_kineto_prints,
        ),
        _with_places(
            "compact",
            "traceEvents",
            compact,
            name_first,
            '],"displayTimeUnit":"ms"}',
            lambda row: json.dumps(row),
        ),
        _with_places("list", "", "[\n", kineto, "\n]\n", lambda row: json.dumps(row, indent=1)),
        _with_places(
            "profile",
            "trace_events",
            '{"trace_events":[',
            _profile_rows(2),
            profile_tail,
            lambda row: json.dumps(row),
        ),
        _with_places(
            "runtime",
            "events",
            '{"data_version":1,"events":[',
            _runtime_events(3),
            "]}",
            lambda row: json.dumps(row),
        ),
    )
