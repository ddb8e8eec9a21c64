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
from neuron_tb.profiler.patches import in_force

ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
PAIRS = 30
CYCLES = 1000
KERNELS, KERNEL_US = 40, 500
STEP_SECONDS = KERNELS * KERNEL_US / 1e6
STEPS = 3
"""Steps of one measurement; the quickest counts, for what disturbs a step only makes it longer."""
CONTROL_SECONDS = 0.0015


class Clock:
    """The least time of a step: of the wall, and of this thread on the processor."""

    def __init__(self):
        self.wall = self.processor = float("inf")

    def __enter__(self):
        self._begin = time.perf_counter(), time.thread_time()

    def __exit__(self, *error):
        wall, processor = self._begin
        self.wall = min(self.wall, time.perf_counter() - wall)
        self.processor = min(self.processor, time.thread_time() - processor)


def work_of_a_step(x):
    """20 ms of the device, in which the host sleeps once it has queued everything."""
    for _ in range(KERNELS):
        torch.relu(x)
    torch.neuron.synchronize()


def idle(x):
    clock = Clock()
    for _ in range(STEPS):
        with clock:
            work_of_a_step(x)
    return clock


def recording(x):
    """The active steps of a window, without its beginning and its end."""
    clock = Clock()
    plan = schedule(wait=0, warmup=1, active=STEPS + 1)
    with profile(activities=ACTIVITIES, schedule=plan) as recorded:
        recorded.step()
        for _ in range(STEPS):
            with clock:
                work_of_a_step(x)
                recorded.step()
    return clock


def slowed(x):
    """What a drop-in that costs ``CONTROL_SECONDS`` a step would be measured as."""
    clock = Clock()
    for _ in range(STEPS):
        with clock:
            work_of_a_step(x)
            end = time.perf_counter() + CONTROL_SECONDS * (in_force() is not None)
            while time.perf_counter() < end:
                pass
    return clock


def overhead():
    """Cost of the drop-in as a share of a step: 30 pairs, interleaved, with 95 % intervals.

    ``processor``: the thread's processor time that the drop-in adds, as if the device never hid
    any of it; it hardly depends on what else the machine does. ``wall``: what a user waits longer.
    """
    from neuron_tb.simulation.device import sim

    sim.configure(kernel_us=KERNEL_US, launch_us=0)
    x = torch.ones(8, 8, device="neuron")
    found = {}
    for measure in (idle, recording, slowed):
        shares = {"processor": [], "wall": []}
        for number in range(PAIRS + 2):
            clocks = {}
            for ours in (False, True) if number % 2 else (True, False):
                with neuron_tb.enabled(quiet=True) if ours else contextlib.nullcontext():
                    clocks[ours] = measure(x)
            if number >= 2:
                more = clocks[True].processor - clocks[False].processor
                shares["processor"].append(more / STEP_SECONDS)
                shares["wall"].append(clocks[True].wall / clocks[False].wall - 1)
        found[measure.__name__] = {kind: interval(values) for kind, values in shares.items()}
    return found


def interval(values):
    """The median of 30 with its 95 % interval: from the 10th to the 21st (binomial)."""
    values = sorted(values)
    low, median, high = values[9], (values[14] + values[15]) / 2, values[20]
    return {"low": low, "median": median, "high": high}


def memory(ours):
    """MB by which resident memory grows over 1,000 short profiles that are read and exported."""
    x = torch.ones(8, 8, device="neuron")
    grown = []
    with neuron_tb.enabled(quiet=True) if ours == "1" else contextlib.nullcontext():
        for number in range(CYCLES + 100):
            if number == 100:
                grown.append(resident())
            with profile(activities=ACTIVITIES) as recorded:
                torch.relu(x)
            recorded.key_averages()
            recorded.export_chrome_trace("trace.json")
        grown.append(resident())
    return (grown[1] - grown[0]) / 1e6


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])) + "\n")
