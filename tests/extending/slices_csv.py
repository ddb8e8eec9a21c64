"""Reads a table of slices: ``start_ns,duration_ns,thread,name``, times since the Unix epoch."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.model import (
    NONE,
    Process,
    Role,
    Slices,
    StringTable,
    Trace,
    Track,
    TrackKind,
)
from neuron_tb.converters.readers.context import Context

_COLUMNS = ["start_ns", "duration_ns", "thread", "name"]


def read(path: Path, context: Context) -> Trace:
    """A Trace of one process; a row that is no slice is counted and left out."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    if header != _COLUMNS:
        raise NeuronTbError(f"{path} is no table of slices: its columns are {', '.join(header)}.")
    trace = Trace(
        path.stem,
        processes=[Process(context.host, context.pid or 0, context.rank)],
        metadata=[{}],
        sources=[str(path)],
    )
    whole = [row for row in rows if len(row) == 4 and row[0].isdecimal() and row[1].isdecimal()]
    trace.findings.add("not_a_slice", "rows of the table are no slices", len(rows) - len(whole))
    start, duration, thread, name = zip(*whole, strict=True) if whole else ((), (), (), ())
    names, threads, n = StringTable(), StringTable(), len(whole)
    absent = np.full(n, NONE, np.int64)
    trace.slices = Slices(
        start_ns=np.array(start, np.int64),
        duration_ns=np.array(duration, np.int64),
        name=names.intern_all(name, n),
        category=np.full(n, names.intern("csv"), np.int32),
        track=threads.intern_all(thread, n),
        role=np.full(n, Role.OTHER, np.uint8),
        external_id=absent,
        correlation=absent,
        sequence_id=absent,
        exec_id=absent,
        args_start=np.zeros(n, np.int64),
        args_length=np.zeros(n, np.int32),
    )
    trace.strings = names.strings
    trace.tracks = [
        Track(0, TrackKind.THREAD, text, tid=number) for number, text in enumerate(threads.strings)
    ]
    return trace
