"""Made-up captures of any size in the shapes that matter; the same bytes for the same seed.

python -m benchmarks.generate kineto trace.json --events 1000000
python -m benchmarks.generate ranks captures --ranks 256 --events 100000
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

import click

SEED = 0
"""The seed of the measured files."""

BASE_NS = 1_759_300_074_000_000_000
"""The base time of all traces, nanoseconds since the Unix epoch."""

HOST = "i-0synthetic0000009"

_START_US = 7_699_926.0
_FIRST_PID = 5012
_ROWS_AT_ONCE = 20_000
_OPERATORS_PER_STEP = 2_000
_OPERATORS = (
    ("aten::mul", "[[4, 512], [4, 512]]", '["c10::BFloat16", "c10::BFloat16"]', 20),
    ("aten::add", "[[4, 512], [4, 512], []]", '["c10::BFloat16", "c10::BFloat16", "Scalar"]', 18),
    ("aten::mm", "[[4, 512], [512, 2048]]", '["c10::BFloat16", "c10::BFloat16"]', 90),
    ("aten::addmm", "[[2048], [4, 512], [512, 2048]]", '["c10::BFloat16", "c10::BFloat16"]', 95),
    ("aten::relu", "[[4, 2048]]", '["c10::BFloat16"]', 12),
    ("aten::_fused_adamw_", "[[], [], []]", '["TensorList", "TensorList", "TensorList"]', 240),
    ("aten::copy_", "[[4, 512], [4, 512], []]", '["c10::BFloat16", "float", "Scalar"]', 25),
    ("aten::native_layer_norm", "[[4, 512], [], [512]]", '["c10::BFloat16", "ScalarList"]', 40),
)
_OPERATOR = """  {
    "ph": "X", "cat": "cpu_op", "name": "%s", "pid": %d, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d,"Record function id": 0, "Input type": %s, "Input Dims": %s, "Ev Idx": %d
    }
  },
"""
_CALL = """  {
    "ph": "X", "cat": "privateuse1_runtime", "name": "nrta_execute_schedule", "pid": %d, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d, "correlation": %d
    }
  },
"""
_WINDOW = """  {
    "ph": "X", "cat": "privateuse1_driver", "name": "%s", "pid": %d, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d, "device": %d, "nrt_sequence_id": %d, "neff_cache_key": "%s_%08x"
    }
  },
"""
_STEP = """  {
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#%d", "pid": %d, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d,"Record function id": 0, "Ev Idx": %d
    }
  },
"""


def kineto(path: Path, events: int, seed: int = SEED, rank: int = 0, ranks: int = 1) -> Path:
    """Write a ``trace.json`` of about this many events as TorchNeuron's profiler does.

    Every operator has three stages, joined by ``External id``: the operator and the call into
    the runtime on the host, and the window of its execution. About 250 bytes an event. A path
    that ends in ``.gz`` is compressed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {
        "schemaVersion": 1,
        "synthetic": "made up by benchmarks/generate.py; not a measurement",
        "deviceProperties": [],
        "distributedInfo": {"backend": "neuron", "rank": rank, "world_size": ranks},
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
    }
    with gzip.open(path, "wb", 6) if path.suffix == ".gz" else path.open("wb") as file:
        file.write(json.dumps(head)[:-1].encode() + b', "traceEvents": [\n')
        for block in _blocks(events, random.Random(f"{seed}/{rank}"), _FIRST_PID + rank):
            file.write(block.encode())
        name = '  {"ph": "M", "name": "process_name", "pid": %d, "tid": 0, "ts": %.3f, '
        name += '"args": {"name": "python"}}\n'
        file.write((name % (_FIRST_PID + rank, _START_US)).encode())
        file.write(b'], "traceName": "trace.json"}\n')
    return path


