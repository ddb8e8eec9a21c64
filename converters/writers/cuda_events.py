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
from neuron_tb.converters.trace import (
    NONE,
    Bools,
    Counters,
    Int32,
    Int64,
    MemoryEvents,
    Role,
    StringTable,
    Trace,
)
from neuron_tb.converters.writers.chrome_json import (
    EventFile,
    argument_texts,
    counter_lines,
    decoded_lazily,
    edited,
    finite_counters,
    flow_lines,
    instant_lines,
    microseconds,
    quoted,
    slice_heads,
    slice_lines,
)
from neuron_tb.converters.writers.cuda_translation import Translation
from neuron_tb.converters.writers.cuda_words import (
    CATEGORY_OF_KIND,
    WINDOW_NOTE,
    Kind,
    transfer_name,
)

ADDED = "added by neuron_tb"
"""The argument that marks events which the source does not have; its value says why."""

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

    ``category`` and ``name`` are positions in ``words``; ``arguments`` are JSON texts.
    ``durations`` replaces the text of single durations.
    """

    translation: Translation
    base_ns: int
    words: StringTable
    start_ns: Int64
    duration_ns: Int64
    category: Int32
    name: Int32
    place: Int32
    arguments: list[str]
    durations: dict[int, str] = field(default_factory=dict)
    own_rows: int = 0
    _texts: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, translation: Translation, base_ns: int) -> Events:
        """All rows as they are in the source, at the translation's places."""
        trace = translation.trace
        return cls(
            translation,
            base_ns,
            StringTable(trace.strings),
            translation.start_ns.copy(),
            translation.duration_ns.copy(),
            translation.category,
            translation.name,
            translation.place.copy(),
            argument_texts(trace, trace.slices.take(translation.rows)),
            own_rows=len(translation.rows),
        )

    def set_category(self, rows: Bools | NDArray[Any], category: str) -> None:
        """Give rows a category."""
        self.category[rows] = self.words.intern(category)

    def change(
        self, row: int, changes: dict[str, Any], *, category: str = "", name: str = ""
    ) -> None:
        """Set arguments, and perhaps category and name, of a row; the source's stay beside them.

        An argument that had another value is kept as ``source <key>``, a category as
        ``source category`` and a name as ``source name``.
        """
        kept: dict[str, Any] = {}
        if category and self._replaces(self.category, row, category):
            kept["source category"] = self._text(int(self.category[row]))
            self.category[row] = self.words.intern(category)
        if name and self._replaces(self.name, row, name):
            kept["source name"] = self._text(int(self.name[row]))
            self.name[row] = self.words.intern(name)
        self.arguments[row] = with_source_values(self.arguments[row], changes, kept)

    def _text(self, number: int) -> str:
        if number >= len(self._texts):
            self._texts = self.words.strings
        return self._texts[number]

    def _replaces(self, column: Int32, row: int, text: str) -> bool:
        return int(column[row]) != self.words.intern(text)

    def add(
        self,
        start_ns: Sequence[int] | Int64,
        duration_ns: Sequence[int] | Int64,
        category: str,
        names: Sequence[str],
        places: Sequence[int] | Int32,
        arguments: Sequence[dict[str, Any]],
        why: str,
    ) -> None:
        """Add events that the source does not have; their arguments say so."""
        n = len(names)
        words = self.words
        self.start_ns = np.append(self.start_ns, np.asarray(start_ns, np.int64))
        self.duration_ns = np.append(self.duration_ns, np.asarray(duration_ns, np.int64))
        kind = np.full(n, words.intern(category), np.int32)
        self.category = np.append(self.category, kind)
        self.name = np.append(self.name, words.intern_all(names, n))
        self.place = np.append(self.place, np.asarray(places, np.int32))
        self.arguments += [edited("", {**args, ADDED: why}) for args in arguments]

    @property
    def added(self) -> int:
        """How many events the source does not have."""
        return len(self.start_ns) - self.own_rows

    def lines(self) -> Iterator[str]:
        """All events, in order of time, parents before their children."""
        order = np.lexsort((-self.duration_ns, self.start_ns))
        duration = microseconds(self.duration_ns)
        for row, text in self.durations.items():
            duration[row] = text
        heads, head = slice_heads(self.words.strings, self.category, self.name)
        start = microseconds(self.start_ns[order] - self.base_ns)
        by_order = order.tolist()
        return slice_lines(
            heads,
            head[order],
            self.translation.places.texts(),
            self.place[order],
            start,
            [duration[row] for row in by_order],
            [self.arguments[row] for row in by_order],
        )


