"""The steps of the profiled loop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neuron_tb.converters.model.columns import NONE, Columns, Int32, Int64, column


@dataclass(slots=True)
class Steps(Columns):
    """Steps of the profiled loop, one row per process and step, in order of (process, start).

    ``process``: position in ``Trace.processes``. ``number``: the N of ``ProfilerStep#N``.
    ``start_ns``, ``end_ns``: the annotation on the host. ``slice``: the annotation's row, NONE
    for the one implicit step (number 0, called ``capture``) of a process without annotations.
    """

    process: Int32 = column(np.int32)
    number: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)
    slice: Int32 = column(np.int32)

    @property
    def implicit(self) -> bool:
        """True when the source marked no step at all."""
        return bool(np.all(self.slice == NONE))

    def label(self, step: int) -> str:
        """The step's name for people: its number, or ``capture``."""
        return "capture" if self.slice[step] == NONE else str(int(self.number[step]))
