"""Operator → runtime call → device execution.

Kinds of links, tried in this order and recorded with every execution: ``External id``;
correlation and sequence numbers; containment of the runtime call in time inside an operator of
the same thread; and the n-th execution of a core after the n-th execute call of its process,
where the counts match. Identifiers are compared within one process only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.lanes import innermost_around, lay_out
from neuron_tb.converters.trace import (
    NONE,
    Bools,
    Columns,
    Int32,
    Int64,
    Role,
    Trace,
    TrackKind,
    UInt8,
    column,
)


class Source(IntEnum):
    """Where a device time comes from. Absence is not a number and has no member."""

    MEASURED = 1
    """The device's own interval (``nc_exec_running``; CUDA, ROCm, XPU and MTIA rows)."""
    WINDOW = 2
    """Enqueue to completion as the host saw it (``privateuse1_driver``)."""


class LinkKind(IntEnum):
    """How two rows were joined; larger numbers are weaker evidence."""

    NONE = 0
    EXTERNAL_ID = 1
    CORRELATION = 2
    FLOW = 3
    """An arrow that the source itself drew from the call to the device row."""
    SEQUENCE_ID = 4
    EXEC_ID = 5
    CONTAINMENT = 6
    ORDER = 7


@dataclass(slots=True)
class Executions(Columns):
    """Device work, one row per execution (the two physical cores of LNC2 are one).

    ``start_ns``; ``duration_ns``: the length of the union of its device rows. ``device``:
    position in ``Trace.devices``. ``source``: a :class:`Source`. ``transfer``: copies and
    fills. ``name``: position in ``Trace.strings`` of the operator's name, or of the row's own
    name when no operator is known. ``slice``: its first device row. ``launch``: the runtime
    call that issued it. ``operator``: the innermost operator around that call. ``launch_link``,
    ``operator_link``: a :class:`LinkKind` each. ``step``: position in ``Trace.steps``.
    ``replaced_by``: for a window (or a framework trace's device event beside a system profile),
    the measured execution that takes its place. Rows are in
    order of start; NONE marks what is absent.
    """

    start_ns: Int64 = column(np.int64)
    duration_ns: Int64 = column(np.int64)
    device: Int32 = column(np.int32)
    source: UInt8 = column(np.uint8)
    transfer: Bools = column(np.bool_)
    name: Int32 = column(np.int32)
    slice: Int32 = column(np.int32)
    launch: Int32 = column(np.int32)
    operator: Int32 = column(np.int32)
    launch_link: UInt8 = column(np.uint8)
    operator_link: UInt8 = column(np.uint8)
    step: Int32 = column(np.int32)
    replaced_by: Int32 = column(np.int32)

    @property
    def end_ns(self) -> Int64:
        """``start_ns + duration_ns``."""
        return self.start_ns + self.duration_ns

    @property
    def counted(self) -> Bools:
        """One interval per execution: all rows but the windows that a measurement replaces."""
        counted: Bools = self.replaced_by == NONE
        return counted


@dataclass(slots=True)
class Steps(Columns):
    """Steps of the profiled loop, one row per process and step, in order of (process, start).

    ``process``: position in ``Trace.processes``. ``number``: the N of ``ProfilerStep#N``.
    ``start_ns``, ``end_ns``: the annotation on the host. ``slice``: the annotation's row, NONE
    for the one implicit step (number 0, called ``capture``) of a process without annotations.
    """

    process: Int32 = column(np.int32)
    number: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)
    slice: Int32 = column(np.int32)

    @property
    def implicit(self) -> bool:
        """True when the source marked no step at all."""
        return bool(np.all(self.slice == NONE))

    def label(self, step: int) -> str:
        """The step's name for people: its number, or ``capture``."""
        return "capture" if self.slice[step] == NONE else str(int(self.number[step]))


@dataclass(frozen=True, slots=True)
class Links:
    """The result of :func:`link`.

    ``execution_of_slice``: for every slice of the trace the execution it is a row of, else NONE.
    ``findings``: what could not be joined.
    """

    executions: Executions
    execution_of_slice: Int32
    findings: Findings = field(default_factory=Findings)


_EXECUTION = "nc_exec_running"

EXECUTE_CALLS = ("nrta_execute_schedule", "nrt_execute")
"""The runtime's calls that each issue one execution."""


