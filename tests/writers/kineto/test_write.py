"""Kineto's JSON in CUDA words: names, numbers that join rows, and the file around them."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from neuron_tb.checks import kineto as kineto_check
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.load import load
from neuron_tb.converters.model import Clock, ClockKind, Process, Trace
from neuron_tb.converters.model.ragged import Ragged
from neuron_tb.converters.writers import Destination, Written
from neuron_tb.converters.writers.chrome_json import (
    Places,
    base_that_keeps_nanoseconds,
    event_file,
    microseconds,
)
from neuron_tb.converters.writers.cuda.words import Kind, collective, transfer_name
from neuron_tb.converters.writers.kineto import write as kineto
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

NEURON = {"distributedInfo": {"backend": "neuron", "rank": 0, "world_size": 1}}
STRANGERS = [
    *("real/hta_alexnet_overlaps.json.gz", "real/hta_amd_mi250_rocm62.json.gz"),
    *("real/hta_cpu_only_rank34.pt.trace.json.gz", "real/hta_mtia_inference_rank0.json.gz"),
    *("real/hta_sampled_rank1.json.gz", "real/kineto_gpu_metrics_input.json"),
    *("real/tracelens_torch_compile_triton.json.gz", "real/user_dtu_profile_memory.json"),
    *("real/aiu_allreduce_tp4.json", "real/perfetto_flow_v1.json", "odd/flow_fanout.json"),
    *("neuron/privateuse1_driver.json", "neuron/trace_json_like.json"),
    *("neuron/doc_system_profile.json", "odd/crossing_overlaps.json"),
]


def one(tmp_path: Path, events: Iterable[Any], **top: Any) -> Written:
    source = write_kineto(tmp_path / "in" / "trace.json", events, **{**NEURON, **top})
    (file,) = kineto.write(load(source), Destination(tmp_path / "out", "run", force=True))
    return file


def document(file: Written) -> dict[str, Any]:
    assert file.path is not None, file.skipped
    found: dict[str, Any] = json.loads(gzip.decompress(file.path.read_bytes()))
    return found


def slices(file: Written) -> list[Event]:
    return [e for e in document(file)["traceEvents"] if e["ph"] == "X"]


def of(file: Written, category: str) -> list[Event]:
    return [e for e in slices(file) if e["cat"] == category]


def device_op(name: str, ts: float, external: int, dur: float = 70.0) -> list[Event]:
    call = complete(
        "privateuse1_runtime", "nrt_execute", ts + 10, 20, args={"External id": external}
    )
    return [operator(name, ts, 60, external), call, window(name, ts + 40, dur, external)]


def foreign(category: str, name: str, ts: float, dur: float, tid: int = 0, **args: Any) -> Event:
    """A device row of device 0 in some vendor's words."""
    return complete(category, name, ts, dur, pid=0, tid=tid, args=args)


# -- words ------------------------------------------------------------------------------------


def test_neuron_rows_get_cudas_words_and_keep_their_own(tmp_path: Path) -> None:
    file = one(tmp_path, [step(1, 0, 400), *device_op("aten::mm", 100, 5)])
    (call,) = of(file, "cuda_runtime")
    assert call["name"] == "cudaLaunchKernel"
    assert call["args"]["source name"] == "nrt_execute"
    assert call["args"]["source category"] == "privateuse1_runtime"
    (row,) = of(file, "kernel")
    assert (row["name"], row["ts"], row["dur"]) == ("aten::mm", 140.0, 70.0)
    assert row["args"]["correlation"] == call["args"]["correlation"]
    assert row["args"]["External id"] == call["args"]["External id"] == 5
    assert (row["args"]["device"], row["pid"]) == (0, 0)
    assert row["args"]["stream"] == row["tid"] > 0
    assert row["args"]["time source"].startswith("window")
    assert [e["name"] for e in of(file, "user_annotation")] == ["ProfilerStep#1"]
    assert document(file)["deviceProperties"][0]["name"] == (
        "NeuronCore 0 (AWS Neuron, shown in CUDA terms)"
    )


