"""Reads damaged texts and measures what of the intact events comes out, as rows and as slices.

``python -m tests.robust.measure [COUNT]`` prints the result of COUNT damages.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import neuron_tb
from neuron_tb import NeuronTbError
from neuron_tb.converters.model import Trace
from neuron_tb.converters.readers.json.document import Document, open_document
from tests.robust.damage import Damaged, damage
from tests.robust.texts import Text, texts

MENDED = (
    "escape_repaired",
    "quote_repaired",
    "control_repaired",
    "not_a_number",
    "trailing_comma",
    "utf8_repaired",
    "surrogate_repaired",
)
_RANGE = re.compile(r"bytes (\d+)-(\d+)")
_DECODER = json.JSONDecoder()


@dataclass
class Result:
    """Over all damages: intact events, those of them that were read, and what went wrong.

    ``slices``: the same for complete events in a Trace, as (intact, read).
    """

    intact: int = 0
    read: int = 0
    slices: tuple[int, int] = (0, 0)
    refused: int = 0
    invented: list[str] = field(default_factory=list)
    unreported: list[str] = field(default_factory=list)
    worst: list[tuple[int, str]] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Of the intact events, those that were read."""
        return self.read / max(self.intact, 1)

    @property
    def share_of_slices(self) -> float:
        """Of the intact complete events, those that are slices with identical fields."""
        return self.slices[1] / max(self.slices[0], 1)


def run(numbers: range, folder: Path) -> Result:
    """Damage, read and compare; every number is one damage of one of the texts."""
    result = Result()
    originals = texts()
    for number in numbers:
        original = originals[number // 5 % len(originals)]
        _measure(original, damage(original.text, number), folder / "damaged.json", result)
    return result


def _measure(original: Text, damaged: Damaged, path: Path, result: Result) -> None:
    text = damaged.text
    path.write_bytes(text)
    intact = list(damaged.intact(original.ranges))
    what = f"{original.name}, {damaged.what}"
    result.intact += len(intact)
    try:
        document = open_document(path)
    except NeuronTbError:
        result.refused += 1
        if intact:
            result.unreported.append(f"{what}: refused with {len(intact)} intact events")
        return
    if original.key == "traceEvents":
        _compare_slices(original, [number for number, _ in intact], path, result)
    rows = _rows(document, original.key)
    have = Counter(map(_canonical, rows))
    _look_for_inventions(text, rows, document, what, result)
    lost = []
    for number, place in intact:
        event = _canonical(original.events[number])
        if have[event] > 0:
            have[event] -= 1
            result.read += 1
        else:
            lost.append(place)
    if lost:
        result.worst.append((len(lost), what))
        _look_for_silence(text, lost, document, what, result)


def _rows(document: Document, key: str) -> list[Any]:
    raw: Any = document.data if document.array else document.keys.get(key, b"[]")
    if not document.array and key == "":
        raw = document.keys.get("traceEvents", b"[]")
    found: list[Any] = json.loads(bytes(raw))
    return found


def _compare_slices(original: Text, intact: list[int], path: Path, result: Result) -> None:
    trace = neuron_tb.load(path)
    slices = trace.slices
    have = Counter(
        (
            trace.strings[slices.name[row]],
            int(slices.start_ns[row]) - trace.clock.base_ns,
            int(slices.duration_ns[row]),
            _canonical(_arguments(trace, row)),
        )
        for row in range(len(slices))
    )
    known, read = result.slices
    for number in intact:
        event = original.events[number]
        if event["ph"] == "X":
            known += 1
            fields = (
                event["name"],
                round(event["ts"] * 1000),
                round(event["dur"] * 1000),
                _canonical(event["args"]),
            )
            if have[fields] > 0:
                have[fields] -= 1
                read += 1
    result.slices = known, read


def _arguments(trace: Trace, row: int) -> Any:
    start, length = int(trace.slices.args_start[row]), int(trace.slices.args_length[row])
    return json.loads(trace.arguments.text(start, length) or b"{}")


def _canonical(row: Any) -> str:
    return json.dumps(row, sort_keys=True)


def _look_for_inventions(
    text: bytes, rows: list[Any], document: Document, what: str, result: Result
) -> None:
    """A row must be an object of the damaged text, or one that was mended and counted."""
    objects = _objects(text)
    strange = [row for row in rows if isinstance(row, dict) and _canonical(row) not in objects]
    mended = sum(document.findings.of_kind(kind) for kind in MENDED)
    if len(strange) > mended:
        result.invented.append(f"{what}: {strange[:3]}")
    letters = _letters(text.decode("utf-8", "replace"))
    for row in strange:
        for value in row.values():
            if isinstance(value, str) and _letters(value) not in letters:
                result.invented.append(f"{what}: {value!r}")


def _letters(text: str) -> str:
    return re.sub(r"\\u[0-9a-fA-F]{4}|\\[nrtbf]|[^A-Za-z]", "", text)


def _objects(text: bytes) -> set[str]:
    """Every object that stands in a text, found by trying each opening brace."""
    decoded = text.decode("utf-8", "replace")
    found = set()
    for match in re.finditer(r"\{", decoded):
        if len(found) > 5_000_000:
            break
        try:
            value, _ = _DECODER.raw_decode(decoded, match.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and "traceEvents" not in value and "trace_events" not in value:
            found.add(_canonical(value))
    return found


def _look_for_silence(
    text: bytes, lost: list[int], document: Document, what: str, result: Result
) -> None:
    """An intact event that was not read must lie in a range that the findings name."""
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        pass
    else:
        return  # valid JSON still: nobody could detect this
    named = [
        (int(start), int(end))
        for finding in document.findings
        for start, end in _RANGE.findall(f"{finding.where}")
    ]
    for place in lost:
        if not any(start <= place < end for start, end in named):
            result.unreported.append(f"{what}: event at byte {place} of {len(text)}")


def main() -> None:
    """Print the result of as many damages as the command line says."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory() as folder:
        result = run(range(count), Path(folder))
    lines = [
        f"{count} damages, {result.refused} refused",
        f"{result.read:,} of {result.intact:,} intact events read ({result.share:.4%})",
        f"{result.slices[1]:,} of {result.slices[0]:,} of them as slices with identical fields",
        f"{len(result.invented)} invented, {len(result.unreported)} lost without a finding",
        *(f"  {n} lost: {what}" for n, what in sorted(result.worst, reverse=True)[:10]),
        *(f"  invented: {text}" for text in result.invented[:10]),
        *(f"  not reported: {text}" for text in result.unreported[:10]),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    good = (
        min(result.share, result.share_of_slices) >= 0.99
        and not result.invented
        and not result.unreported
    )
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
