"""What documents, lists and events look like, so that they are known again in a damaged text."""

from __future__ import annotations

import msgspec

EVENT_LISTS = ("traceEvents", "trace_events", "trace_event", "events")
BARE_ARRAY = ""
"""The name of the list in a document that is one: a top-level array."""
BASE_TIME = "baseTimeNanoseconds"

OTHER_LISTS = ("mem_usage", "cpu_util", "device_mem_usage", "warnings")
DOCUMENT_KEYS = (
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    BASE_TIME,
    "displayTimeUnit",
    "traceName",
)
EVENT_KEYS = (
    b"ph cat name pid tid ts dur args id bp s tts tdur attr cname sf stack bind_id flow_in "
    b"flow_out scope id2 timestamp start_ts duration duration_ns instance_id process_id "
    b"thread_id nc_idx lnc_idx exec_id nrta_seq_id type trace_event_source event_type phase "
    b"tracking_id timestamp_ns nc_timestamp_ns"
).split()
CORE_KEYS = frozenset(
    b"ph cat name pid tid ts dur args timestamp start_ts duration process_id event_type "
    b"timestamp_ns".split()
)

DAMAGE = (msgspec.MsgspecError, RecursionError)
"""What decoding raises for text that is no JSON, or not of the shape asked for."""


class _Shape(msgspec.Struct, gc=False):
    """What makes an object an event."""

    ph: msgspec.Raw = msgspec.Raw()
    ts: msgspec.Raw = msgspec.Raw()
    name: msgspec.Raw = msgspec.Raw()
    timestamp: msgspec.Raw = msgspec.Raw()
    start_ts: msgspec.Raw = msgspec.Raw()
    event_type: msgspec.Raw = msgspec.Raw()
    timestamp_ns: msgspec.Raw = msgspec.Raw()

    def list(self) -> str:
        """The list that such an event stands in; "" when it is no event.

        A Chrome-trace event has a phase of one letter, and a time where its phase needs one.
        """
        phase = bytes(self.ph)
        if len(phase) == 3 and (phase == b'"M"' or len(memoryview(self.ts))):
            return EVENT_LISTS[0]
        if len(memoryview(self.name)) and (
            len(memoryview(self.timestamp)) or len(memoryview(self.start_ts))
        ):
            return EVENT_LISTS[1]
        if len(memoryview(self.event_type)) and len(memoryview(self.timestamp_ns)):
            return EVENT_LISTS[3]
        return ""


_LIST = msgspec.json.Decoder(list[msgspec.Raw]).decode
_SHAPE = msgspec.json.Decoder(_Shape).decode


def list_key(raw: msgspec.Raw) -> str:
    """The key under which a list of such events usually stands; "" when they are none."""
    return next(filter(None, map(list_of_row, _LIST(raw)[:20])), "")


def list_of_row(row: msgspec.Raw | memoryview | bytes) -> str:
    """The list that an event stands in; "" when the text is no event, or damaged."""
    try:
        return _SHAPE(row).list()
    except DAMAGE:
        return ""


def is_object(text: bytes) -> bool:
    """Whether the text is an undamaged object whose members may be those of an event."""
    try:
        _SHAPE(text)
    except DAMAGE:
        return False
    return True
