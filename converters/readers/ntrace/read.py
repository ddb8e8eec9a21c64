"""``ntrace.pb`` and the files beside it, as the Neuron runtime writes them: experimental.

The format is not published. What is read here rests on evidence in the files themselves, which a
finding names; where it is missing or contradicts itself the file is refused. Events become rows
exactly as those of the runtime's JSON dump do (``runtime_events``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import NONE, Int64, Trace
from neuron_tb.converters.model.numbers import integers
from neuron_tb.converters.readers.context import Context
from neuron_tb.converters.readers.explorer_commands import system_command
from neuron_tb.converters.readers.json.document import read_text
from neuron_tb.converters.readers.neuron.rows import NeuronTraceBuilder
from neuron_tb.converters.readers.neuron.runtime_events import RuntimeEvents, add_events
from neuron_tb.converters.readers.ntrace import numbering as numbering
from neuron_tb.converters.readers.ntrace.attributes import Attributes, event_texts, interned
from neuron_tb.converters.readers.ntrace.containers import EventList, event_list
from neuron_tb.converters.readers.ntrace.samples import samples
from neuron_tb.converters.readers.ntrace.types import type_name
from neuron_tb.converters.readers.ntrace.wire_scan import Message, Scan, message, padded

EVENTS, INFO, CPU, MEMORY = "ntrace.pb", "trace_info.pb", "cpu_util.pb", "host_mem.pb"

_INSTANCE = re.compile(rb"i-[0-9a-f]{8,17}")
_NUMBERS = {
    "physical_core": ("device_core_idx",),
    "device_ns": ("nc_timestamp_ns",),
    "host_ns": ("cpu_timestamp_ns",),
    "exec_id": ("exec_id",),
    "bytes": ("total_size", "size"),
}
"""Columns of events that stand in attributes; of several names the last one wins."""


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    data: bytes
    message: Message


def read(path: Path, context: Context) -> Trace:
    """Read the raw files beside ``path``: one process, a device per logical NeuronCore.

    Raises NeuronTbError, with one sentence, when the evidence does not decide what they mean.
    """
    findings = Findings()
    files = {f.path.name: f for f in _files(path, findings)}
    events = _events(files, path)
    scan = events.scan
    attributes = Attributes.of(scan)
    if attributes is None:
        raise NeuronTbError(_refused(events.path, "its attributes are no maps of text"))
    try:
        chosen = numbering.settle(scan, attributes.rows_by_key())
    except NeuronTbError as error:
        raise NeuronTbError(_refused(events.path, str(error))) from error
    builder = NeuronTraceBuilder(events.path, _with_instance(context, files))
    builder.findings.extend(findings)
    _report(builder, events, chosen)
    names = interned([f.message for f in files.values()])
    types = np.unique(scan.column(chosen.event_type))
    columns = _columns(scan, chosen, attributes, types)
    names_of_types = [type_name(int(t)) for t in types]
    add_events(builder, columns, names_of_types, [], event_texts(scan, chosen, attributes, names))
    _add_samples(builder, files)
    return builder.finish({"raw_decoder": {"container": events.why, "fields": chosen.evidence}})


def _files(path: Path, findings: Findings) -> list[_File]:
    found = []
    for name in (EVENTS, INFO, CPU, MEMORY):
        place = path.with_name(name)
        if place.is_file():
            data = read_text(place, findings)[:]
            found.append(_File(place, data, message(data, padded(data))))
    return found


def _events(files: dict[str, _File], path: Path) -> EventList:
    """The events: in ``ntrace.pb``, or in ``trace_info.pb`` where that is where they are."""
    reasons = []
    for name in (EVENTS, INFO):
        file = files.get(name)
        if file is None:
            continue
        try:
            return event_list(file.path, file.data, file.message)
        except NeuronTbError as error:
            reasons.append(_refused(file.path, str(error)))
    raise NeuronTbError(reasons[0] if reasons else f"{path.parent} has no {EVENTS}.")


def _refused(path: Path, reason: str) -> str:
    return (
        f"{path} cannot be decoded here with certainty: {reason}; run "
        f"`{system_command(path.parent)}`, which reads it."
    )


def _report(builder: NeuronTraceBuilder, events: EventList, chosen: numbering.Numbering) -> None:
    builder.findings.add(
        "experimental_decoder",
        f"{events.path.name} was decoded experimentally, its format being unpublished: "
        f"{'; '.join((events.why, *chosen.evidence))}",
        where=str(events.path),
    )
    unknown = sorted(n for n, _ in events.scan.shapes if n > numbering.LAST_KNOWN)
    builder.findings.add(
        "newer_version",
        f"{events.path.name} has fields that are not known here and were left out: "
        f"{', '.join(map(str, unknown))}",
        len(unknown),
    )
    builder.findings.add(
        "raw_truncated",
        f"{events.path.name} ends inside a record, of which these bytes were left out",
        events.rest,
        where=str(events.path),
    )


def _columns(
    scan: Scan, chosen: numbering.Numbering, attributes: Attributes, types: Int64
) -> RuntimeEvents:
    count = len(scan)
    of_attributes = {}
    for name, keys in _NUMBERS.items():
        column = np.full(count, NONE, np.int64)
        for key in keys:
            rows, values = attributes.of_key(key.encode())
            column[rows] = integers([v.decode("ascii", "replace") for v in values])
        of_attributes[name] = column
    return RuntimeEvents(
        type=np.searchsorted(types, scan.column(chosen.event_type)).astype(np.int32),
        phase=scan.column(chosen.phase).astype(np.uint8),
        instance=np.full(count, NONE, np.int32),
        process=np.full(count, NONE, np.int64),
        thread=scan.column(numbering.THREAD, NONE),
        core=scan.column(numbering.CORE),
        tracking=scan.column(chosen.tracking, NONE),
        time_ns=scan.column(numbering.TIME),
        sequence_id=scan.column(chosen.sequence, NONE),
        **of_attributes,
    )


def _with_instance(context: Context, files: dict[str, _File]) -> Context:
    """The instance id that the files name, where the directory names none."""
    if context.host:
        return context
    found = {
        text
        for file in files.values()
        for bodies in file.message.nested.values()
        if len(bodies) == 1
        for text in bodies.texts()
        if _INSTANCE.fullmatch(text)
    }
    return replace(context, host=found.pop().decode()) if len(found) == 1 else context


def _add_samples(builder: NeuronTraceBuilder, files: dict[str, _File]) -> None:
    for name, what in ((MEMORY, "memory"), (CPU, "cpu")):
        file = files.get(name)
        if file is None or not file.data:
            continue
        try:
            builder.add_samples(samples(what, file.data, file.message))
        except NeuronTbError as error:
            builder.findings.add(
                "raw_samples_unreadable",
                f"{name} was left out: {error}",
                where=str(file.path),
            )
