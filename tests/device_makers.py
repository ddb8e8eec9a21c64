"""A synthetic device profile, as Neuron Explorer's documented tables would hold it.

One logical NeuronCore of two physical ones runs a program three times. Everything is invented;
the numbers are round, so that expected tables can be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.makers import BASE_NS, HOST, PID

Table = list[dict[str, Any]]

FIRST_HW_NS = 7_000_000_000
"""The device's own clock at the start of the profile."""

RUNS = ((1_000, 40_000), (60_000, 40_000), (120_000, 40_000))
"""Start after the profile's begin and length of each execution, nanoseconds."""

ENGINES = ("tensor", "Vector", "scalar", "GpSimd", "sync")
NAME = f"train_{HOST}_pid_{PID}_nc_0_session_1"

ACTIVE = (("tensor", 0, 30_000), ("Vector", 5_000, 10_000), ("scalar", 12_000, 6_000))
"""Engine, start inside an execution, length; GpSimd and sync are busy in the first one only."""


def span(start: int, length: int, **more: Any) -> dict[str, Any]:
    """The time columns of a row."""
    return {"start_ts": start, "end_ts": start + length, "duration_ns": length, **more}


def tables() -> dict[str, Table]:
    """All tables of the profile."""
    active: Table = []
    instructions: Table = []
    for begin, _ in RUNS:
        for engine, offset, length in ACTIVE:
            for core in (0, 1):
                active.append(span(begin + offset, length, engine=engine, pcore_idx=core))
                instructions += _instructions(begin + offset, length, engine, core, instructions)
    for engine in ("GpSimd", "sync"):
        active.append(span(RUNS[0][0] + 31_000, 2_000, engine=engine, pcore_idx=0))
    return {
        "ActiveTime": active,
        "Instruction": instructions,
        "DmaPacketAggregated": _dma(),
        "DmaPacket": [
            span(1_000 + 100 * n, 90, id=n, packet_aggregation_id=1, engine_idx=n % 2, op="copy")
            for n in range(4)
        ],
        "CcOp": [
            span(26_000, 9_000, operation="AllReduce", algorithm="ring", stream_id=0, dtype="bf16")
        ],
        "CcInstruction": [span(26_500, 1_000, core_idx=2, description="recv")],
        "DmaUsage": _usage(2e11),
        "HbmUsage": _usage(1e11),
        "SbufUsage": [
            {"timestamp": 2_000, "avg_util_percent": 0.25, "partition_0_util_percent": 0.5},
            {"timestamp": 9_000, "avg_util_percent": 0.75, "partition_0_util_percent": 0.5},
        ],
        "PsumUsage": [{"timestamp": 2_000, "avg_util_percent": 0.125}],
        "PendingDma": [{"timestamp": 500 * n, "value": n % 3} for n in range(6)],
        "SemaphoreUpdate": [
            {"timestamp": 3_000 + n, "id": "S[5]", "value": n, "update_source": "Tensor"}
            for n in range(3)
        ],
        "Throttle": [{"timestamp": 8_000, "duration": 4_000, "k": 3, "n": 4, "type": "power"}],
        "ThrottleSummary": [{"type": "power", "active_ns": 4_000, "percent": 0.025}],
        "ExecutionInfo": [
            {
                "execution_index": number,
                "neff_name": "train.neff",
                "execution_start_ts": start,
                "execution_end_ts": start + length,
            }
            for number, (start, length) in enumerate(RUNS)
        ],
        "Metadata": [metadata()],
        "Summary": [summary()],
    }


def metadata(**more: Any) -> dict[str, Any]:
    """The row of Metadata."""
    return {
        "first_hw_timestamp": FIRST_HW_NS,
        "last_hw_timestamp": FIRST_HW_NS + 160_000,
        "tensor_engine_clock_freq": 1.4,
        "tensor_engine_num_rows": 128,
        "tensor_engine_num_cols": 128,
        "hbm_ddr_bandwidth": 4.0e11,
        "num_physical_cores": 2,
        "ticks_per_nanosec": 1.4,
        "instance_type": "trn2.48xlarge",
        "neuron_device_idx": 0,
        "neuroncore_idx": 0,
        "profile_schema_version": "7.4.0",
        "ntff_version": 6,
        **more,
    }


