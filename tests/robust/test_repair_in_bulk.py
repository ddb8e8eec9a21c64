"""Files in which very many events are damaged: still right, and in time in proportion."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from neuron_tb.converters.readers import read_file
from neuron_tb.converters.readers.json.document import open_document
from tests.makers import BASE_NS

DAMAGES = {
    "backslash": r"C:\code\q.py(3): f",
    "quotes": 'f("a", "b")',
    "object": '{"device": "neuron"}(12): run',
    "members": '{"device": "neuron", "b": 2}(12): run',
    "list of words": '["x", "y"], "z"',
    "end of an object": 'a"} b',
    "control": "a\x01b",
    "all": 'C:\\q "x"\x02',
}
"""Names as they stand in the file, without any escaping."""


def text_of(names: list[str], where: str) -> str:
    """A line per event, as its writer printed it: no name is escaped."""
    lines = []
    for number, name in enumerate(names):
        stack = f', "Call stack": "{name}"' if where == "args" else ""
        shown = name if where == "name" else f"op {number}"
        lines.append(
            f'{{"ph": "X", "cat": "cpu_op", "name": "{shown}", "pid": 7, "tid": {7 + number % 3}, '
            f'"ts": {number * 3}.125, "dur": 2, "args": {{"External id": {number}, '
            f'"Input Dims": [[4, 5], []]{stack}}}}}'
        )
    head = f'{{"schemaVersion": 1, "baseTimeNanoseconds": {BASE_NS}, "traceEvents": [\n'
    return head + ",\n".join(lines) + "\n]}\n"


def found(path: Path, where: str) -> list[Any]:
    rows = json.loads(bytes(open_document(path).keys["traceEvents"]))
    return [row["args"].get("Call stack") if where == "args" else row["name"] for row in rows]


@pytest.mark.parametrize("where", ["name", "args"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_name_comes_back_where_all_are_damaged(
    tmp_path: Path, damage: str, where: str
) -> None:
    path = tmp_path / "t.json"
    names = [DAMAGES[damage]] * 4000
    path.write_text(text_of(names, where))
    assert found(path, where) == names


@pytest.mark.parametrize("where", ["name", "args"])
def test_sound_events_among_damaged_ones_stay_as_they_are(tmp_path: Path, where: str) -> None:
    path = tmp_path / "t.json"
    text = text_of(['f("a", "b")', "plain"] * 2000, where)
    sound = [
        '{"ph": "X", "name": "n", "we\\"ird": "v", "other": "w", "ts": 1, "dur": 1}',
        '{"ph": "X", "ts": 2, "dur": 1, "pid": 1, "name": "last"}',
        '{"unusual": "x", "ph": "X", "ts": 3, "dur": 1, "name": "say \\"hi\\"", "z": "1"}',
        '{"ph": "X", "ts": 4, "dur": 1, "args": {"name": "x", "b": "y", "cat": "z"}, "name": "w"}',
    ]
    lines = text.splitlines()
    for number in range(40, len(lines) - 40, 100):
        lines[number] = f"{sound[number // 100 % len(sound)]},\n{lines[number]}"
    path.write_text("\n".join(lines))
    rows = json.loads(bytes(open_document(path).keys["traceEvents"]))
    counts = [rows.count(json.loads(text)) for text in sound]
    assert sum(counts) == len(range(40, len(lines) - 40, 100))
    assert len(rows) == 4000 + sum(counts)


@pytest.mark.slow
@pytest.mark.parametrize("share", [100, 1])
def test_time_grows_no_faster_than_the_file(tmp_path: Path, share: int) -> None:
    """One event in ``share`` is damaged; a clean file of the same length is the measure."""
    path = tmp_path / "t.json"

    def seconds(count: int, name: str) -> float:
        names = [name if number % share == 0 else "aten::linear" for number in range(count)]
        path.write_text(text_of(names, "name"))
        times = []
        for _ in range(3):
            began = time.process_time()
            assert len(read_file(path).slices) == count
            times.append(time.process_time() - began)
        return min(times)

    clean = seconds(40_000, "aten::mm")
    for name in (DAMAGES["backslash"], DAMAGES["quotes"], DAMAGES["control"]):
        one, four = seconds(10_000, name), seconds(40_000, name)
        assert four < 8 * one, name
        assert four < 15 * clean, name  # 10 on a quiet machine and a longer file
