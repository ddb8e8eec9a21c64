"""What the planes of an XSpace are called, which decides what XProf shows of them."""

from __future__ import annotations

import re

HOST_PLANE = "/host:CPU"
"""Everything of the host."""

ACCOUNT_PLANE = "Task Environment"
"""XProf's plane for facts about the run; what the file shows is counted in its stats.

So are the facts that joining files of ranks takes: the time that the file's times count from
(nanoseconds), its processes in order (JSON: host, pid, rank), and its steps (JSON: all, and those
with work on every device that has any).
"""
ACCOUNT_ZERO = "neuron_tb_zero_ns"
ACCOUNT_PROCESSES = "neuron_tb_processes"
ACCOUNT_STEPS = "neuron_tb_steps"

_CORE = "/device:TPU:"
_CUSTOM = "/device:CUSTOM:"
_A_CORE = re.compile(rf"{_CORE}\d+")


def core_plane(number: int) -> str:
    """A logical core: XProf fills its tables for no other name that does not claim a vendor."""
    return f"{_CORE}{number}"


def is_core_plane(name: str) -> bool:
    """Whether a plane has that name."""
    return _A_CORE.fullmatch(name) is not None


def custom_plane(label: str) -> str:
    """Rows of a device that are drawn and never counted."""
    return f"{_CUSTOM}{label}"


def custom_label(name: str) -> str | None:
    """The label in the name of such a plane; None for another."""
    return name.removeprefix(_CUSTOM) if name.startswith(_CUSTOM) else None
