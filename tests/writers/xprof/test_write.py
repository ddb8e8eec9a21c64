"""XSpace files: their structure by protobuf itself, their content by XProf's own converter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from neuron_tb.checks import consumer
from neuron_tb.checks import xprof as xprof_check
from neuron_tb.checks.xspace import message_class
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.links import link
from neuron_tb.converters.load import load
from neuron_tb.converters.model import ClockKind, Counters, Trace, Track, TrackKind
from neuron_tb.converters.model.arguments import Arguments
from neuron_tb.converters.writers import Destination, Written
from neuron_tb.converters.writers.xprof import write as xprof_writer
from tests.makers import (
    BASE_NS,
    HOST,
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

needs_xprof = pytest.mark.skipif(
    not consumer.installed("xprof"), reason="XProf itself is asked; it is not installed"
)

# -- reading a file back --------------------------------------------------------------------------


@dataclass
class Event:
    name: str
    shown: str
    start_us: float
    length_us: float
    stats: dict[str, Any]
    meta: dict[str, Any]
    kinds: dict[str, str]


class File:
    """A parsed file; protobuf has accepted it."""

    def __init__(self, path: Path) -> None:
        self.space = message_class()()
        self.space.ParseFromString(path.read_bytes())

    def planes(self, prefix: str) -> list[Any]:
        return [p for p in self.space.planes if p.name.startswith(prefix)]

    def plane(self, prefix: str) -> Any:
        (found,) = self.planes(prefix)
        return found

    def line(self, plane: str, name: str) -> list[Event]:
        own = self.plane(plane)
        (found,) = [line for line in own.lines if line.name == name]
        return [self._event(own, event) for event in found.events]

    def lines(self, plane: str) -> list[str]:
        return [line.name for line in self.plane(plane).lines]

    def plane_stats(self, plane: str) -> dict[str, Any]:
        own = self.plane(plane)
        return self._stats(own, own.stats)[0]

    def plane_kinds(self, plane: str) -> dict[str, str]:
        own = self.plane(plane)
        return self._stats(own, own.stats)[1]

    def _event(self, plane: Any, event: Any) -> Event:
        metadata = plane.event_metadata[event.metadata_id]
        stats, kinds = self._stats(plane, event.stats)
        return Event(
            metadata.name,
            metadata.display_name or metadata.name,
            event.offset_ps / 1e6,
            event.duration_ps / 1e6,
            stats,
            self._stats(plane, metadata.stats)[0],
            kinds,
        )

    def _stats(self, plane: Any, stats: Any) -> tuple[dict[str, Any], dict[str, str]]:
        values, kinds = {}, {}
        for stat in stats:
            name, kind = plane.stat_metadata[stat.metadata_id].name, stat.WhichOneof("value")
            value = getattr(stat, kind)
            values[name] = plane.stat_metadata[value].name if kind == "ref_value" else value
            kinds[name] = kind
        return values, kinds


def write(trace: Trace, out: Path, **more: Any) -> list[Written]:
    return xprof_writer.write(trace, Destination(out, "r", **more))


def converted(trace: Trace, out: Path, **more: Any) -> File:
    (written,) = write(trace, out, **more)
    assert written.path is not None
    assert written.slices == len(trace.slices)
    return File(written.path)


def ask(written: Sequence[Written], tool: str, resolution: int = 0) -> Any:
    """What XProf answers, decoded."""
    convert = pytest.importorskip(
        "xprof.convert.raw_to_tool_data", reason="XProf itself is asked; it is not installed"
    ).xspace_to_tool_data
    paths = [str(w.path) for w in written]
    options: dict[str, Any] = {
        "hosts": [Path(p).name.removesuffix(".xplane.pb") for p in paths],
        "use_saved_result": False,
        "group_by": "program",
    }
    if tool == "trace_viewer@":
        options["trace_viewer_options"] = {"resolution": resolution, "full_dma": False}
    data, _ = convert(paths, tool, options)
    assert data is not None, f"XProf could not convert for {tool}"
    return msgspec.json.decode(data)


def table(raw: Any) -> list[dict[str, Any]]:
    columns = [c["id"] for c in raw["cols"]]
    return [
        dict(zip(columns, [c and c.get("v") for c in row["c"]], strict=False))
        for row in raw["rows"]
    ]


def steps_shown(written: Sequence[Written]) -> int:
    return len(ask(written, "overview_page")[1]["rows"])


# -- small captures -------------------------------------------------------------------------------


def capture(
    tmp_path: Path,
    events: list[Any],
    rows: list[Any] | None = None,
    host: str = HOST,
    pid: int = 501,
    **top: Any,
) -> Path:
    """A capture directory; ``rows`` are those of its system_profile.json."""
    folder = tmp_path / "in" / f"{host}_pid_{pid}" / "1"
    events = [{**e, "pid": pid, "tid": pid} if e.get("pid") == 501 else e for e in events]
    write_kineto(folder / "trace.json", events, **top)
    if rows:
        rows = [{**r, "instance_id": host, "process_id": str(pid)} for r in rows]
        write_json(folder / "system_profile.json", {"trace_events": rows})
    return folder


def eager(
    tmp_path: Path, steps: Sequence[int] = (1, 2), host: str = HOST, pid: int = 501, **top: Any
) -> Path:
    """Steps of 1000 us with mul (80 us) and add (60 us) on the NeuronCore, measured."""
    events, rows = [], []
    for place, number in enumerate(steps):
        at = place * 1000
        events += [
            step(number, at, 900),
            operator("aten::mul", at + 10, 50, external=10 * place + 1),
            operator("aten::add", at + 110, 50, external=10 * place + 2),
        ]
        for offset, length in ((20, 80), (120, 60)):
            rows += [
                system_row("nrta_execute_schedule", at + offset, 20, thread_id=pid),
                execution(at + offset + 40, length),
            ]
    return capture(tmp_path, events, rows, host, pid, **top)


def cuda(tmp_path: Path, kernels: Sequence[tuple[str, float, float, int]], **top: Any) -> Trace:
    """Kernels (name, start, length, stream), each launched at its start by its own operator."""
    events: list[Any] = [step(0, 0, 1000)]
    for number, (name, start, length, stream) in enumerate(kernels, 1):
        events += [
            launch(number, 0.5, number),
            kernel(name, start, length, number, stream=stream),
        ]
    return load(write_kineto(tmp_path / "cuda.pt.trace.json", events, **top))


# -- structure ------------------------------------------------------------------------------------


def every_trace(tmp_path: Path, samples: Path) -> Iterator[tuple[Trace, list[File]]]:
    for number, source in enumerate((samples / "training", samples / "rmsnorm" / "naive", samples)):
        trace = load(source)
        written = write(trace, tmp_path / str(number))
        yield trace, [File(w.path) for w in written if w.path]


def test_structure_that_xprof_relies_on(tmp_path: Path, samples: Path) -> None:
    """Pitfalls 1, 2, 8, 9, 13 and 14, on everything that ships."""
    for trace, files in every_trace(tmp_path, samples):
        first, last = trace.time_range()
        for file in files:
            for plane in file.space.planes:
                names = {m.name for m in plane.stat_metadata.values()}
                assert "group_id" in names, plane.name
                assert re.fullmatch(
                    r"/device:TPU:\d+|/device:CUSTOM:.+|/host:CPU|Task Environment", plane.name
                )
                assert all(key == m.id > 0 for key, m in plane.event_metadata.items())
                assert all(key == m.id > 0 for key, m in plane.stat_metadata.items())
                ids = [line.id for line in plane.lines]
                assert len(set(ids)) == len(ids)
                assert all(0 < i < 2**31 for i in ids)
                for line in plane.lines:
                    assert line.timestamp_ns == 0
                    for event in line.events:
                        assert event.metadata_id in plane.event_metadata
                        assert 0 <= event.offset_ps <= (last - first) * 1000
                        assert event.duration_ps >= 0
            for prefix in ("/device:TPU:", "/device:CUSTOM:"):
                numbers = [plane.id for plane in file.planes(prefix)]
                assert len(set(numbers)) == len(numbers)
            assert len(file.space.hostnames) == 1


def test_rows_nest_and_operators_stand_in_one_flat_sequence(tmp_path: Path, samples: Path) -> None:
    for _, files in every_trace(tmp_path, samples):
        for plane in (p for file in files for p in file.space.planes):
            for line in plane.lines:
                if line.name.startswith(("memory of", "_counters_")):
                    continue
                spans = [(e.offset_ps, e.offset_ps + e.duration_ps) for e in line.events]
                assert spans == sorted(spans, key=lambda s: (s[0], -s[1]))
                flat = line.name in ("Steps", "XLA Modules", "XLA Ops")
                open_ends: list[int] = []
                for start, end in spans:
                    while open_ends and open_ends[-1] <= start:
                        open_ends.pop()
                    assert not (flat and open_ends), f"overlap on {line.name}"
                    assert not open_ends or end <= open_ends[-1], f"crossing on {line.name}"
                    open_ends.append(end)


def test_every_operator_has_identity_and_names_as_xprof_wants_them(
    tmp_path: Path, samples: Path
) -> None:
    """Pitfalls 5, 5b, 5c, 6 and 15."""
    for _, files in every_trace(tmp_path, samples):
        identity: dict[tuple[int, int], str] = {}
        for file in files:
            for plane in file.planes("/device:TPU:"):
                used = {
                    e.metadata_id for li in plane.lines if li.name == "XLA Ops" for e in li.events
                }
                for number in used:
                    metadata = plane.event_metadata[number]
                    stats = file._stats(plane, metadata.stats)[0]
                    key = stats["program_id"], stats["symbol_id"]
                    assert identity.setdefault(key, metadata.display_name) == metadata.display_name
                    assert metadata.name.startswith(f"%{metadata.display_name} = ")
                    assert stats["hlo_category"]
                    assert re.fullmatch(r"[^:]+:[a-z_][a-z0-9_]*", stats["tf_op"])
                    assert not {"flops", "model_flops", "bytes_accessed"} & set(stats)
        names = list(identity.values())
        assert len(names) == len(set(names))


def test_stats_have_the_types_that_xprof_reads(tmp_path: Path, samples: Path) -> None:
    """Pitfall 4: a stat of the wrong type is read as 0, silently."""
    (written,) = write(load(samples / "training"), tmp_path, instance_type="trn2.48xlarge")
    assert written.path is not None
    file = File(written.path)
    kinds = file.plane_kinds("/device:TPU:0")
    assert kinds["peak_teraflops_per_second"] == "double_value"
    assert kinds["peak_hbm_bw_gigabytes_per_second"] == "double_value"
    (op, *_) = file.line("/device:TPU:0", "XLA Ops")
    assert op.kinds["group_id"] == "int64_value"
    assert op.kinds["flow"] == "uint64_value"
    (name,) = [n for n in file.lines("/host:CPU") if n == "memory of rank 0: NeuronCore 0 HBM"]
    (memory, *_) = file.line("/host:CPU", name)
    for stat in (
        "bytes_allocated",
        "bytes_available",
        "peak_bytes_in_use",
        "allocation_bytes",
        "addr",
    ):
        assert memory.kinds[stat] == "int64_value", stat


# -- the samples, through XProf -------------------------------------------------------------------


@needs_xprof
def test_naive_rmsnorm_shows_four_operators_with_their_microseconds(
    tmp_path: Path, samples: Path
) -> None:
    written = write(load(samples / "rmsnorm" / "naive"), tmp_path)
    expected = {
        "aten::mul": (3, 1164.5),
        "aten::add": (1, 434.6),
        "aten::rsqrt": (1, 415.0),
        "aten::mean": (1, 340.8),
    }
    rows = table(ask(written, "hlo_stats"))
    assert {r["hlo_op_name"]: (r["occurrences"], r["total_time"]) for r in rows} == pytest.approx(
        {name: pytest.approx(value) for name, value in expected.items()}
    )
    overview = ask(written, "overview_page")
    assert len(overview[0]["rows"]) == 4
    assert len(overview[1]["rows"]) == 1
    assert float(overview[0]["p"]["device_idle_time_percent"].rstrip("%")) > 0
    assert overview[2]["p"]["device_type"] == "AWS Neuron (shown in XProf's TPU views)"
    framework = [
        r for r in table(ask(written, "framework_op_stats")[0]) if r["host_or_device"] == "Device"
    ]
    assert {r["type"]: r["total_time"] for r in framework if r["type"] != "IDLE"} == pytest.approx(
        {k.replace("::", "_"): v[1] for k, v in expected.items()}
    )
    assert any(r["type"] == "IDLE" and r["total_time"] > 0 for r in framework)


@needs_xprof
def test_naive_rmsnorm_draws_host_runtime_and_neuroncore_rows_with_arrows(
    tmp_path: Path, samples: Path
) -> None:
    written = write(load(samples / "rmsnorm" / "naive"), tmp_path)
    events = ask(written, "trace_viewer@")["traceEvents"]
    rows = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {"NeuronCore 0 (XLA Ops)", "Steps"} <= rows
    assert any(row.startswith("neuron_rt thread") for row in rows)
    assert any("(python)" in row for row in rows)
    drawn = [e for e in events if e["ph"] == "X"]
    ends = [e for e in drawn if e.get("flow_in") and not e.get("flow_out")]
    starts = {e["bind_id"]: e for e in drawn if e.get("flow_out") and not e.get("flow_in")}
    operators = [e for e in ends if e["pid"] == 1001]
    assert len(operators) == 6
    assert [starts[e["bind_id"]]["name"] for e in operators] == [e["name"] for e in operators]


@needs_xprof
def test_training_shows_three_steps_and_the_hbm_curve(tmp_path: Path, samples: Path) -> None:
    trace = load(samples / "training")
    written = write(trace, tmp_path)
    overview = ask(written, "overview_page")
    assert len(overview[1]["rows"]) == 3
    assert overview[2]["p"]["device_core_count"] == "2"
    memory = ask(written, "memory_profile")["memoryProfilePerAllocator"]
    for rank in (0, 1):
        curve = memory[f"rank {rank}: NeuronCore 0 HBM"]["sampledTimelineSnapshots"]
        mine = trace.memory.process == [p.rank for p in trace.processes].index(rank)
        totals = trace.memory.total_allocated[mine & (trace.memory.device_type != 0)]
        drawn = [int(s["aggregationStats"]["heapAllocatedBytes"]) for s in curve]
        assert (
            drawn
            == totals[
                np.argsort(
                    trace.memory.time_ns[mine & (trace.memory.device_type != 0)], kind="stable"
                )
            ].tolist()
        )
        assert {s["activityMetadata"]["stepId"] for s in curve} >= {"3", "4", "5"}


@needs_xprof
def test_every_view_of_every_sample_is_accounted_for(tmp_path: Path, samples: Path) -> None:
    for source in (
        samples / "training",
        samples / "rmsnorm" / "naive",
        samples / "rmsnorm" / "compiled",
    ):
        trace = load(source)
        (written,) = write(trace, tmp_path / source.name)
        assert written.path is not None
        report = xprof_check.check(written.path.parent)
        assert report.problems == []
        assert report.passed
        assert report.slices == len(trace.slices)
        assert [view.name for view in report.views] == [
            "Overview",
            "HLO Op Stats",
            "Framework Op Stats",
            "HLO Op Profile",
            "Roofline",
            "Trace Viewer",
            "Memory Profile",
        ]


# -- operators and programs -----------------------------------------------------------------------


def test_a_compiled_graph_keeps_a_program_of_its_own(tmp_path: Path) -> None:
    events = [
        step(0, 0, 1000),
        operator("Torch-Compiled Region: 0/0", 10, 50, external=1),
        operator("aten::mul", 110, 50, external=2),
        operator("Torch-Compiled Region: 0/0", 210, 50, external=3),
    ]
    rows = []
    for at in (20, 120, 220):
        rows += [system_row("nrta_execute_schedule", at, 10), execution(at + 100, 90)]
    file = converted(load(capture(tmp_path, events, rows)), tmp_path / "out")
    ops = file.line("/device:TPU:0", "XLA Ops")
    assert [op.shown for op in ops] == [
        "Torch-Compiled Region: 0/0",
        "aten::mul",
        "Torch-Compiled Region: 0/0",
    ]
    programs = [op.meta["program_id"] for op in ops]
    assert programs[0] == programs[2] != programs[1]
    modules = file.line("/device:TPU:0", "XLA Modules")
    assert [m.name for m in modules] == [
        f"Torch-Compiled Region: 0/0({programs[0]})",
        f"eager({programs[1]})",
        f"Torch-Compiled Region: 0/0({programs[0]})",
    ]
    assert len({m.stats["run_id"] for m in modules}) == 3


def test_eager_work_of_a_step_is_one_module_from_its_first_to_its_last_operator(
    tmp_path: Path,
) -> None:
    file = converted(load(eager(tmp_path)), tmp_path / "out")
    modules = file.line("/device:TPU:0", "XLA Modules")
    assert [(m.start_us, m.length_us, m.stats["group_id"]) for m in modules] == [
        (60, 160, 1),
        (1060, 160, 2),
    ]


def test_shapes_and_arguments_stand_on_the_events(tmp_path: Path) -> None:
    shaped = operator("aten::mul", 10, 50)
    shaped["args"] = {
        "External id": 1,
        "Input Dims": [[4, 512], []],
        "Input type": ["c10::BFloat16", "Scalar"],
    }
    rows = [system_row("nrta_execute_schedule", 20, 10), execution(40, 90, exec_id=7)]
    file = converted(load(capture(tmp_path, [step(0, 0, 200), shaped], rows)), tmp_path / "out")
    (op,) = file.line("/device:TPU:0", "XLA Ops")
    assert msgspec.json.decode(op.stats["Input Dims"]) == [[4, 512], []]
    assert msgspec.json.decode(op.stats["Input type"]) == ["c10::BFloat16", "Scalar"]
    assert msgspec.json.decode(op.stats["arguments"])["exec_id"] == 7
    assert op.stats["device row"] == "nc_exec_running"
    assert op.stats["time is"] == "measured on the device"
    (host,) = [e for e in file.line("/host:CPU", "thread 501") if e.name == "aten::mul"]
    assert msgspec.json.decode(host.stats["arguments"]) == shaped["args"]
    assert host.meta["category"] == "cpu_op"


@needs_xprof
@pytest.mark.parametrize(
    "name",
    [
        "aten::mul",
        "a = b",
        "%percent",
        "void at::native::kernel<4, std::array<char*, 2> >(int)",
        "FP8Quantize",
        "1digit",
        "Torch-Compiled Region: 1/0",
        "été 漢字",
        "a:b",
        "::",
    ],
)
def test_any_name_keeps_its_row_and_its_type(tmp_path: Path, name: str) -> None:
    trace = cuda(tmp_path, [(name, 10, 20, 7), ("other", 40, 10, 7)])
    written = write(trace, tmp_path / "out")
    shown = {r["hlo_op_name"]: r["total_time"] for r in table(ask(written, "hlo_stats"))}
    assert shown == {name.replace(" = ", "="): 20, "other": 10}
    framework = table(ask(written, "framework_op_stats")[1])
    assert sorted(r["total_time"] for r in framework if r["host_or_device"] == "Device") == [10, 20]
    assert "Unknown" not in {r["type"] for r in framework}
    drawn = [e["name"] for e in ask(written, "trace_viewer@")["traceEvents"] if e["ph"] == "X"]
    assert name in drawn


def test_names_that_differ_only_in_signs_keep_different_paths(tmp_path: Path) -> None:
    trace = cuda(tmp_path, [("f<a>", 10, 20, 7), ("f(a)", 40, 10, 7), ("f_a_", 60, 10, 7)])
    file = converted(trace, tmp_path / "out")
    ops = file.line("/device:TPU:0", "XLA Ops")
    assert len({op.meta["tf_op"] for op in ops}) == 3
    assert len({op.meta["symbol_id"] for op in ops}) == 3


@needs_xprof
def test_host_rows_are_not_taken_for_framework_operators(tmp_path: Path) -> None:
    events = [complete("user_annotation", "gloo:all_reduce", 0, 50), operator("aten::mul", 60, 10)]
    written = write(load(write_kineto(tmp_path / "t.json", events)), tmp_path / "out")
    assert table(ask(written, "framework_op_stats")[1]) == []
    drawn = [e["name"] for e in ask(written, "trace_viewer@")["traceEvents"] if e["ph"] == "X"]
    assert drawn == ["gloo:all_reduce", "aten::mul"]


# -- overlaps, windows, physical cores ------------------------------------------------------------


def test_overlapping_work_stands_beside_the_operators_and_is_counted(tmp_path: Path) -> None:
    kernels = [("a", 10, 50, 7), ("inside", 20, 10, 20), ("across", 40, 60, 20), ("b", 100, 10, 7)]
    trace = cuda(tmp_path, kernels)
    (written,) = write(trace, tmp_path / "out")
    assert written.path is not None
    file = File(written.path)
    ops = file.line("/device:TPU:0", "XLA Ops")
    assert [(op.shown, op.length_us) for op in ops] == [("a", 50), ("b", 10)]
    beside = file.line("/device:CUSTOM:", "stream 20 (overlapping)")
    assert [(e.shown, e.length_us) for e in beside] == [("inside", 10), ("across", 60)]
    assert written.slices == len(trace.slices)
    (finding,) = [f for f in written.findings if f.kind == "device_overlap"]
    assert finding.count == 2
    assert any(w.startswith("2 x executions overlap") for w in file.space.warnings)


def test_a_crossing_within_the_source_resolution_is_rounding(tmp_path: Path) -> None:
    trace = cuda(tmp_path, [("a", 10, 20.001, 7), ("b", 30, 10, 7)])
    (written,) = write(trace, tmp_path / "out")
    assert written.path is not None
    ops = File(written.path).line("/device:TPU:0", "XLA Ops")
    assert [(op.start_us, op.length_us) for op in ops] == [(10, 20), (30, 10)]
    assert {f.kind: f.count for f in written.findings} == {"end_rounded": 1}


@needs_xprof
def test_windows_that_overlap_say_that_they_are_windows(tmp_path: Path) -> None:
    events = [step(0, 0, 500)]
    for number, start in enumerate((10, 20, 30), 1):
        events += [
            operator("aten::mm", start, 5, external=number),
            window("aten::mm", start, 100, number),
        ]
    trace = load(write_kineto(tmp_path / "t.json", events))
    written = write(trace, tmp_path / "out")
    assert written[0].path is not None
    file = File(written[0].path)
    (op,) = file.line("/device:TPU:0", "XLA Ops")
    assert op.stats["time is"].startswith("window")
    kinds = {f.kind: f.count for f in written[0].findings}
    assert kinds == {"windows_as_device_time": 3, "device_overlap": 2}
    messages = [r["message"] for r in table(ask(written, "overview_page")[6])]
    assert any("windows from enqueue to completion" in m for m in messages)


def test_a_window_stands_back_behind_measured_work(tmp_path: Path) -> None:
    """A window that is linked with nothing cannot be replaced; the measured time stays an op."""
    events = [step(0, 0, 500), operator("aten::mm", 10, 20)]
    events += [window("lonely", 20, 200, 77), window("later", 300, 50, 78)]
    rows = [system_row("nrta_execute_schedule", 12, 5), execution(60, 90)]
    file = converted(load(capture(tmp_path, events, rows)), tmp_path / "out")
    ops = file.line("/device:TPU:0", "XLA Ops")
    assert [(op.shown, op.length_us) for op in ops] == [("aten::mm", 90), ("later", 50)]
    (row,) = [n for n in file.lines("/device:CUSTOM:") if n.endswith("(overlapping)")]
    assert [e.shown for e in file.line("/device:CUSTOM:", row)] == ["lonely"]


def test_a_window_that_a_measurement_replaces_stays_a_row_of_the_host(tmp_path: Path) -> None:
    events = [
        step(0, 0, 500),
        operator("aten::mm", 10, 50, external=1),
        complete("privateuse1_runtime", "nrt_execute", 20, 10, args={"External id": 1}),
        window("aten::mm", 25, 200, 1),
    ]
    rows = [system_row("nrt_execute", 20, 10), execution(60, 90)]
    file = converted(load(capture(tmp_path, events, rows)), tmp_path / "out")
    ops = file.line("/device:TPU:0", "XLA Ops")
    assert [(op.shown, op.length_us) for op in ops] == [("aten::mm", 90)]
    (row,) = [n for n in file.lines("/host:CPU") if "host window" in n]
    assert [(e.name, e.length_us) for e in file.line("/host:CPU", row)] == [("aten::mm", 200)]


def test_physical_cores_of_a_logical_one_are_rows_beside_one_operator(
    cases: Path, tmp_path: Path
) -> None:
    folder = cases / "neuron"
    trace = load(folder / "torchneuron_cpu_only.json", folder / "system_profile.json")
    file = converted(trace, tmp_path / "out")
    ops = file.line("/device:TPU:0", "XLA Ops")
    assert [(op.shown, op.length_us) for op in ops] == [
        ("aten::linear", 70),
        ("aten::relu", 70),
        ("aten::add", 70),
    ]
    assert file.lines("/device:CUSTOM:") == [
        "NeuronCore 0 (physical 4)",
        "NeuronCore 0 (physical 5)",
    ]
    for line in file.lines("/device:CUSTOM:"):
        assert [e.name for e in file.line("/device:CUSTOM:", line)] == ["nc_exec_running"] * 3


# -- steps ----------------------------------------------------------------------------------------


def test_a_step_on_the_device_ends_with_its_last_device_work(tmp_path: Path) -> None:
    """The host runs ahead: step 1 begins on the device when step 0 has ended there."""
    events = [step(0, 0, 100), step(1, 100, 100)]
    for number, (at, start, length) in enumerate(((10, 50, 200), (110, 250, 300)), 1):
        events += [launch(at, 5, number), kernel("k", start, length, number)]
    file = converted(load(write_kineto(tmp_path / "t.json", events)), tmp_path / "out")
    steps = file.line("/device:TPU:0", "Steps")
    assert [(s.name, s.start_us, s.length_us, s.stats["group_id"]) for s in steps] == [
        ("0", 0, 250, 0),
        ("1", 250, 300, 1),
    ]
    ops = file.line("/device:TPU:0", "XLA Ops")
    assert [op.stats["group_id"] for op in ops] == [0, 1]


@needs_xprof
def test_without_steps_the_whole_capture_is_one_step_and_says_so(tmp_path: Path) -> None:
    events = [launch(10, 5, 1), kernel("k", 50, 20, 1)]
    written = write(load(write_kineto(tmp_path / "t.json", events)), tmp_path / "out")
    assert written[0].path is not None
    (only,) = File(written[0].path).line("/device:TPU:0", "Steps")
    assert (only.name, only.stats["group_id"]) == ("capture", 0)
    overview = ask(written, "overview_page")
    assert len(overview[1]["rows"]) == 1
    messages = [r["message"] for r in table(overview[6])]
    assert len([m for m in messages if "one step" in m]) == 1
    assert not any("No step marker" in m for m in messages)


def test_work_outside_all_steps_belongs_to_none_but_stays_in_the_totals(tmp_path: Path) -> None:
    events = [step(3, 100, 100), launch(10, 5, 1), kernel("early", 50, 20, 1)]
    events += [launch(110, 5, 2), kernel("k", 150, 20, 2)]
    file = converted(load(write_kineto(tmp_path / "t.json", events)), tmp_path / "out")
    early, inside = file.line("/device:TPU:0", "XLA Ops")
    assert "group_id" not in early.stats
    assert inside.stats["group_id"] == 3


@needs_xprof
def test_a_rank_without_steps_does_not_hide_the_steps_of_the_others(tmp_path: Path) -> None:
    first = eager(tmp_path, steps=(7, 8), pid=501, distributedInfo={"rank": 0})
    rows = []
    for at in (20, 1020):
        rows += [system_row("nrta_execute_schedule", at, 10, thread_id=502), execution(at + 50, 80)]
    events = [operator("aten::mm", at, 50) for at in (10, 1010)]
    second = capture(tmp_path, events, rows, pid=502, distributedInfo={"rank": 1})
    trace = load(first, second)
    (written,) = write(trace, tmp_path / "out")
    assert steps_shown([written]) == 2
    assert written.path is not None
    borrowed = File(written.path).line("/device:TPU:1", "Steps")
    assert [(s.name, s.start_us) for s in borrowed] == [("7", 0), ("8", 1000)]
    assert written.findings.of_kind("steps_not_listed") == 0


@needs_xprof
def test_steps_that_one_core_lacks_are_a_finding(tmp_path: Path) -> None:
    trace = load(
        eager(tmp_path, steps=(1, 2, 3), pid=501, distributedInfo={"rank": 0}),
        eager(tmp_path, steps=(2, 3), pid=502, distributedInfo={"rank": 1}),
    )
    (written,) = write(trace, tmp_path / "out")
    assert written.findings.of_kind("steps_not_listed") == 1
    assert steps_shown([written]) == 2
    assert written.path is not None
    assert xprof_check.check(written.path.parent).problems == []


# -- devices --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["NVIDIA GPU", "AMD Radeon GPU 7", "Tesla V100"])
def test_a_foreign_device_keeps_its_name_without_the_word_that_blanks_views(
    tmp_path: Path, name: str
) -> None:
    properties = [{"id": 0, "name": name, "totalGlobalMem": 1 << 30}]
    file = converted(
        cuda(tmp_path, [("k", 10, 20, 7)], deviceProperties=properties), tmp_path / "out"
    )
    label = file.plane_stats("/device:TPU:0")["device_type_string"]
    assert label.lower().startswith(name.lower())
    assert label.endswith("(shown in XProf's TPU views)")
    assert "GPU" not in label


@needs_xprof
def test_overview_of_a_foreign_device_has_idle_time(tmp_path: Path) -> None:
    properties = [{"id": 0, "name": "NVIDIA GPU", "totalGlobalMem": 1 << 30}]
    trace = cuda(tmp_path, [("k", 10, 20, 7)], deviceProperties=properties)
    assert (
        "device_idle_time_percent" in ask(write(trace, tmp_path / "out"), "overview_page")[0]["p"]
    )


@needs_xprof
def test_peaks_appear_only_with_an_instance_type(tmp_path: Path) -> None:
    trace = load(eager(tmp_path))
    plain = write(trace, tmp_path / "plain")
    known = write(trace, tmp_path / "known", instance_type="trn1.32xlarge")
    assert ask(plain, "roofline_model")[0]["p"]["peak_flop_rate"] in (0, "0", "0.0")
    peaks = ask(known, "roofline_model")[0]["p"]
    assert float(peaks["peak_flop_rate"]) == pytest.approx(95_000)
    assert float(peaks["peak_hbm_bw"]) == pytest.approx(410)
    overview = ask(known, "overview_page")
    assert overview[2]["p"]["device_type"] == "AWS Trainium (shown in XProf's TPU views)"
    assert any("published" in r["message"] for r in table(overview[6]))


def test_an_unknown_instance_type_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(NeuronTbError, match="not known"):
        write(load(eager(tmp_path)), tmp_path / "out", instance_type="trn9")
    assert not (tmp_path / "out").exists()


def test_an_instance_type_says_nothing_about_a_foreign_device(tmp_path: Path) -> None:
    trace = cuda(tmp_path, [("k", 10, 20, 7)])
    file = converted(trace, tmp_path / "out", instance_type="trn2.48xlarge")
    stats = file.plane_stats("/device:TPU:0")
    assert "peak_teraflops_per_second" not in stats
    assert "Trainium" not in stats["device_type_string"]


# -- arrows ---------------------------------------------------------------------------------------


def test_arrows_have_a_labelled_category_and_ids_of_their_own(tmp_path: Path) -> None:
    trace = load(
        eager(tmp_path, pid=501, distributedInfo={"rank": 0}),
        eager(tmp_path, host="i-1other", pid=501, distributedInfo={"rank": 1}),
    )
    ids: list[int] = []
    for written in write(trace, tmp_path / "out"):
        assert written.path is not None
        file = File(written.path)
        ends = [op.stats["flow"] for op in file.line("/device:TPU:0", "XLA Ops")]
        assert {flow >> 58 for flow in ends} == {5}
        assert {flow & 3 for flow in ends} == {1}
        ids += [flow >> 2 & (1 << 56) - 1 for flow in ends]
    assert len(ids) == 8
    assert len(set(ids)) == 8


def test_arrows_of_the_source_are_drawn_where_there_is_room(tmp_path: Path) -> None:
    flow = {"pid": 501, "tid": 501, "cat": "fwdbwd", "name": "fwdbwd", "id": 9}
    events = [
        operator("aten::mm", 10, 20),
        operator("MmBackward", 50, 20),
        {**flow, "ph": "s", "ts": 12},
        {**flow, "ph": "f", "bp": "e", "ts": 52},
    ]
    file = converted(load(write_kineto(tmp_path / "t.json", events)), tmp_path / "out")
    forward, backward = file.line("/host:CPU", "thread 501")
    assert (forward.stats["flow"] & 3, backward.stats["flow"] & 3) == (2, 1)
    assert forward.stats["flow"] >> 2 == backward.stats["flow"] >> 2


# -- memory and counters --------------------------------------------------------------------------


def memory(
    ts: float, size: int, total: int | None, device: int = 0, kind: int = 20
) -> dict[str, Any]:
    args = {"Device Type": kind, "Device Id": device, "Addr": 4096 + ts, "Bytes": size}
    if total is not None:
        args |= {"Total Allocated": total, "Total Reserved": 2 * total}
    return {
        "ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]",
        "pid": 501, "tid": 501, "ts": ts, "args": args,
    }  # fmt: skip


def with_memory(tmp_path: Path) -> Path:
    events = [
        step(0, 0, 500),
        operator("aten::mm", 10, 5, external=1),
        window("aten::mm", 20, 50, 1),
    ]
    events += [
        memory(30, 4096, 8192),
        memory(10, 4096, 4096),
        memory(40, -4096, 4096),
        memory(50, 1, None),
    ]
    rows = [system_row("nrta_execute_schedule", 12, 2), execution(20, 50)]
    return capture(tmp_path, events, rows)


@needs_xprof
def test_memory_events_make_the_curve_in_order_of_time(tmp_path: Path) -> None:
    written = write(load(with_memory(tmp_path)), tmp_path / "out")
    assert written[0].path is not None
    file = File(written[0].path)
    rows = file.line("/host:CPU", "memory of NeuronCore 0 HBM")
    assert [(r.name, r.stats["bytes_allocated"], r.stats["peak_bytes_in_use"]) for r in rows] == [
        ("MemoryAllocation", 4096, 4096),
        ("MemoryAllocation", 8192, 8192),
        ("MemoryDeallocation", 4096, 8192),
    ]
    assert all("bytes_available" not in r.stats for r in rows)
    (own,) = ask(written, "memory_profile")["memoryProfilePerAllocator"].values()
    assert own["profileSummary"]["peakStats"]["peakBytesInUse"] == "8192"
    assert written[0].findings.of_kind("memory_without_total") == 1


def test_free_memory_is_known_with_the_instance_type(tmp_path: Path) -> None:
    trace = load(with_memory(tmp_path))
    file = converted(trace, tmp_path / "out", instance_type="trn2.48xlarge")
    (row, *_) = file.line("/host:CPU", "memory of NeuronCore 0 HBM")
    assert row.stats["bytes_available"] == (24 << 30) - 4096


@needs_xprof
def test_memory_and_counters_are_curves_of_the_trace_viewer(tmp_path: Path, samples: Path) -> None:
    trace = load(samples / "training")
    events = ask(write(trace, tmp_path), "trace_viewer@")["traceEvents"]
    curves = {(e["pid"], e["name"]): e["entries"] for e in events if e["ph"] == "C"}
    device = (trace.memory.process == 0) & (trace.memory.device_type != 0)
    assert len(curves[1001, "HBM allocated (bytes)"]) == np.count_nonzero(device)
    named = [name for _, name in curves if name.endswith("(%)")]
    assert named, "CPU use has a curve"


# -- files ----------------------------------------------------------------------------------------


@needs_xprof
def test_hosts_share_one_run_and_one_time_zero(tmp_path: Path) -> None:
    late = eager(
        tmp_path, host="i-2late", pid=600, distributedInfo={"rank": 1}, baseTimeNanoseconds=BASE_NS
    )
    trace = load(eager(tmp_path, distributedInfo={"rank": 0}), late)
    written = write(trace, tmp_path / "out")
    folder = tmp_path / "out" / "plugins" / "profile" / "r"
    assert [w.path for w in written] == [folder / f"{HOST}.xplane.pb", folder / "i-2late.xplane.pb"]
    assert sum(w.slices for w in written) == len(trace.slices)
    files = [File(w.path) for w in written if w.path]
    assert [f.space.hostnames[0] for f in files] == [HOST, "i-2late"]
    for file in files:
        assert [op.start_us for op in file.line("/device:TPU:0", "XLA Ops")] == [
            60,
            160,
            1060,
            1160,
        ]
    rows = table(ask(written, "hlo_stats"))
    assert {r["hlo_op_name"]: r["occurrences"] for r in rows} == {"aten::mul": 4, "aten::add": 4}
    assert steps_shown(written) == 2
    report = xprof_check.check(folder)
    assert report.problems == []
    assert report.slices == len(trace.slices)


def test_warnings_stand_once_in_a_run_of_several_hosts(tmp_path: Path) -> None:
    trace = load(
        eager(tmp_path, distributedInfo={"rank": 0}),
        eager(tmp_path, host="i-2b", distributedInfo={"rank": 1}),
    )
    trace.findings.add("something", "something happened", 3)
    files = [File(w.path) for w in write(trace, tmp_path / "out") if w.path]
    assert [list(f.space.warnings).count("3 x something happened") for f in files] == [1, 0]


def test_rows_of_several_processes_carry_their_rank(tmp_path: Path) -> None:
    trace = load(
        eager(tmp_path, pid=501, distributedInfo={"rank": 0}),
        eager(tmp_path, pid=502, distributedInfo={"rank": 1}),
    )
    file = converted(trace, tmp_path / "out")
    assert [p.name for p in file.planes("/device:TPU:")] == ["/device:TPU:0", "/device:TPU:1"]
    assert {n.split(":")[0] for n in file.lines("/host:CPU")} == {"rank 0", "rank 1"}
    shown = [
        line.display_name
        for p in file.planes("/device:TPU:")
        for line in p.lines
        if line.name == "XLA Ops"
    ]
    assert shown == ["rank 0: NeuronCore 0 (XLA Ops)", "rank 1: NeuronCore 0 (XLA Ops)"]


def test_a_rewritten_run_keeps_nothing_that_xprof_cached(tmp_path: Path) -> None:
    trace = load(eager(tmp_path))
    (written,) = write(trace, tmp_path / "out")
    assert written.path is not None
    for name in (
        "ALL_HOSTS.op_stats_v2.pb",
        "h.SSTABLE",
        ".cached_tools.json",
        "cache_version.txt",
    ):
        (written.path.parent / name).write_text("old")
    with pytest.raises(NeuronTbError, match="--force"):
        write(trace, tmp_path / "out")
    write(trace, tmp_path / "out", force=True)
    assert [p.name for p in written.path.parent.iterdir()] == [written.path.name]
    assert written.path.parent.stat().st_mode & 0o700 == 0o700


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path, samples: Path) -> None:
    contents = []
    for out in ("a", "b"):
        (written,) = write(load(samples / "training"), tmp_path / out)
        assert written.path is not None
        contents.append(written.path.read_bytes())
    assert contents[0] == contents[1]


def test_nothing_to_show_is_a_sentence_and_no_directory(tmp_path: Path) -> None:
    (written,) = write(link(Trace("empty")), tmp_path)
    assert written.path is None
    assert written.skipped
    assert list(tmp_path.iterdir()) == []


def test_a_range_that_picoseconds_cannot_hold_is_refused(tmp_path: Path) -> None:
    trace = load(eager(tmp_path))
    trace.slices.start_ns[0] -= 110 * 86_400 * 10**9
    (written,) = write(trace, tmp_path / "out")
    assert written.path is None
    assert written.skipped is not None
    assert "110 days" in written.skipped
    assert written.findings.of_kind("time_range_too_long") == 1
    assert not (tmp_path / "out").exists()


@needs_xprof
def test_counters_alone_make_a_file(tmp_path: Path) -> None:
    trace = load(eager(tmp_path))
    trace.slices = trace.slices.take(slice(0, 0))
    samples = [(1, 5.0), (2, float("nan")), (3, 7.0)]
    trace.tracks.append(Track(0, TrackKind.COUNTER, "CPU use", unit="%"))
    trace.counters = Counters(
        np.array([BASE_NS + t for t, _ in samples], np.int64),
        np.array([v for _, v in samples]),
        np.full(3, len(trace.tracks) - 1, np.int32),
    )
    for name in ("slice_process", "slice_device"):
        trace.__dict__.pop(name, None)
    link(trace)
    (written,) = write(trace, tmp_path / "out")
    assert written.findings.of_kind("counter_not_finite") == 1
    (curve,) = [e for e in ask([written], "trace_viewer@")["traceEvents"] if e["ph"] == "C"]
    assert (curve["name"], [v for _, v in curve["entries"]]) == ("CPU use (%)", [5, 7])


@pytest.mark.parametrize(
    "text", ['say "hi"', "C:\\x", "a\x01b\nc", "</script><b>", "\u2028", "%s{{7*7}}", "'"]
)
def test_no_text_of_a_trace_breaks_what_xprof_sends(tmp_path: Path, text: str) -> None:
    place = {"pid": 501, "tid": 501}
    events = [
        step(1, 0, 100),
        operator(text, 10, 50, 1),
        launch(12, 5, 1, text),
        kernel(text, 20, 20, 1),
        {"ph": "M", "name": "thread_name", "args": {"name": text}, **place},
        {"ph": "M", "name": "process_name", "args": {"name": text}, **place},
        {"ph": "C", "name": text, "ts": 5, "args": {text: 1, "other": 2}, **place},
        {"ph": "i", "name": text, "ts": 6, "args": {text: text}, **place},
    ]
    trace = load(
        write_kineto(tmp_path / "t.json", events, deviceProperties=[{"id": 0, "name": text}])
    )
    written = write(trace, tmp_path / "out")
    drawn = ask(written, "trace_viewer@")["traceEvents"]
    assert sum(e["ph"] == "C" for e in drawn) == 2
    assert sum(e["ph"] == "X" and e["name"] == text for e in drawn) >= 3
    for tool in ("overview_page", "framework_op_stats", "hlo_stats", "op_profile"):
        assert ask(written, tool)
    assert (written[0].findings.of_kind("counter_renamed") > 0) == any(c in text for c in '"\\\x01')


def test_a_capture_of_the_host_alone_has_its_rows(tmp_path: Path) -> None:
    trace = load(write_kineto(tmp_path / "t.json", [operator("aten::mm", 10, 20)]))
    file = converted(trace, tmp_path / "out")
    assert file.planes("/device:") == []
    assert file.lines("/host:CPU") == ["thread 501"]


def test_host_names_are_data_and_stay_in_the_folder(tmp_path: Path) -> None:
    trace = load(eager(tmp_path))
    process = trace.processes[0]
    object.__setattr__(process, "host", "../../evil name")
    (written,) = write(trace, tmp_path / "out")
    assert written.path is not None
    assert written.path.parent == tmp_path / "out" / "plugins" / "profile" / "r"


def test_a_host_with_very_many_devices_gets_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xprof_writer, "DEVICES_PER_FILE", 1)
    trace = load(*(eager(tmp_path, pid=500 + n, distributedInfo={"rank": n}) for n in range(3)))
    written = write(trace, tmp_path / "out")
    assert [w.path.name for w in written if w.path] == [
        f"{HOST}.xplane.pb",
        f"{HOST}.2.xplane.pb",
        f"{HOST}.3.xplane.pb",
    ]
    assert sum(w.slices for w in written) == len(trace.slices)


def test_arguments_give_way_when_a_file_would_be_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = load(eager(tmp_path))
    (whole,) = write(trace, tmp_path / "whole")
    assert whole.path is not None
    monkeypatch.setattr(xprof_writer, "LARGEST_FILE", whole.path.stat().st_size - 300)
    (written,) = write(trace, tmp_path / "out")
    assert written.path is not None
    assert written.findings.of_kind("arguments_left_out") == 1
    assert written.slices == len(trace.slices)
    assert "arguments" not in File(written.path).line("/host:CPU", "thread 501")[0].stats
    monkeypatch.setattr(xprof_writer, "LARGEST_FILE", 100)
    with pytest.raises(NeuronTbError, match="2 GiB"):
        write(trace, tmp_path / "small")
    assert not (tmp_path / "small" / "plugins" / "profile" / "r").exists()


def test_arguments_that_are_no_utf8_do_not_spoil_the_file(tmp_path: Path) -> None:
    trace = load(eager(tmp_path))
    damaged = [
        piece[:].replace(b"External id", b"External \xff\xfe") for piece in trace.arguments.pieces
    ]
    trace.arguments = Arguments(damaged)
    file = converted(trace, tmp_path / "out")
    texts = [e.stats.get("arguments", "") for e in file.line("/host:CPU", "thread 501")]
    assert any("\ufffd" in text for text in texts)


def test_times_stay_exact_to_the_nanosecond(tmp_path: Path) -> None:
    trace = cuda(tmp_path, [("k", 10.123, 20.457, 7)])
    assert trace.clock.kind is ClockKind.EPOCH
    file = converted(trace, tmp_path / "out")
    plane = file.plane("/device:TPU:0")
    (event,) = [e for line in plane.lines if line.name == "XLA Ops" for e in line.events]
    assert (event.offset_ps, event.duration_ps) == (10_123_000, 20_457_000)
    assert file.plane_stats("Task Environment")["profile_start_time"] == BASE_NS


# -- the check ------------------------------------------------------------------------------------


@needs_xprof
def test_the_check_takes_a_single_file(tmp_path: Path) -> None:
    trace = load(eager(tmp_path))
    (written,) = write(trace, tmp_path / "out")
    assert written.path is not None
    report = xprof_check.check(written.path)
    assert report.passed
    assert report.slices == len(trace.slices)
    assert [p.name for p in written.path.parent.iterdir()] == [written.path.name], "no caches"


def test_the_check_reports_a_truncated_file(tmp_path: Path) -> None:
    (written,) = write(load(eager(tmp_path)), tmp_path / "out")
    assert written.path is not None
    data = written.path.read_bytes()
    written.path.write_bytes(data[: len(data) // 2])
    assert not xprof_check.check(written.path).passed


def test_the_check_reports_an_empty_folder(tmp_path: Path) -> None:
    report = xprof_check.check(tmp_path)
    assert not report.passed
    assert ".xplane.pb" in report.problems[0]


@needs_xprof
def test_the_check_reports_lost_events(tmp_path: Path) -> None:
    (written,) = write(load(eager(tmp_path)), tmp_path / "out")
    assert written.path is not None
    file = File(written.path)
    (line,) = [li for li in file.plane("/device:TPU:0").lines if li.name == "XLA Ops"]
    del line.events[0]
    written.path.write_bytes(file.space.SerializeToString())
    report = xprof_check.check(written.path)
    assert any("says" in problem for problem in report.problems)
    assert report.slices == written.slices - 1


@needs_xprof
@pytest.mark.parametrize("lost", ["symbol_id", "program_id"])
def test_the_check_reports_operators_that_xprof_drops(tmp_path: Path, lost: str) -> None:
    (written,) = write(load(eager(tmp_path)), tmp_path / "out")
    assert written.path is not None
    file = File(written.path)
    plane = file.plane("/device:TPU:0")
    (number,) = [key for key, m in plane.stat_metadata.items() if m.name == lost]
    for metadata in plane.event_metadata.values():
        kept = [s for s in metadata.stats if s.metadata_id != number]
        del metadata.stats[:]
        metadata.stats.extend(kept)
    written.path.write_bytes(file.space.SerializeToString())
    report = xprof_check.check(written.path)
    assert any(p.startswith("HLO Op Stats has aten::mul 0 times") for p in report.problems)


@needs_xprof
def test_the_check_reports_missing_steps(tmp_path: Path) -> None:
    (written,) = write(load(eager(tmp_path)), tmp_path / "out")
    assert written.path is not None
    file = File(written.path)
    plane = file.plane("/device:TPU:0")
    (line,) = [li for li in plane.lines if li.name == "Steps"]
    del line.events[:]
    written.path.write_bytes(file.space.SerializeToString())
    report = xprof_check.check(written.path)
    assert any("No step marker" in problem for problem in report.problems)


def test_without_xprof_the_check_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (written,) = write(load(eager(tmp_path)), tmp_path / "out")
    assert written.path is not None
    monkeypatch.setattr(xprof_check, "installed", lambda module: False)
    report = xprof_check.check(written.path)
    assert report.skipped is not None
    assert 'pip install "neuron-tb[tensorboard]"' in report.skipped
    assert report.passed
    assert report.slices == written.slices


@needs_xprof
def test_a_view_that_does_not_open_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (written,) = write(load(eager(tmp_path)), tmp_path / "out")
    assert written.path is not None

    really_ask = consumer.ask

    def ask_in_vain(module: str, questions: str, megabytes: float) -> dict[str, Any]:
        if "op_profile" in Path(questions).read_text():
            raise RuntimeError("no answer after 1 seconds")
        return really_ask(module, questions, megabytes=megabytes)

    monkeypatch.setattr(xprof_check, "ask", ask_in_vain)
    report = xprof_check.check(written.path)
    assert not report.passed
    failed = [view for view in report.views if not view.ok]
    assert [view.name for view in failed] == ["HLO Op Profile"]
    assert "no answer" in failed[0].content
    assert len(report.views) == 7


# -- strangers' files -----------------------------------------------------------------------------

REAL = [
    "hta_amd_mi250_rocm62.json.gz",
    "hta_cpu_only_rank34.pt.trace.json.gz",
    "hta_mtia_inference_rank0.json.gz",
    "hta_alexnet_overlaps.json.gz",
    "hta_sampled_rank0.json.gz",
    "kineto_gpu_metrics_input.json",
    "tracelens_torch_compile_triton.json.gz",
    "perfetto_flow_v1.json",
    "aiu_allreduce_tp4.json",
    "user_dtu_profile_memory.json",
]


@needs_xprof
@pytest.mark.parametrize("name", REAL)
def test_files_of_strangers_pass_the_check(cases: Path, tmp_path: Path, name: str) -> None:
    trace = load(cases / "real" / name)
    (written,) = write(trace, tmp_path)
    assert written.path is not None
    report = xprof_check.check(written.path.parent)
    assert report.problems == []
    assert report.passed
    assert report.slices == len(trace.slices)
