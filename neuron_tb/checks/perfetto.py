"""Reads a ``.pftrace`` with Perfetto's own messages and replays what trace_processor does.

trace_processor sorts events by time, stably, and lets an END close the innermost open slice of
its row; hardly any wrong input is reported by it. So the file is replayed by that rule, and every
slice has to come out as it was meant: each END belongs to the BEGIN before it in the file.

With ``NEURON_TB_TRACE_PROCESSOR`` naming a trace_processor binary, that is asked too.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from neuron_tb.checks import Report, View
from neuron_tb.checks.consumer import answer, ask, installed
from neuron_tb.converters.writers.perfetto.tracks import COUNTER_GROUP, RUNTIME_GROUP
from neuron_tb.converters.writers.perfetto.write import ATTRIBUTE_PREFIX

TARGET = "perfetto"
BINARY_VARIABLE = "NEURON_TB_TRACE_PROCESSOR"
_MODULE = "neuron_tb.checks.perfetto"
_NOT_INSTALLED = "Perfetto's messages are not installed: pip install 'perfetto>=0.59'"

_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_CLEARED, _NEEDED = 1, 2
_PACKET_KEY = 0x0A
_LATEST = 2**63 - 1
_DEEPEST = 512
_BOOTTIME, _REALTIME = 6, 1


def check(path: Path) -> Report:
    """Read a file packet by packet; memory grows with the number of events, not with their size."""
    report = Report(TARGET, str(path))
    messages = _messages()
    if messages is None:
        report.skipped = _NOT_INSTALLED
        return report
    contents = _Contents()
    try:
        with path.open("rb") as file:
            _read(file.fileno(), path.stat().st_size, messages.TracePacket(), contents)
    except (ValueError, OSError) as error:
        report.problems.append(f"{path.name} cannot be read to its end: {error}")
        return report
    rows = contents.replay()
    report.slices = sum(row.slices for row in rows.values())
    contents.compare_with_stated(rows)
    report.problems += contents.sentences()
    report.views += _views(contents, rows)
    if os.environ.get(BINARY_VARIABLE):
        _ask_trace_processor(report, path, contents, rows)
    return report


def _messages() -> Any:
    """Perfetto's generated messages; None when they are missing or too old."""
    if not installed("perfetto"):
        return None
    messages = import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    known = messages.TracePacket.DESCRIPTOR.fields_by_name
    return messages if "trace_attributes" in known else None


def _read(handle: int, size: int, packet: Any, contents: _Contents) -> None:
    if not size:
        raise ValueError("the file is empty")
    with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as data:
        for start, end in _packets(data, size):
            try:
                packet.ParseFromString(data[start:end])
            except Exception as error:
                raise ValueError(f"the packet at byte {start} cannot be read ({error})") from error
            contents.add(packet)


def _packets(data: mmap.mmap, size: int) -> Iterator[tuple[int, int]]:
    """Start and end of every packet."""
    place = 0
    while place < size:
        if data[place] != _PACKET_KEY:
            raise ValueError(f"there is no packet at byte {place}")
        place += 1
        length = shift = 0
        while True:
            if place >= size:
                raise ValueError("the last packet is cut off")
            byte = data[place]
            place += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if place + length > size:
            raise ValueError("the last packet is cut off")
        yield place, place + length
        place += length


@dataclass(slots=True)
class _Row:
    """Events of one track: times and types in file order, and what became of them."""

    times: array[int] = field(default_factory=lambda: array("q"))
    types: array[int] = field(default_factory=lambda: array("b"))
    slices: int = 0
    instants: int = 0
    samples: int = 0


@dataclass(slots=True)
class _Sequence:
    """What is interned on one packet sequence, by kind and number."""

    valid: bool = False
    texts: dict[tuple[str, int], object] = field(default_factory=dict)


_INTERNED = (
    "event_names",
    "event_categories",
    "debug_annotation_names",
    "debug_annotation_string_values",
)


