"""What XProf's device views can hold of a trace, decided before anything is encoded.

XProf knows one flat sequence of operations per core (``XLA Ops``), programs that they belong
to, steps that do not overlap, and one arrow per event. This module puts executions in that
sequence as far as they fit, gives operators their identity, and steps their extent on a core.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import NONE, Bools, Executions, Int32, Int64, Source, Trace
from neuron_tb.converters.model.identity import stable_hash

EAGER = "eager"
"""The one program of everything that was not compiled."""
EAGER_PROGRAM = 1


_COMPILED = ("Torch-Compiled Region", "model_default")

_COLLECTIVES = {
    "all-reduce": re.compile(r"all_?reduce", re.IGNORECASE),
    "all-gather": re.compile(r"all_?gather", re.IGNORECASE),
    "reduce-scatter": re.compile(r"reduce_?scatter", re.IGNORECASE),
    "all-to-all": re.compile(r"all_?to_?all", re.IGNORECASE),
}
_MATMUL = re.compile(r"aten::(mm|bmm|addmm|baddbmm|addbmm|addmv|mv|dot|matmul|linear|einsum)_?")
_CONVOLUTION = re.compile(r"aten::\w*conv(olution|\d)\w*")

_LONGEST_TYPE = 80

FLOW_OUT, FLOW_IN = 2, 1
_FLOW_CATEGORY = 5
"""XProf lists this category as ``PjRt``; 0 would be a checkbox without a label."""
_ROW_BITS, _RANK_BITS = 36, 20
"""Of an arrow's 56 bits: the row that it starts from, and which process' row that is."""
_IDENTITY_BITS = 40


@dataclass(frozen=True, slots=True)
class Operator:
    """Identity of one operator in XProf's tables.

    ``program``, ``symbol``: the two ids that XProf merges rows by. They are made of the names,
    so that files of ranks that were converted apart agree. ``path``: ``tf_op``, as ``path:Type``;
    both halves keep to the letters that XProf parses.
    """

    name: str
    program: int
    program_name: str
    symbol: int
    category: str
    path: str

    @property
    def long_name(self) -> str:
        """``%name = text``: XProf's HLO table shows what stands before the equals sign."""
        return f"%{self.name.replace(' = ', '=')} = {self.name}"


class Operators:
    """Operators of a run, by the string number of their name; the same in every host's file."""

    def __init__(self, trace: Trace, rows: Executions) -> None:
        self.by_name: dict[int, Operator] = {}
        programs = {EAGER: EAGER_PROGRAM}
        symbols: set[int] = set()
        paths: set[str] = set()
        names, first = np.unique(rows.name, return_index=True)
        order = np.argsort(first)
        for number, sample in zip(names[order].tolist(), first[order].tolist(), strict=True):
            name = trace.string(number) or "(no name)"
            compiled = name.startswith(_COMPILED)
            program = name if compiled else EAGER
            if program not in programs:
                programs[program] = _identity(program, set(programs.values()))
            symbol = _identity(name, symbols)
            symbols.add(symbol)
            if compiled:
                category = "compiled graph"
            else:
                category = _category(
                    name, bool(rows.transfer[sample]), rows.operator[sample] != NONE
                )
            self.by_name[number] = Operator(
                name,
                programs[program],
                program,
                symbol,
                category,
                _path(name, paths),
            )

    def program(self, name: Int32) -> Int64:
        """The program of each of these names, shape as ``name``."""
        if not self.by_name:
            return np.zeros(len(name), np.int64)
        table = np.zeros(max(self.by_name) + 1, np.int64)
        for number, operator in self.by_name.items():
            table[number] = operator.program
        return table[name]


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps as XProf takes them: for every process the same numbers, each with its host times.

    ``process``, ``number``, ``start_ns``, ``end_ns``: one row per process and step, in order of
    (process, start). ``label``: the words for a step that has no number.
    """

    process: Int32
    number: Int64
    start_ns: Int64
    end_ns: Int64
    label: str | None = None

    def of_process(self, process: int) -> NDArray[np.intp]:
        """The rows of one process."""
        return np.flatnonzero(self.process == process)

    def at(self, process: int, time_ns: Int64) -> Int64:
        """The number of the process's step around each time, NONE outside all steps."""
        rows = self.of_process(process)
        if not len(rows):
            return np.full(len(time_ns), NONE, np.int64)
        place = np.searchsorted(self.start_ns[rows], time_ns, side="right") - 1
        inside = (place >= 0) & (time_ns <= self.end_ns[rows[np.maximum(place, 0)]])
        return np.where(inside, self.number[rows[np.maximum(place, 0)]], NONE)


