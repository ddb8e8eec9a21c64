"""What all files of an XProf run share, and the rows that are drawn on tracks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.findings import Finding, Findings
from neuron_tb.converters.model import NONE, Int32, Int64, Role, Trace
from neuron_tb.converters.model.arguments import Arguments
from neuron_tb.converters.model.hardware import SOURCE, Chip, Peaks, peaks_per_logical_core
from neuron_tb.converters.model.members import members
from neuron_tb.converters.model.ragged import chunks, unique
from neuron_tb.converters.writers.xprof import plan as plans
from neuron_tb.converters.writers.xprof.xspace import Plane, Stat, Text


@dataclass
class Run:
    """What all files of a run share."""

    trace: Trace
    chip: Chip | None
    zero_ns: int
    findings: Findings
    steps: plans.Steps
    placement: plans.Placement
    operators: plans.Operators
    arrows: plans.Arrows
    shapes: Shapes
    step_of_slice: Int64
    beside: NDArray[np.bool_]
    """Device slices that are drawn in the CUSTOM plane."""
    on_host: NDArray[np.bool_]
    """Slices that are drawn in the host's plane."""
    utf8: bool

    @classmethod
    def of(cls, trace: Trace, chip: Chip | None) -> Run:
        """Decide everything that does not depend on the file."""
        findings = Findings()
        steps = plans.steps_of(trace, range(len(trace.processes)))
        placement = plans.place(trace, steps, findings)
        devices = range(len(trace.devices))
        plans.report_missing_steps([plans.steps_listed(placement, steps, devices)], findings)
        arrows = plans.arrows_of(trace, placement.row, findings)
        counted = trace.executions.take(placement.row)
        beside, on_host = _where_drawn(trace)
        return cls(
            trace,
            chip,
            trace.time_range()[0],
            findings,
            steps,
            placement,
            plans.Operators(trace, counted),
            arrows,
            Shapes.of(trace, counted.operator),
            _step_of_slice(trace),
            beside,
            on_host,
            trace.arguments.is_utf8(),
        )

    def warnings(self) -> list[str]:
        """Sentences for the overview page: the capture's findings, then this format's."""
        sentences = [_sentence(finding) for finding in self.trace.findings]
        if self.chip and any(d.family == "neuron" for d in self.trace.devices):
            sentences.append(f"peak figures of {self.chip.name} are published ones ({SOURCE})")
        if self.trace.filtered:
            sentences.append(f"filtered ({self.trace.filtered}): totals are those of this part")
        if self.steps.label and not self.trace.findings.of_kind("no_steps"):
            sentences.append("no step is marked; the whole capture is one step called capture")
        return sentences + [_sentence(finding) for finding in self.findings]

    def text(self, starts: Int64, lengths: Int32) -> Text:
        """The arguments of rows, as the one string stat ``arguments`` (the source's JSON)."""
        if self.utf8:
            return Text("arguments", self.trace.arguments, starts, lengths.astype(np.int64))
        raws = self.trace.arguments.texts(starts, lengths)
        texts = [raw.decode("utf-8", "replace").encode() for raw in raws]
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        return Text("arguments", Arguments([b"".join(texts)]), np.cumsum(sizes) - sizes, sizes)

    def peaks(self, device: int) -> Peaks | None:
        """Published peaks of a NeuronCore, when the instance type is known."""
        if self.chip is None or self.trace.devices[device].family != "neuron":
            return None
        tracks = self.trace.tracks
        physical = {t.physical_core for t in tracks if t.device == device} - {None}
        return peaks_per_logical_core(self.chip, len(physical) or None)


@dataclass(slots=True)
class Rows:
    """Slices and instants to be drawn on tracks; ``slice`` is NONE for an instant."""

    start_ns: Int64
    duration_ns: Int64
    name: Int32
    category: Int32
    track: Int32
    args_start: Int64
    args_length: Int32
    role: NDArray[np.uint8]
    slice: Int64

    @classmethod
    def of(cls, trace: Trace, slices: NDArray[np.intp], instants: NDArray[np.intp]) -> Rows:
        """These slices and instants, in this order."""
        s, i = trace.slices, trace.instants

        def both(attribute: str) -> NDArray[np.int64]:
            return np.concatenate([getattr(s, attribute)[slices], getattr(i, attribute)[instants]])

        return cls(
            np.concatenate([s.start_ns[slices], i.time_ns[instants]]),
            np.concatenate([s.duration_ns[slices], np.zeros(len(instants), np.int64)]),
            both("name").astype(np.int32),
            both("category").astype(np.int32),
            both("track").astype(np.int32),
            both("args_start"),
            both("args_length").astype(np.int32),
            np.concatenate([s.role[slices], np.full(len(instants), Role.OTHER, np.uint8)]),
            np.concatenate([slices, np.full(len(instants), NONE)]).astype(np.int64),
        )


