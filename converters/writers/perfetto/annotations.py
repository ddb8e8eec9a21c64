"""Arguments of events as Perfetto's debug annotations.

Arguments are JSON text, one object per event, and their keys repeat: events with the same keys
are encoded together. Numbers become columns, strings are copied, and what stands between two
numbers is decoded once for each different text. Only arguments with escapes, with nested
objects or of a rare shape are decoded event by event.

Schema: ``perfetto/trace/track_event/debug_annotation.proto`` of google/perfetto.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import Int32, Int64, ragged
from neuron_tb.converters.model.arguments import Arguments
from neuron_tb.converters.model.members import Members, Shape, members
from neuron_tb.converters.model.ragged import Ragged
from neuron_tb.converters.writers import wire
from neuron_tb.converters.writers.wire import Rows

_OF_EVENT = 4  # TrackEvent.debug_annotations
_NAME_IID, _BOOL, _INT, _DOUBLE, _STRING = 1, 2, 4, 5, 6
_DICT_ENTRY, _ARRAY_VALUE, _STRING_IID = 11, 12, 17
_INTERNED_NAMES, _INTERNED_STRINGS = 3, 29

_FEW = 24
"""Up to this many events with the same keys are encoded one by one: columns cost more."""
_SHORT = 3
"""Strings up to this many characters are as small in place as a reference to them."""
_LARGEST_CACHE = 20_000
_MANY = 4
"""With fewer events for each different text than this, texts are no longer decoded as a whole."""

_DIGITS = np.zeros(256, np.bool_)
_DIGITS[list(b"-0123456789")] = True
_Texts = dict[str, msgspec.Raw]
_DECODE_KEYS = msgspec.json.Decoder(_Texts).decode
_DECODE = msgspec.json.Decoder().decode
_DECODE_LISTS = msgspec.json.Decoder(list[list[str]]).decode
_ENCODE = msgspec.json.Encoder().encode


class Annotations:
    """Encodes the arguments of one packet sequence and keeps its interned strings.

    ``source`` is the JSON text that events address by start and length. What
    ``new_interned`` returns has to stand in the file before the annotations that were
    encoded until then.
    """

    def __init__(self, source: Arguments) -> None:
        self._source = source
        self._field = _OF_EVENT
        self._names: dict[str, int] = {}
        self._strings: dict[str, int] = {}
        self._pending = bytearray()
        self._cache: dict[tuple[str, bytes], bytes] = {}
        self._segments: dict[bytes, tuple[bytes, bool]] = {}
        self._entries: _Entries | None = None

    def new_interned(self) -> bytes:
        """Fields of ``InternedData`` for the strings that came up since the last call."""
        fields = bytes(self._pending)
        self._pending.clear()
        return fields

    def of_dict(self, values: dict[str, Any]) -> bytes:
        """Annotations of one event, from decoded arguments, which are expected to repeat."""
        self._intern_all(values)
        return b"".join(
            [wire.encode_field(_OF_EVENT, self._named(key, v)) for key, v in values.items()]
        )

    def of_rows(self, starts: Int64, lengths: Int32) -> Ragged:
        """Annotations of n events, from the ranges of their JSON text (length 0: none)."""
        present = np.flatnonzero(lengths)
        sizes = lengths[present]
        found = self._of_texts(self._source.joined(starts[present], sizes), sizes)
        if len(present) == len(starts):
            return found
        place = np.full(len(starts), len(present))
        place[present] = np.arange(len(present))
        return ragged.stacked([found, Ragged.of([b""])]).take(place)

    def _of_texts(self, texts: bytes, sizes: NDArray[np.integer]) -> Ragged:
        """Annotations of events from their JSON texts, which stand back to back."""
        apart = members(texts, sizes)
        valid = _is_utf8(texts)
        alone = apart.others if valid else np.arange(len(sizes))
        together: list[tuple[NDArray[np.intp], Ragged]] = []
        for shape in apart.shapes if valid else ():
            if len(shape.rows) <= _FEW:
                alone = np.append(alone, shape.rows)
            elif shape.keys:
                try:
                    together.append((shape.rows, self._of_shape(apart, shape)))
                except msgspec.DecodeError:  # texts that are no JSON
                    alone = np.append(alone, shape.rows)
        encoded = [b""] * len(sizes)
        ends = np.cumsum(sizes, dtype=np.int64)
        nested: dict[bytes, list[tuple[int, bytes, bytes]]] = defaultdict(list)
        for row in alone.tolist():
            text = texts[int(ends[row] - sizes[row]) : int(ends[row])]
            split = _object_at_the_end(text) if valid and self._field == _OF_EVENT else None
            if split is not None:
                key, outer, inner = split
                nested[key].append((row, outer, inner))
                continue
            encoded[row] = self._alone(text)
        for key, rows in nested.items():
            if len(rows) > _FEW:
                place = np.array([row for row, _, _ in rows], np.intp)
                together.append((place, self._of_nested(key.decode(), rows)))
                continue
            for row, _, _ in rows:
                encoded[row] = self._alone(texts[int(ends[row] - sizes[row]) : int(ends[row])])
        return _in_order(encoded, together)

    def _alone(self, text: bytes) -> bytes:
        """Annotations of one event."""
        pairs = [self._cached(key, bytes(raw)) for key, raw in _values(text).items()]
        return b"".join(pairs)

    def _of_nested(self, key: str, rows: Sequence[tuple[int, bytes, bytes]]) -> Ragged:
        """Annotations of events whose last argument, ``key``, is an object of plain values."""
        outer, inner = [row[1] for row in rows], [row[2] for row in rows]
        before = self._of_texts(b"".join(outer), np.array(list(map(len, outer)), np.int64))
        if self._entries is None:
            self._entries = _Entries(self)
        entries = self._entries._of_texts(
            b"".join(inner), np.array(list(map(len, inner)), np.int64)
        )
        name = wire.constant(wire.encode_field(_NAME_IID, self._name(key)), len(rows))
        head = wire.message_field(_OF_EVENT, name, tail=entries.lengths)
        return wire.joined(before, head, entries)

    def _of_shape(self, apart: Members, shape: Shape) -> Ragged:
        """Annotations of events that have the same keys."""
        keys = [key.decode() for key in shape.keys]
        data = np.frombuffer(apart.text, np.uint8)
        parts: list[Rows | Ragged] = []
        first = 0  # of the members that are still to be encoded
        for place, key in enumerate(keys):
            number = None
            if _DIGITS[data[apart.start[shape.first + place]]].all():
                number = self._numbers(key, apart.value(shape, place))
            if number is not None:
                parts += self._texts(apart, shape, keys, first, place)
                parts.append(number)
                first = place + 1
        parts += self._texts(apart, shape, keys, first, len(keys))
        return wire.joined(*parts)

    def _numbers(self, key: str, texts: Ragged) -> Rows | None:
        """A column of numbers; None when some do not fit 64 bits."""
        name = wire.constant(wire.encode_field(_NAME_IID, self._name(key)), len(texts))
        integers = texts.integers()
        if integers is None:
            values = _DECODE(b"[" + ragged.joined(texts, b",").tobytes()[:-1] + b"]")
            whole = np.array([isinstance(value, int) for value in values])
            try:
                integers = np.array(
                    [v if w else 0 for v, w in zip(values, whole, strict=True)], np.int64
                )
            except OverflowError:
                return None
            value = wire.side_by_side(
                wire.varint_field(_INT, integers, whole),
                wire.double_field(_DOUBLE, np.array(values, np.float64), ~whole),
            )
        else:
            value = wire.varint_field(_INT, integers)
        return wire.message_field(self._field, wire.side_by_side(name, value))

    def _texts(
        self, apart: Members, shape: Shape, keys: list[str], first: int, last: int
    ) -> Iterator[Rows | Ragged]:
        """The members from ``first`` to ``last`` (not included), which are no numbers."""
        if first == last:
            return
        distinct, index = apart.between(shape, first, last - 1, keys=True).distinct()
        if len(distinct) * _MANY <= len(index) or len(distinct) <= _FEW:
            repeats = np.bincount(index, minlength=len(distinct)) > 1
            encoded = map(self._several, distinct, repeats.tolist())
            yield Ragged.of(list(encoded)).take(index)
            return
        for place in range(first, last):
            yield from self._column(keys[place], apart.value(shape, place))

    def _several(self, text: bytes, repeats: bool) -> bytes:
        """The annotations of members that stand in the text side by side."""
        found = self._segments.get(text)
        if found is None or (repeats and not found[1]):
            values = _DECODE_KEYS(b"{" + text + b"}")
            if repeats:
                self._intern_all(_DECODE(b"{" + text + b"}"))
            encoded = b"".join([self._cached(key, bytes(raw)) for key, raw in values.items()])
            if len(self._segments) >= _LARGEST_CACHE:
                self._segments.clear()
            found = self._segments[text] = encoded, repeats
        return found[0]

    def _column(self, key: str, texts: Ragged) -> Iterator[Rows | Ragged]:
        """One member of many events; strings that occur only once are copied as they are."""
        lists = self._lists(key, texts)
        if lists is not None:
            yield from lists
            return
        distinct, index = texts.distinct()
        repeats = np.bincount(index, minlength=len(distinct)) > 1
        for number in np.flatnonzero(repeats).tolist():
            if distinct[number][:1] == b'"':
                self._intern(_DECODE(distinct[number]))
        if repeats.mean() > 0.5 or any(text[:1] != b'"' for text in distinct):
            yield Ragged.of([self._cached(key, text) for text in distinct]).take(index)
            return
        known = [self._strings.get(text[1:-1].decode(), 0) for text in distinct]
        reference = np.array(known, np.int64)[index]
        inline = reference == 0
        name = wire.constant(wire.encode_field(_NAME_IID, self._name(key)), len(index))
        number_of = wire.varint_field(_STRING_IID, reference, ~inline)
        contents = Ragged.of(
            [b"" if iid else text[1:-1] for text, iid in zip(distinct, known, strict=True)]
        ).take(index)
        nothing = wire.constant(b"", len(index))
        prefix = wire.length_prefix(_STRING, nothing, inline, contents.lengths)
        body = wire.side_by_side(name, number_of, prefix)
        yield wire.message_field(self._field, body, tail=contents.lengths)
        yield contents

    def _lists(self, key: str, texts: Ragged) -> tuple[Rows, Ragged] | None:
        """A column of lists of identifiers (numbers in text); None when it is none."""
        if texts.take(np.zeros(1, np.intp)).tobytes()[:1] != b"[":
            return None
        try:
            lists = _DECODE_LISTS(b"[" + ragged.joined(texts, b",").tobytes()[:-1] + b"]")
        except msgspec.ValidationError:
            return None
        flat = list(chain.from_iterable(lists))
        if not all(lists) or not all(map(_is_number_in_text, flat)):
            return None
        items = Ragged.of([item.encode() for item in flat])
        nothing = wire.constant(b"", len(items))
        text = wire.length_prefix(_STRING, nothing, tail=items.lengths)
        encoded = wire.joined(wire.message_field(_ARRAY_VALUE, text, tail=items.lengths), items)
        ends = np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)))
        sizes = np.diff(np.cumsum(encoded.lengths)[ends - 1], prepend=0)
        name = wire.constant(wire.encode_field(_NAME_IID, self._name(key)), len(lists))
        head = wire.message_field(self._field, name, tail=sizes)
        return head, Ragged.back_to_back(encoded.tobytes(), sizes)

    def _cached(self, key: str, text: bytes) -> bytes:
        """The annotation of one value, given as JSON text; texts that come back get interned."""
        found = self._cache.get((key, text))
        if found is not None and (text[:1] != b'"' or not self._intern(_DECODE(text))):
            return found
        if len(self._cache) >= _LARGEST_CACHE:
            self._cache.clear()
        found = wire.encode_field(self._field, self._named(key, _DECODE(text)))
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
            if all(map(_is_number_in_text, value)):  # identifiers, which do not repeat
                return b"".join([_HEAD_OF_ITEM[len(v)] + v.encode() for v in value])
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


class _Entries(Annotations):
    """Encodes the entries of nested objects, with the names and strings of their events."""

    def __init__(self, events: Annotations) -> None:
        super().__init__(events._source)
        self._field = _DICT_ENTRY
        self._names, self._strings = events._names, events._strings
        self._pending = events._pending


_LONGEST_NUMBER = 40
_HEAD_OF_ITEM = [
    wire.encode_field(_ARRAY_VALUE, wire.encode_field(_STRING, "0" * size))[: -size or None]
    for size in range(_LONGEST_NUMBER + 1)
]
"""Of a text in a list, by its length: all that comes before the text."""


def _is_number_in_text(value: object) -> bool:
    return (
        isinstance(value, str)
        and value.isascii()
        and value.isdecimal()
        and len(value) <= _LONGEST_NUMBER
    )


def _object_at_the_end(text: bytes) -> tuple[bytes, bytes, bytes] | None:
    """(key, all but that, value) of arguments with one nested object, which is the last value.

    None for all other arguments, for those with escapes, and for an empty nested object.
    """
    start = text.find(b"{", 1)
    if start < 0 or text[-2:] != b"}}" or text[start + 1 : start + 2] == b"}":
        return None
    if text.count(b"{") != 2 or text.count(b"}") != 2 or b"\\" in text:
        return None
    last = text.rfind(b'"', 0, start)
    first = text.rfind(b'"', 0, last)
    # An even number of quotation marks: the brace is no part of a string.
    if first < 0 or text.count(b'"', 0, start) % 2 or text[last + 1 : start].strip() != b":":
        return None
    outer = text[:first].rstrip(b", \t\r\n")
    return text[first + 1 : last], outer + b"}", text[start:-1]


def _values(text: bytes) -> _Texts:
    """Keys and values of one event, the values still as JSON text."""
    try:
        return _DECODE_KEYS(text)
    except msgspec.ValidationError:  # not an object
        return {"value": msgspec.Raw(text)}
    except msgspec.DecodeError:
        return {"value": msgspec.Raw(_ENCODE(text.decode("utf-8", "replace")))}


def _in_order(alone: list[bytes], together: list[tuple[NDArray[np.intp], Ragged]]) -> Ragged:
    """Rows encoded one by one and rows encoded together, as one column in order."""
    parts = [Ragged.of(alone), *(rows for _, rows in together)]
    if len(parts) == 1:
        return parts[0]
    place = np.arange(len(alone))
    offset = len(alone)
    for positions, rows in together:
        place[positions] = offset + np.arange(len(rows))
        offset += len(rows)
    return ragged.stacked(parts).take(place)


def _is_utf8(text: bytes) -> bool:
    try:
        str(text, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _interned(field: int, number: int, text: str) -> bytes:
    return wire.encode_field(field, wire.encode_field(1, number) + wire.encode_field(2, text))
