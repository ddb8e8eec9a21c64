"""What linking finds: executions, and how each was joined with what caused it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model.columns import (
    NONE,
    Bools,
    Columns,
    Int32,
    Int64,
    UInt8,
    column,
    places,
)
from neuron_tb.converters.model.steps import Steps


class Source(IntEnum):
    """Where a device time comes from. Absence is not a number and has no member."""

    MEASURED = 1
    """The device's own interval (``nc_exec_running``; CUDA, ROCm, XPU and MTIA rows)."""
    WINDOW = 2
    """Enqueue to completion as the host saw it (``privateuse1_driver``)."""


class LinkKind(IntEnum):
    """How two rows were joined; larger numbers are weaker evidence."""

    NONE = 0
    EXTERNAL_ID = 1
    CORRELATION = 2
    FLOW = 3
    """An arrow that the source itself drew from the call to the device row."""
    SEQUENCE_ID = 4
    EXEC_ID = 5
    CONTAINMENT = 6
    ORDER = 7


@dataclass(slots=True)
class Executions(Columns):
    """Device work, one row per execution (the two physical cores of LNC2 are one).

    ``start_ns``; ``duration_ns``: the length of the union of its device rows. ``device``:
    position in ``Trace.devices``. ``source``: a ``Source``. ``transfer``: copies and
    fills. ``name``: position in ``Trace.strings`` of the operator's name, or of the row's own
    name when no operator is known. ``slice``: its first device row. ``launch``: the runtime
    call that issued it. ``operator``: the innermost operator around that call. ``launch_link``,
    ``operator_link``: a ``LinkKind`` each. ``step``: position in ``Trace.steps``.
    ``replaced_by``: for a window (or a framework trace's device event beside a system profile),
    the measured execution that takes its place. Rows are in
    order of start; NONE marks what is absent.
    """

    start_ns: Int64 = column(np.int64)
    duration_ns: Int64 = column(np.int64)
    device: Int32 = column(np.int32)
    source: UInt8 = column(np.uint8)
    transfer: Bools = column(np.bool_)
    name: Int32 = column(np.int32)
    slice: Int32 = column(np.int32)
    launch: Int32 = column(np.int32)
    operator: Int32 = column(np.int32)
    launch_link: UInt8 = column(np.uint8)
    operator_link: UInt8 = column(np.uint8)
    step: Int32 = column(np.int32)
    replaced_by: Int32 = column(np.int32)

    @property
    def end_ns(self) -> Int64:
        """``start_ns + duration_ns``."""
        return self.start_ns + self.duration_ns

    @property
    def counted(self) -> Bools:
        """One interval per execution: all rows but the windows that a measurement replaces."""
        counted: Bools = self.replaced_by == NONE
        return counted


@dataclass(frozen=True, slots=True)
class Links:
    """How device work, runtime calls, operators and steps belong together.

    ``execution_of_slice``: for every slice of the trace the execution it is a row of, else NONE.
    ``findings``: what could not be joined. ``left_out``: executions of the capture that are not
    among these, because only a part of it was wanted.
    """

    executions: Executions
    execution_of_slice: Int32
    steps: Steps
    findings: Findings = field(default_factory=Findings)
    left_out: int = 0

    def among(self, kept: Bools) -> Links:
        """The same links of fewer slices: of those that a mask over all of them keeps.

        An execution stays with its first device row, a step with its annotation; what else they
        name may become NONE.
        """
        place = places(kept)
        new_slice = place[self.steps.slice]
        stays = (new_slice != NONE) | (self.steps.slice == NONE)
        steps, of_step = replace(self.steps.take(stays), slice=new_slice[stays]), places(stays)
        rows = self.executions
        stays = place[rows.slice] != NONE
        # A window stands back behind a measurement, also where that one is not shown.
        stays &= (rows.replaced_by == NONE) | (places(stays)[rows.replaced_by] != NONE)
        of_row = places(stays)
        left = rows.take(stays)
        left = replace(
            left,
            slice=place[left.slice],
            launch=place[left.launch],
            operator=place[left.operator],
            step=of_step[left.step],
            replaced_by=of_row[left.replaced_by],
        )
        gone = self.left_out + int(np.count_nonzero(rows.counted) - np.count_nonzero(left.counted))
        return Links(left, of_row[self.execution_of_slice[kept]], steps, self.findings, gone)

    def renumbered(self, of_device: Int32, of_process: Int32) -> Links:
        """The same links after devices and processes got new positions, NONE for those gone.

        Each has one entry more than there were devices or processes, which is NONE.
        """
        process = of_process[self.steps.process]
        stays = process != NONE
        rows = self.executions
        rows = replace(rows, device=of_device[rows.device], step=places(stays)[rows.step])
        steps = replace(self.steps.take(stays), process=process[stays])
        return replace(self, executions=rows, steps=steps)