def external_ids(translation: Translation, used: Int32) -> tuple[Int64, NDArray[np.intp]]:
    """A positive ``External id`` per row, unique where it matters, and the rows that got a new one.

    ``used``: operators (rows; NONE is ignored) that calls refer to. Their ids must be theirs
    alone among operators and annotations; rows without a usable id get one above all others.
    """
    slices = translation.trace.slices
    ids = slices.external_id[translation.rows].copy()
    among = np.isin(translation.role, (Role.OPERATOR, Role.ANNOTATION))
    rows = np.unique(used[used != NONE])
    distinct, count = np.unique(ids[among], return_counts=True)
    repeated = np.isin(ids[rows], distinct[count > 1])
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


def translated_memory(
    t: Translation, most_devices: int, host_id: int | None = None
) -> tuple[list[str], list[str], set[int]]:
    """Names and arguments of the process' memory events, and the devices that they name.

    Devices other than the host are CUDA's (type 1) with their number in the file; an event that
    names no known device gets another name. ``host_id`` replaces the host's ``Device Id``.
    """
    memory = process_memory(t)
    index_of = {t.trace.devices[p].index: number for p, number in t.device_number.items()}
    only = next(iter(index_of.values())) if len(index_of) == 1 else None
    names: list[str] = []
    arguments: list[str] = []
    devices: set[int] = set()
    columns = (memory.device_type.tolist(), memory.device_id.tolist())
    for kind, index, text in zip(*columns, argument_texts(t.trace, memory), strict=True):
        changes: dict[str, Any] = {"Device Type": min(kind, 1)}
        number = index_of.get(index, index if 0 <= index < most_devices else None)
        number = only if index == NONE else number
        if kind == 0:
            changes = {} if host_id is None else {"Device Id": host_id}
        elif kind == NONE or number is None:
            names.append(f"{MEMORY} (device unknown)")
            arguments.append(text)
            continue
        else:
            changes["Device Id"] = number
            devices.add(number)
        names.append(MEMORY)
        arguments.append(with_source_values(text, changes))
    t.findings.add(
        "memory_device_unknown",
        "memory events that name no known device do not count as memory events in the output",
        len(names) - names.count(MEMORY),
    )
    return names, arguments, devices


def with_source_values(
    arguments: str, changes: dict[str, Any], kept: dict[str, Any] | None = None
) -> str:
    """Arguments with keys set; a key that had another value keeps it as ``source <key>``."""
    old = decoded_lazily(arguments)
    renamed = {
        key: f"source {key}"
        for key, value in changes.items()
        if key in old and bytes(old[key]) != str(value).encode()
    }
    if "External id" in changes and "external id" in old:
        renamed["external id"] = "source external id"
    return edited(arguments, {**changes, **(kept or {})}, renamed)


