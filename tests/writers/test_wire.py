"""converters/writers/wire.py against protobuf's own encoder and decoder."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_tb.converters.model.ragged import Ragged
from neuron_tb.converters.writers import wire
from neuron_tb.converters.writers.wire import Rows

messages = pytest.importorskip(
    "perfetto.protos.perfetto.trace.perfetto_trace_pb2",
    reason="perfetto's messages are real ones with every kind of field",
)

TIMESTAMP, TRACK_EVENT = 8, 11
CATEGORY, TRACK_UUID, VALUE, NAME, DOUBLE, FLOWS = 3, 11, 17, 23, 44, 47

few = settings(max_examples=100, deadline=None)
int64 = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1, -1, 127, 128, 2**60, 2**60 + 1])
)
uint64 = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 300))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
event = st.fixed_dictionaries(
    {
        "timestamp": uint64,
        "category": st.none() | st.integers(0, 2**40),
        "track_uuid": uint64,
        "value": int64,
        "double": st.none() | st.floats(),
        "flows": st.lists(uint64, max_size=3),
        "name": st.none() | texts,
    }
)


def whole(*rows: Rows) -> list[bytes]:
    """The bytes of every row of fields that stand side by side."""
    joined = wire.side_by_side(*rows)
    return cut(joined.tobytes(), joined.lengths)


def cut(data: bytes, lengths: np.ndarray) -> list[bytes]:
    ends = np.cumsum(lengths).tolist()
    return [data[end - n : end] for end, n in zip(ends, lengths.tolist(), strict=True)]


@few
@given(st.lists(int64, max_size=20))
def test_signed_varints_are_protobufs(values: list[int]) -> None:
    encoded = whole(wire.varint_field(VALUE, np.array(values, np.int64)))
    assert encoded == [
        messages.TrackEvent(thread_time_absolute_us=v).SerializeToString() for v in values
    ]


@few
@given(st.lists(uint64, max_size=20))
def test_unsigned_varints_are_protobufs(values: list[int]) -> None:
    encoded = whole(wire.varint_field(TRACK_UUID, np.array(values, np.uint64)))
    assert encoded == [messages.TrackEvent(track_uuid=v).SerializeToString() for v in values]


@few
@given(st.lists(uint64, max_size=20))
def test_fixed_fields_are_protobufs(values: list[int]) -> None:
    encoded = whole(wire.fixed64_field(FLOWS, np.array(values, np.uint64)))
    assert encoded == [messages.TrackEvent(flow_ids=[v]).SerializeToString() for v in values]


@few
@given(st.lists(st.floats(), max_size=20))
def test_doubles_are_protobufs(values: list[float]) -> None:
    encoded = whole(wire.double_field(DOUBLE, np.array(values, np.float64)))
    expected = [messages.TrackEvent(double_counter_value=v).SerializeToString() for v in values]
    assert encoded == expected


@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_every_width_of_integer_becomes_a_varint(kind: type[np.generic]) -> None:
    values = np.array([0, 1], kind)
    assert wire.varint(values).tobytes() == b"\x00\x01"


@few
@given(st.integers(-(2**63), 2**64 - 1))
def test_one_varint_is_the_columns_varint(value: int) -> None:
    column = np.array([value], np.int64 if value < 2**63 else np.uint64)
    assert wire.encode_varint(value) == wire.varint(column).tobytes()


@few
@given(texts, int64, st.floats(), st.binary(max_size=200))
def test_single_fields_are_protobufs(text: str, number: int, value: float, data: bytes) -> None:
    fields = wire.encode_field(NAME, text) + wire.encode_field(VALUE, number)
    fields += wire.encode_field(DOUBLE, value)
    parsed = messages.TrackEvent.FromString(fields)
    assert (parsed.name, parsed.thread_time_absolute_us) == (text, number)
    assert parsed.double_counter_value == value or math.isnan(value)
    inner = messages.InternedString.FromString(wire.encode_field(2, data))
    assert inner.str == data


def test_text_that_utf8_cannot_hold_is_replaced() -> None:
    assert messages.TrackEvent.FromString(wire.encode_field(NAME, "a\ud800b")).name == "a?b"


def encode_packets(events: list[dict[str, Any]]) -> bytes:
    """Trace packets as a writer makes them: nested, optional, repeated and ragged fields."""

    def column(key: str, kind: type[np.generic], absent: Any = 0) -> np.ndarray:
        return np.array([absent if e[key] is None else e[key] for e in events], kind)

    def present(key: str) -> np.ndarray:
        return np.array([e[key] is not None for e in events], np.bool_)

    flows = np.array([f for e in events for f in e["flows"]], np.uint64)
    counts = np.array([len(e["flows"]) for e in events], np.int64)
    flow_bytes = wire.fixed64_field(FLOWS, flows).tobytes()
    ragged_flows = Ragged.back_to_back(flow_bytes, counts * 10)
    names = Ragged.of(
        [b"" if e["name"] is None else wire.encode_field(NAME, e["name"]) for e in events]
    )
    body = wire.side_by_side(
        wire.varint_field(CATEGORY, column("category", np.int64), present("category")),
        wire.varint_field(TRACK_UUID, column("track_uuid", np.uint64)),
        wire.varint_field(VALUE, column("value", np.int64)),
        wire.double_field(DOUBLE, column("double", np.float64), present("double")),
    )
    tail = ragged_flows.lengths + names.lengths
    packet = wire.side_by_side(
        wire.varint_field(TIMESTAMP, column("timestamp", np.uint64)),
        wire.message_field(TRACK_EVENT, body, tail=tail),
    )
    return wire.splice(wire.message_field(1, packet, tail=tail), ragged_flows, names)


@few
@given(st.lists(event, max_size=12))
def test_nested_messages_come_back_from_protobuf(events: list[dict[str, Any]]) -> None:
    parsed = messages.Trace.FromString(encode_packets(events))
    assert len(parsed.packet) == len(events)
    for packet, wanted in zip(parsed.packet, events, strict=True):
        inner = packet.track_event
        assert packet.timestamp == wanted["timestamp"]
        assert inner.track_uuid == wanted["track_uuid"]
        assert inner.thread_time_absolute_us == wanted["value"]
        assert list(inner.flow_ids) == wanted["flows"]
        category = [] if wanted["category"] is None else [wanted["category"]]
        assert list(inner.category_iids) == category
        assert inner.HasField("name") == (wanted["name"] is not None)
        assert inner.name == (wanted["name"] or "")
        assert inner.HasField("double_counter_value") == (wanted["double"] is not None)
        if wanted["double"] is not None and not math.isnan(wanted["double"]):
            assert inner.double_counter_value == wanted["double"]


@few
@given(st.lists(event, min_size=2, max_size=12), st.data())
def test_chunks_encode_to_the_same_bytes(events: list[dict[str, Any]], data: st.DataObject) -> None:
    middle = data.draw(st.integers(1, len(events) - 1))
    parts = encode_packets(events[:middle]) + encode_packets(events[middle:])
    assert parts == encode_packets(events)


def test_an_absent_message_takes_no_bytes() -> None:
    body = wire.varint_field(VALUE, np.array([1, 2, 3]))
    field = wire.message_field(TRACK_EVENT, body, np.array([True, False, True]))
    assert field.lengths.tolist() == [5, 0, 5]
    parsed = messages.TracePacket.FromString(whole(field)[2])
    assert parsed.track_event.thread_time_absolute_us == 3


@few
@given(st.lists(st.tuples(st.binary(max_size=5), st.binary(max_size=300)), max_size=12))
def test_ragged_rows_are_spliced_row_by_row(rows: list[tuple[bytes, bytes]]) -> None:
    left, right = (Ragged.of([row[side] for row in rows]) for side in (0, 1))
    middle = wire.constant(b"|", len(rows))
    expected = [a + b"|" + b for a, b in rows]
    assert wire.splice(left, middle, right) == b"".join(expected)
    joined = wire.joined(left, middle, right)
    assert cut(joined.tobytes(), joined.lengths) == expected


@few
@given(st.lists(st.binary(max_size=20), min_size=1), st.data())
def test_ragged_rows_can_be_taken_in_any_order(rows: list[bytes], data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.integers(0, len(rows) - 1)))
    taken = Ragged.of(rows).take(np.array(wanted, np.int64))
    assert cut(taken.tobytes(), taken.lengths) == [rows[i] for i in wanted]


def test_columns_without_rows_encode_to_nothing() -> None:
    assert encode_packets([]) == b""
    assert wire.joined(Ragged.of([]), wire.constant(b"x", 0)).tobytes() == b""


def test_a_message_longer_than_one_length_byte_keeps_its_length() -> None:
    names = Ragged.of([wire.encode_field(NAME, "n" * size) for size in (1, 200, 20_000)])
    body = wire.varint_field(TRACK_UUID, np.array([1, 2, 3]))
    packet = wire.message_field(TRACK_EVENT, body, tail=names.lengths)
    packed = wire.splice(wire.message_field(1, packet, tail=names.lengths), names)
    parsed = messages.Trace.FromString(packed)
    assert [len(p.track_event.name) for p in parsed.packet] == [1, 200, 20_000]
