"""Finding captures in files and directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neuron_tb.converters.captures.find import default_name, find
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.load import load
from neuron_tb.converters.model import Role
from tests.makers import HOST, execution, operator, system_row, write_json, write_kineto

SESSION = "1759300074000000000"


def aws_layout(root: Path, pid: int = 501, host: str = HOST, session: str = SESSION) -> Path:
    directory = root / f"{host}_pid_{pid}" / session
    write_kineto(directory / "trace.json", [operator("a", 0, 9, pid=pid, tid=pid)])
    return directory


def profile(path: Path, *pids: int, host: str = HOST) -> Path:
    rows = [
        row
        for pid in pids
        for row in (
            {
                **system_row("nrt_execute", 1, 5, thread_id=pid, process_id=str(pid)),
                "instance_id": host,
            },
            {**execution(20, 5 + pid % 10, 1), "process_id": str(pid), "instance_id": host},
        )
    ]
    return write_json(path, {"trace_events": rows})


def test_host_and_process_come_from_the_directory_name(tmp_path: Path) -> None:
    directory = aws_layout(tmp_path / "out", host="i_pid_weird")
    found = find([tmp_path / "out"])
    assert [(c.host, c.pid, c.session) for c in found.captures] == [("i_pid_weird", 501, SESSION)]
    assert found.captures[0].directory == directory
    process = load(directory).processes[0]
    assert (process.host, process.pid) == ("i_pid_weird", 501)


@pytest.mark.parametrize("place", ["session", "process", "root"])
def test_a_system_profile_is_found_in_the_capture_and_above_it(tmp_path: Path, place: str) -> None:
    directory = aws_layout(tmp_path / "out")
    where = {"session": directory, "process": directory.parent, "root": tmp_path / "out"}[place]
    profile(where / "system_profile.json", 501)
    for source in (tmp_path / "out", directory.parent, directory, directory / "trace.json"):
        trace = load(source)
        assert len(trace.processes) == 1, source
        assert len(trace.executions) == 1, source
        assert trace.executions.operator[0] >= 0, source


def test_rows_of_processes_that_were_not_asked_for_are_left_out(tmp_path: Path) -> None:
    first = aws_layout(tmp_path / "out", pid=501)
    aws_layout(tmp_path / "out", pid=502)
    profile(tmp_path / "out" / "system_profile.json", 501, 502)
    one = load(first)
    assert [p.pid for p in one.processes] == [501]
    assert one.findings.of_kind("other_processes") == 2
    both = load(tmp_path / "out")
    assert [p.pid for p in both.processes] == [501, 502]
    assert [p.rank for p in both.processes] == [0, 1]
    assert both.executions.duration_ns.tolist() == [6000, 7000]


def test_an_instances_samples_stay_with_a_process_that_stays(tmp_path: Path) -> None:
    aws_layout(tmp_path / "out", pid=501)
    second = aws_layout(tmp_path / "out", pid=502)
    path = profile(tmp_path / "out" / "system_profile.json", 501, 502)
    document = json.loads(path.read_text())
    sample = {"instance_id": HOST, "timestamp": 1759300074000005000, "usage": 7}
    write_json(path, {**document, "mem_usage": [sample]})
    trace = load(second)
    assert [p.pid for p in trace.processes] == [502]
    assert trace.counters.value.tolist() == [7.0]


def test_equal_process_ids_on_two_hosts_are_two_processes(tmp_path: Path) -> None:
    for host in ("i-0a", "i-0b"):
        directory = aws_layout(tmp_path / "out", host=host)
        profile(directory / "system_profile.json", 501, host=host)
    trace = load(tmp_path / "out")
    assert [(p.host, p.pid) for p in trace.processes] == [("i-0a", 501), ("i-0b", 501)]
    assert len(trace.executions) == 2
    assert len({trace.devices[d].process for d in trace.executions.device}) == 2


def test_the_newest_session_of_a_process_is_read_and_the_others_are_named(tmp_path: Path) -> None:
    aws_layout(tmp_path / "out", session="999")
    newest = aws_layout(tmp_path / "out", session="1000")
    trace = load(tmp_path / "out")
    assert [Path(s).parent for s in trace.sources] == [newest]
    assert trace.findings.of_kind("older_session") == 1
    assert load(tmp_path / "out" / f"{HOST}_pid_501" / "999").findings.of_kind("older_session") == 0


def test_the_older_layout_without_session_directories_is_read(tmp_path: Path) -> None:
    directory = tmp_path / "out" / f"{HOST}_pid_501"
    write_kineto(directory / "trace.json", [operator("a", 0, 9)])
    (directory / "neff_1.neff").write_bytes(b"x")
    found = find([tmp_path / "out"])
    assert [p.name for p in found.captures[0].listed] == ["neff_1.neff"]
    assert load(tmp_path / "out").processes[0].host == HOST


def test_rank_comes_from_the_file_name(tmp_path: Path) -> None:
    path = tmp_path / "neuron_framework_trace_rank_3.json"
    write_kineto(path, [operator("a", 0, 9)])
    assert load(path).processes[0].rank == 3


def test_rank_in_the_file_wins_over_its_name(tmp_path: Path) -> None:
    path = write_kineto(
        tmp_path / "rank7.pt.trace.json", [operator("a", 0, 9)], distributedInfo={"rank": 2}
    )
    assert load(path).processes[0].rank == 2


def test_a_trace_file_elsewhere_stands_alone(cases: Path) -> None:
    trace = load(cases / "neuron" / "torchneuron_cpu_only.json")
    assert len(trace.executions) == 0
    assert trace.sources == [str(cases / "neuron" / "torchneuron_cpu_only.json")]


def test_framework_rows_that_explorer_repeats_stand_once(tmp_path: Path) -> None:
    directory = aws_layout(tmp_path)
    rows = [
        system_row("a [trace.json]", 0, 9, trace_event_source="framework"),
        execution(20, 5, 1),
    ]
    write_json(directory / "system_profile.json", {"trace_event": rows})
    trace = load(directory)
    assert trace.roles(Role.OPERATOR).sum() == 1
    assert trace.findings.of_kind("framework_rows_repeated") == 1


def test_raw_files_without_a_profile_name_the_command_that_makes_it(tmp_path: Path) -> None:
    directory = aws_layout(tmp_path)
    (directory / "ntrace.pb").write_bytes(b"\x08\x01")
    finding = next(f for f in load(directory).findings if f.kind == "capture_incomplete")
    assert "neuron-explorer view" in finding.message


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "holds no capture"),
        ({"a.txt": b"x"}, "holds no capture"),
        ({"profile.ntff": b"x"}, "only Neuron Explorer reads: run `neuron-explorer view -n <its"),
        ({"1234567_vnc_0.ntff": b"x", "neff_1234567.neff": b"x"}, "view -n .*/neff_1234567.neff"),
        ({"snapshot.pickle": b"x"}, "never opened"),
        ({f"{HOST}_pid_5/{SESSION}/ntrace.pb": b"x"}, "ntrace.pb cannot be decoded"),
    ],
)
def test_a_directory_without_a_capture_says_what_it_lacks(
    tmp_path: Path, files: dict[str, bytes], words: str
) -> None:
    for name, content in files.items():
        path = tmp_path / "d" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "d").mkdir(exist_ok=True)
    with pytest.raises(NeuronTbError, match=words):
        load(tmp_path / "d")


def test_a_trace_that_never_reached_an_active_step_says_so(cases: Path) -> None:
    with pytest.raises(NeuronTbError, match="schedule probably never reached an active step"):
        load(cases / "odd" / "never_stepped.pt.trace.json")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "a.ntff",
            "run `neuron-explorer view -n .*/only.neff -s .*/a.ntff --output-format parquet",
        ),
        ("only.neff", "compiled program"),
        ("memory.pkl", "pickles are never opened"),
    ],
)
def test_files_that_are_never_opened_say_what_to_do(tmp_path: Path, name: str, words: str) -> None:
    for each in ("a.ntff", "only.neff", "memory.pkl"):
        (tmp_path / each).write_bytes(b"x")
    with pytest.raises(NeuronTbError, match=words):
        load(tmp_path / name)


def test_a_trace_beside_device_profiles_says_how_to_read_them(tmp_path: Path) -> None:
    directory = aws_layout(tmp_path)
    for name in ("profile_nc_0_session_1.ntff", "profile_nc_1_session_1.ntff", "memory.pickle"):
        (directory / name).write_bytes(b"x")
    capture = find([tmp_path]).captures[0]
    assert [p.name for p in capture.listed] == [
        "memory.pickle",
        "profile_nc_0_session_1.ntff",
        "profile_nc_1_session_1.ntff",
    ]
    assert "no device profile of profile_nc_0_session_1.ntff and 1 more" in capture.lacks()[-1]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("naive", "naive"),
        (f"naive/{HOST}_pid_5/{SESSION}", f"{HOST}_pid_5"),
        (f"naive/{HOST}_pid_5/{SESSION}/trace.json", f"{HOST}_pid_5"),
        ("run/worker_1.1759300074000.pt.trace.json.gz", "worker_1"),
        ("run/my.json", "my"),
    ],
)
def test_a_run_is_named_after_its_capture(tmp_path: Path, path: str, name: str) -> None:
    target = tmp_path / path
    if target.suffix:
        target.parent.mkdir(parents=True)
        target.touch()
    else:
        target.mkdir(parents=True)
    assert default_name(target) == name


def test_a_newer_session_without_a_trace_does_not_win(tmp_path: Path) -> None:
    full = aws_layout(tmp_path / "out", session="999")
    empty = tmp_path / "out" / f"{HOST}_pid_501" / "1000"
    empty.mkdir()
    (empty / "ntrace.pb").write_bytes(b"x")
    assert [Path(s).parent for s in load(tmp_path / "out").sources] == [full]


def test_other_processes_of_one_file_are_no_ranks(tmp_path: Path) -> None:
    events = [operator("a", 0, 9), operator("b", 0, 9, pid=7, tid=7)]
    trace = load(write_kineto(tmp_path / "t.json", events))
    assert [p.rank for p in trace.processes] == [None, None]
    assert trace.findings.of_kind("rank_by_order") == 0


def test_sessions_that_the_user_names_are_read(tmp_path: Path) -> None:
    older = aws_layout(tmp_path / "out", session="999")
    newer = aws_layout(tmp_path / "out", session="1000")
    trace = load(older, newer)
    assert len(trace.sources) == 2
    assert trace.findings.of_kind("older_session") == 0


def test_a_source_named_twice_is_read_once(tmp_path: Path) -> None:
    directory = aws_layout(tmp_path / "out")
    profile(directory / "system_profile.json", 501)
    for sources in (
        (directory, directory),
        (directory / "trace.json", directory),
        (tmp_path / "out", directory),
    ):
        trace = load(*sources)
        assert trace.roles(Role.OPERATOR).sum() == 1, sources
        assert len(trace.executions) == 1, sources


def test_rows_without_a_readable_time_are_no_capture(tmp_path: Path) -> None:
    rows = [{"name": "nc_exec_running", "timestamp": "abc"}]
    path = write_json(tmp_path / "system_profile.json", {"trace_event": rows})
    with pytest.raises(NeuronTbError, match="no row that could be read"):
        load(path)
