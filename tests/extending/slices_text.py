"""Writes slices as lines of text, in order of time: ``<start_ns> <duration_ns> <row> <name>``."""

from __future__ import annotations

import numpy as np

from neuron_tb.converters.model import Trace
from neuron_tb.converters.storage.output import refuse_overwrite, replacing_file
from neuron_tb.converters.writers import Destination, Written
from neuron_tb.converters.writers.targets import TARGETS

TARGET = "text"


def write(trace: Trace, destination: Destination) -> list[Written]:
    """One file for all processes."""
    path = TARGETS[TARGET].path(destination.out, destination.run)
    refuse_overwrite(path, destination.force)
    slices = trace.slices.take(np.argsort(trace.slices.start_ns, kind="stable"))
    columns = (slices.start_ns, slices.duration_ns, slices.track, slices.name)
    with replacing_file(path) as file:
        for start, duration, track, name in zip(*(c.tolist() for c in columns), strict=True):
            line = f"{start} {duration} {trace.tracks[track].name} {trace.strings[name]}\n"
            file.write(line.encode())
    return [Written(TARGET, path, slices=len(slices))]