def link(trace: Trace) -> Links:
    """Join every execution of the trace with its runtime call, operator and step."""
    return _Linker(trace).link()


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


class _Linker:
    def __init__(self, trace: Trace) -> None:
        self.trace, self.slices = trace, trace.slices
        self.process, self.device = trace.slice_process, trace.slice_device
        self.tid_of_track = _numbered([(t.process, t.tid) for t in trace.tracks])
        self.findings = Findings()

    def link(self) -> Links:
        trace, slices = self.trace, self.slices
        measured = self._group_measured(np.flatnonzero(trace.roles(Role.KERNEL, Role.TRANSFER)))
        windows = np.flatnonzero(trace.roles(Role.WINDOW))
        of_slice = np.full(len(slices), NONE, np.int32)
        rows, start, end = measured.first, measured.start_ns, measured.end_ns
        first = np.concatenate([rows, windows]).astype(np.int32)
        start = np.concatenate([start, slices.start_ns[windows]])
        end = np.concatenate([end, slices.end_ns[windows]])
        order = np.lexsort((first, start))
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        of_slice[measured.rows] = place[measured.group]
        of_slice[windows] = place[len(rows) :]
        first, start, end = first[order], start[order], end[order]
        n = len(first)
        none = np.full(n, NONE, np.int32)
        executions = Executions(
            start_ns=start,
            duration_ns=end - start,
            device=self.device[first],
            source=np.where(
                slices.role[first] == Role.WINDOW, Source.WINDOW, Source.MEASURED
            ).astype(np.uint8),
            transfer=slices.role[first] == Role.TRANSFER,
            name=slices.name[first].copy(),
            slice=first,
            launch=none.copy(),
            operator=none.copy(),
            launch_link=np.zeros(n, np.uint8),
            operator_link=np.zeros(n, np.uint8),
            step=none.copy(),
            replaced_by=none.copy(),
        )
        if n:
            self._find_launches(executions)
            self._find_operators(executions)
            self._replace_windows(executions)
            self._find_steps(executions)
        self._report(executions)
        return Links(executions, of_slice, self.findings)

    # -- executions -------------------------------------------------------------------------

    def _group_measured(self, rows: NDArray[np.intp]) -> _Groups:
        """Rows of the physical cores of one logical core that overlap under one id are one."""
        slices = self.slices
        physical = self.trace.track_column("physical_core")[slices.track[rows]]
        key = np.where(slices.exec_id[rows] != NONE, slices.exec_id[rows], slices.sequence_id[rows])
        order = np.lexsort((slices.start_ns[rows], key, self.device[rows]))
        rows, physical, key = rows[order], physical[order], key[order]
        start, end = slices.start_ns[rows], slices.end_ns[rows]
        # Under one id the second core may start after the first has ended; without an id only
        # an overlap shows that two rows belong together.
        length = end - start
        reach = np.where(key[1:] != NONE, np.maximum(length[1:], length[:-1]), NONE)
        joins = np.zeros(len(rows), np.bool_)
        joins[1:] = (
            (self.device[rows][1:] == self.device[rows][:-1])
            & (key[1:] == key[:-1])
            & (physical[1:] != physical[:-1])
            & (physical[1:] != NONE)
            & (physical[:-1] != NONE)
            & (start[1:] - end[:-1] <= reach)
        )
        group = np.cumsum(~joins) - 1
        firsts = np.flatnonzero(~joins)
        if not len(rows):
            return _Groups(rows, group, rows.astype(np.int32), start, end)
        gap = np.zeros(len(rows), np.int64)
        gap[1:] = np.where(joins[1:], np.maximum(start[1:] - end[:-1], 0), 0)
        union_end = np.maximum.reduceat(end, firsts) - np.add.reduceat(gap, firsts)
        return _Groups(rows, group, rows[firsts].astype(np.int32), start[firsts], union_end)

    # -- runtime calls ----------------------------------------------------------------------

    def _find_launches(self, executions: Executions) -> None:
        slices, trace = self.slices, self.trace
        calls = np.flatnonzero(trace.roles(Role.RUNTIME))
        self._link_flows(executions)
        if not len(calls):
            return
        process = self.process[executions.slice]
        by_id = _Finder(self.process[calls], slices.start_ns[calls])
        preferred = np.isin(
            slices.name[calls],
            [trace.strings.index(c) for c in EXECUTE_CALLS if c in trace.strings],
        )

        def link_by(ids: Int64, wanted: Int64, kind: LinkKind, among: Bools) -> Int32:
            """Runtime calls with the same id, one per execution; links those without a call."""
            found = by_id.latest(ids, among & (ids != NONE), process, wanted, executions.end_ns)
            rows = np.where(found != NONE, calls[found], NONE).astype(np.int32)
            self._set_launch(executions, rows, kind)
            return rows

        everything = np.ones(len(calls), np.bool_)
        link_by(
            slices.correlation[calls],
            slices.correlation[executions.slice],
            LinkKind.CORRELATION,
            everything,
        )
        sequence = slices.sequence_id[executions.slice].copy()
        link_by(slices.sequence_id[calls], sequence, LinkKind.SEQUENCE_ID, preferred)
        # Calls that name an execution may carry the sequence number that the execution lacks.
        core = trace.track_column("core")[slices.track[calls]]
        exec_ids = slices.exec_id[calls]
        own_core = np.array([d.index for d in trace.devices], np.int32)[executions.device]
        same_core = by_id.scoped(core, own_core)
        named = same_core.latest(
            exec_ids, exec_ids != NONE, process, slices.exec_id[executions.slice], executions.end_ns
        )
        through = np.where(
            (named != NONE) & (sequence == NONE), slices.sequence_id[calls][named], sequence
        )
        self.sequence = through
        link_by(slices.sequence_id[calls], through, LinkKind.EXEC_ID, preferred)
        outermost = self._outermost_call(calls)
        by_exec = np.where(named != NONE, outermost[named], NONE).astype(np.int32)
        self._set_launch(executions, by_exec, LinkKind.EXEC_ID)
        link_by(slices.sequence_id[calls], through, LinkKind.SEQUENCE_ID, everything)
        external = by_id.latest(
            slices.external_id[calls],
            slices.external_id[calls] != NONE,
            process,
            slices.external_id[executions.slice],
            executions.end_ns,
        )
        by_external = np.where(external != NONE, outermost[external], NONE).astype(np.int32)
        self._set_launch(executions, by_external, LinkKind.EXTERNAL_ID)
        self._link_by_order(executions, calls, core, preferred)

    def _set_launch(self, executions: Executions, rows: Int32, kind: LinkKind) -> None:
        new = (executions.launch == NONE) & (rows != NONE)
        executions.launch[new] = rows[new]
        executions.launch_link[new] = kind

    def _link_flows(self, executions: Executions) -> None:
        flows = self.trace.flows
        chosen = self.slices.role[flows.source] == Role.RUNTIME
        source_of = np.full(len(self.slices), NONE, np.int32)
        source_of[flows.target[chosen]] = flows.source[chosen]
        self._set_launch(executions, source_of[executions.slice], LinkKind.FLOW)

    def _outermost_call(self, calls: NDArray[np.intp]) -> Int32:
        """For every call the outermost runtime call around it on its row."""
        slices = self.slices
        layout = lay_out(slices.track[calls], slices.start_ns[calls], slices.duration_ns[calls])
        top = np.arange(len(calls), dtype=np.int32)
        inside = layout.parent[top] != NONE
        while inside.any():
            top[inside] = layout.parent[top[inside]]
            inside = layout.parent[top] != NONE
        return calls[top].astype(np.int32)

    def _link_by_order(
        self, executions: Executions, calls: NDArray[np.intp], core: Int32, execute: Bools
    ) -> None:
        """n-th execution of a core with the n-th execute call, where the counts match."""
        trace, slices = self.trace, self.slices
        kinds = np.array([t.kind is TrackKind.RUNTIME for t in trace.tracks], np.bool_)
        in_profile = kinds[slices.track[calls]]
        top = self._outermost_call(calls) == calls
        for device in np.unique(executions.device[executions.launch == NONE]):
            source = Source.MEASURED
            mine = np.flatnonzero((executions.device == device) & (executions.source == source))
            if not len(mine) or (executions.launch[mine] != NONE).any():
                continue
            process = trace.devices[device].process
            own = execute & top & (self.process[calls] == process)
            own &= in_profile if (own & in_profile).any() else ~in_profile
            busy = np.unique(executions.device[self.process[executions.slice] == process])
            for_core = own & (core == trace.devices[device].index)
            chosen = np.flatnonzero(for_core if for_core.any() or len(busy) > 1 else own)
            if len(chosen) == len(mine):
                rows = calls[chosen[np.argsort(slices.start_ns[calls[chosen]], kind="stable")]]
                executions.launch[mine] = rows
                executions.launch_link[mine] = LinkKind.ORDER

    # -- operators --------------------------------------------------------------------------

    def _find_operators(self, executions: Executions) -> None:
        slices, trace = self.slices, self.trace
        operators = np.flatnonzero(trace.roles(Role.OPERATOR))
        if not len(operators):
            return
        process = self.process[executions.slice]
        by_id = _Finder(self.process[operators], slices.start_ns[operators])
        ids = slices.external_id[operators]

        def with_external_id(wanted: Int64) -> Int32:
            found = by_id.latest(ids, ids != NONE, process, wanted, executions.end_ns)
            return np.where(found != NONE, operators[found], NONE).astype(np.int32)

        launch = executions.launch
        own = slices.external_id[executions.slice]
        of_launch = np.where(launch != NONE, slices.external_id[launch], NONE)
        for ids_of_rows in (own, of_launch):
            external = np.where(executions.operator == NONE, ids_of_rows, NONE)
            rows = with_external_id(external)
            self._set_operator(
                executions,
                self._trusted(rows, external, executions),
                LinkKind.EXTERNAL_ID,
            )
        self._set_operator(executions, self._through_arrows(executions), LinkKind.FLOW)
        self._set_operator(
            executions, self._through_sequence(executions, with_external_id), LinkKind.SEQUENCE_ID
        )
        left = np.where(executions.operator == NONE, launch, NONE).astype(np.int32)
        self._set_operator(executions, self._operator_around(left), LinkKind.CONTAINMENT)
        self._through_window_order(executions)
        linked = executions.operator != NONE
        executions.name[linked] = slices.name[executions.operator[linked]]

    def _set_operator(self, executions: Executions, rows: Int32, kind: LinkKind) -> None:
        new = (executions.operator == NONE) & (rows != NONE)
        executions.operator[new] = rows[new]
        executions.operator_link[new] = kind

    def _trusted(self, rows: Int32, external: Int64, executions: Executions) -> Int32:
        """Without the matches of an ``External id`` that merely repeats the correlation.

        Some Kineto builds write the correlation there, which may equal an unrelated operator's
        id by chance. Such a match counts only if the operator is around the call in time.
        """
        slices, launch = self.slices, executions.launch
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

    def _through_arrows(self, executions: Executions) -> Int32:
        """Operators with an arrow to a call of the runtime with the execution's sequence id."""
        slices, flows = self.slices, self.trace.flows
        chosen = np.flatnonzero(
            (slices.role[flows.source] == Role.OPERATOR)
            & (slices.role[flows.target] == Role.RUNTIME)
        )
        source, target = flows.source[chosen], flows.target[chosen]
        ids = slices.sequence_id[target]
        wanted = getattr(self, "sequence", slices.sequence_id[executions.slice])
        finder = _Finder(self.process[target], slices.start_ns[target])
        found = finder.latest(
            ids, ids != NONE, self.process[executions.slice], wanted, executions.end_ns
        )
        return np.where(found != NONE, source[found] if len(source) else NONE, NONE).astype(
            np.int32
        )

    def _through_sequence(
        self, executions: Executions, with_external_id: Callable[[Int64], Int32]
    ) -> Int32:
        """Rows of the framework trace with the same sequence number name the operator."""
        slices, trace = self.slices, self.trace
        named = np.flatnonzero(
            trace.roles(Role.RUNTIME, Role.WINDOW)
            & (slices.sequence_id != NONE)
            & (slices.external_id != NONE)
        )
        sequence = getattr(self, "sequence", slices.sequence_id[executions.slice])
        launch = executions.launch
        sequence = np.where(
            (sequence == NONE) & (launch != NONE), slices.sequence_id[launch], sequence
        )
        sequence = np.where(executions.operator == NONE, sequence, NONE)
        finder = _Finder(self.process[named], slices.start_ns[named])
        found = finder.latest(
            slices.sequence_id[named],
            np.ones(len(named), np.bool_),
            self.process[executions.slice],
            sequence,
            executions.end_ns,
        )
        external = np.where(
            found != NONE, slices.external_id[named][found] if len(named) else NONE, NONE
        )
        return with_external_id(external)

    def _operator_around(self, launch: Int32) -> Int32:
        """The innermost operator of the call's own thread that contains the call in time."""
        slices = self.slices
        operators = np.flatnonzero(self.trace.roles(Role.OPERATOR))
        thread = self.tid_of_track[slices.track]
        found = np.full(len(launch), NONE, np.int32)
        wanted = np.flatnonzero(launch != NONE)
        if not len(wanted):
            return found
        rows = launch[wanted]
        around = innermost_around(
            thread[operators],
            slices.start_ns[operators],
            slices.duration_ns[operators],
            thread[rows],
            slices.start_ns[rows],
            slices.end_ns[rows],
        )
        found[wanted] = np.where(around != NONE, operators[around], NONE)
        return found

    def _through_window_order(self, executions: Executions) -> None:
        """n-th measured execution of a core with its n-th window, where the counts match."""
        for device in np.unique(executions.device):
            mine = executions.device == device
            measured = np.flatnonzero(mine & (executions.source == Source.MEASURED))
            windows = np.flatnonzero(mine & (executions.source == Source.WINDOW))
            if len(measured) == len(windows) and (executions.operator[measured] == NONE).all():
                linked = executions.operator[windows] != NONE
                executions.operator[measured] = executions.operator[windows]
                executions.operator_link[measured[linked]] = LinkKind.ORDER

    # -- windows, steps, findings -----------------------------------------------------------

    def _replace_windows(self, executions: Executions) -> None:
        """A window whose operator has measured executions gives way to them, in order.

        So do device events of the framework trace where a system profile has the NeuronCore's
        own intervals of the same process: the same work must not count twice.
        """
        slices = self.slices
        measured = executions.source == Source.MEASURED
        named = self.trace.strings.index(_EXECUTION) if _EXECUTION in self.trace.strings else NONE
        from_profile = measured & (slices.name[executions.slice] == named)
        process = self.process[executions.slice]
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

    def _find_steps(self, executions: Executions) -> None:
        """A step's device work is what was launched in it; unlaunched work goes by its start."""
        steps, slices = self.trace.steps, self.slices
        cause = np.where(executions.operator != NONE, executions.operator, executions.slice)
        cause = np.where(executions.launch != NONE, executions.launch, cause)
        time, process = slices.start_ns[cause], self.process[executions.slice]
        for number in np.unique(process):
            mine, own = np.flatnonzero(process == number), np.flatnonzero(steps.process == number)
            if not len(own):
                continue
            position = np.searchsorted(steps.start_ns[own], time[mine], side="right") - 1
            step = own[np.maximum(position, 0)]
            inside = (position >= 0) & (time[mine] <= steps.end_ns[step])
            executions.step[mine] = np.where(inside, step, NONE)

    def _report(self, executions: Executions) -> None:
        counted = executions.counted
        has_operators = self.trace.roles(Role.OPERATOR).any()
        self.findings.add(
            "execution_without_operator",
            "executions could not be linked to an operator; their time has rows of its own",
            int(np.count_nonzero(counted & (executions.operator == NONE))) if has_operators else 0,
        )
        windows = counted & (executions.source == Source.WINDOW)
        process = self.process[executions.slice]
        beside = windows & np.isin(process, process[counted & ~windows])
        self.findings.add(
            "windows_beside_measurements",
            "executions have only a host window although others of their process were measured: "
            "tables count measured time alone, and totals are lower bounds",
            int(np.count_nonzero(beside)),
        )
        launched = executions.launch != NONE
        early = launched & (executions.start_ns < self.slices.start_ns[executions.launch])
        self.findings.add(
            "execution_before_launch",
            "executions start before the call that issued them: the two clocks disagree; "
            "times are written as they are",
            int(np.count_nonzero(early & counted)),
        )
        if not self.trace.steps.implicit:
            self.findings.add(
                "execution_outside_steps",
                "executions were launched outside every step; they belong to no step",
                int(np.count_nonzero(counted & (executions.step == NONE))),
            )
        elif len(self.trace.steps):
            self.findings.add(
                "no_steps",
                f"no step is marked ({self.trace.step_annotation}N); the whole capture is one step "
                "called capture. Call profiler.step() in the loop, or name an annotation with "
                "--steps-from",
            )


