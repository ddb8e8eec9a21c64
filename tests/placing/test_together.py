"""Putting framework traces and system profiles into one trace."""

from __future__ import annotations

from pathlib import Path

from neuron_tb.converters.placing.together import put_together
from neuron_tb.converters.readers import read_file
from tests.makers import PID, kernel, launch, operator, write_kineto


def test_arrows_of_a_profile_survive_that_its_framework_rows_are_left_out(tmp_path: Path) -> None:
    work = [operator("aten::mm", 0, 50, 1), launch(10, 5, 3), kernel("k", 30, 9, 3)]
    ends = [
        {"ph": "s", "id": 3, "cat": "ac2g", "name": "ac2g", "pid": PID, "tid": PID, "ts": 10},
        {"ph": "f", "id": 3, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 30}
        | {"bp": "e"},
    ]
    framework = read_file(write_kineto(tmp_path / "a.json", [operator("aten::mm", 0, 50, 1)]))
    profile = read_file(write_kineto(tmp_path / "b.json", [*work, *ends]))
    assert len(profile.flows) == 1
    trace = put_together("both", [framework], [(profile, True)])
    assert trace.findings.of_kind("framework_rows_repeated") == 1
    ((source,), (target,)) = trace.flows.source.tolist(), trace.flows.target.tolist()
    names = [trace.strings[n] for n in trace.slices.name.tolist()]
    assert (names[source], names[target]) == ("cudaLaunchKernel", "k")
