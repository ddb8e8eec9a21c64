"""Small traces written as files, for tests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BASE_NS = 1_759_300_074_000_000_000
PID = 501
HOST = "i-0test"

Event = dict[str, Any]


def complete(cat: str, name: str, ts: Any, dur: Any, **more: Any) -> Event:
    """A complete event of the main thread; keywords override fields or add them."""
    event = {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": PID, "ts": ts, "dur": dur}
    return {**event, "args": {}, **more}


def operator(name: str, ts: Any, dur: Any, external: int | None = None, **more: Any) -> Event:
    """A cpu_op, with an External id if given."""
    args = {} if external is None else {"External id": external}
    return complete("cpu_op", name, ts, dur, args=args, **more)


def step(number: int, ts: Any, dur: Any, **more: Any) -> Event:
    """A ProfilerStep annotation."""
    return complete("user_annotation", f"ProfilerStep#{number}", ts, dur, **more)


def kernel(
    name: str, ts: Any, dur: Any, correlation: int, stream: int = 7, device: int = 0
) -> Event:
    """A CUDA kernel."""
    args = {"device": device, "stream": stream, "correlation": correlation}
    return complete("kernel", name, ts, dur, pid=device, tid=stream, args=args)


def launch(
    ts: Any, dur: Any, correlation: int, name: str = "cudaLaunchKernel", **args: Any
) -> Event:
    """A runtime call that launches a kernel."""
    return complete("cuda_runtime", name, ts, dur, args={"correlation": correlation, **args})


def window(name: str, ts: Any, dur: Any, external: int, **args: Any) -> Event:
    """A privateuse1_driver row on stream 0 of device 0."""
    return complete(
        "privateuse1_driver", name, ts, dur, pid=0, tid=0, args={"External id": external, **args}
    )


def write_kineto(path: Path, events: Iterable[Any], **top: Any) -> Path:
    """A trace.json with a base time; ``top`` adds or removes (None) top-level keys."""
    keys: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, **top}
    document = {k: v for k, v in keys.items() if v is not None}
    document["traceEvents"] = list(events)
    return write_json(path, document)


def write_json(path: Path, document: Any) -> Path:
    """Any JSON document, gzip when the name ends so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(document).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def system_row(name: str, start_us: float, length_us: float, **more: Any) -> Event:
    """A row of a system profile; times in microseconds after the base."""
    return {
        "name": name,
        "timestamp": BASE_NS + round(start_us * 1000),
        "duration": round(length_us * 1000),
        "instance_id": HOST,
        "process_id": str(PID),
        "thread_id": PID,
        **more,
    }


def execution(start_us: float, length_us: float, exec_id: int | None = None, **more: Any) -> Event:
    """An nc_exec_running row of core 0."""
    row = system_row("nc_exec_running", start_us, length_us, nc_idx=0, **more)
    del row["thread_id"]
    return row if exec_id is None else {**row, "exec_id": exec_id}
