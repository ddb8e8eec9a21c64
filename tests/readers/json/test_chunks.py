"""A list decoded piece by piece is the list decoded at once, whatever its strings hold."""

from __future__ import annotations

import json
import mmap
import os
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_tb.converters.model import Trace
from neuron_tb.converters.readers import read_file
from neuron_tb.converters.readers.json import chunks as chunks_module
from neuron_tb.converters.readers.json import mapped
from neuron_tb.converters.readers.json.chunks import Listing, chunks
from neuron_tb.converters.readers.kineto import rows as kineto_rows
from neuron_tb.converters.readers.kineto.events import places
from tests.makers import kernel, launch, operator, step, window, write_kineto

LOOK_LIKE_ENDS = [
    '},{"ph":',
    '}, {\n "ph": "X"',
    '"},{"',
    "\\",
    '\\"},{',
    "]}",
    "[{",
    "},",
    "{}",
    "é𝄞",
]

strings = st.lists(st.sampled_from(LOOK_LIKE_ENDS) | st.text(max_size=4), max_size=4).map("".join)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=6,
)
rows = st.dictionaries(st.sampled_from(["ph", "name", "args"]) | strings, values, max_size=4)
texts = st.sampled_from([(",", ":", None), (", ", ": ", None), (",", ": ", 2)])


@settings(max_examples=150, deadline=None)
@given(st.lists(rows | values, max_size=12), texts, st.integers(1, 200), st.booleans())
def test_pieces_of_any_size_give_the_rows_of_the_whole(
    array: list[Any], form: tuple[str, str, int | None], size: int, ascii_only: bool
) -> None:
    comma, colon, indent = form
    text = json.dumps(array, separators=(comma, colon), indent=indent, ensure_ascii=ascii_only)
    data = b'{"traceEvents": ' + text.encode("utf-8", "surrogatepass") + b"}"
    listing = Listing(data, 16, len(data) - 1)
    found = list(chunks(listing, msgspec.json.Decoder(list[msgspec.Raw]).decode, size))
    assert [bytes(row) for chunk in found for row in chunk.rows] == [
        bytes(row) for row in msgspec.json.decode(data[16:-1], type=list[msgspec.Raw])
    ]
    for chunk in found:
        first, last = chunk.offset + 1, chunk.offset + len(chunk.text) - 1
        assert data[first:last] == chunk.text[1:-1]


@settings(max_examples=60, deadline=None)
@given(st.lists(rows, min_size=2, max_size=12), texts)
def test_halves_that_decode_are_the_whole(
    array: list[Any], form: tuple[str, str, int | None]
) -> None:
    comma, colon, indent = form
    text = json.dumps(array, separators=(comma, colon), indent=indent)
    data = b'{"traceEvents": ' + text.encode() + b"}"
    halves = Listing(data, 16, len(data) - 1).halves()
    if halves is None:
        return
    decode = msgspec.json.Decoder(list[msgspec.Raw]).decode
    try:
        found = [bytes(row) for half in halves for c in chunks(half, decode, 20) for row in c.rows]
    except msgspec.DecodeError:
        return
    assert found == [bytes(row) for row in decode(data[16:-1])]


def test_plain_rows_are_cut_near_the_wanted_size() -> None:
    data = json.dumps([{"ph": "X", "name": "n" * 20}] * 1000).encode()
    listing = Listing(data, 0, len(data))
    sizes = [len(chunk.text) for chunk in chunks(listing, msgspec.json.decode, 1000)]
    assert len(sizes) > 30
    assert max(sizes) < 2000


def test_a_row_larger_than_a_piece_is_read_whole() -> None:
    array = [{"ph": "X", "args": {"list": [{"ph": n} for n in range(500)]}}] * 3
    data = json.dumps(array).encode()
    found = list(chunks(Listing(data, 0, len(data)), msgspec.json.decode, 100))
    assert [row for chunk in found for row in chunk.rows] == array


def test_the_fault_of_the_array_is_passed_on() -> None:
    data = b'[{"ph": "X"}, {"ph": nonsense}, {"ph": "X"}]'
    with pytest.raises(msgspec.DecodeError):
        list(chunks(Listing(data, 0, len(data)), msgspec.json.decode, 5))


