"""Opening what was written with the consumer's own code, and saying what each view has."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class View:
    """One view of a viewer: its name there, one sentence on what it shows, and whether it opens."""

    name: str
    content: str
    ok: bool = True


@dataclass(slots=True)
class Report:
    """What one written file turned out to hold.

    ``slices``: slices that the consumer found again. ``problems``: sentences; none means that
    the check passed. ``skipped``: why the consumer could not be asked (not installed, …).
    """

    target: str
    path: str
    slices: int = 0
    views: list[View] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    skipped: str | None = None

    @property
    def passed(self) -> bool:
        """True when every slice is accounted for and every non-empty view opens."""
        return not self.problems and all(view.ok for view in self.views)
