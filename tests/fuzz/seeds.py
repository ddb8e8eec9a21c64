"""Small sound inputs of every format, from which fuzzers start."""

from __future__ import annotations

import functools
import gzip
import io
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from neuron_tb.converters.writers.wire import encode_field

BASE = 1_767_189_312_000_000_000


@dataclass(frozen=True)
class Seed:
    """``name``: the file's path, by which some formats are told; ``beside``: sound files."""

    name: str
    data: bytes
    beside: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def _each(files: Mapping[str, bytes]) -> list[Seed]:
    """A seed for every file, with the others beside it."""
    return [
        Seed(name, data, {other: text for other, text in files.items() if other != name})
        for name, data in files.items()
    ]


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


def _parquet(rows: list[dict[str, object]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sink, compression="none")
    return sink.getvalue()


def _system_directory() -> list[Seed]:
    event = {"name": "nc_exec_running", "start_ts": BASE, "duration_ns": 5, "process_id": "7"}
    unit = {"table_name": "SystemProfileEvents", "field_name": "start_ts", "field_unit": "ns"}
    tables: dict[str, dict[str, object]] = {
        "SystemProfileEvents_0": event,
        "SystemProfileEvents_1": {**event, "start_ts": BASE + 9, "extra": [1.5]},
        "HostMemUsage": {"timestamp": BASE, "used_bytes": 5, "instance_id": "i-0"},
        "CpuUsage": {"timestamp": BASE, "cpu_id": "0", "util_percent": 2.5},
        "SystemProfileHbmUsage": {"timestamp": BASE, "hbm_idx": 0, "tensors_bytes": 5},
        "Warning": {"message": "dropped 5 events"},
        "SchemaFields": unit,
        "SystemProfileMetadata": {"version": "2", "start": BASE},
    }
    return _each({f"{name}.parquet": _parquet([row]) for name, row in tables.items()})


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
    from tests import device_makers

    tables = {name: rows[:6] for name, rows in device_makers.tables().items()}
    files = {f"{name}.parquet": _parquet(rows) for name, rows in tables.items()}
    return [*(Seed(name, data) for name, data in files.items()), *_each(files)]


def _raw_events() -> list[Seed]:
    from tests import raw_makers

    events = raw_makers.executions(2, 1)
    names = {900_000_000_001: "model"}
    stream = raw_makers.delimited(raw_makers.encode(e, "A") for e in events)
    times = [encode_field(1, BASE + number * 10**9) for number in range(3)]
    cpu = [
        time + encode_field(2, number) + b"\x1d\0\0\x20\x41" for number, time in enumerate(times)
    ]
    memory = [time + encode_field(2, 1 << 30) for time in times]
    directory = {
        "ntrace.pb": stream,
        "trace_info.pb": raw_makers.info(names=names),
        "cpu_util.pb": raw_makers.delimited(cpu),
        "host_mem.pb": raw_makers.delimited(memory),
    }
    return [
        *_each(directory),
        Seed("ntrace.pb", stream),
        Seed("ntrace.pb", raw_makers.info([raw_makers.encode(e, "B") for e in events], names)),
    ]


def _beside_traces() -> list[Seed]:
    """Files that say how a trace relates to others."""
    operator = (
        f'{{"baseTimeNanoseconds":{BASE},"traceEvents":[{{"ph":"X","cat":"cpu_op","name":"a",'
        '"pid":7,"tid":7,"ts":1,"dur":2,"args":{"Sequence number":1}}]}'
    ).encode()
    call = {"name": "nrta_execute_schedule", "timestamp": BASE, "duration": 2, "process_id": "7"}
    manifest = {
        "manifest": "neuron_tb profile",
        "version": 1,
        "neuron_sessions": ["i-0_pid_7/5"],
        "rank": 0,
        "steps": [1, 2],
    }
    mapping = {
        "version": 1,
        "data": [{"nrta_seq_id": 5, "framework_op_exec_ids": [{"seq_nr": 1}]}],
    }
    files = {
        "i-0_pid_7/5/trace.json": operator,
        "i-0_pid_7/5/framework_mapping_5.json": json.dumps(mapping).encode(),
        "i-0_pid_7/5/system_profile.json": json.dumps(
            {"trace_events": [{**call, "nrta_seq_id": 5}]}
        ).encode(),
        "w.pt.trace.json": operator,
        "w.pt.trace.neuron.json": json.dumps(manifest).encode(),
    }
    return _each(files)


@functools.cache
def _results() -> list[Seed]:
    """What ``merge`` reads: a run's list and its files, with those of another rank beside."""
    from neuron_tb.converters.convert import convert
    from tests.cluster import write_cluster

    files = {}
    with tempfile.TemporaryDirectory() as place:
        captures = write_cluster(Path(place, "captures"), 1, 2, steps=(1,), operators=1)
        for number, capture in enumerate(captures):
            out = Path(place, f"rank{number}")
            convert(capture, out=out, run="r")
            for path in (p for p in out.rglob("*") if p.is_file()):
                files[path.relative_to(place).as_posix()] = path.read_bytes()
    unlisted = {name: data for name, data in files.items() if not name.endswith("r.json")}
    return [
        *(seed for seed in _each(files) if seed.name == "rank0/r.json"),
        *(seed for seed in _each(unlisted) if seed.name.startswith("rank0/")),
    ]


SEEDS: dict[str, Callable[[], list[Seed]]] = {
    "kineto.read": _chrome_traces,
    "neuron.system_profile": _system_profiles,
    "neuron.nrt_events": _runtime_events,
    "ntrace.read": _raw_events,
    "neuron.explorer_parquet": _system_tables,
    "device.json_tables": _device_json,
    "device_profile": _device_tables,
    "explorer_directory": _system_directory,
    "beside_traces": _beside_traces,
    "results": _results,
}
"""By the name of the reader's module, or by what several readers read together."""

RESULTS = "results"
"""Inputs of ``merge``; all others are captures."""
