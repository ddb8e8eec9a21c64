"""Makes up a compiled program on one logical NeuronCore, and a device profile of two executions.

Tile by tile, DMA queues bring weights, the Tensor engine multiplies, Vector and Scalar engines
finish. The program waits for its weights: it is memory-bound. Clock, bandwidth and every length
are invented.

    python -m neuron_tb.samples.engines.make [DIR]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from neuron_tb.simulation.files import write_system_profile, write_trace
from neuron_tb.simulation.process import BASE_NS, Core, Process, Thread, nanoseconds
from neuron_tb.simulation.tensors import Tensor

SYNTHETIC = "made up; not a measurement"
HOST = "i-0synthetic0000003"
PID = 3101
START_NS = 1_768_475_100_123_456_789
HBM_BYTES = 24 << 30

STEPS = 2
PROGRAM_US = 960.0
TILES = 24
CORES = (0, 1)
BEFORE_NS = 5_000
"""The profile begins so long before the first execution."""

CLOCK_GHZ, ROWS, COLUMNS, HBM_BANDWIDTH = 1.25, 128, 128, 600e9
PEAK = 2 * ROWS * COLUMNS * CLOCK_GHZ * 1e9 * len(CORES)
TILE_BYTES = 6 << 20
BUSY_OF_TILE = {"Tensor": (8_000, 19_000), "Vector": (24_000, 9_000), "Scalar": (30_000, 6_500)}
"""Engine: start inside its tile and length, nanoseconds."""

Row = dict[str, Any]


def program(thread: Thread) -> None:
    """Two steps, each one execution of the compiled graph."""
    x = Tensor((1024, 4096))
    for step in range(STEPS):
        thread.spend(60.0)
        with thread.annotation(f"ProfilerStep#{step}"):
            thread.spend(20.0)
            with thread.operator("Torch-Compiled Region: 0/0"):
                thread.spend(14.0)
                done = thread.execute("model_default_0", PROGRAM_US, [x], us=9.0)
                thread.spend(5.0)
            with thread.annotation("torch.neuron.synchronize()"):
                thread.wait_until(done)
                thread.spend(3.0)
            thread.spend(10.0)


def device_profile(process: Process) -> dict[str, Any]:
    """Explorer's JSON of a device profile, for the executions of the process."""
    core = process.core
    runs = [
        (row["timestamp"], row["duration"])
        for row in process.rows
        if row["name"] == "nc_exec_running" and row["device_core_idx"] == core.physical[0]
    ]
    begin = runs[0][0] - BEFORE_NS
    runs = [(start - begin, length) for start, length in runs]
    active, instructions, dma = _tiles([start for start, _ in runs])
    end = runs[-1][0] + runs[-1][1]
    usage = _usage(dma)
    tensor_ns = sum(r["duration_ns"] for r in active if r["engine"] == "Tensor") // len(CORES)
    return {
        "synthetic": SYNTHETIC,
        "metadata": [
            {
                "first_hw_timestamp": begin - core.clock_zero_ns,
                "last_hw_timestamp": begin + end - core.clock_zero_ns,
                "tensor_engine_clock_freq": CLOCK_GHZ,
                "tensor_engine_num_rows": ROWS,
                "tensor_engine_num_cols": COLUMNS,
                "hbm_ddr_bandwidth": HBM_BANDWIDTH,
                "num_physical_cores": len(CORES),
                "profile_schema_version": "7.4.0",
            }
        ],
        "summary": [_summary(end, tensor_ns, active, dma)],
        "execution_info": [
            {
                "execution_index": number,
                "neff_name": "model_default_0.neff",
                "execution_start_ts": start,
                "execution_end_ts": start + length,
            }
            for number, (start, length) in enumerate(runs)
        ],
        "active_time": active,
        "instruction": instructions,
        "dma": dma,
        "hbm_usage": usage,
        "sbuf_usage": [
            {"timestamp": row["timestamp"], "avg_util_percent": 0.35 + 0.25 * (number % 3) / 2}
            for number, row in enumerate(usage)
        ],
        "pending_dma": [
            {"timestamp": row["start_ts"], "value": 1 + number % 4}
            for number, row in enumerate(dma)
        ],
    }


