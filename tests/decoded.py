"""What a run's files say, free of the numbers that two conversions may choose differently."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from neuron_tb.checks.xspace import message_class


def run(out: Path, name: str) -> dict[str, Any]:
    """Every file of a run by its path below ``out``, decoded."""
    files: dict[str, Any] = {}
    for path in sorted(out.rglob("*")):
        place = path.relative_to(out).as_posix()
        if path.name.endswith(".xplane.pb"):
            files[place] = xplane(path)
        elif path.name.endswith(".pftrace"):
            files[place] = perfetto(path)
        elif path.name.endswith(".trace.json.gz"):
            files[place] = chrome(path)
    assert files, f"{out} has no file of run {name}"
    return files


def xplane(path: Path) -> dict[str, Any]:
    """Planes by name; lines by name with their events; arrows as the events that they join."""
    space = message_class()()
    space.ParseFromString(path.read_bytes())
    arrows: dict[int, list[Any]] = defaultdict(list)
    planes = {}
    for plane in space.planes:
        assert plane.name not in planes
        lines: dict[Any, Counter[str]] = {}
        for line in plane.lines:
            key = (line.name, line.display_name)
            assert key not in lines, key
            lines[key] = Counter(_event(plane, line, event, arrows) for event in line.events)
        assert len({line.id for line in plane.lines}) == len(plane.lines)
        planes[plane.name] = {"id": plane.id, "lines": lines, "stats": _stats(plane, plane.stats)}
    account = planes["Task Environment"]["stats"]
    return {
        "planes": planes,
        "account": account,
        "arrows": Counter(str(sorted(ends)) for ends in arrows.values()),
        "hosts": list(space.hostnames),
    }


def _event(plane: Any, line: Any, event: Any, arrows: dict[int, list[Any]]) -> str:
    entry = plane.event_metadata[event.metadata_id]
    stats = _stats(plane, event.stats)
    flow = stats.pop("flow", None)
    start = line.timestamp_ns * 1000 + event.offset_ps
    if flow is not None:
        arrows[flow >> 2 & (1 << 56) - 1].append((plane.name, line.name, start, flow & 3))
    about = _stats(plane, entry.stats)
    return str((entry.name, entry.display_name, about, start, event.duration_ps, stats))


def _stats(plane: Any, stats: Iterable[Any]) -> dict[str, Any]:
    found = {}
    for stat in stats:
        value = getattr(stat, stat.WhichOneof("value"))
        if stat.WhichOneof("value") == "ref_value":
            value = plane.stat_metadata[value].name
        name = plane.stat_metadata[stat.metadata_id].name
        assert name not in found
        found[name] = value
    return found


def perfetto(path: Path) -> dict[str, Any]:
    """Events by the path of names of their track; arrows as the events that they join."""
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = messages.Trace()
    trace.ParseFromString(path.read_bytes())
    tracks, interned = {}, {}
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        data = packet.interned_data
        for field in ("event_names", "event_categories", "debug_annotation_names"):
            for entry in getattr(data, field):
                interned[sequence, field, entry.iid] = entry.name
        for entry in data.debug_annotation_string_values:
            interned[sequence, "text", entry.iid] = entry.str.decode()
    events: Counter[str] = Counter()
    arrows: dict[int, list[str]] = defaultdict(list)
    for packet in trace.packet:
        if not packet.HasField("track_event"):
            continue
        event, sequence = packet.track_event, packet.trusted_packet_sequence_id
        name = interned.get((sequence, "event_names", event.name_iid), "")
        place = _path(tracks, event.track_uuid)
        shown = [_annotation(a, sequence, interned) for a in event.debug_annotations]
        key = str(
            (
                place,
                event.type,
                packet.timestamp,
                name,
                [interned[sequence, "event_categories", i] for i in event.category_iids],
                shown,
                event.counter_value,
                event.double_counter_value,
                len(event.flow_ids),
            )
        )
        events[key] += 1
        for flow in event.flow_ids:
            arrows[flow].append(key)
    return {
        "events": events,
        "arrows": Counter(str(sorted(ends)) for ends in arrows.values()),
        "attributes": _attributes(trace),
        "rows": Counter(_path(tracks, uuid) for uuid in tracks),
    }


def _attributes(trace: Any) -> dict[str, Any]:
    found = {}
    for packet in trace.packet:
        for attribute in packet.trace_attributes.attribute:
            key = attribute.key.rpartition(".")[2]
            if key in ("slices", "instants", "memory_events", "counter_samples", "flows", "rows"):
                found[key] = attribute.long_value
            if key in ("processes", "clock"):
                found[key] = attribute.string_value
    return found


def _path(tracks: dict[int, Any], uuid: int) -> str:
    names = []
    while uuid:
        track = tracks[uuid]
        names.append(track.process.process_name or track.thread.thread_name or track.name)
        uuid = track.parent_uuid if track.HasField("parent_uuid") else 0
    return " / ".join(reversed(names))


def _annotation(value: Any, sequence: int, interned: dict[Any, str]) -> Any:
    name = value.name or interned.get((sequence, "debug_annotation_names", value.name_iid), "")
    if value.dict_entries:
        return name, [_annotation(v, sequence, interned) for v in value.dict_entries]
    if value.array_values:
        return name, [_annotation(v, sequence, interned) for v in value.array_values]
    if value.string_value_iid:
        return name, interned[sequence, "text", value.string_value_iid]
    kind = value.WhichOneof("value")
    return name, getattr(value, kind) if kind else None


def chrome(path: Path) -> dict[str, Any]:
    """Events with times since the epoch, and the keys before them."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    base = document.pop("baseTimeNanoseconds", 0)
    about = document.pop("neuron_tb")
    events: Counter[str] = Counter()
    for event in document.pop("traceEvents"):
        if "ts" in event:
            event["ts"] = base + round(event["ts"] * 1000)
        events[json.dumps(event, sort_keys=True)] += 1
    return {"events": events, "head": document, "slices": about["slices"]}
