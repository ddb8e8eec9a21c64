"""Strategies for texts that look like traces, with values and damages that traces have."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

NUMBERS = st.one_of(
    st.integers(-5, 5_000),
    st.sampled_from([0, -1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), -(2**70), 10**400]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1e308, -1e308, 5e-324, 1767189312000000.25, 0.1]),
)
WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["", "\0", "../../x", "ProfilerStep#1", "ProfilerStep#", "[memory]", "nrt_", "🙂"]
    ),
    st.sampled_from(
        ["12", "0x1f", "-3", "1.5", "nan", "1e999", "9" * 400, "1e99999999", "_", "１２"]
    ),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, WORDS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=6,
)
RAW_VALUES = (
    "NaN",
    "-Infinity",
    "1e999",
    "-1e999",
    "1E400",
    "nul",
    "01",
    "",
    "'x'",
    "[[[[[[",
    '"\\ud800"',
)


def _objects(keys: list[str], usual: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    fields = {key: st.one_of(usual.get(key, SCALARS), VALUES) for key in keys}
    return st.fixed_dictionaries({}, optional=fields)


_ARGS = _objects(
    [
        *(
            "External id",
            "external id",
            "correlation",
            "device",
            "stream",
            "name",
            "nc_id",
            "nc_idx",
        ),
        *("nrt_sequence_id", "neff_cache_key", "Device Type", "Device Id", "Addr", "Bytes"),
        *("Total Allocated", "labels", "sort_index"),
    ],
    {},
)
CHROME_EVENTS = _objects(
    [
        *("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "bp", "attr"),
        *("id2", "scope", "bind_id", "flow_in", "flow_out"),
    ],
    {
        "ph": st.sampled_from([*"XXXXBEiICMstfbenSTpF", "", "XX", "(", "P"]),
        "id2": st.one_of(_objects(["local", "global"], {}), VALUES),
        "cat": st.sampled_from(
            ["cpu_op", "kernel", "privateuse1_driver", "user_annotation", "gpu_memcpy", "Kernel"]
        ),
        "name": st.sampled_from(
            ["a", "process_name", "thread_name", "process_sort_index", "[memory]"]
        ),
        "ts": NUMBERS,
        "dur": NUMBERS,
        "args": _ARGS,
    },
)
PROFILE_ROWS = _objects(
    [
        *("name", "timestamp", "start_ts", "duration", "duration_ns", "timestamp_unit"),
        *("instance_id", "process_id", "thread_id", "nc_idx", "lnc_idx", "device_core_idx"),
        *(
            "exec_id",
            "nrta_seq_id",
            "flow_ids",
            "type",
            "trace_event_source",
            "framework_stream_id",
        ),
    ],
    {
        "name": st.sampled_from(["nc_exec_running", "nrta_execute_schedule", "cc_running", "x"]),
        "timestamp": st.integers(-1, 2**63),
        "duration": st.integers(-1, 2**40),
        "timestamp_unit": st.sampled_from(["ns", "us", "s", "?"]),
    },
)
RUNTIME_EVENTS = _objects(
    [
        *("event_type", "phase", "nc_idx", "tracking_id", "thread_id", "process_id", "instance_id"),
        *("timestamp_ns", "nrta_seq_id", "data"),
    ],
    {
        "event_type": st.sampled_from(["nrt_execute", "nc_exec_running", "x"]),
        "phase": st.sampled_from(["start", "stop", "instant"]),
        "timestamp_ns": st.integers(-1, 2**63),
        "tracking_id": st.integers(0, 3),
        "data": _objects(["nc_timestamp_ns", "exec_id", "name"], {}),
    },
)
_TOP = _objects(
    ["schemaVersion", "baseTimeNanoseconds", "distributedInfo", "deviceProperties", "traceName"],
    {
        "baseTimeNanoseconds": st.integers(-1, 2**64),
        "distributedInfo": _objects(["rank", "backend", "world_size"], {}),
        "deviceProperties": st.lists(_objects(["id", "name", "totalGlobalMem"], {}), max_size=2),
    },
)
_SAMPLES = _objects(
    ["mem_usage", "cpu_util", "device_mem_usage", "warnings"],
    dict.fromkeys(
        ("mem_usage", "cpu_util", "device_mem_usage", "warnings"),
        st.lists(
            st.one_of(_objects(["timestamp", "usage", "util", "cpu_id", "x_bytes"], {}), VALUES),
            max_size=2,
        ),
    ),
)


RUN_LISTS = _objects(
    ["schema", "run", "by", "sources", "files", "findings", "complete"],
    {
        "schema": st.just("neuron-tb run"),
        "sources": st.lists(WORDS, max_size=2),
        "files": st.lists(
            _objects(
                ["target", "path", "slices", "bytes"],
                {"target": st.sampled_from(["xprof", "torch-tb", "kineto", "perfetto"])},
            ),
            max_size=2,
        ),
        "findings": st.lists(_objects(["kind", "count", "message", "where"], {}), max_size=2),
    },
)
WINDOW_MANIFESTS = _objects(
    ["manifest", "version", "neuron_sessions", "rank", "steps"],
    {
        "manifest": st.just("neuron_tb profile"),
        "neuron_sessions": st.lists(WORDS, max_size=2),
        "steps": st.lists(NUMBERS, max_size=3),
    },
)
MAPPINGS = _objects(
    ["version", "data"],
    {
        "data": st.lists(
            _objects(
                ["nrta_seq_id", "framework_op_exec_ids"],
                {"framework_op_exec_ids": st.lists(_objects(["seq_nr"], {}), max_size=2)},
            ),
            max_size=2,
        )
    },
)
_INT64 = st.one_of(st.integers(-2, 5_000), st.sampled_from([2**53 + 1, 2**63 - 1, -(2**63)]))
_CELLS: tuple[tuple[pa.DataType, st.SearchStrategy[Any]], ...] = (
    (pa.int64(), _INT64),
    (pa.uint64(), st.sampled_from([0, 7, 2**63, 2**64 - 1])),
    (pa.int8(), st.integers(-3, 100)),
    (pa.float64(), st.one_of(st.floats(), st.floats(0, 1e6))),
    (pa.float32(), st.floats(width=32)),
    (pa.string(), WORDS.map(lambda text: text.encode("utf-8", "replace").decode())),
    (pa.large_string(), st.sampled_from(["nc_exec_running", '{"exec_id": 1}', "12"])),
    (pa.binary(), st.binary(max_size=4)),
    (pa.bool_(), st.booleans()),
    (pa.null(), st.none()),
    (pa.timestamp("us", "UTC"), st.integers(-5, 2**51)),
    (pa.duration("s"), st.integers(-5, 2**20)),
    (pa.date32(), st.integers(-5, 20_000)),
    (pa.decimal128(20, 2), st.decimals(-999, 999, places=2)),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "nc_exec_running"])),
    (pa.list_(pa.string()), st.lists(st.sampled_from(["1", "x", str(2**48 + 1)]), max_size=2)),
    (pa.list_(pa.int64()), st.lists(_INT64, max_size=2)),
    (pa.struct({"a": pa.binary()}), st.fixed_dictionaries({"a": st.binary(max_size=2)})),
)
"""Types of columns, each with values."""


@st.composite
def parquet_tables(draw: st.DrawFn, sound: bytes) -> bytes:
    """A table with some columns of another type, others gone, and new values in those that stay."""
    table = pq.read_table(io.BytesIO(sound))
    rows = draw(st.integers(0, 4))
    columns = {}
    for name in [*table.column_names, "another"]:
        fate = draw(st.sampled_from(["same", "same", "same", "typed", "typed", "gone"]))
        if fate == "typed" or (fate == "same" and name == "another"):
            kind, cells = draw(st.sampled_from(_CELLS))
            values = draw(
                st.lists(st.one_of(cells, cells, st.none()), min_size=rows, max_size=rows)
            )
            columns[name] = pa.array(values, kind)
        elif fate == "same":
            wanted = [draw(st.integers(0, len(table) - 1)) for _ in range(rows)]
            columns[name] = table[name].take(pa.array(wanted, pa.int64()))
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="none")
    return sink.getvalue()


def documents(key: str, rows: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Documents with their rows under ``key``; a bare list where that is ""."""
    lists = st.lists(st.one_of(rows, rows, rows, VALUES), max_size=6)
    if not key:
        return lists
    listed = st.builds(lambda value: {key: value}, st.one_of(lists, lists, lists, VALUES))
    return st.builds(
        lambda *parts: {k: v for p in parts for k, v in p.items()}, _TOP, listed, _SAMPLES
    )


