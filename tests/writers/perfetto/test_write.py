"""Perfetto traces, read back with Perfetto's messages and replayed by trace_processor's rule."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neuron_tb
from neuron_tb.checks.perfetto import check
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.links import link
from neuron_tb.converters.model import (
    NONE,
    Clock,
    ClockKind,
    Counters,
    Device,
    Flows,
    Instants,
    MemoryEvents,
    Process,
    Role,
    Slices,
    StringTable,
    Trace,
    Track,
    TrackKind,
    merge,
)
from neuron_tb.converters.model.arguments import Arguments
from neuron_tb.converters.writers import Destination, Written
from neuron_tb.converters.writers.perfetto import write as perfetto
from tests import makers

messages = pytest.importorskip(
    "perfetto.protos.perfetto.trace.perfetto_trace_pb2",
    reason="written traces are read back with Perfetto's messages (pip install perfetto)",
)

BASE = 1_759_300_074_000_000_001
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
BOOTTIME, REALTIME = 6, 1


# -- making traces ----------------------------------------------------------------------------


class Builder:
    """A Trace made row by row."""

    def __init__(self, host: str = "hostA", pid: int = 501, rank: int | None = 0) -> None:
        self.processes = [Process(host, pid, rank)]
        self.devices: list[Device] = []
        self.tracks: list[Track] = []
        self.clock = Clock()
        self._strings = StringTable()
        self._arguments = bytearray()
        self._rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)

    def track(
        self, kind: TrackKind = TrackKind.THREAD, name: str = "thread 501", **more: Any
    ) -> int:
        more.setdefault("process", 0)
        more.setdefault("tid", 501)
        self.tracks.append(Track(kind=kind, name=name, **more))
        return len(self.tracks) - 1

    def slice(
        self,
        track: int,
        start: int,
        duration: int,
        name: str = "work",
        role: Role = Role.OTHER,
        correlation: int = NONE,
        category: str = "cat",
        args: dict[str, Any] | bytes = b"",
    ) -> int:
        rows = self._rows["slices"]
        ids = (NONE, correlation, NONE, NONE)
        texts = (self._strings.intern(name), self._strings.intern(category))
        rows.append((BASE + start, duration, *texts, track, role, *ids, *self._args(args)))
        return len(rows) - 1

    def instant(self, track: int, time: int, name: str = "mark", args: Any = b"") -> None:
        texts = (self._strings.intern(name), self._strings.intern("cat"))
        self._rows["instants"].append((BASE + time, *texts, track, *self._args(args)))

    def sample(self, track: int, time: int, value: float) -> None:
        self._rows["counters"].append((BASE + time, value, track))

    def memory(
        self, track: int, time: int, kind: int, index: int, allocated: int, reserved: int
    ) -> None:
        args = self._args({"Device Type": kind, "Bytes": 64})
        row = (BASE + time, 0, kind, index, NONE, 64, allocated, reserved, track, *args)
        self._rows["memory"].append(row)

    def flow(self, source: int, target: int, kind: str) -> None:
        self._rows["flows"].append((source, target, self._strings.intern(kind)))

    def trace(self) -> Trace:
        def columns(kind: Any, rows: list[tuple[Any, ...]]) -> Any:
            empty = kind.empty()
            names = empty.__dataclass_fields__
            table = list(zip(*rows, strict=True)) if rows else [()] * len(names)
            return kind(
                **{
                    name: np.array(values, getattr(empty, name).dtype)
                    for name, values in zip(names, table, strict=True)
                }
            )

        return Trace(
            "capture",
            strings=self._strings.strings,
            processes=self.processes,
            devices=self.devices,
            tracks=self.tracks,
            slices=columns(Slices, self._rows["slices"]),
            instants=columns(Instants, self._rows["instants"]),
            counters=columns(Counters, self._rows["counters"]),
            memory=columns(MemoryEvents, self._rows["memory"]),
            flows=columns(Flows, self._rows["flows"]),
            arguments=Arguments([bytes(self._arguments)]),
            clock=self.clock,
        )

    def _args(self, args: dict[str, Any] | bytes) -> tuple[int, int]:
        raw = args if isinstance(args, bytes) else json.dumps(args).encode()
        start = len(self._arguments)
        self._arguments += raw
        return start, len(raw)


def one_thread(*slices: tuple[int, int], **more: Any) -> Builder:
    """A thread with these (start, duration)."""
    builder = Builder()
    track = builder.track()
    for start, duration in slices:
        builder.slice(track, start, duration, **more)
    return builder


def one_device(family: str = "neuron", name: str = "NeuronCore 0") -> Builder:
    builder = Builder()
    builder.devices.append(Device(0, 0, family, name))
    return builder


def write(trace: Trace | Builder, out: Path, run: str = "run", **more: Any) -> Written:
    trace = link(trace.trace()) if isinstance(trace, Builder) else trace
    written = perfetto.write(trace, Destination(out, run, **more))
    assert len(written) == 1
    return written[0]


# -- reading files ----------------------------------------------------------------------------


@dataclass
class Drawn:
    """One slice, instant or sample as a viewer ends up with it."""

    uuid: int
    name: str
    start: int
    duration: int = 0
    value: float = 0
    args: dict[str, Any] = field(default_factory=dict)
    categories: list[str] = field(default_factory=list)
    flows: list[int] = field(default_factory=list)
    depth: int = 0


class Replay:
    """What trace_processor makes of a file: time order, stable; an END closes the innermost."""

    def __init__(self, *paths: Path) -> None:
        parsed = messages.Trace.FromString(b"".join(path.read_bytes() for path in paths))
        self.packets = list(parsed.packet)
        self.descriptors = {
            p.track_descriptor.uuid: p.track_descriptor
            for p in self.packets
            if p.HasField("track_descriptor")
        }
        self.slices: list[Drawn] = []
        self.instants: list[Drawn] = []
        self.samples: list[Drawn] = []
        events = [(p, d) for p, d in zip(self.packets, self._decoded(), strict=True) if d]
        stacks: dict[int, list[Drawn]] = defaultdict(list)
        for packet, drawn in sorted(events, key=lambda pair: pair[0].timestamp):
            kind, stack = packet.track_event.type, stacks[drawn.uuid]
            if kind == BEGIN:
                drawn.depth = len(stack)
                stack.append(drawn)
                self.slices.append(drawn)
            elif kind == END:
                closed = stack.pop()
                closed.duration = packet.timestamp - closed.start
            else:
                (self.instants if kind == INSTANT else self.samples).append(drawn)
        assert not any(stacks.values()), "slices that never end"

    def _decoded(self) -> Iterator[Drawn | None]:
        tables: dict[int, dict[tuple[str, int], str]] = {}
        for packet in self.packets:
            sequence = packet.trusted_packet_sequence_id
            if packet.sequence_flags & 1:
                tables[sequence] = {}
            table = tables.get(sequence, {})
            for kind in ("event_names", "event_categories", "debug_annotation_names"):
                for entry in getattr(packet.interned_data, kind):
                    table[kind, entry.iid] = entry.name
            for entry in packet.interned_data.debug_annotation_string_values:
                table["strings", entry.iid] = entry.str.decode()
            event = packet.track_event
            if not packet.HasField("track_event"):
                yield None
                continue
            yield Drawn(
                event.track_uuid,
                table["event_names", event.name_iid] if event.name_iid else "",
                packet.timestamp,
                value=event.counter_value or event.double_counter_value,
                args={
                    table["debug_annotation_names", a.name_iid]: annotation(a, table)
                    for a in event.debug_annotations
                },
                categories=[table["event_categories", c] for c in event.category_iids],
                flows=list(event.flow_ids),
            )

    def path(self, uuid: int) -> list[str]:
        """Names from the process down to the row."""
        names = []
        while uuid:
            descriptor = self.descriptors[uuid]
            name = descriptor.name or descriptor.process.process_name
            names.append(name or descriptor.thread.thread_name)
            uuid = descriptor.parent_uuid
        return names[::-1]

    def row(self, name: str) -> int:
        """The uuid of the only row of this name."""
        (found,) = [u for u in self.descriptors if u and self.path(u)[-1] == name]
        return found

    def arrows(self) -> list[tuple[Drawn, Drawn]]:
        """(earlier, later) for every flow id."""
        ends: dict[int, list[Drawn]] = defaultdict(list)
        for drawn in self.slices:
            for flow in drawn.flows:
                ends[flow].append(drawn)
        assert all(len(pair) == 2 for pair in ends.values())
        return [(first, second) for first, second in ends.values()]

    def attributes(self) -> dict[str, Any]:
        """Trace attributes by the last part of their key."""
        return {
            a.key.split(".", 2)[2]: a.long_value if a.HasField("long_value") else a.string_value
            for p in self.packets
            for a in p.trace_attributes.attribute
        }


def annotation(message: Any, table: dict[tuple[str, int], str]) -> Any:
    if message.dict_entries:
        return {
            table["debug_annotation_names", e.name_iid]: annotation(e, table)
            for e in message.dict_entries
        }
    if message.array_values:
        return [annotation(value, table) for value in message.array_values]
    if message.HasField("string_value_iid"):
        return table["strings", message.string_value_iid]
    return getattr(message, message.WhichOneof("value"))


def replayed(trace: Trace | Builder, out: Path, **more: Any) -> Replay:
    path = write(trace, out, **more).path
    assert path is not None
    report = check(path)
    assert report.problems == []
    return Replay(path)


# -- slices -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 9)), min_size=1, max_size=40
    )
)
def test_any_slices_come_back_with_their_names_and_times(
    rows: list[tuple[int, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    builder = one_device()
    builder.track(name="thread 1", tid=1)
    builder.track(name="thread 2", tid=2)
    builder.track(TrackKind.DEVICE, "stream 7", tid=7, device=0)
    builder.clock = Clock(resolution_ns=0)
    for number, (track, start, duration) in enumerate(rows):
        builder.slice(track, start, duration, f"slice {number}")
    replay = replayed(builder, tmp_path_factory.mktemp("out"))
    expected = {
        (f"slice {n}", BASE + start, duration) for n, (_, start, duration) in enumerate(rows)
    }
    assert {(d.name, d.start, d.duration) for d in replay.slices} == expected
    for drawn in replay.slices:
        track = rows[int(drawn.name.split()[1])][0]
        assert ("thread", "thread (overlapping)", "stream 7")[track].split()[0] in replay.path(
            drawn.uuid
        )[-1]


def test_each_end_stands_behind_its_beginning_and_parents_before_children(tmp_path: Path) -> None:
    slices = [(5, 5), (0, 10), (5, 0), (5, 2), (0, 10), (10, 0), (10, 4), (0, 3)]
    replay = replayed(one_thread(*slices), tmp_path)
    events = [p for p in replay.packets if p.HasField("track_event")]
    begins, ends = events[::2], events[1::2]
    assert {p.track_event.type for p in begins} == {BEGIN}
    assert {p.track_event.type for p in ends} == {END}
    order = [(b.timestamp, b.timestamp - e.timestamp) for b, e in zip(begins, ends, strict=True)]
    assert order == sorted(order)
    assert Counter((s - BASE, -d) for s, d in order) == Counter(slices)


def test_overlapping_kernels_get_lanes_of_one_row_with_their_lengths(tmp_path: Path) -> None:
    builder = one_device()
    track = builder.track(TrackKind.DEVICE, "stream 7", tid=7, device=0)
    for number in range(3):
        builder.slice(track, 2 * number, 10, f"kernel {number}", Role.KERNEL)
    written = write(builder, tmp_path)
    replay = Replay(written.path)
    assert sorted(d.duration for d in replay.slices) == [10, 10, 10]
    lanes = [replay.descriptors[d.uuid] for d in replay.slices]
    assert len({d.uuid for d in lanes}) == 3
    shared = {(d.name, d.parent_uuid, d.sibling_merge_key, d.sibling_merge_behavior) for d in lanes}
    assert len(shared) == 1
    assert written.findings.of_kind("overlapping_slices") == 2
    assert replay.attributes()["lanes"] == 2


def test_what_overlaps_on_a_thread_stands_beside_it_not_in_a_second_thread(tmp_path: Path) -> None:
    replay = replayed(one_thread((0, 10), (5, 10), (6, 10)), tmp_path)
    threads = [d for d in replay.descriptors.values() if d.HasField("thread")]
    assert len(threads) == 1
    rows = {replay.path(d.uuid)[-1] for d in replay.slices}
    assert rows == {"thread", "thread 501 (overlapping)"}
    keys = {replay.descriptors[d.uuid].sibling_merge_key for d in replay.slices[1:]}
    assert len(keys) == 1


def test_a_crossing_within_the_resolution_is_rounding_and_counted(tmp_path: Path) -> None:
    builder = one_thread((0, 1000), (500, 600))
    builder.clock = Clock(resolution_ns=250)
    written = write(builder, tmp_path)
    assert sorted(d.duration for d in Replay(written.path).slices) == [500, 1000]
    assert written.findings.of_kind("end_rounded") == 1


def test_slices_too_deep_for_perfetto_stand_in_further_lanes(tmp_path: Path) -> None:
    builder = one_thread(*((n, 3000 - 2 * n) for n in range(1200)))
    written = write(builder, tmp_path)
    replay = Replay(written.path)
    assert max(d.depth for d in replay.slices) < 512
    assert {(d.start - BASE, d.duration) for d in replay.slices} == {
        (n, 3000 - 2 * n) for n in range(1200)
    }
    assert written.findings.of_kind("nested_too_deep") == 700
    assert check(written.path).problems == []


@pytest.mark.parametrize("name", ["", "größer ∑ 漢字 🚀", "a\nb\tc\x01", "x" * 30_000, "a\ud800"])
def test_names_and_categories_keep_their_characters(name: str, tmp_path: Path) -> None:
    replay = replayed(one_thread((0, 1), name=name, category=name), tmp_path)
    shown = name.encode("utf-8", "replace").decode()
    assert [d.name for d in replay.slices] == [shown]
    assert replay.slices[0].categories == ([shown] if name else [])


def test_events_before_time_0_are_left_out_and_counted(tmp_path: Path) -> None:
    builder = one_thread((-BASE - 5, 3), (-BASE - 5, 10), (0, 1))
    builder.instant(0, -BASE - 1)
    written = write(builder, tmp_path)
    assert written.slices == 1
    assert written.findings.of_kind("time_not_representable") == 3
    assert check(written.path).problems == []


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path, samples: Path) -> None:
    first, second = (
        write(neuron_tb.load(samples / "training"), tmp_path / folder) for folder in "ab"
    )
    assert first.path.read_bytes() == second.path.read_bytes()


# -- arguments --------------------------------------------------------------------------------

ARGUMENTS = [
    0,
    -1,
    2**60,
    2**60 + 1,
    2**63 - 1,
    -(2**63),
    0.1,
    -2.5e300,
    True,
    False,
    "",
    "text",
    "ein Text, länger als drei Zeichen ∑",
    [1, 2.5, "a word", True],
    [[4, 512], [512]],
    {"a": 1, "b": {"c": ["a word", "a word"]}},
]


def same(value: Any, wanted: Any) -> bool:
    return type(value) is type(wanted) and value == wanted


@pytest.mark.parametrize("count", [1, 60], ids=["alone", "in columns"])
@pytest.mark.parametrize("value", ARGUMENTS, ids=repr)
def test_arguments_keep_type_and_value(value: Any, count: int, tmp_path: Path) -> None:
    builder = one_thread(*((n, 1) for n in range(count)), args={"External id": 7, "x": value})
    for drawn in replayed(builder, tmp_path).slices:
        assert drawn.args["External id"] == 7
        assert same(drawn.args["x"], value)


@pytest.mark.parametrize("count", [1, 60], ids=["alone", "in columns"])
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2**63, str(2**63)),
        (2**64 - 1, str(2**64 - 1)),
        (-(2**70), str(-(2**70))),
        (None, "null"),
        ([], "[]"),
        ({}, "{}"),
    ],
)
def test_what_an_annotation_cannot_hold_is_shown_as_text(
    value: Any, shown: str, count: int, tmp_path: Path
) -> None:
    builder = one_thread(*((n, 1) for n in range(count)), args={"x": value})
    for drawn in replayed(builder, tmp_path).slices:
        assert drawn.args == {"x": shown}


json_values = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(st.text("abc", min_size=1), inner, min_size=1, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=40, deadline=None)
@given(
    events=st.lists(
        st.dictionaries(st.sampled_from(["a", "b", "External id"]), json_values, max_size=3),
        min_size=1,
        max_size=4,
    ),
    repeat=st.sampled_from([1, 40]),
)
def test_any_arguments_come_back(
    events: list[dict[str, Any]], repeat: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    builder = Builder()
    track = builder.track()
    wanted = [event for event in events for _ in range(repeat)]
    for number, event in enumerate(wanted):
        builder.slice(track, number, 1, args=event)
    found = replayed(builder, tmp_path_factory.mktemp("out")).slices
    for drawn, event in zip(found, wanted, strict=True):
        assert json.dumps(drawn.args, sort_keys=True) == json.dumps(event, sort_keys=True)


def test_a_column_of_mixed_types_keeps_each_type(tmp_path: Path) -> None:
    values = [1, 1.0, True, "1", None, [1], 2**64] * 10
    builder = Builder()
    track = builder.track()
    for number, value in enumerate(values):
        builder.slice(track, number, 1, args={"x": value})
    found = [d.args["x"] for d in replayed(builder, tmp_path).slices]
    shown = ["null" if v is None else str(v) if v == 2**64 else v for v in values]
    assert all(same(value, wanted) for value, wanted in zip(found, shown, strict=True))


@pytest.mark.parametrize(
    ("raw", "args"),
    [
        (b"[1, 2]", {"value": [1, 2]}),
        (b'"text"', {"value": "text"}),
        (b'{"a": ', {"value": '{"a": '}),
    ],
)
@pytest.mark.parametrize("count", [1, 60])
def test_arguments_that_are_no_object_are_kept(
    raw: bytes, args: dict[str, Any], count: int, tmp_path: Path
) -> None:
    builder = one_thread(*((n, 1) for n in range(count)), args=raw)
    assert all(d.args == args for d in replayed(builder, tmp_path).slices)


@pytest.mark.parametrize("count", [3, 300], ids=["one by one", "in columns"])
def test_texts_that_repeat_are_written_once(count: int, tmp_path: Path) -> None:
    args = {"kind of work": "a value that repeats", "types": ["c10::BFloat16"]}
    builder = one_thread(
        *((n, 1) for n in range(count)), name="a name", category="a category", args=args
    )
    data = write(builder, tmp_path).path.read_bytes()
    for text in (b"kind of work", b"c10::BFloat16", b"a name", b"a category"):
        assert data.count(text) == 1
    # A text that may stay alone is first written in place.
    assert data.count(b"a value that repeats") <= 2


# -- processes, threads, devices --------------------------------------------------------------


def test_two_hosts_with_one_pid_are_two_processes(tmp_path: Path) -> None:
    first, second = (Builder(host, 501, None) for host in ("hostA", "hostB"))
    for builder in (first, second):
        builder.slice(builder.track(), 0, 1)
    replay = replayed(link(merge("both", [first.trace(), second.trace()])), tmp_path)
    processes = [d.process for d in replay.descriptors.values() if d.HasField("process")]
    assert {p.process_name for p in processes} == {"hostA pid 501", "hostB pid 501"}
    assert len({p.pid for p in processes}) == 2
    assert all(0 < p.pid < 2**31 for p in processes)
    sequences = {p.trusted_packet_sequence_id for p in replay.packets if p.HasField("track_event")}
    assert len(sequences) == 2


def test_a_process_is_called_by_rank_host_and_its_real_pid(tmp_path: Path) -> None:
    builder = Builder("hostA", 1234, 3)
    builder.slice(builder.track(), 0, 1)
    (drawn,) = replayed(builder, tmp_path).slices
    assert replayed(builder, tmp_path / "b").path(drawn.uuid)[0] == "rank 3 (hostA) pid 1234"


def test_processes_stand_in_order_of_rank_and_the_main_thread_first(tmp_path: Path) -> None:
    traces = []
    for rank in (1, 0):
        builder = Builder("hostA", 500 + rank, rank)
        for name, tid in (("worker 9", 9), ("python (main)", 500 + rank), ("busy 10", 10)):
            track = builder.track(name=name, tid=tid)
            for number in range(3 if tid == 10 else 1):
                builder.slice(track, number, 1)
        traces.append(builder.trace())
    replay = replayed(link(merge("both", traces)), tmp_path)
    assert replay.descriptors[0].process_ordering == replay.descriptors[0].thread_ordering == 1
    processes = sorted(
        (d for d in replay.descriptors.values() if d.HasField("process")),
        key=lambda d: d.sibling_order_rank,
    )
    assert [d.process.process_name for d in processes] == [
        "rank 0 (hostA) pid 500",
        "rank 1 (hostA) pid 501",
    ]
    threads = sorted(
        (d for d in replay.descriptors.values() if d.parent_uuid == processes[0].uuid),
        key=lambda d: d.sibling_order_rank,
    )
    assert [d.thread.thread_name for d in threads] == ["python (main)", "busy", "worker"]
    assert [d.thread.tid for d in threads] == [500, 10, 9]


@pytest.mark.parametrize("tid", [0, -1, 2**31, 140_000_000_000_000, "CPU functions"])
def test_thread_numbers_that_viewers_cannot_take_are_replaced(
    tid: int | str, tmp_path: Path
) -> None:
    builder = Builder()
    for name in ("first", "second"):
        builder.slice(builder.track(name=name, tid=tid), 0, 5)
    replay = replayed(builder, tmp_path)
    threads = [d.thread for d in replay.descriptors.values() if d.HasField("thread")]
    assert {t.thread_name for t in threads} == {"first", "second"}
    assert len({t.tid for t in threads}) == 2
    assert all(0 < t.tid < 2**31 for t in threads)


@pytest.mark.parametrize(
    ("family", "name", "title"),
    [
        ("neuron", "NeuronCore 0", "NeuronCore 0"),
        ("neuron", "AWS Neuron", "NeuronCore 0: AWS Neuron"),
        ("cuda", "NVIDIA A100", "GPU 0: NVIDIA A100"),
        ("mtia", "ARTEMIS", "MTIA device 0: ARTEMIS"),
        ("other", "", "Device 0"),
    ],
)
def test_a_device_is_one_group_that_does_not_say_its_name_twice(
    family: str, name: str, title: str, tmp_path: Path
) -> None:
    builder = one_device(family, name)
    for stream in (7, 13):
        track = builder.track(TrackKind.DEVICE, f"stream {stream}", tid=stream, device=0)
        builder.slice(track, 0, 5, role=Role.KERNEL)
    replay = replayed(builder, tmp_path)
    paths = [replay.path(d.uuid)[1:] for d in replay.slices]
    assert paths == [[title, "stream 7"], [title, "stream 13"]]
    group = replay.descriptors[replay.descriptors[replay.slices[0].uuid].parent_uuid]
    assert group.child_ordering == messages.TrackDescriptor.EXPLICIT


def test_the_chip_is_named_only_when_the_instance_type_is_known(tmp_path: Path) -> None:
    builder = one_device()
    builder.slice(builder.track(TrackKind.DEVICE, "NeuronCore 0", device=0), 0, 5)
    replay = replayed(builder, tmp_path, instance_type="trn2.48xlarge")
    assert replay.path(replay.slices[0].uuid)[1] == "NeuronCore 0: AWS Trainium2"


def test_windows_details_and_annotations_have_rows_of_their_own(tmp_path: Path) -> None:
    builder = one_device()
    track = builder.track(TrackKind.DEVICE, "stream 7", tid=7, device=0)
    roles = (Role.KERNEL, Role.TRANSFER, Role.WINDOW, Role.DEVICE_DETAIL, Role.DEVICE_ANNOTATION)
    for place, role in enumerate(roles):
        builder.slice(track, place * 2, 5 if role is Role.WINDOW else 1, role.name, role)
    replay = replayed(builder, tmp_path)
    rows = {d.name: replay.path(d.uuid)[-1] for d in replay.slices}
    assert rows == {
        "KERNEL": "stream 7",
        "TRANSFER": "stream 7",
        "WINDOW": "stream 7 (host window)",
        "DEVICE_DETAIL": "stream 7 details",
        "DEVICE_ANNOTATION": "stream 7 annotations",
    }
    last = max(replay.descriptors.values(), key=lambda d: d.sibling_order_rank)
    assert last.name == "stream 7 (host window)"


def test_rows_with_equal_names_stay_apart(tmp_path: Path) -> None:
    builder = one_device()
    for tid in (1, 2):
        builder.slice(builder.track(TrackKind.DEVICE, "queue", tid=tid, device=0), 0, 5)
    replay = replayed(builder, tmp_path)
    keys = {replay.descriptors[d.uuid].sibling_merge_key for d in replay.slices}
    assert len(keys) == 2


# -- counters, memory, instants ---------------------------------------------------------------


def test_counters_have_units_and_stand_with_their_device_or_process(tmp_path: Path) -> None:
    builder = one_device()
    for name, unit, device in (("HBM", "bytes", 0), ("CPU", "%", None), ("Plain", "", None)):
        track = builder.track(TrackKind.COUNTER, name, unit=unit, device=device)
        builder.sample(track, 0, 1.5)
        builder.sample(track, 10, 0.0)
    replay = replayed(builder, tmp_path)
    assert Counter(d.value for d in replay.samples) == {1.5: 3, 0.0: 3}
    counters = {d.name: d for d in replay.descriptors.values() if d.HasField("counter")}
    assert counters["HBM"].counter.unit == messages.CounterDescriptor.UNIT_SIZE_BYTES
    assert counters["CPU"].counter.unit_name == "%"
    assert not counters["Plain"].counter.HasField("unit_name")
    assert replay.path(counters["HBM"].uuid)[1] == "NeuronCore 0"
    assert replay.path(counters["CPU"].uuid)[1] == "Process and host counters"


def test_counter_samples_that_are_no_number_are_counted_not_written(tmp_path: Path) -> None:
    builder = Builder()
    track = builder.track(TrackKind.COUNTER, "CPU")
    for value in (1.0, float("nan"), float("inf")):
        builder.sample(track, 0, value)
    written = write(builder, tmp_path)
    assert [d.value for d in Replay(written.path).samples] == [1.0]
    assert written.findings.of_kind("counter_not_finite") == 2


def test_memory_is_a_counter_per_device_and_what_was_not_reported_is_absent(
    tmp_path: Path,
) -> None:
    builder = one_device()
    thread = builder.track()
    builder.memory(thread, 0, 20, 0, 2**40, 2**41)
    builder.memory(thread, 1, 0, NONE, 100, NONE)
    builder.memory(thread, 2, 20, 0, NONE, NONE)
    builder.memory(thread, 3, 1, 5, 7, 8)
    replay = replayed(builder, tmp_path)
    samples = {tuple(replay.path(d.uuid)[1:]): (d.start - BASE, d.value) for d in replay.samples}
    assert samples == {
        ("NeuronCore 0", "Allocated (NeuronCore 0)"): (0, 2**40),
        ("NeuronCore 0", "Reserved (NeuronCore 0)"): (0, 2**41),
        ("Process and host counters", "Allocated (CPU)"): (1, 100),
        ("Process and host counters", "Allocated (device type 1, index 5)"): (3, 7),
        ("Process and host counters", "Reserved (device type 1, index 5)"): (3, 8),
    }
    assert len(replay.samples) == 5
    assert [d.name for d in replay.instants] == ["[memory]"] * 4
    assert replay.instants[0].args == {"Device Type": 20, "Bytes": 64}


def test_instants_stay_on_their_row_with_their_arguments(tmp_path: Path) -> None:
    builder = one_thread((0, 10))
    builder.instant(0, 5, "mark", {"why": "because"})
    builder.instant(builder.track(TrackKind.OTHER, "profiler marks", tid=""), 7)
    replay = replayed(builder, tmp_path)
    assert [(d.name, d.start - BASE, d.args) for d in replay.instants] == [
        ("mark", 5, {"why": "because"}),
        ("mark", 7, {}),
    ]
    assert replay.instants[0].uuid == replay.slices[0].uuid
    assert replay.path(replay.instants[1].uuid)[-1] == "profiler marks"


# -- clocks and what the file says about itself -----------------------------------------------


def test_epoch_times_come_with_one_clock_snapshot_that_changes_nothing(tmp_path: Path) -> None:
    replay = replayed(one_thread((0, 1), (2, 1)), tmp_path)
    (snapshot,) = [p.clock_snapshot for p in replay.packets if p.HasField("clock_snapshot")]
    clocks = {c.clock_id: c.timestamp for c in snapshot.clocks}
    assert clocks[BOOTTIME] == clocks[REALTIME]
    assert len(clocks) == 2
    assert not any(p.HasField("timestamp_clock_id") for p in replay.packets)


def test_files_of_different_times_state_their_clocks_at_one_moment(tmp_path: Path) -> None:
    """A snapshot before an earlier one is an error of trace_processor."""
    snapshots = []
    for run, start in (("later", 10**9), ("earlier", 0)):
        packets = Replay(write(one_thread((start, 1)), tmp_path, run).path).packets
        snapshots += [p.clock_snapshot for p in packets if p.HasField("clock_snapshot")]
    assert snapshots[0] == snapshots[1]


def test_times_of_an_unknown_origin_claim_no_real_time(tmp_path: Path) -> None:
    builder = one_thread((0, 1))
    builder.clock = Clock(ClockKind.RELATIVE)
    replay = replayed(builder, tmp_path)
    assert not any(p.HasField("clock_snapshot") for p in replay.packets)
    assert replay.attributes()["clock"] == "relative"


def test_findings_counts_and_sources_are_stored_in_the_file(tmp_path: Path) -> None:
    trace = link(one_thread((0, 10), (5, 10)).trace())
    trace.findings.add("events_dropped", "the source dropped events", 12)
    trace.sources.append("/home/somebody/secret/captures/i-0_pid_1/1/trace.json")
    trace.metadata.append({"distributedInfo": {"rank": 0}})
    attributes = replayed(trace, tmp_path).attributes()
    assert attributes["slices"] == 2
    assert attributes["version"] == neuron_tb.__version__
    assert json.loads(attributes["sources"]) == ["i-0_pid_1/1/trace.json"]
    findings = {f["kind"]: f["count"] for f in json.loads(attributes["findings"])}
    assert findings == {"events_dropped": 12, "overlapping_slices": 1}
    assert json.loads(attributes["metadata.rank 0 (hostA) pid 501"]) == trace.metadata[0]


# -- flows ------------------------------------------------------------------------------------


def test_an_execution_can_be_followed_back_to_its_operator(tmp_path: Path, samples: Path) -> None:
    trace = neuron_tb.load(samples / "rmsnorm" / "naive")
    replay = replayed(trace, tmp_path)
    before: dict[int, list[Drawn]] = defaultdict(list)
    for first, second in replay.arrows():
        before[id(second)].append(first)
    chains = []
    for drawn in replay.slices:
        if drawn.name == "nc_exec_running":
            (call,) = before[id(drawn)]
            (operator,) = before[id(call)]
            chains.append((operator.name, call.name))
            assert drawn.args["neuron_tb"]["operator"] == operator.name
            assert drawn.args["neuron_tb"]["device_time"] == "measured"
    expected = {"aten::mul": 3, "aten::add": 1, "aten::rsqrt": 1, "aten::mean": 1}
    assert Counter(name for name, _ in chains) == expected
    assert {call for _, call in chains} == {"nrta_execute_schedule"}


def test_both_physical_cores_of_an_execution_are_joined_to_its_call(
    tmp_path: Path, cases: Path
) -> None:
    trace = neuron_tb.load(
        cases / "neuron" / "torchneuron_cpu_only.json", cases / "neuron" / "system_profile.json"
    )
    replay = replayed(trace, tmp_path)
    executions = [d for d in replay.slices if d.name == "nc_exec_running"]
    assert len(executions) == 6
    assert all(len(d.flows) == 1 for d in executions)
    assert len({flow for d in executions for flow in d.flows}) == 6


def test_the_sources_own_arrow_from_call_to_kernel_is_not_drawn_twice(tmp_path: Path) -> None:
    builder = one_device("cuda", "A100")
    thread = builder.track()
    stream = builder.track(TrackKind.DEVICE, "stream 7", tid=7, device=0)
    forward = builder.slice(thread, 0, 5, "forward", Role.OPERATOR)
    call = builder.slice(thread, 1, 1, "cudaLaunchKernel", Role.RUNTIME, correlation=9)
    backward = builder.slice(thread, 10, 5, "backward", Role.OPERATOR)
    kernel = builder.slice(stream, 3, 4, "kernel", Role.KERNEL, correlation=9)
    builder.flow(call, kernel, "ac2g")
    builder.flow(forward, backward, "fwdbwd")
    pairs = {(a.name, b.name) for a, b in replayed(builder, tmp_path).arrows()}
    assert pairs == {("cudaLaunchKernel", "kernel"), ("forward", "backward")}


def test_one_call_with_four_kernels_has_four_arrows(tmp_path: Path, cases: Path) -> None:
    replay = replayed(neuron_tb.load(cases / "odd" / "flow_fanout.json"), tmp_path)
    assert len(replay.arrows()) == 4
    assert len({id(first) for first, _ in replay.arrows()}) == 1


def test_an_arrow_between_slices_of_equal_time_starts_at_the_caller(tmp_path: Path) -> None:
    builder = one_device("cuda", "A100")
    stream = builder.track(TrackKind.DEVICE, "stream 7", tid=7, device=0)
    thread = builder.track()
    builder.slice(stream, 0, 4, "kernel", Role.KERNEL, correlation=9)
    builder.slice(thread, 0, 4, "cudaLaunchKernel", Role.RUNTIME, correlation=9)
    ((first, second),) = replayed(builder, tmp_path).arrows()
    assert (first.name, second.name) == ("cudaLaunchKernel", "kernel")


# -- files of two ranks -----------------------------------------------------------------------


def rank_file(tmp_path: Path, rank: int) -> Path:
    events = [
        makers.operator("aten::mm", 0, 10, external=1),
        makers.launch(2, 2, correlation=5),
        makers.kernel("gemm", 8, 20, correlation=5),
    ]
    path = makers.write_kineto(
        tmp_path / f"rank{rank}.json", events, distributedInfo={"rank": rank}
    )
    return write(neuron_tb.load(path), tmp_path, f"rank{rank}").path


def test_files_of_two_ranks_can_be_joined_byte_by_byte(tmp_path: Path) -> None:
    paths = [rank_file(tmp_path, rank) for rank in (0, 1)]
    joined = tmp_path / "joined.pftrace"
    joined.write_bytes(b"".join(path.read_bytes() for path in paths))
    report = check(joined)
    assert report.problems == []
    assert report.slices == 6
    replay = Replay(joined)
    assert len(replay.arrows()) == 2
    for first, second in replay.arrows():
        assert replay.path(first.uuid)[0] == replay.path(second.uuid)[0]
    processes = [d for d in replay.descriptors.values() if d.HasField("process")]
    assert len(processes) == 2
    assert sorted(d.sibling_order_rank for d in processes) == [0, 1]


# -- refusing ---------------------------------------------------------------------------------


def test_an_existing_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    builder = one_thread((0, 1))
    path = write(builder, tmp_path).path
    with pytest.raises(NeuronTbError, match="--force"):
        write(builder, tmp_path)
    assert write(one_thread((0, 1), (2, 1)), tmp_path, force=True).slices == 2
    assert check(path).slices == 2


def test_a_capture_without_anything_is_skipped_with_a_sentence(tmp_path: Path) -> None:
    written = write(Builder(), tmp_path)
    assert written.path is None
    assert written.skipped
    assert list(tmp_path.iterdir()) == []


# -- the check --------------------------------------------------------------------------------

Damage = Callable[[list[Any]], None]


def _events(packets: list[Any], kind: int) -> list[Any]:
    return [p for p in packets if p.track_event.type == kind]


def lose_descriptor(packets: list[Any]) -> None:
    packets.remove(next(p for p in packets if p.track_descriptor.HasField("thread")))


def lose_parent(packets: list[Any]) -> None:
    packets.remove(next(p for p in packets if p.track_descriptor.HasField("process")))


def lose_names(packets: list[Any]) -> None:
    for packet in packets:
        packet.interned_data.ClearField("event_names")


def lose_argument_names(packets: list[Any]) -> None:
    for packet in packets:
        packet.interned_data.ClearField("debug_annotation_names")


def lose_state(packets: list[Any]) -> None:
    for packet in packets:
        packet.sequence_flags &= ~1


def lose_sequence(packets: list[Any]) -> None:
    for packet in _events(packets, BEGIN):
        packet.ClearField("trusted_packet_sequence_id")


def lose_end(packets: list[Any]) -> None:
    packets.remove(_events(packets, END)[-1])


def lose_slice(packets: list[Any]) -> None:
    packets.remove(_events(packets, BEGIN)[-1])
    packets.remove(_events(packets, END)[-1])


def lose_flow_end(packets: list[Any]) -> None:
    next(p for p in packets if p.track_event.flow_ids).track_event.ClearField("flow_ids")


def lose_counts(packets: list[Any]) -> None:
    packets.remove(next(p for p in packets if p.HasField("trace_attributes")))


def swap_order(packets: list[Any]) -> None:
    """A longer slice of the same start behind a shorter one: viewers swap the two."""
    begin = _events(packets, BEGIN)[-1]
    place = packets.index(begin)
    for packet in (begin, packets[place + 1]):
        longer = type(packet)()
        longer.CopyFrom(packet)
        packets.append(longer)
    packets[-1].timestamp += 10


def overlap(packets: list[Any]) -> None:
    end = _events(packets, END)[0]
    end.timestamp += 1


def share_uuid(packets: list[Any]) -> None:
    packet = next(p for p in packets if p.track_descriptor.HasField("thread"))
    copy = type(packet)()
    copy.CopyFrom(packet)
    copy.track_descriptor.thread.thread_name = "somebody else"
    packets.append(copy)


def share_pid(packets: list[Any]) -> None:
    packet = next(p for p in packets if p.track_descriptor.HasField("process"))
    copy = type(packet)()
    copy.CopyFrom(packet)
    copy.track_descriptor.uuid += 1
    packets.append(copy)


def wrong_clock(packets: list[Any]) -> None:
    packets[0].clock_snapshot.clocks[0].timestamp += 1


DAMAGES: dict[Damage, str] = {
    lose_descriptor: "no descriptor",
    lose_parent: "group that is not described",
    lose_names: "name that is not interned",
    lose_argument_names: "arguments have a name",
    lose_state: "valid state",
    lose_sequence: "no sequence id",
    lose_end: "slices would not be shown",
    lose_slice: "says 4",
    lose_flow_end: "flow ids",
    lose_counts: "does not say how many slices",
    swap_order: "slices would not be shown",
    overlap: "slices would not be shown",
    share_uuid: "uuids",
    share_pid: "share a pid",
    wrong_clock: "clock snapshots",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_the_check_finds(damage: Damage, tmp_path: Path) -> None:
    builder = one_device("cuda", "A100")
    thread = builder.track()
    stream = builder.track(TrackKind.DEVICE, "stream 7", tid=7, device=0)
    builder.slice(thread, 0, 10, "op", Role.OPERATOR, args={"External id": 1})
    builder.slice(thread, 1, 1, "launch", Role.RUNTIME, correlation=9)
    builder.slice(thread, 10, 5, "next op", Role.OPERATOR)
    builder.slice(stream, 3, 4, "kernel", Role.KERNEL, correlation=9)
    path = write(builder, tmp_path).path
    assert check(path).passed
    trace = messages.Trace.FromString(path.read_bytes())
    packets = list(trace.packet)
    damage(packets)
    path.write_bytes(messages.Trace(packet=packets).SerializeToString())
    report = check(path)
    assert not report.passed
    assert DAMAGES[damage] in " | ".join(report.problems)


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_the_check_reports_a_file_that_is_cut_off(keep: int, tmp_path: Path) -> None:
    path = write(one_thread((0, 1)), tmp_path).path
    path.write_bytes(path.read_bytes()[:keep])
    assert not check(path).passed


def test_the_check_reports_a_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    path.write_text('{"traceEvents": []}')
    assert "no packet" in check(path).problems[0]


def test_the_check_is_skipped_with_a_sentence_without_perfettos_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(one_thread((0, 1)), tmp_path).path
    monkeypatch.setitem(sys.modules, "perfetto", None)
    report = check(path)
    assert "pip install" in (report.skipped or "")
    assert report.passed


def test_a_trace_processor_that_does_not_run_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_TB_TRACE_PROCESSOR", str(tmp_path / "absent"))
    report = check(write(one_thread((0, 1)), tmp_path).path)
    assert "trace_processor failed" in report.problems[0]


def test_the_check_says_what_each_view_has(tmp_path: Path, samples: Path) -> None:
    report = check(write(neuron_tb.load(samples / "training"), tmp_path).path)
    assert report.passed
    views = {view.name: view.content for view in report.views}
    assert "rank 0 (" in views["Processes"]
    assert "rank 1 (" in views["Processes"]
    assert views["Devices"].startswith("NeuronCore 0: ")
    assert set(views) == {
        "Processes",
        "Threads",
        "Runtime",
        "Devices",
        "Other rows",
        "Counters",
        "Flows",
    }


@pytest.mark.parametrize(
    "sample", ["rmsnorm/naive", "rmsnorm/rms_norm", "rmsnorm/compiled", "training"]
)
def test_every_slice_of_a_sample_is_in_the_file(sample: str, tmp_path: Path, samples: Path) -> None:
    trace = neuron_tb.load(samples / sample)
    replay = replayed(trace, tmp_path)
    assert_same_slices(trace, replay)


REAL = (
    "hta_amd_mi250_rocm62.json.gz",
    "hta_cpu_only_rank34.pt.trace.json.gz",
    "hta_alexnet_overlaps.json.gz",
    "hta_sampled_rank0.json.gz",
    "hta_sampled_rank1.json.gz",
    "kineto_gpu_metrics_input.json",
    "tracelens_torch_compile_triton.json.gz",
    "perfetto_flow_v1.json",
    "aiu_allreduce_tp4.json",
    "user_dtu_profile_memory.json",
    "hta_mtia_inference_rank0.json.gz",
)


@pytest.mark.parametrize("name", REAL)
def test_every_slice_of_a_real_trace_is_in_the_file(name: str, tmp_path: Path, cases: Path) -> None:
    trace = neuron_tb.load(cases / "real" / name)
    assert_same_slices(trace, replayed(trace, tmp_path))


@pytest.mark.parametrize(
    "sources",
    [
        ["privateuse1_driver.json"],
        ["torchneuron_cpu_only.json", "system_profile.json"],
        ["trace_json_like.json"],
        ["doc_system_profile.json"],
    ],
    ids=lambda names: names[0],
)
def test_every_slice_of_a_neuron_shape_is_in_the_file(
    sources: list[str], tmp_path: Path, cases: Path
) -> None:
    trace = neuron_tb.load(*(cases / "neuron" / name for name in sources))
    assert_same_slices(trace, replayed(trace, tmp_path))


def assert_same_slices(trace: Trace, replay: Replay) -> None:
    expected = Counter(
        (trace.string(name), start, duration)
        for name, start, duration in zip(
            trace.slices.name.tolist(),
            trace.slices.start_ns.tolist(),
            trace.slices.duration_ns.tolist(),
            strict=True,
        )
    )
    found = Counter((d.name, d.start, d.duration) for d in replay.slices)
    if trace.clock.resolution_ns <= 1:
        assert found == expected
    else:  # an end may be rounded to its parent's
        assert Counter((n, s) for n, s, _ in found.elements()) == Counter(
            (n, s) for n, s, _ in expected.elements()
        )
    assert len(replay.instants) == len(trace.instants) + len(trace.memory)


@pytest.mark.parametrize("count", [1, 60], ids=["alone", "in columns"])
@pytest.mark.parametrize(
    "nested",
    [
        {"model": "a", "exec_id": 7, "share": 0.5, "ids": ["1", "22"]},
        {"text": "with { a brace }", "n": 1},
        {"text": 'with " a quotation mark', "n": 1},
        {"empty": {}},
        {"deep": {"deeper": 1}},
        {"n": None},
        {"ids": []},
        {"ids": ["1", "x"]},
        {"ids": ["1", 2]},
    ],
    ids=repr,
)
def test_nested_arguments_keep_type_and_value(
    nested: dict[str, Any], count: int, tmp_path: Path
) -> None:
    args = {"id": 1, "flow_id": ["281474976710657", "5"], "more": nested}
    builder = one_thread(*((n, 1) for n in range(count)), args=args)
    shown = {key: json.dumps(v) if v in (None, {}, []) else v for key, v in nested.items()}
    for drawn in replayed(builder, tmp_path).slices:
        assert drawn.args == {"id": 1, "flow_id": ["281474976710657", "5"], "more": shown}


def test_lists_of_identifiers_that_differ_from_event_to_event_are_kept(tmp_path: Path) -> None:
    builder = Builder()
    track = builder.track()
    wanted = [[str(n * 10**15), str(n)][: 1 + n % 2] for n in range(60)]
    for n, ids in enumerate(wanted):
        builder.slice(track, n, 1, args={"id": n, "flow_id": ids})
    assert [drawn.args["flow_id"] for drawn in replayed(builder, tmp_path).slices] == wanted
