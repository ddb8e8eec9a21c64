"""Every capture, written for every viewer, passes every viewer's check."""

from __future__ import annotations

from pathlib import Path

import pytest

import neuron_tb
from neuron_tb.commands.check import check_all
from tests.links.test_link import capture
from tests.makers import complete, execution, operator, step, system_row

pytestmark = pytest.mark.slow

_REAL = (
    "aiu_allreduce_tp4.json",
    "hta_alexnet_overlaps.json.gz",
    "hta_amd_mi250_rocm62.json.gz",
    "hta_cpu_only_rank34.pt.trace.json.gz",
    "hta_mtia_inference_rank0.json.gz",
    "hta_sampled_rank0.json.gz",
    "hta_sampled_rank1.json.gz",
    "kineto_gpu_metrics_input.json",
    "perfetto_flow_v1.json",
    "tracelens_torch_compile_triton.json.gz",
    "user_dtu_profile_memory.json",
)
_NEURON = (
    ("privateuse1_driver.json",),
    ("torchneuron_cpu_only.json", "system_profile.json"),
    ("privateuse1_driver.json", "system_profile.json"),
    ("trace_json_like.json",),
    ("doc_system_profile.json",),
    ("nrt_events.json",),
    ("SystemProfileEvents.parquet",),
)


def assert_all_targets_pass(out: Path, *sources: Path) -> None:
    pytest.importorskip("xprof", reason="XProf is in the extra tensorboard")
    conversion = neuron_tb.convert(*sources, out=out)
    assert {w.target for w in conversion.written} == {"xprof", "torch-tb", "kineto", "perfetto"}
    for written in conversion.written:
        assert written.path or written.skipped
    for report in check_all(out, lambda stage: None):
        assert report.passed, (report.target, report.problems, report.views)
    total = len(neuron_tb.load(*sources).slices)
    for target in ("xprof", "perfetto"):
        assert sum(w.slices for w in conversion.written if w.target == target) == total


@pytest.mark.parametrize("name", ["rmsnorm/naive", "rmsnorm/compiled", "training", "engines"])
def test_samples(samples: Path, tmp_path: Path, name: str) -> None:
    assert_all_targets_pass(tmp_path, samples / name)


@pytest.mark.parametrize("name", _REAL)
def test_strangers_files(cases: Path, tmp_path: Path, name: str) -> None:
    assert_all_targets_pass(tmp_path, cases / "real" / name)


@pytest.mark.parametrize("names", _NEURON, ids="+".join)
def test_shapes_of_neuron_output(cases: Path, tmp_path: Path, names: tuple[str, ...]) -> None:
    assert_all_targets_pass(tmp_path, *(cases / "neuron" / name for name in names))


def test_two_ranks_of_one_job(cases: Path, tmp_path: Path) -> None:
    folder = cases / "real"
    assert_all_targets_pass(
        tmp_path, folder / "hta_sampled_rank0.json.gz", folder / "hta_sampled_rank1.json.gz"
    )


def test_device_events_of_the_framework_beside_the_cores_own_intervals(tmp_path: Path) -> None:
    sequence = 1 << 48 | 3
    args = {"device": 0, "External id": 1, "nrt_sequence_id": sequence}
    events = [
        step(0, 0, 60),
        operator("aten::mul", 0, 20, external=1),
        complete("kernel", "mul kernel", 21, 29, pid=0, tid=0, args=args),
    ]
    rows = [
        system_row("nrta_execute_schedule", 5, 3, nrta_seq_id=sequence),
        system_row("kbl_exec_wait", 9, 50, thread_id=9, flow_id=[str(sequence), "4"], nc_idx=0),
        execution(20, 30, 4),
    ]
    assert_all_targets_pass(tmp_path / "out", capture(tmp_path, events, rows))
