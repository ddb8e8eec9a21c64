"""Rows of another era, in the formats of Neuron's own tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neuron_tb.converters.convert import TARGETS, convert
from neuron_tb.converters.load import load
from tests.makers import BASE_NS, execution, write_json

_WILD: list[dict[str, Any]] = [
    {"timestamp": 2**63 - 1},
    {"timestamp": 2**62},
    {"timestamp": 5},
    {"duration": 2**63 - 1},
    {"duration": 2**62},
    {"duration": 10**16},
]


@pytest.mark.parametrize("wild", _WILD)
def test_one_wild_row_costs_no_other(tmp_path: Path, wild: dict[str, Any]) -> None:
    rows = [execution(number * 10, 5) for number in range(20)]
    rows.append({**rows[-1], "name": "wild", **wild})
    path = write_json(tmp_path / "system_profile.json", {"trace_events": rows})
    trace = load(path)
    assert len(trace.slices) == 20
    assert trace.time_range()[0] >= BASE_NS
    assert trace.time_range()[1] < BASE_NS + 10**9
    kinds = ("time_out_of_range", "duration_out_of_range")
    assert sum(map(trace.findings.of_kind, kinds)) == 1
    convert(path, out=tmp_path / "out", to=list(TARGETS))
    assert list((tmp_path / "out").rglob("*.xplane.pb"))
