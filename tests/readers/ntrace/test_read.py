"""Decoding the Neuron runtime's raw files."""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neuron_tb.commands import main
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.load import load
from neuron_tb.converters.model import Trace
from neuron_tb.converters.writers.wire import encode_field, encode_varint
from tests.makers import BASE_NS, HOST, PID, Event, operator, write_json, write_kineto
from tests.raw_makers import (
    INTERNED_FIELD,
    delimited,
    encode,
    event,
    executions,
    info,
    write_raw,
)

FORMS = [(n, c) for n in ("A", "B") for c in ("stream", "message")]


@pytest.fixture(autouse=True)
def _no_explorer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_TB_EXPLORER", "0")


def place(tmp_path: Path) -> Path:
    return tmp_path / f"{HOST}_pid_{PID}" / "1759300074000000000"


def content(trace: Trace) -> list[tuple[Any, ...]]:
    """Everything that a reader decides, row by row, in an order of its own."""
    s, i = trace.slices, trace.instants
    tracks = [
        (t.kind, t.name, t.tid, t.physical_core, t.core, trace.processes[t.process].pid)
        for t in trace.tracks
    ]
    rows: list[tuple[Any, ...]] = [
        (
            trace.strings[s.name[n]],
            int(s.start_ns[n]),
            int(s.duration_ns[n]),
            int(s.sequence_id[n]),
            int(s.exec_id[n]),
            tracks[s.track[n]],
            int(s.role[n]),
            trace.strings[s.category[n]],
            trace.args(n),
        )
        for n in range(len(s))
    ]
    rows += [
        (trace.strings[i.name[n]], int(i.time_ns[n]), tracks[i.track[n]]) for n in range(len(i))
    ]
    return sorted(rows, key=repr)


def dumped(tmp_path: Path, events: Sequence[Event]) -> Trace:
    directory = tmp_path / "dump" / f"{HOST}_pid_{PID}" / "1759300074000000000"
    return load(write_json(directory / "events.json", {"events": events, "data_version": 2}))


def counted(trace: Trace) -> dict[str, int]:
    mine = {"experimental_decoder", "capture_incomplete"}
    return {f.kind: f.count for f in trace.findings if f.kind not in mine}


@pytest.mark.parametrize(("numbering", "container"), FORMS)
def test_every_form_gives_what_the_runtimes_dump_gives(
    tmp_path: Path, numbering: Any, container: Any
) -> None:
    events = executions(4)
    trace = load(write_raw(place(tmp_path), events, numbering, container))
    expected = dumped(tmp_path, events)
    assert content(trace) == content(expected)
    assert counted(trace) == counted(expected)
    lengths = sorted(trace.executions.duration_ns.tolist())
    assert lengths == sorted(2 * [50_000 + n for n in range(4)])
    (finding,) = (f for f in trace.findings if f.kind == "experimental_decoder")
    assert f"event_type in field {5 if numbering == 'A' else 15}" in finding.message
    assert f"nrta_seq_id in field {15 if numbering == 'A' else 16}" in finding.message
    assert "stream of messages" in finding.message or "one message" in finding.message


def test_unmatched_and_timeless_events_are_counted_as_in_the_dump(tmp_path: Path) -> None:
    events = [
        *executions(3),
        event("nrt_tensor_write", "stop", 1, 501, data={"size": 4, "tensor_id": 3}),
        event("nrt_tensor_read", "start", 900, 502, data={"size": 8, "tensor_id": 3}),
        {**event("nrt_tensor_read", "instant", 0, 503), "timestamp_ns": 0},
    ]
    trace = load(write_raw(place(tmp_path), events))
    expected = dumped(tmp_path, events)
    assert content(trace) == content(expected)
    assert counted(trace) == counted(expected)
    assert counted(trace)["stop_without_start"] == 1
    assert counted(trace)["time_out_of_range"] == 1


def test_phases_and_tracking_ids_the_other_way_round_are_told_apart(tmp_path: Path) -> None:
    directory = write_raw(place(tmp_path), [])
    (directory / "ntrace.pb").write_bytes(delimited(encode(e, "A swapped") for e in executions(4)))
    trace = load(directory)
    assert content(trace) == content(dumped(tmp_path, executions(4)))
    (finding,) = (f for f in trace.findings if f.kind == "experimental_decoder")
    assert "phase in field 14" in finding.message


