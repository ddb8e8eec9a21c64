"""The steps of the profiled loop, and which of them an execution belongs to."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import NONE, Executions, Int32, Int64, Role, Steps, Trace


def find_steps(trace: Trace) -> Steps:
    """The steps that the trace's ``step_annotation`` marks; else one implicit step per process."""
    rows, numbers = _step_rows(trace)
    if not len(rows):
        return _implicit_steps(trace)
    slices = trace.slices
    process = trace.slice_process[rows]
    order = np.lexsort((slices.start_ns[rows], numbers, process))
    rows, numbers, process = rows[order], numbers[order], process[order]
    # The same step on two threads of one process is one step: the first annotation stands.
    repeated = (np.diff(process, prepend=NONE) == 0) & (np.diff(numbers, prepend=NONE) == 0)
    rows, numbers, process = rows[~repeated], numbers[~repeated], process[~repeated]
    order = np.lexsort((slices.start_ns[rows], process))
    rows, numbers, process = rows[order], numbers[order], process[order]
    return Steps(
        process, numbers, slices.start_ns[rows], slices.end_ns[rows], rows.astype(np.int32)
    )


def _step_rows(trace: Trace) -> tuple[NDArray[np.intp], Int64]:
    prefix = trace.step_annotation
    pattern = re.compile(
        re.escape(prefix.rstrip("#")) + (r"#(\d+)" if prefix.endswith("#") else r"(?:#(\d+))?")
    )
    number_of_name = np.full(len(trace.strings), NONE, np.int64)
    unnumbered = np.zeros(len(trace.strings), np.bool_)
    for index, text in enumerate(trace.strings):
        match = pattern.fullmatch(text)
        if match:
            unnumbered[index] = match[1] is None
            number_of_name[index] = int(match[1]) if match[1] and len(match[1]) < 19 else 0
    wanted = trace.roles(Role.ANNOTATION, Role.OPERATOR, Role.OTHER)
    rows = np.flatnonzero(wanted & (number_of_name[trace.slices.name] != NONE))
    numbers = number_of_name[trace.slices.name[rows]]
    if unnumbered.any():
        # Repetitions of one plain annotation are numbered in order of time, process by process.
        process = trace.slice_process[rows]
        order = np.lexsort((trace.slices.start_ns[rows], process))
        first = np.searchsorted(process[order], process[order])
        numbers[order] = np.arange(len(rows)) - first
    return rows, numbers


def _implicit_steps(trace: Trace) -> Steps:
    processes = np.unique(trace.slice_process).astype(np.int32)
    start = np.zeros(len(processes), np.int64)
    end = np.zeros(len(processes), np.int64)
    for position, process in enumerate(processes):
        mine = trace.slices.take(trace.slice_process == process)
        start[position], end[position] = mine.start_ns.min(), mine.end_ns.max()
    zeros = np.zeros(len(processes), np.int64)
    return Steps(processes, zeros, start, end, np.full(len(processes), NONE, np.int32))


def assign_steps(trace: Trace, executions: Executions, steps: Steps) -> None:
    """A step's device work is what was launched in it; unlaunched work goes by its start.

    Where the clock of a system profile differs from that of the trace, which has the steps, only
    the operator says the step.
    """
    start, process = trace.slices.start_ns, trace.slice_process[executions.slice]
    by_operator = step_at(steps, process, start[executions.operator])
    by_operator[executions.operator == NONE] = NONE
    cause = np.where(executions.launch != NONE, executions.launch, executions.slice)
    apart = np.array([p.clocks_apart for p in trace.processes] or [False], np.bool_)
    by_time = np.where(apart[process], NONE, step_at(steps, process, start[cause]))
    executions.step = np.where(by_operator != NONE, by_operator, by_time).astype(np.int32)


def step_at(steps: Steps, process: Int32, time_ns: Int64) -> Int32:
    """The step of a process that each time lies in, NONE outside of all; shape (times,)."""
    found = np.full(len(time_ns), NONE, np.int32)
    for number in np.unique(process):
        mine, own = np.flatnonzero(process == number), np.flatnonzero(steps.process == number)
        if not len(own):
            continue
        position = np.searchsorted(steps.start_ns[own], time_ns[mine], side="right") - 1
        step = own[np.maximum(position, 0)]
        inside = (position >= 0) & (time_ns[mine] <= steps.end_ns[step])
        found[mine] = np.where(inside, step, NONE)
    return found
