"""A Neuron device profile as a Trace: engines, DMA queues, collectives and their counters.

A device profile is of one logical NeuronCore, and its times are nanoseconds after its own start:
the Trace has a relative clock, one process, and one device that only holds details
(``Device.detail``). What places it on another time line, and the figures for a roofline, stand
in ``Trace.metadata[0]["device_profiles"]``.

Engine rows come from ``ActiveTime``, the merged busy intervals; where that table is absent, they
are merged from the instructions. Single instructions, DMA packets and semaphores are drawn when
they are asked for.

``pcore_idx`` here is 0 or 1 inside the logical core, not the number of a core on its chip as in
the system tables, where a column has the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import (
    NONE,
    Clock,
    ClockKind,
    Counters,
    Device,
    Float64,
    Flows,
    Instants,
    Int32,
    Int64,
    Process,
    Role,
    Slices,
    StringTable,
    Trace,
    Track,
    TrackKind,
)
from neuron_tb.converters.model.numbers import PERCENT, integer
from neuron_tb.converters.readers.context import Context
from neuron_tb.converters.readers.device import schema as schema
from neuron_tb.converters.readers.device.facts import facts_of
from neuron_tb.converters.readers.device.names import (
    METADATA_KEY,
    SHARED_TABLES,
    SYSTEM_EVENTS,
    TABLES,
)
from neuron_tb.converters.readers.device.tables import (
    DeviceTables,
    distinct,
    find_ids,
    integers_of,
    merged,
    numbers_of,
    open_parquet,
    sorts,
    texts_of,
)
from neuron_tb.converters.readers.json.texts import json_texts
from neuron_tb.converters.readers.values import ArgumentStore

CATEGORY = "device_profile"
"""The category of every slice and instant of a device profile."""

_START, _LENGTH = "start of the row", "length of the row"
_TIME_COLUMNS = (
    "start_ts",
    "end_ts",
    "duration_ns",
    "timestamp",
    "duration",
    "execution_start_ts",
    "execution_end_ts",
)
_FLOW_TABLES = {"instruction": "Instruction", "dma_block": "DmaPacketAggregated"}


def read(path: Path, context: Context, instructions: bool = False) -> Trace:
    """Read the device tables of a directory, or one table file."""
    return read_tables(open_parquet(path), context, instructions)


def read_tables(tables: DeviceTables, context: Context, instructions: bool = False) -> Trace:
    """The Trace of a device profile's tables, with single instructions when they are asked for.

    Rows are put in order of time, so that the order in which a table holds them is no matter.
    Raises NeuronTbError when no table is one that is known here.
    """
    if not set(tables.names) & set(TABLES):
        raise NeuronTbError(
            f"{tables.path} holds no table of a device profile that is known here, only "
            f"{', '.join(tables.names) or 'nothing'}."
        )
    return _Builder(tables, context, instructions).build()


class _Row(NamedTuple):
    """A row or counter of the profile; they stand in the order of these fields."""

    counter: bool
    order: int
    label: str
    core: int
    unit: str = ""


class _Builder:
    """Collects the rows of one profile; tracks are numbered when all are known."""

    def __init__(self, tables: DeviceTables, context: Context, instructions: bool) -> None:
        self._tables, self._in_detail = tables, instructions
        self.findings = Findings()
        self._strings, self._store = StringTable(), ArgumentStore()
        self._places: dict[_Row, int] = {}
        self._slices: list[Slices] = []
        self._instants: list[Instants] = []
        self._counters: list[Counters] = []
        self._ids: dict[str, tuple[Int64, Int64]] = {}
        self._facts = facts_of(tables, context)

    def build(self) -> Trace:
        for spec in schema.SLICE_TABLES:
            if spec.in_detail and not self._in_detail:
                self._leave_out(spec.table)
            else:
                self._add_slices(spec, self._prepared(spec.table))
        if "ActiveTime" not in self._tables.names:
            self._add_merged_instructions()
        for table in schema.COUNTER_TABLES:
            if table in schema.COUNTERS_IN_DETAIL and not self._in_detail:
                self._leave_out(table)
            else:
                self._add_counters(table)
        self._report_source()
        return self._finish()

    # -- tables -----------------------------------------------------------------------------

    def _prepared(self, name: str) -> pa.Table | None:
        """A table in order of time, with start and length columns of its own; no row without time.

        Rows of equal time are put in the order of their content.
        """
        table = self._tables.read(name)
        if table is None or not len(table):
            return None
        table = _with_own_columns(name, table)
        start, length = self._times(name, table)
        usable = start != NONE
        self.findings.add(
            "no_time",
            f"rows of {name} without a time were left out",
            int(np.count_nonzero(~usable)),
        )
        table = table.append_column(_START, pa.array(start))
        table = table.append_column(_LENGTH, pa.array(length)).filter(pa.array(usable))
        keys = [(_START, "ascending"), (_LENGTH, "descending")]
        keys += [(c, "ascending") for c in sorted(table.column_names) if sorts(table[c].type)]
        return table.take(pc.sort_indices(table, sort_keys=list(dict.fromkeys(keys))))

    def _times(self, name: str, table: pa.Table) -> tuple[Int64, Int64]:
        """Starts (NONE without one) and lengths (NONE where not known), nanoseconds."""
        start, end, length = (
            self._nanoseconds(name, table, *columns)
            for columns in (
                ("start_ts", "timestamp", "execution_start_ts"),
                ("end_ts", "execution_end_ts"),
                ("duration_ns", "duration"),
            )
        )
        by_end = (length == NONE) & (end >= start) & (start != NONE)
        return start, np.where(by_end, end - start, length)

    def _nanoseconds(self, name: str, table: pa.Table, *columns: str) -> Int64:
        """The first of these columns that is there, by the unit that the profile states."""
        times, unit = self._tables.nanoseconds(name, table, *columns)
        if unit is not None:
            self.findings.add(
                "unit_unknown",
                f"rows of {name} were left out: their time is in {unit}, which is no unit that "
                "is known here",
                len(table),
            )
        return times

    def _report_source(self) -> None:
        """What the profile says of itself, and what of it is not known here."""
        version = str((self._facts["Metadata"] or [{}])[0].get("profile_schema_version") or "")
        major = version.partition(".")[0]
        if major.isdigit() and int(major) > schema.KNOWN_MAJOR:
            self.findings.add(
                "newer_version",
                f"the device profile's schema is version {version}, newer than the one that is "
                f"known here ({schema.KNOWN_VERSION}): what has its old name is read",
                where=self._tables.name,
            )
        if SYSTEM_EVENTS in self._tables.names:
            return  # the system profile in the same directory reports what both share
        others = [n for n in self._tables.names if n not in {*TABLES, *SHARED_TABLES}]
        self.findings.add(
            "table_not_read",
            f"tables that are not read here: {', '.join(others)}",
            len(others),
            where=str(self._tables.path),
        )
        for row in self._tables.rows("Warning"):
            text = str(row.get("message") or ", ".join(str(v) for v in row.values() if v))
            self.findings.add(
                "device_events_dropped" if "drop" in text.lower() else "source_warning",
                f"the device profile warns: {text.rstrip('.')}",
                where=self._tables.name,
            )

    def _report_columns(self, name: str, table: pa.Table) -> None:
        unknown = [
            c
            for c in table.column_names
            if not schema.is_known(name, c) and self._tables.schema_of(name, c) is None
        ]
        self.findings.add(
            "unknown_columns",
            f"columns of {name} that are not known here are kept as arguments: "
            f"{', '.join(unknown)}",
            len(unknown),
        )

    def _leave_out(self, name: str) -> None:
        self.findings.add(
            "details_left_out",
            f"rows of {name} were left out; --instructions draws them",
            self._tables.count(name),
        )

    # -- slices -----------------------------------------------------------------------------

    def _add_slices(self, spec: schema.SliceTable, table: pa.Table | None) -> None:
        if table is None or not len(table):
            return
        self._report_columns(spec.table, self._tables.read(spec.table) or table)
        places, place = distinct(table, [*spec.by, schema.CORE])
        labels, orders = zip(*(spec.place(row) for row in places), strict=True)
        tracks = [
            self._place(_Row(False, order, label, _core(row)))
            for label, order, row in zip(labels, orders, places, strict=True)
        ]
        track = np.array(tracks, np.int64)[place]
        name = self._names(table, spec.names, labels, place)
        text, lengths = json_texts(table, _arguments_of(spec, table))
        starts, sizes = self._store.add_joined(text, lengths)
        start, length = integers_of(table, _START), integers_of(table, _LENGTH)
        self._ids[spec.table] = (
            integers_of(table, "id"),
            self._keep(start, length, name, track, starts, sizes),
        )

    def _keep(
        self, start: Int64, length: Int64, name: Int32, track: Int64, args: Int64, sizes: Int32
    ) -> Int64:
        """Rows without a length are instants. Returns the slice of each row, NONE for those."""
        point = length == NONE
        self.findings.add(
            "unfinished",
            "rows without a duration are shown as instants",
            int(np.count_nonzero(point)),
        )
        n = len(start)
        category = np.full(n, self._strings.intern(CATEGORY), np.int32)
        none = np.full(n, NONE, np.int64)
        role = np.full(n, Role.DEVICE_DETAIL, np.uint8)
        first = sum(map(len, self._slices))
        rows = track.astype(np.int32)
        ids = (none, none, none, none)
        slices = Slices(start, length, name, category, rows, role, *ids, args, sizes)
        self._slices.append(slices.take(~point))
        self._instants.append(Instants(start, name, category, rows, args, sizes).take(point))
        return np.where(point, NONE, first + np.cumsum(~point) - 1)

    def _names(
        self,
        table: pa.Table,
        columns: tuple[str, ...],
        labels: Sequence[str],
        place: NDArray[np.intp],
    ) -> Int32:
        """The first known of these columns, else the row's own label; positions of strings."""
        name = np.array([self._strings.intern(label) for label in labels], np.int32)[place]
        for column in reversed([c for c in columns if c in table.column_names]):
            values, which = distinct(table, [column])
            known = np.array([row[column] not in (None, "") for row in values], np.bool_)
            numbers = np.array(
                [
                    self._strings.intern(str(row[column])) if good else NONE
                    for row, good in zip(values, known, strict=True)
                ],
                np.int32,
            )
            name = np.where(known[which], numbers[which], name)
        return name

    def _add_merged_instructions(self) -> None:
        """Busy intervals of the engines, where no table has them."""
        table = self._prepared("Instruction")
        if table is None or not len(table):
            return
        table = table.filter(pc.greater_equal(table[_LENGTH], 0))
        places, place = distinct(table, ["engine", "label", schema.CORE])
        starts, lengths = integers_of(table, _START), integers_of(table, _LENGTH)
        for number, row in enumerate(places):
            mine = place == number
            label, order = schema.ACTIVE.place(row)
            start, end = merged(starts[mine], lengths[mine])
            n = len(start)
            track = self._place(_Row(False, order, label, _core(row)))
            self._keep(
                start,
                end - start,
                np.full(n, self._strings.intern(label), np.int32),
                np.full(n, track, np.int64),
                np.zeros(n, np.int64),
                np.zeros(n, np.int32),
            )
        self.findings.add(
            "engine_time_merged",
            "the profile has no ActiveTime table: busy intervals of its engines were merged from "
            "instructions",
        )

    def _place(self, row: _Row) -> int:
        return self._places.setdefault(row, len(self._places))

    # -- counters ---------------------------------------------------------------------------

    def _add_counters(self, name: str) -> None:
        table = self._prepared(name)
        if table is None or not len(table):
            return
        by = ["id", schema.CORE] if name == "SemaphoreUpdate" else [schema.CORE]
        places, place = distinct(table, by)
        time = integers_of(table, _START)
        columns = [c for c in table.column_names if c not in (_START, _LENGTH)]
        for column in schema.counter_columns(name, columns):
            values = numbers_of(table, column)
            known = np.isfinite(values)
            if not known.any():
                continue
            scale, unit = self._unit(name, column, values[known])
            for number, row in enumerate(places):
                mine = known & (place == number)
                label = schema.counter_label(name, column)
                if name == "SemaphoreUpdate":
                    label = f"Semaphore {row.get('id')}"
                track = self._place(_Row(True, 0, label, _core(row), unit))
                n = int(np.count_nonzero(mine))
                tracks = np.full(n, track, np.int32)
                self._counters.append(Counters(time[mine], values[mine] * scale, tracks))

    def _unit(self, table: str, column: str, values: Float64) -> tuple[float, str]:
        """What to multiply a counter's values by, and their unit then."""
        unit = schema.counter_unit(column)
        if table == "Throttle":
            return 1.0, unit
        if unit != "%":
            return 1.0, unit or self._tables.unit_of(table, column) or ""
        if np.max(np.abs(values)) > 1.0:
            return PERCENT, "%"
        scale: float | None = self._facts["percent_scale"]
        if scale is not None:
            return scale, "%"
        self.findings.add(
            "percent_or_fraction",
            "counters whose name says percent stay as recorded: nothing in the profile tells "
            "whether they are percentages or fractions",
        )
        return 1.0, "percent or fraction, as recorded"

    # -- the whole --------------------------------------------------------------------------

    def _finish(self) -> Trace:
        tables = self._tables
        facts = self._facts
        metadata = (facts["Metadata"] or [{}])[0]
        core = facts["core"]
        index = max(integer(metadata.get("neuroncore_idx")), 0) if core is None else core
        trace = Trace(tables.name, findings=self.findings, sources=[str(tables.path)])
        trace.clock = Clock(ClockKind.RELATIVE)
        trace.processes = [
            Process(
                facts["host"],
                facts["pid"] or 0,
                name=f"device profile {tables.name}",
                source=tables.path.name,
            )
        ]
        known = core is not None or integer(metadata.get("neuroncore_idx")) >= 0
        label = f"NeuronCore {index} engines" if known else "NeuronCore engines"
        trace.devices = [Device(0, index, "neuron", label, detail=True)]
        number = self._add_tracks(trace, integer(metadata.get("num_physical_cores")))
        slices, instants = Slices.concatenate(self._slices), Instants.concatenate(self._instants)
        counters = Counters.concatenate(self._counters)
        slices.track, instants.track = number[slices.track], number[instants.track]
        counters.track = number[counters.track]
        trace.slices, trace.instants, trace.counters = slices, instants, counters
        trace.flows = self._flows(slices)
        trace.strings, trace.arguments = self._strings.strings, self._store.arguments()
        first, last = trace.time_range()
        trace.metadata = [{METADATA_KEY: [{**facts, "first_ns": first, "last_ns": last}]}]
        return trace

    def _add_tracks(self, trace: Trace, physical_cores: int) -> Int32:
        """Number the tracks by position and name; returns the number of each place."""
        several = physical_cores > 1 or any(row.core > 0 for row in self._places)
        number = np.zeros(len(self._places), np.int32)
        for position, row in enumerate(sorted(self._places)):
            number[self._places[row]] = position
            inner = several and row.core != NONE
            name = f"{row.label} (inner core {row.core})" if inner else row.label
            kind = TrackKind.COUNTER if row.counter else TrackKind.DEVICE
            trace.tracks.append(
                Track(0, kind, name, position, 0, sort_index=position, unit=row.unit)
            )
        return number

    def _flows(self, slices: Slices) -> Flows:
        """The profile's own dependencies, drawn from the earlier row to the later one."""
        table = self._tables.read("Flow") if self._in_detail else None
        if table is None or not len(table):
            return Flows.empty()
        ends = []
        for side in ("in", "out"):
            row = np.full(len(table), NONE, np.int64)
            ids = integers_of(table, f"{side}_id")
            kinds = np.array(texts_of(table, f"{side}_table"))
            for word, name in _FLOW_TABLES.items():
                if name in self._ids:
                    mine = kinds == word
                    row[mine] = find_ids(ids[mine], *self._ids[name])
            ends.append(row)
        found = (ends[0] != NONE) & (ends[1] != NONE)
        self.findings.add(
            "flow_unpaired",
            "dependencies whose rows are not drawn were left out",
            int(np.count_nonzero(~found)),
        )
        one, other = ends[0][found], ends[1][found]
        swap = slices.start_ns[one] > slices.start_ns[other]
        source, target = np.where(swap, other, one), np.where(swap, one, other)
        order = np.lexsort((target, source))
        kind = np.full(len(one), self._strings.intern("dependency"), np.int32)
        return Flows(source[order].astype(np.int32), target[order].astype(np.int32), kind)