def test_ids_become_names_where_the_runtime_interned_them(tmp_path: Path) -> None:
    names = {900_000_000_001: "first", 900_000_000_002: "zweites ü"}
    for container in ("stream", "message"):
        trace = load(write_raw(place(tmp_path), executions(2, 1), "A", container, names))
        found = {
            trace.args(n)["start"]["data"].get("model_name")
            for n in range(len(trace.slices))
            if trace.strings[trace.slices.name[n]] == "nc_exec_running"
        }
        assert found == {"first", "zweites ü"}


def test_an_id_with_two_names_has_none(tmp_path: Path) -> None:
    directory = write_raw(place(tmp_path), executions(2, 1), names={900_000_000_001: "first"})
    other = encode_field(
        INTERNED_FIELD,
        encode_field(2, encode_field(1, 900_000_000_001) + encode_field(2, "second")),
    )
    path = directory / "trace_info.pb"
    path.write_bytes(path.read_bytes() + other)
    trace = load(directory)
    assert not any("model_name" in trace.args(n)["start"]["data"] for n in range(len(trace.slices)))


def test_the_framework_trace_is_joined_by_process(tmp_path: Path) -> None:
    directory = write_raw(place(tmp_path), executions(2, 1))
    calls = [operator(f"aten::{n}", 100 * n - 5, 90, tid=77) for n in range(2)]
    write_kineto(directory / "trace.json", calls)
    trace = load(directory)
    assert [p.pid for p in trace.processes] == [PID]
    named = [trace.strings[trace.slices.name[o]] for o in trace.executions.operator]
    assert named == ["aten::0", "aten::1"]


def test_the_instance_is_taken_from_the_files_where_no_directory_names_it(tmp_path: Path) -> None:
    directory = write_raw(tmp_path, executions(2))
    (directory / "trace_info.pb").write_bytes(encode_field(4, "i-0abc123456789def0"))
    trace = load(directory / "ntrace.pb")
    assert [p.host for p in trace.processes] == ["i-0abc123456789def0"]


def test_fields_of_a_newer_runtime_are_named(tmp_path: Path) -> None:
    directory = write_raw(place(tmp_path), [])
    bodies = [encode(e, "A", field17=9) for e in executions(3)]
    (directory / "ntrace.pb").write_bytes(delimited(bodies))
    trace = load(directory)
    (finding,) = (f for f in trace.findings if f.kind == "newer_version")
    assert "17" in finding.message
    assert len(trace.executions) == 6


def test_a_file_cut_inside_its_last_record_is_read_up_to_there(tmp_path: Path) -> None:
    for container in ("stream", "message"):
        directory = write_raw(place(tmp_path), executions(3), container=container)
        path = directory / "ntrace.pb"
        events = executions(3)[:-1]
        bodies = [encode(e) for e in events]
        whole = delimited(bodies) if container == "stream" else info(bodies)[:-2]
        path.write_bytes(whole + _start_of_record(container))
        trace = load(directory)
        assert trace.findings.of_kind("raw_truncated") == len(_start_of_record(container))
        assert content(trace) == content(dumped(tmp_path, events))


