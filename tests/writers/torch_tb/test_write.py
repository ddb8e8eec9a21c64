"""The PyTorch Profiler plugin's file, proven with the plugin's own parser, pages and server."""

from __future__ import annotations

import gzip
import json
import pickle
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neuron_tb.checks import torch_tb as torch_tb_check
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.load import load
from neuron_tb.converters.model import Trace
from neuron_tb.converters.writers import Destination, Written
from neuron_tb.converters.writers.torch_tb import write as torch_tb
from tests.makers import (
    BASE_NS,
    HOST,
    PID,
    Event,
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

pytest.importorskip("torch_tb_profiler", reason="needs the extra tensorboard")
pytestmark = pytest.mark.filterwarnings("ignore:::torch_tb_profiler.*")

NEURON = {"distributedInfo": {"backend": "neuron", "rank": 0, "world_size": 1}}


def device_op(name: str, ts: float, external: int, dur: float = 70.0, **more: Any) -> list[Event]:
    """An operator of 60 us, its runtime call, and its device work as TorchNeuron writes it."""
    call = complete("privateuse1_runtime", name, ts + 10, 20, args={"External id": external})
    device = window(name, ts + 40, dur, external)
    return [operator(name, ts, 60, external, **more), call, device]


def written(
    tmp_path: Path, events: Iterable[Any], *, run: str = "run", **top: Any
) -> tuple[Trace, list[Written]]:
    source = write_kineto(tmp_path / "in" / "trace.json", events, **top)
    trace = load(source)
    return trace, torch_tb.write(trace, Destination(tmp_path / "out", run, force=True))


def one(tmp_path: Path, events: Iterable[Any], **top: Any) -> Written:
    _, files = written(tmp_path, events, **{**NEURON, **top})
    assert len(files) == 1
    assert files[0].path is not None, files[0].skipped
    return files[0]


def document(file: Written) -> dict[str, Any]:
    assert file.path is not None
    found: dict[str, Any] = json.loads(gzip.decompress(file.path.read_bytes()))
    return found


def events_of(file: Written, category: str) -> list[Event]:
    return [e for e in document(file)["traceEvents"] if e.get("cat") == category and e["ph"] == "X"]


def opened(file: Written) -> Any:
    """What the plugin makes of a file, and would send to its pages."""
    from torch_tb_profiler.consts import WORKER_PATTERN
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.profiler.run_generator import RunGenerator

    assert file.path is not None
    match = WORKER_PATTERN.match(file.path.name)
    assert match is not None
    data = RunProfileData.parse(match[1], 1, str(file.path), str(file.path.parent))
    profile = RunGenerator(match[1], 1, data).generate_run_profile()
    profile.append_gpu_metrics(b'{"traceEvents": [{}]}')
    profile.get_operator_tree()
    pickle.dumps(profile)
    if profile.memory_snapshot:
        profile.get_memory_stats()
        profile.get_memory_curve()
        profile.get_memory_events()
    return SimpleNamespace(data=data, profile=profile, **vars(data))


def device_self(plugin: Any) -> dict[str, float]:
    return {
        op.name: round(op.self_device_duration, 3)
        for op in plugin.op_list_groupby_name
        if op.self_device_duration
    }


def views(plugin: Any) -> list[str]:
    return [view.display_name for view in plugin.profile.views]


def average(plugin: Any) -> dict[str, float]:
    children = plugin.profile.overview["performance"][0]["children"]
    return {part["name"]: part["value"] for part in children}


# -- the numbers ------------------------------------------------------------------------------


def test_operators_of_the_naive_sample_add_up_to_its_device_time(
    samples: Path, tmp_path: Path
) -> None:
    trace = load(samples / "rmsnorm" / "naive")
    (file,) = torch_tb.write(trace, Destination(tmp_path, "naive"))
    plugin = opened(file)
    assert device_self(plugin) == {
        "aten::mul": 1164.5,
        "aten::add": 434.6,
        "aten::rsqrt": 415.0,
        "aten::mean": 340.8,
    }
    assert sum(device_self(plugin).values()) == pytest.approx(2354.9, abs=1e-6)
    table = plugin.profile.operation_table_by_name["data"]
    assert sum(row["device_self_duration"] for row in table) == 2355  # each row in whole us
    pie = plugin.profile.operation_pie_by_name["device_self_time"]["rows"]
    assert sum(value for _, value in pie) == pytest.approx(2354.9, abs=1e-6)


def test_device_work_goes_to_its_operator_through_an_invented_correlation(tmp_path: Path) -> None:
    file = one(tmp_path, [*device_op("aten::mm", 100, 5), *device_op("aten::add", 200, 6, 30.0)])
    plugin = opened(file)
    assert device_self(plugin) == {"aten::mm": 70.0, "aten::add": 30.0}
    calls, kernels = events_of(file, "runtime"), events_of(file, "kernel")
    assert [c["args"]["correlation"] for c in calls] == [k["args"]["correlation"] for k in kernels]
    assert len({c["args"]["correlation"] for c in calls}) == 2
    assert [c["args"]["External id"] for c in calls] == [5, 6]
    assert [c["args"]["source category"] for c in calls] == ["privateuse1_runtime"] * 2
    assert views(plugin) == ["Overview", "Operator", "Kernel", "Trace"]


def test_unmeasured_device_rows_say_that_they_are_windows(tmp_path: Path) -> None:
    (row,) = events_of(one(tmp_path, device_op("aten::mm", 100, 5)), "kernel")
    assert row["args"]["time source"].startswith("window")
    assert row["args"]["source category"] == "privateuse1_driver"


def test_measurement_replaces_the_window_which_stays_as_a_host_row(tmp_path: Path) -> None:
    folder = tmp_path / f"{HOST}_pid_{PID}" / "1"
    events = [step(1, 0, 1000), *device_op("aten::mm", 100, 5, 300.0)]
    write_kineto(folder / "trace.json", events, **NEURON)
    rows = [system_row("nrta_execute_schedule", 112, 5, nc_idx=0), execution(160, 90, 1)]
    write_json(folder / "system_profile.json", {"trace_events": rows})
    (file,) = torch_tb.write(load(folder), Destination(tmp_path, "run"))
    assert device_self(opened(file)) == {"aten::mm": 90.0}
    (shadow,) = events_of(file, "privateuse1_driver")
    assert (shadow["dur"], shadow["pid"]) == (300.0, PID)
    (measured,) = events_of(file, "kernel")
    assert "time source" not in measured["args"]
    assert measured["name"] == "aten::mm"
    assert measured["args"]["source name"] == "nc_exec_running"


def test_two_physical_cores_of_one_execution_are_one_kernel(cases: Path, tmp_path: Path) -> None:
    folder = cases / "neuron"
    trace = load(folder / "torchneuron_cpu_only.json", folder / "system_profile.json")
    (file,) = torch_tb.write(trace, Destination(tmp_path, "run"))
    assert len(events_of(file, "kernel")) == 3
    assert len(events_of(file, "neuron_hw")) == 3
    assert device_self(opened(file)) == {
        "aten::linear": 70.0,
        "aten::relu": 70.0,
        "aten::add": 70.0,
    }


def test_a_marker_without_length_stands_for_a_launch_that_was_not_recorded(tmp_path: Path) -> None:
    events = [operator("aten::mm", 100, 60, 5), window("aten::mm", 140, 70, 5)]
    file = one(tmp_path, [step(1, 0, 500), *events])
    assert device_self(opened(file)) == {"aten::mm": 70.0}
    (marker,) = events_of(file, "runtime")
    assert (marker["ts"], marker["dur"]) == (100.0, 0.0)
    assert "not recorded" in marker["args"]["added by neuron_tb"]
    assert file.findings.of_kind("launch_not_recorded") == 1
    assert document(file)["neuron_tb"]["added_events"] == 1
    assert file.slices == 3


def test_device_work_of_no_operator_is_not_given_to_one(tmp_path: Path) -> None:
    events = [
        step(1, 0, 900),
        operator("aten::zero", 10, 5, 0),
        launch(100, 10, 7),
        kernel("orphan", 150, 40, 7),
        operator("aten::mm", 300, 60, 9),
        launch(310, 10, 8, **{"External id": 9}),
        kernel("gemm", 350, 25, 8),
    ]
    file = one(tmp_path, events, distributedInfo=None)
    plugin = opened(file)
    assert device_self(plugin) == {"aten::mm": 25.0}
    by_operator = {k.name: k.op_name for k in plugin.kernel_list_groupby_name_op}
    assert by_operator == {"orphan": "CallTreeRoot", "gemm": "aten::mm"}
    assert document(file)["neuron_tb"]["kernels_without_operator"] == 1
    assert torch_tb_check.check(file.path).passed  # type: ignore[arg-type]


def test_operators_that_share_an_external_id_keep_their_own_device_time(tmp_path: Path) -> None:
    events = [
        *(operator("aten::first", 0, 10, 5), operator("aten::mm", 100, 60, 5)),
        complete("privateuse1_runtime", "aten::mm", 110, 20, args={"External id": 5}),
        window("aten::mm", 140, 70, 5),
    ]
    assert device_self(opened(one(tmp_path, events))) == {"aten::mm": 70.0}


def test_an_external_id_in_text_becomes_a_number(tmp_path: Path) -> None:
    events = [
        complete("cpu_op", "aten::mm", 100, 60, args={"External id": "5"}),
        complete("privateuse1_runtime", "aten::mm", 110, 20, args={"External id": "5"}),
        complete(
            "privateuse1_driver", "aten::mm", 140, 70, pid=0, tid=0, args={"External id": "5"}
        ),
    ]
    file = one(tmp_path, events)
    assert device_self(opened(file)) == {"aten::mm": 70.0}
    assert events_of(file, "cpu_op")[0]["args"] == {"External id": 5, "source External id": "5"}


def test_one_launch_for_two_operators_credits_each(tmp_path: Path) -> None:
    events = [
        operator("aten::a", 0, 50, 1),
        operator("aten::b", 100, 50, 2),
        launch(110, 10, 40, "cudaGraphLaunch", **{"External id": 2}),
        {**kernel("ka", 200, 30, 40), "args": {**kernel("ka", 0, 0, 40)["args"], "External id": 1}},
        {**kernel("kb", 240, 20, 40), "args": {**kernel("kb", 0, 0, 40)["args"], "External id": 2}},
    ]
    file = one(tmp_path, events, distributedInfo=None)
    assert device_self(opened(file)) == {"aten::a": 30.0, "aten::b": 20.0}


def test_host_side_device_rows_do_not_cut_host_time_twice(tmp_path: Path) -> None:
    inner = complete("privateuse1_runtime", "nrt_submit", 112, 10)
    plugin = opened(one(tmp_path, [*device_op("aten::mm", 100, 5), inner]))
    (op,) = plugin.op_list_groupby_name
    assert op.host_duration == pytest.approx(60)
    assert op.self_host_duration == pytest.approx(60 - 20)


def test_foreign_kernels_keep_their_names_and_numbers(tmp_path: Path) -> None:
    events = [
        operator("aten::mm", 100, 60, 9),
        launch(110, 10, 70_001, **{"External id": 9}),
        kernel("gemm_h884", 150, 25, 70_001, stream=13, device=2),
    ]
    file = one(tmp_path, events, distributedInfo=None)
    (row,) = events_of(file, "kernel")
    assert (row["name"], row["pid"], row["tid"]) == ("gemm_h884", 2, 13)
    assert (row["args"]["stream"], row["args"]["correlation"]) == (13, 70_001)
    names = [d["name"] for d in document(file)["deviceProperties"]]
    assert names == ["(not in this capture)", "(not in this capture)", "CUDA device 2"]


# -- times ------------------------------------------------------------------------------------


def test_every_nanosecond_comes_back_from_doubles(tmp_path: Path) -> None:
    events = [operator(f"aten::op{i}", 7_000_000_000_000.001 + i, 0.997, i + 1) for i in range(50)]
    trace, (file,) = written(tmp_path, events, **NEURON)
    found = document(file)
    base = found["baseTimeNanoseconds"]
    starts = sorted(
        base + round(e["ts"] * 1000) for e in found["traceEvents"] if e.get("cat") == "cpu_op"
    )
    assert starts == sorted(trace.slices.start_ns.tolist())
    assert all(e["dur"] == 0.997 for e in events_of(file, "cpu_op"))


def test_rows_that_touch_are_not_lost_to_the_addition_of_doubles(tmp_path: Path) -> None:
    """In doubles 0.1 + 0.7 > 0.8: the plugin would put the next row into the one before."""
    events: list[Event] = [step(1, 0, 1000), operator("aten::outer", 0.1, 0.7 + 600, 9000)]
    at = 0.1
    for number in range(600):
        events.append(operator(f"aten::op{number % 7}", round(at, 3), 1.001, 1 + number))
        at += 1.001
    events[1]["dur"] = round(at - 0.1, 3)
    file = one(tmp_path, events)
    from torch_tb_profiler.profiler.node import OperatorNode

    (root,) = opened(file).tid2tree.values()

    def count(node: OperatorNode) -> int:
        return sum(1 + count(child) for child in node.children)

    assert count(root) == 602
    assert all(round(e["dur"] * 1000) == 1001 for e in events_of(file, "cpu_op")[1:])


def test_a_trace_without_a_base_time_is_rebased_exactly(tmp_path: Path) -> None:
    events = [operator("aten::mm", BASE_NS // 1000 + 5, 60, 1)]
    found = document(one(tmp_path, events, baseTimeNanoseconds=None))
    (row,) = [e for e in found["traceEvents"] if e.get("cat") == "cpu_op"]
    assert found["baseTimeNanoseconds"] + round(row["ts"] * 1000) == BASE_NS + 5000
    assert row["ts"] < 2**43


# -- what loses a file in the plugin ----------------------------------------------------------


def test_without_operators_there_is_no_file_and_a_sentence(tmp_path: Path) -> None:
    _, files = written(tmp_path, [step(1, 0, 100), window("k", 10, 20, 1)])
    assert [(f.path, f.slices) for f in files] == [(None, 0)]
    assert "without framework operators" in str(files[0].skipped)
    assert not (tmp_path / "out").exists()


def test_events_without_category_arguments_or_numeric_thread_are_readable(tmp_path: Path) -> None:
    bare = {"ph": "X", "name": "bare", "pid": PID, "tid": "main", "ts": 5, "dur": 1}
    events = [
        bare,
        {**operator("aten::mm", 100, 60, 1, tid="main"), "args": None},
        operator("aten::add", 200, 10, 2, tid="worker"),
        {"ph": "M", "pid": PID, "tid": 0, "args": {}},
    ]
    file = one(tmp_path, events)
    assert {op.name for op in opened(file).op_list_groupby_name} == {"aten::mm", "aten::add"}
    tids = {e["name"]: e["tid"] for e in events_of(file, "cpu_op")}
    assert all(isinstance(tid, int) for tid in tids.values())
    assert tids["aten::mm"] != tids["aten::add"]
    assert all(
        (e["name"] and "args" not in e) or e["args"] is not None
        for e in document(file)["traceEvents"]
    )
    assert file.slices == 3


@pytest.mark.parametrize("category", ["memory", "Memory", "forward_backward", "Kernel ", "kernel"])
def test_rows_of_unknown_kind_cannot_be_misread(tmp_path: Path, category: str) -> None:
    """Such a category on a plain row would lose the file, or count as device work."""
    events = [operator("aten::mm", 0, 60, 1), complete(category, "stray", 10, 5, ph="B")]
    events[1].pop("dur")
    events.append({**events[1], "ph": "E", "ts": 15})
    events[1]["args"] = events[2]["args"] = {}
    file = one(tmp_path, events)
    assert opened(file).profile is not None
    assert file.slices == 2


def test_step_names_without_a_number_are_not_taken_for_steps(tmp_path: Path) -> None:
    odd = complete("user_annotation", "ProfilerStep#abc", 0, 50)
    file = one(tmp_path, [odd, step(3, 60, 100), operator("aten::mm", 70, 10, 1)])
    assert opened(file).steps_names == ["3"]
    assert [e["name"] for e in events_of(file, "step_annotation")] == ["ProfilerStep#abc"]


def test_copies_of_steps_on_the_device_do_not_become_steps(tmp_path: Path) -> None:
    copy = complete("gpu_user_annotation", "ProfilerStep#1", 140, 70, pid=0, tid=7)
    events = [
        *(step(1, 0, 200), step(2, 200, 200), copy),
        operator("aten::mm", 100, 60, 9),
        launch(110, 10, 8, **{"External id": 9}),
        kernel("gemm", 150, 25, 8),
    ]
    file = one(tmp_path, events, distributedInfo=None)
    assert opened(file).steps_names == ["1"]  # the plugin drops steps at the end without work
    assert file.findings.of_kind("device_step_copy") == 1
    assert file.slices == 6


def test_a_step_without_launches_under_a_busy_device_is_not_divided_by(tmp_path: Path) -> None:
    events = [
        step(1, 0, 100),
        *device_op("aten::mm", 10, 1, 500.0),
        step(2, 100, 100),
        operator("aten::view", 110, 5, 2),
        step(3, 200, 800),
        *device_op("aten::mm", 620, 3, 50.0),
    ]
    file = one(tmp_path, events)
    plugin = opened(file)
    assert plugin.steps_names == ["1", "3"]
    assert device_self(plugin) == {"aten::mm": 550.0}
    assert file.findings.of_kind("step_without_time") == 1
    assert [e["name"] for e in events_of(file, "step_annotation")] == ["ProfilerStep#2"]


def test_steps_of_another_annotation_are_called_profiler_steps(tmp_path: Path) -> None:
    events = []
    for number in range(3):
        events += [complete("user_annotation", "train", 1000 * number, 900)]
        events += device_op("aten::mm", 1000 * number + 10, number + 1)
    source = write_kineto(tmp_path / "trace.json", events, **NEURON)
    trace = load(source, steps_from="train")
    (file,) = torch_tb.write(trace, Destination(tmp_path / "out", "run"))
    assert opened(file).steps_names == ["0", "1", "2"]
    assert events_of(file, "user_annotation")[0]["args"]["source name"] == "train"


def test_cores_are_numbered_per_process_below_64(tmp_path: Path) -> None:
    events = []
    for number in range(70):
        events += [
            operator("aten::mm", 100 * number, 60, number + 1),
            complete(
                "privateuse1_driver",
                "aten::mm",
                100 * number + 20,
                30,
                pid=200 + number,
                tid=0,
                args={"External id": number + 1, "device": 200 + number},
            ),
        ]
    file = one(tmp_path, events)
    plugin = opened(file)
    assert plugin.used_devices == list(range(64))
    assert device_self(plugin) == {"aten::mm": 64 * 30.0}
    assert file.findings.of_kind("device_beyond_limit") == 6
    assert len(document(file)["deviceProperties"]) == 64
    assert file.slices == 140


def test_a_small_pid_of_the_host_is_no_device(tmp_path: Path) -> None:
    events = [
        {**e, "pid": 0 if e["cat"] == "privateuse1_driver" else 1} for e in device_op("a", 1, 1)
    ]
    for event in events:
        event["args"] = {**event["args"], "device": 3}
    file = one(tmp_path, events)
    (row,) = events_of(file, "kernel")
    assert row["pid"] == row["args"]["device"] == 3
    assert events_of(file, "cpu_op")[0]["pid"] != 1
    labels = [
        e["args"]["name"] for e in document(file)["traceEvents"] if e["name"] == "process_name"
    ]
    assert "python (pid 1)" in labels


def test_deep_operators_leave_the_tree_with_their_time(tmp_path: Path) -> None:
    depth = 400
    events = [operator(f"aten::n{n}", n, 2000 - 2 * n, n + 1) for n in range(depth)]
    events += [
        complete("privateuse1_runtime", "x", depth + 1, 5, args={"External id": depth}),
        window("x", depth + 5, 70, depth),
    ]
    file = one(tmp_path, events)
    plugin = opened(file)
    assert device_self(plugin) == {f"aten::n{torch_tb.MOST_NESTED - 1}": 70.0}
    assert file.findings.of_kind("nested_too_deep") == depth - torch_tb.MOST_NESTED
    assert file.slices == depth + 2


def test_rows_that_cross_stand_on_threads_of_their_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events = [operator("aten::a", 10, 50, 1), operator("aten::b", 40, 90, 2)]
    file = one(tmp_path, events)
    assert {op.name for op in opened(file).op_list_groupby_name} == {"aten::a", "aten::b"}
    assert "should not intersect" not in caplog.text
    assert file.findings.of_kind("overlapping_slices") == 1
    assert {e["name"]: e["dur"] for e in events_of(file, "cpu_op")} == {
        "aten::a": 50,
        "aten::b": 90,
    }


def test_a_step_that_crosses_an_operator_gives_way_to_it(tmp_path: Path) -> None:
    file = one(tmp_path, [step(1, 0, 100), *device_op("aten::mm", 80, 1)])
    (annotation,) = events_of(file, "user_annotation")
    assert annotation["tid"] != PID
    assert annotation["dur"] == 100
    assert events_of(file, "cpu_op")[0]["tid"] == PID
    assert device_self(opened(file)) == {"aten::mm": 70.0}
    assert file.findings.of_kind("overlapping_slices") == 1


def test_a_profiler_span_shorter_than_a_bucket_is_not_used_for_the_graph(tmp_path: Path) -> None:
    span = {
        **complete("Trace", "PyTorch Profiler (0)", 0, 0.5),
        "pid": "Spans",
        "tid": "PyTorch Profiler",
    }
    file = one(tmp_path, [span, *device_op("aten::mm", 10, 1)])
    assert device_self(opened(file)) == {"aten::mm": 70.0}


def test_operators_that_span_nothing_are_refused_with_a_sentence(tmp_path: Path) -> None:
    _, (file,) = written(tmp_path, [operator("aten::mm", 5, 0, 1)])
    assert file.path is None
    assert "less than a microsecond" in str(file.skipped)


def test_a_call_stack_that_is_a_list_is_kept_under_another_name(tmp_path: Path) -> None:
    op = complete(
        "cpu_op", "aten::mm", 0, 60, args={"Call stack": ["a.py(1): f"], "External id": 1}
    )
    file = one(tmp_path, [op])
    assert opened(file).profile.operation_stack_by_name == {}
    assert events_of(file, "cpu_op")[0]["args"]["source Call stack"] == ["a.py(1): f"]


def test_text_where_the_plugin_wants_a_number_is_kept_under_another_name(tmp_path: Path) -> None:
    row = kernel("k", 50, 10, 3)
    row["args"]["blocks per SM"] = "N/A"
    file = one(tmp_path, [operator("aten::mm", 0, 60, 1), row], distributedInfo=None)
    assert opened(file).profile.has_kernel
    assert events_of(file, "kernel")[0]["args"]["source blocks per SM"] == "N/A"


def test_names_that_the_plugin_takes_for_tensor_cores_are_broken(tmp_path: Path) -> None:
    file = one(tmp_path, device_op("model_default_MODULE_7316816a4", 100, 5))
    plugin = opened(file)
    assert plugin.tc_used_ratio == 0.0
    assert device_self(plugin) == {"model_default_MODULE_7316816a4": 70.0}
    assert file.findings.of_kind("kernel_renamed") == 1
    assert "Tensor Cores" not in str(plugin.recommendations)


# -- memory -----------------------------------------------------------------------------------


def memory(ts: float, kind: int, index: int, total: int = 4096, **more: Any) -> Event:
    args = {
        "Device Type": kind,
        "Device Id": index,
        "Addr": int(ts),
        "Bytes": 1024,
        "Total Allocated": total,
        "Total Reserved": 2 * total,
        **more,
    }
    return {
        "ph": "i",
        "s": "t",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": PID,
        "tid": PID,
        "ts": ts,
        "args": args,
    }


def test_memory_of_a_neuron_device_has_its_curve(tmp_path: Path) -> None:
    events = [
        *device_op("aten::mm", 100, 1),
        memory(110, 20, 0),
        memory(120, 0, -1),
        memory(130, 20, 2),
    ]
    file = one(tmp_path, events)
    plugin = opened(file)
    assert "Memory" in views(plugin)
    assert set(plugin.profile.get_memory_curve()["rows"]) == {"CPU", "GPU0", "GPU2"}
    assert plugin.profile.get_memory_stats()["rows"]["GPU0"][0][:2] == ["aten::mm", 1]
    assert len(document(file)["deviceProperties"]) == 3
    rows = [e["args"] for e in document(file)["traceEvents"] if e["name"] == "[memory]"]
    assert [r["Device Type"] for r in rows] == [1, 0, 1]
    assert rows[0]["source Device Type"] == 20


def test_memory_of_an_impossible_device_is_drawn_and_counted(tmp_path: Path) -> None:
    file = one(
        tmp_path, [*device_op("aten::mm", 100, 1), memory(110, 20, 99999), memory(111, 20, 0)]
    )
    assert set(opened(file).profile.get_memory_curve()["rows"]) == {"GPU0"}
    assert file.findings.of_kind("memory_device_unknown") == 1
    names = [e["name"] for e in document(file)["traceEvents"] if e["ph"] == "i"]
    assert names == ["[memory] (device unknown)", "[memory]"]


def test_host_memory_is_not_compared_with_a_devices_capacity(tmp_path: Path) -> None:
    events = [
        *(operator("aten::mm", 100, 60, 9), launch(110, 10, 8), kernel("k", 150, 25, 8)),
        *(memory(105, 0, -1, total=10**12), memory(106, 1, 0)),
    ]
    known = [
        {"id": 0, "name": "GPU", "totalGlobalMem": 10**9, "computeMajor": 8, "computeMinor": 0}
    ]
    file = one(tmp_path, events, distributedInfo=None, deviceProperties=known)
    assert not any("limit of device memory" in text for text in opened(file).recommendations)


# -- collectives ------------------------------------------------------------------------------


def collective_op(ts: float, external: int, dur: float) -> list[Event]:
    """An all-reduce as torch records it: TensorList dimensions, and the size on an inner row."""
    outer = operator("c10d::allreduce_", ts, 40, external)
    outer["args"] |= {"Input Dims": [[[1024]], []], "Input type": ["TensorList", ""]}
    inner = operator("record_param_comms", ts + 1, 2, external + 100)
    inner["args"] |= {"In msg nelems": 1024, "dtype": "BFloat16"}
    call = complete(
        "privateuse1_runtime", "c10d::allreduce_", ts + 5, 9, args={"External id": external}
    )
    return [outer, inner, call, window("c10d::allreduce_", ts + 30, dur, external)]


def two_ranks(tmp_path: Path, per_rank: dict[int, list[Event]]) -> list[Written]:
    sources = []
    for rank, events in per_rank.items():
        info = {"distributedInfo": {"backend": "neuron", "rank": rank, "world_size": 2}}
        folder = tmp_path / "in" / f"{HOST}_pid_{PID + rank}" / "1"
        moved = [{**e, "pid": PID + rank} if e["pid"] == PID else e for e in events]
        sources.append(write_kineto(folder / "trace.json", moved, **info))
    return torch_tb.write(load(*sources), Destination(tmp_path / "out", "run"))


def distributed(files: list[Written]) -> Any:
    from torch_tb_profiler.profiler.data import DistributedRunProfileData
    from torch_tb_profiler.profiler.loader import RunLoader
    from torch_tb_profiler.run import Run

    run = Run("run", "out")
    for file in files:
        run.add_profile(DistributedRunProfileData(opened(file).data))
    (made,) = RunLoader("run", "out", None)._process_spans(run)
    return made


def test_a_late_rank_shows_as_synchronizing_in_the_distributed_view(tmp_path: Path) -> None:
    ranks = {
        rank: [step(1, 0, 1000), *device_op("aten::mm", 10, 1), *collective_op(200, 2, dur)]
        for rank, dur in ((0, 180.0), (1, 250.0))
    }
    files = two_ranks(tmp_path, ranks)
    made = distributed(files)
    waits = list(made.steps_to_wait["data"]["1"].values())
    assert [[round(x, 3) for x in wait] for wait in waits] == [[180.0, 0.0], [180.0, 70.0]]
    for table in made.comm_ops["data"].values():
        name, calls, size, *_ = table["rows"][0]
        assert (name, calls, size) == ("nccl:all_reduce", 1, 2048)
    plugin = opened(files[1])
    assert device_self(plugin)["c10d::allreduce_"] == 250.0
    assert average(plugin)["Communication"] == 250


def test_collectives_of_the_training_sample_fill_the_distributed_view(
    samples: Path, tmp_path: Path
) -> None:
    files = torch_tb.write(load(samples / "training"), Destination(tmp_path, "training"))
    made = distributed(files)
    assert [t["rows"][0][:3] for t in made.comm_ops["data"].values()] == [
        ["nccl:all_reduce", 3, 3 * 8393728 * 2]
    ] * 2
    plugin = opened(files[0])
    assert views(plugin) == ["Overview", "Operator", "Kernel", "Trace", "Memory", "Module"]
    about = document(files[0])["neuron_tb"]
    assert sum(device_self(plugin).values()) * 1000 == pytest.approx(about["operator_device_ns"])
    assert plugin.steps_names == ["1", "2", "3"] or len(plugin.steps_names) == 3


def test_dimensions_that_the_plugin_cannot_multiply_are_kept_under_another_name(
    tmp_path: Path,
) -> None:
    args = {"External id": 3, "Input Dims": [[[8]], []], "Input type": ["TensorList", ""]}
    row = complete("cpu_op", "nccl:all_reduce", 100, 50, args=args)
    half = complete("cpu_op", "nccl:broadcast", 200, 50, args={"Input Dims": [[8]]})
    files = two_ranks(tmp_path, {rank: [step(1, 0, 900), row, half] for rank in (0, 1)})
    assert distributed(files) is not None
    first = events_of(files[0], "cpu_op")[0]["args"]
    assert first["source Input Dims"] == [[[8]], []]
    assert "Input Dims" not in first


def test_collectives_without_an_id_of_their_own_stay_apart(tmp_path: Path) -> None:
    rows = [complete("user_annotation", "nccl:all_reduce", 100 * n, 50) for n in range(4)]
    file = one(tmp_path, [operator("aten::mm", 0, 900, 7), *rows])
    assert len(opened(file).comm_node_list) == 4


def test_a_collective_without_a_word_in_the_plugin_is_a_finding(tmp_path: Path) -> None:
    file = one(tmp_path, device_op("c10d::alltoall_base_", 100, 5))
    assert opened(file).comm_node_list == []
    assert file.findings.of_kind("collective_not_translated") == 1


def test_two_communication_libraries_are_a_finding(tmp_path: Path) -> None:
    gloo = complete("user_annotation", "gloo:broadcast", 0, 5, args={"External id": 77})
    file = one(tmp_path, [gloo, *collective_op(200, 2, 50)])
    assert opened(file).profile is not None
    assert file.findings.of_kind("collective_libraries_mixed") == 1


# -- modules and backward ---------------------------------------------------------------------


def module(name: str, ts: float, dur: float, number: int, parent: int | None = None) -> Event:
    args = {"Python id": number, "Python parent id": parent, "Python module id": number}
    return complete("python_function", f"nn.Module: {name}", ts, dur, args=args)


def arrow(number: int, source: float, target: float) -> list[Event]:
    both = {"cat": "fwdbwd", "name": "fwdbwd", "id": number, "pid": PID, "tid": PID}
    return [{"ph": "s", "ts": source, **both}, {"ph": "f", "bp": "e", "ts": target, **both}]


def training_step() -> list[Event]:
    root = "autograd::engine::evaluate_function: "
    return [
        step(1, 0, 1000),
        module("Linear_0", 10, 100, 1),
        *device_op("aten::linear", 20, 1),
        operator(root + "AddmmBackward0", 300, 100, 3),
        operator("AddmmBackward0", 310, 80, 4),
        complete("privateuse1_runtime", "aten::mm", 320, 10, args={"External id": 4}),
        window("aten::mm", 350, 70, 4),
        *arrow(1, 20, 310),
    ]


def test_backward_operators_come_under_their_module(tmp_path: Path) -> None:
    file = one(tmp_path, training_step())
    plugin = opened(file)
    assert device_self(plugin) == {"aten::linear": 70.0, "AddmmBackward0": 70.0}
    (root,) = plugin.tid2tree.values()
    names = [child.name for child in root.children] + [
        child.name for child in root.children[0].children
    ]
    assert "nn.Module: Linear_0.backward" in names
    assert file.findings.of_kind("backward_not_shown") == 0


def test_a_module_id_of_null_makes_no_module(tmp_path: Path) -> None:
    frame = module("x", 10, 100, 1)
    frame["args"]["Python module id"] = None
    plugin = opened(one(tmp_path, [frame, *device_op("aten::mm", 20, 1)]))
    assert "Module" not in views(plugin)
    assert device_self(plugin) == {"aten::mm": 70.0}


def extra_loss() -> list[Event]:
    root = "autograd::engine::evaluate_function: "
    return [
        *device_op("aten::mse_loss", 150, 20),
        operator(root + "MseLossBackward0", 240, 50, 21),
        operator("MseLossBackward0", 245, 40, 22),
        complete("privateuse1_runtime", "aten::mse", 250, 10, args={"External id": 22}),
        window("aten::mse", 260, 33, 22),
        *arrow(2, 150, 245),
    ]


def without_arrow() -> list[Event]:
    return [
        operator("autograd::engine::evaluate_function: SumBackward0", 240, 50, 21),
        complete("privateuse1_runtime", "aten::expand", 250, 10, args={"External id": 21}),
        window("aten::expand", 260, 33, 21),
    ]


@pytest.mark.parametrize(
    ("more", "device_us"),
    [
        (extra_loss(), 70 + 70 + 70 + 33),
        (without_arrow(), 70 + 70 + 33),
        ([module("Dropout_0", 60, 10, 2, 1)], 140),
        (
            [
                operator(
                    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 120, 9
                )
            ],
            140,
        ),
        ([operator("aten::second", 90, 5, 30), *arrow(3, 90, 310)], 140),
    ],
    ids=[
        "loss outside modules",
        "no arrow",
        "idle module",
        "accumulate first",
        "two arrows to one",
    ],
)
def test_arrows_that_would_lose_backward_work_or_the_file_are_not_offered(
    tmp_path: Path, more: list[Event], device_us: float
) -> None:
    file = one(tmp_path, [*training_step(), *more])
    plugin = opened(file)
    assert sum(device_self(plugin).values()) == pytest.approx(device_us)
    assert file.findings.of_kind("backward_not_shown") >= 1
    arrows = [e for e in document(file)["traceEvents"] if e["ph"] == "s" and e["cat"] == "fwdbwd"]
    assert arrows


def test_data_loading_and_the_optimizer_are_seen(tmp_path: Path) -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [
        step(1, 0, 1000),
        complete("user_annotation", loader, 10, 128),
        *device_op("aten::mm", 200, 1),
        complete("user_annotation", "Optimizer.step#AdamW.step", 300, 100),
        complete("user_annotation", "my_annotation", 500, 100),
    ]
    file = one(tmp_path, events)
    plugin = opened(file)
    assert average(plugin)["DataLoader"] == 128
    assert {op.name for op in plugin.op_list_groupby_name} == {"aten::mm"}
    (root,) = plugin.tid2tree.values()
    assert [type(n).__name__ for n in root.children[0].children] == [
        "DataLoaderNode",
        "OperatorNode",
        "OptimizerNode",
    ]


# -- the file ---------------------------------------------------------------------------------


def test_trace_events_are_last_and_the_counters_of_the_plugin_fit_in(tmp_path: Path) -> None:
    file = one(
        tmp_path,
        device_op("aten::mm", 100, 5),
        traceName="a ] b",
        INFO=["line ]"],
        distributedInfo={"backend": "neuron", "rank": 0, "pg_config": [{"ranks": [0, 1]}]},
    )
    assert list(document(file))[-1] == "traceEvents"
    profile = opened(file).profile
    assert file.path is not None
    raw = gzip.decompress(profile.append_gpu_metrics(gzip.decompress(file.path.read_bytes())))
    counters = [e["name"] for e in json.loads(raw)["traceEvents"] if e["ph"] == "C"]
    assert "GPU 0 Utilization" in counters
    assert json.loads(raw)["distributedInfo"]["pg_config"] == [{"ranks": [0, 1]}]


def test_the_file_says_what_it_is_and_what_was_found(tmp_path: Path) -> None:
    trace, (file,) = written(tmp_path, device_op("aten::mm", 100, 5), **NEURON)
    trace.findings.add("made_up", "something was repaired", 3)
    (file,) = torch_tb.write(trace, Destination(tmp_path / "out", "run", "trn2.48xlarge", True))
    found = document(file)
    assert found["deviceProperties"] == [
        {
            "id": 0,
            "name": "NeuronCore 0 (AWS Trainium2, shown in CUDA terms)",
            "totalGlobalMem": 24 << 30,
        }
    ]
    about = found["neuron_tb"]
    assert (about["slices"], about["windows"], about["operator_device_ns"]) == (3, 1, 70_000)
    assert {"kind": "made_up", "count": 3, "message": "something was repaired"} in about["findings"]
    (file,) = torch_tb.write(trace, Destination(tmp_path / "out", "run", None, True))
    name = "NeuronCore 0 (AWS Neuron, shown in CUDA terms)"
    assert document(file)["deviceProperties"] == [{"id": 0, "name": name}]


def test_arguments_of_the_source_pass_through_as_they_are(tmp_path: Path) -> None:
    args = {"text": 'ä "q" \\ \u2028 😀', "big": 2**63 + 11, "n": [1.10, None], "External id": 1}
    source = tmp_path / "in" / "trace.json"
    write_kineto(source, [operator("aten::mm", 0, 60, 1)])
    text = source.read_text().replace('{"External id": 1}', json.dumps(args, ensure_ascii=False))
    source.write_text(text, encoding="utf-8")
    (file,) = torch_tb.write(load(source), Destination(tmp_path / "out", "run"))
    assert events_of(file, "cpu_op")[0]["args"] == args


def test_a_fan_of_arrows_is_written_as_pairs(tmp_path: Path) -> None:
    events = [
        operator("aten::mm", 0, 60, 1),
        launch(10, 5, 70_001, **{"External id": 1}),
        *(kernel(f"k{n}", 100 + 10 * n, 5, 70_001) for n in range(3)),
    ]
    found = document(one(tmp_path, events, distributedInfo=None))["traceEvents"]
    starts = [e["id"] for e in found if e["ph"] == "s"]
    ends = [e["id"] for e in found if e["ph"] == "f"]
    assert starts == ends
    assert len(set(starts)) == 3
    assert starts[0] == 70_001


def test_counters_are_written_and_values_that_are_no_numbers_counted(
    samples: Path, tmp_path: Path
) -> None:
    trace = load(samples / "training")
    trace.counters.value[0] = float("nan")
    files = torch_tb.write(trace, Destination(tmp_path, "run"))
    found = [e for f in files for e in document(f)["traceEvents"] if e["ph"] == "C"]
    assert len(found) == len(trace.counters) - 1
    assert sum(f.findings.of_kind("counter_not_finite") for f in files) == 1


def test_equal_hosts_and_pids_of_two_ranks_are_two_workers_with_equal_digits(
    tmp_path: Path,
) -> None:
    sources = []
    for rank in (0, 1):
        info = {"distributedInfo": {"backend": "neuron", "rank": rank}}
        path = tmp_path / "in" / f"r{rank}" / "trace.json"
        sources.append(write_kineto(path, device_op("aten::mm", 10 + rank, 1), **info))
    files = torch_tb.write(load(*sources), Destination(tmp_path / "out", "run"))
    names = [f.path.name for f in files if f.path]
    assert names == [
        f"localhost-rank0_{PID}.{BASE_NS + 10_000}.pt.trace.json.gz",
        f"localhost-rank1_{PID}.{BASE_NS + 11_000}.pt.trace.json.gz",
    ]


def test_a_relative_clock_has_times_of_as_many_digits(tmp_path: Path) -> None:
    file = one(tmp_path, device_op("aten::mm", 10, 1), baseTimeNanoseconds=None)
    assert file.path is not None
    assert file.path.name == f"localhost_{PID}.0000000000000010000.pt.trace.json.gz"
    assert "baseTimeNanoseconds" not in document(file)


# -- the folder -------------------------------------------------------------------------------


def test_no_name_fits_the_plugins_pattern_before_all_files_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_tb_profiler.consts import WORKER_PATTERN

    seen: list[str] = []
    original = torch_tb.write_events

    def spying(*args: Any) -> None:
        original(*args)
        seen.extend(p.name for p in (tmp_path / "out").rglob("*"))

    monkeypatch.setattr(torch_tb, "write_events", spying)
    two_ranks(tmp_path, {rank: device_op("aten::mm", 10, 1) for rank in (0, 1)})
    assert len(seen) > 2
    assert not [name for name in seen if WORKER_PATTERN.match(name)]
    assert len(list((tmp_path / "out" / "run").iterdir())) == 2


def test_an_interrupted_run_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = one(tmp_path, device_op("aten::mm", 100, 5))
    assert file.path is not None
    before = file.path.read_bytes()

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch_tb, "write_events", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one(tmp_path, device_op("aten::other", 100, 5))
    assert file.path.read_bytes() == before
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["run"]


def test_a_folder_with_other_files_is_never_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "run"
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("precious")
    with pytest.raises(NeuronTbError, match=r"thesis\.tex"):
        one(tmp_path, device_op("aten::mm", 100, 5))
    assert (folder / "thesis.tex").read_text() == "precious"


def test_an_existing_run_needs_force(tmp_path: Path) -> None:
    trace, _ = written(tmp_path, device_op("aten::mm", 100, 5), **NEURON)
    with pytest.raises(NeuronTbError, match="--force"):
        torch_tb.write(trace, Destination(tmp_path / "out", "run"))


# -- the check, and the plugin as a whole -----------------------------------------------------


def test_the_check_describes_the_views_and_opens_the_distributed_one(
    samples: Path, tmp_path: Path
) -> None:
    files = torch_tb.write(load(samples / "training"), Destination(tmp_path, "training"))
    assert files[0].path is not None
    report = torch_tb_check.check(files[0].path)
    assert report.passed, report.problems
    assert report.slices == files[0].slices
    assert {"Overview", "Operator", "Kernel", "Memory", "Module", "Distributed"} <= {
        view.name for view in report.views
    }


def test_the_check_notices_a_lost_slice_and_lost_device_time(tmp_path: Path) -> None:
    file = one(tmp_path, [*device_op("aten::mm", 100, 5), *device_op("aten::add", 300, 6)])
    found = document(file)
    found["traceEvents"].remove(events_of(file, "runtime")[0])
    assert file.path is not None
    file.path.write_bytes(gzip.compress(json.dumps(found).encode()))
    report = torch_tb_check.check(file.path)
    assert not report.passed
    assert any("slices" in problem for problem in report.problems)
    assert any("70.000 us of device time" in problem for problem in report.problems)


def test_the_check_survives_a_file_that_the_plugin_cannot_read(tmp_path: Path) -> None:
    file = one(tmp_path, device_op("aten::mm", 100, 5))
    found = document(file)
    del events_of(file, "kernel")[0]["args"]["device"]
    for event in found["traceEvents"]:
        event.get("args", {}).pop("device", None)
    assert file.path is not None
    file.path.write_bytes(gzip.compress(json.dumps(found).encode()))
    assert any("the plugin's code failed" in p for p in torch_tb_check.check(file.path).problems)
    file.path.write_bytes(file.path.read_bytes()[:100])
    assert any("not whole" in p for p in torch_tb_check.check(file.path).problems)


@pytest.mark.slow
def test_the_plugins_server_shows_the_samples(samples: Path, tmp_path: Path) -> None:
    from tensorboard.plugins import base_plugin
    from torch_tb_profiler.plugin import TorchProfilerPlugin
    from werkzeug.test import Client

    torch_tb.write(load(samples / "rmsnorm" / "naive"), Destination(tmp_path, "naive"))
    files = torch_tb.write(load(samples / "training"), Destination(tmp_path, "training"))
    plugin = TorchProfilerPlugin(base_plugin.TBContext(logdir=str(tmp_path)))
    apps = plugin.get_plugin_apps()

    def get(route: str, **query: str) -> Any:
        answer = Client(apps[route]).get(route, query_string=query)
        assert answer.status_code == 200, (route, query, answer.text[:200])
        raw = answer.data
        return json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)

    deadline = time.monotonic() + 120
    while (state := get("/runs"))["loading"] or len(state["runs"]) < 2:
        assert time.monotonic() < deadline, state
        time.sleep(0.5)
    naive = {
        "run": "naive",
        "worker": get("/workers", run="naive", view="Operator")[0],
        "span": "1",
    }
    table = get("/operation/table", **naive, group_by="Operation")["data"]
    assert sum(row["device_self_duration"] for row in table) == 2355
    pie = get("/operation", **naive, group_by="Operation")["device_self_time"]["rows"]
    assert sum(value for _, value in pie) == pytest.approx(2354.9, abs=1e-6)
    overview = get("/overview", **naive)
    assert overview["environments"][1]["value"] == "GPU"
    assert overview["gpu_metrics"]["data"][1] == {
        "title": "Name",
        "value": "NeuronCore 0 (AWS Neuron, shown in CUDA terms)",
    }
    kernels = json.dumps(get("/kernel/table", **naive, group_by="KernelNameAndOpName"))
    assert "CallTreeRoot" not in kernels
    assert files[0].path is not None
    worker = files[0].path.name.split(".")[0]
    training = {"run": "training", "worker": worker, "span": "1"}
    assert set(get("/views", run="training")) == {
        *("Overview", "Operator", "Kernel", "Trace", "Distributed", "Memory", "Module")
    }
    get("/memory", **training)
    get("/memory_curve", **training)
    get("/memory_events", **training)
    get("/module", **training)
    get("/tree", **training)
    assert any(e["ph"] == "C" for e in get("/trace", **training)["traceEvents"])
    for route in ("gpuinfo", "overlap", "waittime", "commops"):
        assert get(f"/distributed/{route}", run="training", span="1")["metadata"]["title"]


@pytest.mark.parametrize(
    "name",
    [
        *("real/hta_alexnet_overlaps.json.gz", "real/hta_amd_mi250_rocm62.json.gz"),
        *("real/hta_cpu_only_rank34.pt.trace.json.gz", "real/hta_mtia_inference_rank0.json.gz"),
        *("real/hta_sampled_rank0.json.gz", "real/kineto_gpu_metrics_input.json"),
        *("real/tracelens_torch_compile_triton.json.gz", "real/user_dtu_profile_memory.json"),
        *("neuron/privateuse1_driver.json", "neuron/trace_json_like.json"),
        *("neuron/doc_system_profile.json", "odd/crossing_overlaps.json"),
    ],
)
def test_strangers_files_open_with_all_their_slices(cases: Path, tmp_path: Path, name: str) -> None:
    trace = load(cases / name)
    for file in torch_tb.write(trace, Destination(tmp_path, "run")):
        if file.path is None:
            continue
        plugin = opened(file)
        found = document(file)
        complete_events = [e for e in found["traceEvents"] if e["ph"] == "X"]
        about = found["neuron_tb"]
        assert len(complete_events) - about["added_events"] == file.slices == about["slices"]
        wanted = about["operator_device_ns"] / 1000
        assert sum(device_self(plugin).values()) == pytest.approx(wanted, abs=0.01)
    for process in range(len(trace.processes)):
        own = int((trace.slice_process == process).sum())
        files = torch_tb.write(trace, Destination(tmp_path, "run", force=True))
        assert own == 0 or own in [f.slices for f in files] or any(f.skipped for f in files)


def test_an_operator_that_repeats_its_parents_name_keeps_the_device_time(tmp_path: Path) -> None:
    """The plugin makes one row of both and forgets what the outer one launched."""
    events = [*device_op("aten::mm", 100, 5), operator("aten::mm", 105, 4, 6)]
    assert device_self(opened(one(tmp_path, events))) == {"aten::mm": 70.0}


def test_a_python_frame_with_a_collectives_name_does_not_lose_the_file(tmp_path: Path) -> None:
    frame = module("x", 10, 100, 1)
    frame["name"] = "nccl:all_reduce"
    file = one(tmp_path, [frame, *device_op("aten::mm", 20, 1)])
    assert device_self(opened(file)) == {"aten::mm": 70.0}
    assert file.slices == 4