class _Contents:
    """Everything that a file says, and what is wrong with it."""

    def __init__(self) -> None:
        self.descriptors: dict[int, Any] = {}
        self.stated: Counter[str] = Counter()
        self.flows: Counter[int] = Counter()
        self.samples = 0
        self._rows: dict[int, _Row] = defaultdict(_Row)
        self._sequences: dict[int, _Sequence] = defaultdict(_Sequence)
        self._problems: Counter[str] = Counter()
        self._attributes = False

    def add(self, packet: Any) -> None:
        """Take in the next packet of the file."""
        sequence = self._sequences[packet.trusted_packet_sequence_id]
        if packet.sequence_flags & _CLEARED:
            sequence.valid, sequence.texts = True, {}
        if packet.HasField("interned_data"):
            self._intern(sequence, packet.interned_data)
        if packet.HasField("track_descriptor"):
            self._describe(packet.track_descriptor)
        elif packet.HasField("trace_attributes"):
            self._attributes = True
            for attribute in packet.trace_attributes.attribute:
                if attribute.key.startswith(ATTRIBUTE_PREFIX) and attribute.HasField("long_value"):
                    self.stated[attribute.key.rpartition(".")[2]] += attribute.long_value
        elif packet.HasField("clock_snapshot"):
            times = {c.clock_id: c.timestamp for c in packet.clock_snapshot.clocks}
            if times.get(_BOOTTIME) != times.get(_REALTIME) or _REALTIME not in times:
                self._wrong("clock snapshots do not equate boot time and real time")
        elif packet.HasField("track_event"):
            self._event(packet, sequence)

    def sentences(self) -> list[str]:
        """The problems, each with its number of occurrences."""
        return [f"{count} {text}" for text, count in self._problems.items()]

    def _wrong(self, text: str, count: int = 1) -> None:
        self._problems[text] += count

    def _intern(self, sequence: _Sequence, data: Any) -> None:
        if not sequence.valid:
            self._wrong("interned strings stand on a sequence whose state was never cleared")
        for kind in _INTERNED:
            for entry in getattr(data, kind):
                text = entry.str if kind.endswith("values") else entry.name
                if sequence.texts.setdefault((kind, entry.iid), text) != text:
                    self._wrong("interned numbers stand for two texts")

    def _describe(self, descriptor: Any) -> None:
        copy = type(descriptor).FromString(descriptor.SerializeToString())
        if self.descriptors.setdefault(descriptor.uuid, copy) != copy:
            self._wrong("track uuids stand for two tracks")

    def _event(self, packet: Any, sequence: _Sequence) -> None:
        event = packet.track_event
        if not packet.trusted_packet_sequence_id:
            self._wrong("events have no sequence id")
        if not sequence.valid or not packet.sequence_flags & _NEEDED:
            self._wrong("events are not tied to a valid state of their sequence")
        if packet.HasField("timestamp_clock_id") or packet.timestamp > _LATEST:
            self._wrong("events have a time that cannot be placed")
            return
        row = self._rows[event.track_uuid]
        row.times.append(packet.timestamp)
        row.types.append(event.type)
        if event.type == _END:
            return
        known = sequence.texts
        if event.name_iid and ("event_names", event.name_iid) not in known:
            self._wrong("events have a name that is not interned")
        for category in event.category_iids:
            if ("event_categories", category) not in known:
                self._wrong("events have a category that is not interned")
        if event.debug_annotations:
            self._annotations(event.debug_annotations, known, named=True)
        for flow in event.flow_ids:
            self.flows[flow] += 1

    def _annotations(self, annotations: Any, known: dict[Any, object], named: bool) -> None:
        for annotation in annotations:
            if named and ("debug_annotation_names", annotation.name_iid) not in known:
                self._wrong("arguments have a name that is not interned")
            text = annotation.string_value_iid
            if text and ("debug_annotation_string_values", text) not in known:
                self._wrong("arguments have a text that is not interned")
            if annotation.dict_entries:
                self._annotations(annotation.dict_entries, known, named=True)
            if annotation.array_values:
                self._annotations(annotation.array_values, known, named=False)

    # -- after the last packet ----------------------------------------------------------------

    def replay(self) -> dict[int, _Row]:
        """Let every row's events happen in time order; returns the rows by uuid."""
        self._check_hierarchy()
        for uuid, row in self._rows.items():
            if uuid not in self.descriptors:
                self._wrong("tracks with events have no descriptor")
            self._replay(row)
        odd = sum(count != 2 for count in self.flows.values())
        if odd:
            self._wrong("flow ids do not join two slices", odd)
        return dict(self._rows)

    def _check_hierarchy(self) -> None:
        pids: Counter[int] = Counter()
        threads: Counter[tuple[int, int]] = Counter()
        for uuid, descriptor in self.descriptors.items():
            if descriptor.HasField("process"):
                pids[descriptor.process.pid] += 1
            if descriptor.HasField("thread"):
                threads[descriptor.thread.pid, descriptor.thread.tid] += 1
            seen = {uuid}
            while descriptor is not None and descriptor.parent_uuid:
                if descriptor.parent_uuid in seen:
                    self._wrong("tracks stand inside themselves")
                    break
                seen.add(descriptor.parent_uuid)
                descriptor = self.descriptors.get(descriptor.parent_uuid)
            if descriptor is None:
                self._wrong("tracks stand in a group that is not described")
        for text, numbers in (("processes share a pid", pids), ("threads share a tid", threads)):
            shared = sum(count - 1 for count in numbers.values())
            if shared:
                self._wrong(text, shared)

    def _replay(self, row: _Row) -> None:
        times, types = row.times, row.types
        meant: dict[int, int] = {}
        last = None
        for position, kind in enumerate(types):
            if kind == _BEGIN:
                last = position
            elif kind == _END:
                if last is None:
                    self._wrong("ends do not stand behind their beginning")
                else:
                    meant[last] = position
                last = None
            elif kind == _INSTANT:
                row.instants += 1
            elif kind == _COUNTER:
                row.samples += 1
        row.slices = len(meant)
        open_slices: list[int] = []
        wrong = deepest = 0
        for position in sorted(range(len(times)), key=times.__getitem__):
            if types[position] == _BEGIN:
                open_slices.append(position)
                deepest = max(deepest, len(open_slices))
            elif types[position] == _END:
                begun = open_slices.pop() if open_slices else None
                end = meant.get(begun) if begun is not None else None
                wrong += end is None or times[end] != times[position]
        if wrong or open_slices:
            text = "slices would not be shown as they are (order, overlap or missing end)"
            self._wrong(text, wrong + len(open_slices))
        if deepest > _DEEPEST:
            self._wrong(f"tracks are nested more than {_DEEPEST} deep")

    def compare_with_stated(self, rows: dict[int, _Row]) -> None:
        """Compare what was found with the counts that the file itself states."""
        found = {
            "slices": sum(row.slices for row in rows.values()),
            "flows": len(self.flows),
            "rows of instants": sum(row.instants for row in rows.values()),
        }
        if not self._attributes or "slices" not in self.stated:
            self._wrong("the file does not say how many slices it shows")
            return
        stated = {
            "slices": self.stated["slices"],
            "flows": self.stated["flows"],
            "rows of instants": self.stated["instants"] + self.stated["memory_events"],
        }
        for what, count in stated.items():
            if found[what] != count:
                self._wrong(f"difference: the file has {found[what]} {what}, and says {count}")


