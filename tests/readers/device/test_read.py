"""Reading Neuron Explorer's device profiles, as tables and as JSON."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_tb.converters.captures.find import find
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.load import load
from neuron_tb.converters.model import ClockKind, Role, Trace, TrackKind
from neuron_tb.converters.model.hardware import engine_name
from neuron_tb.converters.readers import read_device_profile
from neuron_tb.converters.readers.context import Context
from tests.device_makers import (
    ACTIVE,
    NAME,
    RUNS,
    metadata,
    span,
    summary,
    tables,
    write_profile,
    write_tables,
)
from tests.makers import HOST, PID, write_json

Row = tuple[str, str, int, int]


def rows(trace: Trace) -> list[Row]:
    """(row, name, start, length) of every slice."""
    s = trace.slices
    columns = zip(s.track, s.name, s.start_ns, s.duration_ns, strict=True)
    return sorted(
        (trace.tracks[t].name, trace.strings[n], int(b), int(d)) for t, n, b, d in columns
    )


def samples(trace: Trace) -> dict[str, list[tuple[int, float]]]:
    """The samples of every counter, by its name and unit."""
    found: dict[str, list[tuple[int, float]]] = {}
    c = trace.counters
    for time, value, track in zip(c.time_ns, c.value, c.track, strict=True):
        own = trace.tracks[track]
        found.setdefault(f"{own.name} [{own.unit}]", []).append((int(time), float(value)))
    return found


def only(path: Path, table: str, content: list[dict[str, Any]], **more: Any) -> Trace:
    """A profile with this table alone."""
    return load(write_tables(path / "p", {table: content}), **more)


# -- what comes out of each table ---------------------------------------------------------------


def test_engines_queues_collectives_and_executions_have_their_rows(tmp_path: Path) -> None:
    trace = load(write_profile(tmp_path))
    expected: list[Row] = [("Executions", "train.neff", start, length) for start, length in RUNS]
    for start, _ in RUNS:
        for engine, offset, length in ACTIVE:
            name = {"tensor": "TensorE", "Vector": "VectorE", "scalar": "ScalarE"}[engine]
            expected += [
                (f"{name} (inner core {core})", name, start + offset, length) for core in (0, 1)
            ]
    expected += [
        ("GpSimdE (inner core 0)", "GpSimdE", 32_000, 2_000),
        ("SyncE (inner core 0)", "SyncE", 32_000, 2_000),
        ("Collectives, stream 0", "AllReduce", 26_000, 9_000),
        ("Throttling", "power 3/4", 8_000, 4_000),
    ]
    expected += [
        (
            f"DMA qSyncSpillReload{number // 2} (inner core 0)",
            f"weights.{number}",
            1_000 + 500 * number,
            800,
        )
        for number in range(4)
    ]
    assert rows(trace) == sorted(expected)
    assert set(trace.slices.role.tolist()) == {Role.DEVICE_DETAIL}
    assert not len(trace.executions)
    assert [(d.name, d.index, d.detail) for d in trace.devices] == [
        ("NeuronCore 0 engines", 0, True)
    ]
    assert trace.clock.kind is ClockKind.RELATIVE
    assert (trace.processes[0].host, trace.processes[0].pid) == (HOST, PID)
    dma = [r for r in range(len(trace.slices)) if trace.args(r).get("variable") == "weights.0"]
    assert trace.args(dma[0]) == {
        "id": 0,
        "op": "spill",
        "queue_idx": 0,
        "queue_name": "qSyncSpillReload0",
        "transfer_bytes": 65536,
        "variable": "weights.0",
    }


def test_rows_stand_in_the_order_of_engines_then_queues(tmp_path: Path) -> None:
    trace = load(write_profile(tmp_path))
    names = [t.name.split(" (")[0] for t in trace.tracks if t.kind is TrackKind.DEVICE]
    assert list(dict.fromkeys(names)) == [
        "Executions",
        "TensorE",
        "VectorE",
        "ScalarE",
        "GpSimdE",
        "SyncE",
        "Collectives, stream 0",
        "Throttling",
        "DMA qSyncSpillReload0",
        "DMA qSyncSpillReload1",
    ]


def test_counters_have_values_and_units(tmp_path: Path) -> None:
    found = samples(load(write_profile(tmp_path)))
    assert found == {
        "DMA throughput (inner core 0) [B/s]": [(1_000 * n, 2e11 * n) for n in range(5)],
        "DMA bytes moved (inner core 0) [bytes]": [(1_000 * n, 1e6 * n) for n in range(5)],
        "HBM throughput (inner core 0) [B/s]": [(1_000 * n, 1e11 * n) for n in range(5)],
        "HBM bytes moved (inner core 0) [bytes]": [(1_000 * n, 1e6 * n) for n in range(5)],
        # The summary's seconds show that this profile writes fractions.
        "SBUF use [%]": [(2_000, 25.0), (9_000, 75.0)],
        "SBUF partition 0 [%]": [(2_000, 50.0), (9_000, 50.0)],
        "PSUM use [%]": [(2_000, 12.5)],
        "Pending DMA []": [(500 * n, float(n % 3)) for n in range(6)],
        "Throttle limit [%]": [(8_000, 75.0)],
    }


def test_instructions_packets_and_semaphores_come_when_asked_for(tmp_path: Path) -> None:
    folder = write_profile(tmp_path)
    brief, full = load(folder), load(folder, instructions=True)
    counts = {f.message.split()[2]: f.count for f in brief.findings if f.kind == "details_left_out"}
    assert counts == {"Instruction": 36, "DmaPacket": 4, "CcInstruction": 1, "SemaphoreUpdate": 3}
    assert not full.findings.of_kind("details_left_out")
    more = set(rows(full)) - set(rows(brief))
    assert len(full.slices) - len(brief.slices) == 36 + 4 + 1
    assert ("TensorE instructions (inner core 1)", "MATMUL", 16_000, 15_000) in more
    assert ("DMA engine 1 packets", "copy", 1_100, 90) in more
    assert ("Collective core 2", "recv", 26_500, 1_000) in more
    assert samples(full)["Semaphore S[5] []"] == [(3_000, 0), (3_001, 1), (3_002, 2)]
    ids = [full.args(r).get("id", 0) for r in range(len(full.slices))]
    assert max(ids) == (1 << 60) + 35  # exact, beyond what a double holds


def test_dependencies_are_arrows_from_the_earlier_row_to_the_later(tmp_path: Path) -> None:
    flow = [
        {"in_id": 1 << 60, "out_id": (1 << 60) + 1, "in_table": "instruction",
         "out_table": "instruction", "dependency_type": "data"},
        {"in_id": 3, "out_id": 0, "in_table": "dma_block", "out_table": "dma_block",
         "dependency_type": "queue"},
        {"in_id": 99, "out_id": 0, "in_table": "dma_block", "out_table": "dma_block",
         "dependency_type": "queue"},
    ]  # fmt: skip
    folder = write_profile(tmp_path, Flow=flow)
    trace = load(folder, instructions=True)
    start = trace.slices.start_ns
    arrows = [
        (int(start[a]), int(start[b]))
        for a, b in zip(trace.flows.source, trace.flows.target, strict=True)
    ]
    assert arrows == [(1_000, 16_000), (1_000, 2_500)]
    assert trace.findings.of_kind("flow_unpaired") == 1
    assert not len(load(folder).flows)


def test_engine_names_are_compared_in_any_letter_case() -> None:
    assert [engine_name(n) for n in ("tensor", "Tensor", "VECTOR", "GpSimd", "sync", "Act")] == [
        "TensorE",
        "TensorE",
        "VectorE",
        "GpSimdE",
        "SyncE",
        "ScalarE",
    ]
    assert engine_name("TensorMatrix") == "TensorMatrix"


# -- traps --------------------------------------------------------------------------------------


def test_split_tables_are_one_and_prefixes_are_not_mixed(tmp_path: Path) -> None:
    content = tables()
    whole = load(write_tables(tmp_path / "w", content), instructions=True)
    parts: dict[str, Any] = {k: v for k, v in content.items() if not k.startswith("Dma")}
    for name in ("DmaPacket", "DmaPacketAggregated", "DmaUsage"):
        parts[f"{name}_0"], parts[f"{name}_1"] = content[name][:2], content[name][2:]
    split = load(write_tables(tmp_path / "s", parts), instructions=True)
    assert rows(split) == rows(whole)
    assert samples(split) == samples(whole)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32), split=st.booleans())
def test_the_order_of_rows_is_no_matter(
    tmp_path_factory: pytest.TempPathFactory, seed: int, split: bool
) -> None:
    folder = tmp_path_factory.mktemp("order")
    shuffled = random.Random(seed)
    content: dict[str, Any] = {}
    for name, table in tables().items():
        table = shuffled.sample(table, len(table))
        cut = shuffled.randint(0, len(table)) if split else 0
        for part, some in enumerate((table[:cut], table[cut:])):
            if some:
                content[f"{name}_{part}"] = some
    one = load(write_tables(folder / "a" / "p", tables()), instructions=True)
    other = load(write_tables(folder / "b" / "p", content), instructions=True)
    assert one.tracks == other.tracks
    assert one.strings == other.strings
    for column in ("start_ns", "duration_ns", "name", "track", "args_start", "args_length"):
        assert getattr(one.slices, column).tolist() == getattr(other.slices, column).tolist()
    assert one.arguments.pieces == other.arguments.pieces
    assert samples(one) == samples(other)


def test_absent_tables_and_columns_are_tolerated(tmp_path: Path) -> None:
    trace = only(tmp_path, "ActiveTime", [{"start_ts": 5, "end_ts": 9, "engine": "vector"}])
    assert rows(trace) == [("VectorE", "VectorE", 5, 4)]
    trace = only(tmp_path / "b", "ActiveTime", [{"start_ts": 5, "duration_ns": 4}])
    assert rows(trace) == [("unknown engine", "unknown engine", 5, 4)]


def test_without_active_time_it_is_merged_from_the_instructions(tmp_path: Path) -> None:
    content = [
        span(10, 10, engine="tensor"),
        span(15, 10, engine="tensor"),
        span(25, 5, engine="tensor"),
        span(40, 5, engine="tensor"),
        span(12, 2, engine="sync"),
    ]
    trace = only(tmp_path, "Instruction", content)
    assert rows(trace) == [
        ("SyncE", "SyncE", 12, 2),
        ("TensorE", "TensorE", 10, 20),
        ("TensorE", "TensorE", 40, 5),
    ]
    assert trace.findings.of_kind("engine_time_merged") == 1


def test_rows_without_time_or_length_are_counted(tmp_path: Path) -> None:
    content = [
        {"start_ts": None, "end_ts": 4, "engine": "sync"},
        {"start_ts": 0, "end_ts": 4, "engine": "sync"},
        {"start_ts": 7, "end_ts": None, "engine": "sync"},
    ]
    trace = only(tmp_path, "ActiveTime", content)
    assert rows(trace) == [("SyncE", "SyncE", 0, 4)]
    assert trace.instants.time_ns.tolist() == [7]
    assert trace.findings.of_kind("no_time") == 1
    assert trace.findings.of_kind("unfinished") == 1


def test_unknown_columns_and_tables_are_named_and_kept(tmp_path: Path) -> None:
    content = {
        "ActiveTime": [span(0, 5, engine="sync", mood="good", weight=float("nan"))],
        "LayerSummary": [{"layer": "a"}],
    }
    trace = load(write_tables(tmp_path / "p", content))
    messages = {f.kind: f.message for f in trace.findings}
    assert messages["unknown_columns"].endswith("mood, weight")
    assert messages["table_not_read"].endswith("LayerSummary")
    assert trace.args(0) == {"engine": "sync", "mood": "good"}


@pytest.mark.parametrize(("version", "count"), [("7.4.0", 0), ("12.0.1", 1), (None, 0)])
def test_a_newer_schema_is_read_and_named(tmp_path: Path, version: str | None, count: int) -> None:
    folder = write_profile(tmp_path, Metadata=[metadata(profile_schema_version=version)])
    trace = load(folder)
    assert len(trace.slices) == 29
    assert trace.findings.of_kind("newer_version") == count


def test_the_profiles_own_schema_names_columns_and_units(tmp_path: Path) -> None:
    fields = [
        {"table_name": "ActiveTime", "field_name": name, "field_unit": "us"}
        for name in ("start_ts", "end_ts", "duration_ns", "mood")
    ]
    content = {
        "ActiveTime": [span(1, 5, engine="sync", mood="good")],
        "SchemaFields": fields,
    }
    trace = load(write_tables(tmp_path / "p", content))
    assert rows(trace) == [("SyncE", "SyncE", 1_000, 5_000)]
    assert not trace.findings.of_kind("unknown_columns")
    fields[0]["field_unit"] = "cycles"
    content["PendingDma"] = [{"timestamp": 4, "value": 1}]
    other = load(write_tables(tmp_path / "q", content))
    assert not len(other.slices)
    assert other.findings.of_kind("unit_unknown") == 1
    assert samples(other) == {"Pending DMA []": [(4, 1.0)]}


@pytest.mark.parametrize(
    ("values", "own", "expected"),
    [
        ([0.25, 80.0], None, [0.25, 80.0]),  # more than 1: percentages
        ([0.25, 0.5], 90 / 160, [25.0, 50.0]),  # the summary's seconds: fractions
        ([0.25, 0.5], 100 * 90 / 160, [0.25, 0.5]),  # the summary's seconds: percentages
    ],
)
def test_percent_or_fraction_is_settled_by_evidence(
    tmp_path: Path, values: list[float], own: float | None, expected: list[float]
) -> None:
    content: dict[str, Any] = {
        "PsumUsage": [{"timestamp": n, "avg_util_percent": v} for n, v in enumerate(values)]
    }
    if own is not None:
        row = {"total_time": 160e-6, "tensor_engine_active_time": 90e-6}
        content["Summary"] = [{**row, "tensor_engine_active_time_percent": own}]
    trace = load(write_tables(tmp_path / "p", content))
    assert [v for _, v in samples(trace)["PSUM use [%]"]] == expected


def test_percent_or_fraction_without_evidence_stays_as_recorded(tmp_path: Path) -> None:
    trace = only(tmp_path, "PsumUsage", [{"timestamp": 1, "avg_util_percent": 0.5}])
    assert samples(trace) == {"PSUM use [percent or fraction, as recorded]": [(1, 0.5)]}
    assert trace.findings.of_kind("percent_or_fraction") == 1


def test_warnings_of_the_profile_are_findings(tmp_path: Path) -> None:
    warnings = [{"type": "x", "message": "12 events were dropped."}, {"type": "y", "message": "m"}]
    trace = load(write_profile(tmp_path, Warning=warnings))
    assert trace.findings.of_kind("device_events_dropped") == 1
    assert not trace.findings.of_kind("events_dropped")  # those of the system profile's totals
    assert trace.findings.of_kind("source_warning") == 1


def test_a_damaged_table_is_one_sentence(tmp_path: Path) -> None:
    folder = write_profile(tmp_path)
    (folder / "ActiveTime.parquet").write_bytes(b"PAR1 is not enough PAR1")
    with pytest.raises(NeuronTbError, match=r"ActiveTime.parquet cannot be read"):
        load(folder)


# -- JSON ---------------------------------------------------------------------------------------


def test_json_of_the_same_tables_gives_the_same_rows(tmp_path: Path) -> None:
    content = {k: v for k, v in tables().items() if k not in ("Metadata", "DmaPacketAggregated")}
    document: dict[str, Any] = {_snake(name): rows for name, rows in content.items()}
    document |= {"profile_info": [metadata()], "dma": tables()["DmaPacketAggregated"]}
    path = write_json(tmp_path / f"{NAME}.json", _with_texts(document))
    from_json = load(path, instructions=True)
    from_tables = load(write_profile(tmp_path), instructions=True)
    assert rows(from_json) == rows(from_tables)
    assert samples(from_json) == samples(from_tables)
    ids = [from_json.args(r).get("id") for r in range(len(from_json.slices))]
    assert (1 << 60) + 35 in ids
    facts = from_json.metadata[0]["device_profiles"][0]
    assert facts["Summary"][0]["total_time"] == 160e-6
    assert facts["Metadata"][0]["first_hw_timestamp"] == 7_000_000_000


def test_the_older_tools_document_is_read_in_its_spelling(tmp_path: Path) -> None:
    document = {
        "summary": [{"total_time": "0.001", "event_count": 2}],
        "instruction": [
            {"timestamp": 100, "duration": 50, "label": "TensorMatrix", "hlo_name": "%dot",
             "opcode": "MATMUL", "operands": "a b"},
            {"timestamp": "160", "duration": "40", "label": "Vector", "opcode": "ADD"},
        ],
        "neff_node": [{"name": "n"}],
    }  # fmt: skip
    path = write_json(tmp_path / "device_profile_model_77.json", document)
    trace = load(path, instructions=True)
    assert rows(trace) == [
        ("TensorMatrix", "TensorMatrix", 100, 50),
        ("TensorMatrix instructions", "MATMUL", 100, 50),
        ("VectorE", "VectorE", 160, 40),
        ("VectorE instructions", "ADD", 160, 40),
    ]
    facts = trace.metadata[0]["device_profiles"][0]
    assert facts["model"] == "77"
    assert facts["Summary"] == [{"event_count": 2, "total_time": 0.001}]


def test_summary_json_has_figures_and_no_rows(tmp_path: Path) -> None:
    document = {"n_12ab": summary(), "s_99": {"total_duration_ns": 5}}
    trace = load(write_json(tmp_path / "summary.json", document))
    assert not len(trace.slices)
    facts = trace.metadata[0]["device_profiles"][0]
    assert facts["Summary"][0]["hbm_read_bytes"] == 12_000_000
    assert facts["Summary"][0]["profile"] == "n_12ab"
    assert facts["percent_scale"] == 100.0


def test_numbers_that_json_has_not_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text('{"n_1": {"total_time": 0.5, "mfu_estimated_percent": NaN}}')
    trace = load(path)
    facts = trace.metadata[0]["device_profiles"][0]
    assert facts["Summary"][0]["mfu_estimated_percent"] is None
    assert trace.findings.of_kind("not_a_number") == 1
    path.write_text('{"n_1": {"total_time": NaN, ')
    with pytest.raises(NeuronTbError):
        load(path)


def test_a_document_without_a_known_table_is_refused(tmp_path: Path) -> None:
    path = write_json(tmp_path / "device_profile_model_1.json", {"nothing": [1]})
    with pytest.raises(NeuronTbError, match="holds no table of a device profile"):
        read_device_profile(path, Context())


# -- where they lie -----------------------------------------------------------------------------


def test_profiles_are_found_beside_and_below_system_tables(tmp_path: Path) -> None:
    write_profile(tmp_path)
    write_json(tmp_path / "device_profile_model_5.json", {"summary": [summary()]})
    found = find([tmp_path])
    assert sorted(p.name for c in found.captures for p in c.device) == [
        "device_profile_model_5.json",
        f"{NAME}@latest",
    ]
    assert [c.lacks() for c in found.captures] == [[], []]


def test_a_profile_of_any_name_is_known_by_its_tables(tmp_path: Path) -> None:
    document = {"neff_node": [{"name": "n"}], "summary": [summary()]}
    (capture,) = find([write_json(tmp_path / "a" / "my.json", document).parent]).captures
    assert [p.name for p in capture.device] == ["my.json"]
    (capture,) = find([write_json(tmp_path / "b.json", {"n_1": summary()})]).captures
    assert [p.name for p in capture.device] == ["b.json"]


def test_one_table_can_be_named(tmp_path: Path) -> None:
    trace = load(write_profile(tmp_path) / "ActiveTime.parquet")
    assert len(trace.slices) == 20


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def _with_texts(document: dict[str, Any]) -> Any:
    """Every number as text."""

    def texts(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: texts(v) for k, v in value.items()}
        if isinstance(value, list):
            return [texts(v) for v in value]
        return repr(value) if isinstance(value, int | float) else value

    return json.loads(json.dumps(texts(document)))
