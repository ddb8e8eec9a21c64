"""The text of a file without a copy in memory, where that is safe.

A large file is mapped: its pages are the operating system's, which drops them when memory is
short. A mapped file that somebody makes shorter kills the process that reads it there (SIGBUS).
So a file is mapped only if nobody has written to it for a minute; one that is new, and may be
about to be written again, is first copied to a temporary file without a name. Small files are
read into memory. What remains: a file of a minute's age that is overwritten in place within the
seconds of its conversion, and a network file system that fails meanwhile.
"""

from __future__ import annotations

import io
import mmap
import os
import shutil
import tempfile
import time
from pathlib import Path
from stat import S_ISREG
from typing import IO

from neuron_tb.converters.model.arguments import Text

SMALL = 8 << 20
"""Bytes up to which a text is kept in memory."""

_SETTLED_S = 60


def text_of(path: Path) -> Text:
    """A file's content. Raises OSError."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not S_ISREG(status.st_mode) or status.st_size <= SMALL:
            return file.read()
        if time.time() - status.st_mtime >= _SETTLED_S:
            return _mapped(file)
        spool = Spool()
        shutil.copyfileobj(file, spool, 1 << 20)
        return spool.text()


class Spool:
    """Collects a text piece by piece: in memory while it is small, then in a temporary file.

    The file has no name and goes with the process. Where it cannot be written (no room), all
    stays in memory.
    """

    def __init__(self) -> None:
        self.size = 0
        self._file: io.BytesIO | io.FileIO = io.BytesIO()

    def write(self, piece: bytes) -> int:
        """Add a piece; returns its length."""
        if self.size <= SMALL < self.size + len(piece):
            self._file = _on_disk(self._file)
        try:
            _write_all(self._file, piece)
        except OSError:
            self._file = _in_memory(self._file, self.size)
            self._file.write(piece)
        self.size += len(piece)
        return len(piece)

    def text(self) -> Text:
        """All pieces."""
        if isinstance(self._file, io.BytesIO):
            return self._file.getvalue()
        with self._file as file:  # the mapping keeps the file without a name
            return _mapped(file)


def _mapped(file: IO[bytes] | io.FileIO) -> mmap.mmap:
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _on_disk(held: io.BytesIO | io.FileIO) -> io.BytesIO | io.FileIO:
    assert isinstance(held, io.BytesIO)
    try:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        _write_all(file, held.getbuffer())
    except OSError:
        return held
    return file


def _in_memory(file: io.BytesIO | io.FileIO, size: int) -> io.BytesIO:
    file.seek(0)
    held = io.BytesIO()
    held.write(file.read()[:size])
    return held


def _write_all(file: io.BytesIO | io.FileIO, piece: bytes | memoryview) -> None:
    rest = memoryview(piece)
    while rest:  # a disk that is nearly full takes a part
        rest = rest[file.write(rest) :]
