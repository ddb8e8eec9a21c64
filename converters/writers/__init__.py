"""One file per output format: ``write(trace, destination) -> list[Written]``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import Trace


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a run goes: the folder, the run's name, and the chip's instance type if known.

    ``local_rank``: of the only rank that is written, among those of its host that write the same
    run apart; it keeps their device numbers apart.
    """

    out: Path
    run: str
    instance_type: str | None = None
    force: bool = False
    local_rank: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """One file that was written, or the sentence why there is none.

    ``slices``: how many slices of the trace the file shows. ``findings``: what this format made
    necessary (lanes for overlaps, rows that the viewer cannot take). ``place``: the URL of a file
    that was uploaded, whose ``path`` is gone. ``bytes``: its size, of an uploaded file.
    """

    target: str
    path: Path | None
    slices: int = 0
    skipped: str | None = None
    findings: Findings = field(default_factory=Findings)
    place: str = ""
    bytes: int | None = None

    @property
    def shown(self) -> str:
        """Where the file is, for people: its path, or the URL that it was uploaded to."""
        return self.place or str(self.path)


Writer = Callable[[Trace, Destination], list[Written]]
