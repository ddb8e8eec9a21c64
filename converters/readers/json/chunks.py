"""Decoding a long JSON array piece by piece, so that only one piece is in memory at a time.

A piece ends where a row seems to end, and decoding proves it: the text before that place was
read from the start of a row, so a parser that meets ``]`` there and accepts it stands between
two rows, not inside a row or a string. Where it does not accept, another place is tried.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from neuron_tb.converters.model.arguments import Text

SIZE = 2 << 20
"""Bytes of a piece, about: some thousand events, whose objects still fit the processor's cache."""

_TRIES = 4
_LOOK_AHEAD = 1 << 20
_BETWEEN_ROWS = rb"\}[ \t\r\n]*,[ \t\r\n]*(?=\{%b)"
_FIRST_KEY = re.compile(rb'[ \t\r\n]*\{([ \t\r\n]*"[^"\\]{1,60}"[ \t\r\n]*:)')

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listing:
    """A valid JSON array: the bytes ``start`` to ``end`` of ``text``, brackets included.

    Of one half of an array, ``start`` is a byte before its first row, and ``tail`` the bracket
    that it lacks.
    """

    text: Text
    start: int
    end: int
    tail: bytes = b""

    def halves(self) -> tuple[Listing, Listing] | None:
        """Two arrays that seem to have the rows of this one; decoding the first one proves it.

        None when no place between rows is found near the middle.
        """
        middle = (self.start + self.end) // 2
        key = _first_key(self)
        cut = next(_cuts(self, middle, _patterns(key)), None) if key else None
        if cut is None:
            return None
        end, following = cut
        first = Listing(self.text, self.start, end, b"]")
        return first, Listing(self.text, following - 1, self.end, self.tail)


@dataclass(frozen=True, slots=True)
class Chunk(Generic[T]):
    """Some rows of an array: decoded, and as a JSON array of their own.

    Byte n of ``text`` stands at ``offset + n`` of the whole (brackets and the first comma apart).
    """

    rows: T
    text: bytes
    offset: int


def chunks(listing: Listing, decode: Callable[[bytes], T], size: int = 0) -> Iterator[Chunk[T]]:
    """Decode an array in pieces of about ``size`` bytes (0: ``SIZE``), in order.

    ``decode`` gets an array's text and must raise ``msgspec.DecodeError`` for what is no valid
    JSON, whatever else it accepts. What it raises for the array's own fault is passed on.
    """
    view, at = memoryview(listing.text), listing.start + 1
    patterns = _patterns(_first_key(listing))
    wanted = size = size or SIZE
    while at + wanted + wanted // 2 < listing.end:
        for cut, following in _cuts(listing, at + wanted, patterns):
            piece = b"".join((b"[", view[at:cut], b"]"))
            try:
                rows = decode(piece)
            except msgspec.DecodeError:
                continue
            yield Chunk(rows, piece, at - 1)
            at, wanted = following, size
            break
        else:
            wanted *= 2
    piece = b"".join((b"[", view[at : listing.end], listing.tail))
    yield Chunk(decode(piece), piece, at - 1)


def _first_key(listing: Listing) -> bytes:
    first = listing.start + 1
    found = _FIRST_KEY.match(listing.text, first, min(listing.end, first + 4096))
    return found[1] if found else b""


def _patterns(first_key: bytes) -> list[re.Pattern[bytes]]:
    """What stands between two rows: most programs begin all rows with one key."""
    keys = [re.escape(first_key), b""] if first_key else [b""]
    return [re.compile(_BETWEEN_ROWS % key) for key in keys]


def _cuts(
    listing: Listing, near: int, patterns: list[re.Pattern[bytes]]
) -> Iterator[tuple[int, int]]:
    """Places behind ``near`` where a row may end, each with the start of the row that follows."""
    end = min(listing.end, near + _LOOK_AHEAD)
    tried = set()
    for pattern in patterns:
        for match in itertools.islice(pattern.finditer(listing.text, near, end), _TRIES):
            if match.start() not in tried:
                tried.add(match.start())
                yield match.start() + 1, match.end()
