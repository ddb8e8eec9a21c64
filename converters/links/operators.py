"""Execution → the innermost operator that it was issued for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.links.identifiers import Finder
from neuron_tb.converters.model import (
    NONE,
    Executions,
    Int32,
    Int64,
    LinkKind,
    Role,
    Source,
    Trace,
    TrackKind,
)
from neuron_tb.converters.model.lanes import innermost_around, lay_out


def find_operators(trace: Trace, executions: Executions, sequence: Int64) -> None:
    """Set every execution's ``operator``, and its ``name`` to that of the operator.

    ``sequence``: what ``neuron_tb.converters.links.launches.find_launches`` returned.
    """
    slices = trace.slices
    operators = np.flatnonzero(trace.roles(Role.OPERATOR))
    if not len(operators):
        return
    process = trace.slice_process[executions.slice]
    by_id = Finder(trace.slice_process[operators], slices.start_ns[operators])
    ids = slices.external_id[operators]

    def with_external_id(wanted: Int64) -> Int32:
        found = by_id.latest(ids, ids != NONE, process, wanted, executions.end_ns)
        return np.where(found != NONE, operators[found], NONE).astype(np.int32)

    launch = executions.launch
    own = slices.external_id[executions.slice]
    of_launch = np.where(launch != NONE, slices.external_id[launch], NONE)
    for ids_of_rows in (own, of_launch):
        external = np.where(executions.operator == NONE, ids_of_rows, NONE)
        rows = _trusted(trace, with_external_id(external), external, executions)
        _set_operator(executions, rows, LinkKind.EXTERNAL_ID)
    _set_operator(executions, _through_arrows(trace, executions, sequence), LinkKind.FLOW)
    named = _through_sequence(trace, executions, sequence, with_external_id)
    _set_operator(executions, named, LinkKind.SEQUENCE_ID)
    left = np.where(executions.operator == NONE, launch, NONE).astype(np.int32)
    _set_operator(executions, _operator_around(trace, left), LinkKind.CONTAINMENT)
    _through_window_order(executions)
    linked = executions.operator != NONE
    executions.name[linked] = slices.name[executions.operator[linked]]


def _set_operator(executions: Executions, rows: Int32, kind: LinkKind) -> None:
    new = (executions.operator == NONE) & (rows != NONE)
    executions.operator[new] = rows[new]
    executions.operator_link[new] = kind


def _trusted(trace: Trace, rows: Int32, external: Int64, executions: Executions) -> Int32:
    """Without the matches of an ``External id`` that merely repeats the correlation.

    Some Kineto builds write the correlation there, which may equal an unrelated operator's
    id by chance. Such a match counts only if the operator is around the call in time.
    """
    slices, launch = trace.slices, executions.launch
    repeats = (external != NONE) & (
        (external == slices.correlation[executions.slice])
        | ((launch != NONE) & (external == slices.correlation[launch]))
    )
    around = (
        (launch != NONE)
        & (rows != NONE)
        & (slices.start_ns[rows] <= slices.start_ns[launch])
        & (slices.end_ns[rows] >= slices.end_ns[launch])
    )
    return np.where(repeats & ~around, NONE, rows).astype(np.int32)


def _through_arrows(trace: Trace, executions: Executions, sequence: Int64) -> Int32:
    """Operators with an arrow to a call of the runtime with the execution's sequence id."""
    slices, flows = trace.slices, trace.flows
    chosen = np.flatnonzero(
        (slices.role[flows.source] == Role.OPERATOR) & (slices.role[flows.target] == Role.RUNTIME)
    )
    source, target = flows.source[chosen], flows.target[chosen]
    ids = slices.sequence_id[target]
    finder = Finder(trace.slice_process[target], slices.start_ns[target])
    found = finder.latest(
        ids,
        ids != NONE,
        trace.slice_process[executions.slice],
        sequence,
        executions.end_ns,
    )
    return np.where(found != NONE, source[found] if len(source) else NONE, NONE).astype(np.int32)


