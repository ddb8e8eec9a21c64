"""Changes of many arguments at once, against changes of one after the other."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_tb.converters.model import StringTable
from neuron_tb.converters.model.arguments import Arguments
from neuron_tb.converters.writers.edits import Edits
from tests.model.test_members import layouts, values

few = settings(max_examples=100, deadline=None)
keys = st.sampled_from(
    [
        *("stream", "source stream", "correlation", "source correlation", "External id"),
        *("external id", "source external id", "device", "source name", "note", "pair", "x"),
    ]
)
numbers = st.integers(-3, 3) | st.integers(-(2**60), 2**60)
arguments = st.dictionaries(keys, values | numbers, max_size=6)
change = st.sampled_from(["stream", "correlation", "External id", "device"])
edits = st.fixed_dictionaries(
    {
        "renames": st.sets(st.sampled_from(["stream", "correlation", "x"])),
        "numbers": st.dictionaries(change, numbers),
        "name": st.booleans(),
        "pair": st.booleans(),
        "value": st.booleans(),
    }
)
event = st.tuples(st.none() | arguments, layouts, edits)


def make(events: list[tuple[dict[str, Any] | None, dict[str, Any], dict[str, Any]]]) -> Edits:
    words = StringTable(['old "name" é', "note"])
    made = Edits(len(events), words)
    for key in ("stream", "correlation", "x"):
        mask = np.array([key in e["renames"] for _, _, e in events], np.bool_)
        made.rename(key, mask, unless=r"^-?\d+$" if key == "correlation" else "")
    for key in ("External id", "stream", "device", "correlation"):
        rows = [n for n, (_, _, e) in enumerate(events) if key in e["numbers"]]
        new = [events[n][2]["numbers"][key] for n in rows]
        made.set_numbers(key, np.array(rows, np.intp), np.array(new, np.int64))
    having = {
        kind: np.array([n for n, (_, _, e) in enumerate(events) if e[kind]], np.intp)
        for kind in ("name", "pair", "value")
    }
    made.set_words("source name", having["name"], 0)
    made.set_pairs("pair", having["pair"], having["pair"], -having["pair"])
    made.set_values("x y", having["value"].tolist(), [{"a": [1, "é"]}] * len(having["value"]))
    return made


@few
@given(st.lists(event, min_size=1, max_size=8), st.data())
def test_many_changes_are_the_changes_of_each(events: list[Any], data: st.DataObject) -> None:
    texts = [b"" if a is None else json.dumps(a, **how).encode() for a, how, _ in events]
    made = make(events)
    rows = np.array(data.draw(st.permutations(range(len(events)))), np.intp)
    sizes = np.array([len(text) for text in texts], np.int64)
    starts = np.cumsum(sizes) - sizes
    column = made.many(Arguments(texts), starts[rows], sizes[rows], rows)
    for row, text in zip(rows.tolist(), column.array.to_pylist(), strict=True):
        plain = made.one(texts[row], row)
        assert b"\n" not in text
        assert bool(text) == bool(plain)
        if text:
            assert json.loads(text) == json.loads(plain)


def one(text: bytes, made: Edits) -> bytes:
    result = made.many(
        Arguments([text]), np.zeros(1, np.int64), np.array([len(text)]), np.zeros(1, np.intp)
    )
    found: bytes = result.array.to_pylist()[0]
    return found


def nothing() -> Edits:
    return Edits(1, StringTable())


def test_arguments_without_changes_pass_through_byte_by_byte() -> None:
    text = b'{"a": 1.10, "b":  [1e3, "\\u00e9", {"c": "}"}],"a": 18446744073709551617}'
    assert one(text, nothing()) == text


def test_values_beside_a_change_stay_the_text_that_they_were() -> None:
    made = nothing()
    made.rename("a", np.array([True]))
    made.set_numbers("d", np.zeros(1, np.intp), 5)
    text = b'{"a": 1.10, "b": [1e3, "x"], "c": 18446744073709551617}'
    assert one(text, made) == (
        b'{"source a": 1.10, "b": [1e3, "x"], "c": 18446744073709551617,"d":5}'
    )


def test_an_equal_number_is_no_change() -> None:
    made = nothing()
    made.set_numbers("a", np.zeros(1, np.intp), 5)
    assert one(b'{"a": 5}', made) == b'{"a": 5}'
    assert one(b'{"a": 6}', made) == b'{"source a": 6,"a":5}'


def test_a_pattern_keeps_a_key() -> None:
    made = nothing()
    made.rename("a", np.array([True]), unless='^"')
    assert one(b'{"a": "text"}', made) == b'{"a": "text"}'
    assert one(b'{"a": null}', made) == b'{"source a": null}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"[1, 2]", {"value": [1, 2]}), (b"null", {"value": None}), (b'"a\\"b"', {"value": 'a"b'})],
)
def test_arguments_that_are_no_object_become_one(text: bytes, expected: object) -> None:
    assert json.loads(one(text, nothing())) == expected


def test_events_without_arguments_get_an_object_only_for_a_change() -> None:
    assert one(b"", nothing()) == b""
    made = nothing()
    made.set_words("w", np.zeros(1, np.intp), 0)
    made.set_numbers("n", np.zeros(1, np.intp), -1)
    made._words.intern('a "quoted" é')
    assert json.loads(one(b"", made)) == {"w": 'a "quoted" é', "n": -1}