def test_a_cuda_trace_stays_as_it_is(tmp_path: Path) -> None:
    events = [
        operator("aten::mm", 0, 60, 9),
        launch(10, 5, 70_001, "cudaLaunchKernelExC", **{"External id": 9, "cbid": 430}),
        complete("cuda_driver", "cuMemFree", 40, 2, args={"correlation": 70_002}),
        kernel("void gemm<float>(int)", 100, 25, 70_001, stream=13),
    ]
    events[3]["args"]["External id"] = 9
    properties = [{"id": 0, "name": "NVIDIA A100", "computeMajor": 8, "numSms": 108}]
    file = one(tmp_path, events, distributedInfo=None, deviceProperties=properties)

    def plain(event: Event) -> tuple[Any, ...]:
        keys = ("cat", "name", "pid", "tid", "ts", "dur", "args")
        return tuple(json.dumps(event[key], sort_keys=True) for key in keys)

    assert {plain(e) for e in slices(file)} == {
        plain({**e, "ts": float(e["ts"]), "dur": float(e["dur"])}) for e in events
    }
    assert document(file)["deviceProperties"] == properties


@pytest.mark.parametrize(
    ("call", "category", "name", "written_call", "written_category", "written_name"),
    [
        ("hipLaunchKernel", "kernel", "Cijk_gemm", "cudaLaunchKernel", "kernel", "Cijk_gemm"),
        (
            *("hipMemcpyAsync", "gpu_memcpy", "CopyHostToDevice"),
            *("cudaMemcpyAsync", "gpu_memcpy", "Memcpy HtoD (CopyHostToDevice)"),
        ),
        (
            *("hipMemsetAsync", "gpu_memset", "FillBuffer"),
            *("cudaMemsetAsync", "gpu_memset", "Memset (FillBuffer)"),
        ),
        (
            *("hipMemcpyAsync", "gpu_memcpy", "blit"),
            *("cudaMemcpyAsync", "gpu_memcpy", "Memcpy Unknown (blit)"),
        ),
    ],
)
def test_rocm_words_become_cudas(
    tmp_path: Path,
    call: str,
    category: str,
    name: str,
    written_call: str,
    written_category: str,
    written_name: str,
) -> None:
    events = [
        operator("aten::x", 0, 60, 9),
        launch(10, 5, 3, call, **{"External id": 9, "stream": 4}),
        foreign(category, name, 100, 25, device=0, stream=0, correlation=3),
    ]
    amd = [{"id": 0, "name": "AMD Instinct MI250X"}]
    file = one(tmp_path, events, distributedInfo=None, deviceProperties=amd)
    (host,) = of(file, "cuda_runtime")
    (row,) = of(file, written_category)
    assert (host["name"], row["name"]) == (written_call, written_name)
    assert host["args"]["source name"] == call
    assert "stream" not in host["args"]
    assert host["args"]["source stream"] == 4
    assert row["args"]["stream"] > 0
    assert row["args"]["source stream"] == 0
    name = document(file)["deviceProperties"][0]["name"]
    assert name == "AMD Instinct MI250X (translated into CUDA's terms)"


def test_mtia_rows_are_kernels_and_keep_their_category(cases: Path, tmp_path: Path) -> None:
    trace = load(cases / "real" / "hta_mtia_inference_rank0.json.gz")
    (file,) = kineto.write(trace, Destination(tmp_path, "run"))
    rows = of(file, "kernel")
    assert len(rows) == 1313
    assert {e["args"]["source category"] for e in rows} == {"mtia_ccp_events"}
    assert not of(file, "mtia_ccp_events")