def _span(start: int, length: int, **more: Any) -> Row:
    return {"start_ts": start, "end_ts": start + length, "duration_ns": length, **more}


def _tiles(starts: list[int]) -> tuple[list[Row], list[Row], list[Row]]:
    """Busy engines, instructions and DMA packets of executions that start at these times."""
    active: list[Row] = []
    instructions: list[Row] = []
    dma: list[Row] = []
    for start in starts:
        for tile in range(TILES):
            at = start + tile * nanoseconds(PROGRAM_US) // TILES
            queue = tile % 4
            dma.append(
                _span(
                    at,
                    27_000,
                    id=len(dma),
                    queue_idx=queue,
                    queue_name=f"qWeights{queue}",
                    op="load",
                    variable=f"weights.{tile}",
                    transfer_bytes=TILE_BYTES,
                    source="HBM",
                    dest="SBUF",
                )
            )
            for engine, (offset, length) in BUSY_OF_TILE.items():
                for core in CORES:
                    row = _span(at + offset + 150 * core, length, engine=engine, pcore_idx=core)
                    active.append(row)
                    opcode = {"Tensor": "MATMUL", "Vector": "ADD", "Scalar": "GELU"}[engine]
                    number = {"id": (1 << 60) + len(instructions), "opcode": opcode}
                    instructions.append({**row, **number, "hlo_name": f"%fusion.{tile % 6}"})
        active.append(_span(start, 3_000, engine="GpSimd", pcore_idx=0))
        active.append(_span(start + 955_000, 4_000, engine="Sync", pcore_idx=0))
    return active, instructions, dma


def _usage(dma: list[Row]) -> list[Row]:
    """HBM throughput: that of each packet from its start, nothing from its end."""
    total = 0
    rows: list[Row] = []
    for packet in dma:
        size = packet["transfer_bytes"]
        for time, rate in (
            (packet["start_ts"], size / packet["duration_ns"] * 1e9),
            (packet["end_ts"], 0.0),
        ):
            total += size if not rate else 0
            row = {"timestamp": time, "current_throughput": round(rate)}
            rows.append(row | {"total_transfer_bytes": total})
    return rows


def _summary(end: int, tensor_ns: int, active: list[Row], dma: list[Row]) -> Row:
    seconds = end / 1e9
    hardware = round(0.6 * PEAK * tensor_ns / 1e9)
    moved = sum(row["transfer_bytes"] for row in dma)
    busy = {
        name: sum(r["duration_ns"] for r in active if r["engine"] == engine and not r["pcore_idx"])
        for name, engine in (("tensor", "Tensor"), ("vector", "Vector"), ("scalar", "Scalar"))
    }
    row: Row = {
        "total_time": seconds,
        "hardware_flops": hardware,
        "transpose_flops": hardware // 10,
        "model_flops": hardware * 8 // 10,
        "hbm_read_bytes": moved,
        "hbm_write_bytes": moved // 16,
        "hfu_estimated_percent": hardware / (PEAK * seconds),
        "dma_active_time": sum(r["duration_ns"] for r in dma) / 1e9,
    }
    for name, length in busy.items():
        row[f"{name}_engine_active_time"] = length / 1e9
        row[f"{name}_engine_active_time_percent"] = length / end
    return row


def make(directory: Path) -> list[Path]:
    """Write the capture below ``directory``; returns its files."""
    core = Core((4, 5), clock_zero_ns=BASE_NS + 1_281_000_000_000_000)
    process = Process(HOST, PID, START_NS, core)
    program(process.thread(PID))
    trace = write_trace(directory, process, SYNTHETIC, record_shapes=1)
    profile = trace.with_name("system_profile.json")
    write_system_profile(profile, [process], SYNTHETIC, hbm_bytes=HBM_BYTES)
    device = trace.with_name(f"{HOST}_pid_{PID}_nc_0_session_1.json")
    lines = (f"{json.dumps(key)}: {_rows(value)}" for key, value in device_profile(process).items())
    device.write_bytes(("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return [trace, profile, device]


def _rows(value: Any) -> str:
    """JSON with one row per line, so that two versions of a file can be compared."""
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(json.dumps(row) for row in value) + "\n]"


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    for path in make(Path(sys.argv[1]) if len(sys.argv) > 1 else here):
        sys.stdout.write(f"{path}\n")
