"""XProf profiles of several ranks as one per host.

Planes of devices are copied under other numbers; ``/host:CPU`` planes, whose ids are made of
names, become one plane by putting their lines and tables together.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.joining import Identity, Part, reading
from neuron_tb.converters.joining.fields import Data, fields_of, int_of, text_of
from neuron_tb.converters.joining.planes import (
    Line,
    Pieces,
    Plane,
    PlaneFile,
    line_pieces,
    prefix,
    table_pieces,
)
from neuron_tb.converters.storage.output import refuse_overwrite, replacing_directory, safe_name
from neuron_tb.converters.writers import Destination, Written, wire
from neuron_tb.converters.writers.xprof import plan as plans
from neuron_tb.converters.writers.xprof import xspace
from neuron_tb.converters.writers.xprof.plane_names import (
    ACCOUNT_PLANE,
    ACCOUNT_PROCESSES,
    ACCOUNT_STEPS,
    ACCOUNT_ZERO,
    HOST_PLANE,
    core_plane,
    custom_label,
    custom_plane,
    is_core_plane,
)
from neuron_tb.converters.writers.xprof.samples import COUNTER_LINE, MEMORY_LINE
from neuron_tb.converters.writers.xprof.write import (
    DEVICES_PER_FILE,
    FILE_ENDING,
    LARGEST_FILE,
    LARGEST_RANGE_NS,
    LAST_LINE,
    TARGET,
    too_long,
)

_START, _STOP = "profile_start_time", "profile_stop_time"
_SUMS = tuple(f"neuron_tb_{what}" for what in ("slices", "events", "operators", "operator_ns"))
_SEPARATE_STEPS = "steps have no device work on some device"


@dataclass(slots=True)
class _Source:
    """A file to be joined, and what is told about it when it is not open.

    ``account``: the facts it states. ``steps``: their numbers: all, and those with work on every
    device that has any. ``devices``: the numbers of its device planes, ascending.
    ``label``: goes before the names of its rows.
    """

    path: Path
    identities: list[Identity]
    zero_ns: int
    account: dict[str, int | str]
    steps: dict[str, list[int]]
    devices: list[int]
    size: int
    warnings: list[str]
    later_ns: int
    label: str = ""

    @classmethod
    def of(cls, part: Part) -> _Source:
        with PlaneFile(part.path) as file, reading(part.path):
            account = (file.plane(ACCOUNT_PLANE) or Plane()).own_stats()
            zero, processes = account.get(ACCOUNT_ZERO), account.get(ACCOUNT_PROCESSES)
            if not isinstance(zero, int) or not isinstance(processes, str):
                raise NeuronTbError(
                    f"{part.path} was not written by this version of neuron-tb convert and cannot "
                    "be joined."
                )
            identities = [Identity.of(values) for values in json.loads(processes)]
            return cls(
                part.path,
                [i for i in identities if i is not None],
                zero + part.later_ns,
                account,
                _steps_of(account),
                sorted({p.number for p in file.planes if _is_device(p)}),
                len(file.data),
                file.warnings,
                part.later_ns,
            )

    @property
    def host(self) -> str:
        return next((i.host for i in self.identities if i.host), "") or "localhost"


def _steps_of(account: dict[str, int | str]) -> dict[str, list[int]]:
    text = account.get(ACCOUNT_STEPS)
    steps = msgspec.json.decode(text, type=dict[str, list[int]]) if isinstance(text, str) else {}
    return {key: steps.get(key, []) for key in ("all", "listed", "unmarked")}


@dataclass(frozen=True, slots=True)
class _Span:
    """What the times of all files of a run count from, and the run's range of the Unix epoch."""

    zero_ns: int
    start_ns: int | None
    stop_ns: int | None

    @classmethod
    def of(cls, sources: Sequence[_Source]) -> _Span:
        starts = [(source.account.get(_START), source.later_ns) for source in sources]
        stops = [(source.account.get(_STOP), source.later_ns) for source in sources]
        return cls(
            min(source.zero_ns for source in sources),
            min((time + by for time, by in starts if isinstance(time, int)), default=None),
            max((time + by for time, by in stops if isinstance(time, int)), default=None),
        )


@dataclass(slots=True)
class _Group:
    """Sources of one file, and the names that its ids stand for (their hashes)."""

    sources: list[_Source] = field(default_factory=list)
    names: dict[tuple[str, int], int] = field(default_factory=dict)

    def takes(self, new: _Source, names: dict[tuple[str, int], int]) -> bool:
        """Whether a source fits: devices, size, and no id for two names."""
        if not self.sources:
            return True
        return (
            sum(len(s.devices) for s in [*self.sources, new]) <= DEVICES_PER_FILE
            and sum(s.size for s in [*self.sources, new]) <= LARGEST_FILE * 9 // 10
            and all(self.names[key] == names[key] for key in self.names.keys() & names.keys())
        )


