"""The first bytes of a file, which tell what it is."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path


def head_of(path: Path) -> bytes:
    """The first bytes of a file, unpacked; none when it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(1 << 16)
        if head[:2] == b"\x1f\x8b":
            head = zlib.decompressobj(wbits=31).decompress(head, 1 << 18)
        return head
    except (OSError, zlib.error, gzip.BadGzipFile):
        return b""