def _start_of_record(container: str) -> bytes:
    cut = encode(executions(3)[-1])
    key = b"" if container == "stream" else encode_varint(7 << 3 | 2)
    return key + encode_varint(len(cut)) + cut[: len(cut) // 2]


KINDS = {
    "nrt_tensor_read": {"tensor_id": st.integers(0, 2**50), "size": st.integers(0, 2**40)},
    "nrt_execute": {
        "model_id": st.integers(1, 2**50),
        "note": st.text(max_size=8).map("x".__add__),
    },
    "cc_running": {"op_id": st.integers(0, 99), "nc_timestamp_ns": st.integers(1, 2**40)},
    "generic": {"text": st.sampled_from(["007", "-", "1e3", '"', "\\", "ü\n", ""])},
    "kbl_exec_wait": {"exec_id": st.integers(0, 2**31), "change": st.integers(-9, 9)},
}


@st.composite
def event_lists(draw: st.DrawFn) -> list[Event]:
    """Executions, and pairs, halves and instants of many kinds, in any order."""
    events = executions(draw(st.integers(1, 3)))
    for number in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(sorted(KINDS)))
        wanted = draw(st.sampled_from([["start", "stop"], ["start"], ["stop"], ["instant"]]))
        for phase in wanted if kind != "nrt_execute" or wanted != ["instant"] else ["start"]:
            more = {"nc_idx": number % 3, "thread_id": draw(st.integers(1, 2**31))}
            if draw(st.booleans()):
                more["nrta_seq_id"] = draw(st.integers(1, 9)) << 48 | number
            data = {key: draw(values) for key, values in KINDS[kind].items()}
            us = draw(st.integers(-5_000, 5_000))
            events.append(event(kind, phase, us, 10**7 + number, data=data, **more))
    return draw(st.permutations(events))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(events=event_lists())
