"""``cpu_util.pb`` and ``host_mem.pb``: samples, told by the shape of their records.

A record has a time in nanoseconds since the Unix epoch, and a percentage as float with the
number of a CPU, or a number of bytes. Field numbers are not known; values tell.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.model import Int64
from neuron_tb.converters.readers.neuron.rows import Sample
from neuron_tb.converters.readers.ntrace.containers import one_list
from neuron_tb.converters.readers.ntrace.numbering import EARLIEST_NS, LATEST_NS
from neuron_tb.converters.readers.ntrace.wire_scan import (
    FIXED32,
    LENGTH,
    VARINT,
    Message,
    Scan,
    scan,
)

_MOST_CPUS = 1 << 16
_FEWEST_BYTES = 1 << 20


def samples(what: str, data: bytes, whole: Message) -> Iterator[Sample]:
    """The samples of a file of ``"cpu"`` or ``"memory"`` samples.

    Raises NeuronTbError (the end of a sentence) when the records do not tell what is what.
    """
    chosen = one_list(data, whole, lambda sample: _time_field(sample) is not None, "samples")
    fields = scan(chosen.records)
    time_field = _time_field(fields)
    if time_field is None or not fields.whole.all():
        raise NeuronTbError("some of its records are no samples")
    time = fields.column(time_field)
    return iter(_cpu(fields, time) if what == "cpu" else _memory(fields, time, time_field))


def _cpu(fields: Scan, time: Int64) -> list[Sample]:
    floats = [number for number, wire in fields.shapes if wire == FIXED32]
    if len(floats) != 1:
        raise NeuronTbError(f"{len(floats)} of its fields are floats, where one is expected")
    util = np.zeros(len(fields), np.float32)
    scalars = fields.scalars[floats[0], FIXED32]
    util[scalars.rows] = scalars.values.astype(np.uint32).view(np.float32)
    if not ((util >= 0) & (util <= 100)).all():
        raise NeuronTbError("its float is no percentage")
    cpus = _cpu_names(fields, time)
    return [
        (f"Host CPU {cpu}", "%", at, value, "")
        for cpu, at, value in zip(cpus, time.tolist(), util.tolist(), strict=True)
    ]


def _cpu_names(fields: Scan, time: Int64) -> list[str]:
    if fields.nested:
        if len(fields.nested) > 1:
            raise NeuronTbError("several of its fields are texts, where one names the CPU")
        names = ["0"] * len(fields)
        (texts,) = fields.nested.values()
        for row, text in zip(texts.rows.tolist(), texts.bodies.texts(), strict=True):
            names[row] = text.decode("utf-8", "replace")
        return names
    numbers = [fields.column(n) for n, wire in fields.shapes if wire == VARINT]
    small = [c for c in numbers if int(c.min()) >= 0 and int(c.max()) < _MOST_CPUS]
    if len(small) > 1 or len(numbers) > 2:
        raise NeuronTbError("several of its fields could be the CPU's number")
    # proto3 does not write a zero, so a file of CPU 0 alone has no such field.
    return [str(n) for n in (small[0].tolist() if small else [0] * len(time))]


def _memory(fields: Scan, time: Int64, time_field: int) -> list[Sample]:
    others = [n for n, wire in fields.shapes if wire == VARINT and n != time_field]
    if len(others) != 1 or LENGTH in {wire for _, wire in fields.shapes}:
        raise NeuronTbError(f"{len(others)} of its fields could be the memory in use")
    used = fields.column(others[0])
    if int(used.max()) < _FEWEST_BYTES or int(used.min()) < 0:
        raise NeuronTbError("its numbers are too small for the bytes of a host in use")
    present = fields.present(others[0])
    return [
        ("Host memory used", "bytes", at, value, "")
        for at, value in zip(time[present].tolist(), used[present].tolist(), strict=True)
    ]


def _time_field(fields: Scan) -> int | None:
    """The only varint field whose values are all times of the host; None when there is none."""
    found = []
    for number, wire in fields.shapes:
        if wire == VARINT and fields.present(number).all():
            values = fields.column(number)
            if int(values.min()) >= EARLIEST_NS and int(values.max()) < LATEST_NS:
                found.append(number)
    return found[0] if len(found) == 1 and fields.whole.all() else None