def test_collectives_of_a_neuron_device_get_nccls_kernel_names(tmp_path: Path) -> None:
    file = one(tmp_path, device_op("c10d::allreduce_", 100, 5))
    (row,) = of(file, "kernel")
    assert re.match(r"^nccl.*Kernel", row["name"])  # what HTA looks for
    assert "c10d::allreduce_" in row["name"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("c10d::allreduce_", "all_reduce"), ("c10d::_allgather_base_", "all_gather")),
        *(
            ("_c10d_functional::reduce_scatter_tensor", "reduce_scatter"),
            ("xla::broadcast", "broadcast"),
        ),
        *(("nccl:_all_gather_base", "all_gather"), ("neuron:all_reduce", "all_reduce")),
        *(
            ("ncclDevKernel_AllReduce_Sum_f32", "all_reduce"),
            ("c10d::alltoall_base_", "all_to_all"),
        ),
        *(("nccl:send", "send"), ("cc_all_reduce", "all_reduce"), ("nccl:reduce", "reduce")),
        *(("aten::broadcast_tensors", None), ("aten::reduce", None), ("broadcast", None)),
        *(("ProfilerStep#1", None), ("", None), ("c10d::something_else", None)),
    ],
)
def test_collectives_are_known_by_their_names(name: str, kind: str | None) -> None:
    assert collective(name) == kind


def test_only_names_tell_the_direction_of_a_copy() -> None:
    assert transfer_name("aten::copy_", Kind.MEMCPY) == "Memcpy Unknown (aten::copy_)"
    assert transfer_name("Memcpy DtoD (Device -> Device)", Kind.MEMCPY).startswith("Memcpy DtoD (D")
    assert transfer_name("hostToDevice", Kind.MEMCPY) == "Memcpy HtoD (hostToDevice)"
    assert transfer_name("D2H", Kind.MEMCPY) == "Memcpy DtoH (D2H)"


# -- joints -----------------------------------------------------------------------------------


def test_host_rows_never_look_like_device_work(tmp_path: Path) -> None:
    """HTA takes every row with a stream for device work, and joins all rows of a correlation."""
    events = [
        *device_op("aten::mm", 100, 5),
        complete("cpu_op", "aten::odd", 300, 5, args={"stream": None, "correlation": "x"}),
        complete("privateuse1_runtime", "nrt_wait", 310, 5, args={"stream": 3, "correlation": "8"}),
    ]
    file = one(tmp_path, events)
    for event in slices(file):
        if event["cat"] != "kernel":
            assert "stream" not in event["args"]
        if event["name"] in ("aten::odd", "nrt_wait"):
            assert "correlation" not in event["args"]
            assert {"source stream", "source correlation"} <= event["args"].keys()


def test_correlation_numbers_are_unique_and_large(tmp_path: Path) -> None:
    """HTA keeps row numbers in a column of these numbers' own integer type."""
    events = [e for n in range(30) for e in device_op("aten::mm", 200 * n, n + 1)]
    numbers = [e["args"]["correlation"] for e in of(one(tmp_path, events), "kernel")]
    assert len(set(numbers)) == 30
    assert max(numbers) > 2**15


def test_small_correlation_numbers_of_the_source_are_shifted(tmp_path: Path) -> None:
    events = [operator("aten::mm", 0, 60, 1), launch(10, 5, 7), kernel("k", 100, 5, 7)]
    (row,) = of(one(tmp_path, events, distributedInfo=None), "kernel")
    assert row["args"]["correlation"] == 2**16 + 7
    assert row["args"]["source correlation"] == 7


def test_overlapping_kernels_get_their_own_stream(tmp_path: Path) -> None:
    events = [
        operator("aten::mm", 0, 60, 1),
        *(kernel("a", 100, 50, 1), kernel("b", 120, 50, 2), kernel("c", 130, 5, 3)),
        kernel("d", 180, 5, 4),
    ]
    file = one(tmp_path, events, distributedInfo=None)
    streams = {e["name"]: e["args"]["stream"] for e in of(file, "kernel")}
    assert streams["a"] == streams["d"] == 7
    assert len({streams["a"], streams["b"], streams["c"]}) == 3
    assert {e["name"]: e["dur"] for e in of(file, "kernel")} == {"a": 50, "b": 50, "c": 5, "d": 5}
    assert file.findings.of_kind("device_overlap") == 2
    names = [e["args"]["name"] for e in document(file)["traceEvents"] if e["name"] == "thread_name"]
    assert "stream 7, overlapping 1" in names


