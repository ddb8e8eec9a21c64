"""Trace handlers: torch's names, further formats made by a child process, ranks."""

from __future__ import annotations

import re

from tests.profiler.running import on_neuron


def test_by_default_the_handler_writes_what_torchs_writes(tmp_path):
    files = on_neuron("scenarios.py", "handler", "", place=tmp_path, neuron_tb="1").result["files"]
    trace, manifest = sorted(files, key=lambda name: "neuron.json" in name)
    assert re.fullmatch(r"[\w-]+_\d+\.\d+\.pt\.trace\.json", trace)
    assert manifest == trace.removesuffix(".json") + ".neuron.json"


def test_ranks_of_a_run_write_into_one_run_under_names_of_their_own(tmp_path):
    files = set()
    for rank in ("0", "1"):
        ran = on_neuron(
            "scenarios.py",
            "handler",
            "torch-tb,xprof,perfetto",
            place=tmp_path,
            neuron_tb="1",
            env={"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "NEURON_TB_RUN": "night"},
        )
        files = set(ran.result["files"])
        assert "not converted" not in ran.err
    run = "night_steps1-2"
    xprof = {f for f in files if f.endswith(".xplane.pb")}
    perfetto = {f for f in files if f.endswith(".pftrace")}
    torch_tb = {f for f in files if f.startswith(f"{run}/") and ".pt.trace.json" in f}
    assert {re.sub(r"[^/]+(?=-rank)", "HOST", f) for f in xprof} == {
        f"plugins/profile/{run}/HOST-rank{n}.xplane.pb" for n in (0, 1)
    }
    assert perfetto == {f"perfetto/{run}-rank{n}.pftrace" for n in (0, 1)}
    assert len(torch_tb) == 2
    assert not [f for f in files if "/" not in f and f.endswith(".pt.trace.json")]


def test_a_conversion_that_fails_costs_one_line(tmp_path):
    ran = on_neuron(
        "scenarios.py", "handler", "perfetto", "/bin/false", place=tmp_path, neuron_tb="1"
    )
    assert any(f.endswith(".pt.trace.json") for f in ran.result["files"])
    assert "was recorded, but not converted: exit code 1" in ran.err
