"""Unpacking gzip as a stream: several members, cut or damaged files, and a bound on the size.

Format: RFC 1952.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model.arguments import Text
from neuron_tb.converters.readers.json import bounds
from neuron_tb.converters.readers.json.mapped import Spool

MAGIC = b"\x1f\x8b"
_MEMBER = b"\x1f\x8b\x08"
_WITH_GZIP_HEADER = 31
_PIECE = 1 << 16
_MOST_AT_ONCE = 1 << 22


def gunzip(path: Path, packed: bytes, findings: Findings) -> Text:
    """All members' content, as far as it can be read; what is lost goes to ``findings``.

    Raises NeuronTbError when it is larger than ``bounds`` allow, or when a damaged file gives
    nothing at all.
    """
    output = _Output(path, bounds.largest(len(packed)))
    at = members = 0
    damaged = False
    while at < len(packed):
        start = at if packed.startswith(MAGIC, at) else _next_member(packed, at)
        if start > at:
            _report_between(path, packed[at:start], at, findings)
            at = start
            continue
        before = output.size
        start = at
        at, problem = _unpack_member(memoryview(packed), at, output)
        members += output.size > before
        if problem:
            damaged = True
            # Damage may be noticed late: beyond where the next member begins.
            end = _next_member(packed, start + len(_MEMBER))
            at = min(at, end)
            problem = problem if end == len(packed) or problem != "cut" else "no end"
            _report_damage(path, problem, at, end, output.size, findings)
            at = end
    if members > 1:
        findings.add("gzip_members", f"{path.name} is several gzip files in one; all were read")
    if damaged and not output.size:
        raise NeuronTbError(f"{path} is a damaged gzip file; nothing in it can be unpacked.")
    return output.content()


class _Output:
    """Collects what was unpacked and refuses more than ``limit`` bytes."""

    def __init__(self, path: Path, limit: int) -> None:
        self.size = 0
        self._path, self._limit, self._spool = path, limit, Spool()

    def write(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self._limit:
            raise NeuronTbError(
                f"{self._path} unpacks to more than {self._limit:,} bytes, too much for a file "
                "of its size; --max-size raises the limit."
            )
        self._spool.write(piece)

    def content(self) -> Text:
        return self._spool.text()


def _unpack_member(view: memoryview, at: int, output: _Output) -> tuple[int, str]:
    """Unpack the member at ``at``: where reading it ended, and what is wrong with it or ""."""
    unpacker = zlib.decompressobj(_WITH_GZIP_HEADER)
    while at < len(view):
        piece = view[at : at + _PIECE]
        before, written = unpacker.copy(), output.size
        try:
            output.write(unpacker.decompress(piece, _MOST_AT_ONCE))
            while unpacker.unconsumed_tail and not unpacker.eof:
                output.write(unpacker.decompress(unpacker.unconsumed_tail, _MOST_AT_ONCE))
        except zlib.error as error:
            good = _unpack_up_to_damage(before, piece, output, output.size - written)
            return at + good, str(error).rpartition(": ")[2]
        at += len(piece)
        if unpacker.eof:
            return at - len(unpacker.unused_data), ""
    return at, "cut"


def _unpack_up_to_damage(unpacker: Any, piece: memoryview, output: _Output, have: int) -> int:
    """Give the unpacker a piece byte by byte: what it raised for the whole stands before that.

    The first ``have`` bytes of the piece's content are in the output already. Returns how many
    bytes of the piece were good.
    """
    for number in range(len(piece)):
        try:
            unpacked = unpacker.decompress(piece[number : number + 1])
        except zlib.error:
            return number
        output.write(unpacked[have:])
        have = max(have - len(unpacked), 0)
    return len(piece)


def _next_member(packed: bytes, at: int) -> int:
    """Where the next gzip member that holds text begins; the file's end when there is none."""
    for _ in range(100):
        at = packed.find(_MEMBER, at)
        if at < 0:
            break
        try:
            trial = zlib.decompressobj(_WITH_GZIP_HEADER).decompress(packed[at : at + 4096], 64)
        except zlib.error:
            trial = b""
        if trial and not any(byte < 9 or 13 < byte < 32 for byte in trial):
            return at
        at += 1
    return len(packed)


def _report_between(path: Path, bytes_between: bytes, at: int, findings: Findings) -> None:
    if not bytes_between.strip(b"\0"):  # padding to a block of the medium
        return
    findings.add(
        "gzip_other_bytes",
        "bytes that are not gzip, after a gzip member, were not read",
        len(bytes_between),
        where=f"{path.name}, compressed bytes {at}-{at + len(bytes_between)}",
    )


def _report_damage(
    path: Path, problem: str, at: int, end: int, unpacked: int, findings: Findings
) -> None:
    if problem == "cut":
        findings.add(
            "gzip_truncated",
            "the gzip file ends in the middle; what it held after that is lost, and how much "
            "that was cannot be known",
            where=f"{path.name}, after byte {unpacked} of its content",
        )
    elif problem in ("incorrect data check", "incorrect length check"):
        findings.add(
            "gzip_checksum",
            "the content of the gzip file does not have the checksum it was written with; it is "
            "used as it is",
            where=f"{path.name}, byte {unpacked} of its content",
        )
    else:
        findings.add(
            "gzip_damaged",
            f"{end - at:,} compressed bytes could not be unpacked ({problem}) and are lost; what "
            "they held cannot be known, and what was unpacked just before them may be wrong",
            where=f"{path.name}, compressed bytes {at}-{end}, after byte {unpacked} of its content",
        )
