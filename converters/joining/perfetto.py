"""Perfetto traces of several ranks as one: by concatenation.

Every number in a file is made of (host, rank, process id), so the packets of different processes
stand side by side unchanged. Only what speaks of the whole file (clock, attributes, root) is
written anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

import neuron_tb
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.joining import Identity, Part, reading
from neuron_tb.converters.joining.fields import Field, fields_of, int_of, varint_at
from neuron_tb.converters.model import ClockKind
from neuron_tb.converters.storage.output import refuse_overwrite, replacing_file
from neuron_tb.converters.writers import Destination, Written, wire
from neuron_tb.converters.writers.perfetto.write import ATTRIBUTE_PREFIX, TARGET

_PACKET, _CLOCKS, _DESCRIPTOR, _ATTRIBUTES, _UUID = 1, 6, 60, 126, 1
_TIMESTAMP_KEY, _EPOCH_BYTES = 8 << 3, 9
_LARGEST_HEAD = _LONGEST_PACKET = 1 << 26
_BUFFER = 1 << 20
_SUMS = ("slices", "instants", "memory_events", "counter_samples", "flows", "rows", "lanes")

Value = int | str


@dataclass(slots=True)
class _File:
    """What stands before the packets of the processes: ``body`` is where those begin."""

    path: Path
    later_ns: int = 0
    body: int = 0
    clocks: bytes = b""
    root: bytes = b""
    values: dict[str, Value] = field(default_factory=dict)

    @property
    def processes(self) -> list[tuple[object, ...]]:
        return [tuple(key) for key in json.loads(str(self.values.get("processes", "[]")))]

    @property
    def order(self) -> tuple[object, ...]:
        host, rank, pid = [*self.processes, ("", None, 0, 1)][0][:3]
        return Identity(str(host), int(str(pid)), None if rank is None else int(str(rank))).order


def join(files: Sequence[Part], destination: Destination) -> list[Written]:
    """Write ``OUT/perfetto/RUN.pftrace`` with the processes of all files, by rank.

    Raises NeuronTbError for a file that ``neuron-tb convert`` did not write, and when one process
    is in two files.
    """
    path = destination.out / TARGET / f"{destination.run}.pftrace"
    refuse_overwrite(path, destination.force)
    heads = [_head_of(part.path, part.later_ns) for part in files]
    heads.sort(key=lambda head: head.order)
    _refuse_repeated(heads)
    values = _joined_values(heads)
    with replacing_file(path) as out:
        clocks = next((head.clocks for head in heads if head.clocks), b"")
        if clocks:
            out.write(clocks)
        attributes = _encoded(values, destination.run)
        out.write(wire.encode_field(_PACKET, wire.encode_field(_ATTRIBUTES, attributes)))
        out.write(heads[0].root)
        for head in heads:
            with reading(head.path), head.path.open("rb") as file:
                file.seek(head.body)
                if head.later_ns:
                    out.writelines(moved_packets(file, head.later_ns))
                else:
                    shutil.copyfileobj(file, out, _BUFFER)
    return [Written(TARGET, path, int(values["slices"]))]


def findings_in(path: Path) -> Findings:
    """What a file says about its capture and itself.

    Raises NeuronTbError as ``join``, and for a file that ends inside a packet.
    """
    head = _head_of(path)
    with reading(path), path.open("rb") as file:
        file.seek(head.body)
        for _ in moved_packets(file, 0):
            pass
    return _findings([head])


def moved_packets(file: BinaryIO, later_ns: int) -> Iterator[bytes]:
    """The packets that follow in a file, with ``later_ns`` added to their timestamps.

    The timestamp is a packet's first field. Those of the Unix epoch take nine bytes now and for
    the next two centuries, so as a rule they are changed where they stand.
    """
    rest = b""
    while data := rest + file.read(_BUFFER):
        starts, end = _whole_packets(data)
        if not starts:
            more = file.read(len(data))
            if not more or len(data) > _LONGEST_PACKET:
                raise ValueError("ends in the middle of a packet")
            rest = data + more
            continue
        yield _moved(data, starts, end, later_ns)
        rest = data[end:]


def _whole_packets(data: bytes) -> tuple[list[tuple[int, int]], int]:
    """Body and end of every packet that is there as a whole, and where the last one ends."""
    found: list[tuple[int, int]] = []
    position = 0
    size = len(data)
    try:
        while position < size:
            length, body = varint_at(data, position + 1, size)
            if body + length > size:
                break
            position = body + length
            found.append((body, position))
    except ValueError:
        pass
    return found, found[-1][1] if found else 0


def _moved(data: bytes, packets: list[tuple[int, int]], end: int, later_ns: int) -> bytes:
    body = np.array(packets, np.int64)[:, 0]
    block = np.frombuffer(data, np.uint8, end)
    timed = body[block[np.minimum(body, end - 1)] == _TIMESTAMP_KEY]
    if not len(timed):
        return data[:end]
    place = timed[:, None] + np.arange(1, _EPOCH_BYTES + 1)
    digits = block[np.minimum(place, end - 1)]
    fits = (digits[:, :-1] >= 0x80).all() and (digits[:, -1] < 0x80).all()
    shifts = np.arange(_EPOCH_BYTES, dtype=np.uint64) * np.uint64(7)
    times = ((digits & 0x7F).astype(np.uint64) << shifts).sum(axis=1, dtype=np.uint64)
    moved = times.view(np.int64) + later_ns
    if not fits or (moved < 1 << 56).any():
        return b"".join(_moved_one(data, first, last, later_ns) for first, last in packets)
    changed = block.copy()
    new = (moved[:, None].astype(np.uint64) >> shifts).astype(np.uint8) & 0x7F
    new[:, :-1] |= 0x80
    changed[place] = new
    return bytes(changed)


def _moved_one(data: bytes, first: int, last: int, later_ns: int) -> bytes:
    body = data[first:last]
    if body[:1] == bytes([_TIMESTAMP_KEY]):
        time, rest = varint_at(body, 1, len(body))
        body = wire.encode_field(_TIMESTAMP_KEY >> 3, time + later_ns) + body[rest:]
    return wire.encode_field(_PACKET, body)


def _head_of(path: Path, later_ns: int = 0) -> _File:
    file = _File(path, later_ns)
    with path.open("rb") as stream:
        data = stream.read(_BUFFER)
        while (end := _read_head(file, data)) is None and len(data) <= _LARGEST_HEAD:
            more = stream.read(len(data))
            if not more:
                break
            data += more
    if end is None or "processes" not in file.values:
        raise NeuronTbError(
            f"{path} was not written by this version of neuron-tb convert and cannot be joined."
        )
    file.body = end
    with reading(path):
        _joined_values([file])  # what is no value of ours fails here, where its file is known
        _ = file.order
    return file


def _read_head(file: _File, data: bytes) -> int | None:
    """Reads the first packets; where the others begin, None when ``data`` ends before that."""
    try:
        for packet in fields_of(data):
            members = list(fields_of(data, packet.start, packet.end, most=2))
            kind = members[0].number if members else 0
            whole = data[packet.begin : packet.end]
            if kind == _CLOCKS:
                file.clocks = whole
            elif kind == _ATTRIBUTES:
                file.values = dict(_decoded(data, members[0]))
            elif kind == _DESCRIPTOR and not _uuid(data, members[0]):
                file.root = whole
            else:
                return packet.begin
    except ValueError:
        return None
    return len(data)


def _uuid(data: bytes, descriptor: Field) -> int:
    for member in fields_of(data, descriptor.start, descriptor.end):
        if member.number == _UUID:
            return int_of(data, member)
    return 0


def _decoded(data: bytes, attributes: Field) -> Iterable[tuple[str, Value]]:
    """Keys (without the run's name) and values."""
    prefix = ""
    for attribute in fields_of(data, attributes.start, attributes.end):
        key = ""
        value: Value | None = None
        for member in fields_of(data, attribute.start, attribute.end):
            if member.number == 1:
                key = data[member.start : member.end].decode("utf-8", "replace")
            elif member.number == 2:
                value = int_of(data, member)
            else:
                value = data[member.start : member.end].decode("utf-8", "replace")
        if key.startswith(ATTRIBUTE_PREFIX) and key.endswith(".version") and not prefix:
            prefix = key.removesuffix("version")
        if value is not None and prefix:
            yield key.removeprefix(prefix), value


def _encoded(values: dict[str, Value], run: str) -> bytes:
    parts = []
    for key, value in values.items():
        body = wire.encode_field(1, f"{ATTRIBUTE_PREFIX}{run}.{key}")
        body += wire.encode_field(2 if isinstance(value, int) else 3, value)
        parts.append(wire.encode_field(1, body))
    return b"".join(parts)


def _refuse_repeated(heads: Sequence[_File]) -> None:
    seen: dict[tuple[object, ...], Path] = {}
    for head in heads:
        for key in head.processes:
            if key in seen:
                raise NeuronTbError(
                    f"{seen[key]} and {head.path} hold the same process (rank {key[1]}, process "
                    f"{key[2]} of {key[0] or 'an unknown host'}); join each process once."
                )
            seen[key] = head.path


def _joined_values(heads: Sequence[_File]) -> dict[str, Value]:
    first = heads[0].values
    kinds = {str(head.values.get("clock")) for head in heads}
    clock = ClockKind.EPOCH.value if ClockKind.EPOCH.value in kinds else str(first.get("clock"))
    bases = [int(head.values.get("clock_base_ns", 0)) for head in heads]
    sources = [source for head in heads for source in json.loads(str(head.values["sources"]))]
    values: dict[str, Value] = {
        "version": neuron_tb.__version__,
        "capture": str(first.get("capture", "")),
        "sources": json.dumps(list(dict.fromkeys(sources))),
        **_filtered(heads),
        "clock": clock,
        "clock_base_ns": next((base for base in bases if base), 0),
        "clock_resolution_ns": max(int(h.values.get("clock_resolution_ns", 1)) for h in heads),
    }
    for key in _SUMS:
        values[key] = sum(int(head.values.get(key, 0)) for head in heads)
    values["findings"] = json.dumps(_findings(heads).as_dicts())
    values["processes"] = json.dumps([key for head in heads for key in head.processes])
    for head in heads:
        values.update({k: v for k, v in head.values.items() if k.startswith("metadata.")})
    return values


def _filtered(heads: Sequence[_File]) -> dict[str, Value]:
    texts = dict.fromkeys(str(h.values["filtered"]) for h in heads if "filtered" in h.values)
    return {"filtered": " | ".join(texts)} if texts else {}


def _findings(heads: Sequence[_File]) -> Findings:
    findings = Findings()
    for head in heads:
        findings.extend(Findings.of_dicts(json.loads(str(head.values.get("findings", "[]")))))
    return findings
