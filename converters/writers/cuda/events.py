"""The events of one file in CUDA's words, before they become lines.

What the PyTorch Profiler plugin and HTA need alike stands here; what only one of them needs
stands in its writer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import (
    NONE,
    Bools,
    Counters,
    Float64,
    Instants,
    Int32,
    Int64,
    MemoryEvents,
    Role,
    StringTable,
    Trace,
)
from neuron_tb.converters.model.ragged import Ragged, chunks, decimals, distinct_rows, used
from neuron_tb.converters.writers.chrome_json import (
    EventFile,
    counter_lines,
    doubles,
    finite_counters,
    flow_lines,
    heads_of,
    instant_lines,
    microseconds,
    quoted,
    slice_lines,
)
from neuron_tb.converters.writers.cuda.translation import Translation
from neuron_tb.converters.writers.cuda.words import (
    CATEGORY_OF_KIND,
    WINDOW_NOTE,
    Kind,
    transfer_name,
)
from neuron_tb.converters.writers.edits import EXTERNAL_ID, SOURCE, Edits

ADDED = "added by neuron_tb"
"""The argument that marks events which the source does not have; its value says why."""

_POINT = "cpu_instant_event"

MEMORY = "[memory]"
"""The name of PyTorch's memory events."""

LAUNCH_NOT_RECORDED = (
    "marks the operator that caused the device work; the launch itself was not recorded"
)
_FAMILIES_WITHOUT_KERNEL_NAMES = ("neuron", "privateuse1")
_LARGEST_FRESH = 2**52


