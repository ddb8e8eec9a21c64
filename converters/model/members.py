"""Keys and values of many JSON objects at once, without decoding any of them.

The arguments of events are small flat objects, and those of a million events have a few dozen
*shapes*: the same keys in the same order. In a flat object without escapes every quotation mark
ends or begins a string, and a string before a colon is a key: that can be found for thousands
of objects in a few steps over their bytes. Objects that are not so plain are named, for
somebody to decode one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model.columns import Bools, Int64, UInt8
from neuron_tb.converters.model.ragged import Ragged, distinct_rows

_QUOTE, _COLON, _COMMA, _OPEN, _CLOSE, _ESCAPE = b'":,{}\\'
_SPACES = np.zeros(256, np.bool_)
_SPACES[list(b" \t\r\n")] = True
_PADDING = bytes(16)
_KEPT = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""For every number of bytes, the bits of a word that are these bytes."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Objects with the same keys in the same order.

    ``keys``: as they stand in the text, without quotation marks. ``rows``: positions of the
    objects, ascending. ``first``: for each of them the number of its first member.
    """

    keys: tuple[bytes, ...]
    rows: NDArray[np.intp]
    first: Int64


@dataclass(frozen=True, slots=True)
class Members:
    """The members of n objects whose texts stand back to back.

    ``text``: these texts, with a few bytes of padding. ``shapes``: what was taken apart.
    ``others``: positions of the objects that were not. Per member, in order of the text:
    ``key``: position of the key's opening quotation mark; ``start``, ``end``: its value.
    """

    text: bytes
    shapes: list[Shape]
    others: NDArray[np.intp]
    key: Int64
    start: Int64
    end: Int64

    def value(self, shape: Shape, number: int) -> Ragged:
        """The texts of one member's values in all objects of a shape."""
        return self.values(shape.first + number)

    def find(self, key: bytes) -> tuple[NDArray[np.intp], Int64]:
        """The objects that have a key, and the members that it is."""
        rows, numbers = [np.empty(0, np.intp)], [np.empty(0, np.int64)]
        for shape in self.shapes:
            if key in shape.keys:
                rows.append(shape.rows)
                numbers.append(shape.first + shape.keys.index(key))
        return np.concatenate(rows), np.concatenate(numbers)

    def values(self, member: Int64) -> Ragged:
        """The texts of members' values."""
        start = self.start[member]
        return Ragged.ranges(self.text, start, self.end[member] - start)

    def between(self, shape: Shape, first: int, last: int, keys: bool = False) -> Ragged:
        """The text from one member to another, with the first one's key or from its value."""
        starts = (self.key if keys else self.start)[shape.first + first]
        return Ragged.ranges(self.text, starts, self.end[shape.first + last] - starts)