def test_streams_of_different_devices_have_different_numbers(tmp_path: Path) -> None:
    events = [operator("aten::mm", 0, 60, 1)]
    events += [kernel("k", 100, 50, n + 1, stream=7, device=n) for n in range(3)]
    rows = of(one(tmp_path, events, distributedInfo=None), "kernel")
    assert len({e["args"]["stream"] for e in rows}) == 3
    assert [e["args"]["device"] for e in rows] == [0, 1, 2]
    assert [e["args"].get("source stream") for e in rows] == [None, 7, 7]


def test_arrows_from_calls_to_kernels_are_drawn_once(tmp_path: Path) -> None:
    both = {"cat": "ac2g", "name": "ac2g", "id": 70_001}
    events = [
        operator("aten::mm", 0, 60, 1),
        launch(10, 5, 70_001),
        kernel("k", 100, 5, 70_001),
        {"ph": "s", "pid": PID, "tid": PID, "ts": 10, **both},
        {"ph": "f", "bp": "e", "pid": 0, "tid": 7, "ts": 100, **both},
    ]
    found = document(one(tmp_path, events, distributedInfo=None))["traceEvents"]
    arrows = [e for e in found if e["ph"] in "sf"]
    assert [(e["ph"], e["id"], e["pid"], e["tid"], e["ts"]) for e in arrows] == [
        ("s", 70_001, PID, PID, 10.0),
        ("f", 70_001, 0, 7, 100.0),
    ]


def test_other_arrows_keep_their_category_with_numbers_of_their_own(tmp_path: Path) -> None:
    both = {"cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": PID, "tid": PID}
    events = [
        *device_op("aten::mm", 100, 5),
        operator("MmBackward0", 300, 20, 6),
        {"ph": "s", "ts": 100, **both},
        {"ph": "f", "bp": "e", "ts": 300, **both},
    ]
    found = document(one(tmp_path, events))["traceEvents"]
    arrows = [(e["cat"], e["id"]) for e in found if e["ph"] == "s"]
    assert [cat for cat, _ in arrows] == ["ac2g", "fwdbwd"]
    assert len({number for _, number in arrows}) == 2


def test_the_interval_of_several_physical_cores_is_one_kernel(tmp_path: Path) -> None:
    folder = tmp_path / f"{HOST}_pid_{PID}" / "1"
    write_kineto(
        folder / "trace.json", [step(1, 0, 900), operator("aten::mm", 100, 60, 5)], **NEURON
    )
    rows = [
        system_row("nrta_execute_schedule", 112, 5, nc_idx=0),
        execution(160.5, 90, 1, device_core_idx=4),
        execution(161.0, 91, 1, device_core_idx=5),
    ]
    write_json(folder / "system_profile.json", {"trace_events": rows})
    trace = load(folder)
    (file,) = kineto.write(trace, Destination(tmp_path, "run"))
    (row,) = of(file, "kernel")
    assert (row["ts"], row["dur"]) == (160.5, 91.5)
    assert row["args"]["first physical core ns"] == [BASE_NS + 160_500, 90_000]
    (second,) = of(file, "neuron_hw")
    assert (second["name"], second["dur"]) == ("nc_exec_running", 91.0)
    assert "stream" not in second["args"]
    assert file.slices == len(trace.slices) == len(slices(file))


# -- steps ------------------------------------------------------------------------------------


