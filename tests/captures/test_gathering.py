"""Files that lie apart and belong together."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from neuron_tb.commands import main
from neuron_tb.converters.captures.find import find
from neuron_tb.converters.load import load
from neuron_tb.converters.model import Trace
from tests.makers import BASE_NS, execution, operator, system_row, write_json, write_kineto

SESSION = "1759300074000000000"
OTHER_HOST = "i-0other"


def neuron_directory(
    root: Path, pid: int, session: str = SESSION, host: str = "i-0test", us: float = 0
) -> Path:
    """A process' directory with a system profile: one call and one execution."""
    directory = root / f"{host}_pid_{pid}" / session
    whose = {"process_id": str(pid), "instance_id": host}
    rows = [
        {**system_row("nrt_execute", us + 1, 5, thread_id=pid), **whose},
        {**execution(us + 20, 5 + pid % 10, 1), **whose},
    ]
    write_json(directory / "system_profile.json", {"trace_events": rows})
    return directory


def trace_of(path: Path, pid: int, us: float = 0, tid: int | None = None) -> Path:
    event = operator(f"op of {pid}", us, 9, pid=pid, tid=pid if tid is None else tid)
    return write_kineto(path, [event])


def joined(trace: Trace) -> dict[str, int]:
    """The length of the execution that each operator launched."""
    work = trace.executions
    return {
        trace.strings[trace.slices.name[operator]]: int(length)
        for operator, length in zip(work.operator, work.duration_ns, strict=True)
        if operator >= 0
    }


EXPECTED = {"op of 501": 6_000, "op of 502": 7_000}


def test_swapped_traces_are_joined_by_process_id(tmp_path: Path) -> None:
    first, second = (neuron_directory(tmp_path, pid) for pid in (501, 502))
    trace_of(first / "trace.json", 502)
    trace_of(second / "trace.json", 501)
    trace = load(tmp_path)
    assert joined(trace) == EXPECTED
    assert len(trace.processes) == 2
    assert trace.findings.of_kind("trace_elsewhere") == 2


@pytest.mark.parametrize("name", ["neuron_framework_trace_rank_{}.json", "{}.pt.trace.json.gz"])
def test_traces_beside_the_process_directories_are_joined(tmp_path: Path, name: str) -> None:
    for pid in (501, 502):
        neuron_directory(tmp_path, pid)
        trace_of(tmp_path / name.format(pid - 501), pid)
    trace = load(tmp_path)
    assert joined(trace) == EXPECTED
    assert [p.host for p in trace.processes] == ["i-0test"] * 2
    if "rank" in name:
        assert {p.pid: p.rank for p in trace.processes} == {501: 0, 502: 1}
    (finding,) = (f for f in trace.findings if f.kind == "trace_elsewhere")
    assert finding.count == 2
    assert "of process 501 in" in str(finding)


def test_a_trace_in_its_own_directory_stays_whatever_ids_it_mentions(tmp_path: Path) -> None:
    for pid in (501, 502):
        directory = neuron_directory(tmp_path, pid)
        events = [operator(f"op of {pid}", 0, 9, pid=pid, tid=pid)]
        events += [operator("other", 100, 1, pid=503 - (pid - 500), tid=1)] if pid == 501 else []
        write_kineto(directory / "trace.json", events)
    trace = load(tmp_path)
    assert trace.findings.of_kind("trace_elsewhere") == 0
    assert joined(trace) == EXPECTED


def test_a_process_id_on_two_instances_is_not_guessed(tmp_path: Path) -> None:
    for host in ("i-0test", OTHER_HOST):
        neuron_directory(tmp_path, 501, host=host)
    trace_of(tmp_path / "flat.pt.trace.json", 501)
    trace = load(tmp_path)
    assert trace.findings.of_kind("trace_elsewhere") == 0
    assert trace.findings.of_kind("process_ambiguous") >= 1
    assert joined(trace) == {}