def _views(contents: _Contents, rows: dict[int, _Row]) -> list[View]:
    described = contents.descriptors
    processes = [d for d in described.values() if d.HasField("process")]
    names = ", ".join(sorted(d.process.process_name for d in processes))
    views = [View("Processes", names or "none", bool(names))]
    places = _places(described)
    for name in ("Threads", "Runtime", "Devices", "Other rows"):
        descriptors = places[name]
        if not descriptors:
            continue
        content = _content(descriptors, rows)
        if name == "Devices":
            devices = {described[d.parent_uuid].name for d in descriptors}
            content = f"{', '.join(sorted(devices))}: {content}"
        views.append(View(name, content))
    filled = [rows[d.uuid].samples for d in places["Counters"] if d.uuid in rows]
    if filled:
        views.append(View("Counters", f"{len(filled)} counters, {sum(filled)} samples"))
    if contents.flows:
        views.append(View("Flows", f"{len(contents.flows)} arrows"))
    return views


def _places(described: dict[int, Any]) -> dict[str, list[Any]]:
    """Descriptors of rows, by the part of the picture in which they stand."""
    places: dict[str, list[Any]] = defaultdict(list)
    groups = {d.parent_uuid for d in described.values()}
    for uuid, descriptor in described.items():
        parent = described.get(descriptor.parent_uuid)
        if descriptor.HasField("counter"):
            places["Counters"].append(descriptor)
        elif descriptor.HasField("thread"):
            places["Threads"].append(descriptor)
        elif uuid in groups or parent is None or descriptor.HasField("process"):
            continue
        elif parent.name == RUNTIME_GROUP:
            places["Runtime"].append(descriptor)
        elif parent.HasField("process") or parent.name == COUNTER_GROUP:
            places["Other rows"].append(descriptor)
        else:
            places["Devices"].append(descriptor)
    return places