def steps_of(trace: Trace, processes: Sequence[int]) -> Steps:
    """The trace's steps; a process without any of its own gets the others' (their outermost times).

    XProf shows only the steps that every core has, so a core without steps would hide them all.
    """
    own = trace.steps
    columns = [(own.process, own.number, own.start_ns, own.end_ns)]
    numbers = np.unique(own.number)
    start = np.array([own.start_ns[own.number == n].min() for n in numbers], np.int64)
    end = np.array([own.end_ns[own.number == n].max() for n in numbers], np.int64)
    without = np.setdiff1d(np.array(processes, np.int32), own.process)
    columns += [(np.full(len(numbers), p, np.int32), numbers, start, end) for p in without]
    of, number, begin, stop = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.lexsort((begin, of))
    label = "capture" if own.implicit else None
    return Steps(of[order], number[order], begin[order], stop[order], label)


@dataclass(slots=True)
class Placement:
    """Counted executions of a trace, in order of (device, start, longest first).

    ``row``: position in ``Trace.executions``. ``end_ns``: the end as drawn. ``fits``: stands on
    the device's flat sequence. ``step``: the step's number, NONE outside all steps.
    """

    row: NDArray[np.intp]
    device: Int32
    start_ns: Int64
    end_ns: Int64
    fits: Bools
    step: Int64

    def of_device(self, device: int, fits: bool | None = None) -> NDArray[np.intp]:
        """Positions of one device's executions (only those that fit, or only those that do not)."""
        mine = self.device == device
        return np.flatnonzero(mine if fits is None else mine & (self.fits == fits))


def place(trace: Trace, steps: Steps, findings: Findings) -> Placement:
    """Put the counted executions of every device in a flat sequence, the earliest first.

    What starts before its predecessor has ended does not fit, unless the two cross by no more
    than the source's resolution: then the predecessor ends where the next one starts. Windows,
    which are longer than the work in them, stand back behind measured times.
    """
    rows = trace.executions
    counted = np.flatnonzero(rows.counted & (rows.device != NONE))
    order = np.lexsort((-rows.duration_ns[counted], rows.start_ns[counted], rows.device[counted]))
    row = counted[order]
    device, start, end = rows.device[row], rows.start_ns[row], rows.end_ns[row].copy()
    fits = np.ones(len(row), np.bool_)
    rounded = 0
    window = rows.source[row] == Source.WINDOW
    for first, last in _runs(device):
        mine = np.arange(first, last)
        measured, windows = mine[~window[mine]], mine[window[mine]]
        rounded += _place(measured, start, end, fits, trace.clock.resolution_ns)
        free = _apart(start[windows], end[windows], measured[fits[measured]], start, end)
        fits[windows[~free]] = False
        rounded += _place(windows[free], start, end, fits, trace.clock.resolution_ns)
    findings.add(
        "device_overlap",
        "executions overlap an earlier one on the same device: they are drawn in rows of their "
        "own, marked as overlapping, and XProf's tables do not count them",
        int(np.count_nonzero(~fits)),
    )
    findings.add(
        "end_rounded",
        "ends within the source's own resolution after the next start of the device were set to it",
        rounded,
    )
    findings.add(
        "windows_as_device_time",
        "device times are windows from enqueue to completion as the host saw it, not busy time of "
        "the device: XProf's totals, idle times and duty cycle are those of windows",
        int(np.count_nonzero(window)),
    )
    return Placement(row, device, start, end, fits, _step_numbers(trace, steps, row))


def _step_numbers(trace: Trace, steps: Steps, row: NDArray[np.intp]) -> Int64:
    rows, own = trace.executions, trace.steps
    number = np.full(len(row), NONE, np.int64)
    known = rows.step[row] != NONE
    number[known] = own.number[rows.step[row][known]]
    launch = rows.launch[row]
    time = np.where(launch != NONE, trace.slices.start_ns[launch], rows.start_ns[row])
    process = trace.slice_process[rows.slice[row]]
    for borrower in np.setdiff1d(steps.process, own.process).tolist():
        mine = np.flatnonzero((process == borrower) & ~known)
        number[mine] = steps.at(borrower, time[mine])
    return number


def device_steps(steps: Steps, process: int, of_work: Int64, end_of_work: Int64) -> Steps:
    """The process's steps on a device whose work has these step numbers and ends.

    Steps of a device may not overlap: one begins with the host's step, or when the step before
    it has ended on the device; it ends with the host's step, or with its own last device work.
    """
    rows = steps.of_process(process)
    begins, ends = [], []
    order = np.argsort(of_work, kind="stable")
    numbers, first = np.unique(of_work[order], return_index=True)
    last_end = np.maximum.reduceat(end_of_work[order], first) if len(first) else first
    last_work = dict(zip(numbers.tolist(), last_end.tolist(), strict=True))
    done = np.iinfo(np.int64).min
    for row in rows.tolist():
        begin = max(int(steps.start_ns[row]), done)
        done = max(begin, int(steps.end_ns[row]), last_work.get(int(steps.number[row]), begin))
        begins.append(begin)
        ends.append(done)
    return Steps(
        steps.process[rows],
        steps.number[rows],
        np.array(begins, np.int64),
        np.array(ends, np.int64),
        steps.label,
    )