def join(files: Sequence[Part], destination: Destination) -> list[Written]:
    """Write ``OUT/plugins/profile/RUN/HOST.xplane.pb``, one file per host.

    Raises NeuronTbError for a file that ``neuron-tb convert`` did not write.
    """
    folder = destination.out / "plugins" / "profile" / destination.run
    refuse_overwrite(folder, destination.force)
    sources = [_Source.of(part) for part in files]
    sources.sort(key=lambda source: [identity.order for identity in source.identities])
    span = _Span.of(sources)
    if span.stop_ns is not None and span.stop_ns - span.zero_ns > LARGEST_RANGE_NS:
        return [too_long(span.zero_ns, span.stop_ns)]
    findings = Findings()
    plans.report_missing_steps([source.steps for source in sources], findings)
    hosts = _by_file(sources)
    written = []
    with replacing_directory(folder, destination.force) as unfinished:
        for number, (name, group) in enumerate(hosts.items()):
            warnings = _warnings(sources, findings) if number == 0 else []
            path = unfinished / f"{name}{FILE_ENDING}"
            with tempfile.TemporaryFile(dir=unfinished) as spool, path.open("wb") as out:
                slices = _HostFile(name, group, span, spool).write(out, warnings)
            written.append(Written(TARGET, folder / path.name, slices))
    written[0].findings.extend(findings)
    return written


def _warnings(sources: Sequence[_Source], findings: Findings) -> list[str]:
    sentences = dict.fromkeys(w for source in sources for w in source.warnings)
    own = [f"{f.count} x {f}" if f.count > 1 else str(f) for f in findings]
    return [text for text in sentences if _SEPARATE_STEPS not in text] + own


def _by_file(sources: Sequence[_Source]) -> dict[str, list[_Source]]:
    """Sources by the name of the file that they become part of."""
    hosts: dict[str, list[_Group]] = {}
    for source in sources:
        names = _names_of(source)
        groups = hosts.setdefault(source.host, [_Group()])
        if not groups[-1].takes(source, names):
            groups.append(_Group())
        groups[-1].sources.append(source)
        groups[-1].names.update(names)
    files: dict[str, list[_Source]] = {}
    for host, groups in sorted(hosts.items()):
        for group in groups:
            name = base = safe_name(host, "localhost")
            while name in files:
                number = int(name.rpartition(".")[2]) + 1 if name != base else 2
                name = f"{base}.{number}"
            files[name] = group.sources
    return files


def _names_of(source: _Source) -> dict[tuple[str, int], int]:
    with PlaneFile(source.path) as file, reading(source.path):
        plane = file.plane(HOST_PLANE) or Plane()
        names = {("text", number): hash(text) for number, text in plane.texts.items()}
        names.update({("event", number): hash(body) for number, body in plane.events.items()})
        return names


