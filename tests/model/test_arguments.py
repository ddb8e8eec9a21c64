"""Arguments are addressed by position in the pieces of text that hold them."""

from __future__ import annotations

import mmap
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_tb.converters.model.arguments import Arguments

PIECES = [b'{"a":1}', b"", b'{"b":2}{"c":3}', b"{}"]


def test_rows_of_all_pieces_are_found_by_one_numbering() -> None:
    arguments = Arguments(PIECES)
    starts = np.array([0, 7, 14, 21, 0])
    lengths = np.array([7, 7, 7, 2, 0], np.int32)
    wanted = [b'{"a":1}', b'{"b":2}', b'{"c":3}', b"{}", b""]
    assert arguments.texts(starts, lengths) == wanted
    assert arguments.joined(starts, lengths) == b"".join(wanted)
    assert [arguments.text(*row) for row in zip(starts, lengths, strict=True)] == wanted
    assert len(arguments) == 23


@given(st.lists(st.binary(min_size=1, max_size=6), min_size=2, max_size=5), st.data())
def test_rows_in_any_order_are_found_in_their_pieces(
    pieces: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(pieces)
    arguments = Arguments(pieces)
    rows = []
    for _ in range(data.draw(st.integers(0, 60))):
        number = data.draw(st.integers(0, len(pieces) - 1))
        first = data.draw(st.integers(0, len(pieces[number]) - 1))
        length = data.draw(st.integers(0, len(pieces[number]) - first))
        rows.append((arguments.starts[number] + first, length))
    if data.draw(st.booleans()):
        rows.sort()
    starts, lengths = np.array(rows, np.int64).reshape(-1, 2).T
    assert arguments.texts(starts, lengths) == [whole[s : s + n] for s, n in rows]


def test_without_any_text_all_rows_are_empty() -> None:
    assert Arguments().texts(np.zeros(2, np.int64), np.zeros(2, np.int32)) == [b"", b""]
    assert Arguments().text(0, 0) == b""


def test_mapped_text_reaches_another_process_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b'{"a":1}')
    with (tmp_path / "text").open("rb") as file:
        arguments = Arguments([mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), b"{}"])
    assert pickle.loads(pickle.dumps(arguments)).pieces == (b'{"a":1}', b"{}")


@pytest.mark.parametrize(
    ("text", "is_utf8"),
    [
        (b"plain" * 100_000, True),
        ("ä€𝄞".encode() * 60_000, True),
        (b"x" + "𝄞".encode() * 70_000, True),
        (b"x" * 262_143 + "𝄞".encode(), True),
        (b"x" * 262_143 + b"\xc3", False),
        (b"x" * 262_144 + b"\x84", False),
        (b"x" * 262_142 + b"\xf0\x9d", False),
        (b"x" * 262_142 + b"\xf0\x9d" + b"y" * 20, False),
        (b"\x80" * 600_000, False),
    ],
)
def test_text_is_utf8_wherever_its_characters_are_cut(text: bytes, is_utf8: bool) -> None:
    assert Arguments([b"a", text]).is_utf8() is is_utf8
