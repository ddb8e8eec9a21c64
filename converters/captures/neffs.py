"""Compiled programs (NEFF files) that executions name and a capture does not hold.

Without its NEFF an execution's device profile cannot be made: in eager mode there are hundreds
of them, and some stay in another cache. The executions themselves lack nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import numpy as np

from neuron_tb.converters.model import Role, Trace

_NAMED = re.compile(rb'"(?:model_name|neff_name|neff)":\s*"([^"\\]{1,500}\.neff)"')
_SHOWN = 5


def report_absent(trace: Trace, listed: Iterable[Path]) -> None:
    """Report NEFF files that executions name and that are not among ``listed``.

    Only where a capture has device profiles or NEFF files at all.
    """
    present = {path.name for path in listed if path.suffix in (".neff", ".ntff")}
    rows = np.flatnonzero(trace.roles(Role.KERNEL))
    if not present or not len(rows):
        return
    text = trace.arguments.joined(trace.slices.args_start[rows], trace.slices.args_length[rows])
    named = {PurePosixPath(m.decode("utf-8", "replace")).name for m in _NAMED.findall(text)}
    absent = sorted(named - present)
    trace.findings.add(
        "neff_absent",
        "executions name NEFF files that the capture does not hold, without which their device "
        f"profiles cannot be made: {', '.join(absent[:_SHOWN])}"
        + (f" and {len(absent) - _SHOWN:,} more" if len(absent) > _SHOWN else ""),
        len(absent),
    )
