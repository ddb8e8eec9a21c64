"""Tables made from a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import neuron_tb
from neuron_tb.analysis.summary import COLUMNS, Row, Summary, summarize
from neuron_tb.converters.load import load
from tests.makers import (
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


def summary_of(tmp_path: Path, events: list[Any], by: str = "op", **top: Any) -> Summary:
    return summarize(load(write_kineto(tmp_path / "t.json", events, **top)), by)


def row(summary: Summary, name: str) -> Row:
    return next(r for r in summary.rows if r.name == name)


def test_cpu_self_time_is_without_the_operators_inside(tmp_path: Path) -> None:
    events = [
        operator("outer", 0, 100),
        operator("inner", 10, 30),
        operator("inner", 50, 20),
        complete("user_annotation", "not an operator", 5, 90),
    ]
    summary = summary_of(tmp_path, events)
    assert (row(summary, "outer").cpu_total_us, row(summary, "outer").cpu_self_us) == (100, 50)
    assert (row(summary, "inner").calls, row(summary, "inner").cpu_total_us) == (2, 50)
    assert "not an operator" not in [r.name for r in summary.rows]


def test_a_call_nested_in_its_own_name_counts_once_in_totals(tmp_path: Path) -> None:
    events = [
        operator("aten::to", 0, 100),
        operator("aten::to", 10, 50),
        launch(20, 5, 1),
        kernel("k", 200, 8, 1),
        launch(80, 5, 2),
        kernel("k", 300, 4, 2),
    ]
    found = row(summary_of(tmp_path, events), "aten::to")
    assert (found.calls, found.cpu_total_us, found.cpu_self_us) == (2, 100, 100)
    assert (found.device_total_us, found.device_self_us) == (12, 12)


def test_device_time_of_inner_operators_is_in_the_total_but_not_the_self_of_outer_ones(
    tmp_path: Path,
) -> None:
    events = [
        operator("linear", 0, 100),
        operator("addmm", 10, 50),
        launch(20, 5, 1),
        kernel("k", 200, 8, 1),
    ]
    summary = summary_of(tmp_path, events)
    outer, inner = row(summary, "linear"), row(summary, "addmm")
    assert (outer.device_total_us, outer.device_self_us, outer.device_percent) == (8, 0, 0)
    assert (inner.device_total_us, inner.device_self_us, inner.device_percent) == (8, 8, 100)
    assert summary.device_total_us == 8


def test_percentages_are_self_of_the_measured_total(tmp_path: Path) -> None:
    events = [
        *(operator(n, t, 10) for n, t in (("a", 0), ("b", 20))),
        *(launch(t + 1, 2, t) for t in (0, 20)),
        kernel("ka", 100, 30, 0),
        kernel("kb", 200, 10, 20),
    ]
    summary = summary_of(tmp_path, events)
    assert [(r.name, r.device_percent) for r in summary.rows] == [("a", 75.0), ("b", 25.0)]


def test_overlapping_windows_are_a_union_without_percentage(tmp_path: Path) -> None:
    events = [
        operator("a", 0, 5, external=1),
        operator("a", 6, 5, external=2),
        operator("b", 12, 5, external=3),
        window("a", 0, 100, 1),
        window("a", 50, 100, 2),
        window("b", 120, 80, 3),
    ]
    summary = summary_of(tmp_path, events)
    assert row(summary, "a").device_total_us == 150
    assert row(summary, "a").device_percent is None
    assert row(summary, "a").device_source == "window"
    assert summary.device_total_us == 200
    assert summary.device_source == "window"


@pytest.mark.parametrize(
    ("events", "top", "words"),
    [
        ([operator("a", 0, 9)], {}, "only CPU activity was recorded"),
        ([operator("a", 0, 9)], {"distributedInfo": {"backend": "neuron"}}, None),
        (
            [operator("a", 0, 9), complete("privateuse1_runtime", "nrt_execute", 1, 2)],
            {},
            "torch.neuron.synchronize() before the profiler stops",
        ),
    ],
)
def test_absent_device_time_is_none_and_comes_with_its_likely_cause(
    tmp_path: Path, events: list[Any], top: dict[str, Any], words: str | None
) -> None:
    summary = summary_of(tmp_path, events, **top)
    assert summary.device_total_us is None
    assert row(summary, "a").device_total_us is None
    assert row(summary, "a").device_source is None
    assert (words or "system_profile.json") in (summary.note or "")


def test_work_without_an_operator_has_a_row_of_its_own(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, [operator("a", 0, 9), kernel("stray", 20, 5, 1)])
    stray = row(summary, "stray (no operator)")
    assert (stray.calls, stray.cpu_total_us, stray.device_self_us) == (1, None, 5)


def test_dropped_events_make_the_total_a_lower_bound(cases: Path) -> None:
    folder = cases / "neuron"
    trace = load(folder / "torchneuron_cpu_only.json", folder / "system_profile.json")
    summary = summarize(trace)
    assert summary.lower_bound
    assert summary.device_total_us == 210.0


def test_kernels_and_steps_are_other_groupings_of_the_same_total(tmp_path: Path) -> None:
    events = [
        step(0, 0, 50),
        step(1, 50, 50),
        operator("a", 1, 20),
        operator("a", 51, 20),
        launch(2, 2, 1),
        launch(52, 2, 2),
        kernel("k1", 30, 5, 1),
        kernel("k2", 80, 7, 2),
    ]
    for by, expected in (
        ("op", {"a": 12.0}),
        ("kernel", {"k1": 5.0, "k2": 7.0}),
        ("step", {"step 0": 5.0, "step 1": 7.0}),
    ):
        summary = summary_of(tmp_path, events, by)
        assert {r.name: r.device_total_us for r in summary.rows} == expected
        assert summary.device_total_us == 12.0


def test_neuron_executions_are_named_after_their_operator_in_the_kernel_table(
    tmp_path: Path,
) -> None:
    write_kineto(tmp_path / "trace.json", [operator("aten::mul", 0, 20)])
    rows = [system_row("nrt_execute", 1, 5), execution(30, 9)]
    write_json(tmp_path / "system_profile.json", {"trace_event": rows})
    summary = summarize(load(tmp_path), "kernel")
    assert [(r.name, r.device_total_us) for r in summary.rows] == [("aten::mul", 9.0)]


def test_data_frames_have_the_documented_columns(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, [operator("a", 0, 9)])
    arrow = summary.to_arrow()
    assert arrow.column_names == list(COLUMNS)
    assert arrow.column("device_total_us").null_count == 1
    pandas = pytest.importorskip("pandas", reason="pandas is in the extra tensorboard")
    frame = summary.to_pandas()
    assert list(frame.columns) == list(COLUMNS)
    assert pandas.isna(frame.device_total_us[0])


def test_sorting_puts_absent_values_last(tmp_path: Path) -> None:
    events = [operator("slow", 0, 50), operator("fast", 60, 5), launch(61, 1, 1)]
    summary = summary_of(tmp_path, [*events, kernel("k", 100, 5, 1)])
    assert [r.name for r in summary.rows] == ["fast", "slow"]
    assert [r.name for r in summary.sorted_by("cpu_total_us").rows] == ["slow", "fast"]
    assert [r.name for r in summary.sorted_by("device_total_us").rows] == ["fast", "slow"]
    with pytest.raises(ValueError, match="no column"):
        summary.sorted_by("nonsense")


def test_idle_time_is_what_lies_between_executions_of_a_core(tmp_path: Path) -> None:
    one = write_kineto(
        tmp_path / "one.json", [operator("a", 0, 9), kernel("k", 10, 5, 1), kernel("k", 25, 5, 2)]
    )
    two = write_kineto(
        tmp_path / "two.json",
        [operator("a", 0, 4), kernel("k", 10, 2, 1), kernel("k", 10, 2, 2, device=1)],
    )
    first, second = neuron_tb.compare(one, two).captures
    assert (first.device_total_us, first.idle_us, first.calls) == (10, 10, 2)
    assert first.change_percent is None
    assert (second.device_total_us, second.idle_us) == (4, 0)
    assert second.change_percent == pytest.approx(-60)
    assert (first.cpu_total_us, second.cpu_total_us) == (9, 4)


def test_windows_are_never_compared_with_measured_time(tmp_path: Path) -> None:
    measured = write_kineto(tmp_path / "m.json", [operator("a", 0, 9), kernel("k", 1, 5, 1)])
    windows = write_kineto(
        tmp_path / "w.json", [operator("a", 0, 9, external=1), window("a", 1, 5, 1)]
    )
    comparison = neuron_tb.compare(measured, windows)
    assert comparison.captures[1].change_percent is None
    assert comparison.captures[1].device_source == "window"


def test_windows_beside_measurements_make_the_total_a_lower_bound(tmp_path: Path) -> None:
    events = [operator("a", 0, 9, external=1), operator("b", 20, 9, external=2)]
    events += [window("a", 5, 60, 1), window("b", 25, 60, 2)]
    write_kineto(tmp_path / "trace.json", events)
    rows = [system_row("nrt_execute", 1, 5), execution(30, 9)]
    write_json(tmp_path / "system_profile.json", {"trace_event": rows})
    summary = summarize(load(tmp_path))
    assert (summary.device_total_us, summary.lower_bound) == (9.0, True)
    assert row(summary, "b").device_source == "window"
