"""Operator → runtime call → device execution.

Kinds of links, tried in this order and recorded with every execution: ``External id``;
correlation and sequence numbers; containment of the runtime call in time inside an operator of
the same thread; and the n-th execution of a core after the n-th execute call of its process,
where the counts match. Identifiers are compared within one process only.

One module per question: which device rows are one execution (``executions``), which call issued
it (``launches``), which operator that was for (``operators``), which host windows it replaces
(``windows``), which step it belongs to (``steps``), and what is missing (``report``).
``identifiers`` looks rows up by number, ``overlaps`` reports work that cannot all be busy time.
"""

from __future__ import annotations

from neuron_tb.converters.links.executions import executions_of
from neuron_tb.converters.links.launches import EXECUTE_CALLS, find_launches
from neuron_tb.converters.links.operators import find_operators
from neuron_tb.converters.links.report import report
from neuron_tb.converters.links.steps import assign_steps, find_steps
from neuron_tb.converters.links.windows import replace_windows
from neuron_tb.converters.model import Links, Trace

__all__ = ["EXECUTE_CALLS", "find_steps", "link"]


def link(trace: Trace) -> Trace:
    """Join every execution of the trace with its runtime call, operator and step.

    Sets the trace's ``links`` and returns it.
    """
    steps = find_steps(trace)
    executions, of_slice = executions_of(trace)
    if len(executions):
        sequence = find_launches(trace, executions)
        find_operators(trace, executions, sequence)
        replace_windows(trace, executions)
        assign_steps(trace, executions, steps)
    trace.links = Links(executions, of_slice, steps, report(trace, executions, steps))
    return trace