@dataclass(frozen=True, slots=True)
class _Groups:
    """Device rows in groups: ``group`` numbers ``rows``; one first row, start and end a group."""

    rows: NDArray[np.intp]
    group: NDArray[np.intp]
    first: Int32
    start_ns: Int64
    end_ns: Int64


class _Finder:
    """Finds, among candidates of a process, the latest one with an id that starts in time."""

    def __init__(
        self,
        process: Int32,
        start_ns: Int64,
        scope: Int32 | None = None,
        of_query: Int32 | None = None,
    ) -> None:
        self._process, self._start = process, start_ns
        self._scope, self._of_query = scope, of_query

    def scoped(self, scope: Int32, of_query: Int32) -> _Finder:
        """The same candidates, restricted to those whose scope is the query's, or unknown."""
        return _Finder(self._process, self._start, scope, of_query)

    def latest(
        self, ids: Int64, usable: Bools, process: Int32, wanted: Int64, before_ns: Int64
    ) -> Int32:
        """For each query (process, wanted id, time) the position of its candidate, or NONE.

        The latest candidate that starts before the time wins; if all start later (clocks that
        disagree), the first one.
        """
        found = np.full(len(wanted), NONE, np.int32)
        asked = np.flatnonzero(wanted != NONE)
        rows = np.flatnonzero(usable)
        if not len(asked) or not len(rows):
            return found
        own: list[NDArray[Any]] = [
            self._process[rows],
            self._scoped(rows),
            ids[rows],
            self._start[rows],
        ]
        for scope in [None] if self._of_query is None else [self._of_query, None]:
            unknown = np.full(len(asked), NONE, np.int64)
            query_scope = unknown if scope is None else scope[asked].astype(np.int64)
            queries: list[NDArray[Any]] = [
                process[asked],
                query_scope,
                wanted[asked],
                before_ns[asked],
            ]
            hits = _latest(own, queries)
            new = (hits != NONE) & (found[asked] == NONE)
            found[asked[new]] = rows[hits[new]]
        return found

    def _scoped(self, rows: NDArray[np.intp]) -> Int64:
        if self._scope is None:
            return np.full(len(rows), NONE, np.int64)
        return self._scope[rows].astype(np.int64)