class _HostFile:
    """One file under construction."""

    def __init__(self, name: str, sources: Sequence[_Source], span: _Span, spool: BinaryIO) -> None:
        self.name, self.sources, self.span, self.spool = name, sources, span, spool
        self.processes = [identity for source in sources for identity in source.identities]
        self._files: dict[Path, PlaneFile] = {}
        for source in sources:
            alone = len(self.processes) > 1 and len(source.identities) == 1
            source.label = f"{source.identities[0].label}: " if alone else ""

    def write(self, out: BinaryIO, warnings: Sequence[str]) -> int:
        """Write the file; returns how many slices of the traces it shows."""
        with ExitStack() as stack:
            for source in self.sources:
                self._files[source.path] = stack.enter_context(PlaneFile(source.path))
            self._write_planes(out)
        for part in self._account().parts():
            out.write(part)
        for warning in warnings:
            out.write(wire.encode_field(3, warning))
        out.write(wire.encode_field(4, self.name))
        return sum(_int(source.account.get("neuron_tb_slices")) for source in self.sources)

    def _write_planes(self, out: BinaryIO) -> None:
        first = 0
        for source in self.sources:
            for plane in filter(_is_device, self._file(source).planes):
                number = first + source.devices.index(plane.number)
                with reading(source.path):
                    self._write_plane(out, *self._device(source, plane, number))
            first += len(source.devices)
        host = Plane(0, HOST_PLANE)
        for source in self.sources:
            own = self._file(source).plane(HOST_PLANE)
            if own is not None:
                with reading(source.path):
                    host.events.update(_labelled_events(own, source.label))
                    host.texts.update(_labelled_texts(own, source.label))
        self._write_plane(out, host, list(self._host_lines()))

    def _file(self, source: _Source) -> PlaneFile:
        return self._files[source.path]

    def _write_plane(self, out: BinaryIO, plane: Plane, lines: Sequence[Pieces]) -> None:
        body = Pieces(self.spool)
        body.add(wire.encode_field(1, plane.number) + wire.encode_field(2, plane.name))
        for line in lines:
            body.add_all(line)
        body.add_all(table_pieces(plane, self.spool))
        out.write(prefix(1, body.length))
        body.write(out)

    def _later_ns(self, source: _Source) -> int:
        return source.zero_ns - self.span.zero_ns

    def _device(self, source: _Source, plane: Plane, number: int) -> tuple[Plane, list[Pieces]]:
        label = custom_label(plane.name)
        new = replace(
            plane,
            number=number,
            name=core_plane(number) if label is None else custom_plane(source.label + label),
            stats=[_numbered(plane, stat, number) for stat in plane.stats],
        )
        lines = []
        for line in plane.lines:
            display = line.display_name and source.label + line.display_name
            lines.append(self._line(source, replace(line, display_name=display)))
        return new, lines

    def _host_lines(self) -> Iterator[Pieces]:
        """Rows of threads, then those of memory, then all counters as one."""
        number = 0
        counters: list[tuple[_Source, Line]] = []
        for of_memory in (False, True):
            for source in self.sources:
                plane = self._file(source).plane(HOST_PLANE)
                for line in plane.lines if plane else ():
                    if line.name == COUNTER_LINE:
                        counters += [(source, line)] if of_memory else []
                    elif line.name.startswith(MEMORY_LINE) is of_memory:
                        number += 1
                        name = _labelled_line(line.name, source.label)
                        with reading(source.path):
                            yield self._line(source, replace(line, number=number, name=name))
        if counters:
            (source, line), *others = counters
            more = [(self._file(s).data, other, self._later_ns(s)) for s, other in others]
            with reading(source.path):
                yield self._line(source, replace(line, number=LAST_LINE), more)

    def _line(
        self, source: _Source, line: Line, more: Sequence[tuple[Data, Line, int]] = ()
    ) -> Pieces:
        later_ns = self._later_ns(source)
        return line_pieces(line, self._file(source).data, later_ns, self.spool, more)

    def _account(self) -> xspace.Plane:
        plane = xspace.Plane(ACCOUNT_PLANE, 0)
        accounts = [source.account for source in self.sources]
        if self.span.start_ns is not None and self.span.stop_ns is not None:
            plane.set(_START, np.uint64(self.span.start_ns))
            plane.set(_STOP, np.uint64(self.span.stop_ns))
        plane.set(ACCOUNT_ZERO, self.span.zero_ns)
        identities = [{"host": i.host, "pid": i.pid, "rank": i.rank} for i in self.processes]
        plane.set(ACCOUNT_PROCESSES, json.dumps(identities))
        plane.set(ACCOUNT_STEPS, json.dumps(self._steps()))
        for name in _SUMS:
            plane.set(name, sum(_int(account.get(name)) for account in accounts))
        return plane

    def _steps(self) -> dict[str, list[int]]:
        every = [source.steps for source in self.sources]
        listed = [set(steps["listed"]) for steps in every if steps["all"]]
        return {
            "all": sorted({number for steps in every for number in steps["all"]}),
            "listed": sorted(set[int].intersection(*listed)) if listed else [],
            "unmarked": [number for steps in every for number in steps["unmarked"]],
        }


def _is_device(plane: Plane) -> bool:
    return is_core_plane(plane.name) or custom_label(plane.name) is not None


def _numbered(plane: Plane, stat: bytes, number: int) -> bytes:
    """A plane's own stat; the one that tells its number tells the new one."""
    key, *_ = fields_of(stat)
    identity = int_of(stat, key)
    if plane.texts.get(identity) != "device_id":
        return stat
    return wire.encode_field(1, identity) + wire.encode_field(4, number)


def _labelled_line(name: str, label: str) -> str:
    if name.startswith(MEMORY_LINE):
        return f"{MEMORY_LINE}{label}{name.removeprefix(MEMORY_LINE)}"
    return label + name


def _labelled_events(plane: Plane, label: str) -> dict[int, bytes]:
    if not label:
        return plane.events
    return {
        number: _labelled_event(body, label) if number & xspace.LABEL_BIT else body
        for number, body in plane.events.items()
    }


def _labelled_event(body: bytes, label: str) -> bytes:
    parts = []
    for member in fields_of(body):
        text = body[member.begin : member.end]
        if member.number == 2:
            text = wire.encode_field(2, label + text_of(body, member))
        parts.append(text)
    return b"".join(parts)


def _labelled_texts(plane: Plane, label: str) -> dict[int, str]:
    return {
        number: label + text if number & xspace.LABEL_BIT else text
        for number, text in plane.texts.items()
    }


def _int(value: int | str | None) -> int:
    return value if isinstance(value, int) else 0
