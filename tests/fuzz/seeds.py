"""Small sound inputs of every format, from which fuzzers start."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass

BASE = 1_767_189_312_000_000_000


@dataclass(frozen=True)
class Seed:
    """``name``: the file's name, by which some formats are told."""

    name: str
    data: bytes


def _chrome_traces() -> list[Seed]:
    head = f'{{"schemaVersion":1,"baseTimeNanoseconds":{BASE},"traceEvents":['
    texts = (
        head + '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1.5,"dur":2,'
        '"args":{"External id":1}},{"ph":"i","name":"[memory]","pid":1,"tid":1,"ts":2,"s":"t",'
        '"args":{"Device Type":0,"Device Id":-1,"Addr":5,"Bytes":512,"Total Allocated":512}}]}',
        '[{"ph":"B","name":"C:\\\\q","pid":"x","tid":1,"ts":"1"},'
        '{"ph":"E","ts":3,"pid":"x","tid":1,"args":{"a":["b"]}}]',
        head + '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":3,"dur":1,"bind_id":"0x1",'
        '"flow_in":true,"args":{"device":0,"stream":7,"correlation":9}},'
        '{"ph":"s","id":9,"cat":"ac2g","name":"ac2g","pid":1,"tid":1,"ts":1},'
        '{"ph":"f","bp":"e","id":9,"cat":"async","name":"x","pid":0,"tid":7,"ts":3}]}',
        '{"traceEvents":[{"ph":"b","cat":"r","name":"q","id2":{"local":"0x1"},"pid":1,"tid":1,"ts":1},'
        '{"ph":"n","cat":"r","id2":{"local":"0x1"},"pid":1,"ts":2,"scope":"s"},'
        '{"ph":"e","cat":"r","name":"q","id2":{"local":"0x1"},"pid":1,"tid":1,"ts":5},'
        '{"ph":"S","cat":"r","name":"o","id":1,"pid":1,"tid":1,"ts":1},'
        '{"ph":"F","cat":"r","name":"o","id":1,"pid":1,"tid":1,"ts":9},'
        '{"ph":"M","name":"process_name","pid":2147418112,"args":{"name":"rdmatop"}},'
        '{"ph":"X","cat":"privateuse1_runtime","name":"m","pid":2147418112,"tid":0,"ts":1,"dur":0,'
        '"args":{"rdmatop_counter":1,"tx":2.5}},{"ph":"C","name":"c","pid":1,"ts":1,"args":{"v":1}},'
        '{"ph":"X","name":"z","pid":1,"tid":1,"ts":1767189312000000.25,"dur":1,"attr":{"a":"b"}}],'
        '"viztracer_metadata":{"overflow":true,"baseTimeNanoseconds":5},"systemTraceEvents":"x"}',
    )
    return [
        *(Seed("trace.json", text.encode()) for text in texts),
        Seed("trace.json.gz", gzip.compress(texts[0].encode())),
        Seed("trace.json.gz", gzip.compress(texts[0].encode()) + gzip.compress(b"[]")),
    ]


def _system_profiles() -> list[Seed]:
    document = {
        "trace_events": [
            {
                "name": "nc_exec_running",
                "timestamp": BASE,
                "duration": 5,
                "nc_idx": 0,
                "process_id": "1",
                "exec_id": 3,
            },
            {
                "name": "nrta_execute_schedule",
                "timestamp": BASE,
                "duration": 2,
                "process_id": "1",
                "nrta_seq_id": 2**48 + 1,
                "flow_ids": [1, 2],
                "timestamp_unit": "ns",
            },
        ],
        "mem_usage": [{"timestamp": BASE, "usage": 2}],
        "cpu_util": [{"timestamp": BASE, "cpu_id": "0", "util": 2.5}],
        "warnings": ["x"],
    }
    return [Seed("system_profile.json", json.dumps(document).encode())]


def _runtime_events() -> list[Seed]:
    document = {
        "events": [
            {
                "event_type": "nc_exec_running",
                "phase": phase,
                "timestamp_ns": BASE + at,
                "tracking_id": 1,
                "nc_idx": 0,
                "data": {"nc_timestamp_ns": 5 + at, "exec_id": 1},
            }
            for at, phase in enumerate(("start", "stop", "stop", "start", "instant"))
        ],
        "data_version": 1,
    }
    return [Seed("nrt_events.json", json.dumps(document).encode())]


def _system_tables() -> list[Seed]:
    import pyarrow
    import pyarrow.parquet

    rows = 20
    table = pyarrow.table(
        {
            "name": ["nc_exec_running", "nrt_execute"] * (rows // 2),
            "start_ts": [BASE + number for number in range(rows)],
            "duration_ns": list(range(1, rows + 1)),
            "process_id": ["7"] * rows,
            "nc_idx": [0] * rows,
            "flow_ids": [[number] for number in range(rows)],
            "extra_attributes_json": ['{"a": 1}'] * rows,
        }
    )
    found = []
    for compression in ("snappy", "none"):
        sink = io.BytesIO()
        pyarrow.parquet.write_table(table, sink, compression=compression)
        found.append(Seed("SystemProfileEvents.parquet", sink.getvalue()))
    return found


def _device_json() -> list[Seed]:
    from tests import device_makers

    tables = device_makers.tables()
    small = {name: rows[:6] for name, rows in tables.items()}
    summaries = {"n_0a1b": [device_makers.summary()], "s_0a1b": [{"total_time": 1}]}
    return [
        Seed("device_profile_model_1.json", json.dumps(small).encode()),
        Seed("summary.json", json.dumps(summaries).encode()),
    ]


def _device_tables() -> list[Seed]:
    import pyarrow
    import pyarrow.parquet

    from tests import device_makers

    found = []
    for name, rows in device_makers.tables().items():
        sink = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sink, compression="none")
        found.append(Seed(f"{name}.parquet", sink.getvalue()))
    return found


def _raw_events() -> list[Seed]:
    from tests import raw_makers

    events = raw_makers.executions(2, 1)
    names = {900_000_000_001: "model"}
    return [
        Seed("ntrace.pb", raw_makers.delimited(raw_makers.encode(e, "A") for e in events)),
        Seed("ntrace.pb", raw_makers.info([raw_makers.encode(e, "B") for e in events], names)),
    ]


SEEDS: dict[str, Callable[[], list[Seed]]] = {
    "kineto_json": _chrome_traces,
    "system_profile": _system_profiles,
    "nrt_events": _runtime_events,
    "ntrace_pb": _raw_events,
    "explorer_parquet": _system_tables,
    "device_json": _device_json,
    "device_profile": _device_tables,
}
"""By the name of the reader's module."""
