"""What an input may demand at most; traces are untrusted.

Read when they are needed, so that a caller (``--max-size``) or a test may change them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neuron_tb.converters.errors import NeuronTbError

MAX_SIZE = 8 << 30
"""Bytes of one file, decompressed."""

MAX_RATIO = 400
"""Decompressed bytes per compressed byte, above ``FREE_SIZE``; real traces reach 40."""

FREE_SIZE = 256 << 20
"""Decompressed bytes below which any ratio is accepted."""

MAX_DEPTH = 256
"""Brackets inside brackets that are still repaired; undamaged JSON is bound by msgspec."""

MAX_PROCESSES = 1000
"""Process ids of one file that become processes of their own."""

MAX_TRACKS = 20_000
"""Threads of one file that get a row of their own; real captures have hundreds."""

BYTES_PER_CELL = 8
"""What a value of a table takes at least, once it is read."""

MAX_STRING = 1 << 20
"""Bytes of a string whose end has to be guessed."""


@contextmanager
def allowed(size: int) -> Iterator[None]:
    """Let files unpack to ``size`` bytes, whatever their ratio (``--max-size``)."""
    global MAX_SIZE, FREE_SIZE
    before = MAX_SIZE, FREE_SIZE
    MAX_SIZE = FREE_SIZE = size
    try:
        yield
    finally:
        MAX_SIZE, FREE_SIZE = before


def largest(compressed: int) -> int:
    """How many bytes a file of ``compressed`` bytes may unpack to."""
    return min(MAX_SIZE, max(FREE_SIZE, MAX_RATIO * compressed))


def check_table(path: Path, rows: int, columns: int, unpacked: int) -> None:
    """Refuse a table that would take more memory than a file of its size may.

    ``rows``, ``columns`` and ``unpacked`` (bytes) are what the table's footer says, which costs
    nothing to read. Raises NeuronTbError.
    """
    needed = max(rows * max(columns, 1) * BYTES_PER_CELL, unpacked)
    if needed > largest(path.stat().st_size):
        raise NeuronTbError(
            f"{path} holds {rows:,} rows of {columns:,} columns, which take at least {needed:,} "
            "bytes, too much for a file of its size; --max-size raises the limit."
        )
