"""Execution → the runtime call that issued it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.links.identifiers import Finder
from neuron_tb.converters.model import (
    NONE,
    Bools,
    Executions,
    Int32,
    Int64,
    LinkKind,
    Role,
    Source,
    Trace,
    TrackKind,
)
from neuron_tb.converters.model.lanes import lay_out

EXECUTE_CALLS = ("nrta_execute_schedule", "nrt_execute")
"""The runtime's calls that each issue one execution."""


def find_launches(trace: Trace, executions: Executions) -> Int64:
    """Set every execution's ``launch``.

    The result is the sequence id of every execution, its own or that of a call which names the
    execution; NONE where there is none.
    """
    slices = trace.slices
    _link_arrows(trace, executions)
    calls = np.flatnonzero(trace.roles(Role.RUNTIME))
    sequence = slices.sequence_id[executions.slice]
    if not len(calls):
        return sequence
    process = trace.slice_process[executions.slice]
    by_id = Finder(trace.slice_process[calls], slices.start_ns[calls])
    preferred = np.isin(
        slices.name[calls],
        [trace.strings.index(c) for c in EXECUTE_CALLS if c in trace.strings],
    )

    def link_by(ids: Int64, wanted: Int64, kind: LinkKind, among: Bools) -> None:
        """Link executions without a call to one with the same id."""
        found = by_id.latest(ids, among & (ids != NONE), process, wanted, executions.end_ns)
        rows = np.where(found != NONE, calls[found], NONE).astype(np.int32)
        _set_launch(executions, rows, kind)

    everything = np.ones(len(calls), np.bool_)
    link_by(
        slices.correlation[calls],
        slices.correlation[executions.slice],
        LinkKind.CORRELATION,
        everything,
    )
    link_by(slices.sequence_id[calls], sequence, LinkKind.SEQUENCE_ID, preferred)
    # Calls that name an execution may carry the sequence number that the execution lacks.
    core = trace.track_column("core")[slices.track[calls]]
    exec_ids = slices.exec_id[calls]
    own_core = np.array([d.index for d in trace.devices], np.int32)[executions.device]
    named = by_id.scoped(core, own_core).latest(
        exec_ids, exec_ids != NONE, process, slices.exec_id[executions.slice], executions.end_ns
    )
    sequence = np.where(
        (named != NONE) & (sequence == NONE), slices.sequence_id[calls][named], sequence
    )
    link_by(slices.sequence_id[calls], sequence, LinkKind.EXEC_ID, preferred)
    outermost = _outermost_call(trace, calls)
    by_exec = np.where(named != NONE, outermost[named], NONE).astype(np.int32)
    _set_launch(executions, by_exec, LinkKind.EXEC_ID)
    link_by(slices.sequence_id[calls], sequence, LinkKind.SEQUENCE_ID, everything)
    external = by_id.latest(
        slices.external_id[calls],
        slices.external_id[calls] != NONE,
        process,
        slices.external_id[executions.slice],
        executions.end_ns,
    )
    by_external = np.where(external != NONE, outermost[external], NONE).astype(np.int32)
    _set_launch(executions, by_external, LinkKind.EXTERNAL_ID)
    _link_by_order(trace, executions, calls, preferred & (outermost == calls))
    return sequence


def _set_launch(executions: Executions, rows: Int32, kind: LinkKind) -> None:
    new = (executions.launch == NONE) & (rows != NONE)
    executions.launch[new] = rows[new]
    executions.launch_link[new] = kind


def _link_arrows(trace: Trace, executions: Executions) -> None:
    """Arrows that the source itself drew from a call to a device row."""
    slices, flows = trace.slices, trace.flows
    chosen = slices.role[flows.source] == Role.RUNTIME
    source_of = np.full(len(slices), NONE, np.int32)
    source_of[flows.target[chosen]] = flows.source[chosen]
    _set_launch(executions, source_of[executions.slice], LinkKind.FLOW)


def _outermost_call(trace: Trace, calls: NDArray[np.intp]) -> Int32:
    """For every call the outermost runtime call around it on its row."""
    slices = trace.slices
    layout = lay_out(slices.track[calls], slices.start_ns[calls], slices.duration_ns[calls])
    top = np.arange(len(calls), dtype=np.int32)
    inside = layout.parent[top] != NONE
    while inside.any():
        top[inside] = layout.parent[top[inside]]
        inside = layout.parent[top] != NONE
    return calls[top].astype(np.int32)


def _link_by_order(
    trace: Trace, executions: Executions, calls: NDArray[np.intp], execute: Bools
) -> None:
    """n-th execution of a core with the n-th outermost execute call, where the counts match."""
    slices, process_of_slice = trace.slices, trace.slice_process
    core = trace.track_column("core")[slices.track[calls]]
    kinds = np.array([t.kind is TrackKind.RUNTIME for t in trace.tracks], np.bool_)
    in_profile = kinds[slices.track[calls]]
    for device in np.unique(executions.device[executions.launch == NONE]):
        source = Source.MEASURED
        mine = np.flatnonzero((executions.device == device) & (executions.source == source))
        if not len(mine) or (executions.launch[mine] != NONE).any():
            continue
        process = trace.devices[device].process
        own = execute & (process_of_slice[calls] == process)
        own &= in_profile if (own & in_profile).any() else ~in_profile
        busy = np.unique(executions.device[process_of_slice[executions.slice] == process])
        for_core = own & (core == trace.devices[device].index)
        chosen = np.flatnonzero(for_core if for_core.any() or len(busy) > 1 else own)
        if len(chosen) == len(mine):
            rows = calls[chosen[np.argsort(slices.start_ns[calls[chosen]], kind="stable")]]
            executions.launch[mine] = rows
            executions.launch_link[mine] = LinkKind.ORDER
