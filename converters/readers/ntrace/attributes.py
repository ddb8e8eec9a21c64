"""Attributes of raw runtime events, names that stand for ids, and events as JSON text."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.readers.neuron.runtime_events import PHASES
from neuron_tb.converters.readers.ntrace.containers import MOST_FIELDS
from neuron_tb.converters.readers.ntrace.numbering import (
    ATTRIBUTES,
    CORE,
    DEVICE,
    DURATION,
    HINT,
    ID,
    PARENT,
    STATUS,
    THREAD,
    TIME,
    Numbering,
)
from neuron_tb.converters.readers.ntrace.types import type_name
from neuron_tb.converters.readers.ntrace.wire_scan import LENGTH, VARINT, Message, Scan, scan

_KEY, _VALUE = 1, 2
_NAMES_OF_IDS = {b"model_id": b"model_name", b"tensor_id": b"tensor_name"}
_MOST_DIGITS = 20

Rows = NDArray[np.integer]


@dataclass(slots=True)
class Attributes:
    """All entries of the events' maps: the event of each, its key and its value."""

    rows: Rows
    keys: list[bytes]
    values: list[bytes]
    _by_key: dict[bytes, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Scan) -> Attributes | None:
        """The entries of field 12; None where they are no entries of a map of text."""
        nested = events.nested.get(ATTRIBUTES)
        if nested is None:
            return cls(np.empty(0, np.int32), [], [])
        entries = scan(nested.bodies)
        if not entries.whole.all() or not entries.shapes <= {(_KEY, LENGTH), (_VALUE, LENGTH)}:
            return None
        one_each: dict[bytes, bytes] = {}
        keys = [one_each.setdefault(key, key) for key in _texts(entries, _KEY)]
        values = _texts(entries, _VALUE)
        if not all(keys):
            return None
        found = cls(nested.rows, keys, values)
        by_key: dict[bytes, list[int]] = defaultdict(list)
        for number, key in enumerate(keys):
            by_key[key].append(number)
        found._by_key = dict(by_key)
        return found

    def rows_by_key(self) -> dict[bytes, Rows]:
        """The events that have each key."""
        return {key: self.rows[numbers] for key, numbers in self._by_key.items()}

    def of_key(self, key: bytes) -> tuple[Rows, list[bytes]]:
        """(events, values) of a key."""
        numbers = self._by_key.get(key, [])
        return self.rows[numbers], [self.values[number] for number in numbers]


def _texts(entries: Scan, number: int) -> list[bytes]:
    texts = [b""] * len(entries)
    nested = entries.nested.get(number)
    if nested is not None:
        for row, text in zip(nested.rows.tolist(), nested.bodies.texts(), strict=True):
            texts[row] = text
    return texts


def interned(messages: Sequence[Message]) -> dict[int, str]:
    """Names by id, from every field whose bodies are databases of interned names.

    Such a database has a map from numbers to text in field 2. An id with two names has none.
    """
    names: dict[int, str] = {}
    for whole in messages:
        for number, bodies in whole.nested.items():
            if number > MOST_FIELDS:
                continue
            databases = scan(bodies)
            nested = databases.nested.get(2)
            if nested is None or not databases.whole.all() or not databases.shapes <= _DATABASE:
                continue
            entries = scan(nested.bodies)
            if not entries.whole.all() or not entries.shapes <= {(_KEY, VARINT), (_VALUE, LENGTH)}:
                continue
            ids = entries.column(_KEY).view(np.uint64).tolist()
            for own, text in zip(ids, _texts(entries, _VALUE), strict=True):
                name = text.decode("utf-8", "replace")
                names[own] = name if names.get(own, name) == name else ""
    return {own: name for own, name in names.items() if own and name}


_DATABASE = {(1, VARINT), (1, LENGTH), (2, LENGTH)}


def event_texts(
    events: Scan, numbering: Numbering, attributes: Attributes, names: dict[int, str]
) -> list[bytes]:
    """Every event as the JSON object that the runtime's own dump would have."""
    data = _data_texts(len(events), attributes, names)
    optional = [
        (b'"%b":%%d,' % label, events.column(number).tolist(), events.present(number).tolist())
        for label, number in (
            (b"id", ID),
            (b"parent_id", PARENT),
            (b"nd_idx", DEVICE),
            (b"tracking_id", numbering.tracking),
            (b"thread_id", THREAD),
            (b"duration", DURATION),
            (b"status", STATUS),
            (b"number", numbering.number),
            (b"nrta_seq_id", numbering.sequence),
        )
        if events.present(number).any()
    ]
    heads = _heads(events, numbering)
    hints = _texts(events, HINT)
    texts = []
    for row, (head, core, time, hint) in enumerate(
        zip(heads, events.column(CORE).tolist(), events.column(TIME).tolist(), hints, strict=True)
    ):
        text = head + b'"nc_idx":%d,' % core
        for template, values, present in optional:
            if present[row]:
                text += template % values[row]
        if hint:
            text += b'"hint":' + _quoted(hint) + b","
        texts.append(text + b'"data":{' + data[row] + b'},"timestamp_ns":%d}' % time)
    return texts


def _heads(events: Scan, numbering: Numbering) -> list[bytes]:
    types = events.column(numbering.event_type).tolist()
    phases = events.column(numbering.phase).tolist()
    made = {
        (kind, phase): b'{"event_type":"%b","phase":"%b",'
        % (type_name(kind).encode(), PHASES[phase].encode())
        for kind, phase in set(zip(types, phases, strict=True))
    }
    return [made[kind] for kind in zip(types, phases, strict=True)]


def _data_texts(count: int, attributes: Attributes, names: dict[int, str]) -> list[bytes]:
    """The attributes of each event as the inside of a JSON object."""
    data = [b""] * count
    labels = {key: _quoted(key) + b":" for key in set(attributes.keys)}
    for row, key, value in zip(
        attributes.rows.tolist(), attributes.keys, attributes.values, strict=True
    ):
        text = labels[key] + (value if _is_number(value) else _quoted(value))
        data[row] = data[row] + b"," + text if data[row] else text
    for key, label in _NAMES_OF_IDS.items():
        named = set(attributes.of_key(label)[0].tolist())
        rows, values = attributes.of_key(key)
        for row, value in zip(rows.tolist(), values, strict=True):
            name = names.get(int(value)) if value.isdigit() else None
            if name is not None and row not in named:
                data[row] += b"," + _quoted(label) + b":" + _quoted(name.encode())
    return data


def _is_number(value: bytes) -> bool:
    digits = value[1:] if value[:1] == b"-" else value
    return (
        digits.isdigit() and len(digits) <= _MOST_DIGITS and (digits[:1] != b"0" or value == b"0")
    )


def _quoted(text: bytes) -> bytes:
    return json.dumps(text.decode("utf-8", "replace"), ensure_ascii=False).encode()
