"""Columns of byte strings, against lists of byte strings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_tb.converters.model.arguments import Arguments
from neuron_tb.converters.model.ragged import Ragged, decimals, distinct_rows, joined, stacked

few = settings(max_examples=100, deadline=None)
texts = st.lists(st.binary(max_size=12), max_size=8)


def rows(column: Ragged) -> list[bytes]:
    found: list[bytes] = column.array.to_pylist()
    return found


@few
@given(texts, st.data())
def test_rows_are_taken_replaced_and_joined_like_list_items(
    items: list[bytes], data: st.DataObject
) -> None:
    column = Ragged.of(items)
    assert rows(column) == items
    assert column.lengths.tolist() == [len(item) for item in items]
    assert column.tobytes() == b"".join(items)
    assert rows(joined(b"<", column, column, b">")) == [b"<" + i + i + b">" for i in items]
    assert rows(stacked([column, column])) == items * 2
    if items:
        wanted = data.draw(st.lists(st.integers(0, len(items) - 1), max_size=9))
        taken = column.take(np.array(wanted, np.int64))
        assert rows(taken) == [items[i] for i in wanted]
        assert taken.tobytes() == b"".join(rows(taken))
        changed = sorted(set(wanted))
        new = column.replaced(np.array(changed, np.int64), Ragged.of([b"new"] * len(changed)))
        assert rows(new) == [b"new" if i in changed else item for i, item in enumerate(items)]
        distinct, index = column.distinct()
        assert [distinct[i] for i in index.tolist()] == items
        assert distinct == list(dict.fromkeys(items))


@few
@given(st.binary(max_size=40), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12))))
def test_ranges_come_in_any_order_and_overlap(text: bytes, ranges: list[tuple[int, int]]) -> None:
    inside = [(start, length) for start, length in ranges if start + length <= len(text)]
    starts = np.array([start for start, _ in inside], np.int64)
    lengths = np.array([length for _, length in inside], np.int64)
    expected = [text[start : start + length] for start, length in inside]
    assert rows(Ragged.ranges(text, starts, lengths)) == expected
    assert rows(Arguments([text]).rows(starts, lengths)) == expected


@few
@given(texts, st.data())
def test_arguments_of_several_pieces_are_one_column(
    pieces: list[bytes], data: st.DataObject
) -> None:
    arguments = Arguments(pieces)
    places = [(s, len(p)) for s, p in zip(arguments.starts, arguments.pieces, strict=True)]
    wanted = data.draw(st.lists(st.sampled_from([*places, (0, 0)]), max_size=9))
    starts = np.array([start for start, _ in wanted], np.int64)
    lengths = np.array([length for _, length in wanted], np.int64)
    expected = [arguments.text(start, length) for start, length in wanted]
    assert rows(arguments.rows(starts, lengths)) == expected
    assert arguments.joined(starts, lengths) == b"".join(expected)


@few
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_numbers_come_back_from_their_text(values: list[int]) -> None:
    column = decimals(np.array(values, np.int64))
    assert rows(column) == [str(value).encode() for value in values]
    parsed = column.integers()
    assert parsed is not None
    assert parsed.tolist() == values


@pytest.mark.parametrize("text", [b"1.5", b"1e3", b"9223372036854775808", b"true", b"", b"x"])
def test_what_is_no_whole_number_of_64_bits_is_none(text: bytes) -> None:
    assert Ragged.of([b"1", text]).integers() is None


@few
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_doubles_come_back_from_their_text(values: list[float]) -> None:
    texts = rows(decimals(np.array(values, np.float64)))
    assert [float(text) for text in texts] == values
    assert [math.copysign(1, float(t)) for t in texts] == [math.copysign(1, v) for v in values]


int64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)


@few
@given(st.lists(st.tuples(int64, int64, int64), max_size=12))
def test_distinct_rows_are_numbered_in_order_of_first_use(table: list[tuple[int, ...]]) -> None:
    columns = [np.array([row[n] for row in table], np.int64) for n in range(3)]
    first, number = distinct_rows(*columns)
    assert [table[i] for i in first.tolist()] == list(dict.fromkeys(table))
    assert [table[first[n]] for n in number.tolist()] == table
