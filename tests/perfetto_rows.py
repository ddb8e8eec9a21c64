"""What rows a Perfetto file has, read with Perfetto's own messages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

_BEGIN, _INSTANT, _COUNTER = 1, 3, 4


def rows_of(path: Path) -> Counter[tuple[str, str]]:
    """How many slices, instants and samples stand in each row, by (name of its group, its name)."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2

    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(path.read_bytes())
    tracks = {
        p.track_descriptor.uuid: p.track_descriptor
        for p in trace.packet
        if p.HasField("track_descriptor")
    }
    found: Counter[tuple[str, str]] = Counter()
    for packet in trace.packet:
        if packet.HasField("track_event") and packet.track_event.type in (
            _BEGIN,
            _INSTANT,
            _COUNTER,
        ):
            track = tracks[packet.track_event.track_uuid]
            parent = tracks.get(track.parent_uuid)
            found[parent.name if parent is not None else "", track.name] += 1
    return found
