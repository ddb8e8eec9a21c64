"""Byte strings of different lengths as one column: gathered, reordered and joined row by row.

Arrow does the copying, one block of memory for all rows; there is no Python object per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Int64 = NDArray[np.int64]

_BYTES = pa.large_binary()
_NOTHING = pa.scalar(b"", _BYTES)


@dataclass(frozen=True, slots=True)
class Ragged:
    """n byte strings; ``array`` is an Arrow array of type ``large_binary`` without nulls."""

    array: Any

    def __len__(self) -> int:
        return len(self.array)

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> Ragged:
        """One row per byte string."""
        return cls(pa.array(texts, _BYTES))

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
        return cls(_array(2 * n - 1, bounds, data).take(pa.array(np.arange(0, 2 * n, 2))))

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
        return Ragged(self.array.take(pa.array(rows)))

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
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)

    def tobytes(self) -> bytes:
        """All rows, one after the other."""
        bounds = self._bounds()
        data = self.array.buffers()[2]
        if data is None:
            return b""
        return bytes(memoryview(data)[int(bounds[0]) : int(bounds[-1])])

    def _bounds(self) -> Int64:
        offset, n = self.array.offset, len(self.array)
        if not n:
            return np.zeros(1, np.int64)
        return np.frombuffer(self.array.buffers()[1], np.int64)[offset : offset + n + 1]


def joined(*parts: Ragged | bytes) -> Ragged:
    """Row-wise concatenation; a byte string stands in every row."""
    columns = [pa.scalar(p, _BYTES) if isinstance(p, bytes) else p.array for p in parts]
    return Ragged(pc.binary_join_element_wise(*columns, _NOTHING))


def stacked(parts: Sequence[Ragged]) -> Ragged:
    """The rows of all parts, in order."""
    return Ragged(pa.concat_arrays([part.array for part in parts]))


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


def _numbered(values: NDArray[np.integer]) -> tuple[NDArray[np.intp], int]:
    encoded = pa.array(values).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.intp), len(encoded.dictionary)


def _array(n: int, bounds: Int64, data: Any) -> Any:
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(_BYTES, n, buffers)