def test_the_last_process_left_on_each_side_is_the_same(tmp_path: Path) -> None:
    """In a container the trace has another process id than the directory."""
    first, _ = (neuron_directory(tmp_path, pid) for pid in (501, 502))
    trace_of(first / "trace.json", 501)
    trace_of(tmp_path / "flat.pt.trace.json", 9999, tid=502)
    trace = load(tmp_path)
    assert joined(trace) == {"op of 501": 6_000, "op of 9999": 7_000}
    assert trace.findings.of_kind("process_matched_by_place") == 1


def test_the_last_ones_left_are_not_joined_when_their_times_are_apart(tmp_path: Path) -> None:
    first = neuron_directory(tmp_path, 501)
    neuron_directory(tmp_path, 502, us=10_000_000)
    trace_of(first / "trace.json", 501)
    trace_of(tmp_path / "flat.pt.trace.json", 9999, tid=502)
    trace = load(tmp_path)
    assert joined(trace) == {"op of 501": 6_000}
    assert trace.findings.of_kind("process_matched_by_place") == 0


def test_of_two_windows_the_one_at_the_profiles_time_is_joined(tmp_path: Path) -> None:
    neuron_directory(tmp_path, 501, us=5_000_000)
    for number in range(2):
        trace_of(tmp_path / f"w.{number}.pt.trace.json", 501, us=5_000_000 * number)
    trace = load(tmp_path)
    (launched,) = trace.executions.operator
    assert trace.slices.start_ns[launched] == BASE_NS + 5_000_000_000
    assert trace.findings.of_kind("process_matched_by_time") == 1


def test_a_trace_of_another_day_is_said_to_be(tmp_path: Path) -> None:
    directory = neuron_directory(tmp_path, 501)
    trace_of(directory / "trace.json", 501, us=90_000e6)
    trace = load(tmp_path)
    message = next(f.message for f in trace.findings if f.kind == "process_times_apart")
    assert "lie 90,000 s apart" in message


# -- manifests of the drop-in profiler --------------------------------------------------------


def manifest(trace: Path, sessions: list[str], **more: Any) -> None:
    name = trace.name.removesuffix(".gz").removesuffix(".json") + ".neuron.json"
    document = {
        "manifest": "neuron_tb profile",
        "version": 1,
        "file": trace.name,
        "neuron_sessions": sessions,
        "rank": 3,
        "steps": [4, 6],
        **more,
    }
    trace.with_name(name).write_text(json.dumps(document))


def windows(root: Path) -> None:
    """Two windows of one process: traces, manifests, and a Neuron directory for each."""
    for number in range(2):
        session = neuron_directory(
            root / "neuron_profile", 501, session=f"{number + 1}", us=5_000_000 * number
        )
        trace = trace_of(root / f"w.{number}.pt.trace.json.gz", 501, us=5_000_000 * number)
        trace_of(session / "trace.json", 501, us=5_000_000 * number)
        manifest(trace, [str(session)], steps=[4 * number, 4 * number + 3])


def test_every_window_is_joined_with_the_directory_that_its_manifest_names(tmp_path: Path) -> None:
    windows(tmp_path)
    trace = load(tmp_path)
    assert len(trace.executions) == 2
    for row in range(2):
        operator = trace.executions.operator[row]
        assert operator >= 0
        assert 0 < trace.executions.start_ns[row] - trace.slices.start_ns[operator] < 100_000
    assert {p.rank for p in trace.processes} == {3}
    assert trace.findings.of_kind("older_session") == 0
    assert trace.findings.of_kind("trace_repeated") == 2


def test_a_trace_file_alone_brings_its_neuron_directory(tmp_path: Path) -> None:
    windows(tmp_path)
    trace = load(tmp_path / "w.1.pt.trace.json.gz")
    assert len(trace.executions) == 1
    assert trace.executions.operator[0] >= 0
    capture = find([tmp_path / "w.1.pt.trace.json.gz"]).captures[0]
    assert (capture.host, capture.pid, capture.session) == ("i-0test", 501, "2")


