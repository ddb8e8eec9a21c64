"""What was repaired, dropped, unmatched or guessed while a capture was read.

A reader, the linker or a writer adds findings; every command prints them, every output stores
them, and ``--strict`` turns their presence into exit code 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of thing that happened ``count`` times.

    ``kind`` is a stable identifier (documented in the README), ``message`` one sentence that
    says what happened and what was done, ``where`` the first place (file, event) if known.
    """

    kind: str
    count: int
    message: str
    where: str | None = None

    def as_dict(self) -> dict[str, object]:
        """The JSON form: ``kind``, ``count``, ``message`` and, when known, ``where``."""
        row: dict[str, object] = {"kind": self.kind, "count": self.count, "message": self.message}
        if self.where is not None:
            row["where"] = self.where
        return row

    def __str__(self) -> str:
        return self.message if self.where is None else f"{self.message} (first: {self.where})"


class Findings:
    """An ordered collection of findings; equal kind and message are counted together."""

    def __init__(self, findings: Iterable[Finding] = ()) -> None:
        self._by_key: dict[tuple[str, str], Finding] = {}
        self.extend(findings)

    @classmethod
    def of_dicts(cls, rows: object) -> Findings:
        """What ``as_dicts`` gave, from a file. Raises msgspec.ValidationError for all else."""
        return cls(msgspec.convert(rows, list[Finding]))

    def add(self, kind: str, message: str, count: int = 1, where: str | None = None) -> None:
        """Record ``count`` more occurrences; the first ``where`` is kept."""
        if count <= 0:
            return
        old = self._by_key.get((kind, message))
        if old is not None:
            count, where = old.count + count, old.where or where
        self._by_key[kind, message] = Finding(kind, int(count), message, where)

    def extend(self, findings: Iterable[Finding]) -> None:
        """Add every finding of another collection."""
        for finding in findings:
            self.add(finding.kind, finding.message, finding.count, finding.where)

    def of_kind(self, kind: str) -> int:
        """How often ``kind`` was counted, over all its messages."""
        return sum(f.count for f in self if f.kind == kind)

    def as_dicts(self) -> list[dict[str, object]]:
        """All findings in their JSON form."""
        return [finding.as_dict() for finding in self]

    def __iter__(self) -> Iterator[Finding]:
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)

    def __bool__(self) -> bool:
        return bool(self._by_key)
