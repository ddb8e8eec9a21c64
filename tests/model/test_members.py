"""Taking many JSON objects apart at once, against a JSON decoder."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_tb.converters.model.members import Members, members

keys = st.sampled_from(
    ["a", "b", "External id", "Ev Idx", ":", ",", ", ", "k" * 40, "k" * 41, "", "é", "x:y,", " "]
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ['"', "\\", ":", '":', "{", "}", '{"a":1}', ",", "a\nb", " ", ": ", '","', "[", "]"]
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=6,
)
objects = st.dictionaries(keys, values, max_size=6)
layouts = st.sampled_from(
    [
        {"separators": (",", ":")},
        {},
        {"indent": 2},
        {"separators": (", ", " : ")},
        {"ensure_ascii": False},
    ]
)
few = settings(max_examples=100, deadline=None)


def take_apart(rows: list[bytes]) -> Members:
    return members(b"".join(rows), np.array([len(row) for row in rows], np.int64))


def found(taken: Members) -> dict[int, list[tuple[str, Any]]]:
    """Row: its keys and decoded values, of every row that was taken apart."""
    rows: dict[int, list[tuple[str, Any]]] = {}
    for shape in taken.shapes:
        columns = [taken.value(shape, n).array.to_pylist() for n in range(len(shape.keys))]
        for position, row in enumerate(shape.rows.tolist()):
            rows[row] = [
                (key.decode(), json.loads(column[position]))
                for key, column in zip(shape.keys, columns, strict=True)
            ]
    return rows


@few
@given(st.lists(st.tuples(objects, layouts), max_size=8))
def test_what_is_taken_apart_is_what_a_decoder_reads(
    rows: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    taken = take_apart([json.dumps(value, **layout).encode() for value, layout in rows])
    decoded = found(taken)
    assert sorted([*decoded, *taken.others.tolist()]) == list(range(len(rows)))
    for row, pairs in decoded.items():
        assert pairs == list(rows[row][0].items())


plain_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("abc:,[] é", max_size=10)
    | st.lists(st.integers() | st.text("ab,:", max_size=3), max_size=3)
)


@few
@given(st.lists(st.dictionaries(keys, plain_values, max_size=5), min_size=1, max_size=8))
def test_flat_objects_without_escapes_are_all_taken_apart(rows: list[dict[str, Any]]) -> None:
    taken = take_apart([json.dumps(row, ensure_ascii=False).encode() for row in rows])
    assert taken.others.tolist() == []
    assert {tuple(key.decode() for key in shape.keys) for shape in taken.shapes} == {
        tuple(row) for row in rows
    }


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}',
        b'{"a":{"b":1}}',
        b'{"a":"\\""}',
        b'{"a" : 1}',
        b'{"b":2,"a" :1}',
        b'{"a":"{"}',
        b"{ }",
        b"[1]",
        b"null",
        b'"{}"',
        b"1",
        b"",
    ],
)
def test_objects_that_are_not_plain_are_named(text: bytes) -> None:
    taken = take_apart([b'{"a":1}', text, b'{"a":2}'])
    assert taken.others.tolist() == [1]
    assert found(taken) == {0: [("a", 1)], 2: [("a", 2)]}


def test_keys_that_differ_in_the_middle_only_are_different_shapes() -> None:
    rows = [b'{"%s%d%s":1}' % (b"x" * 20, n, b"y" * 20) for n in range(3)]
    assert len(take_apart(rows).shapes) == 3


def test_the_text_between_members_keeps_what_the_source_wrote() -> None:
    taken = take_apart([b'{"n": 1,\n "a": [1, "x"], "b":null\n }'])
    (shape,) = taken.shapes
    assert taken.between(shape, 1, 2, keys=True).array.to_pylist() == [b'"a": [1, "x"], "b":null']
    assert taken.between(shape, 0, 1).array.to_pylist() == [b'1,\n "a": [1, "x"]']
