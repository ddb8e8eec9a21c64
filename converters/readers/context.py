"""What the place of a file says about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Context:
    """What the place of a file says about it; empty where it says nothing.

    ``host`` and ``pid`` come from a capture directory ``<host>_pid_<pid>``, ``rank`` from the
    file's name. ``neuron`` is True where the layout is AWS's own.
    """

    host: str = ""
    pid: int | None = None
    rank: int | None = None
    neuron: bool = False