# -- a whole file -----------------------------------------------------------------------------


def contents(trace: Trace) -> list[Any]:
    """All rows with their strings and arguments, for comparison."""
    tables = [trace.slices, trace.instants, trace.counters, trace.memory, trace.flows]
    found: list[Any] = [trace.tracks, trace.processes, trace.devices, trace.clock, trace.metadata]
    for table in tables:
        columns = {f.name: getattr(table, f.name) for f in fields(table)}
        for name in ("name", "category", "kind"):
            if name in columns:
                columns[name] = [trace.string(n) for n in columns[name]]
        if "args_start" in columns:
            starts, lengths = columns.pop("args_start"), columns.pop("args_length")
            columns["args"] = trace.arguments.texts(starts, lengths)
        found.append({name: list(column) for name, column in columns.items()})
    return [*found, trace.findings.as_dicts()]


def with_chunks_of(size: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    with monkeypatch.context() as patch:
        patch.setattr(chunks_module, "SIZE", size)
        return contents(read_file(path))


def many_shapes() -> list[dict[str, Any]]:
    odd = {"args": {"args": {"args": 1}, "text": '},{"ph":"X","args":{'}}
    events: list[dict[str, Any]] = []
    for n in range(40):
        at = n * 100.125
        events += [
            operator("aten::mul", at, 50.5, external=n),
            launch(at + 1, 2, correlation=n),
            kernel("k", at + 3, 10, correlation=n),
            window("mul", at + 3, 9, n, nrt_sequence_id=n, neff_cache_key="x"),
            {
                "ph": "s",
                "id": n,
                "pid": 501,
                "tid": 501,
                "ts": at + 1,
                "cat": "ac2g",
                "name": "ac2g",
            },
            {"ph": "f", "id": n, "pid": 0, "tid": 7, "ts": at + 3, "cat": "ac2g", "bp": "e"},
            {"ph": "C", "name": "memory", "pid": 501, "ts": at, "args": {"bytes": n}},
            {"ph": "i", "name": "[memory]", "pid": 501, "tid": 501, "ts": at, "args": {"Bytes": n}},
            {"ph": "B", "name": "b", "pid": 501, "tid": 9, "ts": at, "args": {"from": n}},
            {"ph": "E", "name": "b", "pid": 501, "tid": 9, "ts": at + 5, "args": {"to": n}},
            operator("no end", at, None) | odd,
            operator("text", str(at), "1.5") | odd,
            {"ph": "X", "name": 7, "ts": at, "dur": 1, "pid": [], "tid": 1, "args": []},
            {"ph": "M", "name": "process_name", "pid": 501, "args": {"name": "python"}},
        ]
    return [*events, step(0, 0, 5000)]


@pytest.mark.parametrize("epoch", [False, True], ids=["base time", "epoch microseconds"])
def test_a_file_reads_the_same_in_pieces_of_any_size(
    epoch: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = many_shapes()
    top: dict[str, Any] = {}
    if epoch:
        top = {"baseTimeNanoseconds": None}
        for event in events:
            if isinstance(event.get("ts"), int | float):
                event["ts"] += 1_759_300_074_000_000
    path = write_kineto(tmp_path / "t.json", events, **top)
    whole = with_chunks_of(1 << 30, path, monkeypatch)
    assert with_chunks_of(1, path, monkeypatch) == whole
    assert with_chunks_of(999, path, monkeypatch) == whole


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_rows, "may_fork", lambda size: True)


@pytest.mark.usefixtures("two_processes")
@pytest.mark.parametrize("repetitions", [1, 30])
@pytest.mark.parametrize("epoch", [False, True], ids=["base time", "epoch microseconds"])
def test_two_processes_read_what_one_reads(
    epoch: bool, repetitions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = many_shapes() * repetitions
    if repetitions > 1:  # entries that say where they stand are for one process to read
        events = [event for event in events if event.get("name") != 7]
    top: dict[str, Any] = {"baseTimeNanoseconds": None} if epoch else {}
    for event in events[: len(many_shapes())] if epoch else []:
        if isinstance(event.get("ts"), int | float) and event["ts"] < 1e15:
            event["ts"] += 1_759_300_074_000_000
    path = write_kineto(tmp_path / "t.json", events, **top)
    found = contents(read_file(path))
    with monkeypatch.context() as patch:
        patch.setattr(kineto_rows, "may_fork", lambda size: False)
        assert contents(read_file(path)) == found


@pytest.mark.usefixtures("two_processes")
def test_halves_that_are_none_are_read_by_one_process(tmp_path: Path) -> None:
    rows_within = [{"ph": "X", "name": str(n)} for n in range(2000)]
    around = operator("a", 1, 2) | {"args": {"rows": rows_within}}
    trace = read_file(write_kineto(tmp_path / "t.json", [around, operator("b", 5, 1)]))
    assert trace.args(0) == {"rows": rows_within}
    assert [trace.strings[n] for n in trace.slices.name] == ["a", "b"]


@pytest.mark.usefixtures("two_processes")
def test_a_second_process_that_dies_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_kineto(tmp_path / "t.json", many_shapes())
    before = contents(read_file(path))
    monkeypatch.setattr(kineto_rows.RowReader, "_half", lambda self, listing: os._exit(3))
    assert contents(read_file(path)) == before


@pytest.mark.parametrize("minutes", [0, 5], ids=["just written", "settled"])
@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_large_file_stays_outside_memory(
    name: str, minutes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    path = write_kineto(tmp_path / name, many_shapes())
    in_memory = contents(read_file(path))
    monkeypatch.setattr(mapped, "SMALL", 1000)
    then = time.time() - 60 * minutes
    os.utime(path, (then, then))
    trace = read_file(path)
    assert isinstance(trace.arguments.pieces[0], mmap.mmap)
    assert contents(trace) == in_memory


def test_a_new_file_may_be_overwritten_while_it_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_kineto(tmp_path / "t.json", many_shapes())
    monkeypatch.setattr(mapped, "SMALL", 1000)
    before = contents(read_file(path))
    trace = read_file(path)
    path.write_bytes(b"")
    assert contents(trace) == before


def test_without_room_for_a_temporary_file_a_text_stays_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "SMALL", 10)
    spool = mapped.Spool()
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    monkeypatch.setattr(mapped.tempfile, "TemporaryFile", lambda **more: full.open("r+b", **more))
    for _ in range(5):
        spool.write(b"12345678")
    assert spool.text() == b"12345678" * 5


# -- where arguments stand ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b'[{"args":{"a":1}},{"args": {"b":2}}]',
        b'[{"args" :{"a":1}},{"args":\n{"b":2}}]',
        b'[{"args":{"a":1},"x":"\\"args\\":"},{"\\u0061rgs":{"b":2}}]',
        b'[{"args":{"a":1}},{"x\\"args":{"b":3},"args":{"b":2}}]',
        b'[{"args":{"b":2},"args":{"a":1}},{"args":{"b":2}}]',
        b'[{"name":"{\'a\':1}","args":{"a":1}},{"name":"x","args":{"b":2},"z":{"b":2}}]',
    ],
)
def test_arguments_are_found_however_their_key_is_written(text: bytes) -> None:
    class Row(msgspec.Struct):
        args: msgspec.Raw

    raws = [memoryview(row.args) for row in msgspec.json.decode(text, type=list[Row])]
    found = places(raws, text)
    assert found is not None
    starts, lengths = found
    pairs = zip(starts.tolist(), lengths.tolist(), strict=True)
    assert [text[s : s + n] for s, n in pairs] == [b'{"a":1}', b'{"b":2}']


def test_arguments_that_stand_elsewhere_are_not_found() -> None:
    assert places([memoryview(b'{"c":1}')], b'[{"args":{"a":1}}]') is None


def test_arguments_that_say_nothing_have_no_length() -> None:
    text = b'[{"args":{}},{"args":null},{"args":{"a":1}},{"args":[1]},{"args":12}]'
    raws = [memoryview(t) for t in (b"{}", b"null", b'{"a":1}', b"[1]", b"12")]
    found = places(raws, text)
    assert found is not None
    assert found[1].tolist() == [0, 0, 7, 3, 2]
    assert isinstance(found[0], np.ndarray)
