"""Tables of host and device time: by operator, by kernel, by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neuron_tb.analysis.absence import why_no_device_time
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import NONE, Executions, Int32, Int64, Role, Source, Trace
from neuron_tb.converters.model.lanes import lay_out, self_time, union_length

if TYPE_CHECKING:
    import pandas
    import pyarrow

LOWER_BOUND_FINDINGS = ("events_dropped", "windows_beside_measurements")
GROUPINGS = ("op", "kernel", "step")
EXECUTION_NAME = "nc_exec_running"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a summary. Times are microseconds; None means not known, never 0.

    ``calls``: operator calls, or executions in rows of device work. ``cpu_self_us``: without
    the operators inside. ``device_total_us``: device work of the operator and those inside it;
    ``device_self_us``: its own. ``device_percent``: self of the capture's total, for measured
    time only. ``device_source``: ``measured``, ``window`` or None.
    """

    name: str
    calls: int
    cpu_total_us: float | None
    cpu_self_us: float | None
    device_total_us: float | None
    device_self_us: float | None
    device_percent: float | None
    device_source: str | None

    def as_dict(self) -> dict[str, Any]:
        """The JSON form; field names are stable."""
        return {name: getattr(self, name) for name in COLUMNS}


COLUMNS = (
    "name",
    "calls",
    "cpu_total_us",
    "cpu_self_us",
    "device_total_us",
    "device_self_us",
    "device_percent",
    "device_source",
)


