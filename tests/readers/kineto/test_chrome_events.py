"""Asynchronous events, arrows under all their names, and files of other programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neuron_tb.converters.convert import TARGETS, convert
from neuron_tb.converters.load import load
from neuron_tb.converters.model import ClockKind, Role, Trace, TrackKind
from neuron_tb.converters.readers import read_file
from tests.makers import BASE_NS, PID, complete, kernel, launch, operator, write_json, write_kineto


def event(ph: str, name: str | None, ts: float, **more: Any) -> dict[str, Any]:
    named = {} if name is None else {"name": name}
    return {"ph": ph, "cat": "rpc", "pid": PID, "tid": PID, "ts": ts, **named, **more}


def spans(trace: Trace) -> list[tuple[str, float, float, str]]:
    """(name, start and end in microseconds of the capture, row), in order of the start."""
    base = trace.clock.base_ns
    s = trace.slices
    return sorted(
        (
            trace.strings[s.name[row]],
            (int(s.start_ns[row]) - base) / 1000,
            (int(s.end_ns[row]) - base) / 1000,
            trace.tracks[s.track[row]].name,
        )
        for row in range(len(s))
    )


def arrows(trace: Trace) -> list[tuple[str, str, str]]:
    name = trace.slices.name
    return sorted(
        (trace.strings[k], trace.strings[name[s]], trace.strings[name[t]])
        for s, t, k in zip(
            trace.flows.source.tolist(),
            trace.flows.target.tolist(),
            trace.flows.kind.tolist(),
            strict=True,
        )
    )


# -- asynchronous events --------------------------------------------------------------------


def test_asynchronous_spans_nest_by_identifier_and_overlap_in_rows(tmp_path: Path) -> None:
    events = [
        operator("a", 0, 100),
        event("b", "request", 10, id=1, args={"x": 1}),
        event("b", "parse", 12, id=1),
        event("b", "request", 14, id="0x2"),
        event("e", "parse", 20, id=1, args={"y": 2}),
        event("n", "retry", 22, id=1),
        event("e", None, 30, id=1, args={"z": 3}),
        event("e", "request", 40, id="0x2"),
        event("b", "request", 50, id=3),
        event("e", "request", 60, id=3),
    ]
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert spans(trace) == [
        ("a", 0, 100, f"thread {PID}"),
        ("parse", 12, 20, "request"),
        ("request", 10, 30, "request"),
        ("request", 14, 40, "request (2)"),
        ("request", 50, 60, "request"),
    ]
    args = {
        (trace.strings[trace.slices.name[r]], int(trace.slices.duration_ns[r])): trace.args(r)
        for r in range(len(trace.slices))
    }
    assert args["request", 20_000] == {"x": 1, "z": 3}
    assert args["parse", 8_000] == {"y": 2}
    (retry,) = trace.instants.track.tolist()
    assert trace.tracks[retry].name == "request"
    assert trace.findings.of_kind("asynchronous_spans") == 4
    assert trace.findings.of_kind("phase_not_shown") == 0


def test_asynchronous_spans_count_neither_as_operators_nor_as_device_work(tmp_path: Path) -> None:
    events = [
        operator("a", 0, 100),
        event("b", "k", 1, id=1, cat="kernel"),
        event("e", "k", 9, id=1, cat="kernel"),
    ]
    trace = load(write_kineto(tmp_path / "t.json", events))
    assert sorted(trace.slices.role.tolist()) == [Role.OTHER, Role.OPERATOR]
    assert len(trace.executions) == 0
    assert [t.kind for t in trace.tracks] == [TrackKind.THREAD, TrackKind.OTHER]


@pytest.mark.parametrize("order", [1, -1])
def test_older_asynchronous_events_pair_by_name_and_their_steps_are_instants(
    tmp_path: Path, order: int
) -> None:
    events = [
        event("S", "load", 1, id=7),
        event("S", "save", 2, id=7),
        event("T", "load", 3, id=7, args={"step": "half"}),
        event("p", "load", 4, id=7),
        event("F", "load", 5, id=7),
        event("F", "save", 8, id=7),
        operator("a", 0, 1),
    ][::order]
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert spans(trace)[1:] == [("load", 1, 5, "load"), ("save", 2, 8, "save")]
    assert len(trace.instants) == 2


def test_identifiers_are_those_of_a_process_unless_stated_or_needed_otherwise(
    tmp_path: Path,
) -> None:
    here, there = {"pid": 1, "tid": 1}, {"pid": 2, "tid": 2}
    events = [
        event("b", "same", 10, id=1, **here),
        event("b", "same", 11, id=1, **there),
        event("e", "same", 12, id=1, **here),
        event("e", "same", 15, id=1, **there),
        event("b", "local", 20, id2={"local": "0x5"}, **here),
        event("b", "local", 21, id2={"local": "0x5"}, **there),
        event("e", "local", 22, id2={"local": "0x5"}, **there),
        event("e", "local", 23, id2={"local": "0x5"}, **here),
        event("b", "away", 30, id2={"global": "0x5"}, **here),
        event("e", "away", 35, id2={"global": "0x5"}, **there),
        event("b", "moved", 40, id=9, **here),
        event("e", "moved", 45, id=9, **there),
        event("b", "scoped", 50, id=1, scope="x", **here),
        event("b", "scoped", 51, id=1, scope="y", **here),
        event("e", "scoped", 52, id=1, scope="x", **here),
        event("e", "scoped", 54, id=1, scope="y", **here),
    ]
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert [(name, end - start) for name, start, end, _ in spans(trace)] == [
        ("away", 5),
        ("local", 3),
        ("local", 1),
        ("moved", 5),
        ("same", 2),
        ("same", 4),
        ("scoped", 2),
        ("scoped", 3),
    ]


def test_asynchronous_events_without_their_other_half_are_kept_by_rule(tmp_path: Path) -> None:
    events = [
        operator("a", 0, 100),
        event("b", "open", 5, id=1),
        event("e", "never", 6, id=2),
        event("n", "alone", 7, id=3),
        event("b", "timeless", "x", id=4),  # type: ignore[arg-type]
    ]
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert sorted(trace.strings[n] for n in trace.instants.name) == ["alone", "open"]
    assert trace.findings.of_kind("unfinished") == 1
    assert trace.findings.of_kind("end_without_begin") == 1
    assert trace.findings.of_kind("no_time") == 1


def test_many_names_of_asynchronous_spans_share_their_categorys_rows(tmp_path: Path) -> None:
    events = [operator("a", 0, 1)]
    for number in range(2000):
        events.append(event("b", f"task {number}", number * 10, id=number))
        events.append(event("e", f"task {number}", number * 10 + 5, id=number))
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert trace.findings.of_kind("asynchronous_spans") == 2000
    assert len(trace.tracks) < 510


@pytest.mark.parametrize("target", TARGETS)
def test_every_format_takes_asynchronous_spans(tmp_path: Path, target: str) -> None:
    events = [
        operator("a", 0, 100),
        event("b", "r", 1, id=1),
        event("b", "r", 2, id=2),
        event("e", "r", 8, id=1),
        event("e", "r", 9, id=2),
    ]
    path = write_kineto(tmp_path / "t.json", events)
    conversion = convert(path, out=tmp_path / "out", to=[target])
    written = [file for file in conversion.written if file.path]
    assert written
    assert conversion.findings.of_kind("overlapping_slices") == 0


# -- begin and end events -------------------------------------------------------------------


def test_pairs_that_touch_or_are_empty_keep_their_lengths(tmp_path: Path) -> None:
    events = [
        event("B", "x", 0),
        event("E", "x", 5),
        event("B", "x", 5),
        event("E", "x", 9),
        event("B", "y", 20),
        event("E", "y", 20),
    ]
    path = write_kineto(tmp_path / "t.json", events)
    expected = [("x", 0, 5), ("x", 5, 9), ("y", 20, 20)]
    assert [s[:3] for s in spans(read_file(path))] == expected
    trace = read_file(write_kineto(tmp_path / "u.json", events[::-1]))
    assert [s[:3] for s in spans(trace)] == expected
    assert trace.findings.of_kind("end_without_begin") == 0


def test_the_arguments_of_a_begin_and_its_end_are_kept_together(tmp_path: Path) -> None:
    events = [
        event("B", "x", 0, args={"a": 1, "b": 1}),
        event("E", None, 5, args={"b": 2, "c": 3}),
    ]
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert trace.args(0) == {"a": 1, "b": 2, "c": 3}
    assert trace.findings.of_kind("no_name") == 0


# -- arrows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["async", "async_gpu", "async_cpu_to_gpu", "ac2g"])
@pytest.mark.parametrize("end", ["async", "async_gpu", "async_cpu_to_gpu", "ac2g"])
def test_every_historic_name_of_a_launch_arrow_joins_call_and_kernel(
    tmp_path: Path, start: str, end: str
) -> None:
    events = [
        operator("a", 0, 20, 1),
        complete("cuda_runtime", "cudaLaunchKernel", 1, 5),
        complete("kernel", "k", 10, 5, pid=0, tid=7, args={"device": 0, "stream": 7}),
        event("s", start, 2, id=4, cat=start),
        event("f", end, 10, id=4, cat=end, pid=0, tid=7, bp="e"),
    ]
    trace = load(write_kineto(tmp_path / "t.json", events))
    assert arrows(trace) == [(start, "cudaLaunchKernel", "k")]
    (launch_row,) = trace.executions.launch.tolist()
    assert trace.strings[trace.slices.name[launch_row]] == "cudaLaunchKernel"


@pytest.mark.parametrize("name", ["fwdbwd", "fwd_bwd", "forward_backward"])
def test_every_historic_name_of_the_arrow_to_backward_joins(tmp_path: Path, name: str) -> None:
    events = [
        operator("aten::mm", 0, 5),
        operator("MmBackward0", 10, 5),
        event("s", name, 1, id=1, cat=name),
        event("f", name, 11, id=1, cat="fwdbwd", bp="e"),
    ]
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert arrows(trace) == [(name, "aten::mm", "MmBackward0")]


def test_slices_that_name_their_arrows_themselves_are_joined(tmp_path: Path) -> None:
    events = [
        complete("app", "first", 0, 50, bind_id="0x402", flow_out=True),
        complete("app", "inside", 0, 50),
        complete("app", "middle", 60, 5, bind_id="0x402", flow_in=True, flow_out=True),
        complete("app", "last", 70, 5, bind_id="0x402", flow_in=True),
        complete("app", "other", 80, 5, bind_id="0x403", flow_in=True),
        complete("app", "neither", 90, 5, bind_id="0x402"),
    ]
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    start, *rest = trace.flows.source.tolist()
    assert arrows(trace)[1:] == [("bind_id", "middle", "last")]
    assert trace.slices.start_ns[start] == BASE_NS
    assert len(rest) == 1
    assert trace.findings.of_kind("flow_unpaired") == 1


def test_a_launch_of_many_kernels_has_an_arrow_to_each(tmp_path: Path) -> None:
    many = 545
    events = [operator("a", 0, 10, 1), launch(1, 5, 9, "cudaGraphLaunch")]
    events.append(event("s", "ac2g", 2, id=9, cat="ac2g"))
    for number in range(many):
        events.append(kernel(f"k{number}", 20 + 10 * number, 5, 9))
        end = {"cat": "ac2g", "pid": 0, "tid": 7, "bp": "e"}
        events.append(event("f", "ac2g", 20 + 10 * number, id=9, **end))
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert len(trace.flows) == many
    assert len(set(trace.flows.source.tolist())) == 1


def test_identifiers_above_the_range_of_doubles_stay_apart(tmp_path: Path) -> None:
    base = 2**53
    events = [operator(f"from {n}", 10 * n, 5) for n in range(4)]
    events += [operator(f"to {n}", 100 + 10 * n, 5) for n in range(4)]
    for n in range(4):
        identity = base + n if n % 2 else str(base + n)
        events.append(event("s", "x", 10 * n + 1, id=identity, cat="x"))
        events.append(event("f", "x", 101 + 10 * n, id=identity, cat="x", bp="e"))
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert arrows(trace) == [("x", f"from {n}", f"to {n}") for n in range(4)]


# -- other programs -------------------------------------------------------------------------


def test_counters_that_rdmatop_stored_as_slices_are_counters(tmp_path: Path) -> None:
    pid = 2147418112
    sample = {"rdmatop_counter": 1, "tx_gbps": 12.5, "rx_gbps": 3.25}
    events = [
        operator("a", 0, 100),
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": "rdmatop"}},
        complete("privateuse1_runtime", "mlx5_0:1", 5, 0, pid=pid, tid=0, args=sample),
        complete("privateuse1_runtime", "mlx5_0:1", 6, 0, pid=pid, tid=0, args=sample),
        complete("privateuse1_runtime", "mlx5_0:1", 7, 0, pid=42, tid=0, args=sample),
        complete("privateuse1_runtime", "launch", 8, 1, args={"value": 9}),
    ]
    trace = load(write_kineto(tmp_path / "t.json", events))
    assert len(trace.counters) == 4
    assert sorted({trace.tracks[t].name for t in trace.counters.track}) == [
        "mlx5_0:1 rx_gbps",
        "mlx5_0:1 tx_gbps",
    ]
    assert sorted(set(trace.counters.value.tolist())) == [3.25, 12.5]
    assert trace.findings.of_kind("counter_stored_as_slice") == 2
    assert len(trace.slices) == 3
    assert not any(device.family == "neuron" for device in trace.devices)


def test_payloads_under_attr_are_arguments(cases: Path) -> None:
    trace = load(cases / "real" / "aiu_allreduce_tp4.json")
    assert len(trace.slices) == 28
    assert all("Power" in trace.args(row) for row in range(28))
    assert trace.findings.of_kind("arguments_under_attr") == 56


_TRACED = """
import sys, viztracer

