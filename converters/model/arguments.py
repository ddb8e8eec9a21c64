"""The arguments of events: JSON text that stays where the source has it.

A million events have a hundred megabytes of arguments, which most tables never show. So rows
only know where their text stands, and the text is the source file itself (mapped, not copied)
or what a reader wrote.
"""

from __future__ import annotations

import codecs
import itertools
import mmap
from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from neuron_tb.converters.model.ragged import Ragged

Text = bytes | mmap.mmap
"""What holds a piece of text: both give ``bytes`` for a range."""

_PIECE = 1 << 18
_FEW = 16


class Arguments:
    """Pieces of text whose bytes are numbered through, from the first piece to the last.

    Rows address their arguments by start and length (0: none); the text of one row lies within
    one piece. ``pieces``: the texts; ``starts``: the position of each one's first byte.
    """

    def __init__(self, pieces: Iterable[Text] = ()) -> None:
        self.pieces: tuple[Text, ...] = tuple(piece for piece in pieces if len(piece))
        ends = list(accumulate(map(len, self.pieces), initial=0))
        self.starts, self._size = ends[:-1], ends[-1]

    def __len__(self) -> int:
        """Bytes of all pieces: where the first byte of a further piece would stand."""
        return self._size

    def __reduce__(self) -> tuple[type[Arguments], tuple[list[bytes]]]:
        """Another process gets the text itself."""
        return type(self), ([piece[:] for piece in self.pieces],)

    def text(self, start: int, length: int) -> bytes:
        """The bytes of one row."""
        if not length:
            return b""
        piece = bisect_right(self.starts, start) - 1
        start -= self.starts[piece]
        return self.pieces[piece][start : start + length]

    def texts(self, starts: NDArray[np.integer], lengths: NDArray[np.integer]) -> list[bytes]:
        """The bytes of n rows."""
        if not self.pieces or not len(starts):
            return [b""] * len(starts)
        if len(self.pieces) == 1:
            return _slices(self.pieces[0], starts, lengths)
        of_row = np.searchsorted(self.starts, starts, side="right") - 1
        bounds = np.flatnonzero(np.diff(of_row, prepend=-1, append=-1))
        if len(bounds) > _FEW + len(starts) // _FEW:  # neighbours are in different pieces
            get: Callable[[int, int], bytes] = self.text
            return list(map(get, starts.tolist(), lengths.tolist()))
        found: list[bytes] = []
        for first, last in itertools.pairwise(bounds.tolist()):
            piece = int(of_row[first])
            own = starts[first:last] - self.starts[piece]
            found += _slices(self.pieces[piece], own, lengths[first:last])
        return found

    def rows(self, starts: NDArray[np.integer], lengths: NDArray[np.integer]) -> Ragged:
        """The bytes of n rows as one column."""
        from neuron_tb.converters.model.ragged import Ragged, stacked

        if not len(starts) or not self.pieces:
            return Ragged.of([b""] * len(starts))
        if len(self.pieces) == 1:
            return Ragged.ranges(self.pieces[0], np.where(lengths > 0, starts, 0), lengths)
        piece = np.searchsorted(self.starts, starts, side="right") - 1
        piece = np.where(lengths > 0, piece, 0)
        order = np.argsort(piece, kind="stable")
        numbers, first = np.unique(piece[order], return_index=True)
        parts = [
            Arguments([self.pieces[n]]).rows(starts[mine] - self.starts[n], lengths[mine])
            for n, mine in zip(numbers.tolist(), np.split(order, first[1:]), strict=True)
        ]
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        return stacked(parts).take(place)

    def joined(self, starts: NDArray[np.integer], lengths: NDArray[np.integer]) -> bytes:
        """The bytes of n rows, back to back."""
        return self.rows(starts, lengths).tobytes()

    def is_utf8(self) -> bool:
        """Whether all text of all pieces is UTF-8."""
        return all(map(_is_utf8, self.pieces))


def _slices(text: Text, starts: NDArray[np.integer], lengths: NDArray[np.integer]) -> list[bytes]:
    ends = (starts + lengths).tolist()
    return [text[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]


def _is_utf8(text: Text) -> bool:
    decode = codecs.getincrementaldecoder("utf-8")().decode
    try:
        for at in range(0, len(text), _PIECE):
            decode(text[at : at + _PIECE])
        decode(b"", True)
    except UnicodeDecodeError:
        return False
    return True