@dataclass(frozen=True, slots=True)
class Summary:
    """Rows in descending order of device self time, then CPU self time.

    ``device_total_us``: the sum of measured device time, or the union of windows where nothing
    was measured, or None. ``lower_bound``: the source says that it dropped events.
    ``note``: why device time is missing, if it is.
    """

    by: str
    rows: list[Row]
    device_total_us: float | None
    device_source: str | None
    lower_bound: bool
    note: str | None
    findings: Findings

    def as_dict(self) -> dict[str, Any]:
        """The JSON form that ``neuron-tb summary --format json`` prints."""
        return {
            "rows": [row.as_dict() for row in self.rows],
            "device_total_us": self.device_total_us,
            "device_source": self.device_source,
            "device_total_is_lower_bound": self.lower_bound,
            "note": self.note,
            "findings": self.findings.as_dicts(),
        }

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a data frame with the columns of ``Row``."""
        import pandas as pd

        rows = [row.as_dict() for row in self.rows]
        frame: pandas.DataFrame = pd.DataFrame(rows, columns=list(COLUMNS))
        return frame

    def to_arrow(self) -> pyarrow.Table:
        """The rows as an Arrow table with the columns of ``Row``."""
        import pyarrow as pa

        text, number = pa.string(), pa.float64()
        types = {"name": text, "calls": pa.int64(), "device_source": text}
        schema = pa.schema([(name, types.get(name, number)) for name in COLUMNS])
        return pa.Table.from_pylist([row.as_dict() for row in self.rows], schema=schema)

    def sorted_by(self, key: str) -> Summary:
        """The same rows in descending order of a column (``name`` ascends); None comes last."""
        from dataclasses import replace

        if key not in COLUMNS:
            raise ValueError(f"no column {key!r}; columns are {', '.join(COLUMNS)}")
        present = [r for r in self.rows if getattr(r, key) is not None]
        absent = [r for r in self.rows if getattr(r, key) is None]
        present.sort(key=lambda row: getattr(row, key), reverse=key != "name")
        return replace(self, rows=present + absent)


def summarize(trace: Trace, by: str = "op") -> Summary:
    """Host and device time by ``op``, ``kernel`` or ``step``.

    The CPU columns count operators; a call nested in another of the same name is not counted
    twice in totals. Device time of an execution belongs to the innermost operator that issued
    it. Windows of queued work overlap, so their totals are unions and have no percentage.
    """
    makers: dict[str, Callable[[_Context], list[Row]]] = {
        "op": _by_operator,
        "kernel": _by_kernel,
        "step": _by_step,
    }
    if by not in makers:
        raise ValueError(f"cannot group by {by!r}; choose from {', '.join(GROUPINGS)}")
    context = _Context(trace)
    rows = makers[by](context)
    if by != "step":
        rows.sort(key=lambda r: (r.device_self_us or 0.0, r.cpu_self_us or 0.0), reverse=True)
    return Summary(
        by,
        rows,
        context.device_total_us,
        context.source,
        any(trace.findings.of_kind(kind) for kind in LOWER_BOUND_FINDINGS),
        why_no_device_time(trace),
        trace.findings,
    )


class _Context:
    """The executions that count, and the capture's total."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        executions = trace.executions
        self.work: Executions = executions.take(executions.counted)
        self.measured = self.work.source == Source.MEASURED
        self.total_ns: int | None = None
        self.source: str | None = None
        if self.measured.any():
            self.total_ns = int(self.work.duration_ns[self.measured].sum())
            self.source = "measured"
        elif len(self.work):
            self.total_ns = self.window_ns(np.arange(len(self.work)))
            self.source = "window"

    @property
    def device_total_us(self) -> float | None:
        return None if self.total_ns is None else self.total_ns / 1000

    def window_ns(self, rows: NDArray[np.intp]) -> int:
        """Union of windows, core by core."""
        work = self.work
        return sum(
            union_length(work.start_ns[mine], work.end_ns[mine])
            for device in np.unique(work.device[rows])
            for mine in [rows[work.device[rows] == device]]
        )

    def device_ns(self, rows: NDArray[np.intp]) -> tuple[int | None, str | None]:
        """Device time of some executions and its source: measured time, else a union of windows."""
        measured = rows[self.measured[rows]]
        if len(measured):
            return int(self.work.duration_ns[measured].sum()), "measured"
        if len(rows):
            return self.window_ns(rows), "window"
        return None, None

    def row(
        self,
        name: str,
        calls: int,
        cpu: tuple[int, int] | None,
        total: NDArray[np.intp],
        own: NDArray[np.intp],
    ) -> Row:
        """A line from CPU (total, self) nanoseconds and positions of its executions."""
        total_ns, source = self.device_ns(total)
        self_ns, own_source = self.device_ns(own)
        if self_ns is None and source == "measured":
            self_ns, own_source = 0, "measured"  # known to have none of its own
        percent = None
        if own_source == "measured" and self.source == "measured" and self.total_ns:
            percent = 100 * (self_ns or 0) / self.total_ns
        return Row(
            name,
            calls,
            None if cpu is None else cpu[0] / 1000,
            None if cpu is None else cpu[1] / 1000,
            None if total_ns is None else total_ns / 1000,
            None if self_ns is None else self_ns / 1000,
            percent,
            source,
        )


def _by_operator(context: _Context) -> list[Row]:
    trace, slices, work = context.trace, context.trace.slices, context.work
    operators = np.flatnonzero(trace.roles(Role.OPERATOR)).astype(np.int32)
    name = slices.name[operators]
    duration = slices.duration_ns[operators]
    parent = operator_parents(trace, operators)
    own_cpu = self_time(parent, duration)
    outermost = ~_inside_same_name(parent, name)
    position = np.full(len(slices) + 1, NONE, np.int32)
    position[operators] = np.arange(len(operators), dtype=np.int32)
    operator = position[work.operator]
    linked = np.flatnonzero(operator != NONE)
    below, names_below = _ancestor_names(operator[linked], linked, parent, name)
    calls_of, total_of = _groups(name), _groups(names_below)
    self_of = _groups(name[operator[linked]])
    nothing = np.empty(0, np.intp)
    rows = []
    for number, members in calls_of.items():
        cpu = (int(duration[members][outermost[members]].sum()), int(own_cpu[members].sum()))
        total = below[total_of.get(number, nothing)]
        own = linked[self_of.get(number, nothing)]
        rows.append(context.row(trace.strings[number], len(members), cpu, total, own))
    unlinked = np.flatnonzero(operator == NONE)
    for number, members in _groups(work.name[unlinked]).items():
        own = unlinked[members]
        label = f"{trace.strings[number]} (no operator)"
        rows.append(context.row(label, len(own), None, own, own))
    return rows