def test_steps_of_another_annotation_are_called_profiler_steps(tmp_path: Path) -> None:
    events = [e for n in range(2) for e in (complete("user_annotation", "train", 500 * n, 400),)]
    events += [step(7, 0, 1000), *device_op("aten::mm", 10, 1), operator("aten::mm", 510, 9, 2)]
    source = write_kineto(tmp_path / "trace.json", events, **NEURON)
    (file,) = kineto.write(load(source, steps_from="train"), Destination(tmp_path / "out", "run"))
    names = [e["name"] for e in of(file, "user_annotation")]
    assert sorted(names) == ["ProfilerStep#0", "ProfilerStep#1", "annotation ProfilerStep#7"]


def test_a_name_that_only_begins_like_a_step_cannot_stop_hta(tmp_path: Path) -> None:
    odd = complete("user_annotation", "ProfilerStepper", 0, 50)
    file = one(tmp_path, [odd, *device_op("aten::mm", 100, 5)])
    assert [e["name"] for e in of(file, "user_annotation")] == ["annotation ProfilerStepper"]
    assert of(file, "user_annotation")[0]["args"]["source name"] == "ProfilerStepper"


# -- the file ---------------------------------------------------------------------------------


def test_the_rank_is_always_written_where_hta_looks_for_it(tmp_path: Path) -> None:
    file = one(tmp_path, device_op("aten::mm", 100, 5), distributedInfo={"backend": "neuron"})
    assert file.path is not None
    assert file.path.name == "rank0.trace.json.gz"
    lines = gzip.decompress(file.path.read_bytes()).decode().splitlines()
    first = next(line for line in lines if re.search(r'"rank":\s+(\d+)', line))
    assert first.startswith('"distributedInfo": {"rank": 0')
    assert document(file)["distributedInfo"] == {"rank": 0, "backend": "neuron"}


def test_ranks_are_the_processes_own_and_unique(tmp_path: Path) -> None:
    sources = []
    for number, rank in enumerate((3, 3, None, 0)):
        info = {"backend": "neuron"} if rank is None else {"backend": "neuron", "rank": rank}
        path = tmp_path / "in" / f"p{number}" / "trace.json"
        events = [
            {**e, "pid": PID + number} if e["pid"] == PID else e for e in device_op("a", 10, 1)
        ]
        sources.append(write_kineto(path, events, distributedInfo=info))
    files = kineto.write(load(*sources), Destination(tmp_path / "out", "run"))
    assert sorted(f.path.name for f in files if f.path) == [
        f"rank{n}.trace.json.gz" for n in (0, 1, 2, 3)
    ]
    assert sorted(document(f)["distributedInfo"]["rank"] for f in files) == [0, 1, 2, 3]


def test_the_base_time_of_the_source_is_kept(tmp_path: Path) -> None:
    file = one(tmp_path, [operator("aten::mm", 7_000_000_000_000.001, 0.123, 1)])
    found = document(file)
    (row,) = slices(file)
    assert found["baseTimeNanoseconds"] == BASE_NS
    assert (row["ts"], row["dur"]) == (7_000_000_000_000.001, 0.123)
    assert file.path is not None
    text = gzip.decompress(file.path.read_bytes())
    assert b'"ts": 7000000000000.001, "dur": 0.123' in text


def test_a_base_that_would_cost_nanoseconds_is_replaced() -> None:
    def trace(start_ns: int) -> Trace:
        made = Trace("t", processes=[Process("", 1)], clock=Clock(ClockKind.EPOCH))
        made.instants.time_ns = np.array([start_ns], np.int64)
        made.instants.name = made.instants.category = made.instants.track = np.zeros(1, np.int32)
        return made

    epoch = 1_767_189_312_345_678_901
    assert base_that_keeps_nanoseconds(trace(epoch), 0) == 1_767_189_312_000_000_000
    assert base_that_keeps_nanoseconds(trace(epoch), epoch - 5) == epoch - 5
    assert base_that_keeps_nanoseconds(trace(epoch), epoch + 5) == 1_767_189_312_000_000_000
    assert base_that_keeps_nanoseconds(trace(2**43 * 1000 - 1), 0) == 0
    assert base_that_keeps_nanoseconds(trace(2**43 * 1000), 0) > 0


