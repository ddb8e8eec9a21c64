"""The shipped captures, judged from their JSON alone: no reader of this project is used,
except where the last tests ask what it makes of them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import neuron_tb
from neuron_tb.samples.engines import make as engines
from neuron_tb.samples.rmsnorm import make as rmsnorm
from neuron_tb.samples.training import make as training

Json = dict[str, Any]

RMSNORM = ("naive", "rms_norm", "compiled")
PUBLISHED_NS = {
    "naive": {
        "aten::mul": (3, 1_164_500),
        "aten::add": (1, 434_600),
        "aten::rsqrt": (1, 415_000),
        "aten::mean": (1, 340_800),
    },
    "rms_norm": {"aten::_fused_rms_norm": (1, 403_300)},
    "compiled": {"Torch-Compiled Region: 0/0": (1, 375_500)},
}
PUBLISHED_HOST_NS = {"naive": 125_000, "rms_norm": 48_000, "compiled": 98_000}


def read(path: Path) -> Json:
    document: Json = json.loads(path.read_text())
    return document


def traces_below(directory: Path) -> list[Path]:
    return sorted(directory.rglob("trace.json"))


def profile_of(trace: Path) -> Path:
    """Beside the trace, or above the process directories."""
    places = (trace.parent, trace.parents[2])
    return next(p / "system_profile.json" for p in places if (p / "system_profile.json").exists())


def rows_of(trace: Path) -> list[Json]:
    """The rows of the trace's own process in its system profile."""
    profile = read(profile_of(trace))
    pid = trace.parts[-3].split("_pid_")[1]
    rows: list[Json] = profile.get("trace_event", []) + profile.get("trace_events", [])
    return [row for row in rows if row["process_id"] == pid]


def host_ranges(trace: Path) -> list[Json]:
    """Complete events on host threads, times in nanoseconds after the base."""
    events = [e for e in read(trace)["traceEvents"] if e["ph"] == "X" and e["cat"] != "Trace"]
    return [
        e | {"start": round(e["ts"] * 1000), "end": round(e["ts"] * 1000) + round(e["dur"] * 1000)}
        for e in events
        if e["cat"] != "privateuse1_driver"
    ]


def end_ns(row: Json) -> int:
    end: int = row["timestamp"] + row["duration"]
    return end


def executions_of(trace: Path) -> dict[str, list[Json]]:
    """Per exec_id the rows on the NeuronCore."""
    found = defaultdict(list)
    for row in rows_of(trace):
        if row["name"] == "nc_exec_running":
            found[str(row["exec_id"])].append(row)
    return found


def sequence_of(trace: Path) -> dict[str, str]:
    """exec_id to sequence id, from the row of the runtime's worker that knows both."""
    waits = [row for row in rows_of(trace) if row["name"] == "kbl_exec_wait"]
    return {row["flow_id"][1]: row["flow_id"][0] for row in waits}


def operator_names(trace: Path) -> dict[str, str]:
    """Sequence id to the operator that its dispatch belongs to."""
    events = read(trace)["traceEvents"]
    operators = {e["args"]["External id"]: e["name"] for e in events if e.get("cat") == "cpu_op"}
    return {
        str(e["args"]["nrt_sequence_id"]): operators[e["args"]["External id"]]
        for e in events
        if e.get("cat") == "privateuse1_runtime"
    }


@pytest.fixture(scope="module")
def every_trace(samples: Path) -> list[Path]:
    found = traces_below(samples)
    assert len(found) == 6
    return found


# -- the files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script", [rmsnorm, training, engines], ids=["rmsnorm", "training", "engines"]
)
def test_the_script_writes_the_shipped_bytes(script: Any, samples: Path, tmp_path: Path) -> None:
    shipped = samples / script.__name__.split(".")[-2]
    written = script.make(tmp_path)
    names = {path.relative_to(tmp_path) for path in written}
    assert names == {path.relative_to(shipped) for path in shipped.rglob("*.json")}
    for name in names:
        assert (tmp_path / name).read_bytes() == (shipped / name).read_bytes(), name


def test_every_file_says_that_it_is_synthetic(samples: Path) -> None:
    files = list(samples.rglob("*.json"))
    assert len(files) == 12
    for path in files:
        document = read(path)
        assert "not a measurement" in document["synthetic"]
        rows = document.get("trace_event", []) + document.get("trace_events", [])
        assert {row["instance_id"][:12] for row in rows} <= {"i-0synthetic"}
        assert path.stat().st_size < 300_000
    for readme in ("README.md", "rmsnorm/README.md", "training/README.md", "engines/README.md"):
        assert "measure" in (samples / readme).read_text()


