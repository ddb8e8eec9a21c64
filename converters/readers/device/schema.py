"""What the tables of a device profile mean: rows, counters, names of engines, known columns.

Format: AWS Neuron documentation, Neuron Explorer's Parquet schema, version 7.4.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neuron_tb.converters.model import NONE
from neuron_tb.converters.model.hardware import ENGINE_ORDER, engine_name
from neuron_tb.converters.model.numbers import integer

KNOWN_VERSION, KNOWN_MAJOR = "7.4.0", 7
"""Of ``Metadata.profile_schema_version``; a new major version renames or retypes something."""

NS_PER_UNIT = {
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1),
    **dict.fromkeys(("us", "microsecond", "microseconds"), 1_000),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1_000_000),
    **dict.fromkeys(("s", "second", "seconds"), 1_000_000_000),
}
"""Units of time that ``SchemaFields`` may name."""

CORE = "pcore_idx"
"""The physical core inside the logical one, 0 or 1."""

_QUEUES, _PACKETS, _COLLECTIVES, _COLLECTIVE_CORES, _THROTTLING = 200, 20_000, 20, 30, 40
_MOST_QUEUES = 10_000


Place = tuple[str, int]
"""A row's name, and its position among the rows of the profile."""


def _engine(row: dict[str, Any]) -> Place:
    value = row.get("engine") if row.get("engine") is not None else row.get("label")
    name = "unknown engine" if value is None else engine_name(value)
    return name, ENGINE_ORDER.index(name) if name in ENGINE_ORDER else len(ENGINE_ORDER)


def _instructions(row: dict[str, Any]) -> Place:
    name, order = _engine(row)
    return f"{name} instructions", order


def _queue(row: dict[str, Any]) -> Place:
    number = integer(row.get("queue_idx"))
    name = row.get("queue_name")
    label = f"DMA queue {number}" if name is None and number != NONE else f"DMA {name or 'queue'}"
    return label, _QUEUES + min(max(number, 0), _MOST_QUEUES)


def _packets(row: dict[str, Any]) -> Place:
    engine = integer(row.get("engine_idx"))
    return ("DMA packets" if engine == NONE else f"DMA engine {engine} packets"), _PACKETS


def _collective(row: dict[str, Any]) -> Place:
    stream = row.get("stream_id")
    return ("Collectives" if stream is None else f"Collectives, stream {stream}"), _COLLECTIVES


def _collective_core(row: dict[str, Any]) -> Place:
    core = row.get("core_idx")
    label = "Collective core" if core is None else f"Collective core {core}"
    return label, _COLLECTIVE_CORES


@dataclass(frozen=True, slots=True)
class SliceTable:
    """How rows of a table become slices.

    ``names``: the first of these columns that is known names the slice; without any its row
    does. ``place``: the row, from the columns ``by``. ``in_detail``: only when asked for.
    """

    table: str
    names: tuple[str, ...]
    by: tuple[str, ...]
    place: Callable[[dict[str, Any]], Place]
    in_detail: bool = False


ACTIVE = SliceTable("ActiveTime", (), ("engine",), _engine)
INSTRUCTION = SliceTable(
    "Instruction",
    ("opcode", "bir_instruction_name", "hlo_name"),
    ("engine", "label"),
    _instructions,
    in_detail=True,
)
SLICE_TABLES = (
    ACTIVE,
    INSTRUCTION,
    SliceTable(
        "DmaPacketAggregated",
        ("variable", "op", "queue_name", "label"),
        ("queue_name", "queue_idx"),
        _queue,
    ),
    SliceTable("DmaPacket", ("op", "variable"), ("engine_idx",), _packets, in_detail=True),
    SliceTable("CcOp", ("operation",), ("stream_id",), _collective),
    SliceTable("CcInstruction", ("description",), ("core_idx",), _collective_core, in_detail=True),
    SliceTable("Throttle", ("limit",), (), lambda row: ("Throttling", _THROTTLING)),
    SliceTable("ExecutionInfo", ("name",), (), lambda row: ("Executions", -1)),
)

