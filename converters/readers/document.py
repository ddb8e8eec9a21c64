"""Opening a JSON file, plain or gzip, and saying what it is when it is not a trace."""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from neuron_tb.converters.errors import NeuronTbError

_GZIP = b"\x1f\x8b"
_PICKLE = re.compile(rb"^\x80[\x02-\x05]")
_TOP_LEVEL = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Context:
    """What the place of a file says about it; empty where it says nothing.

    ``host`` and ``pid`` come from a capture directory ``<host>_pid_<pid>``, ``rank`` from the
    file's name. ``neuron`` is True where the layout is AWS's own.
    """

    host: str = ""
    pid: int | None = None
    rank: int | None = None
    neuron: bool = False


@dataclass
class Document:
    """A JSON file in memory: either an object's top-level ``keys`` or a top-level ``array``."""

    path: Path
    data: bytes
    keys: dict[str, msgspec.Raw] = field(default_factory=dict)
    array: bool = False

    def first_row(self) -> dict[str, Any]:
        """The first object of a top-level array, decoded; {} when there is none."""
        if not self.array:
            return {}
        for row in msgspec.json.decode(self.data, type=list[msgspec.Raw])[:50]:
            value = msgspec.json.decode(row)
            if isinstance(value, dict):
                return value
        return {}

    def decoded(self, *but: str) -> dict[str, Any]:
        """All top-level keys but these, decoded."""
        return {k: msgspec.json.decode(v) for k, v in self.keys.items() if k not in but}

    def description(self) -> str:
        """What the document is, when no reader knows it: the end of a sentence."""
        if "nodes" in self.keys and "schema" in self.keys:
            return "a PyTorch execution trace (operators and tensors without times), not a profile"
        if "neuron_runtime_data" in self.keys or "neuron_hardware_info" in self.keys:
            return "a neuron-monitor report, not a trace"
        if self.array and _looks_like_memory_timeline(self.data):
            return "a PyTorch memory timeline, not a trace"
        if "device_traces" in self.keys or "segments" in self.keys:
            return "a PyTorch memory snapshot, not a trace"
        keys = ", ".join(list(self.keys)[:5])
        return "JSON, but not a trace that is known here" + (f" (its keys: {keys})" if keys else "")


def open_document(path: Path) -> Document:
    """Read and decompress a JSON file. Raises NeuronTbError when it cannot be one."""
    data = read_bytes(path)
    _refuse_what_is_not_json(path, data[:4096])
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        if data.lstrip()[:1] == b"[":
            msgspec.json.decode(data, type=list[msgspec.Raw])
            return Document(path, data, array=True)
        return Document(path, data, keys=_TOP_LEVEL.decode(data))
    except msgspec.MsgspecError as error:
        raise NeuronTbError(f"{path} is not valid JSON ({error}).") from error


def read_bytes(path: Path) -> bytes:
    """The file's content, decompressed when it is gzip whatever its name says."""
    try:
        data = path.read_bytes()
        if data[:2] == _GZIP:
            data = gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise NeuronTbError(f"{path} is a damaged gzip file ({error}).") from error
    except OSError as error:
        raise NeuronTbError(f"{path} cannot be read: {error.strerror or error}.") from error
    return data


def _refuse_what_is_not_json(path: Path, head: bytes) -> None:
    text = head.lstrip().lower()
    if not text:
        what = "an empty file; the profiler was probably stopped before it wrote anything"
    elif text.startswith((b"<!doctype", b"<html", b"<?xml")):
        what = "a web page, not a trace; download the raw file"
    elif text.startswith(b"version https://git-lfs"):
        what = "a Git LFS pointer, not the file itself; run `git lfs pull`"
    elif _PICKLE.match(head):
        what = "a Python pickle (perhaps a memory snapshot); pickles are never opened"
    elif head.startswith(b"PK\x03\x04"):
        what = "a ZIP archive; unpack it first"
    elif text[:1] in (b"{", b"[", b"\xef"):
        return
    else:
        what = "not JSON, and no other trace format that is known here"
    raise NeuronTbError(f"{path} is {what}.")


def _looks_like_memory_timeline(data: bytes) -> bool:
    return re.match(rb"\s*\[\s*\[\s*(-?[\d.]+|\])", data[:200]) is not None
