"""What an input may demand at most; traces are untrusted.

Read when they are needed, so that a caller (``--max-size``) or a test may change them.
"""

from __future__ import annotations

MAX_SIZE = 8 << 30
"""Bytes of one file, decompressed."""

MAX_RATIO = 400
"""Decompressed bytes per compressed byte, above ``FREE_SIZE``; real traces reach 40."""

FREE_SIZE = 256 << 20
"""Decompressed bytes below which any ratio is accepted."""

MAX_DEPTH = 256
"""Brackets inside brackets that are still repaired; undamaged JSON is bound by msgspec."""

MAX_STRING = 1 << 20
"""Bytes of a string whose end has to be guessed."""


def allow(size: int) -> None:
    """Let files unpack to ``size`` bytes, whatever their ratio (``--max-size``)."""
    global MAX_SIZE, FREE_SIZE
    MAX_SIZE = FREE_SIZE = size


def largest(compressed: int) -> int:
    """How many bytes a file of ``compressed`` bytes may unpack to."""
    return min(MAX_SIZE, max(FREE_SIZE, MAX_RATIO * compressed))