def work(n):
    return 0 if n == 0 else work(n - 1) + 1

tracer = viztracer.VizTracer(output_file=sys.argv[1], verbose=0)
tracer.start()
work(3)
tracer.log_instant("mark", args={"a": 1})
tracer.log_var("depth", 3)
tracer.stop()
tracer.save()
"""


def test_a_viztracer_file_opens_on_its_own_base_time(tmp_path: Path) -> None:
    pytest.importorskip("viztracer", reason="writes the file")
    path = tmp_path / "viz.json"
    subprocess.run([sys.executable, "-c", _TRACED, path], check=True, timeout=60)
    written = json.loads(path.read_text())
    events = written["traceEvents"]
    trace = load(path)
    assert len(trace.slices) == sum(e["ph"] == "X" for e in events)
    assert [trace.strings[n] for n in trace.instants.name] == ["mark"]
    assert trace.counters.value.tolist() == [3.0]
    assert trace.clock.kind is ClockKind.EPOCH
    assert abs(trace.time_range()[0] - path.stat().st_mtime_ns) < 60e9
    written["viztracer_metadata"]["overflow"] = True
    assert load(write_json(path, written)).findings.of_kind("events_dropped") == 1


def test_perfettos_own_json_opens(tmp_path: Path) -> None:
    """Rows of its own tracks as ``b``/``e`` with ``id2``, unfinished slices as ``B``."""
    local = {"id2": {"local": "0x1f"}, "pid": 7, "tid": 7}
    thread = {"pid": 7, "tid": 8}
    document = {
        "traceEvents": [
            {"args": {"name": "main"}, "cat": "__metadata", "name": "thread_name", "ph": "M"}
            | thread
            | {"ts": 0},
            event("X", "on thread", 100, dur=50, args={}) | thread,
            event("X", "lost end", 120, args={}) | thread | {"ph": "B"},
            event("I", "mark", 130, s="t") | thread,
            event("b", "outer", 100, args={"debug": 1}) | local,
            event("b", "inner", 110) | local,
            event("e", "inner", 120) | local,
            event("e", "outer", 160) | local,
            event("n", "flash", 115) | local,
        ],
        "systemTraceEvents": "# tracer: nop\n",
        "metadata": {"telemetry": {}},
    }
    trace = load(write_json(tmp_path / "t.json", document))
    assert spans(trace) == [
        ("inner", 110, 120, "outer"),
        ("on thread", 100, 150, "main"),
        ("outer", 100, 160, "outer"),
    ]
    assert len(trace.instants) == 3
    assert trace.findings.of_kind("unfinished") == 1
    assert trace.findings.of_kind("part_not_shown") == 1


def test_what_xprofs_trace_viewer_sends_opens(tmp_path: Path) -> None:
    """Its list ends with an empty object; times are exact decimals, names are metadata."""
    document = {
        "displayTimeUnit": "ns",
        "metadata": {"highres-ticks": True},
        "traceEvents": [
            {"ph": "M", "pid": 3, "name": "process_name", "args": {"name": "/device:TPU:0"}},
            {"ph": "M", "pid": 3, "name": "process_sort_index", "args": {"sort_index": 3}},
            {"ph": "M", "pid": 3, "tid": 1, "name": "thread_name", "args": {"name": "XLA Ops"}},
            {"ph": "X", "pid": 3, "tid": 1, "ts": 10.000125, "dur": 2.5, "name": "fusion.1"},
            {"ph": "X", "pid": 3, "tid": 1, "ts": 12.500125, "dur": 0.000125, "name": "copy"},
            {},
        ],
    }
    trace = load(write_json(tmp_path / "trace.json", document))
    assert [s[0] for s in spans(trace)] == ["copy", "fusion.1"]
    assert {t.name for t in trace.tracks} == {"XLA Ops"}
    assert trace.processes[0].name == "/device:TPU:0"
    assert trace.findings.of_kind("phase_not_shown") == 1