def test_directories_are_named_as_aws_names_them(every_trace: list[Path]) -> None:
    for trace in every_trace:
        host, _, pid = trace.parts[-3].rpartition("_pid_")
        document = read(trace)
        first = document["traceEvents"][0]
        assert (host[:4], int(pid)) == ("i-0s", first["pid"])
        start_ns = document["baseTimeNanoseconds"] + round(first["ts"] * 1000)
        assert int(trace.parts[-2]) == start_ns


def test_traces_have_the_marks_of_torchneuron(every_trace: list[Path]) -> None:
    for trace in every_trace:
        document = read(trace)
        names = Counter(e["name"] for e in document["traceEvents"])
        for mark in ("__neuron_profiler__ (-1)", "PyTorch Profiler (0)", "Record Window End"):
            assert names[mark] == 1
        assert document["distributedInfo"]["backend"] == "neuron"
        assert {"process_name", "thread_name"} <= set(names)


# -- structure ------------------------------------------------------------------------------


def test_ranges_of_a_host_thread_nest(every_trace: list[Path]) -> None:
    for trace in every_trace:
        open_ranges: dict[int, list[Json]] = defaultdict(list)
        for event in sorted(host_ranges(trace), key=lambda e: (e["start"], -e["end"])):
            stack = open_ranges[event["tid"]]
            while stack and stack[-1]["end"] <= event["start"]:
                stack.pop()
            assert not stack or event["end"] <= stack[-1]["end"], (trace, event, stack[-1])
            stack.append(event)


def test_identifiers_are_unique_and_lead_to_operators(every_trace: list[Path]) -> None:
    for trace in every_trace:
        events = read(trace)["traceEvents"]
        own = [e for e in events if e.get("cat") in ("cpu_op", "user_annotation")]
        ids = [e["args"]["External id"] for e in own]
        assert len(ids) == len(set(ids))
        dispatched = [e["args"] for e in events if e.get("cat") == "privateuse1_runtime"]
        windows = [e["args"] for e in events if e.get("cat") == "privateuse1_driver"]
        for args in (*dispatched, *windows):
            assert args["External id"] in ids
        sequences = [args["nrt_sequence_id"] for args in windows]
        assert sequences == [args["nrt_sequence_id"] for args in dispatched]
        assert len(sequences) == len(set(sequences)) == len(executions_of(trace))


def test_executions_begin_after_the_call_that_issued_them(every_trace: list[Path]) -> None:
    for trace in every_trace:
        calls = {
            str(row["nrta_seq_id"]): row
            for row in rows_of(trace)
            if row["name"] == "nrta_execute_schedule"
        }
        sequence = sequence_of(trace)
        executions = executions_of(trace)
        assert executions
        for number, rows in executions.items():
            assert min(row["timestamp"] for row in rows) > end_ns(calls[sequence[number]])


def test_a_core_runs_one_execution_at_a_time(every_trace: list[Path]) -> None:
    for trace in every_trace:
        by_core = defaultdict(list)
        for rows in executions_of(trace).values():
            for row in rows:
                by_core[row["device_core_idx"]].append((row["timestamp"], end_ns(row)))
        for spans in by_core.values():
            spans.sort()
            gaps = [after[0] - before[1] for before, after in pairwise(spans)]
            assert all(gap > 5_000 for gap in gaps)


def test_sync_points_map_the_hardware_clock_onto_the_rows(every_trace: list[Path]) -> None:
    for trace in every_trace:
        rows = rows_of(trace)
        points = {r["exec_id"]: r for r in rows if r["name"] == "timestamp_sync_point"}
        timed = [r for r in rows if "nc_start_timestamp_ns" in r]
        assert len(timed) >= len(points) == len(executions_of(trace))
        for row in timed:
            point = points[row["exec_id"]]
            ahead = point["cpu_timestamp_ns"] - point["nc_timestamp_ns"]
            assert row["nc_start_timestamp_ns"] + ahead == row["timestamp"]
            assert row["nc_stop_timestamp_ns"] + ahead == end_ns(row)


def test_the_last_step_waits_for_all_device_work(every_trace: list[Path]) -> None:
    for trace in every_trace:
        base = read(trace)["baseTimeNanoseconds"]
        steps = [e for e in host_ranges(trace) if e["name"].startswith("ProfilerStep#")]
        last = base + max(step["end"] for step in steps)
        assert max(end_ns(row) for rows in executions_of(trace).values() for row in rows) < last