def test_everything_of_the_sample_is_in_its_files(samples: Path, tmp_path: Path) -> None:
    trace = load(samples / "training")
    files = kineto.write(trace, Destination(tmp_path, "training"))
    assert sum(file.slices for file in files) == len(trace.slices)
    events = [e for f in files for e in document(f)["traceEvents"]]
    phases = [e["ph"] for e in events]
    assert phases.count("C") == len(trace.counters)
    assert phases.count("i") == len(trace.instants) + len(trace.memory)
    assert phases.count("s") == phases.count("f") > 0
    for file in files:
        found = document(file)
        base = found["baseTimeNanoseconds"]
        kernels = of(file, "kernel") + of(file, "gpu_memcpy")
        total = sum(round(e["dur"] * 1000) for e in kernels)
        assert total == found["neuron_tb"]["device_total_ns"]
        starts = {base + round(e["ts"] * 1000) for e in slices(file) if e["cat"] == "cpu_op"}
        assert starts <= set(trace.slices.start_ns.tolist())


def test_the_file_is_json_with_one_event_a_line(tmp_path: Path) -> None:
    source = write_kineto(
        tmp_path / "in" / "trace.json", device_op('a\tb\n"c" é 😀', 10, 1), **NEURON
    )
    pretty = json.dumps(json.loads(source.read_text()), indent=2, ensure_ascii=False)
    source.write_text(pretty, encoding="utf-8")
    (file,) = kineto.write(load(source), Destination(tmp_path / "out", "run"))
    assert file.path is not None
    lines = gzip.decompress(file.path.read_bytes()).decode().splitlines()
    start = lines.index('"traceEvents": [')
    rows = [msgspec.json.decode(line.rstrip(",")) for line in lines[start + 1 : -1]]
    assert len([row for row in rows if row["ph"] == "X"]) == 3
    assert lines[-1] == "]}"


def test_metadata_of_the_source_and_findings_are_kept(tmp_path: Path) -> None:
    source = write_kineto(
        tmp_path / "trace.json", device_op("a", 10, 1), **NEURON, with_stack=1, INFO=["x"], bad=None
    )
    trace = load(source)
    trace.metadata[0]["nan"] = float("nan")
    trace.findings.add("made_up", "something was repaired", 3)
    (file,) = kineto.write(trace, Destination(tmp_path / "out", "run"))
    found = document(file)
    assert (found["with_stack"], found["INFO"], found["nan"]) == (1, ["x"], None)
    assert list(found)[-1] == "traceEvents"
    about = found["neuron_tb"]
    assert {"kind": "made_up", "count": 3, "message": "something was repaired"} in about["findings"]
    assert (about["slices"], about["kernels"], about["device_total_ns"]) == (3, 1, 70_000)


def test_a_trace_without_slices_has_no_file_and_a_sentence(tmp_path: Path) -> None:
    trace = Trace("empty", processes=[Process("", 1)], metadata=[{}])
    (file,) = kineto.write(trace, Destination(tmp_path / "out", "run"))
    assert file.path is None
    assert "without slices" in str(file.skipped)
    assert not (tmp_path / "out").exists()


def test_an_old_run_with_more_ranks_leaves_nothing_behind(tmp_path: Path) -> None:
    file = one(tmp_path, device_op("a", 10, 1))
    assert file.path is not None
    stale = file.path.with_name("rank7.trace.json.gz")
    stale.write_bytes(file.path.read_bytes())
    one(tmp_path, device_op("a", 10, 1))
    assert [p.name for p in file.path.parent.iterdir()] == ["rank0.trace.json.gz"]


def test_a_folder_with_other_files_is_never_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "kineto" / "run"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("precious")
    with pytest.raises(NeuronTbError, match=r"notes\.txt"):
        one(tmp_path, device_op("a", 10, 1))
    assert (folder / "notes.txt").read_text() == "precious"


