"""Reading Neuron Explorer's Parquet tables."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.load import load
from neuron_tb.converters.model import LinkKind, Trace
from neuron_tb.converters.readers import read_file
from tests.makers import BASE_NS, HOST, PID, operator, write_json, write_kineto


def row(name: str, start_us: float, length_us: float, **more: Any) -> dict[str, Any]:
    start, length = BASE_NS + round(start_us * 1000), round(length_us * 1000)
    return {
        "id": 1 << 60,
        "name": name,
        "start_ts": start,
        "end_ts": start + length,
        "duration_ns": length,
        "trace_event_source": "neuron_hw" if name == "nc_exec_running" else "neuron_rt",
        "instance_id": HOST,
        "process_id": PID,
        "thread_id": PID,
        "nc_idx": 0,
        "pcore_idx": None,
        "flow_id": None,
        "extra_attributes_json": None,
        **more,
    }


def write_table(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def facts(trace: Trace) -> list[tuple[str, int, int]]:
    s = trace.slices
    return sorted(
        (trace.strings[n], int(t), int(d))
        for n, t, d in zip(s.name, s.start_ns, s.duration_ns, strict=True)
    )


ROWS = [
    row("nrta_execute_schedule", 5, 3, flow_id=[str(1 << 48 | 9)]),
    row("kbl_exec_wait", 8, 40, thread_id=9, flow_id=[str(1 << 48 | 9), "4"]),
    row("nc_exec_running", 12, 30, pcore_idx=4, flow_id=["4"]),
    row("nc_exec_running", 12, 31, pcore_idx=5, flow_id=["4"]),
]


def test_documented_table_gives_runtime_calls_executions_and_flows(cases: Path) -> None:
    trace = load(cases / "neuron" / "SystemProfileEvents.parquet")
    assert [(n, d) for n, _, d in facts(trace)] == [
        *[("nc_exec_running", 70_000)] * 3,
        *[("nrt_execute", 20_000)] * 3,
    ]
    assert len(trace.executions) == 3
    assert len(trace.flows) == 3
    assert {LinkKind(k).name for k in trace.executions.launch_link} == {"FLOW"}
    ids = sorted(trace.args(i)["id"] for i in range(6))
    assert ids[0] == 1152921504606846976
    assert ids[-1] == 1152921504606847078
    kept = [trace.args(i).get("extra_attributes") for i in range(6)]
    assert kept.count("not json") == 3
    assert kept.count({"model_name": "m"}) == 3
    assert trace.findings.of_kind("extra_attributes_text") == 3


def test_tables_and_json_of_the_same_rows_are_the_same_trace(tmp_path: Path) -> None:
    table = load(write_table(tmp_path / "a" / "SystemProfileEvents.parquet", ROWS))
    document = {"trace_event": ROWS}
    from_json = load(write_json(tmp_path / "b" / "system_profile.json", document))
    assert facts(table) == facts(from_json)
    for trace in (table, from_json):
        assert trace.executions.duration_ns.tolist() == [31_000]
        call = trace.strings[trace.slices.name[trace.executions.launch[0]]]
        assert call == "nrta_execute_schedule"
    assert [t.name for t in table.tracks] == [t.name for t in from_json.tracks]


def test_split_tables_are_read_together(tmp_path: Path) -> None:
    for part, rows in enumerate((ROWS[:2], ROWS[2:])):
        write_table(tmp_path / "p" / f"SystemProfileEvents_{part}.parquet", rows)
    whole = load(write_table(tmp_path / "w" / "SystemProfileEvents.parquet", ROWS))
    assert facts(load(tmp_path / "p")) == facts(whole)


def test_absent_columns_are_tolerated_and_unknown_ones_named_and_kept(tmp_path: Path) -> None:
    rows = [
        {"name": "nc_exec_running", "start_ts": BASE_NS, "end_ts": BASE_NS + 500, "brand_new": 7}
    ]
    trace = load(write_table(tmp_path / "SystemProfileEvents.parquet", rows))
    assert trace.executions.duration_ns.tolist() == [500]
    assert trace.args(0) == {"brand_new": 7}
    finding = next(f for f in trace.findings if f.kind == "unknown_columns")
    assert "brand_new" in finding.message


def test_a_directory_of_tables_joins_the_framework_trace(tmp_path: Path) -> None:
    directory = tmp_path / f"{HOST}_pid_{PID}" / "1759300074000000000"
    write_kineto(directory / "trace.json", [operator("aten::mul", 0, 20)])
    write_table(directory / "SystemProfileEvents.parquet", ROWS)
    write_table(
        directory / "HostMemUsage.parquet",
        [{"timestamp": BASE_NS, "used_bytes": 5, "used_percent": 1.0, "instance_id": HOST}],
    )
    write_table(
        directory / "CpuUsage.parquet",
        [{"timestamp": BASE_NS, "cpu_id": "average", "util_percent": 7.5, "instance_id": HOST}],
    )
    write_table(
        directory / "SystemProfileHbmUsage.parquet",
        [
            {
                "timestamp": BASE_NS,
                "total_bytes": 9,
                "hbm_idx": 1,
                "device_idx": 0,
                "instance_id": HOST,
            }
        ],
    )
    write_table(directory / "Warning.parquet", [{"kind": 1, "message": "events were dropped"}])
    trace = load(tmp_path)
    operator_name = trace.strings[trace.slices.name[trace.executions.operator[0]]]
    assert operator_name == "aten::mul"
    series = {
        trace.tracks[t].name: v
        for t, v in zip(trace.counters.track, trace.counters.value, strict=True)
    }
    assert series == {"Host memory used": 5, "Host CPU average": 7.5, "device 0 HBM 1 total": 9}
    assert trace.findings.of_kind("events_dropped") == 1


def test_an_unknown_unit_of_time_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "SystemProfileEvents.parquet", ROWS)
    write_table(
        tmp_path / "SchemaFields.parquet",
        [{"table_name": "SystemProfileEvents", "field_name": "start_ts", "field_unit": "us"}],
    )
    with pytest.raises(NeuronTbError, match="is in us"):
        load(tmp_path)


def test_a_damaged_table_gives_one_sentence(tmp_path: Path) -> None:
    path = write_table(tmp_path / "SystemProfileEvents.parquet", ROWS)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(NeuronTbError, match="cannot be read") as caught:
        load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 15, reason="pyarrow 14 has no checksums")
def test_a_changed_value_is_noticed_where_the_file_has_checksums(tmp_path: Path) -> None:
    path = tmp_path / "SystemProfileEvents.parquet"
    table = pa.Table.from_pylist([row("nc_exec_running", number, 1) for number in range(50)])
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    at = data.index((BASE_NS + 7000).to_bytes(8, "little"))
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(NeuronTbError, match="cannot be read"):
        read_file(path)


def test_a_table_of_more_cells_than_its_size_allows_is_refused_by_its_footer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constant column of a hundred million rows takes half a megabyte in a file."""
    path = tmp_path / "SystemProfileEvents.parquet"
    rows = pa.array(np.zeros(1 << 20, np.int64))
    with pq.ParquetWriter(path, pa.schema([("start_ts", pa.int64())])) as writer:
        for _ in range(100):
            writer.write_table(pa.table({"start_ts": rows}))
    assert path.stat().st_size < 1_000_000
    monkeypatch.setattr(pq.ParquetFile, "read", None)
    with pytest.raises(NeuronTbError, match=r"104,857,600 rows of 1 columns.*--max-size"):
        read_file(path)