@dataclass
class Events:
    """Complete events as columns of shape (n,): first a translation's rows, then added ones.

    ``category`` and ``name`` are positions in ``words``. ``edits``: what changes in the source's
    arguments. ``exact_us``: replaces the text of single durations, NaN elsewhere; None: of none.
    """

    translation: Translation
    base_ns: int
    words: StringTable
    start_ns: Int64
    duration_ns: Int64
    category: Int32
    name: Int32
    place: Int32
    edits: Edits
    own_rows: int
    exact_us: Float64 | None = None
    _added: list[Int64] = field(default_factory=list)

    @classmethod
    def of(cls, translation: Translation, base_ns: int) -> Events:
        """All rows as they are in the source, at the translation's places."""
        words = StringTable(translation.trace.strings)
        return cls(
            translation,
            base_ns,
            words,
            translation.start_ns.copy(),
            translation.duration_ns.copy(),
            translation.category,
            translation.name,
            translation.place.copy(),
            Edits(len(translation.rows), words),
            len(translation.rows),
        )

    def set_category(self, rows: Bools | NDArray[Any], category: str) -> None:
        """Give rows a category."""
        self.category[rows] = self.words.intern(category)

    def recategorise(self, rows: NDArray[np.integer], category: str | Int32) -> None:
        """Give rows a category (or one each); another one stays as ``source category``."""
        code = self.words.intern(category) if isinstance(category, str) else category
        self._replace(self.category, rows, code, SOURCE + "category")

    def rename(self, rows: NDArray[np.integer], name: str | Int32) -> None:
        """Give rows a name (or one each); another one stays as ``source name``."""
        code = self.words.intern(name) if isinstance(name, str) else name
        self._replace(self.name, rows, code, SOURCE + "name")

    def _replace(
        self, column: Int32, rows: NDArray[np.integer], code: Int32 | int, key: str
    ) -> None:
        new = np.broadcast_to(np.asarray(code, np.int32), rows.shape)
        differs = column[rows] != new
        rows = rows[differs]
        if len(rows):
            self.edits.set_words(key, rows, column[rows])
            column[rows] = new[differs]

    def add(
        self,
        start_ns: Sequence[int] | Int64,
        duration_ns: Sequence[int] | Int64,
        category: str,
        names: Int32,
        places: Sequence[int] | Int32,
        why: str,
    ) -> NDArray[np.intp]:
        """Add events that the source does not have, and say so; returns their rows.

        ``names``: positions in the words.
        """
        first, n = len(self.start_ns), len(names)
        self.start_ns = np.append(self.start_ns, np.asarray(start_ns, np.int64))
        self.duration_ns = np.append(self.duration_ns, np.asarray(duration_ns, np.int64))
        kind = np.full(n, self.words.intern(category), np.int32)
        self.category = np.append(self.category, kind)
        self.name = np.append(self.name, names.astype(np.int32))
        self.place = np.append(self.place, np.asarray(places, np.int32))
        if self.exact_us is not None:
            self.exact_us = np.append(self.exact_us, np.full(n, np.nan))
        self.edits.extend(n)
        rows = np.arange(first, first + n)
        self.edits.set_words(ADDED, rows, self.words.intern(why))
        return rows

    @property
    def added(self) -> int:
        """How many events the source does not have."""
        return len(self.start_ns) - self.own_rows

    def set_durations(self, rows: NDArray[np.integer], microseconds: Float64) -> None:
        """Write these durations instead of the exact ones."""
        if self.exact_us is None:
            self.exact_us = np.full(len(self.start_ns), np.nan)
        self.exact_us[rows] = microseconds

    def lines(self) -> Iterator[Ragged]:
        """All events, in order of time, parents before their children."""
        order = np.lexsort((-self.duration_ns, self.start_ns))
        heads, head = heads_of(self.words.strings, self.category, self.name)
        places = self.translation.places.texts()
        for part in chunks(len(order)):
            rows = order[part]
            yield slice_lines(
                heads.take(head[rows]),
                places.take(self.place[rows]),
                microseconds(self.start_ns[rows] - self.base_ns),
                self._durations(rows),
                self._arguments(rows),
            )

    def _durations(self, rows: NDArray[np.intp]) -> Ragged:
        texts = microseconds(self.duration_ns[rows])
        if self.exact_us is None:
            return texts
        here = np.flatnonzero(~np.isnan(self.exact_us[rows]))
        return texts.replaced(here, doubles(self.exact_us[rows[here]]))

    def _arguments(self, rows: NDArray[np.intp]) -> Ragged:
        trace, own = self.translation.trace, rows < self.own_rows
        source = self.translation.rows[np.where(own, rows, 0)] if self.own_rows else rows
        lengths = np.where(own, trace.slices.args_length[source], 0) if self.own_rows else 0 * rows
        starts = trace.slices.args_start[source] if self.own_rows else 0 * rows
        return self.edits.many(trace.arguments, starts, lengths, rows)


def external_ids(translation: Translation, operators: Int32) -> tuple[Int64, NDArray[np.intp]]:
    """A positive ``External id`` per row, unique where it matters, and the rows that got a new one.

    ``operators``: rows (NONE is ignored) that calls refer to. Their ids must be theirs
    alone among operators and annotations; rows without a usable id get one above all others.
    """
    slices = translation.trace.slices
    ids = slices.external_id[translation.rows].copy()
    among = np.isin(translation.role, (Role.OPERATOR, Role.ANNOTATION))
    rows = used(operators[operators != NONE])
    own = np.sort(ids[among])
    repeated = np.isin(ids[rows], own[1:][own[1:] == own[:-1]])
    new = rows[repeated | (ids[rows] <= 0)]
    ids[new] = fresh_numbers(ids, len(new))
    return ids, new


def fresh_numbers(taken: Int64, count: int) -> Int64:
    """Positive numbers that nobody has: above all others, or the lowest where those are huge."""
    highest = max(int(taken.max(initial=0)), 0)
    if highest < _LARGEST_FRESH:
        return highest + 1 + np.arange(count, dtype=np.int64)
    known = set(taken.tolist())
    free = (n for n in range(1, len(known) + count + 2) if n not in known)
    return np.fromiter(free, np.int64, count)


