"""Rules for what particular programs write into Chrome-trace JSON, one each.

All other events of such files follow the rules of every Chrome trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model.numbers import integer
from neuron_tb.converters.readers.json.repair.report import BASE_TIME_UNREADABLE
from neuron_tb.converters.readers.json.repair.shape import BASE_TIME

COUNTER_MARK = b"rdmatop_counter"
"""Stands in the text of every counter sample that is stored as a slice."""

_RDMATOP = COUNTER_MARK.decode()


def base_time(metadata: dict[str, Any], findings: Findings, where: str) -> int:
    """Nanoseconds since the epoch that the file's times count from, 0 where it says nothing.

    Kineto writes it at the top level, viztracer among its own metadata.
    """
    viztracer = metadata.get("viztracer_metadata")
    nested = viztracer if isinstance(viztracer, dict) else {}
    given = metadata if BASE_TIME in metadata else nested
    base = integer(given.get(BASE_TIME))
    if base < 0 and BASE_TIME in given:
        findings.add("base_time_unreadable", BASE_TIME_UNREADABLE, where=where)
    return max(base, 0)


def counters_among_slices(
    slices: list[Any], names: Iterable[Any], findings: Findings
) -> tuple[list[Any], list[Any]]:
    """Separate the counter samples that rdmatop stores as slices; returns (slices, counters).

    Where Kineto has no counters of its own, rdmatop writes each sample as a slice without a
    length, of the category ``privateuse1_runtime``, with ``rdmatop_counter: 1`` among its values,
    in a process of its name. ``names``: the file's ``M`` events.
    """
    pids = [e.pid for e in names if e.name == "process_name" and b'"rdmatop"' in bytes(e.args)]
    marked = (
        [event for event in slices if event.pid in pids and is_counter_sample(event)]
        if pids
        else []
    )
    if not marked:
        return slices, []
    findings.add(
        "counter_stored_as_slice",
        "counter samples that rdmatop stored as slices without a length are counters here",
        len(marked),
    )
    for event in marked:
        values = msgspec.json.decode(event.args)
        del values[_RDMATOP]
        event.args = msgspec.Raw(msgspec.json.encode(values))
    samples = set(map(id, marked))
    return [event for event in slices if id(event) not in samples], marked


def is_counter_sample(event: Any) -> bool:
    """Whether an event is a sample of rdmatop's, if its process is rdmatop's."""
    try:
        values = msgspec.json.decode(event.args)
    except (msgspec.DecodeError, RecursionError):
        return False
    return isinstance(values, dict) and values.get(_RDMATOP) == 1


def joined_arguments(begin: msgspec.Raw | bytes, end: msgspec.Raw | bytes) -> msgspec.Raw | bytes:
    """The arguments of a begin and its end together; the end's win, as the format says."""
    if not len(memoryview(end)) or end == begin:
        return begin
    if not len(memoryview(begin)):
        return end
    try:
        one, other = msgspec.json.decode(begin), msgspec.json.decode(end)
    except (msgspec.MsgspecError, RecursionError):
        return begin
    if not (isinstance(one, dict) and isinstance(other, dict) and other):
        return begin
    return msgspec.json.encode({**one, **other})


def report_producer(metadata: dict[str, Any], findings: Findings) -> None:
    """Findings on what a file's top-level keys say about its other content."""
    viztracer = metadata.get("viztracer_metadata")
    if isinstance(viztracer, dict) and viztracer.get("overflow"):
        findings.add(
            "events_dropped",
            "viztracer's buffer was full: its oldest events were overwritten",
        )
    for key, what in (
        ("systemTraceEvents", "text of the system's own trace"),
        ("samples", "stack samples"),
        ("powerTraceAsString", "a power trace"),
    ):
        if metadata.get(key):
            findings.add(
                "part_not_shown",
                f"{what} ({key}) beside the events is not shown; it is kept among the metadata",
            )