@pytest.mark.parametrize("name", STRANGERS)
def test_strangers_files_keep_every_slice(cases: Path, tmp_path: Path, name: str) -> None:
    trace = load(cases / name)
    files = kineto.write(trace, Destination(tmp_path, "run"))
    assert sum(file.slices for file in files) == len(trace.slices)
    kernels = 0
    for file in files:
        about = document(file)["neuron_tb"]
        rows = slices(file)
        assert len(rows) - about["added_events"] == file.slices
        assert all(e["cat"] and e["name"] and e["dur"] >= 0 for e in rows)
        device = [e for e in rows if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
        assert all(e["args"]["stream"] > 0 and e["args"]["correlation"] > 0 for e in device)
        kernels += len(device)
    assert kernels == int(trace.executions.counted.sum())


# -- pieces -----------------------------------------------------------------------------------


def test_microseconds_are_exact_text() -> None:
    times = np.array([0, 1, 999, 1000, 1_767_189_312_345_678_901], np.int64)
    expected = [b"0.000", b"0.001", b"0.999", b"1.000", b"1767189312345678.901"]
    assert microseconds(times).array.to_pylist() == expected


def test_an_event_file_without_events_is_valid_json(tmp_path: Path) -> None:
    with event_file(tmp_path / "x.gz", {"a": 1}) as file:
        file.add(Places().metadata_lines())
    assert json.loads(gzip.decompress((tmp_path / "x.gz").read_bytes())) == {
        "a": 1,
        "traceEvents": [],
    }


def test_higher_compression_gives_the_same_text(tmp_path: Path) -> None:
    for level in (1, 9):
        with event_file(tmp_path / f"{level}.gz", {}, level) as file:
            file.add([Ragged.of([b',\n{"n": %d}' % n for n in range(50_000)])])
    small, large = (tmp_path / f"{level}.gz" for level in (9, 1))
    assert gzip.decompress(small.read_bytes()) == gzip.decompress(large.read_bytes())
    assert small.stat().st_size < large.stat().st_size


def test_equal_captures_give_equal_bytes(tmp_path: Path) -> None:
    first = one(tmp_path, device_op("aten::mm", 100, 5)).path
    assert first is not None
    before = first.read_bytes()
    second = one(tmp_path, device_op("aten::mm", 100, 5)).path
    assert second is not None
    assert second.read_bytes() == before


def test_findings_of_the_writer_do_not_leak_into_the_trace(tmp_path: Path) -> None:
    events = [operator("a", 0, 60, 1), kernel("k", 10, 50, 1), kernel("k", 20, 50, 2)]
    trace = load(write_kineto(tmp_path / "trace.json", events))
    before = Findings(trace.findings).as_dicts()
    for _ in range(2):
        (file,) = kineto.write(trace, Destination(tmp_path / "out", "run", force=True))
        assert file.findings.of_kind("device_overlap") == 1
    assert trace.findings.as_dicts() == before


def test_the_check_without_hta_looks_at_the_joints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = one(tmp_path, device_op("aten::mm", 100, 5))
    assert file.path is not None
    monkeypatch.setattr(kineto_check, "installed", lambda module: False)
    report = kineto_check.check(file.path)
    assert report.passed
    assert "HTA is not installed" in str(report.skipped)
    found = document(file)
    for event in found["traceEvents"]:
        if event.get("cat") == "kernel":
            event["args"]["stream"] = 0
    found["traceEvents"].append(
        {**of(file, "cpu_op")[0], "args": of(file, "cuda_runtime")[0]["args"]}
    )
    file.path.write_bytes(gzip.compress(json.dumps(found).encode()))
    problems = kineto_check.check(file.path).problems
    assert any("no usable stream" in p for p in problems)
    assert any("several host rows" in p for p in problems)
    assert any("slices" in p for p in problems)