COUNTER_TABLES = {
    "DmaUsage": "DMA",
    "HbmUsage": "HBM",
    "SbufUsage": "SBUF",
    "PsumUsage": "PSUM",
    "PendingDma": "Pending DMA",
    "SemaphoreUpdate": "Semaphore",
    "Throttle": "Throttle",
}
"""Tables of samples, with the words that begin their counters' names."""

COUNTERS_IN_DETAIL = ("SemaphoreUpdate",)
_COUNTER_NAMES = {
    ("DmaUsage", "current_throughput"): "DMA throughput",
    ("DmaUsage", "total_transfer_bytes"): "DMA bytes moved",
    ("HbmUsage", "current_throughput"): "HBM throughput",
    ("HbmUsage", "total_transfer_bytes"): "HBM bytes moved",
    ("SbufUsage", "avg_util_percent"): "SBUF use",
    ("PsumUsage", "avg_util_percent"): "PSUM use",
    ("PendingDma", "value"): "Pending DMA",
    ("Throttle", "limit_percent"): "Throttle limit",
}
_NO_COUNTER = {"timestamp", CORE, "id", "update_source", "start_ts", "end_ts", "duration_ns"}


def counter_columns(table: str, columns: list[str]) -> list[str]:
    """The columns of a table that are counters."""
    if table == "Throttle":
        return ["limit_percent"]
    return [c for c in columns if c not in _NO_COUNTER]


def counter_label(table: str, column: str) -> str:
    """What a counter is called."""
    known = _COUNTER_NAMES.get((table, column))
    words = column.removesuffix("_util_percent").replace("_", " ")
    return known or f"{COUNTER_TABLES[table]} {words}"


def counter_unit(column: str) -> str:
    """The unit that a column's name shows, "" for none."""
    if column.endswith("_percent"):
        return "%"
    return "B/s" if column.endswith("throughput") else "bytes" if column.endswith("_bytes") else ""


_WHEN = "start_ts end_ts duration_ns"
_KNOWN_COLUMNS = {
    "ActiveTime": f"{_WHEN} engine",
    "Instruction": f"{_WHEN} timestamp duration engine label timeline_track opcode operands id pc "
    "hlo_name layer bir_instruction_name nki_source_location evt_wait_time_ns dma_wait_time_ns "
    "instruction_chain raw_flops adjusted_flops flops_transpose hbm_read_bytes hbm_write_bytes "
    "sbuf_read_bytes sbuf_write_bytes psum_read_bytes psum_write_bytes tensor_instruction_type",
    "DmaPacketAggregated": f"{_WHEN} timestamp duration label id queue_idx queue_name queue_type "
    "op variable read_bytes write_bytes transfer_bytes throughput source dest trigger completion",
    "DmaPacket": f"{_WHEN} id queue_idx queue_name queue_type op variable transfer_bytes source "
    "dest packet_aggregation_id engine_idx",
    "CcOp": f"{_WHEN} id operation algorithm num_elements dtype op_id stream_id trigger_engine "
    "input_size output_size algorithm_bandwidth bus_bandwidth trigger_start_ts replica_group",
    "CcInstruction": f"{_WHEN} id core_idx description",
    "DmaUsage": "timestamp current_throughput total_transfer_bytes",
    "HbmUsage": "timestamp current_throughput total_transfer_bytes",
    "SbufUsage": "timestamp avg_util_percent",
    "PsumUsage": "timestamp avg_util_percent",
    "PendingDma": "timestamp value",
    "SemaphoreUpdate": "timestamp id value update_source",
    "Throttle": "timestamp duration k n type",
    "ExecutionInfo": "execution_index neff_name execution_start_ts execution_end_ts",
}
_PART_OF_MEMORY = re.compile(r"(partition|bank)_\d+(_.*)?")


def is_known(table: str, column: str) -> bool:
    """Whether a column is one that this module knows."""
    known = f"{_KNOWN_COLUMNS.get(table, '')} {CORE}".split()
    part = table in ("SbufUsage", "PsumUsage") and _PART_OF_MEMORY.fullmatch(column)
    return column in known or bool(part)
