"""Byte strings of different lengths as one column: gathered, reordered and joined row by row.

Arrow does the copying, one block of memory for all rows; there is no Python object per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

_ROWS_AT_ONCE = 1 << 14
_BYTES = pa.large_binary()
_TYPES = {
    "i1": pa.int8(),
    "i2": pa.int16(),
    "i4": pa.int32(),
    "i8": pa.int64(),
    "u1": pa.uint8(),
    "u4": pa.uint32(),
    "u8": pa.uint64(),
    "f8": pa.float64(),
}


@dataclass(frozen=True, slots=True)
class Ragged:
    """n byte strings; ``array`` is an Arrow array of type ``large_binary`` without nulls."""

    array: Any

    def __len__(self) -> int:
        return len(self.array)

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> Ragged:
        """One row per byte string."""
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        return cls.back_to_back(b"".join(texts), lengths)

    @classmethod
    def back_to_back(cls, data: Any, lengths: NDArray[np.integer]) -> Ragged:
        """Rows that stand one after the other in a buffer."""
        ends = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=ends[1:])
        return cls(_array(len(lengths), ends, data))

    @classmethod
    def ranges(cls, data: Any, starts: NDArray[np.integer], lengths: NDArray[np.integer]) -> Ragged:
        """One row per range of a buffer; ranges may come in any order and overlap."""
        n = len(starts)
        if not n:
            return cls.of([])
        ends = starts + lengths
        if n > 1 and (starts[1:] < ends[:-1]).any():
            order = np.argsort(starts, kind="stable")
            if (starts[order][1:] < ends[order][:-1]).any():
                return cls._overlapping(data, starts, lengths)
            place = np.empty(n, np.int64)
            place[order] = np.arange(n)
            return cls.ranges(data, starts[order], lengths[order]).take(place)
        # Wanted ranges and the gaps between them alternate.
        bounds = np.empty(2 * n, np.int64)
        bounds[0::2], bounds[1::2] = starts, ends
        return cls(_array(2 * n - 1, bounds, data).take(_arrow(np.arange(0, 2 * n, 2))))

    @classmethod
    def _overlapping(
        cls, data: Any, starts: NDArray[np.integer], lengths: NDArray[np.integer]
    ) -> Ragged:
        distinct, row = np.unique(
            np.stack([starts, lengths], axis=1).astype(np.int64), axis=0, return_inverse=True
        )
        view = memoryview(data)
        texts = [bytes(view[start : start + length]) for start, length in distinct.tolist()]
        return cls.of(texts).take(row.reshape(-1))

    @property
    def lengths(self) -> Int64:
        """Bytes per row, shape (n,)."""
        lengths: Int64 = np.diff(self._bounds())
        return lengths

    def take(self, rows: NDArray[np.integer]) -> Ragged:
        """The rows at these positions, which may repeat."""
        return Ragged(self.array.take(_arrow(rows)))

    def replaced(self, rows: NDArray[np.integer], others: Ragged) -> Ragged:
        """The same rows, but those at these positions are the others'."""
        if not len(rows):
            return self
        place = np.arange(len(self))
        place[rows] = len(self) + np.arange(len(rows))
        return stacked([self, others]).take(place)

    def distinct(self) -> tuple[list[bytes], NDArray[np.int32]]:
        """The different rows in order of first use, and for each row which of them it is."""
        encoded = self.array.dictionary_encode()
        return encoded.dictionary.to_pylist(), _numpy(encoded.indices)

    def differ(self, others: Ragged) -> Bools:
        """Which rows are not the others' rows."""
        return _bools(pc.not_equal(self.array, others.array))

    def contain(self, text: str) -> Bools:
        """Which rows have a text in them."""
        return _bools(pc.match_substring(self.array, text))

    def match(self, pattern: str) -> Bools:
        """In which rows a regular expression is found."""
        return _bools(pc.match_substring_regex(self.array, pattern))

    def integers(self) -> Int64 | None:
        """The rows as whole numbers; None when some are no decimal numbers of 64 bits."""
        try:
            parsed = pc.cast(self.array.cast(pa.large_string()), pa.int64())
        except pa.ArrowInvalid:
            return None
        values: Int64 = np.frombuffer(parsed.buffers()[1], np.int64)[: len(self)]
        return values

    def view(self) -> memoryview:
        """All rows, one after the other, not copied."""
        bounds = self._bounds()
        data = self.array.buffers()[2]
        return memoryview(data or b"")[int(bounds[0]) : int(bounds[-1])]

    def tobytes(self) -> bytes:
        """All rows, one after the other."""
        return bytes(self.view())

    def _bounds(self) -> Int64:
        offset, n = self.array.offset, len(self.array)
        if not n:
            return np.zeros(1, np.int64)
        return np.frombuffer(self.array.buffers()[1], np.int64)[offset : offset + n + 1]


