"""What users of such tools have met, by the numbers of docs/user_reports.md."""

from __future__ import annotations

import ast
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from neuron_tb.analysis.summary import summarize
from neuron_tb.commands import main
from neuron_tb.converters.convert import TARGETS, convert
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.load import load
from neuron_tb.converters.model import ClockKind, Role, Trace
from tests.makers import (
    BASE_NS,
    HOST,
    PID,
    complete,
    kernel,
    launch,
    operator,
    step,
    window,
    write_json,
    write_kineto,
)

_HERE = Path(__file__).parent
_REPORTS = _HERE.parent / "docs" / "user_reports.md"


def names(trace: Trace) -> list[str]:
    return sorted(trace.strings[n] for n in trace.slices.name)


def written_json(out: Path) -> list[dict[str, Any]]:
    """Every JSON file of a conversion, decoded strictly."""

    def refuse(text: str) -> None:
        raise AssertionError(text)

    return [
        json.loads(gzip.decompress(path.read_bytes()), parse_constant=refuse)
        for path in sorted(out.rglob("*.json.gz"))
    ]


def system_profile(path: Path, rows: list[dict[str, Any]], **more: Any) -> Path:
    common = {"instance_id": HOST, "process_id": str(PID), "thread_id": PID}
    return write_json(path, {"trace_events": [{**common, **row} for row in rows], **more})


def run(name: str, at_us: float, length_us: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "timestamp": BASE_NS + int(at_us * 1000),
        "duration": int(length_us * 1000),
        "nc_idx": 0,
        **more,
    }


def command(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(word) for word in words])
    return result.exit_code, result.output


# -- the map ----------------------------------------------------------------------------------


def _tests(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _rows() -> list[list[str]]:
    lines = _REPORTS.read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0].isdecimal()]


def test_every_report_has_a_test_or_a_reason() -> None:
    rows = _rows()
    assert [int(row[0]) for row in rows] == list(range(1, 68))
    for number, _, _, proof in rows:
        tests = re.findall(r"`([\w/]+\.py)::(\w+)`", proof)
        assert tests or len(proof) > 20, number
        for file, test in tests:
            assert test in _tests(_HERE / file), (number, file, test)


def test_every_test_here_is_in_its_row() -> None:
    proofs = {int(row[0]): row[3] for row in _rows()}
    for test in _tests(Path(__file__)):
        number = re.match(r"test_(\d\d)_", test)
        if number:
            assert f"::{test}`" in proofs[int(number[1])], test


# -- Neuron -----------------------------------------------------------------------------------


def test_01_host_windows_give_device_times_that_say_what_they_are(tmp_path: Path) -> None:
    events = [operator("aten::mm", 0, 20, 1), window("mm", 5, 70, 1)]
    summary = summarize(load(write_kineto(tmp_path / "t.json", events)))
    (row,) = [r for r in summary.rows if r.name == "aten::mm"]
    assert row.device_total_us == 70
    assert row.device_source == "window"


def test_02_a_trace_of_the_host_alone_has_no_device_time_of_zero(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "t.json", [operator("aten::mm", 0, 20, 1)])
    (row,) = summarize(load(path)).rows
    assert row.device_total_us is None
    code, output = command("summary", path)
    assert code == 0
    assert "system_profile.json" in output
    assert "0.0%" not in output


@pytest.mark.parametrize("content", [[], ["ntrace.pb"], ["cpu_util.pb", "x.neff"]])
def test_03_a_capture_that_lacks_everything_says_what_would_bring_it(
    tmp_path: Path, content: list[str]
) -> None:
    folder = tmp_path / f"{HOST}_pid_{PID}" / "1"
    folder.mkdir(parents=True)
    for name in content:
        (folder / name).write_bytes(b"x")
    code, output = command("info", tmp_path)
    assert code == 1
    assert "trace.json" in output
    assert "Traceback" not in output


