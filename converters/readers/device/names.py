"""What device profiles and their tables are called; light, for whoever looks for files.

Format: AWS Neuron documentation, Neuron Explorer's Parquet schema, version 7.4.0, and the JSON
output of ``neuron-profile`` and ``neuron-explorer``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

METADATA_KEY = "device_profiles"
"""The key of a process' metadata that lists what is known of its device profiles."""

ROW_TABLES = (
    "ActiveTime",
    "Instruction",
    "DmaPacketAggregated",
    "DmaPacket",
    "CcOp",
    "CcInstruction",
    "DmaUsage",
    "HbmUsage",
    "SbufUsage",
    "PsumUsage",
    "PendingDma",
    "SemaphoreUpdate",
    "Throttle",
    "ExecutionInfo",
)
"""Tables with a row per thing that happened."""

FACT_TABLES = ("Metadata", "Summary", "ThrottleSummary")
"""Tables of a row or few about the whole profile."""

SHARED_TABLES = ("Warning", "SchemaFields", "Flow")
"""Tables that a system profile has too: they do not make a device profile."""

SYSTEM_EVENTS = "SystemProfileEvents"
"""The table that a system profile in the same directory has."""

TABLES = (*ROW_TABLES, *FACT_TABLES)
MARKS = frozenset(TABLES)
"""A directory with one of these tables holds a device profile."""

SUMMARY_KEY = re.compile(r"[ns]_[0-9A-Za-z]+")
_OTHER_NAMES = {
    "dma": "DmaPacketAggregated",
    "profile_info": "Metadata",
    "warnings": "Warning",
    "trace_event": "",
    "trace_events": "",
}
_LIST_KEY = re.compile(rb'"([A-Za-z_]{2,40})"\s*:\s*\[')
_WORDS = (b'"total_time"', b'"instruction"', b'"engine"', b'"opcode"', b'"first_hw_timestamp"')
"""One of these stands in every device profile that is worth reading."""

_FIRST_KEY = re.compile(rb'^\s*\{\s*"([^"]{1,40})"\s*:\s*[\[{]')


def profile_name(path: Path) -> str:
    """A profile's own name, from its directory or file."""
    name = path.name if path.is_dir() else re.sub(r"(\.json)?(\.gz)?$", "", path.name)
    return name.removesuffix("@latest")


def holds_device_table(path: Path) -> bool:
    """Whether a Parquet file, or a directory of them, is or has a table of a device profile."""
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    return any(file.suffix == ".parquet" and table_of(file) in MARKS for file in files)


def table_of(file: Path) -> str:
    """The table that a file holds, or holds a part of."""
    return re.sub(r"_\d+$", "", file.stem)


def is_device_document(head: bytes) -> bool:
    """Whether a JSON file that begins so is a device profile, as far as its beginning shows."""
    if not head.lstrip().startswith(b"{") or b'"traceEvents"' in head:
        return False
    first = _FIRST_KEY.match(head)
    if first and SUMMARY_KEY.fullmatch(first[1].decode("utf-8", "replace")):
        return b'"total_time"' in head or b'"total_duration_ns"' in head
    lists = {table_of_key(key.decode("utf-8", "replace")) for key in _LIST_KEY.findall(head)}
    return not lists.isdisjoint(MARKS) and any(word in head for word in _WORDS)


def could_be_device_document(keys: Collection[str]) -> bool:
    """Whether a JSON document's top-level keys are those of a device profile."""
    return all(map(SUMMARY_KEY.fullmatch, keys)) or any(table_of_key(k) in MARKS for k in keys)


def table_of_key(key: str) -> str:
    """The table that a top-level key holds: its own name, or that in lower case and with ``_``."""
    if key in _OTHER_NAMES:
        return _OTHER_NAMES[key]
    for name in (*TABLES, *SHARED_TABLES):
        if key in (name, re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()):
            return name
    return key