# -- rmsnorm --------------------------------------------------------------------------------


@pytest.mark.parametrize("capture", RMSNORM)
def test_device_times_are_those_of_the_published_table(capture: str, samples: Path) -> None:
    (trace,) = traces_below(samples / "rmsnorm" / capture)
    names, sequence = operator_names(trace), sequence_of(trace)
    found: dict[str, tuple[int, int]] = {}
    for number, rows in executions_of(trace).items():
        assert len(rows) == 1  # LNC1
        calls, total = found.get(names[sequence[number]], (0, 0))
        found[names[sequence[number]]] = (calls + 1, total + rows[0]["duration"])
    assert found == PUBLISHED_NS[capture]


def test_shares_of_naive_are_those_of_the_published_table() -> None:
    total = sum(ns for _, ns in PUBLISHED_NS["naive"].values())
    assert total == 2_354_900
    shares = [f"{100 * ns / total:.1f}" for _, ns in PUBLISHED_NS["naive"].values()]
    assert shares == ["49.5", "18.5", "17.6", "14.5"]


@pytest.mark.parametrize("capture", RMSNORM)
def test_host_totals_are_those_of_the_published_table(capture: str, samples: Path) -> None:
    (trace,) = traces_below(samples / "rmsnorm" / capture)
    operators = [e for e in host_ranges(trace) if e["cat"] == "cpu_op"]
    outermost = [
        e
        for e in operators
        if not any(
            o is not e and o["start"] <= e["start"] and e["end"] <= o["end"] for o in operators
        )
    ]
    assert sum(e["end"] - e["start"] for e in outermost) == PUBLISHED_HOST_NS[capture]


@pytest.mark.parametrize("capture", RMSNORM)
def test_everything_lies_in_the_one_step(capture: str, samples: Path) -> None:
    (trace,) = traces_below(samples / "rmsnorm" / capture)
    ranges = host_ranges(trace)
    (step,) = [e for e in ranges if e["name"].startswith("ProfilerStep#")]
    assert step["name"] == "ProfilerStep#0"
    assert all(step["start"] <= e["start"] and e["end"] <= step["end"] for e in ranges)


def test_both_spellings_of_the_row_list_occur(samples: Path) -> None:
    keys = Counter(
        key
        for path in samples.rglob("system_profile.json")
        for key in read(path)
        if key.startswith("trace_event")
    )
    assert keys == {"trace_events": 2, "trace_event": 3}


# -- training -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranks(samples: Path) -> list[Path]:
    found = traces_below(samples / "training")
    assert [read(trace)["distributedInfo"]["rank"] for trace in found] == [0, 1]
    return found


def test_two_processes_of_one_instance_share_a_profile_above_them(ranks: list[Path]) -> None:
    assert {read(trace)["distributedInfo"]["world_size"] for trace in ranks} == {2}
    assert (
        profile_of(ranks[0]) == profile_of(ranks[1]) == ranks[0].parents[2] / "system_profile.json"
    )
    assert len({trace.parts[-3].rpartition("_pid_")[0] for trace in ranks}) == 1
    assert min(len(rows_of(trace)) for trace in ranks) > 200


def test_each_execution_has_a_row_on_both_physical_cores(ranks: list[Path]) -> None:
    for rank, trace in enumerate(ranks):
        executions = executions_of(trace)
        assert len(executions) == 3 * 13
        for rows in executions.values():
            first, second = sorted(rows, key=lambda row: row["device_core_idx"])
            cores = (first["device_core_idx"], second["device_core_idx"])
            assert cores == (2 * rank, 2 * rank + 1)
            assert first["timestamp"] < second["timestamp"] < end_ns(first) < end_ns(second)


def test_both_ranks_run_the_same_steps_and_operators(ranks: list[Path]) -> None:
    names = [Counter(e["name"] for e in host_ranges(trace)) for trace in ranks]
    assert names[0] == names[1]
    assert [n for n in names[0] if n.startswith("ProfilerStep#")] == [
        "ProfilerStep#3",
        "ProfilerStep#4",
        "ProfilerStep#5",
    ]
    assert {"nn.Module: MLP_0", "aten::_fused_adamw_", "Optimizer.step#AdamW.step"} <= set(names[0])


