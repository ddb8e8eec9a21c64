"""Arguments of events as Perfetto's debug annotations.

Arguments are JSON text, one object per event, and their keys and types repeat: events with the
same keys are encoded together, column by column. This is the one place of the Perfetto output
where Python runs per event, to decode the JSON.

Schema: ``perfetto/trace/track_event/debug_annotation.proto`` of google/perfetto.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters import wire
from neuron_tb.converters.arguments import Arguments
from neuron_tb.converters.trace import Int32, Int64
from neuron_tb.converters.wire import Ragged, Rows

_OF_EVENT = 4  # TrackEvent.debug_annotations
_NAME_IID, _BOOL, _INT, _DOUBLE, _STRING = 1, 2, 4, 5, 6
_DICT_ENTRY, _ARRAY_VALUE, _STRING_IID = 11, 12, 17
_INTERNED_NAMES, _INTERNED_STRINGS = 3, 29

_FEW = 24
"""Up to this many events with the same keys are encoded one by one: columns cost more."""
_SHORT = 3
"""Strings up to this many characters are as small in place as a reference to them."""
_LARGEST_CACHE = 100_000

_TEXT_OR_STRUCTURE = (b'"', b"[", b"{")
_Texts = dict[str, msgspec.Raw]
_DECODE_KEYS = msgspec.json.Decoder(_Texts).decode
_DECODE = msgspec.json.Decoder().decode
_ENCODE = msgspec.json.Encoder().encode


class Annotations:
    """Encodes the arguments of one packet sequence and keeps its interned strings.

    ``source`` is the JSON text that events address by start and length. What
    :meth:`new_interned` returns has to stand in the file before the annotations that were
    encoded until then.
    """

    def __init__(self, source: Arguments) -> None:
        self._source = source
        self._names: dict[str, int] = {}
        self._strings: dict[str, int] = {}
        self._pending = bytearray()
        self._cache: dict[tuple[str, bytes], bytes] = {}

    def new_interned(self) -> bytes:
        """Fields of ``InternedData`` for the strings that came up since the last call."""
        fields, self._pending = bytes(self._pending), bytearray()
        return fields

    def of_dict(self, values: dict[str, Any]) -> bytes:
        """Annotations of one event, from decoded arguments, which are expected to repeat."""
        self._intern_all(values)
        return b"".join(
            [wire.encode_field(_OF_EVENT, self._named(key, v)) for key, v in values.items()]
        )

    def of_rows(self, starts: Int64, lengths: Int32) -> Ragged:
        """Annotations of n events, from the ranges of their JSON text (length 0: none)."""
        encoded = [b""] * len(starts)
        shapes: dict[tuple[str, ...], tuple[list[int], list[_Texts]]] = {}
        present = np.flatnonzero(lengths)
        texts = self._source.texts(starts[present], lengths[present])
        for row, text in zip(present.tolist(), texts, strict=True):
            values = _values(text)
            keys = tuple(values)
            shape = shapes.get(keys)
            if shape is None:
                shape = shapes[keys] = ([], [])
            shape[0].append(row)
            shape[1].append(values)
        together: list[tuple[list[int], Ragged]] = []
        for keys, (rows, events) in shapes.items():
            if len(rows) <= _FEW:
                for row, values in zip(rows, events, strict=True):
                    encoded[row] = b"".join(
                        [self._cached(key, bytes(text)) for key, text in values.items()]
                    )
            elif keys:
                together.append((rows, self._of_shape(keys, events)))
        return _in_order(encoded, together)

    def _of_shape(self, keys: Sequence[str], events: list[_Texts]) -> Ragged:
        columns = zip(*[event.values() for event in events], strict=True)
        return wire.joined(*map(self._column, keys, columns))

    def _column(self, key: str, texts: Sequence[msgspec.Raw]) -> Rows | Ragged:
        """One argument of many events; numbers are never Python objects of their own for long."""
        if bytes(texts[0])[:1] in _TEXT_OR_STRUCTURE:
            return self._distinct(key, texts)
        values = _DECODE(b"[" + b",".join(texts) + b"]")
        types = set(map(type, values))
        name = wire.constant(wire.encode_field(_NAME_IID, self._name(key)), len(values))
        if types == {int}:
            try:
                numbers = np.array(values, np.int64)
            except OverflowError:
                return self._distinct(key, texts)
            body = wire.side_by_side(name, wire.varint_field(_INT, numbers))
        elif types == {float}:
            body = wire.side_by_side(name, wire.double_field(_DOUBLE, np.array(values)))
        elif types == {bool}:
            body = wire.side_by_side(name, wire.varint_field(_BOOL, np.array(values)))
        else:
            return self._distinct(key, texts)
        return wire.message_field(_OF_EVENT, body)

    def _distinct(self, key: str, raws: Sequence[msgspec.Raw]) -> Ragged:
        """A column of texts and structures: each different value is encoded once."""
        texts = list(map(bytes, raws))
        counts = Counter(texts)
        for text, count in counts.items():
            if count > 1 and text[:1] == b'"':
                self._intern(_DECODE(text))
        positions = {text: position for position, text in enumerate(counts)}
        distinct = Ragged.of([self._cached(key, text) for text in counts])
        index = np.fromiter(map(positions.__getitem__, texts), np.int64, len(texts))
        return distinct.take(index)

    def _cached(self, key: str, text: bytes) -> bytes:
        """The annotation of one value, given as JSON text; texts that come back get interned."""
        found = self._cache.get((key, text))
        if found is not None and (text[:1] != b'"' or not self._intern(_DECODE(text))):
            return found
        if len(self._cache) >= _LARGEST_CACHE:
            self._cache.clear()
        found = wire.encode_field(_OF_EVENT, self._named(key, _DECODE(text)))
        self._cache[key, text] = found
        return found

    def _named(self, key: str, value: Any) -> bytes:
        return wire.encode_field(_NAME_IID, self._name(key)) + self._value(value)

    def _value(self, value: Any) -> bytes:
        """The fields of one ``DebugAnnotation``, without its name."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bool):
            return wire.encode_field(_BOOL, int(value))
        if isinstance(value, int):
            if -(2**63) <= value < 2**63:
                return wire.encode_field(_INT, value)
            return self._text(str(value))  # an unsigned annotation reads back negative
        if isinstance(value, float):
            return wire.encode_field(_DOUBLE, value)
        if isinstance(value, list) and value:
            self._intern_all(value)  # lists such as "Input type" repeat a few words
            return b"".join([wire.encode_field(_ARRAY_VALUE, self._value(v)) for v in value])
        if isinstance(value, dict) and value:
            entries = [self._named(str(k), v) for k, v in value.items()]
            return b"".join([wire.encode_field(_DICT_ENTRY, entry) for entry in entries])
        # An annotation without a value vanishes: null, [] and {} are shown as text.
        return self._text(_ENCODE(value).decode())

    def _text(self, text: str) -> bytes:
        number = self._strings.get(text)
        return (
            wire.encode_field(_STRING, text)
            if number is None
            else wire.encode_field(_STRING_IID, number)
        )

    def _name(self, name: str) -> int:
        number = self._names.get(name)
        if number is None:
            number = self._names[name] = len(self._names) + 1
            self._pending += _interned(_INTERNED_NAMES, number, name)
        return number

    def _intern_all(self, values: Any) -> None:
        if isinstance(values, dict):
            values = values.values()
        for value in values:
            if isinstance(value, str):
                self._intern(value)
            elif isinstance(value, dict | list):
                self._intern_all(value)

    def _intern(self, text: str) -> bool:
        """Give a text that repeats a number; returns whether it is new."""
        if len(text) <= _SHORT or text in self._strings:
            return False
        number = self._strings[text] = len(self._strings) + 1
        self._pending += _interned(_INTERNED_STRINGS, number, text)
        return True


def _values(text: bytes) -> _Texts:
    """Keys and values of one event, the values still as JSON text."""
    try:
        return _DECODE_KEYS(text)
    except msgspec.ValidationError:  # not an object
        return {"value": msgspec.Raw(text)}
    except msgspec.DecodeError:
        return {"value": msgspec.Raw(_ENCODE(text.decode("utf-8", "replace")))}


def _in_order(few: list[bytes], together: list[tuple[list[int], Ragged]]) -> Ragged:
    """Rows encoded one by one and rows encoded together, as one column in order."""
    alone = Ragged.of(few)
    if not together:
        return alone
    parts = [alone, *(rows for _, rows in together)]
    place = np.arange(len(few))
    offset = len(few)
    for positions, rows in together:
        place[positions] = offset + np.arange(len(rows))
        offset += len(rows)
    stacked = Ragged(
        np.concatenate([part.data for part in parts]),
        np.concatenate([part.lengths for part in parts]),
    )
    return stacked.take(place)


def _interned(field: int, number: int, text: str) -> bytes:
    return wire.encode_field(field, wire.encode_field(1, number) + wire.encode_field(2, text))
