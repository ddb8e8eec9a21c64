"""Arrows of Chrome-trace JSON beyond ``s``, ``t`` and ``f`` events, and their historic names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HOST_TO_DEVICE = frozenset(("ac2g", "async", "async_gpu", "async_cpu_to_gpu"))
"""Names that Kineto has had for the arrow from a call to its device work; all mean one thing."""

FORWARD_BACKWARD = frozenset(("fwdbwd", "fwd_bwd", "forward_backward"))
"""Names of the arrow from a forward operator to its backward one."""

BOUND = "bind_id"
"""The kind of arrows that slices themselves name."""


def family(category: str) -> str:
    """Categories whose ends may join: the historic names of one arrow are one family."""
    if category in HOST_TO_DEVICE:
        return "ac2g"
    return "fwdbwd" if category in FORWARD_BACKWARD else category


@dataclass(slots=True)
class BoundEnd:
    """A slice that names an arrow itself, in the form of a flow event."""

    ph: str
    id: object
    pid: object
    tid: object
    ts: object
    dur: object
    cat: str = BOUND
    bp: str = "e"


def bound_ends(events: Iterable[object]) -> list[BoundEnd]:
    """The ends that ``bind_id`` with ``flow_out`` and ``flow_in`` of slices stand for."""
    found = []
    for event in events:
        identity = getattr(event, "bind_id", None)
        out, into = bool(getattr(event, "flow_out", 0)), bool(getattr(event, "flow_in", 0))
        if identity is None or not (out or into):
            continue
        phase = "t" if out and into else "s" if out else "f"
        found.append(
            BoundEnd(
                phase,
                identity,
                event.pid,  # type: ignore[attr-defined]
                event.tid,  # type: ignore[attr-defined]
                event.ts,  # type: ignore[attr-defined]
                event.dur,  # type: ignore[attr-defined]
            )
        )
    return found