@dataclass(frozen=True, slots=True)
class Memory:
    """The process' memory events: which of ``names`` each is called, and its arguments' changes.

    ``devices``: the numbers of the devices that they name.
    """

    events: MemoryEvents
    names: tuple[str, str]
    name: Int32
    edits: Edits
    devices: set[int]


def translated_memory(t: Translation, most_devices: int, host_id: int | None = None) -> Memory:
    """The process' memory events in CUDA's words.

    Devices other than the host are CUDA's (type 1) with their number in the file; an event that
    names no known device gets another name. ``host_id`` replaces the host's ``Device Id``.
    """
    events = process_memory(t)
    index_of = {t.trace.devices[p].index: number for p, number in t.device_number.items()}
    only = next(iter(index_of.values())) if len(index_of) == 1 else NONE
    number = np.where(events.device_id < most_devices, events.device_id, NONE)
    for index, own in index_of.items():
        number[events.device_id == index] = own
    number[events.device_id == NONE] = only
    host = events.device_type == 0
    unknown = ~host & ((events.device_type == NONE) | (number < 0))
    edits = Edits(len(events), StringTable())
    if host_id is not None:
        edits.set_numbers("Device Id", np.flatnonzero(host), host_id)
    known = np.flatnonzero(~host & ~unknown)
    edits.set_numbers("Device Type", known, np.minimum(events.device_type[known], 1))
    edits.set_numbers("Device Id", known, number[known])
    t.findings.add(
        "memory_device_unknown",
        "memory events that name no known device do not count as memory events in the output",
        int(np.count_nonzero(unknown)),
    )
    names = (MEMORY, f"{MEMORY} (device unknown)")
    return Memory(events, names, unknown.astype(np.int32), edits, set(number[known].tolist()))


def kernel_names(translation: Translation) -> tuple[list[str], NDArray[np.intp]]:
    """What kernels are called: the different names, and which of them each kernel has.

    A NeuronCore execution is called like its operator (its own name, ``nc_exec_running``, says
    nothing); devices that name their kernels keep those names.
    """
    trace, kernels = translation.trace, translation.kernels
    executions = trace.executions.take(kernels.execution)
    unnamed = np.array(
        [d.family in _FAMILIES_WITHOUT_KERNEL_NAMES for d in trace.devices] or [False]
    )[executions.device]
    own = trace.slices.name[executions.slice]
    name = np.where(unnamed, executions.name, own)
    first, number = distinct_rows(name, kernels.kind)
    names = [
        transfer_name(trace.strings[n], Kind(kind))
        for n, kind in zip(name[first].tolist(), kernels.kind[first].tolist(), strict=True)
    ]
    return names, number


_KERNEL_WORDS = ("kernel", "concurrent_kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset")


def set_apart_what_does_not_count(events: Events) -> None:
    """Measured device rows that are no kernels of the file must not carry a kernel's category.

    They are further rows of an execution that is drawn once, or device events of the framework
    beside the cores' own intervals.
    """
    t = events.translation
    known = [n for n, text in enumerate(t.trace.strings) if text.lower() in _KERNEL_WORDS]
    beside = (t.kernel == NONE) & np.isin(t.category, known)
    events.recategorise(np.flatnonzero(beside), "device_row_not_counted")


def draw_kernels(events: Events, names: Int32, external_id: Int64) -> None:
    """Give every kernel's row its category, name, time and arguments.

    ``names``: of each kernel, position in the words. ``external_id``: one per kernel, 0 where
    it belongs to no operator.
    """
    t, edits = events.translation, events.edits
    kernels, slices = t.kernels, t.trace.slices
    rows = kernels.row
    own_start, own_duration = slices.start_ns[t.rows[rows]], slices.duration_ns[t.rows[rows]]
    differs = (own_start != kernels.start_ns) | (own_duration != kernels.duration_ns)
    events.start_ns[rows], events.duration_ns[rows] = kernels.start_ns, kernels.duration_ns
    edits.set_numbers("device", rows, kernels.device)
    edits.set_numbers("stream", rows, kernels.stream)
    edits.set_numbers("correlation", rows, t.calls.correlation[kernels.call])
    edits.set_numbers(EXTERNAL_ID, rows, external_id)
    if kernels.window.any():
        note = events.words.intern(WINDOW_NOTE)
        edits.set_words("time source", rows[kernels.window], note)
    if differs.any():  # several physical cores: the event spans all of them
        own = own_start[differs], own_duration[differs]
        edits.set_pairs("first physical core ns", rows[differs], *own)
    categories = [events.words.intern(CATEGORY_OF_KIND[kind]) for kind in Kind]
    events.recategorise(rows, np.array(categories, np.int32)[kernels.kind])
    events.rename(rows, names)


