"""Hardware events at times of the core's own counter, and the sync points that place them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import neuron_tb
from neuron_tb.converters.model import Role, Trace
from neuron_tb.converters.readers.neuron.device_clock import METHOD
from tests.makers import BASE_NS
from tests.truth import Rank, Shape, make, write

HARDWARE = ("nc_exec_running", "cc_running")


def counter(physical: int, true_ns: int, drift_ppm: float) -> int:
    """The counter of a physical core, which began at a time of its own."""
    since = true_ns - BASE_NS
    return 77_000_000_000 + physical * 1_000_003 + since + round(since * drift_ppm / 1e6)


def raw(
    folder: Path,
    ranks: list[Rank],
    drift_ppm: float = 0.0,
    points: bool = True,
    nested: bool = False,
) -> Path:
    """The captures with hardware events as the device noted them, and a sync point after each."""
    write(folder, ranks)
    for path in sorted(folder.rglob("system_profile.json")):
        document = json.loads(path.read_text())
        rows: list[dict[str, Any]] = []
        for row in document["trace_event"]:
            rows.append(row)
            if row["name"] not in HARDWARE:
                continue
            physical, begin = row["device_core_idx"], row["timestamp"]
            done = begin + row["duration"]
            row["timestamp"] = counter(physical, begin, drift_ppm)
            row["duration"] = counter(physical, done, drift_ppm) - row["timestamp"]
            noted = done + 900
            times = {
                "cpu_timestamp_ns": noted,
                "nc_timestamp_ns": str(counter(physical, noted, drift_ppm)),
            }
            place = {k: row[k] for k in ("nc_idx", "device_core_idx", "instance_id", "process_id")}
            mark = {"name": "timestamp_sync_point", "timestamp": noted, "duration": 0}
            extra = {"extra_attributes": times} if nested else times
            rows += [place | mark | extra] if points else []
        path.write_text(json.dumps({"trace_event": rows}))
    return folder


def starts(trace: Trace) -> list[int]:
    return sorted(trace.slices.start_ns[trace.roles(Role.KERNEL)].tolist())


@pytest.mark.parametrize("nested", [False, True], ids=["plain", "nested"])
@pytest.mark.parametrize("drift_ppm", [0.0, 50.0, -50.0])
def test_events_stand_at_the_hosts_times(drift_ppm: float, nested: bool, tmp_path: Path) -> None:
    ranks = make(4, Shape(ranks=2, cores=2, steps=4))
    trace = neuron_tb.load(raw(tmp_path, ranks, drift_ppm, nested=nested))
    assert trace.findings.of_kind("device_clock") > 0
    assert not trace.findings.of_kind("time_out_of_range")
    assert not trace.findings.of_kind("clocks_unrelated")
    found = [one for one in trace.alignments if one.method == METHOD]
    assert len(found) == 2 * 4  # four physical cores of each rank
    bound = max(one.bound_ns or 0 for one in found)
    assert bound < 1_000
    true = sorted(row[1] for rank in ranks for one in rank.ran for row in one.rows)
    for one, other in zip(starts(trace), true, strict=True):
        assert abs(one - other) <= bound
    if not drift_ppm:
        assert starts(trace) == true
    for one in found:
        assert abs(one.drift_ppm + drift_ppm) < 1


def test_operators_are_found_as_if_the_times_had_been_right(tmp_path: Path) -> None:
    ranks = make(5, Shape(cores=2))
    expected = neuron_tb.load(write(tmp_path / "right", ranks))
    trace = neuron_tb.load(raw(tmp_path / "raw", ranks))
    assert trace.executions.start_ns.tolist() == expected.executions.start_ns.tolist()
    assert trace.executions.duration_ns.tolist() == expected.executions.duration_ns.tolist()
    names = [[t.strings[n] for n in t.executions.name] for t in (trace, expected)]
    assert names[0] == names[1]


def test_times_that_are_the_hosts_already_stay(tmp_path: Path) -> None:
    """Explorer's output: sync points are there, and events have been through them."""
    ranks = make(5, Shape())
    for rank in ranks:
        for one in list(rank.ran):
            physical, _, end = one.rows[0]
            row = {"name": "timestamp_sync_point", "timestamp": end + 900, "duration": 0}
            times = {"cpu_timestamp_ns": end + 900, "nc_timestamp_ns": counter(physical, end, 0)}
            rank.profile.append(row | times | {"nc_idx": one.core, "device_core_idx": physical})
    trace = neuron_tb.load(write(tmp_path, ranks))
    assert not trace.findings.of_kind("device_clock")
    assert starts(trace) == sorted(row[1] for one in ranks[0].ran for row in one.rows)


def test_without_sync_points_they_are_left_out_and_counted(tmp_path: Path) -> None:
    trace = neuron_tb.load(raw(tmp_path, make(5, Shape()), points=False))
    assert not trace.findings.of_kind("device_clock")
    lost = trace.findings.of_kind("time_out_of_range") + trace.findings.of_kind("clocks_unrelated")
    assert lost > 0


def test_the_bound_covers_a_clock_that_wanders(tmp_path: Path) -> None:
    """Points 20 us apart by chance: the bound says that the line between them is not certain."""
    ranks = make(6, Shape(steps=5))
    draw = random.Random(1)
    raw(tmp_path, ranks)
    (path,) = tmp_path.rglob("system_profile.json")
    document = json.loads(path.read_text())
    for row in document["trace_event"]:
        if row["name"] == "timestamp_sync_point":
            row["cpu_timestamp_ns"] += draw.randrange(20_000)
    path.write_text(json.dumps(document))
    trace = neuron_tb.load(tmp_path)
    bound = max(one.bound_ns or 0 for one in trace.alignments if one.method == METHOD)
    assert 5_000 < bound < 50_000