def joined(*parts: Ragged | bytes) -> Ragged:
    """Row-wise concatenation; a byte string stands in every row."""
    columns = [_everywhere(part) if isinstance(part, bytes) else part.array for part in parts]
    return Ragged(pc.binary_join_element_wise(*columns, _everywhere(b"")))


@lru_cache(maxsize=512)
def _everywhere(text: bytes) -> Any:
    return Ragged.of([text]).array[0]


def decimals(values: NDArray[Any]) -> Ragged:
    """Numbers as the shortest decimal text that gives them back."""
    return Ragged(pc.cast(_arrow(values), pa.large_string()).cast(_BYTES))


def stacked(parts: Sequence[Ragged]) -> Ragged:
    """The rows of all parts, in order."""
    return Ragged(pa.concat_arrays([part.array for part in parts]))


def chunks(count: int) -> Iterator[slice]:
    """Rows to be worked on at once, so that their columns and texts stay a few megabytes."""
    for first in range(0, count, _ROWS_AT_ONCE):
        yield slice(first, min(first + _ROWS_AT_ONCE, count))


def distinct_rows(*columns: NDArray[np.integer]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Different rows of equally long integer columns, numbered in order of first use.

    Returns where each of them occurs first, and the number of every row.
    """
    n = len(columns[0])
    if not n:
        return np.empty(0, np.intp), np.empty(0, np.intp)
    code, size = np.zeros(n, np.int64), 1
    for column in columns:
        lowest = int(column.min())
        span = int(column.max()) - lowest + 1
        if size * span >= 2**62:
            code, size = _numbered(code)
        if size * span >= 2**62:
            values, span = _numbered(column)
        else:
            values = column.astype(np.int64) - lowest
        code, size = code * span + values, size * span
    number, count = _numbered(code)
    first = np.empty(count, np.intp)
    first[number[::-1]] = np.arange(n)[::-1]
    return first, number


def unique(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The different numbers of a column, ascending, and for each row which of them it has.

    What ``np.unique`` returns, in a tenth of the time where numbers repeat.
    """
    if not len(values):
        return values, np.empty(0, np.intp)
    encoded = _arrow(values).dictionary_encode()
    found = np.frombuffer(encoded.dictionary.buffers()[1], values.dtype)[: len(encoded.dictionary)]
    order = np.argsort(found)
    place = np.empty(len(found), np.intp)
    place[order] = np.arange(len(found))
    return found[order], place[_numpy(encoded.indices)]


def used(values: NDArray[np.integer]) -> NDArray[np.intp]:
    """The different values of a column of small numbers, none negative, ascending."""
    return np.flatnonzero(np.bincount(values))


def _numbered(values: NDArray[np.integer]) -> tuple[NDArray[np.intp], int]:
    encoded = _arrow(values).dictionary_encode()
    return _numpy(encoded.indices).astype(np.intp), len(encoded.dictionary)


def _array(n: int, bounds: Int64, data: Any) -> Any:
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(_BYTES, n, buffers)


def _numpy(array: Any) -> NDArray[np.int32]:
    """The numbers of an ``int32`` array without nulls."""
    if not len(array):
        return np.empty(0, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array)]


def _bools(array: Any) -> Bools:
    if not len(array):
        return np.empty(0, np.bool_)
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
    found: Bools = bits[array.offset : array.offset + len(array)].view(np.bool_)
    return found


def _arrow(values: NDArray[Any]) -> Any:
    """Numbers as an Arrow array of the same type, not copied.

    ``pa.array`` would do, but its first call imports pandas where that is installed.
    """
    kind = values.dtype
    if kind.byteorder == ">" or not values.flags.c_contiguous:
        values = np.ascontiguousarray(values, kind.newbyteorder("<"))
    return pa.Array.from_buffers(
        _TYPES[kind.kind + str(kind.itemsize)], len(values), [None, pa.py_buffer(values)]
    )