def members(texts: bytes, lengths: NDArray[np.integer]) -> Members:
    """Take n objects apart; their texts, valid JSON, stand back to back in ``texts``."""
    padded = texts + _PADDING
    data = np.frombuffer(padded, np.uint8)
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = ends - lengths
    plain = _plain(data, starts, ends)
    quotes = np.flatnonzero(data == _QUOTE)
    bounds = np.searchsorted(quotes, np.append(starts, len(texts)))
    counts = np.diff(bounds)
    plain &= counts % 2 == 0
    if not plain.all():
        quotes = quotes[np.repeat(plain, counts)]
        counts = counts * plain
    found = _Strings(data, quotes, counts // 2)
    plain &= ~found.odd_rows
    key, start, end, first, number = found.members(starts, ends, plain)
    shapes, unlike = _shapes(data, key, start, first, number, plain)
    plain[unlike] = False
    return Members(padded, shapes, np.flatnonzero(~plain), key, start, end)


def _plain(data: UInt8, starts: Int64, ends: Int64) -> Bools:
    """Which texts have one brace at either end, none between, and no escapes."""
    inner = ends - starts >= 2
    last = np.maximum(ends - 1, 0)
    plain: Bools = inner & (data[starts] == _OPEN) & (data[last] == _CLOSE)
    for byte in (_OPEN, _CLOSE, _ESCAPE):
        found = np.flatnonzero(data == byte)
        expected = 0 if byte == _ESCAPE else len(starts)
        if len(found) != expected or not plain.all():
            rows = np.searchsorted(starts, found, side="right") - 1
            count = np.bincount(rows[rows >= 0], minlength=len(starts))
            plain &= count == (0 if byte == _ESCAPE else 1)
    return plain


class _Strings:
    """The strings of plain objects: where they begin and end, which of them are keys."""

    def __init__(self, data: UInt8, quotes: Int64, counts: Int64) -> None:
        self._data = data
        self._opening, self._closing = quotes[0::2], quotes[1::2]
        self._row = np.repeat(np.arange(len(counts)), counts)
        after = self._closing + 1
        self._key = data[after] == _COLON
        # A colon behind spaces would make a key of this: such objects are left to others.
        spaced = np.flatnonzero(_SPACES[data[after]])
        late = data[_skip_spaces(data, after[spaced])] == _COLON
        self.odd_rows = np.zeros(len(counts), np.bool_)
        self.odd_rows[self._row[spaced[late]]] = True

    def members(
        self, starts: Int64, ends: Int64, plain: Bools
    ) -> tuple[Int64, Int64, Int64, Int64, Int64]:
        """Key, value's start and end of every member; per row its first member and their number.

        Clears ``plain`` where the text between members is not what it has to be.
        """
        data = self._data
        is_key = self._key & plain[self._row]
        key, row = self._opening[is_key], self._row[is_key]
        start = _skip_spaces(data, self._closing[is_key] + 2)
        number = np.bincount(row, minlength=len(starts))
        first = np.cumsum(number) - number
        before = _skip_back(data, key)
        last = np.ones(len(key), np.bool_)
        last[:-1] = row[1:] != row[:-1]
        end = np.empty(len(key), np.int64)
        end[:-1] = before[1:] - 1  # what stands before a key is a comma, or the first brace
        end[last] = ends[row[last]] - 1
        end = _skip_back(data, end)
        wrong = end <= start
        leading = np.zeros(len(key), np.bool_)
        leading[1:] = last[:-1]
        leading[:1] = True
        wrong |= data[before - 1] != np.where(leading, _OPEN, _COMMA)
        wrong |= leading & (before - 1 != starts[row])
        plain[row[wrong]] = False
        plain &= (number > 0) | (ends - starts == 2)
        return key, start, end, first, number


def _shapes(
    data: UInt8, key: Int64, start: Int64, first: Int64, number: Int64, plain: Bools
) -> tuple[list[Shape], NDArray[np.intp]]:
    """The plain objects by their keys, and those with a key that repeats."""
    rows = np.flatnonzero(plain)
    if not len(rows):
        return [], rows
    # The quotation mark is hashed too, so that every key has a first byte.
    length = _key_end(data, key, start) - key
    code = _hashes(data, key, length)
    row = np.repeat(np.arange(len(number)), number)
    place = np.arange(len(key)) - first[row]
    code *= _odd_numbers(int(number.max(initial=0)))[place]
    sums = np.zeros(len(key) + 1, np.uint64)
    np.cumsum(code, out=sums[1:])
    of_row = sums[first + number] - sums[first]
    representative, group = distinct_rows(of_row[rows].view(np.int64), number[rows])
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(len(representative) + 1))
    shapes, unlike = [], [rows[:0]]
    for sample, begin, stop in zip(
        rows[representative].tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True
    ):
        mine = rows[order[begin:stop]]
        own = slice(int(first[sample]), int(first[sample] + number[sample]))
        names = tuple(
            data[at + 1 : at + size].tobytes()
            for at, size in zip(key[own].tolist(), length[own].tolist(), strict=True)
        )
        if len(set(names)) < len(names):
            unlike.append(mine)
        else:
            shapes.append(Shape(names, mine, first[mine]))
    return shapes, np.concatenate(unlike)


def _key_end(data: UInt8, key: Int64, start: Int64) -> Int64:
    """Where the closing quotation mark of each key stands, from its opening and its value."""
    colon = start - 1
    spaced = np.flatnonzero(data[colon] != _COLON)
    colon[spaced] = _skip_back(data, start[spaced]) - 1
    return colon - 1


def _hashes(data: UInt8, at: Int64, length: Int64) -> NDArray[np.uint64]:
    """64 bits for each range of bytes, which depend on all of them."""
    words: NDArray[np.uint64] = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    code = _stirred(words[at] & _KEPT[np.minimum(length, 8)])
    code += length.astype(np.uint64)
    here, offset = np.flatnonzero(length > 8), 8
    while len(here):
        # The last word reaches back into the one before it, where the range ends early.
        place = at[here] + np.minimum(offset, length[here] - 8)
        code[here] = _stirred(code[here] ^ words[place])
        offset += 8
        here = here[length[here] > offset]
    return code


def _stirred(code: NDArray[np.uint64]) -> NDArray[np.uint64]:
    code = code * np.uint64(0x9E3779B97F4A7C15)
    code ^= code >> np.uint64(32)
    return code


def _odd_numbers(count: int) -> NDArray[np.uint64]:
    numbers = np.full(count, 0x94D049BB133111EB, np.uint64)
    numbers[:1] = 1
    powers: NDArray[np.uint64] = np.multiply.accumulate(numbers)
    return powers


def _skip_spaces(data: UInt8, at: Int64) -> Int64:
    """Each position, or the first one after it that holds no space."""
    at = at.copy()
    here = np.flatnonzero(_SPACES[data[at]])
    while len(here):
        at[here] += 1
        here = here[_SPACES[data[at[here]]]]
    return at


def _skip_back(data: UInt8, at: Int64) -> Int64:
    """Each position moved back over the spaces before it."""
    at = at.copy()
    here = np.flatnonzero(_SPACES[data[at - 1]])
    while len(here):
        at[here] -= 1
        here = here[_SPACES[data[at[here] - 1]]]
    return at