PEAK = 2 * 128 * 128 * 1.4e9 * 2
"""FLOP/s of two Tensor engines."""


def summary(**more: Any) -> dict[str, Any]:
    """The row of Summary: 160 us in which the program did a fifth of what the engines can."""
    total = 160e-6
    return {
        "total_time": total,
        "total_active_time": 120e-6,
        "tensor_engine_active_time": 90e-6,
        "tensor_engine_active_time_percent": 90 / 160,
        "vector_engine_active_time": 30e-6,
        "vector_engine_active_time_percent": 30 / 160,
        "dma_active_time": 60e-6,
        "dma_active_time_percent": 60 / 160,
        "hardware_flops": 0.2 * PEAK * total,
        "transpose_flops": 0.05 * PEAK * total,
        "model_flops": 0.1 * PEAK * total,
        "hbm_read_bytes": 12_000_000,
        "hbm_write_bytes": 4_000_000,
        "hfu_estimated_percent": 0.2,
        "mfu_estimated_percent": 0.1,
        "mbu_estimated_percent": 16e6 / total / 4.0e11,
        **more,
    }


def system_rows() -> Table:
    """``nc_exec_running`` of the same executions: two rows each, 2 us late on the second core."""
    rows: Table = []
    for number, (start, length) in enumerate(RUNS):
        for physical in (4, 5):
            at = BASE_NS + start + (2_000 if physical == 5 else 0)
            rows.append(
                {
                    "id": 1000 + 2 * number + physical,
                    "name": "nc_exec_running",
                    **span(at, length),
                    "trace_event_source": "neuron_hw",
                    "instance_id": HOST,
                    "process_id": PID,
                    "thread_id": 0,
                    "nc_idx": 0,
                    "pcore_idx": physical,
                    "flow_id": [str(number + 1)],
                    "extra_attributes_json": (
                        f'{{"nc_start_timestamp_ns":{FIRST_HW_NS + start},"model_id":77}}'
                        if physical == 4
                        else "{}"
                    ),
                }
            )
    return rows


def write_tables(folder: Path, content: Mapping[str, Sequence[Mapping[str, Any]]]) -> Path:
    """One Parquet file per table."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in content.items():
        pq.write_table(pa.Table.from_pylist(list(rows)), folder / f"{name}.parquet")
    return folder


def write_profile(root: Path, name: str = NAME, **replaced: Any) -> Path:
    """The profile in Explorer's layout; a table given as None is left out."""
    content = {**tables(), **replaced}
    return write_tables(root / f"{name}@latest", {k: v for k, v in content.items() if v})


def _instructions(start: int, length: int, engine: str, core: int, before: Table) -> Table:
    half = length // 2
    return [
        span(
            start + number * half,
            half,
            engine=engine,
            pcore_idx=core,
            id=(1 << 60) + len(before) + number,
            opcode="MATMUL" if engine == "tensor" else "ACTIVATE",
            operands=f"op {number}",
            hlo_name="dot.1",
            raw_flops=1 << 20,
        )
        for number in range(2)
    ]


def _dma() -> Table:
    # The second packet overlaps the first one on its queue.
    return [
        span(
            1_000 + 500 * number,
            800,
            id=number,
            pcore_idx=0,
            queue_idx=number // 2,
            queue_name=f"qSyncSpillReload{number // 2}",
            op="spill",
            variable=f"weights.{number}",
            transfer_bytes=65536,
        )
        for number in range(4)
    ]


def _usage(throughput: float) -> Table:
    return [
        {
            "timestamp": 1_000 * number,
            "current_throughput": throughput * number,
            "total_transfer_bytes": 1_000_000 * number,
            "pcore_idx": 0,
        }
        for number in range(5)
    ]