def add_markers(events: Events, category: str, names: Int32, external_id: Int64) -> None:
    """Calls without length at their operator's start, for device work whose call is not recorded.

    ``names`` (positions in the words) and ``external_id``: one per call.
    """
    t = events.translation
    calls = np.flatnonzero(t.calls.unrecorded)
    operators = t.calls.operator[calls]
    rows = events.add(
        t.start_ns[operators],
        np.zeros(len(calls), np.int64),
        category,
        names[calls],
        events.place[operators],
        LAUNCH_NOT_RECORDED,
    )
    events.edits.set_numbers("correlation", rows, t.calls.correlation[calls])
    events.edits.set_numbers(EXTERNAL_ID, rows, external_id[calls])
    t.findings.add(
        "launch_not_recorded",
        "device work has an operator but no recorded launch: a marker without length at the "
        "operator's start stands for it",
        len(calls),
    )


def write_events(
    file: EventFile,
    events: Events,
    counters: Counters,
    memory: Memory,
    flow_category: Int32,
) -> None:
    """Everything of a file below ``traceEvents``: metadata, slices, instants, counters, flows.

    ``flow_category``: of every flow of the process, position in the events' words.
    """
    file.add(events.translation.places.metadata_lines())
    file.add(
        chain(
            events.lines(),
            _instants(events),
            _memory(events, memory),
            _counters(events, counters),
            _flows(events, flow_category),
        )
    )


def process_counters(t: Translation, findings: Findings) -> Counters:
    """The counter samples of the process that can be written."""
    counters = t.trace.counters
    mine = t.trace.track_column("process")[counters.track] == t.process
    return finite_counters(counters.take(mine), findings)


def process_memory(t: Translation) -> MemoryEvents:
    """The memory events of the process."""
    return t.trace.memory.take(t.trace.memory.process == t.process)


def process_flows(t: Translation) -> tuple[Int32, Int32, Int32]:
    """The source's arrows inside the process: source row, target row, kind.

    Arrows from a call to its own kernel are left out: they are drawn from the links.
    """
    flows = t.trace.flows
    local = np.full(len(t.trace.slices), NONE, np.int32)
    local[t.rows] = np.arange(len(t.rows), dtype=np.int32)
    source, target = local[flows.source], local[flows.target]
    inside = (source != NONE) & (target != NONE)
    source, target, kind = source[inside], target[inside], flows.kind[inside]
    kernel, call = t.kernel[target], t.call[source]
    drawn = (kernel != NONE) & (call != NONE)
    drawn[drawn] = t.kernels.call[kernel[drawn]] == call[drawn]
    return source[~drawn], target[~drawn], kind[~drawn]


def _instants(events: Events) -> Iterator[Ragged]:
    trace, t = events.translation.trace, events.translation
    instants = trace.instants
    instants = instants.take(trace.track_column("process")[instants.track] == t.process)
    edits = Edits(len(instants), events.words)
    heads, head = heads_of(trace.strings, instants.category, instants.name, _POINT)
    return _points(events, instants, heads, head, edits)


def _memory(events: Events, memory: Memory) -> Iterator[Ragged]:
    heads, head = heads_of(
        [_POINT, *memory.names], np.zeros(len(memory.name), np.int32), memory.name + np.int32(1)
    )
    return _points(events, memory.events, heads, head, memory.edits)


