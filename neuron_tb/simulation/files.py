"""The files of a capture: ``trace.json`` and ``system_profile.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from neuron_tb.simulation.process import BASE_NS, Process

Json = dict[str, Any]


def write_trace(directory: Path, process: Process, synthetic: str, **options: Any) -> Path:
    """``<instance>_pid_<pid>/<timestamp>/trace.json`` of one process; ``options`` as in Kineto."""
    name = f"{process.host}_pid_{process.pid}"
    path = directory / name / str(process.start_ns) / "trace.json"
    end_ns = max(thread.now_ns for thread in process.threads)
    events = sorted(process.events, key=lambda e: (e["ts"], -e["dur"]))
    for number, event in enumerate(e for e in events if e["cat"] in ("cpu_op", "user_annotation")):
        event["args"]["Ev Idx"] = number
    events = [
        *_metadata(process),
        *events,
        *process.flows,
        *sorted(process.memory.events, key=lambda e: e["ts"]),
        *_spans(process.start_ns, end_ns),
    ]
    group: Json = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "neuron:neuron"}
    group |= {"pg_size": process.world_size, "ranks": list(range(process.world_size))}
    _write(
        path,
        {
            "schemaVersion": 1,
            "synthetic": synthetic,
            "deviceProperties": [],
            "distributedInfo": {
                "backend": "neuron",
                "rank": process.rank,
                "world_size": process.world_size,
                "pg_count": 1,
                "pg_config": [group],
            },
            **options,
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": BASE_NS,
            "traceEvents": [_in_microseconds(event) for event in events],
            "traceName": "trace.json",
        },
    )
    return path


def _metadata(process: Process) -> Iterator[Json]:
    def of(tid: int, name: str, args: Json) -> Json:
        event = {"ph": "M", "name": name, "pid": process.pid, "tid": tid}
        return event | {"ts": process.start_ns, "args": args}

    yield of(0, "process_name", {"name": "python"})
    yield of(0, "process_labels", {"labels": "CPU"})
    yield of(0, "process_sort_index", {"sort_index": process.pid})
    for thread in process.threads:
        yield of(thread.tid, "thread_name", {"name": f"thread {thread.tid} ({thread.name})"})
        yield of(thread.tid, "thread_sort_index", {"sort_index": thread.tid})


def _spans(start_ns: int, end_ns: int) -> Iterator[Json]:
    """The recording windows of PyTorch's profiler and of Neuron's, and the end mark."""
    for name, number in (("PyTorch Profiler", 0), ("__neuron_profiler__", -1)):
        yield {"ph": "X", "cat": "Trace", "name": f"{name} ({number})", "pid": "Spans"} | {
            "tid": name,
            "ts": start_ns,
            "dur": end_ns - start_ns,
            "args": {"Op count": 0},
        }
    yield {"ph": "M", "name": "process_sort_index", "pid": "Spans", "tid": 0, "ts": start_ns} | {
        "args": {"sort_index": 536870912}
    }
    yield {"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces"} | {
        "tid": "Trace PyTorch Profiler",
        "ts": start_ns,
    }
    yield {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": end_ns}


def _in_microseconds(event: Json) -> Json:
    times = {"ts": (event["ts"] - BASE_NS) / 1000}
    if "dur" in event:
        times["dur"] = event["dur"] / 1000
    return event | times


def write_system_profile(
    path: Path,
    processes: Iterable[Process],
    synthetic: str,
    *,
    hbm_bytes: int,
    documented_spelling: bool = False,
    samples: dict[str, list[Json]] | None = None,
) -> Path:
    """Explorer's ``system_profile.json`` for these processes.

    ``documented_spelling``: as AWS's documents print it (``trace_events``, ``lnc_idx`` as text
    and a ``group``) instead of as newer files have it (``trace_event``, ``nc_idx``).
    ``samples``: the lists ``mem_usage``, ``cpu_util`` and ``device_mem_usage``.
    """
    samples = samples or {}
    rows = sorted((r for p in processes for r in p.rows), key=lambda r: r["timestamp"])
    first = min(r["timestamp"] for r in rows)
    last = max(r["timestamp"] + r["duration"] for r in rows)
    if documented_spelling:
        rows = [r | {"lnc_idx": str(r["lnc_idx"]), "group": "nrt-nc-000"} for r in rows]
    else:
        rows = [r | {"nc_idx": r["lnc_idx"]} for r in rows]
    metadata = {"first_ts_ns": str(first), "last_ts_ns": str(last), "ntff_version": 2}
    _write(
        path,
        {
            "synthetic": synthetic,
            "trace_events" if documented_spelling else "trace_event": rows,
            "mem_usage": samples.get("mem_usage", []),
            "cpu_util": samples.get("cpu_util", []),
            "device_mem_usage": samples.get("device_mem_usage", []),
            "system_profile_metadata": [metadata | {"hbm_capacity_bytes": hbm_bytes}],
            "device_profile_list": [],
            "warnings": [],
        },
    )
    return path


def _write(path: Path, document: Json) -> None:
    """JSON with one row per line, so that two versions of a file can be compared."""
    parts = []
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines = ",\n".join(json.dumps(row) for row in value)
            parts.append(f"{json.dumps(key)}: [\n{lines}\n]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(("{\n" + ",\n".join(parts) + "\n}\n").encode())