def _through_sequence(
    trace: Trace,
    executions: Executions,
    sequence: Int64,
    with_external_id: Callable[[Int64], Int32],
) -> Int32:
    """Rows of the framework trace with the same sequence number name the operator."""
    slices, launch = trace.slices, executions.launch
    named = np.flatnonzero(
        trace.roles(Role.RUNTIME, Role.WINDOW)
        & (slices.sequence_id != NONE)
        & (slices.external_id != NONE)
    )
    sequence = np.where((sequence == NONE) & (launch != NONE), slices.sequence_id[launch], sequence)
    sequence = np.where(executions.operator == NONE, sequence, NONE)
    finder = Finder(trace.slice_process[named], slices.start_ns[named])
    found = finder.latest(
        slices.sequence_id[named],
        np.ones(len(named), np.bool_),
        trace.slice_process[executions.slice],
        sequence,
        executions.end_ns,
    )
    external = np.where(
        found != NONE, slices.external_id[named][found] if len(named) else NONE, NONE
    )
    return with_external_id(external)


def _operator_around(trace: Trace, launch: Int32) -> Int32:
    """The innermost operator of the call's own thread that contains the call in time.

    A call of a system profile whose clock differs may lie inside any operator: none is claimed.
    Where the profile's times are noisy, the middle of the call counts, if no other operator is
    within the noise.
    """
    slices = trace.slices
    operators = np.flatnonzero(trace.roles(Role.OPERATOR))
    thread = _thread_of_track(trace)[slices.track]
    found = np.full(len(launch), NONE, np.int32)
    apart = np.array([p.clocks_apart for p in trace.processes] or [False], np.bool_)
    noise = np.array([p.clock_noise_ns for p in trace.processes] or [0], np.int64)
    of_profile = np.array([t.kind is TrackKind.RUNTIME for t in trace.tracks] or [False], np.bool_)
    compared = of_profile[slices.track[launch]]
    process = trace.slice_process[launch]
    wanted = np.flatnonzero((launch != NONE) & ~(apart[process] & compared))
    if not len(wanted):
        return found
    rows, slack = launch[wanted], np.where(compared, noise[process], 0)[wanted]
    start, end = slices.start_ns[rows], slices.end_ns[rows]
    noisy = slack > 0
    middle = (start + end) // 2
    start, end = np.where(noisy, middle, start), np.where(noisy, middle, end)

    def around(among: NDArray[np.intp], start: Int64, end: Int64) -> Int32:
        place = innermost_around(
            thread[among],
            slices.start_ns[among],
            slices.duration_ns[among],
            thread[rows],
            start,
            end,
        )
        return np.where(place != NONE, among[place], NONE).astype(np.int32)

    chosen = around(operators, start, end)
    if noisy.any():
        layout = lay_out(
            thread[operators], slices.start_ns[operators], slices.duration_ns[operators]
        )
        outermost = operators[layout.depth == 0]
        here = around(outermost, middle, middle)
        for time in (middle - slack, middle + slack):
            near = around(outermost, time, time)
            chosen[noisy & (near != NONE) & (near != here)] = NONE
    found[wanted] = chosen
    return found


def _thread_of_track(trace: Trace) -> Int32:
    """A number for every track, equal for those of one thread, shape (tracks,)."""
    numbers: dict[tuple[int, int | str], int] = {}
    threads = ((track.process, track.tid) for track in trace.tracks)
    return np.array([numbers.setdefault(thread, len(numbers)) for thread in threads], np.int32)


def _through_window_order(executions: Executions) -> None:
    """n-th measured execution of a core with its n-th window, where the counts match."""
    for device in np.unique(executions.device):
        mine = executions.device == device
        measured = np.flatnonzero(mine & (executions.source == Source.MEASURED))
        windows = np.flatnonzero(mine & (executions.source == Source.WINDOW))
        if len(measured) == len(windows) and (executions.operator[measured] == NONE).all():
            linked = executions.operator[windows] != NONE
            executions.operator[measured] = executions.operator[windows]
            executions.operator_link[measured[linked]] = LinkKind.ORDER