def _points(
    events: Events,
    points: Instants | MemoryEvents,
    heads: Ragged,
    head: NDArray[np.intp],
    edits: Edits,
) -> Iterator[Ragged]:
    t = events.translation
    places = t.places.texts()
    for part in chunks(len(points)):
        arguments = edits.many(
            t.trace.arguments,
            points.args_start[part],
            points.args_length[part],
            np.arange(part.start, part.stop),
        )
        yield instant_lines(
            heads.take(head[part]),
            places.take(t.place_of_track[points.track[part]]),
            microseconds(points.time_ns[part] - events.base_ns),
            arguments,
        )


def _counters(events: Events, counters: Counters) -> Iterator[Ragged]:
    t = events.translation
    places = t.places.texts()
    for part in chunks(len(counters)):
        rows = counters.take(part)
        yield counter_lines(
            t.trace,
            rows,
            places.take(t.place_of_track[rows.track]),
            microseconds(rows.time_ns - events.base_ns),
        )


def _flows(events: Events, category: Int32) -> Iterator[Ragged]:
    """Arrows from calls to kernels, then the source's other arrows; every pair has its own id.

    The first arrow of a call is numbered like its correlation, as in Kineto's own files.
    """
    t = events.translation
    kernels, calls = t.kernels, t.calls
    marker = np.full(len(calls.row), NONE, np.int64)
    marker[calls.unrecorded] = events.own_rows + np.arange(np.count_nonzero(calls.unrecorded))
    from_row = np.where(calls.row != NONE, calls.row, marker)[kernels.call]
    linked = np.flatnonzero(from_row != NONE)
    number = calls.correlation[kernels.call].copy()
    highest = int(calls.correlation.max(initial=0))
    further = linked[calls.first[kernels.call[linked]] != linked]
    number[further] = highest + 1 + np.arange(len(further))
    source, target, _ = process_flows(t)
    sources = np.concatenate([from_row[linked], source]).astype(np.intp)
    targets = np.concatenate([kernels.row[linked], target]).astype(np.intp)
    other = highest + 1 + len(further) + np.arange(len(source))
    own = np.full(len(linked), events.words.intern("ac2g"), np.int32)
    categories = np.concatenate([own, category.astype(np.int32)])
    first, kind = distinct_rows(categories)
    strings = events.words.strings
    words = Ragged.of([quoted(strings[n] or "flow").encode() for n in categories[first].tolist()])
    identity = np.concatenate([number[linked], other])
    places = t.places.texts()
    for part in chunks(len(sources)):
        source_rows, target_rows = sources[part], targets[part]
        yield flow_lines(
            words.take(kind[part]),
            decimals(identity[part]),
            places.take(events.place[source_rows]),
            microseconds(events.start_ns[source_rows] - events.base_ns),
            places.take(events.place[target_rows]),
            microseconds(events.start_ns[target_rows] - events.base_ns),
        )


def base_metadata(
    trace: Trace, events: Events, target: str, note: str, findings: Findings
) -> dict[str, Any]:
    """What every file says about itself under ``neuron_tb``."""
    kernels = events.translation.kernels
    own = Findings(trace.findings)
    own.extend(findings)
    process = trace.processes[events.translation.process]
    return {
        "target": target,
        "process": {"host": process.host, "pid": process.pid, "rank": process.rank},
        "note": note,
        **({"filtered": trace.filtered} if trace.filtered else {}),
        "slices": events.own_rows,
        "added_events": events.added,
        "kernels": len(kernels),
        "device_total_ns": int(kernels.duration_ns.sum()),
        "windows": int(np.count_nonzero(kernels.window)),
        "kernels_without_operator": int(
            np.count_nonzero(events.translation.calls.operator[kernels.call] == NONE)
        ),
        "sources": [source.rsplit("/", 1)[-1] for source in trace.sources],
        "findings": own.as_dicts(),
    }