def test_all_reduces_are_described_alike_and_end_together(ranks: list[Path]) -> None:
    described, moved = [], []
    for trace in ranks:
        events = [e for e in read(trace)["traceEvents"] if e["name"] == "neuron:all_reduce"]
        described.append([(e["args"]["Input Dims"], e["args"]["Input type"]) for e in events])
        rows = [row for row in rows_of(trace) if row["name"] == "cc_running"]
        moved.append([(row["timestamp"], end_ns(row)) for row in rows])
    elements = 2 * 1024 * 4096 + 1024 + 4096
    assert described[0] == described[1] == [([[elements]], ["c10::BFloat16"])] * 3
    assert len(moved[0]) == 3
    assert moved[0] == moved[1]


def test_the_faster_rank_waits_in_the_barrier(ranks: list[Path]) -> None:
    waits = [
        [row["duration"] for row in rows_of(trace) if row["name"] == "cc_exec_barrier"]
        for trace in ranks
    ]
    assert all(fast > slow for fast, slow in zip(*waits, strict=True))


def test_backward_runs_on_its_own_thread_with_arrows_to_it(ranks: list[Path]) -> None:
    for trace in ranks:
        events = read(trace)["traceEvents"]
        flows = [e for e in events if e.get("cat") == "fwdbwd"]
        starts = {e["id"]: e for e in flows if e["ph"] == "s"}
        ends = {e["id"]: e for e in flows if e["ph"] == "f"}
        assert starts.keys() == ends.keys()
        assert len(starts) == len(flows) / 2 == 3 * 6
        begins = {(e["tid"], e["ts"]) for e in events if e.get("cat") == "cpu_op"}
        for number, start in starts.items():
            assert start["tid"] != ends[number]["tid"]
            assert {(e["tid"], e["ts"]) for e in (start, ends[number])} <= begins


def test_memory_events_add_up(ranks: list[Path]) -> None:
    for trace in ranks:
        for kind in (0, 20):
            instants = [e["args"] for e in read(trace)["traceEvents"] if e["name"] == "[memory]"]
            mine = [args for args in instants if args["Device Type"] == kind]
            assert len(mine) > 10
            for before, after in pairwise(mine):
                assert after["Total Allocated"] == before["Total Allocated"] + after["Bytes"]
            assert all(args["Total Reserved"] >= args["Total Allocated"] for args in mine if kind)


def test_samples_cover_the_capture(samples: Path) -> None:
    profile = read(samples / "training" / "system_profile.json")
    cpus: dict[int, dict[str, float]] = defaultdict(dict)
    for row in profile["cpu_util"]:
        cpus[row["timestamp"]][row["cpu_id"]] = row["util"]
    assert len(cpus) > 5
    for at_once in cpus.values():
        assert at_once.pop("average") == pytest.approx(sum(at_once.values()) / 4, abs=1e-3)
    assert all(0 < row["percent_usage"] < 100 for row in profile["mem_usage"])
    curve = profile["device_mem_usage"]
    for row in curve:
        kinds = [v for k, v in row.items() if k.endswith("_bytes") and k != "total_bytes"]
        assert row["total_bytes"] == sum(kinds)
    for stack in (0, 1):
        assert len({row["tensors_bytes"] for row in curve if row["hbm_idx"] == stack}) > 5


# -- what this project makes of them --------------------------------------------------------


@pytest.mark.parametrize("capture", [*(f"rmsnorm/{name}" for name in RMSNORM), "training"])
def test_every_execution_is_measured_linked_and_in_a_step(capture: str, samples: Path) -> None:
    trace = neuron_tb.load(samples / capture)
    executions = trace.executions.take(trace.executions.counted)
    traces = traces_below(samples / capture)
    assert len(executions) == sum(len(executions_of(t)) for t in traces)
    assert (executions.source == 1).all()
    assert (executions.operator >= 0).all()
    assert (executions.step >= 0).all()
    launches = {trace.string(int(trace.slices.name[row])) for row in executions.launch}
    assert launches == {"nrta_execute_schedule"}
    assert not trace.findings
    assert all("not a measurement" in metadata["synthetic"] for metadata in trace.metadata)


# -- engines --------------------------------------------------------------------------------


def test_the_engines_sample_is_placed_by_the_device_clock_and_memory_bound(samples: Path) -> None:
    trace = neuron_tb.load(samples / "engines")
    (file,) = traces_below(samples / "engines")
    assert len(neuron_tb.load(file).slices) == len(trace.slices)  # what lies beside it is read too
    (profile,) = (p for m in trace.metadata for p in m.get("device_profiles", ()))
    assert (profile["placed"], profile["bound_ns"]) == ("device_clock", 0)
    (roof,) = neuron_tb.roofline(trace).profiles
    assert roof.verdict == "memory-bound"
    assert roof.value("peak_flops") == engines.PEAK
    assert not neuron_tb.roofline(trace).findings
