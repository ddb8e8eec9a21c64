"""Holistic Trace Analysis runs on the kineto output and agrees with our own totals."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuron_tb.checks import kineto as kineto_check
from neuron_tb.converters.load import load
from neuron_tb.converters.model import Trace
from neuron_tb.converters.model.lanes import union_length
from neuron_tb.converters.writers import Destination
from neuron_tb.converters.writers.kineto import write as kineto
from tests.makers import kernel, operator, write_kineto

pytest.importorskip("hta", reason="needs HolisticTraceAnalysis (extra test)")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:::hta.*")]

ROUNDING_US = 2


def analysed(trace: Trace, folder: Path) -> Any:
    """HTA's analysis of all ranks of a trace."""
    from hta.trace_analysis import TraceAnalysis

    kineto.write(trace, Destination(folder, "run"))
    return TraceAnalysis(trace_dir=str(folder / "kineto" / "run"), include_last_profiler_step=True)


def own_totals(trace: Trace, process: int) -> tuple[int, float, float]:
    """Number, sum and union (microseconds) of a process' device work, from the links."""
    work = trace.executions.take(trace.executions.counted)
    mine = work.take(trace.slice_process[work.slice] == process)
    return len(mine), mine.duration_ns.sum() / 1000, union_length(mine.start_ns, mine.end_ns) / 1000


@pytest.mark.parametrize(
    "name", ["rmsnorm/naive", "rmsnorm/rms_norm", "rmsnorm/compiled", "training"]
)
def test_breakdowns_agree_with_our_totals(samples: Path, tmp_path: Path, name: str) -> None:
    trace = load(samples / name)
    analysis = analysed(trace, tmp_path)
    temporal = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
    kinds, kernels = analysis.get_gpu_kernel_breakdown(
        visualize=False, include_memory_kernels=True, num_kernels=1000
    )
    assert len(kinds)
    for process, rank in enumerate(sorted(analysis.t.traces)):
        count, total, busy = own_totals(trace, process)
        tolerance = ROUNDING_US * count
        row = temporal.loc[rank]
        assert row["kernel_time(us)"] - row["idle_time(us)"] == pytest.approx(busy, abs=tolerance)
        assert kernels[kernels["rank"] == rank]["sum (us)"].sum() == pytest.approx(
            total, abs=tolerance
        )
        launches = analysis.get_cuda_kernel_launch_stats(ranks=[rank], visualize=False)[rank]
        assert len(launches) == count
        assert launches["gpu_duration"].sum() == pytest.approx(total, abs=tolerance)
        idle, _ = analysis.get_idle_time_breakdown(ranks=[rank], visualize=False)
        assert idle["idle_time"].sum() == pytest.approx(row["idle_time(us)"], abs=tolerance)


def test_operators_of_the_naive_sample_are_hta_s_kernels(samples: Path, tmp_path: Path) -> None:
    analysis = analysed(load(samples / "rmsnorm" / "naive"), tmp_path)
    _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
    found = kernels.set_index("name")["sum (us)"].to_dict()
    wanted = {"aten::mul": 1164.5, "aten::add": 434.6, "aten::rsqrt": 415.0, "aten::mean": 340.8}
    assert found == pytest.approx(wanted, abs=3 * ROUNDING_US)


def test_collectives_and_their_overlap_are_seen(samples: Path, tmp_path: Path) -> None:
    analysis = analysed(load(samples / "training"), tmp_path)
    kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
    assert {"COMMUNICATION", "COMPUTATION"} <= set(kinds["kernel_type"])
    names = kernels[kernels["kernel_type"] == "COMMUNICATION"]["name"].unique()
    assert [n for n in names if n != "others"] == ["ncclDevKernel_AllReduce (c10d::allreduce_)"]
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    assert len(overlap) == 2


def test_steps_are_hta_s_iterations(samples: Path, tmp_path: Path) -> None:
    trace = load(samples / "training")
    analysis = analysed(trace, tmp_path)
    iterations = analysis.t.get_iterations(0)
    assert iterations == sorted(set(trace.steps.number.tolist()))
    rows = analysis.t.get_trace(0)
    on_device = rows[rows["stream"].gt(0)]
    steps = trace.executions.step[trace.executions.counted]
    process = trace.slice_process[trace.executions.slice[trace.executions.counted]]
    wanted = np.unique(trace.steps.number[steps[process == 0]], return_counts=True)
    found = np.unique(on_device["iteration"], return_counts=True)
    assert [w.tolist() for w in wanted] == [f.tolist() for f in found]


@pytest.mark.parametrize(
    "name",
    [
        *("real/hta_amd_mi250_rocm62.json.gz", "real/hta_mtia_inference_rank0.json.gz"),
        *("real/hta_sampled_rank0.json.gz", "real/kineto_gpu_metrics_input.json"),
        *("real/tracelens_torch_compile_triton.json.gz", "real/hta_alexnet_overlaps.json.gz"),
        *("real/hta_cpu_only_rank34.pt.trace.json.gz", "neuron/privateuse1_driver.json"),
        *("neuron/trace_json_like.json", "odd/crossing_overlaps.json"),
    ],
)
def test_strangers_files_pass_the_check(cases: Path, tmp_path: Path, name: str) -> None:
    trace = load(cases / name)
    for file in kineto.write(trace, Destination(tmp_path, "run")):
        assert file.path is not None
        report = kineto_check.check(file.path)
        assert report.passed, (report.problems, [v for v in report.views if not v.ok])
        assert report.slices == file.slices
        has_device_work = bool(trace.executions.counted.any())
        assert ("Temporal breakdown" in {v.name for v in report.views}) == has_device_work


def test_the_check_notices_lost_device_time(samples: Path, tmp_path: Path) -> None:
    (file,) = kineto.write(load(samples / "rmsnorm" / "naive"), Destination(tmp_path, "run"))
    assert file.path is not None
    document = json.loads(gzip.decompress(file.path.read_bytes()))
    for event in document["traceEvents"]:
        if event.get("cat") == "kernel":
            event["args"].pop("stream")
            break
    file.path.write_bytes(gzip.compress(json.dumps(document).encode()))
    report = kineto_check.check(file.path)
    assert not report.passed
    assert any("stream" in problem for problem in report.problems)


def test_rows_below_a_microsecond_are_hta_s_limit_not_a_problem_of_the_file(tmp_path: Path) -> None:
    events = [operator("aten::x", 0, 60, 1), kernel("k", 10.2, 0.5, 70_001)]
    (file,) = kineto.write(
        load(write_kineto(tmp_path / "trace.json", events)), Destination(tmp_path / "out", "run")
    )
    assert file.path is not None
    report = kineto_check.check(file.path)
    assert report.passed, report.problems
    (view,) = [v for v in report.views if v.name == "Temporal breakdown"]
    assert "negative lengths" in view.content