def test_05_work_before_its_call_is_reported_and_not_moved(tmp_path: Path) -> None:
    events = [operator("a", 100, 50, 1), launch(110, 5, 1), kernel("k", 20, 10, 1)]
    trace = load(write_kineto(tmp_path / "t.json", events))
    assert trace.findings.of_kind("execution_before_launch") == 1
    (row,) = np.flatnonzero(trace.roles(Role.KERNEL)).tolist()
    assert trace.slices.start_ns[row] == BASE_NS + 20_000


def test_07_dropped_events_reach_every_output_and_the_exit_status(tmp_path: Path) -> None:
    write_kineto(tmp_path / "trace.json", [operator("a", 0, 50, 1), step(1, 0, 100)])
    system_profile(
        tmp_path / "system_profile.json",
        [run("nc_exec_running", 10, 20)],
        warnings=["1200 of 5000 events were dropped: the ring buffer is full"],
    )
    out = tmp_path / "out"
    code, output = command("convert", tmp_path, "-o", out, "--strict")
    assert code == 3
    assert "lower bound" in output
    for document in written_json(out):
        assert "events_dropped" in json.dumps(document["neuron_tb"])
    for path in [*out.rglob("*.pftrace*"), *out.rglob("*.xplane.pb")]:
        data = path.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        assert b"lower bound" in data, path


def test_08_files_in_the_wrong_directory_are_matched_by_process(tmp_path: Path) -> None:
    rows = []
    for pid in (501, 502):
        write_kineto(
            tmp_path / f"neuron_framework_trace_rank_{pid - 501}.json",
            [operator(f"op of {pid}", 0, 50, 1, pid=pid, tid=pid)],
        )
        rows.append(run(f"nrt_execute of {pid}", 10, 20, process_id=str(pid), thread_id=pid))
    system_profile(tmp_path / "system_profile.json", rows)
    trace = load(tmp_path)
    by_process = {
        (trace.processes[p].pid, trace.strings[n])
        for p, n in zip(trace.slice_process.tolist(), trace.slices.name.tolist(), strict=True)
    }
    assert len(trace.processes) == 2
    assert by_process == {
        (pid, f"{what} of {pid}") for pid in (501, 502) for what in ("op", "nrt_execute")
    }


def test_10_work_whose_program_is_absent_is_kept_under_its_hash(tmp_path: Path) -> None:
    path = system_profile(
        tmp_path / "system_profile.json",
        [run("nc_exec_running", 10, 20, model_name="MODULE_7316816", neff_hash="9f3c")],
    )
    trace = load(path)
    assert trace.args(0)["model_name"] == "MODULE_7316816"
    assert trace.args(0)["neff_hash"] == "9f3c"
    assert len(trace.executions) == 1


def test_11_a_conversion_ends_with_a_status_that_means_something(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "t.json", [operator("a", 0, 5), step(1, 0, 10)])
    assert command("convert", path, "-o", tmp_path / "out")[0] == 0
    assert command("convert", path, "-o", tmp_path / "out")[0] == 1
    assert command("convert", path, "-o", tmp_path / "out", "--to", "nothing")[0] == 2
    broken = tmp_path / "broken.json"
    broken.write_text(path.read_text()[:-40])
    assert command("convert", broken, "-o", tmp_path / "out2", "--strict")[0] == 3


def test_13_an_event_at_time_0_does_not_stretch_the_time_line(tmp_path: Path) -> None:
    rows = [run("nrt_execute", 10, 20), {**run("nrt_execute", 0, 5), "timestamp": 0}]
    trace = load(system_profile(tmp_path / "system_profile.json", rows))
    first, last = trace.time_range()
    assert last - first == 20_000
    assert trace.findings.of_kind("time_out_of_range") == 1


