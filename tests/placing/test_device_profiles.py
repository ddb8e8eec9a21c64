"""Device profiles on the system time line, and in every output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuron_tb.analysis.summary import summarize
from neuron_tb.checks import perfetto as perfetto_check
from neuron_tb.checks import xprof as xprof_check
from neuron_tb.converters.convert import convert
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.load import load
from neuron_tb.converters.model import Role, Trace
from neuron_tb.converters.selection.filters import Filters
from tests.device_makers import (
    FIRST_HW_NS,
    NAME,
    RUNS,
    metadata,
    span,
    summary,
    system_rows,
    tables,
    write_profile,
    write_tables,
)
from tests.makers import BASE_NS, HOST, PID, operator, write_json, write_kineto
from tests.readers.device.test_read import rows


def with_system(root: Path, name: str = NAME, system: Any = None, **replaced: Any) -> Path:
    """A device profile beside the system profile of the same run."""
    write_profile(root, name, **replaced)
    tables_of_system = {"SystemProfileEvents": system_rows() if system is None else system}
    write_tables(root / "train@latest", tables_of_system)
    return root


def without_device_clock(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "extra_attributes_json": '{"model_id":77}'} for row in rows]


def facts(trace: Trace) -> list[dict[str, Any]]:
    return [p for m in trace.metadata for p in m.get("device_profiles", ())]


def engine_rows(trace: Trace) -> list[tuple[str, str, int, int]]:
    return [row for row in rows(trace) if not row[0].startswith("NeuronCore")]


# -- placing --------------------------------------------------------------------------------------


def test_the_device_clock_places_a_profile(tmp_path: Path) -> None:
    trace = load(with_system(tmp_path))
    alone = rows(load(tmp_path / f"{NAME}@latest"))
    assert engine_rows(trace) == [(a, b, c + BASE_NS, d) for a, b, c, d in alone]
    (own,) = facts(trace)
    assert (own["placed"], own["offset_ns"], own["bound_ns"]) == ("device_clock", BASE_NS, 0)
    assert trace.findings.of_kind("device_profile_placed") == 1
    assert not trace.findings.of_kind("clocks_unrelated")
    assert [(p.host, p.pid) for p in trace.processes] == [(HOST, PID)]
    assert [d.name for d in trace.devices] == ["NeuronCore 0", "NeuronCore 0 engines"]
    # What the profile adds is never device time.
    assert trace.executions.duration_ns.tolist() == [42_000] * 3
    assert summarize(trace).device_total_us == 126.0


def test_the_clock_may_be_that_of_either_physical_core(tmp_path: Path) -> None:
    system = system_rows()
    for row in system:
        second = row["pcore_idx"] == 5
        device = FIRST_HW_NS + row["start_ts"] - BASE_NS - (0 if second else 10**12)
        row["extra_attributes_json"] = f'{{"nc_start_timestamp_ns":{device}}}'
    (own,) = facts(load(with_system(tmp_path, system=system)))
    assert (own["placed"], own["offset_ns"], own["bound_ns"]) == ("device_clock", BASE_NS, 0)


def test_disagreeing_clocks_are_stated_as_a_bound(tmp_path: Path) -> None:
    system = system_rows()
    system[2]["start_ts"] += 700
    (own,) = facts(load(with_system(tmp_path, system=system)))
    assert (own["placed"], own["offset_ns"], own["bound_ns"]) == ("device_clock", BASE_NS, 700)


def test_the_device_clock_is_found_in_every_form_of_system_profile(tmp_path: Path) -> None:
    write_profile(tmp_path / "a")
    listed = [
        {"device_profile_name": NAME, "instance_id": HOST, "process_id": str(PID), "nc_id": 0}
    ]
    events = [
        {
            "name": "nc_exec_running",
            "timestamp": BASE_NS + start,
            "duration": length,
            "instance_id": HOST,
            "process_id": str(PID),
            "nc_idx": "0",
            "nc_start_timestamp_ns": str(FIRST_HW_NS + start),
        }
        for start, length in RUNS
    ]
    document = {"trace_event": events, "device_profile_list": listed}
    write_json(tmp_path / "a" / "system_profile.json", document)
    dump = tmp_path / "b" / f"{HOST}_pid_{PID}"
    write_profile(dump)
    write_json(dump / "events.json", {"events": _runtime_events(), "data_version": 2})
    for folder in (tmp_path / "a", dump):
        (own,) = facts(load(folder))
        assert (own["placed"], own["offset_ns"]) == ("device_clock", BASE_NS)


def _runtime_events() -> list[dict[str, Any]]:
    return [
        {
            "event_type": "nc_exec_running",
            "phase": phase,
            "nc_idx": 0,
            "tracking_id": number,
            "timestamp_ns": BASE_NS + at,
            "data": {"nc_timestamp_ns": FIRST_HW_NS + at},
        }
        for number, (start, length) in enumerate(RUNS)
        for phase, at in (("start", start), ("stop", start + length))
    ]


def test_without_device_clock_the_order_of_executions_places_it(tmp_path: Path) -> None:
    trace = load(with_system(tmp_path, system=without_device_clock(system_rows())))
    (own,) = facts(trace)
    assert (own["placed"], own["offset_ns"]) == ("execution_order", BASE_NS)


def test_one_profiled_execution_is_found_by_its_number(tmp_path: Path) -> None:
    info = [{"execution_index": 1, "execution_start_ts": 0, "execution_end_ts": 40_000}]
    system = without_device_clock(system_rows())
    (own,) = facts(load(with_system(tmp_path, system=system, ExecutionInfo=info)))
    assert (own["placed"], own["offset_ns"]) == ("execution_order", BASE_NS + RUNS[1][0])


def test_a_number_whose_lengths_differ_is_no_evidence(tmp_path: Path) -> None:
    info = [{"execution_index": 1, "execution_start_ts": 0, "execution_end_ts": 90_000}]
    system = without_device_clock(system_rows())
    (own,) = facts(load(with_system(tmp_path, system=system, ExecutionInfo=info)))
    assert own["placed"] is None


def test_the_one_execution_of_equal_length_places_it(tmp_path: Path) -> None:
    system = without_device_clock(system_rows())
    for row in system[2:4]:
        row["end_ts"] += 30_000
        row["duration_ns"] += 30_000
    active = [span(500, 69_000, engine="tensor"), span(69_000, 1_500, engine="sync")]
    write_tables(tmp_path / f"{NAME}@latest", {"ActiveTime": active})
    write_tables(tmp_path / "train@latest", {"SystemProfileEvents": system})
    (own,) = facts(load(tmp_path))
    assert (own["placed"], own["offset_ns"]) == ("duration", BASE_NS + RUNS[1][0] - 500)


def test_what_nothing_places_stands_apart_and_says_so(tmp_path: Path) -> None:
    active = [span(500, 40_000, engine="tensor")]  # as long as any of three executions
    write_tables(tmp_path / f"{NAME}@latest", {"ActiveTime": active})
    system = without_device_clock(system_rows())
    write_tables(tmp_path / "train@latest", {"SystemProfileEvents": system})
    trace = load(tmp_path)
    (own,) = facts(trace)
    assert (own["placed"], own["offset_ns"]) == (None, None)
    assert trace.findings.of_kind("device_profile_unplaced") == 1
    assert len(trace.processes) == 2
    assert trace.processes[1].name == f"device profile {NAME} (own clock, not aligned)"
    assert engine_rows(trace) == [("TensorE", "TensorE", BASE_NS + RUNS[0][0], 40_000)]
    assert trace.slice_process[trace.roles(Role.DEVICE_DETAIL)].tolist() == [1]


def test_explorers_list_says_which_core_a_profile_is_of(tmp_path: Path) -> None:
    system = [
        *system_rows(),
        *({**row, "nc_idx": 1} for row in without_device_clock(system_rows())),
    ]
    write_profile(tmp_path, "odd name")
    listed = {"device_profile_name": "odd name", "instance_id": HOST, "process_id": PID, "nc_id": 1}
    content = {"SystemProfileEvents": system, "DeviceProfileList": [listed]}
    write_tables(tmp_path / "train@latest", content)
    trace = load(tmp_path)
    (own,) = facts(trace)
    assert (own["core"], own["placed"]) == (1, "execution_order")
    assert "NeuronCore 1 engines" in [d.name for d in trace.devices]


def test_a_model_tells_the_cores_apart(tmp_path: Path) -> None:
    others = [
        {**row, "nc_idx": 1, "extra_attributes_json": '{"model_id":78}'} for row in system_rows()
    ]
    document = {
        "active_time": tables()["ActiveTime"],
        "execution_info": tables()["ExecutionInfo"],
        "metadata": [metadata()],
    }
    write_json(tmp_path / "device_profile_model_77.json", document)
    write_tables(tmp_path / "t", {"SystemProfileEvents": [*system_rows(), *others]})
    (own,) = facts(load(tmp_path))
    assert (own["core"], own["placed"]) == (0, "device_clock")


def test_beside_a_framework_trace_alone_it_stands_apart(tmp_path: Path) -> None:
    folder = tmp_path / f"{HOST}_pid_{PID}"
    write_profile(folder)
    write_kineto(folder / "trace.json", [operator("aten::mm", 7, 170, 1)])
    trace = load(tmp_path)
    message = next(f.message for f in trace.findings if f.kind == "device_profile_unplaced")
    assert message.endswith("there is no system profile with executions that would place it")
    assert trace.time_range()[0] == BASE_NS + 7_000


def test_a_profile_that_fits_two_cores_is_not_guessed(tmp_path: Path) -> None:
    system = [*system_rows(), *({**row, "nc_idx": 1} for row in system_rows())]
    trace = load(with_system(tmp_path, "some profile", system))
    (own,) = facts(trace)
    assert own["placed"] is None
    message = next(f.message for f in trace.findings if f.kind == "device_profile_unplaced")
    assert message.endswith("several NeuronCores could be its own, and nothing says which")


def test_system_and_device_tables_may_share_a_directory(tmp_path: Path) -> None:
    warnings = [{"type": "x", "message": "3 events were dropped"}]
    content = {**tables(), "SystemProfileEvents": system_rows(), "Warning": warnings}
    trace = load(write_tables(tmp_path / "out", content))
    (own,) = facts(trace)
    assert own["placed"] == "device_clock"
    assert not trace.findings.of_kind("table_not_read")
    assert trace.findings.of_kind("events_dropped") == 1
    assert not trace.findings.of_kind("device_events_dropped")


def test_several_profiles_alone_are_not_mixed(tmp_path: Path) -> None:
    for core in (0, 1):
        write_profile(tmp_path, NAME.replace("nc_0", f"nc_{core}"))
    trace = load(tmp_path)
    assert len(trace.processes) == 2
    assert trace.findings.of_kind("device_profile_unplaced") == 2
    assert sorted({d.name for d in trace.devices}) == [
        "NeuronCore 0 engines (own clock, not aligned)",
        "NeuronCore 1 engines (own clock, not aligned)",
    ]


def test_two_profiles_of_one_core_stand_side_by_side(tmp_path: Path) -> None:
    source = with_system(tmp_path / "in")
    write_profile(source, NAME.replace("session_1", "session_2"))
    trace = load(source)
    names = ["NeuronCore 0", "NeuronCore 0 engines", "NeuronCore 0 engines, profile 2"]
    assert [d.name for d in trace.devices] == names
    assert [own["placed"] for own in facts(trace)] == ["device_clock"] * 2
    result = convert(source, out=tmp_path / "out", to="perfetto", run="r")
    assert result.written[0].slices == len(trace.slices) == 6 + 2 * 29
    report = perfetto_check.check(tmp_path / "out" / "perfetto" / "r.pftrace")
    assert report.passed, report.problems


def test_an_unreadable_profile_leaves_the_others(tmp_path: Path) -> None:
    with_system(tmp_path)
    write_json(tmp_path / "device_profile_model_9.json", {"nothing": []})
    trace = load(tmp_path)
    assert trace.findings.of_kind("file_unreadable") == 1
    assert len(facts(trace)) == 1


def test_filters_take_parts_of_a_profile(tmp_path: Path) -> None:
    source = with_system(tmp_path / "in")
    kept = load(source, filters=Filters.of(time="0us:50us"))
    names = {row[0] for row in engine_rows(kept)}
    assert "GpSimdE (inner core 0)" in names
    assert [r[2] for r in engine_rows(kept) if r[0].startswith("TensorE (inner core 0)")] == [
        BASE_NS + RUNS[0][0]
    ]
    assert not len(load(source, filters=Filters.of(cores="0")).slices) < 6 + 29
    with pytest.raises(NeuronTbError):
        load(source, filters=Filters.of(cores="1"))
    result = convert(source, out=tmp_path / "out", filters=Filters.of(time="0us:50us"), run="r")
    assert perfetto_check.check(tmp_path / "out" / "perfetto" / "r.pftrace").passed
    assert {f.target: f.slices for f in result.written}["perfetto"] == len(kept.slices)


# -- writing --------------------------------------------------------------------------------------


def with_framework(root: Path) -> Path:
    """trace.json, system profile and device profile of one process."""
    with_system(root / f"{HOST}_pid_{PID}")
    events = [operator("aten::mm", 0, 170, 1)]
    write_kineto(root / f"{HOST}_pid_{PID}" / "trace.json", events)
    return root


@pytest.mark.parametrize("instructions", [False, True])
def test_every_output_accounts_for_every_row(tmp_path: Path, instructions: bool) -> None:
    source = with_framework(tmp_path / "in")
    trace = load(source, instructions=instructions)
    result = convert(source, out=tmp_path / "out", instructions=instructions)
    engines = int(np.count_nonzero(trace.roles(Role.DEVICE_DETAIL)))
    samples = len(trace.counters)
    assert engines == (29 + 41 if instructions else 29)
    slices = {file.target: file.slices for file in result.written}
    assert slices["perfetto"] == slices["xprof"] == len(trace.slices)
    assert slices["kineto"] == slices["torch-tb"] == len(trace.slices) - engines
    left_out = [f for f in result.findings if f.kind == "engine_rows_left_out"]
    assert [f.count for f in left_out] == [engines + samples]


def test_perfetto_has_a_group_per_core_with_engines_and_counters(tmp_path: Path) -> None:
    pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    from tests.perfetto_rows import rows_of

    convert(with_framework(tmp_path / "in"), out=tmp_path / "out", to="perfetto", run="r")
    path = tmp_path / "out" / "perfetto" / "r.pftrace"
    report = perfetto_check.check(path)
    assert report.passed, report.problems
    found = rows_of(path)
    group = "NeuronCore 0 engines"
    assert found[group, "TensorE (inner core 0)"] == 3
    assert found[group, "DMA qSyncSpillReload0 (inner core 0)"] == 2
    assert found[group, "HBM throughput (inner core 0)"] == 5
    assert found["NeuronCore 0", "NeuronCore 0 (physical 4)"] == 3


@pytest.mark.slow
def test_xprof_draws_a_custom_plane_with_a_line_per_engine_and_queue(tmp_path: Path) -> None:
    pytest.importorskip("xprof")
    from tests.writers.xprof.test_write import ask

    source = with_framework(tmp_path / "in")
    result = convert(source, out=tmp_path / "out", to="xprof", run="r", instructions=True)
    report = xprof_check.check(tmp_path / "out" / "plugins" / "profile" / "r")
    assert report.passed, report.problems
    viewer = ask(result.written, "trace_viewer@")
    events = viewer["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    plane = next(pid for pid, name in processes.items() if "NeuronCore 0 engines" in name)
    assert "/device:CUSTOM:" in processes[plane]
    lines = {
        e["tid"]: e["args"]["name"]
        for e in events
        if e.get("name") == "thread_name" and e["pid"] == plane
    }
    drawn = [e for e in events if e["ph"] == "X" and e["pid"] == plane]
    counts = {name: sum(e["tid"] == tid for e in drawn) for tid, name in lines.items()}
    assert counts["TensorE (inner core 0)"] == 3
    assert counts["TensorE instructions (inner core 1)"] == 6
    assert counts["DMA qSyncSpillReload0 (inner core 0)"] == 1
    assert counts["DMA qSyncSpillReload0 (inner core 0) (lane 2)"] == 1
    assert sum(counts.values()) == 29 + 41
    curves = {e["name"] for e in events if e["ph"] == "C" and e["pid"] == plane}
    assert {"DMA throughput (inner core 0) (B/s)", "SBUF use (%)"} <= curves


def test_a_profile_alone_converts_for_the_viewers_that_can_show_it(tmp_path: Path) -> None:
    source = write_profile(tmp_path / "in")
    result = convert(source, out=tmp_path / "out")
    written = {file.target: file for file in result.written}
    assert written["perfetto"].slices == written["xprof"].slices == 29
    assert written["torch-tb"].path is None
    assert written["kineto"].path is None
    assert "only device profiles" in (written["kineto"].skipped or "")
    assert perfetto_check.check(tmp_path / "out" / "perfetto" / f"{result.run}.pftrace").passed


def test_figures_without_rows_are_no_capture_to_draw(tmp_path: Path) -> None:
    path = write_json(tmp_path / "summary.json", {"n_1": summary()})
    result = convert(path, out=tmp_path / "out")
    assert all(file.path is None and file.skipped for file in result.written)


def test_the_device_clock_of_the_tests_is_what_the_profile_begins_with() -> None:
    assert metadata()["first_hw_timestamp"] == FIRST_HW_NS