def steps_listed(
    placement: Placement, steps: Steps, devices: Iterable[int]
) -> dict[str, list[int]]:
    """All numbers of steps, and those with work on each of these devices that has any work.

    Both are empty where no step is marked or no device has work; ``unmarked`` is not, where there
    is device work and no step is marked.
    """
    by_device = [
        set(placement.step[rows].tolist()) - {NONE}
        for device in devices
        if len(rows := placement.of_device(device, fits=True))
    ]
    if steps.label is not None or not by_device:
        unmarked = len(by_device) if steps.label is not None else 0
        return {"all": [], "listed": [], "unmarked": [unmarked] if unmarked else []}
    everything = set.union(set(steps.number.tolist()), *by_device)
    listed = set.intersection(*by_device)
    return {"all": sorted(everything), "listed": sorted(listed), "unmarked": []}


def report_missing_steps(steps: Sequence[dict[str, list[int]]], findings: Findings) -> None:
    """XProf lists only the steps that have device work on every device that has any.

    ``steps``: results of ``steps_listed`` that cover all devices.
    """
    with_work = [s for s in steps if s["all"]]
    if not with_work:
        return
    everything = {number for s in with_work for number in s["all"]}
    listed = set[int].intersection(*(set(s["listed"]) for s in with_work))
    lost = sorted(everything if any(s.get("unmarked") for s in steps) else everything - listed)
    findings.add(
        "steps_not_listed",
        "steps have no device work on some device; XProf's step table lists only steps with work "
        "on every device, its other tables and the time line have everything",
        len(lost),
        where=f"step {lost[0]}" if lost else None,
    )


