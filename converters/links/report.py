"""What could not be joined, as findings."""

from __future__ import annotations

import numpy as np

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import NONE, Executions, Role, Source, Steps, Trace


def report(trace: Trace, executions: Executions, steps: Steps) -> Findings:
    """What could not be joined, and what contradicts itself."""
    findings = Findings()
    counted = executions.counted
    has_operators = trace.roles(Role.OPERATOR).any()
    findings.add(
        "execution_without_operator",
        "executions could not be linked to an operator; their time has rows of its own",
        int(np.count_nonzero(counted & (executions.operator == NONE))) if has_operators else 0,
    )
    windows = counted & (executions.source == Source.WINDOW)
    process = trace.slice_process[executions.slice]
    beside = windows & np.isin(process, process[counted & ~windows])
    findings.add(
        "windows_beside_measurements",
        "executions have only a host window although others of their process were measured: "
        "tables count measured time alone, and totals are lower bounds",
        int(np.count_nonzero(beside)),
    )
    launched = executions.launch != NONE
    early = launched & (executions.start_ns < trace.slices.start_ns[executions.launch])
    findings.add(
        "execution_before_launch",
        "executions start before the call that issued them: the two clocks disagree; "
        "times are written as they are",
        int(np.count_nonzero(early & counted)),
    )
    if not steps.implicit:
        findings.add(
            "execution_outside_steps",
            "executions were launched outside every step; they belong to no step",
            int(np.count_nonzero(counted & (executions.step == NONE))),
        )
    elif len(steps):
        findings.add(
            "no_steps",
            f"no step is marked ({trace.step_annotation}N); the whole capture is one step "
            "called capture. Call profiler.step() in the loop, or name an annotation with "
            "--steps-from",
        )
    return findings
