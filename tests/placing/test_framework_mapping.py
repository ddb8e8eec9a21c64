"""Mappings of operators to executions, as early TorchNeuron wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuron_tb.converters.load import load
from neuron_tb.converters.model import LinkKind, Trace
from tests.makers import HOST, PID, Event, execution, operator, system_row, write_json, write_kineto

WORKER = 9
"""The runtime's call is made on a thread of its own: containment in time says nothing."""


def numbered(name: str, us: float, number: int) -> Event:
    event = operator(name, us, 9)
    event["args"] = {"Sequence number": number}
    return event


def capture(tmp_path: Path, mapping: Any) -> Path:
    """Forward and backward of two operators, whose executions another thread queues later."""
    directory = tmp_path / f"{HOST}_pid_{PID}" / "1759300074000000000"
    events = [
        numbered("forward 1", 0, 11),
        numbered("forward 2", 10, 12),
        numbered("backward 2", 100, 12),
        numbered("backward 1", 110, 11),
    ]
    write_kineto(directory / "trace.json", events)
    rows = []
    for n, us in enumerate((15, 25, 105, 125)):
        sequence = 1 << 48 | n
        rows += [
            system_row("nrta_execute_schedule", us, 2, thread_id=WORKER, nrta_seq_id=sequence),
            execution(us + 5, 3 + n, n, nrta_seq_id=sequence),
        ]
    write_json(directory / "system_profile.json", {"trace_event": rows})
    (directory / "framework_mapping_1.json").write_text(
        mapping if isinstance(mapping, str) else json.dumps(mapping)
    )
    return directory


def entry(n: int, *numbers: int) -> dict[str, Any]:
    ids = [{"seq_nr": number, "th_id": 1, "stream_id": 0} for number in numbers]
    return {"nrta_seq_id": 1 << 48 | n, "framework_op_exec_ids": ids}


def joined(trace: Trace) -> dict[int, tuple[str, str]]:
    work = trace.executions
    return {
        int(length): (trace.strings[trace.slices.name[op]], LinkKind(kind).name)
        for length, op, kind in zip(
            work.duration_ns // 1000, work.operator, work.operator_link, strict=True
        )
        if op >= 0
    }


MAPPING = {"version": 1, "data": [entry(0, 11), entry(1, 12), entry(2, 12), entry(3, 11)]}


def test_a_mapping_joins_executions_with_the_operators_that_it_names(tmp_path: Path) -> None:
    trace = load(capture(tmp_path, MAPPING))
    assert joined(trace) == {
        3: ("forward 1", "FLOW"),
        4: ("forward 2", "FLOW"),
        5: ("backward 2", "FLOW"),
        6: ("backward 1", "FLOW"),
    }
    names = [trace.strings[kind] for kind in trace.flows.kind]
    assert names.count("framework_mapping") == 4


def test_several_operators_of_one_execution_all_have_an_arrow(tmp_path: Path) -> None:
    mapping = {"version": 1, "data": [entry(1, 11, 12)]}
    trace = load(capture(tmp_path, mapping))
    assert [trace.strings[kind] for kind in trace.flows.kind].count("framework_mapping") == 2
    assert list(joined(trace)) == [4]


def test_entries_that_name_nothing_here_are_passed_over(tmp_path: Path) -> None:
    mapping = {"version": 1, "data": [entry(77, 11), entry(0, 99), entry(0)]}
    assert joined(load(capture(tmp_path, mapping))) == {}


@pytest.mark.parametrize(
    ("mapping", "kind"),
    [
        ("{", "mapping_unreadable"),
        ({"version": 1}, "mapping_unreadable"),
        ({"version": 1, "data": [{"nrta_seq_id": "x"}]}, "mapping_unreadable"),
        ({**MAPPING, "version": 2}, "newer_version"),
    ],
)
def test_a_mapping_that_is_not_understood_is_named(tmp_path: Path, mapping: Any, kind: str) -> None:
    trace = load(capture(tmp_path, mapping))
    assert trace.findings.of_kind(kind) == 1
    assert len(trace.executions) == 4