def test_info_tells_the_windows(tmp_path: Path) -> None:
    windows(tmp_path)
    result = CliRunner().invoke(main, ["info", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "window: w.1.pt.trace.json.gz, rank 3, steps 4 to 7" in result.stdout
    printed = json.loads(
        CliRunner().invoke(main, ["info", str(tmp_path), "--format", "json"]).stdout
    )
    assert [w["steps"] for c in printed["captures"] for w in c["windows"]] == [[0, 3], [4, 7]]


def test_the_directory_is_found_after_a_move(tmp_path: Path) -> None:
    windows(tmp_path / "there")
    (tmp_path / "there").rename(tmp_path / "here")
    assert len(load(tmp_path / "here" / "w.0.pt.trace.json.gz").executions) == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"manifest": 5}', '{"manifest": "another"}', "\xff\xfe"]
)
def test_a_file_that_is_no_manifest_is_ignored(tmp_path: Path, text: str) -> None:
    path = trace_of(tmp_path / "a.pt.trace.json", 501)
    (tmp_path / "a.pt.trace.neuron.json").write_text(text, encoding="latin-1")
    assert len(load(tmp_path).slices) == len(load(path).slices) == 1


def test_a_newer_manifest_is_read_and_named(tmp_path: Path) -> None:
    path = trace_of(tmp_path / "a.pt.trace.json", 501)
    manifest(path, ["/nowhere", 7, "a\0b"], version=2, steps="none")  # type: ignore[list-item]
    trace = load(tmp_path)
    assert trace.findings.of_kind("newer_version") == 1
    assert trace.processes[0].rank == 3


# -- JAX ------------------------------------------------------------------------------------------


def jax_run(root: Path, run: str, host: str = "ip-10-0-0-1") -> Path:
    events = [
        {"ph": "M", "pid": 701, "name": "process_name", "args": {"name": "/host:CPU"}},
        {"ph": "M", "pid": 701, "tid": 4, "name": "thread_name", "args": {"name": "python"}},
        {"ph": "X", "pid": 701, "tid": 4, "ts": 16.25, "dur": 900.5, "name": f"step of {run}"},
        {},
    ]
    document = {"displayTimeUnit": "ns", "metadata": {}, "traceEvents": events}
    directory = root / "plugins" / "profile" / run
    directory.mkdir(parents=True, exist_ok=True)
    for name in (f"{host}.trace.json.gz", "perfetto_trace.json.gz"):
        (directory / name).write_bytes(gzip.compress(json.dumps(document).encode()))
    return directory


def test_the_newest_run_of_jax_is_read_once_and_named_by_its_host(tmp_path: Path) -> None:
    jax_run(tmp_path, "2025_10_01_06_27_54")
    jax_run(tmp_path, "2025_10_01_07_00_00")
    jax_run(tmp_path, "2025_10_01_07_00_00", host="ip-10-0-0-2")
    trace = load(tmp_path)
    names = [trace.strings[n] for n in trace.slices.name]
    assert names == ["step of 2025_10_01_07_00_00"] * 2
    assert [p.host for p in trace.processes] == ["ip-10-0-0-1", "ip-10-0-0-2"]
    assert trace.findings.of_kind("older_session") == 1


def test_a_jax_trace_and_a_neuron_directory_are_one_process(tmp_path: Path) -> None:
    jax_run(tmp_path, "2025_10_01_06_27_54")
    neuron_directory(tmp_path, 501)
    trace = load(tmp_path)
    assert len(trace.processes) == 1
    assert trace.findings.of_kind("process_matched_by_place") == 1
    assert trace.findings.of_kind("clocks_unrelated") == 1


# -- compiled programs ---------------------------------------------------------------------------


def test_programs_that_executions_name_and_nobody_kept_are_listed(tmp_path: Path) -> None:
    directory = tmp_path / "i-0test_pid_501" / SESSION
    rows = [
        execution(20 * n, 5, n, model_name=f"/cache/neff_{n}.neff", process_id="501")
        for n in range(3)
    ]
    write_json(directory / "system_profile.json", {"trace_events": rows})
    assert load(tmp_path).findings.of_kind("neff_absent") == 0
    (directory / "neff_1.neff").write_bytes(b"x")
    trace = load(tmp_path)
    (finding,) = (f for f in trace.findings if f.kind == "neff_absent")
    assert finding.count == 2
    assert "neff_0.neff, neff_2.neff" in finding.message
    assert len(trace.executions) == 3