def _latest(candidates: list[NDArray[Any]], queries: list[NDArray[Any]]) -> Int32:
    """For each query the last candidate with equal keys that is not later, else the first one.

    Both are columns (key, key, key, time). Sorted together, every query stands behind the
    candidates that are in time and before those that are late.
    """
    only = _only_candidates(candidates, queries)
    if only is not None:
        return only
    n, m = len(candidates[0]), len(queries[0])
    columns = [np.concatenate(pair) for pair in zip(candidates, queries, strict=True)]
    is_query = np.arange(n + m) >= n
    varying = [c for c in reversed(columns) if (c != c[0]).any()]
    order = np.lexsort((is_query, *varying))
    asked = is_query[order]
    place = np.arange(n + m)
    before = np.maximum.accumulate(np.where(asked, NONE, place))
    after = np.minimum.accumulate(np.where(asked, n + m, place)[::-1])[::-1]
    found = np.full(m, NONE, np.int32)
    for neighbour in (after, before):
        near = neighbour[asked]
        exists = (near >= 0) & (near < n + m)
        rows = order[np.where(exists, near, 0)]
        query = order[asked]
        same = exists & np.logical_and.reduce([c[rows] == c[query] for c in columns[:3]])
        found[query[same] - n] = rows[same]
    return found


def _only_candidates(candidates: list[NDArray[Any]], queries: list[NDArray[Any]]) -> Int32 | None:
    """The result of :func:`_latest` where nothing but one key differs and is never repeated."""
    pairs = list(zip(candidates[:3], queries[:3], strict=True))
    varying = [(c, q) for c, q in pairs if (c != c[0]).any() or (q != c[0]).any()]
    if len(varying) != 1:
        return None
    known, wanted = varying[0]
    order = None
    if not np.all(known[1:] > known[:-1]):
        order = np.argsort(known, kind="stable")
        known = known[order]
        if not np.all(known[1:] > known[:-1]):
            return None
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    rows = at if order is None else order[at]
    return np.where(known[at] == wanted, rows, NONE).astype(np.int32)


def _numbered(keys: list[Any]) -> Int32:
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int32)