def kernel_names(translation: Translation) -> list[str]:
    """What each kernel is called.

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
    return [
        transfer_name(trace.strings[n], Kind(kind))
        for n, kind in zip(name.tolist(), kernels.kind.tolist(), strict=True)
    ]


_KERNEL_WORDS = ("kernel", "concurrent_kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset")


def set_apart_what_does_not_count(events: Events) -> None:
    """Measured device rows that are no kernels of the file must not carry a kernel's category.

    They are further rows of an execution that is drawn once, or device events of the framework
    beside the cores' own intervals.
    """
    t = events.translation
    known = [n for n, text in enumerate(t.trace.strings) if text.lower() in _KERNEL_WORDS]
    beside = (t.kernel == NONE) & np.isin(t.category, known)
    for row in np.flatnonzero(beside).tolist():
        events.change(row, {}, category="device_row_not_counted")


def draw_kernels(events: Events, names: Sequence[str], external_id: Int64) -> None:
    """Give every kernel's row its category, name, time and arguments.

    ``external_id``: one per kernel, 0 where it belongs to no operator.
    """
    t = events.translation
    kernels, slices = t.kernels, t.trace.slices
    correlation = t.calls.correlation[kernels.call]
    rows = kernels.row
    own_start, own_duration = slices.start_ns[t.rows[rows]], slices.duration_ns[t.rows[rows]]
    same = (own_start == kernels.start_ns) & (own_duration == kernels.duration_ns)
    events.start_ns[rows], events.duration_ns[rows] = kernels.start_ns, kernels.duration_ns
    columns = (rows, kernels.kind, kernels.device, kernels.stream, correlation, external_id)
    for number, (row, kind, device, stream, corr, external) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        changes: dict[str, Any] = {"device": device, "stream": stream, "correlation": corr}
        changes["External id"] = external
        if kernels.window[number]:
            changes["time source"] = WINDOW_NOTE
        if not same[number]:  # several physical cores: the event spans all of them
            changes["first physical core ns"] = [int(own_start[number]), int(own_duration[number])]
        events.change(row, changes, category=CATEGORY_OF_KIND[Kind(kind)], name=names[number])


def add_markers(events: Events, category: str, names: Sequence[str], external_id: Int64) -> None:
    """Calls without length at their operator's start, for device work whose call is not recorded.

    ``names`` and ``external_id``: one per call.
    """
    t = events.translation
    calls = np.flatnonzero(t.calls.unrecorded).tolist()
    operators = t.calls.operator[calls]
    events.add(
        t.start_ns[operators],
        np.zeros(len(calls), np.int64),
        category,
        [names[call] for call in calls],
        events.place[operators],
        [
            {"correlation": int(t.calls.correlation[c]), "External id": int(external_id[c])}
            for c in calls
        ],
        LAUNCH_NOT_RECORDED,
    )
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
    memory: tuple[Sequence[str], Sequence[str]],
    flow_category: Int32,
) -> None:
    """Everything of a file below ``traceEvents``: metadata, slices, instants, counters, flows.

    ``memory``: name and arguments of each of the process' memory events. ``flow_category``: of
    every flow of the process, position in the events' words.
    """
    t = events.translation
    places = t.places
    slice_text = events.lines()
    point_text = chain(
        _instants(events),
        _memory(events, *memory),
        _counters(events, counters),
        _flows(events, flow_category),
    )
    file.add(places.metadata_lines())
    file.add(slice_text)
    file.add(point_text)


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


def _instants(events: Events) -> Iterator[str]:
    t = events.translation
    trace = t.trace
    instants = trace.instants
    instants = instants.take(trace.track_column("process")[instants.track] == t.process)
    return instant_lines(
        trace.strings,
        instants.name,
        instants.category,
        t.places.texts(),
        t.place_of_track[instants.track],
        microseconds(instants.time_ns - events.base_ns),
        argument_texts(trace, instants),
    )


def _memory(events: Events, names: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    t = events.translation
    memory = process_memory(t)
    words = StringTable(("cpu_instant_event",))
    name = words.intern_all(names, len(names))
    return instant_lines(
        words.strings,
        name,
        np.zeros(len(name), np.int32),
        t.places.texts(),
        t.place_of_track[memory.track],
        microseconds(memory.time_ns - events.base_ns),
        arguments,
    )


def _counters(events: Events, counters: Counters) -> Iterator[str]:
    t = events.translation
    return counter_lines(
        t.trace,
        counters,
        t.places.texts(),
        t.place_of_track[counters.track],
        microseconds(counters.time_ns - events.base_ns),
    )


def _flows(events: Events, category: Int32) -> Iterator[str]:
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
    words = [quoted(text or "flow") for text in events.words.strings]
    return flow_lines(
        [quoted("ac2g")] * len(linked) + [words[c] for c in category.tolist()],
        np.concatenate([number[linked], other]).tolist(),
        t.places.texts(),
        events.place[sources],
        microseconds(events.start_ns[sources] - events.base_ns),
        events.place[targets],
        microseconds(events.start_ns[targets] - events.base_ns),
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
