"""A stand-in for ``neuron-explorer`` on the PATH, and raw captures that it reads."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from neuron_tb.simulation.device import sim
from tests.makers import BASE_NS, HOST, PID

_STAND_IN = sim.BIN / "neuron-explorer"


def install(monkeypatch: pytest.MonkeyPatch, place: Path, **switches: str) -> Path:
    """Put the stand-in first on the PATH; returns the file that lists the calls of it."""
    program = place / "bin" / "neuron-explorer"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!{sys.executable}\nimport runpy\nrunpy.run_path({str(_STAND_IN)!r}, run_name='__main__')"
    )
    program.chmod(0o755)
    log = place / "calls.jsonl"
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    monkeypatch.setenv("NEURON_SIM_EXPLORER_LOG", str(log))
    monkeypatch.delenv("NEURON_TB_EXPLORER", raising=False)
    for name, value in switches.items():
        monkeypatch.setenv(f"NEURON_SIM_EXPLORER_{name}", value)
    return log


def calls(log: Path) -> list[list[str]]:
    """The arguments of each call of the stand-in so far, but for those that ask for help."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def write_raw_capture(directory: Path, pid: int = PID, executions: int = 2) -> Path:
    """``ntrace.pb`` and ``trace_info.pb`` in the simulator's own form, which is JSON."""
    directory.mkdir(parents=True, exist_ok=True)
    info = {
        "instance_id": HOST,
        "process_id": pid,
        "physical_cores_per_logical_core": 1,
        "clock_zero_ns": BASE_NS,
        "dropped_events": 0,
        "first_ts_ns": BASE_NS,
        "last_ts_ns": BASE_NS + 1_000_000,
    }
    rows = [
        {
            "kind": "execute",
            "nc_idx": 0,
            "thread_id": pid,
            "call_start_ns": BASE_NS + 20_000 * n,
            "call_end_ns": BASE_NS + 20_000 * n + 2_000,
            "nrta_seq_id": 1 << 48 | n + 1,
            "exec_id": n + 1,
            "device_start_ns": BASE_NS + 20_000 * n + 5_000,
            "device_end_ns": BASE_NS + 20_000 * n + 15_000,
            "neff_cache_key": "key",
            "neff": "model",
        }
        for n in range(executions)
    ]
    for name, lines in (("trace_info.pb", [info]), ("ntrace.pb", rows)):
        text = "\n".join(["simulated", *map(json.dumps, lines)])
        (directory / name).write_text(text + "\n")
    return directory
