"""Outputs made column by column against outputs made event by event.

Arguments that cannot be taken apart are decoded one by one; with a scanner that takes nothing
apart, that plain way makes the whole file. Both files must say the same of every event.
"""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuron_tb.converters.load import load
from neuron_tb.converters.model import Trace, ragged
from neuron_tb.converters.model.members import Members
from neuron_tb.converters.writers import Destination, edits
from neuron_tb.converters.writers.kineto import write as kineto
from neuron_tb.converters.writers.perfetto import (
    annotations as perfetto_annotations,
)
from neuron_tb.converters.writers.perfetto import (
    write as perfetto,
)
from neuron_tb.converters.writers.torch_tb import write as torch_tb
from tests.makers import PID, write_kineto

CASES = os.environ.get("NEURON_TB_CASES")
ODD: list[tuple[str, list[Any]]] = [
    ("External id", [1, "7", None, 2**70]),
    ("external id", [3]),
    ("stream", [0, "s", None]),
    ("source stream", [1]),
    ("correlation", [5, 1.5, "x", -3]),
    ("device", [0, 1, True]),
    ("source category", ["was there"]),
    ("text", ["plain", "é ü 漢", 'quote " back \\', "tab\t", "{brace}", "", "a:b", "x" * 300]),
    ("number", [0, -1, 2**63 - 1, -(2**63), 2**64, 1.5, -0.0, 1e300, 1e-7, 12345678901.25]),
    ("mixed", [1, 2.5, "three", None, True, [], {}]),
    ("list", [[], [1, 2], [[1], ["a", None]], ["", ""], [{"a": 1}]]),
    ("nested", [{"a": {"b": [1]}}, {}]),
    ("Call stack", ["a.py(1): f", 5, None]),
    ("Python module id", [1, None]),
    ("unique", list(range(10**6, 10**6 + 50))),
    ("unique text", [f"{n:x} of many" for n in range(500)]),
]


def odd_events(seed: int, count: int) -> list[dict[str, Any]]:
    """Three-stage work whose arguments have a few odd shapes, each many times."""
    rng = random.Random(seed)
    shapes = [rng.sample(ODD, rng.randint(0, 6)) for _ in range(6)]
    events = []
    for n in range(count):
        for cat, name, pid, start, length in (
            ("cpu_op", f"aten::op{n % 5}", PID, n * 100.25, 90),
            ("privateuse1_runtime", "nrta_execute_schedule", PID, n * 100.25 + 10, 20),
            ("privateuse1_driver", f"aten::op{n % 5}", 0, n * 100.25 + 35, 40),
            ("python_function", f"f{n % 3}.py(1): call", PID, n * 100.25 + 91, 5),
        ):
            args = {key: rng.choice(values) for key, values in rng.choice(shapes)}
            if rng.random() < 0.7:
                args["External id"] = n + 1
            event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": pid}
            events.append({**event, "ts": start, "dur": length, "args": args})
        memory = {"Device Type": rng.choice([0, 1, 20]), "Device Id": rng.choice([-1, 0, 3])}
        memory |= {"Bytes": 8, "Addr": 2**40 + n, "Total Allocated": n}
        point = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": PID}
        events.append({**point, "tid": PID, "ts": n * 100.25 + 1, "args": memory})
    return events


def all_texts(trace: Trace, folder: Path) -> dict[str, Any]:
    """What the JSON outputs and the Perfetto output of a trace say, by file."""
    destination = Destination(folder, "run", "trn2.48xlarge", True)
    for module in (kineto, torch_tb, perfetto):
        module.write(trace, destination)
    said: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.gz")):
        text = gzip.decompress(path.read_bytes()).decode()
        said[path.name] = json.loads(text, parse_int=str, parse_float=str)
        # One event stands on one line.
        _head, _, lines = text.partition('"traceEvents": [\n')
        for line in lines.removesuffix("\n]}\n").split(",\n"):
            json.loads(line)
    for path in folder.rglob("*.pftrace"):
        said[path.name] = perfetto_events(path)
    return said


def perfetto_events(path: Path) -> list[Any]:
    """Every event of a Perfetto file with its interned words put in."""
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    names: dict[tuple[int, str, int], str] = {}
    found: list[Any] = []
    for packet in messages.Trace.FromString(path.read_bytes()).packet:
        sequence = packet.trusted_packet_sequence_id
        for field, entries in packet.interned_data.ListFields():
            for entry in entries:
                key = sequence, field.name, entry.iid
                assert key not in names
                text = entry.str.decode() if hasattr(entry, "str") else entry.name
                names[key] = text
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        arguments = [annotation(a, sequence, names) for a in event.debug_annotations]
        categories = [names[sequence, "event_categories", iid] for iid in event.category_iids]
        name = names.get((sequence, "event_names", event.name_iid))
        track = event.type, event.track_uuid, name, categories, list(event.flow_ids)
        found.append((packet.timestamp, *track, event.double_counter_value, arguments))
    return found


def annotation(value: Any, sequence: int, names: dict[tuple[int, str, int], str]) -> Any:
    """(name, kind, value) of a debug annotation, with its words put in."""
    name = names.get((sequence, "debug_annotation_names", value.name_iid), value.name)
    kind = value.WhichOneof("value")
    if kind == "string_value_iid":
        text = names[sequence, "debug_annotation_string_values", value.string_value_iid]
        return name, "string_value", text
    if kind == "string_value":
        return name, kind, value.string_value
    if kind is not None:
        return name, kind, repr(getattr(value, kind))
    entries = [annotation(e, sequence, names) for e in value.dict_entries]
    return name, entries, [annotation(e, sequence, names) for e in value.array_values]


def take_nothing_apart(texts: bytes, lengths: np.ndarray) -> Members:
    none = np.empty(0, np.int64)
    return Members(texts + bytes(16), [], np.arange(len(lengths)), none, none, none)


def assert_same(source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = all_texts(load(source), folder / "columns")
    monkeypatch.setattr(edits, "members", take_nothing_apart)
    monkeypatch.setattr(perfetto_annotations, "members", take_nothing_apart)
    plain = all_texts(load(source), folder / "plain")
    monkeypatch.undo()
    assert list(columns) == list(plain)
    for name, said in plain.items():
        assert columns[name] == said, name


@pytest.mark.parametrize("seed", range(3))
def test_odd_arguments_are_the_same_both_ways(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_kineto(tmp_path / "trace.json", odd_events(seed, 120))
    assert_same(source, tmp_path, monkeypatch)


def test_chunks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_kineto(tmp_path / "trace.json", odd_events(7, 120))
    whole = all_texts(load(source), tmp_path / "whole")
    monkeypatch.setattr(ragged, "_ROWS_AT_ONCE", 37)
    parts = all_texts(load(source), tmp_path / "parts")
    assert list(parts) == list(whole)
    for name, said in whole.items():
        if isinstance(said, list):  # counters follow the memory events of their chunk
            said.sort(key=repr)
            parts[name].sort(key=repr)
        assert parts[name] == said, name


@pytest.mark.slow
@pytest.mark.skipif(CASES is None, reason="NEURON_TB_CASES names no folder")
@pytest.mark.parametrize("folder", ["neuron", "odd", "real"])
def test_shared_cases_are_the_same_both_ways(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_same(Path(str(CASES)) / folder, tmp_path, monkeypatch)


def test_without_the_fast_library_zlib_compresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_kineto(tmp_path / "trace.json", odd_events(1, 30))
    fast = all_texts(load(source), tmp_path / "fast")
    monkeypatch.setitem(__import__("sys").modules, "isal", None)
    assert all_texts(load(source), tmp_path / "zlib") == fast
