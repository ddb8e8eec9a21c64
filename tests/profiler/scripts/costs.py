"""What the drop-in costs: ``costs.py overhead`` and ``costs.py memory``; prints JSON."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

import neuron_tb

ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
PAIRS = 30
CYCLES = 1000


def idle(x):
    begin = time.perf_counter()
    work_of_a_step(x)
    return time.perf_counter() - begin


def work_of_a_step(x):
    for _ in range(400):
        torch.relu(x)
    torch.neuron.synchronize()


def recording(x):
    """The time of the active steps."""
    with profile(activities=ACTIVITIES, schedule=schedule(wait=0, warmup=1, active=4)) as recorded:
        recorded.step()
        begin = time.perf_counter()
        for _ in range(3):
            work_of_a_step(x)
            recorded.step()
        return time.perf_counter() - begin


def overhead():
    from tests.neuron_sim import sim

    sim.configure(kernel_us=50)
    x = torch.ones(8, 8, device="neuron")
    found = {}
    for name, measure in (("idle", idle), ("recording", recording)):
        ratios = []
        for number in range(PAIRS + 2):
            times = {}
            for ours in (False, True) if number % 2 else (True, False):
                with neuron_tb.enabled(quiet=True) if ours else contextlib.nullcontext():
                    times[ours] = measure(x)
            ratios.append(times[True] / times[False] - 1)
        ratios = sorted(ratios[2:])
        # The 10th and 21st of 30 enclose the median with 95 % confidence (binomial).
        found[name] = {"low": ratios[9], "median": ratios[PAIRS // 2], "high": ratios[20]}
    return found


def memory(ours):
    x = torch.ones(8, 8, device="neuron")
    grown = []
    with neuron_tb.enabled(quiet=True) if ours == "1" else contextlib.nullcontext():
        for number in range(CYCLES + 100):
            if number == 100:
                grown.append(resident())
            with profile(activities=ACTIVITIES):
                torch.relu(x)
        grown.append(resident())
    return (grown[1] - grown[0]) / 1e6


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])) + "\n")