def program_runs(
    program: Int64, step: Int64, compiled: Bools
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First and last position of every run of one program in one step of a device's sequence.

    Each execution of a compiled graph is a run of its own.
    """
    breaks = (np.diff(program) != 0) | (np.diff(step) != 0) | compiled[1:]
    first = (
        np.flatnonzero(np.concatenate(([True], breaks))) if len(program) else np.empty(0, np.intp)
    )
    return first, np.append(first[1:], len(program)) - 1 if len(first) else first


@dataclass(frozen=True, slots=True)
class Arrows:
    """XProf's ``flow`` stat per slice and per row of ``Trace.executions``, 0 for none."""

    of_slice: NDArray[np.uint64]
    of_execution: NDArray[np.uint64]


def arrows_of(trace: Trace, row: NDArray[np.intp], findings: Findings) -> Arrows:
    """Arrows from operator to runtime call to execution, then those that the source drew.

    An event has room for one arrow's id. An operator joins the arrow of its call when it has
    one call, on another row than its own; arrows of the source take what is left.
    """
    rows, n = trace.executions, len(trace.slices)
    ids, direction = np.zeros(n, np.int64), np.zeros(n, np.uint8)
    of_execution = np.zeros(len(rows), np.uint64)
    launch, operator = rows.launch[row], rows.operator[row]
    source = np.where(launch != NONE, launch, operator)
    linked = source != NONE
    ids[source[linked]] = source[linked] + 1
    direction[source[linked]] = FLOW_OUT
    of_execution[row[linked]] = _stat(_of_all_files(trace, ids[source[linked]]), FLOW_IN)
    _add_operators(trace, launch, operator, ids, direction)
    _add_source_arrows(trace, rows, ids, direction, findings)
    drawn = np.flatnonzero(ids > 0)
    of_slice = np.zeros(n, np.uint64)
    of_slice[drawn] = _stat(_of_all_files(trace, ids[drawn]), direction[drawn])
    return Arrows(of_slice, of_execution)


def _of_all_files(trace: Trace, ids: Int64) -> Int64:
    """Arrow numbers of this trace as numbers that no other rank of the run uses."""
    if not len(ids):
        return ids
    process = trace.slice_process[(ids - 1) % len(trace.slices)]
    known = 1 << (_RANK_BITS - 1)
    owner = [
        p.rank
        if p.rank is not None and 0 <= p.rank < known
        else known | stable_hash(p.host, p.pid, p.rank, number, bits=_RANK_BITS - 1)
        for number, p in enumerate(trace.processes)
    ]
    return np.array(owner, np.int64)[process] << _ROW_BITS | ids


def _add_operators(
    trace: Trace, launch: Int32, operator: Int32, ids: Int64, direction: NDArray[np.uint8]
) -> None:
    both = (launch != NONE) & (operator != NONE)
    pairs = np.sort(operator[both].astype(np.int64) << 32 | launch[both])
    pairs = pairs[np.diff(pairs, prepend=NONE) != 0]
    if not len(pairs):
        return
    op, call = (pairs >> 32).astype(np.int32), (pairs & 0xFFFFFFFF).astype(np.int32)
    track = trace.slices.track
    alone = _counts(op) + _counts(call) == 2
    joins = alone & (track[op] != track[call]) & (ids[op] == 0) & (direction[call] == FLOW_OUT)
    ids[op[joins]], direction[op[joins]] = ids[call[joins]], FLOW_OUT
    direction[call[joins]] = FLOW_OUT | FLOW_IN


def _add_source_arrows(
    trace: Trace, rows: Executions, ids: Int64, direction: NDArray[np.uint8], findings: Findings
) -> None:
    source, target = trace.flows.source, trace.flows.target
    execution = trace.execution_of_slice[target]
    to_op = (execution != NONE) & rows.counted[execution] if len(rows) else execution != NONE
    drawn = to_op & (rows.launch[execution] == source) if len(rows) else to_op
    free = ~to_op & (ids[target] == 0) & ((ids[source] == 0) | (direction[source] == FLOW_OUT))
    free &= ~np.isin(target, source[free])
    chosen = np.flatnonzero(free)
    chosen = chosen[np.unique(target[chosen], return_index=True)[1]]
    start, end = source[chosen], target[chosen]
    new = start[ids[start] == 0]
    ids[new], direction[new] = new.astype(np.int64) + 1 + len(ids), FLOW_OUT
    ids[end], direction[end] = ids[start], FLOW_IN
    findings.add(
        "arrows_not_drawn",
        "arrows of the source could not be drawn: an event of XProf has room for one arrow, and "
        "the one from the launch to its device work comes first",
        int(np.count_nonzero(~drawn)) - len(chosen),
    )


def _stat(ids: NDArray[np.integer], direction: NDArray[np.uint8] | int) -> NDArray[np.uint64]:
    stat = ids.astype(np.uint64)
    stat <<= np.uint64(2)
    stat |= np.asarray(direction, np.uint64)
    stat |= np.uint64(_FLOW_CATEGORY << 58)
    return stat


def _place(rows: NDArray[np.intp], start: Int64, end: Int64, fits: Bools, resolution: int) -> int:
    """Mark which rows fit one flat sequence; writes ``fits``, and ``end`` where it rounds."""
    if not np.any(start[rows][1:] < np.maximum.accumulate(end[rows])[:-1]):
        return 0
    rounded = 0
    last, last_start, reach = NONE, NONE, np.iinfo(np.int64).min
    for row, begin, stop in zip(
        rows.tolist(), start[rows].tolist(), end[rows].tolist(), strict=True
    ):
        if begin < reach:
            if reach - begin > resolution or begin == last_start or stop < reach:
                fits[row] = False
                continue
            end[last] = begin
            rounded += 1
        last, last_start, reach = row, begin, stop
    return rounded


def _apart(start: Int64, end: Int64, placed: NDArray[np.intp], starts: Int64, ends: Int64) -> Bools:
    """Which intervals touch none of the rows ``placed``, a flat sequence in order of time."""
    before = np.searchsorted(ends[placed], start, side="right")
    begun = np.searchsorted(starts[placed], end, side="left")
    return begun <= before


def _identity(name: str, taken: set[int]) -> int:
    number = stable_hash(name, bits=_IDENTITY_BITS)
    while number in taken:
        number += 1
    return number


def _runs(values: Int32) -> Iterable[tuple[int, int]]:
    bounds = np.flatnonzero(np.diff(values, prepend=NONE - 1, append=NONE - 1))
    return zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)


def _counts(values: Int32) -> Int64:
    return np.bincount(values)[values]


def _category(name: str, transfer: bool, linked: bool) -> str:
    """XProf's grouping of operators; only what a name proves, else ``operator``."""
    for category, pattern in _COLLECTIVES.items():
        if pattern.search(name):
            return category
    if _MATMUL.fullmatch(name):
        return "matmul"
    if _CONVOLUTION.fullmatch(name):
        return "convolution"
    if transfer:
        return "copy"
    return "operator" if linked else "kernel"


def _path(name: str, taken: set[str]) -> str:
    """``path:type`` for an operator's name, different for every name of ``taken``.

    XProf parses the type only as a lower-case identifier, and the path only without ``::``.
    """
    kind = re.sub(r"[^a-z0-9_]+", "_", name.lower()).lstrip("_")[:_LONGEST_TYPE] or "operator"
    if kind[0].isdigit():
        kind = f"op_{kind}"
    base = re.sub(r"[^A-Za-z0-9_./-]+", "_", name.replace("::", ".")).lstrip("_/-.") or "operator"
    path, number = base, 1
    while path in taken:
        number += 1
        path = f"{base}_{number}"
    taken.add(path)
    return f"{path}:{kind}"