def _blocks(events: int, chance: random.Random, pid: int) -> Iterator[str]:
    rows: list[str] = []
    now = _START_US
    free = now
    for number in range(1, max(events // 3, 1) + 1):
        if number % _OPERATORS_PER_STEP == 1:
            step = number // _OPERATORS_PER_STEP
            length = _OPERATORS_PER_STEP * 48.0
            now = max(now, _START_US + step * (length + 100))
            rows.append(_STEP % (step, pid, pid, now, length, number, number))
        name, sizes, types, device_us = _OPERATORS[chance.randrange(len(_OPERATORS))]
        length = 22 + chance.randrange(20_000) / 1000
        rows.append(_OPERATOR % (name, pid, pid, now, length, number, types, sizes, number))
        rows.append(_CALL % (pid, pid, now + 8, length - 12, number, number))
        enqueued = now + 10
        free = max(free, enqueued) + device_us * (0.9 + chance.randrange(200) / 1000) / 4
        key = (name[6:], 0, 0, enqueued, free - enqueued, number, 0, 1 << 48 | number)
        rows.append(_WINDOW % (*key, name[6:], chance.randrange(64)))
        now += length + 1
        if len(rows) >= _ROWS_AT_ONCE:
            yield "".join(rows)
            rows.clear()
    yield "".join(rows)


_Row = tuple[str, int, int, int, int, int]
"""(name, start in ns, length in ns, physical core or -1, sequence id, execution id)."""


def _system_rows(events: int, chance: random.Random) -> Iterator[_Row]:
    """Four rows per execution: call, preparation, and one row per physical core."""
    now = BASE_NS + round(_START_US * 1000)
    free = now
    for number in range(1, max(events // 4, 1) + 1):
        sequence = 1 << 48 | number
        device_ns = round(_OPERATORS[chance.randrange(len(_OPERATORS))][3] * 250)
        yield "nrta_execute_schedule", now, 4_200, -1, sequence, -1
        yield "kbl_exec_pre", now + 6_000, 7_467, -1, sequence, number
        start = max(free, now + 16_000)
        free = start + device_ns + chance.randrange(2000)
        yield "nc_exec_running", start, free - start, 0, sequence, number
        yield "nc_exec_running", start + 40, free - start - 40, 1, sequence, number
        now += 15_000 + chance.randrange(20_000)


def system_json(path: Path, events: int, seed: int = SEED) -> Path:
    """Write a ``system_profile.json`` of this many rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    row_of = (
        '{"name": "%s", "timestamp": %d, "duration": %d, "timestamp_unit": "ns", '
        '"trace_event_source": "%s", "instance_id": "%s", "process_id": "%d", "thread_id": %d, '
        '"worker_gid": 0, "lnc_idx": 0, "nc_idx": 0, "id": %d%s}'
    )
    with path.open("w") as file:
        file.write('{"synthetic": "made up by benchmarks/generate.py", "trace_event": [\n')
        for number, row in enumerate(_system_rows(events, random.Random(seed))):
            name, start, length, core, sequence, execution = row
            source = "neuron_hw" if core >= 0 else "neuron_rt"
            flows = [str(sequence), str(execution)] if execution >= 0 else [str(sequence)]
            more = f', "flow_id": {json.dumps(flows)}'
            more += f', "exec_id": {execution}' if execution >= 0 else ""
            more += f', "device_core_idx": {core}' if core >= 0 else f', "nrta_seq_id": {sequence}'
            place = (source, HOST, _FIRST_PID, _FIRST_PID, number, more)
            file.write((",\n" if number else "") + row_of % (name, start, length, *place))
        file.write("\n]}\n")
    return path


def system_parquet(directory: Path, events: int, seed: int = SEED) -> Path:
    """Write a directory with the table ``SystemProfileEvents.parquet`` of this many rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    directory.mkdir(parents=True, exist_ok=True)
    rows = list(_system_rows(events, random.Random(seed)))
    names, starts, lengths, cores, sequences, executions = zip(*rows, strict=True)
    n = len(rows)
    flows = [
        [str(s), str(e)] if e >= 0 else [str(s)] for s, e in zip(sequences, executions, strict=True)
    ]
    extra = [
        f'{{"model_name": "neff_{s % 16:016x}_vnc_0.neff", "exec_id": {e}}}' if e >= 0 else None
        for s, e in zip(sequences, executions, strict=True)
    ]
    table = pa.table(
        {
            "id": pa.array(range(n), pa.int64()),
            "name": pa.array(names, pa.large_string()),
            "start_ts": pa.array(starts, pa.int64()),
            "end_ts": pa.array([s + d for s, d in zip(starts, lengths, strict=True)], pa.int64()),
            "duration_ns": pa.array(lengths, pa.int64()),
            "trace_event_source": pa.array(
                ["neuron_hw" if c >= 0 else "neuron_rt" for c in cores], pa.large_string()
            ),
            "instance_id": pa.array([HOST] * n, pa.large_string()),
            "process_id": pa.array([_FIRST_PID] * n, pa.int64()),
            "thread_id": pa.array([_FIRST_PID] * n, pa.int64()),
            "nc_idx": pa.array([0] * n, pa.int64()),
            "pcore_idx": pa.array([c if c >= 0 else None for c in cores], pa.int64()),
            "worker_gid": pa.array([0] * n, pa.int64()),
            "flow_id": pa.array(flows, pa.list_(pa.string())),
            "extra_attributes_json": pa.array(extra, pa.large_string()),
        }
    )
    pq.write_table(table, directory / "SystemProfileEvents.parquet", row_group_size=100_000)
    return directory


def many_ranks(directory: Path, ranks: int, events: int, seed: int = SEED) -> Path:
    """Write a capture per rank, in the layout of a shared directory: eight ranks an instance."""
    for rank in range(ranks):
        place = directory / f"i-0synthetic{rank // 8:07d}_pid_{_FIRST_PID + rank}"
        kineto(place / str(BASE_NS + rank) / "trace.json", events, seed, rank, ranks)
    return directory


@click.command()
@click.argument("shape", type=click.Choice(["kineto", "system-json", "system-parquet", "ranks"]))
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--events", default=1_000_000, show_default=True, help="Events (of each rank).")
@click.option("--ranks", default=2, show_default=True, help="Ranks, for the shape ranks.")
@click.option("--seed", default=SEED, show_default=True)
def main(shape: str, path: Path, events: int, ranks: int, seed: int) -> None:
    """Write a made-up capture."""
    if shape == "ranks":
        many_ranks(path, ranks, events, seed)
    else:
        write = {"kineto": kineto, "system-json": system_json, "system-parquet": system_parquet}
        write[shape](path, events, seed)


if __name__ == "__main__":
    main()
