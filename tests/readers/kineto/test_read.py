"""Reading Chrome-trace JSON."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.links import link
from neuron_tb.converters.load import load
from neuron_tb.converters.model import NONE, ClockKind, Role, Trace, TrackKind
from neuron_tb.converters.model.numbers import integer
from neuron_tb.converters.readers import read_file
from neuron_tb.converters.readers.json import bounds
from neuron_tb.converters.readers.values import nanoseconds
from tests.makers import (
    BASE_NS,
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


def names(trace: Trace) -> list[str]:
    return [trace.strings[n] for n in trace.slices.name]


def role_counts(trace: Trace) -> dict[str, int]:
    roles, counts = np.unique(trace.slices.role, return_counts=True)
    return {Role(r).name: int(n) for r, n in zip(roles, counts, strict=True)}


def test_base_time_and_microseconds_give_exact_nanoseconds(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "t.json", [operator("a", 7699926000050.125, 55.251)])
    trace = read_file(path)
    assert trace.slices.start_ns[0] == BASE_NS + 7699926000050125
    assert trace.slices.duration_ns[0] == 55251


@pytest.mark.parametrize("ts", ["1759300074123456.789", '"1759300074123456.789"'])
def test_epoch_microseconds_with_three_decimals_are_not_rounded_to_a_double(
    tmp_path: Path, ts: str
) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, '
        f'"ts": {ts}, "dur": 1.5}}]}}'
    )
    trace = read_file(path)
    assert trace.slices.start_ns[0] == 1759300074123456789
    assert trace.clock.resolution_ns == 1


def test_epoch_microseconds_on_the_grid_of_a_double_have_its_resolution(tmp_path: Path) -> None:
    events = [operator("a", 1759300074123456.25, 2.5), operator("b", 1759300074123459.75, 1.0)]
    trace = read_file(write_kineto(tmp_path / "t.json", events, baseTimeNanoseconds=None))
    assert trace.clock.resolution_ns == 250
    assert abs(trace.slices.start_ns[0] - 1759300074123456250) < 250


@given(st.integers(-(2**42), 2**42), st.integers(0, 999))
def test_three_decimals_survive_the_way_through_a_double(us: int, ns: int) -> None:
    text = f"{us}.{ns:03d}"
    times, usable = nanoseconds([float(text)], 0)
    assert usable[0]
    assert times[0] == us * 1000 + (-ns if us < 0 else ns)


@given(st.integers(-(2**63), 2**64 - 1))
def test_identifiers_as_text_and_as_numbers_are_equal(value: int) -> None:
    assert integer(value) == integer(str(value))
    assert -(2**63) <= integer(value) < 2**63


def test_gzip_and_array_form_hold_the_same_events(tmp_path: Path) -> None:
    events = [step(0, 0, 100), operator("aten::mul", 10, 5, external=3)]
    plain = read_file(write_kineto(tmp_path / "a.json", events))
    packed = read_file(write_kineto(tmp_path / "b.json.gz", events))
    renamed = tmp_path / "gzip_inside.json"
    renamed.write_bytes((tmp_path / "b.json.gz").read_bytes())
    array = read_file(write_json(tmp_path / "c.json", events))
    assert names(plain) == names(packed) == names(read_file(renamed)) == names(array)
    assert array.clock.kind is ClockKind.RELATIVE
    assert plain.slices.external_id.tolist() == [NONE, 3]


def test_categories_decide_roles_whatever_their_case(tmp_path: Path) -> None:
    events = [
        complete("Operator", "a", 0, 9),
        complete("Runtime", "cudaLaunchKernel", 1, 2),
        complete("Kernel", "k", 3, 2, pid=0, tid="stream 7", args={"device": 0}),
        complete("gpu_memcpy", "m", 5, 1, pid=0, tid=7, args={"device": 0}),
        complete("something_new", "x", 6, 1),
    ]
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert role_counts(trace) == {
        "OPERATOR": 1,
        "RUNTIME": 1,
        "KERNEL": 1,
        "TRANSFER": 1,
        "OTHER": 1,
    }


@pytest.mark.parametrize(
    ("events", "top", "family"),
    [
        ([window("w", 1, 2, 5)], {}, "privateuse1"),
        ([window("w", 1, 2, 5)], {"distributedInfo": {"backend": "neuron"}}, "neuron"),
        ([window("w", 1, 2, 5, nrt_sequence_id=7)], {}, "neuron"),
        ([window("w", 1, 2, 5), complete("Trace", "__neuron_profiler__ (-1)", 0, 9)], {}, "neuron"),
        ([kernel("k", 1, 2, 5)], {}, "cuda"),
    ],
)
def test_a_category_alone_does_not_make_a_device_neuron(
    tmp_path: Path, events: list[Any], top: dict[str, Any], family: str
) -> None:
    trace = read_file(write_kineto(tmp_path / "t.json", [operator("a", 0, 9), *events], **top))
    assert [d.family for d in trace.devices] == [family]


def test_device_rows_belong_to_the_process_that_has_the_operators(tmp_path: Path) -> None:
    events = [operator("a", 0, 9), launch(1, 2, 5), kernel("k", 4, 2, 5, stream=7, device=3)]
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert [p.pid for p in trace.processes] == [PID]
    row = trace.tracks[trace.slices.track[2]]
    assert row.kind is TrackKind.DEVICE
    assert trace.devices[row.device or 0].index == 3


def test_begin_and_end_events_become_slices_with_their_arguments(tmp_path: Path) -> None:
    events = [
        {"ph": "B", "name": "outer", "pid": 1, "tid": 1, "ts": 1, "args": {"k": 1}},
        {"ph": "B", "name": "inner", "pid": 1, "tid": 1, "ts": 2, "attr": {"p": "3"}},
        {"ph": "E", "name": "inner", "pid": 1, "tid": 1, "ts": 4},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 9},
        {"ph": "B", "name": "open", "pid": 1, "tid": 1, "ts": 10},
        {"ph": "E", "name": "never begun", "pid": 1, "tid": 2, "ts": 11},
    ]
    trace = read_file(write_json(tmp_path / "t.json", events))
    found = {
        trace.strings[n]: (int(s), int(d), trace.args(i))
        for i, (n, s, d) in enumerate(
            zip(trace.slices.name, trace.slices.start_ns, trace.slices.duration_ns, strict=True)
        )
    }
    assert found == {"outer": (1000, 8000, {"k": 1}), "inner": (2000, 2000, {"p": "3"})}
    assert [trace.strings[n] for n in trace.instants.name] == ["open"]
    assert trace.findings.of_kind("unfinished") == 1
    assert trace.findings.of_kind("end_without_begin") == 1


def test_events_that_lack_something_are_kept_by_rule_and_counted(tmp_path: Path) -> None:
    events = [
        operator("good", 1, 2),
        None,
        "stray",
        {},
        {"ph": "X", "name": "no duration", "pid": 1, "tid": 1, "ts": 3},
        {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 4, "dur": 1},
        {"ph": "X", "name": "no time", "pid": 1, "tid": 1, "dur": 1},
        {"ph": "X", "name": "negative", "pid": 1, "tid": 1, "ts": 5, "dur": -1},
        {"ph": "X", "name": 5, "cat": ["x"], "pid": [1], "tid": True, "ts": 6, "dur": 1},
    ]
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert sorted(names(trace)) == ["(unnamed)", "5", "good"]
    assert [trace.strings[n] for n in trace.instants.name] == ["no duration", "negative"]
    counted = {f.kind: f.count for f in trace.findings}
    assert counted == {
        "not_an_event": 2,
        "phase_not_shown": 1,
        "no_duration": 1,
        "no_name": 1,
        "no_time": 1,
        "unfinished": 1,
    }


def test_an_event_at_time_zero_among_epoch_times_does_not_stretch_the_time_line(
    tmp_path: Path,
) -> None:
    now = 1759300074000000
    events = [operator(str(i), now + i, 1) for i in range(5)] + [operator("zero", 0, 1)]
    trace = read_file(write_kineto(tmp_path / "t.json", events, baseTimeNanoseconds=None))
    assert "zero" not in names(trace)
    assert trace.findings.of_kind("time_out_of_range") == 1


def test_one_arrow_with_several_ends_fans_out(cases: Path) -> None:
    trace = read_file(cases / "odd" / "flow_fanout.json")
    assert len(trace.flows) == 4
    assert len(set(trace.flows.source.tolist())) == 1
    assert trace.findings.of_kind("flow_unpaired") == 2


def test_an_arrow_with_a_middle_step_is_a_chain(cases: Path) -> None:
    trace = read_file(cases / "real" / "perfetto_flow_v1.json")
    edges = {
        (trace.strings[trace.slices.name[s]], trace.strings[trace.slices.name[t]])
        for s, t in zip(trace.flows.source, trace.flows.target, strict=True)
    }
    assert edges == {
        ("SenderA", "OtherSlice"),
        ("OtherSlice", "SomeSlice"),
        ("SenderB", "Blergh"),
    }


def test_memory_events_have_typed_columns_and_keep_their_arguments(tmp_path: Path) -> None:
    args = {
        "Device Type": 20,
        "Device Id": 1,
        "Addr": 2**47,
        "Bytes": -512,
        "Total Allocated": 1024,
        "Total Reserved": 2048,
        "Ev Idx": 9,
    }
    event = {"ph": "i", "s": "t", "name": "[memory]", "cat": "cpu_instant_event", "pid": PID}
    path = write_kineto(
        tmp_path / "t.json", [operator("a", 0, 9), {**event, "tid": PID, "ts": 3, "args": args}]
    )
    trace = read_file(path)
    assert len(trace.instants) == 0
    memory = trace.memory
    assert (memory.device_type[0], memory.device_id[0], memory.bytes[0]) == (20, 1, -512)
    assert (memory.address[0], memory.total_allocated[0]) == (2**47, 1024)
    assert trace.args(0, memory) == args


def test_counters_become_one_track_per_series(tmp_path: Path) -> None:
    events = [
        operator("a", 0, 9),
        {"ph": "C", "name": "use", "pid": PID, "tid": 0, "ts": 1, "args": {"r": 1, "w": 2.5}},
        {"ph": "C", "name": "use", "pid": PID, "tid": 0, "ts": 2, "args": {"r": 3, "w": "x"}},
    ]
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    series = [
        (trace.tracks[t].name, v)
        for t, v in zip(trace.counters.track, trace.counters.value, strict=True)
    ]
    assert series == [("use r", 1.0), ("use w", 2.5), ("use r", 3.0)]
    assert trace.findings.of_kind("counter_without_value") == 1


def test_order_of_events_in_the_file_does_not_matter(tmp_path: Path) -> None:
    events = [
        step(0, 0, 100),
        *(operator(f"op{i}", 10 * i, 9, external=i) for i in range(8)),
        *(window(f"w{i}", 10 * i + 2, 30, i) for i in range(8)),
    ]
    forward = read_file(write_kineto(tmp_path / "a.json", events))
    backward = read_file(write_kineto(tmp_path / "b.json", events[::-1]))

    def rows(trace: Trace) -> list[Any]:
        s = trace.slices
        return sorted(zip(names(trace), s.start_ns, s.duration_ns, s.role, strict=True))

    assert rows(forward) == rows(backward)
    assert (link(forward).executions.start_ns == link(backward).executions.start_ns).all()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b"<!DOCTYPE html><html></html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "a Git LFS pointer"),
        (b"\x80\x04\x95abc", "a Python pickle"),
        (b"PK\x03\x04abc", "a ZIP archive"),
        (b"hello", "not JSON"),
        (b'{"traceEvents" 5 6}', "not valid JSON"),
        (b"[[0, 1, 2], [[3, 4], [5, 6]]]", "a PyTorch memory timeline"),
        (b'{"schema": "1.0.3", "nodes": []}', "a PyTorch execution trace"),
        (b'{"nodes": [], "schema": "1.1.1-chakra.0.0.4"}', "a PyTorch execution trace"),
        (b'{"neuron_runtime_data": []}', "a neuron-monitor report"),
        (b'{"neuron_runtime_data": []}\n{"neuron_runtime_data": []}', "a neuron-monitor report"),
        (b'{"times": [1, 2], "sizes": [[1], [2]]}', "a PyTorch memory timeline"),
        (b"[[1, 0, 512, 3], [2, 1, 3, 4]]", "a PyTorch memory timeline"),
        (b"[" * 20_000 + b"]" * 20_000, "(nested more than 256 deep)"),
        (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "its keys: a; nested more than 256 deep"),
        (b"[" * 20_000, "its brackets do not match"),
        (b'{"a": 1}', "not a trace that is known here (its keys: a)"),
        (b'{"a\\nb": 1}', "its keys: a b"),
        (b"\x1f\x8b\x08\x00garbage", "a damaged gzip file"),
    ],
)
def test_what_is_not_a_trace_is_named_in_one_sentence(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(NeuronTbError) as caught:
        read_file(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def _slices_in(path: Path) -> int:
    import gzip

    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    events = document["traceEvents"] if isinstance(document, dict) else document
    pairs = sum(e["ph"] == "B" for e in events)
    return pairs + sum(e["ph"] == "X" for e in events)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("m.pickle", b"(dp0\nS'a'\np1\n", "a Python pickle"),
        ("rank0.et", b"\x0a\x05hello", "a Chakra execution trace"),
        ("h.xplane.pb", b"\x0a\xd8\x01\x08", "an XProf profile"),
        ("h.pftrace", b"\x0a\x0f\xc0\x3e", "a Perfetto trace"),
        ("h.pftrace.gz", gzip.compress(b"\x0a\x0f\xc0\x3e"), "a Perfetto trace"),
        ("p.ntff", b"NTFF", "a Neuron device profile"),
    ],
)
def test_other_formats_are_named_by_their_files_name(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(NeuronTbError) as caught:
        read_file(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pickles_are_named_without_being_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "sprung",))

    for number in range(pickle.HIGHEST_PROTOCOL + 1):
        for name in ("trace.json", "p.pickle"):
            path = tmp_path / name
            path.write_bytes(pickle.dumps(Trap(), protocol=number))
            with pytest.raises(NeuronTbError):
                load(path)
    assert not (tmp_path / "sprung").exists()


def test_a_value_nested_too_deeply_costs_no_event(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    deep = "[" * 20_000 + "]" * 20_000
    events = [operator("a", 1, 2), operator("b", 3, 4), operator("c", 5, 6)]
    text = json.dumps({"traceEvents": events, "x": 0})
    text = text.replace('"args": {}', f'"args": {{"k": 7, "z": {deep}}}', 1)
    path.write_text(text.replace('"x": 0', f'"x": {deep}'))
    trace = read_file(path)
    assert names(trace) == ["a", "b", "c"]
    assert trace.args(0)["k"] == 7
    assert trace.findings.of_kind("nested_too_deep") == 2
    assert trace.findings.of_kind("bytes_lost") == 0


@pytest.mark.parametrize("wild", [9e15, -9e15, 7.4e15, -1.76e15, 0])
def test_an_event_of_another_era_does_not_stretch_the_time_line(
    tmp_path: Path, wild: float
) -> None:
    late = 7.9e12  # microseconds: three months after the base time, as Kineto writes it
    events = [operator(f"op {n}", late + n, 1) for n in range(20)]
    trace = read_file(write_kineto(tmp_path / "t.json", [operator("wild", wild, 1), *events]))
    assert "wild" not in names(trace)
    first, last = trace.time_range()
    assert last - first == 20_000
    assert trace.findings.of_kind("time_out_of_range") + trace.findings.of_kind("no_time") == 1


def test_two_captures_of_different_months_in_one_file_are_both_kept(tmp_path: Path) -> None:
    months = 1e13
    events = [operator(f"{n}", n % 2 * months + n + 1, 1) for n in range(20)]
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert len(trace.slices) == 20


@pytest.mark.parametrize("dur", [3e12, 9e15, 9.2e15])
def test_an_event_of_an_absurd_length_is_an_instant(tmp_path: Path, dur: float) -> None:
    events = [operator("a", 1, 5), operator("endless", 2, dur)]
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert names(trace) == ["a"]
    assert [trace.strings[n] for n in trace.instants.name] == ["endless"]
    assert trace.findings.of_kind("duration_out_of_range") == 1
    assert trace.time_range() == (BASE_NS + 1000, BASE_NS + 6000)


@pytest.mark.parametrize("base", ["yesterday", None, -5, 1.5, [1], {}, True])
def test_a_base_time_that_is_none_gives_relative_times_and_a_finding(
    tmp_path: Path, base: Any
) -> None:
    path = write_json(
        tmp_path / "t.json", {"baseTimeNanoseconds": base, "traceEvents": [operator("a", 1, 2)]}
    )
    trace = read_file(path)
    assert trace.clock.kind is ClockKind.RELATIVE
    assert trace.slices.start_ns.tolist() == [1000]
    assert trace.findings.of_kind("base_time_unreadable") == 1


@pytest.mark.parametrize("base", [str(BASE_NS), float(BASE_NS)])
def test_a_base_time_may_be_written_as_text_or_with_a_point(tmp_path: Path, base: Any) -> None:
    events = [operator("a", 1, 2)]
    trace = read_file(write_kineto(tmp_path / "t.json", events, baseTimeNanoseconds=base))
    assert trace.slices.start_ns.tolist() == [BASE_NS + 1000]
    assert trace.findings.of_kind("base_time_unreadable") == 0


def test_threads_and_processes_beyond_the_bound_share_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_TRACKS", 10)
    monkeypatch.setattr(bounds, "MAX_PROCESSES", 3)
    events = [operator("a", n, 1, tid=n) for n in range(30)]
    events += [operator("p", n, 1, pid=1000 + n) for n in range(5)]
    trace = read_file(write_kineto(tmp_path / "t.json", events))
    assert role_counts(trace) == {"OPERATOR": 35}
    assert len(trace.tracks) <= 10 + 2 * 3
    assert len(trace.processes) == 3
    assert trace.findings.of_kind("too_many_threads") >= 20
    assert trace.findings.of_kind("too_many_processes") == 3


def test_every_slice_of_strangers_files_is_read(cases: Path) -> None:
    for path in sorted((cases / "real").iterdir()):
        assert len(read_file(path).slices) == _slices_in(path), path.name


@pytest.mark.parametrize(
    ("file", "device_rows"),
    [
        ("hta_amd_mi250_rocm62.json.gz", 16),
        ("hta_cpu_only_rank34.pt.trace.json.gz", 0),
        ("hta_mtia_inference_rank0.json.gz", 1313),
        ("hta_alexnet_overlaps.json.gz", 98),
        ("hta_sampled_rank0.json.gz", 1204),
        ("hta_sampled_rank1.json.gz", 1154),
        ("kineto_gpu_metrics_input.json", 32),
        ("tracelens_torch_compile_triton.json.gz", 12),
        ("aiu_allreduce_tp4.json", 0),
        ("user_dtu_profile_memory.json", 0),
    ],
)
def test_device_rows_of_other_accelerators_are_recognised(
    cases: Path, file: str, device_rows: int
) -> None:
    trace = read_file(cases / "real" / file)
    assert np.count_nonzero(trace.roles(Role.KERNEL, Role.TRANSFER)) == device_rows


def test_a_process_that_has_only_marks_is_a_process_too(tmp_path: Path) -> None:
    mark = {"ph": "i", "s": "t", "name": "mark", "cat": "x", "pid": 77, "tid": 1, "ts": 3}
    trace = load(write_kineto(tmp_path / "t.json", [operator("a", 0, 9), mark]))
    assert [p.pid for p in trace.processes] == [PID, 77]
    assert len(trace.metadata) == 2