def test_any_events_read_the_same_in_every_form_and_in_the_dump(events: list[Event]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        expected = dumped(Path(folder), events)
        for number, (numbering, container) in enumerate(FORMS):
            directory = place(Path(folder, str(number)))
            trace = load(write_raw(directory, events, numbering, container))  # type: ignore[arg-type]
            assert content(trace) == content(expected)
            assert counted(trace) == counted(expected)


# -- what must be refused ---------------------------------------------------------------------


def refused(tmp_path: Path, raw: bytes) -> str:
    directory = write_raw(place(tmp_path), [])
    (directory / "ntrace.pb").write_bytes(raw)
    with pytest.raises(NeuronTbError) as error:
        load(directory)
    text = str(error.value)
    assert "neuron-explorer view -d" in text
    assert "\n" not in text
    return text


def test_both_numberings_in_one_file_are_refused(tmp_path: Path) -> None:
    events = executions(6)
    for share in (1, 5, len(events) // 2, len(events) - 1):
        bodies = [encode(e, "A" if n < share else "B") for n, e in enumerate(events)]
        assert "no known numbering of its fields fits" in refused(tmp_path, delimited(bodies))


def test_both_containers_in_one_file_are_refused(tmp_path: Path) -> None:
    bodies = [encode(e) for e in executions(6)]
    for raw in (
        delimited(bodies[:20]) + info(bodies[20:]),
        info(bodies[:20]) + delimited(bodies[20:]),
    ):
        refused(tmp_path, raw)


def test_two_lists_of_events_in_one_message_are_refused(tmp_path: Path) -> None:
    bodies = [encode(e) for e in executions(4)]
    raw = info(bodies) + b"".join(encode_field(8, body) for body in bodies)
    assert "field 7 of one message and field 8 of one message" in refused(tmp_path, raw)


Change = Callable[[Event], Event]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: {**e, "data": {}}, "no event has attributes"),
        (lambda e: {**e, "data": {"label": "x"}}, "no known numbering"),
        (lambda e: {**e, "tracking_id": e["timestamp_ns"]}, "does not pair starts with stops"),
        (lambda e: {**e, "tracking_id": 5}, "does not pair starts with stops"),
        (lambda e: {**e, "timestamp_ns": e["timestamp_ns"] // 1000}, "nanoseconds since the Unix"),
        (lambda e: {**e, "nc_idx": 1 << 40}, "numbers of cores"),
        (lambda e: {**e, "nrta_seq_id": 7}, "does not hold sequence ids"),
        (
            lambda e: {**e, "event_type": "nrt_load"} if "running" in e["event_type"] else e,
            "to type 1",
        ),
    ],
)
def test_evidence_that_is_missing_or_contradicts_itself_is_refused(
    tmp_path: Path, change: Change, words: str
) -> None:
    raw = delimited(encode(change(e)) for e in executions(4))
    assert words in refused(tmp_path, raw)


def test_a_byte_more_or_less_is_found(tmp_path: Path) -> None:
    bodies = [encode(e) for e in executions(4)]
    good = delimited(bodies)
    before_last = len(good) - len(bodies[-1]) - 2
    random.seed(1)
    for number in range(40):
        at = random.randrange(before_last)
        more = bytes([random.randrange(256)]) if number % 2 else b""
        refused(tmp_path, good[:at] + more + good[at + (not more) :])


@pytest.mark.parametrize("raw", [b"", b"x", b"\x08\x01", b"\xff" * 50, b"\0" * 50, b"{}"])
def test_other_bytes_are_refused(tmp_path: Path, raw: bytes) -> None:
    refused(tmp_path, raw)


def test_a_raw_file_that_is_refused_leaves_the_framework_trace(tmp_path: Path) -> None:
    directory = place(tmp_path)
    write_kineto(directory / "trace.json", [operator("a", 0, 9)])
    (directory / "ntrace.pb").write_bytes(b"\x08\x01")
    trace = load(directory)
    assert len(trace.slices) == 1
    assert trace.findings.of_kind("file_unreadable") == 1
    assert trace.findings.of_kind("capture_incomplete") == 1


def test_info_shows_what_was_decoded(tmp_path: Path) -> None:
    directory = write_raw(place(tmp_path), executions(2))
    (directory / "profile_nc_0_session_1.ntff").write_bytes(b"x")
    result = CliRunner().invoke(main, ["info", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "system profile: ntrace.pb" in result.stdout
    assert "not opened: profile_nc_0_session_1.ntff" in result.stdout
    assert "4 measured" in result.stdout


# -- samples ------------------------------------------------------------------------------------


def sample(time: int, **fields: float | int | str | bytes) -> bytes:
    parts = [encode_field(1, time)]
    for name, value in fields.items():
        number = int(name.removeprefix("field"))
        if isinstance(value, float):
            parts.append(encode_varint(number << 3 | 5) + struct.pack("<f", value))
        else:
            parts.append(encode_field(number, value))
    return b"".join(parts)


@pytest.mark.parametrize("whole", [False, True])
def test_samples_of_cpu_and_memory_become_counters(tmp_path: Path, whole: bool) -> None:
    directory = write_raw(place(tmp_path), executions(2))
    times = [BASE_NS + n * 1_000_000_000 for n in range(3)]
    cpu = [sample(t, field2=25.5 * core, field3=core) for t in times for core in range(2)]
    memory = [sample(t, field2=3 << 30) for t in times]

    def pack(bodies: list[bytes]) -> bytes:
        return b"".join(encode_field(3, b) for b in bodies) if whole else delimited(bodies)

    (directory / "cpu_util.pb").write_bytes(pack(cpu))
    (directory / "host_mem.pb").write_bytes(pack(memory))
    trace = load(directory)
    found: dict[str, list[float]] = {}
    for track, value in zip(trace.counters.track, trace.counters.value, strict=True):
        found.setdefault(trace.tracks[track].name, []).append(float(value))
    assert found["Host CPU 0"] == [0.0, 0.0, 0.0]
    assert found["Host CPU 1"] == [25.5, 25.5, 25.5]
    assert found["Host memory used"] == [3.0 * (1 << 30)] * 3


@pytest.mark.parametrize(
    ("name", "bodies"),
    [
        ("cpu_util.pb", [sample(BASE_NS, field2=250.0)]),
        ("cpu_util.pb", [sample(BASE_NS, field2=2.0, field3=3.0)]),
        ("cpu_util.pb", [sample(12345, field2=2.0)]),
        ("host_mem.pb", [sample(BASE_NS, field2=1 << 30, field3=1 << 31)]),
        ("host_mem.pb", [sample(BASE_NS, field2=12)]),
        ("host_mem.pb", [sample(BASE_NS, field2=BASE_NS + 5)]),
    ],
)
def test_samples_that_are_not_clear_are_left_out_with_a_finding(
    tmp_path: Path, name: str, bodies: list[bytes]
) -> None:
    directory = write_raw(place(tmp_path), executions(2))
    (directory / name).write_bytes(delimited(bodies))
    trace = load(directory)
    assert len(trace.counters) == 0
    assert trace.findings.of_kind("raw_samples_unreadable") == 1
