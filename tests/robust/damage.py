"""Seeded damages to a text, and which byte ranges of the original they leave whole.

A damaged text is a list of pieces: ranges of the original, and foreign bytes. A range of the
original is intact in it as often as it lies wholly inside one piece.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """``start``: where its text stands in the original, -1 for foreign bytes."""

    text: bytes
    start: int

    def cut(self, start: int, end: int) -> Piece:
        return Piece(self.text[start:end], -1 if self.start < 0 else self.start + start)


@dataclass(frozen=True)
class Damaged:
    what: str
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> bytes:
        return b"".join(piece.text for piece in self.pieces)

    def intact(self, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """(number of the range, place in the damaged text) of every whole copy of a range."""
        place = 0
        for piece in self.pieces:
            if piece.start >= 0:
                end = piece.start + len(piece.text)
                for number, (first, last) in enumerate(ranges):
                    if piece.start <= first and last <= end:
                        yield number, place + first - piece.start
            place += len(piece.text)


def _split(pieces: Sequence[Piece], at: int) -> tuple[list[Piece], list[Piece]]:
    before: list[Piece] = []
    for number, piece in enumerate(pieces):
        if at < len(piece.text):
            rest = [piece.cut(at, len(piece.text)), *pieces[number + 1 :]]
            return [*before, *([piece.cut(0, at)] if at else [])], rest
        before.append(piece)
        at -= len(piece.text)
    return before, []


def _replace(pieces: Sequence[Piece], start: int, end: int, new: Sequence[Piece]) -> list[Piece]:
    before, rest = _split(pieces, start)
    return [*before, *new, *_split(rest, end - start)[1]]


def _length(rng: random.Random, most: int) -> int:
    """Short lengths as often as long ones."""
    return min(most, int(2 ** rng.uniform(0, most.bit_length())))


def _cut(rng: random.Random, pieces: list[Piece], size: int) -> list[Piece]:
    at = rng.randrange(1, size)
    return _split(pieces, at)[0] if rng.random() < 0.8 else _split(pieces, at)[1]


def _flip(rng: random.Random, pieces: list[Piece], size: int) -> list[Piece]:
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(size)
        new = bytes([rng.choice(b'{}[]",:\\\n\x00') if rng.random() < 0.4 else rng.randrange(256)])
        pieces = _replace(pieces, at, at + 1, [Piece(new, -1)])
    return pieces


def _insert(rng: random.Random, pieces: list[Piece], size: int) -> list[Piece]:
    for _ in range(rng.choice((1, 1, 3, 10))):
        at = rng.randrange(size)
        some = b'{}[]",:\\' if rng.random() < 0.5 else bytes(range(256))
        new = bytes(rng.choice(some) for _ in range(_length(rng, 300)))
        pieces = _replace(pieces, at, at, [Piece(new, -1)])
    return pieces


def _delete(rng: random.Random, pieces: list[Piece], size: int) -> list[Piece]:
    for _ in range(rng.choice((1, 1, 3, 10))):
        left = sum(len(piece.text) for piece in pieces)
        at = rng.randrange(left)
        pieces = _replace(pieces, at, at + _length(rng, min(20_000, left - at)), [])
    return pieces


def _splice(rng: random.Random, pieces: list[Piece], size: int) -> list[Piece]:
    """Copy a stretch to another place, over what stands there or between it."""
    for _ in range(rng.choice((1, 1, 2))):
        start = rng.randrange(size)
        length = _length(rng, min(50_000, size - start))
        copied = _split(_split(pieces, start)[1], length)[0]
        at = rng.randrange(size)
        end = at + (length if rng.random() < 0.5 else 0)
        pieces = _replace(pieces, at, end, copied)
    return pieces


_KINDS: tuple[Callable[[random.Random, list[Piece], int], list[Piece]], ...] = (
    _cut,
    _flip,
    _insert,
    _delete,
    _splice,
)


def damage(text: bytes, seed: int) -> Damaged:
    """The text with one kind of damage, in one or several places; the seed decides."""
    rng = random.Random(seed)
    kind = _KINDS[seed % len(_KINDS)]
    pieces = kind(rng, [Piece(text, 0)], len(text))
    return Damaged(f"seed {seed} ({kind.__name__[1:]})", tuple(pieces))
