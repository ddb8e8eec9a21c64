"""Operator → runtime call → execution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neuron_tb
from neuron_tb.converters.links import identifiers
from neuron_tb.converters.load import load
from neuron_tb.converters.model import NONE, Executions, LinkKind, Source, Trace
from tests.makers import (
    HOST,
    PID,
    complete,
    execution,
    kernel,
    launch,
    operator,
    step,
    system_row,
    window,
    write_json,
    write_kineto,
)


def linked(trace: Trace) -> list[tuple[str | None, float, str]]:
    """(operator's name, microseconds, source) of every counted execution."""
    work: Executions = trace.executions.take(trace.executions.counted)
    return [
        (
            None if o == NONE else trace.strings[trace.slices.name[o]],
            int(d) / 1000,
            Source(s).name.lower(),
        )
        for o, d, s in zip(work.operator, work.duration_ns, work.source, strict=True)
    ]


def operator_links(trace: Trace) -> list[str]:
    return [LinkKind(k).name for k in trace.executions.operator_link]


def capture(
    tmp_path: Path, events: list[Any], rows: list[Any], host: str = HOST, pid: int = PID, **top: Any
) -> Path:
    """A capture directory in AWS's layout with trace.json and system_profile.json."""
    directory = tmp_path / f"{host}_pid_{pid}" / "1759300074000000000"
    write_kineto(directory / "trace.json", events, **top)
    if rows:
        write_json(directory / "system_profile.json", {"trace_events": rows})
    return directory


def test_external_id_joins_windows_with_operators(cases: Path) -> None:
    trace = load(cases / "neuron" / "privateuse1_driver.json")
    assert linked(trace) == [
        ("aten::linear", 70.0, "window"),
        ("aten::relu", 70.0, "window"),
        ("aten::add", 70.0, "window"),
    ]
    assert operator_links(trace) == ["EXTERNAL_ID"] * 3
    assert trace.steps.number.tolist() == [3]
    assert trace.executions.step.tolist() == [0, 0, 0]


def test_system_profile_brings_measured_time_by_order(cases: Path) -> None:
    folder = cases / "neuron"
    trace = load(folder / "torchneuron_cpu_only.json", folder / "system_profile.json")
    assert linked(trace) == [
        ("aten::linear", 70.0, "measured"),
        ("aten::relu", 70.0, "measured"),
        ("aten::add", 70.0, "measured"),
    ]
    assert {LinkKind(k).name for k in trace.executions.launch_link} == {"ORDER"}
    assert np.count_nonzero(trace.execution_of_slice != NONE) == 6
    assert trace.findings.of_kind("events_dropped") == 1


def test_measured_time_replaces_the_window_of_the_same_operator(cases: Path) -> None:
    folder = cases / "neuron"
    trace = load(folder / "privateuse1_driver.json", folder / "system_profile.json")
    assert [source for _, _, source in linked(trace)] == ["measured"] * 3
    replaced = trace.executions.take(~trace.executions.counted)
    assert set(replaced.source.tolist()) == {int(Source.WINDOW)}
    assert len(replaced) == 3


def test_two_physical_cores_are_one_execution_as_long_as_their_union(tmp_path: Path) -> None:
    rows = [
        execution(10, 50, 1, device_core_idx=4),
        execution(12, 53, 1, device_core_idx=5),
        execution(100, 20, 2, device_core_idx=4),
        execution(100, 20, 2, device_core_idx=5),
    ]
    path = write_json(tmp_path / "system_profile.json", {"trace_events": rows})
    trace = load(path)
    assert [us for _, us, _ in linked(trace)] == [55.0, 20.0]


def test_equal_execution_ids_at_different_times_are_different_executions(tmp_path: Path) -> None:
    rows = [
        execution(10, 50, 1, device_core_idx=4),
        execution(10, 50, 1, device_core_idx=5),
        execution(500, 30, 1, device_core_idx=4),
        execution(501, 30, 1, device_core_idx=5),
    ]
    trace = load(write_json(tmp_path / "system_profile.json", {"trace_event": rows}))
    assert [us for _, us, _ in linked(trace)] == [50.0, 31.0]


def test_sequence_id_joins_schedule_call_execution_and_operator(tmp_path: Path) -> None:
    first, second = 1 << 48 | 7, 1 << 48 | 8
    events = [
        operator("aten::mul", 0, 20, external=1),
        operator("aten::add", 30, 20, external=2),
        window("aten::mul", 10, 90, 1, nrt_sequence_id=first),
        window("aten::add", 40, 90, 2, nrt_sequence_id=second),
    ]
    rows = [
        # Scheduled by another thread and later than both operators: containment cannot help.
        system_row("nrta_execute_schedule", 60, 5, thread_id=9, nrta_seq_id=second),
        system_row("nrta_execute_schedule", 70, 5, thread_id=9, nrta_seq_id=str(first)),
        system_row("kbl_exec_wait", 75, 50, thread_id=10, flow_id=[str(first), "11"], nc_idx=0),
        system_row("kbl_exec_wait", 75, 90, thread_id=11, flow_id=[str(second), "12"], nc_idx=0),
        execution(80, 30, 11),
        execution(120, 40, 12),
    ]
    trace = load(capture(tmp_path, events, rows))
    assert linked(trace) == [("aten::mul", 30.0, "measured"), ("aten::add", 40.0, "measured")]
    work = trace.executions.take(trace.executions.counted)
    calls = [trace.strings[trace.slices.name[row]] for row in work.launch]
    assert calls == ["nrta_execute_schedule"] * 2
    assert {LinkKind(k).name for k in work.operator_link} == {"SEQUENCE_ID"}


def test_execution_ids_of_two_cores_do_not_mix(tmp_path: Path) -> None:
    events = [
        operator("on core 0", 0, 20, tid=1),
        operator("on core 1", 0, 20, tid=2),
    ]
    rows = [
        system_row("kbl_exec_pre", 5, 5, thread_id=1, nc_idx=0, exec_id=1),
        system_row("kbl_exec_pre", 5, 5, thread_id=2, nc_idx=1, exec_id=1),
        {**execution(20, 10, 1), "nc_idx": 1},
        {**execution(20, 15, 1), "nc_idx": 0},
    ]
    trace = load(capture(tmp_path, events, rows))
    assert sorted(linked(trace), key=str) == [
        ("on core 0", 15.0, "measured"),
        ("on core 1", 10.0, "measured"),
    ]


def test_counts_that_differ_are_not_joined_by_order(tmp_path: Path) -> None:
    events = [operator("a", 0, 10), operator("b", 20, 10)]
    rows = [
        system_row("nrt_execute", 1, 5),
        system_row("nrt_execute", 21, 5),
        execution(30, 5),
    ]
    trace = load(capture(tmp_path, events, rows))
    assert linked(trace) == [(None, 5.0, "measured")]
    assert trace.findings.of_kind("execution_without_operator") == 1


def test_a_call_inside_an_operator_of_another_thread_is_not_contained(tmp_path: Path) -> None:
    events = [
        operator("a", 0, 100),
        {**launch(10, 5, 1), "tid": 77},
        kernel("k", 20, 5, 1),
    ]
    trace = load(write_kineto(tmp_path / "t.json", events))
    assert linked(trace) == [(None, 5.0, "measured")]


def test_the_innermost_operator_around_the_call_is_the_one(tmp_path: Path) -> None:
    events = [
        operator("outer", 0, 100),
        operator("inner", 5, 50),
        operator("before", 5, 3),
        launch(10, 5, 1),
        kernel("k", 200, 7, 1),
    ]
    trace = load(write_kineto(tmp_path / "t.json", events))
    assert linked(trace) == [("inner", 7.0, "measured")]
    assert operator_links(trace) == ["CONTAINMENT"]


def test_an_external_id_that_repeats_the_correlation_is_no_evidence(tmp_path: Path) -> None:
    events = [
        operator("unrelated", 0, 10, external=55),
        operator("real", 20, 50, external=90),
        launch(30, 5, 55, **{"External id": 55}),
        {**kernel("k", 40, 7, 55), "args": {"device": 0, "correlation": 55, "External id": 55}},
    ]
    trace = load(write_kineto(tmp_path / "t.json", events))
    assert linked(trace) == [("real", 7.0, "measured")]


def test_arrows_of_the_source_link_where_there_is_no_correlation(tmp_path: Path) -> None:
    call = complete("mtia_runtime", "launch", 5, 5)
    row = complete("mtia_ccp_events", "pe_exe", 30, 8, pid=17, tid=3)
    events = [
        operator("a", 0, 20),
        call,
        row,
        {"ph": "s", "id": 4, "cat": "ac2g", "name": "ac2g", "pid": PID, "tid": PID, "ts": 5},
        {
            "ph": "f",
            "id": 4,
            "cat": "ac2g",
            "name": "ac2g",
            "pid": 17,
            "tid": 3,
            "ts": 30,
            "bp": "e",
        },
    ]
    trace = load(write_kineto(tmp_path / "t.json", events))
    assert linked(trace) == [("a", 8.0, "measured")]
    assert [LinkKind(k).name for k in trace.executions.launch_link] == ["FLOW"]


def test_an_execution_before_its_launch_is_reported_and_left_where_it_is(tmp_path: Path) -> None:
    events = [operator("a", 100, 20), launch(105, 5, 1), kernel("k", 50, 7, 1)]
    trace = load(write_kineto(tmp_path / "t.json", events))
    assert trace.findings.of_kind("execution_before_launch") == 1
    assert trace.executions.start_ns[0] == trace.slices.start_ns[2]


def test_device_work_belongs_to_the_step_that_launched_it(tmp_path: Path) -> None:
    events = [
        step(4, 0, 100),
        step(5, 100, 100),
        operator("a", 90, 8),
        operator("b", 110, 8),
        launch(91, 2, 1),
        launch(111, 2, 2),
        kernel("late", 150, 5, 1),
        kernel("b", 190, 5, 2),
        kernel("outside", 300, 5, 3),
    ]
    trace = load(write_kineto(tmp_path / "t.json", events))
    steps = [int(trace.steps.number[s]) if s != NONE else None for s in trace.executions.step]
    assert steps == [4, 5, None]
    assert trace.findings.of_kind("execution_outside_steps") == 1


def test_without_annotations_everything_is_one_step_called_capture(tmp_path: Path) -> None:
    trace = load(write_kineto(tmp_path / "t.json", [operator("a", 0, 9), launch(1, 1, 1)]))
    assert trace.steps.implicit
    assert [trace.steps.label(0)] == ["capture"]
    assert trace.findings.of_kind("no_steps") == 1


def test_steps_can_come_from_another_annotation(tmp_path: Path) -> None:
    events = [complete("user_annotation", "train_step", 100 * i, 90) for i in range(3)]
    path = write_kineto(tmp_path / "t.json", [*events, operator("a", 110, 5)])
    assert load(path, steps_from="train_step").steps.number.tolist() == [0, 1, 2]


@pytest.mark.parametrize("flavour", ["trace_events", "trace_event", None])
def test_every_spelling_of_a_system_profile_is_read(tmp_path: Path, flavour: str | None) -> None:
    rows = [
        {
            "name": "nc_exec_running",
            "start_ts": "1766072157039689700",
            "duration_ns": "228496",
            "nc_idx": "1",
            "exec_id": "1",
            "id": 1125899906844011,
            "process_id": 5,
            "instance_id": HOST,
        }
    ]
    document: Any = rows if flavour is None else {flavour: rows}
    trace = load(write_json(tmp_path / "rows.json", document))
    assert trace.executions.duration_ns.tolist() == [228496]
    assert trace.executions.start_ns.tolist() == [1766072157039689700]
    assert trace.devices[0].index == 1
    assert trace.args(0)["id"] == 1125899906844011


def test_documented_rows_give_their_documented_times(cases: Path) -> None:
    trace = load(cases / "neuron" / "doc_system_profile.json")
    lengths = {
        trace.strings[n]: int(d) / 1000
        for n, d in zip(trace.slices.name, trace.slices.duration_ns, strict=True)
    }
    assert lengths == {
        "nrt_tensor_write": 27.094,
        "PjitFunction(matmul_allgather)": 3758.079,
    }
    series = {
        trace.tracks[t].name: v
        for t, v in zip(trace.counters.track, trace.counters.value, strict=True)
    }
    assert series == {"Host memory used": 51805806592.0, "Host CPU 47": 2.3255813}


def test_cache_key_and_sequence_id_stay_in_the_arguments(cases: Path) -> None:
    trace = load(cases / "neuron" / "trace_json_like.json")
    assert linked(trace) == [("aten::mm", 300.0, "window")]
    row = int(trace.executions.slice[0])
    assert trace.args(row)["neff_cache_key"] == "mm--_[8,8]:BFloat16_i1:0000"
    assert trace.slices.sequence_id[row] == 281474976710657


def test_rows_at_time_zero_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [execution(10, 5, 1), {**execution(0, 5, 2), "timestamp": 0}]
    trace = load(write_json(tmp_path / "system_profile.json", {"trace_events": rows}))
    assert len(trace.executions) == 1
    assert trace.findings.of_kind("time_out_of_range") == 1


def test_the_package_offers_load_and_linking_lazily() -> None:
    assert neuron_tb.load is load


def test_of_nested_calls_with_one_external_id_the_outermost_is_the_launch(tmp_path: Path) -> None:
    events = [
        operator("a", 0, 50, external=3),
        complete("privateuse1_runtime", "outer call", 5, 30, args={"External id": 3}),
        complete("privateuse1_runtime", "inner call", 10, 5, args={"External id": 3}),
        window("a", 12, 80, 3),
    ]
    trace = load(write_kineto(tmp_path / "t.json", events))
    assert trace.strings[trace.slices.name[trace.executions.launch[0]]] == "outer call"


def test_device_events_of_the_framework_do_not_count_beside_the_cores_own_intervals(
    tmp_path: Path,
) -> None:
    sequence = 1 << 48 | 3
    kernel_row = complete(
        "kernel",
        "mul kernel",
        21,
        29,
        pid=0,
        tid=0,
        args={"device": 0, "External id": 1, "nrt_sequence_id": sequence},
    )
    events = [operator("aten::mul", 0, 20, external=1), kernel_row]
    rows = [
        system_row("nrta_execute_schedule", 5, 3, nrta_seq_id=sequence),
        system_row("kbl_exec_wait", 9, 50, thread_id=9, flow_id=[str(sequence), "4"], nc_idx=0),
        execution(20, 30, 4),
    ]
    trace = load(capture(tmp_path, events, rows))
    assert linked(trace) == [("aten::mul", 30.0, "measured")]


def test_cores_of_one_execution_may_follow_each_other(tmp_path: Path) -> None:
    rows = [
        row
        for exec_id, (first, one, second, other) in enumerate(
            [
                (1000, 70, 1000, 70),
                (1200, 70, 1230, 70),
                (1400, 50, 1450, 50),
                (1600, 30, 1650, 30),
            ],
            start=1,
        )
        for row in (
            execution(first, one, exec_id, device_core_idx=4),
            execution(second, other, exec_id, device_core_idx=5),
        )
    ]
    trace = load(write_json(tmp_path / "system_profile.json", {"trace_events": rows}))
    assert [us for _, us, _ in linked(trace)] == [70.0, 100.0, 100.0, 60.0]


def test_a_measurement_stands_for_one_window(tmp_path: Path) -> None:
    events = [
        operator("a", 0, 50, external=1),
        *(window("a", 60 + 100 * n, 90, 1) for n in range(3)),
    ]
    rows = [system_row("nrt_execute", 5, 3), execution(70, 40)]
    trace = load(capture(tmp_path, events, rows))
    assert [source for _, _, source in linked(trace)] == ["measured", "window", "window"]
    assert trace.findings.of_kind("windows_beside_measurements") == 2


def _latest_by_definition(candidates: list[Any], queries: list[Any]) -> list[int]:
    found = []
    for *keys, time in zip(*queries, strict=True):
        same = [
            (start, row)
            for row, (*own, start) in enumerate(zip(*candidates, strict=True))
            if own == keys
        ]
        early = [pair for pair in same if pair[0] <= time]
        found.append(max(early)[1] if early else min(same)[1] if same else NONE)
    return found


@settings(deadline=None)
@given(st.data(), st.integers(1, 2), st.booleans())
def test_the_latest_candidate_in_time_is_found(
    data: st.DataObject, processes: int, unique: bool
) -> None:
    ids = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=12, unique=unique))
    n, m = len(ids), data.draw(st.integers(0, 12))

    def column(size: int, largest: int, distinct: bool = False) -> Any:
        values = st.integers(0, largest)
        drawn = data.draw(st.lists(values, min_size=size, max_size=size, unique=distinct))
        return np.array(drawn, np.int64)

    scope = np.full(n, NONE)
    own = [column(n, processes - 1), scope, np.array(ids), column(n, 40, distinct=True)]
    asked = [column(m, processes - 1), np.full(m, NONE), column(m, 12), column(m, 40)]
    assert identifiers.latest_of(own, asked).tolist() == _latest_by_definition(own, asked)