_RECORDED = ("Input Dims", "Input type")


@dataclass(frozen=True, slots=True)
class Shapes:
    """The operators' recorded shapes: texts, and for each row of the placement which it has."""

    texts: list[str]
    dims: Int64
    types: Int64

    @classmethod
    def of(cls, trace: Trace, operators: Int32) -> Shapes:
        """Takes the arguments of each operator apart once."""
        used, inverse = unique(operators)
        known = np.flatnonzero(used != NONE)
        numbers: dict[bytes, int] = {}
        found = np.full((len(used), len(_RECORDED)), NONE, np.int64)
        starts, lengths = trace.slices.args_start[used], trace.slices.args_length[used]
        for places in (known[part] for part in chunks(len(known))):
            texts = trace.arguments.joined(starts[places], lengths[places])
            apart = members(texts, lengths[places])
            for column, key in enumerate(_RECORDED):
                rows, member = apart.find(key.encode())
                distinct, index = apart.values(member).distinct()
                codes = [numbers.setdefault(text, len(numbers)) for text in distinct]
                found[places[rows], column] = np.array(codes, np.int64)[index]
            for place in places[apart.others].tolist():
                for column, value in enumerate(_recorded(trace.raw_args(int(used[place])))):
                    if value:
                        found[place, column] = numbers.setdefault(value, len(numbers))
        texts_of = [text.decode("utf-8", "replace") for text in numbers]
        return cls(texts_of, found[inverse, 0], found[inverse, 1])

    def stats(self, plane: Plane, rows: NDArray[np.intp]) -> list[Stat]:
        """The two stats of these rows of the placement."""
        stats = []
        for name, column in zip(_RECORDED, (self.dims[rows], self.types[rows]), strict=True):
            used, inverse = unique(column)
            ids = plane.texts("" if n == NONE else self.texts[n] for n in used.tolist())
            stats.append(Stat(name, ids[inverse], column != NONE, refers=True))
        return stats


def _recorded(arguments: bytes) -> list[bytes]:
    """The recorded shapes of one operator, as JSON text."""
    if b'"Input ' not in arguments:
        return []
    try:
        values = _decode_object(arguments)
    except msgspec.DecodeError:
        return []
    return [bytes(values.get(key, b"")) for key in _RECORDED]


_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _where_drawn(trace: Trace) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Device slices for the CUSTOM plane and slices for the host's plane; the rest are operators.

    An execution with one device row is that row; the rows of one with several are drawn beside
    it. A window that a measurement replaces stays on the host, as the host saw it.
    """
    execution, executions = trace.execution_of_slice, trace.executions
    on_device = trace.slice_device != NONE
    if not len(executions):
        return on_device, ~on_device
    rows = np.bincount(execution[execution != NONE], minlength=len(executions))
    counted = (execution != NONE) & executions.counted[execution]
    replaced = (execution != NONE) & ~executions.counted[execution]
    is_operator = counted & on_device & (rows[execution] == 1)
    return on_device & ~is_operator & ~replaced, ~on_device | replaced


def _step_of_slice(trace: Trace) -> Int64:
    numbers = np.full(len(trace.slices), NONE, np.int64)
    marked = trace.steps.slice != NONE
    numbers[trace.steps.slice[marked]] = trace.steps.number[marked]
    return numbers


def _sentence(finding: Finding) -> str:
    return f"{finding.count} x {finding}" if finding.count > 1 else str(finding)


class Labels:
    """What one file's processes and devices are called; numbers only where names are equal."""

    def __init__(self, trace: Trace, processes: Sequence[int], devices: Sequence[int]) -> None:
        self._trace, self._processes, self._devices = trace, processes, devices

    def prefix(self, process: int) -> str:
        """What stands before the rows of a process: nothing when the file has only one."""
        if len(self._processes) < 2:
            return ""
        rank, pid = self._trace.processes[process].rank, self._trace.processes[process].pid
        return f"pid {pid}: " if rank is None else f"rank {rank}: "

    def device(self, device: int) -> str:
        """The name of a device."""
        own = self._trace.devices[device]
        same = [n for n in self._devices if self._same_name(n, device)]
        number = f" #{own.index}" if len(same) > 1 else ""
        return f"{self.prefix(own.process)}{own.name}{number}"

    def _same_name(self, one: int, other: int) -> bool:
        a, b = self._trace.devices[one], self._trace.devices[other]
        return a.process == b.process and a.name == b.name


def group(step: Int64) -> Stat:
    """The stat by which XProf gives an event to a step; NONE for no step."""
    return Stat("group_id", step, step != NONE)
