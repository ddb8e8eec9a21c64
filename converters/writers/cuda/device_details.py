"""Rows of device profiles, which formats in CUDA's words have no place for."""

from __future__ import annotations

import numpy as np

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import Trace


def without_device_profiles(trace: Trace) -> tuple[Trace, Findings]:
    """The trace without the rows of device profiles, and a finding that counts them."""
    findings = Findings()
    detail = np.array([d.detail for d in trace.devices] + [False], np.bool_)
    if not detail.any():
        return trace, findings
    on_track = detail[trace.track_column("device")]
    slices, instants, counters = (
        on_track[table.track] for table in (trace.slices, trace.instants, trace.counters)
    )
    findings.add(
        "engine_rows_left_out",
        "rows and samples of device profiles were left out: the format has no place for engines "
        "and queues inside an execution",
        sum(int(np.count_nonzero(mask)) for mask in (slices, instants, counters)),
    )
    memory = np.ones(len(trace.memory), np.bool_)
    return trace.take(~slices, ~instants, ~counters, memory), findings
