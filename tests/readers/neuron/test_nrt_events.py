"""Reading the Neuron runtime's event dump."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neuron_tb.converters.load import load
from neuron_tb.converters.model import Trace
from neuron_tb.converters.readers import read_file
from tests.makers import BASE_NS, write_json


def event(kind: str, phase: str, us: float, tracking: int | None, **more: Any) -> dict[str, Any]:
    return {
        "event_type": kind,
        "phase": phase,
        "nc_idx": 0,
        "tracking_id": tracking,
        "thread_id": 7,
        "timestamp_ns": BASE_NS + round(us * 1000),
        "data": more,
    }


def dump(tmp_path: Path, *events: Any, version: int = 2) -> Trace:
    document = {"events": list(events), "data_version": version}
    return load(write_json(tmp_path / "events.json", document))


def lengths(trace: Trace) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, duration in zip(trace.slices.name, trace.slices.duration_ns, strict=True):
        found.setdefault(trace.strings[name], []).append(int(duration))
    return found


def test_documented_shapes_pair_and_the_rest_is_counted(cases: Path) -> None:
    trace = load(cases / "neuron" / "nrt_events.json")
    assert lengths(trace) == {"nrt_execute": [500_000], "nc_exec_running": [250_000]}
    assert trace.executions.duration_ns.tolist() == [250_000]
    counted = {f.kind: f.count for f in trace.findings}
    assert counted["start_without_stop"] == 1
    assert counted["stop_without_start"] == 1
    assert counted["time_out_of_range"] == 1


def test_hardware_length_is_the_device_clocks_and_its_place_the_hosts(tmp_path: Path) -> None:
    trace = dump(
        tmp_path,
        event("nc_exec_running", "start", 100, 1, nc_timestamp_ns=77_000_000, exec_id=3),
        event("nc_exec_running", "stop", 400, 1, nc_timestamp_ns=77_250_000, exec_id=3),
    )
    assert trace.slices.start_ns.tolist() == [BASE_NS + 100_000]
    assert trace.slices.duration_ns.tolist() == [250_000]


@pytest.mark.parametrize("without", ["start", "stop"])
def test_a_device_time_on_one_end_only_is_not_mixed_with_the_other_clock(
    tmp_path: Path, without: str
) -> None:
    ends = [
        event("nc_exec_running", "start", 100, 1, nc_timestamp_ns=77_000_000),
        event("nc_exec_running", "stop", 400, 1, nc_timestamp_ns=77_250_000),
    ]
    for end in ends:
        if end["phase"] == without:
            end["data"] = {}
    assert dump(tmp_path, *ends).slices.duration_ns.tolist() == [300_000]


def test_equal_tracking_ids_of_cores_and_kinds_do_not_mix(tmp_path: Path) -> None:
    events = [
        event("nrt_execute", "start", 0, 1),
        {**event("nrt_execute", "start", 1, 1), "nc_idx": 1},
        event("kbl_exec_pre", "start", 2, 1),
        event("kbl_exec_pre", "stop", 3, 1),
        {**event("nrt_execute", "stop", 11, 1), "nc_idx": 1},
        event("nrt_execute", "stop", 20, 1),
    ]
    found = {name: sorted(ns) for name, ns in lengths(dump(tmp_path, *events)).items()}
    assert found == {"nrt_execute": [10_000, 20_000], "kbl_exec_pre": [1_000]}


def test_order_of_events_in_the_dump_does_not_matter(tmp_path: Path) -> None:
    events = [
        event("nrt_execute", phase, 10 * n + (5 if phase == "stop" else 0), n % 3)
        for n in range(9)
        for phase in ("start", "stop")
    ]
    one, other = dump(tmp_path, *events), dump(tmp_path, *events[::-1])
    assert sorted(one.slices.start_ns) == sorted(other.slices.start_ns)
    assert sorted(one.slices.duration_ns) == sorted(other.slices.duration_ns) == [5_000] * 9


def test_both_ends_stay_in_the_arguments(tmp_path: Path) -> None:
    trace = dump(
        tmp_path,
        event("nrt_tensor_read", "start", 0, 1, tensor_id=2**60, size=4),
        event("nrt_tensor_read", "stop", 2, 1),
    )
    assert trace.args(0)["start"]["data"] == {"tensor_id": 2**60, "size": 4}


def test_a_newer_version_is_read_and_named(tmp_path: Path) -> None:
    trace = dump(
        tmp_path,
        event("nrt_execute", "start", 0, 1),
        event("nrt_execute", "stop", 2, 1),
        version=3,
    )
    assert trace.findings.of_kind("newer_version") == 1
    assert len(trace.slices) == 1


# -- pairing against the rule, one event after the other ------------------------------------------

PHASES = st.sampled_from(["start", "stop", "stop", "instant", "start", None, "other"])


@st.composite
def few_keys(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Events of so few keys and times that all of them collide."""
    return [
        {
            **event(draw(st.sampled_from(["a", "b"])), "", draw(st.integers(1, 6)), None),
            "phase": draw(PHASES),
            "nc_idx": draw(st.sampled_from([0, 1, None])),
            "tracking_id": draw(st.sampled_from([1, 2, "2", None])),
        }
        for _ in range(draw(st.integers(1, 14)))
    ]


def paired_one_by_one(events: list[dict[str, Any]]) -> tuple[list[tuple[int, int]], list[int]]:
    """(start, length) of each pair and the time of every other event, nanoseconds."""
    waiting: dict[tuple[Any, ...], list[int]] = {}
    pairs, points = [], []
    for one in sorted(events, key=lambda e: e["timestamp_ns"]):
        tracking = None if one["tracking_id"] is None else int(one["tracking_id"])
        key = (one["nc_idx"], one["event_type"], tracking)
        time, first = one["timestamp_ns"], waiting.setdefault(key, [])
        if one["phase"] == "start":
            first.append(time)
        elif one["phase"] == "stop" and first:
            start = first.pop(0)
            pairs.append((start, time - start))
        else:
            points.append(time)
    return sorted(pairs), sorted(points + [time for times in waiting.values() for time in times])


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(events=few_keys())
def test_the_first_open_start_of_a_key_takes_the_next_stop(events: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_json(Path(folder, "events.json"), {"events": events, "data_version": 2})
        trace = read_file(path)
    pairs, points = paired_one_by_one(events)
    s = trace.slices
    assert sorted(zip(s.start_ns.tolist(), s.duration_ns.tolist(), strict=True)) == pairs
    assert sorted(trace.instants.time_ns.tolist()) == points