def test_14_dispatch_and_device_time_stand_side_by_side(tmp_path: Path) -> None:
    events = [operator("matmul", 0, 100, 1), launch(10, 5, 1), kernel("k", 5000, 9000, 1)]
    summary = summarize(load(write_kineto(tmp_path / "t.json", events)))
    (row,) = [r for r in summary.rows if r.name == "matmul"]
    assert (row.cpu_total_us, row.device_total_us) == (100, 9000)


def test_20_every_argument_that_leads_to_the_source_is_kept(tmp_path: Path) -> None:
    args = {"Call stack": "train.py(12): step;model.py(3): forward", "file:line": "model.py:3"}
    event = operator("a", 0, 50)
    event["args"] = args
    path = write_kineto(tmp_path / "t.json", [event, step(1, 0, 100)])
    assert load(path).args(0) == args
    convert(path, out=tmp_path / "out")
    for document in written_json(tmp_path / "out"):
        (found,) = [e for e in document["traceEvents"] if e["name"] == "a"]
        assert args.items() <= found["args"].items()


# -- damaged and odd traces -------------------------------------------------------------------


def damaged(path: Path, name: str, **more: str) -> Path:
    """Two events around one that is written as given, without any escaping."""
    fields = {"name": f'"{name}"', "ts": "10", "dur": "5", "args": "{}", **more}
    texts = [
        json.dumps(operator("before", 0, 5)),
        '{"ph": "X", "cat": "cpu_op", "pid": 501, "tid": 501, '
        + ", ".join(f'"{key}": {value}' for key, value in fields.items())
        + "}",
        json.dumps(operator("after", 20, 5)),
    ]
    path.write_text(
        f'{{"baseTimeNanoseconds": {BASE_NS}, "traceEvents": [{", ".join(texts)}]}}',
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize(
    "name", ['{"device": "neuron"}(12): run', 'f("a", "b")', 'say "hi"', '"', 'a": 1, "b']
)
def test_21_bare_quotes_in_a_name_cost_no_event(tmp_path: Path, name: str) -> None:
    trace = load(damaged(tmp_path / "t.json", name))
    assert names(trace) == sorted(["before", name, "after"])
    (finding,) = [f for f in trace.findings if f.kind == "quote_repaired"]
    assert finding.count == name.count('"')
    assert "byte" in str(finding.where)


def test_22_single_backslashes_are_read_and_ambiguous_ones_named(tmp_path: Path) -> None:
    trace = load(damaged(tmp_path / "t.json", r"C:\Users\me\project\model.py(3): f"))
    assert r"C:\Users\me\project\model.py(3): f" in names(trace)
    (finding,) = [f for f in trace.findings if f.kind == "escape_repaired"]
    assert "valid escape" in finding.message


def test_23_raw_control_bytes_are_escaped_in_every_output(tmp_path: Path) -> None:
    path = damaged(tmp_path / "t.json", "a\x01b\x1fc")
    assert "a\x01b\x1fc" in names(load(path))
    convert(path, out=tmp_path / "out")
    assert len(written_json(tmp_path / "out")) >= 1


@pytest.mark.parametrize("value", ["NaN", "nan", "-Infinity", "inf", "1.#QNAN"])
def test_24_what_is_no_number_is_dropped_and_never_written(tmp_path: Path, value: str) -> None:
    path = damaged(tmp_path / "t.json", "x", args=f'{{"a": {value}, "b": 2}}')
    trace = load(path)
    assert names(trace) == ["after", "before", "x"]
    assert trace.findings.of_kind("not_a_number") == 1
    convert(path, out=tmp_path / "out")
    for document in written_json(tmp_path / "out"):
        (event,) = [e for e in document["traceEvents"] if e["name"] == "x"]
        assert event["args"]["b"] == 2
        assert event["args"].get("a") is None


def test_25_an_array_without_its_last_bracket_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("[" + json.dumps(operator("a", 0, 5)) + ",\n")
    assert names(load(path)) == ["a"]


@pytest.mark.parametrize("packed", [False, True])
def test_26_a_cut_file_gives_its_whole_events_and_the_loss(tmp_path: Path, packed: bool) -> None:
    text = write_kineto(
        tmp_path / "t.json", [operator(f"op {n}", n * 10, 5) for n in range(2000)]
    ).read_bytes()
    data = gzip.compress(text) if packed else text
    path = tmp_path / ("cut.json.gz" if packed else "cut.json")
    path.write_bytes(data[: len(data) * 2 // 3])
    trace = load(path)
    assert names(trace) == sorted(f"op {n}" for n in range(len(trace.slices)))
    assert len(trace.slices) > 1000
    assert trace.findings.of_kind("json_truncated") == 1
    assert trace.findings.of_kind("gzip_truncated") == packed
    assert command("info", path, "--strict")[0] == 3


def test_27_the_old_list_form_with_pids_in_words_is_read(tmp_path: Path) -> None:
    event = {**operator("a", 1, 5), "pid": "CPU functions", "tid": 0}
    trace = load(write_json(tmp_path / "t.json", [event]))
    assert trace.processes[0].name == "CPU functions"


@pytest.mark.parametrize("target", TARGETS)
def test_28_kernels_that_cross_are_all_drawn_with_their_lengths(
    tmp_path: Path, target: str
) -> None:
    events = [operator("a", 0, 50, 1), step(1, 0, 200)]
    for number, (at, length) in enumerate([(20, 30), (40, 30), (60, 50), (65, 5)]):
        events += [launch(1 + number, 1, number + 1), kernel(f"k{number}", at, length, number + 1)]
    path = write_kineto(tmp_path / "t.json", events)
    conversion = convert(path, out=tmp_path / "out", to=target)
    total = sum(file.slices for file in conversion.written)
    assert total >= len(load(path).slices)
    kinds = ("overlapping_slices", "device_overlap")
    assert sum(map(conversion.findings.of_kind, kinds)) > 0
    for document in written_json(tmp_path / "out"):
        found = [e["dur"] for e in document["traceEvents"] if e.get("name", "").startswith("k")]
        assert sorted(found) == [5, 30, 30, 50]


def test_29_a_step_that_crosses_an_operator_stands_apart(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "t.json", [operator("a", 50, 100), step(1, 0, 100)])
    conversion = convert(path, out=tmp_path / "out")
    assert conversion.findings.of_kind("overlapping_slices") >= 1
    for document in written_json(tmp_path / "out"):
        lengths = {e["name"]: e["dur"] for e in document["traceEvents"] if e["ph"] == "X"}
        assert (lengths["a"], lengths["ProfilerStep#1"]) == (100, 100)


@pytest.mark.parametrize(("late_us", "kind"), [(0.25, "end_rounded"), (0.5, "overlapping_slices")])
def test_30_only_what_the_file_cannot_resolve_is_rounding(
    tmp_path: Path, late_us: float, kind: str
) -> None:
    base = 1759300074123456.25
    events = [operator("outer", base, 10), operator("inner", base + 5, 5 + late_us)]
    path = write_kineto(tmp_path / "t.json", events, baseTimeNanoseconds=None)
    trace = load(path)
    assert trace.clock.resolution_ns == 250
    conversion = convert(path, out=tmp_path / "out", to="perfetto")
    assert conversion.findings.of_kind(kind) == 1
    assert (
        conversion.findings.of_kind("end_rounded")
        + conversion.findings.of_kind("overlapping_slices")
        == 1
    )


def test_31_times_in_text_are_exact_and_large_arrow_numbers_stay_apart(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    for number in range(3):
        at, identity = f"{1759300074123456 + 20 * number}.789", str(2**53 + number)
        place = {"pid": 0, "tid": 7}
        events.append(operator(f"op {number}", at, "5.001"))
        events.append(complete("kernel", f"k {number}", at, "1", **place))
        common = {"cat": "ac2g", "name": "ac2g", "id": identity, "ts": at}
        events.append({**common, "ph": "s", "pid": PID, "tid": PID})
        events.append({**common, "ph": "f", "bp": "e", **place})
    trace = load(write_kineto(tmp_path / "t.json", events, baseTimeNanoseconds=None))
    assert int(trace.slices.start_ns.min()) == 1759300074123456789
    assert 5001 in trace.slices.duration_ns.tolist()
    name = [trace.strings[n] for n in trace.slices.name]
    arrows = zip(trace.flows.source.tolist(), trace.flows.target.tolist(), strict=True)
    assert sorted((name[s], name[t]) for s, t in arrows) == [
        (f"op {n}", f"k {n}") for n in range(3)
    ]


def test_32_empty_and_absent_events_are_skipped_and_counted(tmp_path: Path) -> None:
    events = [operator("a", 0, 5), {}, None, "x", {"ph": "X", "ts": 7}]
    trace = load(write_kineto(tmp_path / "t.json", events))
    assert names(trace) == ["a"]
    assert trace.findings.of_kind("not_an_event") == 2
    assert trace.findings.of_kind("phase_not_shown") == 1
    assert trace.findings.of_kind("no_duration") == 1


def test_33_events_that_never_finished_have_no_negative_length(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "t.json", [operator("a", 0, 5), operator("open", 2, -1)])
    trace = load(path)
    assert trace.findings.of_kind("unfinished") == 1
    assert [trace.strings[n] for n in trace.instants.name] == ["open"]
    convert(path, out=tmp_path / "out")
    for document in written_json(tmp_path / "out"):
        assert all(e.get("dur", 0) >= 0 for e in document["traceEvents"])


def test_34_busy_time_is_a_union_where_a_length_is_absurd(tmp_path: Path) -> None:
    events = [operator("a", 0, 50, 1), operator("b", 60, 50, 2)]
    events += [launch(1, 1, 1), kernel("long", 10, 500, 1)]
    events += [launch(61, 1, 2), kernel("inside", 100, 50, 2)]
    path = write_kineto(tmp_path / "t.json", events)
    summary = summarize(load(path))
    assert summary.device_total_us == 550
    (finding,) = [f for f in summary.findings if f.kind == "device_work_overlaps"]
    assert "50.000 us more" in finding.message
    assert finding.where == "long on stream 7"
    conversion = convert(path, out=tmp_path / "out", to="xprof")
    assert conversion.findings.of_kind("device_overlap") == 1


def test_38_equal_numbers_in_two_ranks_do_not_join(tmp_path: Path) -> None:
    for rank in range(2):
        events = [
            operator(f"op of {rank}", 0, 50, 1),
            launch(10, 5, 9),
            kernel(f"k of {rank}", 20, 10, 9),
            {"ph": "s", "id": 9, "cat": "ac2g", "name": "x", "pid": PID, "tid": PID, "ts": 11},
            {"ph": "f", "id": 9, "cat": "ac2g", "name": "x", "pid": 0, "tid": 7, "ts": 20},
        ]
        write_kineto(tmp_path / f"rank{rank}.pt.trace.json", events, distributedInfo={"rank": rank})
    trace = load(tmp_path)
    process = trace.slice_process
    assert len(trace.processes) == 2
    assert len(trace.flows) == 2
    assert np.array_equal(process[trace.flows.source], process[trace.flows.target])
    work = trace.executions
    assert np.array_equal(process[work.launch], process[work.slice])


def test_40_files_of_several_writers_are_recognised(tmp_path: Path) -> None:
    one = write_kineto(tmp_path / "a.json", [operator(f"a{n}", n * 10, 5) for n in range(50)])
    other = write_kineto(tmp_path / "b.json", [operator(f"b{n}", n * 10, 5) for n in range(50)])
    first, second = one.read_bytes(), other.read_bytes()
    path = tmp_path / "both.json"
    path.write_bytes(first[:3000] + second[:4000] + first[3000:] + second[4000:])
    trace = load(path)
    assert trace.findings.of_kind("several_writers") >= 1
    assert len(trace.slices) > 90


def test_41_two_windows_of_a_worker_are_one_worker_with_two_spans(tmp_path: Path) -> None:
    for number, when in enumerate((1627881469108, 1627881481108)):
        write_kineto(
            tmp_path / "in" / f"worker0.{when}.pt.trace.json",
            [operator("a", number * 1000, 50), step(number, number * 1000, 100)],
        )
    out = tmp_path / "out"
    for path in sorted((tmp_path / "in").iterdir()):
        convert(path, out=out, to="torch-tb", run=path.name.split(".")[1])
    workers = {p.name.split(".")[0] for p in out.rglob("*.pt.trace.json.gz")}
    assert len(workers) == 1
    spans = {p.name.split(".")[1] for p in out.rglob("*.pt.trace.json.gz")}
    assert len(spans) == 2


@pytest.mark.parametrize("events", [[], [{"ph": "M", "name": "process_name", "pid": 1}]])
def test_45_a_trace_without_a_slice_names_the_likely_cause(
    tmp_path: Path, events: list[Any]
) -> None:
    with pytest.raises(NeuronTbError, match=r"schedule .* or profiler.step\(\) was not called"):
        load(write_kineto(tmp_path / "t.json", events))


def test_46_a_rank_is_written_where_the_source_has_none(tmp_path: Path) -> None:
    events = [operator("a", 0, 5), step(1, 0, 9)]
    path = write_kineto(tmp_path / "neuron_framework_trace_rank_3.json", events)
    convert(path, out=tmp_path / "out", to="kineto")
    (document,) = written_json(tmp_path / "out")
    assert document["distributedInfo"]["rank"] == 3


def test_51_annotations_become_steps_or_their_absence_is_said(tmp_path: Path) -> None:
    events = [operator("a", 0, 5), *(complete("user_annotation", "iter", n, 5) for n in (0, 10))]
    path = write_kineto(tmp_path / "t.json", events)
    trace = load(path)
    assert trace.findings.of_kind("no_steps") == 1
    (finding,) = [f for f in trace.findings if f.kind == "no_steps"]
    assert "profiler.step()" in finding.message
    assert "--steps-from" in finding.message
    assert len(load(path, steps_from="iter").steps) == 2


def test_52_the_folder_to_open_is_printed_and_holds_what_xprof_looks_for(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "t.json", [operator("a", 0, 5), step(1, 0, 9)])
    out = tmp_path / "out"
    code, output = command("convert", path, "-o", out, "--run", "r", "--to", "xprof")
    assert code == 0
    assert f"neuron-tb view {out}" in output
    assert list(out.glob("plugins/profile/r/*.xplane.pb"))


def test_53_hosts_of_a_job_are_one_session_with_names_of_their_own(tmp_path: Path) -> None:
    for number, host in enumerate(("hostA", "hostB")):
        write_kineto(
            tmp_path / "in" / f"{host}_pid_{PID}" / f"{1000 + 2 * number}" / "trace.json",
            [operator("a", number * 2_000_000, 5), step(1, number * 2_000_000, 9)],
        )
    convert(tmp_path / "in", out=tmp_path / "out", run="r", to="xprof")
    session = tmp_path / "out" / "plugins" / "profile" / "r"
    assert sorted(p.name for p in session.iterdir()) == ["hostA.xplane.pb", "hostB.xplane.pb"]


def test_relative_and_absolute_clocks_are_told_apart(tmp_path: Path) -> None:
    trace = load(write_kineto(tmp_path / "t.json", [operator("a", 5, 5)], baseTimeNanoseconds=None))
    assert trace.clock.kind is ClockKind.RELATIVE