def test_a_table_without_system_events_is_named(tmp_path: Path) -> None:
    path = write_table(tmp_path / "CpuUsage.parquet", [{"timestamp": 1}])
    with pytest.raises(NeuronTbError, match="holds no system events"):
        load(path)


ODD_COLUMNS: dict[str, list[Any]] = {
    "name": [b"nc_exec_running", b"\xff"],
    "thread_id": [[1], [2]],
    "process_id": [Decimal("71"), Decimal("72")],
    "nc_idx": [date(2026, 1, 2), date(2026, 1, 2)],
    "id": [pa.scalar(2**64 - 1, pa.uint64()), pa.scalar(1, pa.uint64())],
    "flow_id": [{"a": b"x"}, None],
    "extra_attributes_json": [b'{"exec_id": 4}', b"\xff"],
    "start_ts": [pa.scalar(BASE_NS, pa.uint64()), pa.scalar(2**63 + 5, pa.uint64())],
    "unknown": [b"a\xffb", None],
    "of_time": [timedelta(microseconds=3), None],
}


@pytest.mark.parametrize("column", ODD_COLUMNS)
def test_columns_of_other_types_are_read_as_what_they_stand_for(
    tmp_path: Path, column: str
) -> None:
    rows = ROWS[2:]
    table = pa.Table.from_pylist(rows)
    odd = pa.array(ODD_COLUMNS[column])
    if column in table.column_names:
        table = table.set_column(table.column_names.index(column), column, odd)
    else:
        table = table.append_column(column, odd)
    pq.write_table(table, tmp_path / "SystemProfileEvents.parquet")
    trace = load(tmp_path)
    assert len(trace.slices) >= 1
    for number in range(len(trace.slices)):
        assert isinstance(trace.args(number), dict)


def test_types_that_arrow_has_besides_are_read_exactly(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS[2:3])
    names = pa.array(["nc_exec_running"]).dictionary_encode()
    start = pa.array([BASE_NS + 5], pa.timestamp("ns", "UTC"))
    length = pa.array([30], pa.duration("us"))
    for name, values in (("name", names), ("start_ts", start), ("duration_ns", length)):
        table = table.set_column(table.column_names.index(name), name, values)
    pq.write_table(table.drop(["end_ts"]), tmp_path / "SystemProfileEvents.parquet")
    assert facts(load(tmp_path)) == [("nc_exec_running", BASE_NS + 5, 30_000)]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS).append_column("name", pa.array(["x"] * len(ROWS)))
    pq.write_table(table, tmp_path / "SystemProfileEvents.parquet")
    with pytest.raises(NeuronTbError, match="several of its columns have one name"):
        load(tmp_path)
