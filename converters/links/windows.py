"""Host windows, and device events of a framework, that a measurement takes the place of."""

from __future__ import annotations

import numpy as np

from neuron_tb.converters.model import NONE, Executions, Source, Trace

_EXECUTION = "nc_exec_running"


def replace_windows(trace: Trace, executions: Executions) -> None:
    """A window whose operator has measured executions gives way to them, in order.

    So do device events of the framework trace where a system profile has the NeuronCore's
    own intervals of the same process: the same work must not count twice.
    """
    slices = trace.slices
    measured = executions.source == Source.MEASURED
    named = trace.strings.index(_EXECUTION) if _EXECUTION in trace.strings else NONE
    from_profile = measured & (slices.name[executions.slice] == named)
    process = trace.slice_process[executions.slice]
    doubled = measured & ~from_profile & np.isin(process, process[from_profile])
    better = np.where(np.isin(process, process[from_profile]), from_profile, measured)
    known = executions.operator != NONE
    m = np.flatnonzero(better & known)
    w = np.flatnonzero((~measured | (doubled & ~executions.transfer)) & known)
    if not len(m) or not len(w):
        return
    m = m[np.argsort(executions.operator[m], kind="stable")]
    w = w[np.argsort(executions.operator[w], kind="stable")]
    rank = np.arange(len(w)) - np.searchsorted(executions.operator[w], executions.operator[w])
    first = np.searchsorted(executions.operator[m], executions.operator[w])
    last = np.searchsorted(executions.operator[m], executions.operator[w], side="right") - 1
    found = first + rank <= last  # a measurement stands for one window
    executions.replaced_by[w[found]] = m[(first + rank)[found]]
