"""The arguments of events: JSON text that stays where the source has it.

A million events have a hundred megabytes of arguments, which most tables never show. So rows
only know where their text stands, and the text is the source file itself (mapped, not copied)
or what a reader wrote.
"""

from __future__ import annotations

import codecs
import mmap
from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

Text = bytes | mmap.mmap
"""What holds a piece of text: both give ``bytes`` for a range."""

_PIECE = 1 << 18


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
        if len(self.pieces) > 1:
            get: Callable[[int, int], bytes] = self.text
            return list(map(get, starts.tolist(), lengths.tolist()))
        if not self.pieces:
            return [b""] * len(starts)
        text = self.pieces[0]
        ends = (starts + lengths).tolist()
        return [text[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]

    def joined(self, starts: NDArray[np.integer], lengths: NDArray[np.integer]) -> bytes:
        """The bytes of n rows, back to back."""
        return b"".join(self.texts(starts, lengths))

    def is_utf8(self) -> bool:
        """Whether all text of all pieces is UTF-8."""
        return all(map(_is_utf8, self.pieces))


def _is_utf8(text: Text) -> bool:
    decode = codecs.getincrementaldecoder("utf-8")().decode
    try:
        for at in range(0, len(text), _PIECE):
            decode(text[at : at + _PIECE])
        decode(b"", True)
    except UnicodeDecodeError:
        return False
    return True