@st.composite
def damaged_texts(draw: st.DrawFn, document: st.SearchStrategy[Any]) -> bytes:
    """A document as text, with up to three damages."""
    text = json.dumps(draw(document), ensure_ascii=draw(st.booleans()))
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 3]))):
        at = draw(st.integers(0, len(data)))
        junk = draw(
            st.one_of(
                st.binary(max_size=6),
                st.sampled_from([raw.encode() for raw in RAW_VALUES]),
                st.text(st.sampled_from('{}[]",:\\'), max_size=4).map(str.encode),
            )
        )
        data[at : at + draw(st.integers(0, 8))] = junk
    return bytes(data)


@st.composite
def damaged_bytes(draw: st.DrawFn, sound: bytes) -> bytes:
    """Any content with one to four damages: bytes replaced, inserted, removed or copied."""
    data = bytearray(sound)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.one_of(st.integers(0, len(data)), st.integers(0, 40).map(lambda n: -n)))
        start = draw(st.integers(0, max(len(data) - 1, 0)))
        junk = draw(
            st.one_of(
                st.binary(max_size=8),
                st.sampled_from([b"\xff" * 9, b"\0" * 8, b"\x80" * 12, b"\xff\xff\xff\x7f"]),
                st.just(bytes(data[start : start + draw(st.integers(0, 60))])),
            )
        )
        where = max(len(data) + at, 0) if at < 0 else at
        data[where : where + draw(st.integers(0, 12))] = junk
    if draw(st.integers(0, 9)) == 0:
        del data[draw(st.integers(0, len(data))) :]
    return bytes(data)