def _with_own_columns(name: str, table: pa.Table) -> pa.Table:
    """Columns that are made of others: names and limits of rows that have none."""
    if name == "ExecutionInfo":
        index, neff = texts_of(table, "execution_index"), texts_of(table, "neff_name")
        names = [n or f"execution {i}" for i, n in zip(index, neff, strict=True)]
        return table.append_column("name", pa.array(names, pa.string()))
    if name == "Throttle":
        k, n = numbers_of(table, "k"), numbers_of(table, "n")
        known = np.isfinite(k) & np.isfinite(n) & (n > 0)
        limit = np.where(known, 100 * np.where(known, k, 0) / np.where(known, n, 1), np.nan)
        kinds = texts_of(table, "type")
        texts = [
            f"{kind or 'throttled'} {a:g}/{b:g}" if np.isfinite(a) and np.isfinite(b) else kind
            for kind, a, b in zip(kinds, k.tolist(), n.tolist(), strict=True)
        ]
        table = table.append_column("limit", pa.array(texts, pa.string()))
        return table.append_column("limit_percent", pa.array(limit))
    return table


def _arguments_of(spec: schema.SliceTable, table: pa.Table) -> list[str]:
    """Columns that neither time nor place a row."""
    shown_otherwise = {*_TIME_COLUMNS, schema.CORE}
    own = {_START, _LENGTH, "limit", "limit_percent", "name"}
    return sorted(c for c in table.column_names if c not in shown_otherwise | own)


def _core(row: dict[str, Any]) -> int:
    return max(integer(row.get(schema.CORE)), NONE)