def _by_kernel(context: _Context) -> list[Row]:
    trace, work = context.trace, context.work
    own_name = trace.slices.name[work.slice]
    # Every execution of a NeuronCore has the same row name; the operator's tells them apart.
    generic = [number for number, text in enumerate(trace.strings) if text == EXECUTION_NAME]
    name = np.where(np.isin(own_name, generic), work.name, own_name)
    return [
        context.row(trace.strings[number], len(members), None, members, members)
        for number, members in _groups(name).items()
    ]


def _by_step(context: _Context) -> list[Row]:
    trace, steps, work = context.trace, context.trace.steps, context.work
    several = len(np.unique(steps.process)) > 1
    rows = []
    for step in range(len(steps)):
        label = steps.label(step)
        label = label if steps.slice[step] == NONE else f"step {label}"
        if several:
            label += f" ({process_label(trace, int(steps.process[step]))})"
        host = int(steps.end_ns[step] - steps.start_ns[step])
        mine = np.flatnonzero(work.step == step)
        rows.append(context.row(label, len(mine), (host, host), mine, mine))
    outside = np.flatnonzero(work.step == NONE)
    if len(outside):
        rows.append(context.row("(outside steps)", len(outside), None, outside, outside))
    return rows


def process_label(trace: Trace, process: int) -> str:
    """What to call a process: its rank, or its process id."""
    info = trace.processes[process]
    twins = sum(other.rank == info.rank for other in trace.processes)
    return f"rank {info.rank}" if info.rank is not None and twins == 1 else f"pid {info.pid}"


def operator_parents(trace: Trace, operators: Int32) -> Int32:
    """For operators (rows of slices) the position of the operator around each, NONE at the top."""
    slices = trace.slices
    layout = lay_out(
        slices.track[operators],
        slices.start_ns[operators],
        slices.duration_ns[operators],
        trace.clock.resolution_ns,
    )
    return layout.parent


def _inside_same_name(parent: Int32, name: Int32) -> NDArray[np.bool_]:
    inside = np.zeros(len(parent), np.bool_)
    above = parent.copy()
    while (above != NONE).any():
        known = above != NONE
        inside |= known & (name[above] == name)
        above = np.where(known, parent[above], NONE)
    return inside


def _ancestor_names(
    operator: Int32, execution: NDArray[np.intp], parent: Int32, name: Int32
) -> tuple[NDArray[np.intp], Int32]:
    """Distinct pairs (execution, name of its operator or of one around it), as two columns."""
    pairs: list[NDArray[np.int64]] = []
    here = operator
    names = int(name.max(initial=0)) + 1
    while len(here):
        pairs.append(execution.astype(np.int64) * names + name[here])
        here = parent[here]
        execution, here = execution[here != NONE], here[here != NONE]
    if not pairs:
        return np.empty(0, np.intp), np.empty(0, np.int32)
    distinct = np.unique(np.concatenate(pairs))
    return (distinct // names).astype(np.intp), (distinct % names).astype(np.int32)


def _groups(keys: Int32 | Int64) -> dict[int, NDArray[np.intp]]:
    """Positions of each distinct key, in order of first appearance."""
    if not len(keys):
        return {}
    order = np.argsort(keys, kind="stable")
    bounds = np.flatnonzero(np.diff(keys[order])) + 1
    groups: Sequence[NDArray[np.intp]] = np.split(order, bounds)
    return {int(keys[group[0]]): group for group in sorted(groups, key=lambda g: int(g[0]))}