def _content(descriptors: list[Any], rows: dict[int, _Row]) -> str:
    """Lanes of one row are one row."""
    filled = [d for d in descriptors if d.uuid in rows]
    shown = len({d.sibling_merge_key or d.uuid for d in filled})
    slices = sum(rows[d.uuid].slices for d in filled)
    instants = sum(rows[d.uuid].instants for d in filled)
    text = f"{shown} rows, {slices} slices"
    return f"{text}, {instants} instants" if instants else text


# -- trace_processor ----------------------------------------------------------------------------

_QUIET = (
    "track_hierarchy_missing_uuid",
    "interned_data_tokenizer_errors",
    "packet_skipped_seq_needs_incremental_state_invalid",
    "interned_data_skipped_incremental_state_invalid",
)
"""Losses that trace_processor does not call errors."""


def _ask_trace_processor(
    report: Report, path: Path, contents: _Contents, rows: dict[int, _Row]
) -> None:
    binary = os.environ[BINARY_VARIABLE]
    try:
        found = ask(_MODULE, str(path), binary, megabytes=path.stat().st_size / 1e6)
    except RuntimeError as error:
        report.problems.append(f"trace_processor failed: {error}")
        return
    expected = sum(row.slices + row.instants for row in rows.values())
    report.problems += [f"trace_processor: {name} = {n}" for name, n in found["stats"].items()]
    if (found["slices"], found["flows"]) != (expected, len(contents.flows)):
        report.problems.append(
            f"trace_processor has {found['slices']} slices and instants and {found['flows']} "
            f"flows of {expected} and {len(contents.flows)}"
        )
    if found["unfinished"]:
        report.problems.append(f"trace_processor has {found['unfinished']} slices without an end")
    content = f"{found['slices']} slices and instants, {found['flows']} flows"
    report.views.append(View("trace_processor", content))


def _query(path: str, binary: str) -> dict[str, Any]:
    """What trace_processor itself finds in a file."""
    api = import_module("perfetto.trace_processor")
    names = json.dumps(_QUIET)[1:-1].replace('"', "'")
    config = api.TraceProcessorConfig(bin_path=binary)
    with api.TraceProcessor(trace=path, config=config) as processor:

        def number(query: str) -> int:
            return int(next(iter(processor.query(query))).n)

        stats = processor.query(
            "select name, value from stats where value > 0 and "
            f"(severity in ('error', 'data_loss') or name in ({names}))"
        )
        return {
            "slices": number("select count(*) as n from slice"),
            "unfinished": number("select count(*) as n from slice where dur < 0"),
            "flows": number("select count(*) as n from flow"),
            "stats": {row.name: row.value for row in stats},
        }


if __name__ == "__main__":
    answer(_query(sys.argv[1], sys.argv[2]))
