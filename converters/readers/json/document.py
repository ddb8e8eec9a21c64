"""Opening a JSON file, plain or gzip, and saying what it is when it is not a trace.

A document is decoded as a whole first; only where that fails, ``repair.document`` looks at
its text.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import NONE
from neuron_tb.converters.model.arguments import Text
from neuron_tb.converters.readers.json import bounds
from neuron_tb.converters.readers.json.chunks import Listing, chunks
from neuron_tb.converters.readers.json.depth import without_deep_values
from neuron_tb.converters.readers.json.gunzip import MAGIC, gunzip
from neuron_tb.converters.readers.json.mapped import text_of
from neuron_tb.converters.readers.json.repair.document import (
    first_invalid_utf8,
    list_of_renamed_events,
    repair,
    valid_utf8,
)
from neuron_tb.converters.readers.json.repair.shape import EVENT_LISTS

_IN_A_TRACE = re.compile(
    rb'"(?:traceEvents|trace_events?|schemaVersion|ph|ts|dur|name|timestamp|event_type)"\s*:'
)
_ARRAY = re.compile(rb"\s*\[")
_ENOUGH_TO_SNIFF = 1 << 14
_MOST_DIGITS = 300
_PICKLE = re.compile(rb"^\x80[\x02-\x05]")
_BY_SUFFIX = {
    ".et": "a Chakra execution trace (operators and their order, without times), not a profile",
    ".pkl": "a Python pickle; pickles are never opened",
    ".pickle": "a Python pickle; pickles are never opened",
    ".pt": "a file of torch.save; such files are never opened",
    ".xplane.pb": "an XProf profile; open it with `tensorboard --logdir`",
    ".pftrace": "a Perfetto trace; open it with `neuron-tb view`",
    ".perfetto-trace": "a Perfetto trace; open it with `neuron-tb view`",
    ".ntff": "a Neuron device profile, which only neuron-explorer reads; run `neuron-explorer view "
    "--output-format json` on its directory first",
    ".neff": "a compiled Neuron program, not a profile",
}
_UNKNOWN = "JSON, but not a trace that is known here"
_ROWS = msgspec.json.Decoder(list[msgspec.Raw]).decode
_TOP_LEVEL = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass
class Document:
    """A JSON file in memory: either an object's top-level ``keys`` or a top-level ``array``.

    ``data``: the text of a top-level array. ``findings``: what was repaired or lost in it.
    """

    path: Path
    data: Text
    keys: dict[str, msgspec.Raw] = field(default_factory=dict)
    array: bool = False
    findings: Findings = field(default_factory=Findings)

    def first_row(self) -> dict[str, Any]:
        """The first object of a top-level array, decoded; {} when there is none."""
        if not self.array:
            return {}
        first = next(chunks(self.listing(), _ROWS, _ENOUGH_TO_SNIFF))
        values = map(self.value, first.rows[:50])
        return next((value for value in values if isinstance(value, dict)), {})

    def listing(self, key: str = "") -> Listing:
        """Where the list of a key stands, or the top-level array.

        It stands in ``data``, unless it was repaired.
        """
        if self.array:
            return Listing(self.data, 0, len(self.data))
        raw = self.keys[key]
        size = len(memoryview(raw))
        offset = _address(raw) - _address(self.data) if len(self.data) else NONE
        if 0 <= offset <= len(self.data) - size:
            return Listing(self.data, offset, offset + size)
        return Listing(bytes(raw), 0, size)

    def decoded(self, *but: str) -> dict[str, Any]:
        """All top-level keys but these, decoded."""
        return {key: self.value(raw) for key, raw in self.keys.items() if key not in but}

    def value(self, raw: msgspec.Raw) -> Any:
        """A value of this document, decoded; None, and a finding, where that is impossible."""
        try:
            return loosely(raw)
        except ValueError:
            self.findings.add(
                "nested_too_deep", "values nested too deeply were left out", where=self.path.name
            )
            return None

    @property
    def is_known_not_to_be_a_trace(self) -> bool:
        """Whether ``description`` names it."""
        return not self.description().startswith(_UNKNOWN)

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
        deep = self.findings.of_kind("nested_too_deep")
        if {"times", "sizes"} <= self.keys.keys():
            return "a PyTorch memory timeline, not a trace"
        keys = ", ".join(" ".join(key.split())[:40] for key in list(self.keys)[:5])
        what = [f"its keys: {keys}"] if keys else []
        what += [f"nested more than {bounds.MAX_DEPTH} deep"] if deep else []
        return _UNKNOWN + (f" ({'; '.join(what)})" if what else "")


def open_document(path: Path) -> Document:
    """Read and decompress a JSON file. Raises NeuronTbError when it cannot be one."""
    findings = Findings()
    data = _as_utf8(path, read_text(path, findings), findings)
    _refuse_what_is_not_json(path, data[:4096])
    try:
        try:
            document = _decode(path, data, findings)
        except RecursionError:
            data = _without_deep_values(path, data, findings)
            document = _decode(path, data, findings)
        if _has_repeated_lists(document, data):
            document = _repair(path, data, "an event list stands twice", findings)
    except (msgspec.MsgspecError, RecursionError) as error:
        too_deep = isinstance(error, RecursionError)
        problem = "its brackets do not match, some thousand deep" if too_deep else str(error)
        document = _repair(path, data, problem, findings)
    _replace_invalid_utf8(document, data)
    _drop_what_is_no_list(document)
    list_of_renamed_events(document.keys, path.name, findings)
    return document


def _address(text: Text | msgspec.Raw) -> int:
    """Where a text, which is not empty, stands in memory."""
    address: int = np.frombuffer(text, np.uint8).__array_interface__["data"][0]
    return address


def read_text(path: Path, findings: Findings | None = None) -> Text:
    """The file's content, decompressed when it is gzip whatever its name says.

    What of a damaged gzip file is lost goes to ``findings``. Raises NeuronTbError for a file that
    is larger than ``bounds`` allow.
    """
    findings = Findings() if findings is None else findings
    try:
        size = path.stat().st_size
        if size > bounds.MAX_SIZE:
            raise NeuronTbError(
                f"{path} has {size:,} bytes, more than the {bounds.MAX_SIZE:,} that are allowed; "
                "--max-size raises the limit."
            )
        data = text_of(path)
    except OSError as error:
        raise NeuronTbError(f"{path} cannot be read: {error.strerror or error}.") from error
    for _ in range(2):  # some tools compress what is compressed
        if data[: len(MAGIC)] == MAGIC:
            data = gunzip(path, data[:], findings)
    return data


def _decode(path: Path, data: Text, findings: Findings) -> Document:
    if _ARRAY.match(data):
        msgspec.json.decode(data, type=msgspec.Raw)
        return Document(path, data, array=True, findings=findings)
    return Document(path, data, _TOP_LEVEL.decode(data), findings=findings)


def _without_deep_values(path: Path, data: Text, findings: Findings) -> Text:
    text, places = without_deep_values(data[:])
    if places:
        findings.add(
            "nested_too_deep",
            f"values nested more than {bounds.MAX_DEPTH} deep were left out",
            len(places),
            f"{path.name}, byte {places[0]}",
        )
    return text


def _repair(path: Path, data: Text, problem: str, findings: Findings) -> Document:
    repaired = repair(path.name, data[:], findings)
    array = repaired.array is not None
    document = Document(path, repaired.array or b"", repaired.keys, array, findings)
    has_list = array or any(key in repaired.keys for key in EVENT_LISTS)
    lost = findings.of_kind("bytes_lost") + findings.of_kind("json_truncated")
    if repaired.events == 0 and (lost or not has_list) and not document.is_known_not_to_be_a_trace:
        raise NeuronTbError(
            f"{path} is not valid JSON ({problem}), and no whole event in it can be read."
        )
    return document


def _has_repeated_lists(document: Document, data: Text) -> bool:
    """Whether an object has an event list twice; decoding keeps only the last one.

    Looked for only where the values that were kept are much shorter than the text.
    """
    kept = sum(len(memoryview(raw)) + len(key) + 16 for key, raw in document.keys.items())
    if document.array or len(data) - kept < 16:
        return False
    return any(
        len(re.findall(b'"%b"[ \t\r\n]*:' % key.encode(), data)) > 1
        for key in EVENT_LISTS
        if key in document.keys
    )


def _as_utf8(path: Path, data: Text, findings: Findings) -> Text:
    """The text without a byte order mark and in UTF-8."""
    if data[:3] == codecs.BOM_UTF8:
        findings.add("byte_order_mark", "a byte order mark was ignored", where=path.name)
        return data[3:]
    encoding = ""
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        encoding = "utf-16"
    elif data[:1] in (b"{", b"[") and data[1:2] == b"\0":
        encoding = "utf-16-le"
    elif data[:1] == b"\0" and data[1:2] in (b"{", b"["):
        encoding = "utf-16-be"
    if not encoding:
        return data
    findings.add("utf16", "text in UTF-16 was read as that", where=path.name)
    text = data[:].decode(encoding, "replace")
    findings.add("utf8_repaired", _REPLACED, text.count("\ufffd"), path.name)
    return text.encode("utf-8", "replace")


def _drop_what_is_no_list(document: Document) -> None:
    for key in EVENT_LISTS:
        raw = document.keys.get(key)
        if raw is not None and bytes(memoryview(raw)[:1]) != b"[":
            document.keys[key] = msgspec.Raw(b"[]")
            document.findings.add(
                "event_list_unreadable",
                f"{key!r} is no list and was left out",
                where=document.path.name,
            )


_REPLACED = "bytes that are not valid UTF-8 were replaced by U+FFFD"


def _replace_invalid_utf8(document: Document, data: Text) -> None:
    first = first_invalid_utf8(data)
    if first is None:
        return
    count = 0
    if document.array:
        document.data, count = valid_utf8(document.data)
    for key, raw in document.keys.items():
        if first_invalid_utf8(bytes(raw)) is not None:
            text, replaced = valid_utf8(bytes(raw))
            document.keys[key] = msgspec.Raw(text)
            count += replaced
    where = f"{document.path.name}, byte {first}"
    document.findings.add("utf8_repaired", _REPLACED, count, where)


def loosely(raw: bytes | msgspec.Raw) -> Any:
    """Decode valid JSON whose numbers may be beyond a double's range: those become None.

    Raises ValueError where it is nested too deeply.
    """
    try:
        return msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        pass
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    try:
        return json.loads(bytes(raw), parse_float=_finite, parse_int=_finite_integer)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _finite_integer(text: str) -> int | None:
    return int(text) if len(text) <= _MOST_DIGITS else None


def _refuse_what_is_not_json(path: Path, head: bytes) -> None:
    text = head.lstrip().lower()
    name = path.name.lower().removesuffix(".gz")
    known = next((what for suffix, what in _BY_SUFFIX.items() if name.endswith(suffix)), "")
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
    elif head.startswith(b"\x28\xb5\x2f\xfd"):
        what = "compressed with Zstandard; unpack it first"
    elif text[:1] in (b"{", b"[") or _IN_A_TRACE.search(head):
        return
    elif known:
        what = known
    else:
        what = "not JSON, and no other trace format that is known here"
    raise NeuronTbError(f"{path} is {what}.")


def _looks_like_memory_timeline(data: Text) -> bool:
    return re.match(rb"\s*\[\s*\[\s*(-?[\d.]+|\])", data[:200]) is not None
